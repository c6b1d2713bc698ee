//go:build cgo

package main

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ---- Doubles of the gateways, written from their documentation alone. They refuse what the real ones refuse.

const (
	midtransKey = "SB-Mid-server-example"
	xenditKey   = "xnd_development_example"
	xenditToken = "callback-token-example"
)

// gatewayDouble is a gateway as a test moves it.
type gatewayDouble interface {
	http.Handler
	// say sets what the gateway says of a session: a status, and with =n an amount.
	say(reference, what string)
	// message is the notification that says so, as the gateway signs it.
	message(reference, what string) (http.Header, string)
}

type midtransDouble struct {
	key string

	mu              sync.Mutex
	payments        map[string]*midtransPayment // by order_id
	creates, closes int
	requests        []string // the accepted requests to create
	notifyAt        string
}

// midtransPayment is a page and, once the buyer has chosen how to pay, a transaction.
type midtransPayment struct {
	orderID, token                       string
	gross, paid                          int64
	status, fraud, transaction, refunded string
	closed                               bool
}

func refuse(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

func (d *midtransDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if user, password, ok := r.BasicAuth(); !ok || user != d.key || password != "" {
		refuse(w, 401, object{"status_code": "401", "error_messages": []string{"Access denied due to unauthorized transaction"}})
		return
	}
	var ref, token string
	var p *midtransPayment
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case len(path) == 3 && path[0] == "v2":
		ref = path[1]
		p = d.payments[ref]
	case len(path) == 5 && strings.HasPrefix(r.URL.Path, "/snap/v1/transactions/"):
		token = path[3]
		for _, of := range d.payments {
			if of.token == token {
				p = of
			}
		}
	}
	switch what := r.Method + " " + path[len(path)-1]; {
	case r.Method == "POST" && r.URL.Path == "/snap/v1/transactions":
		d.create(w, r)
	case what == "POST cancel" && token != "" && p != nil:
		p.closed = true
		d.closes++
		refuse(w, 200, object{})
	case what == "GET status" && p != nil && p.status != "":
		refuse(w, 200, d.transaction(p))
	case (what == "POST cancel" || what == "POST expire") && p != nil && p.status != "":
		switch status := strings.ToLower(p.status); {
		case status == "pending", status == "authorize", status == "capture" && what == "POST cancel":
			p.status = strings.TrimPrefix(what, "POST ")
			refuse(w, 200, d.transaction(p))
		default:
			refuse(w, 412, object{"status_code": "412", "status_message": "Transaction status cannot be updated."})
		}
	default:
		refuse(w, 404, object{"status_code": "404", "status_message": "Transaction doesn't exist."})
	}
}

var midtransChannels = strings.Fields("bca_va bni_va bri_va permata_va echannel other_qris gopay shopeepay dana ovo credit_card alfamart indomaret")

func (d *midtransDouble) create(w http.ResponseWriter, r *http.Request) {
	var in struct { // an int64 takes no fraction
		Transaction struct {
			OrderID string `json:"order_id"`
			Gross   int64  `json:"gross_amount"`
		} `json:"transaction_details"`
		Items []struct {
			ID, Name        string
			Price, Quantity int64
		} `json:"item_details"`
		Customer struct {
			First        string `json:"first_name"`
			Email, Phone string
		} `json:"customer_details"`
		Enabled   []string `json:"enabled_payments"`
		Callbacks struct{ Finish, Error string }
		Expiry    struct {
			Start    string `json:"start_time"`
			Unit     string
			Duration int64
		}
	}
	body, _ := io.ReadAll(r.Body)
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var faults []string
	fault := func(wrong bool, text string) {
		if wrong {
			faults = append(faults, text)
		}
	}
	err := dec.Decode(&in)
	fault(err != nil, fmt.Sprint("the body: ", err))
	ref, sum := in.Transaction.OrderID, int64(0)
	fault(ref == "" || len(ref) > 50, "transaction_details.order_id is required and max 50 chars")
	fault(d.payments[ref] != nil, "transaction_details.order_id has already been taken")
	for _, i := range in.Items {
		sum += i.Price * i.Quantity
		fault(len([]rune(i.Name)) > 50 || i.Name == "", "item_details.name is too long")
		fault(len(i.ID) > 50 || i.Price <= 0 || i.Quantity <= 0, "item_details is invalid")
	}
	fault(in.Transaction.Gross <= 0 || len(in.Items) > 0 && sum != in.Transaction.Gross, "transaction_details.gross_amount is not equal to the sum of item_details")
	for _, c := range in.Enabled {
		fault(!slices.Contains(midtransChannels, c), "enabled_payments "+c+" is unknown")
	}
	_, err = time.Parse("2006-01-02 15:04:05 -0700", in.Expiry.Start)
	fault(err != nil || in.Expiry.Unit != "minute" || in.Expiry.Duration < 1, "expiry is invalid")
	fault(r.Header.Get("X-Override-Notification") == "", "the double wants an X-Override-Notification")
	fault(r.Header.Get("Content-Type") != "application/json", "the body is no JSON")
	if faults != nil {
		refuse(w, 400, object{"error_messages": faults})
		return
	}
	d.creates++
	d.requests, d.notifyAt = append(d.requests, string(body)), r.Header.Get("X-Override-Notification")
	token := fmt.Sprintf("token-%d", d.creates)
	d.payments[ref] = &midtransPayment{orderID: ref, token: token, gross: in.Transaction.Gross, paid: in.Transaction.Gross, transaction: "tx-" + ref}
	refuse(w, 201, object{"token": token, "redirect_url": "https://app.sandbox.midtrans.com/snap/v4/redirection/" + token})
}

var midtransCodes = map[string]string{"pending": "201", "deny": "202", "failure": "202", "expire": "407", "cancel": "200"}

func (d *midtransDouble) transaction(p *midtransPayment) object {
	code, gross := midtransCodes[strings.ToLower(p.status)], fmt.Sprintf("%d.00", p.paid)
	if code == "" {
		code = "200"
	}
	t := object{"status_code": code, "order_id": p.orderID, "gross_amount": gross, "transaction_status": p.status,
		"transaction_id": p.transaction, "payment_type": "bank_transfer", "currency": "IDR", "transaction_time": "2000-01-01 07:00:00",
		"signature_key": fmt.Sprintf("%x", sha512.Sum512([]byte(p.orderID+code+gross+d.key)))}
	if p.fraud != "" {
		t["fraud_status"] = p.fraud
	}
	if p.refunded != "" {
		t["refund_amount"] = p.refunded + ".00"
	}
	return t
}

// say takes a transaction_status such as capture, capture/challenge or settlement=1000.
func (d *midtransDouble) say(reference, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.payments[reference].say(what)
}

func (p *midtransPayment) say(what string) {
	what, amount, _ := strings.Cut(what, "=")
	p.status, p.fraud, _ = strings.Cut(what, "/")
	switch {
	case amount == "":
	case strings.Contains(p.status, "refund") || strings.Contains(p.status, "chargeback"):
		p.refunded = amount
	default:
		fmt.Sscan(amount, &p.paid)
	}
}

func (d *midtransDouble) message(reference, what string) (http.Header, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := *d.payments[reference]
	p.say(what)
	m := d.transaction(&p)
	if p.status == strings.ToUpper(p.status) {
		m["signature_key"] = strings.ToUpper(m["signature_key"].(string))
	}
	return http.Header{"Content-Type": {"application/json"}}, string(mustJSON(m))
}

type xenditDouble struct {
	key, token string

	mu              sync.Mutex
	sessions        map[string]object // by payment_session_id
	latest          map[string]string // payment_session_id by reference_id
	refunds         map[string]object
	creates, closes int
	requests        []string
}

func (d *xenditDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if user, password, ok := r.BasicAuth(); !ok || user != d.key || password != "" {
		refuse(w, 401, object{"error_code": "INVALID_API_KEY", "message": "The API key provided is invalid."})
		return
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var s object
	if len(path) > 1 && path[0] == "sessions" {
		s = d.sessions[path[1]]
	} else if len(path) == 2 && path[0] == "refunds" && r.Method == "GET" {
		s = d.refunds[path[1]]
	}
	switch {
	case r.Method == "POST" && r.URL.Path == "/sessions":
		d.create(w, r)
	case s == nil:
		refuse(w, 404, object{"error_code": "DATA_NOT_FOUND", "message": "not found"})
	case r.Method == "GET" && len(path) == 2:
		refuse(w, 200, s)
	case r.Method == "POST" && path[len(path)-1] == "cancel" && s["status"] == "ACTIVE":
		s["status"] = "CANCELED"
		d.closes++
		refuse(w, 200, s)
	default:
		refuse(w, 400, object{"error_code": "SESSION_NOT_ACTIVE", "message": "The session is not active."})
	}
}

var e164 = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

func (d *xenditDouble) create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Mode, Currency, Country, Locale, Description string
		Amount                                       int64
		Reference                                    string `json:"reference_id"`
		SessionType                                  string `json:"session_type"`
		Customer                                     struct {
			Type, Email string
			Reference   string  `json:"reference_id"`
			Mobile      *string `json:"mobile_number"`
			Individual  struct {
				GivenNames string `json:"given_names"`
			} `json:"individual_detail"`
		}
		Items []struct {
			Name, Type, Currency string
			Quantity             int64
			Price                int64  `json:"net_unit_amount"`
			Reference            string `json:"reference_id"`
		}
		Channels  []string  `json:"allowed_payment_channels"`
		ExpiresAt time.Time `json:"expires_at"`
		Success   string    `json:"success_return_url"`
		Cancel    string    `json:"cancel_return_url"`
	}
	body, _ := io.ReadAll(r.Body)
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	code, message := "", ""
	fault := func(wrong bool, text string) {
		if wrong && message == "" {
			code, message = "API_VALIDATION_ERROR", text
		}
	}
	err := dec.Decode(&in)
	fault(err != nil, fmt.Sprint("the body: ", err))
	fault(in.Reference == "" || len(in.Reference) > 64 || len(in.Customer.Reference) > 255, "reference_id")
	fault(in.SessionType != "PAY" || in.Mode != "PAYMENT_LINK" || in.Currency != "IDR" || in.Country != "ID", "session_type, mode, currency, country")
	fault(in.Customer.Reference == "" || in.Customer.Type != "INDIVIDUAL" || in.Customer.Individual.GivenNames == "", "customer")
	fault(in.Customer.Mobile != nil && !e164.MatchString(*in.Customer.Mobile), "mobile_number is not E.164")
	sum := int64(0)
	for _, i := range in.Items {
		sum += i.Price * i.Quantity
		fault(i.Currency != "IDR" || i.Name == "" || i.Price <= 0 || !slices.Contains([]string{"DIGITAL_PRODUCT", "PHYSICAL_PRODUCT", "FEE"}, i.Type), "items")
	}
	fault(in.Amount <= 0 || len(in.Items) > 0 && sum != in.Amount, "the items do not sum to the amount")
	fault(in.ExpiresAt.Before(time.Now().Add(10*time.Minute)), "expires_at must be 10 minutes ahead at least")
	if d.latest[in.Reference] != "" && message == "" {
		code, message = "DUPLICATE_ERROR", "reference_id was used before"
	}
	if message != "" {
		refuse(w, map[string]int{"DUPLICATE_ERROR": 409, "API_VALIDATION_ERROR": 400}[code], object{"error_code": code, "message": message})
		return
	}
	d.creates++
	d.requests = append(d.requests, string(body))
	id := fmt.Sprintf("ps-%d", d.creates)
	d.latest[in.Reference] = id
	d.sessions[id] = object{"payment_session_id": id, "reference_id": in.Reference, "status": "ACTIVE", "amount": in.Amount, "currency": "IDR",
		"payment_link_url": "https://xen.to/" + id, "expires_at": in.ExpiresAt, "country": "ID"}
	refuse(w, 201, d.sessions[id])
}

// say takes a session's status such as COMPLETED or COMPLETED=1000, or refund=1000.
func (d *xenditDouble) say(reference, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[d.latest[reference]]
	status, amount, _ := strings.Cut(what, "=")
	if status == "refund" {
		id := "rfd-" + amount
		d.refunds[id] = object{"id": id, "status": "SUCCEEDED", "amount": json.Number(amount), "currency": "IDR",
			"payment_id": s["payment_id"], "payment_request_id": s["payment_request_id"], "reference_id": "of the owner's own"}
		return
	}
	s["status"] = status
	if strings.EqualFold(status, "COMPLETED") {
		s["payment_id"], s["payment_request_id"] = "py-"+reference, "pr-"+reference
	}
	if amount != "" {
		s["amount"] = json.Number(amount)
	}
}

func (d *xenditDouble) message(reference, what string) (http.Header, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	event, data := "payment_session.expired", d.sessions[d.latest[reference]]
	if status, amount, _ := strings.Cut(what, "="); status == "refund" {
		event, data = "refund.succeeded", d.refunds["rfd-"+amount]
	} else if strings.EqualFold(status, "COMPLETED") {
		event = "payment_session.completed"
	}
	return http.Header{"Content-Type": {"application/json"}, "X-Callback-Token": {d.token}},
		string(mustJSON(object{"event": event, "business_id": "b1", "created": "2000-01-01T00:00:00Z", "data": data}))
}

// ---- A shop that sells through the doubles

const paymentCatalog = `{
  "products": [{"slug": "kopi", "title": "Kopi Gayo", "price": 85000, "stock": 10},
    {"slug": "panjang", "title": "` + "Kopi Gayo dengan nama yang lebih panjang daripada yang gateway mau terima – 250 g" + `", "price": 1000},
    {"slug": "gratis", "title": "Panduan", "price": 0}],
  "payment_methods": [
    {"code": "snap", "name": "Midtrans", "provider": "midtrans", "fee": 2500},
    {"code": "qris", "name": "QRIS", "provider": "midtrans"},
    {"code": "link", "name": "Xendit", "provider": "xendit", "fee": 2500},
    {"code": "va_bca", "name": "BCA", "provider": "xendit"},
    {"code": "sandbox", "name": "Percobaan", "provider": "sandbox", "fee": 2500},
    {"code": "bank_transfer", "name": "Transfer BCA", "provider": "manual", "instructions": "BCA 123 456 7890 a.n. Kopi Kita.\nTulis nomor."}]}`

// payLab is the service in a synctest bubble: its clock moves when all wait. Its gateways are the doubles, which it
// reaches at their real addresses, without a socket.
type payLab struct {
	*server
	t                        *testing.T
	file, storeID, key, kopi string
	handler                  http.Handler
	mid                      *midtransDouble
	xen                      *xenditDouble
	logs                     *logBuffer

	mu    sync.Mutex
	fault func(*http.Request) (*http.Response, error) // answers instead of the doubles, if it answers
	calls []string                                    // to gateways
}

// inPayLab runs a test, or with a name a part of one, in a bubble of its own.
func inPayLab(t *testing.T, name string, test func(*testing.T, *payLab)) {
	t.Helper()
	bubble := func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, newPayLab(t)) }) }
	if name == "" {
		bubble(t)
		return
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		bubble(t)
	})
}

func newMidtransDouble() *midtransDouble {
	return &midtransDouble{key: midtransKey, payments: map[string]*midtransPayment{}}
}

func newXenditDouble() *xenditDouble {
	return &xenditDouble{key: xenditKey, token: xenditToken, sessions: map[string]object{}, latest: map[string]string{}, refunds: map[string]object{}}
}

func newPayLab(t *testing.T) *payLab {
	l := &payLab{t: t, file: filepath.Join(t.TempDir(), "test.db"), logs: newLogBuffer(t.Output()), mid: newMidtransDouble(), xen: newXenditDouble()}
	db, err := openDB(l.file, true)
	l.must(err)
	t.Cleanup(func() { l.db.Close() })
	l.must(db.setAddresses("http://shop.test", false, nil))
	l.serve(db)
	l.storeID, l.key = l.addShop("kopi-kita", "")
	l.kopi = l.read("SELECT id FROM products WHERE slug = 'kopi'")
	return l
}

// serve starts the service on a database, as after a crash.
func (l *payLab) serve(db *DB) {
	l.server = newServer(db, settings{rate: 1_000_000, burst: 1_000_000}, slog.New(slog.NewTextHandler(l.logs, nil)))
	l.payments.client.Transport = roundTripper(l.callGateway)
	l.handler = l.routes()
}

func (l *payLab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *payLab) addShop(slug, domain string) (storeID, key string) {
	ctx := context.Background()
	st, err := l.db.AddStore(ctx, Store{Name: "Kopi Kita", Slug: slug, Domain: domain, Plan: "growth", Expiry: 24 * time.Hour, OwnerEmail: slug + "@example.id"},
		PasswordHash{[]byte("salt"), []byte("hash")})
	l.must(err)
	catalog, err := readCatalog([]byte(paymentCatalog))
	l.must(err)
	l.must(l.db.ImportCatalog(ctx, st.ID, catalog))
	l.must(l.db.SetGateway(ctx, st.ID, Gateway{"midtrans", "sandbox", midtransKey, ""}))
	l.must(l.db.SetGateway(ctx, st.ID, Gateway{"xendit", "sandbox", xenditKey, xenditToken}))
	key, hash := newToken("so_")
	_, err = l.db.AddKey(ctx, st.ID, "test", hash)
	l.must(err)
	return st.ID, key
}

// callGateway is the network to the gateways.
func (l *payLab) callGateway(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.calls = append(l.calls, r.Method+" "+r.URL.Path)
	fault := l.fault
	l.mu.Unlock()
	if fault != nil {
		if resp, err := fault(r); resp != nil || err != nil {
			return resp, err
		}
	}
	w := httptest.NewRecorder()
	switch address := r.URL.Scheme + "://" + r.URL.Host; {
	case address == "https://app.sandbox.midtrans.com" && strings.HasPrefix(r.URL.Path, "/snap/"),
		address == "https://api.sandbox.midtrans.com" && strings.HasPrefix(r.URL.Path, "/v2/"):
		l.mid.ServeHTTP(w, r)
	case address == "https://api.xendit.co":
		l.xen.ServeHTTP(w, r)
	default:
		l.t.Errorf("a call to %s", r.URL)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func (l *payLab) setFault(fault func(*http.Request) (*http.Response, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault
}

func (l *payLab) callCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}

var errRefusedConnection = errors.New("connection refused")

func down(*http.Request) (*http.Response, error) { return nil, errRefusedConnection }

// web sends a request. headers are names and values in turn.
func (l *payLab) web(method, address, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, address, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	l.handler.ServeHTTP(w, r)
	return w
}

// newOrder orders two bags of coffee: Rp170.000, and a fee of Rp2.500 with most methods.
func (l *payLab) newOrder(method string) string {
	l.t.Helper()
	return l.orderOf(method, fmt.Sprintf(`{"items":[{"type":"product","product_id":"%s","quantity":2}],"buyer":{"name":"Siti Aminah","email":"siti@example.id","phone":"0812 3456 789"},
		"payment_method":"%s","return_url":"https://kopi.example.id/thanks"}`, l.kopi, method))
}

func (l *payLab) orderOf(method, body string) string {
	l.t.Helper()
	w := l.web("POST", "http://shop.test/v1/orders", body, "Authorization", "Bearer "+l.key, "Content-Type", "application/json")
	var out struct {
		Data struct{ Order struct{ ID string } }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 201 {
		l.t.Fatalf("order by %s: %d %s", method, w.Code, w.Body)
	}
	return out.Data.Order.ID
}

// orderAnswer is what GET /v1/orders/{id} says.
type orderAnswer struct {
	Order struct {
		Status      Status
		PaymentURL  string `json:"payment_url"`
		CheckoutURL string `json:"checkout_url"`
	}
	Session paymentSession `json:"payment_session"`
}

func (l *payLab) get(order string) orderAnswer {
	l.t.Helper()
	w := l.web("GET", "http://shop.test/v1/orders/"+order, "", "Authorization", "Bearer "+l.key)
	var out struct{ Data orderAnswer }
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 {
		l.t.Errorf("GET order: %d %s", w.Code, w.Body)
	}
	if out.Data.Session.PaymentURL != out.Data.Order.PaymentURL {
		l.t.Errorf("payment_url is %q in the session and %q in the order", out.Data.Session.PaymentURL, out.Data.Order.PaymentURL)
	}
	return out.Data
}

func (l *payLab) want(what string, got, want any) {
	l.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		l.t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func (l *payLab) read(query string, args ...any) string {
	l.t.Helper()
	all, err := collect(l.db.reader, column[string], query, args...)
	l.must(err)
	return strings.Join(all, ", ")
}

// outcome is an order's state, its sessions, its events after orderCreated and the stock of coffee.
func (l *payLab) outcome(order string) string {
	l.t.Helper()
	text := l.read("SELECT status FROM orders WHERE id = ?", order) +
		" [" + l.read("SELECT attempt || ' ' || status FROM payment_sessions WHERE order_id = ? ORDER BY attempt", order) + "]"
	if events := l.read("SELECT event FROM events WHERE order_id = ? AND sequence > 1 ORDER BY sequence", order); events != "" {
		text += " " + events
	}
	text += ", stock " + l.read("SELECT stock FROM products WHERE id = ?", l.kopi)
	if l.read("SELECT oversold FROM orders WHERE id = ?", order) == "1" {
		text += ", oversold"
	}
	if l.read("SELECT overpaid FROM orders WHERE id = ?", order) == "1" {
		text += ", overpaid"
	}
	return text
}

// notes are the remarks about an order that changed nothing.
func (l *payLab) notes(order string) string {
	return l.read(`
		SELECT concat_ws(' ', note ->> 'code', note ->> 'amount', note ->> 'status',
		                 '#' || (note ->> 'attempt'), note ->> 'transaction')
		FROM   order_history
		WHERE  order_id = ? AND from_status = to_status`, order)
}

// tick does at once what the service does every 30 s.
func (l *payLab) tick() {
	l.t.Helper()
	ctx := context.Background()
	l.payments.askAll(ctx, l.payments.undecided(""))
	open, err := l.db.PaymentSessionsDue()
	l.must(err)
	for _, s := range open {
		l.payments.check(ctx, s, Notification{})
	}
	l.payments.expire(ctx)
}

func (l *payLab) notify(provider string, header http.Header, body string) int {
	r := httptest.NewRequest("POST", "http://shop.test/notifications/"+provider+"/"+l.storeID, strings.NewReader(body))
	r.Header = header.Clone()
	w := httptest.NewRecorder()
	l.handler.ServeHTTP(w, r)
	return w.Code
}

var ownersMoves = map[string]Transition{"approve": OwnerApproves, "reject": OwnerRejects, "owner-cancel": OwnerCancels, "owner-refund": OwnerRefunds}

// play lets things happen to an order, one after the other:
//
//	get            the shop reads the order, which starts a session
//	settlement     the gateway says so of the latest session, and notifies it twice
//	1:settlement   the same of the first session
//	~settlement    the gateway says so, and the notification is lost
//	?pending       a notification says so, and the gateway does not
//	+24h           time passes, with nobody at work
//	tick           what is due by the clock is done
//	approve …      the owner's moves
func (l *payLab) play(order string, double gatewayDouble, provider, steps string) {
	l.t.Helper()
	for step := range strings.FieldsSeq(steps) {
		attempt, what, numbered := strings.Cut(step, ":")
		if !numbered {
			attempt, what = l.read("SELECT coalesce(max(attempt), 0) FROM payment_sessions WHERE order_id = ?", order), step
		}
		reference, said := order+"-"+attempt, strings.TrimLeft(what, "~?")
		switch {
		case what == "get":
			l.get(order)
			continue
		case what == "tick":
			l.tick()
			continue
		case what[0] == '+':
			d, err := time.ParseDuration(what[1:])
			l.must(err)
			time.Sleep(d)
			continue
		case ownersMoves[what] != "":
			_, err := l.db.Transition(context.Background(), l.storeID, order, ownersMoves[what], Note{Code: NoteText, Text: "test"})
			l.must(err)
			continue
		}
		if what[0] != '?' {
			double.say(reference, said)
		}
		if what[0] == '~' {
			continue
		}
		header, body := double.message(reference, said)
		for range 2 {
			if code := l.notify(provider, header, body); code != 200 {
				l.t.Errorf("%s: the notification is answered %d", step, code)
			}
			l.payments.askAll(context.Background(), l.payments.undecided(""))
		}
	}
}

type payCase struct {
	name, steps, want string
	notes             string // what the remarks are; "" is none
}

func runPayCases(t *testing.T, provider, method string, cases []payCase) {
	for _, c := range cases {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) {
			var double gatewayDouble = l.mid
			if provider == "xendit" {
				double = l.xen
			}
			order := l.newOrder(method)
			l.play(order, double, provider, "get "+c.steps)
			l.want(c.steps, l.outcome(order), c.want)
			l.want("remarks", strings.ReplaceAll(l.notes(order), order, "ORDER"), c.notes)
			l.want("undecided notifications", l.read("SELECT count(*) FROM notifications WHERE decided_at IS NULL"), "0")
		})
	}
}

func TestMidtransTable(t *testing.T) {
	t.Parallel()
	const paid, waits = "paid [1 paid] orderPaid, stock 8", "awaiting_verification [1 active] orderAwaitingVerification, stock 8"
	runPayCases(t, "midtrans", "snap", []payCase{
		// The rows of the table.
		{name: "pending", steps: "pending", want: "pending [1 active], stock 8"},
		{name: "settlement", steps: "pending settlement", want: paid},
		{name: "capture accepted", steps: "capture/accept", want: paid},
		{name: "capture without fraud status", steps: "capture", want: paid},
		{name: "capture challenged", steps: "capture/challenge", want: waits},
		{name: "authorize", steps: "authorize", want: waits},
		{name: "deny", steps: "pending deny", want: "pending [1 failed], stock 8"},
		{name: "capture denied", steps: "capture/deny", want: "pending [1 failed], stock 8"},
		{name: "failure", steps: "failure", want: "pending [1 failed], stock 8"},
		{name: "reversal", steps: "settlement deny", want: "failed [1 failed] orderPaid, orderFailed, stock 10"},
		{name: "cancel", steps: "pending cancel", want: "failed [1 failed] orderFailed, stock 10"},
		{name: "expire before the order's end", steps: "pending expire", want: "pending [1 expired], stock 8"},
		{name: "expire past the order's end", steps: "pending +24h expire", want: "expired [1 expired] orderExpired, stock 10"},
		{name: "refund", steps: "settlement refund=172500", want: "refunded [1 paid] orderPaid, orderRefunded, stock 8"},
		{name: "chargeback", steps: "settlement chargeback", want: "refunded [1 paid] orderPaid, orderRefunded, stock 8"},
		{name: "partial refund", steps: "settlement partial_refund=1000 ?partial_refund", want: paid, notes: "returned_partly 1000 #1"},
		{name: "partial chargeback", steps: "settlement partial_chargeback=900", want: paid, notes: "returned_partly 900 #1"},
		// Values in upper case.
		{name: "SETTLEMENT", steps: "PENDING SETTLEMENT", want: paid},
		{name: "CHALLENGE", steps: "CAPTURE/CHALLENGE", want: waits},
		{name: "EXPIRE", steps: "PENDING EXPIRE", want: "pending [1 expired], stock 8"},
		// Disorder and copies.
		{name: "older news after the settlement", steps: "settlement ?pending ?deny ?expire ?cancel ?refund", want: paid},
		{name: "a forger's better news", steps: "pending ?settlement ?capture", want: "pending [1 active], stock 8"},
		{name: "a status that is not known, then one that is", steps: "unheard_of settlement", want: paid},
		// What a person or the gateway decides after a challenge.
		{name: "challenge accepted", steps: "capture/challenge capture/accept", want: "paid [1 paid] orderAwaitingVerification, orderPaid, stock 8"},
		{name: "challenge denied", steps: "capture/challenge deny", want: "failed [1 failed] orderAwaitingVerification, orderFailed, stock 10"},
		{name: "challenge approved by the owner", steps: "capture/challenge approve tick", want: "paid [1 paid] orderAwaitingVerification, orderPaid, stock 8"},
		{name: "challenge rejected by the owner is closed at the gateway", steps: "capture/challenge reject tick tick",
			want: "failed [1 failed] orderAwaitingVerification, orderFailed, stock 10"},
		{name: "a challenge never expires by itself", steps: "capture/challenge +24h1m tick +1h tick", want: waits},
		// Another amount.
		{name: "less", steps: "settlement=172499", want: "awaiting_verification [1 paid] orderAwaitingVerification, stock 8"},
		{name: "more", steps: "settlement=172501", want: "awaiting_verification [1 paid] orderAwaitingVerification, stock 8"},
		{name: "less, taken by the owner", steps: "settlement=172499 approve tick ?settlement", want: "paid [1 paid] orderAwaitingVerification, orderPaid, stock 8"},
		{name: "less, taken back", steps: "settlement=172499 deny", want: "failed [1 failed] orderAwaitingVerification, orderFailed, stock 10"},
		{name: "less, taken by the owner, taken back", steps: "settlement=172499 approve deny", want: "failed [1 failed] orderAwaitingVerification, orderPaid, orderFailed, stock 10"},
		{name: "less, taken by the owner, given back", steps: "settlement=172499 approve refund=172499", want: "refunded [1 paid] orderAwaitingVerification, orderPaid, orderRefunded, stock 8"},
		{name: "challenge approved by the owner, then accepted", steps: "capture/challenge approve capture/accept", want: "paid [1 paid] orderAwaitingVerification, orderPaid, stock 8"},
		{name: "challenge approved by the owner, then charged back", steps: "capture/challenge approve tick chargeback", want: "refunded [1 paid] orderAwaitingVerification, orderPaid, orderRefunded, stock 8"},
		{name: "denied, paid on the same page, and nobody told", steps: "deny ~settlement +24h tick", want: paid},
		{name: "denied, and not paid since", steps: "deny +24h tick tick", want: "expired [1 failed] orderExpired, stock 10"},
		{name: "denied, challenged on the same page, denied", steps: "deny capture/challenge deny", want: "failed [1 failed] orderAwaitingVerification, orderFailed, stock 10"},
		{name: "denied, challenged on the same page, accepted", steps: "deny capture/challenge ~capture/accept +24h tick", want: "paid [1 paid] orderAwaitingVerification, orderPaid, stock 8"},
		{name: "less, refused by the owner", steps: "settlement=172499 reject tick ?settlement", want: "failed [1 paid] orderAwaitingVerification, orderFailed, stock 10"},
		{name: "less, after the order's end", steps: "+24h tick settlement=1000", want: "expired [1 paid] orderExpired, stock 10, overpaid",
			notes: "not_needed 1000 expired #1 tx-ORDER-1"},
		// Attempts.
		{name: "the second attempt pays", steps: "deny get settlement", want: "paid [1 failed, 2 paid] orderPaid, stock 8"},
		{name: "bad news of an older session", steps: "deny get 1:cancel 1:expire 1:failure 1:deny", want: "pending [1 failed, 2 active], stock 8"},
		{name: "bad news of an older session after the end", steps: "pending expire get pending +24h 1:expire", want: "pending [1 expired, 2 active], stock 8"},
		{name: "an older session is paid, and the live one closed", steps: "deny get pending 1:settlement tick ?cancel", want: "paid [1 paid, 2 failed] orderPaid, stock 8"},
		{name: "an older session is paid, and the untouched page closed", steps: "deny get 1:settlement tick ?pending", want: "paid [1 paid, 2 expired] orderPaid, stock 8"},
		{name: "an older session's other amount", steps: "deny get 1:settlement=1", want: "awaiting_verification [1 paid, 2 active] orderAwaitingVerification, stock 8"},
		{name: "an older session's other amount is taken back", steps: "deny get 1:settlement=1 1:deny ?deny", want: "awaiting_verification [1 failed, 2 active] orderAwaitingVerification, stock 8",
			notes: "reversed #1"},
		{name: "paid twice", steps: "deny get ~settlement 1:settlement settlement tick", want: "paid [1 paid, 2 paid] orderPaid, stock 8, overpaid",
			notes: "not_needed 172500 paid #2 tx-ORDER-2"},
		{name: "the second payment is given back", steps: "deny get ~settlement 1:settlement settlement refund=172500", want: "paid [1 paid, 2 paid] orderPaid, stock 8, overpaid",
			notes: "not_needed 172500 paid #2 tx-ORDER-2, returned 172500 #2"},
		{name: "the second payment is taken back", steps: "deny get ~settlement 1:settlement settlement deny", want: "paid [1 paid, 2 failed] orderPaid, stock 8, overpaid",
			notes: "not_needed 172500 paid #2 tx-ORDER-2, reversed #2"},
		// Money after the end.
		{name: "paid after expiry", steps: "pending +24h tick settlement", want: "paid [1 paid] orderExpired, orderPaid, stock 8"},
		{name: "paid after the gateway's cancel", steps: "pending cancel settlement", want: "paid [1 paid] orderFailed, orderPaid, stock 8"},
		{name: "paid after the owner's cancel", steps: "owner-cancel settlement", want: "paid [1 paid] orderFailed, orderPaid, stock 8"},
		{name: "paid again after a reversal", steps: "settlement deny settlement", want: "paid [1 paid] orderPaid, orderFailed, orderPaid, stock 8"},
		{name: "reversed after late money", steps: "pending +24h tick settlement deny", want: "failed [1 failed] orderExpired, orderPaid, orderFailed, stock 10"},
		// The owner.
		{name: "owner's cancel closes the page", steps: "owner-cancel tick ?pending tick", want: "failed [1 expired] orderFailed, stock 10"},
		{name: "owner's cancel voids the transaction; its echo changes nothing", steps: "pending owner-cancel tick ?cancel tick", want: "failed [1 failed] orderFailed, stock 10"},
		{name: "owner cancels what was just paid", steps: "pending ~settlement owner-cancel tick", want: "paid [1 paid] orderFailed, orderPaid, stock 8"},
		{name: "owner approves while a session is live", steps: "pending approve tick ?cancel", want: "paid [1 failed] orderPaid, stock 8"},
		{name: "owner approves what the gateway has", steps: "pending approve settlement", want: "paid [1 paid] orderPaid, stock 8, overpaid",
			notes: "maybe_not_needed 172500 paid #1 tx-ORDER-1"},
		{name: "owner's refund, then the gateway's", steps: "settlement owner-refund refund=172500", want: "refunded [1 paid] orderPaid, orderRefunded, stock 8"},
		// Lost notifications.
		{name: "polled before the end", steps: "pending ~settlement +23h40m tick", want: paid},
		{name: "not polled long before the end", steps: "pending ~settlement +23h20m tick", want: "pending [1 active], stock 8"},
		{name: "polled at the end", steps: "pending ~settlement +24h tick", want: paid},
		{name: "settled and refunded, and both notifications lost", steps: "~refund=172500 +24h tick tick tick", want: "expired [1 failed] orderExpired, stock 10",
			notes: "returned 172500 #1"},
		{name: "settled and refunded in part, and the first notification lost", steps: "partial_refund=500 +25h tick tick",
			want: "awaiting_verification [1 paid] orderAwaitingVerification, stock 8", notes: "returned_partly 500 #1"},
	})
}

func TestXenditTable(t *testing.T) {
	t.Parallel()
	const paid = "paid [1 paid] orderPaid, stock 8"
	runPayCases(t, "xendit", "link", []payCase{
		{name: "ACTIVE", steps: "ACTIVE", want: "pending [1 active], stock 8"},
		{name: "COMPLETED", steps: "COMPLETED", want: paid},
		{name: "completed in lower case", steps: "completed", want: paid},
		{name: "COMPLETED, another amount", steps: "COMPLETED=172499", want: "awaiting_verification [1 paid] orderAwaitingVerification, stock 8"},
		{name: "EXPIRED", steps: "EXPIRED", want: "pending [1 expired], stock 8"},
		{name: "CANCELED", steps: "CANCELED", want: "pending [1 expired], stock 8"},
		{name: "EXPIRED, and the order by its own clock", steps: "EXPIRED +24h tick", want: "expired [1 expired] orderExpired, stock 10"},
		{name: "EXPIRED at the order's end", steps: "+24h EXPIRED", want: "expired [1 expired] orderExpired, stock 10"},
		{name: "full refund", steps: "COMPLETED refund=172500", want: "refunded [1 paid] orderPaid, orderRefunded, stock 8"},
		{name: "partial refund", steps: "COMPLETED refund=1000 ?refund=1000", want: paid, notes: "returned_partly 1000 #1 rfd-1000"},
		{name: "older news", steps: "COMPLETED ?EXPIRED ?ACTIVE", want: paid},
		{name: "a forger's better news", steps: "?COMPLETED", want: "pending [1 active], stock 8"},
		{name: "the second attempt pays", steps: "EXPIRED get COMPLETED", want: "paid [1 expired, 2 paid] orderPaid, stock 8"},
		{name: "bad news of an older session", steps: "EXPIRED get 1:EXPIRED 1:CANCELED", want: "pending [1 expired, 2 active], stock 8"},
		{name: "an older session pays, and the live one is closed", steps: "EXPIRED get 1:COMPLETED tick", want: "paid [1 paid, 2 expired] orderPaid, stock 8"},
		{name: "paid after expiry", steps: "+24h tick COMPLETED", want: "paid [1 paid] orderExpired, orderPaid, stock 8"},
		{name: "owner's cancel", steps: "owner-cancel tick ?EXPIRED tick", want: "failed [1 expired] orderFailed, stock 10"},
		{name: "notification lost", steps: "~COMPLETED +23h45m tick", want: paid},
		{name: "asked before the end", steps: "+24h tick", want: "expired [1 expired] orderExpired, stock 10"},
	})
}

// faultOnce lets something happen during the first call to a path that ends so.
func (l *payLab) faultOnce(suffix string, happen func(*http.Request) (*http.Response, error)) {
	var happened atomic.Bool // not a sync.Once: who waits for that stops a bubble's clock
	l.setFault(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, suffix) && happened.CompareAndSwap(false, true) {
			return happen(r)
		}
		return nil, nil
	})
}

// answering is an answer of a gateway that is not itself.
func answering(status int, body string, headers ...string) (*http.Response, error) {
	w := httptest.NewRecorder()
	for i := 0; i < len(headers); i += 2 {
		w.Header().Set(headers[i], headers[i+1])
	}
	w.WriteHeader(status)
	w.WriteString(body)
	return w.Result(), nil
}

func TestClosingASession(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(l *payLab, order string){
		"the owner cancels while the gateway is being asked": func(l *payLab, order string) {
			time.Sleep(24*time.Hour - 10*time.Minute)
			l.faultOnce("/status", func(*http.Request) (*http.Response, error) {
				l.play(order, l.mid, "midtrans", "owner-cancel")
				return nil, nil
			})
		},
		"the gateway fails to close": func(l *payLab, order string) {
			l.play(order, l.mid, "midtrans", "owner-cancel")
			l.faultOnce("/cancel", func(*http.Request) (*http.Response, error) { return answering(500, `{}`) })
		},
		"the gateway is away when it should close": func(l *payLab, order string) {
			l.play(order, l.mid, "midtrans", "owner-cancel")
			l.faultOnce("/cancel", down)
		},
	} {
		inPayLab(t, name, func(t *testing.T, l *payLab) {
			order := l.newOrder("snap")
			l.get(order)
			prepare(l, order)
			l.tick()
			l.want("at first", l.outcome(order), "failed [1 active] orderFailed, stock 10")
			time.Sleep(30 * time.Second)
			l.tick()
			l.want("in the end", l.outcome(order), "failed [1 expired] orderFailed, stock 10")
			l.want("pages closed", l.mid.closes, 1)
		})
	}
}

func TestMidtransSignatureVector(t *testing.T) {
	t.Parallel()
	const message = `{"order_id":"0190f5a0-0000-7000-8000-000000000001-1","status_code":"200","gross_amount":"150000.00","transaction_status":"settlement",
		"signature_key":"994cc9d8e4a537146e82cc705c2c9d1014422db5cde891578217a24816e7cf1300b48a26b47d1fc2157bedc002cf9d5ad32f2099f893955900a5db2844584267"}`
	about, err := midtrans{account: Gateway{SecretKey: "SB-Mid-server-example"}}.verify(nil, []byte(message))
	if err != nil || about != (subject{reference: "0190f5a0-0000-7000-8000-000000000001-1"}) {
		t.Errorf("%v, %v", about, err)
	}
}

func TestForgedNotifications(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		snap, link, box := l.newOrder("snap"), l.newOrder("link"), l.newOrder("sandbox")
		for _, order := range []string{snap, link, box} {
			l.get(order)
		}
		other, _ := l.addShop("teh-kita", "")
		l.must(l.db.SetGateway(t.Context(), other, Gateway{"midtrans", "sandbox", "SB-Mid-server-other", ""}))
		l.must(l.db.SetGateway(t.Context(), other, Gateway{"xendit", "sandbox", xenditKey, "another-token"}))
		bare, _ := l.addShop("tanpa-gateway", "")
		l.must(l.db.write(t.Context(), func(tx *Tx) error {
			_, err := tx.exec("DELETE FROM gateways WHERE store_id = ?", bare)
			return err
		}))
		l.mid.say(snap+"-1", "settlement")
		l.xen.say(link+"-1", "COMPLETED")
		before, calls := l.outcome(snap)+l.outcome(link)+l.outcome(box), l.callCount()
		_, settled := l.mid.message(snap+"-1", "settlement")
		_, completed := l.xen.message(link+"-1", "COMPLETED")
		edit := func(text, old, new string) string {
			if !strings.Contains(text, old) {
				t.Errorf("%s is not in %s", old, text)
			}
			return strings.ReplaceAll(text, old, new)
		}
		signed := signatureHeader([]string{l.payments.sandboxKey}, time.Now().Add(-6*time.Minute).Unix(), []byte(`{"reference":"`+box+`-1"}`))
		for _, c := range []struct {
			name, provider, store, body string
			header                      []string
			status                      int
		}{
			{"an amount that was not signed", "midtrans", "", edit(settled, `"172500.00"`, `"172501.00"`), nil, 401},
			{"a status code that was not signed", "midtrans", "", edit(settled, `"200"`, `"201"`), nil, 401},
			{"another order", "midtrans", "", edit(settled, snap, link), nil, 401},
			{"no signature", "midtrans", "", edit(settled, `signature_key`, `signature`), nil, 401},
			{"an empty signature", "midtrans", "", regexp.MustCompile(`"signature_key":"[^"]*"`).ReplaceAllString(settled, `"signature_key":""`), nil, 401},
			{"no JSON", "midtrans", "", "settled", nil, 401},
			{"another store's signature", "midtrans", other, settled, nil, 401},
			{"no token", "xendit", "", completed, nil, 401},
			{"an empty token", "xendit", "", completed, []string{"X-Callback-Token", ""}, 401},
			{"a wrong token", "xendit", "", completed, []string{"X-Callback-Token", xenditToken + "x"}, 401},
			{"another store's token", "xendit", "", completed, []string{"X-Callback-Token", "another-token"}, 401},
			{"a right token and no JSON", "xendit", "", "completed", []string{"X-Callback-Token", xenditToken}, 400},
			{"unsigned", "sandbox", "", `{"reference":"` + box + `-1"}`, nil, 401},
			{"signed long ago", "sandbox", "", `{"reference":"` + box + `-1"}`, []string{"X-Service-Signature", signed}, 401},
			{"a provider without notifications", "manual", "", settled, nil, 404},
			{"an unknown provider", "paypal", "", settled, nil, 404},
			{"an unknown store", "midtrans", "0190f5a0-0000-7000-8000-000000000001", settled, nil, 404},
			{"a store without a key", "midtrans", bare, settled, nil, 404},
			{"too large", "midtrans", "", settled + strings.Repeat(" ", maxBody), nil, 413},
			// Verified, and about nothing of this store: acknowledged, or the gateway would send it for hours.
			{"another store's order", "xendit", other, completed, []string{"X-Callback-Token", "another-token"}, 200},
			{"an unknown order", "xendit", "", edit(completed, link, other), []string{"X-Callback-Token", xenditToken}, 200},
			{"another provider's order", "xendit", "", edit(completed, link, snap), []string{"X-Callback-Token", xenditToken}, 200},
			{"an attempt that was never made", "xendit", "", edit(completed, link+"-1", link+"-2"), []string{"X-Callback-Token", xenditToken}, 200},
			{"a refund of an unknown payment", "xendit", "", `{"event":"refund.succeeded","data":{"id":"rfd-1","payment_id":"py-x","amount":1}}`, []string{"X-Callback-Token", xenditToken}, 200},
			{"a refund of no payment", "xendit", "", `{"event":"refund.succeeded","data":{}}`, []string{"X-Callback-Token", xenditToken}, 200},
			{"nothing", "xendit", "", `{}`, []string{"X-Callback-Token", xenditToken}, 200},
		} {
			if c.store == "" {
				c.store = l.storeID
			}
			w := l.web("POST", "http://shop.test/notifications/"+c.provider+"/"+c.store, c.body, c.header...)
			if l.want(c.name, w.Code, c.status); !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s: %s", c.name, w.Body)
			}
			l.payments.askAll(t.Context(), l.payments.undecided(""))
		}
		w := l.web("GET", "http://shop.test/notifications/midtrans/"+l.storeID, "")
		l.want("GET", fmt.Sprint(w.Code, w.Header().Get("Allow")), "405POST")
		l.want("kept", l.read("SELECT count(*) FROM notifications"), 0)
		l.want("asked", l.callCount(), calls)
		l.want("the orders", l.outcome(snap)+l.outcome(link)+l.outcome(box), before)
	})
}

// Who has the callback token must not turn one order's refund into another's.
func TestRefundOfAnotherPayment(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		var orders [2]string
		for i := range orders {
			orders[i] = l.newOrder("link")
			l.play(orders[i], l.xen, "xendit", "get COMPLETED")
		}
		l.xen.say(orders[0]+"-1", "refund=172500")
		header, body := l.xen.message(orders[0]+"-1", "refund=172500")
		for i, want := range []string{"paid", "refunded"} { // first as if it were of the other order, then as it is
			l.want("answer", l.notify("xendit", header, strings.ReplaceAll(body, orders[0], orders[1-i])), 200)
			l.payments.askAll(t.Context(), l.payments.undecided(""))
			l.want("the other order", l.get(orders[1]).Order.Status, Paid)
			l.want("the order", l.get(orders[0]).Order.Status, Status(want))
		}
	})
}

// The notification is kept before it is acknowledged: a crash between the two loses nothing.
func TestNotificationOutlivesACrash(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		l.mid.say(order+"-1", "settlement")
		header, body := l.mid.message(order+"-1", "settlement")
		calls := l.callCount()
		l.want("answer", l.notify("midtrans", header, body), 200)
		l.want("gateway asked before the answer", l.callCount(), calls)
		l.want("before", l.outcome(order), "pending [1 active], stock 8")
		l.must(l.db.Close())
		db, err := openDB(l.file, false)
		l.must(err)
		l.serve(db)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.payments.run(ctx); close(done) }()
		synctest.Wait()
		l.want("after", l.outcome(order), "paid [1 paid] orderPaid, stock 8")
		stop()
		<-done
	})
}

// ---- GET /v1/orders/{order_id}

func TestGetStartsOneSession(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"snap", "link", "sandbox"} {
		inPayLab(t, method, func(t *testing.T, l *payLab) {
			order := l.newOrder(method)
			if w := l.web("HEAD", "http://shop.test/v1/orders/"+order, "", "Authorization", "Bearer "+l.key); w.Code != 200 || l.callCount() != 0 ||
				l.read("SELECT count(*) FROM payment_sessions") != "0" {
				t.Errorf("HEAD: %d, and calls %v", w.Code, l.calls)
			}
			l.setFault(func(*http.Request) (*http.Response, error) {
				time.Sleep(3 * time.Second) // so that all fifty ask meanwhile
				return nil, nil
			})
			var wg sync.WaitGroup
			answers := make([]orderAnswer, 50)
			for i := range answers {
				wg.Go(func() { answers[i] = l.get(order) })
			}
			wg.Wait()
			first := answers[0]
			for _, a := range append(answers, l.get(order)) {
				l.want("answer", a, first)
			}
			page, created := map[string]string{"snap": "https://app.sandbox.midtrans.com/snap/v4/redirection/token-1", "link": "https://xen.to/ps-1",
				"sandbox": "http://shop.test/sandbox/" + first.Session.ID}[method], 1
			if method == "sandbox" {
				created = 0
			}
			l.want("session", fmt.Sprint(first.Session.Status, first.Session.Attempt, first.Session.Provider, " ", first.Session.PaymentURL),
				fmt.Sprint("active1", l.read("SELECT provider FROM payment_methods WHERE code = ? AND store_id = ?", method, l.storeID), " ", page))
			l.want("checkout_url", first.Order.CheckoutURL, "http://shop.test/pay/"+order)
			l.want("expires_at", first.Session.ExpiresAt, "2000-01-02T00:00:00.000Z")
			l.want("started at the gateway", l.mid.creates+l.xen.creates, created)
			l.want("rows", l.outcome(order), "pending [1 active], stock 8")
		})
	}
}

func TestWhatTheGatewaysAreSent(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		long, free := l.read("SELECT id FROM products WHERE slug = 'panjang'"), l.read("SELECT id FROM products WHERE slug = 'gratis'")
		body := func(method, buyer string) string {
			return fmt.Sprintf(`{"items":[{"type":"product","product_id":"%s","quantity":2},{"type":"product","product_id":"%s","quantity":7},
				{"type":"product","product_id":"%s","quantity":1}],"buyer":%s,"payment_method":"%s"}`, l.kopi, long, free, buyer, method)
		}
		buyer := `{"name":"` + strings.Repeat("Siti ", 39) + `Siti","phone":"(0812) 3456-789"}`
		for _, method := range []string{"snap", "link"} {
			l.want(method, l.get(l.orderOf(method, body(method, buyer))).Session.Status, "active")
		}
		for _, part := range []string{`"gross_amount":179500`, `"price":85000,"quantity":2`, `"price":1000,"quantity":7`, `"price":2500,"quantity":1`,
			`"duration":1440`, `"start_time":"2000-01-01 07:00:00 +0700"`, `"phone":"(0812) 3456-789"`} {
			if !strings.Contains(l.mid.requests[0], part) {
				t.Errorf("%s is not in %s", part, l.mid.requests[0])
			}
		}
		for _, part := range []string{`"amount":179500`, `"net_unit_amount":2500,"quantity":1,"reference_id":"fee","type":"FEE"`, `"mobile_number":"+628123456789"`,
			`"expires_at":"2000-01-02T00:00:00.000Z"`} {
			if !strings.Contains(l.xen.requests[0], part) {
				t.Errorf("%s is not in %s", part, l.xen.requests[0])
			}
		}
		l.want("notifications go to", l.mid.notifyAt, "http://shop.test/notifications/midtrans/"+l.storeID)
		// A code that names a channel restricts the page to it.
		l.get(l.newOrder("qris"))
		l.get(l.orderOf("va_bca", body("va_bca", `{"name":"Siti","email":"siti@example.id"}`)))
		if !strings.Contains(l.mid.requests[1], `"enabled_payments":["other_qris"]`) || !strings.Contains(l.xen.requests[1], `"allowed_payment_channels":["BCA_VIRTUAL_ACCOUNT"]`) ||
			strings.Contains(l.mid.requests[0], "enabled_payments") || strings.Contains(l.xen.requests[0], "allowed_payment_channels") {
			t.Errorf("channels: %s %s", l.mid.requests, l.xen.requests)
		}
		// Xendit takes no session shorter than ten minutes.
		order := l.newOrder("link")
		time.Sleep(24*time.Hour - time.Minute)
		a := l.get(order)
		l.want("a minute before the end", a.Session.Status, "active")
		l.want("its end is the order's", a.Session.ExpiresAt, "2000-01-02T00:00:00.000Z")
	})
}

func TestEveryChannelIsKnownToItsGateway(t *testing.T) {
	t.Parallel()
	for code, c := range channels {
		if !slices.Contains(midtransChannels, c.midtrans) || c.xendit == "" {
			t.Errorf("%s: %v", code, c)
		}
	}
}

func TestGatewayTrouble(t *testing.T) {
	t.Parallel()
	slow := func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(time.Hour):
			return nil, nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	says := func(status int, body string, headers ...string) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) { return answering(status, body, headers...) }
	}
	for _, c := range []struct {
		name  string
		fault func(*http.Request) (*http.Response, error)
		takes time.Duration
	}{
		{"down", down, 0},
		{"slow", slow, 10 * time.Second},
		{"slow after its headers", func(r *http.Request) (*http.Response, error) {
			body, _ := io.Pipe()
			context.AfterFunc(r.Context(), func() { body.CloseWithError(r.Context().Err()) })
			return &http.Response{StatusCode: 201, Body: body, Header: http.Header{}}, nil
		}, 10 * time.Second},
		{"a page of HTML", says(200, "<html>maintenance</html>"), 0},
		{"an empty answer", says(201, ""), 0},
		{"null", says(201, "null"), 0},
		{"another type", says(201, `{"token":1,"payment_session_id":1}`), 0},
		{"no address", says(201, `{"token":"t","payment_session_id":"ps-1"}`), 0},
		{"no address of a page", says(201, `{"token":"t","redirect_url":"javascript://gateway.test/%0aalert(1)","payment_session_id":"ps-1","payment_link_url":"javascript://gateway.test/%0aalert(1)"}`), 0},
		{"no name", says(201, `{"redirect_url":"https://example.id","payment_link_url":"https://example.id"}`), 0},
		{"an endless answer", says(201, `{"token":"`+strings.Repeat("x", 2<<20)), 0},
		{"a redirect", says(307, `{"token":"t"}`, "Location", "https://elsewhere.example/"), 0},
		{"500", says(500, `{"error_messages":["oops"],"error_code":"SERVER_ERROR"}`), 0},
		{"429", says(429, `{"error_messages":["slow down"],"error_code":"RATE_LIMIT_EXCEEDED"}`), 0},
		{"a wrong key", says(401, `{"error_messages":["no"],"error_code":"INVALID_API_KEY"}`), 0},
	} {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) {
			for _, method := range []string{"snap", "link"} {
				order := l.newOrder(method)
				l.setFault(c.fault)
				for range 3 {
					start := time.Now()
					a := l.get(order)
					l.want("status", a.Session.Status, "unavailable")
					l.want("payment_url", a.Order.PaymentURL, "http://shop.test/pay/"+order)
					l.want("time taken", time.Since(start), c.takes)
					if l.read("SELECT warning FROM payment_sessions WHERE order_id = ?", order) == "" {
						t.Error("no warning is kept")
					}
				}
				l.setFault(nil)
				a := l.get(order)
				l.want("once it is well again", fmt.Sprint(a.Session.Status, a.Session.Attempt), "active1")
				l.want("warning", l.read("SELECT warning FROM payment_sessions WHERE order_id = ?", order), "")
			}
			if !strings.Contains(l.logs.String(), "payment gateway cannot be asked") || strings.Contains(l.logs.String(), "example") {
				t.Errorf("the log: %s", l.logs)
			}
		})
	}
	inPayLab(t, "slow at each of two questions", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.setFault(down)
		l.get(order)
		l.setFault(func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(6 * time.Second):
				return nil, nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
		start := time.Now()
		l.want("status", l.get(order).Session.Status, "unavailable")
		l.want("time taken by both", time.Since(start), 10*time.Second)
	})
	inPayLab(t, "no key any more", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.must(l.db.write(t.Context(), func(tx *Tx) error { _, err := tx.exec("DELETE FROM gateways"); return err }))
		l.want("status", l.get(order).Session.Status, "unavailable")
		l.must(l.db.SetGateway(t.Context(), l.storeID, Gateway{"midtrans", "sandbox", midtransKey, ""}))
		l.want("status", l.get(order).Session.Status, "active")
	})
}

// Orders can be read when the disk is full.
func TestGetOnAFullDisk(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		limit := func(pages int) {
			_, err := l.db.writer.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages))
			l.must(err)
		}
		l.must(l.db.write(t.Context(), func(tx *Tx) error { _, err := tx.exec("UPDATE products SET stock = NULL"); return err }))
		var orders []string
		for range 40 {
			orders = append(orders, l.newOrder("snap"))
		}
		limit(1) // SQLite makes that the pages in use
		seen := map[string]int{}
		for _, order := range orders {
			seen[l.get(order).Session.Status]++
		}
		if seen["unavailable"] == 0 {
			t.Errorf("the disk was not full: %v", seen)
		}
		limit(1_000_000)
		for _, order := range orders {
			l.want("with room again", l.get(order).Session.Status, "active")
		}
	})
}

// A session whose creation was answered and not recorded: the program was killed between the two, or the answer was lost.
func TestStartInterrupted(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"snap", "link"} {
		for name, interrupt := range map[string]func(l *payLab, order string){
			"killed before its row": func(l *payLab, order string) {
				begun, err := l.db.BeginPaymentSession(context.Background(), l.storeID, order)
				s := begun.session
				l.must(err)
				gw, err := l.payments.gateway(l.storeID, s.Provider)
				l.must(err)
				st, o, err := l.db.OrderPage(order)
				l.must(err)
				_, _, err = gw.create(context.Background(), charge{s, st, o})
				l.must(err)
				l.must(l.db.Close())
				db, err := openDB(l.file, false)
				l.must(err)
				l.serve(db)
			},
			"answer lost": func(l *payLab, order string) {
				l.faultOnce("s", func(r *http.Request) (*http.Response, error) { // both gateways create at …s
					w := httptest.NewRecorder()
					if method == "snap" {
						l.mid.ServeHTTP(w, r)
					} else {
						l.xen.ServeHTTP(w, r)
					}
					return nil, errRefusedConnection
				})
				l.want("status", l.get(order).Session.Status, "unavailable")
			},
		} {
			inPayLab(t, method+" "+name, func(t *testing.T, l *payLab) {
				order := l.newOrder(method)
				interrupt(l, order)
				l.want("before", l.outcome(order), "pending [1 starting], stock 8")
				calls := l.callCount()
				a := l.get(order)
				l.want("session", fmt.Sprint(a.Session.Status, a.Session.Attempt), "active2")
				l.want("after", l.outcome(order), "pending [1 failed, 2 active], stock 8")
				if method == "snap" && !strings.HasPrefix(l.calls[calls], "GET /v2/") {
					t.Errorf("created without asking before: %v", l.calls[calls:])
				}
			})
			inPayLab(t, method+" "+name+", and the order ends", func(t *testing.T, l *payLab) {
				order := l.newOrder(method)
				interrupt(l, order)
				l.play(order, nil, "", "+24h tick")
				l.want("order", l.outcome(order), "expired [1 expired] orderExpired, stock 10")
			})
		}
	}
	// The lost page was shown to nobody. If it is paid all the same, asking tells.
	for say, want := range map[string]string{"settlement": "paid [1 paid] orderPaid, stock 8", "pending": "pending [1 failed, 2 active], stock 8",
		"deny": "pending [1 failed, 2 active], stock 8", "expire": "pending [1 expired, 2 active], stock 8",
		"capture/challenge": "awaiting_verification [1 active] orderAwaitingVerification, stock 8"} {
		inPayLab(t, "the lost page says "+say, func(t *testing.T, l *payLab) {
			order := l.newOrder("snap")
			l.faultOnce("/transactions", func(r *http.Request) (*http.Response, error) {
				l.mid.ServeHTTP(httptest.NewRecorder(), r)
				return nil, errRefusedConnection
			})
			l.get(order)
			l.mid.say(order+"-1", say)
			a := l.get(order)
			l.want("outcome", l.outcome(order), want)
			if status := l.read("SELECT status FROM orders WHERE id = ?", order); string(a.Order.Status) != status {
				t.Errorf("GET says %s of an order that is %s", a.Order.Status, status)
			}
		})
	}
}

// The order is moved while its session is being started.
func TestMovedWhileStarting(t *testing.T) {
	t.Parallel()
	for _, move := range []Transition{OwnerCancels, ClockExpires, OwnerApproves, GatewayChallenges} {
		inPayLab(t, string(move), func(t *testing.T, l *payLab) {
			order := l.newOrder("link")
			l.faultOnce("/sessions", func(*http.Request) (*http.Response, error) {
				_, err := l.db.Transition(context.Background(), l.storeID, order, move, Note{Code: NoteText, Text: "test"})
				l.must(err)
				return nil, nil
			})
			a := l.get(order)
			if a.Order.PaymentURL != "http://shop.test/pay/"+order {
				t.Errorf("a buyer is sent to %s to pay an order that is over", a.Order.PaymentURL)
			}
			if move == GatewayChallenges { // the session is open until the owner has decided
				time.Sleep(25 * time.Hour)
				l.tick()
				l.want("while the owner looks at it", l.outcome(order), "awaiting_verification [1 active] orderAwaitingVerification, stock 8")
				l.play(order, nil, "", "reject")
			}
			time.Sleep(30 * time.Second)
			l.tick()
			l.want("closed at the gateway", l.xen.closes, 1)
			l.want("session", l.read("SELECT status FROM payment_sessions"), "expired")
		})
	}
}

// ---- The service at work by the clock

// atWork runs the sweeper and the payments' loops until the test ends.
func (l *payLab) atWork() {
	ctx, stop := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { l.payments.run(ctx) })
	both.Go(func() { l.sweep(ctx) })
	l.t.Cleanup(func() {
		stop()
		both.Wait()
	})
}

func TestExpiryAsksFirst(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		_, err := l.db.SetStore(t.Context(), l.storeID, func(st *Store) error { st.Expiry = 40 * time.Minute; return nil })
		l.must(err)
		l.atWork()
		unpaid, lost, late, never := l.newOrder("snap"), l.newOrder("snap"), l.newOrder("link"), l.newOrder("link")
		for _, order := range []string{unpaid, lost, late} {
			l.get(order)
		}
		l.play(lost, l.mid, "midtrans", "pending ~settlement")
		time.Sleep(16 * time.Minute)
		l.want("notification lost, polled near the end", l.outcome(lost), "paid [1 paid] orderPaid, stock 2")
		l.setFault(down)
		l.play(late, l.xen, "xendit", "~COMPLETED")
		time.Sleep(25 * time.Minute)
		l.want("gateway away", l.outcome(unpaid), "pending [1 active], stock 4")
		l.want("gateway away", l.outcome(late), "pending [1 active], stock 4")
		l.want("no session to ask about", l.outcome(never), "expired [] orderExpired, stock 4")
		l.want("warning", l.read("SELECT DISTINCT warning FROM payment_sessions WHERE status = 'active'"), "connection refused")
		if !strings.Contains(l.logs.String(), "level=WARN msg=\"payment gateway cannot be asked\" provider=midtrans order="+unpaid) {
			t.Error("the log does not warn")
		}
		time.Sleep(3 * time.Hour)
		l.want("it waits as long as it takes", l.outcome(unpaid), "pending [1 active], stock 4")
		l.setFault(nil)
		time.Sleep(6 * time.Minute)
		l.want("the gateway is back: nobody paid", l.outcome(unpaid), "expired [1 expired] orderExpired, stock 6")
		l.want("the gateway is back: paid in time", l.outcome(late), "paid [1 paid] orderPaid, stock 6")
		l.want("warning", l.read("SELECT DISTINCT warning FROM payment_sessions"), "")
	})
}

// A hundred orders at a gateway that is away must not keep others from being asked about.
func TestADeadGatewayHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		l.must(l.db.write(t.Context(), func(tx *Tx) error { _, err := tx.exec("UPDATE products SET stock = NULL"); return err }))
		for range 120 {
			l.get(l.newOrder("link"))
		}
		l.setFault(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "api.xendit.co" {
				return nil, errRefusedConnection
			}
			return nil, nil
		})
		time.Sleep(time.Minute)
		order := l.newOrder("snap")
		l.get(order)
		time.Sleep(24 * time.Hour)
		for range 4 {
			l.tick()
			time.Sleep(30 * time.Second)
		}
		l.want("order at the other gateway", l.read("SELECT status FROM orders WHERE id = ?", order), "expired")
	})
}

func TestRaces(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		l.must(l.db.write(t.Context(), func(tx *Tx) error { _, err := tx.exec("UPDATE products SET stock = 1000"); return err }))
		type sale struct {
			order, method, provider, said string
			double                        gatewayDouble
		}
		var sales []sale
		for range 12 {
			sales = append(sales, sale{l.newOrder("snap"), "snap", "midtrans", "settlement", l.mid}, sale{l.newOrder("link"), "link", "xendit", "COMPLETED", l.xen})
		}
		for _, s := range sales {
			l.get(s.order)
		}
		time.Sleep(24 * time.Hour) // all are due to expire
		var all sync.WaitGroup
		ctx := context.Background()
		for _, s := range sales {
			for range 2 { // copies at once, while the sweeper and two deciders are at work
				all.Go(func() {
					s.double.say(s.order+"-1", s.said)
					header, body := s.double.message(s.order+"-1", s.said)
					l.want("notification", l.notify(s.provider, header, body), 200)
					l.payments.askAll(ctx, l.payments.undecided(""))
				})
			}
			all.Go(func() {
				open, _ := l.db.PaymentSessionsDue()
				for _, o := range open {
					l.payments.check(ctx, o, Notification{})
				}
				l.payments.expire(ctx)
			})
		}
		all.Wait()
		l.tick()
		for _, s := range sales {
			switch got := l.outcome(s.order); got { // its money came just before its end, or just after
			case "paid [1 paid] orderPaid, stock 952", "paid [1 paid] orderExpired, orderPaid, stock 952":
			default:
				t.Error(got)
			}
			l.want("remarks", l.notes(s.order), "")
		}
	})
}

// Two questions about one session are answered in one order, whichever way the answers travel.
func TestAnswersDoNotOvertake(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		l.mid.say(order+"-1", "settlement")
		l.faultOnce("/status", func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			l.mid.ServeHTTP(w, r)
			time.Sleep(5 * time.Second) // this answer is long on its way
			return w.Result(), nil
		})
		s, err := l.db.LatestPaymentSession(order)
		l.must(err)
		var both sync.WaitGroup
		both.Go(func() { l.payments.check(context.Background(), s, Notification{}) })
		time.Sleep(time.Second)
		l.mid.say(order+"-1", "settlement")
		both.Go(func() { l.payments.check(context.Background(), s, Notification{}) })
		time.Sleep(time.Second)
		l.mid.say(order+"-1", "deny")
		both.Go(func() { l.payments.check(context.Background(), s, Notification{}) })
		both.Wait()
		l.want("taken back, and not paid again by the older answer", l.read("SELECT status FROM orders"), "failed")
		// One who cannot wait so long leaves no warning about a gateway that was not asked.
		l.faultOnce("/status", func(*http.Request) (*http.Response, error) { time.Sleep(5 * time.Second); return nil, nil })
		both.Go(func() { l.payments.check(context.Background(), s, Notification{}) })
		time.Sleep(time.Second)
		hurried, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, _, err := l.payments.check(hurried, s, Notification{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		l.want("warning", l.read("SELECT warning FROM payment_sessions"), "")
		both.Wait()
	})
}

// An order that is paid after its stock was sold is oversold, and says so.
func TestMoneyAfterTheStockWasSold(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get pending +24h tick")
		for range 5 {
			l.newOrder("bank_transfer")
		}
		l.play(order, l.mid, "midtrans", "settlement")
		l.want("paid", l.outcome(order), "paid [1 paid] orderExpired, orderPaid, stock 0, oversold")
		l.play(order, l.mid, "midtrans", "deny")
		l.want("reversed", l.outcome(order), "failed [1 failed] orderExpired, orderPaid, orderFailed, stock 0")
	})
}

// The service stops while a session is being started for a client that has gone.
func TestStoppingWaitsForStarts(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.setFault(func(*http.Request) (*http.Response, error) { time.Sleep(5 * time.Second); return nil, nil })
		ctx, leave := context.WithCancel(t.Context())
		r := httptest.NewRequest("GET", "http://shop.test/v1/orders/"+order, nil).WithContext(ctx)
		r.Header.Set("Authorization", "Bearer "+l.key)
		go func() { time.Sleep(time.Second); leave() }()
		l.handler.ServeHTTP(httptest.NewRecorder(), r)
		l.want("left behind", l.outcome(order), "pending [1 starting], stock 8")
		l.payments.finish()
		l.want("finished", l.outcome(order), "pending [1 active], stock 8")
	})
}

// ---- The hosted pay page

// A gateway that hangs costs a buyer four seconds once, not at every look at the page.
func TestPayPageWhileTheGatewayHangs(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.get(order)
		time.Sleep(5 * time.Second)
		l.setFault(func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() })
		for range 8 { // whether a write or the end of its context comes first is a matter of luck
			for _, takes := range []time.Duration{4 * time.Second, 0, 0} {
				start := time.Now()
				l.want("status", l.web("GET", "http://shop.test/pay/"+order, "").Code, 200)
				l.want("time taken", time.Since(start), takes)
			}
			time.Sleep(5 * time.Second)
		}
		l.want("warning", l.read("SELECT warning FROM payment_sessions"), "context deadline exceeded")
	})
}

var pageHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data: https:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8",
}

// see reads a page in a language and checks that it has some words and lacks others, and is safe.
func (l *payLab) see(address, lang string, status int, has, lacks string) string {
	l.t.Helper()
	w := l.web("GET", address, "", "Accept-Language", lang)
	page := html.UnescapeString(w.Body.String())
	l.want(address, w.Code, status)
	for words := range strings.SplitSeq(has, "|") {
		if !strings.Contains(page, words) {
			l.t.Errorf("%s %s lacks %q: %s", lang, address, words, page)
		}
	}
	for words := range strings.SplitSeq(lacks, "|") {
		if words != "" && strings.Contains(page, words) {
			l.t.Errorf("%s %s has %q", lang, address, words)
		}
	}
	for name, value := range pageHeaders {
		l.want(name, w.Header().Get(name), value)
	}
	if strings.Contains(page, "<script") || strings.Contains(page, " style=") || !strings.Contains(page, `<html lang="`+lang[:2]+`">`) {
		l.t.Errorf("%s has a script, a style of its own or another language", address)
	}
	return page
}

func TestPayPageSaysWhereTheOrderStands(t *testing.T) {
	t.Parallel()
	const pay, claim, back = `/go" rel="nofollow">`, "<form", "https://kopi.example.id/thanks"
	for _, c := range []struct {
		method, steps, id, en, has, lacks string
		refreshes                         bool
	}{
		{"bank_transfer", "", "Menunggu transfer Anda|Bayar sebelum <strong>2 Jan 2000, 07.00 WIB|Saya sudah membayar|Dipesan</dt><dd>1 Jan 2000, 07.00 WIB",
			"Waiting for your transfer|Pay before <strong>2 Jan 2000, 07:00 WIB|I have paid|Ordered</dt><dd>1 Jan 2000, 07:00 WIB",
			`BCA 123 456 7890 a.n. Kopi Kita.|value="1234567890"|value="170000"|value="INV-20000101-|Rp170.000|2 × Kopi Gayo|Transfer BCA|` + claim, pay + "|" + back, false},
		{"bank_transfer", "claim", "Pembayaran sedang diperiksa", "Payment is being checked", "Rp170.000", pay + "|" + claim + "|Bayar sebelum|" + back, true},
		{"bank_transfer", "claim approve", "Sudah dibayar. Terima kasih!|Kembali ke toko", "Paid. Thank you!|Back to the store", back, pay + "|" + claim, false},
		{"bank_transfer", "claim reject", "Pesanan dibatalkan|Jangan membayar lagi", "Order cancelled|Do not pay", back, pay + "|" + claim, false},
		{"bank_transfer", "+24h tick", "Waktu pembayaran habis|Jangan membayar lagi", "The time to pay is over|Do not pay", back, pay + "|" + claim + "|Bayar sebelum", false},
		{"snap", "", "Menunggu pembayaran|Bayar sekarang|Biaya layanan", "Waiting for payment|Pay now|Service fee", "Rp172.500|Rp170.000|Rp2.500|" + pay, claim + "|" + back, true},
		{"snap", "get deny", "Menunggu pembayaran|Bayar sekarang", "Waiting for payment|Pay now", pay, claim, true},
		{"snap", "get capture/challenge", "Pembayaran sedang diperiksa", "Payment is being checked", "Rp172.500", pay + "|" + claim, true},
		{"snap", "get settlement", "Sudah dibayar", "Paid. Thank you", back, pay + "|" + claim, false},
		{"snap", "get ~settlement +4s", "Sudah dibayar", "Paid. Thank you", back, pay, false}, // back from the gateway, before its notification
		{"snap", "get settlement refund", "Dana sudah dikembalikan", "The money was given back", back, pay + "|" + claim, false},
		{"snap", "get cancel", "Pesanan dibatalkan", "Order cancelled", back, pay, false},
		{"", "", "Gratis – tidak ada yang perlu dibayar", "Free – there is nothing to pay", "Rp0|Panduan", pay + "|" + claim + "|Bayar sebelum", false},
	} {
		inPayLab(t, c.method+" "+c.steps, func(t *testing.T, l *payLab) {
			order := ""
			if c.method == "" {
				order = l.orderOf("", fmt.Sprintf(`{"items":[{"type":"product","product_id":"%s","quantity":1}],"buyer":{"name":"Siti Aminah","phone":"0812 3456 789"}}`,
					l.read("SELECT id FROM products WHERE slug = 'gratis'")))
				c.has += "|•••789"
			} else {
				order = l.newOrder(c.method)
				c.has += "|s•••@example.id"
			}
			if steps, claims := strings.CutPrefix(c.steps, "claim"); claims {
				w := l.web("POST", "http://shop.test/pay/"+order, "", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
				l.want("I have paid", fmt.Sprint(w.Code, w.Header().Get("Location")), "303/pay/"+order)
				c.steps = steps
			}
			l.play(order, l.mid, "midtrans", c.steps)
			secrets := "siti@example.id|0812" // the page's address may be passed on
			l.see("http://shop.test/pay/"+order, "id", 200, "Siti Aminah|Kopi Kita|INV-20000101-|"+c.has+"|"+c.id, c.lacks+"|"+secrets)
			l.see("http://shop.test/pay/"+order, "en-GB, id;q=0.5", 200, "Siti Aminah|"+c.has+"|"+c.en, c.lacks+"|"+secrets)
			l.want("refreshes", l.web("GET", "http://shop.test/pay/"+strings.ToUpper(order), "").Header().Get("Refresh") != "", c.refreshes)
		})
	}
}

func TestPayPageMoves(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		post := func(order string, headers ...string) int {
			return l.web("POST", "http://shop.test/pay/"+order, "", headers...).Code
		}
		manual := l.newOrder("bank_transfer")
		for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
			l.want(fmt.Sprint("a post with ", headers), post(manual, headers...), 403)
		}
		l.want("after them", l.outcome(manual), "pending [], stock 8")
		for range 2 { // a button is pressed twice
			l.want("I have paid", post(manual, "Origin", "http://shop.test"), 303)
		}
		l.want("claimed", l.outcome(manual), "awaiting_verification [] orderAwaitingVerification, stock 8")
		l.want("by", l.read("SELECT actor FROM order_history WHERE order_id = ? AND to_status = 'awaiting_verification'", manual), "buyer")
		gateway := l.newOrder("snap")
		l.want("no such button for a gateway's order", post(gateway), 303)
		l.want("it", l.outcome(gateway), "pending [], stock 6")
		// Looking starts nothing, at the page or with HEAD.
		l.web("GET", "http://shop.test/pay/"+gateway, "")
		l.web("HEAD", "http://shop.test/pay/"+gateway+"/go", "")
		l.want("calls", l.callCount(), 0)
		goes := func(order string) string {
			w := l.web("GET", "http://shop.test/pay/"+order+"/go", "")
			return fmt.Sprint(w.Code, " ", strings.ReplaceAll(w.Header().Get("Location"), order, "ID"))
		}
		l.setFault(down)
		l.want("go, gateway away", goes(gateway), "303 /pay/ID?unreachable")
		l.see("http://shop.test/pay/"+gateway+"?unreachable", "id", 200, `role="alert">Halaman pembayaran belum bisa dibuka`, "")
		l.setFault(nil)
		for range 2 {
			l.want("go", goes(gateway), "303 https://app.sandbox.midtrans.com/snap/v4/redirection/token-1")
		}
		l.want("go of a manual order", goes(manual), "303 /pay/ID")
		l.play(gateway, l.mid, "midtrans", "settlement")
		l.want("go of a paid order", goes(gateway), "303 /pay/ID")
		l.want("one attempt", l.outcome(gateway), "paid [1 paid] orderPaid, stock 6")
		unknown := "0190f5a0-0000-7000-8000-000000000001"
		for _, path := range []string{"/pay/" + unknown, "/pay/x", "/pay/" + unknown + "/go", "/sandbox/" + unknown, "/sandbox/x"} {
			l.see("http://shop.test"+path, "id", 404, "Halaman ini tidak ada", "")
			l.see("http://shop.test"+path, "en", 404, "There is no such page", "")
		}
		l.want("POST to an unknown order", post(unknown), 404)
		for n, text := range map[int64]string{0: "Rp0", 999: "Rp999", 1000: "Rp1.000", 85000: "Rp85.000", 123456: "Rp123.456", maxMoney: "Rp999.999.999.999"} {
			l.want("money", rupiah(n), text)
		}
	})
}

func TestPagesAreOnTheirStoresHostOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, public, domain string
		subdomains           bool
		at                   string
		others               []string
	}{
		{"public URL", "http://shop.test:8080", "", false, "http://shop.test:8080", []string{"http://evil.test", "http://kopi-kita.shop.test:8080", "http://order.kopi.id:8080"}},
		{"any port, any case", "https://shop.test", "", false, "http://SHOP.test:9", nil},
		{"subdomain", "https://shop.test", "", true, "https://kopi-kita.shop.test", []string{"https://shop.test", "https://teh-kita.shop.test", "https://xkopi-kita.shop.test"}},
		{"domain", "https://shop.test:8443", "order.kopi.id", false, "https://order.kopi.id:8443", []string{"https://shop.test:8443", "https://order.teh.id"}},
		{"domain before subdomain", "https://shop.test", "order.kopi.id", true, "https://order.kopi.id", []string{"https://shop.test", "https://kopi-kita.shop.test"}},
	} {
		inPayLab(t, c.name, func(t *testing.T, l *payLab) {
			l.must(l.db.setAddresses(c.public, c.subdomains, nil))
			l.addShop("teh-kita", "order.teh.id")
			_, err := l.db.SetStore(t.Context(), l.storeID, func(st *Store) error { st.Domain = c.domain; return nil })
			l.must(err)
			order := l.newOrder("sandbox")
			a := l.get(order)
			if !strings.Contains(c.name, "case") {
				l.want("checkout_url", a.Order.CheckoutURL, c.at+"/pay/"+order)
				l.want("payment_url", a.Order.PaymentURL, c.at+"/sandbox/"+a.Session.ID)
			}
			paths := []string{"/pay/" + order, "/sandbox/" + a.Session.ID}
			for _, path := range paths {
				l.see(c.at+path, "id", 200, "INV-", "")
			}
			for _, host := range c.others {
				for _, path := range append(paths, "/pay/"+order+"/go") {
					l.see(host+path, "id", 404, "tidak ada", "INV-")
				}
				l.want("POST at "+host, l.web("POST", host+"/pay/"+order, "").Code, 404)
				l.want("POST at "+host, l.web("POST", host+paths[1], "action=pay", "Content-Type", "application/x-www-form-urlencoded").Code, 404)
			}
			l.payments.askAll(t.Context(), l.payments.undecided(""))
			l.want("order", l.outcome(order), "pending [1 active], stock 8")
		})
	}
}

func TestSandboxButtons(t *testing.T) {
	t.Parallel()
	for actions, want := range map[string]string{
		"pay":         "paid [1 paid] orderPaid, stock 8",
		"twice":       "paid [1 paid] orderPaid, stock 8",
		"pay pay":     "paid [1 paid] orderPaid, stock 8",
		"deny":        "pending [1 failed], stock 8",
		"deny pay":    "paid [1 paid] orderPaid, stock 8",
		"pay deny":    "failed [1 failed] orderPaid, orderFailed, stock 10",
		"expire":      "pending [1 expired], stock 8",
		"other":       "awaiting_verification [1 paid] orderAwaitingVerification, stock 8",
		"+24h expire": "expired [1 expired] orderExpired, stock 10",
		"+25h late":   "paid [1 paid] orderExpired, orderPaid, stock 8",
		"nonsense":    "pending [1 active], stock 8",
	} {
		inPayLab(t, actions, func(t *testing.T, l *payLab) {
			order := l.newOrder("sandbox")
			address := l.get(order).Order.PaymentURL
			l.see(address, "id", 200, "Gateway percobaan: tidak ada uang sungguhan|Rp172.500|Bayar terlambat", "")
			l.see(address, "en", 200, "Sandbox gateway: no real money|Rp172.500|Pay late", "")
			for action := range strings.FieldsSeq(actions) {
				if action[0] == '+' {
					l.play(order, nil, "", action)
					continue
				}
				if action == "late" {
					l.tick()
				}
				press := func(headers ...string) *httptest.ResponseRecorder {
					return l.web("POST", address, "action="+action, append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
				}
				l.want("from another site", press("Sec-Fetch-Site", "cross-site").Code, 403)
				w := press("Sec-Fetch-Site", "same-origin")
				if got := fmt.Sprint(w.Code, w.Header().Get("Location")); got != "303/pay/"+order && action != "nonsense" {
					t.Errorf("%s: %s", action, got)
				}
				l.payments.askAll(t.Context(), l.payments.undecided(""))
			}
			l.want(actions, l.outcome(order), want)
		})
	}
	// An order made for play must not be paid for nothing once the store sells in earnest.
	inPayLab(t, "not on a live store", func(t *testing.T, l *payLab) {
		open, expired, fresh := l.newOrder("sandbox"), l.newOrder("sandbox"), l.newOrder("sandbox")
		address, late := l.get(open).Order.PaymentURL, l.get(expired).Order.PaymentURL
		l.play(expired, nil, "", "owner-cancel tick")
		l.must(l.db.SetGateway(t.Context(), l.storeID, Gateway{"midtrans", "live", "Mid-server-live", ""}))
		if w := l.web("GET", "http://shop.test/v1/payment-methods", "", "Authorization", "Bearer "+l.key); strings.Contains(w.Body.String(), "sandbox") {
			t.Errorf("%s", w.Body)
		}
		for _, page := range []string{address, late} {
			l.see(page, "id", 404, "tidak ada", "INV-")
			l.want("a button", l.web("POST", page, "action=late", "Content-Type", "application/x-www-form-urlencoded").Code, 404)
		}
		l.want("a new session", l.get(fresh).Session.Status, "unavailable")
		l.payments.askAll(t.Context(), l.payments.undecided(""))
		l.want("open", l.outcome(open), "pending [1 active], stock 6")
		l.want("expired", l.outcome(expired), "failed [1 expired] orderFailed, stock 6")
		l.play(open, nil, "", "+24h tick")
		l.want("in the end", l.outcome(open), "expired [1 expired] orderExpired, stock 10")
	})
}

// ---- The commands, and all of it together on sockets

func TestGatewayCommandsAndService(t *testing.T) {
	t.Parallel()
	mid, xen := newMidtransDouble(), newXenditDouble()
	midServer, xenServer := httptest.NewServer(mid), httptest.NewServer(xen)
	defer midServer.Close()
	defer xenServer.Close()
	file, storeID, key := newStoreFile(t)
	var printed strings.Builder // all that commands and service say
	set := func(want int, provider, mode, stdin string) string {
		t.Helper()
		var out, errs bytes.Buffer
		args := []string{"gateway", "set", "-db", file, "-store", storeID, "-provider", provider, "-mode", mode}
		if code := run(t.Context(), args, strings.NewReader(stdin), &out, &errs); code != want || (code == 0) != (errs.Len() == 0) {
			t.Errorf("%s %s: exit code %d, want %d: %s", provider, mode, code, want, errs.String())
		}
		printed.WriteString(out.String() + errs.String())
		return strings.TrimSpace(out.String())
	}
	for _, c := range [][3]string{
		{"midtrans", "sandbox", ""}, {"midtrans", "sandbox", "key with spaces\n"}, {"midtrans", "live", midtransKey}, {"midtrans", "test", midtransKey},
		{"paypal", "live", "key"}, {"sandbox", "sandbox", "key"}, {"xendit", "sandbox", xenditKey + "\n"}, {"xendit", "live", xenditKey + "\n" + xenditToken},
		{"xendit", "sandbox", "xnd_production_x\n" + xenditToken},
	} {
		set(2, c[0], c[1], c[2])
	}
	for provider, stdin := range map[string]string{"midtrans": midtransKey + "\r\n", "xendit": xenditKey + "\n" + xenditToken + "\n"} {
		want := fmt.Sprintf(`{"mode":"sandbox","notification_path":"/notifications/%s/%s","provider":"%s"}`, provider, storeID, provider)
		if got := set(0, provider, "sandbox", stdin); got != want {
			t.Errorf("gateway set prints %s, want %s", got, want)
		}
	}
	command(t, 0, "catalog", "import", "-db", file, "-store", storeID, writeFile(t, "more.json",
		`{"payment_methods":[{"code":"link","name":"Xendit","provider":"xendit"},{"code":"box","name":"Sandbox","provider":"sandbox"}]}`))

	address, logs, stop := startServe(t, file, "-gateway-url", "midtrans="+midServer.URL, "-gateway-url", "xendit="+xenServer.URL+"/",
		"-public-url", "http://shop.test")
	s := reach(t, address, key)
	for method, double := range map[string]gatewayDouble{"qris": mid, "link": xen} {
		order := s.do(t, "POST", "/v1/orders", with(s.order("kopi", 1), "payment_method", method)).want(t, 201, "").at("order.id")
		session := s.do(t, "GET", "/v1/orders/"+order, nil).want(t, 200, "")
		if session.at("payment_session.status") != "active" || !strings.HasPrefix(session.at("order.payment_url"), "https://") {
			t.Fatalf("%s: %s", method, session.Body)
		}
		// Nobody paid: the command says so. Then the money comes, and no notification.
		want := `"done":"nothing","gateway_says":"open"`
		for _, said := range []string{"", map[string]string{"qris": "settlement", "link": "COMPLETED"}[method]} {
			if said != "" {
				double.say(order+"-1", said)
				want = `"done":"paid","gateway_says":"settled"`
			}
			out, _ := command(t, 0, "payment", "check", "-db", file, "-order", order)
			if got := string(mustJSON(out)); !strings.Contains(got, want) {
				t.Errorf("payment check: %s, want %s", got, want)
			}
			printed.Write(mustJSON(out))
		}
		// The service is told too, and again; it answers fast and sends no second event.
		header, body := double.message(order+"-1", map[string]string{"qris": "settlement", "link": "COMPLETED"}[method])
		provider := session.at("payment_session.provider")
		for range 3 {
			s.do(t, "POST", "/notifications/"+provider+"/"+storeID, body, "X-Callback-Token", header.Get("X-Callback-Token")).want(t, 200, "")
		}
		s.do(t, "POST", "/notifications/"+provider+"/"+storeID, strings.Replace(body, `"`, `'`, 1), "X-Callback-Token", "wrong").want(t, 401, "UNAUTHORIZED")
		if got := s.do(t, "GET", "/v1/orders/"+order, nil); got.at("order.status") != "paid" || got.at("payment_session.status") != "paid" {
			t.Errorf("%s", got.Body)
		}
	}
	// A gateway that is away: the command fails, and says why without saying how it asked.
	order := s.do(t, "POST", "/v1/orders", with(s.order("kopi", 1), "payment_method", "qris")).want(t, 201, "").at("order.id")
	s.do(t, "GET", "/v1/orders/"+order, nil)
	midServer.Close()
	_, stderr := command(t, 1, "payment", "check", "-db", file, "-order", order)
	if !strings.Contains(stderr, "midtrans cannot be asked") {
		t.Errorf("payment check: %s", stderr)
	}
	command(t, 1, "payment", "check", "-db", file, "-order", "0190f5a0-0000-7000-8000-000000000001")
	if code := stop(); code != 0 {
		t.Errorf("serve exits with %d", code)
	}
	said := printed.String() + stderr + logs.String()
	for _, secret := range []string{midtransKey, xenditKey, xenditToken, "xnd_production_x", key, "siti@example.id", "Siti"} {
		if strings.Contains(said, secret) {
			t.Errorf("%q is in what was printed or logged", secret)
		}
	}
	if !strings.Contains(said, "path=/notifications/midtrans/"+storeID) {
		t.Error("the log of the session was not looked at")
	}
}
