//go:build cgo

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// processWalk is a service in a process of its own, which is killed now and then, with gateways on sockets.
type processWalk struct {
	t       *testing.T
	file    string
	storeID string
	key     string
	mid     *oldMidtransDouble
	xen     *oldXenditDouble
	gates   []string // the service's arguments that name the gateways
	serial  int      // of the buyers

	mu    sync.Mutex
	sales map[string]*processSale // by order
}

// processSale is what a buyer knows of their order.
type processSale struct {
	paid         bool // at the gateway
	acknowledged bool // the service has answered the notification of that
}

func newProcessWalk(t *testing.T) *processWalk {
	t.Helper()
	file, storeID, key := newStoreFile(t)
	w := &processWalk{
		t:       t,
		file:    file,
		storeID: storeID,
		key:     key,
		mid:     newMidtransDouble(),
		xen:     newXenditDouble(),
		sales:   map[string]*processSale{},
	}
	command(t, 0, "catalog", "import", "-db", file, "-store", storeID, writeFile(t, "walk.json", walkCatalog))
	for provider, double := range map[string]http.Handler{"midtrans": w.mid, "xendit": w.xen} {
		s := httptest.NewServer(double)
		t.Cleanup(s.Close)
		w.gates = append(w.gates, "-gateway-url", provider+"="+s.URL)
	}

	db, err := openDB(file, false)
	must(t, err)
	defer db.Close()
	for _, account := range []GatewayAccount{midtransAccount, xenditAccount} {
		must(t, db.SetGateway(t.Context(), storeID, account))
	}
	return w
}

func (w *processWalk) start() (s *testServer, kill func()) {
	w.t.Helper()
	args := append([]string{"-public-url", "https://shop.test"}, w.gates...)
	address, _, process := startProgram(w.t, w.file, args...)
	return reach(w.t, address, w.key), func() {
		process.Process.Kill()
		process.Wait()
	}
}

// ask sends a request. ok is false if the service was killed before it had answered.
func (w *processWalk) ask(
	s *testServer, method, path string, header http.Header, body string,
) (answer string, ok bool) {
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	must(w.t, err)
	r.Header = header.Clone()
	r.Host = "shop.test"
	resp, err := s.client.Do(r)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", false
	}
	if resp.StatusCode/100 != 2 {
		w.t.Errorf("%s %s is answered with %d %s", method, path, resp.StatusCode, text)
	}
	return string(text), true
}

// buy lets one buyer after the other order something and pay it, until the service is killed.
func (w *processWalk) buy(s *testServer) {
	for w.buyOne(s) {
	}
}

func (w *processWalk) buyOne(s *testServer) bool {
	w.mu.Lock()
	w.serial++
	buyer := w.serial
	w.mu.Unlock()
	method, provider := "snap", "midtrans"
	var double oldGatewayDouble = w.mid
	state := "settlement"
	if buyer%2 == 0 {
		method, provider, state = "link", "xendit", "COMPLETED"
		double = w.xen
	}

	header := http.Header{"Authorization": {"Bearer " + w.key}, "Content-Type": {"application/json"}}
	body := with(s.order("cangkir", 1), "payment_method", method)
	created, ok := w.ask(s, "POST", "/v1/orders", header, string(mustJSON(body)))
	if !ok {
		return false
	}
	var order struct{ Data struct{ Order Order } }
	must(w.t, json.Unmarshal([]byte(created), &order))
	id := order.Data.Order.ID
	sale := &processSale{}
	w.mu.Lock()
	w.sales[id] = sale
	w.mu.Unlock()

	shown, ok := w.ask(s, "GET", "/v1/orders/"+id, header, "")
	if !ok || !strings.Contains(shown, `"status":"active"`) {
		return ok
	}
	sale.paid = double.pay(id+"-1", state)
	if !sale.paid {
		w.t.Errorf("the page of order %s cannot be paid", id)
	}
	if buyer%3 == 0 { // Its notification is lost.
		return true
	}
	header, message := double.message(id+"-1", state)
	_, sale.acknowledged = w.ask(s, "POST", "/notifications/"+provider+"/"+w.storeID, header, message)
	return sale.acknowledged
}

// settled waits until an order has the state that its payment asks for. A buyer whose notification was lost looks at
// the pay page.
func (w *processWalk) settled(s *testServer, id string, sale *processSale) {
	want := "pending"
	if sale.paid {
		want = "paid"
	}

	header := http.Header{"Authorization": {"Bearer " + w.key}}
	var status string
	for range 100 {
		if !sale.acknowledged {
			w.ask(s, "GET", "/pay/"+id, nil, "")
		}
		shown, _ := w.ask(s, "GET", "/v1/orders/"+id, header, "")
		var answer struct{ Data struct{ Order Order } }
		must(w.t, json.Unmarshal([]byte(shown), &answer))
		status = string(answer.Data.Order.Status)
		if status == want {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Errorf("order %s is %s, and its buyer: %+v", id, status, *sale)
}

// TestWalkOfAProcess kills the service twice while buyers pay: what they have paid is seen, whether or not the
// service has heard of it.
func TestWalkOfAProcess(t *testing.T) {
	t.Parallel()
	w := newProcessWalk(t)
	for range 2 {
		s, kill := w.start()
		var buyers sync.WaitGroup
		for range 4 {
			buyers.Go(func() { w.buy(s) })
		}
		time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond)
		kill()
		buyers.Wait()
	}

	s, kill := w.start()
	var all sync.WaitGroup
	for id, sale := range w.sales {
		all.Go(func() { w.settled(s, id, sale) })
	}
	all.Wait()
	kill()

	command(t, 0, "check", "-db", w.file)
	db, err := openDB(w.file, false)
	must(t, err)
	defer db.Close()
	gaps := scalar[int](t, db, `
		SELECT count(*) FROM (
			SELECT order_row FROM events
			GROUP BY order_row
			HAVING count(*) <> max(sequence) OR min(sequence) <> 1)`)
	if gaps > 0 {
		t.Errorf("%d orders have gaps in their events", gaps)
	}
	t.Log(fmt.Sprint(len(w.sales), " orders and 3 kills"))
}
