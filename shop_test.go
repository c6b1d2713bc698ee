package main

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// openShop opens the shop page of a store, with two shipping options and cash for strangers.
func openShop(t *testing.T, w *world) *player {
	t.Helper()
	options := []any{
		fields{"name": "Ambil sendiri", "fee": 0},
		fields{"name": "Kurir", "fee": 15000, "address_required": true, "free_from": 300000},
	}
	w.putCatalog(fields{"shipping_options": options,
		"payment_methods": []any{fields{"code": "cod", "name": "COD", "provider": "manual", "kind": "cash",
			"shop": true}}}).want(t, 200, "")
	w.command("store set -shop open -store " + w.shop.id)
	return newPlayer(t, w)
}

// shopForm is the form of a buyer who orders two kopi by bank transfer.
func shopForm(more ...string) url.Values {
	form := url.Values{"product.kopi": {"2"}, "name": {"Siti"}, "phone": {"0812 3456 7890"},
		"shipping": {"0 Ambil sendiri"}, "payment_method": {"0 bank_transfer"}, "seen": {"170000"},
		"go": {"order"}, "leave_empty": {""}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form
}

// stranger sends a request without cookies, from an address.
func (w *world) stranger(from, method, path string, form url.Values) (status int, text, location string) {
	w.t.Helper()
	r := w.browse(method, path, form, "X-Forwarded-For", from)
	return r.Status, string(r.Body), r.Header.Get("Location")
}

const shopAt, checkoutAt = "/shop/kopi-kita", "/shop/kopi-kita/checkout"

func TestShop(t *testing.T) { playStories(t, "testdata/shop.txt") }

// TestGoodsPictures is about the photos of products and bundles: an owner uploads them with the form, everybody sees
// them, and the catalog keeps them.
func TestGoodsPictures(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := openShop(t, w)
		photo := func(side int) []byte {
			var content bytes.Buffer
			must(t, png.Encode(&content, image.NewGray(image.Rect(0, 0, side, side))))
			return content.Bytes()
		}
		shown := func(path, want string) string {
			t.Helper()
			_, text, _ := w.stranger("1.1.1.1", "GET", shopAt+path, nil)
			found := regexp.MustCompile(want).FindString(text)
			if found == "" {
				t.Errorf("%s lacks %s", path, want)
			}
			return found
		}

		form := url.Values{"act": {"save"}, "title": {"Gelas"}, "price": {"25rb"}, "published": {"on"},
			"position": {"1"}, "token": {"1"}}
		if status, text := p.postPicture("/dashboard/catalog/product", photo(900), form); status != 303 {
			t.Fatalf("a product with a photo: %d %s", status, text)
		}
		path := shown("", `src="/pictures/[0-9a-f]{64}/small"`)[5:79]
		shown("", `<a href="/shop/kopi-kita/product/gelas" tabindex="-1" aria-hidden="true"><img src="`+path)
		shown("/product/gelas", `src="`+path+`" alt="" class="large"`)
		shown("/product/gelas", `og:image" content="https://shop.test`+path+`"`)
		if _, list := p.code("GET", "/dashboard/catalog", nil); !strings.Contains(list, path+"/small") {
			t.Error("the catalog does not show the photo")
		}
		gelas := func(want ...string) {
			t.Helper()
			w.get(t, "/v1/products?slug=gelas").has(t, want...)
		}
		gelas("products.0.image_url https://shop.test" + path)

		// What GET gives, PUT takes; a form that does not mention the photo keeps it; one that is refused has the new
		// one.
		page := w.get(t, "/v1/catalog?type=product&limit=500", as(w.shop.keys["manage"])...)
		w.putCatalog(page.Data).has(t, "entries.0.result unchanged",
			"entries.1.result unchanged")
		p.play("owner open product gelas | sees Hapus foto", "owner press save price=26rb")
		gelas("products.0.image_url https://shop.test"+path, "products.0.price 26000")
		form.Set("price", "mahal")
		form.Set("token", "2")
		status, text := p.postPicture("/dashboard/catalog/product?slug=gelas", photo(300), form)
		keptURL := regexp.MustCompile(`name="image_url" value="(https://shop.test/pictures/[0-9a-f]{64})"`)
		kept := keptURL.FindStringSubmatch(text)
		if status != 422 || kept == nil || strings.Contains(text, path) {
			t.Fatalf("a refused form with a photo: %d", status)
		}
		form.Set("price", "27rb")
		form.Set("image_url", kept[1])
		if status, _ := p.code("POST", "/dashboard/catalog/product?slug=gelas", form); status != 303 {
			t.Errorf("the form once more: %d", status)
		}
		gelas("products.0.image_url "+kept[1], "products.0.price 27000")

		p.play("owner open product gelas, press save remove_picture=on")
		gelas("products.0.image_url <nil>", "products.0.price 27000")
		if status, _ := p.postPicture("/dashboard/catalog/bundle?slug=duo", photo(300),
			url.Values{"act": {"save"}, "title": {"Duo"},
				"price": {"90rb"}, "published": {"on"}, "items[0].slug": {"kopi"},
				"items[0].quantity": {"1"}}); status != 303 {
			t.Errorf("a bundle with a photo: %d", status)
		}
		shown("/bundle/duo", kept[1][len("https://shop.test"):])
		form.Del("token")
		for name, content := range map[string][]byte{"no picture": []byte("x"), "half": photo(300)[:40]} {
			if status, text := p.postPicture("/dashboard/catalog/product", content, form); status != 422 ||
				!strings.Contains(text, "JPEG") {
				t.Errorf("%s: %d", name, status)
			}
		}
		for path, wrong := range map[string]url.Values{ // All that is wrong is said at once.
			"product": {"title": {"Gelas"}, "price": {"abc"}, "stock": {"-1"}},
			"bundle":  {"title": {"Duo"}, "price": {"abc"}, "items[0].slug": {"Tak Ada"}, "items[1].slug": {"kopi"}},
		} {
			wrong.Set("act", "save")
			_, text := p.postPicture("/dashboard/catalog/"+path, []byte("x"), wrong)
			errors := regexp.MustCompile(`<p class="error" id="(.*)-error">`).FindAllStringSubmatch(text, -1)
			var names []string
			for _, found := range errors {
				names = append(names, found[1])
			}
			want := map[string]string{"product": "title price stock",
				"bundle": "title price items[0].slug items[0].quantity items[1].quantity"}[path]
			if got := strings.Join(names, " "); got != want || !strings.Contains(text, "JPEG, PNG atau GIF sampai") {
				t.Errorf("%s: wrong are %s, want %s", path, got, want)
			}
			if strings.Contains(text, "huruf kecil") {
				t.Errorf("%s: it says something about the slug", path)
			}
		}
		if status, _ := p.postPicture("/dashboard/catalog/product?act=save", make([]byte, 13<<20),
			form); status != 413 {
			t.Errorf("13 MB: %d", status)
		}
	})
}

// strangers order a tea each on the shop page, from the address that from returns and with a telephone number of their
// own, until they have tried n times. It returns how many orders were made.
func (w *world) strangers(n int, from func(i int) string, more ...string) (made int) {
	for i := range n {
		w.buyers++
		form := shopForm(append([]string{"product.kopi", "", "product.teh", "1", "seen", "50000", "phone",
			fmt.Sprintf("08123%07d", w.buyers)}, more...)...)
		if status, _, _ := w.stranger(from(i), "POST", checkoutAt, form); status == 303 {
			made++
		}
	}
	return made
}

// idsOf reads the ids that a query selects.
func (w *world) idsOf(query string) []string {
	return strings.Fields(w.value("SELECT group_concat(id, ' ') FROM (" + query + ")"))
}

// wantWaiting compares how many orders of the shop page wait for a payment or for the owner.
func (w *world) wantWaiting(want string) {
	w.t.Helper()
	const waiting = `
		SELECT count(*)
		FROM   orders
		WHERE  source = 'shop' AND status IN ('pending', 'awaiting_verification')`
	if n := w.value(waiting); n != want {
		w.t.Errorf("%s orders of the shop page wait, want %s", n, want)
	}
}

// TestShopFlood is what strangers can do to a store: from one address, from a network, and from many, each with
// telephone numbers of their own. When they have stopped, the stock comes back.
func TestShopFlood(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.ruin = true // There are more events than the checks may read.
		openShop(t, w).play("owner open account, press add-phone server=ntfy.sh")
		w.command("store set -shop-hold 2h -store " + w.shop.id)
		w.sql("UPDATE products SET stock = 1000 WHERE slug = 'teh' AND store_id = ?", w.shop.id)
		wantStock := func(when, want string) {
			t.Helper()
			got := w.value("SELECT stock FROM products WHERE slug = 'teh' AND store_id = ?", w.shop.id)
			if got != want {
				t.Errorf("%s the stock is %s, want %s", when, got, want)
			}
		}

		if status, _, _ := w.stranger("1.1.1.1", "POST", checkoutAt, shopForm("go", "again")); status != 200 {
			t.Errorf("a checkout that is not sent is answered %d", status) // Enter only computes.
		}
		one := func(int) string { return "1.1.1.1" }
		if made := w.strangers(33, one); made != 30 {
			t.Errorf("one address makes %d orders at once, want 30", made)
		}
		time.Sleep(time.Minute)
		if made := w.strangers(12, one); made != 10 {
			t.Errorf("one address makes %d orders a minute, want 10", made)
		}
		if made := w.strangers(33, func(i int) string { return fmt.Sprintf("2001:db8:1:1::%x", i) }); made != 30 {
			t.Errorf("the addresses of a /64 make %d orders at once, want 30", made)
		}
		if made := w.strangers(123, func(i int) string { return fmt.Sprintf("2001:db8:2:%x::1", i) }); made != 120 {
			t.Errorf("the networks of a /48 make %d orders at once, want 120", made)
		}
		networks := func(i int) string { return fmt.Sprintf("2001:db8:%x::1", 100+i%100) }
		if made := w.strangers(313, networks); made != 310 {
			t.Errorf("a hundred networks make %d orders, want the rest of 500", made)
		}
		w.wantWaiting("500")
		status, text, _ := w.stranger("8.8.8.8", "POST", checkoutAt, shopForm())
		if status != 409 || !strings.Contains(text, "banyak pesanan") {
			t.Errorf("the next buyer: %d", status)
		}
		w.post(w.shop.body("kopi", 1)).want(t, 201, "")
		w.orderOfOther("teh", 1).want(t, 201, "")
		wantStock("with 500 orders", "500")
		time.Sleep(time.Minute)
		if rung := len(w.net.inbox.rung); rung != 21 { // The order of the API is one.
			t.Errorf("the phone rings %d times for 500 orders at once, want 20", rung-1)
		}

		for _, id := range w.idsOf("SELECT id FROM orders WHERE source = 'shop' ORDER BY id LIMIT 50") {
			w.stranger("1.1.1.1", "POST", "/pay/"+id, url.Values{"act": {"claim"}, "method": {"bank_transfer"}})
		}
		w.wantWaiting("500")
		time.Sleep(time.Hour)
		before := len(w.net.inbox.rung)
		if before > 21+6 {
			t.Errorf("the phone rings %d times within an hour, want 6", before-21)
		}
		w.sleep(time.Hour)
		w.wantWaiting("50")
		wantStock("after the hold", "950")
		w.sleep(22 * time.Hour)
		wantStock("a day after the reports", "1000")
		w.wantWaiting("50")
	})
}

// TestReportsOfManyOrders lets the orders of a flood expire, which gives room for others, and reports them then: no
// more than 500 wait for the owner.
func TestReportsOfManyOrders(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.ruin = true // Most orders have no events.
		openShop(t, w)
		_, _, to := w.stranger("1.1.1.1", "POST", checkoutAt, shopForm())
		id := strings.TrimSuffix(strings.TrimPrefix(to, "/pay/"), "?new=1")
		w.sleep(4 * time.Hour)
		w.manyOrders("pending", 500)
		w.sql("UPDATE orders SET source = 'shop' WHERE status = 'pending'")
		report := func() string {
			w.stranger("1.1.1.1", "POST", "/pay/"+id, url.Values{"act": {"claim"}, "method": {"bank_transfer"}})
			return w.get(t, "/v1/orders/"+id).at("order.status")
		}
		if status := report(); status != "expired" {
			t.Errorf("beside 500 orders that wait, a report makes another %s", status)
		}
		w.sql("UPDATE orders SET status = 'expired' WHERE id = 'o-1'")
		if status := report(); status != "awaiting_verification" {
			t.Errorf("beside 499 orders that wait, a report makes another %s", status)
		}
	})
}

// TestShopReaders is what strangers can do who read the shop page: often, slowly, and with addresses that make it long.
func TestShopReaders(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		openShop(t, w)
		often := func(from func(i int) string, n int) (read int) {
			for i := range n {
				if status, _, _ := w.stranger(from(i), "GET", shopAt+"/product/teh", nil); status == 200 {
					read++
				}
			}
			return read
		}
		one := func(int) string { return "1.1.1.1" }
		if read := often(one, 150); read != 120 {
			t.Errorf("one address reads %d pages at once, want 120", read)
		}
		time.Sleep(6 * time.Second)
		if read := often(one, 100); read != 60 {
			t.Errorf("one address reads %d pages in six seconds, want 60", read)
		}
		if read := often(func(i int) string { return fmt.Sprintf("2001:db8:1:1::%x", i) }, 150); read != 120 {
			t.Errorf("the addresses of a /64 read %d pages at once, want 120", read)
		}

		long := checkoutAt + "?product.teh=1&name=" + strings.Repeat("'", 12_000)
		for range 10 { // They read nothing.
			conn, err := w.life.dial()
			must(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: shop.test\r\nX-Forwarded-For: 2.2.2.2\r\n\r\n", long)
		}
		time.Sleep(time.Second)
		if status, text, _ := w.stranger("3.3.3.3", "GET", shopAt, nil); status != 200 ||
			!strings.Contains(text, "Teh Melati") {
			t.Errorf("beside slow readers of long pages, the shop is answered %d", status)
		}
		if status, _, _ := w.stranger("3.3.3.3", "GET", long, nil); status != 429 {
			t.Errorf("beside slow readers of long pages, another long page is answered %d", status)
		}
	})
}
