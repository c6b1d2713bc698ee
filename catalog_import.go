package main

// This file is about writing a catalog and reading it back. A catalog file, PUT /v1/catalog and the forms of the
// dashboard share one import. It checks every entry, and writes all of them or none. An entry is found by its slug or
// code. A field that it leaves out keeps its value. The import says whether each entry was created, changed or
// unchanged. An unchanged one keeps the time of its last edit.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Catalog is the content of a catalog file.
type Catalog struct {
	Products       []Entry  `json:"products" rule:"list 0..50000 optional without=items"`
	Bundles        []Entry  `json:"bundles" rule:"list 0..50000 optional without=stock,stock_change"`
	PaymentMethods []Method `json:"payment_methods" rule:"list 0..50000 optional"`
	HasMore        bool     `json:"has_more" rule:"ignored optional"` // in what GET /v1/catalog answers

	ShippingOptions []ShippingOption `json:"shipping_options" rule:"list 0..10 optional"` // replaces the list
	Given           map[string]bool
}

const (
	mostEntriesOfFile = 50_000 // other writes wait for all of them
	mostEntriesOfPut  = 2_000
)

// readCatalogFile reads a catalog file. Its errors name the line or the entry.
func readCatalogFile(file []byte) (c Catalog, err error) {
	if !utf8.Valid(file) {
		return c, malformed("the file is not UTF-8")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(file, new(json.RawMessage))); ok {
		return c, malformed("line %d: %s", 1+bytes.Count(file[:syntax.Offset], []byte("\n")), syntax)
	}
	err = readCatalog(file, mostEntriesOfFile, &c)
	return c, err
}

// changesStock reports whether an entry adds to a stock. Sent twice, it would add twice.
func (c Catalog) changesStock() bool {
	return slices.ContainsFunc(c.Products, func(e Entry) bool { return e.StockChange != nil })
}

// EntryResult is what an import did to an entry.
type EntryResult struct {
	Type   string `json:"type"` // product, bundle or payment_method
	Slug   string `json:"slug,omitempty"`
	Code   string `json:"code,omitempty"` // of a payment method
	ID     string `json:"id,omitempty"`   // of a product or bundle
	Result Result `json:"result"`
}

// Result is what became of an entry.
type Result string

const (
	Created   Result = "created"
	Changed   Result = "changed"
	Unchanged Result = "unchanged"
)

// Imported is what an import did: how many entries it had, and what became of each.
type Imported struct {
	Products       int           `json:"products"`
	Bundles        int           `json:"bundles"`
	PaymentMethods int           `json:"payment_methods"`
	Entries        []EntryResult `json:"entries"`
}

// importRun is an import under way.
type importRun struct {
	*Tx
	store      Store
	done       Imported
	wrong      *Refusal // the wrong fields so far
	outOfStock *Refusal // the changes that would make a stock negative
}

// ImportCatalog adds or changes entries: all of them or none.
func (db *DB) ImportCatalog(ctx context.Context, st Store, c Catalog) (done Imported, err error) {
	err = db.enqueue(ctx, db.large, func(tx *Tx) error {
		done, err = tx.importCatalog(st, c)
		return err
	})
	return done, err
}

// ImportCatalogOnce is ImportCatalog for a request with an Idempotency-Key. If the key was sent before with the same
// body, nothing is changed, and the first answer is returned again.
func (db *DB) ImportCatalogOnce(
	ctx context.Context, st Store, c Catalog, key string, bodyHash []byte,
) (answer string, replayed bool, err error) {
	err = db.enqueue(ctx, db.large, func(tx *Tx) error {
		var first struct {
			Answer   string
			BodyHash []byte
		}
		const sqlFirst = "SELECT answer, body_hash FROM catalog_changes WHERE store_id = ? AND key = ?"
		replayed = tx.find(&first, sqlFirst, st.ID, key)
		if replayed && !bytes.Equal(first.BodyHash, bodyHash) {
			return &Refusal{Reason: IdempotencyKeyReused,
				Words: "This Idempotency-Key was used with another body: send a new key with a new request."}
		}
		if replayed {
			answer = first.Answer
			return nil
		}

		done, err := tx.importCatalog(st, c)
		if err != nil {
			return err
		}
		answer = string(toJSON(done))
		tx.exec("INSERT INTO catalog_changes (store_id, key, body_hash, answer, created_at) VALUES (?, ?, ?, ?, ?)",
			st.ID, key, bodyHash, answer, tx.now)
		return nil
	})
	return answer, replayed, err
}

func (tx *Tx) importCatalog(st Store, c Catalog) (Imported, error) {
	in := importRun{
		Tx:         tx,
		store:      st,
		wrong:      refuse(ValidationFailed),
		outOfStock: &Refusal{Reason: OutOfStock, Words: "There is not enough stock for this change."},
		done: Imported{
			Products:       len(c.Products),
			Bundles:        len(c.Bundles),
			PaymentMethods: len(c.PaymentMethods),
			Entries:        []EntryResult{},
		},
	}
	for i, e := range c.Products {
		in.putEntry(Product, e, fmt.Sprintf("products[%d].", i))
	}
	for i, e := range c.Bundles {
		in.putEntry(Bundle, e, fmt.Sprintf("bundles[%d].", i))
	}
	for i, m := range c.PaymentMethods {
		in.putMethod(m, fmt.Sprintf("payment_methods[%d].", i))
	}

	if c.Given["shipping_options"] {
		tx.putShippingOptions(st.ID, c.ShippingOptions)
	}

	if n := tx.count(sqlCountMethods, st.ID); n > mostMethods {
		in.wrong.add("payment_methods", "would be %d in the store, and at most %d are allowed", n, mostMethods)
	}
	if n := tx.count("SELECT count(*) FROM payment_methods WHERE store_id = ?", st.ID); n > mostMethodsEver {
		in.wrong.add("payment_methods", "would be %d in the store with removed ones, and at most %d are allowed", n,
			mostMethodsEver)
	}
	if err := in.wrong.orNil(); err != nil {
		return in.done, err
	}
	return in.done, in.outOfStock.orNil()
}

// putEntry adds an entry, or sets the fields that its input has.
func (in *importRun) putEntry(kind Kind, e Entry, path string) {
	if in.wasSaved(in.store.ID, e.FormToken) {
		return
	}
	was := Entry{ID: in.newID(), CreatedAt: in.now, Published: true} // what a new one has
	found := in.find(&was, sqlEntries+" AND p.type = ?3 AND p.slug = ?4", in.store.ID, true, kind, e.Slug)
	if e.ID != "" && (!found || e.ID != was.ID) {
		in.wrong.add(path+"id", "is not the id of the %s with this slug: leave it out", kind)
	}
	e.ImageURL = in.ownPicture(e.ImageURL, path)

	switch {
	case kind == Bundle:
		e.Stock = nil // It is computed from its products'. Its row has none.
		was.Stock = nil
		for i, item := range was.Items {
			was.Items[i] = BundleItem{Slug: item.Slug, Quantity: item.Quantity} // as an input has it
		}
		if !e.Given["items"] && len(e.Items) == 0 { // A form that did not change them has them.
			in.wrong.add(path+"items", "is needed")
		}
	case e.StockChange != nil:
		in.addToStock(&e, was, found, path)
	default:
		e.changeStock(was)
	}

	fillIn(&e, was, e.Given)
	result := resultOf(!found, e, was)
	if result != Unchanged {
		in.exec(`
			INSERT INTO products (id, store_id, type, slug, title, title_folded, description, price, stock, image_url,
			                      published, created_at, updated_at, position)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (store_id, type, slug) DO UPDATE
			SET    title = excluded.title, title_folded = excluded.title_folded, description = excluded.description,
			       price = excluded.price, stock = excluded.stock, image_url = excluded.image_url,
			       published = excluded.published, updated_at = excluded.updated_at, position = excluded.position`,
			was.ID, in.store.ID, kind, e.Slug, e.Title, strings.ToLower(e.Title), e.Description, e.Price, e.Stock,
			e.ImageURL, e.Published, in.now, in.now, e.Position)
	}
	if kind == Bundle && result != Unchanged {
		in.putItems(was.ID, e.Items, path+"items")
	}
	in.done.Entries = append(in.done.Entries, EntryResult{Type: string(kind), Slug: e.Slug, ID: was.ID, Result: result})
}

// resultOf says what an import does to an entry or a method.
func resultOf[T any](isNew bool, in, was T) Result {
	switch {
	case isNew:
		return Created
	case isChange(in, was):
		return Changed
	default:
		return Unchanged
	}
}

// changeStock changes the stock that a form gives by as much as the owner changed the field, so pieces sold while the
// form was open stay sold. A stock that is, was or was shown as unlimited, or that no form gives, stays as given.
func (e *Entry) changeStock(was Entry) {
	shown, err := strconv.ParseInt(e.StockShown, 10, 64)
	if err != nil || e.Stock == nil || was.Stock == nil {
		return
	}
	after := max(0, *was.Stock+*e.Stock-shown)
	e.Stock = &after
}

// addToStock adds an entry's change to the current stock.
func (in *importRun) addToStock(e *Entry, was Entry, found bool, path string) {
	field := path + "stock_change"
	switch {
	case e.Given["stock"]:
		in.wrong.add(field, "does not go together with stock: leave one of them out")
	case !found || was.Stock == nil:
		in.wrong.add(field, "needs a product with a stock: give stock, such as %d", 20)
	case *was.Stock+*e.StockChange < 0:
		in.outOfStock.addError(FieldError{Field: field, Format: "takes more than is left", Left: was.Stock})
	case *was.Stock+*e.StockChange > maxMoney:
		in.wrong.add(field, "makes the stock exceed %d", maxMoney)
	default:
		after := *was.Stock + *e.StockChange
		e.Stock = &after
	}
	e.StockChange = nil // It is done.
	e.Given["stock"] = true
}

// ownPicture turns the address of one of our pictures, as GET shows it, into its path. Any other address stays as it
// is.
func (in *importRun) ownPicture(address *string, path string) *string {
	if address == nil {
		return nil
	}
	hash, isOurs := strings.CutPrefix(*address, in.store.URL+"/pictures/")
	if !isOurs {
		return address
	}
	if in.count("SELECT count(*) FROM pictures WHERE hash = ?", hash) == 0 {
		in.wrong.add(path+"image_url",
			"is the address of a picture that is not here: upload it, or give another address")
	}
	return new("/pictures/" + hash)
}

// putItems replaces the items of a bundle. It refuses slugs that no product of the store has.
func (in *importRun) putItems(bundle string, items []BundleItem, path string) {
	in.exec("DELETE FROM bundle_items WHERE bundle_id = ?", bundle)
	for i, item := range items {
		added := in.exec(`
			INSERT INTO bundle_items (bundle_id, position, product_id, quantity)
			SELECT ?, ?, id, ?
			FROM   products
			WHERE  store_id = ? AND type = 'product' AND slug = ?`,
			bundle, i, item.Quantity, in.store.ID, item.Slug)
		if added == 0 {
			in.wrong.add(fmt.Sprintf("%s[%d].slug", path, i), "names no product of the store: %q", item.Slug)
		}
	}
}

// FormWasSaved reports whether a form was saved in the last 48 hours. Sent again, it changes nothing.
func (db *DB) FormWasSaved(ctx context.Context, storeID, token string) (bool, error) {
	return one[bool](ctx, db,
		"SELECT EXISTS (SELECT 1 FROM saved_forms WHERE store_id = ? AND token = ?)", storeID, token)
}

// wasSaved is FormWasSaved within a write. A form that was not saved yet is remembered.
func (tx *Tx) wasSaved(storeID, token string) bool {
	if token == "" {
		return false
	}
	return tx.exec("INSERT INTO saved_forms (store_id, token, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
		storeID, token, tx.now) == 0
}

// CatalogQuery selects a page of a catalog.
type CatalogQuery struct {
	Type          string `json:"type" rule:"choice product|bundle|payment_method"`
	Limit         int64  `json:"limit" rule:"int 1..500 =100"`
	StartingAfter string `json:"starting_after" rule:"text 1..64 optional"` // the id, or code, of the last entry before
}

// mostOfPage bounds the bytes of a page of the catalog: PUT takes 1 MiB.
const mostOfPage = 900_000

// CatalogPage returns entries as an import takes them, sorted by id or code, and whether there are more. A page may
// have fewer entries than the limit.
func (db *DB) CatalogPage(
	ctx context.Context, st Store, q CatalogQuery,
) (entries []json.RawMessage, more bool, err error) {
	entries = []json.RawMessage{}
	size := 0
	for {
		const atOnce = 50 // descriptions are long
		list, err := db.catalogPart(ctx, st, q, atOnce)
		if err != nil {
			return nil, false, err
		}
		for _, e := range list {
			entry := toJSON(e.entry)
			if len(entries) == int(q.Limit) || size+len(entry) > mostOfPage {
				return entries, true, nil
			}
			entries = append(entries, entry)
			size += len(entry) + 1
			q.StartingAfter = e.key
		}
		if len(list) < atOnce {
			return entries, false, nil
		}
	}
}

// storedEntry is an entry as an import takes it, with the id or code by which lists are sorted.
type storedEntry struct {
	key   string
	entry jsonObject
}

func (db *DB) catalogPart(ctx context.Context, st Store, q CatalogQuery, most int) (list []storedEntry, err error) {
	if q.Type == "payment_method" {
		methods, err := all[Method](ctx, db,
			sqlMethods+" AND m.removed_at = 0 AND m.code > ? ORDER BY m.code LIMIT ?", st.ID, q.StartingAfter, most)
		for _, m := range methods {
			list = append(list, storedEntry{m.Code, m.forImport(st)})
		}
		return list, err
	}

	entries, err := all[Entry](ctx, db,
		sqlEntries+" AND p.type = ?3 AND p.id > ?4 ORDER BY p.id LIMIT ?5", st.ID, true, q.Type, q.StartingAfter, most)
	for _, e := range entries {
		list = append(list, storedEntry{e.ID, e.forImport(st)})
	}
	return list, err
}

// forImport returns an entry as an import takes it.
func (e Entry) forImport(st Store) jsonObject {
	e.ImageURL = st.pictureURL(e.ImageURL)
	shown := asInput(e)
	delete(shown, "stock_change")
	if e.Type == Product {
		delete(shown, "items")
		return shown
	}
	items := []jsonObject{}
	for _, i := range e.Items {
		items = append(items, asInput(i))
	}
	shown["items"] = items
	delete(shown, "stock")
	return shown
}

// forImport returns a method as an import takes it, without the fields that its provider and kind do not have.
func (m Method) forImport(st Store) jsonObject {
	m.ImageURL = st.pictureURL(m.ImageURL)
	shown := asInput(m)
	if m.Provider != Midtrans && m.Provider != Xendit {
		delete(shown, "channels")
	}
	if m.Provider != Manual {
		delete(shown, "kind")
		delete(shown, "accounts")
		delete(shown, "unique_code")
	}
	if m.Kind != QRIS {
		delete(shown, "qris")
	}
	return shown
}
