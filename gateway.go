//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// gateway is one store's account at a payment provider. Manual payment has none.
type gateway interface {
	// create creates a session and returns the gateway's name of it and the address of its page. errTaken
	// means that the gateway has a session of this reference already.
	create(ctx context.Context, c charge) (id, pageURL string, err error)

	// queryState asks for the state of a session. message is the notification that led to the question, or
	// nil.
	queryState(ctx context.Context, s SessionWithOrder, message []byte) (GatewayAnswer, error)

	// closeSession ends a session, so that it cannot be paid any more. Nothing to end is no error.
	closeSession(ctx context.Context, s PaymentSession) error

	// verify returns which session a notification is about, or errForged.
	verify(header http.Header, message []byte) (sessionName, error)
}

var (
	errTaken  = errors.New("the gateway has a session of this name already")
	errForged = &APIError{Code: codeUnauthorized, Message: "The notification's signature is wrong."}
)

// charge is what a buyer is asked to pay.
type charge struct {
	PaymentSession
	Store Store
	Order Order
}

// lines are the items that are charged and sum to the order's amount: the fee is a line of its own, and free
// items are left out.
func (c charge) lines() []Item {
	fee := Item{
		ProductID: "fee",
		Title:     "Biaya layanan",
		UnitPrice: c.Order.Amount - c.Order.Subtotal,
		Quantity:  1,
	}

	lines := append(slices.Clone(c.Order.Items), fee)
	free := func(i Item) bool { return i.UnitPrice == 0 }
	return slices.DeleteFunc(lines, free)
}

// sessionName is how a notification names its session: by our reference, or by a payment of it. All of it is
// empty if the notification is about nothing of ours.
type sessionName struct {
	reference     string
	transactionID string
	requestID     string
}

// channels are the codes of payment methods that restrict a gateway's page to one way to pay, with the
// gateways' names of it.
var channels = map[string]struct{ midtrans, xendit string }{
	"va_bca":     {"bca_va", "BCA_VIRTUAL_ACCOUNT"},
	"va_bni":     {"bni_va", "BNI_VIRTUAL_ACCOUNT"},
	"va_bri":     {"bri_va", "BRI_VIRTUAL_ACCOUNT"},
	"va_permata": {"permata_va", "PERMATA_VIRTUAL_ACCOUNT"},
	"va_mandiri": {"echannel", "MANDIRI_VIRTUAL_ACCOUNT"},
	"qris":       {"other_qris", "QRIS"},
	"gopay":      {"gopay", "GOPAY"},
	"shopeepay":  {"shopeepay", "SHOPEEPAY"},
	"dana":       {"dana", "DANA"},
	"ovo":        {"ovo", "OVO"},
	"card":       {"credit_card", "CARDS"},
	"alfamart":   {"alfamart", "ALFAMART"},
	"indomaret":  {"indomaret", "INDOMARET"},
}

// caller sends the requests of one account to a gateway's API.
type caller struct {
	client  *http.Client
	baseURL string // scheme and host
	key     string // the user of Basic authentication; the password is empty
}

// cancel posts a request to cancel something. A refusal is no error: the next question shows what became of
// it.
func (c caller) cancel(ctx context.Context, path string) error {
	status, err := c.send(ctx, "POST", path, nil, nil, new(any)) // The answer is not needed.
	if status >= 500 || status == http.StatusTooManyRequests {
		return fmt.Errorf("status %d on closing a session", status)
	}
	if status != 0 {
		return nil
	}
	return err
}

// send sends in as JSON, unless it is nil, and reads the answer's JSON into out, whatever its status. The
// status is 0 if there was no answer.
func (c caller) send(
	ctx context.Context, method, path string, header http.Header, in, out any,
) (status int, err error) {
	var body io.Reader
	if in != nil {
		body = bytes.NewReader(mustJSON(in))
	}
	req, err := http.NewRequestWithContext(ctx, method, c.baseURL+path, body)
	if err != nil {
		return 0, err
	}

	maps.Copy(req.Header, header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(c.key, "")

	resp, err := c.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()

	const most = 1 << 20 // bytes of an answer
	answer, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return resp.StatusCode, err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return resp.StatusCode, fmt.Errorf("status %d and no JSON that is understood", resp.StatusCode)
	}
	return resp.StatusCode, nil
}

// checkPageURL refuses a text that is not the address of a page that a buyer can be sent to.
func checkPageURL(text string) error {
	if !isAddress(text) {
		return errors.New("the answer has no address of a payment page")
	}
	return nil
}

// parseRupiah reads an amount such as 150000 or 150000.00.
func parseRupiah(text string) (int64, error) {
	whole, fraction, _ := strings.Cut(text, ".")

	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || strings.Trim(fraction, "0") != "" {
		return 0, fmt.Errorf("the amount %q is no whole rupiah", text)
	}
	return n, nil
}

// midtrans is an account at Midtrans (https://docs.midtrans.com). Its Snap API has the pages that buyers pay
// at, its Core API the transactions that begin there.
type midtrans struct {
	snap      caller
	core      caller
	account   GatewayAccount
	notifyURL string // where notifications go
}

// newMidtrans returns an account that is asked at api's address, or at Midtrans if it has none.
func newMidtrans(api caller, account GatewayAccount, notifyURL string) midtrans {
	domain := "midtrans.com"
	if account.Mode == ModeSandbox {
		domain = "sandbox.midtrans.com"
	}

	snap, core := api, api
	snap.baseURL = cmp.Or(api.baseURL, "https://app."+domain)
	core.baseURL = cmp.Or(api.baseURL, "https://api."+domain)
	return midtrans{
		snap:      snap,
		core:      core,
		account:   account,
		notifyURL: notifyURL,
	}
}

// midtransLongestName is what a virtual account of BCA takes, and a buyer may choose one on every page.
const midtransLongestName = 30

// midtransRequest asks for a page that ends when the order does, to the minute.
func midtransRequest(c charge) object {
	buyer := c.Order.Buyer
	customer := object{
		"first_name": cut(buyer.Name, midtransLongestName),
		"email":      gatewayEmail(buyer.Email),
		"phone":      internationalPhone(buyer.Phone),
	}
	maps.DeleteFunc(customer, isEmpty)

	items := []object{}
	for _, l := range c.lines() {
		items = append(items, object{
			"id":       l.ProductID + l.BundleID,
			"name":     cut(l.Title, 50),
			"price":    l.UnitPrice,
			"quantity": l.Quantity,
		})
	}

	now := time.Now()
	payPage := c.Store.payPage(c.OrderID)
	request := object{
		"transaction_details": object{
			"order_id":     c.reference(),
			"gross_amount": c.Order.Amount,
		},
		"item_details":     items,
		"customer_details": customer,
		"credit_card":      object{"secure": true},   // 3-D Secure, which is off otherwise
		"custom_field1":    c.Order.PaymentReference, // to find the payment in Midtrans's own list
		"callbacks": object{
			"finish": payPage,
			"error":  payPage,
		},
		"expiry": object{
			"start_time": now.In(wib).Format("2006-01-02 15:04:05 -0700"),
			"unit":       "minute",
			"duration":   max(1, int64(c.ExpiresAt.Time().Sub(now).Minutes())),
		},
	}

	channel, ok := channels[c.Order.PaymentMethod]
	if ok {
		request["enabled_payments"] = []string{channel.midtrans}
	}
	return request
}

// isEmpty reports whether a field is an empty text, which is not sent.
func isEmpty(_ string, value any) bool { return value == "" }

// create asks for a page. The answer is 201 with its token and address, or has error_messages.
func (m midtrans) create(ctx context.Context, c charge) (id, pageURL string, err error) {
	var answer struct {
		Token         string   `json:"token"`
		RedirectURL   string   `json:"redirect_url"`
		ErrorMessages []string `json:"error_messages"`
	}

	// With this header the address in the gateway's own settings cannot be wrong.
	header := http.Header{"X-Override-Notification": {m.notifyURL}}
	status, err := m.snap.send(ctx, "POST", "/snap/v1/transactions", header, midtransRequest(c), &answer)
	if err != nil {
		return "", "", err
	}

	problem := strings.Join(answer.ErrorMessages, "; ")
	if strings.Contains(problem, "has already been taken") || strings.Contains(problem, "sudah digunakan") {
		return "", "", errTaken
	}
	if status != http.StatusCreated || answer.Token == "" {
		return "", "", fmt.Errorf("status %d: %s", status, cut(problem, 200))
	}
	return answer.Token, answer.RedirectURL, checkPageURL(answer.RedirectURL)
}

// midtransStatus is a transaction, in a notification and in the answer to a question.
type midtransStatus struct {
	OrderID           string `json:"order_id"`      // our reference
	StatusCode        string `json:"status_code"`   // like an HTTP status
	GrossAmount       string `json:"gross_amount"`  // such as 150000.00
	SignatureKey      string `json:"signature_key"` // of a notification
	TransactionStatus string `json:"transaction_status"`
	TransactionID     string `json:"transaction_id"`
	FraudStatus       string `json:"fraud_status"`
	RefundAmount      string `json:"refund_amount"`
}

// midtransStates are the meanings of transaction_status. The fraud_status of a payment may change its meaning.
var midtransStates = map[string]GatewayState{
	"pending":            StateOpen,
	"settlement":         StateSettled,
	"capture":            StateSettled,
	"authorize":          StateChallenged,
	"deny":               StateDenied,
	"failure":            StateDenied,
	"cancel":             StateCanceled,
	"expire":             StateExpired,
	"refund":             StateRefunded,
	"chargeback":         StateRefunded,
	"partial_refund":     StatePartlyRefunded,
	"partial_chargeback": StatePartlyRefunded,
}

// state returns the meaning of transaction_status and fraud_status, which may come in any case.
func (t midtransStatus) state() (GatewayState, error) {
	status := strings.ToLower(t.TransactionStatus)
	if status == "capture" || status == "settlement" {
		switch strings.ToLower(t.FraudStatus) {
		case "challenge":
			return StateChallenged, nil
		case "deny":
			return StateDenied, nil
		}
	}

	state, ok := midtransStates[status]
	if !ok {
		return "", fmt.Errorf("transaction_status %q is not known", cut(status, 50))
	}
	return state, nil
}

// queryState asks for the transaction. The answer is 404 until the buyer has chosen how to pay.
func (m midtrans) queryState(ctx context.Context, s SessionWithOrder, _ []byte) (a GatewayAnswer, err error) {
	var t midtransStatus
	status, err := m.core.send(ctx, "GET", "/v2/"+s.reference()+"/status", nil, nil, &t)
	if err != nil {
		return a, err
	}

	notFound := status == http.StatusNotFound || t.StatusCode == "404"
	if notFound && t.TransactionStatus == "" {
		return GatewayAnswer{State: StateOpen}, nil
	}
	if t.OrderID != s.reference() {
		return a, fmt.Errorf("status %d and no answer about %s", status, s.reference())
	}

	a.TransactionID = t.TransactionID
	a.State, err = t.state()
	if err != nil {
		return a, err
	}

	amount := t.GrossAmount
	if a.State == StatePartlyRefunded {
		amount = cmp.Or(t.RefundAmount, amount)
	}
	a.Amount, err = parseRupiah(amount)
	return a, err
}

// closeSession closes the page, so that no transaction can begin there, and then cancels one that has begun.
func (m midtrans) closeSession(ctx context.Context, s PaymentSession) error {
	err := m.snap.cancel(ctx, "/snap/v1/transactions/"+url.PathEscape(s.GatewayID)+"/cancel")
	if err != nil {
		return err
	}
	return m.core.cancel(ctx, "/v2/"+s.reference()+"/cancel")
}

// verify checks the signature: the hex SHA-512 of some of the fields, as they were sent, and the secret key.
func (m midtrans) verify(_ http.Header, message []byte) (sessionName, error) {
	var t midtransStatus
	err := json.Unmarshal(message, &t)

	sum := sha512.Sum512([]byte(t.OrderID + t.StatusCode + t.GrossAmount + m.account.SecretKey))
	want := []byte(hex.EncodeToString(sum[:]))
	if err != nil || !hmac.Equal([]byte(strings.ToLower(t.SignatureKey)), want) {
		return sessionName{}, errForged
	}
	return sessionName{reference: t.OrderID}, nil
}

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

func xenditRequest(c charge) object {
	buyer := c.Order.Buyer
	customer := object{
		"reference_id":      c.reference(),
		"type":              "INDIVIDUAL",
		"individual_detail": object{"given_names": xenditName(buyer.Name)},
		"mobile_number":     internationalPhone(buyer.Phone),
	}
	email := gatewayEmail(buyer.Email)
	if len(email) <= xenditLongestEmail {
		customer["email"] = email
	}
	maps.DeleteFunc(customer, isEmpty)

	items := []object{}
	for _, l := range c.lines() {
		kind := "PHYSICAL_PRODUCT"
		if l.ProductID == "fee" {
			kind = "FEE"
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
		"customer":           customer,
		"items":              items,
		"expires_at":         max(c.ExpiresAt, timeOf(time.Now().Add(xenditShortest))),
		"success_return_url": c.Store.payPage(c.OrderID),
		"cancel_return_url":  c.Store.payPage(c.OrderID),
	}

	channel, ok := channels[c.Order.PaymentMethod]
	if ok {
		request["allowed_payment_channels"] = []string{channel.xendit}
	}
	return request
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

// gatewayEmail returns an e-mail that both gateways take, an ASCII address with a dot in its domain. Any other is
// left out (empty): an order must not become unpayable because of it.
func gatewayEmail(email string) string {
	_, domain, _ := strings.Cut(email, "@")
	notASCII := func(r rune) bool { return r > unicode.MaxASCII }
	if strings.ContainsFunc(email, notASCII) || !strings.Contains(domain, ".") {
		return ""
	}
	return email
}

// internationalPhone writes a number that phonePattern allows as E.164. The result is empty if it is neither
// an Indonesian nor an international number.
func internationalPhone(text string) string {
	digits := phoneMarks.Replace(text)
	switch {
	case strings.HasPrefix(digits, "0"):
		digits = "62" + digits[1:]
	case !strings.HasPrefix(text, "+") && !strings.HasPrefix(digits, "62"):
		return ""
	}

	if len(digits) < 8 || len(digits) > 15 {
		return ""
	}
	return "+" + digits
}

// xenditAnswer is a session, a refund or an error, each with its own fields.
type xenditAnswer struct {
	ID        string      `json:"payment_session_id"`
	RefundID  string      `json:"id"`
	Reference string      `json:"reference_id"`
	LinkURL   string      `json:"payment_link_url"`
	Status    string      `json:"status"`
	Amount    json.Number `json:"amount"`
	PaymentID string      `json:"payment_id"`
	RequestID string      `json:"payment_request_id"`
	ErrorCode string      `json:"error_code"`
	Message   string      `json:"message"`
}

// create asks for a session. The answer is a session, or has an error_code.
func (x xendit) create(ctx context.Context, c charge) (id, pageURL string, err error) {
	var answer xenditAnswer
	status, err := x.api.send(ctx, "POST", "/sessions", nil, xenditRequest(c), &answer)
	if err != nil {
		return "", "", err
	}

	if status == http.StatusConflict || answer.ErrorCode == "DUPLICATE_ERROR" {
		return "", "", errTaken
	}
	if status/100 != 2 || answer.ID == "" {
		problem := answer.ErrorCode + " " + answer.Message
		return "", "", fmt.Errorf("status %d: %s", status, cut(problem, 200))
	}
	return answer.ID, answer.LinkURL, checkPageURL(answer.LinkURL)
}

// xenditMessage is a notification. The data of xenditRefunded is a refund; any other's is a session.
type xenditMessage struct {
	Event string       `json:"event"`
	Data  xenditAnswer `json:"data"`
}

const xenditRefunded = "refund.succeeded"

// queryState asks for the session, or for the refund if the message is about one.
func (x xendit) queryState(
	ctx context.Context, s SessionWithOrder, message []byte,
) (a GatewayAnswer, err error) {
	var m xenditMessage
	json.Unmarshal(message, &m) // A message was read before, by verify. Without one, m stays empty.
	if m.Event == xenditRefunded {
		return x.queryRefund(ctx, s, m.Data)
	}

	// If the answer to the session's creation was lost, only a notification names it.
	id := cmp.Or(s.GatewayID, m.Data.ID)
	if id == "" {
		return GatewayAnswer{State: StateOpen}, nil
	}

	var session xenditAnswer
	status, err := x.api.send(ctx, "GET", "/sessions/"+url.PathEscape(id), nil, nil, &session)
	if err != nil {
		return a, err
	}
	if status != http.StatusOK || session.Reference != s.reference() {
		return a, fmt.Errorf("status %d and no answer about %s: %s",
			status, s.reference(), cut(session.ErrorCode, 50))
	}

	a.TransactionID = session.PaymentID
	a.RequestID = session.RequestID
	switch strings.ToUpper(session.Status) {
	case "ACTIVE":
		a.State = StateOpen
	case "COMPLETED":
		a.State = StateSettled
		a.Amount, err = parseRupiah(session.Amount.String())
	case "EXPIRED", "CANCELED":
		a.State = StateExpired
	default:
		err = fmt.Errorf("status %q is not known", cut(session.Status, 50))
	}
	return a, err
}

// queryRefund asks for a refund that a notification named. It has to be of the payment that the notification
// named, because the session was found by that payment.
func (x xendit) queryRefund(
	ctx context.Context, s SessionWithOrder, named xenditAnswer,
) (a GatewayAnswer, err error) {
	var refund xenditAnswer
	status, err := x.api.send(ctx, "GET", "/refunds/"+url.PathEscape(named.RefundID), nil, nil, &refund)
	if err != nil {
		return a, err
	}

	id := cut(named.RefundID, 60)
	if status != http.StatusOK || !strings.EqualFold(refund.Status, "SUCCEEDED") {
		return a, fmt.Errorf("status %d: refund %s is %q", status, id, cut(refund.Status, 50))
	}

	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	if differ(refund.PaymentID, named.PaymentID) || differ(refund.RequestID, named.RequestID) {
		return a, fmt.Errorf("refund %s is of another payment than its message says", id)
	}

	a.RefundID = named.RefundID
	a.Amount, err = parseRupiah(refund.Amount.String())
	a.State = StatePartlyRefunded
	if a.Amount >= s.OrderAmount {
		a.State = StateRefunded
	}
	return a, err
}

func (x xendit) closeSession(ctx context.Context, s PaymentSession) error {
	return x.api.cancel(ctx, "/sessions/"+url.PathEscape(s.GatewayID)+"/cancel")
}

// verify compares the header with the store's callback token. Xendit signs nothing.
func (x xendit) verify(header http.Header, message []byte) (sessionName, error) {
	token := header.Get("X-Callback-Token")
	if token == "" || !hmac.Equal([]byte(token), []byte(x.account.CallbackToken)) {
		return sessionName{}, errForged
	}

	var m xenditMessage
	if err := json.Unmarshal(message, &m); err != nil {
		return sessionName{}, errInvalidJSON
	}
	if m.Event == xenditRefunded {
		return sessionName{transactionID: m.Data.PaymentID, requestID: m.Data.RequestID}, nil
	}
	return sessionName{reference: m.Data.Reference}, nil
}

// sandbox is the built-in gateway: its memory is a table of our database, and its notifications come to us
// without a network.
type sandbox struct {
	payments *payments
}

func (b sandbox) create(_ context.Context, c charge) (id, pageURL string, err error) {
	offered, err := b.payments.db.SandboxOffered(c.Store.ID)
	if err != nil {
		return "", "", err
	}

	if !offered {
		return "", "", errors.New("a store whose gateway is live has no sandbox")
	}
	return c.ID, c.Store.URL + "/sandbox/" + c.ID, nil
}

func (b sandbox) queryState(_ context.Context, s SessionWithOrder, _ []byte) (GatewayAnswer, error) {
	return b.payments.db.Sandbox(s.ID)
}

func (b sandbox) closeSession(ctx context.Context, s PaymentSession) error {
	a, err := b.payments.db.Sandbox(s.ID)
	if err != nil || a.State != StateOpen {
		return err
	}

	return b.payments.db.SetSandbox(ctx, s.ID, GatewayAnswer{State: StateExpired})
}

// verify checks the signature, which is that of our own webhooks.
func (b sandbox) verify(header http.Header, message []byte) (sessionName, error) {
	signature := header.Get("X-Service-Signature")
	if !verifySignature(b.payments.sandboxKey, signature, message, time.Now()) {
		return sessionName{}, errForged
	}

	var n struct {
		Reference string `json:"reference"`
	}
	json.Unmarshal(message, &n) // It is JSON that act wrote: its signature says so.
	return sessionName{reference: n.Reference}, nil
}

// act does what a button of the sandbox's page says: the gateway's answer changes, and its notification comes
// like that of a real gateway, as many times as copies says.
func (b sandbox) act(ctx context.Context, s SessionWithOrder, a GatewayAnswer, copies int) error {
	if err := b.payments.db.SetSandbox(ctx, s.ID, a); err != nil {
		return err
	}

	body := mustJSON(object{"reference": s.reference(), "state": a.State})
	signature := signatureHeader([]string{b.payments.sandboxKey}, time.Now().Unix(), body)
	header := http.Header{"X-Service-Signature": {signature}}

	for range copies {
		err := b.payments.receive(ctx, ProviderSandbox, s.StoreID, header, body)
		if err != nil {
			return err
		}
	}
	return nil
}

// SetSandbox sets what the sandbox says of a session.
func (db *DB) SetSandbox(ctx context.Context, sessionID string, a GatewayAnswer) error {
	return db.change(ctx, `
		INSERT OR REPLACE INTO sandbox_payments (session_id, state, amount)
		VALUES (?, ?, ?)`, sessionID, a.State, a.Amount)
}

// Sandbox returns what the sandbox says of a session, which is open until a button of its page was pressed.
func (db *DB) Sandbox(sessionID string) (GatewayAnswer, error) {
	a, err := queryOne(db.reader, scanSandbox,
		"SELECT state, amount FROM sandbox_payments WHERE session_id = ?", sessionID)
	if err == errNotFound {
		return GatewayAnswer{State: StateOpen}, nil
	}

	a.TransactionID = sessionID
	return a, err
}

func scanSandbox(r row) (a GatewayAnswer, err error) {
	err = r.Scan(&a.State, &a.Amount)
	return a, err
}
