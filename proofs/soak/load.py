"""Mixed load on a service, for a process of its own, so that it shares no lock with what measures.

A client cancels again what it places, and ships little, so that the list of orders stays as long as
it was, and its time the same, but for the rows of cancelled orders, which a list passes over: some
5 ms for 100,000.
"""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from tests.support.wire import GONE, Answer, Wire

ORDERS = "/v1/store/orders"
# Of each client; with that many it cancels one instead of placing another.
_MOST_OPEN = 20
_SHIP_EVERY_SECONDS = 60
_NO_ANSWER = 0


@dataclass(frozen=True)
class Plan:
    """The load: `rate` in requests a second, or 0 for as many as are answered.

    `standing` are ids of orders that nobody changes, `small` is a key with next to no quota. Runs
    on the same store need seeds that differ, or they would use the same Idempotency-Keys.
    """

    address: tuple[str, int]
    key: str
    small: str
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
    clients = [Client(plan, number) for number in range(plan.clients)]
    began = time.monotonic()
    with ThreadPoolExecutor(plan.clients) as pool:
        for ended in [pool.submit(client.run, began) for client in clients]:
            ended.result()
    records = [record for client in clients for record in client.records]
    return sorted(records, key=lambda record: record.at)


class Client:
    """One client with a connection for each of its keys."""

    def __init__(self, plan: Plan, number: int) -> None:
        """Take the plan, and the number of this client."""
        self._plan = plan
        self._number = number
        self._chance = random.Random(f"{plan.seed}/{number}")
        self._wire = Wire(plan.address, plan.key)
        self._small = Wire(plan.address, plan.small)
        self._nobody = Wire(plan.address)
        self._open: deque[int] = deque()
        self._placed: deque[tuple[str, dict[str, Any]]] = deque(maxlen=5)
        self._list_tag = ""
        self._shipped_at = 0.0
        self.records: list[Record] = []
        self._habits: dict[Callable[[], tuple[Answer, bool]], int] = {
            self.list: 8,
            self.list_if_changed: 17,
            self.get: 25,
            self.get_if_changed: 17,
            self.place: 4,
            self.place_safely: 4,
            self.place_again: 3,
            self.cancel: 8,
            self.ship: 3,
            self.ask_without_a_key: 3,
            self.get_a_missing_order: 3,
            self.place_nonsense: 3,
            self.go_on_over_the_limit: 2,
        }

    def run(self, began: float) -> None:
        """Send requests until the time is over, each when it is due."""
        for wire in (self._wire, self._small, self._nobody):
            wire.connect()
        habits, weights = list(self._habits), list(self._habits.values())
        every = self._plan.clients / self._plan.rate if self._plan.rate else 0.0
        due = began + every * self._number / self._plan.clients
        while due < began + self._plan.seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            self._note(due, began, self._chance.choices(habits, weights)[0])
            # Late ones are sent at once, and their waiting counts.
            due = due + every if every else time.monotonic()
        while self._open:
            self.cancel()
        for wire in (self._wire, self._small, self._nobody):
            wire.close()

    def _note(self, due: float, began: float, habit: Callable[[], tuple[Answer, bool]]) -> None:
        what = habit.__name__
        try:
            answer, is_expected = habit()
        except GONE:
            record = Record(due - began, time.monotonic() - due, what, _NO_ANSWER, False)
        else:
            record = Record(due - began, answer.ended - due, what, answer.status, is_expected)
        self.records.append(record)

    # The habits. Each returns the answer, and whether it was to be expected.

    def list(self) -> tuple[Answer, bool]:
        """List all orders."""
        answer = self._wire.ask("GET", ORDERS)
        self._list_tag = answer.headers["ETag"] or ""
        return answer, answer.status == HTTPStatus.OK

    def list_if_changed(self) -> tuple[Answer, bool]:
        """List all orders, unless they are as they were."""
        answer = self._wire.ask("GET", ORDERS, headers={"If-None-Match": self._list_tag})
        self._list_tag = answer.headers["ETag"] or ""
        return answer, answer.status in {HTTPStatus.OK, HTTPStatus.NOT_MODIFIED}

    def get(self) -> tuple[Answer, bool]:
        """Get an order."""
        answer = self._wire.ask("GET", f"{ORDERS}/{self._any_order()}")
        return answer, answer.status == HTTPStatus.OK

    def get_if_changed(self) -> tuple[Answer, bool]:
        """Get an order that has not changed."""
        answer = self._wire.ask(
            "GET", f"{ORDERS}/{self._plan.standing[0]}", headers={"If-None-Match": "*"}
        )
        return answer, answer.status == HTTPStatus.NOT_MODIFIED

    def place(self) -> tuple[Answer, bool]:
        """Place an order."""
        return self._place(None)

    def place_safely(self) -> tuple[Answer, bool]:
        """Place an order with an Idempotency-Key."""
        return self._place(f"{self._chance.getrandbits(64):x}")

    def place_again(self) -> tuple[Answer, bool]:
        """Repeat a placing with its Idempotency-Key."""
        if not self._placed:
            return self.place_safely()
        value, order = self._chance.choice(self._placed)
        answer = self._wire.ask("POST", ORDERS, order, {"Idempotency-Key": value})
        return (
            answer,
            answer.status == HTTPStatus.CREATED and "Idempotent-Replayed" in answer.headers,
        )

    def cancel(self) -> tuple[Answer, bool]:
        """Cancel an order of its own."""
        if not self._open:
            return self.place()
        answer = self._wire.ask("DELETE", f"{ORDERS}/{self._open.popleft()}")
        return answer, answer.status == HTTPStatus.NO_CONTENT

    def ship(self) -> tuple[Answer, bool]:
        """Ship one that has shipped already; once in a while one that has not."""
        now = time.monotonic()
        if self._open and now - self._shipped_at > _SHIP_EVERY_SECONDS:
            self._shipped_at = now
            answer = self._wire.ask("POST", f"{ORDERS}/{self._open.popleft()}/ship")
            return answer, answer.status == HTTPStatus.OK
        answer = self._wire.ask("POST", f"{ORDERS}/{self._plan.standing[-1]}/ship")
        return answer, answer.status == HTTPStatus.CONFLICT

    def ask_without_a_key(self) -> tuple[Answer, bool]:
        """List all orders without a key."""
        answer = self._nobody.ask("GET", ORDERS)
        return answer, answer.status == HTTPStatus.UNAUTHORIZED

    def get_a_missing_order(self) -> tuple[Answer, bool]:
        """Get an order that there is not."""
        answer = self._wire.ask("GET", f"{ORDERS}/{2**53 - 1}")
        return answer, answer.status == HTTPStatus.NOT_FOUND

    def place_nonsense(self) -> tuple[Answer, bool]:
        """Place an order without sense."""
        answer = self._wire.ask("POST", ORDERS, {"petId": "seven"})
        return answer, answer.status == HTTPStatus.UNPROCESSABLE_ENTITY

    def go_on_over_the_limit(self) -> tuple[Answer, bool]:
        """Use the key that has next to no quota."""
        answer = self._small.ask("GET", f"{ORDERS}/{self._plan.standing[0]}")
        return answer, answer.status in {HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS}

    def _place(self, value: str | None) -> tuple[Answer, bool]:
        if len(self._open) >= _MOST_OPEN:
            return self.cancel()
        order = {"petId": self._chance.randint(1, 1_000), "quantity": self._chance.randint(1, 9)}
        headers = {"Idempotency-Key": value} if value else {}
        answer = self._wire.ask("POST", ORDERS, order, headers)
        if answer.status == HTTPStatus.CREATED:
            self._open.append(json.loads(answer.body)["id"])
            self._placed += [(value, order)] if value else []
        return answer, answer.status == HTTPStatus.CREATED

    def _any_order(self) -> int:
        return self._chance.choice([*self._plan.standing, *self._open])
