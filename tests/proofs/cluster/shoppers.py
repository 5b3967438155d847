"""The load: processes of many customers each, who go on until the end.

They shop through nginx. What the service did not answer, or only nginx did, stays unknown, and is
repeated at once.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event

from tests.proofs.core.clients import Connection, Customer, Key
from tests.proofs.core.history import History, Kind, Operation

# The service's own 503 says that the database is away, perhaps since a commit. The others are
# nginx's.
UNKNOWN = (502, 503, 504)
# Between the petIds of one load and those of the next.
_APART = 1_000_000_000
_PAGE = "/v2/store/orders?sort=-id&limit={}"
_PAGES_AT_ONCE = 3
_AFTER_NO_ANSWER_SECONDS = 0.05
_OK = 200

_ended: Event


@dataclass(frozen=True, slots=True)
class Plan:
    """Who shops where. Each load has a `number` of its own."""

    url: str
    ca_certs: str
    key: Key
    reader: Key
    clients: int
    number: int
    seed: int


@dataclass
class Shopping:
    """What a load has seen. `unanswered` is when, what, and why, of requests without an answer."""

    history: list[Operation] = field(default_factory=list)
    unanswered: list[tuple[float, Kind, str]] = field(default_factory=list)
    pages: int = 0
    complaints: list[str] = field(default_factory=list)


class Shopper(Customer):
    """A customer who shops through nginx, and turns pages of version 2."""

    def __init__(self, plan: Plan, history: History, number: int) -> None:
        super().__init__(history, plan.key, plan.reader, f"{plan.seed}-{plan.number}-{number}")
        self._plan = plan
        self._habits[self.turn_pages] = 6
        self.pages = 0
        self.complaints: list[str] = []

    def shop_on(self) -> None:
        """Shop until the end, however often nobody answers."""
        while self._goes_on():
            self.shop(self._plan.url)
            time.sleep(_AFTER_NO_ANSWER_SECONDS)

    def turn_pages(self) -> bool:
        """Read a few pages of the newest orders: none twice, none out of order."""
        limit = self._chance.choice([5, 20, 100])
        path, seen = _PAGE.format(limit), []
        for _ in range(_PAGES_AT_ONCE):
            reading = Operation(Kind.GET, self._reader.actor, (_OK,))
            response = self._connection.send(reading, self._reader, "GET", path)
            self._unanswered = None
            if response is None:
                return False
            page = response.json()
            seen += [order["id"] for order in page["orders"]]
            self.pages += 1
            if "next" not in page:
                break
            path = f"{_PAGE.format(limit)}&after={page['next']}"
        if seen != sorted(set(seen), reverse=True):
            self.complaints.append(f"pages show orders twice, or out of order: {seen}")
        # So that customers of both loads meet at the same orders.
        self._history.recent.extend(reversed(seen[: limit // 5]))
        return True

    def _connect(self, url: str) -> Connection:
        return Connection(url, self._history, unknown=UNKNOWN, ca_certs=self._plan.ca_certs)

    def _goes_on(self) -> bool:
        return not _ended.is_set()


def shop(plan: Plan) -> Shopping:
    """Shop until the end: a load in this process."""
    history = History(serials=itertools.count(plan.number * _APART + 1))
    shoppers = [Shopper(plan, history, number) for number in range(plan.clients)]
    with ThreadPoolExecutor(plan.clients) as pool:
        for ended in [pool.submit(each.shop_on) for each in shoppers]:
            ended.result()
    return Shopping(
        history.operations,
        history.unanswered,
        sum(each.pages for each in shoppers),
        [complaint for each in shoppers for complaint in each.complaints],
    )


class Loads:
    """Loads that go on until `end`."""

    def __init__(self, shopping: list[Future[Shopping]], ended: Event) -> None:
        self._shopping, self._ended = shopping, ended

    def end(self) -> list[Shopping]:
        """Let them end; return what they have seen."""
        self._ended.set()
        return [each.result() for each in self._shopping]


@contextmanager
def shopping(plans: list[Plan]) -> Iterator[Loads]:
    """Run loads, each a process of its own, until their end or that of the block."""
    context = multiprocessing.get_context("spawn")
    ended = context.Event()
    with ProcessPoolExecutor(
        len(plans), mp_context=context, initializer=_begin, initargs=(ended,)
    ) as pool:
        try:
            yield Loads([pool.submit(shop, plan) for plan in plans], ended)
        finally:
            ended.set()


def _begin(*ended: Event) -> None:
    global _ended
    (_ended,) = ended
