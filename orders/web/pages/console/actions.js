// Actions after a question: shipping with a date of the past, cancelling and reopening. One dialog
// serves all, also the question what to print.

import { change, mustWait, newName, NoAnswer } from "./api.js";
import { bdi, byId, el, refocus, setText } from "./dom.js";
import { clean, facts, isUnfinished, readTime } from "./fields.js";
import { fromField } from "./format.js";
import { announce, banner, countdown, describe } from "./notices.js";
import { now } from "./time.js";

const LEFT = "left";
const SHIPPED_HINT = "Leave empty to use the current time.";
const EXPECTED_HINT = "This is still to come, so nothing ships now: the order is expected to ship then.";
const UNCERTAIN =
  "The connection was lost, so we can't tell whether this was done. It's safe to try again.";

/**
 * Ship an order that has left the shop already; a time to come is the date when it is expected to. Resolves to whether
 * the order may have changed.
 */
export function shippedAlready(order) {
  const time = el("input", { id: "ship-at", name: "at", type: "datetime-local", "aria-describedby": "ship-at-hint" });
  const hint = el("p", { id: "ship-at-hint", class: "hint", role: "status", text: SHIPPED_HINT });
  const at = el("div", { class: "field" }, el("label", { for: "ship-at", text: "Shipped at" }), time, hint);
  const parcel = el("input", { id: "ship-tracking", name: "tracking", maxlength: 100, autocomplete: "off", spellcheck: "false" });
  const tracking = el("div", { class: "field" }, el("label", { for: "ship-tracking", text: "Tracking" }), parcel);
  const isToCome = () => Date.parse(time.value) > now();
  // The button does what it says, also if the time passes meanwhile.
  let isExpected = false;
  const show = () => {
    isExpected = isToCome();
    byId("confirm-yes").textContent = isExpected ? "Set the ship date" : "It has shipped";
    hint.textContent = isExpected ? EXPECTED_HINT : SHIPPED_HINT;
    tracking.hidden = isExpected;
  };
  time.addEventListener("input", show);
  return confirm({
    title: `Order ${order.id} already shipped: when?`,
    body: [facts(order, { isBrief: true }), at, tracking],
    yes: "It has shipped",
    no: "Not yet",
    success: () => (isExpected ? `Order ${order.id} has another ship date.` : `Order ${order.id} shipped.`),
    date: time,
    // An incomplete date must not mean now.
    check: () => {
      const { fault = "" } = readTime(time);
      time.setAttribute("aria-invalid", `${Boolean(fault)}`);
      if (fault) time.focus();
      return fault;
    },
    dropped: `The question about order ${order.id} was closed before you answered it, and its date was discarded. Open the order to enter it again.`,
    work: (name) => {
      const shipDate = fromField(time.value);
      if (isExpected) return change("PATCH", `store/orders/${order.id}`, { shipDate }, { name });
      // Unknown values are left out.
      const shipment = { shipDate: shipDate || undefined, tracking: clean(parcel.value) || undefined };
      return change("POST", `store/orders/${order.id}/ship`, shipment, { name });
    },
  });
}

/** Cancel an order after a confirmation. Resolves to whether the order may have changed. */
export function cancel(order) {
  return confirm({
    title: `Cancel order ${order.id}?`,
    body: [facts(order, { isBrief: true })],
    yes: "Cancel the order",
    no: "Keep it",
    danger: true,
    success: `Order ${order.id} cancelled.`,
    work: (name) => change("DELETE", `store/orders/${order.id}`, undefined, { name }),
  });
}

/** Make a shipped or cancelled order pending again after a confirmation. Resolves to whether the order may have changed. */
export function reopen(order) {
  const { id, status } = order;
  const lost = status === "shipped" ? " Its tracking is removed, and the ship date is again the expected one, if there was one." : "";
  return confirm({
    title: `Reopen order ${id}?`,
    body: [facts(order, { isBrief: true }), el("p", { text: `It will be pending again, as if it had not been ${status}.${lost}` })],
    yes: "Reopen the order",
    no: `Leave it ${status}`,
    success: `Order ${id} reopened: it is pending again.`,
    work: (name) => change("POST", `store/orders/${id}/reopen`, undefined, { name }),
  });
}

/** Ask whether to sign out though something is not done. Resolves to whether to. */
export function leaveUndone(what) {
  return confirm({
    title: "Sign out?",
    body: [el("p", { text: what }), el("p", { text: "Signing out discards this." })],
    yes: "Sign out anyway",
    no: "Stay",
    danger: true,
  });
}

/** Ask whether to sign in with the key of a link in the place of the one in use. Resolves to whether to. */
export function switchKey(used, brought) {
  return confirm({
    title: `Sign in as ${brought}?`,
    body: [el("p", {}, "You're signed in here as “", bdi(used), "”. The link that was opened has the key “", bdi(brought), "”.")],
    yes: `Sign in as ${brought}`,
    no: `Stay ${used}`,
    work: async () => {},
  });
}

/** Ask whether to stay signed in on a device that was handed a key. Resolves to whether to. */
export function staySignedIn(name) {
  return confirm({
    title: "Stay signed in here?",
    body: [
      el("p", {}, "You're signed in with the key “", bdi(name), "”. To stay signed in, this device keeps the key until you sign out: not on one that others use."),
      el("p", { class: "hint", text: "Otherwise this tab forgets the key after 12 hours without use, and you'll need it to sign in again." }),
    ],
    yes: "Stay signed in",
    no: "Only in this tab",
    work: async () => {},
  });
}

/** Close a question as the page goes on to something else. A date in it is not dropped without a word. */
export function closeQuestion() {
  byId("confirm").close(LEFT);
}

/** Ask a question; do the `work` if it is accepted, unless `check` returns a fault. Resolves to whether it was done. */
export function confirm({ title, body, yes, no, danger, success, date, check = () => "", dropped, work = async () => {} }) {
  const dialog = byId("confirm");
  const [form, accept, refuse, notice] = [
    dialog.firstElementChild, byId("confirm-yes"), byId("confirm-no"), byId("confirm-notice"),
  ];
  byId("confirm-title").textContent = title;
  byId("confirm-body").replaceChildren(...body);
  setText(notice, "");
  accept.textContent = yes;
  refuse.textContent = no;
  accept.className = danger ? "button bad" : "button main";
  accept.hidden = false;
  accept.disabled = false;
  dialog.returnValue = "";
  dialog.showModal();
  refuse.focus();
  // Tried again after a lost answer, it is done once.
  const name = newName();
  return new Promise((resolve) => {
    const state = { changed: false, isOver: false, stop: null, working: null };
    const submit = (event) => {
      event.preventDefault();
      if (accept.disabled) return;
      const fault = check();
      setText(notice, fault);
      if (!fault) state.working = attempt();
    };
    const attempt = async () => {
      accept.disabled = true;
      dialog.setAttribute("aria-busy", "true");
      try {
        await work(name);
        succeed();
      } catch (failure) {
        explain(failure);
      } finally {
        if (!state.isOver) dialog.removeAttribute("aria-busy");
      }
    };
    const succeed = () => {
      state.changed = true;
      if (success) announce(typeof success === "function" ? success() : success);
      if (!state.isOver) dialog.close();
    };
    const explain = (failure) => {
      if (failure.name === "AbortError") return undefined;
      const text = failure instanceof NoAnswer ? UNCERTAIN : describe(failure);
      if (state.isOver) return announce(`${title} ${text}`);
      accept.disabled = false;
      // It may have been done with what was entered.
      if (failure instanceof NoAnswer) for (const input of dialog.querySelectorAll("input")) input.readOnly = true;
      setText(notice, text);
      if ([403, 404, 409].includes(failure.status)) {
        state.changed = failure.status !== 403;
        accept.hidden = true;
        refuse.textContent = "Close";
        refuse.focus();
      } else accept.textContent = "Try again";
      if (mustWait()) waitForLimit();
      refocus(accept.disabled ? refuse : accept);
      return undefined;
    };
    const waitForLimit = () => {
      accept.disabled = true;
      const again = () => {
        accept.disabled = false;
        accept.textContent = "Try again";
        setText(notice, "");
      };
      state.stop = countdown(accept, again, (left) => `Wait ${left}`);
    };
    const end = () => {
      state.isOver = true;
      const isBegun = date && !state.changed && (date.value || isUnfinished(date));
      if (dialog.returnValue === LEFT && isBegun && !dialog.hasAttribute("aria-busy")) banner("question", dropped, { canClose: true });
      state.stop?.();
      dialog.removeAttribute("aria-busy");
      form.removeEventListener("submit", submit);
      refuse.removeEventListener("click", close);
      // The dialog may be open for another order by now; the outcome is still announced and shown.
      Promise.resolve(state.working).then(() => resolve(state.changed));
    };
    const close = () => dialog.close();
    form.addEventListener("submit", submit);
    refuse.addEventListener("click", close);
    dialog.addEventListener("close", end, { once: true });
  });
}
