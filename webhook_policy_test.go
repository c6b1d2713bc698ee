package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var policyNow = time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)

func TestStateAfterAnAttempt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		number int
		status int // 0: no answer
		state  DeliveryState
		gone   bool
	}{
		{"acknowledged", 1, 200, DeliveryDelivered, false},
		{"acknowledged without content", 3, 204, DeliveryDelivered, false},
		{"acknowledged at last", 10, 299, DeliveryDelivered, false},
		{"a redirect", 1, 302, DeliveryPending, false},
		{"refused", 1, 400, DeliveryPending, false},
		{"broken", 1, 500, DeliveryPending, false},
		{"no answer", 1, 0, DeliveryPending, false},
		{"gone", 1, 410, DeliveryPending, true},
		{"broken in the last attempt but one", 9, 500, DeliveryPending, false},
		{"broken in the last attempt", 10, 500, DeliveryFailed, false},
		{"no answer to the last attempt", 10, 0, DeliveryFailed, false},
		{"gone in the last attempt", 10, 410, DeliveryFailed, true},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			got := afterAttempt(c.number, endpointAnswer{AnswerStatus: c.status}, policyNow, 1)
			if got.State != c.state {
				t.Errorf("state %s, want %s", got.State, c.state)
			}
			if got.Gone != c.gone {
				t.Errorf("gone %t, want %t", got.Gone, c.gone)
			}
			if again := got.NextAt != nil; again != (c.state == DeliveryPending) {
				t.Errorf("another attempt: %t", again)
			}
		})
	}
}

func TestWaitAfterAnAttempt(t *testing.T) {
	t.Parallel()
	date := func(fromNow time.Duration) string { return policyNow.Add(fromNow).Format(http.TimeFormat) }
	tests := []struct {
		name       string
		number     int
		status     int
		retryAfter string
		spread     float64
		wait       time.Duration
	}{
		{"after attempt 1", 1, 500, "", 1, 5 * time.Second},
		{"after attempt 2", 2, 500, "", 1, 5 * time.Minute},
		{"after attempt 3", 3, 500, "", 1, 30 * time.Minute},
		{"after attempt 4", 4, 500, "", 1, 2 * time.Hour},
		{"after attempt 5", 5, 500, "", 1, 5 * time.Hour},
		{"after attempt 6", 6, 500, "", 1, 10 * time.Hour},
		{"after attempt 7", 7, 500, "", 1, 14 * time.Hour},
		{"after attempt 8", 8, 500, "", 1, 20 * time.Hour},
		{"after attempt 9", 9, 500, "", 1, 24 * time.Hour},
		{"without an answer", 2, 0, "", 1, 5 * time.Minute},
		{"of an endpoint that is gone", 2, 410, "", 1, 5 * time.Minute},

		{"spread down", 2, 500, "", 0.8, 4 * time.Minute},
		{"spread up", 2, 500, "", 1.2, 6 * time.Minute},

		{"asked for more", 1, 503, "7", 1, 7 * time.Second},
		{"limited", 1, 429, "7", 1, 7 * time.Second},
		{"asked for more by a date", 1, 503, date(8 * time.Second), 1, 8 * time.Second},
		{"asked for less", 1, 503, "2", 1, 5 * time.Second},
		{"asked for twice as much", 1, 503, "10", 1, 10 * time.Second},
		{"asked for too much", 1, 503, "3600", 1, 10 * time.Second},
		{"asked for too much, spread down", 1, 503, "3600", 0.8, 8 * time.Second},
		{"asked for too much by a date", 1, 503, date(time.Hour), 1, 10 * time.Second},
		{"asked for a date that is past", 1, 503, date(-time.Hour), 1, 5 * time.Second},
		{"asked in words", 1, 503, "soon", 1, 5 * time.Second},
		{"asked for a negative time", 1, 503, "-7", 1, 5 * time.Second},
		{"asked with another status", 1, 500, "7", 1, 5 * time.Second},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			a := endpointAnswer{AnswerStatus: c.status, RetryAfter: c.retryAfter}
			got := afterAttempt(c.number, a, policyNow, c.spread)
			if got.NextAt == nil {
				t.Fatal("there is no next attempt")
			}
			if wait := got.NextAt.Time().Sub(policyNow); wait != c.wait {
				t.Errorf("wait %s, want %s", wait, c.wait)
			}
		})
	}
}

func TestClaimable(t *testing.T) {
	t.Parallel()
	const unproven = maxUnproven * maxToEndpoint
	tests := []struct {
		name         string
		lane         Lane
		held, inLane int
		want         int
	}{
		{"a quick endpoint is claimed ahead", LaneQuick, 0, 0, claimAhead},
		{"up to its share", LaneQuick, claimAhead - 6, claimAhead - 6, 6},
		{"and nothing of a full share", LaneQuick, claimAhead, claimAhead, 0},
		{"or of one that is exceeded", LaneQuick, claimAhead + 44, claimAhead + 44, 0},
		{"up to the share of all", LaneQuick, 0, claimsHeld - 10, 10},
		{"and above that only its slots", LaneQuick, 0, claimsHeld, maxToEndpoint},
		{"without those in use", LaneQuick, 3, claimsHeld, 1},
		{"and nothing when twice as many are held", LaneQuick, 0, 2 * claimsHeld, 0},

		{"of an unproven endpoint nothing is claimed ahead", LaneUnproven, 0, 0, maxToEndpoint},
		{"and what fills the slots of all", LaneUnproven, 0, unproven - 1, 1},
		{"but no more", LaneUnproven, 0, unproven, 0},

		{"a narrow endpoint has one attempt", LaneNarrow, 0, 0, 1},
		{"which may be under way", LaneNarrow, 1, 1, 0},
		{"like more of them, from before it was narrow", LaneNarrow, 4, 4, 0},
		{"and none when all of the lane are", LaneNarrow, 0, maxNarrow, 0},
	}
	for _, c := range tests {
		if got := c.lane.claimable(c.held, c.inLane); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestWhyThereWasNoAnswer is about the words that a store reads. They name no address of this server's
// network.
func TestWhyThereWasNoAnswer(t *testing.T) {
	t.Parallel()
	dialed := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	tests := []struct {
		err  error
		want NoAnswer
	}{
		{&net.DNSError{Err: "no such host", Server: "10.0.0.2:53", IsNotFound: true}, NoAnswerHost},
		{&net.DNSError{Err: "server misbehaving", Name: "a.example", Server: "10.0.0.2:53"}, NoAnswerOther},
		{&net.DNSError{Err: "i/o timeout", Server: "10.0.0.2:53", IsTimeout: true}, NoAnswerTimeout},
		{dialed(fmt.Errorf("10.0.0.3: %w", errNotPublic)), NoAnswerNotPublic},
		{dialed(os.NewSyscallError("connect", syscall.ECONNREFUSED)), NoAnswerRefused},
		{dialed(os.NewSyscallError("connect", syscall.ENETUNREACH)), NoAnswerOther},
		{os.NewSyscallError("read", syscall.ECONNRESET), NoAnswerClosed},
		{io.EOF, NoAnswerClosed},
		{context.DeadlineExceeded, NoAnswerTimeout},
		{&tls.CertificateVerificationError{Err: errors.New("expired")}, NoAnswerCertificate},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, NoAnswerCertificate},
		{tls.RecordHeaderError{RecordHeader: [5]byte([]byte("HTTP/"))}, NoAnswerOther},
		{&url.Error{Op: "Post", URL: "https://a.example/secret", Err: io.EOF}, NoAnswerClosed},
		{errors.New("http2: 10.0.0.3 is confused"), NoAnswerOther},
	}
	for _, c := range tests {
		if got := whyNoAnswer(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

// The log says why a delivery failed: with the number of the answer's status, which is 0 if there was no
// answer.
func TestAFailedDeliveryIsLogged(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	tests := []struct {
		delivery string
		answer   *http.Response // nil: no answer
		want     string
	}{
		{"refused", status(500), "delivery=refused endpoint=e1 attempt=3 status=500 next_at=20"},
		{"unanswered", nil, "delivery=unanswered endpoint=e1 attempt=3 status=0 next_at=20"},
	}
	for _, c := range tests {
		s.queue.transport = roundTripper(func(*http.Request) (*http.Response, error) {
			if c.answer == nil {
				return nil, errors.New("nobody listens")
			}
			return c.answer, nil
		})
		e := Endpoint{ID: "e1", URL: "https://a.example/hook", Secrets: []string{"s"}}
		s.queue.attempt(t.Context(), Claim{DeliveryID: c.delivery, Attempt: 3, Endpoint: e})

		lines := strings.Split(s.logs.String(), "\n")
		logged := slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, c.want) })
		if !logged {
			t.Errorf("no line has %q:\n%s", c.want, strings.Join(lines, "\n"))
		}
	}
}

// TestABodyThatStallsEndsTheAttempt has a receiver whose answer begins and never ends. Its status counts.
func TestABodyThatStallsEndsTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.queue.transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			answer := status(200)
			body, end := io.Pipe()
			context.AfterFunc(r.Context(), func() { end.CloseWithError(r.Context().Err()) })
			answer.Body = body
			return answer, nil
		})

		begun := time.Now()
		e := Endpoint{URL: "https://a.example/hook", Secrets: []string{"s"}}
		got := s.queue.attempt(t.Context(), Claim{Attempt: 1, Endpoint: e})
		if took := time.Since(begun); took != answerMost {
			t.Errorf("the attempt took %s, want %s", took, answerMost)
		}
		if got.State != DeliveryDelivered {
			t.Errorf("the delivery is %s", got.State)
		}
	})
}
