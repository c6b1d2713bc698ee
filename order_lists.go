package main

// This file has the lists of orders: the API's, the desk, the search and the revenue.

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// OrderFilter selects the orders of a list. A zero field excludes none.
type OrderFilter struct {
	Status Status `json:"status" rule:"choice pending|awaiting_verification|paid|failed|expired|refunded optional"`

	CreatedMin    Time   `json:"created_at_min" rule:"time optional"` // inclusive, as CreatedMax is
	CreatedMax    Time   `json:"created_at_max" rule:"end optional"`
	Offset        int64  `json:"offset" rule:"int 0..1000000000 optional"`
	Limit         int64  `json:"limit" rule:"int 1..50 =20"`
	ExternalID    string `json:"external_id" rule:"exact 1..64 optional"`
	Reference     string `json:"payment_reference" rule:"text 1..64 optional"`
	StartingAfter string `json:"starting_after" rule:"text 1..64 optional"` // the order after which the list continues

	Shipped bool // only orders that were sent or picked up: the dashboard asks for them
}

// dayOf returns the first moment of a day such as 2026-01-31, in WIB.
func dayOf(text string) (first Time, isDay bool) {
	t, err := time.ParseInLocation(time.DateOnly, text, wib)
	return timeOf(t), err == nil
}

// lastOfDay returns the last moment of the day that begins at t.
func (t Time) lastOfDay() Time { return t.Add(24*time.Hour) - 1 }

// Orders lists orders of a store, the newest first. The error is ErrNotFound if StartingAfter is not an order
// of the store.
func (db *DB) Orders(ctx context.Context, storeID string, f OrderFilter) (orders []StoredOrder, more bool, err error) {
	where, args := "store_id = ? AND created_at >= ?", []any{storeID, f.CreatedMin}
	if f.StartingAfter != "" {
		created, err := one[Time](ctx, db,
			"SELECT created_at FROM orders WHERE id = ? AND store_id = ?", f.StartingAfter, storeID)
		if err != nil {
			return nil, false, err
		}
		where, args = where+" AND (created_at, id) < (?, ?)", append(args, created, f.StartingAfter)
	}

	if f.Status != "" { // A plain ? would recompile the statement each time: see some.
		where, args = where+" AND status = +?", append(args, f.Status)
	}
	if f.Shipped {
		where += " AND shipped_at > 0"
	}
	if f.CreatedMax != 0 {
		where, args = where+" AND created_at <= ?", append(args, f.CreatedMax)
	}
	if f.Reference != "" {
		where, args = where+" AND reference = upper(?)", append(args, f.Reference)
	}
	if f.ExternalID != "" {
		where, args = where+" AND external_id = ?", append(args, f.ExternalID)
	}
	return some[StoredOrder](ctx, db, f.Limit, f.Offset,
		"SELECT id, json, events, handover FROM orders WHERE "+where+
			" ORDER BY created_at DESC, id DESC LIMIT +? OFFSET ?", args...)
}

// mostLookedAt is how many orders of a store the desk, a search and a refund look through, and mostSummed how many a
// sum has: so that none of these takes long, whatever a store has.
const (
	mostLookedAt = 10_000
	mostSummed   = 50_000
)

// Desk lists the orders of a store that wait for a decision of its owner, the oldest first: those with alerts, then
// those with a payment to look for. Cash orders are handed over first (ToHandOver).
func (db *DB) Desk(ctx context.Context, storeID string, most int) ([]OrderRow, error) {
	ids, err := all[string](ctx, db, `
		SELECT id FROM (
			SELECT id, attention, method, book FROM (
				SELECT id, attention, method, book FROM orders WHERE store_id = ?1 AND status = 'awaiting_verification'
				ORDER  BY created_at, id LIMIT ?3)
			UNION
			SELECT id, attention, method, book FROM (
				SELECT id, attention, method, book FROM orders WHERE store_id = ?1 AND attention = 1
				ORDER  BY rowid LIMIT ?3)) o
		LEFT JOIN payment_methods m ON m.store_id = ?1 AND m.code = o.method
		WHERE attention = 1 OR coalesce(kind, '') <> 'cash' OR book ->> 'reported' IS NOT 1
		ORDER BY attention DESC, id LIMIT ?2`, storeID, most, mostLookedAt)
	if err != nil {
		return nil, err
	}

	var waiting []OrderRow
	for _, id := range ids {
		o, err := readOrder(ctx, db, storeID, id)
		if err != nil {
			return nil, err
		}
		waiting = append(waiting, o)
	}
	return waiting, nil
}

// HandOver is an order that is to be sent or picked up.
type HandOver struct {
	StoredOrder
	IsByBuyer bool // The buyer has entered the address.
}

// ToHandOver lists the orders of a store that are to be sent or picked up, the oldest first. They are paid, or are cash
// orders that their buyers confirmed.
func (db *DB) ToHandOver(ctx context.Context, storeID string, most int) ([]HandOver, error) {
	return all[HandOver](ctx, db, `
		SELECT id, json, events,
		       EXISTS (
		           SELECT 1 FROM order_history
		           WHERE order_id = id AND note ->> '$.code' = 'address_entered') AS is_by_buyer,
		       handover
		FROM (
			SELECT id, json, events, handover
			FROM   orders
			WHERE  store_id = ?1 AND handover <> '' AND shipped_at = 0 AND status = 'paid'
			UNION  ALL
			SELECT o.id, o.json, o.events, o.handover
			FROM   orders o
			JOIN   payment_methods m ON m.store_id = o.store_id AND m.code = o.method
			WHERE  o.id IN (
				SELECT id FROM orders WHERE store_id = ?1 AND status = 'awaiting_verification'
				ORDER  BY created_at, id LIMIT ?3)
			AND    o.shipped_at = 0 AND m.kind = 'cash' AND o.book ->> 'reported'
			ORDER  BY id
			LIMIT  ?2)
		ORDER BY id`, storeID, most, mostLookedAt)
}

// LastCarrier returns the carrier of the order that was shipped last in the same way, or else of the one that was
// shipped last, "" if there is none. It looks at the newest hundred orders that were shipped.
func (db *DB) LastCarrier(ctx context.Context, storeID, method string) (string, error) {
	return one[string](ctx, db, `
		SELECT coalesce((
		    SELECT   carrier
		    FROM     (SELECT shipped_at, json ->> '$.shipping.carrier' AS carrier, json ->> '$.shipping.method' AS method
		              FROM   orders
		              WHERE  store_id = ?1 AND shipped_at > 0
		              ORDER  BY created_at DESC, id DESC
		              LIMIT  100)
		    WHERE    carrier <> ''
		    ORDER BY coalesce(method, '') = ?2 DESC, shipped_at DESC
		    LIMIT    1), '')`, storeID, method)
}

// CashUnderWay counts the orders that were sent and are to be paid in cash, and their rupiah.
func (db *DB) CashUnderWay(ctx context.Context, storeID string) (Revenue, error) {
	return db.sum(ctx, `
		SELECT amount, shipped_at > 0 AS counts
		FROM   orders
		WHERE  store_id = ? AND status = 'awaiting_verification'`, storeID)
}

// OrderID returns the id of the order with a payment reference, of whichever store: it is for commands.
func (db *DB) OrderID(ctx context.Context, reference string) (string, error) {
	return one[string](ctx, db, "SELECT id FROM orders WHERE reference = upper(?)", reference)
}

const mostFound = 50

// FindOrders finds orders of a store by an exact payment reference, external id or gateway id. If there are none, it
// searches the store's newest 10,000 orders: for a part of the buyer's name or contact, of the address, of the tracking
// number or of the items, for a part of the phone number in any spelling, for the amount, and for the end of the
// payment reference. The filter's status, period and Shipped apply.
func (db *DB) FindOrders(ctx context.Context, storeID, text string, f OrderFilter) ([]StoredOrder, error) {
	last := cmp.Or(f.CreatedMax, math.MaxInt64)
	named, err := all[StoredOrder](ctx, db, `
		SELECT id, json, events, handover FROM orders
		WHERE  store_id = ?1 AND id IN (
			SELECT id FROM orders WHERE reference = upper(?2) AND store_id = ?1 UNION ALL
			SELECT id FROM orders WHERE external_id = ?2 AND store_id = ?1 UNION ALL
			SELECT order_id FROM payments WHERE id = ?2 UNION ALL
			SELECT order_id FROM payment_sessions WHERE gateway_id <> '' AND gateway_id = ?2)
		AND    ?4 IN ('', status) AND created_at BETWEEN ?5 AND ?6 AND (?7 = 0 OR shipped_at > 0)
		ORDER  BY created_at DESC, id DESC
		LIMIT  ?3`, storeID, text, mostFound, f.Status, f.CreatedMin, last, f.Shipped)
	if err != nil || len(named) > 0 {
		return named, err
	}

	type found struct{ ID, Text, Phone, Amount, Reference string }
	newest, err := all[found](ctx, db, `
		SELECT id, concat_ws(x'0a', json ->> '$.buyer.name', json ->> '$.buyer.email', json ->> '$.buyer.phone',
		           json ->> '$.shipping.address', json ->> '$.shipping.tracking_number',
		           (SELECT group_concat(value ->> 'title', x'0a') FROM json_each(o.json, '$.items'))) AS text,
		       coalesce(json ->> '$.buyer.phone', '') AS phone, amount, reference
		FROM   (SELECT id, json, amount, reference, status, created_at, shipped_at FROM orders
		        WHERE  store_id = ?
		        ORDER  BY created_at DESC, id DESC
		        LIMIT  ?) o
		WHERE  ? IN ('', status) AND created_at BETWEEN ? AND ? AND (? = 0 OR shipped_at > 0)
		ORDER  BY created_at DESC, id DESC`, storeID, mostLookedAt, f.Status, f.CreatedMin, last, f.Shipped)
	if err != nil {
		return nil, err
	}

	amount := parseRupiah(text)
	part := strings.ToLower(text)
	phone := phonePart(text)
	var ids []string
	for _, f := range newest {
		if len(ids) == mostFound {
			break
		}
		if strings.Contains(strings.ToLower(f.Text), part) || f.Amount == amount ||
			strings.EqualFold(referenceTail(f.Reference), text) ||
			phone != "" && strings.Contains(phonePart(f.Phone), phone) {
			ids = append(ids, f.ID)
		}
	}

	return all[StoredOrder](ctx, db, `
		SELECT id, json, events, handover FROM orders
		WHERE  id IN (SELECT value FROM json_each(?))
		ORDER  BY created_at DESC, id DESC`, fromJSON{ids})
}

// phonePart returns a telephone number, or at least four digits of one, without the marks in between and in its
// national form. It is "" for any other text.
func phonePart(text string) string {
	digits := cmp.Or(internationalPhone(text), phoneMarks.Replace(plainMarks(text)))
	digits = strings.TrimPrefix(digits, "+")
	if local, isLocal := strings.CutPrefix(digits, "62"); isLocal {
		digits = "0" + local
	}
	if len(digits) < 4 || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return digits
}

// Unanswered counts the wanted sessions of a store whose gateway gave no page or answer.
func (db *DB) Unanswered(ctx context.Context, storeID string) (sessions int, err error) {
	return one[int](ctx, db, `
		SELECT count(*)
		FROM   (SELECT id FROM orders WHERE store_id = ? AND status IN ('pending', 'awaiting_verification') LIMIT ?) o
		JOIN   payment_sessions s ON s.order_id = o.id
		WHERE  s.problem <> '' AND s.left = 0`, storeID, mostLookedAt)
}

// Revenue is what orders brought.
type Revenue struct {
	Orders, Amount int64
	IsPart         bool // There are more orders than a sum has.
}

// sum sums the first orders of a query, which has their amounts and whether they count.
func (db *DB) sum(ctx context.Context, query string, args ...any) (Revenue, error) {
	return one[Revenue](ctx, db, fmt.Sprintf(`
		SELECT count(*) FILTER (WHERE counts) AS orders, coalesce(sum(amount) FILTER (WHERE counts), 0) AS amount,
		       count(*) = %d AS is_part
		FROM   (%s LIMIT %[1]d)`, mostSummed, query), args...)
}

// SumOfOrders counts the orders that match a filter's status and period. Test orders do not count. Canceled, expired
// and refunded orders count only if the filter asks for their status.
func (db *DB) SumOfOrders(ctx context.Context, storeID string, f OrderFilter) (Revenue, error) {
	return db.sum(ctx, `
		SELECT amount, test = 0 AND (
		           status = ?4 OR ?4 = '' AND status IN ('pending', 'awaiting_verification', 'paid')) AS counts
		FROM   orders
		WHERE  store_id = ?1 AND created_at BETWEEN ?2 AND ?3 AND (?5 = 0 OR shipped_at > 0)
		ORDER  BY created_at DESC`,
		storeID, f.CreatedMin, cmp.Or(f.CreatedMax, math.MaxInt64), f.Status, f.Shipped)
}

// Revenue counts the orders of a store that were paid in the last 30 days and still are, without test orders.
func (db *DB) Revenue(ctx context.Context, storeID string) (Revenue, error) {
	return db.sum(ctx, `
		SELECT amount, status = 'paid' AND test = 0 AS counts
		FROM   orders
		WHERE  store_id = ? AND paid_at >= ? AND paid_at > 0
		ORDER  BY paid_at DESC`,
		storeID, db.now().Add(-30*24*time.Hour))
}
