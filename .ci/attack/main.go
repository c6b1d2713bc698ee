// Attack has three greedy stores and strangers do what they may within the usual limits, beside a store that sells: its
// program creates an order four times a second. It prints how long these orders take, and fails if one takes over a
// second, if one is refused, if the service takes too much memory, or if an order that was answered is not there at the
// end.
//
//	go build -o /tmp/storeorder . && go build -o /tmp/attack ./.ci/attack
//	/tmp/attack -seconds 20 -orders 1000000 /tmp/storeorder
//
// Twenty minutes of everything at once, without the attacks one by one, are -seconds 0 -together 1200.
//
// The clients keep the same cores busy as the service. docs/operation.md has the bounds that hold it back.
package main

import (
	"bytes"
	"cmp"
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

// service is the program, serving all stores.
type service struct {
	program, dir, file, address string
	serving                     *exec.Cmd
	greedy                      []*store
	seller                      *store
	failed                      bool

	mu   sync.Mutex
	made []string // the orders that were answered as made: their ids
}

// store is what its programs and its owner have. Its slug is that of its shop page.
type store struct {
	id, slug string
	keys     []string
	bundles  []string // ids of bundles with 50 products each
	order    string   // the body of an order
	signIn   string   // the cookies of its owner
	pending  string   // an order that is paid at a gateway
	payPage  string   // and one that is not: their ids
}

// attack is what the greedy store or a stranger does, by several clients at once, until the time is over.
type attack struct {
	name    string
	clients int
	do      func(client int) // one request
}

func main() {
	seconds := flag.Int("seconds", 10, "how long each attack takes")
	together := flag.Int("together", 0, "how long all of them at once take; 0 = as long as each")
	orders := flag.Int("orders", 300_000, "that the first greedy store has already; the others have a tenth of them")
	only := flag.String("only", "", "a pattern of the attacks' names: these, and no others")
	flag.Parse()
	runtime.LockOSThread() // The server ends with the thread that started it.
	if flag.NArg() != 1 {
		log.Fatal("usage: attack [-seconds N] [-together N] [-orders N] [-only PATTERN] PROGRAM")
	}
	dir, err := os.MkdirTemp("", "storeorder-attack-")
	check(err)
	defer os.RemoveAll(dir)
	program, err := filepath.Abs(flag.Arg(0))
	check(err)

	s := &service{program: program, dir: dir, file: filepath.Join(dir, "shop.db")}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status_code":"404","status_message":"Transaction doesn't exist."}`)
	}))
	defer gateway.Close()
	s.open(gateway.URL, *orders)

	fmt.Println("| attack | clients | orders of the seller | p50 | p99 | longest | memory at most |")
	fmt.Println("|---|---|---|---|---|---|---|")
	isOther := func(a attack) bool { return !regexp.MustCompile(*only).MatchString(a.name) }
	all := slices.DeleteFunc(s.attacks(), isOther)
	long := time.Duration(*seconds) * time.Second
	if long > 0 {
		s.measure("none", long)
		for _, a := range all {
			s.measure(a.name, long, a)
		}
	}
	for i := range all {
		all[i].clients = 1 + all[i].clients/3 // The service takes 1,024 connections; more are the proxy's to stop.
	}
	if *together > 0 {
		long = time.Duration(*together) * time.Second
	}
	s.measure("all of them", long, all...)
	s.idle(min(long, 20*time.Second))
	s.findOrders()
	if s.failed {
		log.Fatal("somebody was kept waiting or refused, too much memory was taken, or an order is lost")
	}
}

// attacks are those of the table of bounds.
func (s *service) attacks() []attack {
	of := func(client int) *store { return s.greedy[client%len(s.greedy)] }
	key := func(client int) string {
		keys := of(client).keys
		return keys[client/len(s.greedy)%len(keys)]
	}
	wideOrders := map[*store][]string{} // of 500 products, and of 5,000
	for _, g := range s.greedy {
		wide := []map[string]any{}
		for _, id := range g.bundles {
			wide = append(wide, map[string]any{"type": "bundle", "bundle_id": id, "quantity": 1})
		}
		wideOrders[g] = []string{orderOf(wide[:10], "bca"), orderOf(wide, "bca")}
	}
	nothing := `{"products":[` + strings.Repeat(`{"items":[`+strings.Repeat("{},", 250)+`{}]},`, 1300) + `{}]}`
	many := `{"products":[` + strings.Repeat("{},", 300_000) + `{}]}`
	long := strings.Repeat("x", 60_000)
	catalogs := []string{nothing, many}

	return append(s.shopAttacks(), []attack{
		{"orders of 500 products", 80, func(c int) { s.order(key(c), wideOrders[of(c)][0]) }},
		{"orders of 5,000 products", 80, func(c int) { s.order(key(c), wideOrders[of(c)][1]) }},
		{"unique amounts", 80, func(c int) { s.order(key(c), strings.Replace(of(c).order, "bca", "unik", 1)) }},
		{"signed notifications with long names", 24, func(c int) { s.notify(of(c), of(c).pending+"-1", long) }},
		{"signed notifications of other sessions", 24, func(c int) {
			s.notify(of(c), fmt.Sprint(of(c).pending, "-", rand.IntN(100_000)), "x")
		}},
		{"catalogs of empty objects", 24, func(c int) { s.api("PUT", "/v1/catalog", key(c), catalogs[c/3%2]) }},
		{"the owner removes goods", 8, func(c int) {
			s.page("POST", fmt.Sprint("/dashboard/catalog/product?slug=p-", 5000+rand.IntN(40_000)), of(c).signIn,
				"act=remove")
		}},
		{"the owner opens forms and reads slowly", 70,
			func(c int) { s.slowly("/dashboard/catalog/bundle", "Cookie: "+of(c).signIn) }},
		{"the owner searches", 16, func(c int) { s.page("GET", "/dashboard?q=kopi+susu+gula", of(c).signIn, "") }},
		{"the owner opens the desk, with its sums", 16, func(c int) {
			s.page("GET", []string{"/dashboard", "/dashboard?from=2020-01-01"}[c/3%2], of(c).signIn, "")
		}},
		{"a stranger reads pictures slowly", 300, func(int) { s.slowly("/pictures/"+strings.Repeat("a", 64), "") }},
		{"a stranger reads the documentation slowly", 300,
			func(c int) { s.slowly([]string{"/docs", "/v1/openapi.json"}[c%2], "") }},
		{"a stranger makes up pay pages", 64,
			func(int) { s.page("GET", fmt.Sprintf("/pay/%036d", rand.IntN(1e9)), "", "") }},
		{"a buyer opens and reports", 64, func(c int) {
			act := []string{"claim", "unclaim"}[c/3%2]
			s.page("POST", "/pay/"+of(c).payPage, "", "act="+act+"&method=bca")
		}},
		{"wrong keys", 64, func(int) { s.api("GET", "/v1/orders", "so_wrong", "") }},
		{"lists of everything", 64, func(c int) {
			path := []string{"/v1/orders?limit=50", "/v1/products?limit=50&q=p", "/v1/events?limit=50"}[c/3%3]
			s.api("GET", path, key(c), "")
		}},
	}...)
}

// shopAttacks are those of strangers on the shop pages, the seller's among them. Unless an attack is that of one
// address, it comes from a hundred networks of IPv6, and each order has a telephone number of its own.
func (s *service) shopAttacks() []attack {
	shops := append(slices.Clone(s.greedy), s.seller)
	shop := func(client int) string { return "/shop/" + shops[client%len(shops)].slug }
	one := func() string { return "1.1.1.1" }
	cart := url.Values{}
	for i := range 100 {
		cart.Set(fmt.Sprint("bundle.b-", i), "1")
	}
	large := cart.Encode()
	longPage := "/checkout?" + large + "&name=" + strings.Repeat("'", 8000)

	return []attack{
		{"a stranger orders on the shop pages", 64,
			func(c int) { s.orderInShop(shop(c), one(), "product.p-1=1&seen=85000") }},
		{"a hundred networks order on the shop pages", 64, func(c int) {
			s.orderInShop(shop(c), networks(), "product.p-1=1&seen=85000")
		}},
		{"orders of all that a cart may have", 64, func(c int) {
			goods := ""
			for i := range 10 {
				goods += fmt.Sprintf("bundle.b-%d=20&", i)
			}
			s.orderInShop(shop(c), networks(), goods+"seen=17000000")
		}},
		{"large carts", 64, func(c int) {
			path := []string{"?", "/checkout?"}[c/4%2] + large
			s.shopRequest("GET", shop(c)+path, networks(), "")
			s.shopRequest("POST", shop(c)+"/checkout", networks(), "go=order&"+large)
		}},
		{"searches on the shop pages", 64, func(c int) {
			s.shopRequest("GET", fmt.Sprint(shop(c), "?q=kopi+", rand.IntN(50_000), "&page=", 1+c%2*2000), networks(),
				"")
		}},
		{"codes", 64, func(c int) { s.shopRequest("GET", shop(c)+"/qr.png", networks(), "") }},
		{"slow readers of the shop pages", 300, func(c int) {
			s.slowly(shop(c)+[]string{"", longPage}[c/4%2], "X-Forwarded-For: "+networks())
		}},
	}
}

// networks returns an address in one of a hundred networks of IPv6.
func networks() string {
	return fmt.Sprintf("2001:db8:%x:%x::%x", 1+rand.IntN(100), rand.IntN(1<<16), 1+rand.IntN(1<<16))
}

func (s *service) shopRequest(method, path, from, form string) http.Header {
	_, _, h := s.request(method, path, form, "Content-Type", formType, "Sec-Fetch-Site", "same-origin",
		"X-Forwarded-For", from)
	return h
}

// orderInShop orders goods by the form of a shop page, with a new telephone number.
func (s *service) orderInShop(shop, from, goods string) {
	buyer := fmt.Sprintf("&go=order&name=Siti&phone=0812%08d&payment_method=0+bca", rand.IntN(1e8))
	to := s.shopRequest("POST", shop+"/checkout", from, goods+buyer).Get("Location")
	if id, isOrder := strings.CutPrefix(to, "/pay/"); isOrder {
		s.note(strings.TrimSuffix(id, "?new=1"))
	}
}

// order creates an order by the API.
func (s *service) order(key, body string) (status int) {
	status, answer := s.api("POST", "/v1/orders", key, body)
	if id := orderID.FindSubmatch(answer); status == http.StatusCreated && id != nil {
		s.note(string(id[1]))
	}
	return status
}

var orderID = regexp.MustCompile(`"order":\{"id":"([^"]+)"`)

// note keeps the id of an order that was answered as made.
func (s *service) note(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, id)
}

// findOrders looks for every order that was answered as made, in the file that the service has left.
func (s *service) findOrders() {
	s.close()
	if ok := s.command("check")["ok"]; ok != true {
		log.Fatal("the file is damaged")
	}
	db, err := sql.Open("sqlite3", "file:"+s.file+"?mode=ro")
	check(err)
	defer db.Close()
	made, err := json.Marshal(s.made)
	check(err)
	lost := 0
	check(db.QueryRow("SELECT count(*) FROM json_each(?) WHERE value NOT IN (SELECT id FROM orders)",
		string(made)).Scan(&lost))
	fmt.Printf("\norders that were answered as made: %d, lost: %d\n", len(s.made), lost)
	s.failed = s.failed || lost > 0
}

// measure lets attacks go on while the other store sells, and prints a row.
func (s *service) measure(name string, long time.Duration, attacks ...attack) {
	end := time.Now().Add(long)
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
		if s.order(s.seller.keys[0], s.seller.order) != http.StatusCreated {
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
	fmt.Printf("| %s | %d | %d | %d ms | %d ms | %d ms | %d MB |%s\n", name, clients, len(took),
		took[len(took)/2].Milliseconds(),
		took[len(took)*99/100].Milliseconds(), longest.Milliseconds(), memory.Load()>>10, note)
}

// idle prints what the service does when nobody asks for anything: many orders are past their end, and their pages
// cannot be closed.
func (s *service) idle(long time.Duration) {
	time.Sleep(5 * time.Second)
	before := s.processorTime()
	time.Sleep(long)
	used := s.processorTime() - before
	fmt.Printf("\nprocessor time in %s without requests: %s\n", long, used)
	s.failed = s.failed || used > long/20
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
	_, _, h := s.request(method, path, form, "Cookie", cookies, "Content-Type", formType, "Sec-Fetch-Site",
		"same-origin")
	return h
}

// notify sends a notification of Midtrans that is signed with a greedy store's own key.
func (s *service) notify(of *store, reference, transaction string) {
	hash := sha512.Sum512([]byte(reference + "200" + "85000.00" + gatewayKey))
	body, err := json.Marshal(map[string]string{"order_id": reference, "status_code": "200", "gross_amount": "85000.00",
		"signature_key": fmt.Sprintf("%x", hash), "transaction_id": transaction, "transaction_status": "pending"})
	check(err)
	s.request("POST", "/notifications/midtrans/"+of.id, string(body))
}

// slowly reads an answer at a few bytes a second. header is a further line of the request.
func (s *service) slowly(path, header string) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", path, s.address, cmp.Or(header, "Accept: */*"))
	end := time.Now().Add(10 * time.Second)
	for buf := make([]byte, 1024); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		conn.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := conn.Read(buf); n == 0 && err == io.EOF {
			return
		}
	}
}

// open makes the file with all stores, and serves it.
func (s *service) open(gateway string, orders int) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	s.address = ln.Addr().String()
	check(ln.Close())
	s.seller = s.addStore("Seller", 1, 6_000)
	for i, products := range []int{49_000, 6_000, 6_000} {
		s.greedy = append(s.greedy, s.addStore(fmt.Sprint("Greedy", i), 8, products))
	}
	s.serve(gateway)

	for _, of := range append(slices.Clone(s.greedy), s.seller) {
		ids := s.products(of)
		of.order = orderOf([]map[string]any{{"type": "product", "product_id": ids["p-1"], "quantity": 1}}, "bca")
		for slug, id := range ids {
			if strings.HasPrefix(slug, "b-") {
				of.bundles = append(of.bundles, id)
			}
		}
		of.payPage = s.create(of, of.order)
	}
	s.close()
	s.fill(orders)
	s.serve(gateway)
	for _, of := range s.greedy {
		of.pending = s.create(of, strings.Replace(of.order, "bca", "snap", 1))
	}
}

// addStore adds a store with so many products and keys, a hundred bundles of fifty products, and an open shop page.
func (s *service) addStore(name string, keys, goods int) *store {
	slug := strings.ToLower(name)
	out := s.command("store", "add", "-name", name, "-slug", slug, "-email", name+"@example.id")
	added := &store{id: out["store_id"].(string), slug: slug, signIn: out["sign_in"].(string)}
	products, bundles := []map[string]any{}, []map[string]any{}
	for i := range goods {
		products = append(products, map[string]any{"slug": fmt.Sprint("p-", i), "title": fmt.Sprint("Kopi ", i),
			"price": 85_000, "stock": 1e6})
	}
	for i := range 100 {
		items := []map[string]any{}
		for j := range 50 {
			items = append(items, map[string]any{"slug": fmt.Sprint("p-", 50*i+j), "quantity": 1})
		}
		bundles = append(bundles, map[string]any{"slug": fmt.Sprint("b-", i), "title": "Wide", "price": 85_000,
			"items": items})
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
	s.command("store", "set", "-store", added.id, "-test", "on", "-contact", "0812 3456 7890", "-shop", "open")
	for range keys {
		added.keys = append(added.keys,
			s.command("key", "add", "-name", "attack", "-scope", "manage", "-store", added.id)["key"].(string))
	}
	return added
}

// fill gives the greedy stores many orders like one that they have, a gateway's key, and pages that cannot be closed;
// and all stores a picture.
func (s *service) fill(orders int) {
	db, err := sql.Open("sqlite3", "file:"+s.file)
	check(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	exec := func(text string, args ...any) {
		_, err := db.Exec(text, args...)
		check(err)
	}
	now := time.Now().UnixMilli()
	for i, of := range s.greedy {
		exec("CREATE TEMP TABLE copies AS "+
			"WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?2) "+
			"SELECT i, o.* FROM n, orders o WHERE o.id = ?1", of.payPage, orders)
		exec("UPDATE copies SET id = printf('0190f5a0-0000-7000-800%d-%012d', ?, i), "+
			"reference = 'INV-20000101-' || i, status = 'paid', unique_code = 1 + i % 999, amount = 85001 + i % 999, "+
			"created_at = ? - i, expires_at = ? - i, paid_at = ? - i", i, now, now, now)
		exec("UPDATE copies SET status = 'pending', paid_at = 0 WHERE i <= ?", min(orders, 300_000))
		exec("ALTER TABLE copies DROP COLUMN i")
		exec("INSERT INTO orders SELECT * FROM copies")
		exec("DROP TABLE copies")
		exec("INSERT INTO gateway_keys (id, store_id, provider, mode, secret_key, callback_token) "+
			"VALUES (?, ?, 'midtrans', 'sandbox', ?, '')",
			fmt.Sprint("key-", i), of.id, gatewayKey)
		s.stick(db, now, i)
		if i == 0 {
			orders = max(1, orders/10) // of the others
		}
	}
	exec("INSERT INTO pictures (hash, jpeg) VALUES (?, randomblob(400000))", strings.Repeat("a", 64))
	exec("UPDATE products SET image_url = ? WHERE slug = 'p-1'", "/pictures/"+strings.Repeat("a", 64))
}

// stick gives pending orders a page each that nobody can close: it is checked again in some hours.
func (s *service) stick(db *sql.DB, now int64, of int) {
	rows, err := db.Query("SELECT name, type FROM pragma_table_info('payment_sessions') WHERE dflt_value IS NULL")
	check(err)
	names, values := []string{}, []string{}
	known := map[string]string{
		"order_id": "id", "number": "1", "id": "'s-' || id", "provider": "'midtrans'", "method": "'snap'",
		"key_id": fmt.Sprintf("'key-%d'", of), "gateway_id": "'g-' || id", "seen": "1", "asked": "amount",
		"names": "'[]'", "url": "'https://example.id/'", "expires_at": fmt.Sprint(now), "news_at": fmt.Sprint(now),
		"due_at": fmt.Sprint(now + 6*3600_000),
	}
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
	_, err = db.Exec("INSERT INTO payment_sessions ("+strings.Join(names, ", ")+") SELECT "+strings.Join(values, ", ")+
		" FROM orders WHERE status = 'pending' AND id LIKE ?", fmt.Sprintf("0190f5a0-0000-7000-800%d-%%", of))
	check(err)
}

// serve starts the service with its usual limits, and signs the owners in.
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

// enter signs the owners of the greedy stores in by the links that were printed, once.
func (s *service) enter() {
	for _, of := range s.greedy {
		if !strings.HasPrefix(of.signIn, "http") {
			return // They are signed in already.
		}
		link, err := url.Parse(of.signIn)
		check(err)
		h := s.page("POST", link.Path, "", "act=")
		var cookies []string
		for _, c := range h.Values("Set-Cookie") {
			cookies = append(cookies, setCookie.FindString(c))
		}
		if len(cookies) == 0 {
			log.Fatal("the owner cannot sign in")
		}
		of.signIn = strings.Join(cookies, "; ")
	}
}

// products are the ids of what a store sells that an order may name, by slug.
func (s *service) products(of *store) map[string]string {
	ids := map[string]string{}
	for _, query := range []string{"type=product&q=Kopi+1&limit=50", "type=bundle&limit=50",
		"type=bundle&limit=50&offset=50"} {
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
func (s *service) create(of *store, body string) string {
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
