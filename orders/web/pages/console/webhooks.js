// The webhooks that a key manages. What receivers answer is only ever text. A secret is in this view alone.

import { confirm } from "./actions.js";
import { change, get, newName } from "./api.js";
import { bdi, byId, el, refocus } from "./dom.js";
import { adds, field, pairs, revealed } from "./forms.js";
import { count, counted, inSentence, instant } from "./format.js";
import { announce, describe, failurePanel } from "./notices.js";
import { session } from "./session.js";

const TYPES = [
  ["order.placed", "Placed", true], ["order.changed", "Changed", true], ["order.shipped", "Shipped", true], ["order.cancelled", "Cancelled", true],
  ["order.reopened", "Reopened"], ["order.imported", "Imported from a file"], ["order.forgotten", "Forgotten"],
];
const STATES = { active: ["shipped", "Running"], waiting: ["pending", "Waiting to retry"], paused: ["cancelled", "Paused"] };
const BY_HAND = /^paused (by command|over the API)$/;
const OUTCOMES = { delivered: "Delivered", down: "Not delivered", refused: "Refused", gone: "Refused for good" };
const LABELS = new Map([["url", "The address"], ["events", "The kinds of events"]]);
const AT_ONCE = 20;
const SENT_AGAIN_AFTER_MS = 2000;
const PING_SECONDS = 30;
const ADVICE = ", and enter it at the receiver, which checks with it that messages come from this shop.";
const NONE_CHOSEN = "Choose at least one kind of event.";
const LOST = "The connection was lost, so we can't tell whether the webhook was added. Send it again: it won't be added twice.";
const SECRET_LOST = "It is done, but the secret was lost with the connection, and it can't be shown again. Remove the webhook, and add it again.";
const BUSY = "Others are trying webhooks at the moment. Try again in a few seconds.";

/** Make the view. */
export function view(root, shop) {
  const loading = new AbortController();
  const { signal } = loading;
  const secret = el("div", { role: "status" });
  const list = el("div", { class: "stack" });
  // A result stays below its webhook while the list is loaded again.
  const below = new Map();
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Webhooks" })), secret, list, adding(added));

  async function load() {
    try {
      const { webhooks } = await get("webhooks", { signal });
      show(webhooks);
    } catch (failure) {
      if (failure.name !== "AbortError") list.replaceChildren(failurePanel(failure, load));
    }
  }

  function show(webhooks) {
    const focused = list.contains(document.activeElement) && document.activeElement;
    const none = el("p", { class: "panel", text: "No webhooks yet. Add one below to tell another program of each change of an order." });
    list.replaceChildren(webhooks.length ? el("ul", { class: "two" }, ...webhooks.map(card)) : none);
    if (focused) (focused.isConnected ? focused : byId(focused.id) || root.querySelector("h1")).focus({ preventScroll: true });
  }

  function card(webhook) {
    const { id, url, state } = webhook;
    const button = (action, text, act) => el("button", { id: `${action}-${id}`, class: "button", type: "button", "aria-label": `${text}: ${url}`, text, on: { click: () => act(webhook) } });
    const [kind, said] = STATES[state] || ["pending", state];
    if (!below.has(id)) below.set(id, { pinged: el("p", { role: "status", class: "lines", hidden: true }), log: el("div", { class: "stack" }) });
    const { pinged, log } = below.get(id);
    return el("li", { class: "panel stack" },
      el("h2", {}, bdi(url)),
      el("p", {}, el("span", { class: `chip ${kind}`, text: said })),
      state === "paused" ? paused(webhook) : null,
      facts(webhook),
      el("div", { class: "buttons" },
        button("ping", "Ping", ping), state === "paused" ? button("pause", "Resume", resume) : button("pause", "Pause", pause), button("log", "Deliveries", showLog),
        button("change", "Change", changeEvents), button("rotate", "New secret", rotate), button("remove", "Remove", remove)),
      pinged, log);
  }

  async function ping({ id }) {
    const { pinged } = below.get(id);
    pinged.hidden = false;
    pinged.replaceChildren("Waiting for the receiver…");
    byId(`ping-${id}`).disabled = true;
    try {
      const { data } = await change("POST", `webhooks/${id}/ping`, undefined, { name: newName(), seconds: PING_SECONDS });
      pinged.replaceChildren(...outcome(data));
    } catch (failure) {
      pinged.replaceChildren(failed(failure));
    }
    byId(`ping-${id}`).disabled = false;
    refocus(byId(`ping-${id}`));
    return below.get(id).isOpen ? reload(id) : undefined;
  }

  const pause = ({ id }) => once(id, "pause", "The webhook is paused. Events wait until you resume it.");
  const resume = ({ id }) => once(id, "resume", "The webhook is running again.");

  async function once(id, action, text) {
    try {
      await change("POST", `webhooks/${id}/${action}`, undefined, { name: newName() });
      announce(text);
    } catch (failure) {
      announce(failed(failure));
    }
    return reloadAll();
  }

  // The foot of the page says whether a webhook is paused.
  function reloadAll() {
    const shown = shop.changedHere();
    if (session.mayRead) shop.loadFigures(signal).catch(() => {});
    return shown;
  }

  async function changeEvents({ id, url, events }) {
    const [boxes, chosen] = choosing(events);
    // Tried again after a lost answer, it must be the same.
    let wanted = null;
    const isDone = await confirm({
      title: "Change what is sent",
      body: [el("p", { class: "lines" }, bdi(url)), boxes],
      yes: "Save",
      no: "Leave it",
      success: "The webhook is changed.",
      check: () => (wanted || chosen().length ? "" : NONE_CHOSEN),
      work: (name) => {
        wanted ??= chosen();
        return change("PATCH", `webhooks/${id}`, { events: wanted }, { name });
      },
    });
    return isDone && load();
  }

  async function rotate({ id, url }) {
    let answer = null;
    const isDone = await confirm({
      title: "Make a new secret?",
      body: [el("p", { class: "lines" }, bdi(url)), el("p", { text: "For a day, messages are signed with the previous secret, too: enter the new one at the receiver by then." })],
      yes: "Make a new secret",
      no: "Leave it",
      work: async (name) => {
        answer = (await change("POST", `webhooks/${id}/rotate`, undefined, { name })).data;
      },
    });
    if (answer) reveal(answer);
    return isDone && load();
  }

  async function remove({ id, url, waiting }) {
    const isDone = await confirm({
      title: "Remove this webhook?",
      body: [el("p", { class: "lines" }, bdi(url)), el("p", { text: `Nothing more is sent there.${waiting ? ` ${counted(waiting, "event")} that waited will not be sent.` : ""} This can't be undone.` })],
      yes: "Remove the webhook",
      no: "Keep it",
      danger: true,
      success: "The webhook is removed.",
      work: (name) => change("DELETE", `webhooks/${id}`, undefined, { name }),
    });
    return isDone && reloadAll();
  }

  // Deliveries, below their webhook.

  async function showLog({ id }) {
    const under = below.get(id);
    under.isOpen = !under.isOpen;
    if (under.isOpen) await reload(id);
    else under.log.replaceChildren();
  }

  async function reload(id) {
    const { log } = below.get(id);
    const items = el("ol", { class: "many stack", tabindex: "0", "aria-label": "Deliveries" });
    const more = el("button", { class: "button", type: "button", text: "Show older" });
    const read = async (after) => {
      const page = await get(`webhooks/${id}/deliveries?limit=${AT_ONCE}&after=${after}`, { signal });
      items.append(...page.deliveries.map((each) => delivery(id, each)));
      more.hidden = !page.more;
      more.onclick = () => read(page.next).catch((failure) => failure.name !== "AbortError" && announce(failed(failure)));
      return page.deliveries.length;
    };
    try {
      const some = await read(0);
      log.replaceChildren(el("h3", { text: "Deliveries" }), some ? items : el("p", { text: "Nothing was sent yet." }), more);
    } catch (failure) {
      if (failure.name !== "AbortError") log.replaceChildren(failurePanel(failure, () => reload(id)));
    }
  }

  function delivery(id, one) {
    const what = one.eventId ? `Event ${one.eventId}` : "Ping";
    const again = one.eventId && el("button", { class: "button small", type: "button", "aria-label": `Send event ${one.eventId} again`, text: "Send again", on: { click: () => redeliver(id, one.eventId) } });
    return el("li", { class: "stack" },
      el("p", {}, el("b", { text: OUTCOMES[one.outcome] || one.outcome }), `: ${what}, ${one.eventId ? `attempt ${count(one.attempt)}, ` : ""}`, instant(one.at)),
      el("p", { class: "soft lines" }, ...outcome(one)), again);
  }

  async function redeliver(id, eventId) {
    try {
      await change("POST", `webhooks/${id}/deliveries/${eventId}/redeliver`, undefined, { name: newName() });
      announce(`Event ${eventId} is being sent again.`);
      setTimeout(() => signal.aborted || reload(id), SENT_AGAIN_AFTER_MS);
    } catch (failure) {
      announce(failed(failure));
    }
  }

  function added(webhook) {
    reveal(webhook);
    return load();
  }

  function reveal({ url, secret: text }) {
    if (signal.aborted) return;
    secret.replaceChildren(text ? revealed(url, text, ADVICE) : el("p", { class: "notice bad", text: SECRET_LOST }));
    secret.querySelector("input")?.focus();
  }

  function dispose() {
    loading.abort();
    secret.replaceChildren();
  }

  return { title: "Webhooks", update: load, changed: load, dispose };
}

function paused({ since, because = "" }) {
  const isByHand = BY_HAND.test(because);
  const why = isByHand ? `Paused by hand ${inSentence(since)}.` : `Paused after failures ${inSentence(since)}: ${because}.`;
  return el("p", { class: isByHand ? "notice" : "notice bad" }, `${why} Nothing is lost: events are sent once you resume it.`);
}

function facts({ events, waiting, lastTry, lastOutcome, nextTry, addedBy, created }) {
  const kinds = new Map(TYPES);
  return pairs([
    ["Sent when", events.map((each) => kinds.get(each) || each).join(", ")], ["Waiting", counted(waiting, "event")],
    ["Last attempt", lastTry ? el("span", {}, instant(lastTry), `, ${(OUTCOMES[lastOutcome] || lastOutcome).toLowerCase()}`) : "none yet"],
    nextTry && ["Next attempt", instant(nextTry)], ["Added", el("span", {}, instant(created), addedBy ? " by " : " from the command line", addedBy ? bdi(addedBy) : "")],
  ]);
}

// The outcome of an attempt: the receiver's words, as text.
function outcome({ status, error, answer, milliseconds }) {
  const took = milliseconds < 1000 ? `${milliseconds} ms` : `${count(Math.round(milliseconds / 1000))} s`;
  return [status ? `The receiver answered ${status} in ${took}` : `No answer after ${took}: ${error}`, answer ? ": " : ".", answer ? bdi(answer) : ""];
}

function failed(failure) {
  return failure.code === "server_busy" ? BUSY : describe(failure);
}

// A group of checkboxes for kinds of events; and a function that returns those chosen.
function choosing(chosen) {
  const boxes = TYPES.map(([value, text, isUsual]) => {
    const box = el("input", { type: "checkbox", value, autocomplete: "off" });
    box.checked = box.defaultChecked = chosen ? chosen.includes(value) : Boolean(isUsual);
    return [box, el("label", { class: "check" }, box, text)];
  });
  const group = el("fieldset", {}, el("legend", { text: "Send when an order is" }), ...boxes.map(([, label]) => label));
  return [group, () => boxes.filter(([box]) => box.checked).map(([box]) => box.value)];
}

// The form to add a webhook.
function adding(added) {
  const url = el("input", { id: "new-url", name: "url", type: "url", inputmode: "url", autocomplete: "off", spellcheck: "false" });
  const [boxes, chosen] = choosing();
  const notice = el("p", { class: "notice bad", role: "alert", hidden: true });
  const submit = el("button", { class: "button main", type: "submit", text: "Add webhook" });
  const form = el("form", { class: "panel place", novalidate: true, "aria-labelledby": "add" },
    el("h2", { id: "add", text: "Add a webhook" }), notice, field("Address", url, "Where to send a message of each change. An https address that can be reached over the internet."), boxes, el("div", { class: "buttons" }, submit));
  const read = () => {
    const wanted = { url: url.value.trim(), events: chosen() };
    if (!wanted.url) return { wrong: ["Enter an address.", url] };
    return wanted.events.length ? { wanted } : { wrong: [NONE_CHOSEN, boxes.querySelector("input")] };
  };
  adds(form, { path: "webhooks", submit, notice, labels: LABELS, lost: LOST, read, added });
  return form;
}
