//go:build cgo

package main

import (
	"fmt"
	"os"
	"testing"
)

// size measures how many bytes a paid order of three products takes in the file: in all, with its two events and their
// deliveries, and for good.
func (t *table) size(b *testing.B) {
	const n, group = 10_000, 500
	db, st, products := unlimitedShop(b)
	_, err := db.AddEndpoint(b.Context(), st.ID, unreachable, nil, newSecret())
	must(b, err)

	empty := compacted(b, db)
	for first := 0; first < n; first += group {
		must(b, db.write(b.Context(), func(tx *Tx) error {
			for i := first; i < first+group; i++ {
				if err := tx.paidOrder(st, products, i); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	must(b, db.change(b.Context(), `
		UPDATE deliveries
		SET    status = 'delivered', attempt = 1, next_at = NULL, tried_at = 1, answer_status = 200, answer = 'ok'`))

	all := compacted(b, db)
	must(b, db.change(b.Context(), "DELETE FROM deliveries"))
	must(b, db.change(b.Context(), "DELETE FROM events"))
	kept := compacted(b, db)
	how := fmt.Sprintf("the file of %d orders after VACUUM", n)
	t.add(b, result{"KB that a paid order keeps for good", float64(kept-empty) / n / 1000, "≤ 1.6", how})
	t.add(b, result{"the same until its events are purged", float64(all-empty) / n / 1000, "≤ 4", how})
}

// paidOrder creates the order number i, and its owner approves it.
func (tx *Tx) paidOrder(st Store, products []string, i int) error {
	in := NewOrder{
		Buyer:         Buyer{Name: "Siti Rahayu", Email: "siti@example.id", Phone: "+628123456789"},
		PaymentMethod: "bank_transfer",
	}
	for k := range 3 {
		in.Items = append(in.Items, NewItem{KindProduct, products[(i+k*7)%len(products)], int64(1 + k)})
	}

	created, err := tx.createOrder(st, in)
	if err != nil {
		return err
	}
	_, err = tx.transition(created.ID, OwnerApproves, Note{Code: NoteInDashboard})
	return err
}

// compacted is the size of a database's file without free pages.
func compacted(b *testing.B, db *DB) int64 {
	b.Helper()
	must(b, db.onWriter(b.Context(), func() error {
		return db.writer.script("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
	}))
	info, err := os.Stat(db.path)
	must(b, err)
	return info.Size()
}
