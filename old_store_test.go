//go:build cgo

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-sqlite3"
)

func TestStoreURL(t *testing.T) {
	t.Parallel()
	cases := []struct {
		publicURL  string
		subdomains bool
		domain     string
		want       string
	}{
		{"http://localhost:8080", false, "", "http://localhost:8080"},
		{"https://orders.example.id", true, "", "https://kopi.orders.example.id"},
		{"http://orders.example.id:81", true, "", "http://kopi.orders.example.id:81"},
		{"https://orders.example.id:8443", true, "kopikita.id", "https://kopikita.id:8443"},
		{"https://orders.example.id", false, "kopikita.id", "https://kopikita.id"},
	}
	for _, c := range cases {
		db := &DB{publicURL: c.publicURL, subdomains: c.subdomains}
		got := db.storeURL(Store{Slug: "kopi", Domain: c.domain})
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// groupLab lets a test hold up the writing goroutine, so that writes wait for each other and share a commit. They
// append a letter to the description of the product "teh".
type groupLab struct {
	t    *testing.T
	db   *DB
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs map[string]error // what each write returned
}

// begin starts a write and returns when it waits for the writing goroutine, or is in it.
func (l *groupLab) begin(letter string, fn func(*Tx) error) {
	l.wg.Go(func() {
		err := l.db.write(l.t.Context(), func(tx *Tx) error {
			_, err := tx.exec("UPDATE products SET description = description || ? WHERE slug = 'teh'", letter)
			must(l.t, err)
			return fn(tx)
		})

		l.mu.Lock()
		defer l.mu.Unlock()
		l.errs[letter] = err
	})
	synctest.Wait()
}

func (l *groupLab) description(q querier) string {
	v, err := queryOne(q, scanValue[string], "SELECT description FROM products WHERE slug = 'teh'")
	must(l.t, err)
	return v
}

func succeed(*Tx) error { return nil }

// TestGroupCommit has six writes share a commit. Those that fail leave nothing, and the others are committed.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &groupLab{t: t, db: newBubbleServer(t).db, errs: map[string]error{}}
		hold := make(chan struct{})
		l.begin("a", func(*Tx) error { <-hold; return nil })
		l.begin("b", succeed)
		l.begin("N", func(*Tx) error { return errNotFound })
		l.begin("P", func(*Tx) error { panic("a defect") })
		l.begin("C", func(tx *Tx) error {
			_, err := tx.exec("UPDATE products SET price = -1")
			return err
		})
		l.begin("c", func(tx *Tx) error {
			if committed := l.description(l.db.reader); committed != "" {
				t.Errorf("%q is committed before the group is", committed)
			}
			if seen := l.description(tx); strings.ContainsAny(seen, "NPC") {
				t.Errorf("a write sees %q of those that failed", seen)
			}
			return nil
		})

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		err := l.db.write(gone, func(*Tx) error {
			t.Error("a write ran after its caller had gone")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who has gone gets %v", err)
		}

		close(hold)
		l.wg.Wait()
		committed := strings.Split(l.description(l.db.reader), "")
		slices.Sort(committed)
		if got := strings.Join(committed, ""); got != "abc" {
			t.Errorf("committed %q, want abc in any order", got)
		}
		for _, letter := range []string{"a", "b", "c"} {
			if err := l.errs[letter]; err != nil {
				t.Errorf("write %s: %v", letter, err)
			}
		}
		if err := l.errs["N"]; err != errNotFound {
			t.Errorf("a refused write returns %v", err)
		}
		if err := l.errs["P"]; err == nil || !strings.Contains(err.Error(), "a defect") {
			t.Errorf("a write that panics returns %v", err)
		}
		if err := l.errs["C"]; sqliteCode(err) != sqlite3.ErrConstraint {
			t.Errorf("a write that violates a constraint returns %v", err)
		}
	})
}

func TestTheFirstOfAGroupMayBeRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &groupLab{t: t, db: newBubbleServer(t).db, errs: map[string]error{}}
		hold := make(chan struct{})
		l.begin("N", func(*Tx) error { <-hold; return errNotFound })
		l.begin("a", succeed)
		close(hold)
		l.wg.Wait()

		if got := l.description(l.db.reader); got != "a" {
			t.Errorf("committed %q, want a", got)
		}
		if err := l.errs["N"]; err != errNotFound {
			t.Errorf("the refused write returns %v", err)
		}
		if err := l.errs["a"]; err != nil {
			t.Errorf("the write behind it returns %v", err)
		}
	})
}

// TestIDs needs more ids in one write than a millisecond has. They stay in order, and each order's id begins with the
// order's created_at.
func TestIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		last := ""
		err := s.db.write(t.Context(), func(tx *Tx) error {
			for range 4090 {
				id := tx.newID()
				if id <= last {
					t.Errorf("%s after %s", id, last)
				}
				last = id
			}
			return nil
		})
		must(t, err)

		for range 10 {
			r := s.do(t, "POST", "/v1/orders", s.order("teh", 1)).want(t, 201, "")
			id := r.at("order.id")
			if id <= last {
				t.Errorf("%s after %s", id, last)
			}
			last = id

			var createdAt Time
			must(t, createdAt.UnmarshalText([]byte(r.at("order.created_at"))))
			if got := firstRow(createdAt); got > rowOf(id) || firstRow(createdAt+1) <= rowOf(id) {
				t.Errorf("the id of an order created at %s is %s", createdAt, id)
			}
		}
	})
}

// setPages bounds the size of the database. SQLite raises a bound below the pages in use to these.
func setPages(t *testing.T, db *DB, pages int) {
	t.Helper()
	must(t, db.writer.script(fmt.Sprintf("PRAGMA max_page_count = %d", pages)))
}

// TestIDsAreComparedWhole asks for an order and a delivery by ids that lead to their rows and end with other random
// digits. Those digits protect the pay page, so nothing may be found.
func TestIDsAreComparedWhole(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	endpoint, _ := s.endpoint(t, "a.example")
	order := s.create(t, "teh", 1)
	delivery := scalar[string](t, s.db, "SELECT id FROM deliveries WHERE endpoint_id = ?", endpoint)
	wrongOrder, wrongDelivery := otherEnd(order), otherEnd(delivery)
	if rowOf(wrongOrder) != rowOf(order) {
		t.Fatalf("%s and %s do not lead to one row", wrongOrder, order)
	}

	ctx := t.Context()
	for _, c := range []struct {
		name string
		ask  func(order, delivery string) error
	}{
		{"API", func(id, _ string) error {
			switch status := s.do(t, "GET", "/v1/orders/"+id, nil).Status; status {
			case 200:
				return nil
			case 404:
				return errNotFound
			default:
				return fmt.Errorf("answered %d", status)
			}
		}},
		{"order", func(id, _ string) error { _, err := s.db.OrderWithSession(s.storeID, id); return err }},
		{"pay page", func(id, _ string) error { _, _, err := s.db.OrderPage(id); return err }},
		{"dashboard", func(id, _ string) error { _, err := s.db.OrderDetails(s.storeID, id); return err }},
		{"command", func(id, _ string) error { _, err := s.db.StoreOf("order", id); return err }},
		{"method", func(id, _ string) error { return s.db.ChangeMethod(ctx, s.storeID, id, "bank_transfer") }},
		{"delivery", func(_, id string) error { _, err := s.db.StoreOf("delivery", id); return err }},
		{"resend", func(_, id string) error { _, err := s.db.ResendDelivery(ctx, s.storeID, id); return err }},
		{"approval", func(id, _ string) error { _, err := s.db.ApproveOrder(ctx, s.storeID, id, Note{}); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.ask(wrongOrder, wrongDelivery); err != errNotFound {
				t.Errorf("the wrong id: %v, want %v", err, errNotFound)
			}
			if err := c.ask(order, delivery); err != nil {
				t.Errorf("the right id: %v", err)
			}
		})
	}

	t.Run("search", func(t *testing.T) {
		list, err := s.db.SearchOrders(s.storeID, OrderSearch{Text: wrongOrder, Limit: 5})
		must(t, err)
		if len(list.Orders) > 0 {
			t.Errorf("found %d orders, want none", len(list.Orders))
		}
	})
	t.Run("payment session", func(t *testing.T) {
		begun, err := s.db.BeginPaymentSession(ctx, s.storeID, wrongOrder)
		if err != nil || begun.session.ID != "" {
			t.Errorf("began the session %q, error %v", begun.session.ID, err)
		}
	})
}

// otherEnd returns an id with another last digit.
func otherEnd(id string) string {
	last := "0"
	if strings.HasSuffix(id, "0") {
		last = "1"
	}
	return id[:len(id)-1] + last
}

// TestTakenRows has another process use the numbers that this one would give out next.
func TestTakenRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		s.endpoint(t, "a.example")
		first := s.create(t, "teh", 1)

		// The time stands still. The process forgets what it has given out since the first order.
		must(t, s.db.write(t.Context(), func(*Tx) error {
			s.db.idCount = uint64(rowOf(first)&0xfff) - 1
			return nil
		}))
		second := s.create(t, "teh", 1)
		if rowOf(second) <= rowOf(first) {
			t.Errorf("the orders have the rows %d and %d", rowOf(first), rowOf(second))
		}

		counts := scalar[string](t, s.db, `
			SELECT (SELECT count(*) FROM orders) || ' orders, ' ||
			       (SELECT count(*) FROM events) || ' events, ' ||
			       (SELECT count(*) FROM deliveries) || ' deliveries'`)
		if counts != "2 orders, 2 events, 2 deliveries" {
			t.Error(counts)
		}
	})
}

// rowCounts are the rows that each new order adds one to.
func rowCounts(t *testing.T, db *DB) (n [2]int) {
	t.Helper()
	for i, table := range []string{"orders", "events"} {
		n[i] = scalar[int](t, db, "SELECT count(*) FROM "+table)
	}
	return n
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.create(t, "kopi", 1)
	setPages(t, s.db, 1)

	// Eight clients order until well after the disk is full.
	created, full := 1, 0
	var mu sync.Mutex
	parallel(8, func(int) {
		for range 20 {
			body := with(s.order("teh", 1), "return_url", "https://a.example/"+strings.Repeat("x", 2000))
			r := s.do(t, "POST", "/v1/orders", body)
			mu.Lock()
			if r.Status == 201 {
				created++
			} else {
				full++
				r.want(t, 503, "SERVICE_UNAVAILABLE")
			}
			mu.Unlock()

			if r.Status == 503 && r.Header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
			if strings.Contains(string(r.Body), "disk") {
				t.Errorf("the answer tells of the disk: %s", r.Body)
			}
		}
	})
	if full == 0 {
		t.Fatal("the disk did not fill")
	}

	t.Run("reads go on", func(t *testing.T) {
		for _, path := range []string{"/v1/orders", "/v1/products", "/readyz"} {
			s.do(t, "GET", path, nil).want(t, 200, "")
		}
	})

	t.Run("nothing is half written", func(t *testing.T) {
		if got, want := rowCounts(t, s.db), [2]int{created, created}; got != want {
			t.Errorf("orders and events have %v rows, want %v", got, want)
		}
	})

	t.Run("with more space, orders are created again", func(t *testing.T) {
		setPages(t, s.db, 1_000_000)
		s.create(t, "kopi", 1)
		if got, want := rowCounts(t, s.db), [2]int{created + 1, created + 1}; got != want {
			t.Errorf("orders and events have %v rows, want %v", got, want)
		}
		if stock := s.stock(t, "kopi"); stock != 8 {
			t.Errorf("stock %d, want 8", stock)
		}
	})

	found, err := inspectAll(s.db.path)
	must(t, err)
	if len(found.Faults) > 0 {
		t.Errorf("faults: %v", found.Faults)
	}
}

// namedQueries are the constants sql… of the program. One with a condition on the status is there with it and without.
func namedQueries(t *testing.T) map[string]string {
	t.Helper()
	queries := map[string]string{}
	for name, query := range constants(t, "sql") {
		if strings.HasSuffix(strings.TrimSpace(query), "WHERE") { // the beginning of several queries
			query += " s.id = ?"
		}
		if strings.Contains(query, "{status}") {
			queries[name+" by status"] = withStatus(query, Pending)
		}
		queries[name] = withStatus(query, "")
	}
	return queries
}

// TestQueryPlans compares the plan of every named query with testdata/query-plans.txt: which indexes it uses, and that
// it reads its rows in the order in which it returns them. A big shop whose file was analyzed has the same plans.
func TestQueryPlans(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/query-plans.txt")
	must(t, err)
	s := newBubbleServer(t)
	queries := namedQueries(t)

	for _, size := range []string{"a new file", "a big shop"} {
		if size == "a big shop" {
			addStatistics(t, s.db)
		}
		for _, name := range slices.Sorted(maps.Keys(queries)) {
			t.Run(size+"/"+name, func(t *testing.T) {
				lines := plan(t, s.db, queries[name])
				got := name + "\n    " + strings.Join(lines, "\n    ") + "\n"
				if !strings.Contains(string(want), "\n"+got+"\n") {
					t.Errorf("the plan is not in testdata/query-plans.txt:\n%s", got)
				}
			})
		}
	}
}

// TestLimitsArePlannedOnce looks for queries that SQLite would plan anew each time: see querier.
func TestLimitsArePlannedOnce(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, name := range files {
		source, err := os.ReadFile(name)
		must(t, err)
		isTest := strings.HasSuffix(name, "_test.go")
		if !isTest && strings.Contains(string(source), "LIMIT ?") {
			t.Errorf("%s: write LIMIT +? instead of LIMIT ?", name)
		}
	}
}

// TestKeysWaitForNoList keeps all connections for reading busy, as slow lists do. Orders are taken all the same.
func TestKeysWaitForNoList(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for range cap(s.db.reader.taken) {
		s.db.reader.taken <- struct{}{}
		defer func() { <-s.db.reader.taken }()
	}

	taken := make(chan string, 1)
	go func() { taken <- s.create(t, "teh", 1) }()
	select {
	case <-taken:
	case <-time.After(20 * time.Second):
		t.Fatal("an order waits for the lists")
	}
}

// addStatistics tells SQLite of a store with a million orders, 50,000 products and ten endpoints, as ANALYZE would
// (https://sqlite.org/fileformat2.html#the_sqlite_stat1_table).
func addStatistics(t *testing.T, db *DB) {
	t.Helper()
	err := db.writer.script(`
		ANALYZE;
		DELETE FROM sqlite_stat1;
		INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
			('stores',     'sqlite_autoindex_stores_1',   '1 1'),
			('orders',     'orders_by_time',              '1000000 1000000'),
			('orders',     'orders_by_status',            '1000000 1000000 200000'),
			('orders',     'orders_by_reference',         '1000000 1'),
			('orders',     'orders_by_external',          '900000 900000 1'),
			('orders',     'orders_to_expire',            '1000 1'),
			('products',   'sqlite_autoindex_products_1', '50000 1'),
			('products',   'sqlite_autoindex_products_2', '50000 50000 1'),
			('products',   'products_by_title',           '50000 50000 50000 2 1'),
			('events',     'events_of_order',             '2500000 3 1'),
			('endpoints',  'sqlite_autoindex_endpoints_1','10 1'),
			('endpoints',  'endpoints_of_store',          '10 10 1'),
			('deliveries', 'deliveries_due',              '200000 20000 1'),
			('deliveries', 'deliveries_recent',           '2500000 250000'),
			('deliveries', 'deliveries_of_event',         '2500000 1'),
			('order_history',    'order_history',         '1500000 2 1'),
			('payment_sessions', 'sqlite_autoindex_payment_sessions_1', '500000 1'),
			('payment_sessions', 'sqlite_autoindex_payment_sessions_2', '500000 2 1');
		ANALYZE sqlite_schema`)
	must(t, err)
}

// isScan reports whether a line of a query plan reads a whole table or index, or sorts.
func isScan(line string) bool {
	if strings.Contains(line, "TEMP B-TREE") {
		return true
	}
	if strings.Contains(line, "VIRTUAL TABLE") || strings.Contains(line, "CONSTANT ROW") {
		return false
	}
	return strings.HasPrefix(line, "SCAN ")
}

// plan returns the lines of a query's plan.
func plan(t *testing.T, db *DB, query string) []string {
	t.Helper()
	var parameters int
	err := db.writer.with(func(c *connection) error {
		stmt, err := c.raw.Prepare(query)
		if err != nil {
			return err
		}
		parameters = stmt.NumInput()
		return stmt.Close()
	})
	must(t, err)

	scan := func(r row) (line string, err error) {
		var id, parent, unused int
		err = r.Scan(&id, &parent, &unused, &line)
		return line, err
	}
	lines, err := queryAll(db.writer, scan, "EXPLAIN QUERY PLAN "+query, make([]any, parameters)...)
	must(t, err)
	return lines
}

// constants reads the text constants of the program's source whose names begin with prefix and a capital.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	must(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") || name == "nocgo.go" {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		must(t, err)
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

// TestSchemaKeepsItsVersion compares schema.sql and the migrations with testdata/schemas.txt.
func TestSchemaKeepsItsVersion(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile("testdata/schemas.txt")
	must(t, err)
	texts := map[string]string{fmt.Sprintf("schema %d", schemaVersion): schema}
	for version := 2; version <= schemaVersion; version++ {
		text, err := migrations.ReadFile(fmt.Sprintf("migrations/%d.sql", version))
		must(t, err)
		texts[fmt.Sprintf("migration %d", version)] = string(text)
	}

	for name, text := range texts {
		line := fmt.Sprintf("%-11s %x", name, sha256.Sum256([]byte(withoutComments(text))))
		if !slices.Contains(strings.Split(string(recorded), "\n"), line) {
			t.Errorf("testdata/schemas.txt has not the line\n%s\nIf that version is released, raise schemaVersion and "+
				"write a migration instead of changing it. If not, change the line.", line)
		}
	}
}

// withoutComments returns what SQLite reads of a text: without comments, and with one space where there are more.
func withoutComments(sql string) string {
	sql = regexp.MustCompile(`--[^\n]*`).ReplaceAllString(sql, "")
	return strings.Join(strings.Fields(sql), " ")
}

// TestMigrationChecksForeignKeys migrates a file whose rows refer to missing ones.
func TestMigrationChecksForeignKeys(t *testing.T) {
	t.Parallel()
	file := unzip(t, "testdata/v1.db.gz")
	sqliteFile(t, file, "PRAGMA foreign_keys = off; UPDATE api_keys SET store_id = 'missing'")
	wantRefused(t, file, "api_keys: row 1 refers to a missing row of stores")
}

// TestForeignKeysAreEnforced is about a file that was just created, and one that was migrated.
func TestForeignKeysAreEnforced(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"new":      filepath.Join(t.TempDir(), "new.db"),
		"migrated": unzip(t, "testdata/v1.db.gz"),
	} {
		t.Run(name, func(t *testing.T) {
			db, err := openDB(file, true)
			must(t, err)
			defer db.Close()
			err = db.write(t.Context(), func(tx *Tx) error {
				_, err := tx.exec("INSERT INTO endpoints (id, store_id, url, events, secret, created_at) " +
					"VALUES ('e', 'missing', 'u', '[]', 's', 0)")
				return err
			})
			if sqliteCode(err) != sqlite3.ErrConstraint {
				t.Errorf("a row that refers to a missing one: %v", err)
			}
		})
	}
}
