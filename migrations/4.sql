-- From version 3 to version 4.

-- Orders show their shipping fee, discount and fee, and when they were paid: the last change to paid in their history.
-- One that was paid and then reversed is failed, and shows no time.
UPDATE orders SET json = json_set(json,
  '$.shipping_fee', 0,
  '$.discount',     0,
  '$.fee',          max(0, json ->> 'amount' - json ->> 'subtotal'),
  '$.unique_code',  0);
UPDATE orders SET json = json_patch(json, json_object('paid_at', (
  SELECT strftime('%Y-%m-%dT%H:%M:%fZ', max(at) / 1000.0, 'unixepoch')
  FROM   order_history
  WHERE  order_id = orders.id AND to_status = 'paid' AND from_status <> 'paid')))
WHERE  status IN ('paid', 'refunded');

-- The tables that grow with every order have integer rows, which are made of the time and the counter in
-- their ids (UUIDv7): of "01a1ff03-97e2-7abc-…" the hexadecimal number 01a1ff0397e2abc. JSON5, which SQLite's ->>
-- reads, has such numbers.

CREATE TABLE orders_4 (
  row         INTEGER PRIMARY KEY,
  store_id    TEXT    NOT NULL REFERENCES stores,
  expires_at  INTEGER NOT NULL,
  components  TEXT    NOT NULL,
  paid_by     TEXT,
  json        TEXT    NOT NULL,
  purged_sequence INTEGER NOT NULL DEFAULT 0,
  id          TEXT    NOT NULL AS (substr(json, 8, 36)),
  status      TEXT    NOT NULL AS (json ->> 'status') STORED CHECK (status IN
                ('pending', 'awaiting_verification', 'paid', 'failed', 'expired', 'refunded')),
  reference   TEXT    NOT NULL AS (json ->> 'payment_reference') STORED,
  provider    TEXT    NOT NULL AS (json ->> 'payment_provider') STORED,
  external_id TEXT    AS (json ->> 'external_id') STORED
) STRICT;
INSERT INTO orders_4 (row, store_id, expires_at, components, paid_by, json)
SELECT ('0x' || substr(id, 1, 8) || substr(id, 10, 4) || substr(id, 16, 3)) ->> '$',
       store_id, expires_at, components, paid_by, json
FROM   orders
ORDER BY id;
DROP TABLE orders;
ALTER TABLE orders_4 RENAME TO orders;
CREATE INDEX        orders_by_time      ON orders (store_id);
CREATE INDEX        orders_by_status    ON orders (store_id, status);
CREATE UNIQUE INDEX orders_by_reference ON orders (store_id, reference);
CREATE UNIQUE INDEX orders_by_external  ON orders (store_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX        orders_to_expire    ON orders (expires_at) WHERE status = 'pending';

CREATE TABLE alerts_4 (
  id             TEXT    PRIMARY KEY,
  store_id       TEXT    NOT NULL REFERENCES stores,
  order_row      INTEGER NOT NULL REFERENCES orders,
  code           TEXT    NOT NULL,
  transaction_id TEXT    NOT NULL,
  amount         INTEGER NOT NULL,
  due            INTEGER NOT NULL,
  raised_at      INTEGER NOT NULL,
  resolved_at    INTEGER
) STRICT;
INSERT INTO alerts_4 (id, store_id, order_row, code, transaction_id, amount, due, raised_at, resolved_at)
SELECT id, store_id,
       ('0x' || substr(order_id, 1, 8) || substr(order_id, 10, 4) || substr(order_id, 16, 3)) ->> '$',
       code, transaction_id, amount, due, raised_at, resolved_at
FROM   alerts;
DROP TABLE alerts;
ALTER TABLE alerts_4 RENAME TO alerts;
CREATE UNIQUE INDEX alerts_open ON alerts (store_id, order_row, code, transaction_id) WHERE resolved_at IS NULL;

-- That an order was created is not kept in its history any more, because the order says it.
CREATE TABLE order_history_4 (
  order_row   INTEGER NOT NULL REFERENCES orders,
  position    INTEGER NOT NULL,
  at          INTEGER NOT NULL,
  from_status TEXT    NOT NULL,
  to_status   TEXT    NOT NULL,
  actor       TEXT    NOT NULL,
  note        TEXT    NOT NULL DEFAULT '{}',
  PRIMARY KEY (order_row, position)
) STRICT, WITHOUT ROWID;
INSERT INTO order_history_4 (order_row, position, at, from_status, to_status, actor, note)
SELECT ('0x' || substr(order_id, 1, 8) || substr(order_id, 10, 4) || substr(order_id, 16, 3)) ->> '$',
       position, at, from_status, to_status, actor, note
FROM   order_history
WHERE  from_status <> '' OR note ->> 'code' <> 'created'
ORDER BY order_id, position;
DROP TABLE order_history;
ALTER TABLE order_history_4 RENAME TO order_history;

CREATE TABLE idempotency_keys_4 (
  store_id   TEXT    NOT NULL REFERENCES stores,
  key        TEXT    NOT NULL,
  body_hash  BLOB    NOT NULL,
  order_row  INTEGER NOT NULL REFERENCES orders,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (store_id, key)
) STRICT, WITHOUT ROWID;
INSERT INTO idempotency_keys_4 (store_id, key, body_hash, order_row, created_at)
SELECT store_id, key, body_hash,
       ('0x' || substr(order_id, 1, 8) || substr(order_id, 10, 4) || substr(order_id, 16, 3)) ->> '$',
       created_at
FROM   idempotency_keys;
DROP TABLE idempotency_keys;
ALTER TABLE idempotency_keys_4 RENAME TO idempotency_keys;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

CREATE TABLE payment_sessions_4 (
  id             TEXT    PRIMARY KEY,
  order_row      INTEGER NOT NULL REFERENCES orders,
  provider       TEXT    NOT NULL,
  attempt        INTEGER NOT NULL,
  status         TEXT    NOT NULL CHECK (status IN ('starting', 'active', 'paid', 'failed', 'expired')),
  gateway_id     TEXT    NOT NULL DEFAULT '',
  payment_url    TEXT    NOT NULL DEFAULT '',
  transaction_id TEXT    NOT NULL DEFAULT '',
  expires_at     INTEGER NOT NULL,
  checked_at     INTEGER NOT NULL DEFAULT 0,
  created_at     INTEGER NOT NULL,
  account_id     TEXT    NOT NULL DEFAULT '',
  gateway_state  TEXT    NOT NULL DEFAULT '',
  approved       INTEGER NOT NULL DEFAULT 0 CHECK (approved IN (0, 1)),
  ended_at       INTEGER NOT NULL DEFAULT 0,
  tried_at       INTEGER NOT NULL DEFAULT 0,
  failing_since  INTEGER NOT NULL DEFAULT 0,
  problem        TEXT    NOT NULL DEFAULT '',
  problem_text   TEXT    NOT NULL DEFAULT '',
  next_check_at  INTEGER,
  leased_until   INTEGER NOT NULL DEFAULT 0,
  UNIQUE (order_row, attempt)
) STRICT;
INSERT INTO payment_sessions_4 (
       id, order_row, provider, attempt, status, gateway_id, payment_url, transaction_id, expires_at, checked_at,
       created_at, account_id, gateway_state, approved, ended_at, tried_at, failing_since, problem, problem_text,
       next_check_at, leased_until)
SELECT id,
       ('0x' || substr(order_id, 1, 8) || substr(order_id, 10, 4) || substr(order_id, 16, 3)) ->> '$',
       provider, attempt, status, gateway_id, payment_url, transaction_id, expires_at, checked_at,
       created_at, account_id, gateway_state, approved, ended_at, tried_at, failing_since, problem, problem_text,
       next_check_at, leased_until
FROM   payment_sessions
ORDER BY id;
DROP TABLE payment_sessions;
ALTER TABLE payment_sessions_4 RENAME TO payment_sessions;
CREATE UNIQUE INDEX payment_sessions_live ON payment_sessions (order_row) WHERE status IN ('starting', 'active');
CREATE INDEX payment_sessions_due     ON payment_sessions (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX payment_sessions_leased  ON payment_sessions (leased_until) WHERE leased_until > 0;
CREATE INDEX payment_sessions_problem ON payment_sessions (order_row) WHERE problem <> '';
CREATE INDEX payment_sessions_by_gateway ON payment_sessions (gateway_id) WHERE gateway_id <> '';

-- The service and a command may have created an event in the same moment. Then the later one gets the next number.
-- The same goes for deliveries.
CREATE TEMP TABLE event_rows AS
SELECT id, number + row_number() OVER (PARTITION BY number ORDER BY id) - 1 AS row
FROM   (SELECT id, ('0x' || substr(id, 5, 8) || substr(id, 14, 4) || substr(id, 20, 3)) ->> '$' AS number FROM events);
CREATE UNIQUE INDEX temp.event_rows_by_id ON event_rows (id);

CREATE TABLE events_4 (
  row        INTEGER PRIMARY KEY,
  store_id   TEXT    NOT NULL REFERENCES stores,
  order_row  INTEGER REFERENCES orders,
  sequence   INTEGER NOT NULL,
  event      TEXT    NOT NULL,
  body       TEXT    NOT NULL,
  id         TEXT    NOT NULL AS (substr(body, 8, 40)),
  created_at INTEGER NOT NULL AS (row >> 12)
) STRICT;
INSERT INTO events_4 (row, store_id, order_row, sequence, event, body)
SELECT r.row, v.store_id,
       ('0x' || substr(order_id, 1, 8) || substr(order_id, 10, 4) || substr(order_id, 16, 3)) ->> '$',
       v.sequence, v.event, v.body
FROM   events v
JOIN   event_rows r ON r.id = v.id
ORDER BY r.row;
DROP TABLE events;
ALTER TABLE events_4 RENAME TO events;
CREATE UNIQUE INDEX events_of_order ON events (order_row, sequence) WHERE order_row IS NOT NULL;

CREATE TABLE deliveries_4 (
  row           INTEGER PRIMARY KEY,
  id            TEXT    NOT NULL,
  endpoint_id   TEXT    NOT NULL REFERENCES endpoints ON DELETE CASCADE,
  event_row     INTEGER NOT NULL REFERENCES events,
  status        TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'failed')),
  attempt       INTEGER NOT NULL DEFAULT 0,
  next_at       INTEGER,
  leased        INTEGER NOT NULL DEFAULT 0 CHECK (leased IN (0, 1)),
  tried_at      INTEGER,
  answer_status INTEGER,
  answer        TEXT NOT NULL DEFAULT '',
  CHECK ((status = 'pending') = (next_at IS NOT NULL))
) STRICT;
INSERT INTO deliveries_4 (
       row, id, endpoint_id, event_row, status, attempt, next_at, leased, tried_at, answer_status, answer)
SELECT number + row_number() OVER (PARTITION BY number ORDER BY id) - 1,
       id, endpoint_id, event_row, status, attempt, next_at, leased, tried_at, answer_status, answer
FROM (
    SELECT d.*, r.row AS event_row,
           ('0x' || substr(d.id, 1, 8) || substr(d.id, 10, 4) || substr(d.id, 16, 3)) ->> '$' AS number
    FROM   deliveries d
    JOIN   event_rows r ON r.id = d.event_id)
ORDER BY number, id;
DROP TABLE deliveries;
ALTER TABLE deliveries_4 RENAME TO deliveries;
CREATE INDEX deliveries_due      ON deliveries (endpoint_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX deliveries_leased   ON deliveries (leased) WHERE leased = 1;
CREATE INDEX deliveries_recent   ON deliveries (endpoint_id);
CREATE INDEX deliveries_of_event ON deliveries (event_row);
DROP TABLE temp.event_rows;

CREATE TABLE notifications_4 (
  row            INTEGER PRIMARY KEY,
  store_id       TEXT    NOT NULL REFERENCES stores,
  provider       TEXT    NOT NULL,
  session_id     TEXT    NOT NULL REFERENCES payment_sessions,
  body           TEXT    NOT NULL,
  received_at    INTEGER NOT NULL AS (row >> 12),
  decided_at     INTEGER,
  transaction_id TEXT    NOT NULL DEFAULT '',
  claim          TEXT    NOT NULL DEFAULT ''
) STRICT;
INSERT INTO notifications_4 (row, store_id, provider, session_id, body, decided_at, transaction_id, claim)
SELECT number + row_number() OVER (PARTITION BY number ORDER BY id) - 1,
       store_id, provider, session_id, body, decided_at, transaction_id, claim
FROM (
    SELECT *, ('0x' || substr(id, 1, 8) || substr(id, 10, 4) || substr(id, 16, 3)) ->> '$' AS number
    FROM   notifications)
ORDER BY number, id;
DROP TABLE notifications;
ALTER TABLE notifications_4 RENAME TO notifications;
CREATE INDEX notifications_undecided ON notifications (session_id) WHERE decided_at IS NULL;

-- What buyers see: how to reach the store, the kinds of manual payment methods, and the accounts that they pay to. The
-- stock of an order that its owner does not decide about is released some day.
ALTER TABLE stores ADD COLUMN contact TEXT NOT NULL DEFAULT '';
ALTER TABLE payment_methods ADD COLUMN kind TEXT NOT NULL DEFAULT 'transfer'
  CHECK (kind IN ('transfer', 'cash', 'qris', 'ewallet'));
ALTER TABLE payment_methods ADD COLUMN accounts TEXT NOT NULL DEFAULT '[]';
ALTER TABLE payment_methods ADD COLUMN image_url TEXT;
ALTER TABLE payment_methods ADD COLUMN unique_code INTEGER NOT NULL DEFAULT 0 CHECK (unique_code IN (0, 1));
CREATE TABLE unique_codes (
  store_id  TEXT    NOT NULL REFERENCES stores,
  code      INTEGER NOT NULL CHECK (code BETWEEN 1 AND 999),
  order_row INTEGER NOT NULL REFERENCES orders,
  given_at  INTEGER NOT NULL,
  PRIMARY KEY (store_id, code)
) STRICT, WITHOUT ROWID;
CREATE INDEX        orders_to_release   ON orders (expires_at)
  WHERE status = 'awaiting_verification' AND provider = 'manual' AND instr(components, '"reserved":true') > 0;

-- Keys have a scope and may have an end. Until now every key could create orders.
ALTER TABLE api_keys ADD COLUMN scope TEXT NOT NULL DEFAULT 'write' CHECK (scope IN ('read', 'write', 'manage'));
ALTER TABLE api_keys ADD COLUMN expires_at INTEGER;

-- A store's events can be listed.
CREATE INDEX        events_by_name  ON events (store_id, event);
