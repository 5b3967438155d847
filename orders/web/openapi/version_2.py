"""What only version 2's document has: prose, and what generators of clients ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_INFO = """\
The orders of a pet store: place, find, change, ship and cancel them, and follow what happens to
them.

**Keys.** Every request carries an API key of the shop's: `Authorization: Bearer <API_KEY>`. A key
may read (GET, HEAD, OPTIONS) or also write; it must not be in a web page.

**Limits.** A key has as many requests a minute and a day as its plan allows, over all operations
of all versions. `X-RateLimit-*` and `RateLimit` say what is left. A request over the limit is 429:
wait as many seconds as `Retry-After` says, and back off; a client that goes on regardless is
banned for some minutes.

**Pages.** Lists come in pages of at most 200. Send the `next` of a page as `after`, with the same
other parameters: of orders until there is no `next`; of events while `more` is true, and then
again every few seconds. Nothing is missed and nothing seen twice, however much changes meanwhile.

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
_TAGS = {
    "orders": "Place, find, change, ship and cancel orders.",
    "events": "What happened to orders, to follow or to look up.",
    "reports": "Figures of the store and of the key.",
}
_OPERATIONS = {
    "listOrders": "An order matches if it meets all filters. An order that stays as it is, is "
    "seen exactly once, however many are placed or cancelled between the pages.",
    "placeOrder": "The order is pending, and numbered by the store.",
    "getOrder": "Cancelled orders are shown, too.",
    "changeOrder": "A JSON Merge Patch (RFC 7396): fields that are named change, null removes "
    "one, and others stay. Once an order has shipped or was cancelled, only its "
    "note can change. A patch that changes nothing is 200, without an event.",
    "cancelOrder": "Only a pending order can be cancelled, and cancelling can't be undone.",
    "shipOrder": "Only a pending order can be shipped, and shipping can't be undone.",
    "shipOrders": "The answer has a result for each order, in the order asked: the order as "
    "shipped, or why it was not. It counts as one request.",
    "listOrderEvents": "The oldest first, each with the order as it stood afterwards.",
    "listEvents": "The oldest first, in the order of commit. A client that keeps `next` and "
    "goes on from it misses none and sees none twice.",
    "getStats": "Orders by status, and what happened on each of the last days. An order "
    "counts as placed on the day of placedAt, as shipped on that of shipDate, and "
    "as cancelled on the day it was.",
    "getUsage": "The request itself is counted.",
}
# Of the fields of answers that are not declared as required, those that may be absent.
_MAY_BE_ABSENT = {"Order": {"shipDate", "reference", "note"}}


def complete(document: dict[str, Any]) -> None:
    """Complete the document of version 2."""
    document["info"]["description"] = _INFO
    for tag in document["tags"]:
        tag["description"] = _TAGS[tag["name"]]
    for item in document["paths"].values():
        for each in item.values():
            if isinstance(each, dict):
                each["description"] = _OPERATIONS[each["operationId"]]
    _complete_schemas(document["components"]["schemas"])
    for schema in _enums(document):
        schema["x-enum-varnames"] = [_variable(value) for value in schema["enum"]]


def _complete_schemas(schemas: dict[str, Any]) -> None:
    for name, absent in _MAY_BE_ABSENT.items():
        always = [each for each in schemas[name]["properties"] if each not in absent]
        schemas[name]["required"] = always
    for each in schemas.values():
        _say_defaults_in_words(each)


def _say_defaults_in_words(schema: dict[str, Any]) -> None:
    # Generators take a field with a default for one that is always there, in requests, too.
    for field in schema.get("properties", {}).values():
        if "default" in field:
            field["description"] = f"{field['description']} {field.pop('default')} unless given."


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
