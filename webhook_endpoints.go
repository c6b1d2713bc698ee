package main

// This file has the endpoints, which are a store's own programs and its owner's phones. It also has the list of events,
// and resending.

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"
)

// EndpointKind says what an endpoint is.
type EndpointKind string

const (
	Webhook EndpointKind = "webhook"
	Phone   EndpointKind = "ntfy" // an owner's phone, through a topic of an ntfy server
)

// Endpoint is where a store's events go.
type Endpoint struct {
	ID        string       `json:"endpoint_id"`
	Kind      EndpointKind `json:"kind"`
	URL       string       `json:"url"`
	Events    []EventName  `json:"events"` // empty: all
	Active    bool         `json:"active"`
	OffReason string       `json:"off_reason,omitempty"` // owner, or gone: the receiver answered 410
	CreatedAt Time         `json:"created_at"`
	Fails     bool         `json:"-"`                            // it is on, and the latest one tried did not arrive
	Recent    []Delivery   `json:"deliveries,omitempty" sql:"-"` // the latest first
}

const sqlEndpoints = `
	SELECT id, kind, url, events, off = '' AS active, off AS off_reason, created_at, coalesce((
		SELECT status <> 'delivered'
		FROM   deliveries
		WHERE  endpoint_id = e.id AND attempt > 0 AND e.off = ''
		ORDER  BY event DESC
		LIMIT  1), 0) AS fails
	FROM   endpoints e
	WHERE  removed_at = 0 AND `

// Endpoints lists a store's endpoints, the oldest first, without their deliveries.
func (db *DB) Endpoints(ctx context.Context, storeID string) ([]Endpoint, error) {
	return all[Endpoint](ctx, db, sqlEndpoints+"store_id = ? ORDER BY id", storeID)
}

// Endpoint reads one endpoint of a store, without its deliveries.
func (db *DB) Endpoint(ctx context.Context, storeID, id string) (Endpoint, error) {
	return one[Endpoint](ctx, db, sqlEndpoints+"id = ? AND store_id = ?", id, storeID)
}

// NewEndpoint is an endpoint to be added.
type NewEndpoint struct {
	Kind         EndpointKind
	URL          string      `json:"url" rule:"text 1..2048"`
	Events       []EventName `json:"events" rule:"events 0..20 optional"` // none: all
	AllowPrivate bool        // also http and private addresses
}

// validate refuses a forbidden address or event. The IP addresses of a name can change, so they are checked at each
// dial (refusePrivate).
func (in NewEndpoint) validate() error {
	refusal := refuse(ValidationFailed)
	u, err := url.Parse(in.URL)
	switch {
	case err != nil || u.Hostname() == "" || len(in.URL) > 2048 || strings.Contains(in.URL, " "):
		refusal.add("url", "must be an address such as %s", "https://shop.example.id/webhooks")
	case u.Scheme != "https" && !(in.AllowPrivate && u.Scheme == "http"):
		refusal.add("url", "must begin with https:// (http needs -webhook-allow-private)")
	case u.User != nil || strings.Contains(in.URL, "#"):
		refusal.add("url", "must have no user, password or #fragment")
	case !in.AllowPrivate && isPrivateHost(u.Hostname()):
		refusal.add("url", "must be public (private addresses need -webhook-allow-private)")
	}
	for _, name := range in.Events {
		if !slices.Contains(EventNames, name) {
			refusal.add("events", "has %q, which is not an event: choose from %s", name, EventNames)
		}
	}
	return refusal.orNil()
}

// maxEndpoints is how many endpoints a store can have. Each event is a delivery to each of them.
const maxEndpoints = 10

// AddEndpoint adds an endpoint. Its secret is shown only this once.
func (db *DB) AddEndpoint(
	ctx context.Context, storeID string, in NewEndpoint,
) (id, secret string, err error) {
	if err := in.validate(); err != nil {
		return "", "", err
	}

	secret = "whsec_" + newSecret()
	err = db.write(ctx, func(tx *Tx) error {
		if tx.count("SELECT count(*) FROM endpoints WHERE store_id = ? AND removed_at = 0", storeID) >= maxEndpoints {
			return refuse(LimitReached)
		}

		id = tx.newID()
		tx.exec(`
			INSERT INTO endpoints (id, store_id, kind, url, events, secret, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, id, storeID, in.Kind, in.URL,
			fromJSON{in.Events}, secret, tx.now)
		return nil
	})
	return id, secret, err
}

// RotateSecret gives an endpoint a new secret. For 24 hours the old secret signs too. A second call within a minute is
// a double click. It replaces the new secret, and the old one stays.
func (db *DB) RotateSecret(ctx context.Context, storeID, id string) (secret string, err error) {
	secret = "whsec_" + newSecret()
	return secret, db.mustChange(ctx, `
		UPDATE endpoints
		SET    old_secret = iif(old_secret_until > ?1 - 60000, old_secret, secret), old_secret_until = ?1, secret = ?2
		WHERE  id = ?3 AND store_id = ?4 AND removed_at = 0`, db.now().Add(24*time.Hour), secret, id, storeID)
}

// SetEndpointActive turns an endpoint on or off for its owner. While it is off its deliveries wait.
func (db *DB) SetEndpointActive(ctx context.Context, storeID, id string, active bool) error {
	return db.mustChange(ctx, `
		UPDATE endpoints
		SET    off = iif(?, '', 'owner'), did_well = 0
		WHERE  id = ? AND store_id = ? AND removed_at = 0`, active, id, storeID)
}

// SetEndpointEvents chooses the events that an endpoint takes from now on; none means all.
func (db *DB) SetEndpointEvents(ctx context.Context, storeID, id string, events []EventName) error {
	return db.mustChange(ctx, `
		UPDATE endpoints
		SET    events = ?
		WHERE  id = ? AND store_id = ? AND removed_at = 0`,
		fromJSON{events}, id, storeID)
}

// RemoveEndpoint hides an endpoint and turns it off. There may be a million deliveries, so purge deletes them in small
// writes within the hour, and then the endpoint.
func (db *DB) RemoveEndpoint(ctx context.Context, storeID, id string) error {
	return db.mustChange(ctx, `
		UPDATE endpoints SET removed_at = ?, off = 'owner' WHERE id = ? AND store_id = ? AND removed_at = 0`,
		db.now(), id, storeID)
}

// Ping sends an endpoint an event without an order.
func (db *DB) Ping(ctx context.Context, storeID, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.addDelivery(tx.writeEvent(storeID, "", 0, Ping, "{}"), id)
	})
}

// Event is an event as it was sent.
type Event struct {
	ID   string
	Body string
}

// EventFilter selects a store's events. An empty field other than Limit selects all.
type EventFilter struct {
	After      string    `json:"after" rule:"text 1..100 optional"`   // an event's id: only later ones
	CreatedMin Time      `json:"created_at_min" rule:"time optional"` // inclusive
	Event      EventName `json:"event" rule:"event optional"`
	OrderID    string    `json:"order_id" rule:"id optional"`
	Limit      int64     `json:"limit" rule:"int 1..50 =20"`
}

// Events lists a store's events in the order in which they were written. more says that others follow. If
// After is not an event of the store, or is no longer kept, it returns ErrNotFound.
func (db *DB) Events(
	ctx context.Context, storeID string, f EventFilter,
) (events []Event, more bool, err error) {
	after := int64(0)
	if f.After != "" {
		after, err = one[int64](ctx, db,
			"SELECT number FROM events WHERE id = ? AND store_id = ?", f.After, storeID)
		if err != nil {
			return nil, false, err
		}
	}

	where, args := "store_id = ?1 AND number > ?2 AND created_at >= ?3 AND (?4 = '' OR event = ?4)",
		[]any{storeID, after, f.CreatedMin, f.Event}
	if f.OrderID != "" {
		where, args = where+" AND order_id = ?", append(args, f.OrderID)
	}
	return some[Event](ctx, db, f.Limit, 0,
		"SELECT id, body FROM events WHERE "+where+" ORDER BY number LIMIT +? OFFSET ?", args...)
}

// Resend makes a delivery due again, from its first attempt, even if it was delivered.
func (db *DB) Resend(ctx context.Context, storeID, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		tx.webhooksDue = true
		return tx.mustChange(`
			UPDATE deliveries
			SET    status = 'pending', attempt = 0, next_at = ?
			WHERE  id = ?
			AND    endpoint_id IN (SELECT id FROM endpoints WHERE store_id = ? AND removed_at = 0)`,
			tx.now, id, storeID)
	})
}

// ResendSince makes those deliveries of an endpoint due again that were not acknowledged, for events from since on. n
// is their number.
func (db *DB) ResendSince(ctx context.Context, storeID, endpointID string, since Time) (n int64, err error) {
	err = db.enqueue(ctx, db.large, func(tx *Tx) error {
		n = tx.exec(`
			UPDATE deliveries
			SET    status = 'pending', attempt = 0, next_at = ?
			WHERE  endpoint_id = ? AND status <> 'delivered'
			AND    event IN (SELECT number FROM events WHERE store_id = ? AND created_at >= ?)`,
			tx.now, endpointID, storeID, since)
		return nil
	})
	return n, err
}
