//go:build cgo

package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// order notes when the events of orders were sent to an endpoint, and when they were acknowledged.
type orderLog struct {
	mu    sync.Mutex
	acked map[string]int // by order: the sequence of its last event that was acknowledged
	late  []string
}

// begin notes an event that is sent. It is late if the one before it was not acknowledged.
func (l *orderLog) begin(r received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := r.event.Data.Order["id"].(string)
	if l.acked[id] != r.event.Sequence-1 {
		l.late = append(l.late, fmt.Sprintf("%s: event %d after %d", id, r.event.Sequence, l.acked[id]))
	}
}

func (l *orderLog) acknowledge(r received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[r.event.Data.Order["id"].(string)] = r.event.Sequence
}

// TestEventsOfAnOrderFollowEachOther delivers a hundred orders with three events each to a receiver that
// takes a while, now and then longer, for each. The queue is stopped and crashes in between.
func TestEventsOfAnOrderFollowEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		id, _ := s.endpoint(t, "a.example")
		log := &orderLog{acked: map[string]int{}}
		answer := func(r received) *http.Response {
			log.begin(r)
			time.Sleep(rand.N(1500 * time.Millisecond))
			log.acknowledge(r)
			return status(200)
		}
		in, stop := s.deliver(t)
		in.setAnswer(answer)

		var orders []string
		for range 50 {
			orderID := s.create(t, "teh", 1)
			s.move(t, orderID, BuyerClaims)
			orders = append(orders, orderID)
		}
		s.settle()
		for _, orderID := range orders {
			s.move(t, orderID, OwnerApproves)
		}
		time.Sleep(3 * time.Second)
		stop()

		// A process that crashes has claimed some, and never sends them.
		_, err := s.db.Dispatch(t.Context(), nil, newRoom())
		must(t, err)

		in, _ = s.deliver(t)
		in.setAnswer(answer)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.wantDeliveries(t, id, "150 delivered")
		if len(log.late) > 0 {
			t.Errorf("%d events overtook another one, such as %s", len(log.late), log.late[0])
		}
	})
}

// TestAFailedEventHoldsUpNoOther fails the first event of an order once. The second one comes before it is
// repeated.
func TestAFailedEventHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.endpoint(t, "a.example")
		in, _ := s.deliver(t)
		in.setAnswer(func(r received) *http.Response {
			if r.event.Sequence == 1 && r.header.Get("X-Service-Attempt") == "1" {
				return status(500)
			}
			return status(200)
		})

		orderID := s.create(t, "teh", 1)
		s.move(t, orderID, OwnerApproves)
		time.Sleep(time.Minute)
		synctest.Wait()
		var got []int
		for _, r := range in.take() {
			got = append(got, r.event.Sequence)
		}
		if want := []int{1, 2, 1}; !slices.Equal(got, want) {
			t.Errorf("the events come as %v, want %v", got, want)
		}
	})
}

// badNeighbours is what a hundred endpoints of ten stores do.
type badNeighbours struct {
	name        string
	quickBefore bool // they have answered quickly until now
	answer      func(received) *http.Response
	atFirst     time.Duration // how long another store's webhooks may take in the first seconds
}

// TestNeighbours has a hundred endpoints that hang or are slow, each with an order a second. Another store,
// whose endpoint works, does not notice.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	hang := func(received) *http.Response { return nil }
	slow := func(received) *http.Response {
		time.Sleep(14 * time.Second)
		return status(200)
	}
	const soon = 50 * time.Millisecond
	cases := []badNeighbours{
		{"they hang", false, hang, soon},
		{"they are slow", false, slow, soon},
		{"they begin to hang", true, hang, slotTime + soon},
		{"they begin to be slow", true, slow, slotTime + soon},
	}

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBubbleServer(t)
				s.queue.poll = time.Minute
				in, _ := s.deliver(t)
				ids := s.hundredEndpoints(t)
				good, _ := s.endpoint(t, "good.example")
				s.pings(t, 1, good)
				if c.quickBefore {
					s.pings(t, 1, ids...)
				}
				s.settle()
				in.take()

				in.setAnswer(func(r received) *http.Response {
					if r.host == "good.example" {
						return status(200)
					}
					return c.answer(r)
				})
				for second := range 20 {
					limit := c.atFirst
					if second > 7 {
						limit = soon
					}
					s.pings(t, 1, ids...)
					s.wantSoon(t, in, good, limit)
				}

				// The others are tried too, however slow they are.
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				tried := map[string]bool{}
				for _, r := range in.take() {
					tried[r.host] = true
				}
				if len(tried) != len(ids)+1 {
					t.Errorf("%d endpoints were tried, want all", len(tried))
				}
			})
		})
	}
}

// hundredEndpoints adds ten stores with ten endpoints each.
func (s *testServer) hundredEndpoints(t *testing.T) (ids []string) {
	t.Helper()
	for i := range 10 {
		store := s.inStore(t, fmt.Sprintf("tetangga-%d", i))
		for j := range 10 {
			id, _ := store.endpoint(t, fmt.Sprintf("bad%d%d.example", i, j))
			ids = append(ids, id)
		}
	}
	return ids
}

// wantSoon sends an event to an endpoint and checks how long it takes. A second later it returns.
func (s *testServer) wantSoon(t *testing.T, in *oldInbox, endpoint string, limit time.Duration) {
	t.Helper()
	begun := time.Now()
	s.pings(t, 1, endpoint)
	s.queue.wake()
	time.Sleep(time.Second)

	came := func(r received) bool { return r.host == "good.example" && !r.at.Before(begun) }
	in.mu.Lock()
	i := slices.IndexFunc(in.all, came)
	var at time.Time
	if i >= 0 {
		at = in.all[i].at
	}
	in.mu.Unlock()

	if i < 0 && limit < time.Second {
		t.Fatalf("another store's webhook does not come within a second")
	}
	if took := at.Sub(begun); i >= 0 && took > limit {
		t.Errorf("another store's webhook takes %s, want %s at most", took, limit)
	}
}

// TestLateAttemptsLeaveSlots checks how many slots are used when attempts linger.
func TestLateAttemptsLeaveSlots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		late, want int
	}{
		{late: 96, want: 0},
		{late: 100, want: 4},
		{late: 500, want: 24},
	} {
		s := slots{prompt: map[Lane]int{}}
		f := &flight{lane: LaneUnproven}
		s.add(f, c.late)
		if got := s.used(); got != c.late {
			t.Errorf("%d prompt attempts use %d slots", c.late, got)
		}

		s.add(f, -c.late)
		f.lingers = true
		s.add(f, c.late)
		if got := s.used(); got != c.want {
			t.Errorf("%d attempts that linger use %d slots, want %d", c.late, got, c.want)
		}
		if got := s.prompt[LaneUnproven]; got != 0 {
			t.Errorf("%d attempts that linger count for the lane of new endpoints", got)
		}
	}
}

// TestQueueLosesNoTime sends webhooks to a receiver that answers at once. In the time of the test, writing takes no time
// either, so all that they take are pauses of the queue.
func TestQueueLosesNoTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		id, _ := s.endpoint(t, "a.example")
		s.pings(t, 1, id)
		s.settle() // Now the endpoint is a quick one.
		in.take()

		for _, webhooks := range []int{1, 20 * writeMost} { // of whole writes: a rest would wait for a pause
			begun := time.Now()
			s.pings(t, webhooks, id)
			s.settle()

			all := in.take()
			if len(all) != webhooks {
				t.Fatalf("%d webhooks, want %d", len(all), webhooks)
			}
			if took := all[len(all)-1].at.Sub(begun); took != 0 {
				t.Errorf("%d webhooks wait %s, want no pause", webhooks, took)
			}
		}
	})
}

// outage lets all writes fail for some time, the queue's among them.
func (s *testServer) outage(t *testing.T, d time.Duration) {
	t.Helper()
	must(t, s.db.writer.script("PRAGMA query_only = 1"))
	s.queue.wake()
	time.Sleep(d)
	must(t, s.db.writer.script("PRAGMA query_only = 0"))
}

// TestWebhooksAreSentOnceInAnOutage lets the queue's writes fail for longer than a lease, while there are more results
// than one write takes.
func TestWebhooksAreSentOnceInAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		in.setAnswer(func(received) *http.Response {
			time.Sleep(100 * time.Millisecond)
			return status(200)
		})
		a, _ := s.endpoint(t, "a.example")
		b, _ := s.endpoint(t, "b.example")
		s.pings(t, 1, a, b)
		s.settle()
		in.take()

		s.pings(t, claimAhead, a, b)
		s.queue.wake()
		time.Sleep(time.Second) // All are claimed.
		s.outage(t, lease+10*time.Second)
		synctest.Wait()
		if n := strings.Count(s.logs.String(), "cannot write results"); n < 65 || n > 75 {
			t.Errorf("a write was tried %d times in 70 s, want once a second", n)
		}

		s.settle()
		for _, id := range []string{a, b} {
			s.wantDeliveries(t, id, fmt.Sprintf("%d delivered", 1+claimAhead))
		}
		if n := len(in.take()); n != 2*claimAhead {
			t.Errorf("%d webhooks were sent, want %d", n, 2*claimAhead)
		}
	})
}

// TestAClaimThatCannotBeWrittenIsTriedAgain has a queue that would not look again by itself for a minute.
func TestAClaimThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = time.Minute
		in, _ := s.deliver(t)
		id, _ := s.endpoint(t, "a.example")
		s.settle()

		s.pings(t, 1, id)
		s.outage(t, dispatchRetry/2)
		time.Sleep(dispatchRetry)
		if n := len(in.take()); n != 1 {
			t.Errorf("%d webhooks a second after the disk was full, want 1", n)
		}
	})
}

// TestClaimsOfASlowWriteAreSentOnce lets the commit of a claim take longer than its lease.
func TestClaimsOfASlowWriteAreSentOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		in.setAnswer(func(received) *http.Response {
			time.Sleep(500 * time.Millisecond)
			return status(200)
		})
		id, _ := s.endpoint(t, "a.example")
		s.settle()

		s.pings(t, 20, id)
		must(t, s.db.writer.with(func(c *connection) error {
			c.raw.RegisterCommitHook(func() int {
				c.raw.RegisterCommitHook(nil)
				time.Sleep(lease + 30*time.Second)
				return 0
			})
			return nil
		}))
		s.queue.wake()
		time.Sleep(3 * lease)
		synctest.Wait()
		if n := len(in.take()); n != 20 {
			t.Errorf("%d webhooks were sent, want 20", n)
		}
	})
}
