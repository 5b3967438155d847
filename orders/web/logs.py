"""The log: one line per request and whatever else is worth recording, as text or JSON objects.

Lines wait in a bounded queue for the thread that writes them. A reader that stands still or a full
disk therefore stops no request: once the queue is full, lines are dropped and counted.

No line holds a key or a query. The path is the client's text: anything in it that looks like a key
is hidden, and unprintable characters are escaped, so that no client can forge lines.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from urllib.parse import quote

from flask import g, has_request_context

from orders import apikeys, system
from orders.clock import Clock
from orders.domain import format_instant
from orders.settings import TEST_LABEL, TEST_MODE
from orders.web.access import Call

# About 10 MB where paths are long: seconds of requests under full load.
MAX_WAITING = 10_000
# The size of a log file: two weeks of a shop with a console open. The one before is kept, too.
MAX_FILE_BYTES = 20_000_000
# How long a stop waits for lines that can't be written.
STOP_SECONDS = 5.0
# Lines that come within this time are written together: each write releases Python's lock.
_GATHER_SECONDS = 0.01
_RETRY_SECONDS = 0.5
_MAX_UNWRITTEN_BYTES = 64 * 1024
# A path may have thousands of characters, and each may be shown as three.
_MAX_PATH = 500
_MAX_METHOD = 32
_HARMLESS = "/:@!$&'()*+,;=~"
# How much is remembered of the last hour.
_MINUTES = 60
_MOST_KINDS = 20
_LONGEST_TEXT = 300
_FAILED = 500
_LEVELS_SHOWN = {"WARNING": "warning: ", "ERROR": "error: ", "CRITICAL": "error: "}

# Writes some of the bytes, as `os.write` does, and returns how many.
Write = Callable[[bytes], int]


class AccessLine(NamedTuple):
    """The facts of an answered request, in the order in which the log shows them.

    `code` is that of an error's body, as one status may have several. `waited_ms` is the time from
    the request's last byte to the start of answering, and `ms` the time from then on.
    """

    time: float
    address: str
    key: str | None
    method: str
    path: str
    status: int
    ms: float
    request_id: str
    code: str | None
    waited_ms: float


class TextFormatter(logging.Formatter):
    """A line for people: the time, then the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, with the traceback, if any, below it."""
        level = _LEVELS_SHOWN.get(record.levelname, "")
        label = TEST_LABEL if is_of_test_mode() else ""
        lines = [_printable(f"{_when(record.created)} {level}{label}{record.getMessage()}")]
        if record.exc_info:
            # Indented, so that no text in it can look like a line of its own.
            traceback = self.formatException(record.exc_info).split("\n")
            lines += ["  " + _printable(line) for line in traceback]
        return apikeys.redact("\n".join(lines))

    def access(self, line: AccessLine) -> str:
        return (
            f"{_when(line.time)} {line.address} {line.key or '-'} {_escaped(line.method)} "
            f"{_escaped(line.path, _HARMLESS)} {line.status} {line.ms}ms {line.request_id}"
            f"{f' {line.code}' if line.code else ''} waited={line.waited_ms}ms"
        )


class JsonFormatter(logging.Formatter):
    """A JSON object for machines, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        facts = {
            "time": _when(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": apikeys.redact(record.getMessage()),
        }
        if is_of_test_mode():
            facts["mode"] = TEST_MODE
        if record.exc_info:
            facts["traceback"] = apikeys.redact(self.formatException(record.exc_info))
        return json.dumps(facts)

    def access(self, line: AccessLine) -> str:
        shown = {"method": _escaped(line.method), "path": _escaped(line.path, _HARMLESS)}
        facts = {**line._asdict(), "time": _when(line.time), **shown}
        facts["requestId"], facts["waitedMs"] = facts.pop("request_id"), facts.pop("waited_ms")
        if facts["code"] is None:
            del facts["code"]
        return json.dumps(facts)


class LogQueue(QueueHandler):
    """Queues lines for the writer while there is room; otherwise drops and counts them."""

    queue: SimpleQueue[Any]

    def __init__(self) -> None:
        """Create the queue, which takes the lines of requests once `configure` has been called."""
        super().__init__(SimpleQueue())
        self.is_configured = False
        self.dropped = 0
        self._counting = threading.Lock()

    def prepare(self, record: logging.LogRecord) -> str:
        return self.format(record)

    def enqueue(self, record: Any) -> None:
        if self.queue.qsize() < MAX_WAITING:
            self.queue.put(record)
        else:
            with self._counting:
                self.dropped += 1


log_queue = LogQueue()

# Called with the call of an answer that has been sent, its status and the monotonic time.
AnswerListener = Callable[[Call, int, float], None]


class AnswerLog:
    """Records an application's answers once they have been sent."""

    def __init__(self) -> None:
        # Called for each, unless it was test mode's.
        self.listeners: list[AnswerListener] = []

    def record(self, call: Call, status: int) -> None:
        """Queue the line of a request, to be formatted later, and call the listeners."""
        ended = call.shop.clock.monotonic()
        if log_queue.is_configured:
            # A record of `logging` would take longer than some requests do.
            line = AccessLine(
                time.time(),
                call.address,
                f"{TEST_MODE}:{call.key_name}" if call.is_test and call.key_name else call.key_name,
                call.method[:_MAX_METHOD],
                call.path[:_MAX_PATH],
                status,
                round((ended - call.began) * 1000, 1),
                call.request_id,
                call.refusal,
                round(call.waited * 1000, 1),
            )
            log_queue.enqueue(line)
        for listener in () if call.is_test else self.listeners:
            listener(call, status, ended)


class LogWriter(QueueListener):
    """Writes the queued lines in a thread of its own."""

    def __init__(self, formatter: TextFormatter | JsonFormatter, write: Write) -> None:
        super().__init__(log_queue.queue)
        self._formatter = formatter
        self._write = write
        self._unwritten = bytearray()
        self._reported = log_queue.dropped
        self._stopping = threading.Event()

    def dequeue(self, block: bool) -> Any:
        """Return the next line. Before waiting for one, write those that have been gathered."""
        if log_queue.queue.empty():
            self.flush()
            line = log_queue.queue.get(block)
            self._stopping.wait(_GATHER_SECONDS)
        else:
            line = log_queue.queue.get(block)
        if line is None:  # the last one, by `stop`
            self.flush()
        return line

    def handle(self, record: Any) -> None:
        self._gather(self._formatter.access(record) if isinstance(record, AccessLine) else record)
        if len(self._unwritten) > _MAX_UNWRITTEN_BYTES:
            self._write_out()

    def flush(self) -> None:
        """Write all that has been gathered, and report how many lines were dropped meanwhile."""
        self._write_out()
        dropped = log_queue.dropped - self._reported
        if dropped:
            self._reported += dropped
            message = "%d lines of the log were dropped: they could not be written in time."
            facts = (__name__, logging.WARNING, __file__, 0, message, (dropped,), None)
            self._gather(self._formatter.format(logging.LogRecord(*facts)))
            self._write_out()

    def stop(self) -> None:
        """Write the lines that wait, as far as that is possible within a short time."""
        self._stopping.set()
        self.enqueue_sentinel()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _gather(self, line: str) -> None:
        self._unwritten += line.encode(errors="backslashreplace") + b"\n"

    def _write_out(self) -> None:
        while self._unwritten:
            try:
                del self._unwritten[: self._write(bytes(self._unwritten))]
            except OSError:  # a full disk, or no reader any more: lines wait, or are dropped
                if self._stopping.wait(_RETRY_SECONDS):
                    return


@contextmanager
def logging_to(style: str, file: Path | None) -> Iterator[None]:
    """Write the log of the whole process, as `text` or `json`, to a file or standard error."""
    stderr = len if sys.stderr is None else partial(os.write, sys.stderr.fileno())
    writer = configure(style, partial(append, file) if file else stderr)
    writer.start()
    try:
        yield
    finally:
        writer.stop()


def append(path: Path, data: bytes) -> int:
    """Append to a log file, and return how many bytes; a full one is set aside before."""
    with suppress(OSError):  # there is none yet; or, on Windows, it is open in another program
        if path.stat().st_size >= MAX_FILE_BYTES:
            system.replace(path, path.with_stem(f"{path.stem}-before"))
    descriptor = system.open_private_file(path)
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
        return os.write(descriptor, data)
    finally:
        os.close(descriptor)


def configure(style: str, write: Write) -> LogWriter:
    """Send the log of the whole process to a writer, which is yet to be started."""
    formatter = JsonFormatter() if style == "json" else TextFormatter()
    log_queue.setFormatter(formatter)
    log_queue.is_configured = True
    root = logging.getLogger()
    root.handlers[:] = [log_queue]
    root.setLevel(logging.INFO)
    # It is no fault that requests wait for a thread.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    return LogWriter(formatter, write)


@dataclass(slots=True)
class _Kind:
    """Failures of one kind: how many in which minute, when the last one was, of which request."""

    minutes: Counter[int] = field(default_factory=Counter)
    last: str = ""
    request: str | None = None


class Recent(logging.Handler):
    """The last hour's failures and waits, of answers and of the log. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._began = clock.now()
        self._guard = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}
        # By minute: the longest wait of a request before it was begun, and how many there were.
        self._waits: dict[int, tuple[float, int]] = {}

    def record_answer(self, call: Call, status: int, ended: float) -> None:
        minute = self._minute()
        with self._guard:
            longest, count = self._waits.get(minute, (0.0, 0))
            self._waits[minute] = max(longest, call.waited), count + 1
            if status >= _FAILED:
                self._record("answer", f"{status} {call.refusal}", call.request_id)

    def emit(self, record: logging.LogRecord) -> None:
        if is_of_test_mode():
            return
        text = apikeys.redact(" ".join(record.getMessage().split()))[:_LONGEST_TEXT]
        with self._guard:
            self._record(record.levelname.lower(), text, None)

    def _record(self, source: str, text: str, request: str | None) -> None:
        self._forget()
        if len(self._kinds) >= _MOST_KINDS and (source, text) not in self._kinds:
            text = "other"
        kind = self._kinds.setdefault((source, text), _Kind())
        kind.minutes[self._minute()] += 1
        kind.last, kind.request = format_instant(self._clock.now()), request

    def _forget(self) -> None:
        oldest = self._minute() - _MINUTES
        for minute in [each for each in self._waits if each <= oldest]:
            del self._waits[minute]
        for name, kind in list(self._kinds.items()):
            for minute in [each for each in kind.minutes if each <= oldest]:
                del kind.minutes[minute]
            if not kind.minutes:
                del self._kinds[name]

    def _minute(self) -> int:
        return int(self._clock.monotonic() // 60)

    def facts(self) -> dict[str, Any]:
        with self._guard:
            self._forget()
            waits = self._waits.values()
            return {
                "started": format_instant(self._began),
                "failed": [
                    {
                        "source": source,
                        "what": text,
                        "count": kind.minutes.total(),
                        "last": kind.last,
                        "request": kind.request,
                    }
                    for (source, text), kind in self._kinds.items()
                ],
                "requests": sum(count for _, count in waits),
                "longestWaitMs": round(max((wait for wait, _ in waits), default=0.0) * 1000),
            }


@lru_cache(maxsize=1024)
def _escaped(text: str, harmless: str = "") -> str:
    return apikeys.redact(quote(text, harmless, "latin-1"))


def is_of_test_mode() -> bool:
    """Return whether test mode's code runs: in its own thread, or for a request with its key."""
    if threading.current_thread().name.startswith(TEST_LABEL):
        return True
    call: Call | None = g.get("call") if has_request_context() else None
    return call is not None and call.is_test


def _printable(text: str) -> str:
    # Messages of libraries may hold a client's text.
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _when(at: float) -> str:
    seconds, fraction = divmod(at, 1)
    return f"{_second(int(seconds))}.{int(fraction * 1000):03}Z"


@lru_cache(maxsize=4)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
