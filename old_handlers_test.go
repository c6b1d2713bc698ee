//go:build cgo

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOrderInTheAPI(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	created := s.post(t, s.order("kopi", 2, "duo", 1)).want(t, 201, "")
	id := created.at("order.id")
	payPage := "https://shop.test/pay/" + id
	if got, want := created.Header.Get("Location"), "/v1/orders/"+id; got != want {
		t.Errorf("Location %q, want %q", got, want)
	}

	t.Run("it is read as it was created, also by its id in capitals", func(t *testing.T) {
		read := s.get(t, "/v1/orders/"+strings.ToUpper(id))
		if got, want := read.at("order"), created.at("order"); got != want {
			t.Errorf("read    %s\ncreated %s", got, want)
		}
		read.wantData(t, map[string]string{
			"order.status":                "pending",
			"order.requires_payment":      "true",
			"order.items.0.line_total":    "170000",
			"order.items.1.unit_price":    "200000",
			"order.subtotal":              "370000",
			"order.amount":                "370000",
			"order.currency":              "IDR",
			"order.payment_method":        "bank_transfer",
			"order.payment_provider":      "manual",
			"order.settlement_channel":    "manual",
			"order.checkout_url":          payPage,
			"order.payment_url":           payPage,
			"payment_session.provider":    "manual",
			"payment_session.status":      "manual",
			"payment_session.payment_url": payPage,
		})
	})

	t.Run("its payment reference can be read aloud", func(t *testing.T) {
		reference := created.at("order.payment_reference")
		if !regexp.MustCompile(`^INV-\d{8}-[0-9A-HJKMNP-TV-Z]{6}$`).MatchString(reference) {
			t.Errorf("payment_reference %q", reference)
		}
	})

	t.Run("it expires after a day", func(t *testing.T) {
		createdAt, err := time.Parse(time.RFC3339, created.at("order.created_at"))
		must(t, err)
		expiresAt, err := time.Parse(time.RFC3339, created.at("order.expires_at"))
		must(t, err)
		if got := expiresAt.Sub(createdAt); got != 24*time.Hour {
			t.Errorf("expires after %s", got)
		}
	})
}

func TestOptionalFieldsOfAnOrder(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	body := s.order("teh", 1)
	body["external_id"] = "shop-1"
	body["return_url"] = "https://shop.example.id/thanks?a=1&b='2'"
	body["buyer"] = map[string]any{"name": `Siti "S" & <b>`, "phone": "+62 (812) 345-678"}
	created := s.post(t, body).want(t, 201, "")

	t.Run("they come back as they were given", func(t *testing.T) {
		created.wantData(t, map[string]string{
			"order.external_id": "shop-1",
			"order.return_url":  "https://shop.example.id/thanks?a=1&b='2'",
			"order.buyer.name":  `Siti "S" & <b>`,
			"order.buyer.phone": "+62 (812) 345-678",
			"order.buyer.email": "<nil>",
		})
	})

	t.Run("the order is found by its external_id", func(t *testing.T) {
		s.create(t, "teh", 1)
		r := s.get(t, "/v1/orders?external_id=shop-1")
		if n := len(r.list("orders")); n != 1 {
			t.Errorf("%d orders are found", n)
		}
		if got, want := r.at("orders.0"), created.at("order"); got != want {
			t.Errorf("found   %s\ncreated %s", got, want)
		}
	})

	t.Run("no other order can have the same external_id", func(t *testing.T) {
		r := s.post(t, body).want(t, 409, "DUPLICATE_EXTERNAL_ID")
		if got, want := r.Error.Details[0].OrderID, created.at("order.id"); got != want {
			t.Errorf("the details name the order %q, want %s", got, want)
		}
	})
}

func TestProductsAreSentAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	tag := s.get(t, "/v1/products").Header.Get("ETag")
	getUnless := func(tags string) reply {
		return s.do(t, "GET", "/v1/products", nil, "If-None-Match", tags)
	}
	getUnless(tag).want(t, 304, "")
	getUnless(`"x", W/`+tag).want(t, 304, "")

	s.create(t, "kopi", 4)
	after := getUnless(tag).want(t, 200, "")
	if after.Header.Get("ETag") == tag {
		t.Error("the ETag is the same after a sale")
	}
	after.wantData(t, map[string]string{
		"products.0.stock": "6",
		"bundles.0.stock":  "3", // two of the product are in it
	})
}

func TestHeadHasTheLengthOfGet(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	for _, path := range []string{
		"/v1/products",
		"/v1/payment-methods",
		"/v1/orders",
		"/v1/orders/" + s.create(t, "teh", 1),
		"/healthz",
		"/readyz",
	} {
		want := strconv.Itoa(len(s.get(t, path).Body))
		head := s.do(t, "HEAD", path, nil).want(t, 200, "")
		if got := head.Header.Get("Content-Length"); got != want {
			t.Errorf("HEAD %s: length %s, want %s", path, got, want)
		}
	}
}

func TestAllowedMethods(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	for path, want := range map[string]string{
		"/v1/orders":          "GET, HEAD, POST",
		"/v1/orders/x":        "GET, HEAD",
		"/v1/products":        "GET, HEAD",
		"/v1/payment-methods": "GET, HEAD",
		"/v1/openapi.json":    "GET, HEAD",
	} {
		r := s.do(t, "OPTIONS", path, nil).want(t, 405, "METHOD_NOT_ALLOWED")
		if got := r.Header.Get("Allow"); got != want {
			t.Errorf("%s allows %q, want %q", path, got, want)
		}
	}
}

// TestAnotherStoresOrder reads an order with another store's key. It is not there for that store, and no
// answer reveals that it exists.
func TestAnotherStoresOrder(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	_, otherKey := s.addStore(t, "lain", "growth")
	other := s.as(otherKey)
	body := with(s.order("teh", 1), "external_id", "x")
	id := s.post(t, body).want(t, 201, "").at("order.id")

	t.Run("it looks like an unknown one", func(t *testing.T) {
		hidden := other.do(t, "GET", "/v1/orders/"+id, nil).want(t, 404, "NOT_FOUND")
		unknown := other.do(t, "GET", "/v1/orders/x", nil).want(t, 404, "NOT_FOUND")
		if !bytes.Equal(hidden.Body, unknown.Body) {
			t.Errorf("%s, but an unknown order is %s", hidden.Body, unknown.Body)
		}
	})

	t.Run("no page begins after it", func(t *testing.T) {
		r := other.do(t, "GET", "/v1/orders?starting_after="+id, nil)
		r.wantRefusal(t, "400 INVALID_REQUEST starting_after is not an order of this store")
	})

	for _, path := range []string{
		"/v1/orders",
		"/v1/orders?external_id=x",
		"/v1/orders?status=pending",
		"/v1/orders?created_at_min=2000-01-01",
		"/v1/orders?status=pending&external_id=x",
	} {
		t.Run(path, func(t *testing.T) {
			if got := s.get(t, path).at("orders.0.id"); got != id {
				t.Errorf("its own store finds %s, want %s", got, id)
			}
			r := other.get(t, path)
			if got := shape(r.Data["orders"]); got != "[]" {
				t.Errorf("the other store finds %s", r.Body)
			}
		})
	}
}

func TestAnotherStoresCatalog(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	otherID, otherKey := s.addStore(t, "lain", "growth")
	other := s.as(otherKey)

	t.Run("its products are not listed", func(t *testing.T) {
		r := other.get(t, "/v1/products")
		if got := shape(r.Data); got != "{bundles:[] has_more:bool products:[]}" {
			t.Errorf("the other store lists %s", r.Body)
		}
	})

	t.Run("its products are not for sale", func(t *testing.T) {
		other.post(t, s.order("teh", 1)).want(t, 422, "PRODUCT_UNAVAILABLE")
		other.post(t, s.order("duo", 1)).want(t, 422, "PRODUCT_UNAVAILABLE")
	})

	// The other store now has a product of its own.
	s.importCatalog(t, otherID, `{"products": [{"slug": "x", "title": "X", "price": 5}]}`)
	s.ids["x"] = scalar[string](t, s.db, "SELECT id FROM products WHERE slug = 'x'")
	body := with(s.order("x", 1), "external_id", "x")

	t.Run("its payment methods are not usable", func(t *testing.T) {
		other.post(t, body).want(t, 422, "PAYMENT_METHOD_UNAVAILABLE")
	})

	t.Run("two stores use the same external id and idempotency key", func(t *testing.T) {
		s.importCatalog(t, otherID, `{
			"payment_methods": [{"code": "bank_transfer", "name": "T", "provider": "manual"}]
		}`)
		other.post(t, body, "Idempotency-Key", "k").want(t, 201, "")
		s.post(t, with(s.order("teh", 1), "external_id", "x"), "Idempotency-Key", "k").want(t, 201, "")
	})
}

func TestDescriptionIsServedToAnyone(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	resp, err := s.client.Get(s.url + "/v1/openapi.json")
	must(t, err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	must(t, err)
	want, err := os.ReadFile("openapi.json")
	must(t, err)

	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if contentType := resp.Header.Get("Content-Type"); contentType != "application/json" {
		t.Errorf("Content-Type %q", contentType)
	}
	if resp.Header.Get("X-Request-Id") == "" {
		t.Error("no X-Request-Id")
	}
	want = bytes.Replace(want, []byte(exampleServer), []byte(s.db.publicURL), 1)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes that are not openapi.json with the service's address", len(got))
	}
	s.do(t, "HEAD", "/v1/openapi.json", nil).want(t, 200, "")
}

// TestErrorCodes reads the errors from the source, so that a new one cannot be forgotten here. Each code has
// a name and a status of 400 or more, which openapi.json describes, and each error has a code.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	described := describedCodes(t)
	described["ORDER_STATE"] = 409   // only the dashboard answers with it
	described["LIMIT_REACHED"] = 409 // only the dashboard and the commands

	for place, code := range literals(t, "errorCode") {
		if len(code.Elts) != 2 {
			t.Errorf("%s: %d fields, want a name and a status", place, len(code.Elts))
			continue
		}
		name := strings.Trim(types.ExprString(code.Elts[0]), `"`)
		status := described[name]
		if status < 400 {
			t.Errorf("openapi.json describes %q with the status %d", name, status)
		}
		constant := "http.Status" + strings.ReplaceAll(http.StatusText(status), " ", "")
		if got := types.ExprString(code.Elts[1]); got != constant {
			t.Errorf("%s has the status %s, want %s", name, got, constant)
		}
		delete(described, name)
	}
	if len(described) > 0 {
		t.Errorf("no code in the source: %v", described)
	}

	found := literals(t, "APIError")
	if len(found) < 20 {
		t.Errorf("only %d errors found", len(found))
	}
	for place, apiError := range found {
		if !hasCode(apiError) {
			t.Errorf("%s: an error without code", place)
		}
	}
}

// describedCodes reads the statuses of the error codes from openapi.json, where they are described as
// "400 INVALID_REQUEST; 409 OUT_OF_STOCK, DUPLICATE_EXTERNAL_ID".
func describedCodes(t *testing.T) map[string]int {
	t.Helper()
	var api struct {
		Components struct {
			Schemas struct {
				ErrorCode struct {
					Description string
					Known       []string `json:"x-extensible-enum"`
				}
			}
		}
	}
	must(t, json.Unmarshal(description, &api))
	schema := api.Components.Schemas.ErrorCode

	codes := map[string]int{}
	for group := range strings.SplitSeq(strings.TrimSuffix(schema.Description, "."), "; ") {
		status, names, _ := strings.Cut(group, " ")
		number, err := strconv.Atoi(status)
		must(t, err)
		for name := range strings.SplitSeq(names, ", ") {
			codes[name] = number
		}
	}
	for _, name := range schema.Known {
		if codes[name] == 0 {
			t.Errorf("openapi.json lists %s and does not describe it", name)
		}
	}
	if len(schema.Known) != len(codes) {
		t.Errorf("openapi.json lists %d codes and describes %d", len(schema.Known), len(codes))
	}
	return codes
}

// literals finds the composite literals of a type in the program's source, by their places.
func literals(t *testing.T, typeName string) map[string]*ast.CompositeLit {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	must(t, err)

	found := map[string]*ast.CompositeLit{}
	fset := token.NewFileSet()
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		must(t, err)

		for node := range ast.Preorder(file) {
			literal, ok := node.(*ast.CompositeLit)
			if ok && literal.Type != nil && types.ExprString(literal.Type) == typeName {
				place := fset.Position(literal.Pos()).String()
				found[place] = literal
			}
		}
	}
	return found
}

// hasCode reports whether the literal of an APIError sets its code. A literal without names sets all fields.
func hasCode(apiError *ast.CompositeLit) bool {
	for _, element := range apiError.Elts {
		field, named := element.(*ast.KeyValueExpr)
		if !named || types.ExprString(field.Key) == "Code" {
			return true
		}
	}
	return false
}

func TestPanicIsAnsweredAndLogged(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)

	handler := s.outermost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("a defect")
	}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/v1/x?secret=1", nil))

	if w.Code != 500 {
		t.Errorf("status %d, want 500", w.Code)
	}
	const internal = `{"success":false,"error":{"code":"INTERNAL_ERROR","message":"Internal error."}}` + "\n"
	if got := w.Body.String(); got != internal {
		t.Errorf("body %s, want %s", got, internal)
	}

	log := s.logs.String()
	for _, want := range []string{"a defect", "status=500"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
	if strings.Contains(log, "secret") {
		t.Errorf("the query is in the log: %s", log)
	}
}

func TestServiceIsNotReadyWhileItStops(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)

	probe := func(path string) reply {
		return s.do(t, "GET", path, nil, "Authorization", "")
	}

	probe("/readyz").want(t, 200, "")

	s.draining.Store(true)
	probe("/readyz").want(t, 503, "SERVICE_UNAVAILABLE")
	probe("/healthz").want(t, 200, "")
}

// pipeServer is the service in a synctest bubble, behind connections in memory.
type pipeServer struct {
	*testServer
	listener *pipeListener
	cancel   context.CancelFunc
	ended    chan error
}

func startPipeServer(t *testing.T) *pipeServer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &pipeServer{
		testServer: openTestServer(t, testSettings),
		listener:   newPipeListener(),
		cancel:     cancel,
		ended:      make(chan error),
	}
	go func() {
		s.ended <- serveOn(ctx, s.listener, s.db, testSettings, s.log)
	}()

	dial := func(context.Context, string, string) (net.Conn, error) {
		return s.listener.dial()
	}
	s.url = "http://shop.test"
	s.client = &http.Client{Transport: &http.Transport{DialContext: dial}}
	return s
}

// stop ends the service and waits until it has ended.
func (s *pipeServer) stop(t *testing.T) {
	t.Helper()
	s.cancel()
	if err := <-s.ended; err != nil {
		t.Errorf("serving ended with %v", err)
	}
}

// connect opens n connections and sends the same on each.
func (s *pipeServer) connect(t *testing.T, n int, send string) (conns []net.Conn) {
	t.Helper()
	for range n {
		conn, err := s.listener.dial()
		must(t, err)
		_, err = io.WriteString(conn, send)
		must(t, err)
		conns = append(conns, conn)
	}
	return conns
}

// orderHead is the head of a request that creates an order, without the empty line at its end.
func (s *pipeServer) orderHead(length int) string {
	return "POST /v1/orders HTTP/1.1\r\n" +
		"Host: x\r\n" +
		"Authorization: Bearer " + s.key + "\r\n" +
		"Content-Type: application/json\r\n" +
		"Content-Length: " + strconv.Itoa(length) + "\r\n"
}

// TestSlowClientsAreDisconnected opens a thousand connections that send nothing or too little. They end at
// the server's time limits, and nobody else waits for them.
func TestSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t)

		begin := time.Now()
		slow := []struct {
			name   string
			conns  []net.Conn
			after  time.Duration // they are disconnected
			answer string        // its beginning
		}{
			{
				name:  "idle",
				conns: s.connect(t, 600, ""),
				after: 5 * time.Second,
			},
			{
				name:  "slow headers",
				conns: s.connect(t, 300, s.orderHead(100)),
				after: 5 * time.Second,
			},
			{
				name:   "slow bodies",
				conns:  s.connect(t, 100, s.orderHead(100)+"\r\n{"),
				after:  15 * time.Second,
				answer: "HTTP/1.1 400 ",
			},
		}

		// Meanwhile others are served at once.
		synctest.Wait()
		id := s.create(t, "teh", 1)
		if took := time.Since(begin); took > 0 {
			t.Errorf("among slow clients a request takes %s", took)
		}

		for _, c := range slow {
			for _, conn := range c.conns {
				got, err := io.ReadAll(conn)
				conn.Close()
				took := time.Since(begin)
				if took < c.after || took > c.after+time.Second {
					t.Fatalf("%s: ended after %s, want %s", c.name, took, c.after)
				}
				if !strings.HasPrefix(string(got), c.answer) {
					t.Fatalf("%s: ended with %q %v, want %q", c.name, got, err, c.answer)
				}
			}
		}

		s.get(t, "/v1/orders/"+id)
		if n := scalar[int](t, s.db, "SELECT count(*) FROM orders"); n != 1 {
			t.Errorf("%d orders, want 1", n)
		}
		s.stop(t)
	})
}

// TestHeadersAreBounded sends headers of 30 KB.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t)

		conn := s.connect(t, 1, "GET /v1/orders HTTP/1.1\r\nHost: x\r\n")[0]
		go func() { // until the server disconnects
			for range 30 {
				fmt.Fprintf(conn, "X-Long: %s\r\n", strings.Repeat("x", 1000))
			}
			io.WriteString(conn, "Connection: close\r\n\r\n")
		}()

		got, _ := io.ReadAll(conn)
		conn.Close()
		if !strings.HasPrefix(string(got), "HTTP/1.1 431 ") {
			t.Errorf("they are answered %.100q", got)
		}
		s.stop(t)
	})
}

// TestRequestUnderWayIsFinishedWhenTheServiceStops ends the service while it waits for the rest of a
// body. It still answers that request, and accepts no new connection.
func TestRequestUnderWayIsFinishedWhenTheServiceStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t)

		body := string(mustJSON(s.order("teh", 1)))
		conn := s.connect(t, 1, s.orderHead(len(body))+"\r\n"+body[:10])[0]
		synctest.Wait()

		s.cancel()
		synctest.Wait()
		if late, err := s.listener.dial(); err == nil {
			late.Close()
			t.Error("a connection is accepted after the service was told to stop")
		}

		time.Sleep(10 * time.Second)
		go io.WriteString(conn, body[10:])
		got, err := io.ReadAll(conn)
		must(t, err)
		if !strings.HasPrefix(string(got), "HTTP/1.1 201 ") {
			t.Errorf("the request under way is answered %.100q", got)
		}
		s.stop(t)
	})
}

// pipeListener is a listener inside a synctest bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr {
	return &net.TCPAddr{}
}

// dial connects to whoever accepts.
func (l *pipeListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	}
}

// TestPaymentSessionAsJSON compares the JSON of payment sessions with that of encoding/json. The last one has an address with
// much to escape, which the order shows too.
func TestPaymentSessionAsJSON(t *testing.T) {
	t.Parallel()
	const oddURL = "https://pay.test/?a=\"<1>\"&b=\\é\n"
	for _, view := range []paymentSessionView{
		{},
		{
			Provider:   ProviderManual,
			Status:     paymentManual,
			PaymentURL: "https://shop.test/pay/x",
			ExpiresAt:  1795309504000,
		},
		{
			ID:         "01a203af-0ed7-7000-abbb-9a55ff0cf564",
			Provider:   ProviderMidtrans,
			Status:     paymentUnavailable,
			Reason:     ProblemUnreachable,
			PaymentURL: oddURL,
			ExpiresAt:  1,
			Attempt:    12,
		},
	} {
		got, want := string(view.appendJSON(nil)), string(mustJSON(view))
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}

	var order struct {
		PaymentURL string `json:"payment_url"`
	}
	shown := Store{}.showOrderPaidAt(nil, `{"id":"01a203af-0ed7-7000-abbb-9a55ff0cf564"}`, oddURL)
	must(t, json.Unmarshal(shown, &order))
	if order.PaymentURL != oddURL {
		t.Errorf("the order is paid at %q, want %q", order.PaymentURL, oddURL)
	}
}

func TestAnswersEndWithANewline(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	order := "/v1/orders/" + s.create(t, "teh", 1)
	for _, path := range []string{"/v1/products", "/v1/orders", order, "/v1/no-such-path", "/healthz", "/v1/openapi.json"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+path, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+s.key)
		resp, err := s.client.Do(req)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		must(t, resp.Body.Close())
		if !bytes.HasSuffix(body, []byte("}\n")) {
			t.Errorf("%s ends with %q", path, body[max(0, len(body)-5):])
		}
	}
}

// scribbler is a ResponseWriter that takes free buffers and overwrites them before it writes.
type scribbler struct{ *httptest.ResponseRecorder }

func (w scribbler) Write(p []byte) (int, error) {
	for range 3 {
		b := buffers.Get().(*[]byte)
		whole := (*b)[:cap(*b)]
		copy(whole, bytes.Repeat([]byte("x"), len(whole)))
	}
	return w.ResponseRecorder.Write(p)
}

// TestBuffersAreInUseUntilTheAnswerIsWritten is not parallel: another test could take the buffer that is free too early.
func TestBuffersAreInUseUntilTheAnswerIsWritten(t *testing.T) {
	s := newBubbleServer(t)
	order := s.create(t, "teh", 1)
	handler := s.routes()
	for _, path := range []string{"/v1/orders", "/v1/orders/" + order} {
		want := string(s.get(t, path).Body)
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+s.key)
		w := scribbler{httptest.NewRecorder()}
		handler.ServeHTTP(w, r)
		if got := w.Body.String(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestAnswersShareNoMemory asks at once for what is answered from pooled buffers and from a cache.
func TestAnswersShareNoMemory(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	paths := []string{"/v1/products", "/v1/orders", "/v1/orders?limit=1"}
	for range 5 {
		paths = append(paths, "/v1/orders/"+s.create(t, "teh", 1))
	}

	want := map[string]string{}
	for _, path := range paths {
		want[path] = string(s.get(t, path).Body)
	}
	parallel(8, func(i int) {
		for n := range 20 {
			path := paths[(i+n)%len(paths)]
			if got := string(s.get(t, path).Body); got != want[path] {
				t.Errorf("%s: %s, want %s", path, got, want[path])
			}
		}
	})
}
