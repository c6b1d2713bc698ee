//go:build cgo

package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// However many ask for an order at once, they start one session at the gateway and get the same answer.
func TestGetStartsOneSession(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method   string
		provider Provider
		page     string
		creates  int // calls of the gateways
	}{
		{
			method:   "snap",
			provider: ProviderMidtrans,
			page:     "https://app.sandbox.midtrans.com/snap/v4/redirection/token-1",
			creates:  1,
		},
		{
			method:   "link",
			provider: ProviderXendit,
			page:     "https://xen.to/ps-1",
			creates:  1,
		},
		{
			method:   "sandbox",
			provider: ProviderSandbox,
			page:     "https://shop.test/sandbox/SESSION",
			creates:  0,
		},
	} {
		inPayLab(t, c.method, func(t *testing.T, l *payLab) {
			created := time.Now()
			order := l.newOrder(c.method)
			head := l.web("HEAD", "https://shop.test/v1/orders/"+order, "", "Authorization", "Bearer "+l.key)
			l.want("HEAD", head.Code, 200)
			l.want("calls after HEAD", l.callsSince(0), "[]")
			l.want("sessions after HEAD", l.outcome(order), "pending [], stock 8")

			l.setFault(slow(3 * time.Second)) // so that all ask before the first is answered
			answers := make([]orderAnswer, 50)
			parallel(len(answers), func(i int) { answers[i] = l.get(order) })
			a := answers[0]
			for _, other := range append(answers, l.get(order)) {
				l.want("answer", other, a)
			}

			l.want("session", a.Session, paymentSessionView{
				ID:         a.Session.ID,
				Provider:   c.provider,
				Status:     "active",
				PaymentURL: strings.Replace(c.page, "SESSION", a.Session.ID, 1),
				ExpiresAt:  timeOf(created.Add(24 * time.Hour)),
				Attempt:    1,
			})
			l.want("checkout_url", a.Order.CheckoutURL, "https://shop.test/pay/"+order)
			l.want("created at the gateways", l.mid.creates+l.xen.creates, c.creates)
			l.want("outcome", l.outcome(order), "pending [1 active], stock 8")
		})
	}
}

// A gateway that cannot start a session leaves the order readable, and the next reader tries again.
func TestGatewayTrouble(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]gatewayFault{
		"down":            down,
		"a page of HTML":  answering(200, "<html>maintenance</html>"),
		"an empty answer": answering(201, ""),
		"null":            answering(201, "null"),
		"another type":    answering(201, `{"token":1,"payment_session_id":1}`),
		"no address":      answering(201, `{"token":"t","payment_session_id":"ps-1"}`),
		"an address that is a script": answering(201, `{
			"token": "t",
			"redirect_url": "javascript://gateway.test/%0aalert(1)",
			"payment_session_id": "ps-1",
			"payment_link_url": "javascript://gateway.test/%0aalert(1)"
		}`),
		"no name": answering(201, `{
			"redirect_url": "https://example.id",
			"payment_link_url": "https://example.id"
		}`),
		"an endless answer": answering(201, `{"token":"`+strings.Repeat("x", 2<<20)),
		"a redirect":        answering(307, `{"token":"t"}`, "Location", "https://elsewhere.example/"),
		"500":               answering(500, `{"error_messages":["oops"],"error_code":"SERVER_ERROR"}`),
		"429":               answering(429, `{"error_messages":["slow"],"error_code":"RATE_LIMIT_EXCEEDED"}`),
		"a wrong key":       answering(401, `{"error_messages":["no"],"error_code":"INVALID_API_KEY"}`),
	} {
		inPayLab(t, name, func(t *testing.T, l *payLab) {
			l.getDuring(fault, 0)
		})
	}
}

// Nobody waits for a gateway for more than ten seconds.
func TestSlowGateway(t *testing.T) {
	t.Parallel()
	inPayLab(t, "slow", func(t *testing.T, l *payLab) {
		l.getDuring(slow(time.Hour), 10*time.Second)
	})
	inPayLab(t, "slow after its header", func(t *testing.T, l *payLab) {
		l.getDuring(slowBody, 10*time.Second)
	})
	inPayLab(t, "slow at each of two questions", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.setFault(down)
		l.wantUnavailable(order, 0)
		time.Sleep(startAgainAfter)
		l.setFault(slow(6 * time.Second)) // for the question about the first start, and for the second start
		l.wantUnavailable(order, 10*time.Second)
	})
}

// getDuring reads orders again and again during a fault, and once more after it.
func (l *payLab) getDuring(fault gatewayFault, takes time.Duration) {
	l.t.Helper()
	for _, method := range []string{"snap", "link"} {
		order := l.newOrder(method)
		l.setFault(fault)
		for range 3 {
			l.wantUnavailable(order, takes)
			l.wantUnavailable(order, 0) // It is not tried again so soon.
			time.Sleep(startAgainAfter)
		}

		l.setFault(nil)
		a := l.get(order)
		l.want("status after the trouble", a.Session.Status, "active")
		l.want("attempt after the trouble", a.Session.Attempt, 1)
		l.want("problem after the trouble", l.problem(order), "")
	}

	hasAll(l.t, l.logs.String(), "payment gateway gives no answer")
	hasNot(l.t, l.logs.String(), "example") // which is in every key and e-mail address
}

// wantUnavailable reads an order whose session cannot be started.
func (l *payLab) wantUnavailable(order string, takes time.Duration) {
	l.t.Helper()
	start := time.Now()
	a := l.get(order)
	l.want("time taken", time.Since(start), takes)
	l.want("status", a.Session.Status, "unavailable")
	l.want("payment_url", a.Order.PaymentURL, "https://shop.test/pay/"+order)
	if l.problem(order) == "" {
		l.t.Error("no problem is kept")
	}
}

func TestGatewayWithoutKey(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.exec(t, "DELETE FROM gateways")
		l.wantUnavailable(order, 0)

		l.setGateway(l.storeID, midtransAccount)
		time.Sleep(startAgainAfter)
		l.want("status with a key", l.get(order).Session.Status, "active")
	})
}

// Orders can be read when the disk is full.
func TestGetOnAFullDisk(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		setPages := func(count int) {
			l.must(l.db.writer.script(fmt.Sprintf("PRAGMA max_page_count = %d", count)))
		}
		l.exec(t, "UPDATE products SET stock = NULL")
		var orders []string
		for range 40 {
			orders = append(orders, l.newOrder("snap"))
		}

		setPages(1) // SQLite raises that to the pages in use.
		unavailable := 0
		for _, order := range orders {
			if l.get(order).Session.Status == "unavailable" {
				unavailable++
			}
		}
		if unavailable == 0 {
			t.Error("the disk was not full")
		}

		setPages(1_000_000)
		for _, order := range orders {
			l.want("with room again", l.get(order).Session.Status, "active")
		}
	})
}

// The gateway has created a session, and its answer was not recorded: the program was killed before that, or
// the answer was lost. Nobody was shown the page, so another one is created in its place once the gateway has said
// that the first is not paid.
func TestStartInterrupted(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"snap", "link"} {
		for name, interrupt := range map[string]func(l *payLab, order string){
			"the program is killed": (*payLab).startAndCrash,
			"the answer is lost":    (*payLab).startAndLoseAnswer,
		} {
			inPayLab(t, method+", "+name, func(t *testing.T, l *payLab) {
				order := l.newOrder(method)
				interrupt(l, order)
				l.want("before", l.outcome(order), "pending [1 starting], stock 8")

				time.Sleep(startAgainAfter)
				calls := l.callCount()
				a := l.get(order)
				l.want("status", a.Session.Status, "active")
				l.want("attempt", a.Session.Attempt, 1)
				l.want("after", l.outcome(order), "pending [1 active], stock 8")
				if method == "snap" { // Xendit cannot be asked about a session whose id was lost.
					l.want("first call", l.callsSince(calls)[0], "GET /v2/"+order+"-1/status")
				}
			})

			inPayLab(t, method+", "+name+", and the order expires", func(t *testing.T, l *payLab) {
				order := l.newOrder(method)
				interrupt(l, order)
				l.play(order, nil, "", "+24h tick")
				l.want("order", l.outcome(order), "expired [1 expired] orderExpired, stock 10")
			})
		}
	}
}

// startAndCrash creates a session at the gateway and ends the program before it is recorded.
func (l *payLab) startAndCrash(order string) {
	l.t.Helper()
	ctx := l.t.Context()
	begun, err := l.db.BeginPaymentSession(ctx, l.storeID, order)
	l.must(err)
	st, o, err := l.db.OrderPage(order)
	l.must(err)

	gw, err := l.payments.gateway(l.storeID, begun.session.Provider, begun.session.AccountID)
	l.must(err)
	_, _, err = gw.create(ctx, charge{
		PaymentSession: begun.session,
		Store:          st.Store,
		Order:          o,
	})
	l.must(err)
	l.crash()
}

// startAndLoseAnswer creates a session at the gateway and loses the answer.
func (l *payLab) startAndLoseAnswer(order string) {
	l.t.Helper()
	l.faultOnce("s", l.loseAnswer) // Midtrans creates at /snap/v1/transactions, Xendit at /sessions.
	l.wantUnavailable(order, 0)
}

// The lost page was shown to nobody. If it is paid all the same, the gateway's answer pays the order.
func TestLostPageIsAskedAbout(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"settlement":        "paid [1 paid] orderPaid, stock 8",
		"pending":           "pending [1 failed, 2 active], stock 8",
		"deny":              "pending [1 failed, 2 active], stock 8",
		"expire":            "pending [1 failed, 2 active], stock 8",
		"capture/challenge": "awaiting_verification [1 active] orderAwaitingVerification, stock 8",
	} {
		inPayLab(t, state, func(t *testing.T, l *payLab) {
			order := l.newOrder("snap")
			l.startAndLoseAnswer(order)
			l.mid.say(order+"-1", state)

			time.Sleep(startAgainAfter)
			a := l.get(order)
			l.want("outcome", l.outcome(order), want)
			l.want("status in the answer", a.Order.Status, l.status(order))
		})
	}
}

// The answer to a session's start was lost, so the service has no name of it but its own. The gateway is asked about it
// like about any other, also after a question without an answer: it may be paid, and the payment may be taken back.
func TestLostStartOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, before, after, want string }{
		{
			name:   "the payment is charged back",
			before: "lost ~settlement +30s get",
			after:  "~chargeback +24h tick",
			want:   "refunded [1 paid] orderPaid, orderRefunded, stock 8",
		},
		{
			name:   "a part of the payment is returned",
			before: "lost ~settlement +30s get",
			after:  "~partial_refund=1000 +24h tick",
			want:   "paid [1 paid] orderPaid, orderAlerted, stock 8, partly_refunded",
		},
		{
			name:   "it is paid after its order was canceled",
			before: "lost owner-cancel",
			after:  "~settlement +1h tick",
			want:   "paid [1 paid] orderFailed, orderPaid, stock 8",
		},
	} {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) {
			order := l.newOrder("snap")
			l.play(order, l.mid, "midtrans", c.before)

			l.setFault(down)
			l.play(order, nil, "", "+10m tick")
			l.want("problem", l.problem(order), "unreachable connection refused")

			l.setFault(nil)
			l.play(order, l.mid, "midtrans", c.after)
			l.want("order", l.outcome(order), c.want)
		})
	}
}

// A notification about a session whose start had no answer is not forgotten when the gateway is away for a moment.
func TestNotificationAboutALostStart(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.startAndLoseAnswer(order)
		l.setFault(down)
		l.play(order, l.mid, "midtrans", "settlement")
		l.want("while the gateway is away", l.outcome(order), "pending [1 starting], stock 8")

		l.setFault(nil)
		l.play(order, nil, "", "+5m tick")
		l.want("when it is back", l.outcome(order), "paid [1 paid] orderPaid, stock 8")
	})
}

// A key that the gateway refuses starts no session. An order that was canceled does not wait for its owner because of
// that, although the gateway is asked about it for a while.
func TestRefusedStartIsNoTroubleAfterItsOrder(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		troubles := func() (orders []string) {
			front, err := l.db.FrontPage(l.storeID, 30)
			l.must(err)
			for _, trouble := range front.attention.Troubles {
				orders = append(orders, trouble.ID)
			}
			return orders
		}
		order := l.newOrder("snap")
		l.setFault(answering(401, `{"error_messages":["no"]}`))
		l.get(order)
		l.want("while it can be paid", troubles(), []string{order})

		l.play(order, nil, "", "owner-cancel tick +1h tick")
		l.want("when it is canceled", troubles(), "[]")
		l.want("problem", l.problem(order), "refused status 401: no")

		l.setFault(nil)
		l.play(order, nil, "", "+24h tick")
		l.want("problem when the key is right", l.problem(order), "")
	})
}

// An order leaves pending while its session is being started. The session is closed once the order needs
// none.
func TestMovedWhileStarting(t *testing.T) {
	t.Parallel()
	for _, transition := range []Transition{OwnerCancels, ClockExpires, OwnerApproves, GatewayChallenges, GatewaySettles} {
		inPayLab(t, string(transition), func(t *testing.T, l *payLab) {
			order := l.newOrder("link")
			l.faultOnce("/sessions", during(func() { l.move(t, order, transition) }))
			a := l.get(order)
			l.want("payment_url", a.Order.PaymentURL, "https://shop.test/pay/"+order)

			if transition == GatewayChallenges { // The session stays open until the owner has decided.
				time.Sleep(25 * time.Hour)
				l.tick()
				l.want("while the owner decides", l.outcome(order),
					"awaiting_verification [1 active] orderAwaitingVerification, stock 8")
				l.play(order, nil, "", "reject")
			}

			time.Sleep(30 * time.Second)
			l.tick()
			l.want("closed at the gateway", l.xen.closes, 1)
			l.want("session", l.read("SELECT status FROM payment_sessions"), "expired")
		})
	}
}

// The service stops while a session is being started for a client that has gone.
func TestStoppingWaitsForStarts(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.setFault(slow(5 * time.Second))

		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequest("GET", "https://shop.test/v1/orders/"+order, nil).WithContext(ctx)
		r.Header.Set("Authorization", "Bearer "+l.key)
		time.AfterFunc(time.Second, cancel)
		serveOnce(l.handler, r)
		l.want("left behind", l.outcome(order), "pending [1 starting], stock 8")

		l.payments.finish()
		l.want("finished", l.outcome(order), "pending [1 active], stock 8")
	})
}

// A gateway that refuses for good is told apart from one that is away, and what it repeats of the buyer is not kept.
func TestGatewayRefuses(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]gatewayFault{
		"400": answering(400, `{
			"error_messages": ["amount of Siti Aminah (siti@example.id) is too low"],
			"error_code": "API_VALIDATION_ERROR",
			"message": "amount of Siti Aminah (siti@example.id) is too low"
		}`),
		"401": answering(401, `{"error_messages": ["wrong key"], "error_code": "INVALID_API_KEY", "message": "wrong key"}`),
		"403": answering(403, `{"error_messages": ["no access"], "error_code": "FORBIDDEN", "message": "no access"}`),
	} {
		inPayLab(t, name, func(t *testing.T, l *payLab) {
			for _, method := range []string{"snap", "link"} {
				order := l.newOrder(method)
				l.setFault(fault)
				a := l.get(order)
				l.want("status", a.Session.Status, "unavailable")
				l.want("reason", a.Session.Reason, "refused")
				hasAll(t, l.problem(order), "refused status "+name)
				hasNot(t, l.problem(order), "Siti")
				hasNot(t, l.problem(order), "siti")
				hasNot(t, l.logs.String(), "is too low")

				// It is not called again within half a minute, however often somebody asks.
				calls := l.callCount()
				for range 100 {
					l.web("GET", "https://shop.test/pay/"+order+"/go", "")
				}
				l.want("calls by a hundred requests", l.callsSince(calls), "[]")

				l.setFault(down)
				time.Sleep(startAgainAfter)
				l.want("reason when it is away", l.get(order).Session.Reason, "unreachable")

				l.setFault(nil)
				time.Sleep(startAgainAfter)
				a = l.get(order)
				l.want("status when it is back", a.Session.Status, "active")
				l.want("reason when it is back", a.Session.Reason, "")
			}
		})
	}
}

// A field of the buyer that the gateway refuses is left out, so that the order stays payable.
func TestGatewayRefusesTheBuyer(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		refusal := answering(400, `{
			"error_messages": ["customer_details.first_name is not allowed"],
			"error_code": "API_VALIDATION_ERROR",
			"message": "customer.individual_detail.given_names is not allowed"
		}`)
		for method, path := range map[string]string{"snap": "/transactions", "link": "/sessions"} {
			order := l.newOrder(method)
			l.faultOnce(path, refusal)
			l.want(method, l.get(order).Session.Status, "active")
		}
		hasNot(t, l.mid.requests[0], "customer_details")
		hasNot(t, l.xen.requests[0], `"customer"`)
	})
}

// A payment that expires leaves its page open at Midtrans until the page ends by itself, which is as late as the order
// would have ended. So the page of an order that is over before that is closed.
func TestClosingAfterAnExpiredPayment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, steps, want string }{
		{
			name:  "the order is canceled",
			steps: "owner-cancel tick",
			want:  "failed [1 expired] orderFailed, stock 10",
		},
		{
			name:  "the order was paid, and the payment is reversed",
			steps: "settlement deny +10m tick",
			want:  "failed [1 failed] orderPaid, orderFailed, stock 10",
		},
	} {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) {
			order := l.newOrder("snap")
			l.play(order, l.mid, "midtrans", "get va:pending expire "+c.steps)
			l.want("order", l.outcome(order), c.want)
			l.want("pages closed", l.mid.closes, 1)
		})
	}
}

// An order shows the session that paid it, even if a later one was started.
func TestOrderShowsWhatPaidIt(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "lost pending +30s get pending")
		l.want("attempt before the payment", l.get(order).Session.Attempt, 2)

		l.play(order, l.mid, "midtrans", "1:settlement tick")
		l.want("attempt after it", l.get(order).Session.Attempt, 1)
	})
}

// A session that is started shortly before its order's end is closed at that end: the gateways let none end so soon.
func TestStartNearTheEnd(t *testing.T) {
	t.Parallel()
	for method, double := range map[string]func(*payLab) oldGatewayDouble{
		"snap": func(l *payLab) oldGatewayDouble { return l.mid },
		"link": func(l *payLab) oldGatewayDouble { return l.xen },
	} {
		inPayLab(t, method, func(t *testing.T, l *payLab) {
			order := l.newOrder(method)
			time.Sleep(24*time.Hour - time.Minute)
			l.want("a minute before the end", l.get(order).Session.Status, "active")

			// While it cannot be closed, it can be paid, and the order waits for that.
			l.setFault(down)
			time.Sleep(2 * time.Minute)
			l.tick()
			l.want("the gateway is away", l.outcome(order), "pending [1 active], stock 8")

			l.setFault(nil)
			time.Sleep(5 * time.Minute)
			l.tick()
			l.want("closed", l.outcome(order), "expired [1 expired] orderExpired, stock 10")
			if double(l).pay(order+"-1", "COMPLETED") {
				t.Error("the page can still be paid")
			}
		})
	}
}
