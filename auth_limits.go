package main

// This file says how much anybody may do. Requests are limited by key and by store, forms and wrong keys by address,
// and the work of a store by places. docs/operation.md has the table of all bounds.

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// limiter holds a bucket of tokens for each name. A request takes one; they come back with time.
type limiter struct {
	perMinute, burst float64
	mu               sync.Mutex
	buckets          map[string]bucket
}

type bucket struct {
	tokens float64
	at     time.Time // when it held them
}

const mostBuckets = 10_000

// allowance is a limiter's answer to one request.
type allowance struct {
	err       error // RateLimited if there is no token
	limit     int   // requests a minute
	remaining int   // requests that could follow at once
	full      int   // seconds until the bucket is full
}

func newLimiter(perMinute, burst int64) *limiter {
	return &limiter{perMinute: float64(perMinute), burst: float64(burst), buckets: map[string]bucket{}}
}

// take takes a token for a request, if there is one.
func (l *limiter) take(name string) allowance {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()

	// Memory is bounded: with too many names, all are forgotten. Making up names gains nothing, because a new name has
	// a full bucket anyway.
	if len(l.buckets) >= mostBuckets {
		clear(l.buckets)
	}

	last := l.buckets[name] // A name without a bucket was last seen in the year 1, so its bucket is full.
	tokens := min(l.burst, last.tokens+now.Sub(last.at).Minutes()*l.perMinute)
	var err error
	if tokens >= 1 {
		tokens--
	} else {
		err = &Refusal{Reason: RateLimited, Wait: l.secondsFor(1 - tokens)}
	}

	l.buckets[name] = bucket{tokens, now}
	return allowance{
		err:       err,
		limit:     int(l.perMinute),
		remaining: int(tokens),
		full:      l.secondsFor(l.burst - tokens),
	}
}

func (l *limiter) secondsFor(tokens float64) int {
	return int(math.Ceil(max(0, tokens) * 60 / l.perMinute))
}

// groupFactor is how much more a group may do than one of its members: the keys of a store, or the addresses of a
// network.
const groupFactor = 4

// takeRequest takes a token of a key and one of its store. A key without tokens takes none of its store's.
func (a *auth) takeRequest(keyID, storeID string) allowance {
	ofKey := a.keyLimiter.take(keyID)
	if ofKey.err != nil {
		return ofKey
	}
	ofStore := a.storeLimiter.take(storeID)
	ofKey.err = ofStore.err
	ofKey.remaining = min(ofKey.remaining, ofStore.remaining)
	return ofKey
}

// addressLimiter limits clients by address. An IPv6 customer has a /64, which counts as one address, and often a /48.
type addressLimiter struct{ address, network *limiter }

func newAddressLimiter(perMinute, burst int64) addressLimiter {
	return addressLimiter{newLimiter(perMinute, burst), newLimiter(groupFactor*perMinute, groupFactor*burst)}
}

func (l addressLimiter) take(addr netip.Addr) error { return l.takeAt("", addr) }

// takeAt is take where each store has buckets of its own.
func (l addressLimiter) takeAt(storeID string, addr netip.Addr) error {
	err := l.address.take(storeID + network(addr, 64)).err
	if err != nil || addr.Is4() {
		return err
	}
	return l.network.take(storeID + network(addr, 48)).err
}

// network returns an IPv4 address as it is, and an IPv6 address as its network with a prefix of the given length.
func network(addr netip.Addr, bits int) string {
	net, _ := addr.Prefix(min(bits, addr.BitLen())) // This cannot fail: the address has that many bits.
	return net.String()
}

// mostPlaces says how much work of a kind a store may have under way. Waiting for a gateway is not work.
var mostPlaces = map[string]int{
	"api": 8, "owner": 8, "pay": 8, "shop": 4,
	"long":     4, // pages for strangers that are being sent
	"large":    1, // an import, an export or an upload
	"search":   1, // a search or a sum: it reads many rows, and keeps a core busy
	"catalog":  2, // decoding takes much memory; the process has two places
	"picture":  1, // decoding takes much memory; the process has one place
	"password": 1, // all strangers share one place
	"hash":     1, // the process has one place to hash a password, so that the other cores are free for orders

	// The process has these for all that keeps a core busy (work).
	"work": 2 * runtime.GOMAXPROCS(0),

	// Writes that wait for their commit. There is one writer, so a store can make others wait by these alone.
	"api writes": 64, "owner writes": 8, "buyer writes": 8, "notification writes": 8,
}

// place takes a place for work of a store or, without one, of the process. It waits a short time for it, and no longer
// than the request lasts. leave gives the place back, and may be called twice.
func (a *auth) place(ctx context.Context, store, kind string) (leave func(), err error) {
	return takeIn(ctx, a.channel(kind+" "+store, mostPlaces[kind]))
}

// busyPlace is place for work that keeps a core busy until the place is left.
func (a *auth) busyPlace(ctx context.Context, store, kind string) (leave func(), err error) {
	leavePlace, err := a.place(ctx, store, kind)
	if err != nil {
		return nil, err
	}
	endWork, err := a.work(ctx, store, kind)
	if err != nil {
		leavePlace()
		return nil, err
	}
	return func() {
		endWork()
		leavePlace()
	}, nil
}

// work takes one of the places of the process for work that keeps a core busy: with more of it, the writer would wait
// for a core. Of each store and kind only one request waits for it at a time, so that they take turns.
func (a *auth) work(ctx context.Context, store, kind string) (endWork func(), err error) {
	endTurn, err := takeIn(ctx, a.channel("turn "+kind+" "+store, 1))
	if err != nil {
		return nil, err
	}
	defer endTurn()
	return a.place(ctx, "", "work")
}

// channel returns the channel with a name, whose capacity is how many may hold it at once.
func (a *auth) channel(name string, capacity int) chan struct{} {
	made, ok := a.channels.Load(name)
	if !ok {
		made, _ = a.channels.LoadOrStore(name, make(chan struct{}, capacity))
	}
	return made.(chan struct{})
}

// takeIn takes a place in a channel for two seconds at most, and returns what leaves it again.
func takeIn(ctx context.Context, places chan struct{}) (leave func(), err error) {
	leave = sync.OnceFunc(func() { <-places })
	select {
	case places <- struct{}{}:
		return leave, nil
	default:
	}
	select {
	case places <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
	return nil, &Refusal{Reason: RateLimited, Wait: 2}
}

// withWritePlaces returns a context for a request to a store. Each write with it takes one of the store's places for
// writes of a kind before it waits for the writer, and keeps it until its commit.
func (a *auth) withWritePlaces(ctx context.Context, store, kind string) context.Context {
	return withPlaces(ctx, writes{
		take: func(ctx context.Context) (leave func(), err error) { return a.place(ctx, store, kind) },
		line: kind + " " + store,
	})
}

// client returns the address that a request comes from. Behind a trusted proxy, it is the last one in X-Forwarded-For
// that is not a trusted proxy, because a client can invent those before it.
func (a *auth) client(r *http.Request) netip.Addr {
	addr := parseAddress(r.RemoteAddr)
	forwarded := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	if forwarded != "" && !a.trusts(addr) {
		a.warnOnce.Do(func() {
			a.db.log.Warn("X-Forwarded-For is ignored: if its sender is your proxy, name it with -trusted-proxy",
				"sender", addr)
		})
	}

	for _, text := range slices.Backward(strings.Split(forwarded, ",")) {
		hop := parseAddress(strings.TrimSpace(text))
		if !hop.IsValid() || !a.trusts(addr) {
			break
		}
		addr = hop
	}
	return addr
}

func (a *auth) trusts(addr netip.Addr) bool {
	isIn := func(p netip.Prefix) bool { return p.Contains(addr) }
	return addr.IsLoopback() || slices.ContainsFunc(a.trusted, isIn)
}

// parseAddress reads an address with or without a port or brackets. Anything else is not valid. Zones are
// left out, because a client can invent any number of them.
func parseAddress(text string) netip.Addr {
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		withPort, _ := netip.ParseAddrPort(text)
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone("")
}

// limitConnections lets a server have at most the given number of connections. The server accepts the next
// one once ConnState has returned, so further ones wait. Once ctx has ended nothing waits: the server stops.
func limitConnections(ctx context.Context, most int) func(net.Conn, http.ConnState) {
	places := make(chan struct{}, most)
	return func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
			}
		case http.StateClosed:
			select {
			case <-places:
			default: // It got no place, because the server stops.
			}
		}
	}
}
