//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Endpoint is where a store's events go.
type Endpoint struct {
	ID        string    `json:"endpoint_id"`
	StoreID   string    `json:"store_id"`
	URL       string    `json:"url"`
	Events    []Event   `json:"events"` // empty: all
	Active    bool      `json:"active"`
	OffReason OffReason `json:"off_reason,omitempty"`
	Health
	CreatedAt Time       `json:"created_at"`
	Secrets   []string   `json:"-"`          // that sign now, the newest first: after a rotation two
	Recent    []Delivery `json:"deliveries"` // the last ones, the newest first
}

// OffReason is why an endpoint is off.
type OffReason string

const (
	OffByOwner OffReason = "owner"
	OffGone    OffReason = "gone" // the receiver answered 410 Gone
)

// endpointColumns take the time as their first argument: an old secret signs until its time is over.
const endpointColumns = `e.id, e.store_id, e.url, e.events, e.active, e.off_reason,
	e.lane, e.failures, e.answer_ms, e.created_at,
	iif(e.old_secret_until > ?, json_array(e.secret, e.old_secret), json_array(e.secret))`

func scanEndpoint(r row) (e Endpoint, err error) {
	err = r.Scan(
		&e.ID, &e.StoreID, &e.URL, fromJSON{&e.Events}, &e.Active, &e.OffReason,
		&e.Lane, &e.Failures, &e.AnswerMS, &e.CreatedAt,
		fromJSON{&e.Secrets})
	return e, err
}

const (
	sqlEndpoints = "SELECT " + endpointColumns + `
		FROM   endpoints e
		WHERE  e.store_id = ? AND e.removed_at IS NULL
		ORDER BY e.id`
	sqlEndpoint = "SELECT " + endpointColumns + `
		FROM   endpoints e
		WHERE  e.id = ? AND e.store_id = ? AND e.removed_at IS NULL`
	sqlOwnEndpoint = "SELECT id FROM endpoints WHERE id = ? AND store_id = ? AND removed_at IS NULL"
)

// Endpoints lists a store's endpoints, the oldest first, each with its most recent deliveries.
func (db *DB) Endpoints(storeID string, recent int) ([]Endpoint, error) {
	list, err := queryAll(db.reader, scanEndpoint, sqlEndpoints, db.Now(), storeID)
	if err != nil {
		return nil, err
	}

	for i := range list {
		list[i].Recent, err = queryAll(db.reader, scanDelivery, sqlDeliveries, list[i].ID, lastRow, recent)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Endpoint reads one endpoint of a store with its deliveries before the one named, or the newest if none is.
func (db *DB) Endpoint(storeID, id, before string, limit int) (Endpoint, error) {
	e, err := queryOne(db.reader, scanEndpoint, sqlEndpoint, db.Now(), id, storeID)
	if err != nil {
		return e, err
	}
	e.Recent, err = queryAll(db.reader, scanDelivery, sqlDeliveries, id, rowBefore(before), limit)
	return e, err
}

// maxEndpoints is how many endpoints a store may have. Each event is a delivery to each of them.
const maxEndpoints = 10

// AddEndpoint registers an address. Without events, it gets all of them.
func (db *DB) AddEndpoint(
	ctx context.Context, storeID, address string, events []Event, secret string,
) (id string, err error) {
	return writeResult(ctx, db, func(tx *Tx) (string, error) {
		n, err := queryOne(tx, scanValue[int],
			"SELECT count(*) FROM endpoints WHERE store_id = ? AND removed_at IS NULL", storeID)
		if err != nil {
			return "", err
		}
		if n >= maxEndpoints {
			return "", limitReached("The store has %d webhook endpoints, and more are not possible: "+
				"remove one first.", maxEndpoints)
		}

		id := tx.newID()
		wanted := mustJSON(append([]Event{}, events...)) // [] and not null if there are none
		return id, tx.mustChange(`
			INSERT INTO endpoints (id, store_id, url, events, secret, created_at)
			SELECT ?, id, ?, ?, ?, ? FROM stores WHERE id = ?`,
			id, address, string(wanted), secret, tx.now, storeID)
	})
}

// newSecret returns a new signing secret for an endpoint.
func newSecret() string {
	secret, _ := newToken("whsec_")
	return secret
}

// RotateSecret gives an endpoint a new secret. The old one signs too for another 24 h, and alone what is
// claimed already: see Claim.Endpoint.
func (db *DB) RotateSecret(ctx context.Context, storeID, id, secret string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange(`
			UPDATE endpoints
			SET    old_secret = secret, old_secret_until = ?, secret = ?
			WHERE  id = ? AND store_id = ? AND removed_at IS NULL`,
			tx.now.Add(24*time.Hour), secret, id, storeID)
	})
}

// SwitchEndpoint turns an endpoint on or off for its owner. Its events wait while it is off, but see
// Claim.Endpoint. How it has answered before is forgotten.
func (db *DB) SwitchEndpoint(ctx context.Context, storeID, id string, on bool) error {
	return db.change(ctx, `
		UPDATE endpoints
		SET    active = ?1, off_reason = iif(?1, '', ?2), failures = 0, answer_ms = 0, lane = ?3
		WHERE  id = ?4 AND store_id = ?5 AND removed_at IS NULL`,
		on, OffByOwner, LaneUnproven, id, storeID)
}

// RemoveEndpoint removes an endpoint: it is in no list any more and gets nothing, but see Claim.Endpoint. The
// rows of its deliveries, of which there may be millions, are deleted by PurgeEndpoints.
func (db *DB) RemoveEndpoint(ctx context.Context, storeID, id string) error {
	return db.write(ctx, func(tx *Tx) error {
		return tx.mustChange(`
			UPDATE endpoints
			SET    removed_at = ?
			WHERE  id = ? AND store_id = ? AND removed_at IS NULL`, tx.now, id, storeID)
	})
}

const (
	sqlRemovedEndpoint = "SELECT id FROM endpoints WHERE removed_at IS NOT NULL ORDER BY removed_at LIMIT 1"
	sqlPurgeDeliveries = `
		DELETE FROM deliveries
		WHERE  row IN (SELECT row FROM deliveries WHERE endpoint_id = ? ORDER BY row LIMIT +?)`
)

// PurgeEndpoints deletes some rows of an endpoint that was removed, batchRows at most, and the endpoint
// when it has no more deliveries. done says that no removed endpoint is left.
func (db *DB) PurgeEndpoints(ctx context.Context) (done bool, err error) {
	id, err := queryOne(db.reader, scanValue[string], sqlRemovedEndpoint)
	if err == errNotFound {
		return true, nil
	}
	if err != nil {
		return false, err
	}

	return false, db.write(ctx, func(tx *Tx) error {
		n, err := tx.exec(sqlPurgeDeliveries, id, batchRows)
		if err != nil || n > 0 {
			return err
		}
		_, err = tx.exec("DELETE FROM endpoints WHERE id = ?", id)
		return err
	})
}

// checkEvents returns the events that an endpoint asks for by name, or what is wrong with a name. None means
// all.
func checkEvents(names []string) ([]Event, *Detail) {
	var wanted []Event
	for _, name := range names {
		if !slices.Contains(events, Event(name)) {
			choices := strings.Join(toStrings(events), ", ")
			message := fmt.Sprintf("%q is no event: choose from %s", name, choices)
			fault := Fault{Code: FaultEvent, Text: name}
			return nil, &Detail{Field: "events", Message: message, Fault: fault}
		}
		wanted = append(wanted, Event(name))
	}
	return wanted, nil
}

// checkWebhookURL returns what is wrong with an endpoint's address that is being added, or nil. https is
// asked for only here. The IP addresses of a name may change, so they are checked when it is dialed
// (refusePrivate).
func checkWebhookURL(address string, allowPrivate bool) *Detail {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || len(address) > 2048 {
		const example = "https://shop.example.id/webhooks"
		fault := Fault{Code: FaultAddress, Text: example}
		return &Detail{Field: "url", Message: "must be an address such as " + example, Fault: fault}
	}

	if u.Scheme != "https" && !(allowPrivate && u.Scheme == "http") {
		const message = "must begin with https:// (http and private addresses need -webhook-allow-private)"
		return &Detail{Field: "url", Message: message, Fault: Fault{Code: FaultHTTPS}}
	}
	if u.User != nil || u.Fragment != "" {
		const message = "must have no user, password or #fragment"
		return &Detail{Field: "url", Message: message, Fault: Fault{Code: FaultUserInfo}}
	}

	ip, err := netip.ParseAddr(u.Hostname())
	private := err == nil && !isPublic(ip) || u.Hostname() == "localhost"
	if private && !allowPrivate {
		const message = "must be a public address (private ones need -webhook-allow-private)"
		return &Detail{Field: "url", Message: message, Fault: Fault{Code: FaultPrivate}}
	}
	return nil
}

// deniedNets are the addresses that are not public (IANA special-purpose registries): of IPv6 all outside
// 2000::/3, and some in it.
var deniedNets = parseNets(`
	0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
	192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
	::/3 4000::/2 8000::/1 2001::/23 2001:db8::/32 2002::/16 3fff::/20`)

func parseNets(list string) (nets []netip.Prefix) {
	for _, s := range strings.Fields(list) {
		nets = append(nets, netip.MustParsePrefix(s))
	}
	return nets
}

func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	denied := func(n netip.Prefix) bool { return n.Contains(ip) }
	return ip.IsValid() && !slices.ContainsFunc(deniedNets, denied)
}

// newWebhookTransport returns the transport of deliveries. It uses no proxy and asks for no compression. It limits the
// time for the dial and the TLS handshake; post limits the whole.
func newWebhookTransport(allowPrivate bool) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if !allowPrivate {
		dialer.Control = refusePrivate
	}

	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    4,
		MaxIdleConns:           64,
		IdleConnTimeout:        time.Minute,
	}
}

var errNotPublic = errors.New("not a public address")

// refusePrivate is a net.Dialer's Control. It checks the address that is dialed and not the name, so that a
// name that changes its address gains nothing.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !isPublic(ap.Addr()) {
		return fmt.Errorf("%s: %w", ap.Addr(), errNotPublic)
	}
	return nil
}
