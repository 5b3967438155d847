"""The events as they come: a page that rests until there is one, and a stream of them.

Both are answers of the server that rest (`server.Resting`), and followers of the log
(`feed.Follower`): the feed's thread wakes them, and the server's loop asks for the next bytes.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from flask import request

from orders.apikeys import READ
from orders.feed import Batch, End, Types
from orders.server import REST
from orders.web.access import Call, authorize, bearer_token, judge
from orders.web.refusals import MissingKey, ValidationFailed
from orders.web.replies import JSON, Reply

STREAM = "text/event-stream"
HEARTBEAT_SECONDS = 15
LONGEST_SECONDS = 3_600
_MINUTE = 60
# Comments, and how many milliseconds a client waits before it comes back
# (https://html.spec.whatwg.org/#event-stream-interpretation). After a stop, not all at once.
_HEARTBEAT = b":\n\n"
_OPENING = b"retry: 1000\n\n"
_RETURN_MILLISECONDS = (500, 2_500)
_ID = "Last-Event-ID"
_MOST_DIGITS = 18
# A proxy that buffered a stream would deliver nothing: nginx heeds the second.
_STREAM_HEADERS = (("Cache-Control", "no-store"), ("X-Accel-Buffering", "no"))


def event_page(events: list[str], position: int, *, more: bool) -> bytes:
    flag = "true" if more else "false"
    return f'{{"events":[{",".join(events)}],"next":{position},"more":{flag}}}'.encode()


def position_of(after: int) -> int:
    """Return the id after which the client wants events: Last-Event-ID, if valid, or `after`."""
    sent = request.headers.get(_ID)
    if not sent:
        return after
    if not (sent.isascii() and sent.isdigit() and len(sent) <= _MOST_DIGITS):
        raise ValidationFailed({_ID: "must be the id of an event"})
    return int(sent)


def wants_stream() -> bool:
    """Return whether the client prefers a stream, and can be sent one: not with HTTP/1.0."""
    if REST not in request.environ or STREAM not in request.headers.get("Accept", ""):
        return False
    return request.accept_mimetypes.best_match([JSON, STREAM]) == STREAM


def stream(call: Call, after: int, types: Types) -> Reply:
    """Return the events after one as a stream of Server-Sent Events."""
    if request.method == "HEAD":
        return Reply((), headers=_STREAM_HEADERS, content_type=STREAM)
    return _RestingReply(_Stream(call, after, types), _STREAM_HEADERS, STREAM)


def rest(call: Call, after: int, types: Types, size: int, seconds: int) -> Reply | None:
    """Return a page of the events after one as soon as there is one, or after `seconds`.

    None where the client can't wait: it speaks HTTP/1.0, or wants the head alone.
    """
    if REST not in request.environ or request.method == "HEAD":
        return None
    return _RestingReply(_Page(call, after, types, size, seconds))


class _RestingReply(Reply):
    """A response whose body a follower makes."""

    def __init__(self, follower: _Follower, headers: Any = (), content_type: str = JSON) -> None:
        super().__init__((), headers=headers, content_type=content_type)
        self._follower = follower
        follower.feed.follow(follower)

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        self._follower.on_close, self.end = self.end, lambda: None
        environ[REST](self._follower)
        return super().__call__(environ, start_response)


class _Follower(ABC):
    """A follower of the log, and the bytes that it makes of the events."""

    def __init__(self, call: Call, after: int, types: Types, seconds: float) -> None:
        if call.caller is None:
            raise MissingKey
        key = authorize(call.caller, READ)
        call.rests = True
        self._shop, self._caller, self.feed = call.shop, call.caller, call.shop.feed
        self._token = bearer_token(request.headers["Authorization"]) or ""
        self.key_id, self.valid_until = key.id, key.valid_until()
        self.position, self.types = after, types
        self.due = call.shop.clock.monotonic() + seconds
        self._wake: Callable[[], None] = lambda: None
        # The end of the response.
        self.on_close: Callable[[], None] = lambda: None
        # Why it comes to an end, once it does; whether it has.
        self._why: End | None = None
        self.is_ended = False

    def begin(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        wake()

    def wake(self) -> None:
        self._wake()

    @abstractmethod
    def more(self) -> bytes:
        """Return the bytes to send now."""

    @abstractmethod
    def check(self, now: float) -> None:
        """Do what is due, such as a heartbeat."""

    def check_key(self, since: float) -> None:
        """End if the key is revoked or banned by now; it may have got another expiry."""
        found = self._shop.keyring.find(self._token, since)
        if found is None:
            has_expired = self.valid_until <= self._shop.clock.time()
            self.end(End.EXPIRED if has_expired else End.REVOKED)
            return
        self.valid_until = found.key.valid_until()
        if found.banned_for > 0:
            self.end(End.BANNED)

    def stop(self) -> None:
        """End: the service stops."""
        self._why = self._why or End.STOPPING

    def end(self, why: End) -> None:
        """End, with a reason for the client."""
        if self._why is None:
            self._why = why
            self.wake()

    def close(self) -> None:
        """Leave: the response has ended."""
        self.is_ended = True
        self.feed.leave(self)
        self.on_close()

    def _next(self) -> Batch | None:
        """Return the next events that are wanted; None where there are none now."""
        while batch := self.feed.after(self):
            self.position = batch.position
            if batch.events:
                return batch
        return None


class _Stream(_Follower):
    """A stream of events, at the client's pace."""

    def __init__(self, call: Call, after: int, types: Types) -> None:
        super().__init__(call, after, types, HEARTBEAT_SECONDS)
        self._comment = _OPENING
        now = call.shop.clock.monotonic()
        self._count_at, self._ends_at = now + _MINUTE, now + LONGEST_SECONDS

    def more(self) -> bytes:
        """Return the next events, a heartbeat, or why it ends."""
        comment, self._comment = self._comment, b""
        if self.types and comment == _HEARTBEAT:
            # A reader of a rare type comes back with it, past the events that it did not want.
            comment = f":\nid: {self.position}\n\n".encode()
        if self._why is not None:
            self.is_ended = True
            return comment + self._last_words(self._why)
        batch = self._next()
        if batch is None:
            return comment
        if self.feed.has_more(self.position):
            self.wake()
        return comment + batch.stream

    def check(self, now: float) -> None:
        """Send a heartbeat, count each minute as a request, and end after an hour."""
        self.due = now + HEARTBEAT_SECONDS
        self._comment = _HEARTBEAT
        if now >= self._ends_at:
            self.end(End.HOUR)
        elif now >= self._count_at:
            self._count_at += _MINUTE
            verdict = judge(self._shop, self._caller)
            if not verdict.admitted:
                self.end(End.BANNED if verdict.banned_for > 0 else End.LIMITED)
        self.wake()

    def _last_words(self, why: End) -> bytes:
        retry = random.randint(*_RETURN_MILLISECONDS)  # noqa: S311 # nosec - no secret
        first = f"retry: {retry}\n" if why is End.STOPPING else ""
        return f"{first}: end {why}\n\n".encode()


class _Page(_Follower):
    """A page of events that rests until there is one, or its time is over."""

    def __init__(self, call: Call, after: int, types: Types, size: int, seconds: int) -> None:
        super().__init__(call, after, types, seconds)
        self._size = size

    def more(self) -> bytes:
        """Return the whole page, once there is one."""
        batch = self._next()
        if batch is None and self._why is None:
            return b""
        self.is_ended = True
        if batch is None:
            return event_page([], self.position, more=False)
        events = [each.json for each in batch.events[: self._size]]
        position = batch.events[len(events) - 1].id
        more = len(batch.events) > self._size or self._next() is not None
        return event_page(events, position, more=more)

    def check(self, now: float) -> None:
        """End it, as its time is over: it does not say why."""
        self.end(End.HOUR)
