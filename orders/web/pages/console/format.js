// Dates in the viewer's time zone, numbers and words for people.

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

/** Format a number with thousands separators. */
export function count(number) {
  return figure.format(number);
}

/** Return `1 order`, `2 orders`. */
export function counted(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** Return an instant as a label: `Today, 14:05`, `21 Nov, 14:05`, `21 Nov 2025, 14:05`. */
export function when(iso) {
  const then = new Date(iso);
  return `${day(then)}, ${time.format(then)}`;
}

/** Return an instant within a sentence: `today at 14:05`, `21 Nov at 14:05`. */
export function inSentence(instant) {
  const then = new Date(instant);
  const name = day(then);
  return `${Object.values(DAYS).includes(name) ? name.toLowerCase() : name} at ${time.format(then)}`;
}

/** Make an element that shows an instant, and the exact time on hover. */
export function instant(iso) {
  return el("time", { datetime: iso, title: `${iso.replace("T", " ").replace("Z", "")} UTC`, text: when(iso) });
}

/** Return the time of day, with seconds. */
export function clock(ms) {
  return seconds.format(ms);
}

/** Format a date of UTC. */
export function utcDay(text) {
  return dayOfUtc.format(new Date(`${text}T00:00:00Z`));
}

/** Format a duration in seconds: `23 s`, `5 min`, `2 h 10 min`. */
export function lasting(total) {
  if (total < 90) return `${Math.ceil(total)} s`;
  const minutes = Math.ceil(total / 60);
  if (minutes < 60) return `${minutes} min`;
  const rest = minutes % 60;
  return `${Math.floor(minutes / 60)} h${rest ? ` ${rest} min` : ""}`;
}

/** Return how late a pending order is, or an empty text. */
export function lateness(order, now = new Date()) {
  if (order.status !== "pending" || !order.shipDate || new Date(order.shipDate) >= now) return "";
  const days = -daysBetween(now, new Date(order.shipDate));
  return days ? `${counted(days, "day")} late` : "late";
}

/** Return the value of a local time field as an instant for the service; null if there is none. */
export function fromField(value) {
  const then = new Date(value);
  return Number.isNaN(then.getTime()) ? null : then.toISOString();
}

/** Shown for an incomplete date: the value of its field is empty. */
export const UNFINISHED = "Complete the date, or clear it.";

/** Return whether a date field was left incomplete. */
export function isUnfinished(field) {
  return field.validity.badInput;
}

/** Make the badge of a status. */
export function chip(status) {
  return el("span", { class: `chip ${status}`, text: STATUSES[status] || status });
}

function day(then, now = new Date()) {
  const format = then.getFullYear() === now.getFullYear() ? date : dateOfYear;
  return DAYS[daysBetween(now, then)] || format.format(then);
}

function daysBetween(from, to) {
  const midnight = (one) => Date.UTC(one.getFullYear(), one.getMonth(), one.getDate());
  return Math.round((midnight(to) - midnight(from)) / 86_400_000);
}
