package main

// This file is about orders of the shop page, which strangers make. Buyers pay no price that they have not seen: the
// write that creates an order compares its prices with what the page showed. It is bounded how much stock strangers can
// hold, and for how long. An unpaid order ends after the store's hold. An order that its buyer reports as paid releases
// its stock a day after the report, if nobody has decided about it by then.

import (
	"context"
	"time"
)

const (
	mostShopOrders = 500 // unpaid or reported orders of a store
	sameFormFor    = 10 * time.Minute
	reportHolds    = 24 * time.Hour // the stock of a reported order
)

// newShopRings bounds how often an owner's phone rings for what buyers of the shop page do, by store.
func newShopRings() *limiter {
	return &limiter{perMinute: 0.1, burst: 20, buckets: map[string]bucket{}}
}

// SeenPrices is what a checkout has shown to its buyer.
type SeenPrices struct{ Subtotal, ShippingFee, Fee int64 }

// PriceChanged refuses an order whose buyer has seen other prices.
const PriceChanged Reason = "PRICE_CHANGED"

// OrderFromShop creates an order of the shop page, which has the prices that its buyer has seen. A cash order is
// confirmed at once. digest is that of the form: sent again within ten minutes, it leads to its order.
func (db *DB) OrderFromShop(ctx context.Context, storeID, digest string, in NewOrder) (string, error) {
	return writeFor(ctx, db, func(tx *Tx) (string, error) {
		st := tx.store(storeID)
		st.Expiry = st.ShopHold
		token := "shop " + digest
		var id string
		if tx.find(&id, "SELECT order_id FROM saved_forms WHERE store_id = ? AND token = ? AND at > ?",
			st.ID, token, tx.now.Add(-sameFormFor)) {
			return id, nil
		}
		if st.Shop != ShopOpen {
			return "", refuse(WrongState)
		}
		m, found := tx.method(st.ID, in.PaymentMethod)
		if !found || !m.isOfShop(st) {
			return "", refuse(PaymentMethodUnavailable).add("payment_method", "is needed")
		}
		if tx.hasManyShopOrders(st.ID) {
			return "", refuse(LimitReached)
		}

		in.Source = FromShop
		created, err := tx.insertOrder(st, in)
		if err != nil {
			return "", err
		}
		id = created.ID
		tx.exec("INSERT OR REPLACE INTO saved_forms (store_id, token, at, order_id) VALUES (?, ?, ?, ?)",
			st.ID, token, tx.now, id)
		if m.Kind != Cash {
			return id, nil
		}
		o, err := readOrder(tx, tx, st.ID, id)
		if err != nil {
			return "", err
		}
		o.hasRung = true
		return id, tx.changeOrder(&o, func(tx *Tx, o *OrderRow) error {
			return tx.reportPayment(o, m.Code, ActorBuyer, "", "")
		})
	})
}

// hasManyShopOrders reports whether as many orders of the shop page as a store may have are unpaid or reported.
func (tx *Tx) hasManyShopOrders(storeID string) bool {
	return tx.count(`
		SELECT count(*)
		FROM   orders INDEXED BY orders_of_shop -- SQLite would read all orders that wait
		WHERE  store_id = ? AND source = 'shop' AND status IN ('pending', 'awaiting_verification') AND shipped_at = 0`,
		storeID) >= mostShopOrders
}

// compare refuses an order whose price differs from what its buyer has seen, and one that costs nothing.
func (seen SeenPrices) compare(o OrderRow) error {
	if o.Book.Status == Paid {
		return refuse(PaymentMethodUnavailable).add("payment_method", "is not for an order that costs nothing")
	}
	if (SeenPrices{o.Order.Subtotal, o.Order.ShippingFee, o.Order.Fee}) != seen {
		return refuse(PriceChanged)
	}
	return nil
}

// holdsForADay reports whether a reported order keeps its stock only for a while: it is of the shop page, is not paid
// in cash, no money is known, and it is not shipped.
func (tx *Tx) holdsForADay(o *OrderRow) bool {
	hasMoney := o.Book.has(Held) || o.Book.has(Arrived)
	return o.Order.Source == FromShop && !hasMoney && !o.Order.isShipped() && !tx.isCash(o)
}

// holdForADay lets an order that waits for its owner hold its stock until a day from now.
func (tx *Tx) holdForADay(o *OrderRow) {
	if tx.holdsForADay(o) {
		o.StockUntil = tx.now.Add(reportHolds)
	}
}

// releaseReported releases the stock of orders that were reported a day ago and that nobody has decided about. They go
// on waiting. An approval reserves the stock again, or says that there is too little.
func (db *DB) releaseReported(ctx context.Context) error {
	release := func(tx *Tx, o *OrderRow) error {
		if o.StockUntil > 0 && o.StockUntil <= tx.now && tx.holdsForADay(o) {
			tx.release(o)
			o.note(ActorClock, Note{Code: NoteStockReleased})
		}
		o.StockUntil = 0
		return nil
	}
	_, err := db.changeDue(ctx, release, `
		SELECT store_id, id FROM orders WHERE stock_until > 0 AND stock_until <= ?`, db.now())
	return err
}

// CancelOwnOrder lets the buyer of an unpaid order of the shop page cancel it.
func (db *DB) CancelOwnOrder(ctx context.Context, storeID, orderID string) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(_ *Tx, o *OrderRow) error {
		if o.Order.Source != FromShop || o.Book.Status != Pending || o.Order.isShipped() {
			return refuse(WrongState)
		}
		return o.become(Failed, ActorBuyer, Note{Code: NoteByBuyer})
	})
	return err
}
