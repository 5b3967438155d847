// Changing an order in place. If somebody was faster, both versions are shown, and one is chosen.

import { change, newName, NoAnswer } from "./api.js";
import { el, refocus, setText } from "./dom.js";
import { clean, ENTERED, entry, isOpen, isSet, isUnfinished, showFaults, shown, text } from "./fields.js";
import { announce, banner, describe, faults } from "./notices.js";
import { session } from "./session.js";

const LOST = "The connection was lost, so we can't tell whether this was saved. It's safe to save again.";

/**
 * Make a form that changes an order. `read` returns the order and its ETag as they are now; `end` is
 * called when it is over, with the changed order if there is one. What is typed is kept as a draft; `draft` is one.
 */
export function changeForm(order, etag, { read, end, draft }) {
  let fields = ENTERED.filter((field) => isOpen(field, order));
  const notice = el("div", { class: "notice bad", role: "alert", tabindex: "-1", hidden: true });
  const form = el("form", { class: "panel place", novalidate: true, "aria-label": "Change order" }, notice,
    ...fields.map((field) => entry(field, draft?.values[field.name] ?? text(field, order))),
    el("div", { class: "buttons" },
      el("button", { class: "button", type: "button", text: "Don't change", on: { click: () => finish() } }),
      el("button", { class: "button main", type: "submit", text: "Save" })));
  let base = order;
  // The message about an order that somebody else has closed meanwhile.
  let story = "";
  // The patch that was sent last, and its name: sent again after a lost answer, it is done once.
  let [sent, sentAs] = [draft?.sent ?? "", draft?.sentAs ?? ""];
  form.addEventListener("input", keep);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { patch, wrong } = patchOf();
    showFaults(form, wrong);
    setText(notice, "");
    if (Object.keys(wrong).length) return form.querySelector("[aria-invalid=true]").focus();
    if (!Object.keys(patch).length) return finish();
    return send(patch);
  });

  async function send(patch) {
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    const wanted = JSON.stringify([patch, etag]);
    if (wanted !== sent) [sent, sentAs] = [wanted, newName()];
    keep();
    try {
      const { data } = await change("PATCH", `store/orders/${order.id}`, patch, { name: sentAs, etag });
      announce(`Order ${order.id} changed.`);
      if (story) tell(`${story} Saved: ${labels(fields.filter(({ name }) => name in patch))}.`);
      finish(data);
    } catch (failure) {
      if (failure.name === "AbortError") return;
      if (failure.status === 412 || failure.status === 409) await merge();
      else if (failure.status === 422) showFaults(form, faults(failure));
      else setText(notice, failure instanceof NoAnswer ? LOST : describe(failure));
    } finally {
      button.disabled = false;
      refocus(form.querySelector("[aria-invalid=true]") ?? button);
    }
  }

  // Somebody else changed the order meanwhile. What was entered stays; what they wrote is shown.
  async function merge() {
    try {
      const [theirs, tag] = await read();
      const isClosed = theirs.status !== base.status && fields.some((field) => !isOpen(field, theirs));
      if (isClosed) close(theirs);
      const both = fields.filter((field) => text(field, theirs) !== text(field, base));
      for (const field of both) if (!isTyped(field)) input(field).value = text(field, theirs);
      const conflicts = both.filter((field) => input(field).value !== text(field, theirs));
      [base, etag] = [theirs, tag];
      const { patch } = patchOf();
      if (isClosed && !Object.keys(patch).length) return finish(theirs);
      if (isClosed && !conflicts.length) return send(patch);
      ask(conflicts);
    } catch (failure) {
      setText(notice, describe(failure));
    }
    return undefined;
  }

  // If an order has another status by now, fields that stay open can be saved. The others are named.
  function close(theirs) {
    const closed = fields.filter((field) => !isOpen(field, theirs));
    const lost = closed.filter(isTyped).map((field) => `${field.label} ${input(field).value || "empty"}`).join(", ");
    story = `Order ${order.id} was ${theirs.status === "pending" ? "reopened" : theirs.status} by someone else meanwhile.${lost ? ` Not saved: ${lost}.` : ""}`;
    tell(story);
    for (const field of closed) input(field).closest(".field").remove();
    fields = fields.filter((field) => isOpen(field, theirs));
  }

  function ask(conflicts) {
    const lines = conflicts.map((field) => el("p", {}, `${field.label} is now `, isSet(field, base) ? shown(field, base) : "empty", ", ", take(field, base)));
    notice.replaceChildren(el("p", { text: "Someone else changed this order meanwhile. Check it, then save again." }), ...lines);
    notice.hidden = false;
    // Not the button: another Enter would overwrite values that nobody has read yet.
    notice.focus();
    keep();
  }

  function tell(what) {
    banner(`change-${order.id}`, what, { canClose: true });
  }

  function keep() {
    const complete = fields.filter((field) => !isUnfinished(input(field)));
    const values = Object.fromEntries(complete.map((field) => [field.name, input(field).value]));
    session.keepChange(order.id, complete.some(isTyped) ? { values, order: base, etag, sent, sentAs } : null);
  }

  function finish(changed) {
    session.keepChange(order.id, null);
    return end(changed);
  }

  function take(field, theirs) {
    return el("button", { class: "button small", type: "button", text: "Use that", "aria-label": `Use that ${field.label.toLowerCase()}`, on: { click: ({ target }) => {
      input(field).value = text(field, theirs);
      target.closest("p").remove();
      keep();
      input(field).focus();
    } } });
  }

  function input({ name }) {
    return form.elements.namedItem(name);
  }

  function isTyped(field) {
    return input(field).value !== text(field, base);
  }

  function patchOf() {
    const [patch, wrong] = [{}, {}];
    for (const field of fields) {
      if (!isUnfinished(input(field)) && clean(input(field).value) === text(field, base)) continue;
      const { value, fault } = field.read(input(field), field);
      if (fault) wrong[field.name] = fault;
      else patch[field.name] = value;
    }
    return { patch, wrong };
  }

  return form;
}

function labels(fields) {
  return fields.map(({ label }) => label).join(", ");
}
