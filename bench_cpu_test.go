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

// benchBinary is another build of the program to compare with, such as the last release.
var benchBinary = flag.String("binary", "", "compare the processor time with that of this `file`")

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

// cpuLoad is a program with the requests that it gets.
type cpuLoad struct {
	*benchProgram
	requests [][]byte
	await    func() // if not nil, waits until the program has done what the requests caused
}

// cpuCosts lets clients send each program its requests, in turns, and returns how much processor time its server used for
// a request: in microseconds, for each round.
func cpuCosts(b *testing.B, all ...cpuLoad) (costs [][]float64, loads [][]load) {
	b.Helper()
	costs, loads = make([][]float64, len(all)), make([][]load, len(all))
	for turn := range 1 + rounds {
		for k := range all {
			i := k
			if turn%2 == 1 { // the last one first
				i = len(all) - 1 - k
			}
			p := all[i]

			before := cpuTime(b, p.cmd)
			l := drive(p.addr, clients, p.requests)
			if p.await != nil {
				p.await()
			}
			used := cpuTime(b, p.cmd) - before
			if l.failed > 0 {
				b.Errorf("%d requests failed", l.failed)
			}
			if turn > 0 { // The first one is to warm up.
				costs[i] = append(costs[i], float64(used.Microseconds())/float64(l.sent))
				loads[i] = append(loads[i], l)
			}
		}
	}
	return costs, loads
}

// medianRatio is the median of the rounds' ratios.
func medianRatio(left, right []float64) float64 {
	var all []float64
	for i := range left {
		all = append(all, left[i]/right[i])
	}
	return median(all)
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

// cpu measures how much processor time the server uses for a request. With -binary, another build of the program gets the
// same requests in turns.
func (t *table) cpu(b *testing.B) {
	binaries := []string{buildProgram(b)}
	if *benchBinary != "" {
		binaries = append(binaries, *benchBinary)
	}

	row := func(measure, target string, catalog []byte, requests func(*benchProgram) [][]byte) {
		var all []cpuLoad
		for _, binary := range binaries {
			p := startBenchProgram(b, binary, catalog)
			drive(p.addr, clients, p.posts(b)) // for the orders that are read
			all = append(all, cpuLoad{benchProgram: p, requests: requests(p)})
		}
		costs, loads := cpuCosts(b, all...)

		measured := fmt.Sprintf("%.0f/s, p99 %.1f ms", medianOf(loads[0], rate), medianOf(loads[0], p99))
		if len(all) > 1 {
			measured += fmt.Sprintf("; %.3f of the %.1f µs of %s",
				medianRatio(costs[0], costs[1]), median(costs[1]), filepath.Base(binaries[1]))
		}
		t.add(b, result{measure: measure, value: median(costs[0]), target: target, measured: measured})
		for _, p := range all {
			terminate(p.cmd)
		}
	}
	row("µs of CPU per durable `POST`, 64 clients", "≤ 140", unlimitedCatalog(40),
		func(p *benchProgram) [][]byte { return p.posts(b) })
	row("the same when all three products have a limited stock", "≤ 140", benchCatalog(),
		func(p *benchProgram) [][]byte { return p.posts(b) })
	row("µs of CPU per `GET` of one order, 64 clients", "≤ 55", unlimitedCatalog(40),
		func(p *benchProgram) [][]byte { return p.gets("/v1/orders/", p.orderIDs(b)...) })
	row("µs of CPU per list of 50, 64 clients", "≤ 130", unlimitedCatalog(40),
		func(p *benchProgram) [][]byte { return p.gets("/v1/orders?limit=50", "") })
	t.deliveryCPU(b, binaries[0])
}

// deliveryCPU compares orders in a shop with an endpoint, until all of its webhooks are delivered, with orders in a shop
// without one.
func (t *table) deliveryCPU(b *testing.B, binary string) {
	alone := startBenchProgram(b, binary, unlimitedCatalog(40))
	told := startBenchProgram(b, binary, unlimitedCatalog(40))
	told.run(b, "webhook add", "-store", told.store, "-url", sink(b, 200), "-webhook-allow-private")
	db := open(b, told.db)
	delivered := func() {
		for begun := time.Now(); ; {
			if time.Since(begun) > time.Minute {
				b.Fatal("a webhook is not delivered")
			}
			waiting, err := queryOne(db.reader, scanValue[bool],
				"SELECT EXISTS (SELECT 1 FROM deliveries WHERE next_at IS NOT NULL)")
			must(b, err)
			if !waiting {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}

	costs, _ := cpuCosts(b,
		cpuLoad{benchProgram: alone, requests: alone.posts(b)},
		cpuLoad{benchProgram: told, requests: told.posts(b), await: delivered})
	t.add(b, result{
		measure:  "a durable `POST` with an endpoint and its delivery, against none",
		value:    medianRatio(costs[1], costs[0]),
		target:   "≤ 1.6",
		measured: fmt.Sprintf("%.0f and %.0f µs", median(costs[1]), median(costs[0])),
	})
}
