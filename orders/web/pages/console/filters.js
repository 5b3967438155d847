// Which orders are listed: from the place's parameters to the request's, and the form between.

import { el, icon } from "./dom.js";
import { hash } from "./router.js";

const PER_PAGE = 50;
const SORTS = {
  shipDate: "Due first",
  "-shipDate": "Shipping date, latest first",
  "-placedAt": "Newest first",
  placedAt: "Oldest first",
};
const USUAL_SORTS = { pending: "shipDate", shipped: "-shipDate" };
const NAMES = ["reference", "pet", "placedFrom", "placedTo", "shipsFrom", "shipsTo", "sort"];
const MORE = NAMES.slice(1);

/** Give what is asked of the list: a status (or all), the other filters, how it is sorted. */
export function read(params) {
  const status = params.get("status") || "pending";
  const asked = Object.fromEntries(NAMES.map((name) => [name, params.get(name) || ""]));
  // Anything may stand in an address, also the names that every object has.
  const usual = Object.hasOwn(USUAL_SORTS, status) ? USUAL_SORTS[status] : "-placedAt";
  const sort = Object.hasOwn(SORTS, asked.sort) ? asked.sort : usual;
  return { ...asked, status, sort, usual, after: params.get("after") || "" };
}

/** Tell whether anything but the status narrows the list. */
export function isNarrowed(asked) {
  return NAMES.slice(0, -1).some((name) => asked[name]);
}

/** Give the path of the request for a page. */
export function path(asked) {
  const query = new URLSearchParams({ limit: PER_PAGE, sort: asked.sort });
  const add = (name, value) => value && query.set(name, value);
  add("status", asked.status === "all" ? "" : asked.status);
  add("reference", asked.reference);
  add("petId", asked.pet);
  add("placedFrom", midnight(asked.placedFrom));
  add("placedBefore", midnight(asked.placedTo, 1));
  add("shipsFrom", midnight(asked.shipsFrom));
  add("shipsBefore", midnight(asked.shipsTo, 1));
  add("after", asked.after);
  return `store/orders?${query}`;
}

/** Give the place of a list that differs from this one, at its first page. */
export function place(asked, changes) {
  const next = { ...asked, after: "", ...changes };
  const told = Object.fromEntries(NAMES.map((name) => [name, next[name]]));
  if (next.sort === next.usual || changes.status) delete told.sort;
  return hash("orders", { status: next.status, ...told, after: next.after });
}

/** Make the form. `go` is called with the place that it asks for. */
export function form(go) {
  let asked = read(new URLSearchParams());
  const search = field("Reference", "search", "reference", { placeholder: "Your reference", maxlength: 64 });
  const fields = [
    field("Pet number", "text", "pet", { inputmode: "numeric", pattern: "[1-9][0-9]{0,18}" }),
    field("Placed from", "date", "placedFrom"),
    field("Placed until", "date", "placedTo"),
    field("Ships from", "date", "shipsFrom"),
    field("Ships until", "date", "shipsTo"),
    sorting(),
  ];
  const clear = el("button", { class: "button quiet", type: "button", text: "Clear" });
  const more = el("details", { class: "more" },
    el("summary", { class: "button quiet" }, "Filter and sort", el("span", { class: "badge", hidden: true })),
    el("div", { class: "grid" }, ...fields),
    el("div", { class: "buttons" }, clear, el("button", { class: "button main", type: "submit", text: "Show" })));
  const made = el("form", { class: "filters", role: "search", "aria-label": "Orders" },
    el("div", { class: "search" }, search,
      el("button", { class: "button", type: "submit", "aria-label": "Search by reference" }, icon("search"))),
    more);
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = Object.fromEntries(NAMES.map((name) => [name, made.elements[name].value.trim()]));
    // Who looks for a reference looks for it whatever became of the order.
    const found = given.reference && given.reference !== asked.reference;
    go(place(asked, found ? { ...given, status: "all" } : given));
  });
  // The browser tells of a date that is half there, and can point at it only where it is seen.
  made.addEventListener("invalid", () => {
    more.open = true;
  }, true);
  clear.addEventListener("click", () => go(place({ ...asked, ...empty() }, { status: asked.status })));
  const show = (now) => {
    asked = now;
    for (const name of NAMES) made.elements[name].value = asked[name];
    const set = MORE.filter((name) => name !== "sort" && asked[name]).length;
    const badge = more.querySelector(".badge");
    badge.textContent = set ? `${set} on` : "";
    badge.hidden = !set;
  };
  return { element: made, show };
}

function empty() {
  return Object.fromEntries(NAMES.map((name) => [name, ""]));
}

function field(label, type, name, given = {}) {
  const id = `filter-${name}`;
  return el("div", { class: "field" },
    el("label", { for: id, text: label }),
    el("input", { id, type, name, autocomplete: "off", ...given }));
}

function sorting() {
  const options = Object.entries(SORTS).map(([value, text]) => el("option", { value, text }));
  return el("div", { class: "field" },
    el("label", { for: "filter-sort", text: "Sorted" }),
    el("select", { id: "filter-sort", name: "sort" }, ...options));
}

function midnight(day, later = 0) {
  const [year, month, date] = day.split("-").map(Number);
  const then = new Date(year, month - 1, date + later);
  return Number.isNaN(then.getTime()) ? "" : then.toISOString();
}
