"""Reads request bodies: strict JSON, or a refusal that says what is wrong with it.

The stock parser takes a missing Content-Type for an empty body, keeps the last of two equal names,
and answers 500 to a number of 5,000 digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import marshmallow as ma
from flask import Request
from webargs.flaskparser import FlaskParser
from werkzeug.http import parse_options_header

from orders.web.refusals import (
    MalformedRequest,
    PayloadTooLarge,
    UnsupportedMediaType,
    ValidationFailed,
)

MAX_BYTES = 64 * 1024
MAX_OUTER_CONTAINERS = 32
MAX_DIGITS = 1_000


class BodyParser(FlaskParser):
    """webargs' parser with this service's rules, raising this service's refusals."""

    DEFAULT_VALIDATION_STATUS = 422
    __location_map__ = {  # noqa: RUF012 - as webargs declares it
        **FlaskParser.__location_map__,
        "optional_json": "load_optional_json",
    }

    def load_json(self, req: Request, schema: ma.Schema) -> Any:
        """Give the body as JSON values.

        Raises:
            PayloadTooLarge, UnsupportedMediaType, MalformedRequest: it is not what it must be.
        """
        return read_json(req)

    def load_optional_json(self, req: Request, schema: ma.Schema) -> Any:
        """Give the body as JSON values; an empty object where it has no bytes, whatever its type.

        Raises:
            PayloadTooLarge, UnsupportedMediaType, MalformedRequest: it is not what it must be.
        """
        return read_json(req) if _read_bytes(req) else {}

    def handle_error(
        self,
        error: ma.ValidationError,
        req: Request,
        schema: ma.Schema,
        *,
        error_status_code: int | None,
        error_headers: Mapping[str, str] | None,
    ) -> NoReturn:
        """Turn marshmallow's messages into a refusal that names each field.

        Raises:
            ValidationFailed: always.
        """
        messages = error.normalized_messages()  # type: ignore[no-untyped-call]
        raise ValidationFailed(_faults_by_field(messages))


def read_json(request: Request) -> Any:
    """Give the body of a request as JSON values.

    Raises:
        PayloadTooLarge: it has over 64 KiB.
        UnsupportedMediaType: it is not declared as JSON in UTF-8, or is encoded.
        MalformedRequest: it is not JSON (RFC 8259), or not of the kind that can be told safely.
    """
    body = _read_bytes(request)
    _check_media_type(request)
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except UnicodeDecodeError:
        raise MalformedRequest("The body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise MalformedRequest(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None
    except RecursionError:
        raise MalformedRequest(_TOO_DEEP) from None
    if _is_too_deep(value):
        raise MalformedRequest(_TOO_DEEP)
    return value


_TOO_DEEP = f"The body nests objects and arrays more than {MAX_OUTER_CONTAINERS} deep."


def _read_bytes(request: Request) -> bytes:
    if (request.content_length or 0) > MAX_BYTES:
        raise PayloadTooLarge(MAX_BYTES)
    body = request.get_data()
    if len(body) > MAX_BYTES:
        raise PayloadTooLarge(MAX_BYTES)
    return body


def _check_media_type(request: Request) -> None:
    media_type, options = parse_options_header(request.headers.get("Content-Type", ""))
    if media_type.lower() != "application/json":
        raise UnsupportedMediaType("Send the body with 'Content-Type: application/json'.")
    if options.get("charset", "utf-8").lower() not in {"utf-8", "utf8"}:
        raise UnsupportedMediaType("Send the body in UTF-8.")
    if request.headers.get("Content-Encoding"):
        raise UnsupportedMediaType("Send the body without a Content-Encoding.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedRequest("The body has an object with the same name twice.")
    return members


def _integer(digits: str) -> int:
    _refuse_many_digits(digits)
    return int(digits)


def _float(digits: str) -> float:
    _refuse_many_digits(digits)
    return float(digits)


def _refuse_many_digits(number: str) -> None:
    if len(number) > MAX_DIGITS and sum(map(str.isdigit, number)) > MAX_DIGITS:
        raise MalformedRequest(f"The body has a number of over {MAX_DIGITS:,} digits.")


def _constant(name: str) -> NoReturn:
    raise MalformedRequest(f"The body has {name}, which is not JSON.")


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_OUTER_CONTAINERS + 1):
        containers = [each for each in level if isinstance(each, (dict, list))]
        level = [
            inner
            for each in containers
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return any(isinstance(each, (dict, list)) for each in level)


def _faults_by_field(messages: Mapping[str, Any]) -> dict[str, str]:
    # webargs puts the location on top; marshmallow has a list of messages for each field.
    (fields,) = messages.values()
    return {
        "body" if name == "_schema" else str(name): " and ".join(map(str, told))
        for name, told in fields.items()
    }
