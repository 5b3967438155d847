"""The OpenAPI document of a version, from the code that answers.

The views declare what differs between operations (`operation`); what all share, the errors with
their examples and the headers, is added when the document is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, TypeVar

from flask_smorest import Blueprint

from orders import domain
from orders.settings import Settings
from orders.store.database.errors import StoreUnavailable
from orders.web.bodies import MAX_BYTES, MERGE_PATCH
from orders.web.refusals import (
    ANSWERS,
    CODES,
    InsufficientScope,
    InternalError,
    InvalidKey,
    KeyBanned,
    MalformedRequest,
    MissingKey,
    PayloadTooLarge,
    RateLimited,
    UnsupportedMediaType,
    ValidationFailed,
)
from orders.webhooks import description
from schemas.order_v2 import OrderSchema

View = TypeVar("View", bound=Callable[..., Any])

WEBHOOKS_SINCE = 2
UNKNOWN_PARAMETERS_REFUSED_SINCE = 2
_REFUSALS = "x-refusals"
_HEADERS = "x-headers"
_PARAMETERS = "x-parameters"
_HAS_ETAG = "x-has-etag"
_WITH_ETAG = ("ETag", "Vary")
_ALWAYS_POSSIBLE = (
    "missing_api_key",
    "invalid_api_key",
    "rate_limit_exceeded",
    "api_key_banned",
    "internal_error",
    "store_unavailable",
)
# Codes and headers that only one version has.
_ONLY_IN = {
    "order_already_cancelled": 2,
    "Accept-Patch": 2,
    "pet_not_found": 1,
    "Deprecation": 1,
    "Sunset": 1,
    "Link": 2,
    # Where tags are strong: of others, no copy can match.
    "If-Match": 2,
}


def _header(description: str, example: str | int, *, required: bool = True) -> dict[str, Any]:
    schema = {"type": "integer" if isinstance(example, int) else "string"}
    return {"description": description, "required": required, "schema": schema, "example": example}


# On every response.
_COMMON_HEADERS = {
    "X-RateLimit-Limit": _header("Requests allowed in the window with the fewest left.", 60),
    "X-RateLimit-Remaining": _header("Requests left in that window.", 59),
    "X-RateLimit-Reset": _header("When that window resets, as a Unix time.", 1_796_112_060),
    "RateLimit-Policy": _header(
        "Both windows: quota and length.", '"minute";q=60;w=60, "day";q=1000;w=86400'
    ),
    "RateLimit": _header(
        "Both windows: requests remaining and seconds left.",
        '"minute";r=59;t=42, "day";r=999;t=86342',
    ),
    "X-Request-Id": _header("The service's id of this request.", "8f3a0c1d5e7b9246"),
    "Cache-Control": _header("Whether the response may be cached.", "no-store"),
}
_OTHER_HEADERS = {
    "ETag": _header("The revision shown, for If-None-Match. Opaque.", 'W/"166f834250a12dbd-1-42"'),
    "Vary": _header(
        "Request headers that the response depends on: if large, Accept-Encoding too.",
        "Authorization",
    ),
    "Link": _header(
        "The next page, if there is one.",
        '</v2/store/orders?after=WzQxLCI5ZjhlIl0>; rel="next"',
        required=False,
    ),
    "Idempotent-Replayed": _header(
        "Present if an earlier response is repeated.", "true", required=False
    ),
    "Retry-After": _header("Seconds to wait before the next request.", 18),
    "Accept": _header("The supported type of bodies.", "application/json", required=False),
    "Accept-Patch": _header(
        "The supported types of patches.", "application/merge-patch+json", required=False
    ),
    "Accept-Encoding": _header("The supported coding of bodies.", "identity", required=False),
    "WWW-Authenticate": _header("How to authenticate.", 'Bearer realm="store-orders"'),
    # On answers to a valid key only.
    "Deprecation": _header(
        "When the route was deprecated (RFC 9745).", "@1764892800", required=False
    ),
    "Sunset": _header(
        "When the route may go away (RFC 8594).", "Thu, 05 Dec 2030 00:00:00 GMT", required=False
    ),
}
_REQUEST_HEADERS = {
    "If-Match": {
        "name": "If-Match",
        "in": "header",
        "description": "ETags: 412, and nothing is done, if the order's own is none of them.",
        "schema": {"type": "string"},
        "example": '"166f834250a12dbd-1-42"',
    },
    "If-None-Match": {
        "name": "If-None-Match",
        "in": "header",
        "description": "ETags of the client's copies: 304 if one of them is current.",
        "schema": {"type": "string"},
        "example": 'W/"166f834250a12dbd-1-42"',
    },
    "Idempotency-Key": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "A value of the client's choice: sent again within 24 hours with the same "
        "request, it repeats the first response and does nothing.",
        "schema": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "pattern": r"^[!-+\--~]+$",
        },
        "example": "7f9c2ba4-e88f-4c1d-a1b0-6f2f6f1f8e55",
    },
}


# An exception of each kind, for the messages of the examples.
_SAMPLES: tuple[Exception, ...] = (
    MalformedRequest(
        "The body can't be read: it is not JSON: Expecting value at line 1, column 11."
    ),
    MissingKey(),
    InvalidKey(),
    InsufficientScope(),
    domain.OrderNotFound(41),
    domain.PetNotFound(7),
    domain.OrderAlreadyShipped(41),
    domain.OrderAlreadyCancelled(41),
    domain.PreconditionFailed(41),
    PayloadTooLarge(MAX_BYTES),
    UnsupportedMediaType(
        "Send the body with 'Content-Type: application/json'.",
        dict.fromkeys(("Accept", "Accept-Patch", "Accept-Encoding"), ""),
    ),
    ValidationFailed({"petId": "is required"}),
    domain.IdempotencyKeyReused(),
    RateLimited(18),
    KeyBanned(300),
    StoreUnavailable("the disk is full"),
    InternalError("8f3a0c1d5e7b9246"),  # pragma: allowlist secret
)
_SAMPLE_OF_CODE = {ANSWERS[type(each)].code: each for each in _SAMPLES}


def operation(  # noqa: PLR0913 - the facts of an operation, each by its name
    *,
    refusals: Iterable[str] = (),
    headers: Iterable[str] = (),
    parameters: Iterable[str] = (),
    has_etag: bool = False,
    deprecated: bool = False,
    stability: str | None = None,
) -> Callable[[View], View]:
    """Document a view, beyond its name, docstring, body and success.

    `refusals` are codes; `headers` of its success and `parameters` are names in the tables above;
    operations with an ETag have 304; `stability` is None if nothing changes within the version.
    """
    facts = {
        _REFUSALS: [*refusals, *_ALWAYS_POSSIBLE],
        _HEADERS: [*headers],
        _PARAMETERS: [*parameters],
        _HAS_ETAG: has_etag,
        **({"deprecated": True} if deprecated else {}),
        **({"x-stability": stability} if stability else {}),
    }

    return lambda view: documented(view, Blueprint.doc(operationId=_camel(view.__name__), **facts))


def documented(view: View, decorator: Callable[[View], Any]) -> View:
    """Return a view with what a decorator of flask-smorest documents, but not wrapped by it."""
    vars(view)["_apidoc"] = vars(decorator(view))["_apidoc"]
    return view


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def complete(spec: dict[str, Any], version: int, settings: Settings) -> dict[str, Any]:
    """Make flask-smorest's document the interface description of a version."""
    prefix = f"/v{version}"
    paths = {path.removeprefix(prefix): item for path, item in spec["paths"].items()}
    operations = [
        each for item in paths.values() for each in item.values() if isinstance(each, dict)
    ]
    for each in operations:
        _complete_operation(each, version, settings)
    # Not flask-smorest's own tag, the name of the version, which no operation has.
    tags = dict.fromkeys(chain.from_iterable(each["tags"] for each in operations))
    error = spec["components"]["schemas"]["Error"]["properties"]
    error["code"]["enum"] = _of_version(CODES, version)
    document = {
        "openapi": spec["openapi"],
        "info": spec["info"],
        "servers": _servers(settings, version),
        "security": [{"bearer": []}],
        "tags": [{"name": name} for name in tags],
        "paths": paths,
        "components": {
            **spec["components"],
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "headers": _headers(version),
        },
    }
    if version >= WEBHOOKS_SINCE:
        webhooks = description.webhooks({"$ref": "#/components/schemas/Order"}, OrderSchema.example)
        document[description.EXTENSION] = webhooks
    return document


def _servers(settings: Settings, version: int) -> list[dict[str, str]]:
    servers = [(settings.base_url, "Production"), (settings.staging_base_url, "Staging")]
    return [
        {"url": url.removesuffix("1") + str(version), "description": description}
        for url, description in servers
        if url
    ]


def _headers(version: int) -> dict[str, Any]:
    location = {"Location": _header("Where the order is.", f"/v{version}/store/orders/41")}
    headers = {**_COMMON_HEADERS, **_OTHER_HEADERS, **location}
    return {name: headers[name] for name in _of_version(headers, version)}


def _of_version(names: Iterable[str], version: int) -> list[str]:
    return [name for name in names if _ONLY_IN.get(name, version) == version]


def _complete_operation(described: dict[str, Any], version: int, settings: Settings) -> None:
    own, parameters = described.pop(_HEADERS), described.pop(_PARAMETERS)
    etag = [*_WITH_ETAG] if described.pop(_HAS_ETAG) else []
    success = next(status for status in described["responses"] if status.startswith("2"))
    # Without flask-smorest's own response to a rejected body.
    responses = {success: {**described["responses"][success], "headers": _refer(own + etag)}}
    if etag:
        responses["304"] = {"description": "The client's copy is current.", "headers": _refer(etag)}
        parameters = [*parameters, "If-None-Match"]
    refusals = described.pop(_REFUSALS)
    if version >= UNKNOWN_PARAMETERS_REFUSED_SINCE:
        refusals = dict.fromkeys([*refusals, "validation_failed"])
    for code in _of_version(refusals, version):
        _add_refusal(responses, code, version, own if described.get("deprecated") else [])
    for response in responses.values():
        response["headers"].update(_refer(_COMMON_HEADERS))
    described["responses"] = responses
    body = described.get("requestBody", {}).get("content", {})
    if MERGE_PATCH in body:
        body["application/json"] = body[MERGE_PATCH]
    described["parameters"] = described.get("parameters", []) + [
        _REQUEST_HEADERS[each] for each in _of_version(parameters, version)
    ]
    if described.get("deprecated"):
        described["x-deprecated-sunset"] = settings.pets_sunset.isoformat()


def _add_refusal(responses: dict[str, Any], code: str, version: int, headers: list[str]) -> None:
    sample = _SAMPLE_OF_CODE[code]
    answer = ANSWERS[type(sample)]
    response = responses.setdefault(str(answer.status), _no_refusals())
    response["description"] += f", `{code}`" if response["description"] else f"`{code}`"
    response["content"]["application/json"]["examples"][code] = {
        "value": {"code": code, "message": answer.words(sample), "status": answer.status}
    }
    response["headers"].update(_refer(_of_version([*answer.headers(sample), *headers], version)))


def _no_refusals() -> dict[str, Any]:
    error = {"schema": {"$ref": "#/components/schemas/Error"}, "examples": {}}
    return {"description": "", "headers": {}, "content": {"application/json": error}}


def _refer(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
