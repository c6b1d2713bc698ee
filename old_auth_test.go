//go:build cgo

package main

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

const ownerEmail = "kopi-kita@example.id"

// signIn tries to sign in.
func (b *browser) signIn(t *testing.T, email, password string) screen {
	t.Helper()
	return b.post(t, "/dashboard/login", "email", email, "password", password)
}

// changePassword tries to change the password on the account page.
func (b *browser) changePassword(t *testing.T, from, to string) screen {
	t.Helper()
	return b.post(t, "/dashboard/account", "password", from, "new_password", to)
}

// wantSignedIn ends the test unless the browser is shown the dashboard.
func (b *browser) wantSignedIn(t *testing.T) {
	t.Helper()
	b.get(t, "/dashboard").has(t, 200)
}

// wantSignedOut ends the test unless the dashboard leads the browser to the sign-in page.
func (b *browser) wantSignedOut(t *testing.T) {
	t.Helper()
	b.get(t, "/dashboard").leads(t, "/dashboard/login")
}

// wantHeaders reports headers that have other values.
func wantHeaders(t *testing.T, header http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := header.Get(name); got != value {
			t.Errorf("%s %q, want %q", name, got, value)
		}
	}
}

// TestRateLimits uses up the three requests of a key. None comes back while the test runs.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	o := testSettings
	o.rate = 1 // a minute
	o.burst = 3
	s := newTestServerWith(t, o)

	t.Run("every answer says how many requests are left", func(t *testing.T) {
		for taken := 1; taken <= 3; taken++ {
			r := s.get(t, "/v1/orders")
			wantHeaders(t, r.Header, map[string]string{
				"X-RateLimit-Limit":     "1",
				"X-RateLimit-Remaining": strconv.Itoa(3 - taken),
			})

			// Each takes a minute to come back, of which a part is over.
			reset, err := strconv.Atoi(r.Header.Get("X-RateLimit-Reset"))
			must(t, err)
			if reset <= (taken-1)*60 || reset > taken*60 {
				t.Errorf("X-RateLimit-Reset %d after %d requests", reset, taken)
			}
		}
	})

	t.Run("one too many is refused and changes nothing", func(t *testing.T) {
		r := s.post(t, s.order("teh", 1))
		r.want(t, 429, "RATE_LIMITED")
		wantHeaders(t, r.Header, map[string]string{
			"X-RateLimit-Remaining": "0",
		})
		if r.Error.Message != "Rate limit exceeded." {
			t.Errorf("message %q", r.Error.Message)
		}

		wait, err := strconv.Atoi(r.Header.Get("Retry-After"))
		must(t, err)
		if wait < 1 || wait > 60 {
			t.Errorf("Retry-After %d, want 1 to 60", wait)
		}

		orders := scalar[int](t, s.db, "SELECT count(*) FROM orders")
		if orders != 0 {
			t.Errorf("the refused request created %d orders", orders)
		}
	})
}

// TestAStoresKeysShareALimit has five keys of a store send three requests each, which each of them may.
// Twelve are answered: four times what one key may send.
func TestAStoresKeysShareALimit(t *testing.T) {
	t.Parallel()
	o := testSettings
	o.rate = 1 // a minute
	o.burst = 3
	s := newTestServerWith(t, o)
	_, another := s.addStore(t, "lain", "growth")

	answered := 0
	for range 5 {
		key, hash := newToken("so_")
		_, err := s.db.AddKey(t.Context(), s.storeID, NewKey{Name: "one more", Scope: ScopeWrite}, hash)
		must(t, err)
		for range 3 {
			r := s.as(key).do(t, "GET", "/v1/orders", nil)
			if r.Status == 200 {
				answered++
				continue
			}
			r.want(t, 429, "RATE_LIMITED")
			wantHeaders(t, r.Header, map[string]string{"X-RateLimit-Remaining": "0"})
			if r.Header.Get("Retry-After") == "" {
				t.Error("429 without Retry-After")
			}
		}
	}
	if answered != 12 {
		t.Errorf("%d requests are answered, want 12", answered)
	}

	// Another store has a limit of its own.
	s.as(another).get(t, "/v1/orders")
}

// TestAStoreHasFiftyKeys adds one more, by the command and in the dashboard.
func TestAStoreHasFiftyKeys(t *testing.T) {
	s := newShop(t, "http://shop.test")
	var first string
	for range maxKeys {
		_, hash := newToken("so_")
		id, err := s.db.AddKey(t.Context(), s.storeID, NewKey{Name: "k", Scope: ScopeWrite}, hash)
		must(t, err)
		first = id
	}

	_, stderr := command(t, 1, "key", "add", "-db", s.db.path, "-store", s.storeID, "-name", "k")
	if !strings.Contains(stderr, "has 50 API keys") {
		t.Errorf("the command says %q", stderr)
	}

	b := s.owner(t, "kopi-kita@example.id")
	b.post(t, "/dashboard/keys", "name", "situs", "scope", "write").has(t, 422, "Toko Anda sudah memiliki 50", "situs")
	b.header.Set("Accept-Language", "en")
	b.post(t, "/dashboard/keys", "name", "situs", "scope", "write").has(t, 422, "Your store already has 50")

	// A revoked key makes room.
	must(t, s.db.RevokeKey(t.Context(), s.storeID, first))
	b.creates(t, "/dashboard/keys", "name", "situs", "scope", "write").has(t, 200, "so_")
}

// TestWrongKeysAreLimitedByAddress sends 100 wrong keys, more than the 60 that an address has in a minute.
func TestWrongKeysAreLimitedByAddress(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	stranger := s.as("so_wrong")

	codes := map[string]int{}
	for range 100 {
		r := stranger.do(t, "GET", "/v1/orders", nil)
		codes[r.Error.Code]++

		limited := r.Error.Code == "RATE_LIMITED"
		if limited && r.Header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}

	if codes["UNAUTHORIZED"] < 60 {
		t.Errorf("100 wrong keys get %v, want 60 times UNAUTHORIZED", codes)
	}
	if codes["RATE_LIMITED"] < 1 {
		t.Errorf("100 wrong keys get %v, want RATE_LIMITED too", codes)
	}

	// The right key is not limited by the wrong ones from its address.
	s.get(t, "/v1/orders")
}

// TestLimiterRefillsByTheClock empties a bucket of 60 tokens, of which five come back in a second.
func TestLimiterRefillsByTheClock(t *testing.T) {
	t.Parallel()
	l := newLimiter(300, 60)
	now := time.Unix(0, 0)
	for range 60 {
		if !l.take("k", now).ok {
			t.Fatal("refused within the burst")
		}
	}

	want := allowance{
		ok:         false,
		remaining:  0,
		full:       12 * time.Second,
		retryAfter: 200 * time.Millisecond,
	}
	if got := l.take("k", now); got != want {
		t.Errorf("the 61st: %+v, want %+v", got, want)
	}

	early := now.Add(199 * time.Millisecond)
	if l.take("k", early).ok {
		t.Error("a token came back too early")
	}

	late := l.take("k", now.Add(time.Hour))
	if !late.ok {
		t.Error("refused after an hour")
	}
	if late.remaining != 59 {
		t.Errorf("%d remain after an hour, want 59", late.remaining)
	}
}

// TestClientAddress is about the addresses of testdata/client-addresses.txt.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.trustedProxy = netip.MustParsePrefix("10.0.0.0/8")

	for _, c := range readCases(t, "testdata/client-addresses.txt") {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = c.column(0) + ":5"
			if forwarded := c.column(1); forwarded != "none" {
				r.Header.Set("X-Forwarded-For", forwarded)
			}

			got := countedAs(s.clientAddress(r))
			if want := c.column(2); got != want {
				t.Errorf("%s counts, want %s", got, want)
			}
		})
	}
}

// TestDashboardSignedOut sends the requests of testdata/signed-out.txt, which all lead to the sign-in page.
func TestDashboardSignedOut(t *testing.T) {
	s := newShop(t, "http://shop.test")
	o := s.place(t, s.storeID, "Siti", "", 1)
	b := s.browser()

	for _, c := range readCases(t, "testdata/signed-out.txt") {
		t.Run(c.heading+" "+c.column(0), func(t *testing.T) {
			path := strings.ReplaceAll(c.column(0), "$order", o.ID)
			if c.heading == "POST" {
				page := b.post(t, path, "status", "pending", "name", "x")
				page.leads(t, "/dashboard/login")
				return
			}

			to := "/dashboard/login"
			if path != "/dashboard" {
				to += "?next=" + url.QueryEscape(path)
			}
			b.get(t, path).leads(t, to)
		})
	}

	t.Run("a page that does not exist", func(t *testing.T) {
		b.get(t, "/dashboard/nothing").has(t, 404)
	})
}

// TestTheWayBackFromTheSignInPage signs in after a page was asked for.
func TestTheWayBackFromTheSignInPage(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.browser()

	t.Run("the page remembers the way back", func(t *testing.T) {
		page := b.get(t, "/dashboard/login?next=%2Fdashboard%2Fcatalog")
		page.has(t, 200, `name="next" value="/dashboard/catalog"`)

		page = s.browser().post(t, "/dashboard/login",
			"email", " Kopi-Kita@Example.id",
			"password", ownerPassword,
			"next", "/dashboard/catalog")
		page.leads(t, "/dashboard/catalog")
	})

	t.Run("it never leads to another site", func(t *testing.T) {
		page := b.post(t, "/dashboard/login",
			"email", ownerEmail,
			"password", ownerPassword,
			"next", "//evil.example")
		page.leads(t, "/dashboard")
	})

	t.Run("who is signed in needs no sign-in page", func(t *testing.T) {
		b.get(t, "/dashboard/login").leads(t, "/dashboard")
	})
}

// TestDashboardSignIn is about the answer to a sign-in, and its cookie.
func TestDashboardSignIn(t *testing.T) {
	s := newShop(t, "https://shop.test")
	b := s.browser()

	t.Run("an unknown e-mail is answered like a wrong password", func(t *testing.T) {
		wrong := b.signIn(t, ownerEmail, "wrong")
		wrong.has(t, 422, "E-mail atau kata sandi salah")

		unknown := b.signIn(t, "nobody@example.id", "wrong")
		unknown.has(t, 422)
		body := strings.ReplaceAll(unknown.body, "nobody@example.id", ownerEmail)
		if body != wrong.body {
			t.Errorf("the page for an unknown e-mail is another: %s", unknown.body)
		}
	})

	page := b.signIn(t, ownerEmail, ownerPassword)
	page.leads(t, "/dashboard")
	line := page.header.Get("Set-Cookie")
	cookie, err := http.ParseSetCookie(line)
	must(t, err)

	t.Run("the cookie is for this host alone, and for no script", func(t *testing.T) {
		if cookie.Name != "__Host-storeorder" {
			t.Errorf("the cookie's name is %s", cookie.Name)
		}
		_, attributes, _ := strings.Cut(line, "; ")
		const want = "Path=/; Max-Age=604800; HttpOnly; Secure; SameSite=Strict"
		if attributes != want {
			t.Errorf("the cookie has %s, want %s", attributes, want)
		}
	})

	t.Run("it signs in", func(t *testing.T) {
		// The test server speaks http, to which a browser does not send this cookie.
		owner := s.browser()
		owner.header.Set("Cookie", cookie.Name+"="+cookie.Value)
		owner.get(t, "/dashboard").has(t, 200, "Pesanan")
	})

	t.Run("only a hash of it is kept", func(t *testing.T) {
		n := scalar[int](t, s.db, `
			SELECT count(*)
			FROM   owner_sessions
			WHERE  CAST(hash AS TEXT) = ?`, cookie.Value)
		if n != 0 {
			t.Error("the cookie is in the database")
		}
	})
}

// seenAt is the last use of the only sign-in, as it is written.
func (s *testServer) seenAt(t *testing.T) int64 {
	t.Helper()
	return scalar[int64](t, s.db, "SELECT seen_at FROM owner_sessions")
}

// age moves the last use of all sign-ins into the past.
func (s *testServer) age(t *testing.T, d time.Duration) {
	t.Helper()
	s.exec(t, "UPDATE owner_sessions SET seen_at = seen_at - ?", d.Milliseconds())
}

// TestSignInEnds moves the times of a sign-in instead of waiting.
func TestSignInEnds(t *testing.T) {
	s := newShop(t, "http://shop.test")
	owner := s.owner(t, ownerEmail)
	seen := s.seenAt(t)

	t.Run("its use is not written at every request", func(t *testing.T) {
		owner.wantSignedIn(t)
		again := s.seenAt(t)
		if again != seen {
			t.Errorf("seen_at is %d after another request, want %d", again, seen)
		}
	})

	t.Run("12 hours after its last use", func(t *testing.T) {
		s.age(t, 12*time.Hour-time.Minute)
		owner.wantSignedIn(t)

		must(t, s.uses.flush(t.Context(), s.db))
		again := s.seenAt(t)
		if again < seen {
			t.Errorf("seen_at is %d after a use that was written, want %d or later", again, seen)
		}

		s.age(t, 12*time.Hour+time.Minute)
		owner.wantSignedOut(t)
	})

	t.Run("after 7 days in any case", func(t *testing.T) {
		const week = 7 * 24 * time.Hour
		s.exec(t, `
			UPDATE owner_sessions
			SET    seen_at = ?, created_at = created_at - ?`,
			time.Now().UnixMilli(), week.Milliseconds())
		owner.wantSignedOut(t)
	})
}

// TestDashboardPagesAreSafe looks at the headers that keep a page out of caches and scripts out of a page.
func TestDashboardPagesAreSafe(t *testing.T) {
	s := newShop(t, "http://shop.test")
	page := s.owner(t, ownerEmail).get(t, "/dashboard")
	page.has(t, 200)
	wantHeaders(t, page.header, map[string]string{
		"Cache-Control":          "no-store",
		"X-Content-Type-Options": "nosniff",
		"Referrer-Policy":        "same-origin",
	})

	policy := page.header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("the policy allows more than it names: %s", policy)
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is unsafe: %s", policy)
	}
	if strings.Contains(page.body, "<script") {
		t.Errorf("the page has a script: %s", page.body)
	}
}

// TestDashboardSignOut has an owner with two devices, and the owner of another store.
func TestDashboardSignOut(t *testing.T) {
	s := newShop(t, "http://shop.test")
	s.addShop(t, "lain", "growth")
	first := s.owner(t, ownerEmail)
	second := s.owner(t, ownerEmail)
	other := s.owner(t, "lain@example.id")

	t.Run("on one device", func(t *testing.T) {
		page := first.post(t, "/dashboard/logout")
		page.leads(t, "/dashboard/login?done=out")

		first.wantSignedOut(t)
		second.wantSignedIn(t)
	})

	t.Run("on all devices", func(t *testing.T) {
		first = s.owner(t, ownerEmail)
		page := second.get(t, "/dashboard/account/logout")
		page.has(t, 200, "Keluar dari semua perangkat?")

		page = second.post(t, "/dashboard/account/logout")
		page.leads(t, "/dashboard/login?done=out")
		first.wantSignedOut(t)
	})

	t.Run("the owner of another store stays", func(t *testing.T) {
		other.wantSignedIn(t)
	})
}

// TestDashboardPassword changes the password on one of two devices.
func TestDashboardPassword(t *testing.T) {
	s := newShop(t, "http://shop.test")
	const changed = "cukup-panjang-123"
	first := s.owner(t, ownerEmail)
	second := s.owner(t, ownerEmail)

	t.Run("a change needs the present password", func(t *testing.T) {
		page := first.changePassword(t, "wrong", changed)
		page.has(t, 422, "bukan kata sandi Anda")
	})

	t.Run("a new one has 12 characters or more", func(t *testing.T) {
		page := first.changePassword(t, ownerPassword, "pendek")
		page.has(t, 422,
			"12 sampai 200",
			`aria-invalid="true"`,
			`aria-describedby="new_password-fault new_password-hint"`)
	})

	t.Run("a change ends the sign-ins on other devices", func(t *testing.T) {
		page := first.changePassword(t, ownerPassword, changed)
		page.leads(t, "/dashboard/account?done=password")
		page = first.get(t, page.location)
		page.has(t, 200, "Kata sandi diganti")

		second.wantSignedOut(t)
	})

	t.Run("then only the new one signs in", func(t *testing.T) {
		s.browser().signIn(t, ownerEmail, ownerPassword).has(t, 422)
		s.browser().signIn(t, ownerEmail, changed).leads(t, "/dashboard")
	})
}

// TestDashboardThrottling tries passwords in one browser, for two accounts.
func TestDashboardThrottling(t *testing.T) {
	s := newShop(t, "http://shop.test")
	s.addShop(t, "lain", "growth")
	s.accounts = newLimiter(1, 3)
	s.addresses = newAddressLimiter(1, 4)
	b := s.browser()

	t.Run("an account has three tries here", func(t *testing.T) {
		for range 3 {
			b.signIn(t, ownerEmail, "wrong").has(t, 422)
		}

		page := b.signIn(t, ownerEmail, ownerPassword)
		page.has(t, 429, "Terlalu banyak percobaan", "Tunggu 1 menit")
		if page.header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	})

	t.Run("an address has four tries, for whatever account", func(t *testing.T) {
		b.signIn(t, "lain@example.id", ownerPassword).leads(t, "/dashboard")
		b.signIn(t, "lain@example.id", ownerPassword).has(t, 429)
	})

	t.Run("an account has ten by default", func(t *testing.T) {
		o := settings{rate: 1, burst: 1}
		defaults := newServer(s.db, o, s.log)
		if got := defaults.accounts.burst; got != 10 {
			t.Errorf("%v tries, want 10", got)
		}
	})
}

// TestDashboardCrossOriginPosts posts as the owner's browser would for a form on another site.
func TestDashboardCrossOriginPosts(t *testing.T) {
	s := newShop(t, "http://shop.test")
	o := s.place(t, s.storeID, "Siti", "", 1)
	b := s.owner(t, ownerEmail)

	t.Run("from another site", func(t *testing.T) {
		b.header = http.Header{"Sec-Fetch-Site": {"cross-site"}}
		for _, path := range []string{
			"/dashboard/login",
			"/dashboard/logout",
			"/dashboard/keys",
			"/dashboard/orders/" + o.ID + "/approve",
			"/dashboard/account",
		} {
			b.post(t, path, "status", "pending", "name", "x").has(t, 403)
		}
	})

	t.Run("from another site by an old browser", func(t *testing.T) {
		b.header = http.Header{"Origin": {"https://evil.example"}}
		b.post(t, "/dashboard/keys", "name", "x", "scope", "write").has(t, 403)
	})

	t.Run("from the dashboard itself", func(t *testing.T) {
		b.header = http.Header{"Sec-Fetch-Site": {"same-origin"}}
		b.post(t, "/dashboard/keys", "name", "x", "scope", "write").has(t, 303)
	})
}

// TestStrangersDoNotLockTheOwnerOut has a stranger try passwords. The owner, who is elsewhere, can sign in.
func TestStrangersDoNotLockTheOwnerOut(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.accounts = newLimiter(1, 2)
	must(t, s.db.SetPassword(t.Context(), s.storeID, ownerHash))

	// try gives an e-mail and a password from an address.
	try := func(address, email, password string) (storeID string, wait time.Duration, err error) {
		return s.checkPassword(t.Context(), passwordTry{
			email:    email,
			password: password,
			from:     netip.MustParseAddr(address),
		})
	}

	const stranger = "203.0.113.9"
	t.Run("a stranger has two tries", func(t *testing.T) {
		for range 2 {
			_, wait, err := try(stranger, ownerEmail, "wrong password")
			if err != errNotFound {
				t.Errorf("error %v, want %v", err, errNotFound)
			}
			if wait != 0 {
				t.Errorf("wait %s, want 0", wait)
			}
		}

		_, wait, err := try(stranger, ownerEmail, "wrong password")
		must(t, err)
		if wait <= 0 {
			t.Errorf("wait %s after two tries", wait)
		}
	})

	t.Run("the owner signs in", func(t *testing.T) {
		storeID, wait, err := try("203.0.113.10", ownerEmail, ownerPassword)
		must(t, err)
		if wait != 0 {
			t.Errorf("wait %s, want 0", wait)
		}
		if storeID != s.storeID {
			t.Errorf("store %q, want %q", storeID, s.storeID)
		}
	})

	t.Run("a long e-mail does not fill the memory", func(t *testing.T) {
		long := strings.Repeat("x", 60_000)
		_, _, err := try("203.0.113.11", long, "x")
		if err != errNotFound {
			t.Errorf("error %v, want %v", err, errNotFound)
		}

		for key := range s.everywhere.buckets {
			if len(key) > 254 {
				t.Errorf("a key of %d bytes is kept", len(key))
			}
		}
	})
}
