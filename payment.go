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
	"slices"
	"sync"
	"time"
)

// A payment goes through this file from top to bottom, after session.go has started its session (open). receive
// stores a gateway's notification, which makes the session due. pollGateways asks about the sessions that are due;
// the pay page, the dashboard and the command "payment check" ask about those of one order (checkOrder). All of
// them call check, which holds the session's lease while it asks. ApplyGatewayAnswers does what the answers mean:
// decide (policy.go) says what each leads to, and apply writes that, with a transition (order.go) if the order's
// state changes.

// payments talks to the gateways. No database transaction is open while it does.
type payments struct {
	db           *DB
	log          *slog.Logger
	client       *http.Client
	wakeWebhooks func()         // events were committed
	due          wakeup         // a session is due
	sandboxKey   string         // signs the sandbox's notifications
	starting     sync.WaitGroup // counts the sessions that are being started

	// questions outlasts the requests. It ends with cutOff, when the service can wait for no more answers.
	questions context.Context
	cutOff    func()
}

// gatewayTimeout bounds the questions that starting a session, or asking about one, takes together.
const gatewayTimeout = 10 * time.Second

func newPayments(db *DB, log *slog.Logger, wakeWebhooks func()) *payments {
	questions, cutOff := context.WithCancel(context.Background())
	transport := db.env.transport
	if transport == nil {
		transport = &http.Transport{
			MaxIdleConnsPerHost:    8,
			MaxResponseHeaderBytes: 64 << 10,
			IdleConnTimeout:        time.Minute,
		}
	}
	return &payments{
		db:        db,
		log:       log,
		questions: questions,
		cutOff:    cutOff,
		client: &http.Client{
			Timeout:       gatewayTimeout,
			CheckRedirect: noRedirect,
			Transport:     transport,
		},
		wakeWebhooks: wakeWebhooks,
		due:          make(wakeup, 1),
		sandboxKey:   rand.Text(),
	}
}

// noRedirect is the CheckRedirect of a client that follows none.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// wake makes pollGateways look at once for sessions that are due.
func (p *payments) wake() { p.due.wake() }

// gateway returns the gateway of a provider as one of the store's accounts asks it. Without an account it is a
// refusal: somebody has to store a key.
func (p *payments) gateway(storeID string, provider Provider, accountID string) (gateway, error) {
	if provider == ProviderSandbox {
		return sandbox{p}, nil
	}

	account, err := p.db.GatewayAccountByID(accountID)
	if err == errNotFound {
		return nil, &refusal{Message: "no key is stored for " + string(provider)}
	}
	if err != nil {
		return nil, err
	}
	return p.gatewayOf(storeID, account), nil
}

// gatewayOf returns the gateway that an account of a store is at.
func (p *payments) gatewayOf(storeID string, account GatewayAccount) gateway {
	api := caller{p.client, p.db.gatewayURLs[account.Provider], account.SecretKey, p.db.Now}
	if account.Provider == ProviderXendit {
		return newXendit(api, account)
	}
	return newMidtrans(api, account, p.db.publicURL+"/notifications/midtrans/"+storeID)
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
		s.respond(w, r, answer{}, bodyTooLarge(maxBody))
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
	n, err := p.verify(provider, storeID, header, body)
	if err != nil {
		return err
	}

	session, err := p.db.NotifiedSession(storeID, provider, n)
	if err == errNotFound {
		p.log.Warn("notification about an unknown session", "provider", provider, "store", storeID)
		return nil
	}
	if err != nil {
		return err
	}

	if err := p.db.AddNotification(ctx, session, n, body); err != nil {
		return err
	}
	p.wake()
	return nil
}

// verify returns what a message says if one of the store's accounts at the provider can verify it. The key in use
// comes first; an earlier key may have signed a message about a session that it started.
func (p *payments) verify(provider Provider, storeID string, header http.Header, body []byte) (notice, error) {
	if provider == ProviderSandbox {
		return sandbox{p}.verify(header, body)
	}

	accounts, err := p.db.AllGatewayAccounts(storeID, provider)
	if err != nil {
		return notice{}, err
	}
	err = errNotFound
	for _, account := range accounts {
		var n notice
		n, err = p.gatewayOf(storeID, account).verify(header, body)
		if err == nil {
			return n, nil
		}
	}
	return notice{}, err
}

// questionsPerAccount bounds how many questions about one store's account at a gateway are under way, so that
// a gateway that hangs delays no other.
const questionsPerAccount = 4

// pollPause is how often pollGateways looks for sessions that are due, if nothing wakes it.
const pollPause = 2 * time.Second

// pollGateways asks about the sessions that are due: it looks for them when it is woken and every two seconds. It
// returns when ctx has ended and the questions under way are answered.
func (p *payments) pollGateways(ctx context.Context) {
	tick := p.db.env.tick(pollPause)
	finished := make(chan dueSession)
	underWay := map[string]bool{} // by session
	perAccount := map[string]int{}

	for ctx.Err() == nil || len(underWay) > 0 {
		for _, d := range p.sessionsDue(ctx) {
			if underWay[d.id] || perAccount[d.account] >= questionsPerAccount {
				continue
			}
			underWay[d.id] = true
			perAccount[d.account]++
			go func() {
				// After an error the session is due again. If the database cannot be written, that is at once.
				_, err := p.check(context.WithoutCancel(ctx), d.id, true)
				if err != nil {
					pause(ctx, pollPause)
				}
				finished <- d
			}()
		}

		stopped := ctx.Done()
		if ctx.Err() != nil {
			stopped = nil // It is closed: waiting for it would not wait.
		}
		select {
		case d := <-finished:
			delete(underWay, d.id)
			perAccount[d.account]--
		case <-p.due:
		case <-tick:
		case <-stopped:
		}
	}
}

// pause waits for some time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// sessionsDue returns the sessions to ask about now, and none when ctx has ended.
func (p *payments) sessionsDue(ctx context.Context) []dueSession {
	if ctx.Err() != nil {
		return nil
	}

	list, err := p.db.PaymentSessionsDue()
	if err != nil {
		p.log.Error("cannot look for payment sessions that are due", "error", err)
	}
	return list
}

// checkOrder asks the gateways about all sessions of an order for a person, the latest first. Those that were asked
// about a moment ago are asked about after that moment, or left out if somebody else still asks. The error joins those
// of the sessions.
func (p *payments) checkOrder(ctx context.Context, orderID string) (list []checkedSession, err error) {
	sessions, err := p.db.PaymentSessions(orderID)
	if err != nil {
		return nil, err
	}
	slices.Reverse(sessions)

	list, left, err := p.checkEach(ctx, sessions)
	if len(left) == 0 {
		return list, err
	}

	select {
	case <-time.After(askedLately):
	case <-ctx.Done():
		return list, errors.Join(err, ctx.Err())
	}
	more, _, problem := p.checkEach(ctx, left)
	return append(list, more...), errors.Join(err, problem)
}

// checkEach asks about sessions one after the other, and returns as left those that were asked about a moment ago.
func (p *payments) checkEach(
	ctx context.Context, sessions []SessionWithOrder,
) (list []checkedSession, left []SessionWithOrder, err error) {
	for _, s := range sessions {
		c, problem := p.check(ctx, s.ID, false)
		switch {
		case problem == nil:
			list = append(list, c)
		case problem == errAskedLately:
			left = append(left, s)
		default:
			err = errors.Join(err, fmt.Errorf("%s cannot be asked: %w", s.Provider, withoutAddress(problem)))
		}
	}
	return list, left, err
}

// checkSoon makes a session due, so that pollGateways asks about it as soon as a question is allowed.
func (p *payments) checkSoon(ctx context.Context, sessionID string) {
	if err := p.db.CheckSoon(ctx, sessionID); err != nil {
		p.log.Error("cannot plan a question about a payment session", "error", err)
		return
	}
	p.wake()
}

// checkedSession is a session that the gateway was asked about.
type checkedSession struct {
	AskedSession
	Answers []GatewayAnswer
	Done    string // what the answers led to: the order's new state, "noted" or empty
}

// check asks the gateway about a session and does what its answers mean. The error says why the gateway could not
// be asked; it is errAskedLately if somebody else is asking, or has just asked. byClock says that the session was
// due: only then does asking a gateway that does not answer ever end (giveUpAfter).
func (p *payments) check(ctx context.Context, sessionID string, byClock bool) (c checkedSession, err error) {
	return p.question(ctx, sessionID, byClock, false)
}

// question is check. With closing it also closes a session at the gateway that could still be paid.
func (p *payments) question(
	ctx context.Context, sessionID string, byClock, closing bool,
) (c checkedSession, err error) {
	c.AskedSession, err = p.db.LeasePaymentSession(ctx, sessionID)
	if err != nil {
		return c, err
	}

	// The lease is released also when ctx ends during the question.
	detached := context.WithoutCancel(ctx)
	limited, cancel := p.limit(ctx)
	defer cancel()

	answers, closed, problem := p.ask(limited, c.AskedSession, closing)
	if problem != nil {
		s := c.PaymentSession
		p.logProblem(s, c.Order, problem)
		s.Problem, s.ProblemText = describeProblem(problem, c.Buyer)
		if _, ok := errors.AsType[*notAccepted](problem); ok && s.Problem == ProblemRefused {
			s.Approved = false // until the owner wants it once more
		}
		failingSince, err := p.db.RecordGatewayProblem(detached, s)
		if err != nil {
			return c, errors.Join(problem, err)
		}

		// Giving up changes the order without an answer. Only the clock does that, never a person's question.
		silent := p.db.Now().Sub(max(failingSince, c.OrderEnd))
		if !byClock || failingSince == 0 || silent < giveUpAfter || !p.db.clockTrusted() {
			return c, problem
		}
		return c, p.db.GiveUpPaymentSession(detached, c.ID)
	}

	c.Answers = answers
	c.Done, err = p.db.ApplyGatewayAnswers(detached, c.AskedSession, answers, closed)
	if c.Done != "" {
		p.wakeWebhooks()
	}
	return c, err
}

// limit bounds the questions of one caller to gatewayTimeout, and to the time that the service has to stop.
func (p *payments) limit(ctx context.Context) (limited context.Context, end func()) {
	limited, cancel := context.WithTimeout(ctx, gatewayTimeout)
	stop := context.AfterFunc(p.questions, cancel)
	return limited, func() {
		stop()
		cancel()
	}
}

// ask returns what the gateway says of a session. Before that, it accepts a challenged payment that the owner has
// approved, and closes a session that could still be paid although its order needs no payment. With closing it closes
// the page of an order that waits for its payment, too, unless a payment has arrived or is held.
func (p *payments) ask(
	ctx context.Context, s AskedSession, closing bool,
) (answers []GatewayAnswer, closed bool, err error) {
	gw, answers, doubt, err := p.query(ctx, s)
	if err != nil {
		return nil, false, err
	}

	i := slices.IndexFunc(answers, func(a GatewayAnswer) bool { return a.State == StateChallenged })
	if i >= 0 && s.Approved {
		if err := gw.approve(ctx, s, answers[i]); err != nil {
			return nil, false, &notAccepted{err}
		}
		answers, err = gw.query(ctx, s)
		return answers, false, err
	}

	closing = closing && s.OrderStatus == Pending && !slices.ContainsFunc(answers, mayBePaid)
	if !closing && !mustClose(s.SessionWithOrder, answers, p.db.Now()) {
		return answers, false, doubt
	}
	if s.OrderStatus == Pending && !closing && !p.db.clockTrusted() { // It is over only by the clock.
		return answers, false, doubt
	}
	if doubt != nil { // A key that closes the page is one of the account that has it.
		own, err := gw.(midtrans).closesOwnPage(ctx, s)
		if err != nil || !own {
			return nil, false, doubt
		}
	}
	closed, err = gw.closeSession(ctx, s, answers)
	if err != nil {
		return nil, false, err
	}
	answers, err = gw.query(ctx, s)
	return answers, closed && !slices.ContainsFunc(answers, stillPayable), err
}

// mayBePaid reports whether an answer is about a payment that has arrived, or that is held for its owner.
func mayBePaid(a GatewayAnswer) bool {
	return a.State == StateChallenged || (Payment{State: a.State}).arrived()
}

// notAccepted is the error of a gateway that did not accept a challenged payment.
type notAccepted struct{ problem error }

func (e *notAccepted) Error() string { return e.problem.Error() }
func (e *notAccepted) Unwrap() error { return e.problem }

// query asks with the key that started the session. If the gateway refuses that key, the store has perhaps replaced
// it, so the key in use is tried too. That may be the key of another account. Xendit then does not find the session,
// which is an error. Midtrans finds no payment, which is also its answer while nobody has chosen how to pay. Then doubt
// is the refusal of the first key, and the answer counts only if the key in use can close the page.
func (p *payments) query(
	ctx context.Context, s AskedSession,
) (gw gateway, answers []GatewayAnswer, doubt, err error) {
	gw, err = p.gateway(s.StoreID, s.Provider, s.AccountID)
	if err == nil {
		answers, err = gw.query(ctx, s)
		if err == nil {
			return gw, answers, nil, nil
		}
	}
	if _, refused := errors.AsType[*refusal](err); !refused {
		return nil, nil, nil, err
	}

	inUse, noKey := p.db.GatewayAccount(s.StoreID, s.Provider)
	if noKey != nil || inUse.ID == s.AccountID {
		return nil, nil, nil, err
	}
	gw = p.gatewayOf(s.StoreID, inUse)
	answers, problem := gw.query(ctx, s)
	if problem != nil {
		return nil, nil, nil, err
	}
	if s.Provider == ProviderMidtrans && !paymentBegun(answers) {
		return gw, answers, err, nil
	}
	return gw, answers, nil, nil
}

// ApplyGatewayAnswers does what a gateway's answers about a session mean for the session and its order, decides the
// notifications that they confirm, and releases the lease. closed says that the session was closed at the gateway
// before it answered. Applied again, the answers change nothing. did is the order's new state, "noted" or empty.
// If the caller has lost the lease, the answers are too old and nothing is done.
func (db *DB) ApplyGatewayAnswers(
	ctx context.Context, s AskedSession, answers []GatewayAnswer, closed bool,
) (did string, err error) {
	return writeResult(ctx, db, func(tx *Tx) (string, error) {
		return tx.applyGatewayAnswers(s, answers, closed)
	})
}

func (tx *Tx) applyGatewayAnswers(s AskedSession, answers []GatewayAnswer, closed bool) (did string, err error) {
	held, err := tx.exec(`
		UPDATE payment_sessions
		SET    checked_at = ?, gateway_state = ?, problem = '', problem_text = '', failing_since = 0
		WHERE  id = ? AND leased_until = ?`, tx.now, mainState(answers), s.ID, s.Lease)
	if err != nil || held == 0 {
		return "", err
	}

	news := s.inOrder(answers)
	if closed {
		news, err = tx.afterClosing(s, news)
		if err != nil {
			return "", err
		}
	}
	for _, a := range news {
		d, err := tx.applyAnswer(s, a)
		if err != nil {
			return "", err
		}
		did = cmp.Or(d, did)
	}
	d, err := tx.finishCheck(s, answers)
	return cmp.Or(d, did), err
}

// inOrder returns answers in the order of what happened: a page can be paid again only after its earlier payment was
// reversed, so reversals come first.
func (s AskedSession) inOrder(answers []GatewayAnswer) []GatewayAnswer {
	isReversal := func(a GatewayAnswer) bool {
		had := func(p Payment) bool { return p.TransactionID == a.TransactionID && p.arrived() }
		return slices.ContainsFunc(s.Payments, had) && !Payment{State: a.State}.arrived()
	}

	var reversals, others []GatewayAnswer
	for _, a := range answers {
		if isReversal(a) {
			reversals = append(reversals, a)
		} else {
			others = append(others, a)
		}
	}
	return append(reversals, others...)
}

// afterClosing returns what the answers about a session mean that was closed. What nobody has paid was ended with it,
// payment by payment: that is only recorded, because for the order the session is over. Money that has arrived, or
// had arrived before and was reversed, counts as ever.
func (tx *Tx) afterClosing(s AskedSession, answers []GatewayAnswer) ([]GatewayAnswer, error) {
	news := []GatewayAnswer{{State: StateExpired}}
	for _, a := range answers {
		known, err := tx.payment(s.ID, a.TransactionID)
		if err != nil {
			return nil, err
		}

		now := known.with(a)
		if known.arrived() || now.arrived() {
			news = append(news, a)
			continue
		}
		if err := tx.putPayment(s.ID, now); err != nil {
			return nil, err
		}
	}
	return news, nil
}

// finishCheck does what follows from all answers together: notifications are decided, the order expires if no
// session can hold money for it, and the next question is planned.
func (tx *Tx) finishCheck(s AskedSession, answers []GatewayAnswer) (did string, err error) {
	if err := tx.decideNotifications(s, answers); err != nil {
		return "", err
	}
	if err := tx.scheduleCheck(s.ID); err != nil {
		return "", err
	}
	expired, err := tx.expireIfClear(s.OrderID, s.note(NoteNotPaidInTime))
	if expired {
		did = string(Expired)
	}
	return did, err
}

// note is a note about the session.
func (s AskedSession) note(code NoteCode) Note {
	return Note{Code: code, Provider: s.Provider, Attempt: s.Attempt}
}

// mainState is what a gateway says of a session with several payments: what brought money counts first, then what
// may still bring some.
func mainState(answers []GatewayAnswer) GatewayState {
	for _, state := range []GatewayState{
		StateDisputed, StatePartlyRefunded, StateSettled, StateRefunded, StateChallenged, StateOpen, StateDenied,
	} {
		for _, a := range answers {
			if a.State == state {
				return state
			}
		}
	}
	if len(answers) == 0 {
		return StateOpen
	}
	return answers[0].State
}

// decideNotifications decides the session's notifications that an answer confirms. One that nothing has confirmed
// for the time of giveUpAfter is given up with a note for the owner.
func (tx *Tx) decideNotifications(s AskedSession, answers []GatewayAnswer) error {
	list, err := queryAll(tx, scanUndecided, `
		SELECT row, transaction_id, claim, received_at
		FROM   notifications
		WHERE  session_id = ? AND decided_at IS NULL
		ORDER BY row`, s.ID)
	if err != nil {
		return err
	}

	for _, n := range list {
		confirmed := n.confirmedBy(answers)
		old := tx.now >= n.ReceivedAt.Add(giveUpAfter) && tx.db.clockTrusted()
		if !confirmed && !old {
			continue
		}

		_, err := tx.exec("UPDATE notifications SET decided_at = ? WHERE row = ?", tx.now, n.row)
		if err != nil {
			return err
		}
		if confirmed {
			continue
		}
		if err := tx.noteUnconfirmed(s, n); err != nil {
			return err
		}
	}
	return nil
}

// noteUnconfirmed tells the owner of a notification that is given up.
func (tx *Tx) noteUnconfirmed(s AskedSession, n UndecidedNotification) error {
	status, err := queryOne(tx, scanValue[Status], "SELECT status FROM orders WHERE row = ?", rowOf(s.OrderID))
	if err != nil {
		return err
	}

	note := s.note(NoteUnconfirmed)
	note.State, note.Transaction = n.Claim, n.TransactionID
	_, err = tx.addNote(s.OrderID, status, note)
	return err
}

// confirmedBy reports whether one of the answers confirms a notification.
func (n UndecidedNotification) confirmedBy(answers []GatewayAnswer) bool {
	for _, a := range answers {
		about := n.TransactionID == "" || n.TransactionID == a.TransactionID
		if about && confirms(n.Claim, a.State) {
			return true
		}

		// A dispute that is over leaves the payment settled.
		if about && a.DisputeKnown && (n.Claim == StateDisputed || n.Claim == StateSettled) {
			return true
		}
		// A disputed payment may be partly refunded too.
		if about && a.Returned > 0 && confirms(n.Claim, StatePartlyRefunded) {
			return true
		}
	}
	return false
}

// applyAnswer does what one answer about a session means.
func (tx *Tx) applyAnswer(asked AskedSession, answer GatewayAnswer) (did string, err error) {
	known, err := tx.payment(asked.ID, answer.TransactionID)
	if err != nil {
		return "", err
	}

	for _, a := range inSteps(known, answer) {
		s, err := queryOne(tx, scanStanding, sqlStanding, tx.now, a.TransactionID, asked.ID)
		if err != nil {
			return "", err
		}
		s.payment = known
		d, err := tx.apply(s, a, decide(s, a))
		if err != nil {
			return "", err
		}
		did = cmp.Or(d, did)

		known = known.with(a)
		if err := tx.putPayment(asked.ID, known); err != nil {
			return "", err
		}
	}
	return did, nil
}

// payment returns what is known of a payment; its zero value if nothing is.
func (tx *Tx) payment(sessionID, transactionID string) (Payment, error) {
	p, err := queryOne(tx, scanPayment, `
		SELECT transaction_id, request_id, state, amount, returned
		FROM   payments
		WHERE  session_id = ? AND transaction_id = ?`, sessionID, transactionID)
	if err == errNotFound {
		return Payment{}, nil
	}
	return p, err
}

// putPayment records what is known of a payment. An answer without a name is about the session, and brings none.
func (tx *Tx) putPayment(sessionID string, p Payment) error {
	if p.TransactionID == "" {
		return nil
	}
	_, err := tx.exec(`
		INSERT OR REPLACE INTO payments (session_id, transaction_id, request_id, state, amount, returned)
		VALUES (?, ?, ?, ?, ?, ?)`, sessionID, p.TransactionID, p.RequestID, p.State, p.Amount, p.Returned)
	return err
}

// sqlStanding takes the time, the payment's name and the session. A spare payment is one that the order did not need,
// and whose alert is open: the owner has not returned it in another way.
const sqlStanding = "SELECT " + sessionColumns + `,
	       o.status, o.json ->> 'amount', o.expires_at <= ?1,
	       s.attempt = (SELECT max(attempt) FROM payment_sessions WHERE order_row = o.row),
	       coalesce(o.paid_by = s.id, 0) AND s.transaction_id IN ('', ?2), o.paid_by IS NOT NULL,
	       coalesce(spare.session_id, ''), coalesce(spare.transaction_id, ''),
	       EXISTS (
	           SELECT 1 FROM payments
	           WHERE  session_id = s.id AND transaction_id <> ?2 AND state NOT IN ('', 'denied', 'canceled', 'expired')),
	       o.status = 'awaiting_verification' AND coalesce((
	           SELECT note ->> 'code' = 'challenged' AND note ->> 'attempt' = s.attempt
	           FROM   order_history
	           WHERE  order_row = o.row AND to_status = 'awaiting_verification' AND from_status <> to_status
	           ORDER BY position DESC LIMIT 1), 0)
	FROM   payment_sessions s
	JOIN   orders o ON o.row = s.order_row
	LEFT JOIN payments spare ON (spare.session_id, spare.transaction_id) = (
	           SELECT p.session_id, p.transaction_id
	           FROM   alerts a
	           JOIN   payment_sessions other ON other.order_row = a.order_row
	           JOIN   payments p ON p.session_id = other.id AND p.transaction_id = a.transaction_id
	           WHERE  a.store_id = o.store_id AND a.order_row = o.row AND a.code = 'overpaid' AND a.resolved_at IS NULL
	           AND    p.transaction_id <> ?2 AND p.state = 'settled' AND p.amount = o.json ->> 'amount'
	           ORDER BY a.transaction_id LIMIT 1)
	WHERE  s.id = ?3`

func scanStanding(r row) (s standing, err error) {
	s.session, err = scanSessionWith(r,
		&s.order, &s.orderAmount, &s.ended, &s.latest, &s.paysOrder, &s.orderHasPayer,
		&s.spare.sessionID, &s.spare.transactionID, &s.othersLive, &s.waitsForHeld)
	return s, err
}

// apply writes what decide said: to the session first, because a transition ends the sessions that are still
// active. It returns the order's new state, "noted" or nothing.
func (tx *Tx) apply(s standing, a GatewayAnswer, out outcome) (did string, err error) {
	if err := tx.applyToSession(s, a, out); err != nil {
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

	if out.paysOrder {
		out.payer = sparePayment{s.session.ID, a.TransactionID}
	}
	if out.payer.sessionID != "" {
		if err := tx.setPayer(orderID, out.payer); err != nil {
			return "", err
		}
	}
	if out.transition != "" {
		o, err := tx.transition(orderID, out.transition, out.reason)
		if err != nil {
			return "", err
		}
		did = string(o.Status)
	}

	return did, tx.applyToAlerts(orderID, a, out)
}

// applyToAlerts writes what decide said of the order's alerts.
func (tx *Tx) applyToAlerts(orderID string, a GatewayAnswer, out outcome) error {
	storeID, err := queryOne(tx, scanValue[string], "SELECT store_id FROM orders WHERE row = ?", rowOf(orderID))
	if err != nil {
		return err
	}

	if out.resolved != "" {
		err = tx.resolveAlertsOf(storeID, orderID, a.TransactionID, out.resolved)
	}
	if err == nil && out.moneyGone {
		err = tx.resolveAlertsOf(storeID, orderID, a.TransactionID, alertsOfPayments...)
	}
	if err == nil && out.payer.transactionID != "" {
		err = tx.resolveAlertsOf(storeID, orderID, out.payer.transactionID, AlertOverpaid)
	}
	if err == nil && out.alert.Code != "" {
		err = tx.raiseAlert(storeID, orderID, out.alert)
	}
	return err
}

// setPayer records which payment paid the order.
func (tx *Tx) setPayer(orderID string, p sparePayment) error {
	_, err := tx.exec("UPDATE orders SET paid_by = ? WHERE row = ?", p.sessionID, rowOf(orderID))
	if err != nil {
		return err
	}
	_, err = tx.exec("UPDATE payment_sessions SET transaction_id = ? WHERE id = ?", p.transactionID, p.sessionID)
	return err
}

// applyToSession writes what decide said of the session. The payment that pays the order gives it its
// transaction_id, or the first that arrived if none does.
func (tx *Tx) applyToSession(s standing, a GatewayAnswer, out outcome) error {
	if out.session == "" {
		return nil
	}

	_, err := tx.exec(`
		UPDATE payment_sessions
		SET    status         = ?1,
		       ended_at       = iif(?1 = 'active', ended_at, ?2),
		       transaction_id = iif(?1 = 'paid' AND status <> 'paid', ?3, transaction_id)
		WHERE  id = ?4`, out.session, tx.now, a.TransactionID, s.session.ID)
	return err
}

// attributePayment records that the owner approved a payment that a gateway reported. What the gateway says of it
// later, such as a refund, concerns the order.
func (tx *Tx) attributePayment(orderID string) error {
	_, err := tx.exec(`
		UPDATE orders
		SET    paid_by = (
			SELECT id FROM payment_sessions
			WHERE  order_row = ?1 AND status = 'paid'
			ORDER BY attempt DESC LIMIT 1)
		WHERE  row = ?1`, rowOf(orderID))
	return err
}

// endPaymentSessions makes all sessions of an order due that needs no payment any more: those that can still be paid
// are closed at the gateway, and the others may have been paid meanwhile. One that has not started never will.
func (tx *Tx) endPaymentSessions(orderID string) error {
	_, err := tx.exec(`
		UPDATE payment_sessions
		SET    status        = iif(status = 'starting', 'expired', status),
		       expires_at    = min(expires_at, ?1),
		       ended_at      = ?1,
		       approved      = 0,
		       next_check_at = ?1
		WHERE  order_row = ?2`, tx.now, rowOf(orderID))
	return err
}

// approveOrder approves an order for its owner. A challenged payment is accepted at the gateway, and the order
// becomes paid when the gateway confirms that; any other order becomes paid at once. problem says why the gateway has
// not accepted the payment yet: it is asked again, unless it has refused.
func (p *payments) approveOrder(
	ctx context.Context, storeID, orderID string, n Note,
) (problem, err error) {
	atGateway, err := p.db.ApproveOrder(ctx, storeID, orderID, n)
	if err != nil || !atGateway {
		return nil, err
	}

	limited, cancel := context.WithTimeout(ctx, gatewayTimeout)
	defer cancel()
	_, problem = p.checkOrder(limited, orderID)
	return problem, nil
}

// ApproveOrder records the owner's approval. atGateway says that a challenged payment has to be accepted at the
// gateway first; then the order keeps its state.
func (db *DB) ApproveOrder(ctx context.Context, storeID, orderID string, n Note) (atGateway bool, err error) {
	return writeResult(ctx, db, func(tx *Tx) (bool, error) {
		status, err := queryOne(tx, scanValue[Status],
			"SELECT status FROM orders WHERE row = ? AND id = ? AND store_id = ?", rowOf(orderID), orderID, storeID)
		if err != nil {
			return false, err
		}

		if status == AwaitingVerification || status == Expired || status == Failed {
			held, err := tx.exec(`
				UPDATE payment_sessions
				SET    approved = 1, next_check_at = ?1, tried_at = 0
				WHERE  order_row = ?2 AND status <> 'paid' AND EXISTS (
				           SELECT 1 FROM payments
				           WHERE  session_id = payment_sessions.id AND state = 'challenged')`,
				tx.now, rowOf(orderID))
			if err != nil {
				return false, err
			}
			if held > 0 {
				entry := HistoryEntry{From: status, To: status, Actor: ActorOwner, Note: n}
				return true, tx.addHistory(orderID, entry)
			}
		}

		_, err = tx.transition(orderID, OwnerApproves, n)
		return false, err
	})
}

// GiveUpPaymentSession ends a session about which the gateway has not answered for the time of giveUpAfter since
// its order's end: it counts as unpaid. A notification that comes later still pays its order.
func (db *DB) GiveUpPaymentSession(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec(`
			UPDATE payment_sessions
			SET    status     = iif(status IN ('starting', 'active'), 'expired', status),
			       ended_at   = iif(ended_at = 0, ?1, ended_at),
			       checked_at = ?1
			WHERE  id = ?2 AND leased_until = 0`, tx.now, id)
		if err != nil {
			return err
		}
		s, err := queryOne(tx, scanSessionWithOrder, sqlSession+"s.id = ?", id)
		if err != nil {
			return err
		}
		asked := AskedSession{SessionWithOrder: s}
		if err := tx.decideNotifications(asked, nil); err != nil {
			return err
		}
		_, err = tx.expireIfClear(s.OrderID, asked.note(NoteNotPaidInTime))
		return err
	})
}
