// Shipping with one press, of one order or of several together. For ten seconds it can be taken back; then, or when the
// page is left, it is sent. What was pressed is kept over reloads, and sent until it is answered or taken back.

import { confirm } from "./actions.js";
import { change, get, mustWait, newName, NoAnswer, Refusal, serviceEvents } from "./api.js";
import { bdi, byId, el } from "./dom.js";
import { clean } from "./fields.js";
import { counted, lasting } from "./format.js";
import { announce, banner, describe } from "./notices.js";
import { session } from "./session.js";

const UNDO_MS = 10_000;
// Somebody who moves to a button needs more time; a pointer that rests doesn't.
const REACHING_MS = 3000;
const TICK_MS = 1000;
const AT_ONCE = 4;
const MOST_TOGETHER = 100;
const MOST_PAUSE_MS = 30_000;
// A service that fails in itself may fail for ever.
const MOST_FAULTS = 5;
const WAITING = { limit: "Waiting for the limit", connection: "No connection", service: "Waiting for the service" };
const WHY = { limit: "This key's request limit is reached", connection: "Can't connect to the service", service: "The service isn't ready" };

// By order, what was pressed: its request's `name`, that of the request that it is sent with `together`, its `tracking`
// if that was entered, when it is `due`, whether it `isSent` and not answered yet, and whether it `isUncertain`, since
// an answer was lost.
const outbox = new Map();
// By order, the message about one that did not ship.
const failed = new Map();
const tabs = new BroadcastChannel("outbox");
let trouble = "";
let failures = 0;
let retryAt = 0;
let reachedAt = -Infinity;
let isAsking = false;

/**
 * Dispatches `change` with the order, whether it `isShipped` (and that `isReplayed`, after a lost
 * answer), whether it `isUnknown` what it is now, and whether it `isOneOf` several, of which others follow.
 */
export const shipments = new EventTarget();

/** Return whether an order is about to ship. */
export function isShipping({ id }) {
  return outbox.has(id);
}

/** Say what an order that is about to ship waits for; an empty text for others. */
export function progress({ id }) {
  const entry = outbox.get(id);
  if (!entry) return "";
  if (isAsking) return "Not shipped yet";
  return isWaiting(entry) ? WAITING[trouble] : "Shipping…";
}

/** Return whether what was pressed can still be undone. */
export function canUndo({ id }) {
  const entry = outbox.get(id);
  return Boolean(entry) && !entry.isSent && !entry.isUncertain;
}

/** Ship an order in ten seconds, unless it is taken back. */
export function shipSoon(order) {
  shipTogether([order]);
}

/** Ship several orders after a confirmation, in ten seconds. Resolves to whether they are to ship. */
export function shipSeveral(orders) {
  const titled = counted(orders.length, "order");
  return confirm({
    title: `Ship ${titled}?`,
    body: [el("ul", { class: "many" }, ...orders.map(({ id, reference }) => el("li", {}, `${id} `, reference ? bdi(reference) : "")))],
    yes: `Ship ${titled}`,
    no: "Not yet",
    work: async () => shipTogether(orders),
  });
}

function shipTogether(orders) {
  const fresh = orders.filter(({ id }) => !outbox.has(id));
  if (!fresh.length) return;
  const due = now() + UNDO_MS;
  for (let begin = 0; begin < fresh.length; begin += MOST_TOGETHER) {
    const some = fresh.slice(begin, begin + MOST_TOGETHER);
    const together = fresh.length > 1 ? newName() : undefined;
    for (const { id } of some) outbox.set(id, { id, name: newName(), together, due, faults: 0, isSent: false, isUncertain: false });
  }
  announce(`Shipping ${which(fresh)}. You have ${UNDO_MS / 1000} seconds to undo it.`, { isShown: true });
  for (const { id } of fresh) failed.delete(id);
  showFailed();
  changed(fresh);
}

// Nothing is sent while the tracking of orders is entered.
async function addTracking(entries) {
  const inputs = entries.map(({ id, tracking }) => el("input", { id: `tracking-${id}`, maxlength: 100, autocomplete: "off", spellcheck: "false", value: tracking }));
  const fields = inputs.map((input, index) => el("div", { class: "field" }, el("label", { for: input.id, text: `Order ${entries[index].id}` }), input));
  const body = el("div", { class: "many stack" }, ...fields);
  body.addEventListener("keydown", onToNext);
  for (const each of entries) each.due = Infinity;
  const answer = confirm({ title: `Tracking of ${which(entries)}`, body: [body], yes: "Add tracking", no: "Don't add", check: () => wrongIn(inputs) });
  inputs[0].focus();
  const isEntered = await answer;
  const there = entries.filter(isThere);
  for (const each of there) {
    each.due = now() + UNDO_MS;
    if (isEntered) each.tracking = clean(inputs[entries.indexOf(each)].value) || undefined;
  }
  if (there.length) changed(there);
}

// Scanners end each text with Enter.
function onToNext(event) {
  const next = event.target.closest(".field").nextElementSibling;
  if (event.key !== "Enter" || !next) return;
  event.preventDefault();
  next.querySelector("input").focus();
}

function wrongIn(inputs) {
  for (const each of inputs) each.setAttribute("aria-invalid", `${!/^[ -~]*$/.test(clean(each.value))}`);
  const wrong = inputs.find((each) => each.matches("[aria-invalid=true]"));
  wrong?.focus();
  return wrong ? `${wrong.labels[0].textContent}: enter plain letters, digits and signs only.` : "";
}

/** Take back an order that is about to ship. */
export function takeBack(order) {
  takeBackEach([order]);
}

function takeBackEach(orders) {
  const some = orders.filter(canUndo);
  if (!some.length) return;
  for (const { id } of some) outbox.delete(id);
  announce(`${sentence(some)} ${some.length === 1 ? "was" : "were"} not shipped.`);
  changed(some);
}

function which(orders) {
  return orders.length === 1 ? `order ${orders[0].id}` : counted(orders.length, "order");
}

function sentence(orders) {
  const text = which(orders);
  return text[0].toUpperCase() + text.slice(1);
}

// Shipments that are sent together, or alone.
function groups(entries) {
  const found = new Map();
  for (const each of entries) found.set(groupOf(each), [...(found.get(groupOf(each)) ?? []), each]);
  return [...found.values()];
}

function groupOf({ id, together }) {
  return together ?? `${id}`;
}

/** Send all that can be sent now, and wait for the answers. */
export function sendAll({ keepalive = false } = {}) {
  if (mustWait() || isAsking) return Promise.resolve();
  return Promise.all(groups([...outbox.values()].filter((each) => !each.isSent)).map((each) => send(each, keepalive)));
}

/** Return the orders that are about to ship, as text; what can't be sent now if `isStuck`. */
export function unshipped({ isStuck = false } = {}) {
  if (isStuck && !trouble && !isAsking) return "";
  return [...outbox.keys()].join(", ");
}

/** Go on with what is kept from before a reload; ask about what another key has left. */
export function resumeShipping({ isNew }) {
  for (const entry of outbox.size ? [] : session.outbox) {
    outbox.set(entry.id, { ...entry, due: now() + TICK_MS, faults: 0, isSent: false, wasLost: entry.isUncertain });
  }
  tabs.postMessage({ asks: names() });
  isAsking = isNew && outbox.size > 0;
  for (const { id } of outbox.values()) settle(id);
  show();
  tellWhatFailed();
}

/** Stop shipping. What the tab keeps is asked about when somebody signs in. */
export function stopShipping() {
  outbox.clear();
  failed.clear();
  [trouble, failures, retryAt, isAsking] = ["", 0, 0, false];
  show();
}

// Orders that were sent when a tab was closed, and did not ship.
async function tellWhatFailed() {
  for (const id of session.left) {
    try {
      const { status } = await get(`store/orders/${id}`);
      settle(id);
      if (status === "pending") fail(id, "You left the page before this was done. The order is still to ship.");
    } catch {
      // It is asked again at the visit after this.
    }
  }
}

// A tab that was opened from another, or duplicated, has a copy of what the other one sends.
tabs.addEventListener("message", ({ data: { asks, has } }) => {
  const common = names().filter((name) => (asks ?? has).includes(name));
  if (!common.length) return;
  if (asks) tabs.postMessage({ has: common });
  else drop([...outbox.values()].filter(({ name }) => has.includes(name)));
});

function names() {
  return [...outbox.values()].map(({ name }) => name);
}

addEventListener("pagehide", () => {
  if (!outbox.size) return;
  session.left = [...new Set([...session.left, ...outbox.keys()])];
  sendAll({ keepalive: true });
});

// Leaving sends what can be sent; with what can't, it asks.
addEventListener("beforeunload", (event) => {
  if (unshipped({ isStuck: true })) event.preventDefault();
});

for (const type of ["pointermove", "focusin"]) {
  byId("shipping").addEventListener(type, () => {
    reachedAt = now();
  });
}

setInterval(() => {
  if (!outbox.size) return;
  const at = now();
  if (at - reachedAt < REACHING_MS) for (const entry of outbox.values()) if (entry.due > at) entry.due += TICK_MS;
  sendDue();
  show();
}, TICK_MS);

serviceEvents.addEventListener("connection", ({ detail: isOnline }) => {
  if (isOnline && trouble === "connection") retryAt = 0;
});

// While something is wrong, one request finds out whether it still is.
function sendDue() {
  const all = groups(outbox.values());
  const due = all.filter((group) => group.every((each) => isDue(each) && !each.isSent));
  if (!due.length || isAsking) return;
  if (mustWait()) return worry("limit");
  if (trouble === "limit") worry("");
  const onTheWay = all.filter(([first]) => first.isSent).length;
  if (now() < retryAt || (failures && onTheWay)) return;
  for (const each of due.slice(0, failures ? 1 : Math.max(0, AT_ONCE - onTheWay))) send(each);
}

async function send(entries, keepalive = false) {
  const wereUncertain = entries.map(({ isUncertain }) => isUncertain);
  for (const each of entries) Object.assign(each, { isSent: true, isUncertain: true, due: 0 });
  changed(entries);
  try {
    await (entries[0].together ? sendTogether(entries, keepalive) : sendOne(entries[0], keepalive));
  } catch (failure) {
    // Refused for its key or a limit, it did not ship.
    if ([401, 429].includes(failure.status)) entries.forEach((each, index) => { each.isUncertain = wereUncertain[index]; });
    // It was taken back, or is kept for the next sign-in.
    const [there, left] = [entries.filter(isThere), entries.filter((each) => !isThere(each))];
    left.forEach(keepLeft);
    for (const each of there) each.isSent = false;
    if (there.length && failure.name !== "AbortError") refused(there, failure);
    if (there.some(isThere)) changed(there.filter(isThere));
  }
}

function isThere(entry) {
  return outbox.get(entry.id) === entry;
}

async function sendOne({ id, name, tracking }, keepalive) {
  const { data, isReplayed } = await change("POST", `store/orders/${id}/ship`, tracking && { tracking }, { name, keepalive });
  succeed([data], isReplayed);
}

async function sendTogether(entries, keepalive) {
  const orderIds = entries.map(({ id }) => id);
  const tracking = Object.fromEntries(entries.filter((each) => each.tracking).map((each) => [each.id, each.tracking]));
  const { data, isReplayed } = await change("POST", "store/shipments", { orderIds, tracking }, { name: entries[0].together, keepalive });
  const [done, wrong] = [data.results.filter(({ order }) => order), data.results.filter(({ error }) => error)];
  for (const { orderId, error: { status, code, message } } of wrong) {
    refused(entries.filter(({ id }) => id === orderId), new Refusal(status, code, message, 0));
  }
  if (done.length) succeed(done.map(({ order }) => order), isReplayed);
}

function refused(entries, failure) {
  if (failure.status === 500) for (const each of entries) each.faults += 1;
  const isFault = entries[0].faults >= MOST_FAULTS;
  if (failure.status === 429) worry("limit");
  else if (failure.code === "order_already_shipped" && entries[0].wasLost) succeed(entries.map(({ id }) => ({ id })), true);
  else if (failure instanceof NoAnswer || (failure.status >= 500 && !isFault)) tryLater(entries, failure);
  else for (const each of entries) giveUp(each, failure);
}

function tryLater(entries, failure) {
  for (const each of entries) each.wasLost = true;
  failures += 1;
  retryAt = now() + Math.min(MOST_PAUSE_MS, 1000 * 2 ** failures);
  worry(failure instanceof NoAnswer ? "connection" : "service");
}

function succeed(orders, isReplayed) {
  drop(orders);
  failures = 0;
  worry("");
  for (const { id } of orders) failed.delete(id);
  showFailed();
  announce(`${sentence(orders)} shipped.`);
  tellEach(orders, (order) => (order.status ? { isShipped: true, isReplayed } : { isUnknown: true }));
  sendDue();
}

function giveUp({ id }, failure) {
  drop([{ id }]);
  fail(id, describe(failure), failure.status === 500 ? "may not have shipped" : "was not shipped");
  tell({ id }, { isUnknown: true });
}

function drop(orders) {
  for (const { id } of orders) {
    outbox.delete(id);
    settle(id);
  }
  changed(orders);
}

function settle(id) {
  session.left = session.left.filter((each) => each !== id);
}

function fail(id, why, what = "was not shipped") {
  failed.set(id, `Order ${id} ${what}. ${why}`);
  showFailed();
}

function showFailed() {
  banner("ship", [...failed.values()], { isBad: true, canClose: true, closed: () => failed.clear() });
}

// Rows say what keeps their orders.
function worry(about) {
  if (trouble === about) return;
  trouble = about;
  tellEach([...outbox.values()].filter(isDue), () => ({}));
}

// After a 401 nobody is signed in, and what was pressed is only kept in the tab.
function keepLeft({ name, isUncertain }) {
  session.outbox = session.outbox.map((each) => (each.name === name ? { ...each, isUncertain } : each));
}

function changed(orders) {
  session.outbox = [...outbox.values()].map(({ id, name, together, tracking, isUncertain }) => ({ id, name, together, tracking, isUncertain }));
  show();
  tellEach(orders.map(({ id }) => ({ id })), () => ({}));
}

// Lines that stay are updated in place, so that nobody presses a button that is being replaced. What
// can't be sent has one line together.
function show() {
  const bar = byId("shipping");
  const [lines, waiting] = [new Map(), [...outbox.values()].filter(isWaiting)];
  for (const each of groups([...outbox.values()].filter((entry) => !waiting.includes(entry)))) lines.set(groupOf(each[0]), each);
  if (waiting.length) lines.set("waiting", null);
  for (const each of [...bar.children]) if (!lines.has(each.dataset.id)) each.remove();
  for (const [key, group] of lines) {
    let line = bar.querySelector(`[data-id="${key}"]`);
    if (!line) bar.append(line = group ? newLine(key) : waitingLine());
    if (group) showGroup(line, group);
    else showWaiting(line, waiting);
  }
  bar.hidden = !lines.size;
}

function newLine(key) {
  const group = () => [...outbox.values()].filter((each) => groupOf(each) === key);
  const button = (text, work) => el("button", { class: "button small", type: "button", text, on: { click: () => work(group()) } });
  return el("li", { "data-id": key }, el("span"), el("i", { "aria-hidden": "true" }), button("", addTracking), button("Undo", takeBackEach));
}

function showGroup(line, group) {
  const [first] = group;
  const left = Math.ceil((first.due - now()) / 1000);
  line.querySelector("span").textContent = `Shipping ${first.together ? which(group) : first.id}`;
  line.querySelector("i").textContent = left > 0 && left < Infinity ? `${left} s` : "…";
  const [tracking, undo] = line.querySelectorAll("button");
  tracking.textContent = group.some((each) => each.tracking) ? "Change tracking" : "Add tracking";
  tracking.setAttribute("aria-label", `${tracking.textContent} of ${which(group)}`);
  undo.setAttribute("aria-label", `Undo shipping ${which(group)}`);
  for (const each of [tracking, undo]) each.hidden = !canUndo(first);
}

function waitingLine() {
  return el("li", { "data-id": "waiting", class: "waiting" }, el("p"),
    el("button", { class: "button small", type: "button", text: "Ship them", on: { click: goOn } }),
    el("button", { class: "button small", type: "button", text: "Don't ship", on: { click: takeBackAll } }));
}

function showWaiting(line, waiting) {
  const these = `${counted(waiting.length, "order")} ${waiting.length === 1 ? "waits" : "wait"} to ship: ${waiting.map(({ id }) => id).join(", ")}.`;
  const why = isAsking ? " Ship was pressed before you signed in." : ` ${WHY[trouble]}, next try ${nextTry()}.`;
  const text = line.querySelector("p");
  if (text.textContent !== these + why) text.textContent = these + why;
  line.querySelector("button").hidden = !isAsking;
}

function nextTry() {
  const left = trouble === "limit" ? mustWait() : Math.ceil((retryAt - now()) / 1000);
  return left > 0 ? `in ${lasting(left)}` : "now";
}

function goOn() {
  isAsking = false;
  sendDue();
  show();
}

// A request without an answer may have arrived.
function takeBackAll() {
  const waiting = [...outbox.values()].filter(isWaiting);
  takeBackEach(waiting);
  for (const entry of waiting.filter(isThere)) {
    if (entry.isUncertain) {
      drop([entry]);
      fail(entry.id, "The response was lost: check whether it shipped before you ship it again.", "may have shipped");
      tell(entry, { isUnknown: true });
    }
  }
}

function isDue({ due }) {
  return due <= now();
}

function isWaiting(entry) {
  return isAsking || (Boolean(trouble) && isDue(entry));
}

function tellEach(orders, outcomeOf) {
  orders.forEach((order, index) => tell(order, { ...outcomeOf(order), isOneOf: index < orders.length - 1 }));
}

function tell(order, outcome = {}) {
  shipments.dispatchEvent(new CustomEvent("change", { detail: { order, ...outcome } }));
}

// The computer's clock is not used: it may be set meanwhile.
function now() {
  return performance.now();
}
