// Dates in the viewer's time zone, numbers and words for people.

import { el, setText } from "./dom.js";
import { now } from "./time.js";

// The words are English, and dates and numbers among them are written as in one kind of English.
const english = navigator.languages?.find((each) => each.startsWith("en")) ?? "en-GB";
const format = (options) => new Intl.DateTimeFormat(english, options);
const time = format({ hour: "numeric", minute: "2-digit" });
const seconds = format({ hour: "numeric", minute: "2-digit", second: "2-digit" });
const date = format({ day: "numeric", month: "short" });
const dateOfYear = format({ dateStyle: "medium" });
const dayOfUtc = format({ weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });
const figure = new Intl.NumberFormat(english);
const YEAR_MS = 366 * 86_400_000;
const MONTH_MS = 31 * 86_400_000;
const DAYS = { "-1": "Yesterday", 0: "Today", 1: "Tomorrow" };

/** The viewer's time zone. */
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
// The years whose times spreadsheets know, and whose zones have whole minutes.
const [FIRST_YEAR, LAST_YEAR] = [1975, 9998];
const CHANGE_MS = 3 * 3_600_000;

/** The names of statuses. */
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

/** Return an instant as what stays true on paper: `21 Nov, 14:05`. */
export function dated(instant) {
  const then = new Date(instant);
  return `${dateOf(then)}, ${time.format(then)}`;
}

/** Return an instant within a sentence: `today at 14:05`, `21 Nov at 14:05`. */
export function inSentence(instant) {
  const then = new Date(instant);
  const name = day(then);
  return `${Object.values(DAYS).includes(name) ? name.toLowerCase() : name} at ${time.format(then)}`;
}

/** Make an element that shows an instant, and the exact time on hover. */
export function instant(iso) {
  return el("time", { datetime: iso, title: `${iso.replace("T", " ").replace("Z", "")} UTC`, "data-when": true, text: when(iso) });
}

/** Make the mark of a pending order whose ship date has passed; it appears when the date passes. */
export function lateTag({ status, shipDate }) {
  if (status !== "pending" || !shipDate) return null;
  const tag = el("strong", { class: "tag", "data-due": shipDate });
  setText(tag, lateness(shipDate));
  return tag;
}

let today = new Date(now()).toDateString();

/** Update all that depends on the time of day. */
export function keepTrue() {
  const day = new Date(now()).toDateString();
  const isNewDay = day !== today;
  today = day;
  if (isNewDay) for (const each of document.querySelectorAll("time[data-when]")) each.textContent = when(each.dateTime);
  for (const each of document.querySelectorAll("[data-due]")) {
    const text = lateness(each.dataset.due);
    if (text !== each.textContent) setText(each, text);
  }
}

/** Ask about a ship date years away or long ago; an empty text for others. */
export function doubt(iso) {
  const ahead = new Date(iso) - now();
  if (ahead > YEAR_MS) return `${dateOfYear.format(new Date(iso))} is more than a year away. Correct it, or press again if you mean it.`;
  if (ahead < -MONTH_MS) return `${dateOfYear.format(new Date(iso))} is long past. Correct it, or press again if you mean it.`;
  return "";
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
  if (minutes >= 2880) return counted(Math.round(minutes / 1440), "day");
  const rest = minutes % 60;
  return `${Math.floor(minutes / 60)} h${rest ? ` ${rest} min` : ""}`;
}

function lateness(shipDate) {
  if (new Date(shipDate) >= now()) return "";
  const days = -daysBetween(new Date(now()), new Date(shipDate));
  return days ? `${counted(days, "day")} late` : "late";
}

/** Return the value of a local time field as an instant for the service; null if there is none. */
export function fromField(value) {
  const then = new Date(value);
  return Number.isNaN(then.getTime()) ? null : then.toISOString();
}

/** Return an instant as the value of a local time field, to the minute. */
export function toField(iso) {
  if (!iso) return "";
  const then = new Date(iso);
  return new Date(then - then.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/**
 * Return an instant as a local time that spreadsheets know, to the second. Near a change of clocks, when a time may come
 * twice, and in years that are none of theirs, it stays as it is.
 */
export function localTime(iso) {
  const then = new Date(iso);
  const offset = then.getTimezoneOffset();
  const isPlain = then.getFullYear() >= FIRST_YEAR && then.getFullYear() <= LAST_YEAR
    && [-CHANGE_MS, CHANGE_MS].every((some) => new Date(then.getTime() + some).getTimezoneOffset() === offset);
  return isPlain ? new Date(then - offset * 60_000).toISOString().slice(0, 19).replace("T", " ") : iso;
}

/** Describe the access that scopes grant. */
export function access(scopes) {
  if (scopes.includes("admin")) return "administrator";
  if (!scopes.includes("read")) return "manages webhooks";
  return scopes.includes("write") ? "can view and edit" : "can only view";
}

/** Make the badge of a status. */
export function chip(status) {
  return el("span", { class: `chip ${status}`, text: STATUSES[status] || status });
}

function day(then) {
  return DAYS[daysBetween(new Date(now()), then)] || dateOf(then);
}

function dateOf(then) {
  return (then.getFullYear() === new Date(now()).getFullYear() ? date : dateOfYear).format(then);
}

function daysBetween(from, to) {
  const midnight = (one) => Date.UTC(one.getFullYear(), one.getMonth(), one.getDate());
  return Math.round((midnight(to) - midnight(from)) / 86_400_000);
}
