package main

// This file says who may do what.
//
// An API key opens one store and does what its scope says, until it ends or is revoked, which takes effect with the next
// request. Only hashes of keys, sign-ins and sign-in links are stored. Passwords can only be guessed slowly: tries are
// counted by address and account, and one password is hashed at a time. Strangers cannot keep an owner out: a browser that
// has signed in before is counted separately and does not wait behind them. A new password ends all sign-ins.

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

// Scope is what a key may do: each allows all that those before it do.
type Scope string

const (
	ScopeRead   Scope = "read"   // all GETs; no payment session is started
	ScopeWrite  Scope = "write"  // and create orders
	ScopeManage Scope = "manage" // and do what the owner does with orders and the catalog
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

// keyIsLive is the SQL condition that the key k works at a given time, its parameter.
const keyIsLive = "k.revoked_at = 0 AND (k.expires_at = 0 OR k.expires_at > ?)"

// KeyHolder returns the key with this secret and the store that it opens. The error is ErrNotFound if there
// is none, or it was revoked or has ended.
func (db *DB) KeyHolder(ctx context.Context, secret string) (Store, APIKey, error) {
	key, err := one[APIKey](ctx, db, sqlKeys+"WHERE k.hash = ? AND "+keyIsLive, digest(secret), db.now())
	if err != nil {
		return Store{}, APIKey{}, err
	}
	st, err := one[Store](ctx, db, sqlStores+"WHERE s.id = ?", key.StoreID)
	return st, key, err
}

// bearer returns the key in the Authorization header, whose scheme may be in any case. Two such headers give
// no valid key.
func bearer(h http.Header) string {
	scheme, key, _ := strings.Cut(strings.Join(h.Values("Authorization"), ", "), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return key
}

// AddKey adds a key to a store and returns its secret, which is stored nowhere. It works for as long as lasts
// says or, if that is 0, until it is revoked.
func (db *DB) AddKey(
	ctx context.Context, storeID, name string, scope Scope, lasts time.Duration,
) (key APIKey, secret string, err error) {
	secret = "so_" + newSecret()
	err = db.write(ctx, func(tx *Tx) error {
		if tx.count("SELECT count(*) FROM api_keys k WHERE k.store_id = ? AND "+keyIsLive, storeID, tx.now) >= 50 {
			return refuse(LimitReached)
		}

		key.ID = tx.newID()
		if lasts > 0 {
			key.ExpiresAt = tx.now.Add(lasts)
		}
		tx.exec(`
			INSERT INTO api_keys (id, store_id, name, hash, scope, created_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`,
			key.ID, storeID, name, digest(secret), scope, tx.now, key.ExpiresAt)
		return nil
	})
	return key, secret, err
}

// Keys returns a store's keys, the oldest first.
func (db *DB) Keys(ctx context.Context, storeID string) ([]APIKey, error) {
	return all[APIKey](ctx, db, sqlKeys+"WHERE k.store_id = ? ORDER BY k.created_at, k.id", storeID)
}

// RevokeKey ends a key for good.
func (db *DB) RevokeKey(ctx context.Context, storeID, keyID string) error {
	return db.change(ctx, `
		UPDATE api_keys
		SET    revoked_at = iif(revoked_at = 0, ?, revoked_at)
		WHERE  id = ? AND store_id = ?`, db.now(), keyID, storeID)
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

	requests  *limiter // by key alone, by store shared
	pays      *limiter // of pay pages, by order
	wrongKeys *limiter // by address
	forms     *limiter // of sign-in, by address
	tries     *limiter // of passwords

	rooms sync.Map // the places for work, by its kind and store: chan struct{}
	used  sync.Map // when keys and sign-ins were last used, until that is written: Time, by id or hash
}

// newAuth lets each key make rate requests a minute and burst at once, and each store four times as many.
func newAuth(ctx context.Context, db *DB, rate, burst int64, trusted []netip.Prefix) (*auth, error) {
	secret, err := one[[]byte](ctx, db, "SELECT secret FROM settings")
	if err != nil {
		return nil, err
	}

	block, _ := aes.NewCipher(digest(string(secret))) // This cannot fail: the key has the right length.
	sealing, err := cipher.NewGCMWithRandomNonce(block)
	a := &auth{
		db:        db,
		trusted:   trusted,
		sealing:   sealing,
		requests:  newLimiter(rate, burst),
		pays:      newLimiter(60, 60),
		wrongKeys: newLimiter(60, 60),
		forms:     newLimiter(5, 20),
		tries:     newLimiter(1, 10),
	}

	// Browsers accept a cookie with this prefix only over https, and only from this very host.
	if strings.HasPrefix(db.publicURL(ctx), "https://") {
		a.cookiePrefix = "__Host-"
	}
	return a, err
}

// writeUses writes when keys and sign-ins were last used. No request waits for that. If it fails, some last
// uses are not recorded.
func (a *auth) writeUses() {
	a.db.write(context.Background(), func(tx *Tx) error {
		for name, at := range a.used.Range {
			tx.exec("UPDATE api_keys SET last_used_at = ? WHERE id = ?", at, name)
			tx.exec("UPDATE sign_ins SET ends_at = ? WHERE hash = ?", at.(Time).Add(signInLasts), []byte(name.(string)))
			a.used.CompareAndDelete(name, at)
		}
		return nil
	})
}

// PasswordHash is a password as it is stored.
type PasswordHash struct{ Salt, Hash []byte }

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

// account is what signing in needs to know of a store.
type account struct {
	StoreID      string
	PasswordHash `sql:"password_"`
}

// devices returns the purpose of the cookie by which an account knows a browser: a new password forgets all
// of them.
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

	who := a.kept(r, "device", acc.devices())
	queue := acc.StoreID
	if who == "" {
		who = string(digest(email + network(a.client(r), 64)))
		queue = ""
	}

	leave, err := a.place(r.Context(), queue, "password")
	if err != nil {
		return err
	}
	defer leave()
	if err := a.tryPassword(r.Context(), acc, password, who); err != nil {
		return err
	}
	return a.begin(w, r, acc)
}

// tryPassword compares a password with an account's. It is hashed even if there is no account, so that the
// answer takes as long. Whoever gives it has ten tries, then one a minute. A browser that has signed in
// before has tries of its own.
func (a *auth) tryPassword(ctx context.Context, acc account, password, who string) error {
	if err := a.tries.take(who, alone).err; err != nil {
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

// hash is hashPassword, one at a time. Few wait for it, because each holds a place for a password: one for
// each owner, and one for all strangers together.
func (a *auth) hash(ctx context.Context, password string, salt []byte) (PasswordHash, error) {
	leave, err := a.place(ctx, "", "hash")
	if err != nil {
		return PasswordHash{}, err
	}
	defer leave()
	return hashPassword(password, salt, a.db.env.rounds), nil
}

// changePassword gives an owner who knows the current password a new one, ends all their sign-ins, and signs
// this browser in again. ErrNotFound says that the current one is wrong.
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
	if err == nil {
		err = a.tryPassword(ctx, acc, present, st.ID)
	}
	replaced := acc.Salt
	if err == nil {
		acc.PasswordHash, err = a.hash(ctx, password, digest(newSecret()))
	}
	if err == nil {
		err = a.db.SetPassword(ctx, st.ID, acc.PasswordHash, replaced)
	}
	if err != nil {
		return err
	}
	return a.begin(w, r, acc)
}

// SetPassword gives an owner a password and ends all their sign-ins and sign-in links. replaced is the salt
// of the password that it replaces, or nil: if the store has another password by now, nothing is changed, and
// the error is ErrNotFound.
func (db *DB) SetPassword(ctx context.Context, storeID string, hashed PasswordHash, replaced []byte) error {
	return db.write(ctx, func(tx *Tx) error {
		tx.exec("DELETE FROM sign_ins WHERE store_id = ?", storeID)
		return tx.mustChange(`
			UPDATE stores SET password_salt = ?, password_hash = ?
			WHERE id = ? AND password_salt = coalesce(?, password_salt)`, hashed.Salt, hashed.Hash, storeID, replaced)
	})
}

// insertSignIn takes as ?5 NULL, or the salt of the password that was checked: then it adds nothing if the
// store has another password by now.
const insertSignIn = `
	INSERT INTO sign_ins (hash, store_id, link, ends_at)
	SELECT ?1, id, ?3, ?4 FROM stores WHERE id = ?2 AND password_salt = coalesce(?5, password_salt)`

// NewSignInLink returns the path of a page that signs a store's owner in, once and before a time.
func (db *DB) NewSignInLink(ctx context.Context, storeID string, until Time) (path string, err error) {
	token := newSecret()
	return "/dashboard/enter/" + token, db.change(ctx, insertSignIn, digest(token), storeID, true, until, nil)
}

// signInByLink signs in whoever presses the button of that page. ErrNotFound says that the link was used or
// is too old.
func (a *auth) signInByLink(w http.ResponseWriter, r *http.Request, token string) error {
	const ofLink = "id = (SELECT store_id FROM sign_ins WHERE hash = ? AND link = 1 AND ends_at > ?)"
	acc, err := a.account(r.Context(), ofLink, digest(token), a.db.now())
	if err == nil {
		err = a.end(r, token)
	}
	if err != nil {
		return err
	}
	return a.begin(w, r, acc)
}

// end ends a sign-in or uses up a link. ErrNotFound says that it no longer exists.
func (a *auth) end(r *http.Request, token string) error {
	return a.db.change(r.Context(), "DELETE FROM sign_ins WHERE hash = ?", digest(token))
}

// begin begins a sign-in in this browser, and marks the browser as one that has signed in.
func (a *auth) begin(w http.ResponseWriter, r *http.Request, acc account) error {
	token := newSecret()
	until := a.db.now().Add(signInLasts)
	err := a.db.change(r.Context(), insertSignIn, digest(token), acc.StoreID, false, until, acc.Salt)
	if err != nil {
		return err
	}

	a.keep(w, "device", acc.devices(), newSecret(), deviceLasts)
	a.setCookie(w, "sign-in", token, 400*24*time.Hour) // Its row says when it ends.
	return nil
}

// owner returns the store whose owner sent a request, and notes the use of the sign-in. ErrNotFound says that
// nobody is signed in.
func (a *auth) owner(r *http.Request) (Store, error) {
	hash := digest(a.cookie(r, "sign-in"))
	now := a.db.now()
	st, err := one[Store](r.Context(), a.db, sqlStores+`
		WHERE s.id = (SELECT store_id FROM sign_ins WHERE hash = ? AND link = 0 AND ends_at > ?)`, hash, now)
	if err == nil {
		a.used.Store(string(hash), now)
	}
	return st, err
}

// signOut ends the sign-in of this browser.
func (a *auth) signOut(w http.ResponseWriter, r *http.Request) error {
	a.setCookie(w, "sign-in", "", -time.Second)
	return a.end(r, a.cookie(r, "sign-in"))
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

// keep seals a text without spaces in a cookie, for one purpose, for as long as lasts says.
func (a *auth) keep(w http.ResponseWriter, name, purpose, text string, lasts time.Duration) {
	content := fmt.Sprintf("%s %d", text, a.db.now().Add(lasts))
	sealed := a.sealing.Seal(nil, nil, []byte(content), []byte(name+" "+purpose))
	a.setCookie(w, name, base64.RawURLEncoding.EncodeToString(sealed), lasts)
}

// kept returns a text that was kept for this purpose, or "" if there is none, it is too old, or somebody else
// has planted it.
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
