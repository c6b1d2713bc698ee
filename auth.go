//go:build cgo

package main

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

var (
	errUnauthorized = &APIError{Code: codeUnauthorized, Message: "Missing or invalid Authorization header."}
	errPlanRequired = &APIError{Code: codePlanRequired, Message: "Public API is not available on this store's plan."}
	errRateLimited  = &APIError{Code: codeRateLimited, Message: "Rate limit exceeded."}
)

// newToken makes a secret of 32 random bytes, in 43 characters after its prefix, and the hash that is kept of it.
func newToken(prefix string) (token string, hash [32]byte) {
	b := make([]byte, 32)
	rand.Read(b)
	token = prefix + base64.RawURLEncoding.EncodeToString(b)
	return token, sha256.Sum256([]byte(token))
}

// APIKey is a key without its secret, of which only a hash is kept.
type APIKey struct {
	ID         string `json:"key_id"`
	StoreID    string `json:"store_id"`
	Name       string `json:"name"`
	CreatedAt  Time   `json:"created_at"`
	LastUsedAt *Time  `json:"last_used_at"`
	RevokedAt  *Time  `json:"revoked_at"`
}

func (db *DB) AddKey(ctx context.Context, storeID, name string, hash [32]byte) (id string, err error) {
	err = db.write(ctx, func(tx *Tx) error {
		id = tx.newID()
		return tx.mustChange(`INSERT INTO api_keys (id, store_id, name, hash, created_at)
			SELECT ?, id, ?, ?, ? FROM stores WHERE id = ?`, id, name, hash[:], tx.now, storeID)
	})
	return id, err
}

const sqlKeys = "SELECT id, store_id, name, created_at, last_used_at, revoked_at FROM api_keys WHERE store_id = ? ORDER BY id"

// Keys lists a store's keys, the oldest first.
func (db *DB) Keys(storeID string) ([]APIKey, error) {
	return collect(db.reader, func(k *APIKey) []any {
		return []any{&k.ID, &k.StoreID, &k.Name, &k.CreatedAt, &k.LastUsedAt, &k.RevokedAt}
	}, sqlKeys, storeID)
}

// RevokeKey ends a key at once and for ever.
func (db *DB) RevokeKey(ctx context.Context, storeID, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange("UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ? AND store_id = ?", tx.now, id, storeID)
	})
}

const sqlKeyLookup = "SELECT " + storeColumns + `, k.id FROM api_keys k JOIN stores s ON s.id = k.store_id
	WHERE k.hash = ? AND k.revoked_at IS NULL`

// StoreOfKey finds the store that a key opens. It is read every time: a revoked key ends with the next request.
func (db *DB) StoreOfKey(hash [32]byte) (keyID string, st Store, err error) {
	st, err = db.store(db.reader, []any{&keyID}, sqlKeyLookup, hash[:])
	return keyID, st, err
}

// bearerToken is the key of "Authorization: Bearer <key>", "" if the header is not exactly that.
func bearerToken(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if len(h.Values("Authorization")) != 1 || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// authenticate finds the store whose key a request carries, and counts the request against its limit. It sets the
// headers that go with every answer.
func (s *server) authenticate(header http.Header, r *http.Request) (Store, error) {
	now := time.Now()
	keyID, st, err := s.db.StoreOfKey(sha256.Sum256([]byte(bearerToken(r.Header))))
	if err == errNotFound {
		if left := s.wrongKeys.take(s.clientAddress(r), now); !left.ok {
			header.Set("Retry-After", seconds(left.retryAfter))
			return st, errRateLimited
		}
		header.Set("WWW-Authenticate", "Bearer")
		return st, errUnauthorized
	} else if err != nil {
		return st, err
	}
	s.keyUse.note(keyID, now)
	left := s.keys.take(keyID, now)
	header.Set("X-RateLimit-Limit", strconv.Itoa(int(s.keys.perMinute)))
	header.Set("X-RateLimit-Remaining", strconv.Itoa(left.remaining))
	header.Set("X-RateLimit-Reset", seconds(left.full))
	if !left.ok {
		header.Set("Retry-After", seconds(left.retryAfter))
		return st, errRateLimited
	}
	if st.Plan == "free" {
		return st, errPlanRequired
	}
	return st, nil
}

// seconds are whole and rounded up.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

// limiter holds one token bucket per key.
type limiter struct {
	perMinute, burst float64
	mu               sync.Mutex
	buckets          map[string]bucket
}

type bucket struct {
	tokens float64
	at     time.Time // when it held them
}

// allowance is what a bucket says to one request.
type allowance struct {
	ok         bool
	remaining  int           // requests that could follow at once
	full       time.Duration // until the bucket is full
	retryAfter time.Duration // until it holds one
}

func newLimiter(perMinute, burst int) *limiter {
	return &limiter{perMinute: float64(perMinute), burst: float64(burst), buckets: map[string]bucket{}}
}

func (l *limiter) take(key string, now time.Time) allowance {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 10_000
	if len(l.buckets) >= most { // forget those that are full again; if an attacker keeps all busy, forget all
		maps.DeleteFunc(l.buckets, func(_ string, b bucket) bool { return l.tokens(b, now) >= l.burst })
		if len(l.buckets) >= most {
			clear(l.buckets)
		}
	}
	tokens := l.tokens(l.buckets[key], now) // a key that is not there has not asked since the year 1
	ok := tokens >= 1
	if ok {
		tokens--
	}
	l.buckets[key] = bucket{tokens, now}
	wait := func(n float64) time.Duration {
		return time.Duration(max(0, n-tokens) / l.perMinute * float64(time.Minute))
	}
	return allowance{ok, int(tokens), wait(l.burst), wait(1)}
}

// forget gives a key its full bucket back.
func (l *limiter) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.buckets, key)
}

func (l *limiter) tokens(b bucket, now time.Time) float64 {
	return min(l.burst, b.tokens+now.Sub(b.at).Minutes()*l.perMinute)
}

// keyUse remembers when keys were used, until it is written: at most once a minute for each.
type keyUse struct {
	mu   sync.Mutex
	used map[string]Time
}

func (u *keyUse) note(keyID string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[keyID] = Time(now.UnixMilli())
}

// flush writes what was noted; what cannot be written is forgotten.
func (u *keyUse) flush(ctx context.Context, db *DB) error {
	u.mu.Lock()
	used := u.used
	u.used = map[string]Time{}
	u.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	return db.NoteKeyUse(ctx, used)
}

// NoteKeyUse records when keys were last used.
func (db *DB) NoteKeyUse(ctx context.Context, used map[string]Time) error {
	return db.write(ctx, func(tx *Tx) error {
		for id, at := range used {
			if _, err := tx.exec("UPDATE api_keys SET last_used_at = ? WHERE id = ?", at, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// clientAddress is who a limit by address counts: an IPv4 address or an IPv6 /64. Behind a trusted proxy it is the
// last address in X-Forwarded-For that is not itself a trusted proxy's.
func (s *server) clientAddress(r *http.Request) string {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := ap.Addr().Unmap()
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(forwarded) - 1; i >= 0 && s.trustedProxy.Contains(ip); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(forwarded[i]))
		if err != nil {
			break
		}
		ip = hop.Unmap()
	}
	if ip.Is6() {
		prefix, _ := ip.Prefix(64)
		return prefix.String()
	}
	return ip.String()
}

// PasswordHash is an owner's password as it is kept: PBKDF2-SHA-256, 600,000 rounds.
type PasswordHash struct{ Salt, Hash []byte }

// hashing lets two passwords be hashed at a time, so that sign-ins do not starve the API.
var hashing = make(chan struct{}, 2)

func hashPassword(password string, salt []byte) PasswordHash {
	hashing <- struct{}{}
	defer func() { <-hashing }()
	hash, err := pbkdf2.Key(sha256.New, password, salt, 600_000, 32)
	if err != nil {
		panic(err) // only for lengths that are not ours
	}
	return PasswordHash{salt, hash}
}

// newPassword makes a password of 120 random bits and its hash.
func newPassword() (string, PasswordHash) {
	b := make([]byte, 15)
	rand.Read(b)
	password := base64.RawURLEncoding.EncodeToString(b)
	return password, hashNewPassword(password)
}

func hashNewPassword(password string) PasswordHash {
	salt := make([]byte, 16)
	rand.Read(salt)
	return hashPassword(password, salt)
}

// Password finds the store of an owner, and how his password is kept. Unknown is errNotFound and a hash that no
// password has.
func (db *DB) Password(email string) (storeID string, pw PasswordHash, err error) {
	storeID, err = one(db.reader, func(id *string) []any { return []any{id, &pw.Salt, &pw.Hash} },
		"SELECT id, password_salt, password_hash FROM stores WHERE owner_email = ?", email)
	return storeID, pw, err
}

// SetPassword gives the owner another password and ends his sign-ins.
func (db *DB) SetPassword(ctx context.Context, storeID string, pw PasswordHash) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := tx.exec("DELETE FROM owner_sessions WHERE store_id = ?", storeID); err != nil {
			return err
		}
		return tx.mustChange("UPDATE stores SET password_salt = ?, password_hash = ? WHERE id = ?", pw.Salt, pw.Hash, storeID)
	})
}

// checkPassword finds the store of an owner who gives his e-mail and password. It takes as long for an e-mail that
// nobody has. A positive wait means that neither was looked at: too many passwords were tried for this account or from
// this address.
func (s *server) checkPassword(r *http.Request, email, password string) (storeID string, wait time.Duration, err error) {
	if len(email) > 254 { // nobody's
		email = ""
	}
	now, from := time.Now(), s.clientAddress(r)
	account := email + " from " + from
	// Ten tries from one place; more from all, so that a stranger elsewhere does not lock the owner out.
	for _, limit := range []struct {
		*limiter
		key string
	}{{s.addresses, from}, {s.accounts, account}, {s.everywhere, email}} {
		if left := limit.take(limit.key, now); !left.ok {
			return "", left.retryAfter, nil
		}
	}
	storeID, hash, err := s.db.Password(email)
	if err != nil && err != errNotFound {
		return "", 0, err
	}
	given := hashPassword(password, hash.Salt) // also for an e-mail that nobody has: it takes as long
	if subtle.ConstantTimeCompare(given.Hash, hash.Hash) == 0 || err != nil {
		return "", 0, errNotFound
	}
	s.accounts.forget(account)
	s.everywhere.forget(email)
	return storeID, 0, nil
}

// An owner's sign-in ends when it was not used for signInIdle, and after signInLongest in any case.
const (
	signInIdle    = 12 * time.Hour
	signInLongest = 7 * 24 * time.Hour
)

// AddSignIn begins a sign-in and forgets those of the store that are over.
func (db *DB) AddSignIn(ctx context.Context, storeID string, hash [32]byte) error {
	return db.write(ctx, func(tx *Tx) error {
		if _, err := tx.exec("DELETE FROM owner_sessions WHERE store_id = ? AND (created_at <= ? OR seen_at <= ?)",
			storeID, tx.now.Add(-signInLongest), tx.now.Add(-signInIdle)); err != nil {
			return err
		}
		_, err := tx.exec("INSERT INTO owner_sessions (hash, store_id, created_at, seen_at) VALUES (?, ?, ?, ?)", hash[:], storeID, tx.now, tx.now)
		return err
	})
}

const sqlStoreOfSignIn = "SELECT " + storeColumns + `, w.seen_at FROM owner_sessions w JOIN stores s ON s.id = w.store_id
	WHERE w.hash = ? AND w.created_at > ? AND w.seen_at > ?`

// StoreOfSignIn finds the store that a sign-in is for, and when the sign-in was last used.
func (db *DB) StoreOfSignIn(hash [32]byte) (st Store, seen Time, err error) {
	now := Time(time.Now().UnixMilli())
	st, err = db.store(db.reader, []any{&seen}, sqlStoreOfSignIn, hash[:], now.Add(-signInLongest), now.Add(-signInIdle))
	return st, seen, err
}

// NoteSignInUse records that a sign-in was used.
func (db *DB) NoteSignInUse(ctx context.Context, hash [32]byte) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("UPDATE owner_sessions SET seen_at = ? WHERE hash = ?", tx.now, hash[:])
		return err
	})
}

// EndSignIns ends one sign-in of a store, or with a nil hash all of them.
func (db *DB) EndSignIns(ctx context.Context, storeID string, hash []byte) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("DELETE FROM owner_sessions WHERE store_id = ? AND hash = coalesce(?, hash)", storeID, hash)
		return err
	})
}

// signInCookie names the cookie of a sign-in. Browsers take a __Host- name over https only, and then from this very
// host alone.
func (s *server) signInCookie() string {
	if strings.HasPrefix(s.db.publicURL, "https://") {
		return "__Host-storeorder"
	}
	return "storeorder"
}

func (s *server) setSignInCookie(w http.ResponseWriter, token string, maxAge int) {
	name := s.signInCookie()
	http.SetCookie(w, &http.Cookie{Name: name, Value: token, Path: "/", MaxAge: maxAge, HttpOnly: true,
		Secure: name != "storeorder", SameSite: http.SameSiteStrictMode})
}

// signIn begins a session of a store's owner in this browser.
func (s *server) signIn(w http.ResponseWriter, r *http.Request, storeID string) error {
	token, hash := newToken("")
	if err := s.db.AddSignIn(r.Context(), storeID, hash); err != nil {
		return err
	}
	s.setSignInCookie(w, token, int(signInLongest.Seconds()))
	return nil
}

// signedIn finds the store whose owner sends a request; nobody is errNotFound.
func (s *server) signedIn(r *http.Request) (Store, error) {
	cookie, err := r.Cookie(s.signInCookie())
	if err != nil {
		return Store{}, errNotFound
	}
	hash := sha256.Sum256([]byte(cookie.Value))
	st, seen, err := s.db.StoreOfSignIn(hash)
	if err == nil && time.Since(seen.Time()) > time.Minute {
		if err := s.db.NoteSignInUse(r.Context(), hash); err != nil { // the page can be shown all the same
			s.log.Warn("cannot note a sign-in's use", "error", err)
		}
	}
	return st, err
}

// login shows the sign-in form and signs in. Whether the e-mail or the password was wrong, it does not say.
func (s *server) login(w http.ResponseWriter, r *http.Request) error {
	page := struct {
		Form       filled
		Next       string
		Wrong, Out bool
		Wait       int // minutes
	}{Next: ownPath(r.FormValue("next"), ""), Out: r.URL.Query().Get("done") == "out"}
	if r.Method != http.MethodPost {
		if _, err := s.signedIn(r); err == nil {
			return seeOther(w, r, "/dashboard")
		}
		return render(w, r, http.StatusOK, "dash-login.html", page)
	}
	email := strings.ToLower(strings.TrimSpace(r.PostFormValue("email")))
	page.Form.Values = url.Values{"email": {email}}
	storeID, wait, err := s.checkPassword(r, email, r.PostFormValue("password"))
	switch {
	case wait > 0:
		w.Header().Set("Retry-After", seconds(wait))
		page.Wait = int(math.Ceil(wait.Minutes()))
		return render(w, r, http.StatusTooManyRequests, "dash-login.html", page)
	case err == errNotFound:
		page.Wrong = true
		return render(w, r, http.StatusUnprocessableEntity, "dash-login.html", page)
	case err == nil:
		err = s.signIn(w, r, storeID)
	}
	if err != nil {
		return err
	}
	return seeOther(w, r, ownPath(page.Next, "/dashboard"))
}

// logout ends this sign-in, or with everywhere all of the store's.
func (s *server) logout(w http.ResponseWriter, r *http.Request, st Store) error {
	everywhere := r.URL.Path == "/dashboard/account/logout"
	if r.Method != http.MethodPost {
		return ask(w, r, confirm{frame: newFrame(r, st, "account"), Act: "logout", Back: "/dashboard/account"})
	}
	var hash []byte
	if cookie, err := r.Cookie(s.signInCookie()); err == nil && !everywhere {
		sum := sha256.Sum256([]byte(cookie.Value))
		hash = sum[:]
	}
	if err := s.db.EndSignIns(r.Context(), st.ID, hash); err != nil {
		return err
	}
	s.setSignInCookie(w, "", -1)
	return done(w, r, "/dashboard/login", "out")
}

// account changes the owner's password, which ends his other sign-ins.
func (s *server) account(w http.ResponseWriter, r *http.Request, st Store) error {
	page := newFrame(r, st, "account")
	if r.Method == http.MethodPost {
		password, faults := r.PostForm.Get("new_password"), map[string]Fault{}
		_, wait, err := s.checkPassword(r, st.OwnerEmail, r.PostForm.Get("password"))
		switch n := utf8.RuneCountInString(password); {
		case wait > 0:
			faults["password"] = Fault{Code: FaultTries, Least: int64(math.Ceil(wait.Seconds()))}
		case err == errNotFound:
			faults["password"] = Fault{Code: FaultPassword}
		case err != nil:
			return err
		case n < 12 || n > 200:
			faults["new_password"] = Fault{Code: FaultNewPassword, Least: 12, Most: 200}
		default:
			if err := s.db.SetPassword(r.Context(), st.ID, hashNewPassword(password)); err != nil {
				return err
			}
			if err := s.signIn(w, r, st.ID); err != nil {
				return err
			}
			return done(w, r, "/dashboard/account", "password")
		}
		page.Form.Faults = faults
	}
	return render(w, r, page.status(), "dash-account.html", page)
}
