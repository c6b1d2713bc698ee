//go:build cgo

package main

import (
	"context"
	"strings"
)

// Mode is whether a gateway takes real money.
type Mode string

const (
	ModeSandbox Mode = "sandbox"
	ModeLive    Mode = "live"
)

// GatewayAccount is a store's account at a payment gateway.
type GatewayAccount struct {
	ID            string
	Provider      Provider
	Mode          Mode
	SecretKey     string
	CallbackToken string // Xendit's
}

// SetGateway stores an account in the place of the store's earlier one at this provider. The earlier key is kept
// while a session that it started may have to be asked about.
func (db *DB) SetGateway(ctx context.Context, storeID string, g GatewayAccount) error {
	return db.write(ctx, func(tx *Tx) error {
		same, err := tx.exec(`
			UPDATE gateways
			SET    mode = ?1, callback_token = ?2
			WHERE  store_id = ?3 AND provider = ?4 AND secret_key = ?5 AND replaced_at IS NULL`,
			g.Mode, g.CallbackToken, storeID, g.Provider, g.SecretKey)
		if err != nil || same > 0 {
			return err
		}

		_, err = tx.exec(`
			UPDATE gateways
			SET    replaced_at = ?1
			WHERE  store_id = ?2 AND provider = ?3 AND replaced_at IS NULL`, tx.now, storeID, g.Provider)
		if err != nil {
			return err
		}
		_, err = tx.exec(`
			DELETE FROM gateways
			WHERE  store_id = ?1 AND provider = ?2 AND NOT EXISTS (
				SELECT 1 FROM payment_sessions
				WHERE  account_id = gateways.id AND next_check_at IS NOT NULL)`, storeID, g.Provider)
		if err != nil {
			return err
		}
		return tx.mustChange(`
			INSERT INTO gateways (id, store_id, provider, mode, secret_key, callback_token)
			SELECT ?, id, ?, ?, ?, ?
			FROM   stores
			WHERE  id = ?`, tx.newID(), g.Provider, g.Mode, g.SecretKey, g.CallbackToken, storeID)
	})
}

const selectGateway = `
	SELECT id, provider, mode, secret_key, callback_token
	FROM   gateways
	WHERE  `

const (
	sqlGateway     = selectGateway + "store_id = ? AND provider = ? AND replaced_at IS NULL"
	sqlGatewayByID = selectGateway + "id = ?"
	sqlGateways    = selectGateway + "store_id = ? AND replaced_at IS NULL ORDER BY provider"
)

func scanGateway(r row) (g GatewayAccount, err error) {
	err = r.Scan(&g.ID, &g.Provider, &g.Mode, &g.SecretKey, &g.CallbackToken)
	return g, err
}

// GatewayAccount reads a store's account at a provider that is in use.
func (db *DB) GatewayAccount(storeID string, provider Provider) (GatewayAccount, error) {
	return queryOne(db.reader, scanGateway, sqlGateway, storeID, provider)
}

// GatewayAccountByID reads one account, in use or replaced.
func (db *DB) GatewayAccountByID(id string) (GatewayAccount, error) {
	return queryOne(db.reader, scanGateway, sqlGatewayByID, id)
}

// GatewayAccounts lists a store's accounts that are in use, by provider.
func (db *DB) GatewayAccounts(storeID string) ([]GatewayAccount, error) {
	return queryAll(db.reader, scanGateway, sqlGateways, storeID)
}

// AllGatewayAccounts lists a store's accounts at a provider, the one in use first and then the replaced ones.
func (db *DB) AllGatewayAccounts(storeID string, provider Provider) ([]GatewayAccount, error) {
	return queryAll(db.reader, scanGateway, selectGateway+`
		store_id = ? AND provider = ?
		ORDER BY replaced_at IS NOT NULL, replaced_at DESC`, storeID, provider)
}

// SandboxOffered reports whether a store offers the sandbox: it is in test mode.
func (db *DB) SandboxOffered(storeID string) (bool, error) {
	return queryOne(db.reader, scanValue[bool], "SELECT test_mode FROM stores WHERE id = ?", storeID)
}

// checkGateway returns the first thing that is wrong with an account. Its message is a sentence of its own.
func checkGateway(g GatewayAccount) (wrong Detail, ok bool) {
	switch {
	case g.Provider != ProviderMidtrans && g.Provider != ProviderXendit:
		return Detail{
			Field:   "provider",
			Message: "the provider must be midtrans or xendit",
			Fault:   Fault{Code: FaultChoice, Text: "midtrans, xendit"},
		}, false

	case g.Mode != ModeSandbox && g.Mode != ModeLive:
		return Detail{
			Field:   "mode",
			Message: "the mode must be sandbox or live",
			Fault:   Fault{Code: FaultChoice, Text: "sandbox, live"},
		}, false

	case !isSecret(g.SecretKey):
		return Detail{
			Field:   "secret_key",
			Message: "the secret key is needed, without spaces",
			Fault:   Fault{Code: FaultSecretKey},
		}, false

	case g.Provider == ProviderXendit && !isSecret(g.CallbackToken):
		return Detail{
			Field:   "callback_token",
			Message: "Xendit's callback token is needed too, without spaces",
			Fault:   Fault{Code: FaultCallbackToken},
		}, false

	case !g.keyFitsMode():
		return Detail{
			Field:   "secret_key",
			Message: "the secret key is not of the mode " + string(g.Mode),
			Fault:   Fault{Code: FaultMode, Text: string(g.Mode)},
		}, false
	}
	return Detail{}, true
}

// isSecret reports whether text can be a key or token: printable ASCII without spaces.
func isSecret(text string) bool {
	unprintable := func(r rune) bool { return r <= ' ' || r > '~' }
	return text != "" && len(text) <= 500 && !strings.ContainsFunc(text, unprintable)
}

// keyFitsMode reports whether the secret key can be one of the account's mode. Of Midtrans' keys only some of
// the sandbox's can be recognized.
func (g GatewayAccount) keyFitsMode() bool {
	if g.Provider == ProviderXendit {
		return strings.HasPrefix(g.SecretKey, "xnd_development_") == (g.Mode == ModeSandbox)
	}
	return g.Mode == ModeSandbox || !strings.HasPrefix(g.SecretKey, "SB-")
}
