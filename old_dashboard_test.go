//go:build cgo

package main

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"html"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// shopCatalog is the catalog of the stores whose owners sign in.
//
//go:embed testdata/shop.json
var shopCatalog string

// lacks reports the texts that a page has and should not have.
func (p screen) lacks(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(html.UnescapeString(p.body), text) {
			t.Errorf("the page has %q", text)
		}
	}
}

// sees reads a page, which has to be there with these texts.
func (b *browser) sees(t *testing.T, path string, texts ...string) {
	t.Helper()
	b.get(t, path).has(t, 200, texts...)
}

// seesNo reads a page, which has to be there without these texts.
func (b *browser) seesNo(t *testing.T, path string, texts ...string) {
	t.Helper()
	page := b.get(t, path)
	page.has(t, 200)
	page.lacks(t, texts...)
}

// submits posts a form as post does. The answer leads to another page.
func (b *browser) submits(t *testing.T, path, to string, pairs ...string) {
	t.Helper()
	b.post(t, path, pairs...).leads(t, to)
}

// section is a heading in a file of test cases, with the cases below it.
type section struct {
	heading string
	cases   []testCase
}

func readSections(t *testing.T, file string) (all []section) {
	t.Helper()
	for _, c := range readCases(t, file) {
		last := len(all) - 1
		if last < 0 || all[last].heading != c.heading {
			all = append(all, section{heading: c.heading})
			last++
		}
		all[last].cases = append(all[last].cases, c)
	}
	return all
}

// withWords replaces each $name in a text by the word of that name.
func withWords(text string, words map[string]string) string {
	return os.Expand(text, func(name string) string { return words[name] })
}

// endpointOf adds an endpoint of a store that gets all events.
func (s *testServer) endpointOf(t *testing.T, storeID, address string) (id string) {
	t.Helper()
	id, err := s.db.AddEndpoint(t.Context(), storeID, address, nil, newSecret())
	must(t, err)
	return id
}

// keyOf adds an API key of a store.
func (s *testServer) keyOf(t *testing.T, storeID, name string) (id string) {
	t.Helper()
	_, hash := newToken("so_")
	id, err := s.db.AddKey(t.Context(), storeID, NewKey{Name: name, Scope: ScopeWrite}, hash)
	must(t, err)
	return id
}

// removeCatalog deletes a store's catalog.
func (s *testServer) removeCatalog(t *testing.T, storeID string) {
	t.Helper()
	s.exec(t, `
		DELETE FROM bundle_items
		WHERE bundle_id IN (SELECT id FROM bundles WHERE store_id = ?)`, storeID)
	for _, table := range []string{
		"bundles",
		"products",
		"payment_methods",
	} {
		s.exec(t, "DELETE FROM "+table+" WHERE store_id = ?", storeID)
	}
}

// TestDashboardForeignObjects sends the requests of testdata/dashboard-foreign.txt: to an owner, the objects
// of another store do not exist.
func TestDashboardForeignObjects(t *testing.T) {
	s := newShop(t, "http://shop.test")
	other := s.addShop(t, "lain", "growth")
	o := s.place(t, other, "Budi", "luar-1", 1)
	endpoint := s.endpointOf(t, other, "https://lain.example/hook")
	must(t, s.db.Ping(t.Context(), other, endpoint))
	words := map[string]string{
		"order":    o.ID,
		"key":      s.keyOf(t, other, "k"),
		"endpoint": endpoint,
		"delivery": scalar[string](t, s.db, "SELECT id FROM deliveries"),
	}

	s.removeCatalog(t, s.storeID)
	b := s.owner(t, "kopi-kita@example.id")
	for _, c := range readCases(t, "testdata/dashboard-foreign.txt") {
		t.Run(c.heading+" "+c.column(0), func(t *testing.T) {
			path := withWords(c.column(0), words)
			if c.heading == "GET" {
				b.get(t, path).has(t, 404, "Halaman ini tidak ada")
				return
			}

			answer := b.post(t, path,
				"status", "pending",
				"title", "x",
				"name", "x",
				"price", "1",
				"since", "2026-01-01T00:00")
			answer.has(t, 404)
		})
	}

	t.Run("neither the list nor a search finds the order", func(t *testing.T) {
		b.sees(t, "/dashboard", "Belum ada pesanan")
		b.sees(t, "/dashboard?q="+o.PaymentReference, "Tidak ditemukan")
		b.sees(t, "/dashboard?q=luar-1", "Tidak ditemukan")
	})

	t.Run("the export does not have it", func(t *testing.T) {
		b.seesNo(t, "/dashboard/orders.csv", "Budi")
	})

	t.Run("nothing has changed it", func(t *testing.T) {
		status := scalar[string](t, s.db, "SELECT status FROM orders")
		if status != "pending" {
			t.Errorf("the order is %s, want pending", status)
		}
	})
}

func TestDashboardOrderList(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")

	t.Run("without orders it says how to begin", func(t *testing.T) {
		b.sees(t, "/dashboard",
			"Belum ada pesanan",
			"Tambahkan produk pertama",
			"Buat kunci API")
	})

	siti := s.place(t, s.storeID, "Siti Aminah", "toko-7", 1)
	budi := s.place(t, s.storeID, "Budi <b>", "", 2)
	list := b.get(t, "/dashboard")

	t.Run("it has every order", func(t *testing.T) {
		list.has(t, 200,
			referenceTail(siti.PaymentReference),
			referenceTail(budi.PaymentReference),
			"Rp87.500",
			"toko-7",
			"Belum dibayar")
	})

	t.Run("the newest is first", func(t *testing.T) {
		if strings.Index(list.body, budi.ID) > strings.Index(list.body, siti.ID) {
			t.Error("the older order is first")
		}
	})

	t.Run("a buyer's name is escaped", func(t *testing.T) {
		if !strings.Contains(list.body, "Budi &lt;b&gt;") {
			t.Error("the name is not there as a text")
		}
		if strings.Contains(list.body, "Budi <b>") {
			t.Error("the name is there as HTML")
		}
	})
}

// creates posts a form that creates a secret, and follows to the page that shows it, once.
func (b *browser) creates(t *testing.T, path string, pairs ...string) screen {
	t.Helper()
	answer := b.post(t, path, pairs...)
	if answer.status != 303 || !strings.Contains(answer.location, "?shown=") {
		t.Fatalf("%s is answered with %d %s", path, answer.status, answer.location)
	}
	shown := b.get(t, answer.location)
	b.seesNo(t, answer.location, "hanya tampil sekali")
	return shown
}

// act posts the form that confirms an act on an order, which its owner saw in a status. notice is what the
// page of the order says then: saved or changed.
func (b *browser) act(t *testing.T, o Order, act string, seen Status, notice string, more ...string) {
	t.Helper()
	path := "/dashboard/orders/" + o.ID
	form := append([]string{"status", string(seen)}, more...)
	b.submits(t, path+"/"+act, path+"?done="+notice, form...)
}

// nothingWaits checks that the first page says of nothing that it waits for the owner.
func (b *browser) nothingWaits(t *testing.T) {
	t.Helper()
	b.seesNo(t, "/dashboard", "Menunggu Anda")
}

func TestDashboardApproval(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	o := s.place(t, s.storeID, "Siti Aminah", "", 1)
	path := "/dashboard/orders/" + o.ID

	t.Run("the buyer says that they have paid", func(t *testing.T) {
		s.move(t, o.ID, BuyerClaims)
		b.sees(t, "/dashboard",
			"Menunggu Anda",
			"pembayaran perlu dicek")
		b.sees(t, path,
			"Kopi Gayo",
			"siti@example.id",
			"Biaya",
			"Perlu dicek",
			"Setujui pembayaran",
			"Tolak pembayaran")
	})

	t.Run("the question names the order's status", func(t *testing.T) {
		b.sees(t, path+"/approve",
			"Tandai pesanan ini lunas?",
			"orderPaid",
			`name="status" value="awaiting_verification"`)
	})

	t.Run("an owner who saw another status changes nothing", func(t *testing.T) {
		b.act(t, o, "approve", Pending, "changed")
	})

	t.Run("the owner approves and says why", func(t *testing.T) {
		b.act(t, o, "approve", AwaitingVerification, "saved", "reason", "lihat mutasi BCA")
		b.sees(t, path+"?done=saved",
			"Tersimpan",
			"Lunas",
			"lihat mutasi BCA",
			"Tandai dana dikembalikan")
		b.nothingWaits(t)
	})

	t.Run("a paid order is not approved or rejected", func(t *testing.T) {
		b.act(t, o, "approve", Paid, "changed")
		b.get(t, path+"/reject").leads(t, path+"?done=changed")
	})

	t.Run("there are no other acts", func(t *testing.T) {
		b.get(t, path+"/nothing").has(t, 404)
	})

	t.Run("the owner returns the money and says so", func(t *testing.T) {
		b.sees(t, path+"/refund", "tidak mengirim uang")
		b.act(t, o, "refund", Paid, "saved")
		b.sees(t, "/dashboard?status=refunded", o.ID, "Dana dikembalikan")
	})
}

func TestDashboardRejection(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	o := s.place(t, s.storeID, "Tuti", "", 1)

	s.move(t, o.ID, BuyerClaims)
	b.act(t, o, "reject", AwaitingVerification, "saved")
	b.sees(t, "/dashboard?status=failed", o.ID)
}

// TestDashboardAlerts cancels an order that is paid after all, when its stock is gone. It waits for the owner
// until they say that it is resolved.
func TestDashboardAlerts(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	o := s.place(t, s.storeID, "Budi", "", 2)
	path := "/dashboard/orders/" + o.ID

	t.Run("the owner cancels", func(t *testing.T) {
		b.sees(t, path+"/cancel", "Batalkan pesanan ini?")
		b.act(t, o, "cancel", Pending, "saved")
	})

	t.Run("they approve when the stock is gone", func(t *testing.T) {
		s.exec(t, `
			UPDATE products
			SET    stock = 1
			WHERE  slug = 'kopi'`)
		b.sees(t, path+"/approve", "Stok diambil lagi")
		b.act(t, o, "approve", Failed, "saved")
		b.sees(t, "/dashboard", "dibayar saat stok habis")
		b.sees(t, path, "dibayar saat stok habis", "Isi stok lagi")
	})

	t.Run("they resolve it, once", func(t *testing.T) {
		b.act(t, o, "resolve", Paid, "saved")
		b.sees(t, path, ": sudah diatasi</span>")
		b.nothingWaits(t)
		b.act(t, o, "resolve", Paid, "changed")
	})

	t.Run("money that it does not need waits in the same way", func(t *testing.T) {
		s.raiseAlert(t, o.ID, Alert{Code: AlertOverpaid, Amount: 5000})
		b.sees(t, "/dashboard", "Pembayaran tambahan dari Budi", "Rp5.000\n  masuk padahal pesanan ini tidak memerlukannya")
		b.sees(t, path, "Kembalikan uang ini kepada pembeli.")
		b.act(t, o, "resolve", Paid, "saved")
		b.nothingWaits(t)
	})
}

// TestDashboardAttention is about what waits for the owner and is no status of an order: gateways that
// cannot be asked, and endpoints that fail.
func TestDashboardAttention(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	o := s.place(t, s.storeID, "Siti", "", 1)

	t.Run("a gateway that cannot be asked", func(t *testing.T) {
		s.exec(t, `
			UPDATE orders
			SET    provider = 'midtrans', json = json_set(json, '$.payment_provider', 'midtrans')
			WHERE  id = ?`, o.ID)
		begun, err := s.db.BeginPaymentSession(t.Context(), s.storeID, o.ID)
		must(t, err)
		begun.session.Problem, begun.session.ProblemText = ProblemUnreachable, "connection refused"
		_, err = s.db.RecordGatewayProblem(t.Context(), begun.session)
		must(t, err)

		for _, path := range []string{"/dashboard", "/dashboard/orders/" + o.ID} {
			b.sees(t, path, "belum bisa dihubungi; dicoba lagi otomatis")
			b.seesNo(t, path, "connection refused")
		}
	})

	t.Run("nothing waits when it has answered", func(t *testing.T) {
		s.exec(t, "UPDATE payment_sessions SET tried_at = 0, leased_until = 0")
		asked, err := s.db.LeasePaymentSession(t.Context(), scalar[string](t, s.db, "SELECT id FROM payment_sessions"))
		must(t, err)
		answer := GatewayAnswer{State: StateExpired}
		_, err = s.db.ApplyGatewayAnswers(t.Context(), asked, []GatewayAnswer{answer}, false)
		must(t, err)
		b.nothingWaits(t)
	})

	endpoint := s.endpointOf(t, s.storeID, "https://toko.example/hook")
	t.Run("an endpoint that fails", func(t *testing.T) {
		s.exec(t, `
			UPDATE endpoints
			SET    failures = 5
			WHERE  id = ?`, endpoint)
		b.sees(t, "/dashboard",
			"https://toko.example/hook:",
			"5 kali gagal berturut-turut")
	})

	t.Run("an endpoint that is gone", func(t *testing.T) {
		s.exec(t, `
			UPDATE endpoints
			SET    active = 0, off_reason = 'gone'
			WHERE  id = ?`, endpoint)
		b.sees(t, "/dashboard",
			"https://toko.example/hook:",
			"mati, server Anda menjawab 410 Gone")
	})
}

// payDaysAgo lets an order be paid, and moves the payment days back.
func (s *testServer) payDaysAgo(t *testing.T, o Order, days int64) {
	t.Helper()
	s.move(t, o.ID, OwnerApproves)
	paidAt := timeOf(time.Now().Add(-time.Duration(days) * 24 * time.Hour))
	s.exec(t, "UPDATE orders SET json = json_set(json, '$.paid_at', ?) WHERE id = ?", paidAt.String(), o.ID)

	today := dayOf(timeOf(time.Now()))
	s.exec(t, `
		UPDATE daily_totals
		SET    revenue = revenue - ?
		WHERE  day = ?`, o.Amount, today)
	s.exec(t, `
		INSERT INTO daily_totals (store_id, day, orders, revenue)
		VALUES (?, ?, 0, ?)
		ON CONFLICT DO UPDATE
		SET    revenue = revenue + excluded.revenue`, s.storeID, today-days, o.Amount)
}

// TestDashboardDailyTotals takes orders through every kind of transition that counts, over days.
func TestDashboardDailyTotals(t *testing.T) {
	s := newShop(t, "http://shop.test")
	s.exec(t, "UPDATE products SET stock = NULL")

	// One is paid and stays so, and one is refunded days later.
	kept := s.place(t, s.storeID, "A", "", 1)
	s.payDaysAgo(t, kept, 3)
	refunded := s.place(t, s.storeID, "B", "", 2)
	s.payDaysAgo(t, refunded, 3)
	s.move(t, refunded.ID, OwnerRefunds)

	// One is paid twice, and one never.
	again := s.place(t, s.storeID, "C", "", 3)
	s.move(t, again.ID, OwnerCancels)
	s.move(t, again.ID, OwnerApproves)
	s.move(t, again.ID, GatewayReverses)
	s.move(t, again.ID, OwnerApproves)
	unpaid := s.place(t, s.storeID, "D", "", 1)
	s.move(t, unpaid.ID, ClockExpires)

	const days = 30
	front, err := s.db.FrontPage(s.storeID, days)
	totals := front.totals
	must(t, err)
	if len(totals) != days {
		t.Fatalf("%d days, want %d", len(totals), days)
	}
	today := totals[days-1]

	t.Run("orders count on the day of their creation", func(t *testing.T) {
		if today.Orders != 4 {
			t.Errorf("%d orders today, want 4", today.Orders)
		}
	})

	t.Run("an order that was paid twice counts once", func(t *testing.T) {
		const want = 3*85000 + 2500
		if today.Revenue != want {
			t.Errorf("revenue today %d, want %d", today.Revenue, want)
		}
	})

	t.Run("a refund is subtracted from the day of its payment", func(t *testing.T) {
		got := totals[days-4].Revenue
		if got != kept.Amount {
			t.Errorf("revenue three days ago %d, want %d", got, kept.Amount)
		}
	})

	t.Run("the first page shows them", func(t *testing.T) {
		b := s.owner(t, "kopi-kita@example.id")
		b.sees(t, "/dashboard",
			"<svg",
			"Rp257.500",
			"Angka per hari")
	})
}

// export reads the orders that a query selects from the CSV file, each with its cells by column.
func (b *browser) export(t *testing.T, query string) (orders []map[string]string) {
	t.Helper()
	p := b.get(t, "/dashboard/orders.csv"+query)
	p.has(t, 200)

	contentType := p.header.Get("Content-Type")
	if contentType != "text/csv; charset=utf-8" {
		t.Errorf("Content-Type %s", contentType)
	}
	disposition := p.header.Get("Content-Disposition")
	if !strings.HasPrefix(disposition, "attachment;") {
		t.Errorf("Content-Disposition %s", disposition)
	}

	text, marked := strings.CutPrefix(p.body, "\ufeff")
	if !marked {
		t.Error("the file has no byte order mark")
	}
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	must(t, err)

	for _, row := range rows[1:] {
		order := map[string]string{}
		for i, name := range rows[0] {
			order[name] = row[i]
		}
		orders = append(orders, order)
	}
	return orders
}

var (
	orderLink = regexp.MustCompile(`href="/dashboard/orders/([0-9a-f-]+)[^"]*">\s*<span class="who">`)
	olderLink = regexp.MustCompile(`href="(/dashboard\?[^"]*after=[^"]+)"`)
)

// walk reads the list of orders from page to page, and returns the ids.
func (b *browser) walk(t *testing.T) (ids []string) {
	t.Helper()
	path := "/dashboard"
	for path != "" && len(ids) < 2000 {
		page := b.get(t, path)
		page.has(t, 200)
		for _, m := range orderLink.FindAllStringSubmatch(page.body, -1) {
			ids = append(ids, m[1])
		}

		path = ""
		if m := olderLink.FindStringSubmatch(page.body); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	return ids
}

// wantEachOnce checks that a list has so many ids, and none twice.
func wantEachOnce(t *testing.T, ids []string, want int) {
	t.Helper()
	if len(ids) != want {
		t.Errorf("%d rows, want %d", len(ids), want)
	}

	slices.Sort(ids)
	different := slices.Compact(ids)
	if len(different) != want {
		t.Errorf("%d orders, want %d", len(different), want)
	}
}

// evilCells are some of the exported cells of placeMany's last order.
var evilCells = map[string]string{
	"buyer_name":  `'=HYPERLINK("https://evil.example")`,
	"external_id": "'-1",
	"buyer_phone": "'+62 812-3456-789",
	"items":       "1 x Kopi Gayo",
	"amount":      "87500",
	"fee":         "2500",
}

// placeMany creates orders of numbered buyers. The last one has formulas instead of texts, and is paid.
func (s *testServer) placeMany(t *testing.T, total int) (evil Order) {
	t.Helper()
	s.exec(t, "UPDATE products SET stock = NULL")
	for i := range total - 1 {
		s.place(t, s.storeID, fmt.Sprintf("Pembeli %d", i), "", 1)
	}
	evil = s.place(t, s.storeID, `=HYPERLINK("https://evil.example")`, "-1", 1)
	s.move(t, evil.ID, OwnerApproves)
	return evil
}

// TestCellsAreNoFormulas is about the cells of testdata/csv-cells.txt.
func TestCellsAreNoFormulas(t *testing.T) {
	t.Parallel()
	const name = 5 // the column
	for _, c := range readCases(t, "testdata/csv-cells.txt") {
		t.Run(c.name, func(t *testing.T) {
			cell := csvRow(Order{Buyer: Buyer{Name: c.column(0)}}, "")[name]
			if got := strings.HasPrefix(cell, "'") && cell != c.column(0); got != (c.heading == "apostrophe") {
				t.Errorf("%q is exported as %q", c.column(0), cell)
			}
		})
	}
}

// TestDashboardExport exports more orders than two reads return.
func TestDashboardExport(t *testing.T) {
	const total = 1204
	s := newShop(t, "http://shop.test")
	evil := s.placeMany(t, total)
	b := s.owner(t, "kopi-kita@example.id")
	all := b.export(t, "")

	t.Run("it has every order once", func(t *testing.T) {
		var ids []string
		for _, order := range all {
			ids = append(ids, order["id"])
		}
		wantEachOnce(t, ids, total)
	})

	t.Run("no cell is a formula", func(t *testing.T) {
		for column, want := range evilCells {
			got := all[0][column]
			if got != want {
				t.Errorf("%s: %s, want %s", column, got, want)
			}
		}
	})

	t.Run("it takes the filter of the list", func(t *testing.T) {
		paid := b.export(t, "?status=paid")
		if len(paid) != 1 || paid[0]["id"] != evil.ID {
			t.Errorf("%q are paid, want the order %s", paid, evil.ID)
		}
	})

	t.Run("it takes the search of the list", func(t *testing.T) {
		const want = 1 + 10 + 3 // 12, 120 to 129, 1200 to 1202
		found := b.export(t, "?q=pembeli+12")
		if len(found) != want {
			t.Errorf("%d orders found, want %d", len(found), want)
		}
	})

	t.Run("it is logged with its status", func(t *testing.T) {
		const line = "path=/dashboard/orders.csv status=200"
		if !strings.Contains(s.logs.String(), line) {
			t.Errorf("the log lacks %q", line)
		}
	})

	t.Run("the pages of the list have every order once", func(t *testing.T) {
		wantEachOnce(t, b.walk(t), total)
	})

	t.Run("one that fails on its way does not pass for a whole one", func(t *testing.T) {
		s.exec(t, `
			UPDATE orders
			SET    json = json_set(json, '$.amount', 'x')
			WHERE  id = ?`, all[1100]["id"])
		b.readsHalf(t, "/dashboard/orders.csv")
	})
}

// readsHalf checks that an answer of status 200 ends with an error.
func (b *browser) readsHalf(t *testing.T, path string) {
	t.Helper()
	resp, err := b.Get(b.s.url + path)
	must(t, err)
	defer resp.Body.Close()

	if resp.StatusCode != 200 {
		t.Errorf("status %d, want 200", resp.StatusCode)
	}
	_, err = io.ReadAll(resp.Body)
	if err == nil {
		t.Error("half an answer ends like a whole one")
	}
}

// TestDashboardRefusesForms posts the forms of testdata/bad-forms.txt. None of them changes anything.
func TestDashboardRefusesForms(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	words := map[string]string{
		"order":    s.place(t, s.storeID, "Siti", "", 1).ID,
		"endpoint": s.endpointOf(t, s.storeID, "https://toko.example/hook"),
	}
	codes := storedCodes(t)
	before := dump(t, s.db.path)

	for _, refused := range readSections(t, "testdata/bad-forms.txt") {
		t.Run(refused.heading, func(t *testing.T) {
			request := withWords(expand(refused.heading), words)
			path, fields, _ := strings.Cut(request, " ")
			form, err := url.ParseQuery(fields)
			must(t, err)

			page := b.send(t, "POST", path, form)
			for _, c := range refused.cases {
				page.has(t, 422, c.columns...)
			}
			page.showsNoCode(t, codes)
		})
	}

	after := dump(t, s.db.path)
	if after != before {
		t.Error("a refused form changed the database")
	}
}

func TestDashboardPayments(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	const path = "/dashboard/catalog/method"
	const saved = "/dashboard/payments?done=saved"

	t.Run("methods are listed, with those that cannot be offered", func(t *testing.T) {
		page := b.get(t, "/dashboard/payments")
		page.has(t, 200,
			"Transfer BCA",
			"Ditawarkan",
			"Belum ditawarkan",
			"Belum ada kunci")
	})

	t.Run("a method is changed", func(t *testing.T) {
		b.sees(t, path+"?slug=bank", `value="123 456 7890"`, `value="2500"`)
		b.submits(t, path+"?slug=bank", saved,
			"name", "Transfer",
			"provider", "manual",
			"fee", "",
			"max_amount", "1.000.000")
		s.wantMethod(t, "bank", "Transfer, fee 0, to 1000000, off")
	})

	t.Run("a new one gets its code from its name", func(t *testing.T) {
		b.submits(t, path, saved,
			"name", "Tunai di toko",
			"provider", "manual",
			"enabled", "on")
		s.wantMethod(t, "tunai-di-toko", "Tunai di toko, fee 0, offered")
	})

	t.Run("with a gateway's key its methods are offered", func(t *testing.T) {
		b.submits(t, "/dashboard/payments/gateway", saved,
			"provider", "midtrans",
			"mode", "sandbox",
			"secret_key", "SB-Mid-server-qwertz")
		page := b.get(t, "/dashboard/payments")
		page.has(t, 200, "http://shop.test/notifications/midtrans/"+s.storeID)
		page.lacks(t, "Belum ditawarkan")
	})

	t.Run("the key is not shown", func(t *testing.T) {
		b.seesNo(t, "/dashboard/payments", "qwertz")
	})
}

func TestDashboardEndpoints(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")

	b.sees(t, "/dashboard/developers", `value="orderAlerted"`)
	created := b.creates(t, "/dashboard/endpoints",
		"url", "https://toko.example/hook",
		"events", "orderPaid",
		"events", "orderCreated")
	id := scalar[string](t, s.db, "SELECT id FROM endpoints")
	path := "/dashboard/endpoints/" + id

	t.Run("a new endpoint's secret is shown", func(t *testing.T) {
		created.has(t, 200,
			"hanya tampil sekali",
			"whsec_",
			"orderPaid, orderCreated")
	})

	t.Run("it is shown once", func(t *testing.T) {
		b.sees(t, path, "Belum ada pengiriman")
		b.seesNo(t, path, "whsec_")
	})

	t.Run("the endpoint is listed", func(t *testing.T) {
		b.sees(t, "/dashboard/developers",
			"https://toko.example/hook",
			"Hidup")
	})

	t.Run("a ping waits to be sent", func(t *testing.T) {
		b.submits(t, path+"/ping", path+"?done=ping")
		b.sees(t, path, "ping", "Menunggu")
	})

	t.Run("the owner turns it off and on", func(t *testing.T) {
		b.sees(t, path+"/off", "Matikan webhook ini?")
		b.submits(t, path+"/off", path+"?done=off")
		b.sees(t, path,
			"Mati",
			"dimatikan oleh pemilik",
			"Hidupkan")
		b.submits(t, path+"/on", path+"?done=on")
	})

	t.Run("the owner removes it", func(t *testing.T) {
		b.submits(t, path+"/remove", "/dashboard/developers?done=remove")
		b.get(t, path).has(t, 404)
	})
}

func TestDashboardRotation(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	id := s.endpointOf(t, s.storeID, "https://toko.example/hook")
	path := "/dashboard/endpoints/" + id + "/rotate"
	old := scalar[string](t, s.db, "SELECT secret FROM endpoints")

	b.sees(t, path, "Selama 24 jam")
	rotated := b.creates(t, path)
	secret := regexp.MustCompile(`whsec_[A-Za-z0-9_-]{43}`).FindString(rotated.body)
	if secret == old {
		t.Error("the secret is the old one")
	}

	e, err := s.db.Endpoint(s.storeID, id, "", 1)
	must(t, err)
	want := []string{secret, old}
	if !slices.Equal(e.Secrets, want) {
		t.Errorf("%q sign, want %q", e.Secrets, want)
	}
}
