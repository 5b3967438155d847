"""Parts of the OpenAPI documents: headers and parameters."""

from __future__ import annotations

from typing import Any

from orders.settings import TEST_MODE


def header(description: str, example: str | int, *, required: bool = True) -> dict[str, Any]:
    """Return a header of responses, whose type is that of its example."""
    schema = {"type": "integer" if isinstance(example, int) else "string"}
    return {"description": description, "required": required, "schema": schema, "example": example}


# On every response.
COMMON_HEADERS = {
    "X-RateLimit-Limit": header("Requests allowed in the window with the fewest left.", 60),
    "X-RateLimit-Remaining": header("Requests left in that window.", 59),
    "X-RateLimit-Reset": header("When that window resets, as a Unix time.", 1_796_112_060),
    "RateLimit-Policy": header(
        "Both windows: quota and length.", '"minute";q=60;w=60, "day";q=1000;w=86400'
    ),
    "RateLimit": header(
        "Both windows: requests remaining and seconds left.",
        '"minute";r=59;t=42, "day";r=999;t=86342',
    ),
    "X-Request-Id": header("The service's id of this request.", "8f3a0c1d5e7b9246"),
    "Cache-Control": header("Whether the response may be cached.", "no-store"),
    "Store-Mode": header("Present if the key is one of test mode.", TEST_MODE, required=False),
}
OTHER_HEADERS = {
    "ETag": header("The revision shown, for If-None-Match. Opaque.", 'W/"166f834250a12dbd-1-42"'),
    "Vary": header(
        "Request headers that the response depends on: if large, Accept-Encoding too.",
        "Authorization",
    ),
    "Link": header(
        "The next page, if there is one.",
        '</v2/store/orders?after=WzQxLCI5ZjhlIl0>; rel="next"',
        required=False,
    ),
    "Idempotent-Replayed": header(
        "Present if an earlier response is repeated.", "true", required=False
    ),
    "Retry-After": header("Seconds to wait before the next request.", 18),
    "Accept": header("The supported type of bodies.", "application/json", required=False),
    "Accept-Patch": header(
        "The supported types of patches.", "application/merge-patch+json", required=False
    ),
    "Accept-Encoding": header("The supported coding of bodies.", "identity", required=False),
    "WWW-Authenticate": header("How to authenticate.", 'Bearer realm="store-orders"'),
    # On answers to a valid key only.
    "Deprecation": header(
        "When the route was deprecated (RFC 9745).", "@1764892800", required=False
    ),
    "Sunset": header(
        "When the route may go away (RFC 8594).", "Thu, 05 Dec 2030 00:00:00 GMT", required=False
    ),
}


def _condition(name: str, description: str, example: str) -> dict[str, Any]:
    schema = {"type": "string"}
    described = {"name": name, "in": "header", "description": description}
    return {**described, "schema": schema, "example": example}


_STRONG, _WEAK = '"166f834250a12dbd-1-42"', 'W/"166f834250a12dbd-1-42"'
REQUEST_HEADERS = {
    "If-Match": _condition(
        "If-Match", "ETags: 412, and nothing is done, if the order's own is none of them.", _STRONG
    ),
    "If-Match of weak tags": _condition(
        "If-Match", "Holds only as `*`, as the order's ETag is weak: 412, and nothing is done.", "*"
    ),
    "If-Match of a list": _condition(
        "If-Match", "Holds only as `*`, as the list's ETag is weak: 412, and nothing is done.", "*"
    ),
    "If-None-Match": _condition(
        "If-None-Match", "ETags of the client's copies: 304 if one of them is current.", _WEAK
    ),
    "If-None-Match of a write": _condition(
        "If-None-Match", "ETags: 412, and nothing is done, if one is the order's own.", _WEAK
    ),
    "If-None-Match of a write to the list": _condition(
        "If-None-Match", "ETags: 412, and nothing is done, if one is the list's own.", _WEAK
    ),
    "Last-Event-ID": {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The id of the last event that the client has seen, as browsers send it "
        "when they come back to a stream. It outranks `after`.",
        "schema": {"type": "integer", "format": "int64", "minimum": 0},
        "example": 87,
    },
    "Idempotency-Key": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "A value of the client's choice: sent again within 24 hours with the same "
        "request, it repeats the first response and does nothing.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!-+\--~]+$"},
        "example": "7f9c2ba4-e88f-4c1d-a1b0-6f2f6f1f8e55",
    },
}
