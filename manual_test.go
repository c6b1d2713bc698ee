//go:build cgo

package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestWhatABuyerSaysOfTheirPayment is a buyer who says where the money comes from, presses that by accident, and is
// believed later.
func TestWhatABuyerSaysOfTheirPayment(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("bank_transfer")
		page := "https://shop.test/pay/" + order
		owner := l.signIn(l.storeID)

		wrong := l.submit(page+"/claim", "sender=Siti%00&bank=Mandiri", "same-origin")
		l.want("with a control character", wrong.Code, 422)
		if !strings.Contains(wrong.Body.String(), "Ada karakter yang tidak bisa disimpan") {
			t.Errorf("the form does not say what is wrong: %s", wrong.Body)
		}
		l.want("nothing has changed", l.outcome(order), "pending [], stock 8")

		w := l.submit(page+"/claim", "sender=Siti+A.&bank=Mandiri", "same-origin")
		l.want("the claim", w.Code, 303)
		owner.sees("id", "/dashboard/orders/"+order, "pembayarannya sudah dikirim, a.n. Siti A., dari Mandiri")
		owner.sees("en", "/dashboard/orders/"+order, "sent by Siti A., from Mandiri")
		l.want("the order needs no payment", l.shown(order, "requires_payment"), "false")

		time.Sleep(time.Second)
		before := l.shown(order, "updated_at")
		l.play(order, nil, "", "unclaim")
		l.want("the order needs a payment", l.shown(order, "requires_payment"), "true")
		l.want("updated_at is later", l.shown(order, "updated_at") > before, true)
		owner.sees("id", "/dashboard/orders/"+order, "ternyata belum membayar")

		l.play(order, nil, "", "claim +192h tick")
		owner = l.signIn(l.storeID) // The sign-in of last week has ended.
		owner.sees("id", "/dashboard/orders/"+order, "stoknya dilepas karena tujuh hari tidak ada keputusan")
	})
}

// shown is a field of an order as the API shows it.
func (l *payLab) shown(order, field string) string {
	l.t.Helper()
	return l.do(l.t, "GET", "/v1/orders/"+order, nil).want(l.t, 200, "").at("order." + field)
}

// TestLanguageIsRemembered follows the link to the other language.
func TestLanguageIsRemembered(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		page := "https://shop.test/pay/" + l.newOrder("bank_transfer")
		w := l.web("GET", page+"?lang=en", "", "Accept-Language", "id")
		if !strings.Contains(w.Body.String(), `<html lang="en">`) {
			t.Error("the link does not lead to English")
		}

		cookie := w.Header().Get("Set-Cookie")
		l.want("the cookie", cookie,
			"lang=en; Path=/; Max-Age=31536000; HttpOnly; Secure; SameSite=Lax")
		again := l.web("GET", page, "", "Accept-Language", "id", "Cookie", "lang=en")
		if !strings.Contains(again.Body.String(), `<html lang="en">`) {
			t.Error("the language is forgotten")
		}

		for _, unknown := range []string{"fr", "EN", "../en", ""} {
			w := l.web("GET", page+"?lang="+unknown, "", "Accept-Language", "id", "Cookie", "lang="+unknown)
			if !strings.Contains(w.Body.String(), `<html lang="id">`) {
				t.Errorf("the language %q is taken", unknown)
			}
			l.want("a cookie for "+unknown, w.Header().Get("Set-Cookie"), "")
		}
	})
}

// TestContactOfAStore sets the contact that the pay page links to.
func TestContactOfAStore(t *testing.T) {
	t.Parallel()
	for contact, link := range map[string]string{
		"0812 3456 7890":     "https://wa.me/6281234567890?text=Halo%20%26",
		"+62 812-3456-7890":  "https://wa.me/6281234567890?text=Halo%20%26",
		"+65 6123 4567":      "https://wa.me/6561234567?text=Halo%20%26",
		"toko@kopikita.id":   "mailto:toko@kopikita.id?body=Halo%20%26",
		"+k&opi@kopikita.id": "mailto:%2Bk%26opi@kopikita.id?body=Halo%20%26",
	} {
		if !isContact(contact) {
			t.Errorf("%q is refused", contact)
		}
		if got := writeTo(contact, "Halo &"); got != link {
			t.Errorf("%q leads to %s, want %s", contact, got, link)
		}
	}
	for _, contact := range []string{"toko", "12", "@", "a@b", "8123456789", "0812 3456 7890 (WA)", "javascript:1@x.id"} {
		if isContact(contact) {
			t.Errorf("%q is taken", contact)
		}
	}
}

// unique is the unique code of an order, whose amount has to include it.
func (l *payLab) unique(order string) int {
	l.t.Helper()
	code, err := strconv.Atoi(l.shown(order, "unique_code"))
	l.must(err)
	l.want("amount", l.shown(order, "amount"), strconv.Itoa(170_000+code))
	return code
}

// TestUniqueCodes orders by a method whose orders get a code each.
func TestUniqueCodes(t *testing.T) {
	t.Parallel()
	inPayLab(t, "the orders that wait have different codes", func(t *testing.T, l *payLab) {
		l.exec(t, "UPDATE products SET stock = 1000")
		seen := map[int]bool{}
		for range 40 {
			code := l.unique(l.newOrder("bank_unik"))
			if code < 1 || code > 999 || seen[code] {
				t.Errorf("code %d, after %v", code, seen)
			}
			seen[code] = true
		}
		l.want("without codes", l.unique(l.newOrder("bank_transfer")), 0)
	})

	inPayLab(t, "an order that changes its method back gets its code back", func(t *testing.T, l *payLab) {
		order := l.newOrder("bank_unik")
		code := l.unique(order)
		page := "https://shop.test/pay/" + order
		l.see(page, "id", 200, fmt.Sprintf("Rp170.<em>%03d</em>|Kode unik", code), "")

		l.choose(order, "bank_transfer")
		l.want("without a code", l.unique(order), 0)
		l.see(page, "id", 200, "ditambah kode unik", "Kode unik")
		l.choose(order, "bank_unik")
		l.want("with it again", l.unique(order), code)
	})

	inPayLab(t, "a code is given again when its order is over, or when all are taken", func(t *testing.T, l *payLab) {
		first := l.newOrder("bank_unik")
		time.Sleep(time.Second)
		second := l.newOrder("bank_unik")
		l.exec(t, `
			WITH RECURSIVE codes (code) AS (VALUES (1) UNION ALL SELECT code + 1 FROM codes WHERE code < 999)
			INSERT OR IGNORE INTO unique_codes (store_id, code, order_row, given_at)
			SELECT ?, code, (SELECT row FROM orders WHERE id = ?), ?
			FROM   codes`, l.storeID, first, timeOf(time.Now())+1)

		l.act(second, OwnerApproves)
		code := l.unique(second)
		third := l.newOrder("bank_unik")
		l.want("the code of the order that was paid", l.unique(third), code)
		l.want("the code that was given first", l.unique(l.newOrder("bank_unik")), l.unique(first))
	})
}
