package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// waysTo lead a new order of two pieces to each status.
var waysTo = map[string]string{
	"pending":               "get",
	"awaiting_verification": "buyer claim",
	"paid":                  "POST /v1/orders/$A/approve {}",
	"failed":                "POST /v1/orders/$A/cancel {}",
	"expired":               "+7h",
	"refunded":              "POST /v1/orders/$A/approve {}, POST /v1/orders/$A/refund {}",
}

// reject sends the owner's rejection of an order, whether or not its page offers it, with the state that the page
// shows.
func (p *player) reject() {
	p.t.Helper()
	p.play("owner open order A")
	form := url.Values{"act": {"reject"}}
	for _, c := range p.who.page.controls {
		if c.form != nil && c.form.values.Has("state") {
			form.Set("state", c.form.values.Get("state"))
		}
	}
	p.who.status, _ = p.code("POST", "/dashboard/orders/"+p.order, form)
}

// TestTransitions tries every act from every status, as testdata/transitions.txt has them.
func TestTransitions(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{}
	for _, c := range readCases(t, "testdata/transitions.txt") {
		allowed[c.heading+" "+c.column(0)] = c.column(1)
	}
	for status, way := range waysTo {
		for _, act := range []string{"approve", "reject", "cancel", "refund"} {
			t.Run(act+" "+status, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					p := newPlayer(t, w)
					p.play("order kopi 2 bank_transfer as A, "+way+" | "+status, "+1s")
					events := len(w.get(t, "/v1/events").list("events"))
					want := allowed[act+" "+status]
					if act == "reject" {
						p.reject()
					} else {
						p.request("POST", "/v1/orders/"+strings.ToUpper(p.order)+"/"+act, fields{})
						if want == "" {
							refused := p.who.response.want(t, 409, "ORDER_STATE")
							if !strings.Contains(refused.Error.Message, status) {
								t.Errorf("the refusal does not name the state: %s", refused.Body)
							}
						}
					}
					if isDone := p.who.status < 400; isDone != (want != "") {
						t.Errorf("answered %d: %s", p.who.status, p.who.text)
					}
					after := w.get(t, "/v1/orders/"+p.order)
					if got := after.at("order.status"); got != want && (want != "" || got != status) {
						t.Errorf("the order is %s, want %s", got, want)
					}
					more := len(w.get(t, "/v1/events").list("events")) - events
					if more != map[bool]int{true: 1}[want != ""] {
						t.Errorf("%d events tell of it", more)
					}
					over := slices.Contains([]string{"failed", "expired"}, after.at("order.status"))
					p.expect("stock " + map[bool]string{true: "10", false: "8"}[over])
				})
			})
		}
	}
}

// TestIdempotency asks for an order by many at once, with one key.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var clients sync.WaitGroup
	bodies := map[string]int{}
	for range 20 {
		clients.Go(func() {
			r := w.post(w.shop.body("kopi", 1), "Idempotency-Key", "at once").want(t, 201, "")
			mu.Lock()
			bodies[string(r.Body)]++
			mu.Unlock()
		})
	}
	clients.Wait()
	if len(bodies) != 1 {
		t.Errorf("one key makes %d orders", len(bodies))
	}
	w.get(t, "/v1/products?q=kopi").has(t, "products.0.stock 9")
}

// TestParallelBuyers has many want the last pieces, alone and in bundles.
func TestParallelBuyers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var buyers sync.WaitGroup
	sold := 0
	for i := range 40 {
		buyers.Go(func() {
			body, pieces := w.shop.body("kopi", 1), 1
			if i%4 == 0 {
				body, pieces = w.shop.body("duo", 1), 2
			}
			r := w.post(body)
			if r.Status != 201 {
				r.want(t, 409, "OUT_OF_STOCK")
				return
			}
			mu.Lock()
			sold += pieces
			mu.Unlock()
		})
	}
	buyers.Wait()
	left, _ := strconv.Atoi(w.get(t, "/v1/products?q=kopi").at("products.0.stock"))
	if sold+left != 10 || sold < 9 {
		t.Errorf("%d pieces are sold and %d left of ten", sold, left)
	}
}

// TestReferences makes orders at one moment, and at the same one again after the clock was set back: each reference
// follows the one before.
func TestReferences(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		last := ""
		for i := range 40 {
			switch i {
			case 15:
				w.sleep(time.Second)
			case 30:
				w.ahead.Store(-int64(time.Second))
			}
			o := w.post(w.shop.body("teh", 1)).want(t, 201, "")
			reference := o.at("order.payment_reference")
			if reference <= last {
				t.Errorf("%s does not follow %s", reference, last)
			}
			last = reference
		}
	})
}

// TestAmounts gives each transfer an amount of its own.
func TestAmounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	amounts, codes := map[string]bool{}, map[string]bool{}
	for range 30 {
		body := w.shop.body("teh", 1)
		body["payment_method"] = "bank_unik"
		r := w.post(body).want(t, 201, "")
		amounts[r.at("order.amount")], codes[r.at("order.unique_code")] = true, true
		code, _ := strconv.Atoi(r.at("order.unique_code"))
		if code < 1 || code > 999 || r.at("order.amount") != strconv.Itoa(50000+code) {
			t.Errorf("the amount %s has the code %d", r.at("order.amount"), code)
		}
	}
	if len(amounts) != 30 || len(codes) < 25 {
		t.Errorf("30 orders have %d amounts", len(amounts))
	}
}

// TestUniqueAmounts has orders of seven days with every amount but one, which an older order has. The next order gets
// that one, and the one after it repeats another.
func TestUniqueAmounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ruin = true // These orders have no events.
	w.sql(`
		WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 999)
		INSERT INTO orders (id, store_id, status, reference, provider, method, test, amount, unique_code, created_at,
		                    expires_at, components, json)
		SELECT 'o-' || i, ?1, 'expired', 'R-' || i, 'manual', 'bank_unik', 0, 50000 + i, i, ?2 - iif(i = 8, 7200000, 0),
		       0, '[]', '{}'
		FROM   n`, w.shop.id, time.Now().Add(time.Hour).AddDate(0, 0, -7).UnixMilli())
	body := w.shop.body("teh", 1)
	body["payment_method"] = "bank_unik"
	w.post(body).want(t, 201, "").has(t, "order.unique_code 8", "order.amount 50008")
	w.post(body).want(t, 201, "")
}

// TestComponentsOfAnOrder orders bundles with 500 products in all, and then one more. A catalog of more entries than
// may come at once is not read to its end.
func TestComponentsOfAnOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wide := w.wide(t)
	body := w.shop.body("teh", 1)
	body["items"] = append(wide[:10:10], body["items"].([]any)[0].(fields))
	w.post(body).wantRefusal(t, "422 VALIDATION_FAILED items")
	body["items"] = wide
	w.post(body).want(t, 201, "")
	w.get(t, "/v1/products?type=bundle&q=wide&limit=1").has(t, "bundles.0.stock 99998")

	many := `{"products":[` + strings.Repeat("{},", 2000) + `{}], no JSON`
	w.putCatalog(many).wantRefusal(t, "422 VALIDATION_FAILED products")
}

// TestListsWhileOrdersArrive walks through the list of orders while new ones come: none is skipped or repeated.
func TestListsWhileOrdersArrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := map[string]bool{}
	for range 25 {
		before[w.create(t, "teh", 1)] = true
	}
	seen := map[string]bool{}
	last := ""
	for path := "/v1/orders?limit=3"; path != ""; {
		w.create(t, "teh", 1)
		r := w.get(t, path)
		for _, o := range r.list("orders") {
			id := textOf(o, "id")
			if seen[id] || last != "" && id >= last {
				t.Errorf("%s comes again, or after %s", id, last)
			}
			seen[id], last = true, id
			delete(before, id)
		}
		if path = "/v1/orders?limit=3&starting_after=" + last; r.at("has_more") == "false" {
			path = ""
		}
	}
	if len(before) > 0 {
		t.Errorf("%d orders are skipped", len(before))
	}
}

// walk is a story that is made up while it is played, about several orders.
type walk struct {
	*player
	*rand.Rand
	orders []string
	trail  []string
	counts map[string]int // of crashes, of what people did, and of the statuses that were seen
	over   map[string]bool
	shown  strings.Builder // all answers: nobody pays at a page whose address has never been seen
	short  map[string]bool // orders that were paid when there was too little left
}

var (
	walkFor  = flag.Duration("walk", 0, "how long TestWalk goes on, with one seed after the other")
	walkFrom = flag.Uint64("seed", 0, "the first seed of TestWalk")
)

// TestWalk draws steps at random: people, gateways, faults, crashes and time. Whatever happens, money is seen, no
// page can be paid after its order has expired, and stock adds up: also that of what was sent, of orders of the shop
// page and after an approval was undone. A walk that fails prints its story.
func TestWalk(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	all := map[string]int{}
	first, begin := *walkFrom, time.Now()
	open := func() int { // A service that died while it committed leaves its files open, as it should.
		files, _ := os.ReadDir("/proc/self/fd")
		return len(files)
	}
	for ; first == *walkFrom || time.Since(begin) < *walkFor; first += 5 {
		if open() > 18_000 { // of the 20,000 that systems usually allow
			t.Fatalf("too many files are open after %s, at seed %d: go on from there", time.Since(begin), first)
		}
		t.Run("walks", func(t *testing.T) { // It ends when all of them have, which run beside each other.
			for seed := first; seed < first+5; seed++ {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world) {
						walk := &walk{player: openShop(t, w), Rand: rand.New(rand.NewPCG(seed, 1))}
						walk.counts, walk.over, walk.short = map[string]int{}, map[string]bool{}, map[string]bool{}
						walk.play()
						mu.Lock()
						defer mu.Unlock()
						for what, n := range walk.counts {
							all[what] += n
						}
					})
				})
			}
		})
	}
	t.Logf("%d walks: %v", first-*walkFrom, all)
	for _, what := range []string{"crash", "paid", "failed", "expired", "refunded", "awaiting_verification", "alerts",
		"ship", "unship", "corrected", "undo", "shop"} {
		if all[what] < 3 {
			t.Errorf("%s has happened %d times: %v", what, all[what], all)
		}
	}
}

func (w *walk) draw(words ...string) string { return words[w.IntN(len(words))] }

func (w *walk) play() {
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the story:\n    %s", strings.Join(w.trail, "\n    "))
		}
	}()
	for range 120 {
		w.step()
		w.refused = ""
		if w.check(false); w.t.Failed() {
			return
		}
	}
	w.try("shop fault none")
	for _, wait := range []string{"+7h", "+1h", "+25h"} { // A day after a report, its stock is given back.
		w.try("shop " + wait)
	}
	w.check(true)
}

// try plays a step that may be refused.
func (w *walk) try(step string) {
	w.trail = append(w.trail, step)
	words := w.words(step)
	w.who = w.people[words[0]]
	w.player.step(words[1], words[2:])
	w.refused = ""
	w.shown.WriteString(w.who.text)
}

func (w *walk) step() {
	if len(w.orders) == 0 || w.IntN(12) == 0 {
		what := w.draw("kopi 1 snap", "kopi 2 snap", "kopi 1 link", "kopi 3 link", "kopi 1 bank_transfer")
		w.try("shop order " + what + " as " + string(rune('A'+len(w.orders))))
		if w.who.status == 201 {
			w.orders = append(w.orders, w.order)
		}
	}
	if w.IntN(16) == 0 {
		w.strangerOrders()
	}
	if len(w.orders) == 0 {
		w.t.Fatalf("the first order is refused: %d %s", w.who.status, w.who.text)
	}
	i := w.IntN(len(w.orders))
	w.order = w.orders[i]
	w.trail = append(w.trail, "# of "+string(rune('A'+i)))
	switch w.IntN(15) {
	case 0, 1:
		w.try("shop get")
	case 2:
		w.try("shop +" + w.draw("1s", "20s", "2m", "2m", "20m", "20m", "1h", "7h"))
	case 3, 11:
		w.try("shop POST /v1/orders/" + w.order + "/" + w.draw("approve", "cancel", "refund") + " {}")
	case 4:
		w.try("shop " + w.draw("fault", "faults") + " " + w.draw("down", "lost", "500", "slow", "hang") + " " +
			w.draw("create", "status", "close", "midtrans", "xendit"))
		if w.IntN(2) == 0 {
			w.try("shop +3m")
			w.try("shop fault none")
		}
	case 5:
		w.life.dieAt(1+w.IntN(4), w.IntN(2) == 0)
		w.sleep(time.Second)
		w.life.dieAt(0, false)
		w.try("shop crash")
		w.counts["crash"]++
	case 6, 10:
		w.try("buyer open pay")
		acts := slices.DeleteFunc(strings.Fields(w.who.page.acts()), func(act string) bool { return act == "pay" })
		if o := w.get(w.t, "/v1/orders/"+w.order).Data["order"]; isShipped(asFields(o)) {
			for _, act := range []string{"cancel", "change", "unclaim"} {
				if slices.Contains(acts, act) {
					w.t.Errorf("the buyer of what is shipped can %s", act)
				}
			}
		}
		if len(acts) > 0 && w.who.status == 200 {
			act := w.draw(acts...)
			all := slices.DeleteFunc(slices.Clone(w.who.page.controls), func(c control) bool { return c.act != act })
			c := all[w.IntN(len(all))]
			w.try("buyer press " + c.act + " " + c.value)
			w.count("buyer " + act)
		}
	case 7, 8:
		w.handOver()
	case 9:
		if w.IntN(2) == 0 {
			w.try("shop POST /v1/orders/" + w.order + "/approve {}")
		}
		w.try("owner open order")
		if w.who.page.find("undo", "") != nil {
			w.try("owner press undo")
			w.count("undo")
		}
	default:
		w.gatewayActs()
	}
	synctest.Wait()
}

// count counts what was done, unless it was refused.
func (w *walk) count(what string) {
	if w.who.status < 400 {
		w.counts[what]++
	}
}

// strangerOrders has somebody order at the shop page.
func (w *walk) strangerOrders() {
	name, quantity := string(rune('A'+len(w.orders))), 1+w.IntN(2)
	method := w.draw("0 bank_transfer", "0 bank_transfer", "5000 cod", "2500 snap")
	w.trail = append(w.trail, fmt.Sprintf("# a stranger orders kopi %d by %s as %s", quantity, method, name))
	form := shopForm("name", name, "product.kopi", strconv.Itoa(quantity), "seen", strconv.Itoa(quantity*85000),
		"payment_method", method)
	status, text, to := w.stranger("1.1.1.1", "POST", checkoutAt, form)
	id, isOrder := strings.CutPrefix(strings.TrimSuffix(to, "?new=1"), "/pay/")
	switch {
	case isOrder:
		w.orders = append(w.orders, id)
		w.counts["shop"]++
	case status != 422: // There are too few left.
		w.t.Errorf("an order of the shop page: %d %s", status, text)
	}
}

// handOver ships the order, corrects that or takes it back, whether or not it can be.
func (w *walk) handOver() {
	w.try("shop get")
	wasShipped := isShipped(asFields(w.who.response.Data["order"]))
	act, body := "ship", w.draw("{}", `{"carrier":"JNE"}`, `{"tracking_number":"1"}`,
		`{"carrier":"J&T","tracking_number":"2"}`)
	if wasShipped && w.IntN(2) == 0 || w.IntN(10) == 0 {
		act, body = "unship", "{}"
	}
	w.try("shop POST /v1/orders/" + w.order + "/" + act + " " + body)
	if act == "ship" && wasShipped {
		act = "corrected"
	}
	w.count(act)
	if wasShipped && w.who.status >= 400 {
		w.t.Errorf("what is shipped refuses %s: %d %s", act, w.who.status, w.who.text)
	}
}

// gatewayActs lets a payment go its way, and perhaps tells nobody.
func (w *walk) gatewayActs() {
	how := w.draw("", "", " lost")
	shown := func(b *book) []string {
		return slices.DeleteFunc(b.pages(w.order, false), func(page string) bool {
			return !strings.Contains(w.shown.String(), b.page(w.order, page).id+`"`)
		})
	}
	midtrans, xendit := shown(&w.net.midtrans.book), shown(&w.net.xendit.book)
	open := w.net.payable(w.order)
	switch {
	case len(midtrans) > 0 && w.IntN(2) == 0 || len(xendit) == 0 && len(midtrans) > 0:
		page := midtrans[w.IntN(len(midtrans))]
		latest := w.net.midtrans.page(w.order, page).latest()
		states := []string{"pending", "settlement", "settlement", "deny", "settlement=1000", "capture/challenge"}
		if latest.ID == "" && w.IntN(4) == 0 { // Only a notification names such a payment.
			states, how = []string{"va:pending", "dana:pending", "dana:settlement"}, ""
		}
		if latest.is("settlement capture") {
			states = []string{"deny", "partial_refund=500", "refund=" + strings.TrimSuffix(latest.Gross, ".00")}
		} else if !strings.Contains(open, page) {
			return
		}
		w.try("shop " + page + ":" + w.draw(states...) + how)
	case len(xendit) > 0:
		page := xendit[w.IntN(len(xendit))]
		switch {
		case strings.Contains(open, page):
			w.try("shop " + page + ":" + w.draw("COMPLETED", "COMPLETED", "EXPIRED") + how)
		case w.IntN(3) == 0: // What was begun there is paid late, which only a notification says.
			w.try("shop " + page + ":payment")
		}
	}
}

// check is what must be so at any time; at rest, what becomes of money.
func (w *walk) check(rest bool) {
	taken, perhaps := 0, 0 // pieces of orders that hold them, and of those that wait without or are oversold
	for _, o := range w.all("orders", "starting_after", w.shop.keys["read"]) {
		id, status := textOf(o, "id"), textOf(o, "status")
		alerted := o["alerts"] != nil
		isOff := status == "failed" || status == "expired"
		shipped := isShipped(o)
		holds := !isOff || shipped // While it is shipped, nothing gives stock back.
		w.short[id] = holds && (w.short[id] || strings.Contains(fmt.Sprint(o["alerts"]), "oversold"))
		w.counts[status]++
		if alerted {
			w.counts["alerts"]++
		}
		if shipped {
			w.counts["shipped "+status]++
		}
		ofShop := textOf(o, "source") == "shop" && w.pages(id) == 0
		if rest && ofShop && status == "pending" && !shipped {
			w.t.Errorf("%s of the shop page is not paid, and has not ended", id)
		}
		isReported := status == "awaiting_verification" && textOf(o, "payment_method") != "cod"
		isReleased := rest && ofShop && isReported && !shipped
		if isReleased {
			w.counts["released"]++
		}
		if holds && !isReleased {
			for _, item := range o["items"].([]any) {
				n, _ := strconv.Atoi(textOf(item.(fields), "quantity"))
				if status == "awaiting_verification" && !shipped || w.short[id] {
					perhaps += n
				} else {
					taken += n
				}
			}
		}
		late := status == "expired" && !w.over[id] || rest && status != "pending"
		if open := w.net.payable(id); open != "" && late {
			w.t.Errorf("%s is %s, and its pages %s can be paid", id, status, open)
		}
		w.over[id] = status == "expired"
		exact, there := w.money(id)
		over := status == "paid" || status == "refunded"
		if rest && exact > 0 && !over || rest && exact > 1 && status == "paid" && !alerted {
			w.t.Errorf("%s is %s with %d exact payments", id, status, exact)
		}
		if rest && there > 0 && !over && !alerted {
			w.t.Errorf("%s is %s, and nobody sees its money", id, status)
		}
	}
	left, err := strconv.Atoi(w.stock("kopi"))
	must(w.t, err)
	if sum := left + taken; sum > 10 || sum+perhaps < 10 {
		w.t.Errorf("%d pieces are left, %d and perhaps %d taken of ten", left, taken, perhaps)
	}
}

func isShipped(o fields) bool {
	shipping, _ := o["shipping"].(fields)
	return shipping["shipped_at"] != nil
}

// pages counts the pages of an order that have been made at the gateways.
func (w *walk) pages(order string) int {
	return len(w.net.midtrans.pages(order, false)) + len(w.net.xendit.pages(order, false))
}

// money counts the payments of an order that are at the gateways: those of exactly what was asked for, and all.
func (w *walk) money(order string) (exact, there int) {
	for _, b := range []*book{&w.net.midtrans.book, &w.net.xendit.book} {
		for _, page := range b.all {
			if !strings.HasPrefix(page.reference, order) {
				continue
			}
			if page.status == "COMPLETED" || w.net.xendit.paymentOf(page).Status == "SUCCEEDED" {
				exact, there = exact+1, there+1
			}
			for _, p := range page.payments {
				if p.is("settlement capture") && p.Fraud == "" {
					there++
					if p.Gross == fmt.Sprintf("%d.00", page.amount) {
						exact++
					}
				}
			}
		}
	}
	return exact, there
}

// TestDecisionAfterAReport has a buyer report a payment and the owner cancel the order as it was before, while
// both wait for the database: the owner has not seen the report.
func TestDecisionAfterAReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := newPlayer(t, w)
	owner.play("order kopi 2 bank_transfer as A, owner open order A")
	buyer := newPlayer(t, w)
	buyer.kept = owner.kept
	buyer.play("buyer open pay A")

	letGo := w.atCommit("store set -language en -store " + w.other.id)
	var both sync.WaitGroup
	both.Go(func() { buyer.play("buyer press claim") })
	time.Sleep(100 * time.Millisecond)
	both.Go(func() { owner.play("owner press cancel | 409") })
	time.Sleep(100 * time.Millisecond)
	letGo()
	both.Wait()
	owner.play(`get A | sees "status":"awaiting_verification"`)
}
