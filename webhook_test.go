package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestSignatureVector(t *testing.T) {
	t.Parallel()
	const secret = "whsec_dGVzdC1zZWNyZXQtZm9yLWRvY3Mtb25seS0wMDAwMDE="
	const body = `{"id":"evt_0190f5a0-0000-7000-8000-000000000001","event":"orderCreated"}`
	const want = "bbebdde7aab85a35b73c87f184b8197c10f1d29b66d946c8e696687e3a2ba84a"
	if got := sign(secret, 1700000000, []byte(body)); got != want {
		t.Errorf("signed %s, want %s", got, want)
	}
}

// TestRetriesFor75Hours is a receiver that fails for three days: it gets the same bytes ten times, ever more
// seldom, and once more when the operator wants it.
func TestRetriesFor75Hours(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		id := w.endpoint("shop.example", "orderCreated")
		w.net.inbox.answer = func(webhook) string { return "500" }
		begun := time.Now()
		w.create(t, "kopi", 1)
		w.sleep(92 * time.Hour)

		waits := []time.Duration{0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute}
		for _, hours := range []time.Duration{2, 5, 10, 14, 20, 24} {
			waits = append(waits, hours*time.Hour)
		}
		all := w.net.inbox.take()
		if len(all) != len(waits) {
			t.Fatalf("%d attempts, want %d", len(all), len(waits))
		}
		before := begun
		for i, h := range all {
			wait := h.at.Sub(before)
			if wait < waits[i]*8/10 || wait > waits[i]*12/10+2*time.Second {
				t.Errorf("attempt %d comes after %s, want %s", i+1, wait, waits[i])
			}
			if h.attempt != i+1 || h.body != all[0].body || h.delivery != all[0].delivery {
				t.Errorf("attempt %d is not the same: %+v", i+1, h)
			}
			before = h.at
		}

		w.net.inbox.answer = nil
		w.command("webhook resend -delivery " + all[0].delivery)
		w.sleep(time.Minute)
		if again := w.net.inbox.take(); len(again) != 1 || again[0].body != all[0].body {
			t.Errorf("sent again: %+v", again)
		}
		w.command("webhook resend -endpoint " + id + " -since 2000-01-01")
		w.sleep(2 * time.Hour)
		if more := w.net.inbox.take(); len(more) > 0 {
			t.Errorf("sent once more after it was received: %+v", more)
		}
	})
}

// TestWaits is about the answers of testdata/waits.txt: how long the second attempt waits.
func TestWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cases := readCases(t, "testdata/waits.txt")
		answers := map[string]string{}
		for i, c := range cases {
			s := []*store{w.shop, w.other}[i%2]
			w.endpointOf(s, c.column(0)+".example")
			_, after, _ := strings.Cut(c.column(4), ": ")
			answers[c.column(0)+".example"] = strings.Replace(c.column(1), "none", "hang", 1) + " " + after
		}
		w.net.inbox.answer = func(h webhook) string { return answers[h.host] }
		w.create(t, "teh", 1)
		w.orderOfOther("teh", 1).want(t, 201, "")
		w.sleep(time.Minute)

		first, second := map[string]time.Time{}, map[string]time.Duration{}
		for _, h := range w.net.inbox.take() {
			if h.attempt == 1 {
				first[h.host] = h.at
			} else if h.attempt == 2 {
				second[h.host] = h.at.Sub(first[h.host])
			}
		}
		for _, c := range cases {
			least, _ := strconv.Atoi(c.column(2))
			most, _ := strconv.Atoi(c.column(3))
			got := second[c.column(0)+".example"]
			if c.column(1) == "none" {
				got -= 15 * time.Second
			}
			if got < time.Duration(least)*time.Second || got > time.Duration(most)*time.Second+time.Second/2 {
				t.Errorf("%s waits %s, want %d to %d s", c.name, got, least, most)
			}
		}
	})
}

// TestRemovedEndpoint is shown nowhere, gets nothing and makes room for another one. It goes within the hour.
func TestRemovedEndpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.net.inbox.answer = func(webhook) string { return "500" }
		var ids []string
		for i := range 10 {
			ids = append(ids, w.endpoint(fmt.Sprintf("shop%d.example", i)))
		}
		w.create(t, "teh", 1)
		w.sleep(0)
		w.refused("webhook add -url https://more.example/hook -store "+w.shop.id, "as many")
		for _, id := range ids {
			w.command("webhook remove -endpoint " + id)
			w.refused("webhook remove -endpoint "+id, "this id")
			w.refused("webhook resend -since 1999-01-01T00:00:00Z -endpoint "+id, "this id")
		}
		w.net.inbox.take()
		more := w.endpoint("more.example")
		w.sleep(30 * time.Minute)
		if got := w.net.inbox.take(); len(got) > 0 {
			t.Errorf("removed endpoints still get %d events", len(got))
		}
		if list := fmt.Sprint(w.command("webhook list -store " + w.shop.id)); strings.Count(list, "endpoint_id") != 1 {
			t.Errorf("the list is not one endpoint: %s", list)
		}
		for _, want := range []string{"11", "1"} {
			if got := w.value("SELECT count(*) FROM endpoints"); got != want {
				t.Errorf("there are %s endpoints, want %s", got, want)
			}
			w.sleep(time.Hour)
		}
		w.command("webhook remove -endpoint " + more)
	})
}

// TestEventsOfAnOrderFollowEachOther sends a hundred orders with three events each to a receiver that takes a
// while, and to one that refuses each first event once. The service crashes in between.
func TestEventsOfAnOrderFollowEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.endpoint("quick.example")
		var orders []string
		takes := func(h webhook) time.Duration { // not in the order of asking
			return []time.Duration{10, 1500, 300}[int(h.delivery[len(h.delivery)-1])%3] * time.Millisecond
		}
		w.net.inbox.answer = func(h webhook) string { return takes(h).String() }
		p := newPlayer(t, w)
		for range 40 {
			p.play("order teh 1 bank_transfer, buyer claim")
			orders = append(orders, p.order)
		}
		w.crash()
		for _, id := range orders {
			w.do(t, "POST", "/v1/orders/"+id+"/approve", "{}", as(w.shop.keys["manage"])...).want(t, 200, "")
		}
		w.sleep(10 * time.Minute)

		last, ends, bodies := map[string]int{}, map[string]time.Time{}, map[string]string{}
		for _, h := range w.net.inbox.take() {
			var event struct{ Sequence int }
			must(t, json.Unmarshal([]byte(h.body), &event))
			again := last[h.order] == event.Sequence
			if !again && (last[h.order] != event.Sequence-1 || h.at.Before(ends[h.order])) {
				t.Errorf("event %d comes after %d, perhaps before that is acknowledged", event.Sequence, last[h.order])
			}
			last[h.order], ends[h.order] = event.Sequence, h.at.Add(takes(h))
			if before := bodies[h.id]; before != "" && before != h.body {
				t.Errorf("two bodies of an event:\n%s\n%s", before, h.body)
			}
			bodies[h.id] = h.body
		}
		if len(bodies) != 3*len(orders) {
			t.Errorf("%d events have come, want %d", len(bodies), 3*len(orders))
		}
	})
}

// neighbours makes a hundred more stores with ten endpoints each, at e0.example to e999.example.
func (w *world) neighbours(didWell int) {
	w.sql(`
		WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 99)
		INSERT INTO stores (id, name, slug, plan, expiry_ms, owner_email, password_salt, password_hash, created_at)
		SELECT 'store-' || i, 'N', 'n-' || i, 'growth', 86400000, 'n' || i || '@example.id', x'00', x'00', 0 FROM n`)
	w.sql(`
		WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 999)
		INSERT INTO endpoints (id, store_id, kind, url, events, secret, did_well, created_at)
		SELECT 'e-' || i, 'store-' || (i / 10), 'webhook', 'https://e' || i || '.example/', '[]', 's', ?, 0 FROM n`,
		didWell)
	for i := range 1000 {
		w.net.inbox.secrets[fmt.Sprintf("e%d.example", i)] = []string{"s"}
	}
}

// ringAll gives each endpoint of the neighbours five events.
func (w *world) ringAll(round int) {
	w.sql(`
		WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 499)
		INSERT INTO events (id, store_id, event, created_at, body)
		SELECT 'x-' || ? || '-' || i, 'store-' || (i / 5), 'ping', ?,
		       '{"id":"x-' || ? || '-' || i || '","event":"ping"}' FROM n`, round, time.Now().UnixMilli(), round)
	w.sql(`
		INSERT INTO deliveries (id, endpoint_id, event, next_at)
		SELECT e.id || '-' || v.number, e.id, v.number, ?
		FROM   events v JOIN endpoints e ON e.store_id = v.store_id
		WHERE  v.id LIKE 'x-' || ? || '-%'`, time.Now().UnixMilli(), round)
}

// TestAThousandEndpointsHang lets a thousand endpoints of other stores begin to hang, or be slow. The attempts
// under way stay within their limits, and a store whose endpoint works notices nothing, or once: if they all
// did well until then.
func TestAThousandEndpointsHang(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer  string
		didWell int
		atFirst time.Duration // how long the good one may wait in the first minute
	}{
		{"hang", 0, time.Second},
		{"hang", 1, 65 * time.Second},
	} {
		t.Run(fmt.Sprint(c.answer, " and did well ", c.didWell), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.ruin = true // which would read all of their events
				w.endpoint("good.example")
				w.create(t, "teh", 1)
				w.sleep(0)
				w.neighbours(c.didWell)
				w.net.inbox.take()
				w.net.inbox.answer = func(h webhook) string {
					return map[bool]string{true: "200", false: c.answer}[h.host == "good.example"]
				}

				tried, late := map[string]bool{}, time.Duration(0)
				for minute := range 4 {
					w.ringAll(minute)
					time.Sleep(3 * time.Second)
					begun := time.Now()
					w.create(t, "teh", 1)
					time.Sleep(75 * time.Second)
					wait := time.Duration(-1)
					for _, h := range w.net.inbox.take() {
						tried[h.host] = true
						if h.host == "good.example" {
							wait = h.at.Sub(begun)
						}
					}
					limit := time.Second
					if minute == 0 {
						limit = c.atFirst
					}
					if wait < 0 || wait > limit {
						t.Errorf("in minute %d the good one waits %s", minute, wait)
					}
					late = max(late, wait)
				}
				for range 30 { // They are drawn at random, so a few wait long.
					if len(tried) < 1001 {
						time.Sleep(time.Minute)
					}
					for _, h := range w.net.inbox.take() {
						tried[h.host] = true
					}
				}
				if len(tried) != 1001 {
					t.Errorf("%d endpoints were tried, want all", len(tried))
				}
				in := w.net.inbox
				in.mu.Lock()
				defer in.mu.Unlock()
				if in.most[""] > 256 || in.most[""] < 100 {
					t.Errorf("%d attempts were under way at once, want 256 at most", in.most[""])
				}
				for host, n := range in.most {
					if host != "" && n > 4 {
						t.Errorf("%d attempts to %s were under way at once, want 4 at most", n, host)
					}
				}
				t.Log("the good one waited ", late)
			})
		})
	}
}

// TestResentWhileUnderWay resends a delivery whose second attempt is under way. The receiver gets it once more,
// whatever becomes of that attempt.
func TestResentWhileUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.endpoint("shop.example", "orderCreated")
		var sent atomic.Int64
		w.net.inbox.answer = func(webhook) string { return []string{"500", "3s", "200"}[sent.Add(1)-1] }
		w.create(t, "teh", 1)
		w.net.inbox.await(1)
		second := w.net.inbox.await(1)[0]
		w.command("webhook resend -delivery " + second.delivery)
		w.sleep(time.Minute)
		if again := w.net.inbox.take(); len(again) != 1 || again[0].attempt != 1 || again[0].body != second.body {
			t.Errorf("it comes again as %+v", again)
		}
	})
}

// TestSecretsAndPings rotates an endpoint's secret, with a double click: for a day the old one and the new one
// sign.
func TestSecretsAndPings(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.kept["page"] = "/dashboard/endpoints/" + w.endpoint("shop.example", "orderPaid")
		p.play("owner open $page, press ping, +1s, press rotate, open $page, press rotate, keep new whsec_[\\w-]+")
		in := w.net.inbox
		in.secrets["shop.example"] = []string{p.kept["new"], in.secrets["shop.example"][0]}
		p.play("+23h", "owner open $page, press ping")
		w.sleep(time.Hour)
		in.secrets["shop.example"] = in.secrets["shop.example"][:1]
		p.play("owner open $page, press ping")
		w.sleep(time.Minute)
		var events []string
		for _, h := range in.take() {
			events = append(events, h.event)
		}
		if fmt.Sprint(events) != "[ping ping ping]" {
			t.Errorf("the endpoint got %v", events)
		}
	})
}

func TestPrivateRanges(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/private-ranges.txt") {
		p := netip.MustParsePrefix(c.column(0))
		bits := p.Addr().AsSlice()
		for i := p.Bits(); i < len(bits)*8; i++ {
			bits[i/8] |= 0x80 >> (i % 8)
		}
		last, _ := netip.AddrFromSlice(bits)
		for addr, want := range map[netip.Addr]string{
			p.Addr().Prev(): c.column(1),
			p.Addr():        "private",
			last:            "private",
			last.Next():     c.column(2),
		} {
			if addr.IsValid() == (want == "none") {
				t.Errorf("%s: want %s", addr, want)
			}
			for _, written := range []netip.Addr{addr, netip.AddrFrom16(addr.As16())} {
				if isPublic(written) != (want == "public") {
					t.Errorf("%s is public: %t, want %s", written, isPublic(written), want)
				}
			}
		}
	}
	for _, c := range readCases(t, "testdata/addresses.txt") {
		if got := isPublic(netip.MustParseAddr(c.column(0))); got != (c.heading == "public") {
			t.Errorf("%s is public: %t", c.column(0), got)
		}
	}
}

// TestAddressesOfEndpoints is about the addresses of testdata/webhook-urls.txt.
func TestAddressesOfEndpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range readCases(t, "testdata/webhook-urls.txt") {
		want, _, private := strings.Cut(c.heading, " with private addresses")
		args := []string{"-url", c.column(0)}
		if private {
			args = append(args, "-webhook-allow-private")
		}
		code, _, errs := w.run("webhook add -store "+w.shop.id, args...)
		if got := map[bool]string{true: "accepted", false: "refused"}[code == 0]; got != want {
			t.Errorf("%s: %s, want %s: %s", c.name, got, want, errs)
		}
	}
}

// TestReceiversOnSockets sends webhooks as they go to the internet: not to this machine unless that is allowed,
// and without following where a receiver leads.
func TestReceiversOnSockets(t *testing.T) {
	t.Parallel()
	var asked, redirected atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("a webhook accepts an encoding")
		}
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(rw, r, "/target", http.StatusTemporaryRedirect)
		case "/target":
			redirected.Add(1)
		case "/long":
			rw.WriteHeader(400)
			fmt.Fprint(rw, "\xff"+strings.Repeat("y", 9_999))
		case "/switch": // It takes the connection over, and is silent.
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err == nil {
				t.Cleanup(func() { conn.Close() })
				fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			}
		}
	}))
	defer receiver.Close()
	for _, allowed := range []bool{false, true} {
		w := newWorld(t)
		w.stop()
		for _, path := range []string{"/x", "/redirect", "/long", "/switch"} {
			w.command("webhook add -webhook-allow-private -store "+w.shop.id, "-url", receiver.URL+path)
		}
		w.command("webhook add -webhook-allow-private -store "+w.shop.id, "-url", "http://127.0.0.1:1/secret-path")
		if allowed {
			w.flags = append(w.flags, "-webhook-allow-private")
		}
		w.startProcess("")
		w.create(t, "teh", 1)
		list := ""
		await(t, "all were tried", func() bool {
			list = fmt.Sprint(w.command("webhook list -store " + w.shop.id))
			return strings.Count(list, "tried_at") == 5
		})
		texts := []string{"no public host"}
		if allowed {
			texts = []string{"answer_status:101", "answer_status:307", "answer_status:400", "answer:\ufffdyyy",
				"delivered", "refused"}
		}
		for _, text := range texts {
			if !strings.Contains(list, text) {
				t.Errorf("%q is not in %s", text, list)
			}
		}
		if !allowed && asked.Load() > 0 || redirected.Load() > 0 || strings.Count(list, "y") > 5000 {
			t.Errorf("allowed %t: a receiver was asked %d times, redirected %d", allowed, asked.Load(),
				redirected.Load())
		}
	}
}

// TestEventFeed reads what a receiver has missed, page by page, and prints it as it comes.
func TestEventFeed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		w.endpoint("shop.example")
		p.play("order teh 1 bank_transfer as A", "order kopi 1 bank_transfer as B, buyer claim, owner approve B", "+1s")
		sent := map[string]bool{}
		for _, h := range w.net.inbox.take() {
			sent[h.body] = true
		}
		r := w.get(t, "/v1/events?limit=50")
		var raw struct {
			Data struct{ Events []json.RawMessage }
		}
		must(t, json.Unmarshal(r.Body, &raw))
		for _, body := range raw.Data.Events {
			if !sent[string(body)] {
				t.Errorf("this was never sent: %s", body)
			}
		}
		walked := []string{}
		for path := "/v1/events?limit=1"; len(walked) < 9; {
			r := w.get(t, path)
			walked = append(walked, r.at("events.0.event"))
			if r.at("has_more") == "false" {
				break
			}
			path = "/v1/events?limit=1&after=" + strings.ToUpper(r.at("events.0.id"))
		}
		if fmt.Sprint(walked) != "[orderCreated orderCreated orderAwaitingVerification orderPaid]" {
			t.Errorf("page by page these are %v", walked)
		}
		w.sleep(time.Second)
		since := time.Now().UTC().Format(time.RFC3339Nano) // which is when the next order is created
		w.create(t, "teh", 1)
		later := time.Now().Add(time.Millisecond).UTC().Format(time.RFC3339Nano)
		for query, want := range map[string]int{
			"event=orderPaid":                              1,
			"order_id=" + strings.ToUpper(p.kept["A"]):     1,
			"order_id=" + p.kept["B"]:                      3,
			"order_id=" + p.kept["B"] + "&event=ping":      0,
			"created_at_min=" + since:                      1,
			"created_at_min=" + since + "&event=orderPaid": 0,
			"created_at_min=" + later:                      0,
		} {
			if n := len(w.get(t, "/v1/events?"+query).list("events")); n != want {
				t.Errorf("%s: %d events, want %d", query, n, want)
			}
		}
		w.get(t, "/v1/events?order_id="+p.kept["B"], as(w.other.keys["read"])...).has(t, "events []")
		w.do(t, "GET", "/v1/events?order_id=x", nil).want(t, 400, "INVALID_REQUEST")
		last := r.at("events.3.id")
		w.do(t, "GET", "/v1/events?after="+last, nil, as(w.other.keys["read"])...).want(t, 400, "INVALID_REQUEST")
	})
}

// TestCrashBetweenSendingAndWriting kills the service while receivers work. What they have not acknowledged comes
// again with the same bytes, as the first attempt.
func TestCrashBetweenSendingAndWriting(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.endpoint("shop.example")
		w.net.inbox.answer = func(webhook) string { return "3s" }
		w.create(t, "teh", 1)
		time.Sleep(time.Second)
		first := w.net.inbox.take()
		w.crash()
		w.sleep(time.Minute)
		again := w.net.inbox.take()
		if len(first) != 1 || len(again) != 1 || again[0].body != first[0].body || again[0].attempt != 1 ||
			again[0].delivery != first[0].delivery {
			t.Errorf("before the crash %+v, after it %+v", first, again)
		}
		if !slices.ContainsFunc(w.all("events", "after", w.shop.keys["read"]), func(e fields) bool {
			return textOf(e, "id") == first[0].id
		}) {
			t.Error("the event is not listed")
		}
	})
}
