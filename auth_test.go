//go:build cgo

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRateLimits(t *testing.T) {
	t.Parallel()
	o := testSettings
	o.rate, o.burst = 1, 3 // one a minute: none comes back while the test runs
	s := newTestServerWith(t, o)
	for left := 2; left >= 0; left-- {
		r := s.do(t, "GET", "/v1/orders", nil).want(t, 200, "")
		if got := r.Header.Get("X-RateLimit-Limit") + " " + r.Header.Get("X-RateLimit-Remaining"); got != fmt.Sprintf("1 %d", left) {
			t.Errorf("limit and remaining %s with %d left", got, left)
		}
		if reset, _ := strconv.Atoi(r.Header.Get("X-RateLimit-Reset")); reset > (3-left)*60 || reset <= (2-left)*60 {
			t.Errorf("reset %d with %d left", reset, left)
		}
	}
	r := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 429, "RATE_LIMITED")
	if wait, _ := strconv.Atoi(r.Header.Get("Retry-After")); r.Error.Message != "Rate limit exceeded." || wait < 1 || wait > 60 || r.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("%s %v", r.Body, r.Header)
	}
	if n := scalar[int](t, s.db, "SELECT count(*) FROM orders"); n != 0 {
		t.Errorf("%d orders made by refused requests", n)
	}
	// Wrong keys are limited by address; a right key from the same address goes on.
	_, other := s.addStore(t, "lain", "scale")
	codes := map[string]int{}
	for range 65 {
		r = s.do(t, "GET", "/v1/orders", nil, "Authorization", "Bearer so_wrong")
		codes[r.Error.Code]++
	}
	if codes["UNAUTHORIZED"] < 60 || codes["RATE_LIMITED"] < 1 || r.Error.Code == "RATE_LIMITED" && r.Header.Get("Retry-After") == "" {
		t.Errorf("wrong keys: %v, last %v", codes, r.Header)
	}
	s.do(t, "GET", "/v1/orders", nil, "Authorization", "Bearer "+other).want(t, 200, "")
}

func TestLimiterRefillsByTheClock(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(300, 60), time.Unix(0, 0)
	for range 60 {
		if !l.take("k", now).ok {
			t.Fatal("refused within the burst")
		}
	}
	if a := l.take("k", now); a.ok || a.retryAfter != 200*time.Millisecond || a.full != 12*time.Second {
		t.Errorf("the 61st: %+v", a)
	}
	if a := l.take("k", now.Add(199*time.Millisecond)); a.ok {
		t.Error("one came back too early")
	}
	if a := l.take("k", now.Add(time.Hour)); !a.ok || a.remaining != 59 {
		t.Errorf("after an hour: %+v", a)
	}
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.trustedProxy = netip.MustParsePrefix("10.0.0.0/8")
	for _, c := range []struct{ remote, forwarded, want string }{
		{"192.0.2.1:5", "", "192.0.2.1"},
		{"192.0.2.1:5", "203.0.113.9", "192.0.2.1"}, // not a trusted proxy's word
		{"10.0.0.1:5", "203.0.113.9", "203.0.113.9"},
		{"10.0.0.1:5", "198.51.100.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"}, // the first one could be made up
		{"10.0.0.1:5", "junk", "10.0.0.1"},
		{"10.0.0.1:5", "", "10.0.0.1"},
		{"[::ffff:10.0.0.1]:5", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := s.clientAddress(r); got != c.want {
			t.Errorf("%s, forwarded %q: %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}

// A signed-out visitor is led to the sign-in page by every path, and what he asked for does not happen.
func TestDashboardSignedOut(t *testing.T) {
	s := newShop(t, "http://shop.test")
	o := s.place(t, s.storeID, "Siti", "", 1)
	b := s.browser()
	for _, path := range []string{"/dashboard", "/dashboard/orders.csv?status=paid", "/dashboard/orders/" + o.ID, "/dashboard/orders/" + o.ID + "/approve",
		"/dashboard/catalog", "/dashboard/catalog/product?slug=kopi", "/dashboard/payments", "/dashboard/developers", "/dashboard/keys/x/revoke",
		"/dashboard/endpoints/x", "/dashboard/endpoints/x/ping", "/dashboard/account", "/dashboard/account/logout"} {
		to := "/dashboard/login?next=" + url.QueryEscape(path)
		if path == "/dashboard" {
			to = "/dashboard/login"
		}
		b.get(t, path).leads(t, to)
	}
	for _, path := range []string{"/dashboard/orders/" + o.ID + "/cancel", "/dashboard/catalog/product", "/dashboard/payments/gateway", "/dashboard/keys",
		"/dashboard/keys/x/revoke", "/dashboard/endpoints", "/dashboard/endpoints/x/remove", "/dashboard/deliveries/x/resend", "/dashboard/account", "/dashboard/logout"} {
		b.post(t, path, "status", "pending", "name", "x").leads(t, "/dashboard/login")
	}
	b.get(t, "/dashboard/nothing").has(t, 404)
	// The way back is kept, and never leads elsewhere.
	b.get(t, "/dashboard/login?next=%2Fdashboard%2Fcatalog").has(t, 200, `name="next" value="/dashboard/catalog"`)
	b.post(t, "/dashboard/login", "email", "kopi-kita@example.id", "password", ownerPassword, "next", "//evil.example").leads(t, "/dashboard")
	s.browser().post(t, "/dashboard/login", "email", " Kopi-Kita@Example.id", "password", ownerPassword, "next", "/dashboard/catalog").leads(t, "/dashboard/catalog")
	b.get(t, "/dashboard/login").leads(t, "/dashboard")
}

func TestDashboardSignIn(t *testing.T) {
	s := newShop(t, "https://shop.test")
	b := s.browser()
	wrong := b.post(t, "/dashboard/login", "email", "kopi-kita@example.id", "password", "wrong")
	wrong.has(t, 422, "E-mail atau kata sandi salah")
	unknown := b.post(t, "/dashboard/login", "email", "nobody@example.id", "password", "wrong")
	if strings.ReplaceAll(unknown.body, "nobody@", "kopi-kita@") != wrong.body || unknown.status != wrong.status {
		t.Error("an unknown e-mail and a wrong password are told apart")
	}
	in := b.post(t, "/dashboard/login", "email", "kopi-kita@example.id", "password", ownerPassword)
	cookie, err := http.ParseSetCookie(in.header.Get("Set-Cookie"))
	if err != nil || cookie.Name != "__Host-storeorder" || !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("cookie %+v, %v", cookie, err)
	}
	// The test server speaks http, so the cookie is sent by hand.
	sendCookie := func(token string) *browser {
		b := s.browser()
		b.header.Set("Cookie", "__Host-storeorder="+token)
		return b
	}
	owner := sendCookie(cookie.Value)
	p := owner.get(t, "/dashboard")
	p.has(t, 200, "Pesanan")
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"} {
		if p.header.Get(name) != want {
			t.Errorf("%s: %q", name, p.header.Get(name))
		}
	}
	if csp := p.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || strings.Contains(p.body, "<script") {
		t.Errorf("scripts are possible: %s", csp)
	}
	if scalar[int](t, s.db, "SELECT count(*) FROM owner_sessions WHERE CAST(hash AS TEXT) = ?", cookie.Value) != 0 {
		t.Error("the session is not hashed")
	}
	// It ends 12 h after its last use, and is noted at most once a minute.
	seen := scalar[int64](t, s.db, "SELECT seen_at FROM owner_sessions")
	owner.get(t, "/dashboard")
	if again := scalar[int64](t, s.db, "SELECT seen_at FROM owner_sessions"); again != seen {
		t.Error("seen_at is written at every request")
	}
	s.exec(t, "UPDATE owner_sessions SET seen_at = seen_at - ?", (12*time.Hour - time.Minute).Milliseconds())
	owner.get(t, "/dashboard").has(t, 200)
	if err := s.uses.flush(t.Context(), s.db); err != nil {
		t.Fatal(err)
	}
	if again := scalar[int64](t, s.db, "SELECT seen_at FROM owner_sessions"); again < seen {
		t.Error("a use was not noted")
	}
	s.exec(t, "UPDATE owner_sessions SET seen_at = seen_at - ?", (12*time.Hour + time.Minute).Milliseconds())
	owner.get(t, "/dashboard").leads(t, "/dashboard/login")
	// And after 7 days in any case.
	s.exec(t, "UPDATE owner_sessions SET seen_at = ?, created_at = created_at - ?", time.Now().UnixMilli(), (7 * 24 * time.Hour).Milliseconds())
	owner.get(t, "/dashboard").leads(t, "/dashboard/login")
}

func TestDashboardSignOutAndPassword(t *testing.T) {
	s := newShop(t, "http://shop.test")
	s.addShop(t, "lain", "growth")
	first, second, other := s.owner(t, "kopi-kita@example.id"), s.owner(t, "kopi-kita@example.id"), s.owner(t, "lain@example.id")
	first.post(t, "/dashboard/logout").leads(t, "/dashboard/login?done=out")
	first.get(t, "/dashboard").leads(t, "/dashboard/login")
	second.get(t, "/dashboard").has(t, 200)

	first = s.owner(t, "kopi-kita@example.id")
	second.get(t, "/dashboard/account/logout").has(t, 200, "Keluar di semua perangkat?")
	second.post(t, "/dashboard/account/logout").leads(t, "/dashboard/login?done=out")
	first.get(t, "/dashboard").leads(t, "/dashboard/login")
	other.get(t, "/dashboard").has(t, 200)

	first, second = s.owner(t, "kopi-kita@example.id"), s.owner(t, "kopi-kita@example.id")
	first.post(t, "/dashboard/account", "password", "wrong", "new_password", "cukup-panjang-123").has(t, 422, "bukan kata sandi Anda")
	first.post(t, "/dashboard/account", "password", ownerPassword, "new_password", "pendek").has(t, 422, "harus 12 sampai 200 huruf", `aria-invalid="true"`, `aria-describedby="new_password-fault new_password-hint"`)
	first.post(t, "/dashboard/account", "password", ownerPassword, "new_password", "cukup-panjang-123").leads(t, "/dashboard/account?done=password")
	first.get(t, "/dashboard/account?done=password").has(t, 200, "Kata sandi diganti")
	second.get(t, "/dashboard").leads(t, "/dashboard/login")
	s.browser().post(t, "/dashboard/login", "email", "kopi-kita@example.id", "password", ownerPassword).has(t, 422)
	s.browser().post(t, "/dashboard/login", "email", "kopi-kita@example.id", "password", "cukup-panjang-123").leads(t, "/dashboard")
}

func TestDashboardThrottling(t *testing.T) {
	s := newShop(t, "http://shop.test")
	s.addShop(t, "lain", "growth")
	s.accounts, s.addresses = newLimiter(1, 3), newLimiter(1, 5)
	b := s.browser()
	for range 3 {
		b.post(t, "/dashboard/login", "email", "kopi-kita@example.id", "password", "wrong").has(t, 422)
	}
	p := b.post(t, "/dashboard/login", "email", "kopi-kita@example.id", "password", ownerPassword)
	p.has(t, 429, "Terlalu banyak percobaan", "Tunggu 1 menit")
	if p.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	b.post(t, "/dashboard/login", "email", "lain@example.id", "password", ownerPassword).leads(t, "/dashboard") // another account, the address' fifth try
	b.post(t, "/dashboard/login", "email", "lain@example.id", "password", ownerPassword).has(t, 429)
	defaults := newServer(s.db, settings{rate: 1, burst: 1}, s.log)
	if defaults.accounts.burst != 10 {
		t.Errorf("%v wrong passwords are let through, want 10", defaults.accounts.burst)
	}
}

func TestDashboardCrossOriginPosts(t *testing.T) {
	s := newShop(t, "http://shop.test")
	o := s.place(t, s.storeID, "Siti", "", 1)
	b := s.owner(t, "kopi-kita@example.id")
	b.header.Set("Sec-Fetch-Site", "cross-site")
	for _, path := range []string{"/dashboard/login", "/dashboard/logout", "/dashboard/keys", "/dashboard/orders/" + o.ID + "/approve", "/dashboard/account"} {
		b.post(t, path, "status", "pending", "name", "x").has(t, 403)
	}
	b.header = http.Header{"Origin": {"https://evil.example"}}
	b.post(t, "/dashboard/keys", "name", "x").has(t, 403)
	b.header = http.Header{"Sec-Fetch-Site": {"same-origin"}}
	b.post(t, "/dashboard/keys", "name", "x").has(t, 200)
}

// A stranger who tries passwords does not keep the owner, who is elsewhere, from signing in; and no try fills the memory.
func TestStrangersDoNotLockTheOwnerOut(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.accounts = newLimiter(1, 2)
	if err := s.db.SetPassword(t.Context(), s.storeID, hashNewPassword(ownerPassword)); err != nil {
		t.Fatal(err)
	}
	from := func(address string) *http.Request {
		r := httptest.NewRequest("POST", "/dashboard/login", nil)
		r.RemoteAddr = address + ":1"
		return r
	}
	for i := range 3 {
		_, wait, err := s.checkPassword(from("203.0.113.9"), "kopi-kita@example.id", "wrong password")
		if tried := i < 2; tried != (err == errNotFound) || tried != (wait == 0) {
			t.Errorf("try %d: wait %v, %v", i+1, wait, err)
		}
	}
	if id, wait, err := s.checkPassword(from("203.0.113.10"), "kopi-kita@example.id", ownerPassword); id != s.storeID || wait != 0 || err != nil {
		t.Errorf("the owner: %q, wait %v, %v", id, wait, err)
	}
	if _, _, err := s.checkPassword(from("203.0.113.11"), strings.Repeat("x", 60_000), "x"); err != errNotFound {
		t.Errorf("a long e-mail: %v", err)
	}
	for key := range s.everywhere.buckets {
		if len(key) > 254 {
			t.Errorf("a key of %d bytes is kept", len(key))
		}
	}
}
