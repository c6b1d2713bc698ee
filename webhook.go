//go:build cgo

package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Event is the name of something that webhooks tell of.
type Event string

const (
	OrderCreated              Event = "orderCreated"
	OrderAwaitingVerification Event = "orderAwaitingVerification"
	OrderPaid                 Event = "orderPaid"
	OrderFailed               Event = "orderFailed"
	OrderExpired              Event = "orderExpired"
	OrderRefunded             Event = "orderRefunded"
	Ping                      Event = "ping" // asked for in the dashboard, without an order
)

// events are those that an endpoint can ask for. Every endpoint takes a ping.
var events = []Event{
	OrderCreated, OrderAwaitingVerification, OrderExpired, OrderFailed, OrderPaid, OrderRefunded,
}

// DeliveryState is where a delivery stands.
type DeliveryState string

const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered" // acknowledged
	DeliveryFailed    DeliveryState = "failed"    // given up until it is resent
)

// OffReason is why an endpoint is off.
type OffReason string

const (
	OffByOwner OffReason = "owner"
	OffGone    OffReason = "gone" // the receiver answered 410 Gone
)

// Endpoint is where a store's events go.
type Endpoint struct {
	ID        string     `json:"endpoint_id"`
	StoreID   string     `json:"store_id"`
	URL       string     `json:"url"`
	Events    []Event    `json:"events"` // empty: all
	Active    bool       `json:"active"`
	OffReason OffReason  `json:"off_reason,omitempty"`
	Failures  int        `json:"failures"` // failed attempts in a row
	CreatedAt Time       `json:"created_at"`
	Secrets   []string   `json:"-"`          // that sign now: one, or the new and the old while a rotation lasts
	Recent    []Delivery `json:"deliveries"` // the last ones, the newest first
}

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID           string        `json:"delivery_id"`
	EventID      string        `json:"event_id"`
	Event        string        `json:"event"`
	OrderID      string        `json:"order_id,omitempty"`
	Status       DeliveryState `json:"status"`
	Attempt      int           `json:"attempt"` // attempts begun
	NextAt       *Time         `json:"next_at"`
	TriedAt      *Time         `json:"tried_at"`
	AnswerStatus *int          `json:"answer_status"`
	Answer       string        `json:"answer,omitempty"` // its first bytes, or why there was none
	CreatedAt    Time          `json:"created_at"`
}

const (
	endpointColumns = "e.id, e.store_id, e.url, e.events, e.active, e.off_reason, e.failures, e.created_at, iif(e.old_secret_until > ?, json_array(e.secret, e.old_secret), json_array(e.secret))"
	deliveryColumns = "d.id, d.event_id, v.event, coalesce(v.order_id, ''), d.status, d.attempt, d.next_at, d.tried_at, d.answer_status, d.answer, v.created_at"
	sqlEndpoints    = "SELECT " + endpointColumns + " FROM endpoints e WHERE e.store_id = ? ORDER BY e.id"
	sqlDeliveries   = "SELECT " + deliveryColumns + " FROM deliveries d CROSS JOIN events v ON v.id = d.event_id WHERE d.endpoint_id = ? AND d.id < ? ORDER BY d.id DESC LIMIT ?"
)

func endpointFields(e *Endpoint) []any {
	return []any{&e.ID, &e.StoreID, &e.URL, jsonTo{&e.Events}, &e.Active, &e.OffReason, &e.Failures, &e.CreatedAt, jsonTo{&e.Secrets}}
}

func deliveryFields(d *Delivery) []any {
	return []any{&d.ID, &d.EventID, &d.Event, &d.OrderID, &d.Status, &d.Attempt, &d.NextAt, &d.TriedAt, &d.AnswerStatus, &d.Answer, &d.CreatedAt}
}

// AddEndpoint registers an address; events empty means all.
func (db *DB) AddEndpoint(ctx context.Context, storeID, address string, events []string, secret string) (id string, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		id = tx.newID()
		return tx.mustChange("INSERT INTO endpoints (id, store_id, url, events, secret, created_at) SELECT ?, id, ?, ?, ?, ? FROM stores WHERE id = ?",
			id, address, string(mustJSON(append([]string{}, events...))), secret, tx.now, storeID)
	})
	return id, err
}

// Endpoints lists a store's endpoints, the oldest first, each with its last recent deliveries.
func (db *DB) Endpoints(storeID string, recent int) ([]Endpoint, error) {
	list, err := collect(db.reader, endpointFields, sqlEndpoints, time.Now().UnixMilli(), storeID)
	for i := 0; i < len(list) && err == nil; i++ {
		list[i].Recent, err = collect(db.reader, deliveryFields, sqlDeliveries, list[i].ID, "~", recent)
	}
	return list, err
}

const sqlEndpoint = "SELECT " + endpointColumns + " FROM endpoints e WHERE e.id = ? AND e.store_id = ?"

// Endpoint reads one endpoint of a store with its deliveries older than the one named; "~" is newer than all.
func (db *DB) Endpoint(storeID, id, before string, limit int) (e Endpoint, err error) {
	if e, err = one(db.reader, endpointFields, sqlEndpoint, time.Now().UnixMilli(), id, storeID); err == nil {
		e.Recent, err = collect(db.reader, deliveryFields, sqlDeliveries, id, before, limit)
	}
	return e, err
}

// RotateSecret gives an endpoint a new secret; the old one signs too for another 24 h.
func (db *DB) RotateSecret(ctx context.Context, storeID, id, secret string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange("UPDATE endpoints SET old_secret = secret, old_secret_until = ?, secret = ? WHERE id = ? AND store_id = ?",
			tx.now.Add(24*time.Hour), secret, id, storeID)
	})
}

// SwitchEndpoint turns an endpoint on or off. Its events wait while it is off.
func (db *DB) SwitchEndpoint(ctx context.Context, storeID, id string, on bool, reason OffReason) error {
	return db.change(ctx, "UPDATE endpoints SET active = ?, off_reason = ?, failures = 0 WHERE id = ? AND store_id = ?", on, reason, id, storeID)
}

// RemoveEndpoint forgets an endpoint and its deliveries.
func (db *DB) RemoveEndpoint(ctx context.Context, storeID, id string) error {
	return db.change(ctx, "DELETE FROM endpoints WHERE id = ? AND store_id = ?", id, storeID)
}

// Resend makes deliveries due again, from their first attempt: the one with deliveryID, or those of an endpoint
// that are not delivered and whose event came at since or later. What is being sent this moment is left alone.
func (db *DB) Resend(ctx context.Context, storeID, deliveryID, endpointID string, since Time) (n int64, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		known := "SELECT id FROM endpoints WHERE store_id = ? AND id = coalesce((SELECT endpoint_id FROM deliveries WHERE id = ?), ?)"
		if _, err := one(tx, column[string], known, storeID, deliveryID, endpointID); err != nil {
			return err
		}
		n, err = tx.exec(`UPDATE deliveries SET status = 'pending', attempt = 0, next_at = ?
			WHERE leased = 0 AND (id = ? OR endpoint_id = ? AND id >= ? AND status <> 'delivered')`, tx.now, deliveryID, endpointID, firstID(since))
		return err
	})
	return n, err
}

// Ping writes an event without an order for one endpoint.
func (db *DB) Ping(ctx context.Context, storeID, endpointID string) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := one(tx, column[string], "SELECT id FROM endpoints WHERE id = ? AND store_id = ?", endpointID, storeID); err != nil {
			return err
		}
		return tx.insertEvent(storeID, "", Ping, 0, []byte("{}"), []string{endpointID})
	})
}

// checkEvents returns the names of events to subscribe to; none stands for all.
func checkEvents(names []string) ([]string, error) {
	for _, name := range names {
		if !slices.Contains(events, Event(name)) {
			return nil, fmt.Errorf("%q is no event: choose from %s", name, strings.Join(toStrings(events), ", "))
		}
	}
	return names, nil
}

// newSecret makes an endpoint's signing secret.
func newSecret() string {
	secret, _ := newToken("whsec_")
	return secret
}

// addEvent writes an event of an order, shown with its addresses, and one delivery for each endpoint that wants it. An
// endpoint that is off gets its row too: the delivery waits until the endpoint is on again.
func (tx *Tx) addEvent(storeID, orderID string, name Event, sequence int64, shown []byte) error {
	endpoints, err := collect(tx, column[string], sqlEndpointsOf, storeID, name)
	if err != nil {
		return err
	}
	return tx.insertEvent(storeID, orderID, name, sequence, fmt.Appendf(nil, `{"order":%s}`, shown), endpoints)
}

// insertEvent writes an event, one message to the store's endpoints. Its body is made once, so that every attempt sends
// the same bytes.
func (tx *Tx) insertEvent(storeID, orderID string, name Event, sequence int64, data []byte, endpoints []string) error {
	id := "evt_" + tx.newID()
	body := fmt.Sprintf(`{"id":"%s","event":"%s","created_at":"%s","store_id":"%s","sequence":%d,"data":%s}`, id, name, tx.now, storeID, sequence, data)
	if _, err := tx.exec("INSERT INTO events (id, store_id, order_id, sequence, event, body, created_at) VALUES (?, ?, nullif(?, ''), ?, ?, ?, ?)",
		id, storeID, orderID, sequence, name, body, tx.now); err != nil {
		return err
	}
	for _, endpoint := range endpoints {
		if _, err := tx.exec("INSERT INTO deliveries (id, endpoint_id, event_id, next_at) VALUES (?, ?, ?, ?)",
			tx.newID(), endpoint, id, tx.now); err != nil {
			return err
		}
	}
	return nil
}

// sign returns the hex HMAC-SHA256 of "<t>.<body>", t in Unix seconds, keyed with all bytes of the secret as shown.
func sign(secret string, t int64, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.", t)
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// signatureHeader is the X-Service-Signature: one v1 for each secret, the newest first.
func signatureHeader(secrets []string, t int64, body []byte) string {
	header := "t=" + strconv.FormatInt(t, 10)
	for _, secret := range secrets {
		header += ",v1=" + sign(secret, t, body)
	}
	return header
}

// verifySignature tells whether a header holds a signature of body that is at most five minutes old or ahead: what
// a receiver does, here for the demo's.
func verifySignature(secret, header string, body []byte, now time.Time) bool {
	var t int64
	var ok bool
	for field := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "t":
			if t != 0 { // a second time would lend its age to what the first one signed
				return false
			}
			t, _ = strconv.ParseInt(value, 10, 64)
		case "v1":
			ok = ok || hmac.Equal([]byte(value), []byte(sign(secret, t, body)))
		}
	}
	return ok && now.Sub(time.Unix(t, 0)).Abs() <= 5*time.Minute
}

// lease is how long a claimed delivery is left alone. It is longer than an attempt may take.
const lease = time.Minute

// Claim is a delivery that this process has taken to send.
type Claim struct {
	DeliveryID, EventID, Event string
	Attempt                    int // from 1
	Body                       []byte
	Endpoint                   Endpoint
}

const (
	endpointDue     = "e.active = 1 AND EXISTS (SELECT 1 FROM deliveries d WHERE d.endpoint_id = e.id AND d.next_at <= ?)"
	sqlDueEndpoints = "SELECT " + endpointColumns + " FROM endpoints e WHERE " + endpointDue
	sqlClaim        = `UPDATE deliveries SET leased = 1, attempt = attempt + 1, next_at = ? WHERE id IN
		(SELECT id FROM deliveries WHERE endpoint_id = ? AND next_at <= ? ORDER BY next_at LIMIT ?)
		RETURNING id, attempt, event_id, (SELECT event FROM events WHERE id = event_id), (SELECT body FROM events WHERE id = event_id)`
)

// claim takes due deliveries, of each endpoint as many as room says, the ones due longest first. The endpoints
// take turns by chance.
func (tx *Tx) claim(room func(Endpoint) int) ([]Claim, error) {
	endpoints, err := collect(tx, endpointFields, sqlDueEndpoints, tx.now, tx.now)
	if err != nil {
		return nil, err
	}
	mathrand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	var all []Claim
	for _, e := range endpoints {
		limit := room(e)
		if limit <= 0 {
			continue
		}
		claims, err := collect(tx, func(c *Claim) []any {
			c.Endpoint = e
			return []any{&c.DeliveryID, &c.Attempt, &c.EventID, &c.Event, &c.Body}
		}, sqlClaim, tx.now.Add(lease), e.ID, tx.now, limit)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(claims, func(a, b Claim) int { return strings.Compare(a.DeliveryID, b.DeliveryID) })
		all = append(all, claims...)
	}
	return all, nil
}

// Result is what became of a claim.
type Result struct {
	Claim        Claim
	Unsent       bool   // given back untried
	Delivered    bool   // acknowledged
	NextAt       *Time  // of the next attempt; nil: delivered, or given up
	AnswerStatus *int   // nil: no answer
	Answer       string // its first bytes, or why there was none
	Gone         bool   // the endpoint wants no more
}

// record writes what became of a claim, unless the claim has ended.
func (tx *Tx) record(r Result) error {
	id, endpoint := r.Claim.DeliveryID, r.Claim.Endpoint.ID
	if r.Unsent {
		_, err := tx.exec("UPDATE deliveries SET leased = 0, attempt = attempt - 1, next_at = ? WHERE id = ? AND leased = 1", tx.now, id)
		return err
	}
	status := "pending"
	if r.Delivered {
		status = "delivered"
	} else if r.NextAt == nil {
		status = "failed"
	}
	_, err := tx.exec(`UPDATE deliveries SET status = ?, next_at = ?, leased = 0, tried_at = ?, answer_status = ?, answer = ?
		WHERE id = ? AND leased = 1`, status, r.NextAt, tx.now, r.AnswerStatus, r.Answer, id)
	if err != nil {
		return err
	}
	switch {
	case r.Delivered:
		_, err = tx.exec("UPDATE endpoints SET failures = 0 WHERE id = ? AND failures > 0", endpoint)
	case r.Gone:
		_, err = tx.exec("UPDATE endpoints SET failures = failures + 1, active = 0, off_reason = ? WHERE id = ?", OffGone, endpoint)
	default:
		_, err = tx.exec("UPDATE endpoints SET failures = failures + 1 WHERE id = ?", endpoint)
	}
	return err
}

// Dispatch writes results and takes new claims in one transaction.
func (db *DB) Dispatch(ctx context.Context, results []Result, room func(Endpoint) int) (claims []Claim, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		for _, r := range results {
			if err := tx.record(r); err != nil {
				return err
			}
		}
		if room != nil {
			claims, err = tx.claim(room)
		}
		return err
	})
	return claims, err
}

// DeliveriesDue tells cheaply whether Dispatch may find something to claim.
func (db *DB) DeliveriesDue() (bool, error) {
	return one(db.reader, column[bool], "SELECT EXISTS (SELECT 1 FROM endpoints e WHERE "+endpointDue+")", time.Now().UnixMilli())
}

// ReleaseLeases makes due what a process that is no more had claimed. One process serves a file.
func (db *DB) ReleaseLeases(ctx context.Context) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("UPDATE deliveries SET leased = 0, next_at = ? WHERE leased = 1", tx.now)
		return err
	})
}

// retryDelays are the waits before the second and every later attempt: 75 h 35 min in all.
var retryDelays = []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour}

// retryDelay is the wait after failed attempt number n, from 1, before it is spread by ±20 %. After the last attempt
// it is 0.
func retryDelay(n int) time.Duration {
	if n > len(retryDelays) {
		return 0
	}
	return retryDelays[n-1]
}

// deniedNets are the addresses that are not public (IANA special-purpose registries); of v6 all outside 2000::/3, and
// some in it.
var deniedNets = parseNets("0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 " +
	"192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 " +
	"::/3 4000::/2 8000::/1 2001::/23 2001:db8::/32 2002::/16 3fff::/20")

func parseNets(list string) (nets []netip.Prefix) {
	for _, s := range strings.Fields(list) {
		nets = append(nets, netip.MustParsePrefix(s))
	}
	return nets
}

func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	return ip.IsValid() && !slices.ContainsFunc(deniedNets, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// checkWebhookURL returns what is wrong with an endpoint's address, "" if nothing. A name's addresses are checked when
// it is dialled, for they may change.
func checkWebhookURL(address string, allowPrivate bool) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || len(address) > 2048:
		return "must be an address such as https://shop.example.id/webhooks"
	case u.Scheme != "https" && !(allowPrivate && u.Scheme == "http"):
		return "must begin with https:// (http and private addresses need -webhook-allow-private)"
	case u.User != nil || u.Fragment != "":
		return "must have no user, password or #fragment"
	}
	if ip, err := netip.ParseAddr(u.Hostname()); !allowPrivate && (err == nil && !isPublic(ip) || u.Hostname() == "localhost") {
		return "must be a public address (private ones need -webhook-allow-private)"
	}
	return ""
}

// newWebhookClient makes the client that delivers: no redirects, no proxy, no compression, 15 s in all. The address
// that is dialled is checked, not the name, so that a name which changes its address gains nothing.
func newWebhookClient(allowPrivate bool) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err == nil && !allowPrivate && !isPublic(ap.Addr()) {
			err = fmt.Errorf("%s is not a public address", ap.Addr())
		}
		return err
	}}
	return &http.Client{
		Timeout:       15 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: 5 * time.Second, DisableCompression: true,
			ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: 4, MaxIdleConns: 64, IdleConnTimeout: time.Minute},
	}
}

const (
	inFlight         = 32                    // attempts under way at most
	inFlightFailing  = 16                    // of them to endpoints that fail
	inFlightEndpoint = 4                     // of them to one endpoint, 1 if it fails
	failing          = 5                     // failed attempts in a row that make an endpoint one that fails
	claimAhead       = 256                   // claims held of one healthy endpoint, so that many results share a commit
	claimsHeld       = 1024                  // of all when one is claimed ahead; twice as many at most
	dispatchPause    = 10 * time.Millisecond // between two writes, for the same reason
	dispatchEnough   = 64                    // results that are worth a write at once
)

// dispatcher is the background queue. One goroutine, run, owns its fields; attempts and writes send it their outcome.
type dispatcher struct {
	db     *DB
	client *http.Client
	log    *slog.Logger
	poll   time.Duration // how often to look for what other processes and the clock made due
	woken  chan struct{}

	lanes  map[string]*lane // by endpoint
	flying int
	landed chan Result
	done   []Result // to be written
}

// lane is what is claimed of one endpoint.
type lane struct {
	waiting  []Claim
	until    time.Time // an attempt that begins later could outlast the lease
	flying   int
	failures int // in a row
}

func (l lane) held() int { return len(l.waiting) + l.flying }

func (l lane) width() int {
	if l.failures >= failing {
		return 1
	}
	return inFlightEndpoint
}

func newDispatcher(db *DB, client *http.Client, log *slog.Logger) *dispatcher {
	return &dispatcher{db: db, client: client, log: log, poll: time.Second, woken: make(chan struct{}, 1),
		lanes: map[string]*lane{}, landed: make(chan Result, inFlight)}
}

// wake tells that events were committed. It never blocks.
func (d *dispatcher) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// run delivers until ctx ends; then it claims no more, waits for the attempts under way and records them.
func (d *dispatcher) run(ctx context.Context) {
	type outcome struct {
		claims  []Claim
		results []Result
		err     error
	}
	if err := d.db.ReleaseLeases(context.Background()); err != nil {
		d.log.Error("webhooks: cannot release leases; they end by themselves", "error", err)
	}
	tick := time.NewTicker(d.poll)
	defer tick.Stop()
	written := make(chan outcome, 1)
	var pause <-chan time.Time // set: a write comes when it ends
	look, writing, end := true, false, ctx.Done()
	for {
		if !writing && pause == nil && (look || len(d.done) > 0) {
			pause = time.After(dispatchPause)
			if len(d.done) >= dispatchEnough {
				pause = time.After(0)
			}
		}
		if ctx.Err() != nil && d.flying == 0 && !writing && len(d.done) == 0 {
			return
		}
		select {
		case <-d.woken:
			look = true
		case <-tick.C:
			due, err := d.db.DeliveriesDue()
			if err != nil {
				d.log.Error("webhooks: cannot look for due deliveries", "error", err)
			}
			look = look || due
		case <-pause:
			pause, look, writing = nil, false, true
			results, room := d.done, d.room()
			d.done = nil
			if ctx.Err() != nil {
				room = nil
			}
			go func() {
				claims, err := d.db.Dispatch(context.Background(), results, room)
				written <- outcome{claims, results, err}
			}()
		case w := <-written:
			writing = false
			if w.err != nil {
				d.log.Error("webhooks: cannot write results; trying again", "error", w.err)
				d.done = append(w.results, d.done...)
				pause = time.After(time.Second)
				if ctx.Err() != nil {
					return // the leases are released at the next start
				}
			} else {
				d.take(w.claims)
			}
		case r := <-d.landed:
			d.land(r)
		case <-end:
			end, look = nil, false // and launch gives back what is not begun
		}
		d.launch(ctx)
	}
}

// room returns how many claims of an endpoint to take. It holds a copy of what it needs, as it runs elsewhere.
func (d *dispatcher) room() func(Endpoint) int {
	lanes, total := map[string]lane{}, 0
	for id, l := range d.lanes {
		lanes[id] = *l
		total += l.held()
	}
	return func(e Endpoint) int {
		l, known := lanes[e.ID]
		if !known {
			l.failures = e.Failures
		}
		// What an endpoint can have under way it always gets, so that slow ones, who hold much, leave room for others.
		n := min(l.width()-l.held(), 2*claimsHeld-total)
		if l.failures == 0 {
			n = max(n, min(claimAhead-l.held(), claimsHeld-total))
		}
		n = max(0, n)
		total += n
		return n
	}
}

func (d *dispatcher) take(claims []Claim) {
	for _, c := range claims {
		l := d.lanes[c.Endpoint.ID]
		if l == nil {
			l = &lane{failures: c.Endpoint.Failures}
			d.lanes[c.Endpoint.ID] = l
		}
		if len(l.waiting) == 0 {
			l.until = time.Now().Add(lease - 20*time.Second)
		}
		l.waiting = append(l.waiting, c)
	}
}

// launch begins what may begin, the endpoints in random order.
func (d *dispatcher) launch(ctx context.Context) {
	slow := 0
	for _, l := range d.lanes {
		if l.failures >= failing {
			slow += l.flying
		}
	}
	for id, l := range d.lanes {
		if ctx.Err() != nil || len(l.waiting) > 0 && time.Now().After(l.until) {
			d.giveBack(l)
		}
		// Half of the slots are for endpoints that have nothing under way, so that slow ones leave room for all others.
		for len(l.waiting) > 0 && l.flying < l.width() && (d.flying < inFlight/2 || l.flying == 0 && d.flying < inFlight) {
			if l.failures >= failing {
				if slow == inFlightFailing {
					break
				}
				slow++
			}
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			l.flying++
			d.flying++
			go func() { d.landed <- d.attempt(c) }()
		}
		if l.held() == 0 {
			delete(d.lanes, id)
		}
	}
}

func (d *dispatcher) land(r Result) {
	l := d.lanes[r.Claim.Endpoint.ID]
	l.flying--
	d.flying--
	d.done = append(d.done, r)
	if r.Delivered {
		l.failures = 0
		return
	}
	l.failures++
	d.giveBack(l)
}

// giveBack ends the claims that are not begun.
func (d *dispatcher) giveBack(l *lane) {
	for _, c := range l.waiting {
		d.done = append(d.done, Result{Claim: c, Unsent: true})
	}
	l.waiting = nil
}

// attempt sends a delivery once.
func (d *dispatcher) attempt(c Claim) Result {
	r := Result{Claim: c}
	now := time.Now()
	req, err := http.NewRequest("POST", c.Endpoint.URL, bytes.NewReader(c.Body))
	if err != nil {
		r.Answer = err.Error()
		return r
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"storeorder/1"},
		"X-Service-Signature": {signatureHeader(c.Endpoint.Secrets, now.Unix(), c.Body)},
		"X-Service-Event":     {c.Event}, "X-Service-Event-Id": {c.EventID},
		"X-Service-Delivery-Id": {c.DeliveryID}, "X-Service-Attempt": {strconv.Itoa(c.Attempt)},
	}
	var retryAfter time.Duration
	resp, err := d.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the address
		}
		r.Answer = err.Error()
	} else {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		resp.Body.Close()
		r.AnswerStatus, r.Answer = &resp.StatusCode, strings.ToValidUTF8(string(answer), "\uFFFD")
		r.Delivered = resp.StatusCode/100 == 2
		r.Gone = resp.StatusCode == http.StatusGone
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
			retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), now)
		}
	}
	if r.Delivered {
		return r
	}
	if delay := retryDelay(c.Attempt); delay > 0 {
		delay = time.Duration(float64(delay) * (0.8 + 0.4*mathrand.Float64()))
		next := Time(time.Now().Add(min(max(delay, retryAfter), 2*delay)).UnixMilli())
		r.NextAt = &next
	}
	d.log.Warn("webhook not delivered", "delivery", c.DeliveryID, "endpoint", c.Endpoint.ID, "attempt", c.Attempt,
		"status", r.AnswerStatus, "next_at", r.NextAt)
	return r
}

// parseRetryAfter reads seconds or an HTTP date (RFC 9110, section 10.2.3); anything else is 0.
func parseRetryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 7*24*3600)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// OrderDelivery is a delivery of an order's event, with its endpoint.
type OrderDelivery struct {
	Delivery
	EndpointID, URL string
}

const (
	sqlEndpointsOf = `
		SELECT id
		FROM   endpoints e
		WHERE  store_id = ?
		AND    (events = '[]' OR EXISTS (SELECT 1 FROM json_each(e.events) WHERE value = ?))`
	sqlOrderDeliveries = "SELECT " + deliveryColumns + `, e.id, e.url
		FROM   events v
		CROSS JOIN deliveries d ON d.event_id = v.id
		JOIN   endpoints e ON e.id = d.endpoint_id
		WHERE  v.order_id = ?
		ORDER BY v.sequence`
)

func scanOrderDelivery(r row) (o OrderDelivery, err error) {
	err = r.Scan(append(deliveryFields(&o.Delivery), &o.EndpointID, &o.URL)...)
	return o, err
}
