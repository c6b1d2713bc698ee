package main

// This file has the payment sessions of an order: their rows, and all their rules.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// PaymentSession is a page at a gateway where an order can be paid, or the attempt to get one.
type PaymentSession struct {
	OrderID     string
	Number      int // 1, 2, …; the gateway knows the session as <order id>-<number>
	ID          string
	Provider    Provider
	Method      string
	Asked       int64 // the amount that its page asks for
	KeyID       string
	GatewayID   string // the gateway's name for the page; "" = not known yet
	URL         string
	ExpiresAt   Time     // of its page
	Seen        bool     // somebody may have opened its page: only such sessions are checked
	NotOffered  bool     // its page was once not wanted, and is never offered again
	Closed      bool     // no new payment can begin; one that has begun may arrive
	Unconfirmed string   // the payment reported as arrived or held, until an answer settles it
	Notified    int      // counts its notifications
	Identifiers []string // at the gateway, of its payments, pages and refunds; and news of disputes
	NewsAt      Time     // of the last change, notification, or end of its page being wanted
	DueAt       Time     // of its next check, 0 = none; without a page, of the next request for one
	Problem     string   // refused or unreachable: why the gateway gave no page or answer; "" = it did
	Words       string   // the gateway's

	payments  []Payment // of this session in the book, when its gateway is called; no column
	isChanged bool      // its identifiers differ from the stored ones; no column
}

// reference returns our name for the session at the gateway.
func (s PaymentSession) reference() string { return fmt.Sprintf("%s-%d", s.OrderID, s.Number) }

// readSessionsAndPayments reads the sessions of an order, the latest first, and their payments in its book.
func (o *OrderRow) readSessionsAndPayments(ctx context.Context, q querier) (err error) {
	o.Sessions, err = all[PaymentSession](ctx, q, `
		SELECT order_id, number, id, provider, method, asked, key_id, gateway_id, url, expires_at, seen,
		       left AS not_offered, over AS closed, claimed AS unconfirmed, notified, news_at, due_at, problem, words,
		       (SELECT json_group_array(i.id ORDER BY i.position)
		        FROM   payment_identifiers i
		        WHERE  i.order_id = s.order_id AND i.number = s.number) AS identifiers
		FROM   payment_sessions s
		WHERE  order_id = ?
		ORDER  BY number DESC`, o.ID)
	if err != nil {
		return err
	}

	o.Book.Payments, err = all[Payment](ctx, q, `
		SELECT p.attempt AS session_number, p.id, s.asked, p.state, p.amount, p.returned, p.disputed
		FROM   payments p
		JOIN   payment_sessions s ON s.order_id = p.order_id AND s.number = p.attempt
		WHERE  p.order_id = ?
		ORDER  BY p.attempt, p.id`, o.ID)
	return err
}

// storeSessionsAndPayments writes the sessions of an order and the payments of its book, and wakes the checks.
func (tx *Tx) storeSessionsAndPayments(o *OrderRow) {
	for _, s := range o.Sessions {
		tx.exec(`
			INSERT OR REPLACE INTO payment_sessions (
				order_id, number, id, provider, method, asked, key_id, gateway_id, url, expires_at, seen, left,
				over, claimed, notified, names, news_at, due_at, problem, words)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '[]', ?, ?, ?, ?)`,
			s.OrderID, s.Number, s.ID, s.Provider, s.Method, s.Asked, s.KeyID, s.GatewayID, s.URL, s.ExpiresAt, s.Seen,
			s.NotOffered, s.Closed, s.Unconfirmed, s.Notified, s.NewsAt, s.DueAt, s.Problem, s.Words)
		tx.checksDue = true // The commit wakes the checks.
		if s.isChanged {
			tx.exec("DELETE FROM payment_identifiers WHERE order_id = ? AND number = ?", s.OrderID, s.Number)
			for i, id := range s.Identifiers {
				tx.exec("INSERT INTO payment_identifiers VALUES (?, ?, ?, ?)", s.OrderID, s.Number, i+1, id)
			}
		}
	}

	for _, p := range o.Book.Payments {
		tx.exec(`
			INSERT OR REPLACE INTO payments (order_id, attempt, id, state, amount, returned, disputed)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, o.ID, p.SessionNumber, p.ID, p.State, p.Amount, p.Returned, p.Disputed)
	}
}

// session returns the order's session with a number, nil if there is none.
func (o *OrderRow) session(number int) *PaymentSession {
	for i := range o.Sessions {
		if o.Sessions[i].Number == number {
			return &o.Sessions[i]
		}
	}
	return nil
}

// withItsPayments returns a session with its payments from the book, which its gateway has to know.
func (o OrderRow) withItsPayments(s PaymentSession) PaymentSession {
	isOfAnother := func(p Payment) bool { return p.SessionNumber != s.Number }
	s.payments = slices.DeleteFunc(slices.Clone(o.Book.Payments), isOfAnother)
	return s
}

// hasPayment reports whether the book has a payment of the session under an id. withItsPayments has set them.
func (s PaymentSession) hasPayment(id string) bool {
	return slices.ContainsFunc(s.payments, func(p Payment) bool { return p.ID == id })
}

// isUnconfirmed reports whether a notification has reported a payment that no answer has shown yet.
func (o OrderRow) isUnconfirmed() bool {
	return slices.ContainsFunc(o.Sessions, func(s PaymentSession) bool { return s.Unconfirmed != "" })
}

// sessionPhase says what is done with the page of a session.
type sessionPhase int

// The phases. A page is wanted while its order is pending, not past its end, and has the page's method and amount,
// unless it was unwanted before; and while the order waits for a payment that the gateway holds there.
//
//	phase      when                                     buyers are    a check that finds it so
//	                                                    sent there
//	requested  wanted, without an address               no            waits; its number is used for the next request
//	offered    wanted, before the page's end            yes           waits
//	ended      wanted, after the page's end             no            waits: it ends by the gateway's clock
//	held       wanted for a held payment                no            waits: a person decides
//	closing    not wanted, and it may take money        no            closes the page
//	           or the gateway holds a payment there
//	closed     no payment can begin there               no            looks for late news only
const (
	pageRequested sessionPhase = iota
	pageOffered
	pageEnded
	pageHeld
	pageClosing
	pageClosed
)

func (s PaymentSession) phase(o OrderRow, now Time) sessionPhase {
	wanted := s.isWanted(o, now)
	switch {
	case s.Closed && (wanted || !o.Book.heldOn(s.Number)):
		return pageClosed
	case !wanted:
		return pageClosing
	case o.Book.Status == AwaitingVerification:
		return pageHeld
	case s.URL == "":
		return pageRequested
	case now >= s.ExpiresAt:
		return pageEnded
	}
	return pageOffered
}

// isWanted reports whether the page of a session may still take money.
func (s PaymentSession) isWanted(o OrderRow, now Time) bool {
	switch o.Book.Status {
	case Pending:
		isOfOrder := s.Method == o.Order.PaymentMethod && s.Asked == o.Order.Amount
		return now < o.Order.ExpiresAt && isOfOrder && !s.NotOffered
	case AwaitingVerification:
		return o.Book.heldOn(s.Number)
	}
	return false
}

// needsPage reports whether an order can be paid at a gateway and has no page for that.
func (o OrderRow) needsPage(now Time) bool {
	return o.Book.Status == Pending && now < o.Order.ExpiresAt && o.Order.PaymentProvider != Manual &&
		!slices.ContainsFunc(o.Sessions, func(s PaymentSession) bool { return s.phase(o, now) == pageOffered })
}

// addSession adds a session for the order as it is now.
func (o *OrderRow) addSession(tx *Tx, number int) {
	o.Sessions = slices.Insert(o.Sessions, 0, PaymentSession{
		OrderID:   o.ID,
		Number:    number,
		ID:        tx.newID(),
		Provider:  o.Order.PaymentProvider,
		Method:    o.Order.PaymentMethod,
		Asked:     o.Order.Amount,
		NewsAt:    tx.now,
		ExpiresAt: o.Order.ExpiresAt,
	})
}

// enterInBook adds a gateway's words about the payments of a session to the book. Each change that belongs in the
// history becomes a note in o.news. It reports whether anything changed.
func (o *OrderRow) enterInBook(s *PaymentSession, said []Payment) (news bool) {
	for _, payment := range said {
		before := Payment{SessionNumber: s.Number, ID: payment.ID, Asked: s.Asked}
		i := slices.IndexFunc(o.Book.Payments, func(p Payment) bool { return p.key() == before.key() })
		if i < 0 {
			i = len(o.Book.Payments)
			o.Book.Payments = append(o.Book.Payments, before)
		}

		before = o.Book.Payments[i]
		after := before.learn(payment)
		if after != before {
			o.Book.Payments[i] = after
			o.noteNews(s, before, after)
			news = true
		}
	}
	return news
}

// noteNews adds a payment's change to o.news, if it belongs in the history.
func (o *OrderRow) noteNews(s *PaymentSession, before, after Payment) {
	add := func(code NoteCode, amount, due int64) {
		o.news = append(o.news, Note{Code: code, Provider: s.Provider, SessionNumber: s.Number, Payment: after.ID,
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

// mostIdentifiers is how many of the identifiers are kept at a session that may go.
const mostIdentifiers = 20

// addIdentifiers adds new identifiers to a session, and reports whether there were any. If there are too many, it drops
// the oldest of those that may go: first those of denied and expired payments, then those of disputes.
func (s *PaymentSession) addIdentifiers(b Book, more []string) (news bool) {
	for _, id := range more {
		if id != "" && !slices.Contains(s.Identifiers, id) {
			s.Identifiers = append(s.Identifiers, id)
			news = true
			s.isChanged = true
		}
	}

	mayGo := slices.DeleteFunc(slices.Clone(s.Identifiers), func(id string) bool { return s.dropKind(b, id) == 0 })
	slices.SortStableFunc(mayGo, func(x, y string) int { return s.dropKind(b, x) - s.dropKind(b, y) })
	tooMany := mayGo[:max(0, len(mayGo)-mostIdentifiers)]
	s.Identifiers = slices.DeleteFunc(s.Identifiers, func(id string) bool { return slices.Contains(tooMany, id) })
	return news
}

// isXenditName reports whether an identifier is that of a session, a payment or a payment request at Xendit.
var isXenditName = matcher(`^p[syr]-`)

// dropKind says when an identifier may go: 1 first, 3 last, and 0 never.
func (s *PaymentSession) dropKind(b Book, id string) int {
	payment, isPayment := b.payment(Payment{SessionNumber: s.Number, ID: id}.key())
	switch {
	case id == s.Unconfirmed, isXenditName(id):
		return 0
	case payment.State == Denied, payment.State == ExpiredPayment:
		return 1
	case isPayment:
		return 0
	case strings.HasPrefix(id, "disputes/"):
		return 2
	}
	return 3
}

// The pauses between checks of a session, and how long calls may take.
const (
	firstCheck    = 10 * time.Second // after a page was made; also the shortest pause
	mostPageWait  = 10 * time.Minute // the longest pause until its page is closed
	mostQuietWait = 12 * time.Hour   // the longest pause once its page is closed
	tryAgain      = 30 * time.Second // before a page is requested or closed again
	// Checks stop this long after the last news and the page's end. An order that is still pending this long after its
	// end expires in any case.
	giveUpAfter = 7 * 24 * time.Hour
	callTime    = 10 * time.Second // for a gateway; others wait as long for a call under way
)

// makeSessionsDue marks the pages that are not wanted from now on. Of the sessions whose page somebody may have, it
// makes these due at once:
//   - those whose page is not wanted from now on, and is not closed;
//   - all, when the order has become pending;
//   - after another change of status, those whose page is not closed.
//
// So late money on a closed page pays the order, but does not make its session due at once.
func (tx *Tx) makeSessionsDue(o *OrderRow, changedStatus bool) {
	for i := range o.Sessions {
		s := &o.Sessions[i]
		isUnwantedNow := !s.NotOffered && !s.isWanted(*o, tx.now) && tx.db.observeClock()
		if isUnwantedNow {
			s.NotOffered = true
			s.NewsAt = tx.now
		}

		isOpen := s.phase(*o, tx.now) != pageClosed
		hasBecomePending := changedStatus && o.Book.Status == Pending
		if s.Seen && (isOpen && (isUnwantedNow || changedStatus) || hasBecomePending) {
			s.DueAt = tx.now
		}
	}
}

// nextCheck says when a session is checked again; 0 means never automatically, because the last news and the page's end
// are over a week ago. The pause is the time since the last news, at least ten seconds, so each is longer than the one
// before. It is at most ten minutes while the page takes money, so that a payment is found even if its notification was
// lost, and at most twelve hours once the page is closed. While a page is being closed, it is a tenth of that time,
// from half a minute to ten minutes. No pause goes beyond the end of a pending order: the order may expire then, once
// every session has been checked.
func (s PaymentSession) nextCheck(o OrderRow, now Time) Time {
	quiet := now.Sub(s.NewsAt)
	if quiet > giveUpAfter && now.Sub(s.ExpiresAt) > giveUpAfter {
		return 0
	}

	wait := min(max(quiet, firstCheck), mostPageWait)
	switch s.phase(o, now) {
	case pageClosing:
		wait = min(max(quiet/10, tryAgain), mostPageWait)
	case pageClosed:
		wait = min(max(quiet, firstCheck), mostQuietWait)
	}

	next := now.Add(wait)
	if o.Book.Status == Pending && now < o.Order.ExpiresAt {
		return min(next, o.Order.ExpiresAt)
	}
	return next
}

// isDue reports whether a session is due. A due time beyond the longest pause was written by a clock that was ahead, so
// the session is due now.
func (s PaymentSession) isDue(now Time) bool {
	return s.DueAt > 0 && (s.DueAt <= now || s.DueAt > now.Add(mostQuietWait))
}

// mayExpire reports whether a pending order is past its end and none of its pages can bring money any more. Each page
// has to be closed, and checked after the end. A reported payment keeps the order pending until an answer settles it.
// After a week the order expires in any case.
func (o OrderRow) mayExpire(now Time) bool {
	if o.Book.Status != Pending || now < o.Order.ExpiresAt {
		return false
	}
	if now >= o.Order.ExpiresAt.Add(giveUpAfter) {
		return true
	}
	return !slices.ContainsFunc(o.Sessions, func(s PaymentSession) bool {
		return s.Seen && (!s.Closed || s.Unconfirmed != "" || s.isDue(now))
	})
}

// SessionView is the payment_session of GET /v1/orders/{order_id}.
type SessionView struct {
	ID         string   `json:"id,omitempty"`
	Provider   Provider `json:"provider"`
	Status     string   `json:"status"`
	Reason     string   `json:"reason,omitempty"` // why it is unavailable: unreachable or refused
	PaymentURL string   `json:"payment_url"`
	ExpiresAt  Time     `json:"expires_at"`
	Attempt    int      `json:"attempt"`
	QRString   string   `json:"qr_string,omitempty"` // the text of the code by which it can be paid
}

// sessionStatuses are the statuses of payment_session by the status of the order, unless view knows more.
var sessionStatuses = map[Status]string{
	Pending:              "unavailable",
	AwaitingVerification: "active",
	Paid:                 "paid",
	Failed:               "failed",
	Expired:              "expired",
	Refunded:             "paid",
}

// shownSession returns the session that pays the order, or else the latest. It is nil if the owner approved the order
// without a payment, or if the latest page of a pending order is not offered any more.
func (o OrderRow) shownSession() *PaymentSession {
	payer, isPayment := o.Book.payer()
	if isPayment {
		return o.session(payer.SessionNumber)
	}
	if len(o.Sessions) == 0 || o.Book.PaidBy == byOwner || o.Book.Status == Pending && o.Sessions[0].NotOffered {
		return nil
	}
	return &o.Sessions[0]
}

// view shows the payment session of an order.
func (o OrderRow) view(st Store, now Time) SessionView {
	v := SessionView{
		Provider:   o.Order.PaymentProvider,
		Status:     sessionStatuses[o.Book.Status],
		PaymentURL: st.payPage(o.ID),
		ExpiresAt:  o.Order.ExpiresAt,
	}

	s := o.shownSession()
	isPending := o.Book.Status == Pending
	isOpen := isPending || o.Book.Status == AwaitingVerification
	switch {
	case v.Provider == Manual && isOpen:
		v.Status = "manual"
	case v.Provider == NoProvider, s == nil && isOpen: // There is nothing to pay, or no session yet.
		v.Status = "none"
	case v.Provider == Manual, s == nil: // The order's status says it all.
	case isPending && (s.phase(o, now) != pageOffered || v.Provider == Sandbox && !st.TestMode):
		// no page can be shown
		v.Reason = cmp.Or(s.Problem, "unreachable")
	default:
		v.ID = s.ID
		v.Attempt = s.Number
		v.ExpiresAt = s.ExpiresAt
		if isPending {
			v.Status = "active"
			v.PaymentURL = s.URL
		}
	}
	return v
}

// qris returns the text of the order's QRIS code: the present code of its method, with the amount. It is empty if the
// order cannot be paid, or not by such a code.
func (o OrderRow) qris(now Time) string {
	if o.QRIS == "" {
		return ""
	}
	q, problem := readQRIS(o.QRIS)
	mayPay := o.Book.Status == Pending && now < o.Order.ExpiresAt && o.Order.PaymentProvider == Manual
	if problem != "" || !mayPay || o.Order.Amount > mostQRISAmount {
		return ""
	}
	return q.withAmount(o.Order.Amount)
}
