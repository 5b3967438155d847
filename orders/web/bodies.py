"""Parses bodies, queries and Idempotency-Keys strictly; rejects others and names their faults.

Webargs is not used: its parser treats a missing Content-Type as an empty body, and fails with 500
on some bodies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import marshmallow as ma
from flask import Request, request
from werkzeug.datastructures import FileStorage
from werkzeug.exceptions import HTTPException
from werkzeug.http import parse_options_header

from orders import strictjson
from orders.domain import Origin
from orders.service import Terms
from orders.store.idempotency import IdempotencyKey
from orders.strictjson import NotStrictJson
from orders.web.access import Call, current_call
from orders.web.refusals import (
    Headers,
    MalformedRequest,
    PayloadTooLarge,
    UnsupportedMediaType,
    ValidationFailed,
)
from orders.web.replies import precondition
from schemas.fields import NOT_AN_OBJECT, UNKNOWN_PARAMETER

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

MERGE_PATCH = "application/merge-patch+json"
FORM = "multipart/form-data"
# The path at which bodies are forms, and longer than others. An order is some hundred bytes.
IMPORTS = "/v2/imports"
LARGEST_IMPORT = 16 * 1024 * 1024
_JSON = ("application/json",)
# The media types of a location whose body may be declared as more than JSON.
_TYPES = {"merge_patch": (MERGE_PATCH, *_JSON), "files": (FORM,)}
# A longer Content-Type is cut: no media type is so long, and each parameter takes time.
_LONGEST_TYPE = 500
_ACCEPTED = (("Accept", ", ".join(_JSON)),)
ACCEPT_PATCH = ("Accept-Patch", ", ".join(_TYPES["merge_patch"]))
_IDEMPOTENCY_KEY = re.compile(r"[!-+\--~]{1,255}")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
# Longer queries are not cached, in bytes.
_LONGEST_CACHED = 500


def load(schema: ma.Schema, location: str, incoming: Request) -> Any:
    """Return a part of a request as its schema loads it, or raise its faults.

    It is the `query`, or the body: `json`, `optional_json`, `merge_patch` or `files`.
    """
    if location == "query":
        return _load_query(schema, incoming.query_string)
    if location == "files":
        return _load(schema, _read_files(incoming))
    return _load(schema, _read_json(incoming.environ, location))


def _load(schema: ma.Schema, data: Any) -> Any:
    try:
        return schema.load(data)
    except ma.ValidationError as error:
        messages = error.normalized_messages()  # type: ignore[no-untyped-call]
        raise ValidationFailed(_faults_by_field(messages)) from None


def longest(path: str) -> int:
    """Return how many bytes the body of a request to this path may have."""
    return LARGEST_IMPORT if path == IMPORTS else PayloadTooLarge.limit


def may_be_read(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Return whether a body is read: not if the headers, named as in WSGI, lead to 413 or 415."""
    length = int(headers.get("CONTENT_LENGTH", 0))
    if not length:  # one in chunks may be empty, whatever its type
        return True
    try:
        _check_size(length, longest(path))
        location = "files" if path == IMPORTS else "merge_patch" if method == "PATCH" else "json"
        _check_type(
            headers.get("CONTENT_TYPE", ""),
            headers.get("CONTENT_ENCODING"),
            _TYPES.get(location, _JSON),
        )
    except (PayloadTooLarge, UnsupportedMediaType):
        return False
    return True


def refuse_parameters(query: bytes) -> None:
    """Raise ValidationFailed with every parameter of a query: the operation has none."""
    unknown = read_query(query)
    if unknown:
        raise ValidationFailed(dict.fromkeys(unknown, UNKNOWN_PARAMETER))


def _load_query(schema: ma.Schema, query: bytes) -> Any:
    # Loaded once, where it is repeated: loading takes as long as answering from a cache.
    if len(query) > _LONGEST_CACHED:
        return _load(schema, read_query(query))
    return _load_short_query(schema, query)


@lru_cache(maxsize=500)
def _load_short_query(schema: ma.Schema, query: bytes) -> Any:
    return _load(schema, read_query(query))


def _read_json(environ: WSGIEnvironment, location: str) -> Any:
    """Return the body of a request as JSON values (RFC 8259, within the limits of `strictjson`).

    An optional body of no bytes, whatever its type, is an empty object.
    """
    length = int(environ.get("CONTENT_LENGTH") or 0)
    _check_size(length)
    body = _read_bytes(environ, length)
    if location == "optional_json" and not (body or length):
        return {}
    _check_type(
        environ.get("CONTENT_TYPE", ""),
        environ.get("HTTP_CONTENT_ENCODING"),
        _TYPES.get(location, _JSON),
    )
    try:
        return strictjson.parse(body)
    except NotStrictJson as error:
        raise MalformedRequest(f"The body can't be read: {error}.") from None


def _read_files(incoming: Request) -> dict[str, FileStorage | None]:
    """Return the files of a form (RFC 7578) by the names of their parts; None for other parts."""
    environ = incoming.environ
    length = int(environ.get("CONTENT_LENGTH") or 0)
    _check_size(length, LARGEST_IMPORT)
    _check_type(
        environ.get("CONTENT_TYPE", ""), environ.get("HTTP_CONTENT_ENCODING"), _TYPES["files"]
    )
    try:
        files, texts = incoming.files, incoming.form
    except (HTTPException, ValueError) as error:
        raise MalformedRequest(f"The form can't be read: {error}.") from None
    # A browser sends a field that is left empty, without a name of a file.
    chosen = [name for name in files if files[name].filename]
    return {name: files.get(name) for name in (*texts, *chosen)}


def read_query(query: bytes) -> dict[str, list[str]]:
    """Return the values of each parameter, in their order."""
    parameters: dict[str, list[str]] = {}
    # There may be thousands of parameters, mostly of few names.
    decoded: dict[bytes, str] = {}
    for pair in query.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            if name not in decoded:
                decoded[name] = _decoded(name, name)
            parameters.setdefault(decoded[name], []).append(_decoded(value, name) if value else "")
    return parameters


def _decoded(text: bytes, name: bytes) -> str:
    # As in forms, a plus is a space. Few have escapes.
    spaced = text.replace(b"+", b" ")
    try:
        if b"%" not in text:
            return spaced.decode("utf-8")
        if not _BAD_ESCAPE.search(text):
            return unquote_to_bytes(spaced).decode("utf-8")
    except UnicodeDecodeError:
        pass
    shown = unquote_to_bytes(name).decode("utf-8", "replace")
    raise ValidationFailed({shown: "is not percent-encoded UTF-8"})


def _read_bytes(environ: WSGIEnvironment, length: int) -> bytes:
    # Servers of WSGI limit the input themselves, or else say how long it is.
    is_whole = environ.get("wsgi.input_terminated", False)
    body: bytes = environ["wsgi.input"].read(PayloadTooLarge.limit + 1 if is_whole else length)
    _check_size(len(body))
    return body


def _check_size(length: int, most: int = PayloadTooLarge.limit) -> None:
    if length > most:
        raise PayloadTooLarge(most)


def _check_type(content_type: str, coding: str | None, allowed: tuple[str, ...]) -> None:
    _check_media_type(content_type, allowed)
    if coding:
        raise UnsupportedMediaType(
            "Send the body without a Content-Encoding.",
            (("Accept-Encoding", "identity"), *_accepted_patches(allowed)),
        )


# Clients send few different ones; a strange one may be as long as the server allows.
@lru_cache(maxsize=64)
def _check_media_type(content_type: str, allowed: tuple[str, ...]) -> None:
    media_type, options = parse_options_header(content_type[:_LONGEST_TYPE])
    if media_type.lower() not in allowed:
        raise UnsupportedMediaType(
            f"Send the body with 'Content-Type: {allowed[0]}'.",
            _accepted_patches(allowed) or _ACCEPTED,
        )
    if options.get("charset", "utf-8").lower() not in {"utf-8", "utf8"}:
        raise UnsupportedMediaType(
            "Send the body in UTF-8.", _accepted_patches(allowed) or _ACCEPTED
        )


def _accepted_patches(allowed: tuple[str, ...]) -> Headers:
    """Return the header that every 415 of a patch has (RFC 5789, section 3.1)."""
    return () if allowed is _JSON else (("Accept-Patch", ", ".join(allowed)),)


def _faults_by_field(messages: Mapping[str | int, Any], within: str = "") -> dict[str, str]:
    """Return the faults of each field, such as `orders[3].quantity`."""
    named: dict[str, str] = {}
    for name, faults in messages.items():
        if faults == [NOT_AN_OBJECT]:
            field = within or "body"
        elif isinstance(name, int):
            field = f"{within}[{name}]"
        else:
            field = f"{within}.{name}" if within else name
        if isinstance(faults, Mapping):
            named |= _faults_by_field(faults, field)
        else:
            named[field] = faults[0] if len(faults) == 1 else " and ".join(map(str, faults))
    return named


def idempotency_key(version: int) -> IdempotencyKey | None:
    """Return the Idempotency-Key of this request, if it has one; it must be a valid one."""
    # A repeated header arrives as one with a comma in it.
    value = request.environ.get("HTTP_IDEMPOTENCY_KEY")
    if value is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(value):
        raise MalformedRequest(
            "Send one Idempotency-Key, of 1 to 255 visible ASCII characters without a comma."
        )
    return IdempotencyKey(current_call().key().id, version, value)


def terms(call: Call, version: int, *, strong: bool, has_key: bool = True) -> Terms:
    """Return the terms of a change: the caller, If-Match, If-None-Match, Idempotency-Key.

    `strong` is whether tags are (an order's); `has_key` whether the operation accepts a key.
    """
    environ = request.environ
    is_conditional = "HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ
    return Terms(
        Origin(call.key_name or "nobody", call.request_id),
        precondition(environ, strong=strong) if is_conditional else None,
        idempotency_key(version) if has_key else None,
    )
