//go:build cgo

package main

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// gatewayDouble stands in for a gateway. A test sets the states of its sessions.
type gatewayDouble interface {
	http.Handler
	// say sets a session's state, which may end with "=" and an amount.
	say(reference, state string)
	// message returns the notification of a state, signed as the gateway signs it.
	message(reference, state string) (header http.Header, body string)
}

func sendJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// signedIn reports whether a request has the key as its user name and no password, as both gateways want it.
func signedIn(r *http.Request, key string) bool {
	user, password, ok := r.BasicAuth()
	return ok && user == key && password == ""
}

// decodeStrictly refuses fields that the value does not have.
func decodeStrictly(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// midtransDouble stands in for Midtrans: Snap creates pages, and the API v2 knows the transactions that
// buyers begin there.
type midtransDouble struct {
	key    string
	routes *http.ServeMux

	mu       sync.Mutex
	payments map[string]*midtransPayment // by order_id
	creates  int
	closes   int      // of pages
	requests []string // the bodies that created pages
	notifyAt string   // where the last of them wanted its notifications
}

// midtransPayment is a page and, once its buyer has chosen how to pay, a transaction.
type midtransPayment struct {
	orderID  string
	token    string // of the page
	status   string // of the transaction; "" if there is none yet
	fraud    string // fraud_status
	paid     string // in rupiah
	refunded string // in rupiah
}

func newMidtransDouble() *midtransDouble {
	d := &midtransDouble{
		key:      midtransKey,
		routes:   http.NewServeMux(),
		payments: map[string]*midtransPayment{},
	}
	d.routes.HandleFunc("POST /snap/v1/transactions", d.createPage)
	d.routes.HandleFunc("POST /snap/v1/transactions/{token}/cancel", d.closePage)
	d.routes.HandleFunc("GET /v2/{order_id}/status", d.sendTransaction)
	d.routes.HandleFunc("POST /v2/{order_id}/cancel", d.cancelTransaction)
	return d
}

func (d *midtransDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if !signedIn(r, d.key) {
		sendJSON(w, 401, object{
			"status_code":    "401",
			"error_messages": []string{"Access denied due to unauthorized transaction"},
		})
		return
	}
	d.routes.ServeHTTP(w, r)
}

// midtransPageRequest has the fields that the double knows. An int64 takes no fraction.
type midtransPageRequest struct {
	Transaction struct {
		OrderID     string `json:"order_id"`
		GrossAmount int64  `json:"gross_amount"`
	} `json:"transaction_details"`
	Items []struct {
		ID       string
		Name     string
		Price    int64
		Quantity int64
	} `json:"item_details"`
	Customer struct {
		FirstName string `json:"first_name"`
		Email     string
		Phone     string
	} `json:"customer_details"`
	CreditCard struct {
		Secure bool
	} `json:"credit_card"`
	CustomField1    string   `json:"custom_field1"`
	EnabledPayments []string `json:"enabled_payments"`
	Callbacks       struct {
		Finish string
		Error  string
	}
	Expiry struct {
		StartTime string `json:"start_time"`
		Unit      string
		Duration  int64
	}
}

// check returns why Midtrans refuses the request.
func (in midtransPageRequest) check() error {
	if in.Transaction.OrderID == "" {
		return errors.New("transaction_details.order_id is required")
	}
	if len(in.Transaction.OrderID) > 50 {
		return errors.New("transaction_details.order_id has more than 50 characters")
	}
	if in.Transaction.GrossAmount <= 0 {
		return errors.New("transaction_details.gross_amount is not positive")
	}
	if !in.CreditCard.Secure {
		return errors.New("the double wants 3-D Secure")
	}
	if !strings.HasPrefix(in.CustomField1, "INV-") {
		return errors.New("the double wants our reference in custom_field1")
	}
	err := in.checkCustomer()
	if err != nil {
		return err
	}
	for _, channel := range in.EnabledPayments {
		if !slices.Contains(midtransChannels, channel) {
			return fmt.Errorf("enabled_payments %s is unknown", channel)
		}
	}

	_, err = time.Parse("2006-01-02 15:04:05 -0700", in.Expiry.StartTime)
	if err != nil {
		return fmt.Errorf("expiry.start_time: %w", err)
	}
	if in.Expiry.Unit != "minute" {
		return errors.New("the double counts expiry in minutes")
	}
	if in.Expiry.Duration < 1 {
		return errors.New("expiry.duration is not positive")
	}
	return in.checkItems()
}

var (
	plainEmail    = regexp.MustCompile(`^[!-~]+@[!-~]+\.[!-~]+$`)
	midtransPhone = regexp.MustCompile(`^(\+|0)[0-9]+$`)
)

func (in midtransPageRequest) checkCustomer() error {
	c := in.Customer
	if len([]rune(c.FirstName)) > 30 {
		return errors.New("customer_details.first_name is too long for a virtual account of BCA")
	}
	if c.Email != "" && !plainEmail.MatchString(c.Email) {
		return errors.New("customer_details.email format is invalid")
	}
	if c.Phone != "" && !midtransPhone.MatchString(c.Phone) {
		return errors.New("customer_details.phone format is invalid")
	}
	return nil
}

func (in midtransPageRequest) checkItems() error {
	sum := int64(0)
	for _, i := range in.Items {
		sum += i.Price * i.Quantity

		if len(i.ID) > 50 {
			return errors.New("item_details.id has more than 50 characters")
		}
		if i.Name == "" {
			return errors.New("item_details.name is required")
		}
		if len([]rune(i.Name)) > 50 {
			return errors.New("item_details.name has more than 50 characters")
		}
		if i.Price <= 0 {
			return errors.New("item_details.price is not positive")
		}
		if i.Quantity <= 0 {
			return errors.New("item_details.quantity is not positive")
		}
	}

	if len(in.Items) > 0 && sum != in.Transaction.GrossAmount {
		return errors.New("transaction_details.gross_amount is not equal to the sum of item_details")
	}
	return nil
}

var midtransChannels = strings.Fields(`
	bca_va bni_va bri_va permata_va echannel
	other_qris gopay shopeepay dana ovo
	credit_card alfamart indomaret`)

// readRequest decodes a request for a page, or returns why Midtrans refuses it.
func (d *midtransDouble) readRequest(header http.Header, body []byte) (in midtransPageRequest, err error) {
	if header.Get("Content-Type") != "application/json" {
		return in, errors.New("the body is not JSON")
	}
	if header.Get("X-Override-Notification") == "" {
		return in, errors.New("the double wants to know where notifications go")
	}
	err = decodeStrictly(body, &in)
	if err != nil {
		return in, err
	}
	if d.payments[in.Transaction.OrderID] != nil {
		return in, errors.New("transaction_details.order_id has already been taken")
	}
	return in, in.check()
}

func (d *midtransDouble) createPage(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	in, err := d.readRequest(r.Header, body)
	if err != nil {
		sendJSON(w, 400, object{"error_messages": []string{err.Error()}})
		return
	}

	d.creates++
	d.requests = append(d.requests, string(body))
	d.notifyAt = r.Header.Get("X-Override-Notification")
	p := &midtransPayment{
		orderID: in.Transaction.OrderID,
		token:   fmt.Sprintf("token-%d", d.creates),
		paid:    strconv.FormatInt(in.Transaction.GrossAmount, 10),
	}
	d.payments[p.orderID] = p
	sendJSON(w, 201, object{
		"token":        p.token,
		"redirect_url": "https://app.sandbox.midtrans.com/snap/v4/redirection/" + p.token,
	})
}

func (d *midtransDouble) closePage(w http.ResponseWriter, r *http.Request) {
	for _, p := range d.payments {
		if p.token == r.PathValue("token") {
			d.closes++
			sendJSON(w, 200, object{})
			return
		}
	}
	sendNoTransaction(w)
}

func (d *midtransDouble) sendTransaction(w http.ResponseWriter, r *http.Request) {
	p := d.payments[r.PathValue("order_id")]
	if p == nil || p.status == "" {
		sendNoTransaction(w)
		return
	}
	sendJSON(w, 200, d.transaction(p))
}

func (d *midtransDouble) cancelTransaction(w http.ResponseWriter, r *http.Request) {
	p := d.payments[r.PathValue("order_id")]
	if p == nil || p.status == "" {
		sendNoTransaction(w)
		return
	}

	switch strings.ToLower(p.status) {
	case "pending", "authorize", "capture":
		p.status = "cancel"
		sendJSON(w, 200, d.transaction(p))
	default:
		sendJSON(w, 412, object{
			"status_code":    "412",
			"status_message": "Transaction status cannot be updated.",
		})
	}
}

func sendNoTransaction(w http.ResponseWriter) {
	sendJSON(w, 404, object{
		"status_code":    "404",
		"status_message": "Transaction doesn't exist.",
	})
}

// transaction is how Midtrans describes a payment, in answers and in notifications.
func (d *midtransDouble) transaction(p *midtransPayment) object {
	code := "200"
	switch strings.ToLower(p.status) {
	case "pending":
		code = "201"
	case "deny", "failure":
		code = "202"
	case "expire":
		code = "407"
	}

	gross := p.paid + ".00"
	t := object{
		"status_code":        code,
		"order_id":           p.orderID,
		"gross_amount":       gross,
		"transaction_status": p.status,
		"transaction_id":     "tx-" + p.orderID,
		"payment_type":       "bank_transfer",
		"currency":           "IDR",
		"transaction_time":   "2000-01-01 07:00:00",
		"signature_key":      fmt.Sprintf("%x", sha512.Sum512([]byte(p.orderID+code+gross+d.key))),
	}
	if p.fraud != "" {
		t["fraud_status"] = p.fraud
	}
	if p.refunded != "" {
		t["refund_amount"] = p.refunded + ".00"
	}
	return t
}

// say takes a transaction_status, if need be with a fraud_status or an amount: capture, capture/challenge,
// settlement=1000, partial_refund=1000.
func (d *midtransDouble) say(reference, state string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.payments[reference].say(state)
}

func (p *midtransPayment) say(state string) {
	state, amount, hasAmount := strings.Cut(state, "=")
	p.status, p.fraud, _ = strings.Cut(state, "/")
	if !hasAmount {
		return
	}

	if strings.Contains(state, "refund") || strings.Contains(state, "chargeback") {
		p.refunded = amount
	} else {
		p.paid = amount
	}
}

func (d *midtransDouble) message(reference, state string) (http.Header, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := *d.payments[reference]
	p.say(state)
	t := d.transaction(&p)

	// A message in upper case has its signature in upper case too.
	if p.status == strings.ToUpper(p.status) {
		t["signature_key"] = strings.ToUpper(t["signature_key"].(string))
	}
	return http.Header{"Content-Type": {"application/json"}}, string(mustJSON(t))
}

// xenditDouble stands in for Xendit and its Payment Sessions.
type xenditDouble struct {
	key    string
	token  string // sent with notifications
	routes *http.ServeMux

	mu       sync.Mutex
	sessions map[string]object // by payment_session_id
	latest   map[string]string // payment_session_id by reference_id
	refunds  map[string]object // by id
	creates  int
	closes   int      // of sessions
	requests []string // the bodies that created sessions
}

func newXenditDouble() *xenditDouble {
	d := &xenditDouble{
		key:      xenditKey,
		token:    xenditToken,
		routes:   http.NewServeMux(),
		sessions: map[string]object{},
		latest:   map[string]string{},
		refunds:  map[string]object{},
	}
	d.routes.HandleFunc("POST /sessions", d.createSession)
	d.routes.HandleFunc("GET /sessions/{id}", d.sendSession)
	d.routes.HandleFunc("POST /sessions/{id}/cancel", d.closeSession)
	d.routes.HandleFunc("GET /refunds/{id}", d.sendRefund)
	return d
}

func (d *xenditDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if !signedIn(r, d.key) {
		sendXenditError(w, 401, "INVALID_API_KEY", "The API key provided is invalid.")
		return
	}
	d.routes.ServeHTTP(w, r)
}

func sendXenditError(w http.ResponseWriter, status int, code, message string) {
	sendJSON(w, status, object{"error_code": code, "message": message})
}

// xenditSessionRequest has the fields that the double knows. An int64 takes no fraction.
type xenditSessionRequest struct {
	Reference   string `json:"reference_id"`
	SessionType string `json:"session_type"`
	Mode        string
	Currency    string
	Country     string
	Locale      string
	Description string
	Amount      int64
	Customer    struct {
		Reference  string `json:"reference_id"`
		Type       string
		Email      string
		Mobile     *string `json:"mobile_number"`
		Individual struct {
			GivenNames string `json:"given_names"`
		} `json:"individual_detail"`
	}
	Items []struct {
		Reference string `json:"reference_id"`
		Name      string
		Type      string
		Category  string
		Currency  string
		Quantity  int64
		Price     int64 `json:"net_unit_amount"`
	}
	Channels  []string  `json:"allowed_payment_channels"`
	ExpiresAt time.Time `json:"expires_at"`
	Success   string    `json:"success_return_url"`
	Cancel    string    `json:"cancel_return_url"`
}

// check returns why Xendit refuses the request.
func (in xenditSessionRequest) check() error {
	if in.Reference == "" {
		return errors.New("reference_id is required")
	}
	if len(in.Reference) > 64 {
		return errors.New("reference_id has more than 64 characters")
	}
	if in.SessionType != "PAY" {
		return errors.New("session_type is not PAY")
	}
	if in.Mode != "PAYMENT_LINK" {
		return errors.New("mode is not PAYMENT_LINK")
	}
	if in.Currency != "IDR" {
		return errors.New("currency is not IDR")
	}
	if in.Country != "ID" {
		return errors.New("country is not ID")
	}
	if in.Amount <= 0 {
		return errors.New("amount is not positive")
	}
	if in.ExpiresAt.Before(time.Now().Add(10 * time.Minute)) {
		return errors.New("expires_at is not ten minutes ahead")
	}

	err := in.checkCustomer()
	if err != nil {
		return err
	}
	return in.checkItems()
}

var givenNames = regexp.MustCompile(`^[\pL\pN ]{1,50}$`)

var e164 = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

func (in xenditSessionRequest) checkCustomer() error {
	c := in.Customer
	if c.Reference == "" {
		return errors.New("customer.reference_id is required")
	}
	if len(c.Reference) > 255 {
		return errors.New("customer.reference_id has more than 255 characters")
	}
	if c.Type != "INDIVIDUAL" {
		return errors.New("customer.type is not INDIVIDUAL")
	}
	if !givenNames.MatchString(c.Individual.GivenNames) {
		return errors.New("customer.individual_detail.given_names has 1 to 50 letters, digits and spaces")
	}
	if c.Email != "" && (len(c.Email) > 50 || !plainEmail.MatchString(c.Email)) {
		return errors.New("customer.email is invalid")
	}
	if c.Mobile != nil && !e164.MatchString(*c.Mobile) {
		return errors.New("customer.mobile_number is not in E.164")
	}
	return nil
}

func (in xenditSessionRequest) checkItems() error {
	sum := int64(0)
	for _, i := range in.Items {
		sum += i.Price * i.Quantity

		if i.Name == "" {
			return errors.New("items.name is required")
		}
		if i.Currency != "IDR" {
			return errors.New("items.currency is not IDR")
		}
		if i.Category == "" {
			return errors.New("items.category is required")
		}
		if i.Price <= 0 {
			return errors.New("items.net_unit_amount is not positive")
		}
		switch i.Type {
		case "DIGITAL_PRODUCT", "PHYSICAL_PRODUCT", "FEE":
		default:
			return fmt.Errorf("items.type %q is unknown", i.Type)
		}
	}

	if len(in.Items) > 0 && sum != in.Amount {
		return errors.New("the items do not sum to the amount")
	}
	return nil
}

func (d *xenditDouble) createSession(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var in xenditSessionRequest
	err := decodeStrictly(body, &in)
	if err == nil {
		err = in.check()
	}
	if err != nil {
		sendXenditError(w, 400, "API_VALIDATION_ERROR", err.Error())
		return
	}
	if d.latest[in.Reference] != "" {
		sendXenditError(w, 409, "DUPLICATE_ERROR", "reference_id was used before")
		return
	}

	d.creates++
	d.requests = append(d.requests, string(body))
	id := fmt.Sprintf("ps-%d", d.creates)
	d.latest[in.Reference] = id
	d.sessions[id] = object{
		"payment_session_id": id,
		"reference_id":       in.Reference,
		"status":             "ACTIVE",
		"amount":             in.Amount,
		"currency":           "IDR",
		"country":            "ID",
		"payment_link_url":   "https://xen.to/" + id,
		"expires_at":         in.ExpiresAt,
	}
	sendJSON(w, 201, d.sessions[id])
}

func (d *xenditDouble) sendSession(w http.ResponseWriter, r *http.Request) {
	sendFound(w, d.sessions[r.PathValue("id")])
}

func (d *xenditDouble) sendRefund(w http.ResponseWriter, r *http.Request) {
	sendFound(w, d.refunds[r.PathValue("id")])
}

func sendFound(w http.ResponseWriter, found object) {
	if found == nil {
		sendXenditError(w, 404, "DATA_NOT_FOUND", "not found")
		return
	}
	sendJSON(w, 200, found)
}

func (d *xenditDouble) closeSession(w http.ResponseWriter, r *http.Request) {
	s := d.sessions[r.PathValue("id")]
	if s == nil {
		sendXenditError(w, 404, "DATA_NOT_FOUND", "not found")
		return
	}
	if s["status"] != "ACTIVE" {
		sendXenditError(w, 400, "SESSION_NOT_ACTIVE", "The session is not active.")
		return
	}

	s["status"] = "CANCELED"
	d.closes++
	sendJSON(w, 200, s)
}

// say takes a session's status, if need be with an amount, or a refund of an amount: COMPLETED,
// COMPLETED=1000, refund=1000.
func (d *xenditDouble) say(reference, state string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[d.latest[reference]]

	state, amount, hasAmount := strings.Cut(state, "=")
	if state == "refund" {
		id := "rfd-" + amount
		d.refunds[id] = object{
			"id":                 id,
			"status":             "SUCCEEDED",
			"amount":             json.Number(amount),
			"currency":           "IDR",
			"payment_id":         s["payment_id"],
			"payment_request_id": s["payment_request_id"],
			"reference_id":       "of the owner's own",
		}
		return
	}

	s["status"] = state
	if strings.EqualFold(state, "COMPLETED") {
		s["payment_id"] = "py-" + reference
		s["payment_request_id"] = "pr-" + reference
	}
	if hasAmount {
		s["amount"] = json.Number(amount)
	}
}

func (d *xenditDouble) message(reference, state string) (http.Header, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	event := "payment_session.expired"
	data := d.sessions[d.latest[reference]]

	state, amount, _ := strings.Cut(state, "=")
	switch {
	case state == "refund":
		event = "refund.succeeded"
		data = d.refunds["rfd-"+amount]
	case strings.EqualFold(state, "COMPLETED"):
		event = "payment_session.completed"
	}

	header := http.Header{
		"Content-Type":     {"application/json"},
		"X-Callback-Token": {d.token},
	}
	return header, string(mustJSON(object{
		"event":       event,
		"business_id": "b1",
		"created":     "2000-01-01T00:00:00Z",
		"data":        data,
	}))
}
