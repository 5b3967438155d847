"""The errors that are not rules of the shop, and how every error is answered.

Exceptions carry facts. Only here do they get a status, a code and a message for the client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from werkzeug import exceptions as http

from orders import apikeys, domain, key_service
from orders.feed import TooManyFollowers
from orders.server import MAX_HEAD_BYTES, MAX_HEADERS
from orders.store.apikeys import InGrace, KeyNotFound
from orders.store.database.errors import OutcomeUnknown, StoreUnavailable
from orders.strictjson import to_json
from orders.webhooks.endpoints import EndpointNotFound, EventNotFound, TooManyEndpoints
from orders.webhooks.service import UnfitURL
from schemas.fields import Fault
from schemas.v1 import EXAMPLE_ID

Headers = tuple[tuple[str, str], ...]
Faults = tuple[tuple[str, str, str], ...]

_FAULTS_SHOWN = 10
_FAULTS_LISTED = 100
_WITH_FAULTS = frozenset({400, 422})
_NAME_SHOWN = 64
# A name that could be taken for a part of the message is quoted.
_PLAIN_NAME = re.compile(r"[\w.$@\[\]-]+")
_REALM = 'Bearer realm="store-orders"'
_WAIT = "Wait {0.retry_after} s before the next request, as Retry-After says."
_RETRY_AFTER = (("Retry-After", "{0.retry_after}"),)


class Answer(NamedTuple):
    """The response to an error; `headers` are beside those of every response.

    `faults` are fields or parameters, the fault of each, and its code. `order` is the id and the
    revision of an order whose address and ETag are headers, too.
    """

    status: int
    code: str
    message: str
    headers: Headers = ()
    faults: Faults = ()
    order: tuple[int, int] | None = None


class WebRefusal(Exception):
    """The request is rejected before any rule of the shop applies.

    The message and the headers' values are formatted with the exception, for its facts.
    """

    status: int
    code: str
    message: str
    headers: Headers = ()

    def answer(self) -> Answer:
        headers = tuple((name, value.format(self)) for name, value in self.headers)
        return Answer(self.status, self.code, self.message.format(self), headers)


class MissingKey(WebRefusal):
    """There is no `Authorization: Bearer …`."""

    status, code = 401, "missing_api_key"
    message = "Send your API key in the header 'Authorization: Bearer <API_KEY>'."
    headers = (("WWW-Authenticate", _REALM),)


class InvalidKey(WebRefusal):
    """The key is unknown, revoked or expired: one answer for all, so that nobody learns which."""

    status, code = 401, "invalid_api_key"
    message = "This API key is not valid. Ask the shop for a new one."
    headers = (("WWW-Authenticate", f'{_REALM}, error="invalid_token"'),)


@dataclass
class InsufficientScope(WebRefusal):
    """The key lacks the required scope."""

    scope: str
    status, code = 403, "insufficient_scope"
    message = "This API key may not do this. Use a key with the scope '{0.scope}'."
    headers = (("WWW-Authenticate", f'{_REALM}, error="insufficient_scope"'),)


@dataclass
class RateLimited(WebRefusal):
    """A window of the plan is exhausted. `retry_after` is in seconds."""

    retry_after: int
    status, code = 429, "rate_limit_exceeded"
    message, headers = _WAIT, _RETRY_AFTER


@dataclass
class KeyBanned(WebRefusal):
    """The key kept sending requests after 429s. `retry_after` is in seconds."""

    retry_after: int
    status, code = 429, "api_key_banned"
    message = f"This key is banned: it kept sending requests after a 429. {_WAIT}"
    headers = _RETRY_AFTER


@dataclass
class MalformedRequest(WebRefusal):
    """The body is not valid JSON, or a header can't be read."""

    what: str
    status, code, message = 400, "malformed_request", "{0.what}"


@dataclass
class UnsupportedMediaType(WebRefusal):
    """The body is not declared as JSON in UTF-8. The headers say what is supported."""

    what: str
    headers: Headers
    status, code, message = 415, "unsupported_media_type", "{0.what}"


class UnknownHost(WebRefusal):
    """/metrics was requested under a host name that is not known to be this service's."""

    status, code = 404, "not_found"
    message = (
        "Request /metrics by an address, localhost, or the host of ORDERS_HOST or ORDERS_BASE_URL."
    )


@dataclass
class PayloadTooLarge(WebRefusal):
    """The body is longer than `limit`, in bytes."""

    limit: int = 64 * 1024
    status, code = 413, "payload_too_large"
    message = "The body may be at most {0.limit:,} bytes long."


@dataclass
class ValidationFailed(WebRefusal):
    """Fields or parameters are not valid: a message for each."""

    faults: dict[str, str]
    status, code, message = 422, "validation_failed", "{0}"

    def __str__(self) -> str:
        """Return the first faults, each after its name."""
        shown = [
            f"{_shown(name[:_NAME_SHOWN])}: {fault}"
            for name, fault in list(self.faults.items())[:_FAULTS_SHOWN]
        ]
        more = len(self.faults) - _FAULTS_SHOWN
        return "; ".join(shown) + (f"; and {more} more" if more > 0 else "") + "."

    def answer(self) -> Answer:
        listed = islice(self.faults.items(), _FAULTS_LISTED)
        faults = ((name[:_NAME_SHOWN], fault, Fault.of(fault).code) for name, fault in listed)
        return super().answer()._replace(faults=tuple(faults))


@dataclass
class ServerBusy(WebRefusal):
    """As much of this is under way as may be at a time. `retry_after` is in seconds."""

    what: str = "Too many long lists are being sent"
    retry_after: int = 1
    status, code = 503, "server_busy"
    message, headers = "{0.what}. Try again in a moment.", _RETRY_AFTER


class BackupsOff(WebRefusal):
    """The service makes no backups."""

    status, code = 409, "backups_off"
    message = "This service makes no automatic backups."


class BackupNotFound(WebRefusal):
    """There is no such backup, or no longer."""

    status, code = 404, "backup_not_found"
    message = "There is no such backup. It may have been removed, as there are later ones."


@dataclass
class RangeNotSatisfiable(WebRefusal):
    """The requested part lies past the end of the file."""

    size: int
    status, code = 416, "range_not_satisfiable"
    message = "The file has {0.size} bytes. Ask for a Range within them, or for the whole file."
    headers = (("Content-Range", "bytes */{0.size}"),)


@dataclass
class BackupFailed(WebRefusal):
    """No backup could be made."""

    why: str
    status, code = 503, "backup_failed"
    message = "No backup could be made: {0.why}."
    headers = (("Retry-After", "60"),)


@dataclass
class InternalError(WebRefusal):
    """Something failed here. The log has the details, under the request's id."""

    request_id: str
    status, code = 500, "internal_error"
    message = "Something went wrong here. Report it with the request id {0.request_id}."


def _shown(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _not_allowed(error: http.MethodNotAllowed) -> Answer:
    methods = ", ".join(sorted(error.valid_methods or ()))
    message = f"This path supports only {methods}."
    return Answer(405, "method_not_allowed", message, (("Allow", methods),))


def _precondition_failed(error: domain.PreconditionFailed) -> Answer:
    of_list = (
        "The list does not meet If-Match or If-None-Match (its ETag is weak, so If-Match can only "
        "be *)."
    )
    of_order = f"Order {error.order_id} does not meet If-Match or If-None-Match."
    message = f"{of_order if error.order_id else of_list} Read it again before you retry."
    return Answer(412, "precondition_failed", message)


def _unavailable(what: str) -> Answer:
    message = f"The store is unavailable: {what}"
    return Answer(503, "store_unavailable", message, (("Retry-After", "5"),))


# How exceptions from elsewhere are answered, by their class or the nearest of its bases.
_OTHERS: dict[type[Exception], Callable[[Any], Answer]] = {
    http.BadRequest: lambda _: Answer(400, "malformed_request", "The request can't be read."),
    http.NotFound: lambda _: Answer(
        404, "not_found", "There is nothing at this path. Check it against the API's documentation."
    ),
    http.MethodNotAllowed: _not_allowed,
    domain.OrderNotFound: lambda _: Answer(404, "order_not_found", "There is no such order."),
    KeyNotFound: lambda _: Answer(404, "key_not_found", "There is no such key."),
    EndpointNotFound: lambda _: Answer(404, "webhook_not_found", "There is no such webhook."),
    EventNotFound: lambda _: Answer(404, "event_not_found", "There is no such event."),
    domain.PetNotFound: lambda _: Answer(404, "pet_not_found", "There is no such pet."),
    domain.OrderAlreadyShipped: lambda e: Answer(
        409,
        "order_already_shipped",
        f"Order {e.order_id} has shipped. It can't be changed, cancelled or shipped again.",
    ),
    domain.OrderAlreadyCancelled: lambda e: Answer(
        409,
        "order_already_cancelled",
        f"Order {e.order_id} was cancelled. It can't be changed, shipped or cancelled again.",
    ),
    key_service.Unfit: lambda e: ValidationFailed({e.field: Fault(e.fault, e.code)}).answer(),
    key_service.KeyIsOver: lambda _: Answer(
        409, "key_is_over", "The key is revoked or expired. Issue a new one."
    ),
    key_service.NotBanned: lambda _: Answer(409, "key_not_banned", "The key is not banned."),
    key_service.LastAdminKey: lambda _: Answer(
        409,
        "last_admin_key",
        "This is the only valid key with the scope admin. Issue another first, or rotate it with a "
        "grace period.",
    ),
    UnfitURL: lambda e: ValidationFailed({"url": Fault(str(e), "format")}).answer(),
    TooManyEndpoints: lambda e: Answer(409, "too_many_webhooks", e.message),
    InGrace: lambda e: Answer(
        409,
        "rotation_in_grace",
        f"The previous secret works until {domain.format_instant(e.until)}. Rotate again then.",
    ),
    domain.ReferenceExists: lambda e: Answer(
        409,
        "reference_exists",
        f"Order {e.order_id} already has this reference. Use that order, or another reference.",
        order=(e.order_id, e.revision),
    ),
    domain.PreconditionFailed: _precondition_failed,
    domain.OrderNotShipped: lambda e: ValidationFailed(
        {"tracking": Fault(f"can be set once order {e.order_id} has shipped", "status")}
    ).answer(),
    domain.IdempotencyKeyReused: lambda _: Answer(
        422,
        "idempotency_key_reused",
        "This Idempotency-Key was used before, for a different request. "
        "Use a new value for each new request.",
        faults=(("Idempotency-Key", "was used for a different request", "duplicate"),),
    ),
    TooManyFollowers: lambda e: Answer(
        503,
        "server_busy",
        f"Too many requests of {e} wait for events. Close one, or try again in a moment.",
        (("Retry-After", "5"),),
    ),
    StoreUnavailable: lambda e: _unavailable(f"{e}. Try again in a few seconds."),
    OutcomeUnknown: lambda e: _unavailable(
        f"{e}. Whether the change was made is not known. Send it again with the same "
        "Idempotency-Key, or read it back before you repeat it."
    ),
}


def answer_to(error: Exception) -> Answer | None:
    """Return how an exception is answered; None if it is unexpected."""
    if isinstance(error, WebRefusal):
        return error.answer()
    make = next((_OTHERS[kind] for kind in type(error).__mro__ if kind in _OTHERS), None)
    return make and make(error)


_AT = datetime(2026, 12, 1, 8, tzinfo=UTC)
# An error of each code, for the documentation.
_SAMPLES: tuple[Exception, ...] = (
    MalformedRequest(
        "The body can't be read: it is not JSON: Expecting value at line 1, column 11."
    ),
    MissingKey(),
    InvalidKey(),
    InsufficientScope("write"),
    domain.OrderNotFound(EXAMPLE_ID),
    domain.PetNotFound(7),
    EndpointNotFound(5),
    EventNotFound(88),
    KeyNotFound(7),
    http.NotFound(),
    http.MethodNotAllowed(["GET", "HEAD"]),
    domain.OrderAlreadyShipped(EXAMPLE_ID),
    domain.OrderAlreadyCancelled(EXAMPLE_ID),
    domain.ReferenceExists(EXAMPLE_ID, 42),
    key_service.LastAdminKey(),
    key_service.KeyIsOver(),
    key_service.NotBanned(),
    InGrace("key 7", _AT),
    TooManyEndpoints(),
    BackupsOff(),
    BackupNotFound(),
    RangeNotSatisfiable(1_204_224),
    BackupFailed("there is no room"),
    domain.PreconditionFailed(EXAMPLE_ID),
    PayloadTooLarge(),
    UnsupportedMediaType(
        "Send the body with 'Content-Type: application/json'.",
        (("Accept", ""), ("Accept-Patch", ""), ("Accept-Encoding", "")),
    ),
    ValidationFailed({"petId": Fault("is required", "required")}),
    domain.IdempotencyKeyReused(),
    RateLimited(18),
    KeyBanned(300),
    StoreUnavailable("the disk is full"),
    ServerBusy(),
    InternalError("8f3a0c1d5e7b9246"),  # pragma: allowlist secret
)
EXAMPLES = {each.code: each for each in map(answer_to, _SAMPLES) if each}

# Sent by the server itself, before there is a request: by status. It adds the cause of a 400.
SERVER_ANSWERS = {
    each.status: each
    for each in (
        Answer(400, "malformed_request", "The request is not valid HTTP"),
        Answer(
            408, "request_timeout", "The request took too long to arrive. Send it again, whole."
        ),
        PayloadTooLarge().answer(),
        Answer(
            431,
            "headers_too_large",
            f"There may be at most {MAX_HEADERS} headers, of {MAX_HEAD_BYTES:,} bytes in all.",
        ),
        Answer(
            501,
            "not_implemented",
            "This Transfer-Encoding is not supported: send the body as it is, or chunked.",
        ),
        _unavailable("too many requests wait for it. Try again in a few seconds."),
    )
}
CODES = tuple(dict.fromkeys([*EXAMPLES, *(each.code for each in SERVER_ANSWERS.values())]))


# Clients that are refused mostly repeat the request, and making a body is 4 % of an answer.
@lru_cache(maxsize=64)
def error_body(answer: Answer, version: int = 1) -> bytes:
    """Return the one shape of every response of 400 and above, as JSON, with no key in it.

    From version 2 on, 400 and 422 have the faults one by one.
    """
    message = _clean(answer.message)
    body = {"code": answer.code, "message": message, "status": answer.status}
    if version <= 1 or answer.status not in _WITH_FAULTS:
        return to_json(body).encode()
    errors = [
        {"field": _clean(field), "code": code, "message": _clean(fault)}
        for field, fault, code in answer.faults
    ]
    return to_json({**body, "errors": errors or [{"code": "format", "message": message}]}).encode()


def _clean(text: str) -> str:
    # Half a surrogate pair, which a name in JSON may have, is no text to many parsers.
    return apikeys.redact(text).encode(errors="replace").decode()


def body_of(refusal: domain.Refusal) -> bytes:
    """Return the body that answers a rule of the shop, which may be a part of another."""
    return error_body(_OTHERS[type(refusal)](refusal))
