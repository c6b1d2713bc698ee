-- A file of version 1 with a million orders, a third of them paid at a gateway, and 300,000 events, of 2.4 GB:
--
--	sqlite3 million.db < .ci/bench/million.sql
--
-- How long its upgrade takes is the time between two lines in the log of "storeorder serve -db million.db".

.read testdata/schema-1.sql
.read testdata/rows-1.sql
PRAGMA application_id = 1869767794;
PRAGMA user_version = 1;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -400000;
BEGIN;
CREATE TEMP TABLE n AS
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
SELECT i, 1700000000000 + i * 20000 AS at,
       format('%08x-%04x-7000-8000-%012x', (1700000000000 + i * 20000) >> 16, (1700000000000 + i * 20000) & 65535,
              i * 7919 % 1000003) AS id
FROM   n;

CREATE TEMP TABLE o AS SELECT * FROM orders WHERE status = 'paid' AND provider = 'midtrans' LIMIT 1;
INSERT INTO orders
SELECT n.id, store_id, status, 'INV-' || i, 'ext-' || i, provider, method, test, 50000 + i % 9000, unique_code, at,
       at + 86400000, at + 60000, 0, 3, components, book, replace(json, o.id, n.id)
FROM   n, o;
INSERT INTO order_history
SELECT n.id, position, h.at, from_status, to_status, actor, note
FROM   n, o JOIN order_history h ON h.order_id = o.id;
INSERT INTO payment_sessions
SELECT n.id, number, n.id, s.provider, s.method, asked, key_id, 'snap-' || i, url, s.expires_at, seen, left, over, claimed,
       notified, names, news_at, 0, problem, words
FROM   n, o JOIN payment_sessions s ON s.order_id = o.id WHERE i % 3 = 0;
INSERT INTO payments
SELECT n.id, attempt, p.id || i, state, p.amount, returned, disputed
FROM   n, o JOIN payments p ON p.order_id = o.id WHERE i % 3 = 0;
INSERT INTO events (id, store_id, order_id, event, created_at, body)
SELECT 'evt_' || n.id, v.store_id, n.id, event, at, body
FROM   n, o JOIN events v ON v.order_id = o.id AND v.event = 'orderPaid' WHERE i > 700000;
INSERT INTO deliveries
SELECT substr(id, 5), (SELECT id FROM endpoints LIMIT 1), number, 'delivered', 1, NULL, 0, 200, ''
FROM   events WHERE created_at > 1700000000000;
COMMIT;
PRAGMA journal_mode = WAL;
