package main

// This file has the history of an order, and what people do with orders: the owner's decisions, the buyer's reports, an
// alert that was dealt with.

import (
	"context"
	"fmt"
	"slices"
)

// Actor is who changed an order.
type Actor string

const (
	ActorAPI     Actor = "api"
	ActorOwner   Actor = "owner"
	ActorBuyer   Actor = "buyer"
	ActorGateway Actor = "gateway"
	ActorClock   Actor = "clock"
)

// Note says why something happened to an order: a code and the values that go with it. web/words.txt has the
// words.
type Note struct {
	Code          NoteCode `json:"code"`
	Text          string   `json:"text,omitempty"`     // in a person's words
	Provider      Provider `json:"provider,omitempty"` // with a payment's news
	SessionNumber int      `json:"attempt,omitempty"`
	Payment       string   `json:"payment,omitempty"` // the gateway's name for it
	Amount        int64    `json:"amount,omitempty"`  // that arrived or was returned
	Due           int64    `json:"due,omitempty"`     // that was asked for
	Alert         string   `json:"alert,omitempty"`   // that was resolved
	Sender        string   `json:"sender,omitempty"`  // the name under which a buyer sent money, by their own words
	Bank          string   `json:"bank,omitempty"`    // the bank that they name
	Carrier       string   `json:"carrier,omitempty"` // with a shipment's news
	Tracking      string   `json:"tracking,omitempty"`
}

// paymentKey is that of the payment that the note is about.
func (n Note) paymentKey() string {
	return Payment{SessionNumber: n.SessionNumber, ID: n.Payment}.key()
}

type NoteCode string

const (
	NoteReported       NoteCode = "reported"  // the buyer says that they have paid
	NoteConfirmed      NoteCode = "confirmed" // the buyer confirms an order that is paid in cash
	NoteTakenBack      NoteCode = "taken_back"
	NoteInDashboard    NoteCode = "in_dashboard"
	NoteByCommand      NoteCode = "by_command" // only in orders of 1.0
	NoteByAPI          NoteCode = "by_api"
	NoteResolved       NoteCode = "resolved"
	NoteNotPaid        NoteCode = "not_paid_in_time"
	NoteUnconfirmed    NoteCode = "unconfirmed"    // the order expires although a notification reported a payment
	NoteMethodChanged  NoteCode = "method_changed" // Text is the new method's name
	NoteShipped        NoteCode = "shipped"
	NoteShipmentFixed  NoteCode = "shipment_fixed"
	NoteNotShipped     NoteCode = "not_shipped"
	NoteEdited         NoteCode = "edited"          // Text has the names of the fields
	NoteAddressEntered NoteCode = "address_entered" // by the buyer
	NoteUndone         NoteCode = "undone"          // an approval was taken back
	NoteStockReleased  NoteCode = "stock_released"  // a day after the report
	NoteByBuyer        NoteCode = "by_buyer"        // the buyer has canceled the order
	// The states of payments are codes too.
	NoteReturned NoteCode = "returned"
	NoteDisputed NoteCode = "disputed"
)

// HistoryEntry is a line of an order's history: a change of state or, if From and To are equal, only a note.
type HistoryEntry struct {
	At    Time
	From  Status
	To    Status
	Actor Actor
	Note  Note
}

// Act is what an owner decides about an order.
type Act string

const (
	Approve Act = "approve"
	Reject  Act = "reject"
	Cancel  Act = "cancel" // for an order that waits for its owner, this is Reject
	Refund  Act = "refund"

	// CancelPending is for keys that may create orders but not decide about them.
	CancelPending Act = "cancel pending"
)

// Undo takes an approval back. Only the dashboard can.
const Undo Act = "undo"

// decisions say which status each act leads to, and from which. Nothing but Refund is for paid orders, because only a
// gateway takes money back.
var decisions = map[Act]struct {
	to   Status
	from []Status
}{
	Approve:       {Paid, []Status{Pending, AwaitingVerification, Failed, Expired}},
	Reject:        {Failed, []Status{AwaitingVerification}},
	Cancel:        {Failed, []Status{Pending, AwaitingVerification}},
	CancelPending: {Failed, []Status{Pending}},
	Refund:        {Refunded, []Status{Paid}},
}

// decide performs an act of the owner. seen is the order's State as they saw it, or "" if nothing was shown. If the
// order has changed since, the act is refused.
func (o *OrderRow) decide(act Act, actor Actor, n Note, seen string) error {
	if seen != "" && seen != o.State() {
		return o.wrongState()
	}
	from := o.Book.Status
	if act == CancelPending && from == AwaitingVerification {
		return &Refusal{Reason: Forbidden,
			Words: "This order waits for its owner: canceling it needs a key with the scope manage."}
	}
	isHeld := act == Approve && !o.Book.Reported && o.Book.has(Held) // since the owner looked
	if isHeld || !slices.Contains(decisions[act].from, from) {
		return o.wrongState()
	}
	if err := o.become(decisions[act].to, actor, n); err != nil {
		return err
	}
	if act == Approve {
		o.Book = o.Book.approve(from)
	}
	return nil
}

// State returns what the owner decides about: the order's status, method and amount, whether the buyer has
// reported a transfer, whether a gateway holds a payment, and the alerts.
func (o OrderRow) State() string {
	return fmt.Sprint(o.Order.Status, o.Order.PaymentMethod, o.Order.Amount,
		o.Book.Reported, o.Book.has(Held), alerts(o.Book))
}

// UndoApproval takes back a mistaken approval, so the order has its earlier status again. seen is the order's State as
// the owner saw it. Money that has arrived since still pays the order. A shipped order keeps its approval, unless it is
// paid in cash.
func (db *DB) UndoApproval(ctx context.Context, storeID, orderID, seen string) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(tx *Tx, o *OrderRow) error {
		from := tx.approvedFrom(o)
		if seen != o.State() || from == "" {
			return o.wrongState()
		}
		o.enter(from, ActorOwner, Note{Code: NoteUndone}) // No transition leads back there.
		o.Book = o.Book.undo()
		if from == AwaitingVerification {
			tx.holdForADay(o)
		}
		if o.mayExpire(tx.now) { // The clock looks only once for orders that have ended.
			return o.become(Expired, ActorClock, Note{Code: NoteNotPaid})
		}
		return nil
	})
	return err
}

// approvedFrom returns an order's status before its approval, "" if no approval can be taken back. For approvals by 1.0
// it is in the history.
func (tx *Tx) approvedFrom(o *OrderRow) (from Status) {
	if !o.Book.mayBeUndone() || o.Order.isShipped() && !tx.isCash(o) {
		return ""
	}
	if o.Book.PaidFrom != "" {
		return o.Book.PaidFrom
	}
	tx.find(&from, `
		SELECT from_status
		FROM   order_history
		WHERE  order_id = ? AND to_status = 'paid' AND from_status <> 'paid'
		ORDER  BY position DESC
		LIMIT  1`, o.ID)
	return from
}

// How often a buyer can change their mind about one order.
const (
	mostMethodChanges = 20
	mostTakenBack     = 5
)

// limitNotes refuses an act once an order's history has most lines with a code.
func (tx *Tx) limitNotes(orderID string, code NoteCode, most int) error {
	lines := tx.count(`
		SELECT count(*)
		FROM   (SELECT note FROM order_history WHERE order_id = ? ORDER BY position DESC LIMIT 1000)
		WHERE  note ->> '$.code' = ?`, orderID, code)
	if lines >= int64(most) {
		return refuse(LimitReached)
	}
	return nil
}

// ReportPayment records that the buyer of a manual order reports a payment by a method, or confirms an order that is
// paid in cash. It is refused if the order's method has changed since.
func (db *DB) ReportPayment(
	ctx context.Context, storeID, orderID string, actor Actor, method, sender, bank string,
) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(tx *Tx, o *OrderRow) error {
		return tx.reportPayment(o, method, actor, sender, bank)
	})
	return err
}

func (tx *Tx) reportPayment(o *OrderRow, method string, actor Actor, sender, bank string) error {
	if o.Order.PaymentProvider != Manual || o.Order.PaymentMethod != method || o.Book.Status == AwaitingVerification {
		return refuse(WrongState)
	}

	if o.Order.Source == FromShop && o.Book.Status != Pending && tx.hasManyShopOrders(o.StoreID) {
		return refuse(LimitReached) // It is one more than those that wait.
	}

	n := Note{Code: NoteReported, Sender: sender, Bank: bank}
	if tx.isCash(o) {
		if tx.now >= o.Order.ExpiresAt { // Nobody has paid, so the owner has nothing to look for.
			return refuse(WrongState)
		}
		n.Code = NoteConfirmed
	}
	tx.holdForADay(o)
	o.Book.Reported = true
	return o.become(AwaitingVerification, actor, n)
}

// TakeBackReport takes back a buyer's report, before the order's end.
func (db *DB) TakeBackReport(ctx context.Context, storeID, orderID string) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(tx *Tx, o *OrderRow) error {
		if !o.Book.Reported || tx.now >= o.Order.ExpiresAt || o.Order.isShipped() {
			return refuse(WrongState)
		}
		if err := tx.limitNotes(orderID, NoteTakenBack, mostTakenBack); err != nil {
			return err
		}

		o.Book.Reported = false
		return o.become(Pending, ActorBuyer, Note{Code: NoteTakenBack})
	})
	return err
}

// EndTestOrder ends a pending test order's time now.
func (db *DB) EndTestOrder(ctx context.Context, storeID, orderID string) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(tx *Tx, o *OrderRow) error {
		if !o.Order.Test || o.Book.Status != Pending {
			return o.wrongState()
		}
		o.Order.ExpiresAt = min(o.Order.ExpiresAt, tx.now)
		return nil
	})
	return err
}

// ResolveAlert records that the owner has dealt with an alert, which is given as fmt.Sprint shows it. For an overpaid
// order, isPayer says that the money is the payment that they had approved. The error is WrongState if the alert has
// gone, or has other amounts now.
func (db *DB) ResolveAlert(ctx context.Context, storeID, orderID, alert string, isPayer bool) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(_ *Tx, o *OrderRow) error {
		for _, a := range alerts(o.Book) {
			if fmt.Sprint(a) == alert {
				o.Book = o.Book.resolve(a, isPayer)
				o.note(ActorOwner, Note{Code: NoteResolved, Alert: string(a.Code), Amount: a.Amount, Due: a.Due})
				return nil
			}
		}
		return refuse(WrongState)
	})
	return err
}

// History lists the latest 200 lines of an order's history, the newest first. Its creation has no line.
func (db *DB) History(ctx context.Context, orderID string) ([]HistoryEntry, error) {
	return all[HistoryEntry](ctx, db, `
		SELECT at, from_status AS "from", to_status AS "to", actor, note
		FROM   order_history
		WHERE  order_id = ?
		ORDER  BY position DESC
		LIMIT  200`, orderID)
}
