"""Faults to plant in the program, which the year must find."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from orders import service
from orders.store import idempotency
from orders.store import orders as order_store
from orders.store.care import backups, opening
from orders.store.database import sqlite
from orders.webhooks import outbox, sender

_EVERY = 40
Planted = AbstractContextManager[object]


def _wrapped(place: Any, name: str, around: Callable[..., Any]) -> Planted:
    """Replace a function by one that gets the original first."""
    original = getattr(place, name)

    def replacement(*arguments: Any, **named: Any) -> Any:
        return around(original, *arguments, **named)

    return mock.patch.object(place, name, replacement)


def _now_and_then(place: Any, name: str, instead: Callable[..., Any]) -> Planted:
    """Replace each so many calls of a function."""
    calls = itertools.count(1)

    def around(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        due = next(calls) % _EVERY == 0
        return instead(original, *arguments, **named) if due else original(*arguments, **named)

    return _wrapped(place, name, around)


def _no_event(_: object, connection: Any, *__: object) -> int:
    return order_store.newest_event(connection)


def _twice(original: Callable[..., Any], *arguments: Any) -> Any:
    original(*arguments)
    return original(*arguments)


def _part(original: Callable[..., Any], source: Path, target: Path, progress: Any) -> None:
    original(source, target, progress)
    with closing(sqlite.connect(target)) as connection:
        connection.execute("DROP TRIGGER IF EXISTS order_events_no_delete")
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DELETE FROM order_events WHERE id = (SELECT max(id) FROM order_events)")


def _unsent(_: object, *__: object, **___: object) -> sender.Response:
    return sender.Response(204, None, "", 0.0)


def _but_one(original: Callable[..., Any], newest_first: list[Any], counts: tuple[int, int]) -> Any:
    return original([*newest_first[:1], *newest_first[2:]], counts)


def _without_a_row(original: Callable[..., Any], connection: Any, *target: str) -> None:
    original(connection, *target)
    connection.exec_driver_sql(
        "DELETE FROM idempotency_keys WHERE event_id = (SELECT max(event_id) FROM idempotency_keys)"
    )


def _not_full() -> Planted:
    pragmas = [each.replace("FULL", "NORMAL") for each in sqlite._PRAGMAS]  # noqa: SLF001 - a fault
    return mock.patch.object(sqlite, "_PRAGMAS", pragmas)


_NOTHING = mock.Mock(execute=lambda *_, **__: None)
FAULTS: dict[str, Callable[[], Planted]] = {
    "": nullcontext,
    "lost-event": lambda: _now_and_then(order_store, "append", _no_event),
    "doubled-event": lambda: _now_and_then(order_store, "append", _twice),
    "missing-sync": _not_full,
    "greedy-sweep": lambda: mock.patch.object(outbox, "LOG_RETENTION", timedelta(hours=12)),
    "idle-sweep": lambda: mock.patch.object(idempotency, "_SWEEP", _NOTHING),
    "partial-backup": lambda: _wrapped(opening, "fill", _part),
    "wrong-retention": lambda: _wrapped(backups, "retained", _but_one),
    "lost-webhook": lambda: _now_and_then(sender.Sender, "post", _unsent),
    "forgotten-key": lambda: mock.patch.object(idempotency, "REMEMBERED_FOR", timedelta(hours=18)),
    "ageing-keys": lambda: mock.patch.object(
        service.OrderService, "follow_clock", return_value=None
    ),
    "stale-etag": lambda: mock.patch.object(sqlite.SqliteDatabase, "version", return_value=(0, 0)),
    "upgrade-drops-row": lambda: _wrapped(opening, "run_migrations", _without_a_row),
}
