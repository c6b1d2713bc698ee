package main

// This file is the form for an order that the owner enters, for a buyer who orders by chat or in the shop. It is empty,
// or filled in like another order at today's prices.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// newOrderAddress returns the address of an empty form, with a new key.
func newOrderAddress() string { return "/dashboard/orders/new?key=" + newSecret() }

// ownOrder is what the form holds.
type ownOrder struct {
	Items []struct {
		Title    string `json:"title" rule:"text 1..200"`
		Quantity int64  `json:"quantity" rule:"int 1..10000 =1"`
	} `json:"items" rule:"list 0..30 optional"`
	Custom []struct {
		Title    string `json:"title" rule:"text 1..200"`
		Price    int64  `json:"price" rule:"money"`
		Quantity int64  `json:"quantity" rule:"int 1..10000 =1"`
	} `json:"custom" rule:"list 0..10 optional"`
	Name     string `json:"name" rule:"text 1..200"`
	Phone    string `json:"phone" rule:"phone optional"`
	Email    string `json:"email" rule:"email optional"`
	Option   string `json:"shipping" rule:"text 1..60 optional"` // the name of a shipping option
	Address  string `json:"address" rule:"lines 0..500 optional"`
	Method   string `json:"payment_method" rule:"text 1..64 optional"`
	Fee      *int64 `json:"shipping_fee" rule:"money optional"` // instead of the option's
	Discount int64  `json:"discount" rule:"money optional"`
	Note     string `json:"note" rule:"lines 0..1000 optional"`
}

const (
	mostOwnItems    = 30
	mostCustomItems = 10
)

// newOrderPage is the form.
type newOrderPage struct {
	*page
	Form     form
	Key      string
	Rows     []int   // of goods of the catalog
	More     []int   // further rows, which are folded
	Custom   []int   // of other goods
	Products []Entry // that the form suggests
	Options  []ShippingOption
	Methods  []Method
	Another  string   // the address of a form like this one with a new key
	Gone     []string // goods of the copied order that are not sold any more
}

func (s *server) readNewOrder(p *page) (any, error) {
	ctx := p.Context()
	v := newOrderPage{
		page:    p,
		Form:    p.Form("order"),
		Key:     cmp.Or(p.Query("key"), newSecret()),
		Another: newOrderAddress(),
	}
	var err error
	if v.Products, err = s.suggested(p, ""); err != nil {
		return nil, err
	}
	if v.Options, err = s.db.ShippingOptions(ctx, p.Store.ID); err != nil {
		return nil, err
	}
	if v.Methods, err = s.db.UsableMethods(ctx, p.Store, -1); err != nil {
		return nil, err
	}

	if from := p.Query("from"); from != "" && v.Form.Refusal == nil {
		if err := s.copyOrder(p, from, &v); err != nil {
			return nil, err
		}
	}

	if v.Form.Refusal == nil && len(v.Methods) == 1 && v.Methods[0].Kind != Cash {
		v.Form.Values.Set("payment_method", v.Methods[0].Code) // Cash could send unpaid goods away.
	}
	v.Rows = v.Form.Rows("items", "title", mostOwnItems)
	for row := len(v.Rows); row < 10; row++ {
		v.More = append(v.More, row)
	}
	v.Custom = v.Form.Rows("custom", "title", mostCustomItems)
	return v, nil
}

// copyOrder fills the form in with another order's buyer, goods, shipping and method, as far as they are offered still.
// Cash has to be chosen each time: it sends goods away unpaid.
func (s *server) copyOrder(p *page, id string, v *newOrderPage) error {
	o, err := readOrder(p.Context(), s.db, p.Store.ID, id)
	if err != nil {
		return err
	}

	values := p.Fields(editableOf(o.Order))
	option := o.Order.Shipping.Method
	if slices.ContainsFunc(v.Options, func(offered ShippingOption) bool { return offered.Name == option }) {
		values.Set("shipping", option)
	} else if option != "" {
		v.Gone = append(v.Gone, option)
	}
	for _, m := range v.Methods {
		if m.Code == o.Order.PaymentMethod && m.Kind != Cash {
			values.Set("payment_method", m.Code)
		}
	}

	items, custom := 0, 0
	for _, item := range o.Order.Items {
		if item.Type == Custom {
			row := fmt.Sprintf("custom[%d].", custom)
			values.Set(row+"title", item.Title)
			values.Set(row+"price", fmt.Sprint(item.UnitPrice))
			values.Set(row+"quantity", fmt.Sprint(item.Quantity))
			custom++
			continue
		}

		e, err := s.db.EntryForSale(p.Context(), p.Store.ID, item.ProductID+item.BundleID)
		if errors.Is(err, ErrNotFound) {
			v.Gone = append(v.Gone, item.Title)
			continue
		}
		if err != nil {
			return err
		}
		name, err := s.nameOf(p, "", e)
		if err != nil {
			return err
		}
		values.Set(fmt.Sprintf("items[%d].title", items), name)
		values.Set(fmt.Sprintf("items[%d].quantity", items), fmt.Sprint(item.Quantity))
		items++
	}
	v.Form = form{Values: values}
	return nil
}

// suggested returns the first goods of a kind, for the list of a field. Others can be typed too.
func (s *server) suggested(p *page, kind Kind) ([]Entry, error) {
	f := EntryFilter{Type: kind, Limit: 500, Drafts: kind != ""}
	entries, _, err := s.db.Entries(p.Context(), p.Store.ID, f)
	return entries, err
}

// makeOrder creates the owner's order, and confirms a cash order. The form's address has its idempotency key, so a
// double click creates only one order.
func (s *server) makeOrder(p *page) error {
	var in ownOrder
	if err := readForm(p.PostForm, &in); err != nil {
		return err
	}
	shipping := NewShipping{Address: in.Address, Method: in.Option, IsOption: in.Option != "", IsPriced: in.Fee != nil}
	order := NewOrder{
		Buyer:          Buyer{Name: in.Name, Email: in.Email, Phone: in.Phone},
		PaymentMethod:  in.Method,
		Discount:       in.Discount,
		Note:           in.Note,
		Shipping:       shipping,
		Source:         FromOwner,
		IdempotencyKey: "form-" + p.Query("key"),
		BodyHash:       digest(p.PostForm.Encode()),
	}
	if in.Fee != nil {
		order.ShippingFee = *in.Fee
	}
	rows, err := s.findGoods(p, in, &order)
	if err != nil {
		return err
	}

	created, err := s.db.CreateOrder(p.Context(), p.Store, order)
	err = inRows(err, rows)
	if isRefused(err, IdempotencyKeyReused) { // The page asks whether to open that order.
		p.Become = created.ID
	}
	if err != nil {
		return err
	}

	p.next = "/dashboard/orders/" + created.ID
	return s.confirmCash(p, created.ID, order.PaymentMethod)
}

// findGoods adds the goods that the owner typed to an order, and returns their rows in the form.
func (s *server) findGoods(p *page, in ownOrder, order *NewOrder) (rows []string, err error) {
	wrong := refuse(ValidationFailed)
	rows = filledRows(p.PostForm, "items", mostOwnItems)
	for i, item := range in.Items {
		e, reason, err := s.meant(p, "", item.Title)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			wrong.add(rows[i]+"title", reason)
			continue
		}
		order.Items = append(order.Items, NewItem{Kind: e.Type, Slug: e.Slug, Quantity: item.Quantity})
	}

	for _, item := range in.Custom {
		order.Items = append(order.Items,
			NewItem{Kind: Custom, Title: item.Title, Price: item.Price, Quantity: item.Quantity})
	}
	if len(in.Items)+len(in.Custom) == 0 {
		wrong.add("items[0].title", "is needed")
	}
	return append(rows, filledRows(p.PostForm, "custom", mostCustomItems)...), wrong.orNil()
}

// inRows says of a refused order's items which rows of the form they stand in, and how many are left of what is short.
func inRows(err error, rows []string) error {
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok {
		return err
	}
	for i, wrong := range refusal.Fields {
		var item int
		var field string
		if n, _ := fmt.Sscanf(wrong.Field, "items[%d].%s", &item, &field); n < 2 || item >= len(rows) {
			continue
		}
		if field != "quantity" {
			field = "title"
		}
		refusal.Fields[i].Field = rows[item] + field
		if wrong.Left != nil && *wrong.Left > 0 {
			refusal.Fields[i].Format = "is more than is left, which is %d"
			refusal.Fields[i].Values = []any{*wrong.Left}
		}
	}
	return refusal
}

// meant returns the entry, of one kind or of any, that an owner means by a text. wrong says that the text means none,
// or several.
func (s *server) meant(p *page, kind Kind, text string) (e Entry, wrong string, err error) {
	entries, err := s.db.EntriesLike(p.Context(), p.Store.ID, kind, text)
	switch {
	case err != nil:
		return e, "", err
	case len(entries) == 0:
		return e, "is not in the list: choose from it", nil
	case len(entries) > 1:
		return e, "matches several: choose one from the list, or rename one in the catalog", nil
	}
	return entries[0], "", nil
}

// nameOf returns what an owner types for an entry: its title or, if others have it too, its slug.
func (s *server) nameOf(p *page, kind Kind, e Entry) (string, error) {
	meant, _, err := s.meant(p, kind, e.Title)
	if meant.ID == e.ID {
		return e.Title, err
	}
	return e.Slug, err
}

// confirmCash confirms a cash order, because its buyer has agreed already, and may never open the pay page.
func (s *server) confirmCash(p *page, orderID, method string) error {
	m, err := s.db.Method(p.Context(), p.Store.ID, method)
	if errors.Is(err, ErrNotFound) || err == nil && m.Kind != Cash {
		return nil
	}
	if err != nil {
		return err
	}
	err = s.db.ReportPayment(p.Context(), p.Store.ID, orderID, ActorOwner, method, "", "")
	if isRefused(err, WrongState) {
		return nil // a double click, a change since, or nothing to pay
	}
	return err
}
