// How many orders to ship are late, and how many due today: read once, then followed by the events.

import { get } from "./api.js";
import { count } from "./format.js";
import { midnight, now } from "./time.js";

const MOST = 200;
let known = null;

/** Return whether the counts are known, of this day. */
export function areDuesKnown() {
  return known?.until === midnight(1);
}

/** Forget the counts, which are read again. */
export function forgetDues() {
  known = null;
}

/** Read which orders are due until midnight. */
export async function readDues(signal) {
  const until = midnight(1);
  const { orders, next } = await get(`store/orders?limit=${MOST}&sort=shipDate&status=pending&shipsBefore=${until}`, { signal });
  known = { until, hasMore: Boolean(next), dates: new Map(orders.map(({ id, shipDate }) => [id, Date.parse(shipDate)])) };
}

/** Take in what has become of an order. */
export function followDue({ id, status, shipDate }) {
  if (status === "pending" && shipDate < known?.until) known.dates.set(id, Date.parse(shipDate));
  else known?.dates.delete(id);
}

/** Return how many are `late`, or due `today`, as a text: "200+" where there are more than can be known. */
export function dueCount(due) {
  if (!known || due === "none") return "";
  const [from, to] = due === "late" ? [-Infinity, now()] : [Date.parse(midnight()), Infinity];
  const dates = [...known.dates.values()];
  const number = dates.filter((date) => date >= from && date < to).length;
  // What is not known is due later than what is.
  const isCut = known.hasMore && (due === "today" || number === dates.length);
  return `${count(number)}${isCut ? "+" : ""}`;
}
