// One order: its details, actions and history.

import { cancel, ship } from "./actions.js";
import { get, Refusal } from "./api.js";
import { el, icon } from "./dom.js";
import { chip, count, instant, lateness } from "./format.js";
import { failurePanel } from "./notices.js";
import { session } from "./session.js";

const CHANGES = {
  "order.placed": "Placed",
  "order.shipped": "Shipped",
  "order.cancelled": "Cancelled",
  "order.imported": "Imported from a file",
};
const ID = /^[1-9]\d{0,15}$/;

/** Make the view. */
export function orderView(root, shop) {
  const loading = new AbortController();
  let id = "";
  let events = [];

  async function update(place) {
    id = place.id;
    await load();
  }

  // The history has everything: its last event has the current order.
  async function load() {
    try {
      // In a URL, `..` would lead to another operation.
      if (!ID.test(id)) throw new Refusal(404, "order_not_found", "");
      events = await wholeHistory();
      show();
    } catch (failure) {
      if (failure.name === "AbortError") return;
      root.replaceChildren(back(), el("h1", { tabindex: "-1", text: `Order ${id}` }), failurePanel(failure, load));
    }
  }

  async function wholeHistory() {
    const whole = [];
    for (let page = { next: 0, more: true }; page.more;) {
      page = await get(`store/orders/${id}/events?after=${page.next}`, { signal: loading.signal });
      whole.push(...page.events);
    }
    return whole;
  }

  function show() {
    const { order } = events.at(-1);
    const hadFocus = root.contains(document.activeElement) && document.activeElement.tagName === "BUTTON";
    root.replaceChildren(
      back(),
      el("div", { class: "head" },
        el("h1", { tabindex: "-1" }, `Order ${order.id}`, " ", chip(order.status)),
        session.mayWrite && order.status === "pending" ? actions(order) : null),
      el("div", { class: "two" }, about(order), history()));
    if (hadFocus) root.querySelector("h1").focus();
  }

  function actions(order) {
    const button = (text, kind, work) => {
      const act = async () => {
        const isChanged = await work(order);
        if (isChanged) await shop.changedHere();
        // The button may have been replaced while the dialog was open.
        if (isChanged || !root.contains(document.activeElement)) root.querySelector("h1").focus();
      };
      return el("button", { class: `button ${kind}`, type: "button", text, on: { click: act } });
    };
    return el("div", { class: "buttons" }, button("Cancel order", "", cancel), button("Ship order", "main", ship));
  }

  function history() {
    const steps = events.map((event) => el("li", { class: event.order.status },
      el("b", { text: CHANGES[event.type] || "Changed" }), instant(event.at), el("span", { class: "soft", text: who(event) })));
    return el("section", { class: "panel", "aria-labelledby": "history" },
      el("h2", { id: "history", text: "History" }), el("ol", { class: "timeline" }, ...steps));
  }

  function changed(news) {
    const shown = new Set(events.map((event) => event.id));
    const fresh = news.filter((event) => `${event.orderId}` === id && !shown.has(event.id));
    if (!fresh.length || !events.length) return news.length && events.length ? undefined : load();
    events = [...events, ...fresh];
    return show();
  }

  return { title: "Order", update, changed, dispose: () => loading.abort() };
}

function back() {
  return el("a", { class: "button quiet back", href: "#/orders", on: { click: goBack } }, icon("back"), "Orders");
}

// Go back to the list as it was, if that is the previous place.
function goBack(event) {
  if (!history.state?.fromList) return;
  event.preventDefault();
  history.back();
}

function about(order) {
  const late = lateness(order);
  const pairs = [
    ["Reference", order.reference || "none"],
    ["Pet", `No. ${order.petId}`],
    ["Quantity", count(order.quantity)],
    ["Placed", instant(order.placedAt)],
    [order.status === "shipped" ? "Shipped" : "Ship date", shipDate(order, late)],
    ["Last changed", instant(order.updatedAt)],
  ];
  return el("section", { class: "panel", "aria-labelledby": "about" },
    el("h2", { id: "about", text: "Details" }),
    el("dl", { class: "facts" }, ...pairs.map(([name, value]) =>
      el("div", {}, el("dt", { text: name }), el("dd", {}, value)))));
}

function shipDate(order, late) {
  if (!order.shipDate) return "not set";
  return el("span", {}, instant(order.shipDate), late ? " " : "", late ? el("strong", { class: "tag", text: late }) : "");
}

function who({ actor, requestId }) {
  if (requestId && session.own.has(requestId)) return "by you, on this page";
  if (actor === "cli") return "from the command line";
  return `with key ${actor.replace("key:", "no. ")}`;
}
