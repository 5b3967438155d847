// Looks for changes made elsewhere: the event log, asked again and again within a part of the
// key's limits. What has been seen, and how many requests that took, outlives a reload.

import { get, limits, mustWait } from "./api.js";
import { session } from "./session.js";

const AT_ONCE = 200;
const SOONEST_SECONDS = 4;
const HIDDEN_SECONDS = 60;
const MOST_BACK_OFF_SECONDS = 60;
// Ends of one window, as two answers tell them, differ by less than this.
const SAME_WINDOW_MS = 60_000;
const STRIDE = 1000;

/**
 * Give for how many seconds to wait before looking again: at most a tenth of the minute, and a
 * quarter of the day, spread over the time to its reset, of which `spent` requests are gone.
 * `round` is how many requests the last look took with what followed from it.
 */
export function pause({ minute, day }, now, { spent = 0, round = 1, hidden = false } = {}) {
  if (!minute || !day) return SOONEST_SECONDS;
  const share = Math.max(1, Math.min(day.limit / 4 - spent, day.remaining / 2));
  const seconds = Math.max(
    SOONEST_SECONDS,
    (600 / minute.limit) * round,
    Math.max(0, day.resets - now) / 1000 / share,
  );
  return hidden ? Math.max(HIDDEN_SECONDS, seconds * 5) : seconds;
}

/** Tells `looked` after each look, and `changes` with the events, and whether some were skipped. */
export class Watch extends EventTarget {
  #stopped = new AbortController();
  #timer = 0;
  #failures = 0;
  #round = 0;
  #looking = null;
  lookedAt = 0;
  nextAt = 0;

  /** Begin: find where the log ends, unless that is known from before a reload. */
  async start() {
    document.addEventListener("visibilitychange", this.#turn);
    addEventListener("online", this.#turn);
    if (session.place.last === undefined) return this.look();
    this.lookedAt = Date.now();
    return this.#plan();
  }

  /** End, for good. */
  stop() {
    this.#stopped.abort();
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#turn);
    removeEventListener("online", this.#turn);
  }

  /** Count requests that follow from a look: they are taken from the same share. */
  spend(requests) {
    const { last, spent = 0, resets = 0 } = session.place;
    const end = limits.day?.resets || 0;
    const before = Math.abs(end - resets) < SAME_WINDOW_MS ? spent : 0;
    session.place = { last, spent: before + requests, resets: end };
    this.#round += requests;
  }

  /** Look now; a look that is on its way is waited for. */
  look() {
    clearTimeout(this.#timer);
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  async #look() {
    this.#round = 0;
    try {
      const found = await this.#news();
      this.#failures = 0;
      this.lookedAt = Date.now();
      if (found.events.length || found.skipped) this.#tell("changes", found);
    } catch (failure) {
      if (failure.name === "AbortError") return;
      this.#failures += failure.status === 429 ? 0 : 1;
    }
    this.#plan();
  }

  #plan(waited = 0) {
    if (this.#stopped.signal.aborted) return;
    clearTimeout(this.#timer);
    const wait = this.#failures
      ? Math.min(MOST_BACK_OFF_SECONDS, 2 ** this.#failures)
      : pause(limits, Date.now(), {
        spent: session.place.spent,
        round: Math.max(1, this.#round),
        hidden: document.hidden,
      });
    const seconds = Math.max(wait - waited / 1000, mustWait(), 0);
    this.nextAt = Date.now() + seconds * 1000;
    this.#timer = setTimeout(() => this.look(), seconds * 1000);
    this.#tell("looked", { seconds, failed: this.#failures > 0 });
  }

  // Shown again, or connected again: the wait is what is left of the usual one.
  #turn = () => {
    if (!document.hidden) this.#failures = 0;
    if (!this.#looking) this.#plan(Date.now() - this.lookedAt);
  };

  async #news() {
    try {
      if (session.place.last === undefined) {
        await this.#establish();
        return { events: [], skipped: false };
      }
      const page = await this.#ask(session.place.last, AT_ONCE);
      const skipped = page.next !== undefined;
      this.#seen(skipped ? await this.#end(page.next) : page.events.at(-1)?.id);
      return { events: skipped ? [] : page.events, skipped };
    } catch (failure) {
      if (failure.status !== 422) throw failure;
      // The log ends before what was seen: another store has been put in this one's place.
      await this.#establish();
      return { events: [], skipped: true };
    }
  }

  // The newest order's last event lies near the end of the log: one page, as a rule, is behind it.
  async #establish() {
    const { signal } = this.#stopped;
    const { orders } = await get("store/orders?sort=-id&limit=1", { signal });
    let last = 0;
    if (orders.length) {
      const { events } = await get(`store/orders/${orders[0].id}/events`, { signal });
      last = events.at(-1).id;
    }
    const page = await this.#ask(last, AT_ONCE);
    this.spend(orders.length ? 2 : 1);
    this.#seen(page.next === undefined ? page.events.at(-1)?.id ?? last : await this.#end(page.next));
  }

  // Strides that grow until they are beyond the end, then halves of the last one.
  async #end(from) {
    let [low, high, stride] = [from, Infinity, STRIDE];
    while (high - low > AT_ONCE) {
      const middle = high === Infinity ? low + stride : Math.floor((low + high) / 2);
      const page = await this.#ask(middle, 1).catch((failure) => {
        if (failure.status !== 422) throw failure;
      });
      if (!page) high = middle;
      else if (!page.events.length) return middle;
      else low = page.events[0].id;
      stride *= 4;
    }
    for (;;) {
      const page = await this.#ask(low, AT_ONCE);
      if (page.next === undefined) return page.events.at(-1)?.id ?? low;
      low = page.next;
    }
  }

  async #ask(after, limit) {
    const page = await get(`store/events?after=${after}&limit=${limit}`, { signal: this.#stopped.signal });
    this.spend(1);
    return page;
  }

  #seen(last) {
    if (last !== undefined) session.place = { ...session.place, last };
  }

  #tell(what, detail) {
    this.dispatchEvent(new CustomEvent(what, { detail }));
  }
}

