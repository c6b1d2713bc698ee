//go:build cgo

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// refusesKey is the fault of a gateway that does not take the store's key.
var refusesKey = answering(401, `{"error_messages": ["Access denied"], "error_code": "INVALID_API_KEY"}`)

// choose presses the button for another method on the pay page, and returns the answer, such as "303 /pay/ID".
func (l *payLab) choose(order, code string) string {
	l.t.Helper()
	w := l.submit("https://shop.test/pay/"+order+"/method", "code="+code, "same-origin")
	return fmt.Sprint(w.Code, " ", strings.ReplaceAll(w.Header().Get("Location"), order, "ID"))
}

// method is how an order is paid, such as "snap midtrans gateway 172500".
func (l *payLab) method(order string) string {
	l.t.Helper()
	r := l.do(l.t, "GET", "/v1/orders?limit=50", nil).want(l.t, 200, "")
	for _, o := range r.list("orders") {
		if o["id"] == order {
			return fmt.Sprint(o["payment_method"], " ", o["payment_provider"], " ",
				o["settlement_channel"], " ", o["amount"])
		}
	}
	return "no such order"
}

// TestChooseAnotherMethod is a buyer whose gateway refuses the store's key.
func TestChooseAnotherMethod(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		page := "https://shop.test/pay/" + order
		l.seePage(page, map[string][]string{
			"id": {"<summary>Ganti cara bayar</summary>"},
			"en": {"<summary>Pay another way</summary>"},
		}, []string{"<h2>Bayar dengan cara lain", `value="snap"`})

		l.setFault(refusesKey)
		l.want("pay now", l.follow(order), "303 /pay/ID?unreachable")
		offers := map[string][]string{
			"id": {
				"Cara bayar ini sedang tidak bisa dipakai. Pesanan Anda aman.",
				"Bayar dengan cara lain",
				"tanpa biaya",
				"termasuk biaya",
				"Coba lagi",
			},
			"en": {
				"This payment method is not working at the moment. Your order is safe.",
				"Pay another way",
				"no fee",
				"including a fee of",
				"Try again",
			},
			"both": {
				`name="code" value="bank_transfer"`,
				"Transfer BCA: <span class=\"money\">Rp170.000",
				`name="code" value="link"`,
				"Xendit: <span class=\"money\">Rp172.500",
				`name="code" value="qris"`,
			},
		}
		l.seePage(page+"?unreachable", offers, []string{`value="snap"`, "Access denied"})
		l.seePage(page, offers, nil) // Whoever looks later sees it too.
		w := l.web("GET", page, "")
		l.want("a page with a choice reloads", w.Header().Get("Refresh"), "")

		before := l.read("SELECT json ->> 'updated_at' FROM orders WHERE id = ?", order)
		time.Sleep(time.Second)
		l.want("the bank", l.choose(order, "bank_transfer"), "303 /pay/ID")
		l.want("method", l.method(order), "bank_transfer manual manual 170000")
		l.want("double click", l.choose(order, "bank_transfer"), "303 /pay/ID")
		l.want("in the history", l.read(`
			SELECT concat_ws(' ', actor, from_status, to_status, note ->> 'code', note ->> 'text')
			FROM   order_history
			WHERE  order_row = ?`, rowOf(order)), "buyer pending pending method_changed bank_transfer")
		after := l.read("SELECT json ->> 'updated_at' FROM orders WHERE id = ?", order)
		l.want("updated_at is later", after > before, true)

		l.want("session", l.get(order).Session.Status, paymentManual)
		l.seePage(page, map[string][]string{
			"id":   {"Menunggu transfer Anda"},
			"both": {"Transfer BCA", `value="170000"`},
		}, []string{"<h2>Bayar dengan cara lain", "Biaya layanan"})
		l.signIn(l.storeID).sees("id", "/dashboard/orders/"+order, "memilih metode pembayaran lain: bank_transfer")
		l.want("no event tells of it", l.outcome(order), "pending [1 failed], stock 8")

		l.setFault(nil)
		l.want("Xendit", l.choose(order, "link"), "303 /pay/ID")
		l.want("method", l.method(order), "link xendit gateway 172500")
		l.get(order)
		l.play(order, l.xen, "xendit", "COMPLETED")
		l.want("in the end", l.outcome(order), "paid [1 failed, 2 paid] orderPaid, stock 8")
	})
}

// TestChoiceWithAnOpenPage is a buyer who has seen a page of a gateway, and then wants to pay in another way.
func TestChoiceWithAnOpenPage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		steps  string // after the page was opened, at Midtrans
		fault  gatewayFault
		answer string
		method string
		after  string // steps after the choice
		end    string
	}{
		{
			name:   "the page is closed, and the order is paid by hand",
			answer: "303 /pay/ID",
			method: "bank_transfer manual manual 170000",
			after:  "claim approve",
			end:    "paid [1 expired] orderAwaitingVerification, orderPaid, stock 8",
		},
		{
			name:   "a payment that was begun is canceled",
			steps:  "pending",
			answer: "303 /pay/ID",
			method: "bank_transfer manual manual 170000",
			end:    "pending [1 expired], stock 8",
		},
		{
			name:   "a payment was denied",
			steps:  "deny",
			answer: "303 /pay/ID",
			method: "bank_transfer manual manual 170000",
			after:  "+24h tick",
			end:    "expired [1 expired] orderExpired, stock 10",
		},
		{
			name:   "it was paid before",
			steps:  "~settlement",
			answer: "303 /pay/ID",
			method: "snap midtrans gateway 172500",
			end:    "paid [1 paid] orderPaid, stock 8",
		},
		{
			name:   "the owner has to look at its payment",
			steps:  "~capture/challenge",
			answer: "303 /pay/ID",
			method: "snap midtrans gateway 172500",
			end:    "awaiting_verification [1 active] orderAwaitingVerification, stock 8",
		},
		{
			name:   "the gateway is away",
			fault:  down,
			answer: "303 /pay/ID?busy",
			method: "snap midtrans gateway 172500",
			after:  "settlement",
			end:    "paid [1 paid] orderPaid, stock 8",
		},
		{
			name:   "money comes for the closed page after all",
			answer: "303 /pay/ID",
			method: "bank_transfer manual manual 170000",
			after:  "settlement=172500",
			end:    "awaiting_verification [1 paid] orderAwaitingVerification, orderAlerted, stock 8, overpaid",
		},
	} {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) {
			order := l.newOrder("snap")
			l.play(order, l.mid, "midtrans", "get "+c.steps)
			l.seePage("https://shop.test/pay/"+order, nil, nil) // This asks the gateway.

			l.setFault(c.fault)
			l.want("the choice", l.choose(order, "bank_transfer"), c.answer)
			l.setFault(nil)
			l.want("method", l.method(order), c.method)
			l.play(order, l.mid, "midtrans", c.after)
			l.want("in the end", l.outcome(order), c.end)
		})
	}
}

// TestMethodAfterAnOutage offers no other method of the gateway that is away, and only to a buyer who wanted to
// pay.
func TestMethodAfterAnOutage(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		page := "https://shop.test/pay/" + order
		l.setFault(down)
		l.follow(order)

		l.seePage(page, nil, []string{"<h2>Bayar dengan cara lain", "<h2>Pay another way"})
		l.seePage(page+"?unreachable", map[string][]string{
			"id":   {"Halaman pembayaran belum bisa dibuka.", "Bayar dengan cara lain"},
			"en":   {"The payment page cannot be opened right now.", "Pay another way"},
			"both": {`value="link"`, `value="bank_transfer"`},
		}, []string{`value="qris"`})

		l.want("the bank", l.choose(order, "bank_transfer"), "303 /pay/ID")
		l.play(order, nil, "", "+23h tick")
		l.want("before the end", l.outcome(order), "pending [1 failed], stock 8")
	})
}

// TestEndAfterAnotherMethod lets an order end whose buyer has chosen another method and paid by none: it does not
// wait for the gateway that could not be used.
func TestEndAfterAnotherMethod(t *testing.T) {
	t.Parallel()
	for name, atTheEnd := range map[string]gatewayFault{
		"the gateway is back":       nil,
		"the gateway is still away": down,
		"the key is still refused":  refusesKey,
	} {
		inPayLab(t, name, func(t *testing.T, l *payLab) {
			order := l.newOrder("snap")
			l.setFault(down)
			l.follow(order)
			l.want("the bank", l.choose(order, "bank_transfer"), "303 /pay/ID")

			l.setFault(atTheEnd)
			l.play(order, nil, "", "+24h tick")
			l.want("in the end", l.outcome(order), "expired [1 failed] orderExpired, stock 10")
		})
	}
}

// TestNoOtherMethod is a store that has one method.
func TestNoOtherMethod(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.exec(t, "UPDATE payment_methods SET enabled = 0 WHERE code <> 'snap'")
		l.setFault(refusesKey)
		l.follow(order)
		l.seePage("https://shop.test/pay/"+order, map[string][]string{
			"id": {"Jika masih tidak bisa, hubungi toko.", "Coba lagi"},
			"en": {"If it still does not work, contact the store.", "Try again"},
		}, []string{"Bayar dengan cara lain", "Pay another way"})
	})
}

// methodRefusal is a choice that changes nothing.
type methodRefusal struct {
	name    string
	prepare func(l *payLab, order string)
	code    string
	answer  string
}

var methodRefusals = []methodRefusal{
	{"unknown", nil, "nonsense", "303 /pay/ID?gone"},
	{"none", nil, "", "303 /pay/ID?gone"},
	{
		"another store's",
		func(l *payLab, _ string) {
			other, _ := l.addShop("teh-kita", "")
			l.exec(l.t, "UPDATE payment_methods SET code = 'teh' WHERE store_id = ? AND code = 'sandbox'", other)
		},
		"teh",
		"303 /pay/ID?gone",
	},
	{
		"disabled",
		func(l *payLab, _ string) {
			l.exec(l.t, "UPDATE payment_methods SET enabled = 0 WHERE code = 'bank_transfer'")
		},
		"bank_transfer",
		"303 /pay/ID?gone",
	},
	{
		"for smaller orders",
		func(l *payLab, _ string) {
			l.exec(l.t, "UPDATE payment_methods SET max_amount = 169999 WHERE code = 'bank_transfer'")
		},
		"bank_transfer",
		"303 /pay/ID?gone",
	},
	{
		"while the page is being created",
		func(l *payLab, order string) {
			_, err := l.db.BeginPaymentSession(l.t.Context(), l.storeID, order)
			l.must(err)
		},
		"bank_transfer",
		"303 /pay/ID?busy",
	},
	{
		"when a payment of the lost page has begun",
		func(l *payLab, order string) { l.play(order, l.mid, "midtrans", "lost ?pending") },
		"bank_transfer",
		"303 /pay/ID?busy",
	},
	{
		"of a paid order",
		func(l *payLab, order string) { l.act(order, OwnerApproves) },
		"bank_transfer",
		"303 /pay/ID",
	},
	{
		"past its end",
		func(*payLab, string) { time.Sleep(24 * time.Hour) },
		"bank_transfer",
		"303 /pay/ID",
	},
}

func TestRefusedMethods(t *testing.T) {
	t.Parallel()
	for _, c := range methodRefusals {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) {
			order := l.newOrder("snap")
			if c.prepare != nil {
				c.prepare(l, order)
			}

			before := l.outcome(order)
			l.want("answer", l.choose(order, c.code), c.answer)
			l.want("method", l.method(order), "snap midtrans gateway 172500")
			l.want("order", l.outcome(order), before)
			l.want("notes of a change", l.read(`
				SELECT count(*)
				FROM   order_history
				WHERE  note ->> 'code' = 'method_changed'`), 0)
		})
	}
}

// TestChoiceOfStrangers sends choices from other sites, to other hosts and about no order.
func TestChoiceOfStrangers(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		path := "/pay/" + order + "/method"
		const form = "code=bank_transfer"

		for _, c := range []struct {
			name    string
			address string
			site    string
			status  int
		}{
			{"another site", "https://shop.test" + path, "cross-site", http.StatusForbidden},
			{"another host", "https://evil.test" + path, "same-origin", http.StatusNotFound},
			{"no order", "https://shop.test/pay/" + unknownID + "/method", "same-origin", http.StatusNotFound},
		} {
			l.want(c.name, l.submit(c.address, form, c.site).Code, c.status)
		}
		other, _ := l.addShop("teh-kita", "")
		l.want("another store", l.db.ChangeMethod(t.Context(), other, order, "bank_transfer"), errNotFound)
		l.want("method", l.method(order), "snap midtrans gateway 172500")
	})
}

// TestChoicesAtOnce presses the buttons of two methods several times at once, while the gateway's page is wanted
// too.
func TestChoicesAtOnce(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.setFault(slow(time.Second))
		answers := make([]string, 9)
		parallel(len(answers), func(i int) {
			switch i % 3 {
			case 0:
				answers[i] = l.follow(order)
			case 1:
				answers[i] = l.choose(order, "bank_transfer")
			case 2:
				answers[i] = l.choose(order, "link")
			}
		})

		for _, answer := range answers {
			if !strings.HasPrefix(answer, "303 ") {
				t.Error(answer)
			}
		}

		// A page that can be paid is one of the method that the order has now, for the amount that it has now.
		provider := l.read("SELECT provider FROM orders WHERE id = ?", order)
		sessions := l.read("SELECT provider FROM payment_sessions WHERE payment_url <> ''")
		if sessions != "" && sessions != provider {
			t.Errorf("the order is paid by %s, and there are pages of %s", provider, sessions)
		}
	})
}
