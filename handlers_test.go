package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAShopsDay is the test to read first: what the programs, the buyers and the owner of a shop do on a
// usual day.
func TestAShopsDay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.endpoint("kopikita.example.id")
		p := newPlayer(t, w)

		// The shop's website shows what is for sale, and how it can be paid.
		products := w.get(t, "/v1/products?q=kopi")
		products.has(t, "products.0.title Kopi Gayo", "products.0.price 85000", "products.0.stock 10")
		w.get(t, "/v1/payment-methods?amount=170000").want(t, 200, "")

		// Siti orders two bags of coffee. The answer says where she pays.
		body := w.shop.body("kopi", 2)
		body["external_id"] = "web-1042"
		created := w.post(body, "Idempotency-Key", "cart-7").want(t, 201, "")
		id := created.at("order.id")
		created.has(t, "order.status pending", "order.amount 170000")
		created.has(t, "order.checkout_url https://shop.test/pay/"+id)

		// The website did not get the answer, and asks again: there is still one order.
		again := w.post(body, "Idempotency-Key", "cart-7").want(t, 201, "")
		if string(again.Body) != string(created.Body) {
			t.Errorf("asked again it is %s, not %s", again.Body, created.Body)
		}

		// She transfers the money and says so; the owner finds it in the bank's list.
		p.kept["A"] = id
		p.play(
			"buyer  open pay A | can change claim | sees Rp170.000",
			"buyer  press claim bank=BCA | awaiting_verification",
			"owner  open order A | sees BCA",
			"owner  press approve | paid, stock 8",
		)

		// The website learns of each step from webhooks, in their order, or reads what it has missed.
		want := "orderCreated orderAwaitingVerification orderPaid"
		var came []string
		for _, h := range w.net.inbox.await(3) {
			came = append(came, h.event)
		}
		if got := strings.Join(came, " "); got != want {
			t.Errorf("the webhooks are %s, want %s", got, want)
		}
		w.get(t, "/v1/events?order_id="+id).has(t, "events.2.event orderPaid", "has_more false")

		// In the evening the owner looks at the orders of the day, and makes a backup.
		w.get(t, "/v1/orders?status=paid&created_at_min=2000-01-01").has(t, "orders.0.external_id web-1042")
		w.command("backup " + t.TempDir() + "/tonight.db")
	})
}

func TestSessionsOfPrograms(t *testing.T) { playStories(t, "testdata/programs.txt") }

// has reports values in the data that differ: each is a path and a text.
func (r response) has(t *testing.T, values ...string) {
	t.Helper()
	for _, value := range values {
		path, want, _ := strings.Cut(value, " ")
		if got := r.at(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

// wantRefusal reports an answer that is not the refusal of a heading in testdata/. "422 VALIDATION_FAILED
// buyer.name" has the fields that the details name, "400 INVALID_REQUEST The key" the beginning of the
// message.
func (r response) wantRefusal(t *testing.T, heading string) {
	t.Helper()
	got := fmt.Sprintf("%d %s %s", r.Status, r.Error.Code, r.Error.Message)
	matches := strings.HasPrefix(got, heading)
	var names []string
	for _, d := range r.Error.Details {
		names = append(names, d.Field)
	}
	if names != nil {
		got = fmt.Sprintf("%d %s %s", r.Status, r.Error.Code, strings.Join(names, ","))
		matches = got == heading
	}
	if !matches {
		t.Errorf("got  %s\nwant %s\n%.400s", got, heading, r.Body)
	}
}

// refuseAll sends the requests of a table, each of which is refused with the heading above it. A case is a
// method, a path and perhaps a body, and in further columns headers as do sends them, beside those given here.
func (w *world) refuseAll(t *testing.T, file string, words map[string]string, usual ...string) {
	t.Helper()
	for _, c := range readCases(t, file) {
		for i, column := range c.columns {
			c.columns[i] = os.Expand(column, func(name string) string { return words[name] })
		}
		request := strings.SplitN(c.column(0)+"  ", " ", 3)
		headers := slices.Clone(usual)
		for _, header := range c.columns[1:] {
			name, value, _ := strings.Cut(header, ":")
			headers = append(headers, name, strings.TrimSpace(value))
		}

		t.Run(c.name, func(t *testing.T) {
			r := w.do(t, request[0], request[1], strings.TrimSpace(request[2]), headers...)
			r.wantRefusal(t, c.heading)
			if got := r.Header.Get("WWW-Authenticate"); (got == "Bearer") != (r.Status == 401) {
				t.Errorf("status %d with WWW-Authenticate %q", r.Status, got)
			}
			if got := r.Header.Get("Allow"); (got != "") != (r.Status == 405) {
				t.Errorf("status %d with Allow %q", r.Status, got)
			}
		})
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	revoked := w.command("key add -name old -store " + w.shop.id)
	w.get(t, "/v1/orders", "Authorization", "bEaReR "+textOf(revoked, "key"))
	w.command("key revoke -key " + textOf(revoked, "key_id"))
	w.command("store set -plan free -store " + w.other.id)
	words := map[string]string{
		"key":     w.shop.keys["write"],
		"revoked": textOf(revoked, "key"),
		"free":    w.other.keys["write"],
		"order":   w.create(t, "teh", 1),
	}
	w.refuseAll(t, "testdata/bad-requests.txt", words)
	w.refuseAll(t, "testdata/bad-queries.txt", words)
	w.command("store set -plan scale -store " + w.other.id)
	w.get(t, "/v1/store", as(w.other.keys["read"])...).has(t, "store.plan scale", "key.scope read")
}

// orderChange is a change to the good order, such as "buyer.name: null".
var orderChange = regexp.MustCompile(`(?s)^(items\[0\]\.|buyer\.|)([A-Za-z_]+):(?: (.*))?$`)

// orderText writes out a body of testdata/bad-bodies.txt, which explains the notation.
func orderText(ids map[string]string, columns ...string) string {
	objects := map[string]map[string]string{
		"item":   {"type": `"product"`, "product_id": `"$teh"`, "quantity": `1`},
		"buyer":  {"name": `"S"`, "phone": `"081234"`},
		"good":   {"items": `[$item]`, "buyer": `$buyer`, "payment_method": `"bank_transfer"`},
		"keys20": {},
		"keys21": {"20": `"x"`},
	}
	for i := range 20 {
		objects["keys20"][strconv.Itoa(i)] = `"x"`
		objects["keys21"][strconv.Itoa(i)] = `"x"`
	}
	body := "$good"
	for _, column := range columns {
		change := orderChange.FindStringSubmatch(column)
		if change == nil {
			body = column
			continue
		}
		object := objects[map[string]string{"items[0].": "item", "buyer.": "buyer", "": "good"}[change[1]]]
		object[change[2]] = change[3]
		if change[3] == "" {
			delete(object, change[2])
		}
	}

	var write func(name string) string
	write = func(name string) string {
		object, isObject := objects[name]
		if name == "TEH" {
			return strings.ToUpper(ids["teh"])
		}
		if !isObject {
			return ids[name]
		}
		var texts []string
		for _, field := range slices.Sorted(maps.Keys(object)) {
			texts = append(texts, `"`+field+`":`+os.Expand(object[field], write))
		}
		return "{" + strings.Join(texts, ",") + "}"
	}
	return os.Expand(body, write)
}

// contentTypes are some that clients send with JSON.
var contentTypes = []string{
	"",
	"Application/JSON; charset=utf-8",
	"text/plain",
	"application/x-www-form-urlencoded",
	"application/vnd.api+json",
	"application/json, text/plain",
	"no type at all",
}

func TestBadBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	post := func(body any, headers ...string) response { return w.post(body, headers...) }
	for _, c := range readCases(t, "testdata/bad-bodies.txt") {
		t.Run(c.name, func(t *testing.T) {
			post(orderText(w.shop.ids, c.columns[1:]...)).wantRefusal(t, c.heading)
		})
	}
	for _, contentType := range contentTypes {
		r := post("items=1&buyer=Siti", "Content-Type", contentType)
		r.wantRefusal(t, "400 INVALID_REQUEST Invalid JSON body.")
	}

	// An Idempotency-Key has 1 to 255 characters in UTF-8 and comes once.
	good := orderText(w.shop.ids)
	post(good, "Idempotency-Key", strings.Repeat("k", 256)).want(t, 400, "INVALID_REQUEST")
	post(good, "Idempotency-Key", "\xff").want(t, 400, "INVALID_REQUEST")
	post(good, "Idempotency-Key", "a", "Idempotency-Key", "b").want(t, 400, "INVALID_REQUEST")

	// The other store has no key of a gateway.
	body := w.other.body("teh", 1)
	body["payment_method"] = "qris"
	post(body, as(w.other.keys["write"])...).want(t, 422, "PAYMENT_METHOD_UNAVAILABLE")

	// A product is counted alone and in a bundle.
	post(w.shop.body("kopi", 5, "duo", 3)).wantRefusal(t,
		"409 OUT_OF_STOCK items[0].quantity,items[1].quantity")

	// Nothing was written.
	w.get(t, "/v1/orders").has(t, "orders []", "has_more false")
	w.get(t, "/v1/events").has(t, "events []")
	w.get(t, "/v1/products?q=kopi").has(t, "products.0.stock 10")
}

func TestBodiesAtTheBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := orderText(w.shop.ids)
	bodies := map[string]string{"64 KiB": good + strings.Repeat(" ", 64<<10-len(good))}
	for _, c := range readCases(t, "testdata/good-bodies.txt") {
		bodies[c.name] = orderText(w.shop.ids, c.columns[1:]...)
	}
	for name, body := range bodies {
		if r := w.post(body); r.Status != 201 {
			t.Errorf("%s: %s", name, r.Body)
		}
	}
	for _, contentType := range contentTypes {
		w.post(good, "Content-Type", contentType).want(t, 201, "")
	}
	w.post(good, "Idempotency-Key", strings.Repeat("é", 255)).want(t, 201, "")
}

// TestFieldsAndTypes compares the fields of every answer, and their types, with testdata/shapes.txt.
func TestFieldsAndTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := w.shop.body("kopi", 2, "duo", 1)
	body["buyer"] = fields{"name": "Siti", "email": "siti@example.id"}
	created := w.post(body).want(t, 201, "")

	shapes := map[string]string{} // by request
	for _, line := range readCases(t, "testdata/shapes.txt") {
		shapes[line.heading] += " " + line.column(0)
	}
	words := map[string]string{"order": created.at("order.id"), "ORDER": strings.TrimSpace(shapes["ORDER"])}
	delete(shapes, "ORDER")
	for request, want := range shapes {
		r := created
		fill := func(text string) string {
			return os.Expand(text, func(name string) string { return words[name] })
		}
		if path, isGet := strings.CutPrefix(fill(request), "GET "); isGet {
			r = w.get(t, path)
		}
		if got := shape(r.Data); got != strings.TrimSpace(fill(want)) {
			t.Errorf("%s:\n got %s\nwant %s", request, got, want)
		}
	}
}

var kindsOfText = []struct {
	kind    string
	pattern *regexp.Regexp
}{
	{"uuid", regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)},
	{"time", regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)},
	{"url", regexp.MustCompile(`^http`)},
	{"text", regexp.MustCompile(``)},
}

// shape writes the names and types in a value, such as "{id:uuid items:[{price:int}]}". Of a list it has each
// shape once.
func shape(v any) string {
	var texts []string
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case json.Number:
		return map[bool]string{true: "float", false: "int"}[strings.ContainsAny(v.String(), ".eE")]
	case string:
		for _, k := range kindsOfText {
			if k.pattern.MatchString(v) {
				return k.kind
			}
		}
	case []any:
		for _, element := range v {
			if s := shape(element); !slices.Contains(texts, s) {
				texts = append(texts, s)
			}
		}
		return "[" + strings.Join(texts, " ") + "]"
	case fields:
		for name, value := range v {
			texts = append(texts, name+":"+shape(value))
		}
	}
	slices.Sort(texts)
	return "{" + strings.Join(texts, " ") + "}"
}

func TestOrderFilters(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.command("store set -expiry 168h -store " + w.shop.id)
		names, ids := map[string]string{}, map[string]string{}
		for _, o := range []struct {
			name string
			wait time.Duration
		}{
			{"a", time.Until(time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)) - time.Millisecond},
			{"b", time.Millisecond},
			{"c", time.Millisecond},
			{"d", 24*time.Hour - 2*time.Millisecond},
		} {
			time.Sleep(o.wait)
			synctest.Wait()
			id := w.create(t, "teh", 1)
			names[id] = o.name
			ids[o.name], ids[strings.ToUpper(o.name)] = id, strings.ToUpper(id)
		}
		ids["ref"] = w.get(t, "/v1/orders/"+ids["d"]).at("order.payment_reference")
		ids["typed"] = strings.ToLower(ids["ref"])

		for _, c := range readCases(t, "testdata/order-filters.txt") {
			query := os.Expand(c.column(0), func(name string) string { return ids[name] })
			r := w.get(t, "/v1/orders?"+query)
			got := ""
			for _, o := range r.list("orders") {
				got += names[textOf(o, "id")]
			}
			if r.at("has_more") == "true" {
				got += "+"
			}
			if want := strings.TrimPrefix(c.column(1), "none"); got != want {
				t.Errorf("%s: %s, want %s", c.name, got, want)
			}
		}
	})
}

// TestScopes sends the requests of testdata/scopes.txt with a key of each scope.
func TestScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	order := w.create(t, "teh", 1)
	scopes := []string{"read", "write", "manage"}
	for _, c := range readCases(t, "testdata/scopes.txt") {
		words := strings.SplitN(strings.ReplaceAll(c.column(0), "$order", order)+"  ", " ", 3)
		for i, scope := range scopes {
			r := w.do(t, words[0], words[1], strings.TrimSpace(words[2]), as(w.shop.keys[scope])...)
			refused := r.Status == 403 && r.Error.Code == "FORBIDDEN"
			if refused != (i < slices.Index(scopes, c.heading)) {
				t.Errorf("%s with the scope %s: %d %s", c.column(0), scope, r.Status, r.Error.Code)
			}
		}
	}
	w.post("{}", as(w.shop.keys["read"])...).wantRefusal(t,
		"403 FORBIDDEN This key has the scope read, and this call needs write.")
}

// TestNumbers is about the numbers of testdata/numbers.txt.
func TestNumbers(t *testing.T) {
	t.Parallel()
	read := map[string]func(string) string{
		"telephone": internationalPhone, "amount": parseRupiah, "count": parseCount,
	}
	for _, c := range readCases(t, "testdata/numbers.txt") {
		if got := read[c.heading](c.column(0)); got != c.column(1) {
			t.Errorf("%s: the %s is %q, want %q", c.name, c.heading, got, c.column(1))
		}
	}
}

// TestTimes is about the times of testdata/times.txt, as bounds of a list.
func TestTimes(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/times.txt") {
		low, okLow := parseTime(c.column(0), false)
		high, okHigh := parseTime(c.column(0), true)
		accepted := c.heading == "accepted"
		if okLow != accepted || okHigh != accepted {
			t.Errorf("%s: accepted as the bounds: %t and %t, want %t", c.name, okLow, okHigh, accepted)
		}
		if got := fmt.Sprint(low, " ", high); accepted && got != c.column(1)+" "+c.column(2) {
			t.Errorf("%s: the bounds are %s", c.name, got)
		}
	}
}

// TestHeads asks with HEAD for what GET answers, and with every method for what a path takes.
func TestHeads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create(t, "teh", 1)
	for _, path := range strings.Fields("/v1/orders /v1/orders/" + id + " /v1/products /v1/events /healthz /readyz") {
		get := w.do(t, "GET", path, nil)
		head := w.do(t, "HEAD", path, nil)
		if head.Status != 200 || head.Header.Get("Content-Length") != strconv.Itoa(len(get.Body)) {
			t.Errorf("HEAD %s: %d %v", path, head.Status, head.Header)
		}
	}
	for path, allow := range map[string]string{
		"/v1/orders":         "GET, HEAD, POST",
		"/v1/orders/" + id:   "GET, HEAD, PATCH",
		"/v1/catalog":        "GET, HEAD, PUT",
		"/healthz":           "GET, HEAD",
		"/pay/" + id:         "GET, HEAD, POST",
		"/docs":              "GET, HEAD",
		"/v1/events":         "GET, HEAD",
		"/dashboard/account": "GET, HEAD, POST",
	} {
		r, err := w.send("DELETE", path, nil)
		must(t, err)
		if got := r.Header.Get("Allow"); r.Status != 405 || got != allow {
			t.Errorf("DELETE %s: %d, Allow %s, want %s", path, r.Status, got, allow)
		}
	}
}

// TestDamagedTable has SQLite fail: the answer says nothing of that, and the log does.
func TestDamagedTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql("ALTER TABLE payment_methods RENAME TO lost")
	r := w.do(t, "GET", "/v1/payment-methods", nil).want(t, 500, "INTERNAL_ERROR")
	if r.Error.Message != "Internal error." || !strings.Contains(w.log.String(), r.Header.Get("X-Request-Id")) {
		t.Errorf("a failure is answered %s", r.Body)
	}
	w.sql("ALTER TABLE lost RENAME TO payment_methods")
	w.create(t, "teh", 1)
}

// speak sends what no client of net/http would, and returns the first line of the answer.
func (w *world) speak(parts ...string) (status string, took time.Duration) {
	conn, err := w.life.dial()
	must(w.t, err)
	var writer sync.WaitGroup
	defer writer.Wait()
	defer conn.Close()
	begun := time.Now()
	writer.Go(func() {
		for _, part := range parts {
			if pause, err := time.ParseDuration(part); err == nil {
				time.Sleep(pause)
			} else if _, err := io.WriteString(conn, part); err != nil {
				return
			}
		}
	})
	conn.SetReadDeadline(begun.Add(2 * time.Minute))
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), time.Since(begun)
}

// TestSlowClients send their request never, or drop by drop. Each is disconnected soon, and nobody waits for them.
func TestSlowClients(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		head := "POST /v1/orders HTTP/1.1\r\nHost: shop.test\r\nAuthorization: Bearer " + w.shop.keys["write"] +
			"\r\nContent-Length: 100\r\n\r\n"
		for name, c := range map[string]struct {
			parts []string
			most  time.Duration
		}{
			"no request":  {nil, time.Minute},
			"half a head": {[]string{"GET /v1/orders HTTP/1.1\r\nHost: "}, 6 * time.Second},
			"no body":     {[]string{head}, 11 * time.Second},
			"half a body": {[]string{head + `{"items":`, "4s", "[", "4s", "{", "4s", "}"}, 13 * time.Second},
			"a long head": {[]string{"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n"}, time.Second},
			"no HTTP":     {[]string{"hello\r\n\r\n"}, time.Second},
			"no form":     {[]string{strings.Replace(head, "/v1/orders", "/dashboard/login", 1)}, 11 * time.Second},
		} {
			status, took := w.speak(c.parts...)
			if took > c.most || strings.Contains(status, " 2") {
				t.Errorf("%s: %s after %s, want %s at most", name, status, took, c.most)
			}
		}
		w.get(t, "/v1/orders").has(t, "orders []")
	})
}

// TestLongBodies are not read to their end.
func TestLongBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, most := range map[string]int{
		"/v1/orders":                         64 << 10,
		"/dashboard/login":                   4 << 10,
		"/notifications/xendit/" + w.shop.id: 1 << 20,
	} {
		head := "POST " + path + " HTTP/1.1\r\nHost: shop.test\r\nAuthorization: Bearer " + w.shop.keys["write"] +
			"\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded\r\n" +
			"Content-Length: 1000000000\r\n\r\n"
		status, took := w.speak(head, strings.Repeat("a", most+1000))
		if !strings.Contains(status, " 413 ") || took > 5*time.Second {
			t.Errorf("%s: %s after %s", path, status, took)
		}
	}
}

// TestNoStoreHoldsUpAnother has one store's program ask for its orders by many at once. Some are told to come
// again, and another store is answered at once.
func TestNoStoreHoldsUpAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.play("order kopi 1 snap as A, faults hang midtrans")
		codes := map[int]int{}
		var mu sync.Mutex
		var readers sync.WaitGroup
		for i := range 60 {
			readers.Go(func() {
				path := "/v1/orders/" + p.order
				if i%2 == 0 {
					path = "/pay/" + p.order + "/go"
				}
				r, err := w.send("GET", path, nil)
				must(t, err)
				mu.Lock()
				codes[r.Status]++
				mu.Unlock()
			})
		}
		time.Sleep(100 * time.Millisecond)
		begun := time.Now()
		w.orderOfOther("teh", 1).want(t, 201, "")
		w.post(w.shop.body("teh", 1)).want(t, 201, "")
		if took := time.Since(begun); took > time.Second {
			t.Errorf("beside a silent gateway orders take %s", took)
		}
		readers.Wait()
		if took := time.Since(begun); took > 25*time.Second || codes[200]+codes[303]+codes[429] != 60 {
			t.Errorf("readers of a silent gateway's order are answered %v after %s", codes, took)
		}
	})
}

// TestLogNamesNoOrder looks for what opens pages in the lines of all requests.
func TestLogNamesNoOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	p.play("order kopi 1 snap as A, get", "buyer open pay A", "owner open order A")
	for _, path := range []string{
		"/pay/" + p.order + "x", "/v1/orders/" + p.order + "/x", "/" + p.order, "/dashboard/orders/" + p.order + "/x",
		"/%2fpay/" + p.order, "/v1/orders/" + strings.ToUpper(p.order), "/v1/orders?external_id=" + p.order,
		"/" + strings.Repeat("x", 5000),
	} {
		w.send("GET", path, nil)
		w.send("BREW", path, nil)
	}
	log := w.log.String()
	if strings.Contains(strings.ToLower(log), p.order) || strings.Count(log, "msg=request") < 16 {
		t.Errorf("the log names an order:\n%s", log)
	}
	for line := range strings.Lines(log) {
		if len(line) > 1000 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// TestBodyThatIsTooLarge comes through a proxy, which asks for the end of the connection: it reads the whole answer
// although the service has not read the whole body.
func TestBodyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	w.startProcess("")
	conn, err := w.life.dial()
	must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n"+
		"Authorization: Bearer %s\r\nContent-Length: 100000\r\n\r\n%s",
		w.shop.keys["write"], strings.Repeat(" ", 100000))
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "PAYLOAD_TOO_LARGE") {
		t.Errorf("the answer is %q, %v", answer, err)
	}
}
