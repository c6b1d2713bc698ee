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
	"slices"
	"strings"
	"time"
)

// xendit is Xendit (https://docs.xendit.co) with its Payment Sessions. A session has one payment at most,
// which has the session's id in the book. If the answer to a creation was lost, there are two sessions with
// our reference. Remembered names are ps-1 for a session, py-1 and pr-1 for its payment, the path
// refunds/rfd-1 for a refund, and disputes/… for each news of a dispute.
type xendit struct{ gatewayClient }

const xenditHost = "https://api.xendit.co"

func (x xendit) create(ctx context.Context, key GatewayKey, c checkout) (Page, error) {
	expires := max(c.Session.ExpiresAt, x.now().Add(11*time.Minute)) // Xendit refuses what ends within ten minutes.
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
		"allowed_payment_channels": c.channelsOf(2),
	}.filled()

	var a xenditAnswer
	status, err := x.createPage(ctx, key, xenditHost, "/sessions", nil, request, &a)
	if status == http.StatusConflict {
		return Page{}, errTaken
	}
	return Page{a.SessionID, a.URL, expires}, c.scrub(err)
}

// xenditAnswer is a session, a refund, a list of refunds, or why there is none.
type xenditAnswer struct {
	SessionID   string         `json:"payment_session_id"`
	RefundID    string         `json:"refund_id"`
	OldRefundID string         `json:"id"` // in older accounts
	Reference   string         `json:"reference_id"`
	URL         string         `json:"payment_link_url"`
	Status      string         `json:"status"`
	Amount      wholeRupiah    `json:"amount"`
	PaymentID   string         `json:"payment_id"`
	RequestID   string         `json:"payment_request_id"`
	List        []xenditAnswer `json:"data"`
	Code        string         `json:"error_code"`
	Message     string         `json:"message"`
}

func (a *xenditAnswer) refusal() (status int, words string) {
	return 0, strings.TrimSpace(a.Code + " " + a.Message)
}

func (a *xenditAnswer) refund() string { return "refunds/" + cmp.Or(a.RefundID, a.OldRefundID) }

// status asks about every session of our reference that is known, and about the refunds of those that were
// paid. One that cannot be read does not hide the others.
func (x xendit) status(ctx context.Context, key GatewayKey, s PaymentSession) (a Answer, failed error) {
	a.Open = s.GatewayID == "" && x.now() < s.ExpiresAt
	for _, id := range s.xenditSessions() {
		session, status, err := x.call(ctx, key, "GET", "/sessions/"+id)
		switch state := strings.ToUpper(session.Status); {
		case status == http.StatusNotFound && id != s.GatewayID: // A notification named it.
		case err != nil:
			failed = err
		case session.Reference != s.reference() || session.Amount == 0:
			failed = errNotUnderstood
		case state == "ACTIVE":
			a.Open = true
		case state == "COMPLETED":
			returned, err := x.refunded(ctx, key, s, session)
			failed = cmp.Or(err, failed)
			a.Payments = append(a.Payments,
				Payment{ID: id, State: Arrived, Amount: int64(session.Amount), Returned: returned})
			a.Identifiers = append(a.Identifiers, session.PaymentID, session.RequestID)
		case state != "EXPIRED" && state != "CANCELED":
			failed = errNotUnderstood
		}
	}

	a.Closed = !a.Open
	return a, failed
}

// xenditSessions returns the ids of the sessions of a reference.
func (s PaymentSession) xenditSessions() []string {
	ids := slices.DeleteFunc(append([]string{s.GatewayID}, s.Identifiers...), func(name string) bool {
		return name == "" || name != s.GatewayID && !strings.HasPrefix(name, "ps-")
	})
	slices.Sort(ids)
	return slices.Compact(ids)
}

// call asks for something, or does something to it.
func (x xendit) call(
	ctx context.Context, key GatewayKey, method, path string,
) (a xenditAnswer, status int, err error) {
	status, err = x.send(ctx, key, method, xenditHost, path,
		http.Header{"Api-Version": {"2024-11-11"}}, nil, &a) // for the refunds of newer accounts
	return a, status, err
}

// refunded returns how much of a payment was returned: the refunds that Xendit lists (the first page of
// them), and those that notifications have named. In newer accounts a refund has the id of the payment, in
// older ones that of its request.
func (x xendit) refunded(
	ctx context.Context, key GatewayKey, s PaymentSession, session xenditAnswer,
) (sum int64, err error) {
	paths := []string{"refunds?payment_request_id=" + session.RequestID}
	for _, name := range s.Identifiers {
		if strings.HasPrefix(name, "refunds/") {
			paths = append(paths, name)
		}
	}

	counted := map[string]bool{}
	for _, path := range paths {
		answer, err := x.refunds(ctx, key, path)
		if err != nil {
			return 0, err
		}
		for _, refund := range append(answer.List, answer) {
			byPayment := refund.PaymentID != "" && refund.PaymentID == session.PaymentID
			byRequest := refund.RequestID != "" && refund.RequestID == session.RequestID
			isReturned := (byPayment || byRequest) && strings.EqualFold(refund.Status, "SUCCEEDED")
			if id := refund.refund(); isReturned && !counted[id] {
				counted[id] = true
				sum += int64(refund.Amount)
			}
		}
	}
	return sum, nil
}

// refunds asks where newer accounts have their refunds, and then where older ones do. What the account may
// not see counts as none.
func (x xendit) refunds(ctx context.Context, key GatewayKey, path string) (a xenditAnswer, err error) {
	for _, version := range []string{"/v3/", "/"} {
		a, _, err = x.call(ctx, key, "GET", version+path)
		if !isRefused(err, GatewayRefused) {
			return a, err
		}
	}
	return xenditAnswer{}, nil
}

// closePage cancels every session of the reference. Xendit refuses if one is over: the next answer shows
// that.
func (x xendit) closePage(ctx context.Context, key GatewayKey, s PaymentSession) bool {
	closed := true
	for _, id := range s.xenditSessions() {
		_, _, err := x.call(ctx, key, "POST", "/sessions/"+id+"/cancel")
		closed = closed && err == nil
	}
	return closed
}

func (x xendit) decide(context.Context, GatewayKey, string, bool) error { return nil }

// validateXendit refuses what Xendit itself would take: a key of the other mode, because one address serves
// both, and a key without the token that verifies notifications.
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
	Event string `json:"event"`
	Data  struct {
		xenditAnswer
		Data *xenditAnswer `json:"data"` // of some refunds
	} `json:"data"`

	UpdatedAt string `json:"updated_at"`
	PaymentID string `json:"payment_id"`
	Reference string `json:"reference_id"` // ours
	Amount    struct {
		Initial json.RawMessage `json:"initial"`
	} `json:"amount"`
}

// verify compares the token: Xendit signs nothing.
func (x xendit) verify(key GatewayKey, header http.Header, body []byte) (n Notification, err error) {
	token := header.Get("X-Callback-Token")
	var m xenditMessage
	if json.Unmarshal(body, &m) != nil || token == "" || !hmac.Equal([]byte(token), []byte(key.CallbackToken)) {
		return n, ErrNotFound
	}

	about := m.Data.xenditAnswer
	if m.Data.Data != nil {
		about = *m.Data.Data
	}

	switch {
	case strings.HasPrefix(m.Event, "dispute."):
		about.PaymentID = m.PaymentID
		n.Reference = m.Reference
		n.Identifiers = []string{"disputes/" + m.Event + m.UpdatedAt}
		var amount wholeRupiah
		n.Disputed = maxMoney // An amount that cannot be read counts as all that was paid.
		if amount.UnmarshalJSON(m.Amount.Initial) == nil && amount > 0 {
			n.Disputed = int64(amount)
		}
		if m.Event == "dispute.won" {
			n.Disputed = -1
		}
	case strings.HasPrefix(m.Event, "refund."):
		n.Identifiers = []string{about.refund()}
		n.IsRefund = true
	default:
		n.Reference = about.Reference
		n.SessionID = about.SessionID
		n.Identifiers = []string{about.SessionID}
		n.ReportsMoney = m.Event == "payment_session.completed"
	}

	n.Known = []string{about.PaymentID, about.RequestID}
	return n, nil
}
