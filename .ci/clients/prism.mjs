// Sends requests through Prism, which compares each answer of the service with openapi.json, and fails if Prism finds an
// answer, a success or a refusal, that is not as described. Its arguments are Prism's address and a key.
const [address, key] = process.argv.slice(2);
let seen = 0;

async function send(method, path, want, body, headers = {}) {
  const response = await fetch(address + path, {
    method,
    body: body && JSON.stringify(body),
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json", ...headers },
  });
  const violations = JSON.parse(response.headers.get("sl-violations") ?? "[]");
  const wrong = violations.filter((v) => v.location[0] === "response");
  if (wrong.length || response.status !== want) {
    throw new Error(`${method} ${path}: ${response.status}, want ${want}: ${JSON.stringify(wrong)} ${await response.text()}`);
  }
  seen++;
  return response.json();
}

const products = await send("GET", "/v1/products", 200);
const kopi = products.data.products[0].id;
const order = {
  items: [{ type: "product", product_id: kopi, quantity: 1 }], buyer: { name: "Siti", email: "siti@example.id" },
  payment_method: "bank_transfer", note: "Titip di satpam.", metadata: { channel: "prism" }, shipping_fee: 9000,
};
const made = await send("POST", "/v1/orders", 201, order);
const path = "/v1/orders/" + made.data.order.id;
for (const p of ["/v1/store", "/v1/payment-methods", "/v1/orders", path, "/v1/events"]) await send("GET", p, 200);
await send("POST", path + "/approve", 200, { reason: "BCA" });
await send("POST", path + "/refund", 200, {});
await send("PUT", "/v1/catalog", 200, { products: [] });

await send("POST", path + "/cancel", 409, {});
await send("POST", "/v1/orders", 422, { ...order, items: [{ type: "product", product_id: made.data.order.id, quantity: 1 }] });
await send("POST", "/v1/orders", 422, { ...order, payment_method: "nothing" });
await send("POST", "/v1/orders", 422, { ...order, discount: 1e9 });
await send("GET", "/v1/orders/01a1fc0f-a32e-7a3e-9c41-d7f206b85ae3", 404);
await send("GET", "/v1/events?after=evt_01a1fc0f-a32e-70c5-99e8-b7a431f206d1", 400);
await send("GET", "/v1/store", 401, undefined, { Authorization: "Bearer wrong" });
console.log(`${seen} answers as described`);
