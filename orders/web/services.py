"""The parts of a running application, and how views find them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast
from urllib.parse import urlsplit

from flask import Flask, current_app

from orders.clock import Clock
from orders.service import OrderService
from orders.settings import Settings
from orders.store import apikeys as key_store
from orders.store.care import checks
from orders.store.care.backups import Backups, ContinuousCopy
from orders.store.database.commits import CommitCache, GroupCommit
from orders.store.database.database import Database, LongReads
from orders.store.database.errors import StoreUnavailable
from orders.store.databases import Upkeep
from orders.store.lists import CurrentList
from orders.web.access import KeyRing, Limits, Verdict
from orders.web.call import NoteAnswer
from orders.web.logs import log_queue
from orders.webhooks.outbox import Outbox

log = logging.getLogger(__name__)

_EXTENSION = "store-orders"
# In each thread. A page has at most 200 orders, about 50 KB.
_CACHED_PAGES = 16


@dataclass(frozen=True, slots=True)
class ListedPage:
    """A page of orders as JSON, the Link to the next, and the newest event it reflects."""

    body: bytes
    link: str | None
    revision: int


class ServerLoad(Protocol):
    """The load of the HTTP server."""

    @property
    def connections(self) -> int:
        """How many connections are open."""

    @property
    def waiting(self) -> int:
        """How many whole requests wait for a thread."""


@dataclass
class Services:
    """The parts of one application. None opens anything until it is used."""

    settings: Settings
    clock: Clock
    database: Database
    upkeep: Upkeep
    keyring: KeyRing
    limits: Limits
    # The database: ok, being checked, or damaged.
    soundness: str = "ok"
    # Processes that serve the same database with another version, or other figures.
    differing: Sequence[str] = ()
    # Called when an answer has been sent.
    note_answer: NoteAnswer = log_queue.note_request
    # Set while it serves.
    server: ServerLoad | None = None

    @property
    def is_alone(self) -> bool:
        """Whether no other process may serve the database: each would count limits for itself."""
        return not self.settings.limits_url

    @cached_property
    def changes(self) -> GroupCommit:
        """The group commit that all changes share."""
        return GroupCommit(self.database)

    @cached_property
    def orders(self) -> OrderService:
        """The use cases."""
        return OrderService(
            self.database, self.clock, self.changes, self.outbox.wake, is_alone=self.is_alone
        )

    @cached_property
    def outbox(self) -> Outbox:
        """The sender of webhooks."""
        return Outbox(self.database, self.changes, self.clock, lambda: self.store_id)

    @cached_property
    def backups(self) -> Backups | None:
        """The backups that the service makes by itself, if it makes any."""
        settings = self.settings
        if (folder := settings.backups_path) is None:
            return None
        return Backups(settings.database_path, folder, settings.backups_keep, self.clock)

    @cached_property
    def continuous_copy(self) -> ContinuousCopy | None:
        """The copy that Litestream makes, if there may be one."""
        if self.settings.is_on_postgres:
            return None
        return ContinuousCopy(self.settings.database_path, self.clock)

    @cached_property
    def list(self) -> CurrentList:
        """Version 1's list of orders."""
        return CurrentList(self.database)

    @cached_property
    def pages(self) -> CommitCache[ListedPage]:
        """Version 2's pages of orders, cached until the next commit."""
        return CommitCache(self.database, _CACHED_PAGES)

    @cached_property
    def store_id(self) -> str:
        """The random id of the store, which never changes."""
        with self.database.read() as connection:
            return key_store.store_id(connection)

    @property
    def long_reads(self) -> LongReads:
        """The gate that long reads of the store wait at."""
        return self.database.long_reads

    def standing(self, authorization: str | None) -> Verdict:
        """Return what a refusal shows that counts nothing: of a key that memory knows, its own."""
        return self.limits.standing(self.keyring.recall(authorization, "-"))

    def begin(self) -> None:
        """Load an earlier process' counters and bans, and compare the clock with the store."""
        self.limits.storage.load()
        self.limits.bans.load()
        self._check_clock()

    def _check_clock(self) -> None:
        with self.database.read() as connection:
            latest = key_store.latest_time(connection)
        if latest is not None and latest > self.clock.now():
            with self.database.write() as connection:
                key_store.raise_clock_floor(connection, latest)
            key_store.warn_of_clock(latest)

    def check_behind(self) -> None:
        """Check a large database in a background thread; log and note the result."""
        check = self.upkeep.long_check()
        if check is not None:
            self.soundness = "being checked"
            threading.Thread(target=self._check, args=(check,), name="check", daemon=True).start()

    def _check(self, check: Callable[[], None]) -> None:
        try:
            check()
        except checks.UnfitDatabase as error:
            self.soundness = "damaged"
            log.error("%s", error)  # noqa: TRY400 - the message says all
        else:
            self.soundness = "ok"
            log.info("The database is sound.")

    def write_counters(self) -> None:
        """Write the counters, or reconnect to Redis. Called twice a second."""
        self.limits.storage.flush()

    def write_keys(self) -> None:
        """Write bans and last uses of keys, and what a clock that was set changes of the store's.

        May wait for the database. Called twice a second.
        """
        self._flush_keys()
        with suppress(StoreUnavailable):
            self.orders.follow_clock()

    def follow_faults(self) -> None:
        """Log what fails of the database, and its end. Called twice a second."""
        self.database.faults.follow(self.database.probe, self.clock.monotonic())

    def end(self) -> None:
        """Write everything, and close all files and connections."""
        self.limits.storage.close()
        self._flush_keys()
        self.keyring.note_time()
        self.database.close()

    def _flush_keys(self) -> None:
        self.limits.bans.flush()
        self.keyring.flush()

    @property
    def path_prefix(self) -> str:
        """The path of the public address without the version: empty, or such as `/shop`."""
        return urlsplit(self.settings.base_url).path.removesuffix("/v1")

    def install(self, app: Flask) -> None:
        """Make these the services of an application."""
        app.extensions[_EXTENSION] = self


def current_services() -> Services:
    """Return the services of the current application."""
    return services_of(current_app)


def services_of(app: Flask) -> Services:
    """Return the services of an application."""
    return cast("Services", app.extensions[_EXTENSION])
