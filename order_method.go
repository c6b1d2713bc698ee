package main

// This file is about the method that an order is paid by: what it adds to the price, and how the buyer chooses another.

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

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

// MethodOf returns the method that an order is paid by; one that was removed has no name.
func (db *DB) MethodOf(ctx context.Context, o OrderRow) (Method, error) {
	m, err := db.Method(ctx, o.StoreID, o.Order.PaymentMethod)
	if errors.Is(err, ErrNotFound) {
		return Method{}, nil
	}
	return m, err
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

// ChangeMethod lets the buyer of a pending order choose another method. It changes at once. The next check closes pages
// of the old method, and is due now.
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
