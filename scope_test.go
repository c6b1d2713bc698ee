//go:build cgo

package main

import (
	"strings"
	"testing"
	"time"
)

// keyOf adds a key to the server's store and returns a client that has it.
func (s *testServer) keyFor(t *testing.T, k NewKey) *testServer {
	t.Helper()
	key, hash := newToken("so_")
	_, err := s.db.AddKey(t.Context(), s.storeID, k, hash)
	must(t, err)
	return s.as(key)
}

// TestReadingStartsNoSession reads an order that needs a session at the gateway.
func TestReadingStartsNoSession(t *testing.T) {
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		reader := l.keyFor(t, NewKey{Name: "k", Scope: ScopeRead})
		path := "/v1/orders/" + order

		got := reader.get(t, path).at("payment_session.status")
		l.want("before a session was started", got, "none")
		l.want("requests to the gateway", len(l.mid.requests), 0)

		l.get(order)
		got = reader.get(t, path).at("payment_session.status")
		l.want("after that", got, "active")
	})
}

func TestKeysEnd(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	// An order is read together with the key.
	paths := []string{"/v1/store", "/v1/orders/" + s.create(t, "teh", 1)}
	ending := s.keyFor(t, NewKey{Name: "k", Scope: ScopeRead, Lasts: time.Hour})
	revoked := s.keyFor(t, NewKey{Name: "revoked", Scope: ScopeRead})
	for _, path := range paths {
		ending.get(t, path)
		revoked.get(t, path)
	}

	s.exec(t, "UPDATE api_keys SET expires_at = ? WHERE expires_at IS NOT NULL", s.db.Now())
	s.exec(t, "UPDATE api_keys SET revoked_at = ? WHERE name = 'revoked'", s.db.Now())
	for _, path := range paths {
		const refusal = "401 UNAUTHORIZED Missing or invalid Authorization header."
		ending.do(t, "GET", path, nil).wantRefusal(t, refusal)
		revoked.do(t, "GET", path, nil).wantRefusal(t, refusal)
	}

	t.Run("a key that has ended makes room for another", func(t *testing.T) {
		live := scalar[int](t, s.db, "SELECT count(*) FROM api_keys WHERE coalesce(expires_at, revoked_at) IS NULL")
		for range maxKeys - live {
			s.keyFor(t, NewKey{Name: "k", Scope: ScopeRead})
		}
		_, err := s.db.AddKey(t.Context(), s.storeID, NewKey{Name: "k", Scope: ScopeRead}, [32]byte{})
		if !isLimit(err) {
			t.Errorf("one more than %d: %v", maxKeys, err)
		}
	})
}

func TestStoreInTheAPI(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.keyFor(t, NewKey{Name: "situs", Scope: ScopeRead, Lasts: time.Hour}).get(t, "/v1/store").
		wantData(t, map[string]string{
			"store.id":       s.storeID,
			"store.name":     "kopi-kita",
			"store.plan":     "growth",
			"store.currency": "IDR",
			"key.name":       "situs",
			"key.scope":      "read",
			"key.expires_at": scalar[Time](t, s.db, "SELECT max(expires_at) FROM api_keys").String(),
		})

	if got := s.get(t, "/v1/store").at("key.expires_at"); got != "<nil>" {
		t.Errorf("a key without an end has %s", got)
	}
}

func TestOwnersActsInTheAPI(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	m := s.keyFor(t, NewKey{Name: "bank feed", Scope: ScopeManage})
	act := func(order, act string, body any) reply {
		t.Helper()
		return m.do(t, "POST", "/v1/orders/"+order+"/"+act, body)
	}

	t.Run("approve and refund", func(t *testing.T) {
		id := s.create(t, "teh", 1)
		r := act(strings.ToUpper(id), "approve", object{"reason": "BCA 21/11, Rp50.000"}).want(t, 200, "")
		r.wantData(t, map[string]string{"order.id": id, "order.status": "paid"})
		if got, want := r.at("order"), s.get(t, "/v1/orders/"+id).at("order"); got != want {
			t.Errorf("answered %s, want %s", got, want)
		}

		act(id, "refund", nil).want(t, 200, "").wantData(t, map[string]string{"order.status": "refunded"})
		if got := s.events(t, id); got != "orderCreated orderPaid orderRefunded" {
			t.Errorf("events: %s", got)
		}

		const want = `{"code":"by_api","text":"BCA 21/11, Rp50.000"} {"code":"by_api"}`
		got := scalar[string](t, s.db, `
			SELECT group_concat(note, ' ')
			FROM   (SELECT * FROM order_history WHERE order_row = ? ORDER BY position)`, rowOf(id))
		if got != want {
			t.Errorf("history: %s, want %s", got, want)
		}
	})

	t.Run("cancel releases the stock", func(t *testing.T) {
		id := s.create(t, "kopi", 3)
		act(id, "cancel", "").want(t, 200, "").wantData(t, map[string]string{"order.status": "failed"})
		if got := s.stock(t, "kopi"); got != 10 {
			t.Errorf("stock %d, want 10", got)
		}
	})

	id := s.create(t, "teh", 1)
	t.Run("an act that the state forbids", func(t *testing.T) {
		act(id, "refund", nil).wantRefusal(t, `409 ORDER_STATE The order is pending: "refund" is possible only while it is paid.`)
	})

	t.Run("a body that is wrong", func(t *testing.T) {
		act(id, "cancel", "reason").wantRefusal(t, "400 INVALID_REQUEST Invalid JSON body.")
		act(id, "cancel", object{"reason": ""}).wantRefusal(t, "422 VALIDATION_FAILED reason")
		act(id, "cancel", object{"reason": strings.Repeat("x", 201)}).wantRefusal(t, "422 VALIDATION_FAILED reason")
		act(id, "cancel", object{"why": "x"}).wantRefusal(t, "422 VALIDATION_FAILED why")
		m.do(t, "POST", "/v1/orders/"+id+"/cancel?now=1", nil).want(t, 400, "INVALID_REQUEST")
	})

	t.Run("another store's order is not found", func(t *testing.T) {
		otherID, _ := s.addStore(t, "lain", "growth")
		other := *s
		other.storeID = otherID
		stranger := other.keyFor(t, NewKey{Name: "k", Scope: ScopeManage})
		for _, path := range []string{"approve", "cancel", "refund"} {
			stranger.do(t, "POST", "/v1/orders/"+id+"/"+path, nil).want(t, 404, "NOT_FOUND")
		}
		act("x", "approve", nil).want(t, 404, "NOT_FOUND")
	})
}

func TestCatalogInTheAPI(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	m := s.keyFor(t, NewKey{Name: "k", Scope: ScopeManage})
	put := func(body any) reply { return m.do(t, "PUT", "/v1/catalog", body) }

	t.Run("it changes what it names, and keeps the rest", func(t *testing.T) {
		r := put(`{"products": [{"slug": "kopi", "title": "Kopi Gayo", "price": 90000}]}`).want(t, 200, "")
		r.wantData(t, map[string]string{"products": "1", "bundles": "0", "payment_methods": "0"})
		if got := s.stock(t, "kopi"); got != 10 {
			t.Errorf("stock %d, want 10", got)
		}
		r = s.get(t, "/v1/products?q=kopi")
		r.wantData(t, map[string]string{"products.0.price": "90000", "products.0.description": "Arabika."})
	})

	t.Run("all of it or nothing", func(t *testing.T) {
		put(`{
			"products": [{"slug": "baru", "title": "Baru", "price": 1}],
			"bundles":  [{"slug": "b", "title": "B", "price": 1, "items": [{"slug": "tidak-ada", "quantity": 1}]}]
		}`).wantRefusal(t, "422 VALIDATION_FAILED bundles[0].items[0].slug")
		put(`{"products": [{"slug": "baru", "title": "", "price": -1}]}`).
			wantRefusal(t, "422 VALIDATION_FAILED products[0].title,products[0].price")
		if n := scalar[int](t, s.db, "SELECT count(*) FROM products WHERE slug = 'baru'"); n != 0 {
			t.Error("a product of a refused catalog was added")
		}
	})

	t.Run("what is no catalog", func(t *testing.T) {
		put("{").wantRefusal(t, "400 INVALID_REQUEST Invalid JSON body.")
		put("[]").wantRefusal(t, "422 VALIDATION_FAILED The body must be a JSON object.")
	})

	t.Run("1 MiB is taken, and not a byte more", func(t *testing.T) {
		put("{}"+strings.Repeat(" ", 1<<20-2)).want(t, 200, "")
		put("{}"+strings.Repeat(" ", 1<<20-1)).wantRefusal(t,
			"413 PAYLOAD_TOO_LARGE The body is larger than 1024 KiB.")
	})
}
