package main

// The database is one SQLite file. A write that has returned is completely on disk. A write that has returned an error
// has changed nothing, unless the error is ErrUnknown. Writes that arrive together share a commit. Reads never wait for
// writes. No orders are taken while the disk is full. After a commit has failed for another reason, or the file was
// lost or replaced, none are taken until the next start. The log tells the operator in one sentence what to do.

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-sqlite3"
)

// Time is milliseconds since 1970 UTC; 0 means none. In JSON it is ISO 8601 with Z.
type Time int64

const timeFormat = "2006-01-02T15:04:05.000Z"

// wib is the time zone in which shops and buyers read times.
var wib = time.FixedZone("WIB", 7*3600)

func timeOf(t time.Time) Time { return Time(t.UnixMilli()) }

func (t Time) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

func (t Time) String() string { return t.Time().Format(timeFormat) }

func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Millisecond }

func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

func (t *Time) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(timeFormat, string(text))
	*t = timeOf(parsed)
	return err
}

// environment is the program's surroundings. Tests replace parts of them.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	listen         func(network, address string) (net.Listener, error)
	transport      http.RoundTripper               // to gateways and webhook receivers; nil means the network
	commit         func(commit func() error) error // performs each COMMIT of the database
	checkpoint     func(checkpoint func() error) error
	now            func() time.Time // the wall clock
	rounds         int              // of a password's hash
}

// DB is one SQLite file.
type DB struct {
	webhooksDue, checksDue chan struct{} // signaled after a commit that made something due; capacity 1

	path             string
	env              environment
	log              *slog.Logger // of the service; commands have none
	readers, writers *sql.DB
	conn             *sql.Conn // of writers, for the writing goroutine; nil if the file is only read

	small, large    *writeQueue
	writesWait      chan struct{} // signaled when a write has joined a queue; capacity 1
	checkpoints     chan struct{} // signaled when a checkpoint is due; capacity 1
	closing         chan struct{}
	running         sync.WaitGroup
	broken          atomic.Pointer[error] // why nothing is written until the next start
	noCheckpoint    atomic.Int64          // since when checkpoints fail, in Unix seconds; 0 = the last one did not
	generation      atomic.Int64          // of the API keys and stores, raised by each change
	latestID        int64                 // in milliseconds, with a count in the low 12 bits
	shopRings       *limiter              // of owners' phones, for buyers of the shop page
	latestReference int64                 // the count in the latest payment_reference: see newReference
	fullAt          time.Time             // when a write last met a full disk; zero: there is room again
	fullLogged      time.Time             // when the log last said so; both are of the writing goroutine

	// The serving process keeps its file open as long as SQLite does: closing it would drop the locks that
	// SQLite holds on it (https://sqlite.org/howtocorrupt.html#_posix_advisory_locks). Both are nil in
	// commands.
	lock, file *os.File

	strangeStart time.Time // when the file was opened with a clock that may be wrong; zero: it seemed right

	seen struct {
		sync.Mutex
		found   [3]fs.FileInfo // the file, its WAL and the WAL's index, once they exist
		emptied bool           // The WAL is empty now and was not: checkEmptiedWAL says whether that is right.
		changes uint32         // SQLite's counter in the header, which never decreases
	}
	clock struct {
		sync.Mutex
		wall   Time      // at the last call of observeClock
		steady time.Time // at that moment, by a clock that nobody sets
		until  time.Time // when the wall clock is trusted again after a jump
	}
}

// now returns the time by the wall clock.
func (db *DB) now() Time { return timeOf(db.env.now()) }

// QueryContext reads on one of the reading connections.
func (db *DB) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return db.readers.QueryContext(ctx, query, args...)
}

func (db *DB) result(err error) error { return db.unavailable(err) }

// Tx is one write. Its queries see what it has written so far, and all of it has one time, now. After a database error
// nothing more is done. A failed query returns no rows, and the write fails with that error whatever its code decides.
// So its functions need not check for errors, and its reads, find, count and rowsOf, return none. A Tx is its own
// context, which never ends: interrupting a statement may end the transaction that its neighbours share.
type Tx struct {
	context.Context
	now                    Time
	db                     *DB
	webhooksDue, checksDue bool // set when a delivery or a check becomes due; the commit wakes their loops
	keysChanged            bool // set when an API key or a store changes; the commit raises the generation
	hasWritten             bool // A row was written.
	err                    error

	fn         func(*Tx) error
	done       chan struct{} // closed once the commit is on disk, or err is set
	isTakenOut atomic.Bool   // see takeOut
}

// QueryContext reads on the writing connection. It does nothing after an error of the write.
func (tx *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if tx.err != nil {
		return nil, tx.err
	}
	return tx.db.conn.QueryContext(ctx, query, args...)
}

// result keeps the first error of the write as its result, and returns it. nil changes nothing.
func (tx *Tx) result(err error) error {
	tx.err = cmp.Or(tx.err, tx.db.unavailable(err))
	return tx.err
}

// exec runs a statement that returns no rows. Its error becomes the write's.
func (tx *Tx) exec(text string, args ...any) (changed int64) {
	if tx.err != nil {
		return 0
	}
	result, err := tx.db.conn.ExecContext(tx, text, args...)
	if tx.result(err) == nil {
		changed, _ = result.RowsAffected() // This cannot fail with our driver.
		tx.hasWritten = tx.hasWritten || changed > 0
	}
	return changed
}

// mustChange returns ErrNotFound if a statement changes no row.
func (tx *Tx) mustChange(query string, args ...any) error {
	if tx.exec(query, args...) == 0 {
		return ErrNotFound
	}
	return nil
}

// mustChange is that of Tx in a write of its own.
func (db *DB) mustChange(ctx context.Context, statement string, args ...any) error {
	return db.write(ctx, func(tx *Tx) error { return tx.mustChange(statement, args...) })
}

// newID returns a UUIDv7 (RFC 9562): milliseconds, a count of 12 bits that keeps the ids of a millisecond in
// order, and 62 random bits. Within a process its time never goes back, and it moves ahead when the count is
// used up.
func (tx *Tx) newID() string {
	id := max(tx.db.latestID+1, int64(tx.now)<<12)
	tx.db.latestID = id

	var random [8]byte
	rand.Read(random[:])
	random[0] = 0x80 | random[0]&0x3f
	return fmt.Sprintf("%08x-%04x-7%03x-%x-%x", id>>28, id>>12&0xffff, id&0xfff, random[:2], random[2:])
}

const (
	writeWait = 5 * time.Second // in the queue
	groupSize = 64
	groupWork = 10 * time.Millisecond
)

// write runs fn on the writing goroutine, in a transaction that other writes share, so fn must not block. It returns
// once the commit is on disk. If fn returns an error or panics, its own changes are undone, but not those of the
// others. Only if the database itself fails do all of them fail. write waits at most five seconds for its turn, and no
// longer than ctx. Once the writer has begun it, the result is waited for, whatever happens to ctx.
func (db *DB) write(ctx context.Context, fn func(*Tx) error) error {
	return db.enqueue(ctx, db.small, fn)
}

// writeFor is write for a function that returns something beside its error.
func writeFor[T any](ctx context.Context, db *DB, fn func(*Tx) (T, error)) (T, error) {
	var result T
	err := db.write(ctx, func(tx *Tx) (err error) {
		result, err = fn(tx)
		return err
	})
	return result, err
}

// keysRemembered is how long the serving process remembers API keys and stores (rememberedKeys).
const keysRemembered = 500 * time.Millisecond

// writes are those of a store's clients of a kind. All stores share one writer, so it is bounded how many of them wait
// at once. They have a line of their own in the queue: however many wait, the others' writes come between them.
type writes struct {
	take func(ctx context.Context) (leave func(), err error) // takes a place, until the write is on disk
	line string
}

type writesKey struct{}

// withPlaces returns a context for such writes.
func withPlaces(ctx context.Context, of writes) context.Context {
	return context.WithValue(ctx, writesKey{}, of)
}

// withoutPlaces returns a context that does not end, and whose writes take no place. It is for the consequences of a
// gateway's answer.
func withoutPlaces(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), writesKey{}, nil)
}

// enqueue is write with a queue: db.small, or db.large for a large write, which gets a transaction of its own, because
// a savepoint with many rows is slow. With a context of withPlaces, a write first takes a place, and keeps it until its
// commit. The writes of the service itself share a line.
func (db *DB) enqueue(ctx context.Context, queue *writeQueue, fn func(*Tx) error) error {
	of, isBounded := ctx.Value(writesKey{}).(writes)
	if isBounded {
		leave, err := of.take(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}

	tx := &Tx{Context: context.Background(), db: db, fn: fn, done: make(chan struct{})}
	queue.join(of.line, tx)
	wake(db.writesWait)
	select {
	case <-tx.done:
	case <-ctx.Done():
	case <-time.After(writeWait):
	case <-db.closing:
	}
	if tx.takeOut() {
		return fmt.Errorf("%w: other writes take too long, the client has left, or the program is stopping",
			ErrUnavailable)
	}

	<-tx.done
	if tx.keysChanged && db.lock == nil { // A command has changed what the serving process remembers.
		time.Sleep(keysRemembered)
	}
	return tx.err
}

// writeQueue has the writes that wait, in lines that take turns.
type writeQueue struct {
	mu    sync.Mutex
	lines map[string][]*Tx // Each has a write at least.
	turns []string         // the lines, the one whose turn it is first
}

func newWriteQueue() *writeQueue { return &writeQueue{lines: map[string][]*Tx{}} }

// join puts a write at the end of a line.
func (q *writeQueue) join(line string, tx *Tx) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines[line] == nil {
		q.turns = append(q.turns, line)
	}
	q.lines[line] = append(q.lines[line], tx)
}

// takeOut decides about a write that waits: either the writer takes it out, and runs it, or its sender does, and gives
// it up. The one who comes second gets false. A write that was given up stays in its line until next passes over it.
func (tx *Tx) takeOut() bool { return tx.isTakenOut.CompareAndSwap(false, true) }

// next takes the first write of the line whose turn it is. It returns nil if no write waits.
func (q *writeQueue) next() *Tx {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.turns) > 0 {
		line := q.turns[0]
		waiting := q.lines[line]
		q.turns = q.turns[1:]
		if len(waiting) > 1 {
			q.lines[line] = waiting[1:]
			q.turns = append(q.turns, line)
		} else {
			delete(q.lines, line)
		}
		if tx := waiting[0]; tx.takeOut() {
			return tx
		}
	}
	return nil
}

// runWrites does the writes that wait, a group of small ones and a large one at a time.
func (db *DB) runWrites() {
	for {
		select {
		case <-db.writesWait:
			small, large := db.small.next(), db.large.next()
			if small != nil {
				db.writeGroup(small)
			}
			if large != nil {
				large.end(db.transaction(large.call))
			}
			if small != nil || large != nil {
				wake(db.writesWait) // There may be more.
			}
		case <-db.checkpoints:
			db.checkpoint()
		case <-db.closing:
			return
		}
	}
}

// writeGroup runs up to groupSize waiting writes in one transaction, for groupWork at most, so that one sync of the
// disk serves all of them. Nobody is answered before the commit. Even a refusal waits, because it may depend on a
// neighbour's row.
func (db *DB) writeGroup(first *Tx) {
	group := []*Tx{first}
	lost := db.transaction(func() error {
		began := time.Now()
		err := first.callInSavepoint()
		for err == nil && len(group) < groupSize && time.Since(began) <= groupWork {
			tx := db.nextSmall()
			if tx == nil {
				return nil
			}
			group = append(group, tx)
			err = tx.callInSavepoint()
		}
		return err // This loses the whole group. After a refusal it is nil.
	})
	for _, tx := range group {
		tx.end(lost)
	}
}

// nextSmall returns a write that waits, or nil. If none does, it looks again after the other goroutines have run, so
// that groups get larger. It does not let them run before: while many are busy, it would wait long for a core.
func (db *DB) nextSmall() *Tx {
	if tx := db.small.next(); tx != nil {
		return tx
	}
	runtime.Gosched()
	return db.small.next()
}

// callInSavepoint runs a write. If the write fails, only it is undone: tx.err says why, and the result is nil. A
// returned error means that the whole transaction is lost.
func (tx *Tx) callInSavepoint() error {
	if err := tx.db.execute("SAVEPOINT write"); err != nil {
		return err
	}
	err := tx.call()
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	if err != nil { // The savepoint itself stays, and is released.
		if err := tx.db.execute("ROLLBACK TO write"); err != nil {
			return err
		}
	}
	return tx.db.execute("RELEASE write")
}

// call runs the write's function. Its first error is the write's result.
func (tx *Tx) call() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = tx.result(fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack()))
		}
	}()
	tx.now = tx.db.now()
	return tx.result(tx.fn(tx))
}

// end answers a write, and wakes the loops for what it made due. lost is the reason why its transaction was not
// committed, or ErrUnknown. It takes precedence over the write's own error.
func (tx *Tx) end(lost error) {
	tx.err = cmp.Or(lost, tx.err)
	tx.logFullDisk(lost)
	if tx.keysChanged {
		tx.db.generation.Add(1)
	}
	if tx.err == nil {
		if tx.webhooksDue {
			wake(tx.db.webhooksDue)
		}
		if tx.checksDue {
			wake(tx.db.checksDue)
		}
	}
	close(tx.done)
}

// logFullDisk logs once a minute that the disk is full. It logs that it is not any more when something is written and
// no write has met a full disk for a minute: a small one may still find room.
func (tx *Tx) logFullDisk(lost error) {
	db := tx.db
	if sqliteCode(lost) == sqlite3.ErrFull {
		db.fullAt = time.Now()
		if time.Since(db.fullLogged) >= time.Minute {
			db.fullLogged = time.Now()
			db.log.Error("no orders are taken, because the disk of " + db.path + " is full: make space")
		}
	}
	if tx.err == nil && tx.hasWritten && !db.fullAt.IsZero() && time.Since(db.fullAt) >= time.Minute {
		db.fullAt = time.Time{}
		db.log.Info("orders are taken again")
	}
}

// wake tells a loop that there may be something to do. It does not block.
func wake(due chan struct{}) {
	select {
	case due <- struct{}{}:
	default:
	}
}

// pause waits for some time, and no longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// transaction runs work between BEGIN and COMMIT. If it returns an error other than ErrUnknown, nothing was
// changed.
func (db *DB) transaction(work func() error) error {
	if err := db.checkWritable(); err != nil {
		return err
	}
	if err := db.checkEmptiedWAL(); err != nil {
		return err
	}
	if err := db.execute("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := work(); err != nil {
		db.execute("ROLLBACK") // It fails if the transaction has already ended.
		return err
	}
	return db.commit()
}

// commit ends a transaction. Any error but ErrUnknown says that nothing was changed.
func (db *DB) commit() error {
	// With synchronous=FULL the transaction is on disk when COMMIT returns. Only in tests does env.commit do
	// more than call this.
	err := db.env.commit(func() error {
		_, err := db.conn.ExecContext(context.Background(), "COMMIT")
		return err
	})
	if err != nil {
		db.execute("ROLLBACK")
	}

	switch sqliteCode(err) {
	case sqlite3.ErrFull, sqlite3.ErrBusy: // Nothing was committed.
		return db.unavailable(err)
	}
	if err != nil {
		db.stopWriting(fmt.Sprintf("the disk failed while a change was being saved (%v): look for disk errors "+
			"(dmesg), stop the service, run \"storeorder check\" and start it again", err))
		return ErrUnknown
	}

	if db.checkWritable() != nil { // The file was lost meanwhile.
		return ErrUnknown
	}
	return nil
}

// endings are those of the file, its WAL and the WAL's index.
var endings = []string{"", "-wal", "-shm"}

// checkWritable returns nil, or an ErrUnavailable that says why the database takes no writes. Each
// transaction calls it before BEGIN and after COMMIT, so that no write goes into a file that nobody will find
// again. It takes microseconds.
func (db *DB) checkWritable() error {
	s := &db.seen
	s.Lock()
	defer s.Unlock()
	if err := db.broken.Load(); err != nil {
		return *err
	}
	if db.file == nil {
		return nil
	}

	for i, ending := range endings {
		info, _ := os.Stat(db.path + ending)
		if before := s.found[i]; before != nil && !os.SameFile(info, before) {
			return db.stopWriting(db.path + ending + " is gone, was replaced or is out of reach: put it back, or " +
				"save it before you stop the service (docs/operation.md, \"A deleted file\")")
		}
		if i == 1 && s.found[i] != nil {
			s.emptied = s.emptied || info.Size() == 0 && s.found[i].Size() > 0
		}
		s.found[i] = info
	}

	var header [applicationAt + 4]byte
	db.file.ReadAt(header[:], 0) // What cannot be read is 0.
	changes := binary.BigEndian.Uint32(header[changesAt:])
	if changes < s.changes || binary.BigEndian.Uint32(header[applicationAt:]) == backupID {
		return db.stopWriting(db.path + " was overwritten: stop the service and run \"storeorder restore\"")
	}

	s.changes = changes
	return nil
}

// checkEmptiedWAL distinguishes a WAL that somebody has emptied, whose frames are still in its index, from one that
// another program's checkpoint has emptied. Only the writing goroutine calls it.
func (db *DB) checkEmptiedWAL() error {
	s := &db.seen
	s.Lock()
	emptied := s.emptied
	s.emptied = false
	s.Unlock()
	if !emptied {
		return nil
	}

	var busy, frames, copied int
	row := db.conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(NOOP)")
	if err := row.Scan(&busy, &frames, &copied); err != nil {
		return db.unavailable(err)
	}
	if frames <= 0 {
		return nil
	}
	return db.stopWriting(db.path + "-wal was emptied, and the latest orders were in it: put it back, or save what " +
		"is left before you stop the service (docs/operation.md, \"Damage\")")
}

// execute executes statements without parameters.
func (db *DB) execute(text string) error {
	_, err := db.conn.ExecContext(context.Background(), text)
	return db.unavailable(err)
}

// stopWriting ends all writing until the program is started again.
func (db *DB) stopWriting(cause string) error {
	err := fmt.Errorf("%w: %s", ErrUnavailable, cause)
	if db.broken.CompareAndSwap(nil, &err) { // Only the first cause is logged.
		db.log.Error("no orders are taken any more: " + cause)
	}
	return err
}

// unavailable wraps an SQLite error in ErrUnavailable, so that callInSavepoint gives up the whole group. SQLite may
// have ended the transaction on its own, and then each later statement would be committed by itself
// (https://sqlite.org/lang_transaction.html). A violated constraint or an invalid statement leaves the transaction as
// it is, and is returned unchanged. Damage to a served file ends all writing.
func (db *DB) unavailable(err error) error {
	e, _ := errors.AsType[sqlite3.Error](err)
	switch e.Code {
	case 0, sqlite3.ErrConstraint, sqlite3.ErrError:
		return err
	}
	isShort := e.ExtendedCode == sqlite3.ErrIoErrShortRead // A part of the file or of its WAL is missing.
	if db.file != nil && (e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB || isShort) {
		db.stopWriting(fmt.Sprintf("%s or its -wal is damaged (%v): stop the service, save both, run "+
			"\"storeorder check\", and restore a backup if it finds faults (docs/operation.md, \"Damage\")",
			db.path, err))
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func sqliteCode(err error) sqlite3.ErrNo {
	e, _ := errors.AsType[sqlite3.Error](err)
	return e.Code
}
