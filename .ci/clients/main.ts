// Lists, creates, reads and fails with the types that openapi-typescript makes of openapi.json.
import createClient from "openapi-fetch";
import type { components, paths, webhooks } from "./api.d.ts";

type Order = components["schemas"]["Order"];
type ErrorCode = components["schemas"]["ErrorCode"];
type OrderPaid = webhooks["orderPaid"]["post"]["requestBody"]["content"]["application/json"];
export const total = (e: OrderPaid): number => e.data.order.amount;

// A value that a later service may send is one that these types know: no enumeration of an answer is closed, but for an
// order's six statuses.
type OrderEvent = components["schemas"]["OrderEvent"];
type Session = components["schemas"]["PaymentSession"];
export const later: [Order["items"][0]["type"], Session["status"], OrderEvent["event"], ErrorCode] =
  ["service", "parked", "orderPraised", "NOT_TODAY"];
// @ts-expect-error
export const misspelled = (order: Order): boolean => order.status === "payed";

// An event of a known name has its own type, and a misspelled name is an error.
export function changes(e: components["schemas"]["KnownEvent"]): string[] {
  switch (e.event) {
    case "orderUpdated":
      return e.data.changed;
    case "ping":
      return [];
    // @ts-expect-error
    case "orderPayed":
      return [];
    default:
      return [e.data.order.status];
  }
}

// null means something for a stock, and nothing for a price.
type CatalogProduct = components["schemas"]["CatalogProduct"];
export const unlimited: CatalogProduct = { slug: "teh", title: "Teh", price: 1, stock: null };
// @ts-expect-error
export const priceless: CatalogProduct = { slug: "teh", title: "Teh", price: null };

// A request with a status that is not described is an error here, before it is sent.
type ListQuery = NonNullable<paths["/v1/orders"]["get"]["parameters"]["query"]>;
// @ts-expect-error
export const wrongStatus: ListQuery["status"] = "on_hold";

function must(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

const [baseUrl, key] = process.argv.slice(2);
const connect = (key: string) => createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
const api = connect(key);

const products = await api.GET("/v1/products", { params: { query: { type: "product", q: "kopi" } } });
must(products.data?.data.products.length === 1, products);
const kopi = products.data.data.products[0];
must(kopi.price === 85000 && kopi.stock === null, kopi);

const made = await api.POST("/v1/orders", {
  params: { header: { "Idempotency-Key": "ts-1" } },
  body: {
    items: [{ type: "product", product_id: kopi.id, quantity: 2 }],
    buyer: { name: "Siti", email: "siti@example.id" },
    payment_method: "bank_transfer",
  },
});
must(made.data !== undefined && made.data.data.order.amount === 170000, made);
const order: Order = made.data.data.order;

const one = await api.GET("/v1/orders/{order_id}", { params: { path: { order_id: order.id } } });
must(one.data?.data.payment_session.status === "manual" && one.data.data.order.buyer.phone === undefined, one);
const list = await api.GET("/v1/orders", { params: { query: { status: "pending", limit: 10 } } });
must(list.data?.data.orders[0].id === order.id && !list.data.data.has_more, list);

const path = { order_id: order.id };
const edited = await api.PATCH("/v1/orders/{order_id}", { params: { path }, body: { metadata: { picked: "yes" } } });
must(edited.data?.data.order.sequence === 2 && edited.data.data.order.metadata?.picked === "yes", edited);
await api.POST("/v1/orders/{order_id}/approve", { params: { path } });
const sent = await api.POST("/v1/orders/{order_id}/ship", { params: { path }, body: { carrier: "JNE" } });
must(sent.data?.data.order.shipping?.carrier === "JNE" && sent.data.data.order.sequence === 4, sent);

const hook = await api.POST("/v1/webhooks", { body: { url: "https://shop.example.id/hook", events: ["orderPaid"] } });
must(hook.data?.data.webhook.secret.startsWith("whsec_") === true, hook);
const removed = await api.DELETE("/v1/webhooks/{webhook_id}", { params: { path: { webhook_id: hook.data!.data.webhook.id } } });
must(removed.data?.data.webhook.id === hook.data!.data.webhook.id, removed);

// The catalog is read and sent back: nothing changes.
const page = await api.GET("/v1/catalog", { params: { query: { type: "product" } } });
const back = await api.PUT("/v1/catalog", { body: { products: page.data!.data.products } });
must(back.data?.data.entries.every((e) => e.result === "unchanged") === true && back.data.data.products === 1, back);

const wrong = await api.POST("/v1/orders", { body: { items: [], buyer: { name: "Siti" } } });
must(wrong.response.status === 422 && wrong.error?.error.code === "VALIDATION_FAILED" && wrong.error.error.details?.length === 2, wrong);
const refused = await connect("wrong").GET("/v1/orders/{order_id}", { params: { path: { order_id: order.id } } });
must(refused.error?.error.code === "UNAUTHORIZED", refused);
console.log("listed, created, read, failed");
