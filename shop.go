//go:build cgo

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"time"
)

// Plan is what a store pays for. Only PlanGrowth and PlanScale include the API.
type Plan string

const (
	PlanFree   Plan = "free"
	PlanGrowth Plan = "growth"
	PlanScale  Plan = "scale"
)

// Store is the shop: the tenant that every other row belongs to. It has what requests and orders need; StoreProfile adds
// the rest.
type Store struct {
	ID             string
	Slug           string
	Domain         string // its own host, without scheme or port; empty if it has none
	Plan           Plan
	Expiry         time.Duration // how long an order waits for its payment
	CatalogVersion int64         // increases with every change that GET /v1/products shows
	URL            string        // where its pay pages are, without a trailing slash
}

// StoreProfile is a store with all that its pages show and its owner sets.
type StoreProfile struct {
	Store
	Name       string
	OwnerEmail string
	CreatedAt  Time
	TestMode   bool   // only then is the sandbox usable, and every page says so
	Contact    string // for buyers: a WhatsApp number or an e-mail address; empty if there is none
}

// The bounds of a store's Expiry.
const (
	leastExpiry = 10 * time.Minute
	mostExpiry  = 7 * 24 * time.Hour
)

const (
	storeColumns   = "s.id, s.slug, coalesce(s.domain, ''), s.plan, s.expiry_ms, s.catalog_version"
	profileColumns = storeColumns + ", s.name, s.owner_email, s.created_at, s.test_mode, s.contact"
)

// scanStore scans storeColumns, and the columns after them into more.
func (db *DB) scanStore(r row, more ...any) (st Store, err error) {
	var expiryMS int64
	dest := []any{&st.ID, &st.Slug, &st.Domain, &st.Plan, &expiryMS, &st.CatalogVersion}
	if err := r.Scan(append(dest, more...)...); err != nil {
		return st, err
	}

	st.Expiry = time.Duration(expiryMS) * time.Millisecond
	st.URL = db.storeURL(st)
	return st, nil
}

// scanProfile scans profileColumns.
func (db *DB) scanProfile(r row) (StoreProfile, error) { return db.scanProfileWith(r) }

// scanProfileWith scans profileColumns, and the columns after them into more.
func (db *DB) scanProfileWith(r row, more ...any) (p StoreProfile, err error) {
	own := []any{&p.Name, &p.OwnerEmail, &p.CreatedAt, &p.TestMode, &p.Contact}
	p.Store, err = db.scanStore(r, append(own, more...)...)
	return p, err
}

// storeURL is the address of a store's pages: its domain, else its subdomain, else the public address.
func (db *DB) storeURL(st Store) string {
	if st.Domain == "" && !db.subdomains {
		return db.publicURL
	}

	u, err := url.Parse(db.publicURL)
	if err != nil {
		return db.publicURL
	}
	host := cmp.Or(st.Domain, st.Slug+"."+u.Hostname())
	if u.Port() != "" {
		host += ":" + u.Port()
	}
	return u.Scheme + "://" + host
}

// payPage is the address of an order's hosted pay page.
func (st Store) payPage(orderID string) string { return st.URL + "/pay/" + orderID }

const sqlStore = "SELECT " + profileColumns + " FROM stores s WHERE s.id = ?"

// Store reads one store.
func (db *DB) Store(id string) (StoreProfile, error) {
	return queryOne(db.reader, db.scanProfile, sqlStore, id)
}

// Stores lists all stores, the oldest first.
func (db *DB) Stores() ([]StoreProfile, error) {
	return queryAll(db.reader, db.scanProfile, "SELECT "+profileColumns+" FROM stores s ORDER BY s.id")
}

// sqlStoreOf finds the store that a row belongs to, by the kind of row.
var sqlStoreOf = map[string]string{
	"store":    "SELECT id FROM stores WHERE id = ?",
	"key":      "SELECT store_id FROM api_keys WHERE id = ?",
	"endpoint": "SELECT store_id FROM endpoints WHERE id = ? AND removed_at IS NULL",
	"order":    "SELECT store_id FROM orders WHERE id = ?1 AND row = ?2",
	"delivery": `
		SELECT e.store_id
		FROM   deliveries d
		JOIN   endpoints e ON e.id = d.endpoint_id
		WHERE  d.id = ?1 AND d.row = ?2 AND e.removed_at IS NULL`,
}

// StoreOf returns the id of the store that a store, key, endpoint, order or delivery belongs to. The
// commands act on that store. A request only compares it with the store of its key or sign-in.
func (db *DB) StoreOf(kind, id string) (storeID string, err error) {
	args := []any{id}
	if kind == "order" || kind == "delivery" {
		args = append(args, rowOf(id))
	}
	return queryOne(db.reader, scanValue[string], sqlStoreOf[kind], args...)
}

// AddStore creates a store. Its id, address and time of creation are set here.
func (db *DB) AddStore(ctx context.Context, st StoreProfile, pw PasswordHash) (StoreProfile, error) {
	return writeResult(ctx, db, func(tx *Tx) (StoreProfile, error) {
		st.ID = tx.newID()
		st.CreatedAt = tx.now
		st.URL = db.storeURL(st.Store)
		if err := tx.checkStoreNames(st); err != nil {
			return st, err
		}

		_, err := tx.exec(`
			INSERT INTO stores (id, name, slug, domain, plan, expiry_ms, owner_email,
			                    password_salt, password_hash, created_at, test_mode, contact)
			VALUES (?, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?, ?)`,
			st.ID, st.Name, st.Slug, st.Domain, st.Plan, st.Expiry.Milliseconds(), st.OwnerEmail,
			pw.Salt, pw.Hash, st.CreatedAt, st.TestMode, st.Contact)
		return st, err
	})
}

// SetStore changes what edit changes of a store and returns the result.
func (db *DB) SetStore(ctx context.Context, id string, edit func(*StoreProfile) error) (StoreProfile, error) {
	return writeResult(ctx, db, func(tx *Tx) (StoreProfile, error) {
		st, err := queryOne(tx, db.scanProfile, sqlStore, id)
		if err != nil {
			return st, err
		}
		if err := edit(&st); err != nil {
			return st, err
		}
		if err := tx.checkStoreNames(st); err != nil {
			return st, err
		}

		_, err = tx.exec(`
			UPDATE stores
			SET    name = ?, slug = ?, domain = nullif(?, ''), plan = ?, expiry_ms = ?, owner_email = ?,
			       test_mode = ?, contact = ?
			WHERE  id = ?`,
			st.Name, st.Slug, st.Domain, st.Plan, st.Expiry.Milliseconds(), st.OwnerEmail,
			st.TestMode, st.Contact, id)
		st.URL = db.storeURL(st.Store)
		return st, err
	})
}

// checkStoreNames refuses a slug, domain or e-mail that another store has.
func (tx *Tx) checkStoreNames(st StoreProfile) error {
	var name, value string
	err := queryInto(tx, []any{&name, &value}, `
		SELECT name, value FROM (
			SELECT 1 AS rank, 'slug' AS name, slug AS value FROM stores WHERE slug = ?1 AND id <> ?4
			UNION ALL
			SELECT 2, 'domain', domain FROM stores WHERE domain = ?2 AND id <> ?4
			UNION ALL
			SELECT 3, 'email', owner_email FROM stores WHERE owner_email = ?3 AND id <> ?4)
		ORDER BY rank LIMIT 1`,
		st.Slug, st.Domain, st.OwnerEmail, st.ID)
	if err == errNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return &APIError{
		Code:    codeValidationFailed,
		Message: fmt.Sprintf("Another store has the %s %q.", name, value),
	}
}
