// One order: its details, actions and history.

import { cancel, reopen, shippedAlready } from "./actions.js";
import { etagOf, get, Refusal } from "./api.js";
import { changeForm } from "./change.js";
import { el, icon } from "./dom.js";
import { facts } from "./fields.js";
import { chip, instant } from "./format.js";
import { announce, banner, describe, failurePanel } from "./notices.js";
import { printSlips } from "./packing.js";
import { go } from "./router.js";
import { session } from "./session.js";
import { canUndo, isShipping, progress, shipSoon, takeBack } from "./shipping.js";

const FORGOTTEN = "order.forgotten";
const CHANGES = {
  "order.placed": "Placed",
  "order.changed": "Changed",
  "order.shipped": "Shipped",
  "order.cancelled": "Cancelled",
  "order.reopened": "Reopened",
  "order.imported": "Imported from a file",
  [FORGOTTEN]: "Personal data deleted: reference, note, address and tracking",
};
const CHANGE = { pending: "Change", shipped: "Change note or tracking", cancelled: "Change note" };
const ID = /^[1-9]\d{0,15}$/;

/** Make the view. */
export function orderView(root, shop) {
  const loading = new AbortController();
  let id = "";
  let events = [];
  // The names of the keys that caused them.
  const actors = new Map(session.profile && [[`key:${session.profile.id}`, session.profile.name]]);
  let form = null;

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
      if (!form) resumeChange();
      if (!form) show();
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
      for (const { actor, name } of page.actors) actors.set(actor, name);
    }
    return whole;
  }

  function show() {
    const { order } = events.at(-1);
    const focused = document.activeElement;
    const hadFocus = root.contains(document.activeElement) && document.activeElement.tagName === "BUTTON";
    root.replaceChildren(
      back(),
      el("div", { class: "head" },
        el("h1", { tabindex: "-1" }, `Order ${order.id}`, " ",
          isShipping(order) ? el("span", { class: "chip pending", text: progress(order) }) : chip(order.status)),
        form ? null : el("div", { class: "buttons" }, paper(order), ...(session.mayWrite ? actions(order) : []))),
      el("div", { class: "two" }, form ?? about(order), timeline()));
    if (form?.contains(focused)) focused.focus();
    else if (hadFocus) root.querySelector("h1").focus();
    if (history.state?.foundAt) root.querySelector(".ship")?.focus();
  }

  // The texts typed before a reload, or before the order was left.
  function resumeChange() {
    const draft = session.mayWrite && session.changes[id];
    if (!draft) return;
    form = changeForm(draft.order, draft.etag, { read, end: ended, draft });
    banner(`change-${id}`, "");
    show();
  }

  async function read() {
    const path = `store/orders/${id}`;
    const order = await get(path, { signal: loading.signal });
    return [order, etagOf(path)];
  }

  async function edit() {
    try {
      const [order, etag] = await read();
      form = changeForm(order, etag, { read, end: ended });
      show();
      form.querySelector("input, textarea").focus();
    } catch (failure) {
      if (failure.name !== "AbortError") announce(describe(failure));
    }
  }

  async function ended(order) {
    form = null;
    if (order) await load();
    else show();
    root.querySelector("h1").focus();
  }

  function actions(order) {
    const editing = el("button", { class: "button", type: "button", text: CHANGE[order.status], on: { click: edit } });
    if (isShipping(order) && !canUndo(order)) return [editing];
    const button = (text, kind, work) => {
      const act = async () => {
        const isChanged = await work(order);
        if (isChanged) await shop.changedHere();
        // The button may have been replaced while the dialog was open.
        if (isChanged || !root.contains(document.activeElement)) root.querySelector("h1").focus();
      };
      return el("button", { class: `button ${kind}`, type: "button", text, on: { click: act } });
    };
    if (order.status !== "pending") return [editing, button("Reopen order", "", reopen)];
    if (isShipping(order)) {
      return [el("button", { class: "button", type: "button", text: "Undo", on: { click: () => takeBack(order) } })];
    }
    const shipNow = el("button", { class: "button main ship", type: "button", text: "Ship order", on: { click: () => shipped(order) } });
    return [editing, button("Cancel order", "", cancel), button("Already shipped", "", shippedAlready), shipNow];
  }

  function paper(order) {
    return el("button", { class: "button quiet", type: "button", on: { click: () => printSlips([order]) } }, icon("print"), "Slip or label");
  }

  function shipped(order) {
    shipSoon(order);
    searchAgain();
  }

  // Whoever scanned an order is about to scan the next, in place of this one.
  function searchAgain() {
    const { foundAt } = history.state ?? {};
    if (!foundAt) return;
    go(foundAt);
    const search = document.querySelector("[type=search]");
    search.focus();
    search.select();
  }

  function timeline() {
    const steps = events.map((event) => el("li", { class: event.order.status },
      el("b", { text: CHANGES[event.type] || "Changed" }), instant(event.at), el("span", { class: "soft", text: who(event, actors) })));
    return el("section", { class: "panel", "aria-labelledby": "history" },
      el("h2", { id: "history", text: "History" }), el("ol", { class: "timeline" }, ...steps));
  }

  function changed(news) {
    const shown = new Set(events.map((event) => event.id));
    const fresh = news.filter((event) => `${event.orderId}` === id && !shown.has(event.id));
    if (!fresh.length || !events.length) return news.length && events.length ? undefined : load();
    if (fresh.some(({ type }) => type === FORGOTTEN)) return forgotten();
    if (fresh.some(({ actor }) => actor.startsWith("key:") && !actors.has(actor))) return load();
    events = [...events, ...fresh];
    return show();
  }

  // Its earlier events have lost their texts, too.
  function forgotten() {
    session.keepChange(id, null);
    form = null;
    return load();
  }

  function shipping({ order, isShipped, isUnknown }) {
    if (`${order.id}` !== id || !events.length) return;
    if (isShipped || isUnknown) load();
    else show();
  }

  function dispose() {
    loading.abort();
    if (form && session.changes[id]) banner(`change-${id}`, `Your change of order ${id} is not saved. Open the order to continue.`, { canClose: true });
  }

  return { title: "Order", update, changed, shipping, dispose };
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
  return el("section", { class: "panel", "aria-labelledby": "about" }, el("h2", { id: "about", text: "Details" }), facts(order));
}

function who({ actor, requestId }, actors) {
  if (requestId && session.own.has(requestId)) return "by you, on this page";
  if (actor === `key:${session.profile?.id}`) return `with your key, ${session.profile.name}`;
  if (actor === "cli") return "from the command line";
  if (actor === "service") return "by the service, as its settings say";
  return actors.has(actor) ? `with the key “${actors.get(actor)}”` : `with another key (${actor.replace("key:", "no. ")})`;
}
