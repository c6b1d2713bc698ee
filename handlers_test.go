//go:build cgo

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

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
