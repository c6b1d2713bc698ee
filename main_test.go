package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-sqlite3"
)

// command runs one of the program's commands and checks its exit code. A successful one prints one JSON object.
func command(t *testing.T, want int, args ...string) (out map[string]any, stderr string) {
	t.Helper()
	var stdout, errs bytes.Buffer
	if got := run(t.Context(), args, strings.NewReader(""), &stdout, &errs); got != want {
		t.Errorf("%q exits with %d, want %d: %s%s", args, got, want, stdout.String(), errs.String())
	}
	dec := json.NewDecoder(&stdout)
	dec.UseNumber()
	if want != 0 {
		if stdout.Len() > 0 && args[0] != "check" {
			t.Errorf("%q fails and prints %s", args, stdout.String())
		}
	} else if err := dec.Decode(&out); err != nil || dec.More() {
		t.Errorf("%q prints no JSON object: %v", args, err)
	}
	return out, errs.String()
}

// writeFile makes a file in the test's directory.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newStoreFile makes a database with a store, its catalog and a key, all by commands.
func newStoreFile(t *testing.T) (file, storeID, key string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "shop.db")
	st, _ := command(t, 0, "store", "add", "-db", file, "-name", "Kopi Kita", "-email", "Owner@example.id")
	storeID, _ = st["store_id"].(string)
	if got := shape(st); got != "{owner_email:text owner_password:text store_id:uuid}" || st["owner_email"] != "owner@example.id" {
		t.Fatalf("store add: %v", st)
	}
	imported, _ := command(t, 0, "catalog", "import", "-db", file, "-store", storeID, writeFile(t, "catalog.json", testCatalog))
	if got := fmt.Sprint(imported); got != "map[bundles:2 payment_methods:5 products:6]" {
		t.Errorf("catalog import: %s", got)
	}
	added, _ := command(t, 0, "key", "add", "-db", file, "-store", storeID, "-name", "test")
	key, _ = added["key"].(string)
	if !regexp.MustCompile(`^so_[0-9A-Za-z_-]{43}$`).MatchString(key) || shape(added) != "{key:text key_id:uuid}" {
		t.Fatalf("key add: %v", added)
	}
	return file, storeID, key
}

// reach talks to a service that runs elsewhere.
func reach(t *testing.T, address, key string) *testServer {
	t.Helper()
	s := &testServer{url: "http://" + address, key: key, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, ids: map[string]string{}}
	t.Cleanup(s.client.CloseIdleConnections)
	list := s.do(t, "GET", "/v1/products", nil).want(t, 200, "")
	for _, kind := range []string{"products", "bundles"} {
		for _, p := range list.list(kind) {
			s.ids[p["slug"].(string)] = p["id"].(string)
		}
	}
	return s
}

var servingLine = `msg=serving address=(\S+)`

// startServe runs `serve` on a free port in this process; stop ends it as SIGTERM would and returns its exit code.
func startServe(t *testing.T, file string, args ...string) (address string, logs *logBuffer, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	logs = newLogBuffer(t.Output())
	code, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		defer logs.close()
		code = run(ctx, append([]string{"serve", "-db", file, "-addr", "127.0.0.1:0"}, args...), strings.NewReader(""), io.Discard, logs)
	}()
	stop = func() int {
		cancel()
		<-ended
		return code
	}
	t.Cleanup(func() { stop() })
	return logs.await(t, servingLine), logs, stop
}

// startProgram runs `serve` in a process of its own.
func startProgram(t *testing.T, file string, args ...string) (address string, logs *logBuffer, cmd *exec.Cmd) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	logs = newLogBuffer(io.Discard)
	cmd = exec.Command(exe, append([]string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-rate", "1000000", "-burst", "1000000"}, args...)...)
	cmd.Env = append(os.Environ(), "STOREORDER_TEST_AS_PROGRAM=1")
	cmd.Stderr = logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		logs.close()
	})
	return logs.await(t, servingLine), logs, cmd
}

// startReceiver is an endpoint on a socket; what it gets comes through the channel, and it answers 204.
func startReceiver(t *testing.T) (address string, got chan received) {
	got = make(chan received, 100_000)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- receive(t, r)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(hs.Close)
	return hs.URL + "/hook", got
}

// dump is all that is in a database.
func dump(t *testing.T, file string) string {
	t.Helper()
	db, err := openDB(file, false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tables, err := collect(db.r, scanValue[string], "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, table := range tables {
		rows, err := db.r.Query("SELECT * FROM " + table)
		if err != nil {
			t.Fatal(err)
		}
		columns, _ := rows.Columns()
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&all, table, values)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// ---- From end to end

func TestEndToEnd(t *testing.T) {
	t.Parallel()
	file, storeID, key := newStoreFile(t)
	hook, webhooks := startReceiver(t)
	added, _ := command(t, 0, "webhook", "add", "-db", file, "-store", storeID, "-url", hook, "-webhook-allow-private")
	endpoint, secret := fmt.Sprint(added["endpoint_id"]), fmt.Sprint(added["secret"])
	if !regexp.MustCompile(`^whsec_[0-9A-Za-z_-]{43}$`).MatchString(secret) || len(added) != 2 {
		t.Errorf("webhook add: %v", added)
	}
	address, logs, stop := startServe(t, file, "-webhook-allow-private", "-public-url", "https://Orders.example.id/")
	s := reach(t, address, key)
	created := s.do(t, "POST", "/v1/orders?", s.order("kopi", 2, "duo", 1)).want(t, 201, "")
	id := created.at("order.id")
	if got := created.at("order.checkout_url"); got != "https://orders.example.id/pay/"+id {
		t.Errorf("checkout_url %s", got)
	}
	first := <-webhooks
	first.signedBy(t, 1, secret)
	// An event shows the order as the answer did, byte for byte.
	if first.event.Event != "orderCreated" || first.event.Sequence != 1 || !strings.HasSuffix(first.body, strings.TrimPrefix(string(created.Body), `{"success":true,`)) {
		t.Errorf("first event %s\nof %s", first.body, created.Body)
	}
	// The owner's moves by command take effect while the service runs; it finds their events by itself.
	for _, step := range []struct{ command, status, event string }{{"approve", "paid", "orderPaid"}, {"refund", "refunded", "orderRefunded"}} {
		out, _ := command(t, 0, "order", step.command, "-db", file, "-order", strings.ToUpper(id))
		if fmt.Sprint(out) != "map[order_id:"+id+" status:"+step.status+"]" {
			t.Errorf("order %s: %v", step.command, out)
		}
		got := <-webhooks
		got.signedBy(t, 1, secret)
		if got.event.Event != step.event || got.event.Data.Order["status"] != step.status {
			t.Errorf("after %s: %s", step.command, got.body)
		}
	}
	_, stderr := command(t, 1, "order", "cancel", "-db", file, "-order", id)
	if !strings.Contains(stderr, "The order is refunded") {
		t.Errorf("order cancel: %s", stderr)
	}
	// Webhook commands.
	list, _ := command(t, 0, "webhook", "list", "-db", file, "-store", storeID)
	if got := (reply{Data: list}); got.at("endpoints.0.url") != hook || got.at("endpoints.0.deliveries.2.event") != "orderCreated" ||
		got.at("endpoints.0.deliveries.2.delivery_id") != first.header.Get("X-Service-Delivery-Id") || strings.Contains(fmt.Sprint(list), secret) {
		t.Errorf("webhook list: %v", list)
	}
	// A delivery's result is written after the receiver has answered, and until then it is not sent again.
	for resent := ""; resent != "1"; {
		out, _ := command(t, 0, "webhook", "resend", "-db", file, "-delivery", first.header.Get("X-Service-Delivery-Id"))
		resent = fmt.Sprint(out["resent"])
	}
	if again := <-webhooks; again.body != first.body || again.event.ID != first.event.ID {
		t.Errorf("sent again: %s", again.body)
	}
	rotated, _ := command(t, 0, "webhook", "rotate", "-db", file, "-endpoint", endpoint)
	s.create(t, "teh", 1)
	got := <-webhooks
	got.signedBy(t, 1, fmt.Sprint(rotated["secret"]), secret)
	command(t, 0, "webhook", "off", "-db", file, "-endpoint", endpoint)
	waiting := s.create(t, "teh", 1)
	resent, _ := command(t, 0, "webhook", "resend", "-db", file, "-endpoint", endpoint, "-since", "2000-01-01")
	if fmt.Sprint(resent["resent"]) == "0" {
		t.Errorf("resend -since: %v", resent)
	}
	command(t, 0, "webhook", "on", "-db", file, "-endpoint", endpoint)
	for (<-webhooks).event.Data.Order["id"] != waiting {
	}
	command(t, 0, "webhook", "remove", "-db", file, "-endpoint", endpoint)
	if list, _ := command(t, 0, "webhook", "list", "-db", file, "-store", storeID); shape(list) != "{endpoints:[]}" {
		t.Errorf("after remove: %v", list)
	}
	// Keys, plans, stores.
	keys, _ := command(t, 0, "key", "list", "-db", file, "-store", storeID)
	if shape(keys) != "{keys:[{created_at:time key_id:uuid last_used_at:null name:text revoked_at:null store_id:uuid}]}" {
		t.Errorf("key list: %s", shape(keys))
	}
	command(t, 0, "store", "set", "-db", file, "-store", storeID, "-plan", "free", "-domain", "Kopi.example.id", "-expiry", "10m")
	s.do(t, "GET", "/v1/orders", nil).want(t, 403, "PLAN_REQUIRED")
	command(t, 0, "store", "set", "-db", file, "-store", storeID, "-plan", "scale")
	short := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
	if short.at("order.checkout_url") != "https://kopi.example.id/pay/"+short.at("order.id") {
		t.Errorf("with a domain: %s", short.at("order.checkout_url"))
	}
	var createdAt, expiresAt Time
	if err := errors.Join(createdAt.UnmarshalJSON(mustJSON(short.at("order.created_at"))), expiresAt.UnmarshalJSON(mustJSON(short.at("order.expires_at")))); err != nil || expiresAt-createdAt != 600_000 {
		t.Errorf("expiry 10m: %s %s", short.at("order.created_at"), short.at("order.expires_at"))
	}
	if stores, _ := command(t, 0, "store", "list", "-db", file); shape(stores) != "{stores:[{created_at:time domain:text expiry:text name:text owner_email:text plan:text slug:text store_id:uuid url:url}]}" {
		t.Errorf("store list: %s", shape(stores))
	}
	if changed, _ := command(t, 0, "store", "password", "-db", file, "-store", storeID); shape(changed) != "{owner_password:text store_id:uuid}" {
		t.Errorf("store password: %v", changed)
	}
	command(t, 0, "key", "revoke", "-db", file, "-key", (reply{Data: keys}).at("keys.0.key_id"))
	s.do(t, "GET", "/v1/orders", nil).want(t, 401, "UNAUTHORIZED")
	if ok, _ := command(t, 0, "check", "-db", file); fmt.Sprint(ok) != "map[faults:[] ok:true schema_version:"+strconv.Itoa(len(migrations))+"]" {
		t.Errorf("check: %v", ok)
	}
	if code := stop(); code != 0 {
		t.Errorf("serve exits with %d", code)
	}
	log := logs.String()
	if !strings.Contains(log, "path=/v1/orders/") && !strings.Contains(log, "path=/v1/orders ") {
		t.Errorf("no line for a request: %s", log)
	}
	for _, private := range []string{key, secret, "siti", "Siti", fmt.Sprint(rotated["secret"]), hook} {
		if strings.Contains(log, private) {
			t.Errorf("the log holds %q", private)
		}
	}
}

// TestDemo takes the demo at its word: what it prints works, and it sees its own webhook.
func TestDemo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	out, code := newLogBuffer(t.Output()), make(chan int)
	go func() {
		defer out.close()
		code <- run(ctx, []string{"demo", "-addr", "127.0.0.1:0"}, strings.NewReader(""), out, out)
	}()
	order := out.await(t, `-d '(\{.*\})'`)
	key, address := out.await(t, `API key +(so_\S+)`), out.await(t, `Bearer \S+' http://(127\.0\.0\.1:\d+)/v1/orders\n`)
	s := reach(t, address, key)
	made := s.do(t, "POST", "/v1/orders", order).want(t, 201, "")
	out.await(t, "orderCreated .*"+made.at("order.payment_reference")+".* signature verified")
	if list := s.do(t, "GET", "/v1/orders", nil); list.at("orders.0.id") != made.at("order.id") {
		t.Errorf("orders: %s", list.Body)
	}
	cancel()
	if c := <-code; c != 0 {
		t.Errorf("demo exits with %d", c)
	}
}

func TestBackupWhileOrdersCome(t *testing.T) {
	t.Parallel()
	file, _, key := newStoreFile(t)
	address, _, stop := startServe(t, file, "-rate", "1000000", "-burst", "1000000")
	s := reach(t, address, key)
	var before []string
	for range 20 {
		before = append(before, s.create(t, "teh", 1))
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
				}
			}
		})
	}
	out := filepath.Join(t.TempDir(), "backup.db")
	command(t, 0, "backup", "-db", file, out)
	close(done)
	wg.Wait()
	command(t, 0, "check", "-db", out)
	rows := dump(t, out)
	for _, id := range before {
		if !strings.Contains(rows, id) {
			t.Errorf("order %s is not in the backup", id)
		}
	}
	if _, stderr := command(t, 1, "backup", "-db", file, out); !strings.Contains(stderr, "exists") || dump(t, out) != rows {
		t.Errorf("overwriting: %s", stderr)
	}
	stop()
	again := filepath.Join(t.TempDir(), "again.db")
	command(t, 0, "backup", "-db", file, again)
	if dump(t, again) != dump(t, file) {
		t.Error("the backup has other rows")
	}
}

func TestOperatorsMistakes(t *testing.T) {
	t.Parallel()
	file, storeID, _ := newStoreFile(t)
	dir := t.TempDir()
	text := writeFile(t, "text.db", strings.Repeat("This is no database. ", 100))
	other := func(name, statements string) string {
		path := filepath.Join(dir, name)
		db, err := sql.Open("sqlite3", path)
		if err == nil {
			_, err = db.Exec(statements)
		}
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign, newer := other("foreign.db", "PRAGMA user_version = 1; CREATE TABLE notes (x)"), other("newer.db", fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 99; CREATE TABLE y (x)", applicationID))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	empty, syntax := writeFile(t, "empty.json", ""), writeFile(t, "syntax.json", "{\n  \"products\": [\n    {\"slug\": \"a\",}\n  ]\n}")
	latin := writeFile(t, "latin.json", "{\"products\":[{\"slug\":\"a\",\"title\":\"caf\xe9\",\"price\":1}]}")
	wrong := writeFile(t, "wrong.json", `{"products":[{"slug":"baru","title":"Baru","price":5},{"slug":"B","title":"","price":-1,"stok":3}]}`)
	missing := writeFile(t, "missing.json", `{"products":[{"slug":"baru","title":"Baru","price":5}],"bundles":[{"slug":"b","title":"B","price":1,"items":[{"slug":"nothing","quantity":1}]}]}`)
	twice := writeFile(t, "twice.json", `{"products":[{"slug":"a","title":"A","price":5},{"slug":"a","title":"A","price":6}]}`)
	bounds := writeFile(t, "bounds.json", `{"payment_methods":[{"code":"x","name":"X","provider":"paypal","min_amount":5,"max_amount":4}]}`)
	rows := dump(t, file)
	const unknown = "0190f5a0-0000-7000-8000-000000000001"
	for _, c := range []struct {
		name string
		code int
		says []string // all of it is in the message
		args []string
	}{
		{"no such command", 2, []string{`"sreve"`, "serve"}, []string{"sreve"}},
		{"half a command", 2, []string{"store add"}, []string{"store"}},
		{"unknown flag", 2, []string{"-prot", "-h"}, []string{"serve", "-prot", "80"}},
		{"missing flag", 2, []string{"-store"}, []string{"key", "list", "-db", file}},
		{"argument too many", 2, []string{"argument"}, []string{"check", "-db", file, "more"}},
		{"no argument", 2, []string{"argument"}, []string{"backup", "-db", file}},
		{"wrong duration", 2, []string{"expiry"}, []string{"store", "set", "-db", file, "-store", storeID, "-expiry", "1d"}},
		{"expiry out of range", 2, []string{"-expiry", "168h"}, []string{"store", "set", "-db", file, "-store", storeID, "-expiry", "169h"}},
		{"wrong plan", 2, []string{"-plan", "growth"}, []string{"store", "add", "-db", file, "-name", "N", "-email", "n@example.id", "-plan", "pro"}},
		{"wrong e-mail", 2, []string{"-email"}, []string{"store", "add", "-db", file, "-name", "N", "-email", "n"}},
		{"slug of another store", 1, []string{"slug", "kopi-kita"}, []string{"store", "add", "-db", file, "-name", "Kopi Kita", "-email", "n@example.id"}},
		{"e-mail of another store", 1, []string{"email", "owner@example.id"}, []string{"store", "add", "-db", file, "-name", "N", "-email", "OWNER@example.id"}},
		{"unknown store", 1, []string{"id"}, []string{"key", "add", "-db", file, "-store", unknown, "-name", "k"}},
		{"unknown key", 1, []string{"id"}, []string{"key", "revoke", "-db", file, "-key", unknown}},
		{"unknown order", 1, []string{"id"}, []string{"order", "approve", "-db", file, "-order", unknown}},
		{"unknown endpoint", 1, []string{"id"}, []string{"webhook", "remove", "-db", file, "-endpoint", unknown}},
		{"unknown delivery", 1, []string{"id"}, []string{"webhook", "resend", "-db", file, "-delivery", unknown}},
		{"resend what", 2, []string{"-delivery", "-since"}, []string{"webhook", "resend", "-db", file}},
		{"resend since when", 2, []string{"-since"}, []string{"webhook", "resend", "-db", file, "-endpoint", unknown, "-since", "yesterday"}},
		{"http endpoint", 2, []string{"https://", "-webhook-allow-private"}, []string{"webhook", "add", "-db", file, "-store", storeID, "-url", "http://shop.example.id/"}},
		{"private endpoint", 2, []string{"-webhook-allow-private"}, []string{"webhook", "add", "-db", file, "-store", storeID, "-url", "https://192.168.1.2/"}},
		{"unknown event", 2, []string{`"orderMade"`, "orderCreated"}, []string{"webhook", "add", "-db", file, "-store", storeID, "-url", "https://shop.example.id/", "-events", "orderPaid,orderMade"}},
		{"missing database", 1, []string{"no database", "absent.db"}, []string{"check", "-db", filepath.Join(dir, "absent.db")}},
		{"missing folder", 1, []string{"cannot open the database"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", filepath.Join(dir, "absent", "x.db")}},
		{"folder as a file", 1, []string{"cannot open the database"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", dir}},
		{"not a database", 1, []string{"text.db", "not a SQLite database"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", text}},
		{"another program's database", 1, []string{"another program's"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", foreign}},
		{"newer database", 1, []string{"99", "newer"}, []string{"serve", "-addr", "127.0.0.1:0", "-db", newer}},
		{"port taken", 1, []string{"taken", "-addr"}, []string{"serve", "-db", file, "-addr", taken.Addr().String()}},
		{"no port", 1, []string{"-addr"}, []string{"serve", "-db", file, "-addr", "127.0.0.1"}},
		{"wrong public URL", 2, []string{"-public-url"}, []string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-public-url", "orders.example.id"}},
		{"wrong proxy", 2, []string{"-trusted-proxy"}, []string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-trusted-proxy", "10.0.0.1"}},
		{"rate 0", 2, []string{"-rate"}, []string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-rate", "0"}},
		{"log format", 2, []string{"-log-format"}, []string{"serve", "-db", file, "-addr", "127.0.0.1:0", "-log-format", "xml"}},
		{"missing catalog", 1, []string{"no such file"}, []string{"catalog", "import", "-db", file, "-store", storeID, filepath.Join(dir, "absent.json")}},
		{"empty catalog", 1, []string{"empty.json", "line 1"}, []string{"catalog", "import", "-db", file, "-store", storeID, empty}},
		{"catalog with a comma too many", 1, []string{"syntax.json", "line 3"}, []string{"catalog", "import", "-db", file, "-store", storeID, syntax}},
		{"catalog in Latin-1", 1, []string{"latin.json", "UTF-8"}, []string{"catalog", "import", "-db", file, "-store", storeID, latin}},
		{"catalog with wrong fields", 1, []string{"products[1].slug", "products[1].title", "products[1].price", "products[1].stok"}, []string{"catalog", "import", "-db", file, "-store", storeID, wrong}},
		{"bundle of a missing product", 1, []string{"bundles[0].items[0].slug", `"nothing"`}, []string{"catalog", "import", "-db", file, "-store", storeID, missing}},
		{"slug twice", 1, []string{"products[1].slug", "twice"}, []string{"catalog", "import", "-db", file, "-store", storeID, twice}},
		{"method", 1, []string{"payment_methods[0].provider", "manual", "min_amount"}, []string{"catalog", "import", "-db", file, "-store", storeID, bounds}},
		{"catalog of an unknown store", 1, []string{"id"}, []string{"catalog", "import", "-db", file, "-store", unknown, writeFile(t, "good.json", testCatalog)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, stderr := command(t, c.code, c.args...)
			for _, says := range c.says {
				if !strings.Contains(stderr, says) {
					t.Errorf("%q is not in %q", says, stderr)
				}
			}
			if strings.Contains(stderr, "goroutine") || c.code == 1 && strings.Count(stderr, "\n") > 6 {
				t.Errorf("no clear sentence: %s", stderr)
			}
		})
	}
	if dump(t, file) != rows {
		t.Error("mistakes changed the database")
	}
	if _, err := os.Stat(filepath.Join(dir, "absent.db")); err == nil {
		t.Error("a command made the missing database")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the database's mode: %v %v", info.Mode(), err)
	}
	for _, args := range [][]string{{}, {"-h"}, {"help"}, {"serve", "-h"}, {"catalog", "import", "-h"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &errs); code != 0 || out.Len() == 0 || errs.Len() > 0 {
			t.Errorf("%q: %d %s", args, code, errs.String())
		}
	}
}

// ---- Processes that end

func TestKilledUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	file, storeID, key := newStoreFile(t)
	hook, webhooks := startReceiver(t)
	added, _ := command(t, 0, "webhook", "add", "-db", file, "-store", storeID, "-url", hook, "-webhook-allow-private")
	var mu sync.Mutex
	answered := map[string]string{} // what each 201 said
	for range 2 {
		address, _, cmd := startProgram(t, file, "-webhook-allow-private")
		s := reach(t, address, key)
		const wanted = 150
		enough := make(chan struct{})
		var wg sync.WaitGroup
		already := len(answered)
		for range 4 {
			wg.Go(func() {
				for {
					req, _ := http.NewRequest("POST", s.url+"/v1/orders", bytes.NewReader(mustJSON(s.order("teh", 1))))
					req.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}}
					resp, err := s.client.Do(req)
					if err != nil {
						return // killed
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil {
						return
					}
					var r struct {
						Data struct{ Order json.RawMessage }
					}
					if err := json.Unmarshal(body, &r); err != nil || resp.StatusCode != 201 {
						t.Errorf("%d %s", resp.StatusCode, body)
						return
					}
					mu.Lock()
					answered[filepath.Base(resp.Header.Get("Location"))] = string(r.Data.Order)
					if len(answered) == already+wanted {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		cmd.Process.Kill()
		wg.Wait()
		cmd.Wait()
	}
	address, _, _ := startProgram(t, file, "-webhook-allow-private", "-public-url", "http://localhost:1")
	s := reach(t, address, key)
	missing := map[string]bool{}
	for page, more := "/v1/orders?limit=50", true; more; {
		r := s.do(t, "GET", page, nil).want(t, 200, "")
		for _, o := range r.list("orders") {
			id := o["id"].(string)
			missing[id] = true // until its event comes
			page = "/v1/orders?limit=50&starting_after=" + id
		}
		more = r.at("has_more") == "true"
	}
	reference := regexp.MustCompile(`"payment_reference":"[^"]+"`)
	for id, order := range answered {
		r := s.do(t, "GET", "/v1/orders/"+id, nil)
		if !missing[id] || r.Status != 200 || !bytes.Contains(r.Body, []byte(reference.FindString(order))) {
			t.Errorf("order %s was answered 201 and is %d", id, r.Status)
		}
	}
	bodies := map[string]string{}
	for len(missing) > 0 {
		got := <-webhooks
		id := fmt.Sprint(got.event.Data.Order["id"])
		attempt, _ := strconv.Atoi(got.header.Get("X-Service-Attempt"))
		got.signedBy(t, attempt, fmt.Sprint(added["secret"]))
		if before, ok := bodies[got.event.ID]; ok && before != got.body {
			t.Errorf("two bodies of %s:\n%s\n%s", got.event.ID, before, got.body)
		}
		bodies[got.event.ID] = got.body
		delete(missing, id)
	}
	if ok, _ := command(t, 0, "check", "-db", file); ok["ok"] != true {
		t.Errorf("check: %v", ok)
	}
}

func TestSIGTERMFinishesWhatWasBegun(t *testing.T) {
	t.Parallel()
	file, _, key := newStoreFile(t)
	address, logs, cmd := startProgram(t, file, "-log-format", "text")
	s := reach(t, address, key)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := mustJSON(s.order("teh", 1))
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", key, len(body))
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	if line := make([]byte, len(goOn)); true {
		if _, err := io.ReadFull(conn, line); err != nil || string(line) != goOn {
			t.Fatalf("%q %v", line, err)
		}
	}
	cmd.Process.Signal(syscall.SIGTERM) // while the handler waits for the body
	logs.await(t, `msg="stopping`)
	conn.Write(body)
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 201 ")) {
		t.Errorf("answer while draining: %s %v", answer, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if n := strings.Count(dump(t, file), `"status":"pending"`); n == 0 {
		t.Error("the order is not in the database")
	}
}

// pipeListener is a listener inside a synctest bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	}
}

func TestSlowAndIdleClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openTestServer(t, testSettings)
		ln := newPipeListener()
		s.url, s.client = "http://shop.test", &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return ln.dial() }}}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- serveOn(ctx, ln, s.db, testSettings, s.log) }()
		open := func(n int, send string) (conns []net.Conn) {
			for range n {
				c, err := ln.dial()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(c, send); err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
			}
			return conns
		}
		head := "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.key + "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
		begin := time.Now()
		slow := []struct {
			name  string
			conns []net.Conn
			after time.Duration // they are ended
			says  string
		}{
			{"idle", open(600, ""), 5 * time.Second, ""},
			{"slow headers", open(300, head), 5 * time.Second, ""},
			{"slow bodies", open(100, head+"\r\n{"), 15 * time.Second, "HTTP/1.1 400 "},
		}
		synctest.Wait()
		id := s.create(t, "teh", 1)
		if time.Since(begin) > 0 {
			t.Errorf("beside slow clients a request takes %s", time.Since(begin))
		}
		for _, c := range slow {
			for _, conn := range c.conns {
				got, err := io.ReadAll(conn)
				if took := time.Since(begin); took < c.after || took > c.after+time.Second || !strings.HasPrefix(string(got), c.says) {
					t.Fatalf("%s: ended after %s with %q %v", c.name, took, got, err)
				}
				conn.Close()
			}
		}
		big := open(1, "GET /v1/orders HTTP/1.1\r\nHost: x\r\n")[0]
		go func() { // until the server hangs up
			for range 30 {
				fmt.Fprintf(big, "X-Long: %s\r\n", strings.Repeat("x", 1000))
			}
			io.WriteString(big, "Connection: close\r\n\r\n")
		}()
		if got, _ := io.ReadAll(big); !strings.HasPrefix(string(got), "HTTP/1.1 431 ") {
			t.Errorf("30 KB of headers: %.100q", got)
		}
		big.Close()
		s.do(t, "GET", "/v1/orders/"+id, nil).want(t, 200, "")
		if n := scalar[int](t, s.db, "SELECT count(*) FROM orders"); n != 1 {
			t.Errorf("%d orders", n)
		}
		// One that is under way when the service is told to stop is finished; a new one finds nobody.
		body := mustJSON(s.order("teh", 1))
		late := open(1, strings.Replace(head, "100", strconv.Itoa(len(body)), 1)+"\r\n"+string(body[:10]))[0]
		synctest.Wait()
		cancel()
		synctest.Wait()
		if c, err := ln.dial(); err == nil {
			c.Close()
			t.Error("a connection is accepted after the end began")
		}
		time.Sleep(10 * time.Second)
		go late.Write(body[10:])
		if got, err := io.ReadAll(late); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 201 ") {
			t.Errorf("under way at the end: %.100q %v", got, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
}

func TestPanicsAndReadiness(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	w := httptest.NewRecorder()
	s.outermost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") })).ServeHTTP(w, httptest.NewRequest("GET", "/v1/x?secret=1", nil))
	if w.Code != 500 || w.Body.String() != `{"success":false,"error":{"code":"INTERNAL_ERROR","message":"Internal error."}}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if log := s.logs.String(); !strings.Contains(log, "a defect") || !strings.Contains(log, "status=500") || strings.Contains(log, "secret") {
		t.Errorf("log: %s", log)
	}
	s.do(t, "GET", "/readyz", nil, "Authorization", "").want(t, 200, "")
	s.draining.Store(true)
	s.do(t, "GET", "/readyz", nil, "Authorization", "").want(t, 503, "SERVICE_UNAVAILABLE")
	s.do(t, "GET", "/healthz", nil, "Authorization", "").want(t, 200, "")
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	s.trustedProxy = netip.MustParsePrefix("10.0.0.0/8")
	for _, c := range []struct{ remote, forwarded, want string }{
		{"192.0.2.1:5", "", "192.0.2.1"},
		{"192.0.2.1:5", "203.0.113.9", "192.0.2.1"}, // not a trusted proxy's word
		{"10.0.0.1:5", "203.0.113.9", "203.0.113.9"},
		{"10.0.0.1:5", "198.51.100.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"}, // the first one could be made up
		{"10.0.0.1:5", "junk", "10.0.0.1"},
		{"10.0.0.1:5", "", "10.0.0.1"},
		{"[::ffff:10.0.0.1]:5", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := s.clientAddress(r); got != c.want {
			t.Errorf("%s, forwarded %q: %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}

func TestStoreURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		public     string
		subdomains bool
		domain     string
		want       string
	}{
		{"http://localhost:8080", false, "", "http://localhost:8080"},
		{"https://orders.example.id", true, "", "https://kopi.orders.example.id"},
		{"http://orders.example.id:81", true, "", "http://kopi.orders.example.id:81"},
		{"https://orders.example.id:8443", true, "kopikita.id", "https://kopikita.id:8443"},
		{"https://orders.example.id", false, "kopikita.id", "https://kopikita.id"},
	} {
		db := &DB{publicURL: c.public, subdomains: c.subdomains}
		if got := db.storeURL(Store{Slug: "kopi", Domain: c.domain}); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// ---- The database

func TestGroupCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		db := s.db
		insert := func(tx *Tx, slug string) error {
			_, err := tx.exec("UPDATE products SET description = description || ? WHERE slug = 'teh'", slug)
			return err
		}
		text := func(q querier) string {
			v, err := one(q, scanValue[string], "SELECT description FROM products WHERE slug = 'teh'")
			if err != nil {
				t.Error(err)
			}
			return v
		}
		hold := make(chan struct{})
		errs := make([]error, 6)
		var wg sync.WaitGroup
		begin := func(i int, fn func(tx *Tx) error) {
			wg.Go(func() { errs[i] = db.write(t.Context(), fn) })
			synctest.Wait()
		}
		begin(0, func(tx *Tx) error { <-hold; return insert(tx, "a") })
		begin(1, func(tx *Tx) error { return insert(tx, "b") })
		begin(2, func(tx *Tx) error { return errors.Join(insert(tx, "X"), errNotFound) })
		begin(3, func(tx *Tx) error { insert(tx, "Y"); panic("a defect") })
		begin(4, func(tx *Tx) error { _, err := tx.Exec("UPDATE products SET price = -1"); return err })
		begin(5, func(tx *Tx) error {
			if committed, mine := text(db.r), text(tx); committed != "" || len(mine) != 2 && len(mine) != 1 && len(mine) != 0 {
				t.Errorf("in a group: %q is committed, %q seen", committed, mine)
			}
			return insert(tx, "c")
		})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := db.write(cancelled, func(*Tx) error { t.Error("ran after its caller had gone"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled while it waited: %v", err)
		}
		close(hold)
		wg.Wait()
		got := text(db.r)
		if len(got) != 3 || !strings.Contains(got, "a") || !strings.Contains(got, "b") || !strings.Contains(got, "c") {
			t.Errorf("committed: %q", got)
		}
		if errs[0] != nil || errs[1] != nil || errs[5] != nil || !errors.Is(errs[2], errNotFound) || errs[3] == nil || !strings.Contains(errs[3].Error(), "a defect") ||
			sqliteCode(errs[4]) != sqlite3.ErrConstraint {
			t.Errorf("answers: %v", errs)
		}
		// The first of a group may be refused too.
		hold = make(chan struct{})
		begin(0, func(tx *Tx) error { <-hold; return errors.Join(insert(tx, "Z"), errNotFound) })
		begin(1, func(tx *Tx) error { return insert(tx, "d") })
		close(hold)
		wg.Wait()
		if text(db.r) != got+"d" || !errors.Is(errs[0], errNotFound) || errs[1] != nil {
			t.Errorf("behind a refused one: %q %v", text(db.r), errs[:2])
		}
		// Ids stay in order and tell their order's time, even when a millisecond has no more of them.
		if err := db.write(t.Context(), func(tx *Tx) error {
			last := ""
			for range 4090 {
				id := tx.newID()
				if id <= last {
					t.Fatalf("%s after %s", id, last)
				}
				last = id
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		last := ""
		for range 10 {
			r := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
			var at Time
			if err := at.UnmarshalJSON(mustJSON(r.at("order.created_at"))); err != nil || !strings.HasPrefix(r.at("order.id"), firstID(at)[:13]) || r.at("order.id") <= last {
				t.Errorf("id %s of %s after %s", r.at("order.id"), at, last)
			}
			last = r.at("order.id")
		}
	})
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.create(t, "kopi", 1)
	limit := func(pages int) {
		t.Helper()
		if _, err := s.db.w.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // SQLite makes that the pages in use
	created, full := 1, 0
	var mu sync.Mutex
	parallel(8, func(int) {
		for range 20 {
			body := with(s.order("teh", 1), "return_url", "https://a.example/"+strings.Repeat("x", 2000))
			r := s.do(t, "POST", "/v1/orders", body)
			mu.Lock()
			if r.Status == 201 {
				created++
			} else if r.want(t, 503, "SERVICE_UNAVAILABLE"); r.Status == 503 {
				full++
				if r.Header.Get("Retry-After") == "" || strings.Contains(string(r.Body), "disk") {
					t.Errorf("%v %s", r.Header, r.Body)
				}
			}
			mu.Unlock()
		}
	})
	if full == 0 {
		t.Fatal("the disk did not fill")
	}
	for _, path := range []string{"/v1/orders", "/v1/products", "/readyz"} {
		s.do(t, "GET", path, nil).want(t, 200, "")
	}
	counts := func() (n [3]int) {
		for i, table := range []string{"orders", "events", "order_history"} {
			n[i] = scalar[int](t, s.db, "SELECT count(*) FROM "+table)
		}
		return n
	}
	if n := counts(); n != [3]int{created, created, created} {
		t.Errorf("%d orders were answered 201; orders, events, history: %v", created, n)
	}
	limit(1_000_000)
	s.create(t, "kopi", 1)
	if n := counts(); n != [3]int{created + 1, created + 1, created + 1} || s.stock(t, "kopi") != 8 {
		t.Errorf("after it: %v, stock %d", n, s.stock(t, "kopi"))
	}
	if _, faults, err := s.db.Check(); err != nil || len(faults) > 0 {
		t.Errorf("check: %v %v", faults, err)
	}
}

// TestQueryPlans looks at every constant sql… of the program: each query goes through an index, in the order it is to
// answer in.
func TestQueryPlans(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{ // a scan that is meant
		"sqlDueEndpoints": "SCAN e", // a store has few endpoints
		"sqlBundles":      "SCAN i", // of a subquery's rows: one bundle's parts
	}
	allowed["sqlCatalogBundles"], allowed["sqlCatalogBundle"] = allowed["sqlBundles"], allowed["sqlBundles"]
	allowed["sqlUnreachable"] = "SCAN s USING INDEX payment_sessions_warned" // which holds nothing else
	allowed["sqlSearch"] = "SCAN (subquery-1)"                               // of the newest few thousand
	allowed["sqlSessionsToPoll"] = "USE TEMP B-TREE FOR ORDER BY"            // of the few that are due
	allowed["sqlSearch by status"] = allowed["sqlSearch"]
	queries := constants(t, "sql")
	for name, query := range queries {
		if strings.Contains(query, "%s") { // with a condition, or without
			queries[name], queries[name+" by status"] = strings.ReplaceAll(query, "%s", ""), strings.ReplaceAll(query, "%s", "AND status = ?3")
		}
	}
	s := newBubbleServer(t)
	if len(queries) < 15 {
		t.Errorf("only %d queries found", len(queries))
	}
	conn, err := s.db.w.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, query := range queries {
		if strings.HasSuffix(query, "WHERE ") { // the head of several
			query += "s.id = ?"
		}
		var args []any
		err := conn.Raw(func(c any) error {
			stmt, err := c.(*sqlite3.SQLiteConn).Prepare(query)
			if err != nil {
				return err
			}
			args = make([]any, stmt.NumInput())
			return stmt.Close()
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := conn.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Error(err)
			}
			table := strings.HasPrefix(detail, "SCAN ") && !strings.Contains(detail, "VIRTUAL TABLE") && !strings.Contains(detail, "CONSTANT ROW")
			if (table || strings.Contains(detail, "TEMP B-TREE")) && detail != allowed[name] {
				t.Errorf("%s: %s", name, detail)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// constants reads the text constants of the program's source whose names begin with prefix and a capital.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") || name == "nocgo.go" {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Error: func(error) {}, IgnoreFuncBodies: true} // imports are not resolved, and constants need none
	conf.Check("main", fset, files, info)
	found := map[string]string{}
	for ident, object := range info.Defs {
		if c, ok := object.(*types.Const); ok && regexp.MustCompile("^"+prefix+"[A-Z]").MatchString(ident.Name) && c.Val().Kind() == constant.String {
			found[ident.Name] = constant.StringVal(c.Val())
		}
	}
	return found
}

// ---- Fuzzing what parses. Go runs the seeds with every test; `go test -fuzz FuzzNewOrder` goes on.

func FuzzNewOrder(f *testing.F) {
	const id = "0190f5a0-0000-7000-8000-000000000001"
	s := &testServer{ids: map[string]string{"teh": id, "kopi": id, "mahal": id, "duo": id, "draf": id, "bundle:draf": id}}
	f.Add([]byte(s.spell("GOOD")))
	f.Add([]byte(s.spell(`ITEM{"type":"bundle","bundle_id":"DUO","quantity":3}`)))
	f.Add(mustJSON(with(with(s.order("teh", 10_000), "external_id", "é"), "return_url", "https://a.id/?b=c&d")))
	for _, c := range badBodies {
		f.Add([]byte(s.spell(c.body)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := readNewOrder(body)
		if err != nil {
			refusal, ok := err.(*Refusal)
			if !ok || refusal.Code != "INVALID_REQUEST" && refusal.Code != "VALIDATION_FAILED" {
				t.Fatalf("%q: %v", body, err)
			}
			json.Unmarshal(mustJSON(refusal), refusal) // its words can be sent
			return
		}
		if !json.Valid(body) || len(in.Items) == 0 || len(in.Items) > 100 || in.Buyer.Name == "" || in.Buyer.Email == "" && in.Buyer.Phone == "" {
			t.Fatalf("%q is taken as %+v", body, in)
		}
		items := []any{}
		for _, item := range in.Items {
			if item.Quantity < 1 || item.Quantity > 10_000 || (item.ProductID == "") == (item.BundleID == "") {
				t.Fatalf("%q is taken as %+v", body, in)
			}
			kind := "product"
			if item.BundleID != "" {
				kind = "bundle"
			}
			items = append(items, map[string]any{"type": kind, kind + "_id": item.ProductID + item.BundleID, "quantity": item.Quantity})
		}
		again := map[string]any{"items": items, "buyer": in.Buyer}
		for name, value := range map[string]string{"payment_method": in.PaymentMethod, "external_id": in.ExternalID, "return_url": in.ReturnURL} {
			if value != "" {
				again[name] = value
			}
		}
		if second, err := readNewOrder(mustJSON(again)); err != nil || fmt.Sprint(second) != fmt.Sprint(in) {
			t.Fatalf("%q is %+v, and written again %+v (%v)", body, in, second, err)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "limit=50&offset=0", "status=paid&created_at_min=2026-01-01&created_at_max=2026-01-31T10:00:00+07:00", "external_id=%E2%82%AC", "starting_after=x",
		"limit=1&limit=2", "limit", "a;b", "%zz", "limit=%31", "created_at_min=9999-12-31T23:59:59.999-14:00", "created_at_max=0000-01-01", "&&=&"} {
		f.Add(seed)
	}
	db, err := openDB(filepath.Join(f.TempDir(), "fuzz.db"), true)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	s := newServer(db, testSettings, slog.New(slog.DiscardHandler))
	f.Fuzz(func(t *testing.T, raw string) {
		ask := func(raw string) (string, error) {
			a, err := s.listOrders(&http.Request{URL: &url.URL{RawQuery: raw}}, Store{ID: "x"})
			return string(a.data), err
		}
		data, err := ask(raw)
		if err != nil {
			if refusal, ok := err.(*Refusal); !ok || refusal.Code != "INVALID_REQUEST" || refusal.Message == "" {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if !json.Valid([]byte(data)) {
			t.Fatalf("%q: %s", raw, data)
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q is taken and is malformed: %v", raw, err)
		}
		if again, err := ask(values.Encode()); err != nil || again != data {
			t.Fatalf("%q is taken, and written again it is not: %v", raw, err)
		}
	})
}

func FuzzTime(f *testing.F) {
	for _, seed := range []string{"2026-01-31", "2026-01-31T10:00", "2026-01-31T10:00:30.123456789+07:00", "2026-01-31T10:00:00 0700", "0000-01-01", "9999-12-31T23:59:59,9999-14", "2024-02-29T24:00Z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		low, ok := parseTime(text, false)
		high, also := parseTime(text, true)
		if ok != also {
			t.Fatalf("%q is taken as one bound only", text)
		}
		if !ok {
			return
		}
		if high < low-1 || high-low >= 24*3600*1000 { // between two milliseconds the lower bound is the later one
			t.Fatalf("%q: %s to %s", text, low, high)
		}
		for _, at := range []Time{low, high} {
			if year := at.Time().Year(); year < 0 || year > 9999 {
				continue // an offset led out of the years that can be written
			}
			for _, end := range []bool{false, true} {
				if again, ok := parseTime(at.String(), end); !ok || again != at {
					t.Fatalf("%q is %s, and that is %s", text, at, again)
				}
			}
		}
	})
}
