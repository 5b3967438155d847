"""Forgetting people: personal data of settled orders is deleted throughout the store.

It is in the order's row and events, the words that the search finds it by, the answers remembered
for Idempotency-Keys, and the responses of webhooks' receivers. Messages are made from events when
they are sent. Overwritten texts are gone from the file, too (`Database.scrub`).

Test mode's store can be emptied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Table

from orders.domain import AFTER_ALL, PERSONAL, EventType, Origin, Status
from orders.store import idempotency, stats
from orders.store import orders as order_store
from orders.store.database.database import Database, Instant, Query, Unindexed, count_of
from orders.store.orders import newest_event
from orders.store.tables import (
    idempotency_keys,
    order_events,
    order_quarters,
    order_words,
    orders,
    webhook_deliveries,
    webhook_endpoints,
    webhook_refused,
)

# The number of orders in a query, which takes some milliseconds.
_LOOKED_AT = 10_000
# The number of events that a transaction overwrites, unless a single order has more.
_LEAST_EVENTS, _MOST_EVENTS = 25, 400
# How long a transaction should take: others that write wait for it.
_MOMENT_SECONDS = 0.1
_BLANK = dict.fromkeys(PERSONAL, sa.null())
# In this order, no row refers to a deleted one.
_EMPTIED = (
    *(idempotency_keys, webhook_refused, webhook_deliveries, order_words, order_events, orders),
    order_quarters,
)
# The trigger that forbids deleting events, which is dropped for the transaction.
_RULE = "order_events_no_delete"
_DEFINITION = f"SELECT sql FROM sqlite_master WHERE name = '{_RULE}'"  # noqa: S608 # nosec B608 - our own name
_TRIGGERS = "ALTER TABLE order_events {} TRIGGER USER"


def _has_text(of: Table) -> ColumnElement[bool]:
    return sa.or_(*(of.c[name].is_not(None) for name in PERSONAL))


_IS_DUE = sa.and_(
    orders.c.status != Status.PENDING.value,
    sa.or_(
        _has_text(orders),
        sa.exists().where(order_events.c.order_id == orders.c.id, _has_text(order_events)),
    ),
)
_NUMBER_OF_EVENTS = (
    sa.select(sa.func.count())
    .select_from(order_events)
    .where(order_events.c.order_id == orders.c.id)
    .scalar_subquery()
)
_AFTER = orders.c.id > sa.bindparam("after", type_=sa.BigInteger)
_NEXT = sa.select(orders.c.id).where(_AFTER).order_by(orders.c.id).limit(_LOOKED_AT).subquery()
_LAST_OF_NEXT = Query(sa.select(sa.func.max(_NEXT.c.id)))
_DUE = Query(
    sa.select(orders.c.id, _NUMBER_OF_EVENTS)
    .where(
        _AFTER,
        orders.c.id <= sa.bindparam("last", type_=sa.BigInteger),
        Unindexed(orders.c.placed_at) < sa.bindparam("placed_before", type_=Instant),
        Unindexed(orders.c.updated_at) < sa.bindparam("unchanged_since", type_=Instant),
        _IS_DUE,
    )
    .order_by(orders.c.id)
)
_NAMED = Query.by_ids(
    lambda ids: sa.select(orders.c.id, _NUMBER_OF_EVENTS, orders.c.status).where(
        orders.c.id.in_(ids)
    )
)
_BLANK_ORDERS = Query.by_ids(
    lambda ids: (
        sa.update(orders)
        .where(orders.c.id.in_(ids), _IS_DUE)
        .values(updated_at=sa.bindparam("now"), **_BLANK)
        .returning(orders.c.id)
    )
)
_BLANK_EVENTS = Query.by_ids(
    lambda ids: (
        sa.update(order_events)
        .where(order_events.c.order_id.in_(ids), _has_text(order_events))
        .values(**_BLANK)
    )
)
_BLANK_DELIVERIES = Query.by_ids(
    lambda ids: (
        sa.update(webhook_deliveries)
        .where(
            webhook_deliveries.c.event_id.in_(
                sa.select(order_events.c.id).where(order_events.c.order_id.in_(ids))
            ),
            webhook_deliveries.c.answer != "",
        )
        .values(answer="")
    )
)


@dataclass(frozen=True, slots=True)
class Due:
    """An order that may have something to forget, and how many events it has."""

    order_id: int
    events: int


def due(
    database: Database,
    *,
    placed_before: datetime = AFTER_ALL,
    unchanged_since: datetime = AFTER_ALL,
) -> Iterator[Due]:
    """Yield the settled orders, placed and last changed before these times, that have a text."""
    after, bounds = 0, {"placed_before": placed_before, "unchanged_since": unchanged_since}
    while last := database.fetch_all(_LAST_OF_NEXT, after=after)[0][0]:
        yield from (Due(*row) for row in database.fetch_all(_DUE, after=after, last=last, **bounds))
        after = last


class Batches:
    """Orders in batches of ids, each of which takes a short transaction."""

    def __init__(self, orders: Iterable[Due]) -> None:
        self._orders = orders
        self._most = 4 * _LEAST_EVENTS

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        events = 0
        for each in self._orders:
            if batch and events + each.events > self._most:
                yield batch
                batch, events = [], 0
            batch.append(each.order_id)
            events += each.events
        if batch:
            yield batch

    def learn(self, seconds: float) -> None:
        """Adapt the size of the next batches to how long a transaction took."""
        factor = 2.0 if seconds < _MOMENT_SECONDS else 0.5 if seconds > 2 * _MOMENT_SECONDS else 1.0
        self._most = min(max(int(self._most * factor), _LEAST_EVENTS), _MOST_EVENTS)


def named(database: Database, order_ids: Iterable[int]) -> dict[Due, Status]:
    """Return those of some orders that exist, with their statuses."""
    rows = database.fetch_all(_NAMED, order_ids=json.dumps(sorted(order_ids)))
    return {Due(order_id, events): Status(status) for order_id, events, status in rows}


def forget(
    connection: Connection, order_ids: list[int], origin: Origin, now: datetime
) -> list[int]:
    """Delete the personal data of settled orders; return the orders that had some."""
    blanked = _BLANK_ORDERS.execute(connection, order_ids=json.dumps(order_ids), now=now)
    found = sorted(order_id for (order_id,) in blanked.fetchall())
    if found:
        ids = json.dumps(found)
        _BLANK_EVENTS.execute(connection, order_ids=ids)
        _BLANK_DELIVERIES.execute(connection, order_ids=ids)
        idempotency.forget(connection, found)
        for order_id in found:
            order_store.write_words(connection, order_id)
        order_store.append_for_each(connection, EventType.FORGOTTEN, found, origin)
    return found


def empty(connection: Connection) -> int:
    """Delete all orders and what came of them, in one transaction; return how many there were.

    Keys, webhooks, pets and the audit trail stay. Ids continue, so that nobody who remembers one
    takes another order, or event, for it.
    """
    count = count_of(connection, orders)
    # Endpoints no longer wait for what was not sent.
    newest = newest_event(connection)
    connection.execute(sa.update(webhook_endpoints).values(tries=0, next_at=None))
    waiting = sa.update(webhook_endpoints).where(webhook_endpoints.c.position < newest)
    connection.execute(waiting.values(position=newest))
    if connection.dialect.name == "sqlite":
        rule = str(connection.exec_driver_sql(_DEFINITION).scalar_one())
        connection.exec_driver_sql(f"DROP TRIGGER {_RULE}")
        for table in _EMPTIED:
            connection.execute(sa.delete(table))
        connection.exec_driver_sql(rule)
    else:
        connection.exec_driver_sql(_TRIGGERS.format("DISABLE"))
        connection.exec_driver_sql(f"TRUNCATE {', '.join(table.name for table in _EMPTIED)}")
        connection.exec_driver_sql(_TRIGGERS.format("ENABLE"))
    stats.begin(connection)
    return count
