//go:build cgo

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
)

// How fast the service is, beside what bounds it. One command prints the whole table:
//
//	go test -run '^$' -bench Targets -benchtime 1x -timeout 30m
//
// Every ratio is the median of rounds that take turns, so that a busy machine slows both sides. The clients are bare
// keep-alive connections that cost little beside the server they share the processor with.

const (
	clients = 64
	rounds  = 9
	round   = time.Second
)

// bench is the service on a database of its own, as "storeorder serve" runs it, with one store.
type bench struct {
	db   *DB
	st   Store
	key  string
	addr string
	stop func()
}

// newBench opens file and serves it. wrap, if not nil, changes how the database works first.
func newBench(b *testing.B, file string, wrap func(*DB) *DB) *bench {
	s := &bench{db: open(b, file)}
	if wrap != nil {
		s.db = wrap(s.db)
	}
	s.st, s.key = storeOf(b, s.db)
	s.serve(b)
	return s
}

func (s *bench) serve(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	s.addr = ln.Addr().String()
	go func() {
		served <- serveOn(ctx, ln, s.db, settings{publicURL: "http://orders.example.id", allowPrivate: true, rate: 1e9, burst: 1e9},
			slog.New(slog.NewTextHandler(null, nil)))
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			b.Error(err)
		}
		null.Close()
	})
	b.Cleanup(s.stop)
}

func open(b *testing.B, file string) *DB {
	db, err := openDB(file, true)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return db
}

// storeOf returns the store of a file, made with 30 products, 10 bundles and a payment method if there is none, and
// a new key. Every product has a limited stock, so that each order takes some.
func storeOf(b *testing.B, db *DB) (Store, string) {
	all, err := db.Stores()
	if err != nil {
		b.Fatal(err)
	}
	if len(all) == 0 {
		st, err := db.AddStore(b.Context(), Store{Name: "Kopi Kita", Slug: "kopi-kita", Plan: "growth", Expiry: 24 * time.Hour, OwnerEmail: "owner@example.id"},
			PasswordHash{[]byte("salt"), []byte("hash")})
		if err != nil {
			b.Fatal(err)
		}
		var c Catalog
		has := map[string]bool{"stock": true, "published": true}
		for i := range 30 {
			stock := int64(1e12)
			c.Products = append(c.Products, CatalogEntry{Product{Slug: fmt.Sprint("kopi-", i), Title: fmt.Sprintf("Kopi nomor %02d, 250 g", i),
				Description: strings.Repeat("Arabika dari dataran tinggi. ", 4), Price: 85_000, Stock: &stock, Published: true}, has})
		}
		for i := range 10 {
			c.Bundles = append(c.Bundles, CatalogEntry{Product{Slug: fmt.Sprint("paket-", i), Title: fmt.Sprintf("Paket nomor %02d", i),
				Description: "Tiga kopi.", Price: 240_000, Published: true, Items: []BundleItem{
					{Slug: fmt.Sprint("kopi-", i), Quantity: 1}, {Slug: fmt.Sprint("kopi-", i+10), Quantity: 1}, {Slug: fmt.Sprint("kopi-", i+20), Quantity: 1}}}, has})
		}
		c.PaymentMethods = []MethodEntry{{PaymentMethod: PaymentMethod{Code: "bank_transfer", Name: "Transfer", Provider: "manual", Enabled: true}}}
		if err := db.ImportCatalog(b.Context(), st.ID, c); err != nil {
			b.Fatal(err)
		}
		all = []Store{st}
	}
	key, hash := newToken("so_")
	if _, err := db.AddKey(b.Context(), all[0].ID, "bench", hash); err != nil {
		b.Fatal(err)
	}
	return all[0], key
}

func addEndpoint(b *testing.B, db *DB, st Store, url string) string {
	id, err := db.AddEndpoint(b.Context(), st.ID, url, nil, newSecret())
	if err != nil {
		b.Fatal(err)
	}
	return id
}

// oneByOne makes every write a transaction of its own, as a service without group commit has it: the same code between
// BEGIN IMMEDIATE and COMMIT, without savepoints. The writer of db itself gets nothing to do.
func oneByOne(db *DB) *DB {
	front := *db
	front.jobs = make(chan *job)
	go func() {
		for {
			select {
			case j := <-front.jobs:
				_, err := db.begin.Exec()
				if err == nil {
					err = db.callJob(j)
				}
				if err == nil {
					_, err = db.commit.Exec()
				} else {
					db.rollback.Exec()
				}
				j.err = err
				close(j.done)
			case <-db.closing:
				return
			}
		}
	}()
	return &front
}

// synchronousNormal leaves the disk's sync to the checkpoints: a power cut may take the last orders along.
func synchronousNormal(db *DB) *DB {
	db.writer.Exec("PRAGMA synchronous = NORMAL")
	return db
}

// bare serves size bytes with net/http and nothing else.
func bare(b *testing.B, size int) (addr string) {
	body, length := bytes.Repeat([]byte("x"), size), strconv.Itoa(size)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", length)
		w.Write(body)
	}))
	b.Cleanup(hs.Close)
	return hs.Listener.Addr().String()
}

// seed makes n orders with the code that serves POST /v1/orders, a thousand to a transaction and not synced. Each
// leaves what the service leaves: the order, its history, its stock, its event and one delivery an endpoint. Every
// fourth is then paid, with all that this writes. They are spread over the last 30 days. The deliveries are made,
// unless they are to wait.
func seed(b *testing.B, db *DB, st Store, n int, wait bool) {
	list, err := db.Products(st.ID, ProductFilter{Products: true, Limit: 50})
	products := list.Products
	if err != nil {
		b.Fatal(err)
	}
	db.writer.Exec("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144")
	defer db.writer.Exec("PRAGMA synchronous = FULL; PRAGMA cache_size = -2000; PRAGMA wal_checkpoint(TRUNCATE)")
	now := Time(time.Now().UnixMilli())
	st.Expiry = 60 * 24 * time.Hour // so that the service has none to expire while it is measured
	for done := 0; done < n; {
		err := db.write(b.Context(), func(tx *Tx) error {
			for range min(1000, n-done) {
				tx.now = now.Add(-30 * 24 * time.Hour / time.Duration(n) * time.Duration(n-done))
				in := NewOrder{Buyer: Buyer{Name: "Siti Rahayu", Email: "siti@example.id", Phone: "+628123456789"}, PaymentMethod: "bank_transfer"}
				for k := range 3 {
					in.Items = append(in.Items, NewItem{Kind: KindProduct, ID: products[(done+k*7)%len(products)].ID, Quantity: int64(1 + k)})
				}
				created, err := tx.createOrder(st, in)
				if err == nil && done%4 == 0 {
					_, err = tx.transition(created.ID, OwnerApproves, Note{Code: NoteInDashboard})
				}
				if err != nil {
					return err
				}
				done++
			}
			if wait {
				return nil
			}
			_, err := tx.exec("UPDATE deliveries SET status = 'delivered', attempt = 1, next_at = NULL, tried_at = ?, answer_status = 200 WHERE next_at IS NOT NULL", tx.now)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// orderIDs are up to n ids of orders from all over the file.
func orderIDs(b *testing.B, db *DB, n int) []string {
	ids, err := collect(db.reader, column[string], "SELECT id FROM orders ORDER BY id")
	if err != nil || len(ids) == 0 {
		b.Fatal("no orders: ", err)
	}
	rand.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
	return slices.Clone(ids[:min(n, len(ids))])
}

func (s *bench) get(path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: orders.example.id\r\nAuthorization: Bearer %s\r\n\r\n", path, s.key)
}

func (s *bench) gets(format string, values []string) (all [][]byte) {
	for _, v := range values {
		all = append(all, s.get(fmt.Sprintf(format, v)))
	}
	return all
}

// posts are requests for orders of three items.
func (s *bench) posts(b *testing.B) (all [][]byte) {
	list, err := s.db.Products(s.st.ID, ProductFilter{Products: true, Limit: 50})
	products := list.Products
	if err != nil {
		b.Fatal(err)
	}
	for i := range products {
		var items []object
		for k := range 3 {
			items = append(items, object{"type": "product", "product_id": products[(i+k*7)%len(products)].ID, "quantity": 1 + k})
		}
		body := mustJSON(object{"items": items, "payment_method": "bank_transfer",
			"buyer": object{"name": "Siti Rahayu", "email": "siti@example.id", "phone": "+628123456789"}})
		all = append(all, fmt.Appendf(nil, "POST /v1/orders HTTP/1.1\r\nHost: orders.example.id\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			s.key, len(body), body))
	}
	return all
}

// client is one keep-alive connection.
type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(addr string) (*client, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{c, bufio.NewReaderSize(c, 64<<10)}, nil
}

// do sends a request and reads the answer, of which it returns the status and the body's length.
func (c *client) do(request []byte) (status, length int, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, 0, err
	}
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		switch name, value, _ := bytes.Cut(line, []byte(": ")); {
		case first:
			status, _ = strconv.Atoi(string(line[9:12]))
		case string(name) == "Content-Length":
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		case len(line) <= 2:
			_, err := c.r.Discard(length)
			return status, length, err
		}
	}
}

// sizeOf is how many bytes the answer to a request has.
func sizeOf(b *testing.B, addr string, request []byte) int {
	c, err := dial(addr)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	status, length, err := c.do(request)
	if err != nil || status/100 != 2 {
		b.Fatal("status ", status, err)
	}
	return length
}

// load is what a round of requests came to.
type load struct {
	n, failed int
	perSecond float64
	p50, p99  time.Duration
}

// drive lets n clients send requests, one after another and each at random, for a time, or until total are sent.
func drive(addr string, n int, d time.Duration, total int64, requests [][]byte) load {
	var sent, failed atomic.Int64
	took := make([][]time.Duration, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			c, err := dial(addr)
			if err != nil {
				failed.Add(1)
				return
			}
			defer c.Close()
			for (d == 0 || time.Since(start) < d) && (total == 0 || sent.Add(1) <= total) {
				begun := time.Now()
				status, _, err := c.do(requests[rand.IntN(len(requests))])
				if err != nil || status/100 != 2 {
					failed.Add(1)
					if err != nil {
						return
					}
				}
				took[i] = append(took[i], time.Since(begun))
			}
		})
	}
	wg.Wait()
	return summarize(slices.Concat(took...), int(failed.Load()), time.Since(start))
}

// pace sends perSecond requests a second for a time, however long the answers take. A request's time runs from the
// moment it was due.
func pace(addr string, perSecond int, d time.Duration, requests [][]byte) load {
	type due struct{ at time.Time }
	queue := make(chan due, int(d.Seconds()+1)*perSecond)
	var failed atomic.Int64
	took := make([][]time.Duration, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c, err := dial(addr)
			if err != nil {
				failed.Add(1)
				return
			}
			defer c.Close()
			for job := range queue {
				status, _, err := c.do(requests[rand.IntN(len(requests))])
				if err != nil || status/100 != 2 {
					failed.Add(1)
				}
				took[i] = append(took[i], time.Since(job.at))
			}
		})
	}
	start := time.Now()
	for i := range int(d.Seconds() * float64(perSecond)) {
		at := start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		queue <- due{at}
	}
	close(queue)
	wg.Wait()
	return summarize(slices.Concat(took...), int(failed.Load()), time.Since(start))
}

func summarize(took []time.Duration, failed int, elapsed time.Duration) load {
	if len(took) == 0 {
		return load{failed: failed}
	}
	slices.Sort(took)
	return load{len(took), failed, float64(len(took)) / elapsed.Seconds(), took[len(took)/2], took[len(took)*99/100]}
}

func median[T cmp.Ordered](list []T) T {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// sides measures two things in turns and returns all rounds of each.
func sides(b *testing.B, left, right func() load) (l, r []load) {
	for i := range rounds {
		if i%2 == 0 {
			l, r = append(l, left()), append(r, right())
		} else {
			r, l = append(r, right()), append(l, left())
		}
		if n := l[i].failed + r[i].failed; n > 0 {
			b.Errorf("%d requests failed", n)
		}
	}
	return l, r
}

// ratio is the median of the rounds' ratios of left to right.
func ratio(l, r []load, of func(load) float64) float64 {
	var all []float64
	for i := range l {
		all = append(all, of(l[i])/of(r[i]))
	}
	return median(all)
}

func mid(l []load, of func(load) float64) float64 {
	var all []float64
	for i := range l {
		all = append(all, of(l[i]))
	}
	return median(all)
}

func rate(l load) float64 { return l.perSecond }

func p50(l load) float64 { return float64(l.p50) / 1e6 }

func p99(l load) float64 { return float64(l.p99) / 1e6 }

// table collects the rows that BenchmarkTargets prints.
type table struct {
	dir  string // lasts as long as the table
	rows []string
}

// add notes a measured value, its target (such as "≥ 0.50") and what it was made of.
func (t *table) add(what string, value float64, target, detail string, args ...any) {
	bound, _ := strconv.ParseFloat(strings.ReplaceAll(strings.TrimLeft(target, "≥≤= "), ",", ""), 64)
	met := "yes"
	if strings.HasPrefix(target, "≥") && value < bound || strings.HasPrefix(target, "≤") && value > bound || strings.HasPrefix(target, "=") && value != bound {
		met = "no"
	}
	row := fmt.Sprintf("| %s | %.4g | %s | %s | %s |", what, value, target, met, fmt.Sprintf(detail, args...))
	fmt.Println(row)
	t.rows = append(t.rows, row)
}

// BenchmarkTargets measures the table of docs/performance.md, part by part. -bench Targets/reads runs one part.
func BenchmarkTargets(b *testing.B) {
	if testing.Short() {
		b.Skip("takes six minutes and 6 GB of disk")
	}
	t := table{dir: b.TempDir()}
	b.Run("writes", t.writes)
	b.Run("reads", t.reads)
	b.Run("scale", t.scale)
	b.Run("deadReceivers", t.deadReceivers)
	b.Run("deliveries", t.deliveries)
	b.Run("process", t.process)
	fmt.Println("\n| what | measured | target | met | from |\n|---|---|---|---|---|")
	fmt.Println(strings.Join(t.rows, "\n"))
}

// sink is a receiver of webhooks on this machine that answers with status.
func sink(b *testing.B, status int) (url string) {
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
	}))
	b.Cleanup(hs.Close)
	return hs.URL
}

// offEndpoint gives a store an endpoint that is switched off: its deliveries are written with every order and wait.
func offEndpoint(b *testing.B, s *bench) {
	if err := s.db.SwitchEndpoint(b.Context(), s.st.ID, addEndpoint(b, s.db, s.st, "http://127.0.0.1:9/"), false, ""); err != nil {
		b.Fatal(err)
	}
}

func (t *table) writes(b *testing.B) {
	dir := b.TempDir()
	group := newBench(b, filepath.Join(dir, "group.db"), nil)
	single := newBench(b, filepath.Join(dir, "single.db"), oneByOne)
	normal := newBench(b, filepath.Join(dir, "normal.db"), synchronousNormal)
	post := func(s *bench, n int) func() load {
		requests := s.posts(b)
		return func() load { return drive(s.addr, n, round, 0, requests) }
	}
	for _, s := range []*bench{group, single, normal} {
		offEndpoint(b, s)
		post(s, clients)()
	}
	l, r := sides(b, post(group, clients), post(single, clients))
	t.add("durable POST, 64 clients, to one transaction each", ratio(l, r, rate), "≥ 5", "%.0f/s to %.0f/s", mid(l, rate), mid(r, rate))
	t.add("its p99 to theirs", ratio(l, r, p99), "≤ 0.15", "%.1f ms to %.1f ms", mid(l, p99), mid(r, p99))
	l, r = sides(b, post(group, 1), post(single, 1))
	t.add("one client alone, to one transaction each", ratio(l, r, rate), "≥ 0.95", "%.0f/s to %.0f/s", mid(l, rate), mid(r, rate))
	l, r = sides(b, post(group, clients), post(normal, clients))
	t.add("synchronous=FULL to NORMAL", ratio(l, r, rate), "≥ 0.80", "%.0f/s to %.0f/s", mid(l, rate), mid(r, rate))
}

func (t *table) reads(b *testing.B) {
	s := newBench(b, filepath.Join(b.TempDir(), "reads.db"), nil)
	seed(b, s.db, s.st, 10_000, false)
	for _, c := range []struct {
		what, target string
		requests     [][]byte
	}{
		{"GET /v1/orders/{id}, to a bare handler", "≥ 0.50", s.gets("/v1/orders/%s", orderIDs(b, s.db, 1000))},
		{"GET /v1/orders?limit=50, to a bare handler", "≥ 0.25", [][]byte{s.get("/v1/orders?limit=50")}},
		{"GET /v1/products (40 entries), to a bare handler", "≥ 0.40", [][]byte{s.get("/v1/products?limit=50")}},
	} {
		size := sizeOf(b, s.addr, c.requests[0])
		other := bare(b, size)
		l, r := sides(b,
			func() load { return drive(s.addr, clients, round, 0, c.requests) },
			func() load { return drive(other, clients, round, 0, c.requests) })
		t.add(c.what, ratio(l, r, rate), c.target, "%.0f/s to %.0f/s, %d bytes", mid(l, rate), mid(r, rate), size)
	}
}

// million returns a file of a million orders. It is made once for all who ask.
func (t *table) million(b *testing.B) string {
	file := filepath.Join(t.dir, "million.db")
	if _, err := os.Stat(file); err != nil {
		start := time.Now()
		db, err := openDB(file, true)
		if err != nil {
			b.Fatal(err)
		}
		st, _ := storeOf(b, db)
		addEndpoint(b, db, st, "http://127.0.0.1:9/")
		seed(b, db, st, 1_000_000, false)
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
		fmt.Printf("seeded a million orders in %.0f s\n", time.Since(start).Seconds())
	}
	return file
}

func (t *table) scale(b *testing.B) {
	big, small := newBench(b, t.million(b), nil), newBench(b, filepath.Join(b.TempDir(), "small.db"), nil)
	addEndpoint(b, small.db, small.st, "http://127.0.0.1:9/")
	seed(b, small.db, small.st, 10_000, false)
	for _, s := range []*bench{big, small} {
		all, err := s.db.Endpoints(s.st.ID, 0)
		if err == nil {
			err = s.db.SwitchEndpoint(b.Context(), s.st.ID, all[0].ID, false, "")
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	bigIDs, smallIDs := orderIDs(b, big.db, 1000), orderIDs(b, small.db, 1000)
	compare := func(what, target string, of func(load) float64, bigRequests, smallRequests [][]byte) {
		l, r := sides(b,
			func() load { return drive(big.addr, clients, round, 0, bigRequests) },
			func() load { return drive(small.addr, clients, round, 0, smallRequests) })
		t.add(what, ratio(l, r, of), target, "%.0f/s to %.0f/s", mid(l, rate), mid(r, rate))
	}
	time1 := func(l load) float64 { return 1 / l.perSecond }
	compare("a million orders to 10,000: time of the first page", "≤ 1.15", time1, big.gets("/v1/orders?limit=50%s", []string{""}), small.gets("/v1/orders?limit=50%s", []string{""}))
	compare("a million orders to 10,000: time of a page anywhere", "≤ 1.15", time1, big.gets("/v1/orders?limit=50&starting_after=%s", bigIDs), small.gets("/v1/orders?limit=50&starting_after=%s", smallIDs))
	compare("a million orders to 10,000: time of one order", "≤ 1.15", time1, big.gets("/v1/orders/%s", bigIDs), small.gets("/v1/orders/%s", smallIDs))
	compare("a million orders to 10,000: POST", "≥ 0.85", rate, big.posts(b), small.posts(b))
}

// deadReceivers compares two services whose store has three endpoints: one where they refuse, err and hang while 100,000
// deliveries wait, and one where they are switched off. Both write the same rows. Only one of them runs at a time.
func (t *table) deadReceivers(b *testing.B) {
	var released chan struct{}
	hanging := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-released }))
	b.Cleanup(hanging.Close)
	service := func(name string, waiting int) (measure func() load) {
		s := &bench{db: open(b, filepath.Join(b.TempDir(), name))}
		s.st, s.key = storeOf(b, s.db)
		for _, url := range []string{"http://127.0.0.1:9/", sink(b, 500), hanging.URL} {
			id := addEndpoint(b, s.db, s.st, url)
			if waiting == 0 {
				if err := s.db.SwitchEndpoint(b.Context(), s.st.ID, id, false, ""); err != nil {
					b.Fatal(err)
				}
			}
		}
		seed(b, s.db, s.st, waiting, true)
		requests := s.posts(b)
		return func() load {
			released = make(chan struct{})
			s.serve(b)
			pace(s.addr, 1000, round/2, requests)
			l := pace(s.addr, 1000, round, requests)
			close(released)
			s.stop()
			return l
		}
	}
	// A fifth more than 100,000, for each attempt puts its delivery off.
	l, r := sides(b, service("dead.db", 32_000), service("quiet.db", 0))
	t.add("POST p99 at 1,000/s, 100,000 deliveries waiting for dead receivers, to none waiting", ratio(l, r, p99), "≤ 1.25",
		"%.2f ms to %.2f ms, p50 %.2f to %.2f", mid(l, p99), mid(r, p99), mid(l, p50), mid(r, p50))
}

func (t *table) deliveries(b *testing.B) {
	const n, endpoints = 16_000, 8
	var l, r []load
	var commits []float64
	for range rounds {
		s := &bench{db: open(b, filepath.Join(b.TempDir(), "queue.db"))}
		s.st, s.key = storeOf(b, s.db)
		var receivers []string // each endpoint's own, as in life
		for range endpoints {
			receivers = append(receivers, sink(b, 200))
			addEndpoint(b, s.db, s.st, receivers[len(receivers)-1])
		}
		seed(b, s.db, s.st, n/endpoints*4/5, true) // every fourth has two events
		var made atomic.Int64
		err := withConn(b.Context(), s.db.writer, func(c *sqlite3.SQLiteConn) error {
			c.RegisterCommitHook(func() int { made.Add(1); return 0 })
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		bodies, err := collect(s.db.reader, column[[]byte], "SELECT body FROM events")
		if err != nil {
			b.Fatal(err)
		}
		// The bare client: as many at once, each post signed.
		hc, secret := newWebhookClient(true), newSecret()
		hc.Transport.(*http.Transport).MaxIdleConnsPerHost = inFlight
		work := make(chan []byte)
		var wg sync.WaitGroup
		start := time.Now()
		for i := range inFlight {
			wg.Go(func() {
				for body := range work {
					req, _ := http.NewRequest("POST", receivers[i%endpoints], bytes.NewReader(body))
					req.Header.Set("X-Service-Signature", signatureHeader([]string{secret}, time.Now().Unix(), body))
					resp, err := hc.Do(req)
					if err != nil {
						b.Error(err)
						continue
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
		for i := range n {
			work <- bodies[i%len(bodies)]
		}
		close(work)
		wg.Wait()
		r = append(r, load{perSecond: n / time.Since(start).Seconds()})
		// The queue, from rows to results in rows.
		start = time.Now()
		s.serve(b)
		for waiting := true; waiting; {
			time.Sleep(2 * time.Millisecond)
			if waiting, err = one(s.db.reader, column[bool], "SELECT EXISTS (SELECT 1 FROM deliveries WHERE next_at IS NOT NULL)"); err != nil {
				b.Fatal(err)
			}
		}
		l = append(l, load{perSecond: n / time.Since(start).Seconds()})
		commits = append(commits, float64(made.Load())/n)
		s.stop()
		if made, err := one(s.db.reader, column[int], "SELECT count(*) FROM deliveries WHERE status = 'delivered'"); err != nil || made != n {
			b.Error(made, " delivered: ", err)
		}
	}
	t.add("deliveries, rows to recorded results, to a bare http.Client", ratio(l, r, rate), "≥ 0.55", "%.0f/s to %.0f/s", mid(l, rate), mid(r, rate))
	t.add("commits for each", median(commits), "≤ 0.05", "counted by a commit hook")
}

// program builds storeorder and returns how to start it.
func program(b *testing.B) func(args ...string) *exec.Cmd {
	binary := filepath.Join(b.TempDir(), "storeorder")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
}

// freeAddr is an address that nobody listens on.
func freeAddr(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// firstAnswer waits until a server answers a request and returns how long that took.
func firstAnswer(b *testing.B, addr string, request []byte) time.Duration {
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(100 * time.Microsecond) {
		if c, err := dial(addr); err == nil {
			status, _, err := c.do(request)
			c.Close()
			if err == nil && status == http.StatusOK {
				return time.Since(start)
			}
		}
	}
	b.Fatal("the server does not answer")
	return 0
}

// residentMB is a process's resident memory.
func residentMB(b *testing.B, pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip("needs Linux: ", err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kB, _ := strconv.ParseFloat(strings.Fields(after)[0], 64)
	return kB / 1024
}

func (t *table) process(b *testing.B) {
	start := program(b)
	s := &bench{db: open(b, filepath.Join(b.TempDir(), "process.db")), addr: freeAddr(b)}
	s.st, s.key = storeOf(b, s.db)
	addEndpoint(b, s.db, s.st, sink(b, 200))
	cmd := start("serve", "-db", s.db.path, "-addr", s.addr, "-webhook-allow-private", "-rate", "1000000000", "-burst", "1000000000")
	firstAnswer(b, s.addr, s.get("/v1/orders"))
	time.Sleep(3 * time.Second)
	t.add("resident memory when idle, MB", residentMB(b, cmd.Process.Pid), "≤ 16", "storeorder serve as its own process")
	l := drive(s.addr, clients, 0, 100_000, s.posts(b))
	t.add("100,000 POSTs: refused or failed", float64(l.failed), "= 0", "%.0f/s, p99 %.1f ms, each with a webhook delivered meanwhile", l.perSecond, p99(l))
	t.add("resident memory after them, MB", residentMB(b, cmd.Process.Pid), "≤ 45", "at the end of the load")
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()

	file, addr := t.million(b), freeAddr(b)
	db := open(b, file)
	st, key := storeOf(b, db)
	s = &bench{db: db, st: st, key: key, addr: addr}
	var took []float64
	for range rounds {
		begun := time.Now()
		cmd := start("serve", "-db", file, "-addr", addr)
		firstAnswer(b, addr, s.get("/v1/orders?limit=1"))
		took = append(took, float64(time.Since(begun).Microseconds())/1000)
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
	t.add("start on a million orders to the first answer, ms", median(took), "≤ 50", "from exec to the answer, median of %d", rounds)
}

func BenchmarkCreate(b *testing.B) {
	s := newBench(b, filepath.Join(b.TempDir(), "create.db"), nil)
	offEndpoint(b, s)
	requests := s.posts(b)
	b.Run("service", func(b *testing.B) { hammer(b, s.addr, requests) })
	other := bare(b, sizeOf(b, s.addr, requests[0]))
	b.Run("bare", func(b *testing.B) { hammer(b, other, requests) })
}

func BenchmarkGet(b *testing.B) {
	readBenchmark(b, func(s *bench) [][]byte { return s.gets("/v1/orders/%s", orderIDs(b, s.db, 1000)) })
}

func BenchmarkList(b *testing.B) {
	readBenchmark(b, func(s *bench) [][]byte { return [][]byte{s.get("/v1/orders?limit=50")} })
}

func BenchmarkProducts(b *testing.B) {
	readBenchmark(b, func(s *bench) [][]byte { return [][]byte{s.get("/v1/products?limit=50")} })
}

func readBenchmark(b *testing.B, requests func(*bench) [][]byte) {
	s := newBench(b, filepath.Join(b.TempDir(), "reads.db"), nil)
	seed(b, s.db, s.st, 10_000, false)
	all := requests(s)
	b.Run("service", func(b *testing.B) { hammer(b, s.addr, all) })
	other := bare(b, sizeOf(b, s.addr, all[0]))
	b.Run("bare", func(b *testing.B) { hammer(b, other, all) })
}

// hammer sends b.N requests from all clients.
func hammer(b *testing.B, addr string, requests [][]byte) {
	b.ReportAllocs()
	if l := drive(addr, clients, 0, int64(b.N), requests); l.failed > 0 {
		b.Errorf("%d requests failed", l.failed)
	}
}
