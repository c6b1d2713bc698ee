package main

// This file says how pages work. A page is a row of the table at its beginning. It is shown by the template that it names
// in web/, inside layout.html. An error ends the page. A form posts to its own page, and its field act says what it does.
// An act that succeeds ends with a redirect; one that is refused shows the page again, with what was typed and what is
// wrong. No page needs a script; the only one is for copying.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// pageRoutes adds the routes of all pages.
func (s *server) pageRoutes(mux *http.ServeMux) {
	owner := s.admitOwner
	entry := acts{"save": s.saveEntry, "remove": s.removeEntry}
	for _, route := range []pageRoute{
		{"/pay/{id}", "pay", s.admitBuyer, s.checkOnReturn,
			acts{"claim": s.actOfBuyer, "unclaim": s.actOfBuyer, "change": s.actOfBuyer}},
		{"/pay/{id}/go", "", s.admitBuyer, s.goPay, nil},
		{"/sandbox/{id}", "sandbox", s.admitToSandbox, nil,
			acts{"paid": s.actInSandbox, "other": s.actInSandbox, "denied": s.actInSandbox}},
		{"/docs", "docs", s.showOwnIDs, nil, nil},
		{"/dashboard/login", "sign-in", s.admitStranger, nil, acts{"": s.signIn}},
		{"/dashboard/enter/{token}", "sign-in", s.admitStranger, nil, acts{"": s.signIn}},
		{"/dashboard", "orders", owner, nil, nil},
		{"/dashboard/orders.csv", "", owner, s.exportOrders, nil},
		{"/dashboard/orders/new", "new-order", owner, nil, acts{"order": s.makeOrder}},
		{"/dashboard/orders/{id}", "order", owner, nil,
			acts{"approve": s.decideOrder, "reject": s.decideOrder, "cancel": s.decideOrder, "refund": s.decideOrder,
				"resolve": s.resolveAlert, "check": s.checkOrder}},
		{"/dashboard/catalog", "catalog", owner, nil, nil},
		{"/dashboard/catalog/product", "entry", owner, nil, entry},
		{"/dashboard/catalog/bundle", "entry", owner, nil, entry},
		{"/dashboard/payments", "payments", owner, nil, acts{"save-gateway": s.saveGateway}},
		{"/dashboard/payments/method", "method", owner, nil,
			acts{"save": s.saveMethod, "remove": s.removeMethod}},
		{pictureUpload, "method", owner, nil, acts{"upload": s.savePicture}},
		{"/dashboard/developers", "developers", owner, nil,
			acts{"add-key": s.addKey, "revoke": s.revokeKey, "add-endpoint": s.addEndpoint}},
		{"/dashboard/endpoints/{id}", "endpoint", owner, nil,
			acts{"ping": s.changeEndpoint, "on": s.changeEndpoint, "off": s.changeEndpoint, "rotate": s.changeEndpoint,
				"resend": s.changeEndpoint, "remove": s.changeEndpoint}},
		{"/dashboard/account", "account", owner, nil,
			acts{"save": s.saveStore, "add-phone": s.addPhone, "password": s.changePassword,
				"sign-out": s.signOut}},
	} {
		serve := s.servePage(route)
		mux.Handle("GET "+route.Path, serve)
		if route.acts != nil {
			mux.Handle("POST "+route.Path, serve)
		}
	}

	mux.Handle("GET /{$}", http.RedirectHandler("/dashboard", http.StatusSeeOther))
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		writeForGood(w, "text/css; charset=utf-8", []byte(stylesheet))
	})
	mux.HandleFunc("GET /pictures/{hash}", func(w http.ResponseWriter, r *http.Request) {
		picture, err := s.db.Picture(r.Context(), r.PathValue("hash"))
		if err != nil {
			s.fail(w, r, err)
			return
		}
		writeForGood(w, "image/jpeg", picture)
	})
}

// acts do what forms ask for, by their field act.
type acts map[string]func(p *page) error

// pageRoute is a row of the table of pages. Its steps are admit, the act of a posted form, before, and the
// template. One that sets page.next is the last.
type pageRoute struct {
	Path     string
	Template string              // in web/, without .html; "" = before answers
	admit    func(p *page) error // lets a visitor in
	before   func(p *page) error // is done before the template is executed; nil = nothing
	acts     acts                // what the page's forms do
}

// page is a request for a page, and what its template shows.
type page struct {
	*http.Request // without its Form
	pageRoute
	Status       int
	DB           *DB
	Home         string // the public URL
	Store        Store
	IsOwner      bool     // the store's owner is signed in
	Order        OrderRow // whose buyer sees the page
	ChosenMethod Method   // of that order
	Checking     int      // how many times the page has asked the gateway without an answer
	Done         string   // the act that was just done
	Content      template.HTML
	Unknown      bool // it is unknown whether what was asked for was done
	w            http.ResponseWriter
	auth         *auth
	next         string // where the browser goes; "" = the page is shown
	act          string // the one that was refused
	typed        form   // into its form
}

// newPage begins a page with the headers that all pages have.
func (s *server) newPage(w http.ResponseWriter, r *http.Request, route pageRoute) *page {
	h := w.Header()
	h.Set("Content-Security-Policy", pageSecurity)
	h.Set("Referrer-Policy", "same-origin") // With no-referrer, browsers would post "Origin: null" over http.
	h.Set("Vary", "Accept-Language, Cookie")
	return &page{
		Request:   r,
		pageRoute: route,
		Status:    http.StatusOK,
		DB:        s.db,
		Home:      s.db.publicURL(r.Context()),
		w:         w,
		auth:      s.auth,
	}
}

// servePage serves a page. The dashboard is on the public URL's host only. An owner who opened it elsewhere
// would send buyers links that lead nowhere, so the page says where it is.
func (s *server) servePage(route pageRoute) http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request) {
		p := s.newPage(w, r, route)
		steps := []func(p *page) error{route.admit, s.perform, route.before, s.show}
		_, host, _ := strings.Cut(p.Home, "://")
		if strings.HasPrefix(route.Path, "/dashboard") && !strings.EqualFold(host, r.Host) {
			p.Template = "error"
			p.Status = http.StatusMisdirectedRequest
			steps = steps[3:]
		}

		if lang := r.URL.Query().Get("lang"); vocabulary()[language(lang)] != nil {
			s.auth.setCookie(w, "lang", lang, 365*24*time.Hour)
		}

		for _, step := range steps {
			if step == nil {
				continue
			}
			if err := step(p); err != nil {
				s.fail(w, r, err)
				return
			}
			if p.next != "" {
				http.Redirect(w, r, p.next, http.StatusSeeOther)
				return
			}
		}
	}
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(serve))
}

//go:embed web
var web embed.FS

func webFile(name string) string {
	text, err := web.ReadFile("web/" + name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	stylesheet    = webFile("style.css")
	stylesheetURL = fmt.Sprintf("/style.css?v=%.6x", sha256.Sum256([]byte(stylesheet)))
	copyScript    = webFile("copy.js")
	copyHash      = sha256.Sum256([]byte(copyScript))
)

// pageSecurity allows a page nothing but our stylesheet, pictures, forms and the script for copying.
var pageSecurity = "default-src 'none'; style-src 'self'; img-src 'self' data: https:; script-src 'sha256-" +
	base64.StdEncoding.EncodeToString(copyHash[:]) +
	"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// templates are those of web/ by language. They are parsed for the first page, because commands need none.
var templates = sync.OnceValue(func() map[language]*template.Template {
	return map[language]*template.Template{"id": parseTemplates("id"), "en": parseTemplates("en")}
})

func parseTemplates(l language) *template.Template {
	functions := template.FuncMap{
		"t":       l.text,
		"say":     l.say,
		"word":    l.word,
		"message": l.message,
		"when":    l.dates("2 Jan 2006"),
		"soon":    l.dates("2 Jan"),
		"list":    func(values ...any) []any { return values },
		"minus":   func(a, b int64) int64 { return a - b },
		"rupiah":  rupiah,
		"tail":    referenceTail,
		"grouped": grouped,
		"masked":  masked,
		"writeTo": writeTo,
		"alerts":  shownAlerts,
		"lacks":   Method.lacks,
		"usable": func(ctx context.Context, db *DB, st Store, subtotal int64) ([]Method, error) {
			return db.UsableMethods(ctx, st, subtotal)
		},
		"offered": func(ctx context.Context, db *DB, st Store, o Order) ([]Method, error) {
			return db.OfferedMethods(ctx, st, o)
		},
		"keys": func(ctx context.Context, db *DB, storeID string, provider Provider, own string) ([]GatewayKey, error) {
			return db.GatewayKeys(ctx, storeID, provider, own)
		},
		"order":     readOrder,
		"payPage":   Store.payPage,
		"isLocal":   Store.isLocal,
		"newSecret": newSecret,
		"style":     func() string { return stylesheetURL },
		"script":    func() template.JS { return template.JS(copyScript) },
		"file":      webFile,
		"base":      path.Base,
		"marked":    marked,
		"indented":  indented,
	}
	return template.Must(template.New("").Funcs(functions).ParseFS(web, "web/*.html"))
}

// language returns the one that a link asks for, else the one chosen before, else the browser's.
func (p *page) language() language {
	wanted := p.Query("lang") + "," + p.auth.cookie(p.Request, "lang") + "," + p.Header.Get("Accept-Language")
	return language(cmp.Or(languages.FindString(wanted), "id"))
}

// Query returns a parameter of the page's address.
func (p *page) Query(name string) string { return fmt.Sprintf("%.100s", p.URL.Query().Get(name)) }

// With returns the page's address with another value for a parameter.
func (p *page) With(name string, value any) string {
	query := p.URL.Query()
	query.Set(name, fmt.Sprint(value))
	return path.Clean(p.URL.Path) + "?" + query.Encode() // A path that begins with // would be a host.
}

// show executes the page's template. It first waits for one of the store's places.
func (s *server) show(p *page) error {
	if p.Template == "" {
		return nil
	}

	kind := "pay"
	if p.IsOwner {
		kind = "owner"
	}

	leave, err := s.auth.place(p.Context(), p.Store.ID, kind)
	if err != nil {
		return err
	}

	p.Done = s.auth.cookie(p.Request, "done")
	if p.Done != "" {
		s.auth.setCookie(p.w, "done", "", -time.Second)
	}
	return p.render(leave)
}

// render executes the page's templates, leaves its place, and writes the page, which a client may read
// slowly. If a template fails, it writes nothing.
func (p *page) render(leave func()) error {
	var content, whole bytes.Buffer
	templates := templates()[p.language()]
	err := templates.ExecuteTemplate(&content, p.Template+".html", p)
	if err == nil {
		p.Content = template.HTML(content.String())
		err = templates.ExecuteTemplate(&whole, "layout.html", p)
	}
	leave()
	if err != nil {
		return err
	}

	p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.w.WriteHeader(p.Status)
	p.w.Write(whole.Bytes())
	return nil
}

// writeForGood answers with what browsers may keep, because its address changes with its content.
func writeForGood(w http.ResponseWriter, kind string, content []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.WriteHeader(http.StatusOK)
	w.Write(content)
}

// errorPage shows an error as a page.
func (s *server) errorPage(w http.ResponseWriter, r *http.Request, status int, err error) {
	p := s.newPage(w, r, pageRoute{Template: "error"})
	p.Status = status
	p.Unknown = errors.Is(err, ErrUnknown)
	if err := p.render(func() {}); err != nil {
		s.db.log.Error("an error page could not be shown", "error", err)
		w.WriteHeader(p.Status)
	}
}

const (
	mostInForm      = 4 << 10 // bytes, on the sign-in and pay pages
	mostInDashboard = 64 << 10
	mostInPicture   = 8 << 20
	pictureUpload   = "/dashboard/payments/picture"
	uploadTime      = time.Minute
)

// perform does what a posted form asks for.
func (s *server) perform(p *page) error {
	if p.Method != http.MethodPost {
		return nil
	}

	most := int64(mostInForm)
	if p.IsOwner {
		most = mostInDashboard
	}
	if p.Path == pictureUpload {
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

	err := p.parseForm(most)
	name := p.FormValue("act")
	act := p.acts[name]
	if act == nil {
		return cmp.Or(err, ErrNotFound)
	}
	if err == nil {
		err = act(p)
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		p.Status, _ = describe(p.w.Header(), err)
		p.next = ""
		p.act = name
		p.typed = form{p.PostForm, refusal}
		return nil
	}

	// Without a fragment of its own the redirect would keep the form's, and the browser would scroll there.
	p.next = cmp.Or(p.next, p.URL.RequestURI()) + "#"
	if p.IsOwner && err == nil {
		s.auth.setCookie(p.w, "done", name, time.Minute)
	}
	return err
}

// parseForm reads the form that a request posts.
func (p *page) parseForm(most int64) error {
	p.Body = http.MaxBytesReader(p.w, p.Body, most)
	err := p.ParseForm()
	if err == nil {
		err = p.ParseMultipartForm(most)
	}
	if err != nil && !errors.Is(err, http.ErrNotMultipart) {
		p.w.Header().Set("Connection", "close") // Otherwise the server would read on before it answers.
		return refuseBody(err)
	}
	return nil
}

// form is a form of a page: what its fields hold, and why it was refused, if it was.
type form struct {
	Values  url.Values
	Refusal *Refusal
}

// Form returns the form of an act, filled in with the fields of what it is about; without those, it is about
// something new. Without an act, it is the refused form, whatever its act.
func (p *page) Form(act string, about ...url.Values) form {
	if p.typed.Refusal != nil && (act == p.act || act == "") {
		return p.typed
	}
	values := url.Values{"enabled": {"on"}, "published": {"on"}}
	if len(about) > 0 {
		values = about[0]
	}
	return form{Values: values}
}

// field is a field of a form as its template shows it.
type field struct {
	Name, Kind, Label, Hint, Value string
	Required                       bool
	Error                          *FieldError
}

// Field returns a field with its value and what is wrong with it.
func (f form) Field(name, kind string, required bool, label, hint string) field {
	shown := field{name, kind, label, hint, f.Values.Get(name), required, nil}
	if f.Refusal != nil {
		for _, e := range f.Refusal.Fields {
			if e.Field == name {
				shown.Error = &e
			}
		}
	}
	return shown
}

// Elsewhere returns the errors that no field shows.
func (f form) Elsewhere() []FieldError {
	return slices.DeleteFunc(slices.Clone(f.Refusal.Fields), func(e FieldError) bool { return f.Values.Has(e.Field) })
}
