// The events as they come: a stream that all tabs with the same key share, where the browser lets
// them. One of them holds a lock, reads the stream, and passes on what arrives.

import { mustWait, openEvents, parse } from "./api.js";
import { session } from "./session.js";
import { now } from "./time.js";

const HEARTBEAT_MS = 15_000;
const SILENCE_MS = HEARTBEAT_MS + 5_000;
// A stream that ended sooner failed.
const STEADY_MS = 10_000;
const RETRY_MS = 1000;
const SPREAD_MS = 500;
const MOST_BACK_OFF_MS = 600_000;

/**
 * Return a function that takes the text of a stream of Server-Sent Events as it arrives, and returns
 * the fields of those that are complete.
 */
export function eventParser() {
  let rest = "";
  let fields = {};
  return (text) => {
    const lines = (rest + text).split(/\r?\n/);
    const events = [];
    rest = lines.pop();
    for (const line of lines) {
      const [, name, value] = line.match(/^(\w+): ?(.*)$/) || [];
      if (name) fields[name] = name in fields ? `${fields[name]}\n${value}` : value;
      if (line || !Object.keys(fields).length) continue;
      events.push(fields);
      fields = {};
    }
    return events;
  };
}

/**
 * Calls `heard` with the events that arrive and the id `after` which they follow, and `changed` when `isLive` has.
 * `begin` returns the id to go on from, once it is known, and `position` the last one seen. `spend` counts a request.
 */
export class Line {
  #calls;
  #lock = null;
  #channel = null;
  #leading = null;
  #connection = null;
  #wake = () => {};
  #retry = RETRY_MS;
  #failures = 0;
  #heardAt = 0;
  isLive = false;

  constructor(calls) {
    this.#calls = calls;
  }

  /** Listen to the tab that reads the stream. Without locks, as on an insecure connection, each that is seen reads its own. */
  async listen() {
    if (!navigator.locks || !window.BroadcastChannel) return;
    const [lock, channel] = await Promise.all([nameFor("lock"), nameFor("channel")]);
    this.#lock = lock;
    this.#channel = new BroadcastChannel(channel);
    this.#channel.addEventListener("message", ({ data }) => {
      if (data !== "join") this.#hear(data);
      else if (this.#connection && this.isLive) this.#channel.postMessage({ after: this.#calls.position(), events: [] });
    });
    this.#channel.postMessage("join");
  }

  /** Read the stream, if `isWanted` and no other tab does; otherwise let another. */
  lead(isWanted) {
    // A browser has six connections to a service, for all tabs.
    const leads = isWanted && Boolean(this.#lock || !document.hidden);
    if (leads === Boolean(this.#leading)) return;
    if (leads) {
      this.#leading = new AbortController();
      this.#queue(this.#leading.signal).catch(() => {});
    } else {
      this.#leading.abort();
      this.#leading = null;
      this.reopen();
    }
  }

  /** Leave for good. */
  close() {
    this.lead(false);
    this.#channel?.close();
    this.#channel = null;
  }

  /** Open the stream again, or at once instead of later: what it ran over may be gone. */
  reopen() {
    this.#connection?.abort();
    this.#wake();
  }

  /** Reopen the stream, or don't count on the tab that reads it, if nothing is heard for too long. */
  check() {
    if (!this.isLive || now() - this.#heardAt < SILENCE_MS) return;
    if (this.#connection) this.reopen();
    else this.#become(false);
  }

  async #queue(signal) {
    if (this.#lock) await navigator.locks.request(this.#lock, { signal }, () => this.#follow(signal));
    else await this.#follow(signal);
  }

  async #follow(signal) {
    while (!signal.aborted) {
      const wait = await this.#read();
      this.#connection = null;
      this.#become(false);
      this.#channel?.postMessage({ isDown: true });
      if (signal.aborted) return;
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, wait);
      });
    }
  }

  // Until it ends; returns after how many ms to come back.
  async #read() {
    const begun = now();
    this.#connection = new AbortController();
    const { signal } = this.#connection;
    try {
      if (mustWait()) return mustWait() * 1000;
      const after = await this.#calls.begin();
      const body = await openEvents(after, signal);
      this.#calls.spend(1);
      await this.#receive(body.getReader(), after, signal);
    } catch (failure) {
      if (failure.status) return this.#backOff(failure);
    }
    if (signal.aborted) return 0;
    const isSteady = !this.isLive || now() - begun > STEADY_MS;
    this.#failures = isSteady ? 0 : this.#failures + 1;
    if (this.#failures > 1) return this.#backOff({});
    const wait = this.#retry + Math.random() * SPREAD_MS;
    // The service's delay as it stops is for its return, not for each try until then.
    this.#retry = RETRY_MS;
    return wait;
  }

  // Refused: as long as it says, or each time twice as long.
  #backOff({ wait }) {
    this.#failures += 1;
    return wait ? wait * 1000 : Math.min(MOST_BACK_OFF_MS, 1000 * 2 ** this.#failures);
  }

  async #receive(reader, after, signal) {
    const [decoder, read] = [new TextDecoder(), eventParser()];
    signal.addEventListener("abort", () => reader.cancel().catch(() => {}));
    this.#pass({ after, events: [] });
    let minutes = 1;
    const begun = now();
    while (!signal.aborted) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return;
      const told = read(decoder.decode(value, { stream: true }));
      for (const { retry } of told) this.#retry = Number(retry) || this.#retry;
      const events = told.filter(({ data }) => data).map(({ data }) => parse(data));
      this.#pass({ after, events });
      after = events.at(-1)?.id ?? after;
      if (now() - begun < minutes * 60_000) continue;
      minutes += 1;
      this.#calls.spend(1);
    }
  }

  #pass(news) {
    this.#hear(news);
    this.#channel?.postMessage(news);
  }

  #hear({ isDown, after, events }) {
    if (!isDown) {
      this.#heardAt = now();
      this.#calls.heard(after, events);
    }
    this.#become(!isDown);
  }

  #become(isLive) {
    const hasChanged = this.isLive !== isLive;
    this.isLive = isLive;
    if (hasChanged) this.#calls.changed();
  }
}

// A hash of the key. Any page of this origin, such as /docs, can list the names of locks, which must not reveal the channel's.
async function nameFor(use) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`${use} ${session.key}`));
  return `${use} ${[...new Uint8Array(digest, 0, 16)].join(".")}`;
}
