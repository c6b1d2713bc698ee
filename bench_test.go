//go:build cgo

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The benchmarks compare the service with its limits. This prints the table of docs/performance.md:
//
//	go test -run '^$' -bench Targets -benchtime 1x -timeout 40m
//
// Every ratio is the median of rounds that take turns, so that a busy machine slows both sides. The clients
// are bare keep-alive connections, which use little of the processor that they share with the server.

const (
	clients = 64
	rounds  = 9
	round   = time.Second
)

// bench is the service on a database of its own with one store, as "storeorder serve" runs it.
type bench struct {
	db   *DB
	st   Store
	key  string
	addr string
	stop func()
}

// newBench opens file and serves it. A setup that is not nil changes how the database works first.
func newBench(b *testing.B, file string, setup func(*DB) *DB) *bench {
	b.Helper()
	s := &bench{db: open(b, file)}
	if setup != nil {
		s.db = setup(s.db)
	}

	s.st, s.key = benchStore(b, s.db)
	s.serve(b)
	return s
}

// serve starts the service on a free port.
func (s *bench) serve(b *testing.B) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must(b, err)

	o := settings{
		publicURL:    "http://orders.example.id",
		allowPrivate: true,
		rate:         1e9,
		burst:        1e9,
		keepEvents:   defaultKeepEvents,
	}
	log := newServiceLog(null, false, slog.LevelInfo)

	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- serveOn(ctx, ln, s.db, o, log) }()

	s.addr = ln.Addr().String()
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
	b.Helper()
	db, err := openDB(file, true)
	must(b, err)
	b.Cleanup(func() { db.Close() })
	return db
}

// benchStore returns the store of a file and a new key. A file without a store gets one with a catalog.
func benchStore(b *testing.B, db *DB) (Store, string) {
	b.Helper()
	all, err := db.Stores()
	must(b, err)
	if len(all) == 0 {
		all = append(all, addBenchStore(b, db))
	}

	key, hash := newToken("so_")
	_, err = db.AddKey(b.Context(), all[0].ID, NewKey{Name: "bench", Scope: ScopeWrite}, hash)
	must(b, err)
	return all[0].Store, key
}

func addBenchStore(b *testing.B, db *DB) StoreProfile {
	b.Helper()
	st, err := db.AddStore(b.Context(), StoreProfile{
		Store:      Store{Slug: "kopi-kita", Plan: PlanGrowth, Expiry: 24 * time.Hour},
		Name:       "Kopi Kita",
		OwnerEmail: "owner@example.id",
	}, PasswordHash{[]byte("salt"), []byte("hash")})
	must(b, err)

	catalog, err := readCatalog(benchCatalog())
	must(b, err)
	must(b, db.ImportCatalog(b.Context(), st.ID, catalog))
	return st
}

// benchCatalog has 30 products, 10 bundles and a payment method. Every product has a limited stock, so that
// each order reserves some.
func benchCatalog() []byte {
	var products, bundles []object
	for i := range 30 {
		products = append(products, object{
			"slug":        fmt.Sprint("kopi-", i),
			"title":       fmt.Sprintf("Kopi nomor %02d, 250 g", i),
			"description": strings.Repeat("Arabika dari dataran tinggi. ", 4),
			"price":       85_000,
			"stock":       maxMoney,
		})
	}
	for i := range 10 {
		bundles = append(bundles, object{
			"slug":        fmt.Sprint("paket-", i),
			"title":       fmt.Sprintf("Paket nomor %02d", i),
			"description": "Tiga kopi.",
			"price":       240_000,
			"items": []object{
				{"slug": fmt.Sprint("kopi-", i), "quantity": 1},
				{"slug": fmt.Sprint("kopi-", i+10), "quantity": 1},
				{"slug": fmt.Sprint("kopi-", i+20), "quantity": 1},
			},
		})
	}
	method := object{
		"code":     "bank_transfer",
		"name":     "Transfer",
		"provider": "manual",
	}
	return mustJSON(object{
		"products":        products,
		"bundles":         bundles,
		"payment_methods": []object{method},
	})
}

// products returns the store's 30 products.
func (s *bench) products(b *testing.B) []Product {
	b.Helper()
	list, err := s.db.Products(s.st.ID, ProductFilter{Products: true, Limit: 50})
	must(b, err)
	return list.Products
}

func (s *bench) addEndpoint(b *testing.B, url string) (id string) {
	b.Helper()
	id, err := s.db.AddEndpoint(b.Context(), s.st.ID, url, nil, newSecret())
	must(b, err)
	return id
}

// turnOff turns an endpoint off: its deliveries are written with every order and wait.
func (s *bench) turnOff(b *testing.B, endpoint string) {
	b.Helper()
	must(b, s.db.SwitchEndpoint(b.Context(), s.st.ID, endpoint, false))
}

// unreachable is an endpoint at which nobody listens.
const unreachable = "http://127.0.0.1:9/"

// oneByOne gives every write a transaction of its own, as a service without group commit does. It runs the
// same code between BEGIN IMMEDIATE and COMMIT, without savepoints. The writer of db itself has nothing to do.
func oneByOne(db *DB) *DB {
	front := *db
	front.jobs = make(chan *job)
	go func() {
		for {
			select {
			case j := <-front.jobs:
				j.err = commitAlone(db, j)
				close(j.done)
			case <-db.closing:
				return
			}
		}
	}()
	return &front
}

func commitAlone(db *DB, j *job) error {
	return db.writer.with(func(c *connection) error {
		if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		if err := db.callJob(c, j); err != nil {
			c.exec("ROLLBACK")
			return err
		}
		_, err := c.exec("COMMIT")
		return err
	})
}

// synchronousNormal leaves the disk's sync to the checkpoints: a power cut may lose the last orders.
func synchronousNormal(db *DB) *DB {
	db.writer.script("PRAGMA synchronous = NORMAL")
	return db
}

// bare serves size bytes with net/http and does nothing else.
func bare(b *testing.B, size int) (addr string) {
	b.Helper()
	body := bytes.Repeat([]byte("x"), size)
	length := strconv.Itoa(size)

	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", length)
		w.Write(body)
	}))

	b.Cleanup(hs.Close)
	return hs.Listener.Addr().String()
}

// sink receives webhooks and answers them with a status.
func sink(b *testing.B, status int) (url string) {
	b.Helper()
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
	}))
	b.Cleanup(hs.Close)
	return hs.URL
}

// seed creates n orders over the last 30 days with the code that serves POST /v1/orders, a thousand to a
// transaction and not synced. Every fourth is then paid. As in the service, each has its history, events and
// deliveries. These are delivered, unless they are to wait.
func (s *bench) seed(b *testing.B, n int, wait bool) {
	b.Helper()
	products := s.products(b)
	s.db.writer.script("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144")
	defer s.db.writer.script(`
		PRAGMA synchronous = FULL;
		PRAGMA cache_size = -2000;
		PRAGMA wal_checkpoint(TRUNCATE)`)

	st := s.st
	st.Expiry = 60 * 24 * time.Hour // none expires while the service is measured
	now := timeOf(time.Now())
	interval := 30 * 24 * time.Hour / time.Duration(max(n, 1))

	for done := 0; done < n; done += 1000 {
		err := s.db.write(b.Context(), func(tx *Tx) error {
			for i := done; i < min(done+1000, n); i++ {
				tx.now = now.Add(-interval * time.Duration(n-i))
				if err := seedOrder(tx, st, products, i); err != nil {
					return err
				}
			}
			if wait {
				return nil
			}

			_, err := tx.exec(`
				UPDATE deliveries
				SET    status = 'delivered', attempt = 1, next_at = NULL, tried_at = ?, answer_status = 200
				WHERE  next_at IS NOT NULL`, tx.now)
			return err
		})
		must(b, err)
	}
}

// seedOrder creates the order number i.
func seedOrder(tx *Tx, st Store, products []Product, i int) error {
	o := NewOrder{
		Buyer: Buyer{
			Name:  "Siti Rahayu",
			Email: "siti@example.id",
			Phone: "+628123456789",
		},
		PaymentMethod: "bank_transfer",
	}
	for k := range 3 {
		o.Items = append(o.Items, NewItem{
			Kind:     KindProduct,
			ID:       products[(i+k*7)%len(products)].ID,
			Quantity: int64(1 + k),
		})
	}

	created, err := tx.createOrder(st, o)
	if err != nil || i%4 != 0 {
		return err
	}
	_, err = tx.transition(created.ID, OwnerApproves, Note{Code: NoteInDashboard})
	return err
}

// orderIDs are up to 1000 ids of orders from all over the file.
func (s *bench) orderIDs(b *testing.B) []string {
	b.Helper()
	ids, err := queryAll(s.db.reader, scanValue[string], "SELECT id FROM orders ORDER BY id")
	must(b, err)
	if len(ids) == 0 {
		b.Fatal("there are no orders")
	}

	rand.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
	return slices.Clone(ids[:min(1000, len(ids))])
}

// get is a request for a path.
func (s *bench) get(path string) []byte {
	const format = "GET %s HTTP/1.1\r\n" +
		"Host: orders.example.id\r\n" +
		"Authorization: Bearer %s\r\n\r\n"
	return fmt.Appendf(nil, format, path, s.key)
}

// gets are requests for a path with each of the values at its end.
func (s *bench) gets(path string, values []string) (all [][]byte) {
	for _, v := range values {
		all = append(all, s.get(path+v))
	}
	return all
}

// posts are requests for orders of three items.
func (s *bench) posts(b *testing.B) (all [][]byte) {
	b.Helper()
	var ids []string
	for _, p := range s.products(b) {
		ids = append(ids, p.ID)
	}
	return orderRequests(s.key, ids)
}

// orderRequests are requests for orders of three of these products.
func orderRequests(key string, products []string) (all [][]byte) {
	const format = "POST /v1/orders HTTP/1.1\r\n" +
		"Host: orders.example.id\r\n" +
		"Authorization: Bearer %s\r\n" +
		"Content-Type: application/json\r\n" +
		"Content-Length: %d\r\n\r\n%s"

	for i := range products {
		var items []object
		for k := range 3 {
			items = append(items, object{
				"type":       "product",
				"product_id": products[(i+k*7)%len(products)],
				"quantity":   1 + k,
			})
		}

		body := mustJSON(object{
			"items":          items,
			"payment_method": "bank_transfer",
			"buyer": object{
				"name":  "Siti Rahayu",
				"email": "siti@example.id",
				"phone": "+628123456789",
			},
		})
		all = append(all, fmt.Appendf(nil, format, key, len(body), body))
	}
	return all
}

// table collects the rows that BenchmarkTargets prints.
type table struct {
	dir  string // lasts as long as the table
	rows []string
}

// result is a row of the table.
type result struct {
	measure  string
	value    float64
	target   string // such as "≥ 0.50"
	measured string // the two values that a ratio was computed from, or how the value was measured
}

// met reports whether the value reaches its target.
func (r result) met(b *testing.B) bool {
	b.Helper()
	sign, text, _ := strings.Cut(r.target, " ")
	bound, err := strconv.ParseFloat(text, 64)
	must(b, err)

	switch sign {
	case "≥":
		return r.value >= bound
	case "≤":
		return r.value <= bound
	default:
		return r.value == bound
	}
}

func (t *table) add(b *testing.B, r result) {
	b.Helper()
	met := "no"
	if r.met(b) {
		met = "yes"
	}

	row := fmt.Sprintf("| %s | %.4g | %s | %s | %s |", r.measure, r.value, r.target, met, r.measured)
	fmt.Println(row)
	t.rows = append(t.rows, row)
}

// BenchmarkTargets measures the table of docs/performance.md. -bench Targets/reads runs one part of it.
func BenchmarkTargets(b *testing.B) {
	if testing.Short() {
		b.Skip("takes thirteen minutes and 9 GB of disk")
	}

	t := table{dir: b.TempDir()}
	b.Run("writes", t.writes)
	b.Run("reads", t.reads)
	b.Run("scale", t.scale)
	b.Run("deadReceivers", t.deadReceivers)
	b.Run("deliveries", t.deliveries)
	b.Run("neighbours", t.neighbours)
	b.Run("manyDue", t.manyDue)
	b.Run("removal", t.removal)
	b.Run("size", t.size)
	b.Run("memory", t.memory)
	b.Run("start", t.start)
	b.Run("cpu", t.cpu)
	b.Run("bigShop", t.bigShop)
	b.Run("manyProducts", t.manyProducts)
	b.Run("oneClient", t.oneClient)

	fmt.Println("\n| measure | result | target | met | measured |\n|---|---|---|---|---|")
	fmt.Println(strings.Join(t.rows, "\n"))
}

// writes compares group commit with its alternatives. Every order is written with a delivery.
func (t *table) writes(b *testing.B) {
	dir := b.TempDir()
	group := newBench(b, filepath.Join(dir, "group.db"), nil)
	single := newBench(b, filepath.Join(dir, "single.db"), oneByOne)
	normal := newBench(b, filepath.Join(dir, "normal.db"), synchronousNormal)

	post := func(s *bench, n int) func() load {
		requests := s.posts(b)
		return func() load { return drive(s.addr, n, requests) }
	}
	for _, s := range []*bench{group, single, normal} {
		s.turnOff(b, s.addEndpoint(b, unreachable))
		warmUp := post(s, clients)
		warmUp()
	}

	c := compare(b, post(group, clients), post(single, clients))
	t.add(b, result{
		measure:  "durable `POST`, 64 clients, against one transaction per order",
		value:    c.ratio(rate),
		target:   "≥ 5",
		measured: c.rates(),
	})
	t.add(b, result{
		measure:  "p99 of the same",
		value:    c.ratio(p99),
		target:   "≤ 0.15",
		measured: c.medians("%.1f ms", p99),
	})

	c = compare(b, post(group, 1), post(single, 1))
	t.add(b, result{
		measure:  "one client alone, against one transaction per order",
		value:    c.ratio(rate),
		target:   "≥ 0.95",
		measured: c.rates(),
	})

	c = compare(b, post(group, clients), post(normal, clients))
	t.add(b, result{
		measure:  "`synchronous=FULL` against `NORMAL`",
		value:    c.ratio(rate),
		target:   "≥ 0.80",
		measured: c.rates(),
	})
}

// reads compares reading requests with a handler that writes as many bytes.
func (t *table) reads(b *testing.B) {
	s := newBench(b, filepath.Join(b.TempDir(), "reads.db"), nil)
	s.seed(b, 10_000, false)

	parts := []struct {
		measure  string
		target   string
		requests [][]byte
	}{
		{
			measure:  "`GET /v1/orders/{id}`",
			target:   "≥ 0.50",
			requests: s.gets("/v1/orders/", s.orderIDs(b)),
		},
		{
			measure:  "`GET /v1/orders?limit=50`",
			target:   "≥ 0.25",
			requests: [][]byte{s.get("/v1/orders?limit=50")},
		},
		{
			measure:  "`GET /v1/products` (40 entries)",
			target:   "≥ 0.40",
			requests: [][]byte{s.get("/v1/products?limit=50")},
		},
	}
	for _, p := range parts {
		size := sizeOf(b, s.addr, p.requests[0])
		other := bare(b, size)

		c := compare(b,
			func() load { return drive(s.addr, clients, p.requests) },
			func() load { return drive(other, clients, p.requests) })
		t.add(b, result{
			measure:  p.measure + " against a bare handler",
			value:    c.ratio(rate),
			target:   p.target,
			measured: fmt.Sprintf("%s, %d bytes", c.rates(), size),
		})
	}
}

// million returns a file with a million orders. All parts that ask for it share it.
func (t *table) million(b *testing.B) string {
	b.Helper()
	file := filepath.Join(t.dir, "million.db")
	if _, err := os.Stat(file); err == nil {
		return file
	}

	start := time.Now()
	db, err := openDB(file, true)
	must(b, err)

	s := &bench{db: db}
	s.st, s.key = benchStore(b, db)
	s.turnOff(b, s.addEndpoint(b, unreachable))
	s.seed(b, 1_000_000, false)
	must(b, db.Close())
	fmt.Printf("seeded a million orders in %.0f s\n", time.Since(start).Seconds())
	return file
}

// scale compares the service on a million orders with the service on ten thousand.
func (t *table) scale(b *testing.B) {
	big := newBench(b, t.million(b), nil)
	small := newBench(b, filepath.Join(b.TempDir(), "small.db"), nil)
	small.turnOff(b, small.addEndpoint(b, unreachable))
	small.seed(b, 10_000, false)

	parts := []struct {
		measure  string
		target   string
		of       func(load) float64
		requests func(*bench) [][]byte
	}{
		{
			measure:  "time of the first page",
			target:   "≤ 1.15",
			of:       perRequest,
			requests: func(s *bench) [][]byte { return [][]byte{s.get("/v1/orders?limit=50")} },
		},
		{
			measure: "time of any page",
			target:  "≤ 1.15",
			of:      perRequest,
			requests: func(s *bench) [][]byte {
				return s.gets("/v1/orders?limit=50&starting_after=", s.orderIDs(b))
			},
		},
		{
			measure:  "time of one order",
			target:   "≤ 1.15",
			of:       perRequest,
			requests: func(s *bench) [][]byte { return s.gets("/v1/orders/", s.orderIDs(b)) },
		},
		{
			measure:  "`POST`",
			target:   "≥ 0.85",
			of:       rate,
			requests: func(s *bench) [][]byte { return s.posts(b) },
		},
	}
	for _, p := range parts {
		toBig := p.requests(big)
		toSmall := p.requests(small)

		c := compare(b,
			func() load { return drive(big.addr, clients, toBig) },
			func() load { return drive(small.addr, clients, toSmall) })
		t.add(b, result{
			measure:  "a million orders against 10,000: " + p.measure,
			value:    c.ratio(p.of),
			target:   p.target,
			measured: c.rates(),
		})
	}
}

// hangingReceiver gives no answer until it is released.
type hangingReceiver struct {
	mu       sync.Mutex
	released chan struct{}
}

func (h *hangingReceiver) ServeHTTP(http.ResponseWriter, *http.Request) {
	h.mu.Lock()
	released := h.released
	h.mu.Unlock()
	<-released
}

// hold lets the requests from now on hang, until release is called.
func (h *hangingReceiver) hold() (release func()) {
	released := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = released
	return func() { close(released) }
}

// deadReceivers compares two services whose store has three endpoints. In one they refuse, fail and hang,
// with 100,000 deliveries due. In the other they are off. Both write the same rows. Only one runs at a time.
func (t *table) deadReceivers(b *testing.B) {
	hanging := &hangingReceiver{}
	hs := httptest.NewServer(hanging)
	b.Cleanup(hs.Close)

	service := func(file string, orders int) (measure func() load) {
		s := &bench{db: open(b, filepath.Join(b.TempDir(), file))}
		s.st, s.key = benchStore(b, s.db)
		for _, url := range []string{unreachable, sink(b, 500), hs.URL} {
			id := s.addEndpoint(b, url)
			if orders == 0 {
				s.turnOff(b, id)
			}
		}

		s.seed(b, orders, true)
		requests := s.posts(b)

		return func() load {
			release := hanging.hold()
			s.serve(b)
			pace(s.addr, 1000, round/2, requests)
			l := pace(s.addr, 1000, round, requests)
			release()
			s.stop()
			return l
		}
	}

	// 32,000 orders have 120,000 deliveries. A fifth more than 100,000 are due at first, because each attempt
	// postpones its delivery.
	c := compare(b, service("dead.db", 32_000), service("quiet.db", 0))
	t.add(b, result{
		measure:  "p99 of `POST` at 1,000/s with 100,000 deliveries due to dead receivers, against none",
		value:    c.ratio(p99),
		target:   "≤ 1.25",
		measured: c.medians("%.2f ms", p99) + ", p50 " + c.medians("%.2f ms", p50),
	})
}

// deliveries compares the queue with an http.Client that posts as many webhooks, as many at once.
func (t *table) deliveries(b *testing.B) {
	var c comparison
	var commits []float64
	for range rounds {
		q := newQueueBench(b)
		c.right = append(c.right, q.postAll(b))
		c.left = append(c.left, q.deliverAll(b))
		commits = append(commits, float64(q.commits.Load())/queueDeliveries)
	}

	t.add(b, result{
		measure:  "deliveries, from the queue's rows to recorded results, against a bare `http.Client`",
		value:    c.ratio(rate),
		target:   "≥ 0.55",
		measured: c.rates(),
	})
	t.add(b, result{
		measure:  "commits per delivery",
		value:    median(commits),
		target:   "≤ 0.05",
		measured: "counted by a commit hook",
	})
}

const (
	queueDeliveries = 16_000
	queueEndpoints  = 8
)

// queueBench is a service whose queue has queueDeliveries to deliver when it starts.
type queueBench struct {
	*bench
	receivers []string // one for each endpoint, as in life
	commits   atomic.Int64
}

func newQueueBench(b *testing.B) *queueBench {
	b.Helper()
	db := open(b, filepath.Join(b.TempDir(), "queue.db"))
	q := &queueBench{bench: &bench{db: db}}
	q.st, q.key = benchStore(b, db)
	for range queueEndpoints {
		url := sink(b, 200)
		q.addEndpoint(b, url)
		q.receivers = append(q.receivers, url)
	}

	// Every fourth order has two events.
	q.seed(b, queueDeliveries/queueEndpoints*4/5, true)

	err := db.writer.with(func(c *connection) error {
		c.raw.RegisterCommitHook(func() int {
			q.commits.Add(1)
			return 0
		})
		return nil
	})
	must(b, err)
	return q
}

// postAll posts the events with a bare client, each signed.
func (q *queueBench) postAll(b *testing.B) load {
	b.Helper()
	scan := func(r row) ([]byte, error) {
		body, err := scanBody(r)
		return []byte(body), err
	}
	bodies, err := queryAll(q.db.reader, scan, `
		SELECT v.body, coalesce(o.json, '')
		FROM   events v
		LEFT JOIN orders o ON o.row = v.order_row`)
	must(b, err)

	transport := newWebhookTransport(true)
	transport.MaxIdleConnsPerHost = maxInFlight
	hc := &http.Client{Transport: transport, Timeout: answerMost}
	secret := newSecret()

	start := time.Now()
	work := make(chan []byte)
	go func() {
		defer close(work)
		for i := range queueDeliveries {
			work <- bodies[i%len(bodies)]
		}
	}()

	parallel(maxInFlight, func(i int) {
		for body := range work {
			err := postSigned(hc, q.receivers[i%queueEndpoints], secret, body)
			if err != nil {
				b.Error(err)
			}
		}
	})

	return load{perSecond: queueDeliveries / time.Since(start).Seconds()}
}

func postSigned(hc *http.Client, url, secret string, body []byte) error {
	req, err := http.NewRequest("POST", url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	signature := signatureHeader([]string{secret}, time.Now().Unix(), body)
	req.Header.Set("X-Service-Signature", signature)

	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// deliverAll runs the queue from the first due delivery to the last recorded result.
func (q *queueBench) deliverAll(b *testing.B) load {
	b.Helper()
	start := time.Now()
	q.serve(b)

	for waiting := true; waiting; {
		time.Sleep(2 * time.Millisecond)
		var err error
		waiting, err = queryOne(q.db.reader, scanValue[bool],
			"SELECT EXISTS (SELECT 1 FROM deliveries WHERE next_at IS NOT NULL)")
		must(b, err)
	}

	l := load{perSecond: queueDeliveries / time.Since(start).Seconds()}
	q.stop()

	delivered, err := queryOne(q.db.reader, scanValue[int],
		"SELECT count(*) FROM deliveries WHERE status = 'delivered'")
	must(b, err)
	if delivered != queueDeliveries {
		b.Errorf("%d are delivered, want %d", delivered, queueDeliveries)
	}
	return l
}

func BenchmarkCreate(b *testing.B) {
	s := newBench(b, filepath.Join(b.TempDir(), "create.db"), nil)
	s.turnOff(b, s.addEndpoint(b, unreachable))
	s.againstBare(b, s.posts(b))
}

func BenchmarkGet(b *testing.B) {
	s := newReadBench(b)
	s.againstBare(b, s.gets("/v1/orders/", s.orderIDs(b)))
}

func BenchmarkList(b *testing.B) {
	s := newReadBench(b)
	s.againstBare(b, [][]byte{s.get("/v1/orders?limit=50")})
}

func BenchmarkProducts(b *testing.B) {
	s := newReadBench(b)
	s.againstBare(b, [][]byte{s.get("/v1/products?limit=50")})
}

// newReadBench serves ten thousand orders.
func newReadBench(b *testing.B) *bench {
	b.Helper()
	s := newBench(b, filepath.Join(b.TempDir(), "reads.db"), nil)
	s.seed(b, 10_000, false)
	return s
}

// againstBare sends the requests to the service, and then to a bare handler whose answers are as long.
func (s *bench) againstBare(b *testing.B, requests [][]byte) {
	b.Helper()
	other := bare(b, sizeOf(b, s.addr, requests[0]))
	b.Run("service", func(b *testing.B) { hammer(b, s.addr, requests) })
	b.Run("bare", func(b *testing.B) { hammer(b, other, requests) })
}

// hammer sends b.N requests from all clients.
func hammer(b *testing.B, addr string, requests [][]byte) {
	b.Helper()
	b.ReportAllocs()
	l := driveAll(addr, int64(b.N), requests)
	if l.failed > 0 {
		b.Errorf("%d requests failed", l.failed)
	}
}
