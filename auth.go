package main

// This file says who may do what.
//
// An API key opens one store and allows what its scope says, until it expires or is revoked. A revocation takes effect
// with the next request. Only hashes of keys, sign-ins and sign-in links are stored. Passwords can only be guessed
// slowly, because tries are counted by address and account, and passwords are hashed one at a time. Strangers cannot
// keep an owner out, because a browser that has signed in before is counted separately and does not wait behind them. A
// new password ends all sign-ins.

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scope is what a key may do. Each scope includes the one before it.
type Scope string

const (
	ScopeRead   Scope = "read"   // read all but the catalog and webhooks; no payment session is started
	ScopeWrite  Scope = "write"  // also create and edit orders, start sessions, and cancel pending orders
	ScopeManage Scope = "manage" // also act as the owner on orders, the catalog and webhooks
)

var scopes = []Scope{ScopeRead, ScopeWrite, ScopeManage}

// allows reports whether a key of this scope may do what needs a certain scope.
func (s Scope) allows(needed Scope) bool {
	return slices.Index(scopes, s) >= slices.Index(scopes, needed)
}

// APIKey is a key without its secret.
type APIKey struct {
	ID         string `json:"key_id"`
	StoreID    string `json:"store_id"`
	Name       string `json:"name"`
	Scope      Scope  `json:"scope"`
	CreatedAt  Time   `json:"created_at"`
	LastUsedAt Time   `json:"last_used_at,omitzero"`
	RevokedAt  Time   `json:"revoked_at,omitzero"`
	ExpiresAt  Time   `json:"expires_at,omitzero"`
}

const sqlKeys = `
	SELECT k.id, k.store_id, k.name, k.scope, k.created_at, k.last_used_at, k.revoked_at, k.expires_at
	FROM   api_keys k
	`

// keyIsLive is the SQL condition that the key k works at the time that is its parameter.
const keyIsLive = "k.revoked_at = 0 AND (k.expires_at = 0 OR k.expires_at > ?)"

const mostRemembered = 10_000

// rememberedKeys are recently found keys with their stores, by hash, because most requests repeat the key of an earlier
// one. A write that changes a key or a store raises the database's generation between its COMMIT and its answer, and
// earlier entries are no longer used. Another process cannot raise it, so its command returns only when all earlier
// entries are too old (enqueue).
type rememberedKeys struct {
	sync.RWMutex
	byHash map[string]rememberedKey
}

type rememberedKey struct {
	store      Store
	key        APIKey
	generation int64     // of keys and stores, before they were read
	at         time.Time // before they were read
}

// keyHolder returns the key with this secret and the store that it opens. The error is ErrNotFound if there is none, or
// if it was revoked or has expired. A key that is remembered is not read again.
func (a *auth) keyHolder(ctx context.Context, secret string) (Store, APIKey, error) {
	hash := digest(secret)
	now := a.db.now()
	found := rememberedKey{generation: a.db.generation.Load(), at: time.Now()}

	known := &a.remembered
	known.RLock()
	before, ok := known.byHash[string(hash)]
	known.RUnlock()
	isLive := before.key.ExpiresAt == 0 || before.key.ExpiresAt > now
	if ok && isLive && before.generation == found.generation && found.at.Sub(before.at) < keysRemembered {
		return before.store, before.key, nil
	}

	var err error
	found.key, err = one[APIKey](ctx, a.db, sqlKeys+"WHERE k.hash = ? AND "+keyIsLive, hash, now)
	if err != nil {
		return Store{}, APIKey{}, err
	}
	found.store, err = a.db.StoreOf(ctx, "id", found.key.StoreID)
	if err != nil {
		return Store{}, APIKey{}, err
	}

	known.Lock()
	defer known.Unlock()
	if len(known.byHash) >= mostRemembered || known.byHash == nil {
		known.byHash = map[string]rememberedKey{}
	}
	known.byHash[string(hash)] = found
	return found.store, found.key, nil
}

// bearer returns the key in the Authorization header. The scheme may be in any case, with one or more spaces after it
// (RFC 9110, 11.4). Two such headers give no valid key.
func bearer(h http.Header) string {
	scheme, key, _ := strings.Cut(strings.Join(h.Values("Authorization"), ", "), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(key, " ")
}

// AddKey adds a key to a store and returns its id and its secret, which is stored nowhere. It works as long as lasts
// says; with 0, until it is revoked.
func (db *DB) AddKey(
	ctx context.Context, storeID, name string, scope Scope, lasts time.Duration,
) (id, secret string, err error) {
	secret = "so_" + newSecret()
	err = db.write(ctx, func(tx *Tx) error {
		if tx.count("SELECT count(*) FROM api_keys k WHERE k.store_id = ? AND "+keyIsLive, storeID, tx.now) >= 50 {
			return refuse(LimitReached)
		}

		id = tx.newID()
		ends := Time(0)
		if lasts > 0 {
			ends = tx.now.Add(lasts)
		}
		tx.exec(`
			INSERT INTO api_keys (id, store_id, name, hash, scope, created_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`,
			id, storeID, name, digest(secret), scope, tx.now, ends)
		return nil
	})
	return id, secret, err
}

// Keys returns a store's keys, the oldest first: all that were not revoked, and the last fifty that were.
func (db *DB) Keys(ctx context.Context, storeID string) ([]APIKey, error) {
	return all[APIKey](ctx, db, sqlKeys+`
		WHERE  k.store_id = ?1 AND (k.revoked_at = 0 OR k.id IN (
			SELECT id FROM api_keys WHERE store_id = ?1 AND revoked_at > 0 ORDER BY revoked_at DESC LIMIT 50))
		ORDER BY k.created_at, k.id`, storeID)
}

// RevokeKey ends a key for good. Once it has returned, nobody is let in with the key.
func (db *DB) RevokeKey(ctx context.Context, storeID, keyID string) error {
	return db.write(ctx, func(tx *Tx) error {
		tx.keysChanged = true
		return tx.mustChange(`
			UPDATE api_keys
			SET    revoked_at = iif(revoked_at = 0, ?, revoked_at)
			WHERE  id = ? AND store_id = ?`, tx.now, keyID, storeID)
	})
}

func newSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func digest(text string) []byte {
	hash := sha256.Sum256([]byte(text))
	return hash[:]
}

// auth is what the serving process remembers about its clients. It may forget all of it.
type auth struct {
	db           *DB
	trusted      []netip.Prefix // proxies, besides those on this machine
	warnOnce     sync.Once
	sealing      cipher.AEAD // with the secret in the database file
	cookiePrefix string

	keyLimiter, storeLimiter *limiter       // of requests to the API
	ownerLimiter             *limiter       // of an owner's pages, by store
	payLimiter               *limiter       // of pay pages, by order
	wrongKeyLimiter          addressLimiter // of requests without a right key
	formLimiter              addressLimiter // of sign-in
	shopLimiter              addressLimiter // of requests for shop pages
	orderLimiter             addressLimiter // of orders of a shop page, by store
	passwordLimiter          *limiter       // of tries, by who tries

	channels    sync.Map // for places and turns, by their kinds and stores: chan struct{}
	remembered  rememberedKeys
	usedKeys    sync.Map // when a key was last used, until that is written: Time, by the key's id
	usedSignIns sync.Map // when a sign-in was last used, until that is written: Time, by its hash as a string
}

// secret returns the secret that only the file knows.
func (db *DB) secret(ctx context.Context) ([]byte, error) {
	return one[[]byte](ctx, db, "SELECT secret FROM settings")
}

// newAuth lets each key make rate requests a minute and burst at once, and each store four times as many.
func newAuth(db *DB, publicURL string, rate, burst int64, trusted []netip.Prefix) (*auth, error) {
	secret, err := db.secret(context.Background())
	if err != nil {
		return nil, err
	}

	block, _ := aes.NewCipher(digest(string(secret))) // Neither can fail: the key has the right length.
	sealing, _ := cipher.NewGCMWithRandomNonce(block)

	a := &auth{
		db:              db,
		trusted:         trusted,
		sealing:         sealing,
		keyLimiter:      newLimiter(rate, burst),
		storeLimiter:    newLimiter(groupFactor*rate, groupFactor*burst),
		ownerLimiter:    newLimiter(groupFactor*rate, groupFactor*burst),
		payLimiter:      newLimiter(60, 60),
		wrongKeyLimiter: newAddressLimiter(60, 60),
		formLimiter:     newAddressLimiter(5, 20),
		shopLimiter:     newAddressLimiter(600, 120),
		orderLimiter:    newAddressLimiter(10, 30),
		passwordLimiter: newLimiter(1, 10),
	}

	// Browsers accept a cookie with this prefix only over https, and only from this very host.
	if strings.HasPrefix(publicURL, "https://") {
		a.cookiePrefix = "__Host-"
	}
	return a, nil
}

// writeUses records when keys and sign-ins were last used. No request waits for it. If it fails, some last uses are
// lost.
func (a *auth) writeUses() {
	a.db.write(context.Background(), func(tx *Tx) error {
		for id, at := range a.usedKeys.Range {
			tx.exec("UPDATE api_keys SET last_used_at = ? WHERE id = ?", at, id)
			a.usedKeys.CompareAndDelete(id, at)
		}
		for hash, at := range a.usedSignIns.Range {
			until := at.(Time).Add(signInLasts)
			tx.exec("UPDATE sign_ins SET ends_at = ? WHERE hash = ?", until, []byte(hash.(string)))
			a.usedSignIns.CompareAndDelete(hash, at)
		}
		return nil
	})
}

func hashPassword(password string, salt []byte, rounds int) PasswordHash {
	hash, err := pbkdf2.Key(sha256.New, strings.TrimSpace(password), salt, rounds, sha256.Size)
	if err != nil { // only if the parameters are wrong
		panic(err)
	}
	return PasswordHash{salt, hash}
}

// newPassword returns a random password and its hash.
func newPassword(rounds int) (string, PasswordHash) {
	password := newSecret()[:20]
	return password, hashPassword(password, digest(newSecret()), rounds)
}

const (
	signInLasts = 30 * 24 * time.Hour  // after its last use
	deviceLasts = 183 * 24 * time.Hour // after its sign-in
)

// account is what signing in needs to know about a store.
type account struct {
	StoreID      string
	PasswordHash `sql:"password_"`
}

// devices returns the purpose of the cookie by which an account recognizes a browser. A new password changes it, so
// that all browsers are forgotten.
func (acc account) devices() string { return acc.StoreID + string(acc.Salt) }

// account returns the account that a condition selects.
func (a *auth) account(ctx context.Context, condition string, args ...any) (account, error) {
	return one[account](ctx, a.db,
		"SELECT id AS store_id, password_salt, password_hash FROM stores WHERE "+condition, args...)
}

// signIn signs an owner in by e-mail and password. ErrNotFound says that one of them is wrong, RateLimited
// that there were too many tries, or that too many passwords are waiting to be hashed.
func (a *auth) signIn(w http.ResponseWriter, r *http.Request, email, password string) error {
	email = strings.ToLower(strings.TrimSpace(email))
	acc, err := a.account(r.Context(), "owner_email = ?", email)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}

	// A browser that has signed in before is counted by itself and waits alone. All others wait together.
	who := a.kept(r, "device", acc.devices())
	waitsWith := acc.StoreID
	if who == "" {
		who = string(digest(email + network(a.client(r), 64)))
		waitsWith = ""
	}

	leave, err := a.place(r.Context(), waitsWith, "password")
	if err != nil {
		return err
	}
	defer leave()
	if err := a.tryPassword(r.Context(), acc, password, who); err != nil {
		return err
	}
	return a.beginSignIn(w, r, acc)
}

// tryPassword compares a password with an account's. It is hashed even if there is no account, so that the answer takes
// the same time. Each who has ten tries, and then one a minute. A browser that has signed in before has its own.
func (a *auth) tryPassword(ctx context.Context, acc account, password, who string) error {
	if err := a.passwordLimiter.take(who).err; err != nil {
		return err
	}

	given, err := a.hash(ctx, password, acc.Salt)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(given.Hash, acc.Hash) == 0 {
		return ErrNotFound
	}
	return nil
}

// hash is hashPassword, one at a time. Few callers wait for it, because each holds a place for a password. Each owner
// has one place, and all strangers share one.
func (a *auth) hash(ctx context.Context, password string, salt []byte) (PasswordHash, error) {
	leave, err := a.place(ctx, "", "hash")
	if err != nil {
		return PasswordHash{}, err
	}
	defer leave()
	return hashPassword(password, salt, a.db.env.rounds), nil
}

// changePassword gives an owner who knows the current password a new one. It ends all their sign-ins, and signs this
// browser in again. ErrNotFound says that the current password is wrong.
func (a *auth) changePassword(
	w http.ResponseWriter, r *http.Request, st Store, present, password string,
) error {
	ctx := r.Context()
	leave, err := a.place(ctx, st.ID, "password")
	if err != nil {
		return err
	}
	defer leave()

	acc, err := a.account(ctx, "id = ?", st.ID)
	if err != nil {
		return err
	}
	if err := a.tryPassword(ctx, acc, present, st.ID); err != nil {
		return err
	}

	replaced := acc.Salt
	acc.PasswordHash, err = a.hash(ctx, password, digest(newSecret()))
	if err != nil {
		return err
	}
	if err := a.db.SetPassword(ctx, st.ID, acc.PasswordHash, replaced); err != nil {
		return err
	}
	return a.beginSignIn(w, r, acc)
}

// SetPassword gives an owner a password and ends all their sign-ins and sign-in links. replaced is the salt of the
// password to replace, or nil. If the store has another password by now, nothing changes, and the error is ErrNotFound.
func (db *DB) SetPassword(ctx context.Context, storeID string, hashed PasswordHash, replaced []byte) error {
	return db.write(ctx, func(tx *Tx) error {
		tx.exec("DELETE FROM sign_ins WHERE store_id = ?", storeID)
		return tx.mustChange(`
			UPDATE stores SET password_salt = ?, password_hash = ?
			WHERE id = ? AND password_salt = coalesce(?, password_salt)`, hashed.Salt, hashed.Hash, storeID, replaced)
	})
}

// NewSignInLink returns the path of a page that signs a store's owner in once, until a given time.
func (db *DB) NewSignInLink(ctx context.Context, storeID string, until Time) (path string, err error) {
	token := newSecret()
	return "/dashboard/enter/" + token, db.mustChange(ctx,
		"INSERT INTO sign_ins (hash, store_id, link, ends_at) VALUES (?, ?, 1, ?)", digest(token), storeID, until)
}

// signInByLink signs in the person who presses the button of that page. ErrNotFound says that the link was used or is
// too old.
func (a *auth) signInByLink(w http.ResponseWriter, r *http.Request, token string) error {
	const ofLink = "id = (SELECT store_id FROM sign_ins WHERE hash = ? AND link = 1 AND ends_at > ?)"
	acc, err := a.account(r.Context(), ofLink, digest(token), a.db.now())
	if err != nil {
		return err
	}
	if err := a.endSignIn(r, token); err != nil {
		return err
	}
	return a.beginSignIn(w, r, acc)
}

// endSignIn ends a sign-in, or uses up a link. ErrNotFound says that it no longer exists.
func (a *auth) endSignIn(r *http.Request, token string) error {
	return a.db.mustChange(r.Context(), "DELETE FROM sign_ins WHERE hash = ?", digest(token))
}

// beginSignIn begins a sign-in in this browser, and marks the browser as one that has signed in. ErrNotFound says that
// the account's password has changed since.
func (a *auth) beginSignIn(w http.ResponseWriter, r *http.Request, acc account) error {
	token := newSecret()
	until := a.db.now().Add(signInLasts)
	err := a.db.mustChange(r.Context(), `
		INSERT INTO sign_ins (hash, store_id, link, ends_at)
		SELECT ?, id, 0, ? FROM stores WHERE id = ? AND password_salt = ?`, digest(token), until, acc.StoreID, acc.Salt)
	if err != nil {
		return err
	}

	a.keep(w, "device", acc.devices(), newSecret(), deviceLasts)
	a.setCookie(w, "sign-in", token, 400*24*time.Hour) // Its row says when it ends.
	return nil
}

// owner returns the store whose owner sent a request, and records that the sign-in was used. ErrNotFound says that
// nobody is signed in.
func (a *auth) owner(r *http.Request) (Store, error) {
	hash := digest(a.cookie(r, "sign-in"))
	now := a.db.now()
	st, err := one[Store](r.Context(), a.db, sqlStores+`
		WHERE s.id = (SELECT store_id FROM sign_ins WHERE hash = ? AND link = 0 AND ends_at > ?)`, hash, now)
	if err == nil {
		a.usedSignIns.Store(string(hash), now)
	}
	return st, err
}

// signOut ends the sign-in of this browser.
func (a *auth) signOut(w http.ResponseWriter, r *http.Request) error {
	a.setCookie(w, "sign-in", "", -time.Second)
	return a.endSignIn(r, a.cookie(r, "sign-in"))
}

func (a *auth) setCookie(w http.ResponseWriter, name, text string, lasts time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name:     a.cookiePrefix + name,
		Value:    text,
		Path:     "/",
		MaxAge:   int(lasts.Seconds()),
		HttpOnly: true,
		Secure:   a.cookiePrefix != "",
		SameSite: http.SameSiteLaxMode,
	})
}

// cookie returns the text of a cookie, or "".
func (a *auth) cookie(r *http.Request, name string) string {
	c, err := r.Cookie(a.cookiePrefix + name)
	if err != nil {
		return ""
	}
	return c.Value
}

// keep seals a text without spaces in a cookie, for one purpose, as long as lasts says.
func (a *auth) keep(w http.ResponseWriter, name, purpose, text string, lasts time.Duration) {
	content := fmt.Sprintf("%s %d", text, a.db.now().Add(lasts))
	sealed := a.sealing.Seal(nil, nil, []byte(content), []byte(name+" "+purpose))
	a.setCookie(w, name, base64.RawURLEncoding.EncodeToString(sealed), lasts)
}

// kept returns a text that was kept for this purpose. It is "" if there is none, if it is too old, or if somebody else
// planted it.
func (a *auth) kept(r *http.Request, name, purpose string) (text string) {
	sealed, _ := base64.RawURLEncoding.DecodeString(a.cookie(r, name))
	content, _ := a.sealing.Open(nil, nil, sealed, []byte(name+" "+purpose))
	var ends Time
	fmt.Sscan(string(content), &text, &ends)
	if ends < a.db.now() {
		return ""
	}
	return text
}
