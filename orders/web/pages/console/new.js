// Placing an order. A try that got lost is never placed twice: it goes again under the same name.

import { change, mustWait, NoAnswer } from "./api.js";
import { el, tell } from "./dom.js";
import { counted, fromField, isUnfinished, UNFINISHED } from "./format.js";
import { countdown, say } from "./notices.js";
import { go } from "./router.js";
import { session } from "./session.js";
import { faults, inWords } from "./words.js";

const MOST_PETS = 9223372036854775807n;
const MOST_AT_ONCE = 2147483647n;
const LOST =
  "The connection broke, so it isn't certain whether the order arrived. Send it again: it is never placed twice.";
const OVERTAKEN =
  "Your first try did arrive, and the order was placed as you first wrote it. Look at the newest orders before you place this one, too.";

/** Make the view. */
export function newView(root) {
  const notice = el("p", { class: "notice bad", role: "alert", hidden: true });
  const submit = el("button", { class: "button main", type: "submit", text: "Place the order" });
  const form = el("form", { class: "panel place", novalidate: true },
    notice,
    field("petId", "Pet number", { inputmode: "numeric", required: true }, "As it is in your catalogue."),
    field("quantity", "Quantity", { inputmode: "numeric" }),
    field("reference", "Reference", { maxlength: 64 }, "Your own text, such as a name or a number. May be left empty."),
    field("shipDate", "Ships on", { type: "datetime-local" }, "May be left empty."),
    el("div", { class: "buttons" }, el("a", { class: "button", href: "#/orders", text: "Back to the orders" }), submit));
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "New order" })), form);
  let stop = null;
  recall(form);
  form.addEventListener("input", () => remember({ name: session.draft.name }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!submit.disabled) send();
  });

  async function send() {
    const { order, wrong } = read(form);
    showFaults(form, wrong);
    tell(notice, "");
    if (Object.keys(wrong).length) return form.querySelector("[aria-invalid=true]").focus();
    remember({ name: session.draft.name || randomName() });
    submit.disabled = true;
    try {
      const { data, headers } = await change("POST", "store/orders", order, { "Idempotency-Key": session.draft.name });
      succeed(data, headers.get("Idempotent-Replayed") === "true");
    } catch (failure) {
      fail(failure);
    }
    return undefined;
  }

  function succeed(order, wasPlaced) {
    session.draft = null;
    say(wasPlaced
      ? `Your first try had arrived: order ${order.id} was placed once.`
      : `Order ${order.id} is placed: ${counted(order.quantity, "piece")} of pet ${order.petId}.`);
    go(`#/orders/${order.id}`, { replace: true });
  }

  function fail(failure) {
    submit.disabled = false;
    const named = failure.status === 422 ? faults(failure) : {};
    showFaults(form, named);
    // What was refused for good is another order next time; what got lost stays the same one.
    if (![429, 500, 503, undefined].includes(failure.status)) remember({ name: "" });
    if (failure.code === "idempotency_key_reused") return tell(notice, OVERTAKEN);
    if (failure instanceof NoAnswer) submit.textContent = "Send it again";
    tell(notice, failure instanceof NoAnswer ? LOST : inWords(failure));
    if (mustWait()) hold();
    return undefined;
  }

  function hold() {
    submit.disabled = true;
    const again = () => {
      submit.disabled = false;
      submit.textContent = "Place the order";
      tell(notice, "");
    };
    stop = countdown(submit, again, (left) => `In ${left}`);
  }

  function remember({ name }) {
    session.draft = { name, values: Object.fromEntries(new FormData(form)) };
  }

  return { title: "New order", update() {}, changed() {}, dispose: () => stop?.() };
}

function field(name, label, given, hint) {
  const id = `new-${name}`;
  return el("div", { class: "field" },
    el("label", { for: id, text: label }),
    el("input", { id, name, type: "text", autocomplete: "off", "aria-describedby": `${id}-hint ${id}-fault`, ...given }),
    hint ? el("p", { id: `${id}-hint`, class: "hint", text: hint }) : null,
    el("p", { id: `${id}-fault`, class: "fault", hidden: true }));
}

function read(form) {
  const values = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
  const wrong = {};
  const order = {};
  const whole = (name, most, words) => {
    if (/^\d{1,19}$/.test(values[name]) && BigInt(values[name]) >= 1n && BigInt(values[name]) <= most) {
      order[name] = Number(values[name]);
    } else wrong[name] = words;
  };
  whole("petId", MOST_PETS, "Write the pet's number, such as 7.");
  if (values.petId && !Number.isSafeInteger(order.petId) && !wrong.petId) {
    wrong.petId = "This number is too long for this page.";
  }
  if (values.quantity) whole("quantity", MOST_AT_ONCE, "Write how many: 1 or more.");
  if (values.reference) order.reference = values.reference;
  if (isUnfinished(form.elements.shipDate)) wrong.shipDate = UNFINISHED;
  if (values.shipDate) order.shipDate = fromField(values.shipDate);
  return { order, wrong };
}

function showFaults(form, wrong) {
  for (const input of form.querySelectorAll("input")) {
    const fault = wrong[input.name];
    tell(form.querySelector(`#new-${input.name}-fault`), fault && fault[0].toUpperCase() + fault.slice(1));
    if (fault) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
}

function recall(form) {
  const values = session.draft.values || { quantity: "1" };
  for (const [name, value] of Object.entries(values)) form.elements[name].value = value;
}

// Not randomUUID, which is only there where the connection is secure.
function randomName() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
