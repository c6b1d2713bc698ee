package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// This file starts the service and talks to it as its clients and its operator do. testdata/README.md says
// how a case is added.

// TestMain lets the test binary stand in for the program, for tests that need a process to kill. The files of
// tests are in memory if there is room, because they need no disk that is slow to say that all is written. When the
// whole suite has passed, everything that openapi.json describes must have been seen.
func TestMain(m *testing.M) {
	if os.Getenv("STOREORDER_TEST_AS_PROGRAM") != "" {
		main()
	}
	var memory syscall.Statfs_t
	err := syscall.Statfs("/dev/shm", &memory)
	if room := memory.Bavail * uint64(memory.Bsize); err == nil && room > 1<<30 && os.Getenv("TMPDIR") == "" {
		os.Setenv("TMPDIR", "/dev/shm")
	}
	code := m.Run()
	whole := true
	for _, name := range []string{"run", "skip", "list"} {
		whole = whole && flag.Lookup("test."+name).Value.String() == ""
	}
	if unseen := described().unseen(); code == 0 && whole && len(unseen) > 0 {
		fmt.Printf("openapi.json describes what no test has seen:\n%s\n", strings.Join(unseen, "\n"))
		code = 1
	}
	os.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is the service on a file of its own, with two stores and the network around it.
type world struct {
	t      *testing.T
	file   string
	flags  []string // of serve
	shop   *store   // with gateways; do has its key
	other  *store   // with the same catalog, and without gateways
	net    *internet
	log    *logBuffer
	life   *life
	http   *http.Client
	begin  func(*life)  // prepares each life before it starts; nil does nothing
	bubble bool         // the world is in one
	ruin   bool         // the test leaves what cannot be checked at its end
	buyers int          // that strangers have been: each has a telephone number
	ahead  atomic.Int64 // how far the wall clock is ahead, a time.Duration
}

// store is what its owner and its programs know of it.
type store struct {
	id, email, password string
	keys                map[string]string // by scope
	ids                 map[string]string // of what it sells, by slug
}

// opened is a file with both stores. It is made once, before the first test, and each test begins with a
// copy. It is made in a bubble, because commands that change a store wait half a second.
var opened struct {
	sync.Once
	file   []byte
	stores [2]*store
}

func open(t *testing.T) {
	opened.Do(func() { synctest.Test(t, makeStores) })
}

func makeStores(t *testing.T) {
	w := &world{t: t, log: &logBuffer{}, net: newNetwork(t), ruin: true}
	w.file = filepath.Join(t.TempDir(), "shop.db")
	w.ahead.Store(-int64(24 * time.Hour))
	for i, name := range []string{"Kopi Kita", "Toko Lain"} {
		s := &store{keys: map[string]string{}, ids: map[string]string{}}
		s.email = fmt.Sprintf("owner%d@example.id", i)
		added := w.command("store add -email "+s.email, "-name", name)
		s.id, s.password = textOf(added, "store_id"), textOf(added, "owner_password")
		w.command("store set -test on -expiry 6h -store "+s.id, "-contact", "0812 3456 7890")
		w.command("catalog import testdata/kopi-kita.json -store " + s.id)
		for _, scope := range []string{"read", "write", "manage"} {
			s.keys[scope] = textOf(w.command("key add -name test -store "+s.id+" -scope "+scope), "key")
		}
		opened.stores[i] = s
	}
	w.shop = opened.stores[0]
	w.command("gateway set -mode live -provider midtrans -store "+w.shop.id, stdin+midtransKey)
	w.command("gateway set -mode live -provider xendit -store "+w.shop.id, stdin+xenditKey+"\n"+xenditToken)

	w.start()
	for _, s := range opened.stores {
		r := w.get(t, "/v1/products?limit=50", as(s.keys["read"])...)
		for _, entry := range append(r.list("bundles"), r.list("products")...) {
			s.ids[textOf(entry, "slug")] = textOf(entry, "id")
		}
	}
	w.end()
	file, err := os.ReadFile(w.file)
	must(t, err)
	opened.file = file
}

// newWorld starts the service with further flags: in real time, or within a bubble.
func newWorld(t *testing.T, flags ...string) *world {
	t.Helper()
	open(t)
	if opened.file == nil {
		t.Fatal("the stores could not be made: see the first test")
	}
	w := &world{
		t:     t,
		file:  filepath.Join(t.TempDir(), "shop.db"),
		flags: flags,
		shop:  opened.stores[0],
		other: opened.stores[1],
		net:   newNetwork(t),
		log:   newLog(t),
	}
	must(t, os.WriteFile(w.file, opened.file, 0o600))
	w.start()
	t.Cleanup(w.end)
	return w
}

// inBubble runs a test in a synctest bubble of its own: its clock begins at the year 2000 and moves when
// everybody waits. The bubble fails if anything of the service still runs after its end.
func inBubble(t *testing.T, test func(t *testing.T, w *world), flags ...string) {
	t.Helper()
	t.Parallel()
	open(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, flags...)
		w.bubble = true
		test(t, w)
	})
}

// life is the service from one start to its end. It is the listener that the service accepts connections
// from, in memory.
type life struct {
	stop  func()
	ended chan struct{}
	code  int
	dial  func() (net.Conn, error)
	conns chan net.Conn
	open  chan struct{} // closed when the log says that it serves
	shut  chan struct{} // closed when none is accepted any more

	opening, closing sync.Once

	mu    sync.Mutex
	dieIn int    // the COMMIT at which it dies, counted from now; 0 = none
	after bool   // it dies when that COMMIT is on disk, not before
	image string // the file as a death has left it; empty while it lives
	fails error  // what each COMMIT says; if after, when it is on disk
	stuck error  // what each checkpoint says
	amid  func() // happens once, when the next COMMIT begins
	peer  string // the address that clients come from; empty is this machine
	hold  func() // each COMMIT waits until it returns; nil does not
}

var errDead = errors.New("the program is dead")

func newLife(stop func()) *life {
	l := &life{stop: stop, ended: make(chan struct{}), conns: make(chan net.Conn)}
	l.open, l.shut = make(chan struct{}), make(chan struct{})
	l.dial = l.connect
	return l
}

func (l *life) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.shut:
		return nil, net.ErrClosed
	}
}

// servingLog tells a life that its log says that the file is open.
type servingLog struct {
	*logBuffer
	l *life
}

func (s servingLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("msg=serving")) || bytes.Contains(p, []byte(`"msg":"serving"`)) {
		s.l.opening.Do(func() { close(s.l.open) })
	}
	return s.logBuffer.Write(p)
}

func (l *life) Close() error {
	l.closing.Do(func() { close(l.shut) })
	return nil
}

func (l *life) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

func (l *life) connect() (net.Conn, error) {
	client, server := net.Pipe()
	from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(cmp.Or(l.peer, "127.0.0.1")), 5))
	select {
	case l.conns <- conn{server, from}:
		return client, nil
	case <-l.shut:
	case <-l.ended:
	}
	return nil, errors.New("connection refused")
}

// conn comes from an address, as far as the service knows.
type conn struct {
	net.Conn
	from net.Addr
}

func (c conn) RemoteAddr() net.Addr { return c.from }

// environment is what the program has of this world. l is nil for a command.
func (w *world) environment(l *life, in io.Reader, out, errs io.Writer) environment {
	env := realEnvironment()
	env.stdin, env.stdout, env.stderr = in, out, errs
	env.now = func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }
	env.rounds, env.transport = 1, w.net
	if l == nil {
		return env
	}
	env.listen = func(string, string) (net.Listener, error) { return l, nil }
	env.commit = func(commit func() error) error { return w.commit(l, commit) }
	env.checkpoint = func(checkpoint func() error) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		return cmp.Or(l.stuck, checkpoint())
	}
	env.transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if l.isDead() {
			return nil, errDead
		}
		return w.net.RoundTrip(r)
	})
	return env
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// commit performs a COMMIT, unless the program dies there.
func (w *world) commit(l *life, commit func() error) error {
	if l.hold != nil {
		l.hold()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.image != "" {
		return errDead
	}
	if l.fails != nil {
		if l.after {
			must(w.t, commit())
		}
		return l.fails
	}
	if l.amid != nil {
		l.amid()
		l.amid = nil
	}
	l.dieIn--
	if l.dieIn != 0 {
		return commit()
	}
	if l.after {
		must(w.t, commit())
	}
	l.image = w.copyFile()
	return errDead
}

// dieAt lets the program die at a COMMIT, counted from now; 0 is never.
func (l *life) dieAt(n int, after bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dieIn, l.after = n, after
}

// failAt lets each COMMIT from now on fail, on disk or not; nil ends that.
func (l *life) failAt(err error, after bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails, l.after = err, after
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.image != ""
}

// copyFile copies the file and its write-ahead log, if there is one, as they are.
func (w *world) copyFile() (to string) {
	to = filepath.Join(w.t.TempDir(), "shop.db")
	for _, end := range []string{"", "-wal"} {
		data, err := os.ReadFile(w.file + end)
		if end == "" || !errors.Is(err, fs.ErrNotExist) {
			must(w.t, err)
			must(w.t, os.WriteFile(to+end, data, 0o600))
		}
	}
	return to
}

// serveArgs are those of "serve". The limits are out of the way, unless a test has others.
func (w *world) serveArgs() []string {
	args := []string{"serve", "-db", w.file, "-addr", "127.0.0.1:0", "-public-url", "https://shop.test"}
	return append(append(args, "-rate", "1000000", "-burst", "1000000"), w.flags...)
}

func (w *world) start() {
	ctx, stop := context.WithCancel(context.Background())
	l := newLife(stop)
	w.become(l)
	if w.begin != nil {
		w.begin(l)
	}
	env := w.environment(l, strings.NewReader(""), io.Discard, servingLog{w.log, l})
	go func() {
		defer close(l.ended)
		l.code = run(ctx, w.serveArgs(), env)
	}()
	select {
	case <-l.open:
	case <-l.ended:
	}
}

// process is the program in a process of its own, after a command of the shell such as ulimit.
func (w *world) process(first string) *exec.Cmd {
	exe, err := os.Executable()
	must(w.t, err)
	shell := []string{"-c", first + `exec "$0" "$@"`, exe}
	cmd := exec.Command("sh", append(shell, w.serveArgs()...)...)
	cmd.Env = append(os.Environ(), "STOREORDER_TEST_AS_PROGRAM=1")
	return cmd
}

// startProcess starts the program in a process of its own, on a socket. kill ends it as kill -9 does.
func (w *world) startProcess(first string) (kill func()) {
	cmd := w.process(first)
	log := &logBuffer{out: w.log}
	cmd.Stderr = log
	must(w.t, cmd.Start())
	w.t.Cleanup(func() {
		if w.t.Failed() {
			cmd.Process.Kill()
		}
	})

	l := &life{ended: make(chan struct{}), stop: func() { cmd.Process.Signal(os.Interrupt) }}
	go func() {
		defer close(l.ended)
		cmd.Wait()
		l.code = cmd.ProcessState.ExitCode()
	}()
	address := log.await(w.t, `msg=serving address=(\S+)`)
	l.dial = func() (net.Conn, error) { return net.Dial("tcp", address) }
	w.become(l)
	return func() {
		cmd.Process.Kill()
		<-l.ended
	}
}

// become lets clients talk to this life, with https in their addresses as behind a proxy.
func (w *world) become(l *life) {
	w.life = l
	wire := &http.Transport{
		DialTLSContext:      func(context.Context, string, string) (net.Conn, error) { return l.dial() },
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true,
		IdleConnTimeout:     50 * time.Second, // The service closes a connection that was idle for a minute.
	}
	w.http = &http.Client{
		Transport:     wire,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	stop := l.stop
	l.stop = func() {
		stop()
		wire.CloseIdleConnections()
	}
}

// stop ends the service as SIGTERM does and returns its exit code.
func (w *world) stop() int {
	w.life.stop()
	select {
	case <-w.life.ended:
	case <-time.After(time.Minute):
		w.t.Fatal("the service does not stop")
	}
	return w.life.code
}

// startWith stops the service, and starts it with another file.
func (w *world) startWith(file string) {
	w.stop()
	w.file = file
	w.start()
}

// crash ends the service with nothing left but its file as it is, unless it is dead already, and starts it
// again.
func (w *world) crash() {
	l := w.life
	l.mu.Lock()
	if l.image == "" {
		l.image = w.copyFile()
	}
	l.mu.Unlock()
	w.stop()
	w.file = l.image
	w.start()
}

// sleep lets time pass in a bubble, and a little more, so that what becomes due in it is done.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d + 9*time.Second)
	synctest.Wait()
}

// sql does something to the file beside the service, as another program would.
func (w *world) sql(query string, args ...any) {
	w.t.Helper()
	must(w.t, w.trySQL(query, args...))
}

func (w *world) trySQL(query string, args ...any) error {
	w.t.Helper()
	db, err := sql.Open("sqlite3", "file:"+w.file+"?_busy_timeout=5000&_foreign_keys=1")
	must(w.t, err)
	defer db.Close()
	_, err = db.Exec(query, args...)
	return err
}

// value reads one value of the file beside the service.
func (w *world) value(query string, args ...any) (text string) {
	w.t.Helper()
	db, err := sql.Open("sqlite3", "file:"+w.file+"?mode=ro&_busy_timeout=5000")
	must(w.t, err)
	defer db.Close()
	must(w.t, db.QueryRow(query, args...).Scan(&text))
	return text
}

// stdin before the last argument of a command says that it is the command's input.
const stdin = "<"

// command runs one of the program's commands on the world's file: words, and further arguments that may have
// spaces. It has to succeed, and prints a JSON object.
func (w *world) command(words string, more ...string) fields {
	w.t.Helper()
	code, out, errs := w.run(words, more...)
	if code != 0 {
		w.t.Fatalf("%s: exit %d: %s%s", words, code, out, errs)
	}
	var printed fields
	d := json.NewDecoder(strings.NewReader(out))
	d.UseNumber()
	if err := d.Decode(&printed); err != nil || d.More() {
		w.t.Errorf("%s prints something else than one JSON object: %s", words, out)
	}
	return printed
}

func (w *world) run(words string, more ...string) (code int, out, errs string) {
	in := ""
	if n := len(more) - 1; n >= 0 && strings.HasPrefix(more[n], stdin) {
		in, more = more[n][len(stdin):], more[:n]
	}
	var stdout, stderr bytes.Buffer
	args := append(append(strings.Fields(words), "-db", w.file), more...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code = run(ctx, args, w.environment(nil, strings.NewReader(in), &stdout, &stderr))
	return code, stdout.String(), stderr.String()
}

// atCommit begins a command and returns when it is about to commit: all other writes wait until letGo, or until
// the test ends.
func (w *world) atCommit(words string) (letGo func()) {
	env := w.environment(nil, strings.NewReader(""), io.Discard, io.Discard)
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan int)
	begin := sync.OnceFunc(func() { close(begun) })
	env.commit = func(commit func() error) error {
		begin()
		<-goOn
		return commit()
	}
	go func() { ended <- run(w.t.Context(), append(strings.Fields(words), "-db", w.file), env) }()
	<-begun
	letGo = sync.OnceFunc(func() {
		close(goOn)
		if code := <-ended; code != 0 {
			w.t.Errorf("%s ends with %d", words, code)
		}
	})
	w.t.Cleanup(letGo)
	return letGo
}

// textOf is a field as text.
func textOf(in fields, name string) string { return fmt.Sprint(in[name]) }

// response is an answer of the API in the right envelope.
type response struct {
	Status int
	Header http.Header
	Body   []byte
	Data   fields
	Error  replyError
	wrong  string // by openapi.json
}

type replyError struct {
	Code    string
	Message string
	Details []struct {
		Field   string
		Message string
		OrderID string `json:"order_id"`
		Left    *int64
	}
}

// do sends a request and checks that the answer is as openapi.json describes it. A body that is no string is
// encoded. The headers are names and values in turn. They replace the shop's key and the content type; one
// with the value "" is not sent.
func (w *world) do(t *testing.T, method, path string, body any, headers ...string) response {
	t.Helper()
	r, err := w.send(method, path, body, headers...)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return r
	}
	if r.wrong != "" {
		t.Errorf("%s %s: %d %s: %.300s", method, path, r.Status, r.wrong, r.Body)
	}
	return r
}

// send is do for an answer that may not come. url.Values are a form, which a browser sends, without a key.
func (w *world) send(method, path string, body any, headers ...string) (r response, err error) {
	resp, err := w.ask(method, path, body, headers...)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	r.Status, r.Header = resp.StatusCode, resp.Header
	r.Body, err = io.ReadAll(resp.Body)
	r.wrong = r.read(method, path)
	return r, err
}

// ask is send for an answer that nobody reads.
func (w *world) ask(method, path string, body any, headers ...string) (*http.Response, error) {
	sent, usual := "", append(as(w.shop.keys["write"]), "Content-Type", "application/json")
	switch body := body.(type) {
	case nil:
	case string:
		sent = body
	case url.Values:
		sent = body.Encode()
		usual = []string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}
	default:
		encoded, _ := json.Marshal(body)
		sent = string(encoded)
	}
	req, err := http.NewRequest(method, "https://shop.test"+path, strings.NewReader(sent))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		} else if headers[i+1] != "" {
			req.Header.Add(headers[i], headers[i+1])
		}
	}
	for i := 0; i < len(usual); i += 2 {
		if !slices.Contains(headers, usual[i]) {
			req.Header.Set(usual[i], usual[i+1])
		}
	}
	return w.http.Do(req)
}

// browse is send for a page, as a browser asks for it that follows nothing.
func (w *world) browse(method, path string, form url.Values, headers ...string) response {
	w.t.Helper()
	r, err := w.send(method, path, form, headers...)
	must(w.t, err)
	if fault := pageFault(path, r.Status, r.Header, string(r.Body)); fault != "" {
		w.t.Errorf("%s %s", path, fault)
	}
	return r
}

// read takes the data or the error out of the envelope, and returns what is not as openapi.json describes it.
func (r *response) read(method, path string) (wrong string) {
	body := readJSONText(string(r.Body))
	r.Data = asFields(asFields(body)["data"])
	json.Unmarshal(r.Body, &struct{ Error any }{&r.Error})

	none := method == "HEAD" || r.Status == http.StatusNotModified
	switch {
	case none != (len(r.Body) == 0):
		return "has a body, or none"
	case !none && (body == nil || r.Header.Get("Content-Type") != "application/json"):
		return "is no JSON"
	case !strings.HasPrefix(path, "/v1"):
		return ""
	}
	return described().check(method, path, r.Status, r.Header, body)
}

// want reports an answer with another status or error code. The code of a success is "".
func (r response) want(t *testing.T, status int, code string) response {
	t.Helper()
	if r.Status != status || r.Error.Code != code {
		t.Errorf("answer %d %s, want %d %s: %.400s", r.Status, r.Error.Code, status, code, r.Body)
	}
	return r
}

// at is the text of a value in the data, such as at("order.items.0.title"), or "<nil>" if there is none.
func (r response) at(path string) string {
	var v any = r.Data
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case fields:
			v = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(in) {
				return "<nil>"
			}
			v = in[i]
		default:
			return "<nil>"
		}
	}
	return fmt.Sprint(v)
}

// list is a list of objects in the data.
func (r response) list(name string) (all []fields) {
	values, _ := r.Data[name].([]any)
	for _, v := range values {
		all = append(all, v.(fields))
	}
	return all
}

// get reads a path, which has to succeed.
func (w *world) get(t *testing.T, path string, headers ...string) response {
	t.Helper()
	return w.do(t, "GET", path, nil, headers...).want(t, 200, "")
}

// as is the header that gives a request another key.
func as(key string) []string { return []string{"Authorization", "Bearer " + key} }

// body is one for POST /v1/orders: slugs and quantities in turn.
func (s *store) body(items ...any) fields {
	list := []any{}
	for i := 0; i < len(items); i += 2 {
		kind, slug := "product", items[i].(string)
		if slug == "duo" {
			kind = "bundle"
		}
		list = append(list, fields{"type": kind, kind + "_id": s.ids[slug], "quantity": items[i+1]})
	}
	buyer := fields{"name": "Siti Aminah", "email": "siti@example.id", "phone": "0812 3456 789"}
	return fields{"items": list, "buyer": buyer, "payment_method": "bank_transfer"}
}

// temporary is a file with a text.
func (w *world) temporary(text string) (file string) {
	file = filepath.Join(w.t.TempDir(), "file.json")
	must(w.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// endpoint adds a receiver of the shop's webhooks, or only of some events.
func (w *world) endpoint(host string, events ...string) (id string) {
	w.t.Helper()
	return w.endpointOf(w.shop, host, events...)
}

func (w *world) endpointOf(s *store, host string, events ...string) (id string) {
	w.t.Helper()
	words := "webhook add -store " + s.id + " -url https://" + host + "/hook"
	added := w.command(words, "-events", strings.Join(events, ","))
	w.net.inbox.know(host, textOf(added, "secret"))
	return textOf(added, "endpoint_id")
}

// post asks for an order, with the shop's key unless there is another.
func (w *world) post(body any, headers ...string) response {
	w.t.Helper()
	return w.do(w.t, "POST", "/v1/orders", body, headers...)
}

// orderOfOther asks for an order of the other store.
func (w *world) orderOfOther(items ...any) response {
	w.t.Helper()
	return w.post(w.other.body(items...), as(w.other.keys["write"])...)
}

// putCatalog changes the shop's catalog.
func (w *world) putCatalog(catalog any) response {
	w.t.Helper()
	return w.do(w.t, "PUT", "/v1/catalog", catalog, as(w.shop.keys["manage"])...)
}

// create creates an order and returns its id.
func (w *world) create(t *testing.T, items ...any) string {
	t.Helper()
	return w.post(w.shop.body(items...)).want(t, 201, "").at("order.id")
}

// decide approves, rejects, cancels or refunds an order by the API.
func (w *world) decide(t *testing.T, id, act string) {
	t.Helper()
	w.do(t, "POST", "/v1/orders/"+id+"/"+act, fields{}, as(w.shop.keys["manage"])...).want(t, 200, "")
}

// end stops the service and checks what must hold after every test.
func (w *world) end() {
	w.t.Helper()
	private := []string{}
	if !w.ruin && !w.t.Failed() {
		for _, s := range opened.stores {
			private = append(private, w.checkEvents(s)...)
		}
	}
	if code := w.stop(); code != 0 && !w.ruin {
		w.t.Errorf("the service ends with exit code %d", code)
	}
	if w.ruin {
		return
	}
	if out := w.command("check"); textOf(out, "ok") != "true" {
		w.t.Errorf("the file is damaged: %v", out)
	}
	log := w.log.String()
	for _, word := range private {
		if strings.Contains(log, word) {
			w.t.Errorf("the log has %q, which is private", word)
		}
	}
}

// all reads every page of a list of the API. cursor is the parameter that names the last entry of the page
// before.
func (w *world) all(list, cursor, key string) (all []fields) {
	for path := "/v1/" + list + "?limit=50"; ; {
		r := w.get(w.t, path, as(key)...)
		page := r.list(list)
		all = append(all, page...)
		if r.at("has_more") != "true" {
			return all
		}
		path = "/v1/" + list + "?limit=50&" + cursor + "=" + textOf(page[len(page)-1], "id")
	}
}

// checkEvents compares a store's events with its orders: the events of each are numbered without gaps, and
// the last shows the order as it is. It returns what must not be in the log.
func (w *world) checkEvents(s *store) (private []string) {
	last, count := map[string]fields{}, map[string]int{}
	for _, e := range w.all("events", "after", s.keys["read"]) {
		order, _ := e["data"].(fields)["order"].(fields)
		id := textOf(order, "id")
		count[id]++
		last[id] = order
		if order != nil && textOf(e, "sequence") != strconv.Itoa(count[id]) {
			w.t.Errorf("event %d of an order has the sequence %v", count[id], e["sequence"])
		}
		if fault := described().webhook(e); fault != "" {
			w.t.Errorf("an event is not as described: %s", fault)
		}
	}
	delete(last, "<nil>") // pings
	for _, o := range w.all("orders", "starting_after", s.keys["read"]) {
		id, buyer := textOf(o, "id"), o["buyer"].(fields)
		private = append(private, id, textOf(buyer, "email"), textOf(buyer, "phone"))
		for _, shown := range []fields{last[id], o} { // A host that is added changes them, without an event.
			delete(shown, "payment_url")
			delete(shown, "checkout_url")
		}
		if told, now := fmt.Sprint(last[id]), fmt.Sprint(o); told != now {
			w.t.Errorf("the last event of an order shows\n%s\nand the order is\n%s", told, now)
		}
		delete(last, id)
	}
	if len(last) > 0 {
		w.t.Errorf("%d orders have events and are not listed", len(last))
	}
	private = append(private, s.password, s.keys["read"], s.keys["write"], s.keys["manage"])
	return append(private, midtransKey, xenditKey, xenditToken, "whsec_")
}

// testCase is one case of a table in testdata/.
type testCase struct {
	name    string   // its line and its first column, such as "line 12, quantity 0"
	heading string   // the heading above it, "" if there is none
	columns []string // of its line
}

// column returns the column at i, counted from 0, or "" if the line has fewer.
func (c testCase) column(i int) string {
	if i >= len(c.columns) {
		return ""
	}
	return c.columns[i]
}

// readCases reads a table of test cases:
//
//	# A comment: the rule that the cases below are about.
//	A heading, such as the answer to all of them.
//
//	    one case      its second column
//	    another case  its second column  its third column
//
// A case is indented, and its columns have two spaces or more between them. In a column <x*65> stands for 65
// times x and \x0a for the byte 0a, which is how spaces at the ends and bytes that are no text are written.
func readCases(t testing.TB, file string) (all []testCase) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	heading, number := "", 0
	for line := range strings.Lines(string(text)) {
		number++
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, " "):
			heading = trimmed
		default:
			c := testCase{heading: heading}
			for _, column := range columnGap.Split(trimmed, -1) {
				c.columns = append(c.columns, expand(column))
			}
			c.name = fmt.Sprintf("line %d, %.40s", number, c.columns[0])
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no cases", file)
	}
	return all
}

var (
	columnGap    = regexp.MustCompile(` {2,}`)
	byteSpelled  = regexp.MustCompile(`\\x[0-9a-f]{2}`)
	timesSpelled = regexp.MustCompile(`<[^<>]+\*[0-9]+>`)
)

// expand writes out the notations of readCases.
func expand(text string) string {
	text = byteSpelled.ReplaceAllStringFunc(text, func(spelled string) string {
		b, _ := hex.DecodeString(spelled[len(`\x`):])
		return string(b)
	})
	return timesSpelled.ReplaceAllStringFunc(text, func(spelled string) string {
		star := strings.LastIndex(spelled, "*")
		times, _ := strconv.Atoi(spelled[star+1 : len(spelled)-1])
		return strings.Repeat(spelled[1:star], times)
	})
}

// logBuffer keeps a log.
type logBuffer struct {
	out  io.Writer
	mu   sync.Mutex
	text bytes.Buffer
}

// newLog is for the log of a test's service. It is shown after what failed, which a reader wants to see first.
func newLog(t *testing.T) *logBuffer {
	b := &logBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("The service's log:\n%s", b.String())
		}
	})
	return b
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out != nil {
		b.out.Write(p)
	}
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await waits until a pattern is in the log, and returns its last group.
func (b *logBuffer) await(t *testing.T, pattern string) (group string) {
	t.Helper()
	await(t, pattern, func() bool {
		m := regexp.MustCompile(pattern).FindStringSubmatch(b.String())
		if m != nil {
			group = m[len(m)-1]
		}
		return m != nil
	})
	return group
}

// await waits until something has happened, ten seconds at most.
func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this has not happened: %s", what)
		}
	}
}
