//go:build cgo

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// command runs one of the program's commands and checks its exit code. A successful one prints a JSON object.
// Of the others only "check" prints anything to the standard output.
func command(t *testing.T, want int, args ...string) (out map[string]any, stderr string) {
	t.Helper()
	var stdout, errs bytes.Buffer
	got := run(t.Context(), args, streams(strings.NewReader(""), &stdout, &errs))
	if got != want {
		t.Errorf("%q exits with %d, want %d: %s%s", args, got, want, stdout.String(), errs.String())
	}

	if want != 0 {
		if stdout.Len() > 0 && args[0] != "check" {
			t.Errorf("%q fails and prints %s", args, stdout.String())
		}
		return nil, errs.String()
	}

	dec := json.NewDecoder(&stdout)
	dec.UseNumber()
	err := dec.Decode(&out)
	if err != nil || dec.More() {
		t.Errorf("%q prints something else than one JSON object: %v", args, err)
	}
	return out, errs.String()
}

var keyText = regexp.MustCompile(`^so_[0-9A-Za-z_-]{43}$`)

// newStoreFile creates a database with a store, its catalog and a key, all by commands.
func newStoreFile(t *testing.T) (file, storeID, key string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "shop.db")

	st, _ := command(t, 0, "store", "add", "-db", file, "-name", "Kopi Kita", "-email", "Owner@example.id")
	if got := shape(st); got != "{owner_email:text owner_password:text store_id:uuid}" {
		t.Fatalf("store add prints %s", got)
	}
	if st["owner_email"] != "owner@example.id" {
		t.Fatalf("store add prints the e-mail %s", st["owner_email"])
	}
	storeID = st["store_id"].(string)

	catalog := writeFile(t, "catalog.json", testCatalog)
	imported, _ := command(t, 0, "catalog", "import", "-db", file, "-store", storeID, catalog)
	if got := fmt.Sprint(imported); got != "map[bundles:2 payment_methods:5 products:6]" {
		t.Errorf("catalog import prints %s", got)
	}

	added, _ := command(t, 0, "key", "add", "-db", file, "-store", storeID, "-name", "test")
	if got := shape(added); got != "{key:text key_id:uuid}" {
		t.Fatalf("key add prints %s", got)
	}
	key = added["key"].(string)
	if !keyText.MatchString(key) {
		t.Fatalf("key add prints the key %q", key)
	}
	return file, storeID, key
}

// reach is a client of a service that runs elsewhere.
func reach(t *testing.T, address, key string) *testServer {
	t.Helper()
	s := &testServer{
		url:    "http://" + address,
		key:    key,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		ids:    map[string]string{},
	}
	t.Cleanup(s.client.CloseIdleConnections)

	catalog := s.get(t, "/v1/products")
	for _, p := range append(catalog.list("products"), catalog.list("bundles")...) {
		s.ids[p["slug"].(string)] = p["id"].(string)
	}
	return s
}

var servingLine = `msg=serving address=(\S+)`

// startServe runs `serve` on a free port in this process. stop ends it as SIGTERM would and returns its exit
// code.
func startServe(t *testing.T, file string, args ...string) (addr string, logs *logBuffer, stop func() int) {
	t.Helper()
	args = append([]string{"serve", "-db", file, "-addr", "127.0.0.1:0"}, args...)
	ctx, cancel := context.WithCancel(context.Background())
	logs = newLogBuffer(t.Output())

	code := 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer logs.close()
		code = run(ctx, args, streams(strings.NewReader(""), io.Discard, logs))
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
func startProgram(t *testing.T, file string, args ...string) (addr string, logs *logBuffer, cmd *exec.Cmd) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	logs = newLogBuffer(io.Discard)

	cmd = exec.Command(exe, "serve", "-db", file, "-addr", "127.0.0.1:0")
	cmd.Args = append(cmd.Args, "-rate", "1000000", "-burst", "1000000")
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = append(os.Environ(), "STOREORDER_TEST_AS_PROGRAM=1")
	cmd.Stderr = logs
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		logs.close()
	})
	return logs.await(t, servingLine), logs, cmd
}

// dump writes out everything in a database.
func dump(t *testing.T, file string) string {
	t.Helper()
	db, err := openDB(file, false)
	must(t, err)
	defer db.Close()
	tables, err := queryAll(db.reader, scanValue[string],
		"SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
	must(t, err)

	var all strings.Builder
	for _, table := range tables {
		must(t, db.reader.each("SELECT * FROM "+table, nil, func(r row) error {
			_, err := fmt.Fprintln(&all, table, r)
			return err
		}))
	}
	return all.String()
}

// writeFile creates a file in a directory of the test.
func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
