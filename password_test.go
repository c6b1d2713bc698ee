//go:build cgo

package main

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newGuardedShop is a server behind a trusted proxy on this machine, so that a test can come from any
// address.
func newGuardedShop(t *testing.T) *testServer {
	t.Helper()
	t.Parallel()
	s := newTestServerWith(t, settings{
		publicURL:    "http://127.0.0.1", // where the test's requests go
		rate:         100_000,
		burst:        100_000,
		trustedProxy: netip.MustParsePrefix("127.0.0.0/8"),
	})
	s.open(t, s.storeID)
	return s
}

// at is a browser at an address.
func (s *testServer) at(address string) *browser {
	b := s.browser()
	b.header.Set("X-Forwarded-For", address)
	return b
}

// elsewhere is the address of the stranger i, each in a network of its own.
func elsewhere(i int) string { return fmt.Sprintf("198.%d.%d.7", 18+i/256, i%256) }

// TestManyPasswordsAtOnce has 400 strangers at as many addresses, while the owner signs in where they did
// before.
func TestManyPasswordsAtOnce(t *testing.T) {
	const home, strangers = "203.0.113.5", 400
	s := newGuardedShop(t)
	s.everywhere = newLimiter(1, 1000) // The limit of the account is not what this test is about.
	s.at(home).signIn(t, ownerEmail, ownerPassword).leads(t, "/dashboard")

	var hashed, refused atomic.Int32
	begun := make(chan struct{})
	var owner screen
	parallel(strangers+1, func(i int) {
		if i == strangers {
			<-begun
			owner = s.at("203.0.113.77").signIn(t, ownerEmail, ownerPassword)
			return
		}

		page := s.at(elsewhere(i)).signIn(t, ownerEmail, "wrong password")
		switch page.status {
		case http.StatusUnprocessableEntity:
			hashed.Add(1)
		case http.StatusTooManyRequests:
			page.has(t, 429, "Tunggu 5 detik")
			if refused.Add(1) == 1 {
				close(begun)
			}
		default:
			t.Errorf("status %d", page.status)
		}
	})

	t.Run("the owner signs in", func(t *testing.T) {
		owner.leads(t, "/dashboard")
	})
	t.Run("few passwords are hashed", func(t *testing.T) {
		if n := hashed.Load(); n < 1 || n > 40 {
			t.Errorf("%d of %d are hashed, want some of those who came first", n, strangers)
		}
	})
	t.Run("who was refused has not used up a try", func(t *testing.T) {
		if used := len(s.accounts.buckets); used != int(hashed.Load()) {
			t.Errorf("%d addresses have used up a try, want those of %d", used, hashed.Load())
		}
	})
}

// TestSignInsAreAdmittedOneAtATime has two sign-ins wait for a third one. One of their clients goes away.
func TestSignInsAreAdmittedOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		must(t, s.db.SetPassword(t.Context(), s.storeID, ownerHash))
		s.admitting <- struct{}{}
		gone, goAway := context.WithCancel(t.Context())
		answers := make(chan int, 2)
		for _, ctx := range []context.Context{t.Context(), gone} {
			form := url.Values{"email": {ownerEmail}, "password": {ownerPassword}}
			r := httptest.NewRequestWithContext(ctx, "POST", "/dashboard/login", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			go func() { answers <- serveOnce(s.routes(), r).Code }()
		}

		synctest.Wait()
		if used := len(s.accounts.buckets); used != 0 || len(answers) != 0 {
			t.Errorf("%d tries are counted and %d answered before their turn", used, len(answers))
		}
		goAway()
		if got := <-answers; got != http.StatusServiceUnavailable {
			t.Errorf("who has gone is answered %d", got)
		}
		<-s.admitting
		if got := <-answers; got != http.StatusSeeOther {
			t.Errorf("the other one is answered %d, want 303", got)
		}
	})
}

// TestASlowFormHoldsUpNoSignIn has a client send half of its form while the owner signs in.
func TestASlowFormHoldsUpNoSignIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleServer(t)
		must(t, s.db.SetPassword(t.Context(), s.storeID, ownerHash))
		routes := s.routes()
		signIn := func(form io.Reader, length int) int {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/dashboard/login", form)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.ContentLength = int64(length)
			return serveOnce(routes, r).Code
		}

		half, client := io.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			signIn(half, 100)
		}()
		_, err := io.WriteString(client, "email=") // It returns when the handler has read this.
		must(t, err)

		form := url.Values{"email": {ownerEmail}, "password": {ownerPassword}}.Encode()
		if got := signIn(strings.NewReader(form), len(form)); got != http.StatusSeeOther {
			t.Errorf("the owner is answered %d, want 303", got)
		}
		must(t, client.CloseWithError(io.ErrUnexpectedEOF))
		<-ended
	})
}

// TestHashQueue is about who waits, for how long, and in which order.
func TestHashQueue(t *testing.T) {
	t.Parallel()
	newQueue := func() *hashQueue { return &hashQueue{free: 1} }
	join := func(t *testing.T, q *hashQueue, account string, known bool) *hashTurn {
		t.Helper()
		turn, ok := q.join(account, known)
		if !ok {
			t.Fatalf("no place for %s", account)
		}
		return turn
	}

	t.Run("half of the cores are for others", func(t *testing.T) {
		for cores, want := range map[int]int{1: 1, 2: 1, 4: 2, 16: 8} {
			if got := hashesAtOnce(cores); got != want {
				t.Errorf("%d hashes at once on %d cores, want %d", got, cores, want)
			}
		}
	})

	t.Run("few may wait, and an owner always may", func(t *testing.T) {
		q := newQueue()
		join(t, q, "a@example.id", false)
		for range strangersWaiting {
			join(t, q, "a@example.id", false)
		}
		if _, ok := q.join("a@example.id", false); ok {
			t.Error("one stranger more may wait")
		}

		for range ownersWaiting {
			join(t, q, "a@example.id", true)
		}
		if _, ok := q.join("a@example.id", true); ok {
			t.Error("an account has more places than it should")
		}
		join(t, q, "b@example.id", true)
	})

	t.Run("owners go first", func(t *testing.T) {
		q := newQueue()
		running := join(t, q, "first", false)
		turns := []*hashTurn{
			join(t, q, "stranger", false),
			join(t, q, "owner", true),
			join(t, q, "other owner", true),
		}
		for _, i := range []int{1, 2, 0} {
			q.leave(running)
			running = turns[i]
			if err := running.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		q.leave(running)
		if q.free != 1 || len(q.waiting) != 0 {
			t.Errorf("%d free and %d waiting after all have left", q.free, len(q.waiting))
		}
	})

	t.Run("whose client has gone does not wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			running := join(t, q, "first", false)
			gone := join(t, q, "gone", false)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := gone.wait(ctx); err != context.DeadlineExceeded {
				t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
			}

			q.leave(gone)
			q.leave(running)
			if q.free != 1 {
				t.Error("the queue still waits for who has gone")
			}
		})
	})
}

// TestPasswordsOfClientsThatHaveGone gives up a request that waits for its turn. Its password is never
// hashed.
func TestPasswordsOfClientsThatHaveGone(t *testing.T) {
	s := newGuardedShop(t)
	s.hashing = &hashQueue{free: 1}
	turn, _ := s.hashing.join("somebody", false) // It never ends.
	defer s.hashing.leave(turn)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	form := url.Values{"email": {ownerEmail}, "password": {"wrong"}}
	r := httptest.NewRequestWithContext(ctx, "POST", "/dashboard/login", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	begun := time.Now()
	s.routes().ServeHTTP(httptest.NewRecorder(), r)

	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if n := len(s.hashing.waiting); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// TestIPv6Networks tries passwords from 1,000 networks of one customer, who has a /48.
func TestIPv6Networks(t *testing.T) {
	t.Parallel()
	l := newAddressLimiter(5, 20)
	now := time.Unix(0, 0)
	taken := 0
	for i := range 1000 {
		if l.take(netip.MustParseAddr(fmt.Sprintf("2001:db8:1:%x::1", i)), now).ok {
			taken++
		}
	}
	if taken != 80 {
		t.Errorf("%d tries from one /48, want 80", taken)
	}

	if !l.take(netip.MustParseAddr("2001:db8:2::1"), now).ok {
		t.Error("another /48 is refused")
	}
	if !l.take(netip.MustParseAddr("192.0.2.1"), now).ok {
		t.Error("an IPv4 address is refused")
	}
}

// TestHashPassword compares our hash with that of the standard library, which keeps the passwords of today valid.
func TestHashPassword(t *testing.T) {
	t.Parallel()
	salt := []byte("0123456789abcdef")
	want, err := pbkdf2.Key(sha256.New, ownerPassword, salt, 600_000, 32)
	must(t, err)
	if got := realEnvironment().hashPassword(ownerPassword, salt).Hash; !bytes.Equal(got, want) {
		t.Errorf("hash %x, want %x", got, want)
	}
}

// TestHashingHasTheLowestPriority looks at the threads of this process while a password is hashed: one has a low
// priority, and all others keep theirs. It is not parallel, so that no other test hashes meanwhile.
func TestHashingHasTheLowestPriority(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has priorities of threads")
	}
	const lowest = 19
	before := len(threadsByPriority(t)[lowest]) // 1 if the first thread has hashed: it is kept, and never used again

	hashed := make(chan PasswordHash)
	go func() { hashed <- realEnvironment().hashPassword(ownerPassword, []byte("0123456789abcdef")) }()
	most := 0
	for done := false; !done; {
		select {
		case <-hashed:
			done = true
		default:
			most = max(most, len(threadsByPriority(t)[lowest]))
		}
	}
	if most != before+1 {
		t.Errorf("%d more threads have the lowest priority, want the one that hashes", most-before)
	}
}

// threadsByPriority lists this process's threads by their nice values: see proc_pid_stat(5).
func threadsByPriority(t *testing.T) map[int][]string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/stat")
	must(t, err)

	threads := map[int][]string{}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // The thread has ended.
		}
		_, afterName, _ := strings.Cut(string(stat), ") ")
		nice, err := strconv.Atoi(strings.Fields(afterName)[16])
		must(t, err)
		threads[nice] = append(threads[nice], file)
	}
	return threads
}

// lockOut has strangers at 256 addresses use up the tries that they have together.
func (s *testServer) lockOut(t *testing.T) {
	t.Helper()
	storeID, kept, err := s.db.Password(ownerEmail)
	must(t, err)
	for i := range 256 {
		from := netip.MustParseAddr(elsewhere(i))
		try := passwordTry{email: ownerEmail, from: from}
		s.limitsOf(try, kept, false, placeOf(storeID, from)).take(time.Now())
	}
}

// TestStrangersEverywhere has strangers at 256 addresses try passwords for one account.
func TestStrangersEverywhere(t *testing.T) {
	const home, away = "203.0.113.5", "192.0.2.5"
	s := newGuardedShop(t)
	s.at(home).signIn(t, ownerEmail, ownerPassword).leads(t, "/dashboard")
	s.lockOut(t)

	t.Run("they lock out who was never there", func(t *testing.T) {
		s.at(away).signIn(t, ownerEmail, ownerPassword).has(t, 429)
	})

	t.Run("where the owner has signed in before, they can", func(t *testing.T) {
		s.at(home).signIn(t, ownerEmail, ownerPassword).leads(t, "/dashboard")
		s.at("203.0.113.200").signIn(t, ownerEmail, ownerPassword).leads(t, "/dashboard")
	})

	t.Run("also on the account page, wherever they are signed in", func(t *testing.T) {
		b := s.at(home)
		b.signIn(t, ownerEmail, ownerPassword).leads(t, "/dashboard")
		b.header.Set("X-Forwarded-For", away)
		b.changePassword(t, "wrong", "tujuh gajah menari").has(t, 422, "bukan kata sandi Anda")
	})

	t.Run("a new password resets the count, by a command too", func(t *testing.T) {
		// The command is another process, with a connection of its own.
		db, err := openDB(s.db.path, false)
		must(t, err)
		defer db.Close()
		must(t, db.SetPassword(t.Context(), s.storeID, realEnvironment().hashNewPassword("tujuh gajah menari")))
		s.at(away).signIn(t, ownerEmail, "tujuh gajah menari").leads(t, "/dashboard")
	})

	t.Run("no address is in the database", func(t *testing.T) {
		n := scalar[int](t, s.db, `
			SELECT count(*)
			FROM   known_places
			WHERE  instr(CAST(place AS TEXT), '203.0.113') OR length(place) <> 32`)
		if n != 0 {
			t.Errorf("%d places are not hashes", n)
		}
	})
}

// TestPlacesAreForgotten signs in at more places than are kept.
func TestPlacesAreForgotten(t *testing.T) {
	t.Parallel()
	s := newBubbleServer(t)
	otherID, _ := s.addStore(t, "lain", "growth")
	signInAt := func(storeID string, i int) place {
		at := placeOf(storeID, netip.MustParseAddr(elsewhere(i)))
		_, hash := newToken("")
		must(t, s.db.AddSignIn(t.Context(), storeID, hash, at))
		s.exec(t, "UPDATE known_places SET seen_at = seen_at - 1000")
		return at
	}
	knows := func(storeID string, at place) bool {
		known, err := s.db.KnowsPlace(storeID, at)
		must(t, err)
		return known
	}

	others := signInAt(otherID, 0)
	first := signInAt(s.storeID, 0)
	second := signInAt(s.storeID, 1)
	for i := range placesKept - 1 {
		signInAt(s.storeID, 2+i)
	}
	if knows(s.storeID, first) {
		t.Error("the oldest place is still known")
	}
	if !knows(s.storeID, second) {
		t.Error("a place is forgotten too early")
	}
	if !knows(otherID, others) {
		t.Error("another store's place is forgotten")
	}

	s.exec(t, "UPDATE known_places SET seen_at = seen_at - ?", placeForgets.Milliseconds())
	signInAt(s.storeID, 100)
	if knows(s.storeID, second) {
		t.Error("a place is still known after half a year")
	}
}

// TestChosenPasswords is about the passwords of testdata/passwords.txt.
func TestChosenPasswords(t *testing.T) {
	t.Parallel()
	st := StoreProfile{Store: Store{Slug: "kopi-kita"}, Name: "Kopi Kita", OwnerEmail: ownerEmail}
	for _, c := range readCases(t, "testdata/passwords.txt") {
		t.Run(c.name, func(t *testing.T) {
			want := FaultCode(c.heading)
			if c.heading == "good" {
				want = ""
			}
			if got := checkChosen(c.column(0), st).Code; got != want {
				t.Errorf("fault %q, want %q", got, want)
			}
		})
	}
}

// TestWeakPasswordIsExplained changes the password to one that is refused.
func TestWeakPasswordIsExplained(t *testing.T) {
	s := newShop(t, "http://shop.test")
	b := s.owner(t, ownerEmail)
	b.changePassword(t, ownerPassword, "aaaaaaaaaaaa").has(t, 422, "mengulang beberapa karakter")
	b.header.Set("Accept-Language", "en")
	b.changePassword(t, ownerPassword, "kopi-kita-2026").has(t, 422, "little more than your store’s name")
	b.changePassword(t, ownerPassword, "password1234").has(t, 422, "are the first to be guessed")
}

// TestWaysBackFromTheSignInPage is about the paths of testdata/own-paths.txt.
func TestWaysBackFromTheSignInPage(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t, "testdata/own-paths.txt") {
		t.Run(c.name, func(t *testing.T) {
			path := c.column(0)
			want := path
			if c.heading == "bad" {
				want = "/dashboard/preset"
			}
			if got := ownPath(path, "/dashboard/preset"); got != want {
				t.Errorf("leads to %q, want %q", got, want)
			}
		})
	}
}

// TestSignInLeadsToNoOtherSite signs in at an address that somebody else has made.
func TestSignInLeadsToNoOtherSite(t *testing.T) {
	s := newShop(t, "http://shop.test")
	page := s.browser().post(t, "/dashboard/login",
		"email", ownerEmail,
		"password", ownerPassword,
		"next", "/dashboard/../%5Cevil.example")
	page.leads(t, "/dashboard")
}

// TestPlacesOfAnUpgradedFile opens a file of an older version: the table of places is there.
func TestPlacesOfAnUpgradedFile(t *testing.T) {
	t.Parallel()
	db, st := openMigrated(t, unzip(t, filepath.Join("testdata", "v2.db.gz")))
	known, err := db.KnowsPlace(st.ID, placeOf(st.ID, netip.MustParseAddr("192.0.2.1")))
	must(t, err)
	if known {
		t.Error("a place is known in a file that has none")
	}
}
