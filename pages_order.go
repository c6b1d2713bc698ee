package main

// This file is the page of one order, for its owner: the alerts and what each advises, what is to be decided, the link for
// the buyer, the order itself, what else can be done, and everything that happened to it. Then what its buttons do.

import (
	"context"
	"errors"
	"net/url"
	"slices"
)

// orderPage is one order with everything that happened to it.
type orderPage struct {
	*page
	Order       Order
	State       string // what the owner decides about
	IsConfirmed bool   // to be prepared, and paid in cash
	Alerts      []shownAlert
	Decision    *decision // nil = there is nothing to decide
	Refused     form
	Method      Method // removed or not, or one without a name
	Link        buyerLink
	MayPay      bool   // the link is for somebody who pays, or has just paid
	WriteTo     string // the link by which the owner writes to the buyer
	Acts        []Act  // what else the owner can do
	History     []HistoryEntry
	Sessions    []sessionLine
	Payments    []Payment
	MayCheck    bool // its gateway can be asked
	Deliveries  []Delivery
}

// decision is what an order that waits asks of its owner. Its texts are codes of words.
type decision struct {
	Question string  // prepare, held, amount or arrived
	Yes      string  // the button's
	No       Act     // reject or cancel
	About    string  // what that means, "" = the alerts say it
	Held     []int64 // amounts that the gateway holds
	AlsoHeld bool    // The gateway also holds a payment that is not decided about.
	Accounts []BankAccount
	Said     Note
	Since    Time
}

// buyerLink is the address of an order's pay page, to be copied or sent.
type buyerLink struct {
	URL      string
	WhatsApp string
	IsLocal  bool // buyers on the internet cannot open it
}

// sessionLine is a payment session, with the code of what its gateway's silence or refusal means.
type sessionLine struct {
	PaymentSession
	Trouble string
}

func (s *server) readOrderPage(p *page) (any, error) {
	ctx := p.Context()
	o, err := readOrder(ctx, s.db, p.Store.ID, p.PathValue("id"))
	if err != nil {
		return nil, err
	}
	w, err := s.whyWaiting(ctx, o)
	if err != nil {
		return nil, err
	}

	p.Title = o.Order.PaymentReference
	v := orderPage{page: p, Order: o.Order, State: o.State(), IsConfirmed: w.Why == string(NoteConfirmed), Refused: p.Form("")}
	v.Link, v.WriteTo = p.linkFor(o.Order)
	v.MayPay = o.Book.Status == Pending || o.Book.Status == Paid
	v.Acts = rareActs[o.Book.Status]
	v.Payments = o.Book.Payments
	for _, session := range o.Sessions {
		v.Sessions = append(v.Sessions, sessionLine{session, session.trouble()})
		v.MayCheck = v.MayCheck || session.Seen
	}

	if v.Method, err = s.methodOf(ctx, o); err != nil {
		return nil, err
	}
	v.advise(w)
	v.askOwner(w)
	if v.History, err = s.db.History(ctx, o.ID); err != nil {
		return nil, err
	}
	if v.Deliveries, err = s.db.OrderDeliveries(ctx, p.Store.ID, o.ID, 200); err != nil {
		return nil, err
	}
	if p.Done != "" && p.Done != "order" {
		p.Next, err = s.nextWaiting(ctx, o)
	}
	return v, err
}

// methodOf returns the method that an order is paid by; one that was removed has no name.
func (s *server) methodOf(ctx context.Context, o OrderRow) (Method, error) {
	m, err := s.db.Method(ctx, o.StoreID, o.Order.PaymentMethod)
	if errors.Is(err, ErrNotFound) {
		return Method{}, nil
	}
	return m, err
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

// rareActs are what an owner can do about an order that does not wait for them.
var rareActs = map[Status][]Act{
	Pending: {Approve, Cancel},
	Failed:  {Approve},
	Expired: {Approve},
	Paid:    {Refund},
}

// linkFor returns the link to an order's pay page, and the link by which its owner writes to the buyer.
func (p *page) linkFor(o Order) (link buyerLink, writeToBuyer string) {
	l := p.Language
	link = buyerLink{URL: p.Store.payPage(o.ID), IsLocal: p.Store.isLocal()}
	values := []string{"{buyer}", o.Buyer.Name, "{reference}", o.PaymentReference, "{store}", p.Store.Name,
		"{amount}", rupiah(o.Amount)}
	text := l.say("message.bill", values...) + "\n" + link.URL
	link.WhatsApp = "https://wa.me/?text=" + url.QueryEscape(text)
	if o.Buyer.Phone == "" {
		return link, ""
	}
	if to := writeTo(o.Buyer.Phone, text); to != "" {
		link.WhatsApp = to
	}
	return link, writeTo(o.Buyer.Phone, l.say("message.about", values...))
}

// trouble returns the code of what the silence or refusal of a session's gateway means. "" = there is none.
func (s PaymentSession) trouble() string {
	if s.Problem == "unreachable" && !s.Seen {
		return "unopened" // It is asked again when the buyer goes to pay.
	}
	return s.Problem
}

// advise fills in the alerts, and what each advises.
func (v *orderPage) advise(w waiting) {
	book := w.Book
	isApproved := book.Status == Paid && book.PaidBy == byOwner // without a gateway's payment
	situation := string(book.Status)
	switch {
	case book.Status == AwaitingVerification && !w.accepts():
		situation = "beside"
	case isApproved:
		situation = "approved"
	}

	for _, a := range w.Alerts {
		a.Advice = firstWord("advice."+a.Kind+"."+situation, "advice."+a.Kind)
		a.IsWhichOne = isApproved && a.Code == Overpaid
		v.Alerts = append(v.Alerts, a)
	}
}

// isHeld reports whether the owner decides about what a gateway holds, and not about what the buyer has reported.
func (w waiting) isHeld() bool { return w.Book.held() && !w.Book.Reported }

// accepts reports whether the owner is asked to accept what has arrived.
func (w waiting) accepts() bool { return len(w.Alerts) > 0 && !w.Book.Reported && !w.isHeld() }

// askOwner fills in what there is to decide.
func (v *orderPage) askOwner(w waiting) {
	if w.Book.Status != AwaitingVerification {
		return
	}

	d := &decision{Question: "arrived", Yes: "arrived", No: Reject, Said: w.Said, Since: w.Since}
	v.Decision = d
	if w.isHeld() {
		d.Question = "held"
		d.Yes = "payment"
		d.About = "held"
		for _, p := range w.Book.Payments {
			if p.State == Held {
				d.Held = append(d.Held, p.Amount)
			}
		}
		return
	}

	d.AlsoHeld = w.Book.held()
	d.Accounts = v.Method.Accounts
	switch {
	case w.accepts():
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
	}
	if len(w.Alerts) == 0 {
		d.About = string(d.No)
	}
}

// decideOrder does one of the acts approve, reject, cancel and refund, unless the order's State has changed
// since the owner saw it.
func (s *server) decideOrder(p *page) error {
	_, err := s.payments.Decide(p.Context(), p.Store.ID, p.PathValue("id"), Act(p.PostFormValue("act")), ActorOwner,
		Note{Code: NoteInDashboard}, p.PostFormValue("state"))
	return err
}

func (s *server) resolveAlert(p *page) error {
	isPayer := p.PostFormValue("payer") == "yes"
	return s.db.ResolveAlert(p.Context(), p.Store.ID, p.PathValue("id"), p.PostFormValue("alert"), isPayer)
}

func (s *server) checkOrder(p *page) error {
	answered, err := s.payments.CheckNow(p.Context(), p.Store.ID, p.PathValue("id"))
	if err == nil && !answered {
		err = refuse(Unavailable)
	}
	return err
}
