//go:build cgo

package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPaymentStories plays testdata/payment-stories.txt twice: with rows in the database, and with the model
// of an order that TestMoneyIsNeverLost uses.
func TestPaymentStories(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.exec(t, "UPDATE products SET price = ?, stock = NULL", policyDue)

	var steps []testCase
	cases := readCases(t, "testdata/payment-stories.txt")
	for i, c := range cases {
		steps = append(steps, c)
		last := i == len(cases)-1 || cases[i+1].heading != c.heading
		if !last {
			continue
		}

		t.Run(c.heading, func(t *testing.T) {
			testStory(t, newModelStory(), steps)
			testStory(t, newRowStory(t, s), steps)
		})
		steps = nil
	}
}

// oldStory is what happens to an order. Its functions end the test if something is impossible.
type oldStory struct {
	kind   string
	answer func(attempt int, a GatewayAnswer)
	owner  func(Transition)
	expire func()
	show   func() string
}

func testStory(t *testing.T, s oldStory, steps []testCase) {
	t.Helper()
	acts := map[string]Transition{
		"approves": OwnerApproves,
		"rejects":  OwnerRejects,
		"cancels":  OwnerCancels,
		"refunds":  OwnerRefunds,
	}
	for _, step := range steps {
		who, what, _ := strings.Cut(step.column(0), " ")
		switch who {
		case "owner":
			s.owner(acts[what])
		case "clock":
			s.expire()
		default:
			attempt, err := strconv.Atoi(who)
			must(t, err)
			transaction, says, _ := strings.Cut(what, " ")
			a, err := storyAnswer(transaction, says)
			must(t, err)
			s.answer(attempt, a)
		}

		want := strings.Join(step.columns[1:], " ")
		if got := s.show(); got != want {
			t.Fatalf("%s: %s: after %q\n got %s\nwant %s", step.name, s.kind, step.column(0), got, want)
		}
	}
}

func newModelStory() oldStory {
	m := newOrderModel()
	return oldStory{
		kind:   "model",
		answer: m.answer,
		owner: func(act Transition) {
			if act == OwnerApproves {
				m.approve()
				return
			}
			m.transition(act)
		},
		expire: func() {
			m.ended = true
			m.transition(ClockExpires)
		},
		show: m.String,
	}
}

// rowStory plays a oldStory with the rows of an order.
type rowStory struct {
	*testServer
	t       *testing.T
	orderID string
}

func newRowStory(t *testing.T, s *testServer) oldStory {
	t.Helper()
	r := newRows(t, s)
	return oldStory{
		kind:   "rows",
		answer: r.answer,
		owner:  r.owner,
		expire: r.expire,
		show:   r.show,
	}
}

// newRows creates an order that a gateway is paid for.
func newRows(t *testing.T, s *testServer) *rowStory {
	t.Helper()
	r := &rowStory{testServer: s, t: t, orderID: s.create(t, "kopi", 1)}
	s.exec(t, `
		UPDATE orders
		SET    provider = 'midtrans', json = json_set(json, '$.payment_provider', 'midtrans', '$.amount', ?)
		WHERE  id = ?`, policyDue, r.orderID)
	return r
}

// session returns the id of a session, which begins if it is the next one.
func (r *rowStory) session(attempt int) string {
	sessions, err := r.db.PaymentSessions(r.orderID)
	must(r.t, err)
	if attempt <= len(sessions) {
		return sessions[attempt-1].ID
	}

	begun, err := r.db.BeginPaymentSession(r.t.Context(), r.storeID, r.orderID)
	must(r.t, err)
	if !begun.ours {
		r.t.Fatalf("session %d does not begin", attempt)
	}
	_, err = r.db.PaymentSessionStarted(r.t.Context(), begun.session)
	must(r.t, err)
	return begun.session.ID
}

func (r *rowStory) answer(attempt int, a GatewayAnswer) {
	asked, err := r.db.askedSession(r.db.reader, r.session(attempt))
	must(r.t, err)

	r.apply(asked, a)
	before := r.written()
	r.apply(asked, a)
	if after := r.written(); after != before {
		r.t.Errorf("%s %s was written again: %s, before %s", a.TransactionID, a.State, after, before)
	}
}

func (r *rowStory) apply(asked AskedSession, a GatewayAnswer) {
	err := r.db.write(r.t.Context(), func(tx *Tx) error {
		_, err := tx.applyAnswer(asked, a)
		return err
	})
	must(r.t, err)
}

// written counts what the order's owner and its buyer are told.
func (r *rowStory) written() string {
	return scalar[string](r.t, r.db, `
		SELECT (SELECT count(*) FROM order_history WHERE order_row = (SELECT row FROM orders WHERE id = ?1)) || ' lines of history, ' ||
		       (SELECT count(*) FROM events        WHERE order_row = (SELECT row FROM orders WHERE id = ?1)) || ' events'`, r.orderID)
}

func (r *rowStory) owner(act Transition) {
	n := Note{Code: NoteByCommand}
	if act == OwnerApproves {
		_, err := r.db.ApproveOrder(r.t.Context(), r.storeID, r.orderID, n)
		must(r.t, err)
		return
	}
	_, err := r.db.Transition(r.t.Context(), r.storeID, r.orderID, act, n)
	must(r.t, err)
}

func (r *rowStory) expire() {
	r.exec(r.t, "UPDATE orders SET expires_at = 0 WHERE id = ?", r.orderID)
	n := Note{Code: NoteNotPaidInTime}
	_, err := r.db.Transition(r.t.Context(), r.storeID, r.orderID, ClockExpires, n)
	must(r.t, err)
}

func (r *rowStory) show() string {
	d, err := r.db.OrderDetails(r.storeID, r.orderID)
	must(r.t, err)

	var sessions, alerts []string
	for _, s := range d.Sessions {
		sessions = append(sessions, string(s.State))
	}
	for _, a := range d.Alerts {
		alerts = append(alerts, storyAlert(a))
		if !slices.Contains(d.Order.Alerts, a.Code) {
			r.t.Errorf("the order does not show %s", a.Code)
		}
	}
	slices.Sort(alerts)
	return storyLine(d.Status, sessions, alerts)
}

// TestOversoldAlert tests what becomes of the alert about stock that is gone, and of the others beside it.
func TestOversoldAlert(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.exec(t, "UPDATE products SET price = ?", policyDue)
	expired := func() *rowStory {
		s.exec(t, "UPDATE products SET stock = 1 WHERE slug = 'kopi'")
		r := newRows(t, s)
		r.answer(1, GatewayAnswer{State: StateExpired})
		r.expire()
		s.exec(t, "UPDATE products SET stock = 0 WHERE slug = 'kopi'")
		return r
	}

	t.Run("an approval accepts what has arrived", func(t *testing.T) {
		r := expired()
		r.answer(1, gatewayPaid(999))
		r.owner(OwnerApproves)
		if got, want := r.show(), "paid paid oversold  0/0"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})

	t.Run("an order that is rejected needs no stock", func(t *testing.T) {
		r := expired()
		r.answer(1, gatewaySays(StateChallenged))
		if got, want := r.show(), "awaiting_verification active oversold  0/0"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		r.owner(OwnerRejects)
		if got, want := r.show(), "failed active"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
