package main

// This file is about writing a catalog and reading it back. A catalog file, PUT /v1/catalog and the forms of the dashboard
// share one import, which checks every entry, and writes all of them or none. An entry is found by its slug or code. What
// it leaves out stays as it is. Of each entry the import says whether it was created, changed or unchanged; an unchanged
// one keeps the time of its last edit.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
			if !tx.wasSaved(storeID, e.FormToken) {
				tx.putEntry(storeID, Product, e)
			}
		}

		for i, e := range c.Bundles {
			if tx.wasSaved(storeID, e.FormToken) {
				continue
			}
			id := tx.putEntry(storeID, Bundle, e)
			tx.putItems(storeID, id, e.Items, fmt.Sprintf("bundles[%d].items", i), refusal)
		}

		for i, m := range c.PaymentMethods {
			tx.putMethod(storeID, m, fmt.Sprintf("payment_methods[%d].code", i), refusal)
		}

		if n := tx.count(sqlCountMethods, storeID); n > mostMethods {
			refusal.add("payment_methods", "would be %d in the store, and at most %d are allowed", n, mostMethods)
		}
		return refusal.orNil()
	})
	return counts, err
}

// putEntry adds an entry, or sets the fields that its input has, and returns its id.
func (tx *Tx) putEntry(storeID string, kind Kind, e Entry) (id string) {
	was := Entry{ID: tx.newID(), CreatedAt: tx.now, Published: true} // what a new one has
	found := tx.find(&was, `
		SELECT id, type, slug, title, description, price, 'IDR' AS currency, image_url, created_at, updated_at,
		       published, stock, '[]' AS items
		FROM   products
		WHERE  store_id = ? AND type = ? AND slug = ?`, storeID, kind, e.Slug)

	e.Stock = e.stockAfter(was.Stock, found)
	fillIn(&e, was, e.Given)
	if !found {
		tx.exec(`
			INSERT INTO products (id, store_id, type, slug, title, title_folded, description, price, stock, image_url,
			                      published, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			was.ID, storeID, kind, e.Slug, e.Title, strings.ToLower(e.Title), e.Description, e.Price, e.Stock,
			e.ImageURL, e.Published, tx.now, tx.now)
		return was.ID
	}

	tx.exec(`
		UPDATE products
		SET    title = ?, title_folded = ?, description = ?, price = ?, stock = ?, image_url = ?, published = ?,
		       updated_at = ?
		WHERE  id = ?`,
		e.Title, strings.ToLower(e.Title), e.Description, e.Price, e.Stock, e.ImageURL, e.Published, tx.now, was.ID)
	return was.ID
}

// stockAfter returns the stock that a product has after an input. A form changes it by as much as its field was
// changed: pieces that were sold while the form was open stay sold.
func (e Entry) stockAfter(was *int64, found bool) *int64 {
	typed := ""
	if e.Stock != nil {
		typed = strconv.FormatInt(*e.Stock, 10)
	}
	shown, err := strconv.ParseInt(e.StockShown, 10, 64)

	switch {
	case !e.Given["stock"]:
		return was
	case found && e.FormToken != "" && typed == e.StockShown: // The owner did not change the field.
		return was
	case e.Stock == nil, was == nil, err != nil: // It is, was or was shown as unlimited, or this is no form.
		return e.Stock
	}
	after := max(0, *was+*e.Stock-shown)
	return &after
}

// FormWasSaved reports whether a form was saved in the last 48 hours: sent again, it changes nothing.
func (db *DB) FormWasSaved(ctx context.Context, storeID, token string) (bool, error) {
	return one[bool](ctx, db, "SELECT EXISTS (SELECT 1 FROM saved_forms WHERE store_id = ? AND token = ?)", storeID, token)
}

// wasSaved is FormWasSaved within a write. A form that was not saved yet is remembered.
func (tx *Tx) wasSaved(storeID, token string) bool {
	if token == "" {
		return false
	}
	return tx.exec("INSERT INTO saved_forms (store_id, token, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
		storeID, token, tx.now) == 0
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
