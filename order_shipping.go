package main

// This file is about what happens to an order after the sale: it is shipped or picked up, that is taken back, and what
// was typed wrong is corrected. Shipping stands beside the status: an order of any status may be shipped. While it is
// shipped, nothing gives its stock back, and its buyer can neither cancel it nor choose another method.

import (
	"cmp"
	"context"
	"maps"
	"strings"
)

// Shipping is how an order gets to its buyer. All of it may be empty.
type Shipping struct {
	Address        string `json:"address,omitempty"`
	Method         string `json:"method,omitempty"` // the name of the shipping option
	Carrier        string `json:"carrier,omitempty"`
	TrackingNumber string `json:"tracking_number,omitempty"`
	ShippedAt      Time   `json:"shipped_at,omitempty"` // 0 = it is not shipped; of a pickup, when it was picked up
}

// NewShipping is what a request to create an order says about shipping.
type NewShipping struct {
	Address string `json:"address" rule:"lines 1..500 optional"`
	Method  string `json:"method" rule:"text 1..60 optional"`

	// Only the program's own pages say the rest.
	IsOption bool // Method is one of the store's shipping options
	IsPriced bool // the fee of the order is its shipping_fee, whatever the option costs
}

// Handover is whether an order has to be handed over to its buyer, and how.
type Handover string

const (
	NoHandover Handover = ""
	ToPickUp   Handover = "pickup"
	ToDeliver  Handover = "delivery" // to an address
)

// handover says of an order of the API that it is delivered if it has an address.
func (in NewShipping) handover() Handover {
	if in.Address != "" {
		return ToDeliver
	}
	return NoHandover
}

// chooseShipping fills in how a new order is handed over, and what that costs.
func (tx *Tx) chooseShipping(o *OrderRow, in NewShipping) error {
	o.Order.Shipping = Shipping{Address: in.Address, Method: in.Method}
	o.Handover = in.handover()
	if !in.IsOption {
		return nil
	}

	option, found := tx.shippingOption(o.StoreID, in.Method)
	if !found {
		return refuse(ValidationFailed).add("shipping", "is not offered any more: choose another")
	}
	if !in.IsPriced {
		o.Order.ShippingFee = option.feeFor(o.Order.Subtotal)
	}
	o.Handover = ToPickUp
	if option.AddressRequired {
		o.Handover = ToDeliver
	}
	return nil
}

// isShipped reports whether the order is on its way, or was picked up.
func (o Order) isShipped() bool { return o.Shipping.ShippedAt > 0 }

// Shipment is what is known about a parcel. What is empty stays as it is.
type Shipment struct {
	Carrier        string `json:"carrier" rule:"text 1..60 optional"`
	TrackingNumber string `json:"tracking_number" rule:"text 1..60 optional"`
}

// Ship records that an order was shipped or picked up. It has to be paid, or to be paid in cash and confirmed by its
// buyer. Once it is shipped, in any state, Ship corrects what is given.
func (db *DB) Ship(ctx context.Context, storeID, orderID string, actor Actor, in Shipment) (OrderRow, error) {
	return db.changeOrder(ctx, storeID, orderID, func(tx *Tx, o *OrderRow) error {
		shipping := &o.Order.Shipping
		before := *shipping
		shipping.Carrier = cmp.Or(in.Carrier, shipping.Carrier)
		shipping.TrackingNumber = cmp.Or(in.TrackingNumber, shipping.TrackingNumber)

		code := NoteShipmentFixed
		if !o.Order.isShipped() {
			if !tx.mayBeShipped(o) {
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

// mayBeShipped reports whether an order may be handed over: it is paid, or it is a cash order that its buyer confirmed.
func (tx *Tx) mayBeShipped(o *OrderRow) bool {
	if o.Book.Status == Paid {
		return true
	}
	return o.Book.Status == AwaitingVerification && o.Book.Reported && tx.isCash(o)
}

// isCash reports whether an order is paid in cash when it is handed over.
func (tx *Tx) isCash(o *OrderRow) bool {
	m, _ := tx.method(o.StoreID, o.Order.PaymentMethod)
	return m.Kind == Cash
}

// TakeBackShipping records that an order is not shipped after all. One that has failed or expired meanwhile gives its
// stock back now.
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

// EnterAddress is for the buyer of an order that is delivered and has no address yet. They can enter it once.
func (db *DB) EnterAddress(ctx context.Context, orderID, address string) error {
	_, err := db.changeOrderOfAnyStore(ctx, orderID, func(_ *Tx, o *OrderRow) error {
		if o.Handover != ToDeliver || o.Order.Shipping.Address != "" || o.Order.isShipped() {
			return o.wrongState()
		}
		o.Order.Shipping.Address = address
		o.note(ActorBuyer, Note{Code: NoteAddressEntered})
		return nil
	})
	return err
}

// Correction is what the owner corrects in an order.
type Correction struct {
	Name    string          `json:"name" rule:"text 1..200"`
	Email   string          `json:"email" rule:"email optional"`
	Phone   string          `json:"phone" rule:"phone optional"`
	Address string          `json:"address" rule:"lines 1..500 optional"`
	Note    string          `json:"note" rule:"lines 0..1000 optional"`
	Given   map[string]bool // the fields that are written
}

func editableOf(o Order) Correction {
	return Correction{
		Name: o.Buyer.Name, Email: o.Buyer.Email, Phone: o.Buyer.Phone, Address: o.Shipping.Address, Note: o.Note,
	}
}

// CorrectOrder writes what the owner corrects, at any time.
func (db *DB) CorrectOrder(ctx context.Context, storeID, orderID string, in Correction) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(_ *Tx, o *OrderRow) error {
		fillIn(&in, editableOf(o.Order), in.Given)
		o.Order.Buyer = Buyer{Name: in.Name, Email: in.Email, Phone: in.Phone}
		o.Order.Shipping.Address = in.Address
		o.Order.Note = in.Note
		if in.Address != "" && o.Handover == NoHandover {
			o.Handover = ToDeliver
		}

		changed := o.changedFields()
		if len(changed) > 0 {
			o.note(ActorOwner, Note{Code: NoteEdited, Text: strings.Join(changed, ", ")})
		}
		return nil
	})
	return err
}

// OrderEdit is what changes in an order.
type OrderEdit struct {
	Note     string            `json:"note" rule:"lines 0..1000 optional"` // "" empties it, if it was given
	Metadata map[string]string `json:"metadata" rule:"map 0..40 optional"` // an empty value removes its key
	Shipping EditedAddress     `json:"shipping" rule:"object optional"`
	Given    map[string]bool
}

// EditedAddress is where an order is sent now; "" leaves the address as it is.
type EditedAddress struct {
	Address string `json:"address" rule:"lines 1..500 optional"`
}

// EditOrder changes what a request says. The address of an order that was shipped stays.
func (db *DB) EditOrder(ctx context.Context, storeID, orderID string, actor Actor, in OrderEdit) (OrderRow, error) {
	return db.changeOrder(ctx, storeID, orderID, func(_ *Tx, o *OrderRow) error {
		if in.Shipping.Address != "" && in.Shipping.Address != o.Order.Shipping.Address {
			if err := o.setAddress(in.Shipping.Address); err != nil {
				return err
			}
		}
		if in.Given["note"] {
			o.Order.Note = in.Note
		}
		if err := o.mergeMetadata(in.Metadata); err != nil {
			return err
		}

		changed := o.changedFields()
		if len(changed) > 0 {
			o.note(actor, Note{Code: NoteEdited, Text: strings.Join(changed, ", ")})
		}
		return nil
	})
}

// setAddress gives an order the address that it is sent to.
func (o *OrderRow) setAddress(address string) error {
	if o.Order.isShipped() {
		return (&Refusal{Reason: WrongState, Words: "shipped"}).add("shipping.address",
			"cannot change once the order is shipped: take that back first, or tell the carrier")
	}
	o.Order.Shipping.Address = address
	o.Handover = ToDeliver
	return nil
}

// mostMetadata is how many keys an order may have.
const mostMetadata = 20

// mergeMetadata sets keys, and removes those with an empty value.
func (o *OrderRow) mergeMetadata(in map[string]string) error {
	merged := maps.Clone(o.Order.Metadata)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, in)
	maps.DeleteFunc(merged, func(key, value string) bool { _, given := in[key]; return given && value == "" })
	if len(merged) > mostMetadata {
		return refuse(ValidationFailed).add("metadata", "would have %d keys, and at most %d are allowed: remove some with \"\"",
			len(merged), mostMetadata)
	}
	o.Order.Metadata = merged
	return nil
}
