package main

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAfterAttempt(t *testing.T) {
	t.Parallel()
	const pending, delivered, failed = DeliveryPending, DeliveryDelivered, DeliveryFailed
	now := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	inSeconds := func(n int) string { return now.Add(time.Duration(n) * time.Second).Format(http.TimeFormat) }

	// A wait of 0 means that there is no next attempt.
	tests := []struct {
		name       string
		number     int
		status     int // 0: no answer
		retryAfter string
		spread     float64
		state      DeliveryState
		wait       time.Duration
		gone       bool
	}{
		{"acknowledged", 1, 200, "", 1, delivered, 0, false},
		{"acknowledged without content", 3, 204, "", 1, delivered, 0, false},
		{"acknowledged in the last attempt", 10, 299, "60", 1, delivered, 0, false},
		{"a redirect is no acknowledgement", 1, 302, "", 1, pending, 5 * time.Second, false},
		{"refused", 1, 400, "", 1, pending, 5 * time.Second, false},
		{"broken", 1, 500, "", 1, pending, 5 * time.Second, false},
		{"no answer", 1, 0, "", 1, pending, 5 * time.Second, false},

		{"after attempt 2", 2, 500, "", 1, pending, 5 * time.Minute, false},
		{"after attempt 3", 3, 500, "", 1, pending, 30 * time.Minute, false},
		{"after attempt 4", 4, 500, "", 1, pending, 2 * time.Hour, false},
		{"after attempt 5", 5, 500, "", 1, pending, 5 * time.Hour, false},
		{"after attempt 6", 6, 500, "", 1, pending, 10 * time.Hour, false},
		{"after attempt 7", 7, 500, "", 1, pending, 14 * time.Hour, false},
		{"after attempt 8", 8, 500, "", 1, pending, 20 * time.Hour, false},
		{"after attempt 9", 9, 500, "", 1, pending, 24 * time.Hour, false},
		{"after the last attempt", 10, 500, "", 1, failed, 0, false},
		{"no answer to the last attempt", 10, 0, "", 1, failed, 0, false},

		{"spread down", 2, 500, "", 0.8, pending, 4 * time.Minute, false},
		{"spread up", 2, 500, "", 1.2, pending, 6 * time.Minute, false},

		{"gone", 1, 410, "", 1, pending, 5 * time.Second, true},
		{"gone at the last attempt", 10, 410, "", 1, failed, 0, true},

		{"asked for more time", 1, 503, "7", 1, pending, 7 * time.Second, false},
		{"limited", 1, 429, "7", 1, pending, 7 * time.Second, false},
		{"asked for more by a date", 1, 503, inSeconds(8), 1, pending, 8 * time.Second, false},
		{"asked for less", 1, 503, "2", 1, pending, 5 * time.Second, false},
		{"asked for twice as much", 1, 503, "10", 1, pending, 10 * time.Second, false},
		{"asked for too much", 1, 503, "3600", 1, pending, 10 * time.Second, false},
		{"asked for too much, spread", 1, 503, "3600", 0.8, pending, 8 * time.Second, false},
		{"asked for a date that is past", 1, 503, inSeconds(-60), 1, pending, 5 * time.Second, false},
		{"asked for nonsense", 1, 503, "soon", 1, pending, 5 * time.Second, false},
		{"asked for a negative time", 1, 503, "-7", 1, pending, 5 * time.Second, false},
		{"asked with another status", 1, 500, "7", 1, pending, 5 * time.Second, false},
		{"asked at the last attempt", 10, 503, "7", 1, failed, 0, false},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			a := endpointAnswer{AnswerStatus: c.status, RetryAfter: c.retryAfter}
			got := afterAttempt(c.number, a, now, c.spread)

			if got.State != c.state {
				t.Errorf("state %s, want %s", got.State, c.state)
			}
			if got.Gone != c.gone {
				t.Errorf("gone %t, want %t", got.Gone, c.gone)
			}
			wait := time.Duration(0)
			if got.NextAt != nil {
				wait = got.NextAt.Time().Sub(now)
			}
			if wait != c.wait {
				t.Errorf("wait %s, want %s", wait, c.wait)
			}
		})
	}
}

func TestClaimable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                  string
		failures, held, total int
		want                  int
	}{
		{"a healthy endpoint is claimed ahead", 0, 0, 0, claimAhead},
		{"up to its share", 0, 250, 250, 6},
		{"of a full share nothing", 0, 256, 256, 0},
		{"of more than its share nothing", 0, 300, 300, 0},
		{"up to the share of all", 0, 0, claimsHeld - 10, 10},
		{"above the share of all only its slots", 0, 0, claimsHeld, inFlightEndpoint},
		{"above it, less those in use", 0, 3, claimsHeld, 1},
		{"nothing when twice as many are held", 0, 0, 2 * claimsHeld, 0},
		{"after one failure nothing ahead", 1, 0, 0, inFlightEndpoint},
		{"an endpoint that fails has one slot", failing, 0, 0, 1},
		{"which may be in use", failing, 1, 1, 0},
		{"from before it failed, more may be", failing, 4, 4, 0},
	}
	for _, c := range tests {
		if got := claimable(c.failures, c.held, c.total); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// The log says why a delivery failed: with the number of the status, which is 0 if there was no answer.
func TestAFailedDeliveryIsLogged(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	tests := []struct {
		name string
		resp *http.Response // nil: no answer
		want []string
	}{
		{"refused", status(500), []string{"attempt=1", "status=500", "next_at=20"}},
		{"no answer", nil, []string{"attempt=1", "status=0", "next_at=20"}},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			s.queue.client.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
				if c.resp == nil {
					return nil, errors.New("nobody listens")
				}
				return c.resp, nil
			})
			s.queue.attempt(Claim{
				DeliveryID: "delivery of " + c.name,
				Attempt:    1,
				Endpoint:   Endpoint{URL: "https://a.example/hook", Secrets: []string{"s"}},
			})

			lines := strings.Split(s.logs.String(), "\n")
			i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "delivery of "+c.name) })
			if i < 0 {
				t.Fatalf("nothing is logged: %q", lines)
			}
			for _, want := range c.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("the log has no %s: %s", want, lines[i])
				}
			}
		})
	}
}
