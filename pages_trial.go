package main

// This file has the page on which an owner tries a gateway: with a sandbox key, a test order leads to the gateway's
// page, and what came of it is said step by step, as a text to copy. Nobody but an owner with an account can know some
// of it.

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// startTrial makes a test order of the least amount that all channels of a gateway take.
func (s *server) startTrial(p *page) error {
	provider := Provider(p.PostFormValue("provider"))
	keys, err := gatewayKeys(p.Context(), s.db, p.Store.ID, provider, "")
	if err != nil {
		return err
	}
	if len(keys) == 0 || keys[0].ReplacedAt > 0 || keys[0].Mode != ModeSandbox {
		return ErrNotFound
	}

	goods := NewItem{Kind: Custom, Quantity: 1, Title: p.Language.word("trial", "goods"), Price: provider.leastOfAll()}
	created, err := s.db.CreateOrder(p.Context(), p.Store, NewOrder{
		Buyer:  Buyer{Name: "Uji coba", Email: p.Store.OwnerEmail},
		Items:  []NewItem{goods},
		Source: FromOwner,
		Trial:  &Method{Code: string(provider), Provider: provider, Channel: "gateway", Test: true},
	})
	p.next = "/dashboard/payments/trial?order=" + url.QueryEscape(created.ID)
	return err
}

// trialPage has a test order that tries a gateway.
type trialPage struct {
	*page
	Order Order
	Steps []trialStep
	Text  string // the steps, to copy
}

// trialStep is what came of one step.
type trialStep struct {
	Name, Said string
	IsDone     bool
}

func (s *server) readTrial(p *page) (any, error) {
	o, err := readOrder(p.Context(), s.db, p.Store.ID, p.Query("order"))
	if err != nil {
		return nil, err
	}
	if !o.Order.Test || o.Order.PaymentProvider == Sandbox {
		return nil, ErrNotFound
	}

	v := trialPage{page: p, Order: o.Order, Steps: p.Language.trialSteps(o)}
	provider := o.Order.PaymentProvider
	lines := []string{fmt.Sprintf("storeorder, %s, %s, %s", p.Language.word("provider", provider),
		p.Language.dates("2 Jan 2006, 15:04 WIB")(s.db.now()), rupiah(o.Order.Amount))}
	for i, step := range v.Steps {
		lines = append(lines, fmt.Sprintf("%d. %s: %s", i+1, step.Name, step.Said))
	}
	lines = append(lines, p.Language.word("status", o.Order.Status),
		p.Language.word("trial.unknown", provider))
	v.Text = strings.Join(lines, "\n")
	return v, nil
}

// trialSteps says what came of each step: the page, a notification, the status, and the closing of the page.
func (l language) trialSteps(o OrderRow) []trialStep {
	var s PaymentSession
	if len(o.Sessions) > 0 {
		s = o.Sessions[0]
	}
	var payments []string
	for _, payment := range o.Book.Payments {
		payments = append(payments, payment.ID+" "+l.word("payment", payment.State)+" "+rupiah(payment.Amount))
	}

	page, notified, asked, closed := "none", "none", "none", "none"
	switch {
	case s.URL != "":
		page = "made"
	case s.Problem != "":
		page = s.Problem
	}
	if s.Notified > 0 {
		notified = "some"
	}
	switch {
	case s.URL != "" && s.Problem != "":
		asked = "problem"
	case len(payments) > 0:
		asked = "some"
	}
	switch {
	case s.Closed:
		closed = "yes"
	case o.Book.Status != Pending && s.Seen:
		closed = "no"
	}

	step := func(name, outcome string, values ...string) trialStep {
		isDone := outcome == "made" || outcome == "some" || outcome == "yes"
		return trialStep{l.word("trial", name), l.say("trial."+name+"."+outcome, values...), isDone}
	}
	return []trialStep{
		step("page", page, "{time}", l.dates("2 Jan 2006, 15:04 WIB")(s.ExpiresAt), "{words}", s.Words),
		step("notified", notified, "{n}", fmt.Sprint(s.Notified)),
		step("asked", asked, "{payments}", strings.Join(payments, ", "),
			"{words}", cmp.Or(s.Words, l.word("gateway", s.Problem))),
		step("closed", closed),
	}
}

// closeTrial cancels the order of a trial, so that its page is closed, and asks the gateway about it.
func (s *server) closeTrial(p *page) error {
	id := p.Query("order")
	_, err := s.payments.Decide(p.Context(), p.Store.ID, id, Cancel, ActorOwner, Note{Code: NoteInDashboard}, "")
	if err != nil && !isRefused(err, WrongState) {
		return err
	}
	return s.checkTrial(p)
}

// checkTrial asks the gateway about the pages of a trial.
func (s *server) checkTrial(p *page) error { return s.checkNow(p, p.Query("order")) }

// gatewayLine is a gateway, with what was seen to work.
type gatewayLine struct {
	Provider
	HasKey      bool
	Mode        Mode
	Webhook     string // the address for its notifications
	IsReachable bool   // The gateway can reach that address.
	Paged       string // how long ago it made a page; "" = never
	Notified    string // how long ago a notification came; "" = never
}

// gatewayLines lists the gateways, with the keys in use.
func (s *server) gatewayLines(p *page) (lines []gatewayLine, err error) {
	keys, err := gatewayKeys(p.Context(), s.db, p.Store.ID, "", "")
	if err != nil {
		return nil, err
	}
	for _, provider := range []Provider{Midtrans, Xendit} {
		line := gatewayLine{
			Provider:    provider,
			Webhook:     fmt.Sprintf("%s/notifications/%s/%s", p.Home, provider, p.Store.ID),
			IsReachable: unreachable(p.Store.URL) == "",
		}
		i := slices.IndexFunc(keys, func(k GatewayKey) bool { return k.Provider == provider })
		if i >= 0 {
			line.HasKey = true
			line.Mode = keys[i].Mode
			line.Paged = p.Language.ago(s.db.now(), keys[i].PagedAt)
			line.Notified = p.Language.ago(s.db.now(), keys[i].NotifiedAt)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// ago says how long ago something happened, "" for never.
func (l language) ago(now, at Time) string {
	minutes := int64(now.Sub(at).Minutes())
	switch {
	case at == 0:
		return ""
	case minutes < 60:
		return l.say("ago.minutes", "{n}", fmt.Sprint(max(minutes, 1)))
	case minutes < 48*60:
		return l.say("ago.hours", "{n}", fmt.Sprint(minutes/60))
	}
	return l.say("ago.days", "{n}", fmt.Sprint(minutes/60/24))
}
