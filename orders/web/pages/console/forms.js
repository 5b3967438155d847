// What the pages that administer the shop have in common: fields, choices, and a secret that is shown once.

import { bdi, el } from "./dom.js";
import { announce } from "./notices.js";

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
