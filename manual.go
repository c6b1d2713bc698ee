//go:build cgo

package main

import (
	"context"
	"time"
)

// This file is about orders that a person checks: what their buyers say, and what happens while nobody decides.

// BuyerClaim is what a buyer says about a payment that they have made by hand. Both may be empty.
type BuyerClaim struct {
	Sender string // the name that it was sent under
	Bank   string // that it was sent from
}

// sqlManualKind reads how a manual order is paid.
const sqlManualKind = `
	SELECT coalesce(m.kind, 'transfer')
	FROM   orders o
	LEFT JOIN payment_methods m ON m.store_id = o.store_id AND m.code = o.json ->> 'payment_method'
	WHERE  o.row = ? AND o.id = ? AND o.store_id = ? AND o.provider = 'manual'`

// ClaimPaid records that the buyer of a manual order says that they have paid, or confirms an order that is paid in
// cash. The owner then decides. Any other order is refused.
func (db *DB) ClaimPaid(ctx context.Context, storeID, orderID string, c BuyerClaim) error {
	return db.write(ctx, func(tx *Tx) error {
		kind, err := queryOne(tx, scanValue[MethodKind], sqlManualKind, rowOf(orderID), orderID, storeID)
		if err == errNotFound {
			return &APIError{Code: codeOrderState, Message: "The order is not paid by hand."}
		}
		if err != nil {
			return err
		}

		note := Note{Code: NoteBuyerClaims, Sender: c.Sender, Bank: c.Bank}
		if kind == MethodCash {
			note = Note{Code: NoteBuyerConfirms}
		}
		_, err = tx.transition(orderID, BuyerClaims, note)
		return err
	})
}

// mostTakenBack is how often a buyer can take back what they said: each time an event goes out.
const mostTakenBack = 5

// sqlMayTakeBack reports whether the buyer of an order can take back that they have paid: it is why the order waits
// for its owner, and the order's time is not over.
const sqlMayTakeBack = `
	SELECT o.status = 'awaiting_verification' AND o.provider = 'manual' AND o.expires_at > ?1 AND
	       'buyer' = (
	           SELECT actor FROM order_history
	           WHERE  order_row = o.row AND from_status <> to_status
	           ORDER BY position DESC LIMIT 1) AND
	       ?5 > (
	           SELECT count(*) FROM order_history
	           WHERE  order_row = o.row AND from_status = 'awaiting_verification' AND to_status = 'pending')
	FROM   orders o
	WHERE  o.row = ?4 AND o.id = ?2 AND o.store_id = ?3`

// MayTakeBack reports whether TakeBack is possible now.
func (db *DB) MayTakeBack(storeID, orderID string) (bool, error) {
	return queryOne(db.reader, scanValue[bool], sqlMayTakeBack,
		db.Now(), orderID, storeID, rowOf(orderID), mostTakenBack)
}

// TakeBack takes back what ClaimPaid recorded: the order waits for its payment again.
func (db *DB) TakeBack(ctx context.Context, storeID, orderID string) error {
	return db.write(ctx, func(tx *Tx) error {
		may, err := queryOne(tx, scanValue[bool], sqlMayTakeBack,
			tx.now, orderID, storeID, rowOf(orderID), mostTakenBack)
		if err != nil {
			return err
		}
		if !may {
			return &APIError{Code: codeOrderState, Message: "The buyer cannot take this back."}
		}
		_, err = tx.transition(orderID, BuyerTakesBack, Note{Code: NoteTakenBack})
		return err
	})
}

// undecidedKept is how long after its end an order that waits for its owner keeps its stock.
const undecidedKept = 7 * 24 * time.Hour

// isUndecided is true of an order o that nobody has decided about, and that keeps stock. It is the condition of the
// index orders_to_release.
const isUndecided = `
	status = 'awaiting_verification' AND provider = 'manual' AND instr(components, '"reserved":true') > 0 AND
	expires_at <= ?1`

// UndecidedOrders returns the ids of at most limit orders whose stock ReleaseUndecided would release.
func (db *DB) UndecidedOrders(limit int) ([]string, error) {
	return queryAll(db.reader, scanValue[string],
		"SELECT id FROM orders WHERE "+isUndecided+" ORDER BY expires_at LIMIT +?2",
		db.Now().Add(-undecidedKept), limit)
}

// ReleaseUndecided releases the stock of an order that nobody has decided about for undecidedKept. The order waits
// on. Its approval reserves the stock again, or says that it is gone.
func (db *DB) ReleaseUndecided(ctx context.Context, orderID string) error {
	return db.write(ctx, func(tx *Tx) error {
		if !tx.db.clockTrusted() {
			return nil
		}
		due, err := queryOne(tx, scanValue[bool],
			"SELECT EXISTS (SELECT 1 FROM orders WHERE row = ?2 AND "+isUndecided+")",
			tx.now.Add(-undecidedKept), rowOf(orderID))
		if err != nil || !due {
			return err
		}

		r, err := tx.readOrderRow(orderID)
		if err != nil {
			return err
		}
		for i := range r.components {
			c := &r.components[i]
			c.Released = c.Released || c.Reserved
		}
		if err := tx.release(r.components); err != nil {
			return err
		}
		err = tx.mustChange("UPDATE orders SET components = ? WHERE row = ?",
			storedComponents(r.order.Items, r.components), rowOf(orderID))
		if err != nil {
			return err
		}

		return tx.addHistory(orderID, HistoryEntry{
			From:  AwaitingVerification,
			To:    AwaitingVerification,
			Actor: ActorClock,
			Note:  Note{Code: NoteStockReleased},
		})
	})
}

// reserveReleased reserves the components of an order again that were released while it waited for its owner, and
// returns those of which there is not enough.
func (tx *Tx) reserveReleased(components []component) (short []component, err error) {
	for i := range components {
		if !components[i].Released {
			continue
		}
		components[i].Released = false

		this := components[i : i+1]
		if err := tx.findUnlimited(this); err != nil {
			return nil, err
		}
		gone, err := tx.reserve(this)
		if err != nil {
			return nil, err
		}
		short = append(short, gone...)
	}
	return short, nil
}

// reserveClaimed reserves the stock of an expired order whose buyer says that they have paid. What is gone is no
// alert yet: the approval tries again.
func (tx *Tx) reserveClaimed(r orderRow) error {
	kept := tx.now < r.order.ExpiresAt.Add(undecidedKept)
	if kept {
		if err := tx.findUnlimited(r.components); err != nil {
			return err
		}
		if _, err := tx.reserve(r.components); err != nil {
			return err
		}
	}

	for i := range r.components {
		c := &r.components[i]
		c.Released = !c.Reserved && !c.Unlimited
	}
	return nil
}
