package main

// This file is Xendit's wire format: payment sessions, their payments, refunds and disputes, and webhooks.

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// xendit is Xendit (https://docs.xendit.co) with its Payment Sessions. A session is a page. The buyer begins a payment
// request there, which has an end of its own. Its payment may arrive after the session has ended, and then only a
// notification names it. If the answer to a creation was lost, two sessions have our reference.
//
// Identifiers are ps-1 for a session, py-1 and pr-1 for a payment and its request, the path refunds/rfd-1 for a refund,
// and disputes/… for each news of a dispute. The book has the payment of a completed session under the session's id,
// unless it already knew the payment's own id.
type xendit struct{ gatewayClient }

const xenditHost = "https://api.xendit.co"

// Xendit refuses sessions that end within ten minutes, or after a time that it does not publish.
const (
	leastAtXendit = 11 * time.Minute
	mostAtXendit  = 24 * time.Hour
)

func (x xendit) create(ctx context.Context, c checkout) (Page, error) {
	now := x.now()
	expires := max(min(c.Session.ExpiresAt, now.Add(mostAtXendit)), now.Add(leastAtXendit))
	buyer := c.Order.Buyer

	// Xendit takes names of 1 to 50 letters, digits and spaces, and e-mail addresses of at most 50
	// characters.
	name := fmt.Sprintf("%.50s", strings.Join(strings.FieldsFunc(buyer.Name, isMark), " "))
	email := buyer.Email
	if len(email) > 50 {
		email = ""
	}

	var items []jsonObject
	for _, l := range c.lines() {
		items = append(items, jsonObject{
			"reference_id":    l.ID,
			"name":            l.Name,
			"type":            l.kind,
			"category":        "PHYSICAL", // required, for a fee too
			"net_unit_amount": l.Price,
			"quantity":        l.Quantity,
			"currency":        "IDR",
		})
	}

	request := jsonObject{
		"reference_id": c.Session.reference(),
		"session_type": "PAY",
		"mode":         "PAYMENT_LINK",
		"amount":       c.Session.Asked,
		"currency":     "IDR",
		"country":      "ID",
		"locale":       "id",
		"description":  c.Order.PaymentReference,
		"customer": jsonObject{
			"reference_id":      rand.Text(), // letters and digits, never used before
			"type":              "INDIVIDUAL",
			"individual_detail": jsonObject{"given_names": cmp.Or(name, "Pembeli")},
			"mobile_number":     internationalPhone(buyer.Phone),
			"email":             email,
		}.filled(),
		"items":                    items,
		"expires_at":               expires,
		"success_return_url":       c.returnURL(),
		"cancel_return_url":        c.returnURL(),
		"allowed_payment_channels": c.channels,
	}.filled()

	var a xenditAnswer
	call := gatewayCall{method: "POST", host: xenditHost, path: "/sessions"}
	err := x.createPage(ctx, call, request, &a, func() bool {
		if a.refusesEnd() && request["expires_at"] != nil {
			delete(request, "expires_at") // Then Xendit chooses the end.
			return true
		}
		return request.dropOptional()
	})
	if request["expires_at"] == nil && err == nil {
		ends, _ := parseTime(a.ExpiresAt, false)
		expires = cmp.Or(ends, now.Add(defaultAtXendit))
	}
	return Page{identifier(a.SessionID), a.URL, expires}, c.scrub(err)
}

// defaultAtXendit is how long a session without an expires_at lasts.
const defaultAtXendit = 30 * time.Minute

// xenditAnswer is a session, a payment, a refund, a list of refunds, or an error.
type xenditAnswer struct {
	SessionID     string      `json:"payment_session_id"`
	RefundID      string      `json:"refund_id"`
	OldRefundID   string      `json:"id"` // in older accounts
	Reference     string      `json:"reference_id"`
	URL           string      `json:"payment_link_url"`
	Status        string      `json:"status"`
	Currency      string      `json:"currency"`
	Amount        wholeRupiah `json:"amount"`
	RequestAmount wholeRupiah `json:"request_amount"` // of a payment
	Captures      ifRead[[]struct {
		Amount wholeRupiah `json:"capture_amount"`
	}] `json:"captures"`
	ExpiresAt string         `json:"expires_at"`
	PaymentID string         `json:"payment_id"`
	RequestID string         `json:"payment_request_id"`
	List      []xenditAnswer `json:"data"`
	Code      string         `json:"error_code"`
	Message   string         `json:"message"`
}

func (a *xenditAnswer) refusal() (status int, words string) {
	return 0, strings.TrimSpace(a.Code + " " + a.Message)
}

// refusesEnd reports whether a session is refused because of when it would end.
func (a *xenditAnswer) refusesEnd() bool {
	return a.Code == "INVALID_EXPIRY_DATE" || strings.Contains(a.Message, "expires_at")
}

// refund returns the identifier of a refund, "" if identifier refuses it.
func (a *xenditAnswer) refund() string {
	id := identifier(cmp.Or(a.RefundID, a.OldRefundID))
	if id == "" {
		return ""
	}
	return "refunds/" + id
}

// status asks about all known sessions of our reference, about payments that none of them has, and about refunds. An
// answer that cannot be read does not hide the others.
func (x xendit) status(ctx context.Context, s PaymentSession) (a Answer, failed error) {
	a.Open = s.GatewayID == "" && x.now() < s.ExpiresAt
	named := map[string]bool{} // the payments that sessions name
	for _, id := range s.xenditSessions() {
		err := x.addPaymentOfSession(ctx, s, &a, id, named)
		failed = cmp.Or(err, failed)
	}
	isSessionUnread := failed != nil // It may name a payment, which would be counted twice.
	for _, id := range s.Identifiers {
		isLate := strings.HasPrefix(id, "py-") && !named[id] && !s.staysDenied(id)
		if isLate && (!isSessionUnread || s.hasPayment(id)) {
			err := x.addLatePayment(ctx, s, &a, id)
			failed = cmp.Or(err, failed)
		}
	}
	a.Closed = !a.Open
	return a, failed
}

// addPaymentOfSession asks about a session, and adds the payment that completed it.
func (x xendit) addPaymentOfSession(
	ctx context.Context, s PaymentSession, a *Answer, id string, named map[string]bool,
) error {
	session, status, err := x.callAPI(ctx, "GET", "/sessions/"+url.PathEscape(id))
	if status == http.StatusNotFound && id != s.GatewayID {
		return nil // A notification named it.
	}
	if err != nil {
		return err
	}
	if session.Reference != s.reference() || session.Amount == 0 || !isRupiah(session.Currency) {
		return errNotUnderstood
	}

	switch strings.ToUpper(session.Status) {
	case "ACTIVE", "PENDING":
		a.Open = true
	case "COMPLETED":
		named[session.PaymentID] = true
		p := Payment{ID: id, State: Arrived, Amount: int64(session.Amount)}
		if s.hasPayment(session.PaymentID) {
			p.ID = session.PaymentID
		}
		return x.addPayment(ctx, s, a, p, session)
	case "EXPIRED", "CANCELED":
	default:
		return errNotUnderstood
	}
	return nil
}

// xenditStates are the meanings of a payment's status.
var xenditStates = map[string]PaymentState{
	"SUCCEEDED":  Arrived,
	"PENDING":    Open,
	"AUTHORIZED": Open,
	"FAILED":     Denied,
	"CANCELED":   Denied,
	"EXPIRED":    ExpiredPayment,
}

// addLatePayment asks about a payment that a notification named and no session has. It is ours if it has our reference
// or a known request. If the account may not see it, or Xendit does not know it, that is a failure only if it was
// reported as arrived.
func (x xendit) addLatePayment(ctx context.Context, s PaymentSession, a *Answer, id string) error {
	payment, _, err := x.callAPI(ctx, "GET", "/v3/payments/"+url.PathEscape(id))
	if err != nil {
		if isRefused(err, GatewayRefused) && id != s.Unconfirmed {
			return nil
		}
		return err
	}

	isOurs := payment.Reference == s.reference() || slices.Contains(s.Identifiers, cmp.Or(payment.RequestID, "none"))
	if !isOurs {
		return nil
	}
	amount := wholeRupiah(0)
	for _, capture := range payment.Captures.value {
		amount += capture.Amount
	}
	p := Payment{
		ID:     id,
		State:  xenditStates[strings.ToUpper(payment.Status)],
		Amount: int64(cmp.Or(amount, payment.RequestAmount)),
	}
	if p.State == "" || p.State == Arrived && p.Amount == 0 || !isRupiah(payment.Currency) {
		return errNotUnderstood
	}
	payment.PaymentID = id
	return x.addPayment(ctx, s, a, p, payment)
}

// addPayment adds a payment to an answer, with the amount that was returned. about has its identifiers.
func (x xendit) addPayment(
	ctx context.Context, s PaymentSession, a *Answer, p Payment, about xenditAnswer,
) (err error) {
	payment := identifier(about.PaymentID)
	request := identifier(about.RequestID)
	if p.State == Arrived {
		p.Returned, err = x.refunded(ctx, s, payment, request)
	}
	a.add(s, p, payment, request, identifier(about.SessionID), s.reference())
	a.Identifiers = append(a.Identifiers, payment, request)
	return err
}

// xenditSessions returns the ids of the sessions of a reference.
func (s PaymentSession) xenditSessions() []string {
	ids := slices.DeleteFunc(append([]string{s.GatewayID}, s.Identifiers...), func(name string) bool {
		return name == "" || name != s.GatewayID && !strings.HasPrefix(name, "ps-")
	})
	slices.Sort(ids)
	return slices.Compact(ids)
}

// callAPI asks for something, or does something to it.
func (x xendit) callAPI(ctx context.Context, method, path string) (a xenditAnswer, status int, err error) {
	header := http.Header{"Api-Version": {"2024-11-11"}} // for the refunds of newer accounts
	call := gatewayCall{method: method, host: xenditHost, path: path, header: header}
	status, err = x.requestJSON(ctx, call, &a)
	return a, status, err
}

// refunded returns how much of a payment was returned: the refunds that Xendit lists (the first page of
// them), and those that notifications have named. In newer accounts a refund has the id of the payment, in
// older ones that of its request.
func (x xendit) refunded(ctx context.Context, s PaymentSession, payment, request string) (sum int64, err error) {
	paths := []string{"refunds?payment_request_id=" + url.QueryEscape(request)}
	for _, id := range s.Identifiers {
		if strings.HasPrefix(id, "refunds/") {
			paths = append(paths, "refunds/"+url.PathEscape(strings.TrimPrefix(id, "refunds/")))
		}
	}

	counted := map[string]bool{}
	for _, path := range paths {
		answer, err := x.refunds(ctx, path)
		if err != nil {
			return 0, err
		}
		for _, refund := range append(answer.List, answer) {
			byPayment := refund.PaymentID != "" && refund.PaymentID == payment
			byRequest := refund.RequestID != "" && refund.RequestID == request
			isReturned := (byPayment || byRequest) && strings.EqualFold(refund.Status, "SUCCEEDED")
			if id := refund.refund(); isReturned && !counted[id] {
				counted[id] = true
				sum += int64(refund.Amount)
			}
		}
	}
	return sum, nil
}

// refunds asks where newer accounts have their refunds, and then where older ones do. Refunds that the account may not
// see count as none.
func (x xendit) refunds(ctx context.Context, path string) (a xenditAnswer, err error) {
	for _, version := range []string{"/v3/", "/"} {
		a, _, err = x.callAPI(ctx, "GET", version+path)
		if !isRefused(err, GatewayRefused) {
			return a, err
		}
	}
	return xenditAnswer{}, nil
}

// closePage cancels every session of the reference, and the payment requests that are known. Xendit refuses if a
// session has ended, which the next answer shows. Its answer about a request does not matter, because only a payment
// would show that the request is still open.
func (x xendit) closePage(ctx context.Context, s PaymentSession) bool {
	closed := true
	for _, id := range s.xenditSessions() {
		_, _, err := x.callAPI(ctx, "POST", "/sessions/"+url.PathEscape(id)+"/cancel")
		closed = closed && err == nil
	}
	for _, id := range s.Identifiers {
		if strings.HasPrefix(id, "pr-") {
			x.callAPI(ctx, "POST", "/v3/payment_requests/"+url.PathEscape(id)+"/cancel")
		}
	}
	return closed
}

func (x xendit) decidePayment(context.Context, PaymentSession, string, bool) (bool, error) {
	return false, nil
}

// validateXendit refuses a key that Xendit itself would accept: a key of the other mode, because one address serves
// both, or a key without the token that verifies notifications.
func (k GatewayKey) validateXendit() error {
	switch {
	case k.Provider != Xendit:
	case strings.HasPrefix(k.SecretKey, "xnd_development_") != (k.Mode == ModeSandbox):
		return refuse(ValidationFailed).add("secret_key", "must be a key of the mode %s", k.Mode)
	case k.CallbackToken == "":
		return refuse(ValidationFailed).add("callback_token",
			"is needed with xendit: gateway set reads it from the second line of stdin")
	}
	return nil
}

// xenditMessage is a notification. A dispute has no data: it is the message.
type xenditMessage struct {
	Event   string `json:"event"`
	Created string `json:"created"`
	Data    struct {
		xenditAnswer
		Data *xenditAnswer `json:"data"` // of some refunds
	} `json:"data"`

	UpdatedAt string `json:"updated_at"`
	PaymentID string `json:"payment_id"`
	Reference string `json:"reference_id"` // ours
	Currency  string `json:"currency"`
	Amount    struct {
		Initial json.RawMessage `json:"initial"`
	} `json:"amount"`
}

// verify compares the token, because Xendit signs nothing.
func (x xendit) verify(header http.Header, body []byte) (n Notification, err error) {
	token := header.Get("X-Callback-Token")
	var m xenditMessage
	if json.Unmarshal(body, &m) != nil || token == "" || !hmac.Equal([]byte(token), []byte(x.key.CallbackToken)) {
		return n, ErrNotFound
	}

	about := m.Data.xenditAnswer
	if m.Data.Data != nil {
		about = *m.Data.Data
	}
	payment := identifier(about.PaymentID)
	n.Known = []string{payment, identifier(about.RequestID)}

	switch {
	case strings.HasPrefix(m.Event, "dispute."):
		return m.dispute(), nil
	case strings.HasPrefix(m.Event, "refund."):
		n.Identifiers = []string{about.refund()}
		n.RefundedAt, _ = parseTime(m.Created, false) // 0 = it is not known, so it is an old one
	case strings.HasPrefix(m.Event, "payment."): // of a payment that was made on a session's page
		n.Reference = about.Reference
		n.Identifiers = n.Known
		n.Payment = cmp.Or(payment, n.Reference)
		n.ReportsMoney = m.Event == "payment.capture"
	default:
		n.Reference = about.Reference
		n.SessionID = identifier(about.SessionID)
		n.Identifiers = []string{n.SessionID}
		n.Payment = cmp.Or(n.SessionID, n.Reference)
		n.ReportsMoney = m.Event == "payment_session.completed"
	}
	return n, nil
}

// dispute reads a message about a dispute. If the amount cannot be read, or is in another currency, all that was paid
// counts as disputed.
func (m xenditMessage) dispute() (n Notification) {
	n.Reference = m.Reference
	n.Known = []string{identifier(m.PaymentID)}
	n.Identifiers = []string{fmt.Sprintf("disputes/%.64s", oddInIdentifier.ReplaceAllString(m.Event+m.UpdatedAt, "_"))}

	n.Disputed = maxMoney
	var amount wholeRupiah
	if amount.UnmarshalJSON(m.Amount.Initial) == nil && amount > 0 && isRupiah(m.Currency) {
		n.Disputed = int64(amount)
	}
	if m.Event == "dispute.won" {
		n.Disputed = -1
	}
	return n
}
