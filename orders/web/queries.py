"""Reads query strings: as strictly as bodies, or a refusal that names the parameter."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from orders.web.refusals import ValidationFailed

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def read_query(query: bytes) -> dict[str, list[str]]:
    """Return the values of each parameter, in the order in which they came.

    Raises:
        ValidationFailed: a name or a value is not percent-encoded UTF-8.
    """
    found: dict[str, list[str]] = {}
    for pair in query.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            read = _decoded(name, name)
            found.setdefault(read, []).append(_decoded(value, name))
    return found


def _decoded(text: bytes, name: bytes) -> str:
    try:
        # As forms are sent: a plus is a blank.
        read = unquote_to_bytes(text.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        read = None
    if read is None or _BAD_ESCAPE.search(text):
        told = unquote_to_bytes(name).decode("utf-8", "replace")
        raise ValidationFailed({told: "is not percent-encoded UTF-8"})
    return read
