//go:build cgo

package main

import (
	"testing"
	"time"
)

// The owner's approval of a challenged payment outlives a gateway that is away, and a key that is refused for a while.
func TestApprovalOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get capture/challenge")
		for _, fault := range []gatewayFault{down, answering(401, `{"error_messages":["no"]}`)} {
			l.setFault(fault)
			l.act(order, OwnerApproves)
			time.Sleep(5 * time.Minute)
			l.tick()
		}
		l.want("meanwhile", l.status(order), "awaiting_verification")

		l.setFault(nil)
		time.Sleep(5 * time.Minute)
		l.tick()
		l.want("after it", l.status(order), "paid")
	})
}

// A notification that is given up with a gateway that is silent leaves a note.
func TestSilenceIsNoted(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		header, body := l.mid.message(order+"-1", "settlement")
		l.setFault(down)
		l.want("answer", l.notify("midtrans", header, body), 200)
		l.play(order, nil, "", "+24h tick +168h tick +1h tick")
		l.want("order", l.status(order), "expired")
		l.want("notes", l.notes(order), "unconfirmed #1 tx-"+order+"-1")
	})
}
