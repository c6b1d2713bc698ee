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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// gateway is one store's account at a payment provider. Manual payment has none.
type gateway interface {
	// create creates a session and returns the gateway's name of it and the address of its page. errTaken
	// means that the gateway has a session of this reference already. A *refusal is permanent; any other
	// error is an outage.
	create(ctx context.Context, c charge) (id, pageURL string, err error)

	// query asks for the state of a session: an answer for each of its payments that the gateway knows, or
	// one answer without a TransactionID (StateOpen or StateExpired) if it knows none. Every payment in
	// s.Payments is asked about by its own name unless the answer about the session already told of it.
	query(ctx context.Context, s AskedSession) ([]GatewayAnswer, error)

	// closeSession ends a session, so that it can no longer be paid: its page, the payments that have begun,
	// and a challenged payment (which is denied). answers are those of query. Nothing to end is no error.
	closeSession(ctx context.Context, s AskedSession, answers []GatewayAnswer) (closed bool, err error)

	// approve accepts a challenged payment. A *refusal says that it cannot be accepted any more.
	approve(ctx context.Context, s AskedSession, a GatewayAnswer) error

	// verify returns what a notification says, or errForged.
	verify(header http.Header, message []byte) (notice, error)
}

// notice is what a verified notification says. It is a hint: the gateway's own answer decides.
type notice struct {
	reference     string // our name of the session, <order id>-<attempt>; empty if the message names none
	sessionID     string // the gateway's name of the session; empty if the message names none
	transactionID string
	requestID     string
	refundID      string
	disputeID     string
	claim         GatewayState // what the message says has happened; empty if unknown
}

var (
	errTaken  = errors.New("the gateway has a session of this name already")
	errForged = &APIError{Code: codeUnauthorized, Message: "The notification's signature is wrong."}
)

// refused returns the error of an answer that is not what was asked for: a *refusal, or an *outage if the same
// request may succeed later. typed is what the buyer typed.
func refused(status int, message string, typed ...string) error {
	message = scrub(message, typed...)

	switch status {
	case http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed:
		return &outage{status, ": " + message}
	}
	if status/100 != 4 {
		return &outage{status, ": " + message}
	}
	return &refusal{status, message}
}

// isOutage reports whether a status says that the gateway is out of order or busy.
func isOutage(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// scrub returns a gateway's message as the owner may read it: in one line, short, and without the texts that
// the buyer typed, or any part of them that has four characters or more.
func scrub(message string, typed ...string) string {
	var patterns []string
	for _, text := range typed {
		patterns = append(patterns, wholePattern(text))
		for _, part := range strings.FieldsFunc(text, isMark) {
			if len([]rune(part)) >= 4 {
				patterns = append(patterns, regexp.QuoteMeta(part))
			}
		}
	}
	patterns = slices.DeleteFunc(patterns, func(p string) bool { return p == "" })

	// A whole text comes before its parts, because the first of the alternatives that fits is taken.
	slices.SortStableFunc(patterns, func(a, b string) int { return len(b) - len(a) })
	if len(patterns) > 0 {
		theirs := regexp.MustCompile("(?i)" + strings.Join(patterns, "|"))
		message = theirs.ReplaceAllString(message, "…")
	}

	const longest = 200
	return cut(strings.Join(strings.Fields(message), " "), longest)
}

// wholePattern matches a text. One of less than four characters has to be a word of its own, or a buyer named
// Al would make every message unreadable.
func wholePattern(text string) string {
	text = strings.TrimSpace(text)
	pattern := regexp.QuoteMeta(text)
	if len([]rune(text)) >= 4 {
		return pattern
	}
	if shortWord.MatchString(text) {
		return `\b` + pattern + `\b`
	}
	return pattern
}

var shortWord = regexp.MustCompile(`^[0-9A-Za-z]+$`)

// isMark reports whether a character separates the parts of a name, an e-mail or a phone number.
func isMark(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }

// typed are the texts that the buyer typed, and the forms in which the gateways are sent them.
func (b Buyer) typed() []string {
	phone := internationalPhone(b.Phone)
	return []string{
		b.Name,
		xenditName(b.Name),
		b.Email,
		b.Phone,
		phoneMarks.Replace(b.Phone),
		phone,
		strings.TrimPrefix(phone, "+62"),
	}
}

// aboutBuyer matches a message about the fields that describe the buyer. They are optional.
var aboutBuyer = regexp.MustCompile(
	`(?i)customer|first.?name|given.?names|individual.?detail|e-?mail|phone|mobile.?number`)

// charge is what a buyer is asked to pay.
type charge struct {
	PaymentSession
	Store Store
	Order Order
}

// lines are the items that are charged and sum to the order's amount. Shipping, discount and fee are lines of their
// own, without a type and with a name as their ProductID. What costs nothing is left out.
func (c charge) lines() []Item {
	o := c.Order
	lines := append(slices.Clone(o.Items),
		Item{ProductID: "shipping", Title: "Ongkos kirim", UnitPrice: o.ShippingFee, Quantity: 1},
		Item{ProductID: "discount", Title: "Diskon", UnitPrice: -o.Discount, Quantity: 1},
		Item{ProductID: "fee", Title: "Biaya layanan", UnitPrice: o.Fee, Quantity: 1})
	free := func(i Item) bool { return i.UnitPrice == 0 }
	return slices.DeleteFunc(lines, free)
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

	// now is the database's clock: the machine's may have jumped.
	now func() Time
}

// cancel posts a request to end something and reports whether that was done. A refusal is no error: the next
// question shows what became of it.
func (c caller) cancel(ctx context.Context, path string) (done bool, err error) {
	var t midtransStatus
	status, err := c.send(ctx, "POST", path, nil, nil, &t)
	if status == 0 || isOutage(status) {
		return false, err
	}

	status = t.status(status)
	if isOutage(status) {
		return false, &outage{Status: status}
	}
	return status/100 == 2, nil
}

// send sends in as JSON, unless it is nil, and reads the answer's JSON into out, also that of a refusal. An
// answer that is an outage or no JSON is an error. The status is 0 if there was no answer.
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
	if isOutage(resp.StatusCode) {
		return resp.StatusCode, &outage{Status: resp.StatusCode}
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return resp.StatusCode, &outage{resp.StatusCode, " and no JSON that is understood"}
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

// decimal is a number in JSON, or a number in a text, as it was sent. It is empty for null.
type decimal string

func (d *decimal) UnmarshalJSON(b []byte) error {
	*d = decimal(strings.Trim(string(b), `"`))
	if *d == "null" {
		*d = ""
	}
	return nil
}

// rupiah reads an amount such as 150000 or 150000.00.
func (d decimal) rupiah() (int64, error) {
	whole, fraction, _ := strings.Cut(string(d), ".")

	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || strings.Trim(fraction, "0") != "" {
		return 0, fmt.Errorf("the amount %q is no whole rupiah", cut(string(d), 50))
	}
	return n, nil
}

// returnedState is the state of a settled payment of which some money was returned or is disputed.
func (a GatewayAnswer) returnedState() GatewayState {
	switch {
	case a.Returned > 0 && a.Returned >= a.Amount:
		return StateRefunded
	case a.Disputed > 0:
		return StateDisputed
	case a.Returned > 0:
		return StatePartlyRefunded
	}
	return StateSettled
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

// The limits that Midtrans's documentation gives.
const (
	midtransLongestName    = 30    // of a virtual account of BCA, which a buyer may choose on every page
	midtransLongestRequest = 16000 // bytes
	midtransShortest       = 5     // minutes
	midtransLongest        = 7 * 24 * 60
)

// midtransRequest asks for a page that ends when the order does, to the minute.
func midtransRequest(c charge, now Time) object {
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

	left := int64(c.ExpiresAt.Sub(now).Minutes())
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
			"start_time": now.Time().In(wib).Format("2006-01-02 15:04:05 -0700"),
			"unit":       "minute",
			"duration":   min(max(midtransShortest, left), midtransLongest),
		},
	}

	channel, ok := channels[c.Order.PaymentMethod]
	if ok {
		request["enabled_payments"] = []string{channel.midtrans}
	}

	// Only the items have no bound of their own. They are optional.
	if len(mustJSON(request)) > midtransLongestRequest {
		delete(request, "item_details")
	}
	return request
}

// isEmpty reports whether a field is an empty text, which is not sent.
func isEmpty(_ string, value any) bool { return value == "" }

// midtransPage is the answer to a request for a page: 201 with its token and address, or error_messages.
type midtransPage struct {
	Token         string   `json:"token"`
	RedirectURL   string   `json:"redirect_url"`
	ErrorMessages []string `json:"error_messages"`
}

// create asks for a page. If Midtrans refuses what the buyer typed, it asks once more without that.
func (m midtrans) create(ctx context.Context, c charge) (id, pageURL string, err error) {
	request := midtransRequest(c, m.snap.now())
	page, status, err := m.createPage(ctx, request)
	if err == nil && status == http.StatusBadRequest && aboutBuyer.MatchString(page.problem()) {
		delete(request, "customer_details")
		page, status, err = m.createPage(ctx, request)
	}
	if err != nil {
		return "", "", err
	}

	if page.isTaken() {
		return "", "", errTaken
	}
	if status != http.StatusCreated || page.Token == "" {
		return "", "", refused(status, page.problem(), c.Order.Buyer.typed()...)
	}
	return page.Token, page.RedirectURL, checkPageURL(page.RedirectURL)
}

func (m midtrans) createPage(ctx context.Context, request object) (p midtransPage, status int, err error) {
	// With this header the address in the gateway's own settings cannot be wrong.
	header := http.Header{"X-Override-Notification": {m.notifyURL}}
	status, err = m.snap.send(ctx, "POST", "/snap/v1/transactions", header, request, &p)
	return p, status, err
}

func (p midtransPage) problem() string { return strings.Join(p.ErrorMessages, "; ") }

// isTaken reports whether the order_id is that of a payment that has begun.
func (p midtransPage) isTaken() bool {
	problem := p.problem()
	return strings.Contains(problem, "has already been taken") || strings.Contains(problem, "sudah digunakan")
}

// midtransStatus is a transaction, in a notification and in the answer to a question. A refusal has only a
// status_code and a status_message.
type midtransStatus struct {
	OrderID           string  `json:"order_id"`      // our reference
	StatusCode        string  `json:"status_code"`   // like an HTTP status
	GrossAmount       string  `json:"gross_amount"`  // such as 150000.00
	SignatureKey      string  `json:"signature_key"` // of a notification
	TransactionStatus string  `json:"transaction_status"`
	TransactionID     string  `json:"transaction_id"`
	FraudStatus       string  `json:"fraud_status"`
	RefundAmount      decimal `json:"refund_amount"` // of all refunds
	Refunds           []struct {
		Amount decimal `json:"refund_amount"`
	} `json:"refunds"`
	StatusMessage string   `json:"status_message"`
	ErrorMessages []string `json:"error_messages"`
}

// midtransStates are the meanings of transaction_status. The fraud_status of a payment may change its
// meaning.
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
	state, ok := midtransStates[status]
	if !ok {
		return "", fmt.Errorf("transaction_status %q is not known", cut(status, 50))
	}
	if state != StateSettled {
		return state, nil
	}

	fraud := strings.ToLower(t.FraudStatus)
	switch fraud {
	case "accept", "":
		return StateSettled, nil
	case "challenge":
		return StateChallenged, nil
	case "deny":
		return StateDenied, nil
	}
	return "", fmt.Errorf("fraud_status %q is not known", cut(fraud, 50))
}

// returned is how much of a partly refunded payment was returned in all. The documentation says that
// refund_amount is the sum of the refunds; if it is not, the larger one counts.
func (t midtransStatus) returned() (int64, error) {
	sum := int64(0)
	for _, r := range t.Refunds {
		n, err := r.Amount.rupiah()
		if err != nil {
			return 0, err
		}
		sum += n
	}

	if t.RefundAmount == "" {
		return sum, nil
	}
	all, err := t.RefundAmount.rupiah()
	return max(sum, all), err
}

// query asks by our reference, and then by the names of the payments that the answer did not tell of: some
// ways to pay are known by their own name only, and an earlier payment on the page by no other.
func (m midtrans) query(ctx context.Context, s AskedSession) ([]GatewayAnswer, error) {
	names := []string{s.reference()}
	for _, p := range s.Payments {
		names = append(names, p.TransactionID)
	}

	var answers []GatewayAnswer
	for _, name := range names {
		told := func(a GatewayAnswer) bool { return a.TransactionID == name }
		if name == "" || slices.ContainsFunc(answers, told) {
			continue
		}

		a, found, err := m.queryPayment(ctx, s, name)
		if err != nil {
			return nil, err
		}
		if found {
			answers = append(answers, a)
		}
	}

	if len(answers) == 0 {
		answers = []GatewayAnswer{{State: StateOpen}}
	}
	return answers, nil
}

// queryPayment asks for a transaction by our reference or by its own name. Nothing is found until the buyer
// has chosen how to pay.
func (m midtrans) queryPayment(
	ctx context.Context, s AskedSession, name string,
) (a GatewayAnswer, found bool, err error) {
	var t midtransStatus
	status, err := m.call(ctx, "GET", name, "status", &t)
	if err != nil || status == http.StatusNotFound {
		return a, false, err
	}
	if status/100 != 2 {
		return a, false, refused(status, t.problem())
	}
	if !t.isAbout(s.reference(), name) {
		return a, false, &outage{status, " and no answer about this payment"}
	}

	a, err = t.answer(s, m.core.now())
	a.TransactionID = cmp.Or(t.TransactionID, name)
	return a, err == nil, err
}

// isAbout reports whether a transaction is the one that was asked for by name. Some ways to pay have the
// transaction_id in the place of the order_id.
func (t midtransStatus) isAbout(reference, name string) bool {
	if t.OrderID != reference && t.OrderID != name {
		return false
	}
	return name == reference || t.TransactionID == "" || t.TransactionID == name
}

// answer returns what a transaction says, without its name.
func (t midtransStatus) answer(s AskedSession, now Time) (a GatewayAnswer, err error) {
	a.State, err = t.state()
	if err != nil {
		return a, err
	}
	a.Amount, err = decimal(t.GrossAmount).rupiah()
	if err != nil {
		return a, err
	}

	switch a.State {
	case StateExpired:
		// One way to pay has ended. The buyer may choose another, because the page lives on until the time at which
		// the order was to end, also if the order is over before that.
		if now < s.OrderEnd {
			a.State = StateDenied
		}
	case StateRefunded:
		a.Returned = a.Amount
	case StatePartlyRefunded:
		a.Returned, err = t.returned()
		if a.returnedState() == StateRefunded {
			a.State = StateRefunded
		}
	}
	return a, err
}

// call asks or tells the Core API something about a transaction.
func (m midtrans) call(
	ctx context.Context, method, name, action string, t *midtransStatus,
) (status int, err error) {
	status, err = m.core.send(ctx, method, "/v2/"+url.PathEscape(name)+"/"+action, nil, nil, t)
	if err != nil {
		return status, err
	}

	status = t.status(status)
	if isOutage(status) {
		return status, &outage{Status: status}
	}
	return status, nil
}

// status returns the status of an answer. Midtrans may send a refusal with 200, and the status in its body.
func (t midtransStatus) status(ofHTTP int) int {
	code, err := strconv.Atoi(t.StatusCode)
	if err != nil || ofHTTP != http.StatusOK || t.TransactionStatus != "" {
		return ofHTTP
	}
	return code
}

func (t midtransStatus) problem() string {
	return cmp.Or(t.StatusMessage, strings.Join(t.ErrorMessages, "; "))
}

// closeSession closes the page, so that no transaction can begin there, and then ends those that have begun. While
// one is in progress, Midtrans does not close its page. One that cannot be ended, because nothing has named it yet,
// ends an hour after the page by itself.
func (m midtrans) closeSession(
	ctx context.Context, s AskedSession, answers []GatewayAnswer,
) (closed bool, err error) {
	closed, err = m.closePage(ctx, s)
	if err != nil {
		return false, err
	}

	none := true
	for _, a := range answers {
		if a.TransactionID == "" {
			continue
		}
		none = false
		if err := m.end(ctx, a); err != nil {
			return false, err
		}
	}
	if none {
		_, err = m.core.cancel(ctx, "/v2/"+s.reference()+"/cancel")
		if err != nil {
			return false, err
		}
	}

	if !closed {
		closed, err = m.closePage(ctx, s)
	}
	return closed || m.core.now().Sub(s.ExpiresAt) > time.Hour, err
}

// closePage reports whether the page is closed, or there is none.
func (m midtrans) closePage(ctx context.Context, s AskedSession) (closed bool, err error) {
	if s.GatewayID == "" {
		return true, nil
	}
	_, problem, err := m.cancelPage(ctx, s)
	return err == nil && !strings.Contains(problem, "progress"), err
}

// closesOwnPage closes the page and reports whether it is one of this account, which alone knows the page's token.
func (m midtrans) closesOwnPage(ctx context.Context, s AskedSession) (bool, error) {
	if s.GatewayID == "" {
		return false, nil
	}
	status, problem, err := m.cancelPage(ctx, s)
	return err == nil && (status/100 == 2 || strings.Contains(problem, "already canceled")), err
}

// cancelPage asks Midtrans to close the page. problem is its refusal, in lower case: it documents no status of its
// refusals, only their texts. The refusal of the key is an error, because then Midtrans has not looked at the page.
func (m midtrans) cancelPage(ctx context.Context, s AskedSession) (status int, problem string, err error) {
	var p midtransPage
	path := "/snap/v1/transactions/" + url.PathEscape(s.GatewayID) + "/cancel"
	status, err = m.snap.send(ctx, "POST", path, nil, nil, &p)
	if err != nil {
		return status, "", err
	}

	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return status, "", refused(status, p.problem())
	}
	return status, strings.ToLower(p.problem()), nil
}

// end denies a challenged transaction and cancels an open one. One that cannot be denied may still be
// cancelled.
func (m midtrans) end(ctx context.Context, a GatewayAnswer) error {
	path := "/v2/" + url.PathEscape(a.TransactionID)
	switch a.State {
	case StateOpen:
	case StateChallenged:
		denied, err := m.core.cancel(ctx, path+"/deny")
		if denied || err != nil {
			return err
		}
	default:
		return nil
	}

	_, err := m.core.cancel(ctx, path+"/cancel")
	return err
}

func (m midtrans) approve(ctx context.Context, s AskedSession, a GatewayAnswer) error {
	var t midtransStatus
	status, err := m.call(ctx, "POST", cmp.Or(a.TransactionID, s.reference()), "approve", &t)
	if err != nil {
		return err
	}
	if status/100 != 2 {
		return &refusal{status, scrub(t.problem())}
	}
	return nil
}

// verify checks the signature: the hex SHA-512 of some of the fields, as they were sent, and the secret key.
func (m midtrans) verify(_ http.Header, message []byte) (notice, error) {
	var t midtransStatus
	err := json.Unmarshal(message, &t)

	sum := sha512.Sum512([]byte(t.OrderID + t.StatusCode + t.GrossAmount + m.account.SecretKey))
	want := []byte(hex.EncodeToString(sum[:]))
	if err != nil || !hmac.Equal([]byte(strings.ToLower(t.SignatureKey)), want) {
		return notice{}, errForged
	}

	claim, _ := t.state() // Whatever the message says, the answer to a question decides.
	return notice{
		reference:     t.OrderID,
		transactionID: t.TransactionID,
		claim:         claim,
	}, nil
}

// gatewayEmail returns an e-mail that both gateways take, an ASCII address with a dot in its domain. Any
// other is left out (empty): an order must not become unpayable because of it.
func gatewayEmail(email string) string {
	_, domain, _ := strings.Cut(email, "@")
	notASCII := func(r rune) bool { return r > unicode.MaxASCII }
	if strings.ContainsFunc(email, notASCII) || !strings.Contains(domain, ".") {
		return ""
	}
	return email
}

// internationalPhone writes a number that isPhone allows as E.164. The result is empty if it is neither
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
		return "", "", errors.New("the store is not in test mode")
	}
	return c.ID, c.Store.URL + "/sandbox/" + c.ID, nil
}

func (b sandbox) query(_ context.Context, s AskedSession) ([]GatewayAnswer, error) {
	a, err := b.payments.db.Sandbox(s.ID)
	if err != nil {
		return nil, err
	}
	return []GatewayAnswer{a}, nil
}

func (b sandbox) closeSession(
	ctx context.Context, s AskedSession, _ []GatewayAnswer,
) (closed bool, err error) {
	a, err := b.payments.db.Sandbox(s.ID)
	if err != nil || a.State != StateOpen {
		return err == nil, err
	}

	err = b.payments.db.SetSandbox(ctx, s.ID, GatewayAnswer{State: StateExpired})
	return err == nil, err
}

func (b sandbox) approve(context.Context, AskedSession, GatewayAnswer) error {
	return errNothingToApprove
}

// errNothingToApprove is the refusal of the gateways that have no challenged payments.
var errNothingToApprove = &refusal{
	Status:  http.StatusPreconditionFailed,
	Message: "this gateway has no payments that wait for an approval",
}

// verify checks the signature, which is that of our own webhooks.
func (b sandbox) verify(header http.Header, message []byte) (notice, error) {
	signature := header.Get("X-Service-Signature")
	if !verifySignature(b.payments.sandboxKey, signature, message, time.Now()) {
		return notice{}, errForged
	}

	var n struct {
		Reference string       `json:"reference"`
		State     GatewayState `json:"state"`
	}
	json.Unmarshal(message, &n) // It is JSON that act wrote: its signature says so.
	return notice{reference: n.Reference, claim: n.State}, nil
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
