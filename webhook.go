package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Webhooks tell a store's own programs, and its owner's phone, what happens to orders.
//
// The creation of an order, and each change of its state or alerts, has an event. Its bytes are written once,
// in the transaction of the change, with a delivery for each endpoint that wants it, and every attempt sends
// the same bytes with a fresh signature. A delivery is tried up to ten times in some 75 hours, until the
// receiver answers 2xx. It can arrive twice, because nothing is written before it is sent: a delivery is due
// until the result of an attempt says otherwise. An endpoint gets an order's events in order as long as it
// acknowledges them: the next one waits while an attempt is under way, and overtakes one that failed. A
// receiver that is slow, or down, delays its own deliveries; once 128 attempts to such receivers hang, they
// delay each other and new ones (mayBegin). Only its owner or a 410 answer turns an endpoint off: one that
// always fails stays on.

// EventName says what an event reports.
type EventName string

const (
	OrderCreated              EventName = "orderCreated"
	OrderAwaitingVerification EventName = "orderAwaitingVerification"
	OrderPaid                 EventName = "orderPaid"
	OrderFailed               EventName = "orderFailed"
	OrderExpired              EventName = "orderExpired"
	OrderRefunded             EventName = "orderRefunded"
	OrderPending              EventName = "orderPending" // it waits for its payment again
	OrderAlerted              EventName = "orderAlerted" // its alerts have changed
	Ping                      EventName = "ping"         // a trial, without an order; every endpoint takes it
)

// EventNames are all the names that a store's events can have.
var EventNames = []EventName{
	OrderCreated, OrderAwaitingVerification, OrderPaid, OrderFailed,
	OrderExpired, OrderRefunded, OrderPending, OrderAlerted, Ping,
}

// addEvent writes an event of the order as it was rendered last, and its deliveries, which are due at once.
// It returns the order as the event shows it. An endpoint that is off gets deliveries too: they wait until it
// is on. No phone rings when alerts are cleared.
func (tx *Tx) addEvent(o *OrderRow, st Store, name EventName) (shown string) {
	shown = strings.Join(st.show(o.StoredOrder, ""), "")
	o.Events++
	eventID := tx.writeEvent(o.StoreID, o.ID, o.Events, name, `{"order":`+shown+"}")

	endpoints, _ := all[string](tx, tx, `
		SELECT id
		FROM   endpoints
		WHERE  store_id = ? AND (events = '[]' OR EXISTS (SELECT 1 FROM json_each(events) WHERE value = ?))
		       AND NOT (kind = 'ntfy' AND ?)
		ORDER BY id`, o.StoreID, name, name == OrderAlerted && o.Order.Alerts == nil)
	for _, id := range endpoints { // The event and the endpoint exist, so the only possible error is the write's.
		tx.addDelivery(eventID, id)
	}
	return shown
}

// writeEvent writes the bytes that are signed and sent.
func (tx *Tx) writeEvent(storeID, orderID string, sequence int64, name EventName, data string) (id string) {
	id = "evt_" + tx.newID()
	body := fmt.Sprintf(`{"id":"%s","event":"%s","created_at":"%s","store_id":"%s","sequence":%d,"data":%s}`,
		id, name, tx.now, storeID, sequence, data)

	tx.exec(`
		INSERT INTO events (id, store_id, order_id, event, created_at, body)
		VALUES (?, ?, nullif(?, ''), ?, ?, ?)`, id, storeID, orderID, name, tx.now, body)
	return id
}

// addDelivery makes an event due at an endpoint of its store.
func (tx *Tx) addDelivery(eventID, endpointID string) error {
	tx.webhooksDue = true
	return tx.mustChange(`
		INSERT INTO deliveries (id, endpoint_id, event, next_at)
		SELECT ?, e.id, v.number, ?
		FROM   events v
		JOIN   endpoints e ON e.store_id = v.store_id
		WHERE  v.id = ? AND e.id = ?`, tx.newID(), tx.now, eventID, endpointID)
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
	OffReason string       `json:"off_reason,omitempty"` // owner; gone: the receiver answered 410
	CreatedAt Time         `json:"created_at"`
	Fails     bool         `json:"-"`                    // it is on, and the newest delivery that was tried has not arrived
	Recent    []Delivery   `json:"deliveries,omitempty"` // the latest first
}

const sqlEndpoints = `
	SELECT id, kind, url, events, off = '', off, created_at, coalesce((
		SELECT status <> 'delivered'
		FROM   deliveries
		WHERE  endpoint_id = e.id AND attempt > 0 AND e.off = ''
		ORDER  BY event DESC
		LIMIT  1), 0)
	FROM   endpoints e
	WHERE  `

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
	URL          string
	Events       []EventName // none: all
	AllowPrivate bool        // also http and private addresses
}

// check refuses an address or an event that is not allowed. The IP addresses of a name can change: they are
// checked whenever it is dialed (refusePrivate).
func (in NewEndpoint) check() error {
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

// isPrivateHost reports whether a host, by its name or address alone, cannot be reached from the internet.
func isPrivateHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return !isPublic(ip)
	}
	name := strings.ToLower(host)
	top := name[strings.LastIndexByte(name, '.')+1:]
	return slices.Contains([]string{name, "localhost", "local", "internal"}, top)
}

// isLocal reports whether buyers on the internet cannot open the store's pay pages.
func (st Store) isLocal() bool {
	u, err := url.Parse(st.URL)
	return err != nil || isPrivateHost(u.Hostname())
}

// isReachable reports whether a gateway can reach an address, so that its notifications arrive.
func isReachable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && !isPrivateHost(u.Hostname())
}

// setAddress records where the service is reached, for the commands too.
func (db *DB) setAddress(publicURL string, subdomains bool) error {
	u, err := url.Parse(publicURL)
	if err != nil { // The rule of its flag takes some hosts that are none, such as [::::1].
		return fmt.Errorf("-public-url must be an address such as https://orders.example.id (%w)", err)
	}
	host := strings.TrimSuffix(u.Host, ":"+u.Port())
	return db.change(context.Background(),
		"UPDATE settings SET scheme = ?, host = ?, port = ?, subdomains = ?",
		u.Scheme+"://", host, u.Host[len(host):], subdomains)
}

// publicURL returns where the service is reached, without a slash at its end.
func (db *DB) publicURL(ctx context.Context) string {
	address, _ := one[string](ctx, db, "SELECT scheme || host || port FROM settings")
	return address
}

// maxEndpoints is how many endpoints a store can have. Each event is a delivery to each of them.
const maxEndpoints = 10

// AddEndpoint adds an endpoint. Its secret is shown only this once.
func (db *DB) AddEndpoint(
	ctx context.Context, storeID string, in NewEndpoint,
) (id, secret string, err error) {
	if err := in.check(); err != nil {
		return "", "", err
	}

	secret = "whsec_" + newSecret()
	err = db.write(ctx, func(tx *Tx) error {
		n, _ := one[int](tx, tx, "SELECT count(*) FROM endpoints WHERE store_id = ?", storeID)
		if n >= maxEndpoints {
			return refuse(LimitReached)
		}

		id = tx.newID()
		tx.exec(`
			INSERT INTO endpoints (id, store_id, kind, url, events, secret, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, id, storeID, in.Kind, in.URL,
			fromJSON{append([]EventName{}, in.Events...)}, secret, tx.now) // [], not null
		return nil
	})
	return id, secret, err
}

// RotateSecret gives an endpoint a new secret. For 24 hours the old one signs too. A second call within a
// minute is a double click: it replaces the new secret, and the old one stays.
func (db *DB) RotateSecret(ctx context.Context, storeID, id string) (secret string, err error) {
	secret = "whsec_" + newSecret()
	return secret, db.change(ctx, `
		UPDATE endpoints
		SET    old_secret = iif(old_secret_until > ?1 - 60000, old_secret, secret), old_secret_until = ?1, secret = ?2
		WHERE  id = ?3 AND store_id = ?4`, db.now().Add(24*time.Hour), secret, id, storeID)
}

// SetEndpointActive turns an endpoint on or off for its owner. While it is off its deliveries wait.
func (db *DB) SetEndpointActive(ctx context.Context, storeID, id string, active bool) error {
	return db.change(ctx, `
		UPDATE endpoints
		SET    off = iif(?, '', 'owner'), did_well = 0
		WHERE  id = ? AND store_id = ?`, active, id, storeID)
}

// RemoveEndpoint deletes an endpoint with its deliveries. There may be a million, so it is turned off first,
// and they are deleted in small writes: if one fails, the owner sees an endpoint that is off, and can remove
// it again.
func (db *DB) RemoveEndpoint(ctx context.Context, storeID, id string) error {
	err := db.SetEndpointActive(ctx, storeID, id, false)
	if err == nil {
		err = db.deleteRows(ctx, `
			DELETE FROM deliveries
			WHERE  id IN (SELECT id FROM deliveries WHERE endpoint_id = ? LIMIT ?)`, id)
	}
	if err == nil {
		err = db.change(ctx, "DELETE FROM endpoints WHERE id = ?", id)
	}
	return err
}

// deleteRows runs a statement that deletes rows in small writes, until it deletes fewer than its last
// parameter.
func (db *DB) deleteRows(ctx context.Context, statement string, arg any) error {
	const most = 100
	for {
		deleted := int64(0)
		err := db.write(ctx, func(tx *Tx) error {
			deleted = tx.exec(statement, arg, most)
			return nil
		})
		if err != nil || deleted < most {
			return err
		}
	}
}

// purge deletes what is too old to be needed. Orders, their history and payments are kept for good.
func (db *DB) purge(ctx context.Context, keepEvents time.Duration) (err error) {
	now := db.now()
	for statement, before := range map[string]Time{
		`DELETE FROM events WHERE number IN
			(SELECT number FROM events WHERE created_at < ? ORDER BY created_at LIMIT ?)`: now.Add(-keepEvents),
		`DELETE FROM idempotency_keys WHERE (store_id, key) IN
			(SELECT store_id, key FROM idempotency_keys WHERE created_at < ? LIMIT ?)`: now.Add(-48 * time.Hour),
		`DELETE FROM sign_ins WHERE hash IN (SELECT hash FROM sign_ins WHERE ends_at < ? LIMIT ?)`: now,
	} {
		err = cmp.Or(err, db.deleteRows(ctx, statement, before))
	}
	return err
}

// Ping sends an endpoint an event without an order.
func (db *DB) Ping(ctx context.Context, storeID, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.addDelivery(tx.writeEvent(storeID, "", 0, Ping, "{}"), id)
	})
}

// DeliveryStatus is where a delivery stands.
type DeliveryStatus string

const (
	deliveryPending   DeliveryStatus = "pending"
	deliveryDelivered DeliveryStatus = "delivered" // acknowledged
	deliveryFailed    DeliveryStatus = "failed"    // given up until it is sent again
)

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID           string         `json:"delivery_id"`
	EventID      string         `json:"event_id"`
	Event        EventName      `json:"event"`
	OrderID      string         `json:"order_id,omitempty"`
	EndpointID   string         `json:"-"`
	Status       DeliveryStatus `json:"status"`
	Attempt      int            `json:"attempt"`          // attempts that have ended
	NextAt       Time           `json:"next_at,omitzero"` // 0: it is done, or its endpoint is off
	TriedAt      Time           `json:"tried_at,omitzero"`
	AnswerStatus int            `json:"answer_status,omitempty"` // HTTP; 0: there was no answer
	Answer       string         `json:"answer,omitempty"`        // its first bytes, or why there was none
	CreatedAt    Time           `json:"created_at"`
}

// Deliveries lists the deliveries to a store's endpoint, the latest first.
func (db *DB) Deliveries(ctx context.Context, storeID, endpointID string, most int) ([]Delivery, error) {
	return db.deliveries(ctx, "d.endpoint_id", endpointID, storeID, most)
}

// OrderDeliveries lists the deliveries of an order's events, the latest first.
func (db *DB) OrderDeliveries(ctx context.Context, storeID, orderID string, most int) ([]Delivery, error) {
	return db.deliveries(ctx, "v.order_id", orderID, storeID, most)
}

func (db *DB) deliveries(ctx context.Context, column, id, storeID string, most int) ([]Delivery, error) {
	return all[Delivery](ctx, db, `
		SELECT d.id, v.id, v.event, coalesce(v.order_id, ''), e.id, d.status, d.attempt,
		       iif(e.off = '', coalesce(d.next_at, 0), 0), d.tried_at, d.answer_status, d.answer, v.created_at
		FROM   deliveries d
		JOIN   events v ON v.number = d.event
		JOIN   endpoints e ON e.id = d.endpoint_id
		WHERE  `+column+` = ? AND +e.store_id = ?
		ORDER BY d.event DESC, d.id DESC
		LIMIT  ?`, id, storeID, most)
}

// Resend makes a delivery due again, from its first attempt, even if it was delivered.
func (db *DB) Resend(ctx context.Context, storeID, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		tx.webhooksDue = true
		return tx.mustChange(`
			UPDATE deliveries
			SET    status = 'pending', attempt = 0, next_at = ?
			WHERE  id = ? AND endpoint_id IN (SELECT id FROM endpoints WHERE store_id = ?)`, tx.now, id, storeID)
	})
}

// ResendSince makes the deliveries of an endpoint due again that were not acknowledged and whose event is
// from since or later. n is how many there are.
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

// sign returns the HMAC-SHA256 of "<t>.<body>" in hex, t in Unix seconds, keyed with all bytes of the secret
// as shown.
func sign(secret string, t int64, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", t, body)
	return hex.EncodeToString(mac.Sum(nil))
}

// The queue sends what is due. It writes nothing before it sends: what is under way is known only in its
// memory. That is enough: one process serves a file, and after a crash a delivery is still due, at its old
// time. Every attempt ends with a written result, unless a shutdown cuts it off, its endpoint was removed or
// turned off before it was sent, or its delivery was resent during the second or a later attempt. The queue
// looks for due deliveries when something was written, an attempt has ended or the next one is due; while an
// endpoint has an attempt under way, it waits for that to end, not for the next due time.
//
// All its state belongs to the goroutine of run.
type queue struct {
	db        *DB
	transport http.RoundTripper // newTransport's, except in tests

	underWay []dueDelivery
	paused   map[string]time.Time // until when, by endpoint
	ended    chan dueDelivery
}

// newQueue returns a queue that is not running. Without a transport it sends over the network.
func newQueue(db *DB, transport http.RoundTripper, allowPrivate bool) *queue {
	if transport == nil {
		transport = newTransport(allowPrivate)
	}
	return &queue{
		db:        db,
		transport: transport,
		paused:    map[string]time.Time{},
		ended:     make(chan dueDelivery, mostUnderWay),
	}
}

// run delivers until ctx ends. The attempts under way then have five seconds to end.
func (q *queue) run(ctx context.Context) {
	untilCutOff, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()

	for ctx.Err() == nil {
		wait := q.sendDue(untilCutOff)
		select {
		case <-q.db.webhooksDue: // after a commit, or by watch: five seconds at most after any write
		case d := <-q.ended:
			q.end(d)
		case <-time.After(wait):
		case <-ctx.Done():
		}

		for len(q.ended) > 0 { // One pass serves all that have ended together.
			q.end(<-q.ended)
		}
	}

	defer time.AfterFunc(5*time.Second, cutOff).Stop()
	for len(q.underWay) > 0 {
		q.end(<-q.ended)
	}
}

// watch wakes the queue and the checks when the file was written, so that they notice within five seconds
// what commands do, and that the dashboard has turned an endpoint on.
func (db *DB) watch(ctx context.Context) {
	var before time.Time
	for ctx.Err() == nil {
		if info, err := os.Stat(db.path + "-wal"); err == nil && info.ModTime() != before {
			before = info.ModTime()
			wake(db.webhooksDue)
			wake(db.checksDue)
		}

		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
	}
}

// wake tells a loop that there may be something to do. It does not block.
func wake(due chan struct{}) {
	select {
	case due <- struct{}{}:
	default:
	}
}

const (
	mostUnderWay   = 256              // attempts
	mostOfEndpoint = 4                // of them to one endpoint
	longestAttempt = 15 * time.Second // in all; at most 5 s to connect, and 5 s for TLS
	slowAnswer     = 2 * time.Second
	pauseOfFailing = time.Second // between the attempts to an endpoint that fails or is slow
)

// mayBegin bounds the attempts under way. An endpoint that did well may have four, and its first may begin
// while fewer than 256 are under way in all. Everything else begins only while fewer than 128 are. An
// endpoint that is new, was just turned on, or whose last attempt failed or was slow has one at a time, and
// pauses after each that fails or is slow.
func (q *queue) mayBegin(e waitingEndpoint) bool {
	ofEndpoint := 0
	for _, d := range q.underWay {
		if d.EndpointID == e.ID {
			ofEndpoint++
		}
	}
	switch {
	case !e.DidWell:
		return ofEndpoint == 0 && len(q.underWay) < mostUnderWay/2
	case ofEndpoint == 0:
		return len(q.underWay) < mostUnderWay
	}
	return ofEndpoint < mostOfEndpoint && len(q.underWay) < mostUnderWay/2
}

// waitingEndpoint is an endpoint with deliveries that wait, or are under way.
type waitingEndpoint struct {
	ID      string
	DidWell bool
	Next    Time // when the first of them is, or was, due
}

// sendDue begins the attempts that are due and may begin. It returns how long to sleep if nothing wakes it:
// until the next delivery or the end of a pause, a minute at most because somebody may set the clock.
func (q *queue) sendDue(untilCutOff context.Context) time.Duration {
	// The endpoints in the index, one after the other, without reading all their deliveries.
	endpoints, err := all[waitingEndpoint](context.Background(), q.db, `
		WITH RECURSIVE waiting (id) AS (
			SELECT min(endpoint_id) FROM deliveries WHERE next_at IS NOT NULL
			UNION ALL
			SELECT (SELECT min(endpoint_id) FROM deliveries WHERE next_at IS NOT NULL AND endpoint_id > w.id)
			FROM   waiting w
			WHERE  id IS NOT NULL
		)
		SELECT e.id, e.did_well,
		       (SELECT min(next_at) FROM deliveries WHERE endpoint_id = e.id AND next_at IS NOT NULL)
		FROM   waiting w
		JOIN   endpoints e ON e.id = w.id
		WHERE  e.off = ''
		ORDER BY random()`)
	wait := time.Minute
	now := q.db.now()
	for _, e := range endpoints {
		untilNext := max(e.Next.Sub(now), time.Until(q.paused[e.ID]))
		if untilNext > 0 {
			wait = min(wait, untilNext)
		} else if q.mayBegin(e) { // If not, it is looked at again when an attempt ends.
			err = cmp.Or(err, q.sendTo(untilCutOff, e, now))
		}
	}

	if err != nil {
		q.db.log.Error("webhooks: cannot read due deliveries; trying again", "error", err)
		return time.Second
	}
	return wait
}

// dueDelivery is a delivery that is due.
type dueDelivery struct {
	EndpointID, ID, OrderID string
	Attempts                int  // that have ended
	didWell                 bool // set by its attempt: it was acknowledged, and quickly
}

// sendTo begins attempts to an endpoint for the deliveries that have been due longest. A delivery waits while
// another one of its order is under way there. If that one fails, this one is due earlier than the retry, and
// goes first.
func (q *queue) sendTo(untilCutOff context.Context, e waitingEndpoint, now Time) error {
	due, err := all[dueDelivery](context.Background(), q.db, `
		SELECT d.endpoint_id, d.id, coalesce(v.order_id, ''), d.attempt
		FROM   deliveries d
		CROSS JOIN events v ON v.number = d.event
		WHERE  d.endpoint_id = ? AND d.next_at <= ?
		ORDER BY d.next_at, d.id
		LIMIT  16`, e.ID, now)
	for _, d := range due {
		if !q.mayBegin(e) {
			break
		}

		waits := slices.ContainsFunc(q.underWay, func(other dueDelivery) bool {
			isOfOrder := other.OrderID == d.OrderID && other.EndpointID == d.EndpointID
			return other.ID == d.ID || isOfOrder && d.OrderID != "" // A ping has no order.
		})
		if waits {
			continue
		}

		q.underWay = append(q.underWay, d)
		go func() { q.ended <- q.attempt(untilCutOff, d) }()
	}
	return err
}

// end notes that the attempt of a delivery has ended, and makes its endpoint pause if it did not go well.
func (q *queue) end(d dueDelivery) {
	q.underWay = slices.DeleteFunc(q.underWay, func(other dueDelivery) bool { return other.ID == d.ID })
	if !d.didWell {
		q.paused[d.EndpointID] = time.Now().Add(pauseOfFailing)
	}
}

// attempt sends a delivery once, writes what came of it, and returns the delivery with didWell. If the
// service stops first, nothing is written: the delivery stays due.
func (q *queue) attempt(untilCutOff context.Context, d dueDelivery) dueDelivery {
	begun := time.Now()
	s, a, err := q.send(untilCutOff, d)
	if errors.Is(err, ErrNotFound) || untilCutOff.Err() != nil {
		return d // The endpoint was removed or turned off before this was sent, or the service stops.
	}

	number := d.Attempts + 1
	status, wait := afterAttempt(number, a.code, a.retryAfter, 0.8+0.4*rand.Float64())
	if s.Kind == Phone && status == deliveryPending && q.db.now().Add(wait).Sub(s.CreatedAt) > time.Hour {
		status = deliveryFailed // It is no longer news.
	}
	if status == deliveryFailed && q.db.clockJumped() {
		status = deliveryPending
		wait = 10 * time.Minute // A clock that jumped ahead may have made all attempts due at once.
	}
	if status != deliveryDelivered {
		q.db.log.Warn("webhook not delivered", "delivery", d.ID, "endpoint", d.EndpointID,
			"attempt", number, "status", status, "error", cmp.Or(err, fmt.Errorf("answered %d", a.code)))
	}

	d.didWell = status == deliveryDelivered && time.Since(begun) <= slowAnswer
	q.record(untilCutOff, d, a, status, wait)
	return d
}

// record writes the result of an attempt. A delivery that is resent counts its attempts from the start: if
// its second or a later attempt is under way then, that result counts only for the endpoint. 410 turns the
// endpoint off. If a result cannot be written, that is tried again each second, and the delivery stays under
// way.
func (q *queue) record(
	untilCutOff context.Context, d dueDelivery, a httpAnswer, status DeliveryStatus, wait time.Duration,
) {
	for tries := 0; untilCutOff.Err() == nil; tries++ {
		err := q.db.write(untilCutOff, func(tx *Tx) error {
			tx.exec(`
				UPDATE deliveries
				SET    status = ?1, attempt = attempt + 1, next_at = iif(?1 = 'pending', ?2, NULL), tried_at = ?3,
				       answer_status = ?4, answer = ?5
				WHERE  id = ?6 AND attempt = ?7`, status, tx.now.Add(wait), tx.now, a.code, a.text, d.ID, d.Attempts)
			tx.exec(`
				UPDATE endpoints
				SET    did_well = ?1, off = iif(?2 = 410 AND off = '', 'gone', off)
				WHERE  id = ?3 AND (did_well <> ?1 OR ?2 = 410)`, d.didWell, a.code, d.EndpointID)
			return nil
		})
		if err == nil {
			return
		}
		if tries == 0 {
			q.db.log.Error("webhooks: cannot write a result; trying again", "delivery", d.ID, "error", err)
		}
		time.Sleep(time.Second)
	}
}

// afterAttempt says what the HTTP status of an answer, or 0, means for its delivery, and how long a pending
// one waits. The exceptions are in attempt; what it means for the endpoint is in record. number counts from
// 1, and spread is random, from 0.8 to 1.2, so that deliveries that failed together are not tried again
// together. A receiver that is overloaded may ask for more time, up to twice the wait.
func afterAttempt(number, code int, retryAfter string, spread float64) (DeliveryStatus, time.Duration) {
	waits := []time.Duration{ // before the second and every later one of ten attempts: 75 h 35 min in all
		5 * time.Second,
		5 * time.Minute,
		30 * time.Minute,
		2 * time.Hour,
		5 * time.Hour,
		10 * time.Hour,
		14 * time.Hour,
		20 * time.Hour,
		24 * time.Hour,
	}

	switch {
	case code/100 == 2:
		return deliveryDelivered, 0
	case number > len(waits):
		return deliveryFailed, 0
	}

	wait := time.Duration(float64(waits[number-1]) * spread)
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		seconds, _ := strconv.Atoi(retryAfter)
		wait = min(max(wait, time.Duration(min(seconds, 1e6))*time.Second), 2*wait) // More seconds would overflow.
	}
	return deliveryPending, wait
}

// sending is what an attempt sends, and where.
type sending struct {
	Kind      EndpointKind
	URL       string
	Secrets   []string // the new one, and the old one while it signs
	EventID   string
	Event     EventName
	CreatedAt Time
	Body      []byte
	Order     []byte // from the body
	Language  string // the store's
}

// httpAnswer is what came back. What the store sees of it reveals nothing about the network that the service
// runs in.
type httpAnswer struct {
	code       int    // the HTTP status; 0: there was no answer
	text       string // its first bytes, or why there was none, such as "timed out"
	retryAfter string
}

// send reads a delivery and sends it. A panic becomes an error, so that it has a result like any other.
func (q *queue) send(ctx context.Context, d dueDelivery) (s sending, a httpAnswer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			a = httpAnswer{text: whyNoAnswer(err)}
		}
	}()

	s, err = one[sending](ctx, q.db, `
		SELECT e.kind, e.url,
		       iif(e.old_secret_until > ?, json_array(e.secret, e.old_secret), json_array(e.secret)),
		       v.id, v.event, v.created_at, v.body, json_extract(v.body, '$.data.order'), s.language
		FROM   deliveries d
		JOIN   events v ON v.number = d.event
		JOIN   endpoints e ON e.id = d.endpoint_id
		JOIN   stores s ON s.id = e.store_id
		WHERE  d.id = ? AND e.off = ''`, q.db.now(), d.ID)
	if err != nil {
		return s, a, err
	}

	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	if s.Kind == Phone {
		a, err = q.ring(ctx, s)
	} else {
		a, err = q.post(ctx, s.URL, s.Body, q.webhookHeader(s, d))
	}
	return s, a, err
}

func (q *queue) webhookHeader(s sending, d dueDelivery) http.Header {
	t := q.db.now().Time().Unix()
	signature := fmt.Sprintf("t=%d", t)
	for _, secret := range s.Secrets {
		signature += ",v1=" + sign(secret, t, s.Body)
	}
	return http.Header{
		"Content-Type":          {"application/json"},
		"X-Service-Signature":   {signature},
		"X-Service-Event":       {string(s.Event)},
		"X-Service-Event-Id":    {s.EventID},
		"X-Service-Delivery-Id": {d.ID},
		"X-Service-Attempt":     {strconv.Itoa(d.Attempts + 1)},
	}
}

// ring publishes a text to a topic of an ntfy server, which passes it on to the owner's phone. Tapping it
// opens the dashboard.
func (q *queue) ring(ctx context.Context, s sending) (httpAnswer, error) {
	title, text, ok := phoneWords(s.Language, s.Event, s.Order)
	if !ok || q.db.now().Sub(s.CreatedAt) > time.Hour {
		return httpAnswer{code: http.StatusNoContent}, nil // It is done: there is nothing to say, or it is too late.
	}
	return q.post(ctx, s.URL, []byte(text), http.Header{
		"Title": {mime.QEncoding.Encode("utf-8", title)},
		"Click": {q.db.publicURL(ctx) + "/dashboard"},
	})
}

// post sends a request over the transport itself, which follows no redirects, and reads the answer. An answer
// whose body stalls or breaks off is still an answer.
func (q *queue) post(ctx context.Context, address string, body []byte, header http.Header) (httpAnswer, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", address, bytes.NewReader(body))
	if err != nil {
		return httpAnswer{}, err
	}

	header.Set("User-Agent", "storeorder/1")
	req.Header = header

	resp, err := q.transport.RoundTrip(req)
	if err != nil {
		return httpAnswer{}, err
	}
	defer resp.Body.Close()

	var text []byte
	if resp.StatusCode != http.StatusSwitchingProtocols { // Its body is the connection, which no deadline ends.
		text, _ = io.ReadAll(io.LimitReader(resp.Body, 4096))
	}

	if resp.StatusCode/100 == 2 {
		text = text[:min(len(text), 200)]
	}
	return httpAnswer{
		code:       resp.StatusCode,
		text:       strings.ToValidUTF8(string(text), "\uFFFD"),
		retryAfter: resp.Header.Get("Retry-After"),
	}, nil
}

// whyNoAnswer says why a request got no answer, in words for the store.
func whyNoAnswer(err error) string {
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)

	switch {
	case errors.Is(err, errNotPublic), isLookup && lookup.IsNotFound:
		// This does not reveal whether a private one has.
		return "no public host has this name or address (a private one needs serve -webhook-allow-private)"
	case isNetwork && network.Timeout():
		return "timed out"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case badCertificate:
		return "certificate not accepted"
	}
	return "no answer"
}

// newTransport returns the way to the network: without a proxy or compression and, unless private addresses
// are allowed, only to public ones.
func newTransport(allowPrivate bool) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if !allowPrivate {
		dialer.Control = refusePrivate
	}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    mostOfEndpoint,
		IdleConnTimeout:        time.Minute,
	}
}

var errNotPublic = errors.New("not a public address")

// refusePrivate is a net.Dialer's Control. It checks the address that is dialed, so a name that changes its
// address gains nothing.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	if dialed, _ := netip.ParseAddrPort(address); !isPublic(dialed.Addr()) {
		return errNotPublic
	}
	return nil
}

// deniedNets are the addresses that are not public (IANA's special-purpose registries): in IPv6 everything
// outside 2000::/3, and some within it.
const deniedNets = `
	0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
	192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
	::/3 4000::/2 8000::/1 2001::/23 2001:db8::/32 2002::/16 3fff::/20`

// isPublic reports whether anybody on the Internet can have this address.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for denied := range strings.FieldsSeq(deniedNets) {
		if netip.MustParsePrefix(denied).Contains(ip) {
			return false
		}
	}
	return ip.IsValid()
}
