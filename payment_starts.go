package main

// This file is about what people start at a gateway. A buyer, or a shop's program, wants a page for paying an order: a
// session is written, its page is requested, and the result is recorded. An owner decides about a payment that the
// gateway holds. Each of them may have an order checked at once.

import (
	"context"
	"errors"
	"slices"
)

// OrderWithSession reads an order of a store, without decoding its JSON, and its payment session. With start, it also
// starts a session if the order can be paid at a gateway and has no page. If another call does that already, it waits
// for it.
func (p *payments) OrderWithSession(
	ctx context.Context, st Store, orderID string, start bool,
) (OrderRow, SessionView, error) {
	// The read is short: to watch whether the client leaves would cost more than it saves.
	unwatched := context.WithoutCancel(ctx)
	o, err := readOrderRow(unwatched, p.db, sqlOrderOfStore, orderID, st.ID)
	if err != nil || !start || !o.needsPage(p.db.now()) {
		return o, o.view(st, p.db.now()), err
	}

	err = p.startPage(ctx, st, orderID)
	if err != nil && !errors.Is(err, ErrUnavailable) { // The order can be shown even if nothing can be written.
		return o, o.view(st, p.db.now()), err
	}
	o, err = readOrderRow(unwatched, p.db, sqlOrderOfStore, orderID, st.ID)
	return o, o.view(st, p.db.now()), err
}

// startPage gets a page for an order from its gateway. If the gateway gives none, the session says why, and there is no
// error. The call goes on even if the client leaves, so that the result is known.
func (p *payments) startPage(ctx context.Context, st Store, orderID string) error {
	wait, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	unlock, err := p.lock(wait, orderID)
	if err != nil {
		return nil // The order shows its present state.
	}
	defer unlock()

	ctx = context.WithoutCancel(ctx)
	call, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	for range 3 { // Each reference may be taken: a restored backup does not know the latest pages.
		c, err := p.beginSession(ctx, st, orderID)
		if err != nil || c.key.Provider == "" { // There is nothing to do, or no key for it.
			return err
		}

		s := c.Session
		page, failed := p.gateways.open(c.key).create(call, c)
		if failed == nil && (page.URL == "" || page.ID == "") {
			failed = errNotUnderstood
		}
		if failed != nil {
			p.db.log.Warn("a gateway started no payment session",
				"provider", s.Provider, "store", st.ID, "error", failed)
		}

		o, err := p.recordPage(withoutPlaces(ctx), st.ID, s, page, failed)
		if err != nil {
			return err
		}

		// A notification may have come before the page's address. A buyer who has paid on a taken page needs no other.
		s = *o.session(s.Number)
		isTaken := errors.Is(failed, errTaken)
		if s.Notified > 0 || isTaken {
			p.checkSession(call, o, s) // On failure the session stays due.
		}
		if !isTaken {
			return nil
		}
	}
	return nil
}

// beginSession writes the order's latest session before its page is requested, and returns what the page is created
// from. The row of a start without a page is reused for the next one, after half a minute. If there is nothing to do,
// or no key for it, the key of the checkout has no provider.
func (p *payments) beginSession(ctx context.Context, st Store, orderID string) (checkout, error) {
	c := checkout{Store: st}
	_, err := p.db.changeOrder(ctx, st.ID, orderID, func(tx *Tx, o *OrderRow) error {
		if !o.needsPage(tx.now) {
			return nil
		}

		if len(o.Sessions) == 0 {
			o.addSession(tx, 1)
		} else if latest := o.Sessions[0]; latest.phase(*o, tx.now) != pageRequested {
			o.addSession(tx, latest.Number+1)
		}

		s := &o.Sessions[0]
		if wait := s.DueAt.Sub(tx.now); 0 < wait && wait <= tryAgain {
			return nil
		}

		keys, err := gatewayKeys(tx, tx, o.StoreID, s.Provider, "")
		if err != nil {
			return err
		}
		for _, k := range keys {
			if k.opensPagesOf(*o) {
				c.key = k
			}
		}

		s.KeyID = c.key.ID
		s.DueAt = tx.now.Add(tryAgain)
		if c.key.Provider == "" {
			s.Problem = "refused"
		}

		method, found := tx.method(o.StoreID, s.Method)
		if !found { // The method was removed, so its page offers everything.
			method = Method{Code: s.Method, Provider: s.Provider}
		}
		c.channels = method.channelNames(st)
		c.Session = *s
		c.Order = o.Order
		return nil
	})
	return c, err
}

// recordPage records the result of requesting a page.
func (p *payments) recordPage(
	ctx context.Context, storeID string, sent PaymentSession, page Page, failed error,
) (OrderRow, error) {
	return p.db.changeOrder(ctx, storeID, sent.OrderID, func(tx *Tx, o *OrderRow) error {
		s := o.session(sent.Number)
		s.Problem, s.Words = problemOf(failed)
		switch {
		case failed == nil:
			s.Seen = true
			s.GatewayID = page.ID
			s.URL = page.URL
			s.DueAt = tx.now.Add(firstCheck)
			s.ExpiresAt = page.Expires
			tx.exec("UPDATE gateway_keys SET paged_at = ? WHERE id = ?", tx.now, s.KeyID)
		case errors.Is(failed, errTaken): // Somebody may have such a page, so it is checked and closed.
			s.Seen = true
			s.NotOffered = true
			s.DueAt = tx.now
		}
		return nil
	})
}

// Decide performs an act of the owner. A held payment is accepted or denied at the gateway first, and the order is paid
// once the gateway says so. If the buyer has reported a transfer, the owner approves the transfer. seen is the order's
// State as the owner saw it, or "". If the order has changed since, the act is refused before any gateway is told.
// Refusals are WrongState, GatewayRefused with the gateway's words, and Unavailable.
func (p *payments) Decide(
	ctx context.Context, storeID, orderID string, act Act, actor Actor, n Note, seen string,
) (OrderRow, error) {
	o, err := readOrder(ctx, p.db, storeID, orderID)
	if err != nil {
		return o, err
	}
	if !o.decidesHeld(act) {
		return p.db.changeOrder(ctx, storeID, orderID, func(_ *Tx, o *OrderRow) error {
			return o.decide(act, actor, n, seen)
		})
	}

	settled, err := p.decideHeld(ctx, storeID, orderID, act, seen)
	if err != nil {
		return o, err
	}
	ctx = withoutPlaces(ctx)
	o, err = p.db.changeOrder(ctx, storeID, orderID, func(_ *Tx, o *OrderRow) error {
		if act != Approve {
			return o.decide(act, actor, n, seen)
		}
		o.note(actor, n)
		if settled != nil { // It has arrived by the owner's word.
			arrived := Payment{ID: settled.ID, State: Arrived, Amount: settled.Amount}
			o.enterInBook(o.session(settled.SessionNumber), []Payment{arrived})
		}
		return nil
	})
	if err != nil || act != Approve {
		return o, err
	}
	p.CheckNow(ctx, storeID, orderID) // If that fails, the next check will show the result.
	return readOrder(ctx, p.db, storeID, orderID)
}

// decidesHeld reports whether an act of the owner is about a payment that a gateway holds. An act that decide refuses
// is not.
func (o OrderRow) decidesHeld(act Act) bool {
	isTransfer := act == Approve && o.Book.Reported
	mayDecide := o.Book.Status == AwaitingVerification && slices.Contains(decisions[act].from, AwaitingVerification)
	return mayDecide && o.Book.has(Held) && !isTransfer
}

// decideHeld accepts one held payment of an order at its gateway, or denies all of them, provided that the order is
// still as the owner saw it. If the gateway left the acceptance to the owner, it returns that payment.
func (p *payments) decideHeld(
	ctx context.Context, storeID, orderID string, act Act, seen string,
) (settled *Payment, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	unlock, err := p.lock(ctx, orderID)
	if err != nil {
		return nil, refuse(Unavailable)
	}
	defer unlock()

	o, err := readOrder(ctx, p.db, storeID, orderID)
	if err != nil {
		return nil, err
	}
	if seen != "" && seen != o.State() || !o.decidesHeld(act) {
		return nil, o.wrongState()
	}

	for _, held := range o.Book.Payments {
		if held.State != Held {
			continue
		}

		s := *o.session(held.SessionNumber)
		keys, err := gatewayKeys(ctx, p.db, storeID, s.Provider, s.KeyID)
		if err != nil {
			return nil, err
		}
		isSettled, err := p.gateways.open(keys[0]).decidePayment(ctx, s, held.ID, act == Approve)
		if err != nil && !isRefused(err, GatewayRefused) {
			return nil, refuse(Unavailable)
		}
		if isSettled {
			settled = &held
		}
		if err != nil || act == Approve { // One accepted payment is enough: the next check closes the other pages.
			return settled, err
		}
	}
	return nil, nil
}

// CheckNow checks all sessions of an order of a store, and waits for the answers.
func (p *payments) CheckNow(ctx context.Context, storeID, orderID string) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	answered, err = p.checkOrder(ctx, storeID, orderID, true)
	if ctx.Err() != nil {
		err = nil
	}
	return answered, err
}
