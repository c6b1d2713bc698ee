//go:build cgo

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The parts of BenchmarkTargets about what stores and their endpoints do to each other.

// addNeighbour adds a store without a key.
func addNeighbour(b *testing.B, db *DB, slug string) Store {
	b.Helper()
	st, err := db.AddStore(b.Context(), StoreProfile{
		Store:      Store{Slug: slug, Plan: PlanGrowth, Expiry: 24 * time.Hour},
		Name:       slug,
		OwnerEmail: slug + "@example.id",
	}, PasswordHash{[]byte("salt"), []byte("hash")})
	must(b, err)
	return st.Store
}

// addPings writes deliveries for an endpoint that are due now, in one write.
func addPings(b *testing.B, db *DB, storeID, endpoint string, n int) {
	b.Helper()
	must(b, db.write(b.Context(), func(tx *Tx) error {
		for range n {
			err := tx.insertEvent(storeID, "", Ping, 0, []byte("{}"), []addressee{{endpoint, true}})
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// hangingEndpoints adds stores with ten endpoints each at a receiver that hangs.
func hangingEndpoints(b *testing.B, db *DB, stores int) (ids map[string]string) {
	b.Helper()
	hanging := &hangingReceiver{}
	release := hanging.hold()
	hs := httptest.NewServer(hanging)
	b.Cleanup(func() {
		release()
		hs.Close()
	})

	ids = map[string]string{} // of the stores, by endpoint
	for i := range stores {
		st := addNeighbour(b, db, fmt.Sprintf("neighbour-%d", i))
		for range maxEndpoints {
			id, err := db.AddEndpoint(b.Context(), st.ID, hs.URL, nil, newSecret())
			must(b, err)
			ids[id] = st.ID
		}
	}
	return ids
}

// arrivals notes how long after its order each event came.
type arrivals struct {
	mu   sync.Mutex
	took []time.Duration
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := timeOf(time.Now())
	body, _ := io.ReadAll(r.Body)
	_, rest, _ := strings.Cut(string(body), `"created_at":`)
	text, _, _ := strings.Cut(rest, ",")
	text = strings.Trim(text, `"`)
	var created Time
	created.UnmarshalText([]byte(text))

	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, time.Duration(now-created)*time.Millisecond)
}

// take returns the times since the last call as a load. Of n events, those that have not come took a minute.
func (a *arrivals) take(n int) load {
	a.mu.Lock()
	defer a.mu.Unlock()
	took := a.took
	a.took = nil
	for len(took) < n {
		took = append(took, time.Minute)
	}
	if len(took) == 0 {
		return load{}
	}
	slices.Sort(took)
	return load{p50: took[len(took)/2], p99: took[len(took)*99/100]}
}

// neighbours compares how soon the webhooks of a store arrive, and how its orders are answered, while 100
// endpoints of ten other stores hang, with the same without them. Each of the 100 has an event a second.
func (t *table) neighbours(b *testing.B) {
	measure := func(file string, stores int) func() (delay, post load) {
		db := open(b, filepath.Join(b.TempDir(), file))
		s := &bench{db: db}
		s.st, s.key = benchStore(b, db)
		in := &arrivals{}
		hs := httptest.NewServer(in)
		b.Cleanup(hs.Close)
		s.addEndpoint(b, hs.URL)
		hanging := hangingEndpoints(b, db, stores)
		requests := s.posts(b)
		s.serve(b)

		return func() (delay, post load) {
			const perSecond, seconds = 100, 5
			pace(s.addr, perSecond, time.Second, requests)
			in.take(0)
			for id, storeID := range hanging {
				addPings(b, db, storeID, id, seconds)
			}
			post = pace(s.addr, perSecond, seconds*time.Second, requests)
			time.Sleep(2 * time.Second)
			return in.take(perSecond * seconds), post
		}
	}

	quiet := measure("alone.db", 0)
	among := measure("among.db", 10)
	var delays, posts comparison
	for range 5 {
		delay, post := quiet()
		delays.right, posts.right = append(delays.right, delay), append(posts.right, post)
		delay, post = among()
		delays.left, posts.left = append(delays.left, delay), append(posts.left, post)
	}
	t.add(b, result{
		measure:  "p99 of a webhook's delay while 100 endpoints of other stores hang, against none",
		value:    delays.ratio(p99),
		target:   "≤ 1.5",
		measured: delays.medians("%.1f ms", p99) + ", p50 " + delays.medians("%.1f ms", p50),
	})
	t.add(b, result{
		measure:  "p99 of `POST` at 100/s in the same",
		value:    posts.ratio(p99),
		target:   "≤ 1.5",
		measured: posts.medians("%.1f ms", p99) + ", p50 " + posts.medians("%.1f ms", p50),
	})
}

// manyDue compares orders while 1,000 endpoints have due deliveries at a receiver that is down with orders
// when none has.
func (t *table) manyDue(b *testing.B) {
	service := func(file string, stores int) *bench {
		s := &bench{db: open(b, filepath.Join(b.TempDir(), file))}
		s.st, s.key = benchStore(b, s.db)
		for i := range stores {
			st := addNeighbour(b, s.db, fmt.Sprintf("neighbour-%d", i))
			for range maxEndpoints {
				id, err := s.db.AddEndpoint(b.Context(), st.ID, unreachable, nil, newSecret())
				must(b, err)
				addPings(b, s.db, st.ID, id, 20)
			}
		}
		s.serve(b)
		return s
	}

	quiet, due := service("none.db", 0), service("due.db", 100)
	toQuiet, toDue := quiet.posts(b), due.posts(b)
	c := compare(b,
		func() load { return pace(due.addr, 200, 2*round, toDue) },
		func() load { return pace(quiet.addr, 200, 2*round, toQuiet) })
	t.add(b, result{
		measure:  "p50 of `POST` while 1,000 endpoints have due deliveries, against none",
		value:    c.ratio(p50),
		target:   "≤ 1.25",
		measured: c.medians("%.2f ms", p50),
	})
}

// removal compares orders while an endpoint with 300,000 deliveries is removed, and those of another are
// resent, with orders before that.
func (t *table) removal(b *testing.B) {
	const deliveries = 300_000
	s := &bench{db: open(b, filepath.Join(b.TempDir(), "removal.db"))}
	s.st, s.key = benchStore(b, s.db)
	other := &bench{db: s.db, st: addNeighbour(b, s.db, "neighbour")}
	ids := []string{other.addEndpoint(b, unreachable), other.addEndpoint(b, unreachable)}
	for _, id := range ids {
		addPings(b, s.db, other.st.ID, id, deliveries)
		other.turnOff(b, id)
	}
	must(b, s.db.change(b.Context(), "UPDATE deliveries SET status = 'failed', next_at = NULL"))
	s.serve(b)
	requests := s.posts(b)
	during := func(measure string, work func()) {
		before := pace(s.addr, 200, 3*round, requests)
		done := make(chan struct{})
		begun := time.Now()
		go func() {
			defer close(done)
			work()
		}()
		l := pace(s.addr, 200, 5*round, requests)
		<-done
		c := comparison{left: []load{l}, right: []load{before}}
		t.add(b, result{
			measure: "p50 of `POST` while " + measure + ", against before",
			value:   c.ratio(p50),
			target:  "≤ 5",
			measured: fmt.Sprintf("%s, p99 %s; it takes %.1f s", c.medians("%.2f ms", p50),
				c.medians("%.0f ms", p99), time.Since(begun).Seconds()),
		})
	}

	during("300,000 deliveries are resent", func() {
		n, err := s.db.ResendSince(b.Context(), other.st.ID, ids[0], 0)
		must(b, err)
		if n != deliveries {
			b.Errorf("%d are resent", n)
		}
	})
	during("an endpoint with 300,000 is removed", func() {
		must(b, s.db.RemoveEndpoint(b.Context(), other.st.ID, ids[1]))
		for done := false; !done; {
			var err error
			begun := time.Now()
			done, err = s.db.PurgeEndpoints(b.Context())
			must(b, err)
			time.Sleep(time.Since(begun)) // as purgeAll does
		}
	})
}
