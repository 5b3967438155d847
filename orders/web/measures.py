"""What is worth watching of a store: does it answer, how fast, what is in it, how large it is.

Everything here is asked again and again, so each question takes a bounded time.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from sqlalchemy import Connection, func, select

from orders.domain import Status
from orders.store import days, events
from orders.store.database.engine import Database
from orders.store.tables import RefusedRow
from orders.webhooks import deliveries, endpoints
from orders.webhooks.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class StoreMeasures:
    """What a database says. `seconds` is how long it took to answer its first question."""

    seconds: float
    newest_event: int
    orders: dict[Status, int]
    endpoints: list[Endpoint]
    # By endpoint: events put aside.
    refused: dict[int, int]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What an endpoint still has to get: `MOST_BEHIND` events are looked at, and not more.

    `oldest` is when the first of them happened, None where there is none.
    """

    endpoint: Endpoint
    events: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes: of each file that there is, and of the disk that the folder is on."""

    files: dict[str, int]
    free: int
    size: int


def measure(database: Database, today: date) -> StoreMeasures:
    """Ask a database.

    Raises:
        StoreUnavailable: it can't be read.
    """
    began = time.perf_counter()
    with database.read() as connection:
        newest = events.newest_id(connection)
        seconds = time.perf_counter() - began
        return StoreMeasures(
            seconds,
            newest,
            days.statistics(database, today, 1).by_status,
            endpoints.get_all(connection),
            _refused(connection),
        )


def backlog(database: Database, endpoint: Endpoint, after: int) -> Backlog:
    """Return what an endpoint still has to get after an event.

    Raises:
        StoreUnavailable: the database can't be read.
    """
    with database.read() as connection:
        return Backlog(endpoint, *deliveries.behind(connection, endpoint, after))


def disk(files: dict[str, Path], folder: Path) -> Disk | None:
    """Measure files that may not be there, and the disk of a folder; None where it is gone."""
    sizes = {name: size for name, path in files.items() if (size := _size(path)) is not None}
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return Disk(sizes, usage.free, usage.total)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _refused(connection: Connection) -> dict[int, int]:
    counted = select(RefusedRow.endpoint_id, func.count()).group_by(RefusedRow.endpoint_id)
    return dict(connection.execute(counted).all())
