//go:build cgo

package main

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"
)

const (
	dispatchPause = 10 * time.Millisecond // after a write, so that many claims and results share the next one
	dispatchRetry = time.Second           // until a write that failed is tried again

	attemptsGrace = 5 * time.Second // for the attempts under way when the service stops
)

// target holds the claims of one endpoint.
type target struct {
	storeID  string
	waiting  []Claim // not begun, the oldest first
	inFlight int     // attempts under way
	slow     int     // of them, those that are slow
	ended    int     // claims whose results are not written

	// orders are those of which an event is under way. The next event of such an order waits.
	orders map[int64]bool

	// health begins as the row's when it was claimed, and counts every attempt that ends, so that the target
	// changes its lane before the results are written.
	health Health

	// An attempt of the oldest claim that begins later could outlast its lease. Then all that wait are
	// released, also newer ones: it costs one write, and they are due at once.
	beginBy time.Time
}

func (t *target) held() int { return len(t.waiting) + t.inFlight }

// lane is narrow too while an attempt is slow whose end nobody knows yet.
func (t *target) lane() Lane {
	if t.slow > 0 {
		return LaneNarrow
	}
	return t.health.Lane
}

// next is the index of the first claim that may begin. It is -1 if there is none: to one endpoint, the events
// of an order follow each other.
func (t *target) next() int {
	return slices.IndexFunc(t.waiting, func(c Claim) bool { return !t.orders[c.OrderRow] })
}

// take removes a waiting claim.
func (t *target) take(i int) Claim {
	c := t.waiting[i]
	copy(t.waiting[1:i+1], t.waiting[:i])
	t.waiting = t.waiting[1:]
	return c
}

// slots counts the attempts under way by the lane that they count for: all that are slow for the narrow one.
type slots struct {
	prompt    map[Lane]int // those that hold a slot, and all of the narrow lane
	lingering int          // those of the other lanes that linger
}

// add counts n more flights like f.
func (s *slots) add(f *flight, n int) {
	if f.lingers && f.lane != LaneNarrow {
		s.lingering += n
	} else {
		s.prompt[f.lane] += n
	}
}

// used is how many of maxInFlight are used. Attempts that linger or are slow use some only if there are very many, and
// never the last ones.
func (s slots) used() int {
	surplus := s.lingering + s.prompt[LaneNarrow] - maxLingering
	return s.prompt[LaneQuick] + s.prompt[LaneUnproven] + min(max(0, surplus), maxInFlight-keptPrompt)
}

// mayBegin reports whether an attempt of the target may begin.
func (t *target) mayBegin(s slots) bool {
	lane := t.lane()
	if t.inFlight >= lane.width() || t.next() < 0 {
		return false
	}
	if lane == LaneNarrow {
		return s.prompt[LaneNarrow] < maxNarrow
	}
	if lane == LaneUnproven && s.prompt[LaneUnproven] >= maxUnproven {
		return false
	}

	// Half of the slots are for endpoints that have nothing under way, so that busy ones leave room for all
	// others.
	if t.inFlight > 0 {
		return s.used() < maxInFlight/2
	}
	return s.used() < maxInFlight
}

// flight is an attempt under way.
type flight struct {
	target  *target
	claim   Claim
	timer   *time.Timer // fires when it begins to linger, and when it becomes slow
	lane    Lane        // that it counts for; empty when it has ended
	lingers bool        // it has taken slotTime
	slow    bool        // it has taken slowAnswer
	ended   bool
}

// landing is the end of a flight.
type landing struct {
	flight *flight
	result Result
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
	db        *DB
	transport http.RoundTripper
	log       *slog.Logger
	poll      time.Duration // how often to look for deliveries that other processes and the clock made due
	wakeup                  // events were committed
	landed    chan landing
	overdue   chan *flight // that begin to linger, or become slow
	written   chan dispatched

	// State of the goroutine that runs run.
	targets   map[string]*target // by endpoint
	slots     slots
	ofStore   map[storeLane]int // attempts under way, in the same lanes as in slots
	inFlight  int               // attempts under way
	unwritten []Result
	lookAgain bool // a delivery may be due that is not claimed
	writing   writeState
	timer     *time.Timer // fires when the pause after a write is over
}

// writeState is which writes of the queue may begin. There is one at a time.
type writeState int

const (
	writeAny      writeState = iota // any
	writeFull                       // full ones only, in the pause after a write
	writeFailed                     // none, in the pause after a write that failed
	writeUnderWay                   // none, while there is one
)

// dispatched is the outcome of a write.
type dispatched struct {
	begun   time.Time // before anything was claimed
	results []Result  // that were to be recorded
	claims  []Claim
	err     error
}

func newDispatcher(db *DB, transport http.RoundTripper, log *slog.Logger) *dispatcher {
	const most = maxInFlight + maxNarrow + maxLingering
	return &dispatcher{
		db:        db,
		transport: transport,
		log:       log,
		poll:      time.Second,
		wakeup:    make(wakeup, 1),
		landed:    make(chan landing, most),
		overdue:   make(chan *flight, most),
		written:   make(chan dispatched, 1),
		targets:   map[string]*target{},
		slots:     slots{prompt: map[Lane]int{}},
		ofStore:   map[storeLane]int{},
	}
}

// run delivers until ctx ends. Then it claims no more, waits a while for the attempts under way and records
// them.
func (d *dispatcher) run(ctx context.Context) {
	if err := d.db.ReleaseLeases(context.Background()); err != nil {
		d.log.Error("webhooks: cannot release leases; they end within a minute", "error", err)
	}

	// The attempts outlast ctx, until cutOff.
	attempts, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()

	d.timer = time.NewTimer(0) // There is no write yet to pause after.
	d.lookAgain = true         // Deliveries may wait since the last run.
	tick := d.db.env.tick(d.poll)

	for ctx.Err() == nil {
		d.launch(attempts)
		if d.mayWrite() {
			d.beginWrite()
		}

		select {
		case <-d.wakeup:
			d.lookAgain = true
		case <-tick:
			d.lookForDue()
		case <-d.timer.C:
			d.writing = writeAny
		case w := <-d.written:
			d.endWrite(w)
		case l := <-d.landed:
			d.land(l)
		case f := <-d.overdue:
			d.becomeLate(f)
		case <-ctx.Done():
		}
	}
	d.finish(cutOff)
}

// launch begins every attempt that may begin.
func (d *dispatcher) launch(attempts context.Context) {
	now := time.Now()
	for id, t := range d.targets {
		if now.After(t.beginBy) {
			d.releaseWaiting(t)
		}
		if t.held() == 0 && t.ended == 0 {
			delete(d.targets, id)
		}
	}

	for {
		t := d.nextTarget()
		if t == nil {
			return
		}
		d.begin(attempts, t)
	}
}

// nextTarget returns the target whose attempt begins next, nil if none may. Stores take turns: it is one of
// the store with the fewest attempts under way. So no store gets more than its share while another one waits.
// Of a store's endpoints it is the one with the fewest, else by chance, as the order of a map is random.
func (d *dispatcher) nextTarget() (best *target) {
	var fewest [2]int
	for _, t := range d.targets {
		if !t.mayBegin(d.slots) {
			continue
		}
		underWay := [2]int{d.ofStore[storeLane{t.storeID, t.lane()}], t.inFlight}
		if best == nil || slices.Compare(underWay[:], fewest[:]) < 0 {
			best, fewest = t, underWay
		}
	}
	return best
}

// releaseWaiting releases the claims of a target that are not begun.
func (d *dispatcher) releaseWaiting(t *target) {
	for _, c := range t.waiting {
		d.unwritten = append(d.unwritten, Result{Claim: c, Unsent: true})
		t.ended++
	}
	t.waiting = nil
}

// begin begins the target's next attempt.
func (d *dispatcher) begin(attempts context.Context, t *target) {
	f := &flight{target: t, claim: t.take(t.next())}
	if f.claim.OrderRow != 0 {
		t.orders[f.claim.OrderRow] = true
	}
	t.inFlight++
	d.inFlight++
	d.count(f, t.lane())

	f.timer = time.AfterFunc(slotTime, func() { d.overdue <- f })
	go func() {
		result := d.attempt(attempts, f.claim)
		f.timer.Stop()
		d.landed <- landing{f, result}
	}()
}

// count lets a flight count for a lane, and no more for the one before.
func (d *dispatcher) count(f *flight, lane Lane) {
	storeID := f.target.storeID
	if f.lane != "" {
		d.slots.add(f, -1)
		d.ofStore[storeLane{storeID, f.lane}]--
	}

	f.lane = lane
	if lane != "" {
		d.slots.add(f, 1)
		d.ofStore[storeLane{storeID, lane}]++
	}
}

// becomeLate takes an attempt that has taken slotTime out of its slot. Once it has taken slowAnswer it is
// slow: its endpoint is in the narrow lane at once, and keeps no claims ahead.
func (d *dispatcher) becomeLate(f *flight) {
	if f.ended {
		return
	}
	if !f.lingers {
		d.slots.add(f, -1)
		f.lingers = true
		d.slots.add(f, 1)
		f.timer.Reset(slowAnswer - slotTime)
		return
	}

	f.slow = true
	f.target.slow++
	d.count(f, LaneNarrow)
	d.releaseWaiting(f.target)
	d.lookAgain = true
}

// lookForDue asks for a look if there may be something to claim.
func (d *dispatcher) lookForDue() {
	due, err := d.db.DeliveriesDue()
	if err != nil {
		d.log.Error("webhooks: cannot look for due deliveries", "error", err)
	}
	d.lookAgain = d.lookAgain || due
}

// mayWrite reports whether a write may begin and has something to do: to record results, or to claim deliveries
// that may be due.
func (d *dispatcher) mayWrite() bool {
	switch d.writing {
	case writeAny:
		return d.lookAgain || len(d.unwritten) > 0
	case writeFull:
		return len(d.unwritten) >= writeMost
	}
	return false
}

// beginWrite records results, the oldest first, and claims more if no result is left. Attempts go on while the
// write waits for its commit.
func (d *dispatcher) beginWrite() {
	r := newRoom()
	for id, t := range d.targets {
		r.hold(id, t.storeID, t.lane(), t.held())
	}
	n := min(len(d.unwritten), writeMost)
	results := d.unwritten[:n:n]
	d.unwritten = d.unwritten[n:]
	d.writing = writeUnderWay
	d.timer.Stop()

	// A delivery whose result is left may be due again, because its lease has ended. It must not be claimed.
	claim := len(d.unwritten) == 0
	d.lookAgain = !claim

	go func() {
		w := dispatched{begun: time.Now(), results: results}
		if claim {
			w.claims, w.err = d.db.Dispatch(context.Background(), results, r)
		} else {
			w.err = d.db.RecordResults(context.Background(), results)
		}
		d.written <- w
	}()
}

// endWrite takes the claims of a write. One that failed, as on a full disk, has written and claimed nothing: it is
// tried again. The results wait in memory. All of them are recorded before anything is claimed, also those whose
// lease has ended meanwhile, so none of them is sent twice while the service runs.
func (d *dispatcher) endWrite(w dispatched) {
	if w.err != nil {
		d.log.Error("webhooks: cannot write results; trying again", "error", w.err)
		d.unwritten = append(w.results, d.unwritten...)
		d.lookAgain = true
		d.writing = writeFailed
		d.timer.Reset(dispatchRetry)
		return
	}

	d.writing = writeFull
	d.timer.Reset(dispatchPause)
	for _, r := range w.results {
		d.targets[r.Claim.Endpoint.ID].ended--
		d.lookAgain = d.lookAgain || r.Unsent // Its delivery is due again.
	}
	if len(w.claims) >= lookMost {
		d.lookAgain = true // There may be more: at an endpoint that was not looked at, or at one of these.
	}

	beginBy := w.begun.Add(lease - attemptMost)
	for _, c := range w.claims {
		e := c.Endpoint
		t := d.targets[e.ID]
		if t == nil {
			t = &target{storeID: e.StoreID, health: e.Health, orders: map[int64]bool{}}
			d.targets[e.ID] = t
		}
		if len(t.waiting) == 0 {
			t.beginBy = beginBy // That of the oldest claim counts for all.
		}
		t.waiting = append(t.waiting, c)
	}
}

// land takes the result of an attempt. An endpoint that fails or is slow keeps no claims ahead.
func (d *dispatcher) land(l landing) {
	f, r := l.flight, l.result
	t := f.target
	d.unwritten = append(d.unwritten, r)
	t.ended++

	f.ended = true
	d.count(f, "")
	delete(t.orders, f.claim.OrderRow)
	t.inFlight--
	d.inFlight--
	if f.slow {
		t.slow--
	}

	if !r.Unsent {
		t.health = t.health.after(r.State == DeliveryDelivered, r.Took)
	}
	if t.lane() != LaneQuick {
		d.releaseWaiting(t)
	}
}

// finish releases the claims that are not begun, gives the attempts under way attemptsGrace to end, and
// records each when it ends. Those that are cut off after that are released too: they are sent again after
// the next start.
func (d *dispatcher) finish(cutOff func()) {
	if d.writing == writeUnderWay {
		d.endWrite(<-d.written)
	}
	for _, t := range d.targets {
		d.releaseWaiting(t)
	}

	grace := time.AfterFunc(attemptsGrace, cutOff)
	defer grace.Stop()
	for d.inFlight > 0 || len(d.unwritten) > 0 {
		if len(d.unwritten) == 0 {
			select {
			case l := <-d.landed:
				d.land(l)
			case <-d.overdue:
				continue
			}
		}
		err := d.db.RecordResults(context.Background(), d.unwritten)
		if err != nil {
			d.log.Error("webhooks: cannot write results; the next start releases their leases", "error", err)
			return
		}
		d.unwritten = nil
	}
}
