//go:build cgo

package main

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// query reads the parameters of a URL and keeps the first fault.
type query struct {
	url.Values
	err error
}

// parseQuery reads a request's parameters, which are among names, given once and not empty.
func parseQuery(r *http.Request, names ...string) *query {
	if r.URL.RawQuery == "" {
		return &query{}
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{Values: values}
	if err != nil {
		q.refuse("The query string is malformed: encode each value, as in " +
			"created_at_min=2026-01-31T10:00:00%%2B07:00.")
	}

	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(names, name):
			known := cmp.Or(strings.Join(names, ", "), "none")
			q.refuse("%q is not a parameter: this path takes %s.", name, known)
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
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		q.refuse("%s must be UTF-8 without control characters.", name)
	}
	if utf8.RuneCountInString(text) > most {
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

// integer reads a number in its shortest form: no plus sign and no leading zeros.
func (q *query) integer(name string, preset, least, most int64) int64 {
	if !q.Has(name) {
		return preset
	}

	text := q.Get(name)
	n, err := strconv.ParseInt(text, 10, 64)
	shortest := err == nil && strconv.FormatInt(n, 10) == text
	if !shortest || n < least || n > most {
		q.refuse("%s must be an integer from %d to %d, such as %s=%d.",
			name, least, most, name, max(least, min(20, most)))
	}
	return n
}

func (q *query) time(name string, end bool) *Time {
	if !q.Has(name) {
		return nil
	}

	t, ok := parseTime(q.Get(name), end)
	if !ok {
		q.refuse("%s must be an ISO 8601 date or time, such as %s=2026-01-31 or %s=2026-01-31T10:00:00Z.",
			name, name, name)
	}
	return &t
}

// timePattern captures the date, the time's T with hours and minutes, its seconds, and the offset's hours and
// minutes.
var timePattern = regexp.MustCompile(
	`^(\d{4}-\d\d-\d\d)(?:(T\d\d:\d\d)(:\d\d(?:[.,]\d{1,9})?)?(?:Z|([+-]\d\d)(?::?([0-5]\d))?)?)?$`)

// parseTime reads an ISO 8601 date or date-time, to the millisecond. Without an offset it is UTC; a space
// stands for the + that a client forgot to encode. A lower bound begins its day or millisecond, an upper one
// (end) ends it.
func parseTime(text string, end bool) (Time, bool) {
	m := timePattern.FindStringSubmatch(strings.ReplaceAll(text, " ", "+"))
	if m == nil {
		return 0, false
	}
	date, minutes, seconds, offsetHours, offsetMinutes := m[1], m[2], m[3], m[4], m[5]

	full := date + cmp.Or(minutes, "T00:00") + cmp.Or(seconds, ":00")
	if offsetHours == "" {
		full += "Z"
	} else {
		full += offsetHours + ":" + cmp.Or(offsetMinutes, "00")
	}
	t, err := time.Parse(time.RFC3339, full)
	if err != nil {
		return 0, false
	}
	const farthest = 14 * 60 * 60 // seconds from UTC
	if _, offset := t.Zone(); offset > farthest || offset < -farthest {
		return 0, false
	}

	wholeDay := minutes == ""
	if end && wholeDay {
		t = t.AddDate(0, 0, 1).Add(-time.Millisecond)
	}
	if !end && t.Nanosecond()%1e6 != 0 { // Between two milliseconds, it is the later.
		t = t.Add(time.Millisecond)
	}
	return timeOf(t), true
}
