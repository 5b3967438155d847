// Quick hands: held keys, double clicks and scanners.

import { byId } from "./dom.js";

const SAME_PRESS_MS = 700;
const SAME_SPOT_PX = 16;
const PAUSE_MS = 1500;
// Some scanners end with two keys.
const SAME_BURST_MS = 100;
const queue = [];
let lookUp = null;
let isBusy = false;
let typed = "";
let endedAt = -Infinity;
let timer = 0;
let last = { at: -Infinity };

/** Begin to watch keys and clicks. Scans are looked up by this function, which resolves when the result is shown. */
export function watchHands(work) {
  lookUp = work;
  addEventListener("keydown", held, true);
  addEventListener("keydown", keyed, true);
  addEventListener("click", clicked, true);
}

function held(event) {
  const { key, repeat, target } = event;
  const isText = target.matches("textarea, select, input:not([type=checkbox])");
  if (repeat && (key === "Enter" ? !target.matches("textarea") : key === " " && !isText)) stop(event);
}

// A place that was pressed just now takes no click, unless the same thing is there again.
function clicked(event) {
  // By keyboard, or by a script.
  if (!event.detail || !event.isTrusted) return;
  const click = { at: performance.now(), x: event.clientX, y: event.clientY, target: pressable(event.target) };
  const isSecond = click.at - last.at < SAME_PRESS_MS && Math.hypot(click.x - last.x, click.y - last.y) < SAME_SPOT_PX;
  if (isSecond && !isSame(click.target, last.target)) stop(event);
  else last = click;
}

function isSame(one, other) {
  return one === other || (one && other && label(one) === label(other));
}

function label(target) {
  return target.getAttribute("aria-label") ?? target.textContent;
}

function pressable(target) {
  return target.closest("label")?.control ?? target.closest("a, button, input, summary, tr");
}

function stop(event) {
  event.preventDefault();
  event.stopImmediatePropagation();
}

// Scanners type: a burst of characters that Enter ends. Wherever the focus is, but in a text field, a
// scan goes to the search, whole, and presses no button. Scans wait for each other.

/** Look up a text, after those that wait. */
export async function find(text) {
  queue.push(text);
  if (isBusy) return;
  isBusy = true;
  try {
    while (queue.length) await lookUp(queue.shift());
  } finally {
    isBusy = false;
  }
}

/** Forget what was scanned. */
export function forgetScans() {
  queue.length = 0;
  take();
}

function keyed(event) {
  if (byId("shop").hidden || !isOurs(event)) return;
  if (event.key === "Enter") ended(event);
  else if (event.key === " " && !typed) pressed(event);
  else if (isCharacter(event)) add(event);
}

// In the search itself the browser types, unless a scan has begun elsewhere or is being looked up.
function isOurs({ target }) {
  const isText = target.matches("select, textarea, input:not([type=checkbox])");
  return !isText || (target.type === "search" && (isBusy || typed));
}

// AltGr, which some keyboards need for `#`, is Ctrl and Alt.
function isCharacter({ key, ctrlKey, metaKey, altKey, isComposing }) {
  return [...key].length === 1 && !metaKey && !isComposing && ctrlKey === altKey;
}

function add(event) {
  event.preventDefault();
  if (event.repeat) return;
  typed += event.key;
  clearTimeout(timer);
  timer = setTimeout(pause, PAUSE_MS);
}

function ended(event) {
  if (!typed) return pressed(event);
  stop(event);
  endedAt = performance.now();
  return find(take());
}

// Nobody who waits for an order to appear means a button of what is shown before.
function pressed(event) {
  if (isBusy || performance.now() - endedAt < SAME_BURST_MS) stop(event);
}

// Whoever types by hand goes on in the search.
function pause() {
  const text = take();
  const search = document.querySelector("[type=search]");
  if (!search) return;
  search.value = text;
  search.focus();
}

function take() {
  clearTimeout(timer);
  const text = typed.trim();
  typed = "";
  return text;
}
