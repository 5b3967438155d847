// Shipping and cancelling: a question before, and the refusal in words. One dialog serves both.

import { change, mustWait, NoAnswer } from "./api.js";
import { byId, el, tell } from "./dom.js";
import { fromField, instant, isUnfinished, named, UNFINISHED } from "./format.js";
import { countdown, say } from "./notices.js";
import { inWords } from "./words.js";

const UNCERTAIN =
  "The connection broke, so it isn't certain whether this arrived. Trying again does no harm.";

/** Ask, and then ship an order. Tells whether the order may have changed. */
export function ship(order) {
  const time = el("input", { id: "ship-at", name: "at", type: "datetime-local", "aria-describedby": "ship-at-hint" });
  const at = el("div", { class: "field" },
    el("label", { for: "ship-at", text: "Shipped at" }),
    time,
    el("p", { id: "ship-at-hint", class: "hint", text: "Leave it empty for now, as you confirm." }));
  return question({
    title: `Ship ${named(order)}?`,
    body: [facts(order), at],
    yes: "Ship it",
    no: "Not yet",
    done: "order_already_shipped",
    said: `Order ${order.id} has shipped.`,
    date: time,
    work: () => {
      const shipDate = fromField(time.value);
      return change("POST", `store/orders/${order.id}/ship`, shipDate ? { shipDate } : undefined);
    },
  });
}

/** Ask, and then cancel an order. Tells whether the order may have changed. */
export function cancel(order) {
  return question({
    title: `Cancel ${named(order)}?`,
    body: [facts(order), el("p", { text: "A cancelled order can't be taken up again." })],
    yes: "Cancel the order",
    no: "Keep it",
    danger: true,
    done: "order_already_cancelled",
    said: `Order ${order.id} is cancelled.`,
    work: () => change("DELETE", `store/orders/${order.id}`),
  });
}

function facts(order) {
  const pairs = [
    ["Pet", `No. ${order.petId}`],
    ["Quantity", `${order.quantity}`],
    order.reference && ["Reference", order.reference],
    ["Placed", instant(order.placedAt)],
  ].filter(Boolean);
  return el("dl", { class: "facts" }, ...pairs.map(([name, value]) =>
    el("div", {}, el("dt", { text: name }), el("dd", {}, value))));
}

function question({ title, body, yes, no, danger, done, said, date, work }) {
  const dialog = byId("question");
  const [form, accept, refuse, notice] = [
    dialog.firstElementChild, byId("question-yes"), byId("question-no"), byId("question-notice"),
  ];
  byId("question-title").textContent = title;
  byId("question-body").replaceChildren(...body);
  tell(notice, "");
  accept.textContent = yes;
  refuse.textContent = no;
  accept.className = danger ? "button bad" : "button main";
  accept.hidden = false;
  accept.disabled = false;
  dialog.showModal();
  refuse.focus();
  return new Promise((resolve) => {
    const state = { changed: false, uncertain: false, isOver: false, stop: null, working: null };
    const answer = (event) => {
      event.preventDefault();
      if (!accept.disabled && isFinished()) state.working = attempt();
    };
    const attempt = async () => {
      accept.disabled = true;
      dialog.setAttribute("aria-busy", "true");
      try {
        await work();
        succeed();
      } catch (failure) {
        if (failure.status === 409 && state.uncertain && failure.code === done) succeed();
        else explain(failure);
      } finally {
        if (!state.isOver) dialog.removeAttribute("aria-busy");
      }
    };
    // Shipping can't be taken back: a date that is half there does not mean now.
    const isFinished = () => {
      const isWrong = Boolean(date && isUnfinished(date));
      tell(notice, isWrong ? UNFINISHED : "");
      date?.setAttribute("aria-invalid", `${isWrong}`);
      if (isWrong) date.focus();
      return !isWrong;
    };
    const succeed = () => {
      state.changed = true;
      say(said);
      if (!state.isOver) dialog.close();
    };
    const explain = (failure) => {
      if (failure.name === "AbortError") return undefined;
      const words = failure instanceof NoAnswer ? UNCERTAIN : inWords(failure);
      if (state.isOver) return say(`${title} ${words}`);
      accept.disabled = false;
      if (failure instanceof NoAnswer) state.uncertain = true;
      tell(notice, words);
      if ([403, 404, 409].includes(failure.status)) {
        state.changed = failure.status !== 403;
        accept.hidden = true;
        refuse.textContent = "Close";
        refuse.focus();
      } else accept.textContent = "Try again";
      if (mustWait()) hold();
      return undefined;
    };
    const hold = () => {
      accept.disabled = true;
      const again = () => {
        accept.disabled = false;
        accept.textContent = "Try again";
        tell(notice, "");
      };
      state.stop = countdown(accept, again, (left) => `In ${left}`);
    };
    const end = () => {
      state.isOver = true;
      state.stop?.();
      dialog.removeAttribute("aria-busy");
      form.removeEventListener("submit", answer);
      refuse.removeEventListener("click", close);
      // The dialog may ask something else by now; what comes of this is still told, and shown.
      Promise.resolve(state.working).then(() => resolve(state.changed));
    };
    const close = () => dialog.close();
    form.addEventListener("submit", answer);
    refuse.addEventListener("click", close);
    dialog.addEventListener("close", end, { once: true });
  });
}
