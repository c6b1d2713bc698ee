package main

// This file takes the pictures that owners upload, and serves them. A picture is turned as its metadata says, put on
// white and kept without what a photo tells about where it was taken, in two sizes: one for a page of its own, where a
// code can still be scanned, and a small one for lists. While a picture is sent, all its readers share one copy in
// memory, and there is a bound on how many read at once.

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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
	mostPixels = 25_000_000 // of a photo that is uploaded
	mostOfHead = 256 << 10  // bytes, in which the metadata of a picture stands
	largeSide  = 800        // pixels, of the longer side of one that is kept
	smallSide  = 240        // of its copy for lists
)

// takePicture keeps the picture that a form has, and returns its path. Without one it returns http.ErrMissingFile.
func (s *server) takePicture(p *page) (path string, err error) {
	file, _, err := p.FormFile("picture")
	if err != nil {
		return "", http.ErrMissingFile
	}
	defer file.Close()
	head := make([]byte, mostOfHead)
	length, _ := file.ReadAt(head, 0)
	head = head[:length]
	size, format, err := image.DecodeConfig(file)
	if err != nil || size.Width*size.Height*weightOf(size, format, head) > mostPixels {
		return "", refusePicture()
	}

	leave, err := s.auth.busyPlace(p.Context(), "", "picture")
	if err != nil {
		return "", err
	}
	defer leave()
	file.Seek(0, 0)
	decoded, _, err := image.Decode(file)
	if err != nil {
		return "", refusePicture()
	}
	picture := pictureOf(turned(scaled(decoded, largeSide), orientation(head)))
	leave()
	return s.db.AddPicture(p.Context(), picture)
}

func refusePicture() error {
	return refuse(ValidationFailed).add("picture",
		"must be a JPEG, PNG or GIF of at most 12 MB and 25 megapixels: try a screenshot of it")
}

// weightOf returns how much more memory a pixel takes, while it is decoded, than one of a photo.
func weightOf(size image.Config, format string, head []byte) int {
	switch {
	case size.ColorModel == color.CMYKModel: // for print
		return 4
	case size.ColorModel == color.NRGBA64Model, size.ColorModel == color.RGBA64Model,
		format == "jpeg" && isProgressive(head):
		return 2
	}
	return 1
}

// isProgressive reports whether a JPEG comes in passes, which are all kept until the last one. It finds the frame's
// marker as image/jpeg does, and believes the worst of a file whose beginning has none.
func isProgressive(head []byte) bool {
	for {
		_, marker, _ := bytes.Cut(head, []byte{0xff})
		switch {
		case len(marker) < 3, marker[0] == 0xc2:
			return true
		case marker[0] == 0xc0, marker[0] == 0xc1:
			return false
		case marker[0] == 0xff, marker[0] == 0:
			head = marker
		case marker[0] >= 0xd0 && marker[0] <= 0xd9: // It has no length.
			head = marker[1:]
		default:
			head = marker[min(1+int(binary.BigEndian.Uint16(marker[1:])), len(marker)):]
		}
	}
}

// pictureOf returns a picture in both sizes.
func pictureOf(large *image.RGBA) Picture {
	return Picture{encoded(large), encoded(scaled(large, smallSide))}
}

// saveCodePicture keeps the picture of a QRIS code, and shows it with a method.
func (s *server) saveCodePicture(p *page) error {
	path, err := s.takePicture(p)
	if errors.Is(err, http.ErrMissingFile) {
		return refusePicture()
	}
	if err != nil {
		return err
	}
	p.proposeCode(p.FormValue("qris")) // The browser may have read it.
	return s.changeCode(p, Method{ImageURL: &path, Given: map[string]bool{"image_url": true}})
}

// readPicture reads the picture that is chosen in the form of a product or bundle into its field image_url, which its
// box empties. A form that is refused for another reason still has the picture.
func (s *server) readPicture(p *page) error {
	path, err := s.takePicture(p)
	switch {
	case err == nil:
		p.PostForm.Set("image_url", p.Store.URL+path)
	case !errors.Is(err, http.ErrMissingFile):
		return err
	case p.PostForm.Has("remove_picture"):
		p.PostForm.Set("image_url", "")
	}
	return nil
}

func encoded(picture image.Image) []byte {
	var text bytes.Buffer
	jpeg.Encode(&text, picture, &jpeg.Options{Quality: 90}) // It fails only for sides that a JPEG cannot have.
	return text.Bytes()
}

// scaled puts a picture on white, and makes it smaller if a side is longer than most. Each pixel is the mean of those
// that it stands for. No second copy of a large picture is made.
func scaled(from image.Image, most int) *image.RGBA {
	size := from.Bounds().Size()
	longest := max(size.X, size.Y)
	if longest <= most {
		return onWhite(from, image.Rectangle{Max: size})
	}

	to := image.NewRGBA(image.Rect(0, 0, max(1, size.X*most/longest), max(1, size.Y*most/longest)))
	for y := range to.Rect.Max.Y {
		top, bottom := y*size.Y/to.Rect.Max.Y, (y+1)*size.Y/to.Rect.Max.Y
		rows := onWhite(from, image.Rect(0, top, size.X, bottom))
		for x := range to.Rect.Max.X {
			part := image.Rect(x*size.X/to.Rect.Max.X, top, (x+1)*size.X/to.Rect.Max.X, bottom)
			to.SetRGBA(x, y, mean(rows, part))
		}
	}
	return to
}

// onWhite copies a part of a picture, which begins at 0, 0.
func onWhite(from image.Image, part image.Rectangle) *image.RGBA {
	to := image.NewRGBA(part)
	draw.Draw(to, part, image.White, image.Point{}, draw.Src)
	draw.Draw(to, part, from, from.Bounds().Min.Add(part.Min), draw.Over)
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

// borrow returns a picture for a reader at an address, who calls leave when they have it.
func (s *pictures) borrow(
	address, hash string, read func() (Picture, error),
) (picture Picture, leave func(), err error) {
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
	picture, leave, err := s.pictures.borrow(address, hash, read)
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
