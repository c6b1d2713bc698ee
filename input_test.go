//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
