// Placing an order. A lost request is sent again with the same Idempotency-Key, so it is placed once.

import { change, mustWait, newName, NoAnswer } from "./api.js";
import { el, refocus, setText } from "./dom.js";
import { ENTERED, entry, isOpen, showFaults } from "./fields.js";
import { count } from "./format.js";
import { announce, countdown, describe, faults } from "./notices.js";
import { go } from "./router.js";
import { session } from "./session.js";

const LOST =
  "The connection was lost, so we can't tell whether the order was placed. Send it again: it won't be placed twice.";
const OF_ANOTHER_KEY =
  "This order may have been placed before you signed in again. Check the newest orders before you place it.";
const OVERTAKEN =
  "Your first attempt did go through, and the order was placed as you first entered it. Check the newest orders before you place this one, too.";

const PLACED = ENTERED.filter((field) => isOpen(field, { status: "pending" }));

/** Make the view. */
export function newView(root, shop) {
  const begun = session.draft.values ?? usual();
  const notice = el("p", { class: "notice bad", role: "alert", hidden: true });
  const submit = el("button", { class: "button main", type: "submit", text: "Place order" });
  const form = el("form", { class: "panel place", novalidate: true },
    notice,
    ...PLACED.map((field) => entry(field, begun[field.name] ?? "")),
    el("div", { class: "buttons" }, el("a", { class: "button", href: "#/orders", text: "Back to orders" }), submit));
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "New order" })), form);
  let stop = null;
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

// Empty fields are left to the service.
function read(form) {
  const [order, wrong] = [{}, {}];
  for (const field of PLACED) {
    const input = form.elements.namedItem(field.name);
    if (field.usual && !input.value.trim()) continue;
    const { value, fault } = field.read(input, field);
    if (fault) wrong[field.name] = fault;
    else if (value !== null) order[field.name] = value;
  }
  return { order, wrong };
}

function usual() {
  return Object.fromEntries(PLACED.map(({ name, usual }) => [name, usual]));
}
