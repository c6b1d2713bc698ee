//go:build cgo

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	errUnauthorized = &APIError{
		Code:    codeUnauthorized,
		Message: "Missing or invalid Authorization header.",
	}
	errPlanRequired = &APIError{
		Code:    codePlanRequired,
		Message: "Public API is not available on this store's plan.",
	}
	errRateLimited = &APIError{
		Code:    codeRateLimited,
		Message: "Rate limit exceeded.",
	}
)

// Scope is what a key may do.
type Scope string

const (
	ScopeRead   Scope = "read"   // all GETs; no payment session is started
	ScopeWrite  Scope = "write"  // and create orders
	ScopeManage Scope = "manage" // and do what the owner does with orders and the catalog
)

// scopes are in the order of what they allow: each allows what those before it do.
var scopes = []Scope{ScopeRead, ScopeWrite, ScopeManage}

// allows reports whether a key of this scope may do what needs a scope.
func (s Scope) allows(needed Scope) bool {
	return slices.Index(scopes, s) >= slices.Index(scopes, needed)
}

// forbidden refuses a call that a key's scope does not allow.
func forbidden(has, needed Scope) *APIError {
	return &APIError{
		Code:    codeForbidden,
		Message: fmt.Sprintf("This key has the scope %s, and this call needs %s.", has, needed),
	}
}

// newToken returns a secret of 32 random bytes, in 43 characters after its prefix, and the hash that is kept
// of it.
func newToken(prefix string) (token string, hash [32]byte) {
	token = prefix + base64.RawURLEncoding.EncodeToString(randomBytes(32))
	return token, sha256.Sum256([]byte(token))
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// APIKey is a key without its secret, of which only a hash is kept.
type APIKey struct {
	ID         string `json:"key_id"`
	StoreID    string `json:"store_id"`
	Name       string `json:"name"`
	Scope      Scope  `json:"scope"`
	ExpiresAt  *Time  `json:"expires_at"` // nil: it has no end
	CreatedAt  Time   `json:"created_at"`
	LastUsedAt *Time  `json:"last_used_at"`
	RevokedAt  *Time  `json:"revoked_at"`
}

// RequestKey is the key that a request carries.
type RequestKey struct {
	ID    string
	Scope Scope

	// Order is the order whose id is in the path of a GET. It is read by the same query as the key. It is nil if the path
	// has no id of an order of the key's store.
	Order *OrderWithSession
}

// Expired reports whether the key's end has come.
func (k APIKey) Expired(now Time) bool { return k.ExpiresAt != nil && *k.ExpiresAt <= now }

// maxKeys is how many keys a store may have that can be used.
const maxKeys = 50

// keyIsLive is true of a key k that can be used at the time ?1.
const keyIsLive = "(k.revoked_at IS NULL AND coalesce(k.expires_at > ?1, 1))"

// NewKey is a key to be added.
type NewKey struct {
	Name  string
	Scope Scope
	Lasts time.Duration // 0: it has no end
}

// AddKey adds a key to a store.
func (db *DB) AddKey(ctx context.Context, storeID string, k NewKey, hash [32]byte) (id string, err error) {
	return writeResult(ctx, db, func(tx *Tx) (string, error) {
		n, err := queryOne(tx, scanValue[int],
			"SELECT count(*) FROM api_keys k WHERE store_id = ?2 AND "+keyIsLive, tx.now, storeID)
		if err != nil {
			return "", err
		}
		if n >= maxKeys {
			return "", limitReached("The store has %d API keys, and more are not possible: "+
				"revoke one first.", maxKeys)
		}

		var expiresAt *Time
		if k.Lasts > 0 {
			expiresAt = new(tx.now.Add(k.Lasts))
		}
		id := tx.newID()
		return id, tx.mustChange(`
			INSERT INTO api_keys (id, store_id, name, hash, scope, expires_at, created_at)
			SELECT ?, id, ?, ?, ?, ?, ? FROM stores WHERE id = ?`,
			id, k.Name, hash[:], k.Scope, expiresAt, tx.now, storeID)
	})
}

const keyColumns = "k.id, k.store_id, k.name, k.scope, k.expires_at, k.created_at, k.last_used_at, k.revoked_at"

const (
	sqlKey  = "SELECT " + keyColumns + " FROM api_keys k WHERE k.id = ?"
	sqlKeys = "SELECT " + keyColumns + " FROM api_keys k WHERE k.store_id = ? ORDER BY k.id"
)

func scanKey(r row) (k APIKey, err error) {
	err = r.Scan(&k.ID, &k.StoreID, &k.Name, &k.Scope, &k.ExpiresAt, &k.CreatedAt, &k.LastUsedAt, &k.RevokedAt)
	return k, err
}

// Key reads one key.
func (db *DB) Key(id string) (APIKey, error) { return queryOne(db.reader, scanKey, sqlKey, id) }

// Keys lists a store's keys, the oldest first.
func (db *DB) Keys(storeID string) ([]APIKey, error) {
	return queryAll(db.reader, scanKey, sqlKeys, storeID)
}

// RevokeKey ends a key at once and for good.
func (db *DB) RevokeKey(ctx context.Context, storeID, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange(`
			UPDATE api_keys
			SET    revoked_at = coalesce(revoked_at, ?)
			WHERE  id = ? AND store_id = ?`, tx.now, id, storeID)
	})
}

// storeRate is how many times the rate of one key all keys of a store have together, so that more keys do not
// give a store more and more of the service.
const storeRate = 4

// authenticate finds the store whose key a request carries, and the key (or 401), counts the request against the limits
// of the key and of its store (429) and checks the store's plan and the key's scope (403). It sets the headers about the
// key's limit. A request that is refused for anything but its key comes with its store, for the log.
func (s *server) authenticate(header http.Header, r *http.Request, needed Scope) (Store, RequestKey, error) {
	now := time.Now()
	hash := sha256.Sum256([]byte(bearerToken(r.Header)))
	orderID := ""
	if r.Method != "POST" { // The owner's acts read the order themselves.
		orderID = strings.ToLower(r.PathValue("order_id"))
	}
	st, key, err := s.db.StoreOfKey(hash, orderID)
	if err == errNotFound {
		return st, key, s.refuseKey(header, r, now)
	}
	if err != nil {
		return st, key, err
	}

	s.uses.note(hash, s.db.Now())
	left := s.takeRequest(st.ID, key.ID, now)
	// The names are in the canonical form, in which they are sent anyway: Set would convert another one each time.
	header.Set("X-Ratelimit-Limit", strconv.Itoa(int(s.keys.perMinute)))
	header.Set("X-Ratelimit-Remaining", strconv.Itoa(left.remaining))
	header.Set("X-Ratelimit-Reset", seconds(left.full))
	if !left.ok {
		header.Set("Retry-After", seconds(left.retryAfter))
		return st, key, errRateLimited
	}

	if st.Plan == PlanFree {
		return st, key, errPlanRequired
	}
	if !key.Scope.allows(needed) {
		return st, key, forbidden(key.Scope, needed)
	}
	return st, key, nil
}

// takeRequest counts a request against the limits of its key and of its store. A key that is out of requests uses up
// none of the store's other keys.
func (s *server) takeRequest(storeID, keyID string, now time.Time) allowance {
	left := s.keys.take(keyID, now)
	if !left.ok {
		return left
	}

	ofStore := s.stores.take(storeID, now)
	return allowance{
		ok:         ofStore.ok,
		remaining:  min(left.remaining, ofStore.remaining),
		full:       max(left.full, ofStore.full),
		retryAfter: max(left.retryAfter, ofStore.retryAfter),
	}
}

// bearerToken is the key of "Authorization: Bearer <key>", "" if the header is not exactly that.
func bearerToken(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if len(h.Values("Authorization")) != 1 || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

const (
	sqlStoreOfKey = "SELECT " + storeColumns + `, k.id, k.scope
		FROM   api_keys k
		JOIN   stores s ON s.id = k.store_id
		WHERE  k.hash = ?2 AND ` + keyIsLive

	// The order and its session come last: they are looked up only after a key that can be used was found. The limits, the
	// plan and the scope are checked later.
	sqlStoreAndOrderOfKey = "SELECT " + storeColumns + ", k.id, k.scope, " + orderWithSessionColumns + `
		FROM   api_keys k
		JOIN   stores s ON s.id = k.store_id
		LEFT JOIN orders o ON o.row = ?3 AND o.id = ?4 AND o.store_id = k.store_id
		` + joinSession + `
		WHERE  k.hash = ?2 AND ` + keyIsLive
)

// StoreOfKey finds a key and the store that it opens. Both are read for every request, so that a revoked key ends with the
// next. With the id of an order, the same query reads that order too: with a query of its own, a GET takes an eighth longer.
func (db *DB) StoreOfKey(hash [32]byte, orderID string) (st Store, key RequestKey, err error) {
	query, args := sqlStoreOfKey, []any{db.Now(), hash[:]}
	if orderID != "" {
		query, args = sqlStoreAndOrderOfKey, append(args, rowOf(orderID), orderID)
	}

	const ofKey = 8 // columns: storeColumns, and two of the key
	scan := func(r row) (Store, error) {
		if len(r) > ofKey && r[ofKey] != nil {
			o, err := scanOrderWithSession(r[ofKey:])
			if err != nil {
				return Store{}, err
			}
			key.Order = &o
		}
		return db.scanStore(r[:ofKey], &key.ID, &key.Scope)
	}
	st, err = queryOne(db.keys, scan, query, args...)
	return st, key, err
}

// refuseKey refuses a request without a valid key. An address that sends many of them is limited.
func (s *server) refuseKey(header http.Header, r *http.Request, now time.Time) error {
	left := s.wrongKeys.take(s.clientAddress(r), now)
	if !left.ok {
		header.Set("Retry-After", seconds(left.retryAfter))
		return errRateLimited
	}
	header.Set("WWW-Authenticate", "Bearer")
	return errUnauthorized
}

// seconds are whole and rounded up.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

// limiter holds a token bucket for each key. A request takes one token; new ones come with time.
type limiter struct {
	perMinute float64 // tokens that come back
	burst     float64 // tokens that a full bucket holds
	mu        sync.Mutex
	buckets   map[string]bucket
}

type bucket struct {
	tokens float64
	at     time.Time // when it held them
}

// allowance is the answer of a bucket to one request.
type allowance struct {
	ok         bool
	remaining  int           // requests that could follow at once
	full       time.Duration // until the bucket is full
	retryAfter time.Duration // until it holds a token
}

func newLimiter(perMinute, burst int) *limiter {
	return &limiter{perMinute: float64(perMinute), burst: float64(burst), buckets: map[string]bucket{}}
}

// take takes a token out of a key's bucket if it holds one.
func (l *limiter) take(key string, now time.Time) allowance {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.makeRoom(now)

	// A key without a bucket has not asked since the year 1: its bucket is full.
	tokens := l.tokens(l.buckets[key], now)
	ok := tokens >= 1
	if ok {
		tokens--
	}
	l.buckets[key] = bucket{tokens, now}

	return allowance{
		ok:         ok,
		remaining:  int(tokens),
		full:       l.timeFor(l.burst - tokens),
		retryAfter: l.timeFor(1 - tokens),
	}
}

// makeRoom bounds the memory. It forgets the buckets that are full again or, if an attacker keeps too many
// busy, all of them.
func (l *limiter) makeRoom(now time.Time) {
	const most = 10_000
	if len(l.buckets) < most {
		return
	}

	maps.DeleteFunc(l.buckets, func(_ string, b bucket) bool { return l.tokens(b, now) >= l.burst })
	if len(l.buckets) >= most {
		clear(l.buckets)
	}
}

// tokens is how many a bucket holds now.
func (l *limiter) tokens(b bucket, now time.Time) float64 {
	return min(l.burst, b.tokens+now.Sub(b.at).Minutes()*l.perMinute)
}

// timeFor is how long it takes until n more tokens have come back.
func (l *limiter) timeFor(n float64) time.Duration {
	return time.Duration(max(0, n) / l.perMinute * float64(time.Minute))
}

// forget gives a key its full bucket back.
func (l *limiter) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.buckets, key)
}

// addressLimiter is a limit for each client by its address. An IPv4 address counts by itself. Of IPv6, a
// customer has a /64 at least, which counts as one address, and often a /48, which has as much as four.
type addressLimiter struct {
	each *limiter // by countedAs
	wide *limiter // by /48 of IPv6
}

func newAddressLimiter(perMinute, burst int) addressLimiter {
	return addressLimiter{newLimiter(perMinute, burst), newLimiter(4*perMinute, 4*burst)}
}

func (l addressLimiter) take(ip netip.Addr, now time.Time) allowance {
	left := l.each.take(countedAs(ip), now)
	if left.ok && ip.Is6() {
		left = l.wide.take(prefixOf(ip, 48), now)
	}
	return left
}

// countedAs is who a limit by address counts.
func countedAs(ip netip.Addr) string {
	if ip.Is6() {
		return prefixOf(ip, 64)
	}
	return ip.String()
}

// prefixOf is the network of so many bits that an address is in.
func prefixOf(ip netip.Addr, bits int) string {
	prefix, err := ip.Prefix(bits)
	if err != nil { // The address is invalid.
		return ip.String()
	}
	return prefix.String()
}

// clientAddress is where a request comes from.
func (s *server) clientAddress(r *http.Request) netip.Addr {
	sender := addressIn(r.RemoteAddr)
	return s.forwardedFor(sender, r.Header)
}

// forwardedFor returns the client of a request that came from ip. Behind a trusted proxy, that is the last
// address in X-Forwarded-For that is not itself a trusted proxy's: a client can invent the ones before it.
func (s *server) forwardedFor(ip netip.Addr, h http.Header) netip.Addr {
	given := h.Values("X-Forwarded-For")
	if len(given) == 0 {
		return ip
	}

	hops := strings.Split(strings.Join(given, ","), ",")
	for _, text := range slices.Backward(hops) {
		hop := addressIn(strings.TrimSpace(text))
		if !hop.IsValid() || !s.trustedProxy.Contains(ip) {
			break
		}
		ip = hop
	}
	return ip
}

// addressIn reads an address with or without a port: "192.0.2.1", "192.0.2.1:80", "2001:db8::1",
// "[2001:db8::1]" or "[2001:db8::1]:80". Anything else is not valid. A zone is left out, because a client can
// invent any number of them.
func addressIn(text string) netip.Addr {
	withPort, err := netip.ParseAddrPort(text)
	if err == nil {
		return withPort.Addr().Unmap().WithZone("")
	}

	inner, bracketed := strings.CutPrefix(text, "[")
	if bracketed {
		inner = strings.TrimSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(inner)
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap().WithZone("")
}

// uses remembers when keys and sign-ins were last used, by their hashes, until it is written. No request
// waits for that write: the sweeper flushes once a minute.
type uses struct {
	mu sync.Mutex
	at map[[32]byte]Time
}

func (u *uses) note(hash [32]byte, now Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at[hash] = now
}

// sqlNoteUse is for a key and for a sign-in. A hash is of one of them: the other statement changes nothing.
var sqlNoteUse = []string{
	"UPDATE api_keys SET last_used_at = ? WHERE hash = ?",
	"UPDATE owner_sessions SET seen_at = ? WHERE hash = ?",
}

// flush writes all uses that were noted. It forgets them even if they cannot be written.
func (u *uses) flush(ctx context.Context, db *DB) error {
	u.mu.Lock()
	noted := u.at
	u.at = map[[32]byte]Time{}
	u.mu.Unlock()

	if len(noted) == 0 {
		return nil
	}
	return db.write(ctx, func(tx *Tx) error {
		for hash, at := range noted {
			for _, query := range sqlNoteUse {
				if _, err := tx.exec(query, at, hash[:]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// An owner's sign-in ends when it was not used for signInIdle, and after signInLongest in any case.
const (
	signInIdle    = 12*time.Hour + time.Minute // in which its last use may not be written yet: see uses
	signInLongest = 7 * 24 * time.Hour
)

// AddSignIn begins a sign-in at a place, and deletes those of the store that are over.
func (db *DB) AddSignIn(ctx context.Context, storeID string, hash [32]byte, at place) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec(`
			DELETE FROM owner_sessions
			WHERE  store_id = ? AND (created_at <= ? OR seen_at <= ?)`,
			storeID, tx.now.Add(-signInLongest), tx.now.Add(-signInIdle))
		if err != nil {
			return err
		}

		_, err = tx.exec(`
			INSERT INTO owner_sessions (hash, store_id, created_at, seen_at)
			VALUES (?, ?, ?, ?)`,
			hash[:], storeID, tx.now, tx.now)
		if err != nil {
			return err
		}
		return tx.rememberPlace(storeID, at)
	})
}

const sqlStoreOfSignIn = "SELECT " + profileColumns + `
	FROM   owner_sessions w
	JOIN   stores s ON s.id = w.store_id
	WHERE  w.hash = ? AND w.created_at > ? AND w.seen_at > ?`

// StoreOfSignIn finds the store that a sign-in is for.
func (db *DB) StoreOfSignIn(hash [32]byte, now Time) (StoreProfile, error) {
	return queryOne(db.reader, db.scanProfile, sqlStoreOfSignIn,
		hash[:], now.Add(-signInLongest), now.Add(-signInIdle))
}

// EndSignIn ends one sign-in of a store or, with everywhere, all of them.
func (db *DB) EndSignIn(ctx context.Context, storeID string, hash [32]byte, everywhere bool) error {
	return db.write(ctx, func(tx *Tx) error {
		_, err := tx.exec("DELETE FROM owner_sessions WHERE store_id = ? AND (hash = ? OR ?)",
			storeID, hash[:], everywhere)
		return err
	})
}

// signedIn finds the store whose owner sends a request. Anybody else is errNotFound.
func (s *server) signedIn(r *http.Request) (StoreProfile, error) {
	hash, err := s.signInHash(r)
	if err != nil {
		return StoreProfile{}, err
	}

	now := s.db.Now()
	st, err := s.db.StoreOfSignIn(hash, now)
	if err != nil {
		return st, err
	}
	s.uses.note(hash, now)
	return st, nil
}

// signInHash is the hash of the sign-in whose cookie a request carries. Without a cookie it is errNotFound.
func (s *server) signInHash(r *http.Request) (hash [32]byte, err error) {
	cookie, err := r.Cookie(s.signInCookie())
	if err != nil {
		return hash, errNotFound
	}
	return sha256.Sum256([]byte(cookie.Value)), nil
}

// signInCookie names the cookie of a sign-in. Browsers take a __Host- name over https only, and then from
// this very host alone.
func (s *server) signInCookie() string {
	if isHTTPS(s.db.publicURL) {
		return "__Host-storeorder"
	}
	return "storeorder"
}

func (s *server) setSignInCookie(w http.ResponseWriter, token string, maxAge int) {
	name := s.signInCookie()
	http.SetCookie(w, &http.Cookie{
		Name:     name,
		Value:    token,
		Path:     "/",
		MaxAge:   maxAge,
		HttpOnly: true,
		Secure:   name != "storeorder",
		SameSite: http.SameSiteStrictMode,
	})
}

// signIn begins a sign-in of a store's owner in this browser.
func (s *server) signIn(w http.ResponseWriter, r *http.Request, storeID string) error {
	token, hash := newToken("")
	at := placeOf(storeID, s.clientAddress(r))
	if err := s.db.AddSignIn(r.Context(), storeID, hash, at); err != nil {
		return err
	}
	s.setSignInCookie(w, token, int(signInLongest.Seconds()))
	return nil
}

// loginPage is the sign-in form.
type loginPage struct {
	Form  filled
	Next  string
	Wrong bool
	Out   bool
	Wait  int // seconds
}

// login shows the sign-in form and signs in.
func (s *server) login(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodPost {
		return s.tryToSignIn(w, r)
	}
	if _, err := s.signedIn(r); err == nil {
		return seeOther(w, r, "/dashboard")
	}

	page := loginPage{
		Next: ownPath(r.FormValue("next"), ""),
		Out:  r.URL.Query().Get("done") == "out",
	}
	return render(w, r, http.StatusOK, "dash-login.html", page)
}

// tryToSignIn signs in. It does not say whether the e-mail or the password was wrong.
func (s *server) tryToSignIn(w http.ResponseWriter, r *http.Request) error {
	email := strings.ToLower(strings.TrimSpace(r.PostFormValue("email")))
	page := loginPage{Next: ownPath(r.FormValue("next"), "")}
	page.Form.Values = url.Values{"email": {email}}
	admitted, wait, refusal, err := s.admitInTurn(r, page, passwordTry{
		email:    email,
		password: r.PostFormValue("password"),
		from:     s.clientAddress(r),
	})
	if err != nil {
		return err
	}
	if wait > 0 {
		w.Header().Set("Retry-After", seconds(wait))
		writePage(w, http.StatusTooManyRequests, refusal)
		return nil
	}

	storeID, err := admitted.check(r.Context())
	if err == errNotFound {
		page.Wrong = true
		return render(w, r, http.StatusUnprocessableEntity, "dash-login.html", page)
	}
	if err != nil {
		return err
	}

	if err := s.signIn(w, r, storeID); err != nil {
		return err
	}
	return seeOther(w, r, ownPath(page.Next, "/dashboard"))
}

// admitInTurn admits a try, or makes the page that refuses it, one try at a time. None waits for its client meanwhile, who
// may be slow: the form was read before, and the page is written after.
func (s *server) admitInTurn(r *http.Request, page loginPage, try passwordTry) (
	admitted admittedTry, wait time.Duration, refusal []byte, err error,
) {
	select {
	case s.admitting <- struct{}{}:
		defer func() { <-s.admitting }()
	case <-r.Context().Done():
		return admitted, 0, nil, r.Context().Err()
	}

	admitted, wait, err = s.admit(try)
	if err != nil || wait == 0 {
		return admitted, 0, nil, err
	}
	page.Wait = int(math.Ceil(wait.Seconds()))
	refusal, err = pageText(r, "dash-login.html", page)
	return admitted, wait, refusal, err
}

// logout ends this sign-in or, on the account page, all of the store's.
func (s *server) logout(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	if r.Method != http.MethodPost {
		return ask(w, r, confirm{
			frame: newFrame(r, st, "account"),
			Act:   "logout",
			Back:  "/dashboard/account",
		})
	}

	hash, err := s.signInHash(r)
	if err != nil {
		return err
	}
	everywhere := r.URL.Path == "/dashboard/account/logout"
	if err := s.db.EndSignIn(r.Context(), st.ID, hash, everywhere); err != nil {
		return err
	}

	s.setSignInCookie(w, "", -1)
	return done(w, r, "/dashboard/login", "out")
}
