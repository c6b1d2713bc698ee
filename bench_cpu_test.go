//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// benchBinary has the benchmarks of a process measure another build of the program, such as the last release.
var benchBinary = flag.String("binary", "", "measure this `file` instead of the program here")

// benchProgram is "storeorder serve" as a process of its own. It is set up with its commands, so that it can be
// another build of the program.
type benchProgram struct {
	binary string
	db     string
	addr   string
	store  string
	key    string
	cmd    *exec.Cmd
}

// startBenchProgram serves a new file with one store and a catalog.
func startBenchProgram(b *testing.B, binary string, catalog []byte) *benchProgram {
	b.Helper()
	p := &benchProgram{
		binary: binary,
		db:     filepath.Join(b.TempDir(), "bench.db"),
		addr:   freeAddr(b),
	}
	p.store = p.run(b, "store add", "-name", "Kopi Kita", "-email", "owner@example.id")["store_id"].(string)
	p.key = p.run(b, "key add", "-store", p.store, "-name", "bench")["key"].(string)
	p.run(b, "catalog import", "-store", p.store, writeFile(b, "catalog.json", string(catalog)))
	p.serve(b)
	return p
}

func (p *benchProgram) serve(b *testing.B) {
	b.Helper()
	p.cmd = launch(b, p.binary, "serve", "-db", p.db, "-addr", p.addr,
		"-webhook-allow-private", "-rate", "1000000000", "-burst", "1000000000")
	awaitAnswer(b, p.addr, p.gets("/v1/", "orders")[0])
}

// run runs a command on the program's file and returns what it prints.
func (p *benchProgram) run(b *testing.B, command string, flags ...string) (out object) {
	b.Helper()
	args := append(strings.Fields(command), "-db", p.db)
	printed, err := exec.Command(p.binary, append(args, flags...)...).Output()
	if err != nil {
		b.Fatalf("storeorder %s: %v", command, err)
	}
	must(b, json.Unmarshal(printed, &out))
	return out
}

// gets are requests for a path with each of the values at its end.
func (p *benchProgram) gets(path string, values ...string) [][]byte {
	requests := bench{key: p.key}
	return requests.gets(path, values)
}

// benchList is what the benchmarks read of a list.
type benchList struct {
	Products []struct{ ID string }
	Orders   []struct{ ID string }
}

// get reads a list.
func (p *benchProgram) get(b *testing.B, path string) benchList {
	b.Helper()
	c, err := dial(p.addr)
	must(b, err)
	defer c.Close()

	_, err = c.Write(p.gets(path, "")[0])
	must(b, err)
	_, body, err := c.read()
	must(b, err)
	var out struct{ Data benchList }
	must(b, json.Unmarshal(body, &out))
	return out.Data
}

// posts are requests for orders of three products.
func (p *benchProgram) posts(b *testing.B) [][]byte {
	b.Helper()
	var ids []string
	for _, product := range p.get(b, "/v1/products?type=product&limit=50").Products {
		ids = append(ids, product.ID)
	}
	return orderRequests(p.key, ids)
}

// orderIDs are the ids of the newest 50 orders.
func (p *benchProgram) orderIDs(b *testing.B) (ids []string) {
	b.Helper()
	for _, order := range p.get(b, "/v1/orders?limit=50").Orders {
		ids = append(ids, order.ID)
	}
	return ids
}

// cpuTime is how much processor time a process has used so far, in the program and in the kernel for it.
func cpuTime(b *testing.B, cmd *exec.Cmd) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		b.Skip("needs Linux: ", err)
	}

	// The fields are counted after the command's name, which may hold spaces (proc_pid_stat(5)).
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const utime, stime, perSecond = 11, 12, 100
	user, err := strconv.Atoi(fields[utime])
	must(b, err)
	system, err := strconv.Atoi(fields[stime])
	must(b, err)
	return time.Duration(user+system) * time.Second / perSecond
}

// cpuPerRequest lets clients send requests and returns how much processor time the server used for each, in
// microseconds: the median of five rounds.
func (p *benchProgram) cpuPerRequest(b *testing.B, requests [][]byte) (micros float64, all []load) {
	b.Helper()
	drive(p.addr, clients, requests) // to warm up

	var costs []float64
	for range 5 {
		before := cpuTime(b, p.cmd)
		l := drive(p.addr, clients, requests)
		used := cpuTime(b, p.cmd) - before
		if l.failed > 0 {
			b.Errorf("%d requests failed", l.failed)
		}

		costs = append(costs, float64(used.Microseconds())/float64(l.sent))
		all = append(all, l)
	}
	return median(costs), all
}

// unlimitedCatalog has as many products of unlimited stock.
func unlimitedCatalog(products int) []byte {
	var all []object
	for i := range products {
		all = append(all, object{
			"slug":        fmt.Sprint("kopi-", i),
			"title":       fmt.Sprintf("Kopi nomor %05d, 250 g", i),
			"description": strings.Repeat("Arabika dari dataran tinggi. ", 4),
			"price":       85_000,
		})
	}
	method := object{"code": "bank_transfer", "name": "Transfer", "provider": "manual"}
	return mustJSON(object{"products": all, "payment_methods": []object{method}})
}

// unlimitedShop opens a database with a store that sells 40 products of unlimited stock, and returns their ids.
func unlimitedShop(b *testing.B) (db *DB, st Store, products []string) {
	b.Helper()
	db = open(b, filepath.Join(b.TempDir(), "unlimited.db"))
	st = addBenchStore(b, db).Store
	catalog, err := readCatalog(unlimitedCatalog(40))
	must(b, err)
	must(b, db.ImportCatalog(b.Context(), st.ID, catalog))
	products, err = queryAll(db.reader, scanValue[string], "SELECT id FROM products WHERE stock IS NULL")
	must(b, err)
	return db, st, products
}

// cpu measures how much processor time the server uses for a request.
func (t *table) cpu(b *testing.B) {
	binary := *benchBinary
	if binary == "" {
		binary = buildProgram(b)
	}
	p := startBenchProgram(b, binary, unlimitedCatalog(40))
	limited := startBenchProgram(b, binary, benchCatalog())

	row := func(measure, target string, p *benchProgram, requests [][]byte) float64 {
		cost, loads := p.cpuPerRequest(b, requests)
		t.add(b, result{
			measure:  measure,
			value:    cost,
			target:   target,
			measured: fmt.Sprintf("%.0f/s, p99 %.1f ms", medianOf(loads, rate), medianOf(loads, p99)),
		})
		return cost
	}

	alone := row("µs of CPU per durable `POST`, 64 clients", "≤ 140", p, p.posts(b))
	row("the same when all three products have a limited stock", "≤ 140", limited, limited.posts(b))
	row("µs of CPU per `GET` of one order, 64 clients", "≤ 55", p,
		p.gets("/v1/orders/", p.orderIDs(b)...))
	row("µs of CPU per list of 50, 64 clients", "≤ 130", p,
		p.gets("/v1/orders?limit=50", ""))

	p.run(b, "webhook add", "-store", p.store, "-url", sink(b, 200), "-webhook-allow-private")
	told, _ := p.cpuPerRequest(b, p.posts(b))
	t.add(b, result{
		measure:  "a durable `POST` with an endpoint and its delivery, against none",
		value:    told / alone,
		target:   "≤ 1.6",
		measured: fmt.Sprintf("%.0f and %.0f µs", told, alone),
	})
}
