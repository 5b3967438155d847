// The rows of the list of orders. Those that stay are kept in place, with hover, focus and selection.

import { isNew } from "./arrivals.js";
import { bdi, el } from "./dom.js";
import { chip, count, instant, lateTag } from "./format.js";
import { session } from "./session.js";
import { canUndo, isShipping, progress, shipSoon, takeBack } from "./shipping.js";

const COLUMNS = { order: "Order", reference: "Reference", pet: "Pet", quantity: "Quantity", placed: "Placed", ships: "Ship date", status: "Status" };
const NAMES = Object.keys(COLUMNS);

/** Make the table of orders. `choice` says which are chosen, and hears of changes. */
export function table(rows, choice) {
  const heads = NAMES.map((name) => el("th", { role: "columnheader", scope: "col", class: name, text: COLUMNS[name] }));
  const all = el("label", { class: "box" }, el("input", { type: "checkbox", id: "choose-all", autocomplete: "off", "aria-label": "Choose all orders on this page" }));
  heads.unshift(el("th", { role: "columnheader", scope: "col", class: "choose" }, all));
  if (session.mayWrite) heads.push(el("th", { role: "columnheader", scope: "col" }, el("span", { class: "unseen", text: "Action" })));
  const made = el("table", { role: "table" },
    el("caption", { class: "unseen", text: "Orders" }),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)),
    el("tbody", { role: "rowgroup" }, ...rows));
  made.addEventListener("click", (event) => clicked(event, choice));
  return made;
}

/** Make the row of an order. */
export function row(order, { isChosen, isFresh }) {
  const cells = [
    el("a", { href: `#/orders/${order.id}`, text: `${order.id}`, "aria-label": `Order ${order.id}` }),
    reference(order),
    el("span", { text: `No.\u00a0${order.petId}` }),
    el("span", { text: `${count(order.quantity)} ×` }),
    instant(order.placedAt),
    shipping(order),
    isShipping(order) ? el("span", { class: "chip pending slow", text: progress(order) }) : chip(order.status),
  ];
  const made = el("tr", { role: "row", "data-id": order.id, "data-state": state(order), class: className(order, isFresh) });
  const box = el("input", { type: "checkbox", autocomplete: "off", "aria-label": `Choose order ${order.id}` });
  box.checked = isChosen;
  made.append(el("td", { role: "cell", class: "choose" }, el("label", { class: "box" }, box)));
  made.append(...cells.map((cell, index) =>
    el("td", { role: "cell", "data-name": COLUMNS[NAMES[index]], class: NAMES[index] }, cell)));
  if (session.mayWrite) made.append(el("td", { role: "cell", class: "act" }, action(order)));
  return made;
}

/** Return what a row shows: one that shows the same is kept. */
export function state(order) {
  return JSON.stringify([order, progress(order), canUndo(order)]);
}

/** Put rows into a body; those that are there already are not moved. */
export function replaceRows(body, rows) {
  const wanted = new Set(rows);
  for (const each of [...body.children]) if (!wanted.has(each)) each.remove();
  rows.forEach((each, index) => {
    if (body.children[index] !== each) body.insertBefore(each, body.children[index] || null);
  });
}

/** Name the column of dates by what they are where all orders are shipped. */
export function nameShipDates(results, isShipped) {
  const name = isShipped ? "Shipped" : COLUMNS.ships;
  results.querySelector("th.ships").textContent = name;
  for (const cell of results.querySelectorAll("td.ships")) cell.dataset.name = name;
}

function className(order, isFresh) {
  return [isFresh && "fresh", isNew(order) && "new"].filter(Boolean).join(" ");
}

function reference(order) {
  const text = order.reference ? bdi(order.reference) : none("no reference");
  return el("span", {}, text, order.note ? el("span", { class: "note" }, el("span", { class: "unseen", text: "Note: " }), bdi(order.note)) : null);
}

function shipping(order) {
  if (!order.shipDate || order.status === "cancelled") return none("no date");
  return el("span", {}, instant(order.shipDate), " ", lateTag(order));
}

function action(order) {
  if (order.status !== "pending") return null;
  if (isShipping(order) && !canUndo(order)) return null;
  if (isShipping(order)) {
    return el("button", { class: "button small quiet", type: "button", text: "Undo", "aria-label": `Undo shipping of ${order.id} in the list`, on: { click: () => takeBack(order) } });
  }
  // The list doesn't scroll away under a pointer.
  const act = ({ target, detail }) => {
    const next = target.closest("tr").nextElementSibling?.querySelector(".act button");
    shipSoon(order);
    next?.focus({ preventScroll: detail > 0 });
  };
  return el("button", { class: "button small", type: "button", text: "Ship", "aria-label": `Ship order ${order.id}`, on: { click: act } });
}

function none(label) {
  return el("span", { class: "none", role: "img", "aria-label": label, text: "–" });
}

let lastBox = null;

// A click on a row follows its link; one on a box chooses, with shift all since the one before.
function clicked(event, choice) {
  const box = event.target.closest("input[type=checkbox]");
  if (box) choose(event, box, choice);
  if (event.target.closest("a, button, label, input") || getSelection().toString()) return;
  event.target.closest("tbody tr")?.querySelector("a").click();
}

function choose(event, box, choice) {
  const boxes = [...event.currentTarget.querySelectorAll("tbody input")];
  const [from, to] = [boxes.indexOf(lastBox), boxes.indexOf(box)].sort((a, b) => a - b);
  const range = box.id === "choose-all" ? boxes : event.shiftKey && from >= 0 ? boxes.slice(from, to + 1) : [box];
  for (const each of range) each.checked = box.checked;
  lastBox = box;
  choice(range.map((each) => Number(each.closest("tr").dataset.id)), box.checked);
}
