//go:build cgo

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// errorCode is what programs tell errors apart by. Its HTTP status belongs to it, so no error is without one.
type errorCode struct {
	name   string
	status int
}

func (c errorCode) MarshalText() ([]byte, error) { return []byte(c.name), nil }

var (
	codeInvalidRequest           = errorCode{"INVALID_REQUEST", http.StatusBadRequest}
	codeUnauthorized             = errorCode{"UNAUTHORIZED", http.StatusUnauthorized}
	codePlanRequired             = errorCode{"PLAN_REQUIRED", http.StatusForbidden}
	codeNotFound                 = errorCode{"NOT_FOUND", http.StatusNotFound}
	codeMethodNotAllowed         = errorCode{"METHOD_NOT_ALLOWED", http.StatusMethodNotAllowed}
	codeDuplicateExternalID      = errorCode{"DUPLICATE_EXTERNAL_ID", http.StatusConflict}
	codeOutOfStock               = errorCode{"OUT_OF_STOCK", http.StatusConflict}
	codeOrderState               = errorCode{"ORDER_STATE", http.StatusConflict}
	codePayloadTooLarge          = errorCode{"PAYLOAD_TOO_LARGE", http.StatusRequestEntityTooLarge}
	codeUnsupportedMediaType     = errorCode{"UNSUPPORTED_MEDIA_TYPE", http.StatusUnsupportedMediaType}
	codeValidationFailed         = errorCode{"VALIDATION_FAILED", http.StatusUnprocessableEntity}
	codeProductUnavailable       = errorCode{"PRODUCT_UNAVAILABLE", http.StatusUnprocessableEntity}
	codePaymentMethodUnavailable = errorCode{"PAYMENT_METHOD_UNAVAILABLE", http.StatusUnprocessableEntity}
	codeIdempotencyKeyReused     = errorCode{"IDEMPOTENCY_KEY_REUSED", http.StatusUnprocessableEntity}
	codeRateLimited              = errorCode{"RATE_LIMITED", http.StatusTooManyRequests}
	codeInternalError            = errorCode{"INTERNAL_ERROR", http.StatusInternalServerError}
	codeServiceUnavailable       = errorCode{"SERVICE_UNAVAILABLE", http.StatusServiceUnavailable}
)

// APIError is a request that a rule refused. Nothing was changed, and its words may be shown to whoever asked.
type APIError struct {
	Code    errorCode `json:"code"`
	Message string    `json:"message"`
	Details []Detail  `json:"details,omitempty"`
}

// Detail says what is wrong with one field of a request.
type Detail struct {
	Field   string `json:"field"`
	Message string `json:"message"` // in English, to be read after the field's name
	Fault   Fault  `json:"-"`       // the same for the pages, if one of their forms can have it
}

func detailf(field, format string, args ...any) Detail {
	return Detail{Field: field, Message: fmt.Sprintf(format, args...)}
}

func (e *APIError) Error() string {
	text := e.Message
	for _, d := range e.Details {
		text += "\n  " + d.Field + " " + d.Message
	}
	return text
}

var errNotFound = &APIError{Code: codeNotFound, Message: "Not found."}

// server answers HTTP. Its fields are set before it serves.
type server struct {
	db           *DB
	log          *slog.Logger
	queue        *dispatcher
	payments     *payments
	keys         *limiter // by API key
	wrongKeys    *limiter // by address
	uses         uses
	catalog      catalogCache
	accounts     *limiter // passwords tried, by e-mail and address
	everywhere   *limiter // passwords tried, by e-mail
	addresses    *limiter // and by address
	trustedProxy netip.Prefix
	allowPrivate bool // for webhooks
	draining     atomic.Bool
	hashing      chan struct{} // holds one for each password that is being hashed
}

// routes maps what the service answers.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/products", s.api(methods{"GET": s.listProducts}))
	mux.Handle("/v1/payment-methods", s.api(methods{"GET": s.listPaymentMethods}))
	mux.Handle("/v1/orders", s.api(methods{"GET": s.listOrders, "POST": s.createOrder}))
	mux.Handle("/v1/orders/{order_id}", s.api(methods{"GET": s.getOrder}))
	mux.HandleFunc("/v1/openapi.json", s.describe)
	mux.HandleFunc("/notifications/{provider}/{store_id}", s.notification)
	mux.Handle("GET /pay/{order_id}", s.page(s.payPage))
	mux.Handle("POST /pay/{order_id}", s.page(s.buyerClaims))
	mux.Handle("GET /pay/{order_id}/go", s.page(s.goPay))
	mux.Handle("GET /sandbox/{session_id}", s.page(s.sandboxPage))
	mux.Handle("POST /sandbox/{session_id}", s.page(s.sandboxPage))
	mux.HandleFunc("GET /style.css", s.serveStylesheet)
	mux.Handle("/dashboard/login", s.page(s.login))
	mux.Handle("GET /dashboard", s.owner(s.showOrders))
	mux.Handle("GET /dashboard/orders.csv", s.owner(s.exportOrders))
	mux.Handle("GET /dashboard/orders/{order_id}", s.owner(s.showOrder))
	mux.Handle("/dashboard/orders/{order_id}/{act}", s.owner(s.actOnOrder))
	mux.Handle("GET /dashboard/catalog", s.owner(s.showCatalog))
	mux.Handle("/dashboard/catalog/{kind}", s.owner(s.editEntry))
	mux.Handle("GET /dashboard/payments", s.owner(s.paymentSettings))
	mux.Handle("POST /dashboard/payments/gateway", s.owner(s.paymentSettings))
	mux.Handle("GET /dashboard/developers", s.owner(s.showDevelopers))
	mux.Handle("POST /dashboard/keys", s.owner(s.addKey))
	mux.Handle("/dashboard/keys/{key_id}/revoke", s.owner(s.revokeKey))
	mux.Handle("POST /dashboard/endpoints", s.owner(s.addEndpoint))
	mux.Handle("GET /dashboard/endpoints/{endpoint_id}", s.owner(s.showEndpoint))
	mux.Handle("/dashboard/endpoints/{endpoint_id}/{act}", s.owner(s.actOnEndpoint))
	mux.Handle("POST /dashboard/deliveries/{delivery_id}/resend", s.owner(s.resendDelivery))
	mux.Handle("/dashboard/account", s.owner(s.account))
	mux.Handle("/dashboard/account/logout", s.owner(s.logout))
	mux.Handle("POST /dashboard/logout", s.owner(s.logout))
	mux.Handle("/dashboard/", s.page(func(http.ResponseWriter, *http.Request) error { return errNotFound }))
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/readyz", s.readyz)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.respond(w, r, answer{}, errNotFound) })
	return s.outermost(mux)
}

// methods are the handlers of one path, which has a GET; that answers HEAD too.
type methods map[string]apiHandler

// apiHandler answers a request that carried a key of st.
type apiHandler func(r *http.Request, st Store) (answer, error)

// answer is what is sent when all went well.
type answer struct {
	status int // 0: 200
	header http.Header
	data   []byte // JSON, the answer's own
	bare   bool   // data is sent without the envelope
	pooled bool   // data is of buffers and goes back there
}

// buffers are for the answers with orders: they would be most of what is allocated.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// newBuffer is a buffer that begins with text.
func newBuffer(text string) []byte { return append((*buffers.Get().(*[]byte))[:0], text...) }

var (
	errInvalidJSON   = &APIError{Code: codeInvalidRequest, Message: "Invalid JSON body."}
	errUnavailable   = &APIError{Code: codeServiceUnavailable, Message: "The service cannot write at the moment. Nothing was changed; try again."}
	errInternal      = &APIError{Code: codeInternalError, Message: "Internal error."}
	errBodyTooLarge  = &APIError{Code: codePayloadTooLarge, Message: "The body is larger than 64 KiB."}
	errNotJSON       = &APIError{Code: codeUnsupportedMediaType, Message: "Send the header Content-Type: application/json."}
	errMethodMissing = &APIError{Code: codeMethodNotAllowed, Message: "This path does not take this method: see the Allow header."}
)

// badRequest is a request that cannot be understood, in words of its own.
func badRequest(format string, args ...any) *APIError {
	return &APIError{Code: codeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

func (s *server) api(m methods) http.Handler {
	m["HEAD"] = m["GET"]
	allow := slices.Sorted(maps.Keys(m))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle := m[r.Method]
		if handle == nil {
			s.notAllowed(w, r, allow...)
			return
		}
		st, err := s.authenticate(w.Header(), r)
		logged(r).store = st.ID
		var a answer
		if err == nil {
			a, err = handle(r, st)
		}
		s.respond(w, r, a, err)
	})
}

// notAllowed answers a method that a path does not take.
func (s *server) notAllowed(w http.ResponseWriter, r *http.Request, allow ...string) {
	s.respond(w, r, answer{header: http.Header{"Allow": {strings.Join(allow, ", ")}}}, errMethodMissing)
}

// respond is the only place that writes answers of the API: one of the two envelopes.
func (s *server) respond(w http.ResponseWriter, r *http.Request, a answer, err error) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "application/json")
	maps.Copy(header, a.header)
	before, after := `{"success":true,"data":`, "}"
	if a.bare {
		before, after = "", ""
	}
	if err != nil {
		refusal, ok := errors.AsType[*APIError](err)
		switch {
		case ok:
		case errors.Is(err, context.Canceled): // the client has gone
			refusal = errUnavailable
		case outOfService(err):
			refusal = errUnavailable
			header.Set("Retry-After", "5")
			s.log.Error("cannot write to the database", "request_id", logged(r).id, "error", err)
		default:
			refusal = errInternal
			s.log.Error("request failed", "request_id", logged(r).id, "error", err)
		}
		a = answer{status: refusal.Code.status, data: mustJSON(refusal)}
		before, after = `{"success":false,"error":`, "}"
	}
	body := append(a.data, after...)
	if a.status != http.StatusNotModified {
		header.Set("Content-Length", strconv.Itoa(len(before)+len(body)))
	}
	w.WriteHeader(cmp.Or(a.status, http.StatusOK))
	io.WriteString(w, before)
	w.Write(body)
	if a.pooled {
		buffers.Put(&body)
	}
}

// requestLog is what is known of a request when it is logged. It holds no key and nothing of a buyer.
type requestLog struct {
	http.ResponseWriter
	status    int
	id, store string
}

func (l *requestLog) WriteHeader(status int) {
	l.status = status
	l.ResponseWriter.WriteHeader(status)
}

func (l *requestLog) Write(b []byte) (int, error) {
	l.status = cmp.Or(l.status, http.StatusOK)
	return l.ResponseWriter.Write(b)
}

func (l *requestLog) Unwrap() http.ResponseWriter { return l.ResponseWriter }

type requestLogKey struct{}

func logged(r *http.Request) *requestLog { return r.Context().Value(requestLogKey{}).(*requestLog) }

// outermost gives every request its id and its line in the log, and catches panics.
func (s *server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, id := time.Now(), make([]byte, 12)
		rand.Read(id)
		l := &requestLog{ResponseWriter: w, id: hex.EncodeToString(id)}
		w.Header().Set("X-Request-Id", l.id)
		r = r.WithContext(context.WithValue(r.Context(), requestLogKey{}, l))
		defer func() {
			p := recover()
			if p != nil && p != http.ErrAbortHandler {
				s.log.Error("panic", "request_id", l.id, "panic", p, "stack", string(debug.Stack()))
				if l.status == 0 {
					s.respond(l, r, answer{}, errInternal)
				}
			}
			s.log.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("method", r.Method), slog.String("path", loggedPath(r)),
				slog.Int("status", l.status), slog.Duration("duration", time.Since(start)), slog.String("store", l.store),
				slog.String("request_id", l.id))
			if p == http.ErrAbortHandler { // the connection is cut, so that half an answer does not pass for a whole one
				panic(p)
			}
		}()
		if p := r.URL.Path; p != "/" && p != path.Clean(p) { // ServeMux would redirect
			s.respond(l, r, answer{}, errNotFound)
			return
		}
		next.ServeHTTP(l, r)
	})
}

// loggedPath is a request's path, without what is a secret in it: an order's id opens its pay page.
func loggedPath(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/pay/") || strings.HasPrefix(r.URL.Path, "/sandbox/") {
		return r.Pattern
	}
	return r.URL.Path
}

func (s *server) healthz(w http.ResponseWriter, r *http.Request) {
	s.respond(w, r, answer{data: []byte(`{"status":"alive"}`)}, nil)
}

func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	var err error
	if s.draining.Load() {
		err = &APIError{Code: codeServiceUnavailable, Message: "The service is stopping."}
	} else if dbErr := s.db.Ready(); dbErr != nil {
		s.log.Error("the database does not answer", "error", dbErr)
		err = &APIError{Code: codeServiceUnavailable, Message: "The database does not answer."}
	}
	s.respond(w, r, answer{data: []byte(`{"status":"ready"}`)}, err)
}

//go:embed openapi.json
var description []byte

// describe answers the API's description to anyone.
func (s *server) describe(w http.ResponseWriter, r *http.Request) {
	if r.Method != "GET" && r.Method != "HEAD" {
		s.notAllowed(w, r, "GET", "HEAD")
		return
	}
	s.respond(w, r, answer{data: description, bare: true}, parseQuery(r).err)
}

func (s *server) listProducts(r *http.Request, st Store) (answer, error) {
	q := parseQuery(r, "type", "q", "offset", "limit")
	kind := Kind(q.choice("type", string(KindProduct), string(KindBundle)))
	search := q.text("q", 200)
	offset, limit := q.integer("offset", 0, 0, 1_000_000_000), q.integer("limit", 20, 1, 50)
	if q.err != nil {
		return answer{}, q.err
	}
	filter := ProductFilter{
		Products: kind != KindBundle,
		Bundles:  kind != KindProduct,
		Text:     search,
		Offset:   int(offset),
		Limit:    int(limit),
	}
	page, err := s.catalog.page(st, fmt.Sprintf("%s %d %d %s", kind, offset, limit, search), func() ([]byte, error) {
		list, err := s.db.Products(st.ID, filter)
		return mustJSON(list), err
	})
	if err != nil {
		return answer{}, err
	}
	header := http.Header{"Etag": {page.tag}, "Cache-Control": {"private, no-cache"}}
	for known := range strings.SplitSeq(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		if known = strings.TrimPrefix(strings.TrimSpace(known), "W/"); known == page.tag || known == "*" {
			return answer{status: http.StatusNotModified, header: header, bare: true}, nil
		}
	}
	return answer{header: header, data: slices.Clip(page.data)}, nil
}

// catalogCache keeps what GET /v1/products answered. A page counts as long as its store's catalog has the version it was
// made from, which every request reads with its key: no page is older than the request. The zero value is empty.
type catalogCache struct {
	mu    sync.Mutex
	pages map[[2]string]catalogPage // by store and query
	size  int                       // bytes put in since it was last emptied
}

type catalogPage struct {
	version int64
	data    []byte
	tag     string
}

func (c *catalogCache) page(st Store, query string, render func() ([]byte, error)) (catalogPage, error) {
	key := [2]string{st.ID, query}
	c.mu.Lock()
	page, ok := c.pages[key]
	c.mu.Unlock()
	if ok && page.version == st.CatalogVersion {
		return page, nil
	}
	data, err := render()
	if err != nil {
		return page, err
	}
	hash := sha256.Sum256(data)
	page = catalogPage{st.CatalogVersion, data, `"` + hex.EncodeToString(hash[:16]) + `"`}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size += len(data) + 1024 // with what is around it
	if c.pages == nil || c.size > 4<<20 {
		c.pages, c.size = map[[2]string]catalogPage{}, len(data)+1024
	}
	c.pages[key] = page
	return page, nil
}

func (s *server) listPaymentMethods(r *http.Request, st Store) (answer, error) {
	q := parseQuery(r, "amount")
	subtotal := q.integer("amount", -1, 0, maxMoney)
	if q.err != nil {
		return answer{}, q.err
	}
	all, err := s.db.PaymentMethods(st.ID)
	if err != nil {
		return answer{}, err
	}
	all = slices.DeleteFunc(all, func(m PaymentMethod) bool { return !m.Usable || subtotal >= 0 && !m.takes(subtotal) })
	return answer{data: mustJSON(map[string]any{"payment_methods": all})}, nil
}

func (s *server) listOrders(r *http.Request, st Store) (answer, error) {
	q := parseQuery(r, "status", "created_at_min", "created_at_max", "offset", "limit", "external_id", "starting_after")
	f := OrderFilter{
		Status:     Status(q.choice("status", words(statuses)...)),
		Min:        q.time("created_at_min", false),
		Max:        q.time("created_at_max", true),
		ExternalID: q.text("external_id", 64),
		After:      strings.ToLower(q.text("starting_after", 36)),
		Offset:     int(q.integer("offset", 0, 0, 1_000_000_000)),
		Limit:      int(q.integer("limit", 20, 1, 50)),
	}
	switch {
	case q.err != nil:
		return answer{}, q.err
	case f.Min != nil && f.Max != nil && *f.Min > *f.Max:
		return answer{}, badRequest("created_at_min is after created_at_max: give a lower bound that is not above the upper one, such as created_at_min=%s.", f.Max)
	case f.After != "" && q.Has("offset"):
		return answer{}, badRequest("offset and starting_after do not go together: use starting_after alone.")
	}
	if f.After != "" {
		if ok, err := s.db.HasOrder(st.ID, f.After); err != nil {
			return answer{}, err
		} else if !ok {
			return answer{}, badRequest("starting_after is not an order of this store: give the id of the last order of the page before.")
		}
	}
	data, more, err := s.db.Orders(newBuffer(`{"orders":`), st, f)
	if err != nil {
		return answer{}, err
	}
	return answer{data: fmt.Appendf(data, `,"has_more":%t}`, more), pooled: true}, nil
}

func (s *server) createOrder(r *http.Request, st Store) (answer, error) {
	if q := parseQuery(r); q.err != nil {
		return answer{}, q.err
	}
	key := r.Header.Get("Idempotency-Key")
	if values := r.Header.Values("Idempotency-Key"); len(values) > 1 || len(values) == 1 && (key == "" || utf8.RuneCountInString(key) > 255 || !utf8.ValidString(key)) {
		return answer{}, badRequest("Idempotency-Key must be given once and have 1 to 255 characters, such as a UUID.")
	}
	body, err := readJSON(r)
	if err != nil {
		return answer{}, err
	}
	in, err := readNewOrder(body)
	if err != nil {
		return answer{}, err
	}
	if key != "" {
		in.Idempotency = &Idempotency{Key: key, BodyHash: sha256.Sum256(body)}
	}
	created, err := s.db.CreateOrder(r.Context(), st, in)
	if err != nil {
		return answer{}, err
	}
	s.queue.wake()
	header := http.Header{"Location": {"/v1/orders/" + created.ID}}
	if created.Replayed {
		header.Set("Idempotent-Replayed", "true")
	}
	return answer{status: http.StatusCreated, header: header, data: fmt.Appendf(nil, `{"order":%s}`, created.Shown)}, nil
}

func (s *server) getOrder(r *http.Request, st Store) (answer, error) {
	if q := parseQuery(r); q.err != nil {
		return answer{}, q.err
	}
	id := strings.ToLower(r.PathValue("order_id"))
	v, err := s.db.OrderWithSession(st.ID, id)
	if err != nil {
		return answer{}, err
	}
	view := paymentSession{Provider: v.Provider, Status: "none", PaymentURL: st.payPage(id), ExpiresAt: v.ExpiresAt}
	switch {
	case v.Provider == "manual":
		view.Status = "manual"
	case v.Session.State != SessionActive && r.Method != "HEAD" && v.Status == Pending && v.ExpiresAt.Time().After(time.Now()):
		v.Session, err = s.payments.open(r.Context(), st, id)
		switch {
		case outOfService(err): // what was ordered can be read on a full disk too
			s.log.Error("cannot start a payment session", "order", id, "error", err)
			v.Session, err = PaymentSession{State: SessionStarting}, nil
		case err == nil && v.Session.ID == "": // the order has moved meanwhile
			v, err = s.db.OrderWithSession(st.ID, id)
		}
		if err != nil {
			return answer{}, err
		}
	}
	switch {
	case v.Session.State == SessionStarting:
		if v.Status == Pending {
			view.Status = "unavailable"
		}
	case v.Session.ID != "":
		view.ID, view.Status, view.Attempt, view.ExpiresAt = v.Session.ID, string(v.Session.State), v.Session.Attempt, v.Session.ExpiresAt
		if v.Session.State == SessionActive && v.Status == Pending {
			view.PaymentURL = v.Session.URL
		}
	}
	data := appendOrder(newBuffer(`{"order":`), v.Stored, st.payPage(id), view.PaymentURL)
	data = append(append(data, `,"payment_session":`...), mustJSON(view)...)
	return answer{data: append(data, '}'), pooled: true}, nil
}

// paymentSession is where an order's payment stands.
type paymentSession struct {
	ID         string   `json:"id,omitempty"` // of a session at a gateway
	Provider   Provider `json:"provider"`
	Status     string   `json:"status"` // active, paid, failed, expired, manual, none or unavailable
	PaymentURL string   `json:"payment_url"`
	ExpiresAt  Time     `json:"expires_at"`
	Attempt    int      `json:"attempt"`
}
