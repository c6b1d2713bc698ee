//go:build cgo

package main

import (
	"regexp"
	"strings"
	"time"
)

// This file is how the owner finds orders.

// OrderSearch selects orders for the dashboard. A zero field, Limit excepted, does not filter.
type OrderSearch struct {
	Status Status
	Text   string // one of an order's exact names (see sqlExact), else something that sqlSearch looks for
	Phone  string // a part of a buyer's phone number, only digits; orders that match Text or Phone are found
	Amount int64  // orders of this amount are found too

	References []string // if Text may be the tail of a reference: all that end with it

	From  Time   // only orders that were created then or later
	To    Time   // and before that
	After string // an order's id: only older orders
	Limit int
}

// OrderList is a page of orders, the newest first.
type OrderList struct {
	Orders   []Order
	Next     string // OrderSearch.After of the next page; empty if this is the last one
	Searched bool   // no order had this very name, so the newest were searched; the next page may be empty
}

// searchWindow is how many orders one search reads that is not exact. No index serves it: one on every order's buyer
// would cost each new order more than the owner's rare search is worth.
const searchWindow = 10_000

// sqlExact finds an order by its id, its reference, one of several references, and its external id, by our reference of
// one of its payment sessions, and by the gateway's names of the session and of its payments. Its +row makes SQLite look
// up the orders that were found, instead of walking all older ones.
//
// sqlSearch finds orders by a part of the buyer's name, e-mail or phone, the beginning of the external id, and the
// amount. It takes an order's JSON apart only if the text is anywhere in it, and finds an amount by its place in the
// JSON: a search that finds nothing takes a quarter of the time that it takes without that.
//
// For {index} and {status} see withStatus.
const (
	sqlList = `
		SELECT json FROM orders INDEXED BY {index}
		WHERE  store_id = ?1 AND row < ?2 AND row >= ?5 {status}
		ORDER BY row DESC LIMIT +?4`
	sqlExact = `
		SELECT json FROM orders
		WHERE  store_id = ?1 AND +row < ?2 AND +row >= ?5 {status} AND ?4 > 0 AND row IN (
			SELECT row FROM orders WHERE row = ?7 AND id = lower(?6)
			UNION ALL
			SELECT row FROM orders WHERE reference = upper(?6)
			UNION ALL
			SELECT row FROM orders WHERE reference IN (SELECT value FROM json_each(?8))
			UNION ALL
			SELECT row FROM orders WHERE store_id = ?1 AND external_id = ?6
			UNION ALL
			SELECT n.row FROM orders n JOIN payment_sessions s ON s.order_row = n.row
			WHERE  n.row = ?7 AND n.id || '-' || s.attempt = lower(?6)
			UNION ALL
			SELECT order_row FROM payment_sessions WHERE gateway_id = ?6 AND gateway_id <> ''
			UNION ALL
			SELECT s.order_row FROM payments p JOIN payment_sessions s ON s.id = p.session_id
			WHERE  p.transaction_id = ?6
			UNION ALL
			SELECT s.order_row FROM payments p JOIN payment_sessions s ON s.id = p.session_id
			WHERE  p.request_id = ?6 AND p.request_id <> '')`
	sqlWindow = `
		SELECT coalesce((
			SELECT id FROM orders INDEXED BY {index}
			WHERE  store_id = ?1 AND row < ?2 AND row >= ?5 {status}
			ORDER BY row DESC LIMIT 1 OFFSET ?4), '')`
	sqlSearch = `
		SELECT json FROM (
			SELECT json, external_id FROM orders INDEXED BY {index}
			WHERE  store_id = ?1 AND row < ?2 AND row >= ?5 {status}
			ORDER BY row DESC LIMIT +?7)
		WHERE json LIKE ?10 ESCAPE '\' AND (
		          instr(lower(json ->> '$.buyer.name'), ?6) OR
		          instr(lower(json ->> '$.buyer.email'), ?6) OR
		          substr(lower(external_id), 1, length(?6)) = ?6)
		OR    ?8 <> '' AND instr(replace(replace(replace(replace(
		          json ->> '$.buyer.phone', ' ', ''), '-', ''), '(', ''), ')', ''), ?8)
		OR    ?9 > 0 AND json LIKE '%"amount":' || ?9 || ',%'
		LIMIT +?4`
)

// withStatus adds a condition on the status to a query, or none, and the index that serves it. SQLite by itself would
// walk over a store's orders of all states, or over the orders of all stores.
func withStatus(query string, s Status) string {
	index, condition := "orders_by_time", ""
	if s != "" {
		index, condition = "orders_by_status", "AND status = ?3"
	}
	query = strings.ReplaceAll(query, "{index}", index)
	return strings.ReplaceAll(query, "{status}", condition)
}

func scanOrder(r row) (o Order, err error) {
	err = r.Scan(fromJSON{&o})
	return o, err
}

// likeInJSON is the pattern of a JSON that has a text in one of its strings, as mustJSON writes it.
func likeInJSON(text string) string {
	encoded := string(mustJSON(text))
	return "%" + likeMarks.Replace(encoded[1:len(encoded)-1]) + "%"
}

var likeMarks = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`)

// tailPattern matches what may be the tail of a reference: see newReference (older ones are random).
var tailPattern = regexp.MustCompile(`^(?i)[0-9A-HJKMNP-TV-Z]{6}$`)

// referencesWith returns every reference with a tail that an order of a store may have: one for each day since the
// store was created. To look all of them up takes some milliseconds, and finds an order however old it is.
func referencesWith(tail string, st StoreProfile, now Time) (all []string) {
	if !tailPattern.MatchString(tail) {
		return nil
	}
	for t := now; dayOf(t) >= dayOf(st.CreatedAt); t = t.Add(-24 * time.Hour) {
		all = append(all, referencePrefix(t)+strings.ToUpper(tail))
	}
	return all
}

// SearchOrders reads one page of a store's orders.
func (db *DB) SearchOrders(storeID string, f OrderSearch) (OrderList, error) {
	return readResult(db, func(q querier) (list OrderList, err error) {
		first, end := int64(0), rowBefore(f.After)
		if f.To > 0 {
			first, end = firstRow(f.From), min(end, firstRow(f.To))
		}
		find := func(query string, more ...any) ([]Order, error) {
			args := append([]any{storeID, end, f.Status, f.Limit + 1, first}, more...)
			return queryAll(q, scanOrder, withStatus(query, f.Status), args...)
		}

		if f.Text == "" {
			list.Orders, err = find(sqlList)
		} else {
			references := mustJSON(append([]string{}, f.References...)) // [] and not null if there are none
			list.Orders, err = find(sqlExact, f.Text, rowIn(f.Text), string(references))
		}
		if err != nil {
			return list, err
		}
		if f.Text != "" && len(list.Orders) == 0 {
			list.Searched = true
			text := strings.ToLower(f.Text)
			list.Orders, err = find(sqlSearch, text, searchWindow, f.Phone, f.Amount, likeInJSON(text))
			if err != nil {
				return list, err
			}
		}

		switch {
		case len(list.Orders) > f.Limit:
			list.Orders = list.Orders[:f.Limit]
			list.Next = list.Orders[f.Limit-1].ID
		case list.Searched:
			list.Next, err = queryOne(q, scanValue[string], withStatus(sqlWindow, f.Status),
				storeID, end, f.Status, searchWindow-1, first)
		}
		return list, err
	})
}
