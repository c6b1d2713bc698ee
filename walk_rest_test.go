//go:build cgo

package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file lets a random walk come to rest and checks what has to be true of it then.

// rest ends all faults, lets the notifications arrive, the owner decide and the clock run, until the service has
// nothing to ask any more.
func (w *walk) rest() {
	w.t.Helper()
	for w.life.dead.Load() || w.life.left.Load() > 0 {
		w.life.left.Store(0)
		w.revive()
	}
	for p := range w.weather {
		w.weather[p] = &weather{}
	}
	for _, m := range w.merchants {
		for _, p := range []Provider{ProviderMidtrans, ProviderXendit} {
			w.storeKey(m, p, m.inUse[p])
		}
	}
	w.note(nil, "everything comes to rest")
	w.depth = 1 // Nothing happens during calls any more.

	w.pass(20 * time.Minute)
	w.checkPages()
	if w.t.Failed() {
		return
	}
	for _, o := range w.orders {
		if w.status(o) == AwaitingVerification && w.chance(90) {
			w.ownerDecides(o)
		}
	}
	for range 3 {
		w.pass(2 * 24 * time.Hour)
		w.checkPages()
		for _, o := range w.orders {
			if w.status(o) == AwaitingVerification {
				w.ownerDecides(o)
			}
		}
	}
	w.pass(21 * 24 * time.Hour)
	w.checkEverything()
}

func (w *walk) status(o *walkOrder) Status {
	w.t.Helper()
	return Status(w.rows("SELECT status FROM orders WHERE id = ?", o.id)[0])
}

// checkPages checks that no order that is over has a page that can be paid. A payment that only its own name is
// known by keeps its page open until a notification has named it.
func (w *walk) checkPages() {
	w.t.Helper()
	for _, o := range w.orders {
		status := w.status(o)
		if status == Pending || status == AwaitingVerification {
			continue
		}
		for _, page := range o.pages {
			last := page.lastPayment()
			unknown := last != nil && last.tx != nil && last.tx.kind != "" && last.known.IsZero()
			reversed := last != nil && !last.arrived.IsZero()
			if page.open() && !page.unseen && !unknown && !(reversed && status == Paid) {
				w.failf(o, "order %d is %s, and the page %s can be paid", o.number, status, page.name)
			}
		}
	}
}

func (w *walk) checkEverything() {
	w.t.Helper()
	for _, o := range w.orders {
		story := w.story(o)
		w.checkHistory(o, story)
		if o.provider == ProviderManual {
			if story.status == Paid && !o.transferred && !o.vouched {
				w.failf(o, "order %d is paid without a transfer", o.number)
			}
			continue
		}
		w.checkMoney(o, story)
		w.checkExpiry(o, story)
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
		if h.From == h.To {
			continue
		}
		s.history = append(s.history, h)
	}

	s.alerts, err = queryAll(w.db.reader, scanAlertStory, `
		SELECT code, transaction_id, amount, due, raised_at, resolved_at IS NULL, EXISTS (
		           SELECT 1 FROM order_history h
		           WHERE  h.order_id = a.order_id AND h.actor = 'owner' AND h.at = a.resolved_at)
		FROM   alerts a
		WHERE  order_id = ?
		ORDER BY id`, o.id)
	w.must(err)

	var open []AlertCode
	for _, a := range s.alerts {
		if a.open {
			open = append(open, a.Code)
		}
	}
	slices.Sort(open)
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
		if a.TransactionID == transaction && slices.Contains(codes, a.Code) && (a.open || a.byOwner) {
			return true
		}
	}
	return false
}

// checkMoney checks that all money is seen: one exact payment pays an order, and the owner is told of all others.
func (w *walk) checkMoney(o *walkOrder, s orderStory) {
	w.t.Helper()
	exact, unseen := 0, 0
	for _, p := range o.payments {
		n := p.now()
		if n.money() > 0 && n.amount == o.amount {
			exact++
		}
		if n.money() == 0 {
			for _, a := range s.alerts {
				if a.open && a.TransactionID == n.name {
					w.failf(o, "order %d: the alert %s is open, and the money of %s is gone", o.number, a.Code, n.name)
				}
			}
			continue
		}
		if s.alerted(n.name, AlertOverpaid, AlertUnderpaid) {
			continue
		}

		unseen++
		if n.amount != o.amount {
			w.failf(o, "order %d is %s: there is no alert about the amount %d of %s", o.number, s.status, n.amount, n.name)
		}
		if s.status == Paid && n.returned > 0 && !s.alerted(n.name, AlertPartlyRefunded, AlertDisputed) {
			w.failf(o, "order %d: there is no alert about the %d returned of %s", o.number, n.returned, n.name)
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
	if s.status == Pending || s.status == AwaitingVerification {
		w.failf(o, "order %d is still %s", o.number, s.status)
	}
}

// checkExpiry checks that no order expired that was paid before.
func (w *walk) checkExpiry(o *walkOrder, s orderStory) {
	w.t.Helper()
	for i, h := range s.history {
		next := i + 1
		if h.To != Expired || next == len(s.history) || s.history[next].To != Paid || s.history[next].Actor == ActorOwner {
			continue
		}
		for _, p := range o.payments {
			n := p.now()
			hidden := p.tx != nil && p.tx.kind != "" && (p.known.IsZero() || p.known.After(h.At.Time()))
			if n.money() > 0 && n.amount == o.amount && p.arrived.Before(h.At.Time()) && !hidden {
				w.failf(o, "order %d expired at %s, and %s was paid at %s", o.number, h.At, n.name, timeOf(p.arrived))
			}
		}
	}
}

// checkHistory checks that an order's states follow each other, and that there is one event for each.
func (w *walk) checkHistory(o *walkOrder, s orderStory) {
	w.t.Helper()
	var status Status
	events := []string{string(OrderCreated)}
	for i, h := range s.history {
		if i > 0 {
			events = append(events, string(eventOf[h.To]))
			if h.From != status || !allowed(h) {
				w.failf(o, "order %d went from %s to %s by %s, after %s", o.number, h.From, h.To, h.Actor, status)
			}
		}
		status = h.To
	}
	if status != s.status {
		w.failf(o, "order %d is %s, and its history ends with %s", o.number, s.status, status)
	}

	var told []string
	for i, event := range w.rows("SELECT event || ' ' || sequence FROM events WHERE order_id = ? ORDER BY sequence", o.id) {
		name, sequence, _ := strings.Cut(event, " ")
		if sequence != strconv.Itoa(i+1) {
			w.failf(o, "order %d: event %d is %s", o.number, i+1, event)
		}
		if name != string(OrderAlerted) {
			told = append(told, name)
		}
	}
	if !slices.Equal(told, events) {
		w.failf(o, "order %d: the events are %v, and the states want %v", o.number, told, events)
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

// checkRows checks that nothing is left to do, and what "check" checks.
func (w *walk) checkRows() {
	w.t.Helper()
	for what, query := range map[string]string{
		"leases":                  "SELECT count(*) FROM payment_sessions WHERE leased_until > 0",
		"sessions to ask about":   "SELECT count(*) FROM payment_sessions WHERE next_check_at IS NOT NULL",
		"open sessions":           "SELECT count(*) FROM payment_sessions WHERE status IN ('starting', 'active')",
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

// checkStock checks that nothing was sold that is not there, unless the owner was told.
func (w *walk) checkStock() {
	w.t.Helper()
	reserved := map[string]int64{}
	for _, o := range w.orders {
		text := w.rows("SELECT components FROM orders WHERE id = ?", o.id)[0]
		var components []component
		w.must(json.Unmarshal([]byte(text), &components))
		status := w.status(o)
		for _, c := range components {
			if c.Reserved {
				reserved[c.ProductID] += c.Quantity
			}
			if c.Reserved && (status == Failed || status == Expired) {
				w.failf(o, "order %d is %s and reserves stock", o.number, status)
			}
		}
	}

	for _, m := range w.merchants {
		for slug, initial := range map[string]int64{"kopi": 9, "teh": 3} {
			id := w.catalogs[m.storeID+slug]
			left := rupiahOf(w.rows("SELECT stock FROM products WHERE id = ?", id)[0])
			if left+reserved[id] != initial || left < 0 {
				w.failf(nil, "%s: %d are left and %d reserved, of %d", slug, left, reserved[id], initial)
			}
		}
	}
}
