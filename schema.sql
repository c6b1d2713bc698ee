-- The database of storeorder, version 6. Money is IDR in whole rupiah. Times (…_at, …_until) are
-- milliseconds since 1970 UTC. Ids are UUIDv7 in lower case, so they sort by their time of creation.
--
-- The tables that grow with every order have integer rows: orders, events, deliveries, notifications. A row's number is
-- made of the time and the counter in its id (see rowOf in store.go), so it also sorts by time of creation, and an id
-- leads to its row without an index. Every index of these tables ends with the row's number.
-- row >> 12 is the time of creation.

CREATE TABLE settings (           -- one row: where `serve` is reached, for the addresses in events
  only       INTEGER PRIMARY KEY CHECK (only = 1),
  public_url TEXT    NOT NULL,    -- no trailing slash
  gateways   TEXT    NOT NULL,    -- JSON {provider: address} that replace the gateways' own
  subdomains INTEGER NOT NULL CHECK (subdomains IN (0, 1))
) STRICT;
INSERT INTO settings VALUES (1, 'http://localhost:8080', '{}', 0);

CREATE TABLE stores (
  id            TEXT    PRIMARY KEY,
  name          TEXT    NOT NULL,
  slug          TEXT    NOT NULL UNIQUE,  -- its subdomain with `serve -subdomains`
  domain        TEXT    UNIQUE,           -- its own host, without scheme or port
  plan          TEXT    NOT NULL CHECK (plan IN ('free', 'growth', 'scale')),
  expiry_ms     INTEGER NOT NULL CHECK (expiry_ms BETWEEN 600000 AND 604800000),
  owner_email   TEXT    NOT NULL UNIQUE,  -- lower case
  password_salt BLOB    NOT NULL,
  password_hash BLOB    NOT NULL,         -- PBKDF2-SHA-256
  created_at    INTEGER NOT NULL,
  catalog_version INTEGER NOT NULL DEFAULT 0, -- grows with every change that GET /v1/products shows
  test_mode       INTEGER NOT NULL DEFAULT 0 CHECK (test_mode IN (0, 1)), -- only then is the sandbox usable
  contact         TEXT    NOT NULL DEFAULT '', -- for buyers: a WhatsApp number or an e-mail address; '' = none
  titles_version  INTEGER NOT NULL DEFAULT 0 -- grows with every change of what a search of the catalog looks at: see titles.go
) STRICT;

CREATE TABLE api_keys (
  id           TEXT    PRIMARY KEY,
  store_id     TEXT    NOT NULL REFERENCES stores,
  name         TEXT    NOT NULL,
  hash         BLOB    NOT NULL UNIQUE,   -- SHA-256 of the key, which is kept nowhere
  created_at   INTEGER NOT NULL,
  last_used_at INTEGER,                   -- to the minute
  revoked_at   INTEGER,
  scope        TEXT    NOT NULL DEFAULT 'write' CHECK (scope IN ('read', 'write', 'manage')),
  expires_at   INTEGER                    -- NULL = it has no end
) STRICT;
CREATE INDEX api_keys_of_store ON api_keys (store_id, id);

CREATE TABLE products (
  id           TEXT    PRIMARY KEY,
  store_id     TEXT    NOT NULL REFERENCES stores,
  slug         TEXT    NOT NULL,
  title        TEXT    NOT NULL,
  title_folded TEXT    NOT NULL,          -- lower case, for search
  description  TEXT    NOT NULL,
  price        INTEGER NOT NULL CHECK (price BETWEEN 0 AND 999999999999),
  stock        INTEGER CHECK (stock >= 0),-- pieces left; NULL = unlimited
  image_url    TEXT,
  published    INTEGER NOT NULL CHECK (published IN (0, 1)),
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,          -- last edit; a sale is not an edit
  UNIQUE (store_id, slug)
) STRICT;
CREATE INDEX products_by_title ON products (store_id, published, title, id);

CREATE TABLE bundles (
  id           TEXT    PRIMARY KEY,
  store_id     TEXT    NOT NULL REFERENCES stores,
  slug         TEXT    NOT NULL,
  title        TEXT    NOT NULL,
  title_folded TEXT    NOT NULL,
  description  TEXT    NOT NULL,
  price        INTEGER NOT NULL CHECK (price BETWEEN 0 AND 999999999999),
  image_url    TEXT,
  published    INTEGER NOT NULL CHECK (published IN (0, 1)),
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  UNIQUE (store_id, slug)
) STRICT;
CREATE INDEX bundles_by_title ON bundles (store_id, published, title, id);

CREATE TABLE bundle_items (
  bundle_id  TEXT    NOT NULL REFERENCES bundles,
  position   INTEGER NOT NULL,
  product_id TEXT    NOT NULL REFERENCES products,
  quantity   INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 10000),
  PRIMARY KEY (bundle_id, position)
) STRICT, WITHOUT ROWID;

-- Every change that GET /v1/products shows raises its store's catalog_version, also a sale of limited stock.
CREATE TRIGGER products_added   AFTER INSERT ON products     BEGIN UPDATE stores SET catalog_version = catalog_version + 1, titles_version = titles_version + 1 WHERE id = new.store_id; END;
CREATE TRIGGER products_changed AFTER UPDATE ON products     BEGIN UPDATE stores SET catalog_version = catalog_version + 1 WHERE id = new.store_id; END;
CREATE TRIGGER products_removed AFTER DELETE ON products     BEGIN UPDATE stores SET catalog_version = catalog_version + 1, titles_version = titles_version + 1 WHERE id = old.store_id; END;
CREATE TRIGGER bundles_added    AFTER INSERT ON bundles      BEGIN UPDATE stores SET catalog_version = catalog_version + 1, titles_version = titles_version + 1 WHERE id = new.store_id; END;
CREATE TRIGGER bundles_changed  AFTER UPDATE ON bundles      BEGIN UPDATE stores SET catalog_version = catalog_version + 1 WHERE id = new.store_id; END;
CREATE TRIGGER bundles_removed  AFTER DELETE ON bundles      BEGIN UPDATE stores SET catalog_version = catalog_version + 1, titles_version = titles_version + 1 WHERE id = old.store_id; END;
CREATE TRIGGER parts_added      AFTER INSERT ON bundle_items BEGIN UPDATE stores SET catalog_version = catalog_version + 1 WHERE id = (SELECT store_id FROM bundles WHERE id = new.bundle_id); END;
CREATE TRIGGER parts_changed    AFTER UPDATE ON bundle_items BEGIN UPDATE stores SET catalog_version = catalog_version + 1 WHERE id = (SELECT store_id FROM bundles WHERE id = new.bundle_id); END;
CREATE TRIGGER parts_removed    AFTER DELETE ON bundle_items BEGIN UPDATE stores SET catalog_version = catalog_version + 1 WHERE id = (SELECT store_id FROM bundles WHERE id = old.bundle_id); END;

-- What a search looks at raises titles_version too. A sale, a price or a description does not, nor an import that
-- repeats what is there.
CREATE TRIGGER products_retitled AFTER UPDATE OF id, store_id, slug, title, title_folded, published ON products
WHEN old.id IS NOT new.id OR old.store_id IS NOT new.store_id OR old.slug IS NOT new.slug OR
     old.title IS NOT new.title OR old.title_folded IS NOT new.title_folded OR old.published IS NOT new.published
BEGIN
  UPDATE stores SET titles_version = titles_version + 1 WHERE id IN (old.store_id, new.store_id);
END;
CREATE TRIGGER bundles_retitled AFTER UPDATE OF id, store_id, slug, title, title_folded, published ON bundles
WHEN old.id IS NOT new.id OR old.store_id IS NOT new.store_id OR old.slug IS NOT new.slug OR
     old.title IS NOT new.title OR old.title_folded IS NOT new.title_folded OR old.published IS NOT new.published
BEGIN
  UPDATE stores SET titles_version = titles_version + 1 WHERE id IN (old.store_id, new.store_id);
END;

CREATE TABLE payment_methods (
  store_id     TEXT    NOT NULL REFERENCES stores,
  code         TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  provider     TEXT    NOT NULL CHECK (provider IN ('manual', 'sandbox', 'midtrans', 'xendit')),
  fee          INTEGER NOT NULL CHECK (fee BETWEEN 0 AND 999999999999),
  instructions TEXT    NOT NULL,
  min_amount   INTEGER,                   -- of the subtotal; NULL = no bound
  max_amount   INTEGER,
  enabled      INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  kind         TEXT    NOT NULL DEFAULT 'transfer' CHECK (kind IN ('transfer', 'cash', 'qris', 'ewallet')),
  accounts     TEXT    NOT NULL DEFAULT '[]', -- JSON [{bank, number, holder}]: where a manual payment goes
  image_url    TEXT,                      -- such as that of a printed QRIS code
  unique_code  INTEGER NOT NULL DEFAULT 0 CHECK (unique_code IN (0, 1)), -- each order costs a few rupiah more: see unique_codes
  PRIMARY KEY (store_id, code)
) STRICT, WITHOUT ROWID;

CREATE TABLE unique_codes (               -- what tells the amounts of a store's orders apart
  store_id  TEXT    NOT NULL REFERENCES stores,
  code      INTEGER NOT NULL CHECK (code BETWEEN 1 AND 999), -- in rupiah
  order_row INTEGER NOT NULL REFERENCES orders,              -- the last order that it was given to
  given_at  INTEGER NOT NULL,
  PRIMARY KEY (store_id, code)
) STRICT, WITHOUT ROWID;

CREATE TABLE gateways (                   -- a store's accounts at payment gateways
  id             TEXT PRIMARY KEY,
  store_id       TEXT NOT NULL REFERENCES stores,
  provider       TEXT NOT NULL CHECK (provider IN ('midtrans', 'xendit')),
  mode           TEXT NOT NULL CHECK (mode IN ('sandbox', 'live')),
  secret_key     TEXT NOT NULL,           -- in clear: it is sent to the gateway
  callback_token TEXT NOT NULL,           -- Xendit's; '' otherwise
  replaced_at    INTEGER                  -- when another key took its place; NULL = it is in use
) STRICT;
CREATE UNIQUE INDEX gateways_in_use   ON gateways (store_id, provider) WHERE replaced_at IS NULL;
CREATE INDEX        gateways_of_store ON gateways (store_id, provider);

-- An order is the JSON that the API shows, except its two addresses, which depend on where the store is served. It begins
-- with the order's id and ends with its terms, which never change: events leave them out (see wholeEvent). What is queried
-- of it is in columns too: insertOrder writes them, and storeOrder those that may change. orders_by_time serves lists, walks
-- and time bounds alike.
--
-- The states are compared one by one, here and in deliveries. For an IN with three values or more, SQLite makes a table of
-- them for every row that it checks.
CREATE TABLE orders (
  row         INTEGER PRIMARY KEY,
  store_id    TEXT    NOT NULL REFERENCES stores,
  status      TEXT    NOT NULL CHECK (
                status = 'pending' OR status = 'awaiting_verification' OR status = 'paid' OR
                status = 'failed' OR status = 'expired' OR status = 'refunded'),
  reference   TEXT    NOT NULL,           -- its payment_reference
  provider    TEXT    NOT NULL,           -- its payment_provider
  external_id TEXT,                       -- NULL = it has none
  expires_at  INTEGER NOT NULL,
  components  TEXT    NOT NULL,           -- JSON [{product_id, quantity, reserved, released}]: see component
  paid_by     TEXT,                       -- the payment session that paid it
  purged_sequence INTEGER NOT NULL DEFAULT 0, -- of its events, when the last was deleted
  json        TEXT    NOT NULL,
  id          TEXT    NOT NULL AS (substr(json, 8, 36))
) STRICT;
CREATE INDEX        orders_by_time      ON orders (store_id);
CREATE INDEX        orders_by_status    ON orders (store_id, status);
CREATE INDEX        orders_by_reference ON orders (reference); -- without the store: that takes 37 bytes less for good
CREATE UNIQUE INDEX orders_by_external  ON orders (store_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX        orders_to_expire    ON orders (expires_at) WHERE status = 'pending';
-- The orders that wait for their owner and keep stock, for the day on which that is released.
CREATE INDEX        orders_to_release   ON orders (expires_at)
  WHERE status = 'awaiting_verification' AND provider = 'manual' AND instr(components, '"reserved":true') > 0;

CREATE TABLE alerts (                     -- what the owner has to look at although the order's state does not show it
  id             TEXT    PRIMARY KEY,
  store_id       TEXT    NOT NULL REFERENCES stores,
  order_row      INTEGER NOT NULL REFERENCES orders,
  code           TEXT    NOT NULL,        -- an AlertCode
  transaction_id TEXT    NOT NULL,        -- the gateway's name of the payment; '' = it is about no payment
  amount         INTEGER NOT NULL,        -- in rupiah: what arrived, was returned or is disputed
  due            INTEGER NOT NULL,        -- in rupiah: what was asked for, or what that payment had brought
  raised_at      INTEGER NOT NULL,
  resolved_at    INTEGER                  -- NULL = it is open
) STRICT;
CREATE UNIQUE INDEX alerts_open ON alerts (store_id, order_row, code, transaction_id) WHERE resolved_at IS NULL;

-- One row per change of state, and per note (to_status = from_status). That an order was created, which its own row
-- says, has no row here.
CREATE TABLE order_history (
  order_row   INTEGER NOT NULL REFERENCES orders,
  position    INTEGER NOT NULL,           -- 1, 2, …
  at          INTEGER NOT NULL,
  from_status TEXT    NOT NULL,
  to_status   TEXT    NOT NULL,
  actor       TEXT    NOT NULL,           -- api, owner, buyer, gateway, clock
  note        TEXT    NOT NULL DEFAULT '{}', -- JSON of a Note: why, as a code with its values
  PRIMARY KEY (order_row, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency_keys (           -- kept 48 h
  store_id   TEXT    NOT NULL REFERENCES stores,
  key        TEXT    NOT NULL,
  body_hash  BLOB    NOT NULL,            -- SHA-256 of the request's body
  order_row  INTEGER NOT NULL REFERENCES orders,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (store_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

-- A session is asked about when next_check_at has come and nobody holds its lease. Whoever asks holds the lease,
-- so that questions about one session follow each other, and the answer to an older one changes nothing.
CREATE TABLE payment_sessions (           -- one row per attempt to pay at a gateway
  id             TEXT    PRIMARY KEY,
  order_row      INTEGER NOT NULL REFERENCES orders,
  provider       TEXT    NOT NULL,
  attempt        INTEGER NOT NULL,        -- 1, 2, …; the gateway knows it as <order id>-<attempt>
  status         TEXT    NOT NULL CHECK (status IN ('starting', 'active', 'paid', 'failed', 'expired')),
  gateway_id     TEXT    NOT NULL DEFAULT '', -- the gateway's name for it
  payment_url    TEXT    NOT NULL DEFAULT '',
  transaction_id TEXT    NOT NULL DEFAULT '', -- the gateway's name for the payment that settled it
  expires_at     INTEGER NOT NULL,            -- the order's, or earlier if the order ended before that
  checked_at     INTEGER NOT NULL DEFAULT 0,  -- when the gateway last answered a question about it
  created_at     INTEGER NOT NULL,
  account_id     TEXT    NOT NULL DEFAULT '', -- of gateways: the key it was started with; '' = the sandbox, or none yet
  gateway_state  TEXT    NOT NULL DEFAULT '', -- a GatewayState: what the gateway last said; '' = nothing yet
  approved       INTEGER NOT NULL DEFAULT 0 CHECK (approved IN (0, 1)), -- by the owner: to be accepted at the gateway
  ended_at       INTEGER NOT NULL DEFAULT 0,  -- when it or its order was over, whichever came later; 0 = not yet
  tried_at       INTEGER NOT NULL DEFAULT 0,  -- when the gateway was last asked, with an answer or without
  failing_since  INTEGER NOT NULL DEFAULT 0,  -- the first of the latest questions without an answer; 0 = it answered
  problem        TEXT    NOT NULL DEFAULT '', -- a Problem: why the last question had no answer; '' = it had
  problem_text   TEXT    NOT NULL DEFAULT '', -- the gateway's words for it
  next_check_at  INTEGER,                     -- when it is to be asked about; NULL = never again
  leased_until   INTEGER NOT NULL DEFAULT 0,  -- until then somebody is asking about it; 0 = nobody is
  UNIQUE (order_row, attempt)
) STRICT;
CREATE UNIQUE INDEX payment_sessions_live ON payment_sessions (order_row) WHERE status IN ('starting', 'active');
CREATE INDEX payment_sessions_due     ON payment_sessions (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX payment_sessions_leased  ON payment_sessions (leased_until) WHERE leased_until > 0;
CREATE INDEX payment_sessions_problem ON payment_sessions (order_row) WHERE problem <> '';
CREATE INDEX payment_sessions_by_gateway ON payment_sessions (gateway_id) WHERE gateway_id <> '';

CREATE TABLE payments (                   -- the payments of sessions that notifications and answers have named
  session_id     TEXT    NOT NULL REFERENCES payment_sessions,
  transaction_id TEXT    NOT NULL,        -- the gateway's name for it
  request_id     TEXT    NOT NULL,        -- Xendit's other name for it: its refunds carry either
  state          TEXT    NOT NULL,        -- a GatewayState: what the gateway last said; '' = nothing yet
  amount         INTEGER NOT NULL,        -- in rupiah, what was paid
  returned       INTEGER NOT NULL,        -- in rupiah, of the amount
  PRIMARY KEY (session_id, transaction_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX payments_by_transaction ON payments (transaction_id);
CREATE INDEX payments_by_request     ON payments (request_id) WHERE request_id <> '';

CREATE TABLE gateway_names (              -- what else notifications have named: the gateway is asked by these names
  session_id TEXT NOT NULL REFERENCES payment_sessions,
  kind       TEXT NOT NULL CHECK (kind IN ('session', 'refund', 'dispute')),
  name       TEXT NOT NULL,
  PRIMARY KEY (session_id, kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE notifications (              -- verified messages of gateways, as they came
  row            INTEGER PRIMARY KEY,
  store_id       TEXT    NOT NULL REFERENCES stores,
  provider       TEXT    NOT NULL,
  session_id     TEXT    NOT NULL REFERENCES payment_sessions,
  body           TEXT    NOT NULL,
  received_at    INTEGER NOT NULL AS (row >> 12),
  decided_at     INTEGER,                 -- when the gateway's answer confirmed or overtook it; NULL = not yet
  transaction_id TEXT    NOT NULL DEFAULT '', -- the payment that it is about; '' = it names none
  claim          TEXT    NOT NULL DEFAULT ''  -- a GatewayState: what it says; '' = nothing that is known
) STRICT;
CREATE INDEX notifications_undecided ON notifications (session_id) WHERE decided_at IS NULL;

CREATE TABLE sandbox_payments (           -- the records of the built-in sandbox gateway
  session_id TEXT    PRIMARY KEY REFERENCES payment_sessions,
  state      TEXT    NOT NULL,            -- a GatewayState
  amount     INTEGER NOT NULL             -- paid, in rupiah
) STRICT, WITHOUT ROWID;

CREATE TABLE endpoints (                  -- where a store's webhooks go
  id               TEXT    PRIMARY KEY,
  store_id         TEXT    NOT NULL REFERENCES stores,
  url              TEXT    NOT NULL,
  events           TEXT    NOT NULL,      -- JSON array of names; [] = all
  secret           TEXT    NOT NULL,      -- in clear: it signs
  old_secret       TEXT    NOT NULL DEFAULT '',
  old_secret_until INTEGER NOT NULL DEFAULT 0, -- after a rotation both sign until then
  active           INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
  off_reason       TEXT    NOT NULL DEFAULT '', -- owner or gone; '' while it is on
  failures         INTEGER NOT NULL DEFAULT 0, -- failed attempts in a row
  created_at       INTEGER NOT NULL,
  answer_ms        INTEGER NOT NULL DEFAULT 0, -- running mean of how long it takes to answer
  lane             TEXT    NOT NULL DEFAULT 'unproven' CHECK (lane IN ('quick', 'unproven', 'narrow')),
  due_at           INTEGER,               -- when the queue has to look at it: no delivery is due before; NULL = never
  removed_at       INTEGER                -- since then nobody sees it, and its rows are deleted; NULL = it is there
) STRICT;
CREATE INDEX endpoints_of_store ON endpoints (store_id, id) WHERE removed_at IS NULL;
CREATE INDEX endpoints_due      ON endpoints (lane, due_at)
  WHERE active = 1 AND removed_at IS NULL AND due_at IS NOT NULL;
CREATE INDEX endpoints_removed  ON endpoints (removed_at) WHERE removed_at IS NOT NULL;

CREATE TABLE events (
  row        INTEGER PRIMARY KEY,
  store_id   TEXT    NOT NULL REFERENCES stores,
  order_row  INTEGER REFERENCES orders,   -- NULL: ping
  sequence   INTEGER NOT NULL,            -- within the order, from 1; 0: ping
  event      TEXT    NOT NULL,
  body       TEXT    NOT NULL,            -- the bytes that are signed and sent, without the order's terms: see wholeEvent
  id         TEXT    NOT NULL AS (substr(body, 8, 40)), -- evt_<uuid>, with which the body begins
  created_at INTEGER NOT NULL AS (row >> 12)
) STRICT;
CREATE UNIQUE INDEX events_of_order ON events (order_row, sequence) WHERE order_row IS NOT NULL;
CREATE INDEX        events_by_name  ON events (store_id, event); -- and then by row: see eventsQuery

-- status              next_at                  leased
-- pending             when it is due           0        waits; while its endpoint is off, also after that
-- pending             when its lease ends      1        claimed: about to be sent, or its result not written
-- delivered, failed   NULL                     0        done, until it is resent
-- A claim that a crash interrupted is due at the next start at once; otherwise when its lease ends. An attempt is
-- counted with its result. So neither a claim that was not sent nor an attempt that a stop or a crash cut off counts.
CREATE TABLE deliveries (                 -- one row per event and endpoint
  row           INTEGER PRIMARY KEY,
  id            TEXT    NOT NULL,
  endpoint_id   TEXT    NOT NULL REFERENCES endpoints ON DELETE CASCADE,
  event_row     INTEGER NOT NULL REFERENCES events,
  status        TEXT    NOT NULL DEFAULT 'pending' CHECK (status = 'pending' OR status = 'delivered' OR status = 'failed'),
  attempt       INTEGER NOT NULL DEFAULT 0,  -- attempts that have ended
  next_at       INTEGER,                  -- when it is due; NULL = done
  leased        INTEGER NOT NULL DEFAULT 0 CHECK (leased IN (0, 1)),
  tried_at      INTEGER,
  answer_status INTEGER,                  -- HTTP status of the last answer
  answer        TEXT NOT NULL DEFAULT '', -- its first bytes, or why there was none: a NoAnswer
  CHECK ((status = 'pending') = (next_at IS NOT NULL))
) STRICT;
CREATE INDEX deliveries_due      ON deliveries (endpoint_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX deliveries_leased   ON deliveries (leased) WHERE leased = 1;
CREATE INDEX deliveries_recent   ON deliveries (endpoint_id);
CREATE INDEX deliveries_of_event ON deliveries (event_row);

CREATE TABLE daily_totals (               -- kept by the transactions that change orders; the dashboard's chart
  store_id TEXT    NOT NULL REFERENCES stores,
  day      INTEGER NOT NULL,              -- in WIB, days since 1970
  orders   INTEGER NOT NULL,              -- created that day
  revenue  INTEGER NOT NULL,              -- of orders paid that day and still paid: a refund takes it off that day
  PRIMARY KEY (store_id, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE owner_sessions (             -- dashboard sign-ins
  hash       BLOB    PRIMARY KEY,         -- SHA-256 of the cookie
  store_id   TEXT    NOT NULL REFERENCES stores,
  created_at INTEGER NOT NULL,            -- ends 7 days later
  seen_at    INTEGER NOT NULL             -- ends 12 h later; to the minute
) STRICT;
CREATE INDEX owner_sessions_of_store ON owner_sessions (store_id);

CREATE TABLE known_places (               -- where owners signed in: strangers elsewhere do not lock them out there
  store_id TEXT    NOT NULL REFERENCES stores,
  place    BLOB    NOT NULL,              -- SHA-256 of the store's id and the address's /24 or /64
  seen_at  INTEGER NOT NULL,              -- the last sign-in there
  PRIMARY KEY (store_id, place)
) STRICT, WITHOUT ROWID;
