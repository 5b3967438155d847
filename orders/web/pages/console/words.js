// Error messages for the person at the counter, without codes and field names.

import { NoAnswer, Refusal } from "./api.js";
import { lasting } from "./format.js";

const FIELDS = {
  petId: "Pet number",
  quantity: "Quantity",
  reference: "Reference",
  shipDate: "Ship date",
  note: "Note",
};

const STATUSES = {
  400: "The service couldn't read this. Check what you entered, then try again.",
  401: "This key isn't valid. It may be mistyped, or has expired or been revoked. Check it, or ask for a new one.",
  403: "Your key can view orders, but not edit them. Sign in with a key that can.",
  404: "There is no order with this number. It may be mistyped.",
  413: "That's too much text. Shorten it, then try again.",
  503: "The service can't reach its database at the moment. Try again in a few seconds.",
};

/** Why a key that worked here does so no more. */
export const NO_LONGER_VALID = "This key is no longer valid: it has expired or has been revoked. Ask for a new one.";

/** Describe a failure in a sentence or two. */
export function describe(failure) {
  if (failure instanceof NoAnswer) {
    return "Can't connect to the service. Check your network connection, then try again.";
  }
  if (!(failure instanceof Refusal)) return "Something went wrong on this page. Reload it.";
  if (failure.status === 409) return describeConflict(failure);
  if (failure.status === 422) return describeFaults(failure);
  if (failure.status === 429) return describeLimit(failure);
  return STATUSES[failure.status] || internal(failure);
}

/** Describe why one of several orders did not ship. */
export function describeResult({ status, code }) {
  return describe(new Refusal(status, code, "", 0));
}

/** Return the faults that an error message names, by field of the order. */
export function faults(failure) {
  const result = {};
  for (const part of (failure.message || "").replace(/\.$/, "").split("; ")) {
    const [, name, fault] = part.match(/^(\w+): (.*)$/s) || [];
    if (Object.hasOwn(FIELDS, name)) result[name] = fault;
  }
  return result;
}

function describeConflict({ code }) {
  const status = code === "order_already_cancelled" ? "cancelled" : "shipped";
  return `Someone else was faster: this order has already been ${status}. You changed nothing.`;
}

function describeFaults(failure) {
  const sentences = Object.entries(faults(failure)).map(([name, fault]) => `${FIELDS[name]} ${fault}.`);
  return sentences.join(" ") || "Something you entered isn't valid. Check it, then try again.";
}

function describeLimit({ code, wait }) {
  const why = code === "api_key_banned"
    ? "Your key is blocked after too many requests."
    : "You've reached this key's request limit.";
  return `${why} Try again in ${lasting(wait)}.`;
}

function internal({ message }) {
  const id = message.match(/\b[0-9a-f]{16}\b/)?.[0];
  const quote = id ? ` and quote this number: ${id}` : "";
  return `Something went wrong in the service. Contact your administrator${quote}.`;
}
