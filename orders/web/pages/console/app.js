// The start of the page: the frame around the views, news and connection.

import { closeQuestion, leaveUndone, staySignedIn } from "./actions.js";
import { clearCache, clearLimits, get, limits, mustWait, NoAnswer, serviceEvents } from "./api.js";
import { byId, el } from "./dom.js";
import { searchPlace } from "./filters.js";
import { access, clock, counted, inSentence, keepTrue, lasting } from "./format.js";
import { forgetScans, watchHands } from "./hands.js";
import { newView } from "./new.js";
import { areDuesKnown, arrive, askForAttention, followDue, forgetDues, isSilenced, readDues, seen } from "./news.js";
import { announce, banner, failurePanel, NO_LONGER_VALID } from "./notices.js";
import { orderView } from "./order.js";
import { ordersView } from "./orders.js";
import { go, here, onArrival, restoreScroll } from "./router.js";
import { session, takeFromAddress } from "./session.js";
import { resumeShipping, sendAll, shipments, stopShipping, unshipped } from "./shipping.js";
import { disableSignIn, prepareSignIn, showSignIn, signInFromAddress } from "./signin.js";
import { clockError, now } from "./time.js";
import { Watch } from "./watch.js";

const VIEWS = { orders: ordersView, order: orderView, new: newView };
// Modules that are loaded when somebody first goes there, each with a `view`.
const LATER = { figures: () => import("./figures.js"), key: () => import("./key.js"), keys: () => import("./keys.js"), import: () => import("./imports.js"), webhooks: () => import("./webhooks.js"), backups: () => import("./backups.js") };
const OF_ADMINS = ["keys", "import", "backups"];
const CHANGES = { "order.placed": "was placed", "order.shipped": "was shipped", "order.cancelled": "was cancelled", "order.reopened": "was reopened", "order.imported": "was imported from a file", "order.forgotten": "had its personal data deleted" };
// Whether it moves an order away from pending, of each type of event that changes the counts.
const COUNTED = { "order.placed": false, "order.imported": false, "order.shipped": true, "order.cancelled": true };
const FIGURES = "store/stats?days=1";
const BACKUP_IS_OLD_MS = 2 * 86_400_000;
const FIGURES_LAST_MS = 15 * 60_000;

let brought = takeFromAddress();
let view = null;
let shown = "";
let watch = null;
let isOffline = false;
let figuresAt = 0;
let isFirst = true;
// Settles when the view shows its place.
let updating = null;
let limitsTimer = 0;

/** The page's services for its views. */
const shop = {
  /** The number of orders of each status, as last known. */
  counts: null,

  /** Update the counts and the webhooks banner from an answer of getStats. */
  updateFigures(figures) {
    this.counts = { ...figures.byStatus };
    figuresAt = Date.now();
    showPausedWebhooks(figures.pausedWebhooks || []);
    showBackups(figures.backups);
  },

  /** Read the counts, unless they are known: events say how they change. */
  async loadFigures(signal) {
    if (!areDuesKnown()) await readDues(signal);
    if (this.counts && Date.now() - figuresAt < FIGURES_LAST_MS) return;
    this.updateFigures(await get(FIGURES, { signal }));
  },

  /** Count a change of an order's status. */
  count(status, isFromPending = status !== "pending") {
    if (!this.counts || !Object.hasOwn(this.counts, status)) return;
    this.counts[status] += 1;
    if (isFromPending) this.counts.pending -= 1;
  },

  /** Update the view after a change made on this page. */
  changedHere() {
    forgetFigures();
    return view?.changed([]);
  },
};

function forgetFigures() {
  figuresAt = 0;
  forgetDues();
}

function showPausedWebhooks(paused) {
  if (!paused.length) return banner("webhooks", "");
  const numbers = paused.map(({ id }) => id).join(", ");
  const since = inSentence(paused.map((each) => each.since).sort()[0]);
  const advice = session.mayAdmin ? "" : ` ${session.mayManageWebhooks ? "Resume it if you added it, or tell" : "Tell"} your administrator that webhook ${numbers} is paused.`;
  const link = session.mayManageWebhooks && ["#/webhooks", "Show webhooks"];
  return banner("webhooks", `Updates to another system have been paused since ${since}. Nothing is lost: they are waiting to be sent.${advice}`, { where: "foot", link });
}

function showBackups(backups) {
  const last = backups?.last && Date.parse(backups.last);
  const fault = backups && !last ? "There is no backup yet."
    : last && now() - last > BACKUP_IS_OLD_MS ? `The newest backup was made ${inSentence(last)}.` : "";
  const may = session.mayAdmin;
  banner("backups", fault && `${fault}${may ? "" : " Tell your administrator."}`, { where: "foot", link: may && ["#/backups", "Show backups"] });
  if (backups?.sameDisk) sayOnceADay();
}

// Not a fault, but a risk that only the owner can end: shown to keys that may change something.
function sayOnceADay() {
  const today = new Date(now()).toDateString();
  if (!session.mayWrite || session.toldOfBackups === today) return;
  session.toldOfBackups = today;
  banner("same-disk", "Backups are on the same disk as the orders: if it fails, both are lost. " +
    "To keep them on another disk, set its folder as “backups” in instance/config.toml; README, “Backups”, says how.", { where: "foot", canClose: true });
}

// Typed texts and pressed shipments are kept for the next sign-in, unless somebody signs out.
function leave(notice, { keeps = true } = {}) {
  const undone = [notice, unshipped() && `Not shipped yet: ${unshipped()}.`, session.unsaved && `Not saved yet: ${session.unsaved}.`].filter(Boolean);
  watch?.stop();
  view?.dispose();
  stopShipping();
  forgetScans();
  seen();
  [watch, view, shown, shop.counts] = [null, null, "", null];
  session.end({ keeps });
  clearCache();
  clearLimits();
  forgetDues();
  byId("view").replaceChildren();
  byId("banners").replaceChildren();
  byId("foot").replaceChildren();
  byId("packing").replaceChildren();
  byId("confirm").close();
  showSignIn(keeps && undone.length > 1 ? `${undone.join(" ")} Sign in to continue.` : notice);
}

// The frame.

async function enter({ isNew = false } = {}) {
  const hasPosition = session.place.last !== undefined;
  // A list older than the position in the log would miss the changes in between.
  const watching = session.mayRead && startWatch();
  if (!hasPosition) await watching;
  if (!session.key) return;
  byId("sign-in").hidden = true;
  byId("shop").hidden = false;
  byId("mode").hidden = !session.isTest;
  const { name, scopes } = session.profile;
  byId("who-name").textContent = name;
  byId("who-may").textContent = access(scopes);
  const may = { reads: session.mayRead, writes: session.mayWrite, webhooks: session.mayManageWebhooks, admin: session.mayAdmin };
  for (const [what, is] of Object.entries(may)) for (const each of document.querySelectorAll(`[data-${what}]`)) each.hidden = !is;
  resumeShipping({ isNew });
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
  // A question about what was shown before is not asked any more.
  closeQuestion();
  const place = here();
  const name = place.name === "orders" && place.id ? "order" : place.name;
  if (!isAllowed(name)) {
    go(session.mayRead ? "#/orders" : "#/webhooks", { replace: true });
    return;
  }
  if (!VIEWS[name]) {
    load(name);
    return;
  }
  const isNew = shown !== `${name}/${place.id}`;
  if (isNew) changeView(name, place);
  updating = view.update(place);
  if (isNew) arriveAt(name, place);
}

function isAllowed(name) {
  if (name === "webhooks") return session.mayManageWebhooks;
  const isThere = Object.hasOwn(VIEWS, name) || Object.hasOwn(LATER, name);
  return isThere && session.mayRead && (name !== "new" || session.mayWrite) && (!OF_ADMINS.includes(name) || session.mayAdmin);
}

async function load(name) {
  try {
    VIEWS[name] = (await LATER[name]()).view;
  } catch {
    VIEWS[name] = unloaded;
  }
  showView();
  if (VIEWS[name] === unloaded) delete VIEWS[name];
}

// In the place of a view that could not be loaded.
function unloaded(root) {
  const again = () => {
    shown = "";
    showView();
  };
  root.replaceChildren(el("h1", { tabindex: "-1", text: "Not loaded" }), failurePanel(new NoAnswer(), again));
  // A stream may outlive the network, so that nothing else shows that it is back.
  addEventListener("online", again);
  return { title: "Not loaded", update() {}, changed: again, dispose: () => removeEventListener("online", again) };
}

// The list that is searched may lead on to an order.
async function lookUp(text) {
  go(searchPlace(text), { state: { isSearch: true } });
  for (let awaited = null; awaited !== updating;) await (awaited = updating);
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

function arriveAt(name, place) {
  document.title = `${view.title}${name === "order" ? ` ${place.id}` : ""} · Store Orders`;
  askForAttention();
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
  for (const { order } of events) followDue(order);
  // A reopened order's event doesn't say with which of the others it was counted.
  if (skipped || events.some(({ type }) => type === "order.reopened")) forgetFigures();
  if (skipped || events.some(({ type }) => type === "order.forgotten")) clearCache();
  const own = session.own;
  const news = events.filter((event) => !own.has(event.requestId));
  if (!news.length && !skipped) return;
  watch.spend(skipped ? 2 : 1);
  for (const { type, order } of news) if (type in COUNTED) shop.count(order.status, COUNTED[type]);
  arrive(news.filter(({ type }) => type === "order.placed"));
  view?.changed(skipped ? [] : news);
  const orders = new Set(news.map((event) => event.orderId));
  if (orders.size === 1) announce(`Order ${news[0].orderId} ${CHANGES[news.at(-1).type] || "was changed"}.`);
  else announce(skipped ? "Many orders were changed elsewhere." : `${counted(orders.size, "order")} were changed elsewhere.`);
}

function showUpdated({ detail }) {
  const { polledAt, nextAt } = watch;
  const at = polledAt && el("time", { datetime: new Date(polledAt).toISOString(), text: clock(polledAt) });
  byId("updated").replaceChildren(at ? "Updated " : "Not updated yet, ", at || "",
    el("span", { text: detail.isLive ? "live" : detail.failed ? `retrying at ${clock(nextAt)}` : `next check in ${lasting(detail.seconds)}` }));
}

async function refresh() {
  const button = byId("refresh");
  if (mustWait() || !view) return;
  button.setAttribute("aria-busy", "true");
  await watch?.poll();
  forgetFigures();
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
  banner("limits", `${reason}. Available again ${inSentence(limits.until)}. If it happens often, your administrator can raise the key's plan.`);
  clearTimeout(limitsTimer);
  limitsTimer = setTimeout(showLimits, left * 1000);
}

// Late, today and how long to wait go by the service's clock then.
function showClock() {
  const ahead = clockError();
  banner("clock", ahead ? `This computer's clock is ${lasting(Math.abs(ahead) / 1000)} ${ahead > 0 ? "ahead of" : "behind"} the service's. ` +
    "This page uses the service's clock. Correct this computer's date and time." : "");
  keepTrue();
  view?.changed([]);
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

// Whatever depends on the time of day is true whenever it is shown.
function watchUse() {
  const use = () => {
    seen();
    if (session.key) session.use();
  };
  for (const type of ["pointerdown", "keydown"]) addEventListener(type, use, { capture: true, passive: true });
  setInterval(look, 1000);
  document.addEventListener("visibilitychange", look);
  addEventListener("storage", ({ key, newValue }) => session.profile === null && (key === null || (key === "key" && !newValue)) && view && leave(""));
  // A link opened in a new tab starts without this tab's storage, unless a script opens it.
  const openTab = (event) => {
    const link = event.target.closest?.('a[href^="#/"]');
    if (!link || !(event.button === 1 || event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    open(link.href);
  };
  addEventListener("auxclick", openTab);
  addEventListener("click", openTab, true);
}

function showSilence() {
  banner("sound", session.profile && isSilenced() ? "New orders make no sound until you click on this page or press a key: browsers require that after each reload." : "");
}

function look() {
  if (session.isUnused()) leave("You were signed out after 12 hours without use.");
  else {
    keepTrue();
    showSilence();
    view?.aged?.();
  }
}

async function begin() {
  prepareSignIn(() => {
    isFirst = false;
    return enter({ isNew: true });
  });
  byId("sign-out").addEventListener("click", signOut);
  if (session.isPossible) watchUse();
  // Typed texts survive a reload, but not the tab.
  addEventListener("beforeunload", (event) => session.isPossible && session.unsaved && event.preventDefault());
  watchHands(lookUp);
  shipments.addEventListener("change", ({ detail }) => {
    if (detail.isShipped && !detail.isReplayed) shop.count("shipped");
    if (detail.isShipped) followDue(detail.order);
    view?.shipping?.(detail);
  });
  byId("refresh").addEventListener("click", refresh);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("view").focus();
  });
  serviceEvents.addEventListener("limits", showLimits);
  serviceEvents.addEventListener("connection", showConnection);
  serviceEvents.addEventListener("clock", showClock);
  serviceEvents.addEventListener("ended", () => session.profile && leave(NO_LONGER_VALID));
  onArrival(arriveHere);
  if (!session.isPossible) disableSignIn();
  else if (brought) await takeOver();
  else if (session.isUnused()) leave("You were signed out after 12 hours without use.");
  else if (session.key && session.profile) await resume();
  else showSignIn("");
}

async function arriveHere() {
  brought = takeFromAddress();
  if (brought) await takeOver();
  else showView();
}

// A key that a link brought, or the one in use.
async function takeOver() {
  if (session.isUnused()) leave("");
  const isNew = await signInFromAddress(brought, leave);
  if (!session.key) return;
  if (isNew) await enter({ isNew });
  else if (view) showView();
  else await resume();
  const { key, profile } = session;
  if (isNew && key !== brought && (await staySignedIn(profile.name))) session.begin(key, profile, true);
}

async function signOut() {
  await sendAll();
  const undone = [unshipped() && `Not shipped yet: ${unshipped()}.`, session.unsaved && `Not saved: ${session.unsaved}.`].filter(Boolean);
  if (undone.length && !(await leaveUndone(undone.join(" ")))) return;
  history.replaceState(null, "", "#/");
  leave("", { keeps: false });
  announce("You've signed out.");
}

// After a reload: the stored profile of the key is good enough to start with.
async function resume() {
  await enter();
  if (!session.key) return;
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
