//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var pageHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data: https:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8",
}

func TestPayPageSaysWhereTheOrderStands(t *testing.T) {
	t.Parallel()
	const pay, claim, back = `/go" rel="nofollow">`, "<form", "https://kopi.example.id/thanks"
	for _, c := range []struct {
		method, steps, id, en, has, lacks string
		refreshes                         bool
	}{
		{"bank_transfer", "", "Menunggu transfer Anda|Bayar sebelum <strong>2 Jan 2000, 07.00 WIB|Saya sudah membayar|Dipesan</dt><dd>1 Jan 2000, 07.00 WIB",
			"Waiting for your transfer|Pay before <strong>2 Jan 2000, 07:00 WIB|I have paid|Ordered</dt><dd>1 Jan 2000, 07:00 WIB",
			`BCA 123 456 7890 a.n. Kopi Kita.|value="1234567890"|value="170000"|value="INV-20000101-|Rp170.000|2 × Kopi Gayo|Transfer BCA|` + claim, pay + "|" + back, false},
		{"bank_transfer", "claim", "Pembayaran sedang diperiksa", "Payment is being checked", "Rp170.000", pay + "|" + claim + "|Bayar sebelum|" + back, true},
		{"bank_transfer", "claim approve", "Sudah dibayar. Terima kasih!|Kembali ke toko", "Paid. Thank you!|Back to the store", back, pay + "|" + claim, false},
		{"bank_transfer", "claim reject", "Pesanan dibatalkan|Jangan membayar lagi", "Order cancelled|Do not pay", back, pay + "|" + claim, false},
		{"bank_transfer", "+24h tick", "Waktu pembayaran habis|Jangan membayar lagi", "The time to pay is over|Do not pay", back, pay + "|" + claim + "|Bayar sebelum", false},
		{"snap", "", "Menunggu pembayaran|Bayar sekarang|Biaya layanan", "Waiting for payment|Pay now|Service fee", "Rp172.500|Rp170.000|Rp2.500|" + pay, claim + "|" + back, true},
		{"snap", "get deny", "Menunggu pembayaran|Bayar sekarang", "Waiting for payment|Pay now", pay, claim, true},
		{"snap", "get capture/challenge", "Pembayaran sedang diperiksa", "Payment is being checked", "Rp172.500", pay + "|" + claim, true},
		{"snap", "get settlement", "Sudah dibayar", "Paid. Thank you", back, pay + "|" + claim, false},
		{"snap", "get ~settlement +4s", "Sudah dibayar", "Paid. Thank you", back, pay, false}, // back from the gateway, before its notification
		{"snap", "get settlement refund", "Dana sudah dikembalikan", "The money was given back", back, pay + "|" + claim, false},
		{"snap", "get cancel", "Pesanan dibatalkan", "Order cancelled", back, pay, false},
		{"", "", "Gratis – tidak ada yang perlu dibayar", "Free – there is nothing to pay", "Rp0|Panduan", pay + "|" + claim + "|Bayar sebelum", false},
	} {
		inPayLab(t, c.method+" "+c.steps, func(t *testing.T, l *payLab) {
			order := ""
			if c.method == "" {
				order = l.orderOf("", fmt.Sprintf(`{"items":[{"type":"product","product_id":"%s","quantity":1}],"buyer":{"name":"Siti Aminah","phone":"0812 3456 789"}}`,
					l.read("SELECT id FROM products WHERE slug = 'gratis'")))
				c.has += "|•••789"
			} else {
				order = l.newOrder(c.method)
				c.has += "|s•••@example.id"
			}
			if steps, claims := strings.CutPrefix(c.steps, "claim"); claims {
				w := l.web("POST", "http://shop.test/pay/"+order, "", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
				l.want("I have paid", fmt.Sprint(w.Code, w.Header().Get("Location")), "303/pay/"+order)
				c.steps = steps
			}
			l.play(order, l.mid, "midtrans", c.steps)
			secrets := "siti@example.id|0812" // the page's address may be passed on
			l.see("http://shop.test/pay/"+order, "id", 200, "Siti Aminah|Kopi Kita|INV-20000101-|"+c.has+"|"+c.id, c.lacks+"|"+secrets)
			l.see("http://shop.test/pay/"+order, "en-GB, id;q=0.5", 200, "Siti Aminah|"+c.has+"|"+c.en, c.lacks+"|"+secrets)
			l.want("refreshes", l.web("GET", "http://shop.test/pay/"+strings.ToUpper(order), "").Header().Get("Refresh") != "", c.refreshes)
		})
	}
}

func TestPayPageMoves(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		post := func(order string, headers ...string) int {
			return l.web("POST", "http://shop.test/pay/"+order, "", headers...).Code
		}
		manual := l.newOrder("bank_transfer")
		for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
			l.want(fmt.Sprint("a post with ", headers), post(manual, headers...), 403)
		}
		l.want("after them", l.outcome(manual), "pending [], stock 8")
		for range 2 { // a button is pressed twice
			l.want("I have paid", post(manual, "Origin", "http://shop.test"), 303)
		}
		l.want("claimed", l.outcome(manual), "awaiting_verification [] orderAwaitingVerification, stock 8")
		l.want("by", l.read("SELECT actor FROM order_history WHERE order_id = ? AND to_status = 'awaiting_verification'", manual), "buyer")
		gateway := l.newOrder("snap")
		l.want("no such button for a gateway's order", post(gateway), 303)
		l.want("it", l.outcome(gateway), "pending [], stock 6")
		// Looking starts nothing, at the page or with HEAD.
		l.web("GET", "http://shop.test/pay/"+gateway, "")
		l.web("HEAD", "http://shop.test/pay/"+gateway+"/go", "")
		l.want("calls", l.callCount(), 0)
		goes := func(order string) string {
			w := l.web("GET", "http://shop.test/pay/"+order+"/go", "")
			return fmt.Sprint(w.Code, " ", strings.ReplaceAll(w.Header().Get("Location"), order, "ID"))
		}
		l.setFault(down)
		l.want("go, gateway away", goes(gateway), "303 /pay/ID?unreachable")
		l.see("http://shop.test/pay/"+gateway+"?unreachable", "id", 200, `role="alert">Halaman pembayaran belum bisa dibuka`, "")
		l.setFault(nil)
		for range 2 {
			l.want("go", goes(gateway), "303 https://app.sandbox.midtrans.com/snap/v4/redirection/token-1")
		}
		l.want("go of a manual order", goes(manual), "303 /pay/ID")
		l.play(gateway, l.mid, "midtrans", "settlement")
		l.want("go of a paid order", goes(gateway), "303 /pay/ID")
		l.want("one attempt", l.outcome(gateway), "paid [1 paid] orderPaid, stock 6")
		unknown := "0190f5a0-0000-7000-8000-000000000001"
		for _, path := range []string{"/pay/" + unknown, "/pay/x", "/pay/" + unknown + "/go", "/sandbox/" + unknown, "/sandbox/x"} {
			l.see("http://shop.test"+path, "id", 404, "Halaman ini tidak ada", "")
			l.see("http://shop.test"+path, "en", 404, "There is no such page", "")
		}
		l.want("POST to an unknown order", post(unknown), 404)
		for n, text := range map[int64]string{0: "Rp0", 999: "Rp999", 1000: "Rp1.000", 85000: "Rp85.000", 123456: "Rp123.456", maxMoney: "Rp999.999.999.999"} {
			l.want("money", rupiah(n), text)
		}
	})
}

func TestPagesAreOnTheirStoresHostOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, public, domain string
		subdomains           bool
		at                   string
		others               []string
	}{
		{"public URL", "http://shop.test:8080", "", false, "http://shop.test:8080", []string{"http://evil.test", "http://kopi-kita.shop.test:8080", "http://order.kopi.id:8080"}},
		{"any port, any case", "https://shop.test", "", false, "http://SHOP.test:9", nil},
		{"subdomain", "https://shop.test", "", true, "https://kopi-kita.shop.test", []string{"https://shop.test", "https://teh-kita.shop.test", "https://xkopi-kita.shop.test"}},
		{"domain", "https://shop.test:8443", "order.kopi.id", false, "https://order.kopi.id:8443", []string{"https://shop.test:8443", "https://order.teh.id"}},
		{"domain before subdomain", "https://shop.test", "order.kopi.id", true, "https://order.kopi.id", []string{"https://shop.test", "https://kopi-kita.shop.test"}},
	} {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) {
			l.must(l.db.setAddresses(c.public, c.subdomains, nil))
			l.addShop("teh-kita", "order.teh.id")
			_, err := l.db.SetStore(t.Context(), l.storeID, func(st *Store) error { st.Domain = c.domain; return nil })
			l.must(err)
			order := l.newOrder("sandbox")
			a := l.get(order)
			if !strings.Contains(c.name, "case") {
				l.want("checkout_url", a.Order.CheckoutURL, c.at+"/pay/"+order)
				l.want("payment_url", a.Order.PaymentURL, c.at+"/sandbox/"+a.Session.ID)
			}
			paths := []string{"/pay/" + order, "/sandbox/" + a.Session.ID}
			for _, path := range paths {
				l.see(c.at+path, "id", 200, "INV-", "")
			}
			for _, host := range c.others {
				for _, path := range append(paths, "/pay/"+order+"/go") {
					l.see(host+path, "id", 404, "tidak ada", "INV-")
				}
				l.want("POST at "+host, l.web("POST", host+"/pay/"+order, "").Code, 404)
				l.want("POST at "+host, l.web("POST", host+paths[1], "action=pay", "Content-Type", "application/x-www-form-urlencoded").Code, 404)
			}
			l.payments.askAll(t.Context(), l.payments.undecided(""))
			l.want("order", l.outcome(order), "pending [1 active], stock 8")
		})
	}
}

func TestSandboxButtons(t *testing.T) {
	t.Parallel()
	for actions, want := range map[string]string{
		"pay":         "paid [1 paid] orderPaid, stock 8",
		"twice":       "paid [1 paid] orderPaid, stock 8",
		"pay pay":     "paid [1 paid] orderPaid, stock 8",
		"deny":        "pending [1 failed], stock 8",
		"deny pay":    "paid [1 paid] orderPaid, stock 8",
		"pay deny":    "failed [1 failed] orderPaid, orderFailed, stock 10",
		"expire":      "pending [1 expired], stock 8",
		"other":       "awaiting_verification [1 paid] orderAwaitingVerification, stock 8",
		"+24h expire": "expired [1 expired] orderExpired, stock 10",
		"+25h late":   "paid [1 paid] orderExpired, orderPaid, stock 8",
		"nonsense":    "pending [1 active], stock 8",
	} {
		inPayLab(t, actions, func(t *testing.T, l *payLab) {
			order := l.newOrder("sandbox")
			address := l.get(order).Order.PaymentURL
			l.see(address, "id", 200, "Gateway percobaan: tidak ada uang sungguhan|Rp172.500|Bayar terlambat", "")
			l.see(address, "en", 200, "Sandbox gateway: no real money|Rp172.500|Pay late", "")
			for action := range strings.FieldsSeq(actions) {
				if action[0] == '+' {
					l.play(order, nil, "", action)
					continue
				}
				if action == "late" {
					l.tick()
				}
				press := func(headers ...string) *httptest.ResponseRecorder {
					return l.web("POST", address, "action="+action, append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
				}
				l.want("from another site", press("Sec-Fetch-Site", "cross-site").Code, 403)
				w := press("Sec-Fetch-Site", "same-origin")
				if got := fmt.Sprint(w.Code, w.Header().Get("Location")); got != "303/pay/"+order && action != "nonsense" {
					t.Errorf("%s: %s", action, got)
				}
				l.payments.askAll(t.Context(), l.payments.undecided(""))
			}
			l.want(actions, l.outcome(order), want)
		})
	}
	// An order made for play must not be paid for nothing once the store sells in earnest.
	inPayLab(t, "not on a live store", func(t *testing.T, l *payLab) {
		open, expired, fresh := l.newOrder("sandbox"), l.newOrder("sandbox"), l.newOrder("sandbox")
		address, late := l.get(open).Order.PaymentURL, l.get(expired).Order.PaymentURL
		l.play(expired, nil, "", "owner-cancel tick")
		l.must(l.db.SetGateway(t.Context(), l.storeID, Gateway{"midtrans", "live", "Mid-server-live", ""}))
		if w := l.web("GET", "http://shop.test/v1/payment-methods", "", "Authorization", "Bearer "+l.key); strings.Contains(w.Body.String(), "sandbox") {
			t.Errorf("%s", w.Body)
		}
		for _, page := range []string{address, late} {
			l.see(page, "id", 404, "tidak ada", "INV-")
			l.want("a button", l.web("POST", page, "action=late", "Content-Type", "application/x-www-form-urlencoded").Code, 404)
		}
		l.want("a new session", l.get(fresh).Session.Status, "unavailable")
		l.payments.askAll(t.Context(), l.payments.undecided(""))
		l.want("open", l.outcome(open), "pending [1 active], stock 6")
		l.want("expired", l.outcome(expired), "failed [1 expired] orderFailed, stock 6")
		l.play(open, nil, "", "+24h tick")
		l.want("in the end", l.outcome(open), "expired [1 expired] orderExpired, stock 10")
	})
}

// A gateway that hangs costs a buyer four seconds once, not at every look at the page.
func TestPayPageWhileTheGatewayHangs(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		time.Sleep(5 * time.Second)
		l.setFault(func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() })
		for range 8 { // whether a write or the end of its context comes first is a matter of luck
			for _, takes := range []time.Duration{4 * time.Second, 0, 0} {
				start := time.Now()
				l.want("status", l.web("GET", "http://shop.test/pay/"+order, "").Code, 200)
				l.want("time taken", time.Since(start), takes)
			}
			time.Sleep(5 * time.Second)
		}
		l.want("warning", l.read("SELECT warning FROM payment_sessions"), "context deadline exceeded")
	})
}

// see reads a page in a language and checks that it has some words and lacks others, and is safe.
func (l *payLab) see(address, lang string, status int, has, lacks string) string {
	l.t.Helper()
	w := l.web("GET", address, "", "Accept-Language", lang)
	page := html.UnescapeString(w.Body.String())
	l.want(address, w.Code, status)
	for words := range strings.SplitSeq(has, "|") {
		if !strings.Contains(page, words) {
			l.t.Errorf("%s %s lacks %q: %s", lang, address, words, page)
		}
	}
	for words := range strings.SplitSeq(lacks, "|") {
		if words != "" && strings.Contains(page, words) {
			l.t.Errorf("%s %s has %q", lang, address, words)
		}
	}
	for name, value := range pageHeaders {
		l.want(name, w.Header().Get(name), value)
	}
	if strings.Contains(page, "<script") || strings.Contains(page, " style=") || !strings.Contains(page, `<html lang="`+lang[:2]+`">`) {
		l.t.Errorf("%s has a script, a style of its own or another language", address)
	}
	return page
}

// Every page is whole in both languages and has no script.
func TestDashboardLanguages(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	o := s.place(t, s.storeID, "Siti", "x", 1)
	endpoint, err := s.db.AddEndpoint(t.Context(), s.storeID, "https://toko.example/hook", nil, newSecret())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dashboard", "/dashboard?q=siti", "/dashboard?status=paid", "/dashboard/orders/" + o.ID, "/dashboard/orders/" + o.ID + "/approve",
		"/dashboard/orders/" + o.ID + "/cancel", "/dashboard/catalog", "/dashboard/catalog?kind=bundle", "/dashboard/catalog/product", "/dashboard/catalog/bundle?slug=duo",
		"/dashboard/catalog/method", "/dashboard/payments", "/dashboard/developers", "/dashboard/endpoints/" + endpoint, "/dashboard/endpoints/" + endpoint + "/rotate",
		"/dashboard/account", "/dashboard/account/logout", "/dashboard/nothing"} {
		var bodies []string
		for _, lang := range []string{"", "en-GB,en;q=0.9,id;q=0.5"} {
			b.header.Set("Accept-Language", lang)
			p := b.get(t, path)
			for _, bad := range []string{"%!", "<no value>", "ZgotmplZ", "<script", " style=", "onclick", "<nil>"} {
				if strings.Contains(p.body, bad) {
					t.Errorf("%s has %q", path, bad)
				}
			}
			if want := map[string]string{"": `<html lang="id">`}[lang]; !strings.Contains(p.body, want) || !strings.Contains(p.body, "</html>") {
				t.Errorf("%s in %q is not whole", path, lang)
			}
			bodies = append(bodies, p.body)
		}
		if bodies[0] == bodies[1] {
			t.Errorf("%s is the same in both languages", path)
		}
	}
}

// Whatever a rule says of a form is said in Indonesian too.
func TestDashboardSayings(t *testing.T) {
	f := &form{fields: map[string]any{"products": []any{
		map[string]any{"slug": "A", "title": "", "price": nil, "stock": json.Number("x"), "image_url": "x"},
		map[string]any{"slug": "a", "title": "\x01", "price": json.Number("1")}, map[string]any{"slug": "a", "title": "a", "price": json.Number("1")}},
		"bundles":         []any{map[string]any{"slug": "b", "title": "b", "price": json.Number("1"), "items": []any{}}},
		"payment_methods": []any{map[string]any{"code": "c", "name": "c", "provider": "x", "min_amount": json.Number("2"), "max_amount": json.Number("1")}, map[string]any{"provider": 1}},
	}, faults: &faults{}}
	f.catalog()
	var texts []string
	for _, d := range f.details {
		texts = append(texts, d.Message)
	}
	for _, address := range []string{"", "http://x.example", "https://a@x.example", "https://10.0.0.1"} {
		texts = append(texts, checkWebhookURL(address, false).Message)
	}
	for _, g := range []Gateway{{Provider: "midtrans", Mode: "live"}, {Provider: "xendit", Mode: "live", SecretKey: "x"}, {Provider: "midtrans", Mode: "live", SecretKey: "SB-x"}} {
		texts = append(texts, checkGateway(g))
	}
	texts = append(texts, "created", "in the dashboard", "not paid in time: sandbox, attempt 2", "paid: midtrans, attempt 1", "Rp5 paid instead of Rp6: xendit, attempt 1")
	for _, text := range texts {
		if say("id", text) == text || say("en", text) != text {
			t.Errorf("not said in Indonesian: %s", text)
		}
	}
	if len(texts) < 16 {
		t.Errorf("only %d texts", len(texts))
	}
}

// TestBrowser has a browser do what an owner does on his first day, and axe look at every page in both languages, on a
// phone and on a desk. With SCREENSHOTS set to a folder it leaves a picture of each there.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
	paths := map[string]string{}
	for _, program := range []string{"chromium", "node", "npm"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Skipf("skipped: there is no %s here (Debian: apt install chromium nodejs npm)", program)
		}
		paths[program] = path
	}
	dir := t.TempDir()
	manifest, err := os.ReadFile(".ci/browser/package.json")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), paths["npm"], "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("skipped: npm cannot install what drives the browser: %v\n%s", err, out)
	}

	s := newShop(t, "http://shop.test")
	address := strings.Replace(s.url, "127.0.0.1", "toko.test", 1)
	if err := s.db.setAddresses(address, false, nil); err != nil { // the browser has to reach the pay page
		t.Fatal(err)
	}
	s.exec(t, "UPDATE products SET stock = 40")
	var orders []Order
	for i, buyer := range []string{"Siti Nurhaliza", "Budi Santoso", "Dewi Lestari Ratnaningsih Kusumawardhani", "Agus", "Rina", "Tono Wijaya", "Ayu"} {
		orders = append(orders, s.place(t, s.storeID, buyer, map[bool]string{true: fmt.Sprintf("toko-%d", 1040+i)}[i%2 == 0], int64(i%3+1)))
	}
	for i, m := range []Transition{OwnerApproves, OwnerCancels, ClockExpires, BuyerClaims, OwnerApproves} {
		s.move(t, orders[i].ID, m)
	}
	s.move(t, orders[0].ID, OwnerRefunds)
	s.exec(t, "UPDATE orders SET oversold = 1 WHERE id = ?", orders[4].ID)
	today := dayOf(Time(time.Now().UnixMilli()))
	for i := range int64(29) {
		s.exec(t, "INSERT INTO daily_totals VALUES (?, ?, ?, ?)", s.storeID, today-29+i, i*7%11, i*7%11*137_500)
	}
	if _, err := s.db.AddKey(t.Context(), s.storeID, "gudang", [32]byte{1}); err != nil {
		t.Fatal(err)
	}
	endpoint, err := s.db.AddEndpoint(t.Context(), s.storeID, "https://gudang.example.id/webhooks/pesanan/masuk/dari/toko", nil, newSecret())
	if err != nil {
		t.Fatal(err)
	}
	refused := s.place(t, s.storeID, "Wati", "", 1)
	s.exec(t, "UPDATE deliveries SET status = 'failed', next_at = NULL, attempt = 10, tried_at = 1, answer_status = 500, answer = '<html><title>Internal Server Error</title>'")
	s.exec(t, "UPDATE endpoints SET failures = 10 WHERE id = ?", endpoint)
	if err := s.db.Ping(t.Context(), s.storeID, endpoint); err != nil {
		t.Fatal(err)
	}
	if err := s.db.SetGateway(t.Context(), s.storeID, Gateway{Provider: "xendit", Mode: "sandbox", SecretKey: "xnd_development_x", CallbackToken: "x"}); err != nil {
		t.Fatal(err)
	}
	p, err := s.db.CatalogEntry(s.storeID, "product", "kopi")
	if err != nil {
		t.Fatal(err)
	}
	keyID := scalar[string](t, s.db, "SELECT id FROM api_keys")
	newcomer, _ := s.addStore(t, "baru", "free")
	s.exec(t, "DELETE FROM api_keys WHERE store_id = ?", newcomer)
	if err := s.db.SetPassword(t.Context(), newcomer, ownerHash); err != nil {
		t.Fatal(err)
	}
	order := "/dashboard/orders/" + refused.ID
	task := map[string]any{"chromium": paths["chromium"], "url": address, "api": s.url, "email": "kopi-kita@example.id", "password": ownerPassword, "newcomer": "baru@example.id", "shots": os.Getenv("SCREENSHOTS"),
		"orderBody":   fmt.Sprintf(`{"items":[{"type":"product","product_id":"%s","quantity":2}],"buyer":{"name":"Siti","phone":"08123456789"},"payment_method":"bank"}`, p.ID),
		"publicPages": []string{"/pay/" + refused.ID, "/pay/" + orders[3].ID, "/pay/" + orders[4].ID},
		"pages": []string{"/dashboard", "/dashboard?status=expired", "/dashboard?status=refunded&q=nobody", order, order + "/approve", "/dashboard/orders/" + orders[4].ID, order + "/cancel",
			"/dashboard/catalog", "/dashboard/catalog?kind=bundle", "/dashboard/catalog/product", "/dashboard/catalog/bundle?slug=duo", "/dashboard/catalog/method?slug=bank",
			"/dashboard/payments", "/dashboard/developers", "/dashboard/keys/" + keyID + "/revoke", "/dashboard/endpoints/" + endpoint,
			"/dashboard/endpoints/" + endpoint + "/remove", "/dashboard/account", "/dashboard/account/logout", "/dashboard/nothing"}}
	script, err := filepath.Abs(".ci/browser/check.mjs")
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), paths["node"], script)
	check.Dir, check.Stdin = dir, bytes.NewReader(mustJSON(task))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
