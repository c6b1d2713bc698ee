//go:build cgo

package main

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wire calls the gateways directly, without the service and its database. Their doubles answer.
type wire struct {
	*gatewayNetwork
	gw     gateway
	double oldGatewayDouble
}

const wireOrder = "0190f5a0-0000-7000-8000-000000000001"

// inWire runs a test at one of the gateways, in a bubble of its own.
func inWire(t *testing.T, provider Provider, name string, test func(*testing.T, *wire)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(t, newWire(t, provider)) })
	})
}

func newWire(t *testing.T, provider Provider) *wire {
	w := &wire{gatewayNetwork: newGatewayNetwork(t)}
	client := &http.Client{Transport: w.gatewayNetwork}
	now := func() Time { return timeOf(time.Now()) }
	if provider == ProviderMidtrans {
		w.gw = newMidtrans(caller{client, "", oldMidtransKey, now}, midtransAccount, "https://shop.test/n")
		w.double = w.mid
	} else {
		w.gw = newXendit(caller{client, "", oldXenditKey, now}, xenditAccount)
		w.double = w.xen
	}
	return w
}

// wireCharge is an order of two bags of coffee whose session ends in an hour.
func wireCharge() charge {
	return charge{
		PaymentSession: PaymentSession{
			ID:        "session",
			OrderID:   wireOrder,
			Attempt:   1,
			ExpiresAt: timeOf(time.Now().Add(time.Hour)),
		},
		Store: Store{URL: "https://shop.test"},
		Order: Order{
			PaymentReference: "INV-20000101-1",
			PaymentMethod:    "any",
			Amount:           172500,
			Subtotal:         170000,
			Fee:              2500,
			Buyer: Buyer{
				Name:  "Siti Aminah",
				Email: "siti@example.id",
				Phone: "0812-3456-789",
			},
			Items: []Item{{
				Title:     "Kopi",
				Quantity:  2,
				UnitPrice: 85000,
				ProductID: "kopi",
			}},
		},
	}
}

// begin creates the session of a charge, which is asked about from then on.
func (w *wire) begin(c charge) AskedSession {
	w.t.Helper()
	id, _, err := w.gw.create(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	c.GatewayID = id
	return AskedSession{SessionWithOrder: SessionWithOrder{
		PaymentSession: c.PaymentSession,
		OrderAmount:    c.Order.Amount,
		OrderEnd:       c.ExpiresAt,
	}}
}

func (w *wire) query(s AskedSession) []GatewayAnswer {
	w.t.Helper()
	answers, err := w.gw.query(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	return answers
}

// describe writes answers in a line: "settled tx-1 172500, denied tx-2 172500".
func describe(answers []GatewayAnswer) string {
	var all []string
	for _, a := range answers {
		text := string(a.State)
		if a.TransactionID != "" {
			text += fmt.Sprintf(" %s %d", strings.ReplaceAll(a.TransactionID, wireOrder, ""), a.Amount)
		}
		if a.Returned != 0 {
			text += fmt.Sprintf(" returned %d", a.Returned)
		}
		if a.Disputed != 0 {
			text += fmt.Sprintf(" disputed %d", a.Disputed)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func (w *wire) wantAnswers(s AskedSession, want string) {
	w.t.Helper()
	got := describe(w.query(s))
	if got != want {
		w.t.Errorf("the answers are %q, want %q", got, want)
	}
}

// knowing adds the payments of these names to a session.
func (s AskedSession) knowing(transactionIDs ...string) AskedSession {
	for _, id := range transactionIDs {
		s.Payments = append(s.Payments, Payment{TransactionID: id})
	}
	return s
}

// naming adds a name in a notification to a session.
func (s AskedSession) naming(kind NameKind, name string) AskedSession {
	s.Named = append(s.Named, GatewayName{kind, name})
	return s
}

func wantOutage(t *testing.T, err error) {
	t.Helper()
	_, permanent := errors.AsType[*refusal](err)
	if err == nil || permanent {
		t.Errorf("the error is %v, want an outage", err)
	}
}

func wantRefusal(t *testing.T, err error, status int, message string) {
	t.Helper()
	got, ok := errors.AsType[*refusal](err)
	if !ok {
		t.Fatalf("the error is %v, want a refusal", err)
	}
	if got.Status != status {
		t.Errorf("the refusal's status is %d, want %d", got.Status, status)
	}
	if !strings.Contains(got.Message, message) {
		t.Errorf("the refusal says %q, want %q", got.Message, message)
	}
}

// midtransCase is what the double says of a session, and what the gateway answers then.
type midtransCase struct {
	name  string
	says  string // the states, one after the other
	later time.Duration
	known string // transaction_ids
	want  string
}

func testMidtrans(t *testing.T, cases []midtransCase) {
	t.Helper()
	for _, c := range cases {
		inWire(t, ProviderMidtrans, c.name, func(t *testing.T, w *wire) {
			s := w.begin(wireCharge())
			for _, state := range strings.Fields(c.says) {
				w.mid.say(s.reference(), state)
			}

			time.Sleep(c.later)
			for _, id := range strings.Fields(c.known) {
				s = s.knowing(strings.Replace(id, "tx-", "tx-"+wireOrder, 1))
			}
			w.wantAnswers(s, c.want)
		})
	}
}

func TestMidtransAnswers(t *testing.T) {
	t.Parallel()
	testMidtrans(t, []midtransCase{
		{"no way to pay was chosen", "", 0, "", "open"},
		{"unknown by its name too", "", 0, "tx-9", "open"},
		{"waits for its money", "pending", 0, "", "open tx--1 172500"},
		{"paid", "settlement", 0, "", "settled tx--1 172500"},
		{"paid in upper case", "SETTLEMENT/ACCEPT", 0, "", "settled tx--1 172500"},
		{"another amount", "settlement=1000", 0, "", "settled tx--1 1000"},
		{"challenged", "capture/challenge", 0, "", "challenged tx--1 172500"},
		{"settled and challenged", "settlement/challenge", 0, "", "challenged tx--1 172500"},
		{"authorized", "authorize", 0, "", "challenged tx--1 172500"},
		{"fraud", "capture/deny", 0, "", "denied tx--1 172500"},
		{"denied", "deny", 0, "", "denied tx--1 172500"},
		{"canceled", "cancel", 0, "", "canceled tx--1 172500"},
		{"one way to pay has ended", "expire", 59 * time.Minute, "", "denied tx--1 172500"},
		{"the page has ended", "expire", time.Hour, "", "expired tx--1 172500"},
		{"reversed", "settlement deny", 0, "", "denied tx--1 172500"},
		{"denied, then paid", "deny settlement", 0, "tx--1", "settled tx--1-2 172500, denied tx--1 172500"},
		{"an earlier one is not known", "deny settlement", 0, "", "settled tx--1-2 172500"},
		{"asked about once", "settlement", 0, "tx--1", "settled tx--1 172500"},
		{"DANA is known by its name only", "dana:settlement", 0, "", "open"},
		{"DANA by its name", "dana:settlement", 0, "tx--1", "settled tx--1 172500"},
		{"an account of BI SNAP by its name", "va:pending", 0, "tx--1", "open tx--1 172500"},
		{
			"denied, then DANA", "deny dana:settlement", 0, "tx--1-2",
			"denied tx--1 172500, settled tx--1-2 172500",
		},
	})
}

func TestMidtransRefunds(t *testing.T) {
	t.Parallel()
	testMidtrans(t, []midtransCase{
		{"refunded", "settlement refund", 0, "", "refunded tx--1 172500 returned 172500"},
		{"charged back", "settlement chargeback", 0, "", "refunded tx--1 172500 returned 172500"},
		{"partly", "settlement partial_refund=1000", 0, "", "partly refunded tx--1 172500 returned 1000"},
		{
			"in two parts", "settlement partial_refund=1000 partial_refund=3000", 0, "",
			"partly refunded tx--1 172500 returned 3000",
		},
		{
			"in parts, and all of it", "settlement partial_refund=1000 partial_refund=172500", 0, "",
			"refunded tx--1 172500 returned 172500",
		},
	})
}

// What Midtrans answers is not always about what it was asked.
func TestMidtransAnswersThatDoNotCount(t *testing.T) {
	t.Parallel()
	const about = `"order_id": "` + wireOrder + `-1", "transaction_id": "tx-1", "gross_amount": "1.00", `
	for name, body := range map[string]string{
		"another order":           `{"order_id": "x", "transaction_status": "settlement", "gross_amount": "1"}`,
		"another transaction":     `{` + about + `"transaction_status": "settlement"}`,
		"an unknown status":       `{` + about + `"transaction_status": "bought"}`,
		"an unknown fraud_status": `{` + about + `"transaction_status": "capture", "fraud_status": "?"}`,
		"a fraction of a rupiah":  `{` + strings.Replace(about, "1.00", "1.50", 1) + `"transaction_status": "capture"}`,
		"nothing":                 `{}`,
	} {
		inWire(t, ProviderMidtrans, name, func(t *testing.T, w *wire) {
			s := w.begin(wireCharge())
			w.setFault(answering(404, `{"status_code":"404"}`))
			w.wantAnswers(s.knowing("tx-9"), "open")

			w.setFault(func(r *http.Request) (*http.Response, error) {
				if name == "another transaction" && strings.Contains(r.URL.Path, wireOrder) {
					return answering(404, `{"status_code":"404"}`)(r)
				}
				return answering(200, body)(r)
			})
			_, err := w.gw.query(t.Context(), s.knowing("tx-9"))
			wantOutage(t, err)
		})
	}
}

// Some answers lack what others have.
func TestMidtransAnswersInPart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, fields, want string }{
		{"no transaction_id", `"transaction_status": "settlement"`, "settled tx-9 5000"},
		{
			"a refund, and no list", `"transaction_status": "partial_refund", "refund_amount": "1000.00"`,
			"partly refunded tx-9 5000 returned 1000",
		},
		{
			"a list of refunds, and no sum",
			`"transaction_status": "partial_refund",
			 "refunds": [{"refund_amount": "1000"}, {"refund_amount": 500}]`,
			"partly refunded tx-9 5000 returned 1500",
		},
		{
			"a sum that is the last refund only",
			`"transaction_status": "partial_refund", "refund_amount": "500.00",
			 "refunds": [{"refund_amount": "4500.00"}, {"refund_amount": "500.00"}]`,
			"refunded tx-9 5000 returned 5000",
		},
		{
			"part of it, nobody knows how much", `"transaction_status": "partial_chargeback"`,
			"partly refunded tx-9 5000",
		},
	} {
		inWire(t, ProviderMidtrans, c.name, func(t *testing.T, w *wire) {
			s := w.begin(wireCharge()).knowing("tx-9")
			w.setFault(func(r *http.Request) (*http.Response, error) {
				if !strings.Contains(r.URL.Path, "tx-9") {
					return nil, nil
				}
				return answering(200, `{"order_id": "tx-9", "gross_amount": "5000.00", `+c.fields+`}`)(r)
			})
			w.wantAnswers(s, c.want)
		})
	}
}

func TestMidtransClosing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		says   string
		want   string // what becomes of the payment
		closed bool
	}{
		{"nothing has begun", "", "open", true},
		{"a payment waits for its money", "pending", "canceled tx--1 172500", true},
		{"DANA waits for its money", "dana:pending", "canceled tx--1 172500", true},
		{"a challenged payment is denied", "capture/challenge", "denied tx--1 172500", true},
		{"an authorized payment cannot be denied", "authorize", "canceled tx--1 172500", true},
		{"a denied payment, and a page that lives on", "deny", "denied tx--1 172500", true},
		{"a paid one stays so", "settlement", "settled tx--1 172500", true},
	} {
		inWire(t, ProviderMidtrans, c.name, func(t *testing.T, w *wire) {
			s := w.begin(wireCharge())
			if c.says != "" {
				w.mid.say(s.reference(), c.says)
				s = s.knowing("tx-" + s.reference())
			}

			for range 2 { // To close what is closed is no error.
				_, err := w.gw.closeSession(t.Context(), s, w.query(s))
				if err != nil {
					t.Fatal(err)
				}
			}
			w.wantAnswers(s, c.want)
			if w.mid.closes != 1 {
				t.Errorf("%d pages were closed, want 1", w.mid.closes)
			}
			if w.mid.pay(s.reference(), "settlement") {
				t.Error("the page can still be paid")
			}
		})
	}

	inWire(t, ProviderMidtrans, "the answer to its creation was lost", func(t *testing.T, w *wire) {
		s := w.begin(wireCharge())
		s.GatewayID = ""
		w.mid.pay(s.reference(), "pending")
		if _, err := w.gw.closeSession(t.Context(), s, w.query(s)); err != nil {
			t.Fatal(err)
		}
		w.wantAnswers(s, "canceled tx--1 172500")
		for _, call := range w.callsSince(0) {
			hasNot(t, call, "/transactions//cancel")
		}
	})

	inWire(t, ProviderMidtrans, "a payment that has begun since the question", func(t *testing.T, w *wire) {
		s := w.begin(wireCharge())
		answers := w.query(s)
		w.mid.pay(s.reference(), "pending")
		if _, err := w.gw.closeSession(t.Context(), s, answers); err != nil {
			t.Fatal(err)
		}
		w.wantAnswers(s, "canceled tx--1 172500")
	})
}

func TestMidtransApproval(t *testing.T) {
	t.Parallel()
	inWire(t, ProviderMidtrans, "once", func(t *testing.T, w *wire) {
		s := w.begin(wireCharge())
		w.mid.say(s.reference(), "capture/challenge")
		a := w.query(s)[0]
		if err := w.gw.approve(t.Context(), s, a); err != nil {
			t.Fatal(err)
		}
		w.wantAnswers(s, "settled tx--1 172500")

		err := w.gw.approve(t.Context(), s, a)
		wantRefusal(t, err, 412, "cannot modify the status")
	})

	inWire(t, ProviderMidtrans, "a refusal with the status 200", func(t *testing.T, w *wire) {
		s := w.begin(wireCharge())
		w.setFault(answering(200, `{"status_code":"412","status_message":"No."}`))
		err := w.gw.approve(t.Context(), s, GatewayAnswer{TransactionID: "tx-1"})
		wantRefusal(t, err, 412, "No.")
	})

	inWire(t, ProviderXendit, "Xendit has none", func(t *testing.T, w *wire) {
		err := w.gw.approve(t.Context(), AskedSession{}, GatewayAnswer{})
		wantRefusal(t, err, 412, "no payments that wait")
	})
}

func TestMidtransRequests(t *testing.T) {
	t.Parallel()
	for minutes, want := range map[int]int{1: 5, 5: 5, 60: 60, 30 * 24 * 60: 7 * 24 * 60} {
		inWire(t, ProviderMidtrans, fmt.Sprint(minutes, " minutes"), func(t *testing.T, w *wire) {
			c := wireCharge()
			c.ExpiresAt = timeOf(time.Now().Add(time.Duration(minutes) * time.Minute))
			w.begin(c)
			hasAll(t, w.mid.requests[0], fmt.Sprintf(`"duration":%d,`, want))
		})
	}

	inWire(t, ProviderMidtrans, "more items than a request can have", func(t *testing.T, w *wire) {
		c := wireCharge()
		c.Order.Items = nil
		for range 200 {
			c.Order.Items = append(c.Order.Items, Item{
				Title:     strings.Repeat("é", 50),
				Quantity:  1,
				UnitPrice: 850,
				ProductID: "kopi",
			})
		}
		w.begin(c)
		hasNot(t, w.mid.requests[0], "item_details")
		hasAll(t, w.mid.requests[0], `"gross_amount":172500`, `"first_name"`, `"credit_card"`)
	})

	inWire(t, ProviderMidtrans, "an order_id is taken by a payment", func(t *testing.T, w *wire) {
		c := wireCharge()
		first := w.begin(c)
		second := w.begin(c)
		if first.GatewayID == second.GatewayID {
			t.Errorf("both pages have the token %s", first.GatewayID)
		}

		w.mid.pay(c.reference(), "pending")
		_, _, err := w.gw.create(t.Context(), c)
		if err != errTaken {
			t.Errorf("the error is %v, want %v", err, errTaken)
		}
	})
}

func TestMidtransNotices(t *testing.T) {
	t.Parallel()
	const reference = wireOrder + "-1"
	for state, want := range map[string]GatewayState{
		"pending":             StateOpen,
		"dana:settlement":     StateSettled,
		"CAPTURE/CHALLENGE":   StateChallenged,
		"expire":              StateExpired,
		"deny":                StateDenied,
		"partial_refund=1000": StatePartlyRefunded,
		"refund":              StateRefunded,
		"something":           "",
	} {
		inWire(t, ProviderMidtrans, state, func(t *testing.T, w *wire) {
			w.begin(wireCharge())
			header, body := w.mid.message(reference, state)
			got, err := w.gw.verify(header, []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			wanted := notice{reference: reference, transactionID: "tx-" + reference, claim: want}
			if got != wanted {
				t.Errorf("the notice is %+v, want %+v", got, wanted)
			}
		})
	}
}

// xenditCase is what the double says of a session, and what the gateway answers then.
type xenditCase struct {
	name    string
	account string // older, unlisted
	says    string // the states, one after the other
	named   string // refunds and disputes
	want    string
}

func testXendit(t *testing.T, cases []xenditCase) {
	t.Helper()
	for _, c := range cases {
		inWire(t, ProviderXendit, c.name, func(t *testing.T, w *wire) {
			w.xen.older = strings.Contains(c.account, "older")
			w.xen.noLists = strings.Contains(c.account, "unlisted")
			s := w.begin(wireCharge())
			for _, state := range strings.Fields(c.says) {
				w.xen.say(s.reference(), state)
			}
			for _, name := range strings.Fields(c.named) {
				kind := NameRefund
				if strings.HasPrefix(name, "mi-dspt-") {
					kind = NameDispute
				}
				s = s.naming(kind, name)
			}
			w.wantAnswers(s, c.want)
		})
	}
}

func TestXenditAnswers(t *testing.T) {
	t.Parallel()
	testXendit(t, []xenditCase{
		{"unpaid", "", "", "", "open"},
		{"ended", "", "EXPIRED", "", "expired"},
		{"canceled", "", "CANCELED", "", "expired"},
		{"paid", "", "COMPLETED", "", "settled py--1 172500"},
		{"another amount", "", "COMPLETED=1000", "", "settled py--1 1000"},
		{
			"partly refunded", "", "COMPLETED refund=1000", "",
			"partly refunded py--1 172500 returned 1000",
		},
		{
			"refunded in parts", "", "COMPLETED refund=172000 refund=300 refund=200", "",
			"refunded py--1 172500 returned 172500",
		},
		{
			"an older account", "older", "COMPLETED refund=1000 refund=300 refund=200", "",
			"partly refunded py--1 172500 returned 1500",
		},
		{"not refunded yet", "", "COMPLETED refund/PENDING=1000", "rfd-1", "settled py--1 172500"},
		{
			"listed and named", "", "COMPLETED refund=1000", "rfd-1 rfd-1",
			"partly refunded py--1 172500 returned 1000",
		},
		{"cannot be listed", "unlisted", "COMPLETED refund=1000", "", "settled py--1 172500"},
		{
			"named only", "unlisted", "COMPLETED refund=1000", "rfd-1",
			"partly refunded py--1 172500 returned 1000",
		},
		{
			"named only, in an older account", "unlisted older", "COMPLETED refund=1000", "rfd-1",
			"partly refunded py--1 172500 returned 1000",
		},
		{"an unknown refund", "", "COMPLETED", "rfd-9", "settled py--1 172500"},
	})
}

func TestXenditDisputes(t *testing.T) {
	t.Parallel()
	testXendit(t, []xenditCase{
		{
			"disputed", "", "COMPLETED dispute/ACTION_REQUIRED=5000", "mi-dspt-ps-1",
			"disputed py--1 172500 disputed 5000",
		},
		{
			"under review", "", "COMPLETED dispute/UNDER_REVIEW=5000", "mi-dspt-ps-1",
			"disputed py--1 172500 disputed 5000",
		},
		{
			"disputed and partly refunded", "", "COMPLETED refund=1000 dispute/UNDER_REVIEW=5000",
			"mi-dspt-ps-1",
			"disputed py--1 172500 returned 1000 disputed 5000",
		},
		{"won", "", "COMPLETED dispute/WON=172500", "mi-dspt-ps-1", "settled py--1 172500"},
		{
			"lost", "", "COMPLETED dispute/LOST=172500", "mi-dspt-ps-1",
			"refunded py--1 172500 returned 172500",
		},
		{
			"partly lost", "", "COMPLETED dispute/LOST=5000", "mi-dspt-ps-1 mi-dspt-ps-1",
			"partly refunded py--1 172500 returned 5000",
		},
		{"an unknown dispute", "", "COMPLETED", "mi-dspt-ps-9", "settled py--1 172500"},
	})
}

// A refund or a dispute of another payment is not counted, whoever has named it.
func TestXenditReturnsOfAnotherPayment(t *testing.T) {
	t.Parallel()
	inWire(t, ProviderXendit, "another order's", func(t *testing.T, w *wire) {
		s := w.begin(wireCharge())
		other := wireCharge()
		other.OrderID = strings.Replace(wireOrder, "0190", "0191", 1)
		w.begin(other)
		for _, state := range []string{"COMPLETED", "refund=172500", "dispute/LOST=172500"} {
			w.xen.say(other.reference(), state)
		}
		w.xen.say(s.reference(), "COMPLETED")

		s = s.naming(NameRefund, "rfd-1").naming(NameDispute, "mi-dspt-ps-2").naming(NameSession, "ps-2")
		w.wantAnswers(s, "settled py--1 172500")
	})
}

// What Xendit answers is not always about what it was asked.
func TestXenditOddAnswers(t *testing.T) {
	t.Parallel()
	const (
		ofPayment = `"payment_request_id": "pr-` + wireOrder + `-1", "status": "SUCCEEDED", "amount": 1000`
		lost      = `"status": "LOST", "amount": {"initial": "5000.00", "terminal": "3000.00"}`
	)
	for _, c := range []struct{ name, path, body, want string }{
		{
			"a refund that is listed twice", "/refunds",
			`{"data": [{"id": "a", ` + ofPayment + `}, {"id": "a", ` + ofPayment + `}]}`,
			"partly refunded py--1 172500 returned 1000",
		},
		{"another refund", "/rfd-9", `{"refund_id": "rfd-8", ` + ofPayment + `}`, "settled py--1 172500"},
		{
			"another dispute", "/mi-9", `{"id": "mi-8", "payment_id": "py-` + wireOrder + `-1", ` + lost + `}`,
			"settled py--1 172500",
		},
		{
			"a dispute of our reference", "/mi-9",
			`{"id": "mi-9", "payment_id": null, "reference_id": "` + wireOrder + `-1", ` + lost + `}`,
			"partly refunded py--1 172500 returned 3000",
		},
		{
			"a dispute of another reference", "/mi-9",
			`{"id": "mi-9", "payment_id": null, "reference_id": "x", ` + lost + `}`, "settled py--1 172500",
		},
	} {
		inWire(t, ProviderXendit, c.name, func(t *testing.T, w *wire) {
			s := w.begin(wireCharge())
			w.xen.say(s.reference(), "COMPLETED")
			w.faultOnce(c.path, answering(200, c.body))

			s = s.naming(NameRefund, "rfd-9").naming(NameDispute, "mi-9").naming(NameSession, s.GatewayID)
			w.wantAnswers(s, c.want)
		})
	}
}

// If the answer to a session's creation is lost, there are two sessions of its reference.
func TestXenditTwins(t *testing.T) {
	t.Parallel()
	inWire(t, ProviderXendit, "two sessions", func(t *testing.T, w *wire) {
		c := wireCharge()
		w.faultOnce("/sessions", w.loseAnswer)
		_, _, err := w.gw.create(t.Context(), c)
		wantOutage(t, err)

		s := w.begin(c)
		hasAll(t, w.xen.requests[0], `"customer":`)
		hasNot(t, w.xen.requests[1], `"customer":`)
		w.wantAnswers(s.naming(NameSession, "ps-9"), "open")

		// The buyer pays on the page of the lost answer, which a notification names.
		w.xen.say("ps-1", "COMPLETED")
		w.wantAnswers(s, "open")
		twins := s.naming(NameSession, "ps-1")
		w.wantAnswers(twins, "settled py--1-ps-1 172500, open")

		w.xen.say("ps-2", "COMPLETED")
		w.wantAnswers(twins, "settled py--1-ps-2 172500, settled py--1-ps-1 172500")

		unanswered := twins
		unanswered.GatewayID = ""
		w.wantAnswers(unanswered, "settled py--1-ps-1 172500")
		unanswered.Named = nil
		w.wantAnswers(unanswered, "open")
	})

	inWire(t, ProviderXendit, "both are closed", func(t *testing.T, w *wire) {
		w.begin(wireCharge())
		s := w.begin(wireCharge()).naming(NameSession, "ps-1")
		for range 2 {
			if _, err := w.gw.closeSession(t.Context(), s, w.query(s)); err != nil {
				t.Fatal(err)
			}
		}
		w.wantAnswers(s, "expired")
		if w.xen.closes != 2 {
			t.Errorf("%d sessions were closed, want 2", w.xen.closes)
		}
		if w.xen.pay("ps-1", "COMPLETED") {
			t.Error("a closed page can be paid")
		}
	})
}

func TestXenditNotices(t *testing.T) {
	t.Parallel()
	const reference = wireOrder + "-1"
	session := notice{reference: reference, sessionID: "ps-1"}
	payment := notice{transactionID: "py-" + reference, requestID: "pr-" + reference}

	completed := payment
	completed.reference, completed.sessionID, completed.claim = reference, "ps-1", StateSettled
	expired := session
	expired.claim = StateExpired
	refund := payment
	refund.refundID, refund.claim = "rfd-1", StatePartlyRefunded
	failed := refund
	failed.claim = ""
	dispute := notice{reference: reference, transactionID: "py-" + reference, disputeID: "mi-dspt-ps-1"}
	lost, won, open := dispute, dispute, dispute
	lost.claim, won.claim, open.claim = StatePartlyRefunded, StateSettled, StateDisputed

	for _, c := range []struct {
		name string
		says string // the states, one after the other
		want notice
	}{
		{"completed", "COMPLETED", completed},
		{"expired", "EXPIRED", expired},
		{"refunded", "COMPLETED refund=1000", refund},
		{"refunded, nested", "COMPLETED refund=1000", refund},
		{"refunded, older", "COMPLETED refund=1000", refund},
		{"a refund failed", "COMPLETED refund/FAILED=1000", failed},
		{"disputed", "COMPLETED dispute/ACTION_REQUIRED=1000", open},
		{"won", "COMPLETED dispute/WON=1000", won},
		{"lost", "COMPLETED dispute/LOST=1000", lost},
	} {
		inWire(t, ProviderXendit, c.name, func(t *testing.T, w *wire) {
			w.xen.nested = strings.Contains(c.name, "nested")
			w.xen.older = strings.Contains(c.name, "older")
			w.begin(wireCharge())
			states := strings.Fields(c.says)
			for _, state := range states {
				w.xen.say(reference, state)
			}

			header, body := w.xen.message(reference, states[len(states)-1])
			got, err := w.gw.verify(header, []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("the notice is\n%+v, want\n%+v", got, c.want)
			}
		})
	}
}

// A gateway's refusal tells the owner what is wrong, and nothing of the buyer.
func TestRefusals(t *testing.T) {
	t.Parallel()
	answers := map[Provider]string{
		ProviderMidtrans: `{"error_messages": ["%s"]}`,
		ProviderXendit:   `{"error_code": "E", "message": "%s"}`,
	}
	for provider, answer := range answers {
		say := func(status int, message string) gatewayFault {
			return answering(status, fmt.Sprintf(answer, message))
		}

		for _, status := range []int{400, 401, 403} {
			inWire(t, provider, fmt.Sprint(provider, status), func(t *testing.T, w *wire) {
				w.setFault(say(status, "merchant of SITI AMINAH is not active"))
				_, _, err := w.gw.create(t.Context(), wireCharge())
				wantRefusal(t, err, status, "merchant of … is not active")
			})
		}

		for _, status := range []int{404, 412} {
			inWire(t, provider, fmt.Sprint(provider, status), func(t *testing.T, w *wire) {
				w.setFault(say(status, "not now"))
				_, _, err := w.gw.create(t.Context(), wireCharge())
				wantOutage(t, err)
			})
		}

		inWire(t, provider, "the buyer's e-mail at "+string(provider), func(t *testing.T, w *wire) {
			w.faultOnce("s", say(400, "email is not valid"))
			w.begin(wireCharge())
			for _, request := range slices.Concat(w.mid.requests, w.xen.requests) {
				hasNot(t, request, "customer")
				hasNot(t, request, "Siti")
			}

			w.setFault(say(400, "email is not valid"))
			_, _, err := w.gw.create(t.Context(), wireCharge())
			wantRefusal(t, err, 400, "email is not valid")
		})

		inWire(t, provider, "a wrong key at "+string(provider), func(t *testing.T, w *wire) {
			s := w.begin(wireCharge())
			w.mid.key, w.xen.key = "another", "another"
			_, err := w.gw.query(t.Context(), s)
			wantRefusal(t, err, 401, "")
		})
	}

	inWire(t, ProviderXendit, "an address of http", func(t *testing.T, w *wire) {
		c := wireCharge()
		c.Store.URL = "http://shop.test"
		_, _, err := w.gw.create(t.Context(), c)
		wantRefusal(t, err, 400, "https")
	})
}

func TestOutages(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]gatewayFault{
		"no connection":   down,
		"broken":          answering(500, `{"error_messages":["sorry"]}`),
		"busy":            answering(429, `{"error_code":"RATE_LIMIT_EXCEEDED"}`),
		"its own timeout": answering(408, `{}`),
		"busy, with 200":  answering(200, `{"status_code":"505"}`),
		"no JSON":         answering(502, "<html>"),
	} {
		for _, provider := range []Provider{ProviderMidtrans, ProviderXendit} {
			inWire(t, provider, name+" at "+string(provider), func(t *testing.T, w *wire) {
				s := w.begin(wireCharge())
				w.setFault(fault)

				_, _, err := w.gw.create(t.Context(), wireCharge())
				wantOutage(t, err)
				_, err = w.gw.query(t.Context(), s)
				wantOutage(t, err)
				_, err = w.gw.closeSession(t.Context(), s, []GatewayAnswer{{State: StateOpen}})
				wantOutage(t, err)
				if provider == ProviderMidtrans {
					wantOutage(t, w.gw.approve(t.Context(), s, GatewayAnswer{TransactionID: "tx-1"}))
				}
			})
		}
	}

	// The order is not counted as paid in full while Xendit cannot say what was returned.
	for _, path := range []string{"/refunds", "/rfd-1", "/mi-dspt-ps-1"} {
		inWire(t, ProviderXendit, path, func(t *testing.T, w *wire) {
			s := w.begin(wireCharge())
			w.xen.say(s.reference(), "COMPLETED")
			s = s.naming(NameRefund, "rfd-1").naming(NameDispute, "mi-dspt-ps-1")
			w.wantAnswers(s, "settled py--1 172500")

			w.faultOnce(path, answering(503, "{}"))
			_, err := w.gw.query(t.Context(), s)
			wantOutage(t, err)
		})
	}
}

func TestScrub(t *testing.T) {
	t.Parallel()
	buyer := Buyer{
		Name:  "Siti-Aminah O'Neil",
		Email: "siti.a@Example.id",
		Phone: "(0812) 3456-789",
	}
	short := Buyer{Name: "Al"}
	chinese := Buyer{Name: "李小龙"}

	for _, c := range []struct {
		buyer         Buyer
		message, want string
	}{
		{buyer, "nothing of them", "nothing of them"},
		{buyer, "name SITI-AMINAH O'NEIL is bad", "name … is bad"},
		{buyer, "name Siti Aminah O Neil is bad", "name … is bad"},
		{buyer, "name O&#39;Neil, Aminah", "name O&#39;…, …"},
		{buyer, "siti.a@example.id is no email", "… is no email"},
		{buyer, "+628123456789 628123456789 08123456789 (0812) 3456-789", "… … … …"},
		{buyer, "two\nlines\tof text", "two lines of text"},
		{short, "Al: the email is invalid", "…: the email is invalid"},
		{chinese, "name:李小龙!", "name:…!"},
		{Buyer{}, strings.Repeat("é", 300), strings.Repeat("é", 200)},
	} {
		got := scrub(c.message, c.buyer.typed()...)
		if got != c.want {
			t.Errorf("%q is %q, want %q", c.message, got, c.want)
		}
	}
}

// A double that lets through what the documentation refuses proves nothing.
func TestDoublesOfPagesThatCannotBePaid(t *testing.T) {
	t.Parallel()
	for _, provider := range []Provider{ProviderMidtrans, ProviderXendit} {
		paid := map[Provider]string{ProviderMidtrans: "settlement", ProviderXendit: "COMPLETED"}[provider]
		inWire(t, provider, string(provider), func(t *testing.T, w *wire) {
			s := w.begin(wireCharge())
			got := []bool{
				w.double.pay("unknown", paid),
				w.double.pay(s.reference(), paid),
				w.double.pay(s.reference(), paid),
			}
			want := []bool{false, true, false}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("a page is paid %v, want %v", got, want)
			}

			other := wireCharge()
			other.Attempt = 2
			w.begin(other)
			time.Sleep(time.Hour)
			if w.double.pay(other.reference(), paid) {
				t.Error("a page can be paid after its end")
			}
		})
	}
}
