"""An import of orders: its files, how they are read, and its result."""

from __future__ import annotations

from typing import Any, ClassVar

import marshmallow as ma

from orders.domain import MAX_INT64
from schemas import fields
from schemas.fields import QuerySchema, SparseSchema, StrictSchema

# The choices of the command's options.
SHOPS = ("shopify", "woocommerce")
DATE_ORDERS = ("dmy", "mdy", "ymd")
IF_KNOWN = ("refuse", "skip", "import")


class ImportFilesSchema(StrictSchema):
    """The parts of the body."""

    file = fields.Upload(
        "The orders, in .csv, .tsv or .txt, or .jsonl; CSV if its name has no ending.",
        required=True,
    )
    pets = fields.Upload("A table of petId beside SKUs or names.")


class ImportQuerySchema(QuerySchema):
    """How the file is read, and whether anything is imported."""

    dry_run = fields.FlagParameter(
        "Import nothing: return the errors and the first orders.", load_default=False
    )
    shop = fields.ChoiceParameter("Whose export the file is.", SHOPS)
    column = fields.ColumnsParameter(
        "A column's name in the file, such as `petId=SKU`; may be repeated."
    )
    ignore_others = fields.FlagParameter("Ignore unknown columns.", load_default=False)
    dates = fields.ChoiceParameter("The order of day, month and year.", DATE_ORDERS)
    zone = fields.ZoneParameter("The time zone of times without one, by its IANA name.")
    if_known = fields.ChoiceParameter(
        "What to do with rows without an id whose reference an order has. Default: refuse with "
        "`shop`, else import.",
        IF_KNOWN,
    )
    unique_references = fields.FlagParameter(
        "Refuse a reference that an order, or an earlier row, has already. The shop may have that "
        "for all imports.",
        load_default=False,
    )


class FileFaultSchema(SparseSchema):
    """A fault in the file."""

    line = fields.Int64("The line, from 1.", 1, MAX_INT64, required=True)
    column = fields.Text("The column; absent where it is the line as a whole.")
    message = fields.Text("What is wrong, in words.", required=True)


class RemarkSchema(SparseSchema):
    """A remark about the file."""

    message = fields.Text("In words.", required=True)
    rows = fields.Int64("How many rows it is about.", 1, MAX_INT64, required=True)


class ImportSchema(SparseSchema):
    """The result of an import, or of a dry run."""

    example: ClassVar[dict[str, Any]] = {"orders": 300, "remarks": []}

    orders = fields.Int64("How many orders.", 0, MAX_INT64, required=True)
    remarks = fields.items(RemarkSchema, "Other remarks.")
    first = ma.fields.List(
        ma.fields.Dict(keys=ma.fields.String()),
        metadata={
            "description": "In a dry run, the first orders as they would be, each with its `line`."
        },
    )
    faults = ma.fields.List(
        ma.fields.Nested(FileFaultSchema),
        metadata={"description": "In a dry run, the errors, at most the first 1,000."},
    )
    fault_count = fields.Int64("In a dry run, the number of errors.", 0, MAX_INT64)
