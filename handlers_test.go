package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-sqlite3"
)

// TestMain lets the test binary stand in for the program, for the tests that need a process to kill.
func TestMain(m *testing.M) {
	if os.Getenv("STOREORDER_TEST_AS_PROGRAM") != "" {
		main()
	}
	os.Exit(m.Run())
}

const testCatalog = `{
  "products": [
    {"slug": "kopi", "title": "Kopi Gayo", "description": "Arabika.", "price": 85000, "stock": 10, "image_url": "https://img.example.id/kopi.jpg"},
    {"slug": "teh", "title": "Teh Melati", "price": 50000},
    {"slug": "gratis", "title": "Panduan", "price": 0},
    {"slug": "mahal", "title": "Permata", "price": 999999999999},
    {"slug": "separuh", "title": "Separuh", "price": 500000000000},
    {"slug": "draf", "title": "Draf", "price": 1000, "published": false}],
  "bundles": [
    {"slug": "duo", "title": "Duo", "price": 200000, "items": [{"slug": "kopi", "quantity": 2}, {"slug": "teh", "quantity": 1}]},
    {"slug": "draf", "title": "Draf", "price": 1, "published": false, "items": [{"slug": "teh", "quantity": 1}]}],
  "payment_methods": [
    {"code": "bank_fee", "name": "Transfer B", "provider": "manual", "fee": 4000, "min_amount": 85000, "max_amount": 170000},
    {"code": "bank_transfer", "name": "Transfer A", "provider": "manual", "instructions": "BCA 123"},
    {"code": "bank_rich", "name": "Transfer C", "provider": "manual", "fee": 1},
    {"code": "off", "name": "Off", "provider": "manual", "enabled": false},
    {"code": "qris", "name": "QRIS", "provider": "midtrans"}]}`

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

// ---- Shapes

const orderShape = "amount:int buyer:{email:text name:text} checkout_url:url created_at:time currency:text expires_at:time id:uuid " +
	"items:[{line_total:int product_id:uuid quantity:int title:text type:text unit_price:int} {bundle_id:uuid line_total:int quantity:int title:text type:text unit_price:int}] " +
	"payment_method:text payment_provider:text payment_reference:text payment_url:url requires_payment:bool settlement_channel:text status:text subtotal:int updated_at:time"

func TestFieldsAndTypes(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	products := s.do(t, "GET", "/v1/products", nil)
	methods := s.do(t, "GET", "/v1/payment-methods", nil)
	if got, want := s.do(t, "GET", "/v1/orders", nil), `{"success":true,"data":{"orders":[],"has_more":false}}`; string(got.Body) != want {
		t.Errorf("no orders: %s", got.Body)
	}
	body := s.order("kopi", 2, "duo", 1)
	created := s.do(t, "POST", "/v1/orders", body).want(t, 201, "")
	id := created.at("order.id")
	read := s.do(t, "GET", "/v1/orders/"+strings.ToUpper(id), nil).want(t, 200, "")
	for _, c := range []struct{ name, got, want string }{
		{"products", shape(products.Data), "{bundles:[{available:bool created_at:time currency:text description:text id:uuid image_url:null items:[{product_id:uuid quantity:int title:text}] price:int slug:text stock:int title:text type:text updated_at:time}] " +
			"has_more:bool products:[{available:bool created_at:time currency:text description:text id:uuid image_url:url price:int slug:text stock:int title:text type:text updated_at:time} " +
			"{available:bool created_at:time currency:text description:text id:uuid image_url:null price:int slug:text stock:null title:text type:text updated_at:time}]}"},
		{"payment methods", shape(methods.Data), "{payment_methods:[{code:text fee:int instructions:text max_amount:int min_amount:int name:text provider:text settlement_channel:text} " +
			"{code:text fee:int instructions:text max_amount:null min_amount:null name:text provider:text settlement_channel:text}]}"},
		{"POST order", shape(created.Data), "{order:{" + orderShape + "}}"},
		{"GET order", shape(read.Data["order"]), "{" + orderShape + "}"},
		{"list", shape(s.do(t, "GET", "/v1/orders", nil).Data), "{has_more:bool orders:[{" + orderShape + "}]}"},
		{"POST equals GET", shape(read.Data["order"]) + fmt.Sprint(created.Data["order"]), shape(read.Data["order"]) + fmt.Sprint(read.Data["order"])},
		{"Location", created.Header.Get("Location"), "/v1/orders/" + id},
		{"checkout_url", read.at("order.checkout_url"), "http://shop.test/pay/" + id},
		{"payment_url", created.at("order.payment_url"), "http://shop.test/pay/" + id},
		{"money", strings.Join([]string{read.at("order.items.0.line_total"), read.at("order.items.1.unit_price"), read.at("order.subtotal"), read.at("order.amount")}, " "), "170000 200000 370000 370000"},
		{"payment", fmt.Sprint(read.at("order.payment_method"), " ", read.at("order.payment_provider"), " ", read.at("order.settlement_channel"), " ", read.at("order.currency")), "bank_transfer manual manual IDR"},
		{"state", read.at("order.status") + read.at("order.requires_payment"), "pendingtrue"},
		{"session", read.at("payment_session.provider") + " " + read.at("payment_session.status") + " " + read.at("payment_session.payment_url"), "manual manual http://shop.test/pay/" + id},
		{"bundle's stock follows from its parts", s.do(t, "GET", "/v1/products?type=bundle", nil).at("bundles.0.stock"), "3"},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, c.got, c.want)
		}
	}
	if ref := read.at("order.payment_reference"); !regexp.MustCompile(`^INV-\d{8}-[0-9A-HJKMNP-TV-Z]{6}$`).MatchString(ref) {
		t.Errorf("payment_reference %q", ref)
	}
	created1, _ := time.Parse(time.RFC3339, read.at("order.created_at"))
	expires, _ := time.Parse(time.RFC3339, read.at("order.expires_at"))
	if expires.Sub(created1) != 24*time.Hour {
		t.Errorf("expires %s after its creation", expires.Sub(created1))
	}
	// Optional fields come back as given; an absent email is left out.
	body = with(with(s.order("teh", 1), "external_id", "shop-1"), "return_url", "https://shop.example.id/thanks?a=1&b=<2>")
	body["buyer"] = map[string]any{"name": "Siti \"S\" & <b>", "phone": "+62 (812) 345-678"}
	r := s.do(t, "POST", "/v1/orders", body).want(t, 201, "")
	for path, want := range map[string]string{"external_id": "shop-1", "return_url": "https://shop.example.id/thanks?a=1&b=<2>", "buyer.name": "Siti \"S\" & <b>",
		"buyer.phone": "+62 (812) 345-678", "buyer.email": "<nil>"} {
		if got := r.at("order." + path); got != want {
			t.Errorf("%s = %q, want %q", path, got, want)
		}
	}
	if got := s.do(t, "GET", "/v1/orders?external_id=shop-1", nil); shape(got.Data["orders"]) != "["+shape(r.Data["order"])+"]" || got.at("orders.0.id") != r.at("order.id") {
		t.Errorf("by external_id: %s", got.Body)
	}
	s.do(t, "POST", "/v1/orders", body).want(t, 409, "DUPLICATE_EXTERNAL_ID")
}

func TestProductsListAndPaymentMethods(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	slugs := func(r reply) string {
		var all []string
		for _, list := range []string{"products", "bundles"} {
			for _, p := range r.list(list) {
				all = append(all, p["slug"].(string))
			}
		}
		return strings.Join(all, " ") + " " + r.at("has_more")
	}
	for _, c := range []struct{ query, want string }{
		{"", "kopi gratis mahal separuh teh duo false"}, // by title, bundles last, drafts not at all
		{"?limit=2", "kopi gratis true"},
		{"?limit=5", "kopi gratis mahal separuh teh true"},
		{"?limit=6", "kopi gratis mahal separuh teh duo false"},
		{"?limit=2&offset=4", "teh duo false"},
		{"?limit=1&offset=5", "duo false"},
		{"?offset=6", " false"},
		{"?type=product", "kopi gratis mahal separuh teh false"},
		{"?type=bundle", "duo false"},
		{"?type=bundle&offset=1", " false"},
		{"?q=KOPI", "kopi false"},
		{"?q=%25", " false"}, // no wildcard
		{"?q=_", " false"},
		{"?q=du&limit=1&offset=1", "duo false"}, // Panduan, Duo
	} {
		if got := slugs(s.do(t, "GET", "/v1/products"+c.query, nil).want(t, 200, "")); got != c.want {
			t.Errorf("products%s: %q, want %q", c.query, got, c.want)
		}
	}
	for _, c := range []struct{ query, want string }{
		{"", "bank_fee bank_rich bank_transfer"}, // not the one that is off, nor the gateway without a key
		{"?amount=0", "bank_rich bank_transfer"},
		{"?amount=84999", "bank_rich bank_transfer"},
		{"?amount=85000", "bank_fee bank_rich bank_transfer"},
		{"?amount=170000", "bank_fee bank_rich bank_transfer"}, // the fee does not count
		{"?amount=170001", "bank_rich bank_transfer"},
	} {
		var codes []string
		for _, m := range s.do(t, "GET", "/v1/payment-methods"+c.query, nil).want(t, 200, "").list("payment_methods") {
			codes = append(codes, m["code"].(string))
		}
		if got := strings.Join(codes, " "); got != c.want {
			t.Errorf("payment-methods%s: %q, want %q", c.query, got, c.want)
		}
	}
	tag := s.do(t, "GET", "/v1/products", nil).Header.Get("ETag")
	s.do(t, "GET", "/v1/products", nil, "If-None-Match", tag).want(t, 304, "")
	s.do(t, "GET", "/v1/products", nil, "If-None-Match", `"x", W/`+tag).want(t, 304, "")
	s.create(t, "kopi", 1)
	if got := s.do(t, "GET", "/v1/products", nil, "If-None-Match", tag).want(t, 200, ""); got.Header.Get("ETag") == tag || got.at("products.0.stock") != "9" {
		t.Errorf("after a sale: %s", got.Body)
	}
	for _, path := range []string{"/v1/products", "/v1/orders", "/v1/payment-methods", "/healthz", "/readyz"} {
		get := s.do(t, "GET", path, nil).want(t, 200, "")
		if head := s.do(t, "HEAD", path, nil); head.Status != 200 || head.Header.Get("Content-Length") != strconv.Itoa(len(get.Body)) {
			t.Errorf("HEAD %s: %d, length %s of %d", path, head.Status, head.Header.Get("Content-Length"), len(get.Body))
		}
	}
}

// ---- Failures

func TestMessagesAndEnvelopes(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	id := s.create(t, "teh", 1)
	_, free := s.addStore(t, "gratisan", "free")
	revoked, hash := newToken("so_")
	keyID, err := s.db.AddKey(t.Context(), s.storeID, "old", hash)
	if err != nil {
		t.Fatal(err)
	}
	s.do(t, "GET", "/v1/orders", nil, "Authorization", "bEaReR "+revoked).want(t, 200, "")
	if err := s.db.RevokeKey(t.Context(), s.storeID, keyID); err != nil {
		t.Fatal(err)
	}
	const unauthorized = "Missing or invalid Authorization header."
	for _, c := range []struct {
		name, method, path string
		body               any
		headers            []string
		status             int
		code, message      string // message "" is any
		allow              string
	}{
		{name: "no key", method: "GET", path: "/v1/orders", headers: []string{"Authorization", ""}, status: 401, code: "UNAUTHORIZED", message: unauthorized},
		{name: "no scheme", method: "GET", path: "/v1/orders", headers: []string{"Authorization", s.key}, status: 401, code: "UNAUTHORIZED", message: unauthorized},
		{name: "Basic", method: "GET", path: "/v1/orders", headers: []string{"Authorization", "Basic " + s.key}, status: 401, code: "UNAUTHORIZED", message: unauthorized},
		{name: "only a scheme", method: "GET", path: "/v1/orders", headers: []string{"Authorization", "Bearer"}, status: 401, code: "UNAUTHORIZED", message: unauthorized},
		{name: "twice", method: "GET", path: "/v1/orders", headers: []string{"Authorization", "Bearer " + s.key, "Authorization", "Bearer " + s.key}, status: 401, code: "UNAUTHORIZED", message: unauthorized},
		{name: "two keys", method: "GET", path: "/v1/orders", headers: []string{"Authorization", "Bearer " + s.key + " " + s.key}, status: 401, code: "UNAUTHORIZED", message: unauthorized},
		{name: "unknown", method: "GET", path: "/v1/orders", headers: []string{"Authorization", "Bearer so_unknown"}, status: 401, code: "UNAUTHORIZED", message: unauthorized},
		{name: "revoked, at once", method: "GET", path: "/v1/orders", headers: []string{"Authorization", "Bearer " + revoked}, status: 401, code: "UNAUTHORIZED", message: unauthorized},
		{name: "key before body", method: "POST", path: "/v1/orders", body: "{", headers: []string{"Authorization", ""}, status: 401, code: "UNAUTHORIZED", message: unauthorized},
		{name: "free plan", method: "GET", path: "/v1/products", headers: []string{"Authorization", "Bearer " + free}, status: 403, code: "PLAN_REQUIRED", message: "Public API is not available on this store's plan."},
		{name: "plan before body", method: "POST", path: "/v1/orders", body: "{", headers: []string{"Authorization", "Bearer " + free}, status: 403, code: "PLAN_REQUIRED"},
		{name: "not JSON", method: "POST", path: "/v1/orders", body: "{", status: 400, code: "INVALID_REQUEST", message: "Invalid JSON body."},
		{name: "unknown path", method: "GET", path: "/v1/nothing", headers: []string{"Authorization", ""}, status: 404, code: "NOT_FOUND"},
		{name: "root", method: "GET", path: "/v1", status: 404, code: "NOT_FOUND"},
		{name: "trailing slash", method: "GET", path: "/v1/orders/", status: 404, code: "NOT_FOUND"},
		{name: "double slash", method: "GET", path: "/v1//orders", status: 404, code: "NOT_FOUND"},
		{name: "dot", method: "GET", path: "/v1/./orders", status: 404, code: "NOT_FOUND"},
		{name: "dots", method: "GET", path: "/v1/orders/%2e%2e/products", status: 404, code: "NOT_FOUND"},
		{name: "encoded slash", method: "GET", path: "/v1/orders/a%2Fb", status: 404, code: "NOT_FOUND"},
		{name: "path in another case", method: "GET", path: "/v1/Orders", status: 404, code: "NOT_FOUND"},
		{name: "unclean POST", method: "POST", path: "/v1//orders", body: "{}", status: 404, code: "NOT_FOUND"},
		{name: "DELETE orders", method: "DELETE", path: "/v1/orders", status: 405, code: "METHOD_NOT_ALLOWED", allow: "GET, HEAD, POST"},
		{name: "405 before the key", method: "PUT", path: "/v1/orders/" + id, headers: []string{"Authorization", ""}, status: 405, code: "METHOD_NOT_ALLOWED", allow: "GET, HEAD"},
		{name: "POST products", method: "POST", path: "/v1/products", body: "{}", status: 405, code: "METHOD_NOT_ALLOWED", allow: "GET, HEAD"},
		{name: "OPTIONS", method: "OPTIONS", path: "/v1/payment-methods", status: 405, code: "METHOD_NOT_ALLOWED", allow: "GET, HEAD"},
		{name: "unknown order", method: "GET", path: "/v1/orders/0190f5a0-0000-7000-8000-000000000001", status: 404, code: "NOT_FOUND"},
		{name: "malformed order id", method: "GET", path: "/v1/orders/x'%20OR%201=1", status: 404, code: "NOT_FOUND"},
		{name: "order with a parameter", method: "GET", path: "/v1/orders/" + id + "?a=1", status: 400, code: "INVALID_REQUEST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.do(t, c.method, c.path, c.body, c.headers...).want(t, c.status, c.code)
			if c.message != "" && r.Error.Message != c.message {
				t.Errorf("message %q, want %q", r.Error.Message, c.message)
			}
			if got := r.Header.Get("Allow"); got != c.allow {
				t.Errorf("Allow %q, want %q", got, c.allow)
			}
			if got := r.Header.Get("WWW-Authenticate"); (got == "Bearer") != (c.status == 401) {
				t.Errorf("WWW-Authenticate %q with %d", got, c.status)
			}
		})
	}
	head := s.do(t, "HEAD", "/v1/orders/"+id, nil)
	if head.Status != 200 || head.Header.Get("Content-Length") == "0" {
		t.Errorf("HEAD order: %d %v", head.Status, head.Header)
	}
}

func TestRateLimits(t *testing.T) {
	t.Parallel()
	o := testSettings
	o.rate, o.burst = 1, 3 // one a minute: none comes back while the test runs
	s := newTestServerWith(t, o)
	for left := 2; left >= 0; left-- {
		r := s.do(t, "GET", "/v1/orders", nil).want(t, 200, "")
		if got := r.Header.Get("X-RateLimit-Limit") + " " + r.Header.Get("X-RateLimit-Remaining"); got != fmt.Sprintf("1 %d", left) {
			t.Errorf("limit and remaining %s with %d left", got, left)
		}
		if reset, _ := strconv.Atoi(r.Header.Get("X-RateLimit-Reset")); reset > (3-left)*60 || reset <= (2-left)*60 {
			t.Errorf("reset %d with %d left", reset, left)
		}
	}
	r := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 429, "RATE_LIMITED")
	if wait, _ := strconv.Atoi(r.Header.Get("Retry-After")); r.Error.Message != "Rate limit exceeded." || wait < 1 || wait > 60 || r.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("%s %v", r.Body, r.Header)
	}
	if n := scalar[int](t, s.db, "SELECT count(*) FROM orders"); n != 0 {
		t.Errorf("%d orders made by refused requests", n)
	}
	// Wrong keys are limited by address; a right key from the same address goes on.
	_, other := s.addStore(t, "lain", "scale")
	codes := map[string]int{}
	for range 65 {
		r = s.do(t, "GET", "/v1/orders", nil, "Authorization", "Bearer so_wrong")
		codes[r.Error.Code]++
	}
	if codes["UNAUTHORIZED"] < 60 || codes["RATE_LIMITED"] < 1 || r.Error.Code == "RATE_LIMITED" && r.Header.Get("Retry-After") == "" {
		t.Errorf("wrong keys: %v, last %v", codes, r.Header)
	}
	s.do(t, "GET", "/v1/orders", nil, "Authorization", "Bearer "+other).want(t, 200, "")
}

func TestLimiterRefillsByTheClock(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(300, 60), time.Unix(0, 0)
	for range 60 {
		if !l.take("k", now).ok {
			t.Fatal("refused within the burst")
		}
	}
	if a := l.take("k", now); a.ok || a.retryAfter != 200*time.Millisecond || a.full != 12*time.Second {
		t.Errorf("the 61st: %+v", a)
	}
	if a := l.take("k", now.Add(199*time.Millisecond)); a.ok {
		t.Error("one came back too early")
	}
	if a := l.take("k", now.Add(time.Hour)); !a.ok || a.remaining != 59 {
		t.Errorf("after an hour: %+v", a)
	}
}

// badBodies are bodies of POST /v1/orders that create nothing, made of a good one. KOPI and so on stand for ids.
var badBodies = []struct {
	name, body string
	status     int
	code       string
	fields     string // of the details, "" = not looked at
}{
	{"empty", ``, 400, "INVALID_REQUEST", ""},
	{"blank", "  \n", 400, "INVALID_REQUEST", ""},
	{"not UTF-8", "{\"items\":\"\xff\"}", 400, "INVALID_REQUEST", ""},
	{"not UTF-8 in a good order", `{"items":[{"type":"product","product_id":"TEH","quantity":1}],"buyer":{"name":"S` + "\xc3\x28" + `","phone":"081234"},"payment_method":"bank_transfer"}`, 400, "INVALID_REQUEST", ""},
	{"trailing data", `GOOD{}`, 400, "INVALID_REQUEST", ""},
	{"trailing comma", `{"items":[],}`, 400, "INVALID_REQUEST", ""},
	{"BOM", "\ufeffGOOD", 400, "INVALID_REQUEST", ""},
	{"comment", `/**/GOOD`, 400, "INVALID_REQUEST", ""},
	{"NaN", `{"items":NaN}`, 400, "INVALID_REQUEST", ""},
	{"raw newline in a string", "{\"external_id\":\"a\nb\"}", 400, "INVALID_REQUEST", ""},
	{"key twice", `{"items":[],"items":[{"type":"product","product_id":"TEH","quantity":1}],"buyer":{"name":"S","phone":"081234"},"payment_method":"bank_transfer"}`, 400, "INVALID_REQUEST", ""},
	{"key twice, once escaped", `{"items":[{"type":"product","product_id":"TEH","quantity":1,"quantit\u0079":2}],"buyer":{"name":"S","phone":"081234"},"payment_method":"bank_transfer"}`, 400, "INVALID_REQUEST", ""},
	{"key in another case", `{"Items":[{"type":"product","product_id":"TEH","quantity":1}],"buyer":{"name":"S","phone":"081234"},"payment_method":"bank_transfer"}`, 400, "INVALID_REQUEST", ""},
	{"nested key in another case", `{"items":[{"type":"product","product_id":"TEH","Quantity":1}],"buyer":{"name":"S","phone":"081234"},"payment_method":"bank_transfer"}`, 400, "INVALID_REQUEST", ""},
	{"depth 17", `{"items":` + strings.Repeat("[", 16) + strings.Repeat("]", 16) + `}`, 400, "INVALID_REQUEST", ""},
	{"depth 16", `{"items":` + strings.Repeat("[", 15) + strings.Repeat("]", 15) + `}`, 422, "VALIDATION_FAILED", ""},
	{"depth 30,000", strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000), 400, "INVALID_REQUEST", ""},
	{"array", `[GOOD]`, 422, "VALIDATION_FAILED", ""},
	{"null", `null`, 422, "VALIDATION_FAILED", ""},
	{"text", `"order"`, 422, "VALIDATION_FAILED", ""},
	{"empty object", `{}`, 422, "VALIDATION_FAILED", "buyer,items"},
	{"all nulls", `{"items":null,"buyer":null,"payment_method":null,"external_id":null,"return_url":null}`, 422, "VALIDATION_FAILED", "payment_method,external_id,return_url,buyer,items"},
	{"nulls within", `{"items":[null],"buyer":{"name":null,"email":null}}`, 422, "VALIDATION_FAILED", "buyer.name,buyer.email,items[0]"},
	{"unknown keys", `{"amount":1,"items":[{"type":"product","product_id":"TEH","quantity":1,"unit_price":1}],"buyer":{"name":"S","phone":"081234","age":3},"payment_method":"bank_transfer"}`, 422, "VALIDATION_FAILED", "amount,buyer.age,items[0].unit_price"},
	{"no items", `{"items":[],"buyer":{"name":"S","phone":"081234"},"payment_method":"bank_transfer"}`, 422, "VALIDATION_FAILED", "items"},
	{"101 items", `{"items":[` + strings.Repeat(`{},`, 100) + `{}],"buyer":{"name":"S","phone":"081234"},"payment_method":"bank_transfer"}`, 422, "VALIDATION_FAILED", "items"},
	{"same thing twice", `{"items":[{"type":"product","product_id":"TEH","quantity":1},{"type":"product","product_id":"teh","quantity":1}],"buyer":{"name":"S","phone":"081234"},"payment_method":"bank_transfer"}`, 422, "VALIDATION_FAILED", "items[1].product_id"},
	{"type", `ITEM{"type":"service","product_id":"TEH","quantity":1}`, 422, "VALIDATION_FAILED", "items[0].type"},
	{"a bundle's id in a product", `ITEM{"type":"product","bundle_id":"DUO","quantity":1}`, 422, "VALIDATION_FAILED", ""},
	{"a bundle as a product", `ITEM{"type":"product","product_id":"DUO","quantity":1}`, 422, "PRODUCT_UNAVAILABLE", "items[0].product_id"},
	{"both ids", `ITEM{"type":"product","product_id":"TEH","bundle_id":"DUO","quantity":1}`, 422, "VALIDATION_FAILED", "items[0].bundle_id"},
	{"not an id", `ITEM{"type":"product","product_id":"1","quantity":1}`, 422, "VALIDATION_FAILED", "items[0].product_id"},
	{"unknown product", `ITEM{"type":"product","product_id":"0190f5a0-0000-7000-8000-000000000001","quantity":1}`, 422, "PRODUCT_UNAVAILABLE", "items[0].product_id"},
	{"unpublished product", `ITEM{"type":"product","product_id":"DRAF","quantity":1}`, 422, "PRODUCT_UNAVAILABLE", "items[0].product_id"},
	{"unpublished bundle", `ITEM{"type":"bundle","bundle_id":"BUNDRA","quantity":1}`, 422, "PRODUCT_UNAVAILABLE", "items[0].bundle_id"},
	{"no quantity", `ITEM{"type":"product","product_id":"TEH"}`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity 0", `QTY0`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity -1", `QTY-1`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity 10,001", `QTY10001`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity 1.0", `QTY1.0`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity 1e3", `QTY1e3`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity as text", `QTY"2"`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity true", `QTYtrue`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity null", `QTYnull`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity [1]", `QTY[1]`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity 2^63", `QTY9223372036854775808`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity 2^64+1", `QTY18446744073709551617`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity with a thousand digits", `QTY` + strings.Repeat("9", 1000), 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity 1e999999", `QTY1e999999`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"quantity 01", `QTY01`, 400, "INVALID_REQUEST", ""},
	{"line overflows", `ITEM{"type":"product","product_id":"MAHAL","quantity":2}`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"line overflows an int64", `ITEM{"type":"product","product_id":"MAHAL","quantity":10000}`, 422, "VALIDATION_FAILED", "items[0].quantity"},
	{"subtotal overflows", `ITEM{"type":"product","product_id":"MAHAL","quantity":1},{"type":"product","product_id":"TEH","quantity":1}`, 422, "VALIDATION_FAILED", "items"},
	{"amount overflows with the fee", `{"items":[{"type":"product","product_id":"MAHAL","quantity":1}],"buyer":{"name":"S","phone":"081234"},"payment_method":"bank_rich"}`, 422, "VALIDATION_FAILED", "items"},
	{"no buyer's name", `BUYER{"email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"blank name", `BUYER{"name":" ","email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"name of 201", `BUYER{"name":"` + strings.Repeat("é", 201) + `","email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"control character", `BUYER{"name":"S\u0000","email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"newline", `BUYER{"name":"S\nT","email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"C1 control character", `BUYER{"name":"S\u0085","email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"U+FFFD", `BUYER{"name":"S` + "\ufffd" + `","email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"lone surrogate", `BUYER{"name":"S\ud83d","email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"surrogates in the wrong order", `BUYER{"name":"\ude00\ud83d","email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"name as a number", `BUYER{"name":1,"email":"a@b.id"}`, 422, "VALIDATION_FAILED", "buyer.name"},
	{"neither email nor phone", `BUYER{"name":"S"}`, 422, "VALIDATION_FAILED", "buyer.email"},
	{"empty email", `BUYER{"name":"S","email":""}`, 422, "VALIDATION_FAILED", "buyer.email"},
	{"email without @", `BUYER{"name":"S","email":"siti"}`, 422, "VALIDATION_FAILED", "buyer.email"},
	{"two emails", `BUYER{"name":"S","email":"a@b.id, c@d.id"}`, 422, "VALIDATION_FAILED", "buyer.email"},
	{"email with a name", `BUYER{"name":"S","email":"Siti <a@b.id>"}`, 422, "VALIDATION_FAILED", "buyer.email"},
	{"email of 255", `BUYER{"name":"S","email":"` + strings.Repeat("a", 250) + `@b.id"}`, 422, "VALIDATION_FAILED", "buyer.email"},
	{"phone of 5 digits", `BUYER{"name":"S","phone":"08123"}`, 422, "VALIDATION_FAILED", "buyer.phone"},
	{"phone of 21 digits", `BUYER{"name":"S","phone":"081234567890123456789"}`, 422, "VALIDATION_FAILED", "buyer.phone"},
	{"phone with letters", `BUYER{"name":"S","phone":"0812345x"}`, 422, "VALIDATION_FAILED", "buyer.phone"},
	{"phone in other digits", `BUYER{"name":"S","phone":"٠١٢٣٤٥٦"}`, 422, "VALIDATION_FAILED", "buyer.phone"},
	{"buyer is a list", `BUYER[]`, 422, "VALIDATION_FAILED", "buyer"},
	{"no payment method", `{"items":[{"type":"product","product_id":"TEH","quantity":1}],"buyer":{"name":"S","phone":"081234"}}`, 422, "VALIDATION_FAILED", "payment_method"},
	{"unknown payment method", `METHOD"cash"`, 422, "PAYMENT_METHOD_UNAVAILABLE", "payment_method"},
	{"payment method that is off", `METHOD"off"`, 422, "PAYMENT_METHOD_UNAVAILABLE", "payment_method"},
	{"gateway without a key", `METHOD"qris"`, 422, "PAYMENT_METHOD_UNAVAILABLE", "payment_method"},
	{"below the method's bound", `METHOD"bank_fee"`, 422, "PAYMENT_METHOD_UNAVAILABLE", "payment_method"},
	{"external_id empty", `METHOD"bank_transfer","external_id":""`, 422, "VALIDATION_FAILED", "external_id"},
	{"external_id of 65", `METHOD"bank_transfer","external_id":"` + strings.Repeat("x", 65) + `"`, 422, "VALIDATION_FAILED", "external_id"},
	{"return_url is no address", `METHOD"bank_transfer","return_url":"javascript:alert(1)"`, 422, "VALIDATION_FAILED", "return_url"},
	{"return_url of 2,049", `METHOD"bank_transfer","return_url":"https://a.id/` + strings.Repeat("x", 2036) + `"`, 422, "VALIDATION_FAILED", "return_url"},
	{"more than is left", `ITEM{"type":"product","product_id":"TEH","quantity":1},{"type":"product","product_id":"KOPI","quantity":11}`, 409, "OUT_OF_STOCK", "items[1].quantity"},
	{"more than is left in a bundle and beside it", `ITEM{"type":"product","product_id":"KOPI","quantity":5},{"type":"bundle","bundle_id":"DUO","quantity":3}`, 409, "OUT_OF_STOCK", "items[0].quantity,items[1].quantity"},
	{"64 KiB and one", strings.Repeat(" ", 64<<10-1) + "{}", 413, "PAYLOAD_TOO_LARGE", ""},
}

// spell writes out the abbreviations of badBodies.
func (s *testServer) spell(body string) string {
	const buyer, method = `"buyer":{"name":"S","phone":"081234"}`, `"payment_method":"bank_transfer"`
	const item = `{"type":"product","product_id":"TEH","quantity":1}`
	for name, write := range map[string]func(rest string) string{
		"QTY": func(rest string) string {
			return `{"items":[{"type":"product","product_id":"TEH","quantity":` + rest + `}],` + buyer + `,` + method + `}`
		},
		"ITEM":  func(rest string) string { return `{"items":[` + rest + `],` + buyer + `,` + method + `}` },
		"BUYER": func(rest string) string { return `{"items":[` + item + `],"buyer":` + rest + `,` + method + `}` },
		"METHOD": func(rest string) string {
			return `{"items":[` + item + `],` + buyer + `,"payment_method":` + rest + `}`
		},
	} {
		if rest, ok := strings.CutPrefix(body, name); ok {
			body = write(rest)
		}
	}
	body = strings.Replace(body, "GOOD", `{"items":[`+item+`],`+buyer+`,`+method+`}`, 1)
	return strings.NewReplacer(`"TEH"`, `"`+s.ids["teh"]+`"`, `"teh"`, `"`+strings.ToUpper(s.ids["teh"])+`"`, `"KOPI"`, `"`+s.ids["kopi"]+`"`,
		`"MAHAL"`, `"`+s.ids["mahal"]+`"`, `"DUO"`, `"`+s.ids["duo"]+`"`, `"DRAF"`, `"`+s.ids["draf"]+`"`, `"BUNDRA"`, `"`+s.ids["bundle:draf"]+`"`).Replace(body)
}

func TestBadBodies(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for _, c := range badBodies {
		t.Run(c.name, func(t *testing.T) {
			r := s.do(t, "POST", "/v1/orders", s.spell(c.body)).want(t, c.status, c.code)
			if c.fields != "" && r.fields() != c.fields {
				t.Errorf("details name %q, want %q", r.fields(), c.fields)
			}
			if c.status == 400 && strings.Contains(" empty trailing data BOM not UTF-8 ", " "+c.name+" ") && r.Error.Message != "Invalid JSON body." {
				t.Errorf("message %q", r.Error.Message)
			}
		})
	}
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json, text/plain", "application/jsonp"} {
		s.do(t, "POST", "/v1/orders", s.spell("GOOD"), "Content-Type", contentType).want(t, 415, "UNSUPPORTED_MEDIA_TYPE")
	}
	for _, key := range []string{strings.Repeat("k", 256), "\xff"} {
		s.do(t, "POST", "/v1/orders", s.spell("GOOD"), "Idempotency-Key", key).want(t, 400, "INVALID_REQUEST")
	}
	s.do(t, "POST", "/v1/orders", s.spell("GOOD"), "Idempotency-Key", "a", "Idempotency-Key", "b").want(t, 400, "INVALID_REQUEST")
	for _, table := range []string{"orders", "events", "deliveries", "idempotency_keys", "order_history"} {
		if n := scalar[int](t, s.db, "SELECT count(*) FROM "+table); n != 0 {
			t.Errorf("%d rows in %s", n, table)
		}
	}
	if s.stock(t, "kopi") != 10 {
		t.Errorf("stock %d", s.stock(t, "kopi"))
	}
	// At the bounds, and one after another so that each is known to be good but for what the table changes.
	for _, body := range []string{"GOOD", `QTY10000`, "GOOD" + strings.Repeat(" ", 64<<10-len(s.spell("GOOD"))), `BUYER{"name":"` + strings.Repeat("é", 200) + `","phone":"+1 (2) 34-5678901234567890"}`,
		`BUYER{"name":"\ud83d\ude00","email":"a@b.id"}`, `ITEM{"type":"product","product_id":"MAHAL","quantity":1}`,
		`METHOD"bank_transfer","external_id":"` + strings.Repeat("é", 64) + `"`} {
		s.do(t, "POST", "/v1/orders", s.spell(body), "Content-Type", "Application/JSON; charset=utf-8", "Idempotency-Key", "").want(t, 201, "")
	}
	s.do(t, "POST", "/v1/orders", s.spell("GOOD"), "Idempotency-Key", strings.Repeat("é", 255)).want(t, 201, "")
}

func TestBadQueries(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	_, otherKey := s.addStore(t, "lain", "growth")
	id := s.create(t, "teh", 1)
	for _, c := range []struct {
		query, names string // names is in the message
	}{
		{"limit=0", "limit=20"}, {"limit=51", "limit"}, {"limit=-1", "limit"}, {"limit=", "limit"}, {"limit=1&limit=2", "limit"}, {"limit=+5", "limit"}, {"limit=05", "limit"},
		{"limit=1.0", "limit"}, {"limit=1e1", "limit"}, {"limit=99999999999999999999", "limit"}, {"Limit=1", "Limit"}, {"offset=-1", "offset"}, {"offset=x", "offset"},
		{"offset=-9223372036854775809", "offset"}, {"status=Paid", "status"}, {"status=done", "awaiting_verification"}, {"status=", "status"}, {"page=2", "starting_after"},
		{"created_at_min=", "created_at_min"}, {"created_at_min=yesterday", "created_at_min"}, {"created_at_max=1700000000", "created_at_max"},
		{"created_at_min=2026-02-30", "created_at_min"}, {"created_at_min=2026-01-01T24:00:00Z", "created_at_min"},
		{"created_at_min=2026-01-02&created_at_max=2026-01-01", "created_at_min"}, {"created_at_min=2026-01-01T00:00:00.001Z&created_at_max=2026-01-01T00:00:00Z", "created_at_min"},
		{"starting_after=x", "starting_after"}, {"starting_after=0190f5a0-0000-7000-8000-000000000001", "starting_after"}, {"starting_after=" + id + "&offset=0", "starting_after"},
		{"external_id=" + strings.Repeat("x", 65), "external_id"}, {"external_id=%00", "external_id"}, {"external_id=%ff", "external_id"},
		{"limit=%zz", "query"}, {"a;b", "query"},
	} {
		r := s.do(t, "GET", "/v1/orders?"+c.query, nil).want(t, 400, "INVALID_REQUEST")
		if !strings.Contains(r.Error.Message, c.names) {
			t.Errorf("%s: the message does not name %s: %s", c.query, c.names, r.Error.Message)
		}
	}
	for _, path := range []string{"/v1/products?type=x", "/v1/products?limit=51", "/v1/products?q=", "/v1/products?q=%00", "/v1/products?status=paid", "/v1/payment-methods?amount=-1",
		"/v1/payment-methods?amount=1000000000000", "/v1/payment-methods?amount=1.5", "/v1/payment-methods?limit=1"} {
		s.do(t, "GET", path, nil).want(t, 400, "INVALID_REQUEST")
	}
	for _, query := range []string{"limit=1", "limit=50&offset=0", "offset=1000000000", "starting_after=" + strings.ToUpper(id), "status=awaiting_verification"} {
		s.do(t, "GET", "/v1/orders?"+query, nil).want(t, 200, "")
	}
	// Another store's rows are not visible by any parameter, nor told apart from rows that are not there.
	external := s.do(t, "POST", "/v1/orders", with(s.order("teh", 1), "external_id", "x")).at("order.id")
	auth := []string{"Authorization", "Bearer " + otherKey}
	if got, unknown := s.do(t, "GET", "/v1/orders/"+id, nil, auth...).want(t, 404, "NOT_FOUND"), s.do(t, "GET", "/v1/orders/x", nil, auth...); !bytes.Equal(got.Body, unknown.Body) {
		t.Errorf("%s, but unknown is %s", got.Body, unknown.Body)
	}
	s.do(t, "GET", "/v1/orders?starting_after="+id, nil, auth...).want(t, 400, "INVALID_REQUEST")
	for _, query := range []string{"", "?external_id=x", "?status=pending", "?created_at_min=2000-01-01", "?status=pending&external_id=x"} {
		if r := s.do(t, "GET", "/v1/orders"+query, nil, auth...).want(t, 200, ""); shape(r.Data["orders"]) != "[]" {
			t.Errorf("another store's orders%s: %s", query, r.Body)
		}
		if query != "" {
			if r := s.do(t, "GET", "/v1/orders"+query, nil); !bytes.Contains(r.Body, []byte(external)) {
				t.Errorf("its own orders%s: %s", query, r.Body)
			}
		}
	}
	s.do(t, "POST", "/v1/orders", s.order("teh", 1), auth...).want(t, 422, "PRODUCT_UNAVAILABLE")
	s.do(t, "POST", "/v1/orders", s.order("duo", 1), auth...).want(t, 422, "PRODUCT_UNAVAILABLE")
	if r := s.do(t, "GET", "/v1/products", nil, auth...); shape(r.Data) != "{bundles:[] has_more:bool products:[]}" {
		t.Errorf("another store's catalog: %s", r.Body)
	}
	s.importCatalog(t, scalar[string](t, s.db, "SELECT id FROM stores WHERE slug = 'lain'"), `{"products":[{"slug":"x","title":"X","price":5}]}`)
	mine := with(s.order(), "items", []any{map[string]any{"type": "product", "product_id": scalar[string](t, s.db, "SELECT id FROM products WHERE slug = 'x'"), "quantity": 1}})
	s.do(t, "POST", "/v1/orders", mine, auth...).want(t, 422, "PAYMENT_METHOD_UNAVAILABLE") // the method is another store's
	s.importCatalog(t, scalar[string](t, s.db, "SELECT id FROM stores WHERE slug = 'lain'"), `{"payment_methods":[{"code":"bank_transfer","name":"T","provider":"manual"}]}`)
	s.do(t, "POST", "/v1/orders", with(mine, "external_id", "x"), append(auth, "Idempotency-Key", "k")...).want(t, 201, "")
	s.do(t, "POST", "/v1/orders", s.order("teh", 1), "Idempotency-Key", "k").want(t, 201, "") // keys are per store
}

// ---- Orders

func TestDescriptionIsServedToAnyone(t *testing.T) {
	s := newTestServer(t)
	resp, err := s.client.Get(s.url + "/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	want, fileErr := os.ReadFile("openapi.json")
	if err := errors.Join(err, fileErr); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("X-Request-Id") == "" || !bytes.Equal(got, want) {
		t.Errorf("%d %v, %d bytes instead of %d", resp.StatusCode, resp.Header, len(got), len(want))
	}
	s.do(t, "HEAD", "/v1/openapi.json", nil).want(t, 200, "")
	s.do(t, "GET", "/v1/openapi.json?v=1", nil).want(t, 400, "INVALID_REQUEST")
	if allow := s.do(t, "POST", "/v1/openapi.json", "{}").want(t, 405, "METHOD_NOT_ALLOWED").Header.Get("Allow"); allow != "GET, HEAD" {
		t.Errorf("Allow: %s", allow)
	}
	s.do(t, "POST", "/v1/orders?dry=1", s.order("kopi", 1)).want(t, 400, "INVALID_REQUEST")
}

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

func TestCreatedAtBoundsToTheMillisecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01T00:00:00Z
		s := newBubbleServer(t)
		names, last := map[string]string{}, ""
		time.Sleep(24*time.Hour - time.Millisecond)
		for _, step := range []struct {
			name string
			wait time.Duration
		}{{"a", time.Millisecond}, {"b", time.Millisecond}, {"c", 24*time.Hour - 2*time.Millisecond}, {"d", 0}} {
			r := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
			last = r.at("order.id")
			names[last] = step.name
			time.Sleep(step.wait)
		}
		for _, c := range []struct{ query, want string }{ // a 01T23:59:59.999, b 02T00:00:00.000, c 02T00:00:00.001, d 02T23:59:59.999
			{"", "dcba"},
			{"created_at_min=2000-01-02T00:00:00Z", "dcb"},
			{"created_at_min=2000-01-02T00:00:00.001Z", "dc"},
			{"created_at_min=2000-01-02T00:00:00.0000001Z", "dc"},
			{"created_at_max=2000-01-02T00:00:00Z", "ba"},
			{"created_at_max=2000-01-02T00:00:00.0009Z", "ba"},
			{"created_at_max=2000-01-02T00:00:00.001", "cba"},
			{"created_at_max=2000-01-01T23:59:59,998", ""},
			{"created_at_max=2000-01-01", "a"},
			{"created_at_min=2000-01-02", "dcb"},
			{"created_at_min=2000-01-02&created_at_max=2000-01-02", "dcb"},
			{"created_at_min=2000-01-02T00:00&created_at_max=2000-01-02T00:00", "b"},
			{"created_at_min=2000-01-02T07:00:00%2B07:00", "dcb"},
			{"created_at_min=2000-01-02T07:00:00+07:00", "dcb"}, // the + was not encoded
			{"created_at_max=2000-01-01T19:00:00-05", "ba"},
			{"created_at_max=2000-01-02T00:00:00Z&limit=1", "b+"},
			{"created_at_max=1960-01-01", ""},
			{"created_at_min=9999-12-31", ""},
			{"status=pending&created_at_min=2000-01-02T00:00:00.001Z", "dc"},
			{"status=paid", ""},
			{"starting_after=D&created_at_max=2000-01-02T00:00:00Z", "ba"}, // D stands for d's id
			{"starting_after=D&created_at_min=2000-01-02T00:00:00Z&status=pending", "cb"},
			{"limit=4", "dcba"},
			{"limit=3", "dcb+"},
			{"limit=2&offset=1", "cb+"},
			{"offset=4", ""},
		} {
			r := s.do(t, "GET", "/v1/orders?"+strings.Replace(c.query, "D", last, 1), nil).want(t, 200, "")
			got := ""
			for _, o := range r.list("orders") {
				got += names[o["id"].(string)]
			}
			if r.at("has_more") == "true" {
				got += "+"
			}
			if got != c.want {
				t.Errorf("%s: %q, want %q", c.query, got, c.want)
			}
		}
	})
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, low, high string }{ // "" is refused
		{"2026-01-31", "2026-01-31T00:00:00.000Z", "2026-01-31T23:59:59.999Z"},
		{"2024-02-29", "2024-02-29T00:00:00.000Z", "2024-02-29T23:59:59.999Z"},
		{"2026-01-31T10:00Z", "2026-01-31T10:00:00.000Z", "2026-01-31T10:00:00.000Z"},
		{"2026-01-31T10:00:30", "2026-01-31T10:00:30.000Z", "2026-01-31T10:00:30.000Z"},
		{"2026-01-31T10:00:30.5Z", "2026-01-31T10:00:30.500Z", "2026-01-31T10:00:30.500Z"},
		{"2026-01-31T10:00:30.123456789Z", "2026-01-31T10:00:30.124Z", "2026-01-31T10:00:30.123Z"},
		{"2026-12-31T23:59:59.9999Z", "2027-01-01T00:00:00.000Z", "2026-12-31T23:59:59.999Z"},
		{"2026-01-31T10:00:30,25+07:00", "2026-01-31T03:00:30.250Z", "2026-01-31T03:00:30.250Z"},
		{"2026-01-31T10:00:00 0530", "2026-01-31T04:30:00.000Z", "2026-01-31T04:30:00.000Z"},
		{"2026-01-31T10:00-05", "2026-01-31T15:00:00.000Z", "2026-01-31T15:00:00.000Z"},
		{"2026-01-01T00:00:00+14:00", "2025-12-31T10:00:00.000Z", "2025-12-31T10:00:00.000Z"},
		{"", "", ""}, {"2026", "", ""}, {"2026-02-29", "", ""}, {"2026-13-01", "", ""}, {"2026-1-1", "", ""}, {"26-01-01", "", ""}, {"20260131", "", ""},
		{"2026-01-31T24:00:00Z", "", ""}, {"2026-01-31T23:59:60Z", "", ""}, {"2026-01-31T10:60Z", "", ""}, {"2026-01-31T10Z", "", ""}, {"2026-01-31T10:00:00.Z", "", ""},
		{"2026-01-31T10:00:00.1234567890Z", "", ""}, {"2026-01-31T10:00:00+15:00", "", ""}, {"2026-01-31T10:00:00+07:60", "", ""}, {"2026-01-31T10:00:00z", "", ""},
		{"2026-01-31t10:00:00Z", "", ""}, {"2026-01-31 10:00:00Z", "", ""}, {" 2026-01-31", "", ""}, {"2026-01-31Z", "", ""}, {"2026-01-31T", "", ""}, {"２026-01-31", "", ""},
		{"+12026-01-31", "", ""}, {"2026-W05-6", "", ""}, {"2026-01-31T10:00:00ZZ", "", ""},
	} {
		for end, want := range map[bool]string{false: c.low, true: c.high} {
			got, ok := parseTime(c.text, end)
			if ok != (want != "") || ok && got.String() != want {
				t.Errorf("%q end=%t: %s %t, want %q", c.text, end, got, ok, want)
			}
		}
	}
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

// ---- The state machine

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

// ---- Commands, processes and the database

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

// ---- From end to end

func TestEndToEnd(t *testing.T) {
	t.Parallel()
	file, storeID, key := newStoreFile(t)
	hook, webhooks := startReceiver(t)
	added, _ := command(t, 0, "webhook", "add", "-db", file, "-store", storeID, "-url", hook, "-webhook-allow-private")
	endpoint, secret := fmt.Sprint(added["endpoint_id"]), fmt.Sprint(added["secret"])
	if !regexp.MustCompile(`^whsec_[0-9A-Za-z_-]{43}$`).MatchString(secret) || len(added) != 2 {
		t.Errorf("webhook add: %v", added)
	}
	address, logs, stop := startServe(t, file, "-webhook-allow-private", "-public-url", "https://Orders.example.id/")
	s := reach(t, address, key)
	created := s.do(t, "POST", "/v1/orders?", s.order("kopi", 2, "duo", 1)).want(t, 201, "")
	id := created.at("order.id")
	if got := created.at("order.checkout_url"); got != "https://orders.example.id/pay/"+id {
		t.Errorf("checkout_url %s", got)
	}
	first := <-webhooks
	first.signedBy(t, 1, secret)
	// An event shows the order as the answer did, byte for byte.
	if first.event.Event != "orderCreated" || first.event.Sequence != 1 || !strings.HasSuffix(first.body, strings.TrimPrefix(string(created.Body), `{"success":true,`)) {
		t.Errorf("first event %s\nof %s", first.body, created.Body)
	}
	// The owner's transitions by command take effect while the service runs; it finds their events by itself.
	for _, step := range []struct{ command, status, event string }{{"approve", "paid", "orderPaid"}, {"refund", "refunded", "orderRefunded"}} {
		out, _ := command(t, 0, "order", step.command, "-db", file, "-order", strings.ToUpper(id))
		if fmt.Sprint(out) != "map[order_id:"+id+" status:"+step.status+"]" {
			t.Errorf("order %s: %v", step.command, out)
		}
		got := <-webhooks
		got.signedBy(t, 1, secret)
		if got.event.Event != step.event || got.event.Data.Order["status"] != step.status {
			t.Errorf("after %s: %s", step.command, got.body)
		}
	}
	_, stderr := command(t, 1, "order", "cancel", "-db", file, "-order", id)
	if !strings.Contains(stderr, "The order is refunded") {
		t.Errorf("order cancel: %s", stderr)
	}
	// Webhook commands.
	list, _ := command(t, 0, "webhook", "list", "-db", file, "-store", storeID)
	if got := (reply{Data: list}); got.at("endpoints.0.url") != hook || got.at("endpoints.0.deliveries.2.event") != "orderCreated" ||
		got.at("endpoints.0.deliveries.2.delivery_id") != first.header.Get("X-Service-Delivery-Id") || strings.Contains(fmt.Sprint(list), secret) {
		t.Errorf("webhook list: %v", list)
	}
	// A delivery's result is written after the receiver has answered, and until then it is not sent again.
	for resent := ""; resent != "1"; {
		out, _ := command(t, 0, "webhook", "resend", "-db", file, "-delivery", first.header.Get("X-Service-Delivery-Id"))
		resent = fmt.Sprint(out["resent"])
	}
	if again := <-webhooks; again.body != first.body || again.event.ID != first.event.ID {
		t.Errorf("sent again: %s", again.body)
	}
	rotated, _ := command(t, 0, "webhook", "rotate", "-db", file, "-endpoint", endpoint)
	s.create(t, "teh", 1)
	got := <-webhooks
	got.signedBy(t, 1, fmt.Sprint(rotated["secret"]), secret)
	command(t, 0, "webhook", "off", "-db", file, "-endpoint", endpoint)
	waiting := s.create(t, "teh", 1)
	resent, _ := command(t, 0, "webhook", "resend", "-db", file, "-endpoint", endpoint, "-since", "2000-01-01")
	if fmt.Sprint(resent["resent"]) == "0" {
		t.Errorf("resend -since: %v", resent)
	}
	command(t, 0, "webhook", "on", "-db", file, "-endpoint", endpoint)
	for (<-webhooks).event.Data.Order["id"] != waiting {
	}
	command(t, 0, "webhook", "remove", "-db", file, "-endpoint", endpoint)
	if list, _ := command(t, 0, "webhook", "list", "-db", file, "-store", storeID); shape(list) != "{endpoints:[]}" {
		t.Errorf("after remove: %v", list)
	}
	// Keys, plans, stores.
	keys, _ := command(t, 0, "key", "list", "-db", file, "-store", storeID)
	if shape(keys) != "{keys:[{created_at:time key_id:uuid last_used_at:null name:text revoked_at:null store_id:uuid}]}" {
		t.Errorf("key list: %s", shape(keys))
	}
	command(t, 0, "store", "set", "-db", file, "-store", storeID, "-plan", "free", "-domain", "Kopi.example.id", "-expiry", "10m")
	s.do(t, "GET", "/v1/orders", nil).want(t, 403, "PLAN_REQUIRED")
	command(t, 0, "store", "set", "-db", file, "-store", storeID, "-plan", "scale", "-name", strings.Repeat("é", 200))
	short := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
	if short.at("order.checkout_url") != "https://kopi.example.id/pay/"+short.at("order.id") {
		t.Errorf("with a domain: %s", short.at("order.checkout_url"))
	}
	var createdAt, expiresAt Time
	if err := errors.Join(createdAt.UnmarshalJSON(mustJSON(short.at("order.created_at"))), expiresAt.UnmarshalJSON(mustJSON(short.at("order.expires_at")))); err != nil || expiresAt-createdAt != 600_000 {
		t.Errorf("expiry 10m: %s %s", short.at("order.created_at"), short.at("order.expires_at"))
	}
	if stores, _ := command(t, 0, "store", "list", "-db", file); shape(stores) != "{stores:[{created_at:time domain:text expiry:text name:text owner_email:text plan:text slug:text store_id:uuid url:url}]}" {
		t.Errorf("store list: %s", shape(stores))
	}
	if changed, _ := command(t, 0, "store", "password", "-db", file, "-store", storeID); shape(changed) != "{owner_password:text store_id:uuid}" {
		t.Errorf("store password: %v", changed)
	}
	command(t, 0, "key", "revoke", "-db", file, "-key", (reply{Data: keys}).at("keys.0.key_id"))
	s.do(t, "GET", "/v1/orders", nil).want(t, 401, "UNAUTHORIZED")
	if ok, _ := command(t, 0, "check", "-db", file); fmt.Sprint(ok) != "map[faults:[] ok:true schema_version:"+strconv.Itoa(schemaVersion)+"]" {
		t.Errorf("check: %v", ok)
	}
	if code := stop(); code != 0 {
		t.Errorf("serve exits with %d", code)
	}
	log := logs.String()
	if !strings.Contains(log, "path=/v1/orders/") && !strings.Contains(log, "path=/v1/orders ") {
		t.Errorf("no line for a request: %s", log)
	}
	for _, private := range []string{key, secret, "siti", "Siti", fmt.Sprint(rotated["secret"]), hook} {
		if strings.Contains(log, private) {
			t.Errorf("the log holds %q", private)
		}
	}
}

// TestDemo takes the demo at its word: what it prints works, and it sees its own webhook.
func TestDemo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	out, code := newLogBuffer(t.Output()), make(chan int)
	go func() {
		defer out.close()
		code <- run(ctx, []string{"demo", "-addr", "127.0.0.1:0"}, strings.NewReader(""), out, out)
	}()
	order := out.await(t, `-d '(\{.*\})'`)
	key, address := out.await(t, `API key +(so_\S+)`), out.await(t, `Bearer \S+' http://(127\.0\.0\.1:\d+)/v1/orders\n`)
	s := reach(t, address, key)
	made := s.do(t, "POST", "/v1/orders", order).want(t, 201, "")
	out.await(t, "orderCreated .*"+made.at("order.payment_reference")+".* signature verified")
	if list := s.do(t, "GET", "/v1/orders", nil); list.at("orders.0.id") != made.at("order.id") {
		t.Errorf("orders: %s", list.Body)
	}
	cancel()
	if c := <-code; c != 0 {
		t.Errorf("demo exits with %d", c)
	}
}

func TestBackupWhileOrdersCome(t *testing.T) {
	t.Parallel()
	file, _, key := newStoreFile(t)
	address, _, stop := startServe(t, file, "-rate", "1000000", "-burst", "1000000")
	s := reach(t, address, key)
	var before []string
	for range 20 {
		before = append(before, s.create(t, "teh", 1))
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
				}
			}
		})
	}
	out := filepath.Join(t.TempDir(), "backup.db")
	command(t, 0, "backup", "-db", file, out)
	close(done)
	wg.Wait()
	command(t, 0, "check", "-db", out)
	rows := dump(t, out)
	for _, id := range before {
		if !strings.Contains(rows, id) {
			t.Errorf("order %s is not in the backup", id)
		}
	}
	if _, stderr := command(t, 1, "backup", "-db", file, out); !strings.Contains(stderr, "exists") || dump(t, out) != rows {
		t.Errorf("overwriting: %s", stderr)
	}
	stop()
	again := filepath.Join(t.TempDir(), "again.db")
	command(t, 0, "backup", "-db", file, again)
	if dump(t, again) != dump(t, file) {
		t.Error("the backup has other rows")
	}
}

func TestOperatorsMistakes(t *testing.T) {
	t.Parallel()
	file, storeID, _ := newStoreFile(t)
	dir := t.TempDir()
	text := writeFile(t, "text.db", strings.Repeat("This is no database. ", 100))
	other := func(name, statements string) string {
		path := filepath.Join(dir, name)
		db, err := sql.Open("sqlite3", path)
		if err == nil {
			_, err = db.Exec(statements)
		}
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign, newer := other("foreign.db", "PRAGMA user_version = 1; CREATE TABLE notes (x)"), other("newer.db", fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 99; CREATE TABLE y (x)", applicationID))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	empty, syntax := writeFile(t, "empty.json", ""), writeFile(t, "syntax.json", "{\n  \"products\": [\n    {\"slug\": \"a\",}\n  ]\n}")
	latin := writeFile(t, "latin.json", "{\"products\":[{\"slug\":\"a\",\"title\":\"caf\xe9\",\"price\":1}]}")
	wrong := writeFile(t, "wrong.json", `{"products":[{"slug":"baru","title":"Baru","price":5},{"slug":"B","title":"","price":-1,"stok":3}]}`)
	missing := writeFile(t, "missing.json", `{"products":[{"slug":"baru","title":"Baru","price":5}],"bundles":[{"slug":"b","title":"B","price":1,"items":[{"slug":"nothing","quantity":1}]}]}`)
	twice := writeFile(t, "twice.json", `{"products":[{"slug":"a","title":"A","price":5},{"slug":"a","title":"A","price":6}]}`)
	bounds := writeFile(t, "bounds.json", `{"payment_methods":[{"code":"x","name":"X","provider":"paypal","min_amount":5,"max_amount":4}]}`)
	rows := dump(t, file)
	const unknown = "0190f5a0-0000-7000-8000-000000000001"
	for _, c := range []struct {
		name string
		code int
		says []string // all of it is in the message
		args []string
	}{
		{"no such command", 2, []string{`"sreve"`, "serve"}, []string{"sreve"}},
		{"half a command", 2, []string{"store add"}, []string{"store"}},
		{"unknown flag", 2, []string{"-prot", "-h"}, []string{"serve", "-prot", "80"}},
		{"missing flag", 2, []string{"-store"}, []string{"key", "list", "-db", file}},
		{"argument too many", 2, []string{"argument"}, []string{"check", "-db", file, "more"}},
		{"no argument", 2, []string{"argument"}, []string{"backup", "-db", file}},
		{"wrong duration", 2, []string{"expiry"}, []string{"store", "set", "-db", file, "-store", storeID, "-expiry", "1d"}},
		{"expiry out of range", 2, []string{"-expiry", "168h"}, []string{"store", "set", "-db", file, "-store", storeID, "-expiry", "169h"}},
		{"wrong plan", 2, []string{"-plan", "growth"}, []string{"store", "add", "-db", file, "-name", "N", "-email", "n@example.id", "-plan", "pro"}},
		{"wrong e-mail", 2, []string{"-email"}, []string{"store", "add", "-db", file, "-name", "N", "-email", "n"}},
		{"name too long", 2, []string{"-name", "200"}, []string{"store", "set", "-db", file, "-store", storeID, "-name", strings.Repeat("é", 201)}},
		{"slug of another store", 1, []string{"slug", "kopi-kita"}, []string{"store", "add", "-db", file, "-name", "Kopi Kita", "-email", "n@example.id"}},
		{"e-mail of another store", 1, []string{"email", "owner@example.id"}, []string{"store", "add", "-db", file, "-name", "N", "-email", "OWNER@example.id"}},
		{"unknown store", 1, []string{"id"}, []string{"key", "add", "-db", file, "-store", unknown, "-name", "k"}},
		{"unknown key", 1, []string{"id"}, []string{"key", "revoke", "-db", file, "-key", unknown}},
		{"unknown order", 1, []string{"id"}, []string{"order", "approve", "-db", file, "-order", unknown}},
		{"unknown endpoint", 1, []string{"id"}, []string{"webhook", "remove", "-db", file, "-endpoint", unknown}},
		{"unknown delivery", 1, []string{"id"}, []string{"webhook", "resend", "-db", file, "-delivery", unknown}},
		{"resend what", 2, []string{"-delivery", "-since"}, []string{"webhook", "resend", "-db", file}},
		{"resend since when", 2, []string{"-since"}, []string{"webhook", "resend", "-db", file, "-endpoint", unknown, "-since", "yesterday"}},
		{"http endpoint", 2, []string{"https://", "-webhook-allow-private"}, []string{"webhook", "add", "-db", file, "-store", storeID, "-url", "http://shop.example.id/"}},
		{"private endpoint", 2, []string{"-webhook-allow-private"}, []string{"webhook", "add", "-db", file, "-store", storeID, "-url", "https://192.168.1.2/"}},
		{"unknown event", 2, []string{`"orderMade"`, "orderCreated"}, []string{"webhook", "add", "-db", file, "-store", storeID, "-url", "https://shop.example.id/", "-events", "orderPaid,orderMade"}},
		{"missing database", 1, []string{"no database", "absent.db"}, []string{"check", "-db", filepath.Join(dir, "absent.db")}},
		{"missing folder", 1, []string{"cannot open the database"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", filepath.Join(dir, "absent", "x.db")}},
		{"folder as a file", 1, []string{"cannot open the database"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", dir}},
		{"not a database", 1, []string{"text.db", "not a SQLite database"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", text}},
		{"another program's database", 1, []string{"another program's"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", foreign}},
		{"newer database", 1, []string{"99", "newer"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", newer}},
		{"port taken", 1, []string{"taken", "-addr"}, []string{"serve", "-db", file, "-addr", taken.Addr().String()}},
		{"no port", 1, []string{"-addr"}, []string{"serve", "-db", file, "-addr", "127.0.0.1"}},
		{"wrong public URL", 2, []string{"-public-url"}, []string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-public-url", "orders.example.id"}},
		{"wrong proxy", 2, []string{"-trusted-proxy"}, []string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-trusted-proxy", "10.0.0.1"}},
		{"rate 0", 2, []string{"-rate"}, []string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-rate", "0"}},
		{"log format", 2, []string{"-log-format"}, []string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-log-format", "xml"}},
		{"missing catalog", 1, []string{"no such file"}, []string{"catalog", "import", "-db", file, "-store", storeID, filepath.Join(dir, "absent.json")}},
		{"empty catalog", 1, []string{"empty.json", "line 1"}, []string{"catalog", "import", "-db", file, "-store", storeID, empty}},
		{"catalog with a comma too many", 1, []string{"syntax.json", "line 3"}, []string{"catalog", "import", "-db", file, "-store", storeID, syntax}},
		{"catalog in Latin-1", 1, []string{"latin.json", "UTF-8"}, []string{"catalog", "import", "-db", file, "-store", storeID, latin}},
		{"catalog with wrong fields", 1, []string{"products[1].slug", "products[1].title", "products[1].price", "products[1].stok"}, []string{"catalog", "import", "-db", file, "-store", storeID, wrong}},
		{"bundle of a missing product", 1, []string{"bundles[0].items[0].slug", `"nothing"`}, []string{"catalog", "import", "-db", file, "-store", storeID, missing}},
		{"slug twice", 1, []string{"products[1].slug", "twice"}, []string{"catalog", "import", "-db", file, "-store", storeID, twice}},
		{"method", 1, []string{"payment_methods[0].provider", "manual", "min_amount"}, []string{"catalog", "import", "-db", file, "-store", storeID, bounds}},
		{"catalog of an unknown store", 1, []string{"id"}, []string{"catalog", "import", "-db", file, "-store", unknown, writeFile(t, "good.json", testCatalog)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, stderr := command(t, c.code, c.args...)
			for _, says := range c.says {
				if !strings.Contains(stderr, says) {
					t.Errorf("%q is not in %q", says, stderr)
				}
			}
			if strings.Contains(stderr, "goroutine") || c.code == 1 && strings.Count(stderr, "\n") > 6 {
				t.Errorf("no clear sentence: %s", stderr)
			}
		})
	}
	if dump(t, file) != rows {
		t.Error("mistakes changed the database")
	}
	if _, err := os.Stat(filepath.Join(dir, "absent.db")); err == nil {
		t.Error("a command made the missing database")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the database's mode: %v %v", info.Mode(), err)
	}
	for _, args := range [][]string{{}, {"-h"}, {"help"}, {"serve", "-h"}, {"catalog", "import", "-h"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &errs); code != 0 || out.Len() == 0 || errs.Len() > 0 {
			t.Errorf("%q: %d %s", args, code, errs.String())
		}
	}
}

// ---- Processes that end

func TestKilledUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	file, storeID, key := newStoreFile(t)
	hook, webhooks := startReceiver(t)
	added, _ := command(t, 0, "webhook", "add", "-db", file, "-store", storeID, "-url", hook, "-webhook-allow-private")
	var mu sync.Mutex
	answered := map[string]string{} // what each 201 said
	for range 2 {
		address, _, cmd := startProgram(t, file, "-webhook-allow-private")
		s := reach(t, address, key)
		const wanted = 150
		enough := make(chan struct{})
		var wg sync.WaitGroup
		already := len(answered)
		for range 4 {
			wg.Go(func() {
				for {
					req, _ := http.NewRequest("POST", s.url+"/v1/orders", bytes.NewReader(mustJSON(s.order("teh", 1))))
					req.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}}
					resp, err := s.client.Do(req)
					if err != nil {
						return // killed
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil {
						return
					}
					var r struct {
						Data struct{ Order json.RawMessage }
					}
					if err := json.Unmarshal(body, &r); err != nil || resp.StatusCode != 201 {
						t.Errorf("%d %s", resp.StatusCode, body)
						return
					}
					mu.Lock()
					answered[filepath.Base(resp.Header.Get("Location"))] = string(r.Data.Order)
					if len(answered) == already+wanted {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		cmd.Process.Kill()
		wg.Wait()
		cmd.Wait()
	}
	address, _, _ := startProgram(t, file, "-webhook-allow-private", "-public-url", "http://localhost:1")
	s := reach(t, address, key)
	missing := map[string]bool{}
	for page, more := "/v1/orders?limit=50", true; more; {
		r := s.do(t, "GET", page, nil).want(t, 200, "")
		for _, o := range r.list("orders") {
			id := o["id"].(string)
			missing[id] = true // until its event comes
			page = "/v1/orders?limit=50&starting_after=" + id
		}
		more = r.at("has_more") == "true"
	}
	reference := regexp.MustCompile(`"payment_reference":"[^"]+"`)
	for id, order := range answered {
		r := s.do(t, "GET", "/v1/orders/"+id, nil)
		if !missing[id] || r.Status != 200 || !bytes.Contains(r.Body, []byte(reference.FindString(order))) {
			t.Errorf("order %s was answered 201 and is %d", id, r.Status)
		}
	}
	bodies := map[string]string{}
	for len(missing) > 0 {
		got := <-webhooks
		id := fmt.Sprint(got.event.Data.Order["id"])
		attempt, _ := strconv.Atoi(got.header.Get("X-Service-Attempt"))
		got.signedBy(t, attempt, fmt.Sprint(added["secret"]))
		if before, ok := bodies[got.event.ID]; ok && before != got.body {
			t.Errorf("two bodies of %s:\n%s\n%s", got.event.ID, before, got.body)
		}
		bodies[got.event.ID] = got.body
		delete(missing, id)
	}
	if ok, _ := command(t, 0, "check", "-db", file); ok["ok"] != true {
		t.Errorf("check: %v", ok)
	}
}

func TestSIGTERMFinishesWhatWasBegun(t *testing.T) {
	t.Parallel()
	file, _, key := newStoreFile(t)
	address, logs, cmd := startProgram(t, file, "-log-format", "text")
	s := reach(t, address, key)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := mustJSON(s.order("teh", 1))
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", key, len(body))
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	if line := make([]byte, len(goOn)); true {
		if _, err := io.ReadFull(conn, line); err != nil || string(line) != goOn {
			t.Fatalf("%q %v", line, err)
		}
	}
	cmd.Process.Signal(syscall.SIGTERM) // while the handler waits for the body
	logs.await(t, `msg="stopping`)
	conn.Write(body)
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 201 ")) {
		t.Errorf("answer while draining: %s %v", answer, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if n := strings.Count(dump(t, file), `"status":"pending"`); n == 0 {
		t.Error("the order is not in the database")
	}
}

// pipeListener is a listener inside a synctest bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	}
}

func TestSlowAndIdleClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openTestServer(t, testSettings)
		ln := newPipeListener()
		s.url, s.client = "http://shop.test", &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return ln.dial() }}}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- serveOn(ctx, ln, s.db, testSettings, s.log) }()
		open := func(n int, send string) (conns []net.Conn) {
			for range n {
				c, err := ln.dial()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(c, send); err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
			}
			return conns
		}
		head := "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.key + "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
		begin := time.Now()
		slow := []struct {
			name  string
			conns []net.Conn
			after time.Duration // they are ended
			says  string
		}{
			{"idle", open(600, ""), 5 * time.Second, ""},
			{"slow headers", open(300, head), 5 * time.Second, ""},
			{"slow bodies", open(100, head+"\r\n{"), 15 * time.Second, "HTTP/1.1 400 "},
		}
		synctest.Wait()
		id := s.create(t, "teh", 1)
		if time.Since(begin) > 0 {
			t.Errorf("beside slow clients a request takes %s", time.Since(begin))
		}
		for _, c := range slow {
			for _, conn := range c.conns {
				got, err := io.ReadAll(conn)
				if took := time.Since(begin); took < c.after || took > c.after+time.Second || !strings.HasPrefix(string(got), c.says) {
					t.Fatalf("%s: ended after %s with %q %v", c.name, took, got, err)
				}
				conn.Close()
			}
		}
		big := open(1, "GET /v1/orders HTTP/1.1\r\nHost: x\r\n")[0]
		go func() { // until the server hangs up
			for range 30 {
				fmt.Fprintf(big, "X-Long: %s\r\n", strings.Repeat("x", 1000))
			}
			io.WriteString(big, "Connection: close\r\n\r\n")
		}()
		if got, _ := io.ReadAll(big); !strings.HasPrefix(string(got), "HTTP/1.1 431 ") {
			t.Errorf("30 KB of headers: %.100q", got)
		}
		big.Close()
		s.do(t, "GET", "/v1/orders/"+id, nil).want(t, 200, "")
		if n := scalar[int](t, s.db, "SELECT count(*) FROM orders"); n != 1 {
			t.Errorf("%d orders", n)
		}
		// One that is under way when the service is told to stop is finished; a new one finds nobody.
		body := mustJSON(s.order("teh", 1))
		late := open(1, strings.Replace(head, "100", strconv.Itoa(len(body)), 1)+"\r\n"+string(body[:10]))[0]
		synctest.Wait()
		cancel()
		synctest.Wait()
		if c, err := ln.dial(); err == nil {
			c.Close()
			t.Error("a connection is accepted after the end began")
		}
		time.Sleep(10 * time.Second)
		go late.Write(body[10:])
		if got, err := io.ReadAll(late); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 201 ") {
			t.Errorf("under way at the end: %.100q %v", got, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
}

func TestPanicsAndReadiness(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	w := httptest.NewRecorder()
	s.outermost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") })).ServeHTTP(w, httptest.NewRequest("GET", "/v1/x?secret=1", nil))
	if w.Code != 500 || w.Body.String() != `{"success":false,"error":{"code":"INTERNAL_ERROR","message":"Internal error."}}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if log := s.logs.String(); !strings.Contains(log, "a defect") || !strings.Contains(log, "status=500") || strings.Contains(log, "secret") {
		t.Errorf("log: %s", log)
	}
	s.do(t, "GET", "/readyz", nil, "Authorization", "").want(t, 200, "")
	s.draining.Store(true)
	s.do(t, "GET", "/readyz", nil, "Authorization", "").want(t, 503, "SERVICE_UNAVAILABLE")
	s.do(t, "GET", "/healthz", nil, "Authorization", "").want(t, 200, "")
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.trustedProxy = netip.MustParsePrefix("10.0.0.0/8")
	for _, c := range []struct{ remote, forwarded, want string }{
		{"192.0.2.1:5", "", "192.0.2.1"},
		{"192.0.2.1:5", "203.0.113.9", "192.0.2.1"}, // not a trusted proxy's word
		{"10.0.0.1:5", "203.0.113.9", "203.0.113.9"},
		{"10.0.0.1:5", "198.51.100.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"}, // the first one could be made up
		{"10.0.0.1:5", "junk", "10.0.0.1"},
		{"10.0.0.1:5", "", "10.0.0.1"},
		{"[::ffff:10.0.0.1]:5", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := s.clientAddress(r); got != c.want {
			t.Errorf("%s, forwarded %q: %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}

func TestStoreURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		public     string
		subdomains bool
		domain     string
		want       string
	}{
		{"http://localhost:8080", false, "", "http://localhost:8080"},
		{"https://orders.example.id", true, "", "https://kopi.orders.example.id"},
		{"http://orders.example.id:81", true, "", "http://kopi.orders.example.id:81"},
		{"https://orders.example.id:8443", true, "kopikita.id", "https://kopikita.id:8443"},
		{"https://orders.example.id", false, "kopikita.id", "https://kopikita.id"},
	} {
		db := &DB{publicURL: c.public, subdomains: c.subdomains}
		if got := db.storeURL(Store{Slug: "kopi", Domain: c.domain}); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// ---- The database

func TestGroupCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		db := s.db
		insert := func(tx *Tx, slug string) error {
			_, err := tx.exec("UPDATE products SET description = description || ? WHERE slug = 'teh'", slug)
			return err
		}
		text := func(q querier) string {
			v, err := one(q, column[string], "SELECT description FROM products WHERE slug = 'teh'")
			if err != nil {
				t.Error(err)
			}
			return v
		}
		hold := make(chan struct{})
		errs := make([]error, 6)
		var wg sync.WaitGroup
		begin := func(i int, fn func(tx *Tx) error) {
			wg.Go(func() { errs[i] = db.write(t.Context(), fn) })
			synctest.Wait()
		}
		begin(0, func(tx *Tx) error { <-hold; return insert(tx, "a") })
		begin(1, func(tx *Tx) error { return insert(tx, "b") })
		begin(2, func(tx *Tx) error { return errors.Join(insert(tx, "X"), errNotFound) })
		begin(3, func(tx *Tx) error { insert(tx, "Y"); panic("a defect") })
		begin(4, func(tx *Tx) error { _, err := tx.exec("UPDATE products SET price = -1"); return err })
		begin(5, func(tx *Tx) error {
			if committed, mine := text(db.reader), text(tx); committed != "" || len(mine) != 2 && len(mine) != 1 && len(mine) != 0 {
				t.Errorf("in a group: %q is committed, %q seen", committed, mine)
			}
			return insert(tx, "c")
		})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := db.write(cancelled, func(*Tx) error { t.Error("ran after its caller had gone"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled while it waited: %v", err)
		}
		close(hold)
		wg.Wait()
		got := text(db.reader)
		if len(got) != 3 || !strings.Contains(got, "a") || !strings.Contains(got, "b") || !strings.Contains(got, "c") {
			t.Errorf("committed: %q", got)
		}
		if errs[0] != nil || errs[1] != nil || errs[5] != nil || !errors.Is(errs[2], errNotFound) || errs[3] == nil || !strings.Contains(errs[3].Error(), "a defect") ||
			sqliteCode(errs[4]) != sqlite3.ErrConstraint {
			t.Errorf("answers: %v", errs)
		}
		// The first of a group may be refused too.
		hold = make(chan struct{})
		begin(0, func(tx *Tx) error { <-hold; return errors.Join(insert(tx, "Z"), errNotFound) })
		begin(1, func(tx *Tx) error { return insert(tx, "d") })
		close(hold)
		wg.Wait()
		if text(db.reader) != got+"d" || !errors.Is(errs[0], errNotFound) || errs[1] != nil {
			t.Errorf("behind a refused one: %q %v", text(db.reader), errs[:2])
		}
		// Ids stay in order and tell their order's time, even when a millisecond has no more of them.
		if err := db.write(t.Context(), func(tx *Tx) error {
			last := ""
			for range 4090 {
				id := tx.newID()
				if id <= last {
					t.Fatalf("%s after %s", id, last)
				}
				last = id
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		last := ""
		for range 10 {
			r := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
			var at Time
			if err := at.UnmarshalJSON(mustJSON(r.at("order.created_at"))); err != nil || !strings.HasPrefix(r.at("order.id"), firstID(at)[:13]) || r.at("order.id") <= last {
				t.Errorf("id %s of %s after %s", r.at("order.id"), at, last)
			}
			last = r.at("order.id")
		}
	})
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.create(t, "kopi", 1)
	limit := func(pages int) {
		t.Helper()
		if _, err := s.db.writer.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // SQLite makes that the pages in use
	created, full := 1, 0
	var mu sync.Mutex
	parallel(8, func(int) {
		for range 20 {
			body := with(s.order("teh", 1), "return_url", "https://a.example/"+strings.Repeat("x", 2000))
			r := s.do(t, "POST", "/v1/orders", body)
			mu.Lock()
			if r.Status == 201 {
				created++
			} else if r.want(t, 503, "SERVICE_UNAVAILABLE"); r.Status == 503 {
				full++
				if r.Header.Get("Retry-After") == "" || strings.Contains(string(r.Body), "disk") {
					t.Errorf("%v %s", r.Header, r.Body)
				}
			}
			mu.Unlock()
		}
	})
	if full == 0 {
		t.Fatal("the disk did not fill")
	}
	for _, path := range []string{"/v1/orders", "/v1/products", "/readyz"} {
		s.do(t, "GET", path, nil).want(t, 200, "")
	}
	counts := func() (n [3]int) {
		for i, table := range []string{"orders", "events", "order_history"} {
			n[i] = scalar[int](t, s.db, "SELECT count(*) FROM "+table)
		}
		return n
	}
	if n := counts(); n != [3]int{created, created, created} {
		t.Errorf("%d orders were answered 201; orders, events, history: %v", created, n)
	}
	limit(1_000_000)
	s.create(t, "kopi", 1)
	if n := counts(); n != [3]int{created + 1, created + 1, created + 1} || s.stock(t, "kopi") != 8 {
		t.Errorf("after it: %v, stock %d", n, s.stock(t, "kopi"))
	}
	if _, faults, err := s.db.Check(); err != nil || len(faults) > 0 {
		t.Errorf("check: %v %v", faults, err)
	}
}

// TestQueryPlans looks at every constant sql… of the program: each query goes through an index, in the order it is to
// answer in.
func TestQueryPlans(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{ // a scan that is meant
		"sqlDueEndpoints": "SCAN e", // a store has few endpoints
		"sqlBundles":      "SCAN i", // of a subquery's rows: one bundle's parts
	}
	allowed["sqlCatalogBundles"], allowed["sqlCatalogBundle"] = allowed["sqlBundles"], allowed["sqlBundles"]
	allowed["sqlUnreachable"] = "SCAN s USING INDEX payment_sessions_warned" // which holds nothing else
	allowed["sqlSearch"] = "SCAN (subquery-1)"                               // of the newest few thousand
	allowed["sqlSessionsDue"] = "USE TEMP B-TREE FOR ORDER BY"               // of the few that are due
	allowed["sqlSearch by status"] = allowed["sqlSearch"]
	queries := constants(t, "sql")
	for name, query := range queries {
		if strings.Contains(query, "%s") { // with a condition, or without
			queries[name], queries[name+" by status"] = strings.ReplaceAll(query, "%s", ""), strings.ReplaceAll(query, "%s", "AND status = ?3")
		}
	}
	s := newBubbleServer(t)
	if len(queries) < 15 {
		t.Errorf("only %d queries found", len(queries))
	}
	conn, err := s.db.writer.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, query := range queries {
		if strings.HasSuffix(strings.TrimSpace(query), "WHERE") { // the head of several
			query += " s.id = ?"
		}
		var args []any
		err := conn.Raw(func(c any) error {
			stmt, err := c.(*sqlite3.SQLiteConn).Prepare(query)
			if err != nil {
				return err
			}
			args = make([]any, stmt.NumInput())
			return stmt.Close()
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := conn.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Error(err)
			}
			table := strings.HasPrefix(detail, "SCAN ") && !strings.Contains(detail, "VIRTUAL TABLE") && !strings.Contains(detail, "CONSTANT ROW")
			if (table || strings.Contains(detail, "TEMP B-TREE")) && detail != allowed[name] {
				t.Errorf("%s: %s", name, detail)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// constants reads the text constants of the program's source whose names begin with prefix and a capital.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") || name == "nocgo.go" {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Error: func(error) {}, IgnoreFuncBodies: true} // imports are not resolved, and constants need none
	conf.Check("main", fset, files, info)
	found := map[string]string{}
	for ident, object := range info.Defs {
		if c, ok := object.(*types.Const); ok && regexp.MustCompile("^"+prefix+"[A-Z]").MatchString(ident.Name) && c.Val().Kind() == constant.String {
			found[ident.Name] = constant.StringVal(c.Val())
		}
	}
	return found
}

// ---- Fuzzing what parses. Go runs the seeds with every test; `go test -fuzz FuzzNewOrder` goes on.

func FuzzNewOrder(f *testing.F) {
	const id = "0190f5a0-0000-7000-8000-000000000001"
	s := &testServer{ids: map[string]string{"teh": id, "kopi": id, "mahal": id, "duo": id, "draf": id, "bundle:draf": id}}
	f.Add([]byte(s.spell("GOOD")))
	f.Add([]byte(s.spell(`ITEM{"type":"bundle","bundle_id":"DUO","quantity":3}`)))
	f.Add(mustJSON(with(with(s.order("teh", 10_000), "external_id", "é"), "return_url", "https://a.id/?b=c&d")))
	for _, c := range badBodies {
		f.Add([]byte(s.spell(c.body)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := readNewOrder(body)
		if err != nil {
			refusal, ok := err.(*APIError)
			if !ok || refusal.Code != codeInvalidRequest && refusal.Code != codeValidationFailed {
				t.Fatalf("%q: %v", body, err)
			}
			json.Unmarshal(mustJSON(refusal), refusal) // its words can be sent
			return
		}
		if !json.Valid(body) || len(in.Items) == 0 || len(in.Items) > 100 || in.Buyer.Name == "" || in.Buyer.Email == "" && in.Buyer.Phone == "" {
			t.Fatalf("%q is taken as %+v", body, in)
		}
		items := []any{}
		for _, item := range in.Items {
			if item.Quantity < 1 || item.Quantity > 10_000 || item.ID == "" {
				t.Fatalf("%q is taken as %+v", body, in)
			}
			kind := string(item.Kind)
			items = append(items, map[string]any{"type": kind, kind + "_id": item.ID, "quantity": item.Quantity})
		}
		again := map[string]any{"items": items, "buyer": in.Buyer}
		for name, value := range map[string]string{"payment_method": in.PaymentMethod, "external_id": in.ExternalID, "return_url": in.ReturnURL} {
			if value != "" {
				again[name] = value
			}
		}
		if second, err := readNewOrder(mustJSON(again)); err != nil || fmt.Sprint(second) != fmt.Sprint(in) {
			t.Fatalf("%q is %+v, and written again %+v (%v)", body, in, second, err)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "limit=50&offset=0", "status=paid&created_at_min=2026-01-01&created_at_max=2026-01-31T10:00:00+07:00", "external_id=%E2%82%AC", "starting_after=x",
		"limit=1&limit=2", "limit", "a;b", "%zz", "limit=%31", "created_at_min=9999-12-31T23:59:59.999-14:00", "created_at_max=0000-01-01", "&&=&"} {
		f.Add(seed)
	}
	db, err := openDB(filepath.Join(f.TempDir(), "fuzz.db"), true)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	s := newServer(db, testSettings, slog.New(slog.DiscardHandler))
	f.Fuzz(func(t *testing.T, raw string) {
		ask := func(raw string) (string, error) {
			a, err := s.listOrders(&http.Request{URL: &url.URL{RawQuery: raw}}, Store{ID: "x"})
			return string(a.data), err
		}
		data, err := ask(raw)
		if err != nil {
			if refusal, ok := err.(*APIError); !ok || refusal.Code != codeInvalidRequest || refusal.Message == "" {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if !json.Valid([]byte(data)) {
			t.Fatalf("%q: %s", raw, data)
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q is taken and is malformed: %v", raw, err)
		}
		if again, err := ask(values.Encode()); err != nil || again != data {
			t.Fatalf("%q is taken, and written again it is not: %v", raw, err)
		}
	})
}

func FuzzTime(f *testing.F) {
	for _, seed := range []string{"2026-01-31", "2026-01-31T10:00", "2026-01-31T10:00:30.123456789+07:00", "2026-01-31T10:00:00 0700", "0000-01-01", "9999-12-31T23:59:59,9999-14", "2024-02-29T24:00Z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		low, ok := parseTime(text, false)
		high, also := parseTime(text, true)
		if ok != also {
			t.Fatalf("%q is taken as one bound only", text)
		}
		if !ok {
			return
		}
		if high < low-1 || high-low >= 24*3600*1000 { // between two milliseconds the lower bound is the later one
			t.Fatalf("%q: %s to %s", text, low, high)
		}
		for _, at := range []Time{low, high} {
			if year := at.Time().Year(); year < 0 || year > 9999 {
				continue // an offset led out of the years that can be written
			}
			for _, end := range []bool{false, true} {
				if again, ok := parseTime(at.String(), end); !ok || again != at {
					t.Fatalf("%q is %s, and that is %s", text, at, again)
				}
			}
		}
	})
}

func TestOneServiceServesAFile(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	unlock, err := s.db.lockServing()
	if err != nil {
		t.Fatal(err)
	}
	other, err := openDB(s.db.path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.lockServing(); err == nil || !strings.Contains(err.Error(), "another storeorder serves") {
		t.Errorf("a second service: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = other.lockServing(); err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	unlock()
}
