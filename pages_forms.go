package main

// This file holds the rest of the owner's pages: what they read, and what their forms do, tab by tab. Catalog: products
// and bundles. Payments: methods, whose form has the fields of their kind, and gateways' keys. Settings: shipping, the
// store, the owner's phone and password. What a form saves goes through the reader and the write of a catalog file, as
// its only entry.

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// catalogPage is a page of the products or bundles of a store.
type catalogPage struct {
	*page
	EntryFilter
	Entries []Entry
	More    string // the address of the next page, "" = there is none
}

func (s *server) readCatalog(p *page) (any, error) {
	offset, _ := strconv.ParseInt(p.Query("offset"), 10, 64)
	f := EntryFilter{Type: Product, Text: p.Query("q"), Offset: max(0, offset), Limit: 50, Drafts: true}
	if p.Query("kind") == string(Bundle) {
		f.Type = Bundle
	}
	read := func() (any, error) {
		entries, more, err := s.db.Entries(p.Context(), p.Store.ID, f)
		v := catalogPage{page: p, EntryFilter: f, Entries: entries}
		if more {
			v.More = p.With("offset", f.Offset+f.Limit)
		}
		return v, err
	}
	if f.Text == "" {
		return read()
	}
	return searching(s, p, read)
}

const mostInBundle = 50 // products

// entryPage is the form of a product or bundle.
type entryPage struct {
	*page
	Entry      Entry
	Save       form
	Picture    string  // its address
	IsOwn      bool    // The picture was uploaded.
	StockShown string  // as the form has shown it
	Token      string  // which no other form has
	Rows       []int   // of the bundle's products
	Products   []Entry // that the rows suggest
}

func (s *server) readEntry(p *page) (any, error) {
	kind := Kind(path.Base(p.URL.Path))
	v := entryPage{page: p, Entry: Entry{Type: kind}, Save: p.Form("save"), Token: newSecret()}
	if slug := p.Query("slug"); slug != "" {
		e, err := s.db.Entry(p.Context(), p.Store.ID, kind, slug)
		if err != nil {
			return nil, err
		}
		v.Entry = e
		e.ImageURL = p.Store.pictureURL(e.ImageURL)
		fields, err := s.entryFields(p, e)
		if err != nil {
			return nil, err
		}
		v.Save = p.Form("save", fields)
	}
	v.Picture = strings.TrimPrefix(v.Save.Values.Get("image_url"), p.Store.URL)
	v.IsOwn = strings.HasPrefix(v.Picture, "/")

	v.StockShown = v.Save.Values.Get("stock")
	if v.Save.Refusal != nil { // It is still the form that showed the stock first.
		v.StockShown = v.Save.Values.Get("stock_shown")
		v.Token = v.Save.Values.Get("token")
	}
	if kind == Product {
		return v, nil
	}

	v.Rows = v.Save.Rows("items", "slug", mostInBundle)
	var err error
	v.Products, err = s.suggested(p, Product)
	return v, err
}

// leadOn says where a saved form leads: to the first steps, if it was opened from there.
func (p *page) leadOn(usual string) {
	p.next = usual
	if p.Query("first") != "" {
		p.next = "/dashboard"
	}
}

// nameFor returns the name of what a form saves: the one in the address or, for something new, the one that was
// typed, or one made from its title. find returns the title of what already has a name, or ErrNotFound. A
// typed name that is taken is refused. So is one made from a title if the title is the same too: a double
// click sends a form twice.
func (p *page) nameFor(field, titleField string, find func(name string) (title string, err error)) (string, error) {
	given := p.Query(field)
	title := strings.TrimSpace(p.PostFormValue(titleField))
	typed := strings.TrimSpace(p.PostFormValue(field))
	name := cmp.Or(given, typed, slugOf(title), "x")
	found, err := find(name)
	switch {
	case given != "":
		return name, err
	case errors.Is(err, ErrNotFound):
		return name, nil
	case err != nil:
		return "", err
	case typed != "" || found == title:
		return name, refuse(ValidationFailed).add(titleField,
			"already exists: choose another, unless you have just saved it")
	}
	return name + "-" + strings.ToLower(rand.Text()[:6]), nil
}

// saveEntry saves a product or bundle. The stock is left alone unless its field was changed, and then changes
// by as much as the field: pieces that were sold while the form was open stay sold.
func (s *server) saveEntry(p *page) error {
	kind := Kind(path.Base(p.URL.Path))
	p.leadOn("/dashboard/catalog?kind=" + string(kind))
	token := p.PostFormValue("token")
	if saved, err := s.db.FormWasSaved(p.Context(), p.Store.ID, token); saved || err != nil {
		return err
	}

	wrong := refuse(ValidationFailed)
	slug, err := p.nameFor("slug", "title", func(slug string) (string, error) {
		e, err := s.db.Entry(p.Context(), p.Store.ID, kind, slug)
		return e.Title, err
	})
	if err := wrong.gather(err); err != nil {
		return err
	}
	if err := wrong.gather(s.readPicture(p)); err != nil {
		return err
	}
	in := maps.Clone(p.PostForm)
	in.Set("slug", slug)
	if err := wrong.gather(s.findItems(p, in)); err != nil {
		return err
	}
	var e Entry
	if err := wrong.gather(readForm(in, &e)); err != nil {
		return err
	}
	if err := wrong.orNil(); err != nil {
		return err
	}

	if p.Query("slug") != "" {
		if err := s.keepEntry(p, kind, e); err != nil {
			return err
		}
	}
	e.StockShown = p.PostFormValue("stock_shown")
	e.FormToken = token
	if kind == Bundle {
		return s.importOne(p, Catalog{Bundles: []Entry{e}})
	}
	return s.importOne(p, Catalog{Products: []Entry{e}})
}

// keepEntry leaves the fields of an entry alone that its form did not change.
func (s *server) keepEntry(p *page, kind Kind, e Entry) error {
	there, err := s.db.Entry(p.Context(), p.Store.ID, kind, p.Query("slug"))
	if err != nil {
		return err
	}
	now, err := s.entryFields(p, there)
	if err != nil {
		return err
	}
	return p.keepUnchanged(e, now)
}

// entryFields fills in the form of an entry. It shows the products of a bundle by their titles, where a title means no
// other product too.
func (s *server) entryFields(p *page, e Entry) (url.Values, error) {
	values := p.Fields(e)
	for i, item := range e.Items {
		name, err := s.nameOf(p, Product, Entry{ID: item.ProductID, Slug: item.Slug, Title: item.Title})
		if err != nil {
			return nil, err
		}
		values.Set(fmt.Sprintf("items[%d].slug", i), name)
	}
	return values, nil
}

// findItems replaces what was typed into a bundle's rows by the slugs of products. A slug comes before a title.
func (s *server) findItems(p *page, in url.Values) error {
	wrong := refuse(ValidationFailed)
	for row := range mostInBundle {
		name := fmt.Sprintf("items[%d].slug", row)
		text := strings.TrimSpace(in.Get(name))
		if text == "" {
			continue
		}
		_, err := s.db.Entry(p.Context(), p.Store.ID, Product, text)
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrNotFound) {
			return err
		}

		e, reason, err := s.meant(p, Product, text)
		if err != nil {
			return err
		}
		if reason != "" {
			wrong.add(name, reason)
			continue
		}
		in.Set(name, e.Slug)
	}
	return wrong.orNil()
}

// importOne adds or changes one entry. Its errors name the form's fields.
func (s *server) importOne(p *page, entry Catalog) error {
	_, err := s.db.ImportCatalog(p.Context(), p.Store, entry)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		for i, e := range refusal.Fields {
			_, refusal.Fields[i].Field, _ = strings.Cut(e.Field, ".")
		}
	}
	return err
}

func (s *server) removeEntry(p *page) error {
	kind := path.Base(p.URL.Path)
	err := s.db.RemoveEntry(p.Context(), p.Store.ID, Kind(kind), p.Query("slug"))
	p.next = "/dashboard/catalog?kind=" + kind
	return err
}

// paymentsPage has a store's payment methods and gateways.
type paymentsPage struct {
	*page
	IsFirst  bool // It was opened from the first steps.
	Methods  []methodLine
	Gateways []gatewayLine
}

// methodLine is a method, and the code of why buyers are not offered it; "" = they are.
type methodLine struct {
	Method
	Lacks   string
	QRISFee bool // Its fee would be added to payments by QRIS.
}

func (s *server) readPayments(p *page) (any, error) {
	v := paymentsPage{page: p, IsFirst: p.Query("first") != ""}
	methods, err := s.db.Methods(p.Context(), p.Store.ID)
	if err != nil {
		return nil, err
	}
	for _, m := range methods {
		v.Methods = append(v.Methods, methodLine{m, m.lacks(p.Store), m.addsFeeToQRIS(p.Store)})
	}

	v.Gateways, err = s.gatewayLines(p)
	return v, err
}

// methodPage is the form of a payment method, with the fields of its kind.
type methodPage struct {
	*page
	Edited       Method
	Kind         string // the method's or, where it has none, its provider
	IsManual     bool
	Lacks        string // why buyers are not offered it
	Save         form
	Rows         []int // of its accounts
	QRISFee      bool  // Its fee would be added to payments by QRIS.
	TakesPicture bool
	Code         *ownCode // the one in use
	Proposed     *ownCode // the one that was read and not confirmed yet
	ReadScript   template.JS
}

// readMethod reads the form of a method; a new one has no code. A refused picture has an address of its own, so the
// template says where forms are posted to.
func (s *server) readMethod(p *page) (any, error) {
	m := Method{Provider: Provider(p.Query("provider")), Kind: MethodKind(p.Query("kind"))}
	v := methodPage{page: p, Save: p.Form("save")}
	if code := p.Query("code"); code != "" {
		var err error
		if m, err = s.db.Method(p.Context(), p.Store.ID, code); err != nil {
			return nil, err
		}
		if m.Removed {
			return nil, ErrNotFound
		}
		v.Save = p.Form("save", p.Fields(m))
		v.Lacks = m.lacks(p.Store)
		p.specify(v.Lacks)
	}

	isFresh := m.Code == "" && v.Save.Refusal == nil
	if isFresh && (m.Kind == QRIS || m.Kind == Cash) {
		v.Save.Values.Set("name", p.Language.word("kind", m.Kind)) // Most owners call it that.
	}
	if isFresh && m.Kind == Cash {
		v.Save.Values.Del("shop") // Strangers order in cash only if the owner wants that.
	}

	v.Edited = m
	v.Kind = cmp.Or(string(m.Kind), string(m.Provider))
	v.IsManual = m.Provider == Manual
	v.TakesPicture = m.Kind == QRIS && m.Code != ""
	if v.TakesPicture {
		v.readCodes(m)
	}
	v.Rows = v.Save.Rows("accounts", "number", 10)
	v.QRISFee = m.addsFeeToQRIS(p.Store)
	return v, nil
}

func (s *server) saveMethod(p *page) error {
	code, err := p.nameFor("code", "name", func(code string) (string, error) {
		m, err := s.db.Method(p.Context(), p.Store.ID, code)
		fits := string(m.Provider) == p.PostFormValue("provider") && string(m.Kind) == p.PostFormValue("kind")
		if m.Removed && (fits || p.PostFormValue("code") != "") {
			return "", ErrNotFound // It may be added again, or is refused by its name.
		}
		if m.Removed || string(m.Provider) != p.PostFormValue("provider") {
			m.Name = "" // A method of another provider may have the same name.
		}
		return m.Name, err
	})
	if err != nil {
		return err
	}

	in := maps.Clone(p.PostForm)
	in.Set("code", code)
	var m Method
	if err := readForm(in, &m); err != nil {
		return err
	}

	if p.Query("code") != "" {
		there, err := s.db.Method(p.Context(), p.Store.ID, code)
		if err != nil {
			return err
		}
		if err := p.keepUnchanged(m, p.Fields(there)); err != nil {
			return err
		}
	}
	p.leadOn("/dashboard/payments")
	if m.lacksTarget() != "" { // Its page says what is missing, and takes the code of a QRIS, which no form has here.
		p.next = methodPath(m.Code)
	}
	return s.importOne(p, Catalog{PaymentMethods: []Method{m}})
}

// methodPath is the address of a method's form.
func methodPath(code string) string {
	return "/dashboard/payments/method?code=" + url.QueryEscape(code)
}

func (s *server) removeMethod(p *page) error {
	err := s.db.RemoveMethod(p.Context(), p.Store.ID, p.Query("code"))
	p.next = "/dashboard/payments"
	return err
}

// shippingPage is the form of a store's shipping options.
type shippingPage struct {
	*page
	Save form
	Rows []int
}

// shippingForm is the whole list of a store's shipping options.
type shippingForm struct {
	Options []ShippingOption `json:"options" rule:"list 0..10 optional"`
	Given   map[string]bool
}

func (s *server) readShipping(p *page) (any, error) {
	options, err := s.db.ShippingOptions(p.Context(), p.Store.ID)
	v := shippingPage{page: p, Save: p.Form("save", p.Fields(shippingForm{Options: options}))}
	v.Rows = v.Save.Rows("options", "name", mostShippingOptions)
	return v, err
}

func (s *server) saveShipping(p *page) error {
	in := p.PostForm
	for row := range mostShippingOptions { // An empty row has no option, whatever its box says.
		name := fmt.Sprintf("options[%d].", row)
		if strings.TrimSpace(in.Get(name+"name")+in.Get(name+"fee")) == "" {
			in.Del(name + "address_required")
			in.Del(name + "free_from")
			in.Del(name + "position")
		}
	}
	there, err := s.db.ShippingOptions(p.Context(), p.Store.ID)
	if err != nil {
		return err
	}
	var shipping shippingForm
	err = p.readChanges(&shipping, p.Fields(shippingForm{Options: there}))
	p.leadOn("")
	if err != nil || !shipping.Given["options"] {
		return err
	}
	return s.db.SetShippingOptions(p.Context(), p.Store.ID, shipping.Options)
}

// saveGateway tries a key at its gateway and stores it.
func (s *server) saveGateway(p *page) error {
	key := GatewayKey{StoreID: p.Store.ID}
	if err := readForm(p.PostForm, &key); err != nil {
		return err
	}
	return s.payments.gateways.SetKey(p.Context(), s.db, key)
}

// accountPage has the settings of a store and of its owner.
type accountPage struct {
	*page
	Save    form
	Minutes float64 // until unpaid orders expire, where that is no whole number of hours; otherwise 0
	Phones  []Endpoint
}

func (s *server) readAccount(p *page) (any, error) {
	settings := p.Store.Settings()
	v := accountPage{page: p, Save: p.Form("save", p.Fields(settings))}
	if settings.Hours == nil {
		v.Minutes = p.Store.Expiry.Minutes()
	}
	var err error
	v.Phones, err = s.endpoints(p, Phone)
	return v, err
}

// addPhone makes an endpoint that rings the owner's phone, through a topic that nobody can guess.
func (s *server) addPhone(p *page) error {
	server := strings.Trim(cmp.Or(p.PostFormValue("server"), "ntfy.sh"), " /")
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	address := server + "/storeorder-" + newSecret()
	return s.newEndpoint(p, NewEndpoint{Kind: Phone, URL: address, Events: phoneEvents})
}

func (s *server) saveStore(p *page) error {
	var in settings
	if err := p.readChanges(&in, nil); err != nil {
		return err
	}
	p.leadOn("")
	_, err := s.db.SetStore(p.Context(), p.Store.ID, func(st *Store) {
		fillIn(&in, st.Settings(), in.Given)
		st.applySettings(in)
	})
	return err
}

// changePassword ends all sign-ins, and signs this browser in again.
func (s *server) changePassword(p *page) error {
	password := p.PostFormValue("new_password")
	if utf8.RuneCountInString(strings.TrimSpace(password)) < 12 { // Length is what counts: guessing is slow.
		return refuse(ValidationFailed).add("new_password", "must have at least 12 characters")
	}

	err := s.auth.changePassword(p.w, p.Request, p.Store, p.PostFormValue("password"), password)
	if errors.Is(err, ErrNotFound) {
		return refuse(ValidationFailed).add("password", "is not your current password")
	}
	return err
}

func (s *server) signOut(p *page) error {
	p.next = "/dashboard/login"
	return s.auth.signOut(p.w, p.Request)
}
