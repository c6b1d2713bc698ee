//go:build cgo

package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		body := string(mustJSON(s.order("kopi", 1)))
		post := func(body string) reply { return s.do(t, "POST", "/v1/orders", body, "Idempotency-Key", "k-1") }
		s.do(t, "POST", "/v1/orders", s.order("kopi", 11), "Idempotency-Key", "k-1").want(t, 409, "OUT_OF_STOCK") // a refusal is not kept
		first := post(body).want(t, 201, "")
		if first.Header.Get("Idempotent-Replayed") != "" {
			t.Error("the first answer says that it is replayed")
		}
		replay := func() {
			t.Helper()
			r := post(body).want(t, 201, "")
			if !bytes.Equal(r.Body, first.Body) || r.Header.Get("Idempotent-Replayed") != "true" || r.Header.Get("Location") != first.Header.Get("Location") {
				t.Errorf("replay %v %s, first %s", r.Header, r.Body, first.Body)
			}
		}
		replay()
		post(body+" ").want(t, 422, "IDEMPOTENCY_KEY_REUSED")
		if _, err := s.db.Transition(t.Context(), s.storeID, first.at("order.id"), OwnerApproves, Note{}); err != nil {
			t.Fatal(err)
		}
		replay() // the first answer, though the order has moved on
		time.Sleep(48*time.Hour - time.Millisecond)
		replay()
		if n, err := s.db.PurgeIdempotencyKeys(t.Context(), 1000); n != 0 || err != nil {
			t.Errorf("purged %d too early: %v", n, err)
		}
		time.Sleep(time.Millisecond)
		if again := post(body).want(t, 201, ""); again.at("order.id") == first.at("order.id") || again.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("after 48 h: %v", again.Header)
		}
		time.Sleep(48 * time.Hour)
		if n, err := s.db.PurgeIdempotencyKeys(t.Context(), 1000); n != 1 || err != nil {
			t.Errorf("purged %d: %v", n, err)
		}
	})
}

func TestPaidAtOnceWhenFree(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	body := s.order("gratis", 3)
	delete(body, "payment_method")
	r := s.do(t, "POST", "/v1/orders", body).want(t, 201, "")
	got := strings.Join([]string{r.at("order.status"), r.at("order.amount"), r.at("order.requires_payment"), r.at("order.payment_method"), r.at("order.payment_provider"), r.at("order.settlement_channel")}, " ")
	if got != "paid 0 false none none none" || !timeText.MatchString(r.at("order.expires_at")) {
		t.Errorf("a free order is %q, expires at %s", got, r.at("order.expires_at"))
	}
	if r := s.do(t, "GET", "/v1/orders/"+r.at("order.id"), nil); r.at("payment_session.status") != "none" {
		t.Errorf("session %s", r.Body)
	}
	if got := s.events(t, r.at("order.id")); got != "orderCreated orderPaid" {
		t.Errorf("events %q", got)
	}
	// A fee is not asked for nothing, whatever method is named.
	s.do(t, "POST", "/v1/orders", with(s.order("gratis", 1), "payment_method", "bank_fee")).want(t, 201, "")
	fee := s.do(t, "POST", "/v1/orders", with(s.order("kopi", 1), "payment_method", "bank_fee")).want(t, 201, "")
	if fee.at("order.amount") != "89000" || fee.at("order.subtotal") != "85000" {
		t.Errorf("with a fee: %s", fee.Body)
	}
	// An order keeps the prices and titles of its moment.
	s.importCatalog(t, s.storeID, `{"products":[{"slug":"kopi","title":"Kopi baru","price":1}],"payment_methods":[{"code":"bank_fee","name":"T","provider":"manual","fee":9}]}`)
	if again := s.do(t, "GET", "/v1/orders/"+fee.at("order.id"), nil); fmt.Sprint(again.Data["order"]) != fmt.Sprint(fee.Data["order"]) {
		t.Errorf("the order changed with the catalog: %s", again.Body)
	}
}

func TestParallelBuyersOfTheLastPieces(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	var mu sync.Mutex
	sold, refused := 0, 0
	parallel(24, func(i int) {
		body, pieces := s.order("kopi", 1), 1
		if i%3 == 0 {
			body, pieces = s.order("duo", 1), 2
		}
		for range 2 {
			r := s.do(t, "POST", "/v1/orders", body)
			mu.Lock()
			if r.Status == 201 {
				sold += pieces
			} else if r.want(t, 409, "OUT_OF_STOCK"); r.Status == 409 {
				refused++
			}
			mu.Unlock()
		}
	})
	if sold != 10 || s.stock(t, "kopi") != 0 || refused == 0 {
		t.Errorf("%d pieces of 10 sold, %d left, %d refused", sold, s.stock(t, "kopi"), refused)
	}
	if r := s.do(t, "GET", "/v1/products?q=kopi", nil); r.at("products.0.stock") != "0" || r.at("products.0.available") != "false" {
		t.Errorf("sold out: %s", r.Body)
	}
	held := scalar[int](t, s.db, `SELECT sum(c.value ->> 'quantity') FROM orders, json_each(components) c WHERE c.value ->> 'reserved'`)
	if held != 10 {
		t.Errorf("orders hold %d pieces", held)
	}
}

func TestParallelSameIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	body := string(mustJSON(s.order("kopi", 1)))
	bodies := make([]string, 20)
	parallel(len(bodies), func(i int) {
		bodies[i] = string(s.do(t, "POST", "/v1/orders", body, "Idempotency-Key", "same").want(t, 201, "").Body)
	})
	if slices.Sort(bodies); bodies[0] != bodies[len(bodies)-1] {
		t.Errorf("different answers:\n%s\n%s", bodies[0], bodies[len(bodies)-1])
	}
	if n := scalar[int](t, s.db, "SELECT count(*) FROM orders"); n != 1 || s.stock(t, "kopi") != 9 {
		t.Errorf("%d orders, %d pieces left", n, s.stock(t, "kopi"))
	}
}

func TestKeysetWalkWhileOrdersArrive(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	before := map[string]bool{}
	for range 40 {
		before[s.create(t, "teh", 1)] = true
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
				}
			}
		})
	}
	var walked []string
	for page, more := "/v1/orders?limit=3", true; more; {
		s.create(t, "teh", 1) // at least one between any two pages
		r := s.do(t, "GET", page, nil).want(t, 200, "")
		for _, o := range r.list("orders") {
			walked = append(walked, o["id"].(string))
		}
		more = r.at("has_more") == "true"
		page = "/v1/orders?limit=3&starting_after=" + walked[len(walked)-1]
	}
	close(stop)
	wg.Wait()
	for i, id := range walked {
		delete(before, id)
		if i > 0 && id >= walked[i-1] {
			t.Errorf("%s after %s: repeated or not the newest first", id, walked[i-1])
		}
	}
	if len(before) > 0 {
		t.Errorf("%d orders skipped", len(before))
	}
}

// transitionTable is section 4 of the design: where a move leads from each state, "" if it is refused.
var transitionTable = map[Transition]map[Status]Status{
	BuyerClaims:       {Pending: AwaitingVerification},
	GatewayChallenges: {Pending: AwaitingVerification},
	GatewaySettles:    {Pending: Paid, AwaitingVerification: Paid, Expired: Paid, Failed: Paid},
	GatewayCancels:    {Pending: Failed, AwaitingVerification: Failed},
	GatewayRefunds:    {Paid: Refunded},
	GatewayReverses:   {Paid: Failed},
	OwnerApproves:     {Pending: Paid, AwaitingVerification: Paid, Expired: Paid, Failed: Paid},
	OwnerRejects:      {AwaitingVerification: Failed},
	OwnerCancels:      {Pending: Failed},
	OwnerRefunds:      {Paid: Refunded},
	ClockExpires:      {Pending: Expired},
}

func TestEveryMoveFromEveryStatus(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	reach := map[Status][]Transition{Pending: nil, AwaitingVerification: {BuyerClaims}, Paid: {OwnerApproves}, Failed: {OwnerCancels}, Expired: {ClockExpires}, Refunded: {OwnerApproves, OwnerRefunds}}
	left := map[Status]int{Pending: 8, AwaitingVerification: 8, Paid: 8, Failed: 10, Expired: 10, Refunded: 8}
	event := map[Status]string{AwaitingVerification: "orderAwaitingVerification", Paid: "orderPaid", Failed: "orderFailed", Expired: "orderExpired", Refunded: "orderRefunded"}
	if len(transitions) != len(transitionTable) {
		t.Errorf("%d transitions in the code, %d in the table", len(transitions), len(transitionTable))
	}
	move := func(id string, m Transition) (*Order, error) {
		return s.db.Transition(t.Context(), s.storeID, id, m, Note{Code: NoteText, Text: "test"})
	}
	for m, to := range transitionTable {
		for from, path := range reach {
			if err := s.db.write(t.Context(), func(tx *Tx) error { return tx.mustChange("UPDATE products SET stock = 10 WHERE slug = 'kopi'") }); err != nil {
				t.Fatal(err)
			}
			id := s.create(t, "duo", 1)
			for _, step := range path {
				if _, err := move(id, step); err != nil {
					t.Fatal(err)
				}
			}
			row := func() string {
				return scalar[string](t, s.db, "SELECT json || components || oversold || (SELECT count(*) FROM order_history WHERE order_id = o.id) FROM orders o WHERE id = ?", id)
			}
			before, events := row(), s.events(t, id)
			o, err := move(id, m)
			want := to[from]
			if want == "" {
				refusal, ok := err.(*APIError)
				if !ok || refusal.Code != codeOrderState || row() != before || s.events(t, id) != events || s.stock(t, "kopi") != left[from] {
					t.Errorf("%s from %s: %v, row %s", m, from, err, row())
				}
				continue
			}
			if err != nil {
				t.Errorf("%s from %s: %v", m, from, err)
				continue
			}
			read := s.do(t, "GET", "/v1/orders/"+id, nil)
			if o.Status != want || read.at("order.status") != string(want) || read.at("order.requires_payment") != "false" || read.at("order.updated_at") != o.UpdatedAt.String() {
				t.Errorf("%s from %s: %s, %s", m, from, o.Status, read.Body)
			}
			if got := s.events(t, id); got != events+" "+event[want] {
				t.Errorf("%s from %s: events %s", m, from, got)
			}
			if got := s.stock(t, "kopi"); got != left[want] {
				t.Errorf("%s from %s to %s: stock %d, want %d", m, from, want, got, left[want])
			}
			history := scalar[string](t, s.db, "SELECT from_status || '>' || to_status || ' ' || actor || ' ' || (note ->> 'text') FROM order_history WHERE order_id = ? ORDER BY position DESC LIMIT 1", id)
			if !strings.HasPrefix(history, string(from)+">"+string(want)+" ") || !strings.HasSuffix(history, " test") {
				t.Errorf("%s from %s: history %q", m, from, history)
			}
		}
	}
	if _, err := s.db.Transition(t.Context(), "another-store", s.create(t, "teh", 1), OwnerApproves, Note{}); err != errNotFound {
		t.Errorf("another store's move: %v", err)
	}
}

func TestPaidAfterItsStockWasSold(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	move := func(id string, m Transition) {
		t.Helper()
		if _, err := s.db.Transition(t.Context(), s.storeID, id, m, Note{}); err != nil {
			t.Fatal(err)
		}
	}
	late := s.create(t, "kopi", 6)
	move(late, ClockExpires)
	s.create(t, "kopi", 5)
	move(late, OwnerApproves) // 5 are left
	oversold := func() int { return scalar[int](t, s.db, "SELECT oversold FROM orders WHERE id = ?", late) }
	if oversold() != 1 || s.stock(t, "kopi") != 5 {
		t.Errorf("oversold %d, stock %d", oversold(), s.stock(t, "kopi"))
	}
	move(late, GatewayReverses) // it held nothing, so nothing comes back
	if oversold() != 0 || s.stock(t, "kopi") != 5 {
		t.Errorf("after a reversal: oversold %d, stock %d", oversold(), s.stock(t, "kopi"))
	}
	s.importCatalog(t, s.storeID, `{"products":[{"slug":"kopi","title":"Kopi","price":1,"stock":6}]}`)
	move(late, GatewaySettles)
	if oversold() != 0 || s.stock(t, "kopi") != 0 {
		t.Errorf("after restocking: oversold %d, stock %d", oversold(), s.stock(t, "kopi"))
	}
}

func TestSweeperExpiresOrders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		for range 130 { // more than one sweep's transaction
			s.create(t, "teh", 1)
		}
		id, claimed := s.create(t, "kopi", 4), s.create(t, "kopi", 1)
		if _, err := s.db.Transition(ctx, s.storeID, claimed, BuyerClaims, Note{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24*time.Hour - time.Minute)
		done := make(chan struct{})
		go func() { defer close(done); s.sweep(ctx) }()
		synctest.Wait()
		pending := func() int { return scalar[int](t, s.db, "SELECT count(*) FROM orders WHERE status = 'pending'") }
		if pending() != 131 || s.stock(t, "kopi") != 5 {
			t.Errorf("a minute early: %d pending, stock %d", pending(), s.stock(t, "kopi"))
		}
		time.Sleep(time.Minute + 30*time.Second)
		synctest.Wait()
		if pending() != 0 || s.stock(t, "kopi") != 9 || s.events(t, id) != "orderCreated orderExpired" {
			t.Errorf("%d pending, stock %d, events %s", pending(), s.stock(t, "kopi"), s.events(t, id))
		}
		if r := s.do(t, "GET", "/v1/orders/"+claimed, nil); r.at("order.status") != "awaiting_verification" {
			t.Errorf("an order under verification expired: %s", r.Body)
		}
		cancel()
		<-done
		if scalar[int](t, s.db, "SELECT count(*) FROM api_keys WHERE last_used_at IS NOT NULL") != 1 {
			t.Error("the key's use is not noted")
		}
	})
}
