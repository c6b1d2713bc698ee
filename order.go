package main

// This file is about the order and how it is created. An order is stored as the JSON that the API shows, rendered once
// per change, beside the columns that queries need.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Order is an order as the API shows it, except its two addresses, which depend on where the store is served.
// Amounts are in rupiah.
type Order struct {
	ID                string            `json:"id"`
	Status            Status            `json:"status"`
	PaymentReference  string            `json:"payment_reference"` // what a person can quote
	Amount            int64             `json:"amount"`            // beforeFee, Fee and UniqueCode
	Subtotal          int64             `json:"subtotal"`
	ShippingFee       int64             `json:"shipping_fee"`
	Discount          int64             `json:"discount"`
	Fee               int64             `json:"fee"`         // the payment method's
	UniqueCode        int64             `json:"unique_code"` // makes the order's amount differ from others
	Currency          string            `json:"currency"`
	SettlementChannel string            `json:"settlement_channel"`
	PaymentProvider   Provider          `json:"payment_provider"`
	PaymentMethod     string            `json:"payment_method"`
	RequiresPayment   bool              `json:"requires_payment"` // pending, and not free
	Test              bool              `json:"test,omitempty"`
	Source            Source            `json:"source,omitempty"` // empty for orders of 1.0
	Alerts            []AlertCode       `json:"alerts,omitempty"`
	Buyer             Buyer             `json:"buyer"`
	Items             []Item            `json:"items"`
	ExternalID        string            `json:"external_id,omitempty"`
	ReturnURL         string            `json:"return_url,omitempty"`
	Note              string            `json:"note,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
	Shipping          Shipping          `json:"shipping,omitzero"`
	ExpiresAt         Time              `json:"expires_at"`
	PaidAt            Time              `json:"paid_at,omitempty"` // kept by a refund, not by a reversal
	CreatedAt         Time              `json:"created_at"`
	UpdatedAt         Time              `json:"updated_at"`
}

// beforeFee returns what the order costs before the fee and the code of its method.
func (o Order) beforeFee() int64 { return o.Subtotal + o.ShippingFee - o.Discount }

// Source is who made an order.
type Source string

const (
	FromAPI   Source = "api"
	FromOwner Source = "owner" // in the dashboard, or by a command
	FromShop  Source = "shop"  // on the shop page
)

type Buyer struct {
	Name  string `json:"name" rule:"text 1..200"`
	Email string `json:"email,omitempty" rule:"email optional"`
	Phone string `json:"phone,omitempty" rule:"phone optional"`
}

func (b *Buyer) check(wrong *Refusal, path string, given map[string]bool) {
	if !given["email"] && !given["phone"] {
		wrong.add(path+"email", "or phone is needed")
	}
}

// StoredOrder is an order as it is stored.
type StoredOrder struct {
	ID     string
	JSON   string
	Events int64 // how many it has: the sequence of its latest event
}

// pieces are JSON that is put together when it is sent, so that a long list is copied once.
type pieces []string

func (p pieces) join() (joined []byte) {
	length := 0
	for _, piece := range p {
		length += len(piece)
	}
	joined = slices.Grow(joined, length)
	for _, piece := range p {
		joined = append(joined, piece...)
	}
	return joined
}

func (p pieces) MarshalJSON() ([]byte, error) { return p.join(), nil }

// show returns an order as the API shows it: its stored JSON without the last brace, the sequence of its latest event,
// its two addresses, which are already escaped, and the brace. paymentURL is the page of a payment session, or "".
func (st Store) show(o StoredOrder, paymentURL string) pieces {
	page := st.payPage(o.ID)
	return pieces{o.JSON[:len(o.JSON)-1], `,"sequence":`, strconv.FormatInt(o.Events, 10),
		`,"checkout_url":"`, page, `","payment_url":"`, cmp.Or(paymentURL, page), `"}`}
}

func (o StoredOrder) decode() (order Order, err error) {
	err = json.Unmarshal([]byte(o.JSON), &order)
	return order, err
}

// OrderRow is an order with all that is known about it. Its state is that of its book.
type OrderRow struct {
	StoredOrder
	StoreID        string
	UniqueCode     int64    // the one drawn for the order, whatever its method is now
	Handover       Handover // chosen when the order was made, because a store's options change later
	StockUntil     Time     // when a reported order of the shop page gives its stock back; 0 = it does not
	ComponentsJSON string   `sql:"components"` // its Components
	Book           Book

	Order      Order            `sql:"-"` // decoded
	Components []component      `sql:"-"` // decoded
	Sessions   []PaymentSession `sql:"-"` // the latest first
	news       []Note           // from gateways, in this write; the history gets them
	history    []HistoryEntry   // to be written
	hasRung    bool             // the owner's phone rings for what this write has done before
}

// sqlOrder reads what readColumns needs of an order.
const sqlOrder = `
	SELECT id, json, store_id, unique_code, handover, stock_until, events, components, book, status, provider, method, amount, expires_at,
	       EXISTS (SELECT 1 FROM payment_sessions WHERE order_id = orders.id) AS has_sessions
	FROM   orders
	WHERE  id = ?`

// orderColumns is a row of sqlOrder.
type orderColumns struct {
	OrderRow
	Status      Status
	Provider    Provider
	Method      string
	Amount      int64
	ExpiresAt   Time
	HasSessions bool
}

// readOrder reads an order of a store. The error is ErrNotFound if it has none with this id.
func readOrder(ctx context.Context, q querier, storeID, id string) (OrderRow, error) {
	o, err := readColumns(ctx, q, storeID, id)
	if err != nil {
		return o, err
	}
	return o, o.decodeAll()
}

// readOrderOfAnyStore is for pay pages, the clock and gateways, which know an order and not its store.
func readOrderOfAnyStore(ctx context.Context, q querier, id string) (OrderRow, error) {
	row, err := one[orderColumns](ctx, q, sqlOrder, id)
	if err != nil {
		return OrderRow{}, err
	}
	o, err := row.withSessions(ctx, q)
	if err != nil {
		return o, err
	}
	return o, o.decodeAll()
}

// readColumns is readOrder without decoding JSON: in Order, only the provider, the method, the amount and the end are
// set.
func readColumns(ctx context.Context, q querier, storeID, id string) (OrderRow, error) {
	row, err := one[orderColumns](ctx, q, sqlOrder+" AND store_id = ?", id, storeID)
	if err != nil {
		return OrderRow{}, err
	}
	return row.withSessions(ctx, q)
}

// withSessions returns the order of a row, with its sessions and payments.
func (row orderColumns) withSessions(ctx context.Context, q querier) (o OrderRow, err error) {
	o = row.OrderRow
	o.Book.Status = row.Status
	o.Order = Order{
		PaymentProvider: row.Provider,
		PaymentMethod:   row.Method,
		Amount:          row.Amount,
		ExpiresAt:       row.ExpiresAt,
	}
	if !row.HasSessions {
		return o, nil
	}

	return o, o.readSessions(ctx, q)
}

// decodeAll decodes the order's JSON.
func (o *OrderRow) decodeAll() (err error) {
	o.Order, err = o.decode()
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(o.ComponentsJSON), &o.Components)
}

// NewOrder is a request to create an order. Its rules are those of the API. CreateOrder relies on them,
// except the buyer's.
type NewOrder struct {
	PaymentMethod  string            `json:"payment_method" rule:"exact 1..64 optional"`
	ExternalID     string            `json:"external_id" rule:"exact 1..64 optional"`
	ReturnURL      string            `json:"return_url" rule:"url optional"`
	Buyer          Buyer             `json:"buyer" rule:"object"`
	Items          []NewItem         `json:"items" rule:"list 1..100"`
	ShippingFee    int64             `json:"shipping_fee" rule:"money optional"`
	Discount       int64             `json:"discount" rule:"money optional"`
	Note           string            `json:"note" rule:"lines 0..1000 optional"`
	Metadata       map[string]string `json:"metadata" rule:"map 0..20 optional"`
	Shipping       NewShipping       `json:"shipping" rule:"object optional"`
	Source         Source            // set by the caller, as the four fields below are
	Seen           *SeenPrices       // what the shop page has shown; nil = it is not an order of that page
	Trial          *Method           // a method that a test order tries, and that need not be the store's
	IdempotencyKey string            // "" = none
	BodyHash       []byte            // SHA-256 of the request's body
}

// CreatedOrder is the answer to a request to create an order.
type CreatedOrder struct {
	ID       string
	Shown    string // the order as the API shows it
	Replayed bool   // an earlier request with the same Idempotency-Key created it
	BodyHash []byte // of that request
}

// CreateOrder creates an order: prices are read, stock is reserved, and the order, its events and its
// Idempotency-Key are written in one transaction. A request that repeats a key and its body gets the first
// answer again; with another body it is refused, but the order is still returned, because the dashboard
// offers to open it.
func (db *DB) CreateOrder(ctx context.Context, st Store, in NewOrder) (created CreatedOrder, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		if in.IdempotencyKey != "" {
			answered := tx.find(&created, `
				SELECT answer ->> '$.id' AS id, answer AS shown, 1 AS replayed, body_hash
				FROM   idempotency_keys
				WHERE  store_id = ? AND key = ?`, st.ID, in.IdempotencyKey)
			if answered && !bytes.Equal(created.BodyHash, in.BodyHash) {
				return refuse(IdempotencyKeyReused)
			}
			if answered { // created is the stored answer to the first request.
				return nil
			}
		}

		created, err = tx.insertOrder(st, in)
		if err == nil && in.IdempotencyKey != "" {
			tx.exec(`
				INSERT INTO idempotency_keys (store_id, key, body_hash, answer, created_at)
				VALUES (?, ?, ?, ?, ?)`, st.ID, in.IdempotencyKey, in.BodyHash, created.Shown, tx.now)
		}
		return err
	})
	return created, err
}

// insertOrder checks an order against the store, its goods and its methods, and writes it.
func (tx *Tx) insertOrder(st Store, in NewOrder) (created CreatedOrder, err error) {
	if in.ExternalID != "" {
		var other string
		if tx.find(&other, "SELECT id FROM orders WHERE store_id = ? AND external_id = ?", st.ID, in.ExternalID) {
			refusal := &Refusal{Reason: DuplicateExternalID, Words: other, OrderID: other}
			return created, refusal.add("external_id", "must differ from every other order's: order %s has it", other)
		}
	}

	o := OrderRow{StoreID: st.ID, Book: Book{Status: Pending}, Order: Order{
		ShippingFee: in.ShippingFee,
		Discount:    in.Discount,
		Currency:    "IDR",
		Buyer:       in.Buyer,
		ExternalID:  in.ExternalID,
		ReturnURL:   in.ReturnURL,
		Note:        in.Note,
		Metadata:    in.Metadata,
		Source:      in.Source,
	}}
	if err := tx.addItems(&o, in.Items); err != nil {
		return created, err
	}
	if err := tx.chooseShipping(&o, in.Shipping); err != nil {
		return created, err
	}
	if err := tx.choosePayment(&o, st, in); err != nil {
		return created, err
	}
	if in.Seen != nil {
		if err := in.Seen.compare(o); err != nil {
			return created, err
		}
	}
	if short := tx.reserve(&o); len(short) > 0 {
		return created, o.outOfStock(short)
	}

	o.ID = tx.newID()
	o.Order.CreatedAt = tx.now
	o.Order.ExpiresAt = tx.now.Add(st.Expiry)
	o.Order.ID = o.ID
	o.Order.PaymentReference = tx.newReference()
	o.render(tx.now)

	created = CreatedOrder{ID: o.ID, Shown: tx.addEvent(&o, st, OrderCreated, nil)} // Clients see what the event shows.
	if o.Book.Status == Paid {
		created.Shown = tx.addEvent(&o, st, OrderPaid, nil)
	}

	tx.storeOrder(&o) // after its events, which it counts; they have no foreign key to it
	return created, nil
}

// choosePayment sets how the order is paid, and what that costs. An order with nothing to pay is paid at
// once.
func (tx *Tx) choosePayment(o *OrderRow, st Store, in NewOrder) error {
	switch amount := o.Order.beforeFee(); {
	case amount < 0:
		return refuse(ValidationFailed).add("discount",
			"must be at most subtotal + shipping_fee, which is %d", amount+o.Order.Discount)
	case amount == 0:
		o.Order.SettlementChannel = "none"
		o.Order.PaymentProvider = NoProvider
		o.Order.PaymentMethod = "none"
		o.Book.Status = Paid
		o.Order.PaidAt = tx.now
		return nil
	case in.Trial != nil:
		o.Order.Test = true
		return tx.setMethod(o, *in.Trial)
	case in.PaymentMethod == "":
		return refuse(ValidationFailed).add("payment_method", "is needed: take a code from GET /v1/payment-methods")
	}

	m, found := tx.method(st.ID, in.PaymentMethod)
	if !found || !m.usable(st, o.Order.Subtotal) {
		return refuse(PaymentMethodUnavailable).add("payment_method",
			"is not a method that this order can be paid with: take one from GET /v1/payment-methods")
	}

	o.Order.Test = m.Test
	return tx.setMethod(o, m)
}

const (
	uniqueAmountsFor = 7 * 24 * time.Hour
	mostUniqueCode   = 999
)

// setMethod changes an order to a method, with its fee and its unique code.
func (tx *Tx) setMethod(o *OrderRow, m Method) error {
	o.Order.Fee = m.Fee
	o.Order.UniqueCode = 0
	base := o.Order.beforeFee() + m.Fee
	if m.UniqueCode {
		o.UniqueCode = tx.uniqueCode(o, base)
		o.Order.UniqueCode = o.UniqueCode
	}

	o.Order.Amount = base + o.Order.UniqueCode
	if !m.takes(o.Order.Amount) {
		return refuse(PaymentMethodUnavailable).add("payment_method", "takes at most %d", mostQRISAmount)
	}
	o.Order.PaymentMethod = m.Code
	o.Order.PaymentProvider = m.Provider
	o.Order.SettlementChannel = m.Channel
	if o.Order.Amount > maxMoney {
		return refuse(ValidationFailed).add("items", "come to more than %d in all", maxMoney)
	}
	return nil
}

// uniqueCode returns a code that makes the order's amount, with the base that it is added to, differ from that of each
// other order of the store in the last seven days. It is the code that was drawn for the order before, or a new one. If
// all amounts are taken, one repeats. Each step leads 382 codes further, and all steps together to every code.
func (tx *Tx) uniqueCode(o *OrderRow, base int64) int64 {
	code := cmp.Or(o.UniqueCode, 1+rand.Int64N(mostUniqueCode))
	tx.find(&code, `
		WITH RECURSIVE steps (n, code) AS (
			VALUES (1, ?1)
			UNION ALL
			SELECT n + 1, (code + 381) % ?2 + 1 FROM steps WHERE n < ?2
		)
		SELECT code
		FROM   steps
		WHERE  NOT EXISTS (
			SELECT 1
			FROM   orders INDEXED BY orders_by_amount -- SQLite would read all orders of those days
			WHERE  store_id = ?3 AND amount = ?4 + code AND created_at > ?5 AND id <> ?6)
		LIMIT  1`, code, mostUniqueCode, o.StoreID, base, tx.now.Add(-uniqueAmountsFor), o.ID)
	return code
}

// render makes the order's JSON again, and returns the names of the fields that have changed, without updated_at, which
// changes only if another field has. A new order has no names.
func (o *OrderRow) render(now Time) (changed []string) {
	o.Order.Status = o.Book.Status
	o.Order.RequiresPayment = o.Book.Status == Pending && o.Order.Amount > 0
	o.Order.Alerts = alertCodes(alerts(o.Book))
	isNew := o.JSON == ""
	if !isNew {
		changed = o.changedFields()
	}
	if isNew || len(changed) > 0 {
		o.Order.UpdatedAt = now
		o.JSON = string(toJSON(o.Order))
	}
	return changed
}

// changedFields returns the names of the fields that the order shows otherwise than its JSON, sorted, without
// updated_at. The JSON is compared as this version of the program renders it, so that an upgrade alone changes nothing.
func (o *OrderRow) changedFields() (names []string) {
	stored, err := o.decode()
	if err != nil {
		return nil // The order was read from this JSON.
	}
	before, after := shownFields(stored), shownFields(o.Order)
	for name, value := range after {
		if string(before[name]) != string(value) {
			names = append(names, name)
		}
	}
	for name := range before {
		if after[name] == nil {
			names = append(names, name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "updated_at" })
	slices.Sort(names)
	return names
}

// shownFields returns the order's fields as its JSON has them.
func shownFields(o Order) (fields map[string]json.RawMessage) {
	json.Unmarshal(toJSON(o), &fields) // It was encoded a moment ago.
	return fields
}

// crockford is base32 without letters that look alike, in ASCII order
// (https://www.crockford.com/base32.html).
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ")

// newReference returns an order's payment_reference, which a person can quote: a day in WIB and six
// characters. The characters are a count modulo 2³⁰: the time in twelfths of a millisecond, or one more than
// the last count, if that is larger. 2³⁰ twelfths are more than a day, so no reference repeats while the
// process runs; if one does after a restart with the clock set back, the index refuses it. New references are
// neighbours in that index, whereas each random one would change a page of its own.
func (tx *Tx) newReference() string {
	number := max(tx.db.latestReference+1, int64(tx.now)*12)
	tx.db.latestReference = number
	tail := crockford.EncodeToString(binary.BigEndian.AppendUint32(nil, uint32(number)<<2)) // six characters have 30 bits
	return Time(number/12).Time().In(wib).Format("INV-20060102-") + tail[:6]
}

// addEvent writes an event of the order as it was rendered last, and its deliveries, which are due at once. It returns
// the order as the event shows it. changed has the names of the fields that have changed. An endpoint that is off gets
// deliveries too: they wait until it is on. A phone gets only what is news to its owner.
func (tx *Tx) addEvent(o *OrderRow, st Store, name EventName, changed []string) (shown string) {
	o.Events++
	shown = strings.Join(st.show(o.StoredOrder, ""), "")
	data := `{"order":` + shown + "}"
	if name == OrderUpdated {
		data = `{"order":` + shown + `,"changed":` + string(toJSON(changed)) + "}"
	}
	eventID := tx.writeEvent(o.StoreID, o.ID, o.Events, name, data)

	var endpoints []string
	tx.list(&endpoints, `
		SELECT id
		FROM   endpoints
		WHERE  store_id = ? AND removed_at = 0 AND (events = '[]' OR EXISTS (SELECT 1 FROM json_each(events) WHERE value = ?))
		       AND (kind = 'webhook' OR ?)
		ORDER BY id`, o.StoreID, name, ringsPhone(name, o.Order.Alerts != nil) && !o.isByOwner() && tx.db.ringsForShop(*o, name))
	for _, id := range endpoints { // The event and the endpoint exist, so the only possible error is the write's.
		tx.addDelivery(eventID, id)
	}
	return shown
}

// isByOwner reports whether the owner has done in the dashboard what this write changes.
func (o *OrderRow) isByOwner() bool {
	if len(o.history) == 0 { // It is new.
		return o.Order.Source == FromOwner
	}
	return o.history[len(o.history)-1].Actor == ActorOwner
}

// storeOrder writes a new order, or what has changed in one. render has set its status and alerts.
func (tx *Tx) storeOrder(o *OrderRow) {
	order := o.Order
	tx.exec(`
		INSERT INTO orders (id, store_id, status, reference, external_id, provider, method, test, amount, unique_code,
		                    created_at, expires_at, paid_at, attention, events, components, book, json, source, handover,
		                    shipped_at, stock_until)
		VALUES (?, ?, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE
		SET status = excluded.status, provider = excluded.provider, method = excluded.method, amount = excluded.amount,
		    unique_code = excluded.unique_code, paid_at = excluded.paid_at, attention = excluded.attention,
		    events = excluded.events, components = excluded.components, book = excluded.book, json = excluded.json,
		    expires_at = excluded.expires_at,
		    handover = excluded.handover, shipped_at = excluded.shipped_at, stock_until = excluded.stock_until`,
		o.ID, o.StoreID, order.Status, order.PaymentReference, order.ExternalID, order.PaymentProvider,
		order.PaymentMethod, order.Test, order.Amount, o.UniqueCode, order.CreatedAt, order.ExpiresAt, order.PaidAt,
		len(order.Alerts) > 0, o.Events, fromJSON{o.Components}, fromJSON{o.Book}, o.JSON, order.Source, o.Handover,
		order.Shipping.ShippedAt, o.StockUntil)
	for _, h := range o.history {
		tx.exec(`
			INSERT INTO order_history (order_id, position, at, from_status, to_status, actor, note)
			SELECT ?1, coalesce(max(position), 0) + 1, ?2, ?3, ?4, ?5, ?6
			FROM   order_history
			WHERE  order_id = ?1`,
			o.ID, tx.now, h.From, h.To, h.Actor, fromJSON{h.Note})
	}
}
