"""Mixed load on a service, for a process of its own, so that it shares no lock with what measures.

A client cancels again what it places, and ships little, so that the list of orders stays as long as
it was, and its time the same, but for the rows of cancelled orders, which a list passes over: some
5 ms for 100,000.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.proofs.core.clients import ORDERS, Customer, Key
from tests.proofs.core.history import History, Kind, Operation

# Of each client; with that many it cancels one instead of placing another.
_MOST_OPEN = 20
_SHIP_EVERY_SECONDS = 60
_NO_ANSWER = 0
_NOBODY = Key("-", "nobody")


@dataclass(frozen=True)
class Plan:
    """The load: `rate` in requests a second, or 0 for as many as are answered.

    `standing` are ids of orders that nobody changes, `small` is a key with next to no quota. Runs
    on the same store need seeds that differ, or they would use the same Idempotency-Keys.
    """

    url: str
    key: Key
    small: Key
    standing: list[int]
    clients: int
    rate: float
    seconds: float
    seed: str


@dataclass(frozen=True)
class Record:
    """One request: when it was due and how long the answer took from then on, in seconds."""

    at: float
    took: float
    what: str
    status: int
    is_expected: bool


def run(plan: Plan) -> list[Record]:
    """Send what a plan says; return all requests, by the time at which they were due."""
    began = time.monotonic()
    clients = [Client(plan, number, began) for number in range(plan.clients)]
    with ThreadPoolExecutor(plan.clients) as pool:
        for ended in [pool.submit(client.run) for client in clients]:
            ended.result()
    records = [record for client in clients for record in client.records]
    return sorted(records, key=lambda record: record.at)


class Client(Customer):
    """A customer who asks when it is time to, and leaves nothing behind."""

    def __init__(self, plan: Plan, number: int, began: float) -> None:
        """Take the plan, the number of this client, and when the run began."""
        super().__init__(History(), plan.key, plan.key, f"{plan.seed}-{number}")
        self._plan, self._began = plan, began
        self._every = plan.clients / plan.rate if plan.rate else 0.0
        self._due = began + self._every * (number / plan.clients - 1)
        self._list_tag = ""
        self._shipped_at = 0.0
        self.records: list[Record] = []
        self._habits = {
            self.list: 8,
            self.list_if_changed: 17,
            self.get: 25,
            self.get_if_changed: 17,
            self.place: 8,
            self.place_again: 3,
            self.cancel: 8,
            self.ship: 3,
            self.ask_without_a_key: 3,
            self.change_a_missing_order: 3,
            self.place_nonsense: 3,
            self.go_on_over_the_limit: 2,
        }

    def run(self) -> None:
        """Send requests until the time is over, each when it is due."""
        self.shop(self._plan.url)
        self._note()

    def _goes_on(self) -> bool:
        self._note()
        # Late ones are sent at once, and their waiting counts.
        self._due = self._due + self._every if self._every else time.monotonic()
        if self._due < self._began + self._plan.seconds:
            time.sleep(max(0.0, self._due - time.monotonic()))
            return True
        while self._history.recent and self.cancel():
            pass
        self._history.operations.clear()
        return False

    def _note(self) -> None:
        for each in self._history.operations:
            at, took = self._due - self._began, each.ended - self._due
            is_expected = each.status in each.allowed
            self.records.append(Record(at, took, each.kind, each.status or _NO_ANSWER, is_expected))
        self._history.operations.clear()

    def list(self) -> bool:
        """List all orders."""
        return self._read(ORDERS, 200)

    def list_if_changed(self) -> bool:
        """List all orders, unless they are as they were."""
        return self._read(ORDERS, 200, 304, tag=self._list_tag)

    def get(self) -> bool:
        """Get an order."""
        order_id = self._chance.choice([*self._plan.standing, *self._history.recent])
        return self._read(f"{ORDERS}/{order_id}", 200)

    def get_if_changed(self) -> bool:
        """Get an order that has not changed."""
        return self._read(f"{ORDERS}/{self._plan.standing[0]}", 304, tag="*")

    def ask_without_a_key(self) -> bool:
        """List all orders with no key that there is."""
        return self._read(ORDERS, 401, key=_NOBODY)

    def go_on_over_the_limit(self) -> bool:
        """Use the key that has next to no quota."""
        return self._read(f"{ORDERS}/{self._plan.standing[0]}", 200, 429, key=self._plan.small)

    def place(self) -> bool:
        """Place an order, half of the time with an Idempotency-Key."""
        return self.cancel() if len(self._history.recent) >= _MOST_OPEN else super().place()

    def cancel(self) -> bool:
        """Cancel an order of its own."""
        if not self._history.recent:
            return self.place()
        return self._change(Kind.CANCEL, 204, self._history.recent.popleft())

    def ship(self) -> bool:
        """Ship one that has shipped already; once in a while one that has not."""
        now = time.monotonic()
        if self._history.recent and now - self._shipped_at > _SHIP_EVERY_SECONDS:
            self._shipped_at = now
            return self._change(Kind.SHIP, 200, self._history.recent.popleft())
        return self._change(Kind.SHIP, 409, self._plan.standing[-1])

    def _change(self, kind: Kind, status: int, order_id: int) -> bool:
        return self._send(Operation(kind, self._key.actor, (status,), order_id))

    def _read(self, path: str, *allowed: int, key: Key | None = None, tag: str = "") -> bool:
        reading = Operation(Kind.GET, self._key.actor, allowed)
        headers = {"If-None-Match": tag} if tag else {}
        response = self._connection.send(reading, key or self._key, "GET", path, headers=headers)
        if response is not None and path == ORDERS:
            self._list_tag = response.headers.get("ETag", self._list_tag)
        return response is not None

    def _remember(self, operation: Operation) -> None:
        # Those of before are open, or cancelled.
        if not operation.replayed:
            super()._remember(operation)
