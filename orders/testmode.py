"""Test mode: a second shop beside the first, which test keys reach, and nothing else.

It has a store of its own, and with that everything that a shop has: orders, ids, events, keys,
limits, webhooks. Where there is no such store, nothing of this is there but a look for its file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

from orders.domain import Expected
from orders.settings import TEST_LABEL, Settings
from orders.shop import Shop
from orders.store.care.files import locked
from orders.store.care.opening import InUse
from orders.store.database.errors import StoreUnavailable

log = logging.getLogger(__name__)

# How often a store is looked for that a command has made.
_LOOK_SECONDS = 5.0
# How long a request waits until it is open: a large one may have to be upgraded, or checked.
_PATIENCE_SECONDS = 1.0
_RETRY_SECONDS = 5.0
# How long a change waits where a command writes: meanwhile it has a worker, which the first shop's
# requests need, too.
_BUSY_SECONDS = 0.5


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
            raise StoreUnavailable(f"that of test mode {'fails' if self._fault else 'opens'}")
        return self.shop

    def look(self) -> None:
        """Open the shop where there is a store by now. Called twice a second."""
        now = self._live.clock.monotonic()
        if self.shop is None and now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
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
