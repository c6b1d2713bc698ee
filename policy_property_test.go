//go:build cgo

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestDecideTwiceChangesNothingMore applies every answer in every standing. After that, the same answer leads
// to nothing.
func TestDecideTwiceChangesNothingMore(t *testing.T) {
	t.Parallel()
	combinations := 0
	for _, s := range allStandings() {
		for _, a := range allAnswers() {
			combinations++
			first, after := applyTo(s, a)
			again, _ := applyTo(after, a)
			for _, more := range again {
				if more != (outcome{}) {
					t.Fatalf("%+v\nanswer %+v\nfirst  %+v\nagain  %+v", s, a, first, more)
				}
			}
		}
	}
	if combinations < 50_000 {
		t.Errorf("%d combinations, want all", combinations)
	}
}

// applyTo returns what an answer leads to, and the standing after that.
func applyTo(s standing, a GatewayAnswer) (all []outcome, after standing) {
	for _, step := range inSteps(s.payment, a) {
		out := decide(s, step)
		all = append(all, out)
		s.payment = s.payment.with(step)
		s = applied(s, step, out)
	}
	return all, s
}

// applied is a standing after payment.go has written an outcome.
func applied(s standing, a GatewayAnswer, out outcome) standing {
	if out.session != "" {
		s.session.State = out.session
		if out.paysOrder || out.session == SessionPaid && s.session.TransactionID == "" {
			s.session.TransactionID = a.TransactionID
		}
	}
	if out.paysOrder {
		s.paysOrder, s.orderHasPayer = true, true
	}
	if out.transition == "" {
		return s
	}

	s.order = transitions[out.transition].to
	if s.order != AwaitingVerification && s.session.State == SessionStarting {
		s.session.State = SessionExpired
	}
	return s
}

func allStandings() []standing {
	var all []standing
	for _, state := range []SessionState{
		SessionStarting, SessionActive, SessionPaid, SessionFailed, SessionExpired,
	} {
		for _, order := range statuses {
			for _, known := range allAnswers() {
				for flags := range 16 {
					s := standingOf(state, order)
					s.payment = s.payment.with(known)
					s.ended, s.latest = flags&1 != 0, flags&2 != 0
					s.paysOrder, s.orderHasPayer = flags&4 != 0, flags&8 != 0
					if s.orderHasPayer || !s.paysOrder {
						all = append(all, s)
					}
				}
			}
		}
	}
	return all
}

// allAnswers are the answers about payment tx-1, and about its session.
func allAnswers() []GatewayAnswer {
	all := []GatewayAnswer{
		{},
		{State: StateOpen},
		{State: StateExpired},
		gatewayPaid(999),
		gatewayPaid(1001),
		gatewayReturned(300),
		gatewayReturned(600),
		gatewayDisputes(700),
		disputedAfter(300, 700),
	}
	for _, state := range []GatewayState{
		StateOpen, StateSettled, StateChallenged, StateDenied, StateCanceled, StateExpired, StateRefunded,
	} {
		all = append(all, gatewaySays(state))
	}
	return all
}

// TestMoneyIsNeverLost plays random stories of orders: the gateway's answers about several payments, copies
// of earlier answers, what the owner does, and the order's end. After a last question about everything, all
// money is accounted for.
func TestMoneyIsNeverLost(t *testing.T) {
	t.Parallel()
	ends := map[Status]int{}
	for seed := range uint64(20_000) {
		l := &moneyLab{
			rand:  rand.New(rand.NewPCG(seed, 0)),
			model: newOrderModel(),
			at:    map[string]*paymentAtGateway{},
		}
		for range 3 + l.rand.IntN(15) {
			l.step()
		}
		l.askAgain()

		ends[l.model.status]++
		problem := l.problem()
		if problem != "" {
			t.Fatalf("seed %d: %s\n%s\n%s", seed, problem, strings.Join(l.log, "\n"), l.model)
		}
	}
	for _, status := range statuses {
		if ends[status] < 100 {
			t.Errorf("only %d orders end as %s", ends[status], status)
		}
	}
}

// moneyLab is an order and a gateway that has payments for it.
type moneyLab struct {
	rand  *rand.Rand
	model *orderModel
	names []string // of the payments, in the order in which they began
	at    map[string]*paymentAtGateway
	log   []string
}

// paymentAtGateway is what the gateway knows of a payment.
type paymentAtGateway struct {
	attempt int
	now     GatewayAnswer
	told    []GatewayAnswer // every answer that it has given
}

// next are the states that may follow a payment's state at the gateway.
var next = map[GatewayState][]GatewayState{
	"":                  {StateOpen, StateChallenged, StateSettled, StateDenied, StateRefunded, StateDisputed},
	StateOpen:           {StateChallenged, StateSettled, StateSettled, StateDenied, StateCanceled, StateExpired},
	StateChallenged:     {StateSettled, StateDenied, StateCanceled, StateExpired},
	StateDenied:         {StateSettled},
	StateSettled:        {StatePartlyRefunded, StateRefunded, StateDisputed, StateDenied},
	StatePartlyRefunded: {StatePartlyRefunded, StateRefunded, StateDisputed},
	StateDisputed:       {StateSettled, StatePartlyRefunded, StateRefunded, StateDenied},
}

// step lets one thing happen.
func (l *moneyLab) step() {
	switch l.rand.IntN(10) {
	case 0:
		l.ownerActs()
	case 1:
		l.clock()
	case 2:
		l.endSession()
	case 3:
		l.tellOld()
	default:
		l.advance()
	}
}

// ownerActs lets the owner do one of what the order's state allows.
func (l *moneyLab) ownerActs() {
	acts := []Transition{OwnerApproves, OwnerApproves, OwnerRejects, OwnerCancels, OwnerRefunds}
	act := acts[l.rand.IntN(len(acts))]
	if !act.possible(l.model.status) {
		return
	}

	l.log = append(l.log, "owner "+string(act))
	if act != OwnerApproves {
		l.model.transition(act)
		return
	}
	atGateway := l.model.approve()
	if !atGateway {
		return
	}

	// The gateway accepts the payment, unless it has changed since.
	name := l.model.held()
	p := l.at[name]
	if p.now.State == StateChallenged {
		p.now.State = StateSettled
	}
	l.tell(name, p.now)
}

// clock ends the order's time, and then expires it if no session is active.
func (l *moneyLab) clock() {
	m := l.model
	m.ended = true
	for _, s := range m.sessions {
		if s.State == SessionActive {
			return
		}
	}
	if ClockExpires.possible(m.status) {
		l.log = append(l.log, "clock expires")
		m.transition(ClockExpires)
	}
}

// endSession lets the gateway say that the latest session is over, which makes room for another.
func (l *moneyLab) endSession() {
	attempt := len(l.model.sessions)
	if attempt > 0 {
		l.log = append(l.log, fmt.Sprintf("%d - expired", attempt))
		l.model.answer(attempt, GatewayAnswer{State: StateExpired})
	}
}

// advance lets a payment begin, or go on, at the gateway, which may tell of it.
func (l *moneyLab) advance() {
	begins := len(l.names) == 0 || len(l.names) < 4 && l.rand.IntN(3) == 0
	if begins {
		attempt := max(1, len(l.model.sessions))
		if l.model.mayBegin() && l.rand.IntN(2) == 0 {
			attempt = len(l.model.sessions) + 1
		}
		name := fmt.Sprintf("tx-%d", len(l.names)+1)
		l.names = append(l.names, name)

		amounts := []int64{policyDue, policyDue, policyDue, policyDue - 100, policyDue + 100}
		l.at[name] = &paymentAtGateway{attempt: attempt}
		l.at[name].now.TransactionID = name
		l.at[name].now.Amount = amounts[l.rand.IntN(len(amounts))]
	}

	name := l.names[l.rand.IntN(len(l.names))]
	p := l.at[name]
	p.advance(l.rand)
	if l.rand.IntN(4) > 0 {
		l.tell(name, p.now)
	}
}

// advance lets a payment take one of its next states.
func (p *paymentAtGateway) advance(random *rand.Rand) {
	states := next[p.now.State]
	if len(states) == 0 {
		return
	}

	a := &p.now
	a.State = states[random.IntN(len(states))]
	a.Disputed = 0
	switch a.State {
	case StatePartlyRefunded:
		a.Returned += 100
	case StateDisputed:
		a.Returned += 100 * random.Int64N(2)
		a.Disputed = a.Amount - a.Returned
	case StateRefunded:
		a.Returned = a.Amount
	case StateDenied: // A payment of which a part was returned is refunded, not reversed.
		if a.Returned > 0 {
			a.Returned = a.Amount
		}
	}
	if a.State == StatePartlyRefunded || a.State == StateSettled {
		a.State = a.returnedState()
	}
	if a.Disputed < 0 || a.Returned >= a.Amount {
		a.State, a.Returned, a.Disputed = StateRefunded, a.Amount, 0
	}
}

// tellOld repeats one of the answers that the gateway has given.
func (l *moneyLab) tellOld() {
	if len(l.names) == 0 {
		return
	}
	name := l.names[l.rand.IntN(len(l.names))]
	told := l.at[name].told
	if len(told) > 0 {
		l.tell(name, told[l.rand.IntN(len(told))])
	}
}

func (l *moneyLab) tell(name string, a GatewayAnswer) {
	p := l.at[name]
	if a.State == "" {
		return
	}
	p.told = append(p.told, a)
	line := fmt.Sprintf("%d %s %s amount=%d returned=%d", p.attempt, name, a.State, a.Amount, a.Returned)
	l.log = append(l.log, line)
	l.model.answer(p.attempt, a)
}

// askAgain tells the last of every payment.
func (l *moneyLab) askAgain() {
	for _, name := range l.names {
		l.tell(name, l.at[name].now)
	}
}

// problem says what is wrong at the end; it is empty if all money is accounted for.
func (l *moneyLab) problem() string {
	m := l.model
	payers := 0
	for _, name := range l.names {
		p := l.at[name].now
		s := m.session(l.at[name].attempt)
		pays := m.paidBy == s && s.TransactionID == name
		if pays && moneyOf(p) > 0 {
			payers++
		}

		counted := pays && (m.status == Paid || m.status == Refunded)
		alerted := m.alerted(name, AlertUnderpaid, AlertOverpaid) || m.accepted[name]
		if moneyOf(p) > 0 && !counted && !alerted {
			return fmt.Sprintf("Rp%d of %s are lost", moneyOf(p), name)
		}
		if moneyOf(p) == 0 && m.alerted(name, alertsOfPayments...) {
			return "an alert about " + name + ", of which nothing is left"
		}
		if m.alerted(name, AlertDisputed) != (p.State == StateDisputed) {
			return "the alert about the dispute of " + name + " is wrong"
		}
		if m.alerted(name, AlertPartlyRefunded) && (p.Returned == 0 || !pays || m.status != Paid) {
			return "an alert that a part of " + name + " was returned"
		}
	}

	if m.status == Paid && payers == 0 && !m.approved {
		return "the order is paid without money"
	}
	return ""
}

// moneyOf is what is left of a payment.
func moneyOf(p GatewayAnswer) int64 {
	switch p.State {
	case StateSettled, StateDisputed, StatePartlyRefunded:
		return p.Amount - p.Returned
	}
	return 0
}

// alerted reports whether the order has an open alert with one of these codes about a payment.
func (m *orderModel) alerted(transaction string, codes ...AlertCode) bool {
	for name := range m.alerts {
		if name.transaction == transaction && slices.Contains(codes, name.code) {
			return true
		}
	}
	return false
}
