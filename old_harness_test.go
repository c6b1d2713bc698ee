//go:build cgo

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// streams is the real environment but for its streams.
func streams(stdin io.Reader, stdout, stderr io.Writer) environment {
	env := realEnvironment()
	env.stdin, env.stdout, env.stderr = stdin, stdout, stderr
	return env
}

func openDB(path string, create bool) (*DB, error) { return realEnvironment().openDB(path, create) }

// testServer is the service on a real database with one store. Every request carries the store's key, unless
// its headers say otherwise.
type testServer struct {
	*server
	url     string
	storeID string
	key     string
	ids     map[string]string // of the catalog, by slug; the bundle "draf" is under "bundle:draf"
	client  *http.Client
	logs    *logBuffer
}

var testSettings = settings{
	publicURL:    "https://shop.test",
	allowPrivate: true,
	rate:         1_000_000,
	burst:        1_000_000,
	keepEvents:   defaultKeepEvents,
}

//go:embed testdata/catalog.json
var testCatalog string

// newTestServer serves on a socket. Neither the queue nor the sweeper runs.
func newTestServer(t *testing.T) *testServer {
	t.Helper()
	return newTestServerWith(t, testSettings)
}

func newTestServerWith(t *testing.T, o settings) *testServer {
	t.Helper()
	s := openTestServer(t, o)
	hs := httptest.NewServer(s.routes())
	t.Cleanup(hs.Close)

	s.url = hs.URL
	s.client = hs.Client()
	s.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	s.client.CheckRedirect = returnRedirect
	return s
}

// returnRedirect makes a client return a redirect instead of following it.
func returnRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// newBubbleServer is newTestServer without a socket: a synctest bubble cannot wait for one.
func newBubbleServer(t *testing.T) *testServer {
	t.Helper()
	s := openTestServer(t, testSettings)
	handler := s.routes()

	s.url = "https://shop.test"
	s.client = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Result(), nil
	})}
	return s
}

// openTestServer creates the database and the server, which nothing reaches yet.
func openTestServer(t *testing.T, o settings) *testServer {
	t.Helper()
	db, err := openDB(filepath.Join(t.TempDir(), "test.db"), true)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	must(t, db.setAddresses(o.publicURL, o.subdomains, nil))

	logs := newLogBuffer(t.Output())
	s := &testServer{
		server: newServer(db, o, newServiceLog(logs, false, slog.LevelInfo)),
		logs:   logs,
	}
	t.Cleanup(func() { s.wantNoOrderInLog(t) })
	t.Cleanup(func() { wantOrdersAgree(t, db) })
	s.storeID, s.key = s.addStore(t, "kopi-kita", "growth")
	s.importCatalog(t, s.storeID, testCatalog)

	const slugs = `
		SELECT slug, id FROM products
		UNION ALL
		SELECT iif(slug = 'draf', 'bundle:draf', slug), id FROM bundles`
	must(t, queryInto(db.reader, []any{fromJSON{&s.ids}}, "SELECT json_group_object(slug, id) FROM ("+slugs+")"))
	return s
}

// scanText scans a row of one column, text or a number.
func scanText(r row) (string, error) { return fmt.Sprint(r[0]), nil }

// wantOrdersAgree checks that the columns of every order say what its JSON says. A file that a test has broken or
// closed is not checked.
func wantOrdersAgree(t *testing.T, db *DB) {
	t.Helper()
	differ, err := queryAll(db.reader, scanValue[string], ordersThatDiffer)
	if err == nil && len(differ) > 0 {
		t.Errorf("%q", differ)
	}
}

// addStore adds a store in test mode, without a catalog, and a key for it.
func (s *testServer) addStore(t *testing.T, slug, plan string) (storeID, key string) {
	t.Helper()
	st, err := s.db.AddStore(t.Context(), StoreProfile{
		Store:      Store{Slug: slug, Plan: Plan(plan), Expiry: 24 * time.Hour},
		Name:       slug,
		OwnerEmail: slug + "@example.id",
		TestMode:   true,
	}, PasswordHash{[]byte("salt"), []byte("hash")})
	must(t, err)

	key, hash := newToken("so_")
	_, err = s.db.AddKey(t.Context(), st.ID, NewKey{Name: "test", Scope: ScopeWrite}, hash)
	must(t, err)
	return st.ID, key
}

func (s *testServer) importCatalog(t *testing.T, storeID, text string) {
	t.Helper()
	catalog, err := readCatalog([]byte(text))
	must(t, err)
	must(t, s.db.ImportCatalog(t.Context(), storeID, catalog))
}

// scalar reads one value from the database.
func scalar[T any](t *testing.T, db *DB, query string, args ...any) T {
	t.Helper()
	v, err := queryOne(db.reader, scanValue[T], query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// exec runs a statement that has to change a row.
func (s *testServer) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	must(t, s.db.change(context.Background(), query, args...))
}

// parallel runs fn n times at once.
func parallel(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

// do sends a request and checks that the answer has one of the two envelopes.
//
// A body that is no string is encoded. The headers are names and values in turn. They replace the store's key
// and the content type; a name with the value "" sends no such header.
func (s *testServer) do(t *testing.T, method, path string, body any, headers ...string) (r reply) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, bodyReader(body))
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return r
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	replaceHeaders(req.Header, headers)

	resp, err := s.client.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return r
	}
	defer resp.Body.Close()

	r.Status = resp.StatusCode
	r.Header = resp.Header
	r.Body, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	record(t, req, path, r)
	if wrong := r.read(method, path); wrong != "" {
		t.Errorf("%s %s: %d %s: %.300s", method, path, r.Status, wrong, r.Body)
	}
	return r
}

// get reads a path, which has to succeed.
func (s *testServer) get(t *testing.T, path string) reply {
	t.Helper()
	return s.do(t, "GET", path, nil).want(t, 200, "")
}

// post asks for an order. The headers are as in do.
func (s *testServer) post(t *testing.T, body any, headers ...string) reply {
	t.Helper()
	return s.do(t, "POST", "/v1/orders", body, headers...)
}

// as is the same service for a client with another key.
func (s *testServer) as(key string) *testServer {
	client := *s
	client.key = key
	return &client
}

func bodyReader(body any) io.Reader {
	switch body := body.(type) {
	case nil:
		return nil
	case string:
		return strings.NewReader(body)
	default:
		return bytes.NewReader(mustJSON(body))
	}
}

// replaceHeaders sets names and values that come in turn. A name that comes twice has both values.
func replaceHeaders(header http.Header, pairs []string) {
	for i := 0; i < len(pairs); i += 2 {
		header.Del(pairs[i])
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			header.Add(pairs[i], pairs[i+1])
		}
	}
}

// wantData reports the values in data, by their paths, that differ.
func (r reply) wantData(t *testing.T, values map[string]string) {
	t.Helper()
	for path, want := range values {
		if got := r.at(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

var (
	uuidText = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	timeText = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
)

// order is a body for POST /v1/orders: slugs and quantities in turn.
func (s *testServer) order(items ...any) map[string]any {
	list := []any{}
	for i := 0; i < len(items); i += 2 {
		slug := items[i].(string)
		kind := "product"
		if slug == "duo" || slug == "bundle:draf" {
			kind = "bundle"
		}
		list = append(list, map[string]any{
			"type":       kind,
			kind + "_id": s.ids[slug],
			"quantity":   items[i+1],
		})
	}
	return map[string]any{
		"items":          list,
		"buyer":          map[string]any{"name": "Siti", "email": "siti@example.id"},
		"payment_method": "bank_transfer",
	}
}

// with sets one field of a body.
func with(body map[string]any, name string, value any) map[string]any {
	body[name] = value
	return body
}

// create creates an order and returns its id.
func (s *testServer) create(t *testing.T, items ...any) string {
	t.Helper()
	return s.post(t, s.order(items...)).want(t, 201, "").at("order.id")
}

func (s *testServer) stock(t *testing.T, slug string) int {
	t.Helper()
	return scalar[int](t, s.db, "SELECT stock FROM products WHERE id = ?", s.ids[slug])
}

// move takes an order through a transition.
func (s *testServer) move(t *testing.T, id string, m Transition) {
	t.Helper()
	_, err := s.db.Transition(t.Context(), s.storeID, id, m, Note{Code: NoteText, Text: "test"})
	must(t, err)
}

// statusAfter is the status that an order has in each of its events, unless it is free. An alert changes none.
var statusAfter = map[string]Status{
	"orderCreated":              Pending,
	"orderAwaitingVerification": AwaitingVerification,
	"orderPaid":                 Paid,
	"orderFailed":               Failed,
	"orderExpired":              Expired,
	"orderRefunded":             Refunded,
	"orderPending":              Pending,
}

// events names an order's events in their sequence, and checks that each carries the order of its moment.
func (s *testServer) events(t *testing.T, orderID string) string {
	t.Helper()
	bodies, err := queryAll(s.db.reader, scanBody, `
		SELECT v.body, o.json
		FROM   events v
		JOIN   orders o ON o.row = v.order_row
		WHERE  o.id = ?
		ORDER BY v.sequence`, orderID)
	must(t, err)

	var names []string
	for i, body := range bodies {
		var e struct {
			Event    string
			Sequence int
			Data     struct{ Order Order }
		}
		must(t, json.Unmarshal([]byte(body), &e))
		names = append(names, e.Event)

		if e.Sequence != i+1 {
			t.Errorf("event %d has the sequence %d", i+1, e.Sequence)
		}
		o := e.Data.Order
		if o.ID != orderID {
			t.Errorf("%s of %s carries the order %s", e.Event, orderID, o.ID)
		}
		want, ok := statusAfter[e.Event]
		if ok && o.Status != want && o.Amount > 0 {
			t.Errorf("%s carries an order that is %s, want %s", e.Event, o.Status, want)
		}
	}
	return strings.Join(names, " ")
}

// record appends an exchange to the file that STOREORDER_RECORD names, which .ci/contract compares with
// openapi.json.
func record(t *testing.T, req *http.Request, path string, r reply) {
	t.Helper()
	name := os.Getenv("STOREORDER_RECORD")
	if name == "" {
		return
	}

	var body []byte
	if req.GetBody != nil {
		again, _ := req.GetBody()
		body, _ = io.ReadAll(again)
	}
	sent := req.Header.Clone()
	sent.Del("Authorization")
	line := mustJSON(object{
		"method":  req.Method,
		"path":    path,
		"sent":    sent,
		"request": string(body),
		"status":  r.Status,
		"header":  r.Header,
		"body":    string(r.Body),
	})

	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n')) // in one piece, because tests run in parallel
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

func newLogBuffer(out io.Writer) *logBuffer { return &logBuffer{out: out} }

func (b *logBuffer) close() {}

const ownerPassword = "kopi-susu-gula-aren"

// ownerHash is the hash of ownerPassword, computed once because it takes a while.
var ownerHash = realEnvironment().hashNewPassword(ownerPassword)

// newShop is a server whose store's owner can sign in. It has no key for the API.
func newShop(t *testing.T, publicURL string) *testServer {
	t.Helper()
	t.Parallel()
	s := newTestServerWith(t, settings{publicURL: publicURL, rate: 100_000, burst: 100_000})
	s.open(t, s.storeID)
	s.exec(t, "DELETE FROM api_keys")
	return s
}

// addShop adds another store, whose owner can sign in.
func (s *testServer) addShop(t *testing.T, slug, plan string) (storeID string) {
	t.Helper()
	storeID, _ = s.addStore(t, slug, plan)
	s.open(t, storeID)
	return storeID
}

// open lets a store's owner sign in and gives them something to sell.
func (s *testServer) open(t *testing.T, storeID string) {
	t.Helper()
	must(t, s.db.SetPassword(t.Context(), storeID, ownerHash))
	s.importCatalog(t, storeID, shopCatalog)
}

// place creates an order of quantity packets of coffee.
func (s *testServer) place(t *testing.T, storeID, buyer, externalID string, quantity int64) Order {
	t.Helper()
	st, err := s.db.Store(storeID)
	must(t, err)
	coffee, err := s.db.CatalogEntry(storeID, "product", "kopi")
	must(t, err)

	firstName := strings.Fields(buyer)[0]
	created, err := s.db.CreateOrder(t.Context(), st.Store, NewOrder{
		Items: []NewItem{{Kind: KindProduct, ID: coffee.ID, Quantity: quantity}},
		Buyer: Buyer{
			Name:  buyer,
			Email: strings.ToLower(firstName) + "@example.id",
			Phone: "+62 812-3456-789",
		},
		PaymentMethod: "bank",
		ExternalID:    externalID,
	})
	must(t, err)

	var o Order
	must(t, json.Unmarshal(created.Shown, &o))
	return o
}

// browser is one visitor with their cookies. It follows no redirects.
type browser struct {
	*http.Client
	s      *testServer
	header http.Header // sent with every request
}

// screen is a page as a browser got it.
type screen struct {
	status   int
	location string
	body     string
	header   http.Header
}

func (s *testServer) browser() *browser {
	jar, _ := cookiejar.New(nil)
	return &browser{
		Client: &http.Client{Jar: jar, CheckRedirect: returnRedirect},
		s:      s,
		header: http.Header{},
	}
}

// owner is a browser that is signed in.
func (s *testServer) owner(t *testing.T, email string) *browser {
	t.Helper()
	b := s.browser()
	b.post(t, "/dashboard/login", "email", email, "password", ownerPassword).leads(t, "/dashboard")
	return b
}

func (b *browser) send(t *testing.T, method, path string, form url.Values) screen {
	t.Helper()
	r, err := http.NewRequest(method, b.s.url+path, strings.NewReader(form.Encode()))
	must(t, err)
	for name, values := range b.header {
		r.Header[name] = values
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}

	resp, err := b.Do(r)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)

	return screen{
		status:   resp.StatusCode,
		location: resp.Header.Get("Location"),
		body:     string(body),
		header:   resp.Header,
	}
}

func (b *browser) get(t *testing.T, path string) screen {
	t.Helper()
	return b.send(t, "GET", path, nil)
}

// post sends a form: names and values in turn.
func (b *browser) post(t *testing.T, path string, pairs ...string) screen {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return b.send(t, "POST", path, form)
}

// has ends the test unless the screen has this status and these texts.
func (p screen) has(t *testing.T, status int, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(readable(p.body), text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	if p.status != status {
		t.Errorf("status %d, want %d", p.status, status)
	}
	if t.Failed() {
		t.Fatalf("the page is %d %s\n%s", p.status, p.location, p.body)
	}
}

// leads ends the test unless the screen is a redirect to this address.
func (p screen) leads(t *testing.T, to string) {
	t.Helper()
	if p.status != 303 || p.location != to {
		t.Fatalf("%d %q, want 303 %q\n%s", p.status, p.location, to, p.body)
	}
}
