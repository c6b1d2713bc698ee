//go:build cgo

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-sqlite3"
)

// Time is milliseconds since 1970 UTC, in the database and in memory. In JSON it is ISO 8601 with Z.
type Time int64

const timeFormat = "2006-01-02T15:04:05.000Z"

// wib is the time zone that shops and buyers read: UTC+7, without daylight saving.
var wib = time.FixedZone("WIB", int(wibAhead.Seconds()))

// wibAhead is how far WIB is ahead of UTC.
const wibAhead = 7 * time.Hour

func timeOf(t time.Time) Time { return Time(t.UnixMilli()) }

func (t Time) Time() time.Time              { return time.UnixMilli(int64(t)).UTC() }
func (t Time) String() string               { return t.Time().Format(timeFormat) }
func (t Time) Add(d time.Duration) Time     { return t + Time(d.Milliseconds()) }
func (t Time) Sub(u Time) time.Duration     { return time.Duration(t-u) * time.Millisecond }
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

func (t *Time) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(timeFormat, string(text))
	*t = timeOf(parsed)
	return err
}

// DB is one SQLite file. Reads use a pool of read-only connections. All writes go through write, which
// shares each commit among the writes that wait for it.
type DB struct {
	path   string
	env    environment
	reader *pool
	keys   *pool       // reading connections for StoreOfKey, which waits for no other query
	writer *pool       // one connection: that of the writing goroutine, once it runs
	jobs   chan *job   // unbuffered: the senders that are blocked on it are the queue
	chores chan func() // what the writing goroutine does between two groups: see onWriter

	closing    chan struct{} // closed to stop the writing goroutine
	stopWrites func()        // closes it, once
	stopped    chan struct{} // closed when the writing goroutine has stopped
	hurried    chan struct{} // see Hurry

	clock *clock
	log   *slog.Logger // of the service; commands have none. Set before the first request
	file  *fileHealth
	wal   walWatch

	titles *titleCache

	// State of the writing goroutine.
	idTime  Time   // the time in the latest id
	idCount uint64 // the counter in the latest id

	reference int64 // the number in the latest reference of an order: see newReference

	// Where the service and the gateways are reached. Set before the first request.
	publicURL   string
	subdomains  bool
	gatewayURLs map[Provider]string
}

// applicationID identifies our files in PRAGMA application_id. It spells "ordr".
const applicationID = 0x6f726472

// schemaVersion is what a file's PRAGMA user_version is when schema.sql describes it.
const schemaVersion = 6

//go:embed schema.sql
var schema string

// migrations has a file <n>.sql for each version n after the first, which brings a file of the version before it to
// version n. A released migration never changes.
//
//go:embed migrations/*.sql
var migrations embed.FS

// openDB opens a file, brings its schema up to date and starts the writing goroutine. With create it creates a
// missing file. Its errors are sentences for the person who runs the command.
func (e environment) openDB(path string, create bool) (*DB, error) {
	path, err := openFile(path, create)
	if err != nil {
		return nil, err
	}

	const options = "_busy_timeout=5000&_foreign_keys=on"
	// With 8 MB of pages (SQLite's own default is 2), the inner pages of a million orders stay in memory: to find five paid
	// orders between two times takes a fifth less then. Only reads all over a big file use that much.
	const readOnly = "&mode=ro&_query_only=on&_cache_size=-8000"
	const durable = "&_journal_mode=WAL&_synchronous=FULL"
	readers := max(2, runtime.GOMAXPROCS(0))
	db := &DB{
		path:    path,
		env:     e,
		reader:  openSQLite(path, options+readOnly, readers),
		keys:    openSQLite(path, options+readOnly, readers),
		writer:  openSQLite(path, options+durable, 1),
		jobs:    make(chan *job),
		chores:  make(chan func()),
		clock:   newClock(e.now),
		file:    &fileHealth{},
		titles:  &titleCache{},
		log:     slog.New(slog.DiscardHandler),
		closing: make(chan struct{}),
		stopped: make(chan struct{}),
		hurried: make(chan struct{}, 1),
	}
	db.writer.commit = e.commit
	db.stopWrites = sync.OnceFunc(func() { close(db.closing) })
	if err := db.connect(); err != nil {
		db.closeFiles()
		return nil, explainOpenError(db.path, err)
	}

	go db.runWrites()
	return db, nil
}

// openFile makes sure that the database can be read and written, and returns its path without symbolic links: under two
// names it would have two WALs and two locks. It creates a missing file itself, because SQLite would let every user of
// the machine read it, and it holds secrets.
func openFile(path string, create bool) (realPath string, err error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
		if err := refuseStrayWAL(path); err != nil {
			return "", err
		}
	}

	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) && !create {
		return "", noDatabase(path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot open the database for writing: %w", err)
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// refuseStrayWAL refuses to create a database where another one was: the WAL that it has left would become the new one's.
func refuseStrayWAL(path string) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) || fileSize(path+"-wal") == 0 {
		return nil
	}
	return fmt.Errorf("%s is missing and %s-wal is there: put the file back, "+
		"or restore a backup with \"storeorder restore\", which sets the -wal file aside", path, path)
}

func noDatabase(path string) error {
	return fmt.Errorf("there is no database %s: "+
		"name it with -db, or create it with \"storeorder store add\"", path)
}

func (db *DB) connect() error {
	version, err := db.inspect()
	if err != nil {
		return err
	}
	if version > 0 && version < schemaVersion {
		// A service of an older program would go on with tables that it does not know.
		unlock, err := lockServing(db.path)
		if err != nil {
			return err
		}
		defer unlock()
	}

	if err := db.prepareWriter(); err != nil {
		return err
	}
	if err := db.migrate(); err != nil {
		return err
	}
	if err := db.rememberFile(); err != nil {
		return err
	}

	settings := []any{&db.publicURL, &db.subdomains, fromJSON{&db.gatewayURLs}}
	return queryInto(db.reader, settings, "SELECT public_url, subdomains, gateways FROM settings")
}

// inspect returns the file's schema version, before anything in it is changed: see the function inspect.
func (db *DB) inspect() (version int, err error) {
	file := openSQLite(db.path, "_busy_timeout=5000", 1)
	defer file.Close()
	return inspect(file, db.path)
}

// inspect returns a file's schema version; 0 = it has no tables. It refuses one that is another program's, or newer than
// this program.
func inspect(file querier, path string) (version int, err error) {
	var application, tables int
	err = queryInto(file, []any{&application, &version, &tables}, `
		SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
		FROM   pragma_application_id, pragma_user_version`)
	if err != nil {
		return 0, err
	}

	if application != applicationID && tables > 0 {
		return 0, fmt.Errorf("%s is another program's database: name another file with -db", path)
	}
	if version > schemaVersion {
		return 0, fmt.Errorf("%s has schema version %d and this program knows up to %d: run a newer storeorder",
			path, version, schemaVersion)
	}
	if tables == 0 {
		return 0, nil
	}
	return version, nil
}

// prepareWriter checks that a commit is on disk when SQLite says so, and sets what the options of a connection cannot.
func (db *DB) prepareWriter() error {
	var synchronous int
	var journal string
	err := queryInto(db.writer, []any{&synchronous, &journal}, `
		SELECT synchronous, journal_mode
		FROM   pragma_synchronous, pragma_journal_mode`)
	if err != nil {
		return err
	}
	const full = 2
	if synchronous != full || journal != "wal" {
		return fmt.Errorf("%s: synchronous=%d journal_mode=%s, want 2 (FULL) and wal: put it on a local disk",
			db.path, synchronous, journal)
	}

	// The options of a connection have no place for these two. Without temp_store, each savepoint writes a temporary
	// file. journal_size_limit cuts off a WAL that has grown large, once it begins anew.
	return db.writer.script(fmt.Sprintf("PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = %d", walLarge))
}

// migrate creates the tables of a new file, or brings those of an older version up to date, in one transaction.
//
// Meanwhile foreign keys are not enforced, because a table that others refer to can only be rebuilt without them
// (https://sqlite.org/lang_altertable.html#otheralter). They are checked before the commit instead.
func (db *DB) migrate() error {
	return db.writer.with(func(c *connection) (err error) {
		if err := c.script("PRAGMA foreign_keys = false"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.script("PRAGMA foreign_keys = true")) }()
		return c.transaction("BEGIN IMMEDIATE", func() error { return migrateIn(c, db.path) })
	})
}

// migrateIn is migrate inside its transaction.
func migrateIn(c *connection, path string) error {
	// The version is read inside the transaction, because another process may be migrating too.
	version, err := queryOne(c, scanValue[int], "PRAGMA user_version")
	if err != nil || version == schemaVersion {
		return err
	}

	if version == 0 {
		if err := c.script(schema); err != nil {
			return fmt.Errorf("creating the tables of %s: %w", path, err)
		}
		version = schemaVersion
	}
	for ; version < schemaVersion; version++ {
		if err := migrateTo(c, version+1); err != nil {
			return fmt.Errorf("migrating %s to version %d: %w", path, version+1, err)
		}
	}
	return c.script(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, version))
}

// migrateTo brings the tables of the version before it to a version.
func migrateTo(c *connection, version int) error {
	migration, err := migrations.ReadFile(fmt.Sprintf("migrations/%d.sql", version))
	if err != nil {
		return err
	}
	if err := c.script(string(migration)); err != nil {
		return err
	}

	faults, err := queryAll(c, scanValue[string], sqlForeignKeyFaults+" LIMIT 5")
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return fmt.Errorf("nothing was changed, because rows would refer to missing ones: %s",
			strings.Join(faults, "; "))
	}
	return nil
}

func explainOpenError(path string, err error) error {
	switch sqliteCode(err) {
	case sqlite3.ErrCorrupt:
		return fmt.Errorf("%s is damaged: restore a backup (%w)", path, err)
	case sqlite3.ErrNotADB:
		return fmt.Errorf("%s is not a SQLite database: name another file with -db", path)
	case sqlite3.ErrCantOpen, sqlite3.ErrReadonly, sqlite3.ErrPerm, sqlite3.ErrIoErr, sqlite3.ErrFull:
		return fmt.Errorf("cannot write beside %s: its folder must be writable and the disk not full (%w)",
			path, err)
	case sqlite3.ErrBusy:
		return fmt.Errorf("%s is being written by another program: try again when it is done", path)
	}
	return err
}

// Close waits for the write in progress. A later write fails.
func (db *DB) Close() error {
	db.StopWrites()
	<-db.stopped
	return db.closeFiles()
}

func (db *DB) closeFiles() error {
	err := errors.Join(db.reader.Close(), db.keys.Close(), db.writer.Close())
	if db.file.opened != nil {
		err = errors.Join(err, db.file.opened.Close())
	}
	return err
}

// StopWrites lets the write in progress end and makes every later one fail.
func (db *DB) StopWrites() { db.stopWrites() }

// busyWhenStopping is how long a write waits for a lock of another process after Hurry.
const busyWhenStopping = 500 * time.Millisecond

// Hurry is for a service that stops: if another process has locked the database, the writes that are still to come
// wait for it only a moment each, instead of five seconds.
func (db *DB) Hurry() {
	select {
	case db.hurried <- struct{}{}:
	default:
	}
}

// mustJSON encodes a value of our own types, which cannot fail, without escaping <, > and &.
func mustJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// appendJSONField appends a field of a JSON object whose value is a text, with a comma after it.
func appendJSONField(dst []byte, name, text string) []byte {
	dst = appendJSONName(dst, name)
	dst = appendJSONText(dst, text)
	return append(dst, ',')
}

// appendJSONName appends the name of a field, which has nothing to escape, and a colon.
func appendJSONName(dst []byte, name string) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	return append(dst, `":`...)
}

// appendJSONText appends a text as JSON. One that is not plain goes through mustJSON, which takes 1 µs.
func appendJSONText(dst []byte, text string) []byte {
	if !isPlain(text) {
		return append(dst, mustJSON(text)...)
	}
	dst = append(dst, '"')
	dst = append(dst, text...)
	return append(dst, '"')
}

// isPlain reports whether a text can stand as it is, both in JSON between quotation marks and in a line of the log without
// them: it is printable ASCII without spaces, quotation marks, backslashes and equals signs, and not empty.
func isPlain(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '"' || c == '=' || c == '\\' {
			return false
		}
	}
	return text != ""
}

// readResult runs fn on one snapshot of the database.
func readResult[T any](db *DB, fn func(querier) (T, error)) (result T, err error) {
	err = db.reader.with(func(c *connection) error {
		return c.transaction("BEGIN", func() (err error) {
			result, err = fn(c)
			return err
		})
	})
	return result, err
}

// Tx is one write: a savepoint in the transaction of its group (see commitGroup). Its queries read what the transaction
// has written so far. Everything in a write happens at one time, now, which is that of the database's clock. (Only
// newID may move it on, by a millisecond.)
type Tx struct {
	c   *connection // the writing one
	db  *DB
	now Time
	due bool // the write has made deliveries due
}

func (tx *Tx) each(query string, args []any, do func(row) error) error {
	return tx.c.each(query, args, do)
}

// exec runs a statement that returns no rows, and returns how many rows it changed.
func (tx *Tx) exec(text string, args ...any) (changed int64, err error) {
	return tx.c.exec(text, args...)
}

// mustChange runs a statement that has to change a row. No row is errNotFound.
func (tx *Tx) mustChange(query string, args ...any) error {
	n, err := tx.exec(query, args...)
	if err != nil {
		return err
	}
	if n == 0 {
		return errNotFound
	}
	return nil
}

// batchRows is how many rows one write changes when there are many to change, such as those of a removed endpoint.
// Other writes have their turn after some milliseconds.
const batchRows = 100

// job is a write that waits for its commit.
type job struct {
	fn   func(*Tx) error
	err  error         // what write returns
	done chan struct{} // closed when err is final
}

// write runs fn in a savepoint of the transaction that commitGroup shares among the waiting writes. It returns
// when fn's changes are on disk, or rolled back because fn or the commit failed. fn runs on the writing goroutine
// and must not wait for anything. ctx ends the wait only while fn has not started.
func (db *DB) write(ctx context.Context, fn func(*Tx) error) error {
	j := &job{fn: fn, done: make(chan struct{})}
	select {
	case db.jobs <- j:
		<-j.done
		return j.err
	case <-ctx.Done():
		return ctx.Err()
	case <-db.closing:
		return errClosed
	}
}

// writeResult is write for a function with a result.
func writeResult[T any](ctx context.Context, db *DB, fn func(*Tx) (T, error)) (T, error) {
	var result T
	err := db.write(ctx, func(tx *Tx) (err error) {
		result, err = fn(tx)
		return err
	})
	return result, err
}

// change writes one statement that has to change a row. No row is errNotFound.
func (db *DB) change(ctx context.Context, query string, args ...any) error {
	return db.write(ctx, func(tx *Tx) error { return tx.mustChange(query, args...) })
}

// runWrites is the writing goroutine: it commits one group of writes after another until the database is closed.
func (db *DB) runWrites() {
	defer close(db.stopped)
	for {
		select {
		case j := <-db.jobs:
			db.setBusyTimeout()
			db.commitGroup(j)
		case chore := <-db.chores:
			chore()
		case <-db.closing:
			return
		}
	}
}

// setBusyTimeout does what Hurry has asked for.
func (db *DB) setBusyTimeout() {
	select {
	case <-db.hurried:
		// It only fails with the connection. Then the next write does too, and says why.
		db.writer.script(fmt.Sprintf("PRAGMA busy_timeout = %d", busyWhenStopping.Milliseconds()))
	default:
	}
}

// commitGroup runs first and all writes that are waiting, each in a savepoint, and commits them together. One
// sync of the disk then serves all of them: with 64 clients and a sync of 1 ms, eight times the orders of a
// transaction each. Nobody is answered before the commit that holds their write is on disk.
//
// When the transaction is lost, every write of the group fails, also one that was refused before: the rows
// because of which it was refused may be gone too. Writes that still wait fail with the group without being
// run, since each would only meet the same full disk.
func (db *DB) commitGroup(first *job) {
	const most = 256
	group := []*job{first}

	lost := db.writer.with(func(c *connection) error {
		lost := db.broken() // why the whole transaction is lost, if it is
		if lost == nil {
			_, lost = c.exec("BEGIN IMMEDIATE")
		}
		for j := first; ; {
			if lost == nil {
				lost = db.runJob(c, j)
			}
			if len(group) == most {
				break
			}

			j = db.nextWaiting()
			if j == nil {
				break
			}
			group = append(group, j)
		}

		if lost == nil {
			lost = db.checkFile(c)
		}
		if lost == nil {
			lost = db.afterCommit(c.commit())
		}
		if lost != nil {
			c.exec("ROLLBACK") // It fails if SQLite has already rolled back, as it does on a full disk.
		}
		return lost
	})
	for _, j := range group {
		if lost != nil {
			j.err = lost
		}
		close(j.done)
	}
}

// nextWaiting returns a write whose sender is blocked on db.jobs, or nil.
func (db *DB) nextWaiting() *job {
	select {
	case j := <-db.jobs:
		return j
	default:
		return nil
	}
}

// runJob runs one write of the group in a savepoint. If the write fails, its changes are undone, j.err says why,
// and the other writes are not affected. That is so for most errors of SQLite too. Some, such as a full disk,
// may end the whole transaction (https://sqlite.org/lang_transaction.html); then runJob returns an error.
func (db *DB) runJob(c *connection, j *job) (lost error) {
	if _, lost := c.exec("SAVEPOINT write"); lost != nil {
		return lost
	}

	j.err = db.callJob(c, j)
	db.noteDamage(j.err)
	if j.err != nil {
		if _, lost := c.exec("ROLLBACK TO write"); lost != nil {
			// The savepoint is gone. An error of SQLite in the write is what ended the transaction, as on a
			// full disk, and says more.
			if sqliteCode(j.err) != 0 {
				return j.err
			}
			return lost
		}
	}

	_, lost = c.exec("RELEASE write")
	return lost
}

// callJob gives a write its time and turns a panic into an error.
func (db *DB) callJob(c *connection, j *job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack())
		}
	}()

	return j.fn(&Tx{c: c, db: db, now: db.Now()})
}

// newID returns a UUIDv7 (RFC 9562): the write's time in milliseconds, a counter of 12 bits that keeps the ids of
// one millisecond in order, and 62 random bits. When the counter is used up, tx.now moves on by a millisecond: a
// row that stores both its time and its id takes the id first.
func (tx *Tx) newID() string {
	const maxCount = 0xfff
	db := tx.db
	if tx.now == db.idTime && db.idCount == maxCount {
		tx.now++
		db.clock.advance(tx.now)
	}

	if tx.now == db.idTime {
		db.idCount++
	} else {
		db.idTime = tx.now
		db.idCount = 0
	}

	const version7, variant = 0x7000, 0x80
	var b [16]byte
	rand.Read(b[8:])
	binary.BigEndian.PutUint64(b[:8], uint64(db.idTime)<<16|version7|db.idCount)
	b[8] = b[8]&0x3f | variant
	return formatUUID(b)
}

// insertRow inserts a row under a new id and returns its number. insert reports how many rows it has inserted: none if
// the number is taken, or an order's reference. That happens when another process created an id in the same millisecond,
// or when the clock was set back; then the next id is tried.
func (tx *Tx) insertRow(insert func(id string) (inserted int64, err error)) (row int64, err error) {
	for {
		id := tx.newID()
		inserted, err := insert(id)
		if err != nil || inserted == 1 {
			return rowOf(id), err
		}
	}
}

func formatUUID(b [16]byte) string {
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// idLength is how many characters an id has.
const idLength = 36

// rowOf returns the number of the row that an id of an order, an event or a delivery leads to: the 60 bits of its time
// and counter. A text that is no id gives -1, which is no row's number. The rest of an id is random and protects the pay
// page: a query with an id that came from outside compares the whole id too.
func rowOf(id string) int64 {
	id = strings.TrimPrefix(id, eventPrefix)
	if len(id) != idLength {
		return -1
	}

	number, err := strconv.ParseInt(id[:8]+id[9:13]+id[15:18], 16, 64)
	if err != nil {
		return -1
	}
	return number
}

// rowIn is rowOf for a text that may begin with an id, such as our reference of a payment session.
func rowIn(text string) int64 { return rowOf(text[:min(len(text), idLength)]) }

// rowBefore is the upper bound of a list that goes on before the row of an id, or begins with the newest if there is
// none.
func rowBefore(id string) int64 {
	if id == "" {
		return lastRow
	}
	return rowOf(id)
}

// firstRow is the lowest number of a row that is created at t or later.
func firstRow(t Time) int64 { return int64(max(t, 0)) << 12 }

// lastRow is above the number of every row.
const lastRow = math.MaxInt64

// sqliteCode returns the primary result code of a SQLite error, and 0 for any other error.
func sqliteCode(err error) sqlite3.ErrNo {
	e, _ := errors.AsType[sqlite3.Error](err)
	return e.Code
}

var errClosed = errors.New("the database is closed")

// outOfService reports whether err is the machine's condition and not a defect: a full or failing disk, a database
// that another process has locked or whose file is damaged or gone, or a program that is stopping.
func outOfService(err error) bool {
	switch sqliteCode(err) {
	case sqlite3.ErrFull, sqlite3.ErrBusy, sqlite3.ErrIoErr, sqlite3.ErrCorrupt, sqlite3.ErrNotADB:
		return true
	}
	_, broken := errors.AsType[*brokenError](err)
	return broken || errors.Is(err, errClosed) || errors.Is(err, errResultUnknown)
}

// lockServing keeps a second service off a database while this one runs: both would send every webhook. The
// lock is SQLite's own, on an empty file next to the database, so it ends with the process. Only its owner may read
// that file, because whoever can read it can lock it too.
func lockServing(path string) (unlock func() error, err error) {
	name := path + "-serving"
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if errors.Is(err, fs.ErrExist) {
		err = os.Chmod(name, 0o600) // An earlier version let everybody read it.
	}
	if err != nil {
		return nil, err
	}

	lock := openSQLite(name, "_journal_mode=MEMORY&_busy_timeout=2000", 1)
	if err := lock.script("BEGIN EXCLUSIVE"); err != nil {
		lock.Close()
		if sqliteCode(err) == sqlite3.ErrBusy {
			err = fmt.Errorf("another storeorder serves %s: stop it first", path)
		}
		return nil, err
	}
	return func() error { return errors.Join(lock.script("ROLLBACK"), lock.Close()) }, nil
}

// logTo sets the log of the service.
func (db *DB) logTo(log *slog.Logger) {
	db.log = log
	db.clock.logTo(log)
}

// setAddresses records where the service and the gateways are reached, for this process and for the commands.
func (db *DB) setAddresses(publicURL string, subdomains bool, gateways map[Provider]string) error {
	db.publicURL, db.subdomains, db.gatewayURLs = publicURL, subdomains, gateways
	return db.change(context.Background(), "UPDATE settings SET public_url = ?, subdomains = ?, gateways = ?",
		publicURL, subdomains, string(mustJSON(gateways)))
}
