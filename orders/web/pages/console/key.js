// The key: its access, and what is left of its limits.

import { get, limits, phoneCode, serviceEvents } from "./api.js";
import { bdi, docsLink, el, svg } from "./dom.js";
import { access, count, inSentence, lasting, when } from "./format.js";
import { ring } from "./news.js";
import { describe, failurePanel } from "./notices.js";
import { session } from "./session.js";
import { now } from "./time.js";

const WINDOWS = { minute: "Per minute", day: "Per day" };
const LOW = 0.2;

/** Make the view. */
export function view(root) {
  const loading = new AbortController();
  const bars = el("div", { class: "windows" });
  const about = el("div", {}, session.profile && facts(session.profile));
  root.replaceChildren(
    el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Your key" })),
    el("div", { class: "two" },
      el("section", { class: "panel", "aria-labelledby": "left" }, el("h2", { id: "left", text: "Requests left" }), bars,
        el("p", { class: "hint", text: "Every request made with this key counts, from this page or any other program." })),
      el("div", { class: "stack" }, about, newOrders(), phone(), programs())));
  const show = () => bars.replaceChildren(...Object.keys(WINDOWS).filter((name) => limits[name]).map(bar));
  const timer = setInterval(show, 1000);
  serviceEvents.addEventListener("limits", show);
  show();

  // Every answer updates the limits; this one has the key itself, which may have changed.
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
    serviceEvents.removeEventListener("limits", show);
  }

  return { title: "Your key", update, changed() {}, dispose };
}

function facts({ name, plan, scopes, expires }) {
  const pairs = [["Name", name], ["Plan", plan], ["Access", access(scopes)], expires && ["Expires", when(expires)]].filter(Boolean);
  return el("section", { class: "panel", "aria-labelledby": "what" }, el("h2", { id: "what", text: "Key" }),
    el("dl", { class: "facts" }, ...pairs.map(([term, value]) =>
      el("div", {}, el("dt", { text: term }), el("dd", { text: value })))));
}

function newOrders() {
  const box = (name, text, ask) => {
    const input = el("input", { type: "checkbox", autocomplete: "off" });
    input.checked = Boolean(session.alerts[name]);
    input.addEventListener("change", async () => {
      if (input.checked) input.checked = await ask();
      session.alerts = { ...session.alerts, [name]: input.checked };
    });
    return el("label", { class: "check" }, input, text);
  };
  const mayNotify = async () => (await Notification.requestPermission()) === "granted";
  return el("section", { class: "panel", "aria-labelledby": "alerts" }, el("h2", { id: "alerts", text: "New orders" }),
    box("sound", "Play a sound", () => (ring(), true)),
    // Browsers offer notifications only over a secure connection.
    isSecureContext && "Notification" in globalThis ? box("notification", "Show a notification", mayNotify) : null);
}

const CODE_LASTS_MS = 300_000;

// The code is as good as the key: it is made when somebody asks for it, and shown no longer than it works.
function phone() {
  const shown = el("div", { class: "stack", role: "status" });
  let timer = 0;
  const ask = async () => {
    clearTimeout(timer);
    try {
      shown.replaceChildren(...scanned(await phoneCode()));
      timer = setTimeout(() => shown.replaceChildren(), CODE_LASTS_MS);
    } catch (failure) {
      shown.replaceChildren(el("p", { text: describe(failure) }));
    }
  };
  return el("section", { class: "panel stack", "aria-labelledby": "phone" }, el("h2", { id: "phone", text: "On a phone" }),
    el("p", { text: "Whoever scans the code is signed in on that phone with this key, and can do what it can until it is revoked. " +
      "The code works once, within five minutes." }),
    el("div", { class: "buttons" }, el("button", { class: "button", type: "button", text: "Show the code", on: { click: ask } })), shown);
}

function scanned({ address, path, modules }) {
  if (!address) {
    return [el("p", { text: "Phones can't reach this service yet: it needs an encrypted address (https). Your administrator finds the way in docs/phone.md." })];
  }
  // Four modules around it stay white.
  const box = `-4 -4 ${modules + 8} ${modules + 8}`;
  return [
    svg("svg", { class: "qr", role: "img", "aria-label": "QR code to scan with the phone", viewBox: box },
      svg("rect", { x: -4, y: -4, width: modules + 8, height: modules + 8, fill: "#fff" }), svg("path", { d: path, stroke: "#000" })),
    el("p", { class: "hint" }, "It opens ", bdi(address), "."),
  ];
}

function programs() {
  return el("section", { class: "panel stack", "aria-labelledby": "programs" }, el("h2", { id: "programs", text: "Other programs" }),
    el("p", { text: "A web shop can place and track orders automatically, with a key of its own." }), el("div", { class: "buttons" }, docsLink()));
}

function bar(name) {
  const { limit, resets } = limits[name];
  const seconds = (resets - now()) / 1000;
  // After its end, a window is full again, even before the next answer says so.
  const remaining = seconds > 0 ? limits[name].remaining : limit;
  const part = limit ? remaining / limit : 0;
  const label = `${count(remaining)} of ${count(limit)} requests left`;
  const until = seconds > 0 ? `Resets in ${lasting(seconds)}${seconds < 90 ? "" : `, ${inSentence(resets)}`}` : "All available";
  return el("div", { class: part < LOW ? "window little" : "window" },
    el("h3", { text: WINDOWS[name] }),
    el("p", {}, el("b", { text: count(remaining) }), ` of ${count(limit)} left`),
    svg("svg", { role: "img", "aria-label": `${WINDOWS[name]}: ${label}`, width: "100%", height: 12 },
      svg("rect", { class: "trough", width: "100%", height: 12, rx: 6 }),
      svg("rect", { class: "fill", width: `${100 * part}%`, height: 12, rx: 6 })),
    el("p", { class: "hint", text: until }));
}
