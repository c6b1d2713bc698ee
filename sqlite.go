//go:build cgo

package main

// int sqlite3_config(int option, ...);
// static int configWithoutMemoryStatistics(void) { return sqlite3_config(9, 0); } // SQLITE_CONFIG_MEMSTATUS
import "C"

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"

	"github.com/mattn/go-sqlite3"
)

// This file is how the program talks to SQLite: connections to a file, which keep their statements compiled, and the
// values that go in and come out. It uses the driver, go-sqlite3, without database/sql. That package's pool, its locks
// and its conversions by reflection were a tenth of the processor time of an order, and of reading one.

// SQLite counts the memory it uses under a lock that all its connections share, and nobody reads that count. Without it an
// order takes a tenth less time. This has to happen before the first connection
// (https://sqlite.org/c3ref/c_config_covering_index_scan.html).
func init() { C.configWithoutMemoryStatistics() }

// querier is what a query needs: a connection, or a pool that has one free.
//
// A limit is written LIMIT +?. Without the plus, SQLite plans the query again for every value, as it does for LIKE
// (https://sqlite.org/c3ref/prepare.html): a list took a tenth longer.
type querier interface {
	// each runs a query and calls do with one of its rows after another. The row is only valid during the call,
	// and do must not use the querier.
	each(query string, args []any, do func(row) error) error
}

// queryOne reads the only row of a query. No row is errNotFound.
func queryOne[T any](q querier, scan func(row) (T, error), query string, args ...any) (v T, err error) {
	found := false
	err = q.each(query, args, func(r row) (err error) {
		found = true
		v, err = scan(r)
		return err
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

// queryInto reads the only row of a query into what dest points at. No row is errNotFound.
func queryInto(q querier, dest []any, query string, args ...any) error {
	scan := func(r row) (struct{}, error) { return struct{}{}, r.Scan(dest...) }
	_, err := queryOne(q, scan, query, args...)
	return err
}

// pool holds the connections to a file. They are opened when they are first needed.
type pool struct {
	source string
	free   chan *connection // nil is one that is not open yet
}

// openSQLite returns a pool of so many connections to a file. The options are documented in the README of go-sqlite3.
// SQLite need not lock a connection (_mutex=no), because one goroutine at a time uses it. That takes a twentieth off
// every request.
func openSQLite(path, options string, connections int) *pool {
	source := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_mutex=no&" + options
	p := &pool{source, make(chan *connection, connections)}
	for range connections {
		p.free <- nil
	}
	return p
}

// with waits for a free connection and calls do, which must not keep it.
func (p *pool) with(do func(*connection) error) error {
	c, open := <-p.free
	if !open {
		return errClosed
	}
	defer func() { p.free <- c }()

	if c == nil {
		raw, err := (&sqlite3.SQLiteDriver{}).Open(p.source)
		if err != nil {
			return err
		}
		c = &connection{raw: raw.(*sqlite3.SQLiteConn), statements: map[string]*statement{}}
	}
	return do(c)
}

func (p *pool) each(query string, args []any, do func(row) error) error {
	return p.with(func(c *connection) error { return c.each(query, args, do) })
}

// script is that of a connection.
func (p *pool) script(statements string) error {
	return p.with(func(c *connection) error { return c.script(statements) })
}

// Close waits until every connection is free.
func (p *pool) Close() (err error) {
	for range cap(p.free) {
		c, open := <-p.free
		if !open {
			return nil
		}
		if c != nil {
			err = errors.Join(err, c.close())
		}
	}
	close(p.free)
	return err
}

// connection is a connection to a file. One goroutine at a time uses it.
type connection struct {
	raw        *sqlite3.SQLiteConn
	statements map[string]*statement // compiled, by their text; the program has a hundred or two
}

// statement is a compiled statement, with room for its arguments and for a row of its result.
type statement struct {
	*sqlite3.SQLiteStmt
	args []driver.NamedValue
	row  row
}

// bind returns a statement with its arguments. It compiles it the first time. Queries of one purpose share their
// arguments, so there may be more than the statement takes.
func (c *connection) bind(text string, args []any) (*statement, error) {
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
		return nil, fmt.Errorf("a statement takes %d arguments and gets %d: %s", len(s.args), len(args), text)
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
	return c.eachUntil(context.Background(), query, args, do)
}

// eachUntil is each for a query that takes long. It is interrupted when ctx ends.
func (c *connection) eachUntil(ctx context.Context, query string, args []any, do func(row) error) (err error) {
	s, err := c.bind(query, args)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, s.args)
	if err != nil {
		return err
	}
	defer func() {
		if failed := rows.Close(); err == nil {
			err = failed
		}
	}()

	if s.row == nil {
		s.row = make(row, len(rows.Columns()))
	}
	for {
		err := rows.Next(s.row)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(s.row); err != nil {
			return err
		}
	}
}

// exec runs a statement that has no rows, and returns how many rows it changed.
func (c *connection) exec(text string, args ...any) (changed int64, err error) {
	s, err := c.bind(text, args)
	if err != nil {
		return 0, err
	}
	result, err := s.ExecContext(context.Background(), s.args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// script runs several statements without arguments, which are not kept. Their rows are dropped.
func (c *connection) script(statements string) error {
	_, err := c.raw.Exec(statements, nil)
	return err
}

func (c *connection) close() error {
	for _, s := range c.statements {
		s.Close() // It fails if the statement's last run did, and that was told.
	}
	return c.raw.Close()
}

// row is the columns of one row: each an int64, a float64, a string, a []byte, or nil for NULL.
type row []driver.Value

// Scan copies the columns to what dest points at. A column that may be NULL goes to a pointer, a []byte or a Scanner, and
// 0 or 1 to a bool.
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

// assign copies a column to what dest points at. Most columns are of the first cases, which need no reflection.
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
	if d, ok := dest.(sql.Scanner); ok {
		return d.Scan(value)
	}

	to := reflect.ValueOf(dest).Elem()
	from := reflect.ValueOf(value)
	switch {
	case value == nil && (to.Kind() == reflect.Pointer || to.Kind() == reflect.Slice):
		to.SetZero()
	case value == nil:
		return fmt.Errorf("NULL does not go to a %s", to.Type())
	case to.Kind() == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		return assign(to.Interface(), value)
	case to.Kind() == reflect.Bool && from.Kind() == reflect.Int64:
		to.SetBool(from.Int() != 0)
	case to.CanInt() && from.Kind() == reflect.Int64:
		to.SetInt(from.Int())
	case to.Kind() == from.Kind() && from.CanConvert(to.Type()):
		to.Set(from.Convert(to.Type()))
	default:
		return fmt.Errorf("a %s does not go to a %s", from.Type(), to.Type())
	}
	return nil
}

// fromJSON scans a column of JSON into what it points at. NULL changes nothing.
type fromJSON struct{ to any }

func (j fromJSON) Scan(text any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal([]byte(text.(string)), j.to)
}
