//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ---- What all pages share

//go:embed web
var web embed.FS

// pages are the templates by language. Each text stands in them in both: {{t "Pesanan" "Order"}}.
var pages = map[string]*template.Template{"id": parsePages("id"), "en": parsePages("en")}

var stylesheet, stylesheetURL = func() ([]byte, string) {
	css, err := web.ReadFile("web/style.css")
	if err != nil {
		panic(err)
	}
	hash := sha256.Sum256(css)
	return css, "/style.css?v=" + hex.EncodeToString(hash[:6])
}()

func parsePages(lang string) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"lang":   func() string { return lang },
		"style":  func() string { return stylesheetURL },
		"rupiah": rupiah,
		"fee":    func(o Order) int64 { return o.Amount - o.Subtotal },
		"when":   func(t Time) string { return when(lang, t) },
		"t": func(id, en string) string {
			if lang == "en" {
				return en
			}
			return id
		},
	}).ParseFS(web, "web/*.html"))
}

// rupiah writes an amount as Indonesians do: Rp85.000.
func rupiah(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "." + digits[i:]
	}
	return "Rp" + digits
}

var months = strings.Fields("Jan Feb Mar Apr Mei Jun Jul Agu Sep Okt Nov Des")

// when writes a time in WIB (UTC+7), with the zone's name.
func when(lang string, t Time) string {
	at := t.Time().In(wib)
	if lang == "en" {
		return at.Format("2 Jan 2006, 15:04") + " WIB"
	}
	return at.Format("2 ") + months[at.Month()-1] + at.Format(" 2006, 15.04") + " WIB"
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

// page wraps the handlers of all pages: the headers that keep them safe, and no posts from other sites.
func (s *server) page(handle http.HandlerFunc) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self' data: https:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Add("Vary", "Accept-Language")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		handle(w, r)
	}))
}

// render writes a page. The template is executed before the status is sent, so that a fault in it is a 500.
func (s *server) render(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	var b bytes.Buffer
	if err := pages[language(r)].ExecuteTemplate(&b, name, data); err != nil {
		s.pageError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// pageError answers what went wrong: 404 for what is not there, else 500 or 503.
func (s *server) pageError(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch {
	case err == errNotFound:
		status = http.StatusNotFound
	case outOfService(err):
		status = http.StatusServiceUnavailable
	}
	if status != http.StatusNotFound {
		s.log.Error("page failed", "request_id", logged(r).id, "error", err)
	}
	var b bytes.Buffer
	if err := pages[language(r)].ExecuteTemplate(&b, "error.html", status); err != nil {
		s.log.Error("page failed", "request_id", logged(r).id, "error", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

func (s *server) serveStylesheet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(stylesheet))
}

// ---- The hosted pay page: whoever has an order's id sees it, on its store's own host

// payView is what the pay page shows.
type payView struct {
	Store       Store
	Order       Order
	Method      PaymentMethod // of a manual order
	Accounts    []string      // numbers in its instructions, without spaces
	Contact     string        // the buyer's, masked
	Unreachable bool          // the gateway did not answer when the buyer wanted to pay
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

func (s *server) payPage(w http.ResponseWriter, r *http.Request) {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	if err == nil && o.Status == Pending && o.SettlementChannel == "gateway" && r.Method == "GET" {
		// A buyer who comes back from the gateway wants to read that he has paid, whether its notification came or not.
		if session, e := s.db.LatestSession(o.ID); e == nil && session.Status == "active" && time.Since(session.CheckedAt.Time()) > 3*time.Second {
			ctx, cancel := context.WithTimeout(r.Context(), 4*time.Second)
			s.payments.check(ctx, session, Notification{})
			cancel()
			st, o, err = s.db.OrderPage(o.ID)
		}
	}
	v := payView{Store: st, Order: o, Contact: mask(o.Buyer), Unreachable: r.URL.Query().Has("unreachable")}
	if err == nil && o.SettlementChannel == "manual" && o.Status == Pending {
		v.Method, err = s.db.PaymentMethod(st.ID, o.PaymentMethod)
		for _, number := range accountPattern.FindAllString(v.Method.Instructions, -1) {
			v.Accounts = append(v.Accounts, strings.NewReplacer(" ", "", "-", "").Replace(number))
		}
	}
	if err != nil {
		s.pageError(w, r, err)
		return
	}
	if o.Status == AwaitingVerification || o.Status == Pending && o.SettlementChannel == "gateway" {
		w.Header().Set("Refresh", "20") // not while someone copies an account number
	}
	s.render(w, r, http.StatusOK, "pay.html", v)
}

// accountPattern finds account numbers in a text: eight digits or more, in groups or not.
var accountPattern = regexp.MustCompile(`\d(?:[ -]?\d){7,}`)

// buyerClaims is the button "I have paid" of a manual order.
func (s *server) buyerClaims(w http.ResponseWriter, r *http.Request) {
	_, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	if err == nil && o.SettlementChannel == "manual" && o.Status == Pending {
		_, err = s.db.MoveOrder(r.Context(), "", o.ID, BuyerClaims, "says on the pay page that the transfer is made")
		s.queue.wake()
	}
	if _, refused := errors.AsType[*Refusal](err); err != nil && (!refused || err == errNotFound) {
		s.pageError(w, r, err)
		return
	}
	// Refused: the state has changed meanwhile, and the page shows it.
	http.Redirect(w, r, "/pay/"+o.ID, http.StatusSeeOther)
}

// goPay sends the buyer to the gateway's page, and starts a session for it if need be.
func (s *server) goPay(w http.ResponseWriter, r *http.Request) {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	var session Session
	if err == nil && r.Method == "GET" && o.SettlementChannel == "gateway" {
		session, err = s.payments.open(r.Context(), st, o.ID)
	}
	switch {
	case err != nil:
		s.pageError(w, r, err)
	case session.Status == "active":
		http.Redirect(w, r, session.URL, http.StatusSeeOther)
	case session.Status == "starting":
		http.Redirect(w, r, "/pay/"+o.ID+"?unreachable", http.StatusSeeOther)
	default:
		http.Redirect(w, r, "/pay/"+o.ID, http.StatusSeeOther)
	}
}

// mask shows enough of a buyer's contact for himself to know it by.
func mask(b Buyer) string {
	if name, host, ok := strings.Cut(b.Email, "@"); ok {
		return cut(name, 1) + "•••@" + host
	}
	return "•••" + b.Phone[max(0, len(b.Phone)-3):]
}

// ---- The sandbox gateway's page

type sandboxView struct {
	Store   Store
	Order   Order
	Session OpenSession
	Said    string // what the sandbox says of the session now
}

func (s *server) sandboxOfPage(r *http.Request) (v sandboxView, err error) {
	if v.Session, err = s.db.SessionByID(strings.ToLower(r.PathValue("session_id"))); err != nil || v.Session.Provider != "sandbox" {
		return v, cmp.Or(err, error(errNotFound))
	}
	if v.Store, v.Order, err = s.orderOfPage(r, v.Session.OrderID); err != nil {
		return v, err
	}
	said, err := s.db.Sandbox(v.Session.ID)
	v.Said = said.State
	return v, err
}

func (s *server) sandboxPage(w http.ResponseWriter, r *http.Request) {
	v, err := s.sandboxOfPage(r)
	if err != nil {
		s.pageError(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "sandbox.html", v)
}

func (s *server) sandboxAct(w http.ResponseWriter, r *http.Request) {
	v, err := s.sandboxOfPage(r)
	if err != nil {
		s.pageError(w, r, err)
		return
	}
	verdict, copies := Verdict{State: Settled, Amount: v.Order.Amount}, 1
	switch r.FormValue("action") {
	case "pay", "late":
	case "twice":
		copies = 2
	case "other":
		verdict.Amount--
	case "deny":
		verdict = Verdict{State: Denied}
	case "expire":
		verdict = Verdict{State: Over}
	default:
		s.pageError(w, r, errNotFound)
		return
	}
	if err := (sandbox{s.payments}).act(r.Context(), v.Session, verdict, copies); err != nil {
		s.pageError(w, r, err)
		return
	}
	http.Redirect(w, r, "/pay/"+v.Order.ID, http.StatusSeeOther)
}

// ---- The store dashboard
