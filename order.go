//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

type Status string

const (
	Pending              Status = "pending"
	AwaitingVerification Status = "awaiting_verification"
	Paid                 Status = "paid"
	Failed               Status = "failed"
	Expired              Status = "expired"
	Refunded             Status = "refunded"
)

var statuses = []Status{Pending, AwaitingVerification, Paid, Failed, Expired, Refunded}

// Order is what the API shows of an order, less its two addresses: see withAddresses.
type Order struct {
	ID                string `json:"id"`
	Status            Status `json:"status"`
	PaymentReference  string `json:"payment_reference"`
	Amount            int64  `json:"amount"` // Subtotal and the payment method's fee
	Subtotal          int64  `json:"subtotal"`
	Currency          string `json:"currency"`
	SettlementChannel string `json:"settlement_channel"`
	PaymentProvider   string `json:"payment_provider"`
	PaymentMethod     string `json:"payment_method"`
	Buyer             Buyer  `json:"buyer"`
	Items             []Item `json:"items"`
	ExternalID        string `json:"external_id,omitempty"`
	ReturnURL         string `json:"return_url,omitempty"`
	ExpiresAt         Time   `json:"expires_at"`
	CreatedAt         Time   `json:"created_at"`
	UpdatedAt         Time   `json:"updated_at"`
	RequiresPayment   bool   `json:"requires_payment"` // the buyer has still to pay
}

type Buyer struct {
	Name  string `json:"name"`
	Email string `json:"email,omitempty"`
	Phone string `json:"phone,omitempty"`
}

type Item struct {
	Type      string `json:"type"` // product or bundle
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price"`
	LineTotal int64  `json:"line_total"`
	ProductID string `json:"product_id,omitempty"`
	BundleID  string `json:"bundle_id,omitempty"`
}

// part is a product that an order consists of, after its bundles were taken apart.
type part struct {
	ProductID string `json:"product_id"`
	Quantity  int64  `json:"quantity"`
	Held      bool   `json:"held"` // taken from a limited stock, to be given back if the order comes to nothing
	items     []int  // the places of the order's items that need it
}

// NewOrder is a valid request to create an order. Of an item's ids one is set.
type NewOrder struct {
	Items         []NewItem
	Buyer         Buyer
	PaymentMethod string
	ExternalID    string
	ReturnURL     string
}

type NewItem struct {
	ProductID, BundleID string
	Quantity            int64
}

const (
	sqlSaleable = `SELECT 'product', id, title, price, id, 1 FROM products WHERE store_id = ?1 AND published = 1 AND id IN (SELECT value FROM json_each(?2))
		UNION ALL SELECT 'bundle', b.id, b.title, b.price, i.product_id, i.quantity FROM bundles b JOIN bundle_items i ON i.bundle_id = b.id
		WHERE b.store_id = ?1 AND b.published = 1 AND b.id IN (SELECT value FROM json_each(?2))`
	// What an Idempotency-Key made, with the event that carries it as the first answer showed it.
	sqlIdempotency = `SELECT k.order_id, k.body_hash, v.body FROM idempotency_keys k JOIN events v ON v.order_id = k.order_id AND v.sequence = 1
		WHERE k.store_id = ? AND k.key = ? AND k.created_at > ?`
	sqlEndpointsOf = `SELECT id FROM endpoints e WHERE store_id = ?
		AND (events = '[]' OR EXISTS (SELECT 1 FROM json_each(e.events) WHERE value = ?))`
	idempotencyKept = 48 * time.Hour
)

// saleable is a product or bundle as an order finds it, with one of its parts.
type saleable struct {
	kind, id, title string
	price           int64
	part            part
}

// CreateOrder makes an order: prices are read, stock is taken and the event is written in one transaction. It returns
// the order's JSON with its addresses. With an idempotencyKey, a body that was sent before gets the first answer again.
func (db *DB) CreateOrder(ctx context.Context, st Store, in NewOrder, idempotencyKey string, bodyHash [32]byte) (id string, order []byte, replayed bool, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		if idempotencyKey != "" {
			var hash []byte
			var created struct {
				Data struct{ Order json.RawMessage }
			}
			id, err = one(tx, func(id *string) []any { return []any{id, &hash, jsonTo{&created}} },
				sqlIdempotency, st.ID, idempotencyKey, tx.now.Add(-idempotencyKept))
			switch {
			case err == nil && !bytes.Equal(hash, bodyHash[:]):
				return &Refusal{Code: "IDEMPOTENCY_KEY_REUSED", Message: "This Idempotency-Key was used with another body: send a new key with a new order."}
			case err == nil:
				order, replayed = created.Data.Order, true
				return nil
			case err != errNotFound:
				return err
			}
		}
		if id, order, err = tx.createOrder(st, in); err != nil || idempotencyKey == "" {
			return err
		}
		_, err = tx.exec("INSERT OR REPLACE INTO idempotency_keys (store_id, key, body_hash, order_id, created_at) VALUES (?, ?, ?, ?, ?)",
			st.ID, idempotencyKey, bodyHash[:], id, tx.now)
		return err
	})
	return id, order, replayed, err
}

// createOrder is CreateOrder within a transaction.
func (tx *Tx) createOrder(st Store, in NewOrder) (id string, shown []byte, err error) {
	if in.ExternalID != "" {
		other, err := one(tx, column[string], "SELECT id FROM orders WHERE store_id = ? AND external_id = ?", st.ID, in.ExternalID)
		if err == nil {
			return "", nil, &Refusal{"DUPLICATE_EXTERNAL_ID", "Order " + other + " has this external_id.",
				[]Detail{{"external_id", "must differ from every other order's"}}}
		} else if err != errNotFound {
			return "", nil, err
		}
	}
	o := &Order{ID: tx.newID(), Status: Pending, Currency: "IDR", Buyer: in.Buyer, ExternalID: in.ExternalID, ReturnURL: in.ReturnURL,
		CreatedAt: tx.now, UpdatedAt: tx.now, ExpiresAt: tx.now.Add(st.Expiry)}
	parts, err := tx.price(o, st.ID, in.Items)
	if err != nil {
		return "", nil, err
	}
	if err := tx.choosePayment(o, st.ID, in.PaymentMethod); err != nil {
		return "", nil, err
	}
	var short []Detail
	for i := range parts {
		if enough, err := tx.takeStock(&parts[i]); err != nil {
			return "", nil, err
		} else if !enough {
			for _, item := range parts[i].items {
				short = append(short, Detail{fmt.Sprintf("items[%d].quantity", item), "is more than is left: order fewer, or without it"})
			}
		}
	}
	if len(short) > 0 {
		return "", nil, &Refusal{"OUT_OF_STOCK", "There is not enough stock for this order.", short}
	}
	var stored []byte
	for made := int64(0); made == 0; { // until nobody has the reference
		o.PaymentReference = newReference(tx.now)
		stored = mustJSON(o)
		if made, err = tx.exec(`INSERT INTO orders (id, store_id, expires_at, parts, json) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (store_id, reference) DO NOTHING`, o.ID, st.ID, o.ExpiresAt, string(mustJSON(parts)), string(stored)); err != nil {
			return "", nil, err
		}
	}
	if err := tx.addHistory(o.ID, "", o.Status, "api", "created"); err != nil {
		return "", nil, err
	}
	if err := tx.addTotals(st.ID, tx.now, 1, 0); err != nil { // an order that is paid at once is free
		return "", nil, err
	}
	shown = withAddresses(nil, stored, st.payPage(o.ID), "")
	err = tx.addEvent(st.ID, o.ID, "orderCreated", 1, shown)
	if err == nil && o.Status == Paid {
		err = tx.addEvent(st.ID, o.ID, "orderPaid", 2, shown)
	}
	return o.ID, shown, err
}

// price fills in the order's items and subtotal from what is published now, and takes bundles apart.
func (tx *Tx) price(o *Order, storeID string, items []NewItem) ([]part, error) {
	var ids []string
	for _, in := range items {
		ids = append(ids, in.ProductID+in.BundleID)
	}
	rows, err := collect(tx, func(s *saleable) []any {
		return []any{&s.kind, &s.id, &s.title, &s.price, &s.part.ProductID, &s.part.Quantity}
	}, sqlSaleable, storeID, string(mustJSON(ids)))
	if err != nil {
		return nil, err
	}
	found := map[string][]saleable{}
	for _, s := range rows {
		found[s.kind+s.id] = append(found[s.kind+s.id], s)
	}
	var unknown, tooMuch []Detail
	parts := map[string]part{}
	for i, in := range items {
		kind := "product"
		if in.BundleID != "" {
			kind = "bundle"
		}
		of := found[kind+in.ProductID+in.BundleID]
		if len(of) == 0 {
			unknown = append(unknown, Detail{fmt.Sprintf("items[%d].%s_id", i, kind), "is no published " + kind + " of this store: take one from GET /v1/products"})
			continue
		}
		item := Item{Type: kind, Title: of[0].title, Quantity: in.Quantity, UnitPrice: of[0].price, LineTotal: of[0].price * in.Quantity,
			ProductID: in.ProductID, BundleID: in.BundleID}
		if item.LineTotal > maxMoney {
			tooMuch = append(tooMuch, Detail{fmt.Sprintf("items[%d].quantity", i), fmt.Sprintf("makes the line exceed %d", int64(maxMoney))})
		}
		o.Items = append(o.Items, item)
		o.Subtotal += item.LineTotal
		for _, s := range of {
			id := s.part.ProductID
			parts[id] = part{ProductID: id, Quantity: parts[id].Quantity + s.part.Quantity*in.Quantity, items: append(parts[id].items, i)}
		}
	}
	if len(unknown) > 0 {
		return nil, &Refusal{"PRODUCT_UNAVAILABLE", "Something in this order is not for sale.", unknown}
	}
	if len(tooMuch) == 0 && o.Subtotal > maxMoney {
		tooMuch = []Detail{{"items", fmt.Sprintf("come to more than %d in all", int64(maxMoney))}}
	}
	if len(tooMuch) > 0 {
		return nil, invalid(tooMuch...)
	}
	return slices.SortedFunc(maps.Values(parts), func(a, b part) int { return strings.Compare(a.ProductID, b.ProductID) }), nil
}

// choosePayment fills in how the order is paid and its amount.
func (tx *Tx) choosePayment(o *Order, storeID, code string) error {
	if o.Subtotal == 0 {
		o.Status, o.PaymentMethod, o.PaymentProvider, o.SettlementChannel = Paid, "none", "none", "none"
		return nil
	}
	if code == "" {
		return invalid(Detail{"payment_method", "is needed: take a code from GET /v1/payment-methods"})
	}
	m, err := one(tx, methodFields, sqlMethod, storeID, code)
	if err == errNotFound || err == nil && !m.Usable {
		return &Refusal{"PAYMENT_METHOD_UNAVAILABLE", "This payment method cannot be used.",
			[]Detail{{"payment_method", "is not usable: take a code from GET /v1/payment-methods"}}}
	} else if err != nil {
		return err
	}
	if !m.takes(o.Subtotal) {
		return &Refusal{"PAYMENT_METHOD_UNAVAILABLE", "This payment method cannot be used for this subtotal.",
			[]Detail{{"payment_method", fmt.Sprintf("does not take a subtotal of %d: ask GET /v1/payment-methods?amount=%d", o.Subtotal, o.Subtotal)}}}
	}
	if o.Amount = o.Subtotal + m.Fee; o.Amount > maxMoney {
		return invalid(Detail{"items", fmt.Sprintf("come to more than %d with the fee", int64(maxMoney))})
	}
	o.PaymentMethod, o.PaymentProvider, o.SettlementChannel, o.RequiresPayment = m.Code, m.Provider, m.SettlementChannel, true
	return nil
}

// newReference makes what a buyer quotes with a transfer: the day in WIB and six characters of Crockford's base32,
// which has no letters to mistake.
func newReference(t Time) string {
	var b [6]byte
	rand.Read(b[:])
	for i := range b {
		b[i] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[b[i]%32]
	}
	return "INV-" + t.Time().In(wib).Format("20060102") + "-" + string(b[:])
}

func (st Store) payPage(orderID string) string { return st.URL + "/pay/" + orderID }

// withAddresses appends an order's JSON and its two addresses to dst. paymentURL "" is the pay page too. payPage is
// made of a checked host and an id, and needs no escaping.
func withAddresses[T string | []byte](dst []byte, order T, payPage, paymentURL string) []byte {
	dst = append(dst, order[:len(order)-1]...)
	dst = append(dst, `,"checkout_url":"`...)
	dst = append(dst, payPage...)
	dst = append(dst, `","payment_url":`...)
	if paymentURL != "" {
		return append(append(dst, mustJSON(paymentURL)...), '}')
	}
	dst = append(dst, '"')
	dst = append(dst, payPage...)
	return append(dst, `"}`...)
}

func (tx *Tx) addHistory(orderID string, from, to Status, actor, reason string) error {
	_, err := tx.exec(`INSERT INTO order_history (order_id, position, at, from_status, to_status, actor, reason)
		SELECT ?1, coalesce(max(position), 0) + 1, ?2, ?3, ?4, ?5, ?6 FROM order_history WHERE order_id = ?1`,
		orderID, tx.now, from, to, actor, reason)
	return err
}

// remark adds a line to an order's history that changes nothing else. The same remark is made once.
func (tx *Tx) remark(orderID string, status Status, text string) error {
	text = strings.TrimSpace(text)
	n, err := one(tx, column[int], "SELECT count(*) FROM order_history WHERE order_id = ? AND reason = ?", orderID, text)
	if err != nil || n > 0 {
		return err
	}
	return tx.addHistory(orderID, status, status, "gateway", text)
}

// Move is something that happens to an order.
type Move string

const (
	BuyerClaims       Move = "buyer says paid"
	GatewayChallenges Move = "gateway challenge"
	GatewaySettles    Move = "gateway settlement"
	GatewayCancels    Move = "gateway cancel"
	GatewayRefunds    Move = "gateway refund"
	GatewayReverses   Move = "gateway reversal"
	OwnerApproves     Move = "approve"
	OwnerRejects      Move = "reject"
	OwnerCancels      Move = "cancel"
	OwnerRefunds      Move = "refund"
	ClockExpires      Move = "expire"
)

// moves is the order state machine: from where each move leads where. Whatever is not here is refused.
var moves = map[Move]struct {
	from  []Status
	to    Status
	actor string
}{
	BuyerClaims:       {[]Status{Pending}, AwaitingVerification, "buyer"},
	GatewayChallenges: {[]Status{Pending}, AwaitingVerification, "gateway"},
	GatewaySettles:    {[]Status{Pending, AwaitingVerification, Expired, Failed}, Paid, "gateway"},
	GatewayCancels:    {[]Status{Pending, AwaitingVerification}, Failed, "gateway"},
	GatewayRefunds:    {[]Status{Paid}, Refunded, "gateway"},
	GatewayReverses:   {[]Status{Paid}, Failed, "gateway"},
	OwnerApproves:     {[]Status{Pending, AwaitingVerification, Expired, Failed}, Paid, "owner"},
	OwnerRejects:      {[]Status{AwaitingVerification}, Failed, "owner"},
	OwnerCancels:      {[]Status{Pending}, Failed, "owner"},
	OwnerRefunds:      {[]Status{Paid}, Refunded, "owner"},
	ClockExpires:      {[]Status{Pending}, Expired, "clock"},
}

var eventOf = map[Status]string{AwaitingVerification: "orderAwaitingVerification", Paid: "orderPaid", Failed: "orderFailed",
	Expired: "orderExpired", Refunded: "orderRefunded"}

// move changes an order's state: its row, its stock, its history and its event, or nothing. storeID "" stands for any
// store.
func (tx *Tx) move(storeID, orderID string, m Move, reason string) (*Order, error) {
	rule, o := moves[m], &Order{}
	var parts []part
	var oversold bool
	var sequence int64 // of the event that this makes
	st, err := tx.db.store(tx, []any{jsonTo{o}, jsonTo{&parts}, &sequence}, "SELECT "+storeColumns+`, o.json, o.parts,
		(SELECT coalesce(max(sequence), 0) + 1 FROM events WHERE order_id = o.id)
		FROM orders o JOIN stores s ON s.id = o.store_id WHERE o.id = ? AND ? IN (o.store_id, '')`, orderID, storeID)
	if err != nil {
		return nil, err
	}
	from := o.Status
	if !slices.Contains(rule.from, from) {
		return nil, &Refusal{Code: "ORDER_STATE", Message: fmt.Sprintf("The order is %s: %q is possible only while it is %s.", from, m, strings.Join(words(rule.from), " or "))}
	}
	for i := range parts {
		switch {
		case rule.to == Failed || rule.to == Expired:
			err = tx.giveBackStock(&parts[i])
		case from == Failed || from == Expired: // paid after all
			var enough bool
			enough, err = tx.takeStock(&parts[i])
			oversold = oversold || !enough
		}
		if err != nil {
			return nil, err
		}
	}
	o.Status, o.UpdatedAt, o.RequiresPayment = rule.to, tx.now, false
	changed := mustJSON(o)
	approved := m == OwnerApproves && from == AwaitingVerification // the gateway's later word on that payment counts
	if err := tx.mustChange(`UPDATE orders SET json = ?1, parts = ?2, oversold = ?3, paid_by = iif(?4, (SELECT id FROM payment_sessions
		WHERE order_id = ?5 AND status IN ('active', 'paid') ORDER BY attempt DESC LIMIT 1), paid_by) WHERE id = ?5 AND status = ?6`,
		string(changed), string(mustJSON(parts)), oversold, approved, orderID, from); err != nil {
		return nil, err
	}
	switch {
	case o.Status == Paid:
		err = tx.addTotals(st.ID, tx.now, 0, o.Amount)
	case from == Paid:
		err = tx.takeTotals(st.ID, o)
	}
	if err != nil {
		return nil, err
	}
	if err := tx.addHistory(orderID, from, o.Status, rule.actor, reason); err != nil {
		return nil, err
	}
	if o.Status != AwaitingVerification { // what is open at a gateway is due to be closed there
		if _, err := tx.exec(`UPDATE payment_sessions SET status = iif(status = 'starting', 'expired', status), expires_at = min(expires_at, ?), checked_at = 0
			WHERE order_id = ? AND status IN ('starting', 'active')`, tx.now, orderID); err != nil {
			return nil, err
		}
	}
	return o, tx.addEvent(st.ID, orderID, eventOf[o.Status], sequence, withAddresses(nil, changed, st.payPage(orderID), ""))
}

// MoveOrder is move for one order of a store; storeID "" stands for any store: only the command line may say so.
func (db *DB) MoveOrder(ctx context.Context, storeID, orderID string, m Move, reason string) (o *Order, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		o, err = tx.move(storeID, orderID, m, reason)
		return err
	})
	return o, err
}

const sqlDue = `SELECT id FROM orders o WHERE status = 'pending' AND expires_at <= ?
	AND NOT EXISTS (SELECT 1 FROM payment_sessions s WHERE s.order_id = o.id AND ` + sessionToAsk + `) ORDER BY expires_at LIMIT ?`

// sessionToAsk: the gateway may have money of this session. One whose payment failed can often be paid again on the same
// page, so it is asked about once more when its time is over.
const sessionToAsk = "(s.status = 'active' OR s.status = 'failed' AND s.checked_at < s.expires_at)"

// DueOrders are at most 100 orders that nobody paid in time and that no gateway has a session for.
func (db *DB) DueOrders() ([]string, error) {
	return collect(db.r, column[string], sqlDue, time.Now().UnixMilli(), 100)
}

// ExpireOrder expires one of DueOrders, unless a session has become active since.
func (db *DB) ExpireOrder(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		active, err := one(tx, column[int], "SELECT count(*) FROM payment_sessions s WHERE s.order_id = ? AND "+sessionToAsk, id)
		if err == nil && active == 0 {
			_, err = tx.move("", id, ClockExpires, "not paid in time")
		}
		return err
	})
}

// PurgeIdempotencyKeys forgets at most 1,000 keys whose time is over and returns how many.
func (db *DB) PurgeIdempotencyKeys(ctx context.Context) (n int64, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		n, err = tx.exec(`DELETE FROM idempotency_keys WHERE (store_id, key) IN
			(SELECT store_id, key FROM idempotency_keys WHERE created_at <= ? ORDER BY created_at LIMIT 1000)`, tx.now.Add(-idempotencyKept))
		return err
	})
	return n, err
}

// OrderFilter selects orders. The zero value of a field but Limit selects all.
type OrderFilter struct {
	Status     Status
	Min, Max   *Time  // of created_at, both inclusive
	After      string // an order's id: only older ones
	ExternalID string
	Offset     int
	Limit      int
}

const (
	sqlOrders           = "SELECT json FROM orders WHERE store_id = ? AND id >= ? AND id < ? ORDER BY id DESC LIMIT ? OFFSET ?"
	sqlOrdersByStatus   = "SELECT json FROM orders WHERE store_id = ? AND id >= ? AND id < ? AND status = ? ORDER BY id DESC LIMIT ? OFFSET ?"
	sqlOrdersByExternal = "SELECT json FROM orders WHERE store_id = ? AND id >= ? AND id < ? AND external_id = ? AND ? IN (status, '') LIMIT ? OFFSET ?"
)

// Orders appends a JSON array of a store's orders to dst, the newest first, and tells whether there are more. Its order
// is that of created_at and then of id, for an id begins with its created_at.
func (db *DB) Orders(dst []byte, st Store, f OrderFilter) (list []byte, more bool, err error) {
	low, high := "", cmp.Or(f.After, "~") // "~" is above every id
	if f.Min != nil {
		low = firstID(*f.Min)
	}
	if f.Max != nil {
		high = min(high, firstID(*f.Max+1))
	}
	query, args := sqlOrders, []any{st.ID, low, high}
	switch {
	case f.ExternalID != "":
		query, args = sqlOrdersByExternal, append(args, f.ExternalID, f.Status)
	case f.Status != "":
		query, args = sqlOrdersByStatus, append(args, f.Status)
	}
	rows, err := db.r.Query(query, append(args, f.Limit+1, f.Offset)...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	list = append(slices.Grow(dst, 1280*f.Limit), '[')
	for n := 0; rows.Next(); n++ {
		if n == f.Limit {
			more = true
			break
		}
		var order string
		if err := rows.Scan(&order); err != nil {
			return nil, false, err
		}
		if n > 0 {
			list = append(list, ',')
		}
		id := order[len(`{"id":"`):][:36] // an order's JSON begins with it
		list = withAddresses(list, order, st.payPage(id), "")
	}
	return append(list, ']'), more, rows.Err()
}

// HasOrder tells whether an order is the store's.
func (db *DB) HasOrder(storeID, id string) (bool, error) {
	return one(db.r, column[bool], "SELECT EXISTS (SELECT 1 FROM orders WHERE id = ? AND store_id = ?)", id, storeID)
}

// OrderSearch selects orders for the dashboard. The zero value of a field but Limit selects all.
type OrderSearch struct {
	Status Status
	Text   string // an order's exact reference, external id or id, else a part of a buyer's name or e-mail
	Phone  string // a part of a buyer's phone, digits alone; looked for beside Text
	After  string // an order's id: only older ones
	Limit  int
}

// OrderList is a page of orders, the newest first.
type OrderList struct {
	Orders   []Order
	Next     string // where the next page begins (OrderSearch.After); "" if this is the last
	Searched bool   // buyers were searched, and Next may lead to orders that were not looked at yet
}

// searchWindow is how many orders one search for a buyer looks at. No index serves it: one on every order's buyer
// would cost each new order more than the owner's rare search is worth.
const searchWindow = 10_000

// In these, %s is the status' condition or nothing. The + has SQLite look orders up by the ids found,
// rather than walk all that are older.
const (
	sqlList  = "SELECT json FROM orders WHERE store_id = ?1 AND id < ?2 %s ORDER BY id DESC LIMIT ?4"
	sqlExact = `SELECT json FROM orders WHERE store_id = ?1 AND +id < ?2 %s AND ?4 > 0 AND id IN (SELECT lower(?5)
		UNION ALL SELECT id FROM orders WHERE store_id = ?1 AND reference = upper(?5)
		UNION ALL SELECT id FROM orders WHERE store_id = ?1 AND external_id = ?5)`
	sqlWindow = "SELECT coalesce((SELECT id FROM orders WHERE store_id = ?1 AND id < ?2 %s ORDER BY id DESC LIMIT 1 OFFSET ?4), '')"
	sqlSearch = `SELECT json FROM (SELECT json FROM orders WHERE store_id = ?1 AND id < ?2 %s ORDER BY id DESC LIMIT ?6)
		WHERE instr(lower(json ->> '$.buyer.name'), ?5) OR instr(lower(json ->> '$.buyer.email'), ?5) OR (?7 <> '' AND
			instr(replace(replace(replace(replace(json ->> '$.buyer.phone', ' ', ''), '-', ''), '(', ''), ')', ''), ?7)) LIMIT ?4`
)

func withStatus(query string, s Status) string {
	if s == "" {
		return fmt.Sprintf(query, "")
	}
	return fmt.Sprintf(query, "AND status = ?3")
}

func orderFields(o *Order) []any { return []any{jsonTo{o}} }

// SearchOrders reads one page of a store's orders.
func (db *DB) SearchOrders(storeID string, f OrderSearch) (list OrderList, err error) {
	below := cmp.Or(f.After, "~") // "~" is above every id
	err = db.read(func(q querier) (err error) {
		find := func(query string, limit int, more ...any) ([]Order, error) {
			return collect(q, orderFields, withStatus(query, f.Status), append([]any{storeID, below, f.Status, limit}, more...)...)
		}
		if f.Text == "" {
			list.Orders, err = find(sqlList, f.Limit+1)
		} else if list.Orders, err = find(sqlExact, f.Limit+1, f.Text); err == nil && len(list.Orders) == 0 {
			list.Searched = true
			list.Orders, err = find(sqlSearch, f.Limit+1, strings.ToLower(f.Text), searchWindow, f.Phone)
		}
		if err != nil {
			return err
		}
		if len(list.Orders) > f.Limit {
			list.Orders = list.Orders[:f.Limit]
			list.Next = list.Orders[f.Limit-1].ID
		} else if list.Searched {
			list.Next, err = one(q, column[string], withStatus(sqlWindow, f.Status), storeID, below, f.Status, searchWindow-1)
		}
		return err
	})
	return list, err
}

// OrderDetails is an order with all that became of it.
type OrderDetails struct {
	Order
	Oversold   bool
	Overpaid   bool
	History    []HistoryEntry
	Sessions   []Session
	Deliveries []OrderDelivery
}

type HistoryEntry struct {
	At       Time
	From, To Status // equal: a remark
	Actor    string
	Reason   string
}

type OrderDelivery struct {
	Delivery
	EndpointID, URL string
}

const (
	sqlOrderDetails    = "SELECT oversold, overpaid, json FROM orders WHERE store_id = ? AND id = ?"
	sqlHistory         = "SELECT at, from_status, to_status, actor, reason FROM order_history WHERE order_id = ? ORDER BY position"
	sqlOrderSessions   = "SELECT " + sessionColumns + " FROM payment_sessions s WHERE s.order_id = ? ORDER BY s.attempt"
	sqlOrderDeliveries = "SELECT " + deliveryColumns + `, e.id, e.url FROM events v CROSS JOIN deliveries d ON d.event_id = v.id
		JOIN endpoints e ON e.id = d.endpoint_id WHERE v.order_id = ? ORDER BY v.sequence`
)

// OrderDetails reads an order of a store.
func (db *DB) OrderDetails(storeID, id string) (d OrderDetails, err error) {
	err = db.read(func(q querier) (err error) {
		if d, err = one(q, func(d *OrderDetails) []any {
			return []any{&d.Oversold, &d.Overpaid, jsonTo{&d.Order}}
		}, sqlOrderDetails, storeID, id); err != nil {
			return err
		}
		if d.History, err = collect(q, func(h *HistoryEntry) []any {
			return []any{&h.At, &h.From, &h.To, &h.Actor, &h.Reason}
		}, sqlHistory, id); err != nil {
			return err
		}
		if d.Sessions, err = collect(q, sessionFields, sqlOrderSessions, id); err != nil {
			return err
		}
		d.Deliveries, err = collect(q, func(o *OrderDelivery) []any {
			return append(deliveryFields(&o.Delivery), &o.EndpointID, &o.URL)
		}, sqlOrderDeliveries, id)
		return err
	})
	return d, err
}

// AlertSettled records that the owner has seen to an order that was oversold or overpaid.
func (db *DB) AlertSettled(ctx context.Context, storeID, id, reason string) error {
	return db.write(ctx, func(tx *Tx) error {
		status, err := one(tx, column[Status], "UPDATE orders SET oversold = 0, overpaid = 0 WHERE id = ? AND store_id = ? AND (oversold = 1 OR overpaid = 1) RETURNING status", id, storeID)
		if err != nil {
			return err
		}
		return tx.addHistory(id, status, status, "owner", reason)
	})
}

// DayTotals is one day of a store, in WIB.
type DayTotals struct {
	Day     int64 // days since 1970
	Orders  int64 // made on it
	Revenue int64 // paid on it and neither refunded nor reversed since
}

func dayOf(t Time) int64 { return (int64(t) + 7*60*60*1000) / (24 * 60 * 60 * 1000) }

const sqlAddTotals = `INSERT INTO daily_totals (store_id, day, orders, revenue) VALUES (?1, ?2, ?3, ?4)
	ON CONFLICT DO UPDATE SET orders = orders + ?3, revenue = revenue + ?4`

// addTotals counts orders made and money paid on a day.
func (tx *Tx) addTotals(storeID string, at Time, orders, revenue int64) error {
	_, err := tx.exec(sqlAddTotals, storeID, dayOf(at), orders, revenue)
	return err
}

// takeTotals takes an order's amount off the day on which it was last paid.
func (tx *Tx) takeTotals(storeID string, o *Order) error {
	paid, err := one(tx, column[Time], "SELECT at FROM order_history WHERE order_id = ? AND to_status = 'paid' AND from_status <> 'paid' ORDER BY position DESC LIMIT 1", o.ID)
	if err != nil {
		return err
	}
	return tx.addTotals(storeID, paid, 0, -o.Amount)
}

// Attention is what waits for the owner: of each kind a few, the oldest first.
type Attention struct {
	Awaiting    []Order // a buyer says that he has paid
	Alerted     []AlertedOrder
	Unreachable []AlertedOrder // whose gateway could not be asked
	Endpoints   []Endpoint     // all of them, for the caller to judge
}

// AlertedOrder is one with which something went wrong that no state tells: it was paid when the stock was gone, or
// Overpaid: money came that it does not need. Warning is why its gateway could not be asked.
type AlertedOrder struct {
	Order
	Overpaid bool
	Warning  string
}

const (
	attentionMost  = 6
	sqlAwaiting    = "SELECT json FROM orders WHERE store_id = ? AND status = 'awaiting_verification' ORDER BY id LIMIT ?"
	sqlAlerted     = "SELECT overpaid, '', json FROM orders WHERE store_id = ? AND (oversold = 1 OR overpaid = 1) ORDER BY id LIMIT ?"
	sqlUnreachable = `SELECT o.overpaid, s.warning, o.json FROM payment_sessions s INDEXED BY payment_sessions_warned CROSS JOIN orders o ON o.id = s.order_id
		WHERE s.warning <> '' AND s.status IN ('starting', 'active') AND o.store_id = ? ORDER BY s.order_id LIMIT ?`
	sqlDailyTotals = "SELECT day, orders, revenue FROM daily_totals WHERE store_id = ? AND day BETWEEN ? AND ? ORDER BY day"
)

// FrontPage reads what the first page of the dashboard shows above the newest orders: what waits for the owner, and the
// totals of the last days up to today, one for each day.
func (db *DB) FrontPage(storeID string, days int) (a Attention, totals []DayTotals, err error) {
	today := dayOf(Time(time.Now().UnixMilli()))
	totals = make([]DayTotals, days)
	for i := range totals {
		totals[i].Day = today - int64(days-1-i)
	}
	err = db.read(func(q querier) (err error) {
		if a.Awaiting, err = collect(q, orderFields, sqlAwaiting, storeID, attentionMost); err != nil {
			return err
		}
		alert := func(o *AlertedOrder) []any { return []any{&o.Overpaid, &o.Warning, jsonTo{&o.Order}} }
		if a.Alerted, err = collect(q, alert, sqlAlerted, storeID, attentionMost); err != nil {
			return err
		}
		if a.Unreachable, err = collect(q, alert, sqlUnreachable, storeID, attentionMost); err != nil {
			return err
		}
		if a.Endpoints, err = collect(q, endpointFields, sqlEndpoints, 0, storeID); err != nil {
			return err
		}
		busy, err := collect(q, func(d *DayTotals) []any { return []any{&d.Day, &d.Orders, &d.Revenue} }, sqlDailyTotals, storeID, totals[0].Day, today)
		for _, d := range busy {
			totals[d.Day-totals[0].Day] = d
		}
		return err
	})
	return a, totals, err
}
