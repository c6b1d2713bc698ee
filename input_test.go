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
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"unicode/utf8"
)

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
			f.Add([]byte(orderText(s.ids, c.columns[1:]...)))
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
