package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-sqlite3"
)

// latestVersion is that of the files that this program writes.
const latestVersion = 2

// published has the hash of schema.sql as each release has published it: a released version changes no more.
var published = map[int]string{1: "56be4350c6f00584"}

// TestUpgradedSchema fails when schema.sql is changed and upgrade.sql is not. A file that upgrade.sql has brought from
// version 1 to this one has the same tables and indexes as a new file.
func TestUpgradedSchema(t *testing.T) {
	t.Parallel()
	for version, hash := range published {
		file := fmt.Sprintf("testdata/schema-%d.sql", version)
		if version == latestVersion {
			file = "schema.sql"
		}
		sum := sha256.Sum256([]byte(readSchema(t, file)))
		if got := hex.EncodeToString(sum[:8]); got != hash {
			t.Errorf("%s has the hash %s, and version %d was published with %s: a change needs another version, "+
				"with a part of its own in upgrade.sql", file, got, version, hash)
		}
	}

	old := oldFile(t, "")
	old.start()
	old.stop()
	fresh, upgraded := definitions(newWorld(t)), definitions(old)
	for _, missing := range without(fresh, upgraded) {
		t.Errorf("schema.sql was changed, and upgrade.sql does not make this of a file of version 1: add it there\n%s",
			missing)
	}
	for _, surplus := range without(upgraded, fresh) {
		t.Errorf("upgrade.sql makes this, and schema.sql does not have it:\n%s", surplus)
	}
}

func readSchema(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// definitions lists what a file has: its version, each table's columns and constraints, as their text and as SQLite
// reads them, and the indexes.
func definitions(w *world) (all []string) {
	for _, row := range w.rows(`
		SELECT 'version: ' || user_version FROM pragma_user_version
		UNION ALL
		SELECT type || ' ' || name || ': ' || sql FROM sqlite_schema WHERE sql IS NOT NULL
		UNION ALL
		SELECT 'column ' || m.name || '.' || c.name || ': ' ||
		       concat_ws(' ', c.type, c."notnull", c.dflt_value, c.pk, c.hidden)
		FROM   sqlite_schema m JOIN pragma_table_xinfo(m.name) c WHERE m.type = 'table'
		UNION ALL
		SELECT 'index ' || i.name || ' column ' || c.seqno || ': ' ||
		       concat_ws(' ', i."unique", i.partial, c.name, c.desc, c.coll, c.key)
		FROM   sqlite_schema m JOIN pragma_index_list(m.name) i JOIN pragma_index_xinfo(i.name) c WHERE m.type = 'table'
		UNION ALL
		SELECT 'reference ' || m.name || '.' || r."from" || ': ' || concat_ws(' ', r."table", r."to", r.on_delete)
		FROM   sqlite_schema m JOIN pragma_foreign_key_list(m.name) r WHERE m.type = 'table'`) {
		what, text, _ := strings.Cut(row, ": ")
		for _, part := range definitionParts(text) {
			all = append(all, what+": "+part)
		}
	}
	return all
}

var sqlComments = regexp.MustCompile(`--.*`)

// definitionParts splits the text of a definition at the commas that stand within its outer parentheses only. Comments
// and spaces are left out: ADD COLUMN appends a column's text after the last.
func definitionParts(text string) (parts []string) {
	text = strings.ReplaceAll(strings.Join(strings.Fields(sqlComments.ReplaceAllString(text, "")), " "), " )", ")")
	depth, from := 0, 0
	cut := func(to int) {
		parts = append(parts, strings.TrimSpace(text[from:to]))
		from = to + 1
	}
	for i, c := range text {
		switch {
		case c == '(':
			if depth++; depth == 1 {
				cut(i)
			}
		case c == ')':
			if depth--; depth == 0 {
				cut(i)
			}
		case c == ',' && depth == 1:
			cut(i)
		}
	}
	return append(parts, strings.TrimSpace(text[from:]))
}

// without lists what is in all and not in others.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}

// TestNewFile is of this version, and nobody else may read it.
func TestNewFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := textOf(w.command("check"), "schema_version"); got != strconv.Itoa(latestVersion) {
		t.Errorf("the schema has the version %s, want %d", got, latestVersion)
	}
	info, err := os.Stat(w.file)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("everybody may read the database: %v", info.Mode())
	}
}

// TestCrashAtCommit lets the program die at each COMMIT on an order's way, before or after it is on disk.
// What it has answered is there afterwards, and whoever got no answer asks again. In the end there is one
// order, with its stock, and its payment has counted once.
func TestCrashAtCommit(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("commit %d, on disk: %t", n, after), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) { payWithCrash(t, w, n, after) })
			})
		}
	}
}

func payWithCrash(t *testing.T, w *world, n int, after bool) {
	deaths := 0
	restart := func() (died bool) {
		if synctest.Wait(); w.life.isDead() {
			w.crash()
			deaths++
			return true
		}
		return false
	}
	insist := func(method, path string, body any, headers ...string) response {
		t.Helper()
		r, err := w.send(method, path, body, headers...)
		if died := restart(); died && (err != nil || r.Status >= 300) {
			r, err = w.send(method, path, body, headers...)
		}
		must(t, err)
		if r.Status >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, r.Status, r.Body)
		}
		return r
	}
	w.sleep(0)
	w.life.dieAt(n, after)

	p := newPlayer(t, w)
	body := w.shop.body("kopi", 2)
	body["payment_method"] = "snap"
	p.order = insist("POST", "/v1/orders", body, "Idempotency-Key", "k").at("order.id")
	insist("GET", "/v1/orders/"+p.order, nil)
	if len(w.net.midtrans.pages(p.order, false)) == 0 {
		w.sleep(30 * time.Second)
		insist("GET", "/v1/orders/"+p.order, nil)
	}
	midtrans, page := w.net.pageOf(p.order, "")
	midtrans.say(p.order, page, "settlement")
	path, _, message := midtrans.message(p.order, page, "settlement")
	insist("POST", path+w.shop.id, message)
	for range 4 {
		w.sleep(time.Minute)
		restart()
	}
	if deaths != 1 && n <= 4 {
		t.Errorf("the program has died %d times", deaths)
	}
	w.life.dieAt(0, false)
	p.play("= paid by 1, Paid, stock 8")
}

var errFull = sqlite3.Error{Code: sqlite3.ErrFull}

// TestDiskThatIsFullInBetween lets the program write no more than some hundred KB. What it took is there.
func TestDiskThatIsFullInBetween(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	kill := w.startProcess("ulimit -f 1200; ")
	var taken []string
	refused := 0
	for i := 0; i < 3000 && refused < 3; i++ {
		body := w.shop.body("teh", 1)
		body["note"] = strings.Repeat("x", 1000)
		r := w.post(body)
		if r.Status == 201 {
			taken = append(taken, r.at("order.id"))
		} else {
			r.want(t, 503, "SERVICE_UNAVAILABLE")
			refused++
		}
	}
	if refused == 0 || len(taken) == 0 {
		t.Errorf("%d orders are refused and %d taken", refused, len(taken))
	}
	kill()
	w.start()
	for _, o := range w.all("orders", "starting_after", w.shop.keys["read"]) {
		taken = slices.DeleteFunc(taken, func(id string) bool { return id == textOf(o, "id") })
	}
	if len(taken) > 0 {
		t.Errorf("%d orders were acknowledged and are lost", len(taken))
	}
}

// TestFailingDisk has COMMIT fail in a way that says nothing of what is on disk. From then on nothing is written,
// until the program is started again: whoever asks again has one order.
func TestFailingDisk(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprint("on disk: ", written), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				post := func() response {
					return w.post(w.shop.body("kopi", 1), "Idempotency-Key", "k")
				}
				w.create(t, "teh", 1)
				w.sleep(0)
				w.life.failAt(sqlite3.Error{Code: sqlite3.ErrIoErr}, written)
				r := post().want(t, 503, "SERVICE_UNAVAILABLE")
				if !strings.Contains(r.Error.Message, "Idempotency-Key") || r.Header.Get("Retry-After") == "" {
					t.Errorf("who may have an order reads %s", r.Body)
				}
				w.life.failAt(nil, false)
				w.wantNoWrites(t)
				w.get(t, "/v1/store")

				w.ruin = true
				w.crash()
				w.ruin = false
				post().want(t, 201, "")
				if n := len(w.get(t, "/v1/orders").list("orders")); n != 2 {
					t.Errorf("there are %d orders, want 2", n)
				}
			})
		})
	}
}

// wantNoWrites reports a service that takes orders, or that is ready to.
func (w *world) wantNoWrites(t *testing.T) {
	t.Helper()
	for range 2 {
		w.post(w.shop.body("teh", 1)).want(t, 503, "SERVICE_UNAVAILABLE")
	}
	w.do(t, "GET", "/readyz", nil).want(t, 503, "SERVICE_UNAVAILABLE")
}

// shell runs a command of another program. A file that is served is never opened here: closing it would end the
// locks of this process.
func (w *world) shell(command string) {
	w.t.Helper()
	out, err := exec.Command("sh", "-c", command, "sh", w.file, w.t.TempDir()).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s: %v %s", command, err, out)
	}
}

// TestLostFile does to the file of a running service what people do by mistake. No order goes where nobody
// will find it.
func TestLostFile(t *testing.T) {
	t.Parallel()
	for _, mistake := range []string{
		`rm "$1"`,
		`mv "$1" "$1.old"`,
		`rm "$1-wal"`,
		`rm "$1-shm"`,
		`cp "$1" "$1.new" && mv "$1.new" "$1"`,
		`cp "$1.backup" "$1"`,
		`cp "$1.backup" "$1.new" && mv "$1.new" "$1"`,
		`printf '\377' | dd of="$1.backup" bs=1 seek=24 conv=notrunc && cp "$1.backup" "$1"`, // of a busier file
	} {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.create(t, "teh", 1)
			w.command("backup " + w.file + ".backup")
			w.create(t, "teh", 1)
			w.sql("PRAGMA wal_checkpoint(PASSIVE)")
			w.create(t, "teh", 1)
			w.ruin = true
			w.shell(mistake)
			w.wantNoWrites(t)
		})
	}
}

// TestFileLostDuringACommit takes the file away while an order is being committed: nobody knows where it is then, and
// the client is told so.
func TestFileLostDuringACommit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create(t, "teh", 1)
		w.sleep(0)
		w.ruin = true
		w.life.amid = func() { must(t, os.Rename(w.file, w.file+".old")) }
		r := w.post(w.shop.body("teh", 1)).want(t, 503, "SERVICE_UNAVAILABLE")
		if !strings.Contains(r.Error.Message, "Idempotency-Key") {
			t.Errorf("who may have an order reads %s", r.Body)
		}
		w.wantNoWrites(t)
	})
}

// TestDamagedWhileServed damages the file of a running service, as a disk does. Once that shows, no order is taken, the
// service is not ready, and the log says what to do.
func TestDamagedWhileServed(t *testing.T) {
	for _, damage := range []string{
		`: > "$1-wal"`,
		`yes | dd of="$1" bs=4096 seek=5 count=40 conv=notrunc 2>&1`,
		`truncate -s 20480 "$1"`,
	} {
		damaged := func(t *testing.T, w *world) {
			w.ruin = true
			w.create(t, "teh", 1)
			w.sleep(0)                            // Nothing else is written now.
			if !strings.Contains(damage, "wal") { // The service has to read again what another program has changed.
				w.sql("UPDATE settings SET port = port; PRAGMA wal_checkpoint(PASSIVE)")
			}
			w.shell(damage)
			w.send("GET", "/v1/products", nil)
			w.wantNoWrites(t)
			if log := w.log.String(); strings.Count(log, "no orders are taken") != 1 ||
				!strings.Contains(log, "docs/operation.md") {
				t.Errorf("the log does not say what to do: %s", log)
			}
			w.sleep(time.Hour) // The hourly purge fails.
			for line := range strings.Lines(w.log.String()) {
				if strings.Count(line, "docs/operation.md") > 1 {
					t.Errorf("a line says it more than once: %s", line)
				}
			}
		}
		t.Run(damage, func(t *testing.T) { inBubble(t, damaged) })
	}
}

// TestCheckpointsThatFail has a disk on which only the -wal can be written. Orders are taken and the log tells of it;
// after five minutes the service is not ready, until it works again.
func TestCheckpointsThatFail(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.life.stuck = sqlite3.Error{Code: sqlite3.ErrIoErr}
		for _, c := range []struct {
			minutes time.Duration
			stuck   error
			status  int
		}{
			{2, w.life.stuck, 200}, {6, w.life.stuck, 503}, {2, nil, 200},
			{2, sqlite3.Error{Code: sqlite3.ErrBusy}, 200},
		} {
			w.life.mu.Lock()
			w.life.stuck = c.stuck
			w.life.mu.Unlock()
			w.sleep(c.minutes * time.Minute)
			w.create(t, "teh", 1)
			w.do(t, "GET", "/readyz", nil).want(t, c.status, map[int]string{503: "SERVICE_UNAVAILABLE"}[c.status])
		}
		if !strings.Contains(w.log.String(), "only its -wal") {
			t.Error("the log does not tell of it")
		}
	})
}

// TestBackupThatFails leaves nothing where it had no room.
func TestBackupThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exe, err := os.Executable()
	must(t, err)
	copied := filepath.Join(t.TempDir(), "copy.db")
	backup := exec.Command("sh", "-c", `ulimit -f 100; exec "$0" backup -db "$1" "$2"`, exe, w.file, copied)
	backup.Env = append(os.Environ(), "STOREORDER_TEST_AS_PROGRAM=1")
	if out, err := backup.CombinedOutput(); err == nil || !strings.Contains(string(out), "cannot copy") {
		t.Errorf("a backup without room says %s", out)
	}
	left, err := filepath.Glob(copied + "*")
	must(t, err)
	if left != nil {
		t.Errorf("a backup that failed leaves %v", left)
	}
}

// TestWhatOthersMayDo does to the file of a running service what is allowed.
func TestWhatOthersMayDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, allowed := range []string{"VACUUM", "REINDEX", "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"} {
		w.create(t, "teh", 1)
		w.sql(allowed)
		w.create(t, "teh", 1)
		w.do(t, "GET", "/readyz", nil).want(t, 200, "")
	}
}

// TestClockAtAStart starts with a clock that is days ahead: expiry waits for five minutes, the purge for a day, and
// payments are checked.
func TestClockAtAStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.ruin = true // The events are purged.
		p := newPlayer(t, w)
		p.play("order kopi 2 bank_transfer as A, order teh 1 snap as B, get, settlement lost")
		w.ahead.Store(int64(8 * 24 * time.Hour))
		w.crash()
		p.play("+4m, get A | sees pending", "get B | sees paid")
		p.play("+2m, get A | sees expired")
		if log := w.log.String(); !strings.Contains(log, "newest event") || !strings.Contains(log, "age=192h") {
			t.Error("the log does not say how old the newest event is")
		}
		first := func() string {
			return w.get(t, "/v1/events?limit=1").at("events.0.event") + w.get(t, "/v1/events").at("events.1.event")
		}
		w.sleep(22 * time.Hour)
		if got := first(); got != "orderCreatedorderCreated" {
			t.Errorf("within a day events are purged: the first are %s", got)
		}
		w.sleep(3 * time.Hour)
		if got := first(); got == "orderCreatedorderCreated" {
			t.Errorf("after a day nothing is purged")
		}
		w.crash()
		w.create(t, "teh", 1)
		if n := strings.Count(w.log.String(), "newest event"); n != 2 {
			t.Errorf("%d starts were warned of, want 2", n)
		}
	}, "-keep-events", "168h")
}

// TestRetention keeps events for a week, idempotency keys for two days, and orders for good.
func TestRetention(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.ruin = true // the events have gaps
		// age makes a table's rows d and two minutes older until the next purge, for which it waits an hour.
		age := func(table string, d time.Duration) {
			w.sql("UPDATE "+table+" SET created_at = created_at - ?", (d - 58*time.Minute).Milliseconds())
			w.sleep(time.Hour)
		}
		body := w.shop.body("teh", 1)
		post := func() string {
			return w.post(body, "Idempotency-Key", "k").want(t, 201, "").at("order.id")
		}
		first := post()
		age("idempotency_keys", 47*time.Hour)
		if post() != first {
			t.Error("a key is forgotten after 47 hours")
		}
		age("idempotency_keys", time.Hour)
		if post() == first {
			t.Error("a key is known after 48 hours")
		}

		after := w.get(t, "/v1/events").at("events.0.id")
		age("events", 165*time.Hour) // The first order's event is two hours old already.
		newest := w.create(t, "teh", 1)
		if n := len(w.get(t, "/v1/events").list("events")); n != 3 {
			t.Errorf("%d events are left after 167 hours, want 3", n)
		}
		age("events", 3*time.Hour) // The second order is two hours younger than the first.
		w.get(t, "/v1/events").has(t, "events.0.data.order.id "+newest, "events.1 <nil>")
		w.do(t, "GET", "/v1/events?after="+after, nil).want(t, 400, "INVALID_REQUEST")
		age("events", 200*time.Hour)
		w.get(t, "/v1/events").has(t, "events []")
		w.get(t, "/v1/orders/"+first).has(t, "order.id "+first)
		w.decide(t, first, "approve")
		w.get(t, "/v1/events").has(t, "events.0.sequence 2", "events.0.event orderPaid")
	}, "-keep-events", "168h")
}

// TestEventsAreKeptFor90Days unless the operator wants it otherwise.
func TestEventsAreKeptFor90Days(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.ruin = true // the orders have lost their events
		w.create(t, "teh", 1)
		for _, days := range []int{89, 91} {
			w.sql("UPDATE events SET created_at = ?", time.Now().AddDate(0, 0, -days).UnixMilli())
			w.sleep(time.Hour)
			if n := len(w.get(t, "/v1/events").list("events")); (n == 1) != (days == 89) {
				t.Errorf("%d events of %d days ago are left", n, days)
			}
		}
	})
}

// TestLargeLog has another program write much: the write-ahead log does not stay that large.
func TestLargeLog(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		size := func() int64 {
			info, err := os.Stat(w.file + "-wal")
			must(t, err)
			return info.Size()
		}
		w.sql("INSERT INTO pictures (hash, jpeg) VALUES ('x', zeroblob(32 << 20))")
		before := size()
		w.create(t, "teh", 1) // Then all of the log is in the file,
		w.create(t, "teh", 1) // and this begins it anew.
		if after := size(); before < 32<<20 || after > 8<<20 {
			t.Errorf("the log has %d bytes, and then %d", before, after)
		}
	})
}

// TestRestoreDrill makes a backup of a shop that is killed later, so that its write-ahead log is left.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	backup := filepath.Join(t.TempDir(), "backup.db")
	kill := w.startProcess("")
	for range 3 {
		w.create(t, "teh", 1)
	}
	if printed := w.command("backup " + backup); textOf(printed, "database") != w.file {
		t.Errorf("backup prints %v", printed)
	}
	for range 2 {
		w.create(t, "teh", 1)
	}
	w.refused("backup "+backup, "exists")
	w.refused("restore "+backup, "stop it first")
	kill()

	w.shell(`head -c 20000 "` + backup + `" > "$1.half"`)
	w.refused("restore "+w.file+".half", "damaged")
	copied := w.beside(backup)
	copied.refused("restore "+backup, "is the database itself")
	copied.refused("serve -addr 127.0.0.1:0", "restore")

	restored := w.command("restore " + backup)
	aside := textOf(restored, "set_aside")
	if textOf(restored, "orders") != "3" || textOf(restored, "database") != w.file {
		t.Errorf("restore prints %v", restored)
	}
	for file, want := range map[string]string{w.file: "3", aside: "5"} {
		copied.file = file
		if found := copied.command("check"); textOf(found, "orders") != want {
			t.Errorf("%s has %v, want %s orders", file, found, want)
		}
	}
	copied.file = filepath.Join(t.TempDir(), "fresh.db")
	if again := copied.command("restore " + backup); textOf(again, "set_aside") != "" {
		t.Errorf("where nothing was, %v is set aside", again)
	}
	w.start()
	w.create(t, "teh", 1)
}

// TestOwnersOfFiles has root run commands in the folder of another user: what it creates there is that user's.
func TestOwnersOfFiles(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const service = 65532
	w := newWorld(t)
	backup := filepath.Join(t.TempDir(), "backup.db")
	w.command("backup " + backup)

	folder := t.TempDir()
	must(t, os.Chown(folder, service, service))
	moved := w.beside(filepath.Join(folder, "shop.db"))
	moved.command("restore " + backup)
	must(t, os.Chown(moved.file, service, service+1))
	moved.command("restore " + backup)
	added := w.beside(filepath.Join(folder, "new.db"))
	added.command("store add -name A -email a@example.id")
	old := oldFile(t, "")
	old.file, moved.file = filepath.Join(folder, "old.db"), old.file
	must(t, os.Rename(moved.file, old.file))
	must(t, os.Chown(old.file, service, service))
	old.start()
	old.stop()

	files, err := os.ReadDir(folder)
	must(t, err)
	if len(files) < 6 {
		t.Errorf("there are only %v", files)
	}
	for _, file := range files {
		info, err := file.Info()
		must(t, err)
		owner := info.Sys().(*syscall.Stat_t)
		if owner.Uid != service || file.Name() == "shop.db" && owner.Gid != service+1 {
			t.Errorf("%s belongs to %d:%d", file.Name(), owner.Uid, owner.Gid)
		}
	}
}

// TestFileThatMayNotBeWritten starts a service that may not write its file, or not beside it. If root runs this, it is
// root without its right to write everything.
func TestFileThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	asOwner := ""
	if os.Geteuid() == 0 {
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("root may write everything")
		}
		asOwner = `exec setpriv --bounding-set -dac_override,-dac_read_search "$0" "$@"; `
	}
	w := newWorld(t)
	w.stop()
	w.ruin = true
	for _, c := range []struct {
		name string
		mode os.FileMode
	}{{w.file, 0o400}, {w.file + "-serving", 0o400}, {w.file, 0}, {filepath.Dir(w.file), 0o500},
		{filepath.Dir(w.file), 0}} {
		before, err := os.Stat(c.name)
		must(t, err)
		must(t, os.Chmod(c.name, c.mode))
		out, err := w.process(asOwner).CombinedOutput()
		if err == nil || !strings.Contains(string(out), w.file+" cannot be used by this user: run this as") {
			t.Errorf("%s with the mode %o: %v %s", c.name, c.mode, err, out)
		}
		must(t, os.Chmod(c.name, before.Mode()))
	}
}

// TestUnusable says what to do for each reason why SQLite cannot use a file.
func TestUnusable(t *testing.T) {
	t.Parallel()
	for code, want := range map[sqlite3.ErrNo]string{
		sqlite3.ErrCorrupt: "shop.db is damaged: restore a backup (",
		sqlite3.ErrNotADB:  "shop.db is damaged or not a database: restore a backup, or name another file (",
		sqlite3.ErrFull:    "shop.db is on a full disk: make space (",
		sqlite3.ErrIoErr: "shop.db is on a disk that is full or fails: make space, or look for disk errors " +
			"(dmesg) (",
		sqlite3.ErrBusy:     "shop.db is in use by another program: stop that first (",
		sqlite3.ErrReadonly: "shop.db cannot be used by this user: ",
		sqlite3.ErrCantOpen: "shop.db cannot be used by this user: ",
	} {
		if got := unusable("shop.db", sqlite3.Error{Code: code}).Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s", code, got)
		}
	}
}

// TestNamesThatSQLiteReads uses names that are addresses for SQLite, or have escapes.
func TestNamesThatSQLiteReads(t *testing.T) {
	w := newWorld(t)
	w.create(t, "teh", 1)
	t.Chdir(t.TempDir())
	w.command("backup file:100%41?#.db")
	copied := w.beside("file:shop.db")
	copied.command("restore file:100%41?#.db")
	copied.command("backup 100%41")
	for _, file := range []string{"file:shop.db", "./100%41"} {
		copied.file = file
		if textOf(copied.command("check"), "orders") != "1" {
			t.Errorf("%s has no order", file)
		}
	}
}

// beside is for commands on another file.
func (w *world) beside(file string) *world { return &world{t: w.t, file: file, net: w.net} }

// refused runs a command that has to fail with a sentence that has a text in it.
func (w *world) refused(words, text string) {
	w.t.Helper()
	code, out, errs := w.run(words)
	if code == 0 || !strings.Contains(errs, text) {
		w.t.Errorf("%s: exit %d, %s%s", words, code, out, errs)
	}
}

// TestCheck looks at a file that nobody may write to, and finds what is wrong with one.
func TestCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, "teh", 1)
	w.stop()
	w.ruin = true
	must(t, os.Chmod(w.file, 0o400))
	before, err := os.ReadFile(w.file)
	must(t, err)
	found := w.command("check")
	for _, name := range []string{"ok true", "stores 2", "orders 1", "waiting_deliveries 0"} {
		field, want, _ := strings.Cut(name, " ")
		if got := textOf(found, field); got != want {
			t.Errorf("check prints %s %s, want %s", field, got, want)
		}
	}
	after, err := os.ReadFile(w.file)
	must(t, err)
	_, wal := os.Stat(w.file + "-wal")
	if string(after) != string(before) || !errors.Is(wal, os.ErrNotExist) {
		t.Error("check has changed the file, or left others")
	}

	must(t, os.Chmod(w.file, 0o600))
	w.sql("PRAGMA foreign_keys = 0; UPDATE orders SET store_id = 'nobody'")
	if code, out, _ := w.run("check"); code != 1 || !strings.Contains(out, `"ok":false`) {
		t.Errorf("an order of no store: exit %d, %s", code, out)
	}
	must(t, os.WriteFile(w.file, before[:len(before)-3*4096], 0o600))
	w.refused("check", "backup")
}

// TestOneServiceServesAFile starts another one, also by another name of the file.
func TestOneServiceServesAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	again := w.beside(filepath.Join(t.TempDir(), "link.db"))
	must(t, os.Symlink(w.file, again.file))
	for _, second := range []*world{w, again} {
		second.refused("serve -addr 127.0.0.1:0", "another storeorder is serving")
	}
	hard := w.beside(filepath.Join(t.TempDir(), "hard.db"))
	must(t, os.Link(w.file, hard.file))
	hard.refused("serve -addr 127.0.0.1:0", "another name")

	// Nor does it begin a new file where the rest of an old one lies.
	again.file = filepath.Join(t.TempDir(), "shop.db")
	must(t, os.WriteFile(again.file+"-wal", []byte("the rest"), 0o600))
	again.refused("serve -addr 127.0.0.1:0", "shop.db")
	if _, err := os.Stat(again.file); err == nil {
		t.Error("there is a new file beside an old write-ahead log")
	}
	must(t, os.WriteFile(again.file, nil, 0o600)) // Nor does any command begin with an emptied one.
	for _, words := range []string{"serve -addr 127.0.0.1:0", "check", "store list",
		"store add -name X -email x@example.id"} {
		again.refused(words, "is empty")
	}
	if rest, err := os.ReadFile(again.file + "-wal"); string(rest) != "the rest" {
		t.Errorf("the write-ahead log beside an emptied file is %q, %v", rest, err)
	}
	again.file = filepath.Join(t.TempDir(), "shop.db")
	must(t, os.WriteFile(again.file+"-restoring", []byte("the copy"), 0o600))
	again.refused("serve -addr 127.0.0.1:0", "shop.db")
}

// TestFileNewerThanItsLog starts where somebody may have copied a file beside the log of another: it is checked first.
func TestFileNewerThanItsLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	kill := w.startProcess("")
	id := w.create(t, "teh", 1)
	kill()
	later := time.Now().Add(time.Hour)
	must(t, os.Chtimes(w.file, later, later))
	w.start()
	w.get(t, "/v1/orders/"+id).has(t, "order.status pending")
	if !strings.Contains(w.log.String(), "checked first") {
		t.Error("nobody is told that the file is checked")
	}

	w.stop()
	kill = w.startProcess("")
	w.create(t, "teh", 1)
	kill()
	w.shell(`yes | dd of="$1" bs=4096 seek=5 count=20 conv=notrunc 2>&1`)
	must(t, os.Chtimes(w.file, later, later))
	w.refused("serve -addr 127.0.0.1:0", "damaged")
	w.ruin = true
}

// TestRowsByName: a column without a field, a field without a column and a name that is there twice are errors that say
// which, so that no value is read into another field.
func TestRowsByName(t *testing.T) {
	type part struct{ Code string }
	type row struct {
		StoreID string
		Skipped int `sql:"-"`
		Note    part
	}
	for columns, want := range map[string]string{
		"note store_id":          "<nil>",
		"store_id note x":        "the column x of a query has no field in main.row",
		"store_id":               "the field Note of main.row has no column note in a query",
		"store_id note store_id": "a query for main.row has the column store_id twice",
	} {
		_, err := matchColumns(reflect.TypeFor[row](), strings.Fields(columns))
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s: %s, want %s", columns, got, want)
		}
	}
}
