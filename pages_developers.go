package main

// This file has the pages for programs: API keys, webhooks and their deliveries. A phone that rings is an endpoint too.

import (
	"slices"
	"strings"
	"time"
)

// keptSecret returns the new secret of a key or an endpoint, for ten minutes.
func (p *page) keptSecret(id string) string {
	return p.auth.kept(p.Request, "secret-"+id, p.auth.cookie(p.Request, "sign-in"))
}

// keepSecret lets this sign-in show a secret for ten minutes. The secret waits in a cookie, so that it is not stored
// here, and a page that a phone dropped can show it again.
func (p *page) keepSecret(id, secret string) {
	p.auth.keep(p.w, "secret-"+id, p.auth.cookie(p.Request, "sign-in"), secret, 10*time.Minute)
}

// developersPage has a store's API keys and webhooks.
type developersPage struct {
	*page
	Keys     []APIKey
	NewKey   string // the one that was just made
	IsFree   bool   // The store's plan does not include the API.
	Webhooks []Endpoint
	Events   []EventName // that there are
}

func (s *server) readDevelopers(p *page) (any, error) {
	v := developersPage{page: p, IsFree: p.Store.Plan == PlanFree, Events: EventNames}
	if id := p.Query("key"); id != "" {
		v.NewKey = p.keptSecret(id)
	}
	var err error
	if v.Keys, err = s.db.Keys(p.Context(), p.Store.ID); err != nil {
		return nil, err
	}
	v.Webhooks, err = s.endpoints(p, Webhook)
	return v, err
}

// endpoints returns the store's endpoints of a kind.
func (s *server) endpoints(p *page, kind EndpointKind) ([]Endpoint, error) {
	all, err := s.db.Endpoints(p.Context(), p.Store.ID)
	return slices.DeleteFunc(all, func(e Endpoint) bool { return e.Kind != kind }), err
}

func (s *server) addKey(p *page) error {
	var in struct {
		Name  string `json:"name" rule:"text 1..100"`
		Scope Scope  `json:"scope" rule:"choice read|write|manage"`
	}
	if err := readForm(p.PostForm, &in); err != nil {
		return err
	}

	id, secret, err := s.db.AddKey(p.Context(), p.Store.ID, in.Name, in.Scope, 0)
	if err == nil {
		p.keepSecret(id, secret)
	}
	p.next = "/dashboard/developers?key=" + id
	return err
}

func (s *server) revokeKey(p *page) error {
	p.next = "/dashboard/developers"
	return s.db.RevokeKey(p.Context(), p.Store.ID, p.PostFormValue("key"))
}

func (s *server) addEndpoint(p *page) error {
	in := NewEndpoint{Kind: Webhook}
	if err := readForm(p.PostForm, &in); err != nil {
		return err
	}
	return s.newEndpoint(p, in)
}

// newEndpoint adds an endpoint and leads to its page, which shows its secret.
func (s *server) newEndpoint(p *page, in NewEndpoint) error {
	in.AllowPrivate = s.allowPrivate
	id, secret, err := s.db.AddEndpoint(p.Context(), p.Store.ID, in)
	if err == nil {
		p.keepSecret(id, secret)
	}
	p.next = "/dashboard/endpoints/" + id
	return err
}

// endpointPage is one webhook, or one phone, and its deliveries.
type endpointPage struct {
	*page
	Endpoint   Endpoint
	IsPhone    bool
	Subscribe  string      // the address at which a phone's app subscribes, after ntfy://
	Secret     string      // the one that was just made
	Events     []EventName // that there are
	Choice     form        // of those events
	Deliveries []Delivery
}

func (s *server) readEndpoint(p *page) (any, error) {
	e, err := s.db.Endpoint(p.Context(), p.Store.ID, p.PathValue("id"))
	if err != nil {
		return nil, err
	}

	v := endpointPage{page: p, Endpoint: e, IsPhone: e.Kind == Phone}
	v.Events = EventNames
	v.Choice = p.Form("events", p.Fields(chosenEvents{Events: e.Events}))
	if v.IsPhone {
		p.Title = p.Language.say("title.phone")
		scheme, rest, _ := strings.Cut(e.URL, "://")
		v.Subscribe = rest // The template has the scheme: html/template refuses ntfy: in a value.
		if scheme == "http" {
			v.Subscribe += "?secure=false"
		}
	} else {
		v.Secret = p.keptSecret(e.ID)
	}
	v.Deliveries, err = s.db.Deliveries(p.Context(), p.Store.ID, e.ID, 50)
	return v, err
}

// chosenEvents is the form of the events that an endpoint takes; none means all.
type chosenEvents struct {
	Events []EventName `json:"events" rule:"events 0..20 optional"`
	Given  map[string]bool
}

// changeEndpoint does one of the acts events, ping, on, off, rotate, resend and remove.
func (s *server) changeEndpoint(p *page) error {
	ctx := p.Context()
	store := p.Store.ID
	id := p.PathValue("id")
	switch act := p.PostFormValue("act"); act {
	case "ping":
		return s.db.Ping(ctx, store, id)
	case "resend":
		return s.db.Resend(ctx, store, p.PostFormValue("delivery"))
	case "remove":
		return s.removeEndpoint(p, id)
	case "rotate":
		secret, err := s.db.RotateSecret(ctx, store, id)
		if err == nil {
			p.keepSecret(id, secret)
		}
		return err
	case "events":
		return s.chooseEvents(p, id)
	default:
		return s.db.SetEndpointActive(ctx, store, id, act == "on")
	}
}

func (s *server) chooseEvents(p *page, id string) error {
	e, err := s.db.Endpoint(p.Context(), p.Store.ID, id)
	if err != nil {
		return err
	}
	var in chosenEvents
	err = p.readChanges(&in, p.Fields(chosenEvents{Events: e.Events}))
	if err != nil || !in.Given["events"] {
		return err
	}
	return s.db.SetEndpointEvents(p.Context(), p.Store.ID, id, in.Events)
}

// removeEndpoint removes an endpoint and leads back to the list of its kind.
func (s *server) removeEndpoint(p *page, id string) error {
	e, err := s.db.Endpoint(p.Context(), p.Store.ID, id)
	if err != nil {
		return err
	}
	p.next = "/dashboard/developers"
	if e.Kind == Phone {
		p.next = "/dashboard/account"
	}
	return s.db.RemoveEndpoint(p.Context(), p.Store.ID, id)
}
