"""The OpenAPI document of a version, from the code that answers.

The views declare what differs between operations (`operation`); what all share, the errors with
their examples and the headers, is added when the document is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, TypeVar

from flask_smorest import Blueprint

from orders.settings import Settings
from orders.web.bodies import MERGE_PATCH
from orders.web.openapi import version_2, webhooks
from orders.web.openapi.parts import (
    COMMON_HEADERS,
    OTHER_HEADERS,
    REQUEST_HEADERS,
    SAMPLE_OF_CODE,
    header,
)
from orders.web.refusals import ANSWERS, CODES
from schemas.order import EXAMPLE_ID
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
}


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
        order = {"$ref": "#/components/schemas/Order"}
        document["webhooks"] = webhooks.webhooks(order, OrderSchema.example)
        version_2.complete(document)
    return document


def _servers(settings: Settings, version: int) -> list[dict[str, str]]:
    servers = [(settings.base_url, "Production"), (settings.staging_base_url, "Staging")]
    return [
        {"url": url.removesuffix("1") + str(version), "description": description}
        for url, description in servers
        if url
    ]


def _headers(version: int) -> dict[str, Any]:
    location = {"Location": header("Where the order is.", f"/v{version}/store/orders/{EXAMPLE_ID}")}
    headers = {**COMMON_HEADERS, **OTHER_HEADERS, **location}
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
        response["headers"].update(_refer(COMMON_HEADERS))
    described["responses"] = responses
    body = described.get("requestBody", {}).get("content", {})
    if MERGE_PATCH in body:
        body["application/json"] = body[MERGE_PATCH]
    described["parameters"] = described.get("parameters", []) + [
        REQUEST_HEADERS[each] for each in _of_version(parameters, version)
    ]
    if described.get("deprecated"):
        described["x-deprecated-sunset"] = settings.pets_sunset.isoformat()


def _add_refusal(responses: dict[str, Any], code: str, version: int, headers: list[str]) -> None:
    sample = SAMPLE_OF_CODE[code]
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
