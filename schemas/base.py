"""What the schemas have in common: one kind for what goes out, one for what comes in."""

from __future__ import annotations

from typing import Any

import marshmallow as ma

NOT_AN_OBJECT = "must be a JSON object"


class SparseSchema(ma.Schema):
    """An answer: what is not known is left out, rather than null."""

    @ma.post_dump
    def _leave_out_unknown(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {name: value for name, value in data.items() if value is not None}


class StrictSchema(ma.Schema):
    """A request: a field that is not known is refused, rather than ignored."""

    class Meta:
        """Set here, and not left to the default, so that the OpenAPI document says it too."""

        unknown = ma.RAISE

    error_messages: dict[str, str] = {  # noqa: RUF012 - as marshmallow declares it
        "type": NOT_AN_OBJECT,
        "unknown": "is not a field of this request",
    }


class QuerySchema(StrictSchema):
    """The parameters of a query: one that is not known is refused, rather than ignored."""

    error_messages: dict[str, str] = {  # noqa: RUF012 - as marshmallow declares it
        "unknown": "is not a parameter of this request",
    }
