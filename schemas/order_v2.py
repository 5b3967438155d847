"""Orders in version 2's form: version 1's, and what that can't show."""

from __future__ import annotations

from typing import Any, ClassVar

import marshmallow as ma

from orders.domain import MAX_QUANTITY, NewOrder, Placement, Status
from schemas import fields, order
from schemas.fields import DetailedErrorSchema, SparseSchema, StrictSchema

MOST_AT_ONCE = 100
_ITEM = "What it is, in words."
_SHIP_TO = "Name and address for the parcel."
_TRACKING = "The parcel's number at its carrier."


class OrderSchema(order.OrderSchema):
    """An order. shipDate and its texts are left out while there are none."""

    example: ClassVar[dict[str, Any]] = {
        **order.OrderSchema.example,
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
        "id": order.EXAMPLE_ID,
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
    note = fields.OrderText("note", "For whoever packs it; may have several lines.")
    item = fields.OrderText("item", _ITEM)
    ship_to = fields.OrderText("ship_to", _SHIP_TO)
    tracking = fields.OrderText("tracking", _TRACKING)


class NewOrderSchema(order.NewOrderSchema):
    """An order to place. Everything else is the store's to set."""

    example: ClassVar[dict[str, Any]] = {
        **order.NewOrderSchema.example,
        "reference": "R-1041",
        "note": "A gift: no invoice.",
        "item": "Red collar, 35 cm",
        "shipTo": "Mia Wong\nHauptstr. 5\n50667 Köln",
    }

    reference = fields.OrderText(
        "reference",
        "The shop's own text, such as its order number. Not unique by itself.",
        error_messages=order.NOT_NULL,
    )
    note = fields.OrderText(
        "note", "For whoever packs it; may have several lines.", error_messages=order.NOT_NULL
    )
    item = fields.OrderText("item", _ITEM, error_messages=order.NOT_NULL)
    ship_to = fields.OrderText("ship_to", _SHIP_TO, error_messages=order.NOT_NULL)
    unique_reference = fields.Flag(
        "True: if any order, whatever its status, has the reference, the answer is "
        "`reference_exists`. The shop may require it of all orders.",
        error_messages=order.NOT_NULL,
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

    orders = fields.Several(NewOrderSchema, MOST_AT_ONCE, "The orders.", required=True)


class PlacementResultSchema(SparseSchema):
    """What became of an order that was to be placed: it is, or why not."""

    order_id = fields.identifier(
        "The order that was placed, or the one that has the reference.", required=True
    )
    order = fields.Nested("The order, if it was placed.", nested=OrderSchema)
    error = fields.Nested("Why it was not placed.", nested=DetailedErrorSchema)


class PlacementResultsSchema(SparseSchema):
    """What became of each order, in the order of the request."""

    example: ClassVar = {
        "results": [
            {"orderId": order.EXAMPLE_ID, "order": OrderSchema.example},
            {
                "orderId": order.EXAMPLE_ID + 1,
                "error": {
                    "code": "reference_exists",
                    "message": f"Order {order.EXAMPLE_ID + 1} already has this reference. "
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
    """What to change of an order (RFC 7396): null removes a field, others stay as they are."""

    example: ClassVar[dict[str, Any]] = {"quantity": 3, "note": None}

    pet_id = fields.identifier(order.PET, error_messages=order.NOT_NULL)
    quantity = fields.Whole(
        "Number of units ordered.", 1, MAX_QUANTITY, error_messages=order.NOT_NULL
    )
    ship_date = fields.Instant("Expected ship date.", allow_none=True)
    reference = fields.OrderText("reference", "The shop's own text about it.", allow_none=True)
    note = fields.OrderText(
        "note", "For whoever packs it. May change whatever the order's status.", allow_none=True
    )
    item = fields.OrderText("item", _ITEM, allow_none=True)
    ship_to = fields.OrderText("ship_to", _SHIP_TO, allow_none=True)
    tracking = fields.OrderText(
        "tracking", f"{_TRACKING} Once the order has shipped.", allow_none=True
    )


class ShipmentSchema(order.ShipmentSchema):
    """What a client may say of a shipment."""

    example: ClassVar[dict[str, Any]] = {**order.ShipmentSchema.example, "tracking": "JD0146000041"}

    tracking = fields.OrderText("tracking", _TRACKING, error_messages=order.NOT_NULL)


class ShipmentsSchema(order.ShipmentSchema):
    """Orders to ship together."""

    example: ClassVar[dict[str, Any]] = {
        "orderIds": [order.EXAMPLE_ID, order.EXAMPLE_ID + 1],
        **order.ShipmentSchema.example,
        "tracking": {str(order.EXAMPLE_ID): "JD0146000041"},
    }

    order_ids = fields.Ids("Which orders, each once.", MOST_AT_ONCE, required=True)
    tracking = fields.Trackings(
        "The carrier's numbers of some of these orders, by order.", error_messages=order.NOT_NULL
    )

    @ma.validates_schema
    def _check_tracked(self, data: dict[str, Any], **_: Any) -> None:
        others = data.get("tracking", {}).keys() - {*data.get("order_ids", ())}
        if others:
            fault = fields.Fault("must be of orders in orderIds", "unknown")
            raise ma.ValidationError(fault, "tracking")


class ShipmentResultSchema(SparseSchema):
    """What became of an order that was to be shipped: it has shipped, or why not."""

    order_id = fields.identifier("", required=True)
    order = fields.Nested("The order, if it shipped.", nested=OrderSchema)
    error = fields.Nested("Why it did not ship.", nested=DetailedErrorSchema)


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

    results = fields.items(ShipmentResultSchema)
