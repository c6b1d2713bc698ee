// Storeorder is the order service of a small shop: one binary, one SQLite file. See README.md.
//
// The first word of a file's name is its family. The file that is named like the family is read first; the others hold
// what can be skipped at the first reading. A family uses those below it:
//
//	main       the process: flags of serve, wiring, stopping, upkeep; the other commands and the demo
//	pages      how pages work; words, money and dates; the desk and its forms; the pay page; the shop page; pictures
//	handlers   routes, what every request goes through, errors; the endpoints of /v1
//	payment    notification, check, expiry; a page for a buyer; what the gateways want on the wire
//	order      changing and creating an order; corrections, acts, shipping; the book; payment sessions; lists
//	catalog    products and bundles; payment methods
//	webhook    events, signing, the queue, the way to the network; endpoints
//	auth       keys, passwords, sign-ins; limits
//	shop       the store as a tenant: its settings, hosts and addresses
//	input      the one reader of what comes from outside; texts, numbers, times and addresses
//	store      the database and its writer; the file: watching it, backup, restore, inspection
//	refusal    reasons, refusals, errors
//
// This file is the process. It has the table of commands, and what serve sets up and shuts down. Commands work on the
// database file, even while it is served. They print one JSON object on stdout; hints and errors are sentences on
// stderr.
package main

import (
	"cmp"
	"context"
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
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	os.Exit(run(ctx, os.Args[1:], realEnvironment()))
}

func realEnvironment() environment {
	return environment{
		stdin:      os.Stdin,
		stdout:     os.Stdout,
		stderr:     os.Stderr,
		listen:     net.Listen,
		commit:     func(commit func() error) error { return commit() },
		checkpoint: func(checkpoint func() error) error { return checkpoint() },
		now:        time.Now,
		rounds:     600_000,
	}
}

// run executes the command that args name and returns the exit code: 0, 1 (failed) or 2 (usage).
func run(ctx context.Context, args []string, env environment) int {
	i := slices.IndexFunc(commands, func(c command) bool { return c.isNamedBy(args) })
	if i < 0 {
		return help(args, env)
	}

	command := commands[i]
	c := &call{
		Context:     ctx,
		environment: env,
		flags:       flag.NewFlagSet("storeorder "+command.name(), flag.ContinueOnError),
		gatewayURLs: map[Provider]string{},
	}
	c.flags.SetOutput(io.Discard)

	err := c.parse(args[len(strings.Fields(command.name())):], command)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(c.stdout, "storeorder %s: %s\n", command.usage, command.does)
		c.flags.SetOutput(c.stdout)
		c.flags.PrintDefaults()
		return 0
	}
	if err != nil {
		return c.report(err)
	}

	result, err := command.do(c)
	if err == nil && result != nil {
		err = json.NewEncoder(c.stdout).Encode(result)
	}
	return c.report(err)
}

// command is a row of the table of commands.
type command struct {
	usage string // what a person types
	flags string // the names of its flags; one with ! is needed
	does  string // what the help says
	do    commandFunc
}

// commandFunc performs a command. Its result is printed as JSON, unless it is nil.
type commandFunc func(c *call) (result any, err error)

// commands are in the order of the help.
var commands = []command{
	{"demo", "addr", "run a temporary store with orders, to try it out", demo},
	{"serve", "db addr public-url subdomains rate burst trusted-proxy gateway-url webhook-allow-private keep-events " +
		"log-format", "run the service", serve},
	{"store add", "db name! email! plan slug domain expiry contact language test",
		"create a store; prints its owner's password once", on(openOrCreate, storeAdd)},
	{"store list", "db", "list the stores", on(openExisting, storeList)},
	{"store set", "db store name email plan slug domain expiry contact language test shop shop-text shop-hold " +
		"shop-max-quantity", "change a store",
		onRow("store", storeSet)},
	{"store password", "db store", "give a store's owner a new password", onRow("store", storePassword)},
	{"key add", "db store name! scope expires", "create an API key; prints it once", onRow("store", keyAdd)},
	{"key list", "db store", "list a store's API keys", onRow("store", keyList)},
	{"key revoke", "db key!", "revoke an API key at once", onRow("key", keyRevoke)},
	{"webhook add", "db store url! events webhook-allow-private", "register an endpoint; prints its secret once",
		onRow("store", webhookAdd)},
	{"webhook list", "db store", "list a store's endpoints and last deliveries", onRow("store", webhookList)},
	{"webhook listen", "db store api key forward", "print a store's events as they happen, and forward them",
		webhookListen},
	{"webhook remove", "db endpoint!", "delete an endpoint and its deliveries", onRow("endpoint", webhookRemove)},
	{"webhook resend", "db delivery endpoint since", "send deliveries again", on(openExisting, webhookResend)},
	{"order list", "db store status from to", "list a store's 50 newest orders", onRow("store", orderList)},
	{"order show", "db order!", "show an order as the API does", onRow("order", orderShow)},
	{"gateway set", "db store provider! mode! gateway-url", "store a gateway's key, read from stdin",
		onRow("store", gatewaySet)},
	{"catalog import <file.json>", "db store", "add or change what a store sells", onRow("store", catalogImport)},
	{"backup <copy.db>", "db", "copy the database while it is in use", on(openToCopy, backup)},
	{"restore <copy.db>", "db", "put a backup in the database's place", restoreBackup},
	{"check", "db", "check a database or a backup", on(openReadOnly, check)},
	{"health", "addr", "ask a running service whether it is ready", health},
	{"version", "", "print the version", version},
}

// name is what a person types before flags and arguments.
func (c command) name() string {
	name, _, _ := strings.Cut(c.usage, " <")
	return name
}

// isNamedBy reports whether args begin with the command. Dashes before it do not matter: many type --version.
func (c command) isNamedBy(args []string) bool {
	words := len(strings.Fields(c.name()))
	return len(args) >= words && strings.TrimLeft(strings.Join(args[:words], " "), "-") == c.name()
}

// asksForHelp reports whether a command line is empty or begins with help, -h or the like.
var asksForHelp = matcher(`^(?:-*(?:h|help)(?: .*)?)?$`)

// help lists the commands. If it was not asked for, args name no command: it lists only those that begin like args, and
// does not repeat more than the first of args, because the others may be secrets.
func help(args []string, env environment) (code int) {
	if !asksForHelp(strings.Join(args, " ")) {
		var names []string
		for _, command := range commands {
			if strings.HasPrefix(command.usage, args[0]) {
				names = append(names, command.name())
			}
		}
		fmt.Fprintf(env.stderr, "storeorder: there is no command \"%s …\": choose from %s\n",
			args[0], cmp.Or(strings.Join(names, ", "), "those that \"storeorder help\" lists"))
		return 2
	}

	fmt.Fprintln(env.stdout, "storeorder is a small shop's order service. Its commands, each with -h for its flags:")
	for _, command := range commands {
		fmt.Fprintf(env.stdout, "  %-26s %s\n", command.usage, command.does)
	}
	return 0
}

// on returns a command that works on a database, which mode says how to open.
func on(mode openMode, do commandFunc) commandFunc {
	return func(c *call) (any, error) {
		db, err := openDB(c.file, mode, c.environment, nil)
		if err != nil {
			return nil, err
		}
		defer db.close()
		c.db = db
		return do(c)
	}
}

// onRow returns a command about one row of a table. The flag that is named like the kind of row has its id.
func onRow(kind string, do commandFunc) commandFunc {
	return on(openExisting, func(c *call) (any, error) {
		if err := c.findRow(kind, c.flags.Lookup(kind).Value.String()); err != nil {
			return nil, err
		}
		return do(c)
	})
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
	PublicURL  string        `json:"public-url" rule:"origin optional"`
	LogFormat  string        `json:"log-format" rule:"choice text|json optional"`
	Rate       int64         `json:"rate" rule:"int 1..10000000 =300"`
	Burst      int64         `json:"burst" rule:"int 1..10000000 =60"`
	KeepEvents time.Duration `json:"keep-events" rule:"duration 10080..5256000 optional"`

	Store    string `json:"store" rule:"text 1..64 optional"`
	Key      string `json:"key" rule:"text 1..100 optional"`
	Endpoint string `json:"endpoint" rule:"id optional"`
	Delivery string `json:"delivery" rule:"id optional"`
	Order    string `json:"order" rule:"text 1..64 optional"`

	Name     string        `json:"name" rule:"text 1..100 optional"`
	Email    string        `json:"email" rule:"email optional"`
	Plan     Plan          `json:"plan" rule:"choice free|growth|scale optional"`
	Slug     string        `json:"slug" rule:"slug optional"`
	Domain   string        `json:"domain" rule:"host optional"`
	Expiry   time.Duration `json:"expiry" rule:"duration 10..10080 optional"`
	Contact  string        `json:"contact" rule:"contact optional"`
	Language string        `json:"language" rule:"choice id|en optional"`
	Test     string        `json:"test" rule:"choice on|off optional"`

	Shop            ShopState     `json:"shop" rule:"choice open|closed|off optional"`
	ShopText        string        `json:"shop-text" rule:"lines 0..500 optional"`
	ShopHold        time.Duration `json:"shop-hold" rule:"duration 10..10080 optional"`
	ShopMaxQuantity int64         `json:"shop-max-quantity" rule:"int 1..10000 optional"`

	Scope    Scope         `json:"scope" rule:"choice read|write|manage optional"`
	Expires  time.Duration `json:"expires" rule:"duration 1..5256000 optional"`
	URL      string        `json:"url" rule:"text 1..2048 optional"`
	Events   string        `json:"events" rule:"text 1..500 optional"`
	API      string        `json:"api" rule:"origin optional"`
	Forward  string        `json:"forward" rule:"text 1..2048 optional"`
	Since    Time          `json:"since" rule:"time optional"`
	Provider Provider      `json:"provider" rule:"choice midtrans|xendit optional"`
	Mode     Mode          `json:"mode" rule:"choice sandbox|live optional"`
	From     string        `json:"from" rule:"text 1..20 optional"`
	To       string        `json:"to" rule:"text 1..20 optional"`

	Status Status `json:"status" rule:"choice pending|awaiting_verification|paid|failed|expired|refunded optional"`

	Given map[string]bool
}

// usages says what the help says about each flag of textFlags. A word between backticks names what it takes.
var usages = map[string]string{
	"public-url":        "the `address` where buyers reach the service",
	"log-format":        "the format of the log, `text|json` (default text)",
	"rate":              "how many `requests` each key may send per minute (default 300)",
	"burst":             "how many `requests` each key may send at once (default 60)",
	"keep-events":       "delete events after this `duration` (default 2160h)",
	"store":             "the store's `id` or slug, which store list shows; needed if there are several",
	"key":               "the key's `id`, which key list shows; for webhook listen, the key itself",
	"endpoint":          "the endpoint's `id`",
	"delivery":          "the delivery's `id`",
	"order":             "the order's `id`, or its number INV-…",
	"name":              "a `name` for people to read",
	"email":             "the owner's e-mail `address`",
	"plan":              "the store's plan, `free|growth|scale`; free has no API",
	"slug":              "the store's `name` in addresses",
	"domain":            "the store's own `host`, if it has one",
	"expiry":            "orders expire after this `duration` (a new store has 24h)",
	"contact":           "for buyers: a WhatsApp `number` or an e-mail address",
	"language":          "the language of messages to the owner's phone, `id|en`",
	"test":              "test mode, `on|off`; it offers the sandbox",
	"shop":              "the shop page, `open|closed|off`",
	"shop-text":         "a `text` on the shop page: address, hours, rules",
	"shop-hold":         "orders of the shop page expire after this `duration` (a new store has 3h)",
	"shop-max-quantity": "how many `pieces` of an item such an order may have (a new store has 20)",
	"scope":             "what the key may do, `read|write|manage` (default write)",
	"expires":           "the key expires after this `duration` (default: never)",
	"url":               "the `address` to which events are sent",
	"events":            "the `names` of the events to send, separated by commas (default all)",
	"api":               "read the events from a service at this `address`, with -key, instead of from a file",
	"forward":           "also post the events to this `address`, signed like webhooks",
	"since":             "with -endpoint: all that was not delivered since this `time`",
	"provider":          "the gateway, `midtrans|xendit`",
	"mode":              "the key's mode, `sandbox|live`; live takes real money",
	"status":            "only orders with this `status`",
	"from":              "only orders of this `day` and later, such as 2026-01-31, in WIB",
	"to":                "only orders of this `day` and before",
}

// define defines all the flags that exist.
func (c *call) define(f *flag.FlagSet) {
	f.StringVar(&c.file, "db", "storeorder.db", "the database `file`")
	f.StringVar(&c.addr, "addr", "127.0.0.1:8080", "the `address` where the service listens")
	f.BoolVar(&c.subdomains, "subdomains", false, "serve each store's pages at <slug>.<public host>")
	f.BoolVar(&c.allowPrivate, "webhook-allow-private", false,
		"allow http and private addresses; serve and webhook add both need it")
	f.Func("trusted-proxy", "trust X-Forwarded-For from this `address` or network (repeatable)", c.addProxy)
	f.Func("gateway-url", "reach a gateway at another address, `provider=URL` (repeatable)", c.addGatewayURL)

	for name, usage := range usages {
		f.String(name, "", usage)
	}
}

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
		return usagef("wrong arguments (%q): the command is \"storeorder %s\" with flags", c.argument, command.usage)
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
	c.file, err = filepath.Abs(c.file)
	return err
}

func (c *call) addProxy(text string) error {
	if ip, err := netip.ParseAddr(text); err == nil {
		text += fmt.Sprint("/", ip.BitLen())
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return errors.New("must be an address such as 10.0.0.1, or a network such as 10.0.0.0/8")
	}
	if network.Bits() == 0 {
		c.hint("-trusted-proxy %s lets anyone claim to be any client: name only your proxy's address", text)
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

// findRow sets c.id and c.store by the id of a row or, if that is "", to the only store. An order may be named by its
// reference, and a store by its slug.
func (c *call) findRow(kind, id string) (err error) {
	if id == "" {
		stores, err := c.db.Stores(c)
		if err != nil {
			return err
		}
		if len(stores) == 0 {
			return usagef("there is no store yet: add one with \"storeorder store add\"")
		}
		if len(stores) > 1 {
			return usagef("-store is needed, because there are %d stores: \"storeorder store list\" shows them",
				len(stores))
		}
		id = stores[0].ID
	}

	c.id = strings.ToLower(id)
	if kind == "order" && strings.HasPrefix(c.id, "inv-") {
		if c.id, err = c.db.OrderID(c, id); err != nil {
			return err
		}
	}
	c.store, err = c.db.StoreOf(c, kind, c.id)
	if kind == "store" {
		c.id = c.store.ID
	}
	return err
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

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
		if strings.HasPrefix(c.Key, "so_") {
			text = "-key must be the key_id that \"storeorder key list\" shows, and not the key"
		}
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
	return nil, c.runService(slog.New(handler), func() error {
		stores, err := c.db.Stores(c)
		if err == nil && len(stores) == 0 {
			c.db.log.Warn("the database has no store yet: add one with storeorder store add -db " + c.file +
				" -name NAME -email ADDRESS")
		}
		return err
	})
}

// usualPort matches addresses with a port that browsers leave out, and captures the rest.
var usualPort = regexp.MustCompile(`^(http:.*):80$|^(https:.*):443$`)

// runService listens, opens the file, prepares it and runs the service until the context ends. Then it finishes
// what was begun, in 25 seconds at most.
func (c *call) runService(log *slog.Logger, prepare func() error) (err error) {
	ln, err := c.listen("tcp", c.addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("the port of %s is taken (ss -ltnp shows by whom): choose another with -addr", c.addr)
	}
	if err != nil {
		return fmt.Errorf("cannot listen: -addr must be an address of this machine and a port up to 65535 that this "+
			"user may take, such as 127.0.0.1:8080 (%w)", err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	c.PublicURL = strings.ToLower(strings.TrimSuffix(cmp.Or(c.PublicURL, "http://localhost:"+port), "/"))
	c.PublicURL = usualPort.ReplaceAllString(c.PublicURL, "$1$2")

	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(400) // so that memory is collected rarely below the limit, and hard near it
		debug.SetMemoryLimit(256 << 20)
	}

	door := &door{opened: make(chan struct{})}
	hs := &http.Server{
		Handler:           door,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		MaxHeaderBytes:    16 << 10,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		ConnState:         limitConnections(c, 1024),
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(ln) }()
	defer hs.Close() // After an error nobody is answered any more.

	db, err := openDB(c.file, openToServe, c.environment, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	c.db = db
	err = db.setPublicURL(c.PublicURL, c.subdomains)
	if sqliteCode(err) != 0 {
		return unusable(db.path, err)
	}
	if err != nil {
		return err
	}
	if err := db.checkClock(); err != nil {
		return err
	}

	working, stop := context.WithCancel(context.WithoutCancel(c))
	defer stop()
	auth, err := newAuth(db, c.PublicURL, c.Rate, c.Burst, c.trusted)
	if err != nil {
		return err
	}
	if err := prepare(); err != nil && c.Err() == nil {
		return err
	}

	queue := newQueue(db, c.transport, c.allowPrivate)
	s := &server{
		pictures:     newPictures(),
		db:           db,
		auth:         auth,
		payments:     c.payments(),
		publicURL:    c.PublicURL,
		description:  strings.Replace(description, "http://localhost:8080", c.PublicURL, 1),
		allowPrivate: c.allowPrivate,
	}

	var background sync.WaitGroup
	background.Go(func() { s.payments.runChecks(working) })
	background.Go(func() { queue.deliver(working) })
	background.Go(func() { db.watch(working) })
	background.Go(func() { c.upkeep(working, auth) })

	log.Info("serving", "address", ln.Addr().String(), "dashboard", c.PublicURL+"/dashboard", "database", c.file)
	if why := unreachable(c.PublicURL); why != "" {
		log.Warn("gateways cannot reach " + c.PublicURL + ": " + why)
	}

	door.open(s.routes())
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

// door is the handler of the server while serve opens the file, which takes a while when it is upgraded or
// checked. Requests wait for that, two seconds at most.
type door struct {
	handler http.Handler  // once it is opened
	opened  chan struct{} // closed when it is
}

// open lets the requests in. It is called once.
func (d *door) open(handler http.Handler) {
	d.handler = handler
	close(d.opened)
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-d.opened:
	default:
		if r.URL.Path == "/healthz" || !d.opensSoon(r.Context()) {
			answerClosed(w, r)
			return
		}
	}
	d.handler.ServeHTTP(w, r)
}

// opensSoon waits for the file to be open, for two seconds at most, and reports whether it is.
func (d *door) opensSoon(ctx context.Context) bool {
	select {
	case <-d.opened:
		return true
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
	return false
}

// upkeep runs once a minute: it notices jumps of the clock, writes when keys and sign-ins were used, makes a checkpoint
// and, once an hour, purges what is old.
func (c *call) upkeep(ctx context.Context, auth *auth) {
	for minute := 0; ctx.Err() == nil; minute++ {
		isSteady := c.db.observeClock() // A jump shows as the difference to the last call.
		if minute%60 == 0 && isSteady && !c.db.waitsForClock(24*time.Hour) {
			err := errors.Join(c.db.MarkUnusedPictures(ctx), c.db.purge(ctx, cmp.Or(c.KeepEvents, 90*24*time.Hour)))
			if err != nil && ctx.Err() == nil {
				c.db.log.Warn("cannot clean up the database", "error", err)
			}
		}
		pause(ctx, time.Minute)
		auth.writeUses()
		wake(c.db.checkpoints)
	}
}
