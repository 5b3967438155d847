"""Replacing the database by a backup, without reviving revoked keys or reusing ids.

The replaced database knows what happened since the backup: keys that were revoked, ids that were
assigned, webhooks that were removed. So the restored store keeps the replaced one's keys and
webhooks, assigns ids above its highest, and gets a new random id, so that no earlier ETag matches.
If the replaced database can't be read, or belongs to another store, nobody knows what was revoked,
removed or assigned: then all keys are revoked, webhooks are paused, and ids skip a million.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select, update

from orders.store import audit
from orders.store.care import backup, checks, instance, opening, scratch
from orders.store.database import errors, sequences, sqlite
from orders.store.database.engine import Database
from orders.store.database.sqlite import SqliteDatabase
from orders.store.tables import (
    AuditRow,
    DeliveryRow,
    EndpointRow,
    EventRow,
    KeyRow,
    RefusedRow,
    StoreRow,
)

SKIPPED_IDS = 1_000_000
_NUMBERED = (
    *("orders", "order_events", "api_keys"),
    *("webhook_endpoints", "webhook_deliveries", "audit_trail"),
)
# What systems answer where there are no hard links: FAT, some network disks, some containers.
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS}
PAUSED_BECAUSE = "it comes from a backup, and may have been removed since"


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    `replaced` is where the replaced database is kept, None where there was none, and `was_read`
    whether it could be read. `revoked` counts the backup's keys that are revoked now; `keys` those
    taken from the replaced database; `webhooks` those taken from there or else paused.
    """

    replaced: Path | None
    was_read: bool
    revoked: int
    keys: int
    webhooks: int


def restore(
    file: Path,
    target: Path,
    now: datetime,
    *,
    keep_keys: bool = False,
) -> Restored:
    """Replace the database by a copy of the backup, and keep the replaced one beside it.

    Nobody may use the database meanwhile. With `keep_keys`, the backup's keys and webhooks stay
    in force where the replaced database can't be read.

    Raises:
        UnfitDatabase: the backup is not a sound database of this program, or the database to be
            replaced is in use; nothing was changed.
        OSError: a file can't be written; nothing was changed.
    """
    with scratch.folder(target.parent, "restore") as folder, ExitStack() as held:
        copied = folder / target.name
        readable = _readable(file, folder)
        checks.check_whole(readable)
        backup.copy(readable, copied)
        checks.unmark_as_moved(copied)
        opening.upgrade(copied, keep_copy=False)
        replaced = _read_replaced(target, copied, held)
        with closing(SqliteDatabase(copied)) as database, database.write() as connection:
            revoked, keys = _carry_over(connection, replaced, now, keep_keys=keep_keys)
            webhooks = _carry_webhooks_over(connection, replaced, now, keep=keep_keys)
            _carry_trail_over(connection, replaced)
            audit.note(connection, now, "store.restored", f"from {file.name}")
        _empty_log(copied)
        kept = _keep(target, now, folder, held)
        copied.replace(target)
        instance.sync(target.parent)
    return Restored(kept, replaced is not None, revoked, keys, webhooks)


def renew(database: Database, now: datetime, *, keep_keys: bool = False) -> tuple[int, int]:
    """Make a database that was restored by other means fit for use.

    As `restore` does where the replaced database can't be read. Returns how many keys were revoked
    and how many webhooks were paused.

    Raises:
        StoreUnavailable: the database can't be written.
    """
    with database.write() as connection:
        audit.note(connection, now, "store.renewed", "the store")
        revoked, _ = _carry_over(connection, None, now, keep_keys=keep_keys)
        return revoked, _carry_webhooks_over(connection, None, now, keep=keep_keys)


def _readable(file: Path, folder: Path) -> Path:
    # SQLite writes files beside the one it reads. In a read-only folder a plain copy will do, as
    # nobody else can be changing the file.
    if os.access(file.parent, os.W_OK):
        return file
    (folder / "from").mkdir()
    return Path(shutil.copyfile(file, folder / "from" / file.name))


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What is taken over from the replaced database; `last_ids` are the highest ids, by table.

    `webhooks` and `refused`, the events that they refused, are None if its schema has none yet, and
    `trail` likewise.
    """

    store_id: str
    keys: list[dict[str, Any]]
    last_ids: dict[str, int]
    webhooks: list[dict[str, Any]] | None
    refused: list[dict[str, Any]] | None
    trail: list[dict[str, Any]] | None


def _read_replaced(path: Path, restored: Path, held: ExitStack) -> _Replaced | None:
    """Return what to take over; None if the database can't be read or is another store's.

    It is locked until `held` is left.

    Raises:
        AwayDatabase: it is in use, or the disk is full.
    """
    try:
        checks.identify(path)
        checks.refuse_moved(path)  # its shop has changed elsewhere since
        with ExitStack() as resources:
            connection = resources.enter_context(closing(sqlite.connect(path)))
            # This moves everything from the log to the file, and fails while others use it.
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("BEGIN EXCLUSIVE")
            replaced = _read_rows(connection)
            held.push(resources.pop_all())
    except checks.AwayDatabase:
        raise
    except (FileNotFoundError, checks.UnfitDatabase):
        return None
    except sqlite.sqlite_module().Error as error:
        cause = errors.unavailable_cause(error)
        if cause in {None, errors.DAMAGED}:
            return None
        raise checks.AwayDatabase(
            f"{path} can't be replaced: {cause}. Stop what uses it, then try again."
        ) from None
    return replaced if _is_same_store(replaced, restored) else None


def _read_rows(connection: Any) -> _Replaced:
    last_ids = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    (store_id,) = connection.execute("SELECT store_id FROM store").fetchone()
    return _Replaced(
        store_id,
        _all_rows(connection, "api_keys") or [],
        last_ids,
        _all_rows(connection, "webhook_endpoints"),
        _all_rows(connection, "webhook_refused"),
        _all_rows(connection, "audit_trail"),
    )


def _all_rows(connection: Any, table: str) -> list[dict[str, Any]] | None:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
        return None
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY 1")  # noqa: S608 # nosec B608 - names of ours
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def _is_same_store(replaced: _Replaced, restored: Path) -> bool:
    # An earlier restore gave the store another id. Then a key that both have proves it: no two
    # stores issue the same id at the same moment.
    with closing(sqlite.connect(restored)) as connection:
        (store_id,) = connection.execute("SELECT store_id FROM store").fetchone()
        own_keys = set(connection.execute("SELECT id, created_at FROM api_keys").fetchall())
    return store_id == replaced.store_id or any(
        (key["id"], key["created_at"]) in own_keys for key in replaced.keys
    )


def _carry_over(
    connection: Connection, replaced: _Replaced | None, now: datetime, *, keep_keys: bool
) -> tuple[int, int]:
    connection.execute(update(StoreRow).values(store_id=secrets.token_hex(8)))
    _skip_ids(connection, replaced)
    if replaced is not None:
        return _take_keys_over(connection, replaced)
    if keep_keys:
        return 0, 0
    live = update(KeyRow).where(KeyRow.c.revoked_at.is_(None))
    return connection.execute(live.values(revoked_at=now)).rowcount, 0


def _skip_ids(connection: Connection, replaced: _Replaced | None) -> None:
    own = sequences.given(connection)
    for table in _NUMBERED:
        if replaced is None:
            last_id = own.get(table, 0) + SKIPPED_IDS
        else:
            last_id = replaced.last_ids.get(table, 0)
        sequences.go_on_above(connection, table, last_id)


def _take_keys_over(connection: Connection, replaced: _Replaced) -> tuple[int, int]:
    live = set(connection.scalars(select(KeyRow.c.id).where(KeyRow.c.revoked_at.is_(None))))
    # Idempotency keys and the demo refer to keys by id: checked at the commit, not before.
    connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    connection.execute(delete(KeyRow))
    _insert(connection, "api_keys", replaced.keys)
    revoked = sum(key["id"] in live and key["revoked_at"] is not None for key in replaced.keys)
    return revoked, len(replaced.keys)


def _carry_webhooks_over(
    connection: Connection, replaced: _Replaced | None, now: datetime, *, keep: bool
) -> int:
    if replaced is None or replaced.webhooks is None or replaced.refused is None:
        if keep:
            return 0
        live = update(EndpointRow).where(EndpointRow.c.paused_at.is_(None))
        paused = live.values(paused_at=now, paused_because=PAUSED_BECAUSE)
        return connection.execute(paused).rowcount
    # The log of deliveries refers to endpoints by id: checked at the commit, not before.
    connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    for row in (RefusedRow, EndpointRow):
        connection.execute(delete(row))
    _insert(connection, "webhook_endpoints", replaced.webhooks)
    ids = set(connection.scalars(select(EndpointRow.c.id)))
    connection.execute(delete(DeliveryRow).where(DeliveryRow.c.endpoint_id.not_in(ids)))
    # Events after the backup no longer exist.
    _insert(connection, "webhook_refused", replaced.refused)
    lost = RefusedRow.c.event_id.not_in(select(EventRow.c.id))
    connection.execute(delete(RefusedRow).where(lost))
    return len(replaced.webhooks)


def _carry_trail_over(connection: Connection, replaced: _Replaced | None) -> None:
    known = set(connection.scalars(select(AuditRow.c.id)))
    trail = (replaced and replaced.trail) or []
    _insert(connection, "audit_trail", [row for row in trail if row["id"] not in known])


def _insert(connection: Connection, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        columns = ", ".join(rows[0])
        marks = ", ".join("?" for _ in rows[0])
        connection.exec_driver_sql(
            f"INSERT INTO {table} ({columns}) VALUES ({marks})",  # noqa: S608 # nosec B608 - names of ours
            [tuple(row.values()) for row in rows],
        )


def _empty_log(path: Path) -> None:
    # Only the file is renamed. What was taken over must be in it, or the backup's keys would be
    # in force.
    with closing(sqlite.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    instance.sync(path)


def _keep(path: Path, now: datetime, folder: Path, held: ExitStack) -> Path | None:
    """Keep the database, and a log that could not be emptied, under another name; return that."""
    kept = path.with_name(f"{path.stem}-replaced-{now:%Y%m%dT%H%M%S}{path.suffix}")
    existed = path.exists()
    log = path.with_name(path.name + "-wal")
    # Hard links, so that at every moment there is a database under its own name, and both files
    # of the replaced one have their second name before either loses the first.
    for file, name in ((path, kept), (log, kept.with_name(kept.name + "-wal"))):
        if file.exists():
            _name_also(file, name, folder, held)
    instance.sync(path.parent)
    # SQLite would apply these to the new database.
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    instance.sync(path.parent)
    return kept if existed else None


def _name_also(file: Path, name: Path, folder: Path, held: ExitStack) -> None:
    try:
        name.hardlink_to(file)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        copied = folder / name.name
        instance.make_private_file(copied)
        # Closing a file releases this process's locks on it, and so SQLite's: not before `held`.
        with copied.open("wb") as target:
            shutil.copyfileobj(held.enter_context(file.open("rb")), target)
        instance.sync(copied)
        copied.replace(name)
