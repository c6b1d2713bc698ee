package main

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// This file is the network as the service sees it: Midtrans, Xendit, and the receivers of webhooks. Both
// gateways refuse what their documentation refuses, and keep books of their own: what a test wants to know of
// money, it asks them.

// gatewayDouble is what a story does with either gateway.
type gatewayDouble interface {
	http.Handler
	// pages names the pages of an order, the latest last: all, or those that a buyer can pay now.
	pages(order string, payable bool) []string
	// say sets what became of the page's payment, such as settlement=1000.
	say(order, page, state string)
	// message is the notification of that: the path before the store's id, headers, and a body that is
	// signed.
	message(order, page, state string) (path string, header []string, body string)
}

// book is what a gateway knows.
type book struct {
	t    *testing.T
	key  string
	open func(*gatewayPage) bool // whether a page could be paid, but for its end

	mu   sync.Mutex
	all  []*gatewayPage
	sent []string // the bodies that made pages
}

// gatewayPage is a page where a buyer pays: Midtrans names it by a token, Xendit calls it a session.
type gatewayPage struct {
	reference, id string
	amount        int64
	ends          time.Time
	status        string        // ACTIVE, or as Xendit says; CANCELED is closed
	payments      []snapPayment // at Midtrans, each after the one before has failed
}

// named are the pages of an order and their names: 1 is that of the first attempt; if a lost answer has left
// two, they are 1a and 1b.
func (b *book) named(order string) (names []string, pages []*gatewayPage) {
	for _, p := range b.all {
		if attempt, of := strings.CutPrefix(p.reference, order+"-"); of {
			if i := slices.Index(names, attempt); i >= 0 {
				names[i] += "a"
				attempt += "b"
			}
			names, pages = append(names, attempt), append(pages, p)
		}
	}
	return names, pages
}

func (b *book) pages(order string, payable bool) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, pages := b.named(order)
	for i, p := range pages {
		if !payable || b.open(p) && time.Now().Before(p.ends) {
			names = append(names, all[i])
		}
	}
	return names
}

// page is the page of a name. 1 is the last one of the first attempt.
func (b *book) page(order, name string) *gatewayPage {
	names, pages := b.named(order)
	i := max(slices.Index(names, name), slices.Index(names, name+"b"))
	if i < 0 {
		b.t.Fatalf("the gateway has no page %s of this order", name)
	}
	return pages[i]
}

// find is the page of a token or a session's id, nil if there is none.
func (b *book) find(id string) *gatewayPage {
	if i := slices.IndexFunc(b.all, func(p *gatewayPage) bool { return p.id == id }); i >= 0 {
		return b.all[i]
	}
	return nil
}

const (
	midtransKey = "Mid-server-example"
	xenditKey   = "xnd_production_example"
	xenditToken = "callback-token-example"
)

// internet takes the place of the network between the service, the gateways and the receivers.
type internet struct {
	t        *testing.T
	midtrans *midtransDouble
	xendit   *xenditDouble
	inbox    *inbox

	mu    sync.Mutex
	fault fault
	calls []string // such as "midtrans create"
	paths []string // of these calls
}

// fault is what happens to the next call that has a text in its name, or to all of them. Its kind is one of
//
//	down   there is no connection
//	lost   the gateway does what it is asked to, and its answer is lost
//	hang   the gateway never answers
//	slow   the gateway's answer is on its way for five seconds
//	panic  something in the program does not stand the answer
//	500    the gateway gives this status; after 400,500 the call is refused first, and then there is an outage
//	none   there is no fault any more
type fault struct {
	kind, on string
	always   bool
	met      bool // by a call
}

func newNetwork(t *testing.T) *internet {
	xendit := &xenditDouble{odd: map[string]bool{}, customers: map[string]bool{}}
	xendit.t, xendit.key = t, xenditKey
	xendit.open = func(p *gatewayPage) bool { return p.status == "ACTIVE" }
	midtrans := &midtransDouble{odd: map[string]bool{}}
	midtrans.t, midtrans.key, midtrans.open = t, midtransKey, (*gatewayPage).takesPayment
	inbox := &inbox{t: t, secrets: map[string][]string{}, now: map[string]int{}, most: map[string]int{}}
	inbox.answer = func(webhook) string { return "200" }
	return &internet{t: t, fault: fault{kind: "none"}, midtrans: midtrans, xendit: xendit, inbox: inbox}
}

// operations name the calls to gateways.
var operations = []struct {
	call *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`^POST /(snap/v1/transactions|sessions)$`), "create"},
	{regexp.MustCompile(`^GET `), "status"},
	{regexp.MustCompile(`/(approve|deny)$`), "decide"},
	{regexp.MustCompile(``), "close"},
}

// count is how many calls there were, such as "midtrans close".
func (n *internet) count(call string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Count(fmt.Sprint(n.calls), call)
}

func (n *internet) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	name, double := "xendit", http.Handler(n.xendit)
	if strings.HasSuffix(r.URL.Host, ".midtrans.com") {
		name, double = "midtrans", n.midtrans
	}
	n.paths = append(n.paths, r.URL.EscapedPath())
	n.mu.Unlock()
	if name == "xendit" && r.URL.Host != "api.xendit.co" {
		return n.inbox.receive(r)
	}
	for _, o := range operations {
		if o.call.MatchString(r.Method + " " + r.URL.Path) {
			name += " " + o.name
			break
		}
	}

	answer := httptest.NewRecorder()
	kind := n.faultOf(name)
	switch kind {
	case "down":
		return nil, errors.New("connection refused")
	case "panic":
		panic("what a gateway answers")
	case "hang":
		<-r.Context().Done()
	case "", "lost", "slow":
		double.ServeHTTP(answer, r)
	default:
		status, err := strconv.Atoi(kind)
		must(n.t, err)
		words := "a fault:"
		text, _ := decode(r)
		for _, repeated := range askedFor.FindAllStringSubmatch(text, -1) {
			words += " " + repeated[1] + " " + strings.ToUpper(repeated[1])
		}
		said := fields{"error_messages": []string{words}, "message": words}
		if status < 500 {
			said["status_code"] = kind
		}
		sendJSON(answer, status, said)
	}
	if kind == "lost" {
		return nil, errors.New("connection reset")
	}
	if kind == "slow" {
		time.Sleep(5 * time.Second)
	}
	if answer.Code >= 400 && answer.Code != 404 {
		n.t.Logf("%s: %d %s", name, answer.Code, answer.Body)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

// askedFor matches what the words of a fault repeat: our reference, and what a request for a page says of its buyer.
var askedFor = regexp.MustCompile(
	`"(?:email|first_name|given_names|phone|mobile_number|order_id|reference_id)":"([^"]*)"`)

// faultOf notes a call and returns the kind of its fault, "" if it has none.
func (n *internet) faultOf(name string) (kind string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, name)
	if n.fault.kind == "none" || !strings.Contains(name, n.fault.on) {
		return ""
	}
	kind, next, _ := strings.Cut(n.fault.kind, ",")
	n.fault.met = true
	if !n.fault.always {
		n.fault.kind = cmp.Or(next, "none")
	}
	return kind
}

func (n *internet) setFault(f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
}

// pageOf is a page of an order and its gateway: the one of a name, or the latest.
func (n *internet) pageOf(order, name string) (gateway gatewayDouble, page string) {
	for _, g := range []gatewayDouble{n.midtrans, n.xendit} {
		for _, found := range g.pages(order, false) {
			attempt := strings.TrimRight(found, "ab")
			if name == "" && attempt >= page || name == attempt || name == found {
				gateway, page = g, cmp.Or(name, attempt)
			}
		}
	}
	if gateway == nil {
		n.t.Fatalf("no gateway has the page %q of this order", name)
	}
	return gateway, page
}

// payable names the pages of an order that can be paid.
func (n *internet) payable(order string) string {
	all := append(n.midtrans.pages(order, true), n.xendit.pages(order, true)...)
	slices.Sort(all)
	return strings.Join(all, " ")
}

// fields is an object of JSON.
type fields = map[string]any

func sendJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// decode reads the body of a request; numbers stay as they were written.
func decode(r *http.Request) (text string, body any) {
	sent, _ := io.ReadAll(r.Body)
	d := json.NewDecoder(bytes.NewReader(sent))
	d.UseNumber()
	d.Decode(&body)
	return string(sent), body
}

// signedIn reports whether a request has the key as its user name and no password, as both gateways want it.
func signedIn(r *http.Request, key string) bool {
	user, password, ok := r.BasicAuth()
	return ok && user == key && password == ""
}

// request is the texts in a body by their paths, such as items[].name. That of an object is {}.
type request map[string][]string

func (in request) add(path string, value any) {
	switch value := value.(type) {
	case fields:
		in[path] = append(in[path], "{}")
		for name, v := range value {
			in.add(strings.TrimPrefix(path+"."+name, "."), v)
		}
	case []any:
		for _, v := range value {
			in.add(path+"[]", v)
		}
	default:
		in[path] = append(in[path], fmt.Sprint(value))
	}
}

// text is the first text of a path, and number the same as a number.
func (in request) text(path string) string { return strings.Join(in[path][:min(1, len(in[path]))], "") }

func (in request) number(path string) (n int64) {
	n, _ = strconv.ParseInt(in.text(path), 10, 64)
	return n
}

// sum adds up the lines of a request.
func (in request) sum(price, quantity string) (sum int64) {
	for i := range in[price] {
		one := request{"price": in[price][i:], "quantity": in[quantity][i:]}
		sum += one.number("price") * one.number("quantity")
	}
	return sum
}

// readRequest reads a body, and returns what of it is against the rules, if anything. A rule is a line: a
// path, with "?" if it may be missing, and the pattern of its texts. Nothing else may be there.
func readRequest(rules string, body any) (in request, wrong string) {
	in = request{}
	in.add("", body)
	ruled := map[string]bool{"": true}
	for rule := range strings.Lines(strings.TrimSpace(rules)) {
		path, pattern, _ := strings.Cut(strings.TrimSpace(rule), " ")
		path, optional := strings.CutSuffix(path, "?")
		parent := path[:max(0, strings.LastIndex(path, "."))]
		ruled[path] = true
		if !optional && len(in[path]) < len(in[parent]) {
			return in, path + " is required"
		}
		for _, text := range in[path] {
			if !regexp.MustCompile("^(" + strings.TrimSpace(pattern) + ")$").MatchString(text) {
				return in, path + " is invalid: " + text
			}
		}
	}
	for path := range in {
		if !ruled[path] {
			return in, path + " is not known"
		}
	}
	return in, ""
}

// when is why a request is refused, if something is so.
func when(so bool, why string) string {
	if so {
		return why
	}
	return ""
}

const snapChannels = `(bca|bni|bri|permata|cimb|bsi|danamon|seabank|saqu)_va|echannel|other_qris|` +
	`gopay|shopeepay|dana|ovo|credit_card|alfamart|indomaret|akulaku|kredivo`

const midtransRules = `
	transaction_details              {}
	transaction_details.order_id     .{1,50}
	transaction_details.gross_amount [1-9][0-9]*
	item_details[]?                  {}
	item_details[].id                .{0,50}
	item_details[].name              [^|]{1,50}
	item_details[].price             -?[1-9][0-9]*
	item_details[].quantity          [1-9][0-9]*
	customer_details?                {}
	customer_details.first_name?     [^|]{1,30}
	customer_details.email?          [!-~]+@[!-~]+\.[!-~]+
	customer_details.phone?          (\+62|0)[0-9]+
	credit_card                      {}
	credit_card.secure               true
	custom_field1                    INV-.*
	enabled_payments[]?              ` + snapChannels + `
	callbacks?                       {}
	callbacks.finish?                https?://.*
	callbacks.error?                 https?://.*
	gopay?                           {}
	gopay.enable_callback            true
	gopay.callback_url               https?://[^?]*
	shopeepay?                       {}
	shopeepay.callback_url           https?://[^?]*
	dana?                            {}
	dana.callback_url                https?://[^?]*
	customer_imposed_payment_fee?    {}
	customer_imposed_payment_fee.enable false
	expiry                           {}
	expiry.start_time                \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}
	expiry.unit                      minute
	expiry.duration                  [0-9]+`

// midtransDouble is Midtrans: Snap has pages, and the API v2 the transactions that buyers begin there.
type midtransDouble struct {
	book

	// odd is what an account may be like: fee (buyers are charged Rp710 more), promo (Rp500
	// less), top (it says so at the top of an answer),
	// numbers (amounts and codes are no texts), nofields (it refuses what is not needed, with 422), used1 to used5 (its
	// words for a reference that is used; the last was not published), noreference (it refuses a reference that is not
	// used), dollars (payments are in another currency), unknown200 (it says in an answer with 200 that it knows no
	// such payment), empty (it is another account, which knows none of the pages).
	odd map[string]bool
}

// usedWords are what Midtrans says to a reference that is used, with the status.
var usedWords = map[string]string{
	"used1": "400 transaction_details.order_id has already been taken",
	"used2": "400 transaction_details.order_id sudah digunakan",
	"used3": "400 Transaction with the same order_id has been paid and utilized, please use another order ID",
	"used4": "406 Duplicate order ID. order_id has already been utilized previously",
	"used5": "422 ORDER_ID is not available",
}

// is reports whether the account is odd in this way.
func (d *midtransDouble) is(odd string) bool { return d.odd[odd] }

// snapPayment is a transaction as Midtrans describes it.
type snapPayment struct {
	Order     string       `json:"order_id"`
	ID        string       `json:"transaction_id"`
	Status    string       `json:"transaction_status"`
	Fraud     string       `json:"fraud_status,omitempty"`
	Gross     string       `json:"gross_amount"`
	Returned  string       `json:"refund_amount,omitempty"` // in all
	Refunds   []snapRefund `json:"refunds,omitempty"`
	Code      string       `json:"status_code"`
	Signature string       `json:"signature_key"`
	Currency  string       `json:"currency,omitempty"`
	Channel   string       `json:"payment_type,omitempty"`
	Accounts  []fields     `json:"va_numbers,omitempty"`
	Metadata  fields       `json:"metadata,omitempty"`
	Extra     fields       `json:"extra_info,omitempty"`
	raw       fields       // what is sent instead, but for the fields that make it ours
	kind      string       // dana and va are known by transaction_id only
	returned  int64
}

type snapRefund struct {
	Amount string `json:"refund_amount"`
}

func (p snapPayment) is(statuses string) bool {
	return slices.Contains(strings.Fields(statuses), strings.ToLower(p.Status))
}

// failed reports whether the buyer may begin another payment on the same page.
func (p snapPayment) failed() bool {
	return p.is("deny failure expire") || strings.EqualFold(p.Fraud, "deny")
}

func (d *midtransDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.is("empty") {
		defer func(all []*gatewayPage) { d.all = all }(d.all)
		d.all = nil
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	refusal, status := "no such path", 404
	switch {
	case !signedIn(r, d.key):
		refusal, status = "Access denied due to unauthorized transaction", 401
	case len(path) == 3 && path[0] == "snap":
		refusal, status = d.create(w, r)
	case len(path) == 5 && path[4] == "cancel":
		refusal, status = d.closePage(w, d.find(path[3])), 400
	case len(path) == 3 && path[0] == "v2":
		isSNAP := r.Header.Get("transaction-source") == "SNAP_API"
		refusal, status = d.act(w, path[1], path[2], isSNAP)
	}
	if refusal != "" {
		code := strconv.Itoa(status)
		body := fields{"status_code": code, "status_message": refusal, "error_messages": []string{refusal}}
		if status == 404 && d.is("unknown200") {
			status = 200
		}
		sendJSON(w, status, body)
	}
}

func (d *midtransDouble) create(w http.ResponseWriter, r *http.Request) (refusal string, status int) {
	text, body := decode(r)
	in, wrong := readRequest(midtransRules, body)
	reference := in.text("transaction_details.order_id")
	amount := in.number("transaction_details.gross_amount")
	minutes := in.number("expiry.duration")
	prices := in["item_details[].price"]
	negative := func(price string) bool { return price[0] == '-' }
	same := func(p *gatewayPage) bool { return p.reference == reference }
	taken := func(p *gatewayPage) bool { return same(p) && len(p.payments) > 0 }
	if slices.ContainsFunc(d.all, taken) {
		words := usedWords["used1"]
		for odd := range d.odd {
			words = cmp.Or(usedWords[odd], words)
		}
		status, _ = strconv.Atoi(words[:3])
		return words[4:], status
	}
	if d.is("noreference") {
		return "transaction_details.order_id " + reference + " has too many characters", 400
	}
	if d.is("nofields") && (len(prices) > 0 || in["customer_details"] != nil) {
		return "customer_details is invalid", 422
	}
	channels := in["enabled_payments[]"]
	offersDANA := len(channels) == 0 || slices.Contains(channels, "dana")
	refusal = cmp.Or(wrong,
		when(offersDANA && (minutes < 15 || minutes > 24*60), "expiry.duration is not 15 minutes to a day, for DANA"),
		when(len(prices) > 0 && in.sum("item_details[].price", "item_details[].quantity") != amount,
			"gross_amount is not equal to the sum of item_details"),
		when(slices.ContainsFunc(prices, negative) && !slices.Contains(in["item_details[].id"], "discount"),
			"item_details.price is not positive"),
		when(minutes < 5 || minutes > 7*24*60, "expiry.duration is not 5 minutes to 7 days"),
		when(len(text) > 16000, "the request has more than 16 KB"),
		when(r.Header.Get("Content-Type") != "application/json", "the body is no JSON"),
		when(r.Header.Get("X-Override-Notification") == "", "it does not say where notifications go"))
	if refusal != "" {
		return refusal, 400
	}

	d.sent = append(d.sent, text)
	d.all = slices.DeleteFunc(d.all, same) // its token dies
	token := fmt.Sprintf("token-%d", len(d.sent))
	page := &gatewayPage{reference: reference, id: token, amount: amount, status: "ACTIVE"}
	begins, _ := time.Parse("2006-01-02 15:04:05 -0700", in.text("expiry.start_time"))
	page.ends = begins.Add(time.Duration(minutes) * time.Minute)
	d.all = append(d.all, page)
	address := "https://app.midtrans.com/snap/v4/redirection/" + token
	sendJSON(w, 201, fields{"token": token, "redirect_url": address})
	return "", 0
}

// forge makes a page under a reference, as somebody can who knows the key.
func (d *midtransDouble) forge(reference string, amount int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, &gatewayPage{reference: reference, id: "theirs", amount: amount,
		ends: time.Now().Add(time.Hour), status: "ACTIVE"})
}

func (d *midtransDouble) closePage(w http.ResponseWriter, page *gatewayPage) (refusal string) {
	if page == nil {
		return "token not found"
	}
	inProgress := page.latest().is("pending authorize") || strings.EqualFold(page.latest().Fraud, "challenge")
	refusal = cmp.Or(
		when(page.status == "CANCELED" || page.latest().is("cancel"), "token already canceled"),
		when(inProgress, "Transaction is on progress"),
		when(!time.Now().Before(page.ends), "token not found"))
	if refusal == "" {
		page.status = "CANCELED"
		sendJSON(w, 200, fields{"canceled_at": "2000-01-01T00:00:00.000Z"})
	}
	return refusal
}

// latest is the payment that began last, an empty one if none has.
func (p *gatewayPage) latest() (latest snapPayment) {
	if len(p.payments) > 0 {
		latest = p.payments[len(p.payments)-1]
	}
	return latest
}

// takesPayment reports whether a payment waits for its money, or another one can begin.
func (p *gatewayPage) takesPayment() bool {
	begun := p.latest()
	return begun.is("pending") || p.status == "ACTIVE" && (begun.ID == "" || begun.failed())
}

// snapActs are what can be done to a transaction: from which states, and what it is then.
var snapActs = map[string]struct{ from, status, fraud string }{
	"expire":  {"^pending/", "expire", ""},
	"cancel":  {"^pending/", "cancel", ""},
	"deny":    {"^capture/challenge$", "deny", "deny"},
	"approve": {"^capture/challenge$", "capture", "accept"},
}

// act answers a question about a transaction, or does something to it. It is named by its id or, unless its
// kind is known by that alone, by its order_id.
func (d *midtransDouble) act(w http.ResponseWriter, name, act string, isSNAP bool) (refusal string, status int) {
	var found *snapPayment
	for _, page := range d.all {
		for i, p := range page.payments {
			if p.ID == name || p.Order == name && p.kind == "" {
				found = &page.payments[i]
			}
		}
	}
	if found == nil {
		return "Transaction doesn't exist.", 404
	}
	runsOverSNAP := found.kind != ""
	if act == "cancel" && (!isSNAP || !runsOverSNAP || name != found.ID || !found.is("pending")) {
		d.t.Error("a payment is canceled: that takes captured money back")
	}
	if act == "expire" && runsOverSNAP {
		return "Merchant cannot modify the status of the transaction", 412
	}
	if does, ok := snapActs[act]; ok {
		if !regexp.MustCompile(does.from).MatchString(strings.ToLower(found.Status + "/" + found.Fraud)) {
			return "Merchant cannot modify the status of the transaction", 412
		}
		found.Status, found.Fraud = does.status, does.fraud
	}
	answer := *found
	if found.kind == "dana" {
		answer.Order = found.ID
	}
	d.send(w, d.sign(answer))
	return "", 0
}

// send writes a transaction.
func (d *midtransDouble) send(w http.ResponseWriter, p snapPayment) {
	w.Write([]byte(d.written(p)))
}

// written is a transaction in JSON.
func (d *midtransDouble) written(p snapPayment) string {
	var sent any = p
	if p.raw != nil {
		raw := maps.Clone(p.raw)
		raw["order_id"], raw["signature_key"] = p.Order, p.Signature
		sent = raw
	}
	text, err := json.Marshal(sent)
	must(d.t, err)
	if d.is("numbers") {
		return writtenNumbers.ReplaceAllStringFunc(string(text), func(field string) string {
			name, value, _ := strings.Cut(strings.ReplaceAll(field, `"`, ""), ":")
			return fmt.Sprintf("%q:%s", name, value)
		})
	}
	return string(text)
}

// writtenNumbers matches the fields of a transaction that may be numbers as well.
var writtenNumbers = regexp.MustCompile(`"(gross_amount|status_code|refund_amount|original_amount)":"[^"]*"`)

// sign completes a transaction as it is sent.
func (d *midtransDouble) sign(p snapPayment) snapPayment {
	codes := map[string]string{"pending": "201", "deny": "202", "failure": "202", "expire": "407"}
	p.Code = cmp.Or(codes[strings.ToLower(p.Status)], "200")
	if p.raw != nil {
		p.Code = textOf(p.raw, "status_code")
	}
	p.Channel = cmp.Or(map[string]string{"dana": "dana", "va": "bank_transfer"}[p.kind], "credit_card")
	if p.kind == "va" {
		p.Accounts = []fields{{"bank": "bsi", "va_number": "20203314732052930"}}
	}
	if d.is("fee") || d.is("top") || d.is("promo") {
		gross, _ := strconv.ParseFloat(p.Gross, 64)
		extra := fields{"gross_amount_info": fields{"original_amount": p.Gross}}
		added := 710.0
		if d.is("promo") {
			added = -500
		}
		p.Gross = fmt.Sprintf("%.2f", gross+added)
		if d.is("top") {
			p.Extra = extra
		} else {
			p.Metadata = fields{"extra_info": extra}
		}
	}
	if d.is("dollars") {
		p.Currency = "USD"
	}
	if whole, isWhole := strings.CutSuffix(p.Gross, "00.00"); isWhole && d.is("numbers") {
		p.Gross = whole + "E2"
	}
	p.Signature = fmt.Sprintf("%x", sha512.Sum512([]byte(p.Order+p.Code+p.Gross+d.key)))
	if p.Status == strings.ToUpper(p.Status) {
		p.Signature = strings.ToUpper(p.Signature)
	}
	return p
}

// snapStates are the states that a story may name, with a fraud_status or an amount if need be:
// capture/challenge, settlement=1000, partial_refund=1000 (of all refunds). Before a colon may stand the kind
// of a payment, or whether it is the next one or the same, whatever has become of it.
var snapStates = regexp.MustCompile(`^(?i)(?:(dana|va|next|same):)?` +
	`(pending|settlement|capture|authorize|deny|failure|cancel|expire|` +
	`refund|chargeback|partial_refund|partial_chargeback|unheard_of)` +
	`(?:/(\w+))?(?:=(\d+))?$`)

// saying is a page's payment in another state: its latest payment, or another one if the buyer has to begin
// again because that has failed.
func (d *midtransDouble) saying(page *gatewayPage, state string) (said snapPayment, again bool) {
	m := snapStates.FindStringSubmatch(state)
	if m == nil {
		d.t.Fatalf("Midtrans says no %s", state)
	}
	said = page.latest()
	beginsAgain := said.failed() && !(snapPayment{Status: m[2], Fraud: m[3]}).failed()
	again = said.ID == "" || m[1] == "next" || beginsAgain && m[1] != "same"
	if again {
		id := fmt.Sprintf("tx-%s-%d", page.reference, len(page.payments)+1)
		said = snapPayment{Order: page.reference, ID: id, Gross: fmt.Sprintf("%d.00", page.amount)}
	}

	said.Status, said.Fraud = m[2], m[3]
	if m[1] == "dana" || m[1] == "va" {
		said.kind = m[1]
	}
	amount, err := strconv.ParseInt(m[4], 10, 64)
	if err == nil && said.is("settlement capture pending") {
		said.Gross = m[4] + ".00"
	} else if err == nil {
		one := snapRefund{fmt.Sprintf("%d.00", amount-said.returned)}
		said.Refunds = append(slices.Clone(said.Refunds), one)
		said.Returned, said.returned = m[4]+".00", amount
	}
	return said, again
}

func (d *midtransDouble) say(order, name, state string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	page := d.page(order, name)
	said, again := d.saying(page, state)
	if !again {
		page.payments = page.payments[:len(page.payments)-1]
	}
	page.payments = append(page.payments, said)
}

// message is about the payment that has the state, or would have it. It always names our order_id.
func (d *midtransDouble) message(order, name, state string) (path string, header []string, body string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	page := d.page(order, name)
	said, _ := d.saying(page, state)
	for _, p := range page.payments {
		if p.is(strings.ToLower(said.Status)) {
			said = p
		}
	}
	return "/notifications/midtrans/", nil, d.written(d.sign(said))
}

const xenditChannels = `(BCA|BNI|BRI|MANDIRI|PERMATA|CIMB|BSI|BJB|BNC|MUAMALAT)_VIRTUAL_ACCOUNT|QRIS|GOPAY|SHOPEEPAY|` +
	`DANA|OVO|LINKAJA|ASTRAPAY|JENIUSPAY|CARDS|ALFAMART|INDOMARET|AKULAKU|KREDIVO|INDODANA`

const xenditRules = `
	reference_id                           .{1,64}
	session_type                           PAY
	mode                                   PAYMENT_LINK
	amount                                 [1-9][0-9]*
	currency                               IDR
	country                                ID
	locale?                                id|en
	description?                           .*
	customer?                              {}
	customer.reference_id                  [0-9A-Za-z]{1,255}
	customer.type                          INDIVIDUAL
	customer.email?                        [!-~]{1,38}@[!-~]+\.[!-~]+
	customer.mobile_number?                \+[1-9][0-9]{6,14}
	customer.individual_detail             {}
	customer.individual_detail.given_names [\pL\pN ]{1,50}
	items[]?                               {}
	items[].reference_id                   .{1,255}
	items[].name                           .{1,255}
	items[].type                           DIGITAL_PRODUCT|PHYSICAL_PRODUCT|FEE
	items[].category                       \w+
	items[].currency                       IDR
	items[].quantity                       [1-9][0-9]*
	items[].net_unit_amount                -?[1-9][0-9]*
	allowed_payment_channels[]?            ` + xenditChannels + `
	expires_at?                            \d{4}-.*Z
	success_return_url                     https://[^?]*
	cancel_return_url                      https://[^?]*
	metadata?                              {}`

// xenditDouble is Xendit and its Payment Sessions.
type xenditDouble struct {
	book

	// odd is what an account may be like: older (refunds have an id and that of the payment's request, and no paths of
	// /v3), newer (they have the id of the payment alone), nolists (it may not list its refunds), norefunds (nor read
	// one), nested (a refund's notification has data.data), discounts (lines may be negative), short (a session lasts
	// an hour at most, not a day), nofields (it refuses what is not needed, with 422), nopayments (it may not read
	// payments), renamed (they have another reference), foreign (and another request), dollars (sessions are in another
	// currency), noamount (or have none).
	odd       map[string]bool
	customers map[string]bool // by their reference_id
	refunds   []*xenditReturn
	disputes  []*xenditReturn
	payments  []*xenditPayment
	raw       map[string]any // answers word for word, by path
}

// xenditPayment is what a buyer began on a page: it lives on when the session has ended.
type xenditPayment struct {
	Payment   string   `json:"payment_id"`
	Request   string   `json:"payment_request_id"`
	Reference string   `json:"reference_id"`
	Type      string   `json:"type"`
	Country   string   `json:"country"`
	Currency  string   `json:"currency"`
	Amount    int64    `json:"request_amount"`
	Captures  []fields `json:"captures,omitempty"`
	Channel   string   `json:"channel_code"`
	Status    string   `json:"status"`
}

// session is a page as Xendit describes it.
func (p *gatewayPage) session() fields {
	s := fields{
		"payment_session_id": p.id,
		"reference_id":       p.reference,
		"status":             p.status,
		"amount":             p.amount,
		"currency":           "IDR",
		"payment_link_url":   "https://xen.to/" + p.id,
		"expires_at":         p.ends,
	}
	if strings.EqualFold(p.status, "COMPLETED") {
		s["payment_id"], s["payment_request_id"] = "py-"+p.id, "pr-"+p.id
	}
	return s
}

// xenditReturn is a refund or a dispute.
type xenditReturn struct {
	Event     string `json:"event,omitempty"`
	RefundID  string `json:"refund_id,omitempty"`
	ID        string `json:"id,omitempty"` // also of a refund in an older account
	Status    string `json:"status"`
	Amount    any    `json:"amount"`
	Payment   string `json:"payment_id,omitempty"`
	Request   string `json:"payment_request_id,omitempty"`
	Reference string `json:"reference_id,omitempty"`
	UpdatedAt string `json:"updated_at,omitempty"` // of a dispute
	page      string // whose money it is
}

func (d *xenditDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	newer := path[0] == "v3"
	if newer {
		path = path[1:]
	}
	id := path[len(path)-1]
	page := d.find(path[min(1, len(path)-1)])
	var found any
	status, refusal := 200, ""
	switch {
	case !signedIn(r, d.key):
		refusal = "401 INVALID_API_KEY"
	case d.raw[r.URL.Path] != nil && r.Method == "GET":
		found = d.raw[r.URL.Path]
	case r.Method == "POST" && r.URL.Path == "/sessions":
		status = 201
		found, refusal = d.create(r)
	case path[0] == "payments" || path[0] == "payment_requests":
		found, refusal = d.payment(r, newer, path)
	case page != nil && id == "cancel" && page.status != "ACTIVE":
		refusal = "422 INVALID_SESSION_STATUS: the session is not active"
	case page != nil:
		if id == "cancel" {
			page.status = "CANCELED"
		}
		session := page.session()
		if d.odd["dollars"] {
			session["currency"] = "USD"
		}
		if d.odd["noamount"] {
			delete(session, "amount")
		}
		found = session
	case path[0] == "refunds" && d.odd["norefunds"]:
		refusal = "500 SERVER_ERROR"
	case path[0] != "refunds" || newer == d.odd["older"]:
	case newer && r.Header.Get("Api-Version") != "2024-11-11":
	case len(path) == 2:
		found = returnNamed(d.refunds, id)
	case d.odd["nolists"]:
		refusal = "403 REQUEST_FORBIDDEN_ERROR"
	default: // two a page
		others := func(x *xenditReturn) bool { return "pr-"+x.page != r.FormValue("payment_request_id") }
		last := func(x *xenditReturn) bool { return x.RefundID+x.ID == r.FormValue("after_id") }
		list := slices.DeleteFunc(slices.Clone(d.refunds), others)
		list = list[slices.IndexFunc(list, last)+1:]
		found = fields{"data": list[:min(2, len(list))], "has_more": len(list) > 2}
	}
	if refusal = cmp.Or(refusal, when(found == nil, "404 DATA_NOT_FOUND")); refusal != "" {
		status, _ = strconv.Atoi(refusal[:3])
		code, message, _ := strings.Cut(refusal[4:], ": ")
		found = fields{"error_code": code, "message": message}
	}
	sendJSON(w, status, found)
}

func returnNamed(list []*xenditReturn, id string) any {
	for _, x := range list {
		if x.RefundID+x.ID == id {
			return x
		}
	}
	return nil
}

func (d *xenditDouble) create(r *http.Request) (session any, refusal string) {
	text, body := decode(r)
	in, wrong := readRequest(xenditRules, body)
	const prices = "items[].net_unit_amount"
	customer, amount := in.text("customer.reference_id"), in.number("amount")
	ends, err := time.Parse(time.RFC3339, in.text("expires_at"))
	if err != nil {
		ends = time.Now().Add(30 * time.Minute)
	}
	most := 24 * time.Hour
	if d.odd["short"] {
		most = time.Hour
	}
	if ends.After(time.Now().Add(most)) {
		return nil, "400 INVALID_EXPIRY_DATE: expires_at exceeds the maximum allowed expiry duration"
	}
	if d.odd["nofields"] && (len(in[prices]) > 0 || customer != "") {
		return nil, "422 API_VALIDATION_ERROR: customer is invalid"
	}
	wrong = cmp.Or(wrong,
		when(ends.Before(time.Now().Add(10*time.Minute)), "expires_at is not ten minutes ahead"),
		when(len(in[prices]) > 0 && in.sum(prices, "items[].quantity") != amount,
			"the items do not sum to the amount"),
		when(!d.odd["discounts"] && strings.Contains(strings.Join(in[prices], ""), "-"),
			"items.net_unit_amount is not positive"))
	if wrong != "" {
		return nil, "400 API_VALIDATION_ERROR: " + wrong
	}
	if d.customers[customer] {
		return nil, "409 DUPLICATE_ERROR: customer.reference_id was used before"
	}

	// A reference_id may be used again: then there are two sessions of it.
	d.sent = append(d.sent, text)
	d.customers[customer] = customer != ""
	id := fmt.Sprintf("ps-%d", len(d.sent))
	page := &gatewayPage{reference: in.text("reference_id"), id: id, amount: amount, ends: ends}
	page.status = "ACTIVE"
	d.all = append(d.all, page)
	return page.session(), ""
}

// payment answers a question about a payment, or ends its request.
func (d *xenditDouble) payment(r *http.Request, newer bool, path []string) (found any, refusal string) {
	i := slices.IndexFunc(d.payments,
		func(p *xenditPayment) bool { return p.Payment == path[1] || p.Request == path[1] })
	switch {
	case !newer, r.Header.Get("Api-Version") != "2024-11-11":
		return nil, "404 DATA_NOT_FOUND"
	case d.odd["nopayments"]:
		return nil, "403 REQUEST_FORBIDDEN_ERROR"
	case i < 0:
		return nil, "404 DATA_NOT_FOUND"
	case r.Method == "POST" && d.payments[i].Status != "PENDING":
		return nil, "409 REQUEST_STATUS_ERROR: it cannot be canceled"
	case r.Method == "POST":
		d.payments[i].Status = "CANCELED"
	}
	payment := *d.payments[i]
	if d.odd["renamed"] {
		payment.Reference = "another"
	}
	if d.odd["foreign"] {
		payment.Request = "pr-another"
	}
	return payment, ""
}

// xenditSays are the states that a story may name: of a session, with an amount if need be; of a refund or a dispute of
// an amount, such as refund=1000, refund/PENDING=1000 and dispute/LOST=1000; and of the payment that a session's buyer
// has begun, such as payment, payment/PENDING and payment=1000.
var xenditSays = regexp.MustCompile(
	`^(?i)(ACTIVE|PENDING|COMPLETED|EXPIRED|CANCELED|refund|dispute|payment)(?:/(\w+))?(?:=(\d+))?$`)

func (d *xenditDouble) saying(state string) (kind, status string, amount int64) {
	m := xenditSays.FindStringSubmatch(state)
	if m == nil {
		d.t.Fatalf("Xendit says no %s", state)
	}
	amount, _ = strconv.ParseInt(m[3], 10, 64)
	return m[1], cmp.Or(m[2], "SUCCEEDED"), amount
}

func (d *xenditDouble) say(order, name, state string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	page := d.page(order, name)
	kind, status, amount := d.saying(state)
	x := d.returnOf(page, kind, amount)
	number := fmt.Sprintf("%s-%d", kind, len(d.refunds)+len(d.disputes)+1)
	switch {
	case kind == "dispute":
		if x == nil {
			x = &xenditReturn{ID: number, Payment: "py-" + page.id, Reference: page.reference, page: page.id}
			d.disputes = append(d.disputes, x)
		}
		x.Status, x.Amount = status, fields{"initial": fmt.Sprintf("%d.00", amount)}
		x.UpdatedAt = time.Now().UTC().Format(time.RFC3339Nano)
	case kind == "payment":
		p := d.paymentOf(page)
		if len(d.payments) == 0 || !slices.Contains(d.payments, p) {
			d.payments = append(d.payments, p)
		}
		p.Status, p.Captures = status, nil
		if status == "SUCCEEDED" {
			p.Captures = []fields{{"capture_id": "cptr-1", "capture_amount": cmp.Or(amount, page.amount)}}
		}
	case kind == "refund":
		if x == nil {
			x = &xenditReturn{RefundID: number, Amount: amount, page: page.id}
			x.Payment, x.Request = "py-"+page.id, "pr-"+page.id
			switch {
			case d.odd["older"]:
				x.RefundID, x.ID, x.Payment = "", number, ""
			case d.odd["newer"]:
				x.Request = ""
			}
			d.refunds = append(d.refunds, x)
		}
		x.Status = status
	default:
		page.status, page.amount = kind, cmp.Or(amount, page.amount)
	}
}

// paymentOf is the payment of a page, which it may still have to begin.
func (d *xenditDouble) paymentOf(page *gatewayPage) *xenditPayment {
	for _, p := range d.payments {
		if p.Payment == "py-"+page.id {
			return p
		}
	}
	return &xenditPayment{Payment: "py-" + page.id, Request: "pr-" + page.id, Reference: page.reference, Type: "PAY",
		Country: "ID", Currency: "IDR", Amount: page.amount, Channel: "QRIS"}
}

// returnOf is a page's refund of an amount, or its dispute.
func (d *xenditDouble) returnOf(page *gatewayPage, kind string, amount int64) *xenditReturn {
	for _, x := range map[string][]*xenditReturn{"refund": d.refunds, "dispute": d.disputes}[kind] {
		if x.page == page.id && (kind == "dispute" || x.Amount == amount) {
			return x
		}
	}
	return nil
}

func (d *xenditDouble) message(order, name, state string) (path string, header []string, body string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	page := d.page(order, name)
	kind, status, amount := d.saying(state)
	event := fields{"event": "payment_session." + strings.ToLower(kind), "business_id": "661f87c614802d6c402cd82d",
		"created": time.Now().UTC().Format(time.RFC3339Nano), "data": page.session()}
	var message any = event
	x := d.returnOf(page, kind, amount)
	switch {
	case kind == "dispute":
		flat := *x
		flat.Event = "dispute." + strings.ToLower(status)
		message = flat
	case kind == "payment":
		said := *d.paymentOf(page)
		said.Status = status
		names := map[string]string{"SUCCEEDED": "capture", "AUTHORIZED": "authorization", "FAILED": "failure"}
		event["event"], event["data"] = "payment."+cmp.Or(names[status], "pending"), said
	case kind == "refund":
		event["event"], event["data"] = "refund."+strings.ToLower(status), x
		if d.odd["nested"] {
			event["data"] = fields{"data": x}
		}
	}
	text, _ := json.Marshal(message)
	return "/notifications/xendit/", []string{"X-Callback-Token", xenditToken}, string(text)
}

// inbox is the receivers of all webhooks. It checks what each must be, whatever it answers.
type inbox struct {
	t *testing.T

	mu      sync.Mutex
	secrets map[string][]string  // by host, the newest first
	answer  func(webhook) string // a status, perhaps with Retry-After, hang, or 3s for 200 then; nil is 200
	came    []webhook
	rung    []ring
	now     map[string]int // attempts under way, by host; "" is all
	most    map[string]int
}

// webhook is one that has come.
type webhook struct {
	at                               time.Time
	host, event, id, order, delivery string
	attempt                          int
	body                             string
}

// ring is a message to an owner's phone.
type ring struct{ topic, title, text, click string }

func (in *inbox) receive(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "ntfy.sh" {
		text, _ := io.ReadAll(r.Body)
		in.mu.Lock()
		defer in.mu.Unlock()
		title, err := new(mime.WordDecoder).DecodeHeader(r.Header.Get("Title"))
		must(in.t, err)
		in.rung = append(in.rung, ring{r.URL.Path, title, string(text), r.Header.Get("Click")})
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	}
	text, body := decode(r)
	event := asFields(body)
	h := webhook{at: time.Now(), host: r.URL.Host, event: textOf(event, "event"), id: textOf(event, "id"), body: text}
	h.order = textOf(asFields(asFields(event["data"])["order"]), "id")
	h.delivery = r.Header.Get("X-Service-Delivery-Id")
	h.attempt, _ = strconv.Atoi(r.Header.Get("X-Service-Attempt"))

	in.mu.Lock()
	in.came = append(in.came, h)
	answer := in.answer
	in.check(h, r.Header)
	in.mu.Unlock()
	in.count(h.host, 1)
	defer in.count(h.host, -1)
	words := []string{"200", ""}
	if answer != nil {
		words = strings.Fields(answer(h) + " 0")
	}
	if words[0] == "hang" {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if d, err := time.ParseDuration(words[0]); err == nil {
		time.Sleep(d)
		words[0] = "200"
	}
	if d, err := time.ParseDuration(words[1]); err == nil { // as a date
		words[1] = time.Now().Add(d).UTC().Format(http.TimeFormat)
	}
	response := httptest.NewRecorder()
	response.Header().Set("Retry-After", words[1])
	response.Code, _ = strconv.Atoi(words[0])
	return response.Result(), nil
}

func (in *inbox) count(host string, n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, of := range []string{"", host} {
		in.now[of] += n
		in.most[of] = max(in.most[of], in.now[of])
	}
}

// know says which secrets a receiver's webhooks are signed with.
func (in *inbox) know(host string, secrets ...string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.secrets[host] = secrets
}

// check reports a webhook whose headers or signature are wrong.
func (in *inbox) check(h webhook, header http.Header) {
	stamp, _, _ := strings.Cut(strings.TrimPrefix(header.Get("X-Service-Signature"), "t="), ",")
	signature := "t=" + stamp
	for _, secret := range in.secrets[h.host] {
		mac := hmac.New(sha256.New, []byte(secret))
		io.WriteString(mac, stamp+"."+h.body)
		signature += fmt.Sprintf(",v1=%x", mac.Sum(nil))
	}
	for name, want := range map[string]string{
		"X-Service-Signature": signature,
		"X-Service-Event":     h.event,
		"X-Service-Event-Id":  h.id,
		"Content-Type":        "application/json",
		"Accept":              "*/*",
	} {
		if got := header.Get(name); got != want {
			in.t.Errorf("webhook to %s: %s is %q, want %q", h.host, name, got, want)
		}
	}
	seconds, _ := strconv.ParseInt(stamp, 10, 64)
	age := h.at.Sub(time.Unix(seconds, 0)).Abs()
	if age > 30*time.Second || h.delivery == "" || h.attempt == 0 {
		in.t.Errorf("webhook to %s: signed %s ago: %+v", h.host, age, h)
	}
}

// take returns what has come since the last call.
func (in *inbox) take() (came []webhook) {
	in.mu.Lock()
	defer in.mu.Unlock()
	came, in.came = in.came, nil
	return came
}

// await waits until n webhooks have come since the last call, and returns what has.
func (in *inbox) await(n int) (came []webhook) {
	in.t.Helper()
	await(in.t, fmt.Sprintf("%d webhooks come", n), func() bool {
		came = append(came, in.take()...)
		return len(came) >= n
	})
	return came
}
