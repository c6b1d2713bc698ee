//go:build cgo

package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is the state of an order.
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

// Order is what the API shows of an order, except its two addresses: see showOrder. Its id comes first, then what may
// change, then its terms, which never do: see splitOrder. A new field of the terms, of an Item or of the Buyer needs omitempty
// and a value in new orders only, or events that are still to be sent again would change.
type Order struct {
	ID string `json:"id"`

	Status            Status      `json:"status"`
	Amount            int64       `json:"amount"`      // beforeFee, Fee and UniqueCode
	Fee               int64       `json:"fee"`         // the payment method's
	UniqueCode        int64       `json:"unique_code"` // in rupiah: it tells the order's amount from others
	SettlementChannel Channel     `json:"settlement_channel"`
	PaymentProvider   Provider    `json:"payment_provider"`
	PaymentMethod     string      `json:"payment_method"`
	RequiresPayment   bool        `json:"requires_payment"`  // pending, and not free
	PaidAt            Time        `json:"paid_at,omitempty"` // kept by a refund, not by a reversal
	UpdatedAt         Time        `json:"updated_at"`
	Alerts            []AlertCode `json:"alerts,omitempty"` // the open ones, sorted

	PaymentReference string   `json:"payment_reference"`
	Subtotal         int64    `json:"subtotal"`
	ShippingFee      int64    `json:"shipping_fee"`
	Discount         int64    `json:"discount"`
	Currency         string   `json:"currency"`
	Buyer            Buyer    `json:"buyer"`
	Items            []Item   `json:"items"`
	ExternalID       string   `json:"external_id,omitempty"`
	ReturnURL        string   `json:"return_url,omitempty"`
	Note             string   `json:"note,omitempty"`
	Metadata         Metadata `json:"metadata,omitempty"`
	ExpiresAt        Time     `json:"expires_at"`
	CreatedAt        Time     `json:"created_at"`
}

// Metadata is what a shop's own system keeps with an order. The service gives it back and reads nothing in it.
type Metadata map[string]string

// beforeFee is what an order costs without the fee of a payment method.
func (o *Order) beforeFee() int64 { return o.Subtotal + o.ShippingFee - o.Discount }

type Buyer struct {
	Name  string `json:"name"`
	Email string `json:"email,omitempty"`
	Phone string `json:"phone,omitempty"`
}

type Item struct {
	Type      Kind   `json:"type"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price"`
	LineTotal int64  `json:"line_total"`
	ProductID string `json:"product_id,omitempty"`
	BundleID  string `json:"bundle_id,omitempty"`
}

// NewOrder is a valid request to create an order.
type NewOrder struct {
	Items          []NewItem
	Buyer          Buyer
	PaymentMethod  string
	ExternalID     string
	ReturnURL      string
	ShippingFee    int64
	Discount       int64
	Note           string
	Metadata       Metadata
	IdempotencyKey string   // empty if the request had none
	BodyHash       [32]byte // SHA-256 of the request's body, if it had a key
}

type NewItem struct {
	Kind     Kind
	ID       string
	Quantity int64
}

const idempotencyKept = 48 * time.Hour

// CreatedOrder is the answer to a request to create an order.
type CreatedOrder struct {
	ID        string
	Reference string // its payment_reference
	Shown     []byte // JSON with the order's addresses
	Replayed  bool   // an earlier request with the same Idempotency-Key created it
	Due       bool   // webhooks are due
}

// CreateOrder creates an order. Prices are read, stock is reserved and events are written in one transaction. A
// request whose Idempotency-Key and body came before gets the first answer again.
func (db *DB) CreateOrder(ctx context.Context, st Store, in NewOrder) (CreatedOrder, error) {
	return writeResult(ctx, db, func(tx *Tx) (CreatedOrder, error) {
		if in.IdempotencyKey == "" {
			return tx.createOrder(st, in)
		}

		created, err := tx.replay(st.ID, in)
		if err != errNotFound {
			return created, err
		}
		created, err = tx.createOrder(st, in)
		if err != nil {
			return created, err
		}

		// A key that is too old to be replayed, and not deleted yet, is replaced.
		_, err = tx.exec(`
			INSERT OR REPLACE INTO idempotency_keys (store_id, key, body_hash, order_row, created_at)
			VALUES (?, ?, ?, ?, ?)`,
			st.ID, in.IdempotencyKey, in.BodyHash[:], rowOf(created.ID), tx.now)
		return created, err
	})
}

// The first answer is not stored a second time: the order's first event, orderCreated, carries the same bytes.
const sqlIdempotency = `
	SELECT o.reference, k.body_hash, v.body, o.json
	FROM   idempotency_keys k
	JOIN   orders o ON o.row = k.order_row
	JOIN   events v ON v.order_row = k.order_row AND v.sequence = 1
	WHERE  k.store_id = ? AND k.key = ? AND k.created_at > ?`

// replay returns the order that an earlier request with the key of in created, or errNotFound.
func (tx *Tx) replay(storeID string, in NewOrder) (CreatedOrder, error) {
	created := CreatedOrder{Replayed: true}
	var bodyHash []byte
	var event, order string
	err := queryInto(tx, []any{&created.Reference, &bodyHash, &event, &order},
		sqlIdempotency, storeID, in.IdempotencyKey, tx.now.Add(-idempotencyKept))
	if err != nil {
		return created, err
	}
	created.ID = orderIDIn(order)
	created.Shown = []byte(orderIn(wholeEvent(event, order)))

	if !bytes.Equal(bodyHash, in.BodyHash[:]) {
		return created, &APIError{
			Code:    codeIdempotencyKeyReused,
			Message: "This Idempotency-Key was used with another body: send a new key with a new order.",
		}
	}
	return created, nil
}

// order is the order that is asked for, without what the store decides: its id, times, items, payment and reference.
func (in NewOrder) order() *Order {
	return &Order{
		Status:      Pending,
		ShippingFee: in.ShippingFee,
		Discount:    in.Discount,
		Currency:    "IDR",
		Buyer:       in.Buyer,
		ExternalID:  in.ExternalID,
		ReturnURL:   in.ReturnURL,
		Note:        in.Note,
		Metadata:    in.Metadata,
	}
}

func (tx *Tx) createOrder(st Store, in NewOrder) (created CreatedOrder, err error) {
	if err := tx.checkExternalID(st.ID, in.ExternalID); err != nil {
		return created, err
	}

	o := in.order()
	components, err := tx.addItems(o, st.ID, in.Items)
	if err != nil {
		return created, err
	}
	if err := tx.choosePayment(o, st.ID, in.PaymentMethod); err != nil {
		return created, err
	}
	// reserve comes before insertOrder: it marks what it reserved, and the marks are stored with the order.
	short, err := tx.reserve(components)
	if err != nil {
		return created, err
	}
	if len(short) > 0 {
		return created, outOfStock(short)
	}

	stored, err := tx.insertOrder(o, st, components)
	if err != nil {
		return created, err
	}
	if err := tx.keepUniqueCode(st.ID, o); err != nil {
		return created, err
	}
	// An order that is paid at once is free and brings no revenue.
	if err := tx.addTotals(st.ID, tx.now, DayTotals{Orders: 1}); err != nil {
		return created, err
	}

	created.ID = o.ID
	created.Reference = o.PaymentReference
	room := make([]byte, 0, len(stored)+512) // for the addresses too
	created.Shown = st.showOrder(room, stored)
	err = tx.addEvent(st, OrderCreated, 1, stored)
	if err == nil && o.Status == Paid {
		err = tx.addEvent(st, OrderPaid, 2, stored)
	}
	created.Due = tx.due
	return created, err
}

// checkExternalID refuses an external id that another order of the store has.
func (tx *Tx) checkExternalID(storeID, externalID string) error {
	if externalID == "" {
		return nil
	}

	other, err := queryOne(tx, scanValue[string], `
		SELECT coalesce((SELECT id FROM orders WHERE store_id = ? AND external_id = ?), '')`,
		storeID, externalID)
	if err != nil || other == "" {
		return err
	}
	detail := detailf("external_id", "must differ from every other order's: order %s has it", other)
	detail.OrderID = other
	return &APIError{codeDuplicateExternalID, "Order " + other + " has this external_id.", []Detail{detail}}
}

// addItems fills in the order's items and subtotal from what is published now. It returns the products that the
// order consists of, sorted by id.
func (tx *Tx) addItems(o *Order, storeID string, items []NewItem) ([]component, error) {
	var unknown, tooMuch []Detail
	components := make([]component, 0, len(items))
	positions := map[string]int{} // in components, by id
	o.Items = make([]Item, 0, len(items))
	for i, in := range items {
		rows, err := tx.forSale(storeID, in.Kind, in.ID)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			unknown = append(unknown, detailf(fmt.Sprintf("items[%d].%s_id", i, in.Kind),
				"is no published %s of this store: take one from GET /v1/products", in.Kind))
			continue
		}

		item := rows[0].item
		item.Quantity = in.Quantity
		item.LineTotal = item.UnitPrice * in.Quantity
		if item.LineTotal > maxMoney {
			tooMuch = append(tooMuch, detailf(fmt.Sprintf("items[%d].quantity", i),
				"makes the line exceed %d", int64(maxMoney)))
		}
		o.Items = append(o.Items, item)
		o.Subtotal += item.LineTotal

		for _, r := range rows {
			id, perPiece := r.component.ProductID, r.component.Quantity
			at, known := positions[id]
			if !known {
				at = len(components)
				positions[id] = at
				r.component.Quantity = 0
				components = append(components, r.component)
			}
			components[at].Quantity += perPiece * in.Quantity
			components[at].items = append(components[at].items, i)
		}
	}

	if len(unknown) > 0 {
		return nil, &APIError{codeProductUnavailable, "Something in this order is not for sale.", unknown}
	}
	if len(tooMuch) == 0 && o.Subtotal > maxMoney {
		tooMuch = []Detail{detailf("items", "come to more than %d in all", int64(maxMoney))}
	}
	if len(tooMuch) > 0 {
		return nil, validationFailed(tooMuch...)
	}

	slices.SortFunc(components, byProduct) // as storedComponents compares them
	return components, nil
}

// outOfStock refuses an order and names the items that want too much.
func outOfStock(short []component) error {
	var details []Detail
	for _, c := range short {
		for _, item := range c.items {
			details = append(details, detailf(fmt.Sprintf("items[%d].quantity", item),
				"is more than is left: order fewer, or without it"))
		}
	}
	return &APIError{codeOutOfStock, "There is not enough stock for this order.", details}
}

// If the store has an order with this reference, the statement names that order's row, which is a conflict, and inserts
// nothing. (With INSERT … SELECT … WHERE NOT EXISTS, SQLite keeps a journal for the statement: 3 % of the time of an order.)
const sqlInsertOrder = `
	INSERT INTO orders (row, store_id, status, reference, provider, external_id, expires_at, components, json)
	VALUES (coalesce((SELECT row FROM orders WHERE reference = ?4 AND +store_id = ?2), ?1),
	        ?2, ?3, ?4, ?5, nullif(?6, ''), ?7, ?8, ?9)
	ON CONFLICT (row) DO NOTHING`

// insertOrder writes the order's row under an id and a reference that no other order has, and returns the order's JSON
// as it is stored.
func (tx *Tx) insertOrder(o *Order, st Store, components []component) (stored string, err error) {
	kept := storedComponents(o.Items, components)
	_, err = tx.insertRow(func(id string) (int64, error) {
		o.ID = id
		o.CreatedAt = tx.now // An id begins with its order's created_at.
		o.UpdatedAt = tx.now
		o.ExpiresAt = tx.now.Add(st.Expiry)
		if o.Status == Paid { // There is nothing to pay.
			o.PaidAt = tx.now
		}
		o.PaymentReference = tx.newReference()
		stored = string(mustJSON(o))

		return tx.exec(sqlInsertOrder,
			rowOf(id), st.ID, o.Status, o.PaymentReference, o.PaymentProvider, o.ExternalID, o.ExpiresAt, kept, stored)
	})
	return stored, err
}

// storeOrder writes what has changed of an order, and returns its JSON as it is stored.
func (tx *Tx) storeOrder(r orderRow) (stored string, err error) {
	o := r.order
	stored = string(mustJSON(o))
	err = tx.mustChange(`
		UPDATE orders
		SET    status = ?, provider = ?, components = ?, json = ?
		WHERE  row = ?`,
		o.Status, o.PaymentProvider, storedComponents(o.Items, r.components), stored, rowOf(o.ID))
	return stored, err
}

// newReference returns what a buyer quotes with a transfer: the day in WIB and six characters of Crockford's
// base32 (https://www.crockford.com/base32.html), which has no letters that look alike.
//
// The six are a number that grows with the time of day, so that new references follow each other in their index. Random
// ones change a page of it each, which took a twentieth of the processor time of an order.
func (tx *Tx) newReference() string {
	const perMS = 12 // A day has 86,400,000 ms, and 12 times that fits into six characters.
	const minute, day = 60_000 * perMS, 86_400_000 * perMS

	// If one millisecond has more than 12 orders, they use numbers of the following ones. After a clock was set back by
	// more than a minute, the numbers follow it, and insertOrder tries the next one until one is free.
	db := tx.db
	number := int64(tx.now.Add(wibAhead)) * perMS
	if number <= db.reference && db.reference < number+minute {
		number = db.reference + 1
	}
	db.reference = number

	const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	tail := make([]byte, 6)
	rest := number % day
	for i := len(tail) - 1; i >= 0; i-- {
		tail[i] = crockford[rest%32]
		rest /= 32
	}
	return referencePrefix(Time(number/perMS).Add(-wibAhead)) + string(tail)
}

func referencePrefix(t Time) string { return "INV-" + t.Time().In(wib).Format("20060102") + "-" }

// orderIDIn returns the id of the order that is stored as this JSON, which begins with it. A list that reads ids as a column
// takes 8 % longer.
func orderIDIn(stored string) string { return stored[len(`{"id":"`):][:idLength] }

// termsStart is where the terms of an order begin in its JSON. No text that a client wrote comes before them.
const termsStart = `,"payment_reference":"`

// splitOrder splits the JSON of a stored order into its id with what may change, and its terms, which begin with a comma.
// Both are without the order's braces.
func splitOrder(stored string) (state, terms string) {
	before, after, _ := strings.Cut(stored, termsStart)
	return before[1:], termsStart + strings.TrimSuffix(after, "}")
}

// showOrder appends a stored order to dst with its two addresses, both of which are its pay page. They are not stored,
// because they depend on where the store is served. Plain appends take a tenth less time for a list than fmt.Appendf.
func (st Store) showOrder(dst []byte, stored string) []byte {
	dst = st.beginOrder(dst, stored)
	dst = st.appendPayPage(dst, orderIDIn(stored))
	return append(dst, '}')
}

// showOrderPaidAt is showOrder for an order that is paid at another address than its pay page.
func (st Store) showOrderPaidAt(dst []byte, stored, paymentURL string) []byte {
	dst = st.beginOrder(dst, stored)
	dst = appendJSONText(dst, paymentURL)
	return append(dst, '}')
}

// beginOrder appends a stored order up to the address where it is paid.
func (st Store) beginOrder(dst []byte, stored string) []byte {
	dst = append(dst, stored[:len(stored)-1]...)
	dst = append(dst, `,"checkout_url":`...)
	dst = st.appendPayPage(dst, orderIDIn(stored))
	return append(dst, `,"payment_url":`...)
}

// appendPayPage appends the JSON of the address of an order's pay page. A host that was checked and an id have nothing
// to escape.
func (st Store) appendPayPage(dst []byte, id string) []byte {
	dst = append(dst, '"')
	dst = append(dst, st.URL...)
	dst = append(dst, "/pay/"...)
	dst = append(dst, id...)
	return append(dst, '"')
}

// Transition is something that happens to an order.
type Transition string

const (
	BuyerClaims       Transition = "buyer says paid"
	BuyerTakesBack    Transition = "buyer takes back"
	GatewayChallenges Transition = "gateway challenge"
	GatewaySettles    Transition = "gateway settlement"
	GatewayCancels    Transition = "gateway cancel"
	GatewayRefunds    Transition = "gateway refund"
	GatewayReverses   Transition = "gateway reversal"
	OwnerApproves     Transition = "approve"
	OwnerRejects      Transition = "reject"
	OwnerCancels      Transition = "cancel"
	OwnerRefunds      Transition = "refund"
	ClockExpires      Transition = "expire"
)

// transitions is the order's state machine. Whatever is not here is refused.
var transitions = map[Transition]struct {
	from  []Status
	to    Status
	actor Actor
}{
	BuyerClaims:       {[]Status{Pending, Expired}, AwaitingVerification, ActorBuyer},
	BuyerTakesBack:    {[]Status{AwaitingVerification}, Pending, ActorBuyer},
	GatewayChallenges: {[]Status{Pending, Expired}, AwaitingVerification, ActorGateway},
	GatewaySettles:    {[]Status{Pending, AwaitingVerification, Expired, Failed}, Paid, ActorGateway},
	GatewayCancels:    {[]Status{Pending, AwaitingVerification}, Failed, ActorGateway},
	GatewayRefunds:    {[]Status{Paid}, Refunded, ActorGateway},
	GatewayReverses:   {[]Status{Paid}, Failed, ActorGateway},
	OwnerApproves:     {[]Status{Pending, AwaitingVerification, Expired, Failed}, Paid, ActorOwner},
	OwnerRejects:      {[]Status{AwaitingVerification}, Failed, ActorOwner},
	OwnerCancels:      {[]Status{Pending}, Failed, ActorOwner},
	OwnerRefunds:      {[]Status{Paid}, Refunded, ActorOwner},
	ClockExpires:      {[]Status{Pending}, Expired, ActorClock},
}

// possible reports whether the transition may happen to an order in this state.
func (t Transition) possible(from Status) bool { return slices.Contains(transitions[t].from, from) }

// eventOf is the event that tells of an order's new state.
var eventOf = map[Status]Event{
	Pending:              OrderPending,
	AwaitingVerification: OrderAwaitingVerification,
	Paid:                 OrderPaid,
	Failed:               OrderFailed,
	Expired:              OrderExpired,
	Refunded:             OrderRefunded,
}

// Transition performs a transition of one order of a store. A state that forbids it is an APIError with the code
// ORDER_STATE.
func (db *DB) Transition(ctx context.Context, storeID, orderID string, t Transition, n Note) (*Order, error) {
	owner, err := db.StoreOf("order", orderID)
	if err != nil {
		return nil, err
	}
	if owner != storeID {
		return nil, errNotFound
	}
	return writeResult(ctx, db, func(tx *Tx) (*Order, error) { return tx.transition(orderID, t, n) })
}

// transition changes an order's state together with its stock, history, totals, payment sessions and event.
func (tx *Tx) transition(orderID string, t Transition, n Note) (*Order, error) {
	rule := transitions[t]
	r, err := tx.readOrderRow(orderID)
	if err != nil {
		return nil, err
	}
	o, from := &r.order, r.order.Status
	if !t.possible(from) {
		message := fmt.Sprintf("The order is %s: %q is possible only while it is %s.",
			from, t, joinOr(rule.from))
		return nil, &APIError{Code: codeOrderState, Message: message}
	}

	oversold, err := tx.moveStock(r, t)
	if err != nil {
		return nil, err
	}
	if err := tx.changeTotals(r, rule.to); err != nil {
		return nil, err
	}

	o.become(rule.to, tx.now)
	stored, err := tx.storeOrder(r)
	if err != nil {
		return nil, err
	}

	err = tx.addHistory(orderID, HistoryEntry{From: from, To: o.Status, Actor: rule.actor, Note: n})
	if err != nil {
		return nil, err
	}

	if t == OwnerApproves {
		if err := tx.attributePayment(orderID); err != nil {
			return nil, err
		}
	}
	if o.Status != AwaitingVerification && o.Status != Pending {
		if err := tx.endPaymentSessions(orderID); err != nil {
			return nil, err
		}
	}
	err = tx.addEvent(r.store, eventOf[o.Status], r.sequence, stored)
	if err != nil {
		return nil, err
	}
	return o, tx.alertAfter(r.store.ID, orderID, t, oversold)
}

// become gives an order its new state.
func (o *Order) become(to Status, now Time) {
	o.Status = to
	o.UpdatedAt = now
	o.RequiresPayment = to == Pending

	switch to {
	case Paid:
		o.PaidAt = now
	case Failed: // If it was paid, that is reversed: it never counted.
		o.PaidAt = 0
	}
}

// alertAfter raises the alert of an order that was paid when its stock was gone, and resolves those that a
// transition has made pointless.
func (tx *Tx) alertAfter(storeID, orderID string, t Transition, oversold bool) error {
	if oversold {
		err := tx.raiseAlert(storeID, orderID, Alert{Code: AlertOversold})
		if err != nil {
			return err
		}
	}
	if t == OwnerApproves { // The owner accepts what has arrived.
		return tx.resolveAlerts(storeID, orderID, AlertUnderpaid)
	}

	to := transitions[t].to
	if to == Failed || to == Refunded {
		return tx.resolveAlerts(storeID, orderID, AlertOversold, AlertPartlyRefunded)
	}
	return nil
}

// orderRow is an order with all that a transition needs.
type orderRow struct {
	store      Store
	order      Order
	components []component
	sequence   int64 // of the event that a transition writes
}

func (tx *Tx) readOrderRow(orderID string) (r orderRow, err error) {
	scan := func(found row) (Store, error) {
		return tx.db.scanStore(found, fromJSON{&r.order}, fromJSON{&r.components}, &r.sequence)
	}
	r.store, err = queryOne(tx, scan, `
		SELECT `+storeColumns+`, o.json, o.components,
		       (SELECT max(coalesce(max(sequence), 0), o.purged_sequence) + 1 FROM events WHERE order_row = o.row)
		FROM   orders o
		JOIN   stores s ON s.id = o.store_id
		WHERE  o.row = ?`, rowOf(orderID))
	if len(r.components) == 0 {
		r.components = productsIn(r.order.Items)
	}
	return r, err
}

// moveStock releases the stock of an order that fails or expires. An order that is paid after that needs its
// stock again, and so does one whose stock was released while it waited; oversold says that it is gone.
func (tx *Tx) moveStock(r orderRow, t Transition) (oversold bool, err error) {
	from, to := r.order.Status, transitions[t].to
	switch {
	case to == Failed || to == Expired:
		return false, tx.release(r.components)

	case from == AwaitingVerification && to == Paid:
		short, err := tx.reserveReleased(r.components)
		return len(short) > 0, err

	case from != Failed && from != Expired:
		return false, nil

	case t == BuyerClaims:
		return false, tx.reserveClaimed(r)
	}

	if err := tx.findUnlimited(r.components); err != nil {
		return false, err
	}
	short, err := tx.reserve(r.components)
	return len(short) > 0, err
}

// changeTotals counts the revenue of an order that becomes paid, and takes it off again when that ends.
func (tx *Tx) changeTotals(r orderRow, to Status) error {
	if to == Paid {
		return tx.addTotals(r.store.ID, tx.now, DayTotals{Revenue: r.order.Amount})
	}
	if r.order.Status != Paid {
		return nil
	}

	return tx.addTotals(r.store.ID, r.order.PaidAt, DayTotals{Revenue: -r.order.Amount})
}

// DayTotals is one day of a store, in WIB.
type DayTotals struct {
	Day     int64 // days since 1970
	Orders  int64 // created on it
	Revenue int64 // paid on it and not refunded or reversed since
}

// dayOf is the day of a time in WIB, in days since 1970.
func dayOf(t Time) int64 {
	return int64(t.Add(wibAhead)) / (24 * time.Hour).Milliseconds()
}

const sqlAddTotals = `
	INSERT INTO daily_totals (store_id, day, orders, revenue)
	VALUES (?1, ?2, ?3, ?4)
	ON CONFLICT DO UPDATE SET orders = orders + ?3, revenue = revenue + ?4`

// addTotals adds orders and revenue to the day of a time.
func (tx *Tx) addTotals(storeID string, at Time, t DayTotals) error {
	_, err := tx.exec(sqlAddTotals, storeID, dayOf(at), t.Orders, t.Revenue)
	return err
}

// sessionMayHoldMoney is true of a session s of the order o that keeps it from expiring: one that can still be paid,
// one that the gateway has not answered about since the order's end and is to be asked about, and one with a
// notification that is not decided. Nobody was shown the page of a session that is starting or not known, so an order
// does not wait for a gateway that gives no answer about it.
const sessionMayHoldMoney = `(
	s.status = 'active' OR
	s.status <> 'starting' AND s.checked_at < o.expires_at AND s.next_check_at IS NOT NULL AND
	    (s.failing_since = 0 OR ` + sessionIsKnown + `) OR
	EXISTS (SELECT 1 FROM notifications n WHERE n.session_id = s.id AND n.decided_at IS NULL))`

// noMoneyAnywhere is true of an order o none of whose sessions may hold money.
const noMoneyAnywhere = `NOT EXISTS (
	SELECT 1 FROM payment_sessions s WHERE s.order_row = o.row AND ` + sessionMayHoldMoney + `)`

// sqlDue finds pending orders that are past their end and for which no session may hold money.
const sqlDue = `
	SELECT id
	FROM   orders o
	WHERE  status = 'pending' AND expires_at <= ? AND ` + noMoneyAnywhere + `
	ORDER BY expires_at LIMIT +?`

// DueOrders returns the ids of at most limit orders that ExpireOrder would expire.
func (db *DB) DueOrders(limit int) ([]string, error) {
	return queryAll(db.reader, scanValue[string], sqlDue, db.Now(), limit)
}

// referenceOf names an order in the log; empty if it cannot be read.
func (db *DB) referenceOf(id string) string {
	reference, _ := queryOne(db.reader, scanValue[string], "SELECT reference FROM orders WHERE row = ?", rowOf(id))
	return reference
}

// ExpireOrder expires one of DueOrders, unless that has changed since.
func (db *DB) ExpireOrder(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.expireIfClear(id, Note{Code: NoteNotPaidInTime})
		return err
	})
}

// expireIfClear expires a pending order that is past its end and for which no session may hold money.
func (tx *Tx) expireIfClear(orderID string, n Note) (expired bool, err error) {
	if !tx.db.clockTrusted() { // An expired order stays expired.
		return false, nil
	}
	clear, err := queryOne(tx, scanValue[bool], `
		SELECT EXISTS (
			SELECT 1 FROM orders o
			WHERE  row = ? AND status = 'pending' AND expires_at <= ? AND `+noMoneyAnywhere+`)`,
		rowOf(orderID), tx.now)
	if err != nil || !clear {
		return false, err
	}
	_, err = tx.transition(orderID, ClockExpires, n)
	return err == nil, err
}

// PurgeIdempotencyKeys deletes at most limit keys that are too old to be replayed, and returns how many.
func (db *DB) PurgeIdempotencyKeys(ctx context.Context, limit int) (deleted int64, err error) {
	return writeResult(ctx, db, func(tx *Tx) (int64, error) {
		return tx.exec(`
			DELETE FROM idempotency_keys
			WHERE (store_id, key) IN (
				SELECT store_id, key FROM idempotency_keys
				WHERE  created_at <= ?
				ORDER BY created_at LIMIT +?)`,
			tx.now.Add(-idempotencyKept), limit)
	})
}

// OrderFilter selects orders. A zero field, Limit excepted, does not filter.
type OrderFilter struct {
	Status     Status
	Min, Max   *Time  // of created_at, both inclusive
	After      string // an order's id: only older orders
	ExternalID string
	Offset     int
	Limit      int
}

// For {index} and {status} see withStatus.
const (
	sqlOrders = `
		SELECT json FROM orders INDEXED BY {index}
		WHERE  store_id = ?1 AND row < ?2 {status} AND row >= ?6
		ORDER BY row DESC LIMIT +?4 OFFSET ?5`
	sqlOrdersByExternal = `
		SELECT json FROM orders
		WHERE  store_id = ?1 AND row < ?2 {status} AND row >= ?6 AND external_id = ?7
		LIMIT +?4 OFFSET ?5`
)

// appendOrders appends a JSON array of a store's orders to dst, the newest first, and reports whether there are more.
// They are sorted by row, which is by created_at and then by id, because an id begins with both.
func appendOrders(dst []byte, q querier, st Store, f OrderFilter) (list []byte, more bool, err error) {
	first, end := int64(0), rowBefore(f.After)
	if f.Min != nil {
		first = firstRow(*f.Min)
	}
	if f.Max != nil {
		end = min(end, firstRow(*f.Max+1))
	}

	query, args := sqlOrders, []any{st.ID, end, f.Status, f.Limit + 1, f.Offset, first}
	if f.ExternalID != "" {
		query = sqlOrdersByExternal
		args = append(args, f.ExternalID)
	}
	list = append(dst, '[')
	n := 0
	err = q.each(withStatus(query, f.Status), args, func(r row) error {
		n++
		if n > f.Limit {
			more = true
			return errEnough
		}
		if n > 1 {
			list = append(list, ',')
		}
		stored, ok := r[0].(string) // Scan would allocate memory for each order.
		if !ok {
			return fmt.Errorf("the JSON of an order is a %T", r[0])
		}
		list = st.showOrder(list, stored)
		return nil
	})
	return append(list, ']'), more, err
}

// OrderDetails is an order with everything that happened to it.
type OrderDetails struct {
	Order
	Alerts     []Alert // the open ones
	History    []HistoryEntry
	Sessions   []PaymentSession
	Deliveries []OrderDelivery
}

const (
	sqlOrderDetails = "SELECT json FROM orders WHERE row = ? AND id = ? AND store_id = ?"
	sqlHistory      = `
		SELECT at, from_status, to_status, actor, note
		FROM   order_history
		WHERE  order_row = ?
		ORDER BY position`
)

// OrderDetails reads an order of a store.
func (db *DB) OrderDetails(storeID, id string) (OrderDetails, error) {
	return readResult(db, func(q querier) (d OrderDetails, err error) {
		d.Order, err = queryOne(q, scanOrder, sqlOrderDetails, rowOf(id), id, storeID)
		if err != nil {
			return d, err
		}

		d.Alerts, err = queryAll(q, scanAlert, sqlAlerts, storeID, rowOf(id))
		if err != nil {
			return d, err
		}
		d.History, err = queryAll(q, scanHistory, sqlHistory, rowOf(id))
		if err != nil {
			return d, err
		}
		d.History = withCreation(d.Order, d.History)
		d.Sessions, err = queryAll(q, scanSession, sqlOrderSessions, rowOf(id))
		if err != nil {
			return d, err
		}
		d.Deliveries, err = queryAll(q, scanOrderDelivery, sqlOrderDeliveries, rowOf(id))
		return d, err
	})
}

func scanHistory(r row) (h HistoryEntry, err error) {
	err = r.Scan(&h.At, &h.From, &h.To, &h.Actor, fromJSON{&h.Note})
	return h, err
}
