-- Each part turns a database of version n into one of version n+1. A part only adds columns, tables and indexes,
-- drops indexes, and fills new tables from old rows. It rewrites no rows of orders, so a million orders take a minute
-- at most.
--
-- A change of schema.sql needs the same change here, at the end of the last part; TestUpgradedSchema says what is
-- missing. A new column is defined as in schema.sql, so it needs a DEFAULT unless NULL is allowed. A published part
-- never changes. After a release, begin a new part, add one to schemaVersion in store_file.go, and keep the published
-- schema in testdata/schema-<version>.sql.

-- To version 2
ALTER TABLE products ADD COLUMN removed_at INTEGER NOT NULL DEFAULT 0;
DROP INDEX products_by_title;
CREATE INDEX products_by_title ON products (store_id, type DESC, title, id) WHERE removed_at = 0;

ALTER TABLE payment_methods ADD COLUMN removed_at INTEGER NOT NULL DEFAULT 0;

ALTER TABLE orders ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE orders ADD COLUMN handover TEXT NOT NULL DEFAULT '' CHECK (handover IN ('', 'pickup', 'delivery'));
ALTER TABLE orders ADD COLUMN shipped_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX orders_by_amount ON orders (store_id, amount, created_at);

CREATE TABLE saved_forms (
  store_id TEXT NOT NULL REFERENCES stores,
  token TEXT NOT NULL,
  at INTEGER NOT NULL,
  order_id TEXT REFERENCES orders,
  PRIMARY KEY (store_id, token)
) STRICT, WITHOUT ROWID;
CREATE INDEX saved_forms_by_age ON saved_forms (at);

ALTER TABLE endpoints ADD COLUMN removed_at INTEGER NOT NULL DEFAULT 0;
DROP INDEX endpoints_of_store;
CREATE INDEX endpoints_of_store ON endpoints (store_id, id) WHERE removed_at = 0;
CREATE INDEX endpoints_removed ON endpoints (removed_at) WHERE removed_at > 0;

ALTER TABLE gateway_keys ADD COLUMN paged_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gateway_keys ADD COLUMN notified_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payment_methods ADD COLUMN channels TEXT NOT NULL DEFAULT '[]';
ALTER TABLE payment_methods ADD COLUMN qris TEXT NOT NULL DEFAULT '';

CREATE TABLE payment_identifiers (
  order_id TEXT NOT NULL REFERENCES orders,
  number INTEGER NOT NULL,
  position INTEGER NOT NULL,
  id TEXT NOT NULL,
  PRIMARY KEY (order_id, number, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX payment_identifiers_by_id ON payment_identifiers (id);
INSERT INTO payment_identifiers
SELECT s.order_id, s.number, n.key + 1, n.value
FROM payment_sessions s, json_each(s.names) n
WHERE n.key IS NOT NULL; -- names may be null

ALTER TABLE pictures ADD COLUMN small BLOB;
ALTER TABLE pictures ADD COLUMN unused_since INTEGER NOT NULL DEFAULT 0;

CREATE TABLE catalog_changes (
  store_id TEXT NOT NULL REFERENCES stores,
  key TEXT NOT NULL,
  body_hash BLOB NOT NULL,
  answer TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (store_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX catalog_changes_by_age ON catalog_changes (created_at);

CREATE INDEX orders_to_hand_over ON orders (store_id, id) WHERE handover <> '' AND shipped_at = 0 AND status = 'paid';
CREATE INDEX orders_shipped ON orders (store_id, created_at, id) WHERE shipped_at > 0;

ALTER TABLE sandbox_payments ADD COLUMN returned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandbox_payments ADD COLUMN disputed INTEGER NOT NULL DEFAULT 0;

CREATE TABLE shipping_options (
  store_id TEXT NOT NULL REFERENCES stores,
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  fee INTEGER NOT NULL,
  address_required INTEGER NOT NULL CHECK (address_required IN (0, 1)),
  free_from INTEGER,
  PRIMARY KEY (store_id, position)
) STRICT, WITHOUT ROWID;
ALTER TABLE stores ADD COLUMN shop TEXT NOT NULL DEFAULT 'off' CHECK (shop IN ('off', 'open', 'closed'));
ALTER TABLE stores ADD COLUMN shop_text TEXT NOT NULL DEFAULT '';
ALTER TABLE stores ADD COLUMN shop_hold_ms INTEGER NOT NULL DEFAULT 10800000
	CHECK (shop_hold_ms BETWEEN 600000 AND 604800000);
ALTER TABLE stores ADD COLUMN shop_max_quantity INTEGER NOT NULL DEFAULT 20 CHECK (shop_max_quantity BETWEEN 1 AND 10000);
ALTER TABLE products ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
CREATE INDEX products_of_shop ON products (store_id, position, type DESC, title, id) WHERE removed_at = 0 AND published = 1;
ALTER TABLE payment_methods ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payment_methods ADD COLUMN shop INTEGER CHECK (shop IN (0, 1));
ALTER TABLE orders ADD COLUMN stock_until INTEGER NOT NULL DEFAULT 0;
CREATE INDEX orders_of_shop ON orders (store_id)
	WHERE source = 'shop' AND status IN ('pending', 'awaiting_verification') AND shipped_at = 0;
CREATE INDEX orders_to_release ON orders (stock_until) WHERE stock_until > 0;
