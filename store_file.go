package main

// This file looks after the database file: opening and watching it, inspection, backup, restore and purge.

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3"
)

const (
	applicationID = 0x6f726472 // "ordr", the application_id of our files
	backupID      = 0x6f726462 // "ordb", of backups, so that one copied over the database is noticed
	schemaVersion = 2          // of schema.sql

	applicationAt = 68 // in the file, https://sqlite.org/fileformat.html
	changesAt     = 24
)

//go:embed schema.sql
var schema string

type openMode int

const (
	openExisting openMode = iota
	openReadOnly          // any file of this or an earlier version, even a read-only copy
	openToCopy            // a file of this or an earlier version
	openOrCreate
	openToServe // upgrades the file, locks it against a second service, and watches that it stays the same
)

// openDB opens a file. Its errors are sentences for the person who runs the program. Commands have no log.
func openDB(path string, mode openMode, env environment, log *slog.Logger) (*DB, error) {
	path, err := findFile(path, mode)
	if err != nil {
		return nil, err
	}

	readOnly := "mode=ro&_cache_size=-512"
	if _, err := os.Stat(path + "-wal"); mode == openReadOnly && err != nil {
		readOnly += "&immutable=1" // Nothing is written, not even beside the file.
	}

	db := &DB{
		webhooksDue: make(chan struct{}, 1),
		checksDue:   make(chan struct{}, 1),
		checkpoints: make(chan struct{}, 1),
		shopRings:   newShopRings(),
		path:        path,
		env:         env,
		log:         cmp.Or(log, slog.New(slog.DiscardHandler)),
		readers:     openPool(path, readOnly, 32),
		writers:     openPool(path, "_journal_mode=WAL&_synchronous=FULL", 1),
		small:       newWriteQueue(),
		large:       newWriteQueue(),
		writesWait:  make(chan struct{}, 1),
		closing:     make(chan struct{}),
	}

	err = db.prepare(mode)
	if sqliteCode(err) != 0 {
		err = unusable(path, err)
	}

	if err != nil {
		return nil, errors.Join(err, db.close())
	}

	db.running.Go(db.runWrites)
	return db, nil
}

// troubles say what to do about a file that SQLite cannot use.
var troubles = map[sqlite3.ErrNo]string{
	sqlite3.ErrCorrupt: "is damaged: restore a backup",
	sqlite3.ErrNotADB:  "is damaged or not a database: restore a backup, or name another file",
	sqlite3.ErrFull:    "is on a full disk: make space",
	sqlite3.ErrIoErr:   "is on a disk that is full or fails: make space, or look for disk errors (dmesg)",
	sqlite3.ErrBusy:    "is in use by another program: stop that first",
}

// unusable says why a file cannot be used. Most often it belongs to another user.
func unusable(path string, err error) error {
	return fmt.Errorf("%s %s (%w)", path, cmp.Or(troubles[sqliteCode(err)],
		"cannot be used by this user: run this as the user of the service. Or create the folder, and let that user "+
			"own and write the folder and all files whose names begin like this one (chown, chmod u+rw)"), err)
}

// openPool opens a file with options for the driver. SQLite need not lock a connection (_mutex=no), because the pool
// does.
func openPool(path, options string, connections int) *sql.DB {
	pool, _ := sql.Open("sqlite3", "file:"+url.PathEscape(path)+
		"?"+options+"&_mutex=no&_busy_timeout=5000&_foreign_keys=on&_stmt_cache_size=100")
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	return pool
}

// prepare inspects the file before it changes anything. Then it opens the file for writing, and creates or upgrades its
// tables. One that is served gets a lock first, and is watched in the end.
func (db *DB) prepare(mode openMode) (err error) {
	isServed := mode == openToServe
	if isServed {
		if db.lock, err = lockServing(db.path); err != nil {
			return err
		}
	}
	version, err := db.inspect(mode)
	if err != nil || mode == openReadOnly {
		return err
	}
	if isServed {
		if err := db.checkIfCopied(); err != nil {
			return err
		}
	}

	ctx := context.Background()
	db.conn, err = db.writers.Conn(ctx)
	if err != nil {
		return err
	}
	// The first keeps savepoints from writing temporary files. The second is the size in bytes that the WAL
	// shrinks to.
	if err := db.execute("PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 8388608"); err != nil {
		return err
	}

	if version == 0 {
		err = db.transaction(func() error {
			return db.execute(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;\n%s",
				applicationID, schemaVersion, schema))
		})
	} else if isServed && version < schemaVersion {
		err = db.upgrade(version)
	}
	if err != nil || !isServed {
		return err
	}

	if err := db.checkColumns(ctx); err != nil {
		return err
	}
	return db.takeFile()
}

// inspect returns the version of a file that may be opened in this mode, or 0 if it is empty. Its errors say what to do
// with any other file.
func (db *DB) inspect(mode openMode) (version int, err error) {
	h, err := one[header](context.Background(), db, `
		SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema) AS empty, application_id, user_version AS version
		FROM   pragma_application_id, pragma_user_version`)
	if err != nil {
		return 0, err
	}
	if h.Empty && mode >= openOrCreate {
		return 0, nil
	}
	if problem := h.problem(mode); problem != "" {
		return 0, fmt.Errorf("%s is %s", db.path, problem)
	}
	return h.Version, nil
}

// header says what a file is.
type header struct {
	Empty         bool // it has no tables
	ApplicationID int64
	Version       int // of its schema
}

// problem says why a file may not be opened in this mode, and what to do. It is empty if it may.
func (h header) problem(mode openMode) string {
	switch {
	case h.Empty:
		return "empty: name another file"
	case h.ApplicationID != applicationID && h.ApplicationID != backupID, h.Version < 1:
		return "not a storeorder database: name another file"
	case h.Version > schemaVersion:
		return fmt.Sprintf("a database of version %d, and this program takes versions up to %d: run the storeorder "+
			"that made it, or go back to the copy that it made before (docs/operation.md, \"Upgrade, and go back\")",
			h.Version, schemaVersion)
	case h.ApplicationID == backupID && mode != openReadOnly:
		return "a backup: put it in place with \"storeorder restore\""
	case h.Version < schemaVersion && (mode == openExisting || mode == openOrCreate):
		return fmt.Sprintf("a database of version %d, and this program works with %d: "+
			"start \"storeorder serve\" of this version once, which upgrades it", h.Version, schemaVersion)
	}
	return ""
}

// close waits for the write in progress; later writes fail. SQLite copies the WAL into the file when the last
// connection is closed, so the connection to a broken file stays open until the process ends.
func (db *DB) close() error {
	close(db.closing)
	db.running.Wait()
	if db.conn != nil && db.checkWritable() == nil {
		db.conn.Close()
	}

	err := errors.Join(db.readers.Close(), db.writers.Close())
	db.file.Close()
	syscall.Flock(int(db.lock.Fd()), syscall.LOCK_UN) // A program that a test is starting may hold a copy of the lock.
	db.lock.Close()
	return err
}

// findFile returns a path without symbolic links, because a file with two names would have two WALs. It
// creates a missing file itself, because SQLite would let every user of the machine read it.
func findFile(path string, mode openMode) (string, error) {
	found, err := filepath.EvalSymlinks(path)
	if err == nil {
		return found, checkNames(found, mode)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", unusable(path, err)
	}
	if mode < openOrCreate {
		return "", fmt.Errorf(
			"there is no database %s: check the path and -db (\"storeorder store add\" creates one)", path)
	}

	for _, rest := range []string{path + "-wal", path + "-restoring"} {
		if _, err := os.Stat(rest); err == nil {
			return "", fmt.Errorf("%s is missing, but %s is there: put the file back, "+
				"or run \"storeorder restore\"", path, rest)
		}
	}

	file, err := createFor(path, path)
	if err != nil {
		return "", fmt.Errorf("cannot create the database: create a folder first where this user may write (%w)", err)
	}

	file.Close()
	return filepath.EvalSymlinks(path)
}

// checkNames refuses a folder, and a file of one byte, which SQLite takes for an empty one (unixFileSize in os_unix.c).
// It refuses a file that was emptied beside its WAL, because SQLite would delete the WAL. It also refuses to serve a
// file with a second name (a hard link), which would have a second WAL.
func checkNames(path string, mode openMode) error {
	file, err := os.Stat(path)
	if err != nil {
		return err
	}
	if file.IsDir() {
		return fmt.Errorf("%s is a folder: name a file in it", path)
	}
	if file.Size() == 1 {
		return fmt.Errorf("%s is not a storeorder database: name another file", path)
	}
	wal, err := os.Stat(path + "-wal")
	if err == nil && wal.Size() > 0 && file.Size() == 0 {
		return fmt.Errorf("%s is empty, but %s-wal is not: put the file back, or run \"storeorder restore\"",
			path, path)
	}
	names, ok := file.Sys().(*syscall.Stat_t)
	if mode == openToServe && ok && names.Nlink > 1 && file.Mode().IsRegular() {
		return fmt.Errorf("%s has another name, a hard link (find -samefile): remove one of them", path)
	}
	return nil
}

// createFor creates a missing file that nobody else can read. If root creates it, it gets the owner of its database or,
// without one, of the folder, because the service runs as another user.
func createFor(database, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil || os.Geteuid() != 0 {
		return file, err
	}

	info, err := os.Stat(database)
	if err != nil || database == path {
		info, err = os.Stat(filepath.Dir(database))
	}
	if err != nil {
		return file, nil
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		file.Chown(int(owner.Uid), int(owner.Gid)) // A file system without owners refuses it.
	}
	return file, nil
}

// lockServing locks a file against other services and against a restore.
func lockServing(path string) (*os.File, error) {
	lock, err := createFor(path, path+"-serving")
	if errors.Is(err, fs.ErrExist) {
		lock, err = os.OpenFile(path+"-serving", os.O_RDWR, 0)
	}
	if err != nil {
		return nil, unusable(path, err)
	}

	err = os.NewSyscallError("flock", syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("another storeorder is serving %s: stop it first", path)
	}
	return lock, err
}

// checkIfCopied checks a file that is newer than its WAL. Somebody may have put a copy in its place, which does not
// match the old file's WAL.
func (db *DB) checkIfCopied() error {
	file, err := os.Stat(db.path)
	if err != nil {
		return err
	}
	wal, err := os.Stat(db.path + "-wal")
	if err != nil || wal.Size() == 0 || !file.ModTime().After(wal.ModTime()) {
		return nil
	}

	db.log.Warn("the database is newer than its -wal file, as if it had been copied there: it is checked first")
	_, err = db.check(context.Background())
	return err
}

// takeFile begins to watch the file of the serving process.
func (db *DB) takeFile() (err error) {
	if db.file, err = os.Open(db.path); err != nil {
		return err
	}
	return db.checkWritable()
}

// checkpoint copies the WAL into the file, except for parts that readers still need. SQLite does that by itself after
// every thousand pages, but hides its errors. The WAL would then grow until the disk is full. The writing goroutine
// calls it.
func (db *DB) checkpoint() {
	if db.checkWritable() != nil { // Nothing is copied into a file that was lost.
		return
	}
	err := db.env.checkpoint(func() error { return db.execute("PRAGMA wal_checkpoint(PASSIVE)") })
	if err == nil || sqliteCode(err) == sqlite3.ErrBusy {
		db.noCheckpoint.Store(0)
		return
	}
	db.noCheckpoint.CompareAndSwap(0, time.Now().Unix())
	db.log.Error("the database file cannot be written, only its -wal, which grows until the disk is full: make "+
		"space, or look for disk errors (dmesg). Nothing is lost: keep both files", "error", err)
}

// isReady returns nil, or why the file cannot be relied on: it takes no writes, or checkpoints have failed for five
// minutes.
func (db *DB) isReady() error {
	if err := db.checkWritable(); err != nil {
		return err
	}
	since := db.noCheckpoint.Load()
	if since != 0 && time.Since(time.Unix(since, 0)) >= 5*time.Minute {
		return fmt.Errorf("%w: checkpoints fail", ErrUnavailable)
	}
	return nil
}

// watch wakes the queue and the checks when the file was written. So they notice within five seconds what commands did,
// and that the dashboard has turned an endpoint on.
func (db *DB) watch(ctx context.Context) {
	var before time.Time
	for ctx.Err() == nil {
		if info, err := os.Stat(db.path + "-wal"); err == nil && info.ModTime() != before {
			before = info.ModTime()
			wake(db.webhooksDue)
			wake(db.checksDue)
		}
		pause(ctx, 5*time.Second)
	}
}

// checkClock compares the clock at the start with the newest event. If they are over a day apart, the clock may be
// wrong, as on a machine without a battery. waitsForClock says what waits then.
func (db *DB) checkClock() error {
	newest, err := one[Time](context.Background(), db,
		"SELECT coalesce((SELECT created_at FROM events ORDER BY number DESC LIMIT 1), 0)")
	if err != nil {
		return err
	}

	if age := db.now().Sub(newest); newest != 0 && age.Abs() > 24*time.Hour {
		db.strangeStart = time.Now()
		db.log.Warn("the newest event is over a day from the machine's clock: nothing expires for five minutes, and "+
			"nothing is deleted for a day; if the clock is wrong, correct it", "newest_event", newest.String(),
			"age", age.String())
	}
	return nil
}

// waitsForClock reports whether the program was started less than d ago with a clock that may be wrong: expiry waits
// for five minutes, and the purge for a day.
func (db *DB) waitsForClock(d time.Duration) bool {
	return !db.strangeStart.IsZero() && time.Since(db.strangeStart) < d
}

// observeClock compares the wall clock with one that nobody sets. The wall clock can be trusted if it has not jumped by
// over a minute in the last five minutes. Until then, nothing expires or is purged, no delivery is given up, and no
// payment is checked. Every decision by the time calls it.
func (db *DB) observeClock() (isSteady bool) {
	c := &db.clock
	c.Lock()
	defer c.Unlock()
	wall := db.now()
	steady := time.Now()
	jump := wall.Sub(c.wall) - steady.Sub(c.steady)
	if c.wall != 0 && jump.Abs() > time.Minute {
		c.until = steady.Add(5 * time.Minute)
		db.log.Warn("the machine's clock has jumped, and nothing expires for five minutes: "+
			"if it is wrong, correct it", "by", jump.String())
	}

	c.wall = wall
	c.steady = steady
	return !steady.Before(c.until)
}

// Report is what a check of a file finds.
type Report struct {
	OK                bool     `json:"ok" sql:"-"`
	Faults            []string `json:"faults" sql:"-"` // empty if the file is sound
	Version           int      `json:"schema_version" sql:"schema_version"`
	Stores            int64    `json:"stores"`
	Orders            int64    `json:"orders"`
	WaitingDeliveries int64    `json:"waiting_deliveries"`       // to endpoints that are on
	LatestEvent       Time     `json:"latest_event_at,omitzero"` // shows how old a copy is
}

// sqlBrokenReferences returns a sentence for each row with a broken reference.
const sqlBrokenReferences = `
	SELECT "table" || ': row ' || coalesce(rowid, '?') || ' refers to a missing row of ' || parent
	FROM   pragma_foreign_key_check`

// check reports what is in the database, which may be of an earlier version. If it is damaged, the report has faults,
// and there is an error.
func (db *DB) check(ctx context.Context) (Report, error) {
	r, err := one[Report](ctx, db, `
		SELECT user_version AS schema_version, (SELECT count(*) FROM stores) AS stores,
		       (SELECT count(*) FROM orders) AS orders,
		       (SELECT count(*) FROM deliveries d JOIN endpoints e ON e.id = d.endpoint_id
		        WHERE  d.next_at IS NOT NULL AND e.off = '') AS waiting_deliveries,
		       coalesce((SELECT created_at FROM events ORDER BY number DESC LIMIT 1), 0) AS latest_event
		FROM   pragma_user_version`)
	r.OK = true
	r.Faults = []string{}
	if err == nil {
		r.Faults, err = all[string](ctx, db, `
			SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'
			UNION ALL`+sqlBrokenReferences)
	}
	if sqliteCode(err) != 0 {
		r.Faults = []string{err.Error()}
		err = nil
	}
	if len(r.Faults) > 0 {
		r.OK = false
		err = fmt.Errorf("%s is damaged: restore a backup (%s)", db.path, r.Faults[0])
	}
	return r, err
}

// copyTo copies the database, while others write, to a new file that nobody else can read and whose
// application_id is id. After an error there is no copy.
func (db *DB) copyTo(ctx context.Context, out string, id uint32) error {
	file, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot create the copy: name a new file, in a folder where this user may write (%w)", err)
	}
	return db.copyInto(ctx, file, id)
}

// copyFor is copyTo for a copy that will take the place of a database, or stand beside it: it gets its owner. A copy
// that was left by a program that was killed is replaced.
func (db *DB) copyFor(ctx context.Context, database, out string, id uint32) error {
	removeCopy(out)
	file, err := createFor(database, out)
	if err != nil {
		return err
	}
	return db.copyInto(ctx, file, id)
}

func removeCopy(path string) {
	os.Remove(path)
	os.Remove(path + "-journal") // left by SQLite when the disk is full
}

// copyInto is copyTo into an empty file, which it closes.
func (db *DB) copyInto(ctx context.Context, file *os.File, id uint32) error {
	out := file.Name()
	_, err := db.readers.ExecContext(ctx, "VACUUM INTO ?", "file:"+url.PathEscape(out))
	if err == nil {
		_, err = file.WriteAt(binary.BigEndian.AppendUint32(nil, id), applicationAt)
	}
	err = errors.Join(err, file.Sync(), file.Close(), syncFolder(out))
	if err != nil {
		removeCopy(out)
		return fmt.Errorf("cannot copy %s to %s: is the disk full, or the database damaged? (%w)", db.path, out, err)
	}
	return nil
}

// syncFolder syncs the names in a file's folder to disk.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// restore puts a copy of a sound file in a database's place. aside is the new name of the old file, or empty.
func restore(ctx context.Context, path, from string, env environment) (aside string, r Report, err error) {
	source, err := openDB(from, openReadOnly, env, nil)
	if err != nil {
		return "", r, err
	}
	defer source.close()

	if found, err := filepath.EvalSymlinks(path); err == nil {
		path = found
	}

	lock, err := lockServing(path)
	if err != nil {
		return "", r, err
	}
	defer lock.Close()
	r, err = source.check(ctx)
	if err != nil {
		return "", r, err
	}

	fresh := path + "-restoring"
	if err := source.copyFor(ctx, path, fresh, applicationID); err != nil {
		return "", r, err
	}
	aside, err = setAside(path, path+env.now().UTC().Format("-20060102-150405.000"))
	if err != nil {
		return aside, r, err
	}
	return aside, r, errors.Join(os.Rename(fresh, path), syncFolder(path))
}

// setAside renames a database, whose WAL must not stay beside another file. The file goes first. So a killed restore
// leaves no file, which everybody notices, rather than one without its latest orders.
func setAside(path, aside string) (moved string, err error) {
	for _, ending := range endings {
		switch err := os.Rename(path+ending, aside+ending); {
		case err == nil:
			moved = aside
		case !errors.Is(err, fs.ErrNotExist):
			return moved, err
		}
	}
	return moved, nil
}

// deleteRows runs a statement that deletes rows in small writes, until it deletes fewer than its last
// parameter.
func (db *DB) deleteRows(ctx context.Context, statement string, arg any) error {
	const most = 100
	for {
		deleted, err := writeFor(ctx, db, func(tx *Tx) (int64, error) {
			return tx.exec(statement, arg, most), nil
		})
		if err != nil || deleted < most {
			return err
		}
	}
}

// purge deletes what is too old to be needed. Orders, their history and payments are kept for good.
func (db *DB) purge(ctx context.Context, keepEvents time.Duration) error {
	now := db.now()
	var failed []error
	for _, old := range []struct {
		before    Time
		statement string
	}{
		{now.Add(-keepEvents), `
			DELETE FROM events
			WHERE  number IN (SELECT number FROM events WHERE created_at < ? ORDER BY created_at LIMIT ?)`},
		{now.Add(-48 * time.Hour), `
			DELETE FROM idempotency_keys
			WHERE  (store_id, key) IN (SELECT store_id, key FROM idempotency_keys WHERE created_at < ? LIMIT ?)`},
		{now.Add(-90 * 24 * time.Hour), `
			DELETE FROM api_keys
			WHERE  id IN (SELECT id FROM api_keys WHERE revoked_at > 0 AND revoked_at < ? LIMIT ?)`},
		{now.Add(-48 * time.Hour), `
			DELETE FROM catalog_changes
			WHERE  (store_id, key) IN (SELECT store_id, key FROM catalog_changes WHERE created_at < ? LIMIT ?)`},
		{now.Add(-48 * time.Hour), `
			DELETE FROM saved_forms
			WHERE  (store_id, token) IN (SELECT store_id, token FROM saved_forms WHERE at < ? LIMIT ?)`},
		{now, `
			DELETE FROM deliveries
			WHERE  id IN (SELECT d.id FROM endpoints e JOIN deliveries d ON d.endpoint_id = e.id
			              WHERE e.removed_at > 0 AND e.removed_at < ? LIMIT ?)`},
		{now, `
			DELETE FROM endpoints
			WHERE  id IN (SELECT id FROM endpoints e WHERE removed_at > 0 AND removed_at < ?
			              AND NOT EXISTS (SELECT 1 FROM deliveries WHERE endpoint_id = e.id) LIMIT ?)`},
		{now.Add(-30 * 24 * time.Hour), `
			DELETE FROM pictures
			WHERE  hash IN (SELECT hash FROM pictures WHERE unused_since > 0 AND unused_since < ? LIMIT ?)`},
		{now, "DELETE FROM sign_ins WHERE hash IN (SELECT hash FROM sign_ins WHERE ends_at < ? LIMIT ?)"},
	} {
		failed = append(failed, db.deleteRows(ctx, old.statement, old.before))
	}
	return cmp.Or(failed...) // the first: most often all have the same reason
}
