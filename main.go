// Storeorder is the order service of a small shop: one binary, one SQLite file. See README.md.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3"
)

// This file is the command line: one table of commands, what serve sets up and shuts down, the demo, and a
// function for each administrative command. These work on the database file, even while it is served. They
// print one JSON object on stdout; hints and errors are sentences on stderr.

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	os.Exit(run(ctx, os.Args[1:], realEnvironment()))
}

// environment is what the program gets from outside. Tests replace parts of it.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	listen         func(network, address string) (net.Listener, error)
	transport      http.RoundTripper               // to gateways and webhook receivers; nil means the network
	commit         func(commit func() error) error // performs each COMMIT of the database
	now            func() time.Time                // the wall clock
	rounds         int                             // of a password's hash
}

func realEnvironment() environment {
	return environment{
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		listen: net.Listen,
		commit: func(commit func() error) error { return commit() },
		now:    time.Now,
		rounds: 600_000,
	}
}

// command is a row of the table of commands. It works on no database ("-"), on one that is only read ("="),
// on one that is created if it is missing ("+"), on one that exists (""), or on a row in it, which the flag
// of that name gives.
type command struct {
	usage string // what a person types
	flags string // the names of its flags; one with ! is needed
	does  string // what the help says
	kind  string // what it works on
	do    func(c *call) (result any, err error)
}

// commands are in the order of the help.
var commands = []command{
	{"demo", "addr", "try it out: a temporary store with orders", "-", demo},
	{"serve", "db addr public-url subdomains rate burst trusted-proxy gateway-url webhook-allow-private keep-events " +
		"log-format", "run the service", "-", serve},
	{"store add", "db name! email! plan slug domain expiry contact language test",
		"create a store; prints its owner's password once", "+", storeAdd},
	{"store list", "db", "list the stores", "", storeList},
	{"store set", "db store name email plan slug domain expiry contact language test", "change a store", "store",
		storeSet},
	{"store password", "db store", "give a store's owner a new password", "store", storePassword},
	{"key add", "db store name! scope expires", "create an API key; prints it once", "store", keyAdd},
	{"key list", "db store", "list a store's API keys", "store", keyList},
	{"key revoke", "db key!", "revoke an API key at once", "key", keyRevoke},
	{"webhook add", "db store url! events webhook-allow-private", "register an endpoint; prints its secret once",
		"store", webhookAdd},
	{"webhook list", "db store", "list a store's endpoints and last deliveries", "store", webhookList},
	{"webhook listen", "db store", "print a store's events as they happen", "store", webhookListen},
	{"webhook remove", "db endpoint!", "delete an endpoint and its deliveries", "endpoint", webhookRemove},
	{"webhook resend", "db delivery endpoint since", "send deliveries again", "", webhookResend},
	{"order list", "db store status", "list a store's 50 newest orders", "store", orderList},
	{"order show", "db order!", "show an order as the API does", "order", orderShow},
	{"order approve", "db order! gateway-url", "accept an order's payment", "order", decide(Approve)},
	{"order reject", "db order! gateway-url", "reject a reported or held payment", "order", decide(Reject)},
	{"order cancel", "db order! gateway-url", "cancel an order that is not paid", "order", decide(Cancel)},
	{"order refund", "db order!", "mark an order's money as returned", "order", decide(Refund)},
	{"payment check", "db order! gateway-url", "ask the gateway now", "order", paymentCheck},
	{"gateway set", "db store provider! mode! gateway-url", "store a gateway's key, read from stdin", "store",
		gatewaySet},
	{"catalog import <file.json>", "db store", "add or change what a store sells", "store", catalogImport},
	{"backup <copy.db>", "db", "copy the database while it is in use", "", backup},
	{"restore <copy.db>", "db", "put a backup in the database's place", "-", restoreBackup},
	{"check", "db", "check a database or a backup", "=", check},
	{"health", "addr", "ask a running service whether it is ready", "-", health},
	{"version", "", "print the versions of this program", "-", version},
}

// call is a command that is called, with its flags. It is the context of everything that the command does.
type call struct {
	context.Context
	environment
	flags    *flag.FlagSet
	argument string // what stands beside the flags, such as a file; "" = nothing

	file, addr               string
	subdomains, allowPrivate bool
	trusted                  []netip.Prefix
	gatewayURLs              map[Provider]string
	textFlags

	// The database, the id of the row that the command is about, and its store, once they are known.
	db    *DB
	id    string
	store Store
}

// textFlags are the flags that readForm reads, by their rules. One that is not given leaves its field zero,
// except -rate and -burst. Given has the names of those that are.
type textFlags struct {
	PublicURL string   `json:"public-url" rule:"origin optional" usage:"the address that buyers reach the service at"`
	LogFormat string   `json:"log-format" rule:"choice text|json optional" usage:"how the log is written (default text)"`
	Rate      int64    `json:"rate" rule:"int 1..10000000 =300" usage:"requests a minute for each key (default 300)"`
	Burst     int64    `json:"burst" rule:"int 1..10000000 =60" usage:"requests at once for each key (default 60)"`
	Store     string   `json:"store" rule:"id optional" usage:"a store's id; needed if there are several"`
	Key       string   `json:"key" rule:"id optional" usage:"a key's id"`
	Endpoint  string   `json:"endpoint" rule:"id optional" usage:"an endpoint's id"`
	Delivery  string   `json:"delivery" rule:"id optional" usage:"a delivery's id"`
	Order     string   `json:"order" rule:"id optional" usage:"an order's id"`
	Name      string   `json:"name" rule:"text 1..100 optional" usage:"its name"`
	Email     string   `json:"email" rule:"email optional" usage:"the owner's e-mail address"`
	Plan      Plan     `json:"plan" rule:"choice free|growth|scale optional" usage:"free has no API"`
	Slug      string   `json:"slug" rule:"slug optional" usage:"its name in addresses"`
	Domain    string   `json:"domain" rule:"host optional" usage:"its own host, if it has one"`
	Contact   string   `json:"contact" rule:"contact optional" usage:"for buyers: WhatsApp or e-mail"`
	Language  string   `json:"language" rule:"choice id|en optional" usage:"of messages to the owner's phone"`
	Test      string   `json:"test" rule:"choice on|off optional" usage:"offer the sandbox"`
	Scope     Scope    `json:"scope" rule:"choice read|write|manage optional" usage:"default write"`
	URL       string   `json:"url" rule:"text 1..2048 optional" usage:"where events are sent"`
	Events    string   `json:"events" rule:"text 1..500 optional" usage:"names separated by commas (default all)"`
	Since     Time     `json:"since" rule:"time optional" usage:"with -endpoint: whatever was not delivered since"`
	Provider  Provider `json:"provider" rule:"choice midtrans|xendit optional" usage:"whose key it is"`
	Mode      Mode     `json:"mode" rule:"choice sandbox|live optional" usage:"whether it takes real money"`
	Status    Status   `json:"status" rule:"choice pending|awaiting_verification|paid|failed|expired|refunded optional" usage:"only orders in this state"`
	Given     map[string]bool

	Expiry     time.Duration `json:"expiry" rule:"duration 10..10080 optional" usage:"time to pay an order (a new store has 24h)"`
	Expires    time.Duration `json:"expires" rule:"duration 1..5256000 optional" usage:"how long the key works (default: for good)"`
	KeepEvents time.Duration `json:"keep-events" rule:"duration 10080..5256000 optional" usage:"how long events are kept (default 2160h)"`
}

// define defines all the flags that exist.
func (c *call) define(f *flag.FlagSet) {
	f.StringVar(&c.file, "db", "storeorder.db", "the database `file`")
	f.StringVar(&c.addr, "addr", "127.0.0.1:8080", "the `address` that the service listens on")
	f.BoolVar(&c.subdomains, "subdomains", false, "serve each store's pages at <slug>.<public host>")
	f.BoolVar(&c.allowPrivate, "webhook-allow-private", false,
		"allow http and private addresses; serve and webhook add each need it")
	f.Func("trusted-proxy", "believe X-Forwarded-For from this `CIDR` (repeatable)", c.addProxy)
	f.Func("gateway-url", "reach a gateway elsewhere, `provider=URL` (repeatable)", c.addGatewayURL)
	for field := range reflect.TypeFor[textFlags]().Fields() {
		what, _, _ := strings.Cut(strings.TrimPrefix(field.Tag.Get("rule"), "choice "), " ")
		f.String(field.Tag.Get("json"), "", "`"+what+"`: "+field.Tag.Get("usage"))
	}
}

func (c *call) addProxy(text string) error {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return errors.New("must be a network such as 10.0.0.0/8")
	}
	c.trusted = append(c.trusted, network)
	return nil
}

// isGatewayURL reports whether text is a provider and an address: provider=URL.
var isGatewayURL = matcher(`^(?:midtrans|xendit)=(?i:https?)` + addressEnd)

func (c *call) addGatewayURL(text string) error {
	if !isGatewayURL(text) {
		return errors.New("must look like midtrans=http://127.0.0.1:9000")
	}
	provider, address, _ := strings.Cut(text, "=")
	c.gatewayURLs[Provider(provider)] = strings.TrimSuffix(address, "/")
	return nil
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run executes the command that args name and returns the exit code: 0, 1 (failed) or 2 (usage).
func run(ctx context.Context, args []string, env environment) int {
	var names []string
	for _, command := range commands {
		name, _, _ := strings.Cut(command.usage, " <")
		names = append(names, name)
		words := strings.Count(name, " ") + 1
		if len(args) < words || strings.Join(args[:words], " ") != name {
			continue
		}

		c := &call{
			Context:     ctx,
			environment: env,
			flags:       flag.NewFlagSet("storeorder "+name, flag.ContinueOnError),
			gatewayURLs: map[Provider]string{},
		}

		c.flags.SetOutput(io.Discard)
		err := c.parse(args[words:], command)
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(c.stdout, "storeorder %s: %s\n", command.usage, command.does)
			c.flags.SetOutput(c.stdout)
			c.flags.PrintDefaults()
			return 0
		}
		if err == nil {
			err = c.do(command)
		}
		return c.report(err)
	}

	given := strings.Join(args, " ")
	if !asksForHelp(given) {
		fmt.Fprintf(env.stderr, "storeorder: there is no command %q: choose from %s\n", given, strings.Join(names, ", "))
		return 2
	}

	fmt.Fprintln(env.stdout, "storeorder is a small shop's order service. Its commands, each with -h for its flags:")
	for _, command := range commands {
		fmt.Fprintf(env.stdout, "  %-26s %s\n", command.usage, command.does)
	}
	return 0
}

// asksForHelp reports whether a command line is empty or begins with help, -h or the like.
var asksForHelp = matcher(`^(?:-*(?:h|help)(?: .*)?)?$`)

// parse reads the flags and the argument, which may come in any order.
func (c *call) parse(words []string, command command) error {
	var known flag.FlagSet
	c.define(&known)
	for name := range strings.FieldsSeq(command.flags) {
		f := known.Lookup(strings.TrimSuffix(name, "!"))
		c.flags.Var(f.Value, f.Name, f.Usage)
	}

	err := c.flags.Parse(words)
	if err == nil && c.flags.NArg() > 0 {
		c.argument = c.flags.Arg(0)
		err = c.flags.Parse(c.flags.Args()[1:])
	}
	if err != nil {
		return usageError{err}
	}
	if c.flags.NArg() > 0 || (c.argument != "") != strings.Contains(command.usage, "<") {
		return usagef("wrong arguments: the command is \"storeorder %s\"", command.usage)
	}

	given := url.Values{}
	c.flags.Visit(func(f *flag.Flag) { given.Set(f.Name, f.Value.String()) })
	for name := range strings.FieldsSeq(command.flags) {
		needed, is := strings.CutSuffix(name, "!")
		if is && strings.TrimSpace(given.Get(needed)) == "" {
			return usagef("-%s is needed", needed)
		}
	}

	if err := readForm(given, &c.textFlags); err != nil {
		return usageError{err}
	}
	return nil
}

// do runs a command and prints the result.
func (c *call) do(command command) (err error) {
	modes := map[string]openMode{"+": openOrCreate, "=": openReadOnly} // else openExisting
	if command.kind != "-" {
		c.db, err = openDB(c.file, modes[command.kind], c.environment, nil)
		if err != nil {
			return err
		}
		defer c.db.close()
	}

	if id := c.flags.Lookup(command.kind); id != nil {
		if err := c.find(command.kind, id.Value.String()); err != nil {
			return err
		}
	}

	result, err := command.do(c)
	if err != nil || result == nil {
		return err
	}
	return json.NewEncoder(c.stdout).Encode(result)
}

// find sets c.id and c.store by the id of a row or, if that is "", to the only store.
func (c *call) find(kind, id string) (err error) {
	if id == "" {
		stores, err := c.db.Stores(c)
		if err != nil {
			return err
		}
		if len(stores) != 1 {
			return usagef("-store is needed, because there are %d stores: see \"store list\" and \"store add\"", len(stores))
		}
		id = stores[0].ID
	}

	c.id = strings.ToLower(id)
	c.store, err = c.db.StoreOf(c, kind, c.id)
	return err
}

// report prints why a command failed, in one line, and returns its exit code.
func (c *call) report(err error) int {
	if err == nil {
		return 0
	}
	text := err.Error()
	code := 1
	before := ""
	after := ""
	if _, ok := errors.AsType[usageError](err); ok {
		code = 2
		before = "-"
		after = " (-h shows the flags)"
	}

	if _, ok := errors.AsType[*Refusal](err); ok {
		_, e := describe(http.Header{}, err)
		texts := []string{}
		for _, wrong := range e.Details {
			texts = append(texts, before+wrong.Field+" "+wrong.Message)
		}

		text = cmp.Or(strings.Join(texts, "; "), e.Message)
		if c.argument != "" {
			text = c.argument + ": " + text
		}
	}

	if errors.Is(err, ErrNotFound) {
		text = c.file + " has nothing with this id: the list commands show the ids"
	}

	c.hint("%s%s", text, after)
	return code
}

// hint prints a sentence for the person who runs a command.
func (c *call) hint(format string, args ...any) {
	fmt.Fprintf(c.stderr, c.flags.Name()+": "+format+"\n", args...)
}

// serve runs the service on a file, which it creates if it is missing.
func serve(c *call) (any, error) {
	var handler slog.Handler = slog.NewTextHandler(c.stderr, nil)
	if c.LogFormat == "json" {
		handler = slog.NewJSONHandler(c.stderr, nil)
	}
	return nil, c.serve(slog.New(handler), func() error {
		stores, err := c.db.Stores(c)
		if err == nil && len(stores) == 0 {
			c.db.log.Warn("the database has no store yet: add one with \"storeorder store add -db " + c.file + "\"")
		}
		return err
	})
}

// usualPort matches addresses with a port that browsers leave out, and captures the rest.
var usualPort = regexp.MustCompile(`^(http:.*):80$|^(https:.*):443$`)

// serve listens, opens the file, prepares it and runs the service until the context ends. Then it finishes
// what was begun, in 25 seconds at most.
func (c *call) serve(log *slog.Logger, prepare func() error) (err error) {
	ln, err := c.listen("tcp", c.addr)
	if err != nil {
		return fmt.Errorf("cannot listen: -addr must be a host and a port that is not taken (%w)", err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	c.PublicURL = strings.ToLower(strings.TrimSuffix(cmp.Or(c.PublicURL, "http://localhost:"+port), "/"))
	c.PublicURL = usualPort.ReplaceAllString(c.PublicURL, "$1$2")

	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(400) // so that memory is collected rarely below the limit, and hard near it
		debug.SetMemoryLimit(256 << 20)
	}

	db, err := openDB(c.file, openToServe, c.environment, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	c.db = db
	if err := db.setAddress(c.PublicURL, c.subdomains); err != nil {
		return err
	}

	working, stop := context.WithCancel(context.WithoutCancel(c))
	defer stop()
	auth, err := newAuth(working, db, c.Rate, c.Burst, c.trusted)
	if err != nil {
		return err
	}
	if err := prepare(); err != nil && c.Err() == nil {
		return err
	}

	queue := newQueue(db, c.transport, c.allowPrivate)
	s := &server{
		db:           db,
		auth:         auth,
		payments:     c.payments(),
		allowPrivate: c.allowPrivate,
	}

	var background sync.WaitGroup
	background.Go(func() { s.payments.run(working) })
	background.Go(func() { queue.run(working) })
	background.Go(func() { db.watch(working) })
	background.Go(func() { c.upkeep(working, auth) })

	hs := &http.Server{
		Handler:           s.routes(),
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		MaxHeaderBytes:    16 << 10,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		ConnState:         limitConnections(c, 1024),
	}

	log.Info("serving", "address", ln.Addr().String(), "dashboard", c.PublicURL+"/dashboard", "database", c.file)
	if !isReachable(c.PublicURL) {
		log.Warn("gateways cannot reach " + c.PublicURL + " (Xendit's methods need https), and passwords are not safe on " +
			"http: before you sell, start serve with your own host as -public-url https://…, behind a proxy with TLS")
	}

	served := make(chan error, 1)
	go func() { served <- hs.Serve(ln) }()

	select {
	case err = <-served:
	case <-c.Done():
		log.Info("stopping: finishing what was begun")
	}

	s.draining.Store(true)
	stop()
	drain, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if hs.Shutdown(drain) != nil {
		log.Warn("requests were cut off")
		hs.Close()
	}

	background.Wait()
	return err
}

// upkeep runs once a minute: it notices jumps of the clock, writes when keys and sign-ins were used and, once
// an hour, purges what is old.
func (c *call) upkeep(ctx context.Context, auth *auth) {
	for minute := 0; ctx.Err() == nil; minute++ {
		jumped := c.db.clockJumped() // A jump shows as the difference to the last call.
		if minute%60 == 0 && !jumped {
			if err := c.db.purge(ctx, cmp.Or(c.KeepEvents, 90*24*time.Hour)); err != nil && ctx.Err() == nil {
				c.db.log.Warn("the database could not be cleaned up", "error", err)
			}
		}

		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
		auth.writeUses()
	}
}

//go:embed web/demo.json
var demoCatalog []byte

// demoOrders has a line for each order: its buyer, its payment method, and what then happens to it.
const demoOrders = `Budi bank_transfer report approve
	Dewi  cod           approve
	Agus  bank_transfer report reject
	Rina  bank_transfer approve refund
	Joko  bank_transfer expire
	Siti  bank_transfer report
	Putri bank_transfer
	Hadi  sandbox`

const demoText = `storeorder demo: a store that lasts until you press Ctrl-C.

  API key     %[2]s
  Dashboard   %[1]s%[3]s

Paste these into another terminal to see what is for sale, order it (open checkout_url to pay), and list the orders.

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/products

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/orders \
    -d '{"items":[{"type":"product","product_id":"%[4]s","quantity":2}],"buyer":{"name":"Siti","email":"siti@example.id"},"payment_method":"sandbox"}'

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/orders

`

// demo runs the service on a database that lasts as long as the program, with a store, its catalog and
// orders.
func demo(c *call) (any, error) {
	dir, err := os.MkdirTemp("", "storeorder-demo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c.file = filepath.Join(dir, "demo.db")
	c.allowPrivate = true
	log := slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelError})
	return nil, c.serve(slog.New(log), c.fillDemo)
}

// fillDemo makes the demo's store, catalog and orders, and prints how to use them.
func (c *call) fillDemo() error {
	c.Name = "Kopi Kita"
	c.Email = "owner@example.id"
	c.Test = "on"
	c.Contact = "0812 3456 7890"
	c.Given["contact"] = true
	if _, err := storeAdd(c); err != nil {
		return err
	}
	if _, err := c.importCatalog(demoCatalog); err != nil {
		return err
	}

	product, err := c.db.Entry(c, c.store.ID, Product, "kopi-gayo")
	if err != nil {
		return err
	}

	for line := range strings.Lines(demoOrders) {
		words := strings.Fields(line)
		if err := c.makeDemoOrder(product.ID, words[0], words[1], words[2:]); err != nil {
			return err
		}
	}

	_, key, err := c.db.AddKey(c, c.store.ID, "demo", ScopeManage, 0)
	if err != nil {
		return err
	}

	link, err := c.db.NewSignInLink(c, c.store.ID, c.db.now().Add(10*365*24*time.Hour))
	fmt.Fprintf(c.stdout, demoText, c.PublicURL, key, link, product.ID)
	return err
}

func (c *call) makeDemoOrder(productID, buyer, method string, acts []string) error {
	st := c.store
	if slices.Contains(acts, "expire") {
		st.Expiry = 0
	}

	o, err := c.db.CreateOrder(c, st, NewOrder{
		Items:         []NewItem{{Kind: Product, ID: productID, Quantity: 2}},
		Buyer:         Buyer{Name: buyer},
		PaymentMethod: method,
	})
	for _, act := range acts {
		switch {
		case err != nil:
		case act == "expire":
			err = c.payments().expire(c)
		case act == "report":
			err = c.db.ReportPayment(c, o.ID, method, buyer, "BCA")
		default:
			_, err = c.payments().Decide(c, st.ID, o.ID, Act(act), ActorOwner, Note{Code: NoteInDashboard}, "")
		}
	}
	return err
}

// edit changes the fields of a store whose flags were given.
func (c *call) edit(st *Store) {
	st.Name = cmp.Or(c.Name, st.Name)
	st.OwnerEmail = cmp.Or(strings.ToLower(c.Email), st.OwnerEmail)
	st.Plan = cmp.Or(c.Plan, st.Plan)
	st.Slug = cmp.Or(c.Slug, st.Slug)
	st.Language = cmp.Or(c.Language, st.Language)
	st.Expiry = cmp.Or(c.Expiry, st.Expiry)
	if c.Given["domain"] {
		st.Domain = c.Domain
	}
	if c.Given["contact"] {
		st.Contact = c.Contact
	}
	if c.Test != "" {
		st.TestMode = c.Test == "on"
	}
}

func storeAdd(c *call) (any, error) {
	st := Store{Slug: cmp.Or(slugOf(c.Name), "store"), Plan: PlanGrowth, Expiry: 24 * time.Hour}
	c.edit(&st)
	password, hash := newPassword(c.rounds)
	var err error
	c.store, err = c.db.AddStore(c, st, hash)
	return c.access(password, err)
}

// access returns how an owner signs in: with a password, or by a link that works once, for an hour. err is
// that of storing the password.
func (c *call) access(password string, err error) (any, error) {
	if err != nil {
		return nil, err
	}

	link, err := c.db.NewSignInLink(c, c.store.ID, c.db.now().Add(time.Hour))
	return jsonObject{
		"store_id":       c.store.ID,
		"owner_email":    c.store.OwnerEmail,
		"owner_password": password,
		"sign_in":        c.db.publicURL(c) + link,
	}, err
}

// storeView is a store as it is printed.
type storeView struct {
	Store
	Expiry string `json:"expiry"`
}

func storeList(c *call) (any, error) {
	stores, err := c.db.Stores(c)
	views := []storeView{}
	for _, st := range stores {
		views = append(views, storeView{st, st.Expiry.String()})
	}
	return jsonObject{"stores": views}, err
}

func storeSet(c *call) (any, error) {
	st, err := c.db.SetStore(c, c.id, c.edit)
	return storeView{st, st.Expiry.String()}, err
}

func storePassword(c *call) (any, error) {
	password, hash := newPassword(c.rounds)
	return c.access(password, c.db.SetPassword(c, c.id, hash, nil))
}

func keyAdd(c *call) (any, error) {
	key, secret, err := c.db.AddKey(c, c.id, c.Name, cmp.Or(c.Scope, ScopeWrite), c.Expires)
	return jsonObject{"key_id": key.ID, "key": secret}, err
}

func keyList(c *call) (any, error) {
	keys, err := c.db.Keys(c, c.id)
	return jsonObject{"keys": keys}, err
}

func keyRevoke(c *call) (any, error) {
	return jsonObject{"key_id": c.id, "revoked": true}, c.db.RevokeKey(c, c.store.ID, c.id)
}

func webhookAdd(c *call) (any, error) {
	in := NewEndpoint{Kind: Webhook, URL: c.URL, AllowPrivate: c.allowPrivate}
	for name := range strings.FieldsSeq(strings.ReplaceAll(c.Events, ",", " ")) {
		in.Events = append(in.Events, EventName(name))
	}

	id, secret, err := c.db.AddEndpoint(c, c.id, in)
	if isRefused(err, ValidationFailed) {
		err = usageError{err}
	}
	return jsonObject{"endpoint_id": id, "secret": secret}, err
}

// webhookList shows each endpoint with its last 20 deliveries.
func webhookList(c *call) (any, error) {
	endpoints, err := c.db.Endpoints(c, c.id)
	for i := range endpoints {
		if err == nil {
			endpoints[i].Recent, err = c.db.Deliveries(c, c.id, endpoints[i].ID, 20)
		}
	}
	return jsonObject{"endpoints": endpoints}, err
}

func webhookRemove(c *call) (any, error) {
	return jsonObject{"endpoint_id": c.id, "removed": true}, c.db.RemoveEndpoint(c, c.store.ID, c.id)
}

// webhookResend resends one delivery, or all those of an endpoint that were not delivered since a given time.
func webhookResend(c *call) (any, error) {
	if c.Delivery != "" {
		err := c.find("delivery", c.Delivery)
		if err == nil {
			err = c.db.Resend(c, c.store.ID, c.id)
		}
		return jsonObject{"resent": 1}, err
	}

	if c.Endpoint == "" || c.Since == 0 {
		return nil, usagef("needs -delivery, or -endpoint and -since")
	}
	if err := c.find("endpoint", c.Endpoint); err != nil {
		return nil, err
	}

	n, err := c.db.ResendSince(c, c.store.ID, c.id, c.Since)
	return jsonObject{"resent": n}, err
}

// webhookListen prints the bodies of a store's events from now on, until the program is stopped. It reads
// them from the database: so a developer needs no address that the service can reach.
func webhookListen(c *call) (any, error) {
	c.hint("the events of %s, from now on", c.store.Name)
	filter := EventFilter{CreatedMin: c.db.now() + 1, Limit: 50}
	for c.Err() == nil {
		events, _, err := c.db.Events(context.WithoutCancel(c), c.id, filter)
		if err != nil {
			return nil, err
		}

		for _, event := range events {
			filter.After = event.ID
			fmt.Fprintf(c.stdout, "%s\n", event.Body)
		}

		select {
		case <-c.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
	return nil, nil
}

func orderList(c *call) (any, error) {
	orders, more, err := c.db.Orders(c, c.id, OrderFilter{Status: c.Status, Limit: 50})
	return c.store.showOrders(orders, more), err
}

func orderShow(c *call) (any, error) {
	row, session, err := c.payments().OrderWithSession(c, c.store, c.id, false)
	if err != nil {
		return nil, err
	}
	return c.store.showSession(row, session), nil
}

// payments returns what starts and checks payment sessions. A command uses it only for what a person asks
// for.
func (c *call) payments() *payments {
	return &payments{db: c.db, gateways: newGateways(c.db, c.transport, c.gatewayURLs)}
}

// decide returns the command for an act of the owner.
func decide(act Act) func(*call) (any, error) {
	return func(c *call) (any, error) {
		row, err := c.payments().Decide(c, c.store.ID, c.id, act, ActorOwner, Note{Code: NoteByCommand}, "")
		return jsonObject{"order_id": c.id, "status": row.Order.Status}, err
	}
}

// paymentCheck checks an order's sessions now. The service may check them at the same time: an older answer
// undoes nothing.
func paymentCheck(c *call) (any, error) {
	answered, err := c.payments().CheckNow(c, c.store.ID, c.id)
	if err == nil && !answered {
		err = errors.New("the gateway gave no answer: try again, and look at the order in the dashboard")
	}
	row, _ := readOrder(c, c.db, c.store.ID, c.id)
	return jsonObject{"order_id": c.id, "status": row.Order.Status}, err
}

// gatewaySet reads the secrets from stdin, so that neither a process list nor a shell's history shows them.
func gatewaySet(c *call) (any, error) {
	key := GatewayKey{StoreID: c.id, Provider: c.Provider, Mode: c.Mode}
	fmt.Fscan(c.stdin, &key.SecretKey)
	if c.Provider == Xendit {
		fmt.Fscan(c.stdin, &key.CallbackToken)
	}
	if err := c.payments().gateways.SetKey(c, c.db, key); err != nil {
		return nil, err
	}

	if address := c.db.publicURL(c); !isReachable(address) {
		c.hint("the gateway cannot reach %s (Xendit's methods need https): "+
			"start serve with your own host as -public-url https://…", address)
	}

	return jsonObject{"provider": c.Provider, "mode": c.Mode,
		"notification_path": fmt.Sprintf("/notifications/%s/%s", c.Provider, c.id)}, nil
}

func catalogImport(c *call) (any, error) {
	file, err := os.ReadFile(c.argument)
	if err != nil {
		return nil, err
	}
	return c.importCatalog(file)
}

func (c *call) importCatalog(file []byte) (any, error) {
	catalog, err := readCatalog(file)
	if err != nil {
		return nil, err
	}
	return c.db.ImportCatalog(c, c.store.ID, catalog)
}

func backup(c *call) (any, error) {
	return jsonObject{"backup": c.argument}, c.db.copyTo(c, c.argument, backupID)
}

func restoreBackup(c *call) (any, error) {
	if info, err := os.Stat(c.file); err == nil && !info.Mode().IsRegular() {
		return nil, usagef("-db must be a file, and %s is not one", c.file)
	}

	aside, report, err := restore(c, c.file, c.argument, c.environment)
	if err != nil && aside != "" {
		c.hint("the database that was there is now %s", aside)
	}
	if err == nil && report.LatestEvent > 0 {
		c.hint("compare your bank's and gateways' lists with the orders since %s", report.LatestEvent)
	}
	return jsonObject{"restored": c.argument, "set_aside": aside, "orders": report.Orders}, err
}

func check(c *call) (any, error) {
	report, err := c.db.check(c)
	if len(report.Faults) > 0 { // Beside an error, do prints no result.
		json.NewEncoder(c.stdout).Encode(report)
	}
	return report, err
}

// health succeeds when the service at an address is ready.
func health(c *call) (any, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + c.addr + "/readyz")
	if err != nil {
		return nil, fmt.Errorf("nothing answers: is the service running, and is it at -addr %s? (%w)", c.addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s is not ready: it answers %s", c.addr, resp.Status)
	}
	return jsonObject{"ready": true}, nil
}

func version(*call) (any, error) {
	sqlite, _, _ := sqlite3.Version()
	build, _ := debug.ReadBuildInfo()
	return jsonObject{"version": "1.0.0", "revision": build.Main.Version, "sqlite": sqlite}, nil
}
