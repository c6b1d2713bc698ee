package main

// This file is about how an order gets to its buyer: it is shipped or picked up, and that is taken back. Shipping
// stands beside the status: an order of any status may be shipped. While it is shipped, nothing gives its stock back,
// and its buyer can neither cancel it nor choose another method.

import (
	"cmp"
	"context"
)

// Shipping is how an order gets to its buyer. All of it may be empty.
type Shipping struct {
	Address        string `json:"address,omitempty"`
	Method         string `json:"method,omitempty"` // the name of the shipping option
	Carrier        string `json:"carrier,omitempty"`
	TrackingNumber string `json:"tracking_number,omitempty"`
	ShippedAt      Time   `json:"shipped_at,omitempty"` // 0 = not shipped; also the time of a pickup
}

// Handover says whether an order has to be handed over to its buyer, and how.
type Handover string

const (
	NoHandover Handover = ""
	ToPickUp   Handover = "pickup"
	ToDeliver  Handover = "delivery" // to an address
)

// lacksAddress reports whether the order is to be delivered, and nobody has entered the address yet.
func (o Order) lacksAddress(h Handover) bool { return h == ToDeliver && o.Shipping.Address == "" }

// isShipped reports whether the order is on its way, or was picked up.
func (o Order) isShipped() bool { return o.Shipping.ShippedAt > 0 }

// Shipment is what is known about a parcel. An empty field keeps its value.
type Shipment struct {
	Carrier        string `json:"carrier" rule:"text 1..60 optional"`
	TrackingNumber string `json:"tracking_number" rule:"text 1..60 optional"`
	Given          map[string]bool
}

// Ship records that an order was shipped or picked up. The order has to be paid, or to be a cash order that its buyer
// has confirmed. Once it is shipped, in any status, Ship corrects the given fields.
func (db *DB) Ship(ctx context.Context, storeID, orderID string, actor Actor, in Shipment) (OrderRow, error) {
	return db.changeOrder(ctx, storeID, orderID, func(tx *Tx, o *OrderRow) error {
		shipping := &o.Order.Shipping
		before := *shipping
		shipping.Carrier = cmp.Or(in.Carrier, shipping.Carrier)
		shipping.TrackingNumber = cmp.Or(in.TrackingNumber, shipping.TrackingNumber)

		code := NoteShipmentFixed
		if !o.Order.isShipped() {
			m, _ := tx.method(o.StoreID, o.Order.PaymentMethod)
			if o.Book.Status != Paid && !isConfirmedCash(*o, m) {
				return o.wrongState()
			}
			shipping.ShippedAt = tx.now
			code = NoteShipped
		}
		if *shipping != before {
			o.note(actor, Note{Code: code, Carrier: shipping.Carrier, Tracking: shipping.TrackingNumber})
		}
		return nil
	})
}

// isCash reports whether an order is paid in cash when it is handed over.
func (tx *Tx) isCash(o *OrderRow) bool {
	m, _ := tx.method(o.StoreID, o.Order.PaymentMethod)
	return m.Kind == Cash
}

// isConfirmedCash reports whether an order is a cash order that its buyer has confirmed.
func isConfirmedCash(o OrderRow, m Method) bool {
	return o.Book.Status == AwaitingVerification && o.Book.Reported && m.Kind == Cash
}

// TakeBackShipping records that an order is not shipped after all. If it has failed or expired since, its stock is
// released now.
func (db *DB) TakeBackShipping(ctx context.Context, storeID, orderID string, actor Actor) (OrderRow, error) {
	return db.changeOrder(ctx, storeID, orderID, func(tx *Tx, o *OrderRow) error {
		if !o.Order.isShipped() {
			return &Refusal{Reason: WrongState, Words: "not shipped"}
		}
		o.Order.Shipping.ShippedAt = 0
		if o.Book.Status == Failed || o.Book.Status == Expired {
			tx.release(o)
		}
		o.note(actor, Note{Code: NoteNotShipped})
		return nil
	})
}
