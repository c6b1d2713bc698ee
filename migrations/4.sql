-- From version 3 to version 4.

-- Orders show their shipping fee, discount and fee, and when they were paid: the last change to paid in their history.
-- One that was paid and then reversed is failed, and shows no time.
UPDATE orders SET json = json_set(json,
  '$.shipping_fee', 0,
  '$.discount',     0,
  '$.fee',          max(0, json ->> 'amount' - json ->> 'subtotal'));
UPDATE orders SET json = json_patch(json, json_object('paid_at', (
  SELECT strftime('%Y-%m-%dT%H:%M:%fZ', max(at) / 1000.0, 'unixepoch')
  FROM   order_history
  WHERE  order_id = orders.id AND to_status = 'paid' AND from_status <> 'paid')))
WHERE  status IN ('paid', 'refunded');
