// News: new orders, which are announced, and how many orders are due.

import { get } from "./api.js";
import { count, counted } from "./format.js";
import { session } from "./session.js";
import { midnight, now } from "./time.js";

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
  const [tone, volume, start] = [audio.createOscillator(), audio.createGain(), audio.currentTime];
  tone.frequency.setValueAtTime(660, start);
  tone.frequency.setValueAtTime(880, start + 0.15);
  volume.gain.setValueAtTime(0.2, start);
  volume.gain.exponentialRampToValueAtTime(0.001, start + 0.6);
  tone.connect(volume).connect(audio.destination);
  tone.start(start);
  tone.stop(start + 0.6);
}

function notify(events) {
  const text = events.length === 1 ? `Order ${events[0].orderId} was placed.` : `${counted(events.length, "order")} were placed.`;
  const made = new Notification("Store Orders", { body: text, tag: "orders" });
  made.addEventListener("click", () => focus());
}

// How many orders to ship are late, and how many due today: read once, then followed by the events.

const MOST = 200;
let known = null;

/** Return whether the counts are known, of this day. */
export function areDuesKnown() {
  return known?.until === midnight(1);
}

/** Forget the counts, which are read again. */
export function forgetDues() {
  known = null;
}

/** Read which orders are due until midnight. */
export async function readDues(signal) {
  const until = midnight(1);
  const { orders, next } = await get(`store/orders?limit=${MOST}&sort=shipDate&status=pending&shipsBefore=${until}`, { signal });
  known = { until, hasMore: Boolean(next), dates: new Map(orders.map(({ id, shipDate }) => [id, Date.parse(shipDate)])) };
}

/** Take in what has become of an order. */
export function followDue({ id, status, shipDate }) {
  if (status === "pending" && shipDate < known?.until) known.dates.set(id, Date.parse(shipDate));
  else known?.dates.delete(id);
}

/** Return how many are `late`, or due `today`, as a text: "200+" where there are more than can be known. */
export function dueCount(due) {
  if (!known || due === "none") return "";
  const [from, to] = due === "late" ? [-Infinity, now()] : [Date.parse(midnight()), Infinity];
  const dates = [...known.dates.values()];
  const number = dates.filter((date) => date >= from && date < to).length;
  // Unknown orders are due later than known ones.
  const isCut = known.hasMore && (due === "today" || number === dates.length);
  return `${count(number)}${isCut ? "+" : ""}`;
}
