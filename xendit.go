//go:build cgo

package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// xendit is an account at Xendit (https://docs.xendit.co), with its Payment Sessions.
type xendit struct {
	api     caller
	account GatewayAccount
}

// newXendit returns an account that is asked at api's address, or at Xendit if it has none.
func newXendit(api caller, account GatewayAccount) xendit {
	api.baseURL = cmp.Or(api.baseURL, "https://api.xendit.co")
	return xendit{api, account}
}

// xenditShortest is how long a session lasts at least. Xendit refuses one that ends within ten minutes.
const xenditShortest = 11 * time.Minute

func xenditRequest(c charge, now Time) object {
	items := []object{}
	for _, l := range c.lines() {
		kind := "PHYSICAL_PRODUCT"
		if l.Type == "" {
			kind = "FEE" // also a discount, whose amount is negative: there is no type for it
		}
		items = append(items, object{
			"reference_id":    l.ProductID + l.BundleID,
			"name":            cut(l.Title, 255),
			"type":            kind,
			"category":        "PHYSICAL", // required, of the fee too
			"net_unit_amount": l.UnitPrice,
			"quantity":        l.Quantity,
			"currency":        "IDR",
		})
	}

	request := object{
		"reference_id":       c.reference(),
		"session_type":       "PAY",
		"mode":               "PAYMENT_LINK",
		"amount":             c.Order.Amount,
		"currency":           "IDR",
		"country":            "ID",
		"locale":             "id",
		"description":        c.Order.PaymentReference,
		"customer":           xenditCustomer(c),
		"items":              items,
		"expires_at":         max(c.ExpiresAt, now.Add(xenditShortest)),
		"success_return_url": c.Store.payPage(c.OrderID),
		"cancel_return_url":  c.Store.payPage(c.OrderID),
	}

	channel, ok := channels[c.Order.PaymentMethod]
	if ok {
		request["allowed_payment_channels"] = []string{channel.xendit}
	}
	return request
}

// xenditCustomer describes the buyer. Its reference_id is of letters and digits only.
func xenditCustomer(c charge) object {
	buyer := c.Order.Buyer
	customer := object{
		"reference_id":      strings.ReplaceAll(c.reference(), "-", ""),
		"type":              "INDIVIDUAL",
		"individual_detail": object{"given_names": xenditName(buyer.Name)},
		"mobile_number":     internationalPhone(buyer.Phone),
	}

	email := gatewayEmail(buyer.Email)
	if len(email) <= xenditLongestEmail {
		customer["email"] = email
	}
	maps.DeleteFunc(customer, isEmpty)
	return customer
}

const xenditLongestEmail = 50

// xenditName is a name as Xendit takes it: at most 50 letters, digits and spaces. It refuses an empty name.
func xenditName(name string) string {
	known := func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return ' '
	}
	words := strings.Fields(strings.Map(known, name))
	return cmp.Or(strings.TrimSpace(cut(strings.Join(words, " "), 50)), "Pembeli")
}

// xenditAnswer is a session, a refund or an error, each with its own fields.
type xenditAnswer struct {
	ID          string  `json:"payment_session_id"`
	RefundID    string  `json:"refund_id"`
	OldRefundID string  `json:"id"` // of a refund, in older accounts
	Reference   string  `json:"reference_id"`
	LinkURL     string  `json:"payment_link_url"`
	Status      string  `json:"status"`
	Amount      decimal `json:"amount"`
	PaymentID   string  `json:"payment_id"`
	RequestID   string  `json:"payment_request_id"`
	ErrorCode   string  `json:"error_code"`
	Message     string  `json:"message"`
}

func (a xenditAnswer) refundID() string { return cmp.Or(a.RefundID, a.OldRefundID) }

func (a xenditAnswer) problem() string { return strings.TrimSpace(a.ErrorCode + " " + a.Message) }

// aboutItems matches a message about the items. They are optional.
var aboutItems = regexp.MustCompile(`(?i)items?\b|net_unit_amount`)

// create asks for a session. If Xendit refuses what the buyer typed, it asks once more without that. The same
// holds for a customer of an earlier request, whose answer was lost, and for the items of an order with a discount:
// no page says whether a line may be negative.
func (x xendit) create(ctx context.Context, c charge) (id, pageURL string, err error) {
	request := xenditRequest(c, x.api.now())
	session, status, err := x.createSession(ctx, request)
	if err == nil && session.objectsTo(status, aboutItems) && c.Order.Discount > 0 {
		delete(request, "items")
		session, status, err = x.createSession(ctx, request)
	}
	if err == nil && session.objectsTo(status, aboutBuyer) {
		delete(request, "customer")
		session, status, err = x.createSession(ctx, request)
	}
	if err != nil {
		return "", "", err
	}

	if status == http.StatusConflict || session.ErrorCode == "DUPLICATE_ERROR" {
		return "", "", errTaken
	}
	if status/100 != 2 || session.ID == "" {
		return "", "", refused(status, session.problem(), c.Order.Buyer.typed()...)
	}
	return session.ID, session.LinkURL, checkPageURL(session.LinkURL)
}

// objectsTo reports whether an answer with this status refuses a part of the request.
func (a xenditAnswer) objectsTo(status int, part *regexp.Regexp) bool {
	refused := status == http.StatusBadRequest || status == http.StatusConflict
	return refused && part.MatchString(a.problem())
}

func (x xendit) createSession(ctx context.Context, request object) (a xenditAnswer, status int, err error) {
	status, err = x.api.send(ctx, "POST", "/sessions", nil, request, &a)
	return a, status, err
}

// query asks about the session, and about others of its reference that notifications have named: if the
// answer to its creation was lost, it was created twice. A session has one payment at most.
func (x xendit) query(ctx context.Context, s AskedSession) ([]GatewayAnswer, error) {
	sessions, err := x.querySessions(ctx, s)
	if err != nil {
		return nil, err
	}

	var answers []GatewayAnswer
	active, ended := false, false
	for _, session := range sessions {
		switch strings.ToUpper(session.Status) {
		case "ACTIVE":
			active = true
		case "EXPIRED", "CANCELED":
			ended = true
		case "COMPLETED":
			a, err := x.queryPayment(ctx, s, session)
			if err != nil {
				return nil, err
			}
			answers = append(answers, a)
		default:
			return nil, fmt.Errorf("status %q is not known", cut(session.Status, 50))
		}
	}

	switch {
	case active, len(sessions) == 0: // also if another session of the reference was paid: this one can be, too
		answers = append(answers, GatewayAnswer{State: StateOpen})
	case ended && len(answers) == 0:
		answers = append(answers, GatewayAnswer{State: StateExpired})
	}
	return answers, nil
}

// sessionIDs are the names of a session: the one that its creation was answered with, and those in
// notifications.
func (s AskedSession) sessionIDs() (ids []string) {
	if s.GatewayID != "" {
		ids = append(ids, s.GatewayID)
	}
	for _, id := range s.named(NameSession) {
		if id != s.GatewayID {
			ids = append(ids, id)
		}
	}
	return ids
}

// named are the names of one kind in the notifications about a session, each once.
func (s AskedSession) named(kind NameKind) (names []string) {
	for _, n := range s.Named {
		if n.Kind == kind && !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names
}

// querySessions asks about every session of our reference. A session that only a notification has named may
// be unknown, or another's.
func (x xendit) querySessions(ctx context.Context, s AskedSession) (sessions []xenditAnswer, err error) {
	for _, id := range s.sessionIDs() {
		var session xenditAnswer
		status, err := x.api.send(ctx, "GET", "/sessions/"+url.PathEscape(id), nil, nil, &session)
		if err != nil {
			return nil, err
		}
		if status != http.StatusOK && status != http.StatusNotFound {
			return nil, refused(status, session.problem())
		}

		ours := status == http.StatusOK && session.Reference == s.reference()
		if ours {
			session.ID = id
			sessions = append(sessions, session)
		}
		if !ours && id == s.GatewayID {
			return nil, &outage{status, " and no answer about this session: " + cut(session.ErrorCode, 50)}
		}
	}
	return sessions, nil
}

// queryPayment returns what became of a completed session's payment: how much of it was returned or is
// disputed.
func (x xendit) queryPayment(
	ctx context.Context, s AskedSession, session xenditAnswer,
) (a GatewayAnswer, err error) {
	a.TransactionID = cmp.Or(session.PaymentID, session.RequestID, session.ID)
	a.RequestID = session.RequestID
	a.Amount, err = session.Amount.rupiah()
	if err != nil {
		return a, err
	}

	a.Returned, err = x.refunded(ctx, s, session)
	if err != nil {
		return a, err
	}

	disputes, err := x.disputes(ctx, s, session)
	a.Returned += disputes.lost
	a.Disputed = disputes.open
	a.DisputeKnown = disputes.known
	a.State = a.returnedState()
	return a, err
}

// refunded is the sum of a payment's refunds: those that Xendit lists, and those in notifications.
func (x xendit) refunded(ctx context.Context, s AskedSession, session xenditAnswer) (sum int64, err error) {
	refunds, err := x.listRefunds(ctx, session)
	if err != nil {
		return 0, err
	}

	for _, id := range s.named(NameRefund) {
		listed := func(r xenditAnswer) bool { return r.refundID() == id }
		if slices.ContainsFunc(refunds, listed) {
			continue
		}

		refund, err := x.queryRefund(ctx, id)
		if err != nil {
			return 0, err
		}
		refunds = append(refunds, refund)
	}

	for _, refund := range refunds {
		if !refund.isOf(session) || !strings.EqualFold(refund.Status, "SUCCEEDED") {
			continue
		}
		amount, err := refund.Amount.rupiah()
		if err != nil {
			return 0, err
		}
		sum += amount
	}
	return sum, nil
}

// isOf reports whether a refund is of a session's payment.
func (a xenditAnswer) isOf(session xenditAnswer) bool {
	if a.RequestID != "" && a.RequestID == session.RequestID {
		return true
	}
	return a.PaymentID != "" && a.PaymentID == session.PaymentID
}

// listRefunds returns the refunds that Xendit lists, each once. None are listed if the account cannot list
// them.
func (x xendit) listRefunds(ctx context.Context, session xenditAnswer) (refunds []xenditAnswer, err error) {
	if session.RequestID == "" {
		return nil, nil
	}
	const mostPages = 10
	asked := url.Values{"payment_request_id": {session.RequestID}}

	for range mostPages {
		var page struct {
			Data    []xenditAnswer `json:"data"`
			HasMore bool           `json:"has_more"`
		}
		query := "/refunds?" + asked.Encode()
		status, err := x.askEither(ctx, query, "/v3"+query, &page)
		if err != nil {
			return nil, err
		}
		if status != http.StatusOK {
			return refunds, nil
		}

		for _, refund := range page.Data {
			same := func(r xenditAnswer) bool { return r.refundID() == refund.refundID() }
			if !slices.ContainsFunc(refunds, same) {
				refunds = append(refunds, refund)
			}
		}
		if !page.HasMore || len(page.Data) == 0 {
			return refunds, nil
		}
		asked.Set("after_id", page.Data[len(page.Data)-1].refundID())
	}
	return refunds, nil
}

// queryRefund asks for a refund that a notification has named. It is empty if Xendit does not know it.
func (x xendit) queryRefund(ctx context.Context, id string) (refund xenditAnswer, err error) {
	path := "/refunds/" + url.PathEscape(id)
	status, err := x.askEither(ctx, "/v3"+path, path, &refund)
	if err != nil {
		return refund, err
	}

	if status != http.StatusOK || refund.refundID() != id {
		return xenditAnswer{}, nil
	}
	return refund, nil
}

// askEither asks at the second path if the first is refused: newer accounts have the paths of /v3, older ones
// do not. The status is that of the last answer.
func (x xendit) askEither(ctx context.Context, path, other string, out any) (status int, err error) {
	version := http.Header{"Api-Version": {"2024-11-11"}}
	for _, p := range []string{path, other} {
		status, err = x.api.send(ctx, "GET", p, version, nil, out)
		if status == http.StatusOK || status == 0 || isOutage(status) {
			return status, err
		}
	}
	return status, nil
}

// xenditDispute is a dispute, in its own notification and in the answer to a question.
type xenditDispute struct {
	ID        string `json:"id"`
	PaymentID string `json:"payment_id"`
	Reference string `json:"reference_id"` // our reference of the payment
	Status    string `json:"status"`
	Amount    struct {
		Initial  decimal `json:"initial"`
		Terminal decimal `json:"terminal"` // of an ended dispute, if it is another
	} `json:"amount"`
	ErrorCode string `json:"error_code"`
	Message   string `json:"message"`
}

// xenditDisputes are the disputes of a payment, in rupiah.
type xenditDisputes struct {
	known bool  // there is one, open or over
	lost  int64 // the sum of those that were decided against the store
	open  int64 // the sum of those that are not decided
}

// disputes asks about the disputes that notifications have named.
func (x xendit) disputes(ctx context.Context, s AskedSession, session xenditAnswer) (all xenditDisputes, err error) {
	for _, id := range s.named(NameDispute) {
		var d xenditDispute
		status, err := x.api.send(ctx, "GET", "/v1/disputes/"+url.PathEscape(id), nil, nil, &d)
		if err != nil {
			return all, err
		}
		if status == http.StatusNotFound {
			continue
		}
		if status != http.StatusOK {
			return all, refused(status, d.ErrorCode+" "+d.Message)
		}
		if d.ID != id || !d.isOf(s, session) {
			continue
		}

		amount, err := cmp.Or(d.Amount.Terminal, d.Amount.Initial).rupiah()
		if err != nil {
			return all, err
		}
		all.known = true
		switch strings.ToUpper(d.Status) {
		case "LOST":
			all.lost += amount
		case "ACTION_REQUIRED", "UNDER_REVIEW":
			all.open += amount
		case "WON":
		default:
			return all, fmt.Errorf("status %q of a dispute is not known", cut(d.Status, 50))
		}
	}
	return all, nil
}

// isOf reports whether a dispute is about a session's payment. It may have no payment_id, and then our
// reference.
func (d xenditDispute) isOf(s AskedSession, session xenditAnswer) bool {
	if d.PaymentID == "" {
		return d.Reference == s.reference()
	}
	return d.PaymentID == session.PaymentID
}

// closeSession cancels every session of the reference. Xendit refuses one that is not active; the next question
// shows what became of that.
func (x xendit) closeSession(
	ctx context.Context, s AskedSession, _ []GatewayAnswer,
) (closed bool, err error) {
	closed = true
	for _, id := range s.sessionIDs() {
		canceled, err := x.api.cancel(ctx, "/sessions/"+url.PathEscape(id)+"/cancel")
		if err != nil {
			return false, err
		}
		closed = closed && canceled
	}
	return closed, nil
}

func (x xendit) approve(context.Context, AskedSession, GatewayAnswer) error {
	return errNothingToApprove
}

// xenditClaims are the events of notifications, and what they say has happened.
var xenditClaims = map[string]GatewayState{
	"payment_session.completed":    StateSettled,
	"payment_session.expired":      StateExpired,
	"refund.succeeded":             StatePartlyRefunded,
	"dispute.action_required":      StateDisputed,
	"dispute.under_review":         StateDisputed,
	"dispute.due_date_approaching": StateDisputed,
	"dispute.won":                  StateSettled,
	"dispute.lost":                 StatePartlyRefunded, // or all of it: a dispute may be about a part
}

// xenditMessage is a notification about a session or a refund. The data may be in data of its own.
type xenditMessage struct {
	Event string `json:"event"`
	Data  struct {
		xenditAnswer
		Data *xenditAnswer `json:"data"`
	} `json:"data"`
}

// verify compares the header with the store's callback token. Xendit signs nothing.
func (x xendit) verify(header http.Header, message []byte) (notice, error) {
	token := header.Get("X-Callback-Token")
	if token == "" || !hmac.Equal([]byte(token), []byte(x.account.CallbackToken)) {
		return notice{}, errForged
	}

	var m xenditMessage
	if err := json.Unmarshal(message, &m); err != nil {
		return notice{}, errInvalidJSON
	}
	if strings.HasPrefix(m.Event, "dispute.") {
		return disputeNotice(m.Event, message)
	}

	about := m.Data.xenditAnswer
	if m.Data.Data != nil {
		about = *m.Data.Data
	}
	n := notice{
		transactionID: about.PaymentID,
		requestID:     about.RequestID,
		claim:         xenditClaims[m.Event],
	}

	// A refund's reference is not that of the session.
	if strings.HasPrefix(m.Event, "refund.") {
		n.refundID = about.refundID()
		return n, nil
	}
	n.reference = about.Reference
	n.sessionID = about.ID
	return n, nil
}

// disputeNotice reads a notification about a dispute, which has no data: the dispute is the message.
func disputeNotice(event string, message []byte) (notice, error) {
	var d xenditDispute
	if err := json.Unmarshal(message, &d); err != nil {
		return notice{}, errInvalidJSON
	}
	return notice{
		reference:     d.Reference,
		transactionID: d.PaymentID,
		disputeID:     d.ID,
		claim:         xenditClaims[event],
	}, nil
}
