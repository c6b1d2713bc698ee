//go:build cgo

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
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

	// How far a server could get, with bodies as large in both directions.
	size := sizeOf(b, p.addr, requests[0])
	for _, server := range []struct {
		name                 string
		overHTTP, statements bool
	}{
		{name: "a handler that only answers", overHTTP: true},
		{name: "a handler that runs the loop's statements", overHTTP: true, statements: true},
		{name: "a bare socket, which only answers"},
		{name: "a bare socket that runs the loop's statements", statements: true},
	} {
		addr := smallServer(b, size, server.overHTTP, server.statements)
		c := compare(b,
			func() load { return drive(addr, 1, requests) },
			func() load { return loop.run(b) })
		fmt.Printf("one client, %s, against the loop: %.3f (%s)\n", server.name, c.ratio(rate), c.rates())
	}
}

// smallServer starts a server that answers every request with the same body, of some size. It runs the statements of
// an order first, or none. It is a process of its own, as the service is: when the client is in its process, a request
// takes half the time.
//
// It serves HTTP, or a bare socket. With a bare socket there is one goroutine, whose thread blocks in read(2), and each
// read counts as a request.
func smallServer(b *testing.B, size int, overHTTP, statements bool) (addr string) {
	b.Helper()
	exe, err := os.Executable()
	must(b, err)
	addr = freeAddr(b)
	b.Setenv("TMPDIR", b.TempDir()) // The process is killed, and leaves its files there.
	launch(b, exe, "-test.run", "^$", "-test.bench", "^BenchmarkSmallServer$", "-test.benchtime", "1x",
		"-small-addr", addr, "-small-size", fmt.Sprint(size),
		fmt.Sprintf("-small-http=%t", overHTTP), fmt.Sprintf("-small-statements=%t", statements))
	awaitAnswer(b, addr, []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	return addr
}

var (
	smallAddr       = flag.String("small-addr", "", "the `address` of BenchmarkSmallServer")
	smallSize       = flag.Int("small-size", 0, "how many `bytes` it answers")
	smallHTTP       = flag.Bool("small-http", false, "whether it serves HTTP")
	smallStatements = flag.Bool("small-statements", false, "whether it runs the statements of an order")
)

// BenchmarkSmallServer measures nothing: it is what smallServer starts, and serves until it is killed.
func BenchmarkSmallServer(b *testing.B) {
	if *smallAddr == "" {
		b.Skip("it is started by another benchmark")
	}
	l := newOrderLoop(b)
	n := 0
	order := func() {
		if !*smallStatements {
			return
		}
		n++
		if err := l.db.writer.with(func(c *connection) error { return l.create(c, n) }); err != nil {
			panic(err)
		}
	}

	body := strings.Repeat("x", *smallSize)
	if !*smallHTTP {
		serveSocket(b, *smallAddr, body, order)
		return
	}
	var mu sync.Mutex
	must(b, http.ListenAndServe(*smallAddr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		mu.Lock()
		order()
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		io.WriteString(w, body)
	})))
}

// serveSocket answers every read with the same bytes, one connection after another, until the process is killed.
func serveSocket(b *testing.B, addr, body string, order func()) {
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	request := make([]byte, 64<<10)
	ln, err := net.Listen("tcp", addr)
	must(b, err)
	runtime.LockOSThread()
	for {
		conn, err := ln.Accept()
		must(b, err)
		socket, err := conn.(*net.TCPConn).File()
		must(b, err)
		conn.Close()
		socket.Fd() // From now on, its reads and writes block the thread.
		for {
			if _, err := socket.Read(request); err != nil {
				break
			}
			order()
			socket.Write(answer)
		}
		socket.Close()
	}
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
