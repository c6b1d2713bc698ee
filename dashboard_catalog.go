//go:build cgo

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// productsPage lists products or bundles.
type productsPage struct {
	frame
	Kind    Kind
	Text    string // the part of a title that was searched
	Entries []Product
	Next    string // the address of the next page; empty if this is the last one
}

func (s *server) showCatalog(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	const most = 50
	query := r.URL.Query()
	page := productsPage{
		frame: newFrame(r, st, "catalog"),
		Kind:  KindProduct,
		Text:  cut(strings.TrimSpace(query.Get("q")), 200), // as in the API
	}
	if query.Get("kind") == string(KindBundle) {
		page.Kind = KindBundle
	}

	entries, err := s.db.Catalog(st.ID, page.Kind, query.Get("after"), page.Text, most+1)
	if err != nil {
		return err
	}
	page.Entries = entries
	if len(entries) > most {
		page.Entries = entries[:most]
		next := url.Values{
			"kind":  {string(page.Kind)},
			"q":     {page.Text},
			"after": {entries[most-1].Slug},
		}
		page.Next = "/dashboard/catalog?" + next.Encode()
	}
	if page.Notice != "" {
		page.Unfinished, err = s.db.Unfinished(st.ID)
		if err != nil {
			return err
		}
	}
	return render(w, r, http.StatusOK, "dash-catalog.html", page)
}

// kindMethod stands for payment methods in the paths of the dashboard, besides the kinds of products.
const kindMethod Kind = "method"

// entryPlace says where the entries of a kind are, in a catalog file and in the dashboard.
type entryPlace struct {
	list  string // of the catalog file
	id    string // the field that identifies an entry
	title string // the field that a missing id is derived from
	tab   string
	back  string // the page that lists the entries
}

var entryPlaces = map[Kind]entryPlace{
	KindProduct: {"products", "slug", "title", "catalog", "/dashboard/catalog"},
	KindBundle:  {"bundles", "slug", "title", "catalog", "/dashboard/catalog?kind=bundle"},
	kindMethod:  {"payment_methods", "code", "name", "payments", "/dashboard/payments"},
}

// entryPage is the form of one product, bundle or payment method.
type entryPage struct {
	frame
	Kind      Kind
	Slug      string // empty for a new entry
	Back      string
	Providers []Provider
	Kinds     []MethodKind
	Choices   []BundleItem // the products that a bundle can hold
	Rows      int          // how many items of a bundle, or accounts of a method, the form has room for
}

// rareFields are those that most entries leave empty, besides the id. The form folds them away.
var rareFields = map[Kind][]string{
	KindProduct: {"image_url"},
	KindBundle:  {"image_url"},
	kindMethod:  {"fee", "min_amount", "max_amount"},
}

// ShowRare reports whether the form shows the rare fields at once, because one is wrong or filled.
func (p entryPage) ShowRare() bool {
	if p.Form.Faults[entryPlaces[p.Kind].id].Code != "" {
		return true
	}
	return slices.ContainsFunc(rareFields[p.Kind], func(name string) bool {
		given := p.Form.Values.Get(name)
		return p.Form.Faults[name].Code != "" || given != "" && given != "0"
	})
}

// itemChoice is the list from which a row of a bundle takes its product.
type itemChoice struct {
	Field    field
	Products []BundleItem
	Unknown  bool // the row's product is not among the Products
}

// ItemChoice is the list of a row.
func (p entryPage) ItemChoice(row int) itemChoice {
	f := p.Form.Field(fmt.Sprintf("items[%d].slug", row), "", false, "", "")
	known := slices.ContainsFunc(p.Choices, func(c BundleItem) bool { return c.Slug == f.Value })
	return itemChoice{f, p.Choices, f.Value != "" && !known}
}

func (s *server) editEntry(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	kind := Kind(r.PathValue("kind"))
	place, known := entryPlaces[kind]
	if !known {
		return errNotFound
	}
	page := entryPage{
		frame:     newFrame(r, st, place.tab),
		Kind:      kind,
		Slug:      r.URL.Query().Get("slug"),
		Back:      place.back,
		Providers: providers,
		Kinds:     methodKinds,
	}

	isNew := page.Slug == ""
	id := cmp.Or(page.Slug, text(r.PostForm, place.id))
	if id == "" && r.Method == http.MethodPost {
		var err error
		id, err = s.freeID(st.ID, kind, cmp.Or(slugOf(r.PostForm.Get(place.title)), string(kind)))
		if err != nil {
			return err
		}
	}
	values, err := s.entryValues(st.ID, kind, id)
	taken := isNew && err == nil
	if isNew && err == errNotFound {
		values = url.Values{"published": {"on"}, "enabled": {"on"}}
		err = nil
	}
	if err != nil {
		return err
	}

	if r.Method == http.MethodPost {
		values = r.PostForm
		values.Set(place.id, id)
		page.Form.Faults, err = s.saveEntry(r.Context(), st.ID, kind, values, taken)
		if err != nil {
			return err
		}
		if len(page.Form.Faults) == 0 {
			return done(w, r, page.Back, "saved")
		}
	}
	page.Form.Values = values

	if kind == kindMethod {
		page.Rows = min(mostAccounts, len(accountsOf(values))+2)
	}
	if kind == KindBundle {
		page.Rows = min(mostItems, len(itemsOf(values))+3)
		page.Choices, err = s.db.BundleChoices(st.ID)
		if err != nil {
			return err
		}
	}
	return render(w, r, page.status(), "dash-entry.html", page)
}

// freeID returns an id for a new entry that is made of its title, with a number if it is taken: kopi, kopi-2, kopi-3.
func (s *server) freeID(storeID string, kind Kind, base string) (id string, err error) {
	id = base
	for n := 2; ; n++ {
		_, err := s.entryValues(storeID, kind, id)
		if err == errNotFound {
			return id, nil
		}
		if err != nil {
			return "", err
		}
		id = fmt.Sprint(base, "-", n)
	}
}

// entryValues reads an entry as its form shows it.
func (s *server) entryValues(storeID string, kind Kind, id string) (url.Values, error) {
	if kind == kindMethod {
		m, err := s.db.PaymentMethod(storeID, id)
		return methodValues(m), err
	}
	p, err := s.db.CatalogEntry(storeID, kind, id)
	return productValues(p), err
}

func methodValues(m PaymentMethod) url.Values {
	v := url.Values{
		"code":         {m.Code},
		"name":         {m.Name},
		"provider":     {string(m.Provider)},
		"kind":         {string(m.Kind)},
		"fee":          {digits(&m.Fee)},
		"instructions": {m.Instructions},
		"min_amount":   {digits(m.MinAmount)},
		"max_amount":   {digits(m.MaxAmount)},
		"unique_code":  {ticked[m.UniqueCode]},
		"enabled":      {ticked[m.Enabled]},
	}
	if m.ImageURL != nil {
		v.Set("image_url", *m.ImageURL)
	}
	for i, account := range m.Accounts {
		setAccount(v, i, account)
	}
	return v
}

func productValues(p Product) url.Values {
	v := url.Values{
		"slug":        {p.Slug},
		"title":       {p.Title},
		"description": {p.Description},
		"price":       {digits(&p.Price)},
		"stock":       {digits(p.Stock)},
		"stock_was":   {digits(p.Stock)},
		"published":   {ticked[p.Published]},
	}
	if p.ImageURL != nil {
		v.Set("image_url", *p.ImageURL)
	}
	for i, item := range p.Items {
		setItem(v, i, item.Slug, digits(&item.Quantity))
	}
	return v
}

// digits is a number as a form shows it, empty for nil.
func digits(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// ticked is what a form holds of a box.
var ticked = map[bool]string{true: "on"}

// saveEntry stores the entry that a form holds, and returns what is wrong with it by field. The form is read like a
// catalog file with this one entry, so that the same rules hold for both. A new entry whose id is taken is refused.
func (s *server) saveEntry(
	ctx context.Context, storeID string, kind Kind, v url.Values, taken bool,
) (formFaults, error) {
	place := entryPlaces[kind]
	entry := productFields(v, kind)
	if kind == kindMethod {
		entry = methodFields(v)
	}

	f := newForm(map[string]any{place.list: []any{entry}})
	c, err := f.catalog()
	if err == nil && !taken {
		err = s.db.ImportCatalog(ctx, storeID, c)
	}
	faults, err := faultsOf(err, place.list+"[0].")
	if err != nil {
		return nil, err
	}

	if taken {
		faults[place.id] = Fault{Code: FaultTaken, Text: v.Get(place.id)}
	}
	return faults, nil
}

// methodFields reads a form as a payment method of a catalog file.
func methodFields(v url.Values) map[string]any {
	fields := map[string]any{
		"code":         text(v, "code"),
		"name":         text(v, "name"),
		"provider":     text(v, "provider"),
		"fee":          number(cmp.Or(v.Get("fee"), "0")),
		"instructions": text(v, "instructions"),
		"min_amount":   number(v.Get("min_amount")),
		"max_amount":   number(v.Get("max_amount")),
		"image_url":    nil,
		"enabled":      v.Has("enabled"),
	}
	image := text(v, "image_url")
	if image != "" {
		fields["image_url"] = image
	}

	// What only a manual method has is ignored in the form of another one.
	accounts := accountsOf(v)
	if v.Get("provider") == string(ProviderManual) {
		fields["kind"] = cmp.Or(text(v, "kind"), string(MethodTransfer))
		fields["accounts"] = accounts
		fields["unique_code"] = v.Has("unique_code")
	}
	return fields
}

// accountsOf reads the accounts of a payment method, like itemsOf.
func accountsOf(v url.Values) []any {
	accounts := []any{}
	for i := range mostAccounts {
		a := BankAccount{
			Bank:   text(v, fmt.Sprintf("accounts[%d].bank", i)),
			Number: text(v, fmt.Sprintf("accounts[%d].number", i)),
			Holder: text(v, fmt.Sprintf("accounts[%d].holder", i)),
		}
		setAccount(v, i, BankAccount{})
		if a == (BankAccount{}) {
			continue
		}

		setAccount(v, len(accounts), a)
		account := map[string]any{"bank": a.Bank, "number": a.Number}
		if a.Holder != "" {
			account["holder"] = a.Holder
		}
		accounts = append(accounts, account)
	}
	return accounts
}

func setAccount(v url.Values, i int, a BankAccount) {
	v.Set(fmt.Sprintf("accounts[%d].bank", i), a.Bank)
	v.Set(fmt.Sprintf("accounts[%d].number", i), a.Number)
	v.Set(fmt.Sprintf("accounts[%d].holder", i), a.Holder)
}

// productFields reads a form as a product or bundle of a catalog file.
func productFields(v url.Values, kind Kind) map[string]any {
	fields := map[string]any{
		"slug":        text(v, "slug"),
		"title":       text(v, "title"),
		"description": text(v, "description"),
		"price":       number(v.Get("price")),
		"image_url":   nil,
		"published":   v.Has("published"),
	}
	image := text(v, "image_url")
	if image != "" {
		fields["image_url"] = image
	}

	if kind == KindBundle {
		fields["items"] = itemsOf(v)
		return fields
	}
	// A stock that the owner did not change is left out: otherwise it would bring back what was sold since the form
	// was shown.
	if v.Get("stock") != v.Get("stock_was") {
		fields["stock"] = number(v.Get("stock"))
	}
	return fields
}

// text reads a text, in which browsers end a line with CRLF.
func text(v url.Values, name string) string {
	return strings.TrimSpace(strings.ReplaceAll(v.Get(name), "\r\n", "\n"))
}

// numberPattern matches a whole number as people write it, and captures its digits: "Rp 85.000,00" is 85.000. Rupiah have no
// sen, so a fraction can only be zeros.
var numberPattern = regexp.MustCompile(
	`^(?i:rp\.?|idr)?\s*(\d+|\d{1,3}(?:\.\d{3})+|\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+)(?:[.,]0{1,2}|,-)?\s*$`)

var groupMarks = strings.NewReplacer(".", "", ",", "", " ", "")

// number reads a whole number as people write it. An empty text is null.
func number(text string) any {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\u00a0", " "))
	if text == "" {
		return nil
	}
	m := numberPattern.FindStringSubmatch(text)
	if m != nil {
		text = groupMarks.Replace(m[1])
	}
	return json.Number(text)
}

// mostItems is how many items a form of a bundle can have.
const mostItems = 50

// itemsOf reads the items of a bundle. Rows without a slug are left out, and the other rows are moved up in the form
// to fill the gaps, because faults name an item by its position.
func itemsOf(v url.Values) []any {
	items := []any{}
	for i := range mostItems {
		slug := text(v, fmt.Sprintf("items[%d].slug", i))
		quantity := cmp.Or(text(v, fmt.Sprintf("items[%d].quantity", i)), "1")

		setItem(v, i, "", "")
		if slug != "" {
			setItem(v, len(items), slug, quantity)
			items = append(items, map[string]any{"slug": slug, "quantity": number(quantity)})
		}
	}
	return items
}

func setItem(v url.Values, i int, slug, quantity string) {
	v.Set(fmt.Sprintf("items[%d].slug", i), slug)
	v.Set(fmt.Sprintf("items[%d].quantity", i), quantity)
}
