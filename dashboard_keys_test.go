//go:build cgo

package main

import (
	"regexp"
	"testing"
	"time"
)

func TestDashboardKeys(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	const path = "/dashboard/developers"

	t.Run("without keys it says how to begin", func(t *testing.T) {
		b.sees(t, path,
			"Belum ada kunci",
			"Belum ada webhook",
			"growth")
	})

	created := b.creates(t, "/dashboard/keys", "name", "situs toko", "scope", "write")
	key := regexp.MustCompile(`so_[A-Za-z0-9_-]{43}`).FindString(created.body)
	id := scalar[string](t, s.db, "SELECT id FROM api_keys")

	t.Run("a new key is shown with a command that uses it", func(t *testing.T) {
		created.has(t, 200,
			"hanya tampil sekali",
			"situs toko",
			"belum pernah",
			"curl http://shop.test/v1/orders -H 'Authorization: Bearer so_")
	})

	t.Run("it is shown once", func(t *testing.T) {
		b.sees(t, path, "situs toko")
		b.seesNo(t, path, "so_")
	})

	t.Run("it works, and its last use is shown", func(t *testing.T) {
		s.as(key).get(t, "/v1/orders")
		must(t, s.uses.flush(t.Context(), s.db))
		b.seesNo(t, path, "belum pernah")
	})

	revoke := "/dashboard/keys/" + id + "/revoke"
	t.Run("the question does not revoke it", func(t *testing.T) {
		b.sees(t, revoke, "Cabut kunci ini?", "situs toko")
		s.as(key).get(t, "/v1/orders")
	})

	t.Run("a revoked key ends at once", func(t *testing.T) {
		b.submits(t, revoke, path+"?done=revoked")
		s.as(key).do(t, "GET", "/v1/orders", nil).want(t, 401, "UNAUTHORIZED")
		b.sees(t, path+"?done=revoked", "dicabut", "Kunci dicabut")
	})

	t.Run("a key may have a scope and an end", func(t *testing.T) {
		p := b.creates(t, "/dashboard/keys", "name", "pembukuan", "scope", "manage", "days", "30")
		p.has(t, 200, "so_", "semua, termasuk mengubah katalog", "sampai "+date("id", timeOf(time.Now()).Add(30*24*time.Hour), "2 Jan 2006"))
		got := scalar[string](t, s.db, `
			SELECT scope || ' ' || ((expires_at - created_at) / 86400000) FROM api_keys WHERE name = 'pembukuan'`)
		if got != "manage 30" {
			t.Errorf("the key has %s, want manage 30", got)
		}

		b.post(t, "/dashboard/keys", "name", "k", "scope", "all").has(t, 422, "Pilih salah satu: read, write, manage")
		b.post(t, "/dashboard/keys", "name", "k", "scope", "read", "days", "7").has(t, 422, "Pilih salah satu: 30, 90, 365")
		s.exec(t, "UPDATE api_keys SET expires_at = 1 WHERE name = 'pembukuan'")
		b.sees(t, path, "kedaluwarsa")
	})

	t.Run("on the free plan the page says that keys are refused", func(t *testing.T) {
		s.addShop(t, "gratis", "free")
		s.owner(t, "gratis@example.id").sees(t, path, "PLAN_REQUIRED")
	})
}
