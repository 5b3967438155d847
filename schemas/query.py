"""The parameters of version 2's queries."""

from __future__ import annotations

from orders.domain import MAX_INT64, EventType, Status
from schemas import fields
from schemas.fields import QuerySchema

MOST_AT_ONCE = 200
USUALLY_AT_ONCE = 50
EVENTS_AT_ONCE = 200
_SORTED_BY = ("id", "placedAt", "shipDate", "dueAt")
SORTS = tuple(sign + name for name in _SORTED_BY for sign in ("", "-"))
LONGEST_WAIT = 60
MOST_DAYS = 366
USUAL_DAYS = 30


def _limit(usual: int = USUALLY_AT_ONCE) -> fields.WholeParameter:
    return fields.WholeParameter("The most to return.", 1, MOST_AT_ONCE, load_default=usual)


def _bound(description: str) -> fields.BoundParameter:
    return fields.BoundParameter(
        f"{description} In an address, the + of a time zone is %2B.",
        metadata={"example": "2026-12-01T00:00:00Z"},
    )


class OrdersQuerySchema(QuerySchema):
    """Which orders to list, how to sort them, and where to begin."""

    status = fields.ChoicesParameter(
        "Only orders of this status; may be repeated for several.", [*Status]
    )
    pet_id = fields.Int64Parameter("Only orders of this pet.", 1, MAX_INT64)
    reference = fields.OrderTextParameter("reference", "Only orders with exactly this reference.")
    complete = fields.FlagParameter("Only orders that have shipped, or that have not.")
    dated = fields.FlagParameter("Only orders that have a shipDate, or that have none.")
    placed_from = _bound("Only orders placed then or later.")
    placed_before = _bound("Only orders placed earlier.")
    ships_from = _bound("Only orders with a shipDate then or later.")
    ships_before = _bound("Only orders with an earlier shipDate.")
    updated_from = _bound("Only orders that last changed then or later.")
    updated_before = _bound("Only orders that last changed earlier.")
    search = fields.OrderTextParameter(
        "reference",
        "Only the order of this number, with or without `#` or `No.`, and orders with a word in "
        "reference, item, shipTo or tracking that begins with this text (`10040` finds "
        "`WEB-10040`), in either case, with or without accents.",
    )
    sort = fields.ChoiceParameter(
        "How to sort; - means descending. `dueAt` is an order's shipDate, or its placedAt where it "
        "has none: the most urgent first. Ties are broken by id, in the same direction; by "
        "`shipDate`, orders without one always come last.",
        SORTS,
        load_default="id",
    )
    limit = _limit()
    after = fields.TextParameter(
        "`next` of the previous page, with the same filters and sort. Opaque.",
        metadata={"minLength": 1},
    )


def _after_event() -> fields.Int64Parameter:
    return fields.Int64Parameter(
        "`next` of the previous page; 0 to begin with the first event.",
        0,
        MAX_INT64,
        load_default=0,
    )


class EventsQuerySchema(QuerySchema):
    """Where to begin reading the event log."""

    after = _after_event()
    type = fields.ChoicesParameter(
        "Only events of this type; may be repeated for several.", [*EventType]
    )
    limit = _limit()
    wait = fields.WholeParameter(
        "How many seconds to wait for an event where there is none yet.",
        0,
        LONGEST_WAIT,
        load_default=0,
    )


class HistoryQuerySchema(QuerySchema):
    """Where to begin reading the history of an order."""

    after = _after_event()
    limit = _limit(EVENTS_AT_ONCE)


class StatsQuerySchema(QuerySchema):
    """Which days to report."""

    days = fields.WholeParameter(
        "How many days, up to and including today.", 1, MOST_DAYS, load_default=USUAL_DAYS
    )
    zone = fields.ZoneParameter("The time zone of the days, by its IANA name.", load_default="UTC")
