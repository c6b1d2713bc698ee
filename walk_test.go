//go:build cgo

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A random walk lets everything happen to a service that can happen to it: buyers pay twice, too little or too late,
// notifications are lost, gateways are away, owners decide, and the server crashes in the middle of anything. Then
// all of it comes to rest, and what walk_rest_test.go checks has to be true.
//
// A walk that fails prints its seed and what happened to the order. It is walked again by its seed (every third seed
// runs the service's loops now and then, and may take another way each time):
//
//	go test -run 'TestWalk$' -walk.seed 17
//
// A longer run takes one seed after the other. It is faster with TMPDIR in memory:
//
//	go test -run 'TestWalk$' -walk 10m -timeout 0
var (
	walkFor    = flag.Duration("walk", 0, "how long TestWalk tries one seed after the other")
	walkSeed   = flag.Uint64("walk.seed", 0, "the only seed, or with -walk the first one, of TestWalk")
	walkOrders = flag.Int("walk.orders", 25, "with -walk or -walk.seed, the orders of each seed")
)

// walk is a service, its buyers, owners and gateways, and what has happened to them.
type walk struct {
	t        *testing.T
	path     string // of the database
	looping  bool   // now and then the service's loops run, and others act meanwhile
	depth    int    // of the calls to gateways during which something else happens
	server   *server
	db       *DB // as the walk reads it, at any time
	walkLife *walkLife
	handler  http.Handler
	mail     []letter
	trail    []trailEntry
	told     map[*walkOrder]bool // orders whose trail was printed
	catalogs map[string]string   // ids, by store and slug
	crashes  int
	calls    atomic.Int64
	begun    time.Time
	swept    time.Time  // when orders were last expired
	latest   *walkOrder // what the latest step was about

	mu        sync.Mutex // guards what servers reach from several goroutines
	rng       *rand.Rand
	stretch   bool // the loops run now
	merchants []*merchant
	keyOwners map[string]*merchant // by the secret keys that were ever stored
	orders    []*walkOrder
	weather   map[Provider]*weather
	echoes    []*walkPayment // whose change by the service is not notified yet
}

// trailEntry is something that happened, to an order or to all.
type trailEntry struct {
	at    time.Time
	order *walkOrder
	text  string
}

func (w *walk) note(o *walkOrder, format string, args ...any) {
	text := strings.Repeat("  ", w.depth) + fmt.Sprintf(format, args...)
	w.trail = append(w.trail, trailEntry{time.Now(), o, text})
}

// failf fails the walk, with everything that happened to the order since it was created.
func (w *walk) failf(o *walkOrder, format string, args ...any) {
	w.t.Helper()
	w.t.Errorf(format, args...)
	if o == nil || w.told[o] {
		return
	}

	w.told[o] = true
	var story strings.Builder
	begun := false
	for _, e := range w.trail {
		begun = begun || e.order == o
		setUp := e.at.Equal(w.begun)
		if e.order == o || e.order == nil && (begun || setUp) {
			fmt.Fprintf(&story, "\n  %s %s", e.at.Format("02 15:04:05.000"), e.text)
		}
	}
	w.t.Logf("what happened to order %d:%s", o.number, &story)
}

func (w *walk) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// below draws a number from 0 to n-1.
func (w *walk) below(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

func (w *walk) chance(percent int) bool { return w.below(100) < percent }

// pick draws the index of one of the weights.
func (w *walk) pick(weights ...int) int {
	sum := 0
	for _, weight := range weights {
		sum += weight
	}

	n := w.below(sum)
	for i, weight := range weights {
		n -= weight
		if n < 0 {
			return i
		}
	}
	return 0
}

func one[T any](w *walk, list []T) T { return list[w.below(len(list))] }

// walkStock is the limited stock of walkCatalog.
var walkStock = map[string]int64{"kopi": 9, "teh": 3}

const walkCatalog = `{
	"products": [
		{"slug": "kopi", "title": "Kopi Gayo", "price": 85000, "stock": 9},
		{"slug": "teh", "title": "Teh Melati", "price": 50000, "stock": 3},
		{"slug": "cangkir", "title": "Cangkir", "price": 20000}
	],
	"bundles": [
		{
			"slug": "duo",
			"title": "Duo",
			"price": 200000,
			"items": [{"slug": "kopi", "quantity": 2}, {"slug": "teh", "quantity": 1}]
		}
	],
	"payment_methods": [
		{"code": "snap", "name": "Midtrans", "provider": "midtrans", "fee": 2500},
		{"code": "qris", "name": "QRIS", "provider": "midtrans"},
		{"code": "link", "name": "Xendit", "provider": "xendit", "fee": 2500},
		{"code": "bank", "name": "Transfer", "provider": "manual", "instructions": "BCA 123"}
	]
}`

// newWalk opens two stores, whose orders wait for different times.
func newWalk(t *testing.T, seed uint64) *walk {
	t.Helper()
	w := &walk{
		t:         t,
		path:      filepath.Join(t.TempDir(), "walk.db"),
		looping:   seed%3 == 0,
		rng:       rand.New(rand.NewPCG(seed, 0)),
		begun:     time.Now(),
		told:      map[*walkOrder]bool{},
		catalogs:  map[string]string{},
		keyOwners: map[string]*merchant{},
		weather:   map[Provider]*weather{ProviderMidtrans: {}, ProviderXendit: {}},
	}
	w.start(true)

	expiries := []time.Duration{10, 40, 3 * 60, 24 * 60, 72 * 60}
	for _, slug := range []string{"kopi-kita", "teh-kita"} {
		w.openShop(slug, one(w, expiries)*time.Minute)
	}
	return w
}

func (w *walk) openShop(slug string, expiry time.Duration) {
	w.t.Helper()
	s := &testServer{server: w.server}
	m := &merchant{
		mid:   newMidtransDouble(),
		xen:   newXenditDouble(),
		keys:  map[string]bool{},
		inUse: map[Provider]int{},
		wrong: map[Provider]bool{},
	}
	m.xen.older = w.chance(50)
	m.xen.nested = w.chance(50)
	m.xen.noLists = w.chance(20)
	m.storeID, m.apiKey = s.addStore(w.t, slug, "growth")
	s.importCatalog(w.t, m.storeID, walkCatalog)
	_, err := w.db.SetStore(w.t.Context(), m.storeID, func(st *StoreProfile) error {
		st.Expiry = expiry
		return nil
	})
	w.must(err)

	w.merchants = append(w.merchants, m)
	w.note(nil, "store %s: expiry %v, older %t, lists %t", slug, expiry, m.xen.older, !m.xen.noLists)
	for _, p := range gatewayProviders {
		w.replaceKey(m, p)
	}

	const slugs = `
		SELECT slug || ' ' || id FROM products WHERE store_id = ?1
		UNION ALL
		SELECT slug || ' ' || id FROM bundles WHERE store_id = ?1`
	for _, line := range w.rows(slugs, m.storeID) {
		name, id, _ := strings.Cut(line, " ")
		w.catalogs[m.storeID+name] = id
	}
}

// rows returns the rows of a query with one column.
func (w *walk) rows(query string, args ...any) []string {
	w.t.Helper()
	rows, err := queryAll(w.db.reader, scanText, query, args...)
	w.must(err)
	return rows
}

// start opens the database, after a crash if there was a server before, and serves.
func (w *walk) start(create bool) {
	w.t.Helper()
	db, err := openDB(w.path, create)
	w.must(err)
	if create {
		w.must(db.setAddresses(testSettings.publicURL, false, nil))
	}

	l := &walkLife{stop: make(chan struct{})}
	front := mortal(db, l)
	w.server = newServer(front, testSettings, newServiceLog(io.Discard, false, slog.LevelError))
	w.server.payments.client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		return w.carry(l, r)
	})
	w.db = db
	w.walkLife = l
	w.handler = w.server.routes()
	w.must(db.ReleasePaymentSessions(w.t.Context()))
}

// close ends the server that has crashed, or the last one.
func (w *walk) close() {
	close(w.walkLife.stop)
	w.must(w.db.Close())
}

// revive starts the service again if it has crashed.
func (w *walk) revive() {
	w.t.Helper()
	if !w.walkLife.dead.Load() {
		return
	}
	w.note(nil, "the server has crashed and starts again")
	w.crashes++
	w.close()
	w.start(false)
}

// work does what is due, as pollGateways and sweep do.
func (w *walk) work() {
	w.t.Helper()
	due, err := w.db.PaymentSessionsDue()
	w.must(err)
	for _, d := range due {
		w.revive()
		w.server.payments.check(w.t.Context(), d.id, true) // After an error it is due again.
	}
	w.revive()

	if time.Since(w.swept) >= 30*time.Second {
		w.swept = time.Now()
		w.server.payments.expireOrders(w.t.Context())
		w.revive()
	}
}

// pass lets time pass, while the service works.
func (w *walk) pass(d time.Duration) {
	w.t.Helper()
	end := time.Now().Add(d)
	for {
		w.deliver()
		w.work()
		if !time.Now().Before(end) || w.t.Failed() {
			return
		}
		time.Sleep(time.Until(w.nextDue(end)))
	}
}

// nextDue is when the service has something to do, at least two seconds and at most until the end from now.
func (w *walk) nextDue(end time.Time) time.Time {
	w.t.Helper()
	next, err := queryOne(w.db.reader, scanValue[Time], `
		SELECT min(
			coalesce((SELECT min(max(next_check_at, tried_at + 3000, leased_until))
			          FROM   payment_sessions
			          WHERE  next_check_at IS NOT NULL), ?1),
			coalesce((SELECT min(expires_at)
			          FROM   orders
			          WHERE  status = 'pending' AND expires_at > ?2), ?1))`, timeOf(end), timeOf(w.swept))
	w.must(err)

	at := next.Time()
	for _, l := range w.mail {
		if l.due.Before(at) {
			at = l.due
		}
	}
	soonest := time.Now().Add(2 * time.Second)
	if at.Before(soonest) {
		at = soonest
	}
	if at.After(end) {
		at = end
	}
	return at
}

// meanwhile lets something else happen during a call to a gateway, now and then.
func (w *walk) meanwhile() {
	if w.inStretch() {
		time.Sleep(time.Duration(w.below(1500)) * time.Millisecond)
		return
	}
	if w.depth > 0 || len(w.orders) == 0 || !w.chance(12) {
		return
	}

	w.depth++
	w.note(nil, "during a call:")
	w.step()
	w.revive()
	w.depth--
}

// run walks until all orders were created and have gone some way, or until five days are over.
func (w *walk) run(orders int) {
	for range orders * 24 {
		if len(w.orders) < orders && w.chance(8) {
			w.create()
		}
		if time.Since(w.begun) > 5*24*time.Hour || w.t.Failed() {
			break
		}
		if w.looping && w.chance(4) {
			w.runLoops()
		}
		w.step()
		w.revive()
		w.timePasses()
	}
}

// timePasses lets nothing, seconds, minutes or hours pass, or the time until about the end of an order.
func (w *walk) timePasses() {
	switch w.pick(130, 40, 20, 3, 1, 6) {
	case 1:
		w.pass(time.Duration(w.below(60)) * time.Second)
	case 2:
		w.pass(time.Duration(w.below(20)) * time.Minute)
	case 3:
		w.pass(time.Duration(w.below(4*60)) * time.Minute)
	case 4:
		w.pass(time.Duration(w.below(24)) * time.Hour)
	case 5:
		if len(w.orders) == 0 {
			return
		}
		around := time.Duration(w.below(120)-90) * time.Second
		left := time.Until(w.focus().end) + around
		if left > 0 && left < 30*time.Hour {
			w.pass(left)
		}
	}
}

// focus draws an order: mostly the one of the step before, or one of the latest.
func (w *walk) focus() *walkOrder {
	switch w.pick(60, 30, 10) {
	case 0:
		if w.latest != nil {
			return w.latest
		}
	case 2:
		return one(w, w.orders)
	}
	return one(w, w.orders[max(0, len(w.orders)-8):])
}

// runLoops runs the service's own loops while some steps happen.
func (w *walk) runLoops() {
	w.note(nil, "the loops run")
	ctx, stop := context.WithCancel(context.Background())
	server := w.server
	var loops sync.WaitGroup
	loops.Go(func() { server.payments.pollGateways(ctx) })
	loops.Go(func() { server.sweep(ctx) })
	w.setStretch(true)

	for range 6 {
		w.step()
		if w.walkLife.dead.Load() {
			break
		}
		time.Sleep(time.Duration(w.below(20_000)) * time.Millisecond)
		w.deliver()
	}

	stop()
	loops.Wait()
	server.payments.finish()
	w.setStretch(false)
	w.note(nil, "the loops rest")
	w.revive()
}

func (w *walk) inStretch() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stretch
}

func (w *walk) setStretch(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stretch = on
}

// step lets one thing happen.
func (w *walk) step() {
	if len(w.orders) == 0 {
		return
	}
	o := w.focus()
	w.latest = o

	switch w.pick(16, 8, 26, 18, 16, 4, 3, 6, 4, 3, 4) {
	case 0:
		w.shopReads(o)
	case 1:
		w.buyerLooks(o)
	case 2:
		w.buyerPays(o)
	case 3:
		w.gatewayActs(o)
	case 4:
		w.ownerActs(o)
	case 5:
		w.ownerAsks(o)
	case 6:
		w.ownerChangesKey(o.merchant)
	case 7:
		w.weatherChanges()
	case 8:
		if w.walkLife.left.Load() <= 0 {
			w.walkLife.left.Store(int64(1 + w.below(30)))
			w.note(nil, "a crash comes in %d steps", w.walkLife.left.Load())
		}
	case 9:
		if w.depth == 0 && !w.inStretch() {
			w.lastMinute(o)
		}
	case 10:
		w.buyerChoosesMethod(o)
	}
}

// walkMethods are the ways to pay.
var walkMethods = []string{"snap", "qris", "link", "bank"}

// walkItems are what is ordered.
var walkItems = []struct {
	kind, slug string
	quantity   int
}{
	{"product", "kopi", 1},
	{"product", "kopi", 3},
	{"product", "teh", 1},
	{"product", "cangkir", 2},
	{"bundle", "duo", 1},
}

// create orders something. Mostly, the buyer is sent to pay it at once.
func (w *walk) create() {
	m := one(w, w.merchants)
	item := one(w, walkItems)
	method := walkMethods[w.pick(5, 2, 4, 1)]
	created, ok := w.orderFrom(m, object{
		"items": []object{{
			"type":            item.kind,
			item.kind + "_id": w.catalogs[m.storeID+item.slug],
			"quantity":        item.quantity,
		}},
		"buyer":          object{"name": "Siti Aminah", "email": "siti@example.id"},
		"payment_method": method,
	})
	if !ok {
		return
	}

	o := &walkOrder{
		id:       created.ID,
		merchant: m,
		number:   len(w.orders) + 1,
		provider: created.PaymentProvider,
		amount:   created.Amount,
		end:      created.ExpiresAt.Time(),
	}
	w.mu.Lock()
	w.orders = append(w.orders, o)
	w.mu.Unlock()
	w.latest = o
	w.note(o, "order %d %s is created: %d %s by %s for %d, until %s",
		o.number, o.id, item.quantity, item.slug, method, o.amount, created.ExpiresAt)

	if w.chance(10) {
		w.setWeather(ProviderMidtrans, 1, time.Minute)
		w.setWeather(ProviderXendit, 1, time.Minute)
	}
	if w.chance(75) {
		w.shopReads(o)
	}
}

// orderFrom sends an order until it is answered. It may be out of stock.
func (w *walk) orderFrom(m *merchant, body object) (o Order, ok bool) {
	w.t.Helper()
	header := w.apiHeader(m)
	header.Set("Idempotency-Key", fmt.Sprint(len(w.trail), w.below(1e9)))
	answer, answered := w.send("POST", "/v1/orders", string(mustJSON(body)), header)
	for !answered {
		w.revive()
		answer, answered = w.send("POST", "/v1/orders", string(mustJSON(body)), header)
	}
	if answer.Code != http.StatusCreated {
		w.note(nil, "an order is refused: %.100s", answer.Body)
		return o, false
	}

	var created struct{ Data struct{ Order Order } }
	w.must(json.Unmarshal(answer.Body.Bytes(), &created))
	return created.Data.Order, true
}

func (w *walk) apiHeader(m *merchant) http.Header {
	return http.Header{
		"Authorization": {"Bearer " + m.apiKey},
		"Content-Type":  {"application/json"},
	}
}

// shopReads reads the order by the API, now and then twice at once, and sends the buyer where it says.
func (w *walk) shopReads(o *walkOrder) {
	readers := 1
	if w.depth == 0 && w.looping && w.chance(20) {
		readers = 2
	}

	answers := make([]string, readers)
	parallel(readers, func(i int) {
		answer, ok := w.send("GET", "/v1/orders/"+o.id, "", w.apiHeader(o.merchant))
		if ok {
			answers[i] = answer.Body.String()
		}
	})
	for _, text := range answers {
		if text == "" {
			w.note(o, "the shop reads the order, and gets no answer")
			continue
		}

		var read struct{ Data orderAnswer }
		w.must(json.Unmarshal([]byte(text), &read))
		session := read.Data.Session
		w.note(o, "the shop reads the order: %s, %s %s",
			read.Data.Order.Status, session.Status, session.PaymentURL)
		w.show(o, session.PaymentURL)
	}
}

// show shows a buyer the page at an address, if it is a gateway's.
func (w *walk) show(o *walkOrder, address string) {
	name := address[strings.LastIndex(address, "/")+1:]
	if strings.HasPrefix(address, "https://xen.to/") {
		o.addPage(&walkPage{order: o, name: name})
		return
	}

	d := o.merchant.mid
	d.mu.Lock()
	defer d.mu.Unlock()
	for reference, p := range d.pages {
		if strings.Contains(address, ".midtrans.com/") && p.token == name {
			o.addPage(&walkPage{order: o, name: reference, mid: p})
		}
	}
}

// buyerLooks opens the service's own page, and perhaps follows its button.
func (w *walk) buyerLooks(o *walkOrder) {
	answer, ok := w.send("GET", "/pay/"+o.id, "", nil)
	w.note(o, "the buyer looks at the pay page: answered %t", ok)
	if !ok || w.chance(40) {
		return
	}
	if answer.Code != http.StatusOK {
		w.failf(o, "the pay page is answered with %d", answer.Code)
	}

	answer, ok = w.send("GET", "/pay/"+o.id+"/go", "", nil)
	if ok {
		to := answer.Header().Get("Location")
		w.note(o, "the buyer goes to pay: %s", to)
		w.show(o, to)
	}
}

// walkResult counts what walks have covered.
type walkResult struct {
	orders, crashes, calls int
}

// walkOnce walks with one seed.
func walkOnce(t *testing.T, seed uint64, orders int) (r walkResult) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(t, seed)
		defer func() { w.close() }()
		w.run(orders)
		if !t.Failed() {
			w.rest()
		}
		if t.Failed() {
			t.Logf("this was the walk of seed %d: go test -run TestWalk -walk.seed %d -walk.orders %d",
				seed, seed, orders)
		}
		r = walkResult{len(w.orders), w.crashes, int(w.calls.Load())}
	})
	return r
}

func TestWalk(t *testing.T) {
	t.Parallel()
	if *walkFor > 0 {
		walkOn(t)
		return
	}

	seeds, orders := []uint64{1, 2, 3, 4, 5}, 10
	if *walkSeed > 0 {
		seeds, orders = []uint64{*walkSeed}, *walkOrders
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := walkOnce(t, seed, orders)
			t.Logf("%d orders, %d crashes, %d calls to gateways", r.orders, r.crashes, r.calls)
		})
	}
}

// walkOn walks with one seed after the other until the time of -walk is over, two at once.
func walkOn(t *testing.T) {
	var next, orders, crashes, calls atomic.Int64
	first := max(1, *walkSeed)
	end := time.Now().Add(*walkFor)

	t.Run("seeds", func(t *testing.T) {
		for worker := range 2 {
			t.Run(fmt.Sprint("worker ", worker), func(t *testing.T) {
				t.Parallel()
				for time.Now().Before(end) {
					seed := first + uint64(next.Add(1)-1)
					t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
						r := walkOnce(t, seed, *walkOrders)
						orders.Add(int64(r.orders))
						crashes.Add(int64(r.crashes))
						calls.Add(int64(r.calls))
					})
				}
			})
		}
	})
	fmt.Printf("TestWalk, seeds %d to %d: %d orders, %d crashes, %d calls to gateways\n",
		first, first+uint64(next.Load())-1, orders.Load(), crashes.Load(), calls.Load())
}
