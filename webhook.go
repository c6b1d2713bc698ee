//go:build cgo

package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A webhook goes through four files. Here its event is written with a delivery for each endpoint (addEvent).
// The queue (dispatch.go) claims the deliveries that are due (claim.go) and posts them (attempt.go). Here are
// also the lists, what the owner can ask for, and the signature.

// Event is the name of something that webhooks report.
type Event string

const (
	OrderCreated              Event = "orderCreated"
	OrderAwaitingVerification Event = "orderAwaitingVerification"
	OrderPaid                 Event = "orderPaid"
	OrderFailed               Event = "orderFailed"
	OrderExpired              Event = "orderExpired"
	OrderRefunded             Event = "orderRefunded"
	OrderPending              Event = "orderPending" // it waits for its payment again
	OrderAlerted              Event = "orderAlerted" // an alert was raised or resolved
	Ping                      Event = "ping"         // asked for in the dashboard, without an order
)

// events are those that an endpoint can ask for. Every endpoint takes a ping.
var events = []Event{
	OrderCreated, OrderAwaitingVerification, OrderExpired, OrderFailed, OrderPaid, OrderPending, OrderRefunded,
	OrderAlerted,
}

// allEvents are those that a store's list of events may have.
var allEvents = append(slices.Clone(events), Ping)

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID           string        `json:"delivery_id"`
	EventID      string        `json:"event_id"`
	Event        Event         `json:"event"`
	OrderID      string        `json:"order_id,omitempty"`
	Status       DeliveryState `json:"status"`
	Attempt      int           `json:"attempt"` // attempts that have ended
	NextAt       *Time         `json:"next_at"`
	TriedAt      *Time         `json:"tried_at"`
	AnswerStatus *int          `json:"answer_status"`
	Answer       string        `json:"answer,omitempty"` // its first bytes, or why there was none
	CreatedAt    Time          `json:"created_at"`
}

// DeliveryState is where a delivery stands.
type DeliveryState string

const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered" // acknowledged
	DeliveryFailed    DeliveryState = "failed"    // given up until it is resent
)

// sqlEndpointsOf finds the endpoints that want an event. The queue need not be told of those that it has to
// look at anyway.
const sqlEndpointsOf = `
	SELECT id, coalesce(due_at > ?, 1)
	FROM   endpoints e
	WHERE  store_id = ? AND removed_at IS NULL
	AND    (events = '[]' OR EXISTS (SELECT 1 FROM json_each(e.events) WHERE value = ?))`

// eventStart is how the body of an event begins. Its id follows.
const eventStart = `{"id":"`

// eventPrefix is what the id of an event has before its UUID.
const eventPrefix = "evt_"

// eventIDIn returns the id of the event that has this body.
func eventIDIn(body string) string { return body[len(eventStart):][:len(eventPrefix)+idLength] }

// addressee is an endpoint that gets an event.
type addressee struct {
	endpointID string
	idle       bool // the queue does not look at it yet
}

func scanAddressee(r row) (a addressee, err error) {
	err = r.Scan(&a.endpointID, &a.idle)
	return a, err
}

// addEvent writes an event of an order, whose JSON was just stored, and one delivery for each endpoint that wants it. An
// endpoint that is off gets its delivery too, which waits until it is on again.
func (tx *Tx) addEvent(st Store, name Event, sequence int64, stored string) error {
	endpoints, err := queryAll(tx, scanAddressee, sqlEndpointsOf, tx.now, st.ID, name)
	if err != nil {
		return err
	}

	return tx.insertEvent(st.ID, orderIDIn(stored), name, sequence, st.eventData(stored), endpoints)
}

// eventData is what the event of a stored order keeps as its data: see wholeEvent.
func (st Store) eventData(stored string) []byte {
	state, _ := splitOrder(stored)
	data := st.showOrder([]byte(`{"order":`), "{"+state+"}")
	return append(data, '}')
}

// wholeEvent returns the body of an event as it is sent. The event of an order is stored without the order's terms, which
// its row has and which never change: they are most of the bytes, and are put back here. order is the JSON that
// the row has now; empty if the event is of no order.
func wholeEvent(body, order string) string {
	if order == "" || strings.Contains(body, termsStart) { // Events written before version 5 of the schema are whole.
		return body
	}

	const addresses = `,"checkout_url":`
	state, after, _ := strings.Cut(body, addresses)
	_, terms := splitOrder(order)
	return state + terms + addresses + after
}

// orderIn returns the JSON of the order that the whole body of an event shows.
func orderIn(body string) string {
	_, data, _ := strings.Cut(body, `"data":{"order":`)
	return strings.TrimSuffix(data, "}}")
}

// scanBody scans the stored body of an event and the JSON of its order.
func scanBody(r row) (string, error) {
	var body, order string
	err := r.Scan(&body, &order)
	return wholeEvent(body, order), err
}

// If this millisecond has an event with this number or a later one, the statement names its row, which is a conflict, and
// inserts nothing.
const sqlInsertEvent = `
	INSERT INTO events (row, store_id, order_row, sequence, event, body)
	VALUES (coalesce((SELECT max(row) FROM events WHERE row BETWEEN ?1 AND ?1 | 4095), ?1), ?2, ?3, ?4, ?5, ?6)
	ON CONFLICT (row) DO NOTHING`

// insertEvent writes an event and its deliveries, which are due at once. The event's body is written here once, and what
// wholeEvent adds never changes, so every attempt sends the same bytes.
//
// Its row comes after those of all events that were written before: a receiver that lists events and goes on after the
// last one misses none. Another process may have written one in this millisecond with a larger number; then the next
// number is tried.
func (tx *Tx) insertEvent(
	storeID, orderID string, name Event, sequence int64, data []byte, endpoints []addressee,
) error {
	var orderRow *int64
	if orderID != "" {
		orderRow = new(rowOf(orderID))
	}

	eventRow, err := tx.insertRow(func(id string) (int64, error) {
		body := fmt.Sprintf(
			eventStart+`%s%s","event":"%s","created_at":"%s","store_id":"%s","sequence":%d,"data":%s}`,
			eventPrefix, id, name, tx.now, storeID, sequence, data)
		return tx.exec(sqlInsertEvent, rowOf(id), storeID, orderRow, sequence, name, body)
	})
	if err != nil {
		return err
	}

	tx.due = tx.due || len(endpoints) > 0
	for _, endpoint := range endpoints {
		_, err := tx.insertRow(func(id string) (int64, error) {
			return tx.exec(`
				INSERT INTO deliveries (row, id, endpoint_id, event_row, next_at)
				VALUES (?, ?, ?, ?, ?)
				ON CONFLICT (row) DO NOTHING`,
				rowOf(id), id, endpoint.endpointID, eventRow, tx.now)
		})
		if err != nil {
			return err
		}
		if !endpoint.idle {
			continue
		}
		if err := tx.lookAt(endpoint.endpointID); err != nil {
			return err
		}
	}
	return nil
}

// lookAt makes the queue look at an endpoint, because a delivery of it is due.
func (tx *Tx) lookAt(endpointID string) error {
	_, err := tx.exec("UPDATE endpoints SET due_at = ?1 WHERE id = ?2 AND coalesce(due_at > ?1, 1)",
		tx.now, endpointID)
	return err
}

// deliveryColumns are of a delivery d, its event v and the order o of that event, if it has one.
const deliveryColumns = `d.id, v.id, v.event, coalesce(o.id, ''), d.status, d.attempt, d.next_at,
	d.tried_at, d.answer_status, d.answer, v.created_at`

func scanDelivery(r row) (Delivery, error) { return scanDeliveryWith(r) }

// scanDeliveryWith scans deliveryColumns, and the columns after them into more.
func scanDeliveryWith(r row, more ...any) (d Delivery, err error) {
	dest := []any{
		&d.ID, &d.EventID, &d.Event, &d.OrderID, &d.Status, &d.Attempt, &d.NextAt,
		&d.TriedAt, &d.AnswerStatus, &d.Answer, &d.CreatedAt,
	}
	err = r.Scan(append(dest, more...)...)
	return d, err
}

const sqlDeliveries = "SELECT " + deliveryColumns + `
	FROM   deliveries d
	CROSS JOIN events v ON v.row = d.event_row
	LEFT JOIN orders o ON o.row = v.order_row
	WHERE  d.endpoint_id = ? AND d.row < ?
	ORDER BY d.row DESC LIMIT +?`

// OrderDelivery is a delivery of an order's event, with its endpoint.
type OrderDelivery struct {
	Delivery
	EndpointID string
	URL        string
}

const sqlOrderDeliveries = "SELECT " + deliveryColumns + `, e.id, e.url
	FROM   events v
	CROSS JOIN deliveries d ON d.event_row = v.row
	JOIN   orders o ON o.row = v.order_row
	JOIN   endpoints e ON e.id = d.endpoint_id AND e.removed_at IS NULL
	WHERE  v.order_row = ?
	ORDER BY v.sequence`

func scanOrderDelivery(r row) (o OrderDelivery, err error) {
	o.Delivery, err = scanDeliveryWith(r, &o.EndpointID, &o.URL)
	return o, err
}

// ResendDelivery makes a delivery due again, from its first attempt, also one that was delivered. n is 0 if
// it is claimed: then it is about to be sent anyway.
func (db *DB) ResendDelivery(ctx context.Context, storeID, id string) (n int64, err error) {
	return writeResult(ctx, db, func(tx *Tx) (int64, error) {
		endpointID, err := queryOne(tx, scanValue[string], `
			SELECT e.id
			FROM   deliveries d
			JOIN   endpoints e ON e.id = d.endpoint_id
			WHERE  d.row = ? AND d.id = ? AND e.store_id = ? AND e.removed_at IS NULL`,
			rowOf(id), id, storeID)
		if err != nil {
			return 0, err
		}

		n, err := tx.exec(sqlResendDelivery, tx.now, rowOf(id))
		if err != nil {
			return 0, err
		}
		return n, tx.lookAt(endpointID)
	})
}

const (
	sqlResendDelivery = `
		UPDATE deliveries
		SET    status = 'pending', attempt = 0, next_at = ?
		WHERE  row = ? AND leased = 0`
	sqlUndelivered = `
		SELECT row FROM deliveries
		WHERE  endpoint_id = ? AND row >= ? AND row < ? AND status <> 'delivered'
		ORDER BY row LIMIT +?`
	sqlResendAll = `
		UPDATE deliveries
		SET    status = 'pending', attempt = 0, next_at = ?
		WHERE  row IN (SELECT value FROM json_each(?)) AND status <> 'delivered' AND leased = 0`
)

// ResendSince makes the deliveries of an endpoint due again, from their first attempt, that are not
// delivered, not claimed, and whose event came at since or later. There may be millions, so they are found
// outside of the writes, and each write changes batchRows. If one fails, those before it are resent.
func (db *DB) ResendSince(ctx context.Context, storeID, endpointID string, since Time) (n int64, err error) {
	_, err = queryOne(db.reader, scanValue[string], sqlOwnEndpoint, endpointID, storeID)
	if err != nil {
		return 0, err
	}

	from := firstRow(since)
	end := firstRow(db.Now() + 1)
	for {
		found, err := queryAll(db.reader, scanValue[int64], sqlUndelivered, endpointID, from, end, batchRows)
		if err != nil || len(found) == 0 {
			return n, err
		}

		resent, err := writeResult(ctx, db, func(tx *Tx) (int64, error) {
			if err := tx.lookAt(endpointID); err != nil {
				return 0, err
			}
			return tx.exec(sqlResendAll, tx.now, string(mustJSON(found)))
		})
		n += resent
		if err != nil {
			return n, err
		}
		from = found[len(found)-1] + 1
	}
}

// EventFilter selects a store's events. A zero field, Limit excepted, does not filter.
type EventFilter struct {
	After   string // an event's id: only events that were written after it
	Min     *Time  // of created_at, inclusive
	Event   Event
	OrderID string
	Limit   int
}

// Events are listed by their rows, which is the order in which they were written: see insertEvent.
const (
	sqlEventRow = "SELECT row FROM events WHERE row = ? AND id = ? AND store_id = ?"

	sqlEventsOfOrder = `
		SELECT v.body, o.json
		FROM   orders o
		JOIN   events v ON v.order_row = o.row
		WHERE  o.row = ?4 AND o.id = ?5 AND o.store_id = ?1 AND v.row >= ?2 AND (?6 = '' OR v.event = ?6)
		ORDER BY v.sequence LIMIT +?3`

	eventsNamed = "SELECT row, order_row, body FROM events WHERE store_id = ?1 AND event = '%s' AND row >= ?2"
)

// eventsQuery finds a store's events of these names. The index is by name, so that a rare event is found without
// reading all others. Those of several names are merged from one search each.
func eventsQuery(names ...Event) string {
	var each []string
	for _, name := range names {
		each = append(each, fmt.Sprintf(eventsNamed, name))
	}
	return "SELECT body, coalesce((SELECT json FROM orders o WHERE o.row = order_row), '') FROM (" +
		strings.Join(each, " UNION ALL ") + " ORDER BY row LIMIT +?3)"
}

// Events returns the bodies of a store's events, as they were sent, in the order in which they were written. more says
// that others follow. An event to go on after that is not the store's, or is not kept any more, is errNotFound.
func (db *DB) Events(storeID string, f EventFilter) (bodies []string, more bool, err error) {
	from := int64(0)
	if f.Min != nil {
		from = firstRow(*f.Min)
	}
	if f.After != "" {
		seen, err := queryOne(db.reader, scanValue[int64], sqlEventRow, rowOf(f.After), f.After, storeID)
		if err != nil {
			return nil, false, err
		}
		from = max(from, seen+1)
	}

	args := []any{storeID, from, f.Limit + 1}
	var query string
	switch {
	case f.OrderID != "":
		query = sqlEventsOfOrder
		args = append(args, rowOf(f.OrderID), f.OrderID, f.Event)
	case f.Event != "":
		query = eventsQuery(f.Event)
	default:
		query = eventsQuery(allEvents...)
	}
	bodies, err = queryAll(db.reader, scanBody, query, args...)
	if len(bodies) > f.Limit {
		return bodies[:f.Limit], true, err
	}
	return bodies, false, err
}

// Ping writes an event without an order for one endpoint.
func (db *DB) Ping(ctx context.Context, storeID, endpointID string) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := queryOne(tx, scanValue[string], sqlOwnEndpoint, endpointID, storeID)
		if err != nil {
			return err
		}
		return tx.insertEvent(storeID, "", Ping, 0, []byte("{}"), []addressee{{endpointID, true}})
	})
}

// signatureHeader is the X-Service-Signature: one v1 for each secret, the newest first.
func signatureHeader(secrets []string, t int64, body []byte) string {
	header := "t=" + strconv.FormatInt(t, 10)
	for _, secret := range secrets {
		header += ",v1=" + sign(secret, t, body)
	}
	return header
}

// sign returns the hex HMAC-SHA256 of "<t>.<body>", t in Unix seconds, keyed with all bytes of the secret as
// shown.
func sign(secret string, t int64, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.", t)
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// verifySignature reports whether a header holds a signature of body that is at most five minutes old or
// ahead. Receivers do this; here it serves the demo's receiver and the sandbox gateway.
func verifySignature(secret, header string, body []byte, now time.Time) bool {
	var t int64
	var ok bool
	for field := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "t":
			if t != 0 { // A second time would lend its age to the signature of the first.
				return false
			}
			t, _ = strconv.ParseInt(value, 10, 64)
		case "v1":
			ok = ok || hmac.Equal([]byte(value), []byte(sign(secret, t, body)))
		}
	}
	return ok && now.Sub(time.Unix(t, 0)).Abs() <= 5*time.Minute
}
