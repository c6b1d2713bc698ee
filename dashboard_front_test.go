//go:build cgo

package main

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestDashboardSearch(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	siti := s.place(t, s.storeID, "Siti Aminah", "toko-7", 1)
	budi := s.place(t, s.storeID, "Budi", "", 2)

	search := func(t *testing.T, text string) screen {
		t.Helper()
		return b.get(t, "/dashboard?q="+url.QueryEscape(text))
	}

	for name, text := range map[string]string{
		"reference":                  siti.PaymentReference,
		"reference in small letters": strings.ToLower(siti.PaymentReference),
		"external id":                "toko-7",
		"id":                         siti.ID,
		"part of a name":             "siti amin",
		"part of an e-mail address":  "SITI@EXAMPLE",
	} {
		t.Run("one order is found by its "+name, func(t *testing.T) {
			found := search(t, text)
			found.has(t, 200, siti.ID)
			found.lacks(t, budi.ID)
		})
	}

	t.Run("a telephone number is found however it is written", func(t *testing.T) {
		for _, text := range []string{
			"0812 3456 789",
			"628123456789",
			"+62 812-3456",
		} {
			search(t, text).has(t, 200, siti.ID, budi.ID)
		}
	})

	t.Run("there are no wildcards", func(t *testing.T) {
		search(t, "%").has(t, 200, "Tidak ditemukan")
	})

	t.Run("a filter may find nothing, and so may a search with it", func(t *testing.T) {
		b.sees(t, "/dashboard?status=paid", "Tidak ada pesanan yang cocok dengan filter ini")
		b.sees(t, "/dashboard?status=paid&q="+siti.PaymentReference, "Tidak ditemukan")
	})
}

// finds searches and checks which of two orders the list shows.
func (b *browser) finds(t *testing.T, query string, wanted, other Order) {
	t.Helper()
	found := b.get(t, "/dashboard?"+query)
	found.has(t, 200, wanted.ID)
	found.lacks(t, other.ID)
}

// TestSearchByWhatOwnersKnow finds an order by what stands in a message or in an account statement.
func TestSearchByWhatOwnersKnow(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	siti := s.place(t, s.storeID, "Siti Aminah", "toko-7", 1)
	budi := s.place(t, s.storeID, "Budi", "lapak-7", 2)

	for name, text := range map[string]string{
		"the tail of the reference":           referenceTail(siti.PaymentReference),
		"the same in small letters":           strings.ToLower(referenceTail(siti.PaymentReference)),
		"the beginning of the external id":    "TOKO",
		"the amount":                          "87500",
		"the amount as people write it":       "Rp 87.500",
		"the amount as statements write it":   "87.500,00",
		"the tail, with a status":             referenceTail(siti.PaymentReference) + "&status=pending",
		"the tail, on the day of the order":   referenceTail(siti.PaymentReference) + "&day=" + siti.day(),
		"only the status, and a part of name": "aminah&status=pending",
	} {
		t.Run(name, func(t *testing.T) {
			text, more, _ := strings.Cut(text, "&")
			b.finds(t, "q="+url.QueryEscape(text)+"&"+more, siti, budi)
		})
	}

	t.Run("an order leads back to the list", func(t *testing.T) {
		const list = "/dashboard?status=pending&q=siti"
		page := b.get(t, list)
		back := "?back=" + url.QueryEscape(list)
		page.has(t, 200, siti.ID+back)
		b.sees(t, "/dashboard/orders/"+siti.ID+back, `href="`+list+`"`)
		b.sees(t, "/dashboard/orders/"+siti.ID+"?back=https://evil.example", `href="/dashboard">`)
	})
}

// TestSearchIsExact looks for texts that JSON or LIKE write in another way, and for numbers that are no amount.
func TestSearchIsExact(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	const name = `Agus "Bon" \ 100%_<é>`
	agus := s.place(t, s.storeID, name, "", 1)
	budi := s.place(t, s.storeID, `Budi Bon 100 persen`, "", 2)

	for _, text := range []string{name, `"bon"`, `\`, "100%", "%_<", "<é>", "<É>"} {
		t.Run(text, func(t *testing.T) {
			b.finds(t, "q="+url.QueryEscape(text), agus, budi)
		})
	}

	for _, text := range []string{
		"payment_reference", // the name of a field
		"Kopi",              // an item
		"85000",             // the price of an item, which is no order's amount
		"8750",              // the beginning of an amount
	} {
		t.Run(text+" finds nothing", func(t *testing.T) {
			b.get(t, "/dashboard?q="+text).has(t, 200, "Tidak ditemukan")
		})
	}
}

// TestSearchFindsOldOrders has more orders after one than a search looks through. It is found by its reference's tail
// all the same.
func TestSearchFindsOldOrders(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	siti := s.place(t, s.storeID, "Siti", "", 1)
	budi := s.place(t, s.storeID, "Budi", "", 2)
	s.exec(t, `
		WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
		INSERT INTO orders (row, store_id, status, reference, provider, expires_at, components, json)
		SELECT row + n, store_id, status, printf('INV-20000101-%06d', n), provider, expires_at, components,
		       json_set(json, '$.payment_reference', printf('INV-20000101-%06d', n))
		FROM   numbers, orders
		WHERE  id = ?`, searchWindow, budi.ID)

	b.get(t, "/dashboard?q=siti").lacks(t, siti.ID)
	b.finds(t, "q="+referenceTail(siti.PaymentReference), siti, budi)
}

// TestOrdersOfADay lists the orders of two days.
func TestOrdersOfADay(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		first := l.newOrder("bank_transfer") // on 1 January at 07.00 WIB
		time.Sleep(24 * time.Hour)
		second := l.newOrder("bank_transfer")
		owner := l.signIn(l.storeID)

		owner.sees("id", "/dashboard?day=2000-01-01", first)
		owner.seesNo("id", "/dashboard?day=2000-01-01", second)
		owner.sees("id", "/dashboard?day=2000-01-02&q=siti", second)
		owner.seesNo("id", "/dashboard?day=2000-01-02&q=siti", first)
		owner.seesNo("id", "/dashboard?day=2000-01-02&q="+first, "/dashboard/orders/"+first)
		owner.sees("id", "/dashboard?day=nonsense", first, second)
	})
}

// day is the day of the order in WIB.
func (o Order) day() string { return o.CreatedAt.Time().In(wib).Format(time.DateOnly) }

// TestChecklist does what a new owner does, a step after the other.
func TestChecklist(t *testing.T) {
	s := newShop(t, "http://shop.test")
	s.removeCatalog(t, s.storeID)
	b := s.owner(t, "kopi-kita@example.id")
	done := func(t *testing.T, want int) {
		t.Helper()
		page := b.get(t, "/dashboard")
		page.has(t, 200, "Mulai di sini")
		if got := strings.Count(page.body, "selesai</b>"); got != want {
			t.Errorf("%d steps are ticked, want %d", got, want)
		}
	}

	done(t, 0)
	s.importCatalog(t, s.storeID, shopCatalog)
	done(t, 2)
	s.keyOf(t, s.storeID, "situs")
	done(t, 3)
	s.place(t, s.storeID, "Siti", "", 1)
	b.seesNo(t, "/dashboard", "Mulai di sini")
}

// TestFirstRun follows the pages from an empty store to its first order.
func TestFirstRun(t *testing.T) {
	s := newShop(t, "http://shop.test")
	s.removeCatalog(t, s.storeID)
	b := s.owner(t, "kopi-kita@example.id")
	const nextStep = "Lanjut ke langkah berikutnya"

	t.Run("each step leads on to the next", func(t *testing.T) {
		b.sees(t, "/dashboard", `href="/dashboard/catalog/product"`, `href="/dashboard/catalog/method"`)
		b.submits(t, "/dashboard/catalog/product", "/dashboard/catalog?done=saved",
			"title", "Kopi Gayo", "price", "85.000", "published", "on")
		b.sees(t, "/dashboard/catalog?done=saved", nextStep)
		b.seesNo(t, "/dashboard/catalog", nextStep)

		b.submits(t, "/dashboard/catalog/method", "/dashboard/payments?done=saved",
			"name", "Transfer BCA", "provider", "manual", "kind", "transfer", "enabled", "on")
		b.sees(t, "/dashboard/payments?done=saved", nextStep)
		b.creates(t, "/dashboard/endpoints", "url", "https://toko.example.id/hook").has(t, 200, nextStep)
	})

	t.Run("a key that only reads is tried by reading", func(t *testing.T) {
		shown := b.creates(t, "/dashboard/keys", "name", "laporan", "scope", "read")
		shown.has(t, 200, "/v1/products -H ")
		shown.lacks(t, "payment_method")
	})

	t.Run("the command on a new key's page creates an order", func(t *testing.T) {
		shown := b.creates(t, "/dashboard/keys", "name", "situs", "scope", "write")
		shown.has(t, 200, nextStep)
		command := regexp.MustCompile(`Bearer (so_\S+)' -d '(.*)'</textarea>`).
			FindStringSubmatch(html.UnescapeString(shown.body))
		if command == nil {
			t.Fatalf("there is no command: %s", shown.body)
		}
		s.as(command[1]).post(t, command[2]).want(t, 201, "")
	})

	t.Run("then there is no next step", func(t *testing.T) {
		b.seesNo(t, "/dashboard", "Mulai di sini")
		b.seesNo(t, "/dashboard/catalog?done=saved", nextStep)
	})
}

// TestWaitingList counts how much of what waits the first page shows at once.
func TestWaitingList(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waiting, first, rest int
		more                 bool
	}{
		{0, 0, 0, false},
		{1, 1, 0, false},
		{3, 3, 0, false},
		{4, 2, 2, false},
		{5, 2, 3, false},
		{attentionMost, 2, 3, true},
	} {
		w := newWaitingList(Attention{Awaiting: make([]AwaitingOrder, c.waiting)})
		if len(w.First) != c.first || len(w.Rest) != c.rest {
			t.Errorf("%d waiting: %d and %d lines, want %d and %d",
				c.waiting, len(w.First), len(w.Rest), c.first, c.rest)
		}
		if w.More != c.more {
			t.Errorf("%d waiting: more is %t", c.waiting, w.More)
		}
	}
}

// TestWhatWaitsInWords lets orders wait for their owner for different reasons.
func TestWhatWaitsInWords(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		transfer := l.newOrder("bank_transfer")
		l.submit("https://shop.test/pay/"+transfer+"/claim", "bank=Mandiri&sender=Agus", "same-origin")
		cash := l.newOrder("cod")
		l.play(cash, nil, "", "claim")

		owner := l.signIn(l.storeID)
		owner.sees("id", "/dashboard",
			"Siti Aminah bilang sudah membayar", "Rp170.000, dari Mandiri a.n. Agus", "Cek mutasi",
			"Siti Aminah akan bayar tunai saat barang tiba", "Siapkan")
		owner.sees("en", "/dashboard",
			"Siti Aminah says they have paid", "from Mandiri, sent by Agus",
			"Siti Aminah will pay cash on delivery")

		owner.sees("id", "/dashboard/orders/"+transfer,
			"https://shop.test/pay/"+transfer, "https://wa.me/628123456789?text=Halo%20Siti%20Aminah")
	})
}

// TestSettings changes a store in the dashboard.
func TestSettings(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	const path = "/dashboard/settings"
	settings := func() string {
		return scalar[string](t, s.db,
			"SELECT concat_ws(', ', name, contact, expiry_ms / 3600000, test_mode) FROM stores WHERE id = ?", s.storeID)
	}

	t.Run("they are shown", func(t *testing.T) {
		b.sees(t, "/dashboard/account", "Nama toko", `value="24h0m0s" selected`)
	})

	t.Run("the owner changes them", func(t *testing.T) {
		b.submits(t, path, "/dashboard/account?done=saved",
			"name", " Kopi Baru ",
			"contact", "0812 3456 7890",
			"expiry", "72h0m0s",
			"test", "on")
		if got, want := settings(), "Kopi Baru, 0812 3456 7890, 72, 1"; got != want {
			t.Errorf("the store is %s, want %s", got, want)
		}
		b.sees(t, "/dashboard/account", "Kopi Baru", "Mode uji coba.")
	})

	t.Run("what is wrong is said at its field", func(t *testing.T) {
		page := b.post(t, path, "name", "", "contact", "tanya saja", "expiry", "1h0m0s")
		page.has(t, 422, `id="name-fault"`, `id="contact-fault"`, "nomor WhatsApp", "tanya saja")
		if got, want := settings(), "Kopi Baru, 0812 3456 7890, 72, 1"; got != want {
			t.Errorf("the store is %s, want %s", got, want)
		}
	})

	t.Run("a time that the form does not offer changes nothing", func(t *testing.T) {
		b.submits(t, path, "/dashboard/account?done=saved", "name", "Kopi", "expiry", "9999h")
		if got, want := settings(), "Kopi, , 72, 0"; got != want {
			t.Errorf("the store is %s, want %s", got, want)
		}
	})
}

// TestWaysIn opens addresses that lead somewhere else or nowhere.
func TestWaysIn(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, "kopi-kita@example.id")
	b.get(t, "/").leads(t, "/dashboard")

	t.Run("a page that is missing keeps the navigation", func(t *testing.T) {
		b.get(t, "/dashboard/nothing").has(t, 404, "Halaman ini tidak ada", `href="/dashboard/catalog"`, "Keluar")
	})

	t.Run("but not for strangers", func(t *testing.T) {
		page := s.browser().get(t, "/dashboard/nothing")
		page.has(t, 404, "Halaman ini tidak ada")
		page.lacks(t, "/dashboard/catalog", "Keluar")
	})
}

// TestNumbersAsPeopleWriteThem reads prices.
func TestNumbersAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"85000":            "85000",
		" 85000 ":          "85000",
		"85.000":           "85000",
		"85,000":           "85000",
		"85 000":           "85000",
		"Rp 85.000":        "85000",
		"rp85.000,00":      "85000",
		"Rp. 85.000,-":     "85000",
		"IDR 1,250,000.00": "1250000",
		"85.000,0":         "85000",
		"1.234.567":        "1234567",
		"0":                "0",

		// These are no whole numbers of rupiah, and a form says so.
		"85.5":     "85.5",
		"8.50":     "8.50",
		"85.000,5": "85.000,5",
		"85.00.00": "85.00.00",
		"-1":       "-1",
		"1e3":      "1e3",
		"Rp":       "Rp",
	} {
		if got := fmt.Sprint(number(text)); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	if number(" ") != nil {
		t.Error("nothing is a number")
	}
}
