//go:build cgo

package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
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
)

// ownerHandler answers a request of the signed-in owner of st.
type ownerHandler func(w http.ResponseWriter, r *http.Request, st Store) error

// owner sends whoever is not signed in to the sign-in page, which leads back to where he wanted to go.
func (s *server) owner(handle ownerHandler) http.Handler {
	return s.page(func(w http.ResponseWriter, r *http.Request) error {
		st, err := s.signedIn(r)
		if err == errNotFound {
			to := "/dashboard/login"
			if r.Method == http.MethodGet && r.URL.Path != "/dashboard" {
				to += "?next=" + url.QueryEscape(r.URL.RequestURI())
			}
			return seeOther(w, r, to)
		} else if err != nil {
			return err
		}
		logged(r).store = st.ID
		if r.ParseForm() != nil {
			return badRequest("The form cannot be read.")
		}
		return handle(w, r, st)
	})
}

// frame is what surrounds every page of the dashboard.
type frame struct {
	Store  Store
	Tab    string // of the navigation
	Notice string // what was just done: a word that the template "notice" knows
	Form   filled
}

func newFrame(r *http.Request, st Store, tab string) frame {
	return frame{Store: st, Tab: tab, Notice: r.URL.Query().Get("done")}
}

// status is that of a page which shows what is wrong with its form, or nothing.
func (f frame) status() int {
	if f.Form.Faults != nil {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// done leads on to a page that says what was done, so that a reload does nothing again.
func done(w http.ResponseWriter, r *http.Request, path, notice string) error {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return seeOther(w, r, path+separator+"done="+notice)
}

// ownPath is a path of the dashboard that a form or address names, or the preset when it is anything else.
func ownPath(path, preset string) string {
	if strings.HasPrefix(path, "/dashboard/") {
		return path
	}
	return preset
}

// filled is what a form holds, and what is wrong with it by field.
type filled struct {
	Values url.Values
	Faults map[string]string
}

// field is one input as the template "field" draws it.
type field struct {
	Name, Kind, Label, Hint, Value, Fault string
	Required                              bool
}

func (f filled) Field(name, kind string, required bool, label, hint string) field {
	return field{name, kind, label, hint, f.Values.Get(name), f.Faults[name], required}
}

// Has tells whether a list of the form holds a value.
func (f filled) Has(name, value string) bool { return slices.Contains(f.Values[name], value) }

// faultsOf are the details of a refusal by field, less the path before it. Any other error is returned.
func faultsOf(err error, path string) (map[string]string, error) {
	refusal, ok := errors.AsType[*APIError](err)
	if !ok || len(refusal.Details) == 0 {
		return nil, err
	}
	faults := map[string]string{}
	for _, d := range refusal.Details {
		if name := strings.TrimPrefix(d.Field, path); faults[name] == "" {
			faults[name] = d.Message
		}
	}
	return faults, nil
}

// confirm is the page that says what an act will do before it is done.
type confirm struct {
	frame
	Act   string // which words
	Order Order  // of an order's act
	Name  string // of what else is acted on
	Back  string
}

// ask shows a question whose form posts to the path it is shown at.
func ask(w http.ResponseWriter, r *http.Request, page confirm) error {
	return render(w, r, page.status(), "dash-confirm.html", page)
}

// orderSearch reads the filter of the orders page.
func orderSearch(q url.Values, limit int) OrderSearch {
	f := OrderSearch{Text: strings.TrimSpace(q.Get("q")), After: q.Get("after"), Limit: limit}
	if status := Status(q.Get("status")); slices.Contains(statuses, status) {
		f.Status = status
	}
	if phonePattern.MatchString(f.Text) { // 0812…, 62812… and +62812… are one number
		f.Phone = strings.TrimLeft(strings.TrimPrefix(phoneMarks.Replace(f.Text), "62"), "0")
	}
	return f
}

// bar is one day of a chart of 300 by 80.
type bar struct {
	X, Y, Height int64
	DayTotals
}

// chart draws 30 days; Most is the highest value.
type chart struct {
	Bars      []bar
	Most, Sum int64
}

func newChart(totals []DayTotals, value func(DayTotals) int64) (c chart) {
	for _, d := range totals {
		c.Most, c.Sum = max(c.Most, value(d)), c.Sum+value(d)
	}
	for i, d := range totals {
		b := bar{X: int64(i) * 10, DayTotals: d}
		if v := value(d); v > 0 {
			b.Height = max(1, v*80/c.Most)
		}
		b.Y = 80 - b.Height
		c.Bars = append(c.Bars, b)
	}
	return c
}

func (s *server) showOrders(w http.ResponseWriter, r *http.Request, st Store) (err error) {
	f := orderSearch(r.URL.Query(), 25)
	page := struct {
		frame
		Filter          OrderSearch
		Statuses        []Status
		List            OrderList
		Next, CSV       string
		First           bool // with what waits for the owner, and the charts
		Attention       Attention
		Revenue, Orders chart
	}{frame: newFrame(r, st, "orders"), Filter: f, Statuses: statuses, First: f.Status == "" && f.Text == "" && f.After == ""}
	var totals []DayTotals
	if page.List, err = s.db.SearchOrders(st.ID, f); err == nil && page.First {
		page.Attention, totals, err = s.db.FrontPage(st.ID, 30)
	}
	if err != nil {
		return err
	}
	if page.First {
		page.Attention.Endpoints = slices.DeleteFunc(page.Attention.Endpoints, func(e Endpoint) bool { return e.Active && e.Failures < failing })
		page.Revenue = newChart(totals, func(d DayTotals) int64 { return d.Revenue })
		page.Orders = newChart(totals, func(d DayTotals) int64 { return d.Orders })
	}
	q := url.Values{"status": {string(f.Status)}, "q": {f.Text}}
	page.CSV = "/dashboard/orders.csv?" + q.Encode()
	q.Set("after", page.List.Next)
	page.Next = "/dashboard?" + q.Encode()
	return render(w, r, http.StatusOK, "dash-orders.html", page)
}

// exportOrders streams what the filter selects as CSV. Between two reads of 500 orders nothing of the database is held,
// however slowly the client takes them; one that stands still for 30 s is cut off.
func (s *server) exportOrders(w http.ResponseWriter, r *http.Request, st Store) error {
	f, out := orderSearch(r.URL.Query(), 500), csv.NewWriter(w)
	f.After = ""
	list, err := s.db.SearchOrders(st.ID, f)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", time.Now().In(wib).Format(`attachment; filename="orders-20060102.csv"`))
	io.WriteString(w, "\ufeff") // or spreadsheets take UTF-8 for something else
	out.Write([]string{"payment_reference", "id", "external_id", "status", "created_at_wib", "buyer_name", "buyer_email", "buyer_phone",
		"items", "subtotal", "amount", "payment_method", "payment_provider"})
	for {
		for _, o := range list.Orders {
			out.Write(csvRow(o))
		}
		out.Flush()
		if out.Error() != nil || r.Context().Err() != nil || list.Next == "" {
			return nil
		}
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(30 * time.Second))
		f.After = list.Next
		if list, err = s.db.SearchOrders(st.ID, f); err != nil {
			s.log.Error("export cut off", "request_id", logged(r).id, "error", err)
			panic(http.ErrAbortHandler)
		}
	}
}

// csvRow is one order for a spreadsheet. A text that one would run as a formula gets an apostrophe in front.
func csvRow(o Order) []string {
	var items []string
	for _, item := range o.Items {
		items = append(items, fmt.Sprintf("%d x %s", item.Quantity, item.Title))
	}
	plain := strings.NewReplacer(";", ",", "\t", " ", "\r", " ", "\n", " ") // some spreadsheets end a cell there, quoted or not
	row := []string{o.PaymentReference, o.ID, o.ExternalID, string(o.Status), o.CreatedAt.Time().In(wib).Format(time.DateTime), o.Buyer.Name,
		o.Buyer.Email, o.Buyer.Phone, strings.Join(items, ", "), strconv.FormatInt(o.Subtotal, 10), strconv.FormatInt(o.Amount, 10),
		o.PaymentMethod, string(o.PaymentProvider)}
	for i, cell := range row {
		row[i] = plain.Replace(cell)
		if cell != "" && strings.ContainsRune("=+-@ ", rune(row[i][0])) {
			row[i] = "'" + row[i]
		}
	}
	return row
}

func (s *server) showOrder(w http.ResponseWriter, r *http.Request, st Store) error {
	d, err := s.db.OrderDetails(st.ID, r.PathValue("order_id"))
	if err != nil {
		return err
	}
	acts := slices.DeleteFunc([]string{"approve", "reject", "cancel", "refund"}, func(act string) bool {
		return !slices.Contains(transitions[orderActs[act]].from, d.Status)
	})
	return render(w, r, http.StatusOK, "dash-order.html", struct {
		frame
		OrderDetails
		Acts []string
	}{newFrame(r, st, "orders"), d, acts})
}

// orderActs are the owner's transitions by the last part of their path.
var orderActs = map[string]Transition{"approve": OwnerApproves, "reject": OwnerRejects, "cancel": OwnerCancels, "refund": OwnerRefunds}

// actOnOrder performs a move of the owner, or notes that he has seen to one that was oversold or overpaid ("resolve"). It refuses
// when the order is no longer in the state that its page spoke of.
func (s *server) actOnOrder(w http.ResponseWriter, r *http.Request, st Store) error {
	act, id := r.PathValue("act"), r.PathValue("order_id")
	move, known := orderActs[act]
	d, err := s.db.OrderDetails(st.ID, id)
	if err != nil || !known && act != "resolve" {
		return cmp.Or(err, error(errNotFound))
	}
	page := confirm{frame: newFrame(r, st, "orders"), Act: act, Order: d.Order, Back: "/dashboard/orders/" + id}
	possible, note := d.Oversold || d.Overpaid, Note{Code: NoteResolved}
	if known {
		possible, note = move.possible(d.Status), Note{Code: NoteInDashboard}
	}
	if !possible || r.Method == http.MethodPost && r.PostForm.Get("status") != string(d.Status) {
		return done(w, r, page.Back, "changed")
	}
	if r.Method != http.MethodPost {
		return ask(w, r, page)
	}
	if reason := strings.TrimSpace(r.PostForm.Get("reason")); reason != "" {
		note = Note{Code: NoteText, Text: reason}
	}
	f := newForm(map[string]any{"reason": note.Text})
	f.text("reason", prose, 200)
	if page.Form.Faults, _ = faultsOf(f.err(), ""); page.Form.Faults != nil {
		page.Form.Values = r.PostForm
		return ask(w, r, page)
	}
	if known {
		_, err = s.db.Transition(r.Context(), st.ID, id, move, note)
	} else {
		err = s.db.ResolveAlerts(r.Context(), st.ID, id, note)
	}
	if refusal, ok := errors.AsType[*APIError](err); ok && refusal.Code == codeOrderState {
		return done(w, r, page.Back, "changed")
	} else if err != nil {
		return err
	}
	s.queue.wake()
	return done(w, r, page.Back, "saved")
}

func (s *server) showCatalog(w http.ResponseWriter, r *http.Request, st Store) (err error) {
	const most = 50
	q := r.URL.Query()
	page := struct {
		frame
		Kind, Text, Next string
		Entries          []Product
	}{frame: newFrame(r, st, "catalog"), Kind: "product", Text: strings.TrimSpace(q.Get("q"))}
	if q.Get("kind") == "bundle" {
		page.Kind = "bundle"
	}
	if page.Entries, err = s.db.Catalog(st.ID, Kind(page.Kind), q.Get("after"), page.Text, most+1); err != nil {
		return err
	}
	if len(page.Entries) > most {
		page.Entries = page.Entries[:most]
		page.Next = "/dashboard/catalog?" + url.Values{"kind": {page.Kind}, "q": {page.Text}, "after": {page.Entries[most-1].Slug}}.Encode()
	}
	return render(w, r, http.StatusOK, "dash-catalog.html", page)
}

// editEntry shows and takes the form of one product, bundle or payment method. What is posted goes the way of a catalog
// file with that one entry, so that the same rules hold for both.
func (s *server) editEntry(w http.ResponseWriter, r *http.Request, st Store) error {
	page := struct {
		frame
		Kind, Slug, Back string       // Slug "": a new one
		Products         []BundleItem // that a bundle can be made of
		Parts            int          // rows for its parts
		Providers        []Provider
	}{frame: newFrame(r, st, "catalog"), Kind: r.PathValue("kind"), Slug: r.URL.Query().Get("slug"), Back: "/dashboard/catalog", Providers: providers}
	list, idField, title := "products", "slug", "title"
	switch page.Kind {
	case "product":
	case "bundle":
		list, page.Back = "bundles", "/dashboard/catalog?kind=bundle"
	case "method":
		list, idField, title, page.Tab, page.Back = "payment_methods", "code", "name", "payments", "/dashboard/payments"
	default:
		return errNotFound
	}
	posting, posted := r.Method == http.MethodPost, r.PostForm
	id := page.Slug
	if posting && id == "" {
		id = cmp.Or(strings.TrimSpace(posted.Get(idField)), slugOf(posted.Get(title)))
	}
	var err error
	page.Form.Values, page.Products, err = s.entryValues(st.ID, page.Kind, id)
	if err != nil && (err != errNotFound || page.Slug != "") {
		return err
	}
	if posting {
		posted.Set(idField, id)
		f := newForm(map[string]any{list: []any{entryFields(page.Kind, posted)}})
		if page.Slug == "" && err == nil {
			f.fault(list+"[0]."+idField, "is taken: "+id)
		}
		c, err := f.catalog()
		if err == nil {
			err = s.db.ImportCatalog(r.Context(), st.ID, c)
		}
		if page.Form.Faults, err = faultsOf(err, list+"[0]."); err != nil {
			return err
		} else if page.Form.Faults == nil {
			return done(w, r, page.Back, "saved")
		}
		page.Form.Values = posted
	}
	if page.Kind == "bundle" {
		page.Parts = min(50, len(partsOf(page.Form.Values))+3)
	}
	return render(w, r, page.status(), "dash-entry.html", page)
}

// entryValues are the fields of an entry as its form shows them; of one that is not there, those of a new one. For
// bundles they come with what bundles can be made of.
func (s *server) entryValues(storeID, kind, id string) (v url.Values, products []BundleItem, err error) {
	text := func(n *int64) string {
		if n == nil {
			return ""
		}
		return strconv.FormatInt(*n, 10)
	}
	on := map[bool]string{true: "on"} // a box that is ticked
	if kind == "method" {
		m, err := s.db.PaymentMethod(storeID, id)
		if err != nil {
			return url.Values{"enabled": {"on"}}, nil, err
		}
		return url.Values{"code": {m.Code}, "name": {m.Name}, "provider": {string(m.Provider)}, "fee": {text(&m.Fee)}, "instructions": {m.Instructions},
			"min_amount": {text(m.MinAmount)}, "max_amount": {text(m.MaxAmount)}, "enabled": {on[m.Enabled]}}, nil, nil
	}
	p, err := s.db.CatalogEntry(storeID, Kind(kind), id)
	if kind == "bundle" && (err == nil || err == errNotFound) {
		var readErr error
		if products, readErr = s.db.BundleChoices(storeID); readErr != nil {
			return nil, nil, readErr
		}
	}
	if err != nil {
		return url.Values{"published": {"on"}}, products, err
	}
	v = url.Values{"slug": {p.Slug}, "title": {p.Title}, "description": {p.Description}, "price": {text(&p.Price)},
		"stock": {text(p.Stock)}, "stock_was": {text(p.Stock)}, "published": {on[p.Published]}}
	if p.ImageURL != nil {
		v.Set("image_url", *p.ImageURL)
	}
	for i, item := range p.Items {
		setPart(v, i, item.Slug, text(&item.Quantity))
	}
	return v, products, nil
}

// entryFields are a posted form as an entry of a catalog file.
func entryFields(kind string, v url.Values) map[string]any {
	text := func(name string) string { return strings.TrimSpace(strings.ReplaceAll(v.Get(name), "\r\n", "\n")) }
	if kind == "method" {
		return map[string]any{"code": text("code"), "name": text("name"), "provider": text("provider"), "fee": number(cmp.Or(v.Get("fee"), "0")),
			"instructions": text("instructions"), "min_amount": number(v.Get("min_amount")), "max_amount": number(v.Get("max_amount")), "enabled": v.Has("enabled")}
	}
	fields := map[string]any{"slug": text("slug"), "title": text("title"), "description": text("description"), "price": number(v.Get("price")),
		"image_url": nil, "published": v.Has("published")}
	if image := text("image_url"); image != "" {
		fields["image_url"] = image
	}
	if kind == "bundle" {
		fields["items"] = partsOf(v)
	} else if v.Get("stock") != v.Get("stock_was") { // or what was sold since the form was shown would come back
		fields["stock"] = number(v.Get("stock"))
	}
	return fields
}

// number reads a whole number that may be grouped, as in 85.000; an empty text is null.
func number(text string) any {
	text = strings.TrimSpace(text)
	if groupedPattern.MatchString(text) {
		text = strings.NewReplacer(".", "", ",", "").Replace(text)
	}
	if text == "" {
		return nil
	}
	return json.Number(text)
}

var groupedPattern = regexp.MustCompile(`^\d{1,3}([.,]\d{3})+$`)

// partsOf reads the parts of a bundle out of its form, and closes up their rows: those without a slug are left out, and
// faults name the others as they are shown again.
func partsOf(v url.Values) []any {
	parts := []any{}
	for i := range 50 {
		slug := strings.TrimSpace(v.Get(fmt.Sprintf("items[%d].slug", i)))
		quantity := cmp.Or(strings.TrimSpace(v.Get(fmt.Sprintf("items[%d].quantity", i))), "1")
		setPart(v, i, "", "")
		if slug != "" {
			setPart(v, len(parts), slug, quantity)
			parts = append(parts, map[string]any{"slug": slug, "quantity": number(quantity)})
		}
	}
	return parts
}

func setPart(v url.Values, i int, slug, quantity string) {
	v.Set(fmt.Sprintf("items[%d].slug", i), slug)
	v.Set(fmt.Sprintf("items[%d].quantity", i), quantity)
}

// paymentSettings shows the payment methods and the gateways they need, and stores a gateway's key.
func (s *server) paymentSettings(w http.ResponseWriter, r *http.Request, st Store) (err error) {
	page := struct {
		frame
		Methods   []PaymentMethod
		Gateways  []Gateway
		PublicURL string
	}{frame: newFrame(r, st, "payments"), PublicURL: s.db.publicURL}
	if r.Method == http.MethodPost {
		v := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
		g := Gateway{Provider: Provider(v("provider")), Mode: v("mode"), SecretKey: v("secret_key")}
		if g.Provider == "xendit" {
			g.CallbackToken = v("callback_token")
		}
		fault, wrong := checkGateway(g), "secret_key"
		if fault == "" {
			if err = s.db.SetGateway(r.Context(), st.ID, g); err != nil {
				return err
			}
			return done(w, r, "/dashboard/payments", "saved")
		}
		if strings.Contains(fault, "callback token") {
			wrong = "callback_token"
		}
		page.Form = filled{url.Values{"provider": {string(g.Provider)}, "mode": {g.Mode}}, map[string]string{wrong: fault}}
	}
	if page.Methods, err = s.db.PaymentMethods(st.ID); err != nil {
		return err
	}
	if page.Gateways, err = s.db.Gateways(st.ID); err != nil {
		return err
	}
	return render(w, r, page.status(), "dash-payments.html", page)
}

func (s *server) showDevelopers(w http.ResponseWriter, r *http.Request, st Store) error {
	return s.renderDevelopers(w, r, newFrame(r, st, "developers"), "")
}

// renderDevelopers shows the keys and endpoints. A new key is shown once.
func (s *server) renderDevelopers(w http.ResponseWriter, r *http.Request, f frame, newKey string) error {
	keys, err := s.db.Keys(f.Store.ID)
	if err != nil {
		return err
	}
	endpoints, err := s.db.Endpoints(f.Store.ID, 0)
	if err != nil {
		return err
	}
	return render(w, r, f.status(), "dash-developers.html", struct {
		frame
		Keys              []APIKey
		Endpoints         []Endpoint
		Events            []Event
		NewKey, PublicURL string
	}{f, keys, endpoints, events, newKey, s.db.publicURL})
}

func (s *server) addKey(w http.ResponseWriter, r *http.Request, st Store) error {
	page, f := newFrame(r, st, "developers"), newForm(map[string]any{"name": strings.TrimSpace(r.PostForm.Get("name"))})
	name := f.text("name", required, 100)
	if page.Form.Faults, _ = faultsOf(f.err(), ""); page.Form.Faults != nil {
		page.Form.Values = r.PostForm
		return s.renderDevelopers(w, r, page, "")
	}
	key, hash := newToken("so_")
	if _, err := s.db.AddKey(r.Context(), st.ID, name, hash); err != nil {
		return err
	}
	return s.renderDevelopers(w, r, page, key)
}

func (s *server) revokeKey(w http.ResponseWriter, r *http.Request, st Store) error {
	id := r.PathValue("key_id")
	if r.Method == http.MethodPost {
		if err := s.db.RevokeKey(r.Context(), st.ID, id); err != nil {
			return err
		}
		return done(w, r, "/dashboard/developers", "revoked")
	}
	keys, err := s.db.Keys(st.ID)
	i := slices.IndexFunc(keys, func(k APIKey) bool { return k.ID == id })
	if err != nil || i < 0 {
		return cmp.Or(err, error(errNotFound))
	}
	return ask(w, r, confirm{frame: newFrame(r, st, "developers"), Act: "revoke", Name: keys[i].Name, Back: "/dashboard/developers"})
}

func (s *server) addEndpoint(w http.ResponseWriter, r *http.Request, st Store) error {
	address, faults := strings.TrimSpace(r.PostForm.Get("url")), map[string]string{}
	if wrong := checkWebhookURL(address, s.allowPrivate); wrong != nil {
		faults["url"] = wrong.Message
	}
	events, wrong := checkEvents(r.PostForm["events"])
	if wrong != nil {
		faults["events"] = wrong.Message
	}
	if len(faults) > 0 {
		page := newFrame(r, st, "developers")
		page.Form = filled{r.PostForm, faults}
		return s.renderDevelopers(w, r, page, "")
	}
	secret := newSecret()
	id, err := s.db.AddEndpoint(r.Context(), st.ID, address, events, secret)
	if err != nil {
		return err
	}
	return s.renderEndpoint(w, r, newFrame(r, st, "developers"), id, secret)
}

func (s *server) showEndpoint(w http.ResponseWriter, r *http.Request, st Store) error {
	return s.renderEndpoint(w, r, newFrame(r, st, "developers"), r.PathValue("endpoint_id"), "")
}

// renderEndpoint shows one endpoint with its deliveries. A new secret is shown once.
func (s *server) renderEndpoint(w http.ResponseWriter, r *http.Request, f frame, id, secret string) error {
	const most = 25
	e, err := s.db.Endpoint(f.Store.ID, id, cmp.Or(r.URL.Query().Get("before"), "~"), most+1)
	if err != nil {
		return err
	}
	older := "" // the page of older deliveries
	if len(e.Recent) > most {
		e.Recent = e.Recent[:most]
		older = "/dashboard/endpoints/" + id + "?before=" + e.Recent[most-1].ID
	}
	return render(w, r, f.status(), "dash-endpoint.html", struct {
		frame
		Endpoint     Endpoint
		Secret, Next string
	}{f, e, secret, older})
}

// actOnEndpoint does what a form asks for; by GET it asks first.
func (s *server) actOnEndpoint(w http.ResponseWriter, r *http.Request, st Store) error {
	act, id, ctx := r.PathValue("act"), r.PathValue("endpoint_id"), r.Context()
	page, back := newFrame(r, st, "developers"), "/dashboard/endpoints/"+id
	if !slices.Contains([]string{"ping", "on", "off", "rotate", "remove", "resend"}, act) {
		return errNotFound
	}
	if r.Method != http.MethodPost {
		e, err := s.db.Endpoint(st.ID, id, "", 0)
		if err != nil {
			return err
		}
		return ask(w, r, confirm{frame: page, Act: act, Name: e.URL, Back: back})
	}
	var err error
	switch act {
	case "ping":
		err = s.db.Ping(ctx, st.ID, id)
	case "on":
		err = s.db.SwitchEndpoint(ctx, st.ID, id, true, "")
	case "off":
		err = s.db.SwitchEndpoint(ctx, st.ID, id, false, OffByOwner)
	case "remove":
		back, err = "/dashboard/developers", s.db.RemoveEndpoint(ctx, st.ID, id)
	case "rotate":
		secret := newSecret()
		if err := s.db.RotateSecret(ctx, st.ID, id, secret); err != nil {
			return err
		}
		return s.renderEndpoint(w, r, page, id, secret)
	case "resend":
		since, parseErr := time.ParseInLocation("2006-01-02T15:04", r.PostForm.Get("since"), wib)
		if parseErr != nil {
			page.Form = filled{r.PostForm, map[string]string{"since": "must be a day and a time"}}
			return s.renderEndpoint(w, r, page, id, "")
		}
		_, err = s.db.Resend(ctx, st.ID, "", id, Time(since.UnixMilli()))
	}
	if err != nil {
		return err
	}
	s.queue.wake()
	return done(w, r, back, act)
}

func (s *server) resendDelivery(w http.ResponseWriter, r *http.Request, st Store) error {
	if _, err := s.db.Resend(r.Context(), st.ID, r.PathValue("delivery_id"), "", 0); err != nil {
		return err
	}
	s.queue.wake()
	return done(w, r, ownPath(r.PostForm.Get("back"), "/dashboard/developers"), "resend")
}

// AlertedOrder is an order with a problem that its state does not show.
type AlertedOrder struct {
	Order
	Overpaid bool   // money came that it does not need; otherwise it was paid when its stock was gone
	Warning  string // why its gateway could not be asked; empty if it could
}

const (
	sqlAwaiting = `
		SELECT json FROM orders
		WHERE  store_id = ? AND status = 'awaiting_verification'
		ORDER BY id LIMIT ?`
	sqlAlerted = `
		SELECT json, overpaid, '' FROM orders
		WHERE  store_id = ? AND (oversold = 1 OR overpaid = 1)
		ORDER BY id LIMIT ?`
)

func scanAlerted(r row) (o AlertedOrder, err error) {
	err = r.Scan(fromJSON{&o.Order}, &o.Overpaid, &o.Warning)
	return o, err
}

// DayTotals is one day of a store, in WIB.
type DayTotals struct {
	Day     int64 // days since 1970
	Orders  int64 // created on it
	Revenue int64 // paid on it and not refunded or reversed since
}

// dayOf is the day of a time in WIB, in days since 1970.
func dayOf(t Time) int64 {
	return int64(t.Add(7*time.Hour)) / (24 * time.Hour).Milliseconds()
}

const sqlAddTotals = `
	INSERT INTO daily_totals (store_id, day, orders, revenue)
	VALUES (?1, ?2, ?3, ?4)
	ON CONFLICT DO UPDATE SET orders = orders + ?3, revenue = revenue + ?4`

// addTotals adds orders and revenue to the day of a time.
func (tx *Tx) addTotals(storeID string, at Time, t DayTotals) error {
	_, err := tx.exec(sqlAddTotals, storeID, dayOf(at), t.Orders, t.Revenue)
	return err
}

const sqlDailyTotals = `
	SELECT day, orders, revenue FROM daily_totals
	WHERE  store_id = ? AND day BETWEEN ? AND ?
	ORDER BY day`

// dailyTotals returns the last days of a store up to today, one entry for each day.
func dailyTotals(q querier, storeID string, days int) ([]DayTotals, error) {
	today := dayOf(timeOf(time.Now()))
	totals := make([]DayTotals, days)
	for i := range totals {
		totals[i].Day = today - int64(days-1-i)
	}

	first := totals[0].Day
	busy, err := queryAll(q, scanTotals, sqlDailyTotals, storeID, first, today)
	for _, d := range busy {
		totals[d.Day-first] = d
	}
	return totals, err
}

func scanTotals(r row) (d DayTotals, err error) {
	err = r.Scan(&d.Day, &d.Orders, &d.Revenue)
	return d, err
}

// Attention is what waits for the owner: a few of each kind, the oldest first.
type Attention struct {
	Awaiting    []Order // the buyer says that it is paid
	Alerted     []AlertedOrder
	Unreachable []AlertedOrder // whose gateway could not be asked
	Endpoints   []Endpoint     // all of them, for the caller to judge
}

const attentionMost = 6

// FrontPage reads what the first page of the dashboard shows above the newest orders.
func (db *DB) FrontPage(storeID string, days int) (a Attention, totals []DayTotals, err error) {
	a, err = readResult(db, func(q querier) (a Attention, err error) {
		a.Awaiting, err = queryAll(q, scanOrder, sqlAwaiting, storeID, attentionMost)
		if err != nil {
			return a, err
		}
		a.Alerted, err = queryAll(q, scanAlerted, sqlAlerted, storeID, attentionMost)
		if err != nil {
			return a, err
		}
		a.Unreachable, err = queryAll(q, scanAlerted, sqlUnreachable, storeID, attentionMost)
		if err != nil {
			return a, err
		}
		a.Endpoints, err = queryAll(q, scanEndpoint, sqlEndpoints, 0, storeID)
		if err != nil {
			return a, err
		}
		totals, err = dailyTotals(q, storeID, days)
		return a, err
	})
	return a, totals, err
}
