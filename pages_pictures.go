package main

// This file takes the pictures that owners upload, and serves them. A picture is turned as its metadata says, put on
// white and kept without what a photo tells about where it was taken, in two sizes: one for a page of its own, where a
// code can still be scanned, and a small one for lists. While a picture is sent, all its readers share one copy in
// memory, and there is a bound on how many read at once.

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/color"
	"image/draw"
	_ "image/gif" // a format of uploaded pictures, as PNG is
	"image/jpeg"
	_ "image/png"
	"net/http"
	"strings"
	"sync"
)

const (
	mostPixels = 16_000_000 // of a picture that is uploaded
	largeSide  = 800        // pixels, of the longer side of one that is kept
	smallSide  = 240        // of its copy for lists
)

// savePicture keeps the picture of a QRIS code.
func (s *server) savePicture(p *page) error {
	wrong := refuse(ValidationFailed).add("picture",
		"must be a JPEG, PNG or GIF of at most 8 MB and 16 megapixels: try a screenshot of it")
	file, _, err := p.FormFile("picture")
	if err != nil {
		return wrong
	}
	defer file.Close()
	size, _, err := image.DecodeConfig(file)
	pixels := size.Width * size.Height
	if size.ColorModel == color.CMYKModel { // A picture for print takes four times the memory.
		pixels *= 4
	}
	if err != nil || pixels > mostPixels {
		return wrong
	}

	leave, err := s.auth.place(p.Context(), "", "picture")
	if err != nil {
		return err
	}
	defer leave()
	head := make([]byte, 64<<10) // A JPEG's metadata comes first.
	length, _ := file.ReadAt(head, 0)
	file.Seek(0, 0)
	decoded, _, err := image.Decode(file)
	if err != nil {
		return wrong
	}

	large := turned(scaled(decoded, largeSide), orientation(head[:length]))
	p.proposeCode(p.FormValue("qris")) // The browser may have read it.
	picture := Picture{encoded(large), encoded(scaled(large, smallSide))}
	return s.db.SetPicture(p.Context(), p.Store.ID, p.Query("code"), picture)
}

func encoded(picture image.Image) []byte {
	var text bytes.Buffer
	jpeg.Encode(&text, picture, &jpeg.Options{Quality: 90}) // It fails only for sides that a JPEG cannot have.
	return text.Bytes()
}

// scaled puts a picture on white, and makes it smaller if a side is longer than most. Each pixel is the mean of those
// that it stands for.
func scaled(from image.Image, most int) *image.RGBA {
	whole := image.NewRGBA(from.Bounds().Sub(from.Bounds().Min))
	draw.Draw(whole, whole.Rect, image.White, image.Point{}, draw.Src)
	draw.Draw(whole, whole.Rect, from, from.Bounds().Min, draw.Over)
	width, height := whole.Rect.Max.X, whole.Rect.Max.Y
	longest := max(width, height)
	if longest <= most {
		return whole
	}

	to := image.NewRGBA(image.Rect(0, 0, max(1, width*most/longest), max(1, height*most/longest)))
	for y := range to.Rect.Max.Y {
		for x := range to.Rect.Max.X {
			part := image.Rect(x*width/to.Rect.Max.X, y*height/to.Rect.Max.Y,
				(x+1)*width/to.Rect.Max.X, (y+1)*height/to.Rect.Max.Y)
			to.SetRGBA(x, y, mean(whole, part))
		}
	}
	return to
}

// mean returns the mean colour of a part of a picture that is not transparent.
func mean(of *image.RGBA, part image.Rectangle) color.RGBA {
	var red, green, blue int
	for y := part.Min.Y; y < part.Max.Y; y++ {
		for x := part.Min.X; x < part.Max.X; x++ {
			pixel := of.Pix[of.PixOffset(x, y):]
			red += int(pixel[0])
			green += int(pixel[1])
			blue += int(pixel[2])
		}
	}
	n := part.Dx() * part.Dy()
	return color.RGBA{uint8(red / n), uint8(green / n), uint8(blue / n), 255}
}

// orientation returns how a JPEG says that its picture is to be turned (Exif 2.32, tag 274), 1 if it says nothing.
func orientation(head []byte) int {
	_, exif, found := bytes.Cut(head, []byte("Exif\x00\x00"))
	if !found || len(exif) < 10 {
		return 1
	}
	var order binary.ByteOrder = binary.LittleEndian
	if exif[0] == 'M' {
		order = binary.BigEndian
	}

	at := int(order.Uint32(exif[4:]))
	if at < 8 || at+2 > len(exif) {
		return 1
	}
	for range order.Uint16(exif[at:]) { // entries of 12 bytes
		entry := exif[min(at+2, len(exif)):]
		at += 12
		if len(entry) < 12 {
			return 1
		}
		if order.Uint16(entry) == 274 {
			return int(order.Uint16(entry[8:]))
		}
	}
	return 1
}

// turned returns a picture as its orientation says.
func turned(from *image.RGBA, orientation int) *image.RGBA {
	onSide := orientation >= 5 && orientation <= 8
	size := from.Rect.Max
	if onSide {
		size = image.Pt(size.Y, size.X)
	}

	to := image.NewRGBA(image.Rectangle{Max: size})
	for y := range from.Rect.Max.Y {
		for x := range from.Rect.Max.X {
			at := image.Pt(x, y)
			if onSide {
				at = image.Pt(y, x)
			}
			switch orientation {
			case 2, 3, 6, 7:
				at.X = size.X - 1 - at.X
			}
			switch orientation {
			case 3, 4, 7, 8:
				at.Y = size.Y - 1 - at.Y
			}
			to.SetRGBA(at.X, at.Y, from.RGBAAt(x, y))
		}
	}
	return to
}

const (
	mostReaders        = 256 // of pictures, at once
	mostReadersAddress = 64  // of them at one address
)

// pictures are those that are being sent.
type pictures struct {
	mu        sync.Mutex
	readers   int
	addresses map[string]int          // their readers
	open      map[string]*openPicture // by hash
}

func newPictures() *pictures {
	return &pictures{addresses: map[string]int{}, open: map[string]*openPicture{}}
}

// openPicture is a picture with its readers. The first of them reads it from the database.
type openPicture struct {
	readers int
	read    func() (Picture, error)
}

// take returns a picture for a reader at an address, who calls leave when they have it.
func (s *pictures) take(address, hash string, read func() (Picture, error)) (picture Picture, leave func(), err error) {
	s.mu.Lock()
	if s.readers >= mostReaders || s.addresses[address] >= mostReadersAddress {
		s.mu.Unlock()
		return picture, nil, &Refusal{Reason: RateLimited, Wait: 2}
	}
	if s.open[hash] == nil {
		s.open[hash] = &openPicture{read: sync.OnceValues(read)}
	}
	p := s.open[hash]
	p.readers++
	s.readers++
	s.addresses[address]++
	s.mu.Unlock()

	leave = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.readers--
		if s.addresses[address]--; s.addresses[address] == 0 {
			delete(s.addresses, address)
		}
		if p.readers--; p.readers == 0 {
			delete(s.open, hash)
		}
	}
	picture, err = p.read()
	return picture, leave, err
}

// getPicture serves a picture, large or small, to anybody.
func (s *server) getPicture(w http.ResponseWriter, r *http.Request) {
	hash := r.PathValue("hash")
	address := network(s.auth.client(r), 64)
	read := func() (Picture, error) { return s.db.Picture(context.WithoutCancel(r.Context()), hash) }
	picture, leave, err := s.pictures.take(address, hash, read)
	if leave != nil {
		defer leave()
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/small") {
		writeForGood(w, "image/jpeg", picture.Small)
		return
	}
	writeForGood(w, "image/jpeg", picture.Large)
}
