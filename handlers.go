//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/mail"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// server answers HTTP. Its fields are set before it serves.
type server struct {
	db           *DB
	log          *slog.Logger
	queue        *dispatcher
	payments     *payments
	keys         *limiter // by API key
	wrongKeys    *limiter // by address
	keyUse       keyUse
	catalog      catalogCache
	accounts     *limiter // passwords tried, by e-mail and address
	everywhere   *limiter // passwords tried, by e-mail
	addresses    *limiter // and by address
	trustedProxy netip.Prefix
	allowPrivate bool // for webhooks
	draining     atomic.Bool
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

// statusOf is the HTTP status of every error code.
var statusOf = map[string]int{
	"INVALID_REQUEST":            http.StatusBadRequest,
	"UNAUTHORIZED":               http.StatusUnauthorized,
	"PLAN_REQUIRED":              http.StatusForbidden,
	"NOT_FOUND":                  http.StatusNotFound,
	"METHOD_NOT_ALLOWED":         http.StatusMethodNotAllowed,
	"DUPLICATE_EXTERNAL_ID":      http.StatusConflict,
	"OUT_OF_STOCK":               http.StatusConflict,
	"PAYLOAD_TOO_LARGE":          http.StatusRequestEntityTooLarge,
	"UNSUPPORTED_MEDIA_TYPE":     http.StatusUnsupportedMediaType,
	"VALIDATION_FAILED":          http.StatusUnprocessableEntity,
	"PRODUCT_UNAVAILABLE":        http.StatusUnprocessableEntity,
	"PAYMENT_METHOD_UNAVAILABLE": http.StatusUnprocessableEntity,
	"IDEMPOTENCY_KEY_REUSED":     http.StatusUnprocessableEntity,
	"RATE_LIMITED":               http.StatusTooManyRequests,
	"INTERNAL_ERROR":             http.StatusInternalServerError,
	"SERVICE_UNAVAILABLE":        http.StatusServiceUnavailable,
}

var (
	errInvalidJSON   = &Refusal{Code: "INVALID_REQUEST", Message: "Invalid JSON body."}
	errUnavailable   = &Refusal{Code: "SERVICE_UNAVAILABLE", Message: "The service cannot write at the moment. Nothing was changed; try again."}
	errInternal      = &Refusal{Code: "INTERNAL_ERROR", Message: "Internal error."}
	errBodyTooLarge  = &Refusal{Code: "PAYLOAD_TOO_LARGE", Message: "The body is larger than 64 KiB."}
	errNotJSON       = &Refusal{Code: "UNSUPPORTED_MEDIA_TYPE", Message: "Send the header Content-Type: application/json."}
	errMethodMissing = &Refusal{Code: "METHOD_NOT_ALLOWED", Message: "This path does not take this method: see the Allow header."}
)

// badRequest is a request that cannot be understood, in words of its own.
func badRequest(format string, args ...any) *Refusal {
	return &Refusal{Code: "INVALID_REQUEST", Message: fmt.Sprintf(format, args...)}
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
		refusal, ok := errors.AsType[*Refusal](err)
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
		a = answer{status: statusOf[refusal.Code], data: mustJSON(refusal)}
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
		err = &Refusal{Code: "SERVICE_UNAVAILABLE", Message: "The service is stopping."}
	} else if dbErr := s.db.Ready(); dbErr != nil {
		s.log.Error("the database does not answer", "error", dbErr)
		err = &Refusal{Code: "SERVICE_UNAVAILABLE", Message: "The database does not answer."}
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

// ---- The API

func (s *server) listProducts(r *http.Request, st Store) (answer, error) {
	q := parseQuery(r, "type", "q", "offset", "limit")
	kind := q.choice("type", "product", "bundle")
	search := q.text("q", 200)
	offset, limit := q.integer("offset", 0, 0, 1_000_000_000), q.integer("limit", 20, 1, 50)
	if q.err != nil {
		return answer{}, q.err
	}
	page, err := s.catalog.page(st, fmt.Sprintf("%s %d %d %s", kind, offset, limit, search), func() ([]byte, error) {
		products, bundles, more, err := s.db.Products(st.ID, kind, search, int(offset), int(limit))
		return mustJSON(struct {
			Products []Product `json:"products"`
			Bundles  []Product `json:"bundles"`
			HasMore  bool      `json:"has_more"`
		}{products, bundles, more}), err
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
	id, order, replayed, err := s.db.CreateOrder(r.Context(), st, in, key, sha256.Sum256(body))
	if err != nil {
		return answer{}, err
	}
	s.queue.wake()
	header := http.Header{"Location": {"/v1/orders/" + id}}
	if replayed {
		header.Set("Idempotent-Replayed", "true")
	}
	return answer{status: http.StatusCreated, header: header, data: append(append(newBuffer(`{"order":`), order...), '}'), pooled: true}, nil
}

func (s *server) getOrder(r *http.Request, st Store) (answer, error) {
	if q := parseQuery(r); q.err != nil {
		return answer{}, q.err
	}
	id := strings.ToLower(r.PathValue("order_id"))
	v, err := s.db.Order(st.ID, id)
	if err != nil {
		return answer{}, err
	}
	view := paymentSession{Provider: v.Provider, Status: "none", PaymentURL: st.payPage(id), ExpiresAt: v.ExpiresAt}
	switch {
	case v.Provider == "manual":
		view.Status = "manual"
	case v.Session.Status != "active" && r.Method != "HEAD" && v.Status == Pending && v.ExpiresAt.Time().After(time.Now()):
		v.Session, err = s.payments.open(r.Context(), st, id)
		switch {
		case outOfService(err): // what was ordered can be read on a full disk too
			s.log.Error("cannot start a payment session", "order", id, "error", err)
			v.Session, err = Session{Status: "starting"}, nil
		case err == nil && v.Session.ID == "": // the order has moved meanwhile
			v, err = s.db.Order(st.ID, id)
		}
		if err != nil {
			return answer{}, err
		}
	}
	switch {
	case v.Session.Status == "starting":
		if v.Status == Pending {
			view.Status = "unavailable"
		}
	case v.Session.ID != "":
		view.ID, view.Status, view.Attempt, view.ExpiresAt = v.Session.ID, v.Session.Status, v.Session.Attempt, v.Session.ExpiresAt
		if v.Session.Status == "active" && v.Status == Pending {
			view.PaymentURL = v.Session.URL
		}
	}
	data := withAddresses(newBuffer(`{"order":`), v.JSON, st.payPage(id), view.PaymentURL)
	data = append(append(data, `,"payment_session":`...), mustJSON(view)...)
	return answer{data: append(data, '}'), pooled: true}, nil
}

// paymentSession is where an order's payment stands.
type paymentSession struct {
	ID         string `json:"id,omitempty"` // of a session at a gateway
	Provider   string `json:"provider"`
	Status     string `json:"status"` // active, paid, failed, expired, manual, none or unavailable
	PaymentURL string `json:"payment_url"`
	ExpiresAt  Time   `json:"expires_at"`
	Attempt    int    `json:"attempt"`
}

// readNewOrder reads the body of POST /v1/orders.
func readNewOrder(body []byte) (in NewOrder, err error) {
	f, err := parseForm(body)
	if err != nil {
		return in, err
	}
	f.only("items", "buyer", "payment_method", "external_id", "return_url")
	in.PaymentMethod = f.text("payment_method", optional, 64)
	in.ExternalID = f.text("external_id", optional, 64)
	in.ReturnURL = f.address("return_url")
	buyer := f.object("buyer", f.fields["buyer"], "is needed: an object")
	buyer.only("name", "email", "phone")
	in.Buyer = Buyer{Name: buyer.text("name", required, 200), Email: buyer.text("email", optional, 254), Phone: buyer.text("phone", optional, 40)}
	if in.Buyer.Email != "" && !isEmail(in.Buyer.Email) {
		buyer.fault("email", "must be one e-mail address, such as siti@example.id")
	}
	if in.Buyer.Phone != "" && !phonePattern.MatchString(in.Buyer.Phone) {
		buyer.fault("phone", "must have 6 to 20 digits, and beside them only spaces, +, (, ) and -, such as +628123456789")
	}
	if !buyer.has("email") && !buyer.has("phone") && f.has("buyer") {
		buyer.fault("email", "or phone is needed")
	}
	for _, item := range f.list("items", 1, 100) {
		n := NewItem{Quantity: item.integer("quantity", 1, 10_000)}
		kind := item.text("type", required, 20)
		idField := kind + "_id"
		switch kind {
		case "product":
			n.ProductID = item.uuid(idField)
		case "bundle":
			n.BundleID = item.uuid(idField)
		default:
			idField = "product_id"
			if kind != "" {
				item.fault("type", "must be product or bundle")
			}
		}
		item.only("type", idField, "quantity")
		id := n.ProductID + n.BundleID
		if id != "" && item.seen[id] {
			item.fault(idField, "is in the order already: raise that item's quantity")
		}
		item.seen[id] = true
		in.Items = append(in.Items, n)
	}
	return in, f.err()
}

// ---- Reading what clients send

const (
	maxBody  = 64 << 10
	maxDepth = 16
)

// readJSON returns a request's body, which is at most 64 KiB and said to be JSON.
func readJSON(r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, errNotJSON
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, errBodyTooLarge
	} else if err != nil {
		return nil, badRequest("The body did not arrive whole.")
	}
	return body, nil
}

// form reads the fields of a JSON object and collects what is wrong with them, so that a client learns all at once.
type form struct {
	path   string // "" or such as "items[0]."
	fields map[string]any
	absent bool            // the object is missing, which was said already
	seen   map[string]bool // in a list: what identifies the elements so far
	*faults
}

type faults struct {
	malformed *Refusal // outranks the details
	details   []Detail
}

// parseForm reads one JSON object, strictly (RFC 8259, I-JSON's unique keys): no key twice, at most 16 levels.
func parseForm(body []byte) (*form, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, errInvalidJSON
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	value, err := parseValue(dec, 1)
	if err != nil {
		return nil, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, &Refusal{Code: "VALIDATION_FAILED", Message: "The body must be a JSON object."}
	}
	return newForm(fields), nil
}

func newForm(fields map[string]any) *form { return &form{fields: fields, faults: &faults{}} }

// parseValue reads a value of valid JSON, so that the decoder cannot fail.
func parseValue(dec *json.Decoder, depth int) (any, error) {
	token, _ := dec.Token()
	if _, container := token.(json.Delim); container && depth > maxDepth {
		return nil, badRequest("The JSON is nested deeper than %d levels.", maxDepth)
	}
	switch token {
	case json.Delim('{'):
		fields := map[string]any{}
		for dec.More() {
			key, _ := dec.Token()
			name := key.(string)
			if _, ok := fields[name]; ok {
				return nil, badRequest("The key %q is given twice in one object: give it once.", name)
			}
			value, err := parseValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			fields[name] = value
		}
		dec.Token() // the closing brace
		return fields, nil
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			value, err := parseValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		dec.Token()
		return list, nil
	}
	return token, nil
}

func (f *form) fault(name, message string) {
	if !f.absent && len(f.details) < 100 {
		f.details = append(f.details, Detail{f.path + name, message})
	}
}

func (f *form) has(name string) bool {
	_, ok := f.fields[name]
	return ok
}

// err is what was wrong with the form and all forms in it.
func (f *form) err() error {
	if f.malformed != nil {
		return f.malformed
	} else if len(f.details) > 0 {
		return invalid(f.details...)
	}
	return nil
}

// only refuses all other fields. A name in the wrong case is told apart: half the world's decoders would take it.
func (f *form) only(names ...string) {
	for _, given := range slices.Sorted(maps.Keys(f.fields)) {
		if slices.Contains(names, given) {
			continue
		}
		if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, given) }); i >= 0 {
			f.malformed = badRequest("The key %q must be written %q.", f.path+given, f.path+names[i])
		}
		f.fault(given, "is not known here: leave it out")
	}
}

// need says whether a text must be there.
type need int

const (
	required need = iota // at least one character
	optional             // at least one character if it is given
	prose                // may be left out or empty, and may have several lines
)

func (f *form) text(name string, n need, most int) string {
	value, given := f.fields[name]
	text, isText := value.(string)
	length := utf8.RuneCountInString(text)
	control := func(r rune) bool {
		return r == utf8.RuneError || unicode.IsControl(r) && !(n == prose && (r == '\n' || r == '\t'))
	}
	switch {
	case !given && n != required:
	case !given:
		f.fault(name, fmt.Sprintf("is needed: a text of 1 to %d characters", most))
	case !isText || length > most || length == 0 && n != prose || n != prose && strings.TrimSpace(text) == "":
		f.fault(name, fmt.Sprintf("must be a text of 1 to %d characters", most))
	case strings.ContainsFunc(text, control):
		f.fault(name, "must have no control characters and no broken ones (U+FFFD)")
	default:
		return text
	}
	return ""
}

func (f *form) integer(name string, least, most int64) int64 {
	number, _ := f.fields[name].(json.Number)
	n, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil || n < least || n > most {
		f.fault(name, fmt.Sprintf("must be an integer from %d to %d, such as %d", least, most, max(least, 1)))
		return 0
	}
	return n
}

// integerOrNull is nil for null and for a field left out.
func (f *form) integerOrNull(name string, least, most int64) *int64 {
	if f.fields[name] == nil {
		return nil
	}
	n := f.integer(name, least, most)
	return &n
}

// boolean is true for a field left out.
func (f *form) boolean(name string) bool {
	value, isBool := f.fields[name].(bool)
	if f.has(name) && !isBool {
		f.fault(name, "must be true or false")
	}
	return value || !f.has(name)
}

func (f *form) uuid(name string) string {
	text, _ := f.fields[name].(string)
	if text = strings.ToLower(text); !uuidPattern.MatchString(text) {
		f.fault(name, "must be an id from GET /v1/products, such as 0190f5a0-0000-7000-8000-000000000001")
		return ""
	}
	return text
}

// address reads an http or https address that may be left out.
func (f *form) address(name string) string {
	text := f.text(name, optional, 2048)
	if u, err := url.Parse(text); text != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		f.fault(name, "must be an address such as https://shop.example.id/thanks")
	}
	return text
}

// object is the form of a value in this form, which is to be an object.
func (f *form) object(name string, value any, otherwise string) *form {
	fields, ok := value.(map[string]any)
	if !ok {
		f.fault(name, otherwise)
	}
	return &form{path: f.path + name + ".", fields: fields, absent: !ok, faults: f.faults}
}

func (f *form) list(name string, least, most int) []*form {
	values, ok := f.fields[name].([]any)
	if (!ok || len(values) < least || len(values) > most) && (f.has(name) || least > 0) {
		f.fault(name, fmt.Sprintf("must be a list of %d to %d objects", least, most))
		return nil
	}
	forms, seen := make([]*form, len(values)), map[string]bool{}
	for i, value := range values {
		forms[i] = f.object(fmt.Sprintf("%s[%d]", name, i), value, "must be an object")
		forms[i].seen = seen
	}
	return forms
}

var (
	uuidPattern  = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	slugPattern  = regexp.MustCompile(`^[a-z0-9]+(?:-[a-z0-9]+)*$`)
	codePattern  = regexp.MustCompile(`^[a-z0-9]+(?:[_-][a-z0-9]+)*$`)
	hostPattern  = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$`)
	phonePattern = regexp.MustCompile(`^[ +()-]*(?:[0-9][ +()-]*){6,20}$`)
	timePattern  = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)(?:(T\d\d:\d\d)(:\d\d(?:[.,]\d{1,9})?)?(?:Z|([+-]\d\d)(?::?([0-5]\d))?)?)?$`)
)

// phoneMarks takes out of a phone number what phonePattern allows beside digits.
var phoneMarks = strings.NewReplacer(" ", "", "+", "", "(", "", ")", "", "-", "")

// slugOf makes a slug of a name: "Kopi Kita" is kopi-kita.
func slugOf(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return strings.Join(words, "-")
}

// isEmail tells whether text is one bare e-mail address.
func isEmail(text string) bool {
	a, err := mail.ParseAddress(text)
	return err == nil && a.Address == text && len(text) <= 254
}

// parseTime reads an ISO 8601 date or date-time, to the millisecond. Without an offset it is UTC; a space stands for
// the + that a client forgot to encode. A lower bound begins its day or millisecond, an upper one (end) ends it.
func parseTime(text string, end bool) (Time, bool) {
	m := timePattern.FindStringSubmatch(strings.ReplaceAll(text, " ", "+"))
	if m == nil {
		return 0, false
	}
	date, minutes, seconds, zone := m[1], m[2], m[3], "Z"
	if m[4] != "" {
		zone = m[4] + ":" + cmp.Or(m[5], "00")
	}
	t, err := time.Parse(time.RFC3339, date+cmp.Or(minutes, "T00:00")+cmp.Or(seconds, ":00")+zone)
	if _, offset := t.Zone(); err != nil || offset > 14*3600 || offset < -14*3600 {
		return 0, false
	}
	switch {
	case end && minutes == "":
		t = t.AddDate(0, 0, 1).Add(-time.Millisecond)
	case !end && t.Nanosecond()%1e6 != 0:
		t = t.Add(time.Millisecond)
	}
	return Time(t.UnixMilli()), true
}

// query reads the parameters of a URL and keeps the first thing that is wrong with them.
type query struct {
	url.Values
	err error
}

// parseQuery reads a request's parameters, which are among names, given once and not empty.
func parseQuery(r *http.Request, names ...string) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{Values: values}
	if err != nil {
		q.refuse("The query string is malformed: encode each value, as in created_at_min=2026-01-31T10:00:00%%2B07:00.")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(names, name):
			q.refuse("%q is not a parameter: this path takes %s.", name, cmp.Or(strings.Join(names, ", "), "none"))
		case len(values[name]) > 1:
			q.refuse("%s is given twice: give it once.", name)
		case values[name][0] == "":
			q.refuse("%s is empty: give it a value or leave it out.", name)
		}
	}
	return q
}

func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = badRequest(format, args...)
	}
}

func (q *query) text(name string, most int) string {
	text := q.Get(name)
	if utf8.RuneCountInString(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		q.refuse("%s must be a text of 1 to %d characters.", name, most)
	}
	return text
}

func (q *query) choice(name string, choices ...string) string {
	text := q.Get(name)
	if q.Has(name) && !slices.Contains(choices, text) {
		q.refuse("%s must be one of %s.", name, strings.Join(choices, ", "))
	}
	return text
}

func (q *query) integer(name string, preset, least, most int64) int64 {
	if !q.Has(name) {
		return preset
	}
	text := q.Get(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most || strconv.FormatInt(n, 10) != text {
		q.refuse("%s must be an integer from %d to %d, such as %s=%d.", name, least, most, name, max(least, min(20, most)))
	}
	return n
}

func (q *query) time(name string, end bool) *Time {
	if !q.Has(name) {
		return nil
	}
	t, ok := parseTime(q.Get(name), end)
	if !ok {
		q.refuse("%s must be an ISO 8601 date or time, such as %s=2026-01-31 or %s=2026-01-31T10:00:00Z.", name, name, name)
	}
	return &t
}

// readCatalog reads a catalog file. Its errors name the line or the entry.
func readCatalog(data []byte) (c Catalog, err error) {
	f, err := parseForm(data)
	if err == errInvalidJSON {
		var any any
		if e, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(data, &any)); ok {
			return c, badRequest("line %d: %s", 1+bytes.Count(data[:min(int(e.Offset), len(data))], []byte("\n")), e)
		}
		return c, badRequest("the file is not UTF-8")
	} else if err != nil {
		return c, err
	}
	return f.catalog()
}

// catalog reads what a catalog file holds. The dashboard's forms are read by it too.
func (f *form) catalog() (c Catalog, err error) {
	f.only("products", "bundles", "payment_methods")
	const most = 100_000
	for _, e := range f.list("products", 0, most) {
		e.only("slug", "title", "description", "price", "stock", "image_url", "published")
		c.Products = append(c.Products, readEntry(e))
	}
	for _, e := range f.list("bundles", 0, most) {
		e.only("slug", "title", "description", "price", "image_url", "published", "items")
		entry := readEntry(e)
		for _, item := range e.list("items", 1, 50) {
			item.only("slug", "quantity")
			entry.Items = append(entry.Items, BundleItem{Slug: item.name("slug", slugPattern), Quantity: item.integer("quantity", 1, 10_000)})
		}
		c.Bundles = append(c.Bundles, entry)
	}
	for _, e := range f.list("payment_methods", 0, most) {
		e.only("code", "name", "provider", "fee", "instructions", "min_amount", "max_amount", "enabled")
		c.PaymentMethods = append(c.PaymentMethods, readMethod(e))
	}
	return c, f.err()
}

func readEntry(e *form) CatalogEntry {
	p := Product{Slug: e.name("slug", slugPattern), Title: e.text("title", required, 200), Description: e.text("description", prose, 10_000),
		Price: e.integer("price", 0, maxMoney), Stock: e.integerOrNull("stock", 0, maxMoney), Published: e.boolean("published")}
	if e.fields["image_url"] != nil {
		image := e.address("image_url")
		p.ImageURL = &image
	}
	return CatalogEntry{p, given(e)}
}

func readMethod(e *form) MethodEntry {
	m := PaymentMethod{Code: e.name("code", codePattern), Name: e.text("name", required, 100), Provider: e.text("provider", required, 20),
		Instructions: e.text("instructions", prose, 10_000), MinAmount: e.integerOrNull("min_amount", 0, maxMoney),
		MaxAmount: e.integerOrNull("max_amount", 0, maxMoney), Enabled: e.boolean("enabled")}
	if e.has("fee") {
		m.Fee = e.integer("fee", 0, maxMoney)
	}
	if m.Provider != "" && !slices.Contains(providers, m.Provider) {
		e.fault("provider", "must be one of "+strings.Join(providers, ", "))
	}
	if m.MinAmount != nil && m.MaxAmount != nil && *m.MinAmount > *m.MaxAmount {
		e.fault("min_amount", "must not be above max_amount")
	}
	return MethodEntry{m, given(e)}
}

// name reads what identifies an entry within its list.
func (f *form) name(field string, pattern *regexp.Regexp) string {
	name := f.text(field, required, 64)
	switch {
	case name == "":
	case !pattern.MatchString(name):
		f.fault(field, "must have lower-case letters and digits, with single hyphens (in a code also underscores) between, such as kopi-gayo")
	case f.seen[name]:
		f.fault(field, fmt.Sprintf("is there twice: %q", name))
	}
	f.seen[name] = true
	return name
}

func given(e *form) map[string]bool {
	has := map[string]bool{}
	for name := range e.fields {
		has[name] = true
	}
	return has
}
