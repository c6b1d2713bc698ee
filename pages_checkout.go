package main

// This file has the checkout of the shop page: the chosen goods at today's prices, and the fields of an order. If
// something is wrong, it is shown again and says what. It also says which price has changed, because buyers pay no
// price that they have not seen.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// errShownAgain ends an act that changes nothing. The page is shown again with what was typed.
var errShownAgain = errors.New("the page is shown again")

// checkoutForm is what a buyer types.
type checkoutForm struct {
	Name          string `json:"name" rule:"text 1..100"`
	Phone         string `json:"phone" rule:"text 1..40"`
	Email         string `json:"email" rule:"email optional"`
	Note          string `json:"note" rule:"lines 0..500 optional"`
	Shipping      string `json:"shipping" rule:"text 1..80 optional"` // a fee and the name of an option
	PaymentMethod string `json:"payment_method" rule:"text 1..80"`    // a fee and a code
	Street        string `json:"street" rule:"lines 1..300 optional"`
	District      string `json:"district" rule:"text 1..60 optional"`
	City          string `json:"city" rule:"text 1..60 optional"`
	Postcode      string `json:"postcode" rule:"text 1..10 optional"`
	Seen          int64  `json:"seen" rule:"money =-1"`                   // the subtotal
	LeaveEmpty    string `json:"leave_empty" rule:"text 1..200 optional"` // hidden from people
}

// validate turns the telephone number into E.164, and refuses a form with the field that only robots fill in.
func (f *checkoutForm) validate(wrong *Refusal, path string, given map[string]bool) {
	phone := shopPhone(f.Phone)
	if f.Phone != "" && phone == "" {
		wrong.add(path+"phone", "must be a mobile number: 10 to 13 digits in Indonesia, and + first elsewhere")
	}
	f.Phone = phone
	if f.LeaveEmpty != "" {
		wrong.add(path+"leave_empty", "must stay empty")
	}
	if f.Postcode != "" && !isPostcode(f.Postcode) {
		wrong.add(path+"postcode", "must have 5 digits")
	}
}

var isPostcode = matcher(`^[0-9]{5}$`)

// shopPhone writes a buyer's telephone number as E.164. 812… and 0812… are Indonesian. The result is empty if the
// number cannot be called.
func shopPhone(text string) string {
	text = typedPhone(plainMarks(text))
	digits := phoneMarks.Replace(text)
	isLocal := strings.HasPrefix(digits, "0") && !strings.HasPrefix(digits, "00")
	if !isPhone(text) || isLocal && (len(digits) < 10 || len(digits) > 13) {
		return ""
	}
	return internationalPhone(text)
}

// cutSeenValue cuts a value with a price: the price as the checkout showed it and, for a choice, a space and a name.
func cutSeenValue(value string) (price int64, name string) {
	digits, name, _ := strings.Cut(value, " ")
	price, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		price = -1
	}
	return price, name
}

// address joins the parts of an address to lines. The last line has district, city and postcode.
func (f checkoutForm) address() string {
	last := f.City
	if f.District != "" {
		last = f.District + ", " + last
	}
	return f.Street + "\n" + strings.TrimSpace(last+" "+f.Postcode)
}

// refuseAddress refuses an incomplete address.
func (f checkoutForm) refuseAddress(wrong *Refusal) {
	for name, text := range map[string]string{"street": f.Street, "district": f.District, "city": f.City} {
		if text == "" {
			wrong.add(name, "is needed")
		}
	}
}

// checkoutOption is a shipping option as a checkout shows it.
type checkoutOption struct {
	ShippingOption
	Costs int64
}

// checkoutPage is the checkout.
type checkoutPage struct {
	*page
	At           string
	Back         string // to the shop
	Lines        []chosenLine
	Skipped      int
	Wrong        string // the code of an error of the whole form
	Subtotal     int64
	Before, Now  int64 // the sum that the buyer saw, and today's; equal if nothing changed
	Options      []checkoutOption
	Chosen       *checkoutOption
	Methods      []Method
	Method       *Method  // the chosen one
	Barred       []Method // by their bounds
	TakesAddress bool
	Form         form
	Contact      storeLink
}

// readCheckout reads the checkout from its address, which may fill in its fields, or from the form that was refused.
func (s *server) readCheckout(p *page) (any, error) {
	values, lines := p.cart()
	v := checkoutPage{page: p, Form: form{values, p.typed.Refusal}, Contact: p.askStore()}
	v.At = p.shopAddress(p.Store.shopPath()+"/checkout", nil)
	v.Back = p.shopAddress(p.Store.shopPath(), lines)
	p.Title = p.Language.say("title.checkout")
	p.Head = &publicHead{Description: p.summary("")}

	var err error
	if v.Lines, v.Skipped, err = s.chosen(p, lines); err != nil {
		return nil, err
	}
	for _, l := range v.Lines {
		v.Subtotal += l.Total
	}
	if err := s.readOptions(&v); err != nil {
		return nil, err
	}
	if err := s.readMethods(&v); err != nil {
		return nil, err
	}
	v.compareSums()
	if p.typed.Refusal != nil {
		v.Wrong = "checkout." + string(p.typed.Refusal.Reason)
	}
	if len(v.Lines) == 0 {
		v.Wrong = "checkout.nothing"
	}
	return v, nil
}

// leaveClosed leads from the checkout of a closed shop to its shop page, which says that it is closed.
func (s *server) leaveClosed(p *page) error {
	if p.Store.Shop != ShopOpen {
		p.next = p.Store.shopPath()
	}
	return nil
}

// readOptions reads the shipping options. A single one is chosen; of several, the one that the buyer chose.
func (s *server) readOptions(v *checkoutPage) error {
	options, err := s.db.ShippingOptions(v.Context(), v.Store.ID)
	_, wanted := cutSeenValue(v.Form.Values.Get("shipping"))
	for _, o := range options {
		option := checkoutOption{o, o.feeFor(v.Subtotal)}
		v.Options = append(v.Options, option)
		v.TakesAddress = v.TakesAddress || o.AddressRequired
		if o.Name == wanted || len(options) == 1 {
			v.Chosen = &option
		}
	}
	return err
}

// readMethods reads the payment methods. A single one is chosen unless it is cash; of several, the one that the buyer
// chose.
func (s *server) readMethods(v *checkoutPage) error {
	methods, err := s.db.ShopMethods(v.Context(), v.Store)
	_, wanted := cutSeenValue(v.Form.Values.Get("payment_method"))
	for _, m := range methods {
		if !m.usable(v.Store, v.Subtotal) {
			v.Barred = append(v.Barred, m)
			continue
		}
		v.Methods = append(v.Methods, m)
		if m.Code == wanted {
			v.Method = &m
		}
	}
	if len(v.Methods) == 1 && v.Methods[0].Kind != Cash {
		v.Method = &v.Methods[0]
	}
	return err
}

// compareSums sets today's sum and the one that the form showed, which differs if a price has changed.
func (v *checkoutPage) compareSums() {
	v.Now = v.Subtotal
	if v.Chosen != nil {
		v.Now += v.Chosen.Costs
	}
	if v.Method != nil {
		v.Now += v.Method.Fee
	}
	v.Before = v.Now
	if v.typed.Refusal == nil || v.typed.Refusal.Reason != PriceChanged {
		return
	}
	v.Before = 0
	for _, name := range []string{"seen", "shipping", "payment_method"} {
		price, _ := cutSeenValue(v.Form.Values.Get(name))
		v.Before += max(0, price)
	}
}

// checkOut takes the form of the checkout.
func (s *server) checkOut(p *page) error {
	lines := readCart(p.PostForm)
	switch p.PostFormValue("go") {
	case "shop":
		p.next = p.shopAddress(p.Store.shopPath(), lines)
		return nil
	case "order":
		return s.orderFromCheckout(p, lines)
	default:
		return errShownAgain
	}
}

func (s *server) orderFromCheckout(p *page, lines []cartLine) error {
	var in checkoutForm
	wrong := refuse(ValidationFailed)
	if refusal, ok := errors.AsType[*Refusal](readForm(p.PostForm, &in)); ok {
		wrong = refusal
	}
	leave, err := s.auth.busyPlace(p.Context(), p.Store.ID, "shop")
	if err != nil {
		return err
	}
	list, _, err := s.chosen(p, lines)
	leave()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return &Refusal{Reason: ValidationFailed, Words: "checkout.nothing"}
	}
	if len(lines) > mostLines {
		wrong.add("cart", "has more than %d lines", mostLines)
	}

	fee, method := cutSeenValue(in.PaymentMethod)
	order := NewOrder{
		Buyer:         Buyer{Name: in.Name, Email: in.Email, Phone: in.Phone},
		Note:          in.Note,
		PaymentMethod: method,
		Seen:          &SeenPrices{Subtotal: in.Seen, Fee: fee},
	}
	for _, l := range list {
		order.Items = append(order.Items, NewItem{Kind: l.Type, Slug: l.Slug, Quantity: l.Quantity})
		if l.Error != nil {
			wrong.Fields = append(wrong.Fields, *l.Error)
		}
	}
	if err := s.chooseOption(p, in, &order, wrong); err != nil {
		return err
	}
	if err := wrong.orNil(); err != nil {
		return err
	}

	if err := s.auth.orderLimiter.takeAt(p.Store.ID, s.auth.client(p.Request)); err != nil {
		return err
	}
	sent := fmt.Sprintf("%x", digest(p.PostForm.Encode()))
	id, err := s.db.OrderFromShop(p.Context(), p.Store.ID, sent, order)
	if err != nil {
		return err
	}
	p.next = p.shopAddress("/pay/"+id, nil, "new", "1")
	return nil
}

// chooseOption fills in the shipping option of the order.
func (s *server) chooseOption(p *page, in checkoutForm, order *NewOrder, wrong *Refusal) error {
	options, err := s.db.ShippingOptions(p.Context(), p.Store.ID)
	if err != nil || len(options) == 0 {
		return err
	}
	price, name := cutSeenValue(in.Shipping)
	i := slices.IndexFunc(options, func(o ShippingOption) bool { return o.Name == name })
	if i < 0 {
		wrong.add("shipping", "is needed")
		return nil
	}
	order.Seen.ShippingFee = price
	order.Shipping = NewShipping{Method: name, IsOption: true}
	if options[i].AddressRequired {
		in.refuseAddress(wrong)
		order.Shipping.Address = in.address()
	}
	return nil
}
