// What the page says by itself: a line that goes away, banners that stay, failures in place of a view.

import { mustWait, NoAnswer } from "./api.js";
import { byId, el } from "./dom.js";
import { lasting } from "./format.js";
import { describe } from "./words.js";

const SHOWN_FOR_MS = 8000;
let timer = 0;

/** Show a text for some seconds, and have screen readers say it. */
export function announce(text) {
  const announcement = byId("announcement");
  announcement.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(() => {
    announcement.textContent = "";
  }, SHOWN_FOR_MS);
}

/** Show the banner of this name, or remove it if `text` is empty. */
export function banner(name, text) {
  const id = `banner-${name}`;
  const there = byId(id);
  if (!text) return there?.remove();
  // Screen readers announce changes within an existing element. Nothing is announced twice.
  if (there?.textContent === text) return undefined;
  if (there) there.textContent = text;
  else byId("banners").append(el("p", { id, class: "notice", text }));
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
  panel.append(el("h2", { text: headline(failure) }), el("p", { text: describe(failure) }), button);
  if (failure.status === 429) {
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
