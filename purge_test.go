//go:build cgo

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const day = 24 * time.Hour

// purgeOldRows deletes what is too old, as the service does every 30 s.
func (s *testServer) purgeOldRows(t *testing.T) {
	t.Helper()
	for _, w := range s.old {
		for done := false; !done; {
			var err error
			done, err = s.purgeOld(t.Context(), w)
			must(t, err)
		}
	}
}

// wantRows compares how many rows of some tables there are, such as "events 2, orders 1".
func (s *testServer) wantRows(t *testing.T, want string) {
	t.Helper()
	var got []string
	for part := range strings.SplitSeq(want, ", ") {
		table, _, _ := strings.Cut(part, " ")
		n := scalar[int](t, s.db, "SELECT count(*) FROM "+table)
		got = append(got, fmt.Sprintf("%s %d", table, n))
	}
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
}

// finish has deliveries of an endpoint acknowledged.
func (s *testServer) finish(t *testing.T, endpoint string) {
	t.Helper()
	s.exec(t, "UPDATE deliveries SET status = 'delivered', next_at = NULL WHERE endpoint_id = ?", endpoint)
}

// TestOldEventsAreDeleted has an order whose events went to one endpoint and wait for another, which is off.
func TestOldEventsAreDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		on, _ := s.endpoint(t, "on.example")
		off, _ := s.endpoint(t, "off.example", OrderPaid)
		must(t, s.db.SwitchEndpoint(t.Context(), s.storeID, off, false))
		id := s.create(t, "teh", 1)
		s.move(t, id, OwnerApproves)
		s.finish(t, on)

		time.Sleep(90*day - time.Second)
		newest := s.create(t, "teh", 1)
		s.finish(t, on)
		s.purgeOldRows(t)
		s.wantRows(t, "events 3, deliveries 4")

		// What waits stays, and its event.
		time.Sleep(2 * time.Second)
		s.purgeOldRows(t)
		s.wantRows(t, "events 2, deliveries 2, orders 2, order_history 1")
		s.wantDeliveries(t, off, "1 pending")
		if got := s.events(t, newest); got != "orderCreated" {
			t.Errorf("the newer order has the events %q", got)
		}

		// It goes after it was delivered, a day later at most.
		s.finish(t, off)
		s.purgeOldRows(t)
		s.wantRows(t, "events 2, deliveries 2")
		time.Sleep(day)
		s.purgeOldRows(t)
		s.wantRows(t, "events 1, deliveries 1")

		// The order is as it was, and the sequence of its events goes on.
		s.get(t, "/v1/orders/"+id).wantData(t, map[string]string{"order.status": "paid"})
		s.move(t, id, OwnerRefunds)
		s.wantSequence(t, id, 3)
	})
}

// wantSequence compares the sequence of an order's only event.
func (s *testServer) wantSequence(t *testing.T, orderID string, want int) {
	t.Helper()
	got := scalar[int](t, s.db, "SELECT sequence FROM events WHERE order_row = ?", rowOf(orderID))
	if got != want {
		t.Errorf("the event has the sequence %d, want %d", got, want)
	}
}

// TestTheSequenceGoesOnAfterEventsInAnyOrder deletes the later event of an order before the earlier one.
func TestTheSequenceGoesOnAfterEventsInAnyOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		endpoint, _ := s.endpoint(t, "a.example", OrderCreated)
		id := s.create(t, "teh", 1)
		s.move(t, id, BuyerClaims)
		s.create(t, "teh", 1)

		time.Sleep(91 * day)
		s.purgeOldRows(t)
		s.wantRows(t, "events 2")
		s.finish(t, endpoint)
		time.Sleep(day)
		s.purgeOldRows(t)
		s.wantRows(t, "events 1")

		s.move(t, id, OwnerApproves)
		s.wantSequence(t, id, 3)
	})
}

// TestTheNewestEventIsKept because the service compares the clock with it when it starts.
func TestTheNewestEventIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.create(t, "teh", 1)
		s.create(t, "teh", 1)
		time.Sleep(91 * day)
		s.purgeOldRows(t)
		s.wantRows(t, "events 1")

		must(t, s.db.startClock(t.Context()))
		if s.db.clockTrusted() {
			t.Error("the clock is not doubted after 91 quiet days")
		}
	})
}

// TestOldNotificationsAreDeleted leaves a notification that is not decided.
func TestOldNotificationsAreDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.importCatalog(t, s.storeID,
			`{"payment_methods": [{"code": "sandbox", "name": "Sandbox", "provider": "sandbox"}]}`)
		order := s.post(t, with(s.order("kopi", 1), "payment_method", "sandbox")).want(t, 201, "").at("order.id")
		session := s.get(t, "/v1/orders/"+order).at("payment_session.id")
		add := func(transaction string) {
			t.Helper()
			found := SessionWithOrder{StoreID: s.storeID}
			found.ID, found.Provider = session, ProviderSandbox
			must(t, s.db.AddNotification(t.Context(), found, notice{transactionID: transaction}, []byte("{}")))
		}

		add("decided")
		s.exec(t, "UPDATE notifications SET decided_at = received_at")
		add("undecided")
		time.Sleep(90 * day)
		s.purgeOldRows(t)
		s.wantRows(t, "notifications 2")
		time.Sleep(time.Second)
		s.purgeOldRows(t)
		s.wantRows(t, "notifications 1, payments 2, payment_sessions 1")
		if got := scalar[string](t, s.db, "SELECT transaction_id FROM notifications"); got != "undecided" {
			t.Errorf("the notification of %q is left", got)
		}
	})
}

// TestReplaysOutlastThePurge keeps events for the shortest time that is possible.
func TestReplaysOutlastThePurge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.keepEvents = leastKeepEvents
		body := string(mustJSON(s.order("kopi", 1)))
		first := s.post(t, body, "Idempotency-Key", "k").want(t, 201, "")
		time.Sleep(idempotencyKept - time.Millisecond)
		s.create(t, "teh", 1)
		s.purgeOldRows(t)
		checkReplay(t, s.post(t, body, "Idempotency-Key", "k"), first)
	})
}

// TestOldRowsAreDeletedInSmallWrites has a thousand old events that went to two endpoints.
func TestOldRowsAreDeletedInSmallWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		a, _ := s.endpoint(t, "a.example")
		b, _ := s.endpoint(t, "b.example")
		s.pings(t, 1000, a, b)
		s.finish(t, a)
		s.finish(t, b)
		time.Sleep(91 * day)
		s.create(t, "teh", 1)

		writes := countWrites(t, s.db)
		s.purgeOldRows(t)
		s.wantRows(t, "events 1, deliveries 2")
		if most := writes.most(); most > batchRows {
			t.Errorf("a write changes %d rows, want %d at most", most, batchRows)
		}
	})
}

// TestWhatWaitsIsLookedAtOnceADay has thousands of old deliveries that wait.
func TestWhatWaitsIsLookedAtOnceADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		endpoint, _ := s.endpoint(t, "a.example")
		s.pings(t, 3*walkRows, endpoint)
		s.create(t, "teh", 1)
		time.Sleep(91 * day)

		steps := func() (all []int) {
			t.Helper()
			for _, w := range s.old {
				n := 1
				for done := false; !done; n++ {
					var err error
					done, err = s.purgeOld(t.Context(), w)
					must(t, err)
				}
				all = append(all, n-1)
			}
			return all
		}
		writes := countWrites(t, s.db)
		if got := steps(); !slices.Equal(got, []int{5, 4, 1}) {
			t.Errorf("the first walk has %v steps, want 5 for deliveries and 4 for events", got)
		}
		if got := steps(); !slices.Equal(got, []int{1, 1, 1}) {
			t.Errorf("a moment later there are %v steps, want 1 each", got)
		}
		time.Sleep(walkEvery)
		if got := steps(); !slices.Equal(got, []int{5, 4, 1}) {
			t.Errorf("a day later there are %v steps, want those of the first walk", got)
		}
		if most := writes.most(); most != 0 {
			t.Errorf("%d rows are written, want none", most)
		}
	})
}

// TestNothingIsDeletedByADoubtedClock starts the service after a long time without orders, or with a wrong clock.
func TestNothingIsDeletedByADoubtedClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.create(t, "teh", 1)
		s.create(t, "teh", 1)
		time.Sleep(91 * day)
		must(t, s.db.startClock(t.Context()))

		s.purgeOldRows(t)
		time.Sleep(clockHold - time.Second)
		s.purgeOldRows(t)
		s.wantRows(t, "events 2")

		time.Sleep(time.Second)
		s.purgeOldRows(t)
		s.wantRows(t, "events 1")
	})
}

// newOldFile creates a database with two orders of a hundred days ago and one of now. Of the three events of the
// old ones, two were delivered.
func newOldFile(t *testing.T) (file string) {
	t.Helper()
	s := newBubbleServer(t)
	endpoint, _ := s.endpoint(t, "a.example")
	now := s.db.clock
	s.db.clock = newClock(time.Now)
	s.db.clock.base = now.base.Add(-100 * day)
	s.db.clock.read = func() (Time, time.Duration) {
		wall, elapsed := now.read()
		return wall.Add(-100 * day), elapsed
	}

	id := s.create(t, "teh", 1)
	s.move(t, id, OwnerApproves)
	s.finish(t, endpoint)
	s.create(t, "teh", 1)
	s.db.clock = now
	s.create(t, "teh", 1)
	must(t, s.db.SwitchEndpoint(t.Context(), s.storeID, endpoint, false))
	must(t, s.db.Close())
	return s.db.path
}

// TestCheckCountsWhatIsOld looks at a file that nobody may write to.
func TestCheckCountsWhatIsOld(t *testing.T) {
	t.Parallel()
	file := newOldFile(t)
	must(t, os.Chmod(file, 0o400))
	for keep, want := range map[string]string{
		"":      "map[deliveries:2 events:2 notifications:0]",
		"2399h": "map[deliveries:2 events:2 notifications:0]",
		"2401h": "map[deliveries:0 events:0 notifications:0]",
	} {
		args := []string{"check", "-db", file}
		if keep != "" {
			args = append(args, "-keep-events", keep)
		}
		found, _ := command(t, 0, args...)
		if got := fmt.Sprint(found["to_delete"]); got != want {
			t.Errorf("kept for %q, %s would go, want %s", keep, got, want)
		}
	}
}

// TestServeDeletesWhatIsOld starts the service on the same file.
func TestServeDeletesWhatIsOld(t *testing.T) {
	t.Parallel()
	for keep, want := range map[string]int{"2399h": 1, "2401h": 3} {
		t.Run(keep, func(t *testing.T) {
			t.Parallel()
			file := newOldFile(t)
			_, _, stop := startServe(t, file, "-keep-events", keep)
			db, err := openDB(file, false)
			must(t, err)
			defer db.Close()

			old := firstRow(timeOf(time.Now().Add(-99 * day)))
			count := func() int {
				return scalar[int](t, db, "SELECT count(*) FROM events WHERE row < ?", old)
			}
			for deadline := time.Now().Add(10 * time.Second); count() != want && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
			if code := stop(); code != 0 {
				t.Errorf("serve exits with %d", code)
			}
			if got := count(); got != want {
				t.Errorf("%d of the three old events are left, want %d", got, want)
			}
		})
	}
}
