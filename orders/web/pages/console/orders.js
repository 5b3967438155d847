// The list: what is to be shipped first, then whatever is asked for, a page at a time.

import { ship } from "./actions.js";
import { get, remembered } from "./api.js";
import { docsLink, el, icon } from "./dom.js";
import * as filters from "./filters.js";
import { chip, count, instant, lateness, STATUSES } from "./format.js";
import { failurePanel } from "./notices.js";
import { go, restoreScroll, trail } from "./router.js";
import { session } from "./session.js";

const COLUMNS = { order: "Order", reference: "Reference", pet: "Pet", quantity: "Quantity", placed: "Placed", ships: "Ships", status: "Status" };
const NAMES = Object.keys(COLUMNS);
const FRESH_MS = 4000;
export const FIGURES = "store/stats?days=1";

/** Make the view. */
export function ordersView(root, shop) {
  const tabs = Object.fromEntries(Object.entries({ ...STATUSES, all: "All" }).map(([status, name]) =>
    [status, el("a", { class: `tab ${status}` }, el("b"), el("span", { text: name }))]));
  const form = filters.form((to) => go(to));
  const results = el("section", { class: "results", "aria-label": "Orders" });
  const pages = el("nav", { class: "pages", "aria-label": "Pages" });
  const write = session.mayWrite
    ? el("a", { class: "button main only-wide", href: "#/new" }, icon("new"), "New order")
    : null;
  root.replaceChildren(
    el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Orders" }), write),
    el("nav", { class: "tabs", "aria-label": "Orders by status" }, ...Object.values(tabs)),
    form.element, results, pages);
  let asked = null;
  let loading = new AbortController();

  function update({ params }) {
    asked = filters.read(params);
    form.show(asked);
    showTabs(remembered(FIGURES)?.byStatus ?? shop.counts);
    const known = remembered(filters.path(asked));
    if (known) show(known, restoreScroll);
    else results.setAttribute("aria-busy", "true");
    return load(known ? undefined : restoreScroll);
  }

  // An answer that was asked for before another place was chosen is not waited for.
  async function load(then) {
    loading.abort();
    loading = new AbortController();
    const { signal } = loading;
    try {
      const [page] = await Promise.all([get(filters.path(asked), { signal }), loadCounts(signal)]);
      show(page, then);
    } catch (failure) {
      if (failure.name === "AbortError") return;
      fail(failure);
    }
  }

  async function loadCounts(signal) {
    shop.tellFigures(await get(FIGURES, { signal }));
    showTabs(shop.counts);
  }

  function show(page, then) {
    results.removeAttribute("aria-busy");
    if (page.orders.length) showRows(page.orders);
    else results.replaceChildren(blank());
    showPages(page.next);
    then?.();
  }

  function fail(failure) {
    results.removeAttribute("aria-busy");
    pages.replaceChildren();
    // The cursor of another store, or a filter that can't be meant: the list's beginning can.
    if (failure.status === 422 && asked.after) return go(filters.place(asked, {}), { replace: true });
    results.replaceChildren(failurePanel(failure, () => load()));
    return undefined;
  }

  // A tab or row that stays is changed, not made anew: whoever is about to press it presses what was there.
  function showTabs(counts) {
    const all = counts && Object.values(counts).reduce((sum, each) => sum + each, 0);
    const figures = { ...counts, all };
    for (const [status, tab] of Object.entries(tabs)) {
      tab.href = filters.place(asked, { status });
      tab.firstChild.textContent = counts ? count(figures[status]) : "…";
      if (status === asked.status) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
  }

  function showRows(orders) {
    const before = rowsById(results);
    const focused = focusedRow(results);
    const rows = orders.map((order) => {
      const text = JSON.stringify(order);
      const there = before.get(`${order.id}`);
      if (there?.dataset.told === text) return there;
      return row(order, text, before.size > 0 && asked.shown === asked);
    });
    asked.shown = asked;
    const body = results.querySelector("tbody");
    if (body) replaceRows(body, rows);
    else results.replaceChildren(table(rows));
    nameShipDates();
    if (focused >= 0 && !results.contains(document.activeElement)) {
      (rows[Math.min(focused, rows.length - 1)]?.querySelector("a") || root.querySelector("h1")).focus();
    }
  }

  function row(order, text, isFresh) {
    const late = lateness(order);
    const cells = [
      el("a", { href: `#/orders/${order.id}`, text: `${order.id}`, "aria-label": `Order ${order.id}` }),
      order.reference ? el("span", { text: order.reference }) : none("no reference"),
      el("span", { text: `No. ${order.petId}` }),
      el("span", { text: `${count(order.quantity)} ×` }),
      instant(order.placedAt),
      shipping(order, late),
      chip(order.status),
    ];
    const made = el("tr", {
      role: "row", "data-id": order.id, "data-told": text,
      class: [late && "late", isFresh && "fresh"].filter(Boolean).join(" "),
    });
    made.append(...cells.map((cell, index) =>
      el("td", { role: "cell", "data-name": COLUMNS[NAMES[index]], class: NAMES[index] }, cell)));
    if (session.mayWrite) made.append(el("td", { role: "cell", class: "act" }, shipButton(order)));
    if (isFresh) setTimeout(() => made.classList.remove("fresh"), FRESH_MS);
    return made;
  }

  // Their column is called otherwise where all have shipped.
  function nameShipDates() {
    const name = asked.status === "shipped" ? "Shipped" : COLUMNS.ships;
    results.querySelector("th.ships").textContent = name;
    for (const cell of results.querySelectorAll("td.ships")) cell.dataset.name = name;
  }

  function shipButton(order) {
    if (order.status !== "pending") return null;
    const act = async () => {
      const isChanged = await ship(order);
      // Its row may have been made anew while the question was open.
      if (!root.contains(document.activeElement)) focusOrder(order.id);
      if (isChanged) shop.changedHere();
    };
    return el("button", {
      class: "button small", type: "button", text: "Ship", "aria-label": `Ship order ${order.id}`, on: { click: act },
    });
  }

  function focusOrder(id) {
    (results.querySelector(`tr[data-id="${id}"] a`) || root.querySelector("h1")).focus();
  }

  function table(rows) {
    const heads = NAMES.map((name) => el("th", { role: "columnheader", scope: "col", class: name, text: COLUMNS[name] }));
    if (session.mayWrite) {
      heads.push(el("th", { role: "columnheader", scope: "col" }, el("span", { class: "unseen", text: "Action" })));
    }
    const made = el("table", { role: "table" },
      el("caption", { class: "unseen", text: "Orders" }),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)),
      el("tbody", { role: "rowgroup" }, ...rows));
    made.addEventListener("click", open);
    return made;
  }

  function blank() {
    const total = shop.counts && Object.values(shop.counts).reduce((sum, each) => sum + each, 0);
    if (asked.after) return panel("There is nothing on this page any more", "Orders have moved since.",
      link("To the first page", filters.place(asked, {})));
    if (filters.isNarrowed(asked)) return nothingFound();
    if (total === 0) return firstSteps();
    if (asked.status === "pending") return panel("Nothing to ship", "All orders are shipped or cancelled. New ones appear here by themselves.");
    return panel(`No ${asked.status === "all" ? "" : asked.status} orders`, "They appear here by themselves.");
  }

  function nothingFound() {
    const clear = link("Show all orders", "#/orders?status=all");
    const isNumber = /^[1-9]\d{0,15}$/.test(asked.reference);
    const other = isNumber ? link(`Open order number ${asked.reference}`, `#/orders/${asked.reference}`) : null;
    return panel("Nothing found", asked.reference
      ? "A reference must be written exactly as it was given, with capitals and signs."
      : "No order fits all of this. Take a filter away.", other, clear);
  }

  function showPages(next) {
    const before = trail();
    const parts = [];
    if (asked.after && !before.length) parts.push(link("First page", filters.place(asked, {})));
    if (before.length) parts.push(pageButton("Previous", "back", before.at(-1), before.slice(0, -1)));
    if (before.length || next) parts.push(el("p", { text: asked.after && !before.length ? "" : `Page ${before.length + 1}` }));
    if (next) parts.push(pageButton("Next", "on", next, [...before, asked.after]));
    pages.replaceChildren(...parts);
  }

  function pageButton(text, sign, after, pagesBefore) {
    const turn = () => {
      go(filters.place(asked, { after }), { trail: pagesBefore });
      root.querySelector("h1").focus({ preventScroll: true });
    };
    return el("button", { class: `button ${sign}`, type: "button", on: { click: turn } }, icon(sign), `${text} page`);
  }

  return { title: "Orders", update, changed: () => load(), dispose: () => loading.abort() };
}

// A row is as good as its link, for whoever points.
function open(event) {
  if (event.target.closest("a, button") || getSelection().toString()) return;
  event.target.closest("tbody tr")?.querySelector("a").click();
}

function shipping(order, late) {
  if (!order.shipDate || order.status === "cancelled") return none("no date");
  if (!late) return el("span", {}, instant(order.shipDate));
  return el("span", {}, instant(order.shipDate), " ", el("strong", { class: "tag", text: late }));
}

function none(words) {
  return el("span", { class: "none", role: "img", "aria-label": words, text: "–" });
}

function rowsById(results) {
  return new Map([...results.querySelectorAll("tbody tr")].map((each) => [each.dataset.id, each]));
}

function focusedRow(results) {
  return [...results.querySelectorAll("tbody tr")].findIndex((each) => each.contains(document.activeElement));
}

// Rows that stay are not moved, so that what is pointed at, focused or selected stays so.
function replaceRows(body, rows) {
  const wanted = new Set(rows);
  for (const each of [...body.children]) if (!wanted.has(each)) each.remove();
  rows.forEach((each, index) => {
    if (body.children[index] !== each) body.insertBefore(each, body.children[index] || null);
  });
}

function link(text, href) {
  return el("a", { class: "button", href, text });
}

function panel(title, words, ...more) {
  return el("div", { class: "panel blank" }, el("h2", { text: title }), el("p", { text: words }),
    more.some(Boolean) ? el("div", { class: "buttons" }, ...more) : null);
}

function firstSteps() {
  const steps = [
    session.mayWrite
      ? ["Place a first order", "By hand, to see how it goes.", el("a", { class: "button main", href: "#/new", text: "New order" })]
      : ["Wait for the first order", "Your key may look, but not place any. It appears here by itself."],
    ["Bring the orders that you have", "Whoever looks after the service can take them in from a table (CSV). README tells how, under “Moving in and out”."],
    ["Let the web shop place them", "It needs a key of its own. The programmer finds all there is to know here.", docsLink()],
  ];
  return el("div", { class: "panel steps" },
    el("h2", { text: "No orders yet" }),
    el("p", { text: "This is where they will be. To begin:" }),
    el("ol", {}, ...steps.map(([title, words, more]) => el("li", {},
      el("h3", { text: title }), el("p", { text: words }), more))));
}
