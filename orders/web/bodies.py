"""Parses request bodies and queries strictly, and rejects others with what is wrong in them.

The stock parser treats a missing Content-Type as an empty body, and fails with 500 on some bodies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import unquote_to_bytes

import marshmallow as ma
from flask import Request
from webargs.flaskparser import FlaskParser
from werkzeug.http import parse_options_header

from orders import strictjson
from orders.strictjson import NotStrictJson
from orders.web.refusals import (
    MalformedRequest,
    PayloadTooLarge,
    UnsupportedMediaType,
    ValidationFailed,
)
from schemas.base import NOT_AN_OBJECT

MAX_BYTES = 64 * 1024
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
# Of the cache of parsed queries: entries, and bytes of a query.
_MOST_CACHED = 500
_LONGEST_CACHED = 500


class BodyParser(FlaskParser):
    """webargs' parser with this service's rules, raising this service's refusals."""

    DEFAULT_VALIDATION_STATUS = 422
    # Unknown parameters are rejected, as unknown fields are.
    DEFAULT_UNKNOWN_BY_LOCATION = {  # noqa: RUF012 - as webargs declares it
        **FlaskParser.DEFAULT_UNKNOWN_BY_LOCATION,
        "query": ma.RAISE,
    }
    __location_map__ = {  # noqa: RUF012 - as webargs declares it
        **FlaskParser.__location_map__,
        "optional_json": "load_optional_json",
    }

    def __init__(self, **options: Any) -> None:
        """Accept the options of webargs' parser."""
        super().__init__(**options)
        self._queries: dict[tuple[Any, bytes], Any] = {}

    def parse(self, argmap: Any, req: Request | None = None, **options: Any) -> Any:
        """Return a part of the request as its schema loads it.

        Repeated queries are parsed once, as parsing takes as long as answering from a cache.
        """
        req = req or self.get_default_request()
        query = req.query_string
        if options.get("location") != "query" or len(query) > _LONGEST_CACHED:
            return super().parse(argmap, req, **options)
        cached = (argmap, query)
        if cached not in self._queries:
            if len(self._queries) >= _MOST_CACHED:
                self._queries.clear()
            self._queries[cached] = super().parse(argmap, req, **options)
        return self._queries[cached]

    def load_querystring(self, req: Request, schema: ma.Schema) -> Any:
        """Return the parameters of the query, each with the list of its values.

        Raises:
            ValidationFailed: it is not percent-encoded UTF-8.
        """
        return read_query(req.query_string)

    def load_json(self, req: Request, schema: ma.Schema) -> Any:
        """Return the body as JSON values.

        Raises:
            PayloadTooLarge, UnsupportedMediaType, MalformedRequest: as `read_json`.
        """
        return read_json(req)

    def load_optional_json(self, req: Request, schema: ma.Schema) -> Any:
        """Return the body as JSON values; an empty object if it has no bytes, whatever its type.

        Raises:
            PayloadTooLarge, UnsupportedMediaType, MalformedRequest: as `read_json`.
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
        """Raise marshmallow's messages as an exception that names each field.

        Raises:
            ValidationFailed: always.
        """
        messages = error.normalized_messages()  # type: ignore[no-untyped-call]
        raise ValidationFailed(_faults_by_field(messages))


def read_json(request: Request) -> Any:
    """Return the body of a request as JSON values.

    Raises:
        PayloadTooLarge: it is over 64 KiB.
        UnsupportedMediaType: it is not declared as JSON in UTF-8, or is encoded.
        MalformedRequest: it is not JSON (RFC 8259), or beyond the limits of `strictjson`.
    """
    body = _read_bytes(request)
    _check_media_type(request)
    try:
        return strictjson.parse(body)
    except NotStrictJson as error:
        raise MalformedRequest(f"The body can't be read: {error}.") from None


def read_query(query: bytes) -> dict[str, list[str]]:
    """Return the values of each parameter, in their order.

    Raises:
        ValidationFailed: a name or a value is not percent-encoded UTF-8.
    """
    parameters: dict[str, list[str]] = {}
    for pair in query.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            parameters.setdefault(_decoded(name, name), []).append(_decoded(value, name))
    return parameters


def _decoded(text: bytes, name: bytes) -> str:
    try:
        # As in forms, a plus is a space.
        decoded = unquote_to_bytes(text.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        decoded = None
    if decoded is None or _BAD_ESCAPE.search(text):
        shown = unquote_to_bytes(name).decode("utf-8", "replace")
        raise ValidationFailed({shown: "is not percent-encoded UTF-8"})
    return decoded


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
        raise UnsupportedMediaType(
            "Send the body without a Content-Encoding.", {"Accept-Encoding": "identity"}
        )


def _faults_by_field(messages: Mapping[str, Any]) -> dict[str, str]:
    # webargs adds the location on top of marshmallow's lists of messages by field.
    (fields,) = messages.values()
    return {
        "body" if faults == [NOT_AN_OBJECT] else str(name): " and ".join(map(str, faults))
        for name, faults in fields.items()
    }
