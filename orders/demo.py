"""A demo: a small store with orders of the last weeks, some pets, and a key to try them with."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from orders import system
from orders.apikeys import SCOPES
from orders.clock import Clock
from orders.domain import EventType, NewOrder, Origin, Pet, PetStatus
from orders.key_service import KeyService
from orders.settings import DEFAULT_PLANS
from orders.store import apikeys as key_store
from orders.store import orders, pets
from orders.store.apikeys import NewKey
from orders.store.database.database import Database

ORDERS = 40
WEEKS = timedelta(weeks=4)
PETS = ("Rex", "Mimi", "Hasso", "Luna", "Bello", "Kira", "Paul", "Frieda", "Oskar", "Nala")

# The pets by number, as in a shop's catalogue.
ITEMS = (
    *("Red collar, 35 cm", "Dog food, 5 kg", "Rubber bone", "Cat bed, grey", "Lead, 2 m"),
    *("Scratching post", "Treats, 500 g", "Bowl, 2 l", "Brush", "Carrier, small"),
)
PEOPLE = (
    "Mia Wong\nHauptstr. 5\n50667 Köln",
    "Ada Lovelace\n12 St James's Square\nLondon SW1Y 4JH",
    "Zoë O'Brien\n3 Rue de la Paix\n75002 Paris",
    "Jan Kowalski\nul. Długa 7\n00-238 Warszawa",
    "Sam Miller\n1 Main Street\nSpringfield, IL 62701",
)

_CONTENT_TYPE = "Content-Type: application/json"
_ORDER = '{"petId": 7, "quantity": 2}'


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo store. `made` is whether its orders were made just now."""

    secret: str
    made: bool
    next_order_id: int


def prepare(database: Database, clock: Clock) -> Demo | None:
    """Fill an empty database, or rotate a demo database's key.

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
    """Return the text that `--demo` prints: the key, where to sign in, `curl` lines to try."""
    orders_url = f"{address}/v1/store/orders"
    order_url = f"{orders_url}/{prepared.next_order_id}"
    content_type, order = map(system.quoted, (_CONTENT_TYPE, _ORDER))
    body = f"-H {content_type} -d {order}"
    curl = f"{system.CURL} -H {system.quoted(f'Authorization: Bearer {prepared.secret}')}"
    made = f" with {ORDERS} orders of the last weeks" if prepared.made else ""
    return f"""
This is a demo store{made}. Its API key is

{prepared.secret}

Open {address} in a browser and sign in with it.

Or try it from another terminal:

List the orders:
  {curl} {orders_url}
Place one:
  {curl} {body} {orders_url}
Look at it, ship it, and see that it can't be cancelled any more:
  {curl} {order_url}
  {curl} -X POST {order_url}/ship
  {curl} -X DELETE {order_url}
See the limits of this key:
  {curl} -i {address}/v2/usage
"""


def _fill(connection: Connection, now: datetime) -> None:
    kinds = list(PetStatus)
    numbered = enumerate(PETS, start=1)
    pets.replace_all(
        connection, [Pet(nth, name, 1 + nth % 3, kinds[nth % 3]) for nth, name in numbered]
    )
    shop, ids = Origin("cli"), dict[str, int]()
    for at, event, new in _history(now):
        reference = str(new.reference)
        if event is EventType.PLACED:
            ids[reference] = orders.insert_pending(connection, new, shop, at).order_id
        elif event is EventType.SHIPPED:
            orders.ship_pending(connection, [ids[reference]], at, shop, at)
        else:
            orders.cancel_pending(connection, ids[reference], shop, at)


def _history(now: datetime) -> list[tuple[datetime, EventType, NewOrder]]:
    """Return what has happened to each order, by time, as a shop's event log has it."""
    chance = random.Random(40)  # noqa: S311 - the same demo each time # nosec B311
    history = []
    for nth, ago in enumerate(sorted((chance.random() for _ in range(ORDERS)), reverse=True)):
        placed_at = (now - ago * WEEKS).replace(microsecond=0)
        expected = placed_at + timedelta(days=chance.choice((1, 2, 3, 6)))
        is_cancelled, is_late = chance.random() < 0.06, chance.random() < 0.12  # noqa: PLR2004
        # Most people want the same few pets.
        pet = int(len(PETS) * chance.random() ** 2)
        new = NewOrder(
            pet + 1,
            chance.choice((1, 1, 1, 1, 2, 2, 3, 6)),
            expected if chance.random() < 0.8 else None,  # noqa: PLR2004 - others are not dated
            f"{placed_at:%Y%m}-{nth + 1:06}",
            note="A gift: no invoice" if nth % 9 == 2 else None,  # noqa: PLR2004
            item=ITEMS[pet],
            ship_to=PEOPLE[nth % len(PEOPLE)],
        )
        done_at = placed_at + timedelta(hours=5) if is_cancelled else expected
        done_at += timedelta(days=3 * is_late, minutes=chance.randrange(60))
        history.append((placed_at, EventType.PLACED, new))
        history.append((done_at, EventType.CANCELLED if is_cancelled else EventType.SHIPPED, new))
    return sorted((each for each in history if each[0] <= now), key=lambda each: each[0])
