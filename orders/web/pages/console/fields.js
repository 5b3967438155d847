// The fields of an order. FIELDS says once what each is called, how it is entered and how it is shown: the forms and
// what a conflict merges, the list, the facts of an order, the packing list, CSV and messages about faults follow.

import { bdi, el, setText } from "./dom.js";
import { count, dated, doubt, fromField, instant, lateTag, toField } from "./format.js";

const MOST_PETS = 9223372036854775807n;
const MOST_AT_ONCE = 2147483647n;

// Kinds: how an entry is made, read (as a value or a fault) and written, and how a value is shown.
const INSTANT = { isTime: true, show: instant, onPaper: dated };
const TEXT = { make: (attributes) => el("input", attributes), read: ({ value }) => ({ value: clean(value) || null }), write: (text) => text, show: bdi };
const LINES = { ...TEXT, make: (attributes) => el("textarea", { rows: 3, ...attributes }), write: (text) => text.replace(/\r\n?/g, "\n"), show: (text) => el("bdi", { class: "lines", text }), needsNoLabel: true };
const NUMBER = { ...TEXT, make: (attributes) => el("input", { inputmode: "numeric", ...attributes }), read: readNumber, write: String, show: count };
const TIME = { ...TEXT, ...INSTANT, make: (attributes) => el("input", { type: "datetime-local", ...attributes }), read: readTime, write: toField };

/**
 * The fields of an order. Those with `enter`, the attributes of their control, can be entered; `usual` is what a new
 * order begins with, and `open` are the states in which it may change, where not while pending. Those with a `column`
 * have one in the list and on paper; what else was entered stands `beside` another's value there, or below, in the list
 * as `brief` has it. `empty` is said of an order without a value.
 */
export const FIELDS = [
  { name: "id", label: "Order", column: "order", show: String },
  { ...TEXT, name: "reference", label: "Reference", column: "reference", enter: { maxlength: 64 }, empty: "none", hint: "Your own text, such as a name or number. Optional." },
  { ...TEXT, name: "item", label: "Item", beside: "petId", enter: { maxlength: 200 }, needsNoLabel: true, hint: "What it is, in words. Optional." },
  { ...NUMBER, name: "petId", label: "Pet number", title: "Pet", column: "pet", enter: { required: true }, most: MOST_PETS, fault: "Enter the pet's number, such as 7.", hint: "The number in your catalogue.", show: (id) => `No.\u00a0${id}` },
  { ...NUMBER, name: "quantity", label: "Quantity", column: "quantity", enter: { required: true }, usual: "1", most: MOST_AT_ONCE, fault: `Enter a quantity from 1 to ${count(MOST_AT_ONCE)}.` },
  { ...LINES, name: "shipTo", label: "Ship to", enter: { maxlength: 500, rows: 4 }, brief: (text) => text.split(/[\r\n\u2028\u2029]/, 1)[0], hint: "Name and address for the parcel: up to 8 lines. Optional." },
  { ...LINES, name: "note", label: "Note", enter: { maxlength: 500 }, open: ["pending", "shipped", "cancelled"], hint: "For the person who packs. Optional." },
  { name: "status" },
  { ...INSTANT, name: "placedAt", label: "Placed", column: "placed" },
  { ...TIME, name: "shipDate", label: "Ship date", titleOnceShipped: "Shipped", titleOnPaper: "Due", column: "ships", enter: {}, empty: "not set", hint: "Optional.", show: (date, order) => el("span", {}, instant(date), " ", lateTag(order)) },
  { ...TEXT, name: "tracking", label: "Tracking", enter: { maxlength: 100, spellcheck: "false" }, open: ["shipped"], hint: "The parcel's number at its carrier. Optional." },
  { ...INSTANT, name: "updatedAt", label: "Last changed" },
];

// In the order of forms: goods and address first; the catalogue's number and other fields last.
const FORM = ["item", "quantity", "shipTo", "reference", "note", "shipDate", "tracking"];

/** The fields that can be entered, as forms have them. */
export const ENTERED = FIELDS.filter(({ enter }) => enter).sort((a, b) => place(a) - place(b));

function place({ name }) {
  return FORM.includes(name) ? FORM.indexOf(name) : FORM.length;
}

/** Return whether a field can be entered in an order of this status. */
export function isOpen({ open = ["pending"] }, { status }) {
  return open.includes(status);
}

/** Return whether an order has a value of a field. */
export function isSet({ name }, order) {
  return order[name] !== null && order[name] !== undefined;
}

/** Return what a field is called where orders are shown. */
export function title({ label, title = label, titleOnceShipped = title }, { isShipped = false } = {}) {
  return isShipped ? titleOnceShipped : title;
}

/** Return the value that an order has of a field, as it is shown. */
export function shown(field, order) {
  return field.show(order[field.name], order);
}

/** List what an order has, and, unless it `isBrief`, what it lacks. */
export function facts(order, { isBrief = false } = {}) {
  const all = FIELDS.filter((field) => field.label && field.name !== "id" && (isSet(field, order) || (field.empty && !isBrief)));
  return el("dl", { class: "facts" }, ...all.map((field) => el("div", {},
    el("dt", { text: title(field, { isShipped: order.status === "shipped" }) }),
    el("dd", {}, isSet(field, order) ? shown(field, order) : field.empty))));
}

/** Show what was entered in an order and has no column, in a `tag` each; of some, if it `isBrief`, only the beginning. */
export function asides(order, tag, attributes, { isBrief = false } = {}) {
  return FIELDS.filter((field) => field.enter && !field.column && !field.beside && isSet(field, order)).map((field) =>
    el(tag, attributes, el("span", { class: field.needsNoLabel && "unseen", text: `${field.label}: ` }),
      isBrief && field.brief ? bdi(field.brief(order[field.name])) : shown(field, order)));
}

/** Show an order's value in a cell, below the text that stands beside it, if the order has that. */
export function celled(field, order) {
  const above = FIELDS.find((each) => each.beside === field.name && isSet(each, order));
  return above ? [el("strong", {}, shown(above, order)), el("span", {}, shown(field, order))] : [shown(field, order)];
}

/** Make the part of a form in which a field is entered. */
export function entry({ name, label, make, enter, hint }, value) {
  const id = `enter-${name}`;
  const input = make({ id, name, autocomplete: "off", "aria-describedby": `${hint ? `${id}-hint ` : ""}${id}-fault`, ...enter });
  input.value = value;
  return el("div", { class: "field" },
    el("label", { for: id, text: label }), input,
    hint ? el("p", { id: `${id}-hint`, class: "hint", text: hint }) : null,
    el("p", { id: `${id}-fault`, class: "fault", hidden: true }));
}

/** Return the text of an order's value in a form. */
export function text(field, order) {
  return isSet(field, order) ? field.write(order[field.name]) : "";
}

/** Show in a form what is wrong with each field, by name. */
export function showFaults(form, wrong) {
  for (const input of form.querySelectorAll("[name]")) {
    const fault = wrong[input.name];
    setText(form.querySelector(`#${input.id}-fault`), fault && fault[0].toUpperCase() + fault.slice(1));
    if (fault) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
}

/** Return whether a date was begun and is not complete: its input has no value. */
export function isUnfinished(input) {
  return input.validity.badInput;
}

/** Read a date. One years away is a fault at first, and a value if it is entered again. */
export function readTime(input) {
  if (isUnfinished(input)) return { fault: "Complete the date, or clear it." };
  const value = fromField(input.value);
  const question = value && input.dataset.doubted !== input.value ? doubt(value) : "";
  input.dataset.doubted = input.value;
  return question ? { fault: question } : { value };
}

function readNumber({ value }, { most, fault }) {
  const digits = clean(value);
  if (!/^\d{1,19}$/.test(digits) || BigInt(digits) < 1n || BigInt(digits) > most) return { fault };
  const number = Number(digits);
  return Number.isSafeInteger(number) ? { value: number } : { fault: "This number is too long for this page." };
}

/** Return a typed or pasted text as the service takes it: only line breaks, and no other control characters. */
export function clean(typed) {
  return typed.replace(/\r\n?/g, "\n").replace(/[^\P{Cc}\n]/gu, " ").trim();
}
