//go:build cgo

package main

import (
	"context"
	"slices"
	"time"
)

// choosePayment fills in how the order is paid, and its amount.
func (tx *Tx) choosePayment(o *Order, storeID, code string) error {
	cost := o.beforeFee()
	if cost < 0 {
		return validationFailed(detailf("discount",
			"must not be above the subtotal and the shipping fee, which are %d", o.Subtotal+o.ShippingFee))
	}
	if cost == 0 {
		o.Status = Paid
		o.PaymentMethod = "none"
		o.PaymentProvider = ProviderNone
		o.SettlementChannel = ChannelNone
		return nil
	}
	if code == "" {
		return validationFailed(detailf("payment_method",
			"is needed: take a code from GET /v1/payment-methods"))
	}

	m, err := queryOne(tx, scanMethodTerms, sqlMethodTerms, storeID, code)
	if err != nil && err != errNotFound {
		return err
	}
	if !m.Usable {
		detail := detailf("payment_method", "is not usable: take a code from GET /v1/payment-methods")
		return &APIError{codePaymentMethodUnavailable, "This payment method cannot be used.", []Detail{detail}}
	}
	if !m.takes(o.Subtotal) {
		detail := detailf("payment_method",
			"does not take a subtotal of %d: ask GET /v1/payment-methods?amount=%d", o.Subtotal, o.Subtotal)
		return &APIError{codePaymentMethodUnavailable,
			"This payment method cannot be used for this subtotal.", []Detail{detail}}
	}

	o.Fee, o.UniqueCode = m.Fee, 0
	if m.UniqueCode {
		o.UniqueCode, err = tx.newUniqueCode(storeID, o.ID)
		if err != nil {
			return err
		}
	}
	o.Amount = cost + o.Fee + o.UniqueCode
	if o.Amount > maxMoney {
		return validationFailed(detailf("items", "come to more than %d with shipping and fee", int64(maxMoney)))
	}
	o.PaymentMethod = m.Code
	o.PaymentProvider = m.Provider
	o.SettlementChannel = m.SettlementChannel
	o.RequiresPayment = true
	return nil
}

// sqlUniqueCode finds a code for an order: the one that it had before, else one by chance that was never given, else
// the longest unused of those that no waiting order of the store has. If all 999 wait, the one that was given first is
// given again. Each is looked for only if those before it are not found, because every order waits for the writer. SQLite
// reads the rows of given in the order in which they were put there, and stops at the first.
const sqlUniqueCode = `
	WITH RECURSIVE walk (code, step) AS (
		SELECT abs(random() % 999) + 1, 1
		WHERE  (SELECT count(*) FROM unique_codes WHERE store_id = ?1) < 999
		UNION ALL
		SELECT code % 999 + 1, step + 1 FROM walk WHERE step < 999),
	given AS MATERIALIZED (
		SELECT code, order_row FROM unique_codes WHERE store_id = ?1 ORDER BY given_at, code LIMIT 999)
	SELECT coalesce(
		(SELECT code FROM unique_codes WHERE store_id = ?1 AND order_row = ?2),
		(SELECT w.code FROM walk w
		 WHERE  NOT EXISTS (SELECT 1 FROM unique_codes WHERE store_id = ?1 AND code = w.code)
		 LIMIT 1),
		(SELECT g.code FROM given g
		 WHERE  NOT EXISTS (
		            SELECT 1 FROM orders
		            WHERE  row = g.order_row AND status IN ('pending', 'awaiting_verification'))
		 LIMIT 1),
		(SELECT code FROM given LIMIT 1))`

// newUniqueCode returns what an order's amount is raised by, so that its transfer is told from others. orderID is empty
// for a new order. The code is the order's after keepUniqueCode.
func (tx *Tx) newUniqueCode(storeID, orderID string) (code int64, err error) {
	return queryOne(tx, scanValue[int64], sqlUniqueCode, storeID, rowOf(orderID))
}

// keepUniqueCode records that a stored order has its code.
func (tx *Tx) keepUniqueCode(storeID string, o *Order) error {
	if o.UniqueCode == 0 {
		return nil
	}
	_, err := tx.exec(`
		INSERT OR REPLACE INTO unique_codes (store_id, code, order_row, given_at)
		VALUES (?, ?, ?, ?)`, storeID, o.UniqueCode, rowOf(o.ID), tx.now)
	return err
}

// What follows is about the buyer's choice of another payment method, as long as nothing is paid. A page of a gateway on
// which the order could be paid is closed there first: otherwise they could pay twice, by the old method and by the new
// one. What a buyer transfers by hand before that is theirs to say.

// MethodOffer is a method by which an order could be paid instead of its own.
type MethodOffer struct {
	PaymentMethod
	Amount int64 // that the order would have
}

// mayHoldPayment is true of a session s that a buyer can still pay, or may have paid. One that has expired was closed
// at its gateway, which has said so. One that has failed without a page was never shown to anybody.
const mayHoldPayment = `(
	s.status IN ('active', 'paid') OR
	s.status <> 'expired' AND s.payment_url <> '' OR
	EXISTS (SELECT 1 FROM payments WHERE session_id = s.id AND state NOT IN ('denied', 'canceled', 'expired')) OR
	EXISTS (SELECT 1 FROM notifications n WHERE n.session_id = s.id AND n.decided_at IS NULL))`

// hasMoney is true of a session s for which money has arrived, or is held.
const hasMoney = `(
	s.status = 'paid' OR
	EXISTS (SELECT 1 FROM payments
	        WHERE  session_id = s.id AND state NOT IN ('', 'open', 'denied', 'canceled', 'expired')))`

// sqlMethodState reads a methodState.
const sqlMethodState = `
	SELECT CASE
	       WHEN o.status <> 'pending' OR o.expires_at <= ?1 OR EXISTS (
	           SELECT 1 FROM payment_sessions s WHERE s.order_row = o.row AND ` + hasMoney + `)
	       THEN 'fixed'
	       WHEN EXISTS (
	           SELECT 1 FROM payment_sessions s WHERE s.order_row = o.row AND ` + mayHoldPayment + `)
	       THEN 'busy'
	       ELSE 'free' END
	FROM   orders o
	WHERE  o.row = ?4 AND o.id = ?2 AND o.store_id = ?3`

// methodState is whether an order's payment method can be changed.
type methodState string

const (
	methodFree  methodState = "free"
	methodBusy  methodState = "busy"  // not while a page of a gateway can be paid
	methodFixed methodState = "fixed" // the order needs no payment any more, or has one
)

// MethodOffers returns the store's other methods that an order could be paid by, and none if its method cannot be
// changed any more.
func (db *DB) MethodOffers(storeID string, o Order, now Time) ([]MethodOffer, error) {
	return readResult(db, func(q querier) (offers []MethodOffer, err error) {
		state, err := queryOne(q, scanValue[methodState], sqlMethodState, now, o.ID, storeID, rowOf(o.ID))
		if err != nil || state == methodFixed {
			return nil, err
		}
		methods, err := queryAll(q, scanMethod, sqlMethods, storeID)
		if err != nil {
			return nil, err
		}

		for _, m := range methods {
			amount := o.beforeFee() + m.Fee
			fits := m.Usable && m.takes(o.Subtotal) && amount <= maxMoney
			if fits && m.Code != o.PaymentMethod {
				offers = append(offers, MethodOffer{m, amount})
			}
		}
		return offers, nil
	})
}

var (
	errMethodFixed = &APIError{
		Code:    codeOrderState,
		Message: "The order's payment method cannot be changed any more.",
	}
	errMethodBusy = &APIError{
		Code:    codeOrderState,
		Message: "A page on which the order can be paid is open or being opened: try again in a moment.",
	}
)

// ChangeMethod lets the buyer of an order pay by another method of the store, with its fee. The error is
// errMethodFixed if the order needs no payment any more or has one, and errMethodBusy while a page of a gateway can be
// paid or is being created: see closePage. A method that cannot be used is refused as by POST /v1/orders.
// Changing to the method that the order has changes nothing.
func (db *DB) ChangeMethod(ctx context.Context, storeID, orderID, code string) error {
	return db.write(ctx, func(tx *Tx) error {
		state, err := queryOne(tx, scanValue[methodState], sqlMethodState, tx.now, orderID, storeID, rowOf(orderID))
		switch {
		case err != nil:
			return err
		case state == methodFixed:
			return errMethodFixed
		case state == methodBusy:
			return errMethodBusy
		}

		r, err := tx.readOrderRow(orderID)
		if err != nil || r.order.PaymentMethod == code {
			return err
		}
		if err := tx.choosePayment(&r.order, storeID, code); err != nil {
			return err
		}
		if err := tx.dropStarts(orderID); err != nil {
			return err
		}
		if err := tx.storeMethod(r); err != nil {
			return err
		}
		return tx.keepUniqueCode(storeID, &r.order)
	})
}

// CheckMethod refuses a method that an order cannot be changed to, as ChangeMethod would.
func (db *DB) CheckMethod(storeID string, o Order, code string) error {
	offers, err := db.MethodOffers(storeID, o, db.Now())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(offers, func(m MethodOffer) bool { return m.Code == code }) {
		return nil
	}
	return &APIError{Code: codePaymentMethodUnavailable, Message: "This payment method cannot be used."}
}

// dropStarts ends the order's session that was begun and not started. The gateway may have created its page all the
// same, which nobody was shown, so it is asked once when the order ends.
func (tx *Tx) dropStarts(orderID string) error {
	starting, err := queryAll(tx, scanSession, "SELECT "+sessionColumns+`
		FROM   payment_sessions s
		JOIN   orders o ON o.row = s.order_row
		WHERE  s.order_row = ? AND s.status = 'starting'`, rowOf(orderID))
	if err != nil {
		return err
	}

	for _, s := range starting {
		if s.Lease > tx.now {
			return errMethodBusy
		}
		err := tx.mustChange(`
			UPDATE payment_sessions
			SET    status = 'failed', ended_at = ?, leased_until = 0, failing_since = 0
			WHERE  id = ?`, tx.now, s.ID)
		if err != nil {
			return err
		}
		if err := tx.scheduleCheck(s.ID); err != nil {
			return err
		}
	}
	return nil
}

// storeMethod writes an order with its new method and amount, and notes that its buyer chose that. The order's
// state does not change, so no event tells of it.
func (tx *Tx) storeMethod(r orderRow) error {
	o := &r.order
	o.UpdatedAt = tx.now
	if _, err := tx.storeOrder(r); err != nil {
		return err
	}

	return tx.addHistory(o.ID, HistoryEntry{
		From:  Pending,
		To:    Pending,
		Actor: ActorBuyer,
		Note:  Note{Code: NoteMethodChanged, Text: o.PaymentMethod},
	})
}

// closePage closes the page of a gateway on which an order can be paid, if there is one, because its buyer wants to pay
// by another method. What the gateway says meanwhile counts as ever: if it has been paid, the order is paid.
func (p *payments) closePage(ctx context.Context, orderID string) error {
	session, err := p.db.LatestPaymentSession(orderID)
	if err == errNotFound || err == nil && session.State != SessionActive {
		return nil
	}
	if err != nil {
		return err
	}

	// The page that the buyer comes from has just asked the gateway. It can be asked again after askedLately.
	limited, cancel := context.WithTimeout(ctx, gatewayTimeout)
	defer cancel()
	for {
		_, err := p.question(limited, session.ID, false, true)
		if err == nil || outOfService(err) {
			return err
		}
		if err != errAskedLately {
			return errMethodBusy // Why is stored with the session.
		}

		select {
		case <-time.After(askedLately / 3):
		case <-limited.Done():
			return errMethodBusy
		}
	}
}
