package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file is about stores and what each of them sells: products and bundles with their stock, and the
// methods by which its buyers pay. A catalog file, a form and PUT /v1/catalog share one import, which checks
// every entry, and writes all of them or none. An update leaves alone what it does not mention. A method that
// nobody can pay by is not offered.

// maxMoney bounds every price and amount, in rupiah. No sum or product of the API's bounded inputs can
// overflow an int64 before it is compared with maxMoney.
const maxMoney = 999_999_999_999

// Plan is what a store pays for. Only PlanGrowth and PlanScale include the API.
type Plan string

const (
	PlanFree   Plan = "free"
	PlanGrowth Plan = "growth"
	PlanScale  Plan = "scale"
)

// Store is the shop: the tenant that every other row belongs to.
type Store struct {
	ID         string        `json:"store_id"`
	Name       string        `json:"name"`
	Slug       string        `json:"slug"`
	Domain     string        `json:"domain"` // its own host, without scheme or port; empty if it has none
	Plan       Plan          `json:"plan"`
	Expiry     time.Duration `json:"-"` // how long an order waits for its payment
	OwnerEmail string        `json:"owner_email"`
	Contact    string        `json:"contact"`  // for buyers: WhatsApp or an e-mail address; empty if there is none
	Language   string        `json:"language"` // of what its owner's phone shows: id or en
	TestMode   bool          `json:"test"`     // only then are the sandbox and gateways with a sandbox key usable
	CreatedAt  Time          `json:"created_at"`
	URL        string        `json:"url"` // where its pay pages are, without a trailing slash
}

// storeColumns are read from stores s, settings g, in the order of the fields of Store.
const storeColumns = `
	s.id, s.name, s.slug, coalesce(s.domain, ''), s.plan, s.expiry_ms * 1000000, s.owner_email, s.contact,
	s.language, s.test_mode, s.created_at,
	g.scheme || coalesce(s.domain, iif(g.subdomains, s.slug || '.', '') || g.host) || g.port`

const sqlStores = "SELECT " + storeColumns + " FROM stores s, settings g "

// payPage returns the address of an order's hosted pay page.
func (st Store) payPage(orderID string) string { return st.URL + "/pay/" + orderID }

// readStore reads one store.
func readStore(ctx context.Context, q querier, id string) (Store, error) {
	return one[Store](ctx, q, sqlStores+"WHERE s.id = ?", id)
}

// Stores lists all stores, the oldest first.
func (db *DB) Stores(ctx context.Context) ([]Store, error) {
	return all[Store](ctx, db, sqlStores+"ORDER BY s.id")
}

// StoreAt returns the store that a host belongs to, by its domain or its subdomain. The public host belongs
// to no store.
func (db *DB) StoreAt(ctx context.Context, host string) (Store, error) {
	host, _, _ = strings.Cut(host, ":")
	host = strings.TrimSuffix(host, ".")
	const where = "WHERE s.domain = ?1 AND g.host <> ?1 OR g.subdomains AND s.slug || '.' || g.host = ?1"
	return one[Store](ctx, db, sqlStores+where, strings.ToLower(host))
}

// StoreOf returns the store that a store, key, endpoint, order or delivery belongs to.
func (db *DB) StoreOf(ctx context.Context, kind, id string) (Store, error) {
	storeID := map[string]string{
		"store":    "?",
		"key":      "(SELECT store_id FROM api_keys WHERE id = ?)",
		"endpoint": "(SELECT store_id FROM endpoints WHERE id = ?)",
		"order":    "(SELECT store_id FROM orders WHERE id = ?)",
		"delivery": `(
			SELECT e.store_id
			FROM   deliveries d JOIN endpoints e ON e.id = d.endpoint_id
			WHERE  d.id = ?)`,
	}[kind]
	return one[Store](ctx, db, sqlStores+"WHERE s.id = "+storeID, id)
}

// AddStore creates a store. Its id, address and time of creation are set here.
func (db *DB) AddStore(ctx context.Context, st Store, hash PasswordHash) (Store, error) {
	err := db.write(ctx, func(tx *Tx) error {
		st.ID = tx.newID()
		st.CreatedAt = tx.now
		tx.exec(`
			INSERT INTO stores (id, name, slug, plan, expiry_ms, owner_email,
			                    password_salt, password_hash, created_at)
			VALUES (?1, '', ?1, 'free', 600000, ?1, ?2, ?3, ?4)`,
			st.ID, hash.Salt, hash.Hash, st.CreatedAt)
		return tx.putStore(&st)
	})
	return st, err
}

// SetStore applies edit to a store and returns the result.
func (db *DB) SetStore(ctx context.Context, id string, edit func(*Store)) (st Store, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		st, err = readStore(tx, tx, id)
		if err == nil {
			edit(&st)
			err = tx.putStore(&st)
		}
		return err
	})
	return st, err
}

// putStore writes a store's row and reads its address again. It refuses a domain, e-mail address or slug that
// another store has.
func (tx *Tx) putStore(st *Store) (err error) {
	refusal := refuse(ValidationFailed)
	refusal.Fields, _ = all[FieldError](tx, tx, `
		SELECT 'domain', ?1, json_array(domain) FROM stores WHERE domain = ?3 AND id <> ?2
		UNION ALL
		SELECT 'owner_email', ?1, json_array(owner_email) FROM stores WHERE owner_email = ?4 AND id <> ?2
		UNION ALL
		SELECT 'slug', ?1, json_array(slug) FROM stores WHERE slug = ?5 AND id <> ?2`,
		"belongs to another store: %q", st.ID, st.Domain, st.OwnerEmail, st.Slug)
	if err := refusal.orNil(); err != nil {
		return err
	}

	tx.exec(`
		UPDATE stores
		SET    name = ?, slug = ?, domain = nullif(?, ''), plan = ?, expiry_ms = ?, owner_email = ?,
		       contact = ?, language = ?, test_mode = ?
		WHERE  id = ?`,
		st.Name, st.Slug, st.Domain, st.Plan, st.Expiry.Milliseconds(), st.OwnerEmail,
		st.Contact, cmp.Or(st.Language, "id"), st.TestMode, st.ID)
	*st, err = readStore(tx, tx, st.ID)
	return err
}

// Kind is what can be sold: a product, or a bundle of products at one price.
type Kind string

const (
	Product Kind = "product"
	Bundle  Kind = "bundle"
)

// Entry is a product or bundle as the API shows it and, with its rules, as a catalog file or a form gives it.
type Entry struct {
	ID          string          `json:"id"`
	Type        Kind            `json:"type"`
	Slug        string          `json:"slug" rule:"slug unique"`
	Title       string          `json:"title" rule:"text 1..200"`
	Description string          `json:"description" rule:"lines 0..10000 optional"`
	Price       int64           `json:"price" rule:"money"`
	Currency    string          `json:"currency"`
	ImageURL    *string         `json:"image_url" rule:"url optional"`
	CreatedAt   Time            `json:"created_at"`
	UpdatedAt   Time            `json:"updated_at"`
	Published   bool            `json:"-" rule:"bool optional"`
	Stock       *int64          `json:"stock" rule:"money optional"` // pieces left; nil is unlimited
	Items       []BundleItem    `json:"items,omitempty" rule:"list 1..50 optional"`
	Available   bool            `json:"available"` // stock is left
	Given       map[string]bool `json:"-"`         // the fields that an input has; what it leaves out stays as it is
	StockWas    string          `json:"-"`         // as a form showed it, a space, and a text that no other form has
}

// BundleItem is a product in a bundle.
type BundleItem struct {
	ProductID string `json:"product_id"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity" rule:"int 1..10000"`
	Slug      string `json:"slug,omitempty" rule:"slug unique"` // only for its owner
}

// Provider is who takes the money of a payment method: the store itself or a gateway.
type Provider string

const (
	Manual     Provider = "manual" // a person checks whether the money arrived
	Sandbox    Provider = "sandbox"
	Midtrans   Provider = "midtrans"
	Xendit     Provider = "xendit"
	NoProvider Provider = "none" // for an order with nothing to pay
)

// MethodKind is how a buyer pays by a manual method. The pay page has words for each.
type MethodKind string

const (
	Transfer MethodKind = "transfer" // to one of the method's accounts at banks
	Cash     MethodKind = "cash"     // on delivery: nothing is paid in advance
	QRIS     MethodKind = "qris"     // with the code in the method's picture
	EWallet  MethodKind = "ewallet"  // to one of the method's accounts, which are telephone numbers
)

// BankAccount is an account, at a bank or an e-wallet, that buyers pay to.
type BankAccount struct {
	Bank   string `json:"bank" rule:"text 1..60"`
	Number string `json:"number" rule:"account"` // as the owner writes it
	Holder string `json:"holder,omitempty" rule:"text 1..100 optional"`
}

// Method is a way to pay that a store offers, as the API shows it and, with its rules, as a catalog file or a
// form gives it.
type Method struct {
	Code         string          `json:"code" rule:"code unique"`
	Name         string          `json:"name" rule:"text 1..100"`
	Provider     Provider        `json:"provider" rule:"choice manual|sandbox|midtrans|xendit"`
	Kind         MethodKind      `json:"kind,omitempty" rule:"choice transfer|cash|qris|ewallet optional"`
	Fee          int64           `json:"fee" rule:"money optional"`
	UniqueCode   bool            `json:"unique_code" rule:"bool optional"`
	MinAmount    *int64          `json:"min_amount" rule:"money optional"` // of the subtotal; nil is no bound
	MaxAmount    *int64          `json:"max_amount" rule:"money optional"`
	Instructions string          `json:"instructions" rule:"lines 0..10000 optional"`
	Accounts     []BankAccount   `json:"accounts" rule:"list 0..10 optional"`
	ImageURL     *string         `json:"image_url" rule:"https optional"`
	Enabled      bool            `json:"-" rule:"bool optional"`
	Test         bool            `json:"-"` // its orders are test orders: no real money pays them
	HasKey       bool            `json:"-"` // its gateway has a key in use, or it needs none
	Channel      string          `json:"settlement_channel"`
	Given        map[string]bool `json:"-"` // the fields that an input has; what it leaves out stays as it is
}

// Digits returns the account's number as banks take it, without the marks between its groups.
func (a BankAccount) Digits() string {
	return strings.NewReplacer(" ", "", "-", "", ".", "").Replace(a.Number)
}

// usable reports whether buyers may pay an order of this subtotal with a method; -1 means any subtotal.
func (m Method) usable(st Store, subtotal int64) bool {
	below := m.MinAmount != nil && subtotal < *m.MinAmount
	above := m.MaxAmount != nil && subtotal > *m.MaxAmount
	return m.lacks(st) == "" && (subtotal < 0 || !below && !above)
}

// lacks says why the store's buyers are not offered a method: off, account, picture, key, test_mode or https.
// It is empty if they are.
func (m Method) lacks(st Store) string {
	needsAccount := m.Kind == Transfer || m.Kind == EWallet // Only manual methods have a kind.
	switch {
	case !m.Enabled:
		return "off"
	case needsAccount && len(m.Accounts) == 0 && m.Instructions == "":
		return "account"
	case m.Kind == QRIS && m.ImageURL == nil:
		return "picture"
	case !m.HasKey:
		return "key"
	case m.Test && !st.TestMode:
		return "test_mode"
	case m.Provider == Xendit && !strings.HasPrefix(st.URL, "https://"):
		// Xendit takes no other address to return to.
		return "https"
	}
	return ""
}

// sqlMethods reads a store's methods, or the one with a code. Only manual ones have a kind and, unless that
// is cash, a unique code and accounts.
const sqlMethods = `
	SELECT m.code, m.name, m.provider, iif(m.provider = 'manual', m.kind, ''), m.fee,
	       m.provider = 'manual' AND m.kind <> 'cash' AND m.unique_code, m.min_amount, m.max_amount, m.instructions,
	       iif(m.provider = 'manual' AND m.kind <> 'cash', m.accounts, '[]'), m.image_url, m.enabled,
	       m.provider = 'sandbox' OR coalesce(k.mode, '') = 'sandbox',
	       m.provider IN ('manual', 'sandbox') OR k.id IS NOT NULL,
	       iif(m.provider = 'manual', 'manual', 'gateway')
	FROM   payment_methods m
	LEFT JOIN gateway_keys k ON k.store_id = m.store_id AND k.provider = m.provider AND k.replaced_at = 0
	WHERE  m.store_id = ?1 AND m.code = coalesce(?2, m.code)
	ORDER BY m.code`

// Methods lists a store's payment methods by code, usable or not.
func (db *DB) Methods(ctx context.Context, storeID string) ([]Method, error) {
	return all[Method](ctx, db, sqlMethods, storeID, nil)
}

// UsableMethods lists what a store's buyers may pay an order of this subtotal with; -1 means any subtotal.
func UsableMethods(ctx context.Context, q querier, st Store, subtotal int64) ([]Method, error) {
	methods, err := all[Method](ctx, q, sqlMethods, st.ID, nil)
	return slices.DeleteFunc(methods, func(m Method) bool { return !m.usable(st, subtotal) }), err
}

// MethodOf reads one of a store's payment methods, usable or not.
func MethodOf(ctx context.Context, q querier, storeID, code string) (Method, error) {
	return one[Method](ctx, q, sqlMethods, storeID, code)
}

// EntryFilter selects products, then bundles, each sorted by title and id.
type EntryFilter struct {
	Type   Kind   `json:"type" rule:"choice product|bundle optional"`
	Text   string `json:"q" rule:"text 1..100 optional"` // a part of the title, in any case
	Offset int64  `json:"offset" rule:"int 0..1000000000 optional"`
	Limit  int64  `json:"limit" rule:"int 1..50 =20"`
	Drafts bool   // also those that are not published
}

// sqlEntries reads the entries of the store ?1, with drafts if ?2 is set; only then do items have their
// slugs. A bundle's stock is how many of it can be sold with the stock of its products, NULL if all of that
// is unlimited.
const sqlEntries = `
	SELECT p.id, p.type, p.slug, p.title, p.description, p.price, 'IDR', p.image_url, p.created_at, p.updated_at,
	       p.published,
	       coalesce(p.stock, (
	           SELECT min(c.stock / i.quantity)
	           FROM   bundle_items i JOIN products c ON c.id = i.product_id
	           WHERE  i.bundle_id = p.id)),
	       iif(p.type = 'product', '[]', (
	           SELECT json_group_array(
	                      json_object('product_id', c.id, 'title', c.title, 'quantity', i.quantity,
	                                  'slug', iif(?2, c.slug, ''))
	                      ORDER BY i.position)
	           FROM   bundle_items i JOIN products c ON c.id = i.product_id
	           WHERE  i.bundle_id = p.id))
	FROM   products p
	WHERE  p.store_id = ?1 AND (p.published OR ?2)`

// Entries lists a page of a store's products and bundles, and reports whether there are more.
func (db *DB) Entries(
	ctx context.Context, storeID string, f EntryFilter,
) (list []Entry, more bool, err error) {
	list, more, err = some[Entry](ctx, db, f.Limit, f.Offset, sqlEntries+`
		AND (?3 = '' OR p.type = ?3) AND instr(p.title_folded, ?4) > 0
		ORDER BY p.type DESC, p.title, p.id
		LIMIT +? OFFSET ?`,
		storeID, f.Drafts, f.Type, strings.ToLower(f.Text))
	for i, e := range list {
		list[i].Available = e.Stock == nil || *e.Stock > 0
	}
	return list, more, err
}

// Entry reads one product or bundle of a store, published or not.
func (db *DB) Entry(ctx context.Context, storeID string, kind Kind, slug string) (Entry, error) {
	return one[Entry](ctx, db,
		sqlEntries+" AND p.type = ?3 AND p.slug = ?4", storeID, true, kind, slug)
}

// Catalog is the content of a catalog file.
type Catalog struct {
	Products       []Entry  `json:"products" rule:"list 0..100000 optional without=items"`
	Bundles        []Entry  `json:"bundles" rule:"list 0..100000 optional without=stock"`
	PaymentMethods []Method `json:"payment_methods" rule:"list 0..100000 optional"`
}

// mostMethods is how many payment methods a store may have: lists of them are not paged.
const mostMethods = 100

// ImportCatalog adds or changes entries by slug or code: all of them or none. It returns how many of each
// kind there were.
func (db *DB) ImportCatalog(ctx context.Context, storeID string, c Catalog) (map[string]int, error) {
	counts := map[string]int{
		"products":        len(c.Products),
		"bundles":         len(c.Bundles),
		"payment_methods": len(c.PaymentMethods),
	}

	err := db.enqueue(ctx, db.large, func(tx *Tx) error {
		refusal := refuse(ValidationFailed)
		for _, e := range c.Products {
			tx.putEntry(storeID, Product, e)
		}

		for i, e := range c.Bundles {
			id := tx.putEntry(storeID, Bundle, e)
			tx.putItems(storeID, id, e.Items, fmt.Sprintf("bundles[%d].items", i), refusal)
		}

		for i, m := range c.PaymentMethods {
			if tx.putMethod(storeID, m) == 0 {
				refusal.add(fmt.Sprintf("payment_methods[%d].code", i),
					"is taken: a method keeps its provider and kind, so another one needs a code of its own")
			}
		}

		if n, _ := one[int](tx, tx, "SELECT count(*) FROM payment_methods WHERE store_id = ?", storeID); n > mostMethods {
			refusal.add("payment_methods", "would be %d in the store, and at most %d are allowed", n, mostMethods)
		}
		return refusal.orNil()
	})
	return counts, err
}

// putEntry adds an entry, or sets the fields that its input has, and returns its id.
func (tx *Tx) putEntry(storeID string, kind Kind, e Entry) (id string) {
	id, _ = one[string](tx, tx, `
		INSERT INTO products (id, store_id, type, slug, title, title_folded, description, price, stock,
		                      image_url, published, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, iif(?12 ->> 'published', ?11, 1), ?13, ?13)
		ON CONFLICT (store_id, type, slug) DO UPDATE
		SET    title = excluded.title, title_folded = excluded.title_folded, price = excluded.price,
		       description = iif(?12 ->> 'description', excluded.description, description),
		       stock       = CASE
		           WHEN ?12 ->> 'stock' IS NOT 1 THEN stock
		           WHEN stock_form = ?14 THEN stock -- The form is sent a second time.
		           WHEN ?14 LIKE coalesce(excluded.stock, '') || ' %' THEN stock -- Its field was not changed.
		           ELSE max(0, excluded.stock + coalesce(stock - nullif(substr(?14, 1, instr(?14, ' ') - 1), ''), 0))
		       END,
		       stock_form  = coalesce(nullif(?14, ''), stock_form),
		       image_url   = iif(?12 ->> 'image_url', excluded.image_url, image_url),
		       published   = iif(?12 ->> 'published', excluded.published, published),
		       updated_at  = excluded.updated_at
		RETURNING id`,
		tx.newID(), storeID, kind, e.Slug, e.Title, strings.ToLower(e.Title), e.Description, e.Price, e.Stock,
		e.ImageURL, e.Published, fromJSON{e.Given}, tx.now, e.StockWas)
	return id
}

// putItems replaces the items of a bundle, and refuses slugs that no product of the store has.
func (tx *Tx) putItems(storeID, bundle string, items []BundleItem, path string, refusal *Refusal) {
	if len(items) == 0 {
		refusal.add(path, "is needed")
	}

	tx.exec("DELETE FROM bundle_items WHERE bundle_id = ?", bundle)

	for i, item := range items {
		added := tx.exec(`
			INSERT INTO bundle_items (bundle_id, position, product_id, quantity)
			SELECT ?, ?, id, ?
			FROM   products
			WHERE  store_id = ? AND type = 'product' AND slug = ?`,
			bundle, i, item.Quantity, storeID, item.Slug)
		if added == 0 {
			refusal.add(fmt.Sprintf("%s[%d].slug", path, i), "names no product of the store: %q", item.Slug)
		}
	}
}

// putMethod adds a payment method, or sets the fields that its input has. It changes nothing if the provider
// or the kind would change: the pay pages of orders depend on them.
func (tx *Tx) putMethod(storeID string, m Method) (changed int64) {
	return tx.exec(`
		INSERT INTO payment_methods (store_id, code, name, provider, fee, instructions, min_amount,
		                             max_amount, enabled, kind, accounts, image_url, unique_code)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, iif(?11 = 'null', '[]', ?11), ?, ?) -- null: no accounts are given
		ON CONFLICT (store_id, code) DO UPDATE
		SET    name         = excluded.name,
		       fee          = iif(?14 ->> 'fee', excluded.fee, fee),
		       instructions = iif(?14 ->> 'instructions', excluded.instructions, instructions),
		       min_amount   = iif(?14 ->> 'min_amount', excluded.min_amount, min_amount),
		       max_amount   = iif(?14 ->> 'max_amount', excluded.max_amount, max_amount),
		       enabled      = iif(?14 ->> 'enabled', excluded.enabled, enabled),
		       accounts     = iif(?14 ->> 'accounts', excluded.accounts, accounts),
		       image_url    = iif(?14 ->> 'image_url', excluded.image_url, image_url),
		       unique_code  = iif(?14 ->> 'unique_code', excluded.unique_code, unique_code)
		WHERE  provider = excluded.provider
		AND    (provider <> 'manual' OR kind = iif(?14 ->> 'kind', excluded.kind, kind))`,
		storeID, m.Code, m.Name, m.Provider, m.Fee, m.Instructions, m.MinAmount, m.MaxAmount,
		m.Enabled || !m.Given["enabled"], cmp.Or(m.Kind, Transfer), fromJSON{m.Accounts}, m.ImageURL,
		m.UniqueCode, fromJSON{m.Given})
}

// RemoveEntry deletes a product or bundle. One that is in an order or a bundle is taken off sale instead.
// Nothing else is written while it reads the orders, which takes seconds for a million.
func (db *DB) RemoveEntry(ctx context.Context, storeID string, kind Kind, slug string) error {
	return db.remove(ctx, `
		DELETE FROM products AS p
		WHERE  store_id = ? AND type = ? AND slug = ?
		AND    NOT EXISTS (SELECT 1 FROM bundle_items WHERE product_id = p.id)
		AND    NOT EXISTS (
		           SELECT 1 FROM orders o
		           WHERE  o.store_id = p.store_id AND o.created_at >= p.created_at
		           AND    instr(o.components || o.json, p.id) > 0)`,
		"UPDATE products SET published = 0 WHERE store_id = ? AND type = ? AND slug = ?", storeID, kind, slug)
}

// RemoveMethod deletes a payment method. One that an order uses is turned off instead. It reads the orders,
// as RemoveEntry does.
func (db *DB) RemoveMethod(ctx context.Context, storeID, code string) error {
	return db.remove(ctx, `
		DELETE FROM payment_methods
		WHERE  store_id = ?1 AND code = ?2
		AND    NOT EXISTS (SELECT 1 FROM orders WHERE store_id = ?1 AND method = ?2)`,
		"UPDATE payment_methods SET enabled = 0 WHERE store_id = ? AND code = ?", storeID, code)
}

func (db *DB) remove(ctx context.Context, removal, otherwise string, args ...any) error {
	return db.write(ctx, func(tx *Tx) error {
		if tx.exec(removal, args...) > 0 {
			return nil
		}
		return tx.mustChange(otherwise, args...)
	})
}

// SetPicture keeps the JPEG of a QRIS code and shows it with a method.
func (db *DB) SetPicture(ctx context.Context, storeID, code string, jpeg []byte) error {
	hash := fmt.Sprintf("%x", sha256.Sum256(jpeg))
	return db.write(ctx, func(tx *Tx) error {
		tx.exec("INSERT OR IGNORE INTO pictures (hash, jpeg) VALUES (?, ?)", hash, jpeg)
		return tx.mustChange("UPDATE payment_methods SET image_url = ? WHERE store_id = ? AND code = ?",
			"/pictures/"+hash, storeID, code)
	})
}

// Picture reads the JPEG at /pictures/{hash}.
func (db *DB) Picture(ctx context.Context, hash string) ([]byte, error) {
	return one[[]byte](ctx, db, "SELECT jpeg FROM pictures WHERE hash = ?", hash)
}
