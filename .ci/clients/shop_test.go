// Package clients holds clients that are generated from openapi.json, and verifiers of webhooks that people copy or
// install, against the built program.
package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const catalog = `{
  "products": [
    {"slug": "kopi", "title": "Kopi Gayo", "description": "Arabika.", "price": 85000,
     "image_url": "https://img.example.id/kopi.jpg"}],
  "bundles": [{"slug": "duo", "title": "Duo", "price": 160000, "items": [{"slug": "kopi", "quantity": 2}]}],
  "payment_methods": [
    {"code": "bank_transfer", "name": "Transfer BCA", "provider": "manual", "instructions": "BCA 123 456 7890"},
    {"code": "sandbox", "name": "Sandbox", "provider": "sandbox", "fee": 2500}]}`

// shop is the program, serving a store on a file of its own.
type shop struct {
	dir, url, key string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{dir: t.TempDir()}
	s.command(t, "store", "add", "-name", "Kopi Kita", "-email", "owner@example.id")
	s.command(t, "store", "set", "-test", "on")
	file := filepath.Join(s.dir, "catalog.json")
	if err := os.WriteFile(file, []byte(catalog), 0o600); err != nil {
		t.Fatal(err)
	}
	s.command(t, "catalog", "import", file)
	s.key = s.command(t, "key", "add", "-name", "test", "-scope", "manage")["key"].(string)

	address := freeAddress(t)
	s.url = "http://" + address
	serving := exec.Command(program(), "serve", "-addr", address, "-public-url", s.url, "-webhook-allow-private")
	serving.Dir = s.dir
	if err := serving.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		serving.Process.Signal(syscall.SIGTERM)
		if err := serving.Wait(); err != nil {
			t.Errorf("the program stopped with %v", err)
		}
	})
	await(t, "ready", func() bool {
		resp, err := http.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return s
}

// program is the built program, which run names.
func program() string { return os.Getenv("STOREORDER") }

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// command runs a command of the program on the shop's file and returns what it printed.
func (s *shop) command(t *testing.T, args ...string) (out map[string]any) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(program(), args...)
	cmd.Dir, cmd.Stderr = s.dir, &stderr
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	return out
}

// createOrder creates an order by the API.
func (s *shop) createOrder(t *testing.T) {
	t.Helper()
	var list struct {
		Data struct{ Products []struct{ ID string } }
	}
	if err := json.Unmarshal(s.send(t, "GET", "/v1/products", ""), &list); err != nil {
		t.Fatal(err)
	}
	s.send(t, "POST", "/v1/orders", fmt.Sprintf(`{"items": [{"type": "product", "product_id": %q, "quantity": 1}],
		"buyer": {"name": "Siti", "email": "siti@example.id"}, "payment_method": "bank_transfer"}`,
		list.Data.Products[0].ID))
}

// send sends a request with the shop's key, which must succeed.
func (s *shop) send(t *testing.T, method, path, body string) []byte {
	t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode > 299 {
		t.Fatalf("%s %s: %s %v %s", method, path, resp.Status, err, answer)
	}
	return answer
}

// rotate gives an endpoint a new secret, in the dashboard.
func (s *shop) rotate(t *testing.T, endpoint string) (secret string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	owner := &http.Client{Jar: jar}
	press := func(address, act string) string {
		resp, err := owner.PostForm(address, url.Values{"act": {act}})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v", address, resp.Status, err)
		}
		return string(page)
	}

	press(s.command(t, "store", "password")["sign_in"].(string), "")
	page := press(s.url+"/dashboard/endpoints/"+endpoint, "rotate")
	secret = regexp.MustCompile("whsec_[A-Za-z0-9_-]{43}=?").FindString(page)
	if secret == "" {
		t.Fatal("the page does not show the new secret")
	}
	return secret
}

// await calls done until it is true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for begin := time.Now(); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("after 30 s still not: %s", what)
		}
	}
}
