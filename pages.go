package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// This file holds what all pages share: how a page is served, its words in two languages, its forms and
// templates. After that come the pages that need no sign-in: a buyer's pay page, the sandbox's page and the
// API's reference.
//
// A page is a row of the table in dashboard.go. It is shown by the template that it names in web/, inside
// layout.html. The template reads what it shows, by the methods of page and of its database. An error ends
// the page. A form posts to its own page, and its field act says what it does. An act that succeeds ends with
// a redirect; one that is refused shows the page again, with what was typed and what is wrong. No page needs
// a script; the only one is for copying.

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

// vocabulary has the words of web/words.txt by language and code.
var vocabulary = sync.OnceValue(func() map[language]map[string]string {
	all := map[language]map[string]string{"id": {}, "en": {}}
	for line := range strings.Lines(webFile("words.txt")) {
		code, words, isWord := strings.Cut(strings.TrimSpace(line), " = ")
		id, en, isCode := strings.Cut(words, " | ")
		if !isCode {
			en = code // which is what the program says
		}
		if isWord && line[0] != '#' {
			all["id"][code] = id
			all["en"][code] = en
		}
	}
	return all
})

// language is a language of the pages: id or en.
type language string

// say returns the word for a code. Values follow, each after its name in braces.
func (l language) say(code string, values ...string) string {
	return strings.NewReplacer(values...).Replace(cmp.Or(vocabulary()[l][code], code))
}

// word returns the word for a code of a kind.
func (l language) word(kind string, code any) string { return l.say(fmt.Sprint(kind, ".", code)) }

// message returns what is wrong with a field.
func (l language) message(e FieldError) string { return fmt.Sprintf(l.say(e.Format), e.Values...) }

// text chooses between the two languages of a text.
func (l language) text(id, en string) string {
	if l == "en" {
		return en
	}
	return id
}

// dates writes times in WIB (UTC+7), with this layout for the date.
func (l language) dates(layout string) func(t Time) string {
	words := strings.NewReplacer()
	if l == "id" {
		words = strings.NewReplacer("May", "Mei", "Aug", "Agu", "Oct", "Okt", "Dec", "Des", ":", ".")
	}
	return func(t Time) string { return words.Replace(t.Time().In(wib).Format(layout + ", 15:04 WIB")) }
}

// rupiah writes an amount the way Indonesians do: Rp85.000.
func rupiah(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "." + text[i:]
	}
	return "Rp" + text
}

// referenceTail returns the part of an order's reference that tells it from the others of its day.
func referenceTail(reference string) string { return reference[strings.LastIndex(reference, "-")+1:] }

var fourDigits = regexp.MustCompile(`\d{4}`)

// grouped writes an account's number in groups, as people read it: in those of its owner or, if there are
// none, of four digits.
func grouped(a BankAccount) string {
	if a.Number != a.Digits() {
		return a.Number
	}
	return strings.TrimSpace(fourDigits.ReplaceAllString(a.Number, "$0 "))
}

// writeTo returns the link by which a person writes to a contact: an e-mail address, or a telephone number on
// WhatsApp. It is "" for a number that cannot be called from abroad.
func writeTo(contact, text string) string {
	text = strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	if strings.Contains(contact, "@") {
		return "mailto:" + url.PathEscape(contact) + "?body=" + text
	}

	number := internationalPhone(contact)
	if number == "" {
		return ""
	}
	return "https://wa.me/" + number[1:] + "?text=" + text
}

// masked returns a buyer's contact as their pay page shows it, because buyers pass the page's address on.
func masked(b Buyer) string {
	if name, domain, isEmail := strings.Cut(b.Email, "@"); isEmail {
		return fmt.Sprintf("%.1s•••@%s", name, domain)
	}
	return "•••" + b.Phone[max(0, len(b.Phone)-3):]
}

// templates are those of web/ by language. They are parsed for the first page, because commands need none.
var templates = sync.OnceValue(func() map[language]*template.Template {
	return map[language]*template.Template{"id": parseTemplates("id"), "en": parseTemplates("en")}
})

func parseTemplates(l language) *template.Template {
	functions := template.FuncMap{
		"t":         l.text,
		"say":       l.say,
		"word":      l.word,
		"message":   l.message,
		"when":      l.dates("2 Jan 2006"),
		"soon":      l.dates("2 Jan"),
		"list":      func(values ...any) []any { return values },
		"minus":     func(a, b int64) int64 { return a - b },
		"rupiah":    rupiah,
		"tail":      referenceTail,
		"grouped":   grouped,
		"masked":    masked,
		"writeTo":   writeTo,
		"alerts":    shownAlerts,
		"lacks":     Method.lacks,
		"usable":    UsableMethods,
		"offered":   OfferedMethods,
		"keys":      GatewayKeys,
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

var languages = regexp.MustCompile(`\b(id|en)\b`)

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

// MethodOf returns one of the store's payment methods; one that was removed has no name.
func (p *page) MethodOf(code string) (Method, error) {
	m, err := MethodOf(p.Context(), p.DB, p.Store.ID, code)
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return m, err
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

// admitBuyer lets in whoever has the address of an order's pay page.
func (s *server) admitBuyer(p *page) error { return s.admitTo(p, p.PathValue("id")) }

// admitToSandbox lets in the buyer of an order that the sandbox can pay.
func (s *server) admitToSandbox(p *page) error {
	id, err := s.db.SandboxOrder(p.Context(), p.PathValue("id"))
	if err == nil {
		err = s.admitTo(p, id)
	}
	if err == nil && !p.Store.TestMode {
		err = ErrNotFound
	}
	return err
}

// admitTo lets the buyer of an order in. Their pages are on every host but another store's, so that links
// still work after a store's domain changes.
func (s *server) admitTo(p *page, orderID string) (err error) {
	orderID = strings.ToLower(orderID)
	if err := s.auth.pays.take(string(digest(orderID)), alone).err; err != nil { // The address can be long.
		return err
	}

	if p.Order, err = readOrder(p.Context(), s.db, anyStore, orderID); err != nil {
		return err
	}
	if p.Store, err = readStore(p.Context(), s.db, p.Order.StoreID); err != nil {
		return err
	}

	logStore(p.w, p.Store.ID)
	if other, err := s.db.StoreAt(p.Context(), p.Host); err == nil && other.ID != p.Store.ID {
		return ErrNotFound
	}

	p.ChosenMethod, err = p.MethodOf(p.Order.Order.PaymentMethod)
	return err
}

const (
	mostLooks  = 10              // times that the page looks again; pay.html knows the number too
	buyerWaits = 4 * time.Second // for a gateway's answer
)

// checkOnReturn asks the gateway about a pending order whose buyer comes back from there, or about which a
// notification claims that money came. While somebody else is asking, or if no answer comes, the page says
// that the gateway is being asked (past the order's end, that its time is over), and tries again.
func (s *server) checkOnReturn(p *page) error {
	looks, _ := strconv.Atoi(p.Query("back"))
	if p.Query("back") == "" && p.Order.isClaimed() {
		looks = 1
	}
	if looks < 1 || !p.Order.Order.RequiresPayment {
		return nil
	}
	if !s.payments.isBusy(p.Order.ID) {
		ctx, cancel := context.WithTimeout(p.Context(), buyerWaits)
		defer cancel()
		answered, err := s.payments.CheckNow(ctx, p.Store.ID, p.Order.ID)
		if err == nil {
			err = s.admitTo(p, p.Order.ID) // to read it again
		}
		if err != nil || answered && !p.Order.isClaimed() {
			return err
		}
	}

	p.Checking = looks
	if looks < mostLooks {
		p.w.Header().Set("Refresh", fmt.Sprintf("3; url=/pay/%s?back=%d", p.Order.ID, looks+1))
	}
	return nil
}

// actOfBuyer does what a button of the pay page says. If that comes too late, the page shows how things
// stand; if it comes from the page of another method, the page says that they have changed.
func (s *server) actOfBuyer(p *page) (err error) {
	p.next = "/pay/" + p.Order.ID
	act := p.PostFormValue("act")
	method := p.PostFormValue("method")
	switch {
	case act == "change":
		err = s.db.ChangeMethod(p.Context(), p.Store, p.Order.ID, method)
	case method != p.Order.Order.PaymentMethod:
		p.next += "?changed=1"
	case act == "claim":
		var said struct {
			Sender string `json:"sender" rule:"text 1..100 optional"`
			Bank   string `json:"bank" rule:"text 1..100 optional"`
		}
		if err = readForm(p.PostForm, &said); err == nil {
			err = s.db.ReportPayment(p.Context(), p.Order.ID, method, said.Sender, said.Bank)
		}
	case act == "unclaim":
		err = s.db.TakeBackReport(p.Context(), p.Order.ID)
	}

	if isRefused(err, WrongState) {
		return nil
	}
	return err
}

// InTime reports whether the buyer may still do something about the payment: the order has not come to its
// end.
func (p *page) InTime() bool { return p.DB.now() < p.Order.Order.ExpiresAt }

// goPay leads to the page where an order is paid, or back to the pay page, which says what is wrong. It is a
// GET because form-action allows no form that leads to a gateway. A preview (HEAD) starts nothing.
func (s *server) goPay(p *page) error {
	_, session, err := s.payments.OrderWithSession(p.Context(), p.Store, p.Order.ID, p.Method == http.MethodGet)
	p.next = session.PaymentURL
	return err
}

func (s *server) actInSandbox(p *page) error {
	p.next = "/pay/" + p.Order.ID + "?back=1"
	return s.db.ActInSandbox(p.Context(), p.PathValue("id"), p.PostFormValue("act"))
}

var inBackticks = regexp.MustCompile("`([^`]+)`")

// marked returns a text of the API's description, which is Markdown, with its code marked.
func marked(text any) template.HTML {
	if text == nil {
		return ""
	}
	escaped := template.HTMLEscapeString(fmt.Sprint(text))
	return template.HTML(inBackticks.ReplaceAllString(escaped, "<code>$1</code>"))
}

func indented(value any) (string, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return string(text), err
}
