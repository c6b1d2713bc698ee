package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Payments are stories in testdata/: what gateways say, what people do, and what becomes of the order.

func TestPaymentsAtMidtrans(t *testing.T) { playStories(t, "testdata/midtrans.txt") }

func TestPaymentsAtXendit(t *testing.T) { playStories(t, "testdata/xendit.txt") }

func TestPaymentsThatBuyersReport(t *testing.T) { playStories(t, "testdata/claims.txt") }

func TestPayments(t *testing.T) { playStories(t, "testdata/payments.txt") }

func TestSlowGateways(t *testing.T) { playStories(t, "testdata/slow.txt") }

// TestPageThatCannotBeClosed has a gateway refuse to close a page, or to say anything: it is tried every half a minute,
// in time less often.
func TestPageThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ leaves, call, event string }{
		{"faults 500 close, +6h", "midtrans close", ""},
		{"faults 500 close, buyer change bank_transfer", "midtrans close", "Updated"},
		{"faults 401 status, buyer change bank_transfer", "midtrans status", "Updated"},
	} {
		t.Run(c.leaves, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				p := newPlayer(t, w)
				p.play("order kopi 1 snap as A, get, pending, " + c.leaves)
				for _, want := range []struct {
					wait        time.Duration
					least, most int
				}{{5 * time.Minute, 9, 13}, {time.Hour, 0, 100}, {6 * time.Hour, 35, 50}} {
					before := w.net.count(c.call)
					time.Sleep(want.wait)
					if n := w.net.count(c.call) - before; n < want.least || n > want.most {
						t.Errorf("in %v it is tried %d times, want %d to %d", want.wait, n, want.least, want.most)
					}
				}
				pending, expired := "= pending, stock 9", "= expired, Expired, stock 10"
				if c.event != "" {
					pending = "= pending, " + c.event + ", stock 9"
					expired = "= expired, " + c.event + " Expired, stock 10"
				}
				p.play("fault none", pending, "+10m", expired)
			})
		})
	}
}

// TestNotificationBeforeTheAnswer tells of the payment while the gateway's answer to the start is on its way.
func TestNotificationBeforeTheAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.play("order kopi 2 snap as A, fault slow create")
		var got response
		var reader sync.WaitGroup
		reader.Go(func() { got = w.get(t, "/v1/orders/"+p.order) })
		time.Sleep(time.Second)
		w.net.midtrans.say(p.order, "1", "settlement")
		path, _, message := w.net.midtrans.message(p.order, "1", "settlement")
		w.do(t, "POST", path+w.shop.id, message).want(t, 200, "")
		reader.Wait()
		p.play("+10s", "= paid by 1, Paid, stock 8")
		if got.at("order.status") == "pending" && got.at("payment_session.status") != "active" {
			t.Errorf("the reader is told %s", got.Body)
		}
	})
}

// TestOneSession reads an order by many at once, by readers, and with HEAD.
func TestOneSession(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.play("order kopi 1 snap as A")
		path := "/v1/orders/" + p.order
		w.get(t, path, as(w.shop.keys["read"])...).has(t, "payment_session.status none")
		w.do(t, "HEAD", path, nil).want(t, 200, "")
		p.expect("payable none")
		w.net.setFault(fault{kind: "slow", on: "create"})
		var readers sync.WaitGroup
		for range 20 {
			readers.Go(func() { w.get(t, path).has(t, "payment_session.status active") })
		}
		readers.Wait()
		if n := len(w.net.midtrans.sent); n != 1 {
			t.Errorf("%d pages were made", n)
		}
		end := w.get(t, path).at("payment_session.expires_at")
		p.play("settlement, +1m")
		w.get(t, path).has(t, "payment_session.status paid", "payment_session.expires_at "+end)
	})
}

// TestAskedAfterTheEnd has a question leave before an order's end and its answer come after it: the payment in between
// counts.
func TestAskedAfterTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		end := time.Now().Add(6 * time.Hour)
		p.play("order kopi 2 snap as A, get, buyer change bank_transfer, owner open order A")
		time.Sleep(time.Until(end) - 2*time.Second)
		w.net.setFault(fault{kind: "slow", on: "status"})
		var check sync.WaitGroup
		check.Go(func() { p.play("owner press check") })
		time.Sleep(time.Second)
		w.net.midtrans.say(p.order, "1", "settlement") // Its notification is lost.
		check.Wait()
		p.play("+1m", "= paid by 1, Updated Paid, stock 8")
	})
}

// TestReturnByPost has a gateway lead a buyer back by a form of its own: another site posts to the way back, which only
// asks. Everywhere else such a form is refused with a page.
func TestReturnByPost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.play("order kopi 2 snap as A, get, settlement lost")
		other := []string{"Origin", "https://app.midtrans.com", "Sec-Fetch-Site", "cross-site", "Authorization", "",
			"Content-Type", "application/x-www-form-urlencoded"}
		r, err := w.send("POST", "/pay/"+p.order+"/back?order_id=x", "transaction_status=settlement", other...)
		must(t, err)
		if r.Status != 303 || r.Header.Get("Location") != "/pay/"+p.order+"?back=1" {
			t.Errorf("answered %d %s", r.Status, r.Header.Get("Location"))
		}
		p.play("buyer open /pay/$A?back=1 | says paid | paid by 1")

		r, err = w.send("POST", "/pay/"+p.order, "act=change&method=link", other...)
		must(t, err)
		if r.Status != 403 || !strings.Contains(string(r.Body), "situs lain") {
			t.Errorf("another site's form is answered %d %.200s", r.Status, r.Body)
		}
	})
}

// TestManyIdentifiers has somebody try forty cards on one page, and a gateway tell of many disputes: a few identifiers
// are kept, and one more denial leads to a few questions.
func TestManyIdentifiers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.play("order kopi 2 snap as A, get" + strings.Repeat(", pending, deny", 40))
		before := w.net.count("midtrans status")
		p.play("pending, deny")
		if n := w.net.count("midtrans status") - before; n > 10 {
			t.Errorf("one more denial leads to %d questions", n)
		}
		p.play("settlement", "= paid by 1, Paid, stock 8",
			"order teh 1 link as B, get, COMPLETED"+strings.Repeat(", dispute/UNDER_REVIEW=1000", 30)+
				", refund=1000, +0s")
		for order, most := range map[string]int{p.kept["A"]: 21, p.kept["B"]: 23} {
			n, _ := strconv.Atoi(w.value("SELECT count(*) FROM payment_identifiers WHERE order_id = ?", order))
			if n == 0 || n > most {
				t.Errorf("%d identifiers are kept, want at most %d", n, most)
			}
		}
	})
}

// TestManySessionsByNotification has somebody who knows the key tell of pages of an order that nobody made.
func TestManySessionsByNotification(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.play("order kopi 2 snap as A")
		for number := range 55 {
			said := snapPayment{Order: fmt.Sprintf("%s-%d", p.order, number+1), ID: "tx", Status: "pending",
				Gross: "1.00"}
			w.do(t, "POST", "/notifications/midtrans/"+w.shop.id, w.net.midtrans.sign(said)).want(t, 200, "")
			w.sleep(time.Second)
		}
		for _, number := range []string{"1000000", "0", "x", "-1", "+1"} {
			said := snapPayment{Order: p.order + "-" + number, ID: "tx", Status: "pending", Gross: "1.00"}
			w.do(t, "POST", "/notifications/midtrans/"+w.shop.id, w.net.midtrans.sign(said)).want(t, 200, "")
		}
		if n := w.value("SELECT count(*) FROM payment_sessions WHERE order_id = ?", p.order); n != "50" {
			t.Errorf("the order has %s sessions, want 50", n)
		}
	})
}

// TestShiftedSignature moves characters of a signed notification from one field to the next: its signature stays valid.
func TestShiftedSignature(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.play("order kopi 1 snap as A, get")
		said := w.net.midtrans.sign(snapPayment{Order: p.order + "-1", ID: "tx", Status: "settlement", Gross: "12.00"})
		said.Code, said.Gross = said.Code+"1", said.Gross[1:]
		w.do(t, "POST", "/notifications/midtrans/"+w.shop.id, said).want(t, 404, "NOT_FOUND")
	})
}
