//go:build cgo

package main

// int sqlite3_config(int option, ...);
// static int configWithoutMemoryStatistics(void) { return sqlite3_config(9, 0); } // SQLITE_CONFIG_MEMSTATUS
import "C"

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/url"
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
	reader *sql.DB
	keys   *sql.DB     // reading connections for the keys of requests, which wait for no other query
	writer *sql.DB     // one connection, which only the writing goroutine uses
	jobs   chan *job   // unbuffered: the senders that are blocked on it are the queue
	chores chan func() // what the writing goroutine does between two groups: see onWriter

	closing    chan struct{} // closed to stop the writing goroutine
	stopWrites func()        // closes it, once
	stopped    chan struct{} // closed when the writing goroutine has stopped
	hurried    chan struct{} // see Hurry

	// The statements around a write, prepared once. The driver's cache of statements (_stmt_cache_size) leaves
	// out those without arguments and would compile these anew for every write.
	begin, savepoint, rollbackTo, release, commit, rollback *sql.Stmt

	clock *clock
	log   *slog.Logger // of the service; commands have none. Set before the first request
	file  *fileHealth
	wal   walWatch

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
const schemaVersion = 5

//go:embed schema.sql
var schema string

// migrations has a file <n>.sql for each version n after the first, which brings a file of the version before it to
// version n. A released migration never changes.
//
//go:embed migrations/*.sql
var migrations embed.FS

// openDB opens a file, brings its schema up to date and starts the writing goroutine. With create it creates a
// missing file. Its errors are sentences for the person who runs the command.
func openDB(path string, create bool) (*DB, error) {
	path, err := openFile(path, create)
	if err != nil {
		return nil, err
	}

	// SQLite need not lock a connection (_mutex=no), because database/sql lets one goroutine use it at a time. That takes
	// a twentieth off every request.
	const options = "_mutex=no&_busy_timeout=5000&_foreign_keys=on&_stmt_cache_size=64"
	const readOnly = "&mode=ro&_query_only=on"
	const durable = "&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate"
	db := &DB{
		path:    path,
		reader:  openSQLite(path, options+readOnly),
		keys:    openSQLite(path, options+readOnly),
		writer:  openSQLite(path, options+durable),
		jobs:    make(chan *job),
		chores:  make(chan func()),
		clock:   newClock(),
		file:    &fileHealth{},
		log:     slog.New(slog.DiscardHandler),
		closing: make(chan struct{}),
		stopped: make(chan struct{}),
		hurried: make(chan struct{}, 1),
	}
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

// SQLite counts the memory it uses under a lock that all its connections share, and nobody reads that count. Without it an
// order takes a tenth less time. This has to happen before the first connection
// (https://sqlite.org/c3ref/c_config_covering_index_scan.html).
func init() { C.configWithoutMemoryStatistics() }

// openSQLite returns a pool of connections to a file. The options are documented in the README of go-sqlite3.
// Nothing is opened before the first query, so only an unknown driver could be an error.
func openSQLite(path, options string) *sql.DB {
	pool, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+options)
	if err != nil {
		panic(err)
	}
	return pool
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

	db.writer.SetMaxOpenConns(1)
	if err := db.prepareWriter(); err != nil {
		return err
	}
	if err := db.migrate(); err != nil {
		return err
	}
	if err := db.rememberFile(); err != nil {
		return err
	}

	connections := max(2, runtime.GOMAXPROCS(0))
	for _, pool := range []*sql.DB{db.reader, db.keys} {
		pool.SetMaxOpenConns(connections)
		pool.SetMaxIdleConns(connections)
	}
	return db.reader.QueryRow("SELECT public_url, subdomains, gateways FROM settings").
		Scan(&db.publicURL, &db.subdomains, fromJSON{&db.gatewayURLs})
}

// inspect returns the file's schema version, before anything in it is changed: see the function inspect.
func (db *DB) inspect() (version int, err error) {
	file := openSQLite(db.path, "_busy_timeout=5000")
	defer file.Close()
	return inspect(file, db.path)
}

// inspect returns a file's schema version; 0 = it has no tables. It refuses one that is another program's, or newer than
// this program.
func inspect(file *sql.DB, path string) (version int, err error) {
	var application, tables int
	err = file.QueryRow(`
		SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
		FROM   pragma_application_id, pragma_user_version`).Scan(&application, &version, &tables)
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

// prepareWriter checks that a commit is on disk when SQLite says so, and prepares the statements around a write.
func (db *DB) prepareWriter() error {
	var synchronous int
	var journal string
	err := db.writer.QueryRow(`
		SELECT synchronous, journal_mode
		FROM   pragma_synchronous, pragma_journal_mode`).Scan(&synchronous, &journal)
	if err != nil {
		return err
	}
	const full = 2
	if synchronous != full || journal != "wal" {
		return fmt.Errorf("%s: synchronous=%d journal_mode=%s, want 2 (FULL) and wal: put it on a local disk",
			db.path, synchronous, journal)
	}

	// The data source has no options for these two. Without the first, each savepoint writes a temporary file. The
	// second cuts off a WAL that has grown large, once it begins anew.
	_, err = db.writer.Exec(fmt.Sprintf("PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = %d", walLarge))
	if err != nil {
		return err
	}

	statements := map[**sql.Stmt]string{
		&db.begin:      "BEGIN IMMEDIATE",
		&db.savepoint:  "SAVEPOINT write",
		&db.rollbackTo: "ROLLBACK TO write",
		&db.release:    "RELEASE write",
		&db.commit:     "COMMIT",
		&db.rollback:   "ROLLBACK",
	}
	for stmt, query := range statements {
		*stmt, err = db.writer.Prepare(query)
		if err != nil {
			return err
		}
	}
	return nil
}

// migrate creates the tables of a new file, or brings those of an older version up to date, in one transaction.
//
// Meanwhile foreign keys are not enforced, because a table that others refer to can only be rebuilt without them
// (https://sqlite.org/lang_altertable.html#otheralter). They are checked before the commit instead.
func (db *DB) migrate() (err error) {
	if err := db.enforceForeignKeys(false); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.enforceForeignKeys(true)) }()

	tx, err := db.writer.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()

	// The version is read inside the transaction, because another process may be migrating too.
	var version int
	if err := tx.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version == schemaVersion {
		return nil
	}

	if version == 0 {
		if _, err := tx.Exec(schema); err != nil {
			return fmt.Errorf("creating the tables of %s: %w", db.path, err)
		}
		version = schemaVersion
	}
	for ; version < schemaVersion; version++ {
		if err := migrateTo(tx, version+1); err != nil {
			return fmt.Errorf("migrating %s to version %d: %w", db.path, version+1, err)
		}
	}

	_, err = tx.Exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, version))
	if err != nil {
		return err
	}
	return tx.Commit()
}

// migrateTo brings the tables of the version before it to a version.
func migrateTo(tx *sql.Tx, version int) error {
	migration, err := migrations.ReadFile(fmt.Sprintf("migrations/%d.sql", version))
	if err != nil {
		return err
	}
	if _, err := tx.Exec(string(migration)); err != nil {
		return err
	}

	faults, err := queryAll(tx, scanValue[string], sqlForeignKeyFaults+" LIMIT 5")
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return fmt.Errorf("nothing was changed, because rows would refer to missing ones: %s",
			strings.Join(faults, "; "))
	}
	return nil
}

// enforceForeignKeys has the writing connection refuse rows that refer to missing ones, or not. Inside a transaction it
// would change nothing.
func (db *DB) enforceForeignKeys(on bool) error {
	_, err := db.writer.Exec(fmt.Sprintf("PRAGMA foreign_keys = %t", on))
	return err
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

// querier is what a query needs: the reading connections, a snapshot of them, or a write.
//
// A limit is written LIMIT +?. Without the plus, SQLite plans the query again for every value, as it does for LIKE
// (https://sqlite.org/c3ref/prepare.html): a list took a tenth longer.
type querier interface {
	Query(query string, args ...any) (*sql.Rows, error)
	QueryRow(query string, args ...any) *sql.Row
}

// row is what a scan function reads: the current row of a result.
type row interface{ Scan(dest ...any) error }

// queryOne reads the only row of a query. No row is errNotFound.
func queryOne[T any](q querier, scan func(row) (T, error), query string, args ...any) (T, error) {
	v, err := scan(q.QueryRow(query, args...))
	return v, notFound(err)
}

// queryAll reads all rows of a query, so that its connection is free for the next one. The result is never nil.
func queryAll[T any](q querier, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	all := []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// scanValue scans a row of one column.
func scanValue[T any](r row) (v T, err error) {
	err = r.Scan(&v)
	return v, err
}

// notFound turns the error of a query without a row into errNotFound and returns any other as it is.
func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errNotFound
	}
	return err
}

// fromJSON scans a column of JSON into what it points at. NULL changes nothing.
type fromJSON struct{ to any }

func (j fromJSON) Scan(text any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal([]byte(text.(string)), j.to)
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

// readResult runs fn on one snapshot of the database.
func readResult[T any](db *DB, fn func(querier) (T, error)) (result T, err error) {
	snapshot, err := db.reader.Begin()
	if err != nil {
		return result, err
	}
	defer snapshot.Rollback()
	return fn(snapshot)
}

// Tx is one write: a savepoint in the transaction of its group (see commitGroup). All its statements go to
// db.writer, whose pool has one connection, so they are part of that transaction. Everything in a write happens
// at one time, now, which is that of the database's clock. (Only newID may move it on, by a millisecond.)
type Tx struct {
	querier // reads what the transaction has written so far
	db      *DB
	now     Time
	due     bool // the write has made deliveries due
}

// exec runs a statement and returns how many rows it changed.
func (tx *Tx) exec(query string, args ...any) (changed int64, err error) {
	res, err := tx.db.writer.Exec(query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
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
		db.writer.Exec(fmt.Sprintf("PRAGMA busy_timeout = %d", busyWhenStopping.Milliseconds()))
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
	var group []*job

	lost := db.broken() // why the whole transaction is lost, if it is
	if lost == nil {
		_, lost = db.begin.Exec()
	}
	for j := first; j != nil; j = db.nextWaiting() {
		group = append(group, j)
		if lost == nil {
			lost = db.runJob(j)
		}
		if len(group) == most {
			break
		}
	}

	if lost == nil {
		lost = db.checkFile(db.writer)
	}
	if lost == nil {
		_, err := db.commit.Exec()
		lost = db.afterCommit(err)
	}
	if lost != nil {
		db.rollback.Exec() // It fails if SQLite has already rolled back, as it does on a full disk.
	}
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
func (db *DB) runJob(j *job) (lost error) {
	if _, lost := db.savepoint.Exec(); lost != nil {
		return lost
	}

	j.err = db.callJob(j)
	db.noteDamage(j.err)
	if j.err != nil {
		if _, lost := db.rollbackTo.Exec(); lost != nil {
			// The savepoint is gone. An error of SQLite in the write is what ended the transaction, as on a
			// full disk, and says more.
			if sqliteCode(j.err) != 0 {
				return j.err
			}
			return lost
		}
	}

	_, lost = db.release.Exec()
	return lost
}

// callJob gives a write its time and turns a panic into an error.
func (db *DB) callJob(j *job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack())
		}
	}()

	return j.fn(&Tx{querier: db.writer, db: db, now: db.Now()})
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

	lock := openSQLite(name, "_txlock=exclusive&_journal_mode=MEMORY&_busy_timeout=2000")
	held, err := lock.Begin()
	if err != nil {
		lock.Close()
		if sqliteCode(err) == sqlite3.ErrBusy {
			err = fmt.Errorf("another storeorder serves %s: stop it first", path)
		}
		return nil, err
	}
	return func() error { return errors.Join(held.Rollback(), lock.Close()) }, nil
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
