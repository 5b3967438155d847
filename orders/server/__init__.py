"""A small HTTP server over waitress' parser, which knows nothing of orders.

One thread polls, gives short answers, and hands over the rest. Others use `Server`, with a
`Policy`, by which the application says what `Work` a request takes and how a `Rejection` is
answered; `EXTRA_THREADS`, how many threads answer beside the configured ones; the
limits `MAX_HEADERS` and `MAX_HEAD_BYTES`; `WHOLE_AT`, `BUSY`, `REST` and `SEND_FILE`, names in the
WSGI environment, of which `REST` takes a `Resting`, for a body that comes bit by bit, and
`SEND_FILE` a part of a file; and `path_of_target`, by which paths are read.
"""

from orders.server.answers import (
    BUSY,
    REST,
    SEND_FILE,
    WHOLE_AT,
    Policy,
    Rejection,
    Resting,
    Work,
)
from orders.server.parser import MAX_HEAD_BYTES, MAX_HEADERS, path_of_target
from orders.server.server import EXTRA_THREADS, Server

__all__ = [
    "BUSY",
    "EXTRA_THREADS",
    "MAX_HEADERS",
    "MAX_HEAD_BYTES",
    "REST",
    "SEND_FILE",
    "WHOLE_AT",
    "Policy",
    "Rejection",
    "Resting",
    "Server",
    "Work",
    "path_of_target",
]
