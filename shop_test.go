package main

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
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
	w.do(t, "PUT", "/v1/catalog", fields{"shipping_options": options,
		"payment_methods": []any{fields{"code": "cod", "name": "COD", "provider": "manual", "kind": "cash", "shop": true}}},
		as(w.shop.keys["manage"])...).want(t, 200, "")
	w.command("store set -shop open -store " + w.shop.id)
	return newPlayer(t, w)
}

// shopForm is the form of a buyer who orders two kopi by bank transfer.
func shopForm(more ...string) url.Values {
	form := url.Values{"product.kopi": {"2"}, "name": {"Siti"}, "phone": {"0812 3456 7890"}, "shipping": {"0 Ambil sendiri"},
		"payment_method": {"0 bank_transfer"}, "seen": {"170000"}, "go": {"order"}, "leave_empty": {""}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form
}

// stranger sends a request without cookies, from an address.
func (w *world) stranger(from, method, path string, form url.Values) (status int, text, location string) {
	w.t.Helper()
	req, err := http.NewRequest(method, "https://shop.test"+path, strings.NewReader(form.Encode()))
	must(w.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("X-Forwarded-For", from)
	noFollow := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: w.http.Transport, CheckRedirect: noFollow}
	resp, err := client.Do(req)
	must(w.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(w.t, err)
	if resp.Header.Get("Set-Cookie") != "" || resp.StatusCode == 200 && strings.Contains(string(body), "<script") && strings.HasPrefix(path, "/shop/") {
		w.t.Errorf("%s %s has a cookie or a script", method, path)
	}
	return resp.StatusCode, string(body), resp.Header.Get("Location")
}

const shopAt, checkoutAt = "/shop/kopi-kita", "/shop/kopi-kita/checkout"

// TestShopPage is a stranger's way from the link to an order.
func TestShopPage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, path := range []string{shopAt, checkoutAt, shopAt + "/product/kopi", "/shop/nobody"} {
			if status, _, _ := w.stranger("1.1.1.1", "GET", path, nil); status != 404 {
				t.Errorf("%s without a shop: %d", path, status)
			}
		}
		openShop(t, w)
		w.get(t, "/v1/store").has(t, "store.shop.status open", "store.shop.hold_minutes 180", "store.shop.max_quantity 20")
		for path, shown := range map[string]string{
			shopAt: "rel=\"canonical\"", shopAt + "?product.kopi=2": "noindex", shopAt + "?q=teh": "noindex",
			shopAt + "/product/kopi": "rel=\"canonical\"", checkoutAt + "?product.kopi=2&name=Budi": "value=\"Budi\"",
			checkoutAt + "?product.kopi=x": "Pilih dulu", shopAt + "?product.lama=1": "tidak dijual lagi", "/robots.txt": "checkout",
		} {
			status, text, _ := w.stranger("1.1.1.1", "GET", path, nil)
			if status != 200 || !strings.Contains(text, shown) || len(text) > 32<<10 {
				t.Errorf("%s: %d, %d bytes, lacks %s", path, status, len(text), shown)
			}
			if strings.Contains(text, "sandbox") || strings.Contains(text, "product.draf") {
				t.Errorf("%s offers what is not for strangers", path)
			}
		}
		form := url.Values{"product.kopi": {"2"}, "product.teh": {"0"}, "bundle.x": {""}, "go": {"checkout"}}
		if _, _, to := w.stranger("1.1.1.1", "POST", shopAt, form); to != checkoutAt+"?product.kopi=2" {
			t.Errorf("the cart leads to %s", to)
		}
		form.Set("product.kopi", "dua")
		if status, _, _ := w.stranger("1.1.1.1", "POST", shopAt, form); status != 422 {
			t.Errorf("a quantity in words: %d", status)
		}

		for _, wrong := range [][]string{
			{"422", "product.kopi", "11"}, {"422", "product.kopi", ""}, {"422", "phone", "0812"}, {"422", "name", " "},
			{"422", "shipping", ""}, {"422", "shipping", "15000 Kurir"}, {"422", "payment_method", ""},
			{"422", "payment_method", "2500 sandbox"}, {"422", "leave_empty", "x"}, {"409", "seen", "160000"},
			{"409", "shipping", "1 Ambil sendiri"}, {"409", "payment_method", "1 bank_transfer"}, {"200", "go", "again"},
		} {
			status, text, _ := w.stranger("1.1.1.1", "POST", checkoutAt, shopForm(wrong[1:]...))
			if fmt.Sprint(status) != wrong[0] || wrong[1] != "name" && wrong[2] != "" && !strings.Contains(text, "value=\"Siti\"") {
				t.Errorf("%v: %d", wrong, status)
			}
		}
		if n := w.value("SELECT count(*) FROM orders"); n != "0" {
			t.Fatalf("%s orders were made", n)
		}

		_, _, to := w.stranger("1.1.1.1", "POST", checkoutAt, shopForm())
		again, _, same := w.stranger("2.2.2.2", "POST", checkoutAt, shopForm())
		if !strings.HasPrefix(to, "/pay/") || again != 303 || same != to {
			t.Fatalf("an order leads to %s, and again to %s", to, same)
		}
		id := strings.TrimSuffix(strings.TrimPrefix(to, "/pay/"), "?new=1")
		w.get(t, "/v1/orders/"+id).has(t, "order.source shop", "order.buyer.phone +6281234567890", "order.amount 170000",
			"order.shipping.method Ambil sendiri")
		if _, text, _ := w.stranger("1.1.1.1", "GET", to, nil); !strings.Contains(text, "Jangan sampai") {
			t.Error("the first page does not say to keep it")
		}
		parts := shopForm("shipping", "15000 Kurir", "street", "Jl. Melati 3", "district", "Coblong", "city", "Bandung",
			"postcode", "40132", "payment_method", "5000 cod")
		_, _, to = w.stranger("1.1.1.1", "POST", checkoutAt, parts)
		cash := strings.TrimSuffix(strings.TrimPrefix(to, "/pay/"), "?new=1")
		w.get(t, "/v1/orders/"+cash).has(t, "order.status awaiting_verification", "order.amount 190000",
			"order.shipping.address Jl. Melati 3\nCoblong, Bandung 40132")

		cancel := url.Values{"act": {"cancel"}, "method": {"bank_transfer"}}
		w.stranger("1.1.1.1", "POST", "/pay/"+id, cancel)
		w.get(t, "/v1/orders/"+id).has(t, "order.status failed")
		w.command("store set -shop closed -store " + w.shop.id)
		w.get(t, "/v1/store").has(t, "store.shop.status closed", "store.shop.url https://shop.test"+shopAt)
		if status, text, _ := w.stranger("1.1.1.1", "GET", shopAt, nil); status != 200 || !strings.Contains(text, "sedang tutup") {
			t.Errorf("closed: %d", status)
		}
		if _, _, to := w.stranger("1.1.1.1", "POST", checkoutAt, shopForm("name", "Budi")); to != shopAt {
			t.Errorf("an order of a closed shop leads to %s", to)
		}
	})
}

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

		form := url.Values{"act": {"save"}, "title": {"Gelas"}, "price": {"25rb"}, "published": {"on"}, "position": {"1"}, "token": {"1"}}
		if status, text := p.postPicture("/dashboard/catalog/product", photo(900), form); status != 303 {
			t.Fatalf("a product with a photo: %d %s", status, text)
		}
		path := shown("", `src="/pictures/[0-9a-f]{64}/small"`)[5:79]
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

		// What GET gives, PUT takes; a form that does not mention the photo keeps it; one that is refused has the new one.
		page := w.get(t, "/v1/catalog?type=product&limit=500", as(w.shop.keys["manage"])...)
		w.do(t, "PUT", "/v1/catalog", page.Data, as(w.shop.keys["manage"])...).has(t, "entries.0.result unchanged", "entries.1.result unchanged")
		p.play("owner open product gelas | sees Hapus foto", "owner press save price=26rb")
		gelas("products.0.image_url https://shop.test"+path, "products.0.price 26000")
		form.Set("price", "mahal")
		form.Set("token", "2")
		status, text := p.postPicture("/dashboard/catalog/product?slug=gelas", photo(300), form)
		kept := regexp.MustCompile(`name="image_url" value="(https://shop.test/pictures/[0-9a-f]{64})"`).FindStringSubmatch(text)
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
		if status, _ := p.postPicture("/dashboard/catalog/bundle?slug=duo", photo(300), url.Values{"act": {"save"}, "title": {"Duo"},
			"price": {"90rb"}, "published": {"on"}, "items[0].slug": {"kopi"}, "items[0].quantity": {"1"}}); status != 303 {
			t.Errorf("a bundle with a photo: %d", status)
		}
		shown("/bundle/duo", kept[1][len("https://shop.test"):])
		form.Del("token")
		for name, content := range map[string][]byte{"no picture": []byte("x"), "half": photo(300)[:40]} {
			if status, text := p.postPicture("/dashboard/catalog/product", content, form); status != 422 || !strings.Contains(text, "JPEG") {
				t.Errorf("%s: %d", name, status)
			}
		}
		if status, _ := p.postPicture("/dashboard/catalog/product?act=save", make([]byte, 13<<20), form); status != 413 {
			t.Errorf("13 MB: %d", status)
		}
	})
}

// TestShopHolds is about how long strangers hold stock: three hours, or a day after they report a payment.
func TestShopHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		openShop(t, w)
		_, _, unpaid := w.stranger("1.1.1.1", "POST", checkoutAt, shopForm("product.kopi", "4", "seen", "340000"))
		_, _, to := w.stranger("1.1.1.1", "POST", checkoutAt, shopForm("product.kopi", "6", "seen", "510000"))
		id := strings.TrimSuffix(strings.TrimPrefix(to, "/pay/"), "?new=1")
		w.stranger("1.1.1.1", "POST", "/pay/"+id, url.Values{"act": {"claim"}, "method": {"bank_transfer"}})
		stock := func(want string) {
			t.Helper()
			if got := w.value("SELECT stock FROM products WHERE slug = 'kopi' AND store_id = ?", w.shop.id); got != want {
				t.Errorf("stock %s, want %s", got, want)
			}
		}
		stock("0")
		w.sleep(3*time.Hour + time.Minute)
		stock("4")
		if _, text, _ := w.stranger("1.1.1.1", "GET", unpaid, nil); !strings.Contains(text, "habis") {
			t.Error("the unpaid order has not ended")
		}
		w.sleep(21 * time.Hour)
		stock("10")
		w.get(t, "/v1/orders/"+id).has(t, "order.status awaiting_verification")
		w.decide(t, id, "approve")
		stock("4")
	})
}

// TestShopFlood is what strangers can do to a store: from one address, from a network, and from many.
func TestShopFlood(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		openShop(t, w)
		flood := func(from func(i int) string, n int) (made int) {
			for i := range n {
				form := shopForm("product.kopi", "", "product.teh", "1", "seen", "50000", "phone", fmt.Sprintf("08123%07d", i))
				if status, _, _ := w.stranger(from(i), "POST", checkoutAt, form); status == 303 {
					made++
				}
			}
			return made
		}
		if made := flood(func(int) string { return "1.1.1.1" }, 50); made != 30 {
			t.Errorf("one address makes %d orders at once, want 30", made)
		}
		network := func(i int) string { return fmt.Sprintf("2001:db8:1:%x::1", i) }
		if made := flood(network, 200); made > 120 {
			t.Errorf("a network of IPv6 makes %d orders at once", made)
		}
		w.sleep(20 * time.Minute) // They are remembered for ten.
		if made := flood(func(i int) string { return fmt.Sprintf("9.%d.%d.1", i/250, i%250) }, 700); made > 500 {
			t.Errorf("many addresses make %d orders", made)
		}
		if n := w.value("SELECT count(*) FROM orders WHERE status = 'pending'"); n != "500" {
			t.Errorf("%s orders wait, want 500", n)
		}
		if status, text, _ := w.stranger("8.8.8.8", "POST", checkoutAt, shopForm()); status != 409 || !strings.Contains(text, "banyak pesanan") {
			t.Errorf("the next buyer: %d", status)
		}
		w.do(t, "POST", "/v1/orders", w.shop.body("kopi", 1)).want(t, 201, "")
		w.sleep(4 * time.Hour)
		if n := w.value("SELECT count(*) FROM orders WHERE status = 'pending' AND source = 'shop'"); n != "0" {
			t.Errorf("%s orders wait after the hold", n)
		}
	})
}
