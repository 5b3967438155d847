// What the page says by itself: a line that goes away, banners that stay, failures in place of a view.

import { mustWait, NoAnswer } from "./api.js";
import { byId, el } from "./dom.js";
import { lasting } from "./format.js";
import { describe } from "./words.js";

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

/** Show the banner of this name, or remove it if `text` is empty. */
export function banner(name, text, { isBad = false, canClose = false, where = "banners" } = {}) {
  const id = `banner-${name}`;
  const there = byId(id);
  if (!text) return there?.remove();
  // Screen readers announce changes within an existing element. Nothing is announced twice.
  if (there?.firstChild.textContent === text) return undefined;
  if (there) {
    there.firstChild.textContent = text;
    return undefined;
  }
  const made = el("div", { id, class: isBad ? "notice bad" : "notice" }, el("p", { text }));
  if (canClose) made.append(el("button", { class: "button small", type: "button", text: "Close", on: { click: () => made.remove() } }));
  byId(where).append(made);
  return undefined;
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
  panel.append(el("h2", { text: headline(failure) }), el("p", { text: isLimit ? "This appears by itself." : describe(failure) }), button);
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
