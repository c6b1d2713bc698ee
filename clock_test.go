//go:build cgo

package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// machineClock is a machine's clock that a test sets.
type machineClock struct {
	wall    Time
	elapsed time.Duration
}

func (m *machineClock) read() (Time, time.Duration) { return m.wall, m.elapsed }

// pass lets time go by.
func (m *machineClock) pass(d time.Duration) {
	m.wall = m.wall.Add(d)
	m.elapsed += d
}

// newMachineClock returns a clock of the service that follows m.
func newMachineClock() (m *machineClock, c *clock) {
	c = newClock(time.Now)
	m = &machineClock{wall: c.base}
	c.read = m.read
	return m, c
}

const (
	fourDays = 4 * 24 * time.Hour
	aYear    = 365 * 24 * time.Hour
)

func TestClockIgnoresAJumpThatEnds(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{aYear, fourDays, -fourDays, 2 * time.Minute} {
		t.Run(jump.String(), func(t *testing.T) {
			m, c := newMachineClock()
			start := c.now()

			m.wall = m.wall.Add(jump)
			for range 30 {
				m.pass(time.Second)
				c.now()
			}
			if got := c.now().Sub(start); got != 30*time.Second {
				t.Errorf("during the jump %v went by, want 30s", got)
			}
			if c.trusted() {
				t.Error("the clock is trusted during the jump")
			}

			m.wall = m.wall.Add(-jump)
			m.pass(time.Second)
			if got := c.now().Sub(start); got != 31*time.Second {
				t.Errorf("after the jump %v went by, want 31s", got)
			}
			if !c.trusted() {
				t.Error("the clock is not trusted after the jump")
			}
		})
	}
}

func TestClockBelievesAJumpThatHolds(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{aYear, -fourDays} {
		t.Run(jump.String(), func(t *testing.T) {
			m, c := newMachineClock()
			m.wall = m.wall.Add(jump)
			c.now()

			m.pass(clockHold - time.Second)
			if c.trusted() {
				t.Error("the clock is trusted too early")
			}
			m.pass(time.Second)
			if got := c.now(); got != m.wall {
				t.Errorf("the time is %s, want the machine's %s", got, m.wall)
			}
			if !c.trusted() {
				t.Error("the clock is not trusted although it has held")
			}
		})
	}
}

func TestClockFollowsSmallCorrections(t *testing.T) {
	t.Parallel()
	m, c := newMachineClock()
	m.wall = m.wall.Add(50 * time.Second)
	ahead := c.now()
	if ahead != m.wall {
		t.Errorf("50 s ahead, the time is %s, want %s", ahead, m.wall)
	}

	m.wall = m.wall.Add(-20 * time.Second)
	if got := c.now(); got != ahead {
		t.Errorf("set back a little, the time is %s, want %s until that is reached", got, ahead)
	}
	m.pass(time.Minute)
	if got := c.now(); got != m.wall {
		t.Errorf("later, the time is %s, want %s", got, m.wall)
	}
	if !c.trusted() {
		t.Error("the clock is not trusted")
	}
}

// setClock moves the machine's clock, as the service sees it, away from that of the test.
func (s *testServer) setClock(by time.Duration) {
	c := s.db.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	start := time.Now().Add(-time.Hour) // some time while nothing was wrong
	c.base = timeOf(start)
	c.read = func() (Time, time.Duration) {
		now := time.Now()
		return timeOf(now.Add(by)), now.Sub(start)
	}
}

// TestNothingExpiresByAWrongClock has the clock a year ahead for half a minute, and then for good.
func TestNothingExpiresByAWrongClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		id := s.post(t, s.order("kopi", 1), "Idempotency-Key", "k").want(t, 201, "").at("order.id")
		sweep := func() {
			s.payments.expireOrders(t.Context())
			s.purgeIdempotencyKeys(t.Context())
		}
		wantStatus := func(want Status) {
			t.Helper()
			got := s.get(t, "/v1/orders/"+id).at("order.status")
			if got != string(want) {
				t.Errorf("the order is %s, want %s", got, want)
			}
		}

		s.setClock(aYear)
		sweep()
		time.Sleep(30 * time.Second)
		sweep()
		wantStatus(Pending)
		if n := scalar[int](t, s.db, "SELECT count(*) FROM idempotency_keys"); n != 1 {
			t.Errorf("%d Idempotency-Keys are kept, want 1", n)
		}
		s.logs.await(t, "(has jumped)")
		created := s.create(t, "teh", 1)
		if at := scalar[string](t, s.db, "SELECT json ->> 'created_at' FROM orders WHERE id = ?", created); at[:4] != "2000" {
			t.Errorf("an order of that time was created at %s", at)
		}

		s.setClock(0)
		sweep()
		wantStatus(Pending)

		s.setClock(aYear)
		s.db.Now()
		time.Sleep(clockHold)
		sweep()
		wantStatus(Expired)
	})
}

// TestTimesLeftByAWrongClock starts on a file in which a clock that was a year ahead has left its times.
func TestTimesLeftByAWrongClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		hour := timeOf(time.Now().Add(time.Hour))
		ahead := timeOf(time.Now().Add(aYear))
		s.endpoint(t, "one.test")
		s.endpoint(t, "two.test")
		s.create(t, "teh", 1)
		s.importCatalog(t, s.storeID, `{"payment_methods": [{"code": "sandbox", "name": "Sandbox", "provider": "sandbox"}]}`)
		order := s.post(t, with(s.order("kopi", 1), "payment_method", "sandbox")).want(t, 201, "").at("order.id")
		s.get(t, "/v1/orders/"+order)

		s.exec(t, "UPDATE deliveries SET next_at = ? WHERE id = (SELECT min(id) FROM deliveries)", hour)
		s.exec(t, "UPDATE deliveries SET next_at = ? WHERE id > (SELECT min(id) FROM deliveries)", ahead)
		s.exec(t, "UPDATE payment_sessions SET next_check_at = ?1, tried_at = ?1, leased_until = ?1", ahead)
		s.exec(t, "UPDATE endpoints SET old_secret_until = ?", ahead)
		s.exec(t, "UPDATE api_keys SET last_used_at = ?", ahead)
		must(t, s.db.AddSignIn(t.Context(), s.storeID, [32]byte{1}, place{}))
		s.exec(t, "UPDATE owner_sessions SET created_at = ?1, seen_at = ?1", ahead)

		must(t, s.db.startClock(t.Context()))
		now := s.db.Now()
		for query, want := range map[string]int{
			"SELECT count(*) FROM deliveries WHERE next_at > ?":                                          1, // in an hour, as planned
			"SELECT count(*) FROM payment_sessions WHERE max(next_check_at, tried_at, leased_until) > ?": 0,
			"SELECT count(*) FROM owner_sessions WHERE max(created_at, seen_at) > ?":                     0,
			"SELECT count(*) FROM api_keys WHERE last_used_at > ?":                                       0,
			"SELECT count(*) FROM endpoints WHERE old_secret_until > ? + 86400000":                       0,
		} {
			if got := scalar[int](t, s.db, query, now); got != want {
				t.Errorf("%s: %d, want %d", query, got, want)
			}
		}
	})
}

// TestTheClockIsDoubtedAtStart is about the newest event of the file.
func TestTheClockIsDoubtedAtStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		newest  time.Duration // before now
		doubted bool
	}{
		{"a moment ago", time.Second, false},
		{"days ago: the clock may be ahead", fourDays, true},
		{"in the future: the clock was set back", -fourDays, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBubbleServer(t)
				s.create(t, "teh", 1)
				s.exec(t, "UPDATE events SET row = ?", firstRow(timeOf(time.Now().Add(-c.newest))))

				must(t, s.db.startClock(t.Context()))
				if doubted := !s.db.clockTrusted(); doubted != c.doubted {
					t.Errorf("doubted: %t, want %t", doubted, c.doubted)
				}
				time.Sleep(clockHold)
				if !s.db.clockTrusted() {
					t.Error("it is still doubted after some minutes")
				}
			})
		})
	}
}

// TestWatchCorrectsTimesLater has a clock that is doubted at the start.
func TestWatchCorrectsTimesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.endpoint(t, "one.test")
		s.create(t, "teh", 1)
		ahead := timeOf(time.Now().Add(aYear))
		s.exec(t, `
			INSERT INTO events (row, store_id, sequence, event, body)
			SELECT ?, id, 0, 'ping', '{"id":"evt_00000000-0000-7000-8000-000000000000"}' FROM stores`, firstRow(ahead))
		s.exec(t, "UPDATE deliveries SET next_at = ?", ahead)
		must(t, s.db.startClock(t.Context()))

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.db.watch(ctx)
		}()
		time.Sleep(clockHold - watchEvery)
		if waiting := scalar[Time](t, s.db, "SELECT next_at FROM deliveries"); waiting != ahead {
			t.Errorf("the delivery is due at %s before the clock is trusted", waiting)
		}
		time.Sleep(2 * watchEvery)
		if waiting := scalar[Time](t, s.db, "SELECT next_at FROM deliveries"); waiting > s.db.Now() {
			t.Errorf("the delivery is still due at %s", waiting)
		}
		stop()
		<-ended
		if log := s.logs.String(); !strings.Contains(log, "behind the newest event") {
			t.Errorf("the log does not tell of the clock: %s", log)
		}
	})
}

// TestAPageLivesOnByAWrongClock has one way to pay end at Midtrans while the machine's clock is a year ahead.
func TestAPageLivesOnByAWrongClock(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		page := l.get(order).Session.PaymentURL
		l.mid.pay(order+"-1", "pending")
		l.mid.say(order+"-1", "expire")

		l.setClock(aYear)
		time.Sleep(askedLately)
		l.payments.check(t.Context(), l.read("SELECT id FROM payment_sessions"), false)
		l.want("states", l.read("SELECT status || ' ' || gateway_state FROM payment_sessions"), "active denied")
		l.want("the page", l.get(order).Session.PaymentURL, page)
	})
}

// TestAWrongClockUsesUpNoAttempts has the clock set back and ahead while a delivery waits for its third attempt.
func TestAWrongClockUsesUpNoAttempts(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-fourDays, fourDays} {
		t.Run(jump.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBubbleServer(t)
				in, _ := s.deliver(t)
				in.setAnswer(always(500))
				s.endpoint(t, "a.example")
				s.create(t, "teh", 1)
				s.settle()
				time.Sleep(8 * time.Second)
				if n := len(in.take()); n != 2 {
					t.Errorf("%d attempts in the first seconds, want 2", n)
				}

				s.setClock(jump)
				time.Sleep(time.Minute)
				in.takeNone(t)
				s.setClock(0)
				time.Sleep(time.Minute)
				in.takeNone(t)
			})
		})
	}
}
