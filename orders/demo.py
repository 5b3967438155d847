"""A demo: a small store with orders of the last weeks, some pets, and a key to try them with."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from orders import keys
from orders.clock import Clock
from orders.domain import NewOrder, Origin, Pet, PetStatus
from orders.store import keys as key_store
from orders.store import orders, pets
from orders.store.engine import Database
from orders.store.keys import NewKey

ORDERS = 40
_HAS_SHIP_DATE = 0.7
_IS_CANCELLED = 0.1
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
    """Give what the demo prints: its key, in lines to try. `address` is the service's."""
    orders_url = f"{address}/v1/store/orders"
    order_url = f"{orders_url}/{prepared.next_order_id}"
    body = "-H 'Content-Type: application/json' -d '{\"petId\": 7, \"quantity\": 2}'"
    authorization = f"-H 'Authorization: Bearer {prepared.secret}'"
    made = f"{ORDERS} orders of the last weeks were made. " if prepared.made else ""
    return f"""
This is a demo store. {made}Try it, in another terminal:

List the orders:
  curl {authorization} {orders_url}
Place one:
  curl {authorization} {body} {orders_url}
Look at it, ship it, and see that it can't be cancelled any more:
  curl {authorization} {order_url}
  curl {authorization} -X POST {order_url}/ship
  curl {authorization} -X DELETE {order_url}
See the limits of this key:
  curl -i {authorization} {address}/v1/pets/1
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
    # The same demo each time: what a newcomer sees is what README shows.
    chance = random.Random(40)  # noqa: S311 - no secret
    placed = sorted(
        now - timedelta(minutes=chance.randrange(DAYS * 24 * 60)) for _ in range(ORDERS)
    )
    for at in placed:
        _live_an_order(connection, chance, at, now)


def _live_an_order(
    connection: Connection, chance: random.Random, placed_at: datetime, now: datetime
) -> None:
    shop = Origin("cli")
    expected = placed_at + timedelta(days=chance.randint(1, 5))
    new = NewOrder(
        chance.randint(1, len(PETS)),
        chance.choice((1, 1, 1, 2, 3)),
        expected if chance.random() < _HAS_SHIP_DATE else None,
    )
    order, _ = orders.insert_pending(connection, new, shop, placed_at)
    done_at = placed_at + timedelta(hours=chance.randint(3, 96))
    if done_at > now:
        return
    if chance.random() < _IS_CANCELLED:
        orders.cancel_pending(connection, order.id, shop, done_at)
    else:
        orders.ship_pending(connection, order.id, done_at, shop, done_at)
