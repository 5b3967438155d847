// The key and its profile, kept in this tab's sessionStorage until somebody signs out. Closing the
// tab is not enough: browsers restore closed tabs with their storage.

const KEY = "key";
const PROFILE = "profile";
const PLACE = "watch";
const DRAFT = "draft";

export const session = {
  /** Whether the browser lets this page store anything. */
  get isPossible() {
    try {
      return Boolean(sessionStorage);
    } catch {
      return false;
    }
  },

  /** Ids of requests made by this page, whose events are no news. */
  own: new Set(),

  /** The key's name, plan and scopes, as last returned by getUsage. */
  get profile() {
    return read(PROFILE);
  },

  set profile(value) {
    write(PROFILE, value);
  },

  get key() {
    return sessionStorage.getItem(KEY);
  },

  /** Store a key that works. */
  begin(key, profile) {
    sessionStorage.setItem(KEY, key);
    this.profile = profile;
  },

  /** Forget everything. */
  end() {
    sessionStorage.clear();
    this.own.clear();
  },

  get mayWrite() {
    return Boolean(this.profile?.scopes.includes("write"));
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
};

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

function write(name, value) {
  if (value === null) sessionStorage.removeItem(name);
  else sessionStorage.setItem(name, JSON.stringify(value));
}
