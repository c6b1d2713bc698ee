//go:build cgo

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestMain lets the test binary stand in for the program, for the tests that need a process to kill.
func TestMain(m *testing.M) {
	if os.Getenv("STOREORDER_TEST_AS_PROGRAM") != "" {
		main()
	}
	os.Exit(m.Run())
}

// testServer is the service on a real database with one store, whose key every request carries unless told otherwise.
type testServer struct {
	*server
	url, storeID, key string
	ids               map[string]string // of the catalog, by slug; the bundle "draf" as "bundle:draf"
	client            *http.Client
	logs              *logBuffer
}

var testSettings = settings{publicURL: "http://shop.test", allowPrivate: true, rate: 1_000_000, burst: 1_000_000}

// newTestServer serves on a socket. Neither the queue nor the sweeper runs.
func newTestServer(t *testing.T) *testServer { return newTestServerWith(t, testSettings) }

func newTestServerWith(t *testing.T, o settings) *testServer {
	s := openTestServer(t, o)
	hs := httptest.NewServer(s.routes())
	t.Cleanup(hs.Close)
	s.url, s.client = hs.URL, hs.Client()
	s.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// newBubbleServer is newTestServer without a socket, which a synctest bubble cannot wait for.
func newBubbleServer(t *testing.T) *testServer {
	s := openTestServer(t, testSettings)
	handler := s.routes()
	s.url, s.client = "http://shop.test", &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Result(), nil
	})}
	return s
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func openTestServer(t *testing.T, o settings) *testServer {
	db, err := openDB(filepath.Join(t.TempDir(), "test.db"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if err := db.setAddresses(o.publicURL, o.subdomains, nil); err != nil {
		t.Fatal(err)
	}
	logs := newLogBuffer(t.Output())
	s := &testServer{server: newServer(db, o, slog.New(slog.NewTextHandler(logs, nil))), logs: logs, ids: map[string]string{}}
	s.storeID, s.key = s.addStore(t, "kopi-kita", "growth")
	s.importCatalog(t, s.storeID, testCatalog)
	for _, table := range []string{"products", "bundles"} {
		rows, err := collect(db.reader, func(v *[2]string) []any { return []any{&v[0], &v[1]} }, "SELECT slug, id FROM "+table)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range rows {
			if v[0] == "draf" && table == "bundles" {
				v[0] = "bundle:draf"
			}
			s.ids[v[0]] = v[1]
		}
	}
	return s
}

func (s *testServer) addStore(t *testing.T, slug, plan string) (storeID, key string) {
	t.Helper()
	st, err := s.db.AddStore(t.Context(), Store{Name: slug, Slug: slug, Plan: Plan(plan), Expiry: 24 * time.Hour, OwnerEmail: slug + "@example.id"},
		PasswordHash{[]byte("salt"), []byte("hash")})
	if err != nil {
		t.Fatal(err)
	}
	key, hash := newToken("so_")
	if _, err := s.db.AddKey(t.Context(), st.ID, "test", hash); err != nil {
		t.Fatal(err)
	}
	return st.ID, key
}

func (s *testServer) importCatalog(t *testing.T, storeID, text string) {
	t.Helper()
	catalog, err := readCatalog([]byte(text))
	if err == nil {
		err = s.db.ImportCatalog(t.Context(), storeID, catalog)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// scalar reads one value from the database.
func scalar[T any](t *testing.T, db *DB, query string, args ...any) T {
	t.Helper()
	v, err := one(db.reader, column[T], query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// reply is an answer whose envelope was found right.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
	Data   map[string]any
	Error  replyError
}

// replyError is an APIError as a client reads it.
type replyError struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Details []Detail `json:"details"`
}

// at is the text of a value in data, such as at("order.items.0.title"), "<nil>" if there is none.
func (r reply) at(path string) string {
	var v any = r.Data
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			i, _ := strconv.Atoi(name)
			if v = nil; i < len(in) {
				v = in[i]
			}
		default:
			v = nil
		}
	}
	return fmt.Sprint(v)
}

// list is a list in data, nil if there is none.
func (r reply) list(name string) (all []map[string]any) {
	values, _ := r.Data[name].([]any)
	for _, v := range values {
		all = append(all, v.(map[string]any))
	}
	return all
}

// fields names the details, with commas between.
func (r reply) fields() string {
	var names []string
	for _, d := range r.Error.Details {
		names = append(names, d.Field)
	}
	return strings.Join(names, ",")
}

// do sends a request and checks that the answer has one of the two envelopes. headers are names and values in turn;
// they replace the store's key and the content type, and a name with "" sends none. A body that is no string is encoded.
func (s *testServer) do(t *testing.T, method, path string, body any, headers ...string) (r reply) {
	t.Helper()
	var send io.Reader
	header := http.Header{"Authorization": {"Bearer " + s.key}}
	switch body := body.(type) {
	case nil:
	case string:
		send = strings.NewReader(body)
	default:
		send = bytes.NewReader(mustJSON(body))
	}
	if send != nil {
		header.Set("Content-Type", "application/json")
	}
	replaced := map[string]bool{}
	for i := 0; i < len(headers); i += 2 {
		if name := http.CanonicalHeaderKey(headers[i]); !replaced[name] {
			replaced[name] = true
			header.Del(name)
		}
		if headers[i+1] != "" {
			header.Add(headers[i], headers[i+1])
		}
	}
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, send)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return r
	}
	req.Header = header
	resp, err := s.client.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return r
	}
	defer resp.Body.Close()
	r.Status, r.Header = resp.StatusCode, resp.Header
	if r.Body, err = io.ReadAll(resp.Body); err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	record(t, req, path, r)
	if resp.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: no X-Request-Id", method, path)
	}
	if method == "HEAD" || r.Status == http.StatusNotModified {
		if len(r.Body) > 0 {
			t.Errorf("%s %s: %d with a body", method, path, r.Status)
		}
		return r
	}
	var envelope struct {
		Success *bool          `json:"success"`
		Data    map[string]any `json:"data"`
		Error   *replyError    `json:"error"`
	}
	dec := json.NewDecoder(bytes.NewReader(r.Body))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	err = dec.Decode(&envelope)
	good := r.Status < 300
	if err != nil || envelope.Success == nil || *envelope.Success != good || (envelope.Data != nil) != good || (envelope.Error == nil) != good ||
		resp.Header.Get("Content-Type") != "application/json" || !good && (envelope.Error.Code == "" || envelope.Error.Message == "") {
		t.Errorf("%s %s: %d %s without the envelope: %.300s", method, path, r.Status, resp.Header.Get("Content-Type"), r.Body)
		return r
	}
	if r.Data = envelope.Data; envelope.Error != nil {
		r.Error = *envelope.Error
	}
	return r
}

// record appends an exchange to the file that STOREORDER_RECORD names: .ci/contract holds it against openapi.json.
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
	line := mustJSON(object{"method": req.Method, "path": path, "sent": sent, "request": string(body),
		"status": r.Status, "header": r.Header, "body": string(r.Body)})
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n')) // in one piece: tests run side by side
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// want reports a reply that has not this status and, if code is not "", this error code.
func (r reply) want(t *testing.T, status int, code string) reply {
	t.Helper()
	if r.Status != status || r.Error.Code != code {
		t.Errorf("answer %d %s, want %d %s: %.400s", r.Status, r.Error.Code, status, code, r.Body)
	}
	return r
}

// order is a body for POST /v1/orders: alternately slugs and quantities.
func (s *testServer) order(items ...any) map[string]any {
	list := []any{}
	for i := 0; i < len(items); i += 2 {
		kind, slug := "product", items[i].(string)
		if slug == "duo" || slug == "bundle:draf" {
			kind = "bundle"
		}
		list = append(list, map[string]any{"type": kind, kind + "_id": s.ids[slug], "quantity": items[i+1]})
	}
	return map[string]any{"items": list, "buyer": map[string]any{"name": "Siti", "email": "siti@example.id"}, "payment_method": "bank_transfer"}
}

func with(body map[string]any, name string, value any) map[string]any {
	body[name] = value
	return body
}

// create makes an order and returns its id.
func (s *testServer) create(t *testing.T, items ...any) string {
	t.Helper()
	return s.do(t, "POST", "/v1/orders", s.order(items...)).want(t, 201, "").at("order.id")
}

func (s *testServer) stock(t *testing.T, slug string) int {
	t.Helper()
	return scalar[int](t, s.db, "SELECT stock FROM products WHERE id = ?", s.ids[slug])
}

var (
	uuidText = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	timeText = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
)

// shape tells the names and types in a decoded JSON value.
func shape(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case json.Number:
		if strings.ContainsAny(string(v), ".eE") {
			return "float"
		}
		return "int"
	case string:
		switch {
		case uuidText.MatchString(v):
			return "uuid"
		case timeText.MatchString(v):
			return "time"
		case strings.HasPrefix(v, "http"):
			return "url"
		}
		return "text"
	case []any:
		var kinds []string
		for _, one := range v {
			if kind := shape(one); !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
		return "[" + strings.Join(kinds, " ") + "]"
	}
	var fields []string
	for name, one := range v.(map[string]any) {
		fields = append(fields, name+":"+shape(one))
	}
	slices.Sort(fields)
	return "{" + strings.Join(fields, " ") + "}"
}

// logBuffer keeps what is written to it and lets a test wait for it.
type logBuffer struct {
	out  io.Writer
	mu   sync.Mutex
	cond *sync.Cond
	text bytes.Buffer
	done bool
}

func newLogBuffer(out io.Writer) *logBuffer {
	b := &logBuffer{out: out}
	b.cond = sync.NewCond(&b.mu)
	return b
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.cond.Broadcast()
	b.out.Write(p)
	return b.text.Write(p)
}

func (b *logBuffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = true
	b.cond.Broadcast()
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await waits until pattern is in the log and returns its first group.
func (b *logBuffer) await(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if m := re.FindStringSubmatch(b.text.String()); m != nil {
			return m[len(m)-1]
		} else if b.done {
			t.Fatalf("ended without %q: %s", pattern, b.text.String())
		}
		b.cond.Wait()
	}
}

// parallel runs fn n times at once.
func parallel(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

// events names an order's events in their sequence, and checks that each carries the order of its moment.
func (s *testServer) events(t *testing.T, orderID string) string {
	t.Helper()
	bodies, err := collect(s.db.reader, column[string], "SELECT body FROM events WHERE order_id = ? ORDER BY sequence", orderID)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	status := map[string]Status{"orderCreated": Pending, "orderAwaitingVerification": AwaitingVerification, "orderPaid": Paid, "orderFailed": Failed, "orderExpired": Expired, "orderRefunded": Refunded}
	for i, body := range bodies {
		var e struct {
			Event    string
			Sequence int
			Data     struct{ Order Order }
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil || e.Sequence != i+1 || e.Data.Order.ID != orderID ||
			e.Data.Order.Status != status[e.Event] && e.Data.Order.Amount > 0 {
			t.Errorf("event %d: %v %s", i+1, err, body)
		}
		names = append(names, e.Event)
	}
	return strings.Join(names, " ")
}

const ownerPassword = "kopi-susu-gula-aren"

// ownerHash is the hash of ownerPassword: made once, for it takes a while.
var ownerHash = hashNewPassword(ownerPassword)

func newShop(t *testing.T, publicURL string) *testServer {
	t.Helper()
	t.Parallel()
	s := newTestServerWith(t, settings{publicURL: publicURL, rate: 100_000, burst: 100_000})
	s.open(t, s.storeID)
	s.exec(t, "DELETE FROM api_keys")
	return s
}

// addShop makes another store.
func (s *testServer) addShop(t *testing.T, slug, plan string) (storeID string) {
	t.Helper()
	storeID, _ = s.addStore(t, slug, plan)
	s.open(t, storeID)
	return storeID
}

// open lets a store's owner sign in and gives him something to sell.
func (s *testServer) open(t *testing.T, storeID string) {
	t.Helper()
	if err := s.db.SetPassword(t.Context(), storeID, ownerHash); err != nil {
		t.Fatal(err)
	}
	s.importCatalog(t, storeID, shopCatalog)
}

// place makes an order of quantity packets of coffee.
func (s *testServer) place(t *testing.T, storeID, buyer, externalID string, quantity int64) Order {
	t.Helper()
	st, err := s.db.Store(storeID)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.db.CatalogEntry(storeID, "product", "kopi")
	if err != nil {
		t.Fatal(err)
	}
	created, err := s.db.CreateOrder(t.Context(), st, NewOrder{Items: []NewItem{{Kind: KindProduct, ID: p.ID, Quantity: quantity}},
		Buyer: Buyer{Name: buyer, Email: strings.ToLower(strings.Fields(buyer)[0]) + "@example.id", Phone: "+62 812-3456-789"}, PaymentMethod: "bank", ExternalID: externalID})
	if err != nil {
		t.Fatal(err)
	}
	var o Order
	if err := json.Unmarshal(created.Shown, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func (s *testServer) move(t *testing.T, id string, m Transition) {
	t.Helper()
	if _, err := s.db.Transition(t.Context(), s.storeID, id, m, Note{Code: NoteText, Text: "test"}); err != nil {
		t.Fatal(err)
	}
}

func (s *testServer) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if err := s.db.write(context.Background(), func(tx *Tx) error { return tx.mustChange(query, args...) }); err != nil {
		t.Fatal(err)
	}
}

// browser is one visitor with his cookies. It follows no redirects.
type browser struct {
	*http.Client
	s      *testServer
	header http.Header
}

// screen is a page as a browser got it.
type screen struct {
	status         int
	location, body string
	header         http.Header
}

func (s *testServer) browser() *browser {
	jar, _ := cookiejar.New(nil)
	return &browser{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, s, http.Header{}}
}

// owner is a browser that is signed in.
func (s *testServer) owner(t *testing.T, email string) *browser {
	t.Helper()
	b := s.browser()
	if p := b.post(t, "/dashboard/login", "email", email, "password", ownerPassword); p.status != 303 || p.location != "/dashboard" {
		t.Fatalf("signing in answers %d %s", p.status, p.location)
	}
	return b
}

func (b *browser) send(t *testing.T, method, path string, form url.Values) screen {
	t.Helper()
	r, err := http.NewRequest(method, b.s.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range b.header {
		r.Header[name] = values
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return screen{resp.StatusCode, resp.Header.Get("Location"), string(body), resp.Header}
}

func (b *browser) get(t *testing.T, path string) screen {
	t.Helper()
	return b.send(t, "GET", path, nil)
}

func (b *browser) post(t *testing.T, path string, pairs ...string) screen {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return b.send(t, "POST", path, form)
}

// has fails unless the screen has this status and these texts.
func (p screen) has(t *testing.T, status int, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(html.UnescapeString(p.body), text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	if p.status != status || t.Failed() {
		t.Fatalf("%d, want %d: %s\n%s", p.status, status, p.location, p.body)
	}
}

func (p screen) leads(t *testing.T, to string) {
	t.Helper()
	if p.status != 303 || p.location != to {
		t.Fatalf("%d %q, want 303 %q\n%s", p.status, p.location, to, p.body)
	}
}

// command runs one of the program's commands and checks its exit code. A successful one prints one JSON object.
func command(t *testing.T, want int, args ...string) (out map[string]any, stderr string) {
	t.Helper()
	var stdout, errs bytes.Buffer
	if got := run(t.Context(), args, strings.NewReader(""), &stdout, &errs); got != want {
		t.Errorf("%q exits with %d, want %d: %s%s", args, got, want, stdout.String(), errs.String())
	}
	dec := json.NewDecoder(&stdout)
	dec.UseNumber()
	if want != 0 {
		if stdout.Len() > 0 && args[0] != "check" {
			t.Errorf("%q fails and prints %s", args, stdout.String())
		}
	} else if err := dec.Decode(&out); err != nil || dec.More() {
		t.Errorf("%q prints no JSON object: %v", args, err)
	}
	return out, errs.String()
}

// writeFile makes a file in the test's directory.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newStoreFile makes a database with a store, its catalog and a key, all by commands.
func newStoreFile(t *testing.T) (file, storeID, key string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "shop.db")
	st, _ := command(t, 0, "store", "add", "-db", file, "-name", "Kopi Kita", "-email", "Owner@example.id")
	storeID, _ = st["store_id"].(string)
	if got := shape(st); got != "{owner_email:text owner_password:text store_id:uuid}" || st["owner_email"] != "owner@example.id" {
		t.Fatalf("store add: %v", st)
	}
	imported, _ := command(t, 0, "catalog", "import", "-db", file, "-store", storeID, writeFile(t, "catalog.json", testCatalog))
	if got := fmt.Sprint(imported); got != "map[bundles:2 payment_methods:5 products:6]" {
		t.Errorf("catalog import: %s", got)
	}
	added, _ := command(t, 0, "key", "add", "-db", file, "-store", storeID, "-name", "test")
	key, _ = added["key"].(string)
	if !regexp.MustCompile(`^so_[0-9A-Za-z_-]{43}$`).MatchString(key) || shape(added) != "{key:text key_id:uuid}" {
		t.Fatalf("key add: %v", added)
	}
	return file, storeID, key
}

// reach talks to a service that runs elsewhere.
func reach(t *testing.T, address, key string) *testServer {
	t.Helper()
	s := &testServer{url: "http://" + address, key: key, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, ids: map[string]string{}}
	t.Cleanup(s.client.CloseIdleConnections)
	list := s.do(t, "GET", "/v1/products", nil).want(t, 200, "")
	for _, kind := range []string{"products", "bundles"} {
		for _, p := range list.list(kind) {
			s.ids[p["slug"].(string)] = p["id"].(string)
		}
	}
	return s
}

var servingLine = `msg=serving address=(\S+)`

// startServe runs `serve` on a free port in this process; stop ends it as SIGTERM would and returns its exit code.
func startServe(t *testing.T, file string, args ...string) (address string, logs *logBuffer, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	logs = newLogBuffer(t.Output())
	code, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		defer logs.close()
		code = run(ctx, append([]string{"serve", "-db", file, "-addr", "127.0.0.1:0"}, args...), strings.NewReader(""), io.Discard, logs)
	}()
	stop = func() int {
		cancel()
		<-ended
		return code
	}
	t.Cleanup(func() { stop() })
	return logs.await(t, servingLine), logs, stop
}

// startProgram runs `serve` in a process of its own.
func startProgram(t *testing.T, file string, args ...string) (address string, logs *logBuffer, cmd *exec.Cmd) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	logs = newLogBuffer(io.Discard)
	cmd = exec.Command(exe, append([]string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-rate", "1000000", "-burst", "1000000"}, args...)...)
	cmd.Env = append(os.Environ(), "STOREORDER_TEST_AS_PROGRAM=1")
	cmd.Stderr = logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		logs.close()
	})
	return logs.await(t, servingLine), logs, cmd
}

// startReceiver is an endpoint on a socket; what it gets comes through the channel, and it answers 204.
func startReceiver(t *testing.T) (address string, got chan received) {
	got = make(chan received, 100_000)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- receive(t, r)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(hs.Close)
	return hs.URL + "/hook", got
}

// dump is all that is in a database.
func dump(t *testing.T, file string) string {
	t.Helper()
	db, err := openDB(file, false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tables, err := collect(db.reader, column[string], "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, table := range tables {
		rows, err := db.reader.Query("SELECT * FROM " + table)
		if err != nil {
			t.Fatal(err)
		}
		columns, _ := rows.Columns()
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&all, table, values)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// received is one request at an endpoint.
type received struct {
	at     time.Time
	host   string
	header http.Header
	body   string
	event  struct {
		ID, Event, StoreID string
		CreatedAt          Time `json:"created_at"`
		Sequence           int
		Data               struct{ Order map[string]any }
	}
}

func receive(t *testing.T, r *http.Request) received {
	body, err := io.ReadAll(r.Body)
	got := received{at: time.Now(), host: r.URL.Hostname(), header: r.Header, body: string(body)}
	if err == nil {
		err = json.Unmarshal(body, &got.event)
	}
	if err != nil {
		t.Errorf("webhook's body: %v %s", err, body)
	}
	return got
}

// signedBy checks a request's headers, and its signature made with each of the secrets, in their order.
func (r received) signedBy(t *testing.T, attempt int, secrets ...string) {
	t.Helper()
	stamp, ok := strings.CutPrefix(strings.Split(r.header.Get("X-Service-Signature"), ",")[0], "t=")
	want := "t=" + stamp
	for _, secret := range secrets {
		want += ",v1=" + hmacByHand(secret, stamp+"."+r.body)
	}
	unix, _ := strconv.ParseInt(stamp, 10, 64)
	if age := r.at.Sub(time.Unix(unix, 0)); !ok || r.header.Get("X-Service-Signature") != want || age < -time.Second || age > 30*time.Second {
		t.Errorf("signature %q at %d, want %q", r.header.Get("X-Service-Signature"), r.at.Unix(), want)
	}
	for name, want := range map[string]string{"Content-Type": "application/json", "X-Service-Event": r.event.Event, "X-Service-Event-Id": r.event.ID, "X-Service-Attempt": strconv.Itoa(attempt)} {
		if r.header.Get(name) != want || want == "" {
			t.Errorf("%s: %q, want %q", name, r.header.Get(name), want)
		}
	}
	if !strings.HasPrefix(r.event.ID, "evt_") || !uuidText.MatchString(r.header.Get("X-Service-Delivery-Id")) {
		t.Errorf("event %q, delivery %q", r.event.ID, r.header.Get("X-Service-Delivery-Id"))
	}
}

// hmacByHand is HMAC-SHA256 as RFC 2104 writes it.
func hmacByHand(key, message string) string {
	k := make([]byte, 64)
	if copy(k, key); len(key) > 64 {
		sum := sha256.Sum256([]byte(key))
		k = append(sum[:], make([]byte, 32)...)
	}
	pad := func(b byte) []byte {
		p := bytes.Clone(k)
		for i := range p {
			p[i] ^= b
		}
		return p
	}
	inner := sha256.Sum256(append(pad(0x36), message...))
	outer := sha256.Sum256(append(pad(0x5c), inner[:]...))
	return hex.EncodeToString(outer[:])
}

// inbox keeps what endpoints received. Its answer is 200, or what answer says.
type inbox struct {
	t      *testing.T
	answer func(received) *http.Response // nil: 200
	mu     sync.Mutex
	all    []received
}

func (in *inbox) RoundTrip(r *http.Request) (*http.Response, error) {
	got := receive(in.t, r)
	in.mu.Lock()
	in.all = append(in.all, got)
	answer := in.answer
	in.mu.Unlock()
	if answer != nil {
		if resp := answer(got); resp != nil {
			return resp, nil
		}
		<-r.Context().Done() // it hangs
		return nil, r.Context().Err()
	}
	return status(200), nil
}

// take returns what came since the last call.
func (in *inbox) take() []received {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := in.all
	in.all = nil
	return all
}

func (in *inbox) setAnswer(answer func(received) *http.Response) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.answer = answer
}

func status(code int, header ...string) *http.Response {
	r := &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("an answer"))}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// deliver runs the queue of a bubble's server against an inbox until the test or the returned function ends it.
func (s *testServer) deliver(t *testing.T) (in *inbox, stop func()) {
	in = &inbox{t: t}
	s.queue.client.Transport = in
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.queue.run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return in, stop
}

func (s *testServer) endpoint(t *testing.T, host string, events ...Event) (id, secret string) {
	t.Helper()
	secret = newSecret()
	id, err := s.db.AddEndpoint(t.Context(), s.storeID, "https://"+host+"/hook", events, secret)
	if err != nil {
		t.Fatal(err)
	}
	return id, secret
}

// deliveries counts an endpoint's deliveries by status.
func (s *testServer) deliveries(t *testing.T, endpoint string) string {
	t.Helper()
	return scalar[string](t, s.db, `SELECT coalesce(group_concat(n || ' ' || status, ', '), '') FROM
		(SELECT status, count(*) n FROM deliveries WHERE endpoint_id = ? GROUP BY status ORDER BY status)`, endpoint)
}

// settle lets the queue do all that it can do now.
func (s *testServer) settle() {
	s.queue.wake()
	time.Sleep(2 * time.Second)
	synctest.Wait()
}
