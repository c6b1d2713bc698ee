//go:build cgo

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Session is one attempt to pay an order at a gateway, which knows it as "<order id>-<attempt>".
type Session struct {
	ID            string
	OrderID       string
	Provider      string
	Attempt       int
	Status        string // starting, active, paid, failed or expired
	GatewayID     string
	URL           string
	TransactionID string
	Warning       string // why the gateway could not be asked
	ExpiresAt     Time
	CheckedAt     Time // the gateway last asked about it
}

// reference is the name under which a gateway knows a session.
func (s Session) reference() string { return fmt.Sprintf("%s-%d", s.OrderID, s.Attempt) }

// OrderView is an order with what GET /v1/orders/{order_id} decides by.
type OrderView struct {
	JSON      string // without addresses
	Status    Status
	Provider  string
	ExpiresAt Time
	Session   Session // in part: the one that paid the order, else its latest; ID "" is none
}

const sqlOrder = `SELECT o.json, o.status, o.provider, o.expires_at, coalesce(s.id, ''), coalesce(s.attempt, 0), coalesce(s.status, ''),
	coalesce(s.payment_url, ''), coalesce(s.expires_at, 0) FROM orders o LEFT JOIN payment_sessions s ON s.id = coalesce(o.paid_by,
		(SELECT id FROM payment_sessions WHERE order_id = o.id ORDER BY attempt DESC LIMIT 1))
	WHERE o.id = ? AND o.store_id = ?`

// Order reads one order of a store.
func (db *DB) Order(storeID, id string) (OrderView, error) {
	return one(db.r, viewFields, sqlOrder, id, storeID)
}

func viewFields(v *OrderView) []any {
	s := &v.Session
	return []any{&v.JSON, &v.Status, &v.Provider, &v.ExpiresAt, &s.ID, &s.Attempt, &s.Status, &s.URL, &s.ExpiresAt}
}

const (
	sessionColumns = "s.id, s.order_id, s.provider, s.attempt, s.status, s.gateway_id, s.payment_url, s.transaction_id, s.warning, s.expires_at, s.checked_at"
	sqlLiveSession = "SELECT " + sessionColumns + " FROM payment_sessions s WHERE s.order_id = ? AND s.status IN ('starting', 'active')"
)

func sessionFields(s *Session) []any {
	return []any{&s.ID, &s.OrderID, &s.Provider, &s.Attempt, &s.Status, &s.GatewayID, &s.URL, &s.TransactionID, &s.Warning,
		&s.ExpiresAt, &s.CheckedAt}
}

// OrderPage is an order with its store, for whoever has its id.
func (db *DB) OrderPage(id string) (st Store, o Order, err error) {
	st, err = db.store(db.r, []any{jsonTo{&o}}, "SELECT "+storeColumns+", o.json FROM orders o JOIN stores s ON s.id = o.store_id WHERE o.id = ?", id)
	return st, o, err
}

// BeginSession returns an order's live session, or one to start: its status says which. No session (ID "") means that
// the order needs none now. A try that came to nothing is taken up again, and uses up no attempt.
func (db *DB) BeginSession(ctx context.Context, storeID, orderID string) (s Session, again bool, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		o, err := one(tx, viewFields, sqlOrder, orderID, storeID)
		if err != nil || o.Status != Pending || o.Provider == "manual" || o.ExpiresAt <= tx.now {
			return err
		}
		if s, err = one(tx, sessionFields, sqlLiveSession, orderID); err != errNotFound {
			again = true
			return err
		}
		s = Session{ID: tx.newID(), OrderID: orderID, Provider: o.Provider, Status: "starting", ExpiresAt: o.ExpiresAt}
		s.Attempt, err = one(tx, column[int], `INSERT INTO payment_sessions (id, order_id, provider, attempt, status, expires_at, created_at)
			SELECT ?1, ?2, ?3, coalesce(max(attempt), 0) + 1, 'starting', ?4, ?5 FROM payment_sessions WHERE order_id = ?2 RETURNING attempt`,
			s.ID, orderID, o.Provider, o.ExpiresAt, tx.now)
		return err
	})
	return s, again, err
}

// SessionStarted records what the gateway answered to a session's start. A session that is not wanted any more, because
// its order came to its end meanwhile, is due to be closed.
func (db *DB) SessionStarted(ctx context.Context, s Session) (wanted bool, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		wanted, err = one(tx, column[bool], `UPDATE payment_sessions SET status = 'active', gateway_id = ?1, payment_url = ?2, warning = '',
			checked_at = ?3, expires_at = iif((SELECT status FROM orders WHERE id = order_id) = 'pending', expires_at, ?3)
			WHERE id = ?4 AND status IN ('starting', 'expired') RETURNING expires_at > ?3`, s.GatewayID, s.URL, tx.now, s.ID)
		return err
	})
	return wanted, err
}

// SessionLost ends a session that the gateway has and whose address nobody knows.
func (db *DB) SessionLost(ctx context.Context, id string) error {
	return db.change(ctx, "UPDATE payment_sessions SET status = 'failed' WHERE id = ? AND status = 'starting'", id)
}

// WarnSession records that the gateway could not be asked, and why.
func (db *DB) WarnSession(ctx context.Context, id, warning string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange("UPDATE payment_sessions SET warning = ?, checked_at = ? WHERE id = ?", warning, tx.now, id)
	})
}

// OpenSession is a session with what is decided by about its order.
type OpenSession struct {
	Session
	StoreID     string
	OrderStatus Status
}

func openSessionFields(s *OpenSession) []any {
	return append(sessionFields(&s.Session), &s.StoreID, &s.OrderStatus)
}

const sqlSession = "SELECT " + sessionColumns + ", o.store_id, o.status FROM payment_sessions s JOIN orders o ON o.id = s.order_id WHERE "

// LatestSession is an order's latest session.
func (db *DB) LatestSession(orderID string) (OpenSession, error) {
	return one(db.r, openSessionFields, sqlSession+"s.order_id = ? ORDER BY s.attempt DESC LIMIT 1", orderID)
}

// SessionByID reads one session.
func (db *DB) SessionByID(id string) (OpenSession, error) {
	return one(db.r, openSessionFields, sqlSession+"s.id = ?", id)
}

// SessionByReference finds a store's session by the name it has at the gateway.
func (db *DB) SessionByReference(storeID, provider, reference string) (OpenSession, error) {
	i := strings.LastIndexByte(reference, '-')
	if i < 0 {
		return OpenSession{}, errNotFound
	}
	return one(db.r, openSessionFields, sqlSession+"s.order_id = ? AND s.attempt = ? AND s.provider = ? AND o.store_id = ?",
		reference[:i], reference[i+1:], provider, storeID)
}

// SessionByTransaction finds a store's session by a payment that settled it.
func (db *DB) SessionByTransaction(storeID, provider, transactionID, requestID string) (OpenSession, error) {
	return one(db.r, openSessionFields, sqlSession+`s.id = coalesce((SELECT id FROM payment_sessions WHERE transaction_id = ? AND transaction_id <> ''),
		(SELECT id FROM payment_sessions WHERE request_id = ? AND request_id <> '')) AND s.provider = ? AND o.store_id = ?`,
		transactionID, requestID, provider, storeID)
}

// sqlSessionsToPoll: what has run out, every 20 s, or five minutes if its order waits for a person; and what will within
// half an hour, every five minutes. What was asked about longest ago comes first, so that a gateway that is away holds
// up no other.
const sqlSessionsToPoll = sqlSession + sessionToAsk + ` AND s.expires_at <= ?1 + 1800000
	AND s.checked_at <= ?1 - iif(s.expires_at <= ?1 AND o.status <> 'awaiting_verification', 20000, 300000)
	ORDER BY s.checked_at LIMIT 1000`

// SessionsToPoll are the sessions about which the gateway is to be asked now.
func (db *DB) SessionsToPoll() ([]OpenSession, error) {
	return collect(db.r, openSessionFields, sqlSessionsToPoll, time.Now().UnixMilli())
}

// Notification is a gateway's verified message about a session, to be decided by asking the gateway.
type Notification struct {
	ID      string
	Body    []byte
	Session OpenSession
}

// AddNotification keeps a message until it is decided, and after.
func (db *DB) AddNotification(ctx context.Context, s OpenSession, body []byte) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("INSERT INTO notifications (id, store_id, provider, session_id, body, received_at) VALUES (?, ?, ?, ?, ?, ?)",
			tx.newID(), s.StoreID, s.Provider, s.ID, string(body), tx.now)
		return err
	})
}

const sqlUndecided = "SELECT " + sessionColumns + `, o.store_id, o.status, n.id, n.body FROM notifications n
	JOIN payment_sessions s ON s.id = n.session_id JOIN orders o ON o.id = s.order_id WHERE n.decided_at IS NULL AND n.id > ? ORDER BY n.id LIMIT 100`

// What a gateway could not say in a week it never will.
const notificationKept = 7 * 24 * time.Hour

// UndecidedNotifications are at most 100 that came after the one named, in the order in which they came.
func (db *DB) UndecidedNotifications(after string) ([]Notification, error) {
	return collect(db.r, func(n *Notification) []any {
		return append(openSessionFields(&n.Session), &n.ID, &n.Body)
	}, sqlUndecided, max(after, firstID(Time(time.Now().Add(-notificationKept).UnixMilli()))))
}

// Verdict is what a gateway says of a session when it is asked.
type Verdict struct {
	State         string // one of the constants below
	Amount        int64  // paid, or given back
	TransactionID string // of the payment
	RequestID     string // Xendit's other name of it
	RefundID      string // of what was given back
}

const (
	Open           = "open"       // nobody has paid yet
	Settled        = "settled"    // Amount was paid
	Challenged     = "challenged" // paid, and a person is to look at it
	Denied         = "denied"     // this payment failed, or was taken back
	Canceled       = "canceled"   // by the gateway or in its dashboard
	Over           = "over"       // ended unpaid
	GivenBack      = "refunded"
	PartlyReturned = "partly refunded"
)

// ApplyVerdict does what a gateway's answer about a session means for the session and its order, and decides the
// notification that led to the question, if there was one. Applied again it changes nothing.
func (db *DB) ApplyVerdict(ctx context.Context, sessionID, notificationID string, v Verdict) (did string, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		if notificationID != "" {
			if _, err := tx.exec("UPDATE notifications SET decided_at = ? WHERE id = ?", tx.now, notificationID); err != nil {
				return err
			}
		}
		if _, err := tx.exec("UPDATE payment_sessions SET checked_at = ?, warning = '' WHERE id = ?", tx.now, sessionID); err != nil {
			return err
		}
		did, err = tx.applyVerdict(sessionID, v)
		return err
	})
	return did, err
}

func (tx *Tx) applyVerdict(sessionID string, v Verdict) (did string, err error) {
	var status Status
	var amount int64
	var expires Time
	var paidBy, settled, latest bool
	s, err := one(tx, func(s *Session) []any {
		return append(sessionFields(s), &status, &amount, &expires, &paidBy, &settled, &latest)
	}, "SELECT "+sessionColumns+`, o.status, o.json ->> 'amount', o.expires_at, coalesce(o.paid_by = s.id, 0), o.paid_by IS NOT NULL,
		s.attempt = (SELECT max(attempt) FROM payment_sessions WHERE order_id = o.id)
		FROM payment_sessions s JOIN orders o ON o.id = s.order_id WHERE s.id = ?`, sessionID)
	if err != nil {
		return "", err
	}
	live := s.Status == "starting" || s.Status == "active" || s.Status == "failed" && latest && (status == Pending || status == AwaitingVerification)
	same := s.Status == "paid" && (v.TransactionID == s.TransactionID || v.TransactionID == "")
	end := func(status string) error {
		_, err := tx.exec("UPDATE payment_sessions SET status = ?, transaction_id = iif(?2 <> '', ?2, transaction_id), request_id = iif(?3 <> '', ?3, request_id) WHERE id = ?4",
			status, v.TransactionID, v.RequestID, s.ID)
		return err
	}
	// to performs a move if the order's state allows it, and does nothing ("") otherwise.
	to := func(m Move, reason string) (did string, err error) {
		if !slices.Contains(moves[m].from, status) {
			return "", nil
		}
		_, err = tx.move("", s.OrderID, m, reason)
		return string(moves[m].to), err
	}
	note := func(format string, args ...any) (did string, err error) {
		return "noted", tx.remark(s.OrderID, status, fmt.Sprintf(format, args...))
	}
	at := fmt.Sprintf("%s, attempt %d", s.Provider, s.Attempt)
	switch v.State {
	case Settled:
		if same {
			return "", nil
		}
		if err := end("paid"); err != nil {
			return "", err
		}
		if paidBy && status == Paid { // what the owner approved
			return "", nil
		}
		m, reason := GatewaySettles, "paid: "+at
		if v.Amount != amount {
			m, reason = GatewayChallenges, fmt.Sprintf("Rp%d paid instead of Rp%d: %s", v.Amount, amount, at)
		}
		switch did, err = to(m, reason); {
		case err != nil:
		case did == "":
			text := fmt.Sprintf("Rp%d came while the order was %s, to be given back", v.Amount, status)
			if status == Paid && !settled && v.Amount == amount { // this may be the money that the owner spoke of
				text = fmt.Sprintf("Rp%d came for the order that the owner had approved, to be given back if it was paid another way", v.Amount)
			}
			if did, err = note("%s: %s %s", text, at, v.TransactionID); err == nil {
				_, err = tx.exec("UPDATE orders SET overpaid = 1, paid_by = iif(paid_by IS NULL AND ? = json ->> 'amount', ?, paid_by) WHERE id = ?", v.Amount, s.ID, s.OrderID)
			}
		case m == GatewaySettles:
			_, err = tx.exec("UPDATE orders SET paid_by = ? WHERE id = ?", s.ID, s.OrderID)
		}
		return did, err
	case Challenged:
		if live && status == Paid { // the owner has decided
			return "", end("paid")
		}
		if live {
			if err := end("active"); err != nil {
				return "", err
			}
		}
		return to(GatewayChallenges, "the gateway wants it looked at: "+at)
	case Denied, Canceled:
		if !live && !same {
			return "", nil
		}
		if err := end("failed"); err != nil {
			return "", err
		}
		if same && paidBy {
			return to(GatewayReverses, "the payment was taken back: "+at)
		}
		if latest && (v.State == Canceled || status == AwaitingVerification) {
			did, err = to(GatewayCancels, v.State+" by the gateway: "+at)
		}
		if same && did == "" { // what the owner was told to give back, or to judge, is gone
			return note("the payment was taken back: %s", at)
		}
		return did, err
	case GivenBack:
		if paidBy && (status == Paid || status == Refunded) {
			return to(GatewayRefunds, "refunded: "+at)
		}
		if live { // it was paid and given back, and neither was told: nothing of it is left
			if err := end("failed"); err != nil {
				return "", err
			}
		}
		return note("Rp%d given back: %s %s", v.Amount, at, v.RefundID)
	case PartlyReturned:
		if did, err = note("Rp%d given back in part: %s %s", v.Amount, at, v.RefundID); err != nil || !live {
			return did, err
		}
		if err := end("paid"); err != nil { // it was paid, and that was not told: a person says what the rest is worth
			return "", err
		}
		moved, err := to(GatewayChallenges, "paid and given back in part: "+at)
		return cmp.Or(moved, did), err
	}
	// Open or Over: nobody paid this session. An open one ends with its order's time; that of an order which needs no
	// payment any more is to be closed first.
	timeIsUp := expires <= tx.now
	if !live || v.State == Open && (status != Pending || !timeIsUp) {
		return "", nil
	}
	if err := end("expired"); err != nil {
		return "", err
	}
	if latest && timeIsUp {
		return to(ClockExpires, "not paid in time: "+at)
	}
	return "", nil
}

// payments talks to the gateways. No database transaction is open while it does.
type payments struct {
	db         *DB
	log        *slog.Logger
	client     *http.Client
	wake       func() // events were committed
	notified   chan struct{}
	sandboxKey string // signs the sandbox's notifications

	starts sync.Map       // of *start, by order
	begun  sync.WaitGroup // the sessions being started
	asked  sync.Map       // of chan struct{}, by session: closed when the question under way is decided
	busy   sync.Map       // what askAll has begun, by notification and session
	slots  sync.Map       // of chan struct{}, by account: askAll's
}

// start is a session being started, for all who ask for it meanwhile.
type start struct {
	done    chan struct{}
	session Session
	err     error
}

func newPayments(db *DB, log *slog.Logger, wake func()) *payments {
	return &payments{db: db, log: log, wake: wake, notified: make(chan struct{}, 1), sandboxKey: rand.Text(),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (p *payments) gateway(storeID, provider string) (gateway, error) {
	if provider == "sandbox" {
		return sandbox{p}, nil
	}
	g, err := p.db.Gateway(storeID, provider)
	if err == errNotFound {
		return nil, fmt.Errorf("the store has no key for %s", provider)
	} else if err != nil {
		return nil, err
	}
	if provider == "xendit" {
		return xendit{p, g}, nil
	}
	return midtrans{p, g}, nil
}

// open returns an order's live session and starts one if it has none. A status other than active means that the
// order needs none (ID "") or that the gateway could not be asked. However many ask at once, one is started.
func (p *payments) open(ctx context.Context, st Store, orderID string) (Session, error) {
	s := &start{done: make(chan struct{})}
	if other, underWay := p.starts.LoadOrStore(orderID, s); underWay {
		s = other.(*start)
	} else {
		p.begun.Go(func() {
			s.session, s.err = p.start(context.WithoutCancel(ctx), st, orderID)
			p.starts.Delete(orderID)
			close(s.done)
		})
	}
	select {
	case <-s.done:
		return s.session, s.err
	case <-ctx.Done():
		return Session{}, ctx.Err()
	}
}

// finish waits for the sessions being started, also those whose client has gone.
func (p *payments) finish() { p.begun.Wait() }

func (p *payments) start(ctx context.Context, st Store, orderID string) (Session, error) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for asked, lost := false, false; ; { // each but once
		s, again, err := p.db.BeginSession(ctx, st.ID, orderID)
		if err != nil || s.Status != "starting" {
			return s, err
		}
		_, o, err := p.db.OrderPage(orderID)
		if err != nil {
			return s, err
		}
		gw, err := p.gateway(st.ID, s.Provider)
		if err == nil && again && !asked { // an answer was lost: what did it say?
			asked = true
			var v Verdict
			if v, err = gw.ask(limited, s, nil); err == nil && v.State != Open {
				if _, err := p.db.ApplyVerdict(ctx, s.ID, "", v); err != nil {
					return s, err
				}
				p.wake()
				continue
			}
		}
		if err == nil {
			s.GatewayID, s.URL, err = gw.create(limited, charge{s, st, o})
		}
		if err == errTaken && !lost { // a page that nobody was ever shown: leave it
			if err := p.db.SessionLost(ctx, s.ID); err != nil {
				return s, err
			}
			lost = true
			continue
		}
		if err != nil {
			return s, p.warn(ctx, s, err)
		}
		if wanted, err := p.db.SessionStarted(ctx, s); err != nil || !wanted {
			return Session{}, err
		}
		s.Status = "active"
		return s, nil
	}
}

// warn records that the gateway could not be asked, also when that was because ctx ended.
func (p *payments) warn(ctx context.Context, s Session, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	p.log.Warn("payment gateway cannot be asked", "provider", s.Provider, "order", s.OrderID, "attempt", s.Attempt, "error", err)
	return p.db.WarnSession(context.WithoutCancel(ctx), s.ID, err.Error())
}

// giveUpAfter is how long after its end a session is asked about at a gateway that does not answer. Then it counts as
// unpaid; a notification still pays its order.
const giveUpAfter = 7 * 24 * time.Hour

// glance is check for a page that waits for it: not if the session was just asked about, or is being.
func (p *payments) glance(ctx context.Context, s OpenSession) {
	if _, asking := p.asked.Load(s.ID); !asking && time.Since(s.CheckedAt.Time()) > 3*time.Second {
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		p.check(ctx, s, Notification{})
	}
}

// check asks the gateway about a session and does what its answer means. A session that nobody has paid, of an order
// that needs no payment any more, is closed. n is the notification that led to it, if one did.
func (p *payments) check(ctx context.Context, s OpenSession, n Notification) (v Verdict, did string, err error) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	done, err := p.alone(limited, s.ID)
	if err != nil {
		return v, "", err
	}
	defer done()
	gw, err := p.gateway(s.StoreID, s.Provider)
	if err == nil {
		v, err = gw.ask(limited, s.Session, n.Body)
	}
	unwanted := s.Status == "active" && s.OrderStatus != Pending && s.OrderStatus != AwaitingVerification
	if err == nil && unwanted && (v.State == Open || v.State == Challenged && s.OrderStatus != Paid) {
		if err = gw.cancel(limited, s.Session); err == nil {
			if v, err = gw.ask(limited, s.Session, n.Body); v.State == Open {
				v.State = Over // its page was closed before anyone chose how to pay
			}
		}
	}
	if err != nil {
		if warnErr := p.warn(ctx, s.Session, err); time.Since(s.ExpiresAt.Time()) < giveUpAfter || warnErr != nil {
			return v, "", errors.Join(err, warnErr)
		}
		v = Verdict{State: Over}
	}
	if did, err = p.db.ApplyVerdict(ctx, s.ID, n.ID, v); did != "" {
		p.wake()
	}
	return v, did, err
}

// alone waits until nobody asks about a session, and then keeps others from it until done is called: an answer that is
// long on its way must not undo a later one.
func (p *payments) alone(ctx context.Context, sessionID string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		other, taken := p.asked.LoadOrStore(sessionID, mine)
		if !taken {
			return func() {
				p.asked.Delete(sessionID)
				close(mine)
			}, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// run decides notifications as they come, and from the start on looks every two seconds for sessions that are due to be
// asked about, and every 30 s for notifications left undecided. It returns when ctx has ended and the questions under
// way are answered.
func (p *payments) run(ctx context.Context) {
	var all sync.WaitGroup
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	after, beat := "", 0
	for ctx.Err() == nil {
		if list := p.undecided(after); len(list) > 0 {
			after = list[len(list)-1].ID
			all.Go(func() { p.askAll(ctx, list) })
		}
		select {
		case <-p.notified:
			continue
		case <-ctx.Done():
		case <-tick.C:
		}
		var list []Notification
		if beat++; beat%15 == 0 {
			list = p.undecided("")
		}
		open, err := p.db.SessionsToPoll()
		if err != nil {
			p.log.Error("cannot look for open payment sessions", "error", err)
		}
		for _, s := range open {
			list = append(list, Notification{Session: s})
		}
		all.Go(func() { p.askAll(ctx, list) })
	}
	all.Wait()
}

// undecided are the notifications after one that nobody has decided.
func (p *payments) undecided(after string) []Notification {
	list, err := p.db.UndecidedNotifications(after)
	if err != nil {
		p.log.Error("cannot read notifications", "error", err)
	}
	return list
}

// questionsPerAccount bounds what is asked at a time of one store's account at a gateway, so that one which hangs delays
// no other.
const questionsPerAccount = 4

// askAll asks about sessions because of notifications, or without (ID ""), and returns when all is answered. What is
// being asked already is left out.
func (p *payments) askAll(ctx context.Context, list []Notification) {
	var all sync.WaitGroup
	for _, n := range list {
		key := n.ID + n.Session.ID
		if _, busy := p.busy.LoadOrStore(key, true); busy {
			continue
		}
		account, _ := p.slots.LoadOrStore(n.Session.Provider+n.Session.StoreID, make(chan struct{}, questionsPerAccount))
		slots := account.(chan struct{})
		all.Go(func() {
			defer p.busy.Delete(key)
			select {
			case slots <- struct{}{}:
				p.check(context.WithoutCancel(ctx), n.Session, n)
				<-slots
			case <-ctx.Done():
			}
		})
	}
	all.Wait()
}

// expire ends the orders that nobody paid in time and no gateway has a session for. Each is a write of its own: one that
// cannot be changed holds up no other.
func (p *payments) expire(ctx context.Context) {
	for ctx.Err() == nil {
		due, err := p.db.DueOrders()
		if err != nil {
			p.log.Error("cannot look for orders to expire", "error", err)
		}
		var failed atomic.Bool
		for some := range slices.Chunk(due, 8) {
			var all sync.WaitGroup
			for _, id := range some {
				all.Go(func() {
					err := p.db.ExpireOrder(context.WithoutCancel(ctx), id)
					if _, refused := errors.AsType[*Refusal](err); err != nil && !refused { // refused: paid this moment
						failed.Store(true)
						p.log.Error("cannot expire an order", "order", id, "error", err)
					}
				})
			}
			all.Wait()
		}
		if len(due) > 0 {
			p.wake()
		}
		if len(due) < 100 || failed.Load() {
			return
		}
	}
}

// notification takes a gateway's message: POST /notifications/{provider}/{store_id}. A verified one is kept before
// it is acknowledged, and decided after.
func (s *server) notification(w http.ResponseWriter, r *http.Request) {
	if r.Method != "POST" {
		s.notAllowed(w, r, "POST")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		s.respond(w, r, answer{}, errBodyTooLarge)
		return
	}
	err = s.payments.receive(r.Context(), r.PathValue("provider"), r.PathValue("store_id"), r.Header, body)
	s.respond(w, r, answer{data: []byte("{}")}, err)
}

func (p *payments) receive(ctx context.Context, provider, storeID string, h http.Header, body []byte) error {
	gw, err := p.gateway(storeID, provider)
	if outOfService(err) {
		return err
	} else if err != nil {
		return errNotFound
	}
	about, err := gw.verify(h, body)
	if err != nil {
		return err
	}
	var session OpenSession
	if about.reference != "" {
		session, err = p.db.SessionByReference(storeID, provider, about.reference)
	} else {
		session, err = p.db.SessionByTransaction(storeID, provider, about.transactionID, about.requestID)
	}
	if err == errNotFound {
		p.log.Warn("notification about nothing that is known", "provider", provider, "store", storeID, "reference", about.reference)
		return nil
	} else if err != nil {
		return err
	}
	if err := p.db.AddNotification(ctx, session, body); err != nil {
		return err
	}
	select {
	case p.notified <- struct{}{}:
	default:
	}
	return nil
}
