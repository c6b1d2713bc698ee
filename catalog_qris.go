package main

// This file is about the text of a QRIS code: that of a shop's own code, and that of an order's code, which has the
// amount in it. The format is EMVCo's for codes that merchants show. It is a sequence of fields, each with a number of
// two digits, a length of two digits, and that many characters.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	mostQRISAmount = 10_000_000 // Banks refuse more in one payment.
	qrisTrial      = 1000       // the amount of the code that an owner scans as a trial
)

// qris is the text of a shop's own code, in its fields.
type qris []qrisField

type qrisField struct{ id, value string }

// The fields that a code is judged by.
const (
	qrisFormat   = "00"
	qrisUse      = "01" // 11 is for many payments, 12 for one
	qrisCurrency = "53"
	qrisAmount   = "54" // 55 to 57 are a tip
	qrisCountry  = "58"
	qrisName     = "59" // of the merchant
	qrisCity     = "60"
	qrisCheck    = "63" // of all that stands before its value
)

// QRISMerchant is what a bank's app shows of a code.
type QRISMerchant struct {
	Name string `json:"name"`
	City string `json:"city"`
}

// readQRIS reads the text of a shop's own code, or says what is wrong with it. An order's code differs from it only by
// the amount, so a text with an amount is refused.
func readQRIS(text string) (q qris, wrong string) {
	q, isWhole := fieldsOfQRIS(text)
	last := len(q) - 1
	if !isWhole || last < 0 || q[0] != (qrisField{qrisFormat, "01"}) || q[last].id != qrisCheck ||
		!strings.EqualFold(q[last].value, checkQRIS(text[:len(text)-4])) {
		return nil, "is not the whole text of a QRIS code: copy it from 000201 to its last four characters"
	}

	use := q.value(qrisUse)
	hasAmount := slices.ContainsFunc(q, func(f qrisField) bool { return f.id >= qrisAmount && f.id <= "57" })
	hasAccount := slices.ContainsFunc(q, func(f qrisField) bool { return f.id >= "26" && f.id <= "51" })
	switch {
	case hasAmount, use != "" && use != "11":
		return nil, "is the code of one payment: take the one that is printed for your shop"
	case !hasAccount, q.value(qrisCurrency) != "360", q.value(qrisCountry) != "ID", q.value(qrisName) == "",
		q.value(qrisCity) == "":
		return nil, "is not the code of a shop in Indonesia"
	}
	return q, ""
}

// isQRISText reports whether a text is ASCII, and short enough for a code with an amount.
var isQRISText = matcher(`^[ -~]{1,490}$`)

// fieldsOfQRIS divides a text into its fields. isWhole is false if it cannot be divided, or repeats a field.
func fieldsOfQRIS(text string) (q qris, isWhole bool) {
	if !isQRISText(text) {
		return nil, false
	}
	for text != "" {
		if len(text) < 4 || !isQRISHead(text[:4]) {
			return nil, false
		}
		id := text[:2]
		length, _ := strconv.Atoi(text[2:4])
		isTwice := slices.ContainsFunc(q, func(f qrisField) bool { return f.id == id })
		if len(text) < 4+length || isTwice {
			return nil, false
		}
		q = append(q, qrisField{id, text[4 : 4+length]})
		text = text[4+length:]
	}
	return q, true
}

// isQRISHead reports whether a text begins a field: its number and its length.
var isQRISHead = matcher(`^[0-9]{4}$`)

// value returns the value of a field, or "" if there is none.
func (q qris) value(id string) string {
	for _, f := range q {
		if f.id == id {
			return f.value
		}
	}
	return ""
}

func (q qris) merchant() QRISMerchant { return QRISMerchant{q.value(qrisName), q.value(qrisCity)} }

// merchant returns what the code of a method says; nil = its text is unknown.
func (m Method) merchant() *QRISMerchant {
	q, problem := readQRIS(m.QRIS)
	if problem != "" {
		return nil
	}
	return new(q.merchant())
}

// withAmount returns the text of the code for one payment of this amount.
func (q qris) withAmount(amount int64) string {
	var text strings.Builder
	write := func(id, value string) { fmt.Fprintf(&text, "%s%02d%s", id, len(value), value) }
	for _, f := range q {
		switch f.id {
		case qrisFormat:
			write(f.id, f.value)
			write(qrisUse, "12")
		case qrisUse: // It was written.
		case qrisCountry:
			write(qrisAmount, fmt.Sprint(amount))
			write(f.id, f.value)
		case qrisCheck:
			text.WriteString(qrisCheck + "04")
		default:
			write(f.id, f.value)
		}
	}
	return text.String() + checkQRIS(text.String())
}

// checkQRIS is CRC-16/CCITT-FALSE, in four hexadecimal digits.
func checkQRIS(text string) string {
	sum := uint16(0xFFFF)
	for _, c := range []byte(text) {
		sum ^= uint16(c) << 8
		for range 8 {
			carry := sum >> 15
			sum = sum<<1 ^ carry*0x1021
		}
	}
	return fmt.Sprintf("%04X", sum)
}
