package main

// This file has the payment sessions of an order: their rows and all their rules.

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// PaymentSession is a page at a gateway where an order can be paid, or the attempt to get one.
type PaymentSession struct {
	OrderID   string
	Number    int // 1, 2, …; the gateway knows the session as <order id>-<number>
	ID        string
	Provider  Provider
	Method    string
	Asked     int64 // the amount that its page asks for
	KeyID     string
	GatewayID string // the gateway's name for the page; "" = not known yet
	URL       string
	ExpiresAt Time     // of its page
	Seen      bool     // somebody may have seen its page
	Left      bool     // its page was unwanted at some time: it is no longer offered, but checked and closed
	Over      bool     // no payment can begin there any more; one that has begun may still arrive
	Claimed   string   // the payment that a notification says arrived or is held: the order waits for the answer
	Notified  int      // counts its notifications
	Names     []string // from notifications and answers, as the gateway writes them; and news of disputes
	NewsAt    Time     // when something was last new, a notification came or its page was given up
	DueAt     Time     // of its next check, 0 = none; while nobody has seen a page, when one may be asked for again
	Problem   string   // refused or unreachable: why the gateway gave no page or answer; "" = it did
	Words     string   // the gateway's

	payments []Payment // of this session in the book, when its gateway is called; no column
}

// reference returns our name for the session at the gateway.
func (s PaymentSession) reference() string { return fmt.Sprintf("%s-%d", s.OrderID, s.Number) }

const sqlSessions = `
	SELECT order_id, number, id, provider, method, asked, key_id, gateway_id, url, expires_at, seen, left, over, claimed,
	       notified, names, news_at, due_at, problem, words
	FROM   payment_sessions
	`

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
	isOfAnother := func(p Payment) bool { return p.Attempt != s.Number }
	s.payments = slices.DeleteFunc(slices.Clone(o.Book.Payments), isOfAnother)
	return s
}

// isClaimed reports whether a notification claims a payment that no answer has shown.
func (o OrderRow) isClaimed() bool {
	return slices.ContainsFunc(o.Sessions, func(s PaymentSession) bool { return s.Claimed != "" })
}

// The pauses between checks of a session, and how long calls may take.
const (
	firstCheck    = 10 * time.Second // after a page was made; also the shortest pause
	mostPageWait  = 10 * time.Minute // the longest pause until its page is over
	mostQuietWait = 12 * time.Hour   // the longest pause once its page is over
	tryAgain      = 30 * time.Second // before a page is requested or closed again
	// Checks stop so long after the last news and the page's end. An order that is still pending so long
	// after its end expires in any case.
	giveUpAfter = 7 * 24 * time.Hour
	callTime    = 10 * time.Second // for a gateway; a person waits as long for a call that somebody else makes
)

// needsPage reports whether an order can be paid at a gateway and has no page for that.
func (o OrderRow) needsPage(now Time) bool {
	return o.Book.Status == Pending && now < o.Order.ExpiresAt && o.Order.PaymentProvider != Manual &&
		!slices.ContainsFunc(o.Sessions, func(s PaymentSession) bool { return s.isLive(o, now) })
}

// addSession adds a session for the order as it is now.
func (o *OrderRow) addSession(tx *Tx, number int) {
	o.Sessions = slices.Insert(o.Sessions, 0, PaymentSession{OrderID: o.ID, Number: number, ID: tx.newID(),
		Provider: o.Order.PaymentProvider, Method: o.Order.PaymentMethod, Asked: o.Order.Amount,
		NewsAt: tx.now, ExpiresAt: o.Order.ExpiresAt})
}

// wanted reports whether the page of a session may go on taking money: the order is pending, not past its
// end, and has the page's method and amount, and the page was never left; or the order waits for a payment
// that the gateway holds on this page.
func (s PaymentSession) wanted(o OrderRow, now Time) bool {
	switch o.Book.Status {
	case Pending:
		return now < o.Order.ExpiresAt && !s.Left && s.Method == o.Order.PaymentMethod && s.Asked == o.Order.Amount
	case AwaitingVerification:
		return o.Book.heldOn(s.Number)
	}
	return false
}

// isLive reports whether the buyer of a pending order can be sent to the page of a session.
func (s PaymentSession) isLive(o OrderRow, now Time) bool {
	return s.URL != "" && !s.Over && now < s.ExpiresAt && s.wanted(o, now)
}

// makeSessionsDue marks the pages that are left now. Of the sessions whose page somebody may have seen, it
// makes these due at once:
//   - those whose page is left before it is over;
//   - all, when the order has become pending;
//   - after another change of status, those whose page is not over or on which the gateway holds a payment.
//
// So late money on a page that is over pays the order without making its session due at once. It is news, so
// the next check is in ten seconds (nextCheck).
func (tx *Tx) makeSessionsDue(o *OrderRow, changedStatus bool) {
	for i := range o.Sessions {
		s := &o.Sessions[i]
		leavesNow := !s.Left && !s.wanted(*o, tx.now) && tx.db.observeClock()
		if leavesNow {
			s.Left = true
			s.NewsAt = tx.now
		}

		isConcerned := !s.Over || o.Book.Status == Pending || o.Book.heldOn(s.Number)
		if s.Seen && (leavesNow && !s.Over || changedStatus && isConcerned) {
			s.DueAt = tx.now
		}
	}
}

// nextCheck says when a session is checked again. 0 means never automatically: both the last news and the
// page's end are over a week ago. The pause is as long as the time since the last news, but at least ten
// seconds, so each is longer than the one before: up to ten minutes while the page takes money, so that a
// payment is found even if its notification was lost, and up to twelve hours once it is over. While an
// unwanted page still has to be closed, the pause is a tenth of that time, from half a minute to ten minutes.
// No pause goes beyond the end of a pending order: then it may expire, once every session has been asked
// about.
func (s PaymentSession) nextCheck(o OrderRow, now Time) Time {
	quiet := now.Sub(s.NewsAt)
	wait := max(quiet, firstCheck)
	most := mostPageWait
	switch {
	case quiet > giveUpAfter && now.Sub(s.ExpiresAt) > giveUpAfter:
		return 0
	case s.Over:
		most = mostQuietWait
	case !s.wanted(o, now):
		wait = max(quiet/10, tryAgain)
	}

	next := now.Add(min(wait, most))
	if o.Book.Status == Pending && now < o.Order.ExpiresAt {
		return min(next, o.Order.ExpiresAt)
	}
	return next
}

// storeSessions writes the sessions and payments of an order, and wakes the checks after the commit.
func (tx *Tx) storeSessions(o *OrderRow) {
	for _, s := range o.Sessions {
		tx.exec(`
			INSERT OR REPLACE INTO payment_sessions (
				order_id, number, id, provider, method, asked, key_id, gateway_id, url, expires_at, seen, left,
				over, claimed, notified, names, news_at, due_at, problem, words)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			s.OrderID, s.Number, s.ID, s.Provider, s.Method, s.Asked, s.KeyID, s.GatewayID, s.URL, s.ExpiresAt, s.Seen,
			s.Left, s.Over, s.Claimed, s.Notified, fromJSON{s.Names}, s.NewsAt, s.DueAt, s.Problem, s.Words)
		tx.checksDue = true
	}

	for _, p := range o.Book.Payments {
		tx.exec(`
			INSERT OR REPLACE INTO payments (order_id, attempt, id, state, amount, returned, disputed)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, o.ID, p.Attempt, p.ID, p.State, p.Amount, p.Returned, p.Disputed)
	}
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
}

// sessionStatuses are what payment_session says about orders in each state, unless view knows more.
var sessionStatuses = map[Status]string{
	Pending:              "unavailable",
	AwaitingVerification: "active",
	Paid:                 "paid",
	Failed:               "failed",
	Expired:              "expired",
	Refunded:             "paid",
}

// view shows the payment session of an order: the one that pays it, or else the latest. The latest is not
// shown if the owner approved the order without a payment, or if the order is pending and its page was left.
func (o OrderRow) view(st Store, now Time) SessionView {
	v := SessionView{
		Provider:   o.Order.PaymentProvider,
		Status:     sessionStatuses[o.Book.Status],
		PaymentURL: st.payPage(o.ID),
		ExpiresAt:  o.Order.ExpiresAt,
	}
	payer, _ := o.Book.payer()
	s := o.session(payer.Attempt)
	isPending := o.Book.Status == Pending
	isOpen := isPending || o.Book.Status == AwaitingVerification
	if s == nil && len(o.Sessions) > 0 && o.Book.PaidBy != byOwner && !(isPending && o.Sessions[0].Left) {
		s = &o.Sessions[0]
	}

	switch {
	case v.Provider == Manual && isOpen:
		v.Status = "manual"
	case v.Provider == NoProvider, s == nil && isOpen: // There is nothing to pay, or no session yet.
		v.Status = "none"
	case v.Provider == Manual, s == nil: // The order's status says it all.
	case isPending && (!s.isLive(o, now) || v.Provider == Sandbox && !st.TestMode): // No page can be shown.
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
