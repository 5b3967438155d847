// New orders: counted in the tab's title until somebody touches the page, marked in the list, and
// told by a sound or a notification where that was asked for.

import { counted } from "./format.js";
import { session } from "./session.js";

const SEEN_MS = 4000;
const unseen = new Set();
const marked = new Set();
let audio = null;

/** Take note of the events of new orders. */
export function arrive(events) {
  for (const { orderId } of events) {
    unseen.add(orderId);
    marked.add(orderId);
  }
  if (!events.length) return;
  askForAttention();
  const { sound, notification } = session.alerts;
  if (sound && !isSilenced()) ring();
  if (notification && document.hidden) notify(events);
}

/** Return whether an order is new, and was not seen yet. */
export function isNew({ id }) {
  return marked.has(id);
}

/** Show the number of new orders in the title. */
export function askForAttention() {
  const title = document.title.replace(/^\(\d+\) /, "");
  document.title = unseen.size ? `(${unseen.size}) ${title}` : title;
}

/** Note that somebody touched the page: what it shows is seen, and soon not marked any more. */
export function seen() {
  if (unseen.size) {
    unseen.clear();
    askForAttention();
  }
  if (!marked.size) return;
  for (const row of document.querySelectorAll("tr.new:not(.seen)")) {
    const { top, bottom } = row.getBoundingClientRect();
    if (bottom < 0 || top > innerHeight) continue;
    row.classList.add("seen");
    marked.delete(Number(row.dataset.id));
    setTimeout(() => row.classList.remove("new"), SEEN_MS);
  }
}

/** Return whether the browser keeps the page silent until somebody clicks or types, as after a reload. */
export function isSilenced() {
  if (!session.alerts.sound || navigator.getAutoplayPolicy?.("audiocontext") === "allowed") return false;
  return navigator.userActivation?.hasBeenActive === false;
}

/** Play the sound of a new order. */
export function ring() {
  audio ??= new AudioContext();
  const [tone, volume, now] = [audio.createOscillator(), audio.createGain(), audio.currentTime];
  tone.frequency.setValueAtTime(660, now);
  tone.frequency.setValueAtTime(880, now + 0.15);
  volume.gain.setValueAtTime(0.2, now);
  volume.gain.exponentialRampToValueAtTime(0.001, now + 0.6);
  tone.connect(volume).connect(audio.destination);
  tone.start(now);
  tone.stop(now + 0.6);
}

function notify(events) {
  const text = events.length === 1 ? `Order ${events[0].orderId} was placed.` : `${counted(events.length, "order")} were placed.`;
  const made = new Notification("Store Orders", { body: text, tag: "orders" });
  made.addEventListener("click", () => focus());
}
