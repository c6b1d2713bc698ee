//go:build cgo && linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mattn/go-sqlite3"
)

// failSyncs has every later sync of a database's WAL fail, as on a disk that is breaking: the file that the
// writing connection has open becomes a device that takes everything and syncs nothing.
func failSyncs(t *testing.T, db *DB) {
	t.Helper()
	must(t, db.writer.script("PRAGMA wal_checkpoint(TRUNCATE)")) // Nothing can be read back from that device.
	broken, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	must(t, err)
	defer broken.Close()
	opened, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)

	replaced := 0
	for _, link := range opened {
		name, err := os.Readlink(link)
		if err != nil || name != db.path+"-wal" {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + filepath.Base(link))
		must(t, err)
		var position, flags int
		_, err = fmt.Sscanf(string(info), "pos: %d\nflags: %o", &position, &flags)
		must(t, err)
		if flags&syscall.O_ACCMODE != syscall.O_RDWR { // a reader's
			continue
		}

		fd, err := strconv.Atoi(filepath.Base(link))
		must(t, err)
		must(t, syscall.Dup3(int(broken.Fd()), fd, syscall.O_CLOEXEC))
		replaced++
	}
	if replaced == 0 {
		t.Fatal("the WAL is not open")
	}
}

// wantNoMoreOrders reports a service that still takes orders or says that it is ready.
func (s *testServer) wantNoMoreOrders(t *testing.T) {
	t.Helper()
	for range 3 {
		r := s.post(t, s.order("teh", 1)).want(t, 503, "SERVICE_UNAVAILABLE")
		if !strings.Contains(r.Error.Message, "Nothing was changed") {
			t.Errorf("a later order is answered with %q", r.Error.Message)
		}
	}
	s.do(t, "GET", "/readyz", nil).want(t, 503, "SERVICE_UNAVAILABLE")
	if log := s.logs.String(); strings.Count(log, "no orders are taken any more") != 1 || !strings.Contains(log, " do=") {
		t.Errorf("the log does not say once what to do:\n%s", log)
	}
}

// TestFailedSync has the disk fail while an order is committed: nobody knows whether the order exists.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.create(t, "teh", 1)
	failSyncs(t, s.db)

	r := s.post(t, s.order("teh", 1)).want(t, 503, "SERVICE_UNAVAILABLE")
	for _, text := range []string{"unknown", "Idempotency-Key", "external_id"} {
		if !strings.Contains(r.Error.Message, text) {
			t.Errorf("%q does not mention %s", r.Error.Message, text)
		}
	}
	if strings.Contains(r.Error.Message, "Nothing was changed") {
		t.Errorf("%q promises too much", r.Error.Message)
	}
	if r.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	s.wantNoMoreOrders(t)
}

func TestPageAfterAFailedSync(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	id := s.create(t, "teh", 1)
	failSyncs(t, s.db)

	_, err := s.db.Transition(t.Context(), s.storeID, id, OwnerCancels, Note{Code: NoteByCommand})
	if err != errResultUnknown {
		t.Fatalf("error %v, want %v", err, errResultUnknown)
	}
	if status := pageErrorStatus(err); status != 503 {
		t.Errorf("a page answers %d, want 503", status)
	}
}

// TestWhatACommitsErrorMeans is about SQLite's result codes.
func TestWhatACommitsErrorMeans(t *testing.T) {
	t.Parallel()
	for code, unknown := range map[sqlite3.ErrNo]bool{
		sqlite3.ErrFull:       false,
		sqlite3.ErrBusy:       false,
		sqlite3.ErrConstraint: false,
		sqlite3.ErrIoErr:      true,
		sqlite3.ErrCorrupt:    true,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			db := newBubbleServer(t).db
			err := db.afterCommit(sqlite3.Error{Code: code})
			if got := err == errResultUnknown; got != unknown {
				t.Errorf("unknown: %t, want %t", got, unknown)
			}
			if broken := db.broken() != nil; broken != unknown {
				t.Errorf("no more writes: %t, want %t", broken, unknown)
			}
		})
	}
}

// TestLostFile does to the file of a running service what people do by mistake.
func TestLostFile(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(path string) error{
		"deleted":     os.Remove,
		"moved away":  func(path string) error { return os.Rename(path, path+".old") },
		"WAL deleted": func(path string) error { return os.Remove(path + "-wal") },
		"replaced": func(path string) error {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path))
		},
		"cut off":     func(path string) error { return os.Truncate(path, 4096) },
		"overwritten": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("text "), 100_000), 0o600) },
		"overwritten by an earlier copy": func(path string) error {
			content, err := os.ReadFile(path + ".copy")
			if err != nil {
				return err
			}
			return os.WriteFile(path, append(content, make([]byte, 1<<20)...), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestServer(t)
			content, err := os.ReadFile(s.db.path)
			must(t, err)
			must(t, os.WriteFile(s.db.path+".copy", content, 0o600))
			for range 3 {
				s.create(t, "teh", 1)
			}
			must(t, s.db.writer.script("PRAGMA wal_checkpoint(PASSIVE)"))
			must(t, s.db.Ready())

			must(t, lose(s.db.path))
			s.do(t, "GET", "/readyz", nil).want(t, 503, "SERVICE_UNAVAILABLE")
			s.wantNoMoreOrders(t)
		})
	}
}

// TestDamagedFile has SQLite find the damage.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.create(t, "teh", 1)
	err := s.db.write(t.Context(), func(*Tx) error { return sqlite3.Error{Code: sqlite3.ErrCorrupt} })
	if err == nil {
		t.Error("the write that finds the damage succeeds")
	}
	s.wantNoMoreOrders(t)
}

// TestVacuumIsNoDamage makes the file smaller in the way that is allowed.
func TestVacuumIsNoDamage(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	must(t, s.db.write(t.Context(), func(tx *Tx) error {
		_, err := tx.exec("CREATE TABLE junk AS SELECT randomblob(2000000) AS b")
		return err
	}))
	must(t, s.db.write(t.Context(), func(tx *Tx) error {
		_, err := tx.exec("DROP TABLE junk")
		return err
	}))
	must(t, s.db.writer.script("PRAGMA wal_checkpoint(TRUNCATE)"))
	must(t, s.db.Ready())
	before := fileSize(s.db.path)

	other := openSQLite(s.db.path, "", 1)
	defer other.Close()
	must(t, other.script("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"))
	if after := fileSize(s.db.path); after >= before {
		t.Fatalf("the file has %d bytes after %d", after, before)
	}
	s.create(t, "teh", 1)
	must(t, s.db.Ready())
}

// TestLargeWAL has a reader keep its view of the database while much is written.
func TestLargeWAL(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	other := openSQLite(s.db.path, "", 1)
	defer other.Close()
	must(t, other.script("BEGIN; SELECT count(*) FROM orders"))

	for i := range 7 {
		must(t, s.db.write(t.Context(), func(tx *Tx) error {
			_, err := tx.exec(fmt.Sprintf("CREATE TABLE junk%d AS SELECT randomblob(10000000) AS b", i))
			return err
		}))
	}
	ctx := context.Background()
	s.db.watchWAL(ctx)
	s.logs.await(t, `(-wal file grows.* size="[67]\d\.\d MB")`)

	t.Run("orders go on", func(t *testing.T) {
		s.create(t, "teh", 1)
		s.db.watchWAL(ctx)
		if n := strings.Count(s.logs.String(), "-wal file grows"); n != 1 {
			t.Errorf("%d warnings within a minute, want 1", n)
		}
	})

	t.Run("when the reader has ended it shrinks", func(t *testing.T) {
		must(t, other.script("ROLLBACK"))
		s.db.watchWAL(ctx)
		if size := fileSize(s.db.path + "-wal"); size > walStep {
			t.Errorf("the WAL has %d bytes", size)
		}
		s.create(t, "teh", 1)
		if pages := writerPragma(t, s.db, "wal_autocheckpoint"); pages != 1000 {
			t.Errorf("wal_autocheckpoint is %d, want 1000", pages)
		}
		if wait := writerPragma(t, s.db, "busy_timeout"); wait != 5000 {
			t.Errorf("busy_timeout is %d, want 5000", wait)
		}
		s.logs.await(t, "(small again)")
	})
}

func writerPragma(t *testing.T, db *DB, name string) int {
	t.Helper()
	v, err := queryOne(db.writer, scanValue[int], "PRAGMA "+name)
	must(t, err)
	return v
}

// TestAFullDiskIsLoggedOnceASecond has many orders refused.
func TestAFullDiskIsLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.db.breakOff(&brokenError{"the disk is full", "nothing: this is a test"})
	for range 200 {
		s.post(t, s.order("teh", 1)).want(t, 503, "SERVICE_UNAVAILABLE")
	}
	if n := strings.Count(s.logs.String(), "cannot write to the database"); n < 1 || n > 10 {
		t.Errorf("%d lines for 200 refused orders, want one a second", n)
	}
}
