"""Orders in version 2's form: version 1's, and what that can't show."""

from __future__ import annotations

from typing import Any, ClassVar

import marshmallow as ma

from orders.domain import Status
from schemas import order
from schemas.base import SparseSchema
from schemas.fields import Instant, Note, Reference


class OrderSchema(order.OrderSchema):
    """An order. shipDate, reference and note are left out while there are none."""

    example: ClassVar[dict[str, Any]] = {
        **order.OrderSchema.example,
        "status": "pending",
        "placedAt": "2026-11-28T16:05:00.000Z",
        "updatedAt": "2026-11-28T16:05:00.000Z",
        "reference": "R-1041",
        "note": "A gift: no invoice.",
    }
    shipped_example: ClassVar[dict[str, Any]] = {
        **example,
        "complete": True,
        "status": "shipped",
        "updatedAt": "2026-12-01T08:00:00.000Z",
    }

    status = ma.fields.String(
        validate=ma.validate.OneOf([status.value for status in Status]),
        metadata={
            "description": "Pending until it is shipped or cancelled, both of which are final."
        },
    )
    placedAt = Instant(  # noqa: N815 - as version 1's names
        attribute="placed_at", metadata={"description": "When it was placed."}
    )
    updatedAt = Instant(  # noqa: N815 - as above
        attribute="updated_at", metadata={"description": "When it last changed."}
    )
    reference = Reference(metadata={"description": "The shop's own text about it."})
    note = Note(metadata={"description": "For whoever packs it; may have several lines."})


class NewOrderSchema(order.NewOrderSchema):
    """An order to place. Everything else is the store's to set."""

    example: ClassVar[dict[str, Any]] = {
        **order.NewOrderSchema.example,
        "reference": "R-1041",
        "note": "A gift: no invoice.",
    }

    reference = Reference(
        error_messages=order.NOT_NULL,
        metadata={"description": "The shop's own text, such as its order number. Not unique."},
    )
    note = Note(
        error_messages=order.NOT_NULL,
        metadata={"description": "For whoever packs it; may have several lines."},
    )


class OrderPageSchema(SparseSchema):
    """A page of orders."""

    example: ClassVar = {"orders": [OrderSchema.example], "next": "WzQxLCI5ZjhlIl0"}

    orders = ma.fields.List(ma.fields.Nested(OrderSchema), required=True)
    next = ma.fields.String(
        metadata={
            "description": "The cursor of the next page, for `after`; absent on the last page."
        }
    )
