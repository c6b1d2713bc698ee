package main

// This file is about the order: how it is read, changed and stored. An order is stored as the JSON that the API shows,
// rendered once per change, beside the columns that queries need. order_create.go creates it. Every later change goes
// through changeOrder.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
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
	IsPickup          bool              `json:"-"` // The buyer collects it. It is for pages: decode sets it.
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

type Item struct {
	Type      Kind   `json:"type"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price"`
	LineTotal int64  `json:"line_total"`
	ProductID string `json:"product_id,omitempty"`
	BundleID  string `json:"bundle_id,omitempty"`
	Slug      string `json:"slug,omitempty"` // when the order was made; orders of 1.0 have none
}

// StoredOrder is an order as it is stored.
type StoredOrder struct {
	ID       string
	JSON     string
	Events   int64    // how many it has: the sequence of its latest event
	Handover Handover // chosen when the order was made, because a store's options change later
}

func (o StoredOrder) decode() (order Order, err error) {
	err = json.Unmarshal([]byte(o.JSON), &order)
	order.IsPickup = o.Handover == ToPickUp
	return order, err
}

// OrderRow is an order with all that is known about it. Its state is that of its book.
type OrderRow struct {
	StoredOrder
	StoreID        string
	UniqueCode     int64  // the one drawn for the order, whatever its method is now
	StockUntil     Time   // when a reported order of the shop page releases its stock; 0 = it does not
	QRIS           string // the code of its payment method when the order was read, without an amount; "" = none
	ComponentsJSON string `sql:"components"` // its Components
	Book           Book

	Order      Order            `sql:"-"` // decoded
	Components []component      `sql:"-"` // decoded
	Sessions   []PaymentSession `sql:"-"` // the latest first
	news       []Note           // from gateways, in this write; the history gets them
	history    []HistoryEntry   // to be written
	hasRung    bool             // set by OrderFromShop: the phone has already rung in this write
}

// sqlOrder reads a row of an order.
const sqlOrder = `
	SELECT id, json, store_id, unique_code, handover, stock_until, events, components, book, status, provider, method,
	       amount, expires_at,
	       coalesce((SELECT iif(m.provider = 'manual' AND m.kind = 'qris', m.qris, '')
	                 FROM   payment_methods m
	                 WHERE  m.store_id = orders.store_id AND m.code = orders.method), '') AS qris,
	       EXISTS (SELECT 1 FROM payment_sessions WHERE order_id = orders.id) AS has_sessions
	FROM   orders
	WHERE  id = ?`

const sqlOrderOfStore = sqlOrder + " AND store_id = ?"

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
	return readWholeOrder(ctx, q, sqlOrderOfStore, id, storeID)
}

// readOrderOfAnyStore is for the buyer's pages, whose address names an order and not its store.
func readOrderOfAnyStore(ctx context.Context, q querier, id string) (OrderRow, error) {
	return readWholeOrder(ctx, q, sqlOrder, id)
}

// readWholeOrder reads the order that a query finds, and decodes its JSON.
func readWholeOrder(ctx context.Context, q querier, query string, args ...any) (OrderRow, error) {
	o, err := readOrderRow(ctx, q, query, args...)
	if err != nil {
		return o, err
	}
	o.Order, err = o.decode()
	if err != nil {
		return o, err
	}
	err = json.Unmarshal([]byte(o.ComponentsJSON), &o.Components)
	return o, err
}

// readOrderRow reads the order that a query finds, with its sessions and payments, but without decoding JSON: in Order,
// only the provider, the method, the amount and the end are set.
func readOrderRow(ctx context.Context, q querier, query string, args ...any) (OrderRow, error) {
	row, err := one[orderColumns](ctx, q, query, args...)
	if err != nil {
		return OrderRow{}, err
	}

	o := row.OrderRow
	o.Book.Status = row.Status
	o.Order = Order{
		PaymentProvider: row.Provider,
		PaymentMethod:   row.Method,
		Amount:          row.Amount,
		ExpiresAt:       row.ExpiresAt,
	}
	if row.HasSessions {
		err = o.readSessionsAndPayments(ctx, q)
	}
	return o, err
}

// changeFunc changes an order, its book and its sessions. The rest follows from them: see Tx.changeOrder.
type changeFunc func(tx *Tx, o *OrderRow) error

// changeOrder changes an order of a store in a write of its own.
func (db *DB) changeOrder(ctx context.Context, storeID, id string, fn changeFunc) (OrderRow, error) {
	return writeFor(ctx, db, func(tx *Tx) (OrderRow, error) {
		o, err := readOrder(tx, tx, storeID, id)
		if err != nil {
			return o, err
		}
		err = tx.changeOrder(&o, fn)
		return o, err
	})
}

// mostDueAtOnce is how many orders changeDue changes.
const mostDueAtOnce = 64

// changeDue changes the orders that a query finds by fn, which finds out whether they are still due, each in a write of
// its own. isAll says that these were all. If there may be more, changeDue wakes runChecks, which calls it again. An
// order that cannot be changed is logged, and does not keep the others waiting.
func (db *DB) changeDue(ctx context.Context, fn changeFunc, query string, args ...any) (isAll bool, err error) {
	due, err := all[struct{ StoreID, ID string }](ctx, db, query+" LIMIT ?", append(args, mostDueAtOnce)...)
	if err != nil {
		return false, err
	}
	for _, o := range due {
		_, err := db.changeOrder(ctx, o.StoreID, o.ID, fn)
		if errors.Is(err, ErrUnavailable) {
			return false, err
		}
		if err != nil {
			db.log.Error("cannot change an order whose time is over", "error", err)
		}
	}
	if len(due) == mostDueAtOnce {
		wake(db.checksDue)
		return false, nil
	}
	return true, nil
}

// changeOrder changes an order by fn. Then the status becomes what the book implies (settle), and all consequences are
// written: stock, history, events, sessions and payments. An event is for the new status, for changed alerts, for a
// shipment or, without any of these, for any other change.
func (tx *Tx) changeOrder(o *OrderRow, fn changeFunc) error {
	statusBefore := o.Book.Status
	alertsBefore := alerts(o.Book)
	wasShipped := o.Order.isShipped()
	if err := fn(tx, o); err != nil {
		return err
	}
	if err := tx.applyBook(o, statusBefore); err != nil {
		return err
	}

	changed := o.renderJSON(tx.now)
	changedStatus := o.Book.Status != statusBefore
	var events []EventName
	if changedStatus {
		events = append(events, statusEvents[o.Book.Status])
	}
	if !slices.Equal(alertsBefore, alerts(o.Book)) {
		events = append(events, OrderAlerted)
	}
	if o.Order.isShipped() && !wasShipped {
		events = append(events, OrderShipped)
	}
	if len(events) == 0 && len(changed) > 0 {
		events = append(events, OrderUpdated)
	}
	if len(events) > 0 {
		st := tx.store(o.StoreID)
		for _, name := range events {
			tx.addEvent(o, st, name, changed)
		}
	}

	if o.Book.Status != AwaitingVerification || o.Order.isShipped() {
		o.StockUntil = 0 // releaseReported is not to release its stock.
	}
	tx.storeOrder(o)
	tx.makeSessionsDue(o, changedStatus)
	tx.storeSessionsAndPayments(o)
	return nil
}

// applyBook gives the order the status that its book implies, with the consequences for its stock and paid_at. A paid
// order has the method and amounts of the page that pays it, which has no unique code. If stock is missing, the order
// is paid all the same, and oversold. A refund releases no stock. A change of status is one line of the history, with
// the news about the payer as its note. Other news becomes lines of its own. statusBefore is the status before this
// change; an act or the order's end may already have set o.Book.Status.
func (tx *Tx) applyBook(o *OrderRow, statusBefore Status) error {
	after := settle(o.Book, statusBefore)
	reason, notes := o.reasonAndNotes(after.PaidBy)
	for _, n := range notes {
		o.note(ActorGateway, n)
	}

	if after.Status != o.Book.Status {
		// This cannot fail, because all changes that settle makes are in transitions.
		if err := o.become(after.Status, ActorGateway, reason); err != nil {
			return err
		}
	} else if reason.Code != "" {
		o.note(ActorGateway, reason)
	}
	o.Book = after

	if payer, isPayment := after.payer(); isPayment && after.Status == Paid {
		s := o.session(payer.SessionNumber)
		o.Order.PaymentMethod = s.Method
		o.Order.PaymentProvider = s.Provider
		o.Order.SettlementChannel = "gateway"
		o.Order.Amount = s.Asked
		o.Order.Fee = s.Asked - o.Order.beforeFee()
		o.Order.UniqueCode = 0
	}

	if after.Status != statusBefore {
		tx.followStatus(o)
	}
	return nil
}

// reasonAndNotes picks the news that explains a change of status: the first about the payment that pays; else the last
// that is not a denial; else the first. The rest are notes.
func (o *OrderRow) reasonAndNotes(paidBy string) (reason Note, notes []Note) {
	if len(o.news) == 0 {
		return reason, nil
	}

	at := 0
	for i, n := range o.news {
		if n.Code != NoteCode(Denied) {
			at = i
		}
		if n.paymentKey() == paidBy {
			at = i
			break
		}
	}
	return o.news[at], slices.Delete(slices.Clone(o.news), at, at+1)
}

// transitions are all possible changes of status, whoever causes them, except by UndoApproval. Everything else is
// refused.
var transitions = map[Status][]Status{
	Pending:              {AwaitingVerification, Paid, Failed, Expired},
	AwaitingVerification: {Pending, Paid, Failed},
	Paid:                 {Refunded, Failed},
	Failed:               {Paid},
	Expired:              {AwaitingVerification, Paid},
}

// become changes the order's state, if that is possible.
func (o *OrderRow) become(to Status, actor Actor, n Note) error {
	if !slices.Contains(transitions[o.Book.Status], to) {
		return o.wrongState()
	}
	o.enter(to, actor, n)
	return nil
}

// enter enters a status, or the present one again, in the order's book and history.
func (o *OrderRow) enter(to Status, actor Actor, n Note) {
	o.history = append(o.history, HistoryEntry{From: o.Book.Status, To: to, Actor: actor, Note: n})
	o.Book.Status = to
}

// wrongState refuses what the order's state does not allow.
func (o *OrderRow) wrongState() error {
	return &Refusal{Reason: WrongState, Words: string(o.Book.Status)}
}

// note adds a line to the order's history that is not a change of state.
func (o *OrderRow) note(actor Actor, n Note) { o.enter(o.Book.Status, actor, n) }

// followStatus adapts an order's stock and paid_at to a new status. A refund keeps both, because the buyer may have the
// goods. Shipped goods come back only when somebody says so.
func (tx *Tx) followStatus(o *OrderRow) {
	switch o.Book.Status {
	case Paid:
		o.Order.PaidAt = tx.now
		o.Book.Oversold = tx.reserve(o)
	case Failed, Expired:
		o.Order.PaidAt = 0
		if !o.Order.isShipped() {
			tx.release(o)
		}
	case Pending, AwaitingVerification:
		o.Order.PaidAt = 0
	}
}

// reserve reserves the stock of those components of the order that have none yet. It reports whether too little of any
// is left. Unlimited stock is not reserved.
func (tx *Tx) reserve(o *OrderRow) (isShort bool) {
	for i, c := range o.Components {
		if c.Reserved || c.isUnlimited {
			continue
		}
		changed := tx.exec("UPDATE products SET stock = stock - ?2 WHERE id = ?1 AND stock >= ?2",
			c.ProductID, c.Quantity)
		o.Components[i].Reserved = changed > 0
		if changed == 0 { // There is too little, or the product is gone, or its stock is unlimited by now.
			limited := tx.count("SELECT count(*) FROM products WHERE id = ? AND stock IS NOT NULL", c.ProductID)
			isShort = isShort || limited > 0
		}
	}
	return isShort
}

// release releases the stock that the order holds.
func (tx *Tx) release(o *OrderRow) {
	for i, c := range o.Components {
		if c.Reserved {
			tx.exec("UPDATE products SET stock = stock + ? WHERE id = ? AND stock IS NOT NULL", c.Quantity, c.ProductID)
		}
		o.Components[i].Reserved = false
	}
}

// statusEvents are the events that changes of state cause, by the new state.
var statusEvents = map[Status]EventName{
	Pending:              OrderPending,
	AwaitingVerification: OrderAwaitingVerification,
	Paid:                 OrderPaid,
	Failed:               OrderFailed,
	Expired:              OrderExpired,
	Refunded:             OrderRefunded,
}

// renderJSON makes the order's JSON again, and returns the names of the fields that have changed, without updated_at,
// which changes only if another field has. A new order has no names.
func (o *OrderRow) renderJSON(now Time) (changed []string) {
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
	for name := range before {
		if _, isShown := after[name]; !isShown {
			after[name] = nil
		}
	}
	for name, value := range after {
		if name != "updated_at" && string(value) != string(before[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// shownFields returns the order's fields as its JSON has them.
func shownFields(o Order) (fields map[string]json.RawMessage) {
	json.Unmarshal(toJSON(o), &fields) // It was encoded a moment ago.
	return fields
}

// addEvent writes an event of the order as it was rendered last, and its deliveries, which are due at once. It returns
// the order as the event shows it. changed has the names of the fields that have changed.
func (tx *Tx) addEvent(o *OrderRow, st Store, name EventName, changed []string) (shown string) {
	o.Events++
	shown = strings.Join(st.orderJSON(o.StoredOrder, ""), "")
	data := `{"order":` + shown + "}"
	if name == OrderUpdated {
		data = `{"order":` + shown + `,"changed":` + string(toJSON(changed)) + "}"
	}
	rings := tx.ringsPhone(o, name)
	eventID := tx.writeEvent(o.StoreID, o.ID, o.Events, name, data)
	tx.addDeliveries(eventID, o.StoreID, name, rings)
	return shown
}

// ringsPhone reports whether an event is news for its owner's phone. That is decided when the event is written: what is
// no news has no delivery. What buyers of the shop page do is bounded, so each such event takes a ring: the order, and
// the report of its payment. A cash order, which is confirmed as it is made, rings once.
func (tx *Tx) ringsPhone(o *OrderRow, name EventName) bool {
	isNews := slices.Contains(phoneEvents, name) && (name != OrderAlerted || o.Order.Alerts != nil)
	if !isNews || o.isByOwner() {
		return false
	}
	isBuyers := o.Order.Source == FromShop && (name == OrderCreated || name == OrderAwaitingVerification)
	return !isBuyers || !o.hasRung && tx.db.shopRings.take(o.StoreID).err == nil
}

// isByOwner reports whether the owner has done in the dashboard what this write changes.
func (o *OrderRow) isByOwner() bool {
	if len(o.history) == 0 { // It is new.
		return o.Order.Source == FromOwner
	}
	return o.history[len(o.history)-1].Actor == ActorOwner
}

// orderJSON returns an order as the API shows it: its stored JSON without the last brace, the sequence of its latest
// event, its two addresses, which are already escaped, and the brace. paymentURL is the page of a payment session, or
// "".
func (st Store) orderJSON(o StoredOrder, paymentURL string) pieces {
	page := st.payPage(o.ID)
	return pieces{o.JSON[:len(o.JSON)-1], `,"sequence":`, strconv.FormatInt(o.Events, 10),
		`,"checkout_url":"`, page, `","payment_url":"`, cmp.Or(paymentURL, page), `"}`}
}

// storeOrder writes a new order, or what has changed in one, and its new history. renderJSON has set its status and
// alerts, and addEvent has counted its events.
func (tx *Tx) storeOrder(o *OrderRow) {
	order := o.Order
	tx.exec(`
		INSERT INTO orders (id, store_id, status, reference, external_id, provider, method, test, amount, unique_code,
		                    created_at, expires_at, paid_at, attention, events, components, book, json, source,
		                    handover, shipped_at, stock_until)
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
