//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"
)

// maxMoney bounds every price and amount, in rupiah. No sum or product of the API's bounded inputs can overflow an
// int64 before it is compared with this.
const maxMoney = 999_999_999_999

// Time is milliseconds since 1970 UTC, in the database and in memory; in JSON it is ISO 8601 with Z.
type Time int64

const timeFormat = "2006-01-02T15:04:05.000Z"

func (t Time) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

func (t Time) String() string { return t.Time().Format(timeFormat) }

func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

func (t Time) MarshalJSON() ([]byte, error) { return []byte(`"` + t.String() + `"`), nil }

func (t *Time) UnmarshalJSON(b []byte) error {
	parsed, err := time.Parse(`"`+timeFormat+`"`, string(b))
	*t = Time(parsed.UnixMilli())
	return err
}

var wib = time.FixedZone("WIB", 7*60*60)

//go:embed schema.sql
var schema string

// migrations bring a file from version i to i+1; a file's version is its PRAGMA user_version.
var migrations = []string{schema}

// applicationID in a file's PRAGMA application_id, "ordr", tells it from another program's.
const applicationID = 0x6f726472

// DB is one SQLite file. Reads go to a pool of read-only connections; all writes go through write.
type DB struct {
	path    string
	w, r    *sql.DB
	jobs    chan *job
	closing chan struct{}
	stopped chan struct{}

	// Owned by the writer's goroutine.
	lastMS  int64 // the latest time given to a write: time does not run backwards between two writes
	idMS    int64 // the time and the counter of the latest id
	idCount uint16

	// Where the service and the gateways are reached; set before the first request.
	publicURL   string
	subdomains  bool
	gatewayURLs map[string]string // by provider
}

// querier is what a query needs: the reading pool or a transaction.
type querier interface {
	Query(query string, args ...any) (*sql.Rows, error)
	QueryRow(query string, args ...any) *sql.Row
}

// Tx is one write. All of it happens at one moment, now.
type Tx struct {
	writing
	db  *DB
	now Time
}

// writing is the writing connection within BEGIN IMMEDIATE and COMMIT. A sql.Tx would start a goroutine for every query.
type writing struct{ conn *sql.Conn }

func (w writing) Query(query string, args ...any) (*sql.Rows, error) {
	return w.conn.QueryContext(context.Background(), query, args...)
}

func (w writing) QueryRow(query string, args ...any) *sql.Row {
	return w.conn.QueryRowContext(context.Background(), query, args...)
}

func (w writing) Exec(query string, args ...any) (sql.Result, error) {
	return w.conn.ExecContext(context.Background(), query, args...)
}

func (db *DB) begin() (writing, error) {
	conn, err := db.w.Conn(context.Background())
	if err != nil {
		return writing{}, err
	}
	w := writing{conn}
	if _, err = w.Exec("BEGIN IMMEDIATE"); err != nil {
		conn.Close()
		return writing{}, err
	}
	return w, nil
}

// end commits, or rolls back if err is set or the commit fails, and returns what went wrong.
func (w writing) end(err error) error {
	defer w.conn.Close()
	if err == nil {
		_, err = w.Exec("COMMIT")
	}
	if err != nil {
		w.Exec("ROLLBACK") // fails if SQLite did it already
	}
	return err
}

type job struct {
	fn   func(*Tx) error
	err  error
	done chan struct{}
}

// openDB opens a file, brings its schema up to date and starts the writer. With create it makes a missing file.
// Its errors are sentences for the person who runs the command.
func openDB(path string, create bool) (*DB, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	// Made here rather than by SQLite, so that a file with secrets is readable by its owner alone.
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil, fmt.Errorf("there is no database %s: name it with -db, or make it with \"storeorder store add\"", path)
	} else if err != nil {
		return nil, fmt.Errorf("cannot open the database for writing: %w", err)
	}
	f.Close()
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_busy_timeout=5000&_foreign_keys=on&_stmt_cache_size=64"
	db := &DB{path: path, jobs: make(chan *job), closing: make(chan struct{}), stopped: make(chan struct{})}
	if err := db.inspect(dsn); err != nil {
		return nil, db.openError(err)
	}
	if db.w, err = sql.Open("sqlite3", dsn+"&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate"); err != nil {
		return nil, err
	}
	db.w.SetMaxOpenConns(1)
	if err := db.prepare(); err != nil {
		db.w.Close()
		return nil, db.openError(err)
	}
	if db.r, err = sql.Open("sqlite3", dsn+"&mode=ro&_query_only=on"); err != nil {
		db.w.Close()
		return nil, err
	}
	cores := max(2, runtime.GOMAXPROCS(0))
	db.r.SetMaxOpenConns(cores)
	db.r.SetMaxIdleConns(cores)
	go db.writer()
	return db, nil
}

func (db *DB) openError(err error) error {
	switch sqliteCode(err) {
	case sqlite3.ErrNotADB:
		return fmt.Errorf("%s is not a SQLite database: name another file with -db", db.path)
	case sqlite3.ErrCantOpen, sqlite3.ErrReadonly, sqlite3.ErrPerm, sqlite3.ErrIoErr, sqlite3.ErrFull:
		return fmt.Errorf("cannot write beside %s: its folder must be writable and the disk not full (%w)", db.path, err)
	case sqlite3.ErrBusy:
		return fmt.Errorf("%s is being written by another program: try again when that is done", db.path)
	}
	return err
}

// inspect refuses a file that is not ours or is newer than this program, before anything is changed in it.
func (db *DB) inspect(dsn string) error {
	file, err := sql.Open("sqlite3", dsn)
	if err != nil {
		return err
	}
	defer file.Close()
	var application, version, tables int
	err = file.QueryRow("SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id, pragma_user_version").
		Scan(&application, &version, &tables)
	switch {
	case err != nil:
		return err
	case application != applicationID && tables > 0:
		return fmt.Errorf("%s is another program's database: name another file with -db", db.path)
	case version > len(migrations):
		return fmt.Errorf("%s has schema version %d and this program knows up to %d: run a newer storeorder", db.path, version, len(migrations))
	}
	return nil
}

// prepare asserts that what is committed is on disk, and migrates the file.
func (db *DB) prepare() error {
	var synchronous int
	var journal string
	if err := db.w.QueryRow("SELECT synchronous, journal_mode FROM pragma_synchronous, pragma_journal_mode").Scan(&synchronous, &journal); err != nil {
		return err
	} else if synchronous != 2 || journal != "wal" {
		return fmt.Errorf("%s: synchronous=%d journal_mode=%s, want 2 (FULL) and wal: put it on a local disk", db.path, synchronous, journal)
	}
	// A savepoint's undo log is a temporary file otherwise. The DSN has no name for it; the pool keeps its one connection.
	if _, err := db.w.Exec("PRAGMA temp_store = MEMORY"); err != nil {
		return err
	}
	tx, err := db.w.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var version int // read again, as another process may be migrating too
	if err := tx.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.Exec(migrations[version] + fmt.Sprintf("\nPRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, version+1)); err != nil {
			return fmt.Errorf("migrating %s to version %d: %w", db.path, version+1, err)
		}
	}
	if err := tx.QueryRow("SELECT public_url, subdomains, gateways FROM settings").Scan(&db.publicURL, &db.subdomains, jsonTo{&db.gatewayURLs}); err != nil {
		return err
	}
	return tx.Commit()
}

// Close waits for the write under way. A write that comes later fails.
func (db *DB) Close() error {
	close(db.closing)
	<-db.stopped
	return errors.Join(db.r.Close(), db.w.Close())
}

// write runs fn in a transaction and returns when it is on disk, or rolled back because fn or the commit failed. fn
// runs on the writer's goroutine and must not block. Only while fn has not begun does ctx end the wait.
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

// change writes one statement that is to find its row and needs no time: only a Tx knows the write's.
func (db *DB) change(ctx context.Context, query string, args ...any) error {
	return db.write(ctx, func(tx *Tx) error { return tx.mustChange(query, args...) })
}

// read runs fn on one snapshot of the database.
func (db *DB) read(fn func(querier) error) error {
	tx, err := db.r.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return fn(tx)
}

func (db *DB) writer() {
	defer close(db.stopped)
	for {
		select {
		case j := <-db.jobs:
			db.commit(j)
		case <-db.closing:
			return
		}
	}
}

// commit runs first, and the writes that came while the commit before was being synced, in one transaction: each but
// the first in a savepoint of its own, so that one which is refused rolls back alone. It answers them when all is on
// disk.
func (db *DB) commit(first *job) {
	w, err := db.begin()
	if err == nil {
		if first.err = db.run(w, first.fn); first.err != nil { // it has the transaction to itself
			w.end(first.err)
			close(first.done)
			return
		}
	}
	group := []*job{first}
	for waiting := true; waiting && len(group) < 256; { // after a failure too: those behind it would fail one by one
		select {
		case j := <-db.jobs:
			group = append(group, j)
			if err == nil {
				err = db.savepoint(w, j)
			}
		default:
			waiting = false
		}
	}
	if w.conn != nil {
		err = w.end(err)
	}
	for _, j := range group {
		if err != nil {
			j.err = err
		}
		close(j.done)
	}
}

// savepoint runs one write. It returns an error only when the whole transaction is lost, as on a full disk.
func (db *DB) savepoint(w writing, j *job) error {
	if _, err := w.Exec("SAVEPOINT job"); err != nil {
		return err
	}
	if j.err = db.run(w, j.fn); j.err != nil {
		if _, err := w.Exec("ROLLBACK TO job"); err != nil && sqliteCode(j.err) != 0 {
			return j.err // which ended the transaction
		} else if err != nil {
			return err
		}
	}
	_, err := w.Exec("RELEASE job")
	return err
}

func (db *DB) run(w writing, fn func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack())
		}
	}()
	db.lastMS = max(db.lastMS, time.Now().UnixMilli())
	return fn(&Tx{w, db, Time(db.lastMS)})
}

// newID makes a UUIDv7 (RFC 9562): the write's time, a counter that keeps the ids of one millisecond in order, and
// 62 random bits. A counter that is used up moves the write's time on by a millisecond.
func (tx *Tx) newID() string {
	db := tx.db
	if ms := int64(tx.now); ms == db.idMS && db.idCount < 0xfff {
		db.idCount++
	} else {
		if ms == db.idMS {
			tx.now++
			db.lastMS = int64(tx.now)
		}
		db.idMS, db.idCount = int64(tx.now), 0
	}
	var b [16]byte
	rand.Read(b[8:])
	binary.BigEndian.PutUint64(b[:8], uint64(db.idMS)<<16|0x7000|uint64(db.idCount))
	b[8] = b[8]&0x3f | 0x80
	return formatUUID(b)
}

func formatUUID(b [16]byte) string {
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// firstID is below every id made at t or later, and above every id made before.
func firstID(t Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(max(t, 0))<<16)
	return formatUUID(b)
}

func (tx *Tx) exec(query string, args ...any) (changed int64, err error) {
	res, err := tx.Exec(query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// mustChange is exec for a statement that is to find its row.
func (tx *Tx) mustChange(query string, args ...any) error {
	n, err := tx.exec(query, args...)
	if err == nil && n == 0 {
		err = errNotFound
	}
	return err
}

// collect reads all rows of a query, so that the connection is free for the next. fields are where a row's columns go.
func collect[T any](q querier, fields func(*T) []any, query string, args ...any) ([]T, error) {
	rows, err := q.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		var v T
		if err := rows.Scan(fields(&v)...); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// one reads a query's only row; none is errNotFound.
func one[T any](q querier, fields func(*T) []any, query string, args ...any) (v T, err error) {
	if err = q.QueryRow(query, args...).Scan(fields(&v)...); errors.Is(err, sql.ErrNoRows) {
		err = errNotFound
	}
	return v, err
}

// column is where a row of one column goes.
func column[T any](v *T) []any { return []any{v} }

// jsonTo is where a column of JSON goes. NULL leaves what to points at as it is.
type jsonTo struct{ to any }

func (j jsonTo) Scan(text any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal([]byte(text.(string)), j.to)
}

// sqliteCode is the primary result code of a SQLite error, 0 for any other.
func sqliteCode(err error) sqlite3.ErrNo {
	e, _ := errors.AsType[sqlite3.Error](err)
	return e.Code
}

var errClosed = errors.New("the database is closed")

// outOfService tells whether err is the machine's state rather than a defect: a full or failing disk, a database locked
// by another process, or a program that is stopping. Nothing was written.
func outOfService(err error) bool {
	code := sqliteCode(err)
	return code == sqlite3.ErrFull || code == sqlite3.ErrBusy || code == sqlite3.ErrIoErr || errors.Is(err, errClosed)
}

// mustJSON encodes a value of ours, which cannot fail.
func mustJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// lockServing keeps a second service off the database while this one runs: both would send every webhook. The lock is
// SQLite's, on an empty file beside it, so it ends with the process.
func (db *DB) lockServing() (unlock func() error, err error) {
	lock, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: db.path + "-serving"}).EscapedPath()+"?_txlock=exclusive&_journal_mode=MEMORY&_busy_timeout=2000")
	if err != nil {
		return nil, err
	}
	held, err := lock.Begin()
	if err != nil {
		lock.Close()
		if sqliteCode(err) == sqlite3.ErrBusy {
			err = fmt.Errorf("another storeorder serves %s: stop it first", db.path)
		}
		return nil, err
	}
	return func() error { return errors.Join(held.Rollback(), lock.Close()) }, nil
}

// setAddresses records where the service and the gateways are reached, for this process and the commands beside it.
func (db *DB) setAddresses(publicURL string, subdomains bool, gateways map[string]string) error {
	db.publicURL, db.subdomains, db.gatewayURLs = publicURL, subdomains, gateways
	return db.change(context.Background(), "UPDATE settings SET public_url = ?, subdomains = ?, gateways = ?", publicURL, subdomains, string(mustJSON(gateways)))
}

// Ready tells whether the database answers.
func (db *DB) Ready() error {
	_, err := one(db.r, column[int], "SELECT only FROM settings")
	return err
}

// Backup copies the database to a new file while it is in use.
func (db *DB) Backup(ctx context.Context, out string) error {
	f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: name a new file", out)
	} else if err != nil {
		return err
	}
	f.Close()
	if err := db.backup(ctx, out); err != nil {
		os.Remove(out)
		return fmt.Errorf("backup to %s: %w", out, err)
	}
	return nil
}

func (db *DB) backup(ctx context.Context, out string) error {
	to, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: out}).EscapedPath()+"?_synchronous=FULL")
	if err != nil {
		return err
	}
	defer to.Close()
	return withConn(ctx, to, func(dst *sqlite3.SQLiteConn) error {
		return withConn(ctx, db.r, func(src *sqlite3.SQLiteConn) error {
			b, err := dst.Backup("main", src, "main")
			if err != nil {
				return err
			}
			// One step copies one snapshot. In several, every write in between would begin the copy anew.
			_, err = b.Step(-1)
			return errors.Join(err, b.Finish())
		})
	})
}

func withConn(ctx context.Context, pool *sql.DB, fn func(*sqlite3.SQLiteConn) error) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(c any) error { return fn(c.(*sqlite3.SQLiteConn)) })
}

// Check runs SQLite's integrity and foreign key checks. A sound file has no faults.
func (db *DB) Check() (version int, faults []string, err error) {
	if version, err = one(db.r, column[int], "PRAGMA user_version"); err != nil {
		return 0, nil, err
	}
	faults, err = collect(db.r, column[string], `SELECT integrity_check FROM pragma_integrity_check
		WHERE integrity_check <> 'ok' UNION ALL
		SELECT "table" || ': row ' || coalesce(rowid, '?') || ' refers to a missing row of ' || parent FROM pragma_foreign_key_check`)
	return version, faults, err
}

// Store is the shop: the tenant that every other row belongs to.
type Store struct {
	ID             string
	Name           string
	Slug           string
	Domain         string
	Plan           string
	Expiry         time.Duration // how long an order waits for its payment
	OwnerEmail     string
	CreatedAt      Time
	CatalogVersion int64  // grows with every change that Products would show
	URL            string // where its pay pages are, without a trailing slash
}

const storeColumns = "s.id, s.name, s.slug, coalesce(s.domain, ''), s.plan, s.expiry_ms * 1000000, s.owner_email, s.created_at, s.catalog_version"

func storeFields(st *Store) []any {
	return []any{&st.ID, &st.Name, &st.Slug, &st.Domain, &st.Plan, &st.Expiry, &st.OwnerEmail, &st.CreatedAt, &st.CatalogVersion}
}

// store reads one store by a query for storeColumns, and what comes after them into more.
func (db *DB) store(q querier, more []any, query string, args ...any) (Store, error) {
	st, err := one(q, func(st *Store) []any { return append(storeFields(st), more...) }, query, args...)
	st.URL = db.storeURL(st)
	return st, err
}

// storeURL is where a store's pages are: its domain, else its subdomain, else the public address.
func (db *DB) storeURL(st Store) string {
	if st.Domain == "" && !db.subdomains {
		return db.publicURL
	}
	u, err := url.Parse(db.publicURL)
	if err != nil {
		return db.publicURL
	}
	host := cmp.Or(st.Domain, st.Slug+"."+u.Hostname())
	if u.Port() != "" {
		host += ":" + u.Port()
	}
	return u.Scheme + "://" + host
}

func (db *DB) Stores() ([]Store, error) {
	all, err := collect(db.r, storeFields, "SELECT "+storeColumns+" FROM stores s ORDER BY s.id")
	for i := range all {
		all[i].URL = db.storeURL(all[i])
	}
	return all, err
}

// AddStore makes a store. Its id, address and creation are set here.
func (db *DB) AddStore(ctx context.Context, st Store, pw PasswordHash) (Store, error) {
	err := db.write(ctx, func(tx *Tx) error {
		st.ID, st.CreatedAt = tx.newID(), tx.now
		if err := tx.freeStoreNames(st); err != nil {
			return err
		}
		_, err := tx.exec(`INSERT INTO stores (id, name, slug, domain, plan, expiry_ms, owner_email, password_salt, password_hash, created_at)
			VALUES (?, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?)`,
			st.ID, st.Name, st.Slug, st.Domain, st.Plan, st.Expiry.Milliseconds(), st.OwnerEmail, pw.Salt, pw.Hash, st.CreatedAt)
		return err
	})
	st.URL = db.storeURL(st)
	return st, err
}

// SetStore changes what edit changes of a store.
func (db *DB) SetStore(ctx context.Context, id string, edit func(*Store) error) (st Store, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		if st, err = db.store(tx, nil, "SELECT "+storeColumns+" FROM stores s WHERE s.id = ?", id); err != nil {
			return err
		}
		if err := edit(&st); err != nil {
			return err
		}
		if err := tx.freeStoreNames(st); err != nil {
			return err
		}
		_, err := tx.exec(`UPDATE stores SET name = ?, slug = ?, domain = nullif(?, ''), plan = ?, expiry_ms = ?, owner_email = ?
			WHERE id = ?`, st.Name, st.Slug, st.Domain, st.Plan, st.Expiry.Milliseconds(), st.OwnerEmail, id)
		return err
	})
	st.URL = db.storeURL(st)
	return st, err
}

// freeStoreNames refuses a slug, domain or e-mail that another store has.
func (tx *Tx) freeStoreNames(st Store) error {
	for name, value := range map[string]string{"slug": st.Slug, "domain": st.Domain, "owner_email": st.OwnerEmail} {
		n, err := one(tx, column[int], "SELECT count(*) FROM stores WHERE "+name+" = ? AND id <> ?", value, st.ID)
		if err != nil {
			return err
		} else if n > 0 {
			return &Refusal{Code: "VALIDATION_FAILED", Message: fmt.Sprintf("Another store has the %s %q.", strings.TrimPrefix(name, "owner_"), value)}
		}
	}
	return nil
}

func words[T ~string](list []T) []string {
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = string(v)
	}
	return all
}

// cut shortens a text to at most n characters.
func cut(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n])
	}
	return text
}
