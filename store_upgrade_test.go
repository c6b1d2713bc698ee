package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// This file is about files of earlier versions.

// oldFile creates a file of version 1 with these rows. It is not served yet.
func oldFile(t *testing.T, rows string) *world {
	t.Helper()
	w := &world{t: t, file: filepath.Join(t.TempDir(), "shop.db"), net: newNetwork(t), log: newLog(t)}
	w.shop = &store{keys: map[string]string{}}
	w.sql(fmt.Sprintf("PRAGMA journal_mode = WAL; PRAGMA application_id = 0x6f726472; PRAGMA user_version = 1; %s; %s",
		readSchema(t, "testdata/schema-1.sql"), rows))
	return w
}

// copies lists what upgrades have written beside the file.
func (w *world) copies() (names []string) {
	names, err := filepath.Glob(w.file + "-before-*")
	must(w.t, err)
	return names
}

// TestUpgrade starts the service with a file of version 1. While it is upgraded, the service says so, and commands and
// a second service are refused. Its copy can be restored.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, upgradeOnce)
}

func upgradeOnce(t *testing.T) {
	w := oldFile(t, "INSERT INTO pictures VALUES ('x', x'00')")
	w.refused("store list", "start \"storeorder serve\" of this version once")
	w.refused("store add -email a@example.id -name A", "start \"storeorder serve\"")
	w.command("backup " + w.file + ".backup")
	if got := textOf(w.command("check"), "schema_version"); got != "1" {
		t.Errorf("before the upgrade it has version %s", got)
	}

	must(t, os.WriteFile(w.file+"-before-2.part", nil, 0o600))
	held, letGo := make(chan struct{}), make(chan struct{})
	w.begin = func(l *life) {
		l.hold = func() {
			select {
			case held <- struct{}{}:
				<-letGo
			case <-letGo: // The later ones do not wait.
			}
		}
	}
	go w.start()
	<-held
	w.do(t, "GET", "/healthz", nil).want(t, 200, "")
	for _, path := range []string{"/v1/orders", "/readyz"} {
		r := w.do(t, "GET", path, nil).want(t, 503, "SERVICE_UNAVAILABLE")
		if !strings.Contains(r.Error.Message, "upgrading") || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s is answered %s", path, r.Body)
		}
	}
	if page, _ := w.send("GET", "/dashboard", nil); page.Status != 503 ||
		!strings.Contains(string(page.Body), "diperbarui") {
		t.Errorf("a page is answered %d %s", page.Status, page.Body)
	}
	w.refused("store list", "start \"storeorder serve\"")
	w.refused("serve -addr 127.0.0.1:0", "another storeorder is serving")
	close(letGo)
	w.do(t, "GET", "/readyz", nil).want(t, 200, "")
	if code := w.stop(); code != 0 {
		t.Errorf("it ends with %d", code)
	}

	copies := w.copies()
	if found := w.command("check"); textOf(found, "schema_version") != fmt.Sprint(latestVersion) || len(copies) != 1 {
		t.Fatalf("after the upgrade: %v and %v", found, copies)
	}
	w.begin = nil
	w.start()
	w.do(t, "GET", "/readyz", nil).want(t, 200, "")
	w.stop()
	if again := w.copies(); len(again) != 1 {
		t.Errorf("another start makes more copies: %v", again)
	}
	w.beside(copies[0]).refused("serve -addr 127.0.0.1:0", "restore")
	w.command("restore " + copies[0])
	if got := textOf(w.command("check"), "schema_version"); got != "1" {
		t.Errorf("the restored copy has version %s", got)
	}
}

// oldShop is a file of version 1 with rows of every table and every state of an order.
func oldShop(t *testing.T, more string) *world {
	t.Helper()
	w := oldFile(t, readSchema(t, "testdata/rows-1.sql")+more)
	for _, empty := range w.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
		if len(w.rows("SELECT 1 FROM "+empty+" LIMIT 1")) == 0 {
			t.Errorf("testdata/rows-1.sql has no row of %s", empty)
		}
	}
	if states := w.rows("SELECT DISTINCT status FROM orders"); len(states) != 6 {
		t.Errorf("testdata/rows-1.sql has only the states %s", states)
	}
	w.shop = &store{
		id:   w.rows("SELECT id FROM stores ORDER BY id")[0],
		ids:  map[string]string{"teh": w.rows("SELECT id FROM products WHERE slug = 'teh' ORDER BY id")[0]},
		keys: map[string]string{"manage": "so_v1v1v1v1v1v1v1v1v1v1v1v1v1v1v1v1v1v1v1v1v1A"},
	}
	w.other = &store{}
	for _, host := range []string{"all", "fails", "mati", "gone"} {
		host += ".example"
		w.net.inbox.secrets[host] = w.rows("SELECT secret FROM endpoints WHERE url LIKE ?", "https://"+host+"/%")
	}
	return w
}

// sleepUntilNow sleeps in a bubble until the time of the file's last row.
func (w *world) sleepUntilNow() {
	latest, err := strconv.ParseInt(w.rows("SELECT max(created_at) FROM events")[0], 10, 64)
	must(w.t, err)
	time.Sleep(time.Until(time.UnixMilli(latest)))
}

// rows reads rows as texts, a column as it is and several as JSON.
func (w *world) rows(query string, args ...any) (texts []string) {
	w.t.Helper()
	db, err := sql.Open("sqlite3", "file:"+w.file+"?mode=ro&_busy_timeout=5000")
	must(w.t, err)
	defer db.Close()
	rows, err := db.Query(query, args...)
	must(w.t, err)
	defer rows.Close()
	for rows.Next() {
		text := ""
		must(w.t, rows.Scan(&text))
		texts = append(texts, text)
	}
	must(w.t, rows.Err())
	return texts
}

// oldRows reads what a file has in the columns of version 1, a text for each row.
func (w *world) oldRows(t *testing.T) (all []string) {
	t.Helper()
	old := oldFile(t, "")
	for _, table := range old.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
		columns := strings.Join(old.rows("SELECT name FROM pragma_table_info(?)", table), ", ")
		for _, column := range old.rows("SELECT name FROM pragma_table_info(?) WHERE type = 'BLOB'", table) {
			columns = regexp.MustCompile(`\b`+column+`\b`).ReplaceAllString(columns, "hex("+column+")")
		}
		for _, row := range w.rows("SELECT json_array(" + columns + ") FROM " + table + " ORDER BY 1") {
			all = append(all, table+" "+row)
		}
	}
	return all
}

// TestUpgradeKeepsEverything upgrades a file with rows of every table, and compares them. All of it is in the API and
// on the pages, the events byte for byte, and the shop goes on.
func TestUpgradeKeepsEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, upgradeKeepsEverything)
}

func upgradeKeepsEverything(t *testing.T) {
	w := oldShop(t, "")
	w.sleepUntilNow()
	before := w.oldRows(t)
	w.begin = func(l *life) { l.dieAt(1, true) } // The service would go on with deliveries and checks.
	w.start()
	w.stop()
	w.file, w.begin = w.life.image, nil
	after := w.oldRows(t)
	for _, row := range without(before, after) {
		t.Errorf("this is lost or changed: %s", row)
	}
	if len(before) != len(after) {
		t.Errorf("there were %d rows, and are %d", len(before), len(after))
	}
	names := w.rows("SELECT n.value FROM payment_sessions s, json_each(s.names) n WHERE n.key IS NOT NULL ORDER BY 1")
	if found := w.rows("SELECT id FROM payment_identifiers ORDER BY 1"); len(names) == 0 ||
		!slices.Equal(found, names) {
		t.Errorf("of the identifiers %v there are %v", names, found)
	}
	for _, bad := range []string{
		"UPDATE orders SET handover = 'by air'",
		"UPDATE orders SET shipped_at = 'today'",
		"UPDATE orders SET source = NULL",
		"UPDATE orders SET status = 'sent'",
		"UPDATE products SET stock = -1",
		"INSERT INTO saved_forms (store_id, token, at) VALUES ('nobody', 'x', 0)",
		"DELETE FROM stores",
	} {
		if err := w.trySQL(bad); err == nil {
			t.Errorf("an upgraded file takes: %s", bad)
		}
	}

	w.start()
	defer w.stop()
	manage := as(w.shop.keys["manage"])
	w.wantOldEvents(t, manage)
	w.wantOldOrders(t, manage)
	again := w.shop.body("teh", 1) // Version 1 was asked for this, and is asked again.
	again["metadata"] = fields{"meja": "7"}
	answer := w.rows("SELECT answer FROM idempotency_keys WHERE key = 'kunci'")[0]
	r := w.post(again, append(manage, "Idempotency-Key", "kunci")...).want(t, 201, "")
	if !strings.Contains(string(r.Body), `{"order":`+answer+"}") {
		t.Errorf("a key of version 1 is answered\n%s, and was\n%s", r.Body, answer)
	}

	access := w.command("store password -store " + w.shop.id)
	w.shop.email, w.shop.password = textOf(access, "owner_email"), textOf(access, "owner_password")
	p := newPlayer(t, w)
	p.people["shop"].key = w.shop.keys["manage"]
	for _, id := range w.rows("SELECT id FROM orders WHERE store_id = ?", w.shop.id) {
		p.play("buyer open /pay/"+id+" | 200", "owner open /dashboard/orders/"+id+" | sees Siti Aminah")
	}
	for _, page := range []string{"", "/catalog", "/catalog/product?slug=kopi", "/catalog/bundle?slug=duo", "/payments",
		"/payments/method?code=bank_fee", "/payments/method?code=snap", "/developers", "/account", "/orders/new"} {
		p.play("owner open /dashboard" + page + " | 200")
	}
	for _, id := range w.rows("SELECT id FROM endpoints WHERE store_id = ?", w.shop.id) {
		p.play("owner open /dashboard/endpoints/" + id + " | 200")
	}
	p.kept["C"] = w.rows("SELECT order_id FROM order_history WHERE note LIKE '%BCA%'")[0]
	p.play("owner approve C | sees Lunas", "shop GET /v1/orders/$C | 200 | sees \"status\":\"paid\"")
}

// wantOldEvents reads all events through the API: each has the bytes that version 1 has stored.
func (w *world) wantOldEvents(t *testing.T, key []string) {
	t.Helper()
	read := ""
	for path := "/v1/events?limit=50"; path != ""; {
		r := w.get(t, path, key...)
		read += string(r.Body)
		events := r.list("events")
		path = ""
		if r.at("has_more") == "true" {
			path = "/v1/events?limit=50&after=" + textOf(events[len(events)-1], "id")
		}
	}
	for _, event := range w.rows("SELECT body FROM events WHERE store_id = ?", w.shop.id) {
		if !strings.Contains(read, event) {
			t.Errorf("an event is not what it was: %s", event)
		}
	}
}

// wantOldOrders reads all orders through the API: each has the fields that version 1 has stored, and more.
func (w *world) wantOldOrders(t *testing.T, key []string) {
	t.Helper()
	listed := map[string]fields{}
	for _, o := range w.all("orders", "starting_after", w.shop.keys["manage"]) {
		listed[textOf(o, "id")] = o
	}
	for _, stored := range w.rows("SELECT json FROM orders WHERE store_id = ?", w.shop.id) {
		want := asFields(readJSONText(stored))
		id := textOf(want, "id")
		for _, got := range []fields{listed[id], asFields(w.get(t, "/v1/orders/"+id, key...).Data["order"])} {
			for name := range want {
				if fmt.Sprint(got[name]) != fmt.Sprint(want[name]) {
					t.Errorf("%s of an order is %v, and was %v", name, got[name], want[name])
				}
			}
		}
	}
}

// moreOrders makes a file large enough to be killed in the middle of its upgrade.
const moreOrders = `
	WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
	INSERT INTO orders
	SELECT format('00dc7000-0000-7000-8000-%012x', i), store_id, status, 'INV-' || i, NULL, provider, method, test,
	       amount, unique_code, created_at, expires_at, paid_at, attention, events, components, book, json
	FROM   n, (SELECT * FROM orders WHERE status = 'expired' LIMIT 1);`

// nothingDue lets a file be served in another century: nothing ends, goes or is tried.
const nothingDue = `
	UPDATE events SET created_at = 4000000000000;
	UPDATE idempotency_keys SET created_at = 4000000000000;
	UPDATE sign_ins SET ends_at = 4000000000000;
	UPDATE api_keys SET revoked_at = 4000000000000 WHERE revoked_at > 0;
	UPDATE orders SET expires_at = 4000000000000;
	UPDATE payment_sessions SET due_at = 0, seen = 0, expires_at = 4000000000000;
	UPDATE deliveries SET next_at = NULL;`

// TestKillsDuringAnUpgrade kills the program 24 times at any moment of an upgrade. Each time the file is of one version
// or the other, with all that was in it, and so is each copy.
func TestKillsDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	original, err := os.ReadFile(oldShop(t, moreOrders+nothingDue).file)
	must(t, err)

	run := &world{t: t, file: filepath.Join(t.TempDir(), "shop.db"), net: newNetwork(t),
		log: &logBuffer{out: t.Output()}}
	begin := func() { must(t, os.WriteFile(run.file, original, 0o600)) }
	begin()
	before := run.oldRows(t)
	began := time.Now()
	run.startProcess("")()
	whole := time.Since(began)

	upgraded := 0
	for i := range 24 {
		if run.rows("SELECT user_version FROM pragma_user_version")[0] == strconv.Itoa(latestVersion) {
			upgraded++
			for _, end := range []string{"", "-wal", "-shm"} {
				os.Remove(run.file + end)
			}
			begin()
		}
		cmd := run.process("")
		must(t, cmd.Start())
		time.Sleep(whole * time.Duration(i) / 24)
		cmd.Process.Kill()
		cmd.Wait()
		run.command("check")
	}
	if upgraded == 0 || upgraded == 24 {
		t.Errorf("%d of 24 upgrades were complete when they were killed", upgraded)
	}

	run.startProcess("")()
	settings := func(row string) bool { return strings.HasPrefix(row, "settings ") } // Serve writes its address there.
	if lost := slices.DeleteFunc(without(before, run.oldRows(t)), settings); len(lost) > 0 {
		t.Errorf("%d rows are lost or changed, such as %s", len(lost), lost[0])
	}
	for _, name := range run.copies() {
		if found := run.beside(name).command("check"); textOf(found, "orders") != strconv.Itoa(len(
			slices.DeleteFunc(slices.Clone(before),
				func(row string) bool { return !strings.HasPrefix(row, "orders ") }))) {
			t.Errorf("the copy %s has %v", name, found)
		}
	}
}

// TestKillAtTheCommitOfAnUpgrade kills the program before the upgrade is on disk, or right after that. The copy stays,
// because nobody can say which it was.
func TestKillAtTheCommitOfAnUpgrade(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := oldShop(t, "")
			w.sleepUntilNow()
			before := w.oldRows(t)
			w.begin = func(l *life) { l.dieAt(1, after) }
			w.start()
			w.stop()
			copies := w.copies()
			w.file = w.life.image
			version := map[bool]string{false: "1", true: strconv.Itoa(latestVersion)}[after]
			if found := w.command("check"); len(copies) != 1 || textOf(found, "schema_version") != version {
				t.Errorf("on disk: %t: %v, copies: %v", after, found, copies)
			}
			if lost := without(before, w.oldRows(t)); len(lost) > 0 {
				t.Errorf("%d rows are lost or changed, such as %s", len(lost), lost[0])
			}
			w.begin = nil
			w.start()
			w.get(t, "/v1/orders", as(w.shop.keys["manage"])...)
			w.stop()
		})
	}
}

// TestFullDiskDuringAnUpgrade has no room for the copy, or for the upgrade itself: the file is what it was, there is no
// copy, and a sentence says how much room it takes.
func TestFullDiskDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := oldShop(t, moreOrders)
		w.sleepUntilNow()
		before, err := os.ReadFile(w.file)
		must(t, err)
		out, err := w.process("ulimit -f 1200; ").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "takes 6 MB") {
			t.Errorf("without room for a copy: %v %s", err, out)
		}
		w.begin = func(l *life) { l.failAt(errFull, false) }
		w.start()
		if code := w.stop(); code != 1 {
			t.Errorf("without room for the upgrade it ends with %d", code)
		}
		if log := w.log.String(); !strings.Contains(log, "nothing was upgraded: ") || strings.Contains(log, "damaged") {
			t.Errorf("without room for the upgrade it says %s", log)
		}
		after, err := os.ReadFile(w.file)
		must(t, err)
		if !bytes.Equal(before, after) || len(w.copies()) > 0 {
			t.Errorf("the file has changed, or there are copies: %v", w.copies())
		}
		w.begin = nil
		w.start()
		w.get(t, "/v1/orders", as(w.shop.keys["manage"])...)
		w.stop()
	})
}

// TestFilesOfOtherVersions are refused, and nothing in them is changed.
func TestFilesOfOtherVersions(t *testing.T) {
	t.Parallel()
	serve := "serve -addr 127.0.0.1:0"
	newer := oldFile(t, "PRAGMA user_version = 99")
	for _, words := range []string{serve, "check", "backup " + newer.file + ".backup", "store list"} {
		newer.refused(words, fmt.Sprintf("of version 99, and this program takes versions up to %d", latestVersion))
	}
	older := oldFile(t, "PRAGMA user_version = 0")
	older.refused(serve, "not a storeorder database")

	grown := oldFile(t, fmt.Sprintf("PRAGMA user_version = %d", latestVersion)) // as if another part had made it
	grown.refused(serve, "before the release")
	broken := oldFile(t, "PRAGMA foreign_keys = 0; INSERT INTO sign_ins VALUES (x'00', 'nobody', 0, 0)")
	broken.refused(serve, "refers to a missing row of stores")
	for _, w := range []*world{newer, older, grown, broken} {
		if copies := w.copies(); len(copies) != 0 {
			t.Errorf("nothing was upgraded, and there are %v", copies)
		}
	}

	litestream := newWorld(t)
	litestream.sql("CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
	litestream.crash()
	litestream.create(t, "teh", 1)
}
