package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// programPath is the real program, built once.
var programPath string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "storeorder-contract-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		programPath = filepath.Join(dir, "storeorder")
		build := exec.Command("go", "build", "-o", programPath, ".")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// catalog has a product for every case: plain, short of stock, free, cheap and unpublished.
const catalog = `{
  "products": [
    {"slug": "kopi", "title": "Kopi Gayo", "description": "Arabika.", "price": 85000, "image_url": "https://img.example.id/kopi.jpg"},
    {"slug": "langka", "title": "Luwak", "price": 500000, "stock": 1},
    {"slug": "sisa", "title": "Sisa", "price": 20000, "stock": 1},
    {"slug": "gratis", "title": "Panduan", "price": 0},
    {"slug": "permen", "title": "Permen", "price": 8500},
    {"slug": "draf", "title": "Draf", "price": 1000, "published": false}],
  "bundles": [{"slug": "duo", "title": "Duo", "price": 160000, "items": [{"slug": "kopi", "quantity": 2}]}],
  "payment_methods": [
    {"code": "bank_transfer", "name": "Transfer BCA", "provider": "manual", "min_amount": 10000, "max_amount": 100000000, "instructions": "BCA 123 456 7890"},
    {"code": "sandbox", "name": "Sandbox", "provider": "sandbox", "fee": 2500},
    {"code": "qris", "name": "QRIS", "provider": "midtrans"},
    {"code": "va_bca", "name": "VA BCA", "provider": "xendit"}]}`

// shop is the program serving a store on a database of its own.
type shop struct {
	db, url, storeID, key string
	password              string // the owner's
	flags                 []string
	serving               *exec.Cmd
	ids                   map[string]string // of the catalog, by slug
	verify                func(exchange)    // sees every exchange
}

func newShop(t *testing.T, verify func(exchange), flags ...string) *shop {
	s := &shop{db: filepath.Join(t.TempDir(), "shop.db"), flags: flags, ids: map[string]string{}, verify: verify}
	store := s.cli(t, "", "store add", "-name", "Kopi Kita", "-email", "owner@example.id", "-test", "on")
	s.storeID, s.password = store["store_id"].(string), store["owner_password"].(string)
	file := filepath.Join(t.TempDir(), "catalog.json")
	if err := os.WriteFile(file, []byte(catalog), 0o600); err != nil {
		t.Fatal(err)
	}
	s.cli(t, "", "catalog import", "-store", s.storeID, file)
	s.key = s.cli(t, "", "key add", "-store", s.storeID, "-name", "test", "-scope", "manage")["key"].(string)
	// Nothing answers at these gateways.
	s.cli(t, "SB-Mid-server-test\n", "gateway set", "-store", s.storeID, "-provider", "midtrans", "-mode", "sandbox")
	s.cli(t, "xnd_development_test\ntoken\n", "gateway set", "-store", s.storeID, "-provider", "xendit", "-mode", "sandbox")
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	for _, list := range s.do(t, "GET", "/v1/products", "").Data {
		products, _ := list.([]any)
		for _, p := range products {
			s.ids[p.(object)["slug"].(string)] = p.(object)["id"].(string)
		}
	}
	return s
}

func (s *shop) start(t *testing.T) {
	t.Helper()
	s.serving = exec.Command(programPath, append([]string{"serve", "-db", s.db, "-addr", "127.0.0.1:0", "-public-url", "https://127.0.0.1", "-webhook-allow-private",
		"-gateway-url", "midtrans=http://127.0.0.1:1", "-gateway-url", "xendit=http://127.0.0.1:1"}, s.flags...)...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.serving.Stderr = in
	if err := s.serving.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	address := make(chan string, 1)
	go func() { // reads to the end, so that the program never waits
		var log []byte
		buffer := make([]byte, 4096)
		for {
			n, err := out.Read(buffer)
			if log != nil || err == nil {
				log = append(log, buffer[:n]...)
			}
			if m := serving.FindSubmatch(log); m != nil {
				select {
				case address <- string(m[1]):
				default:
				}
				log = log[:0]
			}
			if err != nil {
				out.Close()
				close(address)
				return
			}
		}
	}()
	select {
	case at, ok := <-address:
		if !ok {
			t.Fatal("the program did not begin to serve")
		}
		s.url = "http://" + at
	case <-time.After(30 * time.Second):
		t.Fatal("the program does not serve")
	}
}

var serving = regexp.MustCompile(`msg=serving address=(\S+)`)

func (s *shop) stop(t *testing.T) {
	s.serving.Process.Signal(syscall.SIGTERM)
	if err := s.serving.Wait(); err != nil {
		t.Errorf("the program stopped with %v", err)
	}
}

// cli runs a command on the shop's database and returns what it printed.
func (s *shop) cli(t *testing.T, stdin, command string, args ...string) (out object) {
	t.Helper()
	words := strings.Fields(command)
	cmd := exec.Command(programPath, append(append(words, "-db", s.db), args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if e, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("%w: %s", err, e.Stderr)
	}
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return out
}

// reply is an answer of the API.
type reply struct {
	exchange
	Data  object
	Error struct{ Code, Message string }
}

// at is the text of a value in data, such as at("order", "id").
func (r reply) at(path ...string) string {
	var v any = r.Data
	for _, name := range path {
		in, _ := v.(object)
		v = in[name]
	}
	return fmt.Sprint(v)
}

// do sends a request with the shop's key and has the exchange verified. headers are names and values in turn; "" sends none.
func (s *shop) do(t *testing.T, method, path, body string, headers ...string) (r reply) {
	t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if req.Header.Del(headers[i]); headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	r.exchange = exchange{method, path, body, req.Header, resp.StatusCode, resp.Header, string(answer)}
	if s.verify != nil {
		s.verify(r.exchange)
	}
	if bytes.HasPrefix(answer, []byte(`{"success"`)) {
		if err := json.Unmarshal(answer, &r); err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
	}
	return r
}

var web = &http.Client{Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// want reports an answer of another status or error code.
func (r reply) want(t *testing.T, status int, code string) reply {
	t.Helper()
	if r.Status != status || r.Error.Code != code {
		t.Errorf("%s %s answered %d %s, want %d %s: %.300s", r.Method, r.Path, r.Status, r.Error.Code, status, code, r.exchange.Body)
	}
	return r
}

// order is a body for POST /v1/orders of one piece of each slug.
func (s *shop) order(method string, slugs ...string) string {
	items := []object{}
	for _, slug := range slugs {
		kind := "product"
		if slug == "duo" {
			kind = "bundle"
		}
		id := s.ids[slug]
		if id == "" {
			id = "01a1fc0f-a32e-7a3e-9c41-d7f206b85ae3"
		}
		items = append(items, object{"type": kind, kind + "_id": id, "quantity": 1})
	}
	order := object{"items": items, "buyer": object{"name": "Siti", "email": "siti@example.id"}}
	if method != "" {
		order["payment_method"] = method
	}
	text, _ := json.Marshal(order)
	return string(text)
}

// create makes an order and returns its id.
func (s *shop) create(t *testing.T, method string, slugs ...string) string {
	t.Helper()
	return s.do(t, "POST", "/v1/orders", s.order(method, slugs...)).want(t, 201, "").at("order", "id")
}

// press posts a form of one of the pages, and returns the cookies it sets.
func (s *shop) press(t *testing.T, path, form string, cookies ...*http.Cookie) []*http.Cookie {
	t.Helper()
	req, err := http.NewRequest("POST", s.url+path, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, cookie := range cookies {
		req.AddCookie(cookie)
	}
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 303 {
		t.Errorf("POST %s answered %d", path, resp.StatusCode)
	}
	return resp.Cookies()
}

// await calls do until it is true.
func await(t *testing.T, what string, do func() bool) {
	t.Helper()
	for begin := time.Now(); !do(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("after 30 s still not: %s", what)
		}
	}
}
