package main

// This file is about the store as a tenant: its settings, hosts and addresses.

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Plan is what a store pays for. Only PlanGrowth and PlanScale include the API.
type Plan string

const (
	PlanFree   Plan = "free"
	PlanGrowth Plan = "growth"
	PlanScale  Plan = "scale"
)

// ShopState says whether the store's public page sells.
type ShopState string

const (
	ShopOff    ShopState = "off" // there is no page
	ShopOpen   ShopState = "open"
	ShopClosed ShopState = "closed" // shows the goods, takes no orders
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
	Language   string        `json:"language"` // of messages to its owner's phone: id or en
	TestMode   bool          `json:"test"`     // offers the sandbox and gateways with a sandbox key
	CreatedAt  Time          `json:"created_at"`
	URL        string        `json:"url"` // where its pay pages are, without a trailing slash

	Shop            ShopState     `json:"shop"`
	ShopText        string        `json:"shop_text"` // address, hours and rules, on the shop page
	ShopHold        time.Duration `json:"-"`         // how long an order of the shop page waits for its payment
	ShopMaxQuantity int64         `json:"shop_max_quantity"`
}

// sqlStores reads stores s. url is where a store's pay pages are.
const sqlStores = `
	SELECT s.id, s.name, s.slug, coalesce(s.domain, '') AS domain, s.plan, s.expiry_ms * 1000000 AS expiry,
	       s.owner_email, s.contact, s.language, s.test_mode, s.created_at,
	       s.shop, s.shop_text, s.shop_hold_ms * 1000000 AS shop_hold, s.shop_max_quantity,
	       g.scheme || coalesce(s.domain, iif(g.subdomains, s.slug || '.', '') || g.host) || g.port AS url
	FROM   stores s, settings g
	`

// payPage returns the address of an order's hosted pay page.
func (st Store) payPage(orderID string) string { return st.URL + "/pay/" + orderID }

// shopPath is the path of the store's shop page.
func (st Store) shopPath() string { return "/shop/" + st.Slug }

// ShopURL returns the address of the shop page.
func (st Store) ShopURL() string { return st.URL + st.shopPath() }

// shownShop returns what the API says about the shop page.
func (st Store) shownShop() jsonObject {
	return jsonObject{"status": st.Shop, "url": st.ShopURL(), "hold_minutes": int64(st.ShopHold.Minutes()),
		"max_quantity": st.ShopMaxQuantity, "text": st.ShopText}
}

// pictureURL returns the address of a picture: an uploaded one is a path of ours.
func (st Store) pictureURL(picture *string) *string {
	if picture == nil || !strings.HasPrefix(*picture, "/") {
		return picture
	}
	return new(st.URL + *picture)
}

// IsLocal reports whether the store's pay pages cannot be opened from the internet.
func (st Store) IsLocal() bool {
	u, err := url.Parse(st.URL)
	return err != nil || isPrivateHost(u.Hostname())
}

// store reads a store in a write. It is empty if there is none.
func (tx *Tx) store(id string) (st Store) {
	tx.find(&st, sqlStores+"WHERE s.id = ?", id)
	return st
}

// Stores lists all stores, the oldest first.
func (db *DB) Stores(ctx context.Context) ([]Store, error) {
	return all[Store](ctx, db, sqlStores+"ORDER BY s.id")
}

// onlyStore returns the store if there is just one.
func (db *DB) onlyStore(ctx context.Context) (Store, error) {
	return one[Store](ctx, db, sqlStores+"WHERE (SELECT count(*) FROM (SELECT 1 FROM stores LIMIT 2)) = 1")
}

// StoreAt returns the store that a host belongs to, by its domain or its subdomain. The public host belongs
// to no store.
func (db *DB) StoreAt(ctx context.Context, host string) (Store, error) {
	host, _, _ = strings.Cut(host, ":")
	host = strings.TrimSuffix(host, ".")
	const where = "WHERE s.domain = ?1 AND g.host <> ?1 OR g.subdomains AND s.slug || '.' || g.host = ?1"
	return one[Store](ctx, db, sqlStores+where, strings.ToLower(host))
}

// StoreOf returns a store by what is known of it, which kind says: its id, its slug, either of them (store: people type
// both), or the id of a key, endpoint, order or delivery that belongs to it.
func (db *DB) StoreOf(ctx context.Context, kind, id string) (Store, error) {
	storeID := map[string]string{
		"id":       "?",
		"slug":     "(SELECT id FROM stores WHERE slug = ?)",
		"store":    "(SELECT id FROM stores WHERE ?1 IN (id, slug) ORDER BY slug = ?1 LIMIT 1)",
		"key":      "(SELECT store_id FROM api_keys WHERE id = ?)",
		"endpoint": "(SELECT store_id FROM endpoints WHERE id = ? AND removed_at = 0)",
		"order":    "(SELECT store_id FROM orders WHERE id = ?)",
		"delivery": `(
			SELECT e.store_id
			FROM   deliveries d JOIN endpoints e ON e.id = d.endpoint_id
			WHERE  d.id = ? AND e.removed_at = 0)`,
	}[kind]
	return one[Store](ctx, db, sqlStores+"WHERE s.id = "+storeID, id)
}

// PasswordHash is a password as it is stored.
type PasswordHash struct{ Salt, Hash []byte }

// AddStore creates a store. Its id, address and time of creation are set here.
func (db *DB) AddStore(ctx context.Context, st Store, hash PasswordHash) (Store, error) {
	return writeFor(ctx, db, func(tx *Tx) (Store, error) {
		st.ID = tx.newID()
		st.CreatedAt = tx.now
		tx.exec(`
			INSERT INTO stores (id, name, slug, plan, expiry_ms, owner_email,
			                    password_salt, password_hash, created_at)
			VALUES (?1, '', ?1, 'free', 600000, ?1, ?2, ?3, ?4)`,
			st.ID, hash.Salt, hash.Hash, st.CreatedAt)
		return tx.putStore(Store{}, st)
	})
}

// SetStore applies edit to a store and returns the result.
func (db *DB) SetStore(ctx context.Context, id string, edit func(*Store)) (Store, error) {
	return writeFor(ctx, db, func(tx *Tx) (Store, error) {
		st := tx.store(id)
		if st.ID == "" {
			return st, ErrNotFound
		}
		was := st
		edit(&st)
		tx.keysChanged = true
		return tx.putStore(was, st)
	})
}

// settings is the form of a store's settings.
type settings struct {
	Name     string `json:"name" rule:"text 1..100"`
	Contact  string `json:"contact" rule:"contact optional"`
	Hours    *int64 `json:"expiry_hours" rule:"int 1..168 optional"` // nil = it is not a whole number, and stays
	Language string `json:"language" rule:"choice id|en"`
	TestMode bool   `json:"test_mode" rule:"bool"`
	Given    map[string]bool
}

// Settings returns what the form shows of a store.
func (st Store) Settings() settings {
	in := settings{Name: st.Name, Contact: st.Contact, Language: st.Language, TestMode: st.TestMode}
	if hours := int64(st.Expiry.Hours()); st.Expiry%time.Hour == 0 {
		in.Hours = &hours
	}
	return in
}

// applySettings gives a store what its form has.
func (st *Store) applySettings(in settings) {
	st.Name = in.Name
	st.Contact = in.Contact
	st.Language = in.Language
	st.TestMode = in.TestMode
	if in.Hours != nil {
		st.Expiry = time.Duration(*in.Hours) * time.Hour
	}
}

// putStore writes a store's row, and returns the store with its address. was is the store before, empty for a new one.
// It refuses a domain, e-mail address or slug that another store has, and an opening of the shop page that sells
// nothing.
func (tx *Tx) putStore(was, st Store) (Store, error) {
	refusal := refuse(ValidationFailed)
	for _, own := range []struct{ column, value string }{
		{"domain", st.Domain}, {"owner_email", st.OwnerEmail}, {"slug", st.Slug},
	} {
		if tx.count("SELECT count(*) FROM stores WHERE "+own.column+" = ? AND id <> ?", own.value, st.ID) > 0 {
			refusal.add(own.column, "belongs to another store: %q", own.value)
		}
	}
	if st.Shop == ShopOpen && was.Shop != ShopOpen {
		tx.refuseOpening(st, refusal)
	}
	if err := refusal.orNil(); err != nil {
		return st, err
	}

	tx.exec(`
		UPDATE stores
		SET    name = ?, slug = ?, domain = nullif(?, ''), plan = ?, expiry_ms = ?, owner_email = ?,
		       contact = ?, language = ?, test_mode = ?, shop = ?, shop_text = ?, shop_hold_ms = ?,
		       shop_max_quantity = ?
		WHERE  id = ?`,
		st.Name, st.Slug, st.Domain, st.Plan, st.Expiry.Milliseconds(), st.OwnerEmail,
		st.Contact, st.Language, st.TestMode, st.Shop, st.ShopText, st.ShopHold.Milliseconds(), st.ShopMaxQuantity, st.ID)
	return tx.store(st.ID), nil
}

// setPublicURL records the public address of the service, also for the commands.
func (db *DB) setPublicURL(publicURL string, subdomains bool) error {
	u, err := url.Parse(publicURL)
	if err != nil { // The rule of the flag accepts some invalid hosts, such as [::::1].
		return fmt.Errorf("-public-url must be an address such as https://orders.example.id (%w)", err)
	}
	host := strings.TrimSuffix(u.Host, ":"+u.Port())
	return db.mustChange(context.Background(),
		"UPDATE settings SET scheme = ?, host = ?, port = ?, subdomains = ?",
		u.Scheme+"://", host, u.Host[len(host):], subdomains)
}

// publicURL returns the public address of the service, without a slash at its end.
func (db *DB) publicURL(ctx context.Context) (string, error) {
	return one[string](ctx, db, "SELECT scheme || host || port FROM settings")
}
