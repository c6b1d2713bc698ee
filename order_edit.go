package main

// This file is about what is changed in an order after it was made: its buyer chooses another payment method or enters
// an address, its owner corrects what was typed wrong, and a program changes its note, its metadata and its address.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
)

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

// EnterAddress lets the buyer enter the missing address of an order that is delivered, once.
func (db *DB) EnterAddress(ctx context.Context, storeID, orderID, address string) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(_ *Tx, o *OrderRow) error {
		if o.Handover != ToDeliver || o.Order.Shipping.Address != "" {
			return o.wrongState()
		}
		if err := o.setShippingAddress(address); err != nil {
			return err
		}
		o.note(ActorBuyer, Note{Code: NoteAddressEntered})
		return nil
	})
	return err
}

// Correction is an owner's correction of an order.
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

// CorrectOrder corrects an order, at any time.
func (db *DB) CorrectOrder(ctx context.Context, storeID, orderID string, in Correction) error {
	_, err := db.changeOrder(ctx, storeID, orderID, func(_ *Tx, o *OrderRow) error {
		fillIn(&in, editableOf(o.Order), in.Given)
		o.Order.Buyer = Buyer{Name: in.Name, Email: in.Email, Phone: in.Phone}
		o.Order.Shipping.Address = in.Address
		o.Order.Note = in.Note
		if in.Address != "" && o.Handover == NoHandover {
			o.Handover = ToDeliver
		}

		o.noteEdited(ActorOwner)
		return nil
	})
	return err
}

// OrderEdit is a program's change of an order.
type OrderEdit struct {
	Note     string            `json:"note" rule:"lines 0..1000 optional"` // "" empties it, if it was given
	Metadata map[string]string `json:"metadata" rule:"map 0..40 optional"` // an empty value removes its key
	Shipping EditedAddress     `json:"shipping" rule:"object optional"`
	Given    map[string]bool
}

// EditedAddress is an order's new address; "" keeps the old one.
type EditedAddress struct {
	Address string `json:"address" rule:"lines 1..500 optional"`
}

// EditOrder makes a program's change. The address of a shipped order stays.
func (db *DB) EditOrder(ctx context.Context, storeID, orderID string, actor Actor, in OrderEdit) (OrderRow, error) {
	return db.changeOrder(ctx, storeID, orderID, func(_ *Tx, o *OrderRow) error {
		if in.Shipping.Address != "" && in.Shipping.Address != o.Order.Shipping.Address {
			if err := o.setShippingAddress(in.Shipping.Address); err != nil {
				return err
			}
		}
		if in.Given["note"] {
			o.Order.Note = in.Note
		}
		if err := o.mergeMetadata(in.Metadata); err != nil {
			return err
		}

		o.noteEdited(actor)
		return nil
	})
}

// setShippingAddress sets the address that an order is sent to.
func (o *OrderRow) setShippingAddress(address string) error {
	if o.Order.isShipped() {
		return (&Refusal{Reason: WrongState, Words: "shipped"}).add("shipping.address",
			"cannot change once the order is shipped: take that back first, or tell the carrier")
	}
	o.Order.Shipping.Address = address
	o.Handover = ToDeliver
	return nil
}

// noteEdited notes in the history which fields have changed, if any has.
func (o *OrderRow) noteEdited(actor Actor) {
	if changed := o.changedFields(); len(changed) > 0 {
		o.note(actor, Note{Code: NoteEdited, Text: strings.Join(changed, ", ")})
	}
}

// mostMetadata is how many keys an order may have.
const mostMetadata = 20

// mergeMetadata sets keys, and removes those with an empty value.
func (o *OrderRow) mergeMetadata(in map[string]string) error {
	merged := map[string]string{}
	maps.Copy(merged, o.Order.Metadata)
	for key, value := range in {
		merged[key] = value
		if value == "" {
			delete(merged, key)
		}
	}
	if len(merged) > mostMetadata {
		return refuse(ValidationFailed).add("metadata",
			"would have %d keys, and at most %d are allowed: remove some with \"\"", len(merged), mostMetadata)
	}
	o.Order.Metadata = merged
	return nil
}
