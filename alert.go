//go:build cgo

package main

import (
	"context"
	"slices"
)

// AlertCode says what an owner has to look at although the order's state does not show it.
type AlertCode string

const (
	AlertOversold       AlertCode = "oversold"        // it was paid when its stock was gone
	AlertUnderpaid      AlertCode = "underpaid"       // Amount arrived instead of Due
	AlertOverpaid       AlertCode = "overpaid"        // Amount arrived: more than Due, or not needed (Due is 0)
	AlertPartlyRefunded AlertCode = "partly_refunded" // Amount of Due was returned
	AlertDisputed       AlertCode = "disputed"        // the buyer disputes Amount of Due
)

// Alert is something that waits for the owner. The order shows its code, and the owner its amounts too.
type Alert struct {
	Code          AlertCode
	TransactionID string // the gateway's name of the payment; empty if it is about none
	Amount        int64  // in rupiah
	Due           int64  // in rupiah
	RaisedAt      Time
}

const sqlAlerts = `
	SELECT code, transaction_id, amount, due, raised_at
	FROM   alerts
	WHERE  store_id = ? AND order_row = ? AND resolved_at IS NULL
	ORDER BY code, transaction_id`

func scanAlert(r row) (a Alert, err error) {
	err = r.Scan(&a.Code, &a.TransactionID, &a.Amount, &a.Due, &a.RaisedAt)
	return a, err
}

// raiseAlert raises an alert, which shows in the order and is told by an event. An open alert of the same code
// about the same payment takes the new amounts.
func (tx *Tx) raiseAlert(storeID, orderID string, a Alert) error {
	changed, err := tx.exec(`
		INSERT INTO alerts (id, store_id, order_row, code, transaction_id, amount, due, raised_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
		ON CONFLICT (store_id, order_row, code, transaction_id) WHERE resolved_at IS NULL
		DO UPDATE SET amount = ?6, due = ?7
		WHERE amount <> ?6 OR due <> ?7`,
		tx.newID(), storeID, rowOf(orderID), a.Code, a.TransactionID, a.Amount, a.Due, tx.now)
	if err != nil || changed == 0 {
		return err
	}
	return tx.recordAlerts(storeID, orderID)
}

// resolveAlerts resolves the order's open alerts with these codes.
func (tx *Tx) resolveAlerts(storeID, orderID string, codes ...AlertCode) error {
	changed, err := tx.exec(`
		UPDATE alerts
		SET    resolved_at = ?
		WHERE  store_id = ? AND order_row = ? AND resolved_at IS NULL
		AND    code IN (SELECT value FROM json_each(?))`,
		tx.now, storeID, rowOf(orderID), string(mustJSON(codes)))
	if err != nil || changed == 0 {
		return err
	}
	return tx.recordAlerts(storeID, orderID)
}

// alertsOfPayments are the codes of alerts about a payment.
var alertsOfPayments = []AlertCode{AlertUnderpaid, AlertOverpaid, AlertPartlyRefunded, AlertDisputed}

// resolveAlertsOf resolves the order's open alerts with these codes about a payment.
func (tx *Tx) resolveAlertsOf(storeID, orderID, transactionID string, codes ...AlertCode) error {
	changed, err := tx.exec(`
		UPDATE alerts
		SET    resolved_at = ?
		WHERE  store_id = ? AND order_row = ? AND resolved_at IS NULL AND transaction_id = ?
		AND    code IN (SELECT value FROM json_each(?))`,
		tx.now, storeID, rowOf(orderID), transactionID, string(mustJSON(codes)))
	if err != nil || changed == 0 {
		return err
	}
	return tx.recordAlerts(storeID, orderID)
}

// recordAlerts writes the codes of an order's open alerts into its JSON, and the event that tells of the change.
func (tx *Tx) recordAlerts(storeID, orderID string) error {
	alerts, err := queryAll(tx, scanAlert, sqlAlerts, storeID, rowOf(orderID))
	if err != nil {
		return err
	}
	r, err := tx.readOrderRow(orderID)
	if err != nil {
		return err
	}

	o := &r.order
	o.Alerts = nil
	for _, a := range alerts {
		if !slices.Contains(o.Alerts, a.Code) {
			o.Alerts = append(o.Alerts, a.Code)
		}
	}
	o.UpdatedAt = tx.now

	stored, err := tx.storeOrder(r)
	if err != nil {
		return err
	}
	return tx.addEvent(r.store, OrderAlerted, r.sequence, stored)
}

// ResolveAlerts records that the owner has dealt with an order's alerts. Without an open alert the error is
// errNotFound.
func (db *DB) ResolveAlerts(ctx context.Context, storeID, id string, n Note) error {
	return db.write(ctx, func(tx *Tx) error {
		status, err := queryOne(tx, scanValue[Status], `
			SELECT status FROM orders o
			WHERE  row = ?3 AND id = ?2 AND store_id = ?1 AND EXISTS (
				SELECT 1 FROM alerts
				WHERE  store_id = ?1 AND order_row = o.row AND resolved_at IS NULL)`, storeID, id, rowOf(id))
		if err != nil {
			return err
		}

		err = tx.addHistory(id, HistoryEntry{From: status, To: status, Actor: ActorOwner, Note: n})
		if err != nil {
			return err
		}
		return tx.resolveAlerts(storeID, id, AlertOversold, AlertUnderpaid, AlertOverpaid,
			AlertPartlyRefunded, AlertDisputed)
	})
}

// AlertedOrder is an order with one of its open alerts.
type AlertedOrder struct {
	Order
	Alert Alert
}

func scanAlerted(r row) (o AlertedOrder, err error) {
	a := &o.Alert
	err = r.Scan(fromJSON{&o.Order}, &a.Code, &a.TransactionID, &a.Amount, &a.Due, &a.RaisedAt)
	return o, err
}

// sqlAlerted finds a store's open alerts, those of the oldest orders first.
const sqlAlerted = `
	SELECT o.json, a.code, a.transaction_id, a.amount, a.due, a.raised_at
	FROM   alerts a
	JOIN   orders o ON o.row = a.order_row
	WHERE  a.store_id = ? AND a.resolved_at IS NULL
	ORDER BY a.order_row, a.code, a.transaction_id LIMIT +?`

// Excess is how much more arrived than was due.
func (a Alert) Excess() int64 { return a.Amount - a.Due }

const sqlArrived = `
	SELECT coalesce(sum(p.amount - p.returned), 0)
	FROM   payment_sessions s
	JOIN   payments p ON p.session_id = s.id
	WHERE  s.order_row = ? AND p.state IN ('settled', 'disputed', 'partly refunded')`

// ArrivedMoney returns what a gateway has taken for an order and not returned, in rupiah. If the order is not paid,
// its buyer has to get that back.
func (db *DB) ArrivedMoney(orderID string) (int64, error) {
	return queryOne(db.reader, scanValue[int64], sqlArrived, rowOf(orderID))
}
