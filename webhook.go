package main

// Webhooks tell a store's own programs, and its owner's phone, what happens to orders.
//
// The creation of an order, and each change of what it shows, has an event. Its bytes are written once, in the
// transaction of the change, with a delivery for each endpoint that takes it. Every attempt sends the same bytes with a
// fresh signature. A delivery is tried up to ten times in some 75 hours, until the receiver answers 2xx. It can arrive
// twice, because nothing is written before it is sent. It stays due until the result of an attempt says otherwise.
//
// An endpoint gets an order's events in order as long as it acknowledges them. The next one waits while an attempt is
// under way, and overtakes one that failed. A receiver that is slow or down delays its own deliveries. Once 128
// attempts hang, receivers that are slow, down or new delay each other, and the others get one attempt at a time
// (mayBegin). Only its owner or a 410 turns an endpoint off; one that always fails stays on.
//
// This file follows an event to its receiver. It is written with its deliveries, the queue begins attempts for the due
// ones, and each attempt sends and records its result. At the end is what the owner sees of a delivery.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// EventName says what an event reports.
type EventName string

const (
	OrderCreated              EventName = "orderCreated"
	OrderAwaitingVerification EventName = "orderAwaitingVerification"
	OrderPaid                 EventName = "orderPaid"
	OrderFailed               EventName = "orderFailed"
	OrderExpired              EventName = "orderExpired"
	OrderRefunded             EventName = "orderRefunded"
	OrderPending              EventName = "orderPending" // it waits for payment again
	OrderAlerted              EventName = "orderAlerted" // its alerts have changed
	OrderShipped              EventName = "orderShipped" // it was handed over: sent, or picked up
	OrderUpdated              EventName = "orderUpdated" // anything else that it shows has changed
	Ping                      EventName = "ping"         // a test without an order, which every endpoint takes
)

// EventNames are all the names that a store's events can have.
var EventNames = []EventName{
	OrderCreated, OrderAwaitingVerification, OrderPaid, OrderFailed,
	OrderExpired, OrderRefunded, OrderPending, OrderAlerted, OrderShipped, OrderUpdated, Ping,
}

// phoneEvents are the events that an owner's phone rings for: OrderAlerted only while there are alerts.
var phoneEvents = []EventName{OrderCreated, OrderAwaitingVerification, OrderPaid, OrderAlerted}

// writeEvent writes the bytes that are signed and sent.
func (tx *Tx) writeEvent(storeID, orderID string, sequence int64, name EventName, data string) (id string) {
	id = "evt_" + tx.newID()
	body := fmt.Sprintf(`{"id":"%s","event":"%s","created_at":"%s","store_id":"%s","sequence":%d,"data":%s}`,
		id, name, tx.now, storeID, sequence, data)

	tx.exec(`
		INSERT INTO events (id, store_id, order_id, event, created_at, body)
		VALUES (?, ?, nullif(?, ''), ?, ?, ?)`, id, storeID, orderID, name, tx.now, body)
	return id
}

// DeliveryStatus is where a delivery stands.
type DeliveryStatus string

const (
	deliveryPending   DeliveryStatus = "pending"
	deliveryDelivered DeliveryStatus = "delivered" // acknowledged
	deliveryFailed    DeliveryStatus = "failed"    // given up, until somebody resends it
)

// addDeliveries makes an event due at the endpoints of its store that take it, and at phones if it rings them. One that
// is off gets deliveries too: they wait until it is on.
func (tx *Tx) addDeliveries(eventID, storeID string, name EventName, ringsPhone bool) {
	endpoints := rowsOf[string](tx, `
		SELECT id
		FROM   endpoints
		WHERE  store_id = ? AND removed_at = 0
		       AND (events = '[]' OR EXISTS (SELECT 1 FROM json_each(events) WHERE value = ?))
		       AND (kind = 'webhook' OR ?)
		ORDER BY id`, storeID, name, ringsPhone)
	for _, id := range endpoints { // The event and the endpoint exist, so the only possible error is the write's.
		tx.addDelivery(eventID, id)
	}
}

// addDelivery makes an event due at an endpoint of its store.
func (tx *Tx) addDelivery(eventID, endpointID string) error {
	tx.webhooksDue = true // The commit wakes the queue.
	return tx.mustChange(`
		INSERT INTO deliveries (id, endpoint_id, event, next_at)
		SELECT ?, e.id, v.number, ?
		FROM   events v
		JOIN   endpoints e ON e.store_id = v.store_id
		WHERE  v.id = ? AND e.id = ? AND e.removed_at = 0`, tx.newID(), tx.now, eventID, endpointID)
}

// queue sends due deliveries. It writes nothing before it sends, and knows only in memory which attempts are under way.
// That is enough, because one process serves a file, and after a crash a delivery is still due at its old time.
//
// The queue looks for due deliveries when something was written, when an attempt has ended and when the next delivery
// is due. An endpoint with an attempt under way waits for the end of that attempt, not for its next due time.
//
// underWay and paused belong to the goroutine of deliver.
type queue struct {
	db        *DB
	transport http.RoundTripper // newTransport's, except in tests

	underWay []dueDelivery
	paused   map[string]time.Time // until when nothing is sent to an endpoint, by its id
	ended    chan dueDelivery     // deliveries whose attempt has ended
}

// newQueue returns a queue that is not running. Without a transport it sends over the network.
func newQueue(db *DB, transport http.RoundTripper, allowPrivate bool) *queue {
	if transport == nil {
		transport = newTransport(allowPrivate)
	}
	return &queue{
		db:        db,
		transport: transport,
		paused:    map[string]time.Time{},
		ended:     make(chan dueDelivery, mostUnderWay),
	}
}

// deliver delivers until ctx ends. The attempts under way then have five seconds to end.
func (q *queue) deliver(ctx context.Context) {
	untilCutOff, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()

	for ctx.Err() == nil {
		wait := q.sendDue(untilCutOff)
		select {
		case <-q.db.webhooksDue: // after a commit, or by watch: five seconds at most after any write
		case d := <-q.ended:
			q.endAttempt(d)
		case <-time.After(wait):
		case <-ctx.Done():
		}

		for len(q.ended) > 0 { // One pass of sendDue serves all attempts that have ended.
			q.endAttempt(<-q.ended)
		}
	}

	defer time.AfterFunc(5*time.Second, cutOff).Stop()
	for len(q.underWay) > 0 {
		q.endAttempt(<-q.ended)
	}
}

const (
	mostUnderWay   = 256              // attempts
	mostOfEndpoint = 4                // of them to one endpoint
	longestAttempt = 15 * time.Second // in all; at most 5 s to connect, and 5 s for TLS
	slowAnswer     = 2 * time.Second
	pauseOfFailing = time.Second // between the attempts to an endpoint that fails or is slow
)

// waitingEndpoint is an endpoint with deliveries that wait or are under way.
type waitingEndpoint struct {
	ID      string
	DidWell bool // Its last attempt was acknowledged, and quickly.
	Next    Time // when the first of them is, or was, due
}

// sendDue begins the attempts that are due and may begin. It returns how long to sleep if nothing wakes the queue:
// until the next delivery or the end of a pause, but a minute at most, because somebody may set the clock.
func (q *queue) sendDue(untilCutOff context.Context) (sleep time.Duration) {
	maps.DeleteFunc(q.paused, func(_ string, until time.Time) bool { return time.Until(until) <= 0 })
	endpoints, err := q.waiting()
	if err != nil {
		q.db.log.Error("webhooks: cannot read due deliveries; trying again", "error", err)
		return time.Second
	}

	now := q.db.now()
	sleep = time.Minute
	for _, e := range endpoints {
		untilNext := max(e.Next.Sub(now), time.Until(q.paused[e.ID]))
		if untilNext > 0 {
			sleep = min(sleep, untilNext)
			continue
		}
		if !q.mayBegin(e) {
			continue // The end of an attempt starts another pass.
		}
		if err := q.sendTo(untilCutOff, e, now); err != nil {
			q.db.log.Error("webhooks: cannot read an endpoint's due deliveries; trying again", "error", err)
			sleep = time.Second
		}
	}
	return sleep
}

// waiting lists, in random order, the endpoints that are on and have deliveries. It walks from endpoint to endpoint in
// the index, without reading all deliveries.
func (q *queue) waiting() ([]waitingEndpoint, error) {
	return all[waitingEndpoint](context.Background(), q.db, `
		WITH RECURSIVE waiting (id) AS (
			SELECT min(endpoint_id) FROM deliveries WHERE next_at IS NOT NULL
			UNION ALL
			SELECT (SELECT min(endpoint_id) FROM deliveries WHERE next_at IS NOT NULL AND endpoint_id > w.id)
			FROM   waiting w
			WHERE  id IS NOT NULL
		)
		SELECT e.id, e.did_well,
		       (SELECT min(next_at) FROM deliveries WHERE endpoint_id = e.id AND next_at IS NOT NULL) AS next
		FROM   waiting w
		JOIN   endpoints e ON e.id = w.id
		WHERE  e.off = ''
		ORDER BY random()`)
}

// mayBegin bounds the attempts under way. A healthy endpoint gets up to four at once. Its first may begin while fewer
// than 256 attempts are under way in total; the other three while fewer than 128 are. An endpoint that is new, was just
// turned on, or whose last attempt failed or was slow gets one at a time, while fewer than 128 are under way, and
// pauses after each that fails or is slow.
func (q *queue) mayBegin(e waitingEndpoint) bool {
	ofEndpoint := 0
	for _, d := range q.underWay {
		if d.EndpointID == e.ID {
			ofEndpoint++
		}
	}

	if e.DidWell && ofEndpoint == 0 {
		return len(q.underWay) < mostUnderWay
	}

	most := 1
	if e.DidWell {
		most = mostOfEndpoint
	}
	return ofEndpoint < most && len(q.underWay) < mostUnderWay/2
}

// dueDelivery is a delivery that is due, or whose attempt is under way or has ended.
type dueDelivery struct {
	EndpointID, ID, OrderID string
	Attempts                int  // that have ended
	pauses                  bool // Its attempt failed, was slow or has no result, so its endpoint pauses.
}

// sendTo begins attempts to an endpoint for the deliveries that have been due longest.
func (q *queue) sendTo(untilCutOff context.Context, e waitingEndpoint, now Time) error {
	due, err := all[dueDelivery](context.Background(), q.db, `
		SELECT d.endpoint_id, d.id, coalesce(v.order_id, '') AS order_id, d.attempt AS attempts
		FROM   deliveries d
		CROSS JOIN events v ON v.number = d.event
		WHERE  d.endpoint_id = ? AND d.next_at <= ?
		ORDER BY d.next_at, d.id
		LIMIT  16`, e.ID, now)
	for _, d := range due {
		if !q.mayBegin(e) {
			break
		}
		if q.mustWait(d) {
			continue
		}
		q.underWay = append(q.underWay, d)
		go func() { q.ended <- q.attempt(untilCutOff, d) }()
	}
	return err
}

// mustWait reports whether an attempt is under way for a delivery, or for another one of its order to the same
// endpoint. If that attempt fails, this delivery is due before its retry, and goes first.
func (q *queue) mustWait(d dueDelivery) bool {
	return slices.ContainsFunc(q.underWay, func(other dueDelivery) bool {
		ofOrder := d.OrderID != "" && other.OrderID == d.OrderID // A ping has no order.
		return other.ID == d.ID || ofOrder && other.EndpointID == d.EndpointID
	})
}

// attempt sends a delivery once, records the result, and returns the delivery with pauses set. It records nothing if
// the service stops first, or if the endpoint was removed or turned off before the delivery was sent. The delivery then
// stays due.
func (q *queue) attempt(untilCutOff context.Context, d dueDelivery) dueDelivery {
	begun := time.Now()
	s, a, err := q.sendDelivery(untilCutOff, d)
	if errors.Is(err, ErrNotFound) || untilCutOff.Err() != nil {
		d.pauses = true
		return d
	}

	r := attemptResult{httpAnswer: a, wasSent: !errors.Is(err, errNoNews), attempts: d.Attempts + 1}
	asked := askedWait(a.retryAfter, q.db.now())
	r.status, r.wait = afterAttempt(r.attempts, a.code, asked, 0.8+0.4*rand.Float64())
	switch isSteady := q.db.observeClock(); {
	case !r.wasSent:
		r.attempts = d.Attempts
		r.status = deliveryFailed
	case s.Kind == Phone && r.status == deliveryPending && q.isOldNews(s, r.wait):
		r.status = deliveryFailed // The next attempt would come too late.
	case r.status == deliveryFailed && !isSteady:
		r.status = deliveryPending
		r.wait = 10 * time.Minute // A clock that jumped ahead may have made all attempts due at once.
	}

	if r.status != deliveryDelivered {
		q.db.log.Warn("webhook not delivered", "delivery", d.ID, "endpoint", d.EndpointID,
			"attempt", r.attempts, "status", r.status, "error", cmp.Or(err, fmt.Errorf("answered %d", a.code)))
	}
	r.didWell = r.status == deliveryDelivered && time.Since(begun) <= slowAnswer
	d.pauses = r.wasSent && !r.didWell
	q.record(untilCutOff, d, r)
	return d
}

// sending is what an attempt sends, and where to.
type sending struct {
	Kind      EndpointKind
	URL       string
	Secrets   []string // the new one, and the old one while it signs
	EventID   string
	Event     EventName
	CreatedAt Time
	Body      []byte
	Order     []byte // from the body
	Language  string // the store's
}

// httpAnswer is a receiver's answer. What the store sees of it reveals nothing about the network of the service.
type httpAnswer struct {
	code       int    // the HTTP status; 0: there was no answer
	text       string // its first bytes, or why there was none, such as "timed out"
	retryAfter string
}

// sendDelivery reads a delivery and sends it. A panic becomes an error, so that the attempt has a result like any
// other.
func (q *queue) sendDelivery(ctx context.Context, d dueDelivery) (s sending, a httpAnswer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			a = httpAnswer{text: whyNoAnswer(err)}
		}
	}()

	s, err = one[sending](ctx, q.db, `
		SELECT e.kind, e.url,
		       iif(e.old_secret_until > ?, json_array(e.secret, e.old_secret), json_array(e.secret)) AS secrets,
		       v.id AS event_id, v.event, v.created_at, v.body,
		       coalesce(json_extract(v.body, '$.data.order'), '') AS "order", s.language
		FROM   deliveries d
		JOIN   events v ON v.number = d.event
		JOIN   endpoints e ON e.id = d.endpoint_id
		JOIN   stores s ON s.id = e.store_id
		WHERE  d.id = ? AND e.off = ''`, q.db.now(), d.ID)
	if err != nil {
		return s, a, err
	}

	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	switch {
	case s.Kind == Webhook:
		a, err = q.post(ctx, s.URL, s.Body, webhookHeader(s, d, q.db.now().Time().Unix()))
	case q.isOldNews(s, 0):
		err = errNoNews
	default:
		a, err = q.ring(ctx, s)
	}
	return s, a, err
}

// webhookHeader describes a delivery and signs it, at the second t.
func webhookHeader(s sending, d dueDelivery, t int64) http.Header {
	signature := fmt.Sprintf("t=%d", t)
	for _, secret := range s.Secrets {
		signature += ",v1=" + sign(secret, t, s.Body)
	}
	return http.Header{
		"Content-Type":          {"application/json"},
		"Accept":                {"*/*"}, // Firewalls of shared hosting refuse requests without it.
		"X-Service-Signature":   {signature},
		"X-Service-Event":       {string(s.Event)},
		"X-Service-Event-Id":    {s.EventID},
		"X-Service-Delivery-Id": {d.ID},
		"X-Service-Attempt":     {strconv.Itoa(d.Attempts + 1)},
	}
}

// sign returns the HMAC-SHA256 of "<t>.<body>" in hex, t in Unix seconds, keyed with all bytes of the secret
// as shown.
func sign(secret string, t int64, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", t, body)
	return hex.EncodeToString(mac.Sum(nil))
}

// post sends a request over the transport itself, which follows no redirects, and reads the answer. An answer
// whose body stalls or breaks off is still an answer.
func (q *queue) post(ctx context.Context, address string, body []byte, header http.Header) (httpAnswer, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", address, bytes.NewReader(body))
	if err != nil {
		return httpAnswer{}, err
	}

	header.Set("User-Agent", "storeorder/1")
	req.Header = header

	resp, err := q.transport.RoundTrip(req)
	if err != nil {
		return httpAnswer{}, err
	}
	defer resp.Body.Close()

	var text []byte
	if resp.StatusCode != http.StatusSwitchingProtocols { // else the body is the connection, without an end
		text, _ = io.ReadAll(io.LimitReader(resp.Body, 4096))
	}

	if resp.StatusCode/100 == 2 {
		text = text[:min(len(text), 200)]
	}
	return httpAnswer{
		code:       resp.StatusCode,
		text:       strings.ToValidUTF8(string(text), "\uFFFD"),
		retryAfter: resp.Header.Get("Retry-After"),
	}, nil
}

// ring publishes a text to a topic of an ntfy server, which passes it on to the owner's phone. Tapping it opens the
// dashboard.
func (q *queue) ring(ctx context.Context, s sending) (httpAnswer, error) {
	title, text := phoneWords(s.Language, s.Event, s.Order)
	address, err := q.db.publicURL(ctx)
	if err != nil {
		return httpAnswer{}, err
	}
	return q.post(ctx, s.URL, []byte(text), http.Header{
		"Title": {mime.QEncoding.Encode("utf-8", title)},
		"Click": {address + "/dashboard"},
	})
}

var errNoNews = errors.New("not sent: it is more than an hour old, which is no news for a phone")

// isOldNews reports whether an event will be too old for a phone after wait.
func (q *queue) isOldNews(s sending, wait time.Duration) bool {
	return q.db.now().Add(wait).Sub(s.CreatedAt) > time.Hour
}

// newTransport returns the way to the network: without a proxy or compression and, unless private addresses
// are allowed, only to public ones.
func newTransport(allowPrivate bool) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if !allowPrivate {
		dialer.Control = refusePrivate
	}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    mostOfEndpoint,
		IdleConnTimeout:        time.Minute,
	}
}

var errNotPublic = errors.New("not a public address")

// refusePrivate is a net.Dialer's Control. It checks the dialed address, so a name that changes its address gains
// nothing.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	if dialed, _ := netip.ParseAddrPort(address); !isPublic(dialed.Addr()) {
		return errNotPublic
	}
	return nil
}

// whyNoAnswer says why a request got no answer, in words for the store.
func whyNoAnswer(err error) string {
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)

	switch {
	case errors.Is(err, errNoNews):
		return errNoNews.Error()
	case errors.Is(err, errNotPublic), isLookup && lookup.IsNotFound:
		// This does not reveal whether a private host has it.
		return "no public host has this name or address (a private one needs serve -webhook-allow-private)"
	case isNetwork && network.Timeout():
		return "timed out"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case badCertificate:
		return "certificate not accepted"
	}
	return "no answer"
}

// attemptResult is the result of an attempt for its delivery and its endpoint.
type attemptResult struct {
	httpAnswer
	wasSent  bool // false for news that are too old for a phone
	attempts int  // of the delivery so far, including this one
	status   DeliveryStatus
	wait     time.Duration // of a pending delivery, until the next attempt
	didWell  bool          // It was acknowledged, and quickly.
}

// afterAttempt derives the status of a delivery, and its wait while it is pending, from the HTTP status of an answer,
// or 0. The exceptions are in attempt, and the consequences for the endpoint in record, below. number counts from 1.
// spread is random, from 0.8 to 1.2, so that deliveries that failed together are not retried together. An overloaded
// receiver may ask for more time, up to twice the wait.
func afterAttempt(number, code int, asked time.Duration, spread float64) (DeliveryStatus, time.Duration) {
	waits := []time.Duration{ // before the second to tenth attempt: 75 h 35 min in all
		5 * time.Second,
		5 * time.Minute,
		30 * time.Minute,
		2 * time.Hour,
		5 * time.Hour,
		10 * time.Hour,
		14 * time.Hour,
		20 * time.Hour,
		24 * time.Hour,
	}

	switch {
	case code/100 == 2:
		return deliveryDelivered, 0
	case number > len(waits):
		return deliveryFailed, 0
	}

	wait := time.Duration(float64(waits[number-1]) * spread)
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		wait = min(max(wait, asked), 2*wait)
	}
	return deliveryPending, wait
}

// askedWait returns how long a Retry-After header asks to wait, in seconds or until a date (RFC 9110, 10.2.3). Without
// a valid header it is 0 or less.
func askedWait(retryAfter string, now Time) time.Duration {
	at, err := http.ParseTime(retryAfter)
	if err == nil {
		return at.Sub(now.Time())
	}
	seconds, _ := strconv.Atoi(retryAfter) // the greatest int, if there are too many digits
	return time.Duration(min(seconds, 1e6)) * time.Second
}

// record writes the result of an attempt. A delivery that was resent meanwhile is counted from the start again: its row
// has another number of attempts, unless this was its first, and then the result counts only for the endpoint. A 410
// turns the endpoint off. If the result cannot be written, record tries again each second, and the delivery stays under
// way. Otherwise it would be sent all the time.
func (q *queue) record(untilCutOff context.Context, d dueDelivery, r attemptResult) {
	for tries := 0; untilCutOff.Err() == nil; tries++ {
		err := q.db.write(untilCutOff, func(tx *Tx) error {
			tx.exec(`
				UPDATE deliveries
				SET    status = ?1, attempt = ?2, next_at = iif(?1 = 'pending', ?3, NULL), tried_at = ?4,
				       answer_status = ?5, answer = ?6
				WHERE  id = ?7 AND attempt = ?8`,
				r.status, r.attempts, tx.now.Add(r.wait), tx.now, r.code, r.text, d.ID, d.Attempts)
			if r.wasSent {
				tx.exec(`
					UPDATE endpoints
					SET    did_well = ?1, off = iif(?2 = 410 AND off = '', 'gone', off)
					WHERE  id = ?3 AND (did_well <> ?1 OR ?2 = 410)`, r.didWell, r.code, d.EndpointID)
			}
			return nil
		})
		if err == nil {
			return
		}
		if tries == 0 {
			q.db.log.Error("webhooks: cannot write a result; trying again", "delivery", d.ID, "error", err)
		}
		time.Sleep(time.Second)
	}
}

// endAttempt marks the attempt of a delivery as ended, and makes its endpoint pause if d says so.
func (q *queue) endAttempt(d dueDelivery) {
	q.underWay = slices.DeleteFunc(q.underWay, func(other dueDelivery) bool { return other.ID == d.ID })
	if d.pauses {
		q.paused[d.EndpointID] = time.Now().Add(pauseOfFailing)
	}
}

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID           string         `json:"delivery_id"`
	EventID      string         `json:"event_id"`
	Event        EventName      `json:"event"`
	OrderID      string         `json:"order_id,omitempty"`
	EndpointID   string         `json:"-"`
	Status       DeliveryStatus `json:"status"`
	Attempts     int            `json:"attempt"`          // attempts that have ended
	NextAt       Time           `json:"next_at,omitzero"` // 0: it is done, or its endpoint is off
	TriedAt      Time           `json:"tried_at,omitzero"`
	AnswerStatus int            `json:"answer_status,omitempty"` // HTTP; 0: there was no answer
	Answer       string         `json:"answer,omitempty"`        // its first bytes, or why there was none
	CreatedAt    Time           `json:"created_at"`
}

// Deliveries lists the deliveries to a store's endpoint, the latest first.
func (db *DB) Deliveries(ctx context.Context, storeID, endpointID string, most int) ([]Delivery, error) {
	return db.deliveries(ctx, "d.endpoint_id", endpointID, storeID, most)
}

// OrderDeliveries lists the deliveries of an order's events, the latest first.
func (db *DB) OrderDeliveries(ctx context.Context, storeID, orderID string, most int) ([]Delivery, error) {
	return db.deliveries(ctx, "v.order_id", orderID, storeID, most)
}

func (db *DB) deliveries(ctx context.Context, column, id, storeID string, most int) ([]Delivery, error) {
	return all[Delivery](ctx, db, `
		SELECT d.id, v.id AS event_id, v.event, coalesce(v.order_id, '') AS order_id, e.id AS endpoint_id, d.status,
		       d.attempt AS attempts, iif(e.off = '', coalesce(d.next_at, 0), 0) AS next_at, d.tried_at,
		       d.answer_status, d.answer, v.created_at
		FROM   deliveries d
		JOIN   events v ON v.number = d.event
		JOIN   endpoints e ON e.id = d.endpoint_id
		WHERE  `+column+` = ? AND +e.store_id = ? AND e.removed_at = 0
		ORDER BY d.event DESC, d.id DESC
		LIMIT  ?`, id, storeID, most)
}
