// Signing in with a key.

import { switchKey } from "./actions.js";
import { get, mustWait, redeem } from "./api.js";
import { byId, setText } from "./dom.js";
import { lasting } from "./format.js";
import { announce, describe, NO_LONGER_VALID } from "./notices.js";
import { session } from "./session.js";

const KEY_PATTERN = /^sok_(test_)?[0-9A-Za-z]+$/;
const SPENT = "This link works once, within five minutes. Get another, or enter your key.";
// Hashes of keys that worked here, so that what ended them is not taken for a mistake.
const worked = new Set();

/**
 * Sign in with what an address brought: a key, or a code for one, as the service's start opens it. Where another key is
 * in use, which `leave` ends, the person is asked. Resolves to whether there is a new one in use.
 */
export async function signInFromAddress(brought, leave) {
  try {
    const isKey = KEY_PATTERN.test(brought);
    const key = isKey ? brought : await redeem(brought);
    if (!key) throw new Error(SPENT);
    if (key === session.key) return false;
    const profile = await get("usage", { key });
    if (await isInUse()) {
      if (!(await switchKey(session.profile.name, profile.name))) return false;
      leave("");
    }
    session.begin(key, profile, false);
    worked.add(fingerprint(key));
    return true;
  } catch (failure) {
    if (!session.key) showSignIn(failure.message === SPENT ? SPENT : describe(failure));
    return false;
  }
}

// One that is no longer valid ends here: a new store knows none of an earlier one's.
async function isInUse() {
  if (!session.key || !session.profile) return false;
  try {
    await get("usage");
  } catch (failure) {
    if (failure.status !== 401) throw failure;
  }
  return Boolean(session.key);
}

/** Prepare the form; `enter` is called when somebody has signed in. */
export function prepareSignIn(enter) {
  byId("sign-in-form").addEventListener("submit", (event) => signIn(event, enter));
  byId("key-shown").addEventListener("change", ({ target }) => {
    byId("key").type = target.checked ? "text" : "password";
  });
}

async function signIn(event, enter) {
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
    session.begin(key, profile, byId("key-remembered").checked);
    worked.add(fingerprint(key));
    field.value = "";
    await enter();
    byId("view").querySelector("h1")?.focus({ preventScroll: true });
    announce(`Signed in as ${profile.name}.`);
  } catch (failure) {
    if (failure.status === 429) waitToSignIn(button, failure);
    else showFault(failure.status === 401 && worked.has(fingerprint(key)) ? NO_LONGER_VALID : describe(failure));
  } finally {
    button.disabled = mustWait() > 0;
  }
}

function fingerprint(key) {
  return [...key].reduce((hash, each) => Math.imul(hash ^ each.charCodeAt(0), 16777619), 2166136261);
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

/** Show the form, with a notice if there is one. */
export function showSignIn(notice) {
  byId("shop").hidden = true;
  byId("sign-in").hidden = false;
  setText(byId("sign-in-notice"), notice);
  // The next key starts hidden again.
  byId("key-shown").checked = false;
  byId("key-remembered").checked = false;
  byId("key").type = "password";
  document.title = "Sign in · Store Orders";
  byId("key").focus();
}

/** Show that nobody can sign in: without storage, the key would be forgotten at once. */
export function disableSignIn() {
  for (const each of byId("sign-in-form").elements) each.disabled = true;
  showSignIn("This browser doesn't let the page store anything, not even your key. " +
    "Allow this site to store data (cookies) in the browser's settings, then reload the page.");
}
