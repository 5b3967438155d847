// Shipping with one press. For ten seconds it can be taken back; then, or when the page is left, it
// is sent. Several wait side by side.

import { change, get, mustWait, newName, NoAnswer } from "./api.js";
import { byId, el } from "./dom.js";
import { announce, banner } from "./notices.js";
import { session } from "./session.js";
import { describe } from "./words.js";

const SECONDS = 10;
const MOST_TRIES = 5;
const waiting = new Map();

/**
 * Dispatches `change` with the order, whether it `isShipped` (and that `isReplayed`, after a lost
 * answer), and whether it `isUnknown` what it is now.
 */
export const shipments = new EventTarget();

/** Return whether an order is about to ship. */
export function isShipping({ id }) {
  return waiting.has(id);
}

/** Ship an order in ten seconds, unless it is taken back. */
export function shipSoon(order) {
  if (waiting.has(order.id)) return;
  waiting.set(order.id, { order, name: newName(), left: SECONDS, tries: 0, isSent: false, isUncertain: false });
  announce(`Shipping order ${order.id}. You have ${SECONDS} seconds to undo it.`, { isShown: true });
  show();
  tell(order);
}

/** Take back an order that is about to ship. */
export function takeBack(order) {
  const entry = waiting.get(order.id);
  if (!entry || entry.isSent || entry.isUncertain) return;
  waiting.delete(order.id);
  announce(`Order ${order.id} was not shipped.`);
  show();
  tell(order);
}

/** Send all that waits, and wait for the answers. */
export function sendAll({ keepalive = false } = {}) {
  return Promise.all([...waiting.values()].filter((each) => !each.isSent).map((each) => send(each, keepalive)));
}

/** Forget what waits; return its ids. */
export function forgetAll() {
  const ids = [...waiting.keys()];
  waiting.clear();
  show();
  return ids;
}

/** Say which of the orders that were sent when the page was left did not ship. */
export async function tellWhatFailed() {
  for (const id of session.left) {
    try {
      const { status } = await get(`store/orders/${id}`);
      settle(id);
      if (status === "pending") fail(id, "You left the page before this was done. The order is still to ship.");
    } catch {
      // It is asked again at the visit after this.
    }
  }
}

addEventListener("pagehide", () => {
  if (!waiting.size) return;
  session.left = [...new Set([...session.left, ...waiting.keys()])];
  sendAll({ keepalive: true });
});

// Somebody who is on the way to a button needs more time.
setInterval(() => {
  const bar = byId("shipping");
  if (!waiting.size || bar.matches(":hover, :focus-within")) return;
  for (const entry of waiting.values()) {
    if (entry.isSent) continue;
    entry.left -= 1;
    if (entry.left <= 0 && !mustWait()) send(entry);
  }
  show();
}, 1000);

async function send(entry, keepalive = false) {
  const { order, name } = entry;
  Object.assign(entry, { isSent: true, tries: entry.tries + 1 });
  show();
  try {
    const { data, isReplayed } = await change("POST", `store/orders/${order.id}/ship`, undefined, { name, keepalive });
    succeed(data, isReplayed);
  } catch (failure) {
    if (failure.name === "AbortError" || !waiting.has(order.id)) return;
    if ((failure instanceof NoAnswer || [429, 500, 503].includes(failure.status)) && entry.tries < MOST_TRIES) again(entry, failure);
    else giveUp(entry, failure);
  }
}

function again(entry, failure) {
  entry.isSent = false;
  entry.isUncertain ||= failure.status !== 429;
  entry.left = Math.max(mustWait(), 2 ** entry.tries);
  show();
}

function succeed(order, isReplayed) {
  waiting.delete(order.id);
  settle(order.id);
  show();
  announce(`Order ${order.id} shipped.`);
  tell(order, { isShipped: true, isReplayed });
}

function settle(id) {
  session.left = session.left.filter((each) => each !== id);
}

function giveUp({ order }, failure) {
  waiting.delete(order.id);
  show();
  fail(order.id, describe(failure), failure instanceof NoAnswer ? "may not have shipped" : "was not shipped");
  tell(order, { isUnknown: true });
}

function fail(id, why, what = "was not shipped") {
  banner(`ship-${id}`, `Order ${id} ${what}. ${why}`, { isBad: true, canClose: true });
}

function tell(order, outcome = {}) {
  shipments.dispatchEvent(new CustomEvent("change", { detail: { order, ...outcome } }));
}

// Lines that stay are updated in place, so that nobody presses a button that is being replaced.
function show() {
  const bar = byId("shipping");
  for (const each of [...bar.children]) if (!waiting.has(Number(each.dataset.id))) each.remove();
  for (const entry of waiting.values()) {
    let line = bar.querySelector(`[data-id="${entry.order.id}"]`);
    if (!line) bar.append(line = newLine(entry.order));
    line.querySelector("i").textContent = entry.isSent ? "…" : `${entry.left} s`;
    line.querySelector("button").hidden = entry.isSent || entry.isUncertain;
  }
  bar.hidden = !waiting.size;
}

function newLine(order) {
  return el("li", { "data-id": order.id }, el("span", { text: `Shipping ${order.id}` }), el("i", { "aria-hidden": "true" }),
    el("button", { class: "button small", type: "button", text: "Undo", "aria-label": `Undo shipping order ${order.id}`, on: { click: () => takeBack(order) } }));
}
