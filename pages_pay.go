package main

// This file has the pages that need no sign-in: a buyer's pay page and the sandbox's page.

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// admitBuyer lets in whoever has the address of an order's pay page.
func (s *server) admitBuyer(p *page) error { return s.admitTo(p, p.PathValue("id")) }

// admitToSandbox lets in the buyer of an order that the sandbox can pay.
func (s *server) admitToSandbox(p *page) error {
	id, err := s.db.SandboxOrder(p.Context(), p.PathValue("id"))
	if err == nil {
		err = s.admitTo(p, id)
	}
	if err == nil && !p.Store.TestMode {
		err = ErrNotFound
	}
	return err
}

// admitTo lets the buyer of an order in. Their pages are on every host but another store's, so that links
// still work after a store's domain changes.
func (s *server) admitTo(p *page, orderID string) (err error) {
	if p.Order, err = readOrderOfAnyStore(p.Context(), s.db, strings.ToLower(orderID)); err != nil {
		return err
	}
	if err := s.auth.payLimiter.take(p.Order.ID).err; err != nil { // Made-up addresses have no bucket.
		return err
	}
	if p.Store, err = s.db.StoreOf(p.Context(), "store", p.Order.StoreID); err != nil {
		return err
	}

	logStore(p.w, p.Store.ID)
	p.Request = p.WithContext(s.auth.boundWrites(p.Context(), p.Store.ID, "buyer writes"))
	if other, err := s.db.StoreAt(p.Context(), p.Host); err == nil && other.ID != p.Store.ID {
		return ErrNotFound
	}

	p.ChosenMethod, err = p.MethodOf(p.Order.Order.PaymentMethod)
	return err
}

const (
	mostLooks  = 10              // times that the page looks again; pay.html knows the number too
	buyerWaits = 4 * time.Second // for a gateway's answer
)

// checkOnReturn asks the gateway about a pending order whose buyer comes back from there, or about which a
// notification claims that money came. While somebody else is asking, or if no answer comes, the page says
// that the gateway is being asked (past the order's end, that its time is over), and tries again.
func (s *server) checkOnReturn(p *page) error {
	looks, _ := strconv.Atoi(p.Query("back"))
	if p.Query("back") == "" && p.Order.isUnconfirmed() {
		looks = 1
	}
	if looks < 1 || !p.Order.Order.RequiresPayment {
		return nil
	}
	if !s.payments.isBusy(p.Order.ID) {
		ctx, cancel := context.WithTimeout(p.Context(), buyerWaits)
		defer cancel()
		answered, err := s.payments.CheckNow(ctx, p.Store.ID, p.Order.ID)
		if err == nil {
			err = s.admitTo(p, p.Order.ID) // to read it again
		}
		if err != nil || answered && !p.Order.isUnconfirmed() {
			return err
		}
	}

	p.Checking = looks
	if looks < mostLooks {
		p.w.Header().Set("Refresh", fmt.Sprintf("3; url=/pay/%s?back=%d", p.Order.ID, looks+1))
	}
	return nil
}

// actOfBuyer does what a button of the pay page says. If that comes too late, the page shows how things
// stand; if it comes from the page of another method, the page says that they have changed.
func (s *server) actOfBuyer(p *page) (err error) {
	p.next = "/pay/" + p.Order.ID
	act := p.PostFormValue("act")
	method := p.PostFormValue("method")
	switch {
	case act == "change":
		err = s.db.ChangeMethod(p.Context(), p.Store, p.Order.ID, method)
	case method != p.Order.Order.PaymentMethod:
		p.next += "?changed=1"
	case act == "claim":
		var said struct {
			Sender string `json:"sender" rule:"text 1..100 optional"`
			Bank   string `json:"bank" rule:"text 1..100 optional"`
		}
		if err = readForm(p.PostForm, &said); err == nil {
			err = s.db.ReportPayment(p.Context(), p.Order.ID, method, said.Sender, said.Bank)
		}
	case act == "unclaim":
		err = s.db.TakeBackReport(p.Context(), p.Order.ID)
	}

	if isRefused(err, WrongState) {
		return nil
	}
	return err
}

// InTime reports whether the buyer may still do something about the payment: the order has not come to its
// end.
func (p *page) InTime() bool { return p.DB.now() < p.Order.Order.ExpiresAt }

// goPay leads to the page where an order is paid, or back to the pay page, which says what is wrong. It is a
// GET because form-action allows no form that leads to a gateway. A preview (HEAD) starts nothing.
func (s *server) goPay(p *page) error {
	_, session, err := s.payments.OrderWithSession(p.Context(), p.Store, p.Order.ID, p.Method == http.MethodGet)
	p.next = session.PaymentURL
	return err
}

func (s *server) actInSandbox(p *page) error {
	p.next = "/pay/" + p.Order.ID + "?back=1"
	return s.db.ActInSandbox(p.Context(), p.PathValue("id"), p.PostFormValue("act"))
}
