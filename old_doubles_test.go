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

// oldGatewayDouble stands in for a gateway. A test sets the states of its sessions.
type oldGatewayDouble interface {
	http.Handler
	// say sets the state of a session's payment, which may end with "=" and an amount.
	say(reference, state string)
	// pay does what a buyer on the session's page does, and reports whether the page let them: it may be
	// closed, ended or paid.
	pay(reference, state string) bool
	// message returns the notification of a state, signed as the gateway signs it.
	message(reference, state string) (header http.Header, body string)
}

func oldSendJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// oldSignedIn reports whether a request has the key as its user name and no password, as both gateways want it.
func oldSignedIn(r *http.Request, key string) bool {
	user, password, ok := r.BasicAuth()
	return ok && user == key && password == ""
}

// decodeStrictly refuses fields that the value does not have.
func decodeStrictly(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// oldMidtransDouble stands in for Midtrans: Snap creates pages, and the API v2 knows the transactions that
// buyers begin there.
type oldMidtransDouble struct {
	key    string
	routes *http.ServeMux

	mu       sync.Mutex
	pages    map[string]*midtransPageDouble // by order_id
	creates  int
	closes   int      // of pages
	requests []string // the bodies that created pages
	notifyAt string   // where the last of them wanted its notifications
}

// midtransPageDouble is a page and the transactions that began there, one after the other.
type midtransPageDouble struct {
	orderID      string
	token        string
	amount       string // in rupiah
	ends         time.Time
	closed       bool
	transactions []*midtransPayment
}

// midtransPayment is a transaction: a buyer has chosen how to pay.
type midtransPayment struct {
	id       string
	orderID  string
	kind     string   // dana and va are known by transaction_id only; empty: known by order_id too
	status   string   // transaction_status
	fraud    string   // fraud_status
	paid     string   // in rupiah
	refunded string   // in rupiah, in all
	refunds  []string // in rupiah, each
}

func newMidtransDouble() *oldMidtransDouble {
	d := &oldMidtransDouble{
		key:    oldMidtransKey,
		routes: http.NewServeMux(),
		pages:  map[string]*midtransPageDouble{},
	}
	d.routes.HandleFunc("POST /snap/v1/transactions", d.createPage)
	d.routes.HandleFunc("POST /snap/v1/transactions/{token}/cancel", d.closePage)
	d.routes.HandleFunc("GET /v2/{name}/status", d.sendTransaction)
	d.routes.HandleFunc("POST /v2/{name}/cancel", d.changing(midtransCancel))
	d.routes.HandleFunc("POST /v2/{name}/deny", d.changing(midtransDeny))
	d.routes.HandleFunc("POST /v2/{name}/approve", d.changing(midtransApprove))
	return d
}

func (d *oldMidtransDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if !oldSignedIn(r, d.key) {
		oldSendJSON(w, 401, object{
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
	if in.Expiry.Duration < 5 || in.Expiry.Duration > 7*24*60 {
		return errors.New("expiry.duration is not between 5 minutes and 7 days")
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
		if i.Price <= 0 && i.ID != "discount" {
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
func (d *oldMidtransDouble) readRequest(header http.Header, body []byte) (in midtransPageRequest, err error) {
	if header.Get("Content-Type") != "application/json" {
		return in, errors.New("the body is not JSON")
	}
	if header.Get("X-Override-Notification") == "" {
		return in, errors.New("the double wants to know where notifications go")
	}
	if len(body) > 16000 {
		return in, errors.New("the request has more than 16 KB")
	}
	err = decodeStrictly(body, &in)
	if err != nil {
		return in, err
	}

	// Until a way to pay was chosen, the same order_id is taken again.
	page := d.pages[in.Transaction.OrderID]
	if page != nil && len(page.transactions) > 0 {
		return in, errors.New("transaction_details.order_id has already been taken")
	}
	return in, in.check()
}

func (d *oldMidtransDouble) createPage(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	in, err := d.readRequest(r.Header, body)
	if err != nil {
		oldSendJSON(w, 400, object{"error_messages": []string{err.Error()}})
		return
	}

	d.creates++
	d.requests = append(d.requests, string(body))
	d.notifyAt = r.Header.Get("X-Override-Notification")
	page := &midtransPageDouble{
		orderID: in.Transaction.OrderID,
		token:   fmt.Sprintf("token-%d", d.creates),
		amount:  strconv.FormatInt(in.Transaction.GrossAmount, 10),
		ends:    time.Now().Add(time.Duration(in.Expiry.Duration) * time.Minute),
	}
	d.pages[page.orderID] = page // An earlier token of this order_id is dead now.
	oldSendJSON(w, 201, object{
		"token":        page.token,
		"redirect_url": "https://app.sandbox.midtrans.com/snap/v4/redirection/" + page.token,
	})
}

func (d *oldMidtransDouble) closePage(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, message string) {
		oldSendJSON(w, status, object{"error_messages": []string{message}})
	}

	for _, page := range d.pages {
		if page.token != r.PathValue("token") {
			continue
		}
		if page.closed {
			refuse(400, "token already canceled")
			return
		}
		if page.inProgress() {
			refuse(400, "Transaction is on progress")
			return
		}

		page.closed = true
		d.closes++
		oldSendJSON(w, 200, object{"canceled_at": "2000-01-01T00:00:00.000Z"})
		return
	}
	refuse(404, "token not found")
}

// inProgress reports whether a transaction waits for its money or for an approval.
func (page *midtransPageDouble) inProgress() bool {
	t := page.latest()
	return t != nil && (t.is("pending", "authorize") || t.fraud == "challenge")
}

// latest is the transaction that began last, or nil.
func (page *midtransPageDouble) latest() *midtransPayment {
	if len(page.transactions) == 0 {
		return nil
	}
	return page.transactions[len(page.transactions)-1]
}

func (t *midtransPayment) is(statuses ...string) bool {
	return slices.Contains(statuses, strings.ToLower(t.status))
}

// find returns the transaction of a name: its own, or the order_id, which not all are known by. It is nil if
// there is none.
func (d *oldMidtransDouble) find(name string) (found *midtransPayment) {
	for _, page := range d.pages {
		for _, t := range page.transactions {
			if t.id == name || t.orderID == name && t.kind == "" {
				found = t
			}
		}
	}
	return found
}

func (d *oldMidtransDouble) sendTransaction(w http.ResponseWriter, r *http.Request) {
	t := d.find(r.PathValue("name"))
	if t == nil {
		sendNoTransaction(w)
		return
	}

	answer := d.transaction(t)
	if t.kind == "dana" {
		answer["order_id"] = t.id
	}
	oldSendJSON(w, 200, answer)
}

// changing handles a request to change a transaction. change reports whether its status allows that.
func (d *oldMidtransDouble) changing(change func(*midtransPayment) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t := d.find(r.PathValue("name"))
		if t == nil {
			sendNoTransaction(w)
			return
		}

		if !change(t) {
			oldSendJSON(w, 412, object{
				"status_code":    "412",
				"status_message": "Merchant cannot modify the status of the transaction",
			})
			return
		}
		oldSendJSON(w, 200, d.transaction(t))
	}
}

func midtransCancel(t *midtransPayment) bool {
	if !t.is("pending", "authorize", "capture") {
		return false
	}
	t.status = "cancel"
	return true
}

func midtransDeny(t *midtransPayment) bool {
	if t.fraud != "challenge" {
		return false
	}
	t.status, t.fraud = "deny", "deny"
	return true
}

func midtransApprove(t *midtransPayment) bool {
	if t.fraud != "challenge" {
		return false
	}
	t.fraud = "accept"
	return true
}

func sendNoTransaction(w http.ResponseWriter) {
	oldSendJSON(w, 404, object{
		"status_code":    "404",
		"status_message": "Transaction doesn't exist.",
	})
}

// transaction is how Midtrans describes a payment, in answers and in notifications.
func (d *oldMidtransDouble) transaction(p *midtransPayment) object {
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
		"transaction_id":     p.id,
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
	for i, amount := range p.refunds {
		list, _ := t["refunds"].([]object)
		t["refunds"] = append(list, object{
			"refund_chargeback_id": i + 1,
			"refund_amount":        amount + ".00",
			"reason":               "",
		})
	}
	return t
}

// say takes a transaction_status, if need be with a fraud_status or an amount: capture, capture/challenge,
// settlement=1000, partial_refund=1000 (of all refunds). Before a colon stands the kind of a new transaction:
// dana:pending, va:settlement.
func (d *oldMidtransDouble) say(reference, state string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	page := d.pages[reference]
	t := page.saying(state)
	if t != page.latest() {
		page.transactions = append(page.transactions, t)
	}
	t.say(state)
}

// saying returns the transaction that is said to have a state: the latest, or a new one if a buyer has to
// begin again, because the latest has failed.
func (page *midtransPageDouble) saying(state string) *midtransPayment {
	latest := page.latest()
	failed := latest != nil && latest.is("deny", "failure", "cancel", "expire")

	said := &midtransPayment{}
	said.say(state)
	if latest != nil && (!failed || said.is("deny", "failure", "cancel", "expire")) {
		return latest
	}

	t := &midtransPayment{
		id:      "tx-" + page.orderID,
		orderID: page.orderID,
		paid:    page.amount,
	}
	if latest != nil {
		t.id += fmt.Sprintf("-%d", len(page.transactions)+1)
	}
	return t
}

func (t *midtransPayment) say(state string) {
	kind, rest, hasKind := strings.Cut(state, ":")
	if hasKind {
		t.kind, state = kind, rest
	}

	state, amount, hasAmount := strings.Cut(state, "=")
	t.status, t.fraud, _ = strings.Cut(state, "/")
	if !hasAmount {
		return
	}
	if !strings.Contains(state, "refund") && !strings.Contains(state, "chargeback") {
		t.paid = amount
		return
	}

	before, _ := strconv.Atoi(t.refunded)
	now, _ := strconv.Atoi(amount)
	if now > before {
		t.refunds = append(t.refunds, strconv.Itoa(now-before))
	}
	t.refunded = amount
}

// pay says a state if the page, or a transaction that waits for its money, can be paid.
func (d *oldMidtransDouble) pay(reference, state string) bool {
	if !d.canBePaid(reference) {
		return false
	}
	d.say(reference, state)
	return true
}

func (d *oldMidtransDouble) canBePaid(reference string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()

	page := d.pages[reference]
	if page == nil || !time.Now().Before(page.ends) {
		return false
	}
	t := page.latest()
	if t != nil && t.is("pending") {
		return true
	}
	return !page.closed && (t == nil || t.is("deny", "failure", "cancel", "expire"))
}

// message is about the transaction that has the state, or would have it. It names our order_id always.
func (d *oldMidtransDouble) message(reference, state string) (http.Header, string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	page := d.pages[reference]
	said := midtransPayment{}
	said.say(state)
	t := *page.saying(state)
	for _, earlier := range page.transactions {
		if earlier.is(strings.ToLower(said.status)) {
			t = *earlier
		}
	}
	t.refunds = slices.Clone(t.refunds)
	t.say(state)
	body := d.transaction(&t)

	// A message in upper case has its signature in upper case too.
	if t.status == strings.ToUpper(t.status) {
		body["signature_key"] = strings.ToUpper(body["signature_key"].(string))
	}
	return http.Header{"Content-Type": {"application/json"}}, string(mustJSON(body))
}
