// The filters of the list: from the place to the request, and the form that edits them.

import { el, icon } from "./dom.js";
import { hash } from "./router.js";

const PER_PAGE = 50;
const SORTS = {
  shipDate: "Due soonest first",
  "-shipDate": "Ship date, latest first",
  "-placedAt": "Newest first",
  placedAt: "Oldest first",
};
const USUAL_SORTS = { pending: "shipDate", shipped: "-shipDate" };
const NAMES = ["reference", "pet", "placedFrom", "placedTo", "shipsFrom", "shipsTo", "sort"];
const MORE = NAMES.slice(1);

/** Return the query of a place: a status (or all), other filters, and the sort order. */
export function read(params) {
  const status = params.get("status") || "pending";
  const query = Object.fromEntries(NAMES.map((name) => [name, params.get(name) || ""]));
  // An address may contain anything, including names such as `constructor`.
  const usual = Object.hasOwn(USUAL_SORTS, status) ? USUAL_SORTS[status] : "-placedAt";
  const sort = Object.hasOwn(SORTS, query.sort) ? query.sort : usual;
  return { ...query, status, sort, usual, after: params.get("after") || "" };
}

/** Return whether filters other than the status are set. */
export function isNarrowed(query) {
  return NAMES.slice(0, -1).some((name) => query[name]);
}

/** Return the path of the request for a page. */
export function path(query) {
  const parameters = new URLSearchParams({ limit: PER_PAGE, sort: query.sort });
  const add = (name, value) => value && parameters.set(name, value);
  add("status", query.status === "all" ? "" : query.status);
  add("reference", query.reference);
  add("petId", query.pet);
  add("placedFrom", midnight(query.placedFrom));
  add("placedBefore", midnight(query.placedTo, 1));
  add("shipsFrom", midnight(query.shipsFrom));
  add("shipsBefore", midnight(query.shipsTo, 1));
  add("after", query.after);
  return `store/orders?${parameters}`;
}

/** Return the place of the list with changes, at its first page. */
export function place(query, changes) {
  const next = { ...query, after: "", ...changes };
  const parameters = Object.fromEntries(NAMES.map((name) => [name, next[name]]));
  if (next.sort === next.usual || changes.status) delete parameters.sort;
  return hash("orders", { status: next.status, ...parameters, after: next.after });
}

/** Make the form. `go` is called with the place to go to. */
export function form(go) {
  let query = read(new URLSearchParams());
  const search = field("Reference", "search", "reference", { placeholder: "Your reference", maxlength: 64 });
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
      el("button", { class: "button", type: "submit", "aria-label": "Search by reference" }, icon("search"))),
    more);
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    const values = Object.fromEntries(NAMES.map((name) => [name, made.elements[name].value.trim()]));
    // A new reference is searched for in all statuses.
    const isSearch = values.reference && values.reference !== query.reference;
    go(place(query, isSearch ? { ...values, status: "all" } : values));
  });
  // The browser points at an incomplete date, which must be visible for that.
  made.addEventListener("invalid", () => {
    more.open = true;
  }, true);
  clear.addEventListener("click", () => go(place({ ...query, ...empty() }, { status: query.status })));
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
