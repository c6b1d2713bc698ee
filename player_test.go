package main

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-sqlite3"
)

// This file plays the stories in testdata/, which testdata/README.md explains: what people, programs,
// gateways and time do to orders, and what is to be seen of that from outside.

// story is a sentence with the lines below it, each after its place.
type story struct {
	name  string
	lines []string
}

// readStories reads a file of stories. A line that begins with "Before each: " is played before every story
// below it.
func readStories(t *testing.T, file string) (all []story) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	var before []string
	for i, line := range strings.Split(string(text), "\n") {
		place := fmt.Sprintf("%s:%d: ", filepath.Base(file), i+1)
		setup, isSetup := strings.CutPrefix(line, "Before each: ")
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case isSetup:
			before = []string{place + setup}
		case line[0] != ' ':
			all = append(all, story{line, slices.Clone(before)})
		default:
			s := &all[len(all)-1]
			s.lines = append(s.lines, place+expand(strings.TrimSpace(line)))
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no stories", file)
	}
	return all
}

// playStories plays each story of a file in a bubble of its own.
func playStories(t *testing.T, file string) {
	t.Parallel()
	for _, s := range readStories(t, file) {
		t.Run(s.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				newPlayer(t, w).play(s.lines...)
				w.net.mu.Lock()
				defer w.net.mu.Unlock()
				if f := w.net.fault; f.kind != "none" && !f.met {
					t.Errorf("no call has met the fault %q", f.kind+" "+f.on)
				}
			})
		})
	}
}

// player plays a story.
type player struct {
	*world
	t      *testing.T
	line   string // that is being played
	people map[string]*person
	who    *person
	// what $name stands for: keys by their scope, ids of orders, what the story keeps from pages
	kept    map[string]string
	order   string // the id of the order that the story is about
	refused string // the answer to the last step, if it was a refusal that nobody has expected yet

	// the last notification that a gateway has written
	notice struct {
		path, body string
		header     []string
	}
}

// person is somebody in a story. All have a browser, and the key of a store's program.
type person struct {
	name     string
	store    *store
	key      string
	once     string // the Idempotency-Key of what they ask the API for
	browser  *http.Client
	inside   bool // signed in
	status   int  // of the last answer
	response response
	page     *screen
	text     string // that they read last
	html     string // of the page
	header   http.Header
}

func newPlayer(t *testing.T, w *world) *player {
	p := &player{world: w, t: t, people: map[string]*person{}, kept: maps.Clone(w.shop.keys)}
	p.kept["shop"], p.kept["other"] = w.shop.id, w.other.id
	p.kept["email"], p.kept["password"] = w.shop.email, w.shop.password
	p.kept["code"], p.kept["codeOf85347"] = ownCodeText, codeOf85347
	for _, name := range strings.Fields("shop owner buyer anon other") {
		jar, _ := cookiejar.New(nil)
		browser := &http.Client{Jar: jar, CheckRedirect: stayHere}
		p.people[name] = &person{name: name, store: w.shop, browser: browser}
	}
	p.people["other"].store = w.other
	p.who = p.people["shop"]
	return p
}

// stayHere follows redirects, but not to a gateway's page.
func stayHere(r *http.Request, via []*http.Request) error {
	if r.URL.Host != "shop.test" || len(via) > 5 {
		return http.ErrUseLastResponse
	}
	return nil
}

func (p *player) fatalf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\n%s", p.line, fmt.Sprintf(format, args...))
}

var (
	linePlace = regexp.MustCompile(`^\S+\.txt:\d+: `)
	repeated  = regexp.MustCompile(`^(\d+)x$`)
	stepWord  = regexp.MustCompile(`\{.*\}|[^\s"]*"[^"]*"|\S+`)
)

// expand writes out what the story has kept.
func (p *player) expand(text string) string {
	return os.Expand(text, func(name string) string { return cmp.Or(p.kept[name], "$"+name) })
}

// words are those of a step. Spaces between quotation marks belong to a word, and JSON is one as it is.
func (p *player) words(step string) []string {
	words := stepWord.FindAllString(p.expand(step), -1)
	for i, word := range words {
		if word[0] != '{' {
			words[i] = strings.ReplaceAll(word, `"`, "")
		}
	}
	return words
}

// play plays lines: steps with commas between, and after each | what is expected then. Who is named at the
// beginning of a line does all of it, who is named before a step does that. A line that begins with = is all
// that became of the order.
func (p *player) play(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		p.line = line
		steps, expected, _ := strings.Cut(linePlace.ReplaceAllString(line, ""), " | ")
		if whole, isOutcome := strings.CutPrefix(steps, "= "); isOutcome {
			if got := strings.Join(p.outcome(), ", "); got != whole {
				p.fatalf("but = %s", got)
			}
			continue
		}
		whose := cmp.Or(p.people[p.words(steps)[0]], p.people["shop"])
		for _, step := range strings.Split(steps, ", ") {
			p.wantNoRefusal()
			p.who = whose
			words := p.words(step)
			if who := p.people[words[0]]; who != nil {
				p.who, words = who, words[1:]
			}
			times := 1
			if many := repeated.FindStringSubmatch(words[0]); many != nil {
				times, words = p.number(many[1]), words[1:]
			}
			for range times {
				p.step(words[0], words[1:])
			}
		}
		for _, clause := range strings.Split(expected, " | ") {
			if clause = strings.TrimSpace(p.expand(clause)); clause != "" {
				p.expect(clause)
			}
		}
		p.wantNoRefusal()
	}
}

func (p *player) wantNoRefusal() {
	p.t.Helper()
	if p.refused != "" {
		p.fatalf("refused: %s", p.refused)
	}
}

func (p *player) step(verb string, rest []string) {
	p.t.Helper()
	text := strings.Join(rest, " ")
	switch {
	case verb[0] == '+':
		p.sleep(p.duration(verb[1:]))
	case verb == "until":
		time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(p.duration(text))))
	case verb == "off":
		p.stop()
		time.Sleep(p.duration(text))
		p.start()
		p.sleep(10 * time.Minute)
	case verb == "serve":
		p.stop()
		time.Sleep(time.Second)
		p.flags = append(p.flags, rest...)
		p.start()
	case verb == "crash":
		p.crash()
	case verb == "copy":
		p.sleep(0)
		p.kept["copy"] = p.copyFile()
	case verb == "restore":
		p.startWith(p.kept["copy"])
	case verb == "clock":
		p.ahead.Store(int64(p.duration(text)))
	case verb == "disk":
		p.life.failAt(map[string]error{
			"full":  errFull,
			"busy":  sqlite3.Error{Code: sqlite3.ErrBusy},
			"fails": sqlite3.Error{Code: sqlite3.ErrIoErr},
		}[text], false)
	case verb == "run":
		words, in, _ := strings.Cut(text, " "+stdin)
		code, out, errs := p.world.run(words, stdin+strings.ReplaceAll(in, ";", "\n"))
		p.read(code, out+errs)
		if code != 0 {
			p.refused = fmt.Sprintf("exit %d: %s", code, errs)
		}
	case verb == "fault" || verb == "faults":
		kind, on, _ := strings.Cut(text, " ")
		p.net.setFault(fault{kind: kind, on: on, always: verb == "faults"})
	case verb == "account":
		p.net.midtrans.mu.Lock()
		p.net.xendit.mu.Lock()
		for _, word := range rest {
			odd, isOver := strings.CutPrefix(word, "!")
			p.net.midtrans.odd[odd], p.net.xendit.odd[odd] = !isOver, !isOver
		}
		p.net.xendit.mu.Unlock()
		p.net.midtrans.mu.Unlock()
	case verb == "takes":
		gateway := &p.net.midtrans.book
		if strings.HasPrefix(text, "xnd_") {
			gateway = &p.net.xendit.book
		}
		gateway.mu.Lock()
		gateway.key = text
		gateway.mu.Unlock()
	case verb == "forge":
		p.net.midtrans.forge(p.order+"-"+rest[0], int64(p.number(rest[1])))
	case verb == "endpoint":
		p.kept[rest[0]] = p.endpoint(rest[0], rest[1:]...)
	case verb == "answers":
		p.net.inbox.mu.Lock()
		before := p.net.inbox.answer
		p.net.inbox.answer = func(h webhook) string {
			if len(rest) == 1 || h.host == rest[0] {
				return rest[len(rest)-1]
			}
			return before(h)
		}
		p.net.inbox.mu.Unlock()
	case verb == "keep":
		where := p.who.text
		if p.who.page != nil {
			where = p.who.page.address + " " + where
		}
		p.kept[rest[0]] = regexp.MustCompile(rest[1]).FindString(where)
		if p.kept[rest[0]] == "" || len(rest) != 2 {
			p.fatalf("keep takes a name and a pattern of one word, which has to be found in: %s", p.who.text)
		}
	case verb == "with":
		p.who.key = text
	case verb == "once":
		p.who.once = text
	case verb == "like":
		p.who.page = p.people[text].page
	case verb == "order":
		p.placeOrder(rest)
	case verb == "get":
		p.about(rest)
		p.request("GET", "/v1/orders/"+p.order, "")
	case verb == "events":
		p.about(rest)
		p.request("GET", "/v1/events?order_id="+p.order, "")
	case verb == strings.ToUpper(verb) && strings.HasPrefix(text, "/"):
		p.request(verb, rest[0], strings.Join(rest[1:], " "))
	case verb == "open":
		p.open(rest[0], rest[1:])
	case verb == "press":
		p.press(rest[0], rest[1:])
	case verb == "notify":
		p.request("POST", "/notifications/xendit/"+p.who.store.id, text, "X-Callback-Token", xenditToken)
	case verb == "send":
		p.sendNotice(rest)
	case p.who.name == "shop":
		p.gatewaySays(verb, text)
	default: // owner approve A is: owner open order A, press approve
		p.about(rest)
		p.open(map[bool]string{true: "pay", false: "order"}[p.who.name == "buyer"], nil)
		p.press(verb, rest)
	}
}

func (p *player) duration(text string) time.Duration {
	p.t.Helper()
	d, err := time.ParseDuration(text)
	must(p.t, err)
	return d
}

func (p *player) number(text string) int {
	p.t.Helper()
	n, err := strconv.Atoi(text)
	must(p.t, err)
	return n
}

// about makes the order that the first word names the one that the story is about, if it names one.
func (p *player) about(words []string) bool {
	named := len(words) > 0 && len(words[0]) == 1
	if named {
		p.order = p.kept[words[0]]
	}
	return named
}

// request sends a request to the API.
func (p *player) request(method, path string, body any, headers ...string) {
	p.t.Helper()
	key := cmp.Or(p.who.key, p.who.store.keys["manage"])
	r := p.do(p.t, method, path, body, append(headers, "Authorization", "Bearer "+key, "Idempotency-Key", p.who.once)...)
	p.who.response, p.who.header = r, r.Header
	p.read(r.Status, string(r.Body))
	if hook, err := url.Parse(r.at("webhook.url")); err == nil && hook.Host != "" {
		p.net.inbox.know(hook.Host, r.at("webhook.secret"))
	}
}

// sendNotice sends what a gateway has written last, with some texts changed, such as 87500.00=1.00.
func (p *player) sendNotice(changes []string) {
	p.t.Helper()
	var oldAndNew []string
	for _, change := range changes {
		before, after, _ := strings.Cut(change, "=")
		oldAndNew = append(oldAndNew, before, after)
	}
	changed := strings.NewReplacer(oldAndNew...).Replace
	var header []string
	for _, text := range p.notice.header {
		header = append(header, changed(text))
	}
	p.request("POST", changed(p.notice.path+p.who.store.id), changed(p.notice.body), header...)
}

// read notes what somebody was answered.
func (p *player) read(status int, text string) {
	p.who.status, p.who.text, p.refused = status, text, ""
	if status >= 400 {
		p.refused = fmt.Sprintf("%d %s", status, text)
	}
}

// placeOrder orders things by a method: kopi 2 teh 1 snap as A shipping_fee=9000 address="Jl. Melati 5;Bandung".
func (p *player) placeOrder(words []string) {
	p.t.Helper()
	var items []any
	for len(words) > 1 && startsWithDigit(words[1]) {
		items, words = append(items, words[0], p.number(words[1])), words[2:]
	}
	body, name := p.who.store.body(items...), ""
	for i, word := range words {
		field, value, isField := strings.Cut(word, "=")
		amount, err := strconv.Atoi(value)
		switch {
		case field == "address":
			body["shipping"] = fields{"address": strings.ReplaceAll(value, ";", "\n")}
		case field == "name" || field == "email" || field == "phone":
			body["buyer"].(fields)[field] = value
		case isField && err == nil:
			body[field] = amount
		case isField:
			body[field] = value
		case i > 0 && words[i-1] == "as":
			name = word
		case word != "as" && word != "by":
			body["payment_method"] = word
		}
	}
	p.request("POST", "/v1/orders", body)
	p.order = p.who.response.at("order.id")
	p.kept[name] = p.order
}

func startsWithDigit(word string) bool { return word[0] >= '0' && word[0] <= '9' }

var stateOfPage = regexp.MustCompile(`^(?:(\d[ab]?):)?(\S+)$`)

// gatewaySays plays settlement, or 2:settlement of the second page, and how we learn of it: lost (nobody is
// told), unconfirmed (we are told, and it is not so) or written (that is only written, and send sends it).
func (p *player) gatewaySays(words, how string) {
	p.t.Helper()
	m := stateOfPage.FindStringSubmatch(words)
	state := m[2]
	gateway, page := p.net.pageOf(p.order, m[1])
	if how == "" || how == "lost" {
		gateway.say(p.order, page, state)
	}
	if how == "lost" {
		return
	}
	path, header, body := gateway.message(p.order, page, state)
	if how == "written" {
		p.notice.path = path
		p.notice.body = body
		p.notice.header = header
		return
	}
	for range 2 {
		p.do(p.t, "POST", path+p.shop.id, body, header...).want(p.t, 200, "")
		p.sleep(0)
	}
}

// outcome is what became of the order, seen from outside: its status (with the number of the session that
// paid it), its events after the first, the pieces of kopi in stock, its alerts, and the pages that can still
// be paid.
func (p *player) outcome() (items []string) {
	p.t.Helper()
	if p.bubble {
		synctest.Wait()
	}
	key := as(p.who.store.keys["read"])
	var events []string
	var o fields
	for _, e := range p.get(p.t, "/v1/events?limit=50&order_id="+p.order, key...).list("events") {
		events = append(events, strings.TrimPrefix(textOf(e, "event"), "order"))
		o = asFields(asFields(e["data"])["order"])
	}
	if len(events) == 0 {
		p.fatalf("there is no such order of this store")
	}
	status := textOf(o, "status")
	if status == "paid" {
		r := p.get(p.t, "/v1/orders/"+p.order, key...)
		if n := r.at("payment_session.attempt"); r.at("payment_session.status") == "paid" && n != "0" {
			status += " by " + n
		}
	}
	items = []string{status, strings.Join(events[1:], " "), "stock " + p.stock("kopi")}
	if o["alerts"] != nil {
		items = append(items, strings.Trim(textOf(o, "alerts"), "[]"))
	}
	if open := p.net.payable(p.order); open != "" {
		items = append(items, "payable "+open)
	}
	return slices.DeleteFunc(items, func(item string) bool { return item == "" })
}

func (p *player) stock(slug string) string {
	p.t.Helper()
	r := p.get(p.t, "/v1/products?limit=50", as(p.who.store.keys["read"])...)
	for _, entry := range append(r.list("products"), r.list("bundles")...) {
		if entry["slug"] == slug {
			return textOf(entry, "stock")
		}
	}
	return "of nothing"
}

// stateWords are what the pages call the states of an order.
var stateWords = map[string]string{
	"pending":               "Belum dibayar|Menunggu",
	"awaiting_verification": "Perlu dicek|Sedang dicek|sudah dikonfirmasi",
	"paid":                  "Lunas|Pembayaran diterima",
	"failed":                "Gagal|Dibatalkan",
	"expired":               "Kedaluwarsa|Waktu pembayaran habis",
	"refunded":              "Dana dikembalikan|Dana Anda",
}

// expect checks one thing that is to be seen.
func (p *player) expect(clause string) {
	p.t.Helper()
	word, rest, _ := strings.Cut(clause, " ")
	holds, got := false, p.who.text
	switch word {
	case "sees":
		holds = strings.Contains(squeezed(p.who.text), squeezed(rest))
	case "lacks":
		holds = !strings.Contains(squeezed(p.who.text), squeezed(rest))
	case "says":
		holds = regexp.MustCompile(stateWords[rest]).MatchString(p.who.text)
	case "can":
		got = p.who.page.acts()
		holds = got == rest
	case "at":
		got = p.who.page.address
		holds = strings.Contains(got, rest)
	case "header":
		name, value, _ := strings.Cut(rest, " ")
		got = p.who.header.Get(name)
		holds = got == value
	case "logs", "calls", "paths", "sent", "rings", "hooks", "html":
		times, what, _ := strings.Cut(rest, " ")
		got = p.recorded(word)
		holds = strconv.Itoa(strings.Count(got, what)) == times
	case "exit":
		got = strconv.Itoa(p.who.status)
		holds, p.refused = got == rest, ""
	case "sign-in":
		holds = p.who.page.find("sign-in", "") != nil
	default:
		if startsWithDigit(word) {
			p.expectAnswer(strings.Fields(clause))
		} else {
			p.expectOutcome(strings.Split(clause, ", "))
		}
		return
	}
	if !holds {
		p.fatalf("not so: %s\n%s", clause, got)
	}
}

// recorded is the service's log, its calls to gateways and what it has sent there, rings of phones, webhooks, or the
// page that was opened last.
func (p *player) recorded(kind string) (text string) {
	for _, mu := range []*sync.Mutex{&p.net.mu, &p.net.midtrans.mu, &p.net.xendit.mu, &p.net.inbox.mu} {
		mu.Lock()
		defer mu.Unlock()
	}
	switch kind {
	case "logs":
		return p.log.String()
	case "calls":
		return fmt.Sprint(p.net.calls)
	case "paths":
		return fmt.Sprint(p.net.paths)
	case "sent":
		return fmt.Sprint(p.net.midtrans.sent, p.net.xendit.sent)
	case "rings":
		return fmt.Sprint(p.net.inbox.rung)
	case "html":
		return p.who.html
	}
	for _, h := range p.net.inbox.came {
		text += h.host + " " + h.event + ", "
	}
	return text
}

// expectAnswer checks the status of an answer, and with further words an error's code or an order's amount.
func (p *player) expectAnswer(words []string) {
	p.t.Helper()
	got := []string{strconv.Itoa(p.who.status), p.who.response.Error.Code, p.who.response.at("order.amount")}
	for _, word := range words {
		if !slices.Contains(got, word) {
			p.fatalf("answered %v, not %s: %.300s", got, word, p.who.text)
		}
	}
	p.refused = ""
}

// expectOutcome checks parts of an outcome.
func (p *player) expectOutcome(wanted []string) {
	p.t.Helper()
	got := p.outcome()
	whole := strings.Join(got, ", ")
	got = append(got, strings.Split(got[0], " ")[0]) // who has paid may be left out
	if !strings.Contains(whole, "payable") {
		got = append(got, "payable none")
	}
	for _, want := range wanted {
		want = strings.TrimPrefix(want, "Created ")
		if words := strings.Fields(want); len(words) == 3 && words[0] == "stock" {
			got = append(got, "stock "+words[1]+" "+p.stock(words[1]))
		}
		if !slices.Contains(got, want) {
			p.fatalf("%q is not so: %s", want, whole)
		}
	}
}

// addresses are those of the pages that a story opens. % is the id of its order, or the word after the page's
// name.
var addresses = map[string]string{
	"pay":      "/pay/%",
	"order":    "/dashboard/orders/%",
	"orders":   "/dashboard",
	"catalog":  "/dashboard/catalog",
	"product":  "/dashboard/catalog/product?slug=%",
	"payments": "/dashboard/payments",
	"keys":     "/dashboard/developers",
	"account":  "/dashboard/account",
}

// open opens a page by its name in addresses, or by its path. Owners sign in first.
func (p *player) open(name string, rest []string) {
	p.t.Helper()
	of := p.order
	if p.about(rest) {
		of = p.order
	} else if len(rest) > 0 {
		of = rest[0]
	}
	if isOwner := p.who.name == "owner" || p.who.name == "other"; isOwner && !p.who.inside {
		p.who.inside = true
		p.visit("GET", "https://shop.test/dashboard", nil)
		p.press("sign-in", []string{"email=" + p.who.store.email, "password=" + p.who.store.password})
	}
	address := cmp.Or(strings.ReplaceAll(addresses[name], "%", of), name)
	if address[0] == '/' {
		address = "https://shop.test" + address
	}
	p.visit("GET", address, nil)
}

func (p *player) visit(method, address string, form url.Values) {
	p.t.Helper()
	if method == "GET" && form != nil {
		address, _, _ = strings.Cut(address, "?")
		address += "?" + form.Encode()
		form = nil
	}
	req, err := http.NewRequest(method, address, strings.NewReader(form.Encode()))
	must(p.t, err)
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	p.who.browser.Transport = p.http.Transport // of the service as it runs now
	resp, err := p.who.browser.Do(req)
	must(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(p.t, err)
	if fault := pageFault(resp.Request.URL.Path, resp.StatusCode, resp.Header, string(body)); fault != "" {
		p.t.Errorf("%s\n%s %s", p.line, address, fault)
	}
	p.who.html, p.who.header, p.who.page = string(body), resp.Header, readPage(string(body))
	if code := missingWord().FindString(p.who.page.text); code != "" && req.URL.Path != "/docs" { // It has programs.
		p.t.Errorf("%s\n%s has no word for %s", p.line, address, code)
	}
	p.who.page.address = cmp.Or(resp.Header.Get("Location"), resp.Request.URL.String())
	p.read(resp.StatusCode, p.who.page.text)
}

var policyOfPages = regexp.MustCompile(
	`^default-src 'none'; .*form-action 'self'; frame-ancestors 'none'; base-uri 'none'`)

// pageFault is what is wrong with a page, "" if nothing is: html/template has refused an address because of its scheme,
// or its headers do not keep it out of caches and frames, and scripts out of it. A page of a shop has no script and no
// cookie, and is small.
func pageFault(path string, status int, header http.Header, page string) string {
	if strings.Contains(page, "ZgotmplZ") {
		return "has an address that html/template refuses"
	}
	isShop := strings.HasPrefix(path, "/shop/")
	hasMore := strings.Contains(page, "<script") || header.Get("Set-Cookie") != "" || len(page) > 32<<10
	if isShop && status == http.StatusOK && hasMore {
		return fmt.Sprintf("has a script or a cookie, or %d bytes", len(page))
	}
	if !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
		return ""
	}
	policy := header.Get("Content-Security-Policy")
	if !policyOfPages.MatchString(policy) || strings.Contains(policy, "unsafe") {
		return "has the policy " + policy
	}
	if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "same-origin" {
		return fmt.Sprintf("has the headers %v", header)
	}
	if cache := header.Get("Cache-Control"); cache != "no-store" && !isShop && path != "/docs" {
		return "may be kept: " + cache
	}
	return ""
}

// press presses what does an act, and fills the fields of its form: press claim bank=BCA. A word without =
// says which of several is pressed, by its value or by a text before it. If a question comes, it is pressed
// again.
func (p *player) press(act string, words []string) {
	p.t.Helper()
	which, given := "", url.Values{}
	for _, word := range words {
		name, text, isField := strings.Cut(word, "=")
		if isField {
			given.Set(name, text)
		} else if p.kept[word] == "" {
			which = word
		}
	}
	c := p.who.page.find(act, which)
	if c == nil {
		p.fatalf("the page offers %q, not %s %s: %s", p.who.page.acts(), act, which, p.who.page.text)
	}
	here, err := url.Parse(p.who.page.address)
	must(p.t, err)
	if c.form == nil {
		to, err := here.Parse(c.href)
		must(p.t, err)
		p.visit("GET", to.String(), nil)
		if c = p.who.page.find(act, ""); c == nil || c.form == nil {
			return
		}
		here = to
	}
	values := maps.Clone(c.form.values)
	for name := range given {
		if !values.Has(name) {
			p.fatalf("the form has no field %s: %v", name, values)
		}
		values[name] = given[name]
		if c.form.lists[name] { // After the hidden field that stands before the boxes, as a browser sends them.
			values[name] = append([]string{""}, strings.Fields(given.Get(name))...)
		}
	}
	if c.name != "" {
		values.Set(c.name, c.value)
	}
	to, err := here.Parse(cmp.Or(c.action, c.form.action))
	must(p.t, err)
	p.visit(c.form.method, to.String(), values)
}

// screen is a page as its reader sees it.
type screen struct {
	address  string
	text     string // also what stands in fields
	controls []control
}

// control is a link or a button that does an act: it has the attribute data-act.
type control struct {
	act, href, name, value string
	action                 string     // where a button sends its form, if not to the form's own address
	before                 string     // the page's text since the control before it
	form                   *shownForm // nil for a link
}

type shownForm struct {
	method, action string
	values         url.Values      // nil are those of boxes that are not ticked
	lists          map[string]bool // names that several boxes have, each with a value of its own
}

// find is what does an act: the first, or the one with a value, or with a text before it.
func (p *screen) find(act, which string) *control {
	for _, fits := range []func(control) bool{
		func(c control) bool { return which == "" || c.value == which },
		func(c control) bool { return strings.Contains(c.before, which) },
	} {
		i := slices.IndexFunc(p.controls, func(c control) bool { return c.act == act && fits(c) })
		if i >= 0 {
			return &p.controls[i]
		}
	}
	return nil
}

// acts are those that the page offers, each once. That one can sign out everywhere, and copy and correct every order,
// says nothing.
func (p *screen) acts() string {
	var all []string
	for _, c := range p.controls {
		if !slices.Contains([]string{"sign-out", "copy", "correct"}, c.act) {
			all = append(all, c.act)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// squeezed is a text without spaces and capitals, so that it does not matter how a page groups numbers.
func squeezed(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), "")) }

var (
	noText    = regexp.MustCompile(`(?s)<(script|style|title).*?</(script|style|title)>|<!.*?>`)
	htmlToken = regexp.MustCompile(`(?s)<(/?\w+)((?:"[^"]*"|[^>"])*)>|[^<]+`)
	attribute = regexp.MustCompile(`([\w-]+)(?:="([^"]*)")?`)
)

// readPage finds the text, the forms and the acts of a page.
func readPage(text string) *screen {
	p := &screen{}
	outside := &shownForm{values: url.Values{}, lists: map[string]bool{}}
	form, choice, area, read := outside, "", "", 0
	for _, token := range htmlToken.FindAllStringSubmatch(noText.ReplaceAllString(text, ""), -1) {
		a := map[string]string{}
		for _, m := range attribute.FindAllStringSubmatch(token[2], -1) {
			a[m[1]] = html.UnescapeString(m[2])
		}
		_, checked := a["checked"]
		_, selected := a["selected"]
		name := a["name"]
		switch token[1] {
		case "":
			words := strings.Join(strings.Fields(html.UnescapeString(token[0])), " ")
			p.text += " " + words
			if area != "" {
				form.values.Set(area, words)
			}
		case "form":
			form = &shownForm{strings.ToUpper(cmp.Or(a["method"], "GET")), a["action"], url.Values{}, map[string]bool{}}
		case "/form":
			form = outside
		case "textarea":
			area = name
			form.values.Set(area, "")
		case "/textarea":
			area = ""
		case "select":
			choice = name
		case "option":
			if selected || !form.values.Has(choice) {
				form.values.Set(choice, a["value"])
			}
		case "input":
			form.lists[name] = form.lists[name] || a["type"] == "checkbox" && a["value"] != ""
			if box := a["type"] == "checkbox" || a["type"] == "radio"; !box || checked {
				form.values.Add(name, cmp.Or(a["value"], map[bool]string{true: "on"}[box]))
			} else if !form.values.Has(name) {
				form.values[name] = nil
			}
			if a["type"] != "hidden" {
				p.text += " " + a["value"]
			}
		}
		if a["data-act"] == "" {
			continue
		}
		c := control{a["data-act"], a["href"], name, a["value"], a["formaction"], p.text[read:], form}
		if read = len(p.text); token[1] == "a" {
			c.form = nil
		}
		p.controls = append(p.controls, c)
	}
	return p
}
