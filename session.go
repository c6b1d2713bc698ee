//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A session is started from top to bottom of this file: open lets one of those who ask for it start it,
// startPaymentSession begins it in the database (BeginPaymentSession), createPaymentSession creates it at the
// gateway and records that (PaymentSessionStarted). The rest reads and writes the rows of sessions and
// notifications for payment.go, which asks the gateways what became of the money.

// SessionState is where a payment session stands.
type SessionState string

const (
	SessionStarting SessionState = "starting" // the gateway has not answered yet
	SessionActive   SessionState = "active"   // its page can be paid
	SessionPaid     SessionState = "paid"
	SessionFailed   SessionState = "failed" // its start was lost, or its money was taken or given back
	SessionExpired  SessionState = "expired"
)

// PaymentSession is one attempt to pay an order at a gateway.
type PaymentSession struct {
	ID            string
	OrderID       string
	Provider      Provider
	AccountID     string // the store's account at the gateway that it was started with
	Attempt       int    // 1, 2, …
	State         SessionState
	GatewayID     string       // the gateway's name of the session
	URL           string       // the gateway's page
	TransactionID string       // the gateway's name of the payment that settled it
	GatewayState  GatewayState // what the gateway last said; empty if it has said nothing yet
	Problem       Problem      // why the last question had no answer; empty if it had
	ProblemText   string       // the gateway's words for it
	Approved      bool         // the owner wants its challenged payment accepted at the gateway
	ExpiresAt     Time
	CheckedAt     Time // when the gateway last answered
	Lease         Time // until then somebody asks about it or starts it, who proves that by this value; 0 = nobody
}

// reference is the name under which a gateway knows a session.
func (s PaymentSession) reference() string { return fmt.Sprintf("%s-%d", s.OrderID, s.Attempt) }

// Problem is why a gateway gave no answer. The API shows it as the reason of an unavailable session.
type Problem string

const (
	ProblemUnreachable Problem = "unreachable" // it may answer later
	ProblemRefused     Problem = "refused"     // it will not, until somebody changes a key or a setting
)

// sessionColumns are of a session s and its order o.
const sessionColumns = `s.id, o.id, s.provider, s.account_id, s.attempt, s.status, s.gateway_id, s.payment_url,
	s.transaction_id, s.gateway_state, s.problem, s.problem_text, s.approved, s.expires_at, s.checked_at,
	s.leased_until`

func scanSession(r row) (PaymentSession, error) { return scanSessionWith(r) }

// scanSessionWith scans sessionColumns, and the columns after them into more.
func scanSessionWith(r row, more ...any) (s PaymentSession, err error) {
	dest := []any{
		&s.ID, &s.OrderID, &s.Provider, &s.AccountID, &s.Attempt, &s.State, &s.GatewayID, &s.URL,
		&s.TransactionID, &s.GatewayState, &s.Problem, &s.ProblemText, &s.Approved, &s.ExpiresAt, &s.CheckedAt,
		&s.Lease,
	}
	err = r.Scan(append(dest, more...)...)
	return s, err
}

const sqlOrderSessions = "SELECT " + sessionColumns + `
	FROM   payment_sessions s
	JOIN   orders o ON o.row = s.order_row
	WHERE  s.order_row = ?
	ORDER BY s.attempt`

// OrderWithSession is an order as GET /v1/orders/{order_id} needs it.
type OrderWithSession struct {
	Stored    string // the order's JSON, without addresses
	Reference string
	Status    Status
	Provider  Provider
	ExpiresAt Time
	Session   PaymentSession // in part: the session that paid the order, else its latest; empty without one
}

// orderWithSessionColumns are of an order o and the session p that joinSession joins to it. (s is a store in queries that
// have these columns.)
const orderWithSessionColumns = `o.json, o.reference, o.status, o.provider, o.expires_at,
	coalesce(p.id, ''), coalesce(p.attempt, 0), coalesce(p.status, ''),
	coalesce(p.payment_url, ''), coalesce(p.expires_at, 0),
	coalesce(p.gateway_state, ''), coalesce(p.problem, '')`

// joinSession joins to an order o the session p that paid it, else its latest.
const joinSession = `LEFT JOIN payment_sessions p ON p.id = coalesce(o.paid_by,
	(SELECT id FROM payment_sessions WHERE order_row = o.row ORDER BY attempt DESC LIMIT 1))`

const sqlOrder = "SELECT " + orderWithSessionColumns + `
	FROM   orders o
	` + joinSession + `
	WHERE  o.row = ? AND o.id = ? AND o.store_id = ?`

// scanOrderWithSession scans orderWithSessionColumns.
func scanOrderWithSession(r row) (o OrderWithSession, err error) {
	s := &o.Session
	err = r.Scan(
		&o.Stored, &o.Reference, &o.Status, &o.Provider, &o.ExpiresAt,
		&s.ID, &s.Attempt, &s.State, &s.URL, &s.ExpiresAt, &s.GatewayState, &s.Problem)
	return o, err
}

// OrderWithSession reads one order of a store.
func (db *DB) OrderWithSession(storeID, id string) (OrderWithSession, error) {
	return queryOne(db.reader, scanOrderWithSession, sqlOrder, rowOf(id), id, storeID)
}

// sqlTransactions finds the gateways' names of the payments that paid some orders, by the orders' rows.
const sqlTransactions = `
	SELECT o.id, s.transaction_id
	FROM   json_each(?2) wanted
	CROSS JOIN orders o           ON o.row = wanted.value AND +o.store_id = ?1
	CROSS JOIN payment_sessions s ON s.id = o.paid_by`

// Transactions returns the gateways' names of the payments that paid a store's orders, by the orders' ids. Orders
// that no gateway's payment has paid are left out.
func (db *DB) Transactions(storeID string, orders []Order) (map[string]string, error) {
	rows := make([]int64, len(orders))
	for i, o := range orders {
		rows[i] = rowOf(o.ID)
	}
	pairs, err := queryAll(db.reader, scanPair, sqlTransactions, storeID, string(mustJSON(rows)))
	if err != nil {
		return nil, err
	}

	names := map[string]string{}
	for _, p := range pairs {
		names[p[0]] = p[1]
	}
	return names, nil
}

func scanPair(r row) (p [2]string, err error) {
	err = r.Scan(&p[0], &p[1])
	return p, err
}

// OrderPage reads an order and its store for a page: whoever has an order's id may see its pay page.
func (db *DB) OrderPage(id string) (st StoreProfile, o Order, err error) {
	scan := func(r row) (StoreProfile, error) { return db.scanProfileWith(r, fromJSON{&o}) }
	st, err = queryOne(db.reader, scan, "SELECT "+profileColumns+`, o.json
		FROM   orders o
		JOIN   stores s ON s.id = o.store_id
		WHERE  o.row = ? AND o.id = ?`, rowOf(id), id)
	return st, o, err
}

// open returns the active session of an order, which has the page to send the buyer to. It starts one if
// there is none; however many ask at once, one of them starts it and the others wait. The result is a session in
// the state starting if the gateway could not be asked: its problem says why, and a call after startAgainAfter
// tries again. It is an empty session if the order needs no payment now. An error is the database's, or says that
// ctx has ended.
func (p *payments) open(ctx context.Context, st Store, orderID string) (PaymentSession, error) {
	for {
		begun, err := p.db.BeginPaymentSession(ctx, st.ID, orderID)
		if err != nil || !begun.starting() {
			return begun.session, err
		}
		if begun.ours {
			return p.startInBackground(ctx, st, begun)
		}

		// Somebody else is starting it. Their lease is a row, so they may be another process.
		if err := p.db.awaitStart(ctx, begun.session); err != nil {
			return PaymentSession{}, err
		}
	}
}

// startedSession is the result of a start.
type startedSession struct {
	session PaymentSession
	err     error
}

// startInBackground starts a session. The start goes on when its client has gone, because the gateway may have
// created the page already.
func (p *payments) startInBackground(ctx context.Context, st Store, begun begunSession) (PaymentSession, error) {
	started := make(chan startedSession, 1)
	p.starting.Go(func() {
		detached := context.WithoutCancel(ctx)

		// Only the gateway is asked with limited. Its answer is recorded even if limited has ended meanwhile.
		limited, cancel := p.limit(detached)
		defer cancel()
		session, err := p.startPaymentSession(detached, limited, st, begun)
		started <- startedSession{session, err}
	})

	select {
	case r := <-started:
		return r.session, r.err
	case <-ctx.Done():
		return PaymentSession{}, ctx.Err()
	}
}

// awaitStart waits until nobody is starting a session any more.
func (db *DB) awaitStart(ctx context.Context, s PaymentSession) error {
	for s.State == SessionStarting && s.Lease > db.Now() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}

		var err error
		s, err = queryOne(db.reader, scanSession,
			"SELECT "+sessionColumns+`
			FROM   payment_sessions s
			JOIN   orders o ON o.row = s.order_row
			WHERE  s.id = ?`, s.ID)
		if err != nil {
			return err
		}
	}
	return nil
}

// finish waits for the sessions that are being started, also those whose client has gone.
func (p *payments) finish() { p.starting.Wait() }

// startPaymentSession creates at the gateway the session that BeginPaymentSession has added. ctx is for the database;
// limited, which ends earlier, is for the gateway. Its result is that of open.
func (p *payments) startPaymentSession(
	ctx, limited context.Context, st Store, begun begunSession,
) (PaymentSession, error) {
	s := begun.session
	_, o, err := p.db.OrderPage(s.OrderID)
	if err != nil {
		return s, err
	}

	gw, problem := p.gateway(st.ID, s.Provider, s.AccountID)
	if problem != nil {
		return p.startFailed(ctx, s, o, problem)
	}

	// An earlier start may have reached the gateway, and only its answer was lost. What the gateway says of that
	// session counts before another one is created.
	if begun.again {
		asked, err := p.db.askedSession(p.db.reader, s.ID)
		if err != nil {
			return s, err
		}
		answers, problem := gw.query(limited, asked)
		if problem != nil {
			return p.startFailed(ctx, s, o, problem)
		}
		if paymentBegun(answers) {
			return p.replaceLostSession(ctx, limited, st, asked, answers)
		}
	}
	return p.createPaymentSession(ctx, limited, gw, charge{s, st, o})
}

// paymentBegun reports whether the gateway knows a payment of the session.
func paymentBegun(answers []GatewayAnswer) bool {
	for _, a := range answers {
		if a.TransactionID != "" {
			return true
		}
	}
	return false
}

// replaceLostSession does what the gateway says of a session whose page nobody was shown, because the answer to
// its start was lost. If that leaves the order unpaid, another session is started.
func (p *payments) replaceLostSession(
	ctx, limited context.Context, st Store, lost AskedSession, answers []GatewayAnswer,
) (PaymentSession, error) {
	err := p.db.write(ctx, func(tx *Tx) error {
		_, err := tx.applyGatewayAnswers(lost, answers, false)
		if err != nil {
			return err
		}
		return tx.failPaymentSession(lost.ID)
	})
	if err != nil {
		return lost.PaymentSession, err
	}
	p.wakeWebhooks()
	return p.startNextSession(ctx, limited, st, lost.OrderID)
}

// startNextSession starts the session after one that was given up.
func (p *payments) startNextSession(
	ctx, limited context.Context, st Store, orderID string,
) (PaymentSession, error) {
	for {
		next, err := p.db.BeginPaymentSession(ctx, st.ID, orderID)
		if err != nil || !next.starting() {
			return next.session, err
		}
		if next.ours {
			return p.startPaymentSession(ctx, limited, st, next)
		}
		if err := p.db.awaitStart(limited, next.session); err != nil {
			return next.session, nil // It is being started, and takes longer than we may wait.
		}
	}
}

// createPaymentSession creates a session at the gateway and records the answer. Its result is that of open.
func (p *payments) createPaymentSession(
	ctx, limited context.Context, gw gateway, c charge,
) (PaymentSession, error) {
	gatewayID, pageURL, problem := gw.create(limited, c)

	// The answer to an earlier start was lost, so nobody was ever shown the page that the gateway has. The next
	// attempt has a reference of its own.
	if problem == errTaken {
		if err := p.db.FailPaymentSession(ctx, c.ID); err != nil {
			return c.PaymentSession, err
		}
		return p.startNextSession(ctx, limited, c.Store, c.OrderID)
	}
	if problem != nil {
		return p.startFailed(ctx, c.PaymentSession, c.Order, problem)
	}

	s := c.PaymentSession
	s.GatewayID = gatewayID
	s.URL = pageURL
	wanted, err := p.db.PaymentSessionStarted(ctx, s)
	if err != nil || !wanted {
		p.wake()
		return PaymentSession{}, err
	}
	s.State = SessionActive
	return s, nil
}

// startFailed records why a session could not be started.
func (p *payments) startFailed(
	ctx context.Context, s PaymentSession, o Order, problem error,
) (PaymentSession, error) {
	p.logProblem(s, o.PaymentReference, problem)
	s.Problem, s.ProblemText = describeProblem(problem, o.Buyer)
	_, err := p.db.RecordGatewayProblem(context.WithoutCancel(ctx), s)
	return s, err
}

// begunSession is an order's payment session that is starting or active. Its session is empty if the order needs
// none now.
type begunSession struct {
	session PaymentSession
	ours    bool // the caller has the lease, and has to start the session at the gateway
	again   bool // the session is not new: an earlier start may have reached the gateway
	leased  bool // somebody has the lease
}

// starting reports whether the session is being started, by the caller or by somebody else.
func (b begunSession) starting() bool { return b.session.State == SessionStarting && b.leased }

const (
	// leaseTime is longer than the questions of one caller can take: see gatewayTimeout.
	leaseTime = 30 * time.Second

	// startAgainAfter is how long a start that failed is not tried again, whoever asks.
	startAgainAfter = 30 * time.Second
)

// BeginPaymentSession returns an order's live session, or a new one in the state starting. An earlier start that
// failed is taken up again after startAgainAfter, and uses up no attempt.
func (db *DB) BeginPaymentSession(ctx context.Context, storeID, orderID string) (begunSession, error) {
	return writeResult(ctx, db, func(tx *Tx) (b begunSession, err error) {
		// The index payment_sessions_live refuses a second live session.
		added, err := tx.exec(`
			INSERT INTO payment_sessions (id, order_row, provider, attempt, status, expires_at, created_at,
			                              account_id, tried_at, leased_until, next_check_at)
			SELECT ?1, o.row, o.provider,
			       (SELECT coalesce(max(attempt), 0) + 1 FROM payment_sessions WHERE order_row = o.row),
			       'starting', o.expires_at, ?2, `+accountInUse+`, ?2, ?5, o.expires_at
			FROM   orders o
			WHERE  o.row = ?6 AND o.id = ?3 AND o.store_id = ?4 AND o.status = 'pending' AND o.provider <> 'manual'
			AND    o.expires_at > ?2
			ON CONFLICT (order_row) WHERE status IN ('starting', 'active') DO NOTHING`,
			tx.newID(), tx.now, orderID, storeID, tx.now.Add(leaseTime), rowOf(orderID))
		if err != nil {
			return b, err
		}

		taken := int64(0)
		if added == 0 {
			taken, err = tx.takeUpStart(orderID)
			if err != nil {
				return b, err
			}
		}

		b.session, err = queryOne(tx, scanSession, sqlLiveSession, rowOf(orderID), storeID, tx.now)
		if err == errNotFound {
			return begunSession{}, nil
		}
		b.ours = added+taken > 0
		b.again = taken > 0
		b.leased = b.session.Lease > tx.now
		return b, err
	})
}

// accountInUse is the id of the store's account at the provider of the order o, empty if there is none.
const accountInUse = `coalesce((
	SELECT id FROM gateways
	WHERE  store_id = o.store_id AND provider = o.provider AND replaced_at IS NULL), '')`

// takeUpStart takes the lease of an order's session that was begun and not started.
func (tx *Tx) takeUpStart(orderID string) (taken int64, err error) {
	return tx.exec(`
		UPDATE payment_sessions AS s
		SET    leased_until = ?3, tried_at = ?2, account_id = (
		           SELECT `+accountInUse+` FROM orders o WHERE o.row = s.order_row)
		WHERE  order_row = ?1 AND status = 'starting' AND leased_until <= ?2
		AND    (problem = '' OR tried_at <= ?4)`,
		rowOf(orderID), tx.now, tx.now.Add(leaseTime), tx.now.Add(-startAgainAfter))
}

const sqlLiveSession = "SELECT " + sessionColumns + `
	FROM   payment_sessions s
	JOIN   orders o ON o.row = s.order_row
	WHERE  s.order_row = ? AND s.status IN ('starting', 'active')
	AND    o.store_id = ? AND o.status = 'pending' AND o.expires_at > ?`

// PaymentSessionStarted records the gateway's answer to a session's start, and releases the lease. The session is
// not wanted any more if its order is not pending any more, or if somebody else has taken up its start meanwhile.
// In the first case it becomes active all the same, because its page can be paid now, and is due: the next check
// closes it, unless the order waits for its owner.
func (db *DB) PaymentSessionStarted(ctx context.Context, s PaymentSession) (wanted bool, err error) {
	return writeResult(ctx, db, func(tx *Tx) (bool, error) {
		started, err := tx.exec(`
			UPDATE payment_sessions
			SET    status = 'active', gateway_id = ?1, payment_url = ?2, checked_at = ?3, gateway_state = 'open',
			       problem = '', problem_text = '', failing_since = 0
			WHERE  id = ?4 AND leased_until = ?5 AND status IN ('starting', 'expired')`,
			s.GatewayID, s.URL, tx.now, s.ID, s.Lease)
		if err != nil || started == 0 {
			return false, err
		}
		if err := tx.scheduleCheck(s.ID); err != nil {
			return false, err
		}

		status, err := queryOne(tx, scanValue[Status], "SELECT status FROM orders WHERE row = ?", rowOf(s.OrderID))
		if err != nil || status == Pending {
			return err == nil, err
		}
		_, err = tx.exec("UPDATE payment_sessions SET next_check_at = ?, tried_at = 0 WHERE id = ?", tx.now, s.ID)
		return false, err
	})
}

// FailPaymentSession ends a session that exists at the gateway and whose page nobody was ever shown.
func (db *DB) FailPaymentSession(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *Tx) error { return tx.failPaymentSession(id) })
}

func (tx *Tx) failPaymentSession(id string) error {
	_, err := tx.exec(`
		UPDATE payment_sessions
		SET    status = 'failed', ended_at = ?, leased_until = 0,
		       problem = '', problem_text = '', failing_since = 0
		WHERE  id = ? AND status = 'starting'`, tx.now, id)
	if err != nil {
		return err
	}
	return tx.scheduleCheck(id)
}

// RecordGatewayProblem records that the gateway gave no answer about a session, and why, and whether the owner's
// approval of a challenged payment still stands. It releases the lease. failingSince is the time of the first of the
// latest questions that had no answer; it is 0 if the caller has lost the lease, and nothing was recorded.
func (db *DB) RecordGatewayProblem(ctx context.Context, s PaymentSession) (failingSince Time, err error) {
	return writeResult(ctx, db, func(tx *Tx) (Time, error) {
		failingSince, err := queryOne(tx, scanValue[Time], `
			UPDATE payment_sessions
			SET    problem = ?1, problem_text = ?2, tried_at = ?3, approved = approved AND ?6,
			       failing_since = iif(failing_since = 0, ?3, failing_since)
			WHERE  id = ?4 AND leased_until = ?5
			RETURNING failing_since`, s.Problem, s.ProblemText, tx.now, s.ID, s.Lease, s.Approved)
		if err == errNotFound {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		return failingSince, tx.scheduleCheck(s.ID)
	})
}

// sessionIsKnown is true of a session s that the gateway has named, or of which it has named a payment. Of any other
// session the answer to its start was lost, if the gateway has it at all, and nobody was shown its page.
const sessionIsKnown = `(s.gateway_id <> '' OR EXISTS (SELECT 1 FROM payments WHERE session_id = s.id))`

// scheduleCheck sets when the gateway is asked about a session next, and releases the lease.
func (tx *Tx) scheduleCheck(sessionID string) error {
	f, err := queryOne(tx, scanCheckFacts, `
		SELECT s.status, `+sessionIsKnown+`, o.status, o.expires_at, s.ended_at, s.failing_since,
		       coalesce((
		           SELECT max(received_at) FROM notifications
		           WHERE  session_id = s.id AND decided_at IS NULL), 0)
		FROM   payment_sessions s
		JOIN   orders o ON o.row = s.order_row
		WHERE  s.id = ?`, sessionID)
	if err != nil {
		return err
	}

	next := nextCheck(f, tx.now)
	_, err = tx.exec(`
		UPDATE payment_sessions
		SET    next_check_at = nullif(?, 0), leased_until = 0
		WHERE  id = ?`, next, sessionID)
	return err
}

func scanCheckFacts(r row) (f checkFacts, err error) {
	err = r.Scan(&f.session, &f.known, &f.order, &f.orderEnd, &f.endedAt, &f.failingSince, &f.undecided)
	return f, err
}

// SessionWithOrder is a payment session and the state of its order, as the payment rules need them.
type SessionWithOrder struct {
	PaymentSession
	StoreID     string
	Order       string // its payment_reference, as people and the log name it
	OrderStatus Status
	OrderAmount int64
	OrderEnd    Time // the order's expires_at
	Buyer       Buyer
}

func scanSessionWithOrder(r row) (s SessionWithOrder, err error) {
	s.PaymentSession, err = scanSessionWith(r,
		&s.StoreID, &s.Order, &s.OrderStatus, &s.OrderAmount, &s.OrderEnd, fromJSON{&s.Buyer})
	return s, err
}

const sqlSession = "SELECT " + sessionColumns + `,
	       o.store_id, o.reference, o.status, o.json ->> 'amount', o.expires_at, o.json -> 'buyer'
	FROM   payment_sessions s
	JOIN   orders o ON o.row = s.order_row
	WHERE  `

// LatestPaymentSession reads an order's latest session.
func (db *DB) LatestPaymentSession(orderID string) (SessionWithOrder, error) {
	return queryOne(db.reader, scanSessionWithOrder,
		sqlSession+"s.order_row = ? AND o.id = ? ORDER BY s.attempt DESC LIMIT 1", rowOf(orderID), orderID)
}

// PaymentSessions reads an order's sessions, the first attempt first.
func (db *DB) PaymentSessions(orderID string) ([]SessionWithOrder, error) {
	return queryAll(db.reader, scanSessionWithOrder,
		sqlSession+"s.order_row = ? AND o.id = ? ORDER BY s.attempt", rowOf(orderID), orderID)
}

// PaymentSessionByID reads one session.
func (db *DB) PaymentSessionByID(id string) (SessionWithOrder, error) {
	return queryOne(db.reader, scanSessionWithOrder, sqlSession+"s.id = ?", id)
}

// AskedSession is a session with all the names by which the gateway may be asked about it.
type AskedSession struct {
	SessionWithOrder
	Payments []Payment     // known payments, in the order of their names
	Named    []GatewayName // what else verified notifications have named
}

// GatewayName is a gateway's name of something that belongs to a session.
type GatewayName struct {
	Kind NameKind
	Name string
}

type NameKind string

const (
	NameSession NameKind = "session" // another session of the same reference: the answer to its start was lost
	NameRefund  NameKind = "refund"
	NameDispute NameKind = "dispute"
)

func (db *DB) askedSession(q querier, id string) (s AskedSession, err error) {
	s.SessionWithOrder, err = queryOne(q, scanSessionWithOrder, sqlSession+"s.id = ?", id)
	if err != nil {
		return s, err
	}

	s.Payments, err = queryAll(q, scanPayment, `
		SELECT transaction_id, request_id, state, amount, returned
		FROM   payments
		WHERE  session_id = ?
		ORDER BY transaction_id`, id)
	if err != nil {
		return s, err
	}
	s.Named, err = queryAll(q, scanGatewayName, `
		SELECT kind, name
		FROM   gateway_names
		WHERE  session_id = ?
		ORDER BY kind, name`, id)
	return s, err
}

func scanPayment(r row) (p Payment, err error) {
	err = r.Scan(&p.TransactionID, &p.RequestID, &p.State, &p.Amount, &p.Returned)
	return p, err
}

func scanGatewayName(r row) (n GatewayName, err error) {
	err = r.Scan(&n.Kind, &n.Name)
	return n, err
}

// askedLately is how long after a question about a session the next one has to wait, whoever wants to know.
const askedLately = 3 * time.Second

// errAskedLately says that somebody is asking about a session, or has just done so.
var errAskedLately = errors.New("the gateway has just been asked")

// LeasePaymentSession takes the lease of a session, so that the caller can ask the gateway about it. The error is
// errAskedLately if somebody else has the lease, or had it within the time of askedLately.
func (db *DB) LeasePaymentSession(ctx context.Context, id string) (AskedSession, error) {
	return writeResult(ctx, db, func(tx *Tx) (s AskedSession, err error) {
		taken, err := tx.exec(`
			UPDATE payment_sessions
			SET    leased_until = ?1, tried_at = ?2
			WHERE  id = ?3 AND leased_until <= ?2 AND tried_at <= ?4`,
			tx.now.Add(leaseTime), tx.now, id, tx.now.Add(-askedLately))
		if err != nil {
			return s, err
		}
		if taken == 0 {
			return s, errAskedLately
		}
		return tx.db.askedSession(tx, id)
	})
}

// CheckSoon makes a session due, unless the gateway was asked about it lately.
func (db *DB) CheckSoon(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec(`
			UPDATE payment_sessions
			SET    next_check_at = ?1
			WHERE  id = ?2 AND next_check_at > ?1 AND tried_at <= ?3`, tx.now, id, tx.now.Add(-askedLately))
		return err
	})
}

// ReleasePaymentSessions releases the leases that an earlier process left behind.
func (db *DB) ReleasePaymentSessions(ctx context.Context) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("UPDATE payment_sessions SET leased_until = 0 WHERE leased_until > 0")
		return err
	})
}

// dueSession is a session that is to be asked about now.
type dueSession struct {
	id      string
	account string // the store and the provider, which share a gateway's patience
}

// sqlSessionsDue takes the time, and the latest time of a question that was not lately. It has no limit: many that
// wait for one gateway must not hide one of another.
const sqlSessionsDue = `
	SELECT s.id, o.store_id || s.provider
	FROM   payment_sessions s INDEXED BY payment_sessions_due
	CROSS JOIN orders o ON o.row = s.order_row
	WHERE  s.next_check_at <= ?1 AND s.leased_until <= ?1 AND s.tried_at <= ?2
	ORDER BY s.next_check_at`

// PaymentSessionsDue returns the sessions to ask the gateways about now. The one that is due for longest comes first.
func (db *DB) PaymentSessionsDue() ([]dueSession, error) {
	now := db.Now()
	return queryAll(db.reader, scanDueSession, sqlSessionsDue, now, now.Add(-askedLately))
}

func scanDueSession(r row) (d dueSession, err error) {
	err = r.Scan(&d.id, &d.account)
	return d, err
}

// ofStore keeps the payments p of one store and provider: another store may have been told of the same payment.
const ofStore = `
			 JOIN   payment_sessions of ON of.id = p.session_id
			 JOIN   orders oo ON oo.row = of.order_row
			 WHERE  of.provider = ?4 AND oo.store_id = ?5`

// NotifiedSession finds a store's session that a notification is about: by the reference that the gateway knows
// it by, or by either name of one of its payments.
func (db *DB) NotifiedSession(storeID string, provider Provider, n notice) (SessionWithOrder, error) {
	return queryOne(db.reader, scanSessionWithOrder, sqlSession+`s.id = coalesce(
			(SELECT n.id
			 FROM   orders no
			 JOIN   payment_sessions n ON n.order_row = no.row
			 WHERE  no.row = ?6 AND no.id || '-' || n.attempt = ?1),
			(SELECT session_id FROM payments p`+ofStore+` AND p.transaction_id = ?2 AND p.transaction_id <> ''),
			(SELECT session_id FROM payments p`+ofStore+` AND p.request_id = ?3 AND p.request_id <> ''))
		AND s.provider = ?4 AND o.store_id = ?5`,
		n.reference, n.transactionID, n.requestID, provider, storeID, rowIn(n.reference))
}

// AddNotification stores a gateway's verified message about a session, with the names in it, and makes the session
// due. The message is undecided until the gateway has confirmed it, or has told of something later.
func (db *DB) AddNotification(ctx context.Context, s SessionWithOrder, n notice, body []byte) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.insertRow(func(id string) (int64, error) {
			return tx.exec(`
				INSERT INTO notifications (row, store_id, provider, session_id, body, transaction_id, claim)
				VALUES (?, ?, ?, ?, ?, ?, ?)
				ON CONFLICT (row) DO NOTHING`,
				rowOf(id), s.StoreID, s.Provider, s.ID, string(body), n.transactionID, n.claim)
		})
		if err != nil {
			return err
		}

		if n.transactionID != "" {
			_, err := tx.exec(`
				INSERT OR IGNORE INTO payments (session_id, transaction_id, request_id, state, amount, returned)
				VALUES (?, ?, ?, '', 0, 0)`, s.ID, n.transactionID, n.requestID)
			if err != nil {
				return err
			}
		}
		if err := tx.addGatewayNames(s, n); err != nil {
			return err
		}
		return tx.mustChange("UPDATE payment_sessions SET next_check_at = ? WHERE id = ?", tx.now, s.ID)
	})
}

func (tx *Tx) addGatewayNames(s SessionWithOrder, n notice) error {
	names := []GatewayName{{NameRefund, n.refundID}, {NameDispute, n.disputeID}}
	if n.sessionID != s.GatewayID {
		names = append(names, GatewayName{NameSession, n.sessionID})
	}

	for _, name := range names {
		if name.Name == "" {
			continue
		}
		_, err := tx.exec(`
			INSERT OR IGNORE INTO gateway_names (session_id, kind, name)
			VALUES (?, ?, ?)`, s.ID, name.Kind, name.Name)
		if err != nil {
			return err
		}
	}
	return nil
}

// UndecidedNotification is a notification that no answer has confirmed yet.
type UndecidedNotification struct {
	row           int64
	TransactionID string
	Claim         GatewayState
	ReceivedAt    Time
}

func scanUndecided(r row) (n UndecidedNotification, err error) {
	err = r.Scan(&n.row, &n.TransactionID, &n.Claim, &n.ReceivedAt)
	return n, err
}

// GatewayTrouble is an order about which a gateway cannot be asked.
type GatewayTrouble struct {
	Order
	Provider    Provider // of the session, which the order may have had before its buyer chose another method
	AccountID   string
	Problem     Problem
	ProblemText string
}

// LacksKey reports whether the gateway could not be asked because the store has no key for it.
func (t GatewayTrouble) LacksKey() bool { return lacksKey(t.Provider, t.AccountID) }

// LacksKey is the same for a session.
func (s PaymentSession) LacksKey() bool { return lacksKey(s.Provider, s.AccountID) }

func lacksKey(p Provider, accountID string) bool { return accountID == "" && p != ProviderSandbox }

func scanTrouble(r row) (t GatewayTrouble, err error) {
	err = r.Scan(fromJSON{&t.Order}, &t.Provider, &t.AccountID, &t.Problem, &t.ProblemText)
	return t, err
}

// sqlTroubles finds the orders whose gateway could not be asked although money may be there. A session that is over
// and not known is left out: a wrong key leaves many of them behind, and the gateway is asked about them for weeks.
const sqlTroubles = `
	SELECT o.json, s.provider, s.account_id, s.problem, s.problem_text
	FROM   payment_sessions s INDEXED BY payment_sessions_problem
	CROSS JOIN orders o ON o.row = s.order_row
	WHERE  s.problem <> '' AND s.next_check_at IS NOT NULL AND o.store_id = ?
	AND   (s.status = 'starting' OR ` + sessionIsKnown + `)
	ORDER BY s.order_row LIMIT +?`
