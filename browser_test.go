//go:build cgo

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browserTools are the programs that TestBrowser runs, and the folder with the packages that drive the
// browser.
type browserTools struct {
	chromium string
	node     string
	dir      string
}

// installBrowserTools skips the test where there are no such programs.
func installBrowserTools(t *testing.T) browserTools {
	t.Helper()
	paths := map[string]string{}
	for _, program := range []string{"chromium", "node", "npm"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Skipf("skipped: there is no %s here (Debian: apt install chromium nodejs npm)", program)
		}
		paths[program] = path
	}

	dir := t.TempDir()
	manifest, err := os.ReadFile(".ci/browser/package.json")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o600))

	install := exec.CommandContext(t.Context(), paths["npm"],
		"install",
		"--ignore-scripts",
		"--no-audit",
		"--no-fund",
		"--no-package-lock")
	install.Dir = dir
	out, err := install.CombinedOutput()
	if err != nil {
		t.Skipf("skipped: npm cannot install what drives the browser: %v\n%s", err, out)
	}
	return browserTools{paths["chromium"], paths["node"], dir}
}

// placeInEveryStatus creates orders of all kinds. The one at 3 waits for the owner, and that at 4 is
// oversold.
func (s *testServer) placeInEveryStatus(t *testing.T) (orders []Order) {
	t.Helper()
	s.exec(t, "UPDATE products SET stock = 40")
	for i, buyer := range []string{
		"Siti Nurhaliza",
		"Budi Santoso",
		"Dewi Lestari Ratnaningsih Kusumawardhani",
		"Agus",
		"Rina",
		"Tono Wijaya",
		"Ayu",
	} {
		externalID := ""
		if i%2 == 0 {
			externalID = fmt.Sprintf("toko-%d", 1040+i)
		}
		o := s.place(t, s.storeID, buyer, externalID, int64(i%3+1))
		orders = append(orders, o)
	}

	s.move(t, orders[0].ID, OwnerApproves)
	s.move(t, orders[0].ID, OwnerRefunds)
	s.move(t, orders[1].ID, OwnerCancels)
	s.move(t, orders[2].ID, ClockExpires)
	s.move(t, orders[3].ID, BuyerClaims)
	s.move(t, orders[4].ID, OwnerApproves)
	s.raiseAlert(t, orders[4].ID, Alert{Code: AlertOversold})
	return orders
}

// fillCharts adds orders and revenue to the 29 days before today.
func (s *testServer) fillCharts(t *testing.T) {
	t.Helper()
	today := dayOf(timeOf(time.Now()))
	for i := range int64(29) {
		orders := i * 7 % 11
		s.exec(t, `
			INSERT INTO daily_totals (store_id, day, orders, revenue)
			VALUES (?, ?, ?, ?)`, s.storeID, today-29+i, orders, orders*137_500)
	}
}

// failDeliveries lets an endpoint's deliveries fail, and adds one that waits.
func (s *testServer) failDeliveries(t *testing.T, endpoint string) {
	t.Helper()
	s.exec(t, `
		UPDATE deliveries
		SET    status = 'failed', next_at = NULL, attempt = 10, tried_at = 1, answer_status = 500,
		       answer = '<html><title>Internal Server Error</title>'`)
	s.exec(t, `
		UPDATE endpoints
		SET    failures = 10
		WHERE  id = ?`, endpoint)
	must(t, s.db.Ping(t.Context(), s.storeID, endpoint))
}

// addNewcomer adds a store that has nothing yet.
func (s *testServer) addNewcomer(t *testing.T, slug string) {
	t.Helper()
	storeID, _ := s.addStore(t, slug, "free")
	s.exec(t, "DELETE FROM api_keys WHERE store_id = ?", storeID)
	must(t, s.db.SetPassword(t.Context(), storeID, ownerHash))
}

// browserTask is what .ci/browser/check.mjs does at a shop with something on every page.
func (s *testServer) browserTask(t *testing.T) object {
	t.Helper()
	orders := s.placeInEveryStatus(t)
	s.fillCharts(t)
	words := s.pageWords(t, Order{})
	newest := s.place(t, s.storeID, "Wati", "", 1)
	words["order"] = newest.ID
	s.failDeliveries(t, words["endpoint"])
	s.addNewcomer(t, "baru")
	must(t, s.db.SetGateway(t.Context(), s.storeID, GatewayAccount{
		Provider:      "xendit",
		Mode:          "sandbox",
		SecretKey:     "xnd_development_x",
		CallbackToken: "x",
	}))

	oversold := orders[4].ID
	paths := []string{"/dashboard/orders/" + oversold}
	for _, c := range readCases(t, "testdata/dashboard-pages.txt") {
		paths = append(paths, withWords(c.column(0), words))
	}
	coffee, err := s.db.CatalogEntry(s.storeID, KindProduct, "kopi")
	must(t, err)

	return object{
		"email":    "kopi-kita@example.id",
		"password": ownerPassword,
		"newcomer": "baru@example.id",
		"pages":    paths,
		"publicPages": []string{"/pay/" + newest.ID, "/pay/" + newest.ID + "/claim", "/pay/" + orders[0].ID, "/pay/" + orders[1].ID,
			"/pay/" + orders[2].ID, "/pay/" + orders[3].ID, "/pay/" + oversold},
		"orderBody": string(mustJSON(object{
			"items":          []object{{"type": "product", "product_id": coffee.ID, "quantity": 2}},
			"buyer":          object{"name": "Siti", "phone": "08123456789"},
			"payment_method": "bank",
		})),
	}
}

// TestBrowser has a browser do the work of an owner's first day, and axe look at every page in both
// languages, on phones and on a desktop, in light and in dark. With SCREENSHOTS set to a folder it leaves a picture of each there.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
	tools := installBrowserTools(t)
	script, err := filepath.Abs(".ci/browser/check.mjs")
	must(t, err)

	s := newShop(t, "http://shop.test")
	address := strings.Replace(s.url, "127.0.0.1", "toko.test", 1)
	must(t, s.db.setAddresses(address, false, nil)) // so that the browser reaches the pay page

	task := s.browserTask(t)
	task["chromium"] = tools.chromium
	task["url"] = address
	task["api"] = s.url
	task["shots"] = os.Getenv("SCREENSHOTS")

	check := exec.CommandContext(t.Context(), tools.node, script)
	check.Dir = tools.dir
	check.Stdin = bytes.NewReader(mustJSON(task))
	out, err := check.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
