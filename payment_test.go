package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Payments are stories in testdata/: what gateways say, what people do, and what becomes of the order.

func TestPaymentsAtMidtrans(t *testing.T) { playStories(t, "testdata/midtrans.txt") }

func TestPaymentsAtXendit(t *testing.T) { playStories(t, "testdata/xendit.txt") }

func TestPaymentsThatBuyersReport(t *testing.T) { playStories(t, "testdata/claims.txt") }

func TestPayments(t *testing.T) { playStories(t, "testdata/payments.txt") }

func TestSlowGateways(t *testing.T) { playStories(t, "testdata/slow.txt") }

// TestForgedNotifications sends messages that have to change nothing, although the gateways would confirm that
// both orders are paid.
func TestForgedNotifications(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.play("order kopi 1 snap as A, get", "order kopi 1 link as B, get")
		w.net.midtrans.say(p.kept["A"], "1", "settlement")
		w.net.xendit.say(p.kept["B"], "1", "COMPLETED")
		_, _, snap := w.net.midtrans.message(p.kept["A"], "1", "settlement")
		_, token, link := w.net.xendit.message(p.kept["B"], "1", "COMPLETED")
		wrong := []string{"X-Callback-Token", "another-token"}
		calls := len(w.net.calls)
		for _, c := range []struct {
			name, path, body string
			header           []string
			status           int
		}{
			{"another amount", "midtrans/" + w.shop.id, strings.Replace(snap, "87500.00", "1.00", 1), nil, 404},
			{"another order", "midtrans/" + w.shop.id, strings.Replace(snap, p.kept["A"], p.kept["B"], 1), nil, 404},
			{"no signature", "midtrans/" + w.shop.id, strings.Replace(snap, "signature_key", "x", 1), nil, 404},
			{"another store", "midtrans/" + w.other.id, snap, nil, 404},
			{"no JSON", "midtrans/" + w.shop.id, snap[1:], nil, 404},
			{"no token", "xendit/" + w.shop.id, link, nil, 404},
			{"wrong token", "xendit/" + w.shop.id, link, wrong, 404},
			{"another store", "xendit/" + w.other.id, link, token, 404},
			{"no gateway", "paypal/" + w.shop.id, link, token, 404},
			{"the sandbox", "sandbox/" + w.shop.id, link, token, 404},
			{"no store", "xendit/x", link, token, 404},
			{"too long", "xendit/" + w.shop.id, strings.Repeat(" ", 1<<20) + link, token, 413},
		} {
			header := append([]string{"Authorization", ""}, c.header...)
			r, err := w.send("POST", "/notifications/"+c.path, c.body, header...)
			must(t, err)
			if r.Status != c.status {
				t.Errorf("%s: %d, want %d", c.name, r.Status, c.status)
			}
			synctest.Wait()
		}
		another := strings.NewReplacer(p.kept["B"], "0190f5a0-0000-7000-8000-000000000001", "ps-1", "ps-9")
		unknown := another.Replace(link)
		w.do(t, "POST", "/notifications/xendit/"+w.shop.id, unknown, token...).want(t, 200, "")
		synctest.Wait()
		for _, call := range w.net.calls[calls:] {
			t.Errorf("a forgery leads to the call %s", call)
		}
	})
}

// TestAnotherStoresNotification has a store that knows the gateway's token tell of another store's order.
func TestAnotherStoresNotification(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.command("gateway set -mode live -provider xendit -store "+w.other.id, stdin+xenditKey+"\n"+xenditToken)
		p := newPlayer(t, w)
		p.play("order kopi 1 link as A, get")
		_, token, body := w.net.xendit.message(p.order, "1", "COMPLETED")
		calls := len(w.net.calls)
		for _, attempt := range []string{"-1", "-2"} {
			about := strings.ReplaceAll(body, p.order+"-1", p.order+attempt)
			w.do(t, "POST", "/notifications/xendit/"+w.other.id, about, token...).want(t, 200, "")
		}
		synctest.Wait()
		w.get(t, "/v1/orders/"+p.order).has(t, "payment_session.status active", "payment_session.attempt 1")
		if len(w.net.calls) > calls {
			t.Errorf("it leads to %v", w.net.calls[calls:])
		}
	})
}

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

// setKey has Midtrans know this key and no other. If there is a mode, the store uses it from now on.
func setKey(w *world, s *store, mode, key string) {
	w.net.midtrans.mu.Lock()
	w.net.midtrans.key = key
	w.net.midtrans.mu.Unlock()
	if mode != "" {
		w.command("gateway set -provider midtrans -store "+s.id+" -mode "+mode, stdin+key)
	}
}

// TestPageThatIsNotOurs has somebody who knows a key that the shop has used pay a page that they made themselves, under
// the reference of a real order: with play money at Midtrans's sandbox, or in an account that the shop has left.
func TestPageThatIsNotOurs(t *testing.T) {
	for _, keys := range []string{"sandbox=k1 live=k2", "live=k1 live=k2", "sandbox=k1"} {
		t.Run(keys, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				for key := range strings.FieldsSeq(keys) {
					mode, name, _ := strings.Cut(key, "=")
					setKey(w, w.other, mode, name)
				}
				p := newPlayer(t, w)
				p.play("other order kopi 2 bank_transfer as A | 201 170000")
				setKey(w, w.other, "", "k1")
				theirs := &gatewayPage{reference: p.order + "-9", id: "theirs", amount: 170000,
					ends: time.Now().Add(time.Hour), status: "ACTIVE"}
				w.net.midtrans.mu.Lock()
				w.net.midtrans.all = append(w.net.midtrans.all, theirs)
				w.net.midtrans.mu.Unlock()
				w.net.midtrans.say(p.order, "9", "settlement")
				path, _, body := w.net.midtrans.message(p.order, "9", "settlement")
				w.do(t, "POST", path+w.other.id, body).want(t, 200, "")
				p.who = p.people["other"]
				w.sleep(time.Minute)
				if got := strings.Join(p.outcome()[:2], ", "); got != "pending, stock 8" {
					t.Errorf("the order is %s", got)
				}
			})
		})
	}
}

// TestKeysWithOneToken replaces a key at Xendit by another one with the same token, and then by one of another account.
// What is said of the first key's payment is heard all the same, also while its refunds cannot be read.
func TestKeysWithOneToken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		replace := func(key, token string) {
			w.net.xendit.mu.Lock()
			w.net.xendit.key = key
			w.net.xendit.mu.Unlock()
			w.command("gateway set -provider xendit -mode live -store "+w.shop.id, stdin+key+"\n"+token)
		}
		w.net.xendit.odd["norefunds"] = true
		p := newPlayer(t, w)
		p.play("order kopi 2 link as A, get")
		replace("xnd_production_two", xenditToken)
		p.play("COMPLETED, +1h", "= paid by 1, Paid, stock 8")
		replace("xnd_production_three", "another-token")
		p.play("dispute/LOST=172500, +1m", "= paid by 1, Paid Alerted, stock 8, disputed")
		path, header, body := w.net.xendit.message(p.order, "1", "dispute/LOST=172500")
		p.play("owner open order A, owner press resolve")
		w.do(t, "POST", path+w.shop.id, body, header...).want(t, 200, "")
		p.play("shop +1m", "= paid by 1, Paid Alerted Alerted, stock 8")
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

// TestOddIdentifiers has notifications that are signed name what no gateway would: such identifiers are neither stored
// nor asked for, but money that they report is looked for.
func TestOddIdentifiers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		for _, id := range []string{"../../v2/x", "..", "a b", strings.Repeat("x", 65), "é"} {
			p.play("order teh 1 snap as A, get, settlement lost")
			said := w.net.midtrans.sign(w.net.midtrans.page(p.order, "1").latest())
			said.ID = id
			w.do(t, "POST", "/notifications/midtrans/"+w.shop.id, said).want(t, 200, "")
			w.sleep(time.Second)
			p.play("= paid by 1, Paid, stock 10")
		}
		for _, call := range w.net.paths {
			if strings.Contains(call, "..") || strings.Contains(call, "%") {
				t.Errorf("a gateway is asked for %s", call)
			}
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
