package main

// This file is Midtrans's wire format: Snap pages, the status of a transaction, and notifications.

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// midtrans is Midtrans (https://docs.midtrans.com). Its Snap API has the pages, and its Core API the transactions that
// buyers begin there. Our reference, its order_id, finds the latest transaction of a page. Earlier ones, and those of
// some ways to pay, are found only by their transaction_id, which notifications bring. After a failed transaction, the
// buyer may begin another one until the page ends.
type midtrans struct{ gatewayClient }

// host returns the address of an API: app is Snap, api is Core.
func (m midtrans) host(name string) string {
	if m.key.Mode == ModeSandbox {
		name += ".sandbox"
	}
	return "https://" + name + ".midtrans.com"
}

// snapPages is where pages are made.
const snapPages = "/snap/v1/transactions"

// Midtrans accepts five minutes to seven days for a page, and DANA 15 minutes to a day. One end has to fit all
// channels.
const (
	leastAtMidtrans = 15 * time.Minute
	mostAtMidtrans  = 24 * time.Hour
)

func (m midtrans) create(ctx context.Context, c checkout) (Page, error) {
	now := m.now()
	lasts := c.Session.ExpiresAt.Sub(now).Truncate(time.Minute)
	lasts = min(max(lasts, leastAtMidtrans), mostAtMidtrans)

	phone := internationalPhone(c.Order.Buyer.Phone)
	if !strings.HasPrefix(phone, "+62") { // Midtrans accepts no other.
		phone = ""
	}

	back := c.returnURL()
	request := jsonObject{
		"transaction_details": jsonObject{"order_id": c.Session.reference(), "gross_amount": c.Session.Asked},
		"item_details":        c.lines(),
		"customer_details": jsonObject{
			// as much of the name as BCA's virtual accounts take
			"first_name": fmt.Sprintf("%.30s", withoutBars(c.Order.Buyer.Name)),
			"email":      c.Order.Buyer.Email,
			"phone":      phone,
		}.filled(),
		"enabled_payments":             c.channels,
		"credit_card":                  jsonObject{"secure": true}, // 3-D Secure, which is off otherwise
		"custom_field1":                c.Order.PaymentReference,   // for the owner, in Midtrans's own list
		"customer_imposed_payment_fee": jsonObject{"enable": false},
		"callbacks":                    jsonObject{"finish": back, "error": back},
		// Some apps lead back only by fields of their own.
		"gopay":     jsonObject{"enable_callback": true, "callback_url": back},
		"shopeepay": jsonObject{"callback_url": back},
		"dana":      jsonObject{"callback_url": back},
		"expiry": jsonObject{
			"start_time": now.Time().In(wib).Format("2006-01-02 15:04:05 -0700"),
			"unit":       "minute",
			"duration":   lasts.Minutes(),
		},
	}.filled()

	// This header overrides the address in Midtrans's own settings.
	header := http.Header{"X-Override-Notification": {c.Store.URL + "/notifications/midtrans/" + c.Store.ID}}
	var a midtransAnswer
	leaveOut := func() bool { return !a.namesReference() && request.dropOptional() }
	call := gatewayCall{method: "POST", host: m.host("app"), path: snapPages, header: header}
	err := m.createPage(ctx, call, request, &a, leaveOut)
	if isRefused(err, GatewayRefused) && a.namesReference() && m.isReferenceTaken(ctx, c.Session, a) {
		return Page{}, errTaken
	}
	return Page{a.Token, a.URL, now.Add(lasts)}, c.scrub(err)
}

// namesReference reports whether a refusal is about our reference.
func (a *midtransAnswer) namesReference() bool { return a.says("order_id") || a.says("order id") }

// isReferenceTaken reports whether Midtrans refuses a reference because it has a payment for it. Either its words say
// so, in one of four published forms, or it knows the transaction.
func (m midtrans) isReferenceTaken(ctx context.Context, s PaymentSession, refusal midtransAnswer) bool {
	for _, words := range []string{"already been taken", "sudah digunakan", "paid and utilized", "duplicate order"} {
		if refusal.says(words) {
			return true
		}
	}
	_, isFound, err := m.getTransaction(ctx, s, s.reference())
	return isFound && err == nil
}

// midtransAnswer is a page, a transaction, or why there is none. A notification is a transaction.
type midtransAnswer struct {
	Token string `json:"token"` // of a page
	URL   string `json:"redirect_url"`

	OrderID      string      `json:"order_id"` // our reference
	ID           string      `json:"transaction_id"`
	Status       string      `json:"transaction_status"`
	Fraud        string      `json:"fraud_status"`
	Currency     string      `json:"currency"`
	GrossAmount  writtenText `json:"gross_amount"`  // what the buyer was charged
	RefundAmount wholeRupiah `json:"refund_amount"` // of all refunds
	Refunds      ifRead[[]struct {
		Amount wholeRupiah `json:"refund_amount"`
	}] `json:"refunds"`

	// If Midtrans adds a fee for the buyer, these say what the page asked for.
	Extra    ifRead[midtransExtra] `json:"extra_info"`
	Metadata ifRead[struct {
		Extra midtransExtra `json:"extra_info"`
	}] `json:"metadata"`

	Channel  string `json:"payment_type"`
	Accounts ifRead[[]struct {
		Bank string `json:"bank"`
	}] `json:"va_numbers"`

	Code      writtenText `json:"status_code"` // like an HTTP status
	Signature string      `json:"signature_key"`
	Message   string      `json:"status_message"`
	Errors    []string    `json:"error_messages"`
}

type midtransExtra struct {
	Amounts struct {
		Original wholeRupiah `json:"original_amount"`
	} `json:"gross_amount_info"`
}

// refusal returns the status inside an answer with HTTP status 200 that has neither a page nor a transaction.
func (a *midtransAnswer) refusal() (status int, words string) {
	if a.Token == "" && a.Status == "" {
		status, _ = strconv.Atoi(string(a.Code))
	}
	return status, cmp.Or(strings.Join(a.Errors, "; "), a.Message)
}

// says reports whether the words of a refusal contain a text, which is in lower case.
func (a *midtransAnswer) says(text string) bool {
	_, words := a.refusal()
	return strings.Contains(strings.ToLower(words), text)
}

// midtransStates are the meanings of transaction_status; for capture and settlement, with fraud_status if
// there is one.
var midtransStates = map[string]PaymentState{
	"pending":              Open,
	"settlement":           Arrived,
	"settlement/accept":    Arrived,
	"settlement/challenge": Held,
	"settlement/deny":      Denied,
	"capture":              Arrived,
	"capture/accept":       Arrived,
	"capture/challenge":    Held,
	"capture/deny":         Denied,
	"authorize":            Held,
	"deny":                 Denied,
	"failure":              Denied,
	"cancel":               Denied,
	"expire":               ExpiredPayment,
	"refund":               Arrived,
	"chargeback":           Arrived,
	"partial_refund":       Arrived,
	"partial_chargeback":   Arrived,
}

// state is empty if the statuses are not known.
func (a *midtransAnswer) state() PaymentState {
	status := strings.ToLower(a.Status)
	fraud := strings.ToLower(a.Fraud)
	if fraud != "" && (status == "capture" || status == "settlement") {
		status += "/" + fraud
	}
	return midtransStates[status]
}

// amount returns the store's part of the money, without a fee that Midtrans added for the buyer.
func (a *midtransAnswer) amount() (wholeRupiah, error) {
	var gross wholeRupiah
	err := gross.UnmarshalJSON([]byte(a.GrossAmount))
	original := cmp.Or(a.Metadata.value.Extra.Amounts.Original, a.Extra.value.Amounts.Original)
	if original > 0 && original <= gross { // A promotion lowers what is charged.
		return original, err
	}
	return gross, err
}

// payment returns the transaction of an answer. It is not understood without an order_id or in another currency.
func (a *midtransAnswer) payment() (Payment, error) {
	amount, err := a.amount()
	p := Payment{ID: cmp.Or(identifier(a.ID), a.OrderID), State: a.state(), Amount: int64(amount)}
	if err != nil || p.State == "" || a.OrderID == "" || !isRupiah(a.Currency) {
		return p, errNotUnderstood
	}

	switch strings.ToLower(a.Status) {
	case "refund", "chargeback":
		p.Returned = p.Amount
	case "partial_refund", "partial_chargeback":
		// According to the documentation, refund_amount is the sum of the refunds. The larger of the two counts.
		sum := wholeRupiah(0)
		for _, refund := range a.Refunds.value {
			sum += refund.Amount
		}

		p.Returned = int64(max(sum, a.RefundAmount))
		if p.Returned == 0 { // No amount is given, as in the documentation's partial_chargeback: the owner has to look.
			p.Disputed = p.Amount
		}
	}
	return p, nil
}

// status asks by our reference, and by the identifiers of all known transactions. An answer that is not understood does
// not hide the others.
func (m midtrans) status(ctx context.Context, s PaymentSession) (a Answer, failed error) {
	states := map[string]PaymentState{}
	for _, id := range append([]string{s.reference()}, s.Identifiers...) {
		if states[id] != "" || s.staysDenied(id) {
			continue // It was answered already, or will not change.
		}

		t, isFound, err := m.getTransaction(ctx, s, id)
		if err != nil {
			return a, err
		}
		if !isFound {
			continue
		}
		p, err := t.payment()
		if err != nil {
			failed = err
			continue
		}

		states[p.ID] = p.State
		if id == s.reference() { // This is the latest payment with this reference.
			a.Canceled = strings.EqualFold(t.Status, "cancel")
		}
		a.add(s, p, id)
		a.Identifiers = append(a.Identifiers, p.ID)
	}

	a.judgePage(s, states, m.now())
	return a, failed
}

// staysDenied reports whether an identifier belongs to a denied payment on a page with many payments. Such a payment
// stays denied, unless a notification reports otherwise.
func (s PaymentSession) staysDenied(id string) bool {
	return len(s.Identifiers) > 8 && id != s.Unconfirmed &&
		slices.ContainsFunc(s.payments, func(p Payment) bool { return p.ID == id && p.State == Denied })
}

// getTransaction asks for one of a session's transactions. It is not found if the buyer has not chosen how to pay, or
// if the identifier belongs to another order.
func (m midtrans) getTransaction(
	ctx context.Context, s PaymentSession, id string,
) (t midtransAnswer, isFound bool, err error) {
	path := "/v2/" + url.PathEscape(id) + "/status"
	status, err := m.requestJSON(ctx, gatewayCall{method: "GET", host: m.host("api"), path: path}, &t)
	if status == http.StatusNotFound { // Midtrans may also say so in an answer with 200.
		return t, false, nil
	}
	isOurs := t.OrderID == s.reference() || t.OrderID == id // Some ways to pay have the transaction_id there.
	if err == nil && !isOurs && t.OrderID != "" {
		return t, false, nil
	}
	return t, true, err
}

// judgePage derives the state of a page from the states of its transactions, which are given by id.
func (a *Answer) judgePage(s PaymentSession, states map[string]PaymentState, now Time) {
	has := slices.Collect(maps.Values(states))
	if slices.Contains(has, Open) { // Its id may differ from that of an earlier, canceled one.
		a.Open = true
		a.Canceled = false
		return
	}
	if slices.Contains(has, Held) { // Neither: a person decides.
		return
	}

	// After a reversal, the buyer may begin another payment on a closed page.
	isGone := func(p Payment) bool { return p.State == Arrived && states[p.ID] != Arrived }
	staysClosed := s.Closed && !slices.ContainsFunc(s.payments, isGone)
	hasEnded := now >= s.ExpiresAt.Add(10*time.Minute) // by Midtrans's clock: ours may be ahead by that much
	a.Closed = staysClosed || hasEnded || slices.Contains(has, Arrived)
	a.Open = !a.Closed
}

// act does something to a transaction.
func (m midtrans) act(ctx context.Context, id, what string, header http.Header) error {
	path := "/v2/" + url.PathEscape(id) + "/" + what
	call := gatewayCall{method: "POST", host: m.host("api"), path: path, header: header}
	_, err := m.requestJSON(ctx, call, &midtransAnswer{})
	return err
}

// closePage first ends the open payments, because a page in use cannot be closed. Midtrans documents neither the status
// of a refusal to close a page, nor its words once the page has ended. Past the page's end, any answer but "in
// progress" means that it has ended.
func (m midtrans) closePage(ctx context.Context, s PaymentSession) bool {
	for _, p := range s.payments {
		if err := m.endPayment(ctx, s, p); err != nil && !isRefused(err, GatewayRefused) {
			return false
		}
	}
	if s.GatewayID == "" {
		return false
	}

	var a midtransAnswer
	path := snapPages + "/" + url.PathEscape(s.GatewayID) + "/cancel"
	_, err := m.requestJSON(ctx, gatewayCall{method: "POST", host: m.host("app"), path: path}, &a)
	isOver := m.now() >= s.ExpiresAt && (err == nil || isRefused(err, GatewayRefused)) && !a.says("progress")
	return err == nil && len(a.Errors) == 0 || a.says("already canceled") || isOver
}

// endPayment ends an open payment and denies a held one. A payment that refuses to end has ended already, or was
// probably just paid; closing takes no money back.
func (m midtrans) endPayment(ctx context.Context, s PaymentSession, p Payment) error {
	switch p.State {
	case Held:
		return m.act(ctx, p.ID, "deny", nil)
	case Open:
		err := m.act(ctx, p.ID, "expire", nil) // cancel would also reverse a captured card payment
		if !isRefused(err, GatewayRefused) {
			return err
		}
		t, isFound, err := m.getTransaction(ctx, s, p.ID)
		if err != nil || !isFound || !t.runsOverSNAP() || !strings.EqualFold(t.Status, "pending") {
			return err
		}
		return m.act(ctx, p.ID, "cancel", http.Header{"Transaction-Source": {"SNAP_API"}})
	}
	return nil
}

// runsOverSNAP reports whether a transaction is at DANA or at a bank that Midtrans serves by the national standard
// SNAP. These have no expire, and are found only by their transaction_id.
func (a *midtransAnswer) runsOverSNAP() bool {
	if strings.EqualFold(a.Channel, "dana") {
		return true
	}
	for _, account := range a.Accounts.value {
		if slices.Contains([]string{"bsi", "seabank", "saqu", "danamon"}, strings.ToLower(account.Bank)) {
			return true
		}
	}
	return false
}

// decidePayment approves or denies a payment. Midtrans decides only about captured money. If it refuses because the
// money is settled, the owner's word counts.
func (m midtrans) decidePayment(
	ctx context.Context, s PaymentSession, payment string, accept bool,
) (isSettled bool, err error) {
	if !accept {
		return false, m.act(ctx, payment, "deny", nil)
	}

	err = m.act(ctx, payment, "approve", nil)
	if !isRefused(err, GatewayRefused) {
		return false, err
	}
	t, isFound, failed := m.getTransaction(ctx, s, payment)
	if failed == nil && isFound && strings.EqualFold(t.Status, "settlement") {
		return true, nil
	}
	return false, err
}

// verify checks the signature, which is the hex SHA-512 of some fields as they were sent, and of the key. It fixes the
// length of the status code, so that no character can move from one field to the next.
func (m midtrans) verify(_ http.Header, body []byte) (n Notification, err error) {
	var t midtransAnswer
	err = json.Unmarshal(body, &t)
	sum := sha512.Sum512([]byte(t.OrderID + string(t.Code) + string(t.GrossAmount) + m.key.SecretKey))
	signature, _ := hex.DecodeString(t.Signature)
	if err != nil || len(t.Code) != 3 || !hmac.Equal(signature, sum[:]) {
		return n, ErrNotFound
	}

	state := t.state()
	return Notification{
		Reference:    t.OrderID,
		Identifiers:  []string{identifier(t.ID)},
		Payment:      cmp.Or(identifier(t.ID), t.OrderID),
		ReportsMoney: state == Arrived || state == Held,
	}, nil
}
