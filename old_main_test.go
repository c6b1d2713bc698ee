//go:build cgo

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
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
)

// TestEndToEnd plays an operator who sets up a store by commands, a client that orders, and a receiver of
// webhooks, while the service runs on the same file.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	file, storeID, key := newStoreFile(t)
	hook, webhooks := startReceiver(t)

	// on runs a command on the file.
	on := func(t *testing.T, line string, args ...string) map[string]any {
		t.Helper()
		out, _ := command(t, 0, append(append(strings.Fields(line), "-db", file), args...)...)
		return out
	}
	added := on(t, "webhook add", "-store", storeID, "-url", hook, "-webhook-allow-private")
	endpoint, secret := fmt.Sprint(added["endpoint_id"]), fmt.Sprint(added["secret"])
	if !regexp.MustCompile(`^whsec_[0-9A-Za-z_-]{43}$`).MatchString(secret) {
		t.Errorf("webhook add prints the secret %q", secret)
	}
	if shape(added) != "{endpoint_id:uuid secret:text}" {
		t.Errorf("webhook add prints %s", shape(added))
	}

	address, logs, stop := startServe(t, file, "-webhook-allow-private", "-public-url", "https://Orders.example.id/")
	s := reach(t, address, key)
	created := s.do(t, "POST", "/v1/orders?", s.order("kopi", 2, "duo", 1)).want(t, 201, "")
	id := created.at("order.id")
	first := <-webhooks

	t.Run("the pay page is at the public URL", func(t *testing.T) {
		want := "https://orders.example.id/pay/" + id
		if got := created.at("order.checkout_url"); got != want {
			t.Errorf("checkout_url %s, want %s", got, want)
		}
	})

	t.Run("the first event shows the order as the answer did, byte for byte", func(t *testing.T) {
		first.signedBy(t, 1, secret)
		if first.event.Event != "orderCreated" {
			t.Errorf("event %s, want orderCreated", first.event.Event)
		}
		if first.event.Sequence != 1 {
			t.Errorf("sequence %d, want 1", first.event.Sequence)
		}
		answered := strings.TrimPrefix(strings.TrimSuffix(string(created.Body), "\n"), `{"success":true,`)
		if !strings.HasSuffix(first.body, answered) {
			t.Errorf("event %s\nof the answer %s", first.body, created.Body)
		}
	})

	t.Run("the service finds the events of commands by itself", func(t *testing.T) {
		steps := []struct{ command, status, event string }{
			{"order approve", "paid", "orderPaid"},
			{"order refund", "refunded", "orderRefunded"},
		}
		for _, step := range steps {
			out := on(t, step.command, "-order", strings.ToUpper(id))
			if got, want := fmt.Sprint(out), "map[order_id:"+id+" status:"+step.status+"]"; got != want {
				t.Errorf("%s prints %s, want %s", step.command, got, want)
			}

			got := <-webhooks
			got.signedBy(t, 1, secret)
			if got.event.Event != step.event {
				t.Errorf("event %s after %s, want %s", got.event.Event, step.command, step.event)
			}
			if got.event.Data.Order["status"] != step.status {
				t.Errorf("the event's order is %v, want %s", got.event.Data.Order["status"], step.status)
			}
		}
	})

	t.Run("a transition that the state forbids is refused", func(t *testing.T) {
		_, stderr := command(t, 1, "order", "cancel", "-db", file, "-order", id)
		if !strings.Contains(stderr, "The order is refunded") {
			t.Errorf("order cancel says %s", stderr)
		}
	})

	delivery := first.header.Get("X-Service-Delivery-Id")
	t.Run("webhook list shows the deliveries and no secret", func(t *testing.T) {
		list := on(t, "webhook list", "-store", storeID)
		want := map[string]string{
			"endpoints.0.url":                      hook,
			"endpoints.0.deliveries.2.event":       "orderCreated",
			"endpoints.0.deliveries.2.delivery_id": delivery,
		}
		for path, want := range want {
			if got := (reply{Data: list}).at(path); got != want {
				t.Errorf("%s is %s, want %s", path, got, want)
			}
		}
		if strings.Contains(fmt.Sprint(list), secret) {
			t.Error("the list shows the secret")
		}
	})

	t.Run("a delivery is sent again with the same bytes", func(t *testing.T) {
		// The result is written after the receiver has answered, and until then it is not sent again.
		for resent := ""; resent != "1"; {
			resent = fmt.Sprint(on(t, "webhook resend", "-delivery", delivery)["resent"])
		}
		again := <-webhooks
		if again.event.ID != first.event.ID {
			t.Errorf("event %s, want %s", again.event.ID, first.event.ID)
		}
		if again.body != first.body {
			t.Errorf("body %s, want %s", again.body, first.body)
		}
	})

	rotated := fmt.Sprint(on(t, "webhook rotate", "-endpoint", endpoint)["secret"])
	t.Run("after a rotation both secrets sign", func(t *testing.T) {
		s.create(t, "teh", 1)
		got := <-webhooks
		got.signedBy(t, 1, rotated, secret)
	})

	t.Run("an endpoint that is off keeps its events", func(t *testing.T) {
		on(t, "webhook off", "-endpoint", endpoint)
		waiting := s.create(t, "teh", 1)
		resent := on(t, "webhook resend", "-endpoint", endpoint, "-since", "2000-01-01")
		if fmt.Sprint(resent["resent"]) == "0" {
			t.Error("webhook resend -since found nothing")
		}

		on(t, "webhook on", "-endpoint", endpoint)
		list := on(t, "webhook list", "-store", storeID)
		if reason := (reply{Data: list}).at("endpoints.0.off_reason"); reason != "<nil>" {
			t.Errorf("the endpoint is on, and off because of %s", reason)
		}
		for (<-webhooks).event.Data.Order["id"] != waiting {
		}
	})

	t.Run("a removed endpoint is gone", func(t *testing.T) {
		on(t, "webhook remove", "-endpoint", endpoint)
		list := on(t, "webhook list", "-store", storeID)
		if shape(list) != "{endpoints:[]}" {
			t.Errorf("webhook list prints %v", list)
		}
	})

	keys := on(t, "key list", "-store", storeID)
	t.Run("a key has the scope and the end that are asked for", func(t *testing.T) {
		on(t, "key add", "-store", storeID, "-name", "short", "-scope", "read", "-expires", "1h")
		list := on(t, "key list", "-store", storeID)["keys"].([]any)
		last := list[len(list)-1].(map[string]any)
		if last["scope"] != "read" || last["expires_at"] == nil {
			t.Errorf("key list prints %v", last)
		}
	})

	t.Run("lists have their fields", func(t *testing.T) {
		const keyShape = "{created_at:time expires_at:null key_id:uuid last_used_at:null name:text revoked_at:null " +
			"scope:text store_id:uuid}"
		if got := shape(keys); got != "{keys:["+keyShape+"]}" {
			t.Errorf("key list prints %s", got)
		}
		const storeShape = "{contact:text created_at:time domain:text expiry:text name:text owner_email:text plan:text " +
			"slug:text store_id:uuid test:bool url:url}"
		if got := shape(on(t, "store list")); got != "{stores:["+storeShape+"]}" {
			t.Errorf("store list prints %s", got)
		}
	})

	t.Run("changes of the store take effect at once", func(t *testing.T) {
		on(t, "store set", "-store", storeID, "-plan", "free", "-domain", "Kopi.example.id", "-expiry", "10m",
			"-contact", " 0812 3456 7890 ")
		s.do(t, "GET", "/v1/orders", nil).want(t, 403, "PLAN_REQUIRED")

		on(t, "store set", "-store", storeID, "-plan", "scale", "-name", strings.Repeat("é", 200))
		short := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
		want := "https://kopi.example.id/pay/" + short.at("order.id")
		if got := short.at("order.checkout_url"); got != want {
			t.Errorf("with a domain, checkout_url is %s, want %s", got, want)
		}

		var createdAt, expiresAt Time
		must(t, createdAt.UnmarshalText([]byte(short.at("order.created_at"))))
		must(t, expiresAt.UnmarshalText([]byte(short.at("order.expires_at"))))
		if got := expiresAt - createdAt; got != 600_000 {
			t.Errorf("with -expiry 10m, an order expires after %d ms", got)
		}
	})

	t.Run("test mode is turned on and off", func(t *testing.T) {
		for _, mode := range []string{"on", "off"} {
			changed := on(t, "store set", "-store", storeID, "-test", mode)
			if got, want := changed["test"], mode == "on"; got != want {
				t.Errorf("after -test %s, store set prints %v", mode, got)
			}
		}
		on(t, "store set", "-store", storeID, "-test", "on")
		if kept := on(t, "store set", "-store", storeID, "-expiry", "1h"); kept["test"] != true {
			t.Errorf("store set without -test prints %v", kept["test"])
		}
	})

	t.Run("store password prints a new one", func(t *testing.T) {
		changed := on(t, "store password", "-store", storeID)
		if shape(changed) != "{owner_password:text store_id:uuid}" {
			t.Errorf("store password prints %s", shape(changed))
		}
	})

	t.Run("a revoked key ends at once", func(t *testing.T) {
		on(t, "key revoke", "-key", (reply{Data: keys}).at("keys.0.key_id"))
		s.do(t, "GET", "/v1/orders", nil).want(t, 401, "UNAUTHORIZED")
	})

	t.Run("the file is sound", func(t *testing.T) {
		want := fmt.Sprintf("map[faults:[] ok:true orders:4 schema_version:%d stores:1 "+
			"to_delete:map[deliveries:0 events:0 notifications:0] waiting_deliveries:0]", schemaVersion)
		if got := fmt.Sprint(on(t, "check")); got != want {
			t.Errorf("check prints %s, want %s", got, want)
		}
	})

	t.Run("the service ends well, and its log holds no secret", func(t *testing.T) {
		if code := stop(); code != 0 {
			t.Errorf("serve exits with %d", code)
		}
		log := logs.String()
		if !strings.Contains(log, "path=/v1/orders") {
			t.Errorf("the log has no line for a request: %s", log)
		}
		for _, private := range []string{key, secret, rotated, "siti", "Siti", hook} {
			if strings.Contains(log, private) {
				t.Errorf("the log holds %q", private)
			}
		}
	})
}

// TestDemo does what the demo tells a newcomer to do, and waits for the webhook that it promises.
func TestDemo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	out, code := newLogBuffer(t.Output()), make(chan int)
	go func() {
		defer out.close()
		code <- run(ctx, []string{"demo", "-addr", "127.0.0.1:0"}, streams(strings.NewReader(""), out, out))
	}()

	body := out.await(t, `-d '(\{.*\})'`)
	key := out.await(t, `API key +(so_\S+)`)
	address := out.await(t, `Bearer \S+' http://(127\.0\.0\.1:\d+)/v1/orders\n`)
	s := reach(t, address, key)
	order := s.do(t, "POST", "/v1/orders", body).want(t, 201, "")
	out.await(t, "orderCreated .*"+order.at("order.payment_reference")+".* signature verified")

	list := s.do(t, "GET", "/v1/orders", nil)
	if got, want := list.at("orders.0.id"), order.at("order.id"); got != want {
		t.Errorf("the newest order is %s, want %s", got, want)
	}
	cancel()
	if code := <-code; code != 0 {
		t.Errorf("demo exits with %d", code)
	}
	if printed := out.String(); strings.Contains(printed, "msg=request") {
		t.Errorf("requests are logged among what the demo prints:\n%s", printed)
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

	// Two clients order until the backup is done.
	backedUp := make(chan struct{})
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for {
				select {
				case <-backedUp:
					return
				default:
					s.create(t, "teh", 1)
				}
			}
		})
	}
	out := filepath.Join(t.TempDir(), "backup.db")
	command(t, 0, "backup", "-db", file, out)
	close(backedUp)
	clients.Wait()
	rows := dump(t, out)

	t.Run("it is sound and holds every earlier order", func(t *testing.T) {
		command(t, 0, "check", "-db", out)
		for _, id := range before {
			if !strings.Contains(rows, id) {
				t.Errorf("order %s is not in the backup", id)
			}
		}
	})

	t.Run("it is not overwritten", func(t *testing.T) {
		_, stderr := command(t, 1, "backup", "-db", file, out)
		if !strings.Contains(stderr, "exists") {
			t.Errorf("a second backup says %s", stderr)
		}
		if dump(t, out) != rows {
			t.Error("a second backup changed the first")
		}
	})

	t.Run("that of a file at rest is a copy", func(t *testing.T) {
		stop()
		again := filepath.Join(t.TempDir(), "again.db")
		command(t, 0, "backup", "-db", file, again)
		if dump(t, again) != dump(t, file) {
			t.Error("the backup has other rows")
		}
	})
}

// sqliteFile creates a SQLite file that is not the program's.
func sqliteFile(t *testing.T, path, statements string) {
	t.Helper()
	db := openSQLite(path, "", 1)
	must(t, db.script(statements))
	must(t, db.Close())
}

// TestOperatorsMistakes runs the command lines of testdata/mistakes.txt: each is answered with a clear sentence and
// changes nothing.
func TestOperatorsMistakes(t *testing.T) {
	t.Parallel()
	file, storeID, _ := newStoreFile(t)
	rows := dump(t, file)

	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "text.db"), bytes.Repeat([]byte("This is no database. "), 100), 0o600))
	sqliteFile(t, filepath.Join(dir, "foreign.db"), "PRAGMA user_version = 1; CREATE TABLE notes (x)")
	sqliteFile(t, filepath.Join(dir, "newer.db"), fmt.Sprintf(
		"PRAGMA application_id = %d; PRAGMA user_version = 99; CREATE TABLE y (x)", applicationID))

	must(t, os.WriteFile(filepath.Join(dir, "empty.db"), nil, 0o600))
	sqliteFile(t, filepath.Join(dir, "bare.db"), "PRAGMA user_version = 0; VACUUM")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()

	words := map[string]string{
		"db":       file,
		"store":    storeID,
		"unknown":  "0190f5a0-0000-7000-8000-000000000001",
		"dir":      dir,
		"taken":    taken.Addr().String(),
		"catalogs": "testdata/catalogs",
	}
	for _, c := range readCases(t, "testdata/mistakes.txt") {
		t.Run(c.column(0), func(t *testing.T) {
			code, err := strconv.Atoi(strings.TrimPrefix(c.heading, "exit "))
			must(t, err)
			line := os.Expand(c.column(1), func(name string) string { return words[name] })

			_, stderr := command(t, code, strings.Fields(line)...)
			for _, text := range c.columns[2:] {
				if !strings.Contains(stderr, text) {
					t.Errorf("%q is not in %q", text, stderr)
				}
			}
			if strings.Contains(stderr, "goroutine") {
				t.Errorf("a stack is no clear sentence: %s", stderr)
			}
			if code == 1 && strings.Count(stderr, "\n") > 6 {
				t.Errorf("more than a sentence: %s", stderr)
			}
		})
	}

	if dump(t, file) != rows {
		t.Error("mistakes changed the database")
	}
	if _, err := os.Stat(filepath.Join(dir, "absent.db")); err == nil {
		t.Error("a command created the missing database")
	}
	if size := fileSize(filepath.Join(dir, "empty.db")); size != 0 {
		t.Errorf("the empty file has %d bytes", size)
	}
}

// TestMayBeReached is about the addresses of testdata/public-urls.txt.
func TestMayBeReached(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/public-urls.txt") {
		t.Run(c.column(0), func(t *testing.T) {
			got := mayBeReached(c.column(0))
			if want := c.heading == "reached"; got != want {
				t.Errorf("reached: %t, want %t", got, want)
			}
		})
	}
}

func TestGatewayWarnings(t *testing.T) {
	t.Parallel()
	const (
		local  = "http://localhost:8080"
		plain  = "http://orders.example.id"
		secure = "https://orders.example.id"
	)
	for _, c := range []struct {
		name      string
		use       gatewayUse
		publicURL string
		want      []string // a text of each warning
	}{
		{"Xendit on http", gatewayUse{xendit: true}, plain, []string{"needs https"}},
		{"Xendit on https", gatewayUse{xendit: true}, secure, nil},
		{"a trial out of reach", gatewayUse{}, local, nil},
		{"live out of reach", gatewayUse{live: true}, local, []string{"cannot reach " + local}},
		{"live within reach", gatewayUse{live: true}, plain, nil},
		{"live in test mode", gatewayUse{live: true, testMode: true}, secure, []string{"-test off"}},
		{"all at once", gatewayUse{xendit: true, live: true, testMode: true}, local,
			[]string{"needs https", "cannot reach", "-test off"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.use.warnings(c.publicURL)
			if len(got) != len(c.want) {
				t.Fatalf("%d warnings, want %d: %q", len(got), len(c.want), got)
			}
			for i, text := range c.want {
				if !strings.Contains(got[i], text) {
					t.Errorf("%q is not in %q", text, got[i])
				}
			}
		})
	}
}

func TestDatabaseIsPrivate(t *testing.T) {
	t.Parallel()
	file, _, _ := newStoreFile(t)
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the database's mode is %v, want 0600", info.Mode())
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", "-h", "help", "serve -h", "catalog import -h"} {
		t.Run(line, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := run(t.Context(), strings.Fields(line), streams(nil, &out, &errs)); code != 0 {
				t.Errorf("exit %d, want 0", code)
			}
			if out.Len() == 0 {
				t.Error("no help on stdout")
			}
			if errs.Len() > 0 {
				t.Errorf("stderr: %s", errs.String())
			}
		})
	}
}

// orderUntilKilled sends orders until the service is killed, and calls answered with each 201.
func orderUntilKilled(t *testing.T, s *testServer, answered func(id, order string)) {
	body := mustJSON(s.order("teh", 1))
	for {
		req, err := http.NewRequest("POST", s.url+"/v1/orders", bytes.NewReader(body))
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+s.key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := s.client.Do(req)
		if err != nil {
			return
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return
		}

		if resp.StatusCode != http.StatusCreated {
			t.Errorf("%d %s", resp.StatusCode, answer)
			return
		}
		var r struct {
			Data struct{ Order json.RawMessage }
		}
		if err := json.Unmarshal(answer, &r); err != nil {
			t.Errorf("%v: %s", err, answer)
			return
		}
		answered(filepath.Base(resp.Header.Get("Location")), string(r.Data.Order))
	}
}

// TestKilledUnderLoadLosesNothing kills the service twice while four clients order. Every order that was answered
// with 201 exists afterwards, and every order that exists gets its event.
func TestKilledUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	file, storeID, key := newStoreFile(t)
	hook, webhooks := startReceiver(t)
	added, _ := command(t, 0, "webhook", "add", "-db", file, "-store", storeID, "-url", hook, "-webhook-allow-private")
	secret := fmt.Sprint(added["secret"])

	answered := map[string]string{} // orders by id, as their 201 showed them
	for range 2 {
		const wanted = 150
		address, _, process := startProgram(t, file, "-webhook-allow-private")
		s := reach(t, address, key)
		already := len(answered)
		enough := make(chan struct{})

		var mu sync.Mutex
		var clients sync.WaitGroup
		for range 4 {
			clients.Go(func() {
				orderUntilKilled(t, s, func(id, order string) {
					mu.Lock()
					defer mu.Unlock()
					answered[id] = order
					if len(answered) == already+wanted {
						close(enough)
					}
				})
			})
		}
		<-enough
		process.Process.Kill()
		clients.Wait()
		process.Wait()
	}

	address, _, _ := startProgram(t, file, "-webhook-allow-private", "-public-url", "http://localhost:1")
	s := reach(t, address, key)
	waiting := map[string]bool{} // orders whose event has not come
	for page, more := "/v1/orders?limit=50", true; more; {
		r := s.do(t, "GET", page, nil).want(t, 200, "")
		for _, o := range r.list("orders") {
			id := o["id"].(string)
			waiting[id] = true
			page = "/v1/orders?limit=50&starting_after=" + id
		}
		more = r.at("has_more") == "true"
	}

	reference := regexp.MustCompile(`"payment_reference":"[^"]+"`)
	for id, order := range answered {
		if !waiting[id] {
			t.Errorf("order %s was answered with 201 and is not in the list", id)
		}
		r := s.do(t, "GET", "/v1/orders/"+id, nil).want(t, 200, "")
		if want := reference.FindString(order); !bytes.Contains(r.Body, []byte(want)) {
			t.Errorf("order %s was answered with %s and is now %s", id, want, r.Body)
		}
	}

	bodies := map[string]string{} // of events by id
	for len(waiting) > 0 {
		got := <-webhooks
		attempt, err := strconv.Atoi(got.header.Get("X-Service-Attempt"))
		must(t, err)
		got.signedBy(t, attempt, secret)

		before, again := bodies[got.event.ID]
		if again && before != got.body {
			t.Errorf("two bodies of %s:\n%s\n%s", got.event.ID, before, got.body)
		}
		bodies[got.event.ID] = got.body
		delete(waiting, fmt.Sprint(got.event.Data.Order["id"]))
	}

	if sound, _ := command(t, 0, "check", "-db", file); sound["ok"] != true {
		t.Errorf("check prints %v", sound)
	}
}

// TestSIGTERMFinishesWhatWasBegun stops the service while a handler waits for the rest of its request.
func TestSIGTERMFinishesWhatWasBegun(t *testing.T) {
	t.Parallel()
	file, _, key := newStoreFile(t)
	address, logs, process := startProgram(t, file, "-log-format", "text")
	s := reach(t, address, key)
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()

	// "Expect: 100-continue" is answered when the handler begins to read the body.
	body := mustJSON(s.order("teh", 1))
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", key, len(body))
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	line := make([]byte, len(goOn))
	_, err = io.ReadFull(conn, line)
	must(t, err)
	if string(line) != goOn {
		t.Fatalf("%q, want %q", line, goOn)
	}

	process.Process.Signal(syscall.SIGTERM)
	logs.await(t, `msg="stopping`)
	conn.Write(body)
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 201 ")) {
		t.Errorf("answer while draining: %s %v", answer, err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if !strings.Contains(dump(t, file), `"status":"pending"`) {
		t.Error("the order is not in the database")
	}
}

// TestStopBeforeTheStart stops a service before it has begun to serve.
func TestStopBeforeTheStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := filepath.Join(t.TempDir(), "shop.db")
	logs := newLogBuffer(t.Output())
	defer logs.close()

	code := run(ctx, []string{"serve", "-db", file, "-addr", "127.0.0.1:0"}, streams(strings.NewReader(""), io.Discard, logs))
	if code != 0 {
		t.Errorf("serve exits with %d, want 0", code)
	}
}

// TestStoppingWaitsForNoForeignLock has 200 orders to expire while another program has locked the database. The
// service does not try one after the other before it stops.
func TestStoppingWaitsForNoForeignLock(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	for range 200 {
		s.create(t, "teh", 1)
	}
	s.exec(t, "UPDATE orders SET expires_at = 1")

	must(t, s.db.writer.script("PRAGMA busy_timeout = 20"))
	foreign := openSQLite(s.db.path, "", 1)
	t.Cleanup(func() { foreign.Close() })
	must(t, foreign.script("BEGIN IMMEDIATE"))

	// It stops during the first write.
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, stop)
	s.payments.expireOrders(ctx)
	if n := strings.Count(s.logs.String(), "cannot expire an order"); n > 8 {
		t.Errorf("it tries %d orders, want one group of 8 at most", n)
	}
	must(t, foreign.script("ROLLBACK"))

	// Without the lock, nothing is lost.
	s.payments.expireOrders(t.Context())
	if n := scalar[int](t, s.db, "SELECT count(*) FROM orders WHERE status <> 'expired'"); n > 0 {
		t.Errorf("%d orders are not expired", n)
	}
}

func TestAHurriedDatabaseWaitsForLocksOnlyAMoment(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	timeout := func() int64 {
		ms, err := queryOne(s.db.writer, scanValue[int64], "SELECT timeout FROM pragma_busy_timeout")
		must(t, err)
		return ms
	}
	before := timeout()
	s.db.Hurry()
	s.db.Hurry()
	s.create(t, "teh", 1)
	if after := timeout(); after != busyWhenStopping.Milliseconds() || after >= before {
		t.Errorf("writes wait %d ms, after %d ms before, want %s", after, before, busyWhenStopping)
	}

	s.db.StopWrites()
	err := s.db.Ping(t.Context(), s.storeID, "e1")
	if err != errClosed {
		t.Errorf("a write after the last one: %v, want %v", err, errClosed)
	}
}

// TestQuestionsToGatewaysEndWithTheService asks a gateway that never answers.
func TestQuestionsToGatewaysEndWithTheService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newBubbleServer(t).payments
		limited, end := p.limit(context.Background())
		defer end()
		begun := time.Now()
		time.AfterFunc(time.Second, p.cutOff)
		<-limited.Done()
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it ends after %s, want when the service can wait no longer", took)
		}
	})
}

func TestOneServiceServesAFile(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	unlock, err := lockServing(s.db.path)
	must(t, err)

	_, err = lockServing(s.db.path)
	if err == nil || !strings.Contains(err.Error(), "another storeorder serves") {
		t.Errorf("a second service: %v", err)
	}

	must(t, unlock())
	unlock, err = lockServing(s.db.path)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	must(t, unlock())
}

// TestOneFileHasOneName serves a file, and then the same by a symbolic link.
func TestOneFileHasOneName(t *testing.T) {
	t.Parallel()
	file, _, _ := newStoreFile(t)
	link := filepath.Join(t.TempDir(), "link.db")
	must(t, os.Symlink(file, link))
	startServe(t, file)

	_, stderr := command(t, 1, "serve", "-db", link, "-addr", "127.0.0.1:0")
	if !strings.Contains(stderr, "another storeorder serves "+file) {
		t.Errorf("serve by a symbolic link says %s", stderr)
	}
	if _, err := os.Stat(link + "-serving"); err == nil {
		t.Error("there is a second lock beside the link")
	}
}

// TestLockIsPrivate starts where an earlier version has left a lock that everybody may read, and thus hold.
func TestLockIsPrivate(t *testing.T) {
	t.Parallel()
	file, _, _ := newStoreFile(t)
	must(t, os.WriteFile(file+"-serving", nil, 0o644))
	startServe(t, file)
	info, err := os.Stat(file + "-serving")
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the lock's mode is %v, want 0600", info.Mode())
	}
}

// TestNoNewFileBesideAnOldWAL starts where only the WAL of a database is left.
func TestNoNewFileBesideAnOldWAL(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.db")
	must(t, os.WriteFile(file+"-wal", []byte("what an earlier database has left"), 0o600))
	_, stderr := command(t, 1, "serve", "-db", file, "-addr", "127.0.0.1:0")
	if !strings.Contains(stderr, "shop.db is missing and") {
		t.Errorf("serve says %s", stderr)
	}
	if names := namesIn(t, filepath.Dir(file)); len(names) != 1 {
		t.Errorf("serve leaves %v", names)
	}
}

func TestServeSaysThatItsFileIsNew(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "typo.db")
	_, logs, stop := startServe(t, file)
	logs.await(t, `(the database is new.*database=\S*typo.db)`)
	stop()

	_, logs, _ = startServe(t, file)
	if strings.Contains(logs.String(), "is new") {
		t.Error("the second start says that the file is new")
	}
}

// TestFlagsMayFollowArguments tries the orders of a command line's words.
func TestFlagsMayFollowArguments(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"-db F OUT":       "F OUT",
		"OUT -db F":       "F OUT",
		"OUT -db=F":       "F OUT",
		"-db F -- OUT":    "F OUT",
		"-db F -- -OUT":   "F -OUT",
		"-- -OUT -db":     "takes 1 argument(s) beside its flags, not 2",
		"OUT -db F MORE":  "takes 1 argument(s) beside its flags, not 2",
		"OUT -no-such":    "flag provided but not defined: -no-such",
		"OUT -db":         "flag needs an argument: -db",
		"-db F OUT -help": "flag: help requested",
	} {
		t.Run(line, func(t *testing.T) {
			c := &cli{
				FlagSet:   flag.NewFlagSet("test", flag.ContinueOnError),
				words:     strings.Fields(line),
				arguments: 1,
			}
			c.SetOutput(io.Discard)
			file := c.dbFlag()

			err := c.parse("")
			got := *file + " " + c.Arg(0)
			if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestSystemdUnit asks systemd how much the unit of docs/ lets a service do.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=29", "--no-pager",
		"docs/storeorder.service").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %.3000s", err, out)
	}
}
