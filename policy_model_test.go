//go:build cgo

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// orderModel is an order with its sessions, as far as the policy needs them. Its methods do to it what
// payment.go does to the rows; TestPaymentStories holds the two together.
type orderModel struct {
	status   Status
	ended    bool
	sessions []*sessionModel
	paidBy   *sessionModel
	alerts   map[alertName]Alert // the open ones

	heldAttempt int // the session whose held payment the order waits for; 0 if it waits for nothing or something else

	approved bool            // the owner's approval made it paid
	accepted map[string]bool // the payments of too little that the owner accepted with it
}

type sessionModel struct {
	PaymentSession
	payments map[string]Payment
}

type alertName struct {
	code        AlertCode
	transaction string
}

func newOrderModel() *orderModel {
	return &orderModel{
		status:   Pending,
		alerts:   map[alertName]Alert{},
		accepted: map[string]bool{},
	}
}

// session returns a session of the order, which begins if it is the next one.
func (m *orderModel) session(attempt int) *sessionModel {
	if attempt > len(m.sessions) {
		s := &sessionModel{payments: map[string]Payment{}}
		s.PaymentSession = PaymentSession{
			ID:       fmt.Sprint(attempt),
			Provider: ProviderMidtrans,
			Attempt:  attempt,
			State:    SessionActive,
		}
		m.sessions = append(m.sessions, s)
	}
	return m.sessions[attempt-1]
}

// mayBegin reports whether another session may begin.
func (m *orderModel) mayBegin() bool {
	for _, s := range m.sessions {
		if s.State == SessionActive {
			return false
		}
	}
	return m.status == Pending && !m.ended
}

func (m *orderModel) standing(s *sessionModel, known Payment, transaction string) standing {
	return standing{
		session:       s.PaymentSession,
		payment:       known,
		order:         m.status,
		orderAmount:   policyDue,
		ended:         m.ended,
		latest:        s.Attempt == len(m.sessions),
		paysOrder:     m.paidBy == s && (s.TransactionID == "" || s.TransactionID == transaction),
		orderHasPayer: m.paidBy != nil,
		spare:         m.spare(transaction),
		othersLive:    s.othersLive(transaction),
		waitsForHeld:  m.status == AwaitingVerification && m.heldAttempt == s.Attempt,
	}
}

// othersLive reports whether another payment of the session has arrived, or can still do so.
func (s *sessionModel) othersLive(transaction string) bool {
	for name, p := range s.payments {
		if name != transaction && (p.arrived() || p.State == StateOpen || p.State == StateChallenged) {
			return true
		}
	}
	return false
}

// spare returns the payment that the order did not need, other than the one named. It is named by its attempt.
func (m *orderModel) spare(transaction string) (spare sparePayment) {
	for _, s := range m.sessions {
		for _, name := range slices.Sorted(maps.Keys(s.payments)) {
			_, alerted := m.alerts[alertName{AlertOverpaid, name}]
			p := s.payments[name]
			if name != transaction && alerted && p.State == StateSettled && p.Amount == policyDue {
				return sparePayment{fmt.Sprint(s.Attempt), name}
			}
		}
	}
	return sparePayment{}
}

// answer does what applyAnswer does.
func (m *orderModel) answer(attempt int, a GatewayAnswer) {
	s := m.session(attempt)
	known := s.payments[a.TransactionID]
	for _, step := range inSteps(known, a) {
		standing := m.standing(s, known, step.TransactionID)
		m.apply(s, step, decide(standing, step))

		known = known.with(step)
		if known.TransactionID != "" {
			s.payments[known.TransactionID] = known
		}
	}
}

// apply does what Tx.apply does.
func (m *orderModel) apply(s *sessionModel, a GatewayAnswer, out outcome) {
	if out.session != "" {
		s.State = out.session
		if out.paysOrder || out.session == SessionPaid && s.TransactionID == "" {
			s.TransactionID = a.TransactionID
		}
	}
	if out.paysOrder {
		m.paidBy = s
	}
	if out.payer.transactionID != "" {
		attempt, _ := strconv.Atoi(out.payer.sessionID)
		m.paidBy = m.session(attempt)
		m.paidBy.TransactionID = out.payer.transactionID
		delete(m.alerts, alertName{AlertOverpaid, out.payer.transactionID})
	}
	if out.transition != "" {
		m.transition(out.transition)
		m.heldAttempt = 0
		if out.reason.Code == NoteChallenged {
			m.heldAttempt = s.Attempt
		}
	}

	for name := range m.alerts {
		if name.transaction == a.TransactionID && (out.moneyGone || name.code == out.resolved) {
			delete(m.alerts, name)
		}
	}
	if out.alert.Code != "" {
		m.alerts[alertName{out.alert.Code, out.alert.TransactionID}] = out.alert
	}
}

// transition does what Tx.transition does. A stock that is gone is left out.
func (m *orderModel) transition(t Transition) {
	if !t.possible(m.status) {
		panic(fmt.Sprintf("%s of an order that is %s", t, m.status))
	}
	m.status = transitions[t].to
	m.approved = t == OwnerApproves

	if t == OwnerApproves {
		m.attribute()
	}
	for name := range m.alerts {
		accepted := t == OwnerApproves && name.code == AlertUnderpaid
		over := name.code == AlertPartlyRefunded && (m.status == Failed || m.status == Refunded)
		if accepted {
			m.accepted[name.transaction] = true
		}
		if accepted || over {
			delete(m.alerts, name)
		}
	}
}

// attribute does what attributePayment does.
func (m *orderModel) attribute() {
	m.paidBy = nil
	for _, s := range m.sessions {
		if s.State == SessionPaid {
			m.paidBy = s
		}
	}
}

// approve does what ApproveOrder does. It reports whether a challenged payment has to be accepted first.
func (m *orderModel) approve() (atGateway bool) {
	if m.status != Pending && m.held() != "" {
		return true
	}
	m.transition(OwnerApproves)
	return false
}

// held returns the name of a challenged payment of the order; empty if there is none.
func (m *orderModel) held() string {
	for _, s := range m.sessions {
		for _, name := range slices.Sorted(maps.Keys(s.payments)) {
			if s.State != SessionPaid && s.payments[name].State == StateChallenged {
				return name
			}
		}
	}
	return ""
}

// String is the order as testdata/payment-stories.txt shows it.
func (m *orderModel) String() string {
	var sessions, alerts []string
	for _, s := range m.sessions {
		sessions = append(sessions, string(s.State))
	}
	for _, a := range m.alerts {
		alerts = append(alerts, storyAlert(a))
	}
	slices.Sort(alerts)
	return storyLine(m.status, sessions, alerts)
}

func storyAlert(a Alert) string {
	return fmt.Sprintf("%s %s %d/%d", a.Code, a.TransactionID, a.Amount, a.Due)
}

// storyLine is what a step of a oldStory leads to, without a gap between its words.
func storyLine(status Status, sessions, alerts []string) string {
	if len(sessions) == 0 {
		sessions = []string{"-"}
	}
	words := []string{string(status), strings.Join(sessions, " "), strings.Join(alerts, ", ")}
	return strings.TrimSpace(strings.Join(words, " "))
}

// storyAnswer reads an answer of a oldStory: a state, and amounts that are not the usual ones.
func storyAnswer(transaction, text string) (a GatewayAnswer, err error) {
	state, amounts, _ := strings.Cut(text, " ")
	a.State = GatewayState(state)
	if state == "part" {
		a.State = StatePartlyRefunded
	}
	a.Amount = policyDue
	if transaction != "-" {
		a.TransactionID = transaction
	}

	for _, amount := range strings.Fields(amounts) {
		var name string
		var n int64
		_, err := fmt.Sscanf(strings.Replace(amount, "=", " ", 1), "%s %d", &name, &n)
		if err != nil {
			return a, err
		}
		switch name {
		case "amount":
			a.Amount = n
		case "returned":
			a.Returned = n
		case "disputed":
			a.Disputed = n
		default:
			return a, fmt.Errorf("%q is no amount", name)
		}
	}
	if a.State == StateRefunded {
		a.Returned = cmp.Or(a.Returned, a.Amount)
	}
	return a, nil
}
