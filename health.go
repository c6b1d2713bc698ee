//go:build cgo

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-sqlite3"
)

// This file watches over the database's file while the service runs: whether it can still be relied on, and
// how large its write-ahead log (WAL) is.

// errResultUnknown is the error of a write whose commit failed in a way that leaves open whether it is on
// disk.
var errResultUnknown = errors.New("the disk failed while the change was saved: whether it was saved is unknown")

// brokenError says why the database takes no more writes until the program is started again.
type brokenError struct {
	cause string
	todo  string // what the operator does about it
}

func (e *brokenError) Error() string { return e.cause }

// fileHealth is what is known of the database's file. Its opened file is held until the database is closed:
// closing it earlier would end the locks that SQLite holds on the same file
// (https://sqlite.org/howtocorrupt.html#_posix_advisory_locks).
type fileHealth struct {
	broken atomic.Pointer[brokenError] // nil while all is well

	opened *os.File
	info   fs.FileInfo // of the file, and of its WAL, when the database was opened
	wal    fs.FileInfo

	mu      sync.Mutex
	size    int64  // the largest that the file was
	changes uint32 // SQLite's counter in the file's header, which only grows
}

// broken returns why the database takes no more writes, or nil.
func (db *DB) broken() error {
	if err := db.file.broken.Load(); err != nil {
		return err
	}
	return nil
}

// breakOff ends all writing. The first cause counts, and the log says what to do about it.
func (db *DB) breakOff(e *brokenError) {
	if db.file.broken.CompareAndSwap(nil, e) {
		db.logBroken()
	}
}

func (db *DB) logBroken() {
	if e := db.file.broken.Load(); e != nil {
		db.log.Error("no orders are taken any more: "+e.cause, "database", db.path, "do", e.todo)
	}
}

const (
	restartAndCheck = "look for disk errors (dmesg), stop the service, run \"storeorder check\", " +
		"and start it again or restore a backup"
	putBack = "stop the service only after you have put the file back, or have a backup to restore: " +
		"see docs/operation.md"
)

// rememberFile notes which file this is, so that checkFile recognizes another one.
func (db *DB) rememberFile() (err error) {
	db.file.opened, err = os.Open(db.path)
	if err != nil {
		return err
	}
	db.file.info, err = db.file.opened.Stat()
	if err != nil {
		return err
	}

	// A file that was opened has its WAL until its last connection is closed.
	db.file.wal, _ = os.Stat(db.path + "-wal")
	return db.checkHeader()
}

// checkFile returns an error if the file that the database was opened from is not in its place any more, or
// was cut off. It costs some microseconds, so that no write is committed to a file that nobody will find
// again.
func (db *DB) checkFile(q querier) error {
	if err := db.broken(); err != nil {
		return err
	}

	info, err := os.Stat(db.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		db.breakOff(&brokenError{"the database's file was deleted or moved away", putBack})
	case err != nil:
		return err
	case !os.SameFile(info, db.file.info):
		db.breakOff(&brokenError{"another file is in the place of the database", putBack})
	case db.lostWAL():
		db.breakOff(&brokenError{"the database's -wal file was deleted or replaced", putBack})
	default:
		return db.checkSize(q, info.Size())
	}
	return db.broken()
}

func (db *DB) lostWAL() bool {
	if db.file.wal == nil {
		return false
	}
	info, err := os.Stat(db.path + "-wal")
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(info, db.file.wal)
}

// checkSize compares the file's size with what it was. SQLite cuts a file off only when somebody vacuums it,
// and then knows of fewer pages.
func (db *DB) checkSize(q querier, size int64) error {
	db.file.mu.Lock()
	defer db.file.mu.Unlock()
	if size >= db.file.size {
		db.file.size = size
		return nil
	}

	needs, err := queryOne(q, scanValue[int64], `
		SELECT page_count * page_size
		FROM   pragma_page_count, pragma_page_size`)
	if err != nil {
		return err
	}
	if size < needs {
		db.breakOff(&brokenError{
			fmt.Sprintf("the database's file was cut off or overwritten: it has %d bytes, not %d", size, needs),
			restartAndCheck,
		})
		return db.broken()
	}
	db.file.size = size
	return nil
}

// checkHeader looks at the beginning of the file as it is on disk (https://sqlite.org/fileformat.html).
func (db *DB) checkHeader() error {
	header := make([]byte, 100)
	if _, err := db.file.opened.ReadAt(header, 0); err != nil {
		db.breakOff(&brokenError{
			"the beginning of the database's file cannot be read: " + err.Error(),
			restartAndCheck,
		})
		return db.broken()
	}
	changes := binary.BigEndian.Uint32(header[24:])
	application := binary.BigEndian.Uint32(header[68:])

	db.file.mu.Lock()
	defer db.file.mu.Unlock()
	ours := string(header[:16]) == "SQLite format 3\x00" &&
		(application == applicationID || application == 0) // 0 is in a new file until its first checkpoint.
	if !ours || changes < db.file.changes {
		db.breakOff(&brokenError{"the database's file was overwritten by another program", restartAndCheck})
		return db.broken()
	}
	db.file.changes = changes
	return nil
}

// noteDamage ends all writing if err says that the file is damaged. Any other error changes nothing.
func (db *DB) noteDamage(err error) {
	switch sqliteCode(err) {
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB:
		db.breakOff(&brokenError{"the database's file is damaged: " + err.Error(), restartAndCheck})
	}
}

// afterCommit returns what the error of a COMMIT means. Where SQLite did not get to the end of the commit,
// nothing was changed. Where the disk failed, the change may come back when the file is opened again. SQLite
// must not go on then: the system may have forgotten what it could not write, and would report the next sync
// as good.
func (db *DB) afterCommit(err error) error {
	switch sqliteCode(err) {
	case 0, sqlite3.ErrFull, sqlite3.ErrBusy, sqlite3.ErrConstraint:
		return err
	}
	db.breakOff(&brokenError{"the disk failed while a change was saved: " + err.Error(), restartAndCheck})
	return errResultUnknown
}

const (
	watchEvery  = 5 * time.Second
	remindEvery = time.Minute
)

// watch looks at the file, its WAL and the clock until ctx ends.
func (db *DB) watch(ctx context.Context) {
	tick := db.env.tick(watchEvery)

	trusted := db.clockTrusted()
	for round := 1; ; round++ {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}

		wasBroken := db.broken() != nil
		if wasBroken && round%int(remindEvery/watchEvery) == 0 {
			db.logBroken()
		}
		if db.Ready() == nil {
			db.watchWAL(ctx)
		}

		wasTrusted := trusted
		trusted = db.clockTrusted()
		if trusted && !wasTrusted {
			if err := db.pullBackTimes(ctx); err != nil {
				db.log.Error("cannot correct the times that a wrong clock has left", "error", err)
				trusted = false // It is tried again.
			}
		}
	}
}

// Ready returns an error if the database does not answer, or takes no more writes.
func (db *DB) Ready() error {
	if err := db.checkFile(db.reader); err != nil {
		return err
	}
	if err := db.checkHeader(); err != nil {
		return err
	}
	_, err := queryOne(db.reader, scanValue[int], "SELECT only FROM settings")
	db.noteDamage(err)
	return err
}

// onWriter has the writing goroutine run a chore between two groups of writes, and waits for its end.
func (db *DB) onWriter(ctx context.Context, chore func() error) error {
	done := make(chan error, 1)
	select {
	case db.chores <- func() { done <- chore() }:
		return <-done
	case <-ctx.Done():
		return ctx.Err()
	case <-db.closing:
		return errClosed
	}
}
