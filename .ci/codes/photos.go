// Photos takes bad photos of the codes of shops:
//
//	go run .ci/codes/photos.go FOLDER
package main

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	names, err := filepath.Glob(filepath.Join(os.Args[1], "shop-*.png"))
	must(err)
	for _, name := range names {
		file, err := os.ReadFile(name)
		must(err)
		picture, err := png.Decode(bytes.NewReader(file))
		must(err)
		var photo bytes.Buffer
		must(jpeg.Encode(&photo, photoOf(picture), &jpeg.Options{Quality: 60}))
		must(os.WriteFile(strings.TrimSuffix(name, ".png")+".jpg", photo.Bytes(), 0o644))
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// photoOf returns a picture as it looks when it was taken askew and out of focus.
func photoOf(from image.Image) image.Image {
	side := from.Bounds().Dx()
	flat := image.NewGray(from.Bounds())
	draw.Draw(flat, flat.Rect, from, image.Point{}, draw.Src)
	to := image.NewGray(image.Rect(0, 0, side*5/4, side*5/4))
	sin, cos := math.Sincos(0.14)
	middle := float64(to.Rect.Dx()) / 2
	for y := range to.Rect.Dy() {
		for x := range to.Rect.Dx() {
			sum := 0
			for shift := range 9 { // the mean of what is around
				dx := float64(x) - middle + float64(shift%3-1)*1.5
				dy := float64(y) - middle + float64(shift/3-1)*1.5
				lean := 1 + 0.0001*dy
				at := image.Pt(int(lean*(cos*dx-sin*dy))+side/2, int(lean*(sin*dx+cos*dy))+side/2)
				if at.In(flat.Rect) {
					sum += int(flat.GrayAt(at.X, at.Y).Y)
				} else {
					sum += 255
				}
			}
			to.SetGray(x, y, color.Gray{uint8(40 + sum/9*2/3)})
		}
	}
	return to
}
