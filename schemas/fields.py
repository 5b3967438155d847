"""The parts of all schemas: fields, the bases of schemas, and the one shape of errors.

Fields accept what the contract allows, and nothing that only looks like it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import marshmallow as ma

from orders import domain

FAULT_CODES = (
    *("required", "unknown", "type", "range", "format", "length", "duplicate", "null", "status"),
)


class Fault(str):
    """A fault of a field, in words, and its `code` for programs."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, words: str, code: str = "format") -> Self:
        """Return the words with their code."""
        fault = super().__new__(cls, words)
        fault.code = code
        return fault

    @classmethod
    def of(cls, words: str) -> Fault:
        """Return a fault as it is, and other words as one of the format."""
        return words if isinstance(words, Fault) else cls(words)


def invalid(words: str, code: str) -> ma.ValidationError:
    """Return the exception for a field's value."""
    return ma.ValidationError(Fault(words, code))


class Described(ma.fields.Field[Any]):
    """A field whose meaning comes first."""

    default_error_messages = {"required": "is required", "null": "must not be null"}  # noqa: RUF012

    def make_error(self, key: str, **kwargs: Any) -> ma.ValidationError:
        """Return the exception for a fault that marshmallow finds; most keys mean another type."""
        code = key if key in Described.default_error_messages else "type"
        return invalid(str(self.error_messages[key]).format(**kwargs), code)

    def __init__(self, description: str = "", **kwargs: Any) -> None:
        """Put the description where the OpenAPI document has it from."""
        said = {"description": description} if description else {}
        super().__init__(metadata={**said, **kwargs.pop("metadata", {})}, **kwargs)


class Text(Described, ma.fields.String):
    """Any text."""


class Flag(Described, ma.fields.Boolean):
    """True or false, and nothing that could stand for them."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise invalid("must be true or false", "type")
        return value


class Nested(Described, ma.fields.Nested):
    """An object, by its schema."""


def items(schema: type[ma.Schema], description: str = "") -> ma.fields.Field[Any]:
    """Return a required field for a list of objects."""
    metadata = {"description": description} if description else {}
    return ma.fields.List(ma.fields.Nested(schema), required=True, metadata=metadata)


class Whole(Described):
    """A JSON integer between two bounds: no string, float (not even 1.0), boolean or null."""

    def __init__(self, description: str, least: int, most: int, **kwargs: Any) -> None:
        super().__init__(description, validate=ma.validate.Range(min=least, max=most), **kwargs)
        self._refused = f"must be a whole number from {least} to {most}"

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> int:
        if type(value) is not int:
            raise invalid(self._refused, "type")
        return value

    def _validate(self, value: Any) -> None:
        try:
            super()._validate(value)
        except ma.ValidationError:
            raise invalid(self._refused, "range") from None


class Int64(Whole):
    """A whole number that fits in 64 bits, signed."""


def identifier(description: str, **options: Any) -> Int64:
    """Return a field for an id: of an order, a pet, an event."""
    return Int64(description, 1, domain.MAX_INT64, **options)


class Instant(Described):
    """An RFC 3339 date-time with a time zone; written in UTC with milliseconds."""

    parse = staticmethod(domain.parse_instant)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> datetime:
        try:
            return self.parse(value)
        except domain.LeapSecond:
            raise invalid(
                "must have seconds from 00 to 59: a leap second can't be stored", "range"
            ) from None
        except (ValueError, TypeError):
            raise invalid(
                "must be an RFC 3339 date-time with a time zone, such as "
                "2026-12-01T08:00:00Z, in the years 1 to 9999 UTC",
                "format" if isinstance(value, str) else "type",
            ) from None

    def _serialize(self, value: datetime | None, *_: Any, **__: Any) -> str | None:
        return None if value is None else domain.format_instant(value)


class Several(Described, ma.fields.List[Any]):
    """One or more objects, or other elements. A longer list is rejected without a look at them."""

    def __init__(self, description: str, element: Any, most: int, **kwargs: Any) -> None:
        metadata = {"minItems": 1, "maxItems": most, **kwargs.pop("metadata", {})}
        super().__init__(description, cls_or_instance=element, metadata=metadata, **kwargs)
        self._most = most
        self._refused = f"must be a list of 1 to {most}"

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(value, list):
            raise invalid(self._refused, "type")
        if not 1 <= len(value) <= self._most:
            raise invalid(self._refused, "length")
        return super()._deserialize(value, *args, **kwargs)


class Ids(Several):
    """One or more ids, each once."""

    def __init__(self, description: str, most: int, **kwargs: Any) -> None:
        metadata = {"uniqueItems": True}
        super().__init__(description, identifier(""), most, metadata=metadata, **kwargs)
        self._refused = f"must be 1 to {most} ids, each once"

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        ids = super()._deserialize(value, *args, **kwargs)
        if len(set(ids)) < len(ids):
            raise invalid(self._refused, "duplicate")
        return ids


class OrderText(Described, ma.fields.String):
    """One of an order's texts, by the rule of its field."""

    def __init__(self, name: str, description: str, **kwargs: Any) -> None:
        self._rule = domain.TEXTS[name]
        metadata = {"pattern": self._rule.pattern}
        length = ma.validate.Length(1, self._rule.most)
        super().__init__(description, validate=length, metadata=metadata, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        if not self._rule.is_met(value):
            raise invalid(self._rule.must, _code_of(value, self._rule))
        return str(value)


def _code_of(value: object, rule: domain.TextRule) -> str:
    if not isinstance(value, str):
        return "type"
    return "format" if 1 <= len(value) <= rule.most else "length"


class Trackings(Described, ma.fields.Dict):
    """The tracking of orders, by their ids: in JSON, names are texts."""

    def __init__(self, description: str, **kwargs: Any) -> None:
        values = OrderText("tracking", "")
        super().__init__(description, values=values, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        ids = {name: domain.parse_id(name) for name in value} if isinstance(value, dict) else {}
        if not isinstance(value, dict) or None in ids.values():
            raise invalid("must be an object of order ids and texts", "type")
        rule = domain.TEXTS["tracking"]
        if not all(map(rule.is_met, value.values())):
            raise ma.ValidationError(f"each {rule.must}")
        return {ids[name]: text for name, text in value.items()}


# Parameters of a query. Each arrives as the list of its values.

_CANONICAL = re.compile("0|[1-9][0-9]{0,18}")


class Once:
    """Mixed into a field: a parameter that must not be repeated."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if len(value) > 1:
            raise invalid("must not be repeated", "duplicate")
        return super()._deserialize(value[0], *args, **kwargs)  # type: ignore[misc]


class Decimal:
    """Mixed into a whole number: a parameter in canonical decimals, no sign, no leading zero."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        number = int(value) if _CANONICAL.fullmatch(value) else None
        return super()._deserialize(number, *args, **kwargs)  # type: ignore[misc]


class TrueOrFalse:
    """Mixed into a flag: a parameter that is one of these words."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        flag = {"true": True, "false": False}.get(value)
        return super()._deserialize(flag, *args, **kwargs)  # type: ignore[misc]


class WholeParameter(Once, Decimal, Whole):
    """A whole number between two bounds."""


class Int64Parameter(Once, Decimal, Int64):
    """A whole number that fits in 64 bits, signed."""


class _Bound(Instant):
    parse = staticmethod(domain.parse_bound)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._deserialize(value, *args, **kwargs)
        except ma.ValidationError as error:
            if " " not in value:
                raise
            # Few know that a plus in a query is a space.
            hint = "; write the + of a time zone as %2B"
            raise invalid(f"{error.messages[0]}{hint}", "format") from None


class BoundParameter(Once, _Bound):
    """An RFC 3339 date-time with a time zone, that stored instants are compared with."""


class OrderTextParameter(Once, OrderText):
    """A text that is one of an order's, or could be."""


class TextParameter(Once, Text):
    """Any text."""


class ZoneParameter(TextParameter):
    """The name of a time zone."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        name: str = super()._deserialize(value, *args, **kwargs)
        if not domain.is_time_zone(name):
            raise invalid("must be a time zone's IANA name, such as Europe/Berlin", "format")
        return name


class FlagParameter(Once, TrueOrFalse, Flag):
    """`true` or `false`."""


class ColumnsParameter(Described, ma.fields.List[str]):
    """Headings of a file by our columns, `petId=SKU`, by repeating the parameter."""

    def __init__(self, description: str) -> None:
        super().__init__(description, cls_or_instance=ma.fields.String())

    def _deserialize(self, value: list[str], *args: Any, **kwargs: Any) -> Any:
        columns = dict(each.partition("=")[::2] for each in value)
        if not all(columns.values()):
            raise invalid("must be ours=theirs, such as petId=SKU", "format")
        return columns


class Upload(Described):
    """A part of a form that is a file."""


class ChoiceParameter(TextParameter):
    """One of several values."""

    def __init__(self, description: str, choices: Sequence[str], **kwargs: Any) -> None:
        error = f"must be one of {', '.join(choices)}"
        super().__init__(description, validate=ma.validate.OneOf(choices, error=error), **kwargs)


class ChoicesParameter(Described, ma.fields.List[str]):
    """Any of several values, by repeating the parameter."""

    def __init__(self, description: str, choices: Sequence[str]) -> None:
        super().__init__(description, cls_or_instance=ChoiceParameter("", choices))

    def _deserialize(self, value: list[str], *args: Any, **kwargs: Any) -> Any:
        return frozenset(self.inner.deserialize([text]) for text in value)


# The bases.

NOT_AN_OBJECT = Fault("must be a JSON object", "type")
UNKNOWN_PARAMETER = Fault("is not a parameter of this request", "unknown")


class CamelSchema(ma.Schema):
    """Any schema: `ship_date` is `shipDate` in JSON and in queries."""

    def on_bind_field(self, field_name: str, field_obj: ma.fields.Field[Any]) -> None:
        """Name a field as the API does."""
        field_obj.data_key = domain.name_in_api(field_name)


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
        """Return the loaded data, or raise all its faults, unknown fields in their order."""
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
    """A fault of one field or parameter."""

    field = Text("Its name, such as orderIds[0]; absent where it is the request as a whole.")
    code = Text("What kind of fault it is.", required=True, validate=ma.validate.OneOf(FAULT_CODES))
    message = Text("What is wrong, in words.", required=True)


class DetailedErrorSchema(ErrorSchema):
    """An error of version 2."""

    errors = ma.fields.List(
        ma.fields.Nested(FaultSchema),
        metadata={"description": "In 400 and 422: each fault, at most 100."},
    )
