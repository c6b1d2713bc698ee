package main

// This file is about the shipping options of a store: the ways in which it hands orders over, each at one price. The
// owner's form or a catalog writes all of them at once. An order keeps the name of its option.

import (
	"cmp"
	"context"
	"slices"
)

// ShippingOption is a way to hand an order over.
type ShippingOption struct {
	Name            string `json:"name" rule:"text 1..60 unique"`
	Fee             int64  `json:"fee" rule:"money"`
	AddressRequired bool   `json:"address_required" rule:"bool optional"` // false: the buyer picks it up
	FreeFrom        *int64 `json:"free_from" rule:"money optional"`       // this subtotal; nil is never
	Position        int64  `json:"-" rule:"int 0..1000000 =1000000"`      // the smallest first, equal ones as given
}

// mostShippingOptions is how many a store may have.
const mostShippingOptions = 10

// feeFor returns what the option costs an order of this subtotal.
func (o ShippingOption) feeFor(subtotal int64) int64 {
	if o.FreeFrom != nil && subtotal >= *o.FreeFrom {
		return 0
	}
	return o.Fee
}

const sqlShippingOptions = `
	SELECT name, fee, address_required, free_from, position
	FROM   shipping_options
	WHERE  store_id = ? `

// ShippingOptions lists a store's shipping options, in the order that its owner chose.
func (db *DB) ShippingOptions(ctx context.Context, storeID string) ([]ShippingOption, error) {
	return all[ShippingOption](ctx, db, sqlShippingOptions+"ORDER BY position", storeID)
}

// shippingOption finds the option with a name.
func (tx *Tx) shippingOption(storeID, name string) (o ShippingOption, found bool) {
	found = tx.find(&o, sqlShippingOptions+"AND name = ?", storeID, name)
	return o, found
}

// SetShippingOptions replaces a store's shipping options.
func (db *DB) SetShippingOptions(ctx context.Context, storeID string, options []ShippingOption) error {
	return db.write(ctx, func(tx *Tx) error {
		tx.putShippingOptions(storeID, options)
		return nil
	})
}

func (tx *Tx) putShippingOptions(storeID string, options []ShippingOption) {
	tx.exec("DELETE FROM shipping_options WHERE store_id = ?", storeID)
	byPosition := func(a, b ShippingOption) int { return cmp.Compare(a.Position, b.Position) }
	for i, o := range slices.SortedStableFunc(slices.Values(options), byPosition) {
		tx.exec(`
			INSERT INTO shipping_options (store_id, position, name, fee, address_required, free_from)
			VALUES (?, ?, ?, ?, ?, ?)`, storeID, i+1, o.Name, o.Fee, o.AddressRequired, o.FreeFrom)
	}
}
