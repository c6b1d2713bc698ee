//go:build cgo

package main

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// What the queue takes of which endpoint, and how that is read and written: findDue looks for due deliveries
// without the writer, and Dispatch claims what it has found and records results, in one write that is small.

// Lane is how much of the queue an endpoint may use. It follows from how the endpoint has answered lately.
type Lane string

const (
	LaneQuick    Lane = "quick"    // its last attempt succeeded, and it answers within slowAnswer
	LaneUnproven Lane = "unproven" // it was never tried, or its last attempt failed
	LaneNarrow   Lane = "narrow"   // it is slow or keeps failing
)

// lanes are in the order in which their deliveries are claimed.
var lanes = []Lane{LaneQuick, LaneUnproven, LaneNarrow}

const (
	slowAnswer = 2 * time.Second // an attempt that takes longer is slow
	failing    = 5               // failed attempts in a row that lead into the narrow lane
)

// Health is how an endpoint has answered lately.
type Health struct {
	Lane     Lane  `json:"lane"`
	Failures int   `json:"failures"`  // failed attempts in a row
	AnswerMS int64 `json:"answer_ms"` // running mean of how long it takes to answer
}

func scanHealth(r row) (h Health, err error) {
	err = r.Scan(&h.Lane, &h.Failures, &h.AnswerMS)
	return h, err
}

// after is an endpoint's health after one more attempt. A slow attempt leads into the narrow lane at once,
// because the mean then is at least what this attempt took. Each quick success halves the mean, so after a
// timeout three of them lead out again. A quick failure says nothing about how long answers take.
func (h Health) after(delivered bool, took time.Duration) Health {
	const most = int64(slowAnswer / time.Millisecond)
	ms := took.Milliseconds()
	mean := (h.AnswerMS + ms) / 2
	if ms > most {
		h.AnswerMS = max(mean, ms)
	} else if delivered {
		h.AnswerMS = mean
	}

	h.Failures++
	if delivered {
		h.Failures = 0
	}

	switch {
	case h.AnswerMS > most, h.Failures >= failing:
		h.Lane = LaneNarrow
	case h.Failures > 0:
		h.Lane = LaneUnproven
	default:
		h.Lane = LaneQuick
	}
	return h
}

// The limits of the queue keep endpoints that are slow or fail from delaying the others. An attempt holds a
// slot for slotTime at most. After that it lingers, without a slot. Once it is slow it counts for the narrow
// lane, as its endpoint does. So a hundred endpoints that begin to hang at the same moment block the slots
// three times for a quarter of a second.
const (
	maxInFlight   = 32 // slots
	maxUnproven   = 24 // of them for unproven endpoints: the others are kept for quick ones
	maxNarrow     = 12 // while as many attempts are slow, the narrow lane begins no more
	maxLingering  = 96 // attempts that linger or are slow, above which each takes a slot
	keptPrompt    = 8  // slots that these never take
	maxToEndpoint = 4  // attempts under way to one endpoint; 1 in the narrow lane

	slotTime = 250 * time.Millisecond // most receivers have answered by then

	claimAhead = 256  // claims held of one quick endpoint, so that many results share a commit
	claimsHeld = 1024 // claims held of all of them, above which none is claimed ahead; twice as many at most

	lease       = time.Minute                // how long a claimed delivery is left alone
	answerMost  = 15 * time.Second           // for an attempt: to dial, send and read the answer
	attemptMost = answerMost + 5*time.Second // until its result is recorded

	writeMost = 128 // results, and claims, in one write: orders wait for it
	lookMost  = 64  // endpoints of a lane that are looked at for one write
)

// width is how many attempts may be under way to one endpoint of the lane.
func (l Lane) width() int {
	if l == LaneNarrow {
		return 1
	}
	return maxToEndpoint
}

// claimable is how many deliveries to claim of an endpoint in the lane. held is how many claims of it the
// queue still holds, and inLane of all endpoints in the lane.
func (l Lane) claimable(held, inLane int) int {
	n := l.width() - held
	switch l {
	case LaneNarrow:
		n = min(n, maxNarrow-inLane)
	case LaneUnproven:
		n = min(n, maxUnproven*maxToEndpoint-inLane)
	case LaneQuick:
		// Every endpoint may fill its width, until twice claimsHeld are held. It is claimed ahead too, but
		// only until claimsHeld: endpoints with a backlog leave the other half to the widths of all others.
		n = min(n, 2*claimsHeld-inLane)
		n = max(n, min(claimAhead-held, claimsHeld-inLane))
	}
	return max(n, 0)
}

// room is what the queue holds. What it still takes follows from that.
type room struct {
	endpoints map[string]heldClaims // by id
	inLane    map[Lane]int          // claims
	ofStore   map[storeLane]int     // claims
}

// heldClaims are the claims that the queue holds of one endpoint.
type heldClaims struct {
	lane Lane // now, which its row may not say yet
	n    int
}

type storeLane struct {
	storeID string
	lane    Lane
}

func newRoom() room {
	return room{
		endpoints: map[string]heldClaims{},
		inLane:    map[Lane]int{},
		ofStore:   map[storeLane]int{},
	}
}

// hold adds n claims of an endpoint.
func (r room) hold(endpointID, storeID string, lane Lane, n int) {
	r.endpoints[endpointID] = heldClaims{lane, r.endpoints[endpointID].n + n}
	r.inLane[lane] += n
	r.ofStore[storeLane{storeID, lane}] += n
}

// lane is an endpoint's lane now.
func (r room) lane(e Endpoint) Lane {
	return cmp.Or(r.endpoints[e.ID].lane, e.Lane)
}

// claimable is how many deliveries of an endpoint the queue takes.
func (r room) claimable(e Endpoint) int {
	lane := r.lane(e)
	return lane.claimable(r.endpoints[e.ID].n, r.inLane[lane])
}

// full lists the endpoints of which the queue takes nothing now.
func (r room) full() []string {
	full := []string{}
	for id, held := range r.endpoints {
		if held.lane.claimable(held.n, r.inLane[held.lane]) == 0 {
			full = append(full, id)
		}
	}
	return full
}

// inTurns sorts the endpoints of a lane so that stores take turns: first come those of the store of which the
// queue holds the fewest claims, and of each store one after the other.
func (r room) inTurns(lane Lane, list []Endpoint) []Endpoint {
	type turn struct {
		endpoint Endpoint
		number   int
	}
	taken := map[string]int{}
	var turns []turn
	for _, e := range list {
		number := r.ofStore[storeLane{e.StoreID, lane}] + taken[e.StoreID]
		turns = append(turns, turn{e, number})
		taken[e.StoreID]++
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.number, b.number) })

	sorted := make([]Endpoint, len(list))
	for i, t := range turns {
		sorted[i] = t.endpoint
	}
	return sorted
}

// Claim is a delivery that this process has taken to send.
type Claim struct {
	row        int64 // of the delivery
	DeliveryID string
	EventID    string
	OrderRow   int64 // of its order; 0: the event is of no order
	Event      Event
	Attempt    int // from 1; known when it is claimed
	DueAt      Time
	Body       []byte

	// Endpoint is as it was when claimed. When it is turned off, removed or gets a new secret afterwards, its
	// claims (up to claimAhead) are still sent with the old state, and may begin until target.beginBy: 40 s.
	Endpoint Endpoint
}

const (
	// sqlDueEndpoints finds endpoints of a lane that have something due, without those that the queue is full
	// of. The one that was looked at longest ago comes first: see planLook.
	sqlDueEndpoints = "SELECT " + endpointColumns + `
		FROM   endpoints e
		WHERE  e.active = 1 AND e.removed_at IS NULL AND e.lane = ? AND e.due_at <= ?
		AND    e.id NOT IN (SELECT value FROM json_each(?))
		ORDER BY e.due_at LIMIT +?`

	// sqlDueDeliveries finds due deliveries of an endpoint. The events of an order, which are due when they
	// are written, come in their sequence: of those of one moment, the one that was written first.
	sqlDueDeliveries = `
		SELECT d.row, d.id, v.id, coalesce(v.order_row, 0), v.event, d.next_at, v.body, coalesce(o.json, '')
		FROM   deliveries d
		CROSS JOIN events v ON v.row = d.event_row
		LEFT JOIN orders o ON o.row = v.order_row
		WHERE  d.endpoint_id = ? AND d.next_at <= ?
		ORDER BY d.next_at, d.row LIMIT +?`
)

func scanClaim(r row) (c Claim, err error) {
	var body, order string
	err = r.Scan(&c.row, &c.DeliveryID, &c.EventID, &c.OrderRow, &c.Event, &c.DueAt, &body, &order)
	c.Body = []byte(wholeEvent(body, order))
	return c, err
}

// dueEndpoint is an endpoint that the queue has looked at, with what it may claim of it.
type dueEndpoint struct {
	Endpoint
	claims []Claim
}

const sqlAnyDue = `
	SELECT EXISTS (
		SELECT 1 FROM endpoints
		WHERE  active = 1 AND removed_at IS NULL
		AND    lane IN ('quick', 'unproven', 'narrow') AND due_at <= ?)`

// DeliveriesDue reports whether findDue may find something. It costs less.
func (db *DB) DeliveriesDue() (bool, error) {
	return queryOne(db.reader, scanValue[bool], sqlAnyDue, db.Now())
}

// findDue finds the deliveries to claim next, writeMost at most. r gets what was found.
func (db *DB) findDue(r room) (found []dueEndpoint, err error) {
	now := db.Now()
	full := string(mustJSON(r.full()))
	left := writeMost

	for _, lane := range lanes {
		if lane.claimable(0, r.inLane[lane]) == 0 {
			continue
		}
		list, err := queryAll(db.reader, scanEndpoint, sqlDueEndpoints, now, lane, now, full, lookMost)
		if err != nil {
			return nil, err
		}

		for _, e := range r.inTurns(lane, list) {
			limit := min(r.claimable(e), left)
			if limit == 0 {
				continue
			}
			claims, err := queryAll(db.reader, scanClaim, sqlDueDeliveries, e.ID, now, limit)
			if err != nil {
				return nil, err
			}
			for i := range claims {
				claims[i].Endpoint = e
			}
			found = append(found, dueEndpoint{e, claims})
			r.hold(e.ID, e.StoreID, r.lane(e), len(claims))
			left -= len(claims)
		}
	}
	return found, nil
}

// Dispatch records results and claims deliveries that are due, in one write. If there is nothing to do, it
// writes nothing. r is what the queue holds without the results.
func (db *DB) Dispatch(ctx context.Context, results []Result, r room) ([]Claim, error) {
	due, err := db.findDue(r)
	if err != nil {
		return nil, err
	}
	if len(results) == 0 && len(due) == 0 {
		return nil, nil
	}

	return writeResult(ctx, db, func(tx *Tx) ([]Claim, error) {
		if err := tx.recordAll(results); err != nil {
			return nil, err
		}
		return tx.claim(due)
	})
}

// sqlClaim moves next_at one lease ahead: schema.sql has the states of a delivery. A claim whose process
// crashed is due at the next start at once (ReleaseLeases), any other without a result when its lease ends.
// Only next_at says whether a delivery is due. leased says that it is claimed: a start makes such deliveries
// due, and a resend leaves them alone.
const sqlClaim = `
	UPDATE deliveries
	SET    leased = 1, next_at = ?
	WHERE  row IN (SELECT value FROM json_each(?)) AND next_at <= ?
	RETURNING row, attempt + 1`

// claim takes the deliveries that were found, unless they have changed meanwhile.
func (tx *Tx) claim(due []dueEndpoint) (claims []Claim, err error) {
	for _, d := range due {
		on, err := queryOne(tx, scanValue[bool],
			"SELECT active = 1 AND removed_at IS NULL FROM endpoints WHERE id = ?", d.ID)
		if err == errNotFound || err == nil && !on {
			continue
		}
		if err != nil {
			return nil, err
		}

		taken, err := tx.claimOf(d)
		if err != nil {
			return nil, err
		}
		claims = append(claims, taken...)
		if err := tx.planLook(d.ID); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// claimOf takes the deliveries of one endpoint.
func (tx *Tx) claimOf(d dueEndpoint) (taken []Claim, err error) {
	wanted := make([]int64, len(d.claims))
	for i, c := range d.claims {
		wanted[i] = c.row
	}
	rows, err := queryAll(tx, scanClaimed, sqlClaim, tx.now.Add(lease), string(mustJSON(wanted)), tx.now)
	if err != nil {
		return nil, err
	}

	// RETURNING has no order (https://sqlite.org/lang_returning.html).
	attempts := map[int64]int{}
	for _, r := range rows {
		attempts[r.row] = r.attempt
	}
	for _, c := range d.claims {
		c.Attempt = attempts[c.row]
		if c.Attempt > 0 {
			taken = append(taken, c)
		}
	}
	return taken, nil
}

// claimed is a delivery that was claimed.
type claimed struct {
	row     int64
	attempt int // the next one, from 1
}

func scanClaimed(r row) (c claimed, err error) {
	err = r.Scan(&c.row, &c.attempt)
	return c, err
}

// planLook sets when the queue has to look at an endpoint next: when its next delivery is due. If one is due
// already, the endpoint goes behind all others that wait.
func (tx *Tx) planLook(endpointID string) error {
	_, err := tx.exec(`
		UPDATE endpoints
		SET    due_at = max(?1, (
			SELECT next_at FROM deliveries
			WHERE  endpoint_id = ?2 AND next_at IS NOT NULL
			ORDER BY next_at LIMIT 1))
		WHERE  id = ?2`, tx.now, endpointID)
	return err
}

// Result is the end of a claim: it was attempted, or released without an attempt that counts.
type Result struct {
	Claim  Claim
	Unsent bool // it was released: the fields below are empty
	Took   time.Duration
	endpointAnswer
	deliveryOutcome
}

// RecordResults records results, and claims nothing.
func (db *DB) RecordResults(ctx context.Context, results []Result) error {
	return db.write(ctx, func(tx *Tx) error { return tx.recordAll(results) })
}

// recordAll writes the ends of claims, and what follows for their endpoints.
func (tx *Tx) recordAll(results []Result) error {
	ofEndpoint := map[string][]Result{}
	for _, r := range results {
		if err := tx.record(r); err != nil {
			return err
		}
		id := r.Claim.Endpoint.ID
		ofEndpoint[id] = append(ofEndpoint[id], r)
	}

	for id, list := range ofEndpoint {
		if err := tx.recordHealth(id, list); err != nil {
			return err
		}
		if err := tx.planLook(id); err != nil {
			return err
		}
	}
	return nil
}

// record writes the end of a claim. A claim may outlast its lease and be followed by another one of the same
// delivery. The first result of the two ends both; the other changes nothing about the delivery, and its
// attempt counts for the endpoint all the same. One that is released is due as it was before, so that it
// keeps its place.
func (tx *Tx) record(r Result) error {
	if r.Unsent {
		_, err := tx.exec("UPDATE deliveries SET leased = 0, next_at = ? WHERE row = ? AND leased = 1",
			r.Claim.DueAt, r.Claim.row)
		return err
	}

	_, err := tx.exec(`
		UPDATE deliveries
		SET    status = ?, next_at = ?, leased = 0, attempt = ?, tried_at = ?,
		       answer_status = nullif(?, 0), answer = ?
		WHERE  row = ? AND leased = 1`,
		r.State, r.NextAt, r.Claim.Attempt, tx.now, r.AnswerStatus, r.Answer, r.Claim.row)
	return err
}

// recordHealth writes what an endpoint's results mean for its health, and turns it off if it wants no more
// events. Most deliveries are acknowledged quickly and change nothing.
func (tx *Tx) recordHealth(endpointID string, results []Result) error {
	before, err := queryOne(tx, scanHealth,
		"SELECT lane, failures, answer_ms FROM endpoints WHERE id = ?", endpointID)
	if err == errNotFound {
		return nil
	}
	if err != nil {
		return err
	}

	after, gone := before, false
	for _, r := range results {
		if r.Unsent {
			continue
		}
		after = after.after(r.State == DeliveryDelivered, r.Took)
		gone = gone || r.Gone
	}
	if after == before && !gone {
		return nil
	}

	_, err = tx.exec(`
		UPDATE endpoints
		SET    lane = ?1, failures = ?2, answer_ms = ?3,
		       active     = iif(?4, 0, active),
		       off_reason = iif(?4, ?5, off_reason)
		WHERE  id = ?6`,
		after.Lane, after.Failures, after.AnswerMS, gone, OffGone, endpointID)
	return err
}

// ReleaseLeases ends the claims that an earlier process left, so that their deliveries are due at once. No
// other process serves the file now. They are due since their events, so that no later event of an order
// overtakes them.
func (db *DB) ReleaseLeases(ctx context.Context) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec(`
			UPDATE endpoints
			SET    due_at = ?
			WHERE  id IN (SELECT endpoint_id FROM deliveries WHERE leased = 1)`, tx.now)
		if err != nil {
			return err
		}
		_, err = tx.exec(`
			UPDATE deliveries
			SET    leased = 0, next_at = (SELECT created_at FROM events WHERE row = event_row)
			WHERE  leased = 1`)
		return err
	})
}
