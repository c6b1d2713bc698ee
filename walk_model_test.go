//go:build cgo

package main

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// This file is the world around the service in a random walk (walk_test.go): the gateways, which know who paid what,
// the network to them, the notifications on their way, and the crash of a server.

var gatewayProviders = []Provider{ProviderMidtrans, ProviderXendit}

// merchant is a store with its accounts at both gateways.
type merchant struct {
	storeID string
	apiKey  string
	mid     *oldMidtransDouble
	xen     *oldXenditDouble
	keys    map[string]bool   // the secret keys that the gateways take now
	inUse   map[Provider]int  // the number of each gateway's latest key
	wrong   map[Provider]bool // the service has a key that the gateway does not know
}

// secretKey is a gateway's key of a number. The number 0 is that of a wrong one.
func (m *merchant) secretKey(p Provider, number int) string {
	if p == ProviderXendit {
		return fmt.Sprintf("xnd_development_%s-%d", m.storeID[28:], number)
	}
	return fmt.Sprintf("SB-%s-%d", m.storeID[28:], number)
}

func (m *merchant) account(p Provider, key string) GatewayAccount {
	account := GatewayAccount{Provider: p, Mode: ModeSandbox, SecretKey: key}
	if p == ProviderXendit {
		account.CallbackToken = m.xen.token
	}
	return account
}

// walkOrder is an order as its buyer knows it.
type walkOrder struct {
	id          string
	merchant    *merchant
	number      int // in the walk, from 1
	provider    Provider
	amount      int64
	end         time.Time   // its expires_at
	pages       []*walkPage // that the buyer knows
	payments    []*walkPayment
	transferred bool // a manual order was paid
	vouched     bool // the owner has approved it, whatever the gateway says
}

// walkPage is a gateway's page that a buyer knows.
type walkPage struct {
	order  *walkOrder
	name   string              // the reference at Midtrans, the session at Xendit
	mid    *midtransPageDouble // nil at Xendit
	unseen bool                // nobody was shown it: the service does not know its name
}

// open reports whether the gateway lets somebody pay at the page.
func (p *walkPage) open() bool {
	if p.mid == nil {
		return p.order.merchant.xen.canBePaid(p.name)
	}
	d := p.order.merchant.mid
	return d.canBePaid(p.name) && d.pages[p.name] == p.mid
}

// walkPayment is a payment that a buyer began. The double knows its amount and its state.
type walkPayment struct {
	page      *walkPage
	tx        *midtransPayment // nil at Xendit
	arrived   time.Time        // when its money came; zero if it has not
	announced bool             // a notification that names it is not lost
	known     time.Time        // when one was delivered
	disputed  int64            // of its amount, at Xendit
	decided   bool             // the dispute is over
}

// paymentNow is what the gateway knows of a payment now.
type paymentNow struct {
	name     string // the gateway's
	state    string // the gateway's word for it
	amount   int64  // what the buyer paid, or is to pay
	returned int64  // what was refunded or charged back
	settled  bool   // the store has got the money, also if some of it was returned since
	waits    bool   // it has begun and may still bring money
}

// money is what the store has of the payment now.
func (n paymentNow) money() int64 {
	if !n.settled {
		return 0
	}
	return n.amount - n.returned
}

// now looks at the payment at its gateway.
func (p *walkPayment) now() (n paymentNow) {
	m := p.page.order.merchant
	if p.tx == nil {
		m.xen.mu.Lock()
		defer m.xen.mu.Unlock()
		return p.atXendit(m.xen)
	}
	m.mid.mu.Lock()
	defer m.mid.mu.Unlock()

	t := p.tx
	n.name = t.id
	n.state = t.status
	n.amount = rupiahOf(t.paid)
	n.returned = rupiahOf(t.refunded)
	challenged := t.is("capture") && t.fraud == "challenge"
	switch {
	case t.is("refund", "chargeback"):
		n.settled = true
		n.returned = n.amount
	case t.is("settlement", "capture", "partial_refund", "partial_chargeback"):
		n.settled = !challenged
	}
	n.waits = t.is("pending") || challenged
	return n
}

func (p *walkPayment) atXendit(d *oldXenditDouble) (n paymentNow) {
	s := d.sessions[p.page.name]
	n.name = fmt.Sprint(s["payment_id"])
	n.state = fmt.Sprint(s["status"])
	n.amount = rupiahOf(fmt.Sprint(s["amount"]))
	n.settled = true
	for _, refund := range d.refunds {
		if refund["payment_id"] == n.name {
			n.returned += rupiahOf(fmt.Sprint(refund["amount"]))
		}
	}
	for _, dispute := range d.disputes {
		if dispute["payment_id"] == n.name && dispute["status"] == "LOST" {
			n.returned += p.disputed
		}
	}
	return n
}

func rupiahOf(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// hidden reports whether the gateway tells of the payment only to those who know its name.
func (p *walkPayment) hidden() bool { return p.tx != nil && p.tx.kind != "" }

// letter is a gateway's notification on its way.
type letter struct {
	due      time.Time
	merchant *merchant
	provider Provider
	payment  *walkPayment // that it names, or nil
	header   http.Header
	body     string
}

// write puts a notification on its way. It may be lost, unless it must arrive, it may come twice, and it may come late.
func (w *walk) write(l letter, must bool) {
	copies := w.pick(1, 2, 1) // 0, 1 or 2
	if must {
		copies = max(1, copies)
	}

	for range copies {
		l.due = time.Now().Add(w.delay())
		w.mail = append(w.mail, l)
	}
	if l.payment != nil && copies > 0 {
		l.payment.announced = true
	}
}

// delay is how long a notification takes: mostly seconds, seldom days.
func (w *walk) delay() time.Duration {
	switch w.pick(12, 5, 2, 1) {
	case 0:
		return time.Duration(w.below(10)) * time.Second
	case 1:
		return time.Duration(w.below(30)) * time.Minute
	case 2:
		return time.Duration(w.below(12)) * time.Hour
	}
	return time.Duration(w.below(72)) * time.Hour
}

// tell writes Midtrans's notification about a transaction.
func (w *walk) tell(p *walkPayment, must bool) {
	d := p.page.order.merchant.mid
	d.mu.Lock()
	body := string(mustJSON(d.transaction(p.tx)))
	d.mu.Unlock()

	w.write(letter{
		merchant: p.page.order.merchant,
		provider: ProviderMidtrans,
		payment:  p,
		header:   http.Header{"Content-Type": {"application/json"}},
		body:     body,
	}, must || p.hidden() && !p.announced)
}

// tellXendit writes Xendit's notification about a session, a refund or a dispute.
func (w *walk) tellXendit(page *walkPage, state string, must bool) {
	header, body := page.order.merchant.xen.message(page.name, state)
	w.write(letter{
		merchant: page.order.merchant,
		provider: ProviderXendit,
		header:   header,
		body:     body,
	}, must)
}

// deliver delivers the notifications that are due. One that is not acknowledged is sent again.
func (w *walk) deliver() {
	w.mu.Lock()
	echoes := w.echoes
	w.echoes = nil
	w.mu.Unlock()
	for _, p := range echoes {
		w.tell(p, false)
	}

	waiting := w.mail
	w.mail = nil
	for _, l := range waiting {
		if l.due.After(time.Now()) {
			w.mail = append(w.mail, l)
			continue
		}
		if !w.acknowledged(l) {
			l.due = time.Now().Add(10 * time.Minute)
			w.mail = append(w.mail, l)
		}
	}
}

// acknowledged delivers one notification.
func (w *walk) acknowledged(l letter) bool {
	path := "/notifications/" + string(l.provider) + "/" + l.merchant.storeID
	answer, ok := w.send("POST", path, l.signed(), l.header)
	if !ok || answer.Code != http.StatusOK {
		return false
	}

	if l.payment != nil && l.payment.known.IsZero() {
		l.payment.known = time.Now()
	}
	return true
}

// signed is the letter's body. Midtrans signs with the key that is in use when the notification is sent.
func (l letter) signed() string {
	if l.provider != ProviderMidtrans {
		return l.body
	}

	var fields object
	err := json.Unmarshal([]byte(l.body), &fields)
	if err != nil {
		panic(err)
	}
	key := l.merchant.secretKey(ProviderMidtrans, l.merchant.inUse[ProviderMidtrans])
	text := fmt.Sprint(fields["order_id"], fields["status_code"], fields["gross_amount"], key)
	fields["signature_key"] = fmt.Sprintf("%x", sha512.Sum512([]byte(text)))
	return string(mustJSON(fields))
}

// walkLife is one server from its start to its crash. After the crash, whatever it was doing goes on, but nothing of it has
// an effect: its writes and its calls fail, and nobody hears its answers. So work in progress is cut off before or
// after any write and any call, which is all that a crash can show to others. What SQLite does in the middle of a
// commit is left to the tests that kill a process.
type walkLife struct {
	left atomic.Int64  // steps until the crash; 0: none is planned
	dead atomic.Bool   // it has crashed
	stop chan struct{} // closed after the crash
}

var errCrashed = errors.New("the server has crashed")

// step reports whether the server still lives after one more step.
func (l *walkLife) step() bool {
	if l.left.Load() > 0 && l.left.Add(-1) == 0 {
		l.dead.Store(true)
	}
	return !l.dead.Load()
}

// mortal is a database as one server sees it: its writes end with the server's walkLife.
func mortal(db *DB, l *walkLife) *DB {
	front := *db
	front.jobs = make(chan *job)
	front.closing = l.stop

	perform := func(j *job) {
		defer close(j.done)
		j.err = errCrashed
		if !l.step() {
			return
		}
		err := db.write(context.Background(), j.fn)
		if l.step() { // Otherwise the write is on disk, and its server never learns it.
			j.err = err
		}
	}
	go func() {
		for {
			select {
			case j := <-front.jobs:
				go perform(j)
			case <-l.stop:
				return
			}
		}
	}()
	return &front
}

// weather is how a gateway and the way to it are doing.
type weather struct {
	away  time.Time // it cannot be reached until then
	rough time.Time // calls fail now and then until then
}

// carry carries a server's call to its gateway. Something else may happen before the gateway acts, and before its
// answer arrives.
func (w *walk) carry(l *walkLife, r *http.Request) (*http.Response, error) {
	w.calls.Add(1)
	if !l.step() {
		return nil, errCrashed
	}
	provider := ProviderMidtrans
	if r.URL.Host == "api.xendit.co" {
		provider = ProviderXendit
	}

	fault := w.fault(provider)
	w.meanwhile()
	resp, err := fault.before(r)
	if resp != nil || err != nil {
		return resp, err
	}
	if l.dead.Load() {
		return nil, errCrashed
	}

	resp = w.atGateway(provider, r)
	w.meanwhile()
	if !l.step() {
		return nil, errCrashed
	}
	if fault == faultLoses {
		return nil, errRefusedConnection
	}
	if r.Context().Err() != nil { // The answer comes too late.
		return nil, r.Context().Err()
	}
	return resp, nil
}

type walkFault int

const (
	noFault walkFault = iota
	faultAway
	faultSlow
	faultHangs
	faultLoses // the gateway acts, and its answer is lost
	faultBusy
	faultBroken
	faultRefuses // wrongly, with 401
)

// fault draws what goes wrong with a call.
func (w *walk) fault(p Provider) walkFault {
	w.mu.Lock()
	weather := *w.weather[p]
	w.mu.Unlock()

	now := time.Now()
	if now.Before(weather.away) {
		return faultAway
	}
	if now.Before(weather.rough) && w.chance(50) {
		return 1 + walkFault(w.pick(1, 1, 1, 4, 1, 1, 1))
	}
	return noFault
}

// before is what happens instead of the gateway's answer, or before it.
func (f walkFault) before(r *http.Request) (*http.Response, error) {
	switch f {
	case faultAway:
		return nil, errRefusedConnection
	case faultSlow:
		return slow(3 * time.Second)(r)
	case faultHangs:
		return slow(time.Minute)(r)
	case faultBusy:
		return answering(429, `{}`)(r)
	case faultBroken:
		return answering(502, `<html>`)(r)
	case faultRefuses:
		const refusal = `{"status_code": "401", "error_messages": ["denied"], "error_code": "INVALID_API_KEY"}`
		return answering(401, refusal)(r)
	}
	return nil, nil
}

// atGateway lets the gateway of the account that is asked act.
func (w *walk) atGateway(provider Provider, r *http.Request) *http.Response {
	key, _, _ := r.BasicAuth()
	w.mu.Lock()
	m := w.keyOwners[key]
	taken := m.keys[key]
	w.mu.Unlock()

	var double http.Handler = m.mid
	doublesKey := m.mid.key
	if provider == ProviderXendit {
		double = m.xen
		doublesKey = m.xen.key
	}
	r = r.Clone(r.Context())
	if taken {
		r.SetBasicAuth(doublesKey, "")
	}

	resp := serveOnce(double, r).Result()
	if resp.StatusCode == http.StatusOK && r.Method == "POST" && provider == ProviderMidtrans {
		w.echo(m, r.URL.Path)
	}
	return resp
}

// echo writes the notification of what the service has done with a transaction.
func (w *walk) echo(m *merchant, path string) {
	parts := strings.Split(path, "/")
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, o := range w.orders {
		for _, p := range o.payments {
			name := parts[2]
			named := p.tx != nil && (p.tx.id == name || p.tx.orderID == name)
			if o.merchant != m || !named {
				continue
			}

			now := p.now()
			if p.arrived.IsZero() && now.settled {
				p.arrived = time.Now()
			}
			if !now.waits {
				w.echoes = append(w.echoes, p)
			}
		}
	}
}

// send sends a request to the service. It is not answered if the server crashes.
func (w *walk) send(method, path, body string, header http.Header) (*httptest.ResponseRecorder, bool) {
	l := w.walkLife
	r := httptest.NewRequest(method, "https://shop.test"+path, strings.NewReader(body))
	for name, values := range header {
		r.Header[name] = values
	}
	answer := serveOnce(w.handler, r)
	if l.dead.Load() {
		return nil, false
	}
	if answer.Code >= 500 {
		w.failf(nil, "%s %s is answered with %d %s", method, path, answer.Code, answer.Body)
	}
	return answer, true
}
