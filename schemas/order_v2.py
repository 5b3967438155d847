"""Orders in version 2's form: version 1's, and what that can't show."""

from __future__ import annotations

from typing import Any, ClassVar

import marshmallow as ma

from orders.domain import MAX_QUANTITY, Status
from schemas import order
from schemas.base import ErrorSchema, SparseSchema, StrictSchema
from schemas.fields import Ids, Instant, OrderText, Text, Whole, identifier

MOST_SHIPMENTS = 100


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
        "id": order.EXAMPLE_ID,
        "complete": True,
        "status": "shipped",
        "updatedAt": "2026-12-01T08:00:00.000Z",
    }

    status = Text(
        "Pending until it is shipped or cancelled, both of which are final.",
        validate=ma.validate.OneOf([*Status]),
    )
    placed_at = Instant("When it was placed.")
    updated_at = Instant("When it last changed.")
    reference = OrderText("reference", "The shop's own text about it.")
    note = OrderText("note", "For whoever packs it; may have several lines.")


class NewOrderSchema(order.NewOrderSchema):
    """An order to place. Everything else is the store's to set."""

    example: ClassVar[dict[str, Any]] = {
        **order.NewOrderSchema.example,
        "reference": "R-1041",
        "note": "A gift: no invoice.",
    }

    reference = OrderText(
        "reference",
        "The shop's own text, such as its order number. Not unique.",
        error_messages=order.NOT_NULL,
    )
    note = OrderText(
        "note", "For whoever packs it; may have several lines.", error_messages=order.NOT_NULL
    )


class OrderPageSchema(SparseSchema):
    """A page of orders."""

    example: ClassVar = {"orders": [OrderSchema.example], "next": "WzQxLCI5ZjhlIl0"}

    orders = ma.fields.List(ma.fields.Nested(OrderSchema), required=True)
    next = Text("The cursor of the next page, for `after`; absent on the last page.")


class OrderPatchSchema(StrictSchema):
    """What to change of an order (RFC 7396): null removes a field, others stay as they are."""

    example: ClassVar[dict[str, Any]] = {"quantity": 3, "note": None}

    pet_id = identifier(order.PET, error_messages=order.NOT_NULL)
    quantity = Whole("Number of units ordered.", 1, MAX_QUANTITY, error_messages=order.NOT_NULL)
    ship_date = Instant("Expected ship date.", allow_none=True)
    reference = OrderText("reference", "The shop's own text about it.", allow_none=True)
    note = OrderText(
        "note", "For whoever packs it. May change whatever the order's status.", allow_none=True
    )


class ShipmentsSchema(order.ShipmentSchema):
    """Orders to ship together."""

    example: ClassVar[dict[str, Any]] = {
        "orderIds": [order.EXAMPLE_ID, order.EXAMPLE_ID + 1],
        **order.ShipmentSchema.example,
    }

    order_ids = Ids("Which orders, each once.", MOST_SHIPMENTS, required=True)


class ShipmentResultSchema(SparseSchema):
    """What became of an order that was to be shipped: it has shipped, or why not."""

    order_id = identifier("", required=True)
    order = ma.fields.Nested(OrderSchema, metadata={"description": "The order, if it shipped."})
    error = ma.fields.Nested(ErrorSchema, metadata={"description": "Why it did not ship."})


class ShipmentResultsSchema(SparseSchema):
    """What became of each order, in the order of the request."""

    example: ClassVar = {
        "results": [
            {"orderId": order.EXAMPLE_ID, "order": OrderSchema.shipped_example},
            {
                "orderId": order.EXAMPLE_ID + 1,
                "error": {
                    "code": "order_not_found",
                    "message": "There is no such order.",
                    "status": 404,
                },
            },
        ]
    }

    results = ma.fields.List(ma.fields.Nested(ShipmentResultSchema), required=True)
