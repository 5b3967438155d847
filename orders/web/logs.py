"""The log: a line a request, and whatever else is worth telling. Text, or JSON objects.

No line holds a key or a query. The path is the client's text: what looks like a key in it is
hidden, and what is not printable is escaped, so that nobody writes lines of their own.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO
from urllib.parse import quote

from orders import domain, keys

if TYPE_CHECKING:
    from orders.web.call import Call

ACCESS_LOGGER = "orders.access"
access_log = logging.getLogger(ACCESS_LOGGER)

_LEVELS_SHOWN = {"WARNING": "warning: ", "ERROR": "error: ", "CRITICAL": "error: "}


def log_access(call: Call, status: int, ended: float) -> None:
    """Write the line of a request. `ended` is in monotonic seconds."""
    key = call.caller.key if call.caller else None
    access_log.info(
        "",
        extra={
            "facts": {
                "address": call.address,
                "key": f"key:{key.id}" if key else None,
                "method": keys.redact(quote(call.method[:32])),
                "path": keys.redact(shown_path(call.path)),
                "status": status,
                "ms": round((ended - call.began) * 1000, 1),
                "requestId": call.request_id,
            }
        },
    )


def shown_path(path: str) -> str:
    """Give a decoded path with all but harmless characters encoded again."""
    return path if path.isascii() and path.isalnum() else quote(path, "/:@!$&'()*+,;=~", "latin-1")


class TextFormatter(logging.Formatter):
    """A line for people: the time, then the facts of a request or the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line of a record, and the traceback below it where there is one."""
        facts = getattr(record, "facts", None)
        if facts is not None:
            return (
                f"{_when(record)} {facts['address']} {facts['key'] or '-'} {facts['method']} "
                f"{facts['path']} {facts['status']} {facts['ms']}ms {facts['requestId']}"
            )
        line = f"{_when(record)} {_LEVELS_SHOWN.get(record.levelname, '')}{record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return keys.redact(line)


class JsonFormatter(logging.Formatter):
    """A JSON object for machines, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line of a record."""
        facts = getattr(record, "facts", None)
        if facts is not None:
            return json.dumps({"time": _when(record), **facts})
        told = {
            "time": _when(record),
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
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # Requests that wait for a thread are no fault of anyone's.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def _when(record: logging.LogRecord) -> str:
    return domain.format_instant(datetime.fromtimestamp(record.created, UTC))
