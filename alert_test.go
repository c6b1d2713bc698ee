//go:build cgo

package main

import (
	"testing"
)

// raiseAlert raises an alert about an order.
func (s *testServer) raiseAlert(t *testing.T, orderID string, a Alert) {
	t.Helper()
	must(t, s.db.write(t.Context(), func(tx *Tx) error { return tx.raiseAlert(s.storeID, orderID, a) }))
}

// An order shows its open alerts, and no field of that name without one.
func TestOrderShowsItsAlerts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		steps  string
		want   string
	}{
		{"snap", "get settlement", "<nil>"},
		{"snap", "get settlement=172499", "[underpaid]"},
		{"snap", "get settlement=172501", "[overpaid]"},
		{"snap", "get settlement partial_refund=1000", "[partly_refunded]"},
		{"link", "get COMPLETED dispute/ACTION_REQUIRED=172500", "[disputed]"},
		{"link", "get COMPLETED refund=1000 dispute/ACTION_REQUIRED=171500", "[disputed partly_refunded]"},
	} {
		inPayLab(t, c.steps, func(t *testing.T, l *payLab) {
			order := l.newOrder(c.method)
			if c.method == "snap" {
				l.play(order, l.mid, "midtrans", c.steps)
			} else {
				l.play(order, l.xen, "xendit", c.steps)
			}
			r := l.do(t, "GET", "/v1/orders/"+order, nil).want(t, 200, "")
			l.want("alerts", r.at("order.alerts"), c.want)
		})
	}
}

// An alert that is raised or resolved has an event, which carries the order with the alerts that are then open.
func TestAlertsHaveEvents(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	order := s.create(t, "kopi", 1)
	alert := Alert{Code: AlertOverpaid, TransactionID: "tx-1", Amount: 500}

	for _, step := range []struct {
		name string
		do   func()
		want string // the alerts in the latest event, and how many events there are
	}{
		{"raised", func() { s.raiseAlert(t, order, alert) }, `["overpaid"] 2`},
		{"raised again", func() { s.raiseAlert(t, order, alert) }, `["overpaid"] 2`},
		{"with another amount", func() {
			alert.Amount = 700
			s.raiseAlert(t, order, alert)
		}, `["overpaid"] 3`},
		{"another one", func() { s.raiseAlert(t, order, Alert{Code: AlertOversold}) }, `["overpaid","oversold"] 4`},
		{"all resolved", func() {
			must(t, s.db.ResolveAlerts(t.Context(), s.storeID, order, Note{Code: NoteResolved}))
		}, `none 5`},
	} {
		step.do()
		got := scalar[string](t, s.db, `
			SELECT coalesce(body ->> '$.data.order.alerts', 'none') || ' ' || sequence
			FROM   events
			WHERE  order_row = (SELECT row FROM orders WHERE id = ?) AND event IN ('orderCreated', 'orderAlerted')
			ORDER BY sequence DESC LIMIT 1`, order)
		if got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	s.events(t, order)
}
