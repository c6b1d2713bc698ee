package main

// This file has the states of an order, changeOrder, through which every change of an order goes, and what people do
// with orders: the owner's decisions, the buyer's reports, another method, an alert that was dealt with.

import (
	"context"
	"fmt"
	"slices"
)

// transitions are all the changes of state that can happen, whoever causes them, but for UndoApproval. Everything else
// is refused.
var transitions = map[Status][]Status{
	Pending:              {AwaitingVerification, Paid, Failed, Expired},
	AwaitingVerification: {Pending, Paid, Failed},
	Paid:                 {Refunded, Failed},
	Failed:               {Paid},
	Expired:              {AwaitingVerification, Paid},
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
	Code     NoteCode `json:"code"`
	Text     string   `json:"text,omitempty"`     // in a person's words
	Provider Provider `json:"provider,omitempty"` // with a payment's news
	Attempt  int      `json:"attempt,omitempty"`
	Payment  string   `json:"payment,omitempty"` // the gateway's name for it
	Amount   int64    `json:"amount,omitempty"`  // that arrived or was returned
	Due      int64    `json:"due,omitempty"`     // that was asked for
	Alert    string   `json:"alert,omitempty"`   // that was resolved
	Sender   string   `json:"sender,omitempty"`  // the name that a buyer says they sent money under
	Bank     string   `json:"bank,omitempty"`    // the bank that they say they sent it from
	Carrier  string   `json:"carrier,omitempty"` // with a shipment's news
	Tracking string   `json:"tracking,omitempty"`
}

// paymentKey is that of the payment that the note is about.
func (n Note) paymentKey() string { return Payment{Attempt: n.Attempt, ID: n.Payment}.key() }

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
	NoteUnconfirmed    NoteCode = "unconfirmed"    // the order expires although a notification claimed a payment
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

// note adds a line to the order's history that is not a change of state.
func (o *OrderRow) note(actor Actor, n Note) {
	o.history = append(o.history, HistoryEntry{From: o.Book.Status, To: o.Book.Status, Actor: actor, Note: n})
}

// wrongState refuses what the order's state does not allow.
func (o *OrderRow) wrongState() error {
	return &Refusal{Reason: WrongState, Words: string(o.Book.Status)}
}

// become changes the order's state, if that is possible.
func (o *OrderRow) become(to Status, actor Actor, n Note) error {
	if !slices.Contains(transitions[o.Book.Status], to) {
		return o.wrongState()
	}
	o.history = append(o.history, HistoryEntry{From: o.Book.Status, To: to, Actor: actor, Note: n})
	o.Book.Status = to
	return nil
}

// restore gives the order the status from before its approval, which transitions do not lead back to.
func (o *OrderRow) restore(to Status, actor Actor, n Note) {
	o.history = append(o.history, HistoryEntry{From: o.Book.Status, To: to, Actor: actor, Note: n})
	o.Book = o.Book.undo(to)
}

// changeOrder changes an order of a store in a write of its own. fn changes the order, its book and its sessions. Then
// its state becomes what its book implies (settle), and everything that follows from that is written: stock, history,
// sessions, and events: for the new state, for alerts that have changed, for a shipment, or for whatever else changed.
func (db *DB) changeOrder(
	ctx context.Context, storeID, id string, fn func(tx *Tx, o *OrderRow) error,
) (o OrderRow, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		o, err = readOrder(tx, tx, storeID, id)
		if err != nil {
			return err
		}
		return tx.change(&o, fn)
	})
	return o, err
}

// changeOrderOfAnyStore is for pay pages, the clock and gateways, which know an order and not its store.
func (db *DB) changeOrderOfAnyStore(
	ctx context.Context, id string, fn func(tx *Tx, o *OrderRow) error,
) (o OrderRow, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		o, err = readOrderOfAnyStore(tx, tx, id)
		if err != nil {
			return err
		}
		return tx.change(&o, fn)
	})
	return o, err
}

// change changes an order by fn, and writes it with everything that follows.
func (tx *Tx) change(o *OrderRow, fn func(tx *Tx, o *OrderRow) error) error {
	statusBefore := o.Book.Status
	alertsBefore := alerts(o.Book)
	wasShipped := o.Order.isShipped()
	if err := fn(tx, o); err != nil {
		return err
	}
	if err := tx.applyBook(o, statusBefore); err != nil {
		return err
	}

	changed := o.render(tx.now)
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
		o.StockUntil = 0
	}
	tx.storeOrder(o)
	tx.makeSessionsDue(o, changedStatus)
	tx.storeSessions(o)
	return nil
}

// applyBook brings the order into the state that its book implies, with what that means for its stock and paid_at. The
// method and amounts of a paid order are those of the page that pays it, which has no unique code. If the stock is
// short, the order is paid all the same, and oversold; a refund releases no stock. The history gets one line for a
// change of state, whose note is the news about the payer; other news becomes notes. statusBefore is the status before
// this change, in which an act, or the order's end, may already have set o.Book.Status.
func (tx *Tx) applyBook(o *OrderRow, statusBefore Status) error {
	after := settle(o.Book, statusBefore)
	reason, notes := o.reasonAndNotes(after.PaidBy)
	for _, n := range notes {
		o.note(ActorGateway, n)
	}

	if after.Status != o.Book.Status {
		// This never fails for a change that settle makes: all of them are in transitions.
		if err := o.become(after.Status, ActorGateway, reason); err != nil {
			return err
		}
	} else if reason.Code != "" {
		o.note(ActorGateway, reason)
	}
	o.Book = after

	if payer, isPayment := after.payer(); isPayment && after.Status == Paid {
		s := o.session(payer.Attempt)
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

// reasonAndNotes returns the news that explains a change of state: the first about the payment that pays, or else the
// last that is not a denial, or else the first. The rest are notes.
func (o *OrderRow) reasonAndNotes(paidBy string) (reason Note, notes []Note) {
	if len(o.news) == 0 {
		return reason, nil
	}

	i := slices.IndexFunc(o.news, func(n Note) bool { return n.paymentKey() == paidBy })
	for last := len(o.news) - 1; i < 0 && last >= 0; last-- {
		if o.news[last].Code != NoteCode(Denied) {
			i = last
		}
	}
	i = max(i, 0)
	return o.news[i], slices.Delete(slices.Clone(o.news), i, i+1)
}

// followStatus does what a new status means for an order's stock and paid_at. A refund keeps both: the goods may be
// with the buyer. What was shipped comes back only if somebody says so.
func (tx *Tx) followStatus(o *OrderRow) {
	switch o.Book.Status {
	case Paid:
		o.Order.PaidAt = tx.now
		o.Book.Oversold = len(tx.reserve(o)) > 0
	case Failed, Expired:
		o.Order.PaidAt = 0
		if !o.Order.isShipped() {
			tx.release(o)
		}
	case Pending, AwaitingVerification:
		o.Order.PaidAt = 0
	}
}

// Act is what an owner decides about an order.
type Act string

const (
	Approve Act = "approve"
	Reject  Act = "reject"
	Cancel  Act = "cancel" // for an order that waits for its owner, the same as reject
	Refund  Act = "refund"

	// CancelPending is for keys that may create orders and not decide about them.
	CancelPending Act = "cancel pending"
)

// statusAfter are the statuses that acts lead to.
var statusAfter = map[Act]Status{
	Approve:       Paid,
	Reject:        Failed,
	Cancel:        Failed,
	CancelPending: Failed,
	Refund:        Refunded,
}

// decide performs an act of the owner. seen is the order's State as they saw it: in any other, the act is refused. It
// is "" where nothing was shown.
func (o *OrderRow) decide(act Act, actor Actor, n Note, seen string) error {
	if seen != "" && seen != o.State() {
		return o.wrongState()
	}
	if err := o.refuseDecision(act); err != nil {
		return err
	}
	from := o.Book.Status
	if err := o.become(statusAfter[act], actor, n); err != nil {
		return err
	}
	if act == Approve {
		o.Book = o.Book.approve(from)
	}
	return nil
}

// refuseDecision refuses acts that a change of state alone would allow.
func (o *OrderRow) refuseDecision(act Act) error {
	status := o.Book.Status
	switch act {
	case Approve:
		if !o.Book.Reported && o.Book.held() { // It was held after the owner looked.
			return o.wrongState()
		}
	case Reject:
		if status == Pending || status == Paid { // There is nothing to reject; only a gateway takes money back.
			return o.wrongState()
		}
	case CancelPending:
		if status == AwaitingVerification {
			return &Refusal{Reason: Forbidden,
				Words: "This order waits for its owner: canceling it needs a key with the scope manage."}
		}
		if status != Pending {
			return o.wrongState()
		}
	case Cancel:
		if status == Paid { // Only a gateway takes money back.
			return o.wrongState()
		}
	}
	return nil
}

// State returns what the owner decides about: the order's status, method and amount, whether the buyer has
// reported a transfer, whether a gateway holds a payment, and the alerts.
func (o OrderRow) State() string {
	return fmt.Sprint(o.Order.Status, o.Order.PaymentMethod, o.Order.Amount,
		o.Book.Reported, o.Book.held(), alerts(o.Book))
}

// UndoApproval takes back an approval that was a mistake: the order has the status from before it. seen is the order's
// State as the owner saw it. Money that arrived meanwhile goes on paying the order. An order that was shipped keeps its
// approval, unless it is paid in cash.
func (db *DB) UndoApproval(ctx context.Context, storeID, orderID, seen string) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(tx *Tx, o *OrderRow) error {
		from := tx.approvedFrom(o)
		if seen != o.State() || from == "" {
			return o.wrongState()
		}
		o.restore(from, ActorOwner, Note{Code: NoteUndone})
		return nil
	})
	return err
}

// approvedFrom returns the status from before the approval of an order, "" if there is none that can be taken back. Of
// approvals of 1.0 the history knows it.
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

// limitNotes refuses another line with a code in an order's history once it has as many as most.
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

// ReportPayment records that the buyer of a manual order reports a payment by a method, or confirms an order
// that is paid in cash. It is refused if the order has another method by now.
func (db *DB) ReportPayment(ctx context.Context, orderID string, actor Actor, method, sender, bank string) error {
	_, err := db.changeOrderOfAnyStore(ctx, orderID, func(tx *Tx, o *OrderRow) error {
		return tx.report(o, method, actor, sender, bank)
	})
	return err
}

func (tx *Tx) report(o *OrderRow, method string, actor Actor, sender, bank string) error {
	if o.Order.PaymentProvider != Manual || o.Order.PaymentMethod != method || o.Book.Status == AwaitingVerification {
		return refuse(WrongState)
	}

	if o.Order.Source == FromShop && o.Book.Status != Pending && tx.hasManyShopOrders(o.StoreID) {
		return refuse(LimitReached) // It is one more than those that wait.
	}

	n := Note{Code: NoteReported, Sender: sender, Bank: bank}
	m, _ := tx.method(o.StoreID, o.Order.PaymentMethod)
	if m.Kind == Cash {
		if tx.now >= o.Order.ExpiresAt { // Nobody has paid, so there is nothing to look for.
			return refuse(WrongState)
		}
		n.Code = NoteConfirmed
	}
	if o.holdsStock(m) {
		o.StockUntil = tx.now.Add(reportHolds)
	}
	o.Book.Reported = true
	return o.become(AwaitingVerification, actor, n)
}

// TakeBackReport is for the buyer who has not paid after all, before the order's end.
func (db *DB) TakeBackReport(ctx context.Context, orderID string) error {
	_, err := db.changeOrderOfAnyStore(ctx, orderID, func(tx *Tx, o *OrderRow) error {
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

// OfferedMethods lists the methods that the buyer of an order can choose: those of its own mode.
func (db *DB) OfferedMethods(ctx context.Context, st Store, o Order) ([]Method, error) {
	methods, err := db.Methods(ctx, st.ID)
	return slices.DeleteFunc(methods, func(m Method) bool { return !o.isOffered(st, m) }), err
}

// isOffered reports whether the buyer of an order can choose a method.
func (o Order) isOffered(st Store, m Method) bool {
	return m.Test == o.Test && m.usable(st, o.Subtotal) && (o.Source != FromShop || m.Shop)
}

// ChangeMethod lets the buyer of a pending order choose another method. It changes at once. Pages of the old
// one are closed by their next check, which is due now.
func (db *DB) ChangeMethod(ctx context.Context, st Store, orderID, code string) error {
	_, err := db.changeOrder(ctx, st.ID, orderID, func(tx *Tx, o *OrderRow) error {
		if o.Book.Status != Pending || tx.now >= o.Order.ExpiresAt || o.Order.isShipped() {
			return refuse(WrongState)
		}

		m, found := tx.method(o.StoreID, code)
		if !found || !o.Order.isOffered(st, m) {
			return refuse(PaymentMethodUnavailable)
		}
		if o.Order.PaymentMethod == code {
			return nil
		}
		if err := tx.limitNotes(orderID, NoteMethodChanged, mostMethodChanges); err != nil {
			return err
		}

		o.note(ActorBuyer, Note{Code: NoteMethodChanged, Text: m.Name})
		return tx.setMethod(o, m)
	})
	return err
}

// EndTestOrder lets a pending test order's time be over now.
func (db *DB) EndTestOrder(ctx context.Context, orderID string) error {
	_, err := db.changeOrderOfAnyStore(ctx, orderID, func(tx *Tx, o *OrderRow) error {
		if !o.Order.Test || o.Book.Status != Pending {
			return o.wrongState()
		}
		o.Order.ExpiresAt = min(o.Order.ExpiresAt, tx.now)
		return nil
	})
	return err
}

// ResolveAlert records that the owner has dealt with an alert, which is given as fmt.Sprint shows it. For an
// overpaid one, isPayer says that it is the payment that they had approved. The error is WrongState if the
// alert is gone or has other amounts now.
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
