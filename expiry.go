//go:build cgo

package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// expireOrders expires the pending orders whose time is over and that no payment session keeps waiting:
// manual ones, and those whose sessions never started or have ended. While a session may still hold money,
// its gateway is asked instead, and its answer expires the order: see finishCheck.
func (p *payments) expireOrders(ctx context.Context) {
	const batch = 100
	var failed atomic.Bool
	// One that failed would be found again at once, and so would all while the clock may be wrong: see expireIfClear.
	for ctx.Err() == nil && !failed.Load() && p.db.clockTrusted() {
		due, err := p.db.DueOrders(batch)
		if err != nil {
			p.log.Error("cannot look for orders to expire", "error", err)
		}

		// Eight at a time share a commit. Each is a write of its own: one that cannot be changed holds up no
		// other.
		for group := range slices.Chunk(due, 8) {
			if ctx.Err() != nil || failed.Load() {
				return
			}
			var writes sync.WaitGroup
			for _, id := range group {
				writes.Go(func() {
					if !p.expireOrder(ctx, id) {
						failed.Store(true)
					}
				})
			}
			writes.Wait()
		}

		if len(due) > 0 {
			p.wakeWebhooks()
		}
		if len(due) < batch {
			return
		}
	}
}

// expireOrder reports whether an order needs no further attempt to expire it.
func (p *payments) expireOrder(ctx context.Context, id string) bool {
	err := p.db.ExpireOrder(context.WithoutCancel(ctx), id)
	if err != nil {
		p.log.Error("cannot expire an order", "order", p.db.referenceOf(id), "error", err)
	}
	return err == nil
}

// releaseUndecided releases the stock of orders that nobody has decided about: see ReleaseUndecided.
func (p *payments) releaseUndecided(ctx context.Context) {
	const batch = 100
	for ctx.Err() == nil && p.db.clockTrusted() {
		due, err := p.db.UndecidedOrders(batch)
		if err != nil {
			p.log.Error("cannot look for orders whose stock is to be released", "error", err)
		}

		for _, id := range due {
			err := p.db.ReleaseUndecided(context.WithoutCancel(ctx), id)
			if err != nil {
				p.log.Error("cannot release an order's stock", "order", p.db.referenceOf(id), "error", err)
				return
			}
		}
		if len(due) < batch {
			return
		}
	}
}
