"""Version 2's reports: the store's figures by day, the key's limits."""

from __future__ import annotations

from typing import ClassVar

import marshmallow as ma

from orders.apikeys import SCOPES
from orders.domain import MAX_INT64, Status
from schemas.fields import (
    CamelSchema,
    Flag,
    Instant,
    Int64,
    Nested,
    SparseSchema,
    Text,
    identifier,
    items,
)


def _count(description: str) -> Int64:
    return Int64(description, 0, MAX_INT64, required=True)


class StatusCountsSchema(CamelSchema):
    """The number of orders of each status."""

    pending = _count("Neither shipped nor cancelled.")
    shipped = _count("Shipped.")
    cancelled = _count("Cancelled.")


class DaySchema(CamelSchema):
    """What happened on a day of the time zone asked for."""

    date = ma.fields.Date(required=True, metadata={"description": "The day."})
    placed = _count("Orders whose placedAt is on it.")
    shipped = _count("Shipped orders whose shipDate is on it.")
    cancelled = _count("Orders that were cancelled on it.")


class PausedWebhookSchema(CamelSchema):
    """A webhook that gets nothing until somebody resumes it."""

    id = identifier("Its id, as in commands.", required=True)
    since = Instant("When it was paused.", required=True)


class BackupsSchema(SparseSchema):
    """The backups that the service makes by itself."""

    last = Instant("When the newest was made; absent before the first.")
    same_disk = Flag("Whether they are on the disk of the store, and lost with it.", required=True)


class StatsSchema(SparseSchema):
    """Figures of the store."""

    example: ClassVar = {
        "byStatus": {"pending": 7, "shipped": 31, "cancelled": 2},
        "days": [{"date": "2026-12-01", "placed": 3, "shipped": 1, "cancelled": 0}],
        "backups": {"last": "2026-12-01T03:00:00.000Z", "sameDisk": False},
    }

    by_status = Nested(
        f"All orders: {', '.join(Status)}.", nested=StatusCountsSchema, required=True
    )
    days = items(DaySchema, "The requested days, today last.")
    backups = Nested("Absent where the service makes none.", nested=BackupsSchema)
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

    minute = Nested(nested=WindowSchema, required=True)
    day = Nested(nested=WindowSchema, required=True)


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

    id = identifier("The key's id: events that it caused have `key:ID` as `actor`.", required=True)
    name = Text("The key's name.", required=True)
    plan = Text("Its plan.", required=True)
    scopes = ma.fields.List(
        ma.fields.String(validate=ma.validate.OneOf(SCOPES)),
        required=True,
        metadata={"description": "What it may do."},
    )
    expires = Instant("When the key expires; absent where it doesn't.")
    windows = Nested(nested=WindowsSchema, required=True)
