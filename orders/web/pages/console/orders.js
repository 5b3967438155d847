// The list of orders, by status and filters, a page at a time. Orders to ship come first.

import { ship } from "./actions.js";
import { cached, get } from "./api.js";
import { docsLink, el, icon } from "./dom.js";
import * as filters from "./filters.js";
import { chip, count, instant, lateness, STATUSES } from "./format.js";
import { failurePanel } from "./notices.js";
import { go, restoreScroll, trail } from "./router.js";
import { session } from "./session.js";

const COLUMNS = { order: "Order", reference: "Reference", pet: "Pet", quantity: "Quantity", placed: "Placed", ships: "Ship date", status: "Status" };
const NAMES = Object.keys(COLUMNS);
const FRESH_MS = 4000;
const FIGURES = "store/stats?days=1";

/** Make the view. */
export function ordersView(root, shop) {
  const tabs = Object.fromEntries(Object.entries({ ...STATUSES, all: "All" }).map(([status, name]) =>
    [status, el("a", { class: `tab ${status}` }, el("b"), el("span", { text: name }))]));
  const form = filters.form((to) => go(to));
  const results = el("section", { class: "results", "aria-label": "Orders" });
  const pages = el("nav", { class: "pages", "aria-label": "Pages" });
  const newOrder = session.mayWrite
    ? el("a", { class: "button main only-wide", href: "#/new" }, icon("new"), "New order")
    : null;
  root.replaceChildren(
    el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Orders" }), newOrder),
    el("nav", { class: "tabs", "aria-label": "Orders by status" }, ...Object.values(tabs)),
    form.element, results, pages);
  let query = null;
  let loading = new AbortController();

  function update({ params }) {
    query = filters.read(params);
    form.show(query);
    showTabs(cached(FIGURES)?.byStatus ?? shop.counts);
    const page = cached(filters.path(query));
    if (page) show(page, restoreScroll);
    else results.setAttribute("aria-busy", "true");
    return load(page ? undefined : restoreScroll);
  }

  // A request for an earlier place is aborted.
  async function load(then) {
    loading.abort();
    loading = new AbortController();
    const { signal } = loading;
    try {
      const [page] = await Promise.all([get(filters.path(query), { signal }), loadCounts(signal)]);
      show(page, then);
    } catch (failure) {
      if (failure.name === "AbortError") return;
      fail(failure);
    }
  }

  async function loadCounts(signal) {
    shop.updateFigures(await get(FIGURES, { signal }));
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
    // The cursor may be of another database: go to the first page instead.
    if (failure.status === 422 && query.after) return go(filters.place(query, {}), { replace: true });
    results.replaceChildren(failurePanel(failure, () => load()));
    return undefined;
  }

  // Tabs and rows that stay are updated in place, so that nobody clicks on one being replaced.
  function showTabs(counts) {
    const all = counts && Object.values(counts).reduce((sum, each) => sum + each, 0);
    const figures = { ...counts, all };
    for (const [status, tab] of Object.entries(tabs)) {
      tab.href = filters.place(query, { status });
      tab.firstChild.textContent = counts ? count(figures[status]) : "…";
      if (status === query.status) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
  }

  function showRows(orders) {
    const before = rowsById(results);
    const focused = focusedRow(results);
    const rows = orders.map((order) => {
      const text = JSON.stringify(order);
      const existing = before.get(`${order.id}`);
      if (existing?.dataset.json === text) return existing;
      return row(order, text, before.size > 0 && query.shown === query);
    });
    query.shown = query;
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
      el("span", { text: `No.\u00a0${order.petId}` }),
      el("span", { text: `${count(order.quantity)} ×` }),
      instant(order.placedAt),
      shipping(order, late),
      chip(order.status),
    ];
    const made = el("tr", {
      role: "row", "data-id": order.id, "data-json": text,
      class: [late && "late", isFresh && "fresh"].filter(Boolean).join(" "),
    });
    made.append(...cells.map((cell, index) =>
      el("td", { role: "cell", "data-name": COLUMNS[NAMES[index]], class: NAMES[index] }, cell)));
    if (session.mayWrite) made.append(el("td", { role: "cell", class: "act" }, shipButton(order)));
    if (isFresh) setTimeout(() => made.classList.remove("fresh"), FRESH_MS);
    return made;
  }

  // The column is named differently if all orders are shipped.
  function nameShipDates() {
    const name = query.status === "shipped" ? "Shipped" : COLUMNS.ships;
    results.querySelector("th.ships").textContent = name;
    for (const cell of results.querySelectorAll("td.ships")) cell.dataset.name = name;
  }

  function shipButton(order) {
    if (order.status !== "pending") return null;
    const act = async () => {
      const isChanged = await ship(order);
      // The row may have been replaced while the dialog was open.
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
    if (query.after) return panel("This page is empty now", "Its orders have moved to other pages.",
      link("Go to the first page", filters.place(query, {})));
    if (filters.isNarrowed(query)) return nothingFound();
    if (total === 0) return firstSteps();
    if (query.status === "pending") return panel("Nothing to ship", "All orders are shipped or cancelled. New ones appear here automatically.");
    return panel(`No ${query.status === "all" ? "" : query.status} orders`, "They will appear here automatically.");
  }

  function nothingFound() {
    const all = link("Show all orders", "#/orders?status=all");
    const isNumber = /^[1-9]\d{0,15}$/.test(query.reference);
    const other = isNumber ? link(`Open order ${query.reference}`, `#/orders/${query.reference}`) : null;
    return panel("No orders found", query.reference
      ? "References must match exactly, including capitals and punctuation."
      : "No order matches all filters. Try removing one.", other, all);
  }

  function showPages(next) {
    const before = trail();
    const parts = [];
    if (query.after && !before.length) parts.push(link("First page", filters.place(query, {})));
    if (before.length) parts.push(pageButton("Previous", "back", before.at(-1), before.slice(0, -1)));
    if (before.length || next) parts.push(el("p", { text: query.after && !before.length ? "" : `Page ${before.length + 1}` }));
    if (next) parts.push(pageButton("Next", "on", next, [...before, query.after]));
    pages.replaceChildren(...parts);
  }

  function pageButton(text, sign, after, pagesBefore) {
    const turn = () => {
      go(filters.place(query, { after }), { trail: pagesBefore });
      root.querySelector("h1").focus({ preventScroll: true });
    };
    return el("button", { class: `button ${sign}`, type: "button", on: { click: turn } }, icon(sign), `${text} page`);
  }

  return { title: "Orders", update, changed: () => load(), dispose: () => loading.abort() };
}

// Clicking a row follows its link.
function open(event) {
  if (event.target.closest("a, button") || getSelection().toString()) return;
  event.target.closest("tbody tr")?.querySelector("a").click();
}

function shipping(order, late) {
  if (!order.shipDate || order.status === "cancelled") return none("no date");
  if (!late) return el("span", {}, instant(order.shipDate));
  return el("span", {}, instant(order.shipDate), " ", el("strong", { class: "tag", text: late }));
}

function none(label) {
  return el("span", { class: "none", role: "img", "aria-label": label, text: "–" });
}

function rowsById(results) {
  return new Map([...results.querySelectorAll("tbody tr")].map((each) => [each.dataset.id, each]));
}

function focusedRow(results) {
  return [...results.querySelectorAll("tbody tr")].findIndex((each) => each.contains(document.activeElement));
}

// Rows that stay are not moved, which keeps hover, focus and selection.
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
