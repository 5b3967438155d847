"""The bases of schemas, for responses, bodies and queries, and the one shape of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import marshmallow as ma

from orders.domain import name_in_api
from schemas.fields import FAULT_CODES, Fault, Text

NOT_AN_OBJECT = Fault("must be a JSON object", "type")
UNKNOWN_PARAMETER = Fault("is not a parameter of this request", "unknown")


class CamelSchema(ma.Schema):
    """Any schema: `ship_date` is `shipDate` in JSON and in queries."""

    def on_bind_field(self, field_name: str, field_obj: ma.fields.Field[Any]) -> None:
        """Name a field as the API does."""
        field_obj.data_key = name_in_api(field_name)


class SparseSchema(CamelSchema):
    """A response: unknown values are left out, rather than null."""

    @ma.post_dump
    def _leave_out_unknown(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {name: value for name, value in data.items() if value is not None}


class StrictSchema(CamelSchema):
    """A request: unknown fields are rejected, rather than ignored."""

    class Meta:
        """Set explicitly, so that the OpenAPI document says it too."""

        unknown = ma.RAISE

    error_messages: dict[str, str] = {  # noqa: RUF012 - as marshmallow declares it
        "type": NOT_AN_OBJECT,
        "unknown": Fault("is not a field of this request", "unknown"),
    }

    def load(self, data: Any, **options: Any) -> Any:
        """Return what data is, or raise all that is wrong in it, unknown fields in their order."""
        faults: dict[str, Any] = {}
        try:
            # There may be thousands of them, which marshmallow would name one by one, in any order.
            loaded = super().load(data, **{**options, "unknown": ma.EXCLUDE})
        except ma.ValidationError as error:
            faults = error.normalized_messages()  # type: ignore[no-untyped-call]
        if isinstance(data, Mapping):
            known = {field.data_key for field in self.load_fields.values()}
            unknown = self.error_messages["unknown"]
            faults |= {name: [unknown] for name in data if name not in known}
        if faults:
            raise ma.ValidationError(faults)
        return loaded


class QuerySchema(StrictSchema):
    """The parameters of a query: unknown ones are rejected, rather than ignored."""

    error_messages: dict[str, str] = {  # noqa: RUF012 - as marshmallow declares it
        "unknown": UNKNOWN_PARAMETER
    }


class ErrorSchema(CamelSchema):
    """An error: a code for programs, a message for people, the HTTP status."""

    code = Text("Machine-readable error code.", required=True)
    message = Text("Human-readable description of the error.", required=True)
    status = ma.fields.Integer(required=True, metadata={"description": "The HTTP status code."})


class FaultSchema(SparseSchema):
    """What is wrong with one field or parameter."""

    field = Text("Its name, such as orderIds[0]; absent where it is the request as a whole.")
    code = Text("What kind of fault it is.", required=True, validate=ma.validate.OneOf(FAULT_CODES))
    message = Text("What is wrong, in words.", required=True)


class DetailedErrorSchema(ErrorSchema):
    """An error of version 2."""

    errors = ma.fields.List(
        ma.fields.Nested(FaultSchema),
        metadata={"description": "Of 400 and 422: what is wrong, one by one; at most 100."},
    )
