//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// orderChange is a change to the good order, such as "buyer.name: null".
var orderChange = regexp.MustCompile(`(?s)^(items\[0\]\.|buyer\.|)([A-Za-z_]+):(?: (.*))?$`)

// orderBody writes out a body of testdata/bad-bodies.txt, which explains the notation.
func (s *testServer) orderBody(columns ...string) string {
	item := map[string]string{
		"type":       `"product"`,
		"product_id": `"$teh"`,
		"quantity":   `1`,
	}
	buyer := map[string]string{
		"name":  `"S"`,
		"phone": `"081234"`,
	}
	order := map[string]string{
		"items":          `[$item]`,
		"buyer":          `$buyer`,
		"payment_method": `"bank_transfer"`,
	}
	objects := map[string]map[string]string{
		"items[0].": item,
		"buyer.":    buyer,
		"":          order,
	}

	body := "$good"
	for _, column := range columns {
		change := orderChange.FindStringSubmatch(column)
		if change == nil {
			body = column
			continue
		}
		object, field, value := objects[change[1]], change[2], change[3]
		object[field] = value
		if value == "" {
			delete(object, field)
		}
	}

	var write func(text string) string
	write = func(text string) string {
		return os.Expand(text, func(name string) string {
			switch name {
			case "good":
				return write(objectText(order))
			case "item":
				return write(objectText(item))
			case "buyer":
				return write(objectText(buyer))
			case "keys20":
				return keysText(20)
			case "keys21":
				return keysText(21)
			case "TEH":
				return strings.ToUpper(s.ids["teh"])
			}
			return s.ids[name]
		})
	}
	return write(body)
}

// objectText is a JSON object with these values, which need not be valid JSON.
func objectText(values map[string]string) string {
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fields = append(fields, `"`+name+`":`+values[name])
	}
	return "{" + strings.Join(fields, ",") + "}"
}

func TestBadBodies(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	good := s.orderBody()

	for _, c := range readCases(t, "testdata/bad-bodies.txt") {
		t.Run(c.name, func(t *testing.T) {
			body := s.orderBody(c.columns[1:]...)
			s.post(t, body).wantRefusal(t, c.heading)
		})
	}

	t.Run("a body that is no JSON is refused as such, whatever its type", func(t *testing.T) {
		for _, contentType := range contentTypes {
			r := s.post(t, "items=1&buyer=Siti", "Content-Type", contentType)
			r.wantRefusal(t, "400 INVALID_REQUEST Invalid JSON body.")
		}
	})

	t.Run("an Idempotency-Key has 1 to 255 characters in UTF-8 and comes once", func(t *testing.T) {
		for _, key := range []string{strings.Repeat("k", 256), "\xff"} {
			s.post(t, good, "Idempotency-Key", key).want(t, 400, "INVALID_REQUEST")
		}
		r := s.post(t, good, "Idempotency-Key", "a", "Idempotency-Key", "b")
		r.want(t, 400, "INVALID_REQUEST")
	})

	t.Run("a product is counted alone and in a bundle", func(t *testing.T) {
		r := s.post(t, s.order("kopi", 5, "duo", 3))
		r.wantRefusal(t, "409 OUT_OF_STOCK items[0].quantity,items[1].quantity")
	})

	t.Run("nothing is written", func(t *testing.T) {
		for _, table := range []string{
			"orders",
			"order_history",
			"idempotency_keys",
			"events",
			"deliveries",
		} {
			if n := scalar[int](t, s.db, "SELECT count(*) FROM "+table); n != 0 {
				t.Errorf("%d rows in %s", n, table)
			}
		}
		if got := s.stock(t, "kopi"); got != 10 {
			t.Errorf("stock %d, want 10", got)
		}
	})
}

// keysText is an object of n keys.
func keysText(n int) string {
	fields := map[string]string{}
	for i := range n {
		fields[strconv.Itoa(i)] = `"x"`
	}
	return objectText(fields)
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

func TestBodiesAtTheBounds(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	good := s.orderBody()

	for _, c := range readCases(t, "testdata/good-bodies.txt") {
		t.Run(c.name, func(t *testing.T) {
			body := s.orderBody(c.columns[1:]...)
			s.post(t, body).want(t, 201, "")
		})
	}

	t.Run("a body of 64 KiB is accepted", func(t *testing.T) {
		body := good + strings.Repeat(" ", 64<<10-len(good))
		s.post(t, body).want(t, 201, "")
	})

	t.Run("JSON is read whatever its type", func(t *testing.T) {
		for _, contentType := range contentTypes {
			s.post(t, good, "Content-Type", contentType).want(t, 201, "")
		}
	})

	t.Run("an Idempotency-Key of 255 characters is accepted", func(t *testing.T) {
		r := s.post(t, good, "Idempotency-Key", strings.Repeat("é", 255))
		r.want(t, 201, "")
	})
}

func TestBadQueries(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)

	s.refuseAll(t, "testdata/bad-queries.txt", map[string]string{
		"order": s.create(t, "teh", 1),
	})
}

func TestOrderFilters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01T00:00:00Z
		s := newBubbleServer(t)

		names := map[string]string{} // of the orders, by id
		ids := map[string]string{}
		create := func(name string) {
			id := s.create(t, "teh", 1)
			names[id] = name
			ids[name] = id
			ids[strings.ToUpper(name)] = strings.ToUpper(id)
		}

		time.Sleep(24*time.Hour - time.Millisecond)
		create("a")
		time.Sleep(time.Millisecond)
		create("b")
		time.Sleep(time.Millisecond)
		create("c")
		time.Sleep(24*time.Hour - 2*time.Millisecond)
		create("d")

		for _, c := range readCases(t, "testdata/order-filters.txt") {
			query := os.Expand(c.column(0), func(name string) string { return ids[name] })
			r := s.get(t, "/v1/orders?"+query)

			got := ""
			for _, o := range r.list("orders") {
				got += names[o["id"].(string)]
			}
			if r.at("has_more") == "true" {
				got += "+"
			}
			if got == "" {
				got = "none"
			}
			if want := c.column(1); got != want {
				t.Errorf("%s: %s, want %s", c.name, got, want)
			}
		}
	})
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/times.txt") {
		t.Run(c.name, func(t *testing.T) {
			text := c.column(0)
			low, okLow := parseTime(text, false)
			high, okHigh := parseTime(text, true)

			accepted := c.heading == "accepted"
			if okLow != accepted || okHigh != accepted {
				t.Fatalf("accepted as the bounds: %t and %t, want %t", okLow, okHigh, accepted)
			}
			if !accepted {
				return
			}
			if want := c.column(1); low.String() != want {
				t.Errorf("as lower bound %s, want %s", low, want)
			}
			if want := c.column(2); high.String() != want {
				t.Errorf("as upper bound %s, want %s", high, want)
			}
		})
	}
}

// FuzzNewOrder checks that a body is refused in words or accepted within the bounds, and that an accepted
// order is the same when it is written again.
func FuzzNewOrder(f *testing.F) {
	const id = "0190f5a0-0000-7000-8000-000000000001"
	s := &testServer{ids: map[string]string{
		"teh":         id,
		"kopi":        id,
		"mahal":       id,
		"duo":         id,
		"draf":        id,
		"bundle:draf": id,
	}}
	body := s.order("duo", 3, "teh", 10_000)
	body["external_id"] = "é"
	body["return_url"] = "https://a.id/?b=c&d"
	f.Add(mustJSON(body))
	for _, file := range []string{"testdata/good-bodies.txt", "testdata/bad-bodies.txt"} {
		for _, c := range readCases(f, file) {
			f.Add([]byte(s.orderBody(c.columns[1:]...)))
		}
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := readNewOrder(body)
		if err != nil {
			checkRefusal(t, err, codeInvalidRequest, codeValidationFailed)
			return
		}

		if !json.Valid(body) {
			t.Errorf("%q is accepted", body)
		}
		if len(in.Items) < 1 || len(in.Items) > 100 {
			t.Errorf("%d items", len(in.Items))
		}
		for _, item := range in.Items {
			if item.Quantity < 1 || item.Quantity > 10_000 {
				t.Errorf("quantity %d", item.Quantity)
			}
			if item.ID == "" {
				t.Error("an item without id")
			}
		}
		if in.Buyer.Name == "" {
			t.Error("a buyer without name")
		}
		if in.Buyer.Email == "" && in.Buyer.Phone == "" {
			t.Error("a buyer without e-mail address and phone number")
		}

		again, err := readNewOrder(writeNewOrder(in))
		must(t, err)
		if got, want := fmt.Sprint(again), fmt.Sprint(in); got != want {
			t.Errorf("%q is %s, and written again %s", body, want, got)
		}
	})
}

// FuzzParseForm compares what is read with what encoding/json reads.
func FuzzParseForm(f *testing.F) {
	for _, body := range []string{
		`{"a":[1,-2.5e+3,{"b":null,"c":true}],"d":"","e":false,"f":{},"g":[]}`,
		`{"a":"\u00e9\ud83d\ude00\ud800\n\"\\","\u0061b":"é"}`,
		" {\t\"a\"\r:\n1 , \"b\" : [ 1 , 2 ] } ",
		`{"a":1,"a":2}`, `{"a":1 "b":2}`, `{"a":1,}`, `{,"a":1}`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a":[1 2]}`,
		`{"a"}`, `{"a":}`, `{"a" 1}`, `{a:1}`, `{"a":1]`, `["a":1]`, `{"a":1}}`, `{"a":1} x`, "{\"a\":1}\x00", "\x00",
		`{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"b`, `{"a":"b\`, "{\"a\":\"\x1f\"}", "{\"a\":\"\x7f\"}", "{\"a\":\"\xff\"}",
		`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":-}`, `{"a":+1}`, `{"a":1e}`, `{"a":nul}`, `{"a":nullx}`, `{"a":True}`,
		"{\"a\":1\v}", "{\"a\":\u00a01}", "\ufeff{}", "", "1", "null", `"a"`, "[]", "{", "[",
	} {
		f.Add([]byte(body))
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		form, err := parseForm(body)
		if !utf8.Valid(body) || !json.Valid(body) {
			if err == nil {
				t.Fatalf("%q is accepted", body)
			}
			checkRefusal(t, err, codeInvalidRequest)
			return
		}
		if err == errInvalidJSON {
			t.Fatalf("%q is JSON and refused as none", body)
		}

		var want any
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		must(t, decoder.Decode(&want))
		object, isObject := want.(map[string]any)
		refused := !isObject || levels(want) > maxDepth || keysIn(body) > keysOf(want)
		if refused != (err != nil) {
			t.Fatalf("%q: %v", body, err)
		}
		if err == nil && !reflect.DeepEqual(form.fields, object) {
			t.Errorf("%q is read as %v, want %v", body, form.fields, object)
		}
	})
}

// members are the values in a list or an object.
func members(value any) []any {
	switch value := value.(type) {
	case []any:
		return value
	case map[string]any:
		return slices.Collect(maps.Values(value))
	}
	return nil
}

// levels is how deeply the lists and objects of a value are nested.
func levels(value any) int {
	deepest := 0
	for _, v := range members(value) {
		deepest = max(deepest, levels(v))
	}
	switch value.(type) {
	case []any, map[string]any:
		return deepest + 1
	}
	return 0
}

// keysOf counts the keys of all objects in a value.
func keysOf(value any) int {
	n := 0
	if object, ok := value.(map[string]any); ok {
		n = len(object)
	}
	for _, v := range members(value) {
		n += keysOf(v)
	}
	return n
}

// keysIn counts the keys in a JSON text: outside of its strings, each has a colon.
func keysIn(body []byte) int {
	return bytes.Count(jsonString.ReplaceAll(body, nil), []byte(":"))
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// writeNewOrder writes the body that readNewOrder reads.
func writeNewOrder(in NewOrder) []byte {
	var items []any
	for _, item := range in.Items {
		items = append(items, map[string]any{
			"type":                    item.Kind,
			string(item.Kind) + "_id": item.ID,
			"quantity":                item.Quantity,
		})
	}

	body := map[string]any{"items": items, "buyer": in.Buyer}
	if in.PaymentMethod != "" {
		body["payment_method"] = in.PaymentMethod
	}
	if in.ExternalID != "" {
		body["external_id"] = in.ExternalID
	}
	if in.ReturnURL != "" {
		body["return_url"] = in.ReturnURL
	}
	body["shipping_fee"] = in.ShippingFee
	body["discount"] = in.Discount
	body["note"] = in.Note
	if in.Metadata != nil {
		body["metadata"] = in.Metadata
	}
	return mustJSON(body)
}

// checkRefusal ends the test unless err has one of the codes and a message that can be sent.
func checkRefusal(t *testing.T, err error, codes ...errorCode) {
	t.Helper()
	refusal, ok := err.(*APIError)
	if !ok {
		t.Fatalf("%v is no refusal", err)
	}
	if !slices.Contains(codes, refusal.Code) {
		t.Fatalf("code %s: %v", refusal.Code.name, err)
	}

	var sent replyError
	must(t, json.Unmarshal(mustJSON(refusal), &sent))
	if sent.Message == "" {
		t.Fatalf("code %s has no message", sent.Code)
	}
}

// FuzzQuery checks that a query is refused in words or accepted, and that an accepted one has the same answer
// when it is written again.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"",
		"limit=50&offset=0",
		"status=paid&created_at_min=2026-01-01&created_at_max=2026-01-31T10:00:00+07:00",
		"external_id=%E2%82%AC",
		"starting_after=x",
		"limit=1&limit=2",
		"limit",
		"a;b",
		"%zz",
		"limit=%31",
		"created_at_min=9999-12-31T23:59:59.999-14:00",
		"created_at_max=0000-01-01",
		"&&=&",
	} {
		f.Add(seed)
	}

	db, err := openDB(filepath.Join(f.TempDir(), "fuzz.db"), true)
	must(f, err)
	f.Cleanup(func() { db.Close() })
	s := newServer(db, testSettings, newServiceLog(io.Discard, false, slog.LevelError))
	list := func(query string) (string, error) {
		r := &http.Request{URL: &url.URL{RawQuery: query}}
		a, err := s.listOrders(r, Store{ID: "x"}, RequestKey{})
		return string(a.data), err
	}

	f.Fuzz(func(t *testing.T, query string) {
		data, err := list(query)
		if err != nil {
			checkRefusal(t, err, codeInvalidRequest)
			return
		}
		if !json.Valid([]byte(data)) {
			t.Fatalf("%q is answered %s", query, data)
		}

		values, err := url.ParseQuery(query)
		must(t, err)
		again, err := list(values.Encode())
		must(t, err)
		if again != data {
			t.Fatalf("%q is answered %s, and written again %s", query, data, again)
		}
	})
}

// FuzzTime checks that a text is a time as both bounds or as none, that the bounds belong together, and that
// a time is the same when it is written again.
func FuzzTime(f *testing.F) {
	for _, seed := range []string{
		"2026-01-31",
		"2026-01-31T10:00",
		"2026-01-31T10:00:30.123456789+07:00",
		"2026-01-31T10:00:00 0700",
		"0000-01-01",
		"9999-12-31T23:59:59,9999-14",
		"2024-02-29T24:00Z",
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		low, okLow := parseTime(text, false)
		high, okHigh := parseTime(text, true)
		if okLow != okHigh {
			t.Fatalf("%q is accepted as one bound only", text)
		}
		if !okLow {
			return
		}

		// Between two milliseconds the lower bound is the later one.
		const day = 24 * 60 * 60 * 1000
		if high < low-1 || high >= low+day {
			t.Fatalf("%q: from %s to %s", text, low, high)
		}

		for _, at := range []Time{low, high} {
			if year := at.Time().Year(); year < 0 || year > 9999 {
				continue // the time zone led out of the years that can be written
			}
			for _, end := range []bool{false, true} {
				again, ok := parseTime(at.String(), end)
				if !ok || again != at {
					t.Fatalf("%q is %s, and that is %s (%t)", text, at, again, ok)
				}
			}
		}
	})
}
