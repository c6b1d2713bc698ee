//go:build cgo

package main

import (
	"testing"
	"time"
)

// A store that stores another key of its account while payment sessions are open loses no payment: a session is
// asked about with the key that started it, and with the key in use if the gateway refuses the first.
func TestKeyIsReplaced(t *testing.T) {
	t.Parallel()
	another := midtransAccount
	another.SecretKey = "SB-Mid-server-another"

	inPayLab(t, "the gateway knows both keys", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		l.setGateway(l.storeID, another)

		l.play(order, l.mid, "midtrans", "settlement") // which the earlier key has signed
		l.want("paid", l.outcome(order), "paid [1 paid] orderPaid, stock 8")
	})

	inPayLab(t, "the gateway knows the new key only", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		l.setGateway(l.storeID, another)
		l.mid.key = another.SecretKey

		l.play(order, l.mid, "midtrans", "settlement")
		l.want("paid", l.outcome(order), "paid [1 paid] orderPaid, stock 8")
	})

	// Nobody has chosen how to pay, so Midtrans knows of no payment, and only the page tells whose account it is.
	inPayLab(t, "the gateway knows the new key only, and the order is canceled", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		l.setGateway(l.storeID, another)
		l.mid.key = another.SecretKey

		l.play(order, l.mid, "midtrans", "owner-cancel tick")
		l.want("closed", l.outcome(order), "failed [1 expired] orderFailed, stock 10")
		l.want("pages closed", l.mid.closes, 1)
	})

	inPayLab(t, "the gateway knows the new key only, and nobody pays", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		l.setGateway(l.storeID, another)
		l.mid.key = another.SecretKey
		l.play(order, nil, "", "+23h tick")
		l.want("while it can be paid", l.outcome(order), "pending [1 active], stock 8")

		l.faultOnce("/v2/"+order+"-1/cancel", down) // The page is closed already when it is asked again.
		l.play(order, nil, "", "+1h tick +5m tick")
		l.want("when it is over", l.outcome(order), "expired [1 expired] orderExpired, stock 10")
		l.want("pages closed", l.mid.closes, 1)
	})

	inPayLab(t, "the new key is that of another account", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		l.setGateway(l.storeID, another)
		l.mid.key = "SB-Mid-server-third"

		l.play(order, nil, "", "+24h tick")
		l.want("it waits", l.outcome(order), "pending [1 active], stock 8")
		front, err := l.db.FrontPage(l.storeID, 30)
		l.must(err)
		attention := front.attention
		l.want("orders that the owner is told of", len(attention.Troubles), 1)
		l.want("which", attention.Troubles[0].ID, order)
		l.want("why", attention.Troubles[0].Problem, ProblemRefused)

		l.mid.key = oldMidtransKey
		time.Sleep(5 * time.Minute)
		l.tick()
		l.want("when the gateway knows the key again", l.outcome(order), "expired [1 expired] orderExpired, stock 10")
	})
}

// The key of another account knows nothing of the sessions of the first one. That it finds nothing must not count as
// "nobody has paid".
func TestKeyOfAnotherAccount(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		l.mid.say(order+"-1", "settlement")

		another := midtransAccount
		another.SecretKey = "SB-Mid-server-another"
		l.setGateway(l.storeID, another)
		first := l.mid
		l.mid = newMidtransDouble() // which has no transaction
		l.mid.key = another.SecretKey

		l.play(order, nil, "", "+24h tick +1h tick")
		l.want("while the first account cannot be asked", l.outcome(order), "pending [1 active], stock 8")
		l.want("problem", l.problem(order), "refused status 401: Access denied due to unauthorized transaction")

		l.mid = first
		l.play(order, nil, "", "+1h tick")
		l.want("when it can", l.outcome(order), "paid [1 paid] orderPaid, stock 8")
	})
}

// A replaced key is kept while a session that it started may have to be asked about, and no longer.
func TestReplacedKeysAreDeleted(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		replace := func(key string) {
			account := midtransAccount
			account.SecretKey = key
			l.setGateway(l.storeID, account)
		}
		keys := func() string {
			return l.read("SELECT secret_key FROM gateways WHERE provider = 'midtrans' ORDER BY id")
		}

		replace("SB-Mid-server-2")
		l.want("a key that started nothing", keys(), "SB-Mid-server-2")
		replace("SB-Mid-server-2")
		l.want("the same key again", keys(), "SB-Mid-server-2")

		l.mid.key = "SB-Mid-server-2"
		order := l.newOrder("snap")
		l.get(order)
		replace("SB-Mid-server-3")
		l.want("a key with an open session", keys(), "SB-Mid-server-2, SB-Mid-server-3")

		for range 4 { // the order's end, and three times after it
			l.play(order, nil, "", "+192h tick")
		}
		replace("SB-Mid-server-4")
		l.want("a key whose session is over", keys(), "SB-Mid-server-4")
	})
}
