package main

// This file draws QR codes (ISO/IEC 18004:2015) of texts of up to 560 bytes: in byte mode, with error correction level
// M, in versions 1 to 18. A code is a square of dark and light modules. Some are the same in all codes of a version.
// The others hold the text and its error correction.

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html/template"
	"image"
	"image/color"
	"image/png"
	"math/bits"
	"slices"
	"strings"
)

// qrLevels has, for each version, the number of blocks of codewords, and of error correction codewords in each block
// (table 9).
var qrLevels = []struct{ blocks, correction int }{
	{}, {1, 10}, {1, 16}, {1, 26}, {2, 18}, {2, 24}, {4, 16}, {4, 18}, {4, 22}, {5, 22}, {5, 26}, {5, 30}, {8, 22},
	{9, 22}, {9, 24}, {10, 24}, {10, 28}, {11, 28}, {13, 26},
}

const (
	free        = 0 // not drawn yet
	light, dark = '0', '1'
	qrMargin    = 4 // modules
	qrScale     = 8 // pixels of a module
)

// qrCode is a code while it is drawn, in rows of modules.
type qrCode struct {
	version, side int
	modules       [][]byte
}

// qrPicture returns the PNG of a text's code, with its margin.
func qrPicture(text string) []byte {
	q := drawQR(text)
	side := (q.side + 2*qrMargin) * qrScale
	picture := image.NewPaletted(image.Rect(0, 0, side, side), color.Palette{color.White, color.Black})
	for y := range q.side * qrScale {
		for x := range q.side * qrScale {
			if q.modules[y/qrScale][x/qrScale] == dark {
				picture.SetColorIndex(x+qrMargin*qrScale, y+qrMargin*qrScale, 1)
			}
		}
	}

	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		panic(err) // It cannot: a buffer takes everything.
	}
	return file.Bytes()
}

// qrInPage returns the picture of a text's code as an address that a page may show.
func qrInPage(text string) template.URL {
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(qrPicture(text)))
}

// drawQR returns the code of a text, in the smallest version that holds it, with the mask that makes it easiest to
// read.
func drawQR(text string) (best qrCode) {
	version, codewords := allCodewords(text)
	least := -1
	for mask := range 8 {
		q := newQR(version, mask)
		q.place(codewords, mask)
		if penalty := q.penalty(); least < 0 || penalty < least {
			best = q
			least = penalty
		}
	}
	return best
}

// allCodewords returns the codewords of a text with their error correction, in the smallest version that holds them.
func allCodewords(text string) (version int, all []byte) {
	for version = 1; ; version++ {
		modules := 0
		for _, row := range newQR(version, 0).modules {
			modules += bytes.Count(row, []byte{free})
		}

		level := qrLevels[version]
		codewords := qrCodewords(text, version)
		room := modules/8 - level.blocks*level.correction
		if len(codewords) > room {
			continue
		}
		for pad := byte(0xEC); len(codewords) < room; pad ^= 0xEC ^ 0x11 {
			codewords = append(codewords, pad)
		}
		return version, interleaved(codewords, level.blocks, level.correction)
	}
}

// qrCodewords encodes a text: the mode in four bits, its length, its bytes and the end in four bits.
func qrCodewords(text string, version int) []byte {
	digits := 2 // of the length
	if version > 9 {
		digits = 4
	}
	// This cannot fail: these are digits, and even in number.
	codewords, _ := hex.DecodeString(fmt.Sprintf("4%0*x%x0", digits, len(text), text))
	return codewords
}

// interleaved divides codewords into blocks, the shorter ones first. It returns the first codewords of all blocks, then
// the second ones and so on, and then the corrections in the same way.
func interleaved(codewords []byte, blocks, correction int) (all []byte) {
	var data, corrections [][]byte
	for i := range blocks {
		length := len(codewords) / (blocks - i) // of what is left, rounded down
		data = append(data, codewords[:length])
		corrections = append(corrections, correctionOf(codewords[:length], correction))
		codewords = codewords[length:]
	}

	for i := range data[blocks-1] { // The last block is one of the longest.
		for _, block := range data {
			if i < len(block) {
				all = append(all, block[i])
			}
		}
	}
	for i := range correction {
		for _, block := range corrections {
			all = append(all, block[i])
		}
	}
	return all
}

// correctionOf returns the Reed-Solomon codewords of a block: the remainder of its polynomial divided by the one whose
// roots are the first powers of 2.
func correctionOf(block []byte, length int) []byte {
	divisor := make([]byte, length) // without its first coefficient, which is 1
	divisor[length-1] = 1
	root := byte(1)
	for range length {
		for i := range divisor {
			divisor[i] = product(divisor[i], root)
			if i+1 < length {
				divisor[i] ^= divisor[i+1]
			}
		}
		root = product(root, 2)
	}

	remainder := make([]byte, length)
	for _, b := range block {
		factor := b ^ remainder[0]
		remainder = append(remainder[1:], 0)
		for i, c := range divisor {
			remainder[i] ^= product(c, factor)
		}
	}
	return remainder
}

// product multiplies in the field of 256 elements by x⁸ + x⁴ + x³ + x² + 1.
func product(a, b byte) (p byte) {
	for range 8 {
		carry := p >> 7
		p = p<<1 ^ carry*0x1D ^ b>>7*a
		b <<= 1
	}
	return p
}

// newQR draws what is the same in all codes of a version with this mask.
func newQR(version, mask int) qrCode {
	q := qrCode{version: version, side: 17 + 4*version}
	for range q.side {
		q.modules = append(q.modules, make([]byte, q.side))
	}

	for i := range q.side { // the timing patterns
		q.set(i, 6, i%2 == 0)
		q.set(6, i, i%2 == 0)
	}
	q.drawSquares(3, 3, 4, 2, 4) // the finders
	q.drawSquares(q.side-4, 3, 4, 2, 4)
	q.drawSquares(3, q.side-4, 4, 2, 4)

	centres := q.alignments()
	for i, x := range centres {
		for j, y := range centres {
			last := len(centres) - 1
			if i+j > 0 && (i != 0 || j != last) && (i != last || j != 0) { // Those corners have finders.
				q.drawSquares(x, y, 2, 1)
			}
		}
	}

	q.drawFormat(mask)
	if version >= 7 {
		text := version<<12 | remainderOf(version<<12, 0x1F25)
		for i := range 18 {
			isDark := text>>i&1 == 1
			q.set(q.side-11+i%3, i/3, isDark)
			q.set(i/3, q.side-11+i%3, isDark)
		}
	}
	return q
}

// set draws a module, if it is inside the code.
func (q qrCode) set(x, y int, isDark bool) {
	if min(x, y) < 0 || max(x, y) >= q.side {
		return
	}
	q.modules[y][x] = light
	if isDark {
		q.modules[y][x] = dark
	}
}

// drawSquares draws the squares around a centre. lights are the distances of those that are light.
func (q qrCode) drawSquares(x, y, radius int, lights ...int) {
	for dy := -radius; dy <= radius; dy++ {
		for dx := -radius; dx <= radius; dx++ {
			distance := max(dx, -dx, dy, -dy)
			q.set(x+dx, y+dy, !slices.Contains(lights, distance))
		}
	}
}

// alignments returns the rows and columns where the centres of alignment patterns are (annex E).
func (q qrCode) alignments() (centres []int) {
	if q.version == 1 {
		return nil
	}
	parts := q.version/7 + 1
	step := (q.side - 13 + 2*parts - 1) / (2 * parts) * 2 // even, rounded up
	for at := q.side - 7; len(centres) < parts; at -= step {
		centres = append(centres, at)
	}
	centres = append(centres, 6)
	slices.Reverse(centres)
	return centres
}

// drawFormat draws the level and the mask, twice, and the module that is always dark.
func (q qrCode) drawFormat(mask int) {
	format := (mask<<10 | remainderOf(mask<<10, 0x537)) ^ 0x5412 // Level M is 00.
	for i := range 15 {
		isDark := format>>i&1 == 1
		switch {
		case i < 6:
			q.set(8, i, isDark)
		case i < 8:
			q.set(8, i+1, isDark)
		case i == 8:
			q.set(7, 8, isDark)
		default:
			q.set(14-i, 8, isDark)
		}
		if i < 8 {
			q.set(q.side-1-i, 8, isDark)
		} else {
			q.set(8, q.side-15+i, isDark)
		}
	}
	q.set(8, q.side-8, true)
}

// remainderOf divides polynomials over two elements, whose coefficients are bits.
func remainderOf(dividend, divisor int) int {
	for {
		shift := bits.Len(uint(dividend)) - bits.Len(uint(divisor))
		if shift < 0 {
			return dividend
		}
		dividend ^= divisor << shift
	}
}

// place fills the modules that are free with codewords: in columns of two from the right, up and down in turn. The mask
// inverts some of them.
func (q qrCode) place(codewords []byte, mask int) {
	bit := 0
	for right := q.side - 1; right > 0; right -= 2 {
		if right == 6 { // The timing pattern has this column.
			right--
		}
		isUp := (right+1)&2 == 0
		for i := range q.side {
			y := i
			if isUp {
				y = q.side - 1 - i
			}
			for x := right; x > right-2; x-- {
				if q.modules[y][x] != free {
					continue
				}
				isDark := bit < 8*len(codewords) && codewords[bit/8]>>(7-bit%8)&1 == 1
				bit++
				q.set(x, y, isDark != isMasked(mask, x, y))
			}
		}
	}
}

// isMasked reports whether a mask inverts a module (table 10).
func isMasked(mask, x, y int) bool {
	return [...]int{
		(x + y) % 2, y % 2, x % 3, (x + y) % 3, (x/3 + y/2) % 2, x*y%2 + x*y%3, (x*y%2 + x*y%3) % 2,
		((x+y)%2 + x*y%3) % 2,
	}[mask] == 0
}

// penalty returns how hard a code is to read (section 7.8.3). It counts long runs and squares of one colour, patterns
// that look like a finder, and an uneven number of dark and light modules.
func (q qrCode) penalty() (points int) {
	darks := 0
	for y, row := range q.modules {
		var column []byte
		for x := range row {
			column = append(column, q.modules[x][y])
			if x > 0 && y > 0 && string(row[x-1:x+1]) == string(q.modules[y-1][x-1:x+1]) && row[x-1] == row[x] {
				points += 3
			}
		}
		darks += bytes.Count(row, []byte{dark})
		points += linePenalty(row) + linePenalty(column)
	}
	share := 100 * darks / (q.side * q.side)
	return points + max(share-50, 50-share)/5*10
}

// linePenalty is the penalty of a row or a column.
func linePenalty(line []byte) (points int) {
	run := 0
	for i, module := range line {
		if i == 0 || module != line[i-1] {
			run = 0
		}
		run++
		switch {
		case run == 5:
			points += 3
		case run > 5:
			points++
		}
	}
	text := string(line)
	return points + 40*(strings.Count(text, "10111010000")+strings.Count(text, "00001011101"))
}
