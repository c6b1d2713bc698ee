//go:build cgo

package main

import (
	"context"
	"time"
)

// This file deletes what is too old to be needed, in small writes beside those of orders. Orders, their history
// and their payment sessions are kept for good.

// How long events, deliveries and notifications are kept. Events are kept longer than an Idempotency-Key, whose
// replay reads one, and than a delivery is retried.
const (
	defaultKeepEvents = 90 * 24 * time.Hour
	leastKeepEvents   = 7 * 24 * time.Hour
	mostKeepEvents    = 10 * 365 * 24 * time.Hour
)

// keepEventsFlag defines the flag for how long events, deliveries and notifications are kept. It is valid after
// checkKeepEvents.
func (c *cli) keepEventsFlag(keep *time.Duration) {
	c.DurationVar(keep, "keep-events", defaultKeepEvents,
		"delete events, finished deliveries and gateways' decided notifications after this `time`")
}

func checkKeepEvents(keep time.Duration) error {
	if keep < leastKeepEvents || keep > mostKeepEvents {
		return usagef("-keep-events must be 168h (7 days) to 87600h (10 years)")
	}
	return nil
}

// oldRows walks through the rows of a table that are older than they are kept, the oldest first, and deletes
// those that nothing waits for.
//
// It finds them by their rows, whose numbers begin with the time of their creation, so no order pays for an index. A
// row that something waits for stays and is not looked at again before the next walk, a day later: an endpoint that
// has been off for a year may have millions of them.
type oldRows struct {
	find   string   // the next rows between two, in order, each with whether it can go
	remove []string // of rows, if they can still go
	last   int64    // the last row that the walk has come to
	begun  time.Time
}

// walkEvery is how often a walk begins anew at the oldest row.
const walkEvery = 24 * time.Hour

// newOldRows returns the walks in the order in which they are to be made: a delivery goes before its event.
func newOldRows() []*oldRows {
	return []*oldRows{
		{find: sqlOldDeliveries, remove: []string{sqlRemoveDeliveries}},
		{find: sqlOldEvents, remove: []string{sqlKeepSequences, sqlRemoveEvents}},
		{find: sqlOldNotifications, remove: []string{sqlRemoveNotifications}},
	}
}

// The newest event stays: the service compares the clock with it when it starts.
const (
	sqlOldDeliveries = `
		SELECT row, next_at IS NULL
		FROM   deliveries
		WHERE  row > ? AND row < ?
		ORDER BY row LIMIT +?`
	sqlOldEvents = `
		SELECT row, NOT EXISTS (SELECT 1 FROM deliveries WHERE event_row = v.row)
		FROM   events v
		WHERE  row > ? AND row < min(?, (SELECT max(row) FROM events))
		ORDER BY row LIMIT +?`
	sqlOldNotifications = `
		SELECT row, decided_at IS NOT NULL
		FROM   notifications
		WHERE  row > ? AND row < ?
		ORDER BY row LIMIT +?`
)

// What is removed is chosen outside of the writes, so each statement asks again whether it can go.
const (
	sqlRemoveDeliveries = `
		DELETE FROM deliveries
		WHERE  row IN (SELECT value FROM json_each(?)) AND next_at IS NULL`
	sqlRemoveEvents = `
		DELETE FROM events
		WHERE  row IN (SELECT value FROM json_each(?))
		AND    NOT EXISTS (SELECT 1 FROM deliveries WHERE event_row = events.row)`
	sqlRemoveNotifications = `
		DELETE FROM notifications
		WHERE  row IN (SELECT value FROM json_each(?)) AND decided_at IS NOT NULL`

	// sqlKeepSequences notes in the orders how far the sequence of their events has come, so that a later event
	// gets no number again.
	sqlKeepSequences = `
		UPDATE orders
		SET    purged_sequence = max(
		           purged_sequence,
		           (SELECT max(sequence) FROM events WHERE order_row = orders.row))
		WHERE  row IN (SELECT order_row FROM events WHERE row IN (SELECT value FROM json_each(?)))`
)

const (
	walkRows  = 1000          // rows of a table that are looked at for one write
	purgeRows = batchRows / 2 // rows that it deletes: each event may change its order's row too
)

// oldRow is a row that a walk has come to.
type oldRow struct {
	row   int64
	canGo bool
}

func scanOldRow(r row) (o oldRow, err error) {
	err = r.Scan(&o.row, &o.canGo)
	return o, err
}

// PurgeOld deletes some rows of a table that were created before a time, purgeRows at most. done says that the
// walk through the table has come to its end.
func (db *DB) PurgeOld(ctx context.Context, w *oldRows, before Time) (done bool, err error) {
	if time.Since(w.begun) >= walkEvery {
		w.begun = time.Now()
		w.last = 0
	}
	found, err := queryAll(db.reader, scanOldRow, w.find, w.last, firstRow(before), walkRows)
	if err != nil {
		return false, err
	}
	if len(found) == 0 {
		return true, nil
	}

	var last int64
	var old []int64
	for _, r := range found {
		last = r.row
		if r.canGo {
			old = append(old, r.row)
		}
		if len(old) == purgeRows {
			break
		}
	}

	if len(old) > 0 {
		if err := db.write(ctx, func(tx *Tx) error { return tx.removeOld(w, old) }); err != nil {
			return false, err
		}
	}
	w.last = last
	return false, nil
}

func (tx *Tx) removeOld(w *oldRows, old []int64) error {
	list := string(mustJSON(old))
	for _, statement := range w.remove {
		if _, err := tx.exec(statement, list); err != nil {
			return err
		}
	}
	return nil
}

// purge deletes what nobody needs any more, in small writes: at once, then every 30 s and when it is
// woken, until ctx ends. It is apart from sweep, because it may have millions of rows to delete.
func (s *server) purge(ctx context.Context) {
	tick := s.db.env.tick(30 * time.Second)

	for {
		s.purgeAll(ctx, s.purgeIdempotencyKeys)
		s.purgeAll(ctx, s.db.PurgeEndpoints)
		for _, w := range s.old {
			s.purgeAll(ctx, func(ctx context.Context) (bool, error) { return s.purgeOld(ctx, w) })
		}

		select {
		case <-tick:
		case <-s.purging:
		case <-ctx.Done():
			return
		}
	}
}

// purgeAll calls a function until it has deleted all. Half of the time, the database is for others.
func (s *server) purgeAll(ctx context.Context, purgeSome func(context.Context) (done bool, err error)) {
	for ctx.Err() == nil {
		begun := time.Now()
		done, err := purgeSome(ctx)
		s.logSweepError(ctx, err)
		if err != nil || done {
			return
		}
		select {
		case <-time.After(time.Since(begun)):
		case <-ctx.Done():
		}
	}
}

// purgeIdempotencyKeys deletes some of the keys that are too old to be replayed, unless the clock may be wrong.
func (s *server) purgeIdempotencyKeys(ctx context.Context) (done bool, err error) {
	if !s.db.clockTrusted() {
		return true, nil
	}
	deleted, err := s.db.PurgeIdempotencyKeys(ctx, batchRows)
	return deleted < batchRows, err
}

// purgeOld deletes some of the rows that are kept for keepEvents, unless the clock may be wrong.
func (s *server) purgeOld(ctx context.Context, w *oldRows) (done bool, err error) {
	if !s.db.clockTrusted() {
		return true, nil
	}
	return s.db.PurgeOld(ctx, w, s.db.Now().Add(-s.keepEvents))
}

// oldCounts is how many rows of each table the service would delete.
type oldCounts struct {
	Events        int64 `json:"events"`
	Deliveries    int64 `json:"deliveries"`
	Notifications int64 `json:"notifications"`
}

// sqlCountOld counts what is before a row and can go. An event can go when all of its deliveries can, or are
// gone.
const sqlCountOld = `
	SELECT (SELECT count(*)
	        FROM   events v
	        WHERE  row < min(?1, (SELECT max(row) FROM events))
	        AND    NOT EXISTS (
	                   SELECT 1 FROM deliveries
	                   WHERE  event_row = v.row AND (next_at IS NOT NULL OR row >= ?1))),
	       (SELECT count(*) FROM deliveries    WHERE row < ?1 AND next_at IS NULL),
	       (SELECT count(*) FROM notifications WHERE row < ?1 AND decided_at IS NOT NULL)`

func scanOldCounts(r row) (n oldCounts, err error) {
	err = r.Scan(&n.Events, &n.Deliveries, &n.Notifications)
	return n, err
}
