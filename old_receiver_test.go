//go:build cgo

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// received is one webhook at an endpoint.
type received struct {
	at     time.Time
	host   string
	header http.Header
	body   string
	event  struct {
		ID        string
		Event     string
		StoreID   string
		CreatedAt Time `json:"created_at"`
		Sequence  int
		Data      struct{ Order map[string]any }
	}
}

func receive(t *testing.T, r *http.Request) received {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	got := received{
		at:     time.Now(),
		host:   r.URL.Hostname(),
		header: r.Header,
		body:   string(body),
	}
	if err == nil {
		err = json.Unmarshal(body, &got.event)
	}
	if err != nil {
		t.Errorf("webhook's body: %v %s", err, body)
	}
	return got
}

// signedBy checks a webhook's headers, and its signature with each of the secrets in their order.
func (r received) signedBy(t *testing.T, attempt int, secrets ...string) {
	t.Helper()
	signature := r.header.Get("X-Service-Signature")
	stamp, _, _ := strings.Cut(strings.TrimPrefix(signature, "t="), ",")
	want := "t=" + stamp
	for _, secret := range secrets {
		want += ",v1=" + hmacByHand(secret, stamp+"."+r.body)
	}
	if signature != want {
		t.Errorf("signature %q, want %q", signature, want)
	}

	unix, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		t.Errorf("signature %q without its time", signature)
	}
	if age := r.at.Sub(time.Unix(unix, 0)); age < -time.Second || age > 30*time.Second {
		t.Errorf("signed %s before it came", age)
	}

	for name, want := range map[string]string{
		"Content-Type":       "application/json",
		"X-Service-Event":    r.event.Event,
		"X-Service-Event-Id": r.event.ID,
		"X-Service-Attempt":  strconv.Itoa(attempt),
	} {
		if got := r.header.Get(name); got != want || want == "" {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(r.event.ID, "evt_") {
		t.Errorf("event's id %q", r.event.ID)
	}
	if id := r.header.Get("X-Service-Delivery-Id"); !uuidText.MatchString(id) {
		t.Errorf("X-Service-Delivery-Id: %q", id)
	}
}

// hmacByHand is HMAC-SHA256, step by step as in RFC 2104.
func hmacByHand(key, message string) string {
	block := make([]byte, sha256.BlockSize)
	if len(key) > len(block) {
		sum := sha256.Sum256([]byte(key))
		copy(block, sum[:])
	} else {
		copy(block, key)
	}

	pad := func(b byte) []byte {
		padded := bytes.Clone(block)
		for i := range padded {
			padded[i] ^= b
		}
		return padded
	}
	inner := sha256.Sum256(append(pad(0x36), message...))
	outer := sha256.Sum256(append(pad(0x5c), inner[:]...))
	return hex.EncodeToString(outer[:])
}

// startReceiver is an endpoint on a socket. It answers 204 and passes on each webhook through the channel.
func startReceiver(t *testing.T) (address string, got chan received) {
	t.Helper()
	got = make(chan received, 100_000)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- receive(t, r)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(hs.Close)
	return hs.URL + "/hook", got
}

// oldInbox is all endpoints of a bubble's server: it takes the place of the network and keeps the webhooks.
type oldInbox struct {
	t      *testing.T
	answer func(received) *http.Response // nil answers 200; a nil response hangs until the sender gives up
	mu     sync.Mutex
	all    []received
}

func (in *oldInbox) RoundTrip(r *http.Request) (*http.Response, error) {
	got := receive(in.t, r)

	in.mu.Lock()
	in.all = append(in.all, got)
	answer := in.answer
	in.mu.Unlock()

	if answer == nil {
		return status(200), nil
	}
	if resp := answer(got); resp != nil {
		return resp, nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// take returns the webhooks that came since the last call.
func (in *oldInbox) take() []received {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := in.all
	in.all = nil
	return all
}

func (in *oldInbox) setAnswer(answer func(received) *http.Response) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.answer = answer
}

// status is an endpoint's answer. The headers are names and values in turn.
func status(code int, header ...string) *http.Response {
	r := &http.Response{
		StatusCode: code,
		Header:     http.Header{},
		Body:       io.NopCloser(strings.NewReader("an answer")),
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// deliver runs the queue of a bubble's server against an oldInbox, until the test ends or stop is called.
func (s *testServer) deliver(t *testing.T) (in *oldInbox, stop func()) {
	t.Helper()
	in = &oldInbox{t: t}
	s.queue.transport = in

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.queue.run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return in, stop
}

// endpoint adds an endpoint on a host for some events, or for all if none is named.
func (s *testServer) endpoint(t *testing.T, host string, events ...Event) (id, secret string) {
	t.Helper()
	secret = newSecret()
	id, err := s.db.AddEndpoint(t.Context(), s.storeID, "https://"+host+"/hook", events, secret)
	must(t, err)
	return id, secret
}

// deliveries counts an endpoint's deliveries by status, such as "2 failed, 1 pending".
func (s *testServer) deliveries(t *testing.T, endpoint string) string {
	t.Helper()
	return scalar[string](t, s.db, `
		SELECT coalesce(group_concat(n || ' ' || status, ', '), '')
		FROM (
			SELECT status, count(*) n
			FROM   deliveries
			WHERE  endpoint_id = ?
			GROUP BY status
			ORDER BY status
		)`, endpoint)
}

// settle lets the queue do everything that it can do now.
func (s *testServer) settle() {
	s.queue.wake()
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// pings writes n deliveries for each of some endpoints, which are due now.
func (s *testServer) pings(t *testing.T, n int, endpoints ...string) {
	t.Helper()
	var all []addressee
	for _, id := range endpoints {
		all = append(all, addressee{id, true})
	}
	must(t, s.db.write(t.Context(), func(tx *Tx) error {
		for range n {
			if err := tx.insertEvent(s.storeID, "", Ping, 0, []byte("{}"), all); err != nil {
				return err
			}
		}
		return nil
	}))
}

// writeCounter counts the rows that each commit of a database changes.
type writeCounter struct {
	rows    int
	largest int
}

func countWrites(t *testing.T, db *DB) *writeCounter {
	t.Helper()
	w := &writeCounter{}
	must(t, db.writer.with(func(c *connection) error {
		c.raw.RegisterUpdateHook(func(int, string, string, int64) { w.rows++ })
		c.raw.RegisterCommitHook(func() int {
			w.largest = max(w.largest, w.rows)
			w.rows = 0
			return 0
		})
		return nil
	}))
	return w
}

// most is the largest number of rows that one commit has changed. No write may be under way.
func (w *writeCounter) most() int { return w.largest }
