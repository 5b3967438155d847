"""The log: a line a request, and whatever else is worth telling. Text, or JSON objects.

No line holds a key or a query. The path is the client's text: what looks like a key in it is
hidden, and what is not printable is escaped, so that nobody writes lines of their own.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, TextIO
from urllib.parse import quote

from orders import keys

if TYPE_CHECKING:
    from orders.web.call import Call

# What is told of a request when its answer has gone out: itself, the status, the monotonic time.
Tell = Callable[["Call", int, float], None]

_LEVELS_SHOWN = {"WARNING": "warning: ", "ERROR": "error: ", "CRITICAL": "error: "}
# A path may have thousands of characters, and each may be shown as three.
_PATH_TOLD = 500
TOGETHER_SECONDS = 0.01
_HARMLESS = "/:@!$&'()*+,;=~"


class AccessLog:
    """The lines of requests. They go past `logging`, which costs more than some requests do.

    A line that comes shortly after another waits for the next: each write gives Python's lock away.
    `flush` writes what still waits.
    """

    def __init__(self) -> None:
        """Begin without anywhere to write to."""
        self._handler: logging.StreamHandler[TextIO] | None = None
        self._line = _text_line
        self._waiting: deque[str] = deque()
        self._flushed = 0.0

    def write_to(self, handler: logging.StreamHandler[TextIO], style: str) -> None:
        """Write from now on where a handler writes. `style` is `text` or `json`."""
        self._handler = handler
        self._line = _json_line if style == "json" else _text_line

    def write(self, call: Call, status: int, ended: float) -> None:
        """Write the line of a request. `ended` is in monotonic seconds."""
        if self._handler is None:
            return
        ms = round((ended - call.began) * 1000, 1)
        self._waiting.append(self._line(_when(time.time()), call, status, ms))
        if time.monotonic() - self._flushed > TOGETHER_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the lines that wait, one writer at a time with the handler."""
        if self._handler is None or self._handler.lock is None:
            return
        self._flushed = time.monotonic()
        # A full disk, or nobody who reads: no reason to refuse what was asked.
        with self._handler.lock, suppress(OSError, AttributeError):
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if lines:
                self._handler.stream.write("".join(lines))
                self._handler.flush()


def _text_line(when: str, call: Call, status: int, ms: float) -> str:
    return (
        f"{when} {call.address} {call.key_name or '-'} {_shown(call.method[:32], '')} "
        f"{_shown(call.path[:_PATH_TOLD], _HARMLESS)} {status} {ms}ms {call.request_id}\n"
    )


def _json_line(when: str, call: Call, status: int, ms: float) -> str:
    told = {
        "time": when,
        "address": call.address,
        "key": call.key_name,
        "method": _shown(call.method[:32], ""),
        "path": _shown(call.path[:_PATH_TOLD], _HARMLESS),
        "status": status,
        "ms": ms,
        "requestId": call.request_id,
    }
    return json.dumps(told) + "\n"


@lru_cache(maxsize=1024)
def _shown(text: str, safe: str) -> str:
    # All but harmless characters encoded again.
    return keys.redact(quote(text, safe, "latin-1"))


access_log = AccessLog()


class TextFormatter(logging.Formatter):
    """A line for people: the time, then the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and the traceback below it where there is one."""
        level = _LEVELS_SHOWN.get(record.levelname, "")
        line = f"{_when(record.created)} {level}{record.getMessage()}"
        told = [_printable(line)]
        if record.exc_info:
            # Indented, so that no text in it can begin a line as others do.
            traceback = self.formatException(record.exc_info).split("\n")
            told += ["  " + _printable(line) for line in traceback]
        return keys.redact("\n".join(told))


class JsonFormatter(logging.Formatter):
    """A JSON object for machines, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        told = {
            "time": _when(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": keys.redact(record.getMessage()),
        }
        if record.exc_info:
            told["traceback"] = keys.redact(self.formatException(record.exc_info))
        return json.dumps(told)


def configure(style: str, stream: TextIO | None = None) -> None:
    """Send the log of the whole process to a stream, standard error unless given.

    `style` is `text` or `json`.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    access_log.write_to(handler, style)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # Requests that wait for a thread are no fault of anyone's.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def _printable(text: str) -> str:
    # What others put into their messages may be a client's text.
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _when(at: float) -> str:
    seconds, fraction = divmod(at, 1)
    return f"{_second(int(seconds))}.{int(fraction * 1000):03}Z"


@lru_cache(maxsize=4)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
