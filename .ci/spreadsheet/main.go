// Spreadsheet opens the CSV of the orders with LibreOffice, as people of three countries do. Each cell must still say
// what it said: amounts are numbers, times are times, and all else is text.
//
//	go test -run '^TestExport$' . -export orders.csv && go run .ci/spreadsheet/main.go soffice orders.csv
package main

import (
	"cmp"
	"encoding/csv"
	"encoding/xml"
	"html"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	log.SetFlags(0)
	text, err := os.ReadFile(os.Args[2])
	must(err)
	reader := csv.NewReader(strings.NewReader(strings.TrimPrefix(string(text), "\ufeff")))
	reader.Comma = ';'
	rows, err := reader.ReadAll()
	must(err)
	wrong := 0
	for _, locale := range []string{"1033", "1057", "1031"} {
		wrong += open(os.Args[1], string(text), rows, locale)
	}
	if wrong > 0 {
		os.Exit(1)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// open opens the CSV as people of a locale (by Microsoft's number) do, saves it as Excel's format, and returns how many
// cells have become something else.
func open(command, text string, rows [][]string, locale string) (wrong int) {
	folder, err := os.MkdirTemp("", "spreadsheet")
	must(err)
	defer os.RemoveAll(folder)
	file := func(ending string) string { return filepath.Join(folder, "orders."+ending) }
	must(os.WriteFile(file("csv"), []byte(text), 0o600))
	for _, convert := range [][]string{
		{"--infilter=CSV:59,34,76,1,," + locale, "--convert-to", "xlsx", "--outdir", folder, file("csv")},
		{"--convert-to", "fods", "--outdir", folder, file("xlsx")},
	} {
		profile := "-env:UserInstallation=file://" + filepath.Join(folder, "profile")
		out, err := exec.Command(command, append([]string{profile, "--headless"}, convert...)...).CombinedOutput()
		if err != nil {
			log.Fatalf("%v: %s", err, out)
		}
	}

	var sheet struct {
		Rows []struct {
			Cells []struct {
				Repeated int    `xml:"number-columns-repeated,attr"`
				Type     string `xml:"value-type,attr"`
				Value    string `xml:"value,attr"`
				Date     string `xml:"date-value,attr"`
				Lines    []struct {
					XML string `xml:",innerxml"`
				} `xml:"p"`
			} `xml:"table-cell"`
		} `xml:"body>spreadsheet>table>table-row"`
	}
	saved, err := os.ReadFile(file("fods"))
	must(err)
	must(xml.Unmarshal(saved, &sheet))
	tags := regexp.MustCompile("<[^>]*>")
	kinds := map[string]string{"Dibuat": "date", "Dikirim": "date", "Lunas": "date"}
	amounts := "Jumlah|Harga satuan|Harga barang|Subtotal|Ongkir|Diskon|Biaya|Kode unik|Total"
	for _, name := range strings.Split(amounts, "|") {
		kinds[name] = "float"
	}
	for i, row := range rows {
		var cells []string // each with its kind
		for _, c := range sheet.Rows[i].Cells {
			value := cmp.Or(c.Value, strings.Replace(c.Date, "T", " ", 1))
			for k, line := range c.Lines {
				if c.Type == "string" {
					value += strings.Repeat("\n", min(k, 1)) + html.UnescapeString(tags.ReplaceAllString(line.XML, ""))
				}
			}
			for range max(1, c.Repeated) {
				cells = append(cells, strings.TrimPrefix(c.Type+" "+value, " "))
			}
		}
		for j, cell := range row {
			want := cell
			if cell != "" {
				want = cmp.Or(kinds[rows[0][j]], "string") + " " + cell
			}
			if i == 0 {
				want = "string " + cell
			}
			if cells[j] != want {
				wrong++
				log.Printf("in the locale %s, %s became %q, want %q", locale, rows[0][j], cells[j], want)
			}
		}
	}
	return wrong
}
