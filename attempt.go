//go:build cgo

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// An attempt posts a claimed delivery once. The answer gets its meaning here (afterAttempt); the queue in
// dispatch.go begins the attempts and collects their results.

// attempt posts a delivery and decides what the answer means. When ctx ends before there is an answer, the
// attempt does not count: its result is that of a claim that was not sent.
func (d *dispatcher) attempt(ctx context.Context, c Claim) Result {
	begun := time.Now()
	answer, err := d.post(ctx, c)
	if err != nil && ctx.Err() != nil {
		return Result{Claim: c, Unsent: true}
	}

	spread := 0.8 + 0.4*mathrand.Float64()
	outcome := afterAttempt(c.Attempt, answer, d.db.Now().Time(), spread)
	if outcome.State == DeliveryFailed && !d.db.clockTrusted() {
		// A clock that has jumped must not use up a delivery's attempts.
		next := d.db.Now().Add(doubtedRetry)
		outcome.State, outcome.NextAt = DeliveryPending, &next
	}
	if outcome.State != DeliveryDelivered {
		d.logFailure(c, answer, outcome, err)
	}
	return Result{
		Claim:           c,
		Took:            time.Since(begun),
		endpointAnswer:  answer,
		deliveryOutcome: outcome,
	}
}

// doubtedRetry is when a delivery is tried again that would be given up if the clock could be trusted.
const doubtedRetry = 10 * time.Minute

// logFailure tells the operator of an attempt that failed. Only they read the error, which may name
// addresses.
func (d *dispatcher) logFailure(c Claim, a endpointAnswer, out deliveryOutcome, err error) {
	attributes := []any{
		"delivery", c.DeliveryID,
		"endpoint", c.Endpoint.ID,
		"attempt", c.Attempt,
		"status", a.AnswerStatus,
		"next_at", out.NextAt,
	}
	if err != nil {
		// The error may name the URL, which may hold a secret.
		attributes = append(attributes, "error", withoutAddress(err))
	}
	d.log.Warn("webhook not delivered", attributes...)
}

// endpointAnswer is what came back from an endpoint.
type endpointAnswer struct {
	AnswerStatus int    // HTTP; 0: there was no answer
	Answer       string // its first bytes, or a NoAnswer
	RetryAfter   string // the header of that name
}

const (
	keepOfFailure = 4096     // bytes of an answer that are kept for the log
	keepOfSuccess = 200      // the same of an acknowledgement
	readAtMost    = 64 << 10 // bytes of an answer that are read, so that its connection can be used again
)

// post sends a delivery to its endpoint and reads the answer. From the dial to the last byte that is read, it takes
// answerMost at most. The error is the cause of a NoAnswer, for the log of the service.
func (d *dispatcher) post(ctx context.Context, c Claim) (endpointAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	resp, err := d.send(ctx, c)
	if err != nil {
		return endpointAnswer{Answer: string(whyNoAnswer(err))}, err
	}
	defer resp.Body.Close()

	keep := keepOfFailure
	if resp.StatusCode/100 == 2 {
		keep = keepOfSuccess
	}

	// The status line counts: an answer whose body stalls or breaks off is an answer all the same.
	body := io.LimitReader(resp.Body, readAtMost)
	answer, _ := io.ReadAll(io.LimitReader(body, int64(keep)))
	io.Copy(io.Discard, body)
	return endpointAnswer{
		AnswerStatus: resp.StatusCode,
		Answer:       strings.ToValidUTF8(string(answer), "\uFFFD"),
		RetryAfter:   resp.Header.Get("Retry-After"),
	}, nil
}

// NoAnswer is why an attempt had no answer, in words for the store. They tell nothing of the network that the
// service runs in, such as its resolver or the addresses behind a name.
type NoAnswer string

const (
	NoAnswerHost        NoAnswer = "no such host"
	NoAnswerNotPublic   NoAnswer = "not a public address"
	NoAnswerRefused     NoAnswer = "refused"
	NoAnswerTimeout     NoAnswer = "timed out"
	NoAnswerCertificate NoAnswer = "certificate not accepted"
	NoAnswerClosed      NoAnswer = "connection closed"
	NoAnswerOther       NoAnswer = "no answer"
)

// whyNoAnswer finds the words for the error of a request.
func whyNoAnswer(err error) NoAnswer {
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	record, notTLS := errors.AsType[tls.RecordHeaderError](err)
	plain := notTLS && string(record.RecordHeader[:]) == "HTTP/" // an answer without TLS

	switch {
	case errors.Is(err, errNotPublic):
		return NoAnswerNotPublic
	case isLookup && lookup.IsNotFound:
		return NoAnswerHost
	case isNetwork && network.Timeout():
		return NoAnswerTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return NoAnswerRefused
	case badCertificate, notTLS && !plain:
		return NoAnswerCertificate
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return NoAnswerClosed
	}
	return NoAnswerOther
}

// send sends the signed request of a claim. It uses the transport itself, which follows no redirects: through an
// http.Client, a delivery took a tenth more processor time. Nothing but ctx limits its time.
func (d *dispatcher) send(ctx context.Context, c Claim) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", c.Endpoint.URL, bytes.NewReader(c.Body))
	if err != nil {
		return nil, err
	}

	req.Header = http.Header{
		"Content-Type":          {"application/json"},
		"User-Agent":            {"storeorder/1"},
		"X-Service-Signature":   {signatureHeader(c.Endpoint.Secrets, time.Now().Unix(), c.Body)},
		"X-Service-Event":       {string(c.Event)},
		"X-Service-Event-Id":    {c.EventID},
		"X-Service-Delivery-Id": {c.DeliveryID},
		"X-Service-Attempt":     {strconv.Itoa(c.Attempt)},
	}
	return d.transport.RoundTrip(req)
}

// deliveryOutcome is what an attempt leads to.
type deliveryOutcome struct {
	State  DeliveryState
	NextAt *Time // of the next attempt; nil unless the delivery is pending
	Gone   bool  // the endpoint wants no more events and is turned off
}

// retryDelays are the waits before the second and every later one of ten attempts: 75 h 35 min in all.
var retryDelays = []time.Duration{
	5 * time.Second,
	5 * time.Minute,
	30 * time.Minute,
	2 * time.Hour,
	5 * time.Hour,
	10 * time.Hour,
	14 * time.Hour,
	20 * time.Hour,
	24 * time.Hour,
}

// afterAttempt is the whole policy: what the answer to an attempt means for its delivery. number counts from
// 1. spread is random, from 0.8 to 1.2, so that deliveries that failed together are not tried again together.
//
// A delivery that is answered 410 Gone gets a next attempt like any other. But record turns its endpoint off,
// and nothing is claimed of an endpoint with active = 0: until it is on again, its deliveries wait.
func afterAttempt(number int, a endpointAnswer, now time.Time, spread float64) deliveryOutcome {
	if a.AnswerStatus/100 == 2 {
		return deliveryOutcome{State: DeliveryDelivered}
	}

	gone := a.AnswerStatus == http.StatusGone
	if number > len(retryDelays) {
		return deliveryOutcome{State: DeliveryFailed, Gone: gone}
	}

	// A receiver that is overloaded may ask for more time. It gets at most twice the wait, so that it cannot
	// delay the last attempt by days.
	wait := time.Duration(float64(retryDelays[number-1]) * spread)
	if a.AnswerStatus == http.StatusTooManyRequests || a.AnswerStatus == http.StatusServiceUnavailable {
		wait = min(max(wait, parseRetryAfter(a.RetryAfter, now)), 2*wait)
	}
	next := timeOf(now.Add(wait))
	return deliveryOutcome{State: DeliveryPending, NextAt: &next, Gone: gone}
}

// parseRetryAfter reads seconds or an HTTP date (RFC 9110, section 10.2.3). Anything else is 0.
func parseRetryAfter(value string, now time.Time) time.Duration {
	seconds, err := strconv.Atoi(value)
	if err == nil && seconds > 0 {
		return time.Duration(min(seconds, 7*24*3600)) * time.Second
	}

	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}
