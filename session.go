//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// A session is started from top to bottom of this file: open joins all who ask for it, startPaymentSession
// begins it in the database (BeginPaymentSession), createPaymentSession creates it at the gateway and records
// that (PaymentSessionStarted). The rest reads sessions and notifications for payment.go, which decides what
// became of the money.

// SessionState is where a payment session stands.
type SessionState string

const (
	SessionStarting SessionState = "starting" // the gateway has not answered yet
	SessionActive   SessionState = "active"   // its page can be paid
	SessionPaid     SessionState = "paid"
	SessionFailed   SessionState = "failed" // denied, canceled or lost
	SessionExpired  SessionState = "expired"
)

// PaymentSession is one attempt to pay an order at a gateway.
type PaymentSession struct {
	ID            string
	OrderID       string
	Provider      Provider
	Attempt       int // 1, 2, …
	State         SessionState
	GatewayID     string // the gateway's name of the session
	URL           string // the gateway's page
	TransactionID string // the gateway's name of the payment that settled it
	Warning       string // why the gateway could not be asked; empty if it could
	ExpiresAt     Time
	CheckedAt     Time // when the gateway was last asked about it
}

// reference is the name under which a gateway knows a session.
func (s PaymentSession) reference() string { return fmt.Sprintf("%s-%d", s.OrderID, s.Attempt) }

const sessionColumns = `s.id, s.order_id, s.provider, s.attempt, s.status, s.gateway_id, s.payment_url,
	s.transaction_id, s.warning, s.expires_at, s.checked_at`

func scanSession(r row) (PaymentSession, error) { return scanSessionWith(r) }

// scanSessionWith scans sessionColumns, and the columns after them into more.
func scanSessionWith(r row, more ...any) (s PaymentSession, err error) {
	dest := []any{
		&s.ID, &s.OrderID, &s.Provider, &s.Attempt, &s.State, &s.GatewayID, &s.URL,
		&s.TransactionID, &s.Warning, &s.ExpiresAt, &s.CheckedAt,
	}
	err = r.Scan(append(dest, more...)...)
	return s, err
}

const sqlOrderSessions = "SELECT " + sessionColumns + `
	FROM   payment_sessions s
	WHERE  s.order_id = ?
	ORDER BY s.attempt`

// OrderWithSession is an order as GET /v1/orders/{order_id} needs it.
type OrderWithSession struct {
	Stored    string // the order's JSON, without addresses
	Status    Status
	Provider  Provider
	ExpiresAt Time
	Session   PaymentSession // in part: the session that paid the order, else its latest; empty without one
}

const sqlOrder = `
	SELECT o.json, o.status, o.provider, o.expires_at,
	       coalesce(s.id, ''), coalesce(s.attempt, 0), coalesce(s.status, ''),
	       coalesce(s.payment_url, ''), coalesce(s.expires_at, 0)
	FROM   orders o
	LEFT JOIN payment_sessions s ON s.id = coalesce(o.paid_by,
	       (SELECT id FROM payment_sessions WHERE order_id = o.id ORDER BY attempt DESC LIMIT 1))
	WHERE  o.id = ? AND o.store_id = ?`

func scanOrderWithSession(r row) (o OrderWithSession, err error) {
	s := &o.Session
	err = r.Scan(
		&o.Stored, &o.Status, &o.Provider, &o.ExpiresAt,
		&s.ID, &s.Attempt, &s.State, &s.URL, &s.ExpiresAt)
	return o, err
}

// OrderWithSession reads one order of a store.
func (db *DB) OrderWithSession(storeID, id string) (OrderWithSession, error) {
	return queryOne(db.reader, scanOrderWithSession, sqlOrder, id, storeID)
}

// OrderPage reads an order and its store for a page: whoever has an order's id may see its pay page.
func (db *DB) OrderPage(id string) (st Store, o Order, err error) {
	found := db.reader.QueryRow("SELECT "+storeColumns+`, o.json
		FROM   orders o
		JOIN   stores s ON s.id = o.store_id
		WHERE  o.id = ?`, id)
	st, err = db.scanStore(found, fromJSON{&o})
	return st, o, err
}

// sessionStart is a payment session that is being started, for all who ask for it meanwhile.
type sessionStart struct {
	finished chan struct{} // closed when session and err are final
	session  PaymentSession
	err      error
}

// open returns the active session of an order, which has the page to send the buyer to. It starts one if
// there is none; however many ask at once, one is started. The result is a session in the state starting if
// the gateway could not be asked: its warning says why, and the next call tries again. It is an empty session
// if the order needs no payment now. An error is the database's, or says that ctx has ended.
func (p *payments) open(ctx context.Context, st Store, orderID string) (PaymentSession, error) {
	start := &sessionStart{finished: make(chan struct{})}
	other, underWay := p.starts.LoadOrStore(orderID, start)
	if underWay {
		start = other.(*sessionStart)
	} else {
		// A start goes on when its client has gone, because the gateway may have created the page already.
		p.starting.Go(func() { p.runStart(context.WithoutCancel(ctx), start, st, orderID) })
	}

	select {
	case <-start.finished:
		return start.session, start.err
	case <-ctx.Done():
		return PaymentSession{}, ctx.Err()
	}
}

func (p *payments) runStart(ctx context.Context, start *sessionStart, st Store, orderID string) {
	// Only the gateway is asked with limited. Its answer is recorded even if limited has ended meanwhile.
	limited, cancel := context.WithTimeout(ctx, gatewayTimeout)
	defer cancel()

	start.session, start.err = p.startPaymentSession(ctx, limited, st, orderID)
	p.starts.Delete(orderID)
	close(start.finished)
}

// finish waits for the sessions that are being started, also those whose client has gone.
func (p *payments) finish() { p.starting.Wait() }

// startPaymentSession begins a session in the database and creates it at the gateway, which has to answer
// before limited ends. Its result is that of open.
func (p *payments) startPaymentSession(
	ctx, limited context.Context, st Store, orderID string,
) (PaymentSession, error) {
	live, err := p.db.BeginPaymentSession(ctx, st.ID, orderID)
	s := live.session
	if err != nil || s.State != SessionStarting {
		return s, err
	}

	_, o, err := p.db.OrderPage(orderID)
	if err != nil {
		return s, err
	}

	gw, problem := p.gateway(st.ID, s.Provider)
	if problem != nil {
		return s, p.noteProblem(ctx, s, problem)
	}

	// An earlier start may have reached the gateway, and only its answer was lost. What the gateway says of
	// that session counts before another one is created.
	if live.again {
		asked := SessionWithOrder{
			PaymentSession: s,
			StoreID:        st.ID,
			OrderStatus:    o.Status,
			OrderAmount:    o.Amount,
		}
		a, problem := gw.queryState(limited, asked, nil)
		if problem != nil {
			return s, p.noteProblem(ctx, s, problem)
		}

		if a.State != StateOpen { // Once the answer is applied, this session is not starting any more.
			_, err := p.db.ApplyGatewayAnswer(ctx, s.ID, "", a)
			if err != nil {
				return s, err
			}
			p.wakeWebhooks()
			return p.startPaymentSession(ctx, limited, st, orderID)
		}
	}
	return p.createPaymentSession(ctx, limited, gw, charge{s, st, o})
}

// createPaymentSession creates a session at the gateway and records the answer. Its arguments and result are
// those of startPaymentSession.
func (p *payments) createPaymentSession(
	ctx, limited context.Context, gw gateway, c charge,
) (PaymentSession, error) {
	gatewayID, pageURL, problem := gw.create(limited, c)

	// The answer to an earlier start was lost, so nobody was ever shown the page that the gateway has. It is
	// left alone, and the next attempt has a reference of its own.
	if problem == errTaken {
		err := p.db.FailPaymentSession(ctx, c.ID)
		if err != nil {
			return c.PaymentSession, err
		}

		live, err := p.db.BeginPaymentSession(ctx, c.Store.ID, c.OrderID)
		if err != nil || live.session.State != SessionStarting {
			return live.session, err
		}

		c.PaymentSession = live.session
		gatewayID, pageURL, problem = gw.create(limited, c)
	}

	s := c.PaymentSession
	if problem != nil {
		return s, p.noteProblem(ctx, s, problem)
	}

	s.GatewayID = gatewayID
	s.URL = pageURL
	wanted, err := p.db.PaymentSessionStarted(ctx, s)
	if err != nil || !wanted {
		return PaymentSession{}, err
	}

	s.State = SessionActive
	return s, nil
}

// noteProblem logs and records that the gateway could not be asked about a session. The reason may be that
// ctx has ended, so it is recorded without ctx.
func (p *payments) noteProblem(ctx context.Context, s PaymentSession, problem error) error {
	failed, ok := errors.AsType[*url.Error](problem)
	if ok {
		problem = failed.Err // without the address
	}

	p.log.Warn("payment gateway cannot be asked",
		"provider", s.Provider, "order", s.OrderID, "attempt", s.Attempt, "error", problem)
	return p.db.NoteGatewayProblem(context.WithoutCancel(ctx), s.ID, problem.Error())
}

// liveSession is an order's payment session that is starting or active. Its session is empty if the order
// needs none now.
type liveSession struct {
	session PaymentSession
	again   bool // the session is not new: an earlier start may have reached the gateway
}

// BeginPaymentSession returns an order's live session, or a new one in the state starting, which the caller
// has to start at the gateway. An earlier start that failed is taken up again and uses up no attempt.
func (db *DB) BeginPaymentSession(ctx context.Context, storeID, orderID string) (liveSession, error) {
	return writeResult(ctx, db, func(tx *Tx) (liveSession, error) {
		// The index payment_sessions_live refuses a second live session.
		begun, err := tx.exec(`
			INSERT INTO payment_sessions (id, order_id, provider, attempt, status, expires_at, created_at)
			SELECT ?1, o.id, o.provider,
			       (SELECT coalesce(max(attempt), 0) + 1 FROM payment_sessions WHERE order_id = o.id),
			       'starting', o.expires_at, ?2
			FROM   orders o
			WHERE  o.id = ?3 AND o.store_id = ?4 AND o.status = 'pending' AND o.provider <> 'manual'
			AND    o.expires_at > ?2
			ON CONFLICT (order_id) WHERE status IN ('starting', 'active') DO NOTHING`,
			tx.newID(), tx.now, orderID, storeID)
		if err != nil {
			return liveSession{}, err
		}

		s, err := queryOne(tx, scanSession, sqlLiveSession, orderID, storeID, tx.now)
		if err == errNotFound {
			return liveSession{}, nil
		}
		return liveSession{session: s, again: begun == 0}, err
	})
}

const sqlLiveSession = "SELECT " + sessionColumns + `
	FROM   payment_sessions s
	JOIN   orders o ON o.id = s.order_id
	WHERE  s.order_id = ? AND s.status IN ('starting', 'active')
	AND    o.store_id = ? AND o.status = 'pending' AND o.expires_at > ?`

// PaymentSessionStarted records the gateway's answer to a session's start. The session is not wanted any more
// if its order is not pending any more; an order that ended meanwhile has set it to expired. It becomes
// active all the same, because its page can be paid now, but it ends at once. So it is due, and the next
// question closes it if its order has ended (see mustClose).
func (db *DB) PaymentSessionStarted(ctx context.Context, s PaymentSession) (wanted bool, err error) {
	return writeResult(ctx, db, func(tx *Tx) (bool, error) {
		return queryOne(tx, scanValue[bool], `
			UPDATE payment_sessions
			SET    status = 'active', gateway_id = ?1, payment_url = ?2, warning = '', checked_at = ?3,
			       expires_at = iif(
			           (SELECT status FROM orders WHERE id = order_id) = 'pending',
			           expires_at, ?3)
			WHERE  id = ?4 AND status IN ('starting', 'expired')
			RETURNING expires_at > ?3`,
			s.GatewayID, s.URL, tx.now, s.ID)
	})
}

// FailPaymentSession ends a session that exists at the gateway and whose page nobody was ever shown.
func (db *DB) FailPaymentSession(ctx context.Context, id string) error {
	return db.change(ctx, `
		UPDATE payment_sessions
		SET    status = 'failed'
		WHERE  id = ? AND status = 'starting'`, id)
}

// NoteGatewayProblem records that the gateway could not be asked about a session, and why.
func (db *DB) NoteGatewayProblem(ctx context.Context, id, warning string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange(`
			UPDATE payment_sessions
			SET    warning = ?, checked_at = ?
			WHERE  id = ?`, warning, tx.now, id)
	})
}

// SessionWithOrder is a payment session and the state of its order, as the payment rules need them.
type SessionWithOrder struct {
	PaymentSession
	StoreID     string
	OrderStatus Status
	OrderAmount int64
}

func scanSessionWithOrder(r row) (s SessionWithOrder, err error) {
	s.PaymentSession, err = scanSessionWith(r, &s.StoreID, &s.OrderStatus, &s.OrderAmount)
	return s, err
}

const sqlSession = "SELECT " + sessionColumns + `, o.store_id, o.status, o.json ->> 'amount'
	FROM   payment_sessions s
	JOIN   orders o ON o.id = s.order_id
	WHERE  `

// LatestPaymentSession reads an order's latest session.
func (db *DB) LatestPaymentSession(orderID string) (SessionWithOrder, error) {
	return queryOne(db.reader, scanSessionWithOrder,
		sqlSession+"s.order_id = ? ORDER BY s.attempt DESC LIMIT 1", orderID)
}

// PaymentSessionByID reads one session.
func (db *DB) PaymentSessionByID(id string) (SessionWithOrder, error) {
	return queryOne(db.reader, scanSessionWithOrder, sqlSession+"s.id = ?", id)
}

// NotifiedSession finds a store's session that a notification is about: by the reference that the gateway
// knows it by, or by either name of a payment that settled it.
func (db *DB) NotifiedSession(storeID string, provider Provider, name sessionName) (SessionWithOrder, error) {
	return queryOne(db.reader, scanSessionWithOrder, sqlSession+`s.id = coalesce(
			(SELECT id FROM payment_sessions
			 WHERE  order_id = substr(?1, 1, 36) AND order_id || '-' || attempt = ?1),
			(SELECT id FROM payment_sessions WHERE transaction_id = ?2 AND transaction_id <> ''),
			(SELECT id FROM payment_sessions WHERE request_id = ?3 AND request_id <> ''))
		AND s.provider = ?4 AND o.store_id = ?5`,
		name.reference, name.transactionID, name.requestID, provider, storeID)
}

// sessionToAsk is true of a session that may still hold money: an active one, and one whose payment failed,
// because it can often be paid again on the same page. A failed one is asked about until its end and once
// after that: the question after the end sets checked_at to a later time, so the session is left out. An expired
// session is never asked about again, except because of a notification or the command "payment check".
const sessionToAsk = "(s.status = 'active' OR s.status = 'failed' AND s.checked_at < s.expires_at)"

// sqlSessionsDue takes the time. All times are in milliseconds.
const sqlSessionsDue = sqlSession + sessionToAsk + `
	AND s.expires_at <= ?1 + 30*60*1000 -- from half an hour before its end
	AND s.checked_at <= ?1 - iif(
	        s.expires_at <= ?1 AND o.status <> 'awaiting_verification',
	        20*1000,   -- every 20 s after its end
	        5*60*1000) -- else every five minutes
	ORDER BY s.checked_at LIMIT 1000`

// PaymentSessionsDue returns the sessions to ask the gateway about now: every five minutes from half an hour
// before their end, and every 20 s after it. It stays every five minutes while a person has to decide about
// the order. The session that was asked about longest ago comes first, so that a gateway that does not answer
// delays no other.
func (db *DB) PaymentSessionsDue() ([]SessionWithOrder, error) {
	return queryAll(db.reader, scanSessionWithOrder, sqlSessionsDue, timeOf(time.Now()))
}

// AddNotification stores a gateway's verified message about a session. It is undecided until the gateway has
// answered a question about the session.
func (db *DB) AddNotification(ctx context.Context, s SessionWithOrder, body []byte) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec(`
			INSERT INTO notifications (id, store_id, provider, session_id, body, received_at)
			VALUES (?, ?, ?, ?, ?, ?)`,
			tx.newID(), s.StoreID, s.Provider, s.ID, string(body), tx.now)
		return err
	})
}

const sqlUndecided = "SELECT " + sessionColumns + `, o.store_id, o.status, o.json ->> 'amount', n.id, n.body
	FROM   notifications n
	JOIN   payment_sessions s ON s.id = n.session_id
	JOIN   orders o ON o.id = s.order_id
	WHERE  n.decided_at IS NULL AND n.id > ?
	ORDER BY n.id`

// UndecidedNotifications returns the questions of the undecided notifications after the one named, in the
// order in which they came. There is no limit: many that wait for one gateway must not hide a later one of
// another.
func (db *DB) UndecidedNotifications(after string) ([]question, error) {
	oldest := firstID(timeOf(time.Now()).Add(-giveUpAfter))
	return queryAll(db.reader, scanNotification, sqlUndecided, max(after, oldest))
}

func scanNotification(r row) (q question, err error) {
	s := &q.session
	s.PaymentSession, err = scanSessionWith(r,
		&s.StoreID, &s.OrderStatus, &s.OrderAmount, &q.notification, &q.message)
	return q, err
}

// sqlUnreachable finds the orders whose gateway could not be asked.
const sqlUnreachable = `
	SELECT o.json, o.overpaid, s.warning
	FROM   payment_sessions s INDEXED BY payment_sessions_warned
	CROSS JOIN orders o ON o.id = s.order_id
	WHERE  s.warning <> '' AND s.status IN ('starting', 'active') AND o.store_id = ?
	ORDER BY s.order_id LIMIT ?`
