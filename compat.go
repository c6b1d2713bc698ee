//go:build cgo

package main

import (
	"regexp"
	"strconv"
)

// This file holds the helpers of the previous style until every file has left them.

type jsonTo = fromJSON

func collect[T any](q querier, fields func(*T) []any, query string, args ...any) ([]T, error) {
	return queryAll(q, func(r row) (v T, err error) { err = r.Scan(fields(&v)...); return v, err }, query, args...)
}

func one[T any](q querier, fields func(*T) []any, query string, args ...any) (v T, err error) {
	err = notFound(q.QueryRow(query, args...).Scan(fields(&v)...))
	return v, err
}

func column[T any](v *T) []any { return []any{v} }

func words[T ~string](list []T) []string { return toStrings(list) }

func (db *DB) store(q querier, more []any, query string, args ...any) (Store, error) {
	return db.scanStore(q.QueryRow(query, args...), more...)
}

// faultOf is the fault that an English sentence of a rule stands for, until the rules return faults themselves.
func faultOf(message string) Fault {
	for _, s := range faultSentences {
		m := s.pattern.FindStringSubmatch(message)
		if m == nil {
			continue
		}
		f := Fault{Code: s.code}
		for i, name := range s.pattern.SubexpNames() {
			n, _ := strconv.ParseInt(m[i], 10, 64)
			switch name {
			case "least":
				f.Least = n
			case "most":
				f.Most = n
			case "text":
				f.Text = m[i]
			}
		}
		return f
	}
	return Fault{}
}

var faultSentences = []struct {
	pattern *regexp.Regexp
	code    FaultCode
}{
	{regexp.MustCompile(`a text of 1 to (?P<most>\d+) characters$`), FaultText},
	{regexp.MustCompile(`^must have no control characters`), FaultCharacters},
	{regexp.MustCompile(`^must be an integer from (?P<least>\d+) to (?P<most>\d+)`), FaultInteger},
	{regexp.MustCompile(`^must be an address such as (?P<text>\S+)`), FaultAddress},
	{regexp.MustCompile(`^must be one of (?P<text>.*)`), FaultChoice},
	{regexp.MustCompile(`^the (?:provider|mode) must be (?P<text>.*)`), FaultChoice},
	{regexp.MustCompile(`^must not be above max_amount`), FaultBounds},
	{regexp.MustCompile(`^must have lower-case letters`), FaultName},
	{regexp.MustCompile(`^must be a list of 1 to (?P<most>\d+) objects`), FaultList},
	{regexp.MustCompile(`^is there twice: "(?P<text>.*)"`), FaultTwice},
	{regexp.MustCompile(`^names no product of the store: "(?P<text>.*)"`), FaultUnknownProduct},
	{regexp.MustCompile(`^must begin with https`), FaultHTTPS},
	{regexp.MustCompile(`^must have no user`), FaultUserInfo},
	{regexp.MustCompile(`^must be a public address`), FaultPrivate},
	{regexp.MustCompile(`^the secret key is needed`), FaultSecretKey},
	{regexp.MustCompile(`^Xendit's callback token`), FaultCallbackToken},
	{regexp.MustCompile(`^the secret key is not of the mode (?P<text>.*)`), FaultMode},
}
