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

// residentMB is a process's resident memory.
func residentMB(b *testing.B, cmd *exec.Cmd) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		b.Skip("needs Linux: ", err)
	}

	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kB, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	must(b, err)
	return kB / 1024
}

// process measures "storeorder serve" as a process of its own.
func (t *table) process(b *testing.B) {
	binary := buildProgram(b)
	t.memory(b, binary)
	t.starts(b, binary)
}

// memory measures the process when it is idle, and after it served 100,000 orders with their webhooks.
func (t *table) memory(b *testing.B, binary string) {
	s := &bench{
		db:   open(b, filepath.Join(b.TempDir(), "process.db")),
		addr: freeAddr(b),
	}
	s.st, s.key = benchStore(b, s.db)
	s.addEndpoint(b, sink(b, 200))

	cmd := launch(b, binary, "serve", "-db", s.db.path, "-addr", s.addr,
		"-webhook-allow-private", "-rate", "1000000000", "-burst", "1000000000")

	awaitAnswer(b, s.addr, s.get("/v1/orders"))
	time.Sleep(3 * time.Second)
	t.add(b, result{
		measure:  "resident memory when idle, MB",
		value:    residentMB(b, cmd),
		target:   "≤ 16",
		measured: "`storeorder serve` as a process of its own",
	})

	l := driveAll(s.addr, 100_000, s.posts(b))
	t.add(b, result{
		measure: "100,000 `POST`s: refused or failed",
		value:   float64(l.failed),
		target:  "= 0",
		measured: fmt.Sprintf("%.0f/s, p99 %.1f ms, each with a webhook delivered meanwhile",
			l.perSecond, p99(l)),
	})
	t.add(b, result{
		measure:  "resident memory after them, MB",
		value:    residentMB(b, cmd),
		target:   "≤ 45",
		measured: "at the end of the load",
	})
	terminate(cmd)
}

// starts measures how long the process takes to serve a big file.
func (t *table) starts(b *testing.B, binary string) {
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
