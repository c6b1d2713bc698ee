package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLogAsJSON reads the log of the running program as a collector of logs does.
func TestLogAsJSON(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		id := w.create(t, "kopi", 1)
		w.get(t, "/v1/orders/"+id)
		w.do(t, "GET", "/v1/orders/x", nil).want(t, 404, "NOT_FOUND")
		newPlayer(t, w).play("anon open /pay/" + id + " | sees Rp85.000")
		time.Sleep(time.Second)

		got := ""
		for line := range strings.Lines(w.log.String()) {
			var entry fields
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Errorf("%v: %s", err, line)
			}
			for _, name := range []string{"time", "level", "msg"} {
				if textOf(entry, name) == "" {
					t.Errorf("no %s: %s", name, line)
				}
			}
			if entry["msg"] != "request" {
				continue
			}
			got += fmt.Sprintln(entry["method"], entry["path"], entry["status"])
			if entry["client"] != "127.0.0.1" || len(textOf(entry, "request_id")) < 16 {
				t.Errorf("it does not say who asked: %s", line)
			}
		}
		want := "POST /v1/orders 201\n" +
			"GET /v1/orders/{order_id} 200\n" +
			"GET /v1/orders/{order_id} 404\n" +
			"GET /pay/{order_id} 200\n"
		if got != want {
			t.Errorf("the requests are\n%s\nwant\n%s", got, want)
		}
	}, "-log-format", "json")
}

// TestKilledUnderLoad kills the program while orders come. All that were acknowledged are there when it runs
// again.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	var mu sync.Mutex
	taken := map[string]string{} // the ids of orders that were acknowledged, by their external ids
	for round := range 3 {
		kill := w.startProcess()
		var clients sync.WaitGroup
		for n := range 8 {
			clients.Go(func() {
				for i := 0; ; i++ {
					body := w.shop.body("teh", 1)
					body["external_id"] = fmt.Sprint(round, "-", n, "-", i)
					r, err := w.send("POST", "/v1/orders", body)
					if err != nil {
						return
					}
					mu.Lock()
					taken[textOf(body, "external_id")] = r.want(t, 201, "").at("order.id")
					mu.Unlock()
				}
			})
		}
		await(t, "fifty orders are taken", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(taken) > 50*round+50
		})
		kill()
		clients.Wait()
	}

	w.startProcess()
	for _, o := range w.all("orders", "starting_after", w.shop.keys["read"]) {
		if external := textOf(o, "external_id"); taken[external] == textOf(o, "id") {
			delete(taken, external)
		}
	}
	if len(taken) > 0 {
		t.Errorf("orders were acknowledged and are lost: %v", taken)
	}
}
