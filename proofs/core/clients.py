"""The clients of a run that is cut off: what they send.

Each goes on until nobody answers any more. When the service is back it first asks again for what it
does not know: a placing with its Idempotency-Key, a ship, a cancel.
"""

from __future__ import annotations

import random
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from proofs.core.history import Kind, Operation
from proofs.crash.connection import ORDERS, Books, Connection, Key, look_within

_ROUTES = {
    Kind.PLACE: ("POST", ORDERS),
    Kind.SHIP: ("POST", ORDERS + "/{}/ship"),
    Kind.CANCEL: ("DELETE", ORDERS + "/{}"),
    Kind.LOOK: ("GET", ORDERS + "/{}"),
}
_OF_NOBODY = 2**53
_RATE_LIMITED = 429
# What may come of changing an order that others change, too.
_SHIPPED = (200, 404, 409)
_CANCELLED = (204, 404, 409)


@dataclass(frozen=True, slots=True)
class Ban:
    """A ban that a key was told of. `ends` is in monotonic seconds."""

    key: Key
    ends: float


def run_into_a_ban(url: str, books: Books, key: Key) -> Ban | None:
    """Place orders with a key of few requests until it is banned; give None if cut off before."""
    with closing(Connection(url, books)) as connection:
        while True:
            placing = Operation(Kind.PLACE, key.actor, (201, 429), asked=books.order_of_one_pet())
            response = connection.send(placing, key, "POST", ORDERS, json=placing.asked)
            if response is None:
                return None
            if response.status == _RATE_LIMITED and response.json()["code"] == "api_key_banned":
                return Ban(key, placing.ended + int(response.headers["Retry-After"]))


class Customer:
    """A client with habits of its own, which a seed gives it."""

    def __init__(self, books: Books, key: Key, reader: Key, seed: str) -> None:
        """Take the books, a key that may write, and one that may only read."""
        self._books, self._key, self._reader = books, key, reader
        self._chance = random.Random(seed)
        self._seed = seed
        self._last: Operation | None = None
        self._placed: deque[Operation] = deque(maxlen=20)
        self._habits = {
            self.place: 50,
            self.ship: 14,
            self.cancel: 10,
            self.look: 12,
            self.place_again: 5,
            self.look_at_all: 1,
            self.reuse: 3,
            self.place_nonsense: 2,
            self.place_with_a_read_key: 2,
            self.change_what_is_not_there: 2,
        }

    def shop(self, url: str) -> None:
        """Send requests until one is not answered."""
        habits, weights = list(self._habits), list(self._habits.values())
        with closing(self._connect(url)) as self._connection:
            unanswered = self._last
            if unanswered is not None and not self._ask_again(unanswered):
                self._last = unanswered
                return
            while self._goes_on() and self._chance.choices(habits, weights)[0]():
                pass

    def _connect(self, url: str) -> Connection:
        return Connection(url, self._books)

    def _goes_on(self) -> bool:
        return True

    # What it does. Each tells whether it was answered.

    def place(self) -> bool:
        """Place an order, half of the time with an Idempotency-Key."""
        asked = self._order()
        value = self._chance.choice([None, f"{self._seed}-{asked['petId']}"])
        return self._send(Operation(Kind.PLACE, self._key.actor, (201,), asked=asked, value=value))

    def place_again(self) -> bool:
        """Send again what was placed with an Idempotency-Key."""
        return not self._placed or self._ask_again(self._chance.choice(self._placed))

    def reuse(self) -> bool:
        """Use an Idempotency-Key for another order."""
        if not self._placed:
            return True
        value = self._chance.choice(self._placed).value
        asked = self._order()
        return self._send(Operation(Kind.PLACE, self._key.actor, (422,), asked=asked, value=value))

    def place_nonsense(self) -> bool:
        """Place what can't be placed."""
        asked = {**self._order(), "quantity": 0}
        return self._send(Operation(Kind.PLACE, self._key.actor, (422,), asked=asked))

    def place_with_a_read_key(self) -> bool:
        """Place without being allowed to."""
        return self._send(Operation(Kind.PLACE, self._reader.actor, (403,), asked=self._order()))

    def ship(self) -> bool:
        """Ship one of the newest orders, half of the time with a date."""
        asked = self._chance.choice([{}, {"shipDate": self._date()}])
        return self._about_a_recent_one(Kind.SHIP, self._key, _SHIPPED, asked)

    def cancel(self) -> bool:
        """Cancel one of the newest orders."""
        return self._about_a_recent_one(Kind.CANCEL, self._key, _CANCELLED)

    def look(self) -> bool:
        """Look at one of the newest orders."""
        return self._about_a_recent_one(Kind.LOOK, self._reader, (200, 404))

    def change_what_is_not_there(self) -> bool:
        """Ship or cancel an order that there is not."""
        kind = self._chance.choice([Kind.SHIP, Kind.CANCEL])
        missing = _OF_NOBODY + next(self._books.serials)
        return self._send(Operation(kind, self._key.actor, (404,), missing))

    def look_at_all(self) -> bool:
        """List all orders, and note what was shown of the newest."""
        newest = list(self._books.recent)
        looking = Operation(Kind.LOOK, self._reader.actor, (200,))
        response = self._connection.send(looking, self._reader, "GET", ORDERS)
        self._last = None
        if response is None:
            return False
        listed = {order["id"]: order for order in response.json()}
        self._books.history += [look_within(looking, each, listed.get(each)) for each in newest]
        return True

    # How it does it.

    def _about_a_recent_one(
        self, kind: Kind, key: Key, allowed: tuple[int, ...], asked: dict[str, Any] | None = None
    ) -> bool:
        if not self._books.recent:
            return True
        order_id = self._chance.choice(self._books.recent)
        return self._send(Operation(kind, key.actor, allowed, order_id, asked or {}))

    def _ask_again(self, earlier: Operation) -> bool:
        return self._send(
            Operation(
                earlier.kind,
                earlier.actor,
                earlier.allowed,
                earlier.order_id,
                earlier.asked,
                earlier.value,
            )
        )

    def _send(self, operation: Operation) -> bool:
        method, path = _ROUTES[operation.kind]
        path = path.format(operation.order_id)
        request: dict[str, Any] = {"json": operation.asked} if operation.asked else {}
        if operation.value:
            request["headers"] = {"Idempotency-Key": operation.value}
        key = self._key if operation.actor == self._key.actor else self._reader
        answered = self._connection.send(operation, key, method, path, **request) is not None
        self._note(operation)
        return answered

    def _note(self, operation: Operation) -> None:
        # Without an Idempotency-Key a placing can't be asked for again.
        can_ask_again = operation.value or operation.kind in {Kind.SHIP, Kind.CANCEL}
        self._last = operation if operation.is_unknown and can_ask_again else None
        if operation.kind is Kind.PLACE and operation.order:
            self._books.recent.append(operation.order["id"])
            if operation.value and not operation.replayed:
                self._placed.append(operation)

    def _order(self) -> dict[str, Any]:
        order = self._books.order_of_one_pet()
        order |= self._chance.choice([{}, {"quantity": self._chance.randint(1, 9)}])
        return order | self._chance.choice([{}, {"shipDate": self._date()}])

    def _date(self) -> str:
        day, millisecond = self._chance.randint(1, 28), self._chance.randrange(1000)
        return f"2026-12-{day:02}T08:00:00.{millisecond:03}Z"
