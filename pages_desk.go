package main

// This file is the owner's desk: signing in, what waits for the owner, the list of orders, and the words for a phone.
// pages_order.go has the page of one order, pages_new.go the form for an order that the owner enters, and pages_csv.go
// the list of orders for a spreadsheet.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// admitOwner lets a store's owner in, and sends anybody else to the sign-in page.
func (s *server) admitOwner(p *page) error {
	st, err := s.auth.owner(p.Request)
	if errors.Is(err, ErrNotFound) {
		p.next = "/dashboard/login?next=" + url.QueryEscape(p.URL.RequestURI())
		return nil
	}
	if err != nil {
		return err
	}
	p.IsOwner = true
	p.enter(st, "owner")
	return s.auth.ownerLimiter.take(st.ID).err
}

// admitStranger limits how often an address posts to the sign-in page, before its form is read.
func (s *server) admitStranger(p *page) error {
	if p.Method != http.MethodPost {
		return nil
	}
	return s.auth.formLimiter.take(s.auth.client(p.Request))
}

// signInPage is the sign-in page, or the one that a sign-in link opens.
type signInPage struct {
	*page
	ByLink  bool
	IsSpent bool // the link was used before, or is too old
	IsHTTP  bool // whoever is on the same network can read along
}

func (s *server) readSignIn(p *page) (any, error) {
	v := signInPage{page: p, ByLink: p.PathValue("token") != "", IsHTTP: strings.HasPrefix(p.Home, "http:")}
	refusal := p.typed.Refusal
	v.IsSpent = v.ByLink && refusal != nil && refusal.Reason == ValidationFailed
	return v, nil
}

// signIn signs an owner in by a password, or by the button behind a sign-in link. A preview that fetches the link does
// not use it up.
func (s *server) signIn(p *page) (err error) {
	if token := p.PathValue("token"); token != "" {
		err = s.auth.signInByLink(p.w, p.Request, token)
	} else {
		err = s.auth.signIn(p.w, p.Request, p.PostFormValue("email"), p.PostFormValue("password"))
	}
	if errors.Is(err, ErrNotFound) {
		return refuse(ValidationFailed)
	}

	p.next = "/dashboard"
	if asked := p.URL.Query().Get("next"); ownPaths.MatchString(asked) {
		p.next = asked
	}
	return err
}

// ownPaths matches the addresses of the dashboard that a sign-in may lead to.
var ownPaths = regexp.MustCompile(`^/dashboard(/\w[\w.-]*)*(\?[\w=&%+.-]*)?$`)

// deskPage is what waits for the owner, and then the orders.
type deskPage struct {
	*page
	asked
	IsFirst    bool    // nothing is asked for
	Since      Time    // the beginning of the period, 0 = it has none
	Until      Time    // its end
	Sum        Revenue // of the period, or of today
	Today      string  // a day, as asked has it
	MonthBegin string  // the first day of its month
	NewOrder   string
	Steps      firstSteps
	HasSteps   bool // some are left
	Waiting    []waiting
	IsMore     bool // more may wait than are shown
	ToHandOver []toHandOver
	IsMoreToDo bool       // more have to be handed over than are shown
	OnTheirWay Revenue    // cash orders that were sent and are not paid
	Unanswered int        // payment sessions whose gateway does not answer
	Failing    []Endpoint // endpoints where nothing arrives
	Orders     []Order
	IsCash     map[string]bool // by the code of a method: its money comes when the order is handed over
	Older      string          // the address of the next page, "" = there is none
	Revenue    Revenue
}

// firstSteps says what an owner has done in a new store. A store that sells without a shop page needs none.
type firstSteps struct{ Product, Method, Contact, Shipping, Shop, Phone, Order bool }

const (
	manyOrders     = 10 // Whoever has as many sells.
	mostWaiting    = 20 // that the desk shows at once
	mostToHandOver = 30
)

func (s *server) readDesk(p *page) (any, error) {
	v := deskPage{page: p, NewOrder: newOrderAddress()}
	var filter OrderFilter
	v.asked, filter = p.asked()
	v.Since = filter.CreatedMin
	v.Until = filter.CreatedMax
	v.IsFirst = v.asked.IsAll() && filter.StartingAfter == ""
	if err := s.readOrders(p, &v, filter); err != nil {
		return nil, err
	}
	methods, err := s.db.Methods(p.Context(), p.Store.ID)
	v.IsCash = map[string]bool{}
	for _, m := range methods {
		v.IsCash[m.Code] = m.Kind == Cash
	}
	if err != nil || !v.IsFirst {
		return v, err
	}

	if err := s.readFirstSteps(p, &v, methods); err != nil {
		return nil, err
	}
	if err := s.readWaiting(p, &v); err != nil {
		return nil, err
	}
	if v.Unanswered, err = s.db.Unanswered(p.Context(), p.Store.ID); err != nil {
		return nil, err
	}
	v.Revenue, err = searching(s, p, func() (Revenue, error) { return s.db.Revenue(p.Context(), p.Store.ID) })
	return v, err
}

// readOrders reads the orders asked for, and the sum of the period's or today's orders.
func (s *server) readOrders(p *page, v *deskPage, filter OrderFilter) error {
	var more bool
	var err error
	if v.Orders, more, err = s.ordersAsked(p, v.Text, filter); err != nil {
		return err
	}
	if more {
		v.Older = p.With("after", v.Orders[len(v.Orders)-1].ID)
	}
	isPeriod := v.From != "" || v.To != ""
	if v.Text != "" || !isPeriod && !v.IsFirst {
		return nil
	}

	if v.IsFirst {
		now := s.db.now().Time().In(wib)
		v.Today = now.Format(time.DateOnly)
		v.MonthBegin = now.Format("2006-01") + "-01"
		filter.CreatedMin, _ = dayOf(v.Today) // It is one.
	}
	v.Sum, err = searching(s, p, func() (Revenue, error) { return s.db.SumOfOrders(p.Context(), p.Store.ID, filter) })
	return err
}

// readFirstSteps reads what a new store still lacks, and which endpoints fail.
func (s *server) readFirstSteps(p *page, v *deskPage, methods []Method) error {
	products, _, err := s.db.Entries(p.Context(), p.Store.ID, EntryFilter{Limit: 1, Drafts: true})
	if err != nil {
		return err
	}
	options, err := s.db.ShippingOptions(p.Context(), p.Store.ID)
	if err != nil {
		return err
	}
	endpoints, err := s.db.Endpoints(p.Context(), p.Store.ID)
	if err != nil {
		return err
	}

	hasPhone := false
	for _, e := range endpoints {
		hasPhone = hasPhone || e.Kind == Phone
		if e.OffReason == "gone" || e.Active && e.Fails {
			v.Failing = append(v.Failing, e)
		}
	}
	isUsable := func(m Method) bool { return m.usable(p.Store, -1) }
	sells := len(v.Orders) >= manyOrders
	v.Steps = firstSteps{
		Product: len(products) > 0, Method: slices.ContainsFunc(methods, isUsable), Contact: p.Store.Contact != "",
		Shipping: sells || len(options) > 0, Shop: sells || p.Store.Shop != ShopOff, Phone: hasPhone,
		Order: len(v.Orders) > 0,
	}
	v.HasSteps = v.Steps != firstSteps{true, true, true, true, true, true, true}
	return nil
}

// readWaiting reads the orders that wait for their owner.
func (s *server) readWaiting(p *page, v *deskPage) error {
	rows, err := s.db.Desk(p.Context(), p.Store.ID, mostWaiting)
	if err != nil {
		return err
	}
	v.IsMore = len(rows) == mostWaiting
	for _, o := range rows {
		w, err := s.whyWaiting(p.Context(), o)
		if err != nil {
			return err
		}
		v.Waiting = append(v.Waiting, w)
	}

	if v.ToHandOver, err = s.readToHandOver(p, mostToHandOver+1); err != nil {
		return err
	}
	if v.IsMoreToDo = len(v.ToHandOver) > mostToHandOver; v.IsMoreToDo {
		v.ToHandOver = v.ToHandOver[:mostToHandOver]
	}
	v.OnTheirWay, err = searching(s, p, func() (Revenue, error) { return s.db.CashUnderWay(p.Context(), p.Store.ID) })
	return err
}

// phoneWords returns what an owner's phone shows of an event. The state and the amount come first, and the buyer's name
// last and cut, so that no name can look like a state. It has no id, telephone number or note.
func phoneWords(lang string, event EventName, order []byte) (title, text string) {
	var o Order
	json.Unmarshal(order, &o) // A ping has none.
	l := language(lang)
	title = l.say("phone."+string(event), "{amount}", rupiah(o.Amount))
	if o.Test {
		title += " (" + l.say("phone.test") + ")"
	}
	text = fmt.Sprintf("%.40s", o.Buyer.Name)
	return title, cmp.Or(text, title)
}
