//go:build cgo

package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mattn/go-sqlite3"
)

func TestStoreURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		public     string
		subdomains bool
		domain     string
		want       string
	}{
		{"http://localhost:8080", false, "", "http://localhost:8080"},
		{"https://orders.example.id", true, "", "https://kopi.orders.example.id"},
		{"http://orders.example.id:81", true, "", "http://kopi.orders.example.id:81"},
		{"https://orders.example.id:8443", true, "kopikita.id", "https://kopikita.id:8443"},
		{"https://orders.example.id", false, "kopikita.id", "https://kopikita.id"},
	} {
		db := &DB{publicURL: c.public, subdomains: c.subdomains}
		if got := db.storeURL(Store{Slug: "kopi", Domain: c.domain}); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestGroupCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		db := s.db
		insert := func(tx *Tx, slug string) error {
			_, err := tx.exec("UPDATE products SET description = description || ? WHERE slug = 'teh'", slug)
			return err
		}
		text := func(q querier) string {
			v, err := one(q, column[string], "SELECT description FROM products WHERE slug = 'teh'")
			if err != nil {
				t.Error(err)
			}
			return v
		}
		hold := make(chan struct{})
		errs := make([]error, 6)
		var wg sync.WaitGroup
		begin := func(i int, fn func(tx *Tx) error) {
			wg.Go(func() { errs[i] = db.write(t.Context(), fn) })
			synctest.Wait()
		}
		begin(0, func(tx *Tx) error { <-hold; return insert(tx, "a") })
		begin(1, func(tx *Tx) error { return insert(tx, "b") })
		begin(2, func(tx *Tx) error { return errors.Join(insert(tx, "X"), errNotFound) })
		begin(3, func(tx *Tx) error { insert(tx, "Y"); panic("a defect") })
		begin(4, func(tx *Tx) error { _, err := tx.exec("UPDATE products SET price = -1"); return err })
		begin(5, func(tx *Tx) error {
			if committed, mine := text(db.reader), text(tx); committed != "" || len(mine) != 2 && len(mine) != 1 && len(mine) != 0 {
				t.Errorf("in a group: %q is committed, %q seen", committed, mine)
			}
			return insert(tx, "c")
		})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := db.write(cancelled, func(*Tx) error { t.Error("ran after its caller had gone"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled while it waited: %v", err)
		}
		close(hold)
		wg.Wait()
		got := text(db.reader)
		if len(got) != 3 || !strings.Contains(got, "a") || !strings.Contains(got, "b") || !strings.Contains(got, "c") {
			t.Errorf("committed: %q", got)
		}
		if errs[0] != nil || errs[1] != nil || errs[5] != nil || !errors.Is(errs[2], errNotFound) || errs[3] == nil || !strings.Contains(errs[3].Error(), "a defect") ||
			sqliteCode(errs[4]) != sqlite3.ErrConstraint {
			t.Errorf("answers: %v", errs)
		}
		// The first of a group may be refused too.
		hold = make(chan struct{})
		begin(0, func(tx *Tx) error { <-hold; return errors.Join(insert(tx, "Z"), errNotFound) })
		begin(1, func(tx *Tx) error { return insert(tx, "d") })
		close(hold)
		wg.Wait()
		if text(db.reader) != got+"d" || !errors.Is(errs[0], errNotFound) || errs[1] != nil {
			t.Errorf("behind a refused one: %q %v", text(db.reader), errs[:2])
		}
		// Ids stay in order and tell their order's time, even when a millisecond has no more of them.
		if err := db.write(t.Context(), func(tx *Tx) error {
			last := ""
			for range 4090 {
				id := tx.newID()
				if id <= last {
					t.Fatalf("%s after %s", id, last)
				}
				last = id
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		last := ""
		for range 10 {
			r := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
			var at Time
			if err := at.UnmarshalJSON(mustJSON(r.at("order.created_at"))); err != nil || !strings.HasPrefix(r.at("order.id"), firstID(at)[:13]) || r.at("order.id") <= last {
				t.Errorf("id %s of %s after %s", r.at("order.id"), at, last)
			}
			last = r.at("order.id")
		}
	})
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.create(t, "kopi", 1)
	limit := func(pages int) {
		t.Helper()
		if _, err := s.db.writer.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // SQLite makes that the pages in use
	created, full := 1, 0
	var mu sync.Mutex
	parallel(8, func(int) {
		for range 20 {
			body := with(s.order("teh", 1), "return_url", "https://a.example/"+strings.Repeat("x", 2000))
			r := s.do(t, "POST", "/v1/orders", body)
			mu.Lock()
			if r.Status == 201 {
				created++
			} else if r.want(t, 503, "SERVICE_UNAVAILABLE"); r.Status == 503 {
				full++
				if r.Header.Get("Retry-After") == "" || strings.Contains(string(r.Body), "disk") {
					t.Errorf("%v %s", r.Header, r.Body)
				}
			}
			mu.Unlock()
		}
	})
	if full == 0 {
		t.Fatal("the disk did not fill")
	}
	for _, path := range []string{"/v1/orders", "/v1/products", "/readyz"} {
		s.do(t, "GET", path, nil).want(t, 200, "")
	}
	counts := func() (n [3]int) {
		for i, table := range []string{"orders", "events", "order_history"} {
			n[i] = scalar[int](t, s.db, "SELECT count(*) FROM "+table)
		}
		return n
	}
	if n := counts(); n != [3]int{created, created, created} {
		t.Errorf("%d orders were answered 201; orders, events, history: %v", created, n)
	}
	limit(1_000_000)
	s.create(t, "kopi", 1)
	if n := counts(); n != [3]int{created + 1, created + 1, created + 1} || s.stock(t, "kopi") != 8 {
		t.Errorf("after it: %v, stock %d", n, s.stock(t, "kopi"))
	}
	if _, faults, err := s.db.Check(); err != nil || len(faults) > 0 {
		t.Errorf("check: %v %v", faults, err)
	}
}

// TestQueryPlans looks at every constant sql… of the program: each query goes through an index, in the order it is to
// answer in.
func TestQueryPlans(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{ // a scan that is meant
		"sqlDueEndpoints": "SCAN e", // a store has few endpoints
		"sqlBundles":      "SCAN i", // of a subquery's rows: one bundle's parts
	}
	allowed["sqlCatalogBundles"], allowed["sqlCatalogBundle"] = allowed["sqlBundles"], allowed["sqlBundles"]
	allowed["sqlUnreachable"] = "SCAN s USING INDEX payment_sessions_warned" // which holds nothing else
	allowed["sqlSearch"] = "SCAN (subquery-1)"                               // of the newest few thousand
	allowed["sqlSessionsDue"] = "USE TEMP B-TREE FOR ORDER BY"               // of the few that are due
	allowed["sqlSearch by status"] = allowed["sqlSearch"]
	queries := constants(t, "sql")
	for name, query := range queries {
		if strings.Contains(query, "%s") { // with a condition, or without
			queries[name], queries[name+" by status"] = strings.ReplaceAll(query, "%s", ""), strings.ReplaceAll(query, "%s", "AND status = ?3")
		}
	}
	s := newBubbleServer(t)
	if len(queries) < 15 {
		t.Errorf("only %d queries found", len(queries))
	}
	conn, err := s.db.writer.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, query := range queries {
		if strings.HasSuffix(strings.TrimSpace(query), "WHERE") { // the head of several
			query += " s.id = ?"
		}
		var args []any
		err := conn.Raw(func(c any) error {
			stmt, err := c.(*sqlite3.SQLiteConn).Prepare(query)
			if err != nil {
				return err
			}
			args = make([]any, stmt.NumInput())
			return stmt.Close()
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := conn.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Error(err)
			}
			table := strings.HasPrefix(detail, "SCAN ") && !strings.Contains(detail, "VIRTUAL TABLE") && !strings.Contains(detail, "CONSTANT ROW")
			if (table || strings.Contains(detail, "TEMP B-TREE")) && detail != allowed[name] {
				t.Errorf("%s: %s", name, detail)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// constants reads the text constants of the program's source whose names begin with prefix and a capital.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") || name == "nocgo.go" {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Error: func(error) {}, IgnoreFuncBodies: true} // imports are not resolved, and constants need none
	conf.Check("main", fset, files, info)
	found := map[string]string{}
	for ident, object := range info.Defs {
		if c, ok := object.(*types.Const); ok && regexp.MustCompile("^"+prefix+"[A-Z]").MatchString(ident.Name) && c.Val().Kind() == constant.String {
			found[ident.Name] = constant.StringVal(c.Val())
		}
	}
	return found
}

// TestMigration opens a file that version 1 of the program wrote (testdata/v1.db.gz): a store with two endpoints that
// are off, and five orders in all kinds of states.
func TestMigration(t *testing.T) {
	t.Parallel()
	file := unzip(t, "testdata/v1.db.gz")
	db, err := openDB(file, false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	t.Run("the tables are those of a new file", func(t *testing.T) {
		fresh, err := openDB(filepath.Join(t.TempDir(), "new.db"), true)
		if err != nil {
			t.Fatal(err)
		}
		defer fresh.Close()

		got, want := columnsOf(t, db), columnsOf(t, fresh)
		if got != want {
			t.Errorf("migrated:\n%s\nnew:\n%s", got, want)
		}
	})

	t.Run("the file is sound", func(t *testing.T) {
		version, faults, err := db.Check()
		if err != nil {
			t.Fatal(err)
		}
		if version != schemaVersion {
			t.Errorf("version %d, want %d", version, schemaVersion)
		}
		if len(faults) > 0 {
			t.Errorf("faults: %v", faults)
		}
	})

	stores, err := db.Stores()
	if err != nil || len(stores) != 1 {
		t.Fatalf("%d stores, want 1: %v", len(stores), err)
	}
	st := stores[0]

	t.Run("orders keep their state and history", func(t *testing.T) {
		const want = "awaiting_verification created other_amount? failed created by_command " +
			"paid created paid created paid paid created buyer_claims by_command"
		got := scalar[string](t, db, `
			SELECT group_concat(o.status || ' ' || (
				SELECT group_concat(CASE note ->> 'code' WHEN 'text' THEN 'other_amount?' ELSE note ->> 'code' END, ' ')
				FROM   (SELECT note FROM order_history WHERE order_id = o.id ORDER BY position)), ' ')
			FROM (SELECT * FROM orders ORDER BY id DESC) o`)
		if got != want {
			t.Errorf("orders:\n got %s\nwant %s", got, want)
		}
	})

	t.Run("an order that is canceled releases its stock", func(t *testing.T) {
		id := scalar[string](t, db, "SELECT id FROM orders WHERE status = 'awaiting_verification'")
		if _, err := db.Transition(t.Context(), st.ID, id, OwnerRejects, Note{Code: NoteByCommand}); err != nil {
			t.Fatal(err)
		}
		// 40 less two of an order that is paid and two of a paid bundle.
		if stock := scalar[int](t, db, "SELECT stock FROM products WHERE slug = 'kopi-gayo'"); stock != 36 {
			t.Errorf("stock %d, want 36", stock)
		}
	})

	t.Run("endpoints say why they are off", func(t *testing.T) {
		endpoints, err := db.Endpoints(st.ID, 1)
		if err != nil || len(endpoints) != 2 {
			t.Fatalf("%d endpoints, want 2: %v", len(endpoints), err)
		}
		for _, e := range endpoints {
			if e.OffReason != OffByOwner {
				t.Errorf("off because of %q, want %q", e.OffReason, OffByOwner)
			}
		}
	})
}

// unzip writes the content of a gzip file into the test's directory.
func unzip(t *testing.T, name string) (file string) {
	t.Helper()
	packed, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()

	content, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, strings.TrimSuffix(filepath.Base(name), ".gz"), string(data))
}

// columnsOf lists a file's tables with their columns, and its indexes and triggers with their definitions.
func columnsOf(t *testing.T, db *DB) string {
	t.Helper()
	return scalar[string](t, db, `
		SELECT group_concat(line, char(10))
		FROM (
			SELECT s.name || '.' || c.name || ' ' || c.type || ' ' || c."notnull" || ' ' || c.pk || ' ' || c.hidden AS line
			FROM   sqlite_schema s
			JOIN   pragma_table_xinfo(s.name) c
			WHERE  s.type = 'table'
			UNION ALL
			SELECT name || ' ' || coalesce(sql, '') FROM sqlite_schema WHERE type <> 'table'
			ORDER BY 1)`)
}
