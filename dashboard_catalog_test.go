//go:build cgo

package main

import (
	"strings"
	"testing"
)

// wantProduct compares a product's row, such as "Kopi Gayo, 85000, stock 7, for sale". A description follows.
func (s *testServer) wantProduct(t *testing.T, slug, want string) {
	t.Helper()
	got := scalar[string](t, s.db, `
		SELECT concat_ws(', ', title, price, 'stock ' || coalesce(stock, 'unlimited'),
		                 iif(published, 'for sale', 'hidden'), nullif(description, ''), image_url)
		FROM   products
		WHERE  store_id = ? AND slug = ?`, s.storeID, slug)
	if got != want {
		t.Errorf("the product %s is\n     %s\nwant %s", slug, got, want)
	}
}

func TestDashboardProducts(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	const path = "/dashboard/catalog/product"
	const saved = "/dashboard/catalog?done=saved"

	t.Run("they are listed and found", func(t *testing.T) {
		b.sees(t, "/dashboard/catalog",
			"Kopi Gayo",
			"Rp85.000",
			"tidak terbatas")
		b.sees(t, "/dashboard/catalog?q=melati", "Teh Melati")
	})

	t.Run("a new one gets its short name from its title", func(t *testing.T) {
		b.submits(t, path, saved,
			"title", "Kopi Toraja 250 g",
			"price", "92.000",
			"stock", "",
			"published", "on",
			"description", "satu\r\ndua")
		s.wantProduct(t, "kopi-toraja-250-g",
			"Kopi Toraja 250 g, 92000, stock unlimited, for sale, satu\ndua")
	})

	t.Run("a number is added when that is taken", func(t *testing.T) {
		for _, slug := range []string{"kopi-toraja-250-g-2", "kopi-toraja-250-g-3"} {
			b.submits(t, path, saved, "title", "Kopi Toraja 250 g", "price", "Rp 92.000,00", "published", "on")
			s.wantProduct(t, slug, "Kopi Toraja 250 g, 92000, stock unlimited, for sale")
		}
	})

	t.Run("long titles and other letters make short names too", func(t *testing.T) {
		for title, slug := range map[string]string{
			"Café Brûlé": "cafe-brule",
			"咖啡":         "product",
			"Kintamani Natural Anaerobic Reserve Single Origin": "kintamani-natural-anaerobic-reserve",
			strings.Repeat("x", 200):                            strings.Repeat("x", 40),
		} {
			b.submits(t, path, saved, "title", title, "price", "1", "published", "on")
			s.wantProduct(t, slug, title+", 1, stock unlimited, for sale")
		}
	})

	t.Run("pieces sold while the form is open stay sold", func(t *testing.T) {
		b.sees(t, path+"?slug=kopi", `name="stock_was" value="10"`, `value="85000"`)
		s.place(t, s.storeID, "Siti", "", 3)
		b.submits(t, path+"?slug=kopi", saved,
			"title", "Kopi Gayo baru",
			"price", "90000",
			"stock", "10",
			"stock_was", "10")
		s.wantProduct(t, "kopi", "Kopi Gayo baru, 90000, stock 7, hidden")
	})

	t.Run("the owner changes the stock", func(t *testing.T) {
		b.submits(t, path+"?slug=kopi", saved,
			"title", "Kopi Gayo",
			"price", "90000",
			"stock", "20",
			"stock_was", "10",
			"published", "on")
		s.wantProduct(t, "kopi", "Kopi Gayo, 90000, stock 20, for sale")
	})

	t.Run("a short name is never changed", func(t *testing.T) {
		b.submits(t, path+"?slug=kopi", saved, "slug", "lain", "title", "Kopi", "price", "1")
		_, err := s.db.CatalogEntry(s.storeID, KindProduct, "lain")
		if err != errNotFound {
			t.Errorf("the product has another name: %v", err)
		}
	})
}

func TestDashboardBundles(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	const path = "/dashboard/catalog/bundle?slug=duo"

	t.Run("they are listed", func(t *testing.T) {
		b.sees(t, "/dashboard/catalog?kind=bundle", "Duo", "Rp120.000")
	})

	t.Run("the form has a row for each product, and empty ones", func(t *testing.T) {
		b.sees(t, path,
			`<select id="items[0].slug"`,
			`<option value="kopi" selected>Kopi Gayo</option>`,
			`name="items[1].quantity" value="1"`,
			`<select id="items[2].slug"`)
	})

	t.Run("rows may be left empty, and one piece is the default", func(t *testing.T) {
		b.submits(t, path, "/dashboard/catalog?kind=bundle&done=saved",
			"title", "Trio",
			"price", "130000",
			"items[0].slug", "kopi",
			"items[0].quantity", "2",
			"items[3].slug", "teh",
			"published", "on")

		got := scalar[string](t, s.db, `
			SELECT b.title || ': ' || group_concat(i.quantity || ' ' || p.slug, ', ' ORDER BY i.position)
			FROM   bundles b
			JOIN   bundle_items i ON i.bundle_id = b.id
			JOIN   products p ON p.id = i.product_id
			WHERE  b.store_id = ? AND b.slug = 'duo'`, s.storeID)
		if want := "Trio: 2 kopi, 1 teh"; got != want {
			t.Errorf("the bundle is %s, want %s", got, want)
		}
	})
}

// Some methods are not offered although they are enabled. The payments page says why.
func TestDashboardMethodsNotOffered(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	b.header.Set("Accept-Language", "en")
	s.importCatalog(t, s.storeID, paymentCatalog)
	must(t, s.db.SetGateway(t.Context(), s.storeID, midtransAccount))
	must(t, s.db.SetGateway(t.Context(), s.storeID, xenditAccount))
	setTestMode := func(on bool) {
		s.exec(t, "UPDATE stores SET test_mode = ? WHERE id = ?", on, s.storeID)
	}
	offered := func(code string) bool {
		m, err := s.db.PaymentMethod(s.storeID, code)
		must(t, err)
		return m.Usable
	}

	t.Run("the sandbox needs test mode, and every page says that it is on", func(t *testing.T) {
		b.sees(t, "/dashboard", "Test mode.")
		b.seesNo(t, "/dashboard/payments", "not in test mode")
		if !offered("sandbox") {
			t.Error("the sandbox is not offered in test mode")
		}

		setTestMode(false)
		b.seesNo(t, "/dashboard", "Test mode.")
		b.sees(t, "/dashboard/payments", "Not offered: this store is not in test mode")
		if offered("sandbox") {
			t.Error("the sandbox is offered outside test mode")
		}
	})

	t.Run("Xendit needs https", func(t *testing.T) {
		b.sees(t, "/dashboard/payments", "Not offered: Xendit needs an https address")
		if offered("link") {
			t.Error("Xendit is offered on http")
		}
		if !offered("snap") {
			t.Error("Midtrans is not offered on http")
		}

		s.exec(t, "UPDATE settings SET public_url = 'https://shop.test'")
		if !offered("link") {
			t.Error("Xendit is not offered on https")
		}
	})
}

// TestDashboardAccounts fills in the accounts of a payment method.
func TestDashboardAccounts(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	const path = "/dashboard/catalog/method?slug=bank"
	const saved = "/dashboard/payments?done=saved"
	accounts := func() string {
		return scalar[string](t, s.db, `
			SELECT kind || ' ' || accounts || ' ' || coalesce(image_url, '-')
			FROM   payment_methods
			WHERE  store_id = ? AND code = 'bank'`, s.storeID)
	}
	form := func(more ...string) []string {
		return append([]string{"name", "Transfer", "provider", "manual", "enabled", "on"}, more...)
	}

	t.Run("rows may be left empty", func(t *testing.T) {
		b.submits(t, path, saved, form(
			"kind", "ewallet",
			"accounts[0].bank", "",
			"accounts[1].bank", "DANA",
			"accounts[1].number", "0812-3456-7890",
			"image_url", "https://img.example.id/q.png")...)
		const want = `ewallet [{"bank":"DANA","number":"0812-3456-7890"}] https://img.example.id/q.png`
		if got := accounts(); got != want {
			t.Errorf("saved %s, want %s", got, want)
		}
		b.sees(t, path, `name="accounts[0].bank" value="DANA"`, `name="accounts[2].bank" value=""`,
			`value="ewallet" selected`)
	})

	t.Run("a method without an account says so", func(t *testing.T) {
		lacking := func() int {
			return strings.Count(b.get(t, "/dashboard/payments").body, "nomor rekeningnya belum diisi")
		}
		before := lacking()
		b.submits(t, path, saved, form("kind", "transfer", "unique_code", "on")...)
		if got := lacking(); got != before+1 {
			t.Errorf("%d methods lack an account, want %d", got, before+1)
		}
		b.sees(t, path, `name="unique_code" checked`)
	})

	t.Run("what is wrong is said at its field", func(t *testing.T) {
		page := b.post(t, path, form(
			"accounts[2].bank", "BCA",
			"accounts[2].number", "lihat WA",
			"image_url", "http://img.example.id/q.png")...)
		page.has(t, 422, `id="accounts[0].number-fault"`, "Isi dengan nomor rekening", "https://")
	})

	t.Run("a gateway's method has no accounts", func(t *testing.T) {
		b.submits(t, path, saved, "name", "QRIS", "provider", "midtrans", "enabled", "on",
			"kind", "qris", "accounts[0].bank", "BCA", "accounts[0].number", "1234")
		m, err := s.db.PaymentMethod(s.storeID, "bank")
		must(t, err)
		if len(m.Accounts) > 0 || m.Kind != "" {
			t.Errorf("it has %v and the kind %q", m.Accounts, m.Kind)
		}
	})
}

// wantMethod compares a payment method's row, such as "Transfer, fee 2500, from 5, to 1000, offered".
func (s *testServer) wantMethod(t *testing.T, code, want string) {
	t.Helper()
	got := scalar[string](t, s.db, `
		SELECT concat_ws(', ', name, 'fee ' || fee, 'from ' || min_amount, 'to ' || max_amount,
		                 iif(enabled, 'offered', 'off'), nullif(instructions, ''))
		FROM   payment_methods
		WHERE  store_id = ? AND code = ?`, s.storeID, code)
	if got != want {
		t.Errorf("the method %s is\n     %s\nwant %s", code, got, want)
	}
}
