"""The errors that are not rules of the shop, and the one table with each error's code.

Exceptions carry facts. Only here do they get a status, a code and a message for the client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from werkzeug import exceptions as http

from orders import apikeys, domain
from orders.store.database.errors import OutcomeUnknown, StoreUnavailable
from orders.strictjson import to_json


class WebRefusal(Exception):
    """The request is rejected before any rule of the shop applies."""


@dataclass
class MissingKey(WebRefusal):
    """There is no `Authorization: Bearer …`."""


@dataclass
class InvalidKey(WebRefusal):
    """The key is unknown, revoked or expired: one answer for all, so that nobody learns which."""


@dataclass
class InsufficientScope(WebRefusal):
    """A read key tries to write."""


@dataclass
class RateLimited(WebRefusal):
    """A window of the plan is exhausted. `retry_after` is in seconds."""

    retry_after: int


@dataclass
class KeyBanned(WebRefusal):
    """The key kept sending requests after 429s. `retry_after` is in seconds."""

    retry_after: int


@dataclass
class MalformedRequest(WebRefusal):
    """The body is not valid JSON, or a header can't be read."""

    what: str


@dataclass
class UnsupportedMediaType(WebRefusal):
    """The body is not declared as JSON in UTF-8. `supported` is the header that says what is."""

    what: str
    supported: dict[str, str]


@dataclass
class UnknownHost(WebRefusal):
    """/metrics was asked for under a name that may be anybody's."""


@dataclass
class PayloadTooLarge(WebRefusal):
    """The body is too long. `limit` is in bytes."""

    limit: int


@dataclass
class ValidationFailed(WebRefusal):
    """Fields or parameters are not valid: a message for each."""

    faults: dict[str, str]


@dataclass
class ServerBusy(WebRefusal):
    """Too many long answers are being made or sent."""


@dataclass
class InternalError(WebRefusal):
    """Something failed here. The log has the rest, under the request's id."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """How a kind of exception is answered: `words` and `headers` are made of its facts."""

    status: int
    code: str
    words: Callable[[Any], str]
    headers: Callable[[Any], dict[str, str]] = lambda _: {}


_REALM = 'Bearer realm="store-orders"'
_TOO_MANY = "Wait {0.retry_after} s before the next request, as Retry-After says"


def _challenge(value: str) -> Callable[[Any], dict[str, str]]:
    return lambda _: {"WWW-Authenticate": value}


def _wait(error: RateLimited | KeyBanned) -> dict[str, str]:
    return {"Retry-After": str(error.retry_after)}


def _methods(error: http.MethodNotAllowed) -> str:
    return ", ".join(sorted(error.valid_methods or ()))


# By the exception's class or the nearest of its bases.
ANSWERS: dict[type[Exception], Answer] = {
    MalformedRequest: Answer(400, "malformed_request", lambda e: e.what),
    http.BadRequest: Answer(400, "malformed_request", lambda _: "The request can't be read."),
    MissingKey: Answer(
        401,
        "missing_api_key",
        lambda _: "Send your API key in the header 'Authorization: Bearer <API_KEY>'.",
        _challenge(_REALM),
    ),
    InvalidKey: Answer(
        401,
        "invalid_api_key",
        lambda _: "This API key is not valid. Ask the shop for a new one.",
        _challenge(f'{_REALM}, error="invalid_token"'),
    ),
    InsufficientScope: Answer(
        403,
        "insufficient_scope",
        lambda _: "This API key can only read. Use a key with the scope 'write'.",
        _challenge(f'{_REALM}, error="insufficient_scope"'),
    ),
    domain.OrderNotFound: Answer(404, "order_not_found", lambda _: "There is no such order."),
    domain.PetNotFound: Answer(404, "pet_not_found", lambda _: "There is no such pet."),
    http.NotFound: Answer(
        404,
        "not_found",
        lambda _: "There is nothing at this path. Check it against the API's documentation.",
    ),
    http.MethodNotAllowed: Answer(
        405,
        "method_not_allowed",
        lambda e: f"This path supports only {_methods(e)}.",
        lambda e: {"Allow": _methods(e)},
    ),
    domain.OrderAlreadyShipped: Answer(
        409,
        "order_already_shipped",
        lambda e: (
            f"Order {e.order_id} has shipped. It can't be changed, cancelled or shipped again."
        ),
    ),
    domain.OrderAlreadyCancelled: Answer(
        409,
        "order_already_cancelled",
        lambda e: (
            f"Order {e.order_id} was cancelled. It can't be changed, shipped or cancelled again."
        ),
    ),
    domain.PreconditionFailed: Answer(
        412,
        "precondition_failed",
        lambda e: (
            f"Order {e.order_id} is not as If-Match or If-None-Match requires. "
            "Get it again before you retry."
            if e.order_id
            else "The list is not as If-Match or If-None-Match requires: of a list, whose ETag is "
            "weak, If-Match holds only as *. Get it again before you retry."
        ),
    ),
    UnknownHost: Answer(
        404,
        "not_found",
        lambda _: (
            "Ask for /metrics by an address, localhost, or the host of ORDERS_HOST or "
            "ORDERS_BASE_URL."
        ),
    ),
    PayloadTooLarge: Answer(
        413, "payload_too_large", lambda e: f"The body may be at most {e.limit:,} bytes long."
    ),
    UnsupportedMediaType: Answer(
        415, "unsupported_media_type", lambda e: e.what, lambda e: e.supported
    ),
    ValidationFailed: Answer(422, "validation_failed", lambda e: _list_faults(e.faults)),
    domain.OrderNotShipped: Answer(
        422,
        "validation_failed",
        lambda e: f"tracking: can be set once order {e.order_id} has shipped.",
    ),
    domain.IdempotencyKeyReused: Answer(
        422,
        "idempotency_key_reused",
        lambda _: (
            "This Idempotency-Key was used before, for a different request. "
            "Use a new value for each new request."
        ),
    ),
    RateLimited: Answer(429, "rate_limit_exceeded", lambda e: _TOO_MANY.format(e) + ".", _wait),
    KeyBanned: Answer(
        429,
        "api_key_banned",
        lambda e: (
            f"This key is banned: it kept sending requests after a 429. {_TOO_MANY.format(e)}."
        ),
        _wait,
    ),
    StoreUnavailable: Answer(
        503,
        "store_unavailable",
        lambda e: f"The store is unavailable: {e}. Try again in a few seconds.",
        lambda _: {"Retry-After": "5"},
    ),
    OutcomeUnknown: Answer(
        503,
        "store_unavailable",
        lambda e: (
            f"The store is unavailable: {e}. Whether the change was made is not known. Send it "
            "again with the same Idempotency-Key, or read it back before you repeat it."
        ),
        lambda _: {"Retry-After": "5"},
    ),
    ServerBusy: Answer(
        503,
        "server_busy",
        lambda _: "Too many long lists are being sent. Try again in a moment.",
        lambda _: {"Retry-After": "1"},
    ),
    InternalError: Answer(
        500,
        "internal_error",
        lambda e: f"Something went wrong here. Report it with the request id {e.request_id}.",
    ),
}

# Sent by the server itself, before there is a request.
SERVER_ANSWERS = {
    400: "malformed_request",
    408: "request_timeout",
    413: "payload_too_large",
    431: "headers_too_large",
    500: "internal_error",
    501: "not_implemented",
    503: "store_unavailable",
}


CODES = tuple(
    dict.fromkeys([*(answer.code for answer in ANSWERS.values()), *SERVER_ANSWERS.values()])
)


def answer_to(error: Exception) -> Answer | None:
    """Return how an exception is answered; None if it is unexpected."""
    return next((ANSWERS[kind] for kind in type(error).__mro__ if kind in ANSWERS), None)


# Whoever is refused mostly sends the same again, and a body takes 4 % of an answer.
@lru_cache(maxsize=64)
def error_body(code: str, message: str, status: int) -> bytes:
    """Return the one shape of every response of 400 and above, as JSON, with no key in it."""
    # Half a surrogate pair, which a name in JSON may have, is no text to many parsers.
    message = apikeys.redact(message).encode(errors="replace").decode()
    return to_json({"code": code, "message": message, "status": status}).encode()


def body_of(refusal: domain.Refusal) -> bytes:
    """Return the body that answers a rule of the shop, which may be a part of another."""
    answer = ANSWERS[type(refusal)]
    return error_body(answer.code, answer.words(refusal), answer.status)


_FAULTS_SHOWN = 10
_NAME_SHOWN = 64


# A name that could be taken for a part of the message is quoted.
_PLAIN_NAME = re.compile(r"[\w.$@\[\]-]+")


def _shown(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _list_faults(faults: dict[str, str]) -> str:
    shown = [
        f"{_shown(name[:_NAME_SHOWN])}: {fault}"
        for name, fault in list(faults.items())[:_FAULTS_SHOWN]
    ]
    more = len(faults) - _FAULTS_SHOWN
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "") + "."
