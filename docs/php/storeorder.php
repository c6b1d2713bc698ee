<?php
/*
 * A client of storeorder in one file, for PHP 8.1 or later with its curl extension. Copy it to your server.
 *
 *     require 'storeorder.php';
 *
 *     // At the checkout. Save your own order first, under the same external_id.
 *     try {
 *         $order = Storeorder\placeOrder('https://orders.example.id', $key, [
 *             'items' => [['type' => 'product', 'slug' => 'kopi-gayo', 'quantity' => 2]],
 *             'buyer' => ['name' => 'Siti', 'phone' => '0812 3456 7890'],
 *             'payment_method' => 'bank_transfer',
 *             'external_id' => 'shop-1044',
 *         ]);
 *         header('Location: ' . $order['checkout_url']);
 *     } catch (Storeorder\NoAnswer) {
 *         // There may be an order. Show "We are checking your order", and let a cron job call this again.
 *     }
 *
 *     // At the address of your webhook.
 *     $body = file_get_contents('php://input');
 *     if (!Storeorder\verify($secret, $_SERVER['HTTP_X_SERVICE_SIGNATURE'] ?? '', $body)) {
 *         http_response_code(400);
 *         exit;
 *     }
 *     handle(json_decode($body, true)); // A 2xx acknowledges it. It may come twice, or late: its sequence tells.
 *
 *     // After your server was down: what it has missed. $lastId comes from here only, never from a webhook.
 *     foreach (Storeorder\events('https://orders.example.id', $key, $lastId) as $event) {
 *         handle($event);
 *         $lastId = $event['id']; // Save it.
 *     }
 */
declare(strict_types=1);

namespace Storeorder;

/** A request that was refused. Decide by errorCode, such as OUT_OF_STOCK; details says what is wrong with which field. */
final class Refused extends \RuntimeException
{
    public function __construct(public readonly string $errorCode, string $message, public readonly array $details)
    {
        parent::__construct("$errorCode: $message");
    }
}

/** No answer came, or none that can be relied on. Call the function again, later, with the same arguments. */
final class NoAnswer extends \RuntimeException
{
}

/**
 * Creates an order and returns it. One external_id makes one order, however often this is called with the same array.
 * "Retry safely" in the guide says what a repetition returns, and "When the cart changes" what another array needs.
 *
 * It tries five times. While the service does not answer, that can take 195 seconds: 15 for each try, and at most 30
 * between two.
 *
 * @param array $order the body of POST /v1/orders, with an external_id
 */
function placeOrder(string $api, string $key, array $order): array
{
    $order['external_id'] = (string) ($order['external_id'] ?? ''); // Databases count with integers.
    if ($order['external_id'] === '') {
        throw new \InvalidArgumentException('the order has no external_id');
    }
    $idempotency = hash('sha256', $order['external_id']);
    return call($api, $key, '/v1/orders', json_encode($order, JSON_THROW_ON_ERROR), $idempotency)['order'];
}

/**
 * Tells whether a webhook comes from the service, and within five minutes.
 *
 * @param string $secret the endpoint's whole secret, whsec_…
 * @param string $header X-Service-Signature
 * @param string $body the bytes as they came
 */
function verify(string $secret, string $header, string $body): bool
{
    $signatures = explode(',', $header);
    $time = substr(array_shift($signatures), strlen('t='));
    if (!ctype_digit($time) || abs(time() - (int) $time) > 300) {
        return false;
    }
    $want = 'v1=' . hash_hmac('sha256', "$time.$body", $secret);
    foreach ($signatures as $given) {
        if (hash_equals($want, $given)) {
            return true;
        }
    }
    return false;
}

/**
 * Yields the events after one, oldest first, as webhooks carry them.
 *
 * @param string $after the id of the last event that this gave you; the first time, a time: 2026-11-01T00:00:00Z
 */
function events(string $api, string $key, string $after): \Generator
{
    do {
        $from = str_starts_with($after, 'evt_') ? 'after' : 'created_at_min';
        $page = call($api, $key, '/v1/events?' . http_build_query(['limit' => 50, $from => $after]));
        foreach ($page['events'] as $event) {
            yield $event;
            $after = $event['id'];
        }
    } while ($page['has_more']);
}

/**
 * Sends a request, a POST if it has a body, and returns the answer's data. It sends no If-None-Match.
 *
 *     $order = Storeorder\call($api, $key, "/v1/orders/$id/cancel", '{}')['order'];
 *     $order = Storeorder\call($api, $key, "/v1/orders/$id", '{"note": "Tanpa gula"}', method: 'PATCH')['order'];
 *
 *     for ($goods = [], $more = true; $more; $more = $page['has_more']) { // A list comes in pages.
 *         $page = Storeorder\call($api, $key, '/v1/products?limit=50&offset=' . count($goods));
 *         array_push($goods, ...$page['products'], ...$page['bundles']);
 *     }
 */
function call(
    string $api, string $key, string $path, ?string $body = null, string $idempotency = '', string $method = '',
): array {
    $headers = ["Authorization: Bearer $key"];
    if ($body !== null) {
        array_push($headers, 'Content-Type: application/json', "Idempotency-Key: $idempotency");
    }
    for ($tries = 1; $tries <= 5; $tries++) {
        $wait = 2;
        $request = curl_init(rtrim($api, '/') . $path);
        curl_setopt_array($request, [
            CURLOPT_HTTPHEADER => $headers,
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_TIMEOUT => 15,
            CURLOPT_HEADERFUNCTION => function ($request, string $line) use (&$wait): int {
                if (preg_match('/^retry-after: *(\d+)/i', $line, $found)) {
                    $wait = min((int) $found[1], 30);
                }
                return strlen($line);
            },
        ]);
        if ($body !== null) {
            curl_setopt($request, CURLOPT_POSTFIELDS, $body);
        }
        if ($method !== '') {
            curl_setopt($request, CURLOPT_CUSTOMREQUEST, $method);
        }

        $answer = json_decode((string) curl_exec($request), true);
        $status = curl_getinfo($request, CURLINFO_RESPONSE_CODE); // 0: there was no answer.
        if ($answer['success'] ?? false) {
            return $answer['data'];
        }
        if ($status !== 0 && $status !== 429 && $status < 500) {
            $error = $answer['error'] ?? ['code' => "HTTP $status", 'message' => 'not from the service'];
            throw new Refused($error['code'], $error['message'], $error['details'] ?? []);
        }
        if ($tries < 5) {
            sleep($wait);
        }
    }
    throw new NoAnswer($status === 0 ? curl_error($request) : "HTTP $status");
}
