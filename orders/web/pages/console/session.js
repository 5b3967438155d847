// The key, and what is known of it. It is in sessionStorage only: this tab's, until somebody signs
// out. Closing the tab is less sure: browsers give tabs back with what they kept.

const KEY = "key";
const PROFILE = "profile";
const PLACE = "watch";
const DRAFT = "draft";

export const session = {
  /** Whether the browser keeps anything for this page: it may be told not to. */
  get isPossible() {
    try {
      return Boolean(sessionStorage);
    } catch {
      return false;
    }
  },

  /** The requests of this page, by their ids: their events are no news. */
  own: new Set(),

  /** What getUsage told of the key last: name, plan, scopes. */
  get profile() {
    return read(PROFILE);
  },

  set profile(value) {
    write(PROFILE, value);
  },

  get key() {
    return sessionStorage.getItem(KEY);
  },

  /** Remember a key that was seen to open the shop. */
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

  /** The order that is being written, with the value that keeps it from being placed twice. */
  get draft() {
    return read(DRAFT) || {};
  },

  // What comes back after the sign-out leaves nothing behind.
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
