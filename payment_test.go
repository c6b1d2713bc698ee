//go:build cgo

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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
	Session paymentSessionView `json:"payment_session"`
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
		l.payments.askGateway(ctx, s, Notification{})
	}
	l.payments.expireOrders(ctx)
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
		go func() { l.payments.pollGateways(ctx); close(done) }()
		synctest.Wait()
		l.want("after", l.outcome(order), "paid [1 paid] orderPaid, stock 8")
		stop()
		<-done
	})
}

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
		seen := map[paymentStatus]int{}
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

// atWork runs the sweeper and the payments' loops until the test ends.
func (l *payLab) atWork() {
	ctx, stop := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { l.payments.pollGateways(ctx) })
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
					l.payments.askGateway(ctx, o, Notification{})
				}
				l.payments.expireOrders(ctx)
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
		both.Go(func() { l.payments.askGateway(context.Background(), s, Notification{}) })
		time.Sleep(time.Second)
		l.mid.say(order+"-1", "settlement")
		both.Go(func() { l.payments.askGateway(context.Background(), s, Notification{}) })
		time.Sleep(time.Second)
		l.mid.say(order+"-1", "deny")
		both.Go(func() { l.payments.askGateway(context.Background(), s, Notification{}) })
		both.Wait()
		l.want("taken back, and not paid again by the older answer", l.read("SELECT status FROM orders"), "failed")
		// One who cannot wait so long leaves no warning about a gateway that was not asked.
		l.faultOnce("/status", func(*http.Request) (*http.Response, error) { time.Sleep(5 * time.Second); return nil, nil })
		both.Go(func() { l.payments.askGateway(context.Background(), s, Notification{}) })
		time.Sleep(time.Second)
		hurried, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, _, err := l.payments.askGateway(hurried, s, Notification{}); !errors.Is(err, context.DeadlineExceeded) {
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
