//go:build cgo

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHealthAfterAnAttempt(t *testing.T) {
	t.Parallel()
	const timeout = 15 * time.Second
	narrow := Health{LaneNarrow, 1, 15_000}
	tests := []struct {
		name      string
		before    Health
		delivered bool
		took      time.Duration
		want      Health
	}{
		{"its first success", Health{LaneUnproven, 0, 0}, true, 100 * time.Millisecond, Health{LaneQuick, 0, 50}},
		{"its first failure", Health{LaneQuick, 0, 50}, false, time.Millisecond, Health{LaneUnproven, 1, 50}},
		{"five in a row", Health{LaneUnproven, 4, 50}, false, time.Millisecond, Health{LaneNarrow, 5, 50}},
		{"a success after them", Health{LaneNarrow, 9, 50}, true, 50 * time.Millisecond, Health{LaneQuick, 0, 50}},

		{"its first timeout", Health{LaneQuick, 0, 50}, false, timeout, narrow},
		{"its first slow success", Health{LaneQuick, 0, 50}, true, 3 * time.Second, Health{LaneNarrow, 0, 3000}},
		{"a quick success after a timeout", narrow, true, 0, Health{LaneNarrow, 0, 7500}},
		{"another", Health{LaneNarrow, 0, 7500}, true, 0, Health{LaneNarrow, 0, 3750}},
		{"a third", Health{LaneNarrow, 0, 3750}, true, 0, Health{LaneQuick, 0, 1875}},
		{"a quick failure after a timeout", narrow, false, 0, Health{LaneNarrow, 2, 15_000}},
	}
	for _, c := range tests {
		if got := c.before.after(c.delivered, c.took); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestStoresTakeTurns(t *testing.T) {
	t.Parallel()
	r := newRoom()
	r.hold("held", "b", LaneNarrow, 2)
	var list []Endpoint
	for _, id := range []string{"a1", "a2", "a3", "b1", "c1", "c2"} {
		list = append(list, Endpoint{ID: id, StoreID: id[:1]})
	}

	var got []string
	for _, e := range r.inTurns(LaneNarrow, list) {
		got = append(got, e.ID)
	}
	want := []string{"a1", "c1", "a2", "c2", "a3", "b1"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestDispatchWritesLittle has 300 endpoints with ten due deliveries each. However many they are, one write
// claims and records a bounded number of them.
func TestDispatchWritesLittle(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	for i := range 30 {
		store := s.inStore(t, fmt.Sprintf("toko-%d", i))
		for j := range 10 {
			id, _ := store.endpoint(t, fmt.Sprintf("e%d-%d.example", i, j))
			s.pings(t, 10, id)
		}
	}

	writes := countWrites(t, s.db)
	claims, err := s.db.Dispatch(t.Context(), nil, newRoom())
	must(t, err)
	if len(claims) == 0 || len(claims) > writeMost {
		t.Errorf("%d are claimed, want 1 to %d", len(claims), writeMost)
	}
	if most := writes.most(); most > 2*writeMost {
		t.Errorf("one write changes %d rows, want %d at most", most, 2*writeMost)
	}

	t.Run("and what may not be claimed is not read", func(t *testing.T) {
		plan := strings.Join(plan(t, s.db, sqlDueEndpoints), "\n")
		if !strings.Contains(plan, "USING INDEX endpoints_due (lane=? AND due_at<?)") {
			t.Errorf("the endpoints are found by:\n%s", plan)
		}
	})
}

// TestNothingDueIsNotWritten lets the queue look when nothing is due.
func TestNothingDueIsNotWritten(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.endpoint(t, "a.example")
	writes := countWrites(t, s.db)
	for range 3 {
		claims, err := s.db.Dispatch(t.Context(), nil, newRoom())
		must(t, err)
		if len(claims) != 0 {
			t.Errorf("%d are claimed", len(claims))
		}
	}
	if most := writes.most(); most != 0 {
		t.Errorf("%d rows are written", most)
	}
}

// TestResendSinceWritesLittle resends a thousand deliveries.
func TestResendSinceWritesLittle(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	id, _ := s.endpoint(t, "a.example")
	s.pings(t, 1000, id)
	s.exec(t, "UPDATE deliveries SET status = 'failed', next_at = NULL, attempt = 10")

	writes := countWrites(t, s.db)
	n, err := s.db.ResendSince(t.Context(), s.storeID, id, 0)
	must(t, err)
	if n != 1000 {
		t.Errorf("%d are resent, want 1000", n)
	}
	if most := writes.most(); most > batchRows+1 {
		t.Errorf("one write changes %d rows, want %d at most", most, batchRows+1)
	}
	s.wantDeliveries(t, id, "1000 pending")
}
