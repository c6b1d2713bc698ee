package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMistakes is about the command lines of testdata/mistakes.txt: each fails with a sentence, and changes
// nothing.
func TestMistakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, "teh", 1)
	w.stop()
	w.ruin = true
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	dir := t.TempDir()
	for name, statement := range map[string]string{
		"bare":    "PRAGMA user_version = 0; VACUUM",
		"foreign": "PRAGMA application_id = 5; CREATE TABLE notes (a)",
		"newer":   "PRAGMA user_version = 99",
	} {
		file := w.beside(filepath.Join(dir, name+".db"))
		if name == "newer" {
			w.shell(`cp "$1" ` + file.file)
		}
		file.sql(statement)
	}
	must(t, os.WriteFile(filepath.Join(dir, "empty.db"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "byte.db"), []byte("x"), 0o600))
	must(t, os.Symlink(w.file, filepath.Join(dir, "link.db")))
	storeless := w.beside(filepath.Join(dir, "storeless.db"))
	storeless.command("store add -name A -email a@example.id")
	storeless.sql("PRAGMA foreign_keys = 0; DELETE FROM stores")
	must(t, os.WriteFile(filepath.Join(dir, "text.db"), bytes.Repeat([]byte("text "), 2000), 0o600))
	before, err := os.ReadFile(w.file)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "part.db"), before[:20000], 0o600))
	damaged := slices.Clone(before)
	copy(damaged[10*4096:], bytes.Repeat([]byte("x"), 5*4096))
	must(t, os.WriteFile(filepath.Join(dir, "damaged.db"), damaged, 0o600))

	words := map[string]string{
		"db":       w.file,
		"store":    w.shop.id,
		"email":    w.shop.email,
		"unknown":  "0190f5a0-0000-7000-8000-000000000001",
		"dir":      dir,
		"taken":    taken.Addr().String(),
		"catalogs": "testdata/catalogs",
	}
	for _, c := range readCases(t, "testdata/mistakes.txt") {
		var out, errs bytes.Buffer
		line := os.Expand(c.column(1), func(name string) string { return words[name] })
		env := w.environment(nil, strings.NewReader(""), &out, &errs)
		env.listen = net.Listen
		code := run(t.Context(), strings.Fields(line), env)
		if "exit "+strconv.Itoa(code) != c.heading {
			t.Errorf("%s: exit %d, want %s: %s", c.name, code, c.heading, errs.String())
		}
		for _, text := range c.columns[2:] {
			if !strings.Contains(errs.String(), text) {
				t.Errorf("%s: %q is not in %q", c.name, text, errs.String())
			}
		}
		if strings.Contains(errs.String(), "goroutine") || strings.Count(errs.String(), "\n") > 6 {
			t.Errorf("%s: more than a sentence: %s", c.name, errs.String())
		}
	}
	after, err := os.ReadFile(w.file)
	must(t, err)
	if !bytes.Equal(after, before) {
		t.Error("mistakes have changed the database")
	}
	for name, want := range map[string]bool{"absent.db": false, "x.db": false, "absent": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("there is a file %s", name)
		}
	}
}

// TestNamesInTheDocumentation looks for the names of code that docs/code.md mentions: files, functions, types and
// tests.
func TestNamesInTheDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/code.md")
	must(t, err)
	files, err := filepath.Glob("[a-z]*.*")
	must(t, err)
	isName, word := map[string]bool{}, regexp.MustCompile(`\w+`)
	for _, name := range files {
		source, err := os.ReadFile(name)
		must(t, err)
		for _, found := range word.FindAllString(string(source), -1) {
			isName[found] = true
		}
	}
	names := regexp.MustCompile("`([A-Za-z_]+)`|`([a-z/_-]+\\.[a-z]+)`")
	for _, m := range names.FindAllStringSubmatch(string(text), -1) {
		if m[2] != "" {
			if _, err := os.Stat(m[2]); err != nil {
				t.Error(err)
			}
		} else if !isName[m[1]] {
			t.Errorf("nothing is called %s", m[1])
		}
	}
}

// TestHelp prints what there is.
func TestHelp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, line := range []string{"", "-h", "help", "serve -h", "catalog import -h", "--version"} {
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(line), w.environment(nil, strings.NewReader(""), &out, &errs))
		if code != 0 || out.Len() == 0 || errs.Len() > 0 {
			t.Errorf("%q: exit %d, %s%s", line, code, out.String(), errs.String())
		}
	}
	var out, errs bytes.Buffer
	run(t.Context(), []string{"version"}, w.environment(nil, strings.NewReader(""), &out, &errs))
	if !regexp.MustCompile(`"sqlite":"3\..*"version":"1\.1\.0"`).MatchString(out.String()) {
		t.Errorf("version prints %s%s", out.String(), errs.String())
	}
}

// TestCommandsShowWhatTheAPIShows compares them, also while the service runs.
func TestCommandsShowWhatTheAPIShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.create(t, "teh", 1), w.create(t, "kopi", 2)
	w.decide(t, first, "approve")
	reference := w.get(t, "/v1/orders/"+second).at("order.payment_reference")
	day := time.Now().In(time.FixedZone("WIB", 7*60*60)).Format(time.DateOnly)
	ofDay := "/v1/orders?created_at_min=" + day + "T00:00:00%2B07:00&created_at_max=" + day + "T23:59:59.999%2B07:00"
	for command, path := range map[string]string{
		"order list -from " + day + " -to " + day + " -store " + w.shop.id: ofDay,
		"order list -to 2000-01-01 -store " + w.shop.id:                    "/v1/orders?status=refunded",
		"order list -store " + w.shop.id:                                   "/v1/orders?limit=50",
		"order list -status paid -store " + w.shop.id:                      "/v1/orders?limit=50&status=paid",
		"order show -order " + strings.ToUpper(second):                     "/v1/orders/" + second,
		"order show -order " + strings.ToLower(reference):                  "/v1/orders/" + second,
		"order list -status refunded -store " + strings.ToUpper(w.shop.id): "/v1/orders?status=refunded",
	} {
		if got, want := fmt.Sprint(w.command(command)), fmt.Sprint(w.get(t, path).Data); got != want {
			t.Errorf("%s prints\n%s, want\n%s", command, got, want)
		}
	}
	if stores := fmt.Sprint(w.command("store list")); !strings.Contains(stores, "Kopi Kita") {
		t.Errorf("the stores are %s", stores)
	}
}

// TestSignInLinkSaysWhere opens a store before the service has ever run, and then gives a new password.
func TestSignInLinkSaysWhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct{ file, command, address string }{
		{filepath.Join(t.TempDir(), "new.db"), "store add -email n@example.id -name Baru", "http://localhost:8080"},
		{w.file, "store password -store " + w.shop.id, "https://shop.test"},
	} {
		code, out, errs := w.beside(c.file).run(c.command)
		if code != 0 || !strings.Contains(out, `"sign_in":"`+c.address+"/") ||
			!strings.Contains(out, `"database":"`+c.file+`"`) || !strings.Contains(errs, "at "+c.address) {
			t.Errorf("%s: exit %d, %s%s", c.command, code, out, errs)
		}
	}
}

// TestDemo starts the demo as a newcomer does, and tries what it prints.
func TestDemo(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe, "demo", "-addr", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "STOREORDER_TEST_AS_PROGRAM=1")
	said := &logBuffer{}
	cmd.Stdout, cmd.Stderr = said, said
	must(t, cmd.Start())
	defer cmd.Process.Kill()
	key := said.await(t, `(so_[0-9A-Za-z_-]{43})`)
	enter := said.await(t, `(http://\S+/dashboard/enter/\S+)`)
	said.await(t, `(curl \S)`)
	base, _, _ := strings.Cut(enter, "/dashboard")
	healthy := exec.Command(exe, "health", "-addr", strings.TrimPrefix(base, "http://"))
	healthy.Env = cmd.Env
	if out, err := healthy.CombinedOutput(); err != nil {
		t.Errorf("health says %s", out)
	}
	statuses := map[string]bool{}
	req, _ := http.NewRequest("GET", base+"/v1/orders?limit=50", nil)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	var answer struct {
		Data struct{ Orders []struct{ Status string } }
	}
	must(t, json.NewDecoder(resp.Body).Decode(&answer))
	for _, o := range answer.Data.Orders {
		statuses[o.Status] = true
	}
	if len(answer.Data.Orders) < 8 || len(statuses) != 6 {
		t.Errorf("the demo has %d orders, in %v", len(answer.Data.Orders), statuses)
	}
	// Its shop page has a picture for each of its goods, and a QRIS code to order by.
	shop := said.await(t, `Shop page +(http://\S+)`)
	for path, want := range map[string]string{
		"":                              `src="/pictures/[0-9a-f]{64}/small"`,
		"/checkout?product.kopi-gayo=1": `value="0 qris"`,
	} {
		resp, err := http.Get(shop + path)
		must(t, err)
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if found := regexp.MustCompile(want).FindAll(text, -1); path == "" && len(found) != 5 || len(found) == 0 {
			t.Errorf("%s has %d times %s", shop+path, len(found), want)
		}
	}
	page, err := http.Get(enter)
	must(t, err)
	defer page.Body.Close()
	text, _ := io.ReadAll(page.Body)
	if readPage(string(text)).find("sign-in", "") == nil {
		t.Errorf("there is no button that signs in: %s", text)
	}

	// Each line works as it is pasted.
	listen := regexp.MustCompile(`(?m)^  \S.* (webhook listen .*)$`).FindAllStringSubmatch(said.String(), -1)
	if len(listen) != 2 {
		t.Errorf("it prints %v", listen)
	}
	for _, line := range listen {
		listening := exec.Command(exe, strings.Fields(line[1])...)
		listening.Env = cmd.Env
		heard := &logBuffer{}
		listening.Stderr = heard
		must(t, listening.Start())
		heard.await(t, `(the events of Kopi Kita)`)
		listening.Process.Kill()
	}
	curl := regexp.MustCompile(`(?m)^\s*(curl (?:.*\\\n)*.*)$`)
	for _, line := range curl.FindAllStringSubmatch(said.String(), -1) {
		out, err := exec.Command("sh", "-c", line[1]).Output()
		if err != nil || !bytes.Contains(out, []byte(`"success":true`)) {
			t.Errorf("%s: %v %s", line[1], err, out)
		}
	}
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the demo ends with %v", err)
	}
}

// TestStopping finishes the requests that have begun, and begins no others.
func TestStopping(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.endpoint("hangs.example")
		w.net.inbox.answer = func(webhook) string { return "hang" }
		p := newPlayer(t, w)
		p.play("order kopi 1 snap as A, fault slow create")
		var got response
		var reader sync.WaitGroup
		reader.Go(func() { got, _ = w.send("GET", "/v1/orders/"+p.order, nil) })
		time.Sleep(time.Second)
		begun := time.Now()
		if code := w.stop(); code != 0 {
			t.Errorf("it ends with %d", code)
		}
		reader.Wait()
		if got.at("payment_session.status") != "active" {
			t.Errorf("a request under way is answered %d %s", got.Status, got.Body)
		}
		if took := time.Since(begun); took > 25*time.Second {
			t.Errorf("it takes %s to stop", took)
		}
		if _, err := w.send("GET", "/readyz", nil); err == nil {
			t.Error("it still answers")
		}
		w.start()
		p.play("get | payable 1")
	})
}

// TestStoppingWithManyConnections stops a service that has as many as it accepts, all idle, while more wait.
func TestStoppingWithManyConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for range 1100 { // More than are accepted at once.
			go func() {
				conn, err := w.life.dial()
				if err == nil {
					fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
					io.Copy(io.Discard, conn)
				}
			}()
		}
		time.Sleep(time.Second)
		begun := time.Now()
		w.stop()
		if took := time.Since(begun); took > 25*time.Second {
			t.Errorf("it takes %s to stop", took)
		}
		w.start()
	})
}

// TestStopBeforeTheStart stops a service before it has begun to serve.
func TestStopBeforeTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	env := w.environment(newLife(nil), strings.NewReader(""), io.Discard, w.log)
	if code := run(ctx, w.serveArgs(), env); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	w.start()
}

// TestListen prints and forwards the events of one store as they happen, from the file and over the API. What is
// forwarded is signed by the secret that it says, has the same bytes, and is not sent again.
func TestListen(t *testing.T) {
	for name, args := range map[string]string{
		"file": "-db $file -store $store",
		"API":  "-api https://shop.test/ -key $key",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.create(t, "teh", 1)
				time.Sleep(5 * time.Second)
				ctx, stop := context.WithCancel(context.Background())
				out, errs := &logBuffer{}, &logBuffer{}
				env := w.environment(nil, strings.NewReader(""), out, errs)
				var forwarded []string
				var service atomic.Pointer[http.Client] // another one after the restart
				service.Store(w.http)
				env.transport = roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.URL.Host == "shop.test" {
						return service.Load().Transport.RoundTrip(r)
					}
					body, err := io.ReadAll(r.Body)
					must(t, err)
					secret := regexp.MustCompile(`whsec_\w+`).FindString(errs.String())
					at, signature, _ := strings.Cut(r.Header.Get("X-Service-Signature"), ",v1=")
					second, err := strconv.ParseInt(strings.TrimPrefix(at, "t="), 10, 64)
					if err != nil || second != time.Now().Unix() || signature != sign(secret, second, body) {
						t.Errorf("%s is signed %v", body, r.Header)
					}
					forwarded = append(forwarded, string(body))
					answer := httptest.NewRecorder()
					answer.WriteHeader(http.StatusTeapot)
					return answer.Result(), nil
				})
				line := "webhook listen -forward http://dev.test/hook " + strings.NewReplacer(
					"$file", w.file, "$store", w.shop.id, "$key", w.shop.keys["read"]).Replace(args)
				ended := make(chan int)
				go func() { ended <- run(ctx, strings.Fields(line), env) }()

				time.Sleep(5 * time.Second)
				w.orderOfOther("teh", 1).want(t, 201, "")
				for range 3 {
					w.create(t, "teh", 1)
					time.Sleep(5 * time.Second)
				}
				w.stop()
				time.Sleep(10 * time.Second)
				w.start()
				service.Store(w.http)
				w.create(t, "teh", 1)
				time.Sleep(5 * time.Second)
				stop()
				if code := <-ended; code != 0 {
					t.Errorf("it ends with %d", code)
				}

				synctest.Wait()
				printed := slices.Collect(strings.Lines(out.String()))
				want := w.all("events", "after", w.shop.keys["read"])[1:]
				if len(printed) != len(want) || len(want) != 4 {
					t.Fatalf("printed are %v, want %v", printed, want)
				}
				for i, e := range want {
					body := w.value("SELECT body FROM events WHERE id = ?", textOf(e, "id"))
					if printed[i] != body+"\n" || forwarded[i] != body {
						t.Errorf("printed is %s, forwarded %s, want %s", printed[i], forwarded[i], body)
					}
				}
				if n := strings.Count(errs.String(), "orderCreated: 418"); n != 4 {
					t.Errorf("it says %s", errs.String())
				}
			})
		})
	}

	// What trying again does not change ends it.
	w := newWorld(t)
	for args, want := range map[string]string{
		"-key so_x":                       "belong together",
		"-api https://shop.test":          "belong together",
		"-api https://shop.test -key so_": "webhook listen: https://shop.test answers: ",
	} {
		var errs bytes.Buffer
		env := w.environment(nil, strings.NewReader(""), io.Discard, &errs)
		env.transport = w.http.Transport
		code := run(t.Context(), strings.Fields("webhook listen "+args), env)
		if code == 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: %d %s", args, code, errs.String())
		}
	}
}

// TestKilledUnderLoad kills the program while orders come. All that were acknowledged are there when it runs
// again.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	var mu sync.Mutex
	taken := map[string]string{} // the ids of orders that were acknowledged, by their external ids
	for round := range 3 {
		kill := w.startProcess("")
		var clients sync.WaitGroup
		for n := range 8 {
			clients.Go(func() {
				for i := 0; ; i++ {
					body := w.shop.body("teh", 1)
					body["external_id"] = fmt.Sprint(round, "-", n, "-", i)
					r, err := w.send("POST", "/v1/orders", body)
					if err != nil {
						return
					}
					mu.Lock()
					taken[textOf(body, "external_id")] = r.want(t, 201, "").at("order.id")
					mu.Unlock()
				}
			})
		}
		await(t, "fifty orders are taken", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(taken) > 50*round+50
		})
		kill()
		clients.Wait()
	}

	w.startProcess("")
	for _, o := range w.all("orders", "starting_after", w.shop.keys["read"]) {
		if external := textOf(o, "external_id"); taken[external] == textOf(o, "id") {
			delete(taken, external)
		}
	}
	if len(taken) > 0 {
		t.Errorf("orders were acknowledged and are lost: %v", taken)
	}
}

// TestPublicURLs starts the service with the addresses of testdata/public-urls.txt: it says which no gateway
// can reach.
func TestPublicURLs(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/public-urls.txt") {
		w := newWorld(t, "-public-url", c.column(0))
		if got := !strings.Contains(w.log.String(), "gateways cannot reach"); got != (c.heading == "reached") {
			t.Errorf("%s: reached: %t", c.column(0), got)
		}
		if !strings.Contains(w.log.String(), c.column(1)) {
			t.Errorf("%s: %q is not in %s", c.column(0), c.column(1), w.log.String())
		}
		w.ruin = true
	}
	for _, address := range []string{"http://shop.test:80", "https://shop.test:443"} { // ports that browsers leave out
		w := newWorld(t, "-public-url", address)
		home := address[:strings.LastIndexByte(address, ':')]
		if !strings.Contains(w.log.String(), "dashboard="+home+"/dashboard") {
			t.Errorf("%s: %s", address, w.log.String())
		}
	}
}
