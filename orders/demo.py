"""A demo: a small store with orders of the last weeks, some pets, and a key to try them with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from orders import keys, year
from orders.clock import Clock
from orders.domain import NewOrder, Origin, Pet, PetStatus
from orders.store import keys as key_store
from orders.store import orders, pets
from orders.store.database.engine import Database
from orders.store.keys import NewKey
from orders.year import Life

ORDERS = 40
DAYS = 28
PETS = ("Rex", "Mimi", "Hasso", "Luna", "Bello", "Kira", "Paul", "Frieda", "Oskar", "Nala")


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo that is ready. `made` tells whether its orders were made just now."""

    secret: str
    made: bool
    next_order_id: int


def prepare(database: Database, clock: Clock) -> Demo | None:
    """Fill an empty database, or give a demo database's key a new secret.

    Gives None, and changes nothing, where the database has orders of a shop's own.
    """
    now = clock.now()
    secret = keys.generate()
    with database.write() as connection:
        demo_key_id = key_store.demo_key_id(connection)
        if demo_key_id is None and orders.newest_id(connection):
            return None
        if demo_key_id is None:
            _fill(connection, now)
        if demo_key_id is not None and key_store.get(connection, demo_key_id).is_valid(now):
            key_store.rotate(
                connection, demo_key_id, keys.shown_prefix(secret), keys.digest(secret), None
            )
        else:
            key_store.set_demo_key_id(connection, _issue(connection, secret, now))
        next_order_id = orders.newest_id(connection) + 1
    return Demo(secret, demo_key_id is None, next_order_id)


def introduction(prepared: Demo, address: str) -> str:
    """Return what `--demo` prints: the key, where to sign in, and `curl` lines to try."""
    orders_url = f"{address}/v1/store/orders"
    order_url = f"{orders_url}/{prepared.next_order_id}"
    body = "-H 'Content-Type: application/json' -d '{\"petId\": 7, \"quantity\": 2}'"
    authorization = f"-H 'Authorization: Bearer {prepared.secret}'"
    made = f" with {ORDERS} orders of the last weeks" if prepared.made else ""
    return f"""
This is a demo store{made}. Its API key is

{prepared.secret}

Open {address} in a browser and sign in with it.

Or try it from another terminal:

List the orders:
  curl {authorization} {orders_url}
Place one:
  curl {authorization} {body} {orders_url}
Look at it, ship it, and see that it can't be cancelled any more:
  curl {authorization} {order_url}
  curl {authorization} -X POST {order_url}/ship
  curl {authorization} -X DELETE {order_url}
See the limits of this key:
  curl -i {authorization} {address}/v2/usage
"""


def _issue(connection: Connection, secret: str, now: datetime) -> int:
    new = NewKey("demo", "business", ("read", "write"))
    return key_store.issue(connection, new, keys.shown_prefix(secret), keys.digest(secret), now)


def _fill(connection: Connection, now: datetime) -> None:
    pets.replace_all(
        connection,
        [
            Pet(number, name, 1 + number % 3, list(PetStatus)[number % 3])
            for number, name in enumerate(PETS, start=1)
        ],
    )
    chance = random.Random(40)  # noqa: S311 - the same demo each time # nosec B311
    begin = now - timedelta(days=DAYS)
    happenings = [
        happening
        for life in year.lives(ORDERS, begin, now, chance, len(PETS))
        for happening in _happenings(life)
    ]
    # In the order of time, as the log of a shop would have it.
    for _, happen in sorted(happenings, key=lambda each: each[0]):
        happen(connection)


def _happenings(life: Life) -> Iterator[tuple[datetime, Callable[[Connection], None]]]:
    shop = Origin("cli")
    new = NewOrder(life.pet_id, life.quantity, life.expected, life.reference)
    ids: list[int] = []

    def place(connection: Connection) -> None:
        order, _ = orders.insert_pending(connection, new, shop, life.placed_at)
        ids.append(order.id)

    def cancel(connection: Connection) -> None:
        orders.cancel_pending(connection, ids[0], shop, life.cancelled_at or life.placed_at)

    def ship(connection: Connection) -> None:
        shipped_at = life.shipped_at or life.placed_at
        orders.ship_pending(connection, ids[0], shipped_at, shop, shipped_at)

    yield life.placed_at, place
    if life.cancelled_at:
        yield life.cancelled_at, cancel
    elif life.shipped_at:
        yield life.shipped_at, ship
