//go:build cgo

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

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
	// The owner's transitions by command take effect while the service runs; it finds their events by itself.
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
	command(t, 0, "store", "set", "-db", file, "-store", storeID, "-plan", "scale", "-name", strings.Repeat("é", 200))
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
	if ok, _ := command(t, 0, "check", "-db", file); fmt.Sprint(ok) != "map[faults:[] ok:true schema_version:"+strconv.Itoa(schemaVersion)+"]" {
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
		{"name too long", 2, []string{"-name", "200"}, []string{"store", "set", "-db", file, "-store", storeID, "-name", strings.Repeat("é", 201)}},
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

func TestOneServiceServesAFile(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	unlock, err := s.db.lockServing()
	if err != nil {
		t.Fatal(err)
	}
	other, err := openDB(s.db.path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.lockServing(); err == nil || !strings.Contains(err.Error(), "another storeorder serves") {
		t.Errorf("a second service: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = other.lockServing(); err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	unlock()
}
