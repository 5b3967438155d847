"""Requests and responses of version 2: orders, events, reports, and the parameters of queries."""

from __future__ import annotations

from typing import Any, ClassVar

import marshmallow as ma

from orders.apikeys import SCOPES
from orders.domain import MAX_INT64, MAX_QUANTITY, EventType, NewOrder, Placement, Status
from schemas import fields, v1
from schemas.fields import (
    CamelSchema,
    DetailedErrorSchema,
    QuerySchema,
    SparseSchema,
    StrictSchema,
)

MOST_TOGETHER = 100
LONGEST_PAGE = 200
USUAL_PAGE = 50
_USUAL_HISTORY = 200
_SORTED_BY = ("id", "placedAt", "shipDate", "dueAt")
SORTS = tuple(sign + name for name in _SORTED_BY for sign in ("", "-"))
_LONGEST_WAIT = 60
_MOST_DAYS = 366
_USUAL_DAYS = 30
_ITEM = "What it is, in words."
_SHIP_TO = "Name and address for the parcel."
_TRACKING = "The parcel's number at its carrier."


# Orders


class OrderSchema(v1.OrderSchema):
    """An order. shipDate and its texts are left out while there are none."""

    example: ClassVar[dict[str, Any]] = {
        **v1.OrderSchema.example,
        "status": "pending",
        "placedAt": "2026-11-28T16:05:00.000Z",
        "updatedAt": "2026-11-28T16:05:00.000Z",
        "reference": "R-1041",
        "note": "A gift: no invoice.",
        "item": "Red collar, 35 cm",
        "shipTo": "Mia Wong\nHauptstr. 5\n50667 Köln",
    }
    shipped_example: ClassVar[dict[str, Any]] = {
        **example,
        "id": v1.EXAMPLE_ID,
        "complete": True,
        "status": "shipped",
        "updatedAt": "2026-12-01T08:00:00.000Z",
        "tracking": "JD0146000041",
    }

    status = fields.Text(
        "Pending until it is shipped or cancelled, and once it is reopened.",
        validate=ma.validate.OneOf([*Status]),
    )
    placed_at = fields.Instant("When it was placed.")
    updated_at = fields.Instant("When it last changed.")
    reference = fields.OrderText("reference", "The shop's own text about it.")
    note = fields.OrderText("note", "For the packer; may have several lines.")
    item = fields.OrderText("item", _ITEM)
    ship_to = fields.OrderText("ship_to", _SHIP_TO)
    tracking = fields.OrderText("tracking", _TRACKING)


class NewOrderSchema(v1.NewOrderSchema):
    """An order to place. Everything else is the store's to set."""

    example: ClassVar[dict[str, Any]] = {
        **v1.NewOrderSchema.example,
        "reference": "R-1041",
        "note": "A gift: no invoice.",
        "item": "Red collar, 35 cm",
        "shipTo": "Mia Wong\nHauptstr. 5\n50667 Köln",
    }

    reference = fields.OrderText(
        "reference",
        "The shop's own text, such as its order number. Not unique by itself.",
        error_messages=v1.NOT_NULL,
    )
    note = fields.OrderText(
        "note", "For the packer; may have several lines.", error_messages=v1.NOT_NULL
    )
    item = fields.OrderText("item", _ITEM, error_messages=v1.NOT_NULL)
    ship_to = fields.OrderText("ship_to", _SHIP_TO, error_messages=v1.NOT_NULL)
    unique_reference = fields.Flag(
        "True: if any order, whatever its status, has the reference, the answer is "
        "`reference_exists`. The shop may require it of all orders.",
        error_messages=v1.NOT_NULL,
    )

    @ma.post_load
    def _make(self, data: dict[str, Any], **_: Any) -> Placement:
        is_unique = data.pop("unique_reference", False)
        if is_unique and "reference" not in data:
            fault = fields.Fault("is required with uniqueReference", "required")
            raise ma.ValidationError(fault, "reference")
        return Placement(NewOrder(**data), is_unique)


class PlacementsSchema(StrictSchema):
    """Orders to place together."""

    example: ClassVar[dict[str, Any]] = {
        "orders": [NewOrderSchema.example, {"petId": 3, "reference": "R-1042"}]
    }

    orders = fields.Several(
        "The orders.", fields.Nested(nested=NewOrderSchema), MOST_TOGETHER, required=True
    )


class PlacementResultSchema(SparseSchema):
    """The result of placing an order: the order, or why it was not placed."""

    order_id = fields.identifier(
        "The order that was placed, or the one that has the reference.", required=True
    )
    order = fields.Nested("The order, if it was placed.", nested=OrderSchema)
    error = fields.Nested("Why it was not placed.", nested=DetailedErrorSchema)


class PlacementResultsSchema(SparseSchema):
    """What became of each order, in the order of the request."""

    example: ClassVar = {
        "results": [
            {"orderId": v1.EXAMPLE_ID, "order": OrderSchema.example},
            {
                "orderId": v1.EXAMPLE_ID + 1,
                "error": {
                    "code": "reference_exists",
                    "message": f"Order {v1.EXAMPLE_ID + 1} already has this reference. "
                    "Use that order, or another reference.",
                    "status": 409,
                },
            },
        ]
    }

    results = fields.items(PlacementResultSchema)


class OrderPageSchema(SparseSchema):
    """A page of orders."""

    example: ClassVar = {"orders": [OrderSchema.example], "next": "WzQxLCI5ZjhlIl0"}

    orders = fields.items(OrderSchema)
    next = fields.Text("The cursor of the next page, for `after`; absent on the last page.")


class OrderPatchSchema(StrictSchema):
    """Changes of an order (RFC 7396): null removes a field, absent ones stay as they are."""

    example: ClassVar[dict[str, Any]] = {"quantity": 3, "note": None}

    pet_id = fields.identifier(v1.PET, error_messages=v1.NOT_NULL)
    quantity = fields.Whole("Number of units ordered.", 1, MAX_QUANTITY, error_messages=v1.NOT_NULL)
    ship_date = fields.Instant("Expected ship date.", allow_none=True)
    reference = fields.OrderText("reference", "The shop's own text about it.", allow_none=True)
    note = fields.OrderText(
        "note", "For the packer. May change whatever the order's status.", allow_none=True
    )
    item = fields.OrderText("item", _ITEM, allow_none=True)
    ship_to = fields.OrderText("ship_to", _SHIP_TO, allow_none=True)
    tracking = fields.OrderText(
        "tracking", f"{_TRACKING} Once the order has shipped.", allow_none=True
    )


class ShipmentSchema(v1.ShipmentSchema):
    """A shipment."""

    example: ClassVar[dict[str, Any]] = {**v1.ShipmentSchema.example, "tracking": "JD0146000041"}

    tracking = fields.OrderText("tracking", _TRACKING, error_messages=v1.NOT_NULL)


class ShipmentsSchema(v1.ShipmentSchema):
    """Orders to ship together."""

    example: ClassVar[dict[str, Any]] = {
        "orderIds": [v1.EXAMPLE_ID, v1.EXAMPLE_ID + 1],
        **v1.ShipmentSchema.example,
        "tracking": {str(v1.EXAMPLE_ID): "JD0146000041"},
    }

    order_ids = fields.Ids("Which orders, each once.", MOST_TOGETHER, required=True)
    tracking = fields.Trackings(
        "The carrier's numbers of some of these orders, by order.", error_messages=v1.NOT_NULL
    )

    @ma.validates_schema
    def _check_tracked(self, data: dict[str, Any], **_: Any) -> None:
        others = data.get("tracking", {}).keys() - {*data.get("order_ids", ())}
        if others:
            fault = fields.Fault("must be of orders in orderIds", "unknown")
            raise ma.ValidationError(fault, "tracking")


class ShipmentResultSchema(SparseSchema):
    """The result of shipping an order: the order, or why it was not shipped."""

    order_id = fields.identifier("", required=True)
    order = fields.Nested("The order, if it shipped.", nested=OrderSchema)
    error = fields.Nested("Why it did not ship.", nested=DetailedErrorSchema)


class ShipmentResultsSchema(SparseSchema):
    """What became of each order, in the order of the request."""

    example: ClassVar = {
        "results": [
            {"orderId": v1.EXAMPLE_ID, "order": OrderSchema.shipped_example},
            {
                "orderId": v1.EXAMPLE_ID + 1,
                "error": {
                    "code": "order_not_found",
                    "message": "There is no such order.",
                    "status": 404,
                },
            },
        ]
    }

    results = fields.items(ShipmentResultSchema)


# Events


class EventSchema(CamelSchema):
    """A change of an order. Ids rise in the order in which changes were made."""

    example: ClassVar[dict[str, Any]] = {
        "id": 87,
        "type": "order.placed",
        "orderId": v1.EXAMPLE_ID,
        "at": "2026-11-28T16:05:00.000Z",
        "actor": "key:2",
        "requestId": "8f3a0c1d5e7b9246",  # pragma: allowlist secret
        "order": OrderSchema.example,
    }
    shipped_example: ClassVar[dict[str, Any]] = {
        **example,
        "id": 93,
        "type": "order.shipped",
        "at": "2026-12-01T08:00:00.000Z",
        "order": OrderSchema.shipped_example,
    }

    id = fields.identifier("Unique event identifier.", required=True)
    type = fields.Text("What happened.", required=True, validate=ma.validate.OneOf([*EventType]))
    order_id = fields.identifier("The order that changed.", required=True)
    at = fields.Instant(
        "When it happened. May step back when the shop's clock does.", required=True
    )
    actor = fields.Text(
        "Who caused it: `key:ID`, `cli` for commands, or `service` for what it does by itself.",
        required=True,
    )
    request_id = fields.Text(
        "The request that caused it; null for commands.", required=True, allow_none=True
    )
    order = fields.Nested("The order after the event.", nested=OrderSchema, required=True)


class EventPageSchema(CamelSchema):
    """A page of the event log, or of the history of an order."""

    example: ClassVar = {
        "events": [EventSchema.example, EventSchema.shipped_example],
        "next": 93,
        "more": False,
    }

    events = fields.items(EventSchema)
    next = fields.Int64(
        "What to send as `after` next time: the id of the page's last event; of an empty page, "
        "`after` as it was sent, or the newest event's where none of the types asked for follows.",
        0,
        MAX_INT64,
        required=True,
    )
    more = fields.Flag("Whether there are more events already.", required=True)


class ActorSchema(CamelSchema):
    """The name of a key that caused events."""

    example: ClassVar = {"actor": "key:2", "name": "the web shop"}

    actor = fields.Text("The actor, as in events.", required=True)
    name = fields.Text("The key's name.", required=True)


class HistoryPageSchema(EventPageSchema):
    """A page of the history of an order."""

    example: ClassVar = {**EventPageSchema.example, "actors": [ActorSchema.example]}

    actors = fields.items(ActorSchema, "The keys that changed the order.")


# Reports


def _count(description: str) -> fields.Int64:
    return fields.Int64(description, 0, MAX_INT64, required=True)


class StatusCountsSchema(CamelSchema):
    """The number of orders of each status."""

    pending = _count("Neither shipped nor cancelled.")
    shipped = _count("Shipped.")
    cancelled = _count("Cancelled.")


class DaySchema(CamelSchema):
    """The figures of a day in the requested time zone."""

    date = ma.fields.Date(required=True, metadata={"description": "The day."})
    placed = _count("Orders whose placedAt is on it.")
    shipped = _count("Shipped orders whose shipDate is on it.")
    cancelled = _count("Orders that were cancelled on it.")


class PausedWebhookSchema(CamelSchema):
    """A webhook that gets nothing until somebody resumes it."""

    id = fields.identifier("Its id, as in commands.", required=True)
    since = fields.Instant("When it was paused.", required=True)


class BackupsSchema(SparseSchema):
    """The backups that the service makes by itself."""

    last = fields.Instant("When the newest was made; absent before the first.")
    same_disk = fields.Flag(
        "Whether they are on the disk of the store, and lost with it.", required=True
    )


class StatsSchema(SparseSchema):
    """Figures of the store."""

    example: ClassVar = {
        "byStatus": {"pending": 7, "shipped": 31, "cancelled": 2},
        "days": [{"date": "2026-12-01", "placed": 3, "shipped": 1, "cancelled": 0}],
        "backups": {"last": "2026-12-01T03:00:00.000Z", "sameDisk": False},
    }

    by_status = fields.Nested(
        f"All orders: {', '.join(Status)}.", nested=StatusCountsSchema, required=True
    )
    days = fields.items(DaySchema, "The requested days, today last.")
    backups = fields.Nested("Absent where the service makes none.", nested=BackupsSchema)
    paused_webhooks = ma.fields.List(
        ma.fields.Nested(PausedWebhookSchema),
        metadata={"description": "Webhooks that are paused; absent while there are none."},
    )


class WindowSchema(CamelSchema):
    """A window of the limits."""

    limit = _count("Requests allowed.")
    remaining = _count("Requests left after this one.")
    reset = _count("When it resets, as a Unix time.")


class WindowsSchema(CamelSchema):
    """Both windows of the limits."""

    minute = fields.Nested(nested=WindowSchema, required=True)
    day = fields.Nested(nested=WindowSchema, required=True)


class UsageSchema(SparseSchema):
    """The key that was sent, and what it has left."""

    example: ClassVar = {
        "id": 2,
        "name": "the web shop",
        "plan": "free",
        "scopes": ["read", "write"],
        "expires": "2027-12-01T08:00:00.000Z",
        "windows": {
            "minute": {"limit": 60, "remaining": 59, "reset": 1_796_112_060},
            "day": {"limit": 1000, "remaining": 999, "reset": 1_796_198_400},
        },
    }

    id = fields.identifier(
        "The key's id: events that it caused have `key:ID` as `actor`.", required=True
    )
    name = fields.Text("The key's name.", required=True)
    plan = fields.Text("Its plan.", required=True)
    scopes = ma.fields.List(
        ma.fields.String(validate=ma.validate.OneOf(SCOPES)),
        required=True,
        metadata={"description": "What it may do."},
    )
    expires = fields.Instant("When the key expires; absent where it doesn't.")
    windows = fields.Nested(nested=WindowsSchema, required=True)


# Queries


def _limit(usual: int = USUAL_PAGE) -> fields.WholeParameter:
    return fields.WholeParameter("How many to return.", 1, LONGEST_PAGE, load_default=usual)


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
        _LONGEST_WAIT,
        load_default=0,
    )


class HistoryQuerySchema(QuerySchema):
    """Where to begin reading the history of an order."""

    after = _after_event()
    limit = _limit(_USUAL_HISTORY)


class StatsQuerySchema(QuerySchema):
    """Which days to report."""

    days = fields.WholeParameter(
        "How many days, up to and including today.", 1, _MOST_DAYS, load_default=_USUAL_DAYS
    )
    zone = fields.ZoneParameter("The time zone of the days, by its IANA name.", load_default="UTC")
