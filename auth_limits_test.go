package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// wide adds bundles with 500 products in all, and returns them as the items of an order.
func (w *world) wide(t *testing.T) (items []fields) {
	t.Helper()
	products, bundles := []fields{}, []fields{}
	for i := range 500 {
		products = append(products, fields{"slug": fmt.Sprint("p-", i), "title": "P", "price": 1000, "stock": 100_000})
	}
	for i := range 10 {
		contents := []fields{}
		for j := range 50 {
			contents = append(contents, fields{"slug": fmt.Sprint("p-", 50*i+j), "quantity": 1})
		}
		bundles = append(bundles, fields{"slug": fmt.Sprint("b-", i), "title": "Wide", "price": 1000,
			"items": contents})
	}
	catalog := fields{"products": products, "bundles": bundles}
	w.putCatalog(catalog).want(t, 200, "")
	for _, b := range w.get(t, "/v1/products?type=bundle&q=wide").list("bundles") {
		items = append(items, fields{"type": "bundle", "bundle_id": b["id"], "quantity": 2})
	}
	return items
}

// TestNobodyStopsTheOthers has a greedy shop do what it may within the usual limits, by as many clients as it likes,
// while another shop's program creates an order four times a second. That waits less than a second. The cases come one
// after the other, and before all tests that run side by side: they measure time.
func TestNobodyStopsTheOthers(t *testing.T) {
	for _, c := range []struct {
		name    string
		clients int
		begin   func(t *testing.T, w *world) (greedy func(client int) int)
		want    string // statuses that the greedy one gets, among others
	}{
		{"orders of many products", 100, func(t *testing.T, w *world) func(int) int {
			body := w.shop.body("teh", 1)
			body["items"] = w.wide(t)
			keys := w.moreKeys()
			return func(client int) int { return w.status("POST", "/v1/orders", body, as(keys[client%len(keys)])...) }
		}, "201 429"},
		{"unique amounts among many orders", 100, func(t *testing.T, w *world) func(int) int {
			w.manyOrders("expired", 20_000)
			body := w.shop.body("teh", 1)
			body["payment_method"] = "bank_unik"
			keys := w.moreKeys()
			return func(client int) int { return w.status("POST", "/v1/orders", body, as(keys[client%len(keys)])...) }
		}, "201 429"},
		{"signed notifications", 100, func(t *testing.T, w *world) func(int) int {
			p := newPlayer(t, w)
			p.play("order kopi 1 snap as A, get")
			midtrans, page := w.net.pageOf(p.order, "")
			path, header, body := midtrans.message(p.order, page, "pending")
			return func(int) int { return w.status("POST", path+w.shop.id, body, header...) }
		}, "200 429"},
		{"catalogs of nothing", 60, func(t *testing.T, w *world) func(int) int {
			body := `{"products":[` + strings.Repeat(`{"items":[`+strings.Repeat("{},", 250)+`{}]},`, 1300) + `{}]}`
			return func(int) int { return w.status("PUT", "/v1/catalog", body, as(w.shop.keys["manage"])...) }
		}, "422 429"},
		{"strangers on the shop page, of a store with many orders", 60, func(t *testing.T, w *world) func(int) int {
			p := openShop(t, w)
			w.manyOrders("pending", 50_000)
			p.play("owner open /dashboard?from=2020-01-01 | sees lebih dari 50000 pesanan")
			var buyers atomic.Int64
			return func(client int) int {
				form := shopForm("product.kopi", "", "product.teh", "1", "seen", "50000", "phone",
					fmt.Sprint("08123", 1e7+buyers.Add(1)))
				return w.status("POST", checkoutAt, form, "X-Forwarded-For", fmt.Sprintf("2001:db8:%x::1", client))
			}
		}, "303"},
		{"pay pages", 60, func(t *testing.T, w *world) func(int) int {
			id := w.create(t, "teh", 1)
			return func(int) int { return w.status("GET", "/pay/"+id, nil) }
		}, "200 429"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "-rate", "300", "-burst", "60")
			w.ruin = true // There are more orders than the checks may read.
			greedy := c.begin(t, w)

			var stopped atomic.Bool
			var clients sync.WaitGroup
			var statuses sync.Map
			for client := range c.clients {
				clients.Go(func() {
					for !stopped.Load() {
						status := greedy(client)
						statuses.Store(fmt.Sprint(status), true)
						if status == http.StatusTooManyRequests { // Real clients are elsewhere, and take a while too.
							time.Sleep(10 * time.Millisecond)
						}
					}
				})
			}
			// A machine that does something else is slow once. A shop that stops the others stops them each time.
			longest := time.Minute
			for tries := 0; tries < 4 && longest > time.Second; tries++ {
				longest = 0
				for range 4 {
					time.Sleep(200 * time.Millisecond)
					begun, used := time.Now(), processorTime(t)
					w.orderOfOther("teh", 1).want(t, 201, "")
					longest = max(longest, min(time.Since(begun), processorTime(t)-used))
				}
			}
			end := time.Now().Add(15 * time.Second) // On a busy machine the greedy one reaches its limit later.
			for status := range strings.FieldsSeq(c.want) {
				_, was := statuses.Load(status)
				for ; !was && time.Now().Before(end); _, was = statuses.Load(status) {
					time.Sleep(50 * time.Millisecond)
				}
			}
			stopped.Store(true)
			clients.Wait()

			t.Log("another shop's order waits at most", longest)
			if longest > time.Second {
				t.Errorf("another shop's order waits %s, want a second at most", longest)
			}
			for status := range strings.FieldsSeq(c.want) {
				if _, was := statuses.Load(status); !was {
					t.Errorf("the greedy shop was never answered %s", status)
				}
			}
		})
	}
}

// processorTime is what this process has used. Where something waits for the work of the service alone, the time that
// passes is less; on a busy machine more time passes, which is nobody's fault.
func processorTime(t *testing.T) time.Duration {
	var used syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// status is that of an answer, which may be a page.
func (w *world) status(method, path string, body any, headers ...string) int {
	resp, err := w.ask(method, path, body, headers...)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// moreKeys are as many of the greedy shop's keys as may use up what all of them together may.
func (w *world) moreKeys() (keys []string) {
	for range 5 {
		keys = append(keys, textOf(w.command("key add -name more -store "+w.shop.id), "key"))
	}
	return keys
}

// manyOrders gives the shop orders of the last days in a status, with amounts that unique codes are drawn from. They do
// not expire.
func (w *world) manyOrders(status string, n int) {
	w.sql(`
		WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?3)
		INSERT INTO orders (id, store_id, status, reference, provider, method, test, amount, unique_code, created_at,
		                    expires_at, components, json)
		SELECT 'o-' || i, ?1, ?4, 'R-' || i, 'manual', 'bank_unik', 0, 50000 + i % 1000, i % 1000, ?2 - i, 9e12, '[]',
		       '{"id":"o","buyer":{"name":"Siti"}}'
		FROM   n`, w.shop.id, time.Now().UnixMilli(), n, status)
}

// TestWritesThatWait has another program keep the writer waiting. Of each kind, a shop has so many writes that wait;
// the others are told to come again after two seconds. Those of another shop wait beside them. No other test runs
// beside it, because SQLite gives up after five seconds.
func TestWritesThatWait(t *testing.T) {
	w := newWorld(t)
	w.ruin = true
	p := newPlayer(t, w)
	p.play("order kopi 1 snap as A, get", "order teh 1 bank_transfer as B")
	midtrans, page := w.net.pageOf(p.kept["A"], "")
	path, header, message := midtrans.message(p.kept["A"], page, "pending")
	signedIn := w.signIn(w.shop, w.shop.password, "192.0.2.1").cookies()

	kinds := map[string]struct {
		most int
		send func() int
	}{
		"orders": {64, func() int {
			return w.status("POST", "/v1/orders", w.shop.body("teh", 1), as(w.shop.keys["write"])...)
		}},
		"notifications": {8, func() int { return w.status("POST", path+w.shop.id, message, header...) }},
		"owner": {8, func() int {
			form := url.Values{"act": {"add-key"}, "name": {"one"}, "scope": {"read"}}
			return w.browse("POST", "/dashboard/developers", form, "Cookie", signedIn).Status
		}},
		"buyers": {8, func() int {
			return w.browse("POST", "/pay/"+p.kept["B"],
				url.Values{"act": {"claim"}, "method": {"bank_transfer"}}).Status
		}},
	}
	letGo := w.atCommit("store add -name Third -email third@example.id")
	var senders sync.WaitGroup
	refused, all := map[string]*atomic.Int64{}, atomic.Int64{}
	for name, kind := range kinds {
		count := new(atomic.Int64)
		refused[name] = count
		for range kind.most + 3 {
			senders.Go(func() {
				if kind.send() == http.StatusTooManyRequests {
					count.Add(1)
					all.Add(1)
				}
			})
		}
	}
	other := make(chan int)
	go func() {
		other <- w.status("POST", "/v1/orders", w.other.body("teh", 1), as(w.other.keys["write"])...)
	}()
	for end := time.Now().Add(4 * time.Second); int(all.Load()) < 3*len(kinds) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	letGo() // before SQLite gives up, after five seconds
	senders.Wait()
	for name, count := range refused {
		if n := count.Load(); n != 3 {
			t.Errorf("%s: %d are refused, want 3", name, n)
		}
	}
	if status := <-other; status != 201 {
		t.Errorf("the order of another shop is answered %d", status)
	}
}

// TestWritersTakeTurns has another program keep the writer waiting. Meanwhile many orders of a shop wait, and then one
// of another shop. That is among the first to be made.
func TestWritersTakeTurns(t *testing.T) {
	w := newWorld(t)
	letGo := w.atCommit("store add -name Third -email third@example.id")
	ids := make(chan string, 100)
	order := func(s *store) {
		ids <- w.post(s.body("teh", 1), as(s.keys["write"])...).at("order.id")
	}
	var senders sync.WaitGroup
	for range 40 {
		senders.Go(func() { order(w.shop) })
	}
	time.Sleep(300 * time.Millisecond) // Until they wait. If they take longer, the test sees less.
	var other string
	senders.Go(func() {
		other = w.orderOfOther("teh", 1).at("order.id")
	})
	time.Sleep(300 * time.Millisecond)
	letGo()
	senders.Wait()

	before := 0
	for range 40 {
		if id := <-ids; id < other { // Ids are in the order in which they are made.
			before++
		}
	}
	if before > 10 {
		t.Errorf("%d of 40 orders that waited were made before that of another shop", before)
	}
}

// TestWriteThatGivesUp has the clients of two orders leave: the writer has taken one of them, which is made, and the
// other one waits, and is not made any more.
func TestWriteThatGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.sleep(0)
		letGo := make(chan struct{})
		w.life.hold = func() { <-letGo }
		w.http.Timeout = time.Second
		for _, name := range []string{"taken", "waits"} {
			body := w.shop.body("teh", 1)
			body["external_id"] = name
			if r, err := w.send("POST", "/v1/orders", body); err == nil {
				t.Errorf("nothing is written, and %s is answered %s", name, r.Body)
			}
		}
		w.http.Timeout = 0
		synctest.Wait() // The service has seen that they left.
		close(letGo)
		w.sleep(0)
		w.get(t, "/v1/orders").has(t, "orders.0.external_id taken", "orders.1 <nil>")
	})
}

// TestSlowReadersKeepNoCore: as many programs as the process works for at once read no answer. The shop page is served.
func TestSlowReadersKeepNoCore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		openShop(t, w)
		stores := []*store{w.shop, w.other}
		for range 10 { // More orders than fit into a buffer.
			w.create(t, "teh", 1)
			w.orderOfOther("teh", 1).want(t, 201, "")
		}
		for i := range mostPlaces["work"] {
			key := stores[i%2].keys["read"]
			conn, err := w.life.dial()
			must(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "GET /v1/orders HTTP/1.1\r\nHost: shop.test\r\nAuthorization: Bearer %s\r\n\r\n", key)
		}
		time.Sleep(time.Second)
		if status, _, _ := w.stranger("3.3.3.3", "GET", shopAt, nil); status != 200 {
			t.Errorf("beside slow readers of the API, the shop is answered %d", status)
		}
	})
}

// TestWorkTakesTurns has a store do as much as the process works on at once. Much more of it waits, and then a request
// to another store. That comes second.
func TestWorkTakesTurns(t *testing.T) {
	a := &auth{}
	place := func(store, kind string) func() {
		leave, err := a.busyPlace(t.Context(), store, kind)
		must(t, err)
		return leave
	}
	var busy []func()
	for i := range mostPlaces["work"] {
		busy = append(busy, place(fmt.Sprint("greedy", i), "search"))
	}
	served := make(chan string, 10)
	var asking sync.WaitGroup
	for _, store := range []string{"greedy", "greedy", "greedy", "other"} {
		asking.Go(func() {
			leave := place(store, "pay")
			served <- store
			leave()
		})
		time.Sleep(50 * time.Millisecond)
	}
	busy[0]()
	asking.Wait()
	if first, second := <-served, <-served; first != "greedy" || second != "other" {
		t.Errorf("%s is served, then %s", first, second)
	}
}

// TestRowsAreLookedUp asks SQLite how it finds the goods of a cart, and the session of a gateway's notification: by
// what the client names. To read all goods or orders of a store for it takes over a second if they are many.
func TestRowsAreLookedUp(t *testing.T) {
	w := newWorld(t)
	db, err := sql.Open("sqlite3", "file:"+w.file+"?mode=ro")
	must(t, err)
	defer db.Close()
	for query, args := range map[string][]any{
		sqlEntriesNamed: {w.shop.id, false, `[["product","kopi"]]`},
		sqlSessionKnown: {`["known"]`, "xendit", w.shop.id},
	} {
		rows, err := db.Query("EXPLAIN QUERY PLAN "+query, args...)
		must(t, err)
		for rows.Next() {
			var id, parent, unused int
			var step string
			must(t, rows.Scan(&id, &parent, &unused, &step))
			isScan := strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "VIRTUAL TABLE")
			if isScan || strings.HasSuffix(step, "(store_id=?)") {
				t.Errorf("it reads all rows: %s\n%s", step, query)
			}
		}
		must(t, rows.Err())
		rows.Close()
	}
}

// TestThingsThatWereReplaced adds methods and gateway keys for years: what was removed or replaced counts too, because
// it is read with the others.
func TestThingsThatWereReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	many := func(statement string) {
		w.sql("WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "+statement, w.shop.id)
	}
	put := func(code string) response {
		method := fields{"code": code, "name": "M", "provider": "manual"}
		return w.putCatalog(fields{"payment_methods": []fields{method}})
	}
	many(`INSERT INTO payment_methods (store_id, code, name, provider, kind, fee, instructions, accounts, unique_code,
		                              enabled, removed_at)
		SELECT ?, 'old-' || i, 'M', 'manual', 'transfer', 0, '', '[]', 0, 1, 1 FROM n`)
	put("new").wantRefusal(t, "422 VALIDATION_FAILED payment_methods")
	w.sql("DELETE FROM payment_methods WHERE code LIKE 'old-___'")
	put("new").want(t, 200, "")

	many(`INSERT INTO gateway_keys (id, store_id, provider, mode, secret_key, callback_token, replaced_at)
		SELECT 'old-' || i, ?, 'midtrans', 'live', 'old', '', 1 FROM n WHERE i < 100`)
	w.net.midtrans.key = "Mid-server-new"
	set := "gateway set -mode live -provider midtrans -store " + w.shop.id
	if code, _, errs := w.run(set, stdin+w.net.midtrans.key); code != 1 || !strings.Contains(errs, "already as many") {
		t.Errorf("the 101st key of a gateway: exit %d %s", code, errs)
	}
	w.sql("DELETE FROM gateway_keys WHERE id = 'old-1'")
	w.command(set, stdin+w.net.midtrans.key)
}
