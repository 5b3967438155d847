// What a list without orders says, and what to do then.

import { docsLink, el } from "./dom.js";
import * as filters from "./filters.js";
import { session } from "./session.js";

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
    ? `No order has this number, or a reference like “${query.search}”.`
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
