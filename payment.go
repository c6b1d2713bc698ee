//go:build cgo

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// GatewayAnswer is what a gateway says of a session when it is asked.
type GatewayAnswer struct {
	State         GatewayState
	Amount        int64  // paid, or given back
	TransactionID string // of the payment
	RequestID     string // Xendit's other name of it
	RefundID      string // of what was given back
}

// GatewayState is what a gateway says of a session.
type GatewayState string

const (
	StateOpen           GatewayState = "open"            // nobody has paid yet
	StateSettled        GatewayState = "settled"         // Amount was paid
	StateChallenged     GatewayState = "challenged"      // paid, and a person has to look at it
	StateDenied         GatewayState = "denied"          // this payment failed, or was reversed
	StateCanceled       GatewayState = "canceled"        // by the gateway or in its dashboard
	StateExpired        GatewayState = "expired"         // ended unpaid
	StateRefunded       GatewayState = "refunded"        // Amount was returned
	StatePartlyRefunded GatewayState = "partly refunded" // Amount, a part, was returned
)

// ApplyGatewayAnswer does what a gateway's answer about a session means for the session and its order. It decides
// the notification that led to the question; nil if there was none. Applied again it changes nothing. did is the
// order's new state, "noted" or empty.
func (db *DB) ApplyGatewayAnswer(
	ctx context.Context, sessionID string, n *Notification, a GatewayAnswer,
) (did string, err error) {
	return writeResult(ctx, db, func(tx *Tx) (string, error) {
		if n != nil {
			_, err := tx.exec("UPDATE notifications SET decided_at = ? WHERE id = ?", tx.now, n.ID)
			if err != nil {
				return "", err
			}
		}
		_, err := tx.exec("UPDATE payment_sessions SET checked_at = ?, warning = '' WHERE id = ?", tx.now, sessionID)
		if err != nil {
			return "", err
		}

		s, err := queryOne(tx, scanStanding, sqlStanding, sessionID)
		if err != nil {
			return "", err
		}
		s.ended = s.orderExpiresAt <= tx.now
		return tx.apply(s, a, decide(s, a))
	})
}

// standing is what is known of a payment session and its order when the gateway answers.
type standing struct {
	session        PaymentSession
	order          Status
	due            int64 // the order's amount
	orderExpiresAt Time
	ended          bool // the order is past its expires_at
	latest         bool // the order has no later session
	paysOrder      bool // this session paid the order
	orderHasPayer  bool // a session paid the order, this one or another
}

const sqlStanding = "SELECT " + sessionColumns + `,
	       o.status, o.json ->> 'amount', o.expires_at,
	       s.attempt = (SELECT max(attempt) FROM payment_sessions WHERE order_id = o.id),
	       coalesce(o.paid_by = s.id, 0), o.paid_by IS NOT NULL
	FROM   payment_sessions s
	JOIN   orders o ON o.id = s.order_id
	WHERE  s.id = ?`

func scanStanding(r row) (s standing, err error) {
	s.session, err = scanSessionWith(r,
		&s.order, &s.due, &s.orderExpiresAt, &s.latest, &s.paysOrder, &s.orderHasPayer)
	return s, err
}

// live reports whether the session can still be paid. The page of one that failed often can: Snap lets a buyer try
// again on the same page.
func (s standing) live() bool {
	switch s.session.State {
	case SessionStarting, SessionActive:
		return true
	case SessionFailed:
		return s.latest && (s.order == Pending || s.order == AwaitingVerification)
	}
	return false
}

// isPaidBy reports whether the answer is about the payment that settled the session.
func (s standing) isPaidBy(a GatewayAnswer) bool {
	if s.session.State != SessionPaid {
		return false
	}
	return a.TransactionID == s.session.TransactionID || a.TransactionID == ""
}

// outcome is what an answer leads to. Its zero value changes nothing.
type outcome struct {
	session    SessionState // the session's new state
	note       Note         // added to the order's history before the transition
	transition Transition
	reason     Note // of the transition
	paysOrder  bool // from now on, this session is the one that paid the order
	overpaid   bool // alert: money came that the order does not need
}

// decide is the whole policy: what a gateway's answer means for a session and its order. After its outcome was
// applied, the same answer leads to nothing more.
func decide(s standing, a GatewayAnswer) outcome {
	switch a.State {
	case StateSettled:
		return s.settled(a)
	case StateChallenged:
		return s.challenged()
	case StateDenied, StateCanceled:
		return s.denied(a)
	case StateRefunded:
		return s.refunded(a)
	case StatePartlyRefunded:
		return s.partlyRefunded(a)
	default:
		return s.unpaid(a)
	}
}

// settled: the exact amount pays the order, whatever became of it meanwhile. A person decides about any other
// amount, and about money that the order does not need.
func (s standing) settled(a GatewayAnswer) outcome {
	if s.isPaidBy(a) {
		return outcome{}
	}
	if s.paysOrder && s.order == Paid { // The owner approved this payment before.
		return outcome{session: SessionPaid}
	}

	exact := a.Amount == s.due
	if exact && GatewaySettles.possible(s.order) {
		return outcome{
			session:    SessionPaid,
			transition: GatewaySettles,
			reason:     s.note(NotePaid),
			paysOrder:  true,
		}
	}
	if !exact && GatewayChallenges.possible(s.order) {
		reason := s.note(NoteOtherAmount)
		reason.Amount, reason.Due = a.Amount, s.due
		return outcome{session: SessionPaid, transition: GatewayChallenges, reason: reason}
	}

	note := s.note(NoteNotNeeded)
	if exact && s.order == Paid && !s.orderHasPayer {
		note.Code = NoteMaybeNotNeeded // It may be the money because of which the owner approved the order.
	}
	note.Amount, note.Status, note.Transaction = a.Amount, s.order, a.TransactionID
	return outcome{
		session:   SessionPaid,
		note:      note,
		paysOrder: exact && !s.orderHasPayer,
		overpaid:  true,
	}
}

// challenged: a person has to look at the payment, unless the owner has already approved the order.
func (s standing) challenged() outcome {
	var out outcome
	if s.live() {
		out.session = SessionActive
		if s.order == Paid {
			out.session = SessionPaid
			return out
		}
	}
	return s.transit(out, GatewayChallenges, s.note(NoteChallenged))
}

// denied: the payment failed or was canceled, or was reversed after it had settled the session.
func (s standing) denied(a GatewayAnswer) outcome {
	reversed := s.isPaidBy(a)
	if !s.live() && !reversed {
		return outcome{}
	}

	out := outcome{session: SessionFailed}
	if reversed && s.paysOrder {
		return s.transit(out, GatewayReverses, s.note(NoteReversed))
	}
	if s.latest && (a.State == StateCanceled || s.order == AwaitingVerification) {
		reason := s.note(NoteEndedByGateway)
		reason.State = a.State
		out = s.transit(out, GatewayCancels, reason)
	}
	if reversed && out.transition == "" {
		// The money that the owner was told to return, or to decide about, is gone.
		out.note = s.note(NoteReversed)
	}
	return out
}

// refunded: the whole amount was returned.
func (s standing) refunded(a GatewayAnswer) outcome {
	if s.paysOrder && (s.order == Paid || s.order == Refunded) {
		return s.transit(outcome{}, GatewayRefunds, s.note(NoteRefunded))
	}

	out := outcome{note: s.returned(NoteReturned, a)}
	if s.live() { // It was paid and returned before we heard of either: nothing of it is left.
		out.session = SessionFailed
	}
	return out
}

// partlyRefunded: a part was returned, which leaves a paid order paid. If we never heard of the payment, a person
// decides what the rest is worth.
func (s standing) partlyRefunded(a GatewayAnswer) outcome {
	out := outcome{note: s.returned(NoteReturnedPartly, a)}
	if !s.live() {
		return out
	}
	out.session = SessionPaid
	return s.transit(out, GatewayChallenges, s.note(NotePaidThenReturned))
}

// unpaid: nobody has paid this session. One that is still open ends when its order's time is over; the session of
// an order that needs no payment any more has to be closed at the gateway first.
func (s standing) unpaid(a GatewayAnswer) outcome {
	if !s.live() {
		return outcome{}
	}
	if a.State == StateOpen && (s.order != Pending || !s.ended) {
		return outcome{}
	}

	out := outcome{session: SessionExpired}
	if !s.latest || !s.ended {
		return out
	}
	return s.transit(out, ClockExpires, s.note(NoteNotPaidInTime))
}

// transit adds a transition to an outcome if the order's state allows it.
func (s standing) transit(out outcome, t Transition, reason Note) outcome {
	if t.possible(s.order) {
		out.transition, out.reason = t, reason
	}
	return out
}

// note is a note about the session.
func (s standing) note(code NoteCode) Note {
	return Note{Code: code, Provider: s.session.Provider, Attempt: s.session.Attempt}
}

// returned is a note about money that was returned.
func (s standing) returned(code NoteCode, a GatewayAnswer) Note {
	n := s.note(code)
	n.Amount, n.Transaction = a.Amount, a.RefundID
	return n
}

// apply writes what decide said and returns the order's new state, "noted" or nothing.
func (tx *Tx) apply(s standing, a GatewayAnswer, out outcome) (did string, err error) {
	orderID := s.session.OrderID
	if out.session != "" {
		_, err := tx.exec(`
			UPDATE payment_sessions
			SET    status = ?1,
			       transaction_id = iif(?2 <> '', ?2, transaction_id),
			       request_id     = iif(?3 <> '', ?3, request_id)
			WHERE  id = ?4`, out.session, a.TransactionID, a.RequestID, s.session.ID)
		if err != nil {
			return "", err
		}
	}
	if out.note.Code != "" {
		if err := tx.addNote(orderID, s.order, out.note); err != nil {
			return "", err
		}
		did = "noted"
	}
	if out.transition != "" {
		o, err := tx.transition(orderID, out.transition, out.reason)
		if err != nil {
			return "", err
		}
		did = string(o.Status)
	}
	if out.paysOrder {
		if _, err := tx.exec("UPDATE orders SET paid_by = ? WHERE id = ?", s.session.ID, orderID); err != nil {
			return "", err
		}
	}
	if out.overpaid {
		if _, err := tx.exec("UPDATE orders SET overpaid = 1 WHERE id = ?", orderID); err != nil {
			return "", err
		}
	}
	return did, nil
}

// settlePaymentSessions adapts the payment sessions of an order to its transition from a state.
func (tx *Tx) settlePaymentSessions(orderID string, t Transition, from Status) error {
	// The owner approved a payment that a gateway reported. What the gateway says of it later, such as a refund,
	// concerns the order.
	if t == OwnerApproves && from == AwaitingVerification {
		_, err := tx.exec(`
			UPDATE orders
			SET    paid_by = (
				SELECT id FROM payment_sessions
				WHERE  order_id = ?1 AND status IN ('active', 'paid')
				ORDER BY attempt DESC LIMIT 1)
			WHERE  id = ?1`, orderID)
		if err != nil {
			return err
		}
	}
	if transitions[t].to == AwaitingVerification {
		return nil
	}

	// The order needs no payment any more. A session that has not started never will; an active one is due now,
	// and the check closes it at the gateway.
	_, err := tx.exec(`
		UPDATE payment_sessions
		SET    status = iif(status = 'starting', 'expired', status),
		       expires_at = min(expires_at, ?),
		       checked_at = 0
		WHERE  order_id = ? AND status IN ('starting', 'active')`, tx.now, orderID)
	return err
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
	session PaymentSession
	err     error
}

func newPayments(db *DB, log *slog.Logger, wake func()) *payments {
	return &payments{db: db, log: log, wake: wake, notified: make(chan struct{}, 1), sandboxKey: rand.Text(),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (p *payments) gateway(storeID string, provider Provider) (gateway, error) {
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
func (p *payments) open(ctx context.Context, st Store, orderID string) (PaymentSession, error) {
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
		return PaymentSession{}, ctx.Err()
	}
}

// finish waits for the sessions being started, also those whose client has gone.
func (p *payments) finish() { p.begun.Wait() }

func (p *payments) start(ctx context.Context, st Store, orderID string) (PaymentSession, error) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for asked, lost := false, false; ; { // each but once
		found, err := p.db.BeginPaymentSession(ctx, st.ID, orderID)
		s, again := found.session, found.again
		if err != nil || s.State != SessionStarting {
			return s, err
		}
		_, o, err := p.db.OrderPage(orderID)
		if err != nil {
			return s, err
		}
		gw, err := p.gateway(st.ID, s.Provider)
		if err == nil && again && !asked { // an answer was lost: what did it say?
			asked = true
			var v GatewayAnswer
			if v, err = gw.ask(limited, s, nil); err == nil && v.State != StateOpen {
				if _, err := p.db.ApplyGatewayAnswer(ctx, s.ID, nil, v); err != nil {
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
			if err := p.db.FailPaymentSession(ctx, s.ID); err != nil {
				return s, err
			}
			lost = true
			continue
		}
		if err != nil {
			return s, p.warn(ctx, s, err)
		}
		if wanted, err := p.db.PaymentSessionStarted(ctx, s); err != nil || !wanted {
			return PaymentSession{}, err
		}
		s.State = SessionActive
		return s, nil
	}
}

// warn records that the gateway could not be asked, also when that was because ctx ended.
func (p *payments) warn(ctx context.Context, s PaymentSession, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	p.log.Warn("payment gateway cannot be asked", "provider", s.Provider, "order", s.OrderID, "attempt", s.Attempt, "error", err)
	return p.db.NoteGatewayProblem(context.WithoutCancel(ctx), s.ID, err.Error())
}

// giveUpAfter is how long after its end a session is asked about at a gateway that does not answer. Then it counts as
// unpaid; a notification still pays its order.
const giveUpAfter = 7 * 24 * time.Hour

// glance is check for a page that waits for it: not if the session was just asked about, or is being.
func (p *payments) glance(ctx context.Context, s SessionWithOrder) {
	if _, asking := p.asked.Load(s.ID); !asking && time.Since(s.CheckedAt.Time()) > 3*time.Second {
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		p.check(ctx, s, Notification{})
	}
}

// check asks the gateway about a session and does what its answer means. A session that nobody has paid, of an order
// that needs no payment any more, is closed. n is the notification that led to it, if one did.
func (p *payments) check(ctx context.Context, s SessionWithOrder, n Notification) (v GatewayAnswer, did string, err error) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	done, err := p.alone(limited, s.ID)
	if err != nil {
		return v, "", err
	}
	defer done()
	gw, err := p.gateway(s.StoreID, s.Provider)
	if err == nil {
		v, err = gw.ask(limited, s.PaymentSession, n.Body)
	}
	unwanted := s.State == SessionActive && s.OrderStatus != Pending && s.OrderStatus != AwaitingVerification
	if err == nil && unwanted && (v.State == StateOpen || v.State == StateChallenged && s.OrderStatus != Paid) {
		if err = gw.cancel(limited, s.PaymentSession); err == nil {
			if v, err = gw.ask(limited, s.PaymentSession, n.Body); v.State == StateOpen {
				v.State = StateExpired // its page was closed before anyone chose how to pay
			}
		}
	}
	if err != nil {
		if warnErr := p.warn(ctx, s.PaymentSession, err); time.Since(s.ExpiresAt.Time()) < giveUpAfter || warnErr != nil {
			return v, "", errors.Join(err, warnErr)
		}
		v = GatewayAnswer{State: StateExpired}
	}
	var cause *Notification
	if n.ID != "" {
		cause = &n
	}
	if did, err = p.db.ApplyGatewayAnswer(ctx, s.ID, cause, v); did != "" {
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
		open, err := p.db.PaymentSessionsDue()
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
		account, _ := p.slots.LoadOrStore(string(n.Session.Provider)+n.Session.StoreID, make(chan struct{}, questionsPerAccount))
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
		due, err := p.db.DueOrders(100)
		if err != nil {
			p.log.Error("cannot look for orders to expire", "error", err)
		}
		var failed atomic.Bool
		for some := range slices.Chunk(due, 8) {
			var all sync.WaitGroup
			for _, id := range some {
				all.Go(func() {
					err := p.db.ExpireOrder(context.WithoutCancel(ctx), id)
					if _, refused := errors.AsType[*APIError](err); err != nil && !refused { // refused: paid this moment
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
	err = s.payments.receive(r.Context(), Provider(r.PathValue("provider")), r.PathValue("store_id"), r.Header, body)
	s.respond(w, r, answer{data: []byte("{}")}, err)
}

func (p *payments) receive(ctx context.Context, provider Provider, storeID string, h http.Header, body []byte) error {
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
	var session SessionWithOrder
	if about.reference != "" {
		session, err = p.db.PaymentSessionByReference(storeID, provider, about.reference)
	} else {
		session, err = p.db.PaymentSessionByPayment(storeID, provider, about.transactionID, about.requestID)
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
