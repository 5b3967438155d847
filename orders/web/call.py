"""The request being answered, from its first hook to its line in the log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from flask import g

if TYPE_CHECKING:
    from orders.web.access.auth import Caller
    from orders.web.access.limits import Verdict


@dataclass(slots=True)
class Call:
    """One request. `began` is in monotonic seconds; `path` is decoded, as WSGI writes it.

    `waited` is for how many seconds its last byte had been received before that.

    `judged_at` is the wall time of the verdict, 0 without one. `headers` are sent with any response
    to it. `endpoint` is Flask's name of the route, None where there is none; `refusal` is the error
    code of a response of 400 and above.
    """

    request_id: str
    began: float
    is_api: bool
    address: str
    method: str
    path: str
    caller: Caller | None = None
    verdict: Verdict | None = None
    judged_at: float = 0.0
    waited: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    endpoint: str | None = None
    refusal: str | None = None

    @property
    def key_name(self) -> str | None:
        """The name of the request's key in the log and in events; None without a valid key."""
        key = self.caller.key if self.caller else None
        return f"key:{key.id}" if key else None


# What the server adds to a request's WSGI environment: when its last byte arrived, in monotonic
# seconds; and whether there was no place for a long answer.
WHOLE_AT = "orders.whole_at"
BUSY = "orders.busy"

# Called when an answer has been sent, with its status and the monotonic time.
NoteAnswer = Callable[[Call, int, float], None]


def current_call() -> Call:
    """Return the call of the request being answered."""
    call: Call = g.call
    return call


_ABSOLUTE_FORM = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_API_PATH = re.compile(r"/+v[12](/|$)")


# Each request needs its path several times, and decoding a long one takes milliseconds.
@lru_cache(maxsize=64)
def path_of_target(target: str) -> str:
    """Return the decoded path of a request target (RFC 9112, section 3.2), as WSGI writes paths.

    Both forms are read, `/…` and `http://host/…`. Slashes stay as they are, doubled ones too, and
    an encoded slash stays encoded: it is no separator (RFC 3986, section 2.2).
    """
    absolute = _ABSOLUTE_FORM.match(target)
    path = target[absolute.end() :] if absolute else target
    path = path.partition("#")[0].partition("?")[0] or "/"
    if "%" not in path:
        return path
    encoded_slash_kept = re.sub("%2f", "%252F", path, flags=re.IGNORECASE)
    return unquote_to_bytes(encoded_slash_kept.encode("latin-1")).decode("latin-1")


def is_api_path(path: str) -> bool:
    """Return whether a path belongs to the API: `/v1` or `/v2`, or below; leading slashes fold."""
    return _API_PATH.match(path) is not None
