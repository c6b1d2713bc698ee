//go:build cgo

package main

import (
	"html"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ownerInLab is the owner of a payLab's store, who is signed in.
type ownerInLab struct {
	*payLab
	cookie string
}

func (l *payLab) signIn(storeID string) ownerInLab {
	l.t.Helper()
	token, hash := newToken("")
	l.must(l.db.AddSignIn(l.t.Context(), storeID, hash, place{}))
	return ownerInLab{l, l.signInCookie() + "=" + token}
}

// page reads a page of the dashboard, as a reader of words: without marks of HTML, and in one line.
func (o ownerInLab) page(lang, path string) string {
	o.t.Helper()
	w := o.web("GET", "https://shop.test"+path, "", "Cookie", o.cookie, "Accept-Language", lang)
	o.want("GET "+path, w.Code, 200)
	return strings.Join(strings.Fields(readable(w.Body.String())), " ")
}

// press posts a form of the dashboard, and returns where the answer leads to.
func (o ownerInLab) press(path, form string) string {
	o.t.Helper()
	w := o.web("POST", "https://shop.test"+path, form,
		"Cookie", o.cookie,
		"Content-Type", "application/x-www-form-urlencoded",
		"Sec-Fetch-Site", "same-origin")
	o.want("POST "+path, w.Code, 303)
	return w.Header().Get("Location")
}

// sees checks that a page has some texts.
func (o ownerInLab) sees(lang, path string, texts ...string) {
	o.t.Helper()
	page := o.page(lang, path)
	for _, text := range texts {
		if !strings.Contains(page, text) {
			o.t.Errorf("%s %s lacks %q: %s", lang, path, text, page)
		}
	}
}

// seesNo checks that a page lacks some texts.
func (o ownerInLab) seesNo(lang, path string, texts ...string) {
	o.t.Helper()
	page := o.page(lang, path)
	for _, text := range texts {
		if strings.Contains(page, text) {
			o.t.Errorf("%s %s has %q: %s", lang, path, text, page)
		}
	}
}

// TestOrderPage reads the pages of testdata/order-page.txt.
func TestOrderPage(t *testing.T) {
	t.Parallel()
	for _, section := range readSections(t, "testdata/order-page.txt") {
		inPayLab(t, section.heading, func(t *testing.T, l *payLab) {
			method, steps, _ := strings.Cut(section.heading, " ")
			order := l.newOrder(method)
			if method == "snap" {
				l.play(order, l.mid, "midtrans", steps)
			} else {
				l.play(order, l.xen, "xendit", steps)
			}

			owner := l.signIn(l.storeID)
			for _, c := range section.cases {
				owner.checkCase(order, c)
			}
		})
	}
}

// checkCase looks at a case of testdata/order-page.txt.
func (o ownerInLab) checkCase(order string, c testCase) {
	o.t.Helper()
	which, lacks := strings.CutPrefix(c.column(0), "no ")
	name, lang, _ := strings.Cut(which, " ")

	path := "/dashboard/orders/" + order
	switch name {
	case "list":
		path = "/dashboard"
	case "order":
	default:
		path += "/" + name
	}

	if lacks {
		o.seesNo(lang, path, c.columns[1:]...)
	} else {
		o.sees(lang, path, c.columns[1:]...)
	}
}

// TestApprovalAwaitsTheGateway has the owner approve a challenged payment while the gateway is away.
func TestApprovalAwaitsTheGateway(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get capture/challenge")
		owner := l.signIn(l.storeID)
		path := "/dashboard/orders/" + order
		const form = "status=awaiting_verification"

		l.setFault(down)
		l.want("the approval", owner.press(path+"/approve", form), path+"?done=saved")
		owner.sees("id", path,
			"Pembayaran ini sudah Anda setujui. Pesanan menjadi lunas begitu Midtrans mengonfirmasinya.",
			"Midtrans belum bisa dihubungi; dicoba lagi otomatis",
			"Tolak pembayaran")
		owner.sees("en", path,
			"You have approved this payment. The order becomes paid as soon as Midtrans confirms it.",
			"Midtrans cannot be reached right now; we keep trying")
		owner.seesNo("id", path, "Setujui pembayaran<", "connection refused")
		owner.sees("id", "/dashboard", "sudah Anda setujui, menunggu konfirmasi gateway")

		l.want("another approval", owner.press(path+"/approve", form), path+"?done=changed")

		l.setFault(nil)
		l.play(order, nil, "", "+1m tick")
		l.want("in the end",
			l.outcome(order),
			"paid [1 paid] orderAwaitingVerification, orderPaid, stock 8")
		owner.seesNo("id", path, "sudah Anda setujui.")
	})
}

// TestApprovalThatTheGatewayRefuses has the owner approve a challenged payment that cannot be accepted any more.
func TestApprovalThatTheGatewayRefuses(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get capture/challenge")
		owner := l.signIn(l.storeID)
		path := "/dashboard/orders/" + order

		l.faultOnce("/approve", answering(403, `{"status_code": "403", "status_message": "Too late"}`))
		to := owner.press(path+"/approve", "status=awaiting_verification")
		l.want("the approval", to, path+"?done=not_accepted")
		owner.sees("id", to,
			"Gateway tidak menerima persetujuan Anda",
			"Midtrans menolak: <code>",
			"Too late",
			"Setujui pembayaran")
		owner.sees("en", to, "The gateway did not accept your approval")
	})
}

// TestAskTheGatewayNow presses the button of the order's page.
func TestAskTheGatewayNow(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		owner := l.signIn(l.storeID)
		path := "/dashboard/orders/" + order
		const button = "Cek ke gateway sekarang"

		owner.seesNo("id", path, button)
		missing := owner.web("POST", "https://shop.test"+path+"/check", "", "Cookie", owner.cookie)
		l.want("without a session", missing.Code, 404)

		l.get(order)
		time.Sleep(askedLately)
		owner.sees("id", path, button)
		owner.sees("en", path, "Check with the gateway now")

		l.mid.say(order+"-1", "settlement")
		l.want("the button", owner.press(path+"/check", ""), path+"?done=asked")
		owner.sees("id", path+"?done=asked", "Sudah dicek ke gateway", "Lunas", "Sudah dibayar")
		owner.sees("en", path+"?done=asked", "The gateway was asked", "Paid")

		l.exec(t, "UPDATE payment_sessions SET leased_until = ?", timeOf(time.Now()).Add(leaseTime))
		l.want("while it is asked", owner.press(path+"/check", ""), path+"?done=being_asked")
		owner.sees("id", path+"?done=being_asked", "Pengecekan ke gateway sedang berjalan")
		owner.sees("en", path+"?done=being_asked", "The gateway is already being asked")
		time.Sleep(leaseTime)

		time.Sleep(askedLately)
		l.setFault(down)
		l.want("while it is away", owner.press(path+"/check", ""), path+"?done=no_answer")
		owner.sees("id", path+"?done=no_answer",
			"Gateway tidak memberi jawaban",
			"Midtrans belum bisa dihubungi")

		time.Sleep(askedLately)
		l.setFault(answering(401, `{"status_code": "401", "status_message": "Wrong <key> of Siti Aminah"}`))
		l.want("a refusal", owner.press(path+"/check", ""), path+"?done=no_answer")
		owner.sees("id", path, "Midtrans menolak: <code>", "Wrong <key> of …")
		owner.sees("en", path, "Midtrans refused: <code>")
		owner.sees("id", "/dashboard", "Midtrans menolak: <code>")

		time.Sleep(askedLately)
		l.setFault(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		start := time.Now()
		l.want("while it hangs", owner.press(path+"/check", ""), path+"?done=no_answer")
		l.want("the owner waits", time.Since(start), gatewayTimeout)
	})
}

// TestOrderWhoseGatewayHasNoKey starts a session after the store's key was deleted.
func TestOrderWhoseGatewayHasNoKey(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.exec(t, "DELETE FROM gateways WHERE provider = 'midtrans'")
		l.want("reason", l.get(order).Session.Reason, ProblemRefused)

		owner := l.signIn(l.storeID)
		for _, path := range []string{"/dashboard", "/dashboard/orders/" + order} {
			owner.sees("id", path, "Kunci Midtrans belum tersimpan: simpan di halaman Pembayaran")
			owner.sees("en", path, "No key for Midtrans is stored: save one on the Payments page")
		}
	})
}

// TestSearchForPayments looks for an order by the names that its payments and sessions have.
func TestSearchForPayments(t *testing.T) {
	t.Parallel()
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		order := l.newOrder("snap")
		l.play(order, l.mid, "midtrans", "get deny pending")
		link := l.newOrder("link")
		l.play(link, l.xen, "xendit", "get COMPLETED")

		names := []string{
			order + "-1",
			strings.ToUpper(order) + "-1",
			"tx-" + order + "-1",   // the payment that failed
			"tx-" + order + "-1-2", // the payment after it
			"token-1",              // the gateway's session
		}
		owner := l.signIn(l.storeID)
		for _, text := range names {
			owner.sees("id", "/dashboard?q="+text, `href="/dashboard/orders/`+order)
			owner.seesNo("id", "/dashboard?q="+text, link)
		}

		for _, name := range []string{"gateway_id", "p.transaction_id", "p.request_id"} {
			text := l.read(`
				SELECT `+name+`
				FROM   payment_sessions s
				JOIN   payments p ON p.session_id = s.id
				WHERE  s.order_row = (SELECT row FROM orders WHERE id = ?)`, link)
			l.want("there is a "+name, text != "", true)
			owner.sees("id", "/dashboard?q="+text, `href="/dashboard/orders/`+link)
		}

		owner.sees("id", "/dashboard?q="+order+"-2", "Tidak ditemukan")
		other, _ := l.addShop("teh-kita", "")
		stranger := l.signIn(other)
		for _, text := range names {
			stranger.sees("id", "/dashboard?q="+text, "Tidak ditemukan")
		}
	})
}

// TestBuyersAreShownAsTheyAre has a buyer whose e-mail looks like a link with a further recipient, and whose name turns
// the direction of writing. Such a name is refused today, but may be stored.
func TestBuyersAreShownAsTheyAre(t *testing.T) {
	s := newShop(t, "http://shop.test")
	const name = "siti?cc=evil&x=%41 \u202eHatem"
	o := s.place(t, s.storeID, name, "", 1)
	b := s.owner(t, ownerEmail)

	page := b.get(t, "/dashboard/orders/"+o.ID)
	page.has(t, 200, ">siti?cc=evil&x=%41@example.id</a>")
	hasAll(t, page.body, `href="mailto:siti%3Fcc%3Devil%26x%3D%2541@example.id"`)
	for _, path := range []string{"/dashboard", "/dashboard/orders/" + o.ID, "/dashboard/orders/" + o.ID + "/approve"} {
		hasAll(t, b.get(t, path).body, "<bdi>"+html.EscapeString(name)+"</bdi>")
	}
}

// TestOrderOnPages is about an order with all that a shop can add to one, which a gateway's payment pays.
func TestOrderOnPages(t *testing.T) {
	inPayLab(t, "", func(t *testing.T, l *payLab) {
		o := l.signIn(l.storeID)
		body := with(l.order("kopi", 2), "payment_method", "snap")
		body = with(with(body, "shipping_fee", 12000), "discount", 5000)
		body = with(with(body, "note", "Titip di satpam."), "metadata", object{"channel": "instagram"})
		order := l.orderOf("snap", body)
		l.play(order, l.mid, "midtrans", "get settlement")

		lines := []string{
			`Ongkos kirim</span> <span class="money">Rp12.000<`,
			`Diskon</span> <span class="money">−Rp5.000<`,
			`Biaya layanan</span> <span class="money">Rp2.500<`,
			"Rp179.500",
		}
		o.sees("id", "/pay/"+order, lines...)
		o.seesNo("id", "/pay/"+order, "satpam", "instagram")
		o.sees("id", "/dashboard/orders/"+order, lines...)
		o.sees("id", "/dashboard/orders/"+order,
			`Catatan</dt> <dd class="prose">Titip di satpam.<`,
			`channel</dt> <dd class="prose">instagram<`,
			"Lunas</dt> <dd>1 Jan 2000, 07.00 WIB<")

		w := l.web("GET", "https://shop.test/dashboard/orders.csv", "", "Cookie", o.cookie)
		last := strings.Split(strings.TrimSpace(w.Body.String()), "\n")[1]
		want := "2000-01-01 07:00:03,tx-" + order + "-1,12000,5000,2500"
		if !strings.HasSuffix(last, want) {
			t.Errorf("exported as %s, want %s at the end", last, want)
		}
	})
}
