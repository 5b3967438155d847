// What the page says by itself: a line that goes away, banners that stay, failures in place of a view.

import { mustWait, NoAnswer } from "./api.js";
import { byId, el } from "./dom.js";
import { lasting } from "./format.js";
import { inWords } from "./words.js";

const SAID_FOR_MS = 8000;
let silence = 0;

/** Say something, to eyes and screen readers, for some seconds. */
export function say(text) {
  const said = byId("said");
  said.textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => {
    said.textContent = "";
  }, SAID_FOR_MS);
}

/** Show a banner of this name, or take it away where `text` is empty. */
export function banner(name, text) {
  const id = `banner-${name}`;
  const there = byId(id);
  if (!text) return there?.remove();
  // Screen readers say what changes within an element that was there; nothing is said twice.
  if (there?.textContent === text) return undefined;
  if (there) there.textContent = text;
  else byId("banners").append(el("p", { id, class: "notice", text }));
  return undefined;
}

/** Count down in an element until requests may be sent again; then call `done`. Gives a stop. */
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
 * Make what stands in place of a view that could not be got: why, and a way to try again. A limit
 * is waited for, and then it is tried by itself.
 */
export function failurePanel(failure, again) {
  const button = el("button", { class: "button", type: "button", text: "Try again", on: { click: again } });
  const panel = el("div", { class: "panel blank", role: "alert" });
  panel.append(el("h2", { text: headline(failure) }), el("p", { text: inWords(failure) }), button);
  if (failure.status === 429) {
    const left = el("span", { class: "figure", "aria-hidden": "true" });
    button.replaceWith(el("p", {}, left));
    countdown(left, () => panel.isConnected && again(), (text) => `It goes on by itself in ${text}.`);
  }
  return panel;
}

function headline(failure) {
  if (failure instanceof NoAnswer) return "No connection";
  if (failure.status === 429) return "A short wait";
  if (failure.status === 404) return "There is no such order";
  return "This can't be shown now";
}
