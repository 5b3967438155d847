// The current place, in the hash: `#/orders?status=pending`, `#/orders/17`. Back and reload keep it.

const SAVE_AFTER_MS = 300;

/** Return the current place: its name, the order's id if there is one, and its parameters. */
export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/");
  return { name: name || "orders", id, params: new URLSearchParams(query) };
}

/** Return the hash of a place, without empty parameters. */
export function hash(name, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value));
  return `#/${name}${query.size ? `?${query}` : ""}`;
}

/** Go to a place. `trail` has the cursors of the pages before it; `state` is kept with the place. */
export function go(to, { trail = [], replace = false, state = {} } = {}) {
  if (!replace) saveScroll();
  history[replace ? "replaceState" : "pushState"]({ ...state, trail }, "", to);
  arrive?.();
}

/** Return the cursors of the pages before this one. */
export function trail() {
  return history.state?.trail || [];
}

// Stores the scroll position of the current place.
function saveScroll() {
  history.replaceState({ ...history.state, scroll: scrollY }, "");
}

/** Restore the scroll position of the current place. */
export function restoreScroll() {
  scrollTo(0, history.state?.scroll || 0);
}

let arrive = null;

/** Call this function whenever the place changes. */
export function onArrival(listener) {
  arrive = listener;
  history.scrollRestoration = "manual";
  addEventListener("hashchange", listener);
  let timer = 0;
  addEventListener("scroll", () => {
    clearTimeout(timer);
    timer = setTimeout(saveScroll, SAVE_AFTER_MS);
  }, { passive: true });
  // A link is followed before the timer fires.
  document.addEventListener("click", () => {
    clearTimeout(timer);
    saveScroll();
  }, true);
}
