// A morning of an integrator, by the types made of version 2's document. Prints what it learned.
import createClient from "openapi-fetch";
import type { components, paths } from "./v2.js";

type Order = components["schemas"]["Order"];
const { STORE_URL, STORE_KEY } = process.env;
// Events are also a stream, which is not JSON: the second type leaves it out.
const client = createClient<paths, "application/json">({
  baseUrl: `${STORE_URL}/v2`,
  headers: { Authorization: `Bearer ${STORE_KEY}` },
});

function known<T>(data: T | undefined, error: components["schemas"]["Error"] | undefined): T {
  if (data === undefined) throw new Error(`${error?.status} ${error?.code}: ${error?.message}`);
  return data;
}

const placing = await client.POST("/store/orders", { body: { petId: 7 } });
const order: Order = known(placing.data, placing.error);
const id: number = order.id;
const params = { path: { orderId: id } };
const noting = await client.PATCH("/store/orders/{orderId}", { params, body: { note: "Ring twice." } });
const note: string | undefined = known(noting.data, noting.error).note;
const shipping = await client.POST("/store/shipments", { body: { orderIds: [id, 999] } });
const codes = known(shipping.data, shipping.error).results.map((each) => "error" in each ? each.error.code : "shipped");
const refused = await client.DELETE("/store/orders/{orderId}", { params });
const listing = await client.GET("/store/orders", {
  params: { query: { search: `#${id}`, status: ["shipped"], limit: 1 } },
});
const found = known(listing.data, listing.error).orders.map((each) => each.id);

const seen: string[] = [];
for (let after = 0, more = true; more;) {
  const page = await client.GET("/store/events", { params: { query: { after, limit: 2 } } });
  const { events, ...rest } = known(page.data, page.error);
  seen.push(...events.map((event) => event.type));
  ({ next: after, more } = rest);
}
const usage = await client.GET("/usage");
const stats = await client.GET("/store/stats", { params: { query: { days: 1, zone: "Europe/Berlin" } } });
console.log(JSON.stringify({
  id, note, codes, found, seen,
  refused: refused.error?.code,
  key: known(usage.data, usage.error).id,
  shipped: known(stats.data, stats.error).byStatus.shipped,
}));
