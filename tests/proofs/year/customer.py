"""The customer of the year, who remembers what a day is and what a page showed."""

from __future__ import annotations

from bisect import bisect
from typing import Any

from tests.proofs.core.checks import EVENT_OF
from tests.proofs.core.clients import Connection, Customer, Key
from tests.proofs.core.history import History, Kind, Operation
from tests.proofs.year.shop import DAY, Shop

PAGE = "/v2/store/orders?sort=-id&limit=20"
# Of the time in which an Idempotency-Key is remembered, this much is left open.
MARGIN = 120.0
GROUP = 10
REPEATED = 5
_NOT_MODIFIED = 304


class InProcess(Connection):
    """A connection to the shop in this process."""

    def __init__(self, shop: Shop, history: History) -> None:
        self._http = shop
        self._history = history
        self._unknown = (503,)

    def close(self) -> None:
        """Do nothing, as the shop stays open."""


class Regular(Customer):
    """A customer who comes all the year, at a steady rate."""

    def __init__(
        self, shop: Shop, history: History, key: Key, reader: Key, seed: str, *, per_day: int
    ) -> None:
        super().__init__(history, key, reader, seed)
        self._shop = shop
        self._connection = self._connect("")
        self._habits = {
            self.place: 48,
            self.ship: 16,
            self.cancel: 8,
            self.get: 2,
            self.look: 3,
            self.place_again: 5,
            self.place_late: 2,
            self.reuse_key: 1,
            self.place_nonsense: 1,
            self.change_a_missing_order: 1,
        }
        placings = self._habits[self.place] + self._habits[self.place_late]
        self._gap = DAY / per_day * placings / sum(self._habits.values())
        self._until = 0.0
        self.faults: list[str] = []
        self.changes = self.newest = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the orders so far: they are checked."""
        self._history.operations.clear()
        self._history.recent.clear()
        self._placed.clear()
        # Placings with Idempotency-Keys, by when they were made; and when, by petId.
        self._keyed: list[tuple[float, Operation]] = []
        self.keyed_at: dict[int, float] = {}
        # Of the page seen last, and the changes by then.
        self._tag: tuple[str, int] | None = None

    @property
    def is_settled(self) -> bool:
        return self._unanswered is None

    def come(self, seconds: float) -> None:
        """Send requests for so long, or until one is not answered."""
        self._until = self._shop.clock.monotonic() + seconds
        self.shop("")
        self._shop.clock.advance(max(0.0, self._until - self._shop.clock.monotonic()))

    def repeat_some(self) -> None:
        for _ in range(REPEATED):
            self.place_again()

    def _connect(self, url: str) -> Connection:
        return InProcess(self._shop, self._history)

    def _goes_on(self) -> bool:
        # Customers come in groups.
        if self._chance.random() < 1 / GROUP:
            self._shop.clock.advance(self._chance.uniform(0, 2 * GROUP * self._gap))
        return self._shop.clock.monotonic() < self._until

    def look(self) -> bool:
        """Look at the newest page, if it has changed since the last time."""
        looking = Operation(Kind.GET, self._reader.actor, (200, _NOT_MODIFIED))
        headers = {"If-None-Match": self._tag[0]} if self._tag else {}
        answer: Any = self._connection.send(looking, self._reader, "GET", PAGE, headers=headers)
        self._unanswered = None
        if answer is None:
            return False
        is_same = self._tag is not None and self._tag[1] == self.changes
        if (answer.status == _NOT_MODIFIED) != is_same:
            was = self._tag and self._tag[1]
            self.faults.append(f"a page of {was} changes is {answer.status} after {self.changes}")
        if answer.status != _NOT_MODIFIED:
            newest = max((order["id"] for order in answer.json()["orders"]), default=0)
            if newest < self.newest:
                self.faults.append(f"a page begins with order {newest}: {self.newest} is newer")
        self._tag = answer.headers["ETag"], self.changes
        return True

    def place_again(self) -> bool:
        """Repeat a placing, often one of almost a day ago."""
        young = self._young()
        return not young or self._repeat(
            self._chance.choice([young[0], self._chance.choice(young)])
        )

    def reuse_key(self) -> bool:
        """Use an Idempotency-Key of the last day for another order."""
        young = self._young()
        if not young:
            return True
        return self._place(self._order(), 422, self._chance.choice(young).idempotency_key)

    def _young(self) -> list[Operation]:
        first = bisect(self._keyed, self._now() - DAY + MARGIN, key=lambda each: each[0])
        return [placing for _, placing in self._keyed[first:]]

    def place_late(self) -> bool:
        """Use an Idempotency-Key again that was used more than a day ago."""
        if not self._keyed or self._keyed[0][0] > self._now() - DAY - MARGIN:
            return self.place()
        _, earlier = self._keyed.pop(0)
        return self._place(self._order(), 201, earlier.idempotency_key)

    def _place(self, order: dict[str, Any], status: int, value: str | None = None) -> bool:
        if value:
            self.keyed_at[order["petId"]] = self._now()
        return super()._place(order, status, value)

    def _remember(self, operation: Operation) -> None:
        super()._remember(operation)
        if operation.is_unknown:
            self._tag = None
        if operation.is_acknowledged and operation.kind in EVENT_OF and not operation.replayed:
            self.changes += 1
            self.newest = max(self.newest, (operation.order or {"id": 0})["id"])
            if operation.idempotency_key:
                self._keyed.append((self._now(), operation))

    def _now(self) -> float:
        return self._shop.clock.monotonic()
