package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
)

// This file plays the notifications that the gateways have published, word for word but for what makes them ours: a
// reference, a signature, ids and an amount. testdata/midtrans-published.json and xendit-published.json have them with
// their sources, and published.txt says what an order becomes by each.

// gatewayExample is a notification or an answer from a gateway's documentation.
type gatewayExample struct {
	Name, Source string
	Body         fields
}

func readPublished(t *testing.T, gateway string) (all []gatewayExample) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + gateway + "-published.json")
	must(t, err)
	must(t, json.Unmarshal(text, &all))
	return all
}

// outcomes are the lines of published.txt under the heading of a gateway: by name, what becomes of an order.
func outcomes(t *testing.T, gateway string) map[string][]string {
	t.Helper()
	lines := map[string][]string{}
	for _, c := range readCases(t, "testdata/published.txt") {
		if c.heading == gateway {
			lines[c.column(0)] = c.columns[1:]
		}
	}
	return lines
}

// become orders what costs an amount, has the gateway say something about its page, and returns what the order is then.
func become(t *testing.T, w *world, method string, amount int64, says func(p *player)) string {
	t.Helper()
	entry := fmt.Sprintf(`{"products": [{"slug": "pas", "title": "Pas", "price": %d}]}`, amount)
	w.putCatalog(entry).want(t, 200, "")
	shop := *w.shop // The tests beside this one have the same map.
	shop.ids = maps.Clone(shop.ids)
	w.shop = &shop
	for _, product := range w.get(t, "/v1/products?limit=50").list("products") {
		w.shop.ids[textOf(product, "slug")] = textOf(product, "id")
	}

	p := newPlayer(t, w)
	p.play("order pas 1 " + method + " as A, get")
	says(p)
	w.sleep(0)
	outcome := p.outcome()
	status := outcome[0]
	for _, item := range outcome[2:] {
		if !strings.HasPrefix(item, "stock") && !strings.HasPrefix(item, "payable") {
			status += " " + item
		}
	}
	return strings.Replace(status, "paid by 1", "paid", 1)
}

// TestPublishedAtMidtrans plays each notification as the first news of a page, and after its payment was settled, for
// both ways in which Midtrans may say that it does not know an order.
func TestPublishedAtMidtrans(t *testing.T) {
	lines := outcomes(t, "midtrans")
	for _, example := range readPublished(t, "midtrans") {
		for _, odd := range []string{"", "unknown200"} {
			t.Run(example.Name+" "+odd, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					w.net.midtrans.odd[odd] = true
					gross, _, _ := strings.Cut(textOf(example.Body, "gross_amount"), ".")
					amount, err := strconv.ParseInt(gross, 10, 64)
					must(t, err)
					first := become(t, w, "qris", amount, func(p *player) {
						saysPublished(t, w, p, example)
					})
					later := become(t, w, "qris", amount, func(p *player) {
						settled := gatewayExample{Body: maps.Clone(example.Body)}
						settled.Body["transaction_status"] = "settlement"
						settled.Body["fraud_status"] = "accept"
						delete(settled.Body, "refund_amount")
						saysPublished(t, w, p, settled)
						saysPublished(t, w, p, example)
					})
					if got, want := fmt.Sprint([]string{first, later}), fmt.Sprint(lines[example.Name]); got != want {
						t.Errorf("%s: at first and after its settlement the order is %s, want %s",
							example.Name, got, want)
					}
				})
			})
		}
	}
}

// saysPublished has Midtrans answer with an example, and notify of it twice.
func saysPublished(t *testing.T, w *world, p *player, example gatewayExample) {
	t.Helper()
	double := w.net.midtrans
	double.mu.Lock()
	page := double.page(p.order, "1")
	said := snapPayment{Order: page.reference, ID: textOf(example.Body, "transaction_id"), raw: example.Body,
		Status: textOf(example.Body, "transaction_status"), Gross: textOf(example.Body, "gross_amount")}
	if strings.Contains(example.Name, "status by order_id is 404") {
		said.kind = "dana"
	}
	if strings.Contains(example.Name, "status has transaction_id as order_id") {
		said.kind = "dana"
	}
	page.payments = []snapPayment{said}
	message := double.written(double.sign(said))
	double.mu.Unlock()
	for range 2 {
		w.do(t, "POST", "/notifications/midtrans/"+w.shop.id, message).want(t, 200, "")
		w.sleep(0)
	}
}

// TestPublishedAtXendit plays each notification word for word, which changes nothing, and then as one about our page:
// while the page is open, and after it has ended.
func TestPublishedAtXendit(t *testing.T) {
	lines := outcomes(t, "xendit")
	for _, example := range readPublished(t, "xendit") {
		t.Run(example.Name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				token := []string{"X-Callback-Token", xenditToken}
				send := func(message any) int {
					return w.do(t, "POST", "/notifications/xendit/"+w.shop.id, message, token...).Status
				}
				foreign := send(example.Body)
				got := []string{strconv.Itoa(foreign)}
				for _, before := range []string{"", "EXPIRED", "COMPLETED"} {
					got = append(got, become(t, w, "va_bca", 10000, func(p *player) {
						if before != "" {
							p.play(before)
						}
						w.net.xendit.mu.Lock()
						page := w.net.xendit.page(p.order, "1")
						message := asFields(asOurs(example.Body, page))
						data := message
						for asFields(data["data"]) != nil {
							data = asFields(data["data"])
						}
						w.net.xendit.raw = map[string]any{
							"/v3/payments/" + textOf(data, "payment_id"): data,
							"/v3/refunds/" + textOf(data, "id"):          data,
						}
						if data["payment_session_id"] != nil {
							w.net.xendit.raw["/sessions/"+page.id] = data
						}
						w.net.xendit.mu.Unlock()
						send(message)
						w.sleep(0)
						send(message)
					}))
				}
				if want := lines[example.Name]; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("    %s  %s", example.Name, strings.Join(got, "  "))
				}
			})
		})
	}
}

// asOurs returns an example as it would be about a page of ours.
func asOurs(value any, page *gatewayPage) any {
	object := asFields(value)
	if object == nil {
		return value
	}
	ours := map[string]any{
		"reference_id": page.reference, "payment_session_id": page.id, "payment_id": "py-" + page.id,
		"payment_request_id": "pr-" + page.id, "currency": "IDR", "session_type": "PAY",
	}
	changed := fields{}
	for name, value := range object {
		switch {
		case name == "captures":
			value = []any{fields{"capture_id": "cptr-1", "capture_amount": page.amount}}
		case name == "request_amount":
			value = page.amount
		case name == "amount" && object["payment_session_id"] != nil && fmt.Sprintf("%T", value) == "string":
			value = strconv.FormatInt(page.amount, 10)
		case name == "amount" && object["payment_session_id"] != nil:
			value = page.amount
		case ours[name] != nil && value != nil:
			value = ours[name]
		default:
			value = asOurs(value, page)
		}
		changed[name] = value
	}
	return changed
}
