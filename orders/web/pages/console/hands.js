// Quick hands: a key that is held and the second press of a double click press nothing that they are
// not meant for.

const SAME_PRESS_MS = 700;
const SAME_SPOT_PX = 16;
let last = { at: -Infinity };

/** Begin to watch keys and clicks. */
export function watchHands() {
  addEventListener("keydown", keyed, true);
  addEventListener("click", clicked, true);
}

function keyed(event) {
  const { key, repeat, target } = event;
  const isText = target.matches("textarea, select, input:not([type=checkbox])");
  if (repeat && (key === "Enter" ? !target.matches("textarea") : key === " " && !isText)) stop(event);
}

// What stands where something was pressed just now takes no click, unless it is the same again.
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
