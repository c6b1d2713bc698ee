//go:build cgo

package main

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"syscall"
	"time"
)

// listenOn is listen with errors that say what to do.
func (e environment) listenOn(addr string) (net.Listener, error) {
	ln, err := e.listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the port of %s is taken by another program: "+
			"stop that, or choose another with -addr", addr)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("no right to listen on %s: choose a port above 1023 with -addr", addr)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on -addr %s: %w", addr, err)
	}
	return ln, nil
}

// mostConnections bounds the memory that connections cost: some 40 KB each, with their requests.
const mostConnections = 4096

// connLimit is a listener that keeps at most so many connections. When they are used up, a new one takes the
// place of the one that has been waiting longest for a request, so that idle clients keep nobody out. If all
// are busy, new ones wait. It learns of the connections' states by noteState.
type connLimit struct {
	net.Listener
	most int

	mu      sync.Mutex
	changed sync.Cond // a connection has ended, or the listener was closed
	open    int
	closed  bool
	waiting list.List // of net.Conn without a request, the longest first
	places  map[net.Conn]*list.Element
}

func limitConnections(ln net.Listener, most int) *connLimit {
	l := &connLimit{
		Listener: ln,
		most:     most,
		places:   map[net.Conn]*list.Element{},
	}
	l.changed.L = &l.mu
	return l
}

// Accept returns the next connection as soon as there is room for it.
func (l *connLimit) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open >= l.most && !l.closed {
		if longest := l.waiting.Front(); longest != nil {
			l.forget(longest.Value.(net.Conn))
			longest.Value.(net.Conn).Close()
		}
		l.changed.Wait()
	}
	if l.closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	return conn, nil
}

// Close ends Accept too.
func (l *connLimit) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.changed.Broadcast()
	return l.Listener.Close()
}

// noteState is for http.Server.ConnState. The server calls it with StateNew before it accepts the next
// connection.
func (l *connLimit) noteState(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()

	switch state {
	case http.StateNew:
		l.open++
		l.places[c] = l.waiting.PushBack(c)
	case http.StateIdle:
		l.places[c] = l.waiting.PushBack(c)
		l.changed.Broadcast()
	case http.StateActive:
		l.forget(c)
	case http.StateClosed, http.StateHijacked:
		l.forget(c)
		l.open--
		l.changed.Broadcast()
	}
}

// forget takes a connection out of those that wait for a request.
func (l *connLimit) forget(c net.Conn) {
	place, ok := l.places[c]
	if ok {
		l.waiting.Remove(place)
		delete(l.places, c)
	}
}

const (
	// memoryLimit is from where on the garbage collector works harder. Memory in use may exceed it.
	memoryLimit = 256 << 20

	// memoryKept is how much more than in use the program keeps for the next peak.
	memoryKept = 48 << 20
)

// limitMemory sets the collector up, unless the environment does (GOGC, GOMEMLIMIT).
func limitMemory() {
	// Little memory stays in use here and much is used for a moment: collect at some 20 MB instead of 4.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(325)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// returnMemory gives the system back what a peak has left unused, at each tick until ctx ends. By itself, the collector
// keeps most of what it ever had as long as little is allocated.
func returnMemory(ctx context.Context, tick <-chan time.Time) {
	before := readMemory()
	for {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}

		m := readMemory()
		if m.cycles == before.cycles && m.held > memoryKept { // The collector is idle: what it knows is old.
			runtime.GC()
			m = readMemory()
		}
		m.giveBack()
		before = m
	}
}

// memoryUse is how the program uses memory.
type memoryUse struct {
	held   uint64 // from the system, in bytes
	live   uint64 // in use when the collector last looked
	cycles uint64 // how often the collector has looked
}

func readMemory() memoryUse {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(samples)
	return memoryUse{
		held:   samples[0].Value.Uint64() - samples[1].Value.Uint64(),
		live:   samples[2].Value.Uint64(),
		cycles: samples[3].Value.Uint64(),
	}
}

func (m memoryUse) giveBack() {
	if m.held > 2*m.live+memoryKept {
		debug.FreeOSMemory()
	}
}
