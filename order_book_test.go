package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file tests the book of an order's payments alone: settle and alerts know neither time nor database.

// TestBooks plays the stories of testdata/money.txt.
func TestBooks(t *testing.T) {
	t.Parallel()
	heading, steps, b := "", "", Book{}
	for _, c := range readCases(t, "testdata/money.txt") {
		if c.heading != heading {
			heading, steps, b = c.heading, "", Book{Status: "pending"}
		}
		b = after(t, b, c.column(0))
		steps += c.column(0) + ", "
		if got, want := state(b), strings.Join(c.columns[1:], ", "); got != want {
			t.Errorf("%s: %s %s\n got %s\nwant %s", c.name, heading, steps, got, want)
		}
	}
}

// state is the state of an order, who pays it, and its alerts.
func state(b Book) string {
	all := []string{string(b.Status)}
	if b.Status == "paid" || b.Status == "refunded" {
		all[0] += " by " + b.PaidBy
	}
	for _, a := range alerts(b) {
		all = append(all, fmt.Sprintf("%s %s %d/%d", a.Code, a.Payment, a.Amount, a.Due))
	}
	return strings.Join(all, ", ")
}

// after is the book after an event: what a gateway says of a payment of Rp1,000, such as "1 tx-1 arrived
// amount=999 returned=5", or what a person or the clock does. A word that is refused in this state changes nothing.
func after(t *testing.T, b Book, event string) Book {
	t.Helper()
	words := strings.Fields(event)
	before := b.Status
	waits := before == "awaiting_verification"
	held := func(p Payment) bool { return p.State == "held" }
	switch words[0] + " " + words[1] {
	case "owner approves":
		if before != "paid" && before != "refunded" && !slices.ContainsFunc(b.Payments, held) {
			b = b.approve(b.Status)
		}
	case "owner rejects":
		if waits {
			b.Status = "failed"
		}
	case "owner cancels":
		if before == "pending" {
			b.Status = "failed"
		}
	case "owner refunds":
		if before == "paid" {
			b.Status = "refunded"
		}
	case "clock expires":
		if before == "pending" {
			b.Status = "expired"
		}
	case "buyer reports":
		if before == "pending" || before == "expired" {
			b.Status, b.Reported = "awaiting_verification", true
		}
	case "buyer returns": // to say that they have not paid
		if waits && b.Reported {
			b.Status, b.Reported = "pending", false
		}
	case "owner returned", "owner approved":
		for _, a := range alerts(b) {
			if fmt.Sprint(a.Code, " ", a.Payment) == words[2]+" "+words[3] {
				b = b.resolve(a, words[1] == "approved")
			}
		}
	default:
		b.Payments = tell(t, b.Payments, words)
	}
	return settle(b, before)
}

// tell is the book's payments after an answer of a gateway.
func tell(t *testing.T, all []Payment, words []string) []Payment {
	t.Helper()
	number, err := strconv.Atoi(words[0])
	must(t, err)
	news := Payment{SessionNumber: number, ID: words[1], Asked: 1000, State: PaymentState(words[2]), Amount: 1000}
	for _, word := range words[3:] {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		must(t, err)
		*map[string]*int64{"amount": &news.Amount, "returned": &news.Returned, "disputed": &news.Disputed}[name] = n
	}
	same := func(p Payment) bool { return p.SessionNumber == number && p.ID == news.ID }
	all = slices.Clone(all)
	if i := slices.IndexFunc(all, same); i >= 0 {
		all[i] = all[i].learn(news)
		return all
	}
	return append(all, Payment{SessionNumber: number, ID: news.ID, Asked: 1000}.learn(news))
}

// TestMoneyIsNeverSilent plays 20,000 random stories, and 2,000,000 with -walk. Whatever happens, money that is there
// is what the order lives on, or an alert that the owner has seen; and an exact payment pays every order but a refunded
// one.
func TestMoneyIsNeverSilent(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	statuses := map[string]int{}
	codes := map[string]int{}
	stories := 20_000
	if *walkFor > 0 {
		stories = 2_000_000
	}
	for range stories {
		b, story := Book{Status: "pending"}, ""
		for range 1 + r.IntN(9) {
			payment := pick("1 tx-1 ", "1 tx-2 ", "2 tx-3 ")
			event := payment + pick("open", "held", "denied", "expired", "arrived", "arrived",
				"arrived amount=900", "arrived amount=1100", "arrived returned=300", "arrived returned=1000",
				"arrived disputed=700")
			if r.IntN(3) == 0 {
				one := strings.Replace(strings.TrimSpace(payment), " ", ":", 1)
				event = pick("owner approves", "owner rejects", "owner cancels", "owner refunds", "clock expires",
					"buyer reports", "buyer returns", "owner returned overpaid "+one, "owner approved overpaid "+one)
			}
			before := b
			b = after(t, b, event)
			story += event + ", "
			if fault := silence(before, b); fault != "" {
				t.Fatalf("%s: %s, after %s", story, fault, state(b))
			}
			if again := after(t, b, "1 tx-9 open"); state(again) != state(b) {
				t.Fatalf("%s: %s, and then %s by itself", story, state(b), state(again))
			}
			statuses[string(b.Status)]++
			for _, a := range alerts(b) {
				codes[string(a.Code)]++
			}
		}
	}
	if len(statuses) != 6 || len(codes) != 4 {
		t.Errorf("not every state was seen: %v %v", statuses, codes)
	}
}

// silence is what of a book must not be.
func silence(before, b Book) string {
	payer, isPayment := b.payer()
	// else nothing is needed beside the payer
	paidInParts := !isPayment || payer.Amount != payer.Asked || payer.Returned > 0
	for _, p := range b.Payments {
		key := p.key()
		alerted := false
		for _, a := range slices.Concat(alerts(b), b.Resolved) {
			alerted = alerted || a.Payment == key
		}
		accepted := b.Status == "paid" && p.Amount < p.Asked && slices.Contains(b.Accepted, key)
		over := b.Status == "paid" || b.Status == "refunded"
		lives := over && b.PaidBy == key
		switch {
		case p.hasMoney() && !lives && !alerted && !(accepted && paidInParts):
			return "the money of " + key + " is silent"
		case accepted && !p.hasMoney() && !alerted:
			return "it is silent that the accepted money of " + key + " is gone"
		case p.hasMoney() && p.Amount == p.Asked && p.Returned == 0 && !over && !slices.Contains(b.Second, key):
			return "the exact payment " + key + " pays nothing"
		}
	}
	if before.Status == "refunded" && b.Status != "refunded" {
		return "a refunded order changes"
	}
	if before.Status == "expired" && b.Status == "failed" {
		return "an expired order fails"
	}
	return ""
}
