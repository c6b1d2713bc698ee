//go:build cgo

package main

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pageHeaders are on every page.
var pageHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data: https:; " +
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	"X-Content-Type-Options": "nosniff",
	"Referrer-Policy":        "same-origin",
	"Cache-Control":          "no-store",
	"Content-Type":           "text/html; charset=utf-8",
}

// see reads a page in a language and checks that it is safe, has some texts and lacks others. The texts have
// | between them.
func (l *payLab) see(address, lang string, status int, has, lacks string) string {
	l.t.Helper()
	w := l.web("GET", address, "", "Accept-Language", lang)
	page := readable(w.Body.String())
	l.want(address, w.Code, status)
	for name, value := range pageHeaders {
		l.want(name, w.Header().Get(name), value)
	}

	has += `|<html lang="` + lang[:2] + `">`
	for text := range strings.SplitSeq(has, "|") {
		if !strings.Contains(page, text) {
			l.t.Errorf("%s %s lacks %q: %s", lang, address, text, page)
		}
	}

	lacks += "|<script| style="
	for text := range strings.SplitSeq(lacks, "|") {
		if text != "" && strings.Contains(page, text) {
			l.t.Errorf("%s %s has %q", lang, address, text)
		}
	}
	return page
}

// seePage is see for a page that is there, in both languages, with lists of texts.
func (l *payLab) seePage(address string, has map[string][]string, lacks []string) {
	l.t.Helper()
	for lang, header := range map[string]string{
		"id": "id",
		"en": "en-GB, id;q=0.5",
	} {
		texts := slices.Concat(has["both"], has[lang])
		l.see(address, header, 200, strings.Join(texts, "|"), strings.Join(lacks, "|"))
	}
}

// seeNoPage is see for a page that does not exist, in both languages.
func (l *payLab) seeNoPage(address string) {
	l.t.Helper()
	l.see(address, "id", 404, "Halaman ini tidak ada", "INV-")
	l.see(address, "en", 404, "This page does not exist", "INV-")
}

// submit posts a form as a browser does on the service's own page, or from another site.
func (l *payLab) submit(address, form, site string) *httptest.ResponseRecorder {
	return l.web("POST", address, form,
		"Content-Type", "application/x-www-form-urlencoded",
		"Sec-Fetch-Site", site)
}

// payPageCase is a section of testdata/pay-page.txt, which explains its parts.
type payPageCase struct {
	name   string
	method string
	steps  string
	has    map[string][]string // id, en or both
	lacks  []string
}

// payPageWords are the words of testdata/pay-page.txt.
var payPageWords = map[string]string{
	"claim":    `/claim" rel="nofollow">`,
	"takeback": `/unclaim">`,
	"pay":      `/go" rel="nofollow">`,
	"back":     "https://kopi.example.id/thanks",
}

func readPayPageCases(t *testing.T) (all []payPageCase) {
	t.Helper()
	for _, section := range readSections(t, "testdata/pay-page.txt") {
		c := payPageCase{
			name: section.heading,
			has:  map[string][]string{},
		}
		c.method, c.steps, _ = strings.Cut(section.heading, " ")

		for _, line := range section.cases {
			part := line.column(0)
			var texts []string
			for _, text := range line.columns[1:] {
				texts = append(texts, withWords(text, payPageWords))
			}

			if part == "lacks" {
				c.lacks = texts
			} else {
				c.has[part] = append(c.has[part], texts...)
			}
		}
		all = append(all, c)
	}
	return all
}

// newFreeOrder orders a product that costs nothing, by a buyer who gives no e-mail address.
func (l *payLab) newFreeOrder() string {
	l.t.Helper()
	return l.orderOf("", fmt.Sprintf(`{
		"items": [{"type": "product", "product_id": "%s", "quantity": 1}],
		"buyer": {"name": "Siti Aminah", "phone": "0812 3456 789"}
	}`, l.read("SELECT id FROM products WHERE slug = 'gratis'")))
}

// TestPayPageSaysWhereTheOrderStands reads the pay page in the states of testdata/pay-page.txt.
func TestPayPageSaysWhereTheOrderStands(t *testing.T) {
	t.Parallel()
	for _, c := range readPayPageCases(t) {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) { c.check(l) })
	}
}

func (c payPageCase) check(l *payLab) {
	contact := "s•••@example.id"
	var order string
	if c.method == "free" {
		order = l.newFreeOrder()
		contact = "•••789"
	} else {
		order = l.newOrder(c.method)
	}

	page := "https://shop.test/pay/" + order
	l.play(order, l.mid, "midtrans", c.steps)

	// The buyer can always go back to the shop, or ask it. Others may read the page too, because buyers pass on its address.
	c.has["both"] = append(c.has["both"],
		"Siti Aminah",
		"Kopi Kita",
		"INV-20000101-",
		"https://wa.me/6281234567890?text=",
		contact)
	if c.method != "free" {
		c.has["both"] = append(c.has["both"], "https://kopi.example.id/thanks")
	}
	c.lacks = append(c.lacks,
		"siti@example.id",
		"0812")
	l.seePage(page, c.has, c.lacks)

	capitals := "https://shop.test/pay/" + strings.ToUpper(order)
	refresh := l.web("GET", capitals, "").Header().Get("Refresh")
	l.want("reloads by itself", refresh, "")
}

// TestEveryButtonOfABuyer presses the buttons of the pay page, and from other sites.
func TestEveryButtonOfABuyer(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		post := func(order, button string, headers ...string) int {
			return l.web("POST", "https://shop.test/pay/"+order+"/"+button, "", headers...).Code
		}
		const own = "https://shop.test"

		order := l.newOrder("bank_transfer")
		for _, foreign := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://evil.example"},
			{"Origin", "null"},
		} {
			l.want(strings.Join(foreign, " "), post(order, "claim", foreign...), 403)
		}
		l.see("https://shop.test/pay/"+order+"/claim", "id", 200, "Sudah transfer|Nama pengirim", "")
		l.see("https://shop.test/pay/"+order+"/claim", "en", 200, "Have you transferred|Sender’s name", "")
		l.want("after them", l.outcome(order), "pending [], stock 8")

		l.want("the button", post(order, "claim", "Origin", own), 303)
		l.want("the button again", post(order, "claim", "Origin", own), 303)
		l.want("after them",
			l.outcome(order),
			"awaiting_verification [] orderAwaitingVerification, stock 8")
		l.want("taking it back from another site", post(order, "unclaim", "Origin", "https://evil.example"), 403)

		actor := l.read(`
			SELECT actor
			FROM   order_history
			WHERE  order_row = (SELECT row FROM orders WHERE id = ?) AND to_status = 'awaiting_verification'`, order)
		l.want("by", actor, "buyer")

		gateway := l.newOrder("snap")
		l.want("a gateway's order has no such button", post(gateway, "claim"), 303)
		l.want("nor this one", post(gateway, "unclaim"), 303)
		l.want("after it", l.outcome(gateway), "pending [], stock 6")
		l.want("an unknown order", post(unknownID, "claim"), 404)
		l.want("an unknown order", post(unknownID, "unclaim"), 404)
	})
}

// unknownID is the id of nothing.
const unknownID = "0190f5a0-0000-7000-8000-000000000001"

// follow requests the link of a pay page to the gateway's page and returns the answer, such as "303 /pay/ID".
func (l *payLab) follow(order string) string {
	w := l.web("GET", "https://shop.test/pay/"+order+"/go", "")
	location := w.Header().Get("Location")
	return fmt.Sprint(w.Code, " ", strings.ReplaceAll(location, order, "ID"))
}

func TestGoToTheGateway(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		page := "https://shop.test/pay/" + order

		// Nothing starts when someone only looks.
		l.web("GET", page, "")
		l.web("HEAD", page+"/go", "")
		l.want("calls", l.callCount(), 0)

		l.setFault(down)
		l.want("the gateway is away",
			l.follow(order),
			"303 /pay/ID?unreachable")
		l.see(page+"?unreachable", "id", 200,
			`role="alert">Halaman pembayaran belum bisa dibuka`,
			"")

		l.setFault(nil)
		l.want("at once", l.follow(order), "303 /pay/ID?unreachable")
		time.Sleep(startAgainAfter)
		const gatewayPage = "https://app.sandbox.midtrans.com/snap/v4/redirection/token-1"
		l.want("the gateway is back", l.follow(order), "303 "+gatewayPage)
		l.want("a second time", l.follow(order), "303 "+gatewayPage)

		l.play(order, l.mid, "midtrans", "settlement")
		l.want("a paid order", l.follow(order), "303 /pay/ID")
		l.want("in the end", l.outcome(order), "paid [1 paid] orderPaid, stock 8")

		manual := l.newOrder("bank_transfer")
		l.want("a manual order", l.follow(manual), "303 /pay/ID")
	})
}

func TestUnknownPages(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		for _, path := range []string{
			"/pay/" + unknownID,
			"/pay/" + unknownID + "/go",
			"/pay/x",
			"/sandbox/" + unknownID,
			"/sandbox/x",
		} {
			l.seeNoPage("https://shop.test" + path)
		}
	})
}

func TestRupiah(t *testing.T) {
	t.Parallel()
	for amount, want := range map[int64]string{
		0:        "Rp0",
		999:      "Rp999",
		1000:     "Rp1.000",
		85000:    "Rp85.000",
		123456:   "Rp123.456",
		maxMoney: "Rp999.999.999.999",
	} {
		if got := rupiah(amount); got != want {
			t.Errorf("%d is written %s, want %s", amount, got, want)
		}
	}
}

func TestPagesAreOnTheirStoresHostOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []hostCase{
		{
			name:   "public URL",
			public: "http://shop.test:8080",
			at:     "http://shop.test:8080",
			others: []string{
				"http://evil.test",
				"http://kopi-kita.shop.test:8080",
				"http://order.kopi.id:8080",
			},
		},
		{
			name:     "any port, any case",
			public:   "https://shop.test",
			at:       "http://SHOP.test:9",
			anywhere: true,
		},
		{
			name:       "subdomain",
			public:     "https://shop.test",
			subdomains: true,
			at:         "https://kopi-kita.shop.test",
			others: []string{
				"https://shop.test",
				"https://teh-kita.shop.test",
				"https://xkopi-kita.shop.test",
			},
		},
		{
			name:   "domain",
			public: "https://shop.test:8443",
			domain: "order.kopi.id",
			at:     "https://order.kopi.id:8443",
			others: []string{"https://shop.test:8443", "https://order.teh.id"},
		},
		{
			name:       "domain before subdomain",
			public:     "https://shop.test",
			domain:     "order.kopi.id",
			subdomains: true,
			at:         "https://order.kopi.id",
			others:     []string{"https://shop.test", "https://kopi-kita.shop.test"},
		},
	} {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) { c.check(l) })
	}
}

// hostCase is a way to serve a store, and the hosts at which its pages are and are not.
type hostCase struct {
	name       string
	public     string // the service's address
	subdomains bool   // each store has one
	domain     string // the store's own
	at         string
	anywhere   bool // at is not the address that the API names
	others     []string
}

func (c hostCase) check(l *payLab) {
	l.must(l.db.setAddresses(c.public, c.subdomains, nil))
	l.addShop("teh-kita", "order.teh.id")
	_, err := l.db.SetStore(l.t.Context(), l.storeID, func(st *StoreProfile) error {
		st.Domain = c.domain
		return nil
	})
	l.must(err)

	order := l.newOrder("sandbox")
	a := l.get(order)
	payPage := "/pay/" + order
	sandboxPage := "/sandbox/" + a.Session.ID
	if !c.anywhere {
		l.want("checkout_url", a.Order.CheckoutURL, c.at+payPage)
		l.want("payment_url", a.Order.PaymentURL, c.at+sandboxPage)
	}
	l.see(c.at+payPage, "id", 200, "INV-", "")
	l.see(c.at+sandboxPage, "id", 200, "INV-", "")

	for _, host := range c.others {
		l.seeNoPage(host + payPage)
		l.seeNoPage(host + payPage + "/go")
		l.seeNoPage(host + sandboxPage)

		claim := l.submit(host+payPage+"/claim", "", "same-origin")
		l.want("I have paid, at "+host, claim.Code, 404)
		pay := l.submit(host+sandboxPage, "action=pay", "same-origin")
		l.want("pay, at "+host, pay.Code, 404)
	}

	l.settle()
	l.want("in the end", l.outcome(order), "pending [1 active], stock 8")
}

// press presses a button of the sandbox's page and returns the answer, such as "303 /pay/ID". Pressed from
// another site it does nothing.
func (l *payLab) press(address, order, button string) string {
	l.t.Helper()
	form := "action=" + button
	foreign := l.submit(address, form, "cross-site")
	l.want(button+" from another site", foreign.Code, 403)

	w := l.submit(address, form, "same-origin")
	l.settle()
	location := w.Header().Get("Location")
	answer := fmt.Sprint(w.Code, " ", strings.ReplaceAll(location, order, "ID"))
	return strings.TrimSpace(answer)
}

// sandboxTexts are on the sandbox's page by language.
var sandboxTexts = map[string][]string{
	"both": {"Rp172.500"},
	"id":   {"Gateway uji coba: tidak ada uang sungguhan", "Bayar terlambat"},
	"en":   {"Sandbox gateway: no real money", "Pay late"},
}

// TestSandboxButtons presses the buttons of testdata/sandbox-buttons.txt.
func TestSandboxButtons(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/sandbox-buttons.txt") {
		inPayLab(t, c.column(0), func(t *testing.T, l *payLab) {
			order := l.newOrder("sandbox")
			address := l.get(order).Order.PaymentURL
			l.seePage(address, sandboxTexts, nil)

			for step := range strings.FieldsSeq(c.column(0)) {
				switch {
				case step == "tick" || step[0] == '+':
					l.play(order, nil, "", step)
				case step == "nonsense":
					l.want(step, l.press(address, order, step), "404")
				default:
					l.want(step, l.press(address, order, step), "303 /pay/ID")
				}
			}
			l.want("in the end", l.outcome(order), c.column(1))
		})
	}
}

// TestSandboxOutsideTestMode starts sessions of the sandbox before the store leaves test mode. Afterwards nobody
// can pay for nothing.
func TestSandboxOutsideTestMode(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		open := l.newOrder("sandbox")
		openPage := l.get(open).Order.PaymentURL
		ended := l.newOrder("sandbox")
		endedPage := l.get(ended).Order.PaymentURL
		l.play(ended, nil, "", "owner-cancel tick")
		fresh := l.newOrder("sandbox")

		l.setStore(l.storeID, func(st *StoreProfile) { st.TestMode = false })

		l.seePage("https://shop.test/pay/"+fresh, nil, []string{"Mode uji coba", "Test mode"})
		methods := l.web("GET", "https://shop.test/v1/payment-methods", "", "Authorization", "Bearer "+l.key)
		if strings.Contains(methods.Body.String(), "sandbox") {
			t.Errorf("the sandbox is offered: %s", methods.Body)
		}
		l.want("a new session", l.get(fresh).Session.Status, "unavailable")

		for _, page := range []string{openPage, endedPage} {
			l.seeNoPage(page)
			button := l.submit(page, "action=late", "same-origin")
			l.want("a button", button.Code, 404)
		}
		l.settle()

		l.want("the open order",
			l.outcome(open),
			"pending [1 active], stock 6")
		l.want("the ended order",
			l.outcome(ended),
			"failed [1 expired] orderFailed, stock 6")

		l.play(open, nil, "", "+24h tick")
		l.want("the open order in the end",
			l.outcome(open),
			"expired [1 expired] orderExpired, stock 10")
	})
}

// TestPayPageWhileTheGatewayHangs looks at a pay page again and again. A gateway that hangs costs the buyer
// four seconds once, and not at every look.
func TestPayPageWhileTheGatewayHangs(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		time.Sleep(5 * time.Second)
		l.setFault(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})

		look := func(takes time.Duration) {
			start := time.Now()
			w := l.web("GET", "https://shop.test/pay/"+order, "")
			l.want("status", w.Code, 200)
			l.want("time taken", time.Since(start), takes)
		}
		for range 8 { // because the write and the end of its context race
			look(4 * time.Second)
			look(0)
			look(0)
			time.Sleep(5 * time.Second)
		}

		l.want("problem", l.problem(order), "unreachable context deadline exceeded")
	})
}

// pageWords are the words of testdata/dashboard-pages.txt: an order, and a new key and endpoint of the store.
func (s *testServer) pageWords(t *testing.T, o Order) map[string]string {
	t.Helper()
	const address = "https://gudang.example.id/webhooks/pesanan/masuk/dari/toko"
	return map[string]string{
		"order":    o.ID,
		"key":      s.keyOf(t, s.storeID, "gudang"),
		"endpoint": s.endpointOf(t, s.storeID, address),
	}
}

// TestDashboardLanguages reads the pages of testdata/dashboard-pages.txt in both languages.
func TestDashboardLanguages(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	words := s.pageWords(t, s.place(t, s.storeID, "Siti", "x", 1))

	for _, c := range readCases(t, "testdata/dashboard-pages.txt") {
		t.Run(c.column(0), func(t *testing.T) {
			status, err := strconv.Atoi(c.heading)
			must(t, err)
			path := withWords(c.column(0), words)
			indonesian, english := c.column(1), c.column(2)

			b.header.Set("Accept-Language", "")
			page := b.get(t, path)
			page.isWhole(t, status, "id")
			page.has(t, status, indonesian)
			page.lacks(t, english)

			b.header.Set("Accept-Language", "en-GB,en;q=0.9,id;q=0.5")
			page = b.get(t, path)
			page.isWhole(t, status, "en")
			page.has(t, status, english)
			page.lacks(t, indonesian)
		})
	}
}

// isWhole checks that a page is in a language, that its template found its data, and that the page has no
// scripts and no styles of its own.
func (p screen) isWhole(t *testing.T, status int, lang string) {
	t.Helper()
	p.has(t, status,
		`<html lang="`+lang+`">`,
		"</html>")
	p.lacks(t,
		"%!",
		"<no value>",
		"<nil>",
		"ZgotmplZ",
		"<script",
		" style=",
		"onclick")
}

// wordsFor renders a template of web/ that puts a code into words.
func wordsFor(t *testing.T, lang, template string, code any) string {
	t.Helper()
	var b strings.Builder
	must(t, pages[lang]().ExecuteTemplate(&b, template, code))
	return strings.TrimSpace(b.String())
}

// codeKind is a kind of codes: the beginning of their constants' names, and the template that says them in
// words.
type codeKind struct {
	prefix   string
	template string
	value    func(code string) any // for the template
}

var codeKinds = []codeKind{
	{"Session", "session-state", itself},
	{"State", "gateway-state", itself},
	{"Off", "off-reason", itself},
	{"Note", "note", func(code string) any { return Note{Code: NoteCode(code)} }},
	{"Alert", "alert", func(code string) any { return Alert{Code: AlertCode(code)} }},
	{"Problem", "problem", func(code string) any {
		return PaymentSession{Provider: ProviderMidtrans, AccountID: "1", Problem: Problem(code)}
	}},
	{"offer", "offer", itself},
	{"Fault", "fault-text", func(code string) any { return Fault{Code: FaultCode(code)} }},
}

func itself(code string) any { return code }

// TestEveryCodeHasWords finds the program's codes in its source.
func TestEveryCodeHasWords(t *testing.T) {
	t.Parallel()
	for _, kind := range codeKinds {
		t.Run(kind.template, func(t *testing.T) {
			for name, code := range constants(t, kind.prefix) {
				if name == "NoteText" { // The words are a person's.
					continue
				}

				value := kind.value(code)
				id := wordsFor(t, "id", kind.template, value)
				en := wordsFor(t, "en", kind.template, value)
				if id == "" || id == en {
					t.Errorf("%s is %q in Indonesian and %q in English", name, id, en)
				}
			}
		})
	}
}

// storedCodes matches the codes that the program stores or passes to its pages: the statuses, and the constants
// whose names begin with one of these words.
func storedCodes(t *testing.T) *regexp.Regexp {
	t.Helper()
	const prefixes = "(Note|Fault|Session|State|Delivery|Off|Actor|Alert|Problem)"
	// Codes that are words of the pages too, or begin addresses.
	ordinary := []string{"mode", "gateway", "https"}

	codes := toStrings(statuses)
	for _, code := range constants(t, prefixes) {
		if !slices.Contains(ordinary, code) {
			codes = append(codes, regexp.QuoteMeta(code))
		}
	}
	if len(codes) < 40 {
		t.Errorf("only %d codes found", len(codes))
	}
	return regexp.MustCompile(`\b(` + strings.Join(codes, "|") + `)\b`)
}

// notShown matches tags with their attributes, the values of forms, and what another program said.
var notShown = regexp.MustCompile(`(?s)<textarea.*?</textarea>|<code>.*?</code>|<[^>]*>`)

// showsNoCode reports the codes among the words that a page shows.
func (p screen) showsNoCode(t *testing.T, codes *regexp.Regexp) {
	t.Helper()
	shown := notShown.ReplaceAllString(p.body, " ")
	shown = html.UnescapeString(shown)

	for _, at := range codes.FindAllStringIndex(shown, -1) {
		before := shown[:at[0]]
		code := shown[at[0]:at[1]]
		t.Errorf("the page says %q after %q", code, before[max(0, len(before)-40):])
	}
}

// seesNoCode reads pages and reports the codes that they show.
func (b *browser) seesNoCode(t *testing.T, codes *regexp.Regexp, paths ...string) {
	t.Helper()
	for _, path := range paths {
		b.get(t, path).showsNoCode(t, codes)
	}
}

// waysTo are the transitions that lead an order into each status.
var waysTo = map[Status][]Transition{
	Pending:              nil,
	AwaitingVerification: {BuyerClaims},
	Paid:                 {OwnerApproves},
	Failed:               {OwnerCancels},
	Expired:              {ClockExpires},
	Refunded:             {OwnerApproves, OwnerRefunds},
}

// addNotes adds a note with each code to an order's history.
func (s *testServer) addNotes(t *testing.T, o Order, status Status) {
	t.Helper()
	codes := constants(t, "Note")
	must(t, s.db.write(t.Context(), func(tx *Tx) error {
		for _, code := range codes {
			note := Note{
				Code:        NoteCode(code),
				Text:        "lihat mutasi",
				Provider:    ProviderSandbox,
				Attempt:     2,
				State:       StateDenied,
				Amount:      5000,
				Due:         6000,
				Status:      status,
				Transaction: "tx-1",
			}
			entry := HistoryEntry{
				From:  status,
				To:    status,
				Actor: ActorGateway,
				Note:  note,
			}
			err := tx.addHistory(o.ID, entry)
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// addSessions adds payment sessions to an order and returns the paths of their pages. Their gateway could
// not be asked.
func (s *testServer) addSessions(t *testing.T, o Order, states ...SessionState) (pages []string) {
	t.Helper()
	now := timeOf(time.Now())
	for i, state := range states {
		id := fmt.Sprintf("%s-%d", o.ID, i+1)
		s.exec(t, `
			INSERT INTO payment_sessions
			       (id, order_row, provider, attempt, status, problem, problem_text,
			        expires_at, checked_at, created_at, next_check_at)
			VALUES (?, ?, 'sandbox', ?, ?, 'unreachable', 'connection refused', ?, ?, ?, ?)`,
			id, rowOf(o.ID), i+1, state,
			now.Add(time.Hour), now, now, now.Add(time.Hour))
		pages = append(pages, "/sandbox/"+id)
	}
	return pages
}

// placeWithCodes creates an order in a status, with a note of every code.
func (s *testServer) placeWithCodes(t *testing.T, status Status) Order {
	t.Helper()
	o := s.place(t, s.storeID, "Siti", "", 1)
	for _, transition := range waysTo[status] {
		s.move(t, o.ID, transition)
	}
	s.addNotes(t, o, status)
	return o
}

// alert marks an order that a gateway settles as overpaid, and any other one as oversold.
func (s *testServer) alert(t *testing.T, o Order, channel Channel) {
	t.Helper()
	if channel == ChannelManual {
		s.raiseAlert(t, o.ID, Alert{Code: AlertOversold})
		return
	}

	s.raiseAlert(t, o.ID, Alert{Code: AlertOverpaid, Amount: 5000})
	s.exec(t, `
		UPDATE orders
		SET    provider = 'sandbox',
		       json = json_set(json,
		           '$.payment_provider', 'sandbox',
		           '$.settlement_channel', 'gateway')
		WHERE  id = ?`, o.ID)
}

// addEndpointsWithCodes adds endpoints that are off for each reason, and gives the deliveries each state. It
// returns the paths of the endpoints' pages.
func (s *testServer) addEndpointsWithCodes(t *testing.T) (pages []string) {
	t.Helper()
	for _, reason := range []OffReason{OffByOwner, OffGone} {
		id := s.endpointOf(t, s.storeID, "https://toko.example/hook")
		err := s.db.SwitchEndpoint(t.Context(), s.storeID, id, false)
		must(t, err)
		s.exec(t, "UPDATE endpoints SET off_reason = ? WHERE id = ?", reason, id)
		pages = append(pages, "/dashboard/endpoints/"+id)
	}

	const setState = `
		UPDATE deliveries
		SET    status = ?, next_at = NULL, attempt = 10, answer = 'connection refused'
		WHERE  event_row IN (SELECT row FROM events WHERE event = ?)`
	s.exec(t, setState, DeliveryDelivered, OrderPaid)
	s.exec(t, setState, DeliveryFailed, OrderCreated)
	return pages
}

// sessionStates are the states of an order's payment sessions. One session can be live: starting or active.
var sessionStates = map[Channel][]SessionState{
	ChannelManual:  {SessionPaid, SessionFailed, SessionExpired, SessionStarting},
	ChannelGateway: {SessionPaid, SessionFailed, SessionExpired, SessionActive},
}

// TestPagesShowNoCodes reads every page in Indonesian, about orders in every status with every note. Codes
// are for programs: to people they are said in words.
func TestPagesShowNoCodes(t *testing.T) {
	s := newShop(t, "http://shop.test")
	must(t, s.db.setAddresses(s.url, false, nil)) // so that the pay pages are there
	b := s.owner(t, "kopi-kita@example.id")
	words := s.pageWords(t, s.place(t, s.storeID, "Siti", "", 1))
	codes := storedCodes(t)

	for channel, states := range sessionStates {
		for _, status := range statuses {
			o := s.placeWithCodes(t, status)
			s.alert(t, o, channel)
			pages := s.addSessions(t, o, states...)
			t.Run(fmt.Sprintf("%s order, %s", channel, status), func(t *testing.T) {
				b.seesNoCodeOf(t, codes, o, pages)
			})
		}
	}

	t.Run("the sandbox, whatever it says", func(t *testing.T) {
		o := s.place(t, s.storeID, "Siti", "", 1)
		page := s.addSessions(t, o, SessionActive)[0]
		session := strings.TrimPrefix(page, "/sandbox/")

		for _, state := range constants(t, "State") {
			answer := GatewayAnswer{State: GatewayState(state)}
			must(t, s.db.SetSandbox(t.Context(), session, answer))
			b.sees(t, page, "Jawaban gateway")
			b.seesNoCode(t, codes, page)
		}
	})

	t.Run("the other pages of the dashboard", func(t *testing.T) {
		pages := s.addEndpointsWithCodes(t)
		for _, c := range readCases(t, "testdata/dashboard-pages.txt") {
			pages = append(pages, withWords(c.column(0), words))
		}
		b.seesNoCode(t, codes, pages...)
	})
}

// seesNoCodeOf reads the pages about an order: those of its owner, and those of its buyer with the sandbox's.
func (b *browser) seesNoCodeOf(t *testing.T, codes *regexp.Regexp, o Order, sandbox []string) {
	t.Helper()
	page := "/dashboard/orders/" + o.ID
	b.sees(t, page, "lihat mutasi", "belum bisa dihubungi")
	b.seesNo(t, page, "connection refused")
	b.seesNoCode(t, codes,
		"/dashboard?q="+o.PaymentReference,
		page,
		page+"/approve",
		page+"/reject",
		page+"/cancel",
		page+"/refund",
		page+"/resolve")

	public := append(sandbox,
		"/pay/"+o.ID,
		"/pay/"+o.ID+"?unreachable")
	for _, path := range public {
		b.sees(t, path, o.PaymentReference)
		b.seesNo(t, path, "connection refused")
	}
	b.seesNoCode(t, codes, public...)
}

// TestRequestAtAnotherHost asks for a pay page at a host that no store has, as a proxy that is set up wrong does.
func TestRequestAtAnotherHost(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	id := s.create(t, "teh", 1)
	req, err := http.NewRequestWithContext(t.Context(), "GET", "https://127.0.0.1:8080/pay/"+id, nil)
	must(t, err)
	resp, err := s.client.Do(req)
	must(t, err)
	if resp.StatusCode != 404 {
		t.Errorf("answer %d, want 404", resp.StatusCode)
	}
	log := s.logs.String()
	if !strings.Contains(log, "host=127.0.0.1:8080 own_host=shop.test") {
		t.Errorf("the log does not name the hosts:\n%s", log)
	}
	if strings.Contains(log, id) {
		t.Error("the log holds the order's id")
	}
}

// readable is a page's HTML with its texts as people read them: without escapes, and without the marks around names
// that keep the direction of their writing from what stands around them.
func readable(body string) string {
	return strings.NewReplacer("<bdi>", "", "</bdi>", "").Replace(html.UnescapeString(body))
}
