// Changing an order in place. If somebody was faster, both versions are shown, and one is chosen.

import { change, newName, NoAnswer } from "./api.js";
import { bdi, el, refocus, setText } from "./dom.js";
import { clean, count, doubt, fromField, instant, isUnfinished, toField, UNFINISHED } from "./format.js";
import { announce, banner, describe, faults } from "./notices.js";
import { session } from "./session.js";

const FIELDS = {
  petId: ["Pet number", { inputmode: "numeric", required: true }],
  quantity: ["Quantity", { inputmode: "numeric", required: true }],
  reference: ["Reference", { maxlength: 64 }],
  shipDate: ["Ship date", { type: "datetime-local" }],
  note: ["Note", { maxlength: 500, rows: 3 }],
};
const LOST = "The connection was lost, so we can't tell whether this was saved. It's safe to save again.";

/**
 * Make a form that changes an order. `read` returns the order and its ETag as they are now; `end` is
 * called when it is over, with the changed order if there is one. What is typed is kept as a draft; `draft` is one.
 */
export function changeForm(order, etag, { read, end, draft }) {
  // Of an order that has shipped or was cancelled, only the note may change.
  let names = order.status === "pending" ? Object.keys(FIELDS) : ["note"];
  const notice = el("div", { class: "notice bad", role: "alert", tabindex: "-1", hidden: true });
  const form = el("form", { class: "panel place", novalidate: true, "aria-label": "Change order" }, notice,
    ...names.map((name) => field(name, text(name, order))),
    el("div", { class: "buttons" },
      el("button", { class: "button", type: "button", text: "Don't change", on: { click: () => finish() } }),
      el("button", { class: "button main", type: "submit", text: "Save" })));
  let base = order;
  let doubted = "";
  // The patch that was sent last, and its name: sent again after a lost answer, it is done once.
  let [sent, sentAs] = [draft?.sent ?? "", draft?.sentAs ?? ""];
  for (const [name, value] of Object.entries(draft?.values ?? {})) if (input(name)) input(name).value = value;
  form.addEventListener("input", keep);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { patch, wrong } = patchOf();
    if (patch.shipDate && !wrong.shipDate && patch.shipDate !== doubted) wrong.shipDate = doubt(doubted = patch.shipDate) || undefined;
    showFaults(wrong);
    setText(notice, "");
    if (Object.values(wrong).some(Boolean)) return form.querySelector("[aria-invalid=true]").focus();
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
      finish(data);
    } catch (failure) {
      if (failure.name === "AbortError") return;
      if (failure.status === 412 || failure.status === 409) await merge();
      else if (failure.status === 422) showFaults(faults(failure));
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
      const both = names.filter((name) => text(name, theirs) !== text(name, base));
      if (theirs.status !== base.status && names.length > 1) return keepNote(theirs, tag);
      for (const name of both) if (input(name).value === text(name, base)) input(name).value = text(name, theirs);
      const conflicts = both.filter((name) => input(name).value !== text(name, theirs));
      const lines = conflicts.map((name) => el("p", {}, `${FIELDS[name][0]} is now `, value(name, theirs), ", ", take(name, theirs)));
      notice.replaceChildren(el("p", { text: "Someone else changed this order meanwhile. Check it, then save again." }), ...lines);
      notice.hidden = false;
      // Not the button: another Enter would overwrite what nobody has read yet.
      notice.focus();
      [base, etag] = [theirs, tag];
      keep();
    } catch (failure) {
      setText(notice, describe(failure));
    }
    return undefined;
  }

  // Of an order that has shipped or was cancelled meanwhile, the note can still be saved. The rest is shown.
  function keepNote(theirs, tag) {
    const rest = names.filter((name) => name !== "note" && input(name).value !== text(name, base));
    const isNoted = clean(input("note").value) !== text("note", base);
    const lost = rest.map((name) => `${FIELDS[name][0]} ${input(name).value || "empty"}`).join(", ");
    const what = `Order ${order.id} was ${theirs.status} by someone else meanwhile.${lost ? ` Not saved: ${lost}.` : ""}`;
    for (const name of names.slice(0, -1)) input(name).closest(".field").remove();
    const isTheirs = text("note", theirs) !== text("note", base);
    [names, base, etag] = [["note"], theirs, tag];
    banner(`change-${order.id}`, what, { canClose: true });
    if (!isNoted) return finish(theirs);
    if (!isTheirs) return send({ note: clean(input("note").value) || null });
    notice.replaceChildren(el("p", {}, "Note is now ", value("note", theirs), ", ", take("note", theirs)));
    notice.hidden = false;
    return keep();
  }

  function keep() {
    const values = Object.fromEntries(names.filter((name) => !isUnfinished(input(name))).map((name) => [name, input(name).value]));
    const isTyped = Object.entries(values).some(([name, value]) => value !== text(name, base));
    session.keepChange(order.id, isTyped ? { values, order: base, etag, sent, sentAs } : null);
  }

  function finish(changed) {
    session.keepChange(order.id, null);
    return end(changed);
  }

  function take(name, theirs) {
    return el("button", { class: "button small", type: "button", text: `Use that`, "aria-label": `Use that ${FIELDS[name][0].toLowerCase()}`, on: { click: ({ target }) => {
      input(name).value = text(name, theirs);
      target.closest("p").remove();
      keep();
      input(name).focus();
    } } });
  }

  function input(name) {
    return form.elements[name];
  }

  function patchOf() {
    const [patch, wrong] = [{}, {}];
    for (const name of names) {
      const value = clean(input(name).value);
      if (isUnfinished(input(name))) wrong[name] = UNFINISHED;
      else if (value === text(name, base)) continue;
      else if (name === "shipDate") patch[name] = value ? fromField(value) : null;
      else if (name === "petId" || name === "quantity") {
        if (/^[1-9]\d{0,15}$/.test(value) && Number.isSafeInteger(Number(value))) patch[name] = Number(value);
        else wrong[name] = name === "petId" ? "Enter the pet's number, such as 7." : `Enter a quantity from 1 to ${count(2147483647)}.`;
      } else patch[name] = value || null;
    }
    return { patch, wrong };
  }

  function showFaults(wrong) {
    for (const name of names) {
      const fault = wrong[name];
      setText(form.querySelector(`#change-${name}-fault`), fault && fault[0].toUpperCase() + fault.slice(1));
      if (fault) input(name).setAttribute("aria-invalid", "true");
      else input(name).removeAttribute("aria-invalid");
    }
  }

  return form;
}

function field(name, value) {
  const [label, attributes] = FIELDS[name];
  const id = `change-${name}`;
  const input = el(name === "note" ? "textarea" : "input", { id, name, autocomplete: "off", "aria-describedby": `${id}-fault`, ...attributes });
  input.value = value;
  return el("div", { class: "field" }, el("label", { for: id, text: label }), input, el("p", { id: `${id}-fault`, class: "fault", hidden: true }));
}

function text(name, order) {
  return name === "shipDate" ? toField(order.shipDate) : `${order[name] ?? ""}`;
}

function value(name, order) {
  if (name === "shipDate" && order.shipDate) return instant(order.shipDate);
  return bdi(text(name, order) || "empty");
}
