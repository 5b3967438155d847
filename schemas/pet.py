"""Pets in version 1's form."""

from __future__ import annotations

from typing import ClassVar

import marshmallow as ma

from orders.domain import MAX_INT64, PetStatus
from schemas.base import SparseSchema
from schemas.fields import Int64


class PetSchema(SparseSchema):
    """A pet of the catalogue."""

    example: ClassVar = {"id": 7, "name": "Rex", "categoryId": 1, "status": "available"}

    id = Int64(1, MAX_INT64, metadata={"description": "Unique pet identifier."})
    name = ma.fields.String(metadata={"description": "The pet's name."})
    categoryId = Int64(  # noqa: N815 - named as the API's other identifiers
        1,
        MAX_INT64,
        attribute="category_id",
        metadata={"description": "Identifier of the category it belongs to."},
    )
    status = ma.fields.String(
        validate=ma.validate.OneOf([status.value for status in PetStatus]),
        metadata={"description": "Whether it can be bought."},
    )
