//go:build cgo

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// maxMoney bounds every price and amount, in rupiah. No sum or product of the API's bounded inputs can overflow
// an int64 before it is compared with maxMoney.
const maxMoney = 999_999_999_999

// Kind is what can be sold: a product, or a bundle of products at one price.
type Kind string

const (
	KindProduct Kind = "product"
	KindBundle  Kind = "bundle"
)

// Product is a product or, with Items, a bundle.
type Product struct {
	ID          string       `json:"id"`
	Type        Kind         `json:"type"`
	Slug        string       `json:"slug"`
	Title       string       `json:"title"`
	Description string       `json:"description"`
	Price       int64        `json:"price"`
	Currency    string       `json:"currency"`
	ImageURL    *string      `json:"image_url"`
	Stock       *int64       `json:"stock"`     // pieces left; nil is unlimited
	Available   bool         `json:"available"` // stock is left
	CreatedAt   Time         `json:"created_at"`
	UpdatedAt   Time         `json:"updated_at"`
	Items       []BundleItem `json:"items,omitempty"`
	Published   bool         `json:"-"`
}

// BundleItem is a product in a bundle.
type BundleItem struct {
	ProductID string `json:"product_id"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	Slug      string `json:"-"`
}

// Provider is who takes the money of a payment method: the store itself or a gateway.
type Provider string

const (
	ProviderManual   Provider = "manual" // a person checks whether the money arrived
	ProviderSandbox  Provider = "sandbox"
	ProviderMidtrans Provider = "midtrans"
	ProviderXendit   Provider = "xendit"
	ProviderNone     Provider = "none" // of an order without anything to pay
)

// providers are those that a payment method can have.
var providers = []Provider{ProviderManual, ProviderSandbox, ProviderMidtrans, ProviderXendit}

// Channel is how an order is settled.
type Channel string

const (
	ChannelManual  Channel = "manual"
	ChannelGateway Channel = "gateway"
	ChannelNone    Channel = "none" // of an order without anything to pay
)

// MethodKind is how a buyer pays by a manual method. The pay page has words for each.
type MethodKind string

const (
	MethodTransfer MethodKind = "transfer" // to one of the method's accounts at banks
	MethodCash     MethodKind = "cash"     // on delivery: nothing is paid before
	MethodQRIS     MethodKind = "qris"     // with the code in the method's picture
	MethodEWallet  MethodKind = "ewallet"  // to one of the method's accounts, which are telephone numbers
)

var methodKinds = []MethodKind{MethodTransfer, MethodCash, MethodQRIS, MethodEWallet}

// PaymentMethod is a way to pay that a store offers at its checkout.
type PaymentMethod struct {
	Code              string        `json:"code"`
	Name              string        `json:"name"`
	Provider          Provider      `json:"provider"`
	Kind              MethodKind    `json:"kind,omitempty"` // empty unless the method is manual
	SettlementChannel Channel       `json:"settlement_channel"`
	Fee               int64         `json:"fee"`
	MinAmount         *int64        `json:"min_amount"` // of the subtotal; nil is no bound
	MaxAmount         *int64        `json:"max_amount"`
	Instructions      string        `json:"instructions"`
	Accounts          []BankAccount `json:"accounts"`    // empty unless the method is manual
	UniqueCode        bool          `json:"unique_code"` // its orders get one: see newUniqueCode
	ImageURL          *string       `json:"image_url"`
	Enabled           bool          `json:"-"`
	Usable            bool          `json:"-"` // enabled, and all that its provider needs is there: see methodColumns
}

// BankAccount is an account, at a bank or an e-wallet, that buyers pay to.
type BankAccount struct {
	Bank   string `json:"bank"`
	Number string `json:"number"` // as the owner writes it
	Holder string `json:"holder,omitempty"`
}

// Digits is the account's number as banks take it, without the marks between its groups.
func (a BankAccount) Digits() string { return accountMarks.Replace(a.Number) }

var accountMarks = strings.NewReplacer(" ", "", "-", "", ".", "")

// LacksAccount reports whether buyers are not told where to pay to, unless the instructions say it.
func (m PaymentMethod) LacksAccount() bool {
	paysAccount := m.Kind == MethodTransfer || m.Kind == MethodEWallet
	return paysAccount && len(m.Accounts) == 0 && m.Instructions == ""
}

// takes reports whether a method may pay an order of this subtotal.
func (m PaymentMethod) takes(subtotal int64) bool {
	if m.MinAmount != nil && subtotal < *m.MinAmount {
		return false
	}
	return m.MaxAmount == nil || subtotal <= *m.MaxAmount
}

// Catalog is the content of a catalog file. A field that an entry leaves out (see Has) keeps its value.
type Catalog struct {
	Products       []CatalogEntry
	Bundles        []CatalogEntry
	PaymentMethods []MethodEntry
}

type CatalogEntry struct {
	Product
	Has map[string]bool // the fields that were given
}

type MethodEntry struct {
	PaymentMethod
	Has map[string]bool // the fields that were given
}

// counts is how many entries of each kind a catalog has.
func (c Catalog) counts() object {
	return object{
		"products":        len(c.Products),
		"bundles":         len(c.Bundles),
		"payment_methods": len(c.PaymentMethods),
	}
}

// ImportCatalog adds or replaces entries by slug or code: all of them or none.
func (db *DB) ImportCatalog(ctx context.Context, storeID string, c Catalog) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := queryOne(tx, tx.db.scanProfile, sqlStore, storeID); err != nil {
			return err
		}

		for _, e := range c.Products {
			if err := tx.putProduct(storeID, e); err != nil {
				return err
			}
		}
		for i, e := range c.Bundles {
			if err := tx.putBundle(storeID, e, fmt.Sprintf("bundles[%d]", i)); err != nil {
				return err
			}
		}
		for _, e := range c.PaymentMethods {
			if err := tx.putMethod(storeID, e); err != nil {
				return err
			}
		}
		return nil
	})
}

func (tx *Tx) putProduct(storeID string, e CatalogEntry) error {
	_, err := tx.exec(`
		INSERT INTO products (id, store_id, slug, title, title_folded, description, price, stock,
		                      image_url, published, created_at, updated_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)
		ON CONFLICT (store_id, slug) DO UPDATE
		SET title = ?4, title_folded = ?5, price = ?7, updated_at = ?11,
		    description = iif(?12, ?6, description),
		    stock       = iif(?13, ?8, stock),
		    image_url   = iif(?14, ?9, image_url),
		    published   = iif(?15, ?10, published)`,
		tx.newID(), storeID, e.Slug, e.Title, strings.ToLower(e.Title), e.Description, e.Price, e.Stock,
		e.ImageURL, e.Published, tx.now,
		e.Has["description"], e.Has["stock"], e.Has["image_url"], e.Has["published"])
	return err
}

// putBundle adds or replaces a bundle and its items. path names its entry in errors.
func (tx *Tx) putBundle(storeID string, e CatalogEntry, path string) error {
	id, err := queryOne(tx, scanValue[string], `
		INSERT INTO bundles (id, store_id, slug, title, title_folded, description, price,
		                     image_url, published, created_at, updated_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)
		ON CONFLICT (store_id, slug) DO UPDATE
		SET title = ?4, title_folded = ?5, price = ?7, updated_at = ?10,
		    description = iif(?11, ?6, description),
		    image_url   = iif(?12, ?8, image_url),
		    published   = iif(?13, ?9, published)
		RETURNING id`,
		tx.newID(), storeID, e.Slug, e.Title, strings.ToLower(e.Title), e.Description, e.Price,
		e.ImageURL, e.Published, tx.now,
		e.Has["description"], e.Has["image_url"], e.Has["published"])
	if err != nil {
		return err
	}

	if _, err := tx.exec("DELETE FROM bundle_items WHERE bundle_id = ?", id); err != nil {
		return err
	}
	for i, item := range e.Items {
		inserted, err := tx.exec(`
			INSERT INTO bundle_items (bundle_id, position, product_id, quantity)
			SELECT ?, ?, id, ? FROM products WHERE store_id = ? AND slug = ?`,
			id, i, item.Quantity, storeID, item.Slug)
		if err != nil {
			return err
		}
		if inserted == 0 {
			unknown := detailf(fmt.Sprintf("%s.items[%d].slug", path, i),
				"names no product of the store: %q", item.Slug)
			unknown.Fault = Fault{Code: FaultUnknownProduct, Text: item.Slug}
			return &APIError{codeValidationFailed, "The catalog has a wrong entry.", []Detail{unknown}}
		}
	}
	return nil
}

func (tx *Tx) putMethod(storeID string, e MethodEntry) error {
	_, err := tx.exec(`
		INSERT INTO payment_methods (store_id, code, name, provider, fee, instructions,
		                             min_amount, max_amount, enabled, kind, accounts, image_url, unique_code)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
		ON CONFLICT (store_id, code) DO UPDATE
		SET name = ?3, provider = ?4,
		    fee          = iif(?14, ?5, fee),
		    instructions = iif(?15, ?6, instructions),
		    min_amount   = iif(?16, ?7, min_amount),
		    max_amount   = iif(?17, ?8, max_amount),
		    enabled      = iif(?18, ?9, enabled),
		    kind         = iif(?19, ?10, kind),
		    accounts     = iif(?20, ?11, accounts),
		    image_url    = iif(?21, ?12, image_url),
		    unique_code  = iif(?22, ?13, unique_code)`,
		storeID, e.Code, e.Name, e.Provider, e.Fee, e.Instructions,
		e.MinAmount, e.MaxAmount, e.Enabled, e.Kind, string(mustJSON(e.Accounts)), e.ImageURL, e.UniqueCode,
		e.Has["fee"], e.Has["instructions"], e.Has["min_amount"], e.Has["max_amount"], e.Has["enabled"],
		e.Has["kind"], e.Has["accounts"], e.Has["image_url"], e.Has["unique_code"])
	return err
}

// A bundle's stock is how many of it can be sold with the stock of its products; NULL if all are unlimited.
const (
	productColumns = `
		p.id, 'product', p.slug, p.title, p.description, p.price, 'IDR', p.image_url, p.created_at,
		p.updated_at, p.published, p.stock, NULL`
	bundleStock = `(
		SELECT min(c.stock / i.quantity)
		FROM   bundle_items i
		JOIN   products c ON c.id = i.product_id
		WHERE  i.bundle_id = p.id AND c.stock IS NOT NULL)`
	bundleColumns = `
		p.id, 'bundle', p.slug, p.title, p.description, p.price, 'IDR', p.image_url, p.created_at,
		p.updated_at, p.published, ` + bundleStock + `, (
			SELECT json_group_array(json_object('product_id', c.id, 'title', c.title, 'quantity', i.quantity))
			FROM   (SELECT * FROM bundle_items WHERE bundle_id = p.id ORDER BY position) i
			JOIN   products c ON c.id = i.product_id)`
)

func scanProduct(r row) (p Product, err error) {
	err = r.Scan(
		&p.ID, &p.Type, &p.Slug, &p.Title, &p.Description, &p.Price, &p.Currency, &p.ImageURL, &p.CreatedAt,
		&p.UpdatedAt, &p.Published, &p.Stock, fromJSON{&p.Items})
	p.Available = p.Stock == nil || *p.Stock != 0
	return p, err
}

// ProductFilter selects published products and bundles.
type ProductFilter struct {
	Products bool   // include products
	Bundles  bool   // include bundles
	Text     string // a part of the title; empty does not filter
	Offset   int
	Limit    int
}

// ProductList is a page of products, then bundles, each sorted by title and id.
type ProductList struct {
	Products []Product `json:"products"`
	Bundles  []Product `json:"bundles"`
	HasMore  bool      `json:"has_more"`
}

// No row is read for an OFFSET, which skips entries in the index alone.
const (
	wherePublished   = " WHERE p.store_id = ? AND p.published = 1"
	byTitle          = " ORDER BY p.title, p.id"
	pageByTitle      = byTitle + " LIMIT +? OFFSET ?"
	fromProducts     = " FROM products p INDEXED BY products_by_title" + wherePublished
	fromBundles      = " FROM bundles p INDEXED BY bundles_by_title" + wherePublished
	sqlProducts      = "SELECT " + productColumns + fromProducts + pageByTitle
	sqlBundles       = "SELECT " + bundleColumns + fromBundles + pageByTitle
	sqlProductsCount = "SELECT count(*)" + fromProducts
)

// Products lists what a store has published. Limit and offset count products and bundles as one list.
func (db *DB) Products(storeID string, f ProductFilter) (ProductList, error) {
	if f.Text != "" {
		return db.searchProducts(storeID, f)
	}
	list := ProductList{Products: []Product{}, Bundles: []Product{}}
	offset, limit := f.Offset, f.Limit

	if f.Products {
		found, err := queryAll(db.reader, scanProduct, sqlProducts, storeID, limit+1, offset)
		if err != nil {
			return list, err
		}
		list.HasMore = len(found) > limit
		list.Products = found[:min(limit, len(found))]
	}
	if list.HasMore || !f.Bundles {
		return list, nil
	}

	// The bundles begin where the products end: on this page, or before it.
	if len(list.Products) > 0 {
		offset = 0
	} else if f.Products && offset > 0 {
		before, err := queryOne(db.reader, scanValue[int], sqlProductsCount, storeID)
		if err != nil {
			return list, err
		}
		offset = max(0, offset-before)
	}
	limit -= len(list.Products)

	found, err := queryAll(db.reader, scanProduct, sqlBundles, storeID, limit+1, offset)
	if err != nil {
		return list, err
	}
	list.HasMore = len(found) > limit
	list.Bundles = found[:min(limit, len(found))]
	return list, nil
}

// A method is usable if it is enabled and its store can use its provider: the sandbox in test mode, a gateway with an
// account. Xendit also needs a public URL with https, because it takes no other address for the buyer to return to.
const (
	// What an order takes from its method.
	methodTerms = `
		m.code, m.provider, iif(m.provider = 'manual', 'manual', 'gateway'), m.fee,
		m.min_amount, m.max_amount, m.provider = 'manual' AND m.unique_code,
		m.enabled = 1 AND CASE m.provider
			WHEN 'manual'  THEN 1
			WHEN 'sandbox' THEN (SELECT s.test_mode FROM stores s WHERE s.id = m.store_id)
			ELSE EXISTS (
				SELECT 1 FROM gateways g
				WHERE  g.store_id = m.store_id AND g.provider = m.provider AND g.replaced_at IS NULL)
		END AND (m.provider <> 'xendit' OR (
			SELECT public_url LIKE 'https://%' FROM settings WHERE only = 1))`
	methodColumns = methodTerms + `,
		m.name, iif(m.provider = 'manual', m.kind, ''), m.instructions,
		iif(m.provider = 'manual', m.accounts, '[]'), m.image_url, m.enabled`
	sqlMethods     = "SELECT " + methodColumns + " FROM payment_methods m WHERE m.store_id = ? ORDER BY m.code"
	sqlMethod      = "SELECT " + methodColumns + " FROM payment_methods m WHERE m.store_id = ? AND m.code = ?"
	sqlMethodTerms = "SELECT " + methodTerms + " FROM payment_methods m WHERE m.store_id = ? AND m.code = ?"
)

func scanMethod(r row) (m PaymentMethod, err error) {
	err = m.scan(r, &m.Name, &m.Kind, &m.Instructions, fromJSON{&m.Accounts}, &m.ImageURL, &m.Enabled)
	return m, err
}

func scanMethodTerms(r row) (m PaymentMethod, err error) {
	err = m.scan(r)
	return m, err
}

// scan scans methodTerms, and the columns after them into more.
func (m *PaymentMethod) scan(r row, more ...any) error {
	terms := []any{
		&m.Code, &m.Provider, &m.SettlementChannel, &m.Fee, &m.MinAmount, &m.MaxAmount, &m.UniqueCode, &m.Usable,
	}
	return r.Scan(append(terms, more...)...)
}

// PaymentMethods lists a store's methods by code, usable or not.
func (db *DB) PaymentMethods(storeID string) ([]PaymentMethod, error) {
	return queryAll(db.reader, scanMethod, sqlMethods, storeID)
}

// PaymentMethod reads one method of a store, usable or not.
func (db *DB) PaymentMethod(storeID, code string) (PaymentMethod, error) {
	return queryOne(db.reader, scanMethod, sqlMethod, storeID, code)
}

// component is a product that an order consists of, with its bundles taken apart.
type component struct {
	ProductID string `json:"product_id"`
	Quantity  int64  `json:"quantity"`
	Reserved  bool   `json:"reserved"`           // taken out of a limited stock, and released if the order fails or expires
	Released  bool   `json:"released,omitempty"` // while the order waited for its owner: see releaseUndecided
	Unlimited bool   `json:"-"`                  // the product's stock is unlimited
	items     []int  // the positions of the order's items that need it
}

// productsIn returns the components of an order that has no bundles, sorted by id: the products of its items. With a
// bundle it returns nil.
func productsIn(items []Item) []component {
	products := make([]component, 0, len(items))
	for _, item := range items {
		if item.Type == KindBundle {
			return nil
		}
		products = append(products, component{ProductID: item.ProductID, Quantity: item.Quantity})
	}
	slices.SortFunc(products, byProduct)
	return products
}

func byProduct(a, b component) int { return strings.Compare(a.ProductID, b.ProductID) }

// storedComponents is the JSON that an order's row keeps of its components. It is [] if they are just the products of its
// items and none is reserved or released: readOrderRow derives them again. Orders are never deleted, and a component takes
// 80 bytes.
func storedComponents(items []Item, components []component) string {
	marked := func(c component) bool { return c.Reserved || c.Released }
	same := func(a, b component) bool { return a.ProductID == b.ProductID && a.Quantity == b.Quantity }
	if slices.ContainsFunc(components, marked) || !slices.EqualFunc(components, productsIn(items), same) {
		return string(mustJSON(components))
	}
	return "[]"
}

// saleRow is a published product or bundle as the line of an order, without its quantity, and one of the products
// that a piece of it consists of.
type saleRow struct {
	item      Item
	component component
}

// A + keeps SQLite from using an index for a condition: by the index of what is published, it would walk over the whole
// catalog instead of looking up the id.
const (
	sqlProductForSale = `
		SELECT title, price, id, 1, stock IS NULL
		FROM   products
		WHERE  id = ? AND +store_id = ? AND +published = 1`
	sqlBundleForSale = `
		SELECT b.title, b.price, c.id, i.quantity, c.stock IS NULL
		FROM   bundles b
		JOIN   bundle_items i ON i.bundle_id = b.id
		JOIN   products c ON c.id = i.product_id
		WHERE  b.id = ? AND +b.store_id = ? AND +b.published = 1`
)

func scanSaleRow(r row) (s saleRow, err error) {
	c := &s.component
	err = r.Scan(&s.item.Title, &s.item.UnitPrice, &c.ProductID, &c.Quantity, &c.Unlimited)
	return s, err
}

// forSale reads a published product or bundle: a row for each product that it consists of, and none if it is not for
// sale.
func (tx *Tx) forSale(storeID string, kind Kind, id string) ([]saleRow, error) {
	query := sqlProductForSale
	if kind == KindBundle {
		query = sqlBundleForSale
	}
	rows, err := queryAll(tx, scanSaleRow, query, id, storeID)
	if err != nil {
		return nil, err
	}

	for i := range rows {
		item := &rows[i].item
		item.Type = kind
		if kind == KindBundle {
			item.BundleID = id
		} else {
			item.ProductID = id
		}
	}
	return rows, nil
}

// reserve takes components out of their products' stock and returns those of which there is not enough. Nothing is
// reserved of a product whose stock is unlimited: there is always enough. (Triggers in schema.sql raise the
// catalog's version.)
func (tx *Tx) reserve(components []component) (short []component, err error) {
	for i, c := range components {
		if c.Unlimited {
			continue
		}

		n, err := tx.exec(`
			UPDATE products
			SET    stock = stock - ?1
			WHERE  id = ?2 AND stock >= ?1`, c.Quantity, c.ProductID)
		if err != nil {
			return nil, err
		}
		components[i].Reserved = n == 1
		if n == 0 {
			short = append(short, c)
		}
	}
	return short, nil
}

// release puts what reserve took back into the products' stock.
func (tx *Tx) release(components []component) error {
	for i, c := range components {
		if !c.Reserved {
			continue
		}

		_, err := tx.exec("UPDATE products SET stock = stock + ? WHERE id = ?", c.Quantity, c.ProductID)
		if err != nil {
			return err
		}
		components[i].Reserved = false
	}
	return nil
}

// findUnlimited marks those components of an earlier order whose stock is unlimited now.
func (tx *Tx) findUnlimited(components []component) error {
	for i, c := range components {
		unlimited, err := queryOne(tx, scanValue[bool],
			"SELECT stock IS NULL FROM products WHERE id = ?", c.ProductID)
		if err != nil {
			return err
		}
		components[i].Unlimited = unlimited
	}
	return nil
}

const (
	whereAfterSlug     = " p WHERE p.store_id = ? AND p.slug > ? ORDER BY p.slug LIMIT +?"
	whereSlug          = " p WHERE p.store_id = ? AND p.slug = ?"
	sqlCatalogProducts = "SELECT " + productColumns + " FROM products" + whereAfterSlug
	sqlCatalogBundles  = "SELECT " + bundleColumns + " FROM bundles" + whereAfterSlug
	sqlCatalogProduct  = "SELECT " + productColumns + " FROM products" + whereSlug
	sqlCatalogBundle   = "SELECT " + bundleColumns + " FROM bundles" + whereSlug
)

// Catalog lists a store's products or bundles, published or not, sorted by slug: those after a slug, with text in
// their title. An empty text is in every title.
func (db *DB) Catalog(storeID string, kind Kind, after, text string, limit int) ([]Product, error) {
	if text != "" {
		return db.searchCatalog(storeID, kind, after, text, limit)
	}

	query := sqlCatalogProducts
	if kind == KindBundle {
		query = sqlCatalogBundles
	}
	return queryAll(db.reader, scanProduct, query, storeID, after, limit)
}

// CatalogEntry reads one product or bundle of a store, published or not.
func (db *DB) CatalogEntry(storeID string, kind Kind, slug string) (Product, error) {
	if kind == KindProduct {
		return queryOne(db.reader, scanProduct, sqlCatalogProduct, storeID, slug)
	}

	p, err := queryOne(db.reader, scanProduct, sqlCatalogBundle, storeID, slug)
	if err != nil {
		return p, err
	}
	p.Items, err = queryAll(db.reader, scanBundleItem, sqlBundleItems, p.ID)
	return p, err
}

const (
	sqlBundleItems = `
		SELECT c.id, c.title, i.quantity, c.slug
		FROM   bundle_items i
		CROSS JOIN products c ON c.id = i.product_id
		WHERE  i.bundle_id = ?
		ORDER BY i.position`
	sqlBundleChoices = "SELECT id, title, 1, slug FROM products WHERE store_id = ? ORDER BY slug LIMIT 1000"
)

// BundleChoices lists the products that a store's bundles can hold, at most 1,000.
func (db *DB) BundleChoices(storeID string) ([]BundleItem, error) {
	return queryAll(db.reader, scanBundleItem, sqlBundleChoices, storeID)
}

func scanBundleItem(r row) (i BundleItem, err error) {
	err = r.Scan(&i.ProductID, &i.Title, &i.Quantity, &i.Slug)
	return i, err
}
