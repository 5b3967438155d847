// Placing an order. A lost request is sent again with the same Idempotency-Key, so it is placed once.

import { change, mustWait, newName, NoAnswer } from "./api.js";
import { el, refocus, setText } from "./dom.js";
import { clean, count, doubt, fromField, isUnfinished, UNFINISHED } from "./format.js";
import { announce, countdown, describe, faults } from "./notices.js";
import { go } from "./router.js";
import { session } from "./session.js";

const MOST_PETS = 9223372036854775807n;
const MOST_AT_ONCE = 2147483647n;
const LOST =
  "The connection was lost, so we can't tell whether the order was placed. Send it again: it won't be placed twice.";
const OF_ANOTHER_KEY =
  "This order may have been placed before you signed in again. Check the newest orders before you place it.";
const OVERTAKEN =
  "Your first attempt did go through, and the order was placed as you first entered it. Check the newest orders before you place this one, too.";

/** Make the view. */
export function newView(root, shop) {
  const notice = el("p", { class: "notice bad", role: "alert", hidden: true });
  const submit = el("button", { class: "button main", type: "submit", text: "Place order" });
  const form = el("form", { class: "panel place", novalidate: true },
    notice,
    field("petId", "Pet number", { inputmode: "numeric", required: true }, "The number in your catalogue."),
    field("quantity", "Quantity", { inputmode: "numeric" }),
    field("reference", "Reference", { maxlength: 64 }, "Your own text, such as a name or number. Optional."),
    field("note", "Note", { multiline: true, rows: 3, maxlength: 500 }, "For the person who packs. Optional."),
    field("shipDate", "Ship date", { type: "datetime-local" }, "Optional."),
    el("div", { class: "buttons" }, el("a", { class: "button", href: "#/orders", text: "Back to orders" }), submit));
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "New order" })), form);
  let stop = null;
  let doubted = "";
  restoreDraft(form);
  // Under another key the same order would be placed once more.
  if (session.draft.name && session.draft.by !== session.profile?.id) {
    setText(notice, OF_ANOTHER_KEY);
    saveDraft({ name: "" });
  }
  form.addEventListener("input", () => saveDraft({ name: session.draft.name }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!submit.disabled) send();
  });

  async function send() {
    const { order, wrong } = read(form);
    setText(notice, "");
    const question = !wrong.shipDate && order.shipDate !== doubted && order.shipDate ? doubt(order.shipDate) : "";
    doubted = order.shipDate;
    if (question) Object.assign(wrong, { shipDate: question });
    showFaults(form, wrong);
    if (Object.keys(wrong).length) return form.querySelector("[aria-invalid=true]").focus();
    saveDraft({ name: session.draft.name || newName() });
    submit.disabled = true;
    try {
      const { data, isReplayed } = await change("POST", "store/orders", order, { name: session.draft.name });
      succeed(data, isReplayed);
    } catch (failure) {
      fail(failure);
    }
    return undefined;
  }

  function succeed(order, wasPlaced) {
    session.draft = null;
    if (!wasPlaced) shop.count("pending", false);
    announce(wasPlaced
      ? `Your first attempt had gone through: order ${order.id} was placed once.`
      : `Order ${order.id} placed: ${count(order.quantity)} × pet no. ${order.petId}.`);
    go(`#/orders/${order.id}`, { replace: true });
  }

  function fail(failure) {
    submit.disabled = false;
    const named = failure.status === 422 ? faults(failure) : {};
    showFaults(form, named);
    // After a definite refusal, the next attempt is a new order; a lost one remains the same.
    if (![429, 500, 503, undefined].includes(failure.status)) saveDraft({ name: "" });
    if (failure.code === "idempotency_key_reused") return setText(notice, OVERTAKEN);
    if (failure instanceof NoAnswer) submit.textContent = "Send again";
    setText(notice, failure instanceof NoAnswer ? LOST : describe(failure));
    if (mustWait()) waitForLimit();
    refocus(form.querySelector("[aria-invalid=true]") ?? submit);
    return undefined;
  }

  function waitForLimit() {
    submit.disabled = true;
    const again = () => {
      submit.disabled = false;
      submit.textContent = "Place order";
      setText(notice, "");
    };
    stop = countdown(submit, again, (left) => `Wait ${left}`);
  }

  function saveDraft({ name }) {
    session.draft = { name, by: session.profile?.id, values: Object.fromEntries(new FormData(form)) };
  }

  return { title: "New order", update() {}, changed() {}, dispose: () => stop?.() };
}

function field(name, label, { multiline, ...attributes }, hint) {
  const id = `new-${name}`;
  return el("div", { class: "field" },
    el("label", { for: id, text: label }),
    el(multiline ? "textarea" : "input", { id, name, type: multiline ? null : "text", autocomplete: "off", "aria-describedby": `${id}-hint ${id}-fault`, ...attributes }),
    hint ? el("p", { id: `${id}-hint`, class: "hint", text: hint }) : null,
    el("p", { id: `${id}-fault`, class: "fault", hidden: true }));
}

function read(form) {
  const values = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, clean(value)]));
  const wrong = {};
  const order = {};
  const wholeNumber = (name, most, fault) => {
    if (/^\d{1,19}$/.test(values[name]) && BigInt(values[name]) >= 1n && BigInt(values[name]) <= most) {
      order[name] = Number(values[name]);
    } else wrong[name] = fault;
  };
  wholeNumber("petId", MOST_PETS, "Enter the pet's number, such as 7.");
  if (values.petId && !Number.isSafeInteger(order.petId) && !wrong.petId) {
    wrong.petId = "This number is too long for this page.";
  }
  if (values.quantity) wholeNumber("quantity", MOST_AT_ONCE, `Enter a quantity from 1 to ${count(MOST_AT_ONCE)}.`);
  if (values.reference) order.reference = values.reference;
  if (values.note) order.note = values.note;
  if (isUnfinished(form.elements.shipDate)) wrong.shipDate = UNFINISHED;
  if (values.shipDate) order.shipDate = fromField(values.shipDate);
  return { order, wrong };
}

function showFaults(form, wrong) {
  for (const input of form.querySelectorAll("input, textarea")) {
    const fault = wrong[input.name];
    setText(form.querySelector(`#new-${input.name}-fault`), fault && fault[0].toUpperCase() + fault.slice(1));
    if (fault) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
}

function restoreDraft(form) {
  const values = session.draft.values || { quantity: "1" };
  for (const [name, value] of Object.entries(values)) form.elements[name].value = value;
}
