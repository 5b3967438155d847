"""The parts that all versions of the API share: around each request, and the one error shape.

Each request is checked in this order, and answered at the first check that it fails: identify the
caller, rate-limit, authenticate, authorize, and refuse a path where there is nothing. (Flask has
looked up the route before: its scope is what is authorized.) Every API response has the headers of
its limits and its request id.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from datetime import time as dt_time
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, cast

import flask_smorest
from flask import Flask, Request, current_app, g, request
from flask.globals import request_ctx
from flask.sessions import NullSession, SessionInterface
from werkzeug import exceptions as http
from werkzeug.http import http_date
from werkzeug.routing import MapAdapter, UnicodeConverter

from orders.apikeys import is_well_formed
from orders.server import Rejection, Server, Work, path_of_target
from orders.settings import TEST_HEADER, Settings
from orders.shop import Shop, TestMode
from orders.store.database.errors import StoreUnavailable
from orders.web import access, bodies, live, replies
from orders.web.logs import AnswerLog
from orders.web.openapi import document
from orders.web.openapi.document import documented
from orders.web.refusals import (
    SERVER_ANSWERS,
    InternalError,
    PayloadTooLarge,
    answer_to,
    error_body,
)
from orders.web.replies import JSON, NO_CONTENT, Constant, Reply, json_reply, tag_of
from schemas.fields import DetailedErrorSchema, ErrorSchema, Instant, Int64, Upload, Whole

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

log = logging.getLogger(__name__)

# On every response without a header of its own by that name. Data is not a page: a browser must
# not run, frame, sniff or cache it. Others would protect nothing here: Strict-Transport-Security
# is for the server with TLS in front, Referrer-Policy for pages with links, X-Frame-Options repeats
# frame-ancestors, and Cross-Origin-* guard what a browser fetches with cookies.
PROTECTION = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_NOWHERE = "/ "
_OPENAPI = {1: "3.0.3", 2: "3.1.0"}
_ERROR_SCHEMAS = {1: ErrorSchema, 2: DetailedErrorSchema}


# Here Flask, flask-smorest and Werkzeug are not used as they come. An override that changes no
# behaviour has its saving beside it: how much longer a warm GET of one order takes without it (CPU
# time in the process, measured in turns). One that saves less than 3 % is removed.


class IdConverter(UnicodeConverter):
    """A path segment for an id. Any text matches: whatever is not an id is not found."""


class _NoSessions(SessionInterface):
    """Flask's sessions, of which there are none: each request has its key. Saves 4 to 5 %."""

    _null = NullSession()

    def open_session(self, app: Flask, request: Request) -> NullSession:
        return self._null


class _StrictRequest(Request):
    """A request whose method is as it was sent: case matters (RFC 9110, section 9.1)."""

    def __init__(self, environ: WSGIEnvironment, *args: Any, **kwargs: Any) -> None:
        super().__init__(environ, *args, **kwargs)
        self.method = environ["REQUEST_METHOD"]


class OrdersFlask(Flask):
    """Flask with strict paths and methods, and its own answer to OPTIONS."""

    session_interface = _NoSessions()
    request_class = _StrictRequest
    # The shop that it serves, and the one beside it, of test keys.
    shop: Shop
    test_mode: TestMode

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Set while it serves.
        self.server: Server | None = None
        self.answer_log = AnswerLog()
        # The paths whose views never block, so that the loop itself may answer.
        self.instant: set[str] = set()
        self.url_map.merge_slashes = False
        self.url_map.converters["id"] = IdConverter

    def wsgi_app(self, environ: Any, start_response: Any) -> Any:
        """Route by the request's target itself, whose slashes servers fold and decode."""
        path = path_of_target(environ.get("REQUEST_URI") or environ.get("PATH_INFO", "/"))
        # A target without a leading slash (`*`, or nonsense) is a path that does not exist.
        environ["PATH_INFO"] = path if path.startswith("/") else _NOWHERE + path
        return super().wsgi_app(environ, start_response)

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Bind the routes to a request's path: they are the same at every host. Saves 13 %."""
        if request is None:
            return None
        # Werkzeug would take `get` for GET; this is its own name for a method that no route has.
        method = request.method if request.method.isupper() else "--"
        # It would also fold leading slashes; a path that differs in slashes is another path.
        path = _NOWHERE if request.environ["PATH_INFO"].startswith("//") else request.path
        return self.url_map.bind("", path_info=path, default_method=method)

    def preprocess_request(self) -> None:
        """Admit the request, or raise why it is refused. Saves 3 % over Flask's list of hooks."""
        incoming = _plain(request)
        view = self.view_functions.get(incoming.endpoint or "")
        access.admit(self.shop, self.test_mode, incoming, view)

    def make_response(self, rv: Any) -> Any:
        """Return a view's reply as it is. Saves 50 %, with `Reply`."""
        return rv

    def process_response(self, response: Any) -> Any:
        """Complete the reply's headers. Saves 4 % over Flask's list of hooks."""
        return _finish(self, response)

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return every view and hook as it is: none is asynchronous. Saves 4 %."""
        return func

    def make_default_options_response(self) -> Any:
        """Answer OPTIONS with 204 and Allow."""
        adapter = request_ctx.url_adapter
        allowed = sorted(adapter.allowed_methods()) if adapter else []
        patches = [bodies.ACCEPT_PATCH] if "PATCH" in allowed else []
        return Reply(status=NO_CONTENT, headers=[("Allow", ", ".join(allowed)), *patches])


class ApiBlueprint(flask_smorest.Blueprint):
    """flask-smorest's Blueprint with strict, possibly optional bodies, and schemas' examples."""

    DEFAULT_LOCATION_CONTENT_TYPE_MAPPING: ClassVar = {
        **flask_smorest.Blueprint.DEFAULT_LOCATION_CONTENT_TYPE_MAPPING,
        "optional_json": "application/json",
        "merge_patch": bodies.MERGE_PATCH,
        "files": bodies.FORM,
    }

    def __init__(self, *args: Any, is_strict: bool = False, **kwargs: Any) -> None:
        """Accept the arguments of flask-smorest. If it is strict, unknown parameters are refused.

        An operation's own schema does so where it has parameters.
        """
        super().__init__(*args, **kwargs)
        self._is_strict = is_strict

    def route(self, rule: str, **options: Any) -> Any:
        register = super().route(rule, **options)

        def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
            takes_query = any(each["in"] == "query" for each in _documented_parameters(view))
            register(view if takes_query or not self._is_strict else _without_query(view))
            return view

        return decorate

    def arguments(self, schema: Any, **kwargs: Any) -> Any:
        """Accept a schema as flask-smorest does, made once, and document its example."""
        made = schema() if isinstance(schema, type) else schema
        document = super().arguments(made, **_with_example(made, kwargs))
        load = partial(bodies.load, made, kwargs.get("location", "json"))

        def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(view)
            def with_arguments(*earlier: Any, **of_path: Any) -> Any:
                return view(*earlier, load(_plain(request)), **of_path)

            return documented(with_arguments, document)

        return decorate

    def response(self, status_code: int, schema: Any = None, **kwargs: Any) -> Any:
        """Dump with a schema as flask-smorest does, made once, and document its example."""
        made = schema() if isinstance(schema, type) else schema
        document = super().response(status_code, made, **_with_example(made, kwargs))

        def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(view)
            def with_reply(*arguments: Any, **of_path: Any) -> Reply:
                answer = view(*arguments, **of_path)
                if isinstance(answer, Reply):
                    return answer
                return json_reply(made.dump(answer), status_code)

            return documented(with_reply, document)

        return decorate


def _documented_parameters(view: Callable[..., Any]) -> list[dict[str, Any]]:
    arguments = vars(view)["_apidoc"].get("arguments", {})
    return cast("list[dict[str, Any]]", arguments.get("parameters", []))


def _without_query(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return a view that refuses any parameter."""

    @wraps(view)
    def checked(*arguments: Any, **of_path: Any) -> Any:
        if query := request.environ["QUERY_STRING"]:
            bodies.refuse_parameters(query.encode("latin-1"))
        return view(*arguments, **of_path)

    return checked


def _with_example(schema: Any, options: dict[str, Any]) -> dict[str, Any]:
    return {"example": getattr(schema, "example", None), **options}


class Api(flask_smorest.Api):
    """flask-smorest's Api with this service's error shape. One class for every version."""

    DEFAULT_ERROR_RESPONSE_NAME = None

    def __init__(
        self, app: OrdersFlask, settings: Settings, version: int, *blueprints: ApiBlueprint
    ) -> None:
        """Add a version of the API to an application, and its document at /openapi/vN.json."""
        self.ERROR_SCHEMA = _ERROR_SCHEMAS[version]
        super().__init__(
            app,
            config_prefix=f"V{version}",
            spec_kwargs={
                "title": "Store Orders",
                "version": f"{version}.0.0",
                "openapi_version": _OPENAPI[version],
            },
        )
        # flask-smorest's commands would print the document before it is complete.
        app.cli.commands.pop("openapi", None)
        self.register_converter(IdConverter, lambda _: {"type": "integer", "format": "int64"})
        self.register_field(Whole, "integer", None)
        self.register_field(Int64, "integer", "int64")
        self.register_field(Instant, "string", "date-time")
        self.register_field(Upload, "string", "binary")
        for each in blueprints:
            self.register_blueprint(each)

        def document_as_json() -> bytes:
            completed = document.complete(self.spec.to_dict(), version, settings)
            return json.dumps(completed, indent=2).encode()

        path = f"/openapi/v{version}.json"
        view = Constant(document_as_json, JSON, {"Cache-Control": "no-cache"})
        app.add_url_rule(path, f"openapi_v{version}", view)
        app.instant.add(path)

    def _register_responses(self) -> None:
        # Without flask-smorest's own responses, one for each status: `document` has ours.
        self.spec.components.schema("Error", schema=self.ERROR_SCHEMA)

    def _register_pagination_header(self) -> None:
        """Register nothing: no operation refers to it."""

    def _register_error_handlers(self) -> None:
        self._app.register_error_handler(Exception, self.handle_http_exception)

    def handle_http_exception(self, error: Exception) -> Reply:
        return render(error)


def render(error: Exception) -> Reply:
    """Return the answer to an exception: its documented code, or 500 and a line in the log."""
    call: access.Call = g.call
    answer = answer_to(error)
    if answer is None:
        log.error("Request %s failed", call.request_id, exc_info=error)
        return render(InternalError(call.request_id))
    call.refusal = answer.code
    own = replies.existing(*answer.order, call.version) if answer.order else []
    return Reply(error_body(answer, call.version), answer.status, [*answer.headers, *own])


def _finish(app: OrdersFlask, reply: Reply) -> Reply:
    call: access.Call = g.call
    shop = call.shop
    # The deadline is for making the answer, not for sending it.
    shop.database.set_deadline(None)
    headers = reply.headers
    own = {name for name, _ in headers}
    headers += [each for each in PROTECTION.items() if each[0] not in own]
    if call.is_api:
        verdict = call.verdict or access.recalled_verdict(shop, None)
        headers += verdict.headers(call.judged_at or shop.clock.time())
        headers.append(("X-Request-Id", call.request_id))
        if call.is_test:
            headers.append(TEST_HEADER)
        if call.caller is not None and call.caller.key is not None:
            headers += _announcements(shop.settings)
    if call.refusal is not None:
        # The exception of a missing path refers to the request: only the collector would free both.
        request_ctx.request.routing_exception = None
    reply.end = partial(app.answer_log.record, call, reply.status)
    return reply


def _announcements(settings: Settings) -> list[tuple[str, str]]:
    """Return the headers that a deprecated route has on every answer, also on refusals."""
    incoming = request_ctx.request
    view = current_app.view_functions.get(incoming.endpoint or _endpoint_of_path(incoming))
    deprecated_at = getattr(view, "deprecated_at", None)
    if deprecated_at is None:
        return []
    sunset = datetime.combine(settings.pets_sunset, dt_time(), UTC)
    return [("Deprecation", f"@{deprecated_at}"), ("Sunset", http_date(sunset))]


def _endpoint_of_path(incoming: Request) -> str:
    """Return the endpoint that a path has for other methods than the request's; "" without one."""
    fault, adapter = incoming.routing_exception, request_ctx.url_adapter
    if not (isinstance(fault, http.MethodNotAllowed) and fault.valid_methods and adapter):
        return ""
    endpoint, _ = adapter.match(method=next(iter(fault.valid_methods)))
    return cast("str", endpoint)


def _plain(proxy: Any) -> Request:
    # The proxy looks the request up again at each use.
    plain: Request = proxy._get_current_object()  # noqa: SLF001 - documented for just this
    return plain


_LIST = ("/v1/store/orders", "GET")
# In a folder that may be on another disk, or on the network.
_BACKUPS = "/v2/backups"
_WAIT = re.compile(r"\bwait=")


class ServingPolicy:
    """Decides by a request's head how it is served, without waiting for anything."""

    probe = "/healthz"
    resting = "/v2/store/events"
    outages: tuple[type[Exception], ...] = (StoreUnavailable,)

    def __init__(self, app: OrdersFlask, on_turn: Callable[[], None]) -> None:
        """Take the application, and what is called while the loop runs."""
        self._app, self._shop = app, app.shop
        self.on_turn = on_turn
        settings = app.shop.settings
        # Each request asks another server, which may stand still.
        self._is_remote = settings.is_on_postgres or bool(settings.limits_url)

    def work(self, method: str, path: str, headers: dict[str, str]) -> Work:
        if not access.API_PATH.match(path):
            return Work.INSTANT if path in self._app.instant else Work.WAITING
        if path.startswith(_BACKUPS):
            return Work.WAITING
        try:
            if (path, method) == _LIST and self._is_long(headers):
                return Work.LONG
        except StoreUnavailable:
            return Work.WAITING  # the application will say so
        return Work.SHORT if method in access.READING and not self._is_remote else Work.WAITING

    def body_bytes(self, method: str, path: str, headers: dict[str, str]) -> int:
        """Return how much of a body to retain: more than usual only for a key that is valid.

        Such a one is looked up in the file itself, but not on another server, which takes time.
        """
        usual = PayloadTooLarge.limit
        if path != bodies.IMPORTS:
            return usual
        authorization = headers.get("AUTHORIZATION")
        token, shop = access.bearer_token(authorization), self._shop_of(authorization)
        if token is None or not is_well_formed(token):
            return usual
        try:
            is_usual = not (self._is_remote or self._may_be_valid(token, shop))
        except StoreUnavailable:
            return usual
        return usual if is_usual else bodies.LARGEST_IMPORT

    def _may_be_valid(self, token: str, shop: Shop | None) -> bool:
        if shop is not None:
            return shop.keyring.find(token) is not None
        # A test key's, whose store is opened by its first request.
        return self._shop.upkeep.has_beside(self._app.test_mode.settings)

    def may_rest(self, query: str, headers: dict[str, str]) -> bool:
        return live.STREAM in headers.get("ACCEPT", "") or _WAIT.search(query) is not None

    def wants_body(self, method: str, path: str, headers: dict[str, str]) -> bool:
        """Return whether a body matters: not where the head alone leads to 401, 413 or 415.

        A key is only looked at: looking it up could block.
        """
        if not access.API_PATH.match(path):
            return True
        token = access.bearer_token(headers.get("AUTHORIZATION"))
        is_key = token is not None and is_well_formed(token)
        return is_key and bodies.may_be_read(method, path, headers)

    def has_room_for_long(self) -> bool:
        return self._shop.database.long_reads.is_open

    def owner(self, address: str, authorization: str | None) -> str:
        return access.bearer_token(authorization) or access.network_of(address)

    def refusal(self, rejection: Rejection) -> tuple[list[tuple[str, str]], bytes]:
        shop, now = self._shop_of(rejection.authorization) or self._shop, time.monotonic()
        is_api = rejection.path is None or access.API_PATH.match(rejection.path) is not None
        is_test = is_api and access.is_of_test_mode(rejection.authorization)
        call = access.Call(shop, now, is_api, rejection.address, "-", "-", is_test)
        call.waited = now - rejection.whole_at
        headers, body = answer_to_rejection(rejection, call)
        if is_api:  # it counts nothing
            verdict = access.recalled_verdict(shop, rejection.authorization)
            headers += verdict.headers(shop.clock.time())
        if is_test:
            headers.append(TEST_HEADER)
        self._app.answer_log.record(call, rejection.status)
        return headers, body

    def _shop_of(self, authorization: str | None) -> Shop | None:
        is_test = access.is_of_test_mode(authorization)
        return self._app.test_mode.shop if is_test else self._shop

    def _is_long(self, headers: dict[str, str]) -> bool:
        shop = self._shop_of(headers.get("AUTHORIZATION"))
        if shop is None or not shop.list.is_long:
            return False
        # A client whose copy is current is answered 304, which is short.
        if_none_match = headers.get("IF_NONE_MATCH")
        return (
            if_none_match is None
            or self._is_remote
            or tag_of(shop.store_id, shop.list.now().revision) not in if_none_match
        )


def answer_to_rejection(
    rejection: Rejection, call: access.Call
) -> tuple[list[tuple[str, str]], bytes]:
    """Return the headers and the body of a refusal, without the rate limits'."""
    answer = SERVER_ANSWERS.get(rejection.status) or InternalError(call.request_id).answer()
    if answer.code == PayloadTooLarge.code:
        answer = PayloadTooLarge(bodies.longest(rejection.path or "")).answer()
    if rejection.cause:
        answer = answer._replace(message=f"{answer.message}: {rejection.cause}.")
    call.refusal = answer.code
    request_id = ("X-Request-Id", call.request_id)
    headers = [("Content-Type", JSON), request_id, *PROTECTION.items(), *answer.headers]
    return headers, error_body(answer)
