package main

// This file has the pages that need no sign-in: a buyer's pay page, which shows one of five parts, and the sandbox's
// page.

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// admitBuyer lets in anybody with the address of an order's pay page. Made-up addresses use no tokens.
func (s *server) admitBuyer(p *page) error {
	if err := s.openOrder(p, strings.ToLower(p.PathValue("id"))); err != nil {
		return err
	}
	return s.auth.payLimiter.take(p.order.ID).err
}

// admitToSandbox lets in the buyer of an order at the sandbox.
func (s *server) admitToSandbox(p *page) error {
	id, err := s.db.SandboxOrder(p.Context(), p.PathValue("id"))
	if err != nil {
		return err
	}
	if err := s.openOrder(p, id); err != nil {
		return err
	}
	if !p.Store.TestMode {
		return ErrNotFound
	}
	return s.auth.payLimiter.take(p.order.ID).err
}

// openOrder reads the order of a buyer's page. Pay pages are on every host except another store's, so that links still
// work after a store's domain changes.
func (s *server) openOrder(p *page, orderID string) (err error) {
	if p.order, err = readOrderOfAnyStore(p.Context(), s.db, orderID); err != nil {
		return err
	}
	st, err := s.db.StoreOf(p.Context(), "id", p.order.StoreID)
	if err != nil {
		return err
	}
	p.enter(st, "pay")
	return s.checkHost(p)
}

const (
	mostChecks = 10              // how often the page asks the gateway by itself
	buyerWaits = 4 * time.Second // for a gateway's answer
)

// backFromGateway is the path to which gateways lead buyers back. It has no query, because some gateways drop it, and
// others append a second ?.
const backFromGateway = "/pay/{id}/back"

// comeBack leads a buyer from a gateway back to the pay page, which asks the gateway about the payment. Some gateways
// lead back by a POST.
func (s *server) comeBack(p *page) error {
	err := s.admitBuyer(p)
	p.next = "/pay/" + p.order.ID + "?back=1"
	return err
}

// checkOnReturn asks the gateway about a pending order if its buyer comes back from there, or if a notification claims
// that money came. While somebody else is asking, or if no answer comes, the page says that the gateway is being asked,
// and tries again. Past the order's end, it says that the time is over.
func (s *server) checkOnReturn(p *page) error {
	back, _, _ := strings.Cut(p.Query("back"), "?") // Gateways may add another query with a ?.
	checks, _ := strconv.Atoi(back)
	if back == "" && p.order.isUnconfirmed() {
		checks = 1
	}
	if checks < 1 || !p.order.Order.RequiresPayment {
		return nil
	}
	if !s.payments.isBusy(p.order.ID) {
		ctx, cancel := context.WithTimeout(p.Context(), buyerWaits)
		defer cancel()
		answered, err := s.payments.CheckNow(ctx, p.Store.ID, p.order.ID)
		if err != nil {
			return err
		}
		if err := s.openOrder(p, p.order.ID); err != nil || answered && !p.order.isUnconfirmed() {
			return err
		}
	}

	p.checking = checks
	if checks < mostChecks {
		p.w.Header().Set("Refresh", fmt.Sprintf("3; url=/pay/%s?back=%d", p.order.ID, checks+1))
	}
	return nil
}

// payPage is a buyer's page of their order.
type payPage struct {
	*page
	OrderRow
	Method      Method // of the order; a removed one has no name
	Part        string // asking, manual, gateway, checking or over
	IsManual    bool
	IsBackFirst bool // the way back to the store's own page comes first
	Question    storeLink
	URL         string
	Alerts      []shownAlert
	Code        *QRISMerchant // of the order's QRIS code; nil = it has none
	IsFirst     bool          // the buyer has just ordered on the shop page
	Keep        storeLink     // a link that keeps the page's address in a chat
	MayCancel   bool          // an unpaid order of the shop page
	OrderAgain  string        // the shop page with the same goods; "" = not an order of it
	Target      string        // the heading above the account; "" = there is none
	CanSave     bool          // the picture can be saved
	LacksTarget bool          // the store has removed the account

	// While the order waits for payment.
	AmountStart string // the amount without its last digits
	AmountEnd   string // the digits by which the store recognizes the payment
	IsLong      bool   // The amount is shown in smaller letters.
	AsksAgain   bool   // the page asks the gateway again by itself
	IsDenied    bool   // the last payment was denied, and none is open
	Problem     string // why the gateway gave no page
	Others      []otherMethod

	// While the payment is checked.
	IsConfirmed bool // in cash
	Proof       storeLink
	MayUnclaim  bool

	// While the order is on its way.
	Delivery     string // asks (for the address), waits, prepared, sent or picked_up; "" = there is nothing to say
	LastLine     string // of the address, the only one that everybody with the link can read
	IsHandedOver bool   // and that comes first
	AsksFirst    bool   // the way to write to the store stands above the summary

	// Once the buyer has nothing left to do.
	Outcome      string // free, paid, failed, expired, nothing or refunded
	IsOverUnpaid bool   // its buyer may order anew
	AnyDenied    bool
	Kept         []shownAlert // money that the store has although the order is not paid
	MayClaim     bool         // the buyer may have paid too late
}

// storeLink is a link for writing to the store, with the code of its words; "" = there is none.
type storeLink struct{ URL, By string }

// otherMethod is another way to pay, with the costs of the order by it.
type otherMethod struct {
	Method
	Costs      int64
	ShowsCosts bool // because they differ from today's
}

// readPay reads a pay page. An order that is still pending after its end has an open page at the gateway. Late money
// may still pay it, as it pays an expired or failed order.
func (s *server) readPay(p *page) (any, error) {
	o := p.order
	v := payPage{page: p, OrderRow: o}
	p.Title = o.Order.PaymentReference
	v.URL = p.Store.payPage(o.ID)
	v.IsManual = o.Order.PaymentProvider == Manual
	v.Alerts = shownAlerts(o.Book)
	v.IsBackFirst = o.Order.ReturnURL != "" && (o.Book.Status == Paid || o.Book.Status == AwaitingVerification)
	v.Question = p.toStore("message.question", "ask.")
	var err error
	if v.Method, err = s.db.MethodOf(p.Context(), o); err != nil {
		return nil, err
	}
	now := s.db.now()
	v.readShopOrder()
	v.readTarget(now)

	v.readDelivery(now)
	inTime := now < o.Order.ExpiresAt
	mayPay := o.Book.Status == Pending && inTime
	switch {
	case mayPay && p.checking > 0:
		v.Part = "asking"
		v.AsksAgain = p.checking < mostChecks
	case mayPay:
		v.Part = "gateway"
		if v.IsManual {
			v.Part = "manual"
		}
		err = s.readWaysToPay(&v)
	case o.Book.Status == AwaitingVerification:
		v.Part = "checking"
		v.readChecking(inTime)
	default:
		v.Part = "over"
		v.readOutcome()
	}
	return v, err
}

// toStore returns the link for a message of the buyer about the order. words begins the code of the link's words.
func (p *page) toStore(message, words string) storeLink {
	o := p.order.Order
	return p.linkToStore(p.Language.say(message,
		"{store}", p.Store.Name, "{reference}", o.PaymentReference, "{amount}", rupiah(o.Amount),
		"{link}", p.Store.payPage(p.order.ID)), words)
}

// linkToStore returns the link for a text to the store's contact.
func (p *page) linkToStore(text, words string) storeLink {
	link := writeTo(p.Store.Contact, text)
	switch {
	case link == "":
		return storeLink{}
	case strings.HasPrefix(link, "mailto:"):
		return storeLink{link, words + "email"}
	}
	return storeLink{link, words + "whatsapp"}
}

// readShopOrder reads what else the buyer of an order of the shop page can do.
func (v *payPage) readShopOrder() {
	if v.Order.Source != FromShop {
		return
	}
	v.IsFirst = v.Query("new") != "" && (v.Book.Status == Pending || v.Book.Status == AwaitingVerification)
	v.Keep = v.toStore("message.keep", "keep.")
	v.MayCancel = v.Book.Status == Pending && !v.Order.isShipped()
	var lines []cartLine
	for _, i := range v.Order.Items {
		lines = append(lines, cartLine{Field: cartField(i.Type, i.Slug), Quantity: i.Quantity})
	}
	if v.Store.Shop == ShopOpen {
		v.OrderAgain = v.shopAddress(v.Store.shopPath(), lines)
	}
}

// readTarget reads where the money of a manual order goes.
func (v *payPage) readTarget(now Time) {
	m := v.Method
	isQRIS := m.Kind == QRIS
	if v.qris(now) != "" {
		v.Code = m.merchant()
	}
	v.CanSave = m.ImageURL != nil && strings.HasPrefix(*m.ImageURL, "/") // the picture is one of ours
	switch {
	case len(m.Accounts) == 0 && m.ImageURL == nil && m.Instructions == "" && v.Code == nil:
	case v.Book.Status == AwaitingVerification && m.Kind != Cash:
		v.Target = v.Language.say("target")
	case len(m.Accounts) > 1:
		v.Target = v.Language.say("target.several")
	case len(m.Accounts) == 1, isQRIS:
		v.Target = v.Language.word("to", m.Kind)
	default:
		v.Target = m.Name
	}
	v.LacksTarget = m.lacksTarget() != "" || isQRIS && m.ImageURL == nil && v.Code == nil
}

// readWaysToPay reads what a buyer who has not paid can do.
func (s *server) readWaysToPay(v *payPage) error {
	o := v.Order
	v.AmountStart = rupiah(o.Amount)
	v.IsLong = o.Amount > 999_999_999
	if o.UniqueCode > 0 && o.Amount > 999 {
		v.AmountStart, v.AmountEnd = v.AmountStart[:len(v.AmountStart)-3], v.AmountStart[len(v.AmountStart)-3:]
	}

	v.IsDenied = v.Book.has(Denied) && !v.Book.has(Open)
	if len(v.Sessions) > 0 {
		if latest := v.Sessions[0]; latest.URL == "" && latest.Method == o.PaymentMethod {
			v.Problem = latest.Problem
		}
	}

	if o.isShipped() {
		return nil // Its method stays.
	}
	offered, err := s.db.OfferedMethods(v.Context(), v.Store, o)
	for _, m := range offered {
		if m.Code != o.PaymentMethod {
			costs := o.beforeFee() + m.Fee
			v.Others = append(v.Others, otherMethod{m, costs, m.UniqueCode || costs != o.Amount})
		}
	}
	return err
}

// readChecking reads what a buyer can do while the payment is checked.
func (v *payPage) readChecking(inTime bool) {
	reported := v.Book.Reported
	v.IsConfirmed = isConfirmedCash(v.OrderRow, v.Method) && len(v.Alerts) == 0
	v.Proof = v.toStore("message.proof", "proof.")
	if len(v.Alerts) > 0 {
		v.Proof = v.toStore("message.proof.other", "proof.")
	}
	v.MayUnclaim = reported && inTime && !v.Order.isShipped()
	isSent := v.IsManual && v.Method.Kind != Cash && reported
	if !v.IsConfirmed && !isSent {
		v.Target = "" // The payment to check came another way.
	}
}

// readDelivery reads how the order reaches its buyer. Thirty days after the handover, the page no longer says so.
func (v *payPage) readDelivery(now Time) {
	shipping := v.Order.Shipping
	status := v.Book.Status
	isDone := status == Paid || isConfirmedCash(v.OrderRow, v.Method)
	isOver := status == Failed || status == Expired || status == Refunded
	if shipping.ShippedAt > 0 && now > shipping.ShippedAt.Add(30*24*time.Hour) {
		return
	}

	v.IsHandedOver = isDone && shipping.ShippedAt > 0
	v.LastLine = lastLine(shipping.Address)
	switch {
	case shipping.ShippedAt > 0 && v.Handover == ToPickUp:
		v.Delivery = "picked_up"
	case shipping.ShippedAt > 0:
		v.Delivery = "sent"
	case v.Handover == NoHandover, isOver:
	case v.Handover == ToDeliver && shipping.Address == "":
		v.Delivery = "asks"
	case isDone:
		v.Delivery = "prepared"
	default:
		v.Delivery = "waits"
	}
}

// lastLine returns the last line of an address or, if it has one line, the text after the last comma.
func lastLine(address string) string {
	if i := strings.LastIndex(address, "\n"); i >= 0 {
		return address[i+1:]
	}
	if i := strings.LastIndex(address, ","); i >= 0 {
		return strings.TrimSpace(address[i+1:])
	}
	return ""
}

// readOutcome reads how an order ended.
func (v *payPage) readOutcome() {
	status := v.Book.Status
	switch {
	case status == Paid && v.Order.Amount == 0:
		v.Outcome = "free"
	case status == Paid, status == Failed:
		v.Outcome = string(status)
	case status == Expired, status == Pending:
		v.Outcome = "expired"
		v.MayClaim = v.IsManual && v.Method.Kind != Cash
	case v.Order.Amount == 0:
		v.Outcome = "nothing"
	default:
		v.Outcome = "refunded"
	}
	v.AnyDenied = v.Book.has(Denied)
	v.AsksFirst = status == Paid && v.Question.URL != ""
	v.IsOverUnpaid = v.Outcome == "failed" || v.Outcome == "expired"
	if !v.IsOverUnpaid {
		return
	}
	for _, a := range v.Alerts {
		if a.Code != Disputed {
			v.Kept = append(v.Kept, a)
		}
	}
}

// actOfBuyer performs the act of a button of the pay page. If it comes too late, the page shows the present state. If
// it comes from the page of another method, the page says that the method has changed.
func (s *server) actOfBuyer(p *page) (err error) {
	p.next = "/pay/" + p.order.ID
	act := p.PostFormValue("act")
	method := p.PostFormValue("method")
	switch {
	case act == "change":
		err = s.db.ChangeMethod(p.Context(), p.Store, p.order.ID, method)
	case act == "address":
		err = s.enterAddress(p)
	case method != p.order.Order.PaymentMethod:
		p.next += "?changed=1"
	case act == "claim":
		err = s.reportPayment(p, method)
	case act == "cancel":
		err = s.db.CancelOwnOrder(p.Context(), p.Store.ID, p.order.ID)
	case act == "unclaim":
		err = s.db.TakeBackReport(p.Context(), p.Store.ID, p.order.ID)
	}

	if isRefused(err, WrongState) {
		return nil
	}
	return err
}

// reportPayment records the buyer's report of a payment.
func (s *server) reportPayment(p *page, method string) error {
	var said struct {
		Sender string `json:"sender" rule:"text 1..100 optional"`
		Bank   string `json:"bank" rule:"text 1..100 optional"`
	}
	if err := readForm(p.PostForm, &said); err != nil {
		return err
	}
	return s.db.ReportPayment(p.Context(), p.Store.ID, p.order.ID, ActorBuyer, method, said.Sender, said.Bank)
}

// enterAddress stores the address that the buyer enters.
func (s *server) enterAddress(p *page) error {
	var in struct {
		Address string `json:"address" rule:"lines 1..500"`
	}
	if err := readForm(p.PostForm, &in); err != nil {
		return err
	}
	return s.db.EnterAddress(p.Context(), p.Store.ID, p.order.ID, in.Address)
}

// goPay leads to the page where an order is paid, or back to the pay page, which says what is wrong. It is a GET,
// because form-action allows no form that leads to a gateway. A preview (HEAD) starts nothing.
func (s *server) goPay(p *page) error {
	_, session, err := s.payments.OrderWithSession(p.Context(), p.Store, p.order.ID, p.Method == http.MethodGet)
	p.next = session.PaymentURL
	return err
}

// sandboxPage is the sandbox gateway's page of a payment session.
type sandboxPage struct {
	*page
	Order Order
	Takes bool // it takes a payment
	Has   bool // it has taken one
}

func (s *server) readSandbox(p *page) (any, error) {
	p.Title = p.order.Order.PaymentReference
	_, isPaid := p.order.Book.payer()
	return sandboxPage{p, p.order.Order, p.order.Book.Status == Pending, isPaid}, nil
}

func (s *server) actInSandbox(p *page) error {
	p.next = "/pay/" + p.order.ID + "?back=1"
	return s.db.ActInSandbox(p.Context(), p.order, p.PathValue("id"), p.PostFormValue("act"))
}
