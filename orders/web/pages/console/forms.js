// Shared by the pages that administer the shop: fields, choices, and a secret that is shown once.

import { change, newName, NoAnswer } from "./api.js";
import { bdi, el, refocus, setText } from "./dom.js";
import { announce, describe, faults } from "./notices.js";

/** Make a choice of several options, each a value and a text. */
export function choice(id, options, usual) {
  return el("select", { id, name: id, autocomplete: "off" }, ...options.map(([value, text]) => el("option", { value, text, selected: value === usual })));
}

/** Make a control with its label and, if there is one, a hint. */
export function field(label, input, hint) {
  if (hint) input.setAttribute("aria-describedby", `${input.id}-hint`);
  return el("div", { class: "field" }, el("label", { for: input.id, text: label }), input, hint ? el("p", { id: `${input.id}-hint`, class: "hint", text: hint }) : null);
}

/** Make pairs of a term and what is said of it, a text or an element; others are left out. */
export function pairs(all) {
  return el("dl", { class: "facts" }, ...all.filter(Boolean).map(([term, value]) => el("div", {}, el("dt", { text: term }), el("dd", {}, value))));
}

/** Make the panel that shows the secret of a name, once, with `advice` and a button to copy it. */
export function revealed(name, secret, advice) {
  const shown = el("input", { id: "secret", readonly: true, autocomplete: "off", spellcheck: "false", value: secret, on: { focus: () => shown.select() } });
  const copy = async () => {
    shown.focus();
    try {
      await navigator.clipboard.writeText(secret);
    } catch {
      // Browsers have a clipboard only over a secure connection; this older way works without.
      if (!document.execCommand("copy")) return announce("This browser doesn't let the page copy. Copy it by hand.");
    }
    return announce("Copied.");
  };
  return el("section", { class: "panel stack", "aria-labelledby": "revealed" },
    el("h2", { id: "revealed" }, "The secret of ", bdi(name)),
    el("p", { text: `It is shown only now: copy it${advice}` }),
    el("div", { class: "search" }, field("Secret", shown), el("button", { class: "button main", type: "button", text: "Copy", on: { click: copy } })));
}

/**
 * Have a form send what `read` returns, to add it at a path: once, even if it is sent again after a lost answer.
 * `read` returns what is wanted, or what is wrong: a text, and the control that it is about.
 */
export function adds(form, { path, submit, notice, labels, lost, read, added }) {
  const usual = submit.textContent;
  let once = newName();

  async function send() {
    const { wanted, wrong } = read();
    if (wrong) return fail(...wrong);
    setText(notice, "");
    submit.disabled = true;
    try {
      const { data } = await change("POST", path, wanted, { name: once });
      form.reset();
      once = newName();
      submit.textContent = usual;
      added(data);
    } catch (failure) {
      if (failure.name !== "AbortError") refused(failure);
    }
    submit.disabled = false;
    return undefined;
  }

  function refused(failure) {
    submit.disabled = false;
    if (failure instanceof NoAnswer) {
      submit.textContent = "Send again";
      return fail(lost, submit);
    }
    if (![429, 500, 503].includes(failure.status)) once = newName();
    const [[at, fault] = []] = Object.entries(failure.status === 422 ? faults(failure, labels) : {});
    return fail(at ? `${labels.get(at)} ${fault}.` : describe(failure), form.elements.namedItem(at ?? "") ?? submit);
  }

  function fail(text, at) {
    setText(notice, text);
    for (const each of form.querySelectorAll("input:not([type=checkbox])")) each.setAttribute("aria-invalid", `${each === at}`);
    if (at === submit) refocus(at);
    else at.focus();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!submit.disabled) send();
  });
}
