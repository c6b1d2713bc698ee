package main

// These tests are about the requests that change an order, the catalog and the endpoints of webhooks.

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestBadChanges sends the requests of testdata/bad-changes.txt: nothing comes of any.
func TestBadChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	manage := as(w.shop.keys["manage"])
	words := map[string]string{"teh": w.shop.ids["teh"], "keys20": orderText(nil, "$keys20")}
	for _, name := range []string{"order", "paid", "sent"} {
		body := w.shop.body("teh", 1)
		body["metadata"] = fields{"a": "b"}
		id := w.post(body).want(t, 201, "").at("order.id")
		words[name] = id
		if name != "order" {
			w.decide(t, id, "approve")
		}
		if name == "sent" {
			w.do(t, "POST", "/v1/orders/"+id+"/ship", fields{"carrier": "JNE"}, manage...).want(t, 200, "")
		}
	}
	before := w.get(t, "/v1/events").list("events")

	w.refuseAll(t, "testdata/bad-changes.txt", words, manage...)
	if after := w.get(t, "/v1/events").list("events"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("refused requests have events: %v", after[len(before):])
	}
	w.get(t, "/v1/webhooks", manage...).has(t, "webhooks []")
	w.get(t, "/v1/products?slug=kopi").has(t, "products.0.stock 10",
		"products.0.image_url https://img.example.id/kopi.jpg")
}

// TestCatalogBothWays reads a catalog in pages, and sends it back: that changes nothing.
func TestCatalogBothWays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	picture := strings.Repeat("0", 64)
	w.sql("INSERT INTO pictures (hash, jpeg) VALUES (?, x'00')", picture)
	w.sql("UPDATE products SET image_url = ? WHERE slug = 'teh'", "/pictures/"+picture)
	read := func() (whole fields) {
		whole = fields{"has_more": false}
		for kind, key := range map[string]string{"product": "id", "bundle": "id", "payment_method": "code"} {
			whole[kind+"s"] = w.allEntries(t, kind, key)
		}
		return whole
	}

	// Everything is there: drafts, and methods that are off or without their gateway's key.
	before := read()
	if got := len(before["products"].([]any)); got != 7 {
		t.Errorf("there are %d products", got)
	}
	text := fmt.Sprint(before)
	for _, part := range []string{
		"published:false", "enabled:false", "code:link", "slug:draf", "stock:10", "stock:<nil>",
		"image_url:https://shop.test/pictures/" + picture, "items:[map[quantity:2 slug:kopi] map[quantity:1 slug:teh]]",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the catalog lacks %s: %s", part, text)
		}
	}

	tag := w.get(t, "/v1/products").Header.Get("ETag")
	back := w.putCatalog(before).want(t, 200, "")
	back.has(t, "products 7", "bundles 2", "payment_methods 13", "entries.0.result unchanged")
	if strings.Count(string(back.Body), `"unchanged"`) != 22 {
		t.Errorf("what is sent back is %s", back.Body)
	}
	if after := fmt.Sprint(read()); after != text {
		t.Errorf("the catalog was\n%s\nand is\n%s", text, after)
	}
	if got := w.get(t, "/v1/products").Header.Get("ETag"); got != tag {
		t.Errorf("the tag of the products was %s and is %s", tag, got)
	}

	// The answer says what became of each entry.
	w.putCatalog(`{
		"products":[{"slug":"kopi","title":"Kopi Gayo","price":85000,"stock":10},
			{"slug":"baru","title":"Baru","price":1},{"slug":"teh","title":"Teh","price":50000}],
		"bundles":[{"slug":"duo","title":"Duo","price":200000,
			"items":[{"slug":"teh","quantity":1},{"slug":"kopi","quantity":2}]},
			{"slug":"draf","title":"Draf","price":1,"items":[{"slug":"teh","quantity":1}]}],
		"payment_methods":[{"code":"cod","name":"COD","provider":"manual","kind":"cash","accounts":[]},
			{"code":"sandbox","name":"Percobaan","provider":"sandbox","fee":0}]}`).want(t, 200, "").has(t,
		"entries.0.result unchanged", "entries.0.id "+w.shop.ids["kopi"], "entries.0.type product",
		"entries.1.result created", "entries.1.slug baru", "entries.2.result changed",
		"entries.3.result changed", "entries.3.type bundle", "entries.4.result unchanged",
		"entries.5.result unchanged", "entries.5.code cod", "entries.5.id <nil>", "entries.6.result changed")

	// What was removed is not listed.
	newPlayer(t, w).play("owner open product baru, press remove")
	if strings.Contains(fmt.Sprint(read()), "slug:baru") {
		t.Error("a removed product is listed")
	}
}

// TestTags sends If-None-Match as RFC 9110, 13.1.2, allows it, and otherwise.
func TestTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tag := w.get(t, "/v1/products").Header.Get("ETag")
	bare := strings.Trim(tag, `"`)
	for header, want := range map[string]int{
		"*":                            304,
		" * ":                          304,
		tag:                            304,
		"W/" + tag:                     304,
		`"a,b", ` + tag:                304,
		`,, "a"` + "\t,W/" + tag + `,`: 304,
		`"a"`:                          200,
		bare:                           200,
		`"` + bare:                     200,
		"w/" + tag:                     200,
		`"a` + bare + `"`:              200,
		`"*"`:                          200,
		"*, " + tag:                    200,
	} {
		if r := w.do(t, "GET", "/v1/products", nil, "If-None-Match", header); r.Status != want {
			t.Errorf("If-None-Match: %s is answered %d, want %d", header, r.Status, want)
		}
	}
	w.do(t, "GET", "/v1/products", nil, "If-None-Match", `"a"`, "If-None-Match", tag).want(t, 304, "")
}

// TestOwnPictures are sent back as they were read, on a local address too. Others have to be https.
func TestOwnPictures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "-public-url", "http://shop.test")
	manage := as(w.shop.keys["manage"])
	own := "http://shop.test/pictures/" + strings.Repeat("0", 64)
	w.sql("INSERT INTO pictures (hash, jpeg) VALUES (?, x'00')", strings.Repeat("0", 64))
	put := func(address string) response {
		return w.putCatalog(fields{"payment_methods": []any{
			fields{"code": "kode", "name": "QRIS toko", "provider": "manual", "kind": "qris", "image_url": address}}})
	}
	put(own).want(t, 200, "").has(t, "entries.0.result changed")
	w.get(t, "/v1/catalog?type=payment_method&limit=1&starting_after=dana_toko", manage...).
		has(t, "payment_methods.0.image_url "+own)
	put(own).want(t, 200, "").has(t, "entries.0.result unchanged")
	for _, address := range []string{"http://img.example.id/qris.png", strings.Replace(own, "shop", "other", 1)} {
		put(address).wantRefusal(t, "422 VALIDATION_FAILED payment_methods[0].image_url")
	}
}

// allEntries reads the entries of one kind, two at a time. The key names an entry.
func (w *world) allEntries(t *testing.T, kind, key string) (all []any) {
	t.Helper()
	for after := ""; ; {
		r := w.get(t, "/v1/catalog?limit=2&type="+kind+after, as(w.shop.keys["manage"])...)
		for _, e := range r.list(kind + "s") {
			all = append(all, e)
			after = "&starting_after=" + textOf(e, key)
		}
		if r.at("has_more") != "true" {
			return all
		}
	}
}

// TestLargeCatalog reads a page that is sent back in one request.
func TestLargeCatalog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	manage := as(w.shop.keys["manage"])
	put := func(body any) { w.putCatalog(body).want(t, 200, "") }
	for half := range 2 {
		var products []any
		for i := range 60 {
			products = append(products, fields{"slug": fmt.Sprintf("p-%d-%d", half, i), "title": "P", "price": 1,
				"description": strings.Repeat("é", 5000)})
		}
		put(fields{"products": products})
	}
	page := w.get(t, "/v1/catalog?type=product&limit=500", manage...)
	if n := len(page.list("products")); n < 80 || n > 100 || page.at("has_more") != "true" || len(page.Body) > 901_000 {
		t.Errorf("a page has %d products in %d bytes", n, len(page.Body))
	}
	put(page.Data)
	last := page.list("products")[len(page.list("products"))-1]
	rest := w.get(t, "/v1/catalog?type=product&limit=500&starting_after="+textOf(last, "id"), manage...)
	if n := len(page.list("products")) + len(rest.list("products")); n != 127 || rest.at("has_more") != "false" {
		t.Errorf("both pages have %d products", n)
	}
}

// TestStockChange counts what is sold elsewhere while orders take from the same stock: nothing is lost.
func TestStockChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	change := func(n int, key string) {
		body := fmt.Sprintf(`{"products":[{"slug":"kopi","title":"Kopi Gayo","price":85000,"stock_change":%d}]}`, n)
		headers := append(as(w.shop.keys["manage"]), "Idempotency-Key", key)
		w.do(t, "PUT", "/v1/catalog", body, headers...).want(t, 200, "")
	}
	change(8, "delivered")
	var clients sync.WaitGroup
	for i := range 9 {
		clients.Go(func() { change(-1, fmt.Sprint("till ", i)) })
		clients.Go(func() { w.create(t, "kopi", 1) })
	}
	clients.Wait()
	w.get(t, "/v1/products?slug=kopi").has(t, "products.0.stock 0")
}
