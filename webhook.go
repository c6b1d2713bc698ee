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
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A webhook goes through this file from top to bottom. addEvent writes its event and a delivery for each
// endpoint. Within the limits of the queue, a delivery that is due is claimed (claim) and posted (attempt),
// the answer gets its meaning (afterAttempt), and that is recorded (record). The dispatcher, which does all
// this in the background, follows them, and at the end are the lists and what the owner can ask for.

// Event is the name of something that webhooks report.
type Event string

const (
	OrderCreated              Event = "orderCreated"
	OrderAwaitingVerification Event = "orderAwaitingVerification"
	OrderPaid                 Event = "orderPaid"
	OrderFailed               Event = "orderFailed"
	OrderExpired              Event = "orderExpired"
	OrderRefunded             Event = "orderRefunded"
	OrderAlerted              Event = "orderAlerted" // an alert was raised or resolved
	Ping                      Event = "ping"         // asked for in the dashboard, without an order
)

// events are those that an endpoint can ask for. Every endpoint takes a ping.
var events = []Event{
	OrderCreated, OrderAwaitingVerification, OrderExpired, OrderFailed, OrderPaid, OrderRefunded, OrderAlerted,
}

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID           string        `json:"delivery_id"`
	EventID      string        `json:"event_id"`
	Event        Event         `json:"event"`
	OrderID      string        `json:"order_id,omitempty"`
	Status       DeliveryState `json:"status"`
	Attempt      int           `json:"attempt"` // attempts begun, counted when they are claimed: see sqlClaim
	NextAt       *Time         `json:"next_at"`
	TriedAt      *Time         `json:"tried_at"`
	AnswerStatus *int          `json:"answer_status"`
	Answer       string        `json:"answer,omitempty"` // its first bytes, or why there was none
	CreatedAt    Time          `json:"created_at"`
}

// DeliveryState is where a delivery stands.
type DeliveryState string

const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered" // acknowledged
	DeliveryFailed    DeliveryState = "failed"    // given up until it is resent
)

const sqlEndpointsOf = `
	SELECT id
	FROM   endpoints e
	WHERE  store_id = ?
	AND    (events = '[]' OR EXISTS (SELECT 1 FROM json_each(e.events) WHERE value = ?))`

// addEvent writes an event of an order, and one delivery for each endpoint that wants it. shown is the order's
// JSON as clients get it. An endpoint that is off gets its delivery too, which waits until it is on again.
func (tx *Tx) addEvent(storeID, orderID string, name Event, sequence int64, shown []byte) error {
	endpoints, err := queryAll(tx, scanValue[string], sqlEndpointsOf, storeID, name)
	if err != nil {
		return err
	}

	data := fmt.Appendf(nil, `{"order":%s}`, shown)
	return tx.insertEvent(storeID, orderID, name, sequence, data, endpoints)
}

// insertEvent writes an event and its deliveries, which are due at once. The event's body is written here
// once, so that every attempt sends the same bytes.
func (tx *Tx) insertEvent(
	storeID, orderID string, name Event, sequence int64, data []byte, endpoints []string,
) error {
	id := "evt_" + tx.newID()
	body := fmt.Sprintf(
		`{"id":"%s","event":"%s","created_at":"%s","store_id":"%s","sequence":%d,"data":%s}`,
		id, name, tx.now, storeID, sequence, data)

	_, err := tx.exec(`
		INSERT INTO events (id, store_id, order_id, sequence, event, body, created_at)
		VALUES (?, ?, nullif(?, ''), ?, ?, ?, ?)`,
		id, storeID, orderID, sequence, name, body, tx.now)
	if err != nil {
		return err
	}

	for _, endpoint := range endpoints {
		_, err := tx.exec("INSERT INTO deliveries (id, endpoint_id, event_id, next_at) VALUES (?, ?, ?, ?)",
			tx.newID(), endpoint, id, tx.now)
		if err != nil {
			return err
		}
	}
	return nil
}

// The limits of the queue keep endpoints that are slow or fail from delaying the others. They know three
// classes of endpoints, by the failed attempts in a row:
//
//	healthy    none           claimed ahead; maxToEndpoint attempts at once
//	faltering  1 to 4         nothing is claimed ahead; maxToEndpoint attempts at once
//	failing    5 (failing)    nothing is claimed ahead; one attempt at once, and maxToFailing to all of them
const (
	maxInFlight   = 32 // attempts under way
	maxToFailing  = 16 // of them to failing endpoints
	maxToEndpoint = 4  // of them to one endpoint
	failing       = 5  // failed attempts in a row

	claimAhead = 256  // claims held of one healthy endpoint, so that many results share a commit
	claimsHeld = 1024 // claims held in all, above which none is claimed ahead; twice as many at most

	lease       = time.Minute      // how long a claimed delivery is left alone
	attemptMost = 20 * time.Second // the 15 s of newWebhookClient, and a margin to record the result

	dispatchPause  = 10 * time.Millisecond // before a write, so that many results share its commit
	dispatchEnough = 64                    // results that are worth a write at once
	dispatchRetry  = time.Second           // until a write that failed is tried again
)

// claimable is how many deliveries to claim of an endpoint after so many failed attempts in a row. held is how
// many claims of it the queue still holds, and total of all endpoints.
func claimable(failures, held, total int) int {
	// Every endpoint may fill its width, until twice claimsHeld are held in all.
	n := min(width(failures)-held, 2*claimsHeld-total)
	if failures == 0 {
		// A healthy endpoint is claimed ahead too, but only until claimsHeld: slow endpoints, which hold
		// much, leave the other half to the widths of all others.
		n = max(n, min(claimAhead-held, claimsHeld-total))
	}
	return max(n, 0)
}

// width is how many attempts may be under way to an endpoint after so many failed ones in a row.
func width(failures int) int {
	if failures >= failing {
		return 1
	}
	return maxToEndpoint
}

// lane holds the claims of one endpoint.
type lane struct {
	waiting  []Claim // not begun, the oldest first
	inFlight int     // attempts under way

	// Failed attempts in a row: begins as the row's count when it was claimed, and counts every attempt that
	// ends, so that the lane slows down before the results are written.
	failures int

	// An attempt of the oldest claim that begins later could outlast its lease. Then all that wait are
	// released, also newer ones: it costs one write, and they are due at once.
	beginBy time.Time
}

func (l *lane) held() int { return len(l.waiting) + l.inFlight }

// mayBegin reports whether an attempt of the lane may begin. inFlight is how many are under way to all
// endpoints, and toFailing to the failing ones.
func (l *lane) mayBegin(inFlight, toFailing int) bool {
	if len(l.waiting) == 0 || l.inFlight >= width(l.failures) {
		return false
	}
	if l.failures >= failing && toFailing >= maxToFailing {
		return false
	}

	// Half of the slots are for endpoints that have nothing under way, so that slow ones leave room for all
	// others.
	if l.inFlight > 0 {
		return inFlight < maxInFlight/2
	}
	return inFlight < maxInFlight
}

const endpointDue = `e.active = 1
	AND    EXISTS (SELECT 1 FROM deliveries d WHERE d.endpoint_id = e.id AND d.next_at <= ?)`

// DeliveriesDue reports whether Dispatch may find a delivery to claim. It costs less than a write that finds
// none.
func (db *DB) DeliveriesDue() (bool, error) {
	return queryOne(db.reader, scanValue[bool],
		"SELECT EXISTS (SELECT 1 FROM endpoints e WHERE "+endpointDue+")", timeOf(time.Now()))
}

// Dispatch records results and claims deliveries that are due, in one transaction. held is how many claims of
// each endpoint the queue still holds.
func (db *DB) Dispatch(ctx context.Context, results []Result, held map[string]int) ([]Claim, error) {
	return writeResult(ctx, db, func(tx *Tx) ([]Claim, error) {
		if err := tx.recordAll(results); err != nil {
			return nil, err
		}
		return tx.claim(held)
	})
}

// Claim is a delivery that this process has taken to send.
type Claim struct {
	DeliveryID string
	EventID    string
	Event      Event
	Attempt    int // from 1
	Body       []byte

	// Endpoint is as it was when claimed. When it is turned off, removed or gets a new secret afterwards, its
	// claims (up to claimAhead) are still sent with the old state, and may begin until lane.beginBy: 40 s.
	Endpoint Endpoint
}

const sqlDueEndpoints = "SELECT " + endpointColumns + " FROM endpoints e WHERE " + endpointDue

// sqlClaim moves next_at one lease ahead: schema.sql has the states of a delivery. A claim whose process
// crashed is due at the next start at once (ReleaseLeases), any other without a result when its lease ends. It
// stays counted as an attempt, because the request may have reached the receiver. Only next_at says whether a
// delivery is due. leased says that it is claimed: a start makes such deliveries due, and a resend leaves them
// alone.
const sqlClaim = `
	UPDATE deliveries
	SET    leased = 1, attempt = attempt + 1, next_at = ?
	WHERE  id IN (
		SELECT id FROM deliveries
		WHERE  endpoint_id = ? AND next_at <= ?
		ORDER BY next_at LIMIT ?)
	RETURNING id, attempt, event_id,
	          (SELECT event FROM events WHERE id = event_id),
	          (SELECT body FROM events WHERE id = event_id)`

func scanClaim(r row) (c Claim, err error) {
	err = r.Scan(&c.DeliveryID, &c.Attempt, &c.EventID, &c.Event, &c.Body)
	return c, err
}

// claim takes due deliveries, of each endpoint as many as it may, the ones due longest first. The endpoints
// take turns by chance.
func (tx *Tx) claim(held map[string]int) ([]Claim, error) {
	endpoints, err := queryAll(tx, scanEndpoint, sqlDueEndpoints+" ORDER BY random()", tx.now, tx.now)
	if err != nil {
		return nil, err
	}

	total := 0
	for _, n := range held {
		total += n
	}

	var all []Claim
	for _, e := range endpoints {
		limit := claimable(e.Failures, held[e.ID], total)
		if limit == 0 {
			continue
		}
		claims, err := queryAll(tx, scanClaim, sqlClaim, tx.now.Add(lease), e.ID, tx.now, limit)
		if err != nil {
			return nil, err
		}

		// RETURNING has no order (https://sqlite.org/lang_returning.html): older deliveries are sent first.
		slices.SortFunc(claims, func(a, b Claim) int { return strings.Compare(a.DeliveryID, b.DeliveryID) })
		for i := range claims {
			claims[i].Endpoint = e
		}
		all = append(all, claims...)
		total += len(claims)
	}
	return all, nil
}

// attempt posts a delivery once and decides what the answer means.
func (d *dispatcher) attempt(c Claim) Result {
	answer := d.post(c)
	spread := 0.8 + 0.4*mathrand.Float64()
	outcome := afterAttempt(c.Attempt, answer, time.Now(), spread)

	if outcome.State != DeliveryDelivered {
		d.log.Warn("webhook not delivered", "delivery", c.DeliveryID, "endpoint", c.Endpoint.ID,
			"attempt", c.Attempt, "status", answer.AnswerStatus, "next_at", outcome.NextAt)
	}
	return Result{Claim: c, endpointAnswer: answer, deliveryOutcome: outcome}
}

// endpointAnswer is what came back from an endpoint.
type endpointAnswer struct {
	AnswerStatus int    // HTTP; 0: there was no answer
	Answer       string // its first bytes, or why there was none
	RetryAfter   string // the header of that name
}

// post sends a delivery to its endpoint and reads the answer.
func (d *dispatcher) post(c Claim) endpointAnswer {
	resp, err := d.send(c)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the address, which may hold a secret
	}
	if err != nil {
		return endpointAnswer{Answer: err.Error()}
	}
	defer resp.Body.Close()

	// The status line counts: an answer whose body stalls or breaks off is an answer all the same.
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return endpointAnswer{
		AnswerStatus: resp.StatusCode,
		Answer:       strings.ToValidUTF8(string(answer), "\uFFFD"),
		RetryAfter:   resp.Header.Get("Retry-After"),
	}
}

// send sends the signed request of a claim.
func (d *dispatcher) send(c Claim) (*http.Response, error) {
	req, err := http.NewRequest("POST", c.Endpoint.URL, bytes.NewReader(c.Body))
	if err != nil {
		return nil, err
	}

	req.Header = http.Header{
		"Content-Type":          {"application/json"},
		"User-Agent":            {"storeorder/1"},
		"X-Service-Signature":   {signatureHeader(c.Endpoint.Secrets, time.Now().Unix(), c.Body)},
		"X-Service-Event":       {string(c.Event)},
		"X-Service-Event-Id":    {c.EventID},
		"X-Service-Delivery-Id": {c.DeliveryID},
		"X-Service-Attempt":     {strconv.Itoa(c.Attempt)},
	}
	return d.client.Do(req)
}

// signatureHeader is the X-Service-Signature: one v1 for each secret, the newest first.
func signatureHeader(secrets []string, t int64, body []byte) string {
	header := "t=" + strconv.FormatInt(t, 10)
	for _, secret := range secrets {
		header += ",v1=" + sign(secret, t, body)
	}
	return header
}

// sign returns the hex HMAC-SHA256 of "<t>.<body>", t in Unix seconds, keyed with all bytes of the secret as
// shown.
func sign(secret string, t int64, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.", t)
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// deliveryOutcome is what an attempt leads to.
type deliveryOutcome struct {
	State  DeliveryState
	NextAt *Time // of the next attempt; nil unless the delivery is pending
	Gone   bool  // the endpoint wants no more events and is turned off
}

// retryDelays are the waits before the second and every later one of ten attempts: 75 h 35 min in all.
var retryDelays = []time.Duration{
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

// afterAttempt is the whole policy: what the answer to an attempt means for its delivery. number counts from
// 1. spread is random, from 0.8 to 1.2, so that deliveries that failed together are not tried again together.
//
// A delivery that is answered 410 Gone gets a next attempt like any other. But record turns its endpoint off,
// and nothing is claimed of an endpoint with active = 0: until it is on again, its deliveries wait.
func afterAttempt(number int, a endpointAnswer, now time.Time, spread float64) deliveryOutcome {
	if a.AnswerStatus/100 == 2 {
		return deliveryOutcome{State: DeliveryDelivered}
	}

	gone := a.AnswerStatus == http.StatusGone
	if number > len(retryDelays) {
		return deliveryOutcome{State: DeliveryFailed, Gone: gone}
	}

	// A receiver that is overloaded may ask for more time. It gets at most twice the wait, so that it cannot
	// delay the last attempt by days.
	wait := time.Duration(float64(retryDelays[number-1]) * spread)
	if a.AnswerStatus == http.StatusTooManyRequests || a.AnswerStatus == http.StatusServiceUnavailable {
		wait = min(max(wait, parseRetryAfter(a.RetryAfter, now)), 2*wait)
	}
	next := timeOf(now.Add(wait))
	return deliveryOutcome{State: DeliveryPending, NextAt: &next, Gone: gone}
}

// parseRetryAfter reads seconds or an HTTP date (RFC 9110, section 10.2.3). Anything else is 0.
func parseRetryAfter(value string, now time.Time) time.Duration {
	seconds, err := strconv.Atoi(value)
	if err == nil && seconds > 0 {
		return time.Duration(min(seconds, 7*24*3600)) * time.Second
	}

	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// Result is the end of a claim: it was attempted, or released without an attempt.
type Result struct {
	Claim  Claim
	Unsent bool // it was released: the fields below are empty
	endpointAnswer
	deliveryOutcome
}

func (tx *Tx) recordAll(results []Result) error {
	for _, r := range results {
		if err := tx.record(r); err != nil {
			return err
		}
	}
	return nil
}

// record writes the end of a claim. A claim may outlast its lease and be followed by another one of the same
// delivery. The first result of the two ends both; the other changes nothing about the delivery, and its attempt
// counts for the endpoint all the same.
func (tx *Tx) record(r Result) error {
	if r.Unsent {
		_, err := tx.exec(`
			UPDATE deliveries
			SET    leased = 0, attempt = attempt - 1, next_at = ?
			WHERE  id = ? AND leased = 1`, tx.now, r.Claim.DeliveryID)
		return err
	}

	_, err := tx.exec(`
		UPDATE deliveries
		SET    status = ?, next_at = ?, leased = 0, tried_at = ?, answer_status = nullif(?, 0), answer = ?
		WHERE  id = ? AND leased = 1`,
		r.State, r.NextAt, tx.now, r.AnswerStatus, r.Answer, r.Claim.DeliveryID)
	if err != nil {
		return err
	}

	// The endpoint's failed attempts in a row are counted, and it is turned off if it wants no more events.
	// Most deliveries are acknowledged at once and change nothing of their endpoint.
	_, err = tx.exec(`
		UPDATE endpoints
		SET    failures   = iif(?1, 0, failures + 1),
		       active     = iif(?2, 0, active),
		       off_reason = iif(?2, ?3, off_reason)
		WHERE  id = ?4 AND NOT (?1 AND failures = 0)`,
		r.State == DeliveryDelivered, r.Gone, OffGone, r.Claim.Endpoint.ID)
	return err
}

// wakeup wakes the loop that receives from it. It has room for one value: a loop that is still to receive it
// needs no second one.
type wakeup chan struct{}

// wake never blocks.
func (w wakeup) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// dispatcher is the background queue. Attempts and writes have goroutines of their own, which send their
// outcome to the one that runs run.
type dispatcher struct {
	db      *DB
	client  *http.Client
	log     *slog.Logger
	poll    time.Duration // how often to look for deliveries that other processes and the clock made due
	wakeup                // events were committed
	ended   chan Result   // attempts
	written chan dispatched

	// State of the goroutine that runs run.
	lanes     map[string]*lane // by endpoint
	inFlight  int              // attempts under way
	unwritten []Result
	lookAgain bool // a delivery may be due that is not claimed
	next      nextWrite
	timer     *time.Timer // fires when the planned write begins
}

// nextWrite is where the queue's next write stands. There is one at a time.
type nextWrite int

const (
	writeNone    nextWrite = iota
	writePlanned           // results that come before it begins share its commit
	writeUnderWay
)

// dispatched is the outcome of a write.
type dispatched struct {
	results []Result // that were to be recorded
	claims  []Claim
	err     error
}

func newDispatcher(db *DB, client *http.Client, log *slog.Logger) *dispatcher {
	return &dispatcher{
		db:      db,
		client:  client,
		log:     log,
		poll:    time.Second,
		wakeup:  make(wakeup, 1),
		ended:   make(chan Result, maxInFlight),
		written: make(chan dispatched, 1),
		lanes:   map[string]*lane{},
	}
}

// run delivers until ctx ends. Then it claims no more, waits for the attempts under way and records them.
func (d *dispatcher) run(ctx context.Context) {
	if err := d.db.ReleaseLeases(context.Background()); err != nil {
		d.log.Error("webhooks: cannot release leases; they end within a minute", "error", err)
	}

	d.timer = time.NewTimer(dispatchPause)
	d.next = writePlanned // The first one looks for deliveries that wait since the last run.
	tick := time.NewTicker(d.poll)
	defer tick.Stop()

	for ctx.Err() == nil {
		d.launch()
		d.planWrite()

		select {
		case <-d.wakeup:
			d.lookAgain = true
		case <-tick.C:
			d.lookForDue()
		case <-d.timer.C:
			d.beginWrite()
		case w := <-d.written:
			d.endWrite(w)
		case r := <-d.ended:
			d.endAttempt(r)
		case <-ctx.Done():
		}
	}
	d.finish()
}

// launch begins every attempt that may begin. The endpoints take turns by chance, as the order of a map is
// random.
func (d *dispatcher) launch() {
	now := time.Now()
	toFailing := 0 // attempts under way to endpoints that fail
	for _, l := range d.lanes {
		if l.failures >= failing {
			toFailing += l.inFlight
		}
	}

	for id, l := range d.lanes {
		if now.After(l.beginBy) {
			d.releaseWaiting(l)
		}
		for l.mayBegin(d.inFlight, toFailing) {
			if l.failures >= failing {
				toFailing++
			}
			d.begin(l)
		}
		if l.held() == 0 {
			delete(d.lanes, id)
		}
	}
}

// releaseWaiting releases the claims of a lane that are not begun.
func (d *dispatcher) releaseWaiting(l *lane) {
	for _, c := range l.waiting {
		d.unwritten = append(d.unwritten, Result{Claim: c, Unsent: true})
	}
	l.waiting = nil
}

func (d *dispatcher) begin(l *lane) {
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	l.inFlight++
	d.inFlight++
	go func() { d.ended <- d.attempt(c) }()
}

// lookForDue asks for a write if a delivery is due.
func (d *dispatcher) lookForDue() {
	due, err := d.db.DeliveriesDue()
	if err != nil {
		d.log.Error("webhooks: cannot look for due deliveries", "error", err)
	}
	d.lookAgain = d.lookAgain || due
}

// planWrite lets a write begin soon if there are results to record or may be deliveries to claim.
func (d *dispatcher) planWrite() {
	needed := d.lookAgain || len(d.unwritten) > 0
	if !needed || d.next != writeNone {
		return
	}

	pause := dispatchPause
	if len(d.unwritten) >= dispatchEnough {
		pause = 0
	}
	d.next = writePlanned
	d.timer.Reset(pause)
}

// beginWrite records the results so far and claims more. Attempts go on while the write waits for its commit.
func (d *dispatcher) beginWrite() {
	results := d.unwritten
	held := map[string]int{}
	for id, l := range d.lanes {
		held[id] = l.held()
	}
	d.unwritten = nil
	d.lookAgain = false
	d.next = writeUnderWay

	go func() {
		claims, err := d.db.Dispatch(context.Background(), results, held)
		d.written <- dispatched{results, claims, err}
	}()
}

// endWrite takes the claims of a write. One that failed, as on a full disk, has written and claimed nothing: it is
// tried again. Until it succeeds nothing is claimed, and the results wait in memory. They are recorded before the
// next claim, also those whose lease has ended meanwhile, so none of them is sent twice.
func (d *dispatcher) endWrite(w dispatched) {
	if w.err != nil {
		d.log.Error("webhooks: cannot write results; trying again", "error", w.err)
		d.unwritten = append(w.results, d.unwritten...)
		d.next = writePlanned
		d.timer.Reset(dispatchRetry)
		return
	}

	d.next = writeNone
	beginBy := time.Now().Add(lease - attemptMost)
	for _, c := range w.claims {
		l := d.lanes[c.Endpoint.ID]
		if l == nil {
			l = &lane{failures: c.Endpoint.Failures}
			d.lanes[c.Endpoint.ID] = l
		}
		if len(l.waiting) == 0 {
			l.beginBy = beginBy // That of the oldest claim counts for all.
		}
		l.waiting = append(l.waiting, c)
	}
}

// endAttempt takes the result of an attempt. An endpoint that fails keeps no claims ahead.
func (d *dispatcher) endAttempt(r Result) {
	d.unwritten = append(d.unwritten, r)
	d.inFlight--
	l := d.lanes[r.Claim.Endpoint.ID]
	l.inFlight--

	if r.State == DeliveryDelivered {
		l.failures = 0
		return
	}
	l.failures++
	d.releaseWaiting(l)
}

// finish releases the claims that are not begun, waits for the attempts under way and records each when it ends.
func (d *dispatcher) finish() {
	if d.next == writeUnderWay {
		d.endWrite(<-d.written)
	}
	for _, l := range d.lanes {
		d.releaseWaiting(l)
	}

	for d.inFlight > 0 || len(d.unwritten) > 0 {
		if len(d.unwritten) == 0 {
			d.endAttempt(<-d.ended)
		}
		err := d.db.write(context.Background(), func(tx *Tx) error { return tx.recordAll(d.unwritten) })
		if err != nil {
			d.log.Error("webhooks: cannot write results; the next start releases their leases", "error", err)
			return
		}
		d.unwritten = nil
	}
}

// ReleaseLeases ends the claims that an earlier process left, so that their deliveries are due at once. No
// other process serves the file now.
func (db *DB) ReleaseLeases(ctx context.Context) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("UPDATE deliveries SET leased = 0, next_at = ? WHERE leased = 1", tx.now)
		return err
	})
}

const deliveryColumns = `d.id, d.event_id, v.event, coalesce(v.order_id, ''), d.status, d.attempt, d.next_at,
	d.tried_at, d.answer_status, d.answer, v.created_at`

func scanDelivery(r row) (Delivery, error) { return scanDeliveryWith(r) }

// scanDeliveryWith scans deliveryColumns, and the columns after them into more.
func scanDeliveryWith(r row, more ...any) (d Delivery, err error) {
	dest := []any{
		&d.ID, &d.EventID, &d.Event, &d.OrderID, &d.Status, &d.Attempt, &d.NextAt,
		&d.TriedAt, &d.AnswerStatus, &d.Answer, &d.CreatedAt,
	}
	err = r.Scan(append(dest, more...)...)
	return d, err
}

const sqlDeliveries = "SELECT " + deliveryColumns + `
	FROM   deliveries d
	CROSS JOIN events v ON v.id = d.event_id
	WHERE  d.endpoint_id = ? AND d.id < ?
	ORDER BY d.id DESC LIMIT ?`

// OrderDelivery is a delivery of an order's event, with its endpoint.
type OrderDelivery struct {
	Delivery
	EndpointID string
	URL        string
}

const sqlOrderDeliveries = "SELECT " + deliveryColumns + `, e.id, e.url
	FROM   events v
	CROSS JOIN deliveries d ON d.event_id = v.id
	JOIN   endpoints e ON e.id = d.endpoint_id
	WHERE  v.order_id = ?
	ORDER BY v.sequence`

func scanOrderDelivery(r row) (o OrderDelivery, err error) {
	o.Delivery, err = scanDeliveryWith(r, &o.EndpointID, &o.URL)
	return o, err
}

const (
	sqlResendDelivery = `
		UPDATE deliveries
		SET    status = 'pending', attempt = 0, next_at = ?
		WHERE  id = ? AND leased = 0`
	sqlResendSince = `
		UPDATE deliveries
		SET    status = 'pending', attempt = 0, next_at = ?
		WHERE  endpoint_id = ? AND id >= ? AND status <> 'delivered' AND leased = 0`
)

// ResendDelivery makes a delivery due again, from its first attempt, also one that was delivered. n is 0 if it
// is claimed: then it is about to be sent anyway.
func (db *DB) ResendDelivery(ctx context.Context, storeID, id string) (n int64, err error) {
	return writeResult(ctx, db, func(tx *Tx) (int64, error) {
		_, err := queryOne(tx, scanValue[string], `
			SELECT d.id
			FROM   deliveries d
			JOIN   endpoints e ON e.id = d.endpoint_id
			WHERE  d.id = ? AND e.store_id = ?`, id, storeID)
		if err != nil {
			return 0, err
		}
		return tx.exec(sqlResendDelivery, tx.now, id)
	})
}

const sqlOwnEndpoint = "SELECT id FROM endpoints WHERE id = ? AND store_id = ?"

// ResendSince makes the deliveries of an endpoint due again, from their first attempt, that are not delivered,
// not claimed, and whose event came at since or later.
func (db *DB) ResendSince(ctx context.Context, storeID, endpointID string, since Time) (n int64, err error) {
	return writeResult(ctx, db, func(tx *Tx) (int64, error) {
		_, err := queryOne(tx, scanValue[string], sqlOwnEndpoint, endpointID, storeID)
		if err != nil {
			return 0, err
		}
		return tx.exec(sqlResendSince, tx.now, endpointID, firstID(since))
	})
}

// Ping writes an event without an order for one endpoint.
func (db *DB) Ping(ctx context.Context, storeID, endpointID string) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := queryOne(tx, scanValue[string], sqlOwnEndpoint, endpointID, storeID)
		if err != nil {
			return err
		}
		return tx.insertEvent(storeID, "", Ping, 0, []byte("{}"), []string{endpointID})
	})
}

// verifySignature reports whether a header holds a signature of body that is at most five minutes old or
// ahead. Receivers do this; here it serves the demo's receiver and the sandbox gateway.
func verifySignature(secret, header string, body []byte, now time.Time) bool {
	var t int64
	var ok bool
	for field := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "t":
			if t != 0 { // A second time would lend its age to the signature of the first.
				return false
			}
			t, _ = strconv.ParseInt(value, 10, 64)
		case "v1":
			ok = ok || hmac.Equal([]byte(value), []byte(sign(secret, t, body)))
		}
	}
	return ok && now.Sub(time.Unix(t, 0)).Abs() <= 5*time.Minute
}
