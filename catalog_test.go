package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestCatalogQueries is about testdata/catalog-queries.txt.
func TestCatalogQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range readCases(t, "testdata/catalog-queries.txt") {
		r := w.get(t, c.column(0), as(w.other.keys["read"])...)
		if got := found(r, "slug") + found(r, "code"); got != c.column(1) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.column(1))
		}
	}
}

// found are the names of what a page of the catalog lists.
func found(r response, name string) string {
	var names []string
	for _, list := range []string{"products", "bundles", "payment_methods"} {
		for _, entry := range r.list(list) {
			if entry[name] != nil {
				names = append(names, textOf(entry, name))
			}
		}
	}
	if r.at("has_more") == "true" && len(names) > 0 {
		names = append(names, "and more")
	}
	return strings.Join(names, " ")
}

// TestPutCatalog refuses catalogs that are too large, or that make too much together with what is there.
func TestPutCatalog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	put := func(body any) response {
		return w.putCatalog(body)
	}
	var methods, products []any
	for i := range 98 {
		methods = append(methods, fields{"code": fmt.Sprint("m", i), "name": "M", "provider": "manual"})
	}
	put(fields{"payment_methods": methods}).wantRefusal(t, "422 VALIDATION_FAILED payment_methods")
	put("{}"+strings.Repeat(" ", 1<<20-2)).want(t, 200, "")
	put("{}"+strings.Repeat(" ", 1<<20-1)).wantRefusal(t, "413 PAYLOAD_TOO_LARGE The body is larger than 1024 KiB.")
	for i := range 2001 {
		products = append(products, fields{"slug": fmt.Sprint("m-", i), "title": "M", "price": 1})
	}
	put(fields{"products": products}).want(t, 422, "VALIDATION_FAILED")
	put(fields{"products": products[1:]}).want(t, 200, "")
}

// TestETag reads the catalog again when it has changed, and what else is sold does not matter.
func TestETag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tag := func() string { return w.get(t, "/v1/products").Header.Get("ETag") }
	first := tag()
	w.do(t, "GET", "/v1/products", nil, "If-None-Match", `"x", W/`+first).want(t, 304, "")
	w.create(t, "teh", 1) // its stock is unlimited
	w.orderOfOther("kopi", 1).want(t, 201, "")
	if tag() != first {
		t.Error("the catalog has changed, though no stock of its has")
	}
	w.create(t, "kopi", 1)
	if r := w.do(t, "GET", "/v1/products", nil, "If-None-Match", first); r.Status != 200 || tag() == first {
		t.Errorf("after a sale it is answered %d", r.Status)
	}
}
