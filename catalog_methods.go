package main

// This file has a store's payment methods. A method that nobody can use is not offered.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Provider is who receives the money of a payment method: the store itself or a gateway.
type Provider string

const (
	Manual     Provider = "manual" // a person checks whether the money arrived
	Sandbox    Provider = "sandbox"
	Midtrans   Provider = "midtrans"
	Xendit     Provider = "xendit"
	NoProvider Provider = "none" // for an order with nothing to pay
)

// MethodKind is how a buyer pays by a manual method. The pay page has words for each.
type MethodKind string

const (
	Transfer MethodKind = "transfer" // to one of the method's accounts at banks
	Cash     MethodKind = "cash"     // on delivery: nothing is paid in advance
	QRIS     MethodKind = "qris"     // with the code in the method's picture
	EWallet  MethodKind = "ewallet"  // to one of the method's accounts, which are telephone numbers
)

// BankAccount is an account at a bank or an e-wallet to which buyers pay.
type BankAccount struct {
	Bank   string `json:"bank" rule:"text 1..60"`
	Number string `json:"number" rule:"account"` // as the owner writes it
	Holder string `json:"holder,omitempty" rule:"text 1..100 optional"`
}

// Digits returns the account's number as banks take it, without the marks between its groups.
func (a BankAccount) Digits() string {
	return strings.NewReplacer(" ", "", "-", "", ".", "").Replace(a.Number)
}

// Method is a way to pay that a store offers, as the API shows it and, with its rules, as a catalog file or a
// form gives it.
type Method struct {
	Code         string          `json:"code" rule:"code unique"`
	Name         string          `json:"name" rule:"text 1..100"`
	Provider     Provider        `json:"provider" rule:"choice manual|sandbox|midtrans|xendit"`
	Kind         MethodKind      `json:"kind,omitempty" rule:"choice transfer|cash|qris|ewallet optional"`
	Fee          int64           `json:"fee" rule:"money optional"`
	UniqueCode   bool            `json:"unique_code" rule:"bool optional"`
	MinAmount    *int64          `json:"min_amount" rule:"money optional"` // of the subtotal; nil is no bound
	MaxAmount    *int64          `json:"max_amount" rule:"money optional"`
	Instructions string          `json:"instructions" rule:"lines 0..10000 optional"`
	Accounts     []BankAccount   `json:"accounts" rule:"list 0..10 optional"`
	ImageURL     *string         `json:"image_url" rule:"url optional"`
	Channels     []string        `json:"channels,omitempty" rule:"codes 0..40 optional"` // of its page; none = all
	QRIS         string          `json:"-" rule:"lines 0..490 optional"`                 // of the shop's own code
	QRISMerchant *QRISMerchant   `json:"qris_merchant,omitempty" sql:"-"`                // what the API shows of it
	Enabled      bool            `json:"-" rule:"bool optional"`
	Shop         bool            `json:"shop" rule:"bool optional"`               // offered on the shop page
	Position     int64           `json:"position" rule:"int 0..1000000 optional"` // in lists, the smallest first
	Removed      bool            `json:"-"`                                       // only orders show it
	Test         bool            `json:"-"`                                       // its orders are test orders
	HasKey       bool            `json:"-"`                                       // a key is in use, or not needed
	Channel      string          `json:"settlement_channel"`                      // manual or gateway
	Given        map[string]bool `json:"-" sql:"-"`                               // the fields that the input has
}

// validate refuses fields that only manual methods have. The form of a method, which has no path, may have the fields
// of all kinds.
func (m *Method) validate(wrong *Refusal, path string, given map[string]bool) {
	for _, name := range []string{"kind", "accounts", "unique_code", "qris"} {
		if path != "" && m.Provider != "" && m.Provider != Manual && given[name] {
			wrong.add(path+name, "is only for methods of the provider manual: leave it out")
		}
	}
	for i, code := range m.Channels {
		if m.Provider != "" && !m.Provider.isChannel(code) {
			wrong.add(fmt.Sprintf("%schannels[%d]", path, i), "is not a channel of the provider %s", m.Provider)
		}
	}
	if m.MinAmount != nil && m.MaxAmount != nil && *m.MinAmount > *m.MaxAmount {
		wrong.add(path+"min_amount", "must not be above max_amount")
	}
	m.validateCode(wrong, path)
}

// isPicture reports whether an address may be that of one of our pictures, which is not https on a local address.
var isPicture = matcher(`/pictures/[0-9a-f]{64}$`)

// validateCode refuses a picture that no pay page can show, and a text that is not a shop's code.
func (m Method) validateCode(wrong *Refusal, path string) {
	if m.ImageURL != nil && !isPicture(*m.ImageURL) {
		m.validateImage(wrong, path)
	}
	if _, problem := readQRIS(m.QRIS); m.QRIS != "" && problem != "" {
		wrong.add(path+"qris", problem)
	}
}

// validateImage refuses a picture that a pay page, which is https, cannot show.
func (m Method) validateImage(wrong *Refusal, path string) {
	if !strings.HasPrefix(*m.ImageURL, "https://") {
		wrong.add(path+"image_url", "must begin with https://")
	}
}

// usable reports whether buyers may pay an order of this subtotal with a method; -1 means any subtotal.
func (m Method) usable(st Store, subtotal int64) bool {
	below := m.MinAmount != nil && subtotal < *m.MinAmount
	above := m.MaxAmount != nil && subtotal > *m.MaxAmount
	return m.lacks(st) == "" && (subtotal < 0 || !below && !above && m.takes(subtotal))
}

// isOfShop reports whether the shop page may offer a method. It offers no test methods.
func (m Method) isOfShop(st Store) bool { return m.Shop && !m.Test && m.lacks(st) == "" }

// What a shop page needs before it opens.
const (
	needsProduct = "needs a product that is for sale"
	needsMethod  = "needs a way to pay that is offered on the shop page"
	needsContact = "needs a contact for buyers"
)

// refuseOpening refuses to open a shop page from which nobody could order. If an open one loses something later, the
// page says so.
func (tx *Tx) refuseOpening(st Store, refusal *Refusal) {
	const goods = "SELECT EXISTS (SELECT 1 FROM products WHERE store_id = ? AND published = 1 AND removed_at = 0)"
	if tx.count(goods, st.ID) == 0 {
		refusal.add("shop", needsProduct)
	}
	methods := rowsOf[Method](tx, sqlMethods, st.ID)
	if !slices.ContainsFunc(methods, func(m Method) bool { return m.isOfShop(st) }) {
		refusal.add("shop", needsMethod)
	}
	if st.Contact == "" {
		refusal.add("shop", needsContact)
	}
}

// takes reports whether an amount is within the bound of a method that has only the text of its code.
func (m Method) takes(amount int64) bool {
	return m.Kind != QRIS || m.ImageURL != nil || amount <= mostQRISAmount
}

// lacks says why the store's buyers are not offered a method: off, account, picture, key, test_mode, https or
// reachable. It is empty if they are.
func (m Method) lacks(st Store) string {
	switch {
	case !m.Enabled:
		return "off"
	case m.lacksTarget() != "":
		return m.lacksTarget()
	case !m.HasKey:
		return "key"
	case m.Test && !st.TestMode:
		return "test_mode"
	case m.Provider == Xendit && !strings.HasPrefix(st.URL, "https://"):
		// Xendit takes no other address to return to.
		return "https"
	case m.Provider == Midtrans:
		if channels, _ := m.offered(st); len(channels) == 0 {
			return "reachable"
		}
	}
	return ""
}

// lacksTarget says what a manual method lacks to receive money: account or picture. It is empty if it lacks nothing.
func (m Method) lacksTarget() string {
	needsAccount := m.Kind == Transfer || m.Kind == EWallet // Only manual methods have a kind.
	switch {
	case needsAccount && len(m.Accounts) == 0 && m.Instructions == "":
		return "account"
	case m.Kind == QRIS && m.ImageURL == nil && m.QRIS == "":
		return "picture"
	}
	return ""
}

// sqlMethods reads a store's methods, removed ones too. Only manual ones have a kind and, unless that
// is cash, a unique code and accounts.
const sqlMethods = `
	SELECT m.code, m.name, m.provider, iif(m.provider = 'manual', m.kind, '') AS kind, m.fee,
	       m.provider = 'manual' AND m.kind <> 'cash' AND m.unique_code AS unique_code,
	       m.min_amount, m.max_amount, m.instructions, m.removed_at > 0 AS removed,
	       iif(m.provider = 'manual' AND m.kind <> 'cash', m.accounts, '[]') AS accounts, m.image_url,
	       m.enabled AND m.removed_at = 0 AS enabled, m.channels,
	       iif(m.provider = 'manual' AND m.kind = 'qris', m.qris, '') AS qris,
	       coalesce(m.shop, m.provider <> 'manual' OR m.kind <> 'cash') AS shop, m.position,
	       m.provider = 'sandbox' OR coalesce(k.mode, '') = 'sandbox' AS test,
	       m.provider IN ('manual', 'sandbox') OR k.id IS NOT NULL AS has_key,
	       iif(m.provider = 'manual', 'manual', 'gateway') AS channel
	FROM   payment_methods m
	LEFT JOIN gateway_keys k ON k.store_id = m.store_id AND k.provider = m.provider AND k.replaced_at = 0
	WHERE  m.store_id = ?`

// Methods lists a store's payment methods, usable or not, in the owner's order.
func (db *DB) Methods(ctx context.Context, storeID string) ([]Method, error) {
	return all[Method](ctx, db, sqlMethods+" AND m.removed_at = 0 ORDER BY m.position, m.code", storeID)
}

// UsableMethods lists what a store's buyers may pay an order of this subtotal with; -1 means any subtotal.
func (db *DB) UsableMethods(ctx context.Context, st Store, subtotal int64) ([]Method, error) {
	methods, err := db.Methods(ctx, st.ID)
	return slices.DeleteFunc(methods, func(m Method) bool { return !m.usable(st, subtotal) }), err
}

// ShopMethods lists the methods that buyers of the shop page are offered, in the owner's order.
func (db *DB) ShopMethods(ctx context.Context, st Store) ([]Method, error) {
	methods, err := db.Methods(ctx, st.ID)
	return slices.DeleteFunc(methods, func(m Method) bool { return !m.isOfShop(st) }), err
}

// Method reads one of a store's payment methods, usable or not. It also finds a removed one, which is off.
func (db *DB) Method(ctx context.Context, storeID, code string) (Method, error) {
	return one[Method](ctx, db, sqlMethods+" AND m.code = ?", storeID, code)
}

// method is Method within a write. found is false if the store never had one with this code.
func (tx *Tx) method(storeID, code string) (m Method, found bool) {
	found = tx.find(&m, sqlMethods+" AND m.code = ?", storeID, code)
	return m, found
}

// mostMethods is how many payment methods a store may have, because their lists are not paged. mostMethodsEver counts
// the removed ones too.
const (
	mostMethods     = 100
	mostMethodsEver = 1000
)

const sqlCountMethods = "SELECT count(*) FROM payment_methods WHERE store_id = ? AND removed_at = 0"

// putMethod adds a payment method, or sets the fields that its input has. It refuses another provider or kind, because
// the pay pages of orders depend on them. For the same reason a removed method keeps its code. Adding that code again
// makes a new method of the same provider and kind.
func (in *importRun) putMethod(m Method, path string) {
	was, found := in.method(in.store.ID, m.Code)
	isNew := !found || was.Removed
	there := was
	if isNew {
		there = Method{Kind: Transfer, Enabled: true, Shop: m.Provider != Manual || m.Kind != Cash}
	}
	m.ImageURL = in.ownPicture(m.ImageURL, path)
	if m.ImageURL != nil && !strings.HasPrefix(*m.ImageURL, "/") {
		m.validateImage(in.wrong, path)
	}
	fillIn(&m, there, m.Given)
	m.Kind = cmp.Or(m.Kind, Transfer)
	if found && (was.Provider != m.Provider || m.Provider == Manual && was.Kind != m.Kind) {
		in.refuseOther(was, path)
		return
	}
	was.Kind = m.Kind // The row of a gateway's method has one too.

	result := resultOf(isNew, m, was)
	if result != Unchanged {
		in.exec(`
			INSERT INTO payment_methods (store_id, code, name, provider, fee, instructions, min_amount, max_amount,
			                             enabled, kind, accounts, image_url, unique_code, channels, qris, shop,
			                             position)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (store_id, code) DO UPDATE
			SET    name = excluded.name, fee = excluded.fee, instructions = excluded.instructions,
			       min_amount = excluded.min_amount, max_amount = excluded.max_amount, enabled = excluded.enabled,
			       accounts = excluded.accounts, image_url = excluded.image_url, unique_code = excluded.unique_code,
			       channels = excluded.channels, qris = excluded.qris, shop = excluded.shop,
			       position = excluded.position, removed_at = 0`,
			in.store.ID, m.Code, m.Name, m.Provider, m.Fee, m.Instructions, m.MinAmount, m.MaxAmount, m.Enabled, m.Kind,
			fromJSON{m.Accounts}, m.ImageURL, m.UniqueCode, fromJSON{m.Channels}, m.QRIS, m.Shop, m.Position)
	}
	in.done.Entries = append(in.done.Entries, EntryResult{Type: "payment_method", Code: m.Code, Result: result})
}

// refuseOther refuses another provider or kind for a method's code.
func (in *importRun) refuseOther(was Method, path string) {
	if !was.Removed {
		in.wrong.add(path+"code",
			"is taken: a method keeps its provider and kind, so another one needs a code of its own")
		return
	}
	in.wrong.add(path+"code", "belongs to the removed method %q, which orders name: "+
		"choose another code, or its provider and kind (%s)", was.Name,
		strings.TrimSpace(string(was.Provider)+" "+string(was.Kind)))
}

// RemoveMethod hides a payment method from everything but its orders, whose buyers can still pay.
func (db *DB) RemoveMethod(ctx context.Context, storeID, code string) error {
	return db.mustChange(ctx, `
		UPDATE payment_methods SET removed_at = ? WHERE store_id = ? AND code = ? AND removed_at = 0`,
		db.now(), storeID, code)
}
