//go:build cgo

package main

import (
	"encoding/csv"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

const shopCatalog = `{"products": [
    {"slug": "kopi", "title": "Kopi Gayo", "price": 85000, "stock": 10},
    {"slug": "teh", "title": "Teh Melati", "price": 50000}],
  "bundles": [{"slug": "duo", "title": "Duo", "price": 120000, "items": [{"slug": "kopi", "quantity": 1}, {"slug": "teh", "quantity": 1}]}],
  "payment_methods": [
    {"code": "bank", "name": "Transfer BCA", "provider": "manual", "fee": 2500, "instructions": "BCA 123 456 7890"},
    {"code": "qris", "name": "QRIS", "provider": "midtrans"}]}`

// What belongs to another store is not there.
func TestDashboardForeignObjects(t *testing.T) {
	s := newShop(t, "http://shop.test")
	other := s.addShop(t, "lain", "growth")
	o := s.place(t, other, "Budi", "luar-1", 1)
	keyID, err := s.db.AddKey(t.Context(), other, "k", [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	endpointID, err := s.db.AddEndpoint(t.Context(), other, "https://lain.example/hook", nil, newSecret())
	if err == nil {
		err = s.db.Ping(t.Context(), other, endpointID)
	}
	if err != nil {
		t.Fatal(err)
	}
	deliveryID := scalar[string](t, s.db, "SELECT id FROM deliveries")
	s.exec(t, "DELETE FROM bundle_items WHERE bundle_id IN (SELECT id FROM bundles WHERE store_id = ?)", s.storeID)
	s.exec(t, "DELETE FROM bundles WHERE store_id = ?", s.storeID)
	s.exec(t, "DELETE FROM products WHERE store_id = ?", s.storeID)
	s.exec(t, "DELETE FROM payment_methods WHERE store_id = ?", s.storeID)
	b := s.owner(t, "kopi-kita@example.id")
	for _, path := range []string{"/dashboard/orders/" + o.ID, "/dashboard/orders/" + o.ID + "/approve", "/dashboard/orders/" + o.ID + "/resolve", "/dashboard/orders/x",
		"/dashboard/keys/" + keyID + "/revoke", "/dashboard/endpoints/" + endpointID, "/dashboard/endpoints/" + endpointID + "/remove",
		"/dashboard/catalog/product?slug=kopi", "/dashboard/catalog/bundle?slug=duo", "/dashboard/catalog/method?slug=bank", "/dashboard/catalog/nothing"} {
		b.get(t, path).has(t, 404, "Halaman ini tidak ada")
	}
	for _, path := range []string{"/dashboard/orders/" + o.ID + "/approve", "/dashboard/keys/" + keyID + "/revoke", "/dashboard/deliveries/" + deliveryID + "/resend",
		"/dashboard/catalog/product?slug=kopi", "/dashboard/catalog/method?slug=bank"} {
		b.post(t, path, "status", "pending", "title", "x", "name", "x", "price", "1").has(t, 404)
	}
	for _, act := range []string{"ping", "on", "off", "rotate", "remove", "resend"} {
		b.post(t, "/dashboard/endpoints/"+endpointID+"/"+act, "since", "2026-01-01T00:00").has(t, 404)
	}
	b.get(t, "/dashboard").has(t, 200, "Belum ada pesanan")
	b.get(t, "/dashboard?q="+o.PaymentReference).has(t, 200, "Tidak ditemukan")
	b.get(t, "/dashboard?q=luar-1").has(t, 200, "Tidak ditemukan")
	if csv := b.get(t, "/dashboard/orders.csv"); strings.Contains(csv.body, "Budi") {
		t.Error("the export has another store's order")
	}
	if n := scalar[int](t, s.db, "SELECT count(*) FROM orders WHERE status <> 'pending'"); n != 0 {
		t.Error("another store's order was moved")
	}
}

func TestDashboardOrders(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	b.get(t, "/dashboard").has(t, 200, "Belum ada pesanan", "Isi katalog", "Buat kunci API")
	siti, budi := s.place(t, s.storeID, "Siti Aminah", "toko-7", 1), s.place(t, s.storeID, "Budi <b>", "", 2)
	list := b.get(t, "/dashboard")
	list.has(t, 200, siti.PaymentReference, budi.PaymentReference, "Rp87.500", "toko-7", "Belum dibayar")
	if strings.Contains(list.body, "<b>,") || !strings.Contains(list.body, "Budi &lt;b&gt;") {
		t.Error("a buyer's name is not escaped")
	}
	if strings.Index(list.body, budi.ID) > strings.Index(list.body, siti.ID) {
		t.Error("not the newest first")
	}
	for _, q := range []string{siti.PaymentReference, strings.ToLower(siti.PaymentReference), "toko-7", siti.ID, "siti amin", "SITI@EXAMPLE"} {
		if p := b.get(t, "/dashboard?q="+url.QueryEscape(q)); !strings.Contains(p.body, siti.ID) || strings.Contains(p.body, budi.ID) {
			t.Errorf("searching %q does not find this order alone", q)
		}
	}
	for _, q := range []string{"0812 3456 789", "628123456789", "+62 812-3456"} {
		b.get(t, "/dashboard?q="+url.QueryEscape(q)).has(t, 200, siti.ID, budi.ID)
	}
	b.get(t, "/dashboard?q=%25").has(t, 200, "Tidak ditemukan")
	b.get(t, "/dashboard?status=paid").has(t, 200, "Tidak ada pesanan dengan saringan ini")
	b.get(t, "/dashboard?status=paid&q="+siti.PaymentReference).has(t, 200, "Tidak ditemukan")

	// A buyer says that he has paid: the owner is told, and approves.
	s.move(t, siti.ID, BuyerClaims)
	b.get(t, "/dashboard").has(t, 200, "Menunggu Anda", "katanya sudah membayar")
	path := "/dashboard/orders/" + siti.ID
	b.get(t, path).has(t, 200, "Kopi Gayo", "siti@example.id", "Setujui pembayaran", "Tolak pembayaran", "Perlu dicek", "Biaya")
	b.get(t, path+"/approve").has(t, 200, "Tandai pesanan ini lunas?", "orderPaid", `name="status" value="awaiting_verification"`)
	b.post(t, path+"/approve", "status", "pending").leads(t, path+"?done=changed")
	b.post(t, path+"/approve", "status", "awaiting_verification", "reason", strings.Repeat("x", 201)).has(t, 422, "paling banyak 200 huruf")
	b.post(t, path+"/approve", "status", "awaiting_verification", "reason", "lihat mutasi BCA").leads(t, path+"?done=saved")
	b.get(t, path+"?done=saved").has(t, 200, "Tersimpan", "Lunas", "lihat mutasi BCA", "Tandai dana dikembalikan")
	b.post(t, path+"/approve", "status", "paid").leads(t, path+"?done=changed")
	b.get(t, path+"/reject").leads(t, path+"?done=changed")
	b.get(t, path+"/nothing").has(t, 404)
	if front := b.get(t, "/dashboard"); strings.Contains(front.body, "Menunggu Anda") {
		t.Error("nothing waits for the owner any more")
	}

	// Cancelled, then paid after all when the stock is gone: oversold, until he has seen to it.
	budiPath := "/dashboard/orders/" + budi.ID
	b.get(t, budiPath+"/cancel").has(t, 200, "Batalkan pesanan ini?")
	b.post(t, budiPath+"/cancel", "status", "pending").leads(t, budiPath+"?done=saved")
	s.exec(t, "UPDATE products SET stock = 1 WHERE slug = 'kopi'")
	b.get(t, budiPath+"/approve").has(t, 200, "Stoknya diambil lagi")
	b.post(t, budiPath+"/approve", "status", "failed").leads(t, budiPath+"?done=saved")
	b.get(t, "/dashboard").has(t, 200, "dibayar saat stok sudah habis")
	b.get(t, budiPath).has(t, 200, "Dibayar saat stok sudah habis")
	b.post(t, budiPath+"/resolve", "status", "paid").leads(t, budiPath+"?done=saved")
	b.get(t, budiPath).has(t, 200, ": sudah diatasi</span>")
	if front := b.get(t, "/dashboard"); strings.Contains(front.body, "Menunggu Anda") {
		t.Error("an oversold order that was seen to still waits")
	}
	b.post(t, budiPath+"/resolve", "status", "paid").leads(t, budiPath+"?done=changed")
	// So is one that money came for which it does not need.
	s.exec(t, "UPDATE orders SET overpaid = 1 WHERE id = ?", budi.ID)
	b.get(t, "/dashboard").has(t, 200, "uang masuk yang harus dikembalikan")
	b.get(t, budiPath).has(t, 200, "Uang masuk yang tidak diperlukan")
	b.post(t, budiPath+"/resolve", "status", "paid").leads(t, budiPath+"?done=saved")

	b.get(t, path+"/refund").has(t, 200, "tidak mengirim uang")
	b.post(t, path+"/refund", "status", "paid").leads(t, path+"?done=saved")
	b.get(t, "/dashboard?status=refunded").has(t, 200, siti.ID, "Dana dikembalikan")

	late := s.place(t, s.storeID, "Tuti", "", 1)
	s.move(t, late.ID, BuyerClaims)
	b.post(t, "/dashboard/orders/"+late.ID+"/reject", "status", "awaiting_verification").leads(t, "/dashboard/orders/"+late.ID+"?done=saved")
	b.get(t, "/dashboard?status=failed").has(t, 200, late.ID)
}

// What waits for the owner beside orders: gateways that cannot be asked and endpoints that fail.
func TestDashboardAttention(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	o := s.place(t, s.storeID, "Siti", "", 1)
	s.exec(t, "UPDATE orders SET json = json_set(json, '$.payment_provider', 'midtrans') WHERE id = ?", o.ID)
	begun, err := s.db.BeginPaymentSession(t.Context(), s.storeID, o.ID)
	if err == nil {
		err = s.db.NoteGatewayProblem(t.Context(), begun.session.ID, "connection refused")
	}
	if err != nil {
		t.Fatal(err)
	}
	b.get(t, "/dashboard").has(t, 200, "midtrans tidak dapat dihubungi: connection refused")
	b.get(t, "/dashboard/orders/"+o.ID).has(t, 200, "midtrans 1", "connection refused", "Sesi pembayaran")
	s.move(t, o.ID, OwnerCancels) // ends the session
	endpoint, err := s.db.AddEndpoint(t.Context(), s.storeID, "https://toko.example/hook", nil, newSecret())
	if err != nil {
		t.Fatal(err)
	}
	if front := b.get(t, "/dashboard"); strings.Contains(front.body, "Menunggu Anda") {
		t.Error("nothing should wait")
	}
	s.exec(t, "UPDATE endpoints SET failures = 5 WHERE id = ?", endpoint)
	b.get(t, "/dashboard").has(t, 200, "https://toko.example/hook: 5 kali gagal berturut-turut")
	s.exec(t, "UPDATE endpoints SET active = 0, off_reason = 'gone' WHERE id = ?", endpoint)
	b.get(t, "/dashboard").has(t, 200, "https://toko.example/hook: mati, penerima menjawab 410 Gone")
}

// The daily totals are what counting the orders gives, through every kind of move and over days.
func TestDashboardDailyTotals(t *testing.T) {
	s := newShop(t, "http://shop.test")
	s.exec(t, "UPDATE products SET stock = NULL")
	pay := func(buyer string, quantity int64, daysAgo int64) Order {
		o := s.place(t, s.storeID, buyer, "", quantity)
		s.move(t, o.ID, OwnerApproves)
		if daysAgo > 0 {
			today := dayOf(Time(time.Now().UnixMilli()))
			s.exec(t, "UPDATE order_history SET at = at - ? WHERE order_id = ? AND to_status = 'paid'", daysAgo*24*60*60*1000, o.ID)
			s.exec(t, "UPDATE daily_totals SET revenue = revenue - ? WHERE day = ?", o.Amount, today)
			s.exec(t, "INSERT INTO daily_totals VALUES (?, ?, 0, ?) ON CONFLICT DO UPDATE SET revenue = revenue + excluded.revenue", s.storeID, today-daysAgo, o.Amount)
		}
		return o
	}
	kept, refunded := pay("A", 1, 3), pay("B", 2, 3)
	again := s.place(t, s.storeID, "C", "", 3)
	for _, m := range []Transition{OwnerCancels, OwnerApproves, GatewayReverses, OwnerApproves} {
		s.move(t, again.ID, m)
	}
	s.move(t, refunded.ID, OwnerRefunds)
	free := s.place(t, s.storeID, "D", "", 1)
	s.move(t, free.ID, ClockExpires)

	_, totals, err := s.db.FrontPage(s.storeID, 30)
	if err != nil {
		t.Fatal(err)
	}
	today := totals[29]
	if len(totals) != 30 || today.Orders != 4 || today.Revenue != 3*85000+2500 {
		t.Errorf("today: %+v", today)
	}
	if totals[26].Revenue != kept.Amount {
		t.Errorf("the refund was not taken off its day: %+v", totals[23:])
	}
	s.owner(t, "kopi-kita@example.id").get(t, "/dashboard").has(t, 200, "<svg", "Rp257.500", "Angka per hari")
}

func TestDashboardExport(t *testing.T) {
	s := newShop(t, "http://shop.test")
	s.exec(t, "UPDATE products SET stock = NULL")
	for i := range 1203 { // more than two reads
		s.place(t, s.storeID, fmt.Sprintf("Pembeli %d", i), "", 1)
	}
	evil := s.place(t, s.storeID, "=HYPERLINK(\"https://evil.example\")", "-1", 1)
	s.move(t, evil.ID, OwnerApproves)
	b := s.owner(t, "kopi-kita@example.id")
	export := func(query string) [][]string {
		p := b.get(t, "/dashboard/orders.csv"+query)
		if p.status != 200 || p.header.Get("Content-Type") != "text/csv; charset=utf-8" || !strings.HasPrefix(p.header.Get("Content-Disposition"), "attachment;") {
			t.Fatalf("%d %v", p.status, p.header)
		}
		rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(p.body, "\ufeff"))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return rows[1:]
	}
	all := export("")
	seen := map[string]bool{}
	for _, row := range all {
		seen[row[1]] = true
	}
	if len(all) != 1204 || len(seen) != 1204 {
		t.Errorf("%d rows, %d orders", len(all), len(seen))
	}
	if row := all[0]; row[5] != "'=HYPERLINK(\"https://evil.example\")" || row[2] != "'-1" || row[7] != "'+62 812-3456-789" || row[8] != "1 x Kopi Gayo" || row[10] != "87500" {
		t.Errorf("formulas are let through: %q", row)
	}
	if paid := export("?status=paid"); len(paid) != 1 || paid[0][1] != evil.ID {
		t.Errorf("filtered: %q", paid)
	}
	if found := export("?q=pembeli+12"); len(found) != 1+10+3 {
		t.Errorf("searched: %d", len(found))
	}
	if log := s.logs.String(); !strings.Contains(log, "path=/dashboard/orders.csv status=200") {
		t.Error("an export is logged without its status")
	}
	// An export that fails on its way does not pass for a whole one.
	s.exec(t, "UPDATE orders SET json = json_set(json, '$.amount', 'x') WHERE id = ?", all[1100][1])
	resp, err := b.Get(s.url + "/dashboard/orders.csv")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("half an export ends like a whole one")
	}
	resp.Body.Close()
	s.exec(t, "UPDATE orders SET json = json_set(json, '$.amount', 87500) WHERE id = ?", all[1100][1])
	// The list's pages hold the same orders, none twice.
	path, walked := "/dashboard", map[string]bool{}
	for path != "" && len(walked) < 2000 {
		p := b.get(t, path)
		p.has(t, 200)
		for _, m := range regexp.MustCompile(`<th scope="row"><a href="/dashboard/orders/([0-9a-f-]+)"`).FindAllStringSubmatch(p.body, -1) {
			if walked[m[1]] {
				t.Fatal("an order is on two pages")
			}
			walked[m[1]] = true
		}
		path = ""
		if m := regexp.MustCompile(`href="(/dashboard\?after=[^"]+)"`).FindStringSubmatch(p.body); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	if len(walked) != 1204 {
		t.Errorf("the list's pages hold %d orders", len(walked))
	}
}

func TestDashboardCatalog(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	b.get(t, "/dashboard/catalog").has(t, 200, "Kopi Gayo", "Rp85.000", "tidak terbatas")
	b.get(t, "/dashboard/catalog?q=melati").has(t, 200, "Teh Melati")
	b.get(t, "/dashboard/catalog?kind=bundle").has(t, 200, "Duo", "Rp120.000")

	b.post(t, "/dashboard/catalog/product", "title", "", "price", "abc", "stock", "-1", "image_url", "gambar").has(t, 422, "Belum tersimpan",
		"harus diisi, paling banyak 200 huruf", "harus bilangan bulat dari 0", "harus alamat lengkap", `value="abc"`, `aria-describedby="price-fault price-hint"`)
	b.post(t, "/dashboard/catalog/product", "title", "Kopi", "price", "1").has(t, 422, "sudah dipakai: kopi")
	b.post(t, "/dashboard/catalog/product", "title", "Kopi Toraja 250 g", "price", "92.000", "stock", "", "published", "on", "description", "satu\r\ndua").leads(t, "/dashboard/catalog?done=saved")
	p, err := s.db.CatalogEntry(s.storeID, "product", "kopi-toraja-250-g")
	if err != nil || p.Price != 92000 || p.Stock != nil || !p.Published || p.Description != "satu\ndua" || p.ImageURL != nil {
		t.Errorf("%+v, %v", p, err)
	}

	// What is sold while the owner has the form open stays sold, unless he changes the stock.
	b.get(t, "/dashboard/catalog/product?slug=kopi").has(t, 200, `name="stock_was" value="10"`, `value="85000"`)
	s.place(t, s.storeID, "Siti", "", 3)
	b.post(t, "/dashboard/catalog/product?slug=kopi", "title", "Kopi Gayo baru", "price", "90000", "stock", "10", "stock_was", "10").leads(t, "/dashboard/catalog?done=saved")
	if p, _ = s.db.CatalogEntry(s.storeID, "product", "kopi"); p.Price != 90000 || *p.Stock != 7 || p.Published {
		t.Errorf("%+v", p)
	}
	b.post(t, "/dashboard/catalog/product?slug=kopi", "title", "Kopi Gayo", "price", "90000", "stock", "20", "stock_was", "10", "published", "on")
	if p, _ = s.db.CatalogEntry(s.storeID, "product", "kopi"); *p.Stock != 20 || !p.Published {
		t.Errorf("%+v", p)
	}
	b.post(t, "/dashboard/catalog/product?slug=kopi", "slug", "lain", "title", "Kopi", "price", "1").leads(t, "/dashboard/catalog?done=saved")
	if _, err := s.db.CatalogEntry(s.storeID, "product", "lain"); err != errNotFound {
		t.Error("a slug was changed")
	}

	b.get(t, "/dashboard/catalog/bundle?slug=duo").has(t, 200, `name="items[0].slug" value="kopi"`, `name="items[1].quantity" value="1"`, `name="items[2].slug" value=""`, "<datalist")
	b.post(t, "/dashboard/catalog/bundle", "title", "Kosong", "price", "1").has(t, 422, "isi paling sedikit satu produk")
	b.post(t, "/dashboard/catalog/bundle", "title", "Salah", "price", "1", "items[0].slug", "", "items[1].slug", "tidak-ada").has(t, 422, `bukan nama pendek produk toko ini: "tidak-ada"`, `aria-describedby="items[0].slug-fault"`)
	b.post(t, "/dashboard/catalog/bundle?slug=duo", "title", "Trio", "price", "130000", "items[0].slug", "kopi", "items[0].quantity", "2", "items[3].slug", "teh", "published", "on").leads(t, "/dashboard/catalog?kind=bundle&done=saved")
	if p, _ = s.db.CatalogEntry(s.storeID, "bundle", "duo"); p.Title != "Trio" || len(p.Items) != 2 || p.Items[0].Quantity != 2 || p.Items[1].Slug != "teh" || p.Items[1].Quantity != 1 {
		t.Errorf("%+v", p)
	}

	b.get(t, "/dashboard/payments").has(t, 200, "Transfer BCA", "Ditawarkan", "Belum ditawarkan", "Belum ada kunci")
	b.get(t, "/dashboard/catalog/method?slug=bank").has(t, 200, "BCA 123 456 7890", `value="2500"`)
	b.post(t, "/dashboard/catalog/method?slug=bank", "name", "Transfer", "provider", "manual", "min_amount", "5", "max_amount", "4").has(t, 422, "tidak boleh melebihi batas atas")
	b.post(t, "/dashboard/catalog/method?slug=bank", "name", "Transfer", "provider", "manual", "fee", "", "max_amount", "1.000.000").leads(t, "/dashboard/payments?done=saved")
	if m, err := s.db.PaymentMethod(s.storeID, "bank"); err != nil || m.Fee != 0 || *m.MaxAmount != 1_000_000 || m.MinAmount != nil || m.Enabled || m.Instructions != "" {
		t.Errorf("%+v, %v", m, err)
	}
	b.post(t, "/dashboard/catalog/method", "name", "Tunai di toko", "provider", "manual", "enabled", "on").leads(t, "/dashboard/payments?done=saved")
	if m, err := s.db.PaymentMethod(s.storeID, "tunai-di-toko"); err != nil || !m.Enabled {
		t.Errorf("%+v, %v", m, err)
	}

	b.post(t, "/dashboard/payments/gateway", "provider", "midtrans", "mode", "live", "secret_key", "SB-Mid-server-x").has(t, 422, "ini bukan kunci mode live")
	b.post(t, "/dashboard/payments/gateway", "provider", "xendit", "mode", "sandbox", "secret_key", "xnd_development_x").has(t, 422, "untuk Xendit token ini harus diisi")
	b.post(t, "/dashboard/payments/gateway", "provider", "midtrans", "mode", "sandbox", "secret_key", "SB-Mid-server-qwertz").leads(t, "/dashboard/payments?done=saved")
	page := b.get(t, "/dashboard/payments")
	page.has(t, 200, "http://shop.test/notifications/midtrans/"+s.storeID)
	if strings.Contains(page.body, "qwertz") || strings.Contains(page.body, "Belum ditawarkan") {
		t.Error("the key is shown, or its method is not offered")
	}
}

func TestDashboardKeys(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	call := func(key string) int {
		r, _ := http.NewRequest("GET", s.url+"/v1/orders", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	b.get(t, "/dashboard/developers").has(t, 200, "Belum ada kunci", "Belum ada alamat webhook", "growth")
	b.post(t, "/dashboard/keys", "name", " ").has(t, 422, "harus diisi, paling banyak 100 huruf", `aria-describedby="name-fault name-hint"`)
	made := b.post(t, "/dashboard/keys", "name", "situs toko")
	made.has(t, 200, "hanya tampil sekali", "curl -H 'Authorization: Bearer so_", "http://shop.test/v1/products", "situs toko", "belum pernah")
	key := regexp.MustCompile(`so_[A-Za-z0-9_-]{43}`).FindString(made.body)
	if status := call(key); status != 200 {
		t.Fatalf("the new key is answered %d", status)
	}
	if p := b.get(t, "/dashboard/developers"); strings.Contains(p.body, "so_") || !strings.Contains(p.body, "situs toko") {
		t.Error("the key is shown again, or not listed")
	}
	if err := s.uses.flush(t.Context(), s.db); err != nil {
		t.Fatal(err)
	}
	if p := b.get(t, "/dashboard/developers"); strings.Contains(p.body, "belum pernah") {
		t.Error("the last use is not shown")
	}
	id := scalar[string](t, s.db, "SELECT id FROM api_keys")
	b.get(t, "/dashboard/keys/"+id+"/revoke").has(t, 200, "Cabut kunci ini?", "situs toko")
	if call(key) != 200 {
		t.Error("looking at the question revokes")
	}
	b.post(t, "/dashboard/keys/"+id+"/revoke").leads(t, "/dashboard/developers?done=revoked")
	if status := call(key); status != 401 {
		t.Errorf("a revoked key is answered %d", status)
	}
	b.get(t, "/dashboard/developers?done=revoked").has(t, 200, "dicabut", "Kunci dicabut")

	s.addShop(t, "gratis", "free")
	s.owner(t, "gratis@example.id").get(t, "/dashboard/developers").has(t, 200, "PLAN_REQUIRED")
}

func TestDashboardEndpoints(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	for address, fault := range map[string]string{"": "harus alamat lengkap", "http://toko.example/x": "harus diawali https://", "https://192.168.1.2/": "harus alamat yang terbuka",
		"https://a:b@toko.example/": "tidak boleh memuat nama pengguna"} {
		b.post(t, "/dashboard/endpoints", "url", address, "events", "orderPaid").has(t, 422, fault, `value="orderPaid" checked`)
	}
	made := b.post(t, "/dashboard/endpoints", "url", "https://toko.example/hook", "events", "orderPaid", "events", "orderCreated")
	made.has(t, 200, "hanya tampil sekali", "whsec_", "orderPaid, orderCreated")
	id := scalar[string](t, s.db, "SELECT id FROM endpoints")
	path := "/dashboard/endpoints/" + id
	if p := b.get(t, path); p.status != 200 || strings.Contains(p.body, "whsec_") || !strings.Contains(p.body, "Belum ada kiriman") {
		t.Error("the secret is shown again, or no empty state")
	}
	b.get(t, "/dashboard/developers").has(t, 200, "https://toko.example/hook", "Hidup")

	b.post(t, path+"/ping").leads(t, path+"?done=ping")
	b.get(t, path).has(t, 200, "ping", "Menunggu")
	b.get(t, path+"/off").has(t, 200, "Matikan alamat webhook ini?")
	b.post(t, path+"/off").leads(t, path+"?done=off")
	b.get(t, path).has(t, 200, "Mati", "dimatikan oleh pemilik", "Hidupkan")
	b.post(t, path+"/on").leads(t, path+"?done=on")

	b.get(t, path+"/rotate").has(t, 200, "Selama 24 jam")
	rotated := b.post(t, path+"/rotate")
	secret := regexp.MustCompile(`whsec_[A-Za-z0-9_-]{43}`).FindString(rotated.body)
	if e, err := s.db.Endpoint(s.storeID, id, "~", 1); err != nil || len(e.Secrets) != 2 || e.Secrets[0] != secret || strings.Contains(made.body, secret) {
		t.Errorf("%+v, %v", e.Secrets, err)
	}

	o := s.place(t, s.storeID, "Siti", "", 1)
	s.exec(t, "UPDATE deliveries SET status = 'failed', next_at = NULL, attempt = 10, answer_status = 500, answer = '<b>rusak</b>'")
	b.get(t, path).has(t, 200, "Gagal", "<b>rusak</b>", "percobaan 10")
	if p := b.get(t, path); strings.Contains(p.body, "<b>rusak") {
		t.Error("an answer is not escaped")
	}
	b.get(t, "/dashboard/orders/"+o.ID).has(t, 200, "orderCreated", "500", "https://toko.example/hook")
	delivery := scalar[string](t, s.db, "SELECT d.id FROM deliveries d JOIN events v ON v.id = d.event_id WHERE v.event = 'orderCreated'")
	waiting := func() int {
		n := scalar[int](t, s.db, "SELECT count(*) FROM deliveries WHERE status = 'pending' AND attempt = 0")
		return n
	}
	b.post(t, "/dashboard/deliveries/"+delivery+"/resend", "back", "/dashboard/orders/"+o.ID).leads(t, "/dashboard/orders/"+o.ID+"?done=resend")
	b.post(t, "/dashboard/deliveries/"+delivery+"/resend", "back", "https://evil.example").leads(t, "/dashboard/developers?done=resend")
	if waiting() != 1 {
		t.Errorf("%d wait, want the one that is sent again", waiting())
	}
	b.post(t, path+"/resend", "since", "kemarin").has(t, 422, "harus tanggal dan jam")
	b.post(t, path+"/resend", "since", time.Now().In(wib).Add(time.Hour).Format("2006-01-02T15:04")).leads(t, path+"?done=resend")
	if waiting() != 1 {
		t.Error("what came before the given time was sent again")
	}
	b.post(t, path+"/resend", "since", time.Now().In(wib).Add(-time.Hour).Format("2006-01-02T15:04")).leads(t, path+"?done=resend")
	if waiting() != 2 {
		t.Errorf("%d wait, want all", waiting())
	}

	for range 30 {
		if err := s.db.Ping(t.Context(), s.storeID, id); err != nil {
			t.Fatal(err)
		}
	}
	older := regexp.MustCompile(`href="(/dashboard/endpoints/[^"]+\?before=[^"]+)"`).FindStringSubmatch(b.get(t, path).body)
	if older == nil {
		t.Fatal("no link to older deliveries")
	}
	b.get(t, older[1]).has(t, 200, "orderCreated")

	b.post(t, path+"/remove").leads(t, "/dashboard/developers?done=remove")
	b.get(t, path).has(t, 404)
}
