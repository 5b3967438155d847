"""Webhook endpoints: add, list, pause, resume, rotate, remove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from orders.domain import EventType, Expected
from orders.installation import command
from orders.store import orders as order_store
from orders.store import orders_json
from orders.store.database.database import Database, Query, count_of, instant_of
from orders.store.tables import webhook_deliveries, webhook_endpoints, webhook_refused

# Each of them may have a thread of its own: see `orders.webhooks.outbox`.
MAX_ENDPOINTS = 32
# The limit of a key without the scope admin: one integrator must not take the places of all.
MAX_OF_A_KEY = 8


class EndpointNotFound(Expected):
    def __init__(self, endpoint_id: int) -> None:
        super().__init__(
            f"There is no webhook {endpoint_id}. `{command('webhooks list')}` lists them."
        )


class EventNotFound(Expected):
    def __init__(self, event_id: int) -> None:
        super().__init__(f"There is no event {event_id} in the event log.")


class TooManyEndpoints(Expected):
    """There are as many as there may be, in the shop or of a key."""

    def __init__(self) -> None:
        super().__init__(
            f"There are {MAX_ENDPOINTS} webhooks, which is the maximum. "
            f"Remove one with `{command('webhooks remove ID')}`."
        )
        self.message = f"There are {MAX_ENDPOINTS} webhooks already. Remove one first."


class TooManyOfKey(TooManyEndpoints):
    """A key without the scope admin has added as many as it may."""

    def __init__(self) -> None:
        super().__init__()
        self.message = (
            f"Your key has added {MAX_OF_A_KEY} webhooks, the maximum without the scope admin. "
            "Remove one first."
        )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint; see `webhook_endpoints` for its columns."""

    id: int
    url: str
    events: tuple[EventType, ...]
    allow_private: bool
    secret: str
    previous_secret: str | None
    previous_until: datetime | None
    created_at: datetime
    position: int
    tries: int
    next_at: datetime | None
    paused_at: datetime | None
    paused_because: str | None
    claimed_by: str | None
    claimed_until: datetime | None
    added_by: int | None

    def secrets(self, now: datetime) -> list[str]:
        """Return the secrets that sign now: the newest, and the previous one during its grace."""
        is_in_grace = self.previous_until is not None and now < self.previous_until
        grace = [self.previous_secret] if is_in_grace and self.previous_secret else []
        return [self.secret, *grace]


_NAMES = Endpoint.__slots__
_INSTANTS = ("previous_until", "created_at", "next_at", "paused_at", "claimed_until")
_COLUMNS = [getattr(webhook_endpoints.c, name) for name in _NAMES]
_FIND = Query(select(*_COLUMNS).where(webhook_endpoints.c.id == bindparam("endpoint_id")))
_ALL = Query(select(*_COLUMNS).order_by(webhook_endpoints.c.id))


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    url: str
    events: tuple[EventType, ...]
    secret: str
    allow_private: bool = False
    added_by: int | None = None


def add(connection: Connection, new: NewEndpoint, now: datetime) -> int:
    """Add an endpoint, which starts at the next event; return its id, or raise TooManyEndpoints."""
    if count_of(connection, webhook_endpoints) >= MAX_ENDPOINTS:
        raise TooManyEndpoints
    endpoint_id: int = connection.execute(
        insert(webhook_endpoints)
        .values(
            url=new.url,
            events=" ".join(new.events),
            secret=new.secret,
            allow_private=new.allow_private,
            added_by=new.added_by,
            created_at=now,
            position=orders_json.REVISION,
            tries=0,
        )
        .returning(webhook_endpoints.c.id)
    ).scalar_one()
    return endpoint_id


def count_of_key(connection: Connection, key_id: int) -> int:
    """Return how many endpoints a key has added."""
    own = select(func.count()).where(webhook_endpoints.c.added_by == key_id)
    count: int = connection.execute(own).scalar_one()
    return count


def get(connection: Connection, endpoint_id: int) -> Endpoint:
    endpoint = find(connection, endpoint_id)
    if endpoint is None:
        raise EndpointNotFound(endpoint_id)
    return endpoint


def find(connection: Connection, endpoint_id: int) -> Endpoint | None:
    rows = _FIND.execute(connection, endpoint_id=endpoint_id).fetchall()
    return _endpoint(rows[0]) if rows else None


def get_all(connection: Connection) -> list[Endpoint]:
    return [_endpoint(row) for row in _ALL.execute(connection).fetchall()]


def paused(database: Database) -> list[tuple[int, datetime]]:
    with database.read() as connection:
        rows = get_all(connection)
    return [(each.id, each.paused_at) for each in rows if each.paused_at is not None]


def remove(connection: Connection, endpoint_id: int) -> None:
    """Remove an endpoint, its events put aside and its log."""
    get(connection, endpoint_id)
    for table in (webhook_refused, webhook_deliveries):
        connection.execute(delete(table).where(table.c.endpoint_id == endpoint_id))
    connection.execute(delete(webhook_endpoints).where(webhook_endpoints.c.id == endpoint_id))


def pause(connection: Connection, endpoint_id: int, because: str, now: datetime) -> bool:
    """Pause an endpoint; return False if it was paused before."""
    live = update(webhook_endpoints).where(
        webhook_endpoints.c.id == endpoint_id, webhook_endpoints.c.paused_at.is_(None)
    )
    changed = connection.execute(live.values(paused_at=now, paused_because=because))
    return changed.rowcount > 0


def resume(connection: Connection, endpoint_id: int, now: datetime, after: int | None) -> None:
    """Resume an endpoint at once, with a fresh schedule; `after` moves it to just after an event.

    After a move, events up to that one are no longer delivered automatically, and all later ones
    are delivered, even if they were before.
    """
    get(connection, endpoint_id)
    values: dict[str, Any] = {"paused_at": None, "paused_because": None, "tries": 0}
    own = webhook_refused.c.endpoint_id == endpoint_id
    if after is None:
        connection.execute(update(webhook_refused).where(own).values(tries=0, next_at=now))
    else:
        if after > order_store.newest_event(connection):
            raise EventNotFound(after)
        connection.execute(delete(webhook_refused).where(own))
        values["position"] = after
    _change(connection, endpoint_id, next_at=None, **values)


def rotate(connection: Connection, endpoint_id: int, secret: str, until: datetime) -> None:
    """Replace an endpoint's secret; the previous one signs, too, until `until`."""
    previous = get(connection, endpoint_id).secret
    _change(connection, endpoint_id, secret=secret, previous_secret=previous, previous_until=until)


def change_events(connection: Connection, endpoint_id: int, events: Sequence[EventType]) -> None:
    _change(connection, endpoint_id, events=" ".join(events))


def _change(connection: Connection, endpoint_id: int, **values: Any) -> None:
    connection.execute(
        update(webhook_endpoints).where(webhook_endpoints.c.id == endpoint_id).values(**values)
    )


def _endpoint(row: Sequence[Any]) -> Endpoint:
    fields = dict(zip(_NAMES, row, strict=True))
    for name in _INSTANTS:
        fields[name] = instant_of(fields[name])
    fields["events"] = tuple(map(EventType, fields["events"].split()))
    fields["allow_private"] = bool(fields["allow_private"])
    return Endpoint(**fields)
