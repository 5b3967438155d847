"""The queue of each endpoint: events that are due, claims, retries, and the log of deliveries.

A command may pause an endpoint, move its position or remove it while a message is on its way. So
the statements that record an outcome check that the endpoint is as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import Connection

from orders.domain import EventType
from orders.store import orders_json
from orders.store.database.database import Query, converted, instant_of
from orders.store.tables import order_events, webhook_deliveries, webhook_endpoints, webhook_refused
from orders.webhooks.endpoints import Endpoint, EventNotFound, get_all

CLAIM_LASTS = timedelta(seconds=3)
# How far the clocks of several processes' machines may differ.
CLOCKS_DIFFER = timedelta(seconds=1)
# A backlog is counted within this many events, which takes some milliseconds.
_COUNTED_AT_MOST = 10_000
_SWEPT_AT_ONCE = 500
_REFUSED = (webhook_refused.c.event_id, webhook_refused.c.tries, webhook_refused.c.next_at)
_EVENT = (
    order_events.c.id,
    order_events.c.type,
    order_events.c.at,
    order_events.c.actor,
    order_events.c.request_id,
    orders_json.order_v2(order_events),
)
# One for each type of event, so that the compiled statement fits every endpoint.
_TYPES = [f"type_{number}" for number, _ in enumerate(EventType)]


@dataclass(frozen=True, slots=True)
class Event:
    """An event; `order` is the order as it stood then, as JSON in version 2's form.

    `request_id` is None for commands.
    """

    id: int
    type: EventType
    at: datetime
    actor: str
    request_id: str | None
    order: str


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """An event that was put aside, the attempts so far, and when the next is due."""

    event_id: int
    tries: int
    next_at: datetime


@dataclass(frozen=True, slots=True)
class Delivery:
    """An attempt and its outcome; see `webhook_deliveries` for its columns."""

    endpoint_id: int
    event_id: int | None
    at: datetime
    outcome: str
    status: int | None
    fault: str | None
    milliseconds: int
    answer: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A delivery as the log has it: its id, and which attempt for its event it was."""

    id: int
    number: int
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class EndpointState:
    """The state of an endpoint: its backlog, the events put aside, and the last attempt."""

    endpoint: Endpoint
    behind: int
    refused: int
    last: Delivery | None

    @property
    def state(self) -> str:
        """`paused`, `waiting` (for a retry), or `active`."""
        if self.endpoint.paused_at is not None:
            return "paused"
        return "waiting" if self.endpoint.next_at is not None else "active"


# The statements of every delivery are compiled once; those after failures are not.
_NEXT_WANTED = Query(
    sa.select(*_EVENT)
    .where(
        order_events.c.id > sa.bindparam("after"),
        order_events.c.type.in_([sa.bindparam(t) for t in _TYPES]),
    )
    .order_by(order_events.c.id)
    .limit(1)
)
NEXT_REFUSED = Query(
    sa.select(*_REFUSED)
    .where(webhook_refused.c.endpoint_id == sa.bindparam("of_endpoint"))
    .order_by(webhook_refused.c.next_at, webhook_refused.c.event_id)
    .limit(1)
)
_CLAIM = Query(
    sa.update(webhook_endpoints)
    .where(
        webhook_endpoints.c.id == sa.bindparam("of_endpoint"),
        sa.or_(
            webhook_endpoints.c.claimed_by.is_(None),
            webhook_endpoints.c.claimed_by == sa.bindparam("process"),
            webhook_endpoints.c.claimed_until <= sa.bindparam("now"),
            # Made before the clock was set back.
            webhook_endpoints.c.claimed_until > sa.bindparam("beyond"),
        ),
    )
    .values(claimed_by=sa.bindparam("process"), claimed_until=sa.bindparam("until"))
)
_ADVANCE = Query(
    sa.update(webhook_endpoints)
    .where(
        webhook_endpoints.c.id == sa.bindparam("of_endpoint"),
        webhook_endpoints.c.position == sa.bindparam("from_position"),
    )
    .values(position=sa.bindparam("to_position"), tries=0, next_at=None)
)
_MADE: dict[str, Any] = {
    name: sa.bindparam(f"made_{name}", type_=webhook_deliveries.c[name].type)
    for name in Delivery.__slots__[1:]
}
_OF_EVENT, _OTHER = order_events.alias(), order_events.alias()
_IS_FORGOTTEN = sa.exists().where(
    _OF_EVENT.c.id == _MADE["event_id"],
    _OTHER.c.order_id == _OF_EVENT.c.order_id,
    _OTHER.c.id >= _OF_EVENT.c.id,
    _OTHER.c.type == EventType.FORGOTTEN.value,
)
# The answer may repeat data that was forgotten even while the message was on its way.
_ANSWER = sa.case((_IS_FORGOTTEN, ""), else_=_MADE["answer"])
_IS_THERE = sa.or_(
    _MADE["event_id"].is_(None), sa.exists().where(order_events.c.id == _MADE["event_id"])
)
# Inserts nothing if the endpoint was removed, or the log emptied.
_LOG = Query(
    sa.insert(webhook_deliveries).from_select(
        Delivery.__slots__,
        sa.select(webhook_endpoints.c.id, *(_MADE | {"answer": _ANSWER}).values()).where(
            webhook_endpoints.c.id == sa.bindparam("of_endpoint"), _IS_THERE
        ),
    )
)


def next_wanted(connection: Connection, endpoint: Endpoint, after: int) -> Event | None:
    """Return the first event after `after` of a type that the endpoint wants, or None."""
    # An endpoint may want fewer types than there are: its last one fills the others.
    types = dict(zip_longest(_TYPES, endpoint.events, fillvalue=endpoint.events[-1]))
    rows = _NEXT_WANTED.execute(connection, after=after, **types).fetchall()
    return _event(rows[0]) if rows else None


def event(connection: Connection, event_id: int) -> Event:
    row = connection.execute(sa.select(*_EVENT).where(order_events.c.id == event_id)).one_or_none()
    if row is None:
        raise EventNotFound(event_id)
    return _event(row)


def backlog(connection: Connection, endpoint: Endpoint, after: int) -> tuple[int, datetime | None]:
    """Return the size of an endpoint's backlog after an event, and when its oldest event happened.

    Only the next 10,000 events, of any type, are considered.
    """
    later = (
        sa.select(order_events.c.type, order_events.c.at)
        .where(order_events.c.id > after)
        .order_by(order_events.c.id)
        .limit(_COUNTED_AT_MOST)
        .subquery()
    )
    wanted = sa.select(sa.func.count(), sa.func.min(later.c.at)).where(
        later.c.type.in_(endpoint.events)
    )
    count, oldest = connection.execute(wanted).one()
    return count, oldest


def next_refused(connection: Connection, endpoint_id: int) -> RefusedEvent | None:
    """Return the event put aside whose retry is due first, or None."""
    rows = NEXT_REFUSED.execute(connection, of_endpoint=endpoint_id).fetchall()
    if not rows:
        return None
    event_id, tries, next_at = rows[0]
    return RefusedEvent(event_id, tries, cast("datetime", instant_of(next_at)))


def refused_counts(connection: Connection) -> dict[int, int]:
    """Return how many events each endpoint, by its id, has put aside; only where there are any."""
    counts = sa.select(webhook_refused.c.endpoint_id, sa.func.count()).group_by(
        webhook_refused.c.endpoint_id
    )
    return dict(connection.execute(counts).all())


def claim(connection: Connection, endpoint_id: int, process: str, now: datetime) -> bool:
    """Claim an endpoint for a process; return False if it is claimed by another."""
    until = now + CLAIM_LASTS
    claimed = _CLAIM.execute(
        connection,
        of_endpoint=endpoint_id,
        process=process,
        now=now,
        until=until,
        beyond=until + CLOCKS_DIFFER,
    )
    return bool(claimed.rowcount)


def release(connection: Connection, process: str | None = None) -> None:
    """Release the claims of a process that ends, or those of all."""
    owner = webhook_endpoints.c.claimed_by
    claimed = owner.is_not(None) if process is None else owner == process
    connection.execute(
        sa.update(webhook_endpoints).where(claimed).values(claimed_by=None, claimed_until=None)
    )


def log_delivery(connection: Connection, delivery: Delivery) -> bool:
    """Append to the log of deliveries; return False if its endpoint, or its event, is gone."""
    made = {f"made_{name}": getattr(delivery, name) for name in Delivery.__slots__}
    return bool(_LOG.execute(connection, of_endpoint=delivery.endpoint_id, **made).rowcount)


def advance(connection: Connection, endpoint: Endpoint, position: int) -> bool:
    """Advance an endpoint past an event; return False if a command moved it meanwhile."""
    moved = _ADVANCE.execute(
        connection,
        of_endpoint=endpoint.id,
        from_position=endpoint.position,
        to_position=position,
    )
    return bool(moved.rowcount)


def schedule_retry(
    connection: Connection, endpoint: Endpoint, tries: int, next_at: datetime
) -> None:
    """Schedule a retry of the event after the position, unless a command moved it meanwhile."""
    same = sa.update(webhook_endpoints).where(
        webhook_endpoints.c.id == endpoint.id, webhook_endpoints.c.position == endpoint.position
    )
    connection.execute(same.values(tries=tries, next_at=next_at))


def put_aside(connection: Connection, endpoint: Endpoint, refused: RefusedEvent) -> None:
    """Advance past an event that is retried by itself, unless a command moved it meanwhile."""
    if advance(connection, endpoint, refused.event_id):
        forget_refused(connection, endpoint.id, refused.event_id)
        connection.execute(
            sa.insert(webhook_refused).values(endpoint_id=endpoint.id, **asdict(refused))
        )


def reschedule(connection: Connection, endpoint_id: int, refused: RefusedEvent) -> None:
    connection.execute(
        sa.update(webhook_refused)
        .where(_is_refused(endpoint_id, refused.event_id))
        .values(tries=refused.tries, next_at=refused.next_at)
    )


def forget_refused(connection: Connection, endpoint_id: int, event_id: int) -> None:
    """Stop retrying an event that was put aside."""
    connection.execute(sa.delete(webhook_refused).where(_is_refused(endpoint_id, event_id)))


def newest_at(connection: Connection) -> datetime | None:
    newest: datetime | None = connection.scalar(sa.select(sa.func.max(webhook_deliveries.c.at)))
    return newest


def latest(connection: Connection, endpoint_id: int, limit: int) -> list[Delivery]:
    return [each.delivery for each in attempts(connection, endpoint_id, None, limit)]


def attempts(
    connection: Connection, endpoint_id: int, before: int | None, limit: int
) -> list[Attempt]:
    """Return the attempts at deliveries to an endpoint, the newest first: those before an id."""
    log, earlier = webhook_deliveries, webhook_deliveries.alias()
    number = (
        sa.select(sa.func.count())
        .where(
            earlier.c.event_id == log.c.event_id,
            earlier.c.endpoint_id == log.c.endpoint_id,
            earlier.c.id <= log.c.id,
        )
        .scalar_subquery()
    )
    columns = [getattr(log.c, name) for name in Delivery.__slots__]
    own = sa.select(log.c.id, number, *columns).where(log.c.endpoint_id == endpoint_id)
    if before is not None:
        own = own.where(log.c.id < before)
    rows = connection.execute(own.order_by(log.c.id.desc()).limit(limit))
    # A ping is about no event: it is one by itself.
    return [Attempt(row_id, max(nth, 1), Delivery(*made)) for row_id, nth, *made in rows]


def endpoint_states(connection: Connection) -> list[EndpointState]:
    return [endpoint_state(connection, endpoint) for endpoint in get_all(connection)]


def endpoint_state(connection: Connection, endpoint: Endpoint) -> EndpointState:
    return EndpointState(
        endpoint,
        behind=_count_behind(connection, endpoint),
        refused=refused_counts(connection).get(endpoint.id, 0),
        last=next(iter(latest(connection, endpoint.id, 1)), None),
    )


def _count_behind(connection: Connection, endpoint: Endpoint) -> int:
    wanted = order_events.c.id > endpoint.position, order_events.c.type.in_(endpoint.events)
    count: int = connection.execute(sa.select(sa.func.count()).where(*wanted)).scalar_one()
    return count


def sweep(connection: Connection, before: datetime) -> bool:
    """Delete some log lines older than `before`; return whether there may be more."""
    old = (
        sa.select(webhook_deliveries.c.id)
        .where(webhook_deliveries.c.at < before)
        .order_by(webhook_deliveries.c.at)
    )
    swept = connection.execute(
        sa.delete(webhook_deliveries).where(webhook_deliveries.c.id.in_(old.limit(_SWEPT_AT_ONCE)))
    )
    return swept.rowcount == _SWEPT_AT_ONCE


def _is_refused(endpoint_id: int, event_id: int) -> sa.ColumnElement[bool]:
    return sa.and_(
        webhook_refused.c.endpoint_id == endpoint_id, webhook_refused.c.event_id == event_id
    )


def _event(row: Sequence[Any]) -> Event:
    event_id, kind, at, *rest = row
    return Event(event_id, converted(EventType, kind), cast("datetime", instant_of(at)), *rest)
