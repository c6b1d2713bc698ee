package main

import (
	"testing"
	"time"
)

// TestRetriesFor75Hours is a receiver that fails for three days: it gets the same bytes ten times, ever more
// seldom, and once more when the operator wants it.
func TestRetriesFor75Hours(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.coarse = time.Minute
		w.endpoint("shop.example", "orderCreated")
		w.net.inbox.answer = func(webhook) string { return "500" }
		begun := time.Now()
		w.create(t, "kopi", 1)
		w.sleep(92 * time.Hour)

		waits := []time.Duration{0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute}
		for _, hours := range []time.Duration{2, 5, 10, 14, 20, 24} {
			waits = append(waits, hours*time.Hour)
		}
		all := w.net.inbox.await(len(waits))
		if len(all) != len(waits) {
			t.Fatalf("%d attempts, want %d", len(all), len(waits))
		}
		before := begun
		for i, h := range all {
			wait := h.at.Sub(before)
			if wait < waits[i]*8/10 || wait > waits[i]*12/10+2*time.Minute {
				t.Errorf("attempt %d comes after %s, want %s", i+1, wait, waits[i])
			}
			if h.attempt != i+1 || h.body != all[0].body || h.delivery != all[0].delivery {
				t.Errorf("attempt %d is not the same: %+v", i+1, h)
			}
			before = h.at
		}

		w.net.inbox.answer = nil
		w.command("webhook resend -delivery " + all[0].delivery)
		w.sleep(time.Minute)
		if again := w.net.inbox.await(1); len(again) != 1 || again[0].body != all[0].body {
			t.Errorf("sent again: %+v", again)
		}
		w.sleep(92 * time.Hour)
		if more := w.net.inbox.await(0); len(more) > 0 {
			t.Errorf("sent once more after it was received: %+v", more)
		}
	})
}
