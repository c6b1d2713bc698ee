//go:build cgo

package main

import "time"

// This file is the policy of payments: what a gateway's answers mean for a session and its order, and when the
// gateway is asked again. Its functions are pure: they know nothing of the database, of the clock or of a
// gateway. payment.go asks, and writes what they say.

// GatewayAnswer is what a gateway says of one payment of a session, or of the session if no payment has begun.
type GatewayAnswer struct {
	State         GatewayState
	TransactionID string // the gateway's name of the payment; empty: the answer is about the session itself
	RequestID     string // Xendit's other name of the payment
	Amount        int64  // in rupiah: what was paid, whatever was returned of it since
	Returned      int64  // in rupiah: what was returned of Amount, in all
	Disputed      int64  // in rupiah: what the buyer disputes of Amount
	DisputeKnown  bool   // the gateway knows a dispute of it, also if that is over
}

// GatewayState is what a gateway says of a payment or a session.
type GatewayState string

const (
	StateOpen           GatewayState = "open"       // not paid yet
	StateSettled        GatewayState = "settled"    // Amount was paid
	StateDisputed       GatewayState = "disputed"   // paid, and the buyer asks their bank for Disputed
	StateChallenged     GatewayState = "challenged" // paid, and held until a person accepts or denies it
	StateDenied         GatewayState = "denied"     // this payment failed or was reversed; the page lives on
	StateCanceled       GatewayState = "canceled"   // by us, or by someone in the gateway's dashboard
	StateExpired        GatewayState = "expired"    // the session is over, unpaid
	StateRefunded       GatewayState = "refunded"   // all of Amount was returned
	StatePartlyRefunded GatewayState = "partly refunded"
)

// Payment is what is known of one payment of a session.
type Payment struct {
	TransactionID string
	RequestID     string
	State         GatewayState // of the last answer; empty: only a notification has named it
	Amount        int64
	Returned      int64
}

// arrived reports whether the payment's money reached the store, also if it was returned since.
func (p Payment) arrived() bool {
	switch p.State {
	case StateSettled, StateDisputed, StateRefunded, StatePartlyRefunded:
		return true
	}
	return false
}

// outdates reports whether an answer is older than what is known of its payment. Money that has arrived is not on
// its way any more, and what was returned of it does not come back.
func (p Payment) outdates(a GatewayAnswer) bool {
	if !p.arrived() {
		return false
	}

	switch a.State {
	case StateOpen, StateChallenged, StateExpired:
		return true
	case StateDenied, StateCanceled: // It was reversed.
		return false
	}
	return a.Returned < p.Returned
}

// with returns what is known of a payment after an answer.
func (p Payment) with(a GatewayAnswer) Payment {
	if p.outdates(a) {
		return p
	}

	p.TransactionID = a.TransactionID
	if a.RequestID != "" {
		p.RequestID = a.RequestID
	}
	p.State, p.Amount, p.Returned = a.State, a.Amount, a.Returned
	return p
}

// standing is what is known of a payment session, its order and one of its payments when the gateway answers.
type standing struct {
	session       PaymentSession
	payment       Payment // the one that the answer is about, as it was known before
	order         Status
	orderAmount   int64
	ended         bool // the order is past its expires_at
	latest        bool // the order has no later session
	paysOrder     bool // this payment paid the order
	orderHasPayer bool // a payment paid the order, this one or another

	// The order is awaiting verification because a payment of this session was held, this one or another.
	waitsForHeld bool

	spare      sparePayment // another payment of exactly the order's amount, whose money is there as a whole
	othersLive bool         // another payment of the session has arrived, or can still do so
}

// sparePayment names a payment that the order did not need. It is empty if there is none.
type sparePayment struct {
	sessionID     string
	transactionID string
}

// live reports whether the session's page can still be paid as far as we know.
func (s standing) live() bool {
	return s.session.State == SessionStarting || s.session.State == SessionActive
}

// outcome is what an answer leads to. Its zero value changes nothing.
type outcome struct {
	session    SessionState // the session's new state
	note       Note         // added to the order's history before the transition
	transition Transition
	reason     Note // of the transition
	paysOrder  bool // this payment pays the order from now on
	alert      Alert
	resolved   AlertCode    // the payment's alert of this code is resolved
	moneyGone  bool         // all of the payment's alerts are resolved: nothing of its money is left
	payer      sparePayment // from now on, this payment is the one that paid the order
}

// decide is the whole policy for one answer. Once its outcome was applied, the same answer leads to nothing more.
func decide(s standing, a GatewayAnswer) outcome {
	if s.payment.outdates(a) {
		return outcome{}
	}

	switch a.State {
	case StateSettled:
		return s.settled(a)
	case StateDisputed:
		return s.disputed(a)
	case StateChallenged:
		return s.challenged(a)
	case StateDenied, StateCanceled:
		return s.failed(a)
	case StateRefunded:
		return s.refunded(a)
	case StatePartlyRefunded:
		return s.partlyRefunded(a)
	case StateExpired:
		return s.over(a)
	default: // StateOpen
		return outcome{}
	}
}

// inSteps returns an answer as the answers that the gateway would have given one after the other. Money that was
// partly returned or disputed before we heard of it has arrived first, and a dispute may come after a return.
func inSteps(known Payment, a GatewayAnswer) (steps []GatewayAnswer) {
	if a.State != StatePartlyRefunded && a.State != StateDisputed {
		return []GatewayAnswer{a}
	}

	if !known.arrived() {
		arrival := a
		arrival.State, arrival.Returned, arrival.Disputed = StateSettled, 0, 0
		steps = append(steps, arrival)
	}
	if a.State == StateDisputed && a.Returned > known.Returned {
		partReturned := a
		partReturned.State = StatePartlyRefunded
		steps = append(steps, partReturned)
	}
	return append(steps, a)
}

// settled decides about money that arrived. The exact amount pays an order that is not paid or refunded yet, also
// one that expired or failed. Money of an order that its owner has approved is noted. All other money raises an
// alert, and a pending order waits for a person.
func (s standing) settled(a GatewayAnswer) outcome {
	if s.payment.State == StateDisputed { // The store has won.
		return s.disputeOver(a)
	}
	if s.payment.arrived() {
		return outcome{}
	}

	out := outcome{session: SessionPaid}
	exact := a.Amount == s.orderAmount
	if exact && GatewaySettles.possible(s.order) {
		out.paysOrder = true
		return s.transit(out, GatewaySettles, s.note(NotePaid))
	}

	// The owner approved the order because they knew of this money, or the buyer paid in another way too. The
	// note tells the owner of the second possibility.
	if s.order == Paid && (s.paysOrder || !s.orderHasPayer) {
		out.paysOrder = true
		out.note = s.moneyNote(NoteConfirmsApproval, a, a.Amount)
		if !exact {
			out.alert = s.amountAlert(a)
		}
		return out
	}

	if s.order == Paid || s.order == Refunded {
		out.note = s.moneyNote(NoteNotNeeded, a, a.Amount)
		out.note.Status = s.order
		out.alert = Alert{Code: AlertOverpaid, TransactionID: a.TransactionID, Amount: a.Amount}
		return out
	}

	// The amount is wrong. Only a pending order waits for a person because of that: an order that expired and is
	// then paid too little stays expired, and its alert waits.
	out.alert = s.amountAlert(a)
	reason := s.moneyNote(NoteOtherAmount, a, a.Amount)
	reason.Due = s.orderAmount
	if s.order == Pending {
		return s.transit(out, GatewayChallenges, reason)
	}
	out.note = reason
	return out
}

// amountAlert says that a payment was too small or too large for the order.
func (s standing) amountAlert(a GatewayAnswer) Alert {
	alert := Alert{
		Code:          AlertOverpaid,
		TransactionID: a.TransactionID,
		Amount:        a.Amount,
		Due:           s.orderAmount,
	}
	if a.Amount < s.orderAmount {
		alert.Code = AlertUnderpaid
	}
	return alert
}

// disputed decides about money that the buyer asks their bank to return.
func (s standing) disputed(a GatewayAnswer) outcome {
	if s.payment.State == StateDisputed {
		return outcome{}
	}
	return outcome{
		note: s.moneyNote(NoteDisputed, a, a.Disputed),
		alert: Alert{
			Code:          AlertDisputed,
			TransactionID: a.TransactionID,
			Amount:        a.Disputed,
			Due:           a.Amount,
		},
	}
}

// disputeOver decides about a dispute that has cost the store nothing more.
func (s standing) disputeOver(a GatewayAnswer) outcome {
	return outcome{
		note:     s.moneyNote(NoteDisputeOver, a, a.Amount),
		resolved: AlertDisputed,
	}
}

// challenged decides about a payment that is held until a person has looked at it. The owner of a pending order
// decides, and of one that has just expired. The payment of any other order is denied at the gateway: see mustClose.
func (s standing) challenged(a GatewayAnswer) outcome {
	if s.payment.State == StateChallenged {
		return outcome{}
	}

	var out outcome
	if s.session.State != SessionPaid && (s.live() || s.latest) {
		out.session = SessionActive
	}
	if GatewayChallenges.possible(s.order) {
		return s.transit(out, GatewayChallenges, s.note(NoteChallenged))
	}
	if s.order == AwaitingVerification {
		out.note = s.note(NoteChallenged)
	}
	return out
}

// failed decides about a payment that was denied or canceled. If its money had arrived, it was reversed. A denied
// payment leaves the session as it is, because its page can be paid again. A payment that somebody canceled at the
// gateway ends the order. An order that waits for a held payment ends with the last payment of that session, unless other
// money of it is there.
func (s standing) failed(a GatewayAnswer) outcome {
	if s.payment.arrived() {
		return s.reversed(a)
	}
	held := s.waitsForHeld || s.payment.State == StateChallenged && s.order == AwaitingVerification
	if s.payment.State == a.State || !s.live() && !held {
		return outcome{}
	}

	canceled := a.State == StateCanceled && s.order == Pending && !s.ended && !s.othersLive
	heldEnded := held && s.session.State != SessionPaid && !s.othersLive
	if s.latest && (canceled || heldEnded) {
		reason := s.note(NoteEndedByGateway)
		reason.State = a.State
		return s.transit(outcome{}, GatewayCancels, reason)
	}
	if a.State == StateCanceled && !held {
		return outcome{}
	}
	return outcome{note: s.moneyNote(NoteDenied, a, 0)}
}

// reversed decides about money that had arrived and was taken back.
func (s standing) reversed(a GatewayAnswer) outcome {
	out := outcome{moneyGone: true}
	spareHere := s.spare.sessionID == s.session.ID && s.spare.transactionID != ""
	if s.session.TransactionID == a.TransactionID && !spareHere {
		out.session = SessionFailed
	}

	switch {
	case s.paysOrder && s.order == Paid && s.spare.transactionID != "":
		out.payer = s.spare
	case s.paysOrder && s.order == Paid:
		return s.transit(out, GatewayReverses, s.note(NoteReversed))
	case s.latest && s.order == AwaitingVerification:
		reason := s.note(NoteEndedByGateway)
		reason.State = a.State
		return s.transit(out, GatewayCancels, reason)
	}
	out.note = s.moneyNote(NoteReversed, a, a.Amount)
	return out
}

// refunded decides about a payment that was returned as a whole.
func (s standing) refunded(a GatewayAnswer) outcome {
	if s.payment.State == StateRefunded {
		return outcome{}
	}

	out := outcome{moneyGone: true}
	if s.paysOrder && s.order == Paid && s.spare.transactionID == "" {
		return s.transit(out, GatewayRefunds, s.note(NoteRefunded))
	}
	if s.paysOrder && s.order == Paid { // The buyer had paid twice, and the first payment was the one to return.
		out.payer = s.spare
	}
	if s.paysOrder && s.order == Refunded { // The owner has noted it before.
		return out
	}

	out.note = s.moneyNote(NoteReturned, a, a.Returned-s.payment.Returned)
	if s.live() { // It was paid and returned before we heard of either: nothing of it is left.
		out.session = SessionFailed
	}
	return out
}

// partlyRefunded decides about a payment of which a part was returned. It leaves a paid order paid.
func (s standing) partlyRefunded(a GatewayAnswer) outcome {
	news := a.Returned > s.payment.Returned
	disputeEnds := s.payment.State == StateDisputed && a.Disputed == 0
	if !news && disputeEnds {
		return s.disputeOver(a)
	}
	// A partial chargeback of Midtrans has no amount: the first report of it counts although Returned has not grown.
	if !news && s.payment.State == StatePartlyRefunded {
		return outcome{}
	}

	out := outcome{note: s.moneyNote(NoteReturnedPartly, a, a.Returned-s.payment.Returned)}
	if disputeEnds { // The store has lost a part of it.
		out.resolved = AlertDisputed
	}
	if s.paysOrder && s.order == Paid {
		out.alert = Alert{
			Code:          AlertPartlyRefunded,
			TransactionID: a.TransactionID,
			Amount:        a.Returned,
			Due:           a.Amount,
		}
	}
	return out
}

// over decides about a session that has ended unpaid at the gateway. Its order may start another one while it has
// time, and expires otherwise: see expireIfClear. A challenged payment that nobody accepted in time has failed, and so has
// one that began after it on the same page.
func (s standing) over(a GatewayAnswer) (out outcome) {
	if s.payment.State == StateChallenged || s.waitsForHeld {
		out = s.failed(a)
	}
	if s.live() {
		out.session = SessionExpired
	}
	return out
}

// transit adds a transition to an outcome if the order's state allows it.
func (s standing) transit(out outcome, t Transition, reason Note) outcome {
	if t.possible(s.order) {
		out.transition, out.reason = t, reason
	}
	return out
}

// note is a note about the session.
func (s standing) note(code NoteCode) Note {
	return Note{Code: code, Provider: s.session.Provider, Attempt: s.session.Attempt}
}

// moneyNote is a note about an amount of a payment.
func (s standing) moneyNote(code NoteCode, a GatewayAnswer, amount int64) Note {
	n := s.note(code)
	n.Amount, n.Transaction = amount, a.TransactionID
	return n
}

// confirms reports whether a gateway's answer about a payment bears out what a notification claimed, or shows that
// more has happened since. An answer that knows less than the notification is behind it, and decides nothing.
func confirms(claim, answer GatewayState) bool {
	arrived := Payment{State: answer}.arrived()
	switch claim {
	case StateSettled: // or a dispute that was won
		return arrived && answer != StateDisputed || answer == StateDenied || answer == StateCanceled
	case StateDisputed:
		return arrived && answer != StateSettled || answer == StateDenied || answer == StateCanceled
	case StateChallenged:
		return answer != StateOpen
	case StateDenied, StateCanceled:
		return !arrived && answer != StateOpen && answer != StateChallenged
	case StateExpired: // It may have been paid at the last moment.
		return answer != StateOpen && answer != StateChallenged
	case StateRefunded:
		return answer == StateRefunded || answer == StateDenied || answer == StateCanceled
	case StatePartlyRefunded:
		return answer == StatePartlyRefunded || answer == StateRefunded ||
			answer == StateDenied || answer == StateCanceled
	}
	return true // StateOpen, or a claim that nobody knows: any answer overtakes it.
}

// mustClose reports whether a session could still be paid at the gateway although its order needs no payment: the
// order is over, or was paid in another way. Closing ends only what can still be paid.
func mustClose(s SessionWithOrder, answers []GatewayAnswer, now Time) bool {
	wanted := s.OrderStatus == AwaitingVerification || s.OrderStatus == Pending && s.OrderEnd > now
	if wanted {
		return false
	}

	begun, over, arrived, open := false, false, false, false
	for _, a := range answers {
		// The owner decides about a payment that is held: see standing.challenged.
		if a.State == StateChallenged && GatewayChallenges.possible(s.OrderStatus) {
			return false
		}
		begun = begun || stillPayable(a)
		over = over || a.State == StateExpired
		arrived = arrived || (Payment{State: a.State}).arrived()
		open = open || a.State == StateOpen
	}
	if arrived && open { // Xendit has two sessions of this name, and one of them is paid.
		return true
	}

	// The page of a failed session may still be paid: its start was lost, or its payment was reversed.
	payable := s.State == SessionActive || s.State == SessionStarting || s.State == SessionFailed
	return begun || payable && !over && !arrived
}

// stillPayable reports whether an answer is about a payment that has begun and not ended. After a session was closed
// it is one that began meanwhile, so the session has to be closed again.
func stillPayable(a GatewayAnswer) bool {
	return a.State == StateChallenged || a.State == StateOpen && a.TransactionID != ""
}

// checkFacts is what decides when a gateway is asked about a session again.
type checkFacts struct {
	session      SessionState
	known        bool // the gateway has named it, or a payment of it
	order        Status
	orderEnd     Time // the order's expires_at
	endedAt      Time // when the session or its order was over, whichever came later; 0 = not yet
	failingSince Time // the first of the latest questions that had no answer; 0 = the last one had
	undecided    Time // when the newest undecided notification came; 0 = there is none
}

// followUps are the times after a session's end at which the gateway is asked once more. They find reversals and
// refunds, and money whose notification was lost.
var followUps = []time.Duration{10 * time.Minute, 24 * time.Hour, 7 * 24 * time.Hour}

// giveUpAfter is how long a gateway that does not answer is asked about a session after its order's end, and how
// long it is asked about a notification that it does not confirm.
const giveUpAfter = 7 * 24 * time.Hour

// nextCheck returns when the gateway is to be asked about a session again; 0 = never. It is asked later and later
// while it does not answer, and while it does not confirm a notification.
func nextCheck(f checkFacts, now Time) Time {
	if f.failingSince > 0 {
		return f.nextTry(now)
	}

	next := f.plannedCheck(now)
	if f.undecided > 0 {
		soon := later(f.undecided, now, 5*time.Second, 6*time.Hour)
		if next == 0 || soon < next {
			return soon
		}
	}
	return next
}

// nextTry returns when a gateway that gave no answer is asked again. One that has never told of the session may have
// created it all the same, and its answer was lost. That is rare, so it is asked less often.
func (f checkFacts) nextTry(now Time) Time {
	if f.session == SessionStarting && f.undecided == 0 { // Nobody was shown a page yet.
		return max(f.orderEnd, now.Add(5*time.Minute))
	}
	if f.session == SessionStarting || f.session == SessionActive {
		return later(f.failingSince, now, 10*time.Second, 5*time.Minute)
	}

	last := f.endedAt.Add(followUps[len(followUps)-1])
	if now > last.Add(giveUpAfter) {
		return 0
	}
	if !f.known && f.undecided == 0 {
		return later(f.failingSince, now, 10*time.Second, 24*time.Hour)
	}
	return later(f.failingSince, now, 10*time.Second, time.Hour)
}

// later returns a time that is as far ahead as since is behind, within bounds: each wait is twice the one before.
func later(since, now Time, least, most time.Duration) Time {
	wait := now.Time().Sub(since.Time())
	return now.Add(min(max(wait, least), most))
}

// plannedCheck returns when the gateway is asked about a session if nothing is wrong; 0 = never.
func (f checkFacts) plannedCheck(now Time) Time {
	const retry = 20 * time.Second
	const nearEnd = 30 * time.Minute

	switch f.session {
	case SessionStarting: // The buyer's next look starts it again before that.
		return max(f.orderEnd, now.Add(retry))

	case SessionActive:
		switch {
		case f.order == AwaitingVerification:
			return now.Add(nearEnd)
		case f.order != Pending || f.orderEnd <= now: // It has to be closed.
			return now.Add(retry)
		case now < f.orderEnd.Add(-nearEnd):
			return f.orderEnd.Add(-nearEnd)
		}
		return min(now.Add(5*time.Minute), f.orderEnd)
	}

	// The session is over, but its order still waits: it is asked about once more when that ends.
	if f.order == Pending && f.orderEnd > now {
		return f.orderEnd
	}
	for _, wait := range followUps {
		if at := f.endedAt.Add(wait); at > now {
			return at
		}
	}
	return 0
}
