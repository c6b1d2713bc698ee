package main

// This file has the QRIS codes on pages. An owner gives the text of the shop's own code, sees whose it is, and confirms
// it. From then on the pay page of each order has a code with the order's amount.

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"strings"
)

// ownCode is the text of a shop's own QRIS code, and what it says.
type ownCode struct {
	Text string
	QRISMerchant
	Trial template.URL // a picture of the code with an amount, to scan without paying
}

// ownCodeOf reads the text of a code; nil = it is none.
func ownCodeOf(text string) *ownCode {
	q, problem := readQRIS(text)
	if problem != "" {
		return nil
	}
	return &ownCode{text, q.merchant(), qrInPage(q.withAmount(qrisTrial))}
}

// readCodes reads what the form of a QRIS method shows of the shop's own code.
func (v *methodPage) readCodes(m Method) {
	v.Code = ownCodeOf(m.QRIS)
	v.Proposed = ownCodeOf(v.URL.Query().Get("qris"))
	v.ReadScript = template.JS(readScript)
	v.w.Header().Set("Content-Security-Policy", securityWith(copyScript, readScript))
}

// proposeCode leads to the method's form, which asks whether a code that was read is the shop's, if it is one.
func (p *page) proposeCode(text string) {
	p.next = methodPath(p.Query("code"))
	if _, problem := readQRIS(text); problem == "" {
		p.next += "&qris=" + url.QueryEscape(text)
	}
}

// readCode takes the text of a shop's own code, which is used once it was confirmed.
func (s *server) readCode(p *page) error {
	text := strings.TrimSpace(p.PostFormValue("qris"))
	if _, problem := readQRIS(text); problem != "" {
		return refuse(ValidationFailed).add("qris", problem)
	}
	p.proposeCode(text)
	return nil
}

// useCode lets each order of a method have a code with its amount; an empty text ends that.
func (s *server) useCode(p *page) error {
	text := p.PostFormValue("qris")
	if _, problem := readQRIS(text); text != "" && problem != "" {
		return refuse(ValidationFailed).add("qris", problem)
	}
	p.next = methodPath(p.Query("code"))
	return s.changeCode(p, Method{QRIS: text, Given: map[string]bool{"qris": true}})
}

// changeCode changes what is given of the code of the form's method.
func (s *server) changeCode(p *page, m Method) error {
	m.Code = p.Query("code")
	if there, err := s.db.Method(p.Context(), p.Store.ID, m.Code); err != nil || there.Removed || there.Kind != QRIS {
		return cmp.Or(err, ErrNotFound)
	}
	return s.importOne(p, Catalog{PaymentMethods: []Method{m}})
}

// drawCode answers with the picture of the code by which an order can be paid. Browsers do not keep it: it is the
// method's as it is now.
func (s *server) drawCode(p *page) error {
	text := p.order.qris(s.db.now())
	if text == "" {
		return ErrNotFound
	}
	return s.writeCode(p, "pay", text)
}

// writeCode answers with the picture of a code. It is drawn in one of the store's places of a kind.
func (s *server) writeCode(p *page, kind, text string) error {
	leave, err := s.auth.busyPlace(p.Context(), p.Store.ID, kind)
	if err != nil {
		return err
	}
	picture := qrPicture(text)
	leave()
	p.w.Header().Set("Content-Type", "image/png")
	p.w.WriteHeader(http.StatusOK)
	p.w.Write(picture)
	return nil
}
