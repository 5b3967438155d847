// Orders on paper and as a file: the packing list, which is printed in place of the page, and CSV.

import { get, mustWait } from "./api.js";
import { bdi, byId, el } from "./dom.js";
import { clock, count, counted, dated, STATUSES } from "./format.js";
import { announce } from "./notices.js";
import { now } from "./time.js";

const FIELDS = ["id", "reference", "petId", "quantity", "note", "status", "placedAt", "shipDate", "updatedAt"];
// What a spreadsheet would take for a formula.
const FORMULA = /^[=+\-@\t\r]/;
export const AT_ONCE = 200;

let chosen = null;

/** Print these orders, returned by a function, when the page is printed; null to print the page. */
export function printing(orders) {
  chosen = orders;
}

addEventListener("beforeprint", () => {
  const orders = chosen?.() ?? [];
  byId("packing").replaceChildren(...(orders.length ? list(orders) : []));
});
addEventListener("afterprint", () => byId("packing").replaceChildren());

function list(orders) {
  const heads = ["Packed", "Order", "Reference", "Pet", "Quantity", "Due"];
  return [
    el("h1", { text: "Packing list" }),
    el("p", { text: `${counted(orders.length, "order")}, ${dated(now())}` }),
    el("table", { class: "plain" }, el("caption", { class: "unseen", text: "Orders to pack" }),
      el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text })))), ...orders.map(entry)),
  ];
}

// Numbers and dates stay on one line. A note has the width of the page.
function entry(order) {
  const note = order.note && el("tr", {}, el("td"), el("td", { class: "text", colspan: 5 }, bdi(order.note)));
  return el("tbody", {}, el("tr", {},
    el("td", { class: "tick" }, el("span", { role: "img", "aria-label": "not ticked" })),
    el("td", { text: order.id }), el("td", { class: "text" }, bdi(order.reference || "–")), el("td", { text: `No. ${order.petId}` }),
    el("td", { text: count(order.quantity) }), el("td", { text: due(order) })), note || null);
}

function due({ status, shipDate }) {
  if (status !== "pending") return STATUSES[status];
  return shipDate ? dated(shipDate) : "–";
}

/** Save orders as a CSV file. */
export function save(orders) {
  const lines = [FIELDS, ...orders.map((order) => FIELDS.map((name) => order[name] ?? ""))];
  const text = lines.map((line) => line.map(cell).join(",")).join("\r\n");
  const address = URL.createObjectURL(new Blob(["\ufeff", text, "\r\n"], { type: "text/csv" }));
  el("a", { href: address, download: "orders.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  announce(`${counted(orders.length, "order")} saved as orders.csv.`);
}

function cell(value) {
  const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : `${value}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Read all pages of a list, whose paths `path` returns by cursor; wait where a limit is met. */
export async function readAll(path, signal) {
  const orders = [];
  let after = "";
  do {
    while (mustWait()) {
      announce(`The request limit is reached. It goes on at ${clock(now() + 1000 * mustWait())}.`);
      await new Promise((resolve) => setTimeout(resolve, 1000 * mustWait()));
    }
    signal.throwIfAborted();
    try {
      const page = await get(path(after), { signal });
      orders.push(...page.orders);
      after = page.next;
    } catch (failure) {
      if (failure.status !== 429) throw failure;
    }
    announce(`${counted(orders.length, "order")} read…`);
  } while (after);
  return orders;
}
