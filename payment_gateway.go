package main

// This file holds what payment gateways have in common. A gateway creates the page of a session, reports on it, and
// closes it. Nothing here decides about an order: an answer is a list of payments for its book. The wire formats are in
// payment_midtrans.go and payment_xendit.go. The sandbox is at the end; it keeps what it knows in a table of ours.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// gateway is a payment provider. Its errors are errTaken, a *Refusal with GatewayRefused and the gateway's words if the
// same request can never succeed, and otherwise outages.
//
// A gateway is reached with one key of a store (gateways.open).
type gateway interface {
	// create creates a page for paying an order. If the gateway refuses a field, create tries again with the required
	// fields only. errTaken means that the gateway already has payments for this reference.
	create(ctx context.Context, c checkout) (Page, error)

	// status asks for the state of a session. An id that the gateway does not know yields no payments, and is an error
	// only if it is the session's GatewayID. SetKey tests a new key with this, on a session that it makes up.
	status(ctx context.Context, s PaymentSession) (Answer, error)

	// closePage ends a page, its open payments and its held ones. Money that has arrived stays. closed says that no
	// payment can begin there any more; it is false if the gateway cannot be reached.
	closePage(ctx context.Context, s PaymentSession) (closed bool)

	// decidePayment accepts or denies a held payment. isSettled says that the store already has the money, so that the
	// gateway leaves an approval to the owner. It is only called on gateways that hold payments.
	decidePayment(ctx context.Context, s PaymentSession, payment string, accept bool) (isSettled bool, err error)

	// verify reads a notification and returns what it says. The error is ErrNotFound if it does not come
	// from the gateway.
	verify(header http.Header, body []byte) (Notification, error)
}

var errTaken = errors.New("the gateway already has payments for this reference")

// errNotUnderstood is logged: an operator who reads it looks at the payment in the gateway's dashboard.
var errNotUnderstood = errors.New("the answer is about another session, or its status or amount is not known")

// checkout is what a page is created from.
type checkout struct {
	key      GatewayKey
	Session  PaymentSession
	Order    Order
	Store    Store
	channels []string // the ways to pay that the page offers, by the gateway's names; none = all
}

// returnURL returns where the page leads back to. It has no query: some gateways drop it, others append a second ?.
func (c checkout) returnURL() string { return c.Store.payPage(c.Order.ID) + "/back" }

// Page is a page that a gateway has created.
type Page struct {
	ID, URL string
	Expires Time // may be later than the order's end: gateways have a minimum
}

// identifier returns a gateway's name for something, or "" if no gateway would write such a text. Names are stored, and
// become part of addresses.
func identifier(id string) string {
	if len(id) > 64 || oddInIdentifier.MatchString(id) || strings.Trim(id, ".") == "" {
		return ""
	}
	return id
}

var oddInIdentifier = regexp.MustCompile(`[^A-Za-z0-9._:-]`)

// gateways is the way to all gateways.
type gateways struct {
	db     *DB
	client *http.Client
	urls   map[Provider]string // replace the scheme and host of a provider's addresses
}

func newGateways(db *DB, transport http.RoundTripper, urls map[Provider]string) gateways {
	client := &http.Client{
		Transport:     transport,
		Timeout:       callTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return gateways{db, client, urls}
}

// open returns the gateway that a key is for.
func (g gateways) open(key GatewayKey) gateway {
	client := gatewayClient{g.client, key, g.urls[key.Provider], g.db.now}
	switch key.Provider {
	case Midtrans:
		return midtrans{client}
	case Xendit:
		return xendit{client}
	default:
		return sandbox{g.db}
	}
}

// gatewayClient sends requests to one provider with one key.
type gatewayClient struct {
	*http.Client
	key GatewayKey
	url string // replaces the scheme and host of all addresses, unless it is empty
	now func() Time
}

// gatewayCall is a request to a provider.
type gatewayCall struct {
	method string
	host   string // with its scheme
	path   string
	header http.Header // beside what all requests have
	body   []byte      // JSON; nil = none
}

// reply is an answer in JSON. For a refusal it has the words, and the status if it differs from that of the
// HTTP answer.
type reply interface {
	refusal() (status int, words string)
}

// requestJSON sends a request and reads the answer, even a refusal, into out. It fails unless the gateway did what
// was asked, and answered in JSON. No error names the address, because an order's id opens its pay page.
func (c gatewayClient) requestJSON(ctx context.Context, call gatewayCall, out reply) (status int, err error) {
	address := cmp.Or(c.url, call.host) + call.path
	r, err := http.NewRequestWithContext(ctx, call.method, address, bytes.NewReader(call.body))
	if err != nil {
		return 0, err
	}
	maps.Copy(r.Header, call.header)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	r.SetBasicAuth(c.key.SecretKey, "")

	answer, err := c.Do(r)
	if err != nil {
		return 0, errors.Unwrap(err) // without the address
	}
	defer answer.Body.Close()
	reflect.ValueOf(out).Elem().SetZero() // It may still hold the answer to an earlier try.
	err = json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(out)
	status, words := out.refusal()
	words = uuidPattern.ReplaceAllString(words, "…") // An order's id opens its pay page.
	status = cmp.Or(status, answer.StatusCode)

	switch {
	case status/100 == 2:
	case status/100 == 4 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests:
		err = &Refusal{Reason: GatewayRefused, Words: fmt.Sprintf("%.1000s", cmp.Or(words, http.StatusText(status)))}
	default:
		err = fmt.Errorf("the gateway answered %d", status)
	}
	return status, err
}

var uuidPattern = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

// createPage requests a page. If the gateway refuses a field, leaveOut removes it from the request and reports whether
// it did. Then the request is sent again, three times in all at most.
func (c gatewayClient) createPage(
	ctx context.Context, call gatewayCall, request jsonObject, out reply, leaveOut func() bool,
) error {
	var err error
	for range 3 {
		var status int
		call.body = toJSON(request)
		status, err = c.requestJSON(ctx, call, out)
		switch status {
		case 401, 403, 404, 409: // It is not about a field.
			return err
		}
		if !isRefused(err, GatewayRefused) || !leaveOut() {
			return err
		}
	}
	return err
}

// dropOptional removes from a request what a page does not need. It reports whether there was anything to remove.
func (o jsonObject) dropOptional() bool {
	before := len(o)
	for _, optional := range []string{"item_details", "customer_details", "customer_imposed_payment_fee", "gopay",
		"shopeepay", "dana", "items", "customer"} {
		delete(o, optional)
	}
	return len(o) < before
}

// scrub removes from a gateway's words what they repeat about the buyer, in any case. The longest parts go first,
// because one may begin with another; and the words are cut after that, because half a part would stay.
func (c checkout) scrub(err error) error {
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok {
		return err
	}

	typed := fmt.Sprint(c.Order.Buyer, internationalPhone(c.Order.Buyer.Phone))
	parts := strings.FieldsFunc(typed, isMark)
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) })
	for _, part := range parts {
		if len(part) > 3 { // It has letters and digits only.
			refusal.Words = regexp.MustCompile("(?i)"+part).ReplaceAllLiteralString(refusal.Words, "…")
		}
	}
	refusal.Words = fmt.Sprintf("%.200s", refusal.Words)
	return refusal
}

// isMark reports whether a character stands between the parts of a name, an address or a number.
func isMark(c rune) bool { return !unicode.In(c, unicode.L, unicode.Nd) }

// wholeRupiah is an amount in JSON: a number or a text, such as 150000, "150000.00" or 1.5E5.
type wholeRupiah int64

// isAmount bounds the digits and the exponent, because amounts are read before anything is verified.
var isAmount = matcher(`^"?[0-9]{1,18}(\.[0-9]{0,20})?([Ee][+-]?[0-9]{1,2})?"?$`)

var errNotRupiah = errors.New("an amount is not in whole rupiah")

func (a *wholeRupiah) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if !isAmount(string(text)) {
		return errNotRupiah
	}
	amount, isRead := new(big.Rat).SetString(strings.Trim(string(text), `"`))
	if !isRead || !amount.IsInt() || !amount.Num().IsInt64() {
		return errNotRupiah
	}
	*a = wholeRupiah(amount.Num().Int64())
	return nil
}

// isRupiah reports whether an amount is in rupiah, which need not be said.
func isRupiah(currency string) bool { return currency == "" || strings.EqualFold(currency, "IDR") }

// writtenText is a JSON text, or the characters of a JSON number.
type writtenText string

func (t *writtenText) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		return json.Unmarshal(text, (*string)(t))
	}
	*t = writtenText(strings.TrimPrefix(string(text), "null"))
	return nil
}

// ifRead is an optional field of an answer. A value of another type counts as left out.
type ifRead[T any] struct{ value T }

func (f *ifRead[T]) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &f.value) != nil {
		f.value = *new(T)
	}
	return nil
}

// line is a part of an order's amount. Its JSON is Midtrans's, its kind Xendit's.
type line struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Price    int64  `json:"price"`
	Quantity int64  `json:"quantity"`
	kind     string
}

// lines returns the parts that sum exactly to the amount. A discount has a negative price. Only manual
// methods have a unique code.
func (c checkout) lines() []line {
	o := c.Order
	lines := []line{
		{"shipping", "Ongkos kirim", o.ShippingFee, 1, "FEE"},
		{"discount", "Diskon", -o.Discount, 1, "FEE"},
		{"fee", "Biaya layanan", o.Fee, 1, "FEE"},
	}

	for n, i := range o.Items {
		id := cmp.Or(i.ProductID+i.BundleID, fmt.Sprintf("custom-%d", n+1))
		lines = append(lines, line{
			id, fmt.Sprintf("%.50s", withoutBars(i.Title)), i.UnitPrice, i.Quantity, "PHYSICAL_PRODUCT",
		})
	}
	return slices.DeleteFunc(lines, func(l line) bool { return l.Price == 0 })
}

// withoutBars replaces a character that Alfamart refuses.
func withoutBars(text string) string { return strings.ReplaceAll(text, "|", "/") }

// Mode says whether a gateway takes real money.
type Mode string

const (
	ModeSandbox Mode = "sandbox"
	ModeLive    Mode = "live"
)

// GatewayKey is a store's credentials at a gateway.
type GatewayKey struct {
	ID, StoreID   string
	Provider      Provider `json:"provider" rule:"choice midtrans|xendit"`
	Mode          Mode     `json:"mode" rule:"choice sandbox|live"`
	SecretKey     string   `json:"secret_key" rule:"text 1..500"`
	CallbackToken string   `json:"callback_token" rule:"text 1..500 optional"` // Xendit's
	ReplacedAt    Time     // 0 = it is in use
	PagedAt       Time     // when it last made a page; 0 = never
	NotifiedAt    Time     // when a notification was last verified with it, to a minute; 0 = never
}

// gatewayKeys lists a store's keys at a provider: first the one with the id own, with which a session was made, then
// the one in use, then replaced ones. Without a provider, it lists the keys in use at all providers. Every store has
// one for the sandbox, without an id.
func gatewayKeys(
	ctx context.Context, q querier, storeID string, provider Provider, own string,
) ([]GatewayKey, error) {
	if provider == Sandbox {
		return []GatewayKey{sandboxKey}, nil
	}
	return all[GatewayKey](ctx, q, sqlGatewayKeys, storeID, provider, own)
}

// mostKeysOfProvider is how many keys a store may have at a provider, with those that were replaced: each notification
// is compared with all of them.
const mostKeysOfProvider = 100

var sandboxKey = GatewayKey{Provider: Sandbox, Mode: ModeSandbox}

const sqlGatewayKeys = `
	SELECT id, store_id, provider, mode, secret_key, callback_token, replaced_at, paged_at, notified_at
	FROM gateway_keys
	WHERE store_id = ?1 AND (provider = ?2 OR ?2 = '' AND replaced_at = 0)
	ORDER BY id = ?3 DESC, replaced_at > 0, replaced_at DESC, provider`

// SetKey tries a key at its gateway and then uses it in place of the store's earlier one. The earlier key is kept for
// its sessions. A sandbox key never replaces a live one. Setting the key in use changes nothing.
func (g gateways) SetKey(ctx context.Context, db *DB, key GatewayKey) error {
	if key.SecretKey == "" {
		return refuse(ValidationFailed).add("secret_key",
			"is needed: gateway set reads it from the first line of stdin")
	}
	if err := key.validateXendit(); err != nil {
		return err
	}

	// No gateway knows this session, so a refusal means the key.
	madeUp := PaymentSession{OrderID: "storeorder-key-test", Identifiers: []string{"ps-000000000000000000000000"}}
	_, err := g.open(key).status(ctx, madeUp)
	if isRefused(err, GatewayRefused) {
		return err
	}
	if err != nil {
		return refuse(Unavailable)
	}

	return db.write(ctx, func(tx *Tx) error {
		before, err := gatewayKeys(tx, tx, key.StoreID, key.Provider, "")
		if err != nil {
			return err
		}
		for _, old := range before {
			isSame := old.Mode == key.Mode && old.SecretKey == key.SecretKey && old.CallbackToken == key.CallbackToken
			if isSame && old.ReplacedAt == 0 {
				return nil
			}
			if old.Mode == ModeLive && key.Mode == ModeSandbox {
				return refuse(ValidationFailed).add("mode", "must be live, because a live key is in use")
			}
		}

		if len(before) >= mostKeysOfProvider {
			return refuse(LimitReached)
		}
		tx.exec(`
			UPDATE gateway_keys
			SET replaced_at = ?
			WHERE store_id = ? AND provider = ? AND replaced_at = 0`, tx.now, key.StoreID, key.Provider)
		tx.exec(`
			INSERT INTO gateway_keys (id, store_id, provider, mode, secret_key, callback_token)
			VALUES (?, ?, ?, ?, ?, ?)`,
			tx.newID(), key.StoreID, key.Provider, key.Mode, key.SecretKey, key.CallbackToken)
		return nil
	})
}

// sandbox is a gateway without network, keys or notifications. The buttons of its page write what it knows.
type sandbox struct{ db *DB }

// What the buttons of the sandbox's page do.
const (
	sandboxPaid     = "paid"
	sandboxOther    = "other"    // a rupiah too little is paid
	sandboxDenied   = "denied"   // the payment is declined; one that has arrived is reversed
	sandboxReturned = "returned" // half of the money is returned
	sandboxDisputed = "disputed" // the buyer disputes the payment
	sandboxExpired  = "expired"  // the order's time is over
)

var sandboxActs = []string{sandboxPaid, sandboxOther, sandboxDenied, sandboxReturned, sandboxDisputed, sandboxExpired}

// ActInSandbox presses a button of the page of an order's session, and makes the session due. An unknown act only makes
// it due. A closed page takes no payment.
func (db *DB) ActInSandbox(ctx context.Context, o OrderRow, sessionID, act string) error {
	if act == sandboxExpired {
		return db.EndTestOrder(ctx, o.StoreID, o.ID)
	}

	return db.write(ctx, func(tx *Tx) error {
		tx.pressInSandbox(sessionID, act)
		tx.exec(`
			UPDATE payment_sessions
			SET notified = notified + 1, news_at = ?1, due_at = ?1
			WHERE id = ?2 AND provider = 'sandbox'`, tx.now, sessionID)
		tx.checksDue = true
		return nil
	})
}

// pressInSandbox writes what the sandbox knows of a session's payment after a button was pressed.
func (tx *Tx) pressInSandbox(sessionID, act string) {
	var s struct {
		Payment
		Closed bool
	}
	isFound := tx.find(&s, `
		SELECT s.number AS session_number, s.id, s.asked, s.over AS closed, coalesce(p.state, '') AS state,
		       coalesce(p.amount, 0) AS amount, coalesce(p.returned, 0) AS returned,
		       coalesce(p.disputed, 0) AS disputed
		FROM   payment_sessions s
		LEFT   JOIN sandbox_payments p ON p.session_id = s.id
		WHERE  s.id = ? AND s.provider = 'sandbox'`, sessionID)
	hasMoney := s.State == Arrived
	takes := isFound && !hasMoney && !s.Closed

	switch {
	case act == sandboxPaid && takes:
		s.State = Arrived
		s.Amount = s.Asked
	case act == sandboxOther && takes:
		s.State = Arrived
		s.Amount = s.Asked - 1
	case act == sandboxDenied && isFound:
		s.State = Denied
		s.Amount = s.Asked
	case act == sandboxReturned && hasMoney:
		s.Returned = s.Amount / 2
	case act == sandboxDisputed && hasMoney:
		s.Disputed = s.Amount
	default:
		return
	}
	tx.exec(`
		INSERT OR REPLACE INTO sandbox_payments (session_id, state, amount, returned, disputed)
		VALUES (?, ?, ?, ?, ?)`, s.ID, s.State, s.Amount, s.Returned, s.Disputed)
}

// SandboxOrder returns the order of a session of the sandbox.
func (db *DB) SandboxOrder(ctx context.Context, sessionID string) (orderID string, err error) {
	return one[string](ctx, db,
		"SELECT order_id FROM payment_sessions WHERE id = ? AND provider = 'sandbox'", sessionID)
}

func (s sandbox) create(_ context.Context, c checkout) (Page, error) {
	return Page{c.Session.ID, c.Store.URL + "/sandbox/" + c.Session.ID, c.Session.ExpiresAt}, nil
}

func (s sandbox) status(ctx context.Context, session PaymentSession) (a Answer, err error) {
	a.Payments, err = all[Payment](ctx, s.db, `
		SELECT 0 AS session_number, session_id AS id, 0 AS asked, state, amount, returned, disputed
		FROM   sandbox_payments
		WHERE  session_id = ?`, session.ID)
	a.Closed = session.Closed || s.db.now() >= session.ExpiresAt ||
		slices.ContainsFunc(a.Payments, Payment.hasMoney)
	a.Open = !a.Closed
	return a, err
}

// closePage has nothing to do, because the sandbox takes no money in a closed session.
func (s sandbox) closePage(context.Context, PaymentSession) bool { return true }

func (s sandbox) decidePayment(context.Context, PaymentSession, string, bool) (bool, error) {
	return false, nil
}

func (s sandbox) verify(http.Header, []byte) (Notification, error) {
	return Notification{}, ErrNotFound
}
