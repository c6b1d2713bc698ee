//go:build cgo

package main

import (
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ownerHandler answers a request of the signed-in owner of st.
type ownerHandler func(w http.ResponseWriter, r *http.Request, st StoreProfile) error

// owner wraps the handlers of the dashboard. A visitor who is not signed in is sent to the sign-in page.
func (s *server) owner(handle ownerHandler) http.Handler {
	return s.page(func(w http.ResponseWriter, r *http.Request) error {
		st, err := s.signedIn(r)
		if err == errNotFound {
			return seeOther(w, r, signInPath(r))
		}
		if err != nil {
			return err
		}
		logged(r).store = st.ID

		if r.ParseForm() != nil {
			return badRequest("The form cannot be read.")
		}
		return handle(w, r, st)
	})
}

// signInPath is the address of the sign-in page. From there a GET goes on to the page that it asked for.
func signInPath(r *http.Request) string {
	const path = "/dashboard/login"
	if r.Method != http.MethodGet || r.URL.Path == "/dashboard" {
		return path
	}
	return path + "?next=" + url.QueryEscape(r.URL.RequestURI())
}

// frame is what surrounds the content of every page of the dashboard.
type frame struct {
	Store  StoreProfile
	Tab    string // the current entry of the navigation
	Notice string // what was just done: a code that the template "notice" knows
	// Unfinished says that the checklist of first steps has something left, so the page links back to it. Only pages
	// that follow such a step set it.
	Unfinished bool
	Form       filled
}

func newFrame(r *http.Request, st StoreProfile, tab string) frame {
	return frame{Store: st, Tab: tab, Notice: r.URL.Query().Get("done")}
}

func (f frame) status() int { return f.Form.status() }

// filled is what a form holds, and what is wrong with it.
type filled struct {
	Values url.Values
	Faults formFaults
}

// status is the HTTP status of the form's page, which may show what is wrong with it.
func (f filled) status() int {
	if len(f.Faults) > 0 {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// formFaults is what is wrong with a form, by field.
type formFaults map[string]Fault

// field is one input as the template "field" draws it.
type field struct {
	Name     string
	Kind     string // textarea, number or a type of HTML inputs
	Label    string
	Hint     string
	Value    string
	Fault    Fault
	Required bool
}

func (f filled) Field(name, kind string, required bool, label, hint string) field {
	return field{
		Name:     name,
		Kind:     kind,
		Label:    label,
		Hint:     hint,
		Value:    f.Values.Get(name),
		Fault:    f.Faults[name],
		Required: required,
	}
}

// Has reports whether a list of the form holds a value.
func (f filled) Has(name, value string) bool { return slices.Contains(f.Values[name], value) }

// faultsOf returns what a refusal says about the fields under path: the first fault of each, by its name. An error
// that says nothing about fields is returned as it is.
func faultsOf(err error, path string) (formFaults, error) {
	faults := formFaults{}
	refusal, ok := errors.AsType[*APIError](err)
	if !ok || len(refusal.Details) == 0 {
		return faults, err
	}

	// Backwards, so that the first fault of a field stays.
	for _, d := range slices.Backward(refusal.Details) {
		faults[strings.TrimPrefix(d.Field, path)] = d.Fault
	}
	return faults, nil
}

// checkText returns what is wrong with a text, by the name of its field.
func checkText(name, text string, rule textRule, most int) formFaults {
	f := newForm(map[string]any{name: text})
	f.text(name, rule, most)
	faults, _ := faultsOf(f.err(), "") // A text has no other errors.
	return faults
}

// done leads on to a page that says what was done, so that reloading it does not do the same again.
func done(w http.ResponseWriter, r *http.Request, path, notice string) error {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return seeOther(w, r, path+separator+"done="+notice)
}

// ownPattern matches the dashboard's addresses as its pages write them: clean paths without anything encoded,
// and perhaps a query in printable ASCII. Browsers read a backslash as a slash and leave out control
// characters, so what looks like a path may lead to another site.
var ownPattern = regexp.MustCompile(`^/dashboard(?:/[0-9A-Za-z_-][0-9A-Za-z._-]*)*(?:\?[!$-;=?-\[\]_a-z~]*)?$`)

// ownPath returns a path that a form or an address names if it is one of the dashboard, otherwise the preset.
func ownPath(path, preset string) string {
	if ownPattern.MatchString(path) {
		return path
	}
	return preset
}

// confirm is the page that says what an act will do, before it is done.
type confirm struct {
	frame
	Act     string   // a code that the templates "confirm" and "verb" know
	Order   Order    // if the act is on an order
	Arrived int64    // in rupiah: what has arrived for the order and is not returned
	Held    Provider // the gateway that holds a payment until the owner has decided; empty if none does
	Name    string   // of anything else that is acted on
	Back    string
}

// Harmless reports whether nothing is lost by the act, so that its button need not warn.
func (c confirm) Harmless() bool {
	return slices.Contains([]string{"approve", "resolve", "on", "ping"}, c.Act)
}

// ask shows a question. Its form posts to the address at which it is shown.
func ask(w http.ResponseWriter, r *http.Request, page confirm) error {
	return render(w, r, page.status(), "dash-confirm.html", page)
}

// exportOrders streams what the filter selects as CSV. Between two reads of 500 orders it holds nothing of the
// database, however slowly the client takes them. A client that stands still for 30 s is cut off.
func (s *server) exportOrders(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	f := s.orderSearch(r.URL.Query(), st, 500)
	f.After = ""

	list, err := s.db.SearchOrders(st.ID, f)
	if err != nil {
		return err
	}

	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", time.Now().In(wib).Format(`attachment; filename="orders-20060102.csv"`))
	// Without a byte order mark, spreadsheets do not take the text for UTF-8.
	io.WriteString(w, "\ufeff")

	out := csv.NewWriter(w)
	out.Write(csvColumns)

	for {
		transactions, err := s.db.Transactions(st.ID, list.Orders)
		if err != nil {
			s.cutExport(r, err)
		}
		for _, o := range list.Orders {
			out.Write(csvRow(o, transactions[o.ID]))
		}
		out.Flush()
		if list.Next == "" || out.Error() != nil || r.Context().Err() != nil {
			return nil
		}

		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(30 * time.Second))
		f.After = list.Next
		list, err = s.db.SearchOrders(st.ID, f)
		if err != nil {
			s.cutExport(r, err)
		}
	}
}

// cutExport ends an export in the middle. Its status is sent already: only a broken connection says that orders are
// missing.
func (s *server) cutExport(r *http.Request, err error) {
	s.log.Error("export cut off", "request_id", logged(r).id, "error", err)
	panic(http.ErrAbortHandler)
}

var csvColumns = []string{
	"payment_reference",
	"id",
	"external_id",
	"status",
	"created_at_wib",
	"buyer_name",
	"buyer_email",
	"buyer_phone",
	"items",
	"subtotal",
	"amount",
	"payment_method",
	"payment_provider",
	"paid_at_wib",
	"transaction_id",
	"shipping_fee",
	"discount",
	"fee",
}

// oneLine replaces what ends a cell in some spreadsheets, quoted or not.
var oneLine = strings.NewReplacer(";", ",", "\t", " ", "\r", " ", "\n", " ")

// csvRow returns the cells of an order, in the order of csvColumns. transactionID is the gateway's name of the payment
// that paid it.
func csvRow(o Order, transactionID string) []string {
	var items []string
	for _, item := range o.Items {
		items = append(items, fmt.Sprintf("%d x %s", item.Quantity, item.Title))
	}

	row := []string{
		o.PaymentReference,
		o.ID,
		o.ExternalID,
		string(o.Status),
		csvTime(o.CreatedAt),
		o.Buyer.Name,
		o.Buyer.Email,
		o.Buyer.Phone,
		strings.Join(items, ", "),
		strconv.FormatInt(o.Subtotal, 10),
		strconv.FormatInt(o.Amount, 10),
		o.PaymentMethod,
		string(o.PaymentProvider),
		csvTime(o.PaidAt),
		transactionID,
		strconv.FormatInt(o.ShippingFee, 10),
		strconv.FormatInt(o.Discount, 10),
		strconv.FormatInt(o.Fee, 10),
	}

	for i, cell := range row {
		cell = oneLine.Replace(cell)
		if likeFormula(cell) {
			cell = "'" + cell
		}
		row[i] = cell
	}
	return row
}

// csvTime writes a time in WIB, and nothing for one that is not known.
func csvTime(t Time) string {
	if t == 0 {
		return ""
	}
	return t.Time().In(wib).Format(time.DateTime)
}

// formulaSigns begin a formula in some spreadsheet. The wide and the small forms are taken for the plain ones.
const formulaSigns = "=+-@" + "\uff1d\uff0b\uff0d\uff20" + "\ufe66\ufe62\ufe63\ufe6b" + "\u2212"

// likeFormula reports whether a spreadsheet may run a cell as a formula, unless an apostrophe stands before
// it. Some skip characters at the beginning that nobody sees.
func likeFormula(cell string) bool {
	first, size := utf8.DecodeRuneInString(cell)
	if size == 0 {
		return false
	}
	seen := unicode.In(first, unicode.L, unicode.N, unicode.P, unicode.S) &&
		!unicode.In(first, unicode.Other_Default_Ignorable_Code_Point) && first != '\u2800' // a blank of Braille
	return !seen || strings.ContainsRune(formulaSigns, first)
}

// paymentsPage shows the payment methods and the gateways that they need.
type paymentsPage struct {
	frame
	Methods   []PaymentMethod
	Gateways  []GatewayAccount
	PublicURL string
}

// offer says whether buyers can choose a payment method, and if not, why.
type offer string

const (
	offered       offer = "offered"
	offerOff      offer = "off"
	offerNoNumber offer = "no_number" // buyers can choose it, but are not told where to pay to
	offerNoTest   offer = "no_test"   // the sandbox, outside test mode
	offerNoHTTPS  offer = "no_https"  // Xendit wants the service's address to be https
	offerNoKey    offer = "no_key"    // of its gateway
)

// Offer says how a method stands.
func (p paymentsPage) Offer(m PaymentMethod) offer {
	switch {
	case !m.Enabled:
		return offerOff
	case m.LacksAccount():
		return offerNoNumber
	case m.Usable:
		return offered
	case m.Provider == ProviderSandbox:
		return offerNoTest
	case m.Provider == ProviderXendit && !isHTTPS(p.PublicURL):
		return offerNoHTTPS
	}
	return offerNoKey
}

// paymentSettings shows the payments page, and stores the gateway's key that its form posts.
func (s *server) paymentSettings(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	page := paymentsPage{frame: newFrame(r, st, "payments"), PublicURL: s.db.publicURL}

	var err error
	if r.Method == http.MethodPost {
		page.Form, err = s.saveGateway(r, st.ID)
		if err != nil {
			return err
		}
		if len(page.Form.Faults) == 0 {
			return done(w, r, "/dashboard/payments", "saved")
		}
	}

	page.Methods, err = s.db.PaymentMethods(st.ID)
	if err != nil {
		return err
	}
	page.Gateways, err = s.db.GatewayAccounts(st.ID)
	if err != nil {
		return err
	}
	if page.Notice != "" {
		page.Unfinished, err = s.db.Unfinished(st.ID)
		if err != nil {
			return err
		}
	}
	return render(w, r, page.status(), "dash-payments.html", page)
}

// saveGateway stores the gateway's key that a form posted. If it is refused, saveGateway returns the form to show
// again, without the key.
func (s *server) saveGateway(r *http.Request, storeID string) (filled, error) {
	form := r.PostForm
	g := GatewayAccount{
		Provider:  Provider(text(form, "provider")),
		Mode:      Mode(text(form, "mode")),
		SecretKey: text(form, "secret_key"),
	}
	if g.Provider == ProviderXendit {
		g.CallbackToken = text(form, "callback_token")
	}

	wrong, ok := checkGateway(g)
	if ok {
		return filled{}, s.db.SetGateway(r.Context(), storeID, g)
	}
	if wrong.Field != "callback_token" {
		wrong.Field = "secret_key" // The choices of provider and mode have no place for a fault.
	}
	form.Del("secret_key")
	form.Del("callback_token")
	return filled{form, formFaults{wrong.Field: wrong.Fault}}, nil
}

// developersPage shows a store's API keys and webhook endpoints.
type developersPage struct {
	frame
	Keys      []APIKey
	Endpoints []Endpoint
	Events    []Event // that an endpoint can ask for
	Scopes    []Scope
	Days      []string // how many a new key may last
	NewKey    string   // shown once
	TestOrder string   // the body of an order to try NewKey with; empty if the key or the store cannot take one
	Now       Time
	PublicURL string
}

func (s *server) showDevelopers(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	return s.renderDevelopers(w, r, st, filled{})
}

// renderDevelopers shows the page with a form to correct, or with a new key.
func (s *server) renderDevelopers(w http.ResponseWriter, r *http.Request, st StoreProfile, form filled) error {
	keys, err := s.db.Keys(st.ID)
	if err != nil {
		return err
	}
	endpoints, err := s.db.Endpoints(st.ID, 0)
	if err != nil {
		return err
	}

	page := developersPage{
		frame:     newFrame(r, st, "developers"),
		Keys:      keys,
		Endpoints: endpoints,
		Events:    events,
		Scopes:    scopes,
		Days:      keyDays,
		NewKey:    s.shownSecret(r, st),
		Now:       s.db.Now(),
		PublicURL: s.db.publicURL,
	}
	page.Form = form
	if form.Values == nil {
		page.Form.Values = url.Values{"scope": {string(ScopeWrite)}}
	}

	if page.NewKey != "" {
		page.Unfinished, err = s.db.Unfinished(st.ID)
		if err != nil {
			return err
		}
		page.TestOrder, err = s.testOrder(st, page.NewKey)
		if err != nil {
			return err
		}
	}
	return render(w, r, page.status(), "dash-developers.html", page)
}

// testOrder returns the body of an order of something that the store sells, for its owner to try a new key with. It is
// empty if the key or the store's plan does not allow orders, or if there is nothing to order or no way to pay.
func (s *server) testOrder(st StoreProfile, newKey string) (string, error) {
	_, key, err := s.db.StoreOfKey(sha256.Sum256([]byte(newKey)), "")
	if err == errNotFound { // It was revoked meanwhile.
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if key.Scope == ScopeRead || st.Plan == PlanFree {
		return "", nil
	}

	products, err := s.db.Catalog(st.ID, KindProduct, "", "", 50)
	if err != nil {
		return "", err
	}
	methods, err := s.db.PaymentMethods(st.ID)
	if err != nil {
		return "", err
	}

	forSale := func(p Product) bool { return p.Published && p.Available && p.Price > 0 }
	i := slices.IndexFunc(products, forSale)
	if i < 0 {
		return "", nil
	}
	usable := func(m PaymentMethod) bool { return m.Usable && m.takes(products[i].Price) }
	j := slices.IndexFunc(methods, usable)
	if j < 0 {
		return "", nil
	}

	body := mustJSON(object{
		"items":          []object{{"type": KindProduct, "product_id": products[i].ID, "quantity": 1}},
		"buyer":          object{"name": "Test", "email": st.OwnerEmail},
		"payment_method": methods[j].Code,
	})
	// The shell has it between apostrophes.
	return strings.ReplaceAll(string(body), "'", `\u0027`), nil
}

func (s *server) addKey(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	k, faults := readNewKey(r.PostForm)
	if len(faults) > 0 {
		return s.renderDevelopers(w, r, st, filled{r.PostForm, faults})
	}

	key, hash := newToken("so_")
	_, err := s.db.AddKey(r.Context(), st.ID, k, hash)
	if isLimit(err) {
		faults := formFaults{"name": {Code: FaultLimit, Most: maxKeys}}
		return s.renderDevelopers(w, r, st, filled{r.PostForm, faults})
	}
	if err != nil {
		return err
	}
	return s.showSecret(w, r, st, "/dashboard/developers", key)
}

// keyDays are how many days a key may be given in the dashboard.
var keyDays = []string{"30", "90", "365"}

// readNewKey reads the form of a new key. Without days, the key has no end.
func readNewKey(form url.Values) (k NewKey, faults formFaults) {
	k.Name = text(form, "name")
	k.Scope = Scope(text(form, "scope"))
	faults = checkText("name", k.Name, required, 100)
	if !slices.Contains(scopes, k.Scope) {
		faults["scope"] = Fault{Code: FaultChoice, Text: strings.Join(toStrings(scopes), ", ")}
	}

	days := text(form, "days")
	if days != "" && !slices.Contains(keyDays, days) {
		faults["days"] = Fault{Code: FaultChoice, Text: strings.Join(keyDays, ", ")}
	}
	n, _ := strconv.Atoi(days) // It is empty or one of keyDays.
	k.Lasts = time.Duration(n) * 24 * time.Hour
	return k, faults
}

func (s *server) revokeKey(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	const back = "/dashboard/developers"
	id := r.PathValue("key_id")
	if r.Method == http.MethodPost {
		if err := s.db.RevokeKey(r.Context(), st.ID, id); err != nil {
			return err
		}
		return done(w, r, back, "revoked")
	}

	keys, err := s.db.Keys(st.ID)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(keys, func(k APIKey) bool { return k.ID == id })
	if i < 0 {
		return errNotFound
	}
	return ask(w, r, confirm{
		frame: newFrame(r, st, "developers"),
		Act:   "revoke",
		Name:  keys[i].Name,
		Back:  back,
	})
}

func (s *server) addEndpoint(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	address := text(r.PostForm, "url")
	faults := formFaults{}
	if wrong := checkWebhookURL(address, s.allowPrivate); wrong != nil {
		faults["url"] = wrong.Fault
	}
	names, wrong := checkEvents(r.PostForm["events"])
	if wrong != nil {
		faults["events"] = wrong.Fault
	}

	if len(faults) > 0 {
		return s.renderDevelopers(w, r, st, filled{r.PostForm, faults})
	}

	secret := newSecret()
	id, err := s.db.AddEndpoint(r.Context(), st.ID, address, names, secret)
	if isLimit(err) {
		faults["url"] = Fault{Code: FaultLimit, Most: maxEndpoints}
		return s.renderDevelopers(w, r, st, filled{r.PostForm, faults})
	}
	if err != nil {
		return err
	}
	return s.showSecret(w, r, st, "/dashboard/endpoints/"+id, secret)
}

// showSecret leads on to a page that shows a new secret, once: reloading it creates nothing.
func (s *server) showSecret(w http.ResponseWriter, r *http.Request, st StoreProfile, path, secret string) error {
	return seeOther(w, r, path+"?shown="+s.newSecrets.keep(st.ID, secret))
}

// shownSecret is the secret that showSecret has led to; empty if there is none.
func (s *server) shownSecret(r *http.Request, st StoreProfile) string {
	if r.Method != http.MethodGet {
		return ""
	}
	return s.newSecrets.take(st.ID, r.URL.Query().Get("shown"))
}

// endpointPage shows an endpoint and its deliveries, the newest first.
type endpointPage struct {
	frame
	Endpoint Endpoint
	Secret   string // a new one; it is shown once
	Next     string // the address of older deliveries; empty if there are none
}

func (s *server) showEndpoint(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	return s.renderEndpoint(w, r, st, r.PathValue("endpoint_id"), filled{})
}

// renderEndpoint shows the page with a form to correct, or with a new secret.
func (s *server) renderEndpoint(
	w http.ResponseWriter, r *http.Request, st StoreProfile, id string, form filled,
) error {
	const most = 25
	before := r.URL.Query().Get("before")
	e, err := s.db.Endpoint(st.ID, id, before, most+1)
	if err != nil {
		return err
	}

	page := endpointPage{frame: newFrame(r, st, "developers"), Endpoint: e}
	page.Secret = s.shownSecret(r, st)
	if page.Secret != "" {
		page.Unfinished, err = s.db.Unfinished(st.ID)
		if err != nil {
			return err
		}
	}
	page.Form = form
	if len(e.Recent) > most {
		page.Endpoint.Recent = e.Recent[:most]
		page.Next = "/dashboard/endpoints/" + id + "?before=" + e.Recent[most-1].ID
	}
	return render(w, r, page.status(), "dash-endpoint.html", page)
}

// endpointActs are what an owner can do with an endpoint. Each is the last part of its path.
var endpointActs = []string{"ping", "on", "off", "rotate", "remove", "resend"}

// actOnEndpoint does what a form posts. By GET it asks first.
func (s *server) actOnEndpoint(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	ctx, id, act := r.Context(), r.PathValue("endpoint_id"), r.PathValue("act")
	if !slices.Contains(endpointActs, act) {
		return errNotFound
	}

	back := "/dashboard/endpoints/" + id
	if r.Method != http.MethodPost {
		e, err := s.db.Endpoint(st.ID, id, "", 0)
		if err != nil {
			return err
		}
		return ask(w, r, confirm{
			frame: newFrame(r, st, "developers"),
			Act:   act,
			Name:  e.URL,
			Back:  back,
		})
	}

	var err error
	switch act {
	case "ping":
		err = s.db.Ping(ctx, st.ID, id)
	case "on":
		err = s.db.SwitchEndpoint(ctx, st.ID, id, true)
	case "off":
		err = s.db.SwitchEndpoint(ctx, st.ID, id, false)
	case "remove":
		back = "/dashboard/developers"
		err = s.db.RemoveEndpoint(ctx, st.ID, id)
		s.purging.wake()
	case "rotate":
		secret := newSecret()
		if err := s.db.RotateSecret(ctx, st.ID, id, secret); err != nil {
			return err
		}
		return s.showSecret(w, r, st, back, secret)
	case "resend":
		since, wrong := time.ParseInLocation("2006-01-02T15:04", r.PostForm.Get("since"), wib)
		if wrong != nil {
			form := filled{r.PostForm, formFaults{"since": {Code: FaultTime}}}
			return s.renderEndpoint(w, r, st, id, form)
		}
		// A million deliveries take half a minute.
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(5 * time.Minute))
		_, err = s.db.ResendSince(ctx, st.ID, id, timeOf(since))
	}
	if err != nil {
		return err
	}

	s.queue.wake()
	return done(w, r, back, act)
}

func (s *server) resendDelivery(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	if _, err := s.db.ResendDelivery(r.Context(), st.ID, r.PathValue("delivery_id")); err != nil {
		return err
	}
	s.queue.wake()
	return done(w, r, ownPath(r.PostForm.Get("back"), "/dashboard/developers"), "resend")
}
