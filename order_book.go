package main

// This file is the book of an order's payments: what gateways, the buyer and the owner have said about its money, and
// what that means for the order. Everything here is pure. A gateway's answer is written into the book, and settle and
// alerts are functions of the whole book.

import (
	"cmp"
	"slices"
	"strconv"
)

// Status is the state of an order.
type Status string

const (
	Pending              Status = "pending"
	AwaitingVerification Status = "awaiting_verification"
	Paid                 Status = "paid"
	Failed               Status = "failed"
	Expired              Status = "expired"
	Refunded             Status = "refunded"
)

// PaymentState is how far a payment has got, according to its gateway.
type PaymentState string

// The states of a payment, in the order in which we learn of them. Of Denied and ExpiredPayment, the first to come
// stays.
const (
	Open           PaymentState = "open"
	Held           PaymentState = "held" // the gateway wants a person to decide
	Denied         PaymentState = "denied"
	ExpiredPayment PaymentState = "expired"
	Arrived        PaymentState = "arrived"
	Reversed       PaymentState = "reversed" // it had arrived, and the gateway took it back
)

var stateRanks = map[PaymentState]int{Open: 1, Held: 2, Denied: 3, ExpiredPayment: 3, Arrived: 4, Reversed: 5}

// Payment is a row of the book. Amounts are in rupiah.
type Payment struct {
	SessionNumber int    // the number of its payment session
	ID            string // the gateway's name for it; at Xendit the session's
	Asked         int64  // what its page asked for; kept with its session
	State         PaymentState
	Amount        int64
	Returned      int64 // of the amount
	Disputed      int64 // of the amount; 0 = nothing. From a gateway, -1 ends the dispute.
}

// key tells the payments of an order apart.
func (p Payment) key() string { return strconv.Itoa(p.SessionNumber) + ":" + p.ID }

// hasMoney reports whether money has arrived and some of it has not been returned.
func (p Payment) hasMoney() bool { return p.State == Arrived && p.Returned < p.Amount }

// learn adds what a gateway says to what is known. Only a later state replaces a state and its amount, and returned
// money only grows, so an old answer changes nothing. There are two exceptions. A denial of a payment that had arrived
// means that it was reversed. A dispute of -1 ends the dispute, which may begin again.
func (p Payment) learn(news Payment) Payment {
	if p.State == Arrived && news.State == Denied {
		news.State = Reversed
	}
	if stateRanks[news.State] > stateRanks[p.State] {
		p.State = news.State
		p.Amount = cmp.Or(news.Amount, p.Amount)
	}

	p.Returned = min(max(p.Returned, news.Returned), p.Amount)
	p.Disputed = min(max(p.Disputed, news.Disputed), cmp.Or(p.Amount, p.Asked))
	if news.Disputed < 0 {
		p.Disputed = 0
	}
	return p
}

// byOwner stands for the payer of an order that its owner approved without any of its payments.
const byOwner = "owner"

// Book is what is known about an order's money.
type Book struct {
	Status   Status    `json:"-"`                   // in a column of its own
	Payments []Payment `json:"-"`                   // in a table of their own
	PaidBy   string    `json:"paid_by,omitempty"`   // a payment's key, or byOwner; "" = nobody
	PaidFrom Status    `json:"paid_from,omitempty"` // the status before an approval; "" = none, or one of 1.0
	Reported bool      `json:"reported,omitempty"`  // the buyer has reported a payment, or confirmed a cash order
	Oversold bool      `json:"oversold,omitempty"`  // it was paid after its stock was gone
	Accepted []string  `json:"accepted,omitempty"`  // keys of the payments that an approval accepted
	Second   []string  `json:"second,omitempty"`    // keys of the payments that the owner has called a second payment
	Resolved []Alert   `json:"resolved,omitempty"`  // the alerts that the owner has dealt with
}

// payment returns the payment with a key.
func (b Book) payment(key string) (p Payment, found bool) {
	i := slices.IndexFunc(b.Payments, func(p Payment) bool { return p.key() == key })
	if i < 0 {
		return p, false
	}
	return b.Payments[i], true
}

// payer returns the payment that pays the order. ok is false if none does, also if the owner approved the order without
// a payment.
func (b Book) payer() (p Payment, ok bool) { return b.payment(b.PaidBy) }

// heldOn reports whether a gateway holds a payment of a session.
func (b Book) heldOn(number int) bool {
	return slices.ContainsFunc(b.Payments, func(p Payment) bool { return p.State == Held && p.SessionNumber == number })
}

// has reports whether a payment of the order is in a state.
func (b Book) has(state PaymentState) bool {
	return slices.ContainsFunc(b.Payments, func(p Payment) bool { return p.State == state })
}

// exactPayment returns the key of a payment, other than the payer, that brought exactly what its page asked for and
// still has money. It skips a payment that the owner has called a second one. In a paid or failed order it also skips a
// partly returned one, because its money is on the way back to the buyer. "" = there is none.
func (b Book) exactPayment() (key string) {
	onlyWhole := b.Status == Paid || b.Status == Failed
	for _, p := range b.Payments {
		fits := p.hasMoney() && p.Amount == p.Asked && (p.Returned == 0 || !onlyWhole)
		if fits && p.key() != b.PaidBy && !slices.Contains(b.Second, p.key()) {
			return p.key()
		}
	}
	return ""
}

// settle gives a book the status that its payments imply, and says which of them pays the order. It knows neither time
// nor database. statusBefore is the stored status of the order; an act may have changed b.Status since.
func settle(b Book, statusBefore Status) Book {
	held := b.has(Held)
	anyMoney := slices.ContainsFunc(b.Payments, Payment.hasMoney)
	exactKey := b.exactPayment()
	payer, isPayment := b.payer()

	switch {
	case b.Status == Refunded, b.Status == Paid && (!isPayment || payer.hasMoney()):
		// It stays as it is: it was refunded, was paid without a payment, or still has the money that paid it.
	case exactKey != "":
		// An exact payment pays any other order, even one that has expired or failed. In a paid order it replaces a
		// payer that is gone, and payments accepted beside that payer are no longer needed.
		b.Status = Paid
		b.PaidBy = exactKey
		b.PaidFrom = ""
		b.Accepted = nil
	case b.Status == Paid && payer.State == Arrived: // The payer's money was returned.
		b.Status = Refunded
	case b.Status == Paid: // It was reversed.
		b.Status = Failed
	case b.Status == Pending && (held || anyMoney), b.Status == Expired && held: // Its owner decides.
		b.Status = AwaitingVerification
	case b.Status == AwaitingVerification && !held && !anyMoney && !b.Reported: // There is nothing left to decide.
		b.Status = Failed
	}

	// The book of an order that fails starts over. It keeps its payments, and which of them are second ones.
	if b.Status == Failed && statusBefore != Failed {
		return Book{Status: Failed, Payments: b.Payments, Second: b.Second}
	}
	return b
}

// approve returns the book after the owner approved an order of the status from. If the buyer reported a transfer, the
// owner approved that transfer: no payment pays the order, and other money is not needed. Otherwise it looks at the
// payments that have money and that the owner has not called a second one. The first of them is the payer, and all that
// brought too little are accepted. Resolved alerts may come up again.
func (b Book) approve(from Status) Book {
	b.PaidFrom = from
	b.Status = Paid
	b.PaidBy = byOwner
	b.Accepted = nil
	b.Resolved = nil
	if b.Reported {
		return b
	}

	for _, p := range b.Payments {
		if !p.hasMoney() || slices.Contains(b.Second, p.key()) {
			continue
		}
		if p.Amount < p.Asked {
			b.Accepted = append(b.Accepted, p.key())
		}
		if b.PaidBy == byOwner {
			b.PaidBy = p.key()
		}
	}
	return b
}

// mayBeUndone reports whether an approval can be taken back: the order is paid by the owner's word, and not by an exact
// payment.
func (b Book) mayBeUndone() bool {
	payer, isPayment := b.payer()
	if b.Status != Paid || b.PaidBy == "" {
		return false
	}
	return !isPayment || payer.Amount != payer.Asked
}

// undo returns the book without its approval. The buyer's report stays, and so does what the owner called a second
// payment. Alerts resolved since come up again.
func (b Book) undo() Book {
	b.PaidBy = ""
	b.PaidFrom = ""
	b.Oversold = false
	b.Accepted = nil
	b.Resolved = nil
	return b
}

// AlertCode is a kind of alert, as the API shows it.
type AlertCode string

const (
	Oversold       AlertCode = "oversold"
	Underpaid      AlertCode = "underpaid"
	Overpaid       AlertCode = "overpaid"        // more than was asked for, or money that the order does not need
	PartlyRefunded AlertCode = "partly_refunded" // part of what the order has taken was returned or taken back
	Disputed       AlertCode = "disputed"
)

// Alert is something that the owner has to look at although the order's status does not show it. docs/payments.md says
// what to do about each. The words of the pages are alert.… and advice.… in web/words.txt.
type Alert struct {
	Code    AlertCode `json:"code"`
	Payment string    `json:"payment,omitempty"` // its key; "" = it is about no payment
	Amount  int64     `json:"amount,omitempty"`  // in rupiah: what arrived, was returned or is disputed
	Due     int64     `json:"due,omitempty"`     // in rupiah: what was asked for, or what that payment had brought
}

// alerts derives the alerts of an order from its book, without those that the owner has resolved. The payer of a
// refunded order raises none.
func alerts(b Book) []Alert {
	var all []Alert
	if b.Oversold && b.Status == Paid {
		all = append(all, Alert{Code: Oversold})
	}

	for _, p := range b.Payments {
		if b.Status != Refunded || p.key() != b.PaidBy {
			all = append(all, b.alertsAbout(p)...)
		}
	}
	return slices.DeleteFunc(all, func(a Alert) bool { return slices.Contains(b.Resolved, a) })
}

// alertsAbout derives the alerts about one payment.
func (b Book) alertsAbout(p Payment) (about []Alert) {
	key := p.key()
	if code := b.misfit(p); code != "" {
		about = append(about, Alert{code, key, p.Amount, p.Asked})
	}

	returned := p.Returned
	if p.State == Reversed { // All of it was taken back.
		returned = p.Amount
	}
	if b.isTaken(key) && returned > 0 {
		about = append(about, Alert{PartlyRefunded, key, returned, p.Amount})
	}
	if p.Disputed > 0 && p.State != Reversed && (p.State != Arrived || p.hasMoney()) {
		about = append(about, Alert{Disputed, key, p.Disputed, p.Amount})
	}
	return about
}

// misfit says what is wrong with the amount of a payment's money, "" if nothing is.
func (b Book) misfit(p Payment) AlertCode {
	key := p.key()
	switch {
	case !p.hasMoney():
		return ""
	case key == b.PaidBy && (p.Amount > p.Asked || b.Reported):
		return Overpaid
	case b.isTaken(key): // as much as was asked for, or accepted
		return ""
	case b.isUnneeded(key), p.Amount >= p.Asked:
		return Overpaid
	}
	return Underpaid
}

// isUnneeded reports whether the order was paid without the payment with this key, by other payments or by its owner.
func (b Book) isUnneeded(key string) bool {
	return (b.Status == Paid || b.Status == Refunded) && !b.isTaken(key)
}

// isTaken reports whether the payment with this key is the payer, or was accepted beside it.
func (b Book) isTaken(key string) bool {
	return key == b.PaidBy || b.Status == Paid && slices.Contains(b.Accepted, key)
}

// alertCodes returns the codes of alerts, each once and sorted.
func alertCodes(all []Alert) []AlertCode {
	var codes []AlertCode
	for _, a := range all {
		codes = append(codes, a.Code)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// resolve returns the book after the owner dealt with an alert. An overpaid payment may turn out to be the one that
// they approved: then it is the payer from now on, and a surplus remains an alert. Otherwise, if the order does not
// need it, it is a second payment. That becomes the payer only if the owner says so later.
func (b Book) resolve(a Alert, isPayer bool) Book {
	if a.Code == Overpaid && isPayer && b.PaidBy == byOwner {
		b.PaidBy = a.Payment
		b.Reported = false
		return b
	}

	b.Resolved = append(slices.Clone(b.Resolved), a)
	if a.Code == Overpaid && b.isUnneeded(a.Payment) {
		b.Second = append(slices.Clone(b.Second), a.Payment)
	}
	return b
}
