//go:build cgo

package main

import (
	"context"
	"net/http"
	"slices"
)

// orderPage is one order and what its owner can do about it.
type orderPage struct {
	frame
	OrderDetails
	Acts       []Transition
	Confirming Provider // see confirming
	OtherSum   bool     // see otherSum
	Back       string   // the list that the owner comes from
}

// PayLink is the address of the order's pay page.
func (p orderPage) PayLink() string { return p.Store.payPage(p.ID) }

// ownerActs are the owner's transitions. Each is the last part of its page's path.
var ownerActs = []Transition{OwnerApproves, OwnerRejects, OwnerCancels, OwnerRefunds}

// actResolve is the last part of the path at which an owner says that they have dealt with an order's alerts.
const actResolve = "resolve"

// possibleActs returns what the owner can do now. A payment that they have approved is not approved again while the
// gateway has not confirmed it.
func (d OrderDetails) possibleActs() (acts []Transition) {
	for _, act := range ownerActs {
		if act == OwnerApproves && d.confirming() != "" {
			continue
		}
		if act.possible(d.Status) {
			acts = append(acts, act)
		}
	}
	return acts
}

// held returns the session whose payment the gateway holds until the owner has accepted or denied it, if there is
// one.
func (d OrderDetails) held() (s PaymentSession, ok bool) {
	i := slices.IndexFunc(d.Sessions, func(s PaymentSession) bool {
		return s.State != SessionPaid && s.GatewayState == StateChallenged
	})
	if i < 0 || d.Status == Pending || !OwnerApproves.possible(d.Status) {
		return s, false
	}
	return d.Sessions[i], true
}

// confirming returns the gateway that has not confirmed yet what the owner has approved; empty if none is awaited.
func (d OrderDetails) confirming() Provider {
	s, ok := d.held()
	if !ok || !s.Approved {
		return ""
	}
	return s.Provider
}

// otherSum reports whether the order waits for the owner because another amount than its own has arrived.
func (d OrderDetails) otherSum() bool {
	return d.Status == AwaitingVerification && slices.ContainsFunc(d.Alerts, func(a Alert) bool {
		return a.Code == AlertUnderpaid || a.Code == AlertOverpaid
	})
}

// orderDetails reads the order that a page is about.
func (s *server) orderDetails(r *http.Request, st StoreProfile) (OrderDetails, error) {
	d, err := s.db.OrderDetails(st.ID, r.PathValue("order_id"))
	logged(r).order = d.PaymentReference
	return d, err
}

func (s *server) showOrder(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	d, err := s.orderDetails(r, st)
	if err != nil {
		return err
	}

	return render(w, r, http.StatusOK, "dash-order.html", orderPage{
		frame:        newFrame(r, st, "orders"),
		OrderDetails: d,
		Acts:         d.possibleActs(),
		Confirming:   d.confirming(),
		OtherSum:     d.otherSum(),
		Back:         ownPath(r.URL.Query().Get("back"), "/dashboard"),
	})
}

// actOnOrder performs a transition of the owner, or records that they have dealt with the order's alerts. By GET it
// asks first. It refuses if the order is no longer in the state that the question spoke of.
func (s *server) actOnOrder(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	id, act := r.PathValue("order_id"), Transition(r.PathValue("act"))
	resolving := act == actResolve
	if !resolving && !slices.Contains(ownerActs, act) {
		return errNotFound
	}
	d, err := s.orderDetails(r, st)
	if err != nil {
		return err
	}

	back := "/dashboard/orders/" + id
	posted := r.Method == http.MethodPost
	possible := slices.Contains(d.possibleActs(), act)
	if resolving {
		possible = len(d.Alerts) > 0
	}
	if !possible || posted && r.PostForm.Get("status") != string(d.Status) {
		return done(w, r, back, "changed")
	}

	reason := text(r.PostForm, "reason")
	var faults formFaults
	if reason != "" {
		faults = checkText("reason", reason, optional, 200)
	}
	if !posted || len(faults) > 0 {
		return s.askAboutOrder(w, r, st, d, filled{r.PostForm, faults})
	}

	err = s.doOnOrder(r.Context(), st.ID, id, act, reason)
	if isRefusal(err, codeOrderState) {
		return done(w, r, back, "changed")
	}
	if err != nil {
		return err
	}

	s.queue.wake()
	d, err = s.db.OrderDetails(st.ID, id)
	if err != nil {
		return err
	}
	if held, ok := d.held(); ok && !held.Approved && act == OwnerApproves {
		return done(w, r, back, "not_accepted")
	}
	return done(w, r, back, "saved")
}

// askAboutOrder says what an act on an order will do, and with which money.
func (s *server) askAboutOrder(
	w http.ResponseWriter, r *http.Request, st StoreProfile, d OrderDetails, form filled,
) error {
	arrived, err := s.db.ArrivedMoney(d.ID)
	if err != nil {
		return err
	}

	page := confirm{
		frame:   newFrame(r, st, "orders"),
		Act:     r.PathValue("act"),
		Order:   d.Order,
		Arrived: arrived,
		Back:    "/dashboard/orders/" + d.ID,
	}
	page.Form = form
	if held, ok := d.held(); ok {
		page.Held = held.Provider
	}
	return ask(w, r, page)
}

// doOnOrder does an act of the owner. A challenged payment that they approve is accepted at the gateway first.
func (s *server) doOnOrder(ctx context.Context, storeID, id string, act Transition, reason string) error {
	switch act {
	case actResolve:
		return s.db.ResolveAlerts(ctx, storeID, id, ownerNote(reason, NoteResolved))
	case OwnerApproves:
		_, err := s.payments.approveOrder(ctx, storeID, id, ownerNote(reason, NoteInDashboard))
		return err // Why the gateway has not accepted the payment is on the order's page.
	}

	_, err := s.db.Transition(ctx, storeID, id, act, ownerNote(reason, NoteInDashboard))
	s.payments.wake() // A page that can still be paid is closed at the gateway.
	return err
}

// ownerNote is the owner's reason, or the note for an act without one.
func ownerNote(reason string, otherwise NoteCode) Note {
	if reason == "" {
		return Note{Code: otherwise}
	}
	return Note{Code: NoteText, Text: reason}
}

// askGateway answers the button that asks the gateways about all sessions of an order. Their answers, and why there
// was none, are on the order's page.
func (s *server) askGateway(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	id := r.PathValue("order_id")
	d, err := s.orderDetails(r, st)
	if err != nil {
		return err
	}
	if len(d.Sessions) == 0 {
		return errNotFound
	}

	// All sessions together take no longer than one, because a person waits.
	ctx, cancel := context.WithTimeout(r.Context(), gatewayTimeout)
	defer cancel()
	checked, err := s.payments.checkOrder(ctx, id)

	back := "/dashboard/orders/" + id
	switch {
	case outOfService(err):
		return err
	case err != nil:
		return done(w, r, back, "no_answer")
	case len(checked) == 0: // Somebody else is asking.
		return done(w, r, back, "being_asked")
	}
	return done(w, r, back, "asked")
}
