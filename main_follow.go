package main

// This file is webhook listen, which gives a developer webhooks without an address that the service can reach. It
// follows a store's events, in the file or over the API, and prints their bodies. With -forward it also posts them like
// webhooks, signed and with the same bytes, and prints each answer. It sends nothing twice.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// listener passes events on.
type listener struct {
	*call
	client *http.Client // of the API
	queue  *queue       // sends what is forwarded; it does not run
	secret string       // signs that
}

func webhookListen(c *call) (any, error) {
	if c.API == "" && c.Key == "" {
		return onRow("store", listenToFile)(c)
	}
	if c.API == "" || c.Key == "" {
		return nil, usagef("-api and -key belong together")
	}
	return nil, listenToAPI(c)
}

func listenToFile(c *call) (any, error) {
	secret, err := c.db.secret(c)
	if err != nil {
		return nil, err
	}
	l := newListener(c)
	l.greet(c.store.Name, string(secret)+c.store.ID)

	filter := EventFilter{CreatedMin: c.db.now() + 1, Limit: 50}
	for c.Err() == nil {
		events, _, err := c.db.Events(context.WithoutCancel(c), c.id, filter)
		if err != nil {
			return nil, err
		}
		for _, event := range events {
			filter.After = event.ID
			l.pass(event.Body)
		}
		pause(l, 300*time.Millisecond)
	}
	return nil, nil
}

// listenToAPI begins with the events from the second of the server's first answer. It tries again after a temporary
// failure.
func listenToAPI(c *call) error {
	l := newListener(c)
	var data struct{ Store struct{ Name string } }
	header, err := l.read("/v1/store", &data)
	if err != nil {
		return err
	}
	l.greet(data.Store.Name, c.Key)

	began, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return fmt.Errorf("%s does not say what time it is: is it the service?", c.API)
	}
	from := "created_at_min=" + began.UTC().Format(time.RFC3339)
	for c.Err() == nil {
		var data struct {
			Events  []json.RawMessage
			HasMore bool `json:"has_more"`
		}
		_, err := l.read("/v1/events?limit=50&"+from, &data)
		if _, permanent := errors.AsType[refusedByAPI](err); permanent {
			return err
		}
		if err != nil && c.Err() == nil {
			c.hint("%v: trying again", err)
		}
		for _, body := range data.Events {
			from = "after=" + url.QueryEscape(l.pass(string(body)))
		}
		if !data.HasMore {
			pause(l, time.Second)
		}
	}
	return nil
}

// newListener follows no redirects, as the service does not.
func newListener(c *call) *listener {
	client := &http.Client{
		Transport:     c.transport,
		Timeout:       longestAttempt,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &listener{call: c, client: client, queue: newQueue(c.db, c.transport, true)}
}

// greet says whose events follow. The secret is derived from one that the developer has, so that it is the same every
// time.
func (l *listener) greet(store, seed string) {
	l.hint("the events of %s, from now on", store)
	if l.Forward != "" {
		l.secret = "whsec_" + sign(seed, 0, []byte("webhook listen"))
		l.hint("they are posted to %s, signed with the secret %s", l.Forward, l.secret)
	}
}

// refusedByAPI is an answer that will not change, so trying again is useless.
type refusedByAPI struct{ error }

// read reads the data of an API answer.
func (l *listener) read(path string, data any) (http.Header, error) {
	req, err := http.NewRequestWithContext(l, "GET", strings.TrimSuffix(l.API, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+l.Key)
	resp, err := l.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		return nil, fmt.Errorf("%s answers %s", l.API, resp.Status)
	}

	var answer struct {
		Success bool
		Data    json.RawMessage
		Error   struct{ Message string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, refusedByAPI{fmt.Errorf("%s does not answer in JSON: is it the service?", l.API)}
	}
	if !answer.Success {
		return nil, refusedByAPI{fmt.Errorf("%s answers: %s", l.API, answer.Error.Message)}
	}
	return resp.Header, json.Unmarshal(answer.Data, data)
}

// pass prints an event, forwards it as the queue sends a delivery, and returns its id.
func (l *listener) pass(body string) (id string) {
	fmt.Fprintf(l.stdout, "%s\n", body)
	var event struct {
		ID    string
		Event EventName
	}
	if err := json.Unmarshal([]byte(body), &event); err != nil || l.Forward == "" {
		return event.ID
	}

	s := sending{Event: event.Event, EventID: event.ID, Secrets: []string{l.secret}, Body: []byte(body)}
	header := webhookHeader(s, dueDelivery{ID: event.ID}, l.now().Unix())
	ctx, cancel := context.WithTimeout(l, longestAttempt)
	defer cancel()
	answer, err := l.queue.post(ctx, l.Forward, s.Body, header)
	if err != nil {
		l.hint("%s: %v", event.Event, err)
		return event.ID
	}
	l.hint("%s: %d %s", event.Event, answer.code, http.StatusText(answer.code))
	return event.ID
}
