package main

// This file is about how an order gets paid. A payment session is a page at a gateway, and a row that says when the
// gateway is asked about it next. A page is either wanted or closed. What the gateway answers is written into the order's
// book, and order_book.go says what that means for the order. A notification makes its session due; only one about a
// dispute changes a payment. Only the serving process asks on its own, one check per order at a time; what a person does
// calls a gateway from wherever it is done.
//
// Whatever changes an order goes through changeOrder (order_acts.go): its callback changes the book or a session; then
// settle says what the order is now, and its stock, history, events and due sessions follow, all in one write.
//
// A session is seen when somebody may have its page, left when its page is no longer offered, and over when no payment can
// begin there; one that has begun may still arrive. While its page is wanted, it is checked with growing pauses. At the
// order's end, or when the order has another method, its page is left, and closed by a check that is due at once. Once it
// is over, it is checked until its last news and its page's end are a week ago.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// payments starts, checks and closes payment sessions.
type payments struct {
	db       *DB
	gateways gateways
	locks    sync.Map // a chan struct{} by order id: one call about an order at a time
}

// lock waits until nobody else calls a gateway about an order. The error is that of ctx if it ends first.
func (p *payments) lock(ctx context.Context, orderID string) (unlock func(), err error) {
	mine := make(chan struct{})
	for {
		other, taken := p.locks.LoadOrStore(orderID, mine)
		if !taken {
			return func() { p.locks.Delete(orderID); close(mine) }, nil
		}

		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// isBusy reports whether somebody is calling a gateway about an order right now.
func (p *payments) isBusy(orderID string) bool {
	_, isLocked := p.locks.Load(orderID)
	return isLocked
}

// Notify takes a notification. From a verified one, only the names, a claim of money and a dispute are kept,
// and its session becomes due: the gateway is asked for the rest afterwards. The error is ErrNotFound if it
// is not verified, and Unavailable for a refund whose payment may not be known yet. Any other notification
// that matches no session is only logged.
func (p *payments) Notify(ctx context.Context, provider Provider, storeID string, header http.Header, body []byte) error {
	keys, err := p.db.GatewayKeys(ctx, storeID, provider, "") // none for a provider that does not exist
	if err != nil {
		return err
	}

	var isVerified, isRefund bool
	for _, key := range keys { // Several may have the same token.
		n, err := p.gateways[provider].verify(key, header, body)
		if err != nil {
			continue
		}

		isVerified = true
		err = p.markDue(ctx, key, n)
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		isRefund = n.IsRefund
	}

	if !isVerified {
		return ErrNotFound
	}
	if isRefund {
		// No answer has shown the refund's payment. It may belong to one of these sessions, so the gateway
		// has to send the refund again.
		_, err = one[int](ctx, p.db, `
			SELECT 1
			FROM   payment_sessions s
			JOIN   orders o ON o.id = s.order_id
			WHERE  s.due_at > 0 AND s.seen = 1 AND s.over = 0 AND s.provider = ? AND o.store_id = ?
			LIMIT  1`, provider, storeID)
		if err == nil {
			err = refuse(Unavailable)
		}
		if !errors.Is(err, ErrNotFound) {
			return err
		}
	}

	p.db.log.Warn("a notification matches no payment session of this store", "provider", provider, "store", storeID)
	return nil
}

// markDue makes the session due that a notification is about. A session that the file does not know, after a
// restore, is added to its order. A session trusts the key that it was made with, and the one that new pages
// of its order are made with, but no other: strangers may know a key that was replaced.
func (p *payments) markDue(ctx context.Context, key GatewayKey, n Notification) error {
	orderID, number, err := p.sessionOf(ctx, key, n)
	if err != nil {
		return err
	}

	_, err = p.db.changeOrder(ctx, key.StoreID, orderID, func(tx *Tx, o *OrderRow) error {
		s := o.session(number)
		opensPages := key.opensPagesOf(*o)
		switch {
		case s == nil && opensPages:
			o.addSession(tx, number)
			s = &o.Sessions[0]
			s.Provider = key.Provider
			s.KeyID = key.ID
			s.Left = true
		case s == nil, s.KeyID != key.ID && !opensPages, s.Provider != key.Provider:
			return ErrNotFound // After a restore, the number may be that of a page at the other gateway.
		}

		s.Seen = true
		if n.ClaimsMoney {
			s.Claimed = cmp.Or(s.Claimed, n.Names[0])
		}

		names := unite(s.Names, n.Names)
		s.GatewayID = cmp.Or(s.GatewayID, n.SessionID)
		switch {
		case n.Disputed == 0:
		case s.GatewayID == "": // After a restore, its payment is not known yet: what is said after it is still news.
			names = s.Names
		case len(names) > len(s.Names): // This is news that the owner has not dealt with.
			o.Book.Resolved = slices.DeleteFunc(o.Book.Resolved, func(a Alert) bool { return a.Code == Disputed })
			o.enterInBook(s, []Payment{{ID: s.GatewayID, State: Open, Disputed: n.Disputed}})
		}

		s.Names = names
		s.Notified++
		s.NewsAt = tx.now
		s.DueAt = tx.now
		return nil // Without a dispute the book is as before: status and stock stay, and there is no event.
	})
	return err
}

// sessionOf finds the order and the number of the session that a notification is about: by our name for it,
// which is <order id>-<number>, or without that (a refund at Xendit) by a name that is known to belong to it.
func (p *payments) sessionOf(ctx context.Context, key GatewayKey, n Notification) (orderID string, number int, err error) {
	// All ids are as long as the store's; another reference is not ours.
	if i := strings.LastIndexByte(n.Reference, '-'); i == len(key.StoreID) {
		number, _ = strconv.Atoi(n.Reference[i+1:])
		return n.Reference[:i], max(number, 1), nil // No session has the number 0.
	}

	type found struct {
		OrderID string
		Number  int
	}
	s, err := one[found](ctx, p.db, `
		SELECT order_id, number
		FROM   payment_sessions
		WHERE  provider = ? AND EXISTS (
			SELECT 1 FROM json_each(names) WHERE value IN (SELECT value FROM json_each(?)))
		       AND EXISTS (SELECT 1 FROM orders WHERE id = order_id AND store_id = ?)
		LIMIT  1`, key.Provider, fromJSON{n.Known}, key.StoreID)
	return s.OrderID, s.Number, err
}

// How many checks may be under way: at one provider, and for one store there.
const (
	mostChecksOfProvider = 32
	mostChecksOfStore    = 4
)

// run checks what is due and lets orders expire, until ctx ends.
func (p *payments) run(ctx context.Context) {
	underWay := map[string]dueOrder{}
	ended := make(chan string)
	for {
		wait, err := p.startDue(ctx, underWay, ended)
		if err != nil && ctx.Err() == nil {
			p.db.log.Error("payments cannot be checked", "error", err)
			wait = 10 * time.Second
		}

		select {
		case <-ctx.Done():
			for range underWay {
				<-ended
			}
			return
		case id := <-ended:
			delete(underWay, id)
		case <-p.db.checksDue:
		case <-time.After(wait):
		}
	}
}

// dueOrder is an order with a session that is due.
type dueOrder struct {
	ID, StoreID string
	Provider    Provider
}

// startDue begins the checks that are due and that the limits allow, and lets orders expire, but not after a
// jump of the clock. It returns how long until there is more to do.
func (p *payments) startDue(
	ctx context.Context, underWay map[string]dueOrder, ended chan string,
) (wait time.Duration, err error) {
	if !p.db.observeClock() {
		return time.Minute, nil
	}

	err = p.db.checkWritable()
	if err == nil {
		err = p.expire(ctx)
	}
	if err != nil {
		return 0, err
	}

	// What is due later than the longest pause was written by a clock that was ahead, and is due now.
	now := p.db.now()
	due, err := all[dueOrder](ctx, p.db, `
		SELECT order_id AS id, store_id, provider FROM (
			SELECT s.order_id, o.store_id, s.provider,
			       row_number() OVER (PARTITION BY o.store_id, s.provider ORDER BY min(s.due_at)) AS place
			FROM   payment_sessions s
			JOIN   orders o ON o.id = s.order_id
			WHERE  s.due_at > 0 AND s.seen = 1 AND (s.due_at <= ? OR s.due_at > ?)
			GROUP  BY s.order_id, s.provider)
		WHERE  place <= ?
		ORDER  BY random()`, now, now.Add(mostQuietWait), mostChecksOfStore)
	if err != nil {
		return 0, err
	}

	for _, d := range due { // Those under way may be among them.
		var ofProvider, ofStore int
		for _, other := range underWay {
			if other.Provider == d.Provider {
				ofProvider++
				if other.StoreID == d.StoreID {
					ofStore++
				}
			}
		}

		if underWay[d.ID].ID == "" && ofProvider < mostChecksOfProvider && ofStore < mostChecksOfStore {
			underWay[d.ID] = d
			go func() {
				_, err := p.check(ctx, d.StoreID, d.ID, false)
				if err != nil && ctx.Err() == nil {
					p.db.log.Error("a payment could not be checked", "error", err)
					select { // It is still due, and keeps its place for a while.
					case <-time.After(10 * time.Second):
					case <-ctx.Done():
					}
				}
				ended <- d.ID
			}()
		}
	}

	next, err := one[Time](ctx, p.db, `
		SELECT min(at) FROM (
			SELECT min(due_at) AS at FROM payment_sessions WHERE due_at > 0 AND seen = 1 AND due_at > ?1
			UNION ALL
			SELECT min(expires_at) FROM orders WHERE status = 'pending' AND expires_at > ?1
			UNION ALL
			SELECT ?2)`, now, now.Add(mostPageWait))
	return next.Sub(now), err
}

// CheckNow asks the gateways about all sessions of an order of a store, and waits for the answers.
func (p *payments) CheckNow(ctx context.Context, storeID, orderID string) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	answered, err = p.check(ctx, storeID, orderID, true)
	if ctx.Err() != nil {
		err = nil
	}
	return answered, err
}

// check asks the gateways about an order's sessions whose page somebody may have seen: all of these, or those
// that are due. It reports whether all have answered. After a jump of the clock it asks nobody, because a
// wrong time would make it close pages. A panic over an answer becomes an error, and the session stays due.
func (p *payments) check(ctx context.Context, storeID, orderID string, everySession bool) (answered bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	if !p.db.observeClock() {
		return false, nil
	}

	unlock, err := p.lock(ctx, orderID)
	if err != nil {
		return false, err
	}
	defer unlock()
	o, err := readOrder(ctx, p.db, storeID, orderID)
	if err != nil {
		return false, err
	}

	answered = true
	now := p.db.now()
	for _, s := range o.Sessions {
		due := s.DueAt > 0 && s.DueAt <= now || s.DueAt > now.Add(mostQuietWait) // set by a clock that was ahead
		if s.Seen && (due || everySession) {
			ok, err := p.checkSession(ctx, o, s)
			if err != nil {
				return false, err
			}
			answered = answered && ok
		}
	}
	return answered, nil
}

// checkSession asks the gateway about a session. An unwanted page is closed, if it can be paid or has a held
// payment, and asked about again, because money may have arrived meanwhile. Closing never takes money back.
// While an order waits for a held payment, the page of that payment is wanted.
func (p *payments) checkSession(ctx context.Context, o OrderRow, s PaymentSession) (answered bool, err error) {
	keys, err := p.db.GatewayKeys(ctx, o.StoreID, s.Provider, s.KeyID) // the session's own, then the one in use
	if err != nil {
		return false, err
	}

	o, answered, err = p.checkOnce(ctx, keys, o, s)
	if err != nil || !answered {
		return false, err
	}

	s = *o.session(s.Number)
	if s.wanted(o, p.db.now()) || s.Over && !o.Book.heldOn(s.Number) { // Most often, a page that was paid is over.
		return true, nil
	}

	// If it stays open, the next check tries again, until the gateway says that it is over.
	if p.gateways[s.Provider].closePage(ctx, keys[0], o.withItsPayments(s)) {
		s.Over = true // This is recorded, unless the gateway says that the page is open.
		_, answered, err = p.checkOnce(ctx, keys, o, s)
	}
	return answered, err
}

// checkOnce asks the gateway about sent, a session as it was read, with the key that it was made with,
// keys[0]. If that key is refused, the one in use is tried; its answer counts only if it has a payment. Then
// the answer, or the lack of one, is written, with what follows for the order. It is applied to the session
// as it is by then: if a notification came after the request was sent, the session stays due. It returns the
// order, and whether the gateway has answered.
func (p *payments) checkOnce(
	ctx context.Context, keys []GatewayKey, o OrderRow, sent PaymentSession,
) (OrderRow, bool, error) {
	began := p.db.now()
	gateway := p.gateways[sent.Provider]
	sent = o.withItsPayments(sent)
	answer, failed := gateway.status(ctx, keys[0], sent)
	if isRefused(failed, GatewayRefused) && len(keys) > 1 && keys[1].ReplacedAt == 0 {
		if other, err := gateway.status(ctx, keys[1], sent); len(other.Payments) > 0 {
			answer = other
			failed = err
		}
	}
	if ctx.Err() != nil {
		return o, false, ctx.Err()
	}
	if failed != nil && sent.Problem == "" { // Of several failures in a row, only the first is logged.
		p.db.log.Warn("a gateway gave no usable answer", "provider", sent.Provider, "error", failed)
	}
	o, err := p.db.changeOrder(context.WithoutCancel(ctx), o.StoreID, o.ID, func(tx *Tx, o *OrderRow) error {
		s := o.session(sent.Number)
		s.Problem, s.Words = problemOf(failed)
		s.NewsAt = min(s.NewsAt, tx.now) // It may have been set by a clock that was ahead.
		names := unite(s.Names, answer.Names)
		if o.enterInBook(s, answer.Payments) || len(names) > len(s.Names) { // also what was read before a failure
			s.NewsAt = tx.now
		}
		s.Names = names
		s.Left = s.Left || answer.Canceled
		if failed == nil {
			// sent.Over is also set when the page has just been closed. A page opens again once a payment was
			// taken back. If the answer says neither, what was known stays.
			s.Over = answer.Over || (s.Over || sent.Over) && !answer.Open
		}
		// o is the order as it was just read: changeOrder settles after this, and makeSessionsDue may make
		// the session due then. If the end of a pending order has passed since the check began, nextCheck
		// returns that end: the session is checked once more, now.
		s.DueAt = s.nextCheck(*o, began)
		if s.Notified != sent.Notified {
			s.DueAt = tx.now
		}
		return nil
	})
	return o, failed == nil, err
}

// enterInBook adds what a gateway has said about the payments of a session to the book, and a note to o.news
// of each change that belongs in the history. It reports whether anything changed. A notification's claim is
// over once its payment is said to be anything but open.
func (o *OrderRow) enterInBook(s *PaymentSession, said []Payment) (news bool) {
	for _, payment := range said {
		if payment.ID == s.Claimed && payment.State != Open {
			s.Claimed = ""
		}

		before := Payment{Attempt: s.Number, ID: payment.ID, Asked: s.Asked}
		i := slices.IndexFunc(o.Book.Payments, func(p Payment) bool { return p.key() == before.key() })
		if i < 0 {
			i = len(o.Book.Payments)
			o.Book.Payments = append(o.Book.Payments, before)
		}

		before = o.Book.Payments[i]
		after := before.learn(payment)
		if after == before {
			continue
		}

		news = true
		o.Book.Payments[i] = after
		add := func(code NoteCode, amount, due int64) {
			o.news = append(o.news, Note{Code: code, Provider: s.Provider, Attempt: s.Number, Payment: payment.ID,
				Amount: amount, Due: due})
		}
		if after.State != before.State && after.State != Open && after.State != ExpiredPayment {
			add(NoteCode(after.State), after.Amount, after.Asked)
		}
		if after.Returned > before.Returned {
			add(NoteReturned, after.Returned, after.Amount)
		}
		if after.Disputed > before.Disputed {
			add(NoteDisputed, after.Disputed, after.Amount)
		}
	}
	return news
}

// unite returns names with those of more that are new: it is longer then.
func unite(names, more []string) []string {
	for _, name := range more {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// expire lets orders expire that are past their end. Each of an order's pages has to be over, and checked
// since the end, when all of them became due (nextCheck): a check that is still due keeps the order pending.
// So does a claim of money, until an answer says what became of that payment. After a week the order expires
// in any case, and its history names a payment that was claimed.
func (p *payments) expire(ctx context.Context) error {
	const sqlExpiring = ` -- ?3 is an order's id, or '' for all
		SELECT id FROM orders o
		WHERE  status = 'pending' AND expires_at <= ?1 AND (?3 = '' OR id = ?3) AND (expires_at <= ?2 OR NOT EXISTS (
			SELECT 1 FROM payment_sessions s
			WHERE  s.order_id = o.id AND s.seen = 1 AND (s.over = 0 OR s.claimed <> '' OR s.due_at BETWEEN 1 AND ?1)))
		LIMIT  64`
	now := p.db.now()
	ids, err := all[string](ctx, p.db, sqlExpiring, now, now.Add(-giveUpAfter), "")
	for _, id := range ids {
		_, err := p.db.changeOrderOfAnyStore(ctx, id, func(tx *Tx, o *OrderRow) error {
			var still string
			if !tx.find(&still, sqlExpiring, tx.now, tx.now.Add(-giveUpAfter), id) {
				return ErrNotFound
			}
			tx.checksDue = true // More orders than these may be past their end.
			note := Note{Code: NoteNotPaid}
			for _, s := range o.Sessions {
				if s.Claimed != "" {
					note = Note{Code: NoteUnconfirmed, Provider: s.Provider, Attempt: s.Number, Payment: s.Claimed}
					p.db.log.Warn("a gateway announced a payment and never confirmed it: look at the order",
						"store", o.StoreID)
				}
			}
			return o.become(Expired, ActorClock, note)
		})
		if errors.Is(err, ErrUnavailable) {
			return err
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			p.db.log.Error("an order could not expire", "error", err)
		}
	}
	return err
}
