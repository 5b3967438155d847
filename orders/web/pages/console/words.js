// What went wrong, in words for the person behind the counter. No code, no field's name.

import { NoAnswer, Refusal } from "./api.js";
import { lasting } from "./format.js";

const FIELDS = {
  petId: "Pet number",
  quantity: "Quantity",
  reference: "Reference",
  shipDate: "Date of shipping",
};

const STATUSES = {
  400: "This can't be read by the shop's service. Check what you wrote, then try again.",
  401: "This key opens nothing here. It was mistyped, has expired or was taken back. Ask for a new one.",
  403: "Your key may look at orders, but not change them. Sign in with one that may.",
  404: "There is no such order. It may be a mistyped number.",
  413: "That is too much text. Make it shorter, then try again.",
  503: "The shop's store can't be reached at the moment. Try again in a few seconds.",
};

/** Tell a failure in a sentence or two. */
export function inWords(failure) {
  if (failure instanceof NoAnswer) {
    return "There is no connection to the shop's service. Check the network, then try again.";
  }
  if (!(failure instanceof Refusal)) return "Something went wrong on this page. Load it again.";
  if (failure.status === 409) return inWordsOfConflict(failure);
  if (failure.status === 422) return inWordsOfFaults(failure);
  if (failure.status === 429) return inWordsOfLimit(failure);
  return STATUSES[failure.status] || internal(failure);
}

/** Give the faults that a refusal names, by the fields of an order. */
export function faults(failure) {
  const found = {};
  for (const part of (failure.message || "").replace(/\.$/, "").split("; ")) {
    const [, name, fault] = part.match(/^(\w+): (.*)$/s) || [];
    if (Object.hasOwn(FIELDS, name)) found[name] = fault;
  }
  return found;
}

function inWordsOfConflict({ code }) {
  const what = code === "order_already_cancelled" ? "cancelled" : "shipped";
  return `Somebody was faster: this order has been ${what} already. Nothing was changed by you.`;
}

function inWordsOfFaults(failure) {
  const told = Object.entries(faults(failure)).map(([name, fault]) => `${FIELDS[name]} ${fault}.`);
  return told.join(" ") || "The service can't make sense of this. Check what you entered.";
}

function inWordsOfLimit({ code, wait }) {
  const why = code === "api_key_banned"
    ? "Your key is shut out for a while, because it asked on and on."
    : "Your key has asked as often as it may for now.";
  return `${why} Try again in ${lasting(wait)}.`;
}

function internal({ message }) {
  const id = message.match(/\b[0-9a-f]{16}\b/)?.[0];
  const quote = id ? ` and tell them this number: ${id}` : "";
  return `Something went wrong in the service. Ask whoever looks after it${quote}.`;
}
