package main

// This file says how often. Requests are limited by key and by store, wrong keys by address, and the work that a store may
// have under way by places.

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// limiter holds a bucket of tokens for each name. Requests take tokens, which come back with time.
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
	err       error // RateLimited if there are too few tokens
	limit     int   // requests a minute
	remaining int   // requests that could follow at once
	full      int   // seconds until the bucket is full
}

func newLimiter(perMinute, burst int64) *limiter {
	return &limiter{perMinute: float64(perMinute), burst: float64(burst), buckets: map[string]bucket{}}
}

// Each request costs one token; where many share a name, a quarter of one.
const (
	alone  = 1.0
	shared = 0.25
)

// take takes the tokens for a request. If there are too few, none are taken.
func (l *limiter) take(name string, cost float64) allowance {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()

	// Memory is bounded: with too many names, all are forgotten. Whoever makes up that many gains only what
	// each new name has anyway: a full bucket.
	if len(l.buckets) >= mostBuckets {
		clear(l.buckets)
	}

	last := l.buckets[name] // A name without a bucket was last seen in the year 1: its bucket is full.
	tokens := min(l.burst, last.tokens+now.Sub(last.at).Minutes()*l.perMinute)
	var err error
	if tokens < cost {
		err = &Refusal{Reason: RateLimited, Wait: l.secondsFor(cost - tokens)}
	} else {
		tokens -= cost
	}

	l.buckets[name] = bucket{tokens, now}
	return allowance{
		err:       err,
		limit:     int(l.perMinute),
		remaining: int(tokens / cost),
		full:      l.secondsFor(l.burst - tokens),
	}
}

// takeBoth takes a token for a name, and then a quarter of one for the group that the name belongs to. A name
// that has nothing left takes nothing from the others in its group.
func (l *limiter) takeBoth(name, group string) allowance {
	left := l.take(name, alone)
	if left.err == nil && group != name {
		ofGroup := l.take(group, shared)
		left.err = ofGroup.err
		left.remaining = min(left.remaining, ofGroup.remaining)
	}
	return left
}

// takeAddress limits clients by address. With IPv6 a customer has a /64, which counts as one address, and
// often a /48.
func (l *limiter) takeAddress(addr netip.Addr) error {
	return l.takeBoth(network(addr, 64), network(addr, 48)).err
}

func (l *limiter) secondsFor(tokens float64) int {
	return int(math.Ceil(max(0, tokens) * 60 / l.perMinute))
}

// network returns an IPv4 address as it is, and an IPv6 address as its network with a prefix of the given
// length.
func network(addr netip.Addr, bits int) string {
	net, _ := addr.Prefix(min(bits, addr.BitLen())) // This cannot fail: the address has that many bits.
	return net.String()
}

// places says how much work of a kind a store may have under way.
var places = map[string]int{
	"api": 8, "owner": 4, "pay": 4,
	"large":    1, // an import, an export or an upload
	"picture":  1, // being decoded, which takes much memory; the process has one place
	"password": 1, // all strangers together have one place
	"hash":     1, // of a password; the process has one place, because the other cores are for orders
}

// place takes a place for work of a store (or, without one, of the process) and waits for it, but not for
// long, and no longer than the request. leave gives it back, and may be called twice.
func (a *auth) place(ctx context.Context, store, kind string) (leave func(), err error) {
	made, _ := a.rooms.LoadOrStore(kind+" "+store, make(chan struct{}, places[kind]))
	room := made.(chan struct{})
	select {
	case room <- struct{}{}:
		return sync.OnceFunc(func() { <-room }), nil
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
	return nil, &Refusal{Reason: RateLimited, Wait: 2}
}

// client returns the address that a request comes from. Behind a trusted proxy, that is the last one in
// X-Forwarded-For that is not a trusted proxy's: a client can invent those before it.
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
			default: // It got none, because the server stops.
			}
		}
	}
}
