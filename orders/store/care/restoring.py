"""Putting a backup in the place of the database, so that it misleads nobody.

What the replaced database knew and the backup does not could come back to life or be told twice: a
key that was revoked since, an id that was given since. So the restored store keeps the keys as they
were, lets ids go on above the highest that was given, and has a new random id, so that no ETag of
before fits. Webhooks stay as they were, too, or one that was removed since would get orders again.
Where the replaced database can't be read, or is another store's, nobody knows what was revoked,
removed or given: then all keys are revoked, webhooks are paused, and ids skip a million.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select, update

from orders.store.care import backup, instance, opening, scratch
from orders.store.database import errors, sequences, sqlite
from orders.store.database.engine import Database
from orders.store.database.sqlite import SqliteDatabase
from orders.store.tables import DeliveryRow, EndpointRow, EventRow, KeyRow, RefusedRow, StoreRow

SKIPPED_IDS = 1_000_000
_NUMBERED = ("orders", "order_events", "api_keys", "webhook_endpoints", "webhook_deliveries")
PAUSED_BECAUSE = "it comes from a backup, and may have been removed since"


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    `replaced` is where the replaced database is kept, None where there was none. `read` tells
    whether it could be read. `revoked` counts keys that were revoked, now or since the backup;
    `keys` those that are as they were in the replaced database; `webhooks` those that are, or that
    were paused where that can't be known.
    """

    replaced: Path | None
    read: bool
    revoked: int
    keys: int
    webhooks: int


def restore(
    file: Path,
    target: Path,
    now: datetime,
    *,
    keep_keys: bool = False,
    alive: Callable[[], None] = lambda: None,
) -> Restored:
    """Put a copy of the backup in the place of the database, which is kept beside it.

    Nobody may use the database meanwhile. `keep_keys` keeps keys where the replaced database can't
    be read.

    Raises:
        UnfitDatabase: the backup is not a sound database of this program's, or somebody uses the
            one to be replaced; nothing was changed.
        OSError: a file can't be written; nothing was changed.
    """
    with scratch.folder(target.parent, "restore") as folder, ExitStack() as held:
        copied = folder / target.name
        readable = _readable(file, folder)
        opening.check_whole(readable)
        backup.copy(readable, copied, alive)
        opening.take_back(copied)
        opening.upgrade(copied, keep_copy=False)
        known = _known_to(target, copied, held)
        with closing(SqliteDatabase(copied)) as database, database.write() as connection:
            revoked, keys = _carry_over(connection, known, now, keep_keys=keep_keys)
            webhooks = _carry_webhooks_over(connection, known, now, keep=keep_keys)
        _leave_log(copied)
        kept = _keep(target, now)
        copied.replace(target)
        instance.sync(target.parent)
    return Restored(kept, known is not None, revoked, keys, webhooks)


def renew(database: Database, now: datetime, *, keep_keys: bool = False) -> tuple[int, int]:
    """Make a database that was put back by other means one that misleads nobody.

    As in `restore` where the replaced database can't be read. Gives how many keys were revoked, and
    how many webhooks were paused.

    Raises:
        StoreUnavailable: the database can't be written.
    """
    with database.write() as connection:
        revoked, _ = _carry_over(connection, None, now, keep_keys=keep_keys)
        return revoked, _carry_webhooks_over(connection, None, now, keep=keep_keys)


def _readable(file: Path, folder: Path) -> Path:
    # SQLite keeps files beside what it reads. Where it can't, nobody else changes the file either.
    if os.access(file.parent, os.W_OK):
        return file
    (folder / "from").mkdir()
    return Path(shutil.copyfile(file, folder / "from" / file.name))


@dataclass(frozen=True, slots=True)
class _Known:
    """What the replaced database knew: its id, its keys, and the highest ids it gave by table.

    `webhooks` and `refused`, the events that they refused, are None where it knew of none yet.
    """

    store_id: str
    keys: list[dict[str, Any]]
    given: dict[str, int]
    webhooks: list[dict[str, Any]] | None
    refused: list[dict[str, Any]] | None


def _known_to(path: Path, restored: Path, held: ExitStack) -> _Known | None:
    """Return what the database to be replaced knows; None where that can't be known.

    Nobody else can use it, until `held` is left.

    Raises:
        AwayDatabase: somebody uses it, or the disk is full.
    """
    try:
        opening.identify(path)
        opening.refuse_moved(path)  # what became of it since is not in it
        with ExitStack() as resources:
            connection = resources.enter_context(closing(sqlite.connect(path)))
            # Which leaves nothing of it in the log beside it, and works only for whoever is alone.
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("BEGIN EXCLUSIVE")
            known = _read_known(connection)
            held.push(resources.pop_all())
    except opening.AwayDatabase:
        raise
    except (FileNotFoundError, opening.UnfitDatabase):
        return None
    except sqlite.sqlite_module().Error as error:
        cause = errors.unavailable_cause(error)
        if cause in {None, errors.DAMAGED}:
            return None
        raise opening.AwayDatabase(
            f"{path} can't be replaced: {cause}. End what uses it, then try again."
        ) from None
    return known if _is_same_store(known, restored) else None


def _read_known(connection: Any) -> _Known:
    given = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    (store_id,) = connection.execute("SELECT store_id FROM store").fetchone()
    return _Known(
        store_id,
        _all_rows(connection, "api_keys") or [],
        given,
        _all_rows(connection, "webhook_endpoints"),
        _all_rows(connection, "webhook_refused"),
    )


def _all_rows(connection: Any, table: str) -> list[dict[str, Any]] | None:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
        return None
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY 1")  # noqa: S608 # nosec B608 - names of ours
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def _is_same_store(known: _Known, restored: Path) -> bool:
    # A restore gives a store another id, and a key was issued once under one id at one moment.
    with closing(sqlite.connect(restored)) as connection:
        (store_id,) = connection.execute("SELECT store_id FROM store").fetchone()
        own = set(connection.execute("SELECT id, created_at FROM api_keys").fetchall())
    return store_id == known.store_id or any(
        (key["id"], key["created_at"]) in own for key in known.keys
    )


def _carry_over(
    connection: Connection, known: _Known | None, now: datetime, *, keep_keys: bool
) -> tuple[int, int]:
    connection.execute(update(StoreRow).values(store_id=secrets.token_hex(8)))
    _skip_ids(connection, known)
    if known is not None:
        return _keep_keys_as_they_were(connection, known)
    if keep_keys:
        return 0, 0
    live = update(KeyRow).where(KeyRow.revoked_at.is_(None))
    return connection.execute(live.values(revoked_at=now)).rowcount, 0


def _skip_ids(connection: Connection, known: _Known | None) -> None:
    own = sequences.given(connection)
    for table in _NUMBERED:
        if known is None:
            sequences.go_on_above(connection, table, own.get(table, 0) + SKIPPED_IDS)
        else:
            sequences.go_on_above(connection, table, known.given.get(table, 0))


def _keep_keys_as_they_were(connection: Connection, known: _Known) -> tuple[int, int]:
    live = set(connection.scalars(select(KeyRow.id).where(KeyRow.revoked_at.is_(None))))
    # Idempotency keys and the demo refer to keys by id, until the commit to none.
    connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    connection.execute(delete(KeyRow))
    _insert(connection, "api_keys", known.keys)
    revoked = sum(key["id"] in live and key["revoked_at"] is not None for key in known.keys)
    return revoked, len(known.keys)


def _carry_webhooks_over(
    connection: Connection, known: _Known | None, now: datetime, *, keep: bool
) -> int:
    if known is None or known.webhooks is None or known.refused is None:
        if keep:
            return 0
        live = update(EndpointRow).where(EndpointRow.paused_at.is_(None))
        paused = live.values(paused_at=now, paused_because=PAUSED_BECAUSE)
        return connection.execute(paused).rowcount
    # The log of what was tried refers to endpoints by id, until the commit to none.
    connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    for row in (RefusedRow, EndpointRow):
        connection.execute(delete(row))
    _insert(connection, "webhook_endpoints", known.webhooks)
    ids = set(connection.scalars(select(EndpointRow.id)))
    connection.execute(delete(DeliveryRow).where(DeliveryRow.endpoint_id.not_in(ids)))
    # An event that was placed after the backup is no more.
    _insert(connection, "webhook_refused", known.refused)
    lost = RefusedRow.event_id.not_in(select(EventRow.id))
    connection.execute(delete(RefusedRow).where(lost))
    return len(known.webhooks)


def _insert(connection: Connection, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        columns = ", ".join(rows[0])
        marks = ", ".join("?" for _ in rows[0])
        connection.exec_driver_sql(
            f"INSERT INTO {table} ({columns}) VALUES ({marks})",  # noqa: S608 # nosec B608 - names of ours
            [tuple(row.values()) for row in rows],
        )


def _leave_log(path: Path) -> None:
    # What was carried over is in the file itself, or the keys of the backup would be in force.
    with closing(sqlite.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    instance.sync(path)


def _keep(path: Path, now: datetime) -> Path | None:
    """Keep the database under another name, with the log of one that could not be read."""
    kept = path.with_name(f"{path.stem}-replaced-{now:%Y%m%dT%H%M%S}{path.suffix}")
    is_there = path.exists()
    log = path.with_name(path.name + "-wal")
    # Second names, so that there is a database under the first at every moment, and all of the
    # replaced one under the second before any of it loses the first.
    for file, name in ((path, kept), (log, kept.with_name(kept.name + "-wal"))):
        if file.exists():
            name.hardlink_to(file)
    instance.sync(path.parent)
    # It would be taken for the new one's.
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    instance.sync(path.parent)
    return kept if is_there else None
