package main

// This file is about how money becomes known. It goes in the order of events. A notification makes its payment session
// due. A due session is checked at its gateway. The answer is entered in the order's book, and order_book.go says what
// that means for the order. An order that is past its end expires.
//
// Only a gateway's answer counts. From a notification, only identifiers, a reported payment and a dispute are kept.
// Only the serving process checks what is due, and it makes one call at a time about an order. A person's act calls the
// gateway at once (payment_starts.go).
//
// A page that is not wanted any more is closed: order_sessions.go says which those are, and when a session is checked.
// Whatever changes an order goes through changeOrder (order.go): its callback changes the book or a session; then
// settle says what the order is now, and its stock, history, events and due sessions follow, all in one write.

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
	notified *limiter // of verified notifications, by store

	// Orders that ended up to this time have been looked at. Those that did not expire wait for a check. It belongs to
	// the goroutine of runChecks.
	expiredUntil Time
}

// Notification is what a verified notification says. Its session is that of Reference or, without one (a
// refund at Xendit), the one whose identifiers include one of Known.
type Notification struct {
	Reference    string
	SessionID    string   // the gateway's
	Identifiers  []string // to be kept; "" = one that identifier refused
	ReportsMoney bool     // it says that Payment arrived or is held
	Payment      string   // its id in answers, or our reference if identifier refused it

	// Only Xendit sets the rest.
	Known      []string // what identifies its payment if the reference is not ours; a refund and a dispute have one
	RefundedAt Time     // of a refund, which names nothing but its payment
	Disputed   int64    // in rupiah, with a dispute; negative once the store has won
}

// Notify takes a notification. The error is ErrNotFound if it cannot be verified, and RateLimited if the store gets too
// many. It is Unavailable for a refund whose payment may not be known yet, so that the gateway sends it again. Any
// other notification that matches no session is only logged.
func (p *payments) Notify(
	ctx context.Context, provider Provider, storeID string, header http.Header, body []byte,
) error {
	keys, err := gatewayKeys(ctx, p.db, storeID, provider, "") // none for a provider that does not exist
	if err != nil {
		return err
	}

	isVerified := false
	var refundedAt Time
	for _, key := range keys { // Several may have the same token.
		n, err := p.gateways.open(key).verify(header, body)
		if err != nil {
			continue
		}

		if !isVerified {
			if err := p.notified.take(storeID).err; err != nil {
				return err
			}
		}
		isVerified = true
		p.noteVerified(ctx, key)
		refundedAt = n.RefundedAt
		err = p.markDue(ctx, key, n)
		if !errors.Is(err, ErrNotFound) { // Its session was found: it is due, or the write has failed.
			return err
		}
	}

	if !isVerified {
		return ErrNotFound
	}
	if err := p.refuseEarlyRefund(ctx, provider, storeID, refundedAt); err != nil {
		return err
	}
	p.db.log.Warn("a notification matches no payment session of this store", "provider", provider, "store", storeID)
	return nil
}

// noteVerified records when a notification was verified with a key, so that its owner sees that notifications arrive.
func (p *payments) noteVerified(ctx context.Context, key GatewayKey) {
	now := p.db.now()
	if now.Sub(key.NotifiedAt) < time.Minute {
		return
	}
	err := p.db.mustChange(ctx, "UPDATE gateway_keys SET notified_at = ? WHERE id = ?", now, key.ID)
	if err != nil {
		p.db.log.Warn("cannot record that a notification came", "error", err)
	}
}

// refuseEarlyRefund has the gateway send a refund again that no answer has shown a payment for, if it may belong to a
// session that has no payment yet, of one of the store's newest orders. A refund that has been on its way for an hour,
// or a gateway's sample, belongs to none. Other notifications have no refundedAt, and pass.
func (p *payments) refuseEarlyRefund(ctx context.Context, provider Provider, storeID string, refundedAt Time) error {
	if p.db.now().Sub(refundedAt) > time.Hour {
		return nil
	}
	isEarly, err := one[bool](ctx, p.db, `
		SELECT EXISTS (
			SELECT 1
			FROM   (SELECT id FROM orders WHERE store_id = ? ORDER BY created_at DESC LIMIT ?) o
			JOIN   payment_sessions s ON s.order_id = o.id
			WHERE  s.due_at > 0 AND s.seen = 1 AND s.provider = ? AND NOT EXISTS (
				SELECT 1 FROM payments p WHERE p.order_id = s.order_id AND p.attempt = s.number))`,
		storeID, mostLookedAt, provider)
	if isEarly {
		return refuse(Unavailable)
	}
	return err
}

// mostNotified is how many sessions an order may have before notifications stop adding any.
const mostNotified = 50

// markDue makes the session of a notification due. A session that the file does not know, after a restore, is added to
// its order. A session trusts the key that it was made with, and the one that new pages of its order are made with. It
// trusts no other key, because strangers may know a key that was replaced.
func (p *payments) markDue(ctx context.Context, key GatewayKey, n Notification) error {
	orderID, number, err := p.sessionOf(ctx, key, n)
	if err != nil {
		return err
	}

	_, err = p.db.changeOrder(ctx, key.StoreID, orderID, func(tx *Tx, o *OrderRow) error {
		s := o.session(number)
		opensPages := key.opensPagesOf(*o)
		switch {
		case s == nil && opensPages && len(o.Sessions) < mostNotified:
			o.addSession(tx, number)
			s = &o.Sessions[0]
			s.Provider = key.Provider
			s.KeyID = key.ID
			s.NotOffered = true
		case s == nil, s.KeyID != key.ID && !opensPages, s.Provider != key.Provider:
			// The provider differs if, after a restore, the number is that of a page at the other gateway.
			return ErrNotFound
		}

		o.keepNotification(s, n)
		s.NewsAt = tx.now
		s.DueAt = tx.now // The commit wakes runChecks.
		// Without a dispute the book is as before: status and stock stay, and there is no event.
		return nil
	})
	return err
}

// opensPagesOf reports whether new pages of an order are made with a key: one in use, of the order's mode. Test money
// pays test orders only, and real money never pays them.
func (key GatewayKey) opensPagesOf(o OrderRow) bool {
	return key.ReplacedAt == 0 && (key.Mode == ModeSandbox) == o.Order.Test
}

// sessionOf finds the order and the number of a notification's session by our reference, <order id>-<number>. A refund
// at Xendit has none, so it is found by an identifier that is known to belong to the session.
func (p *payments) sessionOf(
	ctx context.Context, key GatewayKey, n Notification,
) (orderID string, number int, err error) {
	// All our ids have the same length. A reference of another length is not ours.
	if i := strings.LastIndexByte(n.Reference, '-'); i == len(key.StoreID) {
		number, err := strconv.Atoi(n.Reference[i+1:])
		if err != nil || number < 1 || number > mostNumber {
			return "", 0, ErrNotFound
		}
		return n.Reference[:i], number, nil
	}

	type found struct {
		OrderID string
		Number  int
	}
	s, err := one[found](ctx, p.db, sqlSessionKnown, fromJSON{n.Known}, key.Provider, key.StoreID)
	return s.OrderID, s.Number, err
}

// sqlSessionKnown finds a session of a store by what its gateway calls it. The + keeps SQLite from reading all orders
// of the store.
const sqlSessionKnown = `
	SELECT i.order_id, i.number
	FROM   payment_identifiers i
	JOIN   payment_sessions s ON s.order_id = i.order_id AND s.number = i.number
	JOIN   orders o ON o.id = i.order_id
	WHERE  i.id IN (SELECT value FROM json_each(?)) AND i.id <> '' AND s.provider = ? AND +o.store_id = ?
	LIMIT  1`

// mostNumber is the largest number of a session that a notification may name.
const mostNumber = 999_999

// keepNotification keeps what a notification says of a session. A dispute goes into the book, because no answer shows
// it.
func (o *OrderRow) keepNotification(s *PaymentSession, n Notification) {
	s.Seen = true
	s.Notified++
	s.GatewayID = cmp.Or(s.GatewayID, n.SessionID)
	if n.ReportsMoney {
		s.Unconfirmed = cmp.Or(s.Unconfirmed, n.Payment)
	}
	if n.Disputed == 0 {
		s.addIdentifiers(o.Book, n.Identifiers)
		return
	}

	disputed := s.GatewayID
	if session := o.withItsPayments(*s); session.hasPayment(n.Known[0]) {
		disputed = n.Known[0]
	}
	if disputed == "" {
		return // After a restore, its payment is not known yet, so later notifications are still news.
	}
	if s.addIdentifiers(o.Book, n.Identifiers) { // The owner has not dealt with it.
		o.Book.Resolved = slices.DeleteFunc(o.Book.Resolved, func(a Alert) bool { return a.Code == Disputed })
		o.enterInBook(s, []Payment{{ID: disputed, State: Open, Disputed: n.Disputed}})
	}
}

// How many checks may be under way: at one provider, and for one store there.
const (
	mostChecksOfProvider = 32
	mostChecksOfStore    = 4
)

// dueOrder is an order with a session that is due.
type dueOrder struct {
	ID, StoreID string
	Provider    Provider
}

// dueList has the due orders whose checks could not begin yet. Reading it takes long if very many sessions are due, so
// no more than a sixtieth of the time is spent on it.
type dueList struct {
	orders []dueOrder // at most mostDueOfStore of a store at a provider
	next   time.Time  // when it may be read again
}

const mostDueOfStore = 100

// runChecks checks what is due and lets orders expire, until ctx ends.
func (p *payments) runChecks(ctx context.Context) {
	underWay := map[string]dueOrder{}
	ended := make(chan string)
	var due dueList
	for {
		wait, err := p.startDue(ctx, &due, underWay, ended)
		if err != nil && ctx.Err() == nil {
			p.db.log.Error("cannot check payments", "error", err)
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

// startDue lets orders expire, releases the stock of reported orders that were not decided in time, and begins the
// checks that are due and that the limits allow. After a jump of the clock it does nothing. It returns how long until
// there is more to do.
func (p *payments) startDue(
	ctx context.Context, due *dueList, underWay map[string]dueOrder, ended chan<- string,
) (wait time.Duration, err error) {
	if !p.db.observeClock() {
		p.expiredUntil = 0 // It may have been ahead.
		return time.Minute, nil
	}
	if err := p.db.checkWritable(); err != nil {
		return 0, err
	}
	if !p.db.waitsForClock(5 * time.Minute) {
		if err := p.expire(ctx); err != nil {
			return 0, err
		}
		if err := p.db.releaseReported(ctx); err != nil {
			return 0, err
		}
	}

	wait, err = p.untilNext(ctx)
	if err != nil {
		return 0, err
	}
	if untilRead := time.Until(due.next); untilRead > 0 {
		wait = min(wait, untilRead)
	} else {
		begun := time.Now()
		if due.orders, err = p.dueOrders(ctx); err != nil {
			return 0, err
		}
		due.next = time.Now().Add(59 * time.Since(begun))
	}

	due.orders = slices.DeleteFunc(due.orders, func(d dueOrder) (isStarted bool) {
		if !mayBeginCheck(underWay, d) {
			return false
		}
		underWay[d.ID] = d
		go func() {
			p.checkDue(ctx, d)
			ended <- d.ID
		}()
		return true
	})
	return wait, nil
}

// dueOrders lists orders with due sessions (isDue): the first ones of each store, the stores in random order.
func (p *payments) dueOrders(ctx context.Context) ([]dueOrder, error) {
	now := p.db.now()
	return all[dueOrder](ctx, p.db, `
		SELECT id, store_id, provider FROM (
			SELECT s.order_id AS id, o.store_id, s.provider,
			       row_number() OVER (PARTITION BY o.store_id, s.provider ORDER BY min(s.due_at)) AS rank
			FROM   payment_sessions s
			JOIN   orders o ON o.id = s.order_id
			WHERE  s.due_at > 0 AND s.seen = 1 AND (s.due_at <= ? OR s.due_at > ?)
			GROUP  BY s.order_id, s.provider)
		WHERE  rank <= ?
		ORDER  BY random()`, now, now.Add(mostQuietWait), mostDueOfStore)
}

// mayBeginCheck reports whether the check of an order may begin beside those that are under way.
func mayBeginCheck(underWay map[string]dueOrder, d dueOrder) bool {
	if _, isUnderWay := underWay[d.ID]; isUnderWay {
		return false
	}

	ofProvider := 0
	ofStore := 0
	for _, other := range underWay {
		if other.Provider != d.Provider {
			continue
		}
		ofProvider++
		if other.StoreID == d.StoreID {
			ofStore++
		}
	}
	return ofProvider < mostChecksOfProvider && ofStore < mostChecksOfStore
}

// untilNext returns the time until the next session is due, the next order ends, or the next one releases its stock. It
// is ten minutes at most.
func (p *payments) untilNext(ctx context.Context) (time.Duration, error) {
	now := p.db.now()
	next, err := one[Time](ctx, p.db, `
		SELECT min(at) AS at FROM (
			SELECT min(due_at) AS at FROM payment_sessions WHERE due_at > 0 AND seen = 1 AND due_at > ?1
			UNION ALL
			SELECT min(expires_at) FROM orders WHERE status = 'pending' AND expires_at > ?1
			UNION ALL
			SELECT min(stock_until) FROM orders WHERE stock_until > 0 AND stock_until > ?1
			UNION ALL
			SELECT ?2)`, now, now.Add(mostPageWait))
	return next.Sub(now), err
}

// checkDue checks the due sessions of an order. After an error the order is still due, so checkDue waits for ten
// seconds: otherwise the check would begin again at once.
func (p *payments) checkDue(ctx context.Context, d dueOrder) {
	_, err := p.checkOrder(ctx, d.StoreID, d.ID, false)
	if err == nil || ctx.Err() != nil {
		return
	}

	p.db.log.Error("cannot check a payment", "error", err)
	pause(ctx, 10*time.Second)
}

// checkOrder checks those sessions of an order whose page somebody may have opened: all of them, or only those that are
// due. It reports whether all gateways have answered. After a jump of the clock it calls none, because a wrong time
// would make it close pages. A panic over an answer becomes an error, and the session stays due.
func (p *payments) checkOrder(
	ctx context.Context, storeID, orderID string, everySession bool,
) (answered bool, err error) {
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
		if !s.Seen || !everySession && !s.isDue(now) {
			continue
		}
		var ok bool
		o, ok, err = p.checkSession(ctx, o, s)
		if err != nil {
			return false, err
		}
		answered = answered && ok
	}

	if o.mayExpire(p.db.now()) {
		_, err = p.db.changeOrder(ctx, storeID, orderID, p.expireOrder)
	}
	return answered, err
}

// lock waits until nobody else calls a gateway about an order. If ctx ends first, its error is returned.
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

// checkSession checks a session. If its page is not wanted, the page is closed, and the session is checked again,
// because money may have arrived meanwhile. Closing never takes money back. It returns the order, and whether the
// gateway answered.
func (p *payments) checkSession(
	ctx context.Context, o OrderRow, s PaymentSession,
) (after OrderRow, answered bool, err error) {
	keys, err := gatewayKeys(ctx, p.db, o.StoreID, s.Provider, s.KeyID) // the session's own, then the one in use
	if err != nil {
		return o, false, err
	}

	o, answered, err = p.checkOnce(ctx, keys, o, s)
	if err != nil || !answered {
		return o, false, err
	}

	s = *o.session(s.Number)
	if s.phase(o, p.db.now()) != pageClosing {
		return o, true, nil
	}
	if !p.gateways.open(keys[0]).closePage(ctx, o.withItsPayments(s)) {
		return o, true, nil // The next check tries again, until the gateway says that it is closed.
	}
	s.Closed = true // It is recorded, unless the gateway says that the page is open.
	return p.checkOnce(ctx, keys, o, s)
}

// checkOnce asks the gateway about a session and records the answer. If its page was just closed, s says so. If the
// gateway refuses keys[0], with which the session was made, it is asked with the key in use. That answer counts only if
// it has a payment.
func (p *payments) checkOnce(
	ctx context.Context, keys []GatewayKey, o OrderRow, s PaymentSession,
) (after OrderRow, answered bool, err error) {
	began := p.db.now()
	sent := o.withItsPayments(s)
	answer, failed := p.gateways.open(keys[0]).status(ctx, sent)
	if isRefused(failed, GatewayRefused) && len(keys) > 1 && keys[1].ReplacedAt == 0 {
		other, otherFailed := p.gateways.open(keys[1]).status(ctx, sent)
		if len(other.Payments) > 0 {
			answer = other
			failed = otherFailed
		}
	}

	if ctx.Err() != nil {
		return o, false, ctx.Err()
	}
	if failed != nil && s.Problem == "" { // Of several failures in a row, only the first is logged.
		p.db.log.Warn("a gateway gave no usable answer", "provider", s.Provider, "error", failed)
	}
	after, err = p.recordAnswer(withoutPlaces(ctx), o.StoreID, s, answer, failed, began)
	return after, failed == nil, err
}

// Answer is a gateway's report on a session: its latest payment, and those with known identifiers. With an error, it
// has the payments that could be read.
type Answer struct {
	Open        bool      // money can still arrive: a payment waits for it, or the buyer can begin one
	Closed      bool      // no payment can begin there, until a reversal; neither: one is held
	Canceled    bool      // somebody canceled the page at the gateway, so the order needs another one
	Payments    []Payment // their session numbers are 0
	Identifiers []string  // to be kept with the session's
	Confirms    bool      // it has the payment that a notification reported
}

// add adds a payment of a session. names are others than its id by which a notification may have reported it. An open
// payment does not confirm the report.
func (a *Answer) add(s PaymentSession, p Payment, names ...string) {
	a.Payments = append(a.Payments, p)
	isReported := p.ID == s.Unconfirmed || slices.Contains(names, s.Unconfirmed)
	a.Confirms = a.Confirms || isReported && p.State != Open
}

// recordAnswer writes an answer, or that there was none, with its consequences for the order. sent is the session as it
// was when the check began; with sent.Closed its page has been closed since. The answer is applied to the session as it
// is now. If a notification came in between, the session stays due.
func (p *payments) recordAnswer(
	ctx context.Context, storeID string, sent PaymentSession, answer Answer, failed error, began Time,
) (OrderRow, error) {
	return p.db.changeOrder(ctx, storeID, sent.OrderID, func(tx *Tx, o *OrderRow) error {
		s := o.session(sent.Number)
		s.Problem, s.Words = problemOf(failed)
		s.NewsAt = min(s.NewsAt, tx.now) // It may have been set by a clock that was ahead.

		if answer.Confirms && s.Unconfirmed == sent.Unconfirmed { // One that was reported since waits for its answer.
			s.Unconfirmed = ""
		}
		isNews := o.enterInBook(s, answer.Payments) // also what was read before a failure
		isNews = s.addIdentifiers(o.Book, answer.Identifiers) || isNews
		if isNews {
			s.NewsAt = tx.now // The next check follows in ten seconds, also on a closed page.
		}

		s.NotOffered = s.NotOffered || answer.Canceled
		if failed == nil {
			// A reversed payment opens its page again. If the answer says neither, the state stays as it was.
			s.Closed = answer.Closed || (s.Closed || sent.Closed) && !answer.Open
		}

		// Afterwards changeOrder settles, and makeSessionsDue may make the session due. If a pending order has reached
		// its end since the check began, nextCheck returns that end, so the session is checked once more at once.
		s.DueAt = s.nextCheck(*o, began)
		if s.Notified != sent.Notified {
			s.DueAt = tx.now
		}
		return nil
	})
}

// problemOf returns a word for why a gateway gave no page or answer, and the gateway's own words if it refused.
func problemOf(err error) (problem, words string) {
	if refusal, refused := errors.AsType[*Refusal](err); refused {
		return "refused", refusal.Words
	}
	if err != nil {
		problem = "unreachable"
	}
	return problem, ""
}

// expire expires the orders that have ended since its last call, and those that ended a week ago. An order whose page
// may still bring money is left to its checks, so it costs nothing here.
func (p *payments) expire(ctx context.Context) error {
	now := p.db.now()
	isAll, err := p.db.changeDue(ctx, p.expireOrder, `
		SELECT store_id, id FROM orders o
		WHERE  status = 'pending' AND expires_at >= ?1 AND expires_at <= ?2 AND NOT EXISTS (
			SELECT 1 FROM payment_sessions s -- not closed, unconfirmed or due, as in mayExpire
			WHERE  s.order_id = o.id AND s.seen = 1 AND (s.over = 0 OR s.claimed <> '' OR s.due_at BETWEEN 1 AND ?2))
		UNION
		SELECT store_id, id FROM orders
		WHERE  status = 'pending' AND expires_at > ?3 AND expires_at <= ?4`,
		p.expiredUntil, now, p.expiredUntil.Add(-giveUpAfter), now.Add(-giveUpAfter))
	if isAll {
		p.expiredUntil = now
	}
	return err
}

// expireOrder expires an order, if it still may when the write begins. The history names a payment that was reported
// and never confirmed.
func (p *payments) expireOrder(tx *Tx, o *OrderRow) error {
	if !o.mayExpire(tx.now) {
		return nil
	}

	note := Note{Code: NoteNotPaid}
	for _, s := range o.Sessions {
		if s.Unconfirmed != "" {
			note = Note{
				Code:          NoteUnconfirmed,
				Provider:      s.Provider,
				SessionNumber: s.Number,
				Payment:       s.Unconfirmed,
			}
			p.db.log.Warn("a gateway announced a payment and never confirmed it: look at the order",
				"store", o.StoreID)
		}
	}
	return o.become(Expired, ActorClock, note)
}
