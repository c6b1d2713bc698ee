package main

// This file is about what is in an order: its items, how they are found among the goods of its store, and the stock that
// they hold.

import (
	"cmp"
	"fmt"
	"strings"
)

type Item struct {
	Type      Kind   `json:"type"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price"`
	LineTotal int64  `json:"line_total"`
	ProductID string `json:"product_id,omitempty"`
	BundleID  string `json:"bundle_id,omitempty"`
}

// NewItem is a product or bundle in a NewOrder.
type NewItem struct {
	Quantity  int64  `json:"quantity" rule:"int 1..10000"`
	Kind      Kind   `json:"type" rule:"choice product|bundle"`
	ProductID string `json:"product_id" rule:"id unique optional"`
	BundleID  string `json:"bundle_id" rule:"id unique optional"`
	ID        string // ProductID or BundleID, set by check or, where no body was read, by the caller
}

// check refuses an id of the wrong kind, and sets the item's ID.
func (i *NewItem) check(wrong *Refusal, path string, given map[string]bool) {
	i.ID = cmp.Or(i.ProductID, i.BundleID)
	needed, other := "product_id", "bundle_id"
	if i.Kind == Bundle {
		needed, other = other, needed
	}
	if i.Kind == "" { // It has already been refused.
		return
	}

	if !given[needed] {
		wrong.add(path+needed, "is needed")
	}
	if given[other] {
		wrong.add(path+other, "is not known here: leave it out")
	}
}

// forSale is a published product or bundle, with one of the products that it consists of.
type forSale struct {
	ID        string
	Kind      Kind
	Title     string
	Price     int64
	Component string // the product's id
	Units     int64  // of that product
	Unlimited bool   // That product has no stock to reserve.
}

// component is what an order takes from a product's stock.
type component struct {
	ProductID string `json:"product_id"`
	Quantity  int64  `json:"quantity"`
	Reserved  bool   `json:"reserved"`
	unlimited bool   // The product had no stock to reserve when addItems read it; not stored.
	items     []int  // the order's items that it belongs to
}

// mostComponents is how many products an order may have, those of its bundles included. All other writes wait while they
// are read, and while their stock is reserved.
const mostComponents = 500

// addItems fills in the order's items, its subtotal and its components from what is published now. A product's only
// component is the product itself. The + in its query keeps SQLite from reading all products of the store.
func (tx *Tx) addItems(o *OrderRow, items []NewItem) error {
	args := []any{o.StoreID}
	for _, in := range items {
		args = append(args, in.ID)
	}

	var goods []forSale
	tx.list(&goods, `
		SELECT s.id, s.type AS kind, s.title, s.price, p.id AS component, coalesce(i.quantity, 1) AS units,
		       p.stock IS NULL AS unlimited
		FROM   products s
		LEFT   JOIN bundle_items i ON i.bundle_id = s.id
		JOIN   products p ON p.id = coalesce(i.product_id, s.id)
		WHERE  +s.store_id = ? AND s.published = 1 AND s.removed_at = 0
		AND    s.id IN (?`+strings.Repeat(", ?", len(items)-1)+`)
		LIMIT  ?`, append(args, mostComponents+1)...)
	if len(goods) > mostComponents {
		return refuse(ValidationFailed).add("items",
			"have more than %d products, with those of bundles: make several orders", mostComponents)
	}

	place := map[string]int{} // of a product's component in the order
	unknown := refuse(ProductUnavailable)
	wrong := refuse(ValidationFailed)
	for i, in := range items {
		item := Item{Type: in.Kind, Quantity: in.Quantity, ProductID: in.ID}
		if in.Kind == Bundle {
			item.ProductID = ""
			item.BundleID = in.ID
		}

		for _, s := range goods {
			if s.ID != in.ID || s.Kind != in.Kind {
				continue
			}
			item.Title = s.Title
			item.UnitPrice = s.Price
			item.LineTotal = s.Price * in.Quantity
			c, isKnown := place[s.Component]
			if !isKnown {
				c = len(o.Components)
				place[s.Component] = c
				o.Components = append(o.Components, component{ProductID: s.Component, unlimited: s.Unlimited})
			}
			o.Components[c].Quantity += s.Units * in.Quantity
			o.Components[c].items = append(o.Components[c].items, i)
		}

		if item.Title == "" { // It was not found: no title is empty.
			unknown.add(fmt.Sprintf("items[%d].%s_id", i, in.Kind),
				"is not a published %s of this store: take one from GET /v1/products", in.Kind)
		}

		if item.LineTotal > maxMoney {
			wrong.add(fmt.Sprintf("items[%d].quantity", i), "makes the line exceed %d", maxMoney)
		}

		o.Order.Items = append(o.Order.Items, item)
		o.Order.Subtotal += item.LineTotal
	}

	if err := unknown.orNil(); err != nil {
		return err
	}
	if len(wrong.Fields) == 0 && o.Order.Subtotal > maxMoney {
		wrong.add("items", "come to more than %d in all", maxMoney)
	}
	return wrong.orNil()
}

// reserve takes the stock of the order's components that are not reserved yet, and returns those with too
// little stock left.
func (tx *Tx) reserve(o *OrderRow) (short []component) {
	for i, c := range o.Components {
		if c.Reserved || c.unlimited {
			continue
		}

		var left *int64
		enough := tx.find(&left, `
			UPDATE products SET stock = stock - ?2 WHERE id = ?1 AND (stock IS NULL OR stock >= ?2) RETURNING stock`,
			c.ProductID, c.Quantity)
		if !enough { // There is too little, or the write has failed.
			short = append(short, c)
		}
		o.Components[i].Reserved = left != nil // It is also nil when the stock is unlimited.
	}
	return short
}

// release puts back the stock that the order holds.
func (tx *Tx) release(o *OrderRow) {
	for i, c := range o.Components {
		if c.Reserved {
			tx.exec("UPDATE products SET stock = stock + ? WHERE id = ? AND stock IS NOT NULL", c.Quantity, c.ProductID)
		}
		o.Components[i].Reserved = false
	}
}

// outOfStock refuses an order and names the items that ask for too much.
func outOfStock(short []component) error {
	refusal := refuse(OutOfStock)
	for _, c := range short {
		for _, item := range c.items {
			refusal.add(fmt.Sprintf("items[%d].quantity", item), "is more than is left: order fewer, or leave it out")
		}
	}
	return refusal
}
