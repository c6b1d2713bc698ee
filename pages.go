//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
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

	// stylesheetURL changes with the stylesheet, so that browsers may keep what they have loaded.
	stylesheetURL = fmt.Sprintf("/style.css?v=%.6x", sha256.Sum256(stylesheet))
)

// pages are the templates by language. They hold each text in both: {{t "Pesanan" "Order"}}. They are parsed
// when the first page is requested, because the commands and a shop that only uses the API need none.
var pages = map[string]func() *template.Template{
	"id": sync.OnceValue(func() *template.Template { return parsePages("id") }),
	"en": sync.OnceValue(func() *template.Template { return parsePages("en") }),
}

func parsePages(lang string) *template.Template {
	empty := template.New("").Funcs(template.FuncMap{
		"lang":    func() string { return lang },
		"style":   func() string { return stylesheetURL },
		"rupiah":  rupiah,
		"count":   func(n int64) string { return count(lang, n) },
		"mailto":  mailto,
		"minutes": func(seconds int) int { return (seconds + 59) / 60 },
		"write":   writeTo,
		"initial": initial,
		"tail":    referenceTail,
		// threeBefore is where the last three digits of an amount begin.
		"threeBefore": func(amount string) int { return max(0, len(amount)-3) },
		"when":        func(t Time) string { return date(lang, t, "2 Jan 2006, 15:04 WIB") },
		"soon":        func(t Time) string { return date(lang, t, "2 Jan, 15:04 WIB") },
		"clock":       func(t Time) string { return date(lang, t, "2 Jan 2006, 15:04") },
		"moment":      func(t Time) string { return moment(lang, t, timeOf(time.Now())) },
		"day":         func(d int64) string { return date(lang, Time(d*24*60*60*1000), "2 Jan") },
		"t": func(id, en string) string {
			if lang == "en" {
				return en
			}
			return id
		},
	})
	return template.Must(empty.ParseFS(templates, "web/*.html"))
}

// mailto is the link to an e-mail address (RFC 6068). In a link, what follows a question mark would be further
// recipients or a text.
func mailto(address string) string {
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return ""
	}
	return "mailto:" + url.QueryEscape(address[:at]) + "@" + url.QueryEscape(address[at+1:])
}

// writeTo is the link by which a person writes to a contact: to an e-mail address, or else to a telephone number
// on WhatsApp. It begins the message with a text. It is empty for a number that cannot be called from abroad.
func writeTo(contact, text string) string {
	text = strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	if strings.Contains(contact, "@") {
		return mailto(contact) + "?body=" + text
	}

	number := internationalPhone(contact)
	if number == "" {
		return ""
	}
	return "https://wa.me/" + number[1:] + "?text=" + text
}

// isContact reports whether text can be a store's contact: an e-mail address or a number on WhatsApp.
func isContact(text string) bool {
	if strings.Contains(text, "@") {
		return isBuyerEmail(text)
	}
	return isPhone(text) && internationalPhone(text) != ""
}

// initial is the letter that stands for a name in its picture.
func initial(name string) string { return strings.ToUpper(cut(name, 1)) }

// referenceTail is the part of an order's reference that tells it from the others of its day.
func referenceTail(reference string) string { return reference[strings.LastIndex(reference, "-")+1:] }

// rupiah writes an amount as Indonesians do: Rp85.000.
func rupiah(n int64) string { return "Rp" + grouped(n, ".") }

// count writes a number that is no amount as a language does: 10.000 or 10,000.
func count(lang string, n int64) string {
	if lang == "en" {
		return grouped(n, ",")
	}
	return grouped(n, ".")
}

// grouped writes a number with a mark between thousands.
func grouped(n int64, mark string) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + mark + digits[i:]
	}
	return digits
}

// indonesian replaces what differs between an English and an Indonesian date.
var indonesian = strings.NewReplacer("May", "Mei", "Aug", "Agu", "Oct", "Okt", "Dec", "Des", ":", ".")

// date writes a time in WIB (UTC+7).
func date(lang string, t Time, layout string) string {
	text := t.Time().In(wib).Format(layout)
	if lang == "id" {
		return indonesian.Replace(text)
	}
	return text
}

// language is the language of a request's page: the one that a link asks for, else the one that was chosen before,
// else the one that the browser prefers.
func language(r *http.Request) string {
	asked := r.URL.Query().Get("lang")
	if pages[asked] != nil {
		return asked
	}
	chosen, err := r.Cookie("lang")
	if err == nil && pages[chosen.Value] != nil {
		return chosen.Value
	}
	return preferredLanguage(r)
}

// rememberLanguage lets the browser remember the language that a link asks for.
func (s *server) rememberLanguage(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query().Get("lang")
	if pages[asked] == nil {
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name:     "lang",
		Value:    asked,
		Path:     "/",
		MaxAge:   365 * 24 * 60 * 60,
		HttpOnly: true,
		Secure:   isHTTPS(s.db.publicURL),
		SameSite: http.SameSiteLaxMode, // so that links from elsewhere find it
	})
}

// preferredLanguage returns en for a client that prefers English to Indonesian, and id for any other.
func preferredLanguage(r *http.Request) string {
	lang, best := "id", 0.0
	for entry := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, params, _ := strings.Cut(strings.TrimSpace(entry), ";")
		primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
		if primary != "id" && primary != "en" {
			continue
		}

		weight := 1.0
		if text, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			weight, _ = strconv.ParseFloat(text, 64)
		}
		if weight > best {
			lang, best = primary, weight
		}
	}
	return lang
}

// moment writes a time in WIB as shortly as it is clear: the time of today, the day of this year.
func moment(lang string, t, now Time) string {
	if dayOf(t) == dayOf(now) {
		return date(lang, t, "15:04")
	}
	if t.Time().In(wib).Year() == now.Time().In(wib).Year() {
		return date(lang, t, "2 Jan")
	}
	return date(lang, t, "2 Jan 2006")
}

// pageHandler answers a request for a page. Its error is shown by pageError.
type pageHandler func(w http.ResponseWriter, r *http.Request) error

// contentSecurity allows a page nothing but our stylesheet, images and forms: no script runs in it.
const contentSecurity = "default-src 'none'; style-src 'self'; img-src 'self' data: https:; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// page wraps the handlers of all pages: it sets the headers that protect them, and refuses posts from other
// sites.
func (s *server) page(handle pageHandler) http.Handler {
	protected := func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentSecurity)
		// With no-referrer, browsers would post "Origin: null" over plain http, which is refused.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		h.Add("Vary", "Accept-Language, Cookie")
		s.rememberLanguage(w, r)

		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := handle(w, r); err != nil {
			s.pageError(w, r, err)
		}
	}
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(protected))
}

// render writes a page. If its template fails, it writes nothing.
func render(w http.ResponseWriter, r *http.Request, status int, name string, data any) error {
	page, err := pageText(r, name, data)
	if err != nil {
		return err
	}
	writePage(w, status, page)
	return nil
}

func pageText(r *http.Request, name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := pages[language(r)]().ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

func writePage(w http.ResponseWriter, status int, page []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	w.Write(page)
}

// seeOther redirects the browser to another page, which it then requests with GET.
func seeOther(w http.ResponseWriter, r *http.Request, to string) error {
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// pageError shows a handler's error as a page.
func (s *server) pageError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) { // The client has gone.
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}

	status := pageErrorStatus(err)
	s.db.noteDamage(err)
	if status == http.StatusServiceUnavailable {
		s.logOutage(r, err)
	}
	if status == http.StatusInternalServerError {
		s.log.Error("page failed", "request_id", logged(r).id, "error", err)
	}

	view := errorView{Status: status, Unknown: errors.Is(err, errResultUnknown)}
	if strings.HasPrefix(r.URL.Path, "/dashboard") {
		st, err := s.signedIn(r)
		if err == nil {
			view.frame, view.InDashboard = newFrame(r, st, ""), true
		}
	}
	if err := render(w, r, status, "error.html", view); err != nil {
		s.log.Error("page failed", "request_id", logged(r).id, "error", err)
		w.WriteHeader(status)
	}
}

// errorView is what the page of an error shows.
type errorView struct {
	frame       // around the pages of the dashboard
	InDashboard bool
	Status      int
	Unknown     bool // it is unknown whether what was asked for was done
}

func pageErrorStatus(err error) int {
	switch {
	case err == errNotFound:
		return http.StatusNotFound
	case isRefusal(err, codeInvalidRequest):
		return http.StatusBadRequest
	case outOfService(err):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// isRefusal reports whether err is a refusal with this code.
func isRefusal(err error, code errorCode) bool {
	refusal, ok := errors.AsType[*APIError](err)
	return ok && refusal.Code == code
}

func (s *server) serveStylesheet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(stylesheet))
}

// logOtherHost logs that a pay page was asked for at a host that is not its store's. The proxy may not pass the host on,
// or the store's domain may be missing.
func (s *server) logOtherHost(r *http.Request, own *url.URL) {
	ok, leftOut := s.otherHosts.allow(time.Now())
	if ok {
		s.log.Warn("a pay page was requested at a host that is not its store's: check the proxy's Host header, "+
			"\"store set -domain\" and -public-url",
			"host", cut(r.Host, 255), "own_host", own.Host, "request_id", logged(r).id, "not_logged", leftOut)
	}
}

// orderOfPage reads the order that a page is about. On the host of another store it is not found.
func (s *server) orderOfPage(r *http.Request, id string) (StoreProfile, Order, error) {
	st, o, err := s.db.OrderPage(strings.ToLower(id))
	if err != nil {
		return st, o, err
	}

	own, err := url.Parse(st.URL)
	requested := url.URL{Host: r.Host}
	if err != nil || !strings.EqualFold(own.Hostname(), requested.Hostname()) {
		s.logOtherHost(r, own)
		return st, o, errNotFound
	}

	l := logged(r)
	l.store, l.order = st.ID, o.PaymentReference
	return st, o, nil
}

// payView is what the pay page shows.
type payView struct {
	Store    StoreProfile
	Order    Order
	Method   PaymentMethod // of a manual order
	Buyer    string        // the buyer's contact, masked
	MayClaim bool          // the buyer can say that they have paid, or confirm an order that is paid in cash
	TakeBack bool          // they can take that back
	Denied   bool          // the latest try to pay failed
	Problem  Problem       // why the gateway's page cannot be opened; empty if nothing is known to be wrong
	Others   []MethodOffer // other ways to pay
	Refused  string        // why the choice of another way was not taken: "busy" or "gone"; empty without one
	Form     filled        // what the buyer says about their payment
}

// payPage shows the buyer where their order stands and how to pay it. It does not reload by itself: they may be
// reading, copying or pressing something.
func (s *server) payPage(w http.ResponseWriter, r *http.Request) error {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	if err != nil {
		return err
	}

	var session SessionWithOrder
	if o.SettlementChannel == ChannelGateway && (o.Status == Pending || o.Status == Failed) {
		o, session, err = s.refreshOrder(r, o)
		if err != nil {
			return err
		}
	}

	view := payView{Store: st, Order: o, Buyer: mask(o.Buyer)}
	view.Denied = session.GatewayState == StateDenied
	if o.SettlementChannel == ChannelManual {
		if err := s.viewManual(&view); err != nil {
			return err
		}
	}
	if o.Status == Pending {
		for _, reason := range []string{"busy", "gone"} {
			if r.URL.Query().Has(reason) {
				view.Refused = reason
			}
		}
		viewGateway(r, &view, session)
		if err := s.viewOthers(&view); err != nil {
			return err
		}
	}
	return render(w, r, http.StatusOK, "pay.html", view)
}

// viewManual says how to pay a manual order, and what its buyer can say about that.
func (s *server) viewManual(view *payView) (err error) {
	o := view.Order
	view.Method, err = s.db.PaymentMethod(view.Store.ID, o.PaymentMethod)
	if err != nil {
		return err
	}

	// An order that is paid in cash is confirmed in time or ordered again.
	view.MayClaim = o.Status == Pending || o.Status == Expired && view.Method.Kind != MethodCash
	if o.Status == AwaitingVerification {
		view.TakeBack, err = s.db.MayTakeBack(view.Store.ID, o.ID)
	}
	return err
}

// viewGateway says why the gateway's page cannot be opened.
func viewGateway(r *http.Request, view *payView, session SessionWithOrder) {
	// An outage is worth a word only to a buyer who has just wanted to pay: it may be over.
	wantedToPay := r.URL.Query().Has("unreachable") || view.Refused != ""
	if session.State == SessionStarting && (session.Problem == ProblemRefused || wantedToPay) {
		view.Problem = cmp.Or(session.Problem, ProblemUnreachable)
	}
}

// viewOthers offers the other ways to pay a pending order. While its gateway is away, those that lead there too are
// left out.
func (s *server) viewOthers(view *payView) error {
	others, err := s.db.MethodOffers(view.Store.ID, view.Order, s.db.Now())
	if view.Problem == ProblemUnreachable {
		others = slices.DeleteFunc(others, func(m MethodOffer) bool {
			return m.Provider == view.Order.PaymentProvider
		})
	}
	view.Others = others
	return err
}

// refreshOrder reads an order again with its latest payment session. If a page of it can be paid, the gateway is
// asked first: a buyer who comes back from it wants to see that they have paid, even before its notification has
// come.
func (s *server) refreshOrder(r *http.Request, o Order) (Order, SessionWithOrder, error) {
	session, err := s.db.LatestPaymentSession(o.ID)
	if err == errNotFound {
		return o, SessionWithOrder{}, nil
	}
	if err != nil || session.State != SessionActive || r.Method != http.MethodGet {
		return o, session, err
	}

	// A gateway that hangs delays a buyer once, not at every look: see askedLately.
	limited, cancel := context.WithTimeout(r.Context(), 4*time.Second)
	defer cancel()
	s.payments.check(limited, session.ID, false) // Its problem is stored with the session.

	_, o, err = s.db.OrderPage(o.ID)
	if err != nil {
		return o, session, err
	}
	session, err = s.db.LatestPaymentSession(o.ID)
	return o, session, err
}

// mask shows just enough of a buyer's contact for them to recognize it, so that nobody else learns it.
func mask(b Buyer) string {
	if name, host, ok := strings.Cut(b.Email, "@"); ok {
		return cut(name, 1) + "•••@" + host
	}
	return "•••" + b.Phone[max(0, len(b.Phone)-3):]
}

// claimPage answers the button "I have paid" of a manual order: by GET it asks first.
func (s *server) claimPage(w http.ResponseWriter, r *http.Request) error {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	if err != nil {
		return err
	}

	payPage := "/pay/" + o.ID
	view := payView{Store: st, Order: o, Buyer: mask(o.Buyer)}
	if o.SettlementChannel == ChannelManual {
		if err := s.viewManual(&view); err != nil {
			return err
		}
	}
	if !view.MayClaim { // Its page says why.
		return seeOther(w, r, payPage)
	}

	if r.Method == http.MethodPost {
		view.Form, err = s.claim(r, st, o)
		if err != nil {
			return err
		}
		if len(view.Form.Faults) == 0 {
			return seeOther(w, r, payPage)
		}
	}
	return render(w, r, view.Form.status(), "pay-claim.html", view)
}

// claim records what a form says about a buyer's payment. If it is refused, claim returns the form to show again.
func (s *server) claim(r *http.Request, st StoreProfile, o Order) (filled, error) {
	if r.ParseForm() != nil {
		return filled{}, badRequest("The form cannot be read.")
	}
	form := filled{r.PostForm, formFaults{}}
	for _, name := range []string{"sender", "bank"} {
		said := text(r.PostForm, name)
		if said != "" {
			maps.Copy(form.Faults, checkText(name, said, optional, 100))
		}
	}
	if len(form.Faults) > 0 {
		return form, nil
	}

	err := s.db.ClaimPaid(r.Context(), st.ID, o.ID, BuyerClaim{
		Sender: text(r.PostForm, "sender"),
		Bank:   text(r.PostForm, "bank"),
	})
	s.queue.wake()
	if isRefusal(err, codeOrderState) { // The order has changed since it was read. Its page shows how it stands.
		err = nil
	}
	return form, err
}

// takeBack answers the button by which a buyer takes back that they have paid.
func (s *server) takeBack(w http.ResponseWriter, r *http.Request) error {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	if err != nil {
		return err
	}

	err = s.db.TakeBack(r.Context(), st.ID, o.ID)
	if err != nil && !isRefusal(err, codeOrderState) {
		return err
	}
	s.queue.wake()
	return seeOther(w, r, "/pay/"+o.ID)
}

// chooseMethod answers the buttons by which a buyer chooses another way to pay. The pay page says how to pay now, or
// why the choice was not taken.
func (s *server) chooseMethod(w http.ResponseWriter, r *http.Request) error {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	if err != nil {
		return err
	}

	payPage := "/pay/" + o.ID
	code := r.PostFormValue("code")
	if code == o.PaymentMethod || o.Status != Pending || o.ExpiresAt <= s.db.Now() {
		return seeOther(w, r, payPage)
	}

	err = s.db.CheckMethod(st.ID, o, code) // before a page is closed for it
	if err == nil {
		err = s.payments.closePage(r.Context(), o.ID)
	}
	if err == nil {
		err = s.db.ChangeMethod(r.Context(), st.ID, o.ID, code)
	}
	switch {
	case err == nil, err == errMethodFixed: // The page shows where the order stands.
		return seeOther(w, r, payPage)
	case err == errMethodBusy:
		return seeOther(w, r, payPage+"?busy")
	case isRefusal(err, codePaymentMethodUnavailable), isRefusal(err, codeValidationFailed):
		return seeOther(w, r, payPage+"?gone")
	}
	return err
}

// goPay redirects the buyer to the gateway's page. It starts a session if the order has none, but not for
// HEAD.
func (s *server) goPay(w http.ResponseWriter, r *http.Request) error {
	st, o, err := s.orderOfPage(r, r.PathValue("order_id"))
	if err != nil {
		return err
	}

	payPage := "/pay/" + o.ID
	if o.SettlementChannel != ChannelGateway || r.Method != http.MethodGet {
		return seeOther(w, r, payPage)
	}

	session, err := s.payments.open(r.Context(), st.Store, o.ID)
	if err != nil {
		return err
	}

	to := payPage // It says so if the order needs no payment any more.
	switch session.State {
	case SessionActive:
		to = session.URL
	case SessionStarting:
		to += "?unreachable"
	}
	return seeOther(w, r, to)
}

// sandboxView is what the page of the sandbox gateway shows.
type sandboxView struct {
	Store   StoreProfile
	Order   Order
	Session SessionWithOrder
	State   GatewayState // of the session, as the sandbox says it now
}

// sandboxPage is the sandbox gateway's page of a session. Its buttons set what the gateway says of it.
func (s *server) sandboxPage(w http.ResponseWriter, r *http.Request) error {
	view, err := s.readSandbox(r)
	if err != nil {
		return err
	}

	if r.Method == http.MethodPost {
		return s.pressSandboxButton(w, r, view)
	}

	answer, err := s.db.Sandbox(view.Session.ID)
	if err != nil {
		return err
	}
	view.State = answer.State
	return render(w, r, http.StatusOK, "sandbox.html", view)
}

// readSandbox reads the session of a sandbox page and its order. Only a store in test mode has such a page, because
// its buttons give away the store's goods.
func (s *server) readSandbox(r *http.Request) (v sandboxView, err error) {
	v.Session, err = s.db.PaymentSessionByID(strings.ToLower(r.PathValue("session_id")))
	if err != nil {
		return v, err
	}
	if v.Session.Provider != ProviderSandbox {
		return v, errNotFound
	}

	v.Store, v.Order, err = s.orderOfPage(r, v.Session.OrderID)
	if err != nil {
		return v, err
	}

	offered, err := s.db.SandboxOffered(v.Store.ID)
	if err == nil && !offered {
		err = errNotFound
	}
	return v, err
}

func (s *server) pressSandboxButton(w http.ResponseWriter, r *http.Request, v sandboxView) error {
	answer := GatewayAnswer{State: StateSettled, Amount: v.Order.Amount}
	notifications := 1

	switch r.FormValue("action") {
	case "pay", "late":
	case "twice":
		notifications = 2
	case "other":
		answer.Amount--
	case "deny":
		answer = GatewayAnswer{State: StateDenied}
	case "expire":
		answer = GatewayAnswer{State: StateExpired}
	default:
		return errNotFound
	}

	gateway := sandbox{s.payments}
	if err := gateway.act(r.Context(), v.Session, answer, notifications); err != nil {
		return err
	}
	return seeOther(w, r, "/pay/"+v.Order.ID)
}
