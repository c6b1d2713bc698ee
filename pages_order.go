package main

// This file is the owner's page of one order. It shows the alerts with advice, the decision, the handover, the link for
// the buyer, the order itself, rarer acts, and the history. Then come the acts of its buttons, and the slips that are
// packed with orders.

import (
	"cmp"
	"context"
	"net/url"
	"slices"
)

// orderPage is one order with everything that happened to it.
type orderPage struct {
	*page
	waiting               // the order, its alerts, and what was said
	IsConfirmed bool      // a cash order to prepare
	Decision    *decision // nil = there is nothing to decide
	Method      Method    // may be removed, or without a name
	PayPage     string    // its address
	Send        string    // a WhatsApp link that sends that with a message about the order
	Parcel      *parcel   // nil = it cannot be handed over
	WriteTo     string    // a link for writing to the buyer
	Ready       string    // a link that tells the buyer to come and collect
	Acts        []Act     // what else the owner can do
	MayUndo     bool      // an approval can be taken back
	MayPay      bool      // the buyer still pays, or has just paid
	Correct     form
	Copy        string // the address of a form for another order like this one
	MayCheck    bool   // its gateway can be checked
	Deliveries  []Delivery
}

// decision is what a waiting order asks its owner. Its texts are codes of words.
type decision struct {
	Question string        // prepare, held, amount or arrived
	Yes      string        // the button's
	No       Act           // reject or cancel
	About    string        // what No means, "" = the alerts say it
	Held     []int64       // amounts that the gateway holds
	AlsoHeld bool          // the gateway also holds a payment that this decision is not about
	Accounts []BankAccount // to which the buyer may have paid
}

// parcel is how an order gets to its buyer.
type parcel struct {
	Form      form
	IsPickup  bool
	IsFolded  bool // It may have nothing to be sent.
	NoAddress bool // It needs one.
}

func (s *server) readOrderPage(p *page) (any, error) {
	ctx := p.Context()
	o, err := readOrder(ctx, s.db, p.Store.ID, p.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v := orderPage{page: p}
	if v.waiting, err = s.whyWaiting(ctx, o); err != nil {
		return nil, err
	}

	p.Title = o.Order.PaymentReference
	v.Copy = newOrderAddress() + "&from=" + o.ID
	v.Acts = rareActs[o.Book.Status]
	v.MayPay = o.Book.Status == Pending || o.Book.Status == Paid
	v.Correct = p.Form("correct", p.Fields(editableOf(o.Order)))
	v.MayCheck = slices.ContainsFunc(o.Sessions, func(session PaymentSession) bool { return session.Seen })
	if v.Method, err = s.db.MethodOf(ctx, o); err != nil {
		return nil, err
	}
	v.IsConfirmed = isConfirmedCash(o, v.Method)
	v.advise()
	v.askOwner()
	if err := s.readParcel(&v); err != nil {
		return nil, err
	}
	v.writeToBuyer()
	v.MayUndo = o.Book.mayBeUndone() && (!o.Order.isShipped() || v.Method.Kind == Cash)
	if v.Deliveries, err = s.db.OrderDeliveries(ctx, p.Store.ID, o.ID, 200); err != nil {
		return nil, err
	}
	if p.Done != "" && p.Done != "order" {
		p.Next, err = s.nextWaiting(ctx, o)
	}
	p.specify(string(o.Handover))
	return v, err
}

// nextWaiting returns the first order on the desk besides this one, nil if there is none.
func (s *server) nextWaiting(ctx context.Context, o OrderRow) (*OrderRow, error) {
	rows, err := s.db.Desk(ctx, o.StoreID, 2)
	i := slices.IndexFunc(rows, func(other OrderRow) bool { return other.ID != o.ID })
	if i < 0 {
		return nil, err
	}
	return &rows[i], err
}

// rareActs are an owner's acts on an order that does not wait for them.
var rareActs = map[Status][]Act{
	Pending: {Approve, Cancel},
	Failed:  {Approve},
	Expired: {Approve},
	Paid:    {Refund},
}

// readParcel reads whether and how the order is handed over.
func (s *server) readParcel(v *orderPage) error {
	isShipped := v.Order.isShipped()
	if !isShipped && v.Book.Status != Paid && !v.IsConfirmed {
		return nil
	}

	shipping := v.Order.Shipping
	fields := v.Fields(Shipment{Carrier: shipping.Carrier, TrackingNumber: shipping.TrackingNumber})
	if shipping.Carrier == "" && !isShipped {
		last, err := s.db.LastCarrier(v.Context(), v.StoreID, shipping.Method)
		if err != nil {
			return err
		}
		fields.Set("carrier", last)
	}
	v.Parcel = &parcel{
		Form:      v.Form("ship", fields),
		IsPickup:  v.Handover == ToPickUp,
		IsFolded:  v.Handover == NoHandover && !v.IsConfirmed,
		NoAddress: v.Order.lacksAddress(v.Handover),
	}
	return nil
}

// writeToBuyer fills in the links for writing to the buyer.
func (v *orderPage) writeToBuyer() {
	l := v.Language
	about := v.Order
	v.PayPage = v.Store.payPage(v.ID)
	values := []string{"{buyer}", about.Buyer.Name, "{reference}", about.PaymentReference, "{store}", v.Store.Name,
		"{amount}", rupiah(about.Amount), "{parcel}", l.parcel(about.Shipping.Carrier, about.Shipping.TrackingNumber),
		"{method}", about.Shipping.Method}
	text := l.say("message."+v.standing(), values...) + "\n" + v.PayPage
	v.Send = "https://wa.me/?text=" + url.QueryEscape(text)
	if to := writeTo(about.Buyer.Phone, text); to != "" {
		v.Send = to
	}
	v.WriteTo = writeTo(about.Buyer.Phone, l.say("message.about", values...))
	v.Ready = writeTo(about.Buyer.Phone, l.say("message.ready", values...))
}

// standing returns the code of a message to the buyer about the order.
func (v *orderPage) standing() string {
	status := v.Book.Status
	switch {
	case v.Order.isShipped() && (status == Paid || status == AwaitingVerification):
		if v.Handover == ToPickUp {
			return "picked_up"
		}
		return "sent"
	case v.IsConfirmed:
		return "confirmed"
	case status == Pending:
		return "bill"
	case status == Paid && v.Parcel.NoAddress:
		return "paid.no_address"
	}
	return string(status)
}

// Trouble returns a code for the silence or refusal of a session's gateway; "" = there is none.
func (s PaymentSession) Trouble() string {
	if s.Problem == "unreachable" && !s.Seen {
		return "unopened" // It is asked again when the buyer goes to pay.
	}
	return s.Problem
}

// shownAlert is an alert with its kind, which chooses its words: its code or, of an overpaid order, toomuch
// (only a part of the money is needed) or both (the payment pays the order, and the buyer has reported
// another one).
type shownAlert struct {
	Alert
	Kind string

	// These are set on the page of its order only.
	Advice     string // the code of what it advises
	IsWhichOne bool   // the owner is asked whether this is the approved payment or a second one
}

// shownAlerts returns the alerts of a book, as pages show them.
func shownAlerts(b Book) (shown []shownAlert) {
	for _, a := range alerts(b) {
		kind := string(a.Code)
		switch {
		case a.Code != Overpaid, b.isUnneeded(a.Payment):
		case a.Amount > a.Due:
			kind = "toomuch"
		case b.Reported && b.Status == Paid:
			kind = "both"
		}
		shown = append(shown, shownAlert{Alert: a, Kind: kind})
	}
	return shown
}

// waiting is an order that waits for its owner, and why.
type waiting struct {
	OrderRow
	History []HistoryEntry
	Alerts  []shownAlert
	Said    Note   // by the buyer, or by the gateway about a payment
	Since   Time   // when that was
	Why     string // the kind of its first alert or, without one, the code of what was said
}

// whyWaiting returns why an order waits: its alerts, and what was said when it began to wait.
func (s *server) whyWaiting(ctx context.Context, o OrderRow) (waiting, error) {
	history, err := s.db.History(ctx, o.ID)
	if err != nil {
		return waiting{}, err
	}

	w := waiting{OrderRow: o, History: history, Alerts: shownAlerts(o.Book), Since: o.Order.UpdatedAt}
	became := func(h HistoryEntry) bool { return h.To == AwaitingVerification && h.From != h.To }
	if i := slices.IndexFunc(history, became); i >= 0 && o.Order.Status == AwaitingVerification {
		w.Said = history[i].Note
		w.Since = history[i].At
		isReport := func(h HistoryEntry) bool { return h.Note.Code == NoteReported }
		if r := slices.IndexFunc(history, isReport); r > i && w.Said.Code == NoteUndone {
			report := history[r] // The undone approval has not changed what the buyer reported.
			w.Since = report.At
			w.Said.Bank = report.Note.Bank
			w.Said.Sender = report.Note.Sender
		}
	}

	// Nothing is said when the order waits again for a payment that was held before.
	w.Why = cmp.Or(string(w.Said.Code), "held")
	if len(w.Alerts) > 0 {
		w.Why = w.Alerts[0].Kind
	}
	return w, nil
}

// advise fills in the alerts with advice.
func (v *orderPage) advise() {
	isApproved := v.Book.Status == Paid && v.Book.PaidBy == byOwner // without a gateway's payment
	situation := string(v.Book.Status)
	switch {
	case v.Book.Status == AwaitingVerification && !v.accepts():
		situation = "beside"
	case isApproved:
		situation = "approved"
	}

	for i, a := range v.Alerts {
		v.Alerts[i].Advice = firstWord("advice."+a.Kind+"."+situation, "advice."+a.Kind)
		v.Alerts[i].IsWhichOne = isApproved && a.Code == Overpaid
	}
}

// isHeld reports whether the owner decides about a held payment, and not about the buyer's report.
func (w waiting) isHeld() bool { return w.Book.has(Held) && !w.Book.Reported }

// accepts reports whether the owner is asked to accept the money that arrived.
func (w waiting) accepts() bool { return len(w.Alerts) > 0 && !w.Book.Reported && !w.isHeld() }

// askOwner fills in the decision.
func (v *orderPage) askOwner() {
	if v.Book.Status != AwaitingVerification {
		return
	}

	d := &decision{Question: "arrived", Yes: "arrived", No: Reject}
	v.Decision = d
	if v.isHeld() {
		d.Question = "held"
		d.Yes = "payment"
		d.About = "held"
		for _, p := range v.Book.Payments {
			if p.State == Held {
				d.Held = append(d.Held, p.Amount)
			}
		}
		return
	}

	d.AlsoHeld = v.Book.has(Held)
	d.Accounts = v.Method.Accounts
	switch {
	case v.accepts():
		d.Question = "amount"
		d.Yes = "amount"
	case v.Order.PaymentProvider != Manual:
		d.Yes = "payment"
	case v.Method.Kind == Cash:
		d.Yes = "cash"
	}
	if v.IsConfirmed {
		d.Question = "prepare"
		d.No = Cancel
		if v.Order.isShipped() {
			d.Question = "collect"
		}
	}
	if len(v.Alerts) == 0 {
		d.About = string(d.No)
	}
}

// decideOrder approves, rejects, cancels or refunds an order, unless its State has changed since the owner saw it.
func (s *server) decideOrder(p *page) error {
	_, err := s.payments.Decide(p.Context(), p.Store.ID, p.PathValue("id"), Act(p.PostFormValue("act")), ActorOwner,
		Note{Code: NoteInDashboard}, p.PostFormValue("state"))
	return err
}

func (s *server) resolveAlert(p *page) error {
	isPayer := p.PostFormValue("payer") == "yes"
	return s.db.ResolveAlert(p.Context(), p.Store.ID, p.PathValue("id"), p.PostFormValue("alert"), isPayer)
}

func (s *server) checkOrder(p *page) error { return s.checkNow(p, p.PathValue("id")) }

// checkNow asks the gateway about the payment sessions of an order.
func (s *server) checkNow(p *page, orderID string) error {
	answered, err := s.payments.CheckNow(p.Context(), p.Store.ID, orderID)
	if err == nil && !answered {
		err = refuse(Unavailable)
	}
	return err
}

// shipOrder marks an order as sent or picked up, or corrects its parcel.
func (s *server) shipOrder(p *page) error {
	var in Shipment
	if err := p.readChanges(&in, nil); err != nil {
		return err
	}
	fillIn(&in, Shipment{}, in.Given)
	if p.PostForm.Has("shown") { // The order's page showed a parcel that was sent already.
		p.Done = "parcel"
	}
	_, err := s.db.Ship(p.Context(), p.Store.ID, p.PathValue("id"), ActorOwner, in)
	return err
}

func (s *server) unshipOrder(p *page) error {
	_, err := s.db.TakeBackShipping(p.Context(), p.Store.ID, p.PathValue("id"), ActorOwner)
	return err
}

func (s *server) undoApproval(p *page) error {
	return s.db.UndoApproval(p.Context(), p.Store.ID, p.PathValue("id"), p.PostFormValue("state"))
}

func (s *server) correctOrder(p *page) error {
	var in Correction
	if err := p.readChanges(&in, nil); err != nil {
		return err
	}
	return s.db.CorrectOrder(p.Context(), p.Store.ID, p.PathValue("id"), in)
}

// slipsPage has a sheet to pack with each order that is to be handed over. It has no link to a pay page, because
// whoever carries a parcel can read it.
type slipsPage struct {
	*page
	Slips []toHandOver
}

// toHandOver is an order that is to be sent or picked up.
type toHandOver struct {
	Order
	IsCash    bool // its money is collected
	IsByBuyer bool // The buyer has entered the address.
	NoAddress bool // It needs one.
}

const mostSlips = 200

func (s *server) readSlips(p *page) (any, error) {
	orders, err := s.readToHandOver(p, mostSlips)
	return slipsPage{p, orders}, err
}

// readToHandOver returns the orders that are to be sent or picked up.
func (s *server) readToHandOver(p *page, most int) (orders []toHandOver, err error) {
	rows, err := s.db.ToHandOver(p.Context(), p.Store.ID, most)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		o, err := row.decode()
		if err != nil {
			return nil, err
		}
		orders = append(orders, toHandOver{
			Order:     o,
			IsCash:    o.Status == AwaitingVerification,
			IsByBuyer: row.IsByBuyer,
			NoAddress: o.lacksAddress(row.Handover),
		})
	}
	return orders, nil
}
