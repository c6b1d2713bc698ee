//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	//go:embed web/*.html
	templates embed.FS
	//go:embed web/style.css
	stylesheet []byte
	//go:embed web/sayings.txt
	translations string

	stylesheetURL = fmt.Sprintf("/style.css?v=%.6x", sha256.Sum256(stylesheet))
)

// pages are the templates by language, parsed when the first page is asked for: a shop that uses the API alone, and a
// command, need none. Each text stands in them in both: {{t "Pesanan" "Order"}}.
var pages = map[string]func() *template.Template{
	"id": sync.OnceValue(func() *template.Template { return parsePages("id") }),
	"en": sync.OnceValue(func() *template.Template { return parsePages("en") }),
}

func parsePages(lang string) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"lang":   func() string { return lang },
		"style":  func() string { return stylesheetURL },
		"rupiah": rupiah,
		"fee":    func(o Order) int64 { return o.Amount - o.Subtotal },
		"when":   func(t Time) string { return date(lang, t, "2 Jan 2006, 15:04 WIB") },
		"clock":  func(t Time) string { return date(lang, t, "2 Jan 2006, 15:04") },
		"day":    func(d int64) string { return date(lang, Time(d*24*60*60*1000), "2 Jan") },
		"status": func(s Status) string { return statusNames[s][lang] },
		"tone":   func(s Status) string { return statusNames[s]["tone"] },
		"say":    func(text string) string { return say(lang, text) },
		"t": func(id, en string) string {
			if lang == "en" {
				return en
			}
			return id
		},
	}).ParseFS(templates, "web/*.html"))
}

// rupiah writes an amount as Indonesians do: Rp85.000.
func rupiah(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "." + digits[i:]
	}
	return "Rp" + digits
}

// indonesian has what is written otherwise in an Indonesian date than in an English one.
var indonesian = strings.NewReplacer("May", "Mei", "Aug", "Agu", "Oct", "Okt", "Dec", "Des", ":", ".")

// date writes a time in WIB (UTC+7).
func date(lang string, t Time, layout string) string {
	text := t.Time().In(wib).Format(layout)
	if lang == "id" {
		return indonesian.Replace(text)
	}
	return text
}

// language is en for those who ask for it before Indonesian, and id for all others.
func language(r *http.Request) string {
	best, lang := 0.0, "id"
	for entry := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, params, _ := strings.Cut(strings.TrimSpace(entry), ";")
		primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
		q := 1.0
		if text, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			q, _ = strconv.ParseFloat(text, 64)
		}
		if (primary == "id" || primary == "en") && q > best {
			best, lang = q, primary
		}
	}
	return lang
}

// pageHandler answers a request for a page. Its error is shown by pageError.
type pageHandler func(w http.ResponseWriter, r *http.Request) error

// page wraps the handlers of all pages: the headers that keep them safe, and no posts from other sites.
func (s *server) page(handle pageHandler) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self' data: https:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // no-referrer would have browsers post "Origin: null" over plain http, which is refused
		h.Set("Cache-Control", "no-store")
		h.Add("Vary", "Accept-Language")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := handle(w, r); err != nil {
			s.pageError(w, r, err)
		}
	}))
}

// render writes a page, or nothing if its template is at fault.
func render(w http.ResponseWriter, r *http.Request, status int, name string, data any) error {
	var b bytes.Buffer
	if err := pages[language(r)]().ExecuteTemplate(&b, name, data); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
	return nil
}

// seeOther leads on to another page.
func seeOther(w http.ResponseWriter, r *http.Request, to string) error {
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// pageError answers what went wrong: 404 for what is not there, else 500 or 503.
func (s *server) pageError(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch refusal, _ := errors.AsType[*APIError](err); {
	case err == errNotFound:
		status = http.StatusNotFound
	case refusal != nil && refusal.Code == codeInvalidRequest:
		status = http.StatusBadRequest
	case outOfService(err):
		status = http.StatusServiceUnavailable
	}
	if status >= http.StatusInternalServerError {
		s.log.Error("page failed", "request_id", logged(r).id, "error", err)
	}
	if err := render(w, r, status, "error.html", status); err != nil {
		s.log.Error("page failed", "request_id", logged(r).id, "error", err)
		w.WriteHeader(status)
	}
}

func (s *server) serveStylesheet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(stylesheet))
}

var statusNames = map[Status]map[string]string{
	Pending:              {"id": "Belum dibayar", "en": "Not paid yet", "tone": ""},
	AwaitingVerification: {"id": "Perlu dicek", "en": "To be checked", "tone": "warn"},
	Paid:                 {"id": "Lunas", "en": "Paid", "tone": "good"},
	Failed:               {"id": "Gagal", "en": "Failed", "tone": "bad"},
	Expired:              {"id": "Kedaluwarsa", "en": "Expired", "tone": "soft"},
	Refunded:             {"id": "Dana dikembalikan", "en": "Refunded", "tone": "soft"},
}

// sayings are the program's own texts in Indonesian, by the pattern of the English ones: see web/sayings.txt.
var sayings = sync.OnceValue(func() (list []saying) {
	for pair := range slices.Chunk(strings.Split(strings.TrimSpace(translations), "\n")[1:], 2) {
		list = append(list, saying{regexp.MustCompile("^" + pair[0] + "$"), strings.TrimSpace(pair[1])})
	}
	return list
})

type saying struct {
	english    *regexp.Regexp
	indonesian string
}

// say puts a text of the program into a page's language; one that it does not know stays English.
func say(lang, text string) string {
	for _, s := range sayings() {
		if lang == "id" && s.english.MatchString(text) {
			return s.english.ReplaceAllString(text, s.indonesian)
		}
	}
	return text
}

// orderOfPage finds the order that a page is about. On another store's host it is not found.
func (s *server) orderOfPage(r *http.Request, id string) (Store, Order, error) {
	st, o, err := s.db.OrderPage(strings.ToLower(id))
	if err != nil {
		return st, o, err
	}
	if u, err := url.Parse(st.URL); err != nil || !strings.EqualFold(u.Hostname(), (&url.URL{Host: r.Host}).Hostname()) {
		return st, o, errNotFound
	}
	return st, o, nil
}

func (s *server) payPage(w http.ResponseWriter, r *http.Request) error {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	if err == nil && o.Status == Pending && o.SettlementChannel == "gateway" && r.Method == "GET" {
		// A buyer who comes back from the gateway wants to read that he has paid, whether its notification came or not.
		if session, e := s.db.LatestPaymentSession(o.ID); e == nil && session.State == SessionActive {
			s.payments.glance(r.Context(), session)
			st, o, err = s.db.OrderPage(o.ID)
		}
	}
	v := struct {
		Store       Store
		Order       Order
		Method      PaymentMethod // of a manual order
		Accounts    []string      // numbers in its instructions, without spaces
		Contact     string        // the buyer's, masked
		Unreachable bool          // the gateway did not answer when the buyer wanted to pay
	}{Store: st, Order: o, Contact: mask(o.Buyer), Unreachable: r.URL.Query().Has("unreachable")}
	if err == nil && o.SettlementChannel == "manual" && o.Status == Pending {
		v.Method, err = s.db.PaymentMethod(st.ID, o.PaymentMethod)
		for _, number := range accountPattern.FindAllString(v.Method.Instructions, -1) {
			v.Accounts = append(v.Accounts, strings.NewReplacer(" ", "", "-", "").Replace(number))
		}
	}
	if err != nil {
		return err
	}
	if o.Status == AwaitingVerification || o.Status == Pending && o.SettlementChannel == "gateway" {
		w.Header().Set("Refresh", "20") // not while someone copies an account number
	}
	return render(w, r, http.StatusOK, "pay.html", v)
}

// accountPattern finds account numbers in a text: eight digits or more, in groups or not.
var accountPattern = regexp.MustCompile(`\d(?:[ -]?\d){7,}`)

// buyerClaims is the button "I have paid" of a manual order.
func (s *server) buyerClaims(w http.ResponseWriter, r *http.Request) error {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	if err == nil && o.SettlementChannel == "manual" && o.Status == Pending {
		_, err = s.db.Transition(r.Context(), st.ID, o.ID, BuyerClaims, Note{Code: NoteBuyerClaims})
		s.queue.wake()
	}
	if _, refused := errors.AsType[*APIError](err); err != nil && (!refused || err == errNotFound) {
		return err
	}
	// Refused: the state has changed meanwhile, and the page shows it.
	return seeOther(w, r, "/pay/"+o.ID)
}

// goPay sends the buyer to the gateway's page, and starts a session for it if need be.
func (s *server) goPay(w http.ResponseWriter, r *http.Request) error {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	var session PaymentSession
	if err == nil && r.Method == "GET" && o.SettlementChannel == "gateway" {
		session, err = s.payments.open(r.Context(), st, o.ID)
	}
	switch {
	case err != nil:
		return err
	case session.State == SessionActive:
		return seeOther(w, r, session.URL)
	case session.State == SessionStarting:
		return seeOther(w, r, "/pay/"+o.ID+"?unreachable")
	}
	return seeOther(w, r, "/pay/"+o.ID)
}

// mask shows enough of a buyer's contact for himself to know it by.
func mask(b Buyer) string {
	if name, host, ok := strings.Cut(b.Email, "@"); ok {
		return cut(name, 1) + "•••@" + host
	}
	return "•••" + b.Phone[max(0, len(b.Phone)-3):]
}

// sandboxPage shows a session as its gateway, and does what that page's buttons say.
func (s *server) sandboxPage(w http.ResponseWriter, r *http.Request) error {
	session, err := s.db.PaymentSessionByID(strings.ToLower(r.PathValue("session_id")))
	if err != nil || session.Provider != "sandbox" {
		return cmp.Or(err, error(errNotFound))
	}
	st, o, err := s.orderOfPage(r, session.OrderID)
	if err != nil {
		return err
	}
	if offered, err := s.db.SandboxOffered(st.ID); err != nil || !offered { // or goods would go for nothing
		return cmp.Or(err, error(errNotFound))
	}
	if r.Method != http.MethodPost {
		said, err := s.db.Sandbox(session.ID)
		if err != nil {
			return err
		}
		return render(w, r, http.StatusOK, "sandbox.html", struct {
			Store   Store
			Order   Order
			Session SessionWithOrder
			Said    GatewayState // what the sandbox says of the session now
		}{st, o, session, said.State})
	}
	verdict, copies := GatewayAnswer{State: StateSettled, Amount: o.Amount}, 1
	switch r.FormValue("action") {
	case "pay", "late":
	case "twice":
		copies = 2
	case "other":
		verdict.Amount--
	case "deny":
		verdict = GatewayAnswer{State: StateDenied}
	case "expire":
		verdict = GatewayAnswer{State: StateExpired}
	default:
		return errNotFound
	}
	if err := (sandbox{s.payments}).act(r.Context(), session, verdict, copies); err != nil {
		return err
	}
	return seeOther(w, r, "/pay/"+o.ID)
}
