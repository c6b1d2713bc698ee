//go:build cgo

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// wantWaiting checks how many deliveries wait for their first attempt.
func (s *testServer) wantWaiting(t *testing.T, want int) {
	t.Helper()
	n := scalar[int](t, s.db, "SELECT count(*) FROM deliveries WHERE status = 'pending' AND attempt = 0")
	if n != want {
		t.Errorf("%d deliveries wait, want %d", n, want)
	}
}

// placeAndFail creates an order whose event could not be delivered, after a ping that could not either.
func (s *testServer) placeAndFail(t *testing.T, endpoint string) Order {
	t.Helper()
	must(t, s.db.Ping(t.Context(), s.storeID, endpoint))
	o := s.place(t, s.storeID, "Siti", "", 1)
	s.exec(t, `
		UPDATE deliveries
		SET    status = 'failed', next_at = NULL, attempt = 10,
		       answer_status = 500, answer = '<b>rusak</b>'`)
	return o
}

// deliveryOf returns the id of an order's only delivery.
func (s *testServer) deliveryOf(t *testing.T, o Order) string {
	t.Helper()
	return scalar[string](t, s.db, `
		SELECT d.id
		FROM   deliveries d
		JOIN   events v ON v.row = d.event_row
		WHERE  v.order_row = (SELECT row FROM orders WHERE id = ?)`, o.ID)
}

func TestDashboardDeliveries(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	endpoint := s.endpointOf(t, s.storeID, "https://toko.example/hook")
	path := "/dashboard/endpoints/" + endpoint
	o := s.placeAndFail(t, endpoint)

	t.Run("the endpoint's page shows all, with the answers", func(t *testing.T) {
		b.sees(t, path,
			"Gagal",
			"<b>rusak</b>",
			"percobaan ke-10")
	})

	t.Run("answers are escaped", func(t *testing.T) {
		page := b.get(t, path)
		if strings.Contains(page.body, "<b>rusak") {
			t.Error("an answer is there as HTML")
		}
	})

	t.Run("the order's page shows its own", func(t *testing.T) {
		b.sees(t, "/dashboard/orders/"+o.ID,
			"orderCreated",
			"500",
			"https://toko.example/hook")
	})

	resend := "/dashboard/deliveries/" + s.deliveryOf(t, o) + "/resend"
	t.Run("the owner sends one again", func(t *testing.T) {
		back := "/dashboard/orders/" + o.ID
		b.submits(t, resend, back+"?done=resend", "back", back)
		s.wantWaiting(t, 1)
	})

	t.Run("the way back never leads to another site", func(t *testing.T) {
		b.submits(t, resend, "/dashboard/developers?done=resend", "back", "https://evil.example")
		s.wantWaiting(t, 1)
	})

	t.Run("they send all again since a time", func(t *testing.T) {
		b.resendSince(t, path, time.Now().Add(time.Hour))
		s.wantWaiting(t, 1)
		b.resendSince(t, path, time.Now().Add(-time.Hour))
		s.wantWaiting(t, 2)
	})
}

// resendSince posts the form of an endpoint's page, which takes a time in WIB.
func (b *browser) resendSince(t *testing.T, path string, since time.Time) {
	t.Helper()
	text := since.In(wib).Format("2006-01-02T15:04")
	b.submits(t, path+"/resend", path+"?done=resend", "since", text)
}

func TestDashboardOlderDeliveries(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	endpoint := s.endpointOf(t, s.storeID, "https://toko.example/hook")
	s.place(t, s.storeID, "Siti", "", 1)
	for range 30 {
		must(t, s.db.Ping(t.Context(), s.storeID, endpoint))
	}

	page := b.get(t, "/dashboard/endpoints/"+endpoint)
	page.lacks(t, "orderCreated")
	link := regexp.MustCompile(`href="(/dashboard/endpoints/[^"]+\?before=[^"]+)"`)
	older := link.FindStringSubmatch(page.body)
	if older == nil {
		t.Fatal("no link to older deliveries")
	}
	b.sees(t, older[1], "orderCreated")
}
