// Orders on paper and as a file: the packing list, which is printed in place of the page, and CSV.

import { get, mustWait } from "./api.js";
import { byId, el } from "./dom.js";
import { asides, FIELDS, isSet, shown, title } from "./fields.js";
import { clock, counted, dated, STATUSES } from "./format.js";
import { announce } from "./notices.js";
import { now } from "./time.js";

const COLUMNS = FIELDS.filter(({ name, column }) => column && name !== "placedAt");
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
  const heads = ["Packed", ...COLUMNS.map((field) => field.titleOnPaper ?? title(field))];
  return [
    el("h1", { text: "Packing list" }),
    el("p", { text: `${counted(orders.length, "order")}, ${dated(now())}` }),
    el("table", { class: "plain" }, el("caption", { class: "unseen", text: "Orders to pack" }),
      el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text })))), ...orders.map(entry)),
  ];
}

// Numbers and dates stay on one line. What has no column, such as a note, has the width of the page.
function entry(order) {
  const below = asides(order, "td", { class: "text", colspan: COLUMNS.length }).map((each) => el("tr", {}, el("td"), each));
  return el("tbody", {}, el("tr", {},
    el("td", { class: "tick" }, el("span", { role: "img", "aria-label": "not ticked" })), ...COLUMNS.map((field) => cell(field, order))), ...below);
}

function cell(field, order) {
  const { name, onPaper } = field;
  if (name === "shipDate" && order.status !== "pending") return el("td", { text: STATUSES[order.status] });
  const value = !isSet(field, order) ? "–" : onPaper ? onPaper(order[name]) : shown(field, order);
  return el("td", { class: name === "reference" && "text" }, value);
}

/** Save orders as a CSV file. */
export function save(orders) {
  const names = FIELDS.map(({ name }) => name);
  const lines = [names, ...orders.map((order) => names.map((name) => order[name] ?? ""))];
  const text = lines.map((line) => line.map(csv).join(",")).join("\r\n");
  const address = URL.createObjectURL(new Blob(["\ufeff", text, "\r\n"], { type: "text/csv" }));
  el("a", { href: address, download: "orders.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  announce(`${counted(orders.length, "order")} saved as orders.csv.`);
}

function csv(value) {
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
