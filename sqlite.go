//go:build cgo

package main

// // On Linux, the linker turns calls of fsync from C, which are SQLite's, into calls of __wrap_fsync. fdatasync saves a
// // file's bytes and its size, but not its times. SQLite needs no more, and uses it if it is compiled to do so
// // (https://sqlite.org/compile.html#have_fdatasync), but the driver has no option for that. On ext4 with a journal, an
// // order waits for one flush of the disk instead of two.
// #cgo linux LDFLAGS: -Wl,--wrap=fsync
// #ifdef __linux__
// #include <unistd.h>
// int __wrap_fsync(int file) { return fdatasync(file); }
// #endif
//
// int sqlite3_config(int option, ...);
// static int configWithoutMemoryStatistics(void) { return sqlite3_config(9, 0); } // SQLITE_CONFIG_MEMSTATUS
// static int configLookaside(int size, int pieces) { return sqlite3_config(13, size, pieces); } // SQLITE_CONFIG_LOOKASIDE
import "C"

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"sync"

	"github.com/mattn/go-sqlite3"
)

// This file is how the program talks to SQLite: connections to a file, which keep their statements compiled, and the
// values that go in and come out. It uses the driver, go-sqlite3, without database/sql. That package's pool, its locks
// and its conversions by reflection were a tenth of the processor time of an order, and of reading one.

// SQLite counts the memory it uses under a lock that all its connections share, and nobody reads that count. Without it an
// order takes a tenth less time.
//
// It also sets memory aside for each connection: 144 KB here instead of the usual 48, which compiled statements use up. An
// order takes three percent less time with it. Both have to be set before the first connection
// (https://sqlite.org/c3ref/c_config_covering_index_scan.html).
func init() {
	C.configWithoutMemoryStatistics()
	C.configLookaside(1200, 120)
}

// querier is what a query needs: a connection, or a pool that has one free.
//
// A limit is written LIMIT +?. Without the plus, SQLite plans the query again for every value, as it does for LIKE
// (https://sqlite.org/c3ref/prepare.html): a list took a tenth longer.
type querier interface {
	// each runs a query and calls do for each row, which is only valid until do returns. do must not query the same
	// querier: that would overwrite the row, or wait for a connection that never comes free. If do returns errEnough, the
	// query ends without an error.
	each(query string, args []any, do func(row) error) error
}

// errEnough is what a function returns to each, as it is, when it needs no more rows.
var errEnough = errors.New("no more rows are needed")

// queryOne reads the first row of a query, and ends it there. No row is errNotFound. A statement with RETURNING has made
// all its changes before its first row (https://sqlite.org/lang_returning.html).
func queryOne[T any](q querier, scan func(row) (T, error), query string, args ...any) (v T, err error) {
	found := false
	err = q.each(query, args, func(r row) (err error) {
		found = true
		v, err = scan(r)
		return cmp.Or(err, errEnough)
	})
	if err == nil && !found {
		err = errNotFound
	}
	return v, err
}

// queryAll reads all rows of a query. The result is never nil.
func queryAll[T any](q querier, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := q.each(query, args, func(r row) error {
		v, err := scan(r)
		all = append(all, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// scanValue scans a row of one column.
func scanValue[T any](r row) (v T, err error) {
	err = r.Scan(&v)
	return v, err
}

// queryInto reads the first row of a query into what dest points at. No row is errNotFound.
func queryInto(q querier, dest []any, query string, args ...any) error {
	scan := func(r row) (struct{}, error) { return struct{}{}, r.Scan(dest...) }
	_, err := queryOne(q, scan, query, args...)
	return err
}

// pool holds the connections to a file. They are opened when they are first needed.
type pool struct {
	source string
	commit func(commit func() error) error // performs each COMMIT; nil: as it is
	taken  chan struct{}                   // has one for each connection in use, and room for as many as there may be

	mu     sync.Mutex
	free   []*connection // the last one was used last: with few queries, few connections are opened
	closed bool
}

// openSQLite returns a pool of so many connections to a file. The options are documented in the README of
// go-sqlite3. SQLite need not lock a connection (_mutex=no), because one goroutine at a time uses it. That takes a
// twentieth off every request.
func openSQLite(path, options string, connections int) *pool {
	return &pool{
		source: "file:" + (&url.URL{Path: path}).EscapedPath() + "?_mutex=no&" + options,
		taken:  make(chan struct{}, connections),
	}
}

// with waits for a connection and calls do, which must not keep it. Whoever has the last connection of a pool and calls
// with again waits for ever.
func (p *pool) with(do func(*connection) error) error {
	p.taken <- struct{}{}
	defer func() { <-p.taken }()

	c, err := p.take()
	if err != nil {
		return err
	}
	defer p.give(c)
	return do(c)
}

func (p *pool) take() (*connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if last := len(p.free) - 1; last >= 0 {
		c := p.free[last]
		p.free = p.free[:last]
		return c, nil
	}

	raw, err := (&sqlite3.SQLiteDriver{}).Open(p.source)
	if err != nil {
		return nil, err
	}
	return &connection{
		raw:        raw.(*sqlite3.SQLiteConn),
		around:     p.commit,
		statements: map[string]*statement{},
	}, nil
}

func (p *pool) give(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
}

func (p *pool) each(query string, args []any, do func(row) error) error {
	return p.with(func(c *connection) error { return c.each(query, args, do) })
}

// script runs connection.script on a connection of the pool.
func (p *pool) script(statements string) error {
	return p.with(func(c *connection) error { return c.script(statements) })
}

// Close waits until every connection is free. A later query fails.
func (p *pool) Close() (err error) {
	for range cap(p.taken) {
		p.taken <- struct{}{}
		defer func() { <-p.taken }()
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.free {
		err = errors.Join(err, c.close())
	}
	p.free = nil
	p.closed = true
	return err
}

// connection is a connection to a file. One goroutine at a time uses it.
type connection struct {
	raw    *sqlite3.SQLiteConn
	around func(commit func() error) error // that of the pool

	// statements are compiled, by their text. The program has a hundred or two, and none is ever forgotten: the garbage
	// collector would end a statement that is not in use here while another of the connection runs.
	statements map[string]*statement
}

// statement is a compiled statement, with room for its arguments and for a row of its result.
type statement struct {
	*sqlite3.SQLiteStmt
	args []driver.NamedValue
	row  row
}

// prepare returns the statement of a text, which is one alone, with its arguments. It compiles it the first time. More
// arguments than the statement has parameters are left out: variants of a query (see withStatus) share one list.
func (c *connection) prepare(text string, args []any) (*statement, error) {
	s := c.statements[text]
	if s == nil {
		compiled, err := c.raw.Prepare(text)
		if err != nil {
			return nil, err
		}
		s = &statement{SQLiteStmt: compiled.(*sqlite3.SQLiteStmt)}
		s.args = make([]driver.NamedValue, s.NumInput())
		c.statements[text] = s
	}

	if len(args) < len(s.args) {
		return nil, fmt.Errorf("a statement has %d parameters and gets %d arguments: %s", len(s.args), len(args), text)
	}
	for i, arg := range args[:len(s.args)] {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w: %s", i+1, err, text)
		}
		s.args[i] = driver.NamedValue{Ordinal: i + 1, Value: value}
	}
	return s, nil
}

func (c *connection) each(query string, args []any, do func(row) error) error {
	return c.eachContext(context.Background(), query, args, do)
}

// eachContext is each for a query that takes long: it is interrupted when ctx ends.
func (c *connection) eachContext(ctx context.Context, query string, args []any, do func(row) error) (err error) {
	s, err := c.prepare(query, args)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, s.args)
	if err != nil {
		return err
	}
	defer func() {
		clear(s.row) // A text may be large, and a secret.
		clear(s.args)
		if failed := rows.Close(); err == nil {
			err = failed
		}
	}()

	if columns := len(rows.Columns()); len(s.row) != columns { // Another process may have changed a table.
		s.row = make(row, columns)
	}
	for {
		err = rows.Next(s.row)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		err = do(s.row)
		if err == errEnough {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// exec runs a statement and returns how many rows it changed. It must not return rows, as SELECT, RETURNING and some
// PRAGMAs do: it would stay in the middle of them.
func (c *connection) exec(text string, args ...any) (changed int64, err error) {
	s, err := c.prepare(text, args)
	if err != nil {
		return 0, err
	}
	result, err := s.ExecContext(context.Background(), s.args)
	clear(s.args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// script runs statements without arguments, which are compiled anew each time. Their rows are dropped. It is also for a
// PRAGMA that sets something: many do so while they are compiled.
func (c *connection) script(statements string) error {
	_, err := c.raw.Exec(statements, nil)
	return err
}

// transaction runs do between begin, a statement, and COMMIT. If do or the commit fails, nothing of it is left.
func (c *connection) transaction(begin string, do func() error) error {
	if _, err := c.exec(begin); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			c.exec("ROLLBACK") // It fails if SQLite has already rolled back, as it does on a full disk.
		}
	}()

	if err := do(); err != nil {
		return err
	}
	err := c.commit()
	committed = err == nil
	return err
}

func (c *connection) commit() error {
	commit := func() error {
		_, err := c.exec("COMMIT")
		return err
	}
	if c.around == nil {
		return commit()
	}
	return c.around(commit)
}

func (c *connection) close() (err error) {
	for _, s := range c.statements {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, c.raw.Close())
}

// row is the columns of one row: each an int64, a float64, a string, a []byte, or nil for NULL.
type row []driver.Value

// Scan copies the columns to what dest points at. A column that may be NULL goes to a pointer, a []byte or a fromJSON,
// and 0 or 1 to a bool.
func (r row) Scan(dest ...any) error {
	if len(dest) != len(r) {
		return fmt.Errorf("a row has %d columns, not %d", len(r), len(dest))
	}
	for i, value := range r {
		if err := assign(dest[i], value); err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return nil
}

// assign copies a column to what dest points at. Reflection is for the types that are not in the first cases.
func assign(dest any, value driver.Value) error {
	switch value := value.(type) {
	case string:
		if d, ok := dest.(*string); ok {
			*d = value
			return nil
		}
	case int64:
		switch d := dest.(type) {
		case *int64:
			*d = value
			return nil
		case *Time:
			*d = Time(value)
			return nil
		}
	}
	if d, ok := dest.(fromJSON); ok {
		return d.scan(value)
	}

	to := reflect.ValueOf(dest).Elem()
	from := reflect.ValueOf(value)
	switch {
	case value == nil && (to.Kind() == reflect.Pointer || to.Kind() == reflect.Slice):
		to.SetZero()
	case value == nil:
		return fmt.Errorf("NULL does not go to %s", to.Type())
	case to.Kind() == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		return assign(to.Interface(), value)
	case to.Kind() == reflect.String && from.Kind() == reflect.String:
		to.SetString(from.String())
	case to.Kind() == reflect.Bool && from.Kind() == reflect.Int64:
		to.SetBool(from.Int() != 0)
	case to.CanInt() && from.Kind() == reflect.Int64:
		to.SetInt(from.Int())
	case to.Kind() == from.Kind() && from.CanConvert(to.Type()):
		to.Set(from.Convert(to.Type()))
	default:
		return fmt.Errorf("%s does not go to %s", from.Type(), to.Type())
	}
	return nil
}

// fromJSON scans a column of JSON into what it points at. NULL changes nothing.
type fromJSON struct{ to any }

func (j fromJSON) scan(text any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal([]byte(text.(string)), j.to)
}
