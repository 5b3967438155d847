"""Replacing the database by a backup, without reviving revoked keys or reusing ids.

The replaced database knows what happened since the backup: keys that were revoked, ids that were
assigned, webhooks that were removed. So the restored store keeps the replaced one's keys and
webhooks, deletes again the personal data that was deleted since, assigns ids above its highest, and
gets a new random id, so that no earlier ETag matches.
If the replaced database can't be read, or belongs to another shop, nobody knows what was revoked,
removed or assigned: then all keys are revoked, webhooks are paused, and ids skip a million.
Another shop's audit trail is kept all the same: it records acts of this computer's people.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, delete, select, update

from orders import system
from orders.domain import Origin, Status
from orders.store import audit, forgetting
from orders.store.care import checks, files, opening
from orders.store.database import errors, sqlite
from orders.store.database.database import Database, continue_ids_above, count_of, highest_ids
from orders.store.database.sqlite import SqliteDatabase
from orders.store.tables import (
    METADATA,
    api_keys,
    audit_trail,
    order_events,
    orders,
    store,
    webhook_deliveries,
    webhook_endpoints,
    webhook_refused,
)

SKIPPED_IDS = 1_000_000
_NUMBERED = [
    table.name
    for table in METADATA.tables.values()
    if table.dialect_options["sqlite"]["autoincrement"]
]
# The tables that the restored store takes from the replaced one: a backup knows too little of them.
_KEPT = (api_keys, webhook_endpoints, webhook_refused, audit_trail)
# How many of the store's orders a backup lacks, and how many it has in another state.
_COMPARED = """
    SELECT count(*) FILTER (WHERE other.id IS NULL),
        count(*) FILTER (WHERE other.status <> orders.status)
    FROM main.orders AS orders LEFT JOIN backup.orders AS other ON other.id = orders.id
"""
_FORGOTTEN_SINCE = """
    SELECT DISTINCT order_id FROM order_events WHERE type = 'order.forgotten' AND id > ? ORDER BY 1
"""
# The errors of systems without hard links: FAT, some network disks, some containers.
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS}
# The rows of each table.
Rows = dict[str, list[dict[str, Any]]]
PAUSED_BECAUSE = "it comes from a backup, and may have been removed since"


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore.

    `replaced` is where the replaced database is kept, None where there was none, and `was_read`
    whether it could be read. `revoked` counts the backup's keys that are revoked now; `keys` those
    taken from the replaced database; `webhooks` those taken from there or else paused. `forgotten`
    are the orders that were forgotten since and are so again, `pending` those that can't be yet.
    """

    replaced: Path | None
    was_read: bool
    revoked: int
    keys: int
    webhooks: int
    forgotten: list[int]
    pending: list[int]


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a backup, compared with the database that it will replace.

    `newest` is the time of its newest change, None where there is none. `lacking` and `differing`
    count the orders of today's store that it has not, or has in another state; both are None where
    that store can't be read, or is another shop's.
    """

    newest: datetime | None
    orders: int
    lacking: int | None
    differing: int | None
    is_anothers: bool


def restore(
    file: Path,
    target: Path,
    now: datetime,
    *,
    keep_keys: bool = False,
    announce: Callable[[Contents], None] = lambda _: None,
) -> Restored:
    """Replace the database by a copy of the backup, and keep the replaced one beside it.

    Nobody may use the database meanwhile. With `keep_keys`, the backup's keys and webhooks stay
    in force where the replaced database can't be read. `announce` gets the backup's contents before
    anything is changed, and may raise an exception. After that, an UnfitDatabase (of the backup, or
    because the database is in use) or an OSError nothing was changed.
    """
    file.open("rb").close()
    check_sum(file)
    with files.scratch_folder(target.parent, "restore") as folder, ExitStack() as held:
        copied = folder / target.name
        readable = _readable(file, folder)
        checks.check_whole(readable)
        opening.copy(readable, copied)
        checks.unmark_as_moved(copied)
        opening.upgrade(copied, keep_copy=False)
        replaced = _read_replaced(target, copied, held)
        announce(_contents(copied, replaced))
        with closing(SqliteDatabase(copied)) as database, database.write() as connection:
            revoked, keys, webhooks = _carry_over(connection, replaced, now, keep_keys=keep_keys)
            audit.record(connection, now, "store.restored", f"from {file.name}")
            forgotten, pending = _forget_again(connection, replaced, now)
        _empty_log(copied)
        system.leave_to_owner(copied, target.parent)
        kept = _keep(target, now, folder, held)
        if not system.REPLACES_OPEN_FILES:
            held.close()  # a program that opens the database now prevents the replacing
        system.replace(copied, target)
        system.sync(target.parent)
    was_read = replaced is not None and replaced.is_same
    return Restored(kept, was_read, revoked, keys, webhooks, forgotten, pending)


def check_sum(file: Path) -> None:
    """Check a backup against the SHA-256 beside it, if there is one; raise UnfitDatabase."""
    noted = files.sum_of(file)
    if not noted.exists():
        return
    if noted.read_text(encoding="ascii", errors="replace").split()[:1] != [files.digest(file)]:
        raise checks.UnfitDatabase(
            f"{file} has changed since it was made, by {noted.name} beside it: don't restore it."
        )


def renew(database: Database, now: datetime, *, keep_keys: bool = False) -> tuple[int, int]:
    """Make a database that was restored by other means fit for use.

    As `restore` does where the replaced database can't be read. Returns how many keys were revoked
    and how many webhooks were paused.
    """
    with database.write() as connection:
        audit.record(connection, now, "store.renewed", "the store")
        revoked, _, webhooks = _carry_over(connection, None, now, keep_keys=keep_keys)
        return revoked, webhooks


def _readable(file: Path, folder: Path) -> Path:
    # SQLite writes files beside the one it reads. In a read-only folder a plain copy will do, as
    # nobody else can be changing the file.
    if os.access(file.parent, os.W_OK):
        return file
    (folder / "from").mkdir()
    return Path(shutil.copyfile(file, folder / "from" / file.name))


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The highest ids and the rows to take over from the replaced database."""

    store_id: str
    last_ids: dict[str, int]
    rows: Rows
    # Whether it is of the same shop as the backup; how many orders the backup lacks, and has in
    # another state.
    is_same: bool
    lacking: int
    differing: int
    # The orders that were forgotten since the backup.
    forgotten: list[int]

    @property
    def is_anothers(self) -> bool:
        """Whether another shop's orders and keys are at stake. An unused store is nobody's."""
        return not self.is_same and any(self.last_ids.values())


def _contents(copied: Path, replaced: _Replaced | None) -> Contents:
    with closing(SqliteDatabase(copied)) as database, database.read() as connection:
        newest = select(order_events.c.at).order_by(order_events.c.id.desc()).limit(1)
        same = replaced if replaced and replaced.is_same else None
        return Contents(
            connection.scalar(newest),
            count_of(connection, orders),
            same.lacking if same else None,
            same.differing if same else None,
            replaced is not None and replaced.is_anothers,
        )


def _read_replaced(path: Path, restored: Path, held: ExitStack) -> _Replaced | None:
    """Return what to take over; None if the database can't be read.

    It is locked until `held` exits. AwayDatabase if it is in use, or the disk is full.
    """
    try:
        checks.identify(path)
        checks.refuse_moved(path)  # its shop has changed elsewhere since
        with ExitStack() as resources:
            connection = resources.enter_context(closing(sqlite.connect(path)))
            # This moves everything from the log to the file, and fails while others use it.
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            compared = _compare(connection, restored)
            connection.execute("BEGIN EXCLUSIVE")
            replaced = _read_rows(connection, restored, compared)
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
    return replaced


def _compare(connection: Any, restored: Path) -> tuple[int, int]:
    connection.execute("ATTACH ? AS backup", (str(restored),))
    try:
        return connection.execute(_COMPARED).fetchone()  # type: ignore[no-any-return]
    finally:
        connection.execute("DETACH backup")


def _read_rows(connection: Any, restored: Path, compared: tuple[int, int]) -> _Replaced:
    last_ids = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    (store_id,) = connection.execute("SELECT store_id FROM store").fetchone()
    made = {name for (name,) in connection.execute("SELECT name FROM sqlite_master").fetchall()}
    kept = [table.name for table in _KEPT if table.name in made]
    rows = {name: _all_rows(connection, name) for name in kept}
    is_same = _is_same(store_id, rows, restored)
    forgotten = _forgotten_since(connection, restored) if is_same else []
    return _Replaced(store_id, last_ids, rows, is_same, *compared, forgotten)


def _forgotten_since(connection: Any, restored: Path) -> list[int]:
    with closing(sqlite.connect(restored)) as backup:
        newest = backup.execute("SELECT coalesce(max(id), 0) FROM order_events").fetchone()
    rows = connection.execute(_FORGOTTEN_SINCE, newest).fetchall()
    return [order_id for (order_id,) in rows]


def _forget_again(
    connection: Connection, replaced: _Replaced | None, now: datetime
) -> tuple[list[int], list[int]]:
    """Delete personal data as in the replaced store; return those orders, and those pending."""
    ids = replaced.forgotten if replaced else []
    forgotten = forgetting.forget(connection, ids, Origin("cli"), now)
    statuses = select(orders.c.id).where(orders.c.id.in_(ids), orders.c.status == Status.PENDING)
    return forgotten, [*connection.scalars(statuses.order_by(orders.c.id))]


def _all_rows(connection: Any, table: str) -> list[dict[str, Any]]:
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY 1")  # noqa: S608 # nosec B608 - names of ours
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def _is_same(store_id: str, rows: Rows, restored: Path) -> bool:
    # An earlier restore gave the store another id. Then a key that both have proves it: no two
    # stores issue the same id at the same moment.
    with closing(sqlite.connect(restored)) as connection:
        (own_id,) = connection.execute("SELECT store_id FROM store").fetchone()
        own_keys = set(connection.execute("SELECT id, created_at FROM api_keys").fetchall())
    return store_id == own_id or any(
        (key["id"], key["created_at"]) in own_keys for key in rows["api_keys"]
    )


def _carry_over(
    connection: Connection, replaced: _Replaced | None, now: datetime, *, keep_keys: bool
) -> tuple[int, int, int]:
    """Return how many keys are revoked now, how many were taken over, and how many webhooks."""
    connection.execute(update(store).values(store_id=secrets.token_hex(8)))
    _skip_ids(connection, replaced)
    rows: Rows = replaced.rows if replaced and replaced.is_same else {}
    revoked = _carry_keys(connection, rows, now, keep=keep_keys)
    webhooks = _carry_webhooks(connection, rows, now, keep=keep_keys)
    if replaced:
        _carry_audit(connection, replaced)
    return revoked, len(rows.get(api_keys.name, [])), webhooks


def _skip_ids(connection: Connection, replaced: _Replaced | None) -> None:
    own = highest_ids(connection)
    for table in _NUMBERED:
        last_id = replaced.last_ids.get(table, 0) if replaced else 0
        if not (replaced and replaced.is_same):
            last_id = max(last_id, own.get(table, 0) + SKIPPED_IDS)
        continue_ids_above(connection, table, last_id)


def _carry_audit(connection: Connection, replaced: _Replaced) -> None:
    acts = replaced.rows.get(audit_trail.name, [])
    if replaced.is_same:
        known = set(connection.scalars(select(audit_trail.c.id)))
        acts = [act for act in acts if act["id"] not in known]
    else:  # the other shop's have the same ids
        acts = [{name: value for name, value in act.items() if name != "id"} for act in acts]
    _insert(connection, audit_trail, acts)


def _carry_keys(connection: Connection, rows: Rows, now: datetime, *, keep: bool) -> int:
    is_live = api_keys.c.revoked_at.is_(None)
    if api_keys.name in rows:
        live = set(connection.scalars(select(api_keys.c.id).where(is_live)))
        _replace(connection, api_keys, rows)
        return sum(key["id"] in live and bool(key["revoked_at"]) for key in rows[api_keys.name])
    if keep:
        return 0
    return connection.execute(update(api_keys).where(is_live).values(revoked_at=now)).rowcount


def _carry_webhooks(connection: Connection, rows: Rows, now: datetime, *, keep: bool) -> int:
    if webhook_endpoints.name in rows:
        _replace(connection, webhook_endpoints, rows)
        ids = select(webhook_endpoints.c.id)
        connection.execute(
            delete(webhook_deliveries).where(webhook_deliveries.c.endpoint_id.not_in(ids))
        )
        _replace(connection, webhook_refused, rows)
        # Events after the backup no longer exist.
        lost = webhook_refused.c.event_id.not_in(select(order_events.c.id))
        connection.execute(delete(webhook_refused).where(lost))
        return len(rows[webhook_endpoints.name])
    if keep:
        return 0
    live = update(webhook_endpoints).where(webhook_endpoints.c.paused_at.is_(None))
    paused = live.values(paused_at=now, paused_because=PAUSED_BECAUSE)
    return connection.execute(paused).rowcount


def _replace(connection: Connection, table: Table, rows: Rows) -> None:
    # Other tables refer to these rows by id: checked at the commit, not before.
    connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    connection.execute(delete(table))
    _insert(connection, table, rows[table.name])


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        # The rows are as the driver returned them, without the types of columns.
        columns, marks = ", ".join(rows[0]), ", ".join("?" for _ in rows[0])
        connection.exec_driver_sql(
            f"INSERT INTO {table.name} ({columns}) VALUES ({marks})",  # noqa: S608 # nosec B608 - names of ours
            [tuple(row.values()) for row in rows],
        )


def _empty_log(path: Path) -> None:
    # Only the file is renamed. What was taken over must be in it, or the backup's keys would be
    # in force.
    with closing(sqlite.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    system.sync(path)


def _keep(path: Path, now: datetime, folder: Path, held: ExitStack) -> Path | None:
    """Keep the database, and a log that could not be emptied, under another name; return that."""
    kept = path.with_name(f"{path.stem}-replaced-{now:%Y%m%dT%H%M%S}{path.suffix}")
    existed = path.exists()
    # Hard links, so that at every moment there is a database under its own name, and both files
    # of the replaced one have their second name before either loses the first.
    for file, name in ((path, kept), (sqlite.log_of(path), sqlite.log_of(kept))):
        if file.exists():
            _name_also(file, name, folder, held)
    system.sync(path.parent)
    # SQLite would apply these to the new database.
    for companion in sqlite.companions(path):
        companion.unlink(missing_ok=True)
    system.sync(path.parent)
    return kept if existed else None


def _name_also(file: Path, name: Path, folder: Path, held: ExitStack) -> None:
    try:
        name.hardlink_to(file)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        copied = folder / name.name
        system.make_private_file(copied)
        # Closing a file releases this process's locks on it, and so SQLite's: not before `held`.
        with copied.open("wb") as target:
            shutil.copyfileobj(held.enter_context(file.open("rb")), target)
        system.sync(copied)
        system.replace(copied, name)
