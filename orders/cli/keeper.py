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


class Keeper:
    """Keeps the hold on the database, and ends the service that lost it."""

    def __init__(self, services: Services, hold: Hold) -> None:
        """Begin to serve, where the other processes see it."""
        self._services, self._hold = services, hold
        self.has_lost = False
        self._compared = -_COMPARED_EVERY_SECONDS
        self._kind = f" {VERSION} {digest(services.settings)} "
        hold.serve(f"store-orders{self._kind}{socket.gethostname()}:{services.settings.port}")

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
        differing = sorted(each for each in self._hold.others() if self._kind not in each)
        if differing != self._services.differing and differing:
            log.warning(
                "Other processes on this database have another version, other plans or ban figures "
                "or another Redis (version, digest, address): %s. Here:%s",
                ", ".join(differing),
                self._kind.rstrip(),
            )
        self._services.differing = differing


def digest(settings: Settings) -> str:
    """Return a digest of what must be the same in all processes over a database."""
    redis = place_of_redis(settings.limits_url) if settings.limits_url else ""
    bans = (settings.ban_after, settings.ban_window, settings.ban_seconds)
    shared = (sorted(map(repr, settings.plans.values())), bans, redis)
    return hashlib.sha256(repr(shared).encode()).hexdigest()[:8]
