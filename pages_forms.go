package main

// This file holds the rest of the owner's pages: what they read, and what their forms do, tab by tab. Catalog: products
// and bundles. Payments: methods, whose form has the fields of their kind, and gateways' keys. API: keys, webhooks and
// their deliveries, the reference. Settings: the store, the owner's phone and password. What a form saves goes through the
// reader and the write of a catalog file, as its only entry.

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Fields fills in the form of a struct: the inverse of readForm.
func (p *page) Fields(of any) url.Values {
	values := url.Values{}
	addValues(values, "", reflect.ValueOf(of))
	return values
}

func addValues(values url.Values, prefix string, v reflect.Value) {
	for _, in := range inputs(v.Type()) {
		field := reflect.Indirect(v.FieldByIndex(in.index))
		switch {
		case !field.IsValid(): // a nil pointer
		case field.Kind() == reflect.Slice:
			for i := range field.Len() {
				addValues(values, fmt.Sprintf("%s[%d].", in.name, i), field.Index(i))
			}
		case field.Kind() != reflect.Bool:
			values.Set(prefix+in.name, fmt.Sprint(field))
		case field.Bool():
			values.Set(prefix+in.name, "on")
		}
	}
}

// Rows returns how many rows of a list a form has: those up to the last one that is filled in, and two more,
// but no more than the list may have.
func (f form) Rows(list, name string, most int) int {
	last := -1
	for row := range most {
		if f.Values.Get(fmt.Sprintf("%s[%d].%s", list, row, name)) != "" {
			last = row
		}
	}
	return min(last+3, most)
}

// Offset returns how many entries the earlier pages of a list have.
func (p *page) Offset() int64 {
	n, _ := strconv.ParseInt(p.Query("offset"), 10, 64)
	return max(0, n)
}

// Entries returns those of a kind that the address asks for.
func (p *page) Entries(kind string, drafts bool, most int64) ([]Entry, error) {
	f := EntryFilter{Type: Kind(kind), Text: p.Query("q"), Offset: p.Offset(), Limit: most, Drafts: drafts}
	entries, _, err := p.DB.Entries(p.Context(), p.Store.ID, f)
	return entries, err
}

// Entry returns the product or bundle that a form is about; a new one has no slug.
func (p *page) Entry() (Entry, error) {
	kind := Kind(path.Base(p.URL.Path))
	slug := p.Query("slug")
	if slug == "" {
		return Entry{Type: kind}, nil
	}
	return p.DB.Entry(p.Context(), p.Store.ID, kind, slug)
}

// setName gives what a form saves its name: the one in the address or, for something new, the one that was
// typed, or one made from its title. find returns the title of what already has a name, or ErrNotFound. A
// typed name that is taken is refused. So is one made from a title if the title is the same too: a double
// click sends a form twice.
func (p *page) setName(field, titleField string, find func(name string) (title string, err error)) error {
	given := p.Query(field)
	title := strings.TrimSpace(p.PostFormValue(titleField))
	typed := strings.TrimSpace(p.PostFormValue(field))
	name := cmp.Or(given, typed, slugOf(title), "x")
	found, err := find(name)
	switch {
	case given != "":
	case errors.Is(err, ErrNotFound):
		err = nil
	case err == nil && (typed != "" || found == title):
		err = refuse(ValidationFailed).add(titleField, "already exists: choose another, unless you have just saved it")
	default:
		name += "-" + strings.ToLower(rand.Text()[:6])
	}
	if err == nil {
		p.PostForm.Set(field, name)
	}
	return err
}

// saveEntry saves a product or bundle. The stock is left alone unless its field was changed, and then changes
// by as much as the field: pieces that were sold while the form was open stay sold.
func (s *server) saveEntry(p *page) error {
	kind := Kind(path.Base(p.URL.Path))
	p.next = "/dashboard/catalog?kind=" + string(kind)
	shown, token, _ := strings.Cut(p.PostFormValue("stock_was"), " ")
	if saved, err := s.db.FormWasSaved(p.Context(), p.Store.ID, token); saved || err != nil {
		return err
	}

	err := p.setName("slug", "title", func(slug string) (string, error) {
		e, err := s.db.Entry(p.Context(), p.Store.ID, kind, slug)
		return e.Title, err
	})
	var e Entry
	if err == nil {
		err = readForm(p.PostForm, &e)
	}
	if err != nil {
		return err
	}

	e.StockShown = shown
	e.FormToken = token
	if kind == Bundle {
		return s.importOne(p, Catalog{Bundles: []Entry{e}})
	}
	return s.importOne(p, Catalog{Products: []Entry{e}})
}

// importOne adds or changes one entry. Its errors name the form's fields.
func (s *server) importOne(p *page, entry Catalog) error {
	_, err := s.db.ImportCatalog(p.Context(), p.Store.ID, entry)
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

// EditedMethod returns the payment method that a form is about; a new one has no code.
func (p *page) EditedMethod() (Method, error) {
	if code := p.Query("code"); code != "" {
		m, err := p.DB.Method(p.Context(), p.Store.ID, code)
		if m.Removed {
			err = ErrNotFound
		}
		return m, err
	}
	return Method{Provider: Provider(p.Query("provider")), Kind: MethodKind(p.Query("kind"))}, nil
}

// MethodOf returns one of the store's payment methods, removed or not, or one without a name.
func (p *page) MethodOf(code string) (Method, error) {
	m, err := p.DB.Method(p.Context(), p.Store.ID, code)
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return m, err
}

func (s *server) saveMethod(p *page) error {
	err := p.setName("code", "name", func(code string) (string, error) {
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
	var m Method
	if err == nil {
		err = readForm(p.PostForm, &m)
	}
	if err != nil {
		return err
	}

	p.next = "/dashboard/payments"
	if m.Kind == QRIS { // Its picture may still have to be uploaded.
		p.next += "/method?code=" + url.QueryEscape(m.Code)
	}
	return s.importOne(p, Catalog{PaymentMethods: []Method{m}})
}

func (s *server) removeMethod(p *page) error {
	err := s.db.RemoveMethod(p.Context(), p.Store.ID, p.Query("code"))
	p.next = "/dashboard/payments"
	return err
}

// saveGateway tries a key at its gateway and stores it.
func (s *server) saveGateway(p *page) error {
	key := GatewayKey{StoreID: p.Store.ID}
	if err := readForm(p.PostForm, &key); err != nil {
		return err
	}
	return s.payments.gateways.SetKey(p.Context(), s.db, key)
}

// Secret returns the one just made for a key or an endpoint, for ten minutes.
func (p *page) Secret(id string) string {
	return p.auth.kept(p.Request, "secret-"+id, p.auth.cookie(p.Request, "sign-in"))
}

// keepSecret lets this sign-in show a secret for ten minutes. It waits in a cookie, so it is stored nowhere
// here, and a page that a phone threw away can show it again.
func (p *page) keepSecret(id, secret string) {
	p.auth.keep(p.w, "secret-"+id, p.auth.cookie(p.Request, "sign-in"), secret, 10*time.Minute)
}

func (s *server) addKey(p *page) error {
	var in struct {
		Name  string `json:"name" rule:"text 1..100"`
		Scope Scope  `json:"scope" rule:"choice read|write|manage"`
	}
	if err := readForm(p.PostForm, &in); err != nil {
		return err
	}

	key, secret, err := s.db.AddKey(p.Context(), p.Store.ID, in.Name, in.Scope, 0)
	if err == nil {
		p.keepSecret(key.ID, secret)
	}
	p.next = "/dashboard/developers?key=" + key.ID
	return err
}

func (s *server) revokeKey(p *page) error {
	p.next = "/dashboard/developers"
	return s.db.RevokeKey(p.Context(), p.Store.ID, p.PostFormValue("key"))
}

func (s *server) addEndpoint(p *page) error {
	return s.newEndpoint(p, NewEndpoint{Kind: Webhook, URL: strings.TrimSpace(p.PostFormValue("url"))})
}

// newEndpoint adds an endpoint and leads to its page, which shows its secret.
func (s *server) newEndpoint(p *page, in NewEndpoint) error {
	in.AllowPrivate = s.allowPrivate
	id, secret, err := s.db.AddEndpoint(p.Context(), p.Store.ID, in)
	if err == nil {
		p.keepSecret(id, secret)
	}
	p.next = "/dashboard/endpoints/" + id
	return err
}

// changeEndpoint does one of the acts ping, on, off, rotate, resend and remove.
func (s *server) changeEndpoint(p *page) error {
	ctx := p.Context()
	store := p.Store.ID
	id := p.PathValue("id")
	switch act := p.PostFormValue("act"); act {
	case "ping":
		return s.db.Ping(ctx, store, id)
	case "resend":
		return s.db.Resend(ctx, store, p.PostFormValue("delivery"))
	case "remove":
		p.next = "/dashboard/developers"
		return s.db.RemoveEndpoint(ctx, store, id)
	case "rotate":
		secret, err := s.db.RotateSecret(ctx, store, id)
		if err == nil {
			p.keepSecret(id, secret)
		}
		return err
	default:
		return s.db.SetEndpointActive(ctx, store, id, act == "on")
	}
}

// API returns openapi.json, decoded.
func (p *page) API() (spec map[string]any, err error) {
	err = json.Unmarshal(description, &spec)
	return spec, err
}

// showOwnIDs makes the examples of the reference name what an owner sells, if one is signed in.
func (s *server) showOwnIDs(p *page) (err error) {
	p.Store, err = s.auth.owner(p.Request)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
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
	if err := readForm(p.PostForm, &in); err != nil {
		return err
	}

	_, err := s.db.SetStore(p.Context(), p.Store.ID, func(st *Store) {
		if in.Hours != nil {
			st.Expiry = time.Duration(*in.Hours) * time.Hour
		}

		st.Name = in.Name
		st.Contact = in.Contact
		st.Language = in.Language
		st.TestMode = in.TestMode
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
