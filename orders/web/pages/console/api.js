// Version 2 of the interface, and nothing else: sends requests with the key, and knows its limits.

import { session } from "./session.js";

const SECONDS_TO_ANSWER = 20;
const PAGES_KEPT = 30;

/** The service refused: `status` and `code` as it says, `wait` in seconds where it gives them. */
export class Refusal extends Error {
  constructor(status, code, message, wait) {
    super(message);
    Object.assign(this, { status, code, wait });
  }
}

/** Nothing came back: whether the request arrived is not known. */
export class NoAnswer extends Error {}

/** Both windows as the last answer told, and until when nothing may be sent (in ms, 0: now). */
export const limits = { minute: null, day: null, until: 0, banned: false };

/** Tells `limits`, `connection` (with whether there is one) and `ended` (the key opens nothing). */
export const happenings = new EventTarget();

const kept = new Map();

/** Forget the answers that are kept. */
export function forget() {
  kept.clear();
  Object.assign(limits, { minute: null, day: null, until: 0, banned: false });
}

/** Give what was answered to this path before, or undefined. */
export function remembered(path) {
  return kept.get(path)?.data;
}

/** For how many seconds nothing may be sent. */
export function mustWait() {
  return Math.max(0, Math.ceil((limits.until - Date.now()) / 1000));
}

/**
 * Get something; an answer that is still good comes from memory.
 * Throws Refusal or NoAnswer; AbortError where `signal` says so.
 */
export async function get(path, { signal, key } = {}) {
  const known = kept.get(path);
  const headers = known ? { "If-None-Match": known.etag } : {};
  const answer = await send("GET", path, { headers, signal, key });
  if (answer.status === 304) return known.data;
  const data = parse(answer.text);
  const etag = answer.headers.get("ETag");
  if (etag && !key) keep(path, { etag, data });
  return data;
}

/** Change something; give the answer's data (null where it has none) and its headers. */
export async function change(method, path, body, headers = {}) {
  const json = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await send(method, path, {
    headers: { ...json, ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return { data: answer.text ? parse(answer.text) : null, headers: answer.headers };
}

// A pet's number may be longer than JavaScript's numbers are exact: it stays as it was written, and
// where an older browser doesn't tell how that was, no other number stands for it.
function parse(text) {
  return JSON.parse(text, (name, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) ? context?.source ?? "too long for this browser" : value);
}

async function send(method, path, { headers, body, signal, key }) {
  if (mustWait()) throw tooSoon();
  const sent = key ?? session.key;
  const answer = await reach(`v2/${path}`, signal, {
    method,
    body,
    headers: { ...headers, Authorization: `Bearer ${sent}` },
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  // Who asked may have signed out meanwhile: it is nothing to whoever signs in next.
  if (!key && sent !== session.key) throw givenUp();
  if (method !== "GET") session.own.add(answer.headers.get("X-Request-Id"));
  learn(answer);
  if (answer.ok || answer.status === 304) return answer;
  throw refusal(answer, sent);
}

// An answer is there when all of it is: until then it may be given up, and is not waited for longer.
async function reach(path, signal, request) {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), SECONDS_TO_ANSWER * 1000);
  const stop = () => late.abort();
  signal?.addEventListener("abort", stop);
  try {
    if (signal?.aborted) throw givenUp();
    const response = await fetch(path, { ...request, signal: late.signal });
    const text = await response.text();
    if (signal?.aborted) throw givenUp();
    tellOf("connection", true);
    const { status, ok, headers } = response;
    return { status, ok, headers, text };
  } catch {
    if (signal?.aborted) throw givenUp();
    tellOf("connection", false);
    throw new NoAnswer();
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

function givenUp() {
  return new DOMException("", "AbortError");
}

function refusal({ status, headers, text }, key) {
  const told = saidIn(text);
  const wait = Number(headers.get("Retry-After")) || 0;
  if (status === 429) {
    limits.until = Date.now() + Math.max(1, wait) * 1000;
    limits.banned = told.code === "api_key_banned";
    tellOf("limits");
  }
  if (status === 401 && key === session.key) tellOf("ended");
  return new Refusal(status, told.code || "", told.message || "", wait);
}

// A server in front may refuse with a page of its own.
function saidIn(text) {
  try {
    return JSON.parse(text) || {};
  } catch {
    return {};
  }
}

function tooSoon() {
  return new Refusal(429, limits.banned ? "api_key_banned" : "rate_limit_exceeded", "", mustWait());
}

// `"minute";r=59;t=42, "day";r=999;t=86342`, and in the policy `"minute";q=60;w=60, …`.
function learn({ headers }) {
  const standing = headers.get("RateLimit") || "";
  const policy = headers.get("RateLimit-Policy") || "";
  for (const [, name, remaining, seconds] of standing.matchAll(/"(\w+)";r=(\d+);t=(\d+)/g)) {
    const limit = Number(policy.match(new RegExp(`"${name}";q=(\\d+)`))?.[1]);
    const resets = Date.now() + Number(seconds) * 1000;
    limits[name] = { limit, remaining: Number(remaining), resets };
  }
  tellOf("limits");
}

function keep(path, answer) {
  kept.delete(path);
  kept.set(path, answer);
  if (kept.size > PAGES_KEPT) kept.delete(kept.keys().next().value);
}

function tellOf(what, detail) {
  happenings.dispatchEvent(new CustomEvent(what, { detail }));
}
