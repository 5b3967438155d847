"""A shop: the parts that serve one store, and their work in the background.

Several shops may be in one process, each with its own store, keys, counters and webhooks: nothing
here belongs to the process, such as the HTTP server and the log. `TestMode` is a second shop beside
the first, which test keys reach, and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Connection, make_url

from orders import VERSION, system
from orders.clock import Clock
from orders.counters.memory import CounterStorage
from orders.domain import Expected, Origin
from orders.feed import Feed
from orders.key_service import KeyService
from orders.keyring import Bans, KeyRing
from orders.service import OrderService
from orders.settings import TEST_LABEL, TEST_MODE, Settings
from orders.store import apikeys as key_store
from orders.store import audit, forgetting
from orders.store.apikeys import ApiKey
from orders.store.care import checks
from orders.store.care.backups import Backups, ContinuousCopy
from orders.store.care.files import locked
from orders.store.care.opening import InUse, ServingLock, SqliteUpkeep
from orders.store.database.commits import CommitCache, GroupCommit
from orders.store.database.database import Database
from orders.store.database.errors import StoreUnavailable, Superseded
from orders.store.database.sqlite import SqliteDatabase
from orders.store.orders_json import CurrentList
from orders.urls import place_of_redis
from orders.webhooks.outbox import Outbox

if TYPE_CHECKING:
    from orders.counters.redis import RedisCounterStorage
    from orders.store.postgres.upkeep import PostgresUpkeep

Upkeep: TypeAlias = "SqliteUpkeep | PostgresUpkeep"
CountersStorage: TypeAlias = "CounterStorage | RedisCounterStorage"

log = logging.getLogger(__name__)

# A killed process loses the counts since the last flush: less than a second's requests.
INTERVAL_SECONDS = 0.5
_COMPARED_EVERY_SECONDS = 10.0
# Not in the first hour of a start, when the clock may not be set yet.
_FORGET_EVERY_SECONDS, _LOOK_SECONDS = 3_600.0, 30.0
_PROGRAM = "store-orders"
# The settings that must be the same in all processes, in the order of their digests.
_SHARED = (
    "other plans",
    "other ban figures",
    "another Redis, or another database of it",
    "another rule for references",
)
# In each thread. A page has at most 200 orders, about 50 KB.
_CACHED_PAGES = 16
# How often to look for a store that a command has made.
_LOOK_FOR_STORE_SECONDS = 5.0
# How long a request waits until it is open: a large one may have to be upgraded, or checked.
_PATIENCE_SECONDS = 1.0
_RETRY_SECONDS = 5.0
# How long a change waits where a command writes: meanwhile it has a worker, which the first shop's
# requests need, too.
_BUSY_SECONDS = 0.5


def database_of(settings: Settings, threads: int) -> tuple[Database, Upkeep]:
    """Return the database that the settings name, and its upkeep. Opens nothing.

    `threads` is how many will read at the same time. PostgreSQL's modules load only where it is
    named.
    """
    if not settings.is_on_postgres:
        file = SqliteDatabase(settings.database_path, threads)
        return file, SqliteUpkeep(file, settings.instance)
    from orders.store.postgres.database import PostgresDatabase
    from orders.store.postgres.upkeep import PostgresUpkeep

    schema = TEST_MODE if settings.is_test else None
    server = PostgresDatabase(make_url(settings.database_url), settings.instance, threads, schema)
    return server, PostgresUpkeep(server)


@dataclass(frozen=True, slots=True)
class ListedPage:
    """A page of orders as JSON, the Link to the next, and the newest event it reflects."""

    body: bytes
    link: str | None
    revision: int


@dataclass
class Shop:
    """The parts of one shop. None opens anything until it is used."""

    settings: Settings
    clock: Clock
    database: Database
    upkeep: Upkeep
    counters: CountersStorage
    # The database: ok, being checked, or damaged.
    soundness: str = "ok"
    # Processes that serve the same database with another version, or other figures.
    differing: Sequence[str] = ()
    # Held while a file that was sent over HTTP is imported.
    importing: threading.Lock = field(default_factory=threading.Lock)
    # The events of threads that wait for changes of orders, which set them.
    on_commit: set[threading.Event] = field(default_factory=set)
    keyring: KeyRing = field(init=False)
    bans: Bans = field(init=False)

    def __post_init__(self) -> None:
        self.bans = Bans(self.settings, self.database, self.counters, self.clock)
        self.keyring = KeyRing(self.database, self.bans, self.clock, is_test=self.is_test)
        self._housekeeping = Housekeeping()
        self._stopping = threading.Event()
        self._forget_at = self.clock.monotonic() + _FORGET_EVERY_SECONDS

    @property
    def is_test(self) -> bool:
        return self.settings.is_test

    @property
    def is_alone(self) -> bool:
        """Whether no other process may serve the database: each would count limits for itself."""
        return not self.settings.limits_url

    @cached_property
    def changes(self) -> GroupCommit:
        return GroupCommit(self.database)

    @cached_property
    def orders(self) -> OrderService:
        return OrderService(
            self.database,
            self.clock,
            self.changes,
            self.on_commit,
            is_alone=self.is_alone,
            unique_references=self.settings.unique_references,
        )

    def keys(self, connection: Connection, actor: ApiKey | None = None) -> KeyService:
        """Return the use cases of this shop's keys in a transaction: by a key, or a command."""
        now, plans = self.clock.now(), self.settings.plans
        return KeyService(connection, now, plans, actor, is_test=self.is_test)

    @cached_property
    def feed(self) -> Feed:
        """The event log as it grows."""
        parts = self.database, self.clock, self.on_commit
        return Feed(*parts, alone=self.is_alone, is_test=self.is_test)

    @cached_property
    def outbox(self) -> Outbox:
        return Outbox(
            *(self.database, self.changes, self.clock),
            lambda: self.store_id,
            on_commit=self.on_commit,
            is_test=self.is_test,
        )

    @cached_property
    def backups(self) -> Backups | None:
        settings = self.settings
        if (folder := settings.backups_path) is None:
            return None
        return Backups(settings.database_path, folder, settings.backups_keep, self.clock)

    @cached_property
    def continuous_copy(self) -> ContinuousCopy | None:
        if self.settings.is_on_postgres or self.is_test:
            return None
        return ContinuousCopy(self.settings.database_path, self.clock)

    @cached_property
    def list(self) -> CurrentList:
        return CurrentList(self.database)

    @cached_property
    def pages(self) -> CommitCache[ListedPage]:
        return CommitCache(self.database, _CACHED_PAGES)

    @cached_property
    def store_id(self) -> str:
        with self.database.read() as connection:
            return key_store.store_id(connection)

    def begin(self) -> None:
        """Load an earlier process' counters and bans, and compare the clock with the store."""
        self.counters.load()
        self.bans.load()
        self._check_clock()

    def _check_clock(self) -> None:
        with self.database.read() as connection:
            latest = key_store.latest_time(connection)
        if latest is not None and latest > self.clock.now():
            with self.database.write() as connection:
                key_store.raise_clock_floor(connection, latest)
            key_store.warn_of_clock(latest)

    def check_behind(self) -> None:
        """Check a large database in a background thread; log and record the result."""
        check = self.upkeep.long_check()
        if check is not None:
            self.soundness = "being checked"
            name = f"{TEST_LABEL * self.is_test}check"
            threading.Thread(target=self._check, args=(check,), name=name, daemon=True).start()

    def _check(self, check: Callable[[], None]) -> None:
        try:
            check()
        except checks.UnfitDatabase as error:
            self.soundness = "damaged"
            log.error("%s", error)  # noqa: TRY400 - the message says all
        else:
            self.soundness = "ok"
            log.info("The database is sound.")

    def start(self, *chores: Callable[[], float | None]) -> None:
        self._housekeeping = Housekeeping(
            self.counters.flush,
            self.write_keys,
            self.follow_outages,
            self.database.long_reads.tend,
            *([self.backups.tend] if self.backups else []),
            *([self.continuous_copy.tend] if self.continuous_copy else []),
            *([self.forget_due] if self.settings.forget_after_days else []),
            *chores,
            is_test=self.is_test,
        )
        self._housekeeping.start()
        self.outbox.start(alone=self.is_alone)

    def forget_due(self) -> float:
        """Delete personal data after the days of the settings; return when to call this again.

        Each of several processes looks, and finds orders that no other has dealt with.
        """
        if self.clock.monotonic() < self._forget_at:
            return _LOOK_SECONDS
        self._forget_at = self.clock.monotonic() + _FORGET_EVERY_SECONDS
        days = self.settings.forget_after_days
        due = forgetting.due(self.database, unchanged_since=self.clock.now() - timedelta(days=days))
        subject = f"settled orders without a change for {days} days"
        count = sum(
            map(len, self.orders.forget(due, Origin(audit.SERVICE), subject, self._stopping.wait))
        )
        if count:
            self.database.scrub()
            log.info("Deleted the personal data of %d orders, after %d days.", count, days)
        return _LOOK_SECONDS

    def stop(self) -> None:
        if self.backups:
            self.backups.stop()
        self._stopping.set()
        self.outbox.stop()
        self.feed.stop()
        self._housekeeping.stop()

    def write_keys(self) -> None:
        """Write bans, last uses of keys, and the times that a clock that was set changes."""
        self._flush_keys()
        with suppress(StoreUnavailable):
            self.orders.follow_clock()

    def follow_outages(self) -> None:
        self.database.outages.follow(self.database.probe, self.clock.monotonic())

    def end(self) -> None:
        self.counters.close()
        self._flush_keys()
        self.keyring.record_time()
        self.database.close()

    def _flush_keys(self) -> None:
        self.bans.flush()
        self.keyring.flush()


class Housekeeping:
    """Repeats chores until it is stopped, each in a thread of its own.

    The limits' counters are therefore written in time while an import locks the database.
    """

    def __init__(self, *chores: Callable[[], float | None], is_test: bool = False) -> None:
        """Take chores, which return when to repeat them. One that fails is logged and retried."""
        self._stopped = threading.Event()
        name = f"{TEST_LABEL * is_test}housekeeping"
        self._threads = [
            threading.Thread(target=self._run, args=(chore,), name=name, daemon=True)
            for chore in chores
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, chore: Callable[[], float | None]) -> None:
        seconds: float | None = None
        while not self._stopped.wait(seconds or INTERVAL_SECONDS):
            seconds = None
            try:
                seconds = chore()
            except Exception:
                log.exception("Housekeeping failed; retrying.")


class LockWatchdog:
    """Retains the lock on the database, and ends the service if it was lost."""

    def __init__(self, shop: Shop, lock: ServingLock) -> None:
        self._shop, self._lock = shop, lock
        self.has_lost = False
        self._compared = -_COMPARED_EVERY_SECONDS
        self._kind = f"{VERSION} {digests(shop.settings)}"
        address = f"{socket.gethostname()}:{shop.settings.port}"
        lock.serve(f"{_PROGRAM} {self._kind} {address}")

    def check(self) -> None:
        """Re-acquire the lock if it was lost, and compare processes. Called twice a second."""
        try:
            if self._lock.ensure_held():
                self._compare()
            else:
                self._stop("Another service took over the database during an outage.")
        except Superseded:
            self._stop("The database was upgraded, or renewed, by another program.")
        except StoreUnavailable:
            pass  # requests report it; the lock is tried again in a moment

    def _stop(self, why: str) -> None:
        if not self.has_lost:
            self.has_lost = True
            log.error("%s This service stops.", why)
            system.stop_this_process()

    def _compare(self) -> None:
        now = time.monotonic()
        if now - self._compared < _COMPARED_EVERY_SECONDS:
            return
        self._compared = now
        others = (difference(self._kind, name) for name in self._lock.others())
        differing = sorted(filter(None, others))
        if differing != self._shop.differing and differing:
            log.warning(
                "Other processes on this database differ from this one, and so treat the same "
                "request in another way: %s.",
                "; ".join(differing),
            )
        self._shop.differing = differing


def digests(settings: Settings) -> str:
    """Return digests of the settings that all processes over a database share, see `_SHARED`."""
    redis = place_of_redis(settings.limits_url) if settings.limits_url else ""
    bans = (settings.ban_after, settings.ban_window, settings.ban_seconds)
    plans = sorted(map(repr, settings.plans.values()))
    shared = (plans, bans, redis, settings.unique_references)
    return ".".join(hashlib.sha256(repr(part).encode()).hexdigest()[:5] for part in shared)


def difference(kind: str, name: str) -> str:
    """Return how a process differs from one of this kind, by its name; empty if it does not."""
    version, own = kind.split()
    match name.split():
        case [program, its_version, digests, address] if program == _PROGRAM:
            parts = zip(_SHARED, own.split("."), digests.split("."), strict=False)
            differing = [words for words, here, there in parts if here != there]
            if its_version != version:
                differing.insert(0, f"version {its_version}")
            return f"{address} has {', '.join(differing)}" if differing else ""
    return f"{name} is another program"


class TestMode:
    """The shop of test keys: opened when its store is there, and closed with the first shop.

    Its failures are reported to test keys only; the first shop goes on.
    """

    def __init__(self, live: Shop, make: Callable[[Settings], Shop]) -> None:
        """Take the first shop, and the function that makes a shop. Opens nothing."""
        self._live = live
        self._make = make
        self.settings = live.settings.in_test_mode()
        # Set while it is open.
        self.shop: Shop | None = None
        self._opening: threading.Thread | None = None
        self._resources = ExitStack()
        self._guard = threading.Lock()
        self._is_stopped = False
        self._fault = ""
        self._look_at = self._retry_at = 0.0

    def made(self) -> Shop:
        """Return the shop, not open, for a command: it may have no store."""
        return self._make(self.settings)

    def find(self) -> Shop | None:
        """Return the shop, opened; None where there is none.

        StoreUnavailable is raised where it can't be used, or not yet.
        """
        if self.shop is not None:
            return self.shop
        if not self._live.upkeep.has_beside(self.settings):
            return None
        if opening := self._begin_to_open():
            opening.join(_PATIENCE_SECONDS)
        if self.shop is None:
            how = "can't be opened" if self._fault else "is still opening"
            raise StoreUnavailable(f"test mode's store {how}")
        return self.shop

    def look(self) -> None:
        """Open the shop where there is a store by now. Called twice a second."""
        now = self._live.clock.monotonic()
        if self.shop is None and now >= self._look_at:
            self._look_at = now + _LOOK_FOR_STORE_SECONDS
            with suppress(StoreUnavailable):
                if self._live.upkeep.has_beside(self.settings):
                    self._begin_to_open()

    def stop(self) -> None:
        """Stop its work, and close it."""
        with self._guard:
            self._is_stopped = True
        if self._opening is not None:
            self._opening.join()
        if self.shop is not None:
            self.shop.stop()
            self.shop.end()
        self._resources.close()

    def _begin_to_open(self) -> threading.Thread | None:
        """Return the thread that opens it; None after a fault, until it is time to retry."""
        with self._guard:
            if self._opening is not None and self._opening.is_alive():
                return self._opening
            now = self._live.clock.monotonic()
            if self._is_stopped or self.shop is not None or now < self._retry_at:
                return None
            self._retry_at = now + _RETRY_SECONDS
            name = f"{TEST_LABEL}opening"
            self._opening = threading.Thread(target=self._open, name=name, daemon=True)
            self._opening.start()
            return self._opening

    def _open(self) -> None:
        try:
            with ExitStack() as resources:
                self.shop = self._opened(resources)
                self._resources = resources.pop_all()
        except (Expected, InUse, OSError, StoreUnavailable) as error:
            # Once, as clients try again and again.
            if (fault := str(error)) != self._fault:
                log.error("It can't be opened: %s", fault)  # noqa: TRY400 - the message says all
            self._fault = fault
        except Exception as error:
            log.exception("It can't be opened.")
            self._fault = repr(error)

    def _opened(self, resources: ExitStack) -> Shop:
        resources.enter_context(locked(self.settings.instance))
        shop = self._make(self.settings)
        shop.database.busy_seconds = _BUSY_SECONDS
        with ExitStack() as unless_it_starts:
            unless_it_starts.callback(shop.database.close)
            shop.upkeep.prepare()
            shop.begin()
            shop.check_behind()
            shop.start()
            unless_it_starts.pop_all()
        log.info("Its store is open: %s.", shop.database.where)
        return shop
