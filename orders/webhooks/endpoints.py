"""What is asked of webhooks' endpoints: add, list, pause, resume, rotate, remove, what was tried.

What is due to them, and what came of it, is asked in `deliveries`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from orders.domain import EventType
from orders.store import events
from orders.store.database.engine import Database
from orders.store.database.queries import Query
from orders.store.database.types import instant_of
from orders.store.tables import DeliveryRow, EndpointRow, EventRow, RefusedRow

# Each that has something to be sent has a thread of its own: see `orders.webhooks.outbox`.
MAX_ENDPOINTS = 32


class EndpointNotFound(Exception):
    """There is no endpoint of that id."""

    def __init__(self, endpoint_id: int) -> None:
        """Take the id that was asked for."""
        super().__init__(
            f"There is no webhook {endpoint_id}. `flask webhooks list` shows them all."
        )


class EventNotFound(Exception):
    """There is no event of that id."""

    def __init__(self, event_id: int) -> None:
        """Take the id that was asked for."""
        super().__init__(f"There is no event {event_id} in the event log.")


class TooManyEndpoints(Exception):
    """There are as many endpoints as there may be."""

    def __init__(self) -> None:
        """Say how to mend it."""
        super().__init__(
            f"There are {MAX_ENDPOINTS} webhooks, and may not be more. "
            "Remove one with `flask webhooks remove ID`."
        )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint as the store has it; for its columns see `EndpointRow`."""

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

    def secrets(self, now: datetime) -> list[str]:
        """Return the secrets that sign at this time: the newest, and one in its grace."""
        is_in_grace = self.previous_until is not None and now < self.previous_until
        grace = [self.previous_secret] if is_in_grace and self.previous_secret else []
        return [self.secret, *grace]


_NAMES = Endpoint.__slots__
_INSTANTS = ("previous_until", "created_at", "next_at", "paused_at", "claimed_until")
_COLUMNS = [getattr(EndpointRow, name) for name in _NAMES]
_FIND = Query(select(*_COLUMNS).where(EndpointRow.id == bindparam("endpoint_id")))
_ALL = Query(select(*_COLUMNS).order_by(EndpointRow.id))
_PAUSED = Query(
    select(EndpointRow.id, EndpointRow.paused_at)
    .where(EndpointRow.paused_at.is_not(None))
    .order_by(EndpointRow.id)
)


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """What an endpoint is added with."""

    url: str
    events: tuple[EventType, ...]
    secret: str
    allow_private: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """A try, and what came of it; for its columns see `DeliveryRow`."""

    endpoint_id: int
    event_id: int | None
    at: datetime
    outcome: str
    status: int | None
    fault: str | None
    milliseconds: int
    answer: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How an endpoint stands: wanted events still to be delivered, events put aside, the last try.

    It is what `list` shows, and what a console or a metric can ask for.
    """

    endpoint: Endpoint
    behind: int
    refused: int
    last: Delivery | None

    @property
    def state(self) -> str:
        """`paused`, `waiting` (for its next try), or `active`."""
        if self.endpoint.paused_at is not None:
            return "paused"
        return "waiting" if self.endpoint.next_at is not None else "active"


def add(connection: Connection, new: NewEndpoint, now: datetime) -> int:
    """Insert an endpoint, which begins with the next event; return its id.

    Raises:
        TooManyEndpoints: there may be no more.
    """
    count: int = connection.execute(select(func.count()).select_from(EndpointRow)).scalar_one()
    if count >= MAX_ENDPOINTS:
        raise TooManyEndpoints
    endpoint_id: int = connection.execute(
        insert(EndpointRow)
        .values(
            url=new.url,
            events=" ".join(new.events),
            secret=new.secret,
            allow_private=new.allow_private,
            created_at=now,
            position=events.REVISION,
            tries=0,
        )
        .returning(EndpointRow.id)
    ).scalar_one()
    return endpoint_id


def get(connection: Connection, endpoint_id: int) -> Endpoint:
    """Return an endpoint.

    Raises:
        EndpointNotFound: there is none of this id.
    """
    found = find(connection, endpoint_id)
    if found is None:
        raise EndpointNotFound(endpoint_id)
    return found


def find(connection: Connection, endpoint_id: int) -> Endpoint | None:
    """Return an endpoint, or None where there is none of this id."""
    rows = _FIND.execute(connection, endpoint_id=endpoint_id).fetchall()
    return _endpoint(rows[0]) if rows else None


def get_all(connection: Connection) -> list[Endpoint]:
    """Return all endpoints, the oldest first."""
    return [_endpoint(row) for row in _ALL.execute(connection).fetchall()]


def paused(database: Database) -> list[tuple[int, datetime]]:
    """Return the ids of the endpoints that are paused, and since when.

    Raises:
        StoreUnavailable: the database can't be read.
    """
    rows = [(int(row[0]), instant_of(row[1])) for row in database.ask(_PAUSED)]
    return [(endpoint_id, since) for endpoint_id, since in rows if since is not None]


def standings(connection: Connection) -> list[Standing]:
    """Return how each endpoint stands."""
    found = []
    for endpoint in get_all(connection):
        behind = select(func.count()).where(
            EventRow.id > endpoint.position, EventRow.type.in_(endpoint.events)
        )
        refused = select(func.count()).where(RefusedRow.endpoint_id == endpoint.id)
        last = deliveries(connection, endpoint.id, 1)
        counts = connection.execute(behind).scalar_one(), connection.execute(refused).scalar_one()
        found.append(Standing(endpoint, *counts, last[0] if last else None))
    return found


def remove(connection: Connection, endpoint_id: int) -> None:
    """Remove an endpoint, with all that was kept of it.

    Raises:
        EndpointNotFound: there is none of this id.
    """
    get(connection, endpoint_id)
    for table in (RefusedRow, DeliveryRow):
        connection.execute(delete(table).where(table.endpoint_id == endpoint_id))
    connection.execute(delete(EndpointRow).where(EndpointRow.id == endpoint_id))


def pause(connection: Connection, endpoint_id: int, because: str, now: datetime) -> bool:
    """Deliver nothing to an endpoint from now on; tell whether it was not paused before."""
    live = update(EndpointRow).where(EndpointRow.id == endpoint_id, EndpointRow.paused_at.is_(None))
    changed = connection.execute(live.values(paused_at=now, paused_because=because))
    return changed.rowcount > 0


def resume(connection: Connection, endpoint_id: int, now: datetime, after: int | None) -> None:
    """Deliver to an endpoint again, at once and with all tries; from after an event, if given.

    Then all that waited before is forgotten: events up to that one are never delivered by
    themselves, those behind it are, be it once more.

    Raises:
        EndpointNotFound, EventNotFound: there is none of this id.
    """
    get(connection, endpoint_id)
    values: dict[str, Any] = {"paused_at": None, "paused_because": None, "tries": 0}
    own = RefusedRow.endpoint_id == endpoint_id
    if after is None:
        connection.execute(update(RefusedRow).where(own).values(tries=0, next_at=now))
    else:
        if after > events.newest_id(connection):
            raise EventNotFound(after)
        connection.execute(delete(RefusedRow).where(own))
        values["position"] = after
    _change(connection, endpoint_id, next_at=None, **values)


def rotate(connection: Connection, endpoint_id: int, secret: str, until: datetime) -> None:
    """Return an endpoint a new secret; the one before it signs, too, until that time.

    Raises:
        EndpointNotFound: there is none of this id.
    """
    previous = get(connection, endpoint_id).secret
    _change(connection, endpoint_id, secret=secret, previous_secret=previous, previous_until=until)


def deliveries(connection: Connection, endpoint_id: int, limit: int) -> list[Delivery]:
    """Return the last tries of an endpoint, the newest first."""
    columns = [getattr(DeliveryRow, name) for name in Delivery.__slots__]
    own = select(*columns).where(DeliveryRow.endpoint_id == endpoint_id)
    return [
        Delivery(*row)
        for row in connection.execute(own.order_by(DeliveryRow.id.desc()).limit(limit))
    ]


def _change(connection: Connection, endpoint_id: int, **values: Any) -> None:
    connection.execute(update(EndpointRow).where(EndpointRow.id == endpoint_id).values(**values))


def _endpoint(row: Sequence[Any]) -> Endpoint:
    fields = dict(zip(_NAMES, row, strict=True))
    for name in _INSTANTS:
        fields[name] = instant_of(fields[name])
    fields["events"] = tuple(map(EventType, fields["events"].split()))
    fields["allow_private"] = bool(fields["allow_private"])
    return Endpoint(**fields)
