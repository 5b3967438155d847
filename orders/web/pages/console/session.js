// The key and its profile, kept until somebody signs out: in this tab's sessionStorage, or on this
// computer, in localStorage, where that was asked for. Closing the tab is not enough to forget the
// key: browsers restore closed tabs with their storage. So it is forgotten after hours without use.

const KEY = "key";
const PROFILE = "profile";
const PLACE = "watch";
const DRAFT = "draft";
const ALERTS = "alerts";
const LEFT = "left";
const BACKUPS = "backups";
const CHOSEN = "chosen";
const OUTBOX = "outbox";
const CHANGES = "changes";
const USED = "used";
const OWN = "own";
const PAPER = "paper";
const UNUSED_MS = 12 * 3600 * 1000;
const MOST_OWN = 100;
const TEST_PREFIX = "sok_test_";
// These outlast a key, and so have other names in test mode: orders of the same number are not the same there.
const OUTLASTING = [DRAFT, CHANGES, OUTBOX, LEFT];

export const session = {
  /** Whether the browser lets this page store anything. */
  get isPossible() {
    try {
      return Boolean(sessionStorage && localStorage);
    } catch {
      return false;
    }
  },

  /** Ids of requests made by this page, whose events are no news. */
  get own() {
    return new Set(read(OWN));
  },

  set own(id) {
    write(OWN, [...this.own, id].slice(-MOST_OWN));
  },

  /** The key's id, name, plan and scopes, as last returned by getUsage. */
  get profile() {
    return read(PROFILE, home());
  },

  set profile(value) {
    write(PROFILE, value, home());
  },

  get key() {
    return home().getItem(KEY);
  },

  /** Whether the key is one of test mode, in which nothing is real. */
  get isTest() {
    return Boolean(this.key?.startsWith(TEST_PREFIX));
  },

  get isRemembered() {
    return home() === localStorage;
  },

  /** Store a key that works. */
  begin(key, profile, isRemembered) {
    (isRemembered ? localStorage : sessionStorage).setItem(KEY, key);
    this.profile = profile;
    this.use();
  },

  /** Note that somebody uses the page. */
  use(now = Date.now()) {
    sessionStorage.setItem(USED, `${now}`);
  },

  /**
   * Whether nobody used the page for so long that the key is to be forgotten: by this computer's clock, since after a
   * reload nothing is known of the service's, and days could lie between both.
   */
  isUnused(now = Date.now()) {
    return Boolean(this.key) && !this.isRemembered && now - Number(sessionStorage.getItem(USED)) > UNUSED_MS;
  },

  /** Forget everything but the paper in the printer and, with `keeps`, what somebody typed or pressed and is not done. */
  end({ keeps = false } = {}) {
    const { paper } = this;
    const names = [DRAFT, CHANGES, OUTBOX].flatMap((name) => [name, inTestMode(name)]);
    const kept = keeps ? names.map((name) => [name, sessionStorage.getItem(name)]) : [];
    sessionStorage.clear();
    localStorage.clear();
    for (const [name, value] of kept) if (value !== null) sessionStorage.setItem(name, value);
    if (paper) this.paper = paper;
  },

  get mayWrite() {
    return Boolean(this.profile?.scopes.includes("write"));
  },

  get mayRead() {
    return Boolean(this.profile?.scopes.includes("read"));
  },

  get mayManageWebhooks() {
    return Boolean(this.profile?.scopes.includes("webhooks"));
  },

  get mayAdmin() {
    return Boolean(this.profile?.scopes.includes("admin"));
  },

  get place() {
    return read(PLACE) || {};
  },

  set place(value) {
    write(PLACE, value);
  },

  /** The order being entered, with its Idempotency-Key. */
  get draft() {
    return read(DRAFT) || {};
  },

  // Nothing is stored after signing out, even by late answers.
  set draft(value) {
    if (this.key) write(DRAFT, value);
  },

  /** How new orders are announced: whether by a `sound`, and by a `notification`. */
  get alerts() {
    return read(ALERTS, home()) || {};
  },

  set alerts(value) {
    write(ALERTS, value, home());
  },

  /** The last day on which the place of backups was shown. */
  get toldOfBackups() {
    return read(BACKUPS, home());
  },

  set toldOfBackups(day) {
    write(BACKUPS, day, home());
  },

  /** The ids of the orders chosen in the list of a place. */
  get chosen() {
    return read(CHOSEN) || { ids: [] };
  },

  set chosen(value) {
    if (this.key) write(CHOSEN, value);
  },

  /** Typed changes of orders that are not saved, by order. */
  get changes() {
    return read(CHANGES) || {};
  },

  /** Keep what was typed to change an order; null to forget it. */
  keepChange(id, typed) {
    const { [id]: before, ...others } = this.changes;
    if (!this.key || !(before || typed)) return;
    const all = typed ? { ...others, [id]: typed } : others;
    write(CHANGES, Object.keys(all).length ? all : null);
  },

  /** Say what is typed and not saved; an empty text if nothing is. */
  get unsaved() {
    const orders = Object.keys(this.changes);
    return [orders.length && `changes of order ${orders.join(", ")}`, this.draft.values && "a new order"].filter(Boolean).join(" and ");
  },

  /** Shipments that were pressed and not answered yet. */
  get outbox() {
    return read(OUTBOX) || [];
  },

  set outbox(entries) {
    write(OUTBOX, entries.length ? entries : null);
  },

  /** The last print on this computer: slips or labels, and the paper. */
  get paper() {
    return read(PAPER, localStorage);
  },

  set paper(value) {
    write(PAPER, value, localStorage);
  },

  /** Ids of orders that were being shipped when the page was left. */
  get left() {
    return read(LEFT, localStorage) || [];
  },

  set left(ids) {
    write(LEFT, ids.length ? ids : null, localStorage);
  },
};

/**
 * Return what the address has after `#key=`, a key or a code for one, and remove it from there before anything else
 * can see it; null without.
 */
export function takeFromAddress() {
  const [, brought] = location.hash.match(/^#key=(\w+)$/) || [];
  if (brought) history.replaceState(null, "", "#/");
  return brought || null;
}

function home() {
  return localStorage.getItem(KEY) ? localStorage : sessionStorage;
}

function inTestMode(name) {
  return `test ${name}`;
}

function stored(name) {
  return OUTLASTING.includes(name) && session.isTest ? inTestMode(name) : name;
}

function read(name, storage = sessionStorage) {
  try {
    return JSON.parse(storage.getItem(stored(name)));
  } catch {
    return null;
  }
}

function write(name, value, storage = sessionStorage) {
  if (value === null) storage.removeItem(stored(name));
  else storage.setItem(stored(name), JSON.stringify(value));
}
