// Dates in the viewer's zone, figures and words for people.

import { el } from "./dom.js";

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const dateOfYear = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const dayOfUtc = new Intl.DateTimeFormat(undefined, {
  weekday: "short",
  day: "numeric",
  month: "short",
  timeZone: "UTC",
});
const figure = new Intl.NumberFormat();
const DAYS = { "-1": "Yesterday", 0: "Today", 1: "Tomorrow" };

export const STATUSES = { pending: "To ship", shipped: "Shipped", cancelled: "Cancelled" };

/** Give a number with its thousands apart. */
export function count(number) {
  return figure.format(number);
}

/** Give `1 order`, `2 orders`. */
export function counted(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** Give an instant in words: `Today, 14:05`, `21 Nov, 14:05`, `21 Nov 2025, 14:05`. */
export function when(iso, now = new Date()) {
  const then = new Date(iso);
  const named = DAYS[daysBetween(now, then)];
  const shown = then.getFullYear() === now.getFullYear() ? date : dateOfYear;
  return `${named || shown.format(then)}, ${time.format(then)}`;
}

/** Make an element of an instant, which tells exactly when on hover. */
export function instant(iso) {
  return el("time", { datetime: iso, title: `${iso.replace("T", " ").replace("Z", "")} UTC`, text: when(iso) });
}

/** Give the time of day, with seconds. */
export function clock(ms) {
  return seconds.format(ms);
}

/** Give the time of day, or the day and the time where it is another day. */
export function soon(ms) {
  const then = new Date(ms);
  return daysBetween(new Date(), then) ? when(then.toISOString()) : time.format(then);
}

/** Give the day of a date that is a day of UTC. */
export function utcDay(text) {
  return dayOfUtc.format(new Date(`${text}T00:00:00Z`));
}

/** Give a length of time: `23 s`, `5 min`, `2 h 10 min`. */
export function lasting(total) {
  if (total < 90) return `${Math.ceil(total)} s`;
  const minutes = Math.ceil(total / 60);
  if (minutes < 60) return `${minutes} min`;
  const rest = minutes % 60;
  return `${Math.floor(minutes / 60)} h${rest ? ` ${rest} min` : ""}`;
}

/** Tell how late a pending order is, or give an empty text. */
export function lateness(order, now = new Date()) {
  if (order.status !== "pending" || !order.shipDate || new Date(order.shipDate) >= now) return "";
  const days = -daysBetween(now, new Date(order.shipDate));
  return days ? `${counted(days, "day")} late` : "late";
}

/** Give the value of a field of local time as an instant for the service; null where it is none. */
export function fromField(value) {
  const then = new Date(value);
  return Number.isNaN(then.getTime()) ? null : then.toISOString();
}

/** What is said of a date that was begun: its field gives no value, as if it were empty. */
export const UNFINISHED = "Finish the date, or clear it.";

/** Tell whether a field of a date has been begun and not finished. */
export function isUnfinished(field) {
  return field.validity.badInput;
}

/** Give how an order is named in a sentence. */
export function named(order) {
  return `order ${order.id}`;
}

/** Make the mark of a status. */
export function chip(status) {
  return el("span", { class: `chip ${status}`, text: STATUSES[status] || status });
}

function daysBetween(from, to) {
  const midnight = (day) => Date.UTC(day.getFullYear(), day.getMonth(), day.getDate());
  return Math.round((midnight(to) - midnight(from)) / 86_400_000);
}
