"""Requests and responses of version 1: orders and pets."""

from __future__ import annotations

from typing import Any, ClassVar

import marshmallow as ma

from orders.domain import MAX_QUANTITY, NewOrder, PetStatus
from schemas.fields import Flag, Instant, SparseSchema, StrictSchema, Text, Whole, identifier

Messages = dict[str, str | list[Any] | dict[Any, Any]]

NOT_NULL: Messages = {"null": "must not be null; leave it out"}
# In no store by itself: what is tried out of the document, as it stands, changes no order.
EXAMPLE_ID = 4_000_000_000_041
PET = "Identifier of the animal: a reference to the shop's catalogue."


class OrderSchema(SparseSchema):
    """An order. No field is required; shipDate is left out while it is unknown."""

    example: ClassVar[dict[str, Any]] = {
        "id": EXAMPLE_ID,
        "petId": 7,
        "quantity": 2,
        "shipDate": "2026-12-01T08:00:00.000Z",
        "complete": False,
    }
    shipped_example: ClassVar[dict[str, Any]] = {**example, "id": EXAMPLE_ID + 1, "complete": True}

    id = identifier("Unique order identifier.")
    pet_id = identifier("Identifier of the animal in this order.")
    quantity = Whole("Number of units ordered.", 1, MAX_QUANTITY)
    ship_date = Instant("Expected or actual ship date.")
    complete = Flag("Whether the order has been fulfilled, that is, has shipped.")


class NewOrderSchema(StrictSchema):
    """An order to place. `id` and `complete` are the store's to set."""

    example: ClassVar[dict[str, Any]] = {
        "petId": 7,
        "quantity": 2,
        "shipDate": "2026-12-01T08:00:00Z",
    }

    pet_id = identifier(PET, required=True)
    quantity = Whole(
        "Number of units ordered.", 1, MAX_QUANTITY, load_default=1, error_messages=NOT_NULL
    )
    ship_date = Instant("Expected ship date.", error_messages=NOT_NULL)

    @ma.post_load
    def _make(self, data: dict[str, Any], **_: Any) -> NewOrder:
        return NewOrder(**data)


class ShipmentSchema(StrictSchema):
    """A shipment."""

    example: ClassVar[dict[str, Any]] = {"shipDate": "2026-12-01T08:00:00Z"}

    ship_date = Instant("When the order was shipped; now by default.", error_messages=NOT_NULL)


class PetSchema(SparseSchema):
    """A pet of the catalogue, which orders refer to."""

    example: ClassVar = {"id": 7, "name": "Rex", "categoryId": 1, "status": "available"}

    id = identifier("Unique pet identifier.")
    name = Text("The pet's name.")
    category_id = identifier("Identifier of the category it belongs to.")
    status = Text("Whether it can be bought.", validate=ma.validate.OneOf([*PetStatus]))
