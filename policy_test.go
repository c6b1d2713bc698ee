//go:build cgo

package main

import (
	"cmp"
	"testing"
)

// The orders of these tests cost Rp1,000.
const policyDue = 1000

// standingOf is the only session of an order that still has time. A paid session was settled by payment tx-1.
func standingOf(session SessionState, order Status) standing {
	s := standing{order: order, orderAmount: policyDue, latest: true}
	s.session = PaymentSession{Provider: ProviderMidtrans, Attempt: 1, State: session}
	if session == SessionPaid {
		s.session.TransactionID = "tx-1"
	}
	return s
}

// overdue is s after the order's end.
func overdue(s standing) standing {
	s.ended = true
	return s
}

// superseded is s when the order has a later session.
func superseded(s standing) standing {
	s.latest = false
	return s
}

// payer is s when the session paid the order.
func payer(s standing) standing {
	s.paysOrder, s.orderHasPayer = true, true
	return s
}

// otherPaid is s when another session paid the order.
func otherPaid(s standing) standing {
	s.orderHasPayer = true
	return s
}

// gatewaySays is an answer about payment tx-1.
func gatewaySays(state GatewayState) GatewayAnswer {
	return GatewayAnswer{State: state, TransactionID: "tx-1"}
}

// gatewayPaid is an answer that an amount was paid.
func gatewayPaid(amount int64) GatewayAnswer {
	return GatewayAnswer{State: StateSettled, Amount: amount, TransactionID: "tx-1"}
}

// gatewayReturned is an answer that an amount was returned, in whole or in part.
func gatewayReturned(state GatewayState, amount int64) GatewayAnswer {
	return GatewayAnswer{State: state, Amount: amount, TransactionID: "tx-1", RefundID: "rf-1"}
}

// policyNote is a note about the session of standingOf.
func policyNote(code NoteCode) Note {
	return Note{Code: code, Provider: ProviderMidtrans, Attempt: 1}
}

func notNeededNote(code NoteCode, amount int64, order Status) Note {
	n := policyNote(code)
	n.Amount, n.Status, n.Transaction = amount, order, "tx-1"
	return n
}

func returnedNote(code NoteCode, amount int64) Note {
	n := policyNote(code)
	n.Amount, n.Transaction = amount, "rf-1"
	return n
}

// pays is the outcome of an order that becomes paid.
func pays() outcome {
	return outcome{
		session:    SessionPaid,
		transition: GatewaySettles,
		reason:     policyNote(NotePaid),
		paysOrder:  true,
	}
}

// becomes is the outcome that changes only the session.
func becomes(session SessionState) outcome { return outcome{session: session} }

// moves is the outcome that changes the session and the order.
func moves(session SessionState, t Transition, reason Note) outcome {
	return outcome{session: session, transition: t, reason: reason}
}

// decideCase is a row of the tables below: the first line of each is what is known, the second the answer and
// its outcome.
type decideCase struct {
	name   string
	known  standing
	answer GatewayAnswer
	want   outcome
}

func testDecide(t *testing.T, cases []decideCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := decide(c.known, c.answer)
			if got != c.want {
				t.Errorf("the outcome is\n%+v, want\n%+v", got, c.want)
			}
		})
	}
}

func TestDecideSettled(t *testing.T) {
	t.Parallel()
	otherAmount := policyNote(NoteOtherAmount)
	otherAmount.Amount, otherAmount.Due = 999, policyDue

	// unneeded is the outcome of money that the order does not need.
	unneeded := func(code NoteCode, amount int64, order Status) outcome {
		return outcome{session: SessionPaid, note: notNeededNote(code, amount, order), overpaid: true}
	}
	// unneededFirst is the same if no other session has paid the order.
	unneededFirst := func(code NoteCode, order Status) outcome {
		out := unneeded(code, policyDue, order)
		out.paysOrder = true
		return out
	}
	otherPayment := gatewayPaid(policyDue)
	otherPayment.TransactionID = "tx-2"
	unnamed := gatewayPaid(policyDue)
	unnamed.TransactionID = ""

	testDecide(t, []decideCase{
		// The exact amount pays every order that is not paid or refunded, whatever the session's state.
		{
			"pending", standingOf(SessionActive, Pending),
			gatewayPaid(1000), pays(),
		},
		{
			"awaiting verification", standingOf(SessionActive, AwaitingVerification),
			gatewayPaid(1000), pays(),
		},
		{
			"late: expired", overdue(standingOf(SessionExpired, Expired)),
			gatewayPaid(1000), pays(),
		},
		{
			"late: failed", standingOf(SessionFailed, Failed),
			gatewayPaid(1000), pays(),
		},
		{
			"the answer to the creation was lost", standingOf(SessionStarting, Pending),
			gatewayPaid(1000), pays(),
		},
		{
			"denied before on the same page", standingOf(SessionFailed, Pending),
			gatewayPaid(1000), pays(),
		},
		{
			"older session", superseded(standingOf(SessionActive, Pending)),
			gatewayPaid(1000), pays(),
		},
		{
			"paid another amount before", standingOf(SessionPaid, AwaitingVerification),
			otherPayment, pays(),
		},

		// The payment is known.
		{
			"again", payer(standingOf(SessionPaid, Paid)),
			gatewayPaid(1000), outcome{},
		},
		{
			"again, unnamed", payer(standingOf(SessionPaid, Paid)),
			unnamed, outcome{},
		},
		{
			"again, after the refund", payer(standingOf(SessionPaid, Refunded)),
			gatewayPaid(1000), outcome{},
		},
		{
			"again, of another amount", standingOf(SessionPaid, AwaitingVerification),
			gatewayPaid(999), outcome{},
		},
		{
			"approved by the owner", payer(standingOf(SessionActive, Paid)),
			gatewayPaid(1000), becomes(SessionPaid),
		},
		{
			"approved, and of another amount", payer(standingOf(SessionActive, Paid)),
			gatewayPaid(999), becomes(SessionPaid),
		},
		{
			"another payment of the payer", payer(standingOf(SessionPaid, Paid)),
			otherPayment, becomes(SessionPaid),
		},

		// A person decides about another amount.
		{
			"other amount", standingOf(SessionActive, Pending),
			gatewayPaid(999), moves(SessionPaid, GatewayChallenges, otherAmount),
		},
		{
			"other amount, older session", superseded(standingOf(SessionActive, Pending)),
			gatewayPaid(999), moves(SessionPaid, GatewayChallenges, otherAmount),
		},
		{
			"other amount, while a person decides", standingOf(SessionActive, AwaitingVerification),
			gatewayPaid(999), unneeded(NoteNotNeeded, 999, AwaitingVerification),
		},
		{
			"other amount, late", standingOf(SessionExpired, Expired),
			gatewayPaid(999), unneeded(NoteNotNeeded, 999, Expired),
		},
		{
			"other amount, after a cancel", standingOf(SessionFailed, Failed),
			gatewayPaid(999), unneeded(NoteNotNeeded, 999, Failed),
		},
		{
			"other amount, paid", standingOf(SessionActive, Paid),
			gatewayPaid(999), unneeded(NoteNotNeeded, 999, Paid),
		},

		// The order needs no money any more.
		{
			"paid by another session", otherPaid(standingOf(SessionActive, Paid)),
			gatewayPaid(1000), unneeded(NoteNotNeeded, 1000, Paid),
		},
		{
			"paid by no session", standingOf(SessionActive, Paid),
			gatewayPaid(1000), unneededFirst(NoteMaybeNotNeeded, Paid),
		},
		{
			"refunded by another session", otherPaid(standingOf(SessionActive, Refunded)),
			gatewayPaid(1000), unneeded(NoteNotNeeded, 1000, Refunded),
		},
		{
			"refunded by no session", standingOf(SessionActive, Refunded),
			gatewayPaid(1000), unneededFirst(NoteNotNeeded, Refunded),
		},
	})
}

func TestDecideChallenged(t *testing.T) {
	t.Parallel()
	says, reason := gatewaySays(StateChallenged), policyNote(NoteChallenged)
	testDecide(t, []decideCase{
		// A person has to look at a pending order.
		{
			"active", standingOf(SessionActive, Pending),
			says, moves(SessionActive, GatewayChallenges, reason),
		},
		{
			"starting", standingOf(SessionStarting, Pending),
			says, moves(SessionActive, GatewayChallenges, reason),
		},
		{
			"denied before", standingOf(SessionFailed, Pending),
			says, moves(SessionActive, GatewayChallenges, reason),
		},
		{
			"expired session", standingOf(SessionExpired, Pending),
			says, moves("", GatewayChallenges, reason),
		},
		{
			"older failed session", superseded(standingOf(SessionFailed, Pending)),
			says, moves("", GatewayChallenges, reason),
		},

		// The order is not pending.
		{
			"again", standingOf(SessionActive, AwaitingVerification),
			says, becomes(SessionActive),
		},
		{
			"approved by the owner", payer(standingOf(SessionActive, Paid)),
			says, becomes(SessionPaid),
		},
		{
			"late", standingOf(SessionActive, Expired),
			says, becomes(SessionActive),
		},
		{
			"late, expired session", standingOf(SessionExpired, Expired),
			says, outcome{},
		},
		{
			"older news", payer(standingOf(SessionPaid, Paid)),
			says, outcome{},
		},
	})
}

func TestDecideDeniedOrCanceled(t *testing.T) {
	t.Parallel()
	denies, cancels := gatewaySays(StateDenied), gatewaySays(StateCanceled)
	denied, canceled := policyNote(NoteEndedByGateway), policyNote(NoteEndedByGateway)
	denied.State, canceled.State = StateDenied, StateCanceled
	reversed := policyNote(NoteReversed)
	otherPayment := denies
	otherPayment.TransactionID = "tx-2"

	testDecide(t, []decideCase{
		// A denied payment ends the session. The buyer can try again.
		{
			"denied", standingOf(SessionActive, Pending),
			denies, becomes(SessionFailed),
		},
		{
			"denied while starting", standingOf(SessionStarting, Pending),
			denies, becomes(SessionFailed),
		},
		{
			"denied again", standingOf(SessionFailed, Pending),
			denies, becomes(SessionFailed),
		},
		{
			"denied, older session", superseded(standingOf(SessionActive, Pending)),
			denies, becomes(SessionFailed),
		},
		{
			"denied, expired session", standingOf(SessionExpired, Pending),
			denies, outcome{},
		},
		{
			"denied, after the owner's approval", standingOf(SessionActive, Paid),
			denies, becomes(SessionFailed),
		},

		// A payment that a person had to look at, or a session that was canceled, ends the order.
		{
			"challenge denied", standingOf(SessionActive, AwaitingVerification),
			denies, moves(SessionFailed, GatewayCancels, denied),
		},
		{
			"challenge denied, older session", superseded(standingOf(SessionActive, AwaitingVerification)),
			denies, becomes(SessionFailed),
		},
		{
			"canceled", standingOf(SessionActive, Pending),
			cancels, moves(SessionFailed, GatewayCancels, canceled),
		},
		{
			"challenge canceled", standingOf(SessionActive, AwaitingVerification),
			cancels, moves(SessionFailed, GatewayCancels, canceled),
		},
		{
			"canceled, older session", superseded(standingOf(SessionActive, Pending)),
			cancels, becomes(SessionFailed),
		},
		{
			"canceled after the order's end", standingOf(SessionActive, Failed),
			cancels, becomes(SessionFailed),
		},
		{
			"canceled after another session paid", otherPaid(standingOf(SessionActive, Paid)),
			cancels, becomes(SessionFailed),
		},

		// A payment that was reported as settled is reversed.
		{
			"reversed", payer(standingOf(SessionPaid, Paid)),
			denies, moves(SessionFailed, GatewayReverses, reversed),
		},
		{
			"canceled after the settlement", payer(standingOf(SessionPaid, Paid)),
			cancels, moves(SessionFailed, GatewayReverses, reversed),
		},
		{
			"reversed after the refund", payer(standingOf(SessionPaid, Refunded)),
			denies, becomes(SessionFailed),
		},
		{
			"another payment of the session is denied", payer(standingOf(SessionPaid, Paid)),
			otherPayment, outcome{},
		},
		{
			"other amount reversed", standingOf(SessionPaid, AwaitingVerification),
			denies, moves(SessionFailed, GatewayCancels, denied),
		},
		{
			"other amount reversed, older session", superseded(standingOf(SessionPaid, AwaitingVerification)),
			denies, outcome{session: SessionFailed, note: reversed},
		},
		{
			"second payment reversed", otherPaid(standingOf(SessionPaid, Paid)),
			denies, outcome{session: SessionFailed, note: reversed},
		},
	})
}

func TestDecideRefunded(t *testing.T) {
	t.Parallel()
	whole := gatewayReturned(StateRefunded, 1000)
	part := gatewayReturned(StatePartlyRefunded, 400)
	returned := returnedNote(NoteReturned, 1000)
	returnedPart := returnedNote(NoteReturnedPartly, 400)

	testDecide(t, []decideCase{
		// All of it.
		{
			"refunded", payer(standingOf(SessionPaid, Paid)),
			whole, moves("", GatewayRefunds, policyNote(NoteRefunded)),
		},
		{
			"refunded by the owner before", payer(standingOf(SessionPaid, Refunded)),
			whole, outcome{},
		},
		{
			"second payment refunded", otherPaid(standingOf(SessionPaid, Paid)),
			whole, outcome{note: returned},
		},
		{
			"payment of a failed order refunded", payer(standingOf(SessionFailed, Failed)),
			whole, outcome{note: returned},
		},
		{
			"refunded, and the payment was never reported", standingOf(SessionActive, Pending),
			whole, outcome{session: SessionFailed, note: returned},
		},

		// A part.
		{
			"part", payer(standingOf(SessionPaid, Paid)),
			part, outcome{note: returnedPart},
		},
		{
			"part, expired session", standingOf(SessionExpired, Expired),
			part, outcome{note: returnedPart},
		},
		{
			"part, and the payment was never reported", standingOf(SessionActive, Pending),
			part, outcome{
				session:    SessionPaid,
				note:       returnedPart,
				transition: GatewayChallenges,
				reason:     policyNote(NotePaidThenReturned),
			},
		},
		{
			"part of a challenged payment", standingOf(SessionActive, AwaitingVerification),
			part, outcome{session: SessionPaid, note: returnedPart},
		},
	})
}

func TestDecideUnpaid(t *testing.T) {
	t.Parallel()
	open, expired := gatewaySays(StateOpen), gatewaySays(StateExpired)
	expires := moves(SessionExpired, ClockExpires, policyNote(NoteNotPaidInTime))

	testDecide(t, []decideCase{
		// Nobody has paid yet.
		{
			"open", standingOf(SessionActive, Pending),
			open, outcome{},
		},
		{
			"open at the order's end", overdue(standingOf(SessionActive, Pending)),
			open, expires,
		},
		{
			"denied, and open at the order's end", overdue(standingOf(SessionFailed, Pending)),
			open, expires,
		},
		{
			"starting at the order's end", overdue(standingOf(SessionStarting, Pending)),
			open, expires,
		},
		{
			"older session, open at the end", superseded(overdue(standingOf(SessionActive, Pending))),
			open, becomes(SessionExpired),
		},
		{
			"open while a person decides", overdue(standingOf(SessionActive, AwaitingVerification)),
			open, outcome{},
		},
		{
			"open, to be closed at the gateway", overdue(standingOf(SessionActive, Failed)),
			open, outcome{},
		},
		{
			"open after the owner's approval", standingOf(SessionActive, Paid),
			open, outcome{},
		},
		{
			"older news", payer(standingOf(SessionPaid, Paid)),
			open, outcome{},
		},

		// The session ended unpaid at the gateway.
		{
			"expired in time", standingOf(SessionActive, Pending),
			expired, becomes(SessionExpired),
		},
		{
			"expired at the order's end", overdue(standingOf(SessionActive, Pending)),
			expired, expires,
		},
		{
			"older session, expired", superseded(overdue(standingOf(SessionActive, Pending))),
			expired, becomes(SessionExpired),
		},
		{
			"expired while a person decides", overdue(standingOf(SessionActive, AwaitingVerification)),
			expired, becomes(SessionExpired),
		},
		{
			"closed at the gateway", overdue(standingOf(SessionActive, Failed)),
			expired, becomes(SessionExpired),
		},
		{
			"expired again", overdue(standingOf(SessionExpired, Pending)),
			expired, outcome{},
		},
		{
			"expired, older news", payer(standingOf(SessionPaid, Paid)),
			expired, outcome{},
		},
	})
}

// After an outcome was applied, the same answer leads to nothing more, in every standing and for every
// answer.
func TestDecideTwiceChangesNothingMore(t *testing.T) {
	t.Parallel()
	combinations := 0
	for _, s := range allStandings() {
		for _, a := range allAnswers() {
			combinations++
			first := decide(s, a)
			after := applied(s, a, first)
			more := unapplied(after, first, decide(after, a))
			if more != (outcome{}) {
				t.Errorf("%+v\nanswer %+v\nfirst  %+v\nagain  %+v", s, a, first, more)
			}
		}
	}
	if combinations < 10_000 {
		t.Errorf("%d combinations, want all", combinations)
	}
}

func allStandings() []standing {
	var all []standing
	states := []SessionState{SessionStarting, SessionActive, SessionPaid, SessionFailed, SessionExpired}
	for _, state := range states {
		for _, order := range statuses {
			for flags := range 16 {
				s := standingOf(state, order)
				s.ended, s.latest = flags&1 != 0, flags&2 != 0
				s.paysOrder, s.orderHasPayer = flags&4 != 0, flags&8 != 0
				if possibleStanding(s) {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// possibleStanding reports whether a standing can come about. An order that a session paid was paid once, and
// no transition leads from there to pending or awaiting verification.
func possibleStanding(s standing) bool {
	if s.orderHasPayer && (s.order == Pending || s.order == AwaitingVerification) {
		return false
	}
	return s.orderHasPayer || !s.paysOrder
}

func allAnswers() []GatewayAnswer {
	var all []GatewayAnswer
	states := []GatewayState{
		StateOpen, StateSettled, StateChallenged, StateDenied,
		StateCanceled, StateExpired, StateRefunded, StatePartlyRefunded,
	}
	for _, state := range states {
		for _, amount := range []int64{policyDue, policyDue - 1, policyDue + 1} {
			for _, transaction := range []string{"", "tx-1", "tx-2"} {
				a := gatewayReturned(state, amount)
				a.TransactionID = transaction
				all = append(all, a)
			}
		}
	}
	return all
}

// applied is the standing after apply has written an outcome.
func applied(s standing, a GatewayAnswer, out outcome) standing {
	if out.session != "" {
		s.session.State = out.session
		s.session.TransactionID = cmp.Or(a.TransactionID, s.session.TransactionID)
	}
	if out.transition != "" {
		s.order = transitions[out.transition].to
		if s.order != AwaitingVerification && s.session.State == SessionStarting {
			s.session.State = SessionExpired // See endPaymentSessions.
		}
	}
	if out.paysOrder {
		s.paysOrder, s.orderHasPayer = true, true
	}
	return s
}

// unapplied is the part of a second outcome that would change something. A state that is there already does
// not, nor a note that the first outcome has added.
func unapplied(after standing, first, second outcome) outcome {
	if second.session == after.session.State {
		second.session = ""
	}
	if second.note == first.note {
		second.note = Note{}
	}
	return second
}
