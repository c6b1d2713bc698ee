//go:build cgo

package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"math"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// PasswordHash is an owner's password as it is kept: PBKDF2-SHA-256, 600,000 rounds.
type PasswordHash struct{ Salt, Hash []byte }

const saltSize = 16

// hashPassword hashes a password on a thread of its own, of the lowest priority: a thread that answers a request
// may wake up on the same core, and would wait some milliseconds for its turn there.
func (e environment) hashPassword(password string, salt []byte) PasswordHash {
	hashed := make(chan []byte)
	go func() {
		runtime.LockOSThread() // It is never unlocked, so the thread ends with this goroutine.
		lowerPriority()
		hashed <- deriveHash(password, salt, e.rounds)
	}()
	return PasswordHash{salt, <-hashed}
}

// deriveHash is PBKDF2 (RFC 8018, section 5.2) for a key as long as the hash. It lets other goroutines run every fraction
// of a millisecond: crypto/pbkdf2 would hold them up for ten, until the scheduler interrupts it. Now and then it
// sleeps, because the scheduler looks for new requests only when it has nothing else to run.
func deriveHash(password string, salt []byte, rounds int) []byte {
	const pause, sleep = 500, 5_000
	mac := hmac.New(sha256.New, []byte(password))
	mac.Write(salt)
	mac.Write([]byte{0, 0, 0, 1}) // the number of the block
	u := mac.Sum(nil)
	hash := slices.Clone(u)

	for i := 1; i < rounds; i++ {
		if i%pause == 0 {
			runtime.Gosched()
		}
		if i%sleep == 0 {
			time.Sleep(50 * time.Microsecond)
		}
		mac.Reset()
		mac.Write(u)
		u = mac.Sum(u[:0])
		subtle.XORBytes(hash, hash, u)
	}
	return hash
}

func (e environment) hashNewPassword(password string) PasswordHash {
	return e.hashPassword(password, randomBytes(saltSize))
}

// newPassword returns a password of 120 random bits and its hash.
func (e environment) newPassword() (string, PasswordHash) {
	password := base64.RawURLEncoding.EncodeToString(randomBytes(15))
	return password, e.hashNewPassword(password)
}

// Password finds the store of an owner, and how their password is kept. For an unknown e-mail it returns
// errNotFound and a hash that no password has.
func (db *DB) Password(email string) (storeID string, pw PasswordHash, err error) {
	const query = "SELECT id, password_salt, password_hash FROM stores WHERE owner_email = ?"
	err = queryInto(db.reader, []any{&storeID, &pw.Salt, &pw.Hash}, query, email)
	return storeID, pw, err
}

// SetPassword gives the owner another password and ends their sign-ins.
func (db *DB) SetPassword(ctx context.Context, storeID string, pw PasswordHash) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := tx.exec("DELETE FROM owner_sessions WHERE store_id = ?", storeID); err != nil {
			return err
		}
		return tx.mustChange("UPDATE stores SET password_salt = ?, password_hash = ? WHERE id = ?",
			pw.Salt, pw.Hash, storeID)
	})
}

// passwordTry is a password that somebody gives for an account.
type passwordTry struct {
	email    string
	password string
	from     netip.Addr
	signedIn bool // whoever gives it is signed in to this account
}

// checkPassword finds the store of an owner who gives their e-mail and password. Anything else is
// errNotFound. A positive wait means that neither was looked at: too many passwords were tried for this
// account or from this address, or too many are waiting to be hashed. If ctx ends before the hashing begins,
// the error is its error.
func (s *server) checkPassword(
	ctx context.Context, try passwordTry,
) (storeID string, wait time.Duration, err error) {
	admitted, wait, err := s.admit(try)
	if wait > 0 || err != nil {
		return "", wait, err
	}
	storeID, err = admitted.check(ctx)
	return storeID, 0, err
}

// admittedTry is a passwordTry that has a place in the queue. check has to be called.
type admittedTry struct {
	queue    *hashQueue
	storeID  string
	password string
	kept     PasswordHash
	known    bool // somebody has this e-mail
	turn     *hashTurn
	limits   tryLimits
}

// admit gives a try a place in the queue of passwords to hash, unless it is one too many.
func (s *server) admit(try passwordTry) (admitted admittedTry, wait time.Duration, err error) {
	if len(try.email) > 254 {
		try.email = "" // Nobody has it, and no limiter is to keep it.
	}
	storeID, kept, notOurs := s.db.Password(try.email)
	if notOurs != nil && notOurs != errNotFound {
		return admitted, 0, notOurs
	}

	at := placeOf(storeID, try.from)
	known, err := s.db.KnowsPlace(storeID, at)
	if err != nil {
		return admitted, 0, err
	}
	known = known || try.signedIn

	// A place in the queue comes first, so that nobody uses up a try without getting an answer.
	turn, ok := s.hashing.join(try.email, known)
	if !ok {
		return admitted, busyWait, nil
	}

	limits := s.limitsOf(try, kept, known, at)
	if wait := limits.take(time.Now()); wait > 0 {
		s.hashing.leave(turn)
		return admitted, wait, nil
	}
	return admittedTry{
		queue:    s.hashing,
		storeID:  storeID,
		password: try.password,
		kept:     kept,
		known:    notOurs == nil,
		turn:     turn,
		limits:   limits,
	}, 0, nil
}

// check waits for the try's turn, hashes its password, and gives the place in the queue back.
func (a admittedTry) check(ctx context.Context) (storeID string, err error) {
	defer a.queue.leave(a.turn)
	if err := a.turn.wait(ctx); err != nil {
		return "", err
	}

	// The password is hashed for an e-mail that nobody has too, so that the answer takes as long.
	given := a.limits.db.env.hashPassword(a.password, a.kept.Salt)
	if subtle.ConstantTimeCompare(given.Hash, a.kept.Hash) == 0 || !a.known {
		return "", errNotFound
	}
	a.limits.forget()
	return a.storeID, nil
}

// tryLimits are the limits that a passwordTry counts against.
type tryLimits struct {
	*server
	from netip.Addr
	here string // key of accounts
	all  string // key of everywhere
}

// limitsOf says what a try counts against. An account has few tries from one address and more from all
// together. From where its owner has signed in before, it has tries of its own, so that strangers elsewhere
// do not lock them out.
//
// A new password is kept with a new salt. With the salt in them, the keys are new too: setting a password,
// also by the command, resets the count.
func (s *server) limitsOf(try passwordTry, kept PasswordHash, known bool, at place) tryLimits {
	account := try.email + " " + string(kept.Salt)
	limits := tryLimits{
		server: s,
		from:   try.from,
		here:   account + " from " + countedAs(try.from),
		all:    account,
	}
	if known {
		limits.all = account + " at " + string(at[:])
	}
	return limits
}

// take counts a try. It returns how long to wait, if it is one too many. What one limit refuses does not
// count against the next.
func (l tryLimits) take(now time.Time) (wait time.Duration) {
	left := l.accounts.take(l.here, now)
	if left.ok {
		left = l.addresses.take(l.from, now)
	}
	if left.ok {
		left = l.everywhere.take(l.all, now)
	}
	if !left.ok {
		return left.retryAfter
	}
	return 0
}

// forget gives the account its tries back.
func (l tryLimits) forget() {
	l.accounts.forget(l.here)
	l.everywhere.forget(l.all)
}

// hashQueue lets few passwords be hashed at a time, so that sign-ins do not starve the API: half of the cores
// are for others. Few more may wait. Owners go first where they are known, and strangers cannot take their
// places in the queue.
type hashQueue struct {
	mu      sync.Mutex
	free    int         // how many hashes could begin now
	waiting []*hashTurn // the known owners first
}

const (
	strangersWaiting = 8 // in all
	ownersWaiting    = 2 // of an account
	busyWait         = 5 * time.Second
)

func newHashQueue() *hashQueue { return &hashQueue{free: hashesAtOnce(runtime.GOMAXPROCS(0))} }

func hashesAtOnce(cores int) int { return max(1, cores/2) }

// hashTurn is a place in a hashQueue.
type hashTurn struct {
	account string
	known   bool // the account's owner, as far as we know: see limitsOf
	begin   chan struct{}
}

// join takes a place in the queue, if there is one. The caller has to leave it.
func (q *hashQueue) join(account string, known bool) (turn *hashTurn, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	turn = &hashTurn{account, known, make(chan struct{})}
	if q.free > 0 {
		q.free--
		close(turn.begin)
		return turn, true
	}

	owners, alike := 0, 0
	for _, other := range q.waiting {
		if other.known {
			owners++
		}
		if other.known == known && (!known || other.account == account) {
			alike++
		}
	}

	most, position := strangersWaiting, len(q.waiting)
	if known {
		most, position = ownersWaiting, owners
	}
	if alike >= most {
		return nil, false
	}
	q.waiting = slices.Insert(q.waiting, position, turn)
	return turn, true
}

// leave gives a place back, or the turn to the next one.
func (q *hashQueue) leave(turn *hashTurn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, turn)
	switch {
	case i >= 0: // It was given up before it was its turn.
		q.waiting = slices.Delete(q.waiting, i, i+1)
	case len(q.waiting) > 0:
		close(q.waiting[0].begin)
		q.waiting = slices.Delete(q.waiting, 0, 1)
	default:
		q.free++
	}
}

// wait waits for the turn to begin. An error says that ctx has ended before.
func (t *hashTurn) wait(ctx context.Context) error {
	select {
	case <-t.begin:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// place is where an owner has signed in: a hash of a network and of the store's id, so that the database does
// not show addresses.
type place [sha256.Size]byte

// placeOf returns the place of an address: its /24, or its /64 if it is IPv6.
func placeOf(storeID string, ip netip.Addr) place {
	bits := 24
	if ip.Is6() {
		bits = 64
	}
	return sha256.Sum256([]byte(storeID + " " + prefixOf(ip, bits)))
}

const (
	placesKept   = 20 // of a store
	placeForgets = 180 * 24 * time.Hour
)

// KnowsPlace reports whether a store's owner has signed in at a place before.
func (db *DB) KnowsPlace(storeID string, at place) (bool, error) {
	return queryOne(db.reader, scanValue[bool],
		"SELECT EXISTS (SELECT 1 FROM known_places WHERE store_id = ? AND place = ?)", storeID, at[:])
}

// rememberPlace records that a store's owner signs in at a place, and forgets the oldest ones.
func (tx *Tx) rememberPlace(storeID string, at place) error {
	_, err := tx.exec(`
		INSERT INTO known_places (store_id, place, seen_at)
		VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at`, storeID, at[:], tx.now)
	if err != nil {
		return err
	}

	_, err = tx.exec(`
		DELETE FROM known_places
		WHERE  store_id = ?1 AND (seen_at <= ?2 OR place NOT IN (
		           SELECT place FROM known_places
		           WHERE  store_id = ?1
		           ORDER BY seen_at DESC LIMIT +?3))`,
		storeID, tx.now.Add(-placeForgets), placesKept)
	return err
}

// account changes the owner's password, which ends their other sign-ins.
func (s *server) account(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	page := newSettingsPage(r, st)
	if r.Method != http.MethodPost {
		return render(w, r, page.status(), "dash-account.html", page)
	}

	password := r.PostForm.Get("new_password")
	hash, faults, err := s.hashChosen(r, st, password)
	if err != nil {
		return err
	}
	if faults != nil {
		page.Form.Faults = faults
		return render(w, r, page.status(), "dash-account.html", page)
	}

	if err := s.db.SetPassword(r.Context(), st.ID, hash); err != nil {
		return err
	}
	if err := s.signIn(w, r, st.ID); err != nil {
		return err
	}
	return done(w, r, "/dashboard/account", "password")
}

// hashChosen hashes the new password of the account page's form, or returns what is wrong with the form. The
// current password comes first.
func (s *server) hashChosen(
	r *http.Request, st StoreProfile, password string,
) (hash PasswordHash, faults formFaults, err error) {
	_, wait, err := s.checkPassword(r.Context(), passwordTry{
		email:    st.OwnerEmail,
		password: r.PostForm.Get("password"),
		from:     s.clientAddress(r),
		signedIn: true,
	})
	if wait > 0 {
		return hash, waitFault(wait), nil
	}
	if err == errNotFound {
		return hash, formFaults{"password": {Code: FaultPassword}}, nil
	}
	if err != nil {
		return hash, nil, err
	}

	weak := checkChosen(password, st)
	if weak.Code != "" {
		return hash, formFaults{"new_password": weak}, nil
	}

	turn, ok := s.hashing.join(st.OwnerEmail, true)
	if !ok {
		return hash, waitFault(busyWait), nil
	}
	defer s.hashing.leave(turn)
	if err := turn.wait(r.Context()); err != nil {
		return hash, nil, err
	}
	return s.db.env.hashNewPassword(password), nil, nil
}

func waitFault(wait time.Duration) formFaults {
	return formFaults{"password": {Code: FaultTries, Least: int64(math.Ceil(wait.Seconds()))}}
}

// commonWords are what the passwords that are guessed first are made of, also in Indonesia.
var commonWords = strings.Fields(`
	1234567890 123456789 12345678 1234567 123456 12345 1234 123 0987654321 987654321 87654321 7654321
	654321 54321 4321 abcdefghijklmnopqrstuvwxyz abcdefghijkl abcdefgh abcdef abcde abcd abc
	qwertyuiopasdfghjklzxcvbnm qwertyuiop qwerty qwer asdfghjkl asdfgh asdf zxcvbnm zxcvbn zxcv
	1q2w3e4r5t6y 1q2w3e4r 1qaz2wsx password passw0rd p@ssw0rd p@ssword passwort pass letmein welcome
	iloveyou monkey dragon football sunshine princess changeme secret default login administrator admin
	root user test guest master superman trustno1 whatever katasandi kata sandi rahasia sayangku sayang
	cintaku cinta bismillah alhamdulillah indonesia jakarta bandung surabaya garuda merdeka semangat
	selamat datang tokoonline toko warung`)

// checkChosen returns what is wrong with a password that an owner has chosen, if anything is. A good one is
// long, and something is left of it without repetitions, the store's names and the commonest words.
func checkChosen(password string, st StoreProfile) Fault {
	length := utf8.RuneCountInString(password)
	if length < 12 || length > 200 {
		return Fault{Code: FaultNewPassword, Least: 12, Most: 200}
	}
	if repeats(password) {
		return Fault{Code: FaultRepeated}
	}

	local, domain, _ := strings.Cut(st.OwnerEmail, "@")
	host, _, _ := strings.Cut(domain, ".")
	own := append(strings.Fields(st.Name), st.Name, st.Slug, st.OwnerEmail, local, domain, host)
	rest := without(plain(password), own)
	if tooShort(rest) {
		return Fault{Code: FaultPersonal}
	}
	if tooShort(without(rest, commonWords)) {
		return Fault{Code: FaultCommon}
	}
	return Fault{}
}

func tooShort(rest string) bool { return utf8.RuneCountInString(rest) < 6 }

// repeats reports whether a password is one piece again and again, or little more than a few characters and
// marks.
func repeats(password string) bool {
	if tooShort(plain(password)) {
		return true
	}

	chars := []rune(plain(password))
	for n := 1; n <= len(chars)/2; n++ {
		if slices.Equal(chars[n:], chars[:len(chars)-n]) {
			return true
		}
	}

	slices.Sort(chars)
	return len(slices.Compact(chars)) < 5
}

// plain is a text in lower case without the marks that people put between words.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" -_.", r) {
			return -1
		}
		return unicode.ToLower(r)
	}, text)
}

// without takes words out of a text, the longest first. Those of less than three characters stay.
func without(text string, words []string) string {
	words = slices.Clone(words)
	slices.SortStableFunc(words, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, word := range words {
		word = plain(word)
		if utf8.RuneCountInString(word) >= 3 {
			text = strings.ReplaceAll(text, word, "")
		}
	}
	return text
}
