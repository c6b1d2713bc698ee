-- From version 4 to version 5.

-- What is queried of an order is in ordinary columns, which take less time than those generated from its JSON. References
-- grow with the time now and are nearly unique in the whole file, so their index need not begin with the store.
CREATE TABLE orders_5 (
  row         INTEGER PRIMARY KEY,
  store_id    TEXT    NOT NULL REFERENCES stores,
  status      TEXT    NOT NULL CHECK (
                status = 'pending' OR status = 'awaiting_verification' OR status = 'paid' OR
                status = 'failed' OR status = 'expired' OR status = 'refunded'),
  reference   TEXT    NOT NULL,
  provider    TEXT    NOT NULL,
  external_id TEXT,
  expires_at  INTEGER NOT NULL,
  components  TEXT    NOT NULL,
  paid_by     TEXT,
  purged_sequence INTEGER NOT NULL DEFAULT 0,
  json        TEXT    NOT NULL,
  id          TEXT    NOT NULL AS (substr(json, 8, 36))
) STRICT;
INSERT INTO orders_5 (
       row, store_id, status, reference, provider, external_id, expires_at, components, paid_by, purged_sequence, json)
SELECT row, store_id, status, reference, provider, external_id, expires_at, components, paid_by, purged_sequence, json
FROM   orders
ORDER BY row;
DROP TABLE orders;
ALTER TABLE orders_5 RENAME TO orders;
CREATE INDEX        orders_by_time      ON orders (store_id);
CREATE INDEX        orders_by_status    ON orders (store_id, status);
CREATE INDEX        orders_by_reference ON orders (reference);
CREATE UNIQUE INDEX orders_by_external  ON orders (store_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX        orders_to_expire    ON orders (expires_at) WHERE status = 'pending';
CREATE INDEX        orders_to_release   ON orders (expires_at)
  WHERE status = 'awaiting_verification' AND provider = 'manual' AND instr(components, '"reserved":true') > 0;

-- The events that are written from now on leave out the terms of their orders. Those that are there stay whole.

CREATE TABLE deliveries_5 (
  row           INTEGER PRIMARY KEY,
  id            TEXT    NOT NULL,
  endpoint_id   TEXT    NOT NULL REFERENCES endpoints ON DELETE CASCADE,
  event_row     INTEGER NOT NULL REFERENCES events,
  status        TEXT    NOT NULL DEFAULT 'pending' CHECK (status = 'pending' OR status = 'delivered' OR status = 'failed'),
  attempt       INTEGER NOT NULL DEFAULT 0,
  next_at       INTEGER,
  leased        INTEGER NOT NULL DEFAULT 0 CHECK (leased IN (0, 1)),
  tried_at      INTEGER,
  answer_status INTEGER,
  answer        TEXT NOT NULL DEFAULT '',
  CHECK ((status = 'pending') = (next_at IS NOT NULL))
) STRICT;
INSERT INTO deliveries_5 (
       row, id, endpoint_id, event_row, status, attempt, next_at, leased, tried_at, answer_status, answer)
SELECT row, id, endpoint_id, event_row, status, attempt, next_at, leased, tried_at, answer_status, answer
FROM   deliveries
ORDER BY row;
DROP TABLE deliveries;
ALTER TABLE deliveries_5 RENAME TO deliveries;
CREATE INDEX deliveries_due      ON deliveries (endpoint_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX deliveries_leased   ON deliveries (leased) WHERE leased = 1;
CREATE INDEX deliveries_recent   ON deliveries (endpoint_id);
CREATE INDEX deliveries_of_event ON deliveries (event_row);
