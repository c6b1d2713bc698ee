<?php
// Lists the goods, places an order twice, changes it, is refused, and reads the events, 50 and then those that follow.
// Its arguments are the service's address and a key.
declare(strict_types=1);
require __DIR__ . '/../../docs/php/storeorder.php';

use function Storeorder\{call, events, placeOrder};

[, $api, $key] = $argv;

function must(bool $holds, mixed $what): void
{
    if (!$holds) {
        throw new Exception(json_encode($what));
    }
}

for ($goods = [], $more = true; $more; $more = $page['has_more']) {
    $page = call($api, $key, '/v1/products?limit=1&offset=' . count($goods));
    array_push($goods, ...$page['products'], ...$page['bundles']);
}
must(array_column($goods, 'slug') === ['kopi', 'duo'], $goods);

$order = [
    'items' => [['type' => 'product', 'slug' => 'kopi', 'quantity' => 2]],
    'buyer' => ['name' => 'Siti', 'email' => 'siti@example.id', 'phone' => ''],
    'payment_method' => 'bank_transfer', 'external_id' => 'php-1', 'metadata' => [],
];
$first = placeOrder($api, $key, $order);
$second = placeOrder("$api/", $key, $order);
must($first['id'] === $second['id'] && $first['amount'] === 170000, [$first, $second]);

$changed = call($api, $key, "/v1/orders/{$first['id']}", '{"note": "Tanpa gula"}', method: 'PATCH')['order'];
must($changed['note'] === 'Tanpa gula', $changed);

$counted = placeOrder($api, $key, ['external_id' => 1042] + $order);
must($counted === placeOrder($api, $key, ['external_id' => '1042'] + $order), $counted);
try {
    placeOrder($api, $key, ['external_id' => null] + $order);
    must(false, 'an order that could be made twice');
} catch (InvalidArgumentException) {
}

try {
    placeOrder($api, $key, ['items' => [], 'external_id' => 'php-2'] + $order);
    must(false, 'an order of nothing');
} catch (Storeorder\Refused $refused) {
    must($refused->errorCode === 'VALIDATION_FAILED' && $refused->details[0]['field'] === 'items', $refused->details);
}

for ($n = 3; $n <= 55; $n++) {
    placeOrder($api, $key, ['external_id' => "php-$n"] + $order);
}
$all = iterator_to_array(events($api, $key, '2026-01-01T00:00:00Z'), false);
must(count($all) === 56 && $all[0]['data']['order']['id'] === $first['id'], count($all));
must(count(iterator_to_array(events($api, $key, $all[49]['id']), false)) === 6, $all[49]);
echo "placed, refused, caught up\n";
