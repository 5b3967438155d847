// What the key may do, and what it has left: both windows as bars.

import { get, happenings, limits } from "./api.js";
import { docsLink, el, svg } from "./dom.js";
import { count, lasting, soon } from "./format.js";
import { failurePanel } from "./notices.js";
import { session } from "./session.js";

const WINDOWS = { minute: "This minute", day: "This day" };
const LITTLE = 0.2;

/** Make the view. */
export function keyView(root) {
  const loading = new AbortController();
  const bars = el("div", { class: "windows" });
  const about = el("div", {}, session.profile && facts(session.profile));
  root.replaceChildren(
    el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Your key" })),
    el("div", { class: "two" },
      el("section", { class: "panel", "aria-labelledby": "left" }, el("h2", { id: "left", text: "What it has left" }), bars,
        el("p", { class: "hint", text: "Each time this page, or anything else with this key, asks the service, it counts one." })),
      el("div", { class: "stack" }, about, programs())));
  const show = () => bars.replaceChildren(...Object.keys(WINDOWS).filter((name) => limits[name]).map(bar));
  const timer = setInterval(show, 1000);
  happenings.addEventListener("limits", show);
  show();

  // Each answer tells of the windows; this one of the key itself, which may have changed.
  async function update() {
    try {
      session.profile = await get("usage", { signal: loading.signal });
      about.replaceChildren(facts(session.profile));
      show();
    } catch (failure) {
      if (failure.name !== "AbortError") about.replaceChildren(failurePanel(failure, update));
    }
  }

  function dispose() {
    loading.abort();
    clearInterval(timer);
    happenings.removeEventListener("limits", show);
  }

  return { title: "Your key", update, changed() {}, dispose };
}

/** Tell what scopes mean. */
export function may(scopes) {
  return scopes.includes("write") ? "may look and change" : "may look only";
}

function facts({ name, plan, scopes }) {
  const pairs = [["Name", name], ["Plan", plan], ["It", may(scopes)]];
  return el("section", { class: "panel", "aria-labelledby": "what" }, el("h2", { id: "what", text: "The key" }),
    el("dl", { class: "facts" }, ...pairs.map(([term, value]) =>
      el("div", {}, el("dt", { text: term }), el("dd", { text: value })))));
}

function programs() {
  return el("section", { class: "panel stack", "aria-labelledby": "programs" }, el("h2", { id: "programs", text: "Other programs" }),
    el("p", { text: "A web shop can place and follow orders by itself, with a key of its own." }), el("div", { class: "buttons" }, docsLink()));
}

function bar(name) {
  const { limit, resets } = limits[name];
  const seconds = (resets - Date.now()) / 1000;
  // A window that is over is whole again, though no answer has told so yet.
  const remaining = seconds > 0 ? limits[name].remaining : limit;
  const part = limit ? remaining / limit : 0;
  const told = `${count(remaining)} of ${count(limit)} requests left`;
  const until = seconds > 0 ? `Whole again in ${lasting(seconds)} (${soon(resets)})` : "Whole";
  return el("div", { class: part < LITTLE ? "window little" : "window" },
    el("h3", { text: WINDOWS[name] }),
    el("p", {}, el("b", { text: count(remaining) }), ` of ${count(limit)} left`),
    svg("svg", { role: "img", "aria-label": `${WINDOWS[name]}: ${told}`, width: "100%", height: 12 },
      svg("rect", { class: "trough", width: "100%", height: 12, rx: 6 }),
      svg("rect", { class: "fill", width: `${100 * part}%`, height: 12, rx: 6 })),
    el("p", { class: "hint", text: until }));
}
