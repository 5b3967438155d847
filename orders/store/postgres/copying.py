"""Moving a shop from an SQLite file to a PostgreSQL server: all rows, verified, or none.

Whatever clients remember stays valid: ids, events and positions in the feed, the store's id and
with it ETags and cursors, keys by their hashes. So the shop must not continue in both places:
nobody can write to the file meanwhile, and afterwards it is marked as moved (`care.checks`).

Everything on the server, creating tables included, is one transaction. Tables are copied in the
order of their foreign keys. Then both sides are read in the order of the primary key and compared
value by value, instants as the API shows them. Rows are streamed, so memory does not grow with the
shop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

import psycopg
from sqlalchemy import Connection, Select, String, Table, make_url, select

from orders.settings import Settings
from orders.store import audit
from orders.store.care import checks
from orders.store.care.checks import AwayDatabase, UnfitDatabase
from orders.store.care.opening import InUse
from orders.store.database.database import (
    Database,
    Instant,
    InstantText,
    continue_ids_above,
    count_of,
    driver_of,
    highest_ids,
)
from orders.store.database.errors import StoreUnavailable, translated
from orders.store.postgres.database import PostgresDatabase, copy_into
from orders.store.postgres.upkeep import PostgresUpkeep
from orders.store.tables import METADATA, order_events, order_quarters, store

# How many rows of each side are in memory.
BATCH = 2_000
# Off while copying: rows that triggers write are copied as they are.
_TRIGGERS = {order_events.name: "order_quarters_kept"}
# In the order of their foreign keys.
_TABLES: Sequence[Table] = METADATA.sorted_tables
# A new database has a row in these: the store itself, and the totals of nothing.
_NEVER_EMPTY = (store.name, order_quarters.name)
# Makes a progress bar for a number of steps, which is called with the steps done.
Show = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True)
class Copied:
    """Where the shop is now, and the number of rows in each table."""

    where: str
    rows: dict[str, int]


def copy(source: Database, settings: Settings, show: Show) -> Copied:
    """Move a shop to the PostgreSQL database of the setting `copy_to`, and mark its file as moved.

    Nobody may serve the shop. `show` makes progress bars. UnfitDatabase where the target is not
    empty or can't be used, or the copy differs: nothing was changed, except as the message says.
    """
    target = PostgresDatabase(make_url(settings.copy_to), settings.instance, threads=1)
    is_copied = False
    try:
        with closing(target), _held(target) as upkeep, source.write() as connection:
            old = _Side(source.where, connection)
            # First, so that it is copied, too.
            audit.record(connection, datetime.now(UTC), "store.copied", f"to {target.where}")
            with upkeep.write() as new:
                rows = _copy_verified(old, _Side(target.where, new), show)
            is_copied = True
            checks.mark_as_moved(connection)
    except StoreUnavailable as error:  # of the source; the target's upkeep reports its own
        if is_copied:
            raise UnfitDatabase(
                f"The shop is in {target.where} now, but {source.where} could not be marked as "
                f"moved ({error}). Don't start a service on it any more."
            ) from None
        raise AwayDatabase(f"{source.where}: {error}. Fix that, then try again.") from None
    return Copied(target.where, rows)


@contextmanager
def _held(target: PostgresDatabase) -> Iterator[PostgresUpkeep]:
    """Yield the upkeep of a target that no service uses or can begin to use."""
    upkeep = PostgresUpkeep(target)
    try:
        lock = upkeep.acquire(alone=True)
    except InUse:
        raise UnfitDatabase(
            f"A service uses {target.where}. ORDERS_COPY_TO must be an empty database."
        ) from None
    with lock:
        yield upkeep


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two databases, in a transaction."""

    where: str
    connection: Connection

    def rows(self, table: Table) -> Iterator[list[tuple[Any, ...]]]:
        """Return a table's rows by primary key, in lists of `BATCH`, with instants as texts."""
        statement = _all_rows(table, self.connection.dialect.name)
        try:
            with translated(), self.connection.execute(statement) as result:
                while rows := result.fetchmany(BATCH):
                    yield list(map(tuple, rows))
        except StoreUnavailable as error:
            # Named here: one side is read while the other is written.
            raise AwayDatabase(f"{self.where}: {error}. Fix that, then try again.") from None

    def store_id(self) -> str:
        return str(self.connection.scalars(select(store.c.store_id)).one())


def _all_rows(table: Table, dialect: str) -> Select[Any]:
    # Texts in the order of their bytes, whatever the server's collation.
    bytewise = "BINARY" if dialect == "sqlite" else "C"
    keys = (
        column.collate(bytewise) if isinstance(column.type, String) else column
        for column in table.primary_key
    )
    shown = (
        InstantText(column) if isinstance(column.type, Instant) else column
        for column in table.columns
    )
    return select(*shown).order_by(*keys).execution_options(yield_per=BATCH)


def _copy_verified(old: _Side, new: _Side, show: Show) -> dict[str, int]:
    _refuse_data(old, new)
    rows = {table.name: count_of(old.connection, table) for table in _TABLES}
    _copy_all(old, new, show("Copying", sum(rows.values())))
    with show("Verifying", sum(rows.values())) as advance:
        for table in _TABLES:
            _verify(old, new, table, advance)
    for name, last_id in highest_ids(old.connection).items():
        continue_ids_above(new.connection, name, last_id)
    return rows


def _refuse_data(old: _Side, new: _Side) -> None:
    fillable = [table for table in _TABLES if table.name not in _NEVER_EMPTY]
    if not any(count_of(new.connection, table) for table in fillable):
        return
    if new.store_id() == old.store_id():
        raise UnfitDatabase(
            f"{new.where} already has this shop. Serve it from there (ORDERS_DATABASE_URL). Only "
            "if that was never done, drop that database, create an empty one and try again."
        )
    raise UnfitDatabase(
        f"{new.where} already has data. Set ORDERS_COPY_TO to an empty database (createdb)."
    )


def _copy_all(old: _Side, new: _Side, shown: AbstractContextManager[Callable[[int], None]]) -> None:
    for name in _NEVER_EMPTY:
        new.connection.exec_driver_sql(f"DELETE FROM {name}")  # noqa: S608 # nosec B608 - our own names
    for table, trigger in _TRIGGERS.items():
        new.connection.exec_driver_sql(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
    with shown as advance:
        for each in _TABLES:
            _copy_without_indexes(old, new, each, advance)
    for table, trigger in _TRIGGERS.items():
        new.connection.exec_driver_sql(f"ALTER TABLE {table} ENABLE TRIGGER {trigger}")
    for each in _TABLES:
        # Otherwise the planner would not know how many rows there are.
        new.connection.exec_driver_sql(f"ANALYZE {each.name}")


def _copy_without_indexes(
    old: _Side, new: _Side, table: Table, advance: Callable[[int], None]
) -> None:
    # Building an index afterwards takes a third of the time.
    for index in table.indexes:
        index.drop(new.connection)
    _copy(old, new, table, advance)
    for index in table.indexes:
        index.create(new.connection)


def _copy(old: _Side, new: _Side, table: Table, advance: Callable[[int], None]) -> None:
    row: Sequence[Any] | None = None

    def rows() -> Iterator[Sequence[Any]]:
        nonlocal row
        for batch in old.rows(table):
            for each in batch:
                row = each
                yield each
            advance(len(batch))

    try:
        copy_into(driver_of(new.connection), table, rows())
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise _rejected(old, table, row, error) from None


def _rejected(
    old: _Side, table: Table, row: Sequence[Any] | None, error: psycopg.Error
) -> UnfitDatabase:
    """Return an error that names the rejected row, without the value: it may be a secret."""
    if error.diag.message_primary is None and row is not None:  # it was never sent
        place, fault = f"{table.name}, {_named(table, _key(table, row))}", str(error)
    else:
        place = (error.diag.context or table.name).split(":")[0].removeprefix("COPY ")
        fault = error.diag.constraint_name or error.diag.sqlstate or "unknown"
    return UnfitDatabase(
        f"PostgreSQL rejects a row of {old.where} ({place}: {fault}). Nothing was copied."
    )


def _verify(old: _Side, new: _Side, table: Table, advance: Callable[[int], None]) -> None:
    none: list[tuple[Any, ...]] = []
    for ours, theirs in zip_longest(old.rows(table), new.rows(table), fillvalue=none):
        if ours != theirs:
            raise UnfitDatabase(
                f"The copy in {new.where} differs from {old.where}: {table.name}, "
                f"{_difference(table, ours, theirs)}. Nothing of it was kept. Look for foreign "
                "triggers and rules in that database, or use a new one, then try again."
            )
        advance(len(ours))


def _difference(table: Table, ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> str:
    """Describe the first row that differs and its columns, without the values."""
    old, new = next(pair for pair in zip_longest(ours, theirs) if pair[0] != pair[1])
    if new is None or (old is not None and _key(table, old) < _key(table, new)):
        return f"{_named(table, _key(table, old))}, is missing"
    if old is None or _key(table, new) < _key(table, old):
        return f"{_named(table, _key(table, new))}, should not be there"
    pairs = zip(table.columns, old, new, strict=True)
    columns = ", ".join(column.name for column, was, is_now in pairs if was != is_now)
    return f"{_named(table, _key(table, old))}, differs in {columns}"


def _key(table: Table, row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        value for column, value in zip(table.columns, row, strict=True) if column.primary_key
    )


def _named(table: Table, key: tuple[Any, ...]) -> str:
    pairs = zip(table.primary_key, key, strict=True)
    return ", ".join(f"{column.name} {value}" for column, value in pairs)
