//go:build cgo

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// startLimited serves with room for a few connections. A request to /wait takes until goOn is closed.
func startLimited(t *testing.T, most int) (limited *connLimit, address string, goOn chan struct{}) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	goOn = make(chan struct{})
	limited = limitConnections(ln, most)
	hs := &http.Server{
		ConnState: limited.noteState,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-goOn
			}
			io.WriteString(w, "ok")
		}),
	}
	go hs.Serve(limited)
	t.Cleanup(func() { hs.Close() })
	return limited, ln.Addr().String(), goOn
}

// awaitWaiting waits until so many connections wait for a request: the server notes that after its answer.
func (l *connLimit) awaitWaiting(t *testing.T, count int) {
	t.Helper()
	for range 1000 {
		l.mu.Lock()
		waiting := l.waiting.Len()
		l.mu.Unlock()
		if waiting == count {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not %d connections wait for a request", count)
}

// rawConn is a connection on which a test sends requests by hand.
type rawConn struct {
	net.Conn
	answers *bufio.Reader
}

func dialRaw(t *testing.T, address string) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return &rawConn{conn, bufio.NewReader(conn)}
}

func (c *rawConn) send(path string) { fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path) }

// answered reports whether an answer comes, and not the connection's end.
func (c *rawConn) answered() bool {
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil
}

func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	limited, address, _ := startLimited(t, 3)
	var conns []*rawConn
	for range 3 {
		c := dialRaw(t, address)
		c.send("/")
		if !c.answered() {
			t.Fatal("a connection within the limit is refused")
		}
		conns = append(conns, c)
		limited.awaitWaiting(t, len(conns))
	}

	// The first is used again, so that the second has been idle for longest.
	conns[0].send("/")
	if !conns[0].answered() {
		t.Fatal("a connection is not kept")
	}
	limited.awaitWaiting(t, 3)
	fourth := dialRaw(t, address)
	fourth.send("/")
	if !fourth.answered() {
		t.Error("a fourth connection is not served")
	}

	conns[1].send("/")
	if conns[1].answered() {
		t.Error("the connection that was idle for longest is still open")
	}
	conns[2].send("/")
	if !conns[2].answered() {
		t.Error("another connection was closed too")
	}
}

func TestBusyConnectionsAreNotCutOff(t *testing.T) {
	t.Parallel()
	_, address, goOn := startLimited(t, 2)
	busy := []*rawConn{dialRaw(t, address), dialRaw(t, address)}
	for _, c := range busy {
		c.send("/wait")
	}
	time.Sleep(100 * time.Millisecond)

	third := dialRaw(t, address)
	third.send("/")
	must(t, third.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	if _, err := third.answers.Peek(1); err == nil {
		t.Error("a third connection is served while two are busy")
	}

	close(goOn)
	for _, c := range busy {
		if !c.answered() {
			t.Error("a busy connection was cut off")
		}
	}
	must(t, third.SetReadDeadline(time.Now().Add(10*time.Second)))
	if !third.answered() {
		t.Error("the third connection is not served afterwards")
	}
}

func TestMemoryIsReturned(t *testing.T) {
	peak := make([]byte, 200<<20)
	for i := 0; i < len(peak); i += 4096 {
		peak[i] = 1
	}
	runtime.GC()
	before := readMemory()
	if before.held < 200<<20 || before.live < 200<<20 {
		t.Errorf("with 200 MiB in use, %d MiB are held and %d live", before.held>>20, before.live>>20)
	}

	runtime.KeepAlive(peak)
	peak = nil
	runtime.GC()
	readMemory().giveBack()
	if after := readMemory(); after.held > before.held-150<<20 {
		t.Errorf("after the peak %d MiB are held, of %d", after.held>>20, before.held>>20)
	}
}
