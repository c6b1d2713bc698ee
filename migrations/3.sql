-- Version 3: checks of payment sessions are rows with a due time, payments have rows of their own, replaced keys are
-- kept, and alerts have amounts.

ALTER TABLE stores ADD COLUMN test_mode INTEGER NOT NULL DEFAULT 0 CHECK (test_mode IN (0, 1));

ALTER TABLE gateways RENAME TO gateways_2;
CREATE TABLE gateways (
  id             TEXT PRIMARY KEY,
  store_id       TEXT NOT NULL REFERENCES stores,
  provider       TEXT NOT NULL CHECK (provider IN ('midtrans', 'xendit')),
  mode           TEXT NOT NULL CHECK (mode IN ('sandbox', 'live')),
  secret_key     TEXT NOT NULL,
  callback_token TEXT NOT NULL,
  replaced_at    INTEGER
) STRICT;
INSERT INTO gateways
SELECT store_id || '-' || provider, store_id, provider, mode, secret_key, callback_token, NULL FROM gateways_2;
DROP TABLE gateways_2;
CREATE UNIQUE INDEX gateways_in_use   ON gateways (store_id, provider) WHERE replaced_at IS NULL;
CREATE INDEX        gateways_of_store ON gateways (store_id, provider);

CREATE TABLE alerts (
  id             TEXT    PRIMARY KEY,
  store_id       TEXT    NOT NULL REFERENCES stores,
  order_id       TEXT    NOT NULL REFERENCES orders,
  code           TEXT    NOT NULL,
  transaction_id TEXT    NOT NULL,
  amount         INTEGER NOT NULL,
  due            INTEGER NOT NULL,
  raised_at      INTEGER NOT NULL,
  resolved_at    INTEGER
) STRICT;
INSERT INTO alerts
SELECT lower(hex(randomblob(16))), store_id, id, 'oversold', '', 0, 0, unixepoch(json ->> 'updated_at') * 1000, NULL
FROM   orders WHERE oversold = 1;
INSERT INTO alerts
SELECT lower(hex(randomblob(16))), o.store_id, o.id, 'overpaid', coalesce(h.note ->> 'transaction', ''),
       coalesce(h.note ->> 'amount', 0), 0, coalesce(h.at, unixepoch(json ->> 'updated_at') * 1000), NULL
FROM   orders o
LEFT JOIN order_history h ON h.order_id = o.id AND h.position = (
           SELECT max(position) FROM order_history
           WHERE  order_id = o.id AND note ->> 'code' IN ('not_needed', 'maybe_not_needed'))
WHERE  overpaid = 1;
CREATE UNIQUE INDEX alerts_open ON alerts (store_id, order_id, code, transaction_id) WHERE resolved_at IS NULL;

-- An order that waits because of a wrong amount had no alert.
INSERT OR IGNORE INTO alerts
SELECT lower(hex(randomblob(16))), o.store_id, o.id,
       iif(h.note ->> 'amount' < h.note ->> 'due', 'underpaid', 'overpaid'),
       coalesce((SELECT transaction_id FROM payment_sessions
                 WHERE  order_id = o.id AND attempt = h.note ->> 'attempt'), ''),
       h.note ->> 'amount', h.note ->> 'due', h.at, NULL
FROM   orders o
JOIN   order_history h ON h.order_id = o.id AND h.to_status <> h.from_status AND h.note ->> 'code' = 'other_amount'
WHERE  o.status = 'awaiting_verification';

DROP INDEX orders_alerted;
UPDATE orders
SET    json = json_set(json, '$.alerts', (
           SELECT json_group_array(code) FROM (SELECT code FROM alerts WHERE order_id = orders.id ORDER BY code)))
WHERE  id IN (SELECT order_id FROM alerts);
ALTER TABLE orders DROP COLUMN oversold;
ALTER TABLE orders DROP COLUMN overpaid;

DROP INDEX payment_sessions_to_poll;
DROP INDEX payment_sessions_by_transaction;
DROP INDEX payment_sessions_by_request;
DROP INDEX payment_sessions_warned;
ALTER TABLE payment_sessions ADD COLUMN account_id     TEXT    NOT NULL DEFAULT '';
ALTER TABLE payment_sessions ADD COLUMN gateway_state  TEXT    NOT NULL DEFAULT '';
ALTER TABLE payment_sessions ADD COLUMN approved       INTEGER NOT NULL DEFAULT 0 CHECK (approved IN (0, 1));
ALTER TABLE payment_sessions ADD COLUMN ended_at       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payment_sessions ADD COLUMN tried_at       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payment_sessions ADD COLUMN failing_since  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payment_sessions ADD COLUMN problem        TEXT    NOT NULL DEFAULT '';
ALTER TABLE payment_sessions ADD COLUMN problem_text   TEXT    NOT NULL DEFAULT '';
ALTER TABLE payment_sessions ADD COLUMN next_check_at  INTEGER;
ALTER TABLE payment_sessions ADD COLUMN leased_until   INTEGER NOT NULL DEFAULT 0;

CREATE TABLE payments (
  session_id     TEXT    NOT NULL REFERENCES payment_sessions,
  transaction_id TEXT    NOT NULL,
  request_id     TEXT    NOT NULL,
  state          TEXT    NOT NULL,
  amount         INTEGER NOT NULL,
  returned       INTEGER NOT NULL,
  PRIMARY KEY (session_id, transaction_id)
) STRICT, WITHOUT ROWID;
-- Midtrans's notes of returned money count what was returned before, Xendit's do not.
INSERT INTO payments
SELECT s.id, s.transaction_id, s.request_id, '', coalesce((
           SELECT h.note ->> 'amount' FROM order_history h
           WHERE  h.order_id = s.order_id AND h.note ->> 'attempt' = s.attempt
           AND    h.note ->> 'code' IN ('other_amount', 'not_needed', 'maybe_not_needed')
           ORDER BY h.position LIMIT 1), o.json ->> 'amount'), coalesce((
           SELECT iif(s.provider = 'midtrans', max(h.note ->> 'amount'), sum(h.note ->> 'amount'))
           FROM   order_history h
           WHERE  h.order_id = s.order_id AND h.note ->> 'attempt' = s.attempt
           AND    h.note ->> 'code' IN ('returned', 'returned_partly')), 0)
FROM   payment_sessions s
JOIN   orders o ON o.id = s.order_id
WHERE  s.transaction_id <> '';
UPDATE payments
SET    returned = amount
WHERE  session_id IN (SELECT paid_by FROM orders WHERE status = 'refunded');
UPDATE payments
SET    state = CASE (SELECT status FROM payment_sessions WHERE id = session_id)
           WHEN 'paid'   THEN iif(returned >= amount, 'refunded', iif(returned > 0, 'partly refunded', 'settled'))
           WHEN 'failed' THEN 'denied'
           WHEN 'active' THEN 'challenged'
           ELSE '' END;
CREATE INDEX payments_by_transaction ON payments (transaction_id);
CREATE INDEX payments_by_request     ON payments (request_id) WHERE request_id <> '';

CREATE TABLE gateway_names (
  session_id TEXT NOT NULL REFERENCES payment_sessions,
  kind       TEXT NOT NULL CHECK (kind IN ('session', 'refund', 'dispute')),
  name       TEXT NOT NULL,
  PRIMARY KEY (session_id, kind, name)
) STRICT, WITHOUT ROWID;

UPDATE payment_sessions
SET    problem = iif(warning = '', '', 'unreachable'), problem_text = warning,
       account_id = coalesce((
           SELECT g.id FROM gateways g
           JOIN   orders o ON o.store_id = g.store_id
           WHERE  o.id = payment_sessions.order_id AND g.provider = payment_sessions.provider), '');
ALTER TABLE payment_sessions DROP COLUMN request_id;
ALTER TABLE payment_sessions DROP COLUMN warning;

-- The page of a denied payment can still be paid: its session lives on.
UPDATE payment_sessions
SET    status = 'active', gateway_state = 'denied'
WHERE  status = 'failed' AND payment_url <> ''
AND    order_id IN (SELECT id FROM orders WHERE status = 'pending')
AND    attempt = (SELECT max(attempt) FROM payment_sessions s WHERE s.order_id = payment_sessions.order_id);

-- A session's transaction_id is now that of the payment that settled it, not of a payment that was denied.
UPDATE payment_sessions
SET    transaction_id = ''
WHERE  status <> 'paid' AND id NOT IN (SELECT paid_by FROM orders WHERE paid_by IS NOT NULL);

-- The owner's approval of a challenged payment was not told to the gateway.
UPDATE payment_sessions
SET    approved = 1
WHERE  id IN (SELECT o.paid_by FROM orders o
              JOIN   order_history h ON h.order_id = o.id AND h.note ->> 'code' = 'challenged'
              WHERE  o.status = 'paid');

-- Sessions that may hold money are due now. One that is over is asked about when its order ends, or a week after
-- its order's last change.
UPDATE payment_sessions
SET    ended_at = iif(status IN ('starting', 'active'), 0, (
           SELECT unixepoch(json ->> 'updated_at') * 1000 FROM orders WHERE id = order_id));
UPDATE payment_sessions
SET    next_check_at = CASE
           WHEN status = 'active' THEN checked_at
           WHEN status = 'starting' THEN expires_at
           WHEN (SELECT status FROM orders WHERE id = order_id) = 'pending' THEN expires_at
           WHEN ended_at + 604800000 > unixepoch() * 1000 THEN ended_at + 604800000 END;
CREATE INDEX payment_sessions_due     ON payment_sessions (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX payment_sessions_leased  ON payment_sessions (leased_until) WHERE leased_until > 0;
CREATE INDEX payment_sessions_problem ON payment_sessions (order_id) WHERE problem <> '';

ALTER TABLE notifications ADD COLUMN transaction_id TEXT NOT NULL DEFAULT '';
ALTER TABLE notifications ADD COLUMN claim          TEXT NOT NULL DEFAULT '';
DROP INDEX notifications_undecided;
CREATE INDEX notifications_undecided ON notifications (session_id) WHERE decided_at IS NULL;

-- An undecided notification makes its session due, and its names are what the gateway is asked by.
UPDATE payment_sessions
SET    next_check_at = checked_at
WHERE  id IN (SELECT session_id FROM notifications WHERE decided_at IS NULL);

-- The dashboard finds an order by the gateway's name of a session.
CREATE INDEX payment_sessions_by_gateway ON payment_sessions (gateway_id) WHERE gateway_id <> '';

-- What an undecided notification names is remembered, as that of a new one is.
UPDATE notifications
SET    transaction_id = coalesce(body ->> 'transaction_id', body ->> '$.data.payment_id', ''),
       claim = CASE coalesce(lower(body ->> 'transaction_status'), body ->> 'event', '')
           WHEN 'settlement'                THEN 'settled'
           WHEN 'payment_session.completed' THEN 'settled'
           WHEN 'refund.succeeded'          THEN 'partly refunded'
           ELSE '' END
WHERE  decided_at IS NULL AND provider <> 'sandbox';
INSERT OR IGNORE INTO payments
SELECT session_id, transaction_id, coalesce(body ->> '$.data.payment_request_id', ''), '', 0, 0
FROM   notifications
WHERE  decided_at IS NULL AND transaction_id <> '';
INSERT OR IGNORE INTO gateway_names
SELECT n.session_id, 'session', n.body ->> '$.data.payment_session_id'
FROM   notifications n
JOIN   payment_sessions s ON s.id = n.session_id
WHERE  n.decided_at IS NULL AND n.body ->> '$.data.payment_session_id' <> s.gateway_id;
INSERT OR IGNORE INTO gateway_names
SELECT session_id, 'refund', coalesce(body ->> '$.data.refund_id', body ->> '$.data.id')
FROM   notifications
WHERE  decided_at IS NULL AND body ->> 'event' LIKE 'refund.%'
AND    coalesce(body ->> '$.data.refund_id', body ->> '$.data.id') <> '';

-- Where owners have signed in before.
CREATE TABLE known_places (
  store_id TEXT    NOT NULL REFERENCES stores,
  place    BLOB    NOT NULL,
  seen_at  INTEGER NOT NULL,
  PRIMARY KEY (store_id, place)
) STRICT, WITHOUT ROWID;

-- The queue finds endpoints that have something due by an index, in lanes by how they answer. Removed endpoints are
-- marked, and their rows are deleted in small writes.
ALTER TABLE endpoints ADD COLUMN answer_ms  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE endpoints ADD COLUMN lane       TEXT    NOT NULL DEFAULT 'unproven'
                                 CHECK (lane IN ('quick', 'unproven', 'narrow'));
ALTER TABLE endpoints ADD COLUMN due_at     INTEGER;
ALTER TABLE endpoints ADD COLUMN removed_at INTEGER;
UPDATE endpoints
SET    lane   = iif(failures >= 5, 'narrow', 'unproven'),
       due_at = (SELECT min(next_at) FROM deliveries WHERE endpoint_id = endpoints.id AND next_at IS NOT NULL);
DROP INDEX endpoints_of_store;
CREATE INDEX endpoints_of_store ON endpoints (store_id, id) WHERE removed_at IS NULL;
CREATE INDEX endpoints_due      ON endpoints (lane, due_at)
  WHERE active = 1 AND removed_at IS NULL AND due_at IS NOT NULL;
CREATE INDEX endpoints_removed  ON endpoints (removed_at) WHERE removed_at IS NOT NULL;

-- An attempt is counted when it has ended, and no longer when it is claimed.
UPDATE deliveries SET attempt = attempt - 1 WHERE leased = 1;

-- Why there was no answer is a few fixed words. The old texts name this server's resolver and addresses.
UPDATE deliveries
SET    answer = CASE
           WHEN answer LIKE '%no such host%'           THEN 'no such host'
           WHEN answer LIKE '%connection refused%'     THEN 'refused'
           WHEN answer LIKE '%not a public address%'   THEN 'not a public address'
           WHEN answer LIKE '%deadline exceeded%'      THEN 'timed out'
           WHEN answer LIKE '%timeout%'                THEN 'timed out'
           ELSE 'no answer' END
WHERE  answer_status IS NULL AND answer <> '';
