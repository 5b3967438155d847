"""Results cached until the next commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from orders.store.database.engine import Database

T = TypeVar("T")


class CommitCache(Generic[T]):
    """Results of reading the database, by key, until anything is committed.

    Each thread has its own: the database's version means something to the thread that read it.
    """

    def __init__(self, database: Database, most: int) -> None:
        self._database = database
        self._most = most
        self._thread = threading.local()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the cached result, or else read it."""
        # Before the reading: after a commit between the two, the next call reads again.
        version = self._database.version()
        results: dict[Hashable, T] = getattr(self._thread, "results", {})
        if getattr(self._thread, "version", None) != version:
            results = {}
        if key not in results:
            if len(results) == self._most:
                results.clear()
            results[key] = read()
        self._thread.version, self._thread.results = version, results
        return results[key]
