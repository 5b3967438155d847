// The page's start: the door, the frame around the views, and what happens by itself.

import { forget, get, happenings, limits, mustWait, Refusal } from "./api.js";
import { byId, el, tell } from "./dom.js";
import { clock, counted, lasting, soon, when } from "./format.js";
import { figuresView } from "./figures.js";
import { keyView, may } from "./key.js";
import { newView } from "./new.js";
import { banner, say } from "./notices.js";
import { orderView } from "./order.js";
import { ordersView } from "./orders.js";
import { go, here, onArrival, restoreScroll } from "./router.js";
import { session } from "./session.js";
import { Watch } from "./watch.js";
import { inWords } from "./words.js";

const VIEWS = { orders: ordersView, order: orderView, figures: figuresView, key: keyView, new: newView };
const TYPES = { "order.placed": "was placed", "order.shipped": "has shipped", "order.cancelled": "was cancelled", "order.imported": "was taken over from a file" };
const SHAPE = /^sok_[0-9A-Za-z]+$/;

let view = null;
let shown = "";
let watch = null;
let isCutOff = false;

/** What views may ask of the page around them. */
const shop = {
  /** How many orders there are of each status, as last told. */
  counts: null,

  /** Take in what getStats told. */
  tellFigures(figures) {
    this.counts = figures.byStatus;
    tellOfPauses(figures.pausedWebhooks || []);
  },

  /** Something was changed on this page. Gives when that is shown. */
  changedHere() {
    return view?.changed([]);
  },
};

function tellOfPauses(paused) {
  if (!paused.length) return banner("webhooks", "");
  const numbers = paused.map(({ id }) => id).join(", ");
  const since = when(paused.map((each) => each.since).sort()[0]);
  return banner("webhooks", `Another system has not been told of changes since ${since}. Nothing is lost: they wait. ` +
    `Tell whoever looks after the service that webhook ${numbers} is paused.`);
}

// The door.

async function signIn(event) {
  event.preventDefault();
  const field = byId("key");
  const key = field.value.trim();
  const fault = SHAPE.test(key) ? "" : key ? "This is no key: a key begins with sok_." : "Write or paste your key.";
  showFault(fault);
  if (fault) return;
  const button = event.target.querySelector("[type=submit]");
  button.disabled = true;
  try {
    const profile = await get("usage", { key });
    session.begin(key, profile);
    field.value = "";
    await enter();
    say(`Signed in as ${profile.name}.`);
  } catch (failure) {
    if (failure.status === 429) waitAtTheDoor(button, failure);
    else showFault(inWords(failure));
  } finally {
    button.disabled = mustWait() > 0;
  }
}

function waitAtTheDoor(button, failure) {
  showFault(inWords(failure));
  const timer = setInterval(() => {
    button.textContent = mustWait() ? `In ${lasting(mustWait())}` : "Sign in";
    button.disabled = mustWait() > 0;
    if (mustWait()) return;
    clearInterval(timer);
    showFault("");
  }, 500);
}

function showFault(text) {
  tell(byId("key-fault"), text);
  byId("key").toggleAttribute("aria-invalid", Boolean(text));
  if (text) byId("key").setAttribute("aria-invalid", "true");
  if (text) byId("key").focus();
}

function showDoor(notice) {
  byId("shop").hidden = true;
  byId("door").hidden = false;
  tell(byId("door-notice"), notice);
  // The next key is not shown because the last one was.
  byId("key-shown").checked = false;
  byId("key").type = "password";
  document.title = "Sign in · Store Orders";
  byId("key").focus();
}

// A browser that keeps nothing for pages forgets the key at once.
function closeDoor() {
  for (const each of byId("sign-in").elements) each.disabled = true;
  showDoor("This browser lets the page keep nothing, not even the key while you use it. " +
    "Allow this address to store data (cookies) in the browser's settings, then load the page again.");
}

function lost() {
  return session.draft.values ? " The order that you were writing was not kept: write it again with the new key." : "";
}

function leave(notice) {
  watch?.stop();
  view?.dispose();
  [watch, view, shown, shop.counts] = [null, null, "", null];
  session.end();
  forget();
  byId("view").replaceChildren();
  byId("banners").replaceChildren();
  byId("question").close();
  showDoor(notice);
}

// The frame.

async function enter() {
  const known = session.place.last !== undefined;
  // A list that is older than the place in the log would miss what was between.
  const watching = startWatch();
  if (!known) await watching;
  if (!session.key) return;
  byId("door").hidden = true;
  byId("shop").hidden = false;
  const { name, scopes } = session.profile;
  byId("who-name").textContent = name;
  byId("who-may").textContent = may(scopes);
  for (const each of document.querySelectorAll("[data-writes]")) each.hidden = !session.mayWrite;
  showView();
}

async function startWatch() {
  watch = new Watch();
  watch.addEventListener("looked", showLooked);
  watch.addEventListener("changes", ({ detail }) => tellNews(detail));
  await watch.start();
}

function showView() {
  if (!session.profile) return;
  const place = here();
  const name = place.name === "orders" && place.id ? "order" : place.name;
  const known = Object.hasOwn(VIEWS, name) && (name !== "new" || session.mayWrite);
  if (!known) {
    go("#/orders", { replace: true });
    return;
  }
  const isAnother = shown !== `${name}/${place.id}`;
  if (isAnother) changeView(name, place);
  view.update(place);
  if (isAnother) arriveAt(name, place);
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
  // Whoever listens is told where they are; a load begins at the top by itself.
  if (!isFirst) (byId("view").querySelector("h1") || byId("view")).focus({ preventScroll: true });
  isFirst = false;
}

// What happens by itself.

function tellNews({ events, skipped }) {
  const news = events.filter((event) => !session.own.has(event.requestId));
  if (!news.length && !skipped) return;
  watch.spend(2);
  view?.changed(skipped ? [] : news);
  const orders = new Set(news.map((event) => event.orderId));
  if (orders.size === 1) say(`Order ${news[0].orderId} ${TYPES[news.at(-1).type] || "was changed"}.`);
  else say(skipped ? "Many orders were changed elsewhere." : `${counted(orders.size, "order")} were changed elsewhere.`);
}

function showLooked({ detail }) {
  const { lookedAt, nextAt } = watch;
  const at = lookedAt && el("time", { datetime: new Date(lookedAt).toISOString(), text: clock(lookedAt) });
  byId("looked").replaceChildren(at ? "Looked at " : "Could not look yet, ", at || "",
    el("span", { text: detail.failed ? `tries again at ${clock(nextAt)}` : `again in ${lasting(detail.seconds)}` }));
}

async function lookNow() {
  const button = byId("look");
  if (mustWait() || !watch) return;
  button.setAttribute("aria-busy", "true");
  await watch.look();
  await view?.changed([]);
  button.removeAttribute("aria-busy");
}

function showLimits() {
  const left = mustWait();
  byId("look").disabled = left > 0;
  if (!left) {
    banner("limits", "");
    return;
  }
  const why = limits.banned ? "This key asked on and on, and is shut out for a while" : "This key has asked as often as it may for now";
  banner("limits", `${why}. It goes on at ${soon(limits.until)}.`);
  setTimeout(showLimits, left * 1000);
}

function showConnection({ detail: isThere }) {
  if (isThere === !isCutOff) return;
  isCutOff = !isThere;
  if (!session.profile) return;
  banner("connection", isThere ? "" : "There is no connection to the shop's service. What you see may be old. It is tried again by itself.");
  if (!isThere) return;
  say("Connected again.");
  view?.changed([]);
}

async function begin() {
  byId("sign-in").addEventListener("submit", signIn);
  byId("key-shown").addEventListener("change", ({ target }) => {
    byId("key").type = target.checked ? "text" : "password";
  });
  byId("sign-out").addEventListener("click", () => {
    history.replaceState(null, "", "#/");
    leave("");
    say("You are signed out.");
  });
  byId("look").addEventListener("click", lookNow);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("view").focus();
  });
  happenings.addEventListener("limits", showLimits);
  happenings.addEventListener("connection", showConnection);
  happenings.addEventListener("ended", () => session.profile && leave(inWords(new Refusal(401)) + lost()));
  onArrival(showView);
  if (!session.isPossible) closeDoor();
  else if (session.key && session.profile) await comeBack();
  else showDoor("");
}

// After a reload: what was known of the key is good enough to begin with.
async function comeBack() {
  await enter();
  const { scopes } = session.profile;
  try {
    const profile = await get("usage");
    if (!session.key) return;
    session.profile = profile;
    if (`${profile.scopes}` !== `${scopes}`) location.reload();
  } catch {
    // The view tells what is wrong, and a key that opens nothing any more leads to the door.
  }
}

begin();
