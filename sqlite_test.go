//go:build cgo

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func newTestPool(t *testing.T, connections int) *pool {
	t.Helper()
	p := openSQLite(filepath.Join(t.TempDir(), "test.db"), "_journal_mode=WAL", connections)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

// TestSyncsWithFdatasync looks at what this program asks the C library for. Go's own File.Sync needs no C.
func TestSyncsWithFdatasync(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux")
	}
	program, err := os.Executable()
	must(t, err)
	file, err := elf.Open(program)
	must(t, err)
	defer file.Close()
	symbols, err := file.ImportedSymbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		t.Skip("a static program asks nobody")
	}
	must(t, err)

	calls := func(name string) bool {
		return slices.ContainsFunc(symbols, func(s elf.ImportedSymbol) bool { return s.Name == name })
	}
	if calls("fsync") || !calls("fdatasync") {
		t.Errorf("calls fsync: %t, fdatasync: %t", calls("fsync"), calls("fdatasync"))
	}
}

// TestScan reads one value of SQLite into what a Go program keeps it in.
func TestScan(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, 1)
	moment := Time(7)
	var noText *string
	for _, c := range []struct {
		sql  string
		want any // and the type of what it goes to
	}{
		{"'kopi'", "kopi"},
		{"'paid'", Paid},
		{"''", Status("")},
		{"85000", int64(85000)},
		{"3", 3},
		{"7", moment},
		{"7", &moment},
		{"1", true},
		{"0", false},
		{"2.5", 2.5},
		{"x'00ff'", []byte{0, 255}},
		{"NULL", []byte(nil)},
		{"NULL", noText},
		{"'teh'", new("teh")},
	} {
		t.Run(fmt.Sprintf("%s to %T", c.sql, c.want), func(t *testing.T) {
			got := reflect.New(reflect.TypeOf(c.want))
			must(t, queryInto(p, []any{got.Interface()}, "SELECT "+c.sql))
			if !reflect.DeepEqual(got.Elem().Interface(), c.want) {
				t.Errorf("got %#v, want %#v", got.Elem().Interface(), c.want)
			}
		})
	}
}

func TestQueriesEndWhenNoMoreRowsAreNeeded(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, 1)

	// The second row cannot be read: this number has no absolute value.
	const secondFails = "SELECT abs(value) FROM json_each('[1, -9223372036854775808]')"
	first, err := queryOne(p, scanValue[int], secondFails)
	if first != 1 || err != nil {
		t.Errorf("the first row is %d, %v", first, err)
	}

	rows := 0
	err = p.each(secondFails, nil, func(row) error {
		rows++
		return errEnough
	})
	if rows != 1 || err != nil {
		t.Errorf("%d rows, want 1: %v", rows, err)
	}
}

// TestScanRefuses reads what does not fit.
func TestScanRefuses(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, 1)
	for _, c := range []struct {
		columns string
		dest    []any
		want    string
	}{
		{"1", []any{new(string)}, "column 1: int64 does not go to string"},
		{"'1'", []any{new(int64)}, "column 1: string does not go to int64"},
		{"1, NULL", []any{new(int), new(int64)}, "column 2: NULL does not go to int64"},
		{"1, NULL", []any{new(int), new(string)}, "column 2: NULL does not go to string"},
		{"x'00'", []any{new(string)}, "column 1: []uint8 does not go to string"},
		{"1, 2", []any{new(int)}, "a row has 2 columns, not 1"},
		{"1", []any{new(int), new(int)}, "a row has 1 columns, not 2"},
	} {
		t.Run(c.columns, func(t *testing.T) {
			err := queryInto(p, c.dest, "SELECT "+c.columns)
			if err == nil || err.Error() != c.want {
				t.Errorf("got the error %v, want %s", err, c.want)
			}
		})
	}
}

// TestArguments reads back what was given to a statement.
func TestArguments(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, 1)
	var noTime *Time
	for _, c := range []struct {
		arg  any
		want string // as SQL
	}{
		{"o'clock\x00", "'o''clock' || char(0)"},
		{Paid, "'paid'"},
		{int64(-1), "-1"},
		{true, "1"},
		{Time(7), "7"},
		{new(Time(7)), "7"},
		{noTime, "NULL"},
		{nil, "NULL"},
		{[]byte{0, 255}, "x'00ff'"},
		{[]byte(nil), "NULL"},
		{time.Second, "1000000000"},
	} {
		same, err := queryOne(p, scanValue[bool], "SELECT ?1 IS "+c.want+" AND typeof(?1) = typeof("+c.want+")", c.arg)
		must(t, err)
		if !same {
			t.Errorf("%T %v is not %s", c.arg, c.arg, c.want)
		}
	}

	_, err := queryOne(p, scanValue[int], "SELECT ?1 + ?2", 1)
	if err == nil || !strings.Contains(err.Error(), "has 2 parameters and gets 1 arguments") {
		t.Errorf("got the error %v for a missing argument", err)
	}
	_, err = queryOne(p, scanValue[int], "SELECT ?1", struct{}{})
	if err == nil {
		t.Error("a struct is no argument, and there is no error")
	}
}

// TestQueryEnds leaves a query in the middle: by an error, by a panic, and by a row too many. The connection is free
// afterwards, and holds no lock.
func TestQueryEnds(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, 1)
	must(t, p.script("CREATE TABLE numbers (n); INSERT INTO numbers VALUES (1), (2), (3)"))
	const query = "SELECT n FROM numbers"

	errStop := errors.New("stop")
	stop := func(row) (int, error) { return 0, errStop }
	if _, err := queryAll(p, stop, query); err != errStop {
		t.Errorf("got the error %v, want %v", err, errStop)
	}
	if n, err := queryOne(p, scanValue[int], query); err != nil || n != 1 {
		t.Errorf("got %d and the error %v, want the first row", n, err)
	}
	if _, err := queryOne(p, scanValue[int], query+" WHERE n > 3"); err != errNotFound {
		t.Errorf("got the error %v, want %v", err, errNotFound)
	}
	func() {
		defer func() { recover() }()
		queryAll(p, func(row) (int, error) { panic("stop") }, query)
	}()

	must(t, p.script("DROP TABLE numbers")) // It would fail while a query reads the table.
	if _, err := queryAll(p, scanValue[int], query); err == nil {
		t.Error("a query of a table that is gone has no error")
	}
}

// TestPool uses all connections of a pool at once, closes it, and opens one that cannot be opened.
func TestPool(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, 2)
	must(t, p.with(func(a *connection) error {
		return p.with(func(b *connection) error {
			if a == b {
				t.Error("two have the same connection")
			}
			return nil
		})
	}))
	must(t, p.Close())
	must(t, p.Close())
	if err := p.script("SELECT 1"); err != errClosed {
		t.Errorf("got the error %v of a closed pool, want %v", err, errClosed)
	}

	file := filepath.Join(t.TempDir(), "later.db")
	later := openSQLite(file, "mode=ro", 1)
	defer later.Close()
	if err := later.script("SELECT 1"); err == nil {
		t.Error("a missing file was opened")
	}
	other := openSQLite(file, "", 1)
	must(t, other.script("CREATE TABLE t (n)"))
	must(t, other.Close())
	must(t, later.script("SELECT 1")) // The connection that could not be opened is tried again.
}
