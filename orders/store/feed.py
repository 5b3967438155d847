"""The event log as clients read it: pages of it, and the history of one order, as JSON.

Ids rise in the order of commit, because only one transaction writes at a time: whoever has seen an
event has seen, or can't any more miss, all before it. On PostgreSQL, where transactions overlap,
appending will take a lock that it holds until the commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, bindparam, select

from orders.store import events, orders_json
from orders.store.database.engine import Database
from orders.store.database.queries import Query
from orders.store.tables import EventRow

_AFTER = Query(
    select(orders_json.event(), EventRow.id)
    .where(EventRow.id > bindparam("after", type_=BigInteger))
    .order_by(EventRow.id)
    .limit(bindparam("size"))
)
_OF_ORDER = Query(
    select(orders_json.event())
    .where(EventRow.order_id == bindparam("order_id", type_=BigInteger))
    .order_by(EventRow.id)
)
_LAST = Query(
    select(EventRow.id).order_by(EventRow.id.desc()).limit(1).offset(bindparam("skipped"))
)
_NEWEST = Query(select(events.REVISION))


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events as JSON texts. `last` is the id of the last one; `more` tells if others follow."""

    events: list[str]
    last: int | None
    more: bool


def newest_id(database: Database) -> int:
    """Return the id of the newest event, 0 where there is none."""
    ((event_id,),) = database.ask(_NEWEST)
    return int(event_id)


def read(database: Database, after: int, size: int) -> EventPage:
    """Return the events that follow one, at most so many."""
    rows = database.ask(_AFTER, after=after, size=size + 1)
    shown = rows[:size]
    return EventPage([row[0] for row in shown], shown[-1][1] if shown else None, len(rows) > size)


def history(database: Database, order_id: int) -> list[str]:
    """Return all events of an order; none where there is no such order."""
    return [text for (text,) in database.ask(_OF_ORDER, order_id=order_id)]


def before_last(database: Database, number: int) -> int:
    """Return the id after which there are so many events, 0 where there are no more than those."""
    rows = database.ask(_LAST, skipped=number)
    return int(rows[0][0]) if rows else 0
