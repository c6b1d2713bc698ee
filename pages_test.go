package main

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Pages are stories in testdata/pages.txt: forms are found by what they do, and facts in the text.
func TestPages(t *testing.T) { playStories(t, "testdata/pages.txt") }

// code is the markup of a page, as an owner's browser gets it.
func (p *player) code(method, path string, form url.Values, headers ...string) (status int, text string) {
	p.t.Helper()
	if p.kept["cookies"] == "" {
		p.kept["cookies"] = p.signIn(p.shop, p.shop.password, "127.0.0.1").cookies()
	}
	r := p.browse(method, path, form, append(headers, "Cookie", p.kept["cookies"])...)
	return r.Status, string(r.Body)
}

// TestForeignObjects sends the requests of testdata/dashboard-foreign.txt. Nothing of the other store is
// touched.
func TestForeignObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	endpoint := w.endpointOf(w.other, "other.example")
	w.command("catalog import -store "+w.other.id, w.temporary(`{
		"products":[{"slug":"asing","title":"Asing","price":1}],
		"bundles":[{"slug":"asing","title":"Asing","price":1,"items":[{"slug":"asing","quantity":1}]}],
		"payment_methods":[{"code":"asing","name":"Asing","provider":"manual","kind":"cash"}]}`))
	key := w.command("key add -name theirs -store " + w.other.id)
	order := w.orderOfOther("kopi", 1).at("order.id")
	w.post(w.other.body("kopi", 1)).want(t, 422, "PRODUCT_UNAVAILABLE")
	delivery := w.net.inbox.await(1)[0].delivery
	words := map[string]string{
		"order": order, "endpoint": endpoint, "delivery": delivery, "key": textOf(key, "key_id"),
	}
	forms := ""
	names, err := filepath.Glob("web/*.html")
	must(t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		must(t, err)
		forms += string(text)
	}
	for _, c := range readCases(t, "testdata/dashboard-foreign.txt") {
		line := os.Expand(c.column(0)+" "+c.column(1), func(name string) string { return words[name] })
		address, text, _ := strings.Cut(line, " ")
		form, err := url.ParseQuery(text)
		must(t, err)
		for name := range form {
			if !strings.Contains(forms, `"`+name+`"`) {
				t.Errorf("%s: no form has the field %s", c.name, name)
			}
		}
		if status, body := p.code(c.heading, address, form); status != 404 || strings.Contains(body, "Asing") {
			t.Errorf("%s %s: %d, want 404", c.heading, c.name, status)
		}
	}
	w.get(t, "/v1/store", as(textOf(key, "key"))...)
	w.get(t, "/v1/orders/"+order, as(w.other.keys["read"])...).has(t, "order.status pending")
	w.get(t, "/v1/products?q=asing", as(w.other.keys["read"])...).has(t, "products.0.price 1")
}

// TestBadForms sends the forms of testdata/bad-forms.txt. What was typed stays, and nothing is written.
func TestBadForms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	pages := map[string]string{}
	for _, c := range readCases(t, "testdata/bad-forms.txt") {
		path, text, _ := strings.Cut(c.heading, " ")
		if pages[c.heading] == "" {
			form, err := url.ParseQuery(text)
			must(t, err)
			status, body := p.code("POST", path, form)
			if status/100 != 4 {
				t.Errorf("%s: %d, want a refusal", c.heading, status)
			}
			pages[c.heading] = body
		}
		if !strings.Contains(pages[c.heading], c.column(0)) {
			t.Errorf("%s: the page lacks %q", c.heading, c.column(0))
		}
	}
	if list := fmt.Sprint(w.command("webhook list -store " + w.shop.id)); list != "map[endpoints:[]]" {
		t.Errorf("an endpoint was written: %s", list)
	}
}

// TestOrderBeforeThereIsAnything opens the form of an own order in a store that offers no way to pay.
func TestOrderBeforeThereIsAnything(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		p.play("owner open /dashboard/orders/new?key=k1 | lacks Tambahkan dulu")
		w.sql("UPDATE payment_methods SET enabled = 0")
		p.play("owner open /dashboard/orders/new?key=k1 | sees Tambahkan dulu")
	})
}

// missingWord finds a code in a page, such as desk.denied, whose word web/words.txt lacks.
var missingWord = sync.OnceValue(func() *regexp.Regexp {
	kinds := map[string]bool{}
	text, err := os.ReadFile("web/words.txt")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		code, _, _ := strings.Cut(line, " = ")
		if kind, _, found := strings.Cut(code, "."); found && !strings.ContainsAny(code, " %\n") {
			kinds[kind] = true
		}
	}
	return regexp.MustCompile(`\b(` + strings.Join(slices.Collect(maps.Keys(kinds)), "|") + `)\.[a-z]\w*\b`)
})

var (
	codeInPage = regexp.MustCompile(`\b(awaiting_verification|bank_transfer|method_changed|by_api)\b`)
	pageText   = regexp.MustCompile(`(?s)<(script|style|code|option|pre)\b.*?</(script|style|code|option|pre)>|<[^>]*>`)
)

// TestEveryPage opens all pages of an owner in both languages: none fails, none shows a code of the program,
// and none needs a script.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	endpoint := w.endpoint("shop.example")
	p.play("order kopi 2 bank_transfer as A, buyer claim", "POST /v1/orders/$A/approve {} | 200")
	order := p.order
	p.play("order kopi 1 cod as B, buyer claim")
	w.net.inbox.await(5)
	for _, path := range []string{
		"/dashboard", "/dashboard?q=siti", "/dashboard?status=paid", "/dashboard?q=nobody",
		"/dashboard/orders/" + order, "/dashboard/orders/" + p.order, "/dashboard/catalog",
		"/dashboard/catalog?kind=bundle",
		"/dashboard/catalog/product", "/dashboard/catalog/bundle?slug=duo", "/dashboard/payments",
		"/dashboard/payments/method?provider=manual&kind=qris", "/dashboard/payments/method?code=kode",
		"/dashboard/payments/method?code=cod", "/dashboard/developers", "/dashboard/endpoints/" + endpoint,
		"/dashboard/payments/method?provider=midtrans", "/dashboard/payments/method?code=link",
		"/dashboard/account", "/pay/" + order, "/pay/" + p.order, "/dashboard/shop", "/dashboard/shop/poster",
		"/dashboard/shipping", "/dashboard/orders/slips", "/dashboard/orders/new?from=" + order,
	} {
		shown := map[string]string{}
		for _, lang := range []string{"id", "en"} {
			status, body := p.code("GET", path, nil, "Accept-Language", lang)
			text := pageText.ReplaceAllString(body, " ")
			if status != 200 || !strings.Contains(body, `<html lang="`+lang+`"`) {
				t.Errorf("%s in %s: %d", path, lang, status)
			}
			if code := codeInPage.FindString(text) + missingWord().FindString(text); code != "" {
				t.Errorf("%s in %s shows the code %s", path, lang, code)
			}
			scripts := 1
			if strings.HasSuffix(path, "=kode") { // It may read a code from a picture.
				scripts = 2
			}
			if strings.Count(body, "<script") > scripts || strings.Contains(body, "onclick") ||
				strings.Contains(body, "{{") {
				t.Errorf("%s has scripts", path)
			}
			shown[lang] = text
		}
		if shown["id"] == shown["en"] {
			t.Errorf("%s is the same in both languages", path)
		}
		link := path + "?lang=en"
		if strings.Contains(path, "?") {
			link = path + "&lang=en"
		}
		status, body := p.code("GET", link, nil)
		if status != 200 || !strings.Contains(body, `<html lang="en"`) {
			t.Errorf("%s is not shown in English by its link: %d", path, status)
		}
	}
}

var export = flag.String("export", "", "a file into which TestExport writes the CSV, for .ci/spreadsheet")

// table reads a CSV as a spreadsheet does. Its first row has the names of the columns.
func table(t *testing.T, text string) (rows [][]string) {
	t.Helper()
	body, marked := strings.CutPrefix(text, "\ufeff")
	reader := csv.NewReader(strings.NewReader(body))
	reader.Comma = ';'
	rows, err := reader.ReadAll()
	must(t, err)
	if !marked {
		t.Error("the CSV has no byte order mark")
	}
	return rows
}

// TestExport reads the CSV: it has a row per item, its columns add up, and a spreadsheet takes no text for a formula, a
// number or a date.
func TestExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	texts := map[string]string{} // and the cells that they become
	for _, text := range strings.Split(
		"=1+1 +62_812 -1 @SUM(A1) ＝1 √2 081234567890 00042 1E5 1.5e3 3-12 12345678901234567890 3_Mei_2026 "+
			"Mei_5 Sept_3 TRUE #N/A Rp85.000 IDR_5 50% 12:30 1_1/2 (5) ０８１２ 2026-01-31T10:00:00Z "+
			"10_AM 5_EUR USD_5 1,5 1.000.000 1_Peb_2026", " ") {
		text = strings.ReplaceAll(text, "_", " ")
		texts[text] = "'" + text
	}
	for _, text := range strings.Split(
		"Mei|Siti Aminah|Siti; \"Aminah\"|Kopi 200 g|2 kg|Jl. Melati 3|100% Arabika|JP123456789ID|Marina|李小龙", "|") {
		texts[text] = text
	}
	for i := range 15 { // With them they are more than a page.
		texts[fmt.Sprint("Pembeli ", i)] = fmt.Sprint("Pembeli ", i)
	}
	texts["Siti, =1+1"] = "Siti, '=1+1"
	texts["Siti,\"=1+1"] = "Siti,\"'=1+1"
	texts["Siti;=1"] = "Siti;'=1"
	var cells []string
	for i, text := range slices.Sorted(maps.Keys(texts)) {
		cells = append(cells, texts[text])
		body := w.shop.body("teh", 2, "panjang", 1)
		body["payment_method"], body["shipping_fee"], body["discount"] = "bank_unik", 1000*i, i
		body["buyer"] = fields{"name": text, "email": "a@b.id", "phone": "081234567890"}
		body["external_id"], body["shipping"] = text, fields{"address": text + "\tA\r\n=5", "method": text}
		o := w.post(body).want(t, 201, "")
		w.decide(t, o.at("order.id"), "approve")
		w.do(t, "POST", "/v1/orders/"+o.at("order.id")+"/ship", fields{"carrier": "JNE", "tracking_number": text},
			as(w.shop.keys["manage"])...).want(t, 200, "")
	}

	_, list := p.code("GET", "/dashboard?from=2020-01-01&status=paid", nil)
	older := regexp.MustCompile(`"/dashboard\?after=[^"]+&amp;from=2020-01-01&amp;status=paid"`).FindString(list)
	_, list = p.code("GET", html.UnescapeString(strings.Trim(older, `"`)), nil)
	if rest := strings.Count(list, `<a href="/dashboard/orders/`); rest != len(texts)-50 {
		t.Errorf("the second page has %d orders of %d", rest, len(texts))
	}

	status, text := p.code("GET", "/dashboard/orders.csv?from=2020-01-01&status=paid", nil)
	rows := table(t, text)
	if status != 200 || len(rows) != 1+2*len(texts) {
		t.Fatalf("the export is %d with %d rows", status, len(rows))
	}
	column := func(row int, name string) string { return rows[row][slices.Index(rows[0], name)] }
	number := func(row int, name string) (n int64) {
		n, err := strconv.ParseInt(column(row, name), 10, 64)
		must(t, err)
		return n
	}
	for i := 1; i < len(rows); i += 2 {
		wanted := cells[len(cells)-1-i/2] // The newest comes first.
		for _, name := range strings.Split("Pembeli Pengiriman Resi ID_eksternal", " ") {
			if cell := column(i, strings.ReplaceAll(name, "_", " ")); cell != wanted {
				t.Errorf("%s is %q, want %q", name, cell, wanted)
			}
		}
		for name, want := range map[string]string{
			"Telepon": "'081234567890", "Metode": "Transfer dengan kode unik", "Kurir": "JNE",
			"Status": "Lunas", "Barang": "Teh Melati", "Jumlah": "2", "Harga barang": "100000",
		} {
			if cell := column(i, name); cell != want {
				t.Errorf("%s is %q, want %q", name, cell, want)
			}
		}
		if _, err := time.Parse(time.DateTime, column(i, "Dikirim")); err != nil {
			t.Error(err)
		}
		if address := column(i, "Alamat"); !strings.HasSuffix(address, " A\n'=5") {
			t.Errorf("the address is %q", address)
		}
		sum := int64(0)
		for _, name := range strings.Split("Subtotal Ongkir Diskon Biaya Kode_unik", " ") {
			sum += number(i, strings.ReplaceAll(name, "_", " "))
		}
		if sum != number(i, "Total") || number(i, "Harga barang")+number(i+1, "Harga barang") != number(i, "Subtotal") {
			t.Errorf("the amounts do not add up: %q", rows[i:i+2])
		}
		noCell := func(cell string) bool { return cell == "" }
		second := strings.Join(slices.DeleteFunc(slices.Clone(rows[i+1]), noCell), "|")
		if !regexp.MustCompile(`^Seduhan[^|]*\|1\|1000\|1000$`).MatchString(second) {
			t.Errorf("the second row of an order is %q", rows[i+1])
		}
	}
	if *export != "" {
		must(t, os.WriteFile(*export, []byte(text), 0o600))
	}
}

// upload sends a picture for the method kode.
func (p *player) upload(content []byte) (status int, text string) {
	p.t.Helper()
	return p.postPicture("/dashboard/payments/picture?code=kode&act=upload", content, nil)
}

// postPicture posts a form with a picture.
func (p *player) postPicture(path string, content []byte, fields url.Values) (status int, text string) {
	p.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name := range fields {
		must(p.t, form.WriteField(name, fields.Get(name)))
	}
	file, err := form.CreateFormFile("picture", "qris.png")
	must(p.t, err)
	file.Write(content)
	must(p.t, form.Close())
	p.code("GET", "/dashboard", nil)
	r, err := p.send("POST", path, body.String(), "Content-Type", form.FormDataContentType(),
		"Cookie", p.kept["cookies"], "Sec-Fetch-Site", "same-origin")
	must(p.t, err)
	return r.Status, string(r.Body)
}

// qris returns the address of the picture that the method kode shows, and the picture there.
func (p *player) qris(suffix string) (address string, picture image.Image) {
	p.t.Helper()
	listed := fmt.Sprint(p.get(p.t, "/v1/payment-methods").Data)
	address = regexp.MustCompile(`/pictures/[0-9a-f]{64}`).FindString(listed)
	_, content := p.code("GET", address+suffix, nil)
	picture, err := jpeg.Decode(strings.NewReader(content))
	must(p.t, err)
	return address, picture
}

// TestPicture uploads a photo of a QRIS code: it is made small, and everybody may see it at an address of its
// own.
func TestPicture(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	upload := p.upload
	photo := image.NewNRGBA(image.Rect(0, 0, 2000, 1000))
	for i := range 400 { // Apart from a black square it is transparent, as codes that banks hand out are.
		photo.Set(1000+i/20, 500+i%20, color.Black)
	}
	var content bytes.Buffer
	must(t, png.Encode(&content, photo))
	if status, text := upload(content.Bytes()); status != 303 {
		t.Fatalf("a picture: %d %s", status, text)
	}
	address, large := p.qris("")
	if large.Bounds().Dx() != 800 || large.Bounds().Dy() != 400 {
		t.Errorf("the picture is kept as %v", large.Bounds())
	}
	if _, small := p.qris("/small"); small.Bounds().Dx() != 240 || small.Bounds().Dy() != 120 {
		t.Errorf("its small copy is %v", small.Bounds())
	}
	if h := w.browse("GET", address, nil).Header; !strings.Contains(h.Get("Cache-Control"), "immutable") {
		t.Errorf("the picture is sent with %v", h)
	}
	for x, want := range map[int]uint32{100: 0xff, 404: 0} {
		if r, g, b, _ := large.At(x, 204).RGBA(); r>>8 != want || g>>8 != want || b>>8 != want {
			t.Errorf("at %d the picture has the color %x %x %x, want %x", x, r>>8, g>>8, b>>8, want)
		}
	}
	listed := fmt.Sprint(w.get(t, "/v1/payment-methods").Data)
	if !strings.Contains(listed, "https://shop.test"+address) {
		t.Errorf("the API names the picture %s", listed)
	}
	p.play("order kopi 1 kode as A")
	if _, body := p.code("GET", "/pay/"+p.order, nil); !strings.Contains(body, address) {
		t.Error("the pay page does not show it")
	}

	var huge, large24 bytes.Buffer
	must(t, png.Encode(&huge, image.NewGray(image.Rect(0, 0, 5200, 5000))))
	must(t, png.Encode(&large24, image.NewGray(image.Rect(0, 0, 5712, 4284)))) // as a newer phone takes them
	if status, _ := upload(large24.Bytes()); status != 303 {
		t.Errorf("a photo of 24 megapixels: %d", status)
	}
	for name, content := range map[string][]byte{
		"no picture": []byte("hello"),
		"nothing":    nil,
		"half":       content.Bytes()[:50],
		"26 MP":      huge.Bytes(),
	} {
		status, text := upload(content)
		if status != 422 || strings.Count(text, `action="/dashboard/payments/method?code=kode#`) != 3 {
			t.Errorf("%s: %d, want 422 and a page whose other forms still work: %s", name, status, text)
		}
	}
	if status, _ := upload(make([]byte, 13<<20)); status != 413 {
		t.Errorf("13 MB: %d, want 413", status)
	}
	if status, _ := p.code("GET", "/pictures/x", nil); status != 404 {
		t.Errorf("no picture: %d", status)
	}
}

// TestPictureWeight is about pictures that take more memory than photos while they are decoded.
func TestPictureWeight(t *testing.T) {
	t.Parallel()
	size := image.Config{ColorModel: color.YCbCrModel}
	for head, want := range map[string]int{
		"\xff\xd8\xff\xe1\x00\x04\xff\xc2\xff\xc0\x00\x11": 1, // the metadata has the marker of another one
		"\xff\xd8\xff\xe1\x00\x02\xff\xc2\x00\x11":         2,
		"\xff\xd8\x00\xff\x00\xff\xff\xff\xc2\x00\x11":     2, // with what image/jpeg skips
		"\xff\xd8\xff\xe1\xff\xff":                         2, // Its frame is further on.
	} {
		if got := weightOf(size, "jpeg", []byte(head)); got != want {
			t.Errorf("%x: %d, want %d", head, got, want)
		}
	}
	if weightOf(image.Config{ColorModel: color.NRGBA64Model}, "png", nil) != 2 ||
		weightOf(image.Config{ColorModel: color.CMYKModel}, "jpeg", nil) != 4 {
		t.Error("16 bits and colours for print weigh too little")
	}
}

// TestTurnedPicture uploads a photo with each orientation of Exif: red is at its top left, and must be where the camera
// saw it.
func TestTurnedPicture(t *testing.T) {
	t.Parallel()
	p := newPlayer(t, newWorld(t))
	photo := image.NewRGBA(image.Rect(0, 0, 96, 64))
	draw.Draw(photo, image.Rect(0, 0, 48, 32), image.NewUniform(color.RGBA{255, 0, 0, 255}), image.Point{}, draw.Src)
	var plain bytes.Buffer
	must(t, jpeg.Encode(&plain, photo, nil))
	for orientation, want := range []string{"left top", "left top", "right top", "right bottom", "left bottom",
		"left top", "right top",
		"right bottom", "left bottom", "left top"} {
		exif := "Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x02" + // two entries, of which the second is the orientation
			"\x01\x0f\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00" + "\x01\x12\x00\x03\x00\x00\x00\x01\x00" +
			string(rune(orientation)) + "\x00\x00"
		content := append([]byte("\xff\xd8\xff\xe1\x00"+string(rune(len(exif)+2))+exif), plain.Bytes()[2:]...)
		if status, text := p.upload(content); status != 303 {
			t.Fatalf("a photo: %d %s", status, text)
		}
		_, shown := p.qris("")
		onSide := orientation >= 5 && orientation <= 8
		size := shown.Bounds().Max
		if onSide != (size.Y > size.X) {
			t.Errorf("orientation %d: the photo is %v", orientation, size)
		}
		x, y, _ := strings.Cut(want, " ")
		at := image.Pt(map[string]int{"left": size.X / 4, "right": size.X * 3 / 4}[x],
			map[string]int{"top": size.Y / 4, "bottom": size.Y * 3 / 4}[y])
		if r, g, _, _ := shown.At(at.X, at.Y).RGBA(); r < 0xf000 || g > 0x1000 {
			t.Errorf("orientation %d: there is no red at %s", orientation, want)
		}
	}
	for _, bad := range []string{"Exif\x00\x00MM\x00*\xff\xff\xff\xff", "Exif\x00\x00II*\x00\x08\x00\x00\x00\xff\xff",
		"Exif\x00\x00"} {
		content := append([]byte("\xff\xd8\xff\xe1\x00"+string(rune(len(bad)+2))+bad), plain.Bytes()[2:]...)
		if strings.Contains(bad, "\xff") {
			content = append([]byte("\xff\xd8\xff\xe1\x00"),
				append([]byte{byte(len(bad) + 2)}, append([]byte(bad), plain.Bytes()[2:]...)...)...)
		}
		if status, _ := p.upload(content); status != 303 {
			t.Errorf("broken metadata %q: %d", bad, status)
		}
	}
}

// TestUnusedPicture replaces a picture: the old one is kept for thirty days, unless a method shows it again.
func TestUnusedPicture(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		var addresses []string
		for i := range 3 {
			photo := image.NewGray(image.Rect(0, 0, 8, 8+i))
			var content bytes.Buffer
			must(t, png.Encode(&content, photo))
			p.upload(content.Bytes())
			address, _ := p.qris("")
			addresses = append(addresses, address)
		}
		statuses := func() (all []int) {
			for _, address := range addresses {
				status, _ := p.code("GET", address, nil)
				all = append(all, status)
			}
			return all
		}
		w.sleep(time.Hour)
		w.sql("UPDATE pictures SET unused_since = unused_since - ? WHERE unused_since > 0",
			(29 * 24 * time.Hour).Milliseconds())
		w.sleep(time.Hour)
		if got := fmt.Sprint(statuses()); got != "[200 200 200]" {
			t.Errorf("after 29 days: %s", got)
		}
		w.sql("UPDATE payment_methods SET image_url = ? WHERE code = 'kode'", addresses[0])
		w.sleep(time.Hour)
		w.sql("UPDATE pictures SET unused_since = unused_since - ? WHERE unused_since > 0",
			(24 * time.Hour).Milliseconds())
		w.sleep(time.Hour)
		if got := fmt.Sprint(statuses()); got != "[200 404 200]" {
			t.Errorf("after 30 days: %s", got)
		}
	})
}

// TestSlowReaders ask for pages and pictures and do not read them: they hold their own places, and nobody else's.
func TestSlowReaders(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := newPlayer(t, w)
		noise := image.NewGray(image.Rect(0, 0, 400, 400))
		r := rand.New(rand.NewPCG(1, 2))
		for i := range noise.Pix {
			noise.Pix[i] = uint8(r.Uint32())
		}
		var content bytes.Buffer
		must(t, png.Encode(&content, noise))
		p.upload(content.Bytes())
		address, _ := p.qris("")
		p.play("order kopi 1 bank_transfer as A")

		open := func(n int, path, headers string) (leave func()) {
			var conns []net.Conn
			for range n {
				conn, err := w.life.dial()
				must(t, err)
				conns = append(conns, conn)
				_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: shop.test\r\n"+headers+"\r\n")
				must(t, err)
			}
			time.Sleep(time.Millisecond)
			return func() {
				for _, conn := range conns {
					conn.Close()
				}
				time.Sleep(time.Second)
			}
		}
		want := func(path string, want int, headers ...string) {
			t.Helper()
			if status, _ := p.code("GET", path, nil, headers...); status != want {
				t.Errorf("%s is answered %d, want %d", path, status, want)
			}
		}

		leave := open(8, "/dashboard", "Cookie: "+p.kept["cookies"]+"\r\n")
		want("/dashboard", 429)
		want("/pay/"+p.order, 200)
		leave()
		want("/dashboard", 200)

		leave = open(20, "/pay/"+p.order, "")
		want("/pay/"+p.order, 200)
		leave()

		leave = open(64, address, "")
		want(address, 429)
		want(address, 200, "X-Forwarded-For", "203.0.113.9")
		for i := range 3 {
			defer open(64, address, fmt.Sprintf("X-Forwarded-For: 203.0.113.%d\r\n", i))()
		}
		want(address, 429, "X-Forwarded-For", "203.0.113.9")
		leave()
		want(address, 200)
	})
}

// TestDescriptionForStrangers has no word of the address that somebody else has opened it with.
func TestDescriptionForStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	for _, lang := range []string{"id", "en"} {
		p.play(`anon open "/docs?lang=`+lang+`&jejak=1" | lacks jejak`,
			"anon open /docs?lang="+lang+" | sees POST /v1/orders | lacks jejak")
	}
	readme, err := os.ReadFile("README.md")
	must(t, err)
	_, body, _ := strings.Cut(string(readme), "-d '\n")
	body, _, _ = strings.Cut(body, "'\n```")
	text := string(w.browse("GET", "/docs?lang=en&jejak=2", nil).Body)
	if strings.Contains(text, "jejak") {
		t.Error("the page repeats a stranger's address")
	}
	if body == "" || !strings.Contains(html.UnescapeString(text), body) {
		t.Errorf("the page's first order is not that of README.md: %s", body)
	}
	p.code("GET", "/dashboard", nil)
	if _, own := p.code("GET", "/docs", nil); !strings.Contains(own, "store’s own") {
		t.Error("an owner's page does not show the store's own product")
	}
}

// TestGuide has the whole guide on the page: every link leads somewhere, every row of a table has its columns, no mark
// of Markdown is left, and the PHP client can be copied. Programs get it as text.
func TestGuide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	_, html := p.code("GET", "/docs?lang=en", nil)
	for _, link := range regexp.MustCompile(`href="#([^"]*)"`).FindAllStringSubmatch(html, -1) {
		if !strings.Contains(html, ` id="`+link[1]+`"`) {
			t.Errorf("the page has no #%s", link[1])
		}
	}
	for _, table := range regexp.MustCompile(`(?s)<table>.*?</table>`).FindAllString(html, -1) {
		rows := strings.Split(table, "<tr>")[1:]
		for _, row := range rows {
			if got, want := strings.Count(row, "</td>"), strings.Count(rows[0], "</th>"); got != want &&
				row != rows[0] {
				t.Errorf("%s has %d columns, want %d", row, got, want)
			}
		}
	}
	prose := pageText.ReplaceAllString(regexp.MustCompile(`(?s)<textarea.*?</textarea>`).ReplaceAllString(html, ""), "")
	if left := regexp.MustCompile("`|\\*\\*|\\]\\(|\n(- |\\|).*").FindString(prose); left != "" {
		t.Errorf("%q is left", left)
	}
	for _, text := range []string{"function placeOrder(string $api", "hmac.compare_digest", "timingSafeEqual",
		"hmac.Equal",
		"<td>409 <code>OUT_OF_STOCK</code></td>", "<h3 id=\"catch-up\">Catch up</h3>"} {
		if !strings.Contains(html, text) {
			t.Errorf("the page does not have %s", text)
		}
	}
	for path, want := range map[string]string{"/docs.md": "namespace Storeorder;", "/llms.txt": "(/docs.md)"} {
		if status, text := p.code("GET", path, nil); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s is answered %d", path, status)
		}
	}
}

// TestLanguages chooses by the header of testdata/languages.txt.
func TestLanguages(t *testing.T) {
	t.Parallel()
	p := newPlayer(t, newWorld(t))
	for _, c := range readCases(t, "testdata/languages.txt") {
		header := strings.TrimPrefix(c.column(0), "none")
		_, text := p.code("GET", "/dashboard/login", nil, "Accept-Language", header)
		if !strings.Contains(text, `<html lang="`+c.heading+`"`) {
			t.Errorf("%s: the page is not in %s", c.name, c.heading)
		}
	}
}

// TestTranslatedTexts looks for each English text of web/words.txt in the program and its pages: one that was changed
// there would not be translated any more.
func TestTranslatedTexts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	must(t, err)
	pages, err := filepath.Glob("web/*.html")
	must(t, err)
	said := ""
	for _, name := range append(files, pages...) {
		if !strings.HasSuffix(name, "_test.go") {
			text, err := os.ReadFile(name)
			must(t, err)
			said += regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(string(text), "")
		}
	}
	said = squeezed(strings.ReplaceAll(said, `\"`, `"`))
	words, err := os.ReadFile("web/words.txt")
	must(t, err)
	for line := range strings.Lines(string(words)) {
		english, _, isWord := strings.Cut(line, " = ")
		if isWord && line[0] != '#' && strings.Contains(english, " ") && !strings.Contains(said, squeezed(english)) {
			t.Errorf("nothing says %q", english)
		}
	}
}

// TestShopThatCannotOpen leads its owner to what it lacks.
func TestShopThatCannotOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql("UPDATE stores SET contact = ''")
	w.sql("UPDATE products SET published = 0")
	w.sql("UPDATE payment_methods SET enabled = 0")
	form := url.Values{"act": {"save"}, "shop": {"open"}}
	_, refused := newPlayer(t, w).code("POST", "/dashboard/shop", form)
	for _, to := range []string{"catalog", "payments", "account#contact"} {
		if !strings.Contains(refused, `<p class="error"><a href="/dashboard/`+to+`">`) {
			t.Errorf("a shop that lacks something is not led to %s", to)
		}
	}
}

// TestManyProducts has more products than the lists of fields suggest: whatever is typed is found all the same, in a
// bundle's form and in that of an own order, by its title or its slug.
func TestManyProducts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newPlayer(t, w)
	var products []fields
	for i := range 501 {
		products = append(products, fields{"slug": fmt.Sprint("x", i), "title": fmt.Sprintf("Z%03d", i), "price": 1000})
	}
	bundle := fields{"slug": "akhir", "title": "Akhir", "price": 5, "items": []fields{{"slug": "x500", "quantity": 2}}}
	w.putCatalog(fields{"products": products, "bundles": []fields{bundle}}).want(t, 200, "")

	p.play(
		"owner open /dashboard/catalog/bundle?slug=akhir | sees Z500",
		"owner press save items[1].slug=z499 items[1].quantity=1 | at kind=bundle",
		"owner open /dashboard/catalog/bundle?slug=akhir, "+
			"press save items[2].slug=x498 items[2].quantity=1 | at kind=bundle",
		"owner open /dashboard/catalog/bundle?slug=akhir | sees Z500 | sees Z499 | sees Z498",
		"owner press save items[0].slug=Entah | 422 | sees Entah | sees Tidak ada di daftar",
		"owner open /dashboard/orders/new?key=k0, "+
			"press order items[0].title=Z500 name=Siti payment_method=bank_transfer | at /dashboard/orders/",
		"owner open /dashboard/orders/new?key=k1, "+
			"press order items[0].title=x500 name=Siti payment_method=bank_transfer | at /dashboard/orders/",
	)
}

// TestPageThatCannotBeRead loses tables of the database: what cannot be read is an error, never a page without it, and
// the page for an error needs no database.
func TestPageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ruin = true
	p := newPlayer(t, w)
	p.play("order kopi 1 bank_transfer as A")
	for _, c := range []struct{ lost, paths string }{
		{"order_history", "/dashboard/orders/" + p.order},
		{"payment_methods", "/dashboard /dashboard/payments /dashboard/orders/new /pay/" + p.order},
		{"settings", "/dashboard /pay/" + p.order + " /docs /nowhere"},
	} {
		p.code("GET", "/dashboard", nil) // signs in while that is possible
		w.sql("PRAGMA legacy_alter_table = 1; ALTER TABLE " + c.lost + " RENAME TO lost_" + c.lost)
		for path := range strings.FieldsSeq(c.paths) {
			status, text := p.code("GET", path, nil)
			isPage := strings.Contains(text, "Terjadi gangguan") || path == "/nowhere"
			if status < 500 && path != "/nowhere" || !isPage {
				t.Errorf("%s without %s: %d %.200s", path, c.lost, status, text)
			}
		}
	}
	if log := w.log.String(); strings.Contains(log, "could not be shown") {
		t.Error("the page for an error needs the database")
	}
}
