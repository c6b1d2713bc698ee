package contract

import (
	"bufio"
	"bytes"
	"cmp"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	_ "github.com/mattn/go-sqlite3"
)

// unreachable is what the description has and these tests cannot bring about, and why.
var unreachable = map[string]string{
	"getStore 503 SERVICE_UNAVAILABLE":           "a read waits for no writer: it takes a disk that fails",
	"listEvents 503 SERVICE_UNAVAILABLE":         "as above",
	"listProducts 503 SERVICE_UNAVAILABLE":       "as above",
	"listPaymentMethods 503 SERVICE_UNAVAILABLE": "as above",
	"listOrders 503 SERVICE_UNAVAILABLE":         "as above",
	"getOrder 503 SERVICE_UNAVAILABLE":           "as above",
}

func description(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func loadDescription(t *testing.T) *contract {
	t.Helper()
	c, err := load(description(t))
	if err == nil {
		err = c.doc.Validate(t.Context(), openapi3.EnableExamplesValidation())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// productOf is the product of the first item in an answer.
func productOf(x exchange) string {
	_, after, _ := strings.Cut(x.Body, `"product_id":"`)
	id, _, _ := strings.Cut(after, `"`)
	return id
}

func isUnreachable(what string) bool {
	for prefix := range unreachable {
		if strings.HasPrefix(what, prefix) {
			return true
		}
	}
	return false
}

// TestContract walks what the service answers and sends through the description, and then the description through
// what was seen: neither has what the other lacks.
func TestContract(t *testing.T) {
	c := loadDescription(t)
	var mu sync.Mutex
	var kept []exchange
	verify := func(x exchange) {
		mu.Lock()
		defer mu.Unlock()
		if err := c.check(x); err != nil {
			t.Errorf("%s %s: %v\n%.500s", x.Method, x.Path, err, x.Body)
		}
		kept = append(kept, x)
	}
	received := newReceiver(t)
	s := newShop(t, verify, "-rate", "1000000", "-burst", "1000000")
	endpoint := s.cli(t, "", "webhook add", "-store", s.storeID, "-url", received.URL, "-webhook-allow-private")
	t.Run("reads", func(t *testing.T) { reads(t, s) })
	t.Run("orders", func(t *testing.T) { orders(t, s) })
	t.Run("payments", func(t *testing.T) { payments(t, s) })
	t.Run("manages", func(t *testing.T) { manages(t, s) })
	t.Run("limits", func(t *testing.T) { limits(t, newShop(t, verify, "-rate", "1", "-burst", "4")) })
	t.Run("faults", func(t *testing.T) { faults(t, newShop(t, verify)) })
	t.Run("webhooks", func(t *testing.T) {
		owner := s.press(t, "/dashboard/login", url.Values{"email": {"owner@example.id"}, "password": {s.password}}.Encode())
		s.press(t, "/dashboard/endpoints/"+endpoint["endpoint_id"].(string)+"/ping", "", owner...)
		want := map[string]int{}
		for event := range c.doc.Webhooks {
			want[event] = 1
		}
		await(t, "every event delivered", func() bool { return received.has(want) })
		first, again := received.all()[0], delivery{}
		await(t, "a second attempt", func() (ok bool) { again, ok = received.again(); return ok })
		if id := "X-Service-Delivery-Id"; again.header.Get(id) != first.header.Get(id) || !bytes.Equal(again.body, first.body) {
			t.Errorf("attempts differ:\n%s\n%s", first.body, again.body)
		}
		for _, d := range received.all() {
			if err := c.checkWebhook(d.header, d.body); err != nil {
				t.Errorf("%s: %v\n%.500s", d.header.Get("X-Service-Event"), err, d.body)
			}
		}
		verifiers(t, s, received, endpoint["endpoint_id"].(string), endpoint["secret"].(string))
	})
	t.Run("recorded", func(t *testing.T) {
		file := os.Getenv("STOREORDER_RECORD")
		if file == "" {
			t.Skip("STOREORDER_RECORD names no recording of the root package's tests")
		}
		if n := recorded(t, c, file); n < 500 {
			t.Errorf("only %d exchanges were recorded", n)
		}
	})
	if t.Failed() {
		return
	}
	for _, what := range c.unseen() {
		if !isUnreachable(what) {
			t.Errorf("described and never seen: %s", what)
		}
	}
	for what := range c.seen {
		if isUnreachable(what) {
			t.Errorf("seen, and listed as unreachable: %s", what)
		}
	}
	t.Run("drift", func(t *testing.T) { drift(t, kept) })
	t.Run("drift of webhooks", func(t *testing.T) { driftOfWebhooks(t, received.all()) })
}

// TestDescriptionGrows reads in the description that answers and events may grow, and that requests are strict. The
// changes show that this can fail.
func TestDescriptionGrows(t *testing.T) {
	text := string(description(t))
	faults, err := growth([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}

	for want, change := range map[string][2]string{
		"an answer cannot have further fields: Order": {
			`"Order": {
        "type": "object",`, `"Order": {
        "type": "object", "additionalProperties": false,`},
		"an answer cannot have further fields: OrderItem": {
			`"type": "object", "description": "As it was`, `"type": "object", "maxProperties": 6, "description": "As it was`},
		"an answer cannot have further fields: OrderEvent.data": {
			`"type": "object", "required": ["order"],
            "properties": {"order": {"$ref": "#/components/schemas/Order", "description"`,
			`"type": "object", "required": ["order"], "additionalProperties": false,
            "properties": {"order": {"$ref": "#/components/schemas/Order", "description"`},
		"an answer cannot have further values: PaymentSession.status": {
			`"x-extensible-enum": ["active", `, `"enum": ["active", `},
		"an answer cannot have further values: EventName": {
			`"x-extensible-enum": [
          "orderCreated", `, `"enum": ["orderCreated", `},
		"an answer cannot have further values: ItemType": {
			`"type": {"type": "string", "x-extensible-enum": ["product", "bundle"]}`, `"type": {"$ref": "#/components/schemas/ItemType"}`},
		"a request takes further fields: Buyer": {
			`"additionalProperties": false, "minProperties": 2`, `"minProperties": 2`},
		"a request takes further values: ItemType": {
			`"ItemType": {"type": "string", "enum"`, `"ItemType": {"type": "string", "x-extensible-enum"`},
	} {
		if strings.Count(text, change[0]) != 1 {
			t.Errorf("%s: the description does not have once: %s", want, change[0])
			continue
		}
		faults, err := growth([]byte(strings.Replace(text, change[0], change[1], 1)))
		if err != nil || !slices.Contains(faults, want) {
			t.Errorf("not found in the description: %s: %q %v", want, faults, err)
		}
	}
}

// TestStatusOfLists compares the statuses by which orders are listed with those that orders have.
func TestStatusOfLists(t *testing.T) {
	c := loadDescription(t)
	listOrders := c.doc.Paths.Find("/v1/orders").Get
	accepted := listOrders.Parameters.GetByInAndName("query", "status").Schema.Value.Enum
	if known := c.doc.Components.Schemas["OrderStatus"].Value.Enum; !slices.Equal(accepted, known) {
		t.Errorf("orders are listed by %v, and have %v", accepted, known)
	}
}

// recorded checks the exchanges of the root package's tests with the API.
func recorded(t *testing.T, c *contract, file string) (n int) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return n
		}
		var x exchange
		if err := json.Unmarshal(line, &x); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(x.Path, "/v1/") {
			continue
		}
		n++
		if err := c.check(x); err != nil {
			t.Errorf("%s %s: %v\n%.500s", x.Method, x.Path, err, x.Body)
		}
	}
}

func reads(t *testing.T, s *shop) {
	products := s.do(t, "GET", "/v1/products?type=product&q=KOPI&offset=0&limit=50", "").want(t, 200, "")
	s.do(t, "GET", "/v1/products", "", "If-None-Match", s.do(t, "HEAD", "/v1/products", "").Header.Get("ETag")).want(t, 304, "")
	s.do(t, "GET", "/v1/products?limit=1", "").want(t, 200, "")
	if products.at("has_more") != "false" {
		t.Errorf("has_more: %s", products.at("has_more"))
	}
	s.do(t, "GET", "/v1/payment-methods", "").want(t, 200, "")
	s.do(t, "GET", "/v1/payment-methods?amount=5000", "").want(t, 200, "")
	if r := s.do(t, "GET", "/v1/openapi.json", "", "Authorization", "").want(t, 200, ""); strings.Replace(r.exchange.Body, "https://127.0.0.1", "http://localhost:8080", 1) != string(description(t)) {
		t.Error("what is served is not openapi.json")
	}
	s.do(t, "HEAD", "/v1/openapi.json", "", "Authorization", "").want(t, 200, "")
	for _, path := range []string{"/v1/openapi.json?v=1", "/v1/payment-methods?page=1", "/v1/orders?limit=51", "/v1/products?type=book", "/v1/orders/" + s.ids["kopi"] + "?x=1"} {
		s.do(t, "GET", path, "").want(t, 400, "INVALID_REQUEST")
	}
	s.do(t, "GET", "/v1/nothing", "").want(t, 404, "NOT_FOUND")
	s.do(t, "GET", "/v1//orders", "").want(t, 404, "NOT_FOUND")
	for path, method := range map[string]string{"/v1/catalog": "GET", "/v1/events": "POST", "/v1/store": "PUT", anOrder + "/cancel": "GET", "/v1/products": "POST", "/v1/payment-methods": "PUT", "/v1/orders": "DELETE", "/v1/orders/x": "PATCH", "/v1/openapi.json": "POST"} {
		s.do(t, method, path, "").want(t, 405, "METHOD_NOT_ALLOWED")
	}
	s.each(t, nil, 401, "UNAUTHORIZED", "Authorization", "")
	s.cli(t, "", "store set", "-store", s.storeID, "-plan", "free")
	s.each(t, nil, 403, "PLAN_REQUIRED")
	s.cli(t, "", "store set", "-store", s.storeID, "-plan", "scale")
	s.do(t, "GET", "/v1/store", "").want(t, 200, "")
	s.cli(t, "", "store set", "-store", s.storeID, "-plan", "growth")
	reader := s.cli(t, "", "key add", "-store", s.storeID, "-name", "reader", "-scope", "read", "-expires", "1h")["key"].(string)
	s.do(t, "GET", "/v1/store", "", "Authorization", "Bearer "+reader).want(t, 200, "")
	s.each(t, writes, 403, "FORBIDDEN", "Authorization", "Bearer "+reader)
}

const anOrder = "/v1/orders/01a1fc0f-a32e-7a3e-9c41-d7f206b85ae3"

// reading and writes are the calls that need a key.
var reading = []string{"GET /v1/store", "GET /v1/products", "GET /v1/payment-methods", "GET /v1/orders", "GET " + anOrder, "GET /v1/events"}

var writes = []string{
	"POST /v1/orders", "POST " + anOrder + "/approve", "POST " + anOrder + "/cancel", "POST " + anOrder + "/refund", "PUT /v1/catalog",
}

// each sends calls, all of them if none is named, and wants the same answer to each.
func (s *shop) each(t *testing.T, calls []string, status int, code string, headers ...string) {
	t.Helper()
	if calls == nil {
		calls = slices.Concat(reading, writes)
	}
	for _, call := range calls {
		method, path, _ := strings.Cut(call, " ")
		body := ""
		if method != "GET" {
			body = "{}"
		}
		s.do(t, method, path, body, headers...).want(t, status, code)
	}
}

func orders(t *testing.T, s *shop) {
	post := func(body string, headers ...string) reply { return s.do(t, "POST", "/v1/orders", body, headers...) }
	full := strings.Replace(s.order("bank_transfer", "kopi", "duo"), `"payment_method"`,
		`"external_id":"shop-1042","return_url":"https://shop.example.id/thanks","shipping_fee":18000,"discount":8000,
		"note":"Titip di satpam.","metadata":{"channel":"instagram"},"payment_method"`, 1)
	full = strings.Replace(full, `"email"`, `"phone":"+62 (812) 345-6789","email"`, 1)
	full = strings.Replace(full, s.ids["kopi"], strings.ToUpper(s.ids["kopi"]), 1)
	first := post(full, "Idempotency-Key", "cart-1042").want(t, 201, "")
	if again := post(full, "Idempotency-Key", "cart-1042").want(t, 201, ""); again.Header.Get("Idempotent-Replayed") != "true" || again.Body != first.Body {
		t.Errorf("not replayed: %v", again.Header)
	}
	post(full+" ", "Idempotency-Key", "cart-1042").want(t, 422, "IDEMPOTENCY_KEY_REUSED")
	post(full).want(t, 409, "DUPLICATE_EXTERNAL_ID")
	s.create(t, "bank_transfer", "langka")
	post(s.order("bank_transfer", "langka")).want(t, 409, "OUT_OF_STOCK")
	post(`{"buyer":`).want(t, 400, "INVALID_REQUEST")
	post(`{"buyer":{},"buyer":{}}`).want(t, 400, "INVALID_REQUEST")
	s.do(t, "POST", "/v1/orders?dry=1", full).want(t, 400, "INVALID_REQUEST")
	post(`"`+strings.Repeat("a", 70_000)+`"`).want(t, 413, "PAYLOAD_TOO_LARGE")
	post(s.order("bank_transfer", "kopi"), "Content-Type", "text/plain").want(t, 201, "")
	wrong := strings.Replace(s.order("bank_transfer", "kopi"), `"quantity":1`, `"quantity":0`, 1)
	post(strings.Replace(wrong, `"email":"siti@example.id",`, "", 1)).want(t, 422, "VALIDATION_FAILED")
	post(s.order("bank_transfer", "kopi", "duo-unknown")).want(t, 422, "PRODUCT_UNAVAILABLE")
	post(strings.Replace(s.order("bank_transfer", "kopi", "duo"), s.ids["duo"], "01a1fc0f-a32e-7a3e-9c41-d7f206b85ae3", 1)).want(t, 422, "PRODUCT_UNAVAILABLE")
	post(s.order("bank_transfer", "permen")).want(t, 422, "PAYMENT_METHOD_UNAVAILABLE")

	id := first.at("order", "id")
	for _, query := range []string{"", "?status=pending&limit=1&offset=1", "?external_id=shop-1042", "?starting_after=" + strings.ToUpper(id),
		"?created_at_min=2026-01-31T10:00:00%2B07:00&created_at_max=2099-01-01"} {
		s.do(t, "GET", "/v1/orders"+query, "").want(t, 200, "")
	}
	s.do(t, "HEAD", "/v1/orders", "").want(t, 200, "")
	s.do(t, "GET", "/v1/orders/"+strings.ToUpper(id), "").want(t, 200, "")
	s.do(t, "GET", "/v1/orders/01a1fc0f-a32e-7a3e-9c41-d7f206b85ae3", "").want(t, 404, "NOT_FOUND")
	s.do(t, "GET", "/v1/orders/x", "").want(t, 404, "NOT_FOUND")
}

// payments brings orders to every status, and sessions too.
func payments(t *testing.T, s *shop) {
	status := func(id, order, session string) reply {
		t.Helper()
		r := s.do(t, "GET", "/v1/orders/"+id, "").want(t, 200, "")
		if r.at("order", "status") != order || r.at("payment_session", "status") != session {
			t.Errorf("order %s with session %s, want %s with %s", r.at("order", "status"), r.at("payment_session", "status"), order, session)
		}
		return r
	}
	// The last piece is sold again after a cancellation, and then the cancelled order is approved.
	oversold := s.create(t, "bank_transfer", "sisa")
	s.cli(t, "", "order cancel", "-order", oversold)
	s.create(t, "bank_transfer", "sisa")
	s.cli(t, "", "order approve", "-order", oversold)
	status(oversold, "paid", "paid")

	free := s.create(t, "", "gratis")
	status(free, "paid", "none")

	manual := s.create(t, "bank_transfer", "kopi")
	status(manual, "pending", "manual")
	s.press(t, "/pay/"+manual+"/claim", "")
	status(manual, "awaiting_verification", "manual")
	s.press(t, "/pay/"+manual+"/unclaim", "")
	status(manual, "pending", "manual")
	s.press(t, "/pay/"+manual+"/claim", "")
	status(manual, "awaiting_verification", "manual")
	s.cli(t, "", "order approve", "-order", manual)
	status(manual, "paid", "paid")
	s.cli(t, "", "order refund", "-order", manual)
	status(manual, "refunded", "paid")

	status(s.create(t, "qris", "kopi"), "pending", "unavailable")
	status(s.create(t, "va_bca", "kopi"), "pending", "unavailable")

	page := func(id string) string {
		return "/sandbox/" + status(id, "pending", "active").at("payment_session", "id")
	}
	reaches := func(id, order, session string) {
		t.Helper()
		await(t, "the order is "+order, func() bool {
			return s.do(t, "GET", "/v1/orders/"+id, "").at("order", "status") == order
		})
		status(id, order, session)
	}
	paid := s.create(t, "sandbox", "kopi", "duo")
	s.press(t, page(paid), "action=pay")
	reaches(paid, "paid", "paid")

	denied := s.create(t, "sandbox", "kopi")
	at := page(denied)
	s.press(t, at, "action=other")
	reaches(denied, "awaiting_verification", "paid")
	s.press(t, at, "action=deny")
	reaches(denied, "failed", "failed")

	cancelled := s.create(t, "sandbox", "kopi")
	page(cancelled)
	s.cli(t, "", "order cancel", "-order", cancelled)
	s.cli(t, "", "payment check", "-order", cancelled)
	status(cancelled, "failed", "expired")

	// Time is made to pass in the database: the shortest expiry is ten minutes. What is due, the program finds as it starts.
	late := s.create(t, "bank_transfer", "kopi")
	s.stop(t)
	s.change(t, "UPDATE orders SET expires_at = 1 WHERE id = '"+late+"'")
	s.start(t)
	reaches(late, "expired", "expired")
}

func (s *shop) open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+s.db+"?_busy_timeout=5000&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func (s *shop) change(t *testing.T, statement string) {
	t.Helper()
	if _, err := s.open(t).Exec(statement); err != nil {
		t.Fatal(err)
	}
}

func limits(t *testing.T, s *shop) {
	limited := func(headers ...string) {
		t.Helper()
		for range 70 {
			if r := s.do(t, "GET", "/v1/products", "", headers...); r.Status == 429 {
				return
			}
		}
		t.Error("never limited")
	}
	limited() // for a minute
	s.each(t, nil, 429, "RATE_LIMITED")
	limited("Authorization", "Bearer wrong")
}

// faults locks the database and then breaks it.
func faults(t *testing.T, s *shop) {
	pending := s.create(t, "sandbox", "kopi")
	lock, err := s.open(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() { s.do(t, "GET", "/v1/orders/"+pending, "").want(t, 200, "") }) // its session is unavailable
	both.Go(func() {
		s.do(t, "POST", "/v1/orders", s.order("bank_transfer", "kopi")).want(t, 503, "SERVICE_UNAVAILABLE")
	})
	for _, act := range []string{"/approve", "/cancel", "/refund"} {
		both.Go(func() { s.do(t, "POST", "/v1/orders/"+pending+act, "").want(t, 503, "SERVICE_UNAVAILABLE") })
	}
	both.Go(func() { s.do(t, "PUT", "/v1/catalog", catalog).want(t, 503, "SERVICE_UNAVAILABLE") })
	both.Wait()
	lock.Rollback()
	s.change(t, "ALTER TABLE products RENAME TO lost_products")
	s.do(t, "GET", "/v1/products?q=unseen", "").want(t, 500, "INTERNAL_ERROR") // what was seen is kept
	s.change(t, "ALTER TABLE api_keys RENAME TO lost_api_keys")
	s.each(t, nil, 500, "INTERNAL_ERROR")
}

// manages does with a key what the owner does, and reads the events of all that was done so far.
func manages(t *testing.T, s *shop) {
	id := s.create(t, "bank_transfer", "kopi")
	act := func(name, body string) reply { return s.do(t, "POST", "/v1/orders/"+id+"/"+name, body) }
	act("refund", "").want(t, 409, "ORDER_STATE")
	act("approve", `{"reason":"BCA 21/11, Rp85.000"}`).want(t, 200, "")
	act("approve", "").want(t, 409, "ORDER_STATE")
	act("cancel", "").want(t, 409, "ORDER_STATE")
	act("refund", "").want(t, 200, "")
	canceled := s.create(t, "bank_transfer", "kopi")
	s.do(t, "POST", "/v1/orders/"+canceled+"/cancel", "").want(t, 200, "")
	long := `{"reason":"` + strings.Repeat("a", 201) + `"}`
	for _, name := range []string{"approve", "cancel", "refund"} {
		act(name, long).want(t, 422, "VALIDATION_FAILED")
		act(name, "{").want(t, 400, "INVALID_REQUEST")
		act(name, `"`+strings.Repeat("a", 70_000)+`"`).want(t, 413, "PAYLOAD_TOO_LARGE")
		s.do(t, "POST", anOrder+"/"+name, "").want(t, 404, "NOT_FOUND")
	}

	s.do(t, "PUT", "/v1/catalog", everyField).want(t, 200, "")
	s.do(t, "GET", "/v1/payment-methods", "").want(t, 200, "")
	s.do(t, "PUT", "/v1/catalog", "{").want(t, 400, "INVALID_REQUEST")
	unknown := `{"bundles":[{"slug":"b","title":"B","price":1,"items":[{"slug":"kopi-gayo-250","quantity":1}]}]}`
	s.do(t, "PUT", "/v1/catalog", unknown).want(t, 422, "VALIDATION_FAILED")
	s.do(t, "PUT", "/v1/catalog", "{}"+strings.Repeat(" ", 1<<20)).want(t, 413, "PAYLOAD_TOO_LARGE")

	s.do(t, "GET", "/v1/store", "").want(t, 200, "")
	s.cli(t, "", "store set", "-store", s.storeID, "-contact", "owner@example.id")
	s.do(t, "GET", "/v1/store", "").want(t, 200, "")
	s.do(t, "GET", "/v1/store?a=1", "").want(t, 400, "INVALID_REQUEST")
	s.do(t, "GET", "/v1/events?page=1", "").want(t, 400, "INVALID_REQUEST")
	query := "?limit=5&created_at_min=2026-01-01"
	for { // to the end, over every event so far
		page := s.do(t, "GET", "/v1/events"+query, "").want(t, 200, "")
		list, _ := page.Data["events"].([]any)
		if page.at("has_more") == "false" {
			break
		}
		query = "?limit=5&after=" + list[len(list)-1].(object)["id"].(string)
	}
	s.do(t, "GET", "/v1/events?event=orderPaid&order_id="+id, "").want(t, 200, "")
}

// everyField is a catalog with every field, of entries that nothing else uses.
const everyField = `{
  "products": [
    {"slug": "baru", "title": "Baru", "description": "Satu\nDua", "price": 1000, "stock": 5, "image_url": "https://img.example.id/baru.jpg", "published": false},
    {"slug": "lain", "title": "Lain", "price": 0, "stock": null, "image_url": null}],
  "bundles": [{"slug": "paket", "title": "Paket", "description": "", "price": 1500, "image_url": null, "published": false,
    "items": [{"slug": "baru", "quantity": 2}]}],
  "payment_methods": [
    {"code": "tunai", "name": "Tunai", "provider": "manual", "kind": "cash", "fee": 0, "instructions": "Di toko.", "min_amount": null, "max_amount": 5000},
    {"code": "bri", "name": "BRI", "provider": "manual", "kind": "transfer", "unique_code": true, "accounts": [{"bank": "BRI", "number": "1234-56-78", "holder": "Kopi Kita"}]},
    {"code": "statis", "name": "QRIS", "provider": "manual", "kind": "qris", "image_url": "https://img.example.id/qris.png"},
    {"code": "dompet", "name": "Dompet", "provider": "manual", "kind": "ewallet", "image_url": null},
    {"code": "coba", "name": "Coba", "provider": "sandbox", "enabled": false},
    {"code": "gopay", "name": "GoPay", "provider": "midtrans", "enabled": false},
    {"code": "ovo", "name": "OVO", "provider": "xendit", "enabled": false}]}`

// drift shows that the check can fail: every change of an answer that was right, or of the description, is found.
func drift(t *testing.T, kept []exchange) {
	find := func(method, prefix string, status int) exchange {
		i := slices.IndexFunc(kept, func(x exchange) bool {
			return x.Method == method && strings.HasPrefix(x.Path, prefix) && x.Status == status && !strings.Contains(x.Body, `"orders":[]`)
		})
		if i < 0 {
			t.Fatalf("no %s %s with %d", method, prefix, status)
		}
		x := kept[i]
		x.Header = x.Header.Clone()
		return x
	}
	body := func(x exchange, from, to string) exchange {
		if !strings.Contains(x.Body, from) {
			t.Errorf("no %q in %.300s", from, x.Body)
		}
		x.Body = strings.Replace(x.Body, from, to, 1)
		return x
	}
	header := func(x exchange, name, value string) exchange {
		if x.Header.Del(name); value != "" {
			x.Header.Set(name, value)
		}
		return x
	}
	of := func(x exchange, status int) exchange {
		x.Status = status
		return x
	}
	list := func() exchange { return find("GET", "/v1/orders", 200) }
	made := func() exchange { return find("POST", "/v1/orders", 201) }
	// A request that was accepted has to be a right one.
	request := func(x exchange, from, to string) exchange {
		if !strings.Contains(x.Request, from) {
			t.Errorf("no %q in the request %.300s", from, x.Request)
		}
		x.Request = strings.Replace(x.Request, from, to, 1)
		return x
	}
	for name, x := range map[string]exchange{
		"an accepted e-mail that is none":     request(made(), `siti@example.id`, `siti at home`),
		"a new field":                         body(list(), `"status":`, `"colour":"red","status":`),
		"a new field beside data":             body(list(), `{"success"`, `{"version":1,"success"`),
		"a field left out":                    body(made(), `"currency":"IDR",`, ``),
		"a number as text":                    body(made(), `"quantity":1`, `"quantity":"1"`),
		"null":                                body(made(), `"external_id":"shop-1042"`, `"external_id":null`),
		"a new field of an item":              body(made(), `"quantity":1`, `"weight":250,"quantity":1`),
		"a new field of an error":             body(find("GET", "/v1/orders/", 404), `"code"`, `"hint":"x","code"`),
		"a new status of orders":              body(made(), `"status":"pending"`, `"status":"waiting"`),
		"a new type of item":                  body(made(), `"type":"product"`, `"type":"service"`),
		"an item without its product":         body(made(), `,"product_id":"`+productOf(made())+`"`, ""),
		"a time without milliseconds":         body(made(), `Z"`, `"`),
		"an id that is no UUID":               body(made(), `"id":"`, `"id":"x`),
		"an address that is none":             body(made(), `"checkout_url":"http`, `"checkout_url":"ht tp`),
		"another error code":                  body(find("GET", "/v1/orders/", 404), "NOT_FOUND", "NO_ORDER"),
		"a code of another status":            body(find("POST", "/v1/orders", 409), "DUPLICATE_EXTERNAL_ID", "VALIDATION_FAILED"),
		"a new header":                        header(list(), "X-Total-Count", "3"),
		"a required header left out":          header(made(), "Location", ""),
		"a required header of a 304 left out": header(find("GET", "/v1/products", 304), "Etag", ""),
		"a header that is no number":          header(list(), "X-Ratelimit-Remaining", "many"),
		"another content type":                header(list(), "Content-Type", "text/html"),
		"a new status":                        of(list(), 202),
		"405 without Allow":                   header(find("DELETE", "/v1/orders", 405), "Allow", ""),
		"a new path":                          {Method: "GET", Path: "/v1/stores", Status: 200, Header: http.Header{}, Body: "{}"},
	} {
		if err := loadDescription(t).check(x); err == nil {
			t.Errorf("not found in an answer: %s", name)
		}
	}
	walk := func(text string) (wrong error, unseen string, err error) {
		c, err := load([]byte(text))
		if err != nil {
			return nil, "", err
		}
		for _, x := range kept {
			wrong = cmp.Or(wrong, c.check(x))
		}
		return wrong, strings.Join(c.unseen(), "\n"), nil
	}
	text := string(description(t))
	wrong, unseenNow, err := walk(text)
	if err != nil || wrong != nil {
		t.Fatalf("the description as it is: %v, %v", wrong, err)
	}
	for name, change := range map[string][2]string{
		"a field less":          {`"payment_reference": {`, `"payment_code": {`},
		"a field required":      {`"required": ["name"]`, `"required": ["name", "title"]`},
		"a status less":         {`"201": {`, `"202": {`},
		"a parameter less":      {`"name": "starting_after"`, `"name": "after"`},
		"a parameter more":      {`"name": "starting_after"`, `"name": "city", "in": "query", "schema": {"type": "string"}}, {"name": "starting_after"`},
		"a field of requests":   {`"external_id": {"type": "string", "minLength": 1, "maxLength": 64, "pattern"`, `"gift": {"type": "string"}, "external_id": {"type": "string", "minLength": 1, "maxLength": 64, "pattern"`},
		"a parameter narrower":  {`"maxLength": 40,`, `"maxLength": 5,`},
		"a header more":         {`"ETag": {"$ref": "#/components/headers/ETag"}`, `"ETag": {"$ref": "#/components/headers/ETag"}, "Age": {"$ref": "#/components/headers/RetryAfter"}`},
		"an error code more":    {`"x-error-codes": ["OUT_OF_STOCK", `, `"x-error-codes": ["SOLD", "OUT_OF_STOCK", `},
		"an enumerated value":   {`"x-extensible-enum": ["active", `, `"x-extensible-enum": ["waiting", "active", `},
		"an optional field":     {`"return_url": {"type": "string", "format": "uri", "maxLength": 2048, "description": "As`, `"gift": {"type": "string"}, "return_url": {"type": "string", "format": "uri", "maxLength": 2048, "description": "As`},
		"another error message": {`"message": "Rate limit exceeded."`, `"message": "Slow down."`},
	} {
		if !strings.Contains(text, change[0]) {
			t.Errorf("%s: the description has no %q", name, change[0])
			continue
		}
		wrong, unseen, err := walk(strings.Replace(text, change[0], change[1], 1))
		if err != nil || wrong == nil && unseen == unseenNow {
			t.Errorf("not found in the description: %s %v", name, err)
		}
	}
}

// driftOfWebhooks shows the same for deliveries.
func driftOfWebhooks(t *testing.T, all []delivery) {
	of := func(event string) delivery {
		return all[slices.IndexFunc(all, func(d delivery) bool { return d.header.Get("X-Service-Event") == event })]
	}
	paid, ping := of("orderPaid"), of("ping")
	body := func(d delivery, from, to string) delivery {
		if !bytes.Contains(d.body, []byte(from)) {
			t.Errorf("no %q in %.300s", from, d.body)
		}
		return delivery{d.header, bytes.Replace(d.body, []byte(from), []byte(to), 1)}
	}
	header := func(d delivery, name, value string) delivery {
		h := d.header.Clone()
		h.Set(name, value)
		return delivery{h, d.body}
	}

	for name, d := range map[string]delivery{
		"a new field":             body(paid, `"event":`, `"version":1,"event":`),
		"a new field beside data": body(paid, `{"order":`, `{"reason":"x","order":`),
		"a new field of orders":   body(paid, `"status":`, `"colour":"red","status":`),
		"a new field of a ping":   body(ping, `"data":{}`, `"data":{"reason":"x"}`),
		"a new status of orders":  body(paid, `"status":"paid"`, `"status":"settled"`),
		"a new event":             header(body(paid, `"event":"orderPaid"`, `"event":"orderSettled"`), "X-Service-Event", "orderSettled"),
		"another event":           body(paid, `"event":"orderPaid"`, `"event":"orderFailed"`),
		"a new header":            header(paid, "X-Service-Store", "1"),
	} {
		if err := loadDescription(t).checkWebhook(d.header, d.body); err == nil {
			t.Errorf("not found in a delivery: %s", name)
		}
	}
}
