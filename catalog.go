package main

// This file is about what a store sells: products and bundles with their stock. An entry that is removed is only
// hidden: orders refer to it, so its row stays. At the end are the pictures that are shown with products and methods.

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Kind is what can be sold: a product, a bundle of products at one price, or something that the owner agreed with a
// buyer.
type Kind string

const (
	Product Kind = "product"
	Bundle  Kind = "bundle"
	Custom  Kind = "custom" // goods of one order, not in the catalog and without stock
)

// Entry is a product or bundle as the API shows it and, with its rules, as a catalog file or a form gives it.
type Entry struct {
	ID          string          `json:"id" rule:"id optional"`
	Type        Kind            `json:"type"`
	Slug        string          `json:"slug" rule:"slug unique"`
	Title       string          `json:"title" rule:"text 1..200"`
	Description string          `json:"description" rule:"lines 0..10000 optional"`
	Price       int64           `json:"price" rule:"money"`
	Currency    string          `json:"currency"`
	ImageURL    *string         `json:"image_url" rule:"url optional"`
	CreatedAt   Time            `json:"created_at" rule:"ignored optional"`
	UpdatedAt   Time            `json:"updated_at" rule:"ignored optional"`
	Published   bool            `json:"-" rule:"bool optional"`
	Position    int64           `json:"-" rule:"int 0..1000000 optional"`          // on the shop page, smallest first
	Stock       *int64          `json:"stock" rule:"int 0..999999999999 optional"` // pieces left; nil is unlimited
	StockChange *int64          `json:"stock_change,omitempty" sql:"-" rule:"int -999999999999..999999999999 optional"`
	Items       []BundleItem    `json:"items,omitempty" rule:"list 1..50 optional"`
	Available   bool            `json:"available" sql:"-"` // stock is left
	Given       map[string]bool `json:"-" sql:"-"`         // the fields that an input has; others stay
	StockShown  string          `json:"-" sql:"-"`         // as the form had shown it; "" = unlimited
	FormToken   string          `json:"-" sql:"-"`         // names the form; "" = there is none
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
	Slug   string `json:"slug" rule:"slug optional"`
	Offset int64  `json:"offset" rule:"int 0..1000000000 optional"`
	Limit  int64  `json:"limit" rule:"int 1..50 =20"`
	Drafts bool   // also those that are not published
}

// sqlEntriesOfAll reads the entries of all stores. Items have their slugs only if ?2 is set. A bundle's stock is how
// many can be sold with the stock of its products, NULL if all of them are unlimited.
const sqlEntriesOfAll = `
	SELECT p.id, p.type, p.slug, p.title, p.description, p.price, 'IDR' AS currency, p.image_url,
	       p.created_at, p.updated_at,
	       p.published, p.position,
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
	FROM   products p`

// sqlEntries reads the entries of the store ?1, with drafts if ?2 is set.
const sqlEntries = sqlEntriesOfAll + `
	WHERE  p.store_id = ?1 AND p.removed_at = 0 AND (p.published OR ?2)`

// Entries lists a page of a store's products and bundles, and reports whether there are more.
func (db *DB) Entries(
	ctx context.Context, storeID string, f EntryFilter,
) (list []Entry, more bool, err error) {
	list, more, err = some[Entry](ctx, db, f.Limit, f.Offset, sqlEntries+`
		AND (?3 = '' OR p.type = ?3) AND instr(p.title_folded, ?4) > 0 AND (?5 = '' OR p.slug = ?5)
		ORDER BY p.type DESC, p.title, p.id
		LIMIT +? OFFSET ?`,
		storeID, f.Drafts, f.Type, strings.ToLower(f.Text), f.Slug)
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

// EntryForSale reads a published product or bundle by its id.
func (db *DB) EntryForSale(ctx context.Context, storeID, id string) (Entry, error) {
	return one[Entry](ctx, db, sqlEntries+" AND p.id = ?3", storeID, false, id)
}

// EntriesLike returns what a person may mean by a text, in any case: the products and bundles with this title or slug
// or, if there are none, those whose title contains it. It returns at most two, which is enough to see that the text is
// ambiguous. With a kind, it finds only that kind, and drafts too.
func (db *DB) EntriesLike(ctx context.Context, storeID string, kind Kind, text string) ([]Entry, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, matches := range []string{"(p.title_folded = ?4 OR p.slug = ?4)", "instr(p.title_folded, ?4) > 0"} {
		found, err := all[Entry](ctx, db, sqlEntries+" AND (?3 = '' OR p.type = ?3) AND "+matches+" LIMIT 2",
			storeID, kind != "", kind, text)
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

// ShopEntries lists what is for sale on the shop page, in the owner's order.
func (db *DB) ShopEntries(ctx context.Context, storeID, text string, limit, offset int64) ([]Entry, bool, error) {
	return some[Entry](ctx, db, limit, offset, sqlEntries+`
		AND p.published = 1 AND (?3 = '' OR instr(p.title_folded, ?3) > 0)
		ORDER BY p.position, p.type DESC, p.title, p.id
		LIMIT +? OFFSET ?`, storeID, false, strings.ToLower(text))
}

// sqlEntriesNamed reads those of some entries of the store ?1 that are for sale. CROSS JOIN makes SQLite look up each
// name; left to itself, it reads all entries of the store.
const sqlEntriesNamed = sqlEntriesOfAll + `
	WHERE  p.removed_at = 0 AND p.published AND p.id IN (
		SELECT g.id
		FROM   json_each(?3) n
		CROSS JOIN products g ON g.store_id = ?1 AND g.type = n.value ->> 0 AND g.slug = n.value ->> 1)`

// EntriesNamed returns those of some entries that are for sale. Each name is a kind and a slug.
func (db *DB) EntriesNamed(ctx context.Context, storeID string, names [][2]string) ([]Entry, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return all[Entry](ctx, db, sqlEntriesNamed, storeID, false, fromJSON{names})
}

// RemoveEntry hides a product or bundle from everything but its orders. It frees the slug by adding a ~, which nobody
// can type. A product that is part of a bundle is refused.
func (db *DB) RemoveEntry(ctx context.Context, storeID string, kind Kind, slug string) error {
	return db.write(ctx, func(tx *Tx) error {
		bundles := rowsOf[string](tx, `
			SELECT b.title
			FROM   products p
			JOIN   bundle_items i ON i.product_id = p.id
			JOIN   products b ON b.id = i.bundle_id AND b.removed_at = 0
			WHERE  p.store_id = ? AND p.type = ? AND p.slug = ?
			LIMIT  5`, storeID, kind, slug)
		if len(bundles) > 0 {
			return refuse(ValidationFailed).add("slug", "is in a bundle (%s): remove it from there first",
				strings.Join(bundles, ", "))
		}
		return tx.mustChange(`
			UPDATE products
			SET    removed_at = ?, slug = slug || '~' || id
			WHERE  store_id = ? AND type = ? AND slug = ? AND removed_at = 0`,
			tx.now, storeID, kind, slug)
	})
}

// AddPicture keeps a picture, and returns its path, by which an entry or a method shows it.
func (db *DB) AddPicture(ctx context.Context, picture Picture) (path string, err error) {
	hash := fmt.Sprintf("%x", sha256.Sum256(picture.Large))
	return "/pictures/" + hash, db.mustChange(ctx, `
		INSERT INTO pictures (hash, jpeg, small) VALUES (?, ?, ?)
		ON CONFLICT (hash) DO UPDATE SET unused_since = 0`, hash, picture.Large, picture.Small)
}

// Picture reads the picture at /pictures/{hash}. Those of version 1 have one size.
func (db *DB) Picture(ctx context.Context, hash string) (Picture, error) {
	return one[Picture](ctx, db,
		"SELECT jpeg AS large, coalesce(small, jpeg) AS small FROM pictures WHERE hash = ?", hash)
}

// MarkUnusedPictures records since when nothing has shown a picture. The catalog can be long, so it is read outside the
// write. Whoever shows a picture in between sets unused_since to 0.
func (db *DB) MarkUnusedPictures(ctx context.Context) error {
	const shown = `
		hash IN (SELECT substr(image_url, 11) FROM payment_methods WHERE removed_at = 0 AND image_url LIKE '/pictures/%'
		         UNION ALL
		         SELECT substr(image_url, 11) FROM products WHERE removed_at = 0 AND image_url LIKE '/pictures/%')`
	if err := db.setUnused(ctx, "unused_since = 0 AND NOT "+shown, db.now()); err != nil {
		return err
	}
	return db.setUnused(ctx, "unused_since > 0 AND "+shown, 0)
}

// setUnused notes since when the pictures are unused that a condition selects. Their rows are written anew, so a write
// has a few of them.
func (db *DB) setUnused(ctx context.Context, condition string, since Time) error {
	hashes, err := all[string](ctx, db, "SELECT hash FROM pictures WHERE "+condition)
	if err != nil {
		return err
	}
	for few := range slices.Chunk(hashes, 10) {
		err := db.write(ctx, func(tx *Tx) error {
			tx.exec("UPDATE pictures SET unused_since = ? WHERE hash IN (SELECT value FROM json_each(?))",
				since, fromJSON{few})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Picture is a picture in its two sizes, as JPEG.
type Picture struct{ Large, Small []byte }
