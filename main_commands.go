package main

// This file has the demo and, in the order of their table in main.go, a function for each other command.

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"
)

// demo runs the service with a store, its catalog and orders, on a database that lasts as long as the program.
func demo(c *call) (any, error) {
	dir, err := os.MkdirTemp("", "storeorder-demo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c.file = filepath.Join(dir, "demo.db")
	c.allowPrivate = true
	log := slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelError})
	return nil, c.runService(slog.New(log), c.fillDemo)
}

//go:embed web/demo.json
var demoCatalog []byte

//go:embed web/demo
var demoPictures embed.FS // one of each product and bundle, named like it

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
  Shop page   %[1]s%[6]s

Paste these into another terminal to see what is for sale, order it (open checkout_url to pay), and list the orders.

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/products

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/orders \
    -d '{"items":[{"type":"product","product_id":"%[4]s","quantity":2}],` +
	`"buyer":{"name":"Siti","email":"siti@example.id"},"payment_method":"sandbox"}'

  curl -s -H 'Authorization: Bearer %[2]s' %[1]s/v1/orders

These print the webhooks of the store as they happen, and post them to your program. (The dashboard's own webhooks go to
http://localhost here too.)

  %[5]s webhook listen -api %[1]s -key %[2]s

  %[5]s webhook listen -api %[1]s -key %[2]s -forward http://localhost:3000/webhook

`

// fillDemo makes the demo's store, catalog and orders, and prints how to use them.
func (c *call) fillDemo() error {
	c.Name = "Kopi Kita"
	c.Email = "owner@example.id"
	c.Test = "on"
	c.Contact = "0812 3456 7890"
	c.Given["contact"] = true
	if _, err := c.addStore(); err != nil {
		return err
	}
	if err := c.openDemoShop(); err != nil {
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
	program := os.Args[0]
	if strings.Contains(program, "/go-build") {
		program = "go run ."
	}
	fmt.Fprintf(c.stdout, demoText, c.PublicURL, key, link, product.ID, program, c.store.shopPath())
	return err
}

// openDemoShop fills the catalog, with a picture for each of its goods, and opens the shop page.
func (c *call) openDemoShop() error {
	catalog, err := readCatalogFile(demoCatalog)
	if err != nil {
		return err
	}
	for _, entries := range [][]Entry{catalog.Products, catalog.Bundles} {
		for i, e := range entries {
			jpeg, err := demoPictures.ReadFile("web/demo/" + e.Slug + ".jpg")
			if err != nil {
				return err
			}
			path, err := c.db.AddPicture(c, Picture{Large: jpeg, Small: jpeg})
			if err != nil {
				return err
			}
			entries[i].ImageURL = &path
			e.Given["image_url"] = true
		}
	}
	if _, err := c.db.ImportCatalog(c, c.store, catalog); err != nil {
		return err
	}
	_, err = c.db.SetStore(c, c.store.ID, func(st *Store) {
		st.Shop = ShopOpen
		st.ShopText = "Jl. Braga 12, Bandung. Buka 08.00–20.00."
	})
	return err
}

func (c *call) makeDemoOrder(productID, buyer, method string, acts []string) error {
	st := c.store
	if slices.Contains(acts, "expire") {
		st.Expiry = 0
	}

	o, err := c.db.CreateOrder(c, st, NewOrder{
		Source:        FromOwner,
		Items:         []NewItem{{Kind: Product, ProductID: productID, Quantity: 2}},
		Buyer:         Buyer{Name: buyer},
		PaymentMethod: method,
	})
	for _, act := range acts {
		switch {
		case err != nil:
		case act == "expire":
			err = c.payments().expire(c)
		case act == "report":
			err = c.db.ReportPayment(c, st.ID, o.ID, ActorBuyer, method, buyer, "BCA")
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
	st.Shop = cmp.Or(c.Shop, st.Shop)
	st.ShopHold = cmp.Or(c.ShopHold, st.ShopHold)
	st.ShopMaxQuantity = cmp.Or(c.ShopMaxQuantity, st.ShopMaxQuantity)
	if c.Given["shop-text"] {
		st.ShopText = c.ShopText
	}
}

func storeAdd(c *call) (any, error) {
	password, err := c.addStore()
	return c.access(password, err)
}

// addStore adds the store that the flags describe and returns its owner's password.
func (c *call) addStore() (password string, err error) {
	st := Store{
		Slug:            cmp.Or(slugOf(c.Name), "store"),
		Plan:            PlanGrowth,
		Expiry:          24 * time.Hour,
		Language:        "id",
		Shop:            ShopOff,
		ShopHold:        3 * time.Hour,
		ShopMaxQuantity: 20,
	}
	c.edit(&st)
	password, hash := newPassword(c.rounds)
	c.store, err = c.db.AddStore(c, st, hash)
	return password, err
}

// access returns how an owner signs in: with a password, or by a link that works once within an hour. err is the error
// of storing the password.
func (c *call) access(password string, err error) (any, error) {
	if err != nil {
		return nil, err
	}

	address, err := c.db.publicURL(c)
	if err != nil {
		return nil, err
	}
	link, err := c.db.NewSignInLink(c, c.store.ID, c.db.now().Add(time.Hour))
	if err != nil {
		return nil, err
	}

	c.hint("the link in sign_in works once, within an hour, if the service is at %s. If it is elsewhere, start it "+
		"there, and then get another link with \"store password\"", address)
	return jsonObject{
		"database":       c.file,
		"store_id":       c.store.ID,
		"owner_email":    c.store.OwnerEmail,
		"owner_password": password,
		"sign_in":        address + link,
	}, nil
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
	id, secret, err := c.db.AddKey(c, c.id, c.Name, cmp.Or(c.Scope, ScopeWrite), c.Expires)
	return jsonObject{"key_id": id, "key": secret}, err
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
	isOne := c.Delivery != "" && c.Endpoint == "" && c.Since == 0
	isSince := c.Delivery == "" && c.Endpoint != "" && c.Since != 0
	switch {
	case isOne:
		if err := c.findRow("delivery", c.Delivery); err != nil {
			return nil, err
		}
		return jsonObject{"resent": 1}, c.db.Resend(c, c.store.ID, c.id)
	case isSince:
		if err := c.findRow("endpoint", c.Endpoint); err != nil {
			return nil, err
		}
		n, err := c.db.ResendSince(c, c.store.ID, c.id, c.Since)
		return jsonObject{"resent": n}, err
	default:
		return nil, usagef("give either -delivery, or -endpoint and -since")
	}
}

func orderList(c *call) (any, error) {
	f := OrderFilter{Status: c.Status, Limit: 50}
	for name, text := range map[string]string{"from": c.From, "to": c.To} {
		day, isDay := dayOf(text)
		switch {
		case text == "":
		case !isDay:
			return nil, usagef("-%s must be a day such as 2026-01-31", name)
		case name == "from":
			f.CreatedMin = day
		default:
			f.CreatedMax = day.lastOfDay()
		}
	}
	orders, more, err := c.db.Orders(c, c.id, f)
	return c.store.showOrders(orders, more), err
}

func orderShow(c *call) (any, error) {
	row, session, err := c.payments().OrderWithSession(c, c.store, c.id, false)
	if err != nil {
		return nil, err
	}
	return c.store.showSession(row, session), nil
}

// payments returns what starts and checks payment sessions. Of the commands, only gateway set asks a gateway, to try a
// key.
func (c *call) payments() *payments {
	return &payments{
		db:       c.db,
		gateways: newGateways(c.db, c.transport, c.gatewayURLs),
		notified: newLimiter(300, 60),
	}
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

	if address, err := c.db.publicURL(c); err == nil && unreachable(address) != "" {
		c.hint("the gateway cannot reach %s: %s", address, unreachable(address))
	}

	return jsonObject{"provider": c.Provider, "mode": c.Mode,
		"notification_path": fmt.Sprintf("/notifications/%s/%s", c.Provider, c.id)}, nil
}

func catalogImport(c *call) (any, error) {
	file, err := os.ReadFile(c.argument)
	if err != nil {
		return nil, err
	}
	catalog, err := readCatalogFile(file)
	if err != nil {
		return nil, err
	}
	return c.db.ImportCatalog(c, c.store, catalog)
}

func backup(c *call) (any, error) {
	return jsonObject{"backup": c.argument, "database": c.file}, c.db.copyTo(c, c.argument, backupID)
}

func restoreBackup(c *call) (any, error) {
	info, err := os.Stat(c.file)
	if err == nil && !info.Mode().IsRegular() {
		return nil, usagef("-db must be a file, and %s is not one", c.file)
	}
	if from, _ := os.Stat(c.argument); os.SameFile(from, info) {
		return nil, usagef("the copy %s is the database itself: name the database with -db", c.argument)
	}

	aside, report, err := restore(c, c.file, c.argument, c.environment)
	if err != nil && aside != "" {
		c.hint("the database that was there is now %s", aside)
	}
	if err == nil && report.LatestEvent > 0 {
		c.hint("compare your bank's and gateways' lists with the orders since %s", report.LatestEvent)
	}
	return jsonObject{"restored": c.argument, "database": c.file, "set_aside": aside, "orders": report.Orders}, err
}

func check(c *call) (any, error) {
	report, err := c.db.check(c)
	if len(report.Faults) > 0 { // Beside an error, do prints no result.
		json.NewEncoder(c.stdout).Encode(report)
	}
	return report, err
}

// health succeeds if the service at an address is ready.
func health(c *call) (any, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + c.addr + "/readyz")
	if err != nil {
		return nil, fmt.Errorf("nothing answers: does the service run, and is %s its -addr, a host and a port? (%w)",
			c.addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s is not ready: it answers %s", c.addr, resp.Status)
	}
	return jsonObject{"ready": true}, nil
}

// programVersion is printed by storeorder version and names a release. openapi.json has the version of the API.
const programVersion = "1.1.0"

func version(*call) (any, error) {
	sqlite, _, _ := sqlite3.Version()
	build, _ := debug.ReadBuildInfo()
	return jsonObject{"version": programVersion, "revision": build.Main.Version, "sqlite": sqlite}, nil
}
