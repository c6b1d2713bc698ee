//go:build cgo

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// openMigrated opens a file that an older version of the program wrote, and returns its only store.
func openMigrated(t *testing.T, file string) (*DB, Store) {
	t.Helper()
	db, err := openDB(file, false)
	must(t, err)
	t.Cleanup(func() { db.Close() })

	stores, err := db.Stores()
	must(t, err)
	if len(stores) != 1 {
		t.Fatalf("%d stores, want 1", len(stores))
	}
	t.Cleanup(func() { wantOrdersAgree(t, db) })
	return db, stores[0].Store
}

// testMigratedFile checks that a migrated file has the tables of a new one, and that nothing is wrong in it.
func testMigratedFile(t *testing.T, db *DB) {
	t.Helper()
	t.Run("the tables are those of a new file", func(t *testing.T) {
		fresh, err := openDB(filepath.Join(t.TempDir(), "new.db"), true)
		must(t, err)
		defer fresh.Close()

		got, want := columnsOf(t, db), columnsOf(t, fresh)
		if got != want {
			t.Errorf("migrated:\n%s\nnew:\n%s", got, want)
		}
	})

	t.Run("the file is sound", func(t *testing.T) {
		found, err := inspectAll(db.path)
		must(t, err)
		if found.Version != schemaVersion {
			t.Errorf("version %d, want %d", found.Version, schemaVersion)
		}
		if len(found.Faults) > 0 {
			t.Errorf("faults: %v", found.Faults)
		}
	})
}

// TestMigrationFrom1 opens a file that version 1 of the program wrote: a store with two endpoints that are
// off, and five orders in all kinds of states.
func TestMigrationFrom1(t *testing.T) {
	t.Parallel()
	db, st := openMigrated(t, unzip(t, "testdata/v1.db.gz"))
	testMigratedFile(t, db)

	t.Run("orders keep their state and history", func(t *testing.T) {
		const want = "awaiting_verification other_amount? failed by_command " +
			"paid paid paid buyer_claims by_command"
		got := scalar[string](t, db, `
			SELECT group_concat(o.status || ' ' || (
				SELECT group_concat(
				           CASE note ->> 'code' WHEN 'text' THEN 'other_amount?' ELSE note ->> 'code' END, ' ')
				FROM   (SELECT note FROM order_history WHERE order_row = o.row ORDER BY position)), ' ')
			FROM (SELECT * FROM orders ORDER BY id DESC) o`)
		if got != want {
			t.Errorf("orders:\n got %s\nwant %s", got, want)
		}
	})

	t.Run("an order that is canceled releases its stock", func(t *testing.T) {
		id := scalar[string](t, db, "SELECT id FROM orders WHERE status = 'awaiting_verification'")
		_, err := db.Transition(t.Context(), st.ID, id, OwnerRejects, Note{Code: NoteByCommand})
		must(t, err)

		// 40 less two of an order that is paid and two of a paid bundle.
		if stock := scalar[int](t, db, "SELECT stock FROM products WHERE slug = 'kopi-gayo'"); stock != 36 {
			t.Errorf("stock %d, want 36", stock)
		}
	})

	t.Run("endpoints say why they are off", func(t *testing.T) {
		endpoints, err := db.Endpoints(st.ID, 1)
		must(t, err)
		if len(endpoints) != 2 {
			t.Fatalf("%d endpoints, want 2", len(endpoints))
		}
		for _, e := range endpoints {
			if e.OffReason != OffByOwner {
				t.Errorf("off because of %q, want %q", e.OffReason, OffByOwner)
			}
		}
	})
}

// migratedOrder is what a migration made of an order. Payments are named without the order's id, which is a
// part of their names in the file.
type migratedOrder struct {
	name     string // its external_id
	status   string
	shown    string // the alerts in its JSON
	alerts   string // each as: code amount/due payment
	sessions string // each as: attempt, state, what the gateway said, when it is asked about
	payments string // each as: name, state, amount, returned
}

// migratedOrders reads the orders of a file, the oldest first.
func migratedOrders(t *testing.T, db *DB) []migratedOrder {
	t.Helper()
	scan := func(r row) (o migratedOrder, err error) {
		err = r.Scan(&o.name, &o.status, &o.shown, &o.alerts, &o.sessions, &o.payments)
		return o, err
	}
	orders, err := queryAll(db.reader, scan, `
		SELECT external_id, status, coalesce(json ->> 'alerts', ''),
		       coalesce((
		           SELECT group_concat(code || ' ' || amount || '/' || due || ' ' ||
		                      replace(transaction_id, o.id || '-', ''), ', ')
		           FROM   alerts
		           WHERE  order_row = o.row AND resolved_at IS NULL), ''),
		       coalesce((
		           SELECT group_concat(attempt || ' ' || status || ' ' ||
		                      iif(gateway_state = '', '', gateway_state || ' ') || CASE
		                      WHEN next_check_at IS NULL THEN 'never'
		                      WHEN next_check_at = checked_at THEN 'now'
		                      WHEN next_check_at = expires_at THEN 'at its end'
		                      WHEN next_check_at = ended_at + 7 * 86400000 THEN 'after a week'
		                      ELSE next_check_at END, ', ')
		           FROM   (SELECT * FROM payment_sessions WHERE order_row = o.row ORDER BY attempt)), ''),
		       coalesce((
		           SELECT group_concat(replace(p.transaction_id, o.id || '-', '') || ' ' || p.state || ' ' ||
		                      p.amount || ' ' || p.returned, ', ')
		           FROM   payments p
		           JOIN   payment_sessions s ON s.id = p.session_id
		           WHERE  s.order_row = o.row), '')
		FROM   orders o
		ORDER BY id`)
	must(t, err)
	return orders
}

func compareMigrated(t *testing.T, got, want []migratedOrder) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d orders, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("\n got %q\nwant %q", got[i], want[i])
		}
	}
}

// TestMigrationFrom2 opens a file that version 2 of the program wrote: an order in every state that a
// payment session had there. The file is years old, so nothing that is over is asked about.
func TestMigrationFrom2(t *testing.T) {
	t.Parallel()
	db, st := openMigrated(t, unzip(t, "testdata/v2.db.gz"))
	testMigratedFile(t, db)

	compareMigrated(t, migratedOrders(t, db), []migratedOrder{
		{"expired", "expired", "", "", "1 expired never", ""},
		{"oversold", "paid", `["oversold"]`, "oversold 0/0 ", "1 paid never", "tx-1 settled 172500 0"},
		{"pending-active", "pending", "", "", "1 active now", ""},
		{"pending-failed", "pending", "", "", "1 active denied now", "tx-1 denied 172500 0"},
		{"paid", "paid", "", "", "1 paid never", "tx-1 settled 172500 0"},
		{
			"overpaid", "paid", `["overpaid"]`, "overpaid 172500/0 tx-2", "1 paid never, 2 paid never",
			"tx-1 settled 172500 0, tx-2 settled 172500 0",
		},
		{
			"other-amount", "awaiting_verification", `["underpaid"]`, "underpaid 172499/172500 tx-1",
			"1 paid never", "tx-1 settled 172499 0",
		},
		{"paid-xendit", "paid", "", "", "1 paid never", "py-1 settled 172500 0"},
		{"active-xendit", "pending", "", "", "1 active now", ""},
		{"active-sandbox", "pending", "", "", "1 active now", ""},
		{"undecided", "pending", "", "", "1 active now", "tx-1  0 0"},
		{"warning", "pending", "", "", "1 active now", ""},
		{"warning-starting", "pending", "", "", "1 starting at its end", ""},
	})

	t.Run("the store is no test store", func(t *testing.T) {
		if scalar[bool](t, db, "SELECT test_mode FROM stores") {
			t.Error("the store is in test mode")
		}
	})
	testMigratedAccounts(t, db, st)
	testMigratedProblems(t, db)
	testMigratedNotification(t, db)
}

func testMigratedAccounts(t *testing.T, db *DB, st Store) {
	t.Helper()
	t.Run("sessions are asked about with the key in use", func(t *testing.T) {
		accounts, err := db.GatewayAccounts(st.ID)
		must(t, err)
		if len(accounts) != 2 {
			t.Fatalf("%d accounts, want 2", len(accounts))
		}

		for _, a := range accounts {
			others := scalar[int](t, db, `
				SELECT count(*) FROM payment_sessions WHERE provider = ? AND account_id <> ?`, a.Provider, a.ID)
			if others > 0 {
				t.Errorf("%d sessions at %s have another account", others, a.Provider)
			}
		}
		if accounts[1].CallbackToken != "callback-token-example" {
			t.Errorf("%s has the callback token %q", accounts[1].Provider, accounts[1].CallbackToken)
		}
	})
}

func testMigratedProblems(t *testing.T, db *DB) {
	t.Helper()
	t.Run("what the gateway did not answer is kept", func(t *testing.T) {
		const want = "warning unreachable connection refused, warning-starting unreachable connection refused"
		got := scalar[string](t, db, `
			SELECT group_concat(o.external_id || ' ' || s.problem || ' ' || s.problem_text, ', ')
			FROM   payment_sessions s
			JOIN   orders o ON o.row = s.order_row
			WHERE  s.problem || s.problem_text <> ''`)
		if got != want {
			t.Errorf("problems:\n got %s\nwant %s", got, want)
		}
	})
}

func testMigratedNotification(t *testing.T, db *DB) {
	t.Helper()
	t.Run("an undecided notification names its payment", func(t *testing.T) {
		const want = "undecided tx-1 settled"
		got := scalar[string](t, db, `
			SELECT group_concat(o.external_id || ' ' || replace(n.transaction_id, o.id || '-', '') || ' ' || n.claim)
			FROM   notifications n
			JOIN   payment_sessions s ON s.id = n.session_id
			JOIN   orders o ON o.row = s.order_row
			WHERE  n.decided_at IS NULL`)
		if got != want {
			t.Errorf("undecided: %s, want %s", got, want)
		}
	})
}

// TestMigrationFrom2WithMoreStates changes orders of the old file into states that it does not have.
func TestMigrationFrom2WithMoreStates(t *testing.T) {
	t.Parallel()
	file := unzip(t, "testdata/v2.db.gz")
	changeOlderFile(t, file)
	db, _ := openMigrated(t, file)

	want := map[string]migratedOrder{
		"paid":        {"paid", "paid", "", "", "1 paid after a week", "tx-1 partly refunded 172500 500"},
		"paid-xendit": {"paid-xendit", "paid", "", "", "1 paid never", "py-1 partly refunded 172500 800"},
		"pending-active": {
			"pending-active", "awaiting_verification", "", "", "1 active now", "tx-9 challenged 172500 0",
		},
		"warning":       {"warning", "paid", "", "", "1 active now", "tx-9 challenged 172500 0"},
		"oversold":      {"oversold", "refunded", "", "", "1 paid never", "tx-1 refunded 172500 172500"},
		"active-xendit": {"active-xendit", "pending", "", "", "1 expired at its end", ""},
	}
	for _, got := range migratedOrders(t, db) {
		w, changed := want[got.name]
		if changed && got != w {
			t.Errorf("\n got %q\nwant %q", got, w)
		}
	}

	t.Run("what the owner approved is to be accepted at the gateway", func(t *testing.T) {
		got := scalar[string](t, db, `
			SELECT group_concat(o.external_id)
			FROM   payment_sessions s
			JOIN   orders o ON o.row = s.order_row
			WHERE  s.approved = 1`)
		if got != "warning" {
			t.Errorf("approved: %s, want warning", got)
		}
	})
}

// changeOlderFile changes orders of a file of version 2.
func changeOlderFile(t *testing.T, file string) {
	t.Helper()
	db := openSQLite(file, "", 1)
	defer db.Close()

	change := func(order, statement string) {
		t.Helper()
		must(t, db.script(statement+" = (SELECT id FROM orders WHERE external_id = '"+order+"')"))
	}
	set := func(order, field, value string) {
		t.Helper()
		change(order, "UPDATE orders SET json = json_set(json, '$."+field+"', '"+value+"') WHERE id")
	}
	note := func(order, text string) {
		t.Helper()
		change(order, `
			INSERT INTO order_history (order_id, position, at, from_status, to_status, actor, note)
			SELECT order_id, max(position) + 1, 0, 'paid', 'paid', 'gateway', '`+text+`'
			FROM   order_history
			WHERE  order_id`)
	}

	// Two refunds of a part. Midtrans's second amount is that of both, Xendit's is not.
	note("paid", `{"code":"returned_partly","attempt":1,"amount":300}`)
	note("paid", `{"code":"returned_partly","attempt":1,"amount":500}`)
	note("paid-xendit", `{"code":"returned_partly","attempt":1,"amount":300}`)
	note("paid-xendit", `{"code":"returned_partly","attempt":1,"amount":500}`)

	// This order changed yesterday, so its session is asked about once more.
	yesterday := time.Now().UTC().Add(-24 * time.Hour)
	set("paid", "updated_at", yesterday.Format("2006-01-02T15:04:05.000Z"))

	// One challenged payment waits for the owner, and another was approved.
	const challenged = "UPDATE payment_sessions SET transaction_id = order_id || '-tx-9' WHERE order_id"
	set("pending-active", "status", "awaiting_verification")
	change("pending-active", challenged)
	set("warning", "status", "paid")
	change("warning", challenged)
	note("warning", `{"code":"challenged","attempt":1}`)
	change("warning", `
		UPDATE orders
		SET    paid_by = (SELECT id FROM payment_sessions WHERE order_id = orders.id)
		WHERE  id`)

	// The owner refunded an order by hand. Of another one, the attempt has ended and the order has not.
	set("oversold", "status", "refunded")
	change("oversold", "UPDATE orders SET oversold = 0 WHERE id")
	change("active-xendit", "UPDATE payment_sessions SET status = 'expired' WHERE order_id")
}

// TestMigrationFrom3 opens a file that version 3 of the program wrote. It has the orders of the older file and five
// more, whose events went to two endpoints: one that took them, and one that did not answer.
func TestMigrationFrom3(t *testing.T) {
	t.Parallel()
	db, st := openMigrated(t, unzip(t, "testdata/v3.db.gz"))
	testMigratedFile(t, db)

	t.Run("orders keep their states", func(t *testing.T) {
		const want = "v3-waits pending, v3-claimed awaiting_verification, v3-paid paid, v3-canceled failed, " +
			"v3-refunded refunded"
		got := scalar[string](t, db, `
			SELECT group_concat(external_id || ' ' || status, ', ')
			FROM   (SELECT * FROM orders WHERE external_id LIKE 'v3-%' ORDER BY id)`)
		if got != want {
			t.Errorf("orders:\n got %s\nwant %s", got, want)
		}
	})

	t.Run("the lines of each order sum to its amount", func(t *testing.T) {
		orders, err := queryAll(db.reader, scanOrder, "SELECT json FROM orders")
		must(t, err)
		withFee := 0
		for _, o := range orders {
			if o.Amount != o.beforeFee()+o.Fee+o.UniqueCode {
				t.Errorf("%s: amount %d of %d and a fee of %d", o.ExternalID, o.Amount, o.beforeFee(), o.Fee)
			}
			if o.Fee > 0 {
				withFee++
			}
		}
		if withFee == 0 {
			t.Error("no order has a fee")
		}
	})

	t.Run("orders show when they were paid", func(t *testing.T) {
		orders, err := queryAll(db.reader, scanOrder, "SELECT json FROM orders WHERE external_id LIKE 'v3-%'")
		must(t, err)
		for _, o := range orders {
			want := Time(0)
			if o.Status == Paid || o.Status == Refunded {
				want = scalar[Time](t, db,
					"SELECT at FROM order_history WHERE order_row = (SELECT row FROM orders WHERE id = ?) AND to_status = 'paid'", o.ID)
			}
			if o.PaidAt != want {
				t.Errorf("%s: paid at %s, want %s", o.ExternalID, o.PaidAt, want)
			}
		}
	})

	t.Run("deliveries that wait still wait", func(t *testing.T) {
		const want = "delivered 10, pending 3"
		got := scalar[string](t, db, `
			SELECT group_concat(status || ' ' || n, ', ')
			FROM   (SELECT status, count(*) AS n FROM deliveries GROUP BY status)`)
		if got != want {
			t.Errorf("deliveries: %s, want %s", got, want)
		}
	})

	t.Run("a refund of an older order takes its revenue off the day it was paid", func(t *testing.T) {
		paid, err := queryOne(db.reader, scanOrder, "SELECT json FROM orders WHERE external_id = 'v3-paid'")
		must(t, err)
		const revenue = "SELECT revenue FROM daily_totals WHERE day = ?"
		before := scalar[int64](t, db, revenue, dayOf(paid.PaidAt))
		_, err = db.Transition(t.Context(), st.ID, paid.ID, OwnerRefunds, Note{Code: NoteByCommand})
		must(t, err)
		if after := scalar[int64](t, db, revenue, dayOf(paid.PaidAt)); after != before-paid.Amount {
			t.Errorf("revenue %d, was %d", after, before)
		}
	})
}

// TestMigrationFrom4 opens a file that version 4 of the program wrote: three orders whose notes and metadata look like what
// wholeEvent searches for, with their events whole and waiting for an endpoint. Their answers and events stay as they were.
func TestMigrationFrom4(t *testing.T) {
	t.Parallel()
	file := unzip(t, "testdata/v4.db.gz")
	older := openSQLite(file, "", 1)
	before, err := queryOne(older, scanValue[string],
		"SELECT group_concat(body, char(10)) FROM (SELECT body FROM events ORDER BY row)")
	must(t, err)
	must(t, older.Close())
	db, st := openMigrated(t, file)
	testMigratedFile(t, db)

	t.Run("events are listed as they were sent", func(t *testing.T) {
		bodies, _, err := db.Events(st.ID, EventFilter{Limit: 50})
		must(t, err)
		if strings.Join(bodies, "\n") != before {
			t.Errorf("events:\n got %s\nwant %s", strings.Join(bodies, "\n"), before)
		}
	})

	t.Run("an order is replayed", func(t *testing.T) {
		must(t, db.change(t.Context(), "UPDATE idempotency_keys SET created_at = ?", db.Now()))
		hash := scalar[[]byte](t, db, "SELECT body_hash FROM idempotency_keys WHERE key = 'pending'")
		again, err := db.CreateOrder(t.Context(), st, NewOrder{IdempotencyKey: "pending", BodyHash: [32]byte(hash)})
		must(t, err)
		if !again.Replayed || !strings.Contains(before, string(again.Shown)) {
			t.Errorf("replayed: %t, %s", again.Replayed, again.Shown)
		}
	})

	t.Run("an order that changes has its whole event", func(t *testing.T) {
		id := scalar[string](t, db, "SELECT id FROM orders WHERE external_id = 'pending'")
		_, err := db.Transition(t.Context(), st.ID, id, OwnerApproves, Note{Code: NoteByCommand})
		must(t, err)
		bodies, _, err := db.Events(st.ID, EventFilter{OrderID: id, Limit: 50})
		must(t, err)
		var created, paid struct{ Data struct{ Order object } }
		must(t, json.Unmarshal([]byte(bodies[0]), &created))
		must(t, json.Unmarshal([]byte(bodies[1]), &paid))

		if paid.Data.Order["status"] != "paid" {
			t.Errorf("the order is %v", paid.Data.Order["status"])
		}
		for name, value := range created.Data.Order {
			changed := slices.Contains([]string{"status", "requires_payment", "paid_at", "updated_at"}, name)
			if !changed && !reflect.DeepEqual(paid.Data.Order[name], value) {
				t.Errorf("%s is %v, want %v", name, paid.Data.Order[name], value)
			}
		}
	})

	t.Run("an order is found by its reference", func(t *testing.T) {
		o, err := queryOne(db.reader, scanOrder, "SELECT json FROM orders WHERE external_id = 'failed'")
		must(t, err)
		found, err := db.SearchOrders(st.ID, OrderSearch{Text: o.PaymentReference, Limit: 10})
		must(t, err)
		if len(found.Orders) != 1 || found.Orders[0].ID != o.ID {
			t.Errorf("%s: found %v", o.PaymentReference, found.Orders)
		}
	})
}

// TestMigrationFrom5 opens a file that version 5 of the program wrote: four orders, and a catalog with drafts. Searches
// find what is there, and what changes after that.
func TestMigrationFrom5(t *testing.T) {
	t.Parallel()
	db, st := openMigrated(t, unzip(t, "testdata/v5.db.gz"))
	testMigratedFile(t, db)

	t.Run("orders keep their states", func(t *testing.T) {
		const want = "pending pending, paid paid, failed failed, refunded refunded"
		got := scalar[string](t, db, `
			SELECT group_concat(external_id || ' ' || status, ', ')
			FROM   (SELECT * FROM orders ORDER BY row)`)
		if got != want {
			t.Errorf("orders:\n got %s\nwant %s", got, want)
		}
	})

	s := &testServer{server: &server{db: db}, storeID: st.ID}
	finds := func(t *testing.T, text, want string) {
		t.Helper()
		if got := s.finds(t, text); got != want {
			t.Errorf("%q finds %q, want %q", text, got, want)
		}
	}

	t.Run("titles are found", func(t *testing.T) {
		finds(t, "kopi", "kopi-gayo, duo, kopi-gayo rahasia, duo")
		finds(t, "Crème", "creme, , creme, ")
		finds(t, "hemat", ", , , hemat")
	})

	t.Run("so are those that change and come", func(t *testing.T) {
		s.importCatalog(t, st.ID, `{
			"products": [
				{"slug": "kopi-gayo", "title": "Kopi Toraja", "price": 85000},
				{"slug": "baru", "title": "Gayo", "price": 1}
			],
			"bundles": [{"slug": "duo", "title": "Berdua", "price": 1, "items": [{"slug": "teh", "quantity": 2}]}]
		}`)
		finds(t, "gayo", "baru, , baru, ")
		finds(t, "toraja", "kopi-gayo, , kopi-gayo, ")
		finds(t, "kopi", "kopi-gayo, , kopi-gayo rahasia, ")
		finds(t, "berdua", ", duo, , duo")
	})

	t.Run("and not those that are gone", func(t *testing.T) {
		must(t, db.change(t.Context(), "DELETE FROM products WHERE slug = 'baru'"))
		finds(t, "gayo", ", , , ")
	})
}

// TestMigrationWaitsForTheService opens an older file that a service serves, which would not know the new tables: nothing
// is changed until that has stopped.
func TestMigrationWaitsForTheService(t *testing.T) {
	t.Parallel()
	file := unzip(t, "testdata/v4.db.gz")
	stop, err := lockServing(file)
	must(t, err)

	wantRefused(t, file, "stop it first")
	must(t, stop())
	openMigrated(t, file)
}

// wantRefused opens an older file, which has to fail with these words and to leave the file as it is.
func wantRefused(t *testing.T, file, words string) {
	t.Helper()
	before, err := os.ReadFile(file)
	must(t, err)
	_, err = openDB(file, false)
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want one with %q", err, words)
	}
	after, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(after, before) {
		t.Error("the migration that failed has changed the file")
	}
}

// unzip writes the content of a gzip file into the test's directory.
func unzip(t *testing.T, name string) (file string) {
	t.Helper()
	packed, err := os.Open(name)
	must(t, err)
	defer packed.Close()

	content, err := gzip.NewReader(packed)
	must(t, err)
	data, err := io.ReadAll(content)
	must(t, err)
	return writeFile(t, strings.TrimSuffix(filepath.Base(name), ".gz"), string(data))
}

// columnsOf lists a file's tables with their columns, and its indexes and triggers with their definitions.
func columnsOf(t *testing.T, db *DB) string {
	t.Helper()
	return scalar[string](t, db, `
		SELECT group_concat(line, char(10))
		FROM (
			SELECT s.name || '.' || c.name || ' ' || c.type || ' ' ||
			       c."notnull" || ' ' || c.pk || ' ' || c.hidden AS line
			FROM   sqlite_schema s
			JOIN   pragma_table_xinfo(s.name) c
			WHERE  s.type = 'table'
			UNION ALL
			SELECT name || ' ' || coalesce(sql, '') FROM sqlite_schema WHERE type <> 'table'
			ORDER BY 1)`)
}
