//go:build cgo

package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// shopSize is what a shop of the part bigShop has. Another store in its file has a tenth as many orders.
type shopSize struct {
	orders   int
	products int
	bundles  int
	span     time.Duration // in which the orders came
	recent   int           // orders whose events are kept
	due      int           // events that wait at each endpoint
}

// The small shop has more than a page of everything, so that most pages of both shops show as many rows. It has as many
// endpoints as the big one, because an order has a delivery for each.
var (
	smallShop = shopSize{
		orders:   1_000,
		products: 100,
		bundles:  60,
		span:     30 * 24 * time.Hour,
		recent:   500,
		due:      100,
	}
	bigShop = shopSize{
		orders:   1_000_000,
		products: 50_000,
		bundles:  1_000,
		span:     2 * 365 * 24 * time.Hour,
		recent:   50_000,
		due:      20_000,
	}
)

// catalog has products of which every second has a limited stock, and a method for each way to pay.
func (size shopSize) catalog() []byte {
	var products, bundles []object
	for i := range size.products {
		product := object{
			"slug":        fmt.Sprintf("kopi-%05d", i),
			"title":       fmt.Sprintf("Kopi nomor %05d, 250 g", i),
			"description": "Arabika dari dataran tinggi, disangrai sedang setiap hari Senin.",
			"price":       85_000,
		}
		if i%2 == 0 {
			product["stock"] = maxMoney
		}
		products = append(products, product)
	}
	for i := range size.bundles {
		bundles = append(bundles, object{
			"slug":        fmt.Sprintf("paket-%05d", i),
			"title":       fmt.Sprintf("Paket nomor %05d", i),
			"description": "Dua kopi.",
			"price":       160_000,
			"items": []object{
				{"slug": fmt.Sprintf("kopi-%05d", i), "quantity": 1},
				{"slug": fmt.Sprintf("kopi-%05d", i+20), "quantity": 1},
			},
		})
	}
	methods := []object{
		{"code": "bank_transfer", "name": "Transfer", "provider": "manual"},
		{"code": "sandbox", "name": "Gateway", "provider": "sandbox"},
		{"code": "unik", "name": "Transfer unik", "provider": "manual", "unique_code": true},
	}
	return mustJSON(object{
		"products":        products,
		"bundles":         bundles,
		"payment_methods": methods,
	})
}

// shopOrder is what the requests need to know of an order that was seeded.
type shopOrder struct {
	id        string
	reference string
	status    Status
	provider  Provider
}

// seeder writes the orders of a shop.
type seeder struct {
	size   shopSize
	store  Store
	other  Store
	now    Time
	orders []shopOrder
}

// seed fills the file of a program that does not run yet.
func (s *shop) seed(b *testing.B) {
	b.Helper()
	db, err := openDB(s.db, false)
	must(b, err)
	defer func() { must(b, db.Close()) }()
	db.writer.script("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144")

	f := seeder{
		size:  s.size,
		other: addNeighbour(b, db, "tetangga"),
		now:   timeOf(time.Now()),
	}
	must(b, db.change(b.Context(), "UPDATE stores SET created_at = ?", f.now.Add(-f.size.span)))
	profile, err := db.Store(s.store)
	must(b, err)
	f.store = profile.Store
	for range maxEndpoints {
		id, err := db.AddEndpoint(b.Context(), s.store, s.receiver, nil, newSecret())
		must(b, err)
		s.endpoints = append(s.endpoints, id)
	}

	const batch = 10_000
	for done := 0; done < f.size.orders; done += batch {
		must(b, db.write(b.Context(), func(tx *Tx) error {
			return f.addOrders(tx, done, min(done+batch, f.size.orders))
		}))
	}
	must(b, db.write(b.Context(), f.addRest))
	s.orders = f.orders
	for range 10 {
		s.sessions = append(s.sessions, s.choose(Pending, ProviderSandbox).id)
	}
	s.sample(b, db)
	must(b, db.writer.script("PRAGMA wal_checkpoint(TRUNCATE)"))
}

// sample reads what the requests name.
func (s *shop) sample(b *testing.B, db *DB) {
	b.Helper()
	var err error
	s.products, err = queryAll(db.writer, scanValue[string],
		"SELECT id FROM products WHERE store_id = ? ORDER BY slug DESC LIMIT 60", s.store)
	must(b, err)
	s.events, err = queryAll(db.writer, scanValue[string],
		"SELECT id FROM events WHERE store_id = ? AND row % 97 = 1 ORDER BY row LIMIT ?",
		s.store, s.size.recent/97)
	must(b, err)
	s.deliveries, err = queryAll(db.writer, scanPair,
		"SELECT id, endpoint_id FROM deliveries ORDER BY row DESC LIMIT ? OFFSET ?", 1000, s.size.due*5)
	must(b, err)
}

func (f *seeder) addOrders(tx *Tx, from, to int) error {
	interval := f.size.span / time.Duration(f.size.orders)
	for i := from; i < to; i++ {
		tx.now = f.now.Add(-interval * time.Duration(f.size.orders-i))
		o, err := f.addOrder(tx, f.store, i)
		if err != nil {
			return err
		}
		f.orders = append(f.orders, o)

		if i%10 == 0 {
			if _, err := f.addOrder(tx, f.other, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// statusShare is the state of an order by its number: of 100 orders in a row, 60 are paid.
func statusShare(i int) Status {
	switch n := i * 37 % 100; {
	case n < 5:
		return Pending
	case n < 10:
		return AwaitingVerification
	case n < 15:
		return Failed
	case n < 19:
		return Refunded
	case n < 40:
		return Expired
	default:
		return Paid
	}
}

// addOrder writes the order number i of a store with its events, if they are kept. Its history, session and deliveries
// follow in seedStatements. Every second order is the gateway's, and no pending one is past its end.
func (f *seeder) addOrder(tx *Tx, st Store, i int) (shopOrder, error) {
	id := tx.newID()
	o := benchOrder(id, i, tx.now)
	if o.Status == Pending || o.Status == AwaitingVerification {
		o.ExpiresAt = f.now.Add(365 * 24 * time.Hour)
	}
	if o.Status == Paid || o.Status == Refunded {
		o.PaidAt = tx.now
	}
	if i%100 == 1 {
		o.Alerts = []AlertCode{AlertOversold}
	}
	var paidBy *string
	if o.PaymentProvider == ProviderSandbox && o.PaidAt > 0 {
		paidBy = &id // The session has the order's id: see seedStatements.
	}

	stored := string(mustJSON(o))
	components := fmt.Sprintf(`[{"product_id":"%s","quantity":2,"reserved":true}]`, o.Items[0].ProductID)
	_, err := tx.exec(`
		INSERT INTO orders (row, store_id, status, reference, provider, external_id, expires_at, components, paid_by, json)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		rowOf(id), st.ID, o.Status, o.PaymentReference, o.PaymentProvider, o.ExternalID, o.ExpiresAt, components, paidBy, stored)
	if err == nil && len(o.Alerts) > 0 {
		_, err = tx.exec(`
			INSERT INTO alerts (id, store_id, order_row, code, transaction_id, amount, due, raised_at)
			VALUES (?, ?, ?, ?, '', 0, 0, ?)`,
			id, st.ID, rowOf(id), o.Alerts[0], tx.now)
	}
	created := shopOrder{id, o.PaymentReference, o.Status, o.PaymentProvider}
	if err != nil || i < f.size.orders-f.size.recent {
		return created, err
	}

	data := st.eventData(stored)
	err = tx.insertEvent(st.ID, id, OrderCreated, 1, data, nil)
	if err == nil && o.Status != Pending {
		err = tx.insertEvent(st.ID, id, eventOf[o.Status], 2, data, nil)
	}
	return created, err
}

// benchOrder is the order number i.
func benchOrder(id string, i int, at Time) Order {
	o := Order{
		ID:                id,
		Status:            statusShare(i),
		PaymentReference:  fmt.Sprintf("INV-%s-%06X", at.Time().In(wib).Format("20060102"), i*7919%(1<<24)),
		Amount:            170_000 + int64(i),
		Subtotal:          170_000 + int64(i),
		Currency:          "IDR",
		SettlementChannel: ChannelManual,
		PaymentProvider:   ProviderManual,
		PaymentMethod:     "bank_transfer",
		Buyer: Buyer{
			Name:  fmt.Sprint("Siti Rahayu ", i),
			Email: fmt.Sprintf("siti%d@example.id", i),
			Phone: fmt.Sprintf("+6281%09d", i),
		},
		ExternalID: fmt.Sprintf("shop-%07d", i),
		ExpiresAt:  at.Add(24 * time.Hour),
		CreatedAt:  at,
		UpdatedAt:  at,
	}
	o.RequiresPayment = o.Status == Pending
	if i%2 == 0 {
		o.SettlementChannel = ChannelGateway
		o.PaymentProvider = ProviderSandbox
		o.PaymentMethod = "sandbox"
	}
	for k := range 3 {
		o.Items = append(o.Items, Item{
			Type:      KindProduct,
			Title:     fmt.Sprintf("Kopi nomor %05d, 250 g", i%100+k),
			Quantity:  int64(1 + k),
			UnitPrice: 85_000,
			LineTotal: 85_000 * int64(1+k),
			ProductID: id,
		})
	}
	return o
}

// seedStatements write what belongs to the orders: history, sessions and payments of the gateway's orders,
// notifications, totals, and the deliveries of events. Their rows are numbered in steps of 16 from that of the event.
// They take the time, the store and how many events are due.
var seedStatements = []string{
	`INSERT INTO order_history (order_row, position, at, from_status, to_status, actor, note)
	 SELECT row, 1, (row >> 12) + 60000, 'pending', status,
	        iif(status = 'awaiting_verification', 'buyer', 'owner'),
	        iif(status = 'awaiting_verification', '{"code":"buyer_claims"}', '{"code":"in_dashboard"}')
	 FROM   orders
	 WHERE  status <> 'pending'`,

	`INSERT INTO payment_sessions (id, order_row, provider, attempt, status, gateway_id, payment_url,
	                               transaction_id, expires_at, checked_at, created_at, gateway_state,
	                               next_check_at, problem)
	 SELECT id, row, provider, 1,
	        CASE status WHEN 'pending' THEN 'active' WHEN 'awaiting_verification' THEN 'active'
	                    WHEN 'paid' THEN 'paid' WHEN 'refunded' THEN 'paid' ELSE 'expired' END,
	        'gw-' || id, 'http://localhost/sandbox/' || id,
	        iif(paid_by IS NULL, '', 'trx-' || id), expires_at, row >> 12, row >> 12,
	        iif(paid_by IS NULL, 'open', 'settled'),
	        iif(status IN ('pending', 'awaiting_verification'), ?1 + 86400000, NULL),
	        iif(status = 'pending' AND external_id LIKE '%00', 'unreachable', '')
	 FROM   orders
	 WHERE  provider = 'sandbox'`,

	`INSERT INTO payments (session_id, transaction_id, request_id, state, amount, returned)
	 SELECT id, transaction_id, 'req-' || id, 'settled', 170000, 0
	 FROM   payment_sessions
	 WHERE  transaction_id <> ''`,

	`INSERT INTO notifications (row, store_id, provider, session_id, body, decided_at, transaction_id, claim)
	 SELECT o.row, o.store_id, 'sandbox', s.id, '{}', iif(o.external_id LIKE '%2', NULL, o.row >> 12),
	        s.transaction_id, 'settled'
	 FROM   payment_sessions s
	 JOIN   orders o ON o.row = s.order_row
	 WHERE  s.transaction_id <> '' AND o.row >= (SELECT min(row) FROM events)`,

	`INSERT INTO daily_totals (store_id, day, orders, revenue)
	 SELECT store_id, ((row >> 12) + 25200000) / 86400000, count(*), count(*) * 100000
	 FROM   orders
	 GROUP BY 1, 2`,

	`INSERT INTO unique_codes (store_id, code, order_row, given_at)
	 SELECT store_id, row_number() OVER (ORDER BY row DESC), row, row >> 12
	 FROM   orders
	 WHERE  store_id = ?2 AND row % 2 = 0
	 ORDER BY row DESC LIMIT 999`,

	`INSERT INTO deliveries (row, id, endpoint_id, event_row, status, attempt, next_at, tried_at, answer_status)
	 SELECT d.row,
	        substr(hex, 1, 8) || '-' || substr(hex, 9, 4) || '-7' || substr(hex, 13) || '-8000-000000000000',
	        d.endpoint_id, d.event_row, iif(due, 'pending', 'delivered'), iif(due, 0, 1),
	        iif(due, d.row >> 12, NULL), iif(due, NULL, d.row >> 12), iif(due, NULL, 200)
	 FROM   (SELECT v.row + 16 * e.position AS row, printf('%015x', v.row + 16 * e.position) AS hex,
	                e.id AS endpoint_id, v.row AS event_row, v.position <= ?3 AS due
	         FROM   (SELECT row, row_number() OVER (ORDER BY row DESC) AS position
	                 FROM   events
	                 WHERE  store_id = ?2) v
	         JOIN   (SELECT id, row_number() OVER (ORDER BY id) AS position FROM endpoints) e
	         ORDER BY 1) d`,

	`UPDATE endpoints SET due_at = ?1`,
}

func (f *seeder) addRest(tx *Tx) error {
	for _, statement := range seedStatements {
		if _, err := tx.exec(statement, f.now, f.store.ID, f.size.due); err != nil {
			return fmt.Errorf("%w in %.60s", err, statement)
		}
	}
	return nil
}

// startShop creates a shop and serves it. Its webhooks go to receiver.
func startShop(b *testing.B, binary, receiver string, size shopSize) *shop {
	b.Helper()
	begun := time.Now()
	s := &shop{
		benchProgram: &benchProgram{
			binary: binary,
			db:     filepath.Join(b.TempDir(), "shop.db"),
			addr:   freeAddr(b),
		},
		size:     size,
		receiver: receiver,
	}
	added := s.run(b, "store add", "-name", "Kopi Kita", "-email", "owner@example.id")
	s.store = added["store_id"].(string)
	s.run(b, "store set", "-store", s.store, "-test", "on")
	s.run(b, "catalog import", "-store", s.store, writeFile(b, "catalog.json", string(size.catalog())))
	s.key = s.run(b, "key add", "-store", s.store, "-name", "bench", "-scope", "manage")["key"].(string)

	s.seed(b)
	s.serve(b)
	s.signIn(b, added["owner_password"].(string))
	fmt.Printf("seeded %d orders in %.0f s\n", size.orders, time.Since(begun).Seconds())
	return s
}
