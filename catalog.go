//go:build cgo

package main

import (
	"context"
	"fmt"
	"strings"
)

// Product is a product or, with Items, a bundle.
type Product struct {
	ID          string       `json:"id"`
	Type        string       `json:"type"`
	Slug        string       `json:"slug"`
	Title       string       `json:"title"`
	Description string       `json:"description"`
	Price       int64        `json:"price"`
	Currency    string       `json:"currency"`
	ImageURL    *string      `json:"image_url"`
	Stock       *int64       `json:"stock"`     // pieces left, nil: unlimited
	Available   bool         `json:"available"` // stock is left
	CreatedAt   Time         `json:"created_at"`
	UpdatedAt   Time         `json:"updated_at"`
	Items       []BundleItem `json:"items,omitempty"`
	Published   bool         `json:"-"`
}

type BundleItem struct {
	ProductID string `json:"product_id"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	Slug      string `json:"-"`
}

type PaymentMethod struct {
	Code              string `json:"code"`
	Name              string `json:"name"`
	Provider          string `json:"provider"`
	SettlementChannel string `json:"settlement_channel"`
	Fee               int64  `json:"fee"`
	MinAmount         *int64 `json:"min_amount"` // of the subtotal, nil: no bound
	MaxAmount         *int64 `json:"max_amount"`
	Instructions      string `json:"instructions"`
	Enabled           bool   `json:"-"`
	Usable            bool   `json:"-"` // enabled, and its gateway can be asked; a store that takes real money offers no sandbox
}

// takes tells whether a method may pay an order of this subtotal.
func (m PaymentMethod) takes(subtotal int64) bool {
	return (m.MinAmount == nil || subtotal >= *m.MinAmount) && (m.MaxAmount == nil || subtotal <= *m.MaxAmount)
}

// providers of payment methods. The bank transfer that a person checks is manual; the others are gateways.
var providers = []string{"manual", "sandbox", "midtrans", "xendit"}

// Catalog is the content of a catalog file. An entry whose field was left out (see Has) keeps what the store has.
type Catalog struct {
	Products, Bundles []CatalogEntry
	PaymentMethods    []MethodEntry
}

type CatalogEntry struct {
	Product
	Has map[string]bool // fields that were given
}

type MethodEntry struct {
	PaymentMethod
	Has map[string]bool
}

// ImportCatalog adds or replaces entries by slug or code: all of them or none.
func (db *DB) ImportCatalog(ctx context.Context, storeID string, c Catalog) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := one(tx, column[string], "SELECT id FROM stores WHERE id = ?", storeID); err != nil {
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
	_, err := tx.exec(`INSERT INTO products (id, store_id, slug, title, title_folded, description, price, stock, image_url, published, created_at, updated_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)
		ON CONFLICT (store_id, slug) DO UPDATE SET title = ?4, title_folded = ?5, price = ?7, updated_at = ?11,
			description = iif(?12, ?6, description), stock = iif(?13, ?8, stock),
			image_url = iif(?14, ?9, image_url), published = iif(?15, ?10, published)`,
		tx.newID(), storeID, e.Slug, e.Title, strings.ToLower(e.Title), e.Description, e.Price, e.Stock, e.ImageURL, e.Published, tx.now,
		e.Has["description"], e.Has["stock"], e.Has["image_url"], e.Has["published"])
	return err
}

// putBundle is putProduct for a bundle; path names its entry in errors.
func (tx *Tx) putBundle(storeID string, e CatalogEntry, path string) error {
	id, err := one(tx, column[string], `INSERT INTO bundles (id, store_id, slug, title, title_folded, description, price, image_url, published, created_at, updated_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)
		ON CONFLICT (store_id, slug) DO UPDATE SET title = ?4, title_folded = ?5, price = ?7, updated_at = ?10,
			description = iif(?11, ?6, description), image_url = iif(?12, ?8, image_url), published = iif(?13, ?9, published)
		RETURNING id`,
		tx.newID(), storeID, e.Slug, e.Title, strings.ToLower(e.Title), e.Description, e.Price, e.ImageURL, e.Published, tx.now,
		e.Has["description"], e.Has["image_url"], e.Has["published"])
	if err != nil {
		return err
	}
	if _, err := tx.exec("DELETE FROM bundle_items WHERE bundle_id = ?", id); err != nil {
		return err
	}
	for i, item := range e.Items {
		n, err := tx.exec(`INSERT INTO bundle_items (bundle_id, position, product_id, quantity)
			SELECT ?, ?, id, ? FROM products WHERE store_id = ? AND slug = ?`, id, i, item.Quantity, storeID, item.Slug)
		if err != nil {
			return err
		} else if n == 0 {
			return &Refusal{Code: "VALIDATION_FAILED", Message: "The catalog has a wrong entry.", Details: []Detail{
				{fmt.Sprintf("%s.items[%d].slug", path, i), fmt.Sprintf("names no product of the store: %q", item.Slug)}}}
		}
	}
	return nil
}

func (tx *Tx) putMethod(storeID string, e MethodEntry) error {
	_, err := tx.exec(`INSERT INTO payment_methods (store_id, code, name, provider, fee, instructions, min_amount, max_amount, enabled)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
		ON CONFLICT (store_id, code) DO UPDATE SET name = ?3, provider = ?4, fee = iif(?10, ?5, fee),
			instructions = iif(?11, ?6, instructions), min_amount = iif(?12, ?7, min_amount),
			max_amount = iif(?13, ?8, max_amount), enabled = iif(?14, ?9, enabled)`,
		storeID, e.Code, e.Name, e.Provider, e.Fee, e.Instructions, e.MinAmount, e.MaxAmount, e.Enabled,
		e.Has["fee"], e.Has["instructions"], e.Has["min_amount"], e.Has["max_amount"], e.Has["enabled"])
	return err
}

// A bundle's stock is how often it can be made of its parts.
const (
	productColumns = `p.id, 'product', p.slug, p.title, p.description, p.price, 'IDR', p.image_url, p.created_at, p.updated_at, p.published,
	p.stock, p.stock IS NOT 0, NULL`
	bundleStock   = "(SELECT min(c.stock / i.quantity) FROM bundle_items i JOIN products c ON c.id = i.product_id WHERE i.bundle_id = p.id AND c.stock IS NOT NULL)"
	bundleColumns = `p.id, 'bundle', p.slug, p.title, p.description, p.price, 'IDR', p.image_url, p.created_at, p.updated_at, p.published,
	` + bundleStock + ", " + bundleStock + ` IS NOT 0,
	(SELECT json_group_array(json_object('product_id', c.id, 'title', c.title, 'quantity', i.quantity)) FROM
		(SELECT * FROM bundle_items WHERE bundle_id = p.id ORDER BY position) i JOIN products c ON c.id = i.product_id)`
	sqlProducts      = "SELECT " + productColumns + " FROM products p WHERE p.store_id = ? AND p.published = 1 AND instr(p.title_folded, ?) > 0 ORDER BY p.title, p.id LIMIT ? OFFSET ?"
	sqlBundles       = "SELECT " + bundleColumns + " FROM bundles p WHERE p.store_id = ? AND p.published = 1 AND instr(p.title_folded, ?) > 0 ORDER BY p.title, p.id LIMIT ? OFFSET ?"
	sqlProductsCount = "SELECT count(*) FROM products WHERE store_id = ? AND published = 1 AND instr(title_folded, ?) > 0"
)

func productFields(p *Product) []any {
	return []any{&p.ID, &p.Type, &p.Slug, &p.Title, &p.Description, &p.Price, &p.Currency, &p.ImageURL, &p.CreatedAt, &p.UpdatedAt,
		&p.Published, &p.Stock, &p.Available, jsonTo{&p.Items}}
}

// Products lists what is published: products, then bundles, each by title and id, as one list that offset and limit
// run over. kind is product, bundle or "" for both; q is looked for in titles.
func (db *DB) Products(storeID, kind, q string, offset, limit int) (products, bundles []Product, more bool, err error) {
	products, bundles, q = []Product{}, []Product{}, strings.ToLower(q)
	if kind != "bundle" {
		if products, err = collect(db.r, productFields, sqlProducts, storeID, q, limit+1, offset); err != nil {
			return nil, nil, false, err
		}
		if len(products) > limit {
			return products[:limit], bundles, true, nil
		}
		if limit -= len(products); offset > 0 {
			before, err := one(db.r, column[int], sqlProductsCount, storeID, q)
			if err != nil {
				return nil, nil, false, err
			}
			offset = max(0, offset-before)
		}
	}
	if kind != "product" {
		if bundles, err = collect(db.r, productFields, sqlBundles, storeID, q, limit+1, offset); len(bundles) > limit {
			bundles, more = bundles[:limit], true
		}
	}
	return products, bundles, more, err
}

const (
	methodColumns = `m.code, m.name, m.provider, iif(m.provider = 'manual', 'manual', 'gateway'), m.fee, m.min_amount, m.max_amount, m.instructions, m.enabled,
		m.enabled = 1 AND CASE m.provider WHEN 'manual' THEN 1
		WHEN 'sandbox' THEN NOT EXISTS (SELECT 1 FROM gateways g WHERE g.store_id = m.store_id AND g.mode = 'live')
		ELSE EXISTS (SELECT 1 FROM gateways g WHERE g.store_id = m.store_id AND g.provider = m.provider) END`
	sqlMethods = "SELECT " + methodColumns + " FROM payment_methods m WHERE m.store_id = ? ORDER BY m.code"
	sqlMethod  = "SELECT " + methodColumns + " FROM payment_methods m WHERE m.store_id = ? AND m.code = ?"
)

func methodFields(m *PaymentMethod) []any {
	return []any{&m.Code, &m.Name, &m.Provider, &m.SettlementChannel, &m.Fee, &m.MinAmount, &m.MaxAmount, &m.Instructions, &m.Enabled, &m.Usable}
}

// PaymentMethods lists a store's methods by code, usable or not.
func (db *DB) PaymentMethods(storeID string) ([]PaymentMethod, error) {
	return collect(db.r, methodFields, sqlMethods, storeID)
}

// PaymentMethod reads one method of a store, usable or not.
func (db *DB) PaymentMethod(storeID, code string) (PaymentMethod, error) {
	return one(db.r, methodFields, sqlMethod, storeID, code)
}

// takeStock takes a part out of a limited stock. It takes nothing when there is not enough.
func (tx *Tx) takeStock(p *part) (enough bool, err error) {
	n, err := tx.exec("UPDATE products SET stock = stock - ?1 WHERE id = ?2 AND stock >= ?1", p.Quantity, p.ProductID)
	if p.Held = n == 1; err != nil || p.Held {
		return p.Held, err
	}
	return one(tx, column[bool], "SELECT stock IS NULL FROM products WHERE id = ?", p.ProductID)
}

func (tx *Tx) giveBackStock(p *part) error {
	if !p.Held {
		return nil
	}
	p.Held = false
	_, err := tx.exec("UPDATE products SET stock = stock + ? WHERE id = ?", p.Quantity, p.ProductID)
	return err
}

const (
	sqlCatalogProducts = "SELECT " + productColumns + " FROM products p WHERE p.store_id = ? AND p.slug > ? AND instr(p.title_folded, ?) > 0 ORDER BY p.slug LIMIT ?"
	sqlCatalogBundles  = "SELECT " + bundleColumns + " FROM bundles p WHERE p.store_id = ? AND p.slug > ? AND instr(p.title_folded, ?) > 0 ORDER BY p.slug LIMIT ?"
	sqlCatalogProduct  = "SELECT " + productColumns + " FROM products p WHERE p.store_id = ? AND p.slug = ?"
	sqlCatalogBundle   = "SELECT " + bundleColumns + " FROM bundles p WHERE p.store_id = ? AND p.slug = ?"
)

// Catalog lists a store's products or bundles, published or not, by slug: those after a slug, with q in their title.
func (db *DB) Catalog(storeID, kind, after, q string, limit int) ([]Product, error) {
	query := sqlCatalogProducts
	if kind == "bundle" {
		query = sqlCatalogBundles
	}
	return collect(db.r, productFields, query, storeID, after, strings.ToLower(q), limit)
}

const (
	sqlProductNames = "SELECT '', title, 0, slug FROM products WHERE store_id = ? ORDER BY slug LIMIT 1000"
	sqlBundleParts  = `SELECT c.id, c.title, i.quantity, c.slug FROM bundle_items i CROSS JOIN products c ON c.id = i.product_id
		WHERE i.bundle_id = ? ORDER BY i.position`
)

// CatalogEntry reads one product or bundle of a store, published or not. For bundles it also lists what they can be
// made of.
func (db *DB) CatalogEntry(storeID, kind, slug string) (p Product, products []BundleItem, err error) {
	fields := func(i *BundleItem) []any { return []any{&i.ProductID, &i.Title, &i.Quantity, &i.Slug} }
	if kind == "product" {
		p, err = one(db.r, productFields, sqlCatalogProduct, storeID, slug)
		return p, nil, err
	}
	if products, err = collect(db.r, fields, sqlProductNames, storeID); err != nil {
		return p, nil, err
	}
	if p, err = one(db.r, productFields, sqlCatalogBundle, storeID, slug); err == nil {
		p.Items, err = collect(db.r, fields, sqlBundleParts, p.ID)
	}
	return p, products, err
}
