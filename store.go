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
	"maps"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
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

func (t Time) Time() time.Time              { return time.UnixMilli(int64(t)).UTC() }
func (t Time) String() string               { return t.Time().Format(timeFormat) }
func (t Time) Add(d time.Duration) Time     { return t + Time(d.Milliseconds()) }
func (t Time) MarshalJSON() ([]byte, error) { return []byte(`"` + t.String() + `"`), nil }
func (t *Time) UnmarshalJSON(b []byte) error {
	parsed, err := time.Parse(`"`+timeFormat+`"`, string(b))
	*t = Time(parsed.UnixMilli())
	return err
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

type Status string

const (
	Pending              Status = "pending"
	AwaitingVerification Status = "awaiting_verification"
	Paid                 Status = "paid"
	Failed               Status = "failed"
	Expired              Status = "expired"
	Refunded             Status = "refunded"
)

var statuses = []Status{Pending, AwaitingVerification, Paid, Failed, Expired, Refunded}

// Order is what the API shows of an order, less its two addresses: see withAddresses.
type Order struct {
	ID                string `json:"id"`
	Status            Status `json:"status"`
	PaymentReference  string `json:"payment_reference"`
	Amount            int64  `json:"amount"` // Subtotal and the payment method's fee
	Subtotal          int64  `json:"subtotal"`
	Currency          string `json:"currency"`
	SettlementChannel string `json:"settlement_channel"`
	PaymentProvider   string `json:"payment_provider"`
	PaymentMethod     string `json:"payment_method"`
	Buyer             Buyer  `json:"buyer"`
	Items             []Item `json:"items"`
	ExternalID        string `json:"external_id,omitempty"`
	ReturnURL         string `json:"return_url,omitempty"`
	ExpiresAt         Time   `json:"expires_at"`
	CreatedAt         Time   `json:"created_at"`
	UpdatedAt         Time   `json:"updated_at"`
	RequiresPayment   bool   `json:"requires_payment"` // the buyer has still to pay
}

type Buyer struct {
	Name  string `json:"name"`
	Email string `json:"email,omitempty"`
	Phone string `json:"phone,omitempty"`
}

type Item struct {
	Type      string `json:"type"` // product or bundle
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price"`
	LineTotal int64  `json:"line_total"`
	ProductID string `json:"product_id,omitempty"`
	BundleID  string `json:"bundle_id,omitempty"`
}

// part is a product that an order consists of, after its bundles were taken apart.
type part struct {
	ProductID string `json:"product_id"`
	Quantity  int64  `json:"quantity"`
	Held      bool   `json:"held"` // taken from a limited stock, to be given back if the order comes to nothing
	items     []int  // the places of the order's items that need it
}

// NewOrder is a valid request to create an order. Of an item's ids one is set.
type NewOrder struct {
	Items         []NewItem
	Buyer         Buyer
	PaymentMethod string
	ExternalID    string
	ReturnURL     string
}

type NewItem struct {
	ProductID, BundleID string
	Quantity            int64
}

// Product is a product or, with Items, a bundle.
type Product struct {
	ID          string       `json:"id"`
	Type        string       `json:"type"`
	Slug        string       `json:"slug"`
	Title       string       `json:"title"`
	Description string       `json:"description"`
	Price       int64        `json:"price"`
	Currency    string       `json:"currency"`
	ImageURL    *string      `json:"image_url"`
	Stock       *int64       `json:"stock"`     // pieces left, nil: unlimited
	Available   bool         `json:"available"` // stock is left
	CreatedAt   Time         `json:"created_at"`
	UpdatedAt   Time         `json:"updated_at"`
	Items       []BundleItem `json:"items,omitempty"`
	Published   bool         `json:"-"`
}

type BundleItem struct {
	ProductID string `json:"product_id"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	Slug      string `json:"-"`
}

type PaymentMethod struct {
	Code              string `json:"code"`
	Name              string `json:"name"`
	Provider          string `json:"provider"`
	SettlementChannel string `json:"settlement_channel"`
	Fee               int64  `json:"fee"`
	MinAmount         *int64 `json:"min_amount"` // of the subtotal, nil: no bound
	MaxAmount         *int64 `json:"max_amount"`
	Instructions      string `json:"instructions"`
	Enabled           bool   `json:"-"`
	Usable            bool   `json:"-"` // enabled, and its gateway can be asked; a store that takes real money offers no sandbox
}

// Refusal is a request turned down by a rule: nothing was changed, and its words may be shown to whoever asked.
type Refusal struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Details []Detail `json:"details,omitempty"`
}

type Detail struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (r *Refusal) Error() string {
	text := r.Message
	for _, d := range r.Details {
		text += "\n  " + d.Field + " " + d.Message
	}
	return text
}

var errNotFound = &Refusal{Code: "NOT_FOUND", Message: "Not found."}

// ---- The database

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

// ---- Stores and API keys

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

// SetPassword gives the owner another password and ends his sign-ins.
func (db *DB) SetPassword(ctx context.Context, storeID string, pw PasswordHash) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := tx.exec("DELETE FROM owner_sessions WHERE store_id = ?", storeID); err != nil {
			return err
		}
		return tx.mustChange("UPDATE stores SET password_salt = ?, password_hash = ? WHERE id = ?", pw.Salt, pw.Hash, storeID)
	})
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

// PasswordHash is an owner's password as it is kept: PBKDF2-SHA-256, 600,000 rounds.
type PasswordHash struct{ Salt, Hash []byte }

// APIKey is a key without its secret, of which only a hash is kept.
type APIKey struct {
	ID         string `json:"key_id"`
	StoreID    string `json:"store_id"`
	Name       string `json:"name"`
	CreatedAt  Time   `json:"created_at"`
	LastUsedAt *Time  `json:"last_used_at"`
	RevokedAt  *Time  `json:"revoked_at"`
}

func (db *DB) AddKey(ctx context.Context, storeID, name string, hash [32]byte) (id string, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		id = tx.newID()
		return tx.mustChange(`INSERT INTO api_keys (id, store_id, name, hash, created_at)
			SELECT ?, id, ?, ?, ? FROM stores WHERE id = ?`, id, name, hash[:], tx.now, storeID)
	})
	return id, err
}

const sqlKeys = "SELECT id, store_id, name, created_at, last_used_at, revoked_at FROM api_keys WHERE store_id = ? ORDER BY id"

// Keys lists a store's keys, the oldest first.
func (db *DB) Keys(storeID string) ([]APIKey, error) {
	return collect(db.r, func(k *APIKey) []any {
		return []any{&k.ID, &k.StoreID, &k.Name, &k.CreatedAt, &k.LastUsedAt, &k.RevokedAt}
	}, sqlKeys, storeID)
}

// RevokeKey ends a key at once and for ever. storeID "" stands for any store: only the command line may say so.
func (db *DB) RevokeKey(ctx context.Context, storeID, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange("UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ? AND ? IN (store_id, '')", tx.now, id, storeID)
	})
}

const sqlKeyLookup = "SELECT " + storeColumns + `, k.id FROM api_keys k JOIN stores s ON s.id = k.store_id
	WHERE k.hash = ? AND k.revoked_at IS NULL`

// StoreOfKey finds the store that a key opens. It is read every time: a revoked key ends with the next request.
func (db *DB) StoreOfKey(hash [32]byte) (keyID string, st Store, err error) {
	st, err = db.store(db.r, []any{&keyID}, sqlKeyLookup, hash[:])
	return keyID, st, err
}

// NoteKeyUse records when keys were last used.
func (db *DB) NoteKeyUse(ctx context.Context, used map[string]Time) error {
	return db.write(ctx, func(tx *Tx) error {
		for id, at := range used {
			if _, err := tx.exec("UPDATE api_keys SET last_used_at = ? WHERE id = ?", at, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// ---- Catalog and payment methods

// Catalog is the content of a catalog file. An entry whose field was left out (see Has) keeps what the store has.
type Catalog struct {
	Products, Bundles []CatalogEntry
	PaymentMethods    []MethodEntry
}

type CatalogEntry struct {
	Product
	Has map[string]bool // fields that were given
}

type MethodEntry struct {
	PaymentMethod
	Has map[string]bool
}

// ImportCatalog adds or replaces entries by slug or code: all of them or none.
func (db *DB) ImportCatalog(ctx context.Context, storeID string, c Catalog) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := one(tx, column[string], "SELECT id FROM stores WHERE id = ?", storeID); err != nil {
			return err
		}
		for _, e := range c.Products {
			if err := tx.putProduct(storeID, e); err != nil {
				return err
			}
		}
		for i, e := range c.Bundles {
			if err := tx.putBundle(storeID, e, fmt.Sprintf("bundles[%d]", i)); err != nil {
				return err
			}
		}
		for _, e := range c.PaymentMethods {
			if err := tx.putMethod(storeID, e); err != nil {
				return err
			}
		}
		return nil
	})
}

func (tx *Tx) putProduct(storeID string, e CatalogEntry) error {
	_, err := tx.exec(`INSERT INTO products (id, store_id, slug, title, title_folded, description, price, stock, image_url, published, created_at, updated_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)
		ON CONFLICT (store_id, slug) DO UPDATE SET title = ?4, title_folded = ?5, price = ?7, updated_at = ?11,
			description = iif(?12, ?6, description), stock = iif(?13, ?8, stock),
			image_url = iif(?14, ?9, image_url), published = iif(?15, ?10, published)`,
		tx.newID(), storeID, e.Slug, e.Title, strings.ToLower(e.Title), e.Description, e.Price, e.Stock, e.ImageURL, e.Published, tx.now,
		e.Has["description"], e.Has["stock"], e.Has["image_url"], e.Has["published"])
	return err
}

// putBundle is putProduct for a bundle; path names its entry in errors.
func (tx *Tx) putBundle(storeID string, e CatalogEntry, path string) error {
	id, err := one(tx, column[string], `INSERT INTO bundles (id, store_id, slug, title, title_folded, description, price, image_url, published, created_at, updated_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)
		ON CONFLICT (store_id, slug) DO UPDATE SET title = ?4, title_folded = ?5, price = ?7, updated_at = ?10,
			description = iif(?11, ?6, description), image_url = iif(?12, ?8, image_url), published = iif(?13, ?9, published)
		RETURNING id`,
		tx.newID(), storeID, e.Slug, e.Title, strings.ToLower(e.Title), e.Description, e.Price, e.ImageURL, e.Published, tx.now,
		e.Has["description"], e.Has["image_url"], e.Has["published"])
	if err != nil {
		return err
	}
	if _, err := tx.exec("DELETE FROM bundle_items WHERE bundle_id = ?", id); err != nil {
		return err
	}
	for i, item := range e.Items {
		n, err := tx.exec(`INSERT INTO bundle_items (bundle_id, position, product_id, quantity)
			SELECT ?, ?, id, ? FROM products WHERE store_id = ? AND slug = ?`, id, i, item.Quantity, storeID, item.Slug)
		if err != nil {
			return err
		} else if n == 0 {
			return &Refusal{Code: "VALIDATION_FAILED", Message: "The catalog has a wrong entry.", Details: []Detail{
				{fmt.Sprintf("%s.items[%d].slug", path, i), fmt.Sprintf("names no product of the store: %q", item.Slug)}}}
		}
	}
	return nil
}

func (tx *Tx) putMethod(storeID string, e MethodEntry) error {
	_, err := tx.exec(`INSERT INTO payment_methods (store_id, code, name, provider, fee, instructions, min_amount, max_amount, enabled)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
		ON CONFLICT (store_id, code) DO UPDATE SET name = ?3, provider = ?4, fee = iif(?10, ?5, fee),
			instructions = iif(?11, ?6, instructions), min_amount = iif(?12, ?7, min_amount),
			max_amount = iif(?13, ?8, max_amount), enabled = iif(?14, ?9, enabled)`,
		storeID, e.Code, e.Name, e.Provider, e.Fee, e.Instructions, e.MinAmount, e.MaxAmount, e.Enabled,
		e.Has["fee"], e.Has["instructions"], e.Has["min_amount"], e.Has["max_amount"], e.Has["enabled"])
	return err
}

// A bundle's stock is how often it can be made of its parts.
const (
	productColumns = `p.id, 'product', p.slug, p.title, p.description, p.price, 'IDR', p.image_url, p.created_at, p.updated_at, p.published,
	p.stock, p.stock IS NOT 0, NULL`
	bundleStock   = "(SELECT min(c.stock / i.quantity) FROM bundle_items i JOIN products c ON c.id = i.product_id WHERE i.bundle_id = p.id AND c.stock IS NOT NULL)"
	bundleColumns = `p.id, 'bundle', p.slug, p.title, p.description, p.price, 'IDR', p.image_url, p.created_at, p.updated_at, p.published,
	` + bundleStock + ", " + bundleStock + ` IS NOT 0,
	(SELECT json_group_array(json_object('product_id', c.id, 'title', c.title, 'quantity', i.quantity)) FROM
		(SELECT * FROM bundle_items WHERE bundle_id = p.id ORDER BY position) i JOIN products c ON c.id = i.product_id)`
	sqlProducts      = "SELECT " + productColumns + " FROM products p WHERE p.store_id = ? AND p.published = 1 AND instr(p.title_folded, ?) > 0 ORDER BY p.title, p.id LIMIT ? OFFSET ?"
	sqlBundles       = "SELECT " + bundleColumns + " FROM bundles p WHERE p.store_id = ? AND p.published = 1 AND instr(p.title_folded, ?) > 0 ORDER BY p.title, p.id LIMIT ? OFFSET ?"
	sqlProductsCount = "SELECT count(*) FROM products WHERE store_id = ? AND published = 1 AND instr(title_folded, ?) > 0"
)

func productFields(p *Product) []any {
	return []any{&p.ID, &p.Type, &p.Slug, &p.Title, &p.Description, &p.Price, &p.Currency, &p.ImageURL, &p.CreatedAt, &p.UpdatedAt,
		&p.Published, &p.Stock, &p.Available, jsonTo{&p.Items}}
}

// Products lists what is published: products, then bundles, each by title and id, as one list that offset and limit
// run over. kind is product, bundle or "" for both; q is looked for in titles.
func (db *DB) Products(storeID, kind, q string, offset, limit int) (products, bundles []Product, more bool, err error) {
	products, bundles, q = []Product{}, []Product{}, strings.ToLower(q)
	if kind != "bundle" {
		if products, err = collect(db.r, productFields, sqlProducts, storeID, q, limit+1, offset); err != nil {
			return nil, nil, false, err
		}
		if len(products) > limit {
			return products[:limit], bundles, true, nil
		}
		if limit -= len(products); offset > 0 {
			before, err := one(db.r, column[int], sqlProductsCount, storeID, q)
			if err != nil {
				return nil, nil, false, err
			}
			offset = max(0, offset-before)
		}
	}
	if kind != "product" {
		if bundles, err = collect(db.r, productFields, sqlBundles, storeID, q, limit+1, offset); len(bundles) > limit {
			bundles, more = bundles[:limit], true
		}
	}
	return products, bundles, more, err
}

const (
	methodColumns = `m.code, m.name, m.provider, iif(m.provider = 'manual', 'manual', 'gateway'), m.fee, m.min_amount, m.max_amount, m.instructions, m.enabled,
		m.enabled = 1 AND CASE m.provider WHEN 'manual' THEN 1
		WHEN 'sandbox' THEN NOT EXISTS (SELECT 1 FROM gateways g WHERE g.store_id = m.store_id AND g.mode = 'live')
		ELSE EXISTS (SELECT 1 FROM gateways g WHERE g.store_id = m.store_id AND g.provider = m.provider) END`
	sqlMethods = "SELECT " + methodColumns + " FROM payment_methods m WHERE m.store_id = ? ORDER BY m.code"
	sqlMethod  = "SELECT " + methodColumns + " FROM payment_methods m WHERE m.store_id = ? AND m.code = ?"
)

func methodFields(m *PaymentMethod) []any {
	return []any{&m.Code, &m.Name, &m.Provider, &m.SettlementChannel, &m.Fee, &m.MinAmount, &m.MaxAmount, &m.Instructions, &m.Enabled, &m.Usable}
}

// takes tells whether a method may pay an order of this subtotal.
func (m PaymentMethod) takes(subtotal int64) bool {
	return (m.MinAmount == nil || subtotal >= *m.MinAmount) && (m.MaxAmount == nil || subtotal <= *m.MaxAmount)
}

// PaymentMethods lists a store's methods by code, usable or not.
func (db *DB) PaymentMethods(storeID string) ([]PaymentMethod, error) {
	return collect(db.r, methodFields, sqlMethods, storeID)
}

// PaymentMethod reads one method of a store, usable or not.
func (db *DB) PaymentMethod(storeID, code string) (PaymentMethod, error) {
	return one(db.r, methodFields, sqlMethod, storeID, code)
}

// ---- Orders

const (
	sqlSaleable = `SELECT 'product', id, title, price, id, 1 FROM products WHERE store_id = ?1 AND published = 1 AND id IN (SELECT value FROM json_each(?2))
		UNION ALL SELECT 'bundle', b.id, b.title, b.price, i.product_id, i.quantity FROM bundles b JOIN bundle_items i ON i.bundle_id = b.id
		WHERE b.store_id = ?1 AND b.published = 1 AND b.id IN (SELECT value FROM json_each(?2))`
	// What an Idempotency-Key made, with the event that carries it as the first answer showed it.
	sqlIdempotency = `SELECT k.order_id, k.body_hash, v.body FROM idempotency_keys k JOIN events v ON v.order_id = k.order_id AND v.sequence = 1
		WHERE k.store_id = ? AND k.key = ? AND k.created_at > ?`
	sqlEndpointsOf = `SELECT id FROM endpoints e WHERE store_id = ?
		AND (events = '[]' OR EXISTS (SELECT 1 FROM json_each(e.events) WHERE value = ?))`
	idempotencyKept = 48 * time.Hour
)

// saleable is a product or bundle as an order finds it, with one of its parts.
type saleable struct {
	kind, id, title string
	price           int64
	part            part
}

// CreateOrder makes an order: prices are read, stock is taken and the event is written in one transaction. It returns
// the order's JSON with its addresses. With an idempotencyKey, a body that was sent before gets the first answer again.
func (db *DB) CreateOrder(ctx context.Context, st Store, in NewOrder, idempotencyKey string, bodyHash [32]byte) (id string, order []byte, replayed bool, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		if idempotencyKey != "" {
			var hash []byte
			var created struct {
				Data struct{ Order json.RawMessage }
			}
			id, err = one(tx, func(id *string) []any { return []any{id, &hash, jsonTo{&created}} },
				sqlIdempotency, st.ID, idempotencyKey, tx.now.Add(-idempotencyKept))
			switch {
			case err == nil && !bytes.Equal(hash, bodyHash[:]):
				return &Refusal{Code: "IDEMPOTENCY_KEY_REUSED", Message: "This Idempotency-Key was used with another body: send a new key with a new order."}
			case err == nil:
				order, replayed = created.Data.Order, true
				return nil
			case err != errNotFound:
				return err
			}
		}
		if id, order, err = tx.createOrder(st, in); err != nil || idempotencyKey == "" {
			return err
		}
		_, err = tx.exec("INSERT OR REPLACE INTO idempotency_keys (store_id, key, body_hash, order_id, created_at) VALUES (?, ?, ?, ?, ?)",
			st.ID, idempotencyKey, bodyHash[:], id, tx.now)
		return err
	})
	return id, order, replayed, err
}

// createOrder is CreateOrder within a transaction.
func (tx *Tx) createOrder(st Store, in NewOrder) (id string, shown []byte, err error) {
	if in.ExternalID != "" {
		other, err := one(tx, column[string], "SELECT id FROM orders WHERE store_id = ? AND external_id = ?", st.ID, in.ExternalID)
		if err == nil {
			return "", nil, &Refusal{"DUPLICATE_EXTERNAL_ID", "Order " + other + " has this external_id.",
				[]Detail{{"external_id", "must differ from every other order's"}}}
		} else if err != errNotFound {
			return "", nil, err
		}
	}
	o := &Order{ID: tx.newID(), Status: Pending, Currency: "IDR", Buyer: in.Buyer, ExternalID: in.ExternalID, ReturnURL: in.ReturnURL,
		CreatedAt: tx.now, UpdatedAt: tx.now, ExpiresAt: tx.now.Add(st.Expiry)}
	parts, err := tx.price(o, st.ID, in.Items)
	if err != nil {
		return "", nil, err
	}
	if err := tx.choosePayment(o, st.ID, in.PaymentMethod); err != nil {
		return "", nil, err
	}
	var short []Detail
	for i := range parts {
		if enough, err := tx.takeStock(&parts[i]); err != nil {
			return "", nil, err
		} else if !enough {
			for _, item := range parts[i].items {
				short = append(short, Detail{fmt.Sprintf("items[%d].quantity", item), "is more than is left: order fewer, or without it"})
			}
		}
	}
	if len(short) > 0 {
		return "", nil, &Refusal{"OUT_OF_STOCK", "There is not enough stock for this order.", short}
	}
	var stored []byte
	for made := int64(0); made == 0; { // until nobody has the reference
		o.PaymentReference = newReference(tx.now)
		stored = mustJSON(o)
		if made, err = tx.exec(`INSERT INTO orders (id, store_id, expires_at, parts, json) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (store_id, reference) DO NOTHING`, o.ID, st.ID, o.ExpiresAt, string(mustJSON(parts)), string(stored)); err != nil {
			return "", nil, err
		}
	}
	if err := tx.addHistory(o.ID, "", o.Status, "api", "created"); err != nil {
		return "", nil, err
	}
	if err := tx.addTotals(st.ID, tx.now, 1, 0); err != nil { // an order that is paid at once is free
		return "", nil, err
	}
	shown = withAddresses(nil, stored, st.payPage(o.ID), "")
	err = tx.addEvent(st.ID, o.ID, "orderCreated", 1, shown)
	if err == nil && o.Status == Paid {
		err = tx.addEvent(st.ID, o.ID, "orderPaid", 2, shown)
	}
	return o.ID, shown, err
}

// price fills in the order's items and subtotal from what is published now, and takes bundles apart.
func (tx *Tx) price(o *Order, storeID string, items []NewItem) ([]part, error) {
	var ids []string
	for _, in := range items {
		ids = append(ids, in.ProductID+in.BundleID)
	}
	rows, err := collect(tx, func(s *saleable) []any {
		return []any{&s.kind, &s.id, &s.title, &s.price, &s.part.ProductID, &s.part.Quantity}
	}, sqlSaleable, storeID, string(mustJSON(ids)))
	if err != nil {
		return nil, err
	}
	found := map[string][]saleable{}
	for _, s := range rows {
		found[s.kind+s.id] = append(found[s.kind+s.id], s)
	}
	var unknown, tooMuch []Detail
	parts := map[string]part{}
	for i, in := range items {
		kind := "product"
		if in.BundleID != "" {
			kind = "bundle"
		}
		of := found[kind+in.ProductID+in.BundleID]
		if len(of) == 0 {
			unknown = append(unknown, Detail{fmt.Sprintf("items[%d].%s_id", i, kind), "is no published " + kind + " of this store: take one from GET /v1/products"})
			continue
		}
		item := Item{Type: kind, Title: of[0].title, Quantity: in.Quantity, UnitPrice: of[0].price, LineTotal: of[0].price * in.Quantity,
			ProductID: in.ProductID, BundleID: in.BundleID}
		if item.LineTotal > maxMoney {
			tooMuch = append(tooMuch, Detail{fmt.Sprintf("items[%d].quantity", i), fmt.Sprintf("makes the line exceed %d", int64(maxMoney))})
		}
		o.Items = append(o.Items, item)
		o.Subtotal += item.LineTotal
		for _, s := range of {
			id := s.part.ProductID
			parts[id] = part{ProductID: id, Quantity: parts[id].Quantity + s.part.Quantity*in.Quantity, items: append(parts[id].items, i)}
		}
	}
	if len(unknown) > 0 {
		return nil, &Refusal{"PRODUCT_UNAVAILABLE", "Something in this order is not for sale.", unknown}
	}
	if len(tooMuch) == 0 && o.Subtotal > maxMoney {
		tooMuch = []Detail{{"items", fmt.Sprintf("come to more than %d in all", int64(maxMoney))}}
	}
	if len(tooMuch) > 0 {
		return nil, invalid(tooMuch...)
	}
	return slices.SortedFunc(maps.Values(parts), func(a, b part) int { return strings.Compare(a.ProductID, b.ProductID) }), nil
}

// invalid refuses a well-formed body with wrong fields.
func invalid(details ...Detail) *Refusal {
	return &Refusal{"VALIDATION_FAILED", "The request has wrong fields: see details.", details}
}

// choosePayment fills in how the order is paid and its amount.
func (tx *Tx) choosePayment(o *Order, storeID, code string) error {
	if o.Subtotal == 0 {
		o.Status, o.PaymentMethod, o.PaymentProvider, o.SettlementChannel = Paid, "none", "none", "none"
		return nil
	}
	if code == "" {
		return invalid(Detail{"payment_method", "is needed: take a code from GET /v1/payment-methods"})
	}
	m, err := one(tx, methodFields, sqlMethod, storeID, code)
	if err == errNotFound || err == nil && !m.Usable {
		return &Refusal{"PAYMENT_METHOD_UNAVAILABLE", "This payment method cannot be used.",
			[]Detail{{"payment_method", "is not usable: take a code from GET /v1/payment-methods"}}}
	} else if err != nil {
		return err
	}
	if !m.takes(o.Subtotal) {
		return &Refusal{"PAYMENT_METHOD_UNAVAILABLE", "This payment method cannot be used for this subtotal.",
			[]Detail{{"payment_method", fmt.Sprintf("does not take a subtotal of %d: ask GET /v1/payment-methods?amount=%d", o.Subtotal, o.Subtotal)}}}
	}
	if o.Amount = o.Subtotal + m.Fee; o.Amount > maxMoney {
		return invalid(Detail{"items", fmt.Sprintf("come to more than %d with the fee", int64(maxMoney))})
	}
	o.PaymentMethod, o.PaymentProvider, o.SettlementChannel, o.RequiresPayment = m.Code, m.Provider, m.SettlementChannel, true
	return nil
}

// takeStock takes a part out of a limited stock. It takes nothing when there is not enough.
func (tx *Tx) takeStock(p *part) (enough bool, err error) {
	n, err := tx.exec("UPDATE products SET stock = stock - ?1 WHERE id = ?2 AND stock >= ?1", p.Quantity, p.ProductID)
	if p.Held = n == 1; err != nil || p.Held {
		return p.Held, err
	}
	return one(tx, column[bool], "SELECT stock IS NULL FROM products WHERE id = ?", p.ProductID)
}

func (tx *Tx) giveBackStock(p *part) error {
	if !p.Held {
		return nil
	}
	p.Held = false
	_, err := tx.exec("UPDATE products SET stock = stock + ? WHERE id = ?", p.Quantity, p.ProductID)
	return err
}

var wib = time.FixedZone("WIB", 7*60*60)

// newReference makes what a buyer quotes with a transfer: the day in WIB and six characters of Crockford's base32,
// which has no letters to mistake.
func newReference(t Time) string {
	var b [6]byte
	rand.Read(b[:])
	for i := range b {
		b[i] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[b[i]%32]
	}
	return "INV-" + t.Time().In(wib).Format("20060102") + "-" + string(b[:])
}

func (st Store) payPage(orderID string) string { return st.URL + "/pay/" + orderID }

// withAddresses appends an order's JSON and its two addresses to dst. paymentURL "" is the pay page too. payPage is
// made of a checked host and an id, and needs no escaping.
func withAddresses[T string | []byte](dst []byte, order T, payPage, paymentURL string) []byte {
	dst = append(dst, order[:len(order)-1]...)
	dst = append(dst, `,"checkout_url":"`...)
	dst = append(dst, payPage...)
	dst = append(dst, `","payment_url":`...)
	if paymentURL != "" {
		return append(append(dst, mustJSON(paymentURL)...), '}')
	}
	dst = append(dst, '"')
	dst = append(dst, payPage...)
	return append(dst, `"}`...)
}

func (tx *Tx) addHistory(orderID string, from, to Status, actor, reason string) error {
	_, err := tx.exec(`INSERT INTO order_history (order_id, position, at, from_status, to_status, actor, reason)
		SELECT ?1, coalesce(max(position), 0) + 1, ?2, ?3, ?4, ?5, ?6 FROM order_history WHERE order_id = ?1`,
		orderID, tx.now, from, to, actor, reason)
	return err
}

// addEvent writes an event of an order, shown with its addresses, and one delivery for each endpoint that wants it. An
// endpoint that is off gets its row too: the delivery waits until the endpoint is on again.
func (tx *Tx) addEvent(storeID, orderID, name string, sequence int64, shown []byte) error {
	endpoints, err := collect(tx, column[string], sqlEndpointsOf, storeID, name)
	if err != nil {
		return err
	}
	return tx.insertEvent(storeID, orderID, name, sequence, fmt.Appendf(nil, `{"order":%s}`, shown), endpoints)
}

// insertEvent writes an event, one message to the store's endpoints. Its body is made once, so that every attempt sends
// the same bytes.
func (tx *Tx) insertEvent(storeID, orderID, name string, sequence int64, data []byte, endpoints []string) error {
	id := "evt_" + tx.newID()
	body := fmt.Sprintf(`{"id":"%s","event":"%s","created_at":"%s","store_id":"%s","sequence":%d,"data":%s}`, id, name, tx.now, storeID, sequence, data)
	if _, err := tx.exec("INSERT INTO events (id, store_id, order_id, sequence, event, body, created_at) VALUES (?, ?, nullif(?, ''), ?, ?, ?, ?)",
		id, storeID, orderID, sequence, name, body, tx.now); err != nil {
		return err
	}
	for _, endpoint := range endpoints {
		if _, err := tx.exec("INSERT INTO deliveries (id, endpoint_id, event_id, next_at) VALUES (?, ?, ?, ?)",
			tx.newID(), endpoint, id, tx.now); err != nil {
			return err
		}
	}
	return nil
}

// Move is something that happens to an order.
type Move string

const (
	BuyerClaims       Move = "buyer says paid"
	GatewayChallenges Move = "gateway challenge"
	GatewaySettles    Move = "gateway settlement"
	GatewayCancels    Move = "gateway cancel"
	GatewayRefunds    Move = "gateway refund"
	GatewayReverses   Move = "gateway reversal"
	OwnerApproves     Move = "approve"
	OwnerRejects      Move = "reject"
	OwnerCancels      Move = "cancel"
	OwnerRefunds      Move = "refund"
	ClockExpires      Move = "expire"
)

// moves is the order state machine: from where each move leads where. Whatever is not here is refused.
var moves = map[Move]struct {
	from  []Status
	to    Status
	actor string
}{
	BuyerClaims:       {[]Status{Pending}, AwaitingVerification, "buyer"},
	GatewayChallenges: {[]Status{Pending}, AwaitingVerification, "gateway"},
	GatewaySettles:    {[]Status{Pending, AwaitingVerification, Expired, Failed}, Paid, "gateway"},
	GatewayCancels:    {[]Status{Pending, AwaitingVerification}, Failed, "gateway"},
	GatewayRefunds:    {[]Status{Paid}, Refunded, "gateway"},
	GatewayReverses:   {[]Status{Paid}, Failed, "gateway"},
	OwnerApproves:     {[]Status{Pending, AwaitingVerification, Expired, Failed}, Paid, "owner"},
	OwnerRejects:      {[]Status{AwaitingVerification}, Failed, "owner"},
	OwnerCancels:      {[]Status{Pending}, Failed, "owner"},
	OwnerRefunds:      {[]Status{Paid}, Refunded, "owner"},
	ClockExpires:      {[]Status{Pending}, Expired, "clock"},
}

// providers of payment methods. The bank transfer that a person checks is manual; the others are gateways.
var providers = []string{"manual", "sandbox", "midtrans", "xendit"}

var eventOf = map[Status]string{AwaitingVerification: "orderAwaitingVerification", Paid: "orderPaid", Failed: "orderFailed",
	Expired: "orderExpired", Refunded: "orderRefunded"}

// eventNames are the events that an endpoint can ask for.
var eventNames = append([]string{"orderCreated"}, slices.Sorted(maps.Values(eventOf))...)

// move changes an order's state: its row, its stock, its history and its event, or nothing. storeID "" stands for any
// store.
func (tx *Tx) move(storeID, orderID string, m Move, reason string) (*Order, error) {
	rule, o := moves[m], &Order{}
	var parts []part
	var oversold bool
	var sequence int64 // of the event that this makes
	st, err := tx.db.store(tx, []any{jsonTo{o}, jsonTo{&parts}, &sequence}, "SELECT "+storeColumns+`, o.json, o.parts,
		(SELECT coalesce(max(sequence), 0) + 1 FROM events WHERE order_id = o.id)
		FROM orders o JOIN stores s ON s.id = o.store_id WHERE o.id = ? AND ? IN (o.store_id, '')`, orderID, storeID)
	if err != nil {
		return nil, err
	}
	from := o.Status
	if !slices.Contains(rule.from, from) {
		return nil, &Refusal{Code: "ORDER_STATE", Message: fmt.Sprintf("The order is %s: %q is possible only while it is %s.", from, m, strings.Join(words(rule.from), " or "))}
	}
	for i := range parts {
		switch {
		case rule.to == Failed || rule.to == Expired:
			err = tx.giveBackStock(&parts[i])
		case from == Failed || from == Expired: // paid after all
			var enough bool
			enough, err = tx.takeStock(&parts[i])
			oversold = oversold || !enough
		}
		if err != nil {
			return nil, err
		}
	}
	o.Status, o.UpdatedAt, o.RequiresPayment = rule.to, tx.now, false
	changed := mustJSON(o)
	approved := m == OwnerApproves && from == AwaitingVerification // the gateway's later word on that payment counts
	if err := tx.mustChange(`UPDATE orders SET json = ?1, parts = ?2, oversold = ?3, paid_by = iif(?4, (SELECT id FROM payment_sessions
		WHERE order_id = ?5 AND status IN ('active', 'paid') ORDER BY attempt DESC LIMIT 1), paid_by) WHERE id = ?5 AND status = ?6`,
		string(changed), string(mustJSON(parts)), oversold, approved, orderID, from); err != nil {
		return nil, err
	}
	switch {
	case o.Status == Paid:
		err = tx.addTotals(st.ID, tx.now, 0, o.Amount)
	case from == Paid:
		err = tx.takeTotals(st.ID, o)
	}
	if err != nil {
		return nil, err
	}
	if err := tx.addHistory(orderID, from, o.Status, rule.actor, reason); err != nil {
		return nil, err
	}
	if o.Status != AwaitingVerification { // what is open at a gateway is due to be closed there
		if _, err := tx.exec(`UPDATE payment_sessions SET status = iif(status = 'starting', 'expired', status), expires_at = min(expires_at, ?), checked_at = 0
			WHERE order_id = ? AND status IN ('starting', 'active')`, tx.now, orderID); err != nil {
			return nil, err
		}
	}
	return o, tx.addEvent(st.ID, orderID, eventOf[o.Status], sequence, withAddresses(nil, changed, st.payPage(orderID), ""))
}

func words[T ~string](list []T) []string {
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = string(v)
	}
	return all
}

// MoveOrder is move for one order of a store; storeID "" stands for any store: only the command line may say so.
func (db *DB) MoveOrder(ctx context.Context, storeID, orderID string, m Move, reason string) (o *Order, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		o, err = tx.move(storeID, orderID, m, reason)
		return err
	})
	return o, err
}

const sqlDue = `SELECT id FROM orders o WHERE status = 'pending' AND expires_at <= ?
	AND NOT EXISTS (SELECT 1 FROM payment_sessions s WHERE s.order_id = o.id AND ` + sessionToAsk + `) ORDER BY expires_at LIMIT ?`

// sessionToAsk: the gateway may have money of this session. One whose payment failed can often be paid again on the same
// page, so it is asked about once more when its time is over.
const sessionToAsk = "(s.status = 'active' OR s.status = 'failed' AND s.checked_at < s.expires_at)"

// DueOrders are at most 100 orders that nobody paid in time and that no gateway has a session for.
func (db *DB) DueOrders() ([]string, error) {
	return collect(db.r, column[string], sqlDue, time.Now().UnixMilli(), 100)
}

// ExpireOrder expires one of DueOrders, unless a session has become active since.
func (db *DB) ExpireOrder(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		active, err := one(tx, column[int], "SELECT count(*) FROM payment_sessions s WHERE s.order_id = ? AND "+sessionToAsk, id)
		if err == nil && active == 0 {
			_, err = tx.move("", id, ClockExpires, "not paid in time")
		}
		return err
	})
}

// PurgeIdempotencyKeys forgets at most 1,000 keys whose time is over and returns how many.
func (db *DB) PurgeIdempotencyKeys(ctx context.Context) (n int64, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		n, err = tx.exec(`DELETE FROM idempotency_keys WHERE (store_id, key) IN
			(SELECT store_id, key FROM idempotency_keys WHERE created_at <= ? ORDER BY created_at LIMIT 1000)`, tx.now.Add(-idempotencyKept))
		return err
	})
	return n, err
}

// OrderFilter selects orders. The zero value of a field but Limit selects all.
type OrderFilter struct {
	Status     Status
	Min, Max   *Time  // of created_at, both inclusive
	After      string // an order's id: only older ones
	ExternalID string
	Offset     int
	Limit      int
}

const (
	sqlOrders           = "SELECT json FROM orders WHERE store_id = ? AND id >= ? AND id < ? ORDER BY id DESC LIMIT ? OFFSET ?"
	sqlOrdersByStatus   = "SELECT json FROM orders WHERE store_id = ? AND id >= ? AND id < ? AND status = ? ORDER BY id DESC LIMIT ? OFFSET ?"
	sqlOrdersByExternal = "SELECT json FROM orders WHERE store_id = ? AND id >= ? AND id < ? AND external_id = ? AND ? IN (status, '') LIMIT ? OFFSET ?"
)

// Orders appends a JSON array of a store's orders to dst, the newest first, and tells whether there are more. Its order
// is that of created_at and then of id, for an id begins with its created_at.
func (db *DB) Orders(dst []byte, st Store, f OrderFilter) (list []byte, more bool, err error) {
	low, high := "", cmp.Or(f.After, "~") // "~" is above every id
	if f.Min != nil {
		low = firstID(*f.Min)
	}
	if f.Max != nil {
		high = min(high, firstID(*f.Max+1))
	}
	query, args := sqlOrders, []any{st.ID, low, high}
	switch {
	case f.ExternalID != "":
		query, args = sqlOrdersByExternal, append(args, f.ExternalID, f.Status)
	case f.Status != "":
		query, args = sqlOrdersByStatus, append(args, f.Status)
	}
	rows, err := db.r.Query(query, append(args, f.Limit+1, f.Offset)...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	list = append(slices.Grow(dst, 1280*f.Limit), '[')
	for n := 0; rows.Next(); n++ {
		if n == f.Limit {
			more = true
			break
		}
		var order string
		if err := rows.Scan(&order); err != nil {
			return nil, false, err
		}
		if n > 0 {
			list = append(list, ',')
		}
		id := order[len(`{"id":"`):][:36] // an order's JSON begins with it
		list = withAddresses(list, order, st.payPage(id), "")
	}
	return append(list, ']'), more, rows.Err()
}

// Session is one attempt to pay an order at a gateway, which knows it as "<order id>-<attempt>".
type Session struct {
	ID            string
	OrderID       string
	Provider      string
	Attempt       int
	Status        string // starting, active, paid, failed or expired
	GatewayID     string
	URL           string
	TransactionID string
	Warning       string // why the gateway could not be asked
	ExpiresAt     Time
	CheckedAt     Time // the gateway last asked about it
}

// OrderView is an order with what GET /v1/orders/{order_id} decides by.
type OrderView struct {
	JSON      string // without addresses
	Status    Status
	Provider  string
	ExpiresAt Time
	Session   Session // in part: the one that paid the order, else its latest; ID "" is none
}

const sqlOrder = `SELECT o.json, o.status, o.provider, o.expires_at, coalesce(s.id, ''), coalesce(s.attempt, 0), coalesce(s.status, ''),
	coalesce(s.payment_url, ''), coalesce(s.expires_at, 0) FROM orders o LEFT JOIN payment_sessions s ON s.id = coalesce(o.paid_by,
		(SELECT id FROM payment_sessions WHERE order_id = o.id ORDER BY attempt DESC LIMIT 1))
	WHERE o.id = ? AND o.store_id = ?`

// Order reads one order of a store.
func (db *DB) Order(storeID, id string) (OrderView, error) {
	return one(db.r, viewFields, sqlOrder, id, storeID)
}

func viewFields(v *OrderView) []any {
	s := &v.Session
	return []any{&v.JSON, &v.Status, &v.Provider, &v.ExpiresAt, &s.ID, &s.Attempt, &s.Status, &s.URL, &s.ExpiresAt}
}

// HasOrder tells whether an order is the store's.
func (db *DB) HasOrder(storeID, id string) (bool, error) {
	return one(db.r, column[bool], "SELECT EXISTS (SELECT 1 FROM orders WHERE id = ? AND store_id = ?)", id, storeID)
}

// ---- Payments

// Gateway is a store's account at a payment gateway.
type Gateway struct {
	Provider      string
	Mode          string // sandbox or live
	SecretKey     string
	CallbackToken string // Xendit's
}

func (db *DB) SetGateway(ctx context.Context, storeID string, g Gateway) error {
	return db.change(ctx, `INSERT OR REPLACE INTO gateways (store_id, provider, mode, secret_key, callback_token)
		SELECT id, ?, ?, ?, ? FROM stores WHERE id = ?`, g.Provider, g.Mode, g.SecretKey, g.CallbackToken, storeID)
}

const sqlGateways = "SELECT provider, mode, secret_key, callback_token FROM gateways WHERE store_id = ?1 AND provider = coalesce(?2, provider) ORDER BY provider"

func gatewayFields(g *Gateway) []any {
	return []any{&g.Provider, &g.Mode, &g.SecretKey, &g.CallbackToken}
}

func (db *DB) Gateway(storeID, provider string) (Gateway, error) {
	return one(db.r, gatewayFields, sqlGateways, storeID, provider)
}

func (db *DB) Gateways(storeID string) ([]Gateway, error) {
	return collect(db.r, gatewayFields, sqlGateways, storeID, nil)
}

const (
	sessionColumns = "s.id, s.order_id, s.provider, s.attempt, s.status, s.gateway_id, s.payment_url, s.transaction_id, s.warning, s.expires_at, s.checked_at"
	sqlLiveSession = "SELECT " + sessionColumns + " FROM payment_sessions s WHERE s.order_id = ? AND s.status IN ('starting', 'active')"
)

func sessionFields(s *Session) []any {
	return []any{&s.ID, &s.OrderID, &s.Provider, &s.Attempt, &s.Status, &s.GatewayID, &s.URL, &s.TransactionID, &s.Warning,
		&s.ExpiresAt, &s.CheckedAt}
}

// reference is the name under which a gateway knows a session.
func (s Session) reference() string { return fmt.Sprintf("%s-%d", s.OrderID, s.Attempt) }

// OrderPage is an order with its store, for whoever has its id.
func (db *DB) OrderPage(id string) (st Store, o Order, err error) {
	st, err = db.store(db.r, []any{jsonTo{&o}}, "SELECT "+storeColumns+", o.json FROM orders o JOIN stores s ON s.id = o.store_id WHERE o.id = ?", id)
	return st, o, err
}

// BeginSession returns an order's live session, or one to start: its status says which. No session (ID "") means that
// the order needs none now. A try that came to nothing is taken up again, and uses up no attempt.
func (db *DB) BeginSession(ctx context.Context, storeID, orderID string) (s Session, again bool, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		o, err := one(tx, viewFields, sqlOrder, orderID, storeID)
		if err != nil || o.Status != Pending || o.Provider == "manual" || o.ExpiresAt <= tx.now {
			return err
		}
		if s, err = one(tx, sessionFields, sqlLiveSession, orderID); err != errNotFound {
			again = true
			return err
		}
		s = Session{ID: tx.newID(), OrderID: orderID, Provider: o.Provider, Status: "starting", ExpiresAt: o.ExpiresAt}
		s.Attempt, err = one(tx, column[int], `INSERT INTO payment_sessions (id, order_id, provider, attempt, status, expires_at, created_at)
			SELECT ?1, ?2, ?3, coalesce(max(attempt), 0) + 1, 'starting', ?4, ?5 FROM payment_sessions WHERE order_id = ?2 RETURNING attempt`,
			s.ID, orderID, o.Provider, o.ExpiresAt, tx.now)
		return err
	})
	return s, again, err
}

// SessionStarted records what the gateway answered to a session's start. A session that is not wanted any more, because
// its order came to its end meanwhile, is due to be closed.
func (db *DB) SessionStarted(ctx context.Context, s Session) (wanted bool, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		wanted, err = one(tx, column[bool], `UPDATE payment_sessions SET status = 'active', gateway_id = ?1, payment_url = ?2, warning = '',
			checked_at = ?3, expires_at = iif((SELECT status FROM orders WHERE id = order_id) = 'pending', expires_at, ?3)
			WHERE id = ?4 AND status IN ('starting', 'expired') RETURNING expires_at > ?3`, s.GatewayID, s.URL, tx.now, s.ID)
		return err
	})
	return wanted, err
}

// SessionLost ends a session that the gateway has and whose address nobody knows.
func (db *DB) SessionLost(ctx context.Context, id string) error {
	return db.change(ctx, "UPDATE payment_sessions SET status = 'failed' WHERE id = ? AND status = 'starting'", id)
}

// WarnSession records that the gateway could not be asked, and why.
func (db *DB) WarnSession(ctx context.Context, id, warning string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange("UPDATE payment_sessions SET warning = ?, checked_at = ? WHERE id = ?", warning, tx.now, id)
	})
}

// sqlSessionsToPoll: what has run out, every 20 s, or five minutes if its order waits for a person; and what will within
// half an hour, every five minutes. What was asked about longest ago comes first, so that a gateway that is away holds
// up no other.
const sqlSessionsToPoll = sqlSession + sessionToAsk + ` AND s.expires_at <= ?1 + 1800000
	AND s.checked_at <= ?1 - iif(s.expires_at <= ?1 AND o.status <> 'awaiting_verification', 20000, 300000)
	ORDER BY s.checked_at LIMIT 1000`

// OpenSession is a session with what is decided by about its order.
type OpenSession struct {
	Session
	StoreID     string
	OrderStatus Status
}

func openSessionFields(s *OpenSession) []any {
	return append(sessionFields(&s.Session), &s.StoreID, &s.OrderStatus)
}

// SessionsToPoll are the sessions about which the gateway is to be asked now.
func (db *DB) SessionsToPoll() ([]OpenSession, error) {
	return collect(db.r, openSessionFields, sqlSessionsToPoll, time.Now().UnixMilli())
}

const sqlSession = "SELECT " + sessionColumns + ", o.store_id, o.status FROM payment_sessions s JOIN orders o ON o.id = s.order_id WHERE "

// LatestSession is an order's latest session.
func (db *DB) LatestSession(orderID string) (OpenSession, error) {
	return one(db.r, openSessionFields, sqlSession+"s.order_id = ? ORDER BY s.attempt DESC LIMIT 1", orderID)
}

// SessionByID reads one session.
func (db *DB) SessionByID(id string) (OpenSession, error) {
	return one(db.r, openSessionFields, sqlSession+"s.id = ?", id)
}

// SessionByReference finds a store's session by the name it has at the gateway.
func (db *DB) SessionByReference(storeID, provider, reference string) (OpenSession, error) {
	i := strings.LastIndexByte(reference, '-')
	if i < 0 {
		return OpenSession{}, errNotFound
	}
	return one(db.r, openSessionFields, sqlSession+"s.order_id = ? AND s.attempt = ? AND s.provider = ? AND o.store_id = ?",
		reference[:i], reference[i+1:], provider, storeID)
}

// SessionByTransaction finds a store's session by a payment that settled it.
func (db *DB) SessionByTransaction(storeID, provider, transactionID, requestID string) (OpenSession, error) {
	return one(db.r, openSessionFields, sqlSession+`s.id = coalesce((SELECT id FROM payment_sessions WHERE transaction_id = ? AND transaction_id <> ''),
		(SELECT id FROM payment_sessions WHERE request_id = ? AND request_id <> '')) AND s.provider = ? AND o.store_id = ?`,
		transactionID, requestID, provider, storeID)
}

// Notification is a gateway's verified message about a session, to be decided by asking the gateway.
type Notification struct {
	ID      string
	Body    []byte
	Session OpenSession
}

// AddNotification keeps a message until it is decided, and after.
func (db *DB) AddNotification(ctx context.Context, s OpenSession, body []byte) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("INSERT INTO notifications (id, store_id, provider, session_id, body, received_at) VALUES (?, ?, ?, ?, ?, ?)",
			tx.newID(), s.StoreID, s.Provider, s.ID, string(body), tx.now)
		return err
	})
}

const sqlUndecided = "SELECT " + sessionColumns + `, o.store_id, o.status, n.id, n.body FROM notifications n
	JOIN payment_sessions s ON s.id = n.session_id JOIN orders o ON o.id = s.order_id WHERE n.decided_at IS NULL AND n.id > ? ORDER BY n.id LIMIT 100`

// What a gateway could not say in a week it never will.
const notificationKept = 7 * 24 * time.Hour

// UndecidedNotifications are at most 100 that came after the one named, in the order in which they came.
func (db *DB) UndecidedNotifications(after string) ([]Notification, error) {
	return collect(db.r, func(n *Notification) []any {
		return append(openSessionFields(&n.Session), &n.ID, &n.Body)
	}, sqlUndecided, max(after, firstID(Time(time.Now().Add(-notificationKept).UnixMilli()))))
}

// Verdict is what a gateway says of a session when it is asked.
type Verdict struct {
	State         string // one of the constants below
	Amount        int64  // paid, or given back
	TransactionID string // of the payment
	RequestID     string // Xendit's other name of it
	RefundID      string // of what was given back
}

const (
	Open           = "open"       // nobody has paid yet
	Settled        = "settled"    // Amount was paid
	Challenged     = "challenged" // paid, and a person is to look at it
	Denied         = "denied"     // this payment failed, or was taken back
	Canceled       = "canceled"   // by the gateway or in its dashboard
	Over           = "over"       // ended unpaid
	GivenBack      = "refunded"
	PartlyReturned = "partly refunded"
)

// ApplyVerdict does what a gateway's answer about a session means for the session and its order, and decides the
// notification that led to the question, if there was one. Applied again it changes nothing.
func (db *DB) ApplyVerdict(ctx context.Context, sessionID, notificationID string, v Verdict) (did string, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		if notificationID != "" {
			if _, err := tx.exec("UPDATE notifications SET decided_at = ? WHERE id = ?", tx.now, notificationID); err != nil {
				return err
			}
		}
		if _, err := tx.exec("UPDATE payment_sessions SET checked_at = ?, warning = '' WHERE id = ?", tx.now, sessionID); err != nil {
			return err
		}
		did, err = tx.applyVerdict(sessionID, v)
		return err
	})
	return did, err
}

func (tx *Tx) applyVerdict(sessionID string, v Verdict) (did string, err error) {
	var status Status
	var amount int64
	var expires Time
	var paidBy, settled, latest bool
	s, err := one(tx, func(s *Session) []any {
		return append(sessionFields(s), &status, &amount, &expires, &paidBy, &settled, &latest)
	}, "SELECT "+sessionColumns+`, o.status, o.json ->> 'amount', o.expires_at, coalesce(o.paid_by = s.id, 0), o.paid_by IS NOT NULL,
		s.attempt = (SELECT max(attempt) FROM payment_sessions WHERE order_id = o.id)
		FROM payment_sessions s JOIN orders o ON o.id = s.order_id WHERE s.id = ?`, sessionID)
	if err != nil {
		return "", err
	}
	live := s.Status == "starting" || s.Status == "active" || s.Status == "failed" && latest && (status == Pending || status == AwaitingVerification)
	same := s.Status == "paid" && (v.TransactionID == s.TransactionID || v.TransactionID == "")
	end := func(status string) error {
		_, err := tx.exec("UPDATE payment_sessions SET status = ?, transaction_id = iif(?2 <> '', ?2, transaction_id), request_id = iif(?3 <> '', ?3, request_id) WHERE id = ?4",
			status, v.TransactionID, v.RequestID, s.ID)
		return err
	}
	// to performs a move if the order's state allows it, and does nothing ("") otherwise.
	to := func(m Move, reason string) (did string, err error) {
		if !slices.Contains(moves[m].from, status) {
			return "", nil
		}
		_, err = tx.move("", s.OrderID, m, reason)
		return string(moves[m].to), err
	}
	note := func(format string, args ...any) (did string, err error) {
		return "noted", tx.remark(s.OrderID, status, fmt.Sprintf(format, args...))
	}
	at := fmt.Sprintf("%s, attempt %d", s.Provider, s.Attempt)
	switch v.State {
	case Settled:
		if same {
			return "", nil
		}
		if err := end("paid"); err != nil {
			return "", err
		}
		if paidBy && status == Paid { // what the owner approved
			return "", nil
		}
		m, reason := GatewaySettles, "paid: "+at
		if v.Amount != amount {
			m, reason = GatewayChallenges, fmt.Sprintf("Rp%d paid instead of Rp%d: %s", v.Amount, amount, at)
		}
		switch did, err = to(m, reason); {
		case err != nil:
		case did == "":
			text := fmt.Sprintf("Rp%d came while the order was %s, to be given back", v.Amount, status)
			if status == Paid && !settled && v.Amount == amount { // this may be the money that the owner spoke of
				text = fmt.Sprintf("Rp%d came for the order that the owner had approved, to be given back if it was paid another way", v.Amount)
			}
			if did, err = note("%s: %s %s", text, at, v.TransactionID); err == nil {
				_, err = tx.exec("UPDATE orders SET overpaid = 1, paid_by = iif(paid_by IS NULL AND ? = json ->> 'amount', ?, paid_by) WHERE id = ?", v.Amount, s.ID, s.OrderID)
			}
		case m == GatewaySettles:
			_, err = tx.exec("UPDATE orders SET paid_by = ? WHERE id = ?", s.ID, s.OrderID)
		}
		return did, err
	case Challenged:
		if live && status == Paid { // the owner has decided
			return "", end("paid")
		}
		if live {
			if err := end("active"); err != nil {
				return "", err
			}
		}
		return to(GatewayChallenges, "the gateway wants it looked at: "+at)
	case Denied, Canceled:
		if !live && !same {
			return "", nil
		}
		if err := end("failed"); err != nil {
			return "", err
		}
		if same && paidBy {
			return to(GatewayReverses, "the payment was taken back: "+at)
		}
		if latest && (v.State == Canceled || status == AwaitingVerification) {
			did, err = to(GatewayCancels, v.State+" by the gateway: "+at)
		}
		if same && did == "" { // what the owner was told to give back, or to judge, is gone
			return note("the payment was taken back: %s", at)
		}
		return did, err
	case GivenBack:
		if paidBy && (status == Paid || status == Refunded) {
			return to(GatewayRefunds, "refunded: "+at)
		}
		if live { // it was paid and given back, and neither was told: nothing of it is left
			if err := end("failed"); err != nil {
				return "", err
			}
		}
		return note("Rp%d given back: %s %s", v.Amount, at, v.RefundID)
	case PartlyReturned:
		if did, err = note("Rp%d given back in part: %s %s", v.Amount, at, v.RefundID); err != nil || !live {
			return did, err
		}
		if err := end("paid"); err != nil { // it was paid, and that was not told: a person says what the rest is worth
			return "", err
		}
		moved, err := to(GatewayChallenges, "paid and given back in part: "+at)
		return cmp.Or(moved, did), err
	}
	// Open or Over: nobody paid this session. An open one ends with its order's time; that of an order which needs no
	// payment any more is to be closed first.
	timeIsUp := expires <= tx.now
	if !live || v.State == Open && (status != Pending || !timeIsUp) {
		return "", nil
	}
	if err := end("expired"); err != nil {
		return "", err
	}
	if latest && timeIsUp {
		return to(ClockExpires, "not paid in time: "+at)
	}
	return "", nil
}

// remark adds a line to an order's history that changes nothing else. The same remark is made once.
func (tx *Tx) remark(orderID string, status Status, text string) error {
	text = strings.TrimSpace(text)
	n, err := one(tx, column[int], "SELECT count(*) FROM order_history WHERE order_id = ? AND reason = ?", orderID, text)
	if err != nil || n > 0 {
		return err
	}
	return tx.addHistory(orderID, status, status, "gateway", text)
}

// SandboxOffered tells whether a store may still play: none of its gateways takes real money.
func (db *DB) SandboxOffered(storeID string) (bool, error) {
	return one(db.r, column[bool], "SELECT NOT EXISTS (SELECT 1 FROM gateways WHERE store_id = ? AND mode = 'live')", storeID)
}

// SetSandbox is what the sandbox gateway's page does: it sets what the gateway will say of a session.
func (db *DB) SetSandbox(ctx context.Context, sessionID string, v Verdict) error {
	return db.change(ctx, "INSERT OR REPLACE INTO sandbox_payments (session_id, state, amount) VALUES (?, ?, ?)", sessionID, v.State, v.Amount)
}

// Sandbox is what the sandbox gateway says of a session; it is open until its page was used.
func (db *DB) Sandbox(sessionID string) (Verdict, error) {
	v, err := one(db.r, func(v *Verdict) []any { return []any{&v.State, &v.Amount} },
		"SELECT state, amount FROM sandbox_payments WHERE session_id = ?", sessionID)
	if err == errNotFound {
		return Verdict{State: Open}, nil
	}
	v.TransactionID = sessionID
	return v, err
}

// ---- Webhook endpoints and deliveries

// Endpoint is where a store's events go.
type Endpoint struct {
	ID        string     `json:"endpoint_id"`
	StoreID   string     `json:"store_id"`
	URL       string     `json:"url"`
	Events    []string   `json:"events"` // empty: all
	Active    bool       `json:"active"`
	OffReason string     `json:"off_reason,omitempty"`
	Failures  int        `json:"failures"` // failed attempts in a row
	CreatedAt Time       `json:"created_at"`
	Secrets   []string   `json:"-"`          // that sign now: one, or the new and the old while a rotation lasts
	Recent    []Delivery `json:"deliveries"` // the last ones, the newest first
}

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID           string `json:"delivery_id"`
	EventID      string `json:"event_id"`
	Event        string `json:"event"`
	OrderID      string `json:"order_id,omitempty"`
	Status       string `json:"status"`  // pending, delivered or failed
	Attempt      int    `json:"attempt"` // attempts begun
	NextAt       *Time  `json:"next_at"`
	TriedAt      *Time  `json:"tried_at"`
	AnswerStatus *int   `json:"answer_status"`
	Answer       string `json:"answer,omitempty"` // its first bytes, or why there was none
	CreatedAt    Time   `json:"created_at"`
}

const (
	endpointColumns = "e.id, e.store_id, e.url, e.events, e.active, e.off_reason, e.failures, e.created_at, iif(e.old_secret_until > ?, json_array(e.secret, e.old_secret), json_array(e.secret))"
	deliveryColumns = "d.id, d.event_id, v.event, coalesce(v.order_id, ''), d.status, d.attempt, d.next_at, d.tried_at, d.answer_status, d.answer, v.created_at"
	sqlEndpoints    = "SELECT " + endpointColumns + " FROM endpoints e WHERE e.store_id = ? ORDER BY e.id"
	sqlDeliveries   = "SELECT " + deliveryColumns + " FROM deliveries d CROSS JOIN events v ON v.id = d.event_id WHERE d.endpoint_id = ? AND d.id < ? ORDER BY d.id DESC LIMIT ?"
)

func endpointFields(e *Endpoint) []any {
	return []any{&e.ID, &e.StoreID, &e.URL, jsonTo{&e.Events}, &e.Active, &e.OffReason, &e.Failures, &e.CreatedAt, jsonTo{&e.Secrets}}
}

func deliveryFields(d *Delivery) []any {
	return []any{&d.ID, &d.EventID, &d.Event, &d.OrderID, &d.Status, &d.Attempt, &d.NextAt, &d.TriedAt, &d.AnswerStatus, &d.Answer, &d.CreatedAt}
}

// AddEndpoint registers an address; events empty means all.
func (db *DB) AddEndpoint(ctx context.Context, storeID, address string, events []string, secret string) (id string, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		id = tx.newID()
		return tx.mustChange("INSERT INTO endpoints (id, store_id, url, events, secret, created_at) SELECT ?, id, ?, ?, ?, ? FROM stores WHERE id = ?",
			id, address, string(mustJSON(append([]string{}, events...))), secret, tx.now, storeID)
	})
	return id, err
}

// Endpoints lists a store's endpoints, the oldest first, each with its last recent deliveries.
func (db *DB) Endpoints(storeID string, recent int) ([]Endpoint, error) {
	list, err := collect(db.r, endpointFields, sqlEndpoints, time.Now().UnixMilli(), storeID)
	for i := 0; i < len(list) && err == nil; i++ {
		list[i].Recent, err = collect(db.r, deliveryFields, sqlDeliveries, list[i].ID, "~", recent)
	}
	return list, err
}

// RotateSecret gives an endpoint a new secret; the old one signs too for another 24 h. storeID "" stands for any store,
// here and below: only the command line may say so.
func (db *DB) RotateSecret(ctx context.Context, storeID, id, secret string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange("UPDATE endpoints SET old_secret = secret, old_secret_until = ?, secret = ? WHERE id = ? AND ? IN (store_id, '')",
			tx.now.Add(24*time.Hour), secret, id, storeID)
	})
}

// SwitchEndpoint turns an endpoint on or off. Its events wait while it is off.
func (db *DB) SwitchEndpoint(ctx context.Context, storeID, id string, on bool, reason string) error {
	return db.change(ctx, "UPDATE endpoints SET active = ?, off_reason = ?, failures = 0 WHERE id = ? AND ? IN (store_id, '')", on, reason, id, storeID)
}

// RemoveEndpoint forgets an endpoint and its deliveries.
func (db *DB) RemoveEndpoint(ctx context.Context, storeID, id string) error {
	return db.change(ctx, "DELETE FROM endpoints WHERE id = ? AND ? IN (store_id, '')", id, storeID)
}

// Resend makes deliveries due again, from their first attempt: the one with deliveryID, or those of an endpoint
// that are not delivered and whose event came at since or later. What is being sent this moment is left alone.
func (db *DB) Resend(ctx context.Context, storeID, deliveryID, endpointID string, since Time) (n int64, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		known := "SELECT id FROM endpoints WHERE ? IN (store_id, '') AND id = coalesce((SELECT endpoint_id FROM deliveries WHERE id = ?), ?)"
		if _, err := one(tx, column[string], known, storeID, deliveryID, endpointID); err != nil {
			return err
		}
		n, err = tx.exec(`UPDATE deliveries SET status = 'pending', attempt = 0, next_at = ?
			WHERE leased = 0 AND (id = ? OR endpoint_id = ? AND id >= ? AND status <> 'delivered')`, tx.now, deliveryID, endpointID, firstID(since))
		return err
	})
	return n, err
}

// Ping writes an event without an order for one endpoint.
func (db *DB) Ping(ctx context.Context, storeID, endpointID string) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := one(tx, column[string], "SELECT id FROM endpoints WHERE id = ? AND store_id = ?", endpointID, storeID); err != nil {
			return err
		}
		return tx.insertEvent(storeID, "", "ping", 0, []byte("{}"), []string{endpointID})
	})
}

// lease is how long a claimed delivery is left alone. It is longer than an attempt may take.
const lease = time.Minute

// Claim is a delivery that this process has taken to send.
type Claim struct {
	DeliveryID, EventID, Event string
	Attempt                    int // from 1
	Body                       []byte
	Endpoint                   Endpoint
}

const (
	endpointDue     = "e.active = 1 AND EXISTS (SELECT 1 FROM deliveries d WHERE d.endpoint_id = e.id AND d.next_at <= ?)"
	sqlDueEndpoints = "SELECT " + endpointColumns + " FROM endpoints e WHERE " + endpointDue
	sqlClaim        = `UPDATE deliveries SET leased = 1, attempt = attempt + 1, next_at = ? WHERE id IN
		(SELECT id FROM deliveries WHERE endpoint_id = ? AND next_at <= ? ORDER BY next_at LIMIT ?)
		RETURNING id, attempt, event_id, (SELECT event FROM events WHERE id = event_id), (SELECT body FROM events WHERE id = event_id)`
)

// claim takes due deliveries, of each endpoint as many as room says, the ones due longest first. The endpoints
// take turns by chance.
func (tx *Tx) claim(room func(Endpoint) int) ([]Claim, error) {
	endpoints, err := collect(tx, endpointFields, sqlDueEndpoints, tx.now, tx.now)
	if err != nil {
		return nil, err
	}
	mathrand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	var all []Claim
	for _, e := range endpoints {
		limit := room(e)
		if limit <= 0 {
			continue
		}
		claims, err := collect(tx, func(c *Claim) []any {
			c.Endpoint = e
			return []any{&c.DeliveryID, &c.Attempt, &c.EventID, &c.Event, &c.Body}
		}, sqlClaim, tx.now.Add(lease), e.ID, tx.now, limit)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(claims, func(a, b Claim) int { return strings.Compare(a.DeliveryID, b.DeliveryID) })
		all = append(all, claims...)
	}
	return all, nil
}

// Result is what became of a claim.
type Result struct {
	Claim        Claim
	Unsent       bool   // given back untried
	Delivered    bool   // acknowledged
	NextAt       *Time  // of the next attempt; nil: delivered, or given up
	AnswerStatus *int   // nil: no answer
	Answer       string // its first bytes, or why there was none
	Gone         bool   // the endpoint wants no more
}

// record writes what became of a claim, unless the claim has ended.
func (tx *Tx) record(r Result) error {
	id, endpoint := r.Claim.DeliveryID, r.Claim.Endpoint.ID
	if r.Unsent {
		_, err := tx.exec("UPDATE deliveries SET leased = 0, attempt = attempt - 1, next_at = ? WHERE id = ? AND leased = 1", tx.now, id)
		return err
	}
	status := "pending"
	if r.Delivered {
		status = "delivered"
	} else if r.NextAt == nil {
		status = "failed"
	}
	_, err := tx.exec(`UPDATE deliveries SET status = ?, next_at = ?, leased = 0, tried_at = ?, answer_status = ?, answer = ?
		WHERE id = ? AND leased = 1`, status, r.NextAt, tx.now, r.AnswerStatus, r.Answer, id)
	if err != nil {
		return err
	}
	switch {
	case r.Delivered:
		_, err = tx.exec("UPDATE endpoints SET failures = 0 WHERE id = ? AND failures > 0", endpoint)
	case r.Gone:
		_, err = tx.exec("UPDATE endpoints SET failures = failures + 1, active = 0, off_reason = ? WHERE id = ?", "it answered 410 Gone", endpoint)
	default:
		_, err = tx.exec("UPDATE endpoints SET failures = failures + 1 WHERE id = ?", endpoint)
	}
	return err
}

// Dispatch writes results and takes new claims in one transaction.
func (db *DB) Dispatch(ctx context.Context, results []Result, room func(Endpoint) int) (claims []Claim, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		for _, r := range results {
			if err := tx.record(r); err != nil {
				return err
			}
		}
		if room != nil {
			claims, err = tx.claim(room)
		}
		return err
	})
	return claims, err
}

// DeliveriesDue tells cheaply whether Dispatch may find something to claim.
func (db *DB) DeliveriesDue() (bool, error) {
	return one(db.r, column[bool], "SELECT EXISTS (SELECT 1 FROM endpoints e WHERE "+endpointDue+")", time.Now().UnixMilli())
}

// ReleaseLeases makes due what a process that is no more had claimed. One process serves a file.
func (db *DB) ReleaseLeases(ctx context.Context) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("UPDATE deliveries SET leased = 0, next_at = ? WHERE leased = 1", tx.now)
		return err
	})
}

// ---- The dashboard

// An owner's sign-in ends when it was not used for sessionIdle, and after sessionLongest in any case.
const (
	sessionIdle    = 12 * time.Hour
	sessionLongest = 7 * 24 * time.Hour
)

// read runs fn on one snapshot of the database.
func (db *DB) read(fn func(querier) error) error {
	tx, err := db.r.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return fn(tx)
}

// Password finds the store of an owner, and how his password is kept. Unknown is errNotFound and a hash that no
// password has.
func (db *DB) Password(email string) (storeID string, pw PasswordHash, err error) {
	storeID, err = one(db.r, func(id *string) []any { return []any{id, &pw.Salt, &pw.Hash} },
		"SELECT id, password_salt, password_hash FROM stores WHERE owner_email = ?", email)
	return storeID, pw, err
}

// AddSession begins a sign-in and forgets those of the store that are over.
func (db *DB) AddSession(ctx context.Context, storeID string, hash [32]byte) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := tx.exec("DELETE FROM owner_sessions WHERE store_id = ? AND (created_at <= ? OR seen_at <= ?)",
			storeID, tx.now.Add(-sessionLongest), tx.now.Add(-sessionIdle)); err != nil {
			return err
		}
		_, err := tx.exec("INSERT INTO owner_sessions (hash, store_id, created_at, seen_at) VALUES (?, ?, ?, ?)", hash[:], storeID, tx.now, tx.now)
		return err
	})
}

const sqlSessionStore = "SELECT " + storeColumns + `, w.seen_at FROM owner_sessions w JOIN stores s ON s.id = w.store_id
	WHERE w.hash = ? AND w.created_at > ? AND w.seen_at > ?`

// SessionStore finds the store that a sign-in is for, and when the sign-in was last used.
func (db *DB) SessionStore(hash [32]byte) (st Store, seen Time, err error) {
	now := Time(time.Now().UnixMilli())
	st, err = db.store(db.r, []any{&seen}, sqlSessionStore, hash[:], now.Add(-sessionLongest), now.Add(-sessionIdle))
	return st, seen, err
}

// SessionSeen records that a sign-in was used.
func (db *DB) SessionSeen(ctx context.Context, hash [32]byte) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("UPDATE owner_sessions SET seen_at = ? WHERE hash = ?", tx.now, hash[:])
		return err
	})
}

// EndSessions ends one sign-in of a store, or with a nil hash all of them.
func (db *DB) EndSessions(ctx context.Context, storeID string, hash []byte) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("DELETE FROM owner_sessions WHERE store_id = ? AND hash = coalesce(?, hash)", storeID, hash)
		return err
	})
}

// OrderSearch selects orders for the dashboard. The zero value of a field but Limit selects all.
type OrderSearch struct {
	Status Status
	Text   string // an order's exact reference, external id or id, else a part of a buyer's name or e-mail
	Phone  string // a part of a buyer's phone, digits alone; looked for beside Text
	After  string // an order's id: only older ones
	Limit  int
}

// OrderList is a page of orders, the newest first.
type OrderList struct {
	Orders   []Order
	Next     string // where the next page begins (OrderSearch.After); "" if this is the last
	Searched bool   // buyers were searched, and Next may lead to orders that were not looked at yet
}

// searchWindow is how many orders one search for a buyer looks at. No index serves it: one on every order's buyer
// would cost each new order more than the owner's rare search is worth.
const searchWindow = 10_000

// In these, %s is the status' condition or nothing. The + has SQLite look orders up by the ids found,
// rather than walk all that are older.
const (
	sqlList  = "SELECT json FROM orders WHERE store_id = ?1 AND id < ?2 %s ORDER BY id DESC LIMIT ?4"
	sqlExact = `SELECT json FROM orders WHERE store_id = ?1 AND +id < ?2 %s AND ?4 > 0 AND id IN (SELECT lower(?5)
		UNION ALL SELECT id FROM orders WHERE store_id = ?1 AND reference = upper(?5)
		UNION ALL SELECT id FROM orders WHERE store_id = ?1 AND external_id = ?5)`
	sqlWindow = "SELECT coalesce((SELECT id FROM orders WHERE store_id = ?1 AND id < ?2 %s ORDER BY id DESC LIMIT 1 OFFSET ?4), '')"
	sqlSearch = `SELECT json FROM (SELECT json FROM orders WHERE store_id = ?1 AND id < ?2 %s ORDER BY id DESC LIMIT ?6)
		WHERE instr(lower(json ->> '$.buyer.name'), ?5) OR instr(lower(json ->> '$.buyer.email'), ?5) OR (?7 <> '' AND
			instr(replace(replace(replace(replace(json ->> '$.buyer.phone', ' ', ''), '-', ''), '(', ''), ')', ''), ?7)) LIMIT ?4`
)

func withStatus(query string, s Status) string {
	if s == "" {
		return fmt.Sprintf(query, "")
	}
	return fmt.Sprintf(query, "AND status = ?3")
}

func orderFields(o *Order) []any { return []any{jsonTo{o}} }

// SearchOrders reads one page of a store's orders.
func (db *DB) SearchOrders(storeID string, f OrderSearch) (list OrderList, err error) {
	below := cmp.Or(f.After, "~") // "~" is above every id
	err = db.read(func(q querier) (err error) {
		find := func(query string, limit int, more ...any) ([]Order, error) {
			return collect(q, orderFields, withStatus(query, f.Status), append([]any{storeID, below, f.Status, limit}, more...)...)
		}
		if f.Text == "" {
			list.Orders, err = find(sqlList, f.Limit+1)
		} else if list.Orders, err = find(sqlExact, f.Limit+1, f.Text); err == nil && len(list.Orders) == 0 {
			list.Searched = true
			list.Orders, err = find(sqlSearch, f.Limit+1, strings.ToLower(f.Text), searchWindow, f.Phone)
		}
		if err != nil {
			return err
		}
		if len(list.Orders) > f.Limit {
			list.Orders = list.Orders[:f.Limit]
			list.Next = list.Orders[f.Limit-1].ID
		} else if list.Searched {
			list.Next, err = one(q, column[string], withStatus(sqlWindow, f.Status), storeID, below, f.Status, searchWindow-1)
		}
		return err
	})
	return list, err
}

// DayTotals is one day of a store, in WIB.
type DayTotals struct {
	Day     int64 // days since 1970
	Orders  int64 // made on it
	Revenue int64 // paid on it and neither refunded nor reversed since
}

func dayOf(t Time) int64 { return (int64(t) + 7*60*60*1000) / (24 * 60 * 60 * 1000) }

const sqlAddTotals = `INSERT INTO daily_totals (store_id, day, orders, revenue) VALUES (?1, ?2, ?3, ?4)
	ON CONFLICT DO UPDATE SET orders = orders + ?3, revenue = revenue + ?4`

// addTotals counts orders made and money paid on a day.
func (tx *Tx) addTotals(storeID string, at Time, orders, revenue int64) error {
	_, err := tx.exec(sqlAddTotals, storeID, dayOf(at), orders, revenue)
	return err
}

// takeTotals takes an order's amount off the day on which it was last paid.
func (tx *Tx) takeTotals(storeID string, o *Order) error {
	paid, err := one(tx, column[Time], "SELECT at FROM order_history WHERE order_id = ? AND to_status = 'paid' AND from_status <> 'paid' ORDER BY position DESC LIMIT 1", o.ID)
	if err != nil {
		return err
	}
	return tx.addTotals(storeID, paid, 0, -o.Amount)
}

// Attention is what waits for the owner: of each kind a few, the oldest first.
type Attention struct {
	Awaiting    []Order // a buyer says that he has paid
	Alerted     []AlertedOrder
	Unreachable []AlertedOrder // whose gateway could not be asked
	Endpoints   []Endpoint     // all of them, for the caller to judge
}

// AlertedOrder is one with which something went wrong that no state tells: it was paid when the stock was gone, or
// Overpaid: money came that it does not need. Warning is why its gateway could not be asked.
type AlertedOrder struct {
	Order
	Overpaid bool
	Warning  string
}

const (
	attentionMost  = 6
	sqlAwaiting    = "SELECT json FROM orders WHERE store_id = ? AND status = 'awaiting_verification' ORDER BY id LIMIT ?"
	sqlAlerted     = "SELECT overpaid, '', json FROM orders WHERE store_id = ? AND (oversold = 1 OR overpaid = 1) ORDER BY id LIMIT ?"
	sqlUnreachable = `SELECT o.overpaid, s.warning, o.json FROM payment_sessions s INDEXED BY payment_sessions_warned CROSS JOIN orders o ON o.id = s.order_id
		WHERE s.warning <> '' AND s.status IN ('starting', 'active') AND o.store_id = ? ORDER BY s.order_id LIMIT ?`
	sqlDailyTotals = "SELECT day, orders, revenue FROM daily_totals WHERE store_id = ? AND day BETWEEN ? AND ? ORDER BY day"
)

// FrontPage reads what the first page of the dashboard shows above the newest orders: what waits for the owner, and the
// totals of the last days up to today, one for each day.
func (db *DB) FrontPage(storeID string, days int) (a Attention, totals []DayTotals, err error) {
	today := dayOf(Time(time.Now().UnixMilli()))
	totals = make([]DayTotals, days)
	for i := range totals {
		totals[i].Day = today - int64(days-1-i)
	}
	err = db.read(func(q querier) (err error) {
		if a.Awaiting, err = collect(q, orderFields, sqlAwaiting, storeID, attentionMost); err != nil {
			return err
		}
		alert := func(o *AlertedOrder) []any { return []any{&o.Overpaid, &o.Warning, jsonTo{&o.Order}} }
		if a.Alerted, err = collect(q, alert, sqlAlerted, storeID, attentionMost); err != nil {
			return err
		}
		if a.Unreachable, err = collect(q, alert, sqlUnreachable, storeID, attentionMost); err != nil {
			return err
		}
		if a.Endpoints, err = collect(q, endpointFields, sqlEndpoints, 0, storeID); err != nil {
			return err
		}
		busy, err := collect(q, func(d *DayTotals) []any { return []any{&d.Day, &d.Orders, &d.Revenue} }, sqlDailyTotals, storeID, totals[0].Day, today)
		for _, d := range busy {
			totals[d.Day-totals[0].Day] = d
		}
		return err
	})
	return a, totals, err
}

// OrderDetails is an order with all that became of it.
type OrderDetails struct {
	Order
	Oversold   bool
	Overpaid   bool
	History    []HistoryEntry
	Sessions   []Session
	Deliveries []OrderDelivery
}

type HistoryEntry struct {
	At       Time
	From, To Status // equal: a remark
	Actor    string
	Reason   string
}

type OrderDelivery struct {
	Delivery
	EndpointID, URL string
}

const (
	sqlOrderDetails    = "SELECT oversold, overpaid, json FROM orders WHERE store_id = ? AND id = ?"
	sqlHistory         = "SELECT at, from_status, to_status, actor, reason FROM order_history WHERE order_id = ? ORDER BY position"
	sqlOrderSessions   = "SELECT " + sessionColumns + " FROM payment_sessions s WHERE s.order_id = ? ORDER BY s.attempt"
	sqlOrderDeliveries = "SELECT " + deliveryColumns + `, e.id, e.url FROM events v CROSS JOIN deliveries d ON d.event_id = v.id
		JOIN endpoints e ON e.id = d.endpoint_id WHERE v.order_id = ? ORDER BY v.sequence`
)

// OrderDetails reads an order of a store.
func (db *DB) OrderDetails(storeID, id string) (d OrderDetails, err error) {
	err = db.read(func(q querier) (err error) {
		if d, err = one(q, func(d *OrderDetails) []any {
			return []any{&d.Oversold, &d.Overpaid, jsonTo{&d.Order}}
		}, sqlOrderDetails, storeID, id); err != nil {
			return err
		}
		if d.History, err = collect(q, func(h *HistoryEntry) []any {
			return []any{&h.At, &h.From, &h.To, &h.Actor, &h.Reason}
		}, sqlHistory, id); err != nil {
			return err
		}
		if d.Sessions, err = collect(q, sessionFields, sqlOrderSessions, id); err != nil {
			return err
		}
		d.Deliveries, err = collect(q, func(o *OrderDelivery) []any {
			return append(deliveryFields(&o.Delivery), &o.EndpointID, &o.URL)
		}, sqlOrderDeliveries, id)
		return err
	})
	return d, err
}

// AlertSettled records that the owner has seen to an order that was oversold or overpaid.
func (db *DB) AlertSettled(ctx context.Context, storeID, id, reason string) error {
	return db.write(ctx, func(tx *Tx) error {
		status, err := one(tx, column[Status], "UPDATE orders SET oversold = 0, overpaid = 0 WHERE id = ? AND store_id = ? AND (oversold = 1 OR overpaid = 1) RETURNING status", id, storeID)
		if err != nil {
			return err
		}
		return tx.addHistory(id, status, status, "owner", reason)
	})
}

const (
	sqlCatalogProducts = "SELECT " + productColumns + " FROM products p WHERE p.store_id = ? AND p.slug > ? AND instr(p.title_folded, ?) > 0 ORDER BY p.slug LIMIT ?"
	sqlCatalogBundles  = "SELECT " + bundleColumns + " FROM bundles p WHERE p.store_id = ? AND p.slug > ? AND instr(p.title_folded, ?) > 0 ORDER BY p.slug LIMIT ?"
	sqlCatalogProduct  = "SELECT " + productColumns + " FROM products p WHERE p.store_id = ? AND p.slug = ?"
	sqlCatalogBundle   = "SELECT " + bundleColumns + " FROM bundles p WHERE p.store_id = ? AND p.slug = ?"
)

// Catalog lists a store's products or bundles, published or not, by slug: those after a slug, with q in their title.
func (db *DB) Catalog(storeID, kind, after, q string, limit int) ([]Product, error) {
	query := sqlCatalogProducts
	if kind == "bundle" {
		query = sqlCatalogBundles
	}
	return collect(db.r, productFields, query, storeID, after, strings.ToLower(q), limit)
}

const (
	sqlProductNames = "SELECT '', title, 0, slug FROM products WHERE store_id = ? ORDER BY slug LIMIT 1000"
	sqlBundleParts  = `SELECT c.id, c.title, i.quantity, c.slug FROM bundle_items i CROSS JOIN products c ON c.id = i.product_id
		WHERE i.bundle_id = ? ORDER BY i.position`
)

// CatalogEntry reads one product or bundle of a store, published or not. For bundles it also lists what they can be
// made of.
func (db *DB) CatalogEntry(storeID, kind, slug string) (p Product, products []BundleItem, err error) {
	fields := func(i *BundleItem) []any { return []any{&i.ProductID, &i.Title, &i.Quantity, &i.Slug} }
	if kind == "product" {
		p, err = one(db.r, productFields, sqlCatalogProduct, storeID, slug)
		return p, nil, err
	}
	if products, err = collect(db.r, fields, sqlProductNames, storeID); err != nil {
		return p, nil, err
	}
	if p, err = one(db.r, productFields, sqlCatalogBundle, storeID, slug); err == nil {
		p.Items, err = collect(db.r, fields, sqlBundleParts, p.ID)
	}
	return p, products, err
}

const sqlEndpoint = "SELECT " + endpointColumns + " FROM endpoints e WHERE e.id = ? AND e.store_id = ?"

// Endpoint reads one endpoint of a store with its deliveries older than the one named; "~" is newer than all.
func (db *DB) Endpoint(storeID, id, before string, limit int) (e Endpoint, err error) {
	if e, err = one(db.r, endpointFields, sqlEndpoint, time.Now().UnixMilli(), id, storeID); err == nil {
		e.Recent, err = collect(db.r, deliveryFields, sqlDeliveries, id, before, limit)
	}
	return e, err
}
