package main

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// TestCrashAtCommit lets the program die at each COMMIT on an order's way, before or after it is on disk. Whoever gets no
// answer asks again. In the end there is one order, with its stock, and its payment has counted once.
func TestCrashAtCommit(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("commit %d, on disk: %t", n, after), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) { payWithCrash(t, w, n, after) })
			})
		}
	}
}

func payWithCrash(t *testing.T, w *world, n int, after bool) {
	w.sleep(0)
	w.life.mu.Lock()
	w.life.dieIn, w.life.after = n, after
	w.life.mu.Unlock()
	insist := func(method, path string, body any, headers ...string) reply {
		t.Helper()
		r, err := w.send(method, path, body, headers...)
		if synctest.Wait(); w.life.isDead() {
			w.crash()
			r, err = w.send(method, path, body, headers...)
		}
		must(t, err)
		if r.Status >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, r.Status, r.Body)
		}
		return r
	}

	p := newPlayer(t, w)
	body := w.shop.body("kopi", 2)
	body["payment_method"] = "snap"
	id := insist("POST", "/v1/orders", body, "Idempotency-Key", "k").at("order.id")
	p.order = id
	insist("GET", "/v1/orders/"+id, nil)
	w.net.midtrans.say(id, "1", "settlement")
	path, _, message := w.net.midtrans.message(id, "1", "settlement")
	insist("POST", path+w.shop.id, message)
	for range 2 {
		w.sleep(0)
		if w.life.isDead() {
			w.crash()
		}
	}
	w.life.mu.Lock()
	w.life.dieIn = 0
	w.life.mu.Unlock()
	p.who = p.people["shop"]
	p.play("= paid by 1, Paid, stock 8")
}
