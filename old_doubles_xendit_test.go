//go:build cgo

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
)

// oldXenditDouble stands in for Xendit and its Payment Sessions.
type oldXenditDouble struct {
	key    string
	token  string // sent with notifications
	routes *http.ServeMux

	// What a test may change before it begins.
	older     bool // an older account: refunds have an id, and no paths of /v3
	noLists   bool // an account that may not list its refunds
	nested    bool // the data of a refund's notification is in data.data
	anyURL    bool // also http addresses to return to, which Xendit refuses
	discounts bool // lines may be negative, of which Xendit's documentation says nothing

	mu        sync.Mutex
	sessions  map[string]object   // by payment_session_id
	ids       map[string][]string // payment_session_ids by reference_id, the latest last
	customers map[string]bool     // by customer.reference_id
	refunds   []object
	disputes  []object
	creates   int
	closes    int      // of sessions
	requests  []string // the bodies that created sessions
}

func newXenditDouble() *oldXenditDouble {
	d := &oldXenditDouble{
		key:       oldXenditKey,
		token:     oldXenditToken,
		routes:    http.NewServeMux(),
		sessions:  map[string]object{},
		ids:       map[string][]string{},
		customers: map[string]bool{},
	}
	d.routes.HandleFunc("POST /sessions", d.createSession)
	d.routes.HandleFunc("GET /sessions/{id}", d.sendSession)
	d.routes.HandleFunc("POST /sessions/{id}/cancel", d.closeSession)
	d.routes.HandleFunc("GET /refunds", d.sendRefunds)
	d.routes.HandleFunc("GET /refunds/{id}", d.sendRefund)
	d.routes.HandleFunc("GET /v3/refunds", d.sendRefunds)
	d.routes.HandleFunc("GET /v3/refunds/{id}", d.sendRefund)
	d.routes.HandleFunc("GET /v1/disputes/{id}", d.sendDispute)
	return d
}

func (d *oldXenditDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if !oldSignedIn(r, d.key) {
		oldSendXenditError(w, 401, "INVALID_API_KEY", "The API key provided is invalid.")
		return
	}
	d.routes.ServeHTTP(w, r)
}

func oldSendXenditError(w http.ResponseWriter, status int, code, message string) {
	oldSendJSON(w, status, object{"error_code": code, "message": message})
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
	Customer    *struct {
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

	if in.Customer != nil {
		err := in.checkCustomer()
		if err != nil {
			return err
		}
	}
	return in.checkItems()
}

var givenNames = regexp.MustCompile(`^[\pL\pN ]{1,50}$`)

var alphanumeric = regexp.MustCompile(`^[0-9A-Za-z]{1,255}$`)

var e164 = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

func (in xenditSessionRequest) checkCustomer() error {
	c := in.Customer
	if !alphanumeric.MatchString(c.Reference) {
		return errors.New("customer.reference_id has 1 to 255 letters and digits")
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

		if i.Reference == "" {
			return errors.New("items.reference_id is required")
		}
		if i.Name == "" {
			return errors.New("items.name is required")
		}
		if i.Currency != "IDR" {
			return errors.New("items.currency is not IDR")
		}
		if i.Category == "" {
			return errors.New("items.category is required")
		}
		if i.Price == 0 {
			return errors.New("items.net_unit_amount is zero")
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

func (in xenditSessionRequest) checkPositive() error {
	for _, i := range in.Items {
		if i.Price < 0 {
			return errors.New("items.net_unit_amount is not positive")
		}
	}
	return nil
}

func (in xenditSessionRequest) checkReturnURLs() error {
	for _, address := range []string{in.Success, in.Cancel} {
		if !strings.HasPrefix(address, "https://") {
			return fmt.Errorf("%s is no https address", address)
		}
	}
	return nil
}

func (d *oldXenditDouble) createSession(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var in xenditSessionRequest
	err := decodeStrictly(body, &in)
	if err == nil {
		err = in.check()
	}
	if err == nil && !d.discounts {
		err = in.checkPositive()
	}
	if err == nil && !d.anyURL {
		err = in.checkReturnURLs()
	}
	if err != nil {
		oldSendXenditError(w, 400, "API_VALIDATION_ERROR", err.Error())
		return
	}
	if in.Customer != nil {
		if d.customers[in.Customer.Reference] {
			oldSendXenditError(w, 409, "DUPLICATE_ERROR", "customer.reference_id was used before")
			return
		}
		d.customers[in.Customer.Reference] = true
	}

	// A reference_id may be used again: then there are two sessions of it.
	d.creates++
	d.requests = append(d.requests, string(body))
	id := fmt.Sprintf("ps-%d", d.creates)
	d.ids[in.Reference] = append(d.ids[in.Reference], id)
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
	oldSendJSON(w, 201, d.sessions[id])
}

func (d *oldXenditDouble) sendSession(w http.ResponseWriter, r *http.Request) {
	oldSendFound(w, d.sessions[r.PathValue("id")])
}

// sendRefunds lists the refunds of a payment, two a page.
func (d *oldXenditDouble) sendRefunds(w http.ResponseWriter, r *http.Request) {
	if d.noLists {
		oldSendXenditError(w, 403, "REQUEST_FORBIDDEN_ERROR", "The API key is forbidden to perform this request.")
		return
	}
	if !d.hasPath(r) {
		oldSendFound(w, nil)
		return
	}

	const pageSize = 2
	after := r.FormValue("after_id")
	list := []object{}
	more := false
	for _, refund := range d.refunds {
		switch {
		case refund["payment_request_id"] != r.FormValue("payment_request_id"):
		case after != "":
			if refund["id"] == after {
				after = ""
			}
		case len(list) == pageSize:
			more = true
		default:
			list = append(list, d.asAccount(refund))
		}
	}
	oldSendJSON(w, 200, object{"data": list, "has_more": more})
}

func (d *oldXenditDouble) sendRefund(w http.ResponseWriter, r *http.Request) {
	refund := entryNamed(d.refunds, r.PathValue("id"))
	if refund == nil || !d.hasPath(r) {
		oldSendFound(w, nil)
		return
	}
	oldSendJSON(w, 200, d.asAccount(refund))
}

// hasPath reports whether the account has the path of a request about refunds. Those of /v3 want their
// version.
func (d *oldXenditDouble) hasPath(r *http.Request) bool {
	newer := strings.HasPrefix(r.URL.Path, "/v3/")
	if newer && r.Header.Get("Api-Version") != "2024-11-11" {
		return false
	}
	return newer != d.older
}

// asAccount is a refund as an account of this age is sent it.
func (d *oldXenditDouble) asAccount(refund object) object {
	if d.older {
		return refund
	}
	newer := maps.Clone(refund)
	newer["refund_id"] = refund["id"]
	delete(newer, "id")
	return newer
}

func entryNamed(list []object, id string) object {
	for _, o := range list {
		if o["id"] == id {
			return o
		}
	}
	return nil
}

func (d *oldXenditDouble) sendDispute(w http.ResponseWriter, r *http.Request) {
	oldSendFound(w, entryNamed(d.disputes, r.PathValue("id")))
}

func oldSendFound(w http.ResponseWriter, found object) {
	if found == nil {
		oldSendXenditError(w, 404, "DATA_NOT_FOUND", "not found")
		return
	}
	oldSendJSON(w, 200, found)
}

func (d *oldXenditDouble) closeSession(w http.ResponseWriter, r *http.Request) {
	s := d.sessions[r.PathValue("id")]
	if s == nil {
		oldSendXenditError(w, 404, "DATA_NOT_FOUND", "not found")
		return
	}
	if s["status"] != "ACTIVE" {
		oldSendXenditError(w, 400, "SESSION_NOT_ACTIVE", "The session is not active.")
		return
	}

	s["status"] = "CANCELED"
	d.closes++
	oldSendJSON(w, 200, s)
}

// latest is the session of a reference that was created last, or the session of this name.
func (d *oldXenditDouble) latest(name string) object {
	ids := d.ids[name]
	if len(ids) > 0 {
		name = ids[len(ids)-1]
	}
	return d.sessions[name]
}

// say takes a session's status, if need be with an amount: COMPLETED, COMPLETED=1000. Or it takes a refund or
// a dispute of an amount: refund=1000, refund/PENDING=1000, dispute/LOST=1000. Instead of a reference, name
// may be that of a session.
func (d *oldXenditDouble) say(name, state string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.latest(name)

	state, amount, hasAmount := strings.Cut(state, "=")
	kind, status, _ := strings.Cut(state, "/")
	switch kind {
	case "refund":
		d.sayRefund(s, cmp.Or(status, "SUCCEEDED"), amount)
		return
	case "dispute":
		d.sayDispute(s, status, amount)
		return
	}

	s["status"] = state
	if strings.EqualFold(state, "COMPLETED") {
		d.setPayment(s)
	}
	if hasAmount {
		s["amount"] = json.Number(amount)
	}
}

// setPayment gives a completed session its payment, with the session's name if its reference has several.
func (d *oldXenditDouble) setPayment(s object) {
	if s["payment_id"] != nil {
		return
	}

	name := s["reference_id"].(string)
	if len(d.ids[name]) > 1 {
		name += "-" + s["payment_session_id"].(string)
	}
	s["payment_id"] = "py-" + name
	s["payment_request_id"] = "pr-" + name
}

// sayRefund sets the status of the session's refund of an amount.
func (d *oldXenditDouble) sayRefund(s object, status, amount string) {
	refund := d.refundOf(s, amount)
	if refund == nil {
		refund = object{
			"id":                 fmt.Sprintf("rfd-%d", len(d.refunds)+1),
			"amount":             json.Number(amount),
			"currency":           "IDR",
			"payment_id":         s["payment_id"],
			"payment_request_id": s["payment_request_id"],
			"reference_id":       "of the owner's own",
		}
		d.refunds = append(d.refunds, refund)
	}
	refund["status"] = status
}

func (d *oldXenditDouble) refundOf(s object, amount string) object {
	for _, refund := range d.refunds {
		if refund["payment_id"] == s["payment_id"] && refund["amount"] == json.Number(amount) {
			return refund
		}
	}
	return nil
}

// sayDispute sets the status and the amount of the session's dispute.
func (d *oldXenditDouble) sayDispute(s object, status, amount string) {
	id := "mi-dspt-" + s["payment_session_id"].(string)
	dispute := entryNamed(d.disputes, id)
	if dispute == nil {
		dispute = object{
			"id":               id,
			"currency":         "IDR",
			"payment_id":       s["payment_id"],
			"reference_id":     s["reference_id"],
			"related_disputes": []string{},
		}
		d.disputes = append(d.disputes, dispute)
	}
	dispute["status"] = status
	dispute["amount"] = object{"initial": amount + ".00", "terminal": nil}
}

// pay says a state if the session's page can be paid.
func (d *oldXenditDouble) pay(name, state string) bool {
	if !d.canBePaid(name) {
		return false
	}
	d.say(name, state)
	return true
}

func (d *oldXenditDouble) canBePaid(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()

	s := d.latest(name)
	return s != nil && s["status"] == "ACTIVE" && time.Now().Before(s["expires_at"].(time.Time))
}

// message is the notification of what was said before.
func (d *oldXenditDouble) message(name, state string) (http.Header, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.latest(name)

	state, amount, _ := strings.Cut(state, "=")
	kind, status, _ := strings.Cut(state, "/")
	body := object{
		"event":       "payment_session.expired",
		"business_id": "b1",
		"created":     "2000-01-01T00:00:00Z",
		"data":        s,
	}
	switch {
	case kind == "refund":
		body["event"] = "refund." + strings.ToLower(cmp.Or(status, "SUCCEEDED"))
		body["data"] = d.asAccount(d.refundOf(s, amount))
		if d.nested {
			inner := maps.Clone(body)
			body["data"] = inner
		}
	case kind == "dispute":
		body = maps.Clone(entryNamed(d.disputes, "mi-dspt-"+s["payment_session_id"].(string)))
		body["event"] = "dispute." + strings.ToLower(status)
	case strings.EqualFold(state, "COMPLETED"):
		body["event"] = "payment_session.completed"
	}

	header := http.Header{
		"Content-Type":     {"application/json"},
		"X-Callback-Token": {d.token},
	}
	return header, string(mustJSON(body))
}
