package main

// This file takes pictures that owners upload, and makes them smaller.

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	_ "image/gif" // a format of uploaded pictures, as PNG is
	"image/jpeg"
	_ "image/png"
	"net/url"
)

const (
	mostPixels = 16_000_000 // of a picture that is uploaded
	mostSide   = 1600       // pixels, of one that is kept
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
	file.Seek(0, 0)
	decoded, _, err := image.Decode(file)
	if err != nil {
		return wrong
	}

	kept, err := smallJPEG(decoded)
	if err != nil { // A side is longer than a JPEG's can be.
		return wrong
	}

	code := p.Query("code")
	p.next = "/dashboard/payments/method?code=" + url.QueryEscape(code)
	return s.db.SetPicture(p.Context(), p.Store.ID, code, kept)
}

// smallJPEG puts a picture on white, halves it until it is small, and encodes it without what a photo tells
// about where it was taken.
func smallJPEG(from image.Image) ([]byte, error) {
	to := image.NewRGBA(from.Bounds().Sub(from.Bounds().Min))
	draw.Draw(to, to.Rect, image.White, image.Point{}, draw.Src)
	draw.Draw(to, to.Rect, from, from.Bounds().Min, draw.Over)
	for size := to.Rect.Max; max(size.X, size.Y) >= mostSide && min(size.X, size.Y) > 1; size = to.Rect.Max {
		to = halved(to)
	}

	var text bytes.Buffer
	err := jpeg.Encode(&text, to, &jpeg.Options{Quality: 90})
	return text.Bytes(), err
}

// halved returns a picture of half the width and height. Each of its pixels is the mean of four.
func halved(from *image.RGBA) *image.RGBA {
	to := image.NewRGBA(image.Rect(0, 0, from.Rect.Max.X/2, from.Rect.Max.Y/2))
	for i := range to.Pix {
		y := i / to.Stride
		x := i % to.Stride
		above := from.Pix[2*y*from.Stride+x/4*8+x%4:]
		below := above[from.Stride:]
		to.Pix[i] = uint8((int(above[0]) + int(above[4]) + int(below[0]) + int(below[4])) / 4)
	}
	return to
}
