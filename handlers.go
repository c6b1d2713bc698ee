package main

// Every request goes through logged, which gives it an id and a line in the log. A request to the API then goes through
// api, which checks its key, limits, plan and scope, parameters and body, in this order. It waits for one of its
// store's places, and then its handler gets the results. Every answer of the API is one of two envelopes, and every
// error becomes one of those in descriptions.
//
// At the end are two endpoints: a client creates an order, and a gateway notifies about its payment. handlers_v1.go has
// the others.

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// routes builds the table of all paths. pageRoutes has those of pages.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	api(s, mux, "GET /v1/store", ScopeRead, "api", s.getStore)
	api(s, mux, "GET /v1/products", ScopeRead, "api", s.listProducts)
	api(s, mux, "GET /v1/payment-methods", ScopeRead, "api", s.listPaymentMethods)
	api(s, mux, "GET /v1/orders", ScopeRead, "api", s.listOrders)
	api(s, mux, "POST /v1/orders", ScopeWrite, "api", s.createOrder)
	api(s, mux, "GET /v1/orders/{order_id}", ScopeRead, "", s.getOrder)
	api(s, mux, "PATCH /v1/orders/{order_id}", ScopeWrite, "api", onOrder(readPatch, s.editOrder))
	api(s, mux, "POST /v1/orders/{order_id}/approve", ScopeManage, "api", onOrder(readOptional, s.performAct))
	api(s, mux, "POST /v1/orders/{order_id}/cancel", ScopeWrite, "api", onOrder(readOptional, s.performAct))
	api(s, mux, "POST /v1/orders/{order_id}/refund", ScopeManage, "api", onOrder(readOptional, s.performAct))
	api(s, mux, "POST /v1/orders/{order_id}/ship", ScopeManage, "api", onOrder(readOptional, s.ship))
	api(s, mux, "POST /v1/orders/{order_id}/unship", ScopeManage, "api", onOrder(readOptional, s.unship))
	api(s, mux, "GET /v1/catalog", ScopeManage, "api", s.getCatalog)
	api(s, mux, "PUT /v1/catalog", ScopeManage, "large", s.putCatalog)
	api(s, mux, "GET /v1/webhooks", ScopeManage, "api", s.listWebhooks)
	api(s, mux, "POST /v1/webhooks", ScopeManage, "api", s.addWebhook)
	api(s, mux, "DELETE /v1/webhooks/{webhook_id}", ScopeManage, "api", s.removeWebhook)
	api(s, mux, "GET /v1/events", ScopeRead, "api", s.listEvents)
	mux.HandleFunc("GET /v1/openapi.json", s.getDescription)
	mux.HandleFunc("POST /notifications/{provider}/{store_id}", s.takeNotification)
	mux.HandleFunc("GET /healthz", s.getHealth)
	mux.HandleFunc("GET /readyz", s.getReadiness)
	s.pageRoutes(mux)
	return s.logged(mux)
}

// server answers HTTP.
type server struct {
	db           *DB
	auth         *auth
	payments     *payments
	publicURL    string       // without a slash at its end
	description  string       // of the API, with the public URL
	pictures     *pictures    // that are being sent
	docs         sync.Map     // the description as a page for strangers, by language: []byte
	allowPrivate bool         // addresses of webhooks
	draining     atomic.Bool  // the service is stopping: it is not ready
	failedAt     atomic.Int64 // the second of the log's last line about a failing database
}

// recorder collects the facts about a request for its line in the log: no keys, and nothing about a buyer.
type recorder struct {
	http.ResponseWriter
	status int // 0 until the answer begins, with WriteHeader
	store  string
}

func (rec *recorder) WriteHeader(status int) {
	rec.status = status
	rec.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// logStore puts the store of a request into its line in the log.
func logStore(w http.ResponseWriter, storeID string) {
	w.(*recorder).store = storeID // logged made it one.
}

// beginAnswer sets the headers of every answer, and returns the request's id.
func beginAnswer(h http.Header) (id string) {
	id = rand.Text()
	h.Set("X-Request-Id", id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	return id
}

// logged gives every request its id and its line in the log, and answers if its handler panics.
func (s *server) logged(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		id := beginAnswer(w.Header())

		defer func() {
			p := recover()
			if p != nil && p != http.ErrAbortHandler && rec.status == 0 {
				s.fail(rec, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
			s.db.log.Info("request", "method", fmt.Sprintf("%.20s", r.Method), "path", loggedPath(r),
				"status", rec.status, "duration_ms", float64(time.Since(start).Microseconds())/1000, "store", rec.store,
				"client", s.auth.client(r).String(), "request_id", id)
			if p != nil && rec.status != http.StatusInternalServerError {
				panic(http.ErrAbortHandler) // Half an answer must not pass for a whole one.
			}
		}()

		_, route := mux.Handler(r)
		switch p := r.URL.Path; {
		case p != "/" && p != path.Clean(p): // ServeMux would redirect.
			s.fail(rec, r, ErrNotFound)
		case route == "":
			mux.ServeHTTP(silent{rec}, r) // It sets the Allow header if the path has other methods.
			err := ErrNotFound
			if w.Header().Get("Allow") != "" {
				err = refuse(methodNotAllowed)
			}
			s.fail(rec, r, err)
		default:
			mux.ServeHTTP(rec, r)
		}
	})
}

// anyID matches what may be an id, a key or a sign-in token. Such a text opens something, so it is not logged.
var anyID = regexp.MustCompile(`[\w-]{20,}`)

// loggedPath returns the route of a request, or its path without ids where there is no route.
func loggedPath(r *http.Request) string {
	if _, route, found := strings.Cut(r.Pattern, " "); found {
		return route
	}
	return fmt.Sprintf("%.200s", anyID.ReplaceAllString(r.URL.Path, "{id}"))
}

// silent keeps the headers of an answer, and drops its status and body.
type silent struct{ http.ResponseWriter }

func (silent) WriteHeader(int) {}

func (silent) Write(b []byte) (int, error) { return len(b), nil }

// Reasons that only an HTTP request can be refused for.
const (
	unauthorized     Reason = "UNAUTHORIZED"
	planRequired     Reason = "PLAN_REQUIRED"
	notFound         Reason = "NOT_FOUND"
	methodNotAllowed Reason = "METHOD_NOT_ALLOWED"
	payloadTooLarge  Reason = "PAYLOAD_TOO_LARGE"
	internalError    Reason = "INTERNAL_ERROR"
)

// apiError is an error as the API shows it.
type apiError struct {
	Code    Reason        `json:"code"`
	Message string        `json:"message"`
	Details []errorDetail `json:"details,omitempty"`
}

// errorDetail is a wrong field of a request. Its message is read after the field's name.
type errorDetail struct {
	Field   string `json:"field"`
	Message string `json:"message"`
	OrderID string `json:"order_id,omitempty"` // the order that has the same external_id
	Left    *int64 `json:"left,omitempty"`     // with OUT_OF_STOCK: how many of it could be ordered
}

// descriptions has the HTTP status and the message of each Reason. A refusal's words replace %s, or the whole message.
var descriptions = map[Reason]struct {
	status  int
	message string
}{
	InvalidRequest:           {400, "Invalid JSON body."},
	unauthorized:             {401, "Missing or invalid Authorization header."},
	planRequired:             {403, "Public API is not available on this store's plan."},
	Forbidden:                {403, "This key's scope does not allow this call."},
	notFound:                 {404, "Not found."},
	methodNotAllowed:         {405, "This path does not take this method: see the Allow header."},
	payloadTooLarge:          {413, "The body is larger than %s."},
	ValidationFailed:         {422, "The request has wrong fields: see details."},
	ProductUnavailable:       {422, "Something in this order is not for sale."},
	PaymentMethodUnavailable: {422, "This payment method cannot be used."},
	IdempotencyKeyReused: {422,
		"This Idempotency-Key was used with another body: send a new key with a new order."},
	OutOfStock:          {409, "There is not enough stock for this order."},
	DuplicateExternalID: {409, "Order %s has this external_id."},
	WrongState:          {409, "The order is %s: this is not possible now."},
	PriceChanged:        {409, "A price has changed."},
	LimitReached:        {409, "There are already as many of these as there can be: remove one first."},
	GatewayRefused:      {409, "The payment gateway refuses this: %s"},
	RateLimited:         {429, "Rate limit exceeded."},
	internalError:       {500, "Internal error."},
	Unavailable: {503,
		"The payment gateway cannot be reached, or did not answer. Look again in a minute, and try again if nothing " +
			"has changed."},
}

// describe turns an error into a client's answer, including its header. Nothing else does.
func describe(h http.Header, err error) (status int, e apiError) {
	refusal := refuse(internalError)
	switch {
	case errors.As(err, &refusal):
	case errors.Is(err, ErrNotFound):
		refusal = refuse(notFound)
	case errors.Is(err, ErrUnknown):
		refusal = &Refusal{Reason: Unavailable,
			Words: "The disk failed while this was being saved: it is unknown whether it was. When the service works " +
				"again, repeat an order with the same Idempotency-Key, or look for it with " +
				"GET /v1/orders?external_id=…."}
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled):
		refusal = &Refusal{Reason: Unavailable,
			Words: "The service cannot use its database at the moment. This request changed nothing; try again."}
	}

	d := descriptions[refusal.Reason]
	switch d.status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(cmp.Or(refusal.Wait, 5)))
	}

	e = apiError{Code: refusal.Reason, Message: cmp.Or(refusal.Words, d.message)}
	if strings.Contains(d.message, "%s") {
		e.Message = fmt.Sprintf(d.message, refusal.Words)
	}

	for _, f := range refusal.Fields {
		e.Details = append(e.Details, errorDetail{f.Field, f.Message(), refusal.OrderID, f.Left})
	}
	return d.status, e
}

// isAPI reports whether a path's errors are answered in the envelope. Errors of all other paths are pages.
var isAPI = matcher(`^/(v1|notifications|healthz|readyz)(/|$)`)

// fail answers an error: in the envelope, or with a page. Failures of the service are logged, but at most once a second
// while the database fails, because then every request may fail.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, e := describe(w.Header(), err)
	now := time.Now().Unix()
	switch {
	case status < 500:
	case status == http.StatusServiceUnavailable && r.Context().Err() != nil: // The client has left.
	case status == http.StatusServiceUnavailable && s.failedAt.Swap(now) == now:
	default:
		s.db.log.Error("request failed", "request_id", w.Header().Get("X-Request-Id"), "error", err)
	}

	if r.ContentLength < 0 || r.ContentLength > maxBody { // Otherwise the server would read on before it answers.
		w.Header().Set("Connection", "close")
	}

	if !isAPI(path.Clean(r.URL.Path)) {
		s.errorPage(w, r, status, err)
		return
	}
	respond(w, status, `{"success":false,"error":`, pieces{string(toJSON(e))})
}

// answerClosed answers while serve is still opening the file. The process is healthy, but not ready.
func answerClosed(w http.ResponseWriter, r *http.Request) {
	beginAnswer(w.Header())
	if r.URL.Path == "/healthz" {
		respond(w, http.StatusOK, `{"success":true,"data":`, pieces{string(toJSON(jsonObject{"status": "alive"}))})
		return
	}

	status, e := describe(w.Header(), &Refusal{Reason: Unavailable,
		Words: "The service is starting: it is upgrading or checking its database. " +
			"This request changed nothing; try again."})
	if isAPI(path.Clean(r.URL.Path)) {
		respond(w, status, `{"success":false,"error":`, pieces{string(toJSON(e))})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, "Toko sedang diperbarui. Coba lagi sebentar lagi.\n\n"+
		"The shop is being upgraded. Try again in a moment.\n")
}

// respond writes an envelope: before, the JSON inside, and the closing brace.
func respond(w http.ResponseWriter, status int, before string, inside pieces) {
	body := slices.Concat(pieces{before}, inside, pieces{"}\n"}).join()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}

// listOf returns the data of an answer with a page of a list. The entries are JSON already; encoding/json would check
// and copy them again.
func listOf(name string, list []pieces, more bool) pieces {
	data := pieces{`{"`, name, `":[`}
	for i, entry := range list {
		if i > 0 {
			data = append(data, ",")
		}
		data = append(data, entry...)
	}
	return append(data, fmt.Sprintf(`],"has_more":%t}`, more))
}

// answer answers with data, or with an error. Data that is JSON already is sent as it is.
func (s *server) answer(w http.ResponseWriter, r *http.Request, status int, found any, err error) {
	if err != nil {
		s.fail(w, r, err)
		return
	}

	inside, isJSON := found.(pieces)
	if !isJSON {
		inside = pieces{string(toJSON(found))}
	}
	respond(w, status, `{"success":true,"data":`, inside)
}

const (
	maxBody    = 64 << 10
	maxCatalog = 1 << 20
)

// apiCall is a request to the API of a store.
type apiCall struct {
	*http.Request
	store        Store
	key          APIKey
	body         []byte
	answerHeader http.Header // Header is the request's
	status       int         // of the answer; 200 unless the handler says something else

	// Both may be called again without effect. leave leaves all of the call's places, before a handler waits for a commit
	// or a gateway. endWork leaves only that for busy work, before the answer is written, which may be read slowly.
	leave, endWork func()
}

// api serves a pattern to the holders of keys with the scope that it needs. work is the kind of place that a request
// takes of its store's (mostPlaces); "" is none, for one that reads a row and then may wait for a gateway. Q is the
// struct of its query parameters.
func api[Q any](s *server, mux *http.ServeMux, pattern string, needs Scope, work string,
	handle func(c *apiCall, query Q) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var query Q
		c := &apiCall{Request: r, answerHeader: w.Header(), status: http.StatusOK, leave: func() {}, endWork: func() {}}
		defer func() { c.leave() }() // A long answer is in memory until it has been written.
		if err := s.beginCall(w, c, needs, work, &query); err != nil {
			s.fail(w, r, err)
			return
		}
		found, err := handle(c, query)
		c.endWork()
		s.answer(w, r, c.status, found, err)
	})
}

// beginCall checks and reads a request to the API, and takes one of its store's places for it. The body of a catalog
// takes much memory, so it waits for the store's place for large work before it is read.
func (s *server) beginCall(w http.ResponseWriter, c *apiCall, needs Scope, work string, query any) error {
	err := s.admit(c, needs)
	logStore(w, c.store.ID)
	if err != nil {
		return err
	}
	if err := readQuery(c.URL.RawQuery, query); err != nil {
		return err
	}

	if work == "large" {
		leave, err := s.auth.place(c.Context(), c.store.ID, work)
		if err != nil {
			return err
		}
		c.leave = leave
	}
	if c.body, err = readBody(w, c.Request); err != nil {
		return err
	}
	if work == "api" {
		if err := s.beginWork(c, work); err != nil {
			return err
		}
	}
	// Each write of the request will hold one of the store's 64 places for writes.
	c.Request = c.WithContext(s.auth.withWritePlaces(c.Context(), c.store.ID, "api writes"))
	return nil
}

// beginWork takes a place for a request to the API, and one of the process's for work that keeps a core busy.
func (s *server) beginWork(c *apiCall, kind string) error {
	leavePlace, err := s.auth.place(c.Context(), c.store.ID, kind)
	if err != nil {
		return err
	}
	endWork, err := s.auth.work(c.Context(), c.store.ID, kind)
	if err != nil {
		leavePlace()
		return err
	}
	c.endWork = endWork
	c.leave = func() {
		endWork()
		leavePlace()
	}
	return nil
}

// admit finds the key of a request and its store, notes that the key was used, and checks what both allow.
func (s *server) admit(c *apiCall, needs Scope) (err error) {
	c.store, c.key, err = s.auth.keyHolder(c.Context(), bearer(c.Header))
	if errors.Is(err, ErrNotFound) {
		if err := s.auth.wrongKeyLimiter.take(s.auth.client(c.Request)); err != nil {
			return err
		}
		return refuse(unauthorized)
	}

	if err != nil {
		return err
	}

	s.auth.usedKeys.Store(c.key.ID, s.db.now())
	allowed := s.auth.takeRequest(c.key.ID, c.store.ID)
	c.answerHeader.Set("X-RateLimit-Limit", strconv.Itoa(allowed.limit))
	c.answerHeader.Set("X-RateLimit-Remaining", strconv.Itoa(allowed.remaining))
	c.answerHeader.Set("X-RateLimit-Reset", strconv.Itoa(allowed.full))
	switch {
	case allowed.err != nil:
		return allowed.err
	case c.store.Plan == PlanFree:
		return refuse(planRequired)
	case !c.key.Scope.allows(needs):
		return &Refusal{Reason: Forbidden,
			Words: fmt.Sprintf("This key has the scope %s, and this call needs %s.", c.key.Scope, needs)}
	}
	return nil
}

// readBody reads the body of a request to the API, which for PUT is a catalog, or of a notification. Its Content-Type
// does not matter: a body that is not JSON is refused anyway.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	most := int64(maxBody)
	if r.Method == http.MethodPut {
		most = maxCatalog
		deadlines := http.NewResponseController(w)
		deadlines.SetReadDeadline(time.Now().Add(15 * time.Second))
		deadlines.SetWriteDeadline(time.Now().Add(45 * time.Second))
	}

	body, err := io.ReadAll(limitBody(w, r, most))
	if err != nil {
		return nil, refuseBody(err)
	}
	return body, nil
}

// limitBody bounds a body. The server's own writer has to know the limit, so that the connection stays open for a
// moment after a refusal. Otherwise the unread rest resets it, and a proxy may lose the answer.
func limitBody(w http.ResponseWriter, r *http.Request, most int64) io.ReadCloser {
	return http.MaxBytesReader(w.(*recorder).ResponseWriter, r.Body, most) // logged made it one.
}

// refuseBody refuses a body that could not be read.
func refuseBody(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Refusal{Reason: payloadTooLarge, Words: fmt.Sprintf("%d KiB", tooLarge.Limit>>10)}
	}
	return malformed("The body did not arrive whole.")
}

type noQuery struct{}

func (s *server) createOrder(c *apiCall, _ noQuery) (any, error) {
	key, err := c.idempotencyKey()
	if err != nil {
		return nil, err
	}

	var in NewOrder
	if err := readJSON(c.body, &in); err != nil { // by the rules in the tags of NewOrder
		return nil, err
	}

	in.Source = FromAPI
	in.IdempotencyKey = key
	in.BodyHash = digest(string(c.body))

	c.leave()
	created, err := s.db.CreateOrder(c.Context(), c.store, in)
	if err != nil {
		return nil, err
	}

	c.status = http.StatusCreated
	c.answerHeader.Set("Location", "/v1/orders/"+created.ID)
	if created.Replayed {
		c.answerHeader.Set("Idempotent-Replayed", "true")
	}
	return pieces{`{"order":`, created.Shown, "}"}, nil
}

// isOneKey reports whether the values of Idempotency-Key, joined by newlines, are a single key in valid UTF-8. A broken
// byte reads as U+FFFD, which is refused.
var isOneKey = matcher(`^[^\n\x{FFFD}]{1,255}$`)

// idempotencyKey returns the request's Idempotency-Key, "" if it has none.
func (c *apiCall) idempotencyKey() (string, error) {
	keys := c.Header.Values("Idempotency-Key")
	key := strings.Join(keys, "\n")
	if keys != nil && !isOneKey(key) {
		return "", malformed("Idempotency-Key must be given once and have 1 to 255 characters, such as a UUID.")
	}
	return key, nil
}

// takeNotification takes a gateway's notification, and answers once it is on disk. The gateway is asked later. With 503
// the gateway sends it again.
func (s *server) takeNotification(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	storeID := r.PathValue("store_id")
	ctx := s.auth.withWritePlaces(r.Context(), storeID, "notification writes")
	err = s.payments.Notify(ctx, Provider(r.PathValue("provider")), storeID, r.Header, body)
	s.answer(w, r, http.StatusOK, jsonObject{}, err)
}
