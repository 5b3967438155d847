// Follows the event log for changes made elsewhere: by a stream, where that costs the key no more
// than polling would, or else by polling, with only a share of the key's limits. The position in the
// log, and the number of requests spent, survive a reload.

import { changesAnswered, get, limits, mustWait, serviceEvents } from "./api.js";
import { Line } from "./live.js";
import { session } from "./session.js";
import { now } from "./time.js";

const AT_ONCE = 200;
const SOONEST_SECONDS = 4;
const HIDDEN_SECONDS = 60;
const MOST_BACK_OFF_SECONDS = 60;
// Two answers may report the end of the same window with up to this difference.
const SAME_WINDOW_MS = 60_000;
const STRIDE = 1000;
// A stream costs a request a minute.
const STREAM_SECONDS = 60;
const LATE_MS = 60_000;
// Events that arrive sooner are shown together.
const TOGETHER_SECONDS = 0.1;

/**
 * Return the seconds to wait before the next poll, so that polling takes at most a tenth of the
 * minute's limit, and a quarter of the day's, spread over the time to its reset. `spent` requests
 * of the day's share are used up. `round` is the number of requests of the last poll, including
 * those that followed from it.
 */
export function pause({ minute, day }, at, { spent = 0, round = 1, hidden = false } = {}) {
  if (!minute || !day) return SOONEST_SECONDS;
  const share = Math.max(1, Math.min(day.limit / 4 - spent, day.remaining / 2));
  const seconds = Math.max(
    SOONEST_SECONDS,
    (600 / minute.limit) * round,
    Math.max(0, day.resets - at) / 1000 / share,
  );
  return hidden ? Math.max(HIDDEN_SECONDS, seconds * 5) : seconds;
}

/** Dispatches `polled` after each poll and whenever a stream is heard, and `changes` with the events and whether some were skipped. */
export class Watch extends EventTarget {
  #stopped = new AbortController();
  #timer = 0;
  #failures = 0;
  #round = 0;
  #polling = null;
  #ticker = 0;
  #arrived = [];
  #showing = 0;
  #shownAt = 0;
  #knownAt = 0;
  #line = new Line({
    begin: () => this.#begin(),
    position: () => session.place.last,
    heard: (after, events) => this.#heard(after, events),
    changed: () => this.#plan(now() - this.polledAt),
    spend: (requests) => this.spend(requests),
  });
  polledAt = 0;
  nextAt = 0;

  /** Start: find the end of the log, unless it is known from before a reload. */
  async start() {
    document.addEventListener("visibilitychange", this.#resume);
    addEventListener("online", this.#resume);
    serviceEvents.addEventListener("resumed", this.#resume);
    await this.#line.listen();
    if (this.#stopped.signal.aborted) {
      this.#line.close();
      return undefined;
    }
    this.#ticker = setInterval(() => this.#tick(), 1000);
    if (session.place.last === undefined) return this.poll();
    this.polledAt = now();
    return this.#plan();
  }

  /** Stop for good. */
  stop() {
    this.#stopped.abort();
    this.#line.close();
    clearTimeout(this.#timer);
    clearTimeout(this.#showing);
    clearInterval(this.#ticker);
    document.removeEventListener("visibilitychange", this.#resume);
    removeEventListener("online", this.#resume);
    serviceEvents.removeEventListener("resumed", this.#resume);
  }

  /** Count requests that follow from a poll against its share. */
  spend(requests) {
    const { last, spent = 0, resets = 0 } = session.place;
    const end = limits.day?.resets || 0;
    const before = Math.abs(end - resets) < SAME_WINDOW_MS ? spent : 0;
    session.place = { last, spent: before + requests, resets: end };
    this.#round += requests;
  }

  /** Poll now, or wait for the poll under way. */
  poll() {
    clearTimeout(this.#timer);
    this.#polling ??= this.#poll().finally(() => {
      this.#polling = null;
    });
    return this.#polling;
  }

  async #poll() {
    this.#round = 0;
    try {
      const news = await this.#news();
      this.#failures = 0;
      this.polledAt = this.#knownAt = now();
      if (news.events.length || news.skipped) await this.#tell(news);
    } catch (failure) {
      if (failure.name === "AbortError") return;
      this.#failures += failure.status === 429 ? 0 : 1;
    }
    this.#plan();
  }

  #plan(waited = 0) {
    if (this.#stopped.signal.aborted) return;
    clearTimeout(this.#timer);
    if (this.#line.isLive) {
      this.#dispatch("polled", { isLive: true });
      return;
    }
    const wait = this.#failures
      ? Math.min(MOST_BACK_OFF_SECONDS, 2 ** this.#failures)
      : pause(limits, now(), {
        spent: session.place.spent,
        round: Math.max(1, this.#round),
        hidden: document.hidden,
      });
    const seconds = Math.max(wait - waited / 1000, mustWait(), 0);
    this.nextAt = now() + seconds * 1000;
    this.#timer = setTimeout(() => this.poll(), seconds * 1000);
    this.#dispatch("polled", { seconds, failed: this.#failures > 0 });
  }

  // Visible or online again: what is left of the usual wait.
  #resume = ({ type }) => {
    if (!document.hidden) this.#failures = 0;
    this.#tick();
    if (type === "online" || !this.#line.isLive) this.#line.reopen();
    if (this.#arrived.length) this.#show();
    if (!this.#polling) this.#plan(now() - this.polledAt);
  };

  // Also after the computer slept. A tab that may not read the stream hears one that does.
  #tick() {
    const { spent } = session.place;
    this.#line.check();
    if (!limits.minute || !limits.day) return;
    this.#line.lead(pause(limits, now(), { spent, hidden: document.hidden }) <= STREAM_SECONDS);
  }

  // After a long time there may be more events than anybody wants to see one by one.
  async #begin() {
    if (now() - this.#knownAt > LATE_MS || session.place.last === undefined) await this.poll();
    return session.place.last ?? 0;
  }

  #heard(after, events) {
    const { last } = session.place;
    if (this.#stopped.signal.aborted) return;
    this.polledAt = this.#knownAt = now();
    if (after > last || (!events.length && after !== last)) {
      this.poll();
      return;
    }
    const fresh = events.filter(({ id }) => id > last);
    if (fresh.length) {
      this.#seen(fresh.at(-1).id);
      this.#arrived.push(...fresh);
      this.#showSoon();
    }
    this.#dispatch("polled", { isLive: true });
  }

  // At once after a quiet time. Showing costs requests: at most a tenth of the minute's limit.
  #showSoon() {
    clearTimeout(this.#showing);
    const share = limits.minute ? (600 / limits.minute.limit) * this.#round : 0;
    const pauseSeconds = Math.max(share, document.hidden ? SOONEST_SECONDS : TOGETHER_SECONDS);
    const wait = this.#shownAt + pauseSeconds * 1000 - now();
    if (wait <= 0) this.#show();
    else this.#showing = setTimeout(() => this.#show(), wait);
  }

  #show() {
    clearTimeout(this.#showing);
    const events = this.#arrived;
    [this.#arrived, this.#shownAt, this.#round] = [[], now(), 0];
    this.#tell({ events, skipped: false });
  }

  // An event of this page's own may arrive before the answer that it would be known by.
  async #tell(news) {
    await changesAnswered();
    if (!this.#stopped.signal.aborted) this.#dispatch("changes", news);
  }

  async #news() {
    try {
      if (session.place.last === undefined) {
        await this.#establish();
        return { events: [], skipped: false };
      }
      const page = await this.#read(session.place.last, AT_ONCE);
      const skipped = page.more;
      const next = skipped ? await this.#end(page.next) : page.next;
      // A stream may have been faster.
      const { last } = session.place;
      this.#seen(Math.max(next, last));
      return { events: skipped ? [] : page.events.filter(({ id }) => id > last), skipped };
    } catch (failure) {
      if (failure.status !== 422) throw failure;
      // The log ends before the known position: the database was replaced.
      await this.#establish();
      return { events: [], skipped: true };
    }
  }

  // The newest order's last event is near the end of the log: usually within a page of it.
  async #establish() {
    const { signal } = this.#stopped;
    const { orders } = await get("store/orders?sort=-id&limit=1", { signal });
    let last = 0;
    if (orders.length) {
      const { events } = await get(`store/orders/${orders[0].id}/events`, { signal });
      last = events.at(-1).id;
    }
    const page = await this.#read(last, AT_ONCE);
    this.spend(orders.length ? 2 : 1);
    this.#seen(page.more ? await this.#end(page.next) : page.next);
  }

  // Growing strides until beyond the end, then bisection of the last one.
  async #end(from) {
    let [low, high, stride] = [from, Infinity, STRIDE];
    while (high - low > AT_ONCE) {
      const middle = high === Infinity ? low + stride : Math.floor((low + high) / 2);
      const page = await this.#read(middle, 1).catch((failure) => {
        if (failure.status !== 422) throw failure;
      });
      if (!page) high = middle;
      else if (!page.events.length) return middle;
      else low = page.events[0].id;
      stride *= 4;
    }
    for (;;) {
      const page = await this.#read(low, AT_ONCE);
      low = page.next;
      if (!page.more) return low;
    }
  }

  async #read(after, limit) {
    const page = await get(`store/events?after=${after}&limit=${limit}`, { signal: this.#stopped.signal });
    this.spend(1);
    return page;
  }

  #seen(last) {
    session.place = { ...session.place, last };
  }

  #dispatch(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

