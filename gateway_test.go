//go:build cgo

package main

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

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

var midtransChannels = strings.Fields("bca_va bni_va bri_va permata_va echannel other_qris gopay shopeepay dana ovo credit_card alfamart indomaret")

var midtransCodes = map[string]string{"pending": "201", "deny": "202", "failure": "202", "expire": "407", "cancel": "200"}

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

var e164 = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

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

func newMidtransDouble() *midtransDouble {
	return &midtransDouble{key: midtransKey, payments: map[string]*midtransPayment{}}
}

func newXenditDouble() *xenditDouble {
	return &xenditDouble{key: xenditKey, token: xenditToken, sessions: map[string]object{}, latest: map[string]string{}, refunds: map[string]object{}}
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
