//go:build cgo

package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// clockSlack is how far the machine's clock may move at once without being taken for wrong.
	clockSlack = time.Minute

	// clockHold is how long a clock that has jumped must go on evenly before it is believed.
	clockHold = 5 * time.Minute
)

// clock tells the time that everything in the database is written and decided by. It follows the machine's
// clock, but not its jumps: those of a wrong clock last a moment, and an order that has expired because of
// one stays expired.
//
// A jump is a difference of more than clockSlack between the machine's clock and the monotonic time, which
// nobody can set. The clock then goes on evenly, as if there had been none. A jump that holds for clockHold
// is believed: the machine was suspended, or its clock was wrong before. The time told goes back only then.
type clock struct {
	read func() (wall Time, elapsed time.Duration) // the machine's clock and the monotonic time

	mu      sync.Mutex
	log     *slog.Logger
	base    Time          // the time told when elapsed was 0
	last    Time          // the latest time told
	jump    time.Duration // how far the machine's clock has jumped; 0 = it has not
	jumpAt  time.Duration // elapsed when that was first seen
	doubted time.Duration // elapsed until which the clock is doubted because of what the database holds
}

// newClock returns a clock that believes what the machine's clock, wall, says now.
func newClock(wall func() time.Time) *clock {
	start := time.Now()
	c := &clock{log: slog.New(slog.DiscardHandler)}
	c.read = func() (Time, time.Duration) { return timeOf(wall()), time.Since(start) }
	c.base = timeOf(wall())
	return c
}

// now returns the time. It never returns an earlier one than before, unless a jump back has held.
func (c *clock) now() Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.observe()
}

// observe is now for a caller that holds c.mu.
func (c *clock) observe() Time {
	wall, elapsed := c.read()
	jump := wall.Sub(c.base.Add(elapsed))

	switch {
	case jump.Abs() <= clockSlack:
		if c.jump != 0 {
			c.log.Warn("the machine's clock is back where it was before its jump")
		}
		c.jump = 0
		c.base = c.base.Add(jump)

	case c.jump == 0 || (jump-c.jump).Abs() > clockSlack:
		c.jump = jump
		c.jumpAt = elapsed
		c.log.Warn("the machine's clock has jumped: until it has held for some minutes, nothing expires and "+
			"the time goes on as before. If the clock is wrong, correct it (timedatectl)",
			"by", jump.Round(time.Second).String(), "to", wall.String(), "hold", clockHold.String())

	case elapsed-c.jumpAt >= clockHold:
		c.log.Warn("the machine's clock has held since its jump: the service follows it",
			"by", jump.Round(time.Second).String(), "to", wall.String())
		c.base = c.base.Add(jump)
		c.jump = 0
		if jump < 0 {
			c.last = 0
		}
	}

	c.last = max(c.last, c.base.Add(elapsed))
	return c.last
}

// advance makes t the earliest time that is told from now on.
func (c *clock) advance(t Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, t)
}

// doubt has the clock not trusted for the time of clockHold.
func (c *clock) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, elapsed := c.read()
	c.doubted = elapsed + clockHold
}

// trusted reports whether what is done because of the time may be done for good.
func (c *clock) trusted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe()
	_, elapsed := c.read()
	return c.jump == 0 && elapsed >= c.doubted
}

func (c *clock) logTo(log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = log
}

// Now returns the time by the clock that writes use. A reader that compares the time with a column asks this
// clock, because the machine's may have jumped.
func (db *DB) Now() Time { return db.clock.now() }

// clockTrusted reports whether what cannot be undone may be done because of the time: to expire an order, to
// close a payment page, to delete what is old, to count a delivery's last attempt.
func (db *DB) clockTrusted() bool { return db.clock.trusted() }

// startQuietest is how long a running shop is usually without a new event. If it was longer, the clock is
// doubted at first, because it may have been set wrong while the machine was off.
const startQuietest = time.Hour

// startClock corrects what a wrong clock has left, unless the clock may be wrong now.
func (db *DB) startClock(ctx context.Context) error {
	if err := db.checkStartClock(); err != nil {
		return err
	}
	if !db.clockTrusted() {
		return nil // watch corrects it later.
	}
	return db.pullBackTimes(ctx)
}

// checkStartClock compares the clock with the newest event of the database, before the service begins. A
// clock that is behind it was set back, or was ahead before; one that is far after it may be ahead now.
func (db *DB) checkStartClock() error {
	newest, err := queryOne(db.reader, scanValue[Time], "SELECT created_at FROM events ORDER BY row DESC LIMIT 1")
	if err == errNotFound { // There is nothing yet that could expire.
		return nil
	}
	if err != nil {
		return err
	}

	now := db.Now()
	quiet := now.Sub(newest)
	if quiet < -clockSlack {
		db.log.Warn("the machine's clock is behind the newest event: until it has held for some minutes, "+
			"nothing expires. If it is wrong, correct it (timedatectl)",
			"now", now.String(), "newest_event", newest.String(), "hold", clockHold.String())
	}
	if quiet < -clockSlack || quiet > startQuietest {
		db.clock.doubt()
	}
	return nil
}

// The farthest times ahead that a right clock leads to.
const (
	// The last of retryDelays, as long as its spread and Retry-After can make it.
	farthestRetry = 58 * time.Hour

	// An order's time, the follow-ups after it, and giveUpAfter.
	farthestCheck = 22 * 24 * time.Hour
)

// pullBackTimes corrects the times that a wrong clock has left too far ahead: without that, deliveries and
// questions to gateways would wait, and sign-ins and old secrets would last, until the clock has caught up.
// What has happened keeps its time, and orders keep their end.
func (db *DB) pullBackTimes(ctx context.Context) error {
	corrected, err := writeResult(ctx, db, (*Tx).pullBackFew)
	for err == nil && ctx.Err() == nil {
		n, deliveryErr := writeResult(ctx, db, (*Tx).pullBackDeliveries)
		corrected += n
		err = deliveryErr
		if n == 0 {
			break
		}
	}

	if corrected > 0 {
		db.log.Warn("times that a wrong clock had left too far ahead were corrected", "rows", corrected)
	}
	return err
}

// pullBackFew corrects the times of all rows but deliveries, of which there may be very many.
func (tx *Tx) pullBackFew() (corrected int64, err error) {
	for _, query := range []string{
		`UPDATE payment_sessions
		 SET    next_check_at = min(next_check_at, ?1),
		        tried_at      = min(tried_at, ?1),
		        failing_since = min(failing_since, ?1),
		        leased_until  = iif(leased_until > ?3, 0, leased_until)
		 WHERE  next_check_at IS NOT NULL
		 AND    (next_check_at > ?5 OR tried_at > ?2 OR failing_since > ?2 OR leased_until > ?3)`,
		`UPDATE owner_sessions
		 SET    created_at = min(created_at, ?1), seen_at = min(seen_at, ?1)
		 WHERE  created_at > ?2 OR seen_at > ?2`,
		"UPDATE api_keys SET last_used_at = ?1 WHERE last_used_at > ?2",
		"UPDATE idempotency_keys SET created_at = ?1 WHERE created_at > ?2",
		"UPDATE endpoints SET old_secret_until = ?4 WHERE old_secret_until > ?4",
	} {
		n, err := tx.exec(query,
			tx.now,
			tx.now.Add(clockSlack),
			tx.now.Add(time.Hour),
			tx.now.Add(24*time.Hour),
			tx.now.Add(farthestCheck))
		if err != nil {
			return corrected, err
		}
		corrected += n
	}
	return corrected, nil
}

// pullBackDeliveries makes deliveries due that would wait longer than any schedule says, a thousand at a
// time.
func (tx *Tx) pullBackDeliveries() (corrected int64, err error) {
	return tx.exec(`
		UPDATE deliveries
		SET    next_at = ?1
		WHERE  row IN (
			SELECT d.row
			FROM   endpoints e
			JOIN   deliveries d ON d.endpoint_id = e.id
			WHERE  d.next_at > ?2
			LIMIT  1000)`, tx.now, tx.now.Add(farthestRetry))
}
