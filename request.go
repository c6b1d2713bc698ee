//go:build cgo

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// outermost gives every request its id and its line in the log, and answers if its handler panics.
func (s *server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		l := &requestLog{ResponseWriter: w, id: newRequestID()}
		w.Header().Set("X-Request-Id", l.id)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		r = r.WithContext(context.WithValue(r.Context(), requestLogKey{}, l))
		l.body = newRequestBody(r)
		r.Body = l.body

		defer func() {
			p := recover()
			aborted := p == http.ErrAbortHandler
			if p != nil && !aborted {
				s.afterPanic(l, r, p)
			}

			s.logRequest(l, r, start)
			if aborted { // The connection is cut, so that half an answer does not pass for a whole one.
				panic(p)
			}
		}()

		if p := r.URL.Path; p != "/" && p != path.Clean(p) { // ServeMux would redirect.
			s.notFound(l, r)
			return
		}
		next.ServeHTTP(l, r)
	})
}

// afterPanic logs and answers the panic p of a handler.
func (s *server) afterPanic(l *requestLog, r *http.Request, p any) {
	s.log.Error("panic", "request_id", l.id, "panic", p, "stack", string(debug.Stack()))
	if l.status == 0 {
		s.respond(l, r, answer{}, errInternal)
	}
}

// requestLog collects the facts of a request for its line in the log. It holds no key and nothing of a buyer.
type requestLog struct {
	http.ResponseWriter
	body   *requestBody
	status int // zero until the answer begins
	id     string
	store  string
	order  string // the order's payment_reference: its id opens its pay page and is not logged
}

// logRequest writes the line of a request that began at start.
func (s *server) logRequest(l *requestLog, r *http.Request, start time.Time) {
	if !s.log.Enabled(r.Context(), slog.LevelInfo) {
		return
	}

	now := time.Now()
	took := now.Sub(start)
	line := s.log.line(now, "request")
	line.addText("method", r.Method)
	line.addText("path", loggedPath(r))
	line.addNumber("status", float64(l.status))
	line.addNumber("duration_ms", float64(took.Microseconds())/1000)
	if l.order != "" {
		line.addText("order", l.order)
	}
	line.addText("store", l.store)
	line.addText("client", s.clientAddress(r).String())
	line.addText("request_id", l.id)
	s.log.write(line)
}

func newRequestID() string {
	id := make([]byte, 12)
	rand.Read(id)
	return hex.EncodeToString(id)
}

// WriteHeader begins the answer. The connection ends with it if the body goes on, or the server would read
// another 256 KiB of that body before it answers.
func (l *requestLog) WriteHeader(status int) {
	if l.body.goesOn() {
		l.Header().Set("Connection", "close")
	}
	l.status = status
	l.ResponseWriter.WriteHeader(status)
}

func (l *requestLog) Write(b []byte) (int, error) {
	if l.status == 0 {
		l.WriteHeader(http.StatusOK)
	}
	return l.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (l *requestLog) Unwrap() http.ResponseWriter { return l.ResponseWriter }

type requestLogKey struct{}

func logged(r *http.Request) *requestLog { return r.Context().Value(requestLogKey{}).(*requestLog) }

// requestBody is a request's body that knows whether its end was read.
type requestBody struct {
	io.ReadCloser
	length int64 // -1 if the client has not said it
	read   int64
	ended  bool
}

func newRequestBody(r *http.Request) *requestBody {
	body := r.Body
	if body == nil { // A test's request may have none.
		body = http.NoBody
	}
	return &requestBody{ReadCloser: body, length: r.ContentLength}
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.ended = b.ended || err != nil
	return n, err
}

// goesOn reports whether more of the body may come than the service ever reads.
func (b *requestBody) goesOn() bool {
	if b.ended || b.read == b.length {
		return false
	}
	return b.length < 0 || b.length > maxBody
}

// idPattern matches what may be the id of an order.
var idPattern = regexp.MustCompile(`(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// loggedIDs are the ids in a path that open nothing, by their names in the routes.
var loggedIDs = []string{"store_id", "key_id", "endpoint_id", "delivery_id"}

// loggedPath is a request's path without the ids that open a page for anybody: those of orders and sessions.
func loggedPath(r *http.Request) string {
	name, secret := "order_id", r.PathValue("order_id")
	if secret == "" {
		name, secret = "session_id", r.PathValue("session_id")
	}
	if secret == "" && len(r.URL.Path) < idLength { // It is too short to have an id.
		return r.URL.Path
	}

	parts := strings.Split(r.URL.Path, "/")
	for i, part := range parts {
		switch {
		case part != "" && part == secret:
			parts[i] = "{" + name + "}"
		case len(part) >= idLength && !isLoggedID(r, part):
			parts[i] = idPattern.ReplaceAllString(part, "{id}") // of a path that does not exist
		}
	}
	return strings.Join(parts, "/")
}

func isLoggedID(r *http.Request, part string) bool {
	for _, name := range loggedIDs {
		if r.PathValue(name) == part {
			return true
		}
	}
	return false
}
