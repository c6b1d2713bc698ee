package main

// This file has the other endpoints of /v1, then health and the description.

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
)

func (s *server) getStore(c *apiCall, _ noQuery) (any, error) {
	options, err := s.db.ShippingOptions(c.Context(), c.store.ID)
	if err != nil {
		return nil, err
	}
	store := jsonObject{"id": c.store.ID, "name": c.store.Name, "plan": c.store.Plan, "currency": "IDR",
		"contact": c.store.Contact, "test": c.store.TestMode, "shipping_options": options, "shop": c.store.shownShop()}
	key := jsonObject{"id": c.key.ID, "name": c.key.Name, "scope": c.key.Scope, "expires_at": c.key.ExpiresAt}
	return jsonObject{"store": store.filled(), "key": key.filled()}, nil
}

func (s *server) listProducts(c *apiCall, filter EntryFilter) (any, error) {
	if filter.Text != "" {
		c.leave() // its place for other requests
		if err := s.beginWork(c, "search"); err != nil {
			return nil, err
		}
	}
	list, more, err := s.db.Entries(c.Context(), c.store.ID, filter)
	if err != nil {
		return nil, err
	}

	typed := map[Kind][]Entry{Product: {}, Bundle: {}}
	for _, e := range list {
		e.ImageURL = c.store.pictureURL(e.ImageURL)
		typed[e.Type] = append(typed[e.Type], e)
	}

	found := string(toJSON(jsonObject{"products": typed[Product], "bundles": typed[Bundle], "has_more": more}))

	tag := fmt.Sprintf(`"%x"`, digest(found))
	c.answerHeader.Set("Etag", tag)
	c.answerHeader.Set("Cache-Control", "private, no-cache")
	if hasTag(c.Header.Values("If-None-Match"), tag) {
		c.status = http.StatusNotModified // net/http sends no body with it.
	}
	return pieces{found}, nil
}

var (
	// isTagList reports whether text is a list of entity tags, weak or not.
	isTagList = matcher(`^[ \t,]*(?:(?:W/)?"[^"]*"[ \t,]*)*$`)
	opaqueTag = regexp.MustCompile(`"[^"]*"`)
)

// hasTag reports whether the values of an If-None-Match header (RFC 9110, 13.1.2) have a tag, weak or not, or are *.
func hasTag(values []string, tag string) bool {
	list := strings.Join(values, ",")
	if strings.TrimSpace(list) == "*" {
		return true
	}
	return isTagList(list) && slices.Contains(opaqueTag.FindAllString(list, -1), tag)
}

type methodQuery struct {
	Amount int64 `json:"amount" rule:"money =-1"` // a subtotal; -1 means any
}

func (s *server) listPaymentMethods(c *apiCall, query methodQuery) (any, error) {
	methods, err := s.db.UsableMethods(c.Context(), c.store, query.Amount)
	for i, m := range methods {
		methods[i].ImageURL = c.store.pictureURL(m.ImageURL)
		methods[i].QRISMerchant = m.merchant()
	}
	return jsonObject{"payment_methods": methods}, err
}

// getOrder starts a payment session if the order needs one. HEAD starts none, because its answer could not show it. A
// key that may only read starts none either.
func (s *server) getOrder(c *apiCall, _ noQuery) (any, error) {
	starts := c.Method == http.MethodGet && c.key.Scope.allows(ScopeWrite)
	o, session, err := s.payments.OrderWithSession(c.Context(), c.store, c.orderID(), starts)
	if err != nil {
		return nil, err
	}

	session.QRString = o.qris(s.db.now())
	return c.store.showSession(o, session), nil
}

// showSession returns the data of an answer with an order and its payment session.
func (st Store) showSession(o OrderRow, session SessionView) pieces {
	address := toJSON(session.PaymentURL) // as the gateway wrote it
	shown := st.orderJSON(o.StoredOrder, string(address[1:len(address)-1]))
	return slices.Concat(pieces{`{"order":`}, shown, pieces{`,"payment_session":`, string(toJSON(session)), "}"})
}

func (s *server) listOrders(c *apiCall, query OrderFilter) (any, error) {
	switch {
	case query.CreatedMin != 0 && query.CreatedMax != 0 && query.CreatedMin > query.CreatedMax:
		return nil, malformed("created_at_min is after created_at_max: give one such as created_at_min=%s.",
			query.CreatedMax)
	case query.StartingAfter != "" && c.URL.Query().Has("offset"):
		return nil, malformed("offset and starting_after do not go together: use starting_after alone.")
	}

	query.StartingAfter = strings.ToLower(query.StartingAfter)
	orders, more, err := s.db.Orders(c.Context(), c.store.ID, query)
	if errors.Is(err, ErrNotFound) {
		return nil, malformed("starting_after is not an order of this store: " +
			"give the id of the last order of the page before.")
	}

	return c.store.showOrders(orders, more), err
}

// showOrders returns the data of an answer with a page of a store's orders.
func (st Store) showOrders(orders []StoredOrder, more bool) pieces {
	var shown []pieces
	for _, o := range orders {
		shown = append(shown, st.orderJSON(o, ""))
	}
	return listOf("orders", shown, more)
}

// onOrder returns a handler that reads a body, calls change with it, and answers with the order.
func onOrder[In any](
	read func(body []byte, into any) error, change func(c *apiCall, in In) (OrderRow, error),
) func(c *apiCall, _ noQuery) (any, error) {
	return func(c *apiCall, _ noQuery) (any, error) {
		var in In
		if err := read(c.body, &in); err != nil {
			return nil, err
		}
		c.leave()
		o, err := change(c, in)
		if err != nil {
			return nil, err
		}
		return jsonObject{"order": c.store.orderJSON(o.StoredOrder, "")}, nil
	}
}

// readOptional reads a body that may be left out.
func readOptional(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	return readJSON(body, into)
}

// orderID returns the id in the path.
func (c *apiCall) orderID() string { return strings.ToLower(c.PathValue("order_id")) }

// editOrder changes an order's note, metadata and address.
func (s *server) editOrder(c *apiCall, in OrderEdit) (OrderRow, error) {
	return s.db.EditOrder(c.Context(), c.store.ID, c.orderID(), ActorAPI, in)
}

// OwnerAct is the body of an act of the owner.
type OwnerAct struct {
	Reason string `json:"reason" rule:"text 1..200 optional"`
}

// performAct performs an act of the owner, which the last part of the path names. A key that may only write can only
// cancel pending orders.
func (s *server) performAct(c *apiCall, in OwnerAct) (OrderRow, error) {
	act := Act(path.Base(c.URL.Path))
	if act == Cancel && !c.key.Scope.allows(ScopeManage) {
		act = CancelPending
	}
	note := Note{Code: NoteByAPI, Text: in.Reason}
	return s.payments.Decide(c.Context(), c.store.ID, c.orderID(), act, ActorAPI, note, "")
}

func (s *server) ship(c *apiCall, in Shipment) (OrderRow, error) {
	return s.db.Ship(c.Context(), c.store.ID, c.orderID(), ActorAPI, in)
}

func (s *server) unship(c *apiCall, _ struct{}) (OrderRow, error) {
	return s.db.TakeBackShipping(c.Context(), c.store.ID, c.orderID(), ActorAPI)
}

func (s *server) listEvents(c *apiCall, filter EventFilter) (any, error) {
	filter.After = strings.ToLower(filter.After)
	events, more, err := s.db.Events(c.Context(), c.store.ID, filter)
	if errors.Is(err, ErrNotFound) {
		return nil, malformed("after is not an event of this store, or it is so old that it is not kept " +
			"any more: begin with created_at_min instead.")
	}

	var bodies []pieces
	for _, e := range events {
		bodies = append(bodies, pieces{e.Body})
	}
	return listOf("events", bodies, more), err
}

// getCatalog lists entries as putCatalog takes them.
func (s *server) getCatalog(c *apiCall, query CatalogQuery) (any, error) {
	query.StartingAfter = strings.ToLower(query.StartingAfter)
	entries, more, err := s.db.CatalogPage(c.Context(), c.store, query)
	if err != nil {
		return nil, err
	}
	return jsonObject{query.Type + "s": entries, "has_more": more}, nil
}

// putCatalog takes a catalog file. The process decodes two at once.
func (s *server) putCatalog(c *apiCall, _ noQuery) (any, error) {
	key, err := c.idempotencyKey()
	if err != nil {
		return nil, err
	}
	leave, err := s.auth.busyPlace(c.Context(), "", "catalog")
	if err != nil {
		return nil, err
	}
	defer leave()

	var catalog Catalog
	if err := readCatalog(c.body, mostEntriesOfPut, &catalog); err != nil {
		return nil, err
	}
	leave()
	if !catalog.changesStock() {
		return s.db.ImportCatalog(c.Context(), c.store, catalog)
	}
	if key == "" {
		return nil, malformed("A catalog with stock_change needs the header Idempotency-Key, such as a UUID: " +
			"a request that is sent twice must not change the stock twice.")
	}

	answer, replayed, err := s.db.ImportCatalogOnce(c.Context(), c.store, catalog, key, digest(string(c.body)))
	if replayed {
		c.answerHeader.Set("Idempotent-Replayed", "true")
	}
	return pieces{answer}, err
}

// listWebhooks lists a store's endpoints, without the owner's phones.
func (s *server) listWebhooks(c *apiCall, _ noQuery) (any, error) {
	endpoints, err := s.db.Endpoints(c.Context(), c.store.ID)
	if err != nil {
		return nil, err
	}
	shown := []shownWebhook{}
	for _, e := range endpoints {
		if e.Kind == Webhook {
			shown = append(shown, showWebhook(e, ""))
		}
	}
	return jsonObject{"webhooks": shown}, nil
}

// shownWebhook is an endpoint as the API shows it.
type shownWebhook struct {
	ID        string      `json:"id"`
	URL       string      `json:"url"`
	Events    []EventName `json:"events"` // none: all
	Active    bool        `json:"active"`
	OffReason string      `json:"off_reason,omitempty"`
	Secret    string      `json:"secret,omitempty"` // shown once, to whoever adds it
	CreatedAt Time        `json:"created_at"`
}

func showWebhook(e Endpoint, secret string) shownWebhook {
	return shownWebhook{e.ID, e.URL, e.Events, e.Active, e.OffReason, secret, e.CreatedAt}
}

func (s *server) addWebhook(c *apiCall, _ noQuery) (any, error) {
	in := NewEndpoint{Kind: Webhook, AllowPrivate: s.allowPrivate}
	if err := readJSON(c.body, &in); err != nil {
		return nil, err
	}

	c.leave()
	id, secret, err := s.db.AddEndpoint(c.Context(), c.store.ID, in)
	if err != nil {
		return nil, err
	}
	e, err := s.db.Endpoint(c.Context(), c.store.ID, id)
	if err != nil {
		return nil, err
	}
	c.status = http.StatusCreated
	return jsonObject{"webhook": showWebhook(e, secret)}, nil
}

func (s *server) removeWebhook(c *apiCall, _ noQuery) (any, error) {
	c.leave()
	id := strings.ToLower(c.PathValue("webhook_id"))
	e, err := s.db.Endpoint(c.Context(), c.store.ID, id)
	if err != nil {
		return nil, err
	}
	if e.Kind != Webhook { // Phones belong to the owner.
		return nil, ErrNotFound
	}
	return jsonObject{"webhook": jsonObject{"id": id}}, s.db.RemoveEndpoint(c.Context(), c.store.ID, id)
}

// getHealth says that the program runs.
func (s *server) getHealth(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, http.StatusOK, jsonObject{"status": "alive"}, nil)
}

// getReadiness says whether new requests should be sent here: whether the file can be relied on and the
// service is not stopping. A full disk does not affect it.
func (s *server) getReadiness(w http.ResponseWriter, r *http.Request) {
	err := s.db.isReady()
	if s.draining.Load() {
		err = &Refusal{Reason: Unavailable, Words: "The service is stopping."}
	}
	s.answer(w, r, http.StatusOK, jsonObject{"status": "ready"}, err)
}

//go:embed openapi.json
var description string

// getDescription serves the API's description to anyone, including pages of other sites, without an envelope.
// It names the service's own address.
func (s *server) getDescription(w http.ResponseWriter, r *http.Request) {
	if err := readQuery(r.URL.RawQuery, &noQuery{}); err != nil {
		s.fail(w, r, err)
		return
	}

	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	io.WriteString(w, s.description) // Slow readers share one copy.
}
