//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// walLarge is the size from which the write-ahead log (the file that ends in -wal) is more than SQLite's own
// checkpoints leave: somebody is in their way.
const walLarge = 64 << 20

// walWatch is what watchWAL remembers.
type walWatch struct {
	warned   int64     // the size at the last warning; 0 = the WAL is small
	warnedAt time.Time // when that was
}

// watchWAL warns while a reader keeps the WAL growing, and shrinks it when that reader has gone.
//
// SQLite copies the WAL into the database (a checkpoint) after a commit, but only what no reader still needs.
// After a long stop this is much, so a connection of its own does it while orders go on. Then the file is cut
// off step by step.
func (db *DB) watchWAL(ctx context.Context) {
	size := fileSize(db.path + "-wal")
	if size < walLarge {
		if db.wal.warned > 0 {
			db.endWALWatch(ctx, size)
		}
		return
	}

	if db.wal.warned == 0 {
		if err := db.onWriter(ctx, func() error { return db.autoCheckpoint(0) }); err != nil {
			return
		}
	}
	blocked, err := db.checkpoint(ctx)
	if err == nil && !blocked {
		err = db.shrinkWAL(ctx, size)
		if err == nil {
			db.endWALWatch(ctx, fileSize(db.path+"-wal"))
			return
		}
	}

	if size >= 2*db.wal.warned || time.Since(db.wal.warnedAt) >= remindEvery {
		db.warnOfWAL(size, err)
	}
}

func (db *DB) warnOfWAL(size int64, err error) {
	db.wal.warned = size
	db.wal.warnedAt = time.Now()

	attrs := []any{
		"size", inMB(size),
		"file", db.path + "-wal",
		"do", "end it: \"fuser " + db.path + "\" shows who it is",
	}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	db.log.Warn("the database's -wal file grows, because a program that reads the database has not ended its "+
		"transaction (a sqlite3 shell, a copying tool): it shrinks when that has ended", attrs...)
}

// endWALWatch leaves the checkpoints to SQLite again.
func (db *DB) endWALWatch(ctx context.Context, size int64) {
	const pages = 1000 // SQLite's own
	if err := db.onWriter(ctx, func() error { return db.autoCheckpoint(pages) }); err != nil {
		return // The next look tries it again.
	}
	if db.wal.warned > 0 {
		db.log.Info("the database's -wal file is small again", "size", inMB(size))
	}
	db.wal = walWatch{}
}

func inMB(size int64) string { return fmt.Sprintf("%.1f MB", float64(size)/1e6) }

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// autoCheckpoint sets after how many pages in the WAL a commit is followed by a checkpoint; 0 is never.
func (db *DB) autoCheckpoint(pages int) error {
	return db.writer.script(fmt.Sprintf("PRAGMA wal_autocheckpoint = %d", pages))
}

// checkpoint copies what it can of the WAL into the database while writes go on. It reports whether a reader
// keeps the rest.
func (db *DB) checkpoint(ctx context.Context) (blocked bool, err error) {
	own := openSQLite(db.path, "mode=rw&_synchronous=FULL&_busy_timeout=1000", 1)
	defer own.Close()

	// Orders may come as fast as they are copied, but a second copy has much less to do than the first.
	var busy, frames, copied int
	for range 2 {
		err := own.with(func(c *connection) error {
			return c.eachContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)", nil, func(r row) error {
				return r.Scan(&busy, &frames, &copied)
			})
		})
		if err != nil {
			return false, err
		}
	}
	const few = 5000 // 20 MB: the writing goroutine copies them in a moment
	return busy != 0 || frames-copied > few, nil
}

var errWALInUse = errors.New("the -wal file is in use")

// walStep is how much of the WAL is cut off at once: a file system may take a second for a gigabyte.
const walStep = 16 << 20

// shrinkWAL cuts off a WAL that is in the database but for a little. Between two steps orders are written.
func (db *DB) shrinkWAL(ctx context.Context, size int64) error {
	for size > walStep {
		err := db.onWriter(ctx, func() error { return db.cutWAL(size - walStep) })
		if err != nil {
			return err
		}

		before := size
		size = fileSize(db.path + "-wal")
		if size >= before {
			return errWALInUse
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// cutWAL cuts the WAL off at a size. SQLite does so at the first commit after the WAL has begun anew, which
// it does when everything in it was copied and nobody reads it. It waits for readers a moment only.
func (db *DB) cutWAL(size int64) (err error) {
	err = db.writer.script(fmt.Sprintf("PRAGMA busy_timeout = 100; PRAGMA journal_size_limit = %d", size))
	if err != nil {
		return err
	}
	defer func() {
		after := db.writer.script(fmt.Sprintf(
			"PRAGMA busy_timeout = 5000; PRAGMA journal_size_limit = %d", walLarge))
		err = errors.Join(err, after)
	}()

	var busy, frames, copied int
	err = queryInto(db.writer, []any{&busy, &frames, &copied}, "PRAGMA wal_checkpoint(RESTART)")
	if err != nil {
		return err
	}
	if busy != 0 {
		return errWALInUse
	}
	return db.writer.script("UPDATE settings SET only = only")
}
