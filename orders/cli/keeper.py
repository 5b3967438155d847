"""Keeps the database for a process that serves it, and compares it with the others that do."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import socket
import time

from orders import VERSION
from orders.settings import Settings
from orders.store.care.upkeep import Hold
from orders.store.database.errors import StoreUnavailable, Superseded
from orders.urls import place_of_redis
from orders.web.services import Services

log = logging.getLogger("orders")

_COMPARED_EVERY_SECONDS = 10.0
_PROGRAM = "store-orders"
# What must be the same in all processes, in the order of their digests.
_SHARED = ("other plans", "other ban figures", "another Redis, or another database of it")


class Keeper:
    """Keeps the hold on the database, and ends the service that lost it."""

    def __init__(self, services: Services, hold: Hold) -> None:
        """Begin to serve, where the other processes see it."""
        self._services, self._hold = services, hold
        self.has_lost = False
        self._compared = -_COMPARED_EVERY_SECONDS
        self._kind = f"{VERSION} {digests(services.settings)}"
        address = f"{socket.gethostname()}:{services.settings.port}"
        hold.serve(f"{_PROGRAM} {self._kind} {address}")

    def keep(self) -> None:
        """Re-acquire the lock if it was lost, and compare now and then. Called twice a second."""
        try:
            if self._hold.keep():
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
            os.kill(os.getpid(), signal.SIGTERM)

    def _compare(self) -> None:
        now = time.monotonic()
        if now - self._compared < _COMPARED_EVERY_SECONDS:
            return
        self._compared = now
        others = (difference(self._kind, name) for name in self._hold.others())
        differing = sorted(filter(None, others))
        if differing != self._services.differing and differing:
            log.warning(
                "Other processes on this database differ from this one, and so treat the same "
                "request in another way: %s.",
                "; ".join(differing),
            )
        self._services.differing = differing


def digests(settings: Settings) -> str:
    """Return digests of what must be the same in all processes over a database, see `_SHARED`."""
    redis = place_of_redis(settings.limits_url) if settings.limits_url else ""
    bans = (settings.ban_after, settings.ban_window, settings.ban_seconds)
    shared = (sorted(map(repr, settings.plans.values())), bans, redis)
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
