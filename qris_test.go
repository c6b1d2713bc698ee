package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ownCodeText is the code of a shop, and codeOf85347 that of an order of Rp85.347, as another program made it.
const (
	ownCodeText = "00020101021126610014COM.GO-JEK.WWW01189360091400000000010210G0000000010303UMI" +
		"51440014ID.CO.QRIS.WWW0215ID10200000000010303UMI5204581453033605802ID" +
		"5909KOPI KITA6007BANDUNG61054011162070703A0163043EC0"
	codeOf85347 = "00020101021226610014COM.GO-JEK.WWW01189360091400000000010210G0000000010303UMI" +
		"51440014ID.CO.QRIS.WWW0215ID10200000000010303UMI5204581453033605405853475802ID" +
		"5909KOPI KITA6007BANDUNG61054011162070703A016304D815"
)

// codeMethod is an entry of a catalog whose orders have codes.
func codeMethod(text string) fields {
	return fields{"code": "kode-toko", "name": "QRIS toko", "provider": "manual", "kind": "qris", "qris": text}
}

func putMethods(w *world, t *testing.T, methods ...any) response {
	return w.putCatalog(fields{"payment_methods": methods})
}

// TestQRISTexts lets the rules of a code's text decide.
func TestQRISTexts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, c := range readCases(t, "testdata/qris.txt") {
			answer := putMethods(w, t, codeMethod(c.column(0)))
			said := ""
			for _, wrong := range answer.Error.Details {
				said += wrong.Field + " " + wrong.Message
			}
			if c.heading != "The code of a shop" {
				if answer.Status != 422 || !strings.HasPrefix(said, "payment_methods[0].qris "+c.heading) {
					t.Errorf("%s (%s): %d %s", c.name, c.column(1), answer.Status, said)
				}
				continue
			}
			answer.want(t, 200, "")
			shown := ""
			for _, m := range w.get(t, "/v1/payment-methods").list("payment_methods") {
				if merchant, ok := m["qris_merchant"].(fields); ok {
					shown = textOf(merchant, "name") + ", " + textOf(merchant, "city")
				}
			}
			if shown != c.column(1) {
				t.Errorf("%s: shows %q, want %q", c.name, shown, c.column(1))
			}
		}
		other := fields{"code": "lain", "name": "Lain", "provider": "midtrans", "qris": ownCodeText}
		putMethods(w, t, other).want(t, 422, "VALIDATION_FAILED")
	})
}

// TestPictureOfACode is the picture of an order's code, as its buyer scans it.
func TestPictureOfACode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		putMethods(w, t, codeMethod(ownCodeText)).want(t, 200, "")
		p := newPlayer(t, w)
		p.play("order kopi 1 kode-toko as A")
		code := w.get(t, "/v1/orders/"+p.order).at("payment_session.qr_string")
		if _, picture := p.code("GET", "/pay/"+p.order+"/qris.png", nil); picture != string(qrPicture(code)) {
			t.Error("the picture shows another code")
		}
	})
}

func decoded(t *testing.T, file []byte) image.Image {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(file))
	must(t, err)
	return picture
}

// modulesOf reads a picture of a code: eight pixels a module, and four modules around it.
func modulesOf(picture image.Image) (rows [][]byte) {
	side := picture.Bounds().Dx()/8 - 8
	for y := range side {
		row := bytes.Repeat([]byte{'0'}, side)
		for x := range row {
			if r, _, _, _ := picture.At((x+4)*8, (y+4)*8).RGBA(); r == 0 {
				row[x] = '1'
			}
		}
		rows = append(rows, row)
	}
	return rows
}

var codesFolder = flag.String("codes", "", "a folder into which TestCodes writes all codes, for readers of other makes")

// TestCodes draws the longest text of each version and the shortest of the next. Readers of other makes have read all
// of them (see .ci/codes), with these modules.
func TestCodes(t *testing.T) {
	t.Parallel()
	textOf := func(length int) string {
		text := make([]byte, length)
		for i := range text {
			text[i] = byte(' ' + (7*i+13*length)%95)
		}
		return string(text)
	}
	drawn := sha256.New()
	for i, most := range []int{14, 26, 42, 62, 84, 106, 122, 152, 180, 213, 251, 287, 331, 362, 412, 450, 504, 560} {
		for _, length := range []int{min(most+1, 560), most} {
			modules := modulesOf(decoded(t, qrPicture(textOf(length))))
			drawn.Write(bytes.Join(modules, []byte{10}))
			if length == most && len(modules) != 17+4*(i+1) {
				t.Errorf("%d characters: a code with %d modules a side", length, len(modules))
			}
		}
	}
	if got := fmt.Sprintf("%x", drawn.Sum(nil)[:8]); got != "9a02d27e5f5eee0b" {
		t.Errorf("the codes have the hash %s: let .ci/codes read them", got)
	}

	if *codesFolder == "" {
		return
	}
	for length := 1; length <= 560; length++ {
		writeCode(t, fmt.Sprintf("length-%d", length), textOf(length))
	}
	for shop := range 20 { // Their names and numbers have different lengths.
		name := strings.Repeat("Kopi & Teh ", 3)[:5+shop]
		for amount := 1 + shop; amount <= 10_000_000; amount = amount*5 + 7 {
			text := fmt.Sprintf("00020101021226400014COM.GO-JEK.WWW0118%018d51440014ID.CO.QRIS.WWW0215ID%013d0303UMI"+
				"5204581453033605407%07d5802ID59%02d%s6007BANDUNG63041A2B",
				shop*7919, shop*104729, amount, len(name), name)
			writeCode(t, fmt.Sprintf("shop-%d-%d", shop, amount), text)
		}
	}
}

// writeCode writes a code and its text into the folder.
func writeCode(t *testing.T, name, text string) {
	name = filepath.Join(*codesFolder, name)
	must(t, os.WriteFile(name+".txt", []byte(text), 0o644))
	must(t, os.WriteFile(name+".png", qrPicture(text), 0o644))
}
