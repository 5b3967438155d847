// Rows stay where they are while a hand is in the list, and a moment longer: nobody presses a row that
// slid under the pointer.

import { byId } from "./dom.js";
import { announce } from "./notices.js";

const AFTERWARDS_MS = 2000;
// A pointer that rests this long is nobody's hand.
const LEFT_ALONE_MS = 60_000;
// As long as it takes to see that what is about to be pressed has moved.
const REACTION_MS = 400;
const HANDS = ["pointermove", "pointerdown", "pointerup", "pointerleave", "keydown", "focusin", "focusout"];

/**
 * Watch the hands in a list. Returns whether one `isHeld` there, whether it `isPressed`, and what to call when rows
 * have `moved`: what slid under a finger at the last moment is not pressed.
 */
export function watchList(list) {
  let touchedAt = -Infinity;
  let isDown = false;
  let movedAt = -Infinity;
  let isTooSoon = false;
  for (const type of HANDS) {
    list.addEventListener(type, () => {
      touchedAt = performance.now();
    });
  }
  list.addEventListener("pointerdown", () => {
    isDown = true;
    isTooSoon = performance.now() - movedAt < REACTION_MS;
    const up = () => {
      isDown = false;
    };
    for (const type of ["click", "pointercancel", "dragend"]) addEventListener(type, up, { once: true, capture: true });
    addEventListener("pointerup", () => setTimeout(up), { once: true });
  });
  const moved = () => {
    movedAt = performance.now();
  };
  list.addEventListener("click", (event) => {
    if (!isTooSoon || !event.detail || !event.target.closest(".act")) return;
    event.stopImmediatePropagation();
    announce("The list has just moved. Look, and press again.");
  }, true);
  // A banner moves the list; an observer reports once as it begins, too.
  let height = byId("banners").offsetHeight;
  const banners = new ResizeObserver(() => {
    if (byId("banners").offsetHeight !== height) moved();
    height = byId("banners").offsetHeight;
  });
  banners.observe(byId("banners"));
  const isIn = () => list.matches(":hover") || list.querySelector(":focus-visible") !== null;
  const isHeld = () => {
    const since = performance.now() - touchedAt;
    return since < AFTERWARDS_MS || (since < LEFT_ALONE_MS && isIn());
  };
  return { isHeld, isPressed: () => isDown, moved, stop: () => banners.disconnect() };
}

/**
 * Return the orders to show where rows stay in their place: those that were shown, as they are now,
 * then those that have come. `latest` has what became of those that are gone.
 */
export function inPlace(shown, orders, latest) {
  const now = new Map(orders.map((order) => [order.id, order]));
  const stay = shown.map((order) => now.get(order.id) ?? latest.get(order.id) ?? order);
  const ids = new Set(shown.map(({ id }) => id));
  return [...stay, ...orders.filter(({ id }) => !ids.has(id))];
}

/** Keep the widths of a list's columns, or let them go by what is in them. */
export function freezeColumns(list, isFrozen) {
  const table = list.querySelector("table");
  if (!table || Boolean(table.style.tableLayout) === isFrozen) return;
  const heads = [...table.querySelectorAll("th")];
  const widths = heads.map((each) => (isFrozen ? `${(100 * each.offsetWidth) / table.offsetWidth}%` : ""));
  heads.forEach((each, index) => {
    each.style.width = widths[index];
  });
  table.style.tableLayout = isFrozen ? "fixed" : "";
}
