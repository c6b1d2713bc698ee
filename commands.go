//go:build cgo

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-sqlite3"
)

// This file holds the commands for administration. They work on the database's file, also while the service
// runs on it, and take effect at once. Each prints one JSON object.

// object is the JSON object that a command prints.
type object map[string]any

// onDB parses the flags (see parse for needed) and prints the result of do.
func (c *cli) onDB(needed string, do func(*DB) (object, error)) error {
	file := c.dbFlag()
	if err := c.parse(needed); err != nil {
		return err
	}
	return c.onFile(*file, false, do)
}

// rowCommand acts on the row with an id, which belongs to a store.
type rowCommand func(ctx context.Context, db *DB, storeID, id string) (object, error)

// withID returns a command for a row of a kind, with a flag for the row's id.
func withID(kind string, do rowCommand) func(context.Context, *cli) error {
	return func(ctx context.Context, c *cli) error {
		id := c.idFlag(kind)
		return c.onDB(kind, func(db *DB) (object, error) {
			rowID := strings.ToLower(*id)
			storeID, err := db.StoreOf(kind, rowID)
			if err != nil {
				return nil, err
			}
			return do(ctx, db, storeID, rowID)
		})
	}
}

// onFile opens a database and prints the result of do. With create it creates a missing file.
func (c *cli) onFile(file string, create bool, do func(*DB) (object, error)) error {
	db, err := c.openDB(file, create)
	if err != nil {
		return err
	}

	result, err := do(db)
	err = errors.Join(explain(err, file), db.Close())
	if err != nil {
		return err
	}
	return c.print(result)
}

// print prints the one JSON object of a command.
func (c *cli) print(result object) error {
	_, err := fmt.Fprintf(c.stdout, "%s\n", mustJSON(result))
	return err
}

// explain adds to an error what the person who runs the command can do about it.
func explain(err error, file string) error {
	switch {
	case err == errNotFound:
		return fmt.Errorf("%s has nothing with this id: the list commands show the ids", file)
	case errors.Is(err, errResultUnknown):
		return fmt.Errorf("%s: %w. The list commands show it once the disk works again", file, err)
	case outOfService(err):
		return fmt.Errorf("cannot write to %s: free some disk space, "+
			"or wait until other commands on it are done (%w)", file, err)
	}
	return err
}

// storeFlags defines the flags that describe a store. Parsing writes them into the result; a flag that is not
// given has the value of a new store.
func (c *cli) storeFlags() *StoreProfile {
	st := &StoreProfile{}
	c.StringVar(&st.Name, "name", "", "the store's `name`, as buyers see it")
	c.StringVar(&st.OwnerEmail, "email", "", "the owner's `e-mail`, to sign in with")
	c.StringVar((*string)(&st.Plan), "plan", string(PlanGrowth),
		"`free, growth or scale`; on free the API answers PLAN_REQUIRED")
	c.StringVar(&st.Slug, "slug", "", "the store's short `name` in addresses (default: made from the name)")
	c.StringVar(&st.Domain, "domain", "", "the `host` of the store's pages, if it has its own")
	c.DurationVar(&st.Expiry, "expiry", 24*time.Hour, "how long an order waits for its payment, 10m to 168h")
	c.StringVar(&st.Contact, "contact", "",
		"where buyers ask about their orders: a WhatsApp `number or an e-mail` address")
	c.Func("test",
		"`on or off` (default off): in test mode the store offers the sandbox, and its pages say so",
		st.setTestMode)
	return st
}

func (st *StoreProfile) setTestMode(value string) error {
	if value != "on" && value != "off" {
		return errors.New("must be on or off")
	}
	st.TestMode = value == "on"
	return nil
}

// copyGiven copies the fields whose flags were given from one store to another.
func copyGiven(to, from *StoreProfile, given map[string]bool) {
	if given["name"] {
		to.Name = from.Name
	}
	if given["email"] {
		to.OwnerEmail = from.OwnerEmail
	}
	if given["plan"] {
		to.Plan = from.Plan
	}
	if given["slug"] {
		to.Slug = from.Slug
	}
	if given["domain"] {
		to.Domain = from.Domain
	}
	if given["expiry"] {
		to.Expiry = from.Expiry
	}
	if given["contact"] {
		to.Contact = from.Contact
	}
	if given["test"] {
		to.TestMode = from.TestMode
	}
}

// checkStore changes a store's fields to the form in which they are stored, and refuses wrong ones.
func checkStore(st *StoreProfile) error {
	st.Name = strings.TrimSpace(st.Name)
	st.OwnerEmail = strings.ToLower(st.OwnerEmail)
	st.Domain = strings.ToLower(st.Domain)
	st.Contact = strings.TrimSpace(st.Contact)

	switch {
	case st.Name == "" || utf8.RuneCountInString(st.Name) > 200:
		return usagef("-name must have 1 to 200 characters")
	case strings.ContainsFunc(st.Name, isControl):
		return usagef("-name must have no control characters, also none that change the direction of writing")
	case !isEmail(st.OwnerEmail):
		return usagef("-email %q must be an e-mail address such as owner@example.id", st.OwnerEmail)
	case !slices.Contains([]Plan{PlanFree, PlanGrowth, PlanScale}, st.Plan):
		return usagef("-plan %q must be free, growth or scale", st.Plan)
	case !slugPattern.MatchString(st.Slug) || len(st.Slug) > 63:
		return usagef("-slug %q must have lower-case letters, digits and single hyphens, such as kopi-kita",
			st.Slug)
	case st.Domain != "" && !hostPattern.MatchString(st.Domain):
		return usagef("-domain %q must be a host without scheme or port, such as order.kopikita.id",
			st.Domain)
	case st.Contact != "" && !isContact(st.Contact):
		return usagef("-contact %q must be a WhatsApp number such as 0812 3456 7890, or an e-mail address",
			st.Contact)
	case st.Expiry < leastExpiry || st.Expiry > mostExpiry:
		return usagef("-expiry must be 10m to 168h")
	}
	return nil
}

func storeAdd(ctx context.Context, c *cli) error {
	file := c.dbFlag()
	st := c.storeFlags()
	if err := c.parse("name email"); err != nil {
		return err
	}

	if !c.given()["slug"] {
		st.Slug = slugOf(st.Name)
	}
	// The database is created after this, so that a mistake leaves no file.
	if err := checkStore(st); err != nil {
		return err
	}

	return c.onFile(*file, true, func(db *DB) (object, error) {
		password, hash := c.newPassword()
		added, err := db.AddStore(ctx, *st, hash)
		return object{
			"store_id":       added.ID,
			"owner_email":    added.OwnerEmail,
			"owner_password": password,
		}, err
	})
}

// storeView is a store as the commands show it.
func storeView(st StoreProfile) object {
	return object{
		"store_id":    st.ID,
		"name":        st.Name,
		"slug":        st.Slug,
		"domain":      st.Domain,
		"plan":        st.Plan,
		"expiry":      st.Expiry.String(),
		"contact":     st.Contact,
		"test":        st.TestMode,
		"owner_email": st.OwnerEmail,
		"created_at":  st.CreatedAt,
		"url":         st.URL,
	}
}

func storeList(ctx context.Context, c *cli) error {
	return c.onDB("", func(db *DB) (object, error) {
		stores, err := db.Stores()

		views := []object{}
		for _, st := range stores {
			views = append(views, storeView(st))
		}
		return object{"stores": views}, err
	})
}

// storeSet changes the fields whose flags were given.
func storeSet(ctx context.Context, c *cli) error {
	id := c.idFlag("store")
	flags := c.storeFlags()

	return c.onDB("store", func(db *DB) (object, error) {
		st, err := db.SetStore(ctx, *id, func(st *StoreProfile) error {
			copyGiven(st, flags, c.given())
			return checkStore(st)
		})
		return storeView(st), err
	})
}

func storePassword(ctx context.Context, db *DB, storeID, id string) (object, error) {
	password, hash := db.env.newPassword()
	err := db.SetPassword(ctx, id, hash)
	return object{"store_id": id, "owner_password": password}, err
}

func keyAdd(ctx context.Context, c *cli) error {
	id := c.idFlag("store")
	name := c.String("name", "", "what the key is for, to know it by")
	scope := c.String("scope", string(ScopeWrite),
		"`read, write or manage`: read lists and reads; write also creates orders and starts their payment; "+
			"manage also approves, cancels and refunds orders, and changes the catalog")
	lasts := c.Duration("expires", 0, "how long the key works, such as 2160h (default: until it is revoked)")

	return c.onDB("store name", func(db *DB) (object, error) {
		if !slices.Contains(scopes, Scope(*scope)) {
			return nil, usagef("-scope %q must be %s", *scope, joinOr(scopes))
		}
		if c.given()["expires"] && *lasts < time.Minute {
			return nil, usagef("-expires must be 1m or more")
		}

		key, hash := newToken("so_")
		keyID, err := db.AddKey(ctx, *id, NewKey{*name, Scope(*scope), *lasts}, hash)
		return object{"key_id": keyID, "key": key}, err
	})
}

func keyList(ctx context.Context, db *DB, storeID, id string) (object, error) {
	keys, err := db.Keys(id)
	return object{"keys": keys}, err
}

func keyRevoke(ctx context.Context, db *DB, storeID, id string) (object, error) {
	err := db.RevokeKey(ctx, storeID, id)
	return object{"key_id": id, "revoked": true}, err
}

func webhookAdd(ctx context.Context, c *cli) error {
	id := c.idFlag("store")
	address := c.String("url", "", "the `address` that events are posted to")
	list := c.String("events", "", "the `names` of the events to send, with commas between (default all)")
	private := c.Bool("webhook-allow-private", false,
		"take http and private addresses too; serve needs the same flag to deliver to private ones")

	return c.onDB("store url", func(db *DB) (object, error) {
		if wrong := checkWebhookURL(*address, *private); wrong != nil {
			return nil, usagef("-url %s", wrong.Message)
		}

		names := strings.FieldsFunc(*list, func(r rune) bool { return r == ',' || r == ' ' })
		events, wrong := checkEvents(names)
		if wrong != nil {
			return nil, usagef("-events: %s", wrong.Message)
		}

		secret := newSecret()
		endpointID, err := db.AddEndpoint(ctx, *id, *address, events, secret)
		return object{"endpoint_id": endpointID, "secret": secret}, err
	})
}

// webhookList shows the last 20 deliveries of each endpoint.
func webhookList(ctx context.Context, db *DB, storeID, id string) (object, error) {
	endpoints, err := db.Endpoints(id, 20)
	return object{"endpoints": endpoints}, err
}

func webhookRotate(ctx context.Context, db *DB, storeID, id string) (object, error) {
	secret := newSecret()
	err := db.RotateSecret(ctx, storeID, id, secret)
	return object{"endpoint_id": id, "secret": secret}, err
}

// webhookSwitch turns an endpoint on or off.
func webhookSwitch(on bool) rowCommand {
	return func(ctx context.Context, db *DB, storeID, id string) (object, error) {
		err := db.SwitchEndpoint(ctx, storeID, id, on)
		return object{"endpoint_id": id, "active": on}, err
	}
}

func webhookRemove(ctx context.Context, db *DB, storeID, id string) (object, error) {
	err := db.RemoveEndpoint(ctx, storeID, id)
	return object{"endpoint_id": id, "removed": true}, err
}

// webhookResend resends one delivery, or those of an endpoint that were not delivered since a time.
func webhookResend(ctx context.Context, c *cli) error {
	endpoint := c.idFlag("endpoint")
	delivery := c.String("delivery", "", "send this delivery again, by its `id`")
	since := c.String("since", "",
		"with -endpoint: send again what is not delivered of events since this `time`, "+
			"such as 2026-01-31T10:00Z")

	return c.onDB("", func(db *DB) (object, error) {
		one := *delivery != "" && *endpoint == "" && *since == ""
		several := *delivery == "" && *endpoint != "" && *since != ""
		if !one && !several {
			return nil, usagef("needs either -delivery, or -endpoint and -since")
		}

		from, ok := parseTime(*since, false)
		if several && !ok {
			return nil, usagef("-since %q must be a date or time such as 2026-01-31 or 2026-01-31T10:00Z",
				*since)
		}

		kind, rowID := "endpoint", *endpoint
		if one {
			kind, rowID = "delivery", *delivery
		}

		storeID, err := db.StoreOf(kind, rowID)
		if err != nil {
			return nil, err
		}

		var n int64
		if one {
			n, err = db.ResendDelivery(ctx, storeID, *delivery)
		} else {
			n, err = db.ResendSince(ctx, storeID, *endpoint, from)
		}
		return object{"resent": n}, err
	})
}

// webhookListen prints the bodies of a store's events, beginning now, until the program is stopped. It reads them from the
// database, so a developer needs no address that the service can reach.
func webhookListen(ctx context.Context, c *cli) error {
	file := c.dbFlag()
	id := c.idFlag("store")
	if err := c.parse("store"); err != nil {
		return err
	}

	db, err := c.openDB(*file, false)
	if err != nil {
		return err
	}
	err = c.printEvents(ctx, db, strings.ToLower(*id))
	return errors.Join(explain(err, *file), db.Close())
}

func (c *cli) printEvents(ctx context.Context, db *DB, storeID string) error {
	st, err := db.Store(storeID)
	if err != nil {
		return err
	}
	filter := EventFilter{Min: new(db.Now()), Limit: 50}
	fmt.Fprintf(c.stderr, "%s: the events of %s, from now on\n", c.Name(), st.Name)

	for {
		bodies, more, err := db.Events(storeID, filter)
		if err != nil {
			return err
		}
		for _, body := range bodies {
			if _, err := fmt.Fprintln(c.stdout, body); err != nil {
				return err
			}
			filter.After = eventIDIn(body)
		}

		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// orderTransition performs a transition of the owner, and asks the gateway what it means there: a challenged payment
// is accepted or denied, and a page that can still be paid is closed.
func orderTransition(t Transition) rowCommand {
	return func(ctx context.Context, db *DB, storeID, id string) (object, error) {
		p := newPayments(db, slog.New(slog.DiscardHandler), func() {})
		var problem, err error
		if t == OwnerApproves {
			problem, err = p.approveOrder(ctx, storeID, id, Note{Code: NoteByCommand})
		} else {
			_, err = db.Transition(ctx, storeID, id, t, Note{Code: NoteByCommand})
		}
		if err != nil {
			return nil, err
		}
		if problem == nil {
			_, problem = p.checkOrder(ctx, id)
		}

		_, o, err := db.OrderPage(id)
		result := object{"order_id": o.ID, "status": o.Status}
		if problem != nil {
			result["problem"] = problem.Error()
		}
		return result, err
	}
}

// paymentCheck asks the gateway about all of an order's sessions. A running service finds the events of its answers
// by itself.
func paymentCheck(ctx context.Context, db *DB, storeID, id string) (object, error) {
	p := newPayments(db, slog.New(slog.DiscardHandler), func() {})
	checked, problem := p.checkOrder(ctx, id)

	sessions := []object{}
	for _, c := range checked {
		sessions = append(sessions, checkedView(c))
	}
	if problem == nil && len(checked) == 0 {
		problem = errors.New("there is nothing to ask: the order has no payment session")
	}
	if problem != nil {
		return nil, problem
	}

	_, o, err := db.OrderPage(id)
	return object{"order_id": o.ID, "status": o.Status, "sessions": sessions}, err
}

// checkedView is what a gateway says of a session, as "payment check" shows it.
func checkedView(c checkedSession) object {
	payments := []object{}
	for _, a := range c.Answers {
		if a.TransactionID == "" {
			continue
		}
		payments = append(payments, object{
			"transaction_id": a.TransactionID,
			"gateway_says":   a.State,
			"amount":         a.Amount,
			"returned":       a.Returned,
		})
	}
	return object{
		"provider":     c.Provider,
		"attempt":      c.Attempt,
		"gateway_says": mainState(c.Answers),
		"payments":     payments,
		"done":         cmp.Or(c.Done, "nothing"),
	}
}

// gatewaySet reads the secrets from stdin, so that no list of processes and no shell's history shows them.
func gatewaySet(ctx context.Context, c *cli) error {
	id := c.idFlag("store")
	provider := c.String("provider", "", "`midtrans or xendit`")
	mode := c.String("mode", "", "`sandbox or live`")

	return c.onDB("store provider mode", func(db *DB) (object, error) {
		g := GatewayAccount{Provider: Provider(*provider), Mode: Mode(*mode)}
		lines := bufio.NewScanner(c.stdin)
		g.SecretKey = nextLine(lines)
		if g.Provider == ProviderXendit {
			g.CallbackToken = nextLine(lines)
		}

		if wrong, ok := checkGateway(g); !ok {
			return nil, usagef("%s", wrong.Message)
		}
		if err := db.SetGateway(ctx, *id, g); err != nil {
			return nil, err
		}
		st, err := db.Store(*id)
		if err != nil {
			return nil, err
		}

		use := gatewayUse{
			storeID:  *id,
			xendit:   g.Provider == ProviderXendit,
			live:     g.Mode == ModeLive,
			testMode: st.TestMode,
		}
		for _, warning := range use.warnings(db.publicURL) {
			fmt.Fprintf(c.stderr, "%s: warning: %s\n", c.Name(), warning)
		}
		return object{
			"provider":          g.Provider,
			"mode":              g.Mode,
			"notification_path": "/notifications/" + *provider + "/" + *id,
		}, nil
	})
}

// nextLine returns a line without the spaces around it; after the last one, "".
func nextLine(lines *bufio.Scanner) string {
	lines.Scan()
	return strings.TrimSpace(lines.Text())
}

func catalogImport(ctx context.Context, c *cli) error {
	id := c.idFlag("store")

	return c.onDB("store", func(db *DB) (object, error) {
		file := c.Arg(0)
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}

		catalog, err := readCatalog(data)
		if err == nil {
			err = db.ImportCatalog(ctx, *id, catalog)
		}

		if _, refused := errors.AsType[*APIError](err); refused && err != errNotFound {
			err = fmt.Errorf("%s: %w", file, err)
		}
		return catalog.counts(), err
	})
}

// orderList lists a store's orders as the API does, the newest first.
func orderList(ctx context.Context, c *cli) error {
	id := c.idFlag("store")
	status := c.String("status", "", "only orders with this `status`, such as paid")
	limit := c.Int("limit", 20, "at most so many orders")
	after := c.String("after", "", "only older orders than the one with this `id`: the next page")

	return c.onDB("store", func(db *DB) (object, error) {
		if *status != "" && !slices.Contains(statuses, Status(*status)) {
			return nil, usagef("-status %q must be %s", *status, joinOr(statuses))
		}
		if *limit < 1 {
			return nil, usagef("-limit must be 1 or more")
		}
		st, err := db.Store(strings.ToLower(*id))
		if err != nil {
			return nil, err
		}

		orders, more, err := appendOrders(nil, db.reader, st.Store, OrderFilter{
			Status: Status(*status),
			After:  strings.ToLower(*after),
			Limit:  *limit,
		})
		return object{"orders": json.RawMessage(orders), "has_more": more}, err
	})
}

// orderShow shows an order as the API does.
func orderShow(_ context.Context, db *DB, storeID, id string) (object, error) {
	st, err := db.Store(storeID)
	if err != nil {
		return nil, err
	}
	o, err := db.OrderWithSession(storeID, id)
	if err != nil {
		return nil, err
	}
	view := viewPaymentSession(o, st.payPage(id))
	return object{
		"order":           json.RawMessage(st.showOrderPaidAt(nil, o.Stored, view.PaymentURL)),
		"payment_session": view,
	}, nil
}

// version prints what this program was built from.
func version(_ context.Context, c *cli) error {
	if err := c.parse(""); err != nil {
		return err
	}

	sqlite, _, _ := sqlite3.Version()
	result := object{
		"version":        "",
		"revision":       "",
		"modified":       false,
		"schema_version": schemaVersion,
		"go":             runtime.Version(),
		"sqlite":         sqlite,
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return c.print(result)
	}

	result["version"] = build.Main.Version
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			result["revision"] = s.Value
		case "vcs.modified":
			result["modified"] = s.Value == "true"
		}
	}
	return c.print(result)
}
