"""The OpenAPI document of a version, from the code that answers.

The views declare what differs between operations (`operation`); what all share, the errors with
their examples and the headers, is added when the document is completed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from flask_smorest import Blueprint

from orders import apikeys
from orders.apikeys import ADMIN, WEBHOOKS
from orders.domain import name_in_api
from orders.settings import TEST_MODE, Settings
from orders.store.tables import orders
from orders.web.access import ANY
from orders.web.bodies import MERGE_PATCH
from orders.web.openapi import webhooks
from orders.web.refusals import CODES, EXAMPLES, SERVER_ANSWERS, error_body
from schemas.v1 import EXAMPLE_ID
from schemas.v2 import OrderSchema


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
    "Store-Mode": header("Present if the key belongs to test mode.", TEST_MODE, required=False),
}
OTHER_HEADERS = {
    "ETag": header("The revision shown, for If-None-Match. Opaque.", 'W/"166f834250a12dbd-1-42"'),
    "Vary": header(
        "Request headers that the response depends on: if large, Accept-Encoding too.",
        "Authorization",
    ),
    "Accept-Ranges": header("The unit of a Range.", "bytes"),
    "Content-Range": header(
        "These bytes' place in the file, and its size.", "bytes 1000-1999/1204224", required=False
    ),
    "Content-Disposition": header(
        "The name of the file.", 'attachment; filename="orders-20261201T080000Z.db"'
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


def _sent(
    name: str, description: str, example: str | int, schema: dict[str, Any] | None = None
) -> dict[str, Any]:
    described = {"name": name, "in": "header", "description": description}
    return {**described, "schema": schema or {"type": "string"}, "example": example}


_STRONG, _WEAK = '"166f834250a12dbd-1-42"', 'W/"166f834250a12dbd-1-42"'
REQUEST_HEADERS = {
    "If-Match": _sent(
        "If-Match", "ETags: 412, and nothing is done, if the order's own is none of them.", _STRONG
    ),
    "If-Match of weak tags": _sent(
        "If-Match", "Holds only as `*`, as the order's ETag is weak: 412, and nothing is done.", "*"
    ),
    "If-Match of a list": _sent(
        "If-Match", "Holds only as `*`, as the list's ETag is weak: 412, and nothing is done.", "*"
    ),
    "If-None-Match": _sent(
        "If-None-Match", "ETags of the client's copies: 304 if one of them is current.", _WEAK
    ),
    "If-None-Match of a write": _sent(
        "If-None-Match", "ETags: 412, and nothing is done, if one is the order's own.", _WEAK
    ),
    "If-None-Match of a write to the list": _sent(
        "If-None-Match", "ETags: 412, and nothing is done, if one is the list's own.", _WEAK
    ),
    "Range": _sent("Range", "The wanted bytes, as one range.", "bytes=1000-"),
    "If-Range": _sent("If-Range", "Unless this is its ETag, the whole file is sent.", _STRONG),
    "Last-Event-ID": _sent(
        "Last-Event-ID",
        "The id of the last event that the client has seen, as browsers send it when they come "
        "back to a stream. It takes precedence over `after`.",
        87,
        {"type": "integer", "format": "int64", "minimum": 0},
    ),
    "Idempotency-Key": _sent(
        "Idempotency-Key",
        "A value of the client's choice: sent again within 24 hours with the same request, it "
        "repeats the first response and does nothing.",
        "7f9c2ba4-e88f-4c1d-a1b0-6f2f6f1f8e55",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!-+\--~]+$"},
    ),
}


View = TypeVar("View", bound=Callable[..., Any])

_REFUSALS = "x-refusals"
_HEADERS = "x-headers"
_PARAMETERS = "x-parameters"
_HAS_ETAG = "x-has-etag"
_SCOPE = "x-scope"
_WITH_ETAG = ("ETag", "Vary")
_ALWAYS_POSSIBLE = (
    "missing_api_key",
    "invalid_api_key",
    "rate_limit_exceeded",
    "api_key_banned",
    "internal_error",
    "store_unavailable",
)
# The codes that operations of both versions share.
BODY_REFUSALS = (
    "malformed_request",
    "payload_too_large",
    "unsupported_media_type",
    "validation_failed",
)
PLACE_REFUSALS = (
    *BODY_REFUSALS,
    "precondition_failed",
    "idempotency_key_reused",
)
REOPEN_REFUSALS = ("order_not_found", "precondition_failed")
CHANGE_REFUSALS = (*REOPEN_REFUSALS, "order_already_shipped")
# The conditions on a write to the list.
LIST_CONDITIONS = ("If-Match of a list", "If-None-Match of a write to the list")
# Headers of refusals that version 1 lacks: it has no patches.
_NOT_IN_VERSION_1 = {"Accept-Patch"}
# Codes of answers where there is no operation.
_OF_NO_OPERATION = {
    *("not_found", "method_not_allowed"),
    *(each.code for each in SERVER_ANSWERS.values()),
}
# Parts of version 2's document alone: prose, and fields for generators of clients.
_INFO = """\
The orders of a pet store: place, find, change, ship and cancel them, and follow what happens to
them.

**Keys.** Every request carries an API key of the shop's: `Authorization: Bearer <API_KEY>`. A key
may read (GET, HEAD, OPTIONS), write, manage the webhooks that it adds, or administer the shop, by
its scopes; it must not be in a web page. One that begins with `sok_test_` has a store of its own,
test mode, in which nothing is real.

**Limits.** A key has as many requests a minute and a day as its plan allows, over all operations
of all versions. `X-RateLimit-*` and `RateLimit` say what is left. A request over the limit is 429:
wait as many seconds as `Retry-After` says, and back off; a client that goes on regardless is
banned for some minutes.

**Pages.** Lists come in pages of at most 200. Send the `next` of a page as `after`, with the same
other parameters: of orders until there is no `next`; of events while `more` is true, and then
again with `wait`. Nothing is missed and nothing seen twice, however much changes meanwhile.

**Retrying safely.** Every write takes an `Idempotency-Key` of the client's choice. The same
request with the same key within 24 hours is done once, and gets the first answer again.

**Changing safely.** An order's `ETag`, sent as `If-Match` with a write, makes sure that the order
is as the client saw it; else it is 412, and nothing is done.

**Numbers.** Ids are integers of 64 bits. JavaScript's numbers are exact up to 2^53-1 only:
`JSON.parse` rounds larger ones. The store numbers orders from 1 and never gets there by itself,
but a `petId`, or the `id` of an imported order, is as the shop chose it. Where those may be
larger, read them as text or BigInt (`JSON.parse` with a reviver and `context.source`, or a library
such as lossless-json).

**Errors.** Every answer of 400 and above is an `Error`: `code` is for programs, `message` for
people. An unknown parameter or field is refused rather than ignored.

This version is beta and may change; version 1 stays as it is, and both serve the same orders."""
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "One of the shop's API keys. Those that begin with "
    f"`{apikeys.TEST_PREFIX}` belong to test mode: they have a separate store, and each answer the "
    f"header `Store-Mode: {TEST_MODE}`.",
}
_TAGS = {
    "orders": "Place, find, change, ship and cancel orders.",
    "events": "What happened to orders, to follow or to look up.",
    "reports": "Figures of the store and of the key.",
    "keys": "API keys: issue, change, rotate and revoke them.",
    "administration": "Backups, and who did what.",
    "webhooks": "Webhooks: add, change, try and remove them, and see what they received.",
}
_OPERATIONS = {
    "listOrders": "An order matches if it meets all filters. An order that does not change is "
    "seen exactly once, however many are placed or cancelled between the pages.",
    "placeOrder": "The order is pending, and numbered by the store.",
    "placeOrders": "The answer has a result for each order, in the order sent: the order as "
    "placed, or why it was not. A field that is not valid refuses all of them (422, which names "
    "it: `orders[3].quantity`). It counts as one request.",
    "getOrder": "Cancelled orders are shown, too.",
    "changeOrder": "A JSON Merge Patch (RFC 7396): fields that are named change, null removes "
    "one, and others stay. Once an order has shipped or was cancelled, only its note can change, "
    "and the tracking of one that has shipped. A patch that changes nothing is 200, without an "
    "event.",
    "cancelOrder": "Only a pending order can be cancelled. reopenOrder undoes it.",
    "shipOrder": "Only a pending order can be shipped. reopenOrder undoes it.",
    "reopenOrder": "Its shipDate is what was expected before it shipped, or absent, and it has no "
    "tracking. A pending order stays as it is, without an event.",
    "shipOrders": "The answer has a result for each order, in the order asked: the order as "
    "shipped, or why it was not. It counts as one request.",
    "importOrders": "The body is a form with one or two files, of at most 16 MiB in all: the "
    "command imports larger ones. All rows are checked before any is stored, and each fault is "
    "named by its line. One file is imported at a time.",
    "listOrderEvents": "The oldest first, each with the order as it stood afterwards.",
    "listEvents": "The oldest first, in the order of commit. A client that stores `next` and "
    "continues from it misses none and sees none twice. With `wait`, an empty page is answered "
    "once there is an event. With `Accept: text/event-stream`, the events come as Server-Sent "
    "Events, without a `limit`. Such a stream counts as one request when it opens, and one for "
    "each further minute. Its last comment says why it ends: `revoked`, `expired`, `banned` or "
    "`limited` (the key), `stopping` (the service), or `hour` (the longest that it goes on).",
    "getStats": "Orders by status, and what happened on each of the last days. An order "
    "counts as placed on the day of placedAt, as shipped on that of shipDate, and "
    "as cancelled on the day it was.",
    "getUsage": "The request itself is counted.",
    "listKeys": "All keys, also revoked ones, without their secrets.",
    "issueKey": "Only this answer has the `secret`; a replay by Idempotency-Key omits it. A key "
    "gets at most the limits of the key that issues it.",
    "changeKey": "A JSON Merge Patch: null for expiresInDays lifts the expiry. A change of plan or "
    "limits, to at most those of the key that makes it, begins new windows.",
    "rotateKey": "Only this answer has the `secret`; a replay by Idempotency-Key omits it. "
    "Everything else stays.",
    "revokeKey": "Takes effect at once, for good. The webhooks that the key added stay.",
    "unbanKey": "Its windows stay as they are.",
    "listWebhooks": "All webhooks that the key may see, without their secrets.",
    "addWebhook": "It begins with the next event. Its address must be https and public. Only this "
    "answer has the `secret`; a replay by Idempotency-Key omits it.",
    "changeWebhook": "The types of events that it receives from now on.",
    "rotateWebhook": "The previous secret also signs for 24 hours. Only this answer has the new "
    "`secret`; a replay by Idempotency-Key omits it.",
    "removeWebhook": "With its log of deliveries.",
    "pingWebhook": "A message of the type `ping` is sent now, even if the webhook is paused. The "
    "answer waits for the receiver's, for at most 15 seconds.",
    "pauseWebhook": "Its events wait until it is resumed.",
    "resumeWebhook": "Waiting events come first, with all their attempts again; with `after`, "
    "events up to that one are skipped, and later ones repeated.",
    "listDeliveries": "The attempts of the last 30 days, the newest first.",
    "getAudit": "Who did what to keys, webhooks and the store, the newest first.",
    "listBackups": "The service's backups, and whether they are on the store's disk.",
    "makeBackup": "Answered once the backup is made and checked, which can take minutes. If the "
    "connection ends before, it is still made. One is made at a time.",
    "downloadBackup": "Its ETag is the SHA-256 of the file. A download that broke off is resumed "
    "with `Range: bytes=1000-` and that ETag as `If-Range`. Each request is in the audit trail.",
    "redeliver": "The event is sent once, out of order, soon after the answer; listDeliveries has "
    "the outcome.",
}
# Added to the description of operations that need another scope than read and write.
_SCOPES = {
    None: "",
    ADMIN: " Requires the scope `admin`.",
    WEBHOOKS: " Requires the scope `webhooks`, which reaches only the webhooks that the key added, "
    "or `admin`.",
}
# Operations whose answer may be a stream.
_STREAMS = {
    "listEvents": {
        "text/event-stream": {
            "schema": {"type": "string"},
            "example": 'id: 88\nevent: order.placed\ndata: {"id": 88, …}\n\n: end hour\n\n',
        }
    }
}
# Schemas whose instances each lack one of these fields.
_ONE_OF = {
    "ShipmentResult": {"Shipped": "error", "NotShipped": "order"},
    "PlacementResult": {"Placed": "error", "NotPlaced": "order"},
}
_HEADER_REFERENCE = re.compile('"#/components/headers/([^"]+)"')
_REFERENCE = re.compile('"#/components/schemas/([^"]+)"')
# Fields of answers that are not declared as required, and may be absent.
_MAY_BE_ABSENT = {"Order": {name_in_api(each.name) for each in orders.columns if each.nullable}}


def operation(  # noqa: PLR0913 - the facts of an operation, each by its name
    *,
    refusals: Iterable[str] = (),
    headers: Iterable[str] = (),
    parameters: Iterable[str] = (),
    has_etag: bool = False,
    deprecated_at: int | None = None,
    stability: str | None = None,
    scope: str | None = None,
) -> Callable[[View], View]:
    """Document a view, beyond its name, docstring, body and success.

    `refusals` are codes; `headers` of its success and `parameters` are names in the tables above;
    operations with an ETag have 304; `deprecated_at` is a Unix time, which `api` announces;
    `stability` is None if nothing changes within the version; `scope` is what it takes, if not read
    for GET and write for all else.
    """
    facts = {
        _REFUSALS: [
            *([] if scope == ANY else ["insufficient_scope"]),
            *refusals,
            *_ALWAYS_POSSIBLE,
        ],
        _HEADERS: [*headers],
        _PARAMETERS: [*parameters],
        _HAS_ETAG: has_etag,
        _SCOPE: scope,
        **({"deprecated": True} if deprecated_at else {}),
        **({"x-stability": stability} if stability else {}),
    }

    def decorate(view: View) -> View:
        vars(view)["deprecated_at"], vars(view)["scope"] = deprecated_at, scope
        return documented(view, Blueprint.doc(operationId=name_in_api(view.__name__), **facts))

    return decorate


def documented(view: View, decorator: Callable[[View], Any]) -> View:
    """Return a view with what a decorator of flask-smorest documents, but not wrapped by it."""
    vars(view)["_apidoc"] = vars(decorator(view))["_apidoc"]
    return view


def complete(spec: dict[str, Any], version: int, settings: Settings) -> dict[str, Any]:
    """Make flask-smorest's document the interface description of a version."""
    prefix = f"/v{version}"
    paths = {path.removeprefix(prefix): item for path, item in spec["paths"].items()}
    operations = [
        each for item in paths.values() for each in item.values() if isinstance(each, dict)
    ]
    codes = _OF_NO_OPERATION.union(
        *(_complete_operation(each, version, settings) for each in operations)
    )
    # Without flask-smorest's own tag, the name of the version, which no operation has.
    tags = dict.fromkeys(chain.from_iterable(each["tags"] for each in operations))
    error = spec["components"]["schemas"]["Error"]["properties"]
    error["code"]["enum"] = [each for each in CODES if each in codes]
    document = {
        "openapi": spec["openapi"],
        "info": spec["info"],
        "servers": _servers(settings, version),
        "security": [{"bearer": []}],
        "tags": [{"name": name} for name in tags],
        "paths": paths,
        "components": {
            **spec["components"],
            "securitySchemes": {"bearer": _BEARER},
            "headers": _headers_of(paths, version),
        },
    }
    if version > 1:
        order = {"$ref": "#/components/schemas/Order"}
        document["webhooks"] = webhooks.webhooks(order, OrderSchema.example)
        _complete_version_2(document)
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
    return {**COMMON_HEADERS, **OTHER_HEADERS, **location}


def _headers_of(paths: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the headers to which operations of a version refer."""
    referred = {*_HEADER_REFERENCE.findall(json.dumps(paths))}
    return {name: each for name, each in _headers(version).items() if name in referred}


def _complete_operation(
    described: dict[str, Any], version: int, settings: Settings
) -> Iterable[str]:
    """Complete an operation; return the codes with which it refuses."""
    own, parameters = described.pop(_HEADERS), described.pop(_PARAMETERS)
    etag = [*_WITH_ETAG] if described.pop(_HAS_ETAG) else []
    # Without flask-smorest's own response to a rejected body.
    responses = {
        status: {**described["responses"][status], "headers": _refer(own + etag)}
        for status in described["responses"]
        if status.startswith("2")
    }
    if etag:
        responses["304"] = {"description": "The client's copy is current.", "headers": _refer(etag)}
        parameters = [*parameters, "If-None-Match"]
    if not described[_SCOPE]:
        del described[_SCOPE]
    refusals = described.pop(_REFUSALS)
    if version > 1:
        refusals = dict.fromkeys([*refusals, "validation_failed"])
    for code in refusals:
        _add_refusal(responses, code, version, own if described.get("deprecated") else [])
    for response in responses.values():
        response["headers"].update(_refer(COMMON_HEADERS))
    described["responses"] = responses
    body = described.get("requestBody", {}).get("content", {})
    if MERGE_PATCH in body:
        body["application/json"] = body[MERGE_PATCH]
    described["parameters"] = described.get("parameters", []) + [
        REQUEST_HEADERS[each] for each in parameters
    ]
    if described.get("deprecated"):
        described["x-deprecated-sunset"] = settings.pets_sunset.isoformat()
    return list(refusals)


def _add_refusal(responses: dict[str, Any], code: str, version: int, headers: list[str]) -> None:
    answer = EXAMPLES[code]
    response = responses.setdefault(str(answer.status), _no_refusals())
    response["description"] += f", `{code}`" if response["description"] else f"`{code}`"
    response["content"]["application/json"]["examples"][code] = {
        "value": json.loads(error_body(answer, version))
    }
    own = [name for name, _ in answer.headers if version > 1 or name not in _NOT_IN_VERSION_1]
    response["headers"].update(_refer([*own, *headers]))
    if answer.order:
        # Without the other codes of this status.
        every = _headers(version)
        optional = {each: every[each] | {"required": False} for each in ("Location", *_WITH_ETAG)}
        response["headers"].update(optional)


def _no_refusals() -> dict[str, Any]:
    error = {"schema": {"$ref": "#/components/schemas/Error"}, "examples": {}}
    return {"description": "", "headers": {}, "content": {"application/json": error}}


def _refer(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _complete_version_2(document: dict[str, Any]) -> None:
    """Complete the document of version 2."""
    document["info"]["description"] = _INFO
    for tag in document["tags"]:
        tag["description"] = _TAGS[tag["name"]]
    for item in document["paths"].values():
        for each in item.values():
            if isinstance(each, dict):
                each["description"] = _OPERATIONS[each["operationId"]] + _SCOPES[each.get(_SCOPE)]
                if streamed := _STREAMS.get(each["operationId"]):
                    each["responses"]["200"]["content"].update(streamed)
    schemas = document["components"]["schemas"]
    _complete_schemas(schemas)
    for name in schemas.keys() - _schemas_of_requests(document):
        for schema in [*_enums(schemas[name])]:
            _open(schema)
    for schema in _enums([document["paths"], schemas]):
        schema["description"] = f"{schema.get('description', '')} Others may be added.".lstrip()
    for schema in _enums(document):
        schema["x-enum-varnames"] = [_variable(value) for value in schema["enum"]]


def _complete_schemas(schemas: dict[str, Any]) -> None:
    for name, absent in _MAY_BE_ABSENT.items():
        always = [each for each in schemas[name]["properties"] if each not in absent]
        schemas[name]["required"] = always
    for name, alternatives in _ONE_OF.items():
        whole = schemas[name]
        for alternative, lacking in alternatives.items():
            fields = {each: of for each, of in whole["properties"].items() if each != lacking}
            schemas[alternative] = {**whole, "properties": fields, "required": [*fields]}
        references = [{"$ref": f"#/components/schemas/{each}"} for each in alternatives]
        schemas[name] = {"oneOf": references}
    for each in schemas.values():
        _say_defaults_in_words(each)


def _say_defaults_in_words(schema: dict[str, Any]) -> None:
    # Generators take a field with a default for one that is always there, in requests, too.
    for field in schema.get("properties", {}).values():
        if "default" in field:
            field["description"] = f"{field['description']} {field.pop('default')} unless given."


def _schemas_of_requests(document: dict[str, Any]) -> set[str]:
    """Return the names of the schemas of requests, and of those that they refer to."""
    operations = chain.from_iterable(item.values() for item in document["paths"].values())
    waiting = [each.get("requestBody") for each in operations if isinstance(each, dict)]
    names: set[str] = set()
    while waiting:
        found = {*_REFERENCE.findall(json.dumps(waiting.pop()))} - names
        names.update(found)
        waiting += [document["components"]["schemas"][each] for each in found]
    return names


def _open(schema: dict[str, Any]) -> None:
    """Name an enum's values in words: generated readers reject any other, which may be added."""
    values = schema["x-extensible-enum"] = schema.pop("enum")
    known = f"One of {', '.join(values)}; others may be added."
    schema["description"] = f"{schema.get('description', '')} {known}".lstrip()
    schema["type"] = "string"


def _enums(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if isinstance(part.get("enum"), list):
            yield part
        part = [*part.values()]
    if isinstance(part, list):
        for each in part:
            yield from _enums(each)


def _variable(value: str) -> str:
    words = re.sub(r"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])", "_", value.removeprefix("-")).upper()
    return f"{words}_DESCENDING" if value.startswith("-") else words
