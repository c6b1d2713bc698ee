package main

// This file is about what is in an order: its items, how they are found among the goods of its store, and the stock
// that they hold.

import (
	"cmp"
	"fmt"
	"slices"
)

type Item struct {
	Type      Kind   `json:"type"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price"`
	LineTotal int64  `json:"line_total"`
	ProductID string `json:"product_id,omitempty"`
	BundleID  string `json:"bundle_id,omitempty"`
	Slug      string `json:"slug,omitempty"` // when the order was made; orders of 1.0 have none
}

// NewItem is a product or bundle in a NewOrder, named by its id or by its slug.
type NewItem struct {
	Quantity  int64  `json:"quantity" rule:"int 1..10000"`
	Kind      Kind   `json:"type" rule:"choice product|bundle"`
	ProductID string `json:"product_id" rule:"id unique optional"`
	BundleID  string `json:"bundle_id" rule:"id unique optional"`
	Slug      string `json:"slug" rule:"slug optional"`

	// For goods outside the catalog (Custom), which only the program itself can order.
	Title string
	Price int64
}

// field returns the name of the field that names the item.
func (in NewItem) field() string {
	switch {
	case in.Slug != "":
		return "slug"
	case in.Kind == Bundle:
		return "bundle_id"
	default:
		return "product_id"
	}
}

// check refuses an id of the wrong kind, an item with an id and a slug, and one with neither.
func (in *NewItem) check(wrong *Refusal, path string, given map[string]bool) {
	if in.Kind == "" { // It has already been refused.
		return
	}

	id, other := "product_id", "bundle_id"
	if in.Kind == Bundle {
		id, other = other, id
	}
	if !given[id] && !given["slug"] {
		wrong.add(path+id, "or slug is needed")
	}
	if given[other] {
		wrong.add(path+other, "is not known here: leave it out")
	}
	if given[id] && given["slug"] {
		wrong.add(path+"slug", "is not needed beside %s: leave one of them out", id)
	}
}

// forSale is a published product or bundle, with one of the products that it consists of.
type forSale struct {
	ID        string
	Kind      Kind
	Slug      string
	Title     string
	Price     int64
	Component string // the product's id
	Units     int64  // of that product
	Stock     *int64 // of that product; nil is unlimited
}

// component is an order's part of a product's stock.
type component struct {
	ProductID string `json:"product_id"`
	Quantity  int64  `json:"quantity"`
	Reserved  bool   `json:"reserved"`

	// These are known only while an order is created.
	stock *int64 // when addItems read it; nil is unlimited
	uses  []componentUse
}

// componentUse is an item of an order that a component belongs to.
type componentUse struct {
	item  int
	units int64 // of the product, in one piece of the item
}

// mostComponents is how many products an order may have, including those of its bundles. All other writes wait while
// their stock is read and reserved.
const mostComponents = 500

// addItems fills in the order's items, subtotal and components from the published catalog. A product's only component
// is the product itself.
func (tx *Tx) addItems(o *OrderRow, items []NewItem) error {
	ids := tx.idsOf(o.StoreID, items)
	goods, isTooMuch := tx.goods(o.StoreID, ids)
	if isTooMuch {
		return refuse(ValidationFailed).add("items",
			"have more than %d products, with those of bundles: make several orders", mostComponents)
	}

	unknown := refuse(ProductUnavailable)
	wrong := refuse(ValidationFailed)
	at := map[string]int{} // the index in o.Components, by product

	for i, in := range items {
		item := Item{Type: in.Kind, Quantity: in.Quantity}
		switch parts := goods[ids[i]]; {
		case in.Kind == Custom:
			item.Title = in.Title
			item.UnitPrice = in.Price
			item.LineTotal = in.Price * in.Quantity
		case len(parts) == 0 || parts[0].Kind != in.Kind:
			unknown.add(fmt.Sprintf("items[%d].%s", i, in.field()),
				"is not a published %s of this store: take one from GET /v1/products", in.Kind)
		case slices.Contains(ids[:i], ids[i]):
			wrong.add(fmt.Sprintf("items[%d].%s", i, in.field()),
				"is an item of this order already: give its quantity once")
		default:
			item.fill(parts[0])
			o.addComponents(at, i, in.Quantity, parts)
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

// idsOf returns the ids of items, and looks up those that are named by a slug. One that the store does not have is "".
func (tx *Tx) idsOf(storeID string, items []NewItem) (ids []string) {
	for _, in := range items {
		id := cmp.Or(in.ProductID, in.BundleID)
		if in.Slug != "" {
			tx.find(&id, "SELECT id FROM products WHERE store_id = ? AND type = ? AND slug = ?",
				storeID, in.Kind, in.Slug)
		}
		ids = append(ids, id)
	}
	return ids
}

// goods reads the published products and bundles with these ids, and the products that they consist of, unless those
// are too many for an order. The + keeps SQLite from reading all products of the store.
func (tx *Tx) goods(storeID string, ids []string) (goods map[string][]forSale, isTooMuch bool) {
	var rows []forSale
	tx.list(&rows, `
		SELECT s.id, s.type AS kind, s.slug, s.title, s.price, p.id AS component,
		       coalesce(i.quantity, 1) AS units, p.stock
		FROM   products s
		LEFT   JOIN bundle_items i ON i.bundle_id = s.id
		JOIN   products p ON p.id = coalesce(i.product_id, s.id)
		WHERE  +s.store_id = ? AND s.published = 1 AND s.removed_at = 0 AND s.id IN (SELECT value FROM json_each(?))
		LIMIT  +?`, storeID, fromJSON{ids}, mostComponents+1)
	goods = map[string][]forSale{}
	for _, row := range rows {
		goods[row.ID] = append(goods[row.ID], row)
	}
	return goods, len(rows) > mostComponents
}

// fill sets what is sold, and what the line costs, from the goods as they are now.
func (i *Item) fill(s forSale) {
	i.Title = s.Title
	i.Slug = s.Slug
	i.UnitPrice = s.Price
	i.LineTotal = s.Price * i.Quantity
	if s.Kind == Bundle {
		i.BundleID = s.ID
	} else {
		i.ProductID = s.ID
	}
}

// addComponents adds what an item takes from the stock. at has the indexes of the order's components by product.
func (o *OrderRow) addComponents(at map[string]int, item int, quantity int64, parts []forSale) {
	for _, s := range parts {
		i, known := at[s.Component]
		if !known {
			i = len(o.Components)
			at[s.Component] = i
			o.Components = append(o.Components, component{ProductID: s.Component, stock: s.Stock})
		}
		o.Components[i].Quantity += s.Units * quantity
		o.Components[i].uses = append(o.Components[i].uses, componentUse{item, s.Units})
	}
}

// isUnlimited reports whether the product of a new order's component had no stock to reserve.
func (c component) isUnlimited() bool { return c.uses != nil && c.stock == nil }

// reserve reserves the stock of those components of the order that have none yet. It reports whether too little of any
// is left. Unlimited stock is not reserved.
func (tx *Tx) reserve(o *OrderRow) (isShort bool) {
	for i, c := range o.Components {
		if c.Reserved || c.isUnlimited() {
			continue
		}
		changed := tx.exec("UPDATE products SET stock = stock - ?2 WHERE id = ?1 AND stock >= ?2", c.ProductID, c.Quantity)
		o.Components[i].Reserved = changed > 0
		if changed == 0 && tx.hasStock(c.ProductID) {
			isShort = true
		}
	}
	return isShort
}

// hasStock reports whether a product is there, with a limited stock.
func (tx *Tx) hasStock(productID string) bool {
	return tx.count("SELECT count(*) FROM products WHERE id = ? AND stock IS NOT NULL", productID) > 0
}

// release releases the stock that the order holds.
func (tx *Tx) release(o *OrderRow) {
	for i, c := range o.Components {
		if c.Reserved {
			tx.exec("UPDATE products SET stock = stock + ? WHERE id = ? AND stock IS NOT NULL", c.Quantity, c.ProductID)
		}
		o.Components[i].Reserved = false
	}
}

// outOfStock refuses a new order, and says how many are left of each item that asks for too much.
func (o *OrderRow) outOfStock() error {
	refusal := refuse(OutOfStock)
	for i, item := range o.Order.Items {
		if left := o.left(i); left < item.Quantity {
			refusal.addLeft(fmt.Sprintf("items[%d].quantity", i), left, "is more than is left: order fewer, or leave it out")
		}
	}
	return refusal
}

// left returns how many of an item could be ordered beside the other items: of a bundle, as many as its scarcest
// product allows.
func (o *OrderRow) left(item int) int64 {
	most := int64(maxMoney)
	for _, c := range o.Components {
		for _, use := range c.uses {
			if use.item == item && c.stock != nil {
				others := c.Quantity - use.units*o.Order.Items[item].Quantity
				most = min(most, max(0, *c.stock-others)/use.units)
			}
		}
	}
	return most
}
