//go:build cgo

package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)

		body := string(mustJSON(s.order("kopi", 1)))
		post := func(body any) reply {
			t.Helper()
			return s.post(t, body, "Idempotency-Key", "k-1")
		}

		// A refusal is not kept.
		post(s.order("kopi", 11)).want(t, 409, "OUT_OF_STOCK")

		first := post(body).want(t, 201, "")
		if got := first.Header.Get("Idempotent-Replayed"); got != "" {
			t.Errorf("the first answer has Idempotent-Replayed %q", got)
		}
		checkReplay(t, post(body), first)

		// The same key with another body is a mistake of the client.
		post(body+" ").want(t, 422, "IDEMPOTENCY_KEY_REUSED")

		// The answer is the first one even after the order has changed.
		s.move(t, first.at("order.id"), OwnerApproves)
		checkReplay(t, post(body), first)

		// A key is kept for 48 hours.
		time.Sleep(48*time.Hour - time.Millisecond)
		checkReplay(t, post(body), first)
		s.checkPurged(t, 0)

		// Then the same request creates another order, even while the old key is still stored.
		time.Sleep(time.Millisecond)
		second := post(body).want(t, 201, "")
		if got := second.Header.Get("Idempotent-Replayed"); got != "" {
			t.Errorf("after 48 hours the answer has Idempotent-Replayed %q", got)
		}
		if second.at("order.id") == first.at("order.id") {
			t.Error("after 48 hours the answer is the first order")
		}
		time.Sleep(48 * time.Hour)
		s.checkPurged(t, 1)
	})
}

// TestNewReference takes references one after another, while the clock goes on, stands still and is set back.
func TestNewReference(t *testing.T) {
	t.Parallel()
	tx := &Tx{db: &DB{}}
	for _, c := range []struct{ at, want string }{
		{"2026-01-31T17:00:00.000Z", "INV-20260201-000000"}, // midnight in WIB
		{"2026-01-31T17:00:00.000Z", "INV-20260201-000001"},
		{"2026-01-31T17:00:00.001Z", "INV-20260201-00000C"},
		{"2026-02-01T03:00:00.000Z", "INV-20260201-CVZK00"},
		{"2026-02-01T02:59:59.000Z", "INV-20260201-CVZK01"}, // set back by a second: the next number
		{"2026-02-01T02:00:00.000Z", "INV-20260201-BJS7G0"}, // by an hour: it begins again
		{"2026-02-01T16:59:59.999Z", "INV-20260201-YWRKZM"},
	} {
		must(t, tx.now.UnmarshalText([]byte(c.at)))
		if got := tx.newReference(); got != c.want {
			t.Errorf("at %s the reference is %s, want %s", c.at, got, c.want)
		}
	}

	// A millisecond has 12 numbers. The orders of one that has more take those of the next.
	before := ""
	for range 100 {
		got := tx.newReference()
		if got <= before {
			t.Fatalf("%s comes after %s", got, before)
		}
		before = got
	}
	if want := "INV-20260202-00002R"; before != want {
		t.Errorf("the last reference is %s, want %s", before, want)
	}
}

// TestTakenReference has two orders begin at the same number: the second gets the next reference.
func TestTakenReference(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	ahead := int64(s.db.Now().Add(wibAhead+30*time.Second)) * 12

	var got []string
	for range 2 {
		must(t, s.db.write(t.Context(), func(tx *Tx) error {
			tx.db.reference = ahead
			return nil
		}))
		id := s.create(t, "teh", 1)
		got = append(got, scalar[string](t, s.db, "SELECT reference FROM orders WHERE id = ?", id))
	}
	if got[0] >= got[1] {
		t.Errorf("references %q", got)
	}
}

// checkReplay checks that an answer is the first one again.
func checkReplay(t *testing.T, again, first reply) {
	t.Helper()
	again.want(t, 201, "")
	if !bytes.Equal(again.Body, first.Body) {
		t.Errorf("the answer is %s, but the first one was %s", again.Body, first.Body)
	}
	if got := again.Header.Get("Idempotent-Replayed"); got != "true" {
		t.Errorf("Idempotent-Replayed %q, want true", got)
	}
	if got, want := again.Header.Get("Location"), first.Header.Get("Location"); got != want {
		t.Errorf("Location %q, want %q", got, want)
	}
}

// checkPurged checks that this many idempotency keys are too old.
func (s *testServer) checkPurged(t *testing.T, want int64) {
	t.Helper()
	got, err := s.db.PurgeIdempotencyKeys(t.Context(), 1000)
	must(t, err)
	if got != want {
		t.Errorf("%d keys are purged, want %d", got, want)
	}
}

func TestParallelSameIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	body := string(mustJSON(s.order("kopi", 1)))
	answers := make([]string, 20)
	parallel(len(answers), func(i int) {
		r := s.post(t, body, "Idempotency-Key", "same").want(t, 201, "")
		answers[i] = string(r.Body)
	})

	if different := slices.Compact(answers); len(different) != 1 {
		t.Errorf("different answers: %s", different)
	}
	if n := scalar[int](t, s.db, "SELECT count(*) FROM orders"); n != 1 {
		t.Errorf("%d orders, want 1", n)
	}
	if got := s.stock(t, "kopi"); got != 9 {
		t.Errorf("%d pieces are left, want 9", got)
	}
}

func TestFreeOrderIsPaidAtOnce(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	body := s.order("gratis", 3)
	delete(body, "payment_method")
	r := s.post(t, body).want(t, 201, "")
	id := r.at("order.id")

	r.wantData(t, map[string]string{
		"order.status":             "paid",
		"order.amount":             "0",
		"order.requires_payment":   "false",
		"order.payment_method":     "none",
		"order.payment_provider":   "none",
		"order.settlement_channel": "none",
	})
	if expires := r.at("order.expires_at"); !timeText.MatchString(expires) {
		t.Errorf("it expires at %s", expires)
	}
	if got := s.get(t, "/v1/orders/"+id).at("payment_session.status"); got != "none" {
		t.Errorf("its payment session is %s, want none", got)
	}
	if got := s.events(t, id); got != "orderCreated orderPaid" {
		t.Errorf("its events are %s", got)
	}

	// The fee and the bounds of a payment method are not for free orders.
	r = s.post(t, with(s.order("gratis", 1), "payment_method", "bank_fee")).want(t, 201, "")
	if got := r.at("order.amount"); got != "0" {
		t.Errorf("with a payment method it costs %s", got)
	}
}

func TestOrderAmount(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	for name, c := range map[string]struct {
		method             string
		shipping, discount int64
		amount, fee        string
	}{
		"shipping":                   {"bank_transfer", 9000, 0, "94000", "0"},
		"discount":                   {"bank_transfer", 0, 84999, "1", "0"},
		"shipping, discount and fee": {"bank_fee", 9000, 5000, "93000", "4000"},

		// The method's bounds are those of the subtotal, which is 85,000.
		"a discount below the bound": {"bank_fee", 0, 80000, "9000", "4000"},
		"shipping above the bound":   {"bank_fee", 500000, 0, "589000", "4000"},
	} {
		t.Run(name, func(t *testing.T) {
			body := with(s.order("kopi", 1), "payment_method", c.method)
			body = with(with(body, "shipping_fee", c.shipping), "discount", c.discount)
			r := s.post(t, body).want(t, 201, "")
			r.wantData(t, map[string]string{
				"order.subtotal":     "85000",
				"order.shipping_fee": strconv.FormatInt(c.shipping, 10),
				"order.discount":     strconv.FormatInt(c.discount, 10),
				"order.fee":          c.fee,
				"order.amount":       c.amount,
				"order.status":       "pending",
			})
		})
	}

	t.Run("shipping of free goods is paid for", func(t *testing.T) {
		r := s.post(t, with(s.order("gratis", 1), "shipping_fee", 9000)).want(t, 201, "")
		r.wantData(t, map[string]string{"order.status": "pending", "order.amount": "9000"})
	})

	t.Run("a discount of everything leaves nothing to pay", func(t *testing.T) {
		body := with(with(s.order("kopi", 1), "shipping_fee", 9000), "discount", 94000)
		r := s.post(t, with(body, "payment_method", "bank_fee")).want(t, 201, "")
		r.wantData(t, map[string]string{
			"order.status":         "paid",
			"order.amount":         "0",
			"order.fee":            "0",
			"order.payment_method": "none",
		})
		if paid, created := r.at("order.paid_at"), r.at("order.created_at"); paid != created {
			t.Errorf("paid at %s, created at %s", paid, created)
		}
	})
}

func TestOrderKeepsNoteAndMetadata(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	body := with(s.order("kopi", 1), "note", "Tanpa gula.\nTitip di satpam.")
	body = with(body, "metadata", object{"channel": "instagram", "Cart_7-b": ""})
	created := s.post(t, body).want(t, 201, "")
	id := created.at("order.id")
	created.wantData(t, map[string]string{
		"order.note":              "Tanpa gula.\nTitip di satpam.",
		"order.metadata.channel":  "instagram",
		"order.metadata.Cart_7-b": "",
	})

	t.Run("also when the order changes, and in events", func(t *testing.T) {
		s.move(t, id, OwnerApproves)
		list := s.get(t, "/v1/events?event=orderPaid&order_id="+id)
		list.wantData(t, map[string]string{
			"events.0.data.order.note":              "Tanpa gula.\nTitip di satpam.",
			"events.0.data.order.metadata.channel":  "instagram",
			"events.0.data.order.metadata.Cart_7-b": "",
		})
	})

	t.Run("what is not given is not shown", func(t *testing.T) {
		r := s.post(t, with(with(s.order("teh", 1), "note", ""), "metadata", object{})).want(t, 201, "")
		for _, field := range []string{"note", "metadata", "paid_at"} {
			if got := r.at("order." + field); got != "<nil>" {
				t.Errorf("%s: %s", field, got)
			}
		}
	})
}

func TestPaidAt(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	id := s.create(t, "kopi", 1)
	shown := func() (paidAt, updatedAt string) {
		r := s.get(t, "/v1/orders/"+id)
		return r.at("order.paid_at"), r.at("order.updated_at")
	}

	if paidAt, _ := shown(); paidAt != "<nil>" {
		t.Errorf("before it is paid: %s", paidAt)
	}
	s.move(t, id, OwnerApproves)
	first, updated := shown()
	if first != updated {
		t.Errorf("paid at %s, changed at %s", first, updated)
	}

	t.Run("a reversal ends it, and the next payment begins it anew", func(t *testing.T) {
		s.move(t, id, GatewayReverses)
		if paidAt, _ := shown(); paidAt != "<nil>" {
			t.Errorf("after a reversal: %s", paidAt)
		}
		s.move(t, id, GatewaySettles)
		if paidAt, updated := shown(); paidAt != updated {
			t.Errorf("paid at %s, changed at %s", paidAt, updated)
		}
	})

	t.Run("a refund keeps it", func(t *testing.T) {
		before, _ := shown()
		s.move(t, id, OwnerRefunds)
		if after, _ := shown(); after != before {
			t.Errorf("after a refund %s, before %s", after, before)
		}
	})
}

func TestManualPaymentEndsAsItsOrder(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	for _, c := range []struct {
		steps []Transition
		want  string
	}{
		{nil, "manual"},
		{[]Transition{BuyerClaims}, "manual"},
		{[]Transition{OwnerApproves}, "paid"},
		{[]Transition{BuyerClaims, OwnerRejects}, "failed"},
		{[]Transition{OwnerCancels}, "failed"},
		{[]Transition{OwnerApproves, OwnerRefunds}, "paid"},
		{[]Transition{ClockExpires}, "expired"},
	} {
		id := s.create(t, "teh", 1)
		for _, step := range c.steps {
			s.move(t, id, step)
		}
		if got := s.get(t, "/v1/orders/"+id).at("payment_session.status"); got != c.want {
			t.Errorf("after %q: %s, want %s", c.steps, got, c.want)
		}
	}
}

func TestOrderKeepsItsPrices(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	created := s.post(t, with(s.order("kopi", 1), "payment_method", "bank_fee")).want(t, 201, "")
	created.wantData(t, map[string]string{
		"order.subtotal": "85000",
		"order.amount":   "89000",
	})

	s.importCatalog(t, s.storeID, `{
		"products": [{"slug": "kopi", "title": "Kopi baru", "price": 1}],
		"payment_methods": [{"code": "bank_fee", "name": "T", "provider": "manual", "fee": 9}]
	}`)
	read := s.get(t, "/v1/orders/"+created.at("order.id"))
	if got, want := read.at("order"), created.at("order"); got != want {
		t.Errorf("after the catalog changed the order is %s, want %s", got, want)
	}
}

func TestParallelBuyersOfTheLastPieces(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	var sold, refused atomic.Int64
	parallel(24, func(i int) {
		body, pieces := s.order("kopi", 1), int64(1)
		if i%3 == 0 {
			body, pieces = s.order("duo", 1), 2
		}
		for range 2 {
			r := s.post(t, body)
			if r.Status == 201 {
				sold.Add(pieces)
				continue
			}
			r.want(t, 409, "OUT_OF_STOCK")
			refused.Add(1)
		}
	})

	if got := sold.Load(); got != 10 {
		t.Errorf("%d pieces of 10 are sold", got)
	}
	if refused.Load() == 0 {
		t.Error("no buyer is refused")
	}
	if got := s.stock(t, "kopi"); got != 0 {
		t.Errorf("%d pieces are left", got)
	}

	reserved := scalar[int](t, s.db, `
		SELECT sum(c.value ->> 'quantity')
		FROM   orders, json_each(components) c
		WHERE  c.value ->> 'reserved'`)
	if reserved != 10 {
		t.Errorf("the orders have reserved %d pieces of 10", reserved)
	}
	s.get(t, "/v1/products?q=kopi").wantData(t, map[string]string{
		"products.0.stock":     "0",
		"products.0.available": "false",
	})
}

// TestStoredComponents checks that an order keeps only the components that do not follow from its items, and that those
// which do are reserved like all others when they are needed.
func TestStoredComponents(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	kept := func(id string) string {
		return scalar[string](t, s.db, "SELECT components FROM orders WHERE id = ?", id)
	}

	unlimited := s.create(t, "teh", 3)
	if got := kept(unlimited); got != "[]" {
		t.Errorf("an order of unlimited products keeps %s, want []", got)
	}
	s.exec(t, "UPDATE products SET price = 1000 WHERE id = ?", s.ids["mahal"])
	for _, items := range [][]any{{"teh", 1, "mahal", 2}, {"mahal", 2, "teh", 1}} {
		if got := kept(s.create(t, items...)); got != "[]" {
			t.Errorf("an order of %v keeps %s, want []", items, got)
		}
	}
	for _, slug := range []string{"kopi", "duo"} {
		if got := kept(s.create(t, slug, 1)); !strings.Contains(got, `"reserved":true`) {
			t.Errorf("an order of %s keeps %s, want a reserved component", slug, got)
		}
	}

	// The order ends, teh is limited meanwhile, and the order is paid after all.
	s.move(t, unlimited, OwnerCancels)
	s.exec(t, "UPDATE products SET stock = 5 WHERE id = ?", s.ids["teh"])
	s.move(t, unlimited, OwnerApproves)
	if got := s.stock(t, "teh"); got != 2 {
		t.Errorf("%d pieces of teh are left of 5, want 2", got)
	}
	if got := kept(unlimited); !strings.Contains(got, `"reserved":true`) {
		t.Errorf("the paid order keeps %s, want a reserved component", got)
	}
}

// TestPagesWhileOrdersArrive walks through the orders page by page: none that was there before is skipped,
// and none comes twice.
func TestPagesWhileOrdersArrive(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	missing := map[string]bool{}
	for range 40 {
		missing[s.create(t, "teh", 1)] = true
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
					s.post(t, s.order("teh", 1)).want(t, 201, "")
				}
			}
		})
	}

	const first = "/v1/orders?limit=3"
	path := first
	last := "~" // after all ids
	for more := true; more; {
		s.create(t, "teh", 1) // at least one between any two pages
		r := s.get(t, path)
		for _, o := range r.list("orders") {
			id := o["id"].(string)
			if id >= last {
				t.Errorf("%s after %s: repeated, or not the newest first", id, last)
			}
			delete(missing, id)
			last = id
		}
		more = r.at("has_more") == "true"
		path = first + "&starting_after=" + last
	}
	close(stop)
	wg.Wait()

	if len(missing) > 0 {
		t.Errorf("%d orders are skipped", len(missing))
	}
}

// pathTo is how an order gets into a status.
var pathTo = map[Status][]Transition{
	Pending:              nil,
	AwaitingVerification: {BuyerClaims},
	Paid:                 {OwnerApproves},
	Failed:               {OwnerCancels},
	Expired:              {ClockExpires},
	Refunded:             {OwnerApproves, OwnerRefunds},
}

// stockDuring is the stock of "kopi", ten pieces, while an order of two is in a status.
var stockDuring = map[Status]int{
	Pending:              8,
	AwaitingVerification: 8,
	Paid:                 8,
	Failed:               10,
	Expired:              10,
	Refunded:             8,
}

func TestEveryTransitionFromEveryStatus(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	leads := map[Transition]map[Status]Status{}
	for _, c := range readCases(t, "testdata/transitions.txt") {
		transition := Transition(c.heading)
		if leads[transition] == nil {
			leads[transition] = map[Status]Status{}
		}
		leads[transition][Status(c.column(0))] = Status(c.column(1))
	}
	if len(leads) != len(transitions) {
		t.Errorf("%d transitions in the table, %d in the program", len(leads), len(transitions))
	}

	for transition, to := range leads {
		for _, from := range statuses {
			t.Run(fmt.Sprintf("%s from %s", transition, from), func(t *testing.T) {
				s.exec(t, "UPDATE products SET stock = 10 WHERE slug = 'kopi'")
				id := s.create(t, "duo", 1)
				for _, step := range pathTo[from] {
					s.move(t, id, step)
				}

				if to[from] == "" {
					s.checkRefused(t, id, transition)
				} else {
					s.checkTransition(t, id, transition, from, to[from])
				}
			})
		}
	}
}

// checkRefused checks that a transition is refused and changes nothing.
func (s *testServer) checkRefused(t *testing.T, id string, transition Transition) {
	t.Helper()
	const query = `
		SELECT json || components || (SELECT count(*) FROM order_history WHERE order_row = o.row)
		FROM   orders o
		WHERE  id = ?`
	type state struct {
		row, events string
		stock       int
	}
	read := func() state {
		return state{
			row:    scalar[string](t, s.db, query, id),
			events: s.events(t, id),
			stock:  s.stock(t, "kopi"),
		}
	}

	before := read()
	_, err := s.db.Transition(t.Context(), s.storeID, id, transition, Note{})
	checkRefusal(t, err, codeOrderState)
	if after := read(); after != before {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
}

// checkTransition performs a transition and checks everything that changes with it.
func (s *testServer) checkTransition(t *testing.T, id string, transition Transition, from, to Status) {
	t.Helper()
	eventsBefore := s.events(t, id)
	note := Note{Code: NoteText, Text: "test"}
	o, err := s.db.Transition(t.Context(), s.storeID, id, transition, note)
	must(t, err)

	if o.Status != to {
		t.Errorf("it returns an order that is %s, want %s", o.Status, to)
	}
	s.get(t, "/v1/orders/"+id).wantData(t, map[string]string{
		"order.status":           string(to),
		"order.requires_payment": fmt.Sprint(to == Pending),
		"order.updated_at":       o.UpdatedAt.String(),
	})

	event, _ := strings.CutPrefix(s.events(t, id), eventsBefore+" ")
	if statusAfter[event] != to {
		t.Errorf("the events %s are followed by %s", eventsBefore, event)
	}
	if got, want := s.stock(t, "kopi"), stockDuring[to]; got != want {
		t.Errorf("stock %d, want %d", got, want)
	}

	history := scalar[string](t, s.db, `
		SELECT from_status || ' > ' || to_status || ': ' || (note ->> 'text')
		FROM   order_history
		WHERE  order_row = (SELECT row FROM orders WHERE id = ?)
		ORDER BY position DESC LIMIT 1`, id)
	if want := fmt.Sprintf("%s > %s: test", from, to); history != want {
		t.Errorf("history %q, want %q", history, want)
	}
}

func TestTransitionOfAnotherStoresOrder(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	id := s.create(t, "teh", 1)
	_, err := s.db.Transition(t.Context(), "another-store", id, OwnerApproves, Note{})
	if err != errNotFound {
		t.Errorf("error %v, want %v", err, errNotFound)
	}
}

func TestPaidAfterItsStockWasSold(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	late := s.create(t, "kopi", 6)
	check := func(oversold bool, stock int) {
		t.Helper()
		got := scalar[bool](t, s.db,
			"SELECT EXISTS (SELECT 1 FROM alerts WHERE order_row = (SELECT row FROM orders WHERE id = ?) AND code = 'oversold' AND resolved_at IS NULL)", late)
		if got != oversold {
			t.Errorf("oversold %t, want %t", got, oversold)
		}
		if got := s.stock(t, "kopi"); got != stock {
			t.Errorf("stock %d, want %d", got, stock)
		}
	}

	// Its pieces are released when it expires, and five of the ten are sold. Then it is paid after all.
	s.move(t, late, ClockExpires)
	s.create(t, "kopi", 5)
	s.move(t, late, OwnerApproves)
	check(true, 5)

	// It reserved nothing, so nothing is released.
	s.move(t, late, GatewayReverses)
	check(false, 5)

	s.importCatalog(t, s.storeID, `{"products": [{"slug": "kopi", "title": "Kopi", "price": 1, "stock": 6}]}`)
	s.move(t, late, GatewaySettles)
	check(false, 0)
}

func TestSweeperExpiresOrders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)

		for range 130 { // more than one transaction of the sweeper
			s.create(t, "teh", 1)
		}
		id := s.create(t, "kopi", 4)
		claimed := s.create(t, "kopi", 1)
		s.move(t, claimed, BuyerClaims)
		check := func(pending, stock int) {
			t.Helper()
			got := scalar[int](t, s.db, "SELECT count(*) FROM orders WHERE status = 'pending'")
			if got != pending {
				t.Errorf("%d orders are pending, want %d", got, pending)
			}
			if got := s.stock(t, "kopi"); got != stock {
				t.Errorf("stock %d, want %d", got, stock)
			}
		}

		// A minute early nothing expires.
		time.Sleep(24*time.Hour - time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.sweep(ctx)
		}()
		synctest.Wait()
		check(131, 5)

		// Then all do, except the one that awaits verification.
		time.Sleep(time.Minute + 30*time.Second)
		synctest.Wait()
		check(0, 9)
		if got := s.events(t, id); got != "orderCreated orderExpired" {
			t.Errorf("events %s", got)
		}
		if got := s.get(t, "/v1/orders/"+claimed).at("order.status"); got != "awaiting_verification" {
			t.Errorf("the order under verification is %s", got)
		}

		// The sweeper also writes when keys were used.
		cancel()
		<-done
		used := scalar[int](t, s.db, "SELECT count(*) FROM api_keys WHERE last_used_at IS NOT NULL")
		if used != 1 {
			t.Errorf("%d keys were used, want 1", used)
		}
	})
}
