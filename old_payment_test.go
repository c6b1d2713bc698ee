//go:build cgo

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

//go:embed testdata/payments.json
var paymentCatalog string

// payLab is a testServer with its gateways, in a synctest bubble: its clock advances when everyone waits.
// t.Run cannot be called in a bubble, so want names the steps of a story.
type payLab struct {
	*testServer
	*gatewayNetwork
	t       *testing.T
	handler http.Handler
}

// inPayLab runs a test, or with a name a part of one, in a bubble of its own.
func inPayLab(t *testing.T, name string, test func(*testing.T, *payLab)) {
	t.Helper()
	bubble := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newPayLab(t)) })
	}

	if name == "" {
		bubble(t)
		return
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		bubble(t)
	})
}

func newPayLab(t *testing.T) *payLab {
	t.Helper()
	l := &payLab{
		testServer:     openTestServer(t, testSettings),
		gatewayNetwork: newGatewayNetwork(t),
		t:              t,
	}

	// Requests go to the handler of the service that runs, which a crash replaces.
	l.url = "https://shop.test"
	l.client = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		return serveOnce(l.handler, r).Result(), nil
	})}
	l.serve()

	l.furnish(l.storeID, "")
	l.ids["panjang"] = l.read("SELECT id FROM products WHERE slug = 'panjang'")
	return l
}

// serve connects the service with the gateways and with those who send requests.
func (l *payLab) serve() {
	l.payments.client.Transport = l.gatewayNetwork
	l.handler = l.routes()
}

// crash leaves the service as it is and starts another one on its file, which is all that outlives a crash.
func (l *payLab) crash() {
	l.t.Helper()
	db, err := openDB(l.db.path, false)
	l.must(err)
	l.t.Cleanup(func() { db.Close() })

	l.must(db.ReleasePaymentSessions(l.t.Context()))
	l.server = newServer(db, testSettings, l.log)
	l.serve()
}

// addShop adds a store like the first one.
func (l *payLab) addShop(slug, domain string) (storeID, key string) {
	l.t.Helper()
	storeID, key = l.addStore(l.t, slug, "growth")
	l.furnish(storeID, domain)
	return storeID, key
}

// furnish gives a store its name, its catalog and its accounts at the gateways.
func (l *payLab) furnish(storeID, domain string) {
	l.t.Helper()
	l.setStore(storeID, func(st *StoreProfile) {
		st.Name = "Kopi Kita"
		st.Domain = domain
		st.Contact = "0812 3456 7890"
	})
	l.importCatalog(l.t, storeID, paymentCatalog)
	l.setGateway(storeID, midtransAccount)
	l.setGateway(storeID, xenditAccount)
}

func (l *payLab) setStore(storeID string, set func(*StoreProfile)) {
	l.t.Helper()
	_, err := l.db.SetStore(l.t.Context(), storeID, func(st *StoreProfile) error {
		set(st)
		return nil
	})
	l.must(err)
}

func (l *payLab) setGateway(storeID string, account GatewayAccount) {
	l.t.Helper()
	l.must(l.db.SetGateway(l.t.Context(), storeID, account))
}

func (l *payLab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// want compares two values by their text.
func (l *payLab) want(name string, got, want any) {
	l.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		l.t.Errorf("%s:\n got %v\nwant %v", name, got, want)
	}
}

// web sends a request to any of the service's hosts. headers are names and values in turn.
func (l *payLab) web(method, address, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, address, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return serveOnce(l.handler, r)
}

// notify sends a gateway's notification to the first store and returns the status of the answer.
func (l *payLab) notify(provider string, header http.Header, body string) int {
	address := "https://shop.test/notifications/" + provider + "/" + l.storeID
	r := httptest.NewRequest("POST", address, strings.NewReader(body))
	r.Header = header.Clone()
	return serveOnce(l.handler, r).Code
}

// newOrder orders two bags of coffee for Rp170.000. Most methods add a fee of Rp2.500.
func (l *payLab) newOrder(method string) string {
	l.t.Helper()
	body := l.order("kopi", 2)
	body["payment_method"] = method
	body["return_url"] = "https://kopi.example.id/thanks"
	body["buyer"] = object{
		"name":  "Siti Aminah",
		"email": "siti@example.id",
		"phone": "0812 3456 789",
	}
	return l.orderOf(method, body)
}

func (l *payLab) orderOf(method string, body any) string {
	l.t.Helper()
	r := l.do(l.t, "POST", "/v1/orders", body)
	if r.Status != 201 {
		l.t.Fatalf("order by %s: %d %s", method, r.Status, r.Body)
	}
	return r.at("order.id")
}

// orderAnswer is the data of GET /v1/orders/{order_id}, in part.
type orderAnswer struct {
	Order struct {
		Status      Status
		PaymentURL  string `json:"payment_url"`
		CheckoutURL string `json:"checkout_url"`
	}
	Session paymentSessionView `json:"payment_session"`
}

// get reads an order as a shop does, which starts a payment session if it needs one.
func (l *payLab) get(order string) orderAnswer {
	l.t.Helper()
	r := l.do(l.t, "GET", "/v1/orders/"+order, nil).want(l.t, 200, "")
	var out struct{ Data orderAnswer }
	err := json.Unmarshal(r.Body, &out)
	if err != nil {
		l.t.Error(err)
	}

	a := out.Data
	if a.Session.PaymentURL != a.Order.PaymentURL {
		l.t.Errorf("payment_url is %q in the session and %q in the order",
			a.Session.PaymentURL, a.Order.PaymentURL)
	}
	return a
}

// read returns the rows of a query with one column, with commas between.
func (l *payLab) read(query string, args ...any) string {
	l.t.Helper()
	rows, err := queryAll(l.db.reader, scanText, query, args...)
	l.must(err)
	return strings.Join(rows, ", ")
}

// problem is why the gateway could not be asked about an order's sessions.
func (l *payLab) problem(order string) string {
	l.t.Helper()
	return l.read(`
		SELECT trim(problem || ' ' || problem_text)
		FROM   payment_sessions
		WHERE  order_row = (SELECT row FROM orders WHERE id = ?)
		ORDER BY attempt`, order)
}

// outcome is an order's status, its sessions, its events after orderCreated and the stock of coffee, such as
// "paid [1 failed, 2 paid] orderPaid, stock 8".
func (l *payLab) outcome(order string) string {
	l.t.Helper()
	sessions := l.read(`
		SELECT attempt || ' ' || status
		FROM   payment_sessions
		WHERE  order_row = (SELECT row FROM orders WHERE id = ?)
		ORDER BY attempt`, order)
	text := l.status(order) + " [" + sessions + "]"

	events := l.read("SELECT event FROM events WHERE order_row = (SELECT row FROM orders WHERE id = ?) AND sequence > 1 ORDER BY sequence", order)
	if events != "" {
		text += " " + events
	}
	text += fmt.Sprint(", stock ", l.stock(l.t, "kopi"))

	alerts := l.read("SELECT code FROM alerts WHERE order_row = (SELECT row FROM orders WHERE id = ?) AND resolved_at IS NULL ORDER BY id", order)
	if alerts != "" {
		text += ", " + alerts
	}
	return text
}

func (l *payLab) status(order string) string {
	l.t.Helper()
	return l.read("SELECT status FROM orders WHERE id = ?", order)
}

// notes are the notes in an order's history that came without a transition, such as
// "not_needed 172500 paid #2 tx-1".
func (l *payLab) notes(order string) string {
	l.t.Helper()
	return l.read(`
		SELECT concat_ws(' ', note ->> 'code', note ->> 'amount', note ->> 'status',
		                 '#' || (note ->> 'attempt'), note ->> 'transaction')
		FROM   order_history
		WHERE  order_row = (SELECT row FROM orders WHERE id = ?) AND from_status = to_status`, order)
}

// tick does everything that is due now, and what becomes due by that.
func (l *payLab) tick() {
	l.t.Helper()
	for range 10 {
		due, err := l.db.PaymentSessionsDue()
		l.must(err)
		if len(due) == 0 && l.read("SELECT 1 FROM payment_sessions WHERE next_check_at <= ?", timeOf(time.Now())) == "" {
			break
		}
		for _, d := range due {
			l.payments.check(l.t.Context(), d.id, true) // After an error it is due again.
		}

		// What an answer made due is asked about when a question is allowed again.
		time.Sleep(askedLately)
	}
	l.payments.expireOrders(l.t.Context())
	l.payments.releaseUndecided(l.t.Context())
}

// settle is tick after the time that has to pass between two questions about a session.
func (l *payLab) settle() {
	l.t.Helper()
	time.Sleep(askedLately)
	l.tick()
}

// check asks the gateway about one session.
func (l *payLab) check(ctx context.Context, s SessionWithOrder) error {
	_, err := l.payments.check(ctx, s.ID, false)
	return err
}

// atWork runs the service's loops until the test ends.
func (l *payLab) atWork() {
	ctx, stop := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { l.payments.pollGateways(ctx) })
	loops.Go(func() { l.sweep(ctx) })
	l.t.Cleanup(func() {
		stop()
		loops.Wait()
	})
}

// play lets the steps happen to an order one after the other. testdata/midtrans.txt explains them.
func (l *payLab) play(order string, double oldGatewayDouble, provider, steps string) {
	l.t.Helper()
	for step := range strings.FieldsSeq(steps) {
		transition, byOwner := ownerSteps[step]
		pause, isPause := strings.CutPrefix(step, "+")

		switch {
		case step == "get":
			l.get(order)
		case step == "lost":
			l.faultOnce("s", l.loseAnswer) // Midtrans creates at /snap/v1/transactions, Xendit at /sessions.
			l.get(order)
		case step == "tick":
			l.tick()
		case step == "claim" || step == "unclaim":
			w := l.submit("https://shop.test/pay/"+order+"/"+step, "", "same-origin")
			l.want(step, w.Code, 303)
			l.want("after "+step, w.Header().Get("Location"), "/pay/"+order)
		case isPause:
			d, err := time.ParseDuration(pause)
			l.must(err)
			time.Sleep(d)
		case byOwner:
			l.act(order, transition)
		default:
			l.playGateway(order, double, provider, step)
		}
	}
}

// act does what the owner does in the dashboard.
func (l *payLab) act(order string, t Transition) {
	l.t.Helper()
	l.must(l.doOnOrder(l.t.Context(), l.storeID, order, t, "test"))
}

var ownerSteps = map[string]Transition{
	"approve":      OwnerApproves,
	"reject":       OwnerRejects,
	"owner-cancel": OwnerCancels,
	"owner-refund": OwnerRefunds,
}

// playGateway plays a step such as settlement, ~settlement, ?settlement, 1:settlement or dana:settlement.
func (l *payLab) playGateway(order string, double oldGatewayDouble, provider, step string) {
	l.t.Helper()
	attempt, state, _ := strings.Cut(step, ":")
	if _, err := strconv.Atoi(attempt); err != nil {
		attempt = l.read("SELECT coalesce(max(attempt), 0) FROM payment_sessions WHERE order_row = (SELECT row FROM orders WHERE id = ?)", order)
		state = step
	}
	state, lost := strings.CutPrefix(state, "~")
	state, unconfirmed := strings.CutPrefix(state, "?")
	reference := order + "-" + attempt

	if !unconfirmed {
		double.say(reference, state)
	}
	if lost {
		return
	}

	header, body := double.message(reference, state)
	for range 2 {
		l.want("the answer to the notification of "+step, l.notify(provider, header, body), 200)
		l.settle()
	}
}

// A session whose order is canceled is closed at the gateway, however often that fails.
func TestClosingASession(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(l *payLab, order string){
		"the owner cancels while the gateway is being asked": func(l *payLab, order string) {
			time.Sleep(24*time.Hour - 10*time.Minute)
			l.faultOnce("/status", during(func() { l.play(order, l.mid, "midtrans", "owner-cancel") }))
		},
		"the gateway fails to close": func(l *payLab, order string) {
			l.play(order, l.mid, "midtrans", "owner-cancel")
			l.faultOnce("/cancel", answering(500, `{}`))
		},
		"the gateway refuses the key when it should close": func(l *payLab, order string) {
			l.play(order, l.mid, "midtrans", "owner-cancel")
			l.faultOnce("/cancel", answering(401, `{"error_messages": ["Access denied"]}`))
		},
		"the gateway is away when it should close": func(l *payLab, order string) {
			l.play(order, l.mid, "midtrans", "owner-cancel")
			l.faultOnce("/cancel", down)
		},
	} {
		inPayLab(t, name, func(t *testing.T, l *payLab) {
			order := l.newOrder("snap")
			l.get(order)
			prepare(l, order)

			l.tick()
			l.want("at first", l.outcome(order), "failed [1 active] orderFailed, stock 10")

			time.Sleep(30 * time.Second)
			l.tick()
			l.want("in the end", l.outcome(order), "failed [1 expired] orderFailed, stock 10")
			l.want("pages closed", l.mid.closes, 1)
		})
	}
}

// A page whose payment was reversed may be payable again, so it is closed.
func TestClosingAfterAReversal(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get settlement deny")
		l.want("after the reversal", l.outcome(order), "failed [1 failed] orderPaid, orderFailed, stock 10")

		l.play(order, l.mid, "midtrans", "+10m tick")
		l.want("ten minutes later", l.outcome(order), "failed [1 failed] orderPaid, orderFailed, stock 10")
		l.want("pages closed", l.mid.closes, 1)
	})
}

// If an answer was lost, Xendit has two sessions of one reference. When one is paid, the other is closed.
func TestClosingATwin(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("link")
		l.play(order, l.xen, "xendit", "lost +30s get")
		l.xen.say("ps-1", "COMPLETED")
		header, body := l.xen.message("ps-1", "COMPLETED")
		l.want("answer", l.notify("xendit", header, body), 200)
		l.settle()
		l.want("paid", l.outcome(order), "paid [1 paid] orderPaid, stock 8")

		l.play(order, l.xen, "xendit", "+10m tick")
		l.want("pages closed", l.xen.closes, 1)
		l.want("the other page can be paid", l.xen.pay("ps-2", "COMPLETED"), false)
		l.want("in the end", l.outcome(order), "paid [1 paid] orderPaid, stock 8")
	})
}

// When nothing can be written, the loop asks again and again, but not without a pause.
func TestPollingOnAFullDisk(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		l.get(l.newOrder("snap"))
		time.Sleep(24 * time.Hour)

		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		full := *l.db
		full.jobs = make(chan *job)
		tries := 0
		var disk sync.WaitGroup
		disk.Go(func() {
			for j := range full.jobs {
				j.err = errors.New("the disk is full")
				close(j.done)
				tries++
				if tries == 100 {
					stop()
				}
			}
		})

		newPayments(&full, l.log.Logger, func() {}).pollGateways(ctx)
		close(full.jobs)
		disk.Wait()
		if tries < 2 || tries > 10 {
			t.Errorf("%d writes were tried in ten seconds", tries)
		}
	})
}

// Someone who has the callback token must not turn one order's refund into another's.
func TestRefundOfAnotherPayment(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		refunded, other := l.newOrder("link"), l.newOrder("link")
		l.play(refunded, l.xen, "xendit", "get COMPLETED")
		l.play(other, l.xen, "xendit", "get COMPLETED")
		l.xen.say(refunded+"-1", "refund=172500")
		header, body := l.xen.message(refunded+"-1", "refund=172500")

		forged := strings.ReplaceAll(body, refunded, other)
		l.want("answer to the forged message", l.notify("xendit", header, forged), 200)
		l.settle()
		l.want("the other order after it", l.status(other), "paid")
		l.want("the order after it", l.status(refunded), "paid")

		l.want("answer to the true message", l.notify("xendit", header, body), 200)
		l.settle()
		l.want("the other order after it", l.status(other), "paid")
		l.want("the order after it", l.status(refunded), "refunded")
	})
}

// A notification is stored before it is acknowledged, so that a crash between the two loses nothing.
func TestNotificationOutlivesACrash(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		l.mid.say(order+"-1", "settlement")
		header, body := l.mid.message(order+"-1", "settlement")
		calls := l.callCount()

		l.want("answer", l.notify("midtrans", header, body), 200)
		l.want("the gateway's calls before the answer", l.callsSince(calls), "[]")
		l.want("before the crash", l.outcome(order), "pending [1 active], stock 8")

		l.crash()
		l.atWork()
		time.Sleep(askedLately + 2*time.Second)
		l.want("after the crash", l.outcome(order), "paid [1 paid] orderPaid, stock 8")
	})
}

// No order expires before its gateway has said that nobody paid.
func TestExpiryAsksFirst(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		l.setStore(l.storeID, func(st *StoreProfile) { st.Expiry = 40 * time.Minute })
		l.atWork()
		unpaid, lost, late := l.newOrder("snap"), l.newOrder("snap"), l.newOrder("link")
		for _, order := range []string{unpaid, lost, late} {
			l.get(order)
		}
		never := l.newOrder("link")

		l.play(lost, l.mid, "midtrans", "pending ~settlement")
		time.Sleep(16 * time.Minute)
		l.want("notification lost, polled near the end", l.outcome(lost), "paid [1 paid] orderPaid, stock 2")

		l.setFault(down)
		l.play(late, l.xen, "xendit", "~COMPLETED")
		time.Sleep(25 * time.Minute)
		l.want("gateway away, unpaid", l.outcome(unpaid), "pending [1 active], stock 4")
		l.want("gateway away, paid", l.outcome(late), "pending [1 active], stock 4")
		l.want("no session to ask about", l.outcome(never), "expired [] orderExpired, stock 4")
		l.want("problem, unpaid", l.problem(unpaid), "unreachable connection refused")
		l.want("problem, paid", l.problem(late), "unreachable connection refused")
		hasAll(t, l.logs.String(),
			`level=WARN msg="payment gateway gives no answer" provider=midtrans order=`+l.db.referenceOf(unpaid))

		time.Sleep(3 * time.Hour)
		l.want("it waits as long as it takes", l.outcome(unpaid), "pending [1 active], stock 4")

		l.setFault(nil)
		time.Sleep(6 * time.Minute)
		l.want("gateway back, unpaid", l.outcome(unpaid), "expired [1 expired] orderExpired, stock 6")
		l.want("gateway back, paid in time", l.outcome(late), "paid [1 paid] orderPaid, stock 6")
		l.want("problem, unpaid", l.problem(unpaid), "")
		l.want("problem, paid", l.problem(late), "")
	})
}

// A week after a session's end, a gateway that is away for a moment must not lose a notification: only the
// clock gives up.
func TestOnlyTheClockGivesUp(t *testing.T) {
	t.Parallel()
	inPayLab(t, "a notification waits", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get pending +24h tick +200h")
		l.want("eight days later", l.outcome(order), "expired [1 expired] orderExpired, stock 10")

		l.mid.say(order+"-1", "settlement")
		header, body := l.mid.message(order+"-1", "settlement")
		l.want("answer", l.notify("midtrans", header, body), 200)

		l.faultOnce("/status", down)
		l.settle()
		l.want("gateway away", l.status(order), "expired")
		time.Sleep(10 * time.Second)
		l.settle()
		l.want("gateway back", l.outcome(order), "paid [1 paid] orderExpired, orderPaid, stock 8")
	})

	inPayLab(t, "payment check returns the error", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get pending +240h")
		l.setFault(down)
		s, err := l.db.LatestPaymentSession(order)
		l.must(err)
		err = l.check(t.Context(), s)
		if !errors.Is(err, errRefusedConnection) {
			t.Errorf("the question by a person ends with %v", err)
		}
		l.want("after it", l.outcome(order), "pending [1 active], stock 8")

		time.Sleep(time.Minute)
		l.tick()
		l.want("after the clock's question", l.outcome(order), "pending [1 active], stock 8")
		time.Sleep(giveUpAfter)
		l.tick()
		l.want("after a week without an answer", l.outcome(order), "expired [1 expired] orderExpired, stock 10")
	})
}

// The notifications that wait for a gateway that is away must not hide a later one of another gateway.
func TestManyUndecidedHideNoOther(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		away, order := l.newOrder("link"), l.newOrder("snap")
		l.get(away)
		l.get(order)
		l.faultOnce("/status", down)
		atMidtrans := l.fault
		l.setFault(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "api.xendit.co" {
				return nil, errRefusedConnection
			}
			return atMidtrans(r)
		})
		l.atWork()

		header, body := l.xen.message(away+"-1", "COMPLETED")
		for range 120 {
			l.want("answer", l.notify("xendit", header, body), 200)
		}
		l.mid.say(order+"-1", "settlement")
		header, body = l.mid.message(order+"-1", "settlement")
		l.want("answer", l.notify("midtrans", header, body), 200)
		synctest.Wait()
		l.want("after the first question", l.status(order), "pending")

		time.Sleep(35 * time.Second)
		l.want("after the second", l.status(order), "paid")
	})
}

// An answer that adds no note did nothing.
func TestSecondNoteIsNoNews(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get settlement")
		l.mid.say(order+"-1", "partial_refund=5000")
		s, err := l.db.LatestPaymentSession(order)
		l.must(err)

		for _, want := range []string{"noted", ""} {
			time.Sleep(askedLately)
			c, err := l.payments.check(t.Context(), s.ID, false)
			l.must(err)
			l.want("done", c.Done, want)
		}
	})
}

// A hundred orders at a gateway that is away must not keep others from being asked about.
func TestADeadGatewayHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		l.exec(t, "UPDATE products SET stock = NULL")
		for range 120 {
			l.get(l.newOrder("link"))
		}
		l.setFault(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "api.xendit.co" {
				return nil, errRefusedConnection
			}
			return nil, nil
		})
		time.Sleep(time.Minute)
		order := l.newOrder("snap")
		l.get(order)

		time.Sleep(24 * time.Hour)
		for range 4 {
			l.tick()
			time.Sleep(30 * time.Second)
		}
		l.want("order at the other gateway", l.status(order), "expired")
	})
}

// Notifications and their copies come at once for orders that are due to expire, while the sweeper asks about
// the same sessions. Every order is paid, and paid once.
func TestRaces(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		l.exec(t, "UPDATE products SET stock = 1000")
		var atMidtrans, atXendit []string
		for range 12 {
			atMidtrans = append(atMidtrans, l.newOrder("snap"))
			atXendit = append(atXendit, l.newOrder("link"))
		}
		orders := slices.Concat(atMidtrans, atXendit)
		for _, order := range orders {
			l.get(order)
		}
		time.Sleep(24 * time.Hour)

		var all sync.WaitGroup
		notifyAtOnce := func(order string, double oldGatewayDouble, provider, state string) {
			for range 2 {
				all.Go(func() {
					double.say(order+"-1", state)
					header, body := double.message(order+"-1", state)
					l.want("answer to a notification", l.notify(provider, header, body), 200)
					l.settle()
				})
			}
			all.Go(l.tick)
		}
		for i := range 12 {
			notifyAtOnce(atMidtrans[i], l.mid, "midtrans", "settlement")
			notifyAtOnce(atXendit[i], l.xen, "xendit", "COMPLETED")
		}
		all.Wait()
		l.tick()

		for _, order := range orders {
			switch got := l.outcome(order); got {
			case "paid [1 paid] orderPaid, stock 952": // The money came just before the order's end,
			case "paid [1 paid] orderExpired, orderPaid, stock 952": // or just after it.
			default:
				t.Error(got)
			}
			l.want("notes", l.notes(order), "")
		}
	})
}

// While somebody asks about a session, and for a moment after that, nobody else does: an answer that is long on its
// way cannot undo a later one.
func TestAnswersDoNotOvertake(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		time.Sleep(askedLately)
		s, err := l.db.LatestPaymentSession(order)
		l.must(err)

		// The first answer is long on its way, and the payment is reversed meanwhile.
		l.faultOnce("/status", func(r *http.Request) (*http.Response, error) {
			resp, err := l.answer(r)
			time.Sleep(5 * time.Second)
			return resp, err
		})
		l.mid.say(order+"-1", "settlement")
		var first sync.WaitGroup
		first.Go(func() { l.must(l.check(context.Background(), s)) })
		time.Sleep(time.Second)
		l.mid.say(order+"-1", "deny")
		l.want("a second question meanwhile", l.check(t.Context(), s), errAskedLately)

		first.Wait()
		l.want("after the first answer", l.status(order), "paid")
		l.want("another question at once", l.check(t.Context(), s), nil)
		l.want("after it", l.status(order), "failed")
		l.want("the next question at once", l.check(t.Context(), s), errAskedLately)
		l.want("problem", l.problem(order), "")
	})
}

// Whoever has lost the lease of a session changes nothing: their answer is older than somebody else's.
func TestAnswerWithoutLease(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		time.Sleep(askedLately)
		session := l.read("SELECT id FROM payment_sessions")
		slow, err := l.db.LeasePaymentSession(t.Context(), session)
		l.must(err)
		time.Sleep(leaseTime)
		quick, err := l.db.LeasePaymentSession(t.Context(), session)
		l.must(err)

		late := []GatewayAnswer{{State: StateSettled, Amount: 172500, TransactionID: "tx"}}
		did, err := l.db.ApplyGatewayAnswers(t.Context(), slow, late, false)
		l.must(err)
		l.want("done without the lease", did, "")
		l.want("order", l.status(order), "pending")

		did, err = l.db.ApplyGatewayAnswers(t.Context(), quick, late, false)
		l.must(err)
		l.want("done with it", did, "paid")
	})
}

// An order that is paid after its stock was sold is oversold, and says so.
func TestMoneyAfterTheStockWasSold(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get pending +24h tick")
		for range 5 {
			l.newOrder("bank_transfer")
		}

		l.play(order, l.mid, "midtrans", "settlement")
		l.want("paid", l.outcome(order), "paid [1 paid] orderExpired, orderPaid, orderAlerted, stock 0, oversold")

		l.play(order, l.mid, "midtrans", "deny")
		l.want("reversed", l.outcome(order),
			"failed [1 failed] orderExpired, orderPaid, orderAlerted, orderFailed, orderAlerted, stock 0")
	})
}
