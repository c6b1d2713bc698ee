//go:build cgo

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// buildProgram builds storeorder and returns the file.
func buildProgram(b *testing.B) string {
	b.Helper()
	binary := filepath.Join(b.TempDir(), "storeorder")
	out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func launch(b *testing.B, binary string, args ...string) *exec.Cmd {
	b.Helper()
	cmd := exec.Command(binary, args...)
	must(b, cmd.Start())

	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func terminate(cmd *exec.Cmd) {
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
}

// freeAddr is an address at which nobody listens.
func freeAddr(b *testing.B) string {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	defer ln.Close()
	return ln.Addr().String()
}

// awaitAnswer waits until a server answers a request with 200.
func awaitAnswer(b *testing.B, addr string, request []byte) {
	b.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if answers(addr, request) {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
	b.Fatal("the server does not answer")
}

func answers(addr string, request []byte) bool {
	c, err := dial(addr)
	if err != nil {
		return false
	}
	defer c.Close()
	status, _, err := c.do(request)
	return err == nil && status == http.StatusOK
}

// residentMB is a process's resident memory, and the part of it that is not pages of files.
func residentMB(b *testing.B, cmd *exec.Cmd) (all, anonymous float64) {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		b.Skip("needs Linux: ", err)
	}

	field := func(name string) float64 {
		_, after, _ := strings.Cut(string(status), name)
		kB, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
		must(b, err)
		return kB / 1024
	}
	return field("VmRSS:"), field("RssAnon:")
}

// addMemory adds a row about a process's resident memory.
func (t *table) addMemory(b *testing.B, cmd *exec.Cmd, measure, target, how string) {
	b.Helper()
	all, anonymous := residentMB(b, cmd)
	t.add(b, result{
		measure:  measure,
		value:    all,
		target:   target,
		measured: fmt.Sprintf("%s; without pages of files %.1f", how, anonymous),
	})
}

// memory measures "storeorder serve" as a process of its own: when it is idle, under load, and after many connections.
func (t *table) memory(b *testing.B) {
	binary := buildProgram(b)
	t.orders(b, binary)
	t.connections(b, binary)
}

// forget has the system write a file to the disk and forget its pages. Of a program that was just written, it maps larger
// parts at once: 1.3 MB more than of one that was read, as after a start of the machine.
func forget(b *testing.B, file string) {
	b.Helper()
	out, err := exec.Command("dd", "of="+file, "oflag=nocache", "conv=notrunc,fdatasync", "count=0").CombinedOutput()
	if err != nil {
		b.Logf("the program stays in memory: %v %s", err, out)
	}
}

// orders measures the process when it is idle, and after it served 100,000 orders with their webhooks.
func (t *table) orders(b *testing.B, binary string) {
	s := &bench{
		db:   open(b, filepath.Join(b.TempDir(), "process.db")),
		addr: freeAddr(b),
	}
	s.st, s.key = benchStore(b, s.db)
	s.addEndpoint(b, sink(b, 200))

	forget(b, binary)
	cmd := launch(b, binary, "serve", "-db", s.db.path, "-addr", s.addr,
		"-webhook-allow-private", "-rate", "1000000000", "-burst", "1000000000")

	awaitAnswer(b, s.addr, s.get("/v1/orders"))
	time.Sleep(3 * time.Second)
	t.addMemory(b, cmd, "resident memory when idle, MB", "≤ 16", "a few seconds after its start")

	l := driveAll(s.addr, 100_000, s.posts(b))
	t.add(b, result{
		measure: "100,000 `POST`s: refused or failed",
		value:   float64(l.failed),
		target:  "= 0",
		measured: fmt.Sprintf("%.0f/s, p99 %.1f ms, each with a webhook delivered meanwhile",
			l.perSecond, p99(l)),
	})
	t.addMemory(b, cmd, "resident memory after them, MB", "≤ 40", "at the end of the load")
	terminate(cmd)
}

// connections measures the process a minute after the last of 15,000 connections has closed. Each has made a request
// and then stood idle until the service needed its place.
func (t *table) connections(b *testing.B, binary string) {
	const connections = 15_000
	p := startBenchProgram(b, binary, unlimitedCatalog(40))
	request := p.gets("/v1/orders", "")[0]

	open := make([]*client, connections)
	parallel(clients, func(i int) {
		for ; i < connections; i += clients {
			c, err := dial(p.addr)
			if err != nil {
				b.Error(err)
				return
			}
			open[i] = c
			if _, _, err := c.do(request); err != nil {
				b.Error(err)
			}
		}
	})
	peak, _ := residentMB(b, p.cmd)
	for _, c := range open {
		if c != nil {
			c.Close()
		}
	}

	time.Sleep(time.Minute)
	t.addMemory(b, p.cmd, "resident memory after 15,000 idle connections have closed, MB", "≤ 64",
		fmt.Sprintf("a minute later; while they were open %.0f", peak))
	terminate(p.cmd)
}

// start measures how long the process takes to serve a big file.
func (t *table) start(b *testing.B) {
	binary := buildProgram(b)
	s := &bench{
		db:   open(b, t.million(b)),
		addr: freeAddr(b),
	}
	s.st, s.key = benchStore(b, s.db)

	var took []float64
	for range rounds {
		begun := time.Now()
		cmd := launch(b, binary, "serve", "-db", s.db.path, "-addr", s.addr)
		awaitAnswer(b, s.addr, s.get("/v1/orders?limit=1"))
		elapsed := time.Since(begun)
		took = append(took, float64(elapsed.Microseconds())/1000)
		terminate(cmd)
	}

	t.add(b, result{
		measure:  "start on a million orders to the first answer, ms",
		value:    median(took),
		target:   "≤ 50",
		measured: fmt.Sprintf("from exec to the answer, median of %d", rounds),
	})
}
