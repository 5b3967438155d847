// The rows of the list of orders, which stay where they are, and what a list without orders says.

import { byId, docsLink, el } from "./dom.js";
import { asides, celled, FIELDS, isSet, shown, title } from "./fields.js";
import * as filters from "./filters.js";
import { chip } from "./format.js";
import { isNew } from "./news.js";
import { announce } from "./notices.js";
import { session } from "./session.js";
import { canUndo, isShipping, progress, shipSoon, takeBack } from "./shipping.js";

const COLUMNS = FIELDS.filter(({ column }) => column);
// Numbers below it stay on one line, whatever is beside them.
const LONG = 9_999_999;

/** Make the table of orders. `choice` says which are chosen, and hears of changes. */
export function table(rows, choice) {
  const head = (name, text) => el("th", { role: "columnheader", scope: "col", class: name, text });
  const heads = [...COLUMNS.map((field) => head(field.column, title(field))), head("status", "Status")];
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
  const made = el("tr", { role: "row", "data-id": order.id, "data-state": state(order), class: className(order, isFresh) });
  const box = el("input", { type: "checkbox", autocomplete: "off", "aria-label": `Choose order ${order.id}` });
  box.checked = isChosen;
  made.append(el("td", { role: "cell", class: "choose" }, el("label", { class: "box" }, box)));
  made.append(...COLUMNS.map((field) => el("td", { role: "cell", "data-name": title(field), class: `${field.column}${order[field.name] > LONG ? " long" : ""}` }, cell(field, order))));
  made.append(el("td", { role: "cell", "data-name": "Status", class: "status" },
    isShipping(order) ? el("span", { class: "chip pending slow", text: progress(order) }) : chip(order.status)));
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
  const name = title(COLUMNS.find(({ column }) => column === "ships"), { isShipped });
  results.querySelector("th.ships").textContent = name;
  for (const each of results.querySelectorAll("td.ships")) each.dataset.name = name;
}

function className(order, isFresh) {
  return [isFresh && "fresh", isNew(order) && "new"].filter(Boolean).join(" ");
}

function cell(field, order) {
  const isNone = !isSet(field, order) || (field.column === "ships" && order.status === "cancelled");
  const value = isNone ? none(`no ${field.label.toLowerCase()}`) : shown(field, order);
  if (field.column === "order") return el("a", { href: `#/orders/${order.id}`, "aria-label": `Order ${order.id}` }, value);
  if (field.column === "pet") return el("span", {}, ...celled(field, order));
  return field.column === "reference" ? el("span", {}, value, ...asides(order, "span", { class: "note" }, { isBrief: true })) : el("span", {}, value);
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

// Rows stay where they are while a hand is in the list, and a moment longer: nobody presses a row that
// slid under the pointer.

const AFTERWARDS_MS = 2000;
// A pointer that rests this long is nobody's hand.
const LEFT_ALONE_MS = 60_000;
// How long it takes to see that a button about to be pressed has moved.
const REACTION_MS = 400;
const HANDS = ["pointermove", "pointerdown", "pointerup", "pointerleave", "keydown", "focusin", "focusout"];

/**
 * Watch the hands in a list. Returns whether one `isHeld` there, whether it `isPressed`, and what to call when rows
 * have `moved`: what slid under a finger at the last moment is not pressed.
 */
export function watchList(list) {
  let touchedAt = -Infinity;
  let isDown = false;
  let movedAt = -Infinity;
  let isTooSoon = false;
  for (const type of HANDS) {
    list.addEventListener(type, () => {
      touchedAt = performance.now();
    });
  }
  list.addEventListener("pointerdown", () => {
    isDown = true;
    isTooSoon = performance.now() - movedAt < REACTION_MS;
    const up = () => {
      isDown = false;
    };
    for (const type of ["click", "pointercancel", "dragend"]) addEventListener(type, up, { once: true, capture: true });
    addEventListener("pointerup", () => setTimeout(up), { once: true });
  });
  const moved = () => {
    movedAt = performance.now();
  };
  list.addEventListener("click", (event) => {
    if (!isTooSoon || !event.detail || !event.target.closest(".act")) return;
    event.stopImmediatePropagation();
    announce("The list has just moved. Check, and press again.");
  }, true);
  // A banner moves the list; an observer reports once as it begins, too.
  let height = byId("banners").offsetHeight;
  const banners = new ResizeObserver(() => {
    if (byId("banners").offsetHeight !== height) moved();
    height = byId("banners").offsetHeight;
  });
  banners.observe(byId("banners"));
  const isIn = () => list.matches(":hover") || list.querySelector(":focus-visible") !== null;
  const isHeld = () => {
    const since = performance.now() - touchedAt;
    return since < AFTERWARDS_MS || (since < LEFT_ALONE_MS && isIn());
  };
  return { isHeld, isPressed: () => isDown, moved, stop: () => banners.disconnect() };
}

/**
 * Return the orders to show where rows stay in their place: those that were shown, as they are now,
 * then those that have come. `latest` has what became of those that are gone.
 */
export function inPlace(shown, orders, latest) {
  const now = new Map(orders.map((order) => [order.id, order]));
  const stay = shown.map((order) => now.get(order.id) ?? latest.get(order.id) ?? order);
  const ids = new Set(shown.map(({ id }) => id));
  return [...stay, ...orders.filter(({ id }) => !ids.has(id))];
}

/** Keep the widths of a list's columns, or let them go by what is in them. */
export function freezeColumns(list, isFrozen) {
  const table = list.querySelector("table");
  if (!table || Boolean(table.style.tableLayout) === isFrozen) return;
  const heads = [...table.querySelectorAll("th")];
  const widths = heads.map((each) => (isFrozen ? `${(100 * each.offsetWidth) / table.offsetWidth}%` : ""));
  heads.forEach((each, index) => {
    each.style.width = widths[index];
  });
  table.style.tableLayout = isFrozen ? "fixed" : "";
}

// The text of an empty list, with what to do.

/** Make what is shown in place of a list without orders. `counts` are those of each status, if known. */
export function blank(query, counts) {
  const total = counts && Object.values(counts).reduce((sum, each) => sum + each, 0);
  if (query.after) return panel("This page is empty now", "Its orders have moved to other pages.",
    link("Go to the first page", filters.place(query, {})));
  if (filters.isNarrowed(query)) return nothingFound(query);
  if (total === 0) return firstSteps();
  if (query.due) return panel(`${filters.DUES[query.due]}: none`, "Orders appear here automatically.", link("Show all to ship", "#/orders"));
  if (query.status === "pending") return panel("Nothing to ship", "All orders are shipped or cancelled. New ones appear here automatically.");
  return panel(`No ${query.status === "all" ? "" : query.status} orders`, "They will appear here automatically.");
}

function nothingFound(query) {
  return panel("No orders found", query.search
    ? `No order has this number, or a word like “${query.search}” in its reference, item, address or tracking.`
    : "No order matches all filters. Try removing one.", link("Show all orders", "#/orders?status=all"));
}

/** Make a link that looks like a button. */
export function link(text, href) {
  return el("a", { class: "button", href, text });
}

function panel(title, text, ...more) {
  return el("div", { class: "panel blank" }, el("h2", { text: title }), el("p", { text }),
    more.some(Boolean) ? el("div", { class: "buttons" }, ...more) : null);
}

function firstSteps() {
  const steps = [
    session.mayWrite
      ? ["Place your first order", "Enter one by hand to see how it works.", el("a", { class: "button main", href: "#/new", text: "New order" })]
      : ["Wait for the first order", "Your key can view orders, but not place them. New orders appear here automatically."],
    ["Import your existing orders", "Your administrator can import them from a spreadsheet (CSV). The README explains how."],
    ["Connect your web shop", "It needs a key of its own. The documentation has everything a developer needs.", docsLink()],
  ];
  return el("div", { class: "panel steps" },
    el("h2", { text: "No orders yet" }),
    el("p", { text: "Your orders will appear here. To get started:" }),
    el("ol", {}, ...steps.map(([title, text, more]) => el("li", {},
      el("h3", { text: title }), el("p", { text }), more))));
}
