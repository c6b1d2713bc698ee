//go:build cgo

package main

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

// The orders of these tests cost Rp1,000.
const policyDue = 1000

// standingOf is the only session of an order that still has time, before anything was heard of payment tx-1.
func standingOf(session SessionState, order Status) standing {
	s := standing{order: order, orderAmount: policyDue, latest: true}
	s.session = PaymentSession{Provider: ProviderMidtrans, Attempt: 1, State: session}
	return s
}

// knownAs is s when the gateway said that of payment tx-1 before.
func knownAs(state GatewayState, s standing) standing {
	s.payment = Payment{TransactionID: "tx-1", State: state, Amount: policyDue}
	if state == StateRefunded {
		s.payment.Returned = policyDue
	}
	if s.payment.arrived() {
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

// payer is s when payment tx-1 paid the order.
func payer(s standing) standing {
	s.paysOrder, s.orderHasPayer = true, true
	return s
}

// otherPaid is s when another payment paid the order.
func otherPaid(s standing) standing {
	s.orderHasPayer = true
	return s
}

// besideAnother is s when another payment of the session can still bring money.
func besideAnother(s standing) standing {
	s.othersLive = true
	return s
}

// gatewaySays is an answer about payment tx-1.
func gatewaySays(state GatewayState) GatewayAnswer {
	a := GatewayAnswer{State: state, TransactionID: "tx-1", Amount: policyDue}
	if state == StateRefunded {
		a.Returned = policyDue
	}
	return a
}

func gatewayPaid(amount int64) GatewayAnswer {
	a := gatewaySays(StateSettled)
	a.Amount = amount
	return a
}

func gatewayReturned(amount int64) GatewayAnswer {
	a := gatewaySays(StatePartlyRefunded)
	a.Returned = amount
	return a
}

func gatewayDisputes(amount int64) GatewayAnswer {
	a := gatewaySays(StateDisputed)
	a.Disputed = amount
	return a
}

// TestPaymentPolicy reads testdata/payment-policy.txt: what every answer means for every order.
func TestPaymentPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/payment-policy.txt") {
		head := strings.Fields(c.heading)
		a := answerInTable(t, head[0])
		known := answerInTable(t, c.column(0))

		for i, order := range head[1:] {
			want := c.column(i + 1)
			if want == "x" {
				continue
			}
			got := outcomeInWords(decide(standingInTable(known, order), a))
			if got != want {
				t.Errorf("%s, %s, order %s: %s, want %s", head[0], c.name, order, got, want)
			}
		}
	}
}

// answerInTable reads an answer, in which commas take the place of spaces.
func answerInTable(t *testing.T, text string) GatewayAnswer {
	t.Helper()
	a, err := storyAnswer("tx-1", strings.ReplaceAll(text, ",", " "))
	must(t, err)
	if a.State == "unknown" {
		a.State = ""
	}
	return a
}

// standingInTable is a standing of the table: how the payment is known, and what is said of its order.
func standingInTable(known GatewayAnswer, column string) standing {
	order := Status(column)
	switch column {
	case "awaiting":
		order = AwaitingVerification
	case "approved", "payer", "other":
		order = Paid
	}

	s := knownAs(known.State, standingOf(SessionActive, order))
	s.payment.Returned = known.Returned
	arrived := s.payment.arrived()
	if arrived {
		s.session.State = SessionPaid
	}
	s.paysOrder = column == "payer" || column == "refunded" && arrived
	s.orderHasPayer = s.paysOrder || column == "other" || column == "refunded"
	return s
}

// outcomeInWords is an outcome as the table has it, without the session and the values of notes and alerts.
func outcomeInWords(out outcome) string {
	words := ""
	switch {
	case out.transition != "":
		words = strings.TrimSuffix(string(transitions[out.transition].to), "_verification")
	case out.alert.Code == "":
		words = string(out.note.Code)
	}

	if out.alert.Code != "" {
		words += "!" + string(out.alert.Code)
	}
	if out.resolved != "" {
		words += "~" + string(out.resolved)
	}
	if out.moneyGone {
		words += "~all"
	}
	return cmp.Or(words, "-")
}

// The notes and alerts below are about session 1 and payment tx-1.

func policyNote(code NoteCode) Note {
	return Note{Code: code, Provider: ProviderMidtrans, Attempt: 1}
}

func policyMoney(code NoteCode, amount int64, order Status) Note {
	n := policyNote(code)
	n.Amount, n.Transaction = amount, "tx-1"
	if code == NoteNotNeeded {
		n.Status = order
	}
	return n
}

func policyEnd(state GatewayState) Note {
	n := policyNote(NoteEndedByGateway)
	n.State = state
	return n
}

func policyAlert(code AlertCode, amount, due int64) Alert {
	return Alert{Code: code, TransactionID: "tx-1", Amount: amount, Due: due}
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
	pays := outcome{
		session:    SessionPaid,
		transition: GatewaySettles,
		reason:     policyNote(NotePaid),
		paysOrder:  true,
	}
	confirms := outcome{
		session:   SessionPaid,
		note:      policyMoney(NoteConfirmsApproval, 1000, Paid),
		paysOrder: true,
	}

	testDecide(t, []decideCase{
		{
			"pays", standingOf(SessionActive, Pending),
			gatewayPaid(1000), pays,
		},
		{
			"the answer to the start was lost", standingOf(SessionStarting, Pending),
			gatewayPaid(1000), pays,
		},
		{
			"an older session pays", superseded(standingOf(SessionExpired, Pending)),
			gatewayPaid(1000), pays,
		},
		{
			"a second payment of the page pays", standingOf(SessionPaid, AwaitingVerification),
			gatewayPaid(1000), pays,
		},
		{
			"approved by the owner", standingOf(SessionActive, Paid),
			gatewayPaid(1000), confirms,
		},
		{
			"the payment that the owner approved", payer(standingOf(SessionActive, Paid)),
			gatewayPaid(1000), confirms,
		},
		{
			"a dispute is won", knownAs(StateDisputed, payer(standingOf(SessionPaid, Paid))),
			gatewayPaid(1000), outcome{
				note:     policyMoney(NoteDisputeOver, 1000, Paid),
				resolved: AlertDisputed,
			},
		},
	})
}

func TestDecideWrongAmount(t *testing.T) {
	t.Parallel()
	otherAmount := func(order Status) Note {
		n := policyMoney(NoteOtherAmount, 999, order)
		n.Due = policyDue
		return n
	}

	testDecide(t, []decideCase{
		{
			"too little", standingOf(SessionActive, Pending),
			gatewayPaid(999), outcome{
				session:    SessionPaid,
				transition: GatewayChallenges,
				reason:     otherAmount(Pending),
				alert:      policyAlert(AlertUnderpaid, 999, 1000),
			},
		},
		{
			"too little, and late", overdue(standingOf(SessionExpired, Expired)),
			gatewayPaid(999), outcome{
				session: SessionPaid,
				note:    otherAmount(Expired),
				alert:   policyAlert(AlertUnderpaid, 999, 1000),
			},
		},
		{
			"not needed", otherPaid(standingOf(SessionActive, Paid)),
			gatewayPaid(1000), outcome{
				session: SessionPaid,
				note:    policyMoney(NoteNotNeeded, 1000, Paid),
				alert:   policyAlert(AlertOverpaid, 1000, 0),
			},
		},
		{
			"approved, and too much", standingOf(SessionActive, Paid),
			gatewayPaid(1500), outcome{
				session:   SessionPaid,
				note:      policyMoney(NoteConfirmsApproval, 1500, Paid),
				paysOrder: true,
				alert:     policyAlert(AlertOverpaid, 1500, 1000),
			},
		},
	})
}

func TestDecideChallenged(t *testing.T) {
	t.Parallel()
	says := gatewaySays(StateChallenged)
	waits := outcome{transition: GatewayChallenges, reason: policyNote(NoteChallenged)}
	waitsActive := waits
	waitsActive.session = SessionActive

	testDecide(t, []decideCase{
		{
			"active", standingOf(SessionActive, Pending),
			says, waitsActive,
		},
		{
			"starting", standingOf(SessionStarting, Pending),
			says, waitsActive,
		},
		{
			"ended", standingOf(SessionExpired, Pending),
			says, waitsActive,
		},
		{
			"ended, and the order too", overdue(standingOf(SessionExpired, Expired)),
			says, waitsActive,
		},
		{
			"ended, and a later session lives", superseded(standingOf(SessionExpired, Pending)),
			says, waits,
		},
		{
			"denied before", knownAs(StateDenied, standingOf(SessionActive, Pending)),
			says, waitsActive,
		},
		{
			"a second payment of a paid page", otherPaid(standingOf(SessionPaid, Paid)),
			says, outcome{},
		},
		{
			"the order is over", standingOf(SessionActive, Failed),
			says, outcome{session: SessionActive},
		},
	})
}

func TestDecideDeniedOrCanceled(t *testing.T) {
	t.Parallel()
	denies, cancels := gatewaySays(StateDenied), gatewaySays(StateCanceled)
	ends := func(state GatewayState) outcome {
		return outcome{transition: GatewayCancels, reason: policyEnd(state)}
	}
	noted := func(order Status) outcome {
		return outcome{note: policyMoney(NoteDenied, 0, order)}
	}
	held := knownAs(StateChallenged, standingOf(SessionActive, AwaitingVerification))
	open := knownAs(StateOpen, standingOf(SessionActive, AwaitingVerification))
	open.waitsForHeld = true
	heldInPaid := knownAs(StateChallenged, standingOf(SessionPaid, AwaitingVerification))
	heldInEnded := knownAs(StateChallenged, standingOf(SessionExpired, AwaitingVerification))

	testDecide(t, []decideCase{
		{
			"denied: the session stays as it is", standingOf(SessionActive, Pending),
			denies, noted(Pending),
		},
		{
			"denied, older session", superseded(standingOf(SessionActive, Pending)),
			denies, noted(Pending),
		},
		{
			"denied after the session's end", standingOf(SessionExpired, Pending),
			denies, outcome{},
		},
		{
			"canceled", standingOf(SessionActive, Pending),
			cancels, ends(StateCanceled),
		},
		{
			"canceled, and another payment of the page is open", besideAnother(standingOf(SessionActive, Pending)),
			cancels, outcome{},
		},
		{
			"canceled after the order's end", overdue(standingOf(SessionActive, Pending)),
			cancels, outcome{},
		},
		{
			"canceled, older session", superseded(standingOf(SessionActive, Pending)),
			cancels, outcome{},
		},

		// The order waits for the payment.
		{"held and denied", held, denies, ends(StateDenied)},
		{"held and canceled", held, cancels, ends(StateCanceled)},
		{"held and denied after the order's end", overdue(held), denies, ends(StateDenied)},
		{"held and denied after the session's end", heldInEnded, denies, ends(StateDenied)},
		{"held and denied, older session", superseded(held), denies, noted(AwaitingVerification)},
		{"held and canceled, older session", superseded(held), cancels, noted(AwaitingVerification)},
		{"held and denied, and other money is there", heldInPaid, denies, noted(AwaitingVerification)},

		// The held payment was denied while this one was open.
		{"denied after the held one", open, denies, ends(StateDenied)},
		{"denied after the held one, and another is open", besideAnother(open), denies, noted(AwaitingVerification)},
		{"canceled after the held one", open, cancels, ends(StateCanceled)},
		{
			"expired after the held one", open, gatewaySays(StateExpired),
			outcome{session: SessionExpired, transition: GatewayCancels, reason: policyEnd(StateExpired)},
		},
		{
			"expired, and the order waits for something else", knownAs(StateOpen, standingOf(SessionActive, AwaitingVerification)),
			gatewaySays(StateExpired), outcome{session: SessionExpired},
		},
	})
}

func TestDecideReversed(t *testing.T) {
	t.Parallel()
	denies := gatewaySays(StateDenied)
	settled := func(order Status) standing {
		return knownAs(StateSettled, standingOf(SessionPaid, order))
	}
	ofAnother := otherPaid(settled(Paid))
	ofAnother.session.TransactionID = "tx-2"

	testDecide(t, []decideCase{
		{
			"the payment that paid the order", payer(settled(Paid)),
			denies, outcome{
				session:    SessionFailed,
				transition: GatewayReverses,
				reason:     policyNote(NoteReversed),
				moneyGone:  true,
			},
		},
		{
			"after the owner's refund", payer(settled(Refunded)),
			denies, outcome{
				session:   SessionFailed,
				note:      policyMoney(NoteReversed, 1000, Refunded),
				moneyGone: true,
			},
		},
		{
			"a second payment of the page that paid", ofAnother,
			denies, outcome{
				note:      policyMoney(NoteReversed, 1000, Paid),
				moneyGone: true,
			},
		},
		{
			"another amount, which the order waited for", settled(AwaitingVerification),
			denies, outcome{
				session:    SessionFailed,
				transition: GatewayCancels,
				reason:     policyEnd(StateDenied),
				moneyGone:  true,
			},
		},
		{
			"another amount, older session", superseded(settled(AwaitingVerification)),
			denies, outcome{
				session:   SessionFailed,
				note:      policyMoney(NoteReversed, 1000, AwaitingVerification),
				moneyGone: true,
			},
		},
	})
}

// partlyReturned is s when Rp300 of payment tx-1 were returned before.
func partlyReturned(s standing) standing {
	s = knownAs(StatePartlyRefunded, s)
	s.payment.Returned = 300
	return s
}

func TestDecideReturned(t *testing.T) {
	t.Parallel()
	all := gatewaySays(StateRefunded)
	paid := payer(standingOf(SessionPaid, Paid))

	testDecide(t, []decideCase{
		{
			"all of it", knownAs(StateSettled, paid),
			all, outcome{
				transition: GatewayRefunds,
				reason:     policyNote(NoteRefunded),
				moneyGone:  true,
			},
		},
		{
			"all of it, as the owner has noted", knownAs(StateSettled, payer(standingOf(SessionPaid, Refunded))),
			all, outcome{moneyGone: true},
		},
		{
			"the rest of a payment that was not needed", partlyReturned(otherPaid(standingOf(SessionPaid, Paid))),
			all, outcome{
				note:      policyMoney(NoteReturned, 700, Paid),
				moneyGone: true,
			},
		},
		{
			"all of it, and nothing was heard of it", standingOf(SessionActive, Pending),
			all, outcome{
				session:   SessionFailed,
				note:      policyMoney(NoteReturned, 1000, Pending),
				moneyGone: true,
			},
		},
	})
}

func TestDecidePartlyReturned(t *testing.T) {
	t.Parallel()
	paid := payer(standingOf(SessionPaid, Paid))

	testDecide(t, []decideCase{
		{
			"a part", knownAs(StateSettled, paid),
			gatewayReturned(300), outcome{
				note:  policyMoney(NoteReturnedPartly, 300, Paid),
				alert: policyAlert(AlertPartlyRefunded, 300, 1000),
			},
		},
		{
			"another part", partlyReturned(paid),
			gatewayReturned(500), outcome{
				note:  policyMoney(NoteReturnedPartly, 200, Paid),
				alert: policyAlert(AlertPartlyRefunded, 500, 1000),
			},
		},
		{
			"a dispute", partlyReturned(paid),
			disputedAfter(300, 700), outcome{
				note:  policyMoney(NoteDisputed, 700, Paid),
				alert: policyAlert(AlertDisputed, 700, 1000),
			},
		},
		{
			"a part, while another is disputed", knownAs(StateDisputed, paid),
			partWhileDisputed(300, 700), outcome{
				note:  policyMoney(NoteReturnedPartly, 300, Paid),
				alert: policyAlert(AlertPartlyRefunded, 300, 1000),
			},
		},
		{
			"a part of a dispute is lost", knownAs(StateDisputed, paid),
			gatewayReturned(300), outcome{
				note:     policyMoney(NoteReturnedPartly, 300, Paid),
				alert:    policyAlert(AlertPartlyRefunded, 300, 1000),
				resolved: AlertDisputed,
			},
		},
	})
}

// disputedAfter is an answer that a part was returned and another is disputed.
func disputedAfter(returned, disputed int64) GatewayAnswer {
	a := gatewayDisputes(disputed)
	a.Returned = returned
	return a
}

// partWhileDisputed is an answer's first step: a part was returned, and another is disputed.
func partWhileDisputed(returned, disputed int64) GatewayAnswer {
	a := gatewayReturned(returned)
	a.Disputed = disputed
	return a
}

func TestDecideExpired(t *testing.T) {
	t.Parallel()
	session := GatewayAnswer{State: StateExpired}
	ends := outcome{session: SessionExpired}

	testDecide(t, []decideCase{
		{"in time", standingOf(SessionActive, Pending), session, ends},
		{"at the order's end", overdue(standingOf(SessionActive, Pending)), session, ends},
		{"while starting", standingOf(SessionStarting, Pending), session, ends},
		{"closed at the gateway", standingOf(SessionActive, Failed), session, ends},
		{"again", standingOf(SessionExpired, Pending), session, outcome{}},
		{"paid before", payer(standingOf(SessionPaid, Paid)), session, outcome{}},
		{
			"a challenged payment that nobody accepted",
			knownAs(StateChallenged, overdue(standingOf(SessionActive, AwaitingVerification))),
			gatewaySays(StateExpired), outcome{
				session:    SessionExpired,
				transition: GatewayCancels,
				reason:     policyEnd(StateExpired),
			},
		},
	})
}

// TestInSteps tests what an answer says that more than one thing has happened since the last one.
func TestInSteps(t *testing.T) {
	t.Parallel()
	arrival := gatewayPaid(policyDue)
	denied, settled := Payment{State: StateDenied}, Payment{State: StateSettled}
	partly := Payment{State: StatePartlyRefunded, Returned: 300}
	partOfDisputed := partWhileDisputed(300, 700)

	cases := []struct {
		name  string
		known Payment
		last  GatewayAnswer
		first []GatewayAnswer
	}{
		{"settled", Payment{}, arrival, nil},
		{"refunded", Payment{}, gatewaySays(StateRefunded), nil},
		{"partly refunded", Payment{}, gatewayReturned(300), []GatewayAnswer{arrival}},
		{"partly refunded after a denial", denied, gatewayReturned(300), []GatewayAnswer{arrival}},
		{"partly refunded after the settlement", settled, gatewayReturned(300), nil},
		{"disputed", Payment{}, gatewayDisputes(700), []GatewayAnswer{arrival}},
		{"disputed after the settlement", settled, gatewayDisputes(700), nil},
		{"disputed after a part was returned", partly, disputedAfter(300, 700), nil},
		{"disputed, and a part returned", settled, disputedAfter(300, 700), []GatewayAnswer{partOfDisputed}},
		{
			"disputed, and a part returned, and nothing was known", Payment{},
			disputedAfter(300, 700), []GatewayAnswer{arrival, partOfDisputed},
		},
	}
	for _, c := range cases {
		got, want := inSteps(c.known, c.last), append(c.first, c.last)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, want)
		}
	}
}

// TestPaymentWith tests what is known of a payment after an answer. An older one does not undo money that has
// arrived.
func TestPaymentWith(t *testing.T) {
	t.Parallel()
	const partly = StatePartlyRefunded
	was := func(state GatewayState, returned int64) Payment {
		return Payment{TransactionID: "tx-1", RequestID: "pr-1", State: state, Amount: 1000, Returned: returned}
	}
	cases := []struct {
		name  string
		known Payment
		says  GatewayAnswer
		want  Payment
	}{
		{"named by a notification only", was("", 0), gatewayPaid(1000), was(StateSettled, 0)},
		{"denied", was(StateOpen, 0), gatewaySays(StateDenied), was(StateDenied, 0)},
		{"paid after a denial", was(StateDenied, 0), gatewayPaid(1000), was(StateSettled, 0)},
		{"reversed", was(StateSettled, 0), gatewaySays(StateDenied), was(StateDenied, 0)},
		{"a part returned, and reversed", was(partly, 300), gatewaySays(StateDenied), was(StateDenied, 0)},
		{"a part", was(StateSettled, 0), gatewayReturned(300), was(partly, 300)},
		{"all", was(partly, 300), gatewaySays(StateRefunded), was(StateRefunded, 1000)},
		{"a dispute is won", was(StateDisputed, 300), gatewayReturned(300), was(partly, 300)},

		{"open is older", was(StateSettled, 0), gatewaySays(StateOpen), was(StateSettled, 0)},
		{"challenged is older", was(StateDisputed, 0), gatewaySays(StateChallenged), was(StateDisputed, 0)},
		{"expired is older", was(StateRefunded, 1000), gatewaySays(StateExpired), was(StateRefunded, 1000)},
		{"less returned is older", was(partly, 500), gatewayReturned(300), was(partly, 500)},
		{"nothing returned is older", was(StateRefunded, 1000), gatewayPaid(1000), was(StateRefunded, 1000)},
	}
	for _, c := range cases {
		got := c.known.with(c.says)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
