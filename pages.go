package main

// This file says how pages work. A page is a row of the table at its beginning. What it shows is read in Go, into a
// struct of its own that stands beside the function that reads it; then the template that the row names shows that
// struct, inside layout.html. Templates read nothing themselves and decide nothing but if and range. An error ends the
// page, and the page for an error reads nothing.
//
// A form posts to its own page, and its field act says what it does. An act that succeeds ends with a redirect; one
// that is refused shows the page again, with what was typed and what is wrong. No page needs a script; the only one is
// for copying.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// pageRoutes adds the routes of all pages.
func (s *server) pageRoutes(mux *http.ServeMux) {
	entry := acts{"save": s.saveEntry, "remove": s.removeEntry}
	decisions := acts{"approve": s.decideOrder, "reject": s.decideOrder, "cancel": s.decideOrder,
		"refund": s.decideOrder, "resolve": s.resolveAlert, "check": s.checkOrder, "ship": s.shipOrder,
		"unship": s.unshipOrder, "undo": s.undoApproval, "correct": s.correctOrder}
	ofBuyer := acts{"cancel": s.actOfBuyer, "claim": s.actOfBuyer, "unclaim": s.actOfBuyer, "change": s.actOfBuyer,
		"address": s.actOfBuyer}
	ofGateways := acts{"save-gateway": s.saveGateway, "try": s.startTrial}
	inSandbox := acts{}
	for _, act := range sandboxActs {
		inSandbox[act] = s.actInSandbox
	}
	ofEndpoint := acts{"events": s.changeEndpoint, "ping": s.changeEndpoint, "on": s.changeEndpoint,
		"off": s.changeEndpoint, "rotate": s.changeEndpoint, "resend": s.changeEndpoint, "remove": s.changeEndpoint}
	ofAccount := acts{"save": s.saveStore, "add-phone": s.addPhone, "password": s.changePassword, "sign-out": s.signOut}

	for _, route := range []pageRoute{
		{path: "/pay/{id}", Template: "pay", admit: s.admitBuyer, before: s.checkOnReturn, read: s.readPay,
			acts: ofBuyer},
		{path: "/pay/{id}/qris.png", admit: s.admitBuyer, before: s.drawCode},
		{path: "/pay/{id}/go", admit: s.admitBuyer, before: s.goPay},
		{path: backFromGateway, admit: s.comeBack, acts: acts{}},
		{path: "/sandbox/{id}", Template: "sandbox", admit: s.admitToSandbox, read: s.readSandbox, acts: inSandbox},
		{path: "/shop/{slug}", Template: "shop", admit: s.admitShopper, read: s.readShop, acts: acts{"": s.changeCart}},
		{path: "/shop/{slug}/{kind}/{good}", Template: "shop", admit: s.admitShopper, read: s.readGood},
		{path: "/shop/{slug}/checkout", Template: "checkout", admit: s.admitShopper, before: s.leaveClosed,
			read: s.readCheckout, acts: acts{"": s.checkOut}},
		{path: "/shop/{slug}/qr.png", admit: s.admitShopper, before: s.drawShopCode},
		{path: "/docs", Template: "docs", admit: s.admitReader, before: s.answerStranger, read: s.readDocs},
		{path: "/dashboard/login", Template: "sign-in", admit: s.admitStranger, read: s.readSignIn,
			acts: acts{"": s.signIn}},
		{path: "/dashboard/enter/{token}", Template: "sign-in", admit: s.admitStranger, read: s.readSignIn,
			acts: acts{"": s.signIn}},

		{path: "/dashboard", Template: "orders", read: s.readDesk},
		{path: "/dashboard/orders.csv", before: s.exportOrders},
		{path: "/dashboard/orders/new", Template: "new-order", read: s.readNewOrder, acts: acts{"order": s.makeOrder}},
		{path: "/dashboard/orders/slips", Template: "slips", read: s.readSlips},
		{path: "/dashboard/orders/{id}", Template: "order", read: s.readOrderPage, acts: decisions},
		{path: "/dashboard/catalog", Template: "catalog", read: s.readCatalog},
		{path: "/dashboard/catalog/product", Template: "entry", read: s.readEntry, acts: entry, takesPicture: true},
		{path: "/dashboard/catalog/bundle", Template: "entry", read: s.readEntry, acts: entry, takesPicture: true},
		{path: "/dashboard/payments", Template: "payments", read: s.readPayments, acts: ofGateways},
		{path: "/dashboard/payments/method", Template: "method", read: s.readMethod,
			acts: acts{"save": s.saveMethod, "remove": s.removeMethod, "read-code": s.readCode, "use-code": s.useCode}},
		{path: "/dashboard/payments/trial", Template: "trial", read: s.readTrial,
			acts: acts{"check": s.checkTrial, "close": s.closeTrial}},
		{path: "/dashboard/payments/picture", Template: "method", read: s.readMethod,
			acts: acts{"upload": s.saveCodePicture}, takesPicture: true},
		{path: "/dashboard/shipping", Template: "shipping", read: s.readShipping, acts: acts{"save": s.saveShipping}},
		{path: "/dashboard/developers", Template: "developers", read: s.readDevelopers,
			acts: acts{"add-key": s.addKey, "revoke": s.revokeKey, "add-endpoint": s.addEndpoint}},
		{path: "/dashboard/endpoints/{id}", Template: "endpoint", read: s.readEndpoint, acts: ofEndpoint},
		{path: "/dashboard/shop", Template: "shop-settings", read: s.readShopSettings,
			acts: acts{"save": s.saveShopSettings}},
		{path: "/dashboard/shop/poster", Template: "poster", read: s.readPoster},
		{path: "/dashboard/account", Template: "account", read: s.readAccount, acts: ofAccount},
	} {
		if route.admit == nil {
			route.admit = s.admitOwner
		}
		serve := s.servePage(route)
		mux.Handle("GET "+route.path, serve)
		if route.acts != nil {
			mux.Handle("POST "+route.path, serve)
		}
	}

	mux.HandleFunc("GET /{$}", s.goHome)
	mux.HandleFunc("GET /robots.txt", textHandler("text/plain", robots))
	mux.HandleFunc("GET /docs.md", textHandler("text/markdown", guideText()))
	mux.HandleFunc("GET /llms.txt", textHandler("text/plain", llms))
	css := []byte(stylesheet) // Slow readers share one copy.
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		writeForGood(w, "text/css; charset=utf-8", css)
	})
	mux.HandleFunc("GET /pictures/{hash}", s.getPicture)
	mux.HandleFunc("GET /pictures/{hash}/small", s.getPicture)
}

// textHandler answers with a text.
func textHandler(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		w.Write([]byte(text))
	}
}

// acts do what forms ask for, by their field act.
type acts map[string]func(p *page) error

// pageRoute is a row of the table of pages. Its steps are, in this order: admit, the act of a posted form, before, and
// then, in one of the store's places, read and the template. One that sets page.next is the last.
type pageRoute struct {
	path     string
	Template string                     // in web/, without .html; "" = before answers
	admit    func(p *page) error        // lets a visitor in; in the table nil = an owner
	before   func(p *page) error        // what may take long; nil = nothing
	read     func(p *page) (any, error) // returns the struct that the template shows
	acts     acts                       // what the page's forms do

	takesPicture bool // A form may have a picture.
}

// page is a request for a page, and what layout.html shows around it. The struct of each page embeds it.
type page struct {
	*http.Request // without its Form
	pageRoute
	Status          int
	Language        language
	InOtherLanguage string // the page's address in the other language
	Home            string // the public URL
	Store           Store
	IsOwner         bool      // the store's owner is signed in
	Done            string    // the code of what was just done: the act's name, unless the act has set another
	DoneDetail      string    // such as pickup, for words of its own (specify); "" = the usual ones
	Title           string    // what the page is about; "" = that of its template
	Next            *OrderRow // the order that waits after the one that was just decided
	Become          string    // the order that the refused form has become before, with other contents
	Content         template.HTML
	Head            *publicHead // of a page that strangers find; nil = it is not for them

	kind     string   // of the places that its work takes: owner, shop or, for all others, pay
	order    OrderRow // whose buyer, or owner, acts
	checking int      // how many times its page has asked the gateway without an answer
	w        http.ResponseWriter
	auth     *auth
	next     string // where the browser goes; "" = the page is shown
	act      string // the one that was refused
	typed    form   // into its form
}

// newPage begins a page with the headers that all pages have.
func (s *server) newPage(w http.ResponseWriter, r *http.Request, route pageRoute) *page {
	h := w.Header()
	h.Set("Content-Security-Policy", pageSecurity)
	h.Set("Referrer-Policy", "same-origin") // With no-referrer, browsers would post "Origin: null" over http.
	h.Set("Vary", "Accept-Language, Cookie")
	p := &page{
		Request:   r,
		pageRoute: route,
		Status:    http.StatusOK,
		kind:      "pay",
		w:         w,
		auth:      s.auth,
	}
	p.Language = p.language()
	p.InOtherLanguage = p.With("lang", p.Language.text("en", "id"))
	return p
}

// servePage serves a page.
func (s *server) servePage(route pageRoute) http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request) {
		p := s.newPage(w, r, route)
		if err := s.runPage(p); err != nil {
			s.fail(w, r, err)
			return
		}
		if p.next != "" {
			http.Redirect(w, r, p.next, http.StatusSeeOther)
		}
	}
	protection := http.NewCrossOriginProtection()
	protection.AddInsecureBypassPattern("POST " + backFromGateway) // It leads on, and changes nothing.
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, refuse(Forbidden))
	}))
	return protection.Handler(http.HandlerFunc(serve))
}

// runPage takes the steps of a page until one fails or sets p.next. The dashboard is on the public URL's host only. An
// owner who opened it elsewhere would send buyers links that lead nowhere, so the page says where it is.
func (s *server) runPage(p *page) (err error) {
	p.Home = s.publicURL
	isOfShop := strings.HasPrefix(p.path, "/shop/") // It sets no cookie: the language stays in the address.
	if lang := p.URL.Query().Get("lang"); vocabulary()[language(lang)] != nil && !isOfShop {
		s.auth.setCookie(p.w, "lang", lang, 365*24*time.Hour)
	}
	if strings.HasPrefix(p.path, "/dashboard") && !isHostOf(p.Home, p.Host) {
		if p.Method == http.MethodGet && isLoopback(p.Host) && isLoopback(hostOf(p.Home)) {
			p.next = p.Home + p.URL.RequestURI() // Somebody typed 127.0.0.1, where the service says localhost.
			return nil
		}
		p.Template = "error"
		p.Status = http.StatusMisdirectedRequest
		return p.sendError(errorPage{page: p})
	}

	for _, step := range []func(p *page) error{p.admit, s.perform, p.before, s.showPage} {
		if step == nil {
			continue
		}
		if err := step(p); err != nil || p.next != "" {
			return err
		}
	}
	return nil
}

// enter makes a page one of a store, for the work of one of its kinds of places: owner, shop or pay.
func (p *page) enter(st Store, kind string) {
	writes := "buyer writes"
	if kind == "owner" {
		writes = "owner writes"
	}
	p.Store = st
	p.kind = kind
	logStore(p.w, st.ID)
	p.Request = p.WithContext(p.auth.withWritePlaces(p.Context(), st.ID, writes))
}

// isHostOf reports whether a request's Host is that of an address. The usual port of its scheme may be written too.
func isHostOf(address, host string) bool {
	usualPort := ":443"
	if strings.HasPrefix(address, "http:") {
		usualPort = ":80"
	}
	return strings.EqualFold(hostOf(address), strings.TrimSuffix(host, usualPort))
}

func hostOf(address string) string {
	_, host, _ := strings.Cut(address, "://")
	return host
}

//go:embed web
var web embed.FS

func webFile(name string) string { return embedded(web, "web/"+name) }

func embedded(files embed.FS, name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	stylesheet    = webFile("style.css")
	stylesheetURL = fmt.Sprintf("/style.css?v=%.6x", sha256.Sum256([]byte(stylesheet)))
	copyScript    = webFile("copy.js")
	readScript    = webFile("read-qr.js")
	pageSecurity  = securityWith(copyScript)
)

// securityWith allows a page nothing but our stylesheet, pictures, forms and these scripts.
func securityWith(scripts ...string) string {
	var hashes string
	for _, script := range scripts {
		hash := sha256.Sum256([]byte(script))
		hashes += " 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
	}
	return "default-src 'none'; style-src 'self'; img-src 'self' data: https:; script-src" + hashes +
		"; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}

// templates are those of web/ by language. They are parsed for the first page, because commands need none.
var templates = sync.OnceValue(func() map[language]*template.Template {
	return map[language]*template.Template{"id": parseTemplates("id"), "en": parseTemplates("en")}
})

func parseTemplates(l language) *template.Template {
	functions := template.FuncMap{
		"t":        l.text,
		"say":      l.say,
		"word":     l.word,
		"message":  l.message,
		"when":     l.dates("2 Jan 2006, 15:04 WIB"),
		"soon":     l.dates("2 Jan, 15:04 WIB"),
		"day":      l.dates("2 Jan"),
		"date":     l.dates("2 Jan 2006"),
		"list":     func(values ...any) []any { return values },
		"rupiah":   rupiah,
		"grouped":  grouped,
		"tail":     referenceTail,
		"masked":   masked,
		"alert":    l.alert,
		"note":     l.noteWords,
		"style":    func() string { return stylesheetURL },
		"script":   func() template.JS { return template.JS(copyScript) },
		"base":     path.Base,
		"marked":   marked,
		"guide":    guideParts,
		"indented": indented,
	}
	return template.Must(template.New("").Funcs(functions).ParseFS(web, "web/*.html"))
}

// language returns the one that a link asks for, else the one chosen before, else the browser's.
func (p *page) language() language {
	for _, chosen := range []string{p.Query("lang"), p.auth.cookie(p.Request, "lang")} {
		if vocabulary()[language(chosen)] != nil {
			return language(chosen)
		}
	}
	return preferred(strings.Join(p.Header.Values("Accept-Language"), ","))
}

// Query returns a parameter of the page's address.
func (p *page) Query(name string) string { return fmt.Sprintf("%.100s", p.URL.Query().Get(name)) }

// With returns the page's address with another value for a parameter.
func (p *page) With(name string, value any) string {
	query := p.URL.Query()
	query.Set(name, fmt.Sprint(value))
	return path.Clean(p.URL.Path) + "?" + query.Encode() // A path that begins with // would be a host.
}

// showPage reads what the page shows and executes its template, in one of the store's places.
func (s *server) showPage(p *page) error {
	if p.Template == "" {
		return nil
	}

	place := s.auth.busyPlace
	if p.IsOwner { // The place is kept while the page is sent, perhaps slowly.
		place = s.auth.place
	}
	leave, err := place(p.Context(), p.Store.ID, p.kind)
	if err != nil {
		return err
	}
	defer leave()

	p.Done = s.auth.cookie(p.Request, "done")
	view, err := p.read(p)
	if err != nil {
		return err
	}
	text, err := p.render(view)
	if err != nil {
		return err
	}

	if p.Done != "" {
		s.auth.setCookie(p.w, "done", "", -time.Second)
	}
	if !p.IsOwner {
		leave()
	}
	if !p.IsOwner && len(text) > mostUnplaced {
		leave, err := s.auth.place(p.Context(), p.Store.ID, "long")
		if err != nil {
			return err
		}
		defer leave()
	}
	p.sendPage(text)
	return nil
}

// mostUnplaced is the length of a page up to which it needs no place while a client reads it, perhaps slowly. What a
// stranger has typed can make a page longer: they keep only such pages waiting. Those of owners always need one.
const mostUnplaced = 64 << 10

// specify has the line about what was just done say more, if there are words for the detail, such as done.ship.pickup.
func (p *page) specify(detail string) {
	if firstWord("done."+p.Done+"."+detail) != "" {
		p.DoneDetail = detail
	}
}

// render executes the page's templates with its struct.
func (p *page) render(view any) ([]byte, error) {
	var content, whole bytes.Buffer
	templates := templates()[p.Language]
	if err := templates.ExecuteTemplate(&content, p.Template+".html", view); err != nil {
		return nil, err
	}
	p.Content = template.HTML(content.String())
	err := templates.ExecuteTemplate(&whole, "layout.html", p)
	return whole.Bytes(), err
}

// sendPage writes the page.
func (p *page) sendPage(text []byte) {
	p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.w.WriteHeader(p.Status)
	p.w.Write(text)
}

// writeForGood answers with what browsers may keep, because its address changes with its content.
func writeForGood(w http.ResponseWriter, kind string, content []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.WriteHeader(http.StatusOK)
	w.Write(content)
}

// errorPage is the page for an error.
type errorPage struct {
	*page
	IsUnknown bool // whether what was asked for was done
	IsShop    bool // a shop page was asked for
}

// errorPage shows an error as a page. It reads nothing.
func (s *server) errorPage(w http.ResponseWriter, r *http.Request, status int, err error) {
	p := s.newPage(w, r, pageRoute{Template: "error"})
	p.Status = status
	isShop, _ := path.Match("/shop/*", r.URL.Path)
	if err := p.sendError(errorPage{p, errors.Is(err, ErrUnknown), isShop}); err != nil {
		s.db.log.Error("cannot show an error page", "error", err)
		w.WriteHeader(p.Status)
	}
}

func (p *page) sendError(view errorPage) error {
	text, err := p.render(view)
	if err == nil {
		p.sendPage(text)
	}
	return err
}

const (
	mostInForm      = 4 << 10  // bytes, on the sign-in page
	mostOfBuyer     = 16 << 10 // on a page of the shop, or on a pay page, which may take an address
	mostInDashboard = 64 << 10
	mostInPicture   = 12 << 20
	uploadTime      = time.Minute
)

// perform does what a posted form asks for.
func (s *server) perform(p *page) error {
	if p.Method != http.MethodPost {
		return nil
	}

	most := int64(mostInForm)
	switch {
	case p.IsOwner:
		most = mostInDashboard
	case p.kind == "shop", p.order.ID != "":
		most = mostOfBuyer
	}
	if p.takesPicture && strings.HasPrefix(p.Header.Get("Content-Type"), "multipart/form-data") {
		leave, err := s.auth.place(p.Context(), p.Store.ID, "large")
		if err != nil {
			return err
		}
		defer leave()
		slow := http.NewResponseController(p.w)
		slow.SetReadDeadline(time.Now().Add(uploadTime))
		slow.SetWriteDeadline(time.Now().Add(2 * uploadTime))
		most += mostInPicture
	}

	unread := p.parseForm(most)
	name := p.FormValue("act")
	act := p.acts[name]
	if act == nil {
		return cmp.Or(unread, ErrNotFound)
	}
	err := unread
	if err == nil {
		err = act(p)
	}
	if errors.Is(err, errShownAgain) {
		p.typed.Values = p.PostForm
		return nil
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		p.Status, _ = describe(p.w.Header(), err)
		p.next = ""
		p.act = name
		p.typed = form{p.PostForm, refusal}
		return nil
	}
	if err != nil {
		return err
	}

	// Without a fragment of its own the redirect would keep the form's, and the browser would scroll there.
	p.next = cmp.Or(p.next, p.URL.RequestURI())
	if p.kind != "shop" {
		p.next += "#"
	}
	if p.IsOwner {
		s.auth.setCookie(p.w, "done", cmp.Or(p.Done, name), time.Minute)
	}
	return nil
}

// parseForm reads the form that a request posts.
func (p *page) parseForm(most int64) error {
	p.Body = limitBody(p.w, p.Request, most)
	err := p.ParseForm()
	if err == nil {
		err = p.ParseMultipartForm(most)
	}
	if err == nil || errors.Is(err, http.ErrNotMultipart) {
		return nil
	}
	p.w.Header().Set("Connection", "close") // Otherwise the server would read on before it answers.
	return refuseBody(err)
}
