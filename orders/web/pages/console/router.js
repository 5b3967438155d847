// Where one is: `#/orders?status=pending`, `#/orders/17`. Back and reload keep the place.

const SAVE_AFTER_MS = 300;

/** Give the present place: its name, the order's id where it is one's, its parameters. */
export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/");
  return { name: name || "orders", id, params: new URLSearchParams(query) };
}

/** Write a place as a hash, without the parameters that are empty. */
export function hash(name, params = {}) {
  const told = new URLSearchParams(Object.entries(params).filter(([, value]) => value));
  return `#/${name}${told.size ? `?${told}` : ""}`;
}

/** Go to a place. `trail` is what the pages of a list before it were. */
export function go(to, { trail = [], replace = false } = {}) {
  if (!replace) saveScroll();
  history[replace ? "replaceState" : "pushState"]({ trail }, "", to);
  arrive?.();
}

/** Give the pages of the list that were before this one. */
export function trail() {
  return history.state?.trail || [];
}

/** Remember how far the present place is scrolled, for when one comes back to it. */
export function saveScroll() {
  history.replaceState({ ...history.state, scroll: scrollY }, "");
}

/** Scroll to where the present place was left. */
export function restoreScroll() {
  scrollTo(0, history.state?.scroll || 0);
}

let arrive = null;

/** Call this function whenever there is another place. */
export function onArrival(listener) {
  arrive = listener;
  history.scrollRestoration = "manual";
  addEventListener("hashchange", listener);
  let timer = 0;
  addEventListener("scroll", () => {
    clearTimeout(timer);
    timer = setTimeout(saveScroll, SAVE_AFTER_MS);
  }, { passive: true });
  // A link is followed before the timer is through.
  document.addEventListener("click", () => {
    clearTimeout(timer);
    saveScroll();
  }, true);
}
