// Bench loads the built program over HTTP, on this machine, and prints a table:
//
//	go build -o /tmp/storeorder . && go run .ci/bench/main.go -seconds 10 /tmp/storeorder
//
// Its clients keep the same cores busy. The server's own processor time and memory are read from /proc.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const catalog = `{
  "products": [{"slug": "a", "title": "Kopi Gayo", "price": 85000},
               {"slug": "b", "title": "Kopi Toraja", "price": 95000},
               {"slug": "c", "title": "Gula Aren", "price": 40000, "stock": 1000000000}],
  "payment_methods": [{"code": "bca", "name": "Transfer BCA", "provider": "manual",
                       "accounts": [{"bank": "BCA", "number": "1234567890", "holder": "Kopi"}]}]}`

// shop is the program, serving a store.
type shop struct {
	program, dir, url, key string
	serving                *exec.Cmd
	client                 *http.Client
}

func main() {
	seconds := flag.Int("seconds", 10, "how long each row is measured")
	flag.Parse()
	runtime.LockOSThread() // The server ends with the thread that started it.
	if flag.NArg() != 1 {
		log.Fatal("usage: go run .ci/bench/main.go [-seconds N] PROGRAM")
	}
	dir, err := os.MkdirTemp("", "storeorder-bench-")
	check(err)
	defer os.RemoveAll(dir)
	s := open(flag.Arg(0), dir)
	defer s.close()

	time.Sleep(2 * time.Second)
	fmt.Printf("resident memory when idle: %s\n\n", s.memory())
	order := s.order()
	location := s.send("POST", "/v1/orders", order)
	fmt.Println("| request | clients | a second | p50 | p99 | processor time |\n|---|---|---|---|---|---|")
	for range 60 {
		s.send("POST", "/v1/orders", order)
	}
	for _, row := range []struct {
		name, method, path string
		body               []byte
		clients            int
	}{
		{"durable `POST` of three products", "POST", "/v1/orders", order, 64},
		{"the same", "POST", "/v1/orders", order, 1},
		{"`GET` of one order", "GET", location, nil, 64},
		{"list of 50 orders", "GET", "/v1/orders?limit=50", nil, 64},
		{"list of products", "GET", "/v1/products", nil, 64},
	} {
		s.load(row.name, row.clients, time.Duration(*seconds)*time.Second,
			func() { s.send(row.method, row.path, row.body) })
	}
	fmt.Printf("\nresident memory after that: %s\n", s.memory())
	time.Sleep(time.Minute)
	fmt.Printf("resident memory a minute later: %s\n", s.memory())
}

// open opens a store in a new file and serves it.
func open(program, dir string) *shop {
	s := &shop{program: program, dir: dir, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	s.command("store", "add", "-name", "Kopi", "-email", "owner@example.id")
	file := filepath.Join(dir, "catalog.json")
	check(os.WriteFile(file, []byte(catalog), 0o600))
	s.command("catalog", "import", file)
	s.key = s.command("key", "add", "-name", "bench")["key"].(string)

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	address := ln.Addr().String()
	check(ln.Close())
	s.url = "http://" + address
	s.serving = exec.Command(program, "serve", "-addr", address, "-public-url", s.url, "-rate", "10000000", "-burst",
		"1000000")
	s.serving.Dir, s.serving.SysProcAttr = dir, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	logged, err := os.Create(filepath.Join(dir, "log"))
	check(err)
	s.serving.Stderr = logged
	check(s.serving.Start())
	for range 1000 {
		resp, err := s.client.Get(s.url + "/readyz")
		if err == nil {
			resp.Body.Close()
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := os.ReadFile(logged.Name())
	log.Fatalf("the program does not serve: %s", text)
	return nil
}

func (s *shop) close() {
	check(s.serving.Process.Signal(syscall.SIGTERM))
	check(s.serving.Wait())
}

// command runs one of the program's commands and returns what it prints.
func (s *shop) command(args ...string) (out map[string]any) {
	cmd := exec.Command(s.program, args...)
	cmd.Dir, cmd.Stderr = s.dir, os.Stderr
	text, err := cmd.Output()
	check(err)
	check(json.Unmarshal(text, &out))
	return out
}

// order is the body of an order of all products.
func (s *shop) order() []byte {
	req, err := http.NewRequest("GET", s.url+"/v1/products", nil)
	check(err)
	req.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := s.client.Do(req)
	check(err)
	defer resp.Body.Close()
	var list struct {
		Data struct{ Products []struct{ ID string } }
	}
	check(json.NewDecoder(resp.Body).Decode(&list))

	var items []map[string]any
	for _, p := range list.Data.Products {
		items = append(items, map[string]any{"type": "product", "product_id": p.ID, "quantity": 2})
	}
	buyer := map[string]string{"name": "Siti", "email": "siti@example.id"}
	body, err := json.Marshal(map[string]any{"items": items, "buyer": buyer, "payment_method": "bca"})
	check(err)
	return body
}

// send sends a request that must succeed, and returns the answer's Location.
func (s *shop) send(method, path string, body []byte) string {
	req, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	check(err)
	req.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := s.client.Do(req)
	check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	check(err)
	if resp.StatusCode > 299 {
		log.Fatalf("%s %s: %s %.300s", method, path, resp.Status, answer)
	}
	return resp.Header.Get("Location")
}

// load lets clients send one request after the other, and prints a row.
func (s *shop) load(name string, clients int, d time.Duration, request func()) {
	before, end := s.processorTime(), time.Now().Add(d)
	times := make([][]time.Duration, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for time.Now().Before(end) {
				begin := time.Now()
				request()
				times[i] = append(times[i], time.Since(begin))
			}
		})
	}
	all.Wait()

	took := slices.Sorted(slices.Values(slices.Concat(times...)))
	n := len(took)
	each := (s.processorTime() - before) / time.Duration(n)
	fmt.Printf("| %s | %d | %.0f | %.2f ms | %.2f ms | %d µs |\n", name, clients, float64(n)/d.Seconds(),
		took[n/2].Seconds()*1e3, took[n*99/100].Seconds()*1e3, each.Microseconds())
}

// processorTime is what the server has used up to now, in its own code and in the kernel.
func (s *shop) processorTime() time.Duration {
	stat := s.proc("stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		check(err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

func (s *shop) memory() string {
	_, rest, _ := strings.Cut(s.proc("status"), "VmRSS:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

func (s *shop) proc(name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.serving.Process.Pid, name))
	check(err)
	return string(text)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
