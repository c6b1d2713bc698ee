package main

// This file reads rows. Columns and fields match by name: the column store_id is read into the field StoreID, and an
// expression gets a name by AS. Lists, maps and structs are JSON in their column. An embedded struct has columns of its
// own, which begin with the prefix in its sql tag. A field without a column has the tag sql:"-". Any other field
// without a column, a column without a field, and a repeated name are errors.

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// querier is what can be read from: the DB or, within a write, a Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	result(err error) error // what a query's error means
}

// one returns the first row of a query, or ErrNotFound if there is none.
func one[T any](ctx context.Context, q querier, query string, args ...any) (T, error) {
	var row, none T
	for err := range readRows(ctx, q, &row, query, args) {
		if err != nil {
			return none, err
		}
		return row, nil
	}
	return none, ErrNotFound
}

// all returns the rows of a query. Without an error the list is never nil. The query ends with the context.
func all[T any](ctx context.Context, q querier, query string, args ...any) ([]T, error) {
	var row T
	list := []T{}
	for err := range readRows(ctx, q, &row, query, args) {
		if err != nil {
			return nil, err
		}
		list = append(list, row)
	}
	return list, nil
}

// some is all for one page of a list. It reads one row more than limit, to see whether there are more. The query ends
// with LIMIT +? OFFSET ?: SQLite's planner looks at the value of a plain ?, and recompiles the statement for the next
// value (https://sqlite.org/c3ref/c_dbconfig_defensive.html, ENABLE_QPSG).
func some[T any](ctx context.Context, q querier, limit, offset int64, query string, args ...any) (
	rows []T, more bool, err error) {
	rows, err = all[T](ctx, q, query, append(args, limit+1, offset)...)
	more = int64(len(rows)) > limit
	if more {
		rows = rows[:limit]
	}
	return rows, more, err
}

// find reads the first row of a query into what row points to, and reports whether there is one. Without one, what row
// points to stays as it was. After an error of the write there is none.
func (tx *Tx) find(row any, query string, args ...any) (found bool) {
	for err := range readRows(tx, tx, row, query, args) {
		return err == nil
	}
	return false
}

// rowsOf is all within a write. After an error of the write there are none.
func rowsOf[T any](tx *Tx, query string, args ...any) []T {
	rows, _ := all[T](tx, tx, query, args...)
	return rows
}

// count reads a query's only number: 0 after an error of the write.
func (tx *Tx) count(query string, args ...any) (n int64) {
	tx.find(&n, query, args...)
	return n
}

// readRows scans the rows of a query into what row points to, one after the other. Each iteration has a row or, if it is
// the last one, an error.
func readRows(ctx context.Context, q querier, row any, query string, args []any) iter.Seq[error] {
	return func(yield func(error) bool) {
		rows, err := q.QueryContext(ctx, query, args...)
		if err != nil {
			yield(q.result(err))
			return
		}
		defer rows.Close()

		to := reflect.ValueOf(row).Elem()
		columns, err := columnsOf(to.Type(), query, rows)
		if err != nil {
			yield(q.result(err))
			return
		}
		into := make([]any, 0, len(columns))
		for _, c := range columns {
			into = append(into, c.of(to))
		}

		for rows.Next() {
			to.SetZero() // Each row gets new lists and maps.
			if err := rows.Scan(into...); err != nil {
				yield(q.result(err))
				return
			}
			if !yield(nil) {
				return
			}
		}
		if err := q.result(rows.Err()); err != nil {
			yield(err)
		}
	}
}

// rowQuery is a query, and the type that its rows are read into.
type rowQuery struct {
	row  reflect.Type
	text string
}

// knownColumns remembers the columns of queries. Their texts are the program's own, so there are not many.
var knownColumns sync.Map // []column, by rowQuery

// columnsOf returns the columns of a query, with the fields that they are read into.
func columnsOf(row reflect.Type, text string, rows *sql.Rows) ([]column, error) {
	known, ok := knownColumns.Load(rowQuery{row, text})
	if ok {
		return known.([]column), nil
	}

	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	columns, err := matchColumns(row, names)
	if err == nil {
		knownColumns.Store(rowQuery{row, text}, columns)
	}
	return columns, err
}

// matchColumns finds the fields of a struct that have the names of columns. Into any other type a single column is
// read.
func matchColumns(row reflect.Type, names []string) (columns []column, err error) {
	if row.Kind() != reflect.Struct {
		if len(names) != 1 {
			return nil, fmt.Errorf("a query has %d columns for one %s", len(names), row)
		}
		return []column{{}}, nil
	}

	fields := fieldColumns(row, "")
	read := make([]bool, len(fields))
	for _, name := range names {
		at := slices.IndexFunc(fields, func(c column) bool { return c.name == name })
		if at < 0 {
			return nil, fmt.Errorf("the column %s of a query has no field in %s", name, row)
		}
		if read[at] {
			return nil, fmt.Errorf("a query for %s has the column %s twice", row, name)
		}
		read[at] = true
		columns = append(columns, fields[at])
	}
	if at := slices.Index(read, false); at >= 0 {
		c := fields[at]
		return nil, fmt.Errorf("the field %s of %s has no column %s in a query", c.field, row, c.name)
	}
	return columns, nil
}

// column is a column of a query, with the field of a struct that it is read into.
type column struct {
	name, field string
	index       []int // of the field in the struct, and in those that it is embedded in; none is the row itself
	isJSON      bool
}

// of returns where the column is scanned into a row.
func (c column) of(row reflect.Value) any {
	for _, i := range c.index {
		row = row.Field(i)
	}
	into := row.Addr().Interface()
	if c.isJSON {
		return fromJSON{into}
	}
	return into
}

// fieldColumns returns the columns that a struct is read from. Those of an embedded struct begin with its tag.
func fieldColumns(t reflect.Type, prefix string) (columns []column) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("sql")
		if tag == "-" || !field.IsExported() {
			continue
		}
		if field.Anonymous {
			for _, c := range fieldColumns(field.Type, prefix+tag) {
				c.index = append([]int{i}, c.index...)
				columns = append(columns, c)
			}
			continue
		}

		kind := field.Type.Kind()
		isBytes := kind == reflect.Slice && field.Type.Elem().Kind() == reflect.Uint8
		columns = append(columns, column{
			name:   prefix + cmp.Or(tag, columnName(field.Name)),
			field:  field.Name,
			index:  []int{i},
			isJSON: kind == reflect.Struct || kind == reflect.Map || kind == reflect.Slice && !isBytes,
		})
	}
	return columns
}

// columnName returns the name of a field's column: store_id for StoreID, image_url for ImageURL.
func columnName(field string) string {
	return strings.ToLower(newWord.ReplaceAllString(field, "${1}_$2"))
}

// newWord matches where a word begins in a field's name.
var newWord = regexp.MustCompile(`([a-z])([A-Z])`)

// toJSON encodes a value of the program's own types, which cannot fail.
func toJSON(v any) []byte {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return buf.Bytes()[:buf.Len()-1] // without the newline that Encode adds
}

// fromJSON scans a column that holds JSON, and writes one. A list without entries is [].
type fromJSON struct{ into any }

func (f fromJSON) Scan(column any) error {
	text, _ := column.(string) // Empty text is an error.
	return json.Unmarshal([]byte(text), f.into)
}

func (f fromJSON) Value() (driver.Value, error) {
	text := string(toJSON(f.into))
	if text == "null" { // a nil slice
		return "[]", nil
	}
	return text, nil
}

// jsonObject is an object of JSON: a request to a gateway, or what an answer or a command shows.
type jsonObject map[string]any

// filled returns the object without its empty fields, which gateways refuse.
func (o jsonObject) filled() jsonObject {
	maps.DeleteFunc(o, func(_ string, value any) bool { return reflect.ValueOf(value).IsZero() })
	return o
}
