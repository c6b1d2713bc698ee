-- The database of storeorder, version 2, as a new file has it. A change here needs the same change in upgrade.sql,
-- for old files. Money is IDR in whole rupiah. Times (…_at) are milliseconds since 1970 UTC; 0 or NULL means "not
-- yet", as each column says. Ids are UUIDv7 (RFC 9562) in lower case. A row with a removed_at other than 0 is
-- removed: no list shows it, but rows that refer to it still find it.

CREATE TABLE settings (           -- one row: where `serve` is reached, and the file's own secret
  only       INTEGER PRIMARY KEY CHECK (only = 1),
  scheme     TEXT    NOT NULL,    -- http:// or https://
  host       TEXT    NOT NULL,    -- of the public URL, without its port
  port       TEXT    NOT NULL,    -- :8080, or '' for the scheme's own
  subdomains INTEGER NOT NULL CHECK (subdomains IN (0, 1)),
  secret     BLOB    NOT NULL     -- seals cookies: known browsers, and what pages show once
) STRICT;
INSERT INTO settings VALUES (1, 'http://', 'localhost', ':8080', 0, randomblob(32));

CREATE TABLE stores (
  id              TEXT    PRIMARY KEY,
  name            TEXT    NOT NULL,
  slug            TEXT    NOT NULL UNIQUE,  -- its subdomain with `serve -subdomains`
  domain          TEXT    UNIQUE,           -- its own host, without scheme or port
  plan            TEXT    NOT NULL CHECK (plan IN ('free', 'growth', 'scale')),
  expiry_ms       INTEGER NOT NULL CHECK (expiry_ms BETWEEN 600000 AND 604800000),
  owner_email     TEXT    NOT NULL UNIQUE,  -- lower case
  password_salt   BLOB    NOT NULL,
  password_hash   BLOB    NOT NULL,         -- PBKDF2-SHA-256
  contact         TEXT    NOT NULL DEFAULT '', -- for buyers: a WhatsApp number or an e-mail address; '' = none
  language        TEXT    NOT NULL DEFAULT 'id' CHECK (language IN ('id', 'en')), -- of messages to its owner's phone
  test_mode       INTEGER NOT NULL DEFAULT 0 CHECK (test_mode IN (0, 1)),
  created_at      INTEGER NOT NULL,
  shop            TEXT    NOT NULL DEFAULT 'off' CHECK (shop IN ('off', 'open', 'closed')), -- its public page
  shop_text       TEXT    NOT NULL DEFAULT '', -- address, hours and rules on that page
  shop_hold_ms    INTEGER NOT NULL DEFAULT 10800000 CHECK (shop_hold_ms BETWEEN 600000 AND 604800000),
  shop_max_quantity INTEGER NOT NULL DEFAULT 20 CHECK (shop_max_quantity BETWEEN 1 AND 10000) -- pieces in a line
) STRICT;

CREATE TABLE api_keys (
  id           TEXT    PRIMARY KEY,
  store_id     TEXT    NOT NULL REFERENCES stores,
  name         TEXT    NOT NULL,
  hash         BLOB    NOT NULL UNIQUE,   -- SHA-256 of the key, which is not stored
  scope        TEXT    NOT NULL CHECK (scope IN ('read', 'write', 'manage')),
  created_at   INTEGER NOT NULL,
  last_used_at INTEGER NOT NULL DEFAULT 0, -- written once a minute
  revoked_at   INTEGER NOT NULL DEFAULT 0,
  expires_at   INTEGER NOT NULL DEFAULT 0  -- 0 = never
) STRICT;
CREATE INDEX api_keys_of_store ON api_keys (store_id, created_at);

CREATE TABLE sign_ins (                   -- of owners, in their browsers
  hash     BLOB    PRIMARY KEY,           -- SHA-256 of the cookie, or of a sign-in link's token
  store_id TEXT    NOT NULL REFERENCES stores,
  link     INTEGER NOT NULL CHECK (link IN (0, 1)), -- 1 = a link that signs in once
  ends_at  INTEGER NOT NULL               -- of a sign-in: 30 days after its last use
) STRICT;

CREATE TABLE products (                   -- products and bundles
  id           TEXT    PRIMARY KEY,
  store_id     TEXT    NOT NULL REFERENCES stores,
  type         TEXT    NOT NULL CHECK (type IN ('product', 'bundle')),
  slug         TEXT    NOT NULL,
  title        TEXT    NOT NULL,
  title_folded TEXT    NOT NULL,          -- lower case, for search
  description  TEXT    NOT NULL,
  price        INTEGER NOT NULL CHECK (price BETWEEN 0 AND 999999999999),
  stock        INTEGER CHECK (stock >= 0),-- pieces left; NULL = unlimited, and always in a bundle
  stock_form   TEXT,                      -- unused since version 2: see saved_forms
  image_url    TEXT,
  published    INTEGER NOT NULL CHECK (published IN (0, 1)),
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,          -- last edit; a sale is not an edit
  removed_at   INTEGER NOT NULL DEFAULT 0, -- then its slug is <slug>~<id>, so that the slug is free
  position     INTEGER NOT NULL DEFAULT 0, -- on the shop page, the smallest first
  UNIQUE (store_id, type, slug)
) STRICT;
CREATE INDEX products_by_title ON products (store_id, type DESC, title, id) WHERE removed_at = 0;
CREATE INDEX products_of_shop  ON products (store_id, position, type DESC, title, id) WHERE removed_at = 0 AND published = 1;

CREATE TABLE bundle_items (
  bundle_id  TEXT    NOT NULL REFERENCES products ON DELETE CASCADE,
  position   INTEGER NOT NULL,
  product_id TEXT    NOT NULL REFERENCES products,
  quantity   INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 10000),
  PRIMARY KEY (bundle_id, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX bundle_items_of_product ON bundle_items (product_id);

CREATE TABLE payment_methods (
  store_id     TEXT    NOT NULL REFERENCES stores,
  code         TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  provider     TEXT    NOT NULL CHECK (provider IN ('manual', 'sandbox', 'midtrans', 'xendit')),
  kind         TEXT    NOT NULL CHECK (kind IN ('transfer', 'cash', 'qris', 'ewallet')), -- of a manual one
  fee          INTEGER NOT NULL CHECK (fee BETWEEN 0 AND 999999999999),
  instructions TEXT    NOT NULL,
  accounts     TEXT    NOT NULL,          -- JSON [{bank, number, holder}]: where buyers pay to
  image_url    TEXT,                      -- of a QRIS code: https, or /pictures/<hash> of an uploaded one
  unique_code  INTEGER NOT NULL CHECK (unique_code IN (0, 1)), -- adds a few rupiah to each order
  min_amount   INTEGER,                   -- of the subtotal; NULL = no bound
  max_amount   INTEGER,
  enabled      INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  removed_at   INTEGER NOT NULL DEFAULT 0, -- it keeps its code, which orders use
  channels     TEXT    NOT NULL DEFAULT '[]', -- JSON: codes that limit a gateway's page; [] = all
  qris         TEXT    NOT NULL DEFAULT '', -- the text of the shop's own QRIS code
  position     INTEGER NOT NULL DEFAULT 0, -- on the shop page, the smallest first
  shop         INTEGER CHECK (shop IN (0, 1)), -- offered on the shop page; NULL = unless it is cash
  PRIMARY KEY (store_id, code)
) STRICT, WITHOUT ROWID;

CREATE TABLE shipping_options (           -- the ways in which a store hands orders over
  store_id         TEXT    NOT NULL REFERENCES stores,
  position         INTEGER NOT NULL,
  name             TEXT    NOT NULL,      -- copied into orders
  fee              INTEGER NOT NULL,
  address_required INTEGER NOT NULL CHECK (address_required IN (0, 1)), -- 0: it is picked up
  free_from        INTEGER,               -- the subtotal from which it is free; NULL = never
  PRIMARY KEY (store_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE pictures (                   -- uploaded QRIS codes
  hash         TEXT    PRIMARY KEY,       -- SHA-256 in hex, of the JPEG
  jpeg         BLOB    NOT NULL,
  small        BLOB,                      -- a smaller JPEG of it, for lists; NULL = from version 1
  unused_since INTEGER NOT NULL DEFAULT 0 -- since when nothing shows it; 0 = something does
) STRICT;

CREATE TABLE gateway_keys (               -- a store's credentials at payment gateways
  id             TEXT    PRIMARY KEY,
  store_id       TEXT    NOT NULL REFERENCES stores,
  provider       TEXT    NOT NULL CHECK (provider IN ('midtrans', 'xendit')),
  mode           TEXT    NOT NULL CHECK (mode IN ('sandbox', 'live')),
  secret_key     TEXT    NOT NULL,        -- in plain text: it is sent to the gateway
  callback_token TEXT    NOT NULL,        -- Xendit's; '' otherwise
  replaced_at    INTEGER NOT NULL DEFAULT 0, -- when another key replaced it; 0 = in use
  paged_at       INTEGER NOT NULL DEFAULT 0, -- when it last created a page; 0 = never
  notified_at    INTEGER NOT NULL DEFAULT 0 -- when it last verified a notification, to a minute; 0 = never
) STRICT;
CREATE UNIQUE INDEX gateway_keys_in_use ON gateway_keys (store_id, provider) WHERE replaced_at = 0;
CREATE INDEX gateway_keys_of_store ON gateway_keys (store_id, provider);

-- An order is the JSON that the API shows, except its two addresses, which depend on the store's host. Columns repeat
-- what queries need.
CREATE TABLE orders (
  id          TEXT    PRIMARY KEY,
  store_id    TEXT    NOT NULL REFERENCES stores,
  status      TEXT    NOT NULL CHECK (status IN ('pending', 'awaiting_verification', 'paid', 'failed', 'expired', 'refunded')),
  reference   TEXT    NOT NULL,           -- its payment_reference
  external_id TEXT,                       -- NULL = none
  provider    TEXT    NOT NULL,
  method      TEXT    NOT NULL,
  test        INTEGER NOT NULL CHECK (test IN (0, 1)), -- paid by test money, and not counted as revenue
  amount      INTEGER NOT NULL,           -- what is to be paid now
  unique_code INTEGER NOT NULL,           -- part of the amount; kept if another method has none
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  paid_at     INTEGER NOT NULL DEFAULT 0, -- 0 = not paid, or reversed
  attention   INTEGER NOT NULL DEFAULT 0 CHECK (attention IN (0, 1)), -- it has open alerts
  events      INTEGER NOT NULL DEFAULT 0, -- how many events it has
  components  TEXT    NOT NULL,           -- JSON [{product_id, quantity, reserved}]: its stock
  book        TEXT    NOT NULL DEFAULT '{}', -- JSON: the book (order_book.go) without its payments
  json        TEXT    NOT NULL,
  source      TEXT    NOT NULL DEFAULT '', -- who created it: api, owner or shop; '' = version 1 did
  handover    TEXT    NOT NULL DEFAULT '' CHECK (handover IN ('', 'pickup', 'delivery')), -- '' = no handover
  shipped_at  INTEGER NOT NULL DEFAULT 0, -- when it was handed over; 0 = not yet
  stock_until INTEGER NOT NULL DEFAULT 0  -- when a reported order of the shop releases its stock; 0 = never
) STRICT;
CREATE INDEX        orders_by_time      ON orders (store_id, created_at, id, amount);
CREATE INDEX        orders_by_amount    ON orders (store_id, amount, created_at);
CREATE INDEX        orders_by_status    ON orders (store_id, status, created_at, id);
CREATE UNIQUE INDEX orders_by_reference ON orders (reference, store_id);
CREATE UNIQUE INDEX orders_by_external  ON orders (store_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX        orders_to_expire    ON orders (expires_at) WHERE status = 'pending';
CREATE INDEX        orders_to_look_at   ON orders (store_id) WHERE attention = 1;
CREATE INDEX        orders_paid         ON orders (store_id, paid_at) WHERE paid_at > 0;
CREATE INDEX        orders_to_hand_over ON orders (store_id, id) WHERE handover <> '' AND shipped_at = 0 AND status = 'paid';
CREATE INDEX        orders_shipped      ON orders (store_id, created_at, id) WHERE shipped_at > 0;
CREATE INDEX        orders_of_shop      ON orders (store_id)
  WHERE source = 'shop' AND status IN ('pending', 'awaiting_verification') AND shipped_at = 0;
CREATE INDEX        orders_to_release   ON orders (stock_until) WHERE stock_until > 0;

CREATE TABLE order_history (              -- a row per change of status, or per note (to_status = from_status)
  order_id    TEXT    NOT NULL REFERENCES orders,
  position    INTEGER NOT NULL,           -- 1, 2, …
  at          INTEGER NOT NULL,
  from_status TEXT    NOT NULL,
  to_status   TEXT    NOT NULL,
  actor       TEXT    NOT NULL CHECK (actor IN ('api', 'owner', 'buyer', 'gateway', 'clock')),
  note        TEXT    NOT NULL,           -- JSON of a Note: why, as a code with its values
  PRIMARY KEY (order_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency_keys (           -- kept 48 h at least
  store_id   TEXT    NOT NULL REFERENCES stores,
  key        TEXT    NOT NULL,
  body_hash  BLOB    NOT NULL,            -- SHA-256 of the request's body
  answer     TEXT    NOT NULL,            -- the order as in the first answer
  created_at INTEGER NOT NULL,
  PRIMARY KEY (store_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

CREATE TABLE catalog_changes (            -- answers to PUT /v1/catalog with stock_change, kept 48 h at least
  store_id   TEXT    NOT NULL REFERENCES stores,
  key        TEXT    NOT NULL,            -- the request's Idempotency-Key
  body_hash  BLOB    NOT NULL,            -- SHA-256 of the request's body
  answer     TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (store_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX catalog_changes_by_age ON catalog_changes (created_at);

CREATE TABLE saved_forms (                -- saved forms, kept 48 h at least: sent again, they change nothing
  store_id TEXT    NOT NULL REFERENCES stores,
  token    TEXT    NOT NULL,              -- of one form
  at       INTEGER NOT NULL,
  order_id TEXT    REFERENCES orders,     -- created by it; NULL = none
  PRIMARY KEY (store_id, token)
) STRICT, WITHOUT ROWID;
CREATE INDEX saved_forms_by_age ON saved_forms (at);

CREATE TABLE payment_sessions (           -- a row per page at a gateway; the gateway reference is <order_id>-<number>
  order_id   TEXT    NOT NULL REFERENCES orders,
  number     INTEGER NOT NULL,            -- 1, 2, …; the API's attempt
  id         TEXT    NOT NULL UNIQUE,     -- the API's payment_session.id
  provider   TEXT    NOT NULL,
  method     TEXT    NOT NULL,            -- of its page, which becomes the order's if the page pays it
  asked      INTEGER NOT NULL,            -- the amount that its page asks for
  key_id     TEXT    NOT NULL,            -- of gateway_keys, with which it was created; '' = the sandbox
  gateway_id TEXT    NOT NULL,            -- the gateway's name for the page; '' = not known yet
  url        TEXT    NOT NULL,
  expires_at INTEGER NOT NULL,            -- of its page
  seen       INTEGER NOT NULL CHECK (seen IN (0, 1)), -- somebody may have opened its page
  left       INTEGER NOT NULL CHECK (left IN (0, 1)), -- its page was once not wanted, and is not offered again
  over       INTEGER NOT NULL CHECK (over IN (0, 1)), -- no new payment can begin; one that has begun may arrive
  claimed    TEXT    NOT NULL,            -- a payment that a notification reports, until an answer settles it
  notified   INTEGER NOT NULL,            -- counts its verified notifications
  names      TEXT    NOT NULL,            -- unused since version 2: see payment_identifiers
  news_at    INTEGER NOT NULL,            -- of its last change, notification, or end of its page being wanted
  due_at     INTEGER NOT NULL,            -- of its next check, 0 = none; without a page, of the next request
  problem    TEXT    NOT NULL,            -- refused, unreachable: why the gateway gave no page or answer; '' = it did
  words      TEXT    NOT NULL,            -- the gateway's, for the owner
  PRIMARY KEY (order_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX payment_sessions_due     ON payment_sessions (due_at) WHERE due_at > 0 AND seen = 1;
CREATE INDEX payment_sessions_gateway ON payment_sessions (gateway_id) WHERE gateway_id <> '';

CREATE TABLE payment_identifiers (        -- a gateway's names for a session's payments, pages, refunds and disputes
  order_id TEXT    NOT NULL REFERENCES orders,
  number   INTEGER NOT NULL,              -- of the session
  position INTEGER NOT NULL,              -- 1, 2, … in the order in which we learned them
  id       TEXT    NOT NULL,
  PRIMARY KEY (order_id, number, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX payment_identifiers_by_id ON payment_identifiers (id);

CREATE TABLE payments (                   -- the rows of an order's book: payments at gateways
  order_id TEXT    NOT NULL REFERENCES orders,
  attempt  INTEGER NOT NULL,              -- the number of its session
  id       TEXT    NOT NULL,              -- the gateway's name for it; at Xendit the session's
  state    TEXT    NOT NULL CHECK (state IN ('open', 'held', 'denied', 'expired', 'arrived', 'reversed')),
  amount   INTEGER NOT NULL,
  returned INTEGER NOT NULL,              -- of the amount
  disputed INTEGER NOT NULL,              -- of the amount; 0 = nothing
  PRIMARY KEY (order_id, attempt, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX payments_by_id ON payments (id);

CREATE TABLE sandbox_payments (           -- what the built-in sandbox gateway knows
  session_id TEXT    PRIMARY KEY,         -- of payment_sessions
  state      TEXT    NOT NULL CHECK (state IN ('arrived', 'denied')),
  amount     INTEGER NOT NULL,
  returned   INTEGER NOT NULL DEFAULT 0,  -- of the amount
  disputed   INTEGER NOT NULL DEFAULT 0   -- of the amount
) STRICT, WITHOUT ROWID;

CREATE TABLE endpoints (                  -- the receivers of a store's events
  id               TEXT    PRIMARY KEY,
  store_id         TEXT    NOT NULL REFERENCES stores,
  kind             TEXT    NOT NULL CHECK (kind IN ('webhook', 'ntfy')), -- ntfy: an owner's phone
  url              TEXT    NOT NULL,
  events           TEXT    NOT NULL,      -- JSON array of names; [] = all
  secret           TEXT    NOT NULL,      -- in plain text, for signing
  old_secret       TEXT    NOT NULL DEFAULT '',
  old_secret_until INTEGER NOT NULL DEFAULT 0, -- after a rotation both sign until then
  off              TEXT    NOT NULL DEFAULT '' CHECK (off IN ('', 'owner', 'gone')), -- why it is off; '' = it is on
  did_well         INTEGER NOT NULL DEFAULT 0 CHECK (did_well IN (0, 1)), -- its last attempt did; 0 if just turned on
  created_at       INTEGER NOT NULL,
  removed_at       INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX endpoints_of_store ON endpoints (store_id, id) WHERE removed_at = 0;
CREATE INDEX endpoints_removed  ON endpoints (removed_at) WHERE removed_at > 0;

CREATE TABLE events (
  number     INTEGER PRIMARY KEY AUTOINCREMENT, -- in the order of the commits
  id         TEXT    NOT NULL UNIQUE,     -- evt_<uuid>
  store_id   TEXT    NOT NULL REFERENCES stores,
  order_id   TEXT,                        -- NULL: ping
  event      TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  body       TEXT    NOT NULL             -- the bytes that are signed and sent
) STRICT;
CREATE INDEX events_of_store ON events (store_id, number, created_at);
CREATE INDEX events_of_order ON events (order_id, number) WHERE order_id IS NOT NULL;
CREATE INDEX events_by_age   ON events (created_at);

-- A pending delivery is due at next_at until a result says otherwise. Only memory knows which attempts are under way.
CREATE TABLE deliveries (                 -- a row per event and endpoint
  id          TEXT    PRIMARY KEY,
  endpoint_id TEXT    NOT NULL REFERENCES endpoints ON DELETE CASCADE,
  event       INTEGER NOT NULL REFERENCES events ON DELETE CASCADE, -- its number; both are purged by age (-keep-events)
  status      TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'failed')),
  attempt     INTEGER NOT NULL DEFAULT 0, -- number of ended attempts
  next_at     INTEGER,                    -- when it is due, if its endpoint is on; NULL = done
  tried_at    INTEGER NOT NULL DEFAULT 0,
  answer_status INTEGER NOT NULL DEFAULT 0, -- HTTP status of the last answer; 0 = there was none
  answer      TEXT    NOT NULL DEFAULT '' -- its first bytes, or why there was none
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_due      ON deliveries (endpoint_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX deliveries_of_event ON deliveries (event);
CREATE INDEX deliveries_recent   ON deliveries (endpoint_id, event);
