package main

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestKeysEnd has as many keys as a store may have: one that is revoked makes room for another.
func TestKeysEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var added fields
		for range 47 { // with the three of the shop's
			added = w.command("key add -name more -store " + w.shop.id)
		}
		w.refused("key add -name more -store "+w.shop.id, "remove")
		p := newPlayer(t, w)
		p.play("owner open keys, press add-key name=one | 409")
		w.get(t, "/v1/store", as(textOf(added, "key"))...)
		w.command("key revoke -key " + strings.ToUpper(textOf(added, "key_id")))
		w.do(t, "GET", "/v1/store", nil, as(textOf(added, "key"))...).want(t, 401, "UNAUTHORIZED")
		w.command("key add -name more -store " + w.shop.id)
		listed := fmt.Sprint(w.command("key list -store " + w.shop.id))
		if strings.Contains(listed, "so_") || !strings.Contains(listed, "more") {
			t.Errorf("the list of keys: %s", listed)
		}
	})
}

// TestRevokedKeys is about what is left of them: the last fifty are listed, for ninety days.
func TestRevokedKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		listed := func() string { return fmt.Sprint(w.command("key list -store " + w.shop.id)) }
		for i := range 55 {
			added := w.command(fmt.Sprintf("key add -name key-%d- -store %s", i, w.shop.id))
			w.command("key revoke -key " + textOf(added, "key_id"))
		}
		list := listed()
		if n := strings.Count(list, "revoked_at"); n != 50 || strings.Contains(list, "key-4-") ||
			!strings.Contains(list, "key-5-") || strings.Count(list, "key_id") != 53 {
			t.Errorf("%d revoked keys are listed: %s", n, list)
		}
		for i, day := range []int{89, 90} {
			w.sql("UPDATE api_keys SET revoked_at = ? WHERE revoked_at > 0", time.Now().AddDate(0, 0, -day).UnixMilli())
			w.sleep(time.Hour)
			if n := strings.Count(listed(), "revoked_at"); n != 50-50*i {
				t.Errorf("%d revoked keys are left after %d days", n, day)
			}
		}
		if list := listed(); strings.Count(list, "key_id") != 3 {
			t.Errorf("these are left: %s", list)
		}
	})
}

// TestClientAddresses is about testdata/client-addresses.txt: who is counted and logged as the client.
func TestClientAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "-trusted-proxy", "10.0.0.0/8", "-trusted-proxy", "172.16.0.9")
	for _, c := range readCases(t, "testdata/client-addresses.txt") {
		w.life.peer = strings.Trim(c.column(0), "[]")
		w.http.CloseIdleConnections()
		forwarded := strings.Replace(c.column(1), "none", "", 1)
		before := len(w.log.String())
		w.get(t, "/v1/store", "X-Forwarded-For", forwarded)
		line := w.log.String()[before:]
		want, _, _ := strings.Cut(c.column(2), "/")
		if !strings.Contains(line, "client="+strings.TrimSuffix(want, "::")) {
			t.Errorf("%s: the log has %s", c.name, line)
		}
	}
	w.life.peer = ""
	w.http.CloseIdleConnections()
}

// signIn tries to sign in from an address and returns its answer.
func (w *world) signIn(s *store, password, from string, headers ...string) response {
	form := url.Values{"email": {s.email}, "password": {password}}
	return w.browse("POST", "/dashboard/login", form, append(headers, "X-Forwarded-For", from)...)
}

// cookies are those that an answer sets, as a browser sends them back.
func (r response) cookies() string {
	var all []string
	for _, cookie := range r.Header.Values("Set-Cookie") {
		pair, _, _ := strings.Cut(cookie, ";")
		all = append(all, pair)
	}
	return strings.Join(all, "; ")
}

// TestSignIn is about the answers to a sign-in, its cookies, and its end.
func TestSignIn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := w.shop
		if resp := w.signIn(s, s.password, "192.0.2.1", "Sec-Fetch-Site", "cross-site"); resp.Status != 403 {
			t.Errorf("another site signs in: %d", resp.Status)
		}
		if resp := w.signIn(s, "wrong password", "192.0.2.1"); resp.Status != 422 || resp.cookies() != "" {
			t.Errorf("a wrong password: %d %v", resp.Status, resp.Header)
		}
		resp := w.signIn(s, " "+s.password+"\n", "192.0.2.1")
		set := resp.Header.Values("Set-Cookie")
		if resp.Status != 303 || len(set) != 2 {
			t.Fatalf("the right password: %d %v", resp.Status, set)
		}
		for _, cookie := range set {
			if !strings.HasPrefix(cookie, "__Host-") || !strings.HasSuffix(cookie, "; HttpOnly; Secure; SameSite=Lax") {
				t.Errorf("the cookie is %s", cookie)
			}
		}
		inside := func(cookies string) bool {
			return w.browse("GET", "/dashboard", nil, "Cookie", cookies).Status == 200
		}
		first := resp.cookies()
		if !inside(first) || inside("") {
			t.Error("the cookies do not sign in")
		}
		link := textOf(w.command("store password -store "+w.other.id), "sign_in")
		if inside("__Host-sign-in=" + link[len(link)-43:]) {
			t.Error("a link is a cookie")
		}
		age := func(days time.Duration) {
			w.sql("UPDATE sign_ins SET ends_at = ends_at - ?", (days * 24 * time.Hour).Milliseconds())
		}
		for range 2 {
			age(29)
			if !inside(first) {
				t.Error("29 days after the last use nobody is signed in")
			}
			w.sleep(2 * time.Minute)
		}
		age(31)
		if inside(first) {
			t.Error("a sign-in outlives 31 days")
		}

		second, third := w.signIn(s, s.password, "192.0.2.1").cookies(), w.signIn(s, s.password, "192.0.2.1").cookies()
		w.browse("POST", "/dashboard/account", url.Values{"act": {"sign-out"}}, "Cookie", second)
		if inside(second) || !inside(third) {
			t.Error("who signs out is in, or the other is not")
		}
		password := textOf(w.command("store password -store "+s.id), "owner_password")
		if inside(third) || !inside(w.signIn(s, password, "192.0.2.1").cookies()) {
			t.Error("a new password leaves who is signed in, or does not sign in")
		}
		w.command("store list")
	})
}

// TestGuessingPasswords has strangers try passwords from one address and from everywhere. The owner's browser
// signs in all the same, for it has done so before.
func TestGuessingPasswords(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := w.shop
		device := w.signIn(s, s.password, "192.0.2.1").cookies()
		statuses := map[int]int{}
		for range 30 {
			statuses[w.signIn(s, "wrong password", "198.51.100.7").Status]++
		}
		if statuses[422] != 10 || statuses[429] != 20 {
			t.Errorf("thirty tries from an address are answered %v", statuses)
		}
		resp := w.signIn(s, s.password, "198.51.100.7")
		if resp.Status != 429 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("the right password is told among them: %d", resp.Status)
		}
		if resp := w.signIn(w.other, w.other.password, "198.51.100.8"); resp.Status != 303 {
			t.Errorf("another owner is refused: %d", resp.Status)
		}
		time.Sleep(time.Minute)
		if resp := w.signIn(s, "wrong password", "198.51.100.7"); resp.Status != 422 {
			t.Errorf("a minute later: %d", resp.Status)
		}

		var strangers sync.WaitGroup
		for i := range 300 {
			strangers.Go(func() { w.signIn(s, "wrong password", fmt.Sprintf("203.0.%d.%d", i/250, i%250)) })
		}
		if resp := w.signIn(s, s.password, "192.0.2.1", "Cookie", device); resp.Status != 303 {
			t.Errorf("strangers everywhere keep the owner out: %d", resp.Status)
		}
		strangers.Wait()
	}, "-trusted-proxy", "10.0.0.0/8")
}

// TestNewPasswordForgetsBrowsers has a browser that has signed in before, at an address from which strangers try
// passwords. It may sign in all the same until the owner has a new password.
func TestNewPasswordForgetsBrowsers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		device := w.signIn(w.shop, w.shop.password, "192.0.2.1").cookies()
		signIn := func(password string) int {
			return w.signIn(w.shop, password, "192.0.2.1", "Cookie", device).Status
		}
		for range 11 {
			w.signIn(w.shop, "wrong password", "192.0.2.1")
		}
		if status := signIn(w.shop.password); status != 303 {
			t.Errorf("a browser that is known is answered %d", status)
		}
		changed := w.command("store password -store " + w.shop.id)
		if status := signIn(textOf(changed, "owner_password")); status != 429 {
			t.Errorf("after a new password it is answered %d, as if it were known still", status)
		}
		time.Sleep(10 * time.Minute)
		if status := signIn(textOf(changed, "owner_password")); status != 303 {
			t.Errorf("later it is answered %d", status)
		}
	}, "-trusted-proxy", "10.0.0.0/8")
}

// TestSignedOut asks for the owner's pages and acts without being signed in, or from another site.
func TestSignedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	p.play("order kopi 1 bank_transfer as A")
	signedIn := w.signIn(w.shop, w.shop.password, "192.0.2.1").cookies()
	for _, c := range readCases(t, "testdata/signed-out.txt") {
		path := strings.ReplaceAll(c.column(0), "$order", p.order)
		resp := w.browse(c.heading, path, url.Values{"act": {"approve"}})
		to := resp.Header.Get("Location")
		if resp.Status != 303 || !strings.HasPrefix(to, "/dashboard/login") {
			t.Errorf("%s: %d %s, want the sign-in page", c.name, resp.Status, to)
		}
		if c.heading == "POST" {
			headers := []string{"Cookie", signedIn, "Sec-Fetch-Site", "cross-site"}
			if resp := w.browse("POST", path, nil, headers...); resp.Status != 403 {
				t.Errorf("%s from another site: %d", c.name, resp.Status)
			}
		}
	}
	p.play("= pending, stock 9")

	// The sign-in page leads back to pages of the dashboard, and nowhere else.
	for i, c := range readCases(t, "testdata/own-paths.txt") {
		form := url.Values{"email": {w.shop.email}, "password": {w.shop.password}}
		from := []string{"X-Forwarded-For", fmt.Sprint("192.0.2.", i)}
		resp := w.browse("POST", "/dashboard/login?next="+url.QueryEscape(c.column(0)), form, from...)
		to := resp.Header.Get("Location")
		// The empty fragment keeps a browser from scrolling to the form's.
		if want := map[string]string{"good": c.column(0), "bad": "/dashboard"}[c.heading] + "#"; to != want {
			t.Errorf("%s leads to %s, want %s", c.name, to, want)
		}
	}
}

// TestPasswordIsReplacedMeanwhile has a command replace a password while the owner signs in, or changes it,
// with the old one: neither gets past that.
func TestPasswordIsReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, act := range []string{"signs in", "changes the password"} {
		w := newWorld(t)
		p := newPlayer(t, w)
		p.kept["old"] = w.shop.password
		p.play("owner open account")

		letGo := w.atCommit("store password -store " + w.shop.id)
		time.AfterFunc(300*time.Millisecond, letGo)
		if act == "signs in" {
			if resp := w.signIn(w.shop, w.shop.password, "192.0.2.1"); resp.Status != 422 {
				t.Errorf("the old password signs in: %d", resp.Status)
			}
		} else {
			p.play("owner press password password=$old new_password=kopi-susu-gula | 422")
			if resp := w.signIn(w.shop, "kopi-susu-gula", "192.0.2.1"); resp.Status != 422 {
				t.Errorf("the password was changed again: %d", resp.Status)
			}
		}
	}
}
