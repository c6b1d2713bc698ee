//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha512"
	"crypto/subtle"
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
)

// Gateway is a store's account at a payment gateway.
type Gateway struct {
	Provider      Provider
	Mode          string // sandbox or live
	SecretKey     string
	CallbackToken string // Xendit's
}

func (db *DB) SetGateway(ctx context.Context, storeID string, g Gateway) error {
	return db.change(ctx, `INSERT OR REPLACE INTO gateways (store_id, provider, mode, secret_key, callback_token)
		SELECT id, ?, ?, ?, ? FROM stores WHERE id = ?`, g.Provider, g.Mode, g.SecretKey, g.CallbackToken, storeID)
}

const sqlGateways = "SELECT provider, mode, secret_key, callback_token FROM gateways WHERE store_id = ?1 AND provider = coalesce(?2, provider) ORDER BY provider"

func gatewayFields(g *Gateway) []any {
	return []any{&g.Provider, &g.Mode, &g.SecretKey, &g.CallbackToken}
}

func (db *DB) Gateway(storeID string, provider Provider) (Gateway, error) {
	return one(db.reader, gatewayFields, sqlGateways, storeID, provider)
}

func (db *DB) Gateways(storeID string) ([]Gateway, error) {
	return collect(db.reader, gatewayFields, sqlGateways, storeID, nil)
}

// checkGateway returns what is wrong with a store's account at a gateway, "" if nothing.
func checkGateway(g Gateway) string {
	printable := func(text string) bool {
		return text != "" && len(text) <= 500 && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
	}
	switch {
	case g.Provider != "midtrans" && g.Provider != "xendit":
		return "the provider must be midtrans or xendit"
	case g.Mode != "sandbox" && g.Mode != "live":
		return "the mode must be sandbox or live"
	case !printable(g.SecretKey):
		return "the secret key is needed, without spaces"
	case g.Provider == "xendit" && !printable(g.CallbackToken):
		return "Xendit's callback token is needed too, without spaces"
	case g.Provider == "xendit" && strings.HasPrefix(g.SecretKey, "xnd_development_") != (g.Mode == "sandbox"),
		g.Provider == "midtrans" && strings.HasPrefix(g.SecretKey, "SB-") && g.Mode == "live":
		return "the secret key is not of the mode " + g.Mode
	}
	return ""
}

// A gateway is one store's account at a payment provider. Manual payment has none.
type gateway interface {
	// create starts a session and returns the gateway's name for it and its page's address. errTaken means that the
	// gateway has a session of this reference already.
	create(ctx context.Context, c charge) (id, pageURL string, err error)
	// ask returns what the gateway says of a session. message is the notification that led to the question, if one did.
	ask(ctx context.Context, s PaymentSession, message []byte) (GatewayAnswer, error)
	// cancel closes a session, so that it cannot be paid any more. That there was nothing to close is no error.
	cancel(ctx context.Context, s PaymentSession) error
	// verify tells what a notification is about, or errForged.
	verify(h http.Header, message []byte) (subject, error)
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

// subject is what a notification is about: a session by its reference or by a payment. All empty: nothing of ours.
type subject struct{ reference, transactionID, requestID string }

// lines are what is charged for, and sum to the order's amount: what costs nothing is left out, the fee is a line of its own.
func (c charge) lines() []Item {
	fee := Item{ProductID: "fee", Title: "Biaya layanan", UnitPrice: c.Order.Amount - c.Order.Subtotal, Quantity: 1}
	return slices.DeleteFunc(append(slices.Clone(c.Order.Items), fee), func(i Item) bool { return i.UnitPrice == 0 })
}

// channels are the codes of payment methods that restrict a gateway's page to one way to pay, with the gateways' own
// names for it.
var channels = map[string]struct{ midtrans, xendit string }{
	"va_bca": {"bca_va", "BCA_VIRTUAL_ACCOUNT"}, "va_bni": {"bni_va", "BNI_VIRTUAL_ACCOUNT"}, "va_bri": {"bri_va", "BRI_VIRTUAL_ACCOUNT"},
	"va_permata": {"permata_va", "PERMATA_VIRTUAL_ACCOUNT"}, "va_mandiri": {"echannel", "MANDIRI_VIRTUAL_ACCOUNT"},
	"qris": {"other_qris", "QRIS"}, "gopay": {"gopay", "GOPAY"}, "shopeepay": {"shopeepay", "SHOPEEPAY"}, "dana": {"dana", "DANA"},
	"ovo": {"ovo", "OVO"}, "card": {"credit_card", "CARDS"}, "alfamart": {"alfamart", "ALFAMART"}, "indomaret": {"indomaret", "INDOMARET"},
}

// call sends JSON (nil: nothing) with the key as the user of Basic authentication, and reads JSON, whatever the status.
func (p *payments) call(ctx context.Context, method, address, key string, header http.Header, in, out any) (status int, err error) {
	var body io.Reader
	if in != nil {
		body = bytes.NewReader(mustJSON(in))
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return 0, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(key, "")
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return resp.StatusCode, err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return resp.StatusCode, fmt.Errorf("status %d and no JSON that is understood", resp.StatusCode)
	}
	return resp.StatusCode, nil
}

// close asks for a session to be closed. A refusal is no error: asking will tell what the session has come to.
func (p *payments) close(ctx context.Context, address, key string) error {
	status, err := p.call(ctx, "POST", address, key, nil, nil, new(any))
	if status >= 500 || status == http.StatusTooManyRequests {
		return fmt.Errorf("status %d on closing a session", status)
	} else if status != 0 {
		return nil
	}
	return err
}

// pageAddress checks that a gateway's answer names a page that a buyer can be sent to.
func pageAddress(text string) error {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("the answer has no address of a payment page")
	}
	return nil
}

// wholeRupiah reads an amount such as 150000 or 150000.00.
func wholeRupiah(text string) (int64, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || strings.Trim(fraction, "0") != "" || n < 0 {
		return 0, fmt.Errorf("the amount %q is no whole rupiah", text)
	}
	return n, nil
}

type midtrans struct {
	*payments
	account Gateway
}

func (m midtrans) address(host, path string) string {
	if m.account.Mode == "sandbox" {
		host += ".sandbox"
	}
	return cmp.Or(m.db.gatewayURLs["midtrans"], "https://"+host+".midtrans.com") + path
}

func (m midtrans) create(ctx context.Context, c charge) (id, pageURL string, err error) {
	items := []object{}
	for _, l := range c.lines() {
		items = append(items, object{"id": l.ProductID + l.BundleID, "name": cut(l.Title, 50), "price": l.UnitPrice, "quantity": l.Quantity})
	}
	customer := object{"first_name": c.Order.Buyer.Name}
	if c.Order.Buyer.Email != "" {
		customer["email"] = c.Order.Buyer.Email
	}
	if c.Order.Buyer.Phone != "" {
		customer["phone"] = c.Order.Buyer.Phone
	}
	now := time.Now()
	back := c.Store.payPage(c.OrderID)
	request := object{
		"transaction_details": object{"order_id": c.reference(), "gross_amount": c.Order.Amount},
		"item_details":        items,
		"customer_details":    customer,
		"callbacks":           object{"finish": back, "error": back},
		"expiry": object{"start_time": now.In(wib).Format("2006-01-02 15:04:05 -0700"), "unit": "minute",
			"duration": max(1, int64(c.ExpiresAt.Time().Sub(now).Minutes()))},
	}
	if channel, ok := channels[c.Order.PaymentMethod]; ok {
		request["enabled_payments"] = []string{channel.midtrans}
	}
	var answer struct {
		Token         string
		RedirectURL   string   `json:"redirect_url"`
		ErrorMessages []string `json:"error_messages"`
	}
	// With this header the gateway's own setting of the address cannot be wrong.
	header := http.Header{"X-Override-Notification": {m.db.publicURL + "/notifications/midtrans/" + c.Store.ID}}
	status, err := m.call(ctx, "POST", m.address("app", "/snap/v1/transactions"), m.account.SecretKey, header, request, &answer)
	switch problem := strings.Join(answer.ErrorMessages, "; "); {
	case err != nil:
		return "", "", err
	case strings.Contains(problem, "has already been taken"):
		return "", "", errTaken
	case status != http.StatusCreated || answer.Token == "":
		return "", "", fmt.Errorf("status %d: %s", status, cut(problem, 200))
	}
	return answer.Token, answer.RedirectURL, pageAddress(answer.RedirectURL)
}

// midtransStatus is what both a notification and an answer about a transaction say.
type midtransStatus struct {
	OrderID           string `json:"order_id"`
	StatusCode        string `json:"status_code"`
	GrossAmount       string `json:"gross_amount"`
	SignatureKey      string `json:"signature_key"`
	TransactionStatus string `json:"transaction_status"`
	TransactionID     string `json:"transaction_id"`
	FraudStatus       string `json:"fraud_status"`
	RefundAmount      string `json:"refund_amount"`
}

// midtransStates are what the values of transaction_status mean, before any fraud_status.
var midtransStates = map[string]GatewayState{
	"pending": StateOpen, "settlement": StateSettled, "capture": StateSettled, "authorize": StateChallenged, "deny": StateDenied, "failure": StateDenied,
	"cancel": StateCanceled, "expire": StateExpired, "refund": StateRefunded, "chargeback": StateRefunded,
	"partial_refund": StatePartlyRefunded, "partial_chargeback": StatePartlyRefunded,
}

func (m midtrans) ask(ctx context.Context, s PaymentSession, _ []byte) (v GatewayAnswer, err error) {
	var t midtransStatus
	status, err := m.call(ctx, "GET", m.address("api", "/v2/"+s.reference()+"/status"), m.account.SecretKey, nil, nil, &t)
	if err != nil {
		return v, err
	}
	if t.TransactionStatus == "" && (status == http.StatusNotFound || t.StatusCode == "404") {
		return GatewayAnswer{State: StateOpen}, nil // the buyer has not chosen how to pay
	}
	if t.OrderID != s.reference() {
		return v, fmt.Errorf("status %d and no answer about %s", status, s.reference())
	}
	v.TransactionID = t.TransactionID
	if v.Amount, err = wholeRupiah(t.GrossAmount); err != nil {
		return v, err
	}
	said, fraud := strings.ToLower(t.TransactionStatus), strings.ToLower(t.FraudStatus)
	v.State = midtransStates[said]
	switch {
	case v.State == "":
		err = fmt.Errorf("transaction_status %q is not known", cut(said, 50))
	case said == "capture" && fraud == "challenge":
		v.State = StateChallenged
	case said == "capture" && fraud == "deny":
		v.State = StateDenied
	case v.State == StatePartlyRefunded && t.RefundAmount != "":
		v.Amount, err = wholeRupiah(t.RefundAmount)
	}
	return v, err
}

func (m midtrans) cancel(ctx context.Context, s PaymentSession) error {
	page := m.address("app", "/snap/v1/transactions/"+url.PathEscape(s.GatewayID)+"/cancel")
	if err := m.close(ctx, page, m.account.SecretKey); err != nil {
		return err
	}
	return m.close(ctx, m.address("api", "/v2/"+s.reference()+"/cancel"), m.account.SecretKey)
}

func (m midtrans) verify(_ http.Header, message []byte) (subject, error) {
	var n midtransStatus
	err := json.Unmarshal(message, &n)
	want := sha512.Sum512([]byte(n.OrderID + n.StatusCode + n.GrossAmount + m.account.SecretKey))
	if err != nil || subtle.ConstantTimeCompare([]byte(hex.EncodeToString(want[:])), []byte(strings.ToLower(n.SignatureKey))) != 1 {
		return subject{}, errForged
	}
	return subject{reference: n.OrderID}, nil
}

type xendit struct {
	*payments
	account Gateway
}

func (x xendit) address(path string) string {
	return cmp.Or(x.db.gatewayURLs["xendit"], "https://api.xendit.co") + path
}

func (x xendit) create(ctx context.Context, c charge) (id, pageURL string, err error) {
	items := []object{}
	for _, l := range c.lines() {
		kind := "PHYSICAL_PRODUCT"
		if l.ProductID == "fee" {
			kind = "FEE"
		}
		items = append(items, object{"reference_id": l.ProductID + l.BundleID, "name": cut(l.Title, 255), "type": kind, "net_unit_amount": l.UnitPrice,
			"quantity": l.Quantity, "currency": "IDR"})
	}
	customer := object{"reference_id": c.reference(), "type": "INDIVIDUAL", "individual_detail": object{"given_names": cut(c.Order.Buyer.Name, 50)}}
	if c.Order.Buyer.Email != "" {
		customer["email"] = c.Order.Buyer.Email
	}
	if phone := internationalPhone(c.Order.Buyer.Phone); phone != "" {
		customer["mobile_number"] = phone
	}
	request := object{
		"reference_id": c.reference(), "session_type": "PAY", "mode": "PAYMENT_LINK", "amount": c.Order.Amount, "currency": "IDR",
		"country": "ID", "locale": "id", "description": c.Order.PaymentReference, "customer": customer, "items": items,
		// The gateway takes ten minutes at least.
		"expires_at":         max(c.ExpiresAt, Time(time.Now().Add(11*time.Minute).UnixMilli())),
		"success_return_url": c.Store.payPage(c.OrderID), "cancel_return_url": c.Store.payPage(c.OrderID),
	}
	if channel, ok := channels[c.Order.PaymentMethod]; ok {
		request["allowed_payment_channels"] = []string{channel.xendit}
	}
	var answer xenditAnswer
	status, err := x.call(ctx, "POST", x.address("/sessions"), x.account.SecretKey, nil, request, &answer)
	switch {
	case err != nil:
		return "", "", err
	case status == http.StatusConflict || answer.ErrorCode == "DUPLICATE_ERROR":
		return "", "", errTaken
	case status/100 != 2 || answer.ID == "":
		return "", "", fmt.Errorf("status %d: %s", status, cut(answer.ErrorCode+" "+answer.Message, 200))
	}
	return answer.ID, answer.LinkURL, pageAddress(answer.LinkURL)
}

// internationalPhone writes an Indonesian or international number, as phonePattern allows it, as E.164, or "" if it
// cannot be one.
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
	ID        string `json:"payment_session_id"`
	RefundID  string `json:"id"`
	Reference string `json:"reference_id"`
	LinkURL   string `json:"payment_link_url"`
	Status    string
	Amount    json.Number
	PaymentID string `json:"payment_id"`
	RequestID string `json:"payment_request_id"`
	ErrorCode string `json:"error_code"`
	Message   string
}

// xenditMessage is a notification. A refund's data is a refund; any other's is a session.
type xenditMessage struct {
	Event string
	Data  xenditAnswer
}

func (x xendit) ask(ctx context.Context, s PaymentSession, message []byte) (v GatewayAnswer, err error) {
	var m xenditMessage
	if message != nil {
		if err := json.Unmarshal(message, &m); err != nil {
			return v, err
		}
		if m.Event == "refund.succeeded" {
			return x.askRefund(ctx, s, m.Data)
		}
	}
	id := cmp.Or(s.GatewayID, m.Data.ID) // if the answer to its creation was lost, a notification may name it
	if id == "" {
		return GatewayAnswer{State: StateOpen}, nil
	}
	var answer xenditAnswer
	status, err := x.call(ctx, "GET", x.address("/sessions/"+url.PathEscape(id)), x.account.SecretKey, nil, nil, &answer)
	if err != nil {
		return v, err
	}
	if status != http.StatusOK || answer.Reference != s.reference() {
		return v, fmt.Errorf("status %d and no answer about %s: %s", status, s.reference(), cut(answer.ErrorCode, 50))
	}
	v.TransactionID, v.RequestID = answer.PaymentID, answer.RequestID
	switch strings.ToUpper(answer.Status) {
	case "ACTIVE":
		v.State = StateOpen
	case "COMPLETED":
		v.State = StateSettled
		v.Amount, err = wholeRupiah(answer.Amount.String())
	case "EXPIRED", "CANCELED":
		v.State = StateExpired
	default:
		err = fmt.Errorf("status %q is not known", cut(answer.Status, 50))
	}
	return v, err
}

// askRefund asks about a refund that a message told of. The session was found by the payment that the message names.
func (x xendit) askRefund(ctx context.Context, s PaymentSession, told xenditAnswer) (v GatewayAnswer, err error) {
	var refund xenditAnswer
	status, err := x.call(ctx, "GET", x.address("/refunds/"+url.PathEscape(told.RefundID)), x.account.SecretKey, nil, nil, &refund)
	if err != nil {
		return v, err
	}
	if status != http.StatusOK || !strings.EqualFold(refund.Status, "SUCCEEDED") {
		return v, fmt.Errorf("status %d: refund %s is %q", status, cut(told.RefundID, 60), cut(refund.Status, 50))
	}
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	if differ(refund.PaymentID, told.PaymentID) || differ(refund.RequestID, told.RequestID) {
		return v, fmt.Errorf("refund %s is of another payment than its message says", cut(told.RefundID, 60))
	}
	if v.Amount, err = wholeRupiah(refund.Amount.String()); err != nil {
		return v, err
	}
	_, o, err := x.db.OrderPage(s.OrderID)
	v.State, v.RefundID = StatePartlyRefunded, told.RefundID
	if v.Amount >= o.Amount {
		v.State = StateRefunded
	}
	return v, err
}

func (x xendit) cancel(ctx context.Context, s PaymentSession) error {
	return x.close(ctx, x.address("/sessions/"+url.PathEscape(s.GatewayID)+"/cancel"), x.account.SecretKey)
}

func (x xendit) verify(h http.Header, message []byte) (subject, error) {
	var m xenditMessage
	token := h.Get("X-Callback-Token")
	if x.account.CallbackToken == "" || subtle.ConstantTimeCompare([]byte(token), []byte(x.account.CallbackToken)) != 1 {
		return subject{}, errForged
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return subject{}, errInvalidJSON
	}
	if m.Event == "refund.succeeded" {
		return subject{transactionID: m.Data.PaymentID, requestID: m.Data.RequestID}, nil
	}
	return subject{reference: m.Data.Reference}, nil
}

type sandbox struct{ *payments }

func (b sandbox) create(_ context.Context, c charge) (id, pageURL string, err error) {
	if offered, err := b.db.SandboxOffered(c.Store.ID); err != nil || !offered {
		return "", "", cmp.Or(err, errors.New("a store whose gateway is live has no sandbox"))
	}
	return c.ID, c.Store.URL + "/sandbox/" + c.ID, nil
}

func (b sandbox) ask(_ context.Context, s PaymentSession, _ []byte) (GatewayAnswer, error) {
	return b.db.Sandbox(s.ID)
}

func (b sandbox) cancel(ctx context.Context, s PaymentSession) error {
	if v, err := b.db.Sandbox(s.ID); err != nil || v.State != StateOpen {
		return err
	}
	return b.db.SetSandbox(ctx, s.ID, GatewayAnswer{State: StateExpired})
}

func (b sandbox) verify(h http.Header, message []byte) (subject, error) {
	var n struct{ Reference string }
	if !verifySignature(b.sandboxKey, h.Get("X-Service-Signature"), message, time.Now()) || json.Unmarshal(message, &n) != nil {
		return subject{}, errForged
	}
	return subject{reference: n.Reference}, nil
}

// act is a button of the sandbox's page: the gateway's state changes, and its notification comes, as a real one's
// would, here copies times.
func (b sandbox) act(ctx context.Context, s SessionWithOrder, v GatewayAnswer, copies int) error {
	if err := b.db.SetSandbox(ctx, s.ID, v); err != nil {
		return err
	}
	body := mustJSON(object{"reference": s.reference(), "state": v.State})
	header := http.Header{"X-Service-Signature": {signatureHeader([]string{b.sandboxKey}, time.Now().Unix(), body)}}
	for range copies {
		if err := b.receive(ctx, "sandbox", s.StoreID, header, body); err != nil {
			return err
		}
	}
	return nil
}

// SandboxOffered tells whether a store may still play: none of its gateways takes real money.
func (db *DB) SandboxOffered(storeID string) (bool, error) {
	return one(db.reader, column[bool], "SELECT NOT EXISTS (SELECT 1 FROM gateways WHERE store_id = ? AND mode = 'live')", storeID)
}

// SetSandbox is what the sandbox gateway's page does: it sets what the gateway will say of a session.
func (db *DB) SetSandbox(ctx context.Context, sessionID string, v GatewayAnswer) error {
	return db.change(ctx, "INSERT OR REPLACE INTO sandbox_payments (session_id, state, amount) VALUES (?, ?, ?)", sessionID, v.State, v.Amount)
}

// Sandbox is what the sandbox gateway says of a session; it is open until its page was used.
func (db *DB) Sandbox(sessionID string) (GatewayAnswer, error) {
	v, err := one(db.reader, func(v *GatewayAnswer) []any { return []any{&v.State, &v.Amount} },
		"SELECT state, amount FROM sandbox_payments WHERE session_id = ?", sessionID)
	if err == errNotFound {
		return GatewayAnswer{State: StateOpen}, nil
	}
	v.TransactionID = sessionID
	return v, err
}
