//go:build cgo

// Storeorder is the order service of a small shop: one binary, one SQLite file. See README.md.
package main

import (
	"bufio"
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
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// commands are what the program can do, in the order of its help.
var commands = []struct {
	name, args, does string
	run              func(context.Context, *cli) error
}{
	{"demo", "", "try it: a throw-away store, ready to take orders", demo},
	{"serve", "", "run the service", serve},
	{"store add", "", "make a store; prints its owner's password once", storeAdd},
	{"store list", "", "list the stores", storeList},
	{"store set", "", "change a store", storeSet},
	{"store password", "", "give a store's owner a new password", withID("store", storePassword)},
	{"key add", "", "make an API key; prints it once", keyAdd},
	{"key list", "", "list a store's API keys", withID("store", keyList)},
	{"key revoke", "", "end an API key at once", withID("key", keyRevoke)},
	{"webhook add", "", "register an endpoint; prints its signing secret once", webhookAdd},
	{"webhook list", "", "list a store's endpoints with their last deliveries", withID("store", webhookList)},
	{"webhook rotate", "", "give an endpoint a new secret; both sign for 24 hours", withID("endpoint", webhookRotate)},
	{"webhook on", "", "turn an endpoint on: what waited is sent", withID("endpoint", webhookSwitch(true, OffByOwner))},
	{"webhook off", "", "turn an endpoint off: its events wait", withID("endpoint", webhookSwitch(false, OffByOwner))},
	{"webhook remove", "", "forget an endpoint and its deliveries", withID("endpoint", webhookRemove)},
	{"webhook resend", "", "send again: one delivery, or all of an endpoint that failed since a time", webhookResend},
	{"order approve", "", "the money for an order has come", withID("order", orderMove(OwnerApproves))},
	{"order reject", "", "a buyer said that he had paid, and he had not", withID("order", orderMove(OwnerRejects))},
	{"order cancel", "", "cancel an order that waits for its payment", withID("order", orderMove(OwnerCancels))},
	{"order refund", "", "note that an order's money was given back", withID("order", orderMove(OwnerRefunds))},
	{"payment check", "", "ask the gateway about an order now, and do what its answer means", withID("order", paymentCheck)},
	{"gateway set", "", "store a payment gateway's secret key, read from stdin's first line, and Xendit's callback token from its second", gatewaySet},
	{"catalog import", " FILE.json", "add or replace products, bundles and payment methods", catalogImport},
	{"backup", " OUT.db", "copy the database while it is in use", backup},
	{"check", "", "check the database", check},
}

// cli is one call of a command.
type cli struct {
	*flag.FlagSet
	args           []string
	arguments      int // how many it takes after its flags
	stdin          io.Reader
	stdout, stderr io.Writer
}

// usageError is a command line that is not understood.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run does what args say and returns the exit code: 0, 1 (failed) or 2 (usage).
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	for _, c := range commands {
		words := strings.Fields(c.name)
		if len(args) < len(words) || !slices.Equal(args[:len(words)], words) {
			continue
		}
		flags := flag.NewFlagSet("storeorder "+c.name, flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		err := c.run(ctx, &cli{flags, args[len(words):], len(strings.Fields(c.args)), stdin, stdout, stderr})
		switch {
		case err == nil:
			return 0
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprintf(stdout, "storeorder %s [flags]%s\n\n%s\n\n", c.name, c.args, c.does)
			flags.SetOutput(stdout)
			flags.PrintDefaults()
			return 0
		}
		fmt.Fprintf(stderr, "storeorder %s: %v\n", c.name, err)
		if errors.As(err, &usageError{}) {
			fmt.Fprintf(stderr, "See storeorder %s -h.\n", c.name)
			return 2
		}
		return 1
	}
	out, code := stderr, 2
	if len(args) == 0 || slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		out, code = stdout, 0
	} else {
		fmt.Fprintf(stderr, "storeorder: there is no command %q.\n", strings.Join(args, " "))
	}
	fmt.Fprintln(out, "storeorder is a small shop's order service. Its commands, each with -h for its flags:")
	for _, c := range commands {
		fmt.Fprintf(out, "  %-26s %s\n", c.name+c.args, c.does)
	}
	return code
}

// parse reads the flags, of which those named in needed must be given, and the arguments after them.
func (c *cli) parse(needed string) error {
	if err := c.Parse(c.args); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			err = usageError{err}
		}
		return err
	}
	for name := range strings.FieldsSeq(needed) {
		if c.Lookup(name).Value.String() == "" {
			return usagef("-%s is needed", name)
		}
	}
	if c.NArg() != c.arguments {
		return usagef("takes %d argument(s) after its flags, not %d", c.arguments, c.NArg())
	}
	return nil
}

func (c *cli) dbFlag() *string { return c.String("db", "storeorder.db", "the database `file`") }

// ids are the flags that name one thing by its id.
var ids = map[string]string{
	"store":    "the store's `id`, from \"storeorder store list\"",
	"key":      "the key's `id`, from \"storeorder key list\"",
	"endpoint": "the endpoint's `id`, from \"storeorder webhook list\"",
	"order":    "the order's `id`",
}

func (c *cli) idFlag(kind string) *string { return c.String(kind, "", ids[kind]) }

type object map[string]any

// settings are the flags of serve.
type settings struct {
	publicURL    string
	subdomains   bool
	allowPrivate bool
	rate, burst  int
	trustedProxy netip.Prefix
	gatewayURLs  map[Provider]string // by provider
}

func serve(ctx context.Context, c *cli) error {
	o := settings{gatewayURLs: map[Provider]string{}}
	file, addr := c.dbFlag(), c.String("addr", "127.0.0.1:8080", "listen on this `address`")
	c.StringVar(&o.publicURL, "public-url", "", "the `address` that buyers reach the service at (default http://localhost and the port of -addr)")
	c.BoolVar(&o.subdomains, "subdomains", false, "serve each store's pages at its slug as a subdomain of -public-url")
	c.BoolVar(&o.allowPrivate, "webhook-allow-private", false, "deliver webhooks to http and private addresses too (for a LAN or tests)")
	c.IntVar(&o.rate, "rate", 300, "requests a minute that a key may make")
	c.IntVar(&o.burst, "burst", 60, "requests that a key may make at once")
	proxy := c.String("trusted-proxy", "", "believe X-Forwarded-For from this network, a `CIDR`")
	c.Func("gateway-url", "`provider=URL`: reach midtrans or xendit there, at a test double or an egress proxy (repeatable)", func(value string) error {
		provider, address, _ := strings.Cut(value, "=")
		u, err := url.Parse(address)
		if err != nil || provider != "midtrans" && provider != "xendit" || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return errors.New("must be such as midtrans=http://127.0.0.1:9000")
		}
		o.gatewayURLs[Provider(provider)] = u.Scheme + "://" + u.Host
		return nil
	})
	format := c.String("log-format", "text", "`text or json`")
	err := c.parse("")
	if err != nil {
		return err
	}
	handler := map[string]slog.Handler{"text": slog.NewTextHandler(c.stderr, nil), "json": slog.NewJSONHandler(c.stderr, nil)}[*format]
	if handler == nil {
		return usagef("-log-format must be text or json, not %q", *format)
	}
	if *proxy != "" {
		if o.trustedProxy, err = netip.ParsePrefix(*proxy); err != nil {
			return usagef("-trusted-proxy %q is no network such as 127.0.0.1/32", *proxy)
		}
	}
	if o.rate < 1 || o.burst < 1 {
		return usagef("-rate and -burst must be 1 or more")
	}
	if o.publicURL != "" {
		u, err := url.Parse(o.publicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !hostPattern.MatchString(strings.ToLower(u.Hostname())) ||
			strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return usagef("-public-url %q must be a scheme and a host, such as https://orders.example.id", o.publicURL)
		}
		o.publicURL = u.Scheme + "://" + strings.ToLower(u.Host)
	}
	ln, err := listen(*addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	o.publicURL = cmp.Or(o.publicURL, "http://localhost:"+port)
	db, err := openDB(*file, true)
	if err != nil {
		return err
	}
	return errors.Join(serveOn(ctx, ln, db, o, slog.New(handler)), db.Close())
}

func listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the port of %s is taken by another program: stop that, or choose another with -addr", addr)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("no right to listen on %s: choose a port above 1023 with -addr", addr)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on -addr %s: %w", addr, err)
	}
	return ln, nil
}

// serveOn runs the service until ctx ends and all that was begun is done, which takes 25 s at most.
func serveOn(ctx context.Context, ln net.Listener, db *DB, o settings, log *slog.Logger) error {
	unlock, err := db.lockServing()
	if err != nil {
		return err
	}
	defer unlock()
	if err := db.setAddresses(o.publicURL, o.subdomains, o.gatewayURLs); err != nil {
		return err
	}
	log.Info("serving", "address", ln.Addr().String(), "public_url", o.publicURL, "database", db.path)
	if os.Getenv("GOGC") == "" { // little is alive here and much is short-lived: collect at some 20 MB, not at 4
		debug.SetGCPercent(400)
	}
	s := newServer(db, o, log)
	hs := &http.Server{Handler: s.routes(), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	working, stop := context.WithCancel(context.Background())
	defer stop()
	var background sync.WaitGroup
	background.Go(func() { s.queue.run(working) })
	background.Go(func() { s.payments.run(working) })
	background.Go(func() { s.sweep(working) })
	served := make(chan error, 1)
	go func() { served <- hs.Serve(ln) }()
	var failed error
	select {
	case failed = <-served:
	case <-ctx.Done():
		log.Info("stopping: finishing what was begun")
	}
	s.draining.Store(true)
	stop()
	draining, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := hs.Shutdown(draining); err != nil {
		log.Warn("requests were cut off", "error", err)
		hs.Close()
	}
	background.Wait()
	s.payments.finish()
	return failed
}

func newServer(db *DB, o settings, log *slog.Logger) *server {
	queue := newDispatcher(db, newWebhookClient(o.allowPrivate), log)
	return &server{
		db: db, log: log, queue: queue, payments: newPayments(db, log, queue.wake),
		keys: newLimiter(o.rate, o.burst), wrongKeys: newLimiter(60, 60), uses: uses{at: map[[32]byte]Time{}},
		accounts: newLimiter(1, 10), everywhere: newLimiter(10, 100), addresses: newLimiter(5, 20),
		trustedProxy: o.trustedProxy, allowPrivate: o.allowPrivate, hashing: make(chan struct{}, 2),
	}
}

// sweep does what falls due by the clock: at once, then every 30 s, until ctx ends.
func (s *server) sweep(ctx context.Context) {
	warn := func(err error) {
		if err != nil && ctx.Err() == nil {
			s.log.Error("sweeping", "error", err)
		}
	}
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for beat := 0; ; beat++ {
		s.payments.expire(ctx)
		for n := int64(1000); n == 1000 && ctx.Err() == nil; {
			var err error
			n, err = s.db.PurgeIdempotencyKeys(ctx, 1000)
			warn(err)
		}
		if beat%2 == 1 {
			warn(s.uses.flush(ctx, s.db))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			warn(s.uses.flush(context.Background(), s.db))
			return
		}
	}
}

// demo runs the service on a database that lasts as long as the program, with a store and a receiver of its webhooks.
func demo(ctx context.Context, c *cli) error {
	addr := c.String("addr", "127.0.0.1:8080", "listen on this `address`")
	if err := c.parse(""); err != nil {
		return err
	}
	ln, err := listen(*addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	dir, err := os.MkdirTemp("", "storeorder-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := openDB(filepath.Join(dir, "demo.db"), true)
	if err != nil {
		return err
	}
	defer db.Close()
	o := settings{publicURL: "http://" + ln.Addr().String(), allowPrivate: true, rate: 300, burst: 60}
	password, hash := newPassword()
	st, err := db.AddStore(ctx, Store{Name: "Kopi Kita", Slug: "kopi-kita", Plan: "growth", Expiry: 24 * time.Hour, OwnerEmail: "owner@example.id"}, hash)
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
	key, keyHash := newToken("so_")
	if _, err := db.AddKey(ctx, st.ID, "demo", keyHash); err != nil {
		return err
	}
	receiver, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	secret := newSecret()
	if _, err := db.AddEndpoint(ctx, st.ID, "http://"+receiver.Addr().String()+"/webhooks", nil, secret); err != nil {
		return err
	}
	go http.Serve(receiver, demoReceiver(secret, c.stdout))
	list, err := db.Products(st.ID, ProductFilter{Products: true, Limit: 1})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, `storeorder demo: a store that lasts until you press Ctrl-C.

  API key     %[2]s
  Dashboard   %[1]s/dashboard   owner@example.id   %[3]s

Paste into another terminal: what is for sale, an order for it, the orders so far. Open the order's checkout_url in a
browser to pay it at the sandbox gateway; "payment_method":"bank_transfer" is the other way to pay.

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/products

  curl -s -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' %[1]s/v1/orders \
    -d '{"items":[{"type":"product","product_id":"%[4]s","quantity":2}],"buyer":{"name":"Siti","email":"siti@example.id"},"payment_method":"sandbox"}'

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/orders

Webhooks of the store are received and verified here:

`, o.publicURL, key, password, list.Products[0].ID)
	return serveOn(ctx, ln, db, o, slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// demoReceiver prints each webhook that comes and whether its signature is right.
func demoReceiver(secret string, out io.Writer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var e struct {
			Event    string
			Sequence int
			Data     struct{ Order Order }
		}
		if err != nil || !verifySignature(secret, r.Header.Get("X-Service-Signature"), body, time.Now()) || json.Unmarshal(body, &e) != nil {
			fmt.Fprintln(out, "webhook with a wrong signature refused")
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprintf(out, "%s  %s  #%d  %s  %s  Rp%d  signature verified\n", time.Now().Format(time.TimeOnly),
			e.Event, e.Sequence, e.Data.Order.PaymentReference, e.Data.Order.Status, e.Data.Order.Amount)
	})
}

const demoCatalog = `{
  "products": [
    {"slug": "kopi-gayo", "title": "Kopi Gayo 250 g", "description": "Arabika Gayo, sangrai sedang.", "price": 85000, "stock": 40},
    {"slug": "kopi-toraja", "title": "Kopi Toraja 250 g", "description": "Arabika Toraja, sangrai gelap.", "price": 92000, "stock": 25},
    {"slug": "resep-seduh", "title": "Panduan Seduh (PDF)", "description": "Unduhan gratis.", "price": 0}
  ],
  "bundles": [
    {"slug": "duo-nusantara", "title": "Duo Nusantara", "description": "Gayo dan Toraja.", "price": 165000,
     "items": [{"slug": "kopi-gayo", "quantity": 1}, {"slug": "kopi-toraja", "quantity": 1}]}
  ],
  "payment_methods": [
    {"code": "bank_transfer", "name": "Transfer bank BCA", "provider": "manual", "fee": 0,
     "instructions": "Transfer ke BCA 123 456 7890 a.n. Kopi Kita.\nTulis nomor pesanan di berita transfer."},
    {"code": "sandbox", "name": "Gateway percobaan", "provider": "sandbox", "fee": 2500}
  ]
}`

// onDB reads the flags, of which those in needed must be given, and prints what do answers about the database.
func (c *cli) onDB(needed string, do func(*DB) (object, error)) error {
	file := c.dbFlag()
	if err := c.parse(needed); err != nil {
		return err
	}
	return c.answer(*file, false, do)
}

// withID is a command that needs the id of one thing of a kind, and prints what do answers about it.
func withID(kind string, do func(ctx context.Context, db *DB, storeID, id string) (object, error)) func(context.Context, *cli) error {
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

// answer prints what do answers about the database, which create makes if it is missing.
func (c *cli) answer(file string, create bool, do func(*DB) (object, error)) error {
	db, err := openDB(file, create)
	if err != nil {
		return err
	}
	result, err := do(db)
	if err == errNotFound {
		err = fmt.Errorf("%s has nothing with this id: the list commands show the ids", file)
	} else if outOfService(err) {
		err = fmt.Errorf("cannot write to %s: free some disk space, or wait until other commands on it are done (%w)", file, err)
	}
	if err = errors.Join(err, db.Close()); err != nil && result["ok"] == nil { // check shows what it found
		return err
	}
	_, printErr := fmt.Fprintf(c.stdout, "%s\n", mustJSON(result))
	return errors.Join(err, printErr)
}

// storeEdits defines a store's flags; edit applies those that were given.
func (c *cli) storeEdits() (edit func(*Store) error) {
	define := func(flags *flag.FlagSet, st *Store) {
		flags.StringVar(&st.Name, "name", st.Name, "the store's `name`, as buyers see it")
		flags.StringVar(&st.OwnerEmail, "email", st.OwnerEmail, "the owner's `e-mail`, to sign in with")
		flags.StringVar((*string)(&st.Plan), "plan", string(st.Plan), "`free, growth or scale`; on free the API answers PLAN_REQUIRED")
		flags.StringVar(&st.Slug, "slug", st.Slug, "the store's short `name` in addresses (default: made from the name)")
		flags.StringVar(&st.Domain, "domain", st.Domain, "the `host` of the store's pages, if it has its own")
		flags.DurationVar(&st.Expiry, "expiry", st.Expiry, "how long an order waits for its payment, 10m to 168h")
	}
	define(c.FlagSet, &Store{Plan: "growth", Expiry: 24 * time.Hour})
	return func(st *Store) error {
		fields := flag.NewFlagSet("", flag.ContinueOnError)
		define(fields, st)
		c.Visit(func(f *flag.Flag) { fields.Set(f.Name, f.Value.String()) }) // fails for what is no field, as -db
		st.Name, st.OwnerEmail, st.Domain = strings.TrimSpace(st.Name), strings.ToLower(st.OwnerEmail), strings.ToLower(st.Domain)
		switch {
		case st.Name == "" || utf8.RuneCountInString(st.Name) > 200:
			return usagef("-name must have 1 to 200 characters")
		case !isEmail(st.OwnerEmail):
			return usagef("-email %q must be an e-mail address such as owner@example.id", st.OwnerEmail)
		case !slices.Contains([]Plan{PlanFree, PlanGrowth, PlanScale}, st.Plan):
			return usagef("-plan %q must be free, growth or scale", st.Plan)
		case !slugPattern.MatchString(st.Slug) || len(st.Slug) > 63:
			return usagef("-slug %q must have lower-case letters, digits and single hyphens, such as kopi-kita", st.Slug)
		case st.Domain != "" && !hostPattern.MatchString(st.Domain):
			return usagef("-domain %q must be a host without scheme or port, such as order.kopikita.id", st.Domain)
		case st.Expiry < 10*time.Minute || st.Expiry > 7*24*time.Hour:
			return usagef("-expiry must be 10m to 168h")
		}
		return nil
	}
}

func storeAdd(ctx context.Context, c *cli) error {
	file, edit := c.dbFlag(), c.storeEdits()
	if err := c.parse("name email"); err != nil {
		return err
	}
	st := Store{Plan: "growth", Expiry: 24 * time.Hour, Slug: slugOf(c.Lookup("name").Value.String())}
	if err := edit(&st); err != nil { // before a missing file is made
		return err
	}
	return c.answer(*file, true, func(db *DB) (object, error) {
		password, hash := newPassword()
		st, err := db.AddStore(ctx, st, hash)
		return object{"store_id": st.ID, "owner_email": st.OwnerEmail, "owner_password": password}, err
	})
}

// storeView is a store as the commands show it.
func storeView(st Store) object {
	return object{"store_id": st.ID, "name": st.Name, "slug": st.Slug, "domain": st.Domain, "plan": st.Plan,
		"expiry": st.Expiry.String(), "owner_email": st.OwnerEmail, "created_at": st.CreatedAt, "url": st.URL}
}

func storeList(ctx context.Context, c *cli) error {
	return c.onDB("", func(db *DB) (object, error) {
		all, err := db.Stores()
		views := []object{}
		for _, st := range all {
			views = append(views, storeView(st))
		}
		return object{"stores": views}, err
	})
}

func storeSet(ctx context.Context, c *cli) error {
	id, edit := c.idFlag("store"), c.storeEdits()
	return c.onDB("store", func(db *DB) (object, error) {
		st, err := db.SetStore(ctx, *id, edit)
		return storeView(st), err
	})
}

func storePassword(ctx context.Context, db *DB, storeID, id string) (object, error) {
	password, hash := newPassword()
	return object{"store_id": id, "owner_password": password}, db.SetPassword(ctx, id, hash)
}

func keyAdd(ctx context.Context, c *cli) error {
	id, name := c.idFlag("store"), c.String("name", "", "what the key is for, to know it by")
	return c.onDB("store name", func(db *DB) (object, error) {
		key, hash := newToken("so_")
		keyID, err := db.AddKey(ctx, *id, *name, hash)
		return object{"key_id": keyID, "key": key}, err
	})
}

func keyList(ctx context.Context, db *DB, storeID, id string) (object, error) {
	keys, err := db.Keys(id)
	return object{"keys": keys}, err
}

func keyRevoke(ctx context.Context, db *DB, storeID, id string) (object, error) {
	return object{"key_id": id, "revoked": true}, db.RevokeKey(ctx, storeID, id)
}

func webhookAdd(ctx context.Context, c *cli) error {
	id, address := c.idFlag("store"), c.String("url", "", "the `address` that events are posted to")
	list := c.String("events", "", "the `names` of the events to send, with commas between (default all)")
	private := c.Bool("webhook-allow-private", false, "take http and private addresses too; serve needs the same flag to deliver there")
	return c.onDB("store url", func(db *DB) (object, error) {
		if wrong := checkWebhookURL(*address, *private); wrong != nil {
			return nil, usagef("-url %s", wrong.Message)
		}
		events, wrong := checkEvents(strings.FieldsFunc(*list, func(r rune) bool { return r == ',' || r == ' ' }))
		if wrong != nil {
			return nil, usagef("-events: %s", wrong.Message)
		}
		secret := newSecret()
		endpoint, err := db.AddEndpoint(ctx, *id, *address, events, secret)
		return object{"endpoint_id": endpoint, "secret": secret}, err
	})
}

func webhookList(ctx context.Context, db *DB, storeID, id string) (object, error) {
	endpoints, err := db.Endpoints(id, 20)
	return object{"endpoints": endpoints}, err
}

func webhookRotate(ctx context.Context, db *DB, storeID, id string) (object, error) {
	secret := newSecret()
	return object{"endpoint_id": id, "secret": secret}, db.RotateSecret(ctx, storeID, id, secret)
}

func webhookSwitch(on bool, reason OffReason) func(ctx context.Context, db *DB, storeID, id string) (object, error) {
	return func(ctx context.Context, db *DB, storeID, id string) (object, error) {
		return object{"endpoint_id": id, "active": on}, db.SwitchEndpoint(ctx, storeID, id, on, reason)
	}
}

func webhookRemove(ctx context.Context, db *DB, storeID, id string) (object, error) {
	return object{"endpoint_id": id, "removed": true}, db.RemoveEndpoint(ctx, storeID, id)
}

func webhookResend(ctx context.Context, c *cli) error {
	endpoint, delivery := c.idFlag("endpoint"), c.String("delivery", "", "send this delivery again, by its `id`")
	since := c.String("since", "", "with -endpoint: send again what is not delivered of events since this `time`, such as 2026-01-31T10:00Z")
	return c.onDB("", func(db *DB) (object, error) {
		if (*delivery == "") == (*endpoint == "") || (*endpoint == "") != (*since == "") {
			return nil, usagef("needs either -delivery, or -endpoint and -since")
		}
		from, ok := parseTime(*since, false)
		if !ok && *since != "" {
			return nil, usagef("-since %q must be a date or time such as 2026-01-31 or 2026-01-31T10:00Z", *since)
		}
		kind, rowID := "endpoint", *endpoint
		if *delivery != "" {
			kind, rowID = "delivery", *delivery
		}
		storeID, err := db.StoreOf(kind, rowID)
		if err != nil {
			return nil, err
		}
		n, err := db.Resend(ctx, storeID, *delivery, *endpoint, from)
		return object{"resent": n}, err
	})
}

func orderMove(m Transition) func(ctx context.Context, db *DB, storeID, id string) (object, error) {
	return func(ctx context.Context, db *DB, storeID, id string) (object, error) {
		o, err := db.Transition(ctx, storeID, id, m, Note{Code: NoteByCommand})
		if err != nil {
			return nil, err
		}
		return object{"order_id": o.ID, "status": o.Status}, nil
	}
}

func paymentCheck(ctx context.Context, db *DB, storeID, id string) (object, error) {
	session, err := db.LatestPaymentSession(id)
	if err != nil {
		return nil, err
	}
	p := newPayments(db, slog.New(slog.DiscardHandler), func() {})
	verdict, did, err := p.check(ctx, session, Notification{})
	if err != nil {
		return nil, fmt.Errorf("%s cannot be asked: %w", session.Provider, err)
	}
	_, o, err := db.OrderPage(session.OrderID)
	return object{"order_id": o.ID, "provider": session.Provider, "attempt": session.Attempt, "gateway_says": verdict.State,
		"amount": verdict.Amount, "done": cmp.Or(did, "nothing"), "status": o.Status}, err
}

func gatewaySet(ctx context.Context, c *cli) error {
	id := c.idFlag("store")
	provider, mode := c.String("provider", "", "`midtrans or xendit`"), c.String("mode", "", "`sandbox or live`")
	return c.onDB("store provider mode", func(db *DB) (object, error) {
		in := bufio.NewScanner(c.stdin)
		line := func() string {
			in.Scan()
			return strings.TrimSpace(in.Text())
		}
		g := Gateway{Provider: Provider(*provider), Mode: *mode, SecretKey: line()}
		if g.Provider == "xendit" {
			g.CallbackToken = line()
		}
		if fault := checkGateway(g); fault != "" {
			return nil, usagef("%s", fault)
		}
		return object{"provider": g.Provider, "mode": g.Mode, "notification_path": "/notifications/" + string(g.Provider) + "/" + *id},
			db.SetGateway(ctx, *id, g)
	})
}

func catalogImport(ctx context.Context, c *cli) error {
	id := c.idFlag("store")
	return c.onDB("store", func(db *DB) (object, error) {
		data, err := os.ReadFile(c.Arg(0))
		if err != nil {
			return nil, err
		}
		catalog, err := readCatalog(data)
		if err == nil {
			err = db.ImportCatalog(ctx, *id, catalog)
		}
		if _, ok := errors.AsType[*APIError](err); ok && err != errNotFound {
			err = fmt.Errorf("%s: %w", c.Arg(0), err)
		}
		return object{"products": len(catalog.Products), "bundles": len(catalog.Bundles), "payment_methods": len(catalog.PaymentMethods)}, err
	})
}

func backup(ctx context.Context, c *cli) error {
	return c.onDB("", func(db *DB) (object, error) {
		return object{"backup": c.Arg(0)}, db.Backup(ctx, c.Arg(0))
	})
}

func check(ctx context.Context, c *cli) error {
	return c.onDB("", func(db *DB) (object, error) {
		version, faults, err := db.Check()
		if err == nil && len(faults) > 0 {
			err = fmt.Errorf("the database is damaged: restore a backup")
		}
		return object{"ok": err == nil, "schema_version": version, "faults": faults}, err
	})
}
