//go:build cgo

// Storeorder is the order service of a small shop: one binary, one SQLite file. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	os.Exit(run(ctx, os.Args[1:], realEnvironment()))
}

// environment is what the program takes from outside. Tests replace parts of it.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	listen         func(network, address string) (net.Listener, error)
	transport      http.RoundTripper                    // to gateways and webhook receivers; nil is the network
	commit         func(commit func() error) error      // performs each COMMIT of the database
	now            func() time.Time                     // the wall clock
	tick           func(time.Duration) <-chan time.Time // what the loops that poll wait for
	rounds         int                                  // of a password's hash
}

func realEnvironment() environment {
	return environment{
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		listen: net.Listen,
		commit: func(commit func() error) error { return commit() },
		now:    time.Now,
		tick:   time.Tick,
		rounds: 600_000,
	}
}

// cliCommand is something that the program can do.
type cliCommand struct {
	name string // one word or two
	does string // as the help says it
	run  func(context.Context, *cli) error
}

// commands are in the order of the help.
var commands = []cliCommand{
	{"demo", "try it: a temporary store, ready to take orders", demo},
	{"serve", "run the service", serve},
	{"store add", "create a store; prints its owner's password once", storeAdd},
	{"store list", "list the stores", storeList},
	{"store set", "change a store", storeSet},
	{"store password", "give a store's owner a new password", withID("store", storePassword)},
	{"key add", "create an API key; prints it once", keyAdd},
	{"key list", "list a store's API keys", withID("store", keyList)},
	{"key revoke", "revoke an API key at once", withID("key", keyRevoke)},
	{"webhook add", "register an endpoint; prints its signing secret once", webhookAdd},
	{"webhook list", "list a store's endpoints with their last deliveries", withID("store", webhookList)},
	{"webhook rotate", "give an endpoint a new secret; both sign for 24 hours",
		withID("endpoint", webhookRotate)},
	{"webhook on", "turn an endpoint on: waiting events are sent", withID("endpoint", webhookSwitch(true))},
	{"webhook off", "turn an endpoint off: its events wait", withID("endpoint", webhookSwitch(false))},
	{"webhook remove", "delete an endpoint and its deliveries", withID("endpoint", webhookRemove)},
	{"webhook resend", "send again: one delivery, or all of an endpoint that were not delivered since a time",
		webhookResend},
	{"webhook listen", "print a store's events as they happen, a line each, until it is stopped", webhookListen},
	{"order list", "list a store's orders as the API shows them, the newest first", orderList},
	{"order show", "show an order as the API does", withID("order", orderShow)},
	{"order approve", "mark an order paid: its money has arrived", withID("order", orderTransition(OwnerApproves))},
	{"order reject", "reject a payment that the buyer reported: no money arrived",
		withID("order", orderTransition(OwnerRejects))},
	{"order cancel", "cancel an order that waits for its payment",
		withID("order", orderTransition(OwnerCancels))},
	{"order refund", "mark an order refunded: its money was returned",
		withID("order", orderTransition(OwnerRefunds))},
	{"payment check", "ask the gateway about an order now, and do what its answer means",
		withID("order", paymentCheck)},
	{"gateway set", "store a payment gateway's secret key, read from stdin's first line, " +
		"and Xendit's callback token from its second", gatewaySet},
	{"catalog import", "add or replace products, bundles and payment methods", catalogImport},
	{"backup", "copy the database while it is in use", backup},
	{"restore", "put a backup in the database's place, while it is not served", restore},
	{"check", "check a database or a backup, and count what is in it", check},
	{"version", "print the versions of this program and of SQLite", version},
}

// arguments are those that a command takes beside its flags, as the help shows them.
var arguments = map[string]string{
	"catalog import": " FILE.json",
	"backup":         " OUT.db",
	"restore":        " FROM.db",
}

// cli is one call of a command. The command defines its flags in the FlagSet, calls parse and reads them.
type cli struct {
	*flag.FlagSet
	environment
	words     []string // of the command line, after the command's name
	arguments int      // how many the command takes beside its flags
}

// run executes the command that args name and returns the exit code: 0, 1 (failed) or 2 (usage).
func run(ctx context.Context, args []string, env environment) int {
	for _, called := range commands {
		name := strings.Fields(called.name)
		if len(args) < len(name) || !slices.Equal(args[:len(name)], name) {
			continue
		}

		c := &cli{
			FlagSet:     flag.NewFlagSet("storeorder "+called.name, flag.ContinueOnError),
			environment: env,
			words:       args[len(name):],
			arguments:   len(strings.Fields(arguments[called.name])),
		}
		c.SetOutput(io.Discard) // report prints the errors of the flags.
		return c.report(called, called.run(ctx, c))
	}

	if len(args) == 0 || slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		printCommands(env.stdout)
		return 0
	}
	fmt.Fprintf(env.stderr, "storeorder: there is no command %q.\n", strings.Join(args, " "))
	printCommands(env.stderr)
	return 2
}

func printCommands(w io.Writer) {
	fmt.Fprintln(w, "storeorder is a small shop's order service. Its commands, each with -h for its flags:")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-26s %s\n", c.name+arguments[c.name], c.does)
	}
}

// report prints the error of a command, if it failed, and returns the exit code. The flag -h comes as an
// error too.
func (c *cli) report(called cliCommand, err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(c.stdout, "%s [flags]%s\n\n%s\n\n", c.Name(), arguments[called.name], called.does)
		c.SetOutput(c.stdout)
		c.PrintDefaults()
		return 0
	}

	fmt.Fprintf(c.stderr, "%s: %v\n", c.Name(), err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(c.stderr, "See %s -h.\n", c.Name())
		return 2
	}
	return 1
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// parse reads the flags and the arguments, which may come in any order. needed names the flags that must be given,
// separated by spaces.
func (c *cli) parse(needed string) error {
	arguments, err := c.parseWords()
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	if err != nil {
		return usageError{err}
	}

	for name := range strings.FieldsSeq(needed) {
		if c.Lookup(name).Value.String() == "" {
			return usagef("-%s is needed", name)
		}
	}
	if len(arguments) != c.arguments {
		return usagef("takes %d argument(s) beside its flags, not %d", c.arguments, len(arguments))
	}
	return nil
}

// parseWords is Parse for flags that may follow arguments. After "--" there are only arguments.
func (c *cli) parseWords() (arguments []string, err error) {
	words := c.words
	for {
		if err := c.Parse(words); err != nil {
			return nil, err
		}
		rest := c.Args()
		if len(rest) == 0 {
			break
		}

		before := len(words) - len(rest)
		if before > 0 && words[before-1] == "--" {
			arguments = append(arguments, rest...)
			break
		}
		arguments = append(arguments, rest[0])
		words = rest[1:]
	}
	return arguments, c.Parse(append([]string{"--"}, arguments...)) // for Arg
}

// given returns the names of the flags that were given.
func (c *cli) given() map[string]bool {
	names := map[string]bool{}
	c.Visit(func(f *flag.Flag) { names[f.Name] = true })
	return names
}

// dbFlag, addrFlag and idFlag define flags that several commands have.
func (c *cli) dbFlag() *string { return c.String("db", "storeorder.db", "the database `file`") }

func (c *cli) addrFlag() *string {
	return c.String("addr", "127.0.0.1:8080", "listen on this `address`")
}

func (c *cli) idFlag(kind string) *string { return c.String(kind, "", idUsage[kind]) }

// idUsage explains idFlag by the kind of row that it identifies.
var idUsage = map[string]string{
	"store":    "the store's `id`, from \"storeorder store list\"",
	"key":      "the key's `id`, from \"storeorder key list\"",
	"endpoint": "the endpoint's `id`, from \"storeorder webhook list\"",
	"order":    "the order's `id`",
}

// settings are how the service runs.
type settings struct {
	publicURL    string
	subdomains   bool
	allowPrivate bool // deliver webhooks to http and private addresses too
	rate         int  // requests a minute of each key
	burst        int  // requests at once of each key
	trustedProxy netip.Prefix
	gatewayURLs  map[Provider]string
	keepEvents   time.Duration // how long events, deliveries and notifications are kept
}

func serve(ctx context.Context, c *cli) error {
	file := c.dbFlag()
	addr := c.addrFlag()
	logFormat := c.String("log-format", "text", "`text or json`")
	proxy := c.String("trusted-proxy", "", "believe X-Forwarded-For from this network, a `CIDR`")
	o := c.settingFlags()
	if err := c.parse(""); err != nil {
		return err
	}

	log, endLog, err := newLog(c.stderr, *logFormat, slog.LevelInfo)
	if err != nil {
		return err
	}
	defer endLog()
	if err := o.check(*proxy); err != nil {
		return err
	}

	ln, err := c.listenOn(*addr)
	if err != nil {
		return err
	}
	defer ln.Close()

	if o.publicURL == "" {
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		o.publicURL = "http://localhost:" + port
	}

	_, err = os.Stat(*file)
	isNew := errors.Is(err, fs.ErrNotExist)
	db, err := c.openDB(*file, true)
	if err != nil {
		return err
	}
	if isNew {
		log.Warn("the database is new and has no store: add one with \"storeorder store add\". "+
			"If you expected your shop, look for its file: -db names it", "database", db.path)
	}
	err = serveOn(ctx, ln, db, *o, log)
	return errors.Join(err, db.Close())
}

// settingFlags defines the flags of the settings. They are complete and valid after check.
func (c *cli) settingFlags() *settings {
	o := &settings{gatewayURLs: map[Provider]string{}}
	c.StringVar(&o.publicURL, "public-url", "",
		"the `address` that buyers reach the service at (default http://localhost and the port of -addr)")
	c.BoolVar(&o.subdomains, "subdomains", false,
		"serve each store's pages at its slug as a subdomain of -public-url")
	c.BoolVar(&o.allowPrivate, "webhook-allow-private", false,
		"deliver webhooks to http and private addresses too (for a LAN or tests)")
	c.IntVar(&o.rate, "rate", 300, "requests a minute that a key may make")
	c.IntVar(&o.burst, "burst", 60, "requests that a key may make at once")
	c.Func("gateway-url",
		"`provider=URL`: reach midtrans or xendit there, at a test double or an egress proxy (repeatable)",
		o.addGatewayURL)
	c.keepEventsFlag(&o.keepEvents)
	return o
}

func (o *settings) addGatewayURL(value string) error {
	wrong := errors.New("must be such as midtrans=http://127.0.0.1:9000")
	name, address, _ := strings.Cut(value, "=")
	provider := Provider(name)
	if provider != ProviderMidtrans && provider != ProviderXendit {
		return wrong
	}

	u, err := url.Parse(address)
	if err != nil || u.Host == "" || !hasHTTPScheme(u) {
		return wrong
	}

	o.gatewayURLs[provider] = u.Scheme + "://" + u.Host
	return nil
}

func hasHTTPScheme(u *url.URL) bool { return u.Scheme == "http" || u.Scheme == "https" }

// check completes the settings with the trusted proxy, if one was given, and refuses wrong values.
func (o *settings) check(proxy string) (err error) {
	if proxy != "" {
		o.trustedProxy, err = netip.ParsePrefix(proxy)
		if err != nil {
			return usagef("-trusted-proxy %q is no network such as 127.0.0.1/32", proxy)
		}
	}
	if o.rate < 1 || o.burst < 1 {
		return usagef("-rate and -burst must be 1 or more")
	}
	if err := checkKeepEvents(o.keepEvents); err != nil {
		return err
	}
	if o.publicURL != "" {
		o.publicURL, err = parsePublicURL(o.publicURL)
	}
	return err
}

// parsePublicURL returns the scheme and host of an address, and refuses an address that has more than these.
func parsePublicURL(text string) (string, error) {
	wrong := usagef("-public-url %q must be a scheme and a host, such as https://orders.example.id", text)
	u, err := url.Parse(text)
	if err != nil {
		return "", wrong
	}

	switch {
	case !hasHTTPScheme(u),
		!hostPattern.MatchString(strings.ToLower(u.Hostname())),
		strings.Trim(u.Path, "/") != "",
		u.User != nil,
		u.RawQuery != "",
		u.Fragment != "":
		return "", wrong
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}

// isHTTPS reports whether an address is one with https.
func isHTTPS(address string) bool { return strings.HasPrefix(address, "https://") }

// mayBeReached reports whether a public URL may be reached from the internet, as far as its host tells.
func mayBeReached(publicURL string) bool {
	u, err := url.Parse(publicURL)
	if err != nil {
		return false
	}

	host := strings.ToLower(u.Hostname())
	ip, err := netip.ParseAddr(host)
	if err == nil {
		return isPublic(ip)
	}
	for _, ending := range []string{".localhost", ".local", ".internal"} {
		if strings.HasSuffix(host, ending) {
			return false
		}
	}
	return strings.Contains(host, ".")
}

// gatewayUse is what a store uses of the gateways.
type gatewayUse struct {
	storeID  string
	xendit   bool // has an account at Xendit or an enabled method of it
	live     bool // has an account that takes real money
	testMode bool
}

// warnings says what is wrong with how a store uses the gateways at a public URL, and what to do about it.
func (u gatewayUse) warnings(publicURL string) (all []string) {
	if u.xendit && !isHTTPS(publicURL) {
		all = append(all, "Xendit's payment methods are not offered, because Xendit needs https: "+
			"start serve with a -public-url that begins with https://, behind a proxy with TLS")
	}
	if u.live && !mayBeReached(publicURL) {
		all = append(all, "the gateway cannot report payments, because it cannot reach "+publicURL+": "+
			"start serve with a -public-url that the internet reaches, such as https://orders.example.id")
	}
	if u.live && u.testMode {
		all = append(all, "the store takes real money, but in test mode anyone can pay at the sandbox: "+
			"turn test mode off with \"storeorder store set -store "+u.storeID+" -test off\"")
	}
	return all
}

// warnOfGateways logs what is wrong with how the stores use the gateways.
func warnOfGateways(db *DB, log *slog.Logger) error {
	uses, err := queryAll(db.reader, scanGatewayUse, `
		SELECT s.id, max(u.provider = 'xendit'), max(u.live), s.test_mode
		FROM   stores s
		JOIN   (SELECT store_id, provider, mode = 'live' AS live
		        FROM   gateways
		        WHERE  replaced_at IS NULL
		        UNION ALL
		        SELECT store_id, provider, 0
		        FROM   payment_methods
		        WHERE  provider = 'xendit' AND enabled = 1) u ON u.store_id = s.id
		GROUP BY s.id
		ORDER BY s.id`)
	for _, use := range uses {
		for _, warning := range use.warnings(db.publicURL) {
			log.Warn(warning, "store", use.storeID)
		}
	}
	return err
}

func scanGatewayUse(r row) (u gatewayUse, err error) {
	err = r.Scan(&u.storeID, &u.xendit, &u.live, &u.testMode)
	return u, err
}

// The time that the service takes to stop. Everything ends side by side, from the signal on.
const (
	drainTime    = 20 * time.Second // the requests: one is read for 15 s (newHTTPServer)
	questionTime = 22 * time.Second // the questions to gateways, also those that the last requests begin
	writeTime    = 24 * time.Second // the writes: after that they fail
)

// serveOn runs the service until ctx ends. Then it finishes the work in progress, which takes 25 s at most, also when
// another process has locked the database.
func serveOn(ctx context.Context, ln net.Listener, db *DB, o settings, log *serviceLog) error {
	unlock, err := lockServing(db.path)
	if err != nil {
		return err
	}
	defer unlock()

	if err := db.setAddresses(o.publicURL, o.subdomains, o.gatewayURLs); err != nil {
		return err
	}
	log.Info("serving", "address", ln.Addr().String(), "public_url", o.publicURL, "database", db.path)
	if err := warnOfGateways(db, log.Logger); err != nil {
		return err
	}

	limitMemory()
	s := newServer(db, o, log)
	// A stop that comes already now waits for these, or it would look like a start that failed.
	starting := context.WithoutCancel(ctx)
	if err := db.ReleasePaymentSessions(starting); err != nil {
		return err
	}
	if err := db.startClock(starting); err != nil {
		return err
	}

	working, stop := context.WithCancel(context.Background())
	defer stop()
	var background sync.WaitGroup
	background.Go(func() { s.queue.run(working) })
	background.Go(func() { s.payments.pollGateways(working) })
	background.Go(func() { s.sweep(working) })
	background.Go(func() { db.watch(working) })
	background.Go(func() { returnMemory(working, db.env.tick(20*time.Second)) })
	background.Go(func() { s.purge(working) })

	hs := newHTTPServer(s.routes(), log.Logger)
	limited := limitConnections(ln, mostConnections)
	hs.ConnState = limited.noteState
	served := make(chan error, 1)
	go func() { served <- hs.Serve(limited) }()

	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping: finishing what was begun")
	}

	// The background work is told to stop before the requests have ended, so that both finish side by side: the
	// deliveries in flight take attemptsGrace. The events of these last requests are in the database and are
	// delivered after the next start.
	s.draining.Store(true)
	stop()
	db.Hurry()
	defer time.AfterFunc(questionTime, s.payments.cutOff).Stop()
	defer time.AfterFunc(writeTime, db.StopWrites).Stop()
	drain(hs, log.Logger)
	background.Wait()
	s.payments.finish()
	return err
}

func newHTTPServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		MaxHeaderBytes:    16 << 10,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
	}
}

// drain takes no new requests and waits drainTime for those in progress. Then it cuts them off.
func drain(hs *http.Server, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()

	if err := hs.Shutdown(ctx); err != nil {
		log.Warn("requests were cut off", "error", err)
		hs.Close()
	}
}

func newServer(db *DB, o settings, log *serviceLog) *server {
	db.logTo(log.Logger)
	var transport http.RoundTripper = newWebhookTransport(o.allowPrivate)
	if db.env.transport != nil {
		transport = db.env.transport
	}
	queue := newDispatcher(db, transport, log.Logger)
	return &server{
		db:           db,
		log:          log,
		queue:        queue,
		payments:     newPayments(db, log.Logger, queue.wake),
		keys:         newLimiter(o.rate, o.burst),
		wrongKeys:    newAddressLimiter(60, 60),
		stores:       newLimiter(storeRate*o.rate, storeRate*o.burst),
		uses:         uses{at: map[[32]byte]Time{}},
		accounts:     newLimiter(1, 10),
		everywhere:   newLimiter(10, 100),
		addresses:    newAddressLimiter(5, 20),
		trustedProxy: o.trustedProxy,
		allowPrivate: o.allowPrivate,
		admitting:    make(chan struct{}, 1),
		hashing:      newHashQueue(),
		purging:      make(wakeup, 1),
		keepEvents:   o.keepEvents,
		old:          newOldRows(),
	}
}

// sweep runs the work that falls due by the clock: at once, then every 30 s, until ctx ends.
func (s *server) sweep(ctx context.Context) {
	tick := s.db.env.tick(30 * time.Second)

	for round := 0; ; round++ {
		s.payments.expireOrders(ctx)
		s.payments.releaseUndecided(ctx)
		if round%2 == 1 {
			s.logSweepError(ctx, s.uses.flush(ctx, s.db))
		}

		select {
		case <-tick:
		case <-ctx.Done():
			// If this fails, the keys were last used later than their list shows.
			s.uses.flush(context.Background(), s.db)
			return
		}
	}
}

// logSweepError logs an error, unless it comes from the end of ctx.
func (s *server) logSweepError(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.log.Error("sweeping", "error", err)
	}
}

// demo runs the service on a database that lasts as long as the program, with a store and a receiver of its
// webhooks.
func demo(ctx context.Context, c *cli) error {
	addr := c.addrFlag()
	if err := c.parse(""); err != nil {
		return err
	}

	ln, err := c.listenOn(*addr)
	if err != nil {
		return err
	}
	defer ln.Close()

	dir, err := os.MkdirTemp("", "storeorder-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	db, err := c.openDB(filepath.Join(dir, "demo.db"), true)
	if err != nil {
		return err
	}
	defer db.Close()

	o := settings{
		publicURL:    "http://" + ln.Addr().String(),
		allowPrivate: true,
		rate:         300,
		burst:        60,
		keepEvents:   defaultKeepEvents,
	}
	if err := openDemoShop(ctx, db, o.publicURL, c.stdout); err != nil {
		return err
	}

	log, endLog, err := newLog(c.stderr, "text", slog.LevelWarn)
	if err != nil {
		return err
	}
	defer endLog()
	return serveOn(ctx, ln, db, o, log)
}

// demoText takes the public URL, the API key, the owner's password and a product's id.
const demoText = `storeorder demo: a store that lasts until you press Ctrl-C.

  API key     %[2]s
  Dashboard   %[1]s/dashboard   owner@example.id   %[3]s

Paste into another terminal: what is for sale, an order for it, the orders so far. Open the order's checkout_url in a
browser to pay it at the sandbox gateway; "payment_method":"bank_transfer" is the other way to pay.

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/products

  curl -s -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' %[1]s/v1/orders \
    -d '{"items":[{"type":"product","product_id":"%[4]s","quantity":2}],"buyer":{"name":"Siti","email":"siti@example.id"},"payment_method":"sandbox"}'

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/orders

Webhooks of the store are received and verified here:

`

// openDemoShop adds the demo's store with a receiver of its webhooks, and prints how to use it.
func openDemoShop(ctx context.Context, db *DB, publicURL string, out io.Writer) error {
	password, passwordHash := db.env.newPassword()
	st, err := db.AddStore(ctx, StoreProfile{
		Store:      Store{Slug: "kopi-kita", Plan: PlanGrowth, Expiry: 24 * time.Hour},
		Name:       "Kopi Kita",
		OwnerEmail: "owner@example.id",
		Contact:    "0812 3456 7890",
		TestMode:   true,
	}, passwordHash)
	if err != nil {
		return err
	}

	catalog, err := readCatalog([]byte(demoCatalog))
	if err != nil {
		return err
	}
	if err := db.ImportCatalog(ctx, st.ID, catalog); err != nil {
		return err
	}
	product, err := db.CatalogEntry(st.ID, KindProduct, "kopi-gayo")
	if err != nil {
		return err
	}

	key, keyHash := newToken("so_")
	if _, err := db.AddKey(ctx, st.ID, NewKey{Name: "demo", Scope: ScopeManage}, keyHash); err != nil {
		return err
	}
	if err := receiveDemoWebhooks(ctx, db, st.ID, out); err != nil {
		return err
	}
	fmt.Fprintf(out, demoText, publicURL, key, password, product.ID)
	return nil
}

const demoCatalog = `{
  "products": [
    {"slug": "kopi-gayo", "title": "Kopi Gayo 250 g", "description": "Arabika Gayo, sangrai sedang.",
     "price": 85000, "stock": 40},
    {"slug": "kopi-toraja", "title": "Kopi Toraja 250 g", "description": "Arabika Toraja, sangrai gelap.",
     "price": 92000, "stock": 25},
    {"slug": "resep-seduh", "title": "Panduan Seduh (PDF)", "description": "Unduhan gratis.", "price": 0}
  ],
  "bundles": [
    {"slug": "duo-nusantara", "title": "Duo Nusantara", "description": "Gayo dan Toraja.", "price": 165000,
     "items": [{"slug": "kopi-gayo", "quantity": 1}, {"slug": "kopi-toraja", "quantity": 1}]}
  ],
  "payment_methods": [
    {"code": "bank_transfer", "name": "Transfer bank", "provider": "manual", "kind": "transfer",
     "accounts": [{"bank": "BCA", "number": "123 456 7890", "holder": "Kopi Kita"},
                  {"bank": "Mandiri", "number": "987-00-1234567-8", "holder": "Kopi Kita"}]},
    {"code": "cod", "name": "Bayar di tempat (COD)", "provider": "manual", "kind": "cash", "fee": 5000},
    {"code": "sandbox", "name": "Gateway uji coba", "provider": "sandbox", "fee": 2500}
  ]
}`

// receiveDemoWebhooks starts a receiver of the store's webhooks, which prints them to out.
func receiveDemoWebhooks(ctx context.Context, db *DB, storeID string, out io.Writer) error {
	ln, err := db.env.listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	secret := newSecret()
	_, err = db.AddEndpoint(ctx, storeID, "http://"+ln.Addr().String()+"/webhooks", nil, secret)
	if err != nil {
		return err
	}
	go http.Serve(ln, demoReceiver(secret, out))
	return nil
}

// demoReceiver prints each webhook that comes and whether its signature is right.
func demoReceiver(secret string, out io.Writer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // One that was cut off has a wrong signature.
		if !verifySignature(secret, r.Header.Get("X-Service-Signature"), body, time.Now()) {
			fmt.Fprintln(out, "webhook with a wrong signature refused")
			w.WriteHeader(http.StatusBadRequest)
			return
		}

		var event demoEvent
		json.Unmarshal(body, &event)
		o := event.Data.Order
		fmt.Fprintf(out, "%s  %s  #%d  %s  %s  Rp%d  signature verified\n", time.Now().Format(time.TimeOnly),
			event.Event, event.Sequence, o.PaymentReference, o.Status, o.Amount)
	})
}

// demoEvent is what demoReceiver shows of an event.
type demoEvent struct {
	Event    string `json:"event"`
	Sequence int    `json:"sequence"`
	Data     struct {
		Order Order `json:"order"`
	} `json:"data"`
}
