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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A payment goes through this file from top to bottom, after session.go has started its session (open).
// receive stores a gateway's notification. pollGateways asks about the sessions of notifications and about
// those that are due; glance asks for a buyer on the pay page, and the command "payment check" for the owner.
// All of them call askGateway, and ApplyGatewayAnswer does what the answer means: decide says what it leads
// to, and apply writes that, with a transition (order.go) if the order's state changes.

// GatewayAnswer is what a gateway says of a session when it is asked.
type GatewayAnswer struct {
	State         GatewayState
	Amount        int64  // paid, or returned
	TransactionID string // of the payment
	RequestID     string // Xendit's other name of the payment
	RefundID      string // of the money that was returned
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

// payments talks to the gateways. No database transaction is open while it does.
type payments struct {
	db           *DB
	log          *slog.Logger
	client       *http.Client
	wakeWebhooks func() // events were committed
	notified     wakeup // notifications were stored
	sandboxKey   string // signs the sandbox's notifications

	starts   sync.Map       // *sessionStart by order: the sessions that are being started
	starting sync.WaitGroup // counts starts
	asking   sync.Map       // chan struct{} by session: closed when the question under way is decided
	queued   sync.Map       // true by notification and session: the questions of askAll
	slots    sync.Map       // chan struct{} by account: a value for each question under way
}

// gatewayTimeout bounds the questions that starting a session, or asking about one, takes together.
const gatewayTimeout = 10 * time.Second

func newPayments(db *DB, log *slog.Logger, wakeWebhooks func()) *payments {
	return &payments{
		db:  db,
		log: log,
		client: &http.Client{
			Timeout:       gatewayTimeout,
			CheckRedirect: noRedirect,
			Transport: &http.Transport{
				MaxIdleConnsPerHost:    8,
				MaxResponseHeaderBytes: 64 << 10,
				IdleConnTimeout:        time.Minute,
			},
		},
		wakeWebhooks: wakeWebhooks,
		notified:     make(wakeup, 1),
		sandboxKey:   rand.Text(),
	}
}

// noRedirect is the CheckRedirect of a client that follows none.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// gateway returns the gateway of a provider as one store's account asks it.
func (p *payments) gateway(storeID string, provider Provider) (gateway, error) {
	if provider == ProviderSandbox {
		return sandbox{p}, nil
	}

	account, err := p.db.GatewayAccount(storeID, provider)
	if err == errNotFound {
		return nil, fmt.Errorf("the store has no key for %s", provider)
	}
	if err != nil {
		return nil, err
	}

	api := caller{p.client, p.db.gatewayURLs[provider], account.SecretKey}
	if provider == ProviderXendit {
		return newXendit(api, account), nil
	}
	return newMidtrans(api, account, p.db.publicURL+"/notifications/midtrans/"+storeID), nil
}

// notification takes a gateway's message: POST /notifications/{provider}/{store_id}. A verified one is stored
// before it is acknowledged, and decided after that by pollGateways.
func (s *server) notification(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		s.notAllowed(w, r, http.MethodPost)
		return
	}

	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		s.respond(w, r, answer{}, errBodyTooLarge)
		return
	}

	provider := Provider(r.PathValue("provider"))
	err = s.payments.receive(r.Context(), provider, r.PathValue("store_id"), r.Header, body)
	s.respond(w, r, answer{data: []byte("{}")}, err)
}

// receive verifies a message and stores it as an undecided notification. A message about a session that is
// not known is acknowledged too, or the gateway would send it again for hours.
func (p *payments) receive(
	ctx context.Context, provider Provider, storeID string, header http.Header, body []byte,
) error {
	gw, err := p.gateway(storeID, provider)
	if outOfService(err) {
		return err
	}
	if err != nil {
		return errNotFound
	}

	name, err := gw.verify(header, body)
	if err != nil {
		return err
	}

	session, err := p.db.NotifiedSession(storeID, provider, name)
	if err == errNotFound {
		p.log.Warn("notification about an unknown session",
			"provider", provider, "store", storeID, "reference", name.reference)
		return nil
	}
	if err != nil {
		return err
	}

	if err := p.db.AddNotification(ctx, session, body); err != nil {
		return err
	}
	p.notified.wake()
	return nil
}

// question asks a gateway how a payment session stands. A notification led to it, or the clock, or a person:
// a buyer's page, or the command "payment check".
type question struct {
	session      SessionWithOrder
	due          bool   // the clock led to it; only then does asking ever end (giveUpAfter)
	notification string // the id of the notification that led to it, else empty
	message      []byte // of the notification
}

// pollGateways asks about a session as soon as a notification about it is stored, and then every 30 s while
// the notification is undecided. Every two seconds it asks about the sessions that are due: see
// PaymentSessionsDue. It returns when ctx has ended and the questions under way are answered.
func (p *payments) pollGateways(ctx context.Context) {
	var rounds sync.WaitGroup
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()

	// last is the newest notification that was taken up. At the start it is empty: all that an earlier process
	// left undecided are taken up.
	last := ""
	for ticks := 0; ctx.Err() == nil; {
		fresh := p.undecided(last)
		if len(fresh) > 0 {
			last = fresh[len(fresh)-1].notification
			rounds.Go(func() { p.askAll(ctx, fresh) })
		}

		select {
		case <-ctx.Done():
		case <-p.notified:
		case <-tick.C:
			ticks++
			due := p.sessionsDue()
			if ticks%15 == 0 {
				due = append(p.undecided(""), due...)
			}
			rounds.Go(func() { p.askAll(ctx, due) })
		}
	}
	rounds.Wait()
}

// undecided returns the questions of the undecided notifications that came after the one named, or of all.
func (p *payments) undecided(after string) []question {
	list, err := p.db.UndecidedNotifications(after)
	if err != nil {
		p.log.Error("cannot read notifications", "error", err)
	}
	return list
}

// sessionsDue returns the questions about the sessions that are due.
func (p *payments) sessionsDue() (list []question) {
	sessions, err := p.db.PaymentSessionsDue()
	if err != nil {
		p.log.Error("cannot look for open payment sessions", "error", err)
	}
	for _, s := range sessions {
		list = append(list, question{session: s, due: true})
	}
	return list
}

// askAll asks all questions and returns when they are answered. It leaves out a question that an earlier call
// has still to answer.
func (p *payments) askAll(ctx context.Context, list []question) {
	var questions sync.WaitGroup
	for _, q := range list {
		key := q.notification + q.session.ID
		_, queued := p.queued.LoadOrStore(key, true)
		if queued {
			continue
		}

		questions.Go(func() {
			defer p.queued.Delete(key)
			p.askInTurn(ctx, q)
		})
	}
	questions.Wait()
}

// questionsPerAccount bounds how many questions about one store's account at a gateway are under way, so that
// a gateway that hangs delays no other.
const questionsPerAccount = 4

// askInTurn asks a question when fewer than questionsPerAccount are under way. When ctx ends, a question
// under way is still decided.
func (p *payments) askInTurn(ctx context.Context, q question) {
	account := string(q.session.Provider) + q.session.StoreID
	value, _ := p.slots.LoadOrStore(account, make(chan struct{}, questionsPerAccount))
	slots := value.(chan struct{})

	select {
	case <-ctx.Done():
	case slots <- struct{}{}:
		p.askGateway(context.WithoutCancel(ctx), q) // After an error it is asked again.
		<-slots
	}
}

// giveUpAfter is how long a gateway that does not answer is asked about a session after its end, and about a
// notification after it came. Then the session counts as unpaid; a notification that comes later still pays
// its order.
const giveUpAfter = 7 * 24 * time.Hour

// askGateway asks the gateway about a session and does what its answer means. The error says why the gateway
// could not be asked. did is that of ApplyGatewayAnswer.
func (p *payments) askGateway(ctx context.Context, q question) (a GatewayAnswer, did string, err error) {
	s := q.session
	limited, cancel := context.WithTimeout(ctx, gatewayTimeout)
	defer cancel()

	unlock, err := p.lockSession(limited, s.ID)
	if err != nil {
		return a, "", err
	}
	defer unlock()

	a, problem := p.queryAndClose(limited, s, q.message)
	if problem != nil {
		if err := p.noteProblem(ctx, s.PaymentSession, problem); err != nil {
			return a, "", errors.Join(problem, err)
		}

		// Only the clock gives up. An answer that the gateway never gave must not decide a notification, and
		// must not be shown to who runs "payment check".
		if !q.due || time.Since(s.ExpiresAt.Time()) < giveUpAfter {
			return a, "", problem
		}
		a = GatewayAnswer{State: StateExpired}
	}

	did, err = p.db.ApplyGatewayAnswer(ctx, s.ID, q.notification, a)
	if did != "" {
		p.wakeWebhooks()
	}
	return a, did, err
}

// lockSession waits until nobody asks about a session, and keeps others from asking until unlock is called:
// an answer that is long on its way must not undo a later one.
func (p *payments) lockSession(ctx context.Context, sessionID string) (unlock func(), err error) {
	answered := make(chan struct{})
	for {
		other, underWay := p.asking.LoadOrStore(sessionID, answered)
		if !underWay {
			break
		}

		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}

	return func() {
		p.asking.Delete(sessionID)
		close(answered)
	}, nil
}

// queryAndClose returns what the gateway says of a session. It closes a session that nobody has paid if its
// order needs no payment any more, and returns what the gateway says after that.
func (p *payments) queryAndClose(
	ctx context.Context, s SessionWithOrder, message []byte,
) (GatewayAnswer, error) {
	gw, err := p.gateway(s.StoreID, s.Provider)
	if err != nil {
		return GatewayAnswer{}, err
	}

	a, err := gw.queryState(ctx, s, message)
	if err != nil || !s.mustClose(a) {
		return a, err
	}

	if err := gw.closeSession(ctx, s.PaymentSession); err != nil {
		return a, err
	}

	a, err = gw.queryState(ctx, s, message)
	if a.State == StateOpen {
		a.State = StateExpired // The page was closed before the buyer chose how to pay.
	}
	return a, err
}

// mustClose reports whether a session could still be paid at the gateway although its order needs no payment
// any more. Two things lead to that. The order was paid in another way, or it failed: endPaymentSessions made
// its active session due. Or the order expired while the session was being created, and PaymentSessionStarted
// made it active after that. Otherwise an order that expired has no active session: see unpaid.
func (s SessionWithOrder) mustClose(a GatewayAnswer) bool {
	if s.State != SessionActive {
		return false
	}

	switch s.OrderStatus {
	case Pending, AwaitingVerification:
		return false
	case Paid: // A challenged payment may be the one that the owner has approved.
		return a.State == StateOpen
	default:
		return a.State == StateOpen || a.State == StateChallenged
	}
}

// ApplyGatewayAnswer does what a gateway's answer about a session means for the session and its order. The
// notification that led to the question is decided by it; the id is empty if none did. Applied again, the
// answer changes nothing. did is the order's new state, "noted" or empty.
func (db *DB) ApplyGatewayAnswer(
	ctx context.Context, sessionID, notification string, a GatewayAnswer,
) (did string, err error) {
	return writeResult(ctx, db, func(tx *Tx) (string, error) {
		_, err := tx.exec("UPDATE notifications SET decided_at = ? WHERE id = ?", tx.now, notification)
		if err != nil {
			return "", err
		}

		s, err := queryOne(tx, scanStanding, sqlStanding, tx.now, sessionID)
		if err != nil {
			return "", err
		}
		return tx.apply(s, a, decide(s, a))
	})
}

// standing is what is known of a payment session and its order when the gateway answers.
type standing struct {
	session       PaymentSession
	order         Status
	orderAmount   int64
	ended         bool // the order is past its expires_at
	latest        bool // the order has no later session
	paysOrder     bool // this session paid the order
	orderHasPayer bool // a session paid the order, this one or another
}

const sqlStanding = "SELECT " + sessionColumns + `,
	       o.status, o.json ->> 'amount', o.expires_at <= ?,
	       s.attempt = (SELECT max(attempt) FROM payment_sessions WHERE order_id = o.id),
	       coalesce(o.paid_by = s.id, 0), o.paid_by IS NOT NULL
	FROM   payment_sessions s
	JOIN   orders o ON o.id = s.order_id
	WHERE  s.id = ?`

func scanStanding(r row) (s standing, err error) {
	s.session, err = scanSessionWith(r,
		&s.order, &s.orderAmount, &s.ended, &s.latest, &s.paysOrder, &s.orderHasPayer)
	return s, err
}

// payable reports whether we expect that the session can still be paid. The page of one that failed often can: Snap
// lets a buyer try again on the same page. Money that came all the same counts without asking this: see settled.
func (s standing) payable() bool {
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
	overpaid   bool // alert: money came, of any amount, and the order keeps its state
}

// decide is the whole policy: what a gateway's answer means for a session and its order. After its outcome
// was applied, the same answer leads to nothing more.
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

// settled decides about money that arrived. The exact amount pays an order that is not paid or refunded yet,
// also one that expired or failed. Any other amount makes a pending order wait for a person. All other money
// leaves the order in its state, with a note and an alert.
func (s standing) settled(a GatewayAnswer) outcome {
	if s.isPaidBy(a) {
		return outcome{}
	}

	out := outcome{session: SessionPaid}
	if s.paysOrder && s.order == Paid { // The owner approved this payment before.
		return out
	}

	exact := a.Amount == s.orderAmount
	if exact && GatewaySettles.possible(s.order) {
		out.paysOrder = true
		return s.transit(out, GatewaySettles, s.note(NotePaid))
	}

	// Only a pending order waits for a person. Any other keeps its state, with an alert: an order that expired
	// and is then paid too little stays expired.
	if !exact && GatewayChallenges.possible(s.order) {
		reason := s.note(NoteOtherAmount)
		reason.Amount, reason.Due = a.Amount, s.orderAmount
		return s.transit(out, GatewayChallenges, reason)
	}

	out.overpaid = true
	out.paysOrder = exact && !s.orderHasPayer
	out.note = s.note(NoteNotNeeded)
	if s.order == Paid && out.paysOrder {
		out.note.Code = NoteMaybeNotNeeded // The owner may have approved the order because of this money.
	}
	out.note.Amount, out.note.Status, out.note.Transaction = a.Amount, s.order, a.TransactionID
	return out
}

// challenged decides about a payment that a person has to look at, unless the owner has already approved the
// order.
func (s standing) challenged() outcome {
	if s.payable() && s.order == Paid {
		return outcome{session: SessionPaid}
	}

	var out outcome
	if s.payable() {
		out.session = SessionActive
	}
	return s.transit(out, GatewayChallenges, s.note(NoteChallenged))
}

// denied decides about a payment that failed or was canceled, or was reversed after it had settled the
// session.
func (s standing) denied(a GatewayAnswer) outcome {
	reversed := s.isPaidBy(a)
	if !s.payable() && !reversed {
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

	// The money that the owner was told to return, or to decide about, is gone.
	if reversed && out.transition == "" {
		out.note = s.note(NoteReversed)
	}
	return out
}

// refunded decides about the whole amount, which was returned.
func (s standing) refunded(a GatewayAnswer) outcome {
	if s.paysOrder && (s.order == Paid || s.order == Refunded) {
		return s.transit(outcome{}, GatewayRefunds, s.note(NoteRefunded))
	}

	out := outcome{note: s.returned(NoteReturned, a)}
	if s.payable() { // It was paid and returned before we heard of either: nothing of it is left.
		out.session = SessionFailed
	}
	return out
}

// partlyRefunded decides about a part that was returned, which leaves a paid order paid. If we never heard of
// the payment, a person decides what the rest is worth.
func (s standing) partlyRefunded(a GatewayAnswer) outcome {
	out := outcome{note: s.returned(NoteReturnedPartly, a)}
	if !s.payable() {
		return out
	}

	out.session = SessionPaid
	return s.transit(out, GatewayChallenges, s.note(NotePaidThenReturned))
}

// unpaid decides about a session that nobody has paid. One that is still open ends here when its order's time is
// over, and the order expires with it; see expireOrders for orders without such a session. Its page is not closed:
// it ends by its own expiry, at about the same time, and money that still comes is a case of settled. The session
// of an order that needs no payment any more has to be closed at the gateway first.
func (s standing) unpaid(a GatewayAnswer) outcome {
	if !s.payable() {
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

// apply writes what decide said, and that the gateway was asked: to the session first, because a transition ends
// the sessions that are still active. It returns the order's new state, "noted" or nothing.
func (tx *Tx) apply(s standing, a GatewayAnswer, out outcome) (did string, err error) {
	_, err = tx.exec(`
		UPDATE payment_sessions
		SET    checked_at = ?1,
		       warning = '',
		       status         = iif(?2 = '', status, ?2),
		       transaction_id = iif(?2 = '' OR ?3 = '', transaction_id, ?3),
		       request_id     = iif(?2 = '' OR ?4 = '', request_id, ?4)
		WHERE  id = ?5`, tx.now, out.session, a.TransactionID, a.RequestID, s.session.ID)
	if err != nil {
		return "", err
	}

	orderID := s.session.OrderID
	if out.note.Code != "" {
		added, err := tx.addNote(orderID, s.order, out.note)
		if err != nil {
			return "", err
		}
		if added {
			did = "noted"
		}
	}

	if out.transition != "" {
		o, err := tx.transition(orderID, out.transition, out.reason)
		if err != nil {
			return "", err
		}
		did = string(o.Status)
	}

	if out.paysOrder || out.overpaid {
		_, err = tx.exec(`
			UPDATE orders
			SET    paid_by  = iif(?, ?, paid_by),
			       overpaid = max(overpaid, ?)
			WHERE  id = ?`, out.paysOrder, s.session.ID, out.overpaid, orderID)
	}
	return did, err
}

// attributePayment records that the owner approved a payment that a gateway reported. What the gateway says of it
// later, such as a refund, concerns the order.
func (tx *Tx) attributePayment(orderID string) error {
	_, err := tx.exec(`
		UPDATE orders
		SET    paid_by = (
			SELECT id FROM payment_sessions
			WHERE  order_id = ?1 AND status IN ('active', 'paid')
			ORDER BY attempt DESC LIMIT 1)
		WHERE  id = ?1`, orderID)
	return err
}

// endPaymentSessions ends the sessions of an order that needs no payment any more. One that has not started never
// will. An active one is due now, so pollGateways closes it at the gateway.
func (tx *Tx) endPaymentSessions(orderID string) error {
	_, err := tx.exec(`
		UPDATE payment_sessions
		SET    status = iif(status = 'starting', 'expired', status),
		       expires_at = min(expires_at, ?),
		       checked_at = 0
		WHERE  order_id = ? AND status IN ('starting', 'active')`, tx.now, orderID)
	return err
}

// glance is askGateway for a page that waits for it, four seconds at most. It asks nothing if the session is
// being asked about, or was within three seconds: a gateway that hangs delays a buyer once, not at every
// look.
func (p *payments) glance(ctx context.Context, s SessionWithOrder) {
	_, underWay := p.asking.Load(s.ID)
	if underWay || time.Since(s.CheckedAt.Time()) <= 3*time.Second {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	p.askGateway(ctx, question{session: s})
}

// expireOrders expires the pending orders whose time is over and that no payment session keeps waiting:
// manual ones, and those whose sessions never started or have ended. While a session may still hold money,
// its gateway is asked instead, and unpaid expires the order.
func (p *payments) expireOrders(ctx context.Context) {
	const batch = 100
	var failed atomic.Bool
	for ctx.Err() == nil && !failed.Load() { // One that failed would be found again at once.
		due, err := p.db.DueOrders(batch)
		if err != nil {
			p.log.Error("cannot look for orders to expire", "error", err)
		}

		// Eight at a time share a commit. Each is a write of its own: one that cannot be changed holds up no
		// other.
		for group := range slices.Chunk(due, 8) {
			var writes sync.WaitGroup
			for _, id := range group {
				writes.Go(func() {
					if !p.expireOrder(ctx, id) {
						failed.Store(true)
					}
				})
			}
			writes.Wait()
		}

		if len(due) > 0 {
			p.wakeWebhooks()
		}
		if len(due) < batch {
			return
		}
	}
}

// expireOrder reports whether an order needs no further attempt to expire it.
func (p *payments) expireOrder(ctx context.Context, id string) bool {
	err := p.db.ExpireOrder(context.WithoutCancel(ctx), id)
	_, refused := errors.AsType[*APIError](err) // The order was paid this moment.
	if err == nil || refused {
		return true
	}

	p.log.Error("cannot expire an order", "order", id, "error", err)
	return false
}

// Mode is whether a gateway takes real money.
type Mode string

const (
	ModeSandbox Mode = "sandbox"
	ModeLive    Mode = "live"
)

// GatewayAccount is a store's account at a payment gateway.
type GatewayAccount struct {
	Provider      Provider
	Mode          Mode
	SecretKey     string
	CallbackToken string // Xendit's
}

// SetGateway stores an account in the place of the store's earlier one at this provider.
func (db *DB) SetGateway(ctx context.Context, storeID string, g GatewayAccount) error {
	return db.change(ctx, `
		INSERT OR REPLACE INTO gateways (store_id, provider, mode, secret_key, callback_token)
		SELECT id, ?, ?, ?, ?
		FROM   stores
		WHERE  id = ?`, g.Provider, g.Mode, g.SecretKey, g.CallbackToken, storeID)
}

const (
	sqlGateways = `
		SELECT provider, mode, secret_key, callback_token
		FROM   gateways
		WHERE  store_id = ?
		ORDER BY provider`
	sqlGateway = `
		SELECT provider, mode, secret_key, callback_token
		FROM   gateways
		WHERE  store_id = ? AND provider = ?`
)

func scanGateway(r row) (g GatewayAccount, err error) {
	err = r.Scan(&g.Provider, &g.Mode, &g.SecretKey, &g.CallbackToken)
	return g, err
}

// GatewayAccount reads a store's account at a provider.
func (db *DB) GatewayAccount(storeID string, provider Provider) (GatewayAccount, error) {
	return queryOne(db.reader, scanGateway, sqlGateway, storeID, provider)
}

// GatewayAccounts lists a store's accounts by provider.
func (db *DB) GatewayAccounts(storeID string) ([]GatewayAccount, error) {
	return queryAll(db.reader, scanGateway, sqlGateways, storeID)
}

// SandboxOffered reports whether a store offers the sandbox: it is in test mode.
func (db *DB) SandboxOffered(storeID string) (bool, error) {
	return queryOne(db.reader, scanValue[bool], "SELECT test_mode FROM stores WHERE id = ?", storeID)
}

// checkGateway returns the first thing that is wrong with an account. Its message is a sentence of its own.
func checkGateway(g GatewayAccount) (wrong Detail, ok bool) {
	switch {
	case g.Provider != ProviderMidtrans && g.Provider != ProviderXendit:
		return Detail{
			"provider",
			"the provider must be midtrans or xendit",
			Fault{Code: FaultChoice, Text: "midtrans, xendit"},
		}, false

	case g.Mode != ModeSandbox && g.Mode != ModeLive:
		return Detail{
			"mode",
			"the mode must be sandbox or live",
			Fault{Code: FaultChoice, Text: "sandbox, live"},
		}, false

	case !isSecret(g.SecretKey):
		return Detail{
			"secret_key",
			"the secret key is needed, without spaces",
			Fault{Code: FaultSecretKey},
		}, false

	case g.Provider == ProviderXendit && !isSecret(g.CallbackToken):
		return Detail{
			"callback_token",
			"Xendit's callback token is needed too, without spaces",
			Fault{Code: FaultCallbackToken},
		}, false

	case !g.keyFitsMode():
		return Detail{
			"secret_key",
			"the secret key is not of the mode " + string(g.Mode),
			Fault{Code: FaultMode, Text: string(g.Mode)},
		}, false
	}
	return Detail{}, true
}

// isSecret reports whether text can be a key or token: printable ASCII without spaces.
func isSecret(text string) bool {
	unprintable := func(r rune) bool { return r <= ' ' || r > '~' }
	return text != "" && len(text) <= 500 && !strings.ContainsFunc(text, unprintable)
}

// keyFitsMode reports whether the secret key can be one of the account's mode. Of Midtrans' keys only some of
// the sandbox's can be recognized.
func (g GatewayAccount) keyFitsMode() bool {
	if g.Provider == ProviderXendit {
		return strings.HasPrefix(g.SecretKey, "xnd_development_") == (g.Mode == ModeSandbox)
	}
	return g.Mode == ModeSandbox || !strings.HasPrefix(g.SecretKey, "SB-")
}
