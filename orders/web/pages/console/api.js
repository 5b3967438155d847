// The client for version 2 of the API: sends requests with the key, caches answers, tracks limits.

import { session } from "./session.js";
import { compareClock, now } from "./time.js";

const SECONDS_TO_ANSWER = 20;
const STREAM = "text/event-stream";
const FILE = "application/octet-stream";
const CACHED_ANSWERS = 30;
// An administrator may lift a limit before its end. Few enough not to be blocked for asking.
const PROBE_MS = 30_000;

/** An error answer, with its `status` and `code`; `wait` is its Retry-After, in seconds. */
export class Refusal extends Error {
  constructor(status, code, message, wait) {
    super(message);
    Object.assign(this, { status, code, wait });
  }
}

/** No answer: the request may or may not have arrived. */
export class NoAnswer extends Error {}

/** Both limits as of the last answer, and until when nothing may be sent (in ms; 0: now). */
export const limits = { minute: null, day: null, until: 0, banned: false };

/**
 * Dispatches `limits`, `resumed` (requests may be sent again), `connection` (with whether there is one),
 * `clock` (it is wrong, or right again) and `ended` (the key is invalid).
 */
export const serviceEvents = new EventTarget();

const cache = new Map();
const underWay = new Set();
let probe = 0;

/** Clear the cached answers. */
export function clearCache() {
  cache.clear();
}

/** Clear the limits, of a key that is no longer used. */
export function clearLimits() {
  clearTimeout(probe);
  Object.assign(limits, { minute: null, day: null, until: 0, banned: false });
}

/** Return the cached answer to this path, or undefined. */
export function cached(path) {
  return cache.get(path)?.data;
}

/** Return the ETag of the cached answer to this path. */
export function etagOf(path) {
  return cache.get(path)?.etag;
}

/** Return for how many seconds nothing may be sent. */
export function mustWait() {
  return Math.max(0, Math.ceil((limits.until - now()) / 1000));
}

/**
 * Get a resource, from the cache if it has not changed.
 * Throws Refusal, NoAnswer, or AbortError if `signal` is aborted.
 */
export async function get(path, { signal, key } = {}) {
  const entry = cache.get(path);
  const headers = entry ? { "If-None-Match": entry.etag } : {};
  const answer = await send("GET", path, { headers, signal, key });
  if (answer.status === 304) return entry.data;
  const data = parse(answer.text);
  const etag = answer.headers.get("ETag");
  if (etag && !key) keep(path, { etag, data });
  return data;
}

/**
 * Open a stream of the events after one; returns its body, which goes on until `signal` is aborted.
 * Throws as `get` does, also where a service or a proxy has no streams.
 */
export async function openEvents(after, signal) {
  const answer = await send("GET", `store/events?after=${after}&limit=1`, { headers: { Accept: STREAM }, signal });
  if (!answer.body) throw new Refusal(406, "", "", 0);
  return answer.body;
}

/** Wait for the answers of changes under way: only they say which events are this page's own. */
export async function changesAnswered() {
  while (underWay.size) await Promise.allSettled(underWay);
}

/**
 * Send a change, to be done only to the version of this `etag` if there is one. Sent again under the
 * same `name`, it is done once. With `keepalive` it outlives the page. A form as the body is sent as one; the answer may
 * take so many `seconds`. Returns the answer's data
 * (null if there is none), and whether the change had been done before.
 */
export async function change(method, path, body, { name, etag, keepalive = false, seconds }) {
  const headers = { "Idempotency-Key": name };
  const isForm = body instanceof FormData;
  if (body !== undefined && !isForm) headers["Content-Type"] = "application/json";
  if (etag) headers["If-Match"] = etag;
  const sent = send(method, path, { headers, keepalive, seconds, body: isForm ? body : body && JSON.stringify(body) });
  underWay.add(sent);
  const answer = await sent.finally(() => underWay.delete(sent));
  return {
    data: answer.text ? parse(answer.text) : null,
    isReplayed: answer.headers.get("Idempotent-Replayed") === "true",
  };
}

/**
 * Save a resource as a file of this name: as it comes where the browser can, else once all of it is here. The key is in
 * a header, never in an address. `shown` is called with the bytes so far and in all. Returns whether it was saved.
 */
export async function download(path, name, { signal, shown }) {
  const target = await chosenFile(name);
  if (target === null) return false;
  const { body, headers } = await send("GET", path, { headers: { Accept: FILE }, signal });
  const all = Number(headers.get("Content-Length"));
  let done = 0;
  const counting = new TransformStream({ transform: (piece, to) => { done += piece.length; shown(done, all); to.enqueue(piece); } });
  const counted = body.pipeThrough(counting);
  try {
    if (target) await counted.pipeTo(await target.createWritable(), { signal });
    else saveBlob(await new Response(counted).blob(), name);
  } catch (failure) {
    throw signal.aborted ? aborted() : done === all ? failure : new NoAnswer();
  }
  return true;
}

// Null if nobody wants it; undefined where the browser has no such question, as over http.
async function chosenFile(name) {
  try {
    return await window.showSaveFilePicker?.({ suggestedName: name });
  } catch {
    return null;
  }
}

function saveBlob(blob, name) {
  const link = document.createElement("a");
  Object.assign(link, { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Return the key that the service hands over, once, for a code; null where it has none for that. */
export async function redeem(code) {
  const { ok, text } = await reach("console/key", null, { method: "POST", body: code, cache: "no-store", credentials: "omit", redirect: "error" });
  return ok ? parse(text).key : null;
}

/** Return a code that hands the key over to a phone: its `path` and `modules`, and the `address`, null without one. */
export async function phoneCode() {
  const { ok, status, text } = await reach("console/phone", null, { method: "POST", body: session.key, cache: "no-store", credentials: "omit", redirect: "error" });
  if (!ok) throw new Refusal(status, "", "", 0);
  return parse(text);
}

/** Return a new name for a change. Not randomUUID, which requires a secure connection. */
export function newName() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Return what JSON says. Pet numbers beyond JavaScript's exact integers are kept as their text. Older
 * browsers don't provide that text; they show a remark instead of a wrong number.
 */
export function parse(text) {
  return JSON.parse(text, (name, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) ? context?.source ?? "too long for this browser" : value);
}

async function send(method, path, { headers, body, signal, key, keepalive, seconds, isProbe }) {
  if (mustWait() && !isProbe) throw tooSoon();
  const sent = key ?? session.key;
  const answer = await reach(`v2/${path}`, signal, {
    method,
    body,
    keepalive,
    headers: { ...headers, Authorization: `Bearer ${sent}` },
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  }, seconds);
  // After signing out, answers must not reach the next person who signs in.
  if (!key && sent !== session.key) throw Object.assign(aborted(), { status: answer.status });
  if (method !== "GET") session.own = answer.headers.get("X-Request-Id");
  if (compareClock(answer.headers.get("Date"))) dispatch("clock");
  updateLimits(answer);
  if (answer.ok || answer.status === 304) return answer;
  throw refusal(answer, sent);
}

// The time limit, and an abort, apply until the whole body has arrived; of a stream, which is not
// read here, until it begins.
async function reach(path, signal, request, seconds = SECONDS_TO_ANSWER) {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), seconds * 1000);
  const stop = () => controller.abort();
  signal?.addEventListener("abort", stop);
  try {
    if (signal?.aborted) throw aborted();
    const response = await fetch(path, { ...request, signal: controller.signal });
    const { status, ok, headers, body } = response;
    const isStream = ok && [STREAM, FILE].some((each) => headers.get("Content-Type")?.startsWith(each));
    const text = isStream ? "" : await response.text();
    if (signal?.aborted) throw aborted();
    dispatch("connection", true);
    return { status, ok, headers, text, body: isStream ? body : null };
  } catch {
    if (signal?.aborted) throw aborted();
    dispatch("connection", false);
    throw new NoAnswer();
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

function aborted() {
  return new DOMException("", "AbortError");
}

function refusal({ status, headers, text }, key) {
  const error = parseError(text);
  const wait = Number(headers.get("Retry-After")) || 0;
  if (status === 429) {
    limits.until = now() + Math.max(1, wait) * 1000;
    limits.banned = error.code === "api_key_banned";
    dispatch("limits");
    probeLater();
  }
  if (status === 401 && key === session.key) dispatch("ended");
  return new Refusal(status, error.code || "", error.message || "", wait);
}

function probeLater() {
  clearTimeout(probe);
  if (!session.key || mustWait() * 1000 <= PROBE_MS) return;
  probe = setTimeout(() => send("GET", "usage", { isProbe: true }).catch(probeLater), PROBE_MS);
}

// A reverse proxy may answer with an error page of its own.
function parseError(text) {
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
function updateLimits({ ok, status, headers }) {
  const remainders = headers.get("RateLimit") || "";
  const policy = headers.get("RateLimit-Policy") || "";
  for (const [, name, remaining, seconds] of remainders.matchAll(/"(\w+)";r=(\d+);t=(\d+)/g)) {
    const limit = Number(policy.match(new RegExp(`"${name}";q=(\\d+)`))?.[1]);
    const resets = now() + Number(seconds) * 1000;
    limits[name] = { limit, remaining: Number(remaining), resets };
  }
  const isOver = limits.until > 0 && (ok || status === 304);
  if (isOver) limits.until = 0;
  dispatch("limits");
  if (isOver) dispatch("resumed");
}

function keep(path, answer) {
  cache.delete(path);
  cache.set(path, answer);
  if (cache.size > CACHED_ANSWERS) cache.delete(cache.keys().next().value);
}

function dispatch(type, detail) {
  serviceEvents.dispatchEvent(new CustomEvent(type, { detail }));
}
