// The filters of the list: from the place to the request, and the form that edits them.

import { el, icon } from "./dom.js";
import { counted } from "./format.js";
import { find } from "./hands.js";
import { hash } from "./router.js";
import { midnight as today, now } from "./time.js";

const PER_PAGE = 50;
// The service's longest page: usually all orders to ship, for one packing list.
const TO_SHIP = 200;
const SORTS = {
  dueAt: "Due first",
  shipDate: "By ship date",
  "-shipDate": "Ship date, latest first",
  "-placedAt": "Newest first",
  placedAt: "Oldest first",
};
const USUAL_SORTS = { pending: "dueAt", shipped: "-shipDate" };
/** Filters of orders to ship by when they are due. */
export const DUES = { late: "Late", today: "Due today", none: "No date" };
// An order's number as people say it, and as this page shows it.
const NUMBER = /^(?:no|nr|order)\b[.:]?\s*#?\s*([1-9]\d*)$/i;
const ID = /^[1-9]\d{0,15}$/;
const NAMES = ["search", "pet", "placedFrom", "placedTo", "shipsFrom", "shipsTo", "sort"];
const MORE = NAMES.slice(1);

/** Return the query of a place: a status (or all), other filters, and the sort order. */
export function read(params) {
  const status = params.get("status") || "pending";
  const query = Object.fromEntries(NAMES.map((name) => [name, params.get(name) || ""]));
  const due = Object.hasOwn(DUES, params.get("due") || "") ? params.get("due") : "";
  // An address may contain anything, including names such as `constructor`.
  const usual = due && due !== "none" ? "shipDate" : Object.hasOwn(USUAL_SORTS, status) ? USUAL_SORTS[status] : "-placedAt";
  const sort = Object.hasOwn(SORTS, query.sort) ? query.sort : usual;
  return { ...query, status: due ? "pending" : status, due, sort, usual, after: params.get("after") || "" };
}

/** Return whether filters other than the status are set. */
export function isNarrowed(query) {
  return NAMES.slice(0, -1).some((name) => query[name]);
}

/** Return the path of the request for a page, of orders due `until` an instant, if any. */
export function path(query, limit = query.sort === "dueAt" ? TO_SHIP : PER_PAGE, until = "") {
  const parameters = new URLSearchParams({ limit, sort: query.sort });
  const add = (name, value) => value && parameters.set(name, value);
  add("status", query.status === "all" ? "" : query.status);
  add("search", query.search);
  add("petId", query.pet);
  add("placedFrom", midnight(query.placedFrom));
  add("placedBefore", midnight(query.placedTo, 1));
  add("shipsFrom", query.due === "today" ? today() : midnight(query.shipsFrom));
  add("shipsBefore", until || (query.due === "today" ? today(1) : midnight(query.shipsTo, 1)));
  add("dated", query.due === "none" ? "false" : "");
  add("after", query.after);
  return `store/orders?${parameters}`;
}

/** Return the path of the request for a page of the whole list, as it is now. */
export function wholePath(query, limit) {
  return path(query, limit, query.due === "late" ? new Date(now()).toISOString() : "");
}

/** Return the orders of a page as they are shown. What is late next is on the page, too, and shown from that moment. */
export function arranged(query, { orders }) {
  if (query.due === "late") return orders.filter(({ shipDate }) => Date.parse(shipDate) < now());
  const hits = exactHits(query, orders);
  return hits.length ? [...hits, ...orders.filter((each) => !hits.includes(each))] : orders;
}

/** Return the orders whose number, whole reference or tracking is what is searched for. */
export function exactHits({ search }, orders) {
  const text = search.toLowerCase();
  const number = numberIn(text);
  return text ? orders.filter(({ id, reference, tracking }) => `${id}` === number || [reference, tracking].some((each) => each?.toLowerCase() === text)) : [];
}

/** Return the paths of the order, and of the orders, with a number or reference that alone is searched for, if it has digits. */
export function exactPaths(query) {
  const number = numberIn(query.search);
  const isAlone = query.status === "all" && MORE.every((name) => name === "sort" || !query[name]);
  return isAlone && ID.test(number) ? [`store/orders/${number}`, `store/orders?${new URLSearchParams({ reference: query.search, limit: 2 })}`] : [];
}

function numberIn(text) {
  return text.replace(NUMBER, "#$1").replace("#", "");
}

/** Describe what is shown, where the tabs do not say it. */
export function describe(query, shown, { next }) {
  if (!isNarrowed(query) && !query.due) return "";
  if (exactHits(query, shown).length > 1) return `Several orders have ${query.search} as their number or reference. Which one?`;
  return next || query.after ? `${counted(shown.length, "order")} on this page.` : `${counted(shown.length, "order")} found`;
}

/** Return the place of the list with changes, at its first page. */
export function place(query, changes) {
  const next = { ...query, after: "", ...changes };
  const parameters = Object.fromEntries(NAMES.map((name) => [name, next[name]]));
  if (next.sort === next.usual || changes.status) delete parameters.sort;
  const { status, due, after } = next;
  return hash("orders", { status: due || status === "pending" ? "" : status, due, ...parameters, after });
}

/** Return the place of the search for a text. What is searched for may have any status, and filters would hide it. */
export function searchPlace(search) {
  return hash("orders", { status: "all", search });
}

/** Make the form. `go` is called with the place to go to. */
export function form(go) {
  let query = read(new URLSearchParams());
  const search = field("Find an order", "search", "search", { placeholder: "Number, reference, name", maxlength: 64 });
  const fields = [
    field("Pet number", "text", "pet", { inputmode: "numeric", pattern: "[1-9][0-9]{0,18}" }),
    field("Placed from", "date", "placedFrom"),
    field("Placed to", "date", "placedTo"),
    field("Ship date from", "date", "shipsFrom"),
    field("Ship date to", "date", "shipsTo"),
    sorting(),
  ];
  const clear = el("button", { class: "button quiet", type: "button", text: "Clear filters" });
  const more = el("details", { class: "more" },
    el("summary", { class: "button quiet" }, "Filter and sort", el("span", { class: "badge", hidden: true })),
    el("div", { class: "grid" }, ...fields),
    el("div", { class: "buttons" }, clear, el("button", { class: "button main", type: "submit", text: "Apply" })));
  const made = el("form", { class: "filters", role: "search", "aria-label": "Orders" },
    el("div", { class: "search" }, search,
      el("button", { class: "button", type: "submit", "aria-label": "Search" }, icon("search"))),
    more);
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    const values = Object.fromEntries(NAMES.map((name) => [name, made.elements[name].value.trim()]));
    if (values.search && !more.contains(document.activeElement)) find(values.search);
    else go(place(query, values));
  });
  // The browser points at an incomplete date, which must be visible for that.
  made.addEventListener("invalid", () => {
    more.open = true;
  }, true);
  clear.addEventListener("click", () => go(place({ ...query, ...empty() }, { status: query.status, due: "" })));
  const show = (shown) => {
    query = shown;
    for (const name of NAMES) made.elements[name].value = query[name];
    const set = MORE.filter((name) => name !== "sort" && query[name]).length;
    const badge = more.querySelector(".badge");
    badge.textContent = set ? `${set} active` : "";
    badge.hidden = !set;
  };
  return { element: made, show };
}

function empty() {
  return Object.fromEntries(NAMES.map((name) => [name, ""]));
}

function field(label, type, name, attributes = {}) {
  const id = `filter-${name}`;
  return el("div", { class: "field" },
    el("label", { for: id, text: label }),
    el("input", { id, type, name, autocomplete: "off", ...attributes }));
}

function sorting() {
  const options = Object.entries(SORTS).map(([value, text]) => el("option", { value, text }));
  return el("div", { class: "field" },
    el("label", { for: "filter-sort", text: "Sort by" }),
    el("select", { id: "filter-sort", name: "sort" }, ...options));
}

function midnight(day, later = 0) {
  const [year, month, date] = day.split("-").map(Number);
  const then = new Date(year, month - 1, date + later);
  return Number.isNaN(then.getTime()) ? "" : then.toISOString();
}
