package main

// This file has the shop page: the goods of a store, from which strangers order. It needs no account, no script and no
// cookie. What was chosen is in the address: product.kopi-gayo=2. The page is one form, which leads to a clean address
// of the same page or to the checkout.

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	mostOnShopPage = 20  // goods
	mostLines      = 30  // of an order
	mostInCart     = 100 // lines that are read
	fewLeft        = 5   // pieces: how many there are is said
	excerptLength  = 300
)

// publicHead is what search engines and previews of links are told about a page.
type publicHead struct {
	Canonical   string // "" = it is in no index
	Description string
	Picture     string // https, or ""
}

// admitShopper lets anybody in to a shop page. The page of another store's host, of a store that has none and of no
// store are the same.
func (s *server) admitShopper(p *page) error {
	if err := s.auth.shopLimiter.take(s.auth.client(p.Request)); err != nil {
		return err
	}
	st, err := s.db.StoreOf(p.Context(), "slug", p.PathValue("slug"))
	if err != nil {
		return err
	}
	if st.Shop == ShopOff {
		return ErrNotFound
	}
	p.enter(st, "shop")
	return s.checkHost(p)
}

// checkHost refuses a page on the host of another store.
func (s *server) checkHost(p *page) error {
	other, err := s.db.StoreAt(p.Context(), p.Host)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err == nil && other.ID != p.Store.ID {
		return ErrNotFound
	}
	return nil
}

// goHome leads from / to the shop page of the host's store or, on the public host, of the only store; else to the
// dashboard.
func (s *server) goHome(w http.ResponseWriter, r *http.Request) {
	st, err := s.db.StoreAt(r.Context(), r.Host)
	if errors.Is(err, ErrNotFound) {
		st, err = s.db.onlyStore(r.Context())
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		s.fail(w, r, err)
		return
	}
	to := "/dashboard"
	if st.Shop == ShopOpen || st.Shop == ShopClosed {
		to = st.shopPath()
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

const robots = "User-agent: *\nDisallow: /dashboard\nDisallow: /shop/*/checkout\n"

// drawShopCode answers with the picture of a code that leads to the shop page.
func (s *server) drawShopCode(p *page) error {
	return s.writeCode(p, "shop", p.Store.ShopURL())
}

// cartLine is a product or bundle that was chosen.
type cartLine struct {
	Field    string // its name in forms and addresses
	Typed    string // its quantity as it was typed
	Quantity int64  // 0 = it cannot be read
}

// cartField returns the name of the field for the quantity of goods.
func cartField(kind Kind, slug string) string { return string(kind) + "." + slug }

// isWrong reports whether the quantity cannot be read.
func (l cartLine) isWrong() bool { return l.Quantity == 0 }

var isSlug = formats["slug"].valid

// readCart returns what an address or a form has chosen, sorted by field. What is empty or 0 is left out, and so is
// what has another name.
func readCart(values url.Values) (lines []cartLine) {
	for field := range values {
		kind, slug, _ := strings.Cut(field, ".")
		typed := strings.TrimSpace(values.Get(field))
		isChosen := strings.Trim(typed, "0") != ""
		if (kind != "product" && kind != "bundle") || !isSlug(slug) || !isChosen {
			continue
		}
		quantity, err := strconv.ParseInt(parseCount(typed), 10, 64)
		if err != nil || quantity < 0 {
			quantity = 0
		}
		lines = append(lines, cartLine{field, fmt.Sprintf("%.12s", typed), quantity})
	}
	slices.SortFunc(lines, func(a, b cartLine) int { return cmp.Compare(a.Field, b.Field) })
	return lines[:min(len(lines), mostInCart)]
}

// cart returns what a page is about: the form that is shown again, or what can be read of the address.
func (p *page) cart() (values url.Values, lines []cartLine) {
	if p.typed.Values != nil {
		return p.typed.Values, readCart(p.typed.Values)
	}
	values = p.URL.Query()
	return values, slices.DeleteFunc(readCart(values), cartLine.isWrong)
}

// shopAddress returns the address of a page of the shop with what was chosen. The language stays that of the address.
func (p *page) shopAddress(path string, lines []cartLine, more ...string) string {
	query := url.Values{}
	for _, l := range lines {
		if !l.isWrong() {
			query.Set(l.Field, strconv.FormatInt(l.Quantity, 10))
		}
	}
	if lang := p.Query("lang"); vocabulary()[language(lang)] != nil {
		query.Set("lang", lang)
	}
	for pair := range slices.Chunk(more, 2) {
		if pair[1] != "" {
			query.Set(pair[0], pair[1])
		}
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// chosenLine is a line of the cart as it is for sale now.
type chosenLine struct {
	cartLine
	Entry
	Total int64
	Most  int64       // pieces that an order may have; 0 = sold out
	Error *FieldError // what is wrong with its quantity
}

// chosen returns the lines of a cart that are for sale, and how many are not.
func (s *server) chosen(p *page, lines []cartLine) (list []chosenLine, skipped int, err error) {
	names := [][2]string{}
	for _, l := range lines {
		kind, slug, _ := strings.Cut(l.Field, ".")
		names = append(names, [2]string{kind, slug})
	}
	entries, err := s.db.EntriesNamed(p.Context(), p.Store.ID, names)
	if err != nil {
		return nil, 0, err
	}
	for _, l := range lines {
		i := slices.IndexFunc(entries, func(e Entry) bool { return cartField(e.Type, e.Slug) == l.Field })
		if i < 0 {
			skipped++
			continue
		}
		list = append(list, p.choose(entries[i], l))
	}
	return list, skipped, nil
}

// choose returns a line with its goods, and what is wrong with its quantity.
func (p *page) choose(e Entry, l cartLine) chosenLine {
	chosen := chosenLine{cartLine: l, Entry: e, Total: e.Price * l.Quantity, Most: p.Store.ShopMaxQuantity}
	if e.Stock != nil {
		chosen.Most = min(*e.Stock, chosen.Most)
	}
	wrong := func(format string, values ...any) {
		chosen.Error = &FieldError{Field: l.Field, Format: format, Values: values}
	}
	switch {
	case l.Typed == "": // Nothing was chosen.
	case l.isWrong():
		wrong("must be a whole number")
	case l.Quantity <= chosen.Most:
	case chosen.Most == 0:
		wrong("is sold out: %s", e.Title)
	case e.Stock != nil && *e.Stock == chosen.Most:
		wrong("is more than there is: %s, only %d left", e.Title, chosen.Most)
	default:
		wrong("is more than an order may have: %s, at most %d", e.Title, chosen.Most)
	}
	return chosen
}

// shopGood is a product or bundle as the shop page shows it.
type shopGood struct {
	chosenLine
	Path    string
	Left    int64 // if there are few
	Excerpt string
}

func (p *page) goodOf(e Entry, lines []cartLine) shopGood {
	line := cartLine{Field: cartField(e.Type, e.Slug)}
	for _, l := range lines {
		if l.Field == line.Field {
			line = l
		}
	}
	g := shopGood{chosenLine: p.choose(e, line), Excerpt: e.Description}
	g.Path = p.shopAddress(p.Store.shopPath()+"/"+string(e.Type)+"/"+e.Slug, lines)
	if e.Stock != nil && *e.Stock <= fewLeft {
		g.Left = *e.Stock
	}
	if runes := []rune(e.Description); len(runes) > excerptLength {
		g.Excerpt = string(runes[:excerptLength]) + "…"
	}
	return g
}

// SmallPicture returns the address of an entry's picture for lists, "" if it has none.
func (e Entry) SmallPicture() string {
	switch {
	case e.ImageURL == nil:
		return ""
	case strings.HasPrefix(*e.ImageURL, "/"): // It was uploaded.
		return *e.ImageURL + "/small"
	}
	return *e.ImageURL
}

// shopPage is the shop, or one of its goods.
type shopPage struct {
	*page
	At      string // where its form is posted to
	Contact storeLink
	IsOpen  bool
	Text    string // that titles are searched for
	Goods   []shopGood
	Others  []cartLine // chosen, on other pages
	Number  int64      // of the page, from 1
	Earlier int64      // 0 = there is none
	Later   int64
	Count   int64 // of pieces
	Sum     int64
	Skipped int
	Back    string // from one of the goods
	IsAlone bool   // It shows one of the goods.
	HasBar  bool   // the sum and the button that leads to the checkout
}

// beginShop fills in what the shop and its goods have in common.
func (s *server) beginShop(p *page, lines []cartLine) (v shopPage, err error) {
	v = shopPage{page: p, IsOpen: p.Store.Shop == ShopOpen, Contact: p.askStore()}
	v.At = p.shopAddress(p.Store.shopPath(), nil)
	p.w.Header().Set("Cache-Control", "private, no-cache") // The way back does not wait for a slow line.
	list, skipped, err := s.chosen(p, lines)
	v.Skipped = skipped
	for _, l := range list {
		v.Count += l.Quantity
		v.Sum += l.Total
	}
	v.HasBar = v.IsOpen && v.Count > 0
	return v, err
}

// show adds what is shown, and what was chosen beside it. Where nothing can be chosen and nothing was, nothing can be
// ordered.
func (v *shopPage) show(entries []Entry, lines []cartLine) {
	shown := map[string]bool{}
	for _, e := range entries {
		g := v.goodOf(e, lines)
		shown[g.Field] = true
		v.Goods = append(v.Goods, g)
		v.HasBar = v.HasBar || v.IsOpen && g.Most > 0
	}
	for _, l := range lines {
		if !shown[l.Field] {
			v.Others = append(v.Others, l)
		}
	}
}

// askStore returns the link by which somebody who has no order writes to the store.
func (p *page) askStore() storeLink {
	return p.linkToStore(p.Language.say("message.shop", "{store}", p.Store.Name), "ask.")
}

func (s *server) readShop(p *page) (any, error) {
	values, lines := p.cart()
	v, err := s.beginShop(p, lines)
	if err != nil {
		return nil, err
	}
	v.Text = fmt.Sprintf("%.100s", strings.TrimSpace(values.Get("q")))
	page, _ := strconv.ParseInt(values.Get("page"), 10, 64)
	v.Number = min(max(page, 1), 10_000)

	entries, more, err := s.db.ShopEntries(p.Context(), p.Store.ID, v.Text, mostOnShopPage, (v.Number-1)*mostOnShopPage)
	if err != nil {
		return nil, err
	}
	v.show(entries, lines)
	v.Earlier = v.Number - 1
	if more {
		v.Later = v.Number + 1
	}

	address := p.Store.ShopURL()
	if v.Number > 1 {
		address += fmt.Sprintf("?page=%d", v.Number)
	}
	isBeyond := len(entries) == 0 && v.Number > 1
	v.tell(p.Store.Name, p.Store.ShopText, address, len(lines) == 0 && v.Text == "" && !isBeyond)
	return v, nil
}

// tell says what search engines and previews of links are told about the page, and where it is if they may keep it.
// Carts and searches are in no index.
func (v shopPage) tell(title, text, address string, isIndexed bool) {
	v.Title = title
	v.Head = &publicHead{Description: v.summary(text)}
	for _, g := range v.Goods {
		v.Head.Picture = cmp.Or(v.Head.Picture, v.previewOf(g.Entry))
	}
	if v.IsOpen && isIndexed {
		v.Head.Canonical = address
	}
}

// summary shortens a text to what search engines and previews show of a page; one without a text has a sentence.
func (p *page) summary(text string) string {
	short := fmt.Sprintf("%.160s", strings.Join(strings.Fields(text), " "))
	return cmp.Or(short,
		p.Language.text("Pesan dan bayar di sini, tanpa akun.", "Order and pay here, without an account."))
}

// previewOf returns the picture of goods by an https address, or "".
func (p *page) previewOf(e Entry) string {
	address := p.Store.pictureURL(e.ImageURL)
	if address == nil || !strings.HasPrefix(*address, "https://") {
		return ""
	}
	return *address
}

// readGood reads the page of a product or bundle. Its form is that of the shop page.
func (s *server) readGood(p *page) (any, error) {
	e, err := s.db.Entry(p.Context(), p.Store.ID, Kind(p.PathValue("kind")), p.PathValue("good"))
	if err != nil {
		return nil, err
	}
	if !e.Published {
		return nil, ErrNotFound
	}

	_, lines := p.cart()
	v, err := s.beginShop(p, lines)
	if err != nil {
		return nil, err
	}
	v.show([]Entry{e}, lines)
	v.IsAlone = true
	v.Back = p.shopAddress(p.Store.shopPath(), lines)
	v.tell(e.Title, e.Description, p.Store.ShopURL()+"/"+string(e.Type)+"/"+e.Slug, len(lines) == 0)
	return v, nil
}

// changeCart takes the form of the shop page, and leads to where its button says.
func (s *server) changeCart(p *page) error {
	lines := readCart(p.PostForm)
	if slices.ContainsFunc(lines, cartLine.isWrong) {
		return &Refusal{Reason: ValidationFailed, Words: "checkout.quantity"}
	}
	if p.PostFormValue("go") != "checkout" {
		number, isPage := strings.CutPrefix(p.PostFormValue("go"), "page=")
		if !isPage {
			number = "" // It is a search.
		}
		text := strings.TrimSpace(p.PostFormValue("q"))
		p.next = p.shopAddress(p.Store.shopPath(), lines, "q", text, "page", number)
		return nil
	}
	if len(lines) == 0 {
		return &Refusal{Reason: ValidationFailed, Words: "checkout.nothing"}
	}
	p.next = p.shopAddress(p.Store.shopPath()+"/checkout", lines)
	return nil
}

// shopSettings is the owner's form of the shop page.
type shopSettings struct {
	Shop        ShopState `json:"shop" rule:"choice open|closed|off"`
	Text        string    `json:"shop_text" rule:"lines 0..500 optional"`
	Hours       int64     `json:"hold_hours" rule:"int 1..168 =3"`
	MaxQuantity int64     `json:"max_quantity" rule:"int 1..10000 =20"`
	Given       map[string]bool
}

func (st Store) shopSettings() shopSettings {
	return shopSettings{Shop: st.Shop, Text: st.ShopText, Hours: int64(st.ShopHold.Round(time.Hour).Hours()),
		MaxQuantity: st.ShopMaxQuantity}
}

// shopSettingsPage is the owner's page about the shop page.
type shopSettingsPage struct {
	*page
	Share string            // opens WhatsApp with the shop's address
	Mends map[string]string // the pages where an owner adds what is needed, by the sentence that asks for it
	Save  form
}

var mendsOpening = map[string]string{
	needsProduct: "/dashboard/catalog",
	needsMethod:  "/dashboard/payments",
	needsContact: "/dashboard/account#contact",
}

func (s *server) readShopSettings(p *page) (any, error) {
	st := p.Store
	share := "https://wa.me/?text=" + url.QueryEscape(st.Name+" "+st.ShopURL())
	return shopSettingsPage{p, share, mendsOpening, p.Form("save", p.Fields(st.shopSettings()))}, nil
}

func (s *server) saveShopSettings(p *page) error {
	var in shopSettings
	if err := p.readChanges(&in, nil); err != nil {
		return err
	}
	_, err := s.db.SetStore(p.Context(), p.Store.ID, func(st *Store) {
		fillIn(&in, st.shopSettings(), in.Given)
		st.Shop = in.Shop
		st.ShopText = in.Text
		st.ShopMaxQuantity = in.MaxQuantity
		if in.Given["hold_hours"] { // Otherwise it stays, which may be no whole number.
			st.ShopHold = time.Duration(in.Hours) * time.Hour
		}
	})
	return err
}

// posterPage is a page to print: the shop's name and the code of its address.
type posterPage struct {
	*page
	Address string // without its scheme
	Code    template.URL
}

func (s *server) readPoster(p *page) (any, error) {
	_, address, _ := strings.Cut(p.Store.ShopURL(), "://")
	return posterPage{p, address, qrInPage(p.Store.ShopURL())}, nil
}
