"""The event log as it grows: the newest events in memory, for its followers.

One thread reads each new event once, however many follow, and wakes the followers: none has a
thread of its own. A follower that is further behind than memory reaches has its next page read by
the same thread. Commits of this process wake it; those of others show in the database's version,
which is polled.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Protocol, TypeAlias

from orders.clock import Clock
from orders.domain import EventType
from orders.settings import TEST_LABEL
from orders.store import orders as order_store
from orders.store.database.database import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.orders import Event

log = logging.getLogger(__name__)

MOST_FOLLOWERS = 2_000
MOST_OF_A_KEY = 20
# How often the version is looked at, where other processes serve the store, and where only commands
# change it.
_POLL_SECONDS = 0.1
_POLL_ALONE_SECONDS = 0.5
# How many events are read, and sent, at a time: a follower has no more than this waiting for it. At
# their longest, they are about 200 KiB.
PAGE_EVENTS = 40
REMEMBERED_EVENTS = 1_000
# Events of commits that follow within this time are sent to all together.
_TOGETHER_SECONDS_EACH = 40e-6
# How often keys are looked up, if anything was committed: a key's followers end within a second
# after it is revoked.
_KEYS_SECONDS = 0.9
# How often to check which followers are due.
_DUE_SECONDS = 0.5
_RETRY_SECONDS = 1.0
# The pause before new events are looked for again.
_MOST_PAGES = 20
_CACHED_BATCHES = 64
_id = attrgetter("id")

Types: TypeAlias = frozenset[str]


class TooManyFollowers(Exception):
    """The key, or the service, has as many followers as it may."""


@dataclass(frozen=True)
class Batch:
    """The wanted events between two positions: perhaps none."""

    after: int
    events: tuple[Event, ...]
    position: int

    @cached_property
    def stream(self) -> bytes:
        """The events as Server-Sent Events (https://html.spec.whatwg.org/#server-sent-events)."""
        texts = (
            f"id: {each.id}\nevent: {each.type}\ndata: {each.json}\n\n" for each in self.events
        )
        return "".join(texts).encode()


class End(StrEnum):
    """Why a stream ends, as its last comment says."""

    REVOKED = "revoked"
    EXPIRED = "expired"
    BANNED = "banned"
    LIMITED = "limited"
    STOPPING = "stopping"
    HOUR = "hour"


class Follower(Protocol):
    """A reader of the log."""

    key_id: int
    # When its key expires, in Unix time.
    valid_until: float
    # The id of the last event that it read, or passed over, and the types that it wants: all if
    # none.
    position: int
    types: Types
    # When it is to be checked, in monotonic seconds.
    due: float

    def wake(self) -> None:
        """Wake up, as there may be new events. Must not block."""

    def check(self, now: float) -> None:
        """Handle what is due, and set the time of the next check. `now` is monotonic."""

    def check_key(self, since: float) -> None:
        """End if the key, as read `since` then, is revoked or banned. May ask the database."""

    def end(self, why: End) -> None:
        """End. Must not block."""


@dataclass(frozen=True)
class _Memory:
    """The newest events, and the position before them. A new one takes its place."""

    events: tuple[Event, ...]
    begins_after: int
    _batches: dict[tuple[int, Types], Batch] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return self.events[-1].id if self.events else self.begins_after

    def with_more(self, events: tuple[Event, ...]) -> _Memory:
        if any(each.type == EventType.FORGOTTEN for each in events):
            return _Memory(events, self.newest)  # earlier ones may have what was forgotten
        whole = self.events + events
        kept = whole[-REMEMBERED_EVENTS:]
        forgotten = whole[: len(whole) - len(kept)]
        return _Memory(kept, forgotten[-1].id if forgotten else self.begins_after)

    def after(self, position: int, types: Types) -> Batch:
        key = position, types
        if (batch := self._batches.get(key)) is None:
            if len(self._batches) >= _CACHED_BATCHES:
                self._batches.clear()
            begin = bisect_right(self.events, position, key=_id)
            events = self.events[begin : begin + PAGE_EVENTS]
            self._batches[key] = batch = _batch(events, position, types)
        return batch


def _batch(events: tuple[Event, ...], after: int, types: Types) -> Batch:
    wanted = tuple(each for each in events if each.type in types) if types else events
    return Batch(after, wanted, events[-1].id if events else after)


class Feed:
    """The followers of a store's log."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        on_commit: set[threading.Event],
        *,
        alone: bool,
        is_test: bool = False,
    ) -> None:
        """Take the database and the clock; `alone` is whether no other process serves it.

        Those `on_commit` are set by this process' commits. Test mode's log can be emptied
        meanwhile. Opens nothing.
        """
        self._is_test = is_test
        self._poll_seconds = _POLL_ALONE_SECONDS if alone else _POLL_SECONDS
        self._database = database
        self._clock = clock
        self._on_commit = on_commit
        self._lock = threading.Lock()
        self._followers: dict[Follower, None] = {}
        self._of_key: Counter[int] = Counter()
        # Followers that are further behind than memory, and the pages that were read for them.
        self._behind: dict[Follower, None] = {}
        self._pages: dict[Follower, Batch] = {}
        # None while nobody follows: it would be out of date.
        self._memory: _Memory | None = None
        # The database's versions at the last look at events, and at keys.
        self._version: object = None
        self._keys_version: object = None
        self._keys_due = 0.0
        self._next_check = 0.0
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def followers(self) -> int:
        """How many follow."""
        return len(self._followers)

    def follow(self, follower: Follower) -> None:
        """Wake a follower for new events, until it leaves.

        Raises:
            TooManyFollowers: there are as many as may be.
        """
        with self._lock:
            if self._of_key[follower.key_id] >= MOST_OF_A_KEY:
                raise TooManyFollowers("this key")
            if len(self._followers) >= MOST_FOLLOWERS:
                raise TooManyFollowers("all keys")
            self._of_key[follower.key_id] += 1
            self._followers[follower] = None
            self._on_commit.add(self._woken)
            if self._thread is None:
                name = f"{TEST_LABEL * self._is_test}feed"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
        self._woken.set()

    def leave(self, follower: Follower) -> None:
        """Stop waking a follower."""
        with self._lock:
            if follower in self._followers:
                del self._followers[follower]
                self._of_key[follower.key_id] -= 1
            if not self._followers:
                self._on_commit.discard(self._woken)
            self._behind.pop(follower, None)
            self._pages.pop(follower, None)

    def after(self, follower: Follower) -> Batch | None:
        """Return the events after a follower's position, if memory has them. Asks nothing.

        Otherwise the follower is woken once there are some.
        """
        memory, position = self._memory, follower.position
        page = self._pages.pop(follower, None)
        if page is not None and page.after == position:
            batch = page
        elif memory is not None and position >= memory.begins_after:
            batch = memory.after(position, follower.types)
        else:
            self._behind[follower] = None
            self._woken.set()
            return None
        return batch if batch.position > position else None

    def has_more(self, position: int) -> bool:
        """Return whether there are events after a position."""
        memory = self._memory
        return memory is None or position < memory.newest

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.wait(self._poll_seconds if self._followers else None)
            self._woken.clear()
            try:
                self._check_due()
                self._read_new()
                self._read_behind()
                self._check_keys()
            except StoreUnavailable as error:
                log.debug("New events will be read later: %s", error)
                self._stopping.wait(_RETRY_SECONDS)
            except Exception:
                log.exception("Following the events failed; retrying.")
                self._stopping.wait(_RETRY_SECONDS)

    def _check_due(self) -> None:
        now, wall = self._clock.monotonic(), self._clock.time()
        if now < self._next_check:
            return
        self._next_check = now + _DUE_SECONDS
        for each in list(self._followers):
            if each.due <= now:
                each.check(now)
            if each.valid_until <= wall:
                each.end(End.EXPIRED)

    def _read_new(self) -> None:
        if not self._followers:
            self._memory = None
            return
        version = self._database.version()
        if self._memory is None:
            self._memory = _Memory((), order_store.revision(self._database))
        elif version == self._version:
            return
        if self._is_test and not self._has(self._memory.events[-1:]):
            self._memory = _Memory((), self._memory.newest)  # the log was emptied
        events = self._page(self._memory.newest)
        self._memory = self._memory.with_more(events)
        for each in list(self._followers):
            each.wake()
        if len(events) == PAGE_EVENTS:
            self._woken.set()  # there may be more
        else:
            self._version = version
            self._stopping.wait(len(self._followers) * _TOGETHER_SECONDS_EACH)

    def _read_behind(self) -> None:
        """Read the next page of followers that are behind; those at one position share it."""
        batches: dict[tuple[int, Types], Batch] = {}
        for each in list(self._behind):
            key = each.position, each.types
            if key not in batches:
                if len(batches) >= _MOST_PAGES:
                    self._woken.set()
                    return
                batches[key] = self._batch_of_log(*key)
            self._deliver(each, batches[key])

    def _batch_of_log(self, after: int, types: Types) -> Batch:
        """Return the next events of these types, or of all, that the log has after a position."""
        # All that memory has seen is committed: none of it is passed over.
        newest = self._memory.newest if self._memory else after
        events = self._page(after, types)
        if types and len(events) < PAGE_EVENTS:
            last = events[-1].id if events else after
            return Batch(after, events, max(last, newest))
        return _batch(events, after, types)

    def _deliver(self, follower: Follower, page: Batch) -> None:
        with self._lock:
            if follower not in self._behind:
                return  # it has left
            del self._behind[follower]
            self._pages[follower] = page
        follower.wake()

    def _page(self, after: int, types: Types = frozenset()) -> tuple[Event, ...]:
        return tuple(order_store.read_log(self._database, after, PAGE_EVENTS, types))

    def _has(self, newest: tuple[Event, ...]) -> bool:
        found = (order_store.read_log(self._database, each.id - 1, 1) for each in newest)
        return all(events and events[0].id == newest[0].id for events in found)

    def _check_keys(self) -> None:
        now = self._clock.monotonic()
        if now < self._keys_due or self._version == self._keys_version:
            return
        self._keys_due, version = now + _KEYS_SECONDS, self._version
        for each in list(self._followers):
            # What was read before this commit may be cached, and no other commit need follow.
            each.check_key(since=now)
        self._keys_version = version
