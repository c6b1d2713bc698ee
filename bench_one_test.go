//go:build cgo

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// manyProducts compares orders in a shop with 50,000 products with orders in one with 40.
func (t *table) manyProducts(b *testing.B) {
	const products = 50_000
	binary := buildProgram(b)
	many := startBenchProgram(b, binary, unlimitedCatalog(products))
	few := startBenchProgram(b, binary, unlimitedCatalog(40))

	// The orders are for products from all over the catalog.
	var ids []string
	for offset := 0; offset < products; offset += 1000 {
		page := many.get(b, fmt.Sprintf("/v1/products?type=product&limit=50&offset=%d", offset))
		for _, product := range page.Products {
			ids = append(ids, product.ID)
		}
	}
	toMany, toFew := orderRequests(many.key, ids), few.posts(b)
	drive(many.addr, clients, toMany) // to warm up
	drive(few.addr, clients, toFew)

	c := compare(b,
		func() load { return drive(many.addr, clients, toMany) },
		func() load { return drive(few.addr, clients, toFew) })
	t.add(b, result{
		measure:  "durable `POST` in a shop with 50,000 products, against 40",
		value:    c.ratio(rate),
		target:   "≥ 0.9",
		measured: c.rates(),
	})
}

// oneClient compares one client's orders with a bare loop over the SQL statements of an order, in a file of its own on
// the same disk.
func (t *table) oneClient(b *testing.B) {
	p := startBenchProgram(b, buildProgram(b), unlimitedCatalog(40))
	requests := p.posts(b)
	loop := newOrderLoop(b)
	drive(p.addr, 1, requests) // to warm up
	loop.run(b)

	c := compare(b,
		func() load { return drive(p.addr, 1, requests) },
		func() load { return loop.run(b) })
	t.add(b, result{
		measure:  "durable `POST`, one client, against a bare loop over the SQL statements of an order",
		value:    c.ratio(rate),
		target:   "≥ 0.8",
		measured: c.rates(),
	})

	// What HTTP alone takes: as large a body and as large an answer.
	other := bare(b, sizeOf(b, p.addr, requests[0]))
	l := drive(other, 1, requests)
	fmt.Printf("one client: %.0f µs for a POST, %.0f µs for the loop, %.0f µs for a POST to a bare handler\n",
		1e6*perRequest(c.left[0]), 1e6*perRequest(c.right[0]), 1e6*perRequest(l))
}

// orderLoop runs the statements of an order one after another, on the writing connection. What Go does for an order is
// left out: its JSON is made once.
type orderLoop struct {
	db       *DB
	store    string
	keyHash  []byte
	products []string
	order    string // the JSON of an order whose id and reference are noID
	data     string // of its event
	ids      *Tx
}

const noID = "00000000-0000-0000-0000-000000000000"

func newOrderLoop(b *testing.B) *orderLoop {
	b.Helper()
	db, st, products := unlimitedShop(b)
	_, hash := newToken("so_")
	_, err := db.AddKey(b.Context(), st.ID, NewKey{Name: "bench", Scope: ScopeWrite}, hash)
	must(b, err)

	l := &orderLoop{db: db, store: st.ID, keyHash: hash[:], products: products, ids: &Tx{db: db}}
	o := benchOrder(noID, 1, 0)
	o.PaymentReference = noID
	o.ExternalID = ""
	o.Status = Pending
	l.order = string(mustJSON(o))
	l.data = string(st.eventData(l.order))
	return l
}

// run creates orders for a round.
func (l *orderLoop) run(b *testing.B) load {
	b.Helper()
	start := time.Now()
	n := 0
	for ; time.Since(start) < round; n++ {
		must(b, l.db.writer.with(func(c *connection) error { return l.create(c, n) }))
	}
	return load{sent: n, perSecond: float64(n) / time.Since(start).Seconds()}
}

// create runs the statements of the order number n.
func (l *orderLoop) create(c *connection, n int) error {
	now := timeOf(time.Now())
	l.ids.now = now
	id, eventID := l.ids.newID(), l.ids.newID()
	stored := strings.ReplaceAll(l.order, noID, id)
	body := eventStart + eventPrefix + eventID + `","data":` + strings.ReplaceAll(l.data, noID, id) + "}"

	var errs []error
	read := func(q querier, query string, args ...any) {
		errs = append(errs, q.each(query, args, func(row) error { return nil }))
	}
	exec := func(statement string, args ...any) {
		_, err := c.exec(statement, args...)
		errs = append(errs, err)
	}
	read(l.db.keys, sqlStoreOfKey, now, l.keyHash)
	exec("BEGIN IMMEDIATE")
	for k := range 3 {
		read(c, sqlProductForSale, l.products[(n+k*7)%len(l.products)], l.store)
	}
	read(c, sqlMethodTerms, l.store, "bank_transfer")
	exec(sqlInsertOrder, rowOf(id), l.store, Pending, id, ProviderManual, "", now, "[]", stored)
	exec(sqlAddTotals, l.store, dayOf(now), 1, 0)
	read(c, sqlEndpointsOf, now, l.store, OrderCreated)
	exec(sqlInsertEvent, rowOf(eventID), l.store, rowOf(id), 1, OrderCreated, body)
	exec("COMMIT")
	return errors.Join(errs...)
}
