package main

// This file is about what a store sells: products and bundles with their stock. A catalog file, a form and PUT /v1/catalog
// share one import, which checks every entry, and writes all of them or none. An update leaves alone what it does not
// mention.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

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
	Stock       *int64          `json:"stock" rule:"int 0..999999999999 optional"` // pieces left; nil is unlimited
	Items       []BundleItem    `json:"items,omitempty" rule:"list 1..50 optional"`
	Available   bool            `json:"available" sql:"-"` // stock is left
	Given       map[string]bool `json:"-" sql:"-"`         // the fields that an input has; what it leaves out stays as it is
	StockWas    string          `json:"-" sql:"-"`         // as a form showed it, a space, and a text that no other form has
}

// BundleItem is a product in a bundle.
type BundleItem struct {
	ProductID string `json:"product_id"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity" rule:"int 1..10000"`
	Slug      string `json:"slug,omitempty" rule:"slug unique"` // only for its owner
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
	SELECT p.id, p.type, p.slug, p.title, p.description, p.price, 'IDR' AS currency, p.image_url, p.created_at, p.updated_at,
	       p.published,
	       coalesce(p.stock, (
	           SELECT min(c.stock / i.quantity)
	           FROM   bundle_items i JOIN products c ON c.id = i.product_id
	           WHERE  i.bundle_id = p.id)) AS stock,
	       iif(p.type = 'product', '[]', (
	           SELECT json_group_array(
	                      json_object('product_id', c.id, 'title', c.title, 'quantity', i.quantity,
	                                  'slug', iif(?2, c.slug, ''))
	                      ORDER BY i.position)
	           FROM   bundle_items i JOIN products c ON c.id = i.product_id
	           WHERE  i.bundle_id = p.id)) AS items
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

// readCatalogFile reads a catalog file. Its errors name the line or the entry.
func readCatalogFile(file []byte) (c Catalog, err error) {
	if !utf8.Valid(file) {
		return c, malformed("the file is not UTF-8")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(file, new(json.RawMessage))); ok {
		return c, malformed("line %d: %s", 1+bytes.Count(file[:syntax.Offset], []byte("\n")), syntax)
	}
	return c, readCatalog(file, &c)
}

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

		if n := tx.count("SELECT count(*) FROM payment_methods WHERE store_id = ?", storeID); n > mostMethods {
			refusal.add("payment_methods", "would be %d in the store, and at most %d are allowed", n, mostMethods)
		}
		return refusal.orNil()
	})
	return counts, err
}

// putEntry adds an entry, or sets the fields that its input has, and returns its id.
func (tx *Tx) putEntry(storeID string, kind Kind, e Entry) (id string) {
	tx.find(&id, `
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
