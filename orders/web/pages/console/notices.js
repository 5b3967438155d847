// The page's messages: a line that goes away, banners that stay, failures in place of a view, in plain words.

import { mustWait, NoAnswer, Refusal } from "./api.js";
import { byId, el } from "./dom.js";
import { ENTERED } from "./fields.js";
import { lasting } from "./format.js";

const SHOWN_FOR_MS = 8000;
let timer = 0;

/** Show a text for some seconds, unless the page shows it anyway, and have screen readers say it. */
export function announce(text, { isShown = false } = {}) {
  const announcement = byId("announcement");
  announcement.classList.toggle("unseen", isShown);
  announcement.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(() => {
    announcement.textContent = "";
  }, SHOWN_FOR_MS);
}

/**
 * Show the banner of this name: a text, or several as a list. Remove it if there is none. `closed` is called when
 * somebody closes it; `link` is where it leads on, an address and its text.
 */
export function banner(name, said, { isBad = false, canClose = false, where = "banners", closed, link } = {}) {
  const id = `banner-${name}`;
  const there = byId(id);
  const texts = [said].flat().filter(Boolean);
  if (!texts.length) return there?.remove();
  if (there) return showTexts(there.firstChild, texts);
  const made = el("div", { id, class: isBad ? "notice bad" : "notice" }, el(Array.isArray(said) ? "ul" : "div"));
  showTexts(made.firstChild, texts);
  const close = () => {
    made.remove();
    closed?.();
  };
  if (link) made.append(el("a", { class: "button small", href: link[0], text: link[1] }));
  if (canClose) made.append(el("button", { class: "button small", type: "button", text: "Close", on: { click: close } }));
  byId(where).append(made);
  return undefined;
}

// Screen readers announce what is added to an existing element. What is there already stays: nothing is announced twice.
function showTexts(element, texts) {
  for (const each of [...element.children]) if (!texts.includes(each.textContent)) each.remove();
  const shown = new Set([...element.children].map((each) => each.textContent));
  for (const text of texts) if (!shown.has(text)) element.append(el(element.matches("ul") ? "li" : "p", { text }));
}

/** Count down in an element until requests may be sent, then call `done`; return a function that stops. */
export function countdown(element, done, words = (left) => left) {
  const show = () => {
    const left = mustWait();
    element.textContent = left ? words(lasting(left)) : "";
    if (left) return;
    clearInterval(timer);
    done();
  };
  const timer = setInterval(show, 500);
  show();
  return () => clearInterval(timer);
}

/**
 * Make the panel shown instead of a view that failed to load: the reason, and a way to retry. After
 * a request limit, it retries by itself.
 */
export function failurePanel(failure, again) {
  const button = el("button", { class: "button", type: "button", text: "Try again", on: { click: again } });
  const panel = el("div", { class: "panel blank", role: "alert" });
  const isLimit = failure.status === 429;
  panel.append(el("h2", { text: headline(failure) }), el("p", { text: isLimit ? "This page will continue automatically." : describe(failure) }), button);
  if (isLimit) {
    // How long it takes is said above the view.
    const left = el("span", { class: "figure", "aria-hidden": "true" });
    button.replaceWith(el("p", {}, left));
    countdown(left, () => panel.isConnected && again(), (text) => `Retrying in ${text}.`);
  }
  return panel;
}

function headline(failure) {
  if (failure instanceof NoAnswer) return "No connection";
  if (failure.status === 429) return "Too many requests";
  if (failure.status === 404) return "Order not found";
  return "This can't be shown right now";
}

// Error messages for the person at the counter, without codes and field names.

const LABELS = new Map(ENTERED.map(({ name, label }) => [name, label]));

const STATUSES = {
  400: "The service couldn't read this. Check what you entered, then try again.",
  401: "This key isn't valid. It may be mistyped, or has expired or been revoked. Check it, or ask for a new one.",
  403: "Your key can view orders, but not edit them. Sign in with a key that can.",
  404: "There is no order with this number. It may be mistyped.",
  413: "That's too much text. Shorten it, then try again.",
  503: "The service can't reach its database at the moment. Try again in a few seconds.",
};

const CONFLICTS = {
  last_admin_key: "This is the last key that can manage the shop. Issue another one that can, then try again.",
  rotation_in_grace: "The previous secret still works, and may be in use. Try again when it doesn't.",
  key_is_over: "This key has been revoked or has expired. Issue a new one.",
  too_many_webhooks: "There are as many webhooks as there may be. Remove one first.",
  backups_off: "This service makes no backups.",
  key_not_banned: "This key is no longer blocked.",
};

const THINGS = { key_not_found: "key", webhook_not_found: "webhook", event_not_found: "event" };

/** Why a key that worked here does so no more. */
export const NO_LONGER_VALID = "This key is no longer valid: it has expired or has been revoked. Ask for a new one.";

/** Describe a failure in a sentence or two. */
export function describe(failure) {
  if (failure instanceof NoAnswer) {
    return "Can't connect to the service. Check your network connection, then try again.";
  }
  if (!(failure instanceof Refusal)) return "Something went wrong on this page. Reload it.";
  if (failure.status === 409) return describeConflict(failure);
  if (failure.status === 422) return describeFaults(failure);
  if (failure.status === 429) return describeLimit(failure);
  if (failure.code === "backup_not_found") return "This backup has been removed, as there are later ones. Refresh the list.";
  if (THINGS[failure.code]) return `There is no such ${THINGS[failure.code]} any more.`;
  return STATUSES[failure.status] || internal(failure);
}

/** Return the faults that an error message names, by field: the order's, or others. */
export function faults(failure, labels = LABELS) {
  const result = {};
  for (const part of (failure.message || "").replace(/\.$/, "").split("; ")) {
    const [, name, fault] = part.match(/^(\w+): (.*)$/s) || [];
    if (labels.has(name)) result[name] = fault;
  }
  return result;
}

function describeConflict({ code }) {
  if (CONFLICTS[code]) return CONFLICTS[code];
  const status = code === "order_already_cancelled" ? "cancelled" : "shipped";
  return `Someone else was faster: this order has already been ${status}. You changed nothing.`;
}

function describeFaults(failure) {
  const { labels = LABELS } = failure;
  const sentences = Object.entries(faults(failure, labels)).map(([name, fault]) => `${labels.get(name)} ${fault}.`);
  return sentences.join(" ") || "Something you entered isn't valid. Check it, then try again.";
}

function describeLimit({ code, wait }) {
  const why = code === "api_key_banned"
    ? "Your key is blocked after too many requests."
    : "You've reached this key's request limit.";
  return `${why} Try again in ${lasting(wait)}.`;
}

function internal({ message }) {
  const id = message.match(/\b[0-9a-f]{16}\b/)?.[0];
  const quote = id ? ` and quote this number: ${id}` : "";
  return `Something went wrong in the service. Contact your administrator${quote}.`;
}
