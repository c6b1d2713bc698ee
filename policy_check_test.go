//go:build cgo

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestConfirms has a line for each claim of a notification, and a column for each answer of the gateway. An x
// says that the answer confirms the claim, or shows that more has happened since.
func TestConfirms(t *testing.T) {
	t.Parallel()
	answers := []GatewayState{
		StateOpen, StateChallenged, StateDenied, StateCanceled, StateExpired,
		StateSettled, StateDisputed, StatePartlyRefunded, StateRefunded,
	}
	grid := []struct {
		claim GatewayState
		// open, challenged; denied, canceled, expired; settled, disputed, partly refunded, refunded
		want string
	}{
		{"", "xx xxx xxxx"}, // Nobody knows what it says.
		{StateOpen, "xx xxx xxxx"},
		{StateChallenged, "-x xxx xxxx"},
		{StateDenied, "-- xxx ----"},
		{StateCanceled, "-- xxx ----"},
		{StateExpired, "-- xxx xxxx"},
		{StateSettled, "-- xx- x-xx"}, // or a dispute that was won
		{StateDisputed, "-- xx- -xxx"},
		{StatePartlyRefunded, "-- xx- --xx"},
		{StateRefunded, "-- xx- ---x"},
	}
	for _, line := range grid {
		cells := strings.ReplaceAll(line.want, " ", "")
		for i, answer := range answers {
			got, want := confirms(line.claim, answer), cells[i] == 'x'
			if got != want {
				t.Errorf("claim %q, answer %q: %t, want %t", line.claim, answer, got, want)
			}
		}
	}
}

// TestConfirmedBy tests that an answer about another payment confirms nothing.
func TestConfirmedBy(t *testing.T) {
	t.Parallel()
	answers := []GatewayAnswer{
		{State: StateDenied, TransactionID: "tx-1"},
		{State: StateSettled, TransactionID: "tx-2"},
	}
	cases := []struct {
		name         string
		notification UndecidedNotification
		want         bool
	}{
		{"the payment was denied", UndecidedNotification{TransactionID: "tx-1", Claim: StateDenied}, true},
		{"the payment was settled", UndecidedNotification{TransactionID: "tx-2", Claim: StateSettled}, true},
		{"another payment was denied", UndecidedNotification{TransactionID: "tx-2", Claim: StateDenied}, false},
		{"the gateway does not know it", UndecidedNotification{TransactionID: "tx-3", Claim: StateSettled}, false},
		{"any payment was settled", UndecidedNotification{Claim: StateSettled}, true},
		{"it says nothing that is known", UndecidedNotification{}, true},
	}
	for _, c := range cases {
		got := c.notification.confirmedBy(answers)
		if got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}

	returned := UndecidedNotification{Claim: StatePartlyRefunded}
	if returned.confirmedBy(answers[1:]) {
		t.Error("money was returned of a payment that is settled")
	}
}

func TestMainState(t *testing.T) {
	t.Parallel()
	cases := []struct {
		answers []GatewayState
		want    GatewayState
	}{
		{nil, StateOpen},
		{[]GatewayState{StateExpired}, StateExpired},
		{[]GatewayState{StateCanceled}, StateCanceled},
		{[]GatewayState{StateDenied, StateOpen}, StateOpen},
		{[]GatewayState{StateExpired, StateDenied}, StateDenied},
		{[]GatewayState{StateOpen, StateChallenged}, StateChallenged},
		{[]GatewayState{StateChallenged, StateRefunded}, StateRefunded},
		{[]GatewayState{StateRefunded, StateSettled}, StateSettled},
		{[]GatewayState{StateSettled, StatePartlyRefunded}, StatePartlyRefunded},
		{[]GatewayState{StatePartlyRefunded, StateDisputed, StateSettled}, StateDisputed},
	}
	for _, c := range cases {
		var answers []GatewayAnswer
		for _, state := range c.answers {
			answers = append(answers, GatewayAnswer{State: state})
		}
		if got := mainState(answers); got != c.want {
			t.Errorf("%q: %q, want %q", c.answers, got, c.want)
		}
	}
}

const (
	checkDay  = 24 * time.Hour
	checkWeek = 7 * checkDay
)

// checkNow is the time of the tests below.
var checkNow = timeOf(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))

// readChecks returns the cases of testdata/payment-checks.txt under a heading.
func readChecks(t *testing.T, heading string) (cases []testCase) {
	t.Helper()
	for _, c := range readCases(t, "testdata/payment-checks.txt") {
		if c.heading == heading {
			cases = append(cases, c)
		}
	}
	return cases
}

func TestMustClose(t *testing.T) {
	t.Parallel()
	ends := map[string]Time{
		"in time":    checkNow.Add(time.Second),
		"at its end": checkNow,
	}
	for _, c := range readChecks(t, "close") {
		s := SessionWithOrder{
			OrderStatus: Status(c.column(2)),
			OrderEnd:    ends[c.column(3)],
		}
		s.State = SessionState(c.column(1))

		got := mustClose(s, readCheckAnswers(c.column(4)), checkNow)
		want := c.column(5) == "close"
		if got != want {
			t.Errorf("%s: %t, want %t", c.name, got, want)
		}
	}
}

func readCheckAnswers(text string) (answers []GatewayAnswer) {
	for _, word := range strings.Fields(text) {
		a := GatewayAnswer{State: GatewayState(word), TransactionID: "tx-" + word}
		switch word {
		case "page":
			a = GatewayAnswer{State: StateOpen}
		case "ended":
			a = GatewayAnswer{State: StateExpired}
		}
		answers = append(answers, a)
	}
	return answers
}

// TestNextCheck tests when the gateway is asked again if it answers.
func TestNextCheck(t *testing.T) {
	t.Parallel()
	after := func(text string) Time {
		d, err := time.ParseDuration(text)
		must(t, err)
		return checkNow.Add(d)
	}

	for _, c := range readChecks(t, "ask") {
		f := checkFacts{
			session:  SessionState(c.column(1)),
			order:    Status(c.column(2)),
			orderEnd: after(c.column(3)),
		}
		if c.column(4) != "-" {
			f.endedAt = after("-" + c.column(4))
		}
		want := Time(0)
		if c.column(5) != "never" {
			want = after(c.column(5))
		}

		got := nextCheck(f, checkNow)
		if got != want {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
	}
}

// waits returns the times between one question and the next, from since on, until the gateway is not asked
// any more or often enough.
func waits(f checkFacts, since Time, often int) (list []time.Duration) {
	for now := since; len(list) < often; {
		next := nextCheck(f, now)
		if next == 0 {
			return append(list, 0)
		}
		list = append(list, next.Time().Sub(now.Time()))
		now = next
	}
	return list
}

// TestFailingCheck tests when a gateway is asked again that does not answer.
func TestFailingCheck(t *testing.T) {
	t.Parallel()
	f := checkFacts{
		session:      SessionActive,
		order:        Pending,
		orderEnd:     checkNow.Add(time.Hour),
		failingSince: checkNow,
	}
	s := time.Second
	want := []time.Duration{10 * s, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s}
	if got := waits(f, checkNow, len(want)); !slices.Equal(got, want) {
		t.Errorf("waits of %s, want %s", got, want)
	}

	// An undecided notification makes it no more patient, and no less.
	f.undecided = checkNow.Add(-checkDay)
	if got := waits(f, checkNow, len(want)); !slices.Equal(got, want) {
		t.Errorf("with a notification: waits of %s, want %s", got, want)
	}

	// A session whose start had no answer waits for its order's end, or as if it were active once it was heard of.
	f.session = SessionStarting
	if got := waits(f, checkNow, len(want)); !slices.Equal(got, want) {
		t.Errorf("starting, with a notification: waits of %s, want %s", got, want)
	}
	f.undecided = 0
	if got := nextCheck(f, checkNow); got != f.orderEnd {
		t.Errorf("starting: %s, want the order's end", got)
	}
}

// TestGivingUp tests when a gateway that does not answer is not asked any more: a week after the time of what
// would have been the last question.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	f := checkFacts{
		session:      SessionPaid,
		known:        true,
		order:        Paid,
		orderEnd:     checkNow,
		endedAt:      checkNow,
		failingSince: checkNow.Add(checkDay),
	}

	last := checkNow.Add(2 * checkWeek)
	if got, want := nextCheck(f, last), last.Add(time.Hour); got != want {
		t.Errorf("two weeks after the end: %s, want %s", got, want)
	}
	if got := nextCheck(f, last.Add(time.Second)); got != 0 {
		t.Errorf("after two weeks: %s, want never", got)
	}

	// The gateway may have created a session that it has never told of, because the answer to its start was lost.
	f.known = false
	if got, want := nextCheck(f, last), last.Add(checkDay); got != want {
		t.Errorf("two weeks after the end, of a session that is not known: %s, want %s", got, want)
	}
}

// TestUndecidedCheck tests when a gateway is asked again that does not confirm a notification.
func TestUndecidedCheck(t *testing.T) {
	t.Parallel()
	f := checkFacts{
		session:   SessionExpired,
		order:     Expired,
		orderEnd:  checkNow.Add(-checkWeek),
		endedAt:   checkNow.Add(-checkWeek),
		undecided: checkNow,
	}

	got := waits(f, checkNow, 40)
	s := time.Second
	want := []time.Duration{5 * s, 5 * s, 10 * s, 20 * s, 40 * s, 80 * s}
	if !slices.Equal(got[:6], want) {
		t.Errorf("it begins with waits of %s, want %s", got[:6], want)
	}
	if longest := slices.Max(got); longest != 6*time.Hour {
		t.Errorf("the longest wait is %s, want 6h", longest)
	}

	t.Run("a planned question comes first", func(t *testing.T) {
		f.endedAt = checkNow.Add(-9 * time.Minute)
		f.undecided = checkNow.Add(-time.Hour)
		if got, want := nextCheck(f, checkNow), checkNow.Add(time.Minute); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})

	t.Run("a new notification comes before a planned question", func(t *testing.T) {
		f.undecided = checkNow
		if got, want := nextCheck(f, checkNow), checkNow.Add(5*time.Second); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
