package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// This file is about files of earlier versions.

// oldFile creates a file of version 1 with these rows. It is not served yet.
func oldFile(t *testing.T, rows string) *world {
	t.Helper()
	w := &world{t: t, file: filepath.Join(t.TempDir(), "shop.db"), net: newNetwork(t), log: newLog(t)}
	w.shop = &store{keys: map[string]string{}}
	w.sql(fmt.Sprintf("PRAGMA journal_mode = WAL; PRAGMA application_id = %d; PRAGMA user_version = 1; %s; %s",
		applicationID, readSchema(t, "testdata/schema-1.sql"), rows))
	return w
}

// copies lists what upgrades have written beside the file.
func (w *world) copies() (names []string) {
	names, err := filepath.Glob(w.file + "-before-*")
	must(w.t, err)
	return names
}

// TestUpgrade starts the service with a file of version 1. While it is upgraded, the service says so, and commands and a
// second service are refused. Its copy can be restored.
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

	must(t, os.WriteFile(w.file+"-before-2-killed.part", nil, 0o600))
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
	if page, _ := w.send("GET", "/dashboard", nil); page.Status != 503 || !strings.Contains(string(page.Body), "diperbarui") {
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
	if found := w.command("check"); textOf(found, "schema_version") != fmt.Sprint(schemaVersion) || len(copies) != 1 {
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

// TestFilesOfOtherVersions are refused, and nothing in them is changed.
func TestFilesOfOtherVersions(t *testing.T) {
	t.Parallel()
	serve := "serve -addr 127.0.0.1:0"
	newer := oldFile(t, "PRAGMA user_version = 99")
	for _, words := range []string{serve, "check", "backup " + newer.file + ".backup", "store list"} {
		newer.refused(words, fmt.Sprintf("of version 99, and this program takes versions up to %d", schemaVersion))
	}
	older := oldFile(t, "PRAGMA user_version = 0")
	older.refused(serve, "not a storeorder database")

	grown := oldFile(t, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)) // as if another part had made it
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
