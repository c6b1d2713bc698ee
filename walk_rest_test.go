//go:build cgo

package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file lets a random walk come to rest, and checks what has to be true of it then.

// rest ends all faults and lets the notifications arrive, the owner decide and the clock run, until the service has
// nothing to ask any more.
func (w *walk) rest() {
	w.t.Helper()
	w.walkLife.left.Store(0)
	w.revive()
	for p := range w.weather {
		w.weather[p] = &weather{}
	}
	for _, m := range w.merchants {
		for _, p := range gatewayProviders {
			w.storeKey(m, p, m.inUse[p])
		}
	}
	w.note(nil, "everything comes to rest")
	w.depth = 1 // Nothing happens during calls any more.

	w.pass(20 * time.Minute)
	w.checkPages()
	for range 4 {
		if w.t.Failed() {
			return // Its clock stands still.
		}
		w.decideAll()
		w.pass(2 * 24 * time.Hour)
		w.checkPages()
	}
	w.pass(21 * 24 * time.Hour)
	w.checkEverything()
}

// decideAll lets the owners decide about the orders that await verification, about most of them at once.
func (w *walk) decideAll() {
	w.t.Helper()
	for _, o := range w.orders {
		if w.status(o) == AwaitingVerification && w.chance(90) {
			w.ownerDecides(o)
		}
	}
}

func (w *walk) status(o *walkOrder) Status {
	w.t.Helper()
	return Status(w.rows("SELECT status FROM orders WHERE id = ?", o.id)[0])
}

// checkPages checks that no order that is over has a page that can be paid.
func (w *walk) checkPages() {
	w.t.Helper()
	for _, o := range w.orders {
		status := w.status(o)
		if status == Pending || status == AwaitingVerification {
			continue
		}

		for _, page := range o.pages {
			if page.open() && !page.unseen && !page.mayStayOpen(status) {
				w.failf(o, "order %d is %s, and the page %s can be paid", o.number, status, page.name)
			}
		}
	}
}

// mayStayOpen reports whether the service cannot know, or not yet, that a page has to be closed or how.
func (page *walkPage) mayStayOpen(status Status) bool {
	last := page.lastPayment()
	if last == nil {
		return false
	}

	unknown := last.hidden() && last.known.IsZero()
	reversed := !last.arrived.IsZero() && status == Paid
	return unknown || reversed
}

func (w *walk) checkEverything() {
	w.t.Helper()
	for _, o := range w.orders {
		s := w.story(o)
		w.checkHistory(o, s)
		w.checkEvents(o, s)
		if s.status == Pending || s.status == AwaitingVerification {
			w.failf(o, "order %d is still %s", o.number, s.status)
		}
		w.checkMoney(o, s)
		w.checkExpiry(o, s)
	}
	w.checkPages()
	w.checkRows()
	w.checkStock()
}

// orderStory is what the service has written down about an order.
type orderStory struct {
	status  Status
	history []HistoryEntry // without notes
	alerts  []alertStory
}

type alertStory struct {
	Alert
	open    bool
	byOwner bool // resolved in the moment of an act of the owner
}

func (w *walk) story(o *walkOrder) (s orderStory) {
	w.t.Helper()
	d, err := w.db.OrderDetails(o.merchant.storeID, o.id)
	w.must(err)
	s.status = d.Status
	for _, h := range d.History {
		if h.Note.Code == NoteUnconfirmed {
			w.failf(o, "order %d: a true notification is not confirmed: %+v", o.number, h.Note)
		}
		if h.From != h.To {
			s.history = append(s.history, h)
		}
	}

	s.alerts, err = queryAll(w.db.reader, scanAlertStory, `
		SELECT code, transaction_id, amount, due, raised_at, resolved_at IS NULL, EXISTS (
		           SELECT 1 FROM order_history h
		           WHERE  h.order_row = a.order_row AND h.actor = 'owner' AND h.at = a.resolved_at)
		FROM   alerts a
		WHERE  order_row = (SELECT row FROM orders WHERE id = ?)
		ORDER BY code, transaction_id`, o.id)
	w.must(err)

	var open []AlertCode
	for _, a := range s.alerts {
		if a.open {
			open = append(open, a.Code)
		}
	}
	if !slices.Equal(slices.Compact(open), d.Order.Alerts) {
		w.failf(o, "order %d shows the alerts %v, and %v are open", o.number, d.Order.Alerts, open)
	}
	return s
}

func scanAlertStory(r row) (a alertStory, err error) {
	err = r.Scan(&a.Code, &a.TransactionID, &a.Amount, &a.Due, &a.RaisedAt, &a.open, &a.byOwner)
	return a, err
}

// alerted reports whether an alert with one of the codes waits for the owner, or was resolved by them.
func (s orderStory) alerted(transaction string, codes ...AlertCode) bool {
	for _, a := range s.alerts {
		told := a.open || a.byOwner
		if told && a.TransactionID == transaction && slices.Contains(codes, a.Code) {
			return true
		}
	}
	return false
}

// checkMoney checks that all money is seen. One payment of the exact amount pays an order. The owner is told of every
// other payment.
func (w *walk) checkMoney(o *walkOrder, s orderStory) {
	w.t.Helper()
	exact, unseen := 0, 0
	for _, p := range o.payments {
		n := p.now()
		if n.money() == 0 {
			w.checkNoAlert(o, s, n)
			continue
		}

		if n.amount == o.amount {
			exact++
		}
		if !s.alerted(n.name, AlertOverpaid, AlertUnderpaid) {
			unseen++
			w.checkPayer(o, s, n)
		}
	}

	most := 0
	if s.status == Paid || s.status == Refunded {
		most = 1
	}
	if unseen > most {
		w.failf(o, "order %d is %s: %d payments without an alert", o.number, s.status, unseen)
	}
	if s.status == Paid && exact == 0 && !o.vouched {
		w.failf(o, "order %d is paid without money", o.number)
	}
}

// checkNoAlert checks that the alerts about a payment are resolved when its money is gone.
func (w *walk) checkNoAlert(o *walkOrder, s orderStory, n paymentNow) {
	w.t.Helper()
	for _, a := range s.alerts {
		if a.open && a.TransactionID == n.name {
			w.failf(o, "order %d has an open alert %s, and the money of %s is gone", o.number, a.Code, n.name)
		}
	}
}

// checkPayer checks a payment that raised no alert when it came, so it pays the order.
func (w *walk) checkPayer(o *walkOrder, s orderStory, n paymentNow) {
	w.t.Helper()
	if n.amount != o.amount {
		w.failf(o, "order %d is %s without an alert about the amount %d of %s",
			o.number, s.status, n.amount, n.name)
	}
	told := s.alerted(n.name, AlertPartlyRefunded, AlertDisputed)
	if s.status == Paid && n.returned > 0 && !told {
		w.failf(o, "order %d has no alert about the %d returned of %s", o.number, n.returned, n.name)
	}
}

// checkExpiry checks that no order expired that had been paid before.
func (w *walk) checkExpiry(o *walkOrder, s orderStory) {
	w.t.Helper()
	for i, h := range s.history[1:] {
		expired := s.history[i]
		if expired.To != Expired || h.To != Paid || h.Actor != ActorGateway {
			continue
		}

		at := expired.At.Time()
		for _, p := range o.payments {
			unknown := p.page.unseen || p.hidden() && (p.known.IsZero() || p.known.After(at))
			n := p.now()
			pays := n.money() > 0 && n.amount == o.amount
			if pays && p.arrived.Before(at) && !unknown {
				w.failf(o, "order %d expired at %s, and %s was paid before that", o.number, expired.At, n.name)
			}
		}
	}
}

// checkHistory checks that an order's states follow each other by the state machine.
func (w *walk) checkHistory(o *walkOrder, s orderStory) {
	w.t.Helper()
	var before Status
	for i, h := range s.history {
		if h.From != before || i > 0 && !allowed(h) {
			w.failf(o, "order %d went from %s to %s by %s", o.number, h.From, h.To, h.Actor)
		}
		before = h.To
	}
	if before != s.status {
		w.failf(o, "order %d is %s, and its history ends with %s", o.number, s.status, before)
	}
}

// allowed reports whether the state machine has a transition.
func allowed(h HistoryEntry) bool {
	for _, t := range transitions {
		if slices.Contains(t.from, h.From) && t.to == h.To && t.actor == h.Actor {
			return true
		}
	}
	return false
}

// checkEvents checks that there is one event for each state, and that the events have no gaps.
func (w *walk) checkEvents(o *walkOrder, s orderStory) {
	w.t.Helper()
	want := []string{string(OrderCreated)}
	for _, h := range s.history[1:] {
		want = append(want, string(eventOf[h.To]))
	}

	var told []string
	events := w.rows("SELECT sequence || ' ' || event FROM events WHERE order_row = (SELECT row FROM orders WHERE id = ?) ORDER BY sequence", o.id)
	for i, event := range events {
		sequence, name, _ := strings.Cut(event, " ")
		if sequence != strconv.Itoa(i+1) {
			w.failf(o, "order %d: after %d events comes %s", o.number, i, event)
		}
		if name != string(OrderAlerted) {
			told = append(told, name)
		}
	}
	if !slices.Equal(told, want) {
		w.failf(o, "order %d: the events are %v, and the states want %v", o.number, told, want)
	}
}

// checkRows checks that nothing is left to do, the daily totals, and what the command "check" checks.
func (w *walk) checkRows() {
	w.t.Helper()
	wantOrdersAgree(w.t, w.db)
	for what, query := range map[string]string{
		"leases":                  "SELECT count(*) FROM payment_sessions WHERE leased_until > 0",
		"sessions to ask about":   "SELECT count(*) FROM payment_sessions WHERE next_check_at IS NOT NULL",
		"sessions that are live":  "SELECT count(*) FROM payment_sessions WHERE status IN ('starting', 'active')",
		"undecided notifications": "SELECT count(*) FROM notifications WHERE decided_at IS NULL",
		"orders not counted": `
			SELECT (SELECT count(*) FROM orders) - (SELECT sum(orders) FROM daily_totals)`,
		"revenue not counted": `
			SELECT (SELECT coalesce(sum(json ->> 'amount'), 0) FROM orders WHERE status = 'paid') -
			       (SELECT sum(revenue) FROM daily_totals)`,
	} {
		count, err := queryOne(w.db.reader, scanValue[int], query)
		w.must(err)
		if count != 0 {
			w.failf(nil, "%s: %d", what, count)
		}
	}

	found, err := inspectAll(w.db.path)
	w.must(err)
	if len(found.Faults) > 0 {
		w.failf(nil, "check: %v", found.Faults)
	}
}

// checkStock checks that the stock that is left and the reserved stock make up what there was at first, and that the
// owner was told of what was sold without stock.
func (w *walk) checkStock() {
	w.t.Helper()
	reserved := map[string]int64{}
	for _, o := range w.orders {
		var components []component
		text := w.rows("SELECT components FROM orders WHERE id = ?", o.id)[0]
		w.must(json.Unmarshal([]byte(text), &components))
		if len(components) == 0 {
			var stored Order
			text := w.rows("SELECT json FROM orders WHERE id = ?", o.id)[0]
			w.must(json.Unmarshal([]byte(text), &stored))
			components = productsIn(stored.Items)
		}
		status := w.status(o)

		for _, c := range components {
			if c.Reserved {
				reserved[c.ProductID] += c.Quantity
			}
			if c.Reserved && (status == Failed || status == Expired) {
				w.failf(o, "order %d is %s and reserves stock", o.number, status)
			}
			limited := c.ProductID != w.catalogs[o.merchant.storeID+"cangkir"]
			if limited && !c.Reserved && status == Paid && !w.story(o).alerted("", AlertOversold) {
				w.failf(o, "order %d is paid without stock, and there is no alert", o.number)
			}
		}
	}

	for _, m := range w.merchants {
		for slug, initial := range walkStock {
			id := w.catalogs[m.storeID+slug]
			left := rupiahOf(w.rows("SELECT stock FROM products WHERE id = ?", id)[0])
			if left+reserved[id] != initial {
				w.failf(nil, "%s: %d left and %d reserved, of %d", slug, left, reserved[id], initial)
			}
		}
	}
}
