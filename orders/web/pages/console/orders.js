// The list of orders, by status and filters, a page at a time. Orders to ship come first.

import { cached, get } from "./api.js";
import { el, icon, setText } from "./dom.js";
import * as filters from "./filters.js";
import { count, counted, STATUSES } from "./format.js";
import { dueCount } from "./news.js";
import { announce, banner, describe, failurePanel } from "./notices.js";
import { AT_ONCE, printing, printSlips, readAll, save } from "./packing.js";
import { go, hash, restoreScroll, trail } from "./router.js";
import { blank, freezeColumns, inPlace, link, nameShipDates, replaceRows, row, state, table, watchList } from "./rows.js";
import { session } from "./session.js";
import { isShipping, shipSeveral } from "./shipping.js";

const FRESH_MS = 4000;

/** Make the view. */
export function ordersView(root, shop) {
  const tabs = Object.fromEntries(Object.entries({ ...STATUSES, all: "All" }).map(([status, name]) =>
    [status, el("a", { class: `tab ${status}` }, el("b"), el("span", { text: name }))]));
  const dues = Object.fromEntries(Object.entries(filters.DUES).map(([due, text]) => [due, el("a", {}, text, " ", el("b"))]));
  const form = filters.form((to, options) => go(to, options));
  const found = el("p", { class: "found", role: "status" });
  const tools = el("div", { class: "buttons" });
  const results = el("section", { class: "results", "aria-label": "Orders" });
  const pages = el("nav", { class: "pages", "aria-label": "Pages" });
  const newOrder = session.mayWrite
    ? el("a", { class: "button main only-wide", href: "#/new" }, icon("new"), "New order")
    : null;
  root.replaceChildren(
    el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Orders" }), newOrder),
    el("nav", { class: "tabs", "aria-label": "Orders by status" }, ...Object.values(tabs)),
    el("nav", { class: "dues segments", "aria-label": "Orders by due date" }, ...Object.values(dues)),
    form.element, el("div", { class: "tools" }, found, tools), results, pages);
  const chosen = new Set();
  const hands = watchList(results);
  // The present states of orders that have left the list.
  const latest = new Map();
  let inRows = [];
  let isBehind = false;
  let query = null;
  let page = null;
  let loading = new AbortController();
  let isSearch = false;
  printing(() => selected());

  function update({ params }) {
    query = filters.read(params);
    isSearch = once("isSearch");
    page = null;
    chosen.clear();
    // Whoever looked at an order comes back to what was chosen.
    if (session.chosen.place === ownPlace()) for (const id of session.chosen.ids) chosen.add(id);
    form.show(query);
    showTabs();
    const answer = cached(filters.path(query));
    const known = isSearch && answer?.next ? null : answer;
    if (!known) results.setAttribute("aria-busy", "true");
    else if (show(known, restoreScroll)) return undefined;
    return load(known ? undefined : restoreScroll);
  }

  // A request for an earlier place is aborted.
  async function load(then) {
    loading.abort();
    loading = new AbortController();
    const { signal } = loading;
    query.path = filters.path(query);
    try {
      const [read] = await Promise.all([get(query.path, { signal }), shop.loadFigures(signal)]);
      showTabs();
      show(read.next ? await withExact(read, signal) : read, then);
      isSearch = false;
    } catch (failure) {
      if (failure.name === "AbortError") return;
      fail(failure);
    }
  }

  // With more orders than a page has, one with exactly this number may be on another page.
  async function withExact(read, signal) {
    const missing = (failure) => (failure.status === 404 ? {} : Promise.reject(failure));
    const found = await Promise.all(filters.exactPaths(query).map((path) => get(path, { signal }).catch(missing)));
    const orders = found.flatMap((each) => each.orders ?? (each.id ? [each] : []));
    const added = orders.filter(({ id }, index) => ![...read.orders, ...orders.slice(0, index)].some((each) => each.id === id));
    return { ...read, orders: [...added, ...read.orders] };
  }

  // Returns whether it led on to the only order that was found.
  function show(read, then) {
    page = read;
    results.removeAttribute("aria-busy");
    banner("view", "");
    const orders = filters.arranged(query, page);
    if (isSearch && openOnlyHit(orders)) return true;
    if (isSearch) selectSearch();
    if (orders.length || isHeld()) showRows(orders);
    else results.replaceChildren(blank(query, shop.counts));
    showTools(orders);
    showPages(nextOf(orders));
    then?.();
    return false;
  }

  // The next search takes the place of this one.
  function selectSearch() {
    const search = root.querySelector("[type=search]");
    if (document.activeElement === search) search.select();
  }

  // Beyond the last that is late, none is.
  function nextOf(orders) {
    return query.due !== "late" || orders.length === page.orders.length ? page.next : "";
  }

  // A number, reference or tracking that only one order has leads to the order.
  function openOnlyHit(orders) {
    const exact = filters.exactHits(query, orders);
    const [hit] = exact.length === 1 ? exact : orders.length === 1 && !page.next ? orders : [];
    if (hit) go(`#/orders/${hit.id}`, { state: { foundAt: location.hash } });
    return Boolean(hit);
  }

  // Rows stay, even if they can't be read again: the reason is shown above.
  function fail(failure) {
    results.removeAttribute("aria-busy");
    // The cursor may be of another database: go to the first page instead.
    if (failure.status === 422 && query.after) return go(filters.place(query, {}), { replace: true });
    if (page) {
      if (failure.status && failure.status !== 429) banner("view", describe(failure));
      return undefined;
    }
    pages.replaceChildren();
    tools.replaceChildren();
    setText(found, "");
    results.replaceChildren(failurePanel(failure, () => load()));
    return undefined;
  }

  // Tabs and rows that stay are updated in place, so that nobody clicks on one being replaced.
  // Where filters are set, the tabs keep them, and nobody knows how many orders match.
  function showTabs() {
    const { counts } = shop;
    const all = counts && Object.values(counts).reduce((sum, each) => sum + each, 0);
    const figures = { ...counts, all };
    for (const [status, tab] of Object.entries(tabs)) {
      tab.href = filters.place(query, { status, due: "" });
      tab.firstChild.textContent = counts ? count(figures[status]) : "…";
      tab.firstChild.hidden = filters.isNarrowed(query);
      mark(tab, status === query.status && !query.due);
    }
    for (const [due, each] of Object.entries(dues)) {
      each.href = hash("orders", { due });
      mark(each, due === query.due);
    }
    showDues();
  }

  function showDues() {
    for (const [due, each] of Object.entries(dues)) setText(each.lastChild, dueCount(due));
  }

  function isHeld() {
    return query.shown === query && inRows.length > 0 && hands.isHeld();
  }

  // Rows are rearranged when no hand is there any more.
  function showRows(wanted) {
    isBehind = query.shown === query && hands.isPressed();
    if (isBehind) return;
    const held = isHeld();
    const orders = held ? inPlace(inRows, wanted, latest) : wanted;
    isBehind = !isAlike(orders, wanted);
    if (query.shown === query && !held && !isAlike(orders, inRows)) hands.moved();
    inRows = orders;
    freezeColumns(results, held);
    const before = new Map([...results.querySelectorAll("tbody tr")].map((each) => [each.dataset.id, each]));
    const focused = [...before.values()].findIndex((each) => each.contains(document.activeElement));
    const rows = orders.map((order) => {
      const existing = before.get(`${order.id}`);
      if (existing?.dataset.state === state(order)) return existing;
      const isFresh = before.size > 0 && query.shown === query;
      const made = row(order, { isFresh, isChosen: chosen.has(order.id) });
      if (isFresh) setTimeout(() => made.classList.remove("fresh"), FRESH_MS);
      return made;
    });
    query.shown = query;
    const body = results.querySelector("tbody");
    if (body) replaceRows(body, rows);
    else results.replaceChildren(table(rows, choose));
    nameShipDates(results, query.status === "shipped");
    showChoice();
    if (focused >= 0 && !results.contains(document.activeElement)) {
      (rows[Math.min(focused, rows.length - 1)]?.querySelector("a") || root.querySelector("h1")).focus({ preventScroll: true });
    }
  }

  function choose(ids, isChosen) {
    for (const id of ids) {
      if (isChosen) chosen.add(id);
      else chosen.delete(id);
    }
    rememberChoice();
    showChoice();
    showTools(filters.arranged(query, page));
  }

  // A list without a choice leaves another's.
  function rememberChoice() {
    const place = ownPlace();
    if (chosen.size || session.chosen.place === place) session.chosen = { place, ids: [...chosen] };
  }

  // The same however it was come by.
  function ownPlace() {
    return filters.place(query, { after: query.after });
  }

  function showChoice() {
    for (const each of results.querySelectorAll("tbody tr")) {
      const box = each.querySelector("input");
      box.checked = chosen.has(Number(each.dataset.id));
    }
    const all = results.querySelector("#choose-all");
    const boxes = [...results.querySelectorAll("tbody input")];
    all.checked = boxes.length > 0 && boxes.every((each) => each.checked);
    all.indeterminate = !all.checked && boxes.some((each) => each.checked);
  }

  function selected() {
    const orders = page ? filters.arranged(query, page) : [];
    return chosen.size ? orders.filter(({ id }) => chosen.has(id)) : orders;
  }

  function showTools(orders) {
    const some = selected().length && chosen.size ? `${count(selected().length)} chosen` : "";
    setText(found, some || filters.describe(query, orders, page));
    tools.replaceChildren(...[
      some && session.mayWrite && shipTool(),
      orders.length && tool("print", some ? `Print ${some}` : "Print packing list", () => print()),
      orders.length && tool("print", "Slips and labels", () => printSlips(selected())),
      orders.length && tool("save", some ? `CSV of ${some}` : "CSV of this page", () => save(selected())),
      nextOf(orders) && !some && tool("save", `CSV of all ${total()}`, saveAll),
    ].filter(Boolean));
  }

  function shipTool() {
    const pending = selected().filter((order) => order.status === "pending" && !isShipping(order));
    if (!pending.length) return null;
    return el("button", { class: "button main", type: "button", text: `Ship ${counted(pending.length, "order")}`, on: { click: () => shipChosen(pending) } });
  }

  // Orders that fail stay chosen.
  async function shipChosen(orders) {
    if (await shipSeveral(orders)) root.querySelector("h1").focus();
  }

  // How many they are is known but for filters.
  function total() {
    const known = !filters.isNarrowed(query) && !query.due && shop.counts;
    const number = known && (query.status === "all" ? Object.values(known).reduce((sum, each) => sum + each, 0) : known[query.status]);
    return number ? counted(number, "order") : "orders";
  }

  async function saveAll() {
    const { signal } = loading;
    try {
      const orders = await readAll((after) => filters.wholePath({ ...query, after }, AT_ONCE), signal);
      save(filters.arranged(query, { orders }));
    } catch (failure) {
      if (failure.name !== "AbortError") announce(describe(failure));
    }
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

  // Shipping costs no request but its own: the list is changed as the answer says.
  function shipping({ order, isShipped, isUnknown, isOneOf }) {
    if (page && isShipped) replace(order, { isQuiet: isOneOf });
    if (isOneOf) return;
    showTabs();
    if (!page || isShipped) return;
    if (isUnknown) load();
    else if (page.orders.length || isHeld()) {
      showRows(filters.arranged(query, page));
      showTools(filters.arranged(query, page));
    }
  }

  function replace(order, { isQuiet = false } = {}) {
    const isListed = query.status === "all" || query.status === order.status;
    page.orders = page.orders.flatMap((each) => (each.id !== order.id ? [each] : isListed ? [order] : []));
    chosen.delete(order.id);
    rememberChoice();
    latest.set(order.id, order);
    if (isQuiet) return;
    if (page.orders.length) show(page);
    else load();
  }

  // The lists of what is late and of what is due today change by themselves.
  function aged() {
    showDues();
    if (isBehind && page) show(page);
    if (!page || !query.due) return;
    if (filters.path(query) !== query.path) load();
    else if (query.due === "late" && filters.arranged(query, page).length !== results.querySelectorAll("tbody tr").length) show(page);
  }

  function changed(news) {
    for (const { order } of news) latest.set(order.id, order);
    showTabs();
    return load();
  }

  function dispose() {
    loading.abort();
    printing(null);
    hands.stop();
    banner("view", "");
  }

  return { title: "Orders", update, changed, shipping, aged, dispose };
}

function isAlike(orders, others) {
  return orders.length === others.length && orders.every(({ id }, index) => id === others[index].id);
}

// Take a mark off the place, so that coming back to it doesn't do the same again.
function once(name) {
  const isMarked = Boolean(history.state?.[name]);
  if (isMarked) history.replaceState({ ...history.state, [name]: false }, "");
  return isMarked;
}

function mark(tab, isCurrent) {
  if (isCurrent) tab.setAttribute("aria-current", "page");
  else tab.removeAttribute("aria-current");
}

function tool(sign, text, work) {
  return el("button", { class: "button quiet", type: "button", on: { click: work } }, icon(sign), text);
}
