// Attack has a greedy store and a stranger do what they may within the usual limits, beside a store that sells: its program
// creates an order four times a second. It prints how long these orders take, and fails if one takes over a second, if one
// is refused, or if the service takes too much memory.
//
//	go build -o /tmp/storeorder . && go build -o /tmp/attack ./.ci/attack && /tmp/attack -seconds 20 -orders 1000000 /tmp/storeorder
//
// The clients keep the same cores busy as the service. docs/operation.md has the bounds that hold it back.
package main

import (
	"bytes"
	"crypto/sha512"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/mattn/go-sqlite3"
)

const (
	longestWait = time.Second
	mostMemory  = 400 << 10 // KiB
	gatewayKey  = "SB-Mid-server-attack"
	jsonType    = "application/json"
	formType    = "application/x-www-form-urlencoded"
)

// service is the program, serving both stores.
type service struct {
	program, dir, file, address string
	serving                     *exec.Cmd
	greedy, seller              store
	seconds                     time.Duration
	stock                       []string // of the greedy store: ids of bundles with 50 products each
	failed                      bool
}

// store is what its programs and its owner have.
type store struct {
	id     string
	keys   []string
	order  string // the body of an order
	signIn string // the cookies of its owner
}

// attack is what the greedy store or a stranger does, by several clients at once, until the time is over.
type attack struct {
	name    string
	clients int
	do      func(client int) // one request
}

func main() {
	seconds := flag.Int("seconds", 10, "how long each attack takes")
	orders := flag.Int("orders", 300_000, "that the greedy store has already")
	only := flag.String("only", "", "a pattern of the attacks' names: these, and no others")
	flag.Parse()
	runtime.LockOSThread() // The server ends with the thread that started it.
	if flag.NArg() != 1 {
		log.Fatal("usage: attack [-seconds N] [-orders N] PROGRAM")
	}
	dir, err := os.MkdirTemp("", "storeorder-attack-")
	check(err)
	defer os.RemoveAll(dir)
	program, err := filepath.Abs(flag.Arg(0))
	check(err)

	s := &service{program: program, dir: dir, file: filepath.Join(dir, "shop.db"), seconds: time.Duration(*seconds) * time.Second}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status_code":"404","status_message":"Transaction doesn't exist."}`)
	}))
	defer gateway.Close()
	s.open(gateway.URL, *orders)
	defer s.close()

	fmt.Println("| attack | clients | orders of the other store | p50 | longest | memory at most |\n|---|---|---|---|---|---|")
	isOther := func(a attack) bool { return !regexp.MustCompile(*only).MatchString(a.name) }
	all := slices.DeleteFunc(s.attacks(), isOther)
	s.measure("none")
	for _, a := range all {
		s.measure(a.name, a)
	}
	for i := range all {
		all[i].clients = 1 + all[i].clients/3 // The service takes 1,024 connections; more are the proxy's to stop.
	}
	s.measure("all of them", all...)
	s.idle()
	if s.failed {
		log.Fatal("somebody was kept waiting, refused, or too much memory was taken")
	}
}

// attacks are those of the table of bounds.
func (s *service) attacks() []attack {
	g := s.greedy
	key := func(client int) string { return g.keys[client%len(g.keys)] }
	wide := []map[string]any{}
	for _, id := range s.stock {
		wide = append(wide, map[string]any{"type": "bundle", "bundle_id": id, "quantity": 1})
	}
	wideOrder := orderOf(wide[:10], "bca")
	widest := orderOf(wide, "bca")
	pending := s.create(g, strings.Replace(g.order, "bca", "snap", 1))
	payPage := s.create(g, g.order)
	nothing := `{"products":[` + strings.Repeat(`{"items":[`+strings.Repeat("{},", 250)+`{}]},`, 1300) + `{}]}`
	many := `{"products":[` + strings.Repeat("{},", 300_000) + `{}]}`
	long := strings.Repeat("x", 60_000)

	return []attack{
		{"orders of 500 products", 80, func(c int) { s.api("POST", "/v1/orders", key(c), wideOrder) }},
		{"orders of 5,000 products", 80, func(c int) { s.api("POST", "/v1/orders", key(c), widest) }},
		{"unique amounts", 80, func(c int) { s.api("POST", "/v1/orders", key(c), strings.Replace(g.order, "bca", "unik", 1)) }},
		{"signed notifications with long names", 24, func(int) { s.notify(pending+"-1", long) }},
		{"signed notifications of other sessions", 24, func(int) { s.notify(fmt.Sprint(pending, "-", rand.IntN(100_000)), "x") }},
		{"catalogs of empty objects", 24, func(c int) { s.api("PUT", "/v1/catalog", key(c), []string{nothing, many}[c%2]) }},
		{"the owner removes goods", 8, func(c int) {
			s.page("POST", fmt.Sprint("/dashboard/catalog/product?slug=p-", rand.IntN(50_000)), g.signIn, "act=remove")
		}},
		{"the owner opens forms and reads slowly", 70, func(int) { s.slowly("/dashboard/catalog/bundle", g.signIn) }},
		{"the owner searches", 16, func(int) { s.page("GET", "/dashboard?q=kopi+susu+gula", g.signIn, "") }},
		{"a stranger reads pictures slowly", 300, func(int) { s.slowly("/pictures/"+strings.Repeat("a", 64), "") }},
		{"a stranger reads the documentation slowly", 300, func(c int) { s.slowly([]string{"/docs", "/v1/openapi.json"}[c%2], "") }},
		{"a stranger makes up pay pages", 64, func(int) { s.page("GET", fmt.Sprintf("/pay/%036d", rand.IntN(1e9)), "", "") }},
		{"a buyer opens and reports", 64, func(c int) {
			act := []string{"claim", "unclaim"}[c%2]
			s.page("POST", "/pay/"+payPage, "", "act="+act+"&method=bca")
		}},
		{"wrong keys", 64, func(int) { s.api("GET", "/v1/orders", "so_wrong", "") }},
		{"lists of everything", 64, func(c int) {
			path := []string{"/v1/orders?limit=50", "/v1/products?limit=50&q=p", "/v1/events?limit=50"}[c%3]
			s.api("GET", path, key(c), "")
		}},
	}
}

// measure lets attacks go on while the other store sells, and prints a row.
func (s *service) measure(name string, attacks ...attack) {
	end := time.Now().Add(s.seconds)
	clients, memory := 0, atomic.Int64{}
	var all sync.WaitGroup
	for _, a := range attacks {
		clients += a.clients
		for client := range a.clients {
			all.Go(func() {
				for time.Now().Before(end) {
					a.do(client)
					time.Sleep(20 * time.Millisecond) // The network takes as long, and other machines do this work.
				}
			})
		}
	}
	all.Go(func() {
		for time.Now().Before(end) {
			memory.Store(max(memory.Load(), s.memory()))
			time.Sleep(100 * time.Millisecond)
		}
	})

	took, refused := []time.Duration{}, 0
	for time.Now().Before(end) {
		begun := time.Now()
		if status, _ := s.api("POST", "/v1/orders", s.seller.keys[0], s.seller.order); status != http.StatusCreated {
			refused++
		}
		took = append(took, time.Since(begun))
		time.Sleep(max(0, 250*time.Millisecond-time.Since(begun)))
	}
	all.Wait()

	slices.Sort(took)
	longest := took[len(took)-1]
	note := ""
	if longest > longestWait || refused > 0 || memory.Load() > mostMemory {
		s.failed = true
		note = fmt.Sprintf(" **too much**, %d refused |", refused)
	}
	fmt.Printf("| %s | %d | %d | %d ms | %d ms | %d MB |%s\n", name, clients, len(took), took[len(took)/2].Milliseconds(),
		longest.Milliseconds(), memory.Load()>>10, note)
}

// idle prints what the service does when nobody asks for anything: many orders are past their end, and their pages cannot
// be closed.
func (s *service) idle() {
	time.Sleep(5 * time.Second)
	before := s.processorTime()
	time.Sleep(s.seconds)
	used := s.processorTime() - before
	fmt.Printf("\nprocessor time in %s without requests: %s\n", s.seconds, used)
	s.failed = s.failed || used > s.seconds/20
}

var transport = &http.Transport{MaxIdleConnsPerHost: 400}

var client = &http.Client{
	Transport:     transport,
	Timeout:       30 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// request sends a request and returns the answer: 0 if there is none.
func (s *service) request(method, path, body string, headers ...string) (status int, answer []byte, h http.Header) {
	req, err := http.NewRequest(method, "http://"+s.address+path, strings.NewReader(body))
	check(err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, nil
	}
	defer resp.Body.Close()
	answer, _ = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, resp.Header
}

func (s *service) api(method, path, key, body string) (status int, answer []byte) {
	status, answer, _ = s.request(method, path, body, "Authorization", "Bearer "+key, "Content-Type", jsonType)
	return status, answer
}

func (s *service) page(method, path, cookies, form string) http.Header {
	_, _, h := s.request(method, path, form, "Cookie", cookies, "Content-Type", formType, "Sec-Fetch-Site", "same-origin")
	return h
}

// notify sends a notification of Midtrans that is signed with the greedy store's own key.
func (s *service) notify(reference, transaction string) {
	hash := sha512.Sum512([]byte(reference + "200" + "85000.00" + gatewayKey))
	body, err := json.Marshal(map[string]string{"order_id": reference, "status_code": "200", "gross_amount": "85000.00",
		"signature_key": fmt.Sprintf("%x", hash), "transaction_id": transaction, "transaction_status": "pending"})
	check(err)
	s.request("POST", "/notifications/midtrans/"+s.greedy.id, string(body))
}

// slowly reads an answer at a few bytes a second.
func (s *service) slowly(path, cookies string) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n\r\n", path, s.address, cookies)
	end := time.Now().Add(min(s.seconds, 20*time.Second))
	for buf := make([]byte, 1024); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		conn.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := conn.Read(buf); n == 0 && err == io.EOF {
			return
		}
	}
}

// open makes the file with both stores, and serves it.
func (s *service) open(gateway string, orders int) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	s.address = ln.Addr().String()
	check(ln.Close())
	s.seller = s.addStore("Seller", 1)
	s.greedy = s.addStore("Greedy", 8)
	s.serve(gateway)

	s.seller.order = orderOf([]map[string]any{{"type": "product", "product_id": s.products(s.seller)["p-1"], "quantity": 1}}, "bca")
	mine := s.products(s.greedy)
	s.greedy.order = orderOf([]map[string]any{{"type": "product", "product_id": mine["p-1"], "quantity": 1}}, "bca")
	for slug, id := range mine {
		if strings.HasPrefix(slug, "b-") {
			s.stock = append(s.stock, id)
		}
	}
	pattern := s.create(s.greedy, s.greedy.order)
	s.close()
	s.fill(pattern, orders)
	s.serve(gateway)
}

// addStore adds a store with 50,000 products, a hundred bundles of fifty, and so many keys.
func (s *service) addStore(name string, keys int) (added store) {
	out := s.command("store", "add", "-name", name, "-email", name+"@example.id")
	added.id = out["store_id"].(string)
	added.signIn = out["sign_in"].(string)
	products, bundles := []map[string]any{}, []map[string]any{}
	for i := range 49_000 {
		products = append(products, map[string]any{"slug": fmt.Sprint("p-", i), "title": fmt.Sprint("Kopi ", i), "price": 85_000, "stock": 1e6})
	}
	for i := range 100 {
		items := []map[string]any{}
		for j := range 50 {
			items = append(items, map[string]any{"slug": fmt.Sprint("p-", 50*i+j), "quantity": 1})
		}
		bundles = append(bundles, map[string]any{"slug": fmt.Sprint("b-", i), "title": "Wide", "price": 85_000, "items": items})
	}
	account := []map[string]any{{"bank": "BCA", "number": "1234567890"}}
	methods := []map[string]any{
		{"code": "bca", "name": "BCA", "provider": "manual", "accounts": account},
		{"code": "unik", "name": "BCA", "provider": "manual", "accounts": account, "unique_code": true},
		{"code": "snap", "name": "Midtrans", "provider": "midtrans"},
	}
	text, err := json.Marshal(map[string]any{"products": products, "bundles": bundles, "payment_methods": methods})
	check(err)
	file := filepath.Join(s.dir, "catalog.json")
	check(os.WriteFile(file, text, 0o600))
	s.command("catalog", "import", file, "-store", added.id)
	s.command("store", "set", "-store", added.id, "-test", "on", "-contact", "0812 3456 7890")
	for range keys {
		added.keys = append(added.keys, s.command("key", "add", "-name", "attack", "-scope", "manage", "-store", added.id)["key"].(string))
	}
	return added
}

// fill gives the greedy store many orders like one that it has, a gateway's key, pages that cannot be closed, and a picture.
func (s *service) fill(pattern string, orders int) {
	db, err := sql.Open("sqlite3", "file:"+s.file)
	check(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	now := time.Now().UnixMilli()
	for _, statement := range []struct {
		text string
		args []any
	}{
		{`CREATE TEMP TABLE copies AS
		  WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
		  SELECT i, o.* FROM n, orders o WHERE o.id = ?1`, []any{pattern, orders}},
		{`UPDATE copies SET id = printf('0190f5a0-0000-7000-8000-%012d', i), reference = 'INV-20000101-' || i, status = 'paid',
		                    unique_code = 1 + i % 999, amount = 85001 + i % 999, created_at = ? - i, expires_at = ? - i`, []any{now, now}},
		{`UPDATE copies SET status = 'pending' WHERE i <= ?`, []any{min(orders, 300_000)}},
		{`ALTER TABLE copies DROP COLUMN i`, nil},
		{`INSERT INTO orders SELECT * FROM copies`, nil},
		{`INSERT INTO gateway_keys (id, store_id, provider, mode, secret_key, callback_token) VALUES ('key-1', ?, 'midtrans', 'sandbox', ?, '')`,
			[]any{s.greedy.id, gatewayKey}},
		{`INSERT INTO pictures (hash, jpeg) VALUES (?, randomblob(400000))`, []any{strings.Repeat("a", 64)}},
		{`UPDATE products SET image_url = ? WHERE slug = 'p-1'`, []any{"/pictures/" + strings.Repeat("a", 64)}},
	} {
		_, err := db.Exec(statement.text, statement.args...)
		check(err)
	}
	s.stick(db, now)
}

// stick gives pending orders a page each that nobody can close: it is checked again in some hours.
func (s *service) stick(db *sql.DB, now int64) {
	rows, err := db.Query("SELECT name, type FROM pragma_table_info('payment_sessions') WHERE dflt_value IS NULL")
	check(err)
	names, values := []string{}, []string{}
	known := map[string]string{"order_id": "id", "number": "1", "id": "'s-' || id", "provider": "'midtrans'", "method": "'snap'",
		"key_id": "'key-1'", "seen": "1", "asked": "amount", "due_at": fmt.Sprint(now + 6*3600_000), "gateway_id": "'g-' || id",
		"names": "'[]'", "url": "'https://example.id/'", "expires_at": fmt.Sprint(now), "news_at": fmt.Sprint(now)}
	for rows.Next() {
		var name, kind string
		check(rows.Scan(&name, &kind))
		value := known[name]
		if value == "" && kind == "INTEGER" {
			value = "0"
		} else if value == "" {
			value = "''"
		}
		names, values = append(names, `"`+name+`"`), append(values, value)
	}
	check(rows.Err())
	_, err = db.Exec("INSERT INTO payment_sessions (" + strings.Join(names, ", ") + ") SELECT " + strings.Join(values, ", ") +
		" FROM orders WHERE status = 'pending' AND id LIKE '0190f5a0-%'")
	check(err)
}

// serve starts the service with its usual limits, and signs both owners in.
func (s *service) serve(gateway string) {
	s.serving = exec.Command(s.program, "serve", "-db", s.file, "-addr", s.address, "-public-url", "http://"+s.address,
		"-gateway-url", "midtrans="+gateway)
	s.serving.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	logged, err := os.Create(filepath.Join(s.dir, "log"))
	check(err)
	s.serving.Stderr = logged
	check(s.serving.Start())
	for range 3000 {
		if status, _, _ := s.request("GET", "/readyz", ""); status == http.StatusOK {
			s.enter()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := os.ReadFile(logged.Name())
	log.Fatalf("the program does not serve: %s", text)
}

var setCookie = regexp.MustCompile(`^[^;]*`)

// enter signs the greedy store's owner in by the link that was printed, once.
func (s *service) enter() {
	if !strings.HasPrefix(s.greedy.signIn, "http") {
		return // They are signed in already.
	}
	link, err := url.Parse(s.greedy.signIn)
	check(err)
	h := s.page("POST", link.Path, "", "act=")
	var cookies []string
	for _, c := range h.Values("Set-Cookie") {
		cookies = append(cookies, setCookie.FindString(c))
	}
	if len(cookies) == 0 {
		log.Fatal("the owner cannot sign in")
	}
	s.greedy.signIn = strings.Join(cookies, "; ")
}

// products are the ids of what a store sells that an order may name, by slug.
func (s *service) products(of store) map[string]string {
	ids := map[string]string{}
	for _, query := range []string{"type=product&q=Kopi+1&limit=50", "type=bundle&limit=50", "type=bundle&limit=50&offset=50"} {
		_, answer := s.api("GET", "/v1/products?"+query, of.keys[0], "")
		var list struct {
			Data struct{ Products, Bundles []struct{ ID, Slug string } }
		}
		check(json.Unmarshal(answer, &list))
		for _, p := range slices.Concat(list.Data.Products, list.Data.Bundles) {
			ids[p.Slug] = p.ID
		}
	}
	return ids
}

// create creates an order of a store, and returns its id.
func (s *service) create(of store, body string) string {
	status, answer := s.api("POST", "/v1/orders", of.keys[0], body)
	var created struct {
		Data struct{ Order struct{ ID string } }
	}
	check(json.Unmarshal(answer, &created))
	if status != http.StatusCreated {
		log.Fatalf("an order is answered %d %s", status, answer)
	}
	return created.Data.Order.ID
}

func orderOf(items []map[string]any, method string) string {
	buyer := map[string]string{"name": "Siti", "email": "siti@example.id"}
	body, err := json.Marshal(map[string]any{"items": items, "buyer": buyer, "payment_method": method})
	check(err)
	return string(body)
}

func (s *service) close() {
	transport.CloseIdleConnections()
	check(s.serving.Process.Signal(syscall.SIGTERM))
	check(s.serving.Wait())
}

// command runs one of the program's commands and returns what it prints.
func (s *service) command(args ...string) (out map[string]any) {
	cmd := exec.Command(s.program, append(args, "-db", s.file)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		log.Fatalf("%v: %v %s", args, err, &errs)
	}
	check(json.Unmarshal(text, &out))
	return out
}

// memory is what the service holds, in KiB.
func (s *service) memory() int64 {
	_, rest, _ := strings.Cut(s.proc("status"), "VmRSS:")
	n, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
	return n
}

// processorTime is what the service has used up to now.
func (s *service) processorTime() (used time.Duration) {
	stat := s.proc("stat")
	for _, f := range strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])[11:13] {
		n, err := strconv.Atoi(f)
		check(err)
		used += time.Duration(n) * time.Second / 100
	}
	return used
}

func (s *service) proc(name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.serving.Process.Pid, name))
	check(err)
	return string(text)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
