"""A demo: a small store with orders of the last weeks, some pets, and a key to try them with.

Its orders are those of a believable shop, with seasons, weekdays, opening hours, cancellations and
late shipping. Tests and measurements use `lives` for as many as they need.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from orders.clock import Clock
from orders.domain import NewOrder, Origin, Pet, PetStatus
from orders.key_service import SCOPES, KeyService
from orders.settings import DEFAULT_PLANS
from orders.store import apikeys as key_store
from orders.store import orders, pets
from orders.store.apikeys import NewKey
from orders.store.database.database import Database

ORDERS = 40
DAYS = 28
PETS = ("Rex", "Mimi", "Hasso", "Luna", "Bello", "Kira", "Paul", "Frieda", "Oskar", "Nala")

# How busy the months, the days of the week (from Monday) and the hours of the day are.
_MONTHS = (0.8, 0.8, 1.0, 1.2, 1.2, 1.0, 0.7, 0.7, 1.0, 1.0, 1.2, 1.9)
_WEEKDAYS = (0.9, 0.8, 0.9, 1.0, 1.3, 1.6, 0.4)
_HOURS = (1, 0, 0, 0, 0, 1, 2, 4, 7, 10, 11, 11, 9, 8, 9, 10, 11, 12, 12, 10, 9, 8, 5, 2)
_QUANTITIES = (1, 1, 1, 1, 1, 1, 2, 2, 3, 6)
_CANCELLED = 0.06
_LATE = 0.12
_DATE_IS_KNOWN = 0.8
_SUNDAY = 6


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo store. `made` is whether its orders were made just now."""

    secret: str
    made: bool
    next_order_id: int


def prepare(database: Database, clock: Clock) -> Demo | None:
    """Fill an empty database, or give a demo database's key a new secret.

    Returns None, and changes nothing, where the database has orders of a shop's own.
    """
    now = clock.now()
    with database.write() as connection:
        demo_key_id = key_store.demo_key_id(connection)
        if demo_key_id is None and orders.newest_order(connection):
            return None
        if demo_key_id is None:
            _fill(connection, now)
        keys = KeyService(connection, now, DEFAULT_PLANS)
        if demo_key_id is not None and key_store.get(connection, demo_key_id).is_valid(now):
            _, secret = keys.rotate(demo_key_id, force=True)
        else:
            key_id, secret = keys.issue(NewKey("demo", "business", SCOPES))
            key_store.set_demo_key_id(connection, key_id)
        next_order_id = orders.newest_order(connection) + 1
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
    changes = [
        change for life in lives(ORDERS, begin, now, chance, len(PETS)) for change in _changes(life)
    ]
    # By time, as the event log of a shop has them.
    for _, make in sorted(changes, key=lambda each: each[0]):
        make(connection)


def _changes(life: Life) -> Iterator[tuple[datetime, Callable[[Connection], None]]]:
    shop = Origin("cli")
    new = NewOrder(life.pet_id, life.quantity, life.expected, life.reference)
    ids: list[int] = []

    def place(connection: Connection) -> None:
        placed = orders.insert_pending(connection, new, shop, life.placed_at)
        ids.append(placed.order_id)

    def cancel(connection: Connection) -> None:
        orders.cancel_pending(connection, ids[0], shop, life.cancelled_at or life.placed_at)

    def ship(connection: Connection) -> None:
        shipped_at = life.shipped_at or life.placed_at
        orders.ship_pending(connection, ids[:1], shipped_at, shop, shipped_at)

    yield life.placed_at, place
    if life.cancelled_at:
        yield life.cancelled_at, cancel
    elif life.shipped_at:
        yield life.shipped_at, ship


@dataclass(frozen=True, slots=True)
class Life:
    """An order and its fate. `shipped_at` and `cancelled_at` are None if that has not happened."""

    placed_at: datetime
    pet_id: int
    quantity: int
    expected: datetime | None
    shipped_at: datetime | None
    cancelled_at: datetime | None
    reference: str


def lives(
    count: int, begin: datetime, end: datetime, chance: random.Random, pets: int = 50
) -> Iterator[Life]:
    """Yield this many orders, placed from `begin` until before `end`, in the order of placing.

    Nothing has happened yet that would happen after `end`. Pets are numbered from 1. The same
    `chance` makes the same orders.
    """
    days = [begin + timedelta(days=day) for day in range(max(1, (end - begin).days))]
    busy = [_MONTHS[day.month - 1] * _WEEKDAYS[day.weekday()] for day in days]
    moments = (
        _moment(day, chance).replace(microsecond=0) for day in chance.choices(days, busy, k=count)
    )
    for number, placed_at in enumerate(sorted(min(moment, end) for moment in moments), start=1):
        yield _live(number, placed_at, end, chance, pets)


def _moment(day: datetime, chance: random.Random) -> datetime:
    (hour,) = chance.choices(range(24), _HOURS)
    return day.replace(hour=0, minute=0, second=0) + timedelta(
        hours=hour, seconds=chance.randrange(3600)
    )


def _live(
    number: int, placed_at: datetime, end: datetime, chance: random.Random, pets: int
) -> Life:
    expected = _working_day(placed_at + timedelta(days=chance.choice((1, 1, 2, 2, 3))))
    done_at = expected.replace(hour=9 + chance.randrange(8), minute=chance.randrange(60))
    if chance.random() < _LATE:
        done_at = _working_day(done_at + timedelta(days=chance.randint(2, 6)))
    cancelled_at = None
    if chance.random() < _CANCELLED:
        cancelled_at = placed_at + timedelta(minutes=chance.randrange(5, 24 * 60))
        done_at = end + timedelta(days=1)
    return Life(
        placed_at,
        # A few pets are what most people want.
        1 + int(pets * chance.random() ** 2),
        chance.choice(_QUANTITIES),
        expected if chance.random() < _DATE_IS_KNOWN else None,
        done_at if done_at < end else None,
        cancelled_at if cancelled_at and cancelled_at < end else None,
        f"{placed_at:%Y%m}-{number:06}",
    )


def _working_day(moment: datetime) -> datetime:
    return moment + timedelta(days=1) if moment.weekday() == _SUNDAY else moment
