// The start of the page: signing in, the frame around the views, news and connection.

import { clearCache, get, limits, mustWait, Refusal, serviceEvents } from "./api.js";
import { byId, el, setText } from "./dom.js";
import { clock, counted, inSentence, lasting } from "./format.js";
import { figuresView } from "./figures.js";
import { access, keyView } from "./key.js";
import { newView } from "./new.js";
import { announce, banner } from "./notices.js";
import { orderView } from "./order.js";
import { ordersView } from "./orders.js";
import { go, here, onArrival, restoreScroll } from "./router.js";
import { session } from "./session.js";
import { Watch } from "./watch.js";
import { describe } from "./words.js";

const VIEWS = { orders: ordersView, order: orderView, figures: figuresView, key: keyView, new: newView };
const CHANGES = { "order.placed": "was placed", "order.shipped": "was shipped", "order.cancelled": "was cancelled", "order.imported": "was imported from a file" };
const KEY_PATTERN = /^sok_[0-9A-Za-z]+$/;

let view = null;
let shown = "";
let watch = null;
let isOffline = false;

/** What the page offers its views. */
const shop = {
  /** The number of orders of each status, as last known. */
  counts: null,

  /** Update the counts and the webhooks banner from an answer of getStats. */
  updateFigures(figures) {
    this.counts = figures.byStatus;
    showPausedWebhooks(figures.pausedWebhooks || []);
  },

  /** Refresh the view after a change made on this page. */
  changedHere() {
    return view?.changed([]);
  },
};

function showPausedWebhooks(paused) {
  if (!paused.length) return banner("webhooks", "");
  const numbers = paused.map(({ id }) => id).join(", ");
  const since = inSentence(paused.map((each) => each.since).sort()[0]);
  return banner("webhooks", `Updates to another system have been paused since ${since}. Nothing is lost: they are waiting to be sent. ` +
    `Tell your administrator that webhook ${numbers} is paused.`);
}

// Signing in.

async function signIn(event) {
  event.preventDefault();
  const field = byId("key");
  const key = field.value.trim();
  const fault = KEY_PATTERN.test(key) ? "" : key ? "This isn't a key: keys start with sok_." : "Enter or paste your key.";
  showFault(fault);
  if (fault) return;
  const button = event.target.querySelector("[type=submit]");
  button.disabled = true;
  try {
    const profile = await get("usage", { key });
    session.begin(key, profile);
    field.value = "";
    await enter();
    announce(`Signed in as ${profile.name}.`);
  } catch (failure) {
    if (failure.status === 429) waitToSignIn(button, failure);
    else showFault(describe(failure));
  } finally {
    button.disabled = mustWait() > 0;
  }
}

function waitToSignIn(button, failure) {
  showFault(describe(failure));
  const timer = setInterval(() => {
    button.textContent = mustWait() ? `Wait ${lasting(mustWait())}` : "Sign in";
    button.disabled = mustWait() > 0;
    if (mustWait()) return;
    clearInterval(timer);
    showFault("");
  }, 500);
}

function showFault(text) {
  setText(byId("key-fault"), text);
  byId("key").toggleAttribute("aria-invalid", Boolean(text));
  if (text) byId("key").setAttribute("aria-invalid", "true");
  if (text) byId("key").focus();
}

function showSignIn(notice) {
  byId("shop").hidden = true;
  byId("sign-in").hidden = false;
  setText(byId("sign-in-notice"), notice);
  // The next key starts hidden again.
  byId("key-shown").checked = false;
  byId("key").type = "password";
  document.title = "Sign in · Store Orders";
  byId("key").focus();
}

// Without storage, the key would be forgotten at once.
function disableSignIn() {
  for (const each of byId("sign-in-form").elements) each.disabled = true;
  showSignIn("This browser doesn't let the page store anything, not even your key. " +
    "Allow this site to store data (cookies) in the browser's settings, then reload the page.");
}

function lostDraft() {
  return session.draft.values ? " The order you were entering was not saved: enter it again with the new key." : "";
}

function leave(notice) {
  watch?.stop();
  view?.dispose();
  [watch, view, shown, shop.counts] = [null, null, "", null];
  session.end();
  clearCache();
  byId("view").replaceChildren();
  byId("banners").replaceChildren();
  byId("confirm").close();
  showSignIn(notice);
}

// The frame.

async function enter() {
  const hasPosition = session.place.last !== undefined;
  // A list older than the position in the log would miss the changes in between.
  const watching = startWatch();
  if (!hasPosition) await watching;
  if (!session.key) return;
  byId("sign-in").hidden = true;
  byId("shop").hidden = false;
  const { name, scopes } = session.profile;
  byId("who-name").textContent = name;
  byId("who-may").textContent = access(scopes);
  for (const each of document.querySelectorAll("[data-writes]")) each.hidden = !session.mayWrite;
  showView();
}

async function startWatch() {
  watch = new Watch();
  watch.addEventListener("polled", showUpdated);
  watch.addEventListener("changes", ({ detail }) => announceNews(detail));
  await watch.start();
}

function showView() {
  if (!session.profile) return;
  const place = here();
  const name = place.name === "orders" && place.id ? "order" : place.name;
  const isAllowed = Object.hasOwn(VIEWS, name) && (name !== "new" || session.mayWrite);
  if (!isAllowed) {
    go("#/orders", { replace: true });
    return;
  }
  const isNew = shown !== `${name}/${place.id}`;
  if (isNew) changeView(name, place);
  view.update(place);
  if (isNew) arriveAt(name, place);
}

function changeView(name, place) {
  if (name === "order" && shown.startsWith("orders/")) {
    history.replaceState({ ...history.state, fromList: true }, "");
  }
  view?.dispose();
  const root = el("div", { class: `view ${name}` });
  byId("view").replaceChildren(root);
  view = VIEWS[name](root, shop);
  shown = `${name}/${place.id}`;
}

let isFirst = true;

function arriveAt(name, place) {
  document.title = `${view.title}${name === "order" ? ` ${place.id}` : ""} · Store Orders`;
  for (const each of document.querySelectorAll("nav [data-at]")) {
    if (each.dataset.at === place.name) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  if (name !== "orders") restoreScroll();
  // Screen readers announce the new view; after a load they start at the top anyway.
  if (!isFirst) (byId("view").querySelector("h1") || byId("view")).focus({ preventScroll: true });
  isFirst = false;
}

// News, limits and connection.

function announceNews({ events, skipped }) {
  const news = events.filter((event) => !session.own.has(event.requestId));
  if (!news.length && !skipped) return;
  watch.spend(2);
  view?.changed(skipped ? [] : news);
  const orders = new Set(news.map((event) => event.orderId));
  if (orders.size === 1) announce(`Order ${news[0].orderId} ${CHANGES[news.at(-1).type] || "was changed"}.`);
  else announce(skipped ? "Many orders were changed elsewhere." : `${counted(orders.size, "order")} were changed elsewhere.`);
}

function showUpdated({ detail }) {
  const { polledAt, nextAt } = watch;
  const at = polledAt && el("time", { datetime: new Date(polledAt).toISOString(), text: clock(polledAt) });
  byId("updated").replaceChildren(at ? "Updated " : "Not updated yet, ", at || "",
    el("span", { text: detail.failed ? `retrying at ${clock(nextAt)}` : `next check in ${lasting(detail.seconds)}` }));
}

async function refresh() {
  const button = byId("refresh");
  if (mustWait() || !watch) return;
  button.setAttribute("aria-busy", "true");
  await watch.poll();
  await view?.changed([]);
  button.removeAttribute("aria-busy");
}

function showLimits() {
  const left = mustWait();
  byId("refresh").disabled = left > 0;
  if (!left) {
    banner("limits", "");
    return;
  }
  const reason = limits.banned ? "Your key is blocked after too many requests" : "You've reached this key's request limit";
  banner("limits", `${reason}. Available again ${inSentence(limits.until)}.`);
  setTimeout(showLimits, left * 1000);
}

function showConnection({ detail: isOnline }) {
  if (isOnline === !isOffline) return;
  isOffline = !isOnline;
  if (!session.profile) return;
  banner("connection", isOnline ? "" : "Can't connect to the service. What you see may be out of date. Reconnecting automatically.");
  if (!isOnline) return;
  announce("Back online.");
  view?.changed([]);
}

async function begin() {
  byId("sign-in-form").addEventListener("submit", signIn);
  byId("key-shown").addEventListener("change", ({ target }) => {
    byId("key").type = target.checked ? "text" : "password";
  });
  byId("sign-out").addEventListener("click", () => {
    history.replaceState(null, "", "#/");
    leave("");
    announce("You've signed out.");
  });
  byId("refresh").addEventListener("click", refresh);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("view").focus();
  });
  serviceEvents.addEventListener("limits", showLimits);
  serviceEvents.addEventListener("connection", showConnection);
  serviceEvents.addEventListener("ended", () => session.profile && leave(describe(new Refusal(401)) + lostDraft()));
  onArrival(showView);
  if (!session.isPossible) disableSignIn();
  else if (session.key && session.profile) await resume();
  else showSignIn("");
}

// After a reload: the stored profile of the key is good enough to start with.
async function resume() {
  await enter();
  const { scopes } = session.profile;
  try {
    const profile = await get("usage");
    if (!session.key) return;
    session.profile = profile;
    if (`${profile.scopes}` !== `${scopes}`) location.reload();
  } catch {
    // The view shows the error; a key that is no longer valid leads to the sign-in page.
  }
}

begin();
