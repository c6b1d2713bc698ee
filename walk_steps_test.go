//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// This file is what buyers, gateways, owners and the weather do in the random walk.

// buyerPays pays at one of the pages that the buyer knows, if the gateway lets them.
func (w *walk) buyerPays(o *walkOrder) {
	if o.provider == ProviderManual {
		w.buyerTransfers(o)
		return
	}
	if w.chance(8) {
		w.findPages(o)
	}
	if len(o.pages) == 0 {
		return
	}

	page := one(w, o.pages)
	switch {
	case !page.open():
	case page.mid != nil:
		w.payAtMidtrans(page)
	default:
		w.payAtXendit(page)
	}
}

// findPages lets the buyer know all pages of the order. Some were shown to nobody: the gateway's answers that told of
// them were lost.
func (w *walk) findPages(o *walkOrder) {
	var found []*walkPage
	m := o.merchant
	m.mid.mu.Lock()
	for reference, p := range m.mid.pages {
		found = append(found, &walkPage{order: o, name: reference, mid: p, unseen: true})
	}
	m.mid.mu.Unlock()

	m.xen.mu.Lock()
	for id, session := range m.xen.sessions {
		reference := session["reference_id"].(string)
		if strings.HasPrefix(reference, o.id) {
			found = append(found, &walkPage{order: o, name: id, unseen: true})
		}
	}
	m.xen.mu.Unlock()

	slices.SortFunc(found, func(a, b *walkPage) int { return strings.Compare(a.name, b.name) })
	for _, page := range found {
		if page.mid == nil || strings.HasPrefix(page.name, o.id) {
			o.addPage(page)
		}
	}
}

// addPage adds a page to those that the buyer knows, once.
func (o *walkOrder) addPage(page *walkPage) {
	for _, p := range o.pages {
		if p.name == page.name && p.mid == page.mid {
			p.unseen = p.unseen && page.unseen
			return
		}
	}
	o.pages = append(o.pages, page)
}

// buyerTransfers pays a manual order, and says so, or does only one of the two.
func (w *walk) buyerTransfers(o *walkOrder) {
	if w.chance(70) {
		o.transferred = true
		w.note(o, "the buyer transfers the money")
	}
	if w.chance(70) {
		answer, ok := w.send("POST", "/pay/"+o.id+"/claim", "", http.Header{
			"Content-Type": {"application/x-www-form-urlencoded"},
		})
		w.note(o, "the buyer says that they have paid: answered %t", ok)
		if ok && answer.Code != http.StatusSeeOther {
			w.failf(o, "the buyer's claim is answered with %d %s", answer.Code, answer.Body)
		}
	}
}

// lastMinute lets a buyer pay about the order's end, while the gateway may be away and notifications are lost.
func (w *walk) lastMinute(o *walkOrder) {
	left := time.Until(o.end)
	if o.provider == ProviderManual || left < time.Minute || left > 30*time.Hour {
		return
	}
	w.pass(left - time.Duration(1+w.below(200))*time.Second)
	w.shopReads(o)
	if w.chance(50) {
		w.setWeather(o.provider, w.below(2), time.Duration(1+w.below(60))*time.Minute)
	}
	for range 1 + w.below(2) {
		w.buyerPays(o)
	}
	if w.chance(30) {
		w.gatewayActs(o)
	}
	w.pass(time.Duration(w.below(300)) * time.Second)
	w.buyerPays(o)
}

// buyerChoosesMethod lets the buyer pay by another method, which may have another amount, if the service allows it.
func (w *walk) buyerChoosesMethod(o *walkOrder) {
	code := one(w, walkMethods)
	answer, ok := w.send("POST", "/pay/"+o.id+"/method", "code="+code, http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"},
	})
	if ok && answer.Code != http.StatusSeeOther {
		w.failf(o, "the choice of a method is answered with %d %s", answer.Code, answer.Body)
	}

	_, now, err := w.db.OrderPage(o.id)
	w.must(err)
	o.provider, o.amount = now.PaymentProvider, now.Amount
	w.note(o, "the buyer chooses %s: the order has %s for %d", code, now.PaymentMethod, o.amount)
}

// sum is what a buyer pays of what is due: mostly all of it.
func (w *walk) sum(due int64) int64 {
	switch w.pick(16, 1, 1) {
	case 1:
		return due - 1 - int64(w.below(1000))
	case 2:
		return due + 1 + int64(w.below(1000))
	}
	return due
}

// midtransBeginnings are the states that a new payment may have at Midtrans.
var midtransBeginnings = strings.Fields(`
	settlement settlement settlement dana:settlement va:settlement
	pending pending dana:pending va:pending
	capture/accept capture/accept capture/challenge capture/challenge capture/challenge
	deny deny dana:deny`)

// payAtMidtrans begins a payment, or goes on with the one that has begun on the page.
func (w *walk) payAtMidtrans(page *walkPage) {
	o, d := page.order, page.order.merchant.mid
	last := page.lastPayment()
	if last != nil && last.now().waits {
		if last.now().state == "pending" {
			w.sayAtMidtrans(last, []string{"settlement", "deny"}[w.pick(4, 1)])
		}
		return
	}

	state := one(w, midtransBeginnings)
	amount := w.sum(o.amount)
	if amount != o.amount {
		state += fmt.Sprint("=", amount)
	}
	if !d.pay(page.name, state) {
		return
	}

	d.mu.Lock()
	p := &walkPayment{page: page, tx: page.mid.latest()}
	d.mu.Unlock()
	w.mu.Lock()
	o.payments = append(o.payments, p)
	w.mu.Unlock()
	w.note(o, "the buyer pays at %s: %s is %s", page.name, p.shortName(), state)
	w.changed(p)
}

// sayAtMidtrans changes a payment at Midtrans.
func (w *walk) sayAtMidtrans(p *walkPayment, state string) {
	d := p.page.order.merchant.mid
	d.mu.Lock()
	p.tx.say(state)
	d.mu.Unlock()
	w.note(p.page.order, "at the gateway: %s is %s", p.shortName(), state)
	w.changed(p)
}

// shortName is the name of a payment at Midtrans without that of its order.
func (p *walkPayment) shortName() string { return p.tx.id[len("tx-"+p.page.order.id):] }

// lastPayment is the payment that began last at a page, or nil.
func (page *walkPage) lastPayment() (last *walkPayment) {
	for _, p := range page.order.payments {
		if p.page.name == page.name && p.page.mid == page.mid {
			last = p
		}
	}
	return last
}

// changed notes that a payment at Midtrans has changed, and tells the service.
func (w *walk) changed(p *walkPayment) {
	w.mu.Lock()
	if p.now().settled && p.arrived.IsZero() {
		p.arrived = time.Now()
	}
	w.mu.Unlock()
	w.tell(p, false)
}

func (w *walk) payAtXendit(page *walkPage) {
	o := page.order
	state := "COMPLETED"
	amount := w.sum(o.amount)
	if amount != o.amount {
		state += fmt.Sprint("=", amount)
	}
	if !o.merchant.xen.pay(page.name, state) {
		return
	}

	w.mu.Lock()
	o.payments = append(o.payments, &walkPayment{page: page, arrived: time.Now()})
	w.mu.Unlock()
	w.note(o, "the buyer pays at %s: %s", page.name, state)
	w.tellXendit(page, "COMPLETED", page.unseen)
}

// gatewayActs does what happens at a gateway: by its clock and its fraud checks, in its dashboard, or at the buyer's
// bank.
func (w *walk) gatewayActs(o *walkOrder) {
	if len(o.payments) > 0 && w.chance(80) {
		p := one(w, o.payments)
		if p.tx != nil {
			w.changeAtMidtrans(p)
		} else {
			w.changeAtXendit(p)
		}
		return
	}
	if len(o.pages) > 0 {
		w.endAtXendit(one(w, o.pages))
	}
}

// endAtXendit ends a session that nobody has paid. Midtrans tells nobody when a page ends.
func (w *walk) endAtXendit(page *walkPage) {
	if page.mid != nil || page.lastPayment() != nil {
		return
	}

	state := "EXPIRED"
	if page.open() {
		if w.chance(60) {
			return
		}
		state = "CANCELED"
	}
	page.order.merchant.xen.say(page.name, state)
	w.note(page.order, "at the gateway: %s is %s", page.name, state)
	w.tellXendit(page, state, false)
}

func (w *walk) changeAtMidtrans(p *walkPayment) {
	n := p.now()
	state := ""
	switch {
	case n.state == "pending" && time.Now().Before(p.page.mid.ends):
		state = []string{"settlement", "deny", "cancel", "expire"}[w.pick(12, 2, 1, 1)]
	case n.state == "pending":
		state = "expire"
	case n.waits:
		state = []string{"capture/accept", "deny", "cancel"}[w.pick(3, 2, 1)]
	case n.money() > 0 && w.chance(30):
		state = w.takeBack(n)
	}
	if state != "" {
		w.sayAtMidtrans(p, state)
	}
}

// takeBack draws how money that has arrived leaves the store, in part or as a whole.
func (w *walk) takeBack(n paymentNow) string {
	part := n.returned + 1 + int64(w.below(int(n.money())))
	switch w.pick(3, 2, 2, 2, 1) {
	case 0:
		return fmt.Sprint("partial_refund=", part)
	case 1:
		return fmt.Sprint("refund=", n.amount)
	case 2:
		if n.returned == 0 {
			return "deny"
		}
	case 3:
		return "chargeback"
	case 4:
		return fmt.Sprint("partial_chargeback=", part)
	}
	return ""
}

// changeAtXendit goes on with the dispute about a payment, or begins one, or refunds some of the payment.
func (w *walk) changeAtXendit(p *walkPayment) {
	if p.disputed > 0 && !p.decided && w.chance(60) {
		status := []string{"UNDER_REVIEW", "WON", "LOST"}[w.below(3)]
		p.decided = status != "UNDER_REVIEW"
		w.sayAtXendit(p, fmt.Sprintf("dispute/%s=%d", status, p.disputed), false)
		return
	}

	n := p.now()
	free := n.money() // that nobody disputes
	if !p.decided {
		free -= p.disputed
	}
	if free <= 0 || w.chance(70) {
		return
	}
	amount := free
	if w.chance(60) {
		amount = 1 + int64(w.below(int(free)))
	}

	if p.disputed == 0 && w.chance(40) {
		p.disputed = amount
		w.sayAtXendit(p, fmt.Sprint("dispute/ACTION_REQUIRED=", amount), true) // Nothing else names it.
		return
	}
	w.refundAtXendit(p, n.name, amount)
}

// refundAtXendit refunds an amount. An account that cannot list its refunds depends on their notifications.
func (w *walk) refundAtXendit(p *walkPayment, name string, amount int64) {
	d := p.page.order.merchant.xen
	d.mu.Lock()
	again := d.refundOf(d.latest(p.page.name), fmt.Sprint(amount)) != nil
	d.mu.Unlock()
	if again || d.noLists && !w.knows(name) {
		return
	}
	w.sayAtXendit(p, fmt.Sprint("refund=", amount), d.noLists)
}

// sayAtXendit changes what Xendit says of a payment.
func (w *walk) sayAtXendit(p *walkPayment, state string, must bool) {
	p.page.order.merchant.xen.say(p.page.name, state)
	w.note(p.page.order, "at the gateway: %s has %s", p.page.name, state)
	w.tellXendit(p.page, state, must)
}

// knows reports whether the service has heard of a payment. By nothing else could it find the order that Xendit's
// notification of a refund is about.
func (w *walk) knows(transaction string) bool {
	w.t.Helper()
	return len(w.rows("SELECT 1 FROM payments WHERE transaction_id = ?", transaction)) > 0
}

// ownerActs lets the owner of a store decide something. They are honest: they seldom approve what has not been paid.
func (w *walk) ownerActs(o *walkOrder) {
	if w.chance(30) {
		w.act(o, "resolve")
		return
	}

	switch w.status(o) {
	case Pending:
		switch {
		case o.transferred && w.chance(30):
			w.act(o, OwnerApproves)
		case w.chance(15):
			w.act(o, OwnerCancels)
		case w.chance(2):
			w.act(o, OwnerApproves)
		}
	case AwaitingVerification:
		w.ownerDecides(o)
	case Paid:
		if w.chance(10) {
			w.act(o, OwnerRefunds)
		}
	case Failed, Expired:
		if w.chance(5) || o.transferred && w.chance(50) {
			w.act(o, OwnerApproves)
		}
	}
}

// ownerDecides decides about an order that awaits verification.
func (w *walk) ownerDecides(o *walkOrder) {
	approve := w.chance(60)
	if o.provider == ProviderManual {
		approve = o.transferred
	}
	if approve {
		w.act(o, OwnerApproves)
		return
	}
	w.act(o, OwnerRejects)
}

// act does what the owner does in the dashboard. The order may have changed before that. An owner who approves an
// order answers for it, unless its payment is held at the gateway.
func (w *walk) act(o *walkOrder, t Transition) {
	w.t.Helper()
	held := w.status(o) == AwaitingVerification
	for _, p := range o.payments {
		held = held && p.arrived.IsZero()
	}
	if t == OwnerApproves && (!held || o.provider == ProviderManual) {
		o.vouched = true
	}

	l := w.walkLife
	err := w.server.doOnOrder(w.t.Context(), o.merchant.storeID, o.id, t, "")
	if l.dead.Load() {
		w.note(o, "the owner's %s is not answered", t)
		return
	}
	w.note(o, "the owner's %s: %v", t, cmp.Or(err, errors.New("done")))
	if err != nil && err != errNotFound && !isRefusal(err, codeOrderState) {
		w.failf(o, "the owner's %s: %v", t, err)
	}
}

// ownerAsks presses "ask the gateway now".
func (w *walk) ownerAsks(o *walkOrder) {
	limited, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	_, err := w.server.payments.checkOrder(limited, o.id)
	w.note(o, "the owner asks the gateway: %v", err)
}

// ownerChangesKey replaces a gateway's key, stores a wrong one or corrects it, or revokes those that were replaced.
func (w *walk) ownerChangesKey(m *merchant) {
	p := one(w, gatewayProviders)
	switch w.below(3) {
	case 0:
		w.replaceKey(m, p)
	case 1:
		if m.wrong[p] {
			w.storeKey(m, p, m.inUse[p])
		} else {
			w.storeKey(m, p, 0)
		}
	case 2:
		w.mu.Lock()
		for number := range m.inUse[p] {
			delete(m.keys, m.secretKey(p, number))
		}
		w.mu.Unlock()
		w.note(nil, "the earlier keys of %s are revoked", p)
	}
}

// replaceKey makes a new key at a gateway, which takes the earlier ones too, and stores it.
func (w *walk) replaceKey(m *merchant, p Provider) {
	w.mu.Lock()
	m.inUse[p]++
	m.keys[m.secretKey(p, m.inUse[p])] = true
	w.mu.Unlock()
	w.storeKey(m, p, m.inUse[p])
}

// storeKey stores the key of a number. The owner tries again if the server crashes before it answers.
func (w *walk) storeKey(m *merchant, p Provider, number int) {
	w.t.Helper()
	m.wrong[p] = number == 0
	key := m.secretKey(p, number)
	w.mu.Lock()
	w.keyOwners[key] = m
	w.mu.Unlock()
	w.note(nil, "%.8s's key of %s is number %d", m.storeID[28:], p, number)
	for {
		l := w.walkLife
		err := w.server.db.SetGateway(w.t.Context(), m.storeID, m.account(p, key))
		if !l.dead.Load() {
			w.must(err)
			return
		}
		w.revive()
	}
}

// weatherChanges makes a gateway unreachable or unreliable for some time, or ends that.
func (w *walk) weatherChanges() {
	p := one(w, gatewayProviders)
	d := time.Duration(1+w.below(30)) * time.Minute
	if w.chance(10) {
		d *= 40
	}
	w.setWeather(p, w.below(4), d)
}

// setWeather makes a gateway unreachable (0), well (2) or unreliable.
func (w *walk) setWeather(p Provider, kind int, d time.Duration) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	weather, ok := w.weather[p]
	if !ok { // The sandbox has none.
		return
	}

	switch kind {
	case 0:
		weather.away = now.Add(d)
		w.note(nil, "%s is away for %v", p, d)
	case 2:
		weather.away, weather.rough = now, now
		w.note(nil, "%s is well", p)
	default:
		weather.rough = now.Add(d)
		w.note(nil, "%s is unreliable for %v", p, d)
	}
}
