//go:build cgo

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-sqlite3"
)

func TestSignature(t *testing.T) {
	t.Parallel()
	const secret, stamp = "whsec_dGVzdC1zZWNyZXQtZm9yLWRvY3Mtb25seS0wMDAwMDE=", int64(1_700_000_000)
	const body = `{"id":"evt_0190f5a0-0000-7000-8000-000000000001","event":"orderCreated"}`
	const golden = "bbebdde7aab85a35b73c87f184b8197c10f1d29b66d946c8e696687e3a2ba84a"
	if got, byHand := sign(secret, stamp, []byte(body)), hmacByHand(secret, fmt.Sprintf("%d.%s", stamp, body)); got != golden || byHand != golden {
		t.Errorf("sign %s, by hand %s, want %s", got, byHand, golden)
	}
	old := sign(secret, stamp-1000, []byte(body))
	now := time.Unix(stamp, 0)
	for _, c := range []struct {
		name, header string
		now          time.Time
		want         bool
	}{
		{"right", "t=1700000000,v1=" + golden, now, true},
		{"right among two", "t=1700000000,v1=" + strings.Repeat("0", 64) + ",v1=" + golden, now, true},
		{"five minutes old", "t=1700000000,v1=" + golden, now.Add(5 * time.Minute), true},
		{"five minutes ahead", "t=1700000000,v1=" + golden, now.Add(-5 * time.Minute), true},
		{"too old", "t=1700000000,v1=" + golden, now.Add(5*time.Minute + time.Second), false},
		{"too far ahead", "t=1700000000,v1=" + golden, now.Add(-5*time.Minute - time.Second), false},
		{"another time", "t=1700000001,v1=" + golden, now, false},
		{"wrong", "t=1700000000,v1=" + strings.Replace(golden, "b", "c", 1), now, false},
		{"no signature", "t=1700000000", now, false},
		{"no time", "v1=" + golden, now, false},
		{"empty", "", now, false},
		{"another scheme", "t=1700000000,v0=" + golden, now, false},
		{"an old one with a new time behind", "t=1699999000,v1=" + old + ",t=1700000000", now, false},
		{"an old one with a new time before", "t=1700000000,t=1699999000,v1=" + old, now, false},
	} {
		if got := verifySignature(secret, c.header, []byte(body), c.now); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	if verifySignature(secret, "t=1700000000,v1="+golden, []byte(body+" "), now) {
		t.Error("another body is taken")
	}
	if verifySignature("whsec_other", "t=1700000000,v1="+golden, []byte(body), now) {
		t.Error("another secret is taken")
	}
}

func TestRotatedSecretsBothSignForADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = time.Hour
		in, _ := s.deliver(t)
		id, old := s.endpoint(t, "a.example")
		fresh := newSecret()
		for _, step := range []struct {
			before  func()
			secrets []string
		}{
			{func() {}, []string{old}},
			{func() { s.db.RotateSecret(t.Context(), s.storeID, id, fresh) }, []string{fresh, old}},
			{func() { time.Sleep(23*time.Hour + 59*time.Minute) }, []string{fresh, old}},
			{func() { time.Sleep(time.Minute) }, []string{fresh}},
		} {
			step.before()
			s.create(t, "teh", 1)
			s.settle()
			if got := in.take(); len(got) == 1 {
				got[0].signedBy(t, 1, step.secrets...)
			} else {
				t.Errorf("%d deliveries", len(got))
			}
		}
	})
}

func TestRetrySchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = 1000 * time.Hour // the test wakes it
		in, _ := s.deliver(t)
		in.setAnswer(func(received) *http.Response { return status(500) })
		endpoint, secret := s.endpoint(t, "a.example")
		orderID := s.create(t, "kopi", 2)
		designed := []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour}
		var first received
		var ratios []float64
		for n := 1; n <= 10; n++ {
			s.queue.wake()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			got := in.take()
			if len(got) != 1 {
				t.Fatalf("attempt %d: %d requests", n, len(got))
			}
			got[0].signedBy(t, n, secret)
			if n == 1 {
				first = got[0]
				if first.event.Event != "orderCreated" || first.event.Sequence != 1 || first.event.Data.Order["id"] != orderID {
					t.Errorf("event %s", first.body)
				}
			}
			if got[0].body != first.body || got[0].header.Get("X-Service-Delivery-Id") != first.header.Get("X-Service-Delivery-Id") {
				t.Errorf("attempt %d differs from the first: %v %s", n, got[0].header, got[0].body)
			}
			if n == 10 {
				break
			}
			next := scalar[Time](t, s.db, "SELECT next_at FROM deliveries").Time()
			wait := next.Sub(got[0].at)
			if low, high := designed[n-1]*8/10-time.Millisecond, designed[n-1]*12/10+time.Millisecond; wait < low || wait > high {
				t.Errorf("wait after attempt %d is %s, want %s to %s", n, wait, low, high)
			}
			ratios = append(ratios, float64(wait)/float64(designed[n-1]))
			time.Sleep(time.Until(next) - 100*time.Millisecond)
			s.queue.wake()
			time.Sleep(50 * time.Millisecond)
			if synctest.Wait(); len(in.take()) > 0 {
				t.Errorf("attempt %d came too early", n+1)
			}
			time.Sleep(time.Until(next))
		}
		if slices.Max(ratios)-slices.Min(ratios) < 0.01 {
			t.Errorf("the waits are not spread: %v", ratios)
		}
		if got := s.deliveries(t, endpoint); got != "1 failed" {
			t.Errorf("after ten attempts: %s", got)
		}
		time.Sleep(1001 * time.Hour)
		if synctest.Wait(); len(in.take()) > 0 {
			t.Error("an eleventh attempt")
		}
		// It can be sent again, from its first attempt.
		in.setAnswer(nil)
		delivery := first.header.Get("X-Service-Delivery-Id")
		if n, err := s.db.Resend(t.Context(), s.storeID, delivery, "", 0); n != 1 || err != nil {
			t.Errorf("resend %d: %v", n, err)
		}
		s.settle()
		if got := in.take(); len(got) == 1 && got[0].body == first.body {
			got[0].signedBy(t, 1, secret)
		} else {
			t.Errorf("sent again: %d", len(got))
		}
		if got := s.deliveries(t, endpoint); got != "1 delivered" || scalar[int](t, s.db, "SELECT failures FROM endpoints") != 0 {
			t.Errorf("sent again: %s", got)
		}
	})
}

func TestWaitAfterAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		cases := []struct {
			host      string
			answer    func() *http.Response // nil hangs
			low, high time.Duration         // of the wait after the answer
			kept      int                   // answer_status, 0: none
		}{
			{"error", func() *http.Response { return status(500, "Retry-After", "3600") }, 4, 6, 500},
			{"longer", func() *http.Response { return status(503, "Retry-After", "7") }, 7, 7, 503},
			{"twice-at-most", func() *http.Response { return status(503, "Retry-After", "3600") }, 8, 12, 503},
			{"rate", func() *http.Response { return status(429, "Retry-After", "7") }, 7, 7, 429},
			{"shorter", func() *http.Response { return status(429, "Retry-After", "1") }, 4, 6, 429},
			{"junk", func() *http.Response { return status(503, "Retry-After", "soon") }, 4, 6, 503},
			{"negative", func() *http.Response { return status(503, "Retry-After", "-1") }, 4, 6, 503},
			{"date", func() *http.Response {
				return status(503, "Retry-After", time.Now().Add(8*time.Second).UTC().Format(http.TimeFormat))
			}, 7, 8, 503},
			{"redirect", func() *http.Response { return status(302, "Location", "https://elsewhere.example/") }, 4, 6, 302},
			{"hang", nil, 4, 6, 0},
		}
		var ended sync.Map // when each host's attempt ended
		in.setAnswer(func(r received) *http.Response {
			for _, c := range cases {
				if c.host+".example" == r.host {
					if c.answer == nil {
						ended.Store(r.host, time.Now().Add(15*time.Second)) // all that an attempt may take
						return nil
					}
					ended.Store(r.host, time.Now())
					return c.answer()
				}
			}
			t.Errorf("%s was asked", r.host)
			return status(200)
		})
		for _, c := range cases {
			s.endpoint(t, c.host+".example")
		}
		begin := time.Now()
		s.create(t, "teh", 1)
		type row struct {
			next   Time
			status *int
		}
		for _, c := range cases {
			read := func() row {
				r, err := one(s.db.reader, func(r *row) []any { return []any{&r.next, &r.status} },
					"SELECT next_at, answer_status FROM deliveries d JOIN endpoints e ON e.id = d.endpoint_id WHERE e.url LIKE 'https://' || ? || '.%' AND tried_at IS NOT NULL", c.host)
				if err != nil {
					t.Errorf("%s: %v", c.host, err)
				}
				return r
			}
			if c.answer == nil {
				time.Sleep(time.Until(begin.Add(16 * time.Second)))
			} else {
				time.Sleep(time.Until(begin.Add(time.Second)))
			}
			synctest.Wait()
			r := read()
			end, _ := ended.Load(c.host + ".example")
			wait := r.next.Time().Sub(end.(time.Time))
			if wait < c.low*time.Second-time.Millisecond || wait > c.high*time.Second+time.Millisecond {
				t.Errorf("%s: %s to wait, want %d to %d s", c.host, wait, c.low, c.high)
			}
			if kept := 0; r.status != nil && *r.status != c.kept || r.status == nil && c.kept != kept {
				t.Errorf("%s: kept status %v, want %d", c.host, r.status, c.kept)
			}
		}
		// By itself, without a wake, the queue finds what falls due.
		time.Sleep(12 * time.Second)
		synctest.Wait()
		second := map[string]bool{}
		for _, r := range in.take() {
			second[r.host] = second[r.host] || r.header.Get("X-Service-Attempt") == "2"
		}
		for host, came := range second {
			if !came {
				t.Errorf("%s: no second attempt by itself", host)
			}
		}
	})
}

func TestGoneTurnsAnEndpointOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = time.Minute
		in, _ := s.deliver(t)
		in.setAnswer(func(received) *http.Response { return status(410) })
		id, _ := s.endpoint(t, "a.example")
		s.create(t, "teh", 1)
		s.settle()
		in.setAnswer(nil)
		s.create(t, "teh", 1)
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		list, err := s.db.Endpoints(s.storeID, 20)
		if err != nil || list[0].Active || list[0].OffReason != OffGone || s.deliveries(t, id) != "2 pending" || len(in.take()) != 1 {
			t.Errorf("after a 410: %+v %v, %s", list, err, s.deliveries(t, id))
		}
		if err := s.db.SwitchEndpoint(t.Context(), s.storeID, id, true, ""); err != nil {
			t.Fatal(err)
		}
		s.settle()
		if s.deliveries(t, id) != "2 delivered" {
			t.Errorf("on again: %s", s.deliveries(t, id))
		}
	})
}

func TestInFlightLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		release := make(chan struct{})
		var mu sync.Mutex
		flying, total := map[string]int{}, 0
		in.setAnswer(func(r received) *http.Response {
			mu.Lock()
			flying[r.host]++
			total++
			if flying[r.host] > 4 || total > 32 {
				t.Errorf("%d in flight to %s, %d in all", flying[r.host], r.host, total)
			}
			mu.Unlock()
			<-release
			mu.Lock()
			defer mu.Unlock()
			flying[r.host]--
			total--
			return status(200)
		})
		var ids []string
		for i := range 40 { // half of the 32 go to those that have none under way
			id, _ := s.endpoint(t, fmt.Sprintf("e%d.example", i))
			ids = append(ids, id)
		}
		for range 20 {
			s.create(t, "teh", 1)
		}
		s.settle()
		if mu.Lock(); total != 32 {
			t.Errorf("%d in flight, want 32", total)
		}
		mu.Unlock()
		close(release)
		s.settle()
		for _, id := range ids {
			if got := s.deliveries(t, id); got != "20 delivered" {
				t.Errorf("%s: %s", id, got)
			}
		}
	})
}

func TestAFailingOrHangingEndpointHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = time.Minute
		in, _ := s.deliver(t)
		var mu sync.Mutex
		hanging, most := 0, 0
		mode := "fail"
		in.setAnswer(func(r received) *http.Response {
			if r.host == "good.example" {
				return status(204)
			}
			mu.Lock()
			defer mu.Unlock()
			if mode == "fail" {
				return status(500)
			}
			hanging++
			most = max(most, hanging)
			time.AfterFunc(15*time.Second, func() {
				mu.Lock()
				hanging--
				mu.Unlock()
			})
			return nil
		})
		bad, _ := s.endpoint(t, "bad.example")
		for range 5 { // five failures in a row leave it one at a time
			s.create(t, "teh", 1)
			s.settle()
		}
		good, _ := s.endpoint(t, "good.example")
		mu.Lock()
		mode = "hang"
		mu.Unlock()
		for range 60 {
			s.create(t, "teh", 1)
		}
		s.settle()
		if got := s.deliveries(t, good); got != "60 delivered" {
			t.Errorf("beside a hanging endpoint: %s", got)
		}
		time.Sleep(time.Hour)
		if synctest.Wait(); most != 1 {
			t.Errorf("%d at a time to an endpoint that failed five times", most)
		}
		mu.Lock()
		mode = "fail"
		mu.Unlock()
		time.Sleep(time.Minute)
		in.setAnswer(nil)
		time.Sleep(200 * time.Hour)
		if synctest.Wait(); s.deliveries(t, bad) != "65 delivered" {
			t.Errorf("after it recovered: %s", s.deliveries(t, bad))
		}
	})
}

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
		for i := range 6 { // 24 of 32 attempts, with a backlog each
			s.endpoint(t, fmt.Sprintf("slow%d.example", i))
		}
		for range 70 {
			s.create(t, "teh", 1)
		}
		s.settle()
		good, _ := s.endpoint(t, "good.example")
		for range 20 {
			s.create(t, "teh", 1)
		}
		s.settle()
		if got := s.deliveries(t, good); got != "20 delivered" {
			t.Errorf("beside slow endpoints: %s", got)
		}
	})
}

func TestLeasesOfACrashedProcessAreReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		id, _ := s.endpoint(t, "a.example")
		s.create(t, "teh", 1)
		claims, err := s.db.Dispatch(t.Context(), nil, nil)
		if err != nil || len(claims) != 1 {
			t.Fatalf("%d claims: %v", len(claims), err)
		}
		if again, err := s.db.Dispatch(t.Context(), nil, nil); err != nil || len(again) != 0 {
			t.Errorf("claimed twice: %v %v", again, err)
		}
		if n, err := s.db.Resend(t.Context(), s.storeID, claims[0].DeliveryID, "", 0); err != nil || n != 0 {
			t.Errorf("resent %d while it is being sent: %v", n, err)
		}
		in, stop := s.deliver(t) // another process begins
		s.settle()
		if got := in.take(); len(got) != 1 || got[0].header.Get("X-Service-Attempt") != "2" || s.deliveries(t, id) != "1 delivered" {
			t.Errorf("%d sent, %s", len(got), s.deliveries(t, id))
		}
		// One that ends gives back what it has not begun, and finishes what it has.
		release := make(chan struct{})
		in.setAnswer(func(received) *http.Response { <-release; return status(200) })
		for range 10 {
			s.create(t, "teh", 1)
		}
		s.settle()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			stop()
		}()
		s.settle()
		select {
		case <-ended:
			t.Error("it ends before its attempts are done")
		default:
		}
		close(release)
		<-ended
		if got := s.deliveries(t, id); got != "5 delivered, 6 pending" || scalar[int](t, s.db, "SELECT sum(leased) + sum(status = 'pending' AND attempt > 0) FROM deliveries") != 0 {
			t.Errorf("after the end: %s", got)
		}
	})
}

// What is claimed in a transaction that fails, as on a full disk, is not claimed: sent, it would be sent again and again.
func TestNothingIsSentThatCouldNotBeClaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		id, _ := s.endpoint(t, "a.example")
		s.create(t, "teh", 1)
		var failing atomic.Bool
		if err := withConn(t.Context(), s.db.writer, func(c *sqlite3.SQLiteConn) error {
			c.RegisterCommitHook(func() int {
				if failing.Load() {
					return 1 // the commit becomes a rollback
				}
				return 0
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		failing.Store(true)
		in, _ := s.deliver(t)
		for range 5 {
			s.settle()
		}
		if got := in.take(); len(got) != 0 {
			t.Errorf("%d sent that were not claimed", len(got))
		}
		failing.Store(false)
		s.settle()
		if got := in.take(); len(got) != 1 || s.deliveries(t, id) != "1 delivered" {
			t.Errorf("%d sent, %s", len(got), s.deliveries(t, id))
		}
	})
}

func TestEventsOfAnEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = time.Minute
		in, _ := s.deliver(t)
		all, _ := s.endpoint(t, "all.example")
		paid, _ := s.endpoint(t, "paid.example", "orderPaid", "orderRefunded")
		off, _ := s.endpoint(t, "off.example")
		if err := s.db.SwitchEndpoint(t.Context(), s.storeID, off, false, "by a test"); err != nil {
			t.Fatal(err)
		}
		_, lain := s.addStore(t, "lain", "growth")
		s.do(t, "GET", "/v1/orders", nil, "Authorization", "Bearer "+lain).want(t, 200, "")
		id := s.create(t, "teh", 1)
		move := func(m Transition) {
			t.Helper()
			if _, err := s.db.Transition(t.Context(), s.storeID, id, m, Note{}); err != nil {
				t.Fatal(err)
			}
			s.settle()
		}
		s.settle()
		between := time.Now()
		move(BuyerClaims)
		move(OwnerApproves)
		move(OwnerRefunds)
		var got []string
		for _, r := range in.take() {
			got = append(got, strings.TrimSuffix(r.host, ".example")+" "+r.event.Event+" "+fmt.Sprint(r.event.Sequence))
		}
		slices.Sort(got)
		if want := "all orderAwaitingVerification 2,all orderCreated 1,all orderPaid 3,all orderRefunded 4,paid orderPaid 3,paid orderRefunded 4"; strings.Join(got, ",") != want {
			t.Errorf("got %s\nwant %s", strings.Join(got, ","), want)
		}
		// What waits for an endpoint that is off is sent when it is on; what failed since a time can be sent again.
		if got := s.deliveries(t, off); got != "4 pending" {
			t.Errorf("off: %s", got)
		}
		if err := s.db.write(t.Context(), func(tx *Tx) error {
			return tx.mustChange("UPDATE deliveries SET status = 'failed', next_at = NULL WHERE endpoint_id IN (?, ?)", all, off)
		}); err != nil {
			t.Fatal(err)
		}
		if n, err := s.db.Resend(t.Context(), s.storeID, "", all, Time(between.UnixMilli())); n != 3 || err != nil {
			t.Errorf("resent %d: %v", n, err)
		}
		for _, c := range [][3]string{{"another", "", all}, {"another", claimless(t, s, all), ""}, {s.storeID, "", "unknown"}, {"", "unknown", ""}} {
			if n, err := s.db.Resend(t.Context(), c[0], c[1], c[2], 0); n != 0 || err != errNotFound {
				t.Errorf("resend %v: %d %v", c, n, err)
			}
		}
		s.settle()
		if got := s.deliveries(t, all); got != "3 delivered, 1 failed" {
			t.Errorf("sent again: %s", got)
		}
		in.take()
		if err := s.db.Ping(t.Context(), s.storeID, paid); err != nil {
			t.Fatal(err)
		}
		s.settle()
		if got := in.take(); len(got) != 1 || got[0].event.Event != "ping" || got[0].host != "paid.example" {
			t.Errorf("ping: %v", got)
		}
		// A removed endpoint gets nothing more, not even what was under way.
		if err := s.db.RemoveEndpoint(t.Context(), "another", all); err != errNotFound {
			t.Errorf("removed by another store: %v", err)
		}
		in.setAnswer(func(received) *http.Response { return status(500) })
		s.create(t, "teh", 1)
		s.settle()
		if err := s.db.RemoveEndpoint(t.Context(), s.storeID, all); err != nil {
			t.Fatal(err)
		}
		in.take()
		s.create(t, "teh", 1)
		time.Sleep(100 * time.Hour)
		if synctest.Wait(); len(in.take()) != 0 || s.deliveries(t, all) != "" {
			t.Errorf("removed: %s", s.deliveries(t, all))
		}
	})
}

// claimless is some delivery of an endpoint.
func claimless(t *testing.T, s *testServer, endpoint string) string {
	return scalar[string](t, s.db, "SELECT min(id) FROM deliveries WHERE endpoint_id = ?", endpoint)
}

func TestIsPublic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		denied        string
		before, after bool // whether the neighbours are public
	}{
		{"0.0.0.0/8", false, true}, {"10.0.0.0/8", true, true}, {"100.64.0.0/10", true, true}, {"127.0.0.0/8", true, true}, {"169.254.0.0/16", true, true},
		{"172.16.0.0/12", true, true}, {"192.0.0.0/24", true, true}, {"192.0.2.0/24", true, true}, {"192.88.99.0/24", true, true}, {"192.168.0.0/16", true, true},
		{"198.18.0.0/15", true, true}, {"198.51.100.0/24", true, true}, {"203.0.113.0/24", true, true}, {"224.0.0.0/4", true, false}, {"240.0.0.0/4", false, false},
		{"::/3", false, true}, {"2001::/23", true, true}, {"2001:db8::/32", true, true}, {"2002::/16", true, true}, {"3fff::/20", true, true}, {"4000::/2", true, false},
		{"8000::/1", false, false},
	} {
		p := netip.MustParsePrefix(c.denied)
		first := p.Addr()
		bits := first.AsSlice()
		for i := p.Bits(); i < len(bits)*8; i++ {
			bits[i/8] |= 0x80 >> (i % 8)
		}
		last, _ := netip.AddrFromSlice(bits)
		for addr, want := range map[netip.Addr]bool{first: false, last: false, first.Prev(): c.before, last.Next(): c.after} {
			if got := isPublic(addr); got != want {
				t.Errorf("%s (of %s): %t", addr, c.denied, got)
			}
			if addr.Is4() {
				if mapped := netip.AddrFrom16(addr.As16()); isPublic(mapped) != want {
					t.Errorf("%s (of %s): %t", mapped, c.denied, !want)
				}
			}
		}
	}
	for text, want := range map[string]bool{"8.8.8.8": true, "2606:4700::1111": true, "::1": false, "fe80::1%eth0": false, "2606:4700::1%eth0": true, "64:ff9b::808:808": false, "fd00::1": false} {
		if got := isPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestWebhookClient(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	var asked []string
	var mu sync.Mutex
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.Path+r.Header.Get("Accept-Encoding"))
		mu.Unlock()
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/target", http.StatusTemporaryRedirect)
		case "/long":
			w.WriteHeader(400)
			io.WriteString(w, "\xff"+strings.Repeat("y", 9_999))
		}
	}))
	t.Cleanup(receiver.Close)
	byName := strings.Replace(receiver.URL, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		name, url string
		private   bool
		asked     string
		status    int
		delivered bool
		answer    string // is in what is kept
	}{
		{"private address", receiver.URL + "/x", false, "", 0, false, "not a public address"},
		{"name of a private address", byName + "/x", false, "", 0, false, "not a public address"},
		{"allowed", receiver.URL + "/x", true, "/x", 200, true, ""},
		{"redirect", receiver.URL + "/redirect", true, "/redirect", 307, false, ""},
		{"long answer", receiver.URL + "/long", true, "/long", 400, false, "\ufffd"},
		{"nobody listens", "http://127.0.0.1:1/secret-path", true, "", 0, false, "refused"},
	} {
		asked = nil
		s.queue.client = newWebhookClient(c.private)
		r := s.queue.attempt(Claim{Attempt: 1, Body: []byte("{}"), Endpoint: Endpoint{URL: c.url, Secrets: []string{"s"}}})
		got := r.AnswerStatus
		if strings.Join(asked, ",") != c.asked || got != c.status || (r.State == DeliveryDelivered) != c.delivered || !strings.Contains(r.Answer, c.answer) || len(r.Answer) > 4096+len("\ufffd") ||
			strings.Contains(r.Answer, "secret-path") || (r.NextAt == nil) != c.delivered {
			t.Errorf("%s: asked %q, %d, %+v", c.name, asked, got, r)
		}
	}
	if newWebhookClient(true).Transport.(*http.Transport).Proxy != nil {
		t.Error("the client uses a proxy, which would dial for it")
	}
	for _, c := range []struct {
		url     string
		private bool
		ok      bool
	}{
		{"https://shop.example.id/hook", false, true}, {"https://shop.example.id:8443/hook?a=1", false, true}, {"http://shop.example.id/hook", false, false},
		{"http://10.0.0.1/", true, true}, {"https://10.0.0.1/", false, false}, {"https://[::1]/", false, false}, {"https://[::ffff:10.0.0.1]/", false, false},
		{"https://localhost/", false, false}, {"https://8.8.8.8/", false, true}, {"ftp://shop.example.id/", true, false}, {"https://u:p@shop.example.id/", false, false},
		{"https://shop.example.id/#f", false, false}, {"https://", false, false}, {"/hook", true, false}, {"", true, false}, {"https://a/" + strings.Repeat("x", 2048), false, false},
	} {
		if fault := checkWebhookURL(c.url, c.private); (fault == nil) != c.ok {
			t.Errorf("%s private=%t: %v", c.url, c.private, fault)
		}
	}
}
