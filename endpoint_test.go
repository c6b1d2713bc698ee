//go:build cgo

package main

import (
	"fmt"
	"io"
	"net"
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
)

// TestEventsOfAnEndpoint follows an order from its creation to its refund.
func TestEventsOfAnEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		s.endpoint(t, "all.example")
		s.endpoint(t, "paid.example", OrderPaid, OrderRefunded)
		off, _ := s.endpoint(t, "off.example")
		err := s.db.SwitchEndpoint(t.Context(), s.storeID, off, false)
		must(t, err)

		another := *s
		another.storeID, _ = s.addStore(t, "lain", "growth")
		another.endpoint(t, "another.example")

		id := s.create(t, "teh", 1)
		s.move(t, id, BuyerClaims)
		s.move(t, id, OwnerApproves)
		s.move(t, id, OwnerRefunds)
		s.settle()

		var got []string
		for _, r := range in.take() {
			line := fmt.Sprintf("%s: %d %s", r.host, r.event.Sequence, r.event.Event)
			got = append(got, line)
		}
		slices.Sort(got)
		want := []string{
			"all.example: 1 orderCreated",
			"all.example: 2 orderAwaitingVerification",
			"all.example: 3 orderPaid",
			"all.example: 4 orderRefunded",
			"paid.example: 3 orderPaid",
			"paid.example: 4 orderRefunded",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		s.wantDeliveries(t, off, "4 pending")
	})
}

func TestPing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		in, _ := s.deliver(t)
		s.endpoint(t, "other.example")
		id, secret := s.endpoint(t, "a.example", OrderPaid)

		must(t, s.db.Ping(t.Context(), s.storeID, id))
		s.settle()
		got := in.takeOne(t)
		got.signedBy(t, 1, secret)
		if got.host != "a.example" {
			t.Errorf("%s got it, want a.example", got.host)
		}
		if got.event.Event != "ping" {
			t.Errorf("event %s, want ping", got.event.Event)
		}
	})
}

// TestARemovedEndpointGetsNothing removes an endpoint that has a delivery to be tried again.
func TestARemovedEndpointGetsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.poll = time.Minute
		in, _ := s.deliver(t)
		in.setAnswer(always(500))
		id, _ := s.endpoint(t, "a.example")
		s.create(t, "teh", 1)
		s.settle()
		in.takeOne(t)

		err := s.db.RemoveEndpoint(t.Context(), "another", id)
		if err != errNotFound {
			t.Errorf("removed by another store: %v, want %v", err, errNotFound)
		}
		err = s.db.RemoveEndpoint(t.Context(), s.storeID, id)
		must(t, err)

		s.create(t, "teh", 1)
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		in.takeNone(t)
	})
}

// purge deletes the rows of removed endpoints, as the service does.
func (s *testServer) purgeEndpoints(t *testing.T) {
	t.Helper()
	for done := false; !done; {
		var err error
		done, err = s.db.PurgeEndpoints(t.Context())
		must(t, err)
	}
}

// TestARemovedEndpointIsGoneAtOnce removes an endpoint with a thousand deliveries. Nobody sees it any more,
// and its rows are deleted in small writes, also after a crash in between.
func TestARemovedEndpointIsGoneAtOnce(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	id, _ := s.endpoint(t, "a.example")
	other, _ := s.endpoint(t, "other.example")
	s.pings(t, 1000, id)
	orderID := s.create(t, "teh", 1)
	delivery := scalar[string](t, s.db, "SELECT min(id) FROM deliveries WHERE endpoint_id = ?", id)

	writes := countWrites(t, s.db)
	must(t, s.db.RemoveEndpoint(t.Context(), s.storeID, id))
	if most := writes.most(); most > 1 {
		t.Errorf("removing it changes %d rows in one write, want 1", most)
	}

	t.Run("nobody sees it", func(t *testing.T) {
		list, err := s.db.Endpoints(s.storeID, 20)
		must(t, err)
		if len(list) != 1 || list[0].ID != other {
			t.Errorf("the list has %d endpoints, want the other one", len(list))
		}
		orderDeliveries, err := queryAll(s.db.reader, scanOrderDelivery, sqlOrderDeliveries, rowOf(orderID))
		must(t, err)
		if len(orderDeliveries) != 1 {
			t.Errorf("the order shows %d deliveries, want 1", len(orderDeliveries))
		}

		ctx := t.Context()
		_, notShown := s.db.Endpoint(s.storeID, id, "", 1)
		_, notResent := s.db.ResendDelivery(ctx, s.storeID, delivery)
		_, noneResent := s.db.ResendSince(ctx, s.storeID, id, 0)
		_, noStore := s.db.StoreOf("endpoint", id)
		for what, err := range map[string]error{
			"show":            notShown,
			"resend":          notResent,
			"resend since":    noneResent,
			"store":           noStore,
			"turn on":         s.db.SwitchEndpoint(ctx, s.storeID, id, true),
			"rotate":          s.db.RotateSecret(ctx, s.storeID, id, "whsec_new"),
			"ping":            s.db.Ping(ctx, s.storeID, id),
			"remove it again": s.db.RemoveEndpoint(ctx, s.storeID, id),
		} {
			if err != errNotFound {
				t.Errorf("%s: %v, want %v", what, err, errNotFound)
			}
		}
	})

	t.Run("its rows are deleted in small writes", func(t *testing.T) {
		_, err := s.db.PurgeEndpoints(t.Context())
		must(t, err)

		again, err := openDB(s.db.path, false) // after a crash
		must(t, err)
		defer again.Close()
		rest := &testServer{server: &server{db: again}}
		writes := countWrites(t, again)
		rest.purgeEndpoints(t)
		if most := writes.most(); most > batchRows {
			t.Errorf("a write deletes %d rows, want %d at most", most, batchRows)
		}

		s.wantDeliveries(t, id, "")
		s.wantDeliveries(t, other, "1 pending")
		if n := scalar[int](t, s.db, "SELECT count(*) FROM endpoints"); n != 1 {
			t.Errorf("%d endpoints are left, want 1", n)
		}
	})
}

// TestAStoreHasTenEndpoints adds one more, by the command and in the dashboard.
func TestAStoreHasTenEndpoints(t *testing.T) {
	s := newShop(t, "http://shop.test")
	first, _ := s.endpoint(t, "e0.example")
	for i := range maxEndpoints - 1 {
		s.endpoint(t, fmt.Sprintf("e%d.example", i+1))
	}

	_, stderr := command(t, 1,
		"webhook", "add", "-db", s.db.path, "-store", s.storeID, "-url", "https://b.example/")
	if !strings.Contains(stderr, "has 10 webhook endpoints") {
		t.Errorf("the command says %q", stderr)
	}

	b := s.owner(t, "kopi-kita@example.id")
	form := []string{"url", "https://b.example/"}
	b.post(t, "/dashboard/endpoints", form...).has(t, 422, "Toko Anda sudah memiliki 10")
	b.header.Set("Accept-Language", "en")
	b.post(t, "/dashboard/endpoints", form...).has(t, 422, "Your store already has 10", "https://b.example/")

	// Another store has ten of its own, and a removed one makes room.
	another := s.addShop(t, "lain", "growth")
	s.endpointOf(t, another, "https://lain.example/")
	must(t, s.db.RemoveEndpoint(t.Context(), s.storeID, first))
	s.endpoint(t, "b.example")
}

// lastOf returns the last address of a range.
func lastOf(p netip.Prefix) netip.Addr {
	bits := p.Addr().AsSlice()
	for i := p.Bits(); i < len(bits)*8; i++ {
		bits[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(bits)
	return last
}

// TestPrivateRanges is about the first and the last address of each range in testdata/private-ranges.txt, and
// the ones right before and after it.
func TestPrivateRanges(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/private-ranges.txt") {
		t.Run(c.column(0), func(t *testing.T) {
			p := netip.MustParsePrefix(c.column(0))
			first := p.Addr()
			last := lastOf(p)
			for addr, want := range map[netip.Addr]string{
				first.Prev(): c.column(1),
				first:        "private",
				last:         "private",
				last.Next():  c.column(2),
			} {
				if addr.IsValid() == (want == "none") {
					t.Errorf("%s: want %s", addr, want)
				}
				if isPublic(addr) != (want == "public") {
					t.Errorf("%s is public: %t, want %s", addr, isPublic(addr), want)
				}

				if !addr.Is4() {
					continue
				}
				mapped := netip.AddrFrom16(addr.As16())
				if isPublic(mapped) != (want == "public") {
					t.Errorf("%s is public: %t, want %s", mapped, isPublic(mapped), want)
				}
			}
		})
	}
}

// TestIsPublic is about the addresses of testdata/addresses.txt.
func TestIsPublic(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/addresses.txt") {
		t.Run(c.column(0), func(t *testing.T) {
			addr := netip.MustParseAddr(c.column(0))
			got := isPublic(addr)
			if want := c.heading == "public"; got != want {
				t.Errorf("public: %t, want %t", got, want)
			}
		})
	}
}

// TestCheckWebhookURL is about the addresses of testdata/webhook-urls.txt.
func TestCheckWebhookURL(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/webhook-urls.txt") {
		t.Run(c.name, func(t *testing.T) {
			want, _, allowPrivate := strings.Cut(c.heading, " with private addresses")
			got := "accepted"
			fault := checkWebhookURL(c.column(0), allowPrivate)
			if fault != nil {
				got = "refused"
			}
			if got != want {
				t.Errorf("%s, want %s: %v", got, want, fault)
			}
		})
	}
}

// receiver answers webhooks on a socket and keeps the paths that it was asked for.
type receiver struct {
	t     *testing.T
	mu    sync.Mutex
	asked []string
}

func (in *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in.mu.Lock()
	in.asked = append(in.asked, r.URL.Path)
	in.mu.Unlock()
	if encoding := r.Header.Get("Accept-Encoding"); encoding != "" {
		in.t.Errorf("a delivery accepts the encoding %s", encoding)
	}

	switch r.URL.Path {
	case "/redirect":
		http.Redirect(w, r, "/target", http.StatusTemporaryRedirect)
	case "/bad-redirect":
		w.Header().Set("Location", "http://[::1/%zz")
		w.WriteHeader(http.StatusFound)
	case "/long":
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, "\xff"+strings.Repeat("y", 9_999))
	case "/long-thanks":
		io.WriteString(w, strings.Repeat("y", 10_000))
	case "/endless":
		for r.Context().Err() == nil {
			io.WriteString(w, strings.Repeat("y", 10_000))
		}
	}
}

// take returns the paths since the last call.
func (in *receiver) take() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	asked := in.asked
	in.asked = nil
	return asked
}

// TestDeliveryToAReceiver delivers to a receiver on this machine, which has a private address.
func TestDeliveryToAReceiver(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	in := &receiver{t: t}
	hs := httptest.NewServer(in)
	t.Cleanup(hs.Close)

	cases := []struct {
		name         string
		url          string
		allowPrivate bool
		asked        []string
		status       int    // 0: no answer
		answer       string // a part of the text that is kept
	}{
		{
			name:   "private address",
			url:    hs.URL + "/x",
			answer: "not a public address",
		},
		{
			name:   "name of a private address",
			url:    strings.Replace(hs.URL, "127.0.0.1", "localhost", 1) + "/x",
			answer: "not a public address",
		},
		{
			name:         "private address that is allowed",
			url:          hs.URL + "/x",
			allowPrivate: true,
			asked:        []string{"/x"},
			status:       200,
		},
		{
			name:         "redirect",
			url:          hs.URL + "/redirect",
			allowPrivate: true,
			asked:        []string{"/redirect"},
			status:       307,
		},
		{
			name:         "redirect to no address",
			url:          hs.URL + "/bad-redirect",
			allowPrivate: true,
			asked:        []string{"/bad-redirect"},
			status:       302,
		},
		{
			name:         "answer without TLS",
			url:          strings.Replace(hs.URL, "http://", "https://", 1) + "/x",
			allowPrivate: true,
			answer:       "no answer",
		},
		{
			name:         "long answer",
			url:          hs.URL + "/long",
			allowPrivate: true,
			asked:        []string{"/long"},
			status:       400,
			answer:       "\ufffd",
		},
		{
			name:         "nobody listens",
			url:          "http://127.0.0.1:1/secret-path",
			allowPrivate: true,
			answer:       "refused",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s.queue.transport = newWebhookTransport(c.allowPrivate)
			endpoint := Endpoint{URL: c.url, Secrets: []string{"s"}}
			got := s.queue.attempt(t.Context(), Claim{Attempt: 1, Body: []byte("{}"), Endpoint: endpoint})

			if asked := in.take(); !slices.Equal(asked, c.asked) {
				t.Errorf("the receiver was asked for %q, want %q", asked, c.asked)
			}
			if got.AnswerStatus != c.status {
				t.Errorf("status %d, want %d", got.AnswerStatus, c.status)
			}
			if delivered := got.State == DeliveryDelivered; delivered != (c.status == 200) {
				t.Errorf("state %s after status %d", got.State, c.status)
			}
			if again := got.NextAt != nil; again != (c.status != 200) {
				t.Errorf("another attempt: %t", again)
			}

			if !strings.Contains(got.Answer, c.answer) {
				t.Errorf("the answer is kept as %q, want %q in it", got.Answer, c.answer)
			}
			if most := 4096 + len("\ufffd"); len(got.Answer) > most {
				t.Errorf("%d bytes of the answer are kept, want %d at most", len(got.Answer), most)
			}
			if strings.Contains(got.Answer, "secret-path") {
				t.Errorf("the address is kept: %s", got.Answer)
			}
		})
	}
}

// TestAnswersThatAreKept has receivers with long answers. Their first bytes are kept, and their connections
// are used again, unless there is too much to read.
func TestAnswersThatAreKept(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.queue.transport = newWebhookTransport(true)

	cases := []struct {
		path        string
		kept        int // bytes
		connections int32
	}{
		{"/long", 4096 + len("\ufffd") - 1, 1},
		{"/long-thanks", 200, 1},
		{"/endless", 200, 3},
	}
	for _, c := range cases {
		t.Run(c.path, func(t *testing.T) {
			var connections atomic.Int32
			hs := httptest.NewUnstartedServer(&receiver{t: t})
			hs.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			hs.Start()
			t.Cleanup(hs.Close)

			endpoint := Endpoint{URL: hs.URL + c.path, Secrets: []string{"s"}}
			for range 3 {
				got := s.queue.attempt(t.Context(), Claim{Attempt: 1, Body: []byte("{}"), Endpoint: endpoint})
				if len(got.Answer) != c.kept {
					t.Errorf("%d bytes are kept, want %d", len(got.Answer), c.kept)
				}
			}
			if n := connections.Load(); n != c.connections {
				t.Errorf("three attempts need %d connections, want %d", n, c.connections)
			}
		})
	}
}

// TestWebhooksUseNoProxy because a proxy would look up and dial the address in its place.
func TestWebhooksUseNoProxy(t *testing.T) {
	t.Parallel()
	if newWebhookTransport(true).Proxy != nil {
		t.Error("webhooks use a proxy")
	}
}
