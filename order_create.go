package main

// This file is about how an order is created. The request names goods of its store. They are found and priced, and the
// way to hand them over and the payment method are chosen, which may cost something too. Then stock is reserved, and
// the order is written with its first event.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// NewOrder is a request to create an order. Its rules are those of the API. The other callers of CreateOrder keep to
// them too, but an owner's order may have goods outside the catalog, and a buyer without e-mail and telephone.
type NewOrder struct {
	PaymentMethod  string            `json:"payment_method" rule:"exact 1..64 optional"`
	ExternalID     string            `json:"external_id" rule:"exact 1..64 optional"`
	ReturnURL      string            `json:"return_url" rule:"url optional"`
	Buyer          Buyer             `json:"buyer" rule:"object"`
	Items          []NewItem         `json:"items" rule:"list 1..100"`
	ShippingFee    int64             `json:"shipping_fee" rule:"money optional"`
	Discount       int64             `json:"discount" rule:"money optional"`
	Note           string            `json:"note" rule:"lines 0..1000 optional"`
	Metadata       map[string]string `json:"metadata" rule:"map 0..20 optional"`
	Shipping       NewShipping       `json:"shipping" rule:"object optional"`
	Source         Source            // set by the caller, as the four fields below are
	Seen           *SeenPrices       // what the shop page has shown; nil = it is not an order of that page
	Trial          *Method           // a method that a test order tries, and that need not be the store's
	IdempotencyKey string            // "" = none
	BodyHash       []byte            // SHA-256 of the request's body
}

type Buyer struct {
	Name  string `json:"name" rule:"text 1..200"`
	Email string `json:"email,omitempty" rule:"email optional"`
	Phone string `json:"phone,omitempty" rule:"phone optional"`
}

func (b *Buyer) validate(wrong *Refusal, path string, given map[string]bool) {
	if !given["email"] && !given["phone"] {
		wrong.add(path+"email", "or phone is needed")
	}
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

// validate refuses an id of the wrong kind, an item with an id and a slug, and one with neither.
func (in *NewItem) validate(wrong *Refusal, path string, given map[string]bool) {
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

// NewShipping is what a request to create an order says about shipping.
type NewShipping struct {
	Address string `json:"address" rule:"lines 1..500 optional"`
	Method  string `json:"method" rule:"text 1..60 optional"`

	// The rest is set by the program's own pages only.
	IsOption bool // Method is one of the store's shipping options
	IsPriced bool // the order's shipping_fee counts, whatever the option costs
}

// CreatedOrder is the answer to a request to create an order.
type CreatedOrder struct {
	ID       string
	Shown    string // the order as the API shows it
	Replayed bool   // an earlier request with the same Idempotency-Key created it
	BodyHash []byte // of that request
}

// CreateOrder creates an order: prices are read, stock is reserved, and the order, its events and its
// Idempotency-Key are written in one transaction. A request that repeats a key and its body gets the first
// answer again; with another body it is refused, but the order is still returned, because the dashboard
// offers to open it. st was read before the write waited for its turn.
func (db *DB) CreateOrder(ctx context.Context, st Store, in NewOrder) (CreatedOrder, error) {
	return writeFor(ctx, db, func(tx *Tx) (CreatedOrder, error) {
		if in.IdempotencyKey == "" {
			return tx.insertOrder(st, in)
		}

		var first CreatedOrder // the stored answer to the first request
		isAnswered := tx.find(&first, `
			SELECT answer ->> '$.id' AS id, answer AS shown, 1 AS replayed, body_hash
			FROM   idempotency_keys
			WHERE  store_id = ? AND key = ?`, st.ID, in.IdempotencyKey)
		if isAnswered && !bytes.Equal(first.BodyHash, in.BodyHash) {
			return first, refuse(IdempotencyKeyReused)
		}
		if isAnswered {
			return first, nil
		}

		created, err := tx.insertOrder(st, in)
		if err != nil {
			return created, err
		}
		tx.exec(`
			INSERT INTO idempotency_keys (store_id, key, body_hash, answer, created_at)
			VALUES (?, ?, ?, ?, ?)`, st.ID, in.IdempotencyKey, in.BodyHash, created.Shown, tx.now)
		return created, nil
	})
}

// insertOrder checks an order against the store, its goods and its methods, and writes it.
func (tx *Tx) insertOrder(st Store, in NewOrder) (created CreatedOrder, err error) {
	if in.ExternalID != "" {
		var other string
		if tx.find(&other, "SELECT id FROM orders WHERE store_id = ? AND external_id = ?", st.ID, in.ExternalID) {
			refusal := &Refusal{Reason: DuplicateExternalID, Words: other, OrderID: other}
			return created, refusal.add("external_id", "must differ from every other order's: order %s has it", other)
		}
	}

	o := OrderRow{StoreID: st.ID, Book: Book{Status: Pending}, Order: Order{
		ShippingFee: in.ShippingFee,
		Discount:    in.Discount,
		Currency:    "IDR",
		Buyer:       in.Buyer,
		ExternalID:  in.ExternalID,
		ReturnURL:   in.ReturnURL,
		Note:        in.Note,
		Metadata:    in.Metadata,
		Source:      in.Source,
	}}
	goods, err := tx.addItems(&o, in.Items)
	if err != nil {
		return created, err
	}
	if err := tx.chooseShipping(&o, in.Shipping); err != nil {
		return created, err
	}
	if err := tx.choosePayment(&o, st, in); err != nil {
		return created, err
	}
	if in.Seen != nil {
		if err := in.Seen.compare(o); err != nil {
			return created, err
		}
	}
	if tx.reserve(&o) {
		return created, o.outOfStock(goods)
	}

	o.ID = tx.newID()
	o.Order.CreatedAt = tx.now
	o.Order.ExpiresAt = tx.now.Add(st.Expiry)
	o.Order.ID = o.ID
	o.Order.PaymentReference = tx.newReference()
	o.renderJSON(tx.now)

	created = CreatedOrder{ID: o.ID, Shown: tx.addEvent(&o, st, OrderCreated, nil)} // Clients see what the event shows.
	if o.Book.Status == Paid {
		created.Shown = tx.addEvent(&o, st, OrderPaid, nil)
	}

	tx.storeOrder(&o) // after its events, because the row counts them
	return created, nil
}

// forSale is a published product or bundle, with one of the products that it consists of.
type forSale struct {
	Item      int // the index of the item that names it
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

	isUnlimited bool // There was no stock to reserve when the order was created; known only then.
}

// mostComponents is how many products an order may have, including those of its bundles. All other writes wait while
// their stock is read and reserved.
const mostComponents = 500

// addItems fills in the order's items, subtotal and components from the published catalog, and returns what it has of
// each item. A product's only component is the product itself.
func (tx *Tx) addItems(o *OrderRow, items []NewItem) (goods [][]forSale, err error) {
	goods, isTooMuch := tx.goods(o.StoreID, items)
	if isTooMuch {
		return nil, refuse(ValidationFailed).add("items",
			"have more than %d products, with those of bundles: make several orders", mostComponents)
	}

	unknown := refuse(ProductUnavailable)
	wrong := refuse(ValidationFailed)
	isListed := map[string]bool{} // the goods of earlier items, by id
	at := map[string]int{}        // the index in o.Components, by product

	for i, in := range items {
		item := Item{Type: in.Kind, Quantity: in.Quantity}
		switch parts := goods[i]; {
		case in.Kind == Custom:
			item.Title = in.Title
			item.UnitPrice = in.Price
		case len(parts) == 0:
			unknown.add(fmt.Sprintf("items[%d].%s", i, in.field()),
				"is not a published %s of this store: take one from GET /v1/products", in.Kind)
		case isListed[parts[0].ID]:
			wrong.add(fmt.Sprintf("items[%d].%s", i, in.field()),
				"is an item of this order already: give its quantity once")
		default:
			isListed[parts[0].ID] = true
			item.fill(parts[0])
			o.addComponents(at, in.Quantity, parts)
		}

		item.LineTotal = item.UnitPrice * item.Quantity
		if item.LineTotal > maxMoney {
			wrong.add(fmt.Sprintf("items[%d].quantity", i), "makes the line exceed %d", maxMoney)
		}
		o.Order.Items = append(o.Order.Items, item)
		o.Order.Subtotal += item.LineTotal
	}

	if err := unknown.orNil(); err != nil {
		return nil, err
	}
	if len(wrong.Fields) == 0 && o.Order.Subtotal > maxMoney {
		wrong.add("items", "come to more than %d in all", maxMoney)
	}
	return goods, wrong.orNil()
}

// goods reads the published products and bundles that items name, and the products that they consist of, by the index
// of the item, unless those are too many for an order. CROSS JOIN and the + keep SQLite from reading all products of
// the store.
func (tx *Tx) goods(storeID string, items []NewItem) (goods [][]forSale, isTooMuch bool) {
	rows := rowsOf[forSale](tx, `
		SELECT n.key AS item, s.id, s.type AS kind, s.slug, s.title, s.price, p.id AS component,
		       coalesce(i.quantity, 1) AS units, p.stock
		FROM   json_each(?2) n -- NewItem has their names
		CROSS  JOIN products s ON s.id = coalesce(
			nullif(n.value ->> 'product_id', ''),
			nullif(n.value ->> 'bundle_id', ''),
			(SELECT id FROM products WHERE store_id = ?1 AND type = n.value ->> 'type' AND slug = n.value ->> 'slug'))
		LEFT   JOIN bundle_items i ON i.bundle_id = s.id
		JOIN   products p ON p.id = coalesce(i.product_id, s.id)
		WHERE  +s.store_id = ?1 AND s.type = n.value ->> 'type' AND s.published = 1 AND s.removed_at = 0
		LIMIT  +?3`, storeID, fromJSON{items}, mostComponents+1)
	goods = make([][]forSale, len(items))
	for _, row := range rows {
		goods[row.Item] = append(goods[row.Item], row)
	}
	return goods, len(rows) > mostComponents
}

// fill sets what is sold, and its price, from the goods as they are now.
func (i *Item) fill(s forSale) {
	i.Title = s.Title
	i.Slug = s.Slug
	i.UnitPrice = s.Price
	if s.Kind == Bundle {
		i.BundleID = s.ID
	} else {
		i.ProductID = s.ID
	}
}

// addComponents adds what an item takes from the stock. at has the indexes of the order's components by product.
func (o *OrderRow) addComponents(at map[string]int, quantity int64, parts []forSale) {
	for _, s := range parts {
		i, known := at[s.Component]
		if !known {
			i = len(o.Components)
			at[s.Component] = i
			o.Components = append(o.Components, component{ProductID: s.Component, isUnlimited: s.Stock == nil})
		}
		o.Components[i].Quantity += s.Units * quantity
	}
}

// chooseShipping fills in how a new order is handed over, and what that costs. Without an option of the store, it is
// delivered if it has an address.
func (tx *Tx) chooseShipping(o *OrderRow, in NewShipping) error {
	o.Order.Shipping = Shipping{Address: in.Address, Method: in.Method}
	if !in.IsOption {
		if in.Address != "" {
			o.Handover = ToDeliver
		}
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

// outOfStock refuses a new order, and says how many could be ordered of each item that asks for too much, beside the
// other items: of a bundle, as many as its scarcest product allows.
func (o *OrderRow) outOfStock(goods [][]forSale) error {
	refusal := refuse(OutOfStock)
	for i, item := range o.Order.Items {
		left := item.Quantity
		for _, part := range goods[i] {
			if part.Stock != nil {
				others := o.quantityOf(part.Component) - part.Units*item.Quantity
				left = min(left, max(0, *part.Stock-others)/part.Units)
			}
		}
		if left < item.Quantity {
			refusal.addError(FieldError{
				Field:  fmt.Sprintf("items[%d].quantity", i),
				Format: "is more than is left: order fewer, or leave it out",
				Left:   &left,
			})
		}
	}
	return refusal
}

// quantityOf returns how much of a product the order needs in all.
func (o *OrderRow) quantityOf(productID string) int64 {
	i := slices.IndexFunc(o.Components, func(c component) bool { return c.ProductID == productID })
	return o.Components[i].Quantity
}

// newReference returns an order's payment_reference, which a person can quote: a day in WIB and six
// characters. The characters are a count modulo 2³⁰: the time in twelfths of a millisecond, or one more than
// the last count, if that is larger. 2³⁰ twelfths are more than a day, so no reference repeats while the
// process runs; if one does after a restart with the clock set back, the index refuses it. New references are
// neighbours in that index, whereas each random one would change a page of its own.
func (tx *Tx) newReference() string {
	number := max(tx.db.latestReference+1, int64(tx.now)*12)
	tx.db.latestReference = number
	bits := binary.BigEndian.AppendUint32(nil, uint32(number)<<2) // six characters have 30 bits
	tail := crockford.EncodeToString(bits)
	return Time(number/12).Time().In(wib).Format("INV-20060102-") + tail[:6]
}

// referenceTail returns the part of an order's reference that tells it from the others of its day.
func referenceTail(reference string) string { return reference[strings.LastIndex(reference, "-")+1:] }

// crockford is base32 without letters that look alike, in ASCII order
// (https://www.crockford.com/base32.html).
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
