"""Answers that are kept while nothing is committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from orders.store.database.engine import Database

T = TypeVar("T")


class CommitCache(Generic[T]):
    """What was read of the database, by what was asked, as long as it is still so.

    Each thread keeps its own: the database tells a thread what has changed since that thread asked.
    """

    def __init__(self, database: Database, most: int) -> None:
        """Take the database, and how many answers each thread keeps. Reads nothing."""
        self._database = database
        self._most = most
        self._thread = threading.local()

    def get(self, asked: Hashable, read: Callable[[], T]) -> T:
        """Return the answer that is kept, or else read it.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        # Asked before anything is read: a commit between the two makes the next one read again.
        version = self._database.version()
        answers: dict[Hashable, T] = getattr(self._thread, "answers", {})
        if getattr(self._thread, "version", None) != version:
            answers = {}
        if asked not in answers:
            if len(answers) == self._most:
                answers.clear()
            answers[asked] = read()
        self._thread.version, self._thread.answers = version, answers
        return answers[asked]
