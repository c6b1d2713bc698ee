//go:build cgo

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// listEvents asks for a store's events, and returns their bodies as they came.
func (s *testServer) listEvents(t *testing.T, query url.Values) (bodies []string, more bool) {
	t.Helper()
	r := s.get(t, "/v1/events?"+query.Encode())
	var answer struct {
		Data struct {
			Events  []json.RawMessage `json:"events"`
			HasMore bool              `json:"has_more"`
		}
	}
	must(t, json.Unmarshal(r.Body, &answer))
	for _, e := range answer.Data.Events {
		bodies = append(bodies, string(e))
	}
	return bodies, answer.Data.HasMore
}

func eventID(body string) string {
	var e struct{ ID string }
	json.Unmarshal([]byte(body), &e)
	return e.ID
}

// walkEvents asks for a store's events, page after page.
func (s *testServer) walkEvents(t *testing.T, query url.Values) (bodies []string) {
	t.Helper()
	for {
		page, more := s.listEvents(t, query)
		bodies = append(bodies, page...)
		if !more {
			return bodies
		}
		query.Set("after", eventID(page[len(page)-1]))
	}
}

// manyEvents writes events of every name for a store whose endpoint is endpoint.
func (s *testServer) manyEvents(t *testing.T, endpoint string) {
	t.Helper()
	for _, steps := range [][]Transition{
		{BuyerClaims, OwnerApproves, OwnerRefunds},
		{BuyerClaims, BuyerTakesBack},
		{ClockExpires},
		{OwnerCancels},
		{OwnerApproves},
	} {
		id := s.create(t, "kopi", 2)
		for _, step := range steps {
			s.move(t, id, step)
		}
	}

	// The last two pieces are sold to somebody else, and then the canceled order is paid after all.
	canceled := scalar[string](t, s.db, "SELECT id FROM orders WHERE status = 'failed'")
	left := scalar[int](t, s.db, "SELECT stock FROM products WHERE slug = 'kopi'")
	s.create(t, "kopi", left)
	s.move(t, canceled, OwnerApproves)
	must(t, s.db.Ping(t.Context(), s.storeID, endpoint))
}

// TestEventsAreListedAsSent has one receiver take every event, and another one that was offline ask for them: they have
// the same bytes.
func TestEventsAreListedAsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		endpoint, _ := s.endpoint(t, "a.example")
		s.manyEvents(t, endpoint)
		s.settle()

		var sent []string
		for _, r := range in.take() {
			sent = append(sent, r.body)
		}
		if len(sent) < 14 {
			t.Fatalf("only %d events were sent", len(sent))
		}

		listed := s.walkEvents(t, url.Values{"limit": {"3"}})
		inOrder := slices.Clone(listed)
		slices.SortFunc(inOrder, func(a, b string) int { return strings.Compare(eventID(a), eventID(b)) })
		if !slices.Equal(listed, inOrder) {
			t.Error("the events are not in the order in which they were written")
		}
		slices.Sort(sent)
		slices.Sort(listed)
		if !slices.Equal(listed, sent) {
			t.Errorf("listed:\n%s\nsent:\n%s", strings.Join(listed, "\n"), strings.Join(sent, "\n"))
		}
	})
}

// eventNames are the names of events in order, such as "orderCreated orderPaid".
func eventNames(bodies []string) string {
	var names []string
	for _, body := range bodies {
		var e struct{ Event string }
		json.Unmarshal([]byte(body), &e)
		names = append(names, e.Event)
	}
	return strings.Join(names, " ")
}

func TestEventFilters(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	endpoint, _ := s.endpoint(t, "a.example")
	s.manyEvents(t, endpoint)
	all := s.walkEvents(t, url.Values{})

	t.Run("every name alone", func(t *testing.T) {
		found := 0
		for _, name := range allEvents {
			bodies := s.walkEvents(t, url.Values{"event": {string(name)}, "limit": {"1"}})
			if len(bodies) == 0 {
				t.Errorf("no %s", name)
			}
			if strings.Trim(eventNames(bodies), " ") != strings.TrimSpace(strings.Repeat(string(name)+" ", len(bodies))) {
				t.Errorf("%s: %s", name, eventNames(bodies))
			}
			found += len(bodies)
		}
		if found != len(all) {
			t.Errorf("%d events by name, %d in all", found, len(all))
		}
	})

	order := scalar[string](t, s.db, "SELECT id FROM orders WHERE status = 'refunded'")
	t.Run("of one order", func(t *testing.T) {
		const want = "orderCreated orderAwaitingVerification orderPaid orderRefunded"
		bodies := s.walkEvents(t, url.Values{"order_id": {strings.ToUpper(order)}, "limit": {"3"}})
		if got := eventNames(bodies); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		bodies = s.walkEvents(t, url.Values{"order_id": {order}, "event": {"orderPaid"}})
		if got := eventNames(bodies); got != "orderPaid" {
			t.Errorf("%s, want orderPaid", got)
		}
	})

	t.Run("since a time", func(t *testing.T) {
		time.Sleep(2 * time.Millisecond)
		since := s.db.Now()
		s.createMany(t, 5)
		bodies := s.walkEvents(t, url.Values{"created_at_min": {since.String()}, "limit": {"2"}})
		if got, want := len(bodies), 5; got != want {
			t.Errorf("%d events, want %d: %s", got, want, eventNames(bodies))
		}

		later := since.Add(24 * time.Hour)
		if bodies := s.walkEvents(t, url.Values{"created_at_min": {later.String()}}); len(bodies) != 0 {
			t.Errorf("%d events since tomorrow", len(bodies))
		}
	})

	t.Run("of this store only", func(t *testing.T) {
		_, key := s.addStore(t, "lain", "growth")
		other := s.as(key)
		for _, query := range []url.Values{{}, {"order_id": {order}}, {"event": {"orderPaid"}}} {
			if bodies := other.walkEvents(t, query); len(bodies) != 0 {
				t.Errorf("%d events of another store for %v", len(bodies), query)
			}
		}
		other.do(t, "GET", "/v1/events?after="+eventID(all[0]), nil).wantRefusal(t,
			"400 INVALID_REQUEST after is not an event of this store")
	})
}

// TestEventsAreWhole creates an order whose texts look like what wholeEvent searches for. Its events are stored without its
// terms, and have them in the list and in webhooks.
func TestEventsAreWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		s.endpoint(t, "a.example")
		body := with(s.order("kopi", 1), "note", `","payment_reference":"x","checkout_url":`)
		body = with(body, "metadata", object{"payment_reference": "x", "checkout_url": "x", "status": "x"})
		created := s.post(t, body).want(t, 201, "")
		s.move(t, created.at("order.id"), OwnerApproves)
		s.settle()

		listed, _ := s.listEvents(t, url.Values{})
		sent := in.take()
		if len(listed) != 2 || len(sent) != 2 {
			t.Fatalf("%d events are listed and %d sent, want 2", len(listed), len(sent))
		}
		for i, event := range listed {
			if sent[i].body != event {
				t.Errorf("sent %s, listed %s", sent[i].body, event)
			}
		}
		if answer := string(created.Body); !strings.Contains(answer, orderIn(listed[0])) {
			t.Errorf("the event has %s, the answer %s", orderIn(listed[0]), answer)
		}

		longest := scalar[int](t, s.db, "SELECT max(length(body)) FROM events")
		if longest > 800 {
			t.Errorf("an event takes %d bytes", longest)
		}
	})
}

// TestEventsOfTwoProcesses is about an event of another process in the same millisecond, whose number is larger than
// the next one here. The event that is written after it comes after it in the list.
func TestEventsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	must(t, s.db.write(t.Context(), func(tx *Tx) error {
		id := tx.newID()
		_, err := tx.exec(`
			INSERT INTO events (row, store_id, sequence, event, body)
			VALUES (?, ?, 0, 'ping', ?)`, rowOf(id)+100, s.storeID, `{"id":"evt_`+id+`","event":"ping"}`)
		must(t, err)
		return tx.insertEvent(s.storeID, "", Ping, 0, []byte("{}"), nil)
	}))

	bodies, _, err := s.db.Events(s.storeID, EventFilter{Limit: 50})
	must(t, err)
	if len(bodies) != 2 || !strings.Contains(bodies[1], `"data":{}`) {
		t.Errorf("events: %q", bodies)
	}
}

func TestEventQueryPlan(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	for _, query := range []string{eventsQuery(OrderPaid), eventsQuery(allEvents...)} {
		for _, line := range plan(t, s.db, query) {
			if isScan(line) && !strings.Contains(line, "SCAN (subquery") {
				t.Errorf("%s", line)
			}
		}
	}
}

// TestWebhookListen prints the events of one store while they happen.
func TestWebhookListen(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.createMany(t, 1)
	time.Sleep(2 * time.Millisecond)

	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	hints, hint := io.Pipe()
	done := make(chan int)
	go func() {
		code := run(ctx, []string{"webhook", "listen", "-db", s.db.path, "-store", s.storeID}, streams(nil, in, hint))
		in.Close()
		done <- code
	}()

	if !bufio.NewScanner(hints).Scan() {
		t.Fatal("the command does not say that it has begun")
	}
	otherID, _ := s.addStore(t, "lain", "growth")
	must(t, s.db.Ping(t.Context(), otherID, s.endpointOf(t, otherID, "https://a.example/hook")))
	lines := bufio.NewScanner(out)
	go func() {
		for i := range 3 {
			if i > 0 {
				time.Sleep(400 * time.Millisecond) // over two looks
			}
			s.createMany(t, 1)
		}
	}()

	var printed []string
	for len(printed) < 3 && lines.Scan() {
		printed = append(printed, lines.Text())
	}
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d", code)
	}
	all := s.walkEvents(t, url.Values{})
	if !slices.Equal(printed, all[1:]) {
		t.Errorf("printed:\n%s\nwritten:\n%s", strings.Join(printed, "\n"), strings.Join(all[1:], "\n"))
	}
}
