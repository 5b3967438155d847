"""The orders and their events. Each change is one conditional statement, and appends its event.

Events are appended, never changed. Their ids rise in the order of commit, because only one
transaction writes at a time: a client that has seen an event has seen all events before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache, partial
from itertools import groupby
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, bindparam, select
from sqlalchemy.sql.dml import ReturningUpdate

from orders.domain import (
    MAX_INT64,
    SEARCHED,
    EventType,
    NewOrder,
    Order,
    Origin,
    Status,
    Unchangeable,
    changeable_in,
    search_words,
)
from orders.store import orders_json
from orders.store.database.database import (
    Database,
    Folded,
    Instant,
    Query,
    converted,
    instant_of,
)
from orders.store.tables import order_events, order_words, orders

# The part of an order that each of its events repeats, as it stood after the change.
COPIED = [column.name for column in orders.columns if column.name != "id"]
_COLUMNS = ("order_id", *COPIED, "type", "at", "actor", "request_id")


def _of_event(at: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """Return the columns of an event that an order does not have."""
    event, actor, request_id = (
        bindparam(name, type_=sa.String) for name in ("event", "actor", "request_id")
    )
    return [event, at, actor, request_id]


# The order as it stands in this transaction, as the columns of an event of it, which changed it.
_COPIES = select(
    orders.c.id, *(getattr(orders.c, name) for name in COPIED), *_of_event(at=orders.c.updated_at)
)
_CHANGED = (
    order_events.c.id,
    order_events.c.order_id,
    orders_json.order_v1(order_events),
    orders_json.order_v2(order_events),
)
_APPEND = Query(
    sa.insert(order_events)
    .from_select(_COLUMNS, _COPIES.where(orders.c.id == bindparam("order_id")))
    .returning(*_CHANGED)
)
_APPEND_EACH = Query.by_ids(
    lambda ids: (
        sa.insert(order_events)
        .from_select(_COLUMNS, _COPIES.where(orders.c.id.in_(ids)).order_by(orders.c.id))
        .returning(*_CHANGED)
    )
)
_RECALL = Query(select(*_CHANGED).where(order_events.c.id == bindparam("event_id")))
_NEWEST = Query(select(orders_json.REVISION))
_NEWEST_BUT = Query(
    select(order_events.c.id)
    .order_by(order_events.c.id.desc())
    .limit(1)
    .offset(bindparam("skipped"))
)


@dataclass(frozen=True, slots=True)
class Changed:
    """An order after one of its events, as both versions of the API show it."""

    event_id: int
    order_id: int
    v1: str
    v2: str

    def shown(self, version: int) -> str:
        return self.v1 if version == 1 else self.v2


# The outcome of changing an order.
Result = Changed | Unchangeable


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events as JSON texts, the id to continue from, and whether others follow."""

    events: list[str]
    next: int
    more: bool


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the log: its id, its type, and all of it as JSON."""

    id: int
    type: str
    json: str


def _in_order(query: Any) -> Any:
    after = bindparam("after", type_=sa.BigInteger)
    return (
        query.where(order_events.c.id > after).order_by(order_events.c.id).limit(bindparam("size"))
    )


_PAGE = _in_order(select(orders_json.event(), order_events.c.id))
_ALL = Query(_PAGE)
_LOG_PAGE = _in_order(select(order_events.c.id, order_events.c.type, orders_json.event()))
_LOG = Query(_LOG_PAGE)
# Without an index, which every order would pay for: it reads the whole log.
_OF_REQUEST = Query(
    _PAGE.where(order_events.c.request_id == bindparam("request_id", type_=sa.String))
)
_OF_ORDER = Query(
    _PAGE.where(order_events.c.order_id == bindparam("order_id", type_=sa.BigInteger))
)


@cache
def _of_types(number: int, *, as_log: bool = False) -> Query:
    """Return the statement for a page of some types: it walks the index of each."""
    walks = [
        _in_order(select(order_events.c.id).where(order_events.c.type == bindparam(f"type_{nth}")))
        for nth in range(number)
    ]
    ids = sa.union_all(*(select(each.subquery()) for each in walks))
    return Query((_LOG_PAGE if as_log else _PAGE).where(order_events.c.id.in_(ids)))


def append(connection: Connection, event: EventType, order_id: int, origin: Origin) -> Changed:
    """Append an event with the order as the same transaction has changed it; return both."""
    values = _values(event, origin)
    (row,) = _APPEND.execute(connection, order_id=order_id, **values).fetchall()
    return Changed(*row)


def append_for_each(
    connection: Connection, event: EventType, order_ids: list[int], origin: Origin
) -> list[Changed]:
    values = {**_values(event, origin), "order_ids": json.dumps(order_ids)}
    return [Changed(*row) for row in _APPEND_EACH.execute(connection, **values).fetchall()]


def append_for_all(
    connection: Connection,
    event: EventType,
    rows: sa.Select[Any],
    origin: Origin,
    at: datetime,
) -> None:
    """Append an event for each order that a query selects with all its columns."""
    added = rows.add_columns(*_of_event(at=bindparam("at", type_=Instant)))
    appended = sa.insert(order_events).from_select(_COLUMNS, added)
    connection.execute(appended, {**_values(event, origin), "at": at})


def _values(event: EventType, origin: Origin) -> dict[str, object]:
    return {"event": event.value, "actor": origin.actor, "request_id": origin.request_id}


def newest_event(connection: Connection) -> int:
    """Return the id of the newest event as a transaction sees it, 0 where there is none."""
    ((event_id,),) = _NEWEST.execute(connection).fetchall()
    return int(event_id)


def revision(database: Database) -> int:
    """Return the id of the newest event, 0 where there is none: the revision in lists' ETags."""
    ((event_id,),) = database.fetch_all(_NEWEST)
    return int(event_id)


def newest_event_of(connection: Connection, order_id: int) -> int:
    """Return the id of an order's newest event, 0 where there is none: its revision."""
    newest = select(sa.func.max(order_events.c.id)).where(order_events.c.order_id == order_id)
    return connection.scalar(newest) or 0


def recall(connection: Connection, event_id: int) -> Changed:
    """Return an event's order, as it was shown after the event."""
    (row,) = _RECALL.execute(connection, event_id=event_id).fetchall()
    return Changed(*row)


def order_of(row: Sequence[Any]) -> Order:
    """Return the order of a driver's row: the id, then the columns that events repeat."""
    return Order(**{name: read(value) for (name, read), value in zip(_READ, row, strict=True)})


def _reader(column: sa.Column[Any]) -> Callable[[Any], Any]:
    if column.name == "status":
        return partial(converted, Status)
    if isinstance(column.type, sa.Boolean):
        return lambda value: None if value is None else bool(value)
    return instant_of if isinstance(column.type, Instant) else lambda value: value


_READ = [(column.name, _reader(column)) for column in orders.columns]


def read_events(
    database: Database, after: int, size: int, types: Collection[str] = ()
) -> EventPage:
    """Return at most `size` of the events that follow one, of these types or of all.

    If there are none of these types, the id to continue from is the newest event's.
    """
    if not types:
        return _read(database, _ALL, after, size)
    # Before the page: an event that is committed between the two is not passed over.
    newest = revision(database)
    wanted = _by_number(types)
    page = _read(database, _of_types(len(wanted)), after, size, **wanted)
    return page if page.events else EventPage([], max(after, newest), more=False)


def read_log(database: Database, after: int, size: int, types: Collection[str] = ()) -> list[Event]:
    """Return at most `size` of the events that follow one, of these types or of all."""
    wanted = _by_number(types)
    query = _of_types(len(wanted), as_log=True) if wanted else _LOG
    return [Event(*row) for row in database.fetch_all(query, after=after, size=size, **wanted)]


def _by_number(types: Collection[str]) -> dict[str, str]:
    return {f"type_{nth}": each for nth, each in enumerate(sorted(types))}


def read_history(database: Database, order_id: int, after: int, size: int) -> EventPage:
    return _read(database, _OF_ORDER, after, size, order_id=order_id)


def read_request(database: Database, request_id: str, size: int) -> list[str]:
    """Return the first `size` events of one request."""
    return _read(database, _OF_REQUEST, 0, size, request_id=request_id).events


def _read(database: Database, query: Query, after: int, size: int, **values: Any) -> EventPage:
    rows = database.fetch_all(query, after=after, size=size + 1, **values)
    shown = rows[:size]
    return EventPage([row[0] for row in shown], shown[-1][1] if shown else after, len(rows) > size)


def id_before_last(database: Database, number: int) -> int:
    """Return the id after which exactly `number` events follow, 0 where there are fewer."""
    rows = database.fetch_all(_NEWEST_BUT, skipped=number)
    return int(rows[0][0]) if rows else 0


# The columns that a client sets.
_PLACED = [field.name for field in fields(NewOrder)]
_INSERT = Query(
    sa.insert(orders)
    .values(
        status=Status.PENDING.value,
        placed_at=bindparam("now"),
        updated_at=bindparam("now"),
        **{name: bindparam(f"new_{name}") for name in _PLACED},
    )
    .returning(orders.c.id)
)
_HAS_ID = orders.c.id == bindparam("order_id")
_IS_PENDING = orders.c.status == Status.PENDING.value
_FIND = Query(select(*orders.columns).where(_HAS_ID))
_REFERENCE = bindparam("sought", type_=orders.c.reference.type)
_FIRST_WITH_REFERENCE = Query(
    select(orders.c.id)
    # The index is of folded references.
    .where(Folded(orders.c.reference) == Folded(_REFERENCE), orders.c.reference == _REFERENCE)
    .order_by(orders.c.id)
    .limit(1)
)


def _change_of_pending(which: ColumnElement[bool], **values: object) -> ReturningUpdate[int]:
    # The condition is part of the statement, so that one of two racing changes wins.
    changing = sa.update(orders).where(which, _IS_PENDING)
    return changing.values(updated_at=bindparam("now"), **values).returning(orders.c.id)


_SHIPPED = {"status": Status.SHIPPED.value, "ship_date": bindparam("new_ship_date")}
_SHIP = Query.by_ids(lambda ids: _change_of_pending(orders.c.id.in_(ids), **_SHIPPED))
_CANCEL = Query(_change_of_pending(_HAS_ID, status=Status.CANCELLED.value))
_TRACK = Query(sa.update(orders).where(_HAS_ID).values(tracking=bindparam("new_tracking")))
# The date expected while the order was pending. One that was imported as shipped never was.
_EXPECTED = (
    select(order_events.c.ship_date)
    .where(order_events.c.order_id == orders.c.id, order_events.c.status == Status.PENDING.value)
    .order_by(order_events.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_REOPEN = Query(
    sa.update(orders)
    .where(_HAS_ID, sa.not_(_IS_PENDING))
    .values(
        status=Status.PENDING.value,
        ship_date=sa.case(
            (orders.c.status == Status.SHIPPED.value, _EXPECTED), else_=orders.c.ship_date
        ),
        tracking=None,
        updated_at=bindparam("now"),
    )
    .returning(orders.c.id)
)
# One by one: SQLite takes twice as long to read the usual two from a JSON array.
_ADD_WORD = Query(sa.insert(order_words))
_READ_AT_ONCE = 2_000
_NEXT_TEXTS = (
    sa.select(orders.c.id, *(orders.c[name] for name in SEARCHED))
    .where(orders.c.id > bindparam("after"))
    .order_by(orders.c.id)
    .limit(_READ_AT_ONCE)
)
_NEXT_WORDS = sa.select(order_words.c.order_id, order_words.c.word).where(
    order_words.c.order_id > bindparam("after"), order_words.c.order_id <= bindparam("last")
)
_REMOVE_WORDS = Query(sa.delete(order_words).where(order_words.c.order_id == bindparam("order_id")))


def _statuses(name: str) -> list[str]:
    """Return the statuses in which a field may change."""
    return sorted(changeable_in(name))


@cache
def _patch(names: tuple[str, ...]) -> Query:
    """Return the statement that changes some fields, unless one of them may not change any more."""
    new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
    same = {
        name: getattr(orders.c, name).is_not_distinct_from(value) for name, value in new.items()
    }
    allowed = [
        sa.or_(
            *(orders.c.status == each for each in statuses), sa.and_(*(same[name] for name in some))
        )
        for statuses, some in groupby(sorted(names, key=_statuses), key=_statuses)
        if {*statuses} != {*Status}
    ]
    return Query(
        sa.update(orders)
        .where(_HAS_ID, *allowed, sa.not_(sa.and_(sa.true(), *same.values())))
        .values(updated_at=bindparam("now"), **new)
        .returning(orders.c.id)
    )


def insert_pending(connection: Connection, new: NewOrder, origin: Origin, now: datetime) -> Changed:
    """Insert a pending order and its event; return it."""
    values = {f"new_{name}": getattr(new, name) for name in _PLACED}
    ((order_id,),) = _INSERT.execute(connection, now=now, **values).fetchall()
    _add_words(connection, order_id, new)
    return append(connection, EventType.PLACED, order_id, origin)


def ship_pending(  # noqa: PLR0913 - each by its name
    connection: Connection,
    order_ids: list[int],
    ship_date: datetime,
    origin: Origin,
    now: datetime,
    *,
    tracking: Mapping[int, str | None] = MappingProxyType({}),
) -> list[Changed]:
    """Ship those of the orders that are pending, some with their tracking; return them."""
    values = {"order_ids": json.dumps(order_ids), "new_ship_date": ship_date, "now": now}
    shipped = [row[0] for row in _SHIP.execute(connection, **values).fetchall()]
    for order_id in shipped:
        if text := tracking.get(order_id):
            _TRACK.execute(connection, order_id=order_id, new_tracking=text)
            write_words(connection, order_id)
    return append_for_each(connection, EventType.SHIPPED, shipped, origin)


def cancel_pending(
    connection: Connection, order_id: int, origin: Origin, now: datetime
) -> Changed | None:
    """Cancel the order if it is pending; return it, or None if it was not."""
    rows = _CANCEL.execute(connection, order_id=order_id, now=now)
    return _changed(connection, rows.fetchall(), EventType.CANCELLED, origin)


def patch(
    connection: Connection, order_id: int, changed: Mapping[str, Any], origin: Origin, now: datetime
) -> Changed | None:
    """Change fields of the order, if they may change and do; return it, or None if not."""
    new = {f"new_{name}": value for name, value in changed.items()}
    cursor = _patch(tuple(sorted(changed))).execute(connection, order_id=order_id, now=now, **new)
    rows = cursor.fetchall()
    if rows and not changed.keys().isdisjoint(SEARCHED):
        write_words(connection, order_id)
    return _changed(connection, rows, EventType.CHANGED, origin)


def reopen(connection: Connection, order_id: int, origin: Origin, now: datetime) -> Changed | None:
    """Make the order pending again if it is not; return it, or None if it was.

    It is expected to ship when it was before it shipped, if that is known.
    """
    rows = _REOPEN.execute(connection, order_id=order_id, now=now).fetchall()
    if rows:
        write_words(connection, order_id)
    return _changed(connection, rows, EventType.REOPENED, origin)


def write_words(connection: Connection, order_id: int) -> None:
    """Rewrite the words by which the search finds an order."""
    _REMOVE_WORDS.execute(connection, order_id=order_id)
    order = find(connection, order_id)
    if order is not None:
        _add_words(connection, order_id, order)


def misfound(database: Database) -> list[int]:
    """Return the ids of orders whose search words are not those of their texts."""
    found: list[int] = []
    after = 0
    while after < MAX_INT64:
        with database.snapshot() as connection:
            after, wrong = _misfound(connection, after)
        found += wrong
    return found


def _misfound(connection: Connection, after: int) -> tuple[int, list[int]]:
    """Return those among the next orders, and the id to continue after."""
    rows = connection.execute(_NEXT_TEXTS, {"after": after}).fetchall()
    last = rows[-1].id if len(rows) == _READ_AT_ONCE else MAX_INT64
    meant = {order_id: search_words(texts) for order_id, *texts in rows}
    words: dict[int, set[str]] = {order_id: set() for order_id in meant}
    for order_id, word in connection.execute(_NEXT_WORDS, {"after": after, "last": last}):
        words.setdefault(order_id, set()).add(word)
    return last, [each for each, found in words.items() if found != meant.get(each)]


def _add_words(connection: Connection, order_id: int, order: NewOrder) -> None:
    words = search_words([getattr(order, name, None) for name in SEARCHED])
    if words:
        _ADD_WORD.execute_each(connection, [(order_id, word) for word in sorted(words)])


def find(connection: Connection, order_id: int) -> Order | None:
    rows = _FIND.execute(connection, order_id=order_id).fetchall()
    return order_of(rows[0]) if rows else None


def first_with_reference(connection: Connection, reference: str) -> int | None:
    """Return the lowest id of the orders with exactly this reference, None where there is none."""
    rows = _FIRST_WITH_REFERENCE.execute(connection, sought=reference).fetchall()
    return int(rows[0][0]) if rows else None


def newest_order(connection: Connection) -> int:
    """Return the highest id of an order, 0 where there is none."""
    return connection.scalar(select(sa.func.max(orders.c.id))) or 0


def _changed(
    connection: Connection, rows: Sequence[tuple[Any, ...]], event: EventType, origin: Origin
) -> Changed | None:
    return append(connection, event, rows[0][0], origin) if rows else None
