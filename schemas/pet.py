"""Pets in version 1's form."""

from __future__ import annotations

from typing import ClassVar

import marshmallow as ma

from orders.domain import PetStatus
from schemas.base import SparseSchema
from schemas.fields import Text, identifier


class PetSchema(SparseSchema):
    """A pet of the catalogue."""

    example: ClassVar = {"id": 7, "name": "Rex", "categoryId": 1, "status": "available"}

    id = identifier("Unique pet identifier.")
    name = Text("The pet's name.")
    category_id = identifier("Identifier of the category it belongs to.")
    status = Text(
        "Whether it can be bought.",
        validate=ma.validate.OneOf([*PetStatus]),
    )
