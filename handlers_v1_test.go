package main

// These tests are about the requests that change an order, the catalog and the endpoints of webhooks.

import (
	"fmt"
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
		id := w.do(t, "POST", "/v1/orders", body).want(t, 201, "").at("order.id")
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
	w.get(t, "/v1/products?slug=kopi").has(t, "products.0.stock 10", "products.0.image_url https://img.example.id/kopi.jpg")
}
