package main

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// TestCrashAtCommit lets the program die at each COMMIT on an order's way, before or after it is on disk.
// What it has answered is there afterwards, and whoever got no answer asks again. In the end there is one
// order, with its stock, and its payment has counted once.
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
	deaths := 0
	restart := func() (died bool) {
		if synctest.Wait(); w.life.isDead() {
			w.crash()
			deaths++
			return true
		}
		return false
	}
	insist := func(method, path string, body any, headers ...string) reply {
		t.Helper()
		r, err := w.send(method, path, body, headers...)
		if died := restart(); died && (err != nil || r.Status >= 300) {
			r, err = w.send(method, path, body, headers...)
		}
		must(t, err)
		if r.Status >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, r.Status, r.Body)
		}
		return r
	}
	w.sleep(0)
	w.life.dieAt(n, after)

	p := newPlayer(t, w)
	body := w.shop.body("kopi", 2)
	body["payment_method"] = "snap"
	p.order = insist("POST", "/v1/orders", body, "Idempotency-Key", "k").at("order.id")
	insist("GET", "/v1/orders/"+p.order, nil)
	midtrans, page := w.net.pageOf(p.order, "")
	midtrans.say(p.order, page, "settlement")
	path, _, message := midtrans.message(p.order, page, "settlement")
	insist("POST", path+w.shop.id, message)
	for range 2 {
		w.sleep(0)
		restart()
	}
	if deaths != 1 && n <= 5 {
		t.Errorf("the program has died %d times", deaths)
	}
	w.life.dieAt(0, false)
	p.play("= paid by 1, Paid, stock 8")
}
