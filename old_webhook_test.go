//go:build cgo

package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// takeOne returns the only webhook that came since the last call.
func (in *oldInbox) takeOne(t *testing.T) received {
	t.Helper()
	all := in.take()
	if len(all) != 1 {
		t.Fatalf("%d webhooks came, want 1", len(all))
	}
	return all[0]
}

// takeNone reports webhooks that came since the last call.
func (in *oldInbox) takeNone(t *testing.T) {
	t.Helper()
	for _, r := range in.take() {
		t.Errorf("%s got a webhook: %s", r.host, r.body)
	}
}

// always answers every webhook with a status.
func always(code int) func(received) *http.Response {
	return func(received) *http.Response { return status(code) }
}

// wakeFor wakes the queue and lets it work for a while.
func (s *testServer) wakeFor(d time.Duration) {
	s.queue.wake()
	time.Sleep(d)
	synctest.Wait()
}

// createMany creates orders of tea.
func (s *testServer) createMany(t *testing.T, n int) {
	t.Helper()
	for range n {
		s.create(t, "teh", 1)
	}
}

// wantDeliveries compares an endpoint's deliveries with such a text as deliveries returns.
func (s *testServer) wantDeliveries(t *testing.T, endpoint, want string) {
	t.Helper()
	got := s.deliveries(t, endpoint)
	if got != want {
		t.Errorf("deliveries: %s, want %s", got, want)
	}
}

// wantResent resends a delivery and compares how many were resent.
func (s *testServer) wantResent(t *testing.T, want int64, delivery string) {
	t.Helper()
	n, err := s.db.ResendDelivery(t.Context(), s.storeID, delivery)
	must(t, err)
	if n != want {
		t.Errorf("%d deliveries are resent, want %d", n, want)
	}
}

// deliveryID is the X-Service-Delivery-Id, which stays the same in all attempts.
func (r received) deliveryID() string { return r.header.Get("X-Service-Delivery-Id") }

// The example of a signature in openapi.json.
const (
	exampleSecret = "whsec_dGVzdC1zZWNyZXQtZm9yLWRvY3Mtb25seS0wMDAwMDE="
	exampleBody   = `{"id":"evt_0190f5a0-0000-7000-8000-000000000001","event":"orderCreated"}`
	exampleTime   = 1_700_000_000
	exampleV1     = "bbebdde7aab85a35b73c87f184b8197c10f1d29b66d946c8e696687e3a2ba84a"
)

func TestSignature(t *testing.T) {
	t.Parallel()
	got := sign(exampleSecret, exampleTime, []byte(exampleBody))
	if got != exampleV1 {
		t.Errorf("signature %s, want %s", got, exampleV1)
	}

	byHand := hmacByHand(exampleSecret, "1700000000."+exampleBody)
	if byHand != exampleV1 {
		t.Errorf("signature by hand %s, want %s", byHand, exampleV1)
	}
}

// TestVerifySignature verifies the headers of testdata/signatures.txt.
func TestVerifySignature(t *testing.T) {
	t.Parallel()
	now := time.Unix(exampleTime, 0)
	body := []byte(exampleBody)
	words := map[string]string{
		"v1":    exampleV1,
		"old":   sign(exampleSecret, exampleTime-1000, body),
		"wrong": strings.Replace(exampleV1, "b", "c", 1),
	}

	for _, c := range readCases(t, "testdata/signatures.txt") {
		t.Run(c.column(0), func(t *testing.T) {
			header := os.Expand(c.column(1), func(name string) string { return words[name] })
			clock := now
			if offset := c.column(2); offset != "" {
				d, err := time.ParseDuration(offset)
				must(t, err)
				clock = now.Add(d)
			}

			got := verifySignature(exampleSecret, header, body, clock)
			if want := c.heading == "accepted"; got != want {
				t.Errorf("accepted: %t, want %t", got, want)
			}
		})
	}

	const header = "t=1700000000,v1=" + exampleV1
	t.Run("another body", func(t *testing.T) {
		another := []byte(exampleBody + " ")
		if verifySignature(exampleSecret, header, another, now) {
			t.Error("accepted")
		}
	})
	t.Run("another secret", func(t *testing.T) {
		if verifySignature("whsec_other", header, body, now) {
			t.Error("accepted")
		}
	})
}

func TestRotatedSecretsBothSignForADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = time.Hour
		in, _ := s.deliver(t)
		id, old := s.endpoint(t, "a.example")
		fresh := newSecret()

		// wantSecrets checks which secrets sign now, in their order.
		wantSecrets := func(secrets ...string) {
			t.Helper()
			s.create(t, "teh", 1)
			s.settle()
			in.takeOne(t).signedBy(t, 1, secrets...)
		}
		wantSecrets(old)

		err := s.db.RotateSecret(t.Context(), s.storeID, id, fresh)
		must(t, err)
		wantSecrets(fresh, old)

		time.Sleep(23*time.Hour + 59*time.Minute)
		wantSecrets(fresh, old)

		time.Sleep(time.Minute)
		wantSecrets(fresh)
	})
}

// wantWait compares the time until a delivery's next attempt with its delay by design, from which a fifth is
// added or taken by chance. It returns the ratio of the two.
func wantWait(t *testing.T, wait, delay time.Duration) float64 {
	t.Helper()
	least := delay*8/10 - time.Millisecond
	most := delay*12/10 + time.Millisecond
	if wait < least || wait > most {
		t.Errorf("wait %s, want %s to %s", wait, least, most)
	}
	return float64(wait) / float64(delay)
}

func TestRetrySchedule(t *testing.T) {
	t.Parallel()
	delays := []time.Duration{
		5 * time.Second,
		5 * time.Minute,
		30 * time.Minute,
		2 * time.Hour,
		5 * time.Hour,
		10 * time.Hour,
		14 * time.Hour,
		20 * time.Hour,
		24 * time.Hour,
	}

	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = 1000 * time.Hour // the test wakes the queue
		in, _ := s.deliver(t)
		in.setAnswer(always(500))
		endpoint, secret := s.endpoint(t, "a.example")
		s.create(t, "kopi", 2)

		s.wakeFor(100 * time.Millisecond)
		first := in.takeOne(t)
		first.signedBy(t, 1, secret)

		last := first
		var ratios []float64
		for i, delay := range delays {
			next := scalar[Time](t, s.db, "SELECT next_at FROM deliveries").Time()
			ratio := wantWait(t, next.Sub(last.at), delay)
			ratios = append(ratios, ratio)

			// A moment before, nothing is sent even if the queue looks.
			time.Sleep(time.Until(next) - 100*time.Millisecond)
			s.wakeFor(50 * time.Millisecond)
			in.takeNone(t)

			time.Sleep(time.Until(next))
			s.wakeFor(100 * time.Millisecond)
			last = in.takeOne(t)
			last.signedBy(t, i+2, secret)
			if last.body != first.body {
				t.Errorf("attempt %d has another body: %s", i+2, last.body)
			}
			if last.deliveryID() != first.deliveryID() {
				t.Errorf("attempt %d is delivery %s, want %s", i+2, last.deliveryID(), first.deliveryID())
			}
		}
		if slices.Max(ratios)-slices.Min(ratios) < 0.01 {
			t.Errorf("the waits are not spread: %v", ratios)
		}

		// There is no eleventh attempt.
		s.wantDeliveries(t, endpoint, "1 failed")
		time.Sleep(1001 * time.Hour)
		synctest.Wait()
		in.takeNone(t)
	})
}

func TestAFailedDeliveryIsResentFromItsFirstAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		in.setAnswer(always(500))
		endpoint, secret := s.endpoint(t, "a.example")
		orderID := s.create(t, "kopi", 2)
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		s.wantDeliveries(t, endpoint, "1 failed")

		all := in.take()
		if len(all) != 10 {
			t.Errorf("%d attempts, want 10", len(all))
		}
		first := all[0]
		if got := first.event.Data.Order["id"]; got != orderID {
			t.Errorf("the event's order is %v, want %s", got, orderID)
		}

		in.setAnswer(nil)
		s.wantResent(t, 1, first.deliveryID())
		s.settle()
		again := in.takeOne(t)
		again.signedBy(t, 1, secret)
		if again.body != first.body {
			t.Errorf("body %s, want %s", again.body, first.body)
		}

		s.wantDeliveries(t, endpoint, "1 delivered")
		failures := scalar[int](t, s.db, "SELECT failures FROM endpoints")
		if failures != 0 {
			t.Errorf("the endpoint has %d failures in a row, want 0", failures)
		}
	})
}

// waitCase is a case of testdata/waits.txt.
type waitCase struct {
	host        string
	status      int // 0: the endpoint hangs
	least, most time.Duration
	header      []string // a name and its value, if any
}

func readWaits(t *testing.T) (all []waitCase) {
	t.Helper()
	seconds := func(text string) time.Duration {
		d, err := time.ParseDuration(text + "s")
		must(t, err)
		return d
	}

	for _, c := range readCases(t, "testdata/waits.txt") {
		w := waitCase{
			host:  c.column(0) + ".example",
			least: seconds(c.column(2)),
			most:  seconds(c.column(3)),
		}
		w.status, _ = strconv.Atoi(c.column(1))
		if name, value, ok := strings.Cut(c.column(4), ": "); ok {
			w.header = []string{name, value}
		}
		all = append(all, w)
	}
	return all
}

// answer is the endpoint's answer now. It is nil if the endpoint hangs.
func (c waitCase) answer() *http.Response {
	if c.status == 0 {
		return nil
	}

	resp := status(c.status, c.header...)
	if resp.Header.Get("Retry-After") == "$date" {
		date := time.Now().Add(8 * time.Second)
		resp.Header.Set("Retry-After", date.UTC().Format(http.TimeFormat))
	}
	return resp
}

// afterOneAttempt is a delivery's row.
type afterOneAttempt struct {
	nextAt Time
	status int // 0: there was no answer
}

// check compares a delivery whose first attempt has ended.
func (c waitCase) check(t *testing.T, s *testServer, ended time.Time) {
	t.Helper()
	scan := func(r row) (v afterOneAttempt, err error) {
		err = r.Scan(&v.nextAt, &v.status)
		return v, err
	}
	got, err := queryOne(s.db.reader, scan, `
		SELECT d.next_at, coalesce(d.answer_status, 0)
		FROM   deliveries d
		JOIN   endpoints e ON e.id = d.endpoint_id
		WHERE  e.url = ? AND d.tried_at IS NOT NULL`, "https://"+c.host+"/hook")
	if err != nil {
		t.Errorf("%s: %v", c.host, err)
		return
	}

	wait := got.nextAt.Time().Sub(ended)
	if wait < c.least-time.Millisecond || wait > c.most+time.Millisecond {
		t.Errorf("%s: wait %s, want %s to %s", c.host, wait, c.least, c.most)
	}
	if got.status != c.status {
		t.Errorf("%s: status %d is kept, want %d", c.host, got.status, c.status)
	}
}

// TestWaitAfterAnAnswer has endpoints that answer the first attempt as testdata/waits.txt says.
func TestWaitAfterAnAnswer(t *testing.T) {
	t.Parallel()
	cases := readWaits(t)
	const attemptTimeout = 15 * time.Second

	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		in.setAnswer(func(r received) *http.Response {
			i := slices.IndexFunc(cases, func(c waitCase) bool { return c.host == r.host })
			if i < 0 {
				t.Errorf("a webhook went to %s", r.host)
				return status(200)
			}
			return cases[i].answer()
		})
		for _, c := range cases {
			s.endpoint(t, c.host)
		}

		s.create(t, "teh", 1)
		s.settle()
		asked := map[string]time.Time{}
		for _, r := range in.take() {
			asked[r.host] = r.at
		}

		for _, c := range cases {
			if c.status != 0 {
				c.check(t, s, asked[c.host])
			}
		}

		// An endpoint that hangs has no answer until the attempt is given up.
		time.Sleep(attemptTimeout)
		synctest.Wait()
		for _, c := range cases {
			if c.status == 0 {
				c.check(t, s, asked[c.host].Add(attemptTimeout))
			}
		}

		// Without a wake, the queue finds the deliveries that fall due.
		time.Sleep(12 * time.Second)
		synctest.Wait()
		again := map[string]bool{}
		for _, r := range in.take() {
			if r.header.Get("X-Service-Attempt") == "2" {
				again[r.host] = true
			}
		}
		for _, c := range cases {
			if !again[c.host] {
				t.Errorf("%s: no second attempt", c.host)
			}
		}
	})
}

// TestGoneTurnsAnEndpointOff answers the first of two events with 410 Gone. Both wait until the endpoint is
// on again.
func TestGoneTurnsAnEndpointOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = time.Minute
		in, _ := s.deliver(t)
		id, _ := s.endpoint(t, "a.example")

		in.setAnswer(always(410))
		s.create(t, "teh", 1)
		s.settle()
		in.takeOne(t)

		in.setAnswer(nil)
		s.create(t, "teh", 1)
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		in.takeNone(t)
		s.wantDeliveries(t, id, "2 pending")

		list, err := s.db.Endpoints(s.storeID, 20)
		must(t, err)
		if list[0].Active {
			t.Error("the endpoint is on")
		}
		if got := list[0].OffReason; got != OffGone {
			t.Errorf("it is off because of %q, want %q", got, OffGone)
		}

		err = s.db.SwitchEndpoint(t.Context(), s.storeID, id, true)
		must(t, err)
		s.settle()
		s.wantDeliveries(t, id, "2 delivered")
	})
}

// attempts counts the attempts under way.
type attempts struct {
	mu     sync.Mutex
	total  int
	toHost map[string]int
	most   map[string]int // that were under way to a host at once
}

func newAttempts() *attempts {
	return &attempts{
		toHost: map[string]int{},
		most:   map[string]int{},
	}
}

func (a *attempts) begin(host string) (toHost, total int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total++
	a.toHost[host]++
	a.most[host] = max(a.most[host], a.toHost[host])
	return a.toHost[host], a.total
}

func (a *attempts) end(host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total--
	a.toHost[host]--
}

// now is how many attempts are under way to a host, and in all.
func (a *attempts) now(host string) (toHost, total int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.toHost[host], a.total
}

// inStore is the same service with another store, for its endpoints and orders.
func (s *testServer) inStore(t *testing.T, slug string) *testServer {
	t.Helper()
	another := *s
	another.storeID, another.key = s.addStore(t, slug, "growth")
	return &another
}

// TestInFlightLimits holds up all answers while 40 endpoints of four stores have 20 events each.
func TestInFlightLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)

		var ids []string
		for i := range 4 {
			store := s.inStore(t, fmt.Sprintf("s%d", i))
			for j := range 10 {
				id, _ := store.endpoint(t, fmt.Sprintf("e%d.s%d.example", j, i))
				ids = append(ids, id)
			}
		}
		s.pings(t, 1, ids...) // They answer quickly.
		s.settle()

		underWay := newAttempts()
		release := make(chan struct{})
		in.setAnswer(func(r received) *http.Response {
			_, store, _ := strings.Cut(r.host, ".")
			toHost, _ := underWay.begin(r.host)
			underWay.begin(store)
			defer underWay.end(r.host)
			defer underWay.end(store)
			if toHost > 4 {
				t.Errorf("%d attempts under way to %s, want 4 at most", toHost, r.host)
			}
			<-release
			return status(200)
		})

		// Half of the 32 are for endpoints that have none under way: 40 endpoints use all.
		s.pings(t, 20, ids...)
		s.queue.wake()
		time.Sleep(slotTime / 2)
		synctest.Wait()
		if _, n := underWay.now(""); n/2 != 32 {
			t.Errorf("%d attempts under way, want 32", n/2)
		}
		for i := range 4 {
			if n, _ := underWay.now(fmt.Sprintf("s%d.example", i)); n > 16 {
				t.Errorf("%d attempts under way to a store, want half of the slots at most", n)
			}
		}

		// Then they leave their slots to others. 96 may do so, and the narrow lane has 12 of its own.
		time.Sleep(slowAnswer)
		synctest.Wait()
		if _, n := underWay.now(""); n/2 <= 32 || n/2 > 32+96+12 {
			t.Errorf("%d attempts under way when some linger, want 33 to 140", n/2)
		}

		close(release)
		s.settle()
		for _, id := range ids {
			s.wantDeliveries(t, id, "21 delivered")
		}
	})
}

// answerBad answers the webhooks of bad.example, and acknowledges all others.
func (in *oldInbox) answerBad(answer func(received) *http.Response) {
	in.setAnswer(func(r received) *http.Response {
		if r.host == "bad.example" {
			return answer(r)
		}
		return status(204)
	})
}

func TestAFailingOrHangingEndpointHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = time.Minute
		in, _ := s.deliver(t)

		// Five failures in a row leave an endpoint one attempt at a time.
		in.answerBad(always(500))
		bad, _ := s.endpoint(t, "bad.example")
		for range 5 {
			s.create(t, "teh", 1)
			s.settle()
		}

		// Then it hangs. Each attempt is given up after 15 s, and the next one begins at the same moment. So an
		// attempt is counted as ended just before.
		underWay := newAttempts()
		in.answerBad(func(r received) *http.Response {
			underWay.begin(r.host)
			time.AfterFunc(15*time.Second-time.Millisecond, func() { underWay.end(r.host) })
			return nil
		})
		good, _ := s.endpoint(t, "good.example")
		s.createMany(t, 60)
		s.settle()
		s.wantDeliveries(t, good, "60 delivered")

		time.Sleep(time.Hour)
		synctest.Wait()
		if most := underWay.most["bad.example"]; most != 1 {
			t.Errorf("%d attempts at a time to an endpoint that fails, want 1", most)
		}

		in.answerBad(always(500))
		time.Sleep(time.Minute)

		// When it works again, it gets everything.
		in.setAnswer(nil)
		time.Sleep(200 * time.Hour)
		synctest.Wait()
		s.wantDeliveries(t, bad, "65 delivered")
	})
}

// TestSlowEndpointsHoldUpNoOther has six endpoints, with a backlog each, that take 14 s for every webhook.
func TestSlowEndpointsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		in.setAnswer(func(r received) *http.Response {
			if r.host != "good.example" {
				time.Sleep(14 * time.Second)
			}
			return status(200)
		})

		// At four attempts each, they could use 24 of 32.
		for i := range 6 {
			s.endpoint(t, fmt.Sprintf("slow%d.example", i))
		}
		s.createMany(t, 70)
		s.settle()

		good, _ := s.endpoint(t, "good.example")
		s.createMany(t, 20)
		s.settle()
		s.wantDeliveries(t, good, "20 delivered")
	})
}

func TestLeasesOfACrashedProcessAreReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		id, _ := s.endpoint(t, "a.example")
		s.create(t, "teh", 1)

		// One process claims a delivery and crashes before it sends it.
		claims, err := s.db.Dispatch(t.Context(), nil, newRoom())
		must(t, err)
		if len(claims) != 1 {
			t.Fatalf("%d claims, want 1", len(claims))
		}

		// While it is claimed, it is neither claimed again nor resent.
		again, err := s.db.Dispatch(t.Context(), nil, newRoom())
		must(t, err)
		if len(again) != 0 {
			t.Errorf("claimed twice: %v", again)
		}
		s.wantResent(t, 0, claims[0].DeliveryID)

		// Another process begins.
		in, _ := s.deliver(t)
		s.settle()
		attempt := in.takeOne(t).header.Get("X-Service-Attempt")
		if attempt != "1" { // The claim was never sent.
			t.Errorf("attempt %s, want 1", attempt)
		}
		s.wantDeliveries(t, id, "1 delivered")
	})
}

// stopAfter stops the queue and returns how long that takes.
func stopAfter(stop func()) time.Duration {
	begun := time.Now()
	stop()
	return time.Since(begun)
}

// wantReleased checks that no delivery is claimed, and that those that wait count no attempt.
func (s *testServer) wantReleased(t *testing.T) {
	t.Helper()
	leased := scalar[int](t, s.db, "SELECT sum(leased) FROM deliveries")
	if leased != 0 {
		t.Errorf("%d deliveries are leased, want 0", leased)
	}
	counted := scalar[int](t, s.db, "SELECT count(*) FROM deliveries WHERE status = 'pending' AND attempt > 0")
	if counted != 0 {
		t.Errorf("%d deliveries count an attempt that has not ended", counted)
	}
}

// TestTheQueueEndsInOrder stops the queue while four of ten deliveries are under way, which take three
// seconds more. It finishes these and releases the others.
func TestTheQueueEndsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		id, _ := s.endpoint(t, "a.example")
		in, stop := s.deliver(t)
		in.setAnswer(func(received) *http.Response {
			time.Sleep(4 * time.Second)
			return status(200)
		})
		s.createMany(t, 10)
		s.queue.wake()
		time.Sleep(time.Second)

		if took := stopAfter(stop); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("stopping takes %s, want until the attempts have ended", took)
		}
		s.wantDeliveries(t, id, "4 delivered, 6 pending")
		s.wantReleased(t)
	})
}

// TestAHangingReceiverDoesNotHoldUpTheStop stops the queue while attempts hang. They get five seconds, and
// are then as if they had not been made.
func TestAHangingReceiverDoesNotHoldUpTheStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		id, _ := s.endpoint(t, "a.example")
		in, stop := s.deliver(t)
		in.setAnswer(func(received) *http.Response { return nil })
		s.createMany(t, 10)
		s.queue.wake()
		time.Sleep(time.Second)
		if n := len(in.take()); n != 4 {
			t.Errorf("%d attempts are under way, want 4", n)
		}

		if took := stopAfter(stop); took != attemptsGrace {
			t.Errorf("stopping takes %s, want %s", took, attemptsGrace)
		}
		s.wantDeliveries(t, id, "10 pending")
		s.wantReleased(t)
		if failures := scalar[int](t, s.db, "SELECT failures FROM endpoints"); failures != 0 {
			t.Errorf("the endpoint has %d failures, want 0", failures)
		}
	})
}

// TestNothingIsSentThatCouldNotBeClaimed lets all commits fail, as on a full disk. A delivery that was sent
// without being claimed would be sent again and again.
func TestNothingIsSentThatCouldNotBeClaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		id, _ := s.endpoint(t, "a.example")
		s.create(t, "teh", 1)

		var full atomic.Bool
		err := s.db.writer.with(func(c *connection) error {
			c.raw.RegisterCommitHook(func() int {
				if full.Load() {
					return 1 // SQLite rolls back instead of committing
				}
				return 0
			})
			return nil
		})
		must(t, err)

		full.Store(true)
		in, _ := s.deliver(t)
		for range 5 {
			s.settle()
		}
		in.takeNone(t)

		full.Store(false)
		s.settle()
		in.takeOne(t)
		s.wantDeliveries(t, id, "1 delivered")
	})
}

// TestResend resends the failed deliveries of events since a time, to one of two endpoints.
func TestResend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		id, _ := s.endpoint(t, "a.example")
		other, _ := s.endpoint(t, "other.example")
		orderID := s.create(t, "teh", 1)
		time.Sleep(time.Second)
		since := timeOf(time.Now())
		s.move(t, orderID, OwnerApproves)
		s.move(t, orderID, OwnerRefunds)

		s.exec(t, "UPDATE deliveries SET status = 'failed', next_at = NULL")
		n, err := s.db.ResendSince(t.Context(), s.storeID, id, since)
		must(t, err)
		if n != 2 {
			t.Errorf("%d deliveries are resent, want 2", n)
		}

		delivery := scalar[string](t, s.db, "SELECT min(id) FROM deliveries WHERE endpoint_id = ?", id)
		refused := []struct{ store, delivery, endpoint string }{
			{"another", delivery, id},
			{s.storeID, "unknown", "unknown"},
		}
		for _, c := range refused {
			_, err := s.db.ResendDelivery(t.Context(), c.store, c.delivery)
			if err != errNotFound {
				t.Errorf("resend delivery %v: %v, want %v", c, err, errNotFound)
			}
			_, err = s.db.ResendSince(t.Context(), c.store, c.endpoint, 0)
			if err != errNotFound {
				t.Errorf("resend since %v: %v, want %v", c, err, errNotFound)
			}
		}

		s.deliver(t)
		s.settle()
		s.wantDeliveries(t, id, "2 delivered, 1 failed")
		s.wantDeliveries(t, other, "3 failed")
	})
}
