"""Copying all that can be read of a damaged SQLite file into a new one.

Each table is read by its row ids, without indexes: damage in an index costs nothing, and damage in
a page of a table the rows of that page, or of the pages that it leads to. Those are then looked for
page by page. An order that is still missing is made again from its last event, which has all of it;
one whose history is missing gets an event that says how it stands.

Page by page, each row is read by itself, without what leads to it. SQLite's own recovery
(`.recover`) does the same, but few builds of its program have it: Debian 12's has not.
https://www.sqlite.org/fileformat.html, sections 1.6, 2.1 and 2.3.
"""

from __future__ import annotations

import mmap
import shutil
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orders import system
from orders.domain import SEARCHED, search_words
from orders.store.care import checks, files, opening
from orders.store.care.checks import UnfitDatabase
from orders.store.database import errors, sqlite
from orders.store.orders import COPIED
from orders.store.tables import (
    METADATA,
    api_keys,
    order_events,
    order_words,
    orders,
)

# Row ids are positive but for EVER's. The highest is assumed where it can't be read.
_LOWEST, _HIGHEST = -1, 2**53
# Asked for one row, SQLite doesn't look at the page after it.
_ONE, _SOME = "= max(?, ?)", "BETWEEN ? AND ?"
# If every page of a table is damaged, not every id is tried: this many take some seconds.
_MOST_FAILURES = 200_000
# Their rows are recognised by their CHECKs, or by how many columns they have.
_HAVE_CHECKS = (order_events.name, orders.name)
_KNOWN_BY_SHAPE = (*_HAVE_CHECKS, api_keys.name)
_SCHEMA = (
    "SELECT type, name, sql FROM {}.sqlite_schema "
    "WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)

_LEAF_OF_TABLE = 13
_PAGE_BYTES = 4096
_SIZES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
_REAL, _CONSTANT_0, _CONSTANT_1, _FIRST_BLOB = 7, 8, 9, 12

Value = int | float | str | bytes | None

# The type, name and SQL of each table, index and trigger.
Schema = list[tuple[str, str, str]]


@dataclass
class Salvaged:
    """The rows saved of each table, and the ranges of row ids that can't be read.

    `found` counts the rows of those that were found page by page, `remade` orders made from their
    last event, `unexplained` orders that differ from it or have none, `dangling` rows that refer to
    lost ones and were left out, and `lost` the orders in those ranges that are missing for good.
    """

    rows: dict[str, int] = field(default_factory=dict)
    unread: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    found: int = 0
    remade: int = 0
    unexplained: int = 0
    dangling: int = 0
    lost: int = 0
    orders: int = 0
    is_schema_read: bool = True


def salvage(source: Path, target: Path) -> Salvaged:
    """Copy what can be read of a damaged file to a new one, which is checked."""
    source.open("rb").close()
    with (
        files.complete_file(target, "backup") as unfinished,
        files.scratch_folder(target.parent, "restore") as folder,
    ):
        damaged = _copy_files(source, folder)
        done = Salvaged()
        _fill(unfinished, damaged, source, done)
        if not done.orders and done.unread:
            raise UnfitDatabase(f"{source} can't be salvaged: no order can be found in it.")
        opening.upgrade(unfinished, keep_copy=False)
        _write_derived(unfinished)
        checks.check_whole(unfinished)
        with closing(sqlite.connect(unfinished)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            done.rows = {name: _count(connection, name) for name in sorted(METADATA.tables)}
        system.leave_to_owner(unfinished, target.parent)
    return done


def _copy_files(source: Path, folder: Path) -> Path:
    # A reader keeps the log from beginning anew meanwhile, so that both files belong together.
    with suppress(sqlite.sqlite_module().Error, OSError), closing(_reader(source)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        return _copy_both(source, folder)
    return _copy_both(source, folder)


def _reader(path: Path) -> Any:
    return sqlite.sqlite_module().connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _copy_both(source: Path, folder: Path) -> Path:
    copied = folder / "damaged.db"
    shutil.copyfile(source, copied)
    log = sqlite.log_of(source)
    if log.exists():
        shutil.copyfile(log, sqlite.log_of(copied))
    return copied


def _fill(target: Path, damaged: Path, source: Path, done: Salvaged) -> None:
    with closing(sqlite.connect(target)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        # Each range is a transaction of its own, since one that met damage can't be committed.
        connection.execute("PRAGMA synchronous = OFF")
        schema, version, is_readable = _read_schema(connection, damaged, source)
        _make(connection, schema, "table", "")
        _make(connection, schema, "index", "CREATE UNIQUE")
        # These are made again from the orders.
        tables = [name for kind, name, _ in schema if kind == "table" and name != order_words.name]
        if is_readable:
            done.unread = {name: lost for name in tables if (lost := _copy_rows(connection, name))}
            _copy_sequences(connection)
            connection.execute("DETACH damaged")
        else:
            done.is_schema_read = False
            done.unread = {name: [(_LOWEST, _HIGHEST)] for name in tables}
        if done.unread:
            done.found = _copy_by_page(connection, damaged, done.unread)
        _make(connection, schema, "index", "CREATE INDEX")
        _complete(connection, done)
        _make(connection, schema, "trigger", "")
        connection.execute(f"PRAGMA application_id = {checks.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version:d}")


def _read_schema(connection: Any, damaged: Path, source: Path) -> tuple[Schema, int, bool]:
    """Attach the damaged file; return its schema, or else this program's, its number, and which."""
    new = damaged.with_name("new.db")
    opening.create(new)
    with closing(sqlite.connect(new)) as other:
        own = other.execute(_SCHEMA.format("main")).fetchall()
    try:
        connection.execute("ATTACH ? AS damaged", (str(damaged),))
        schema = connection.execute(_SCHEMA.format("damaged")).fetchall()
        (version,) = connection.execute("PRAGMA damaged.user_version").fetchone()
    except sqlite.sqlite_module().Error as error:
        if errors.unavailable_cause(error) not in {None, errors.DAMAGED}:
            raise
        return own, checks.schema_version(), False
    if orders.name not in {name for _, name, _ in schema}:
        raise UnfitDatabase(f"{source} is not a database of this program.")
    return schema, version, True


def _make(connection: Any, schema: Schema, kind: str, begins: str) -> None:
    for each, _, statement in schema:
        if each == kind and statement.startswith(begins):
            connection.execute(statement)


def _copy_rows(connection: Any, table: str) -> list[tuple[int, int]]:
    """Copy a table's rows by their ids; return the ranges that can't be read."""
    lost: list[tuple[int, int]] = []
    failures, left = 0, [_bounds(connection, table)]
    while left:
        low, high = left.pop()
        if _copy_range(connection, table, low, high):
            continue
        failures += 1
        if low == high or failures > _MOST_FAILURES:
            begins = lost.pop()[0] if lost and lost[-1][1] == low - 1 else low
            lost.append((begins, high))
        else:
            middle = (low + high) // 2
            left += [(middle + 1, high), (low, middle)]
    return lost


def _copy_range(connection: Any, table: str, low: int, high: int) -> bool:
    try:
        connection.execute(
            f'INSERT OR IGNORE INTO main."{table}" SELECT * FROM damaged."{table}" NOT INDEXED '  # noqa: S608 # nosec B608 - a name of the schema
            f"WHERE rowid {_ONE if low == high else _SOME}",
            (low, high),
        )
    except sqlite.sqlite_module().Error as error:
        if errors.unavailable_cause(error) != errors.DAMAGED:
            raise
        return False
    return True


def _bounds(connection: Any, table: str) -> tuple[int, int]:
    bounds = []
    for which, otherwise in (("min", _LOWEST), ("max", _highest_given(connection, table))):
        try:
            statement = f'SELECT {which}(rowid) FROM damaged."{table}" NOT INDEXED'  # noqa: S608 # nosec B608 - as above
            (found,) = connection.execute(statement).fetchone()
            bounds.append(0 if found is None else found)
        except sqlite.sqlite_module().Error:
            bounds.append(otherwise)
    return bounds[0], bounds[1]


def _highest_given(connection: Any, table: str) -> int:
    with suppress(sqlite.sqlite_module().Error):
        statement = "SELECT seq FROM damaged.sqlite_sequence WHERE name = ?"
        for (highest,) in connection.execute(statement, (table,)).fetchall():
            return int(highest)
    return _HIGHEST


def _copy_sequences(connection: Any) -> None:
    with suppress(sqlite.sqlite_module().Error):
        connection.execute("DELETE FROM main.sqlite_sequence")
        connection.execute("INSERT INTO main.sqlite_sequence SELECT * FROM damaged.sqlite_sequence")


def _copy_by_page(connection: Any, damaged: Path, unread: dict[str, list[tuple[int, int]]]) -> int:
    """Copy rows recognised by their shape from pages of any table; return how many."""
    with suppress(sqlite.sqlite_module().Error), closing(sqlite.connect(damaged)) as log:
        log.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    statements: dict[str, tuple[range, list[tuple[int, int]]]] = {}
    for table in (name for name in _KNOWN_BY_SHAPE if name in unread):
        lengths = _lengths(connection, table)
        marks = ", ".join("?" for _ in range(lengths[-1]))
        # The table's CHECKs decide whether it is a row of this table.
        statement = f'INSERT OR IGNORE INTO "{table}" VALUES ({marks})'  # noqa: S608 # nosec B608 - as above
        statements[statement] = lengths, unread[table]
    before = connection.total_changes
    connection.execute("BEGIN")
    for row_id, values in rows_of_pages(damaged):
        for statement, (lengths, ranges) in statements.items():
            if len(values) in lengths and _is_in(row_id, ranges):
                padded = [row_id, *values[1:], *[None] * (lengths[-1] - len(values))]
                connection.execute(statement, padded)
    connection.execute("COMMIT")
    return int(connection.total_changes - before)


def _lengths(connection: Any, table: str) -> range:
    """Return how many values a row may have: it has none for columns added since it was written."""
    columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    required = [number for number, *_, is_required, _, _ in columns if is_required]
    fewest = required[-1] + 1 if table in _HAVE_CHECKS else len(columns)
    return range(fewest, len(columns) + 1)


def _is_in(row_id: int, ranges: list[tuple[int, int]]) -> bool:
    return any(low <= row_id <= high for low, high in ranges)


def _columns(connection: Any, table: str) -> list[str]:
    found = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    return [column[1] for column in found]


def _complete(connection: Any, done: Salvaged) -> None:
    """Make orders and events agree, and leave out rows that refer to lost ones."""
    own = set(_columns(connection, orders.name))
    copied = ", ".join(name for name in COPIED if name in own)
    newest = "SELECT max(id) FROM order_events GROUP BY order_id"
    done.remade = _changed(
        connection,
        f"INSERT INTO orders (id, {copied}) SELECT order_id, {copied} FROM order_events "  # noqa: S608 # nosec B608 - as above
        f"WHERE id IN ({newest}) AND order_id NOT IN (SELECT id FROM orders)",
    )
    # Like an imported one: what happened to it before is not known.
    done.unexplained = _changed(
        connection,
        f"INSERT INTO order_events (type, order_id, at, actor, {copied}) "  # noqa: S608 # nosec B608 - as above
        f"SELECT 'order.imported', id, updated_at, 'cli', {copied} FROM orders AS own "
        f"WHERE ({copied}) IS NOT (SELECT {copied} FROM order_events "
        "WHERE order_id = own.id ORDER BY id DESC LIMIT 1)",
    )
    if "demo_key_id" in _columns(connection, "store"):
        connection.execute(
            "UPDATE store SET demo_key_id = NULL WHERE demo_key_id NOT IN (SELECT id FROM api_keys)"
        )
    for table, row, *_ in connection.execute("PRAGMA foreign_key_check").fetchall():
        done.dangling += _changed(connection, f'DELETE FROM "{table}" WHERE rowid = {row:d}')  # noqa: S608 # nosec B608 - as above
    done.orders = _count(connection, orders.name)
    done.lost = sum(_missing(connection, low, high) for low, high in done.unread.get("orders", []))
    if not _count(connection, "store"):
        connection.execute("INSERT INTO store (id, store_id) VALUES (1, lower(hex(randomblob(8))))")


def _missing(connection: Any, low: int, high: int) -> int:
    """Return how many ids in a range belong to no order."""
    (highest,) = connection.execute("SELECT max(order_id) FROM order_events").fetchone()
    (given,) = connection.execute(
        "SELECT max(seq) FROM sqlite_sequence WHERE name = 'orders'"
    ).fetchone()
    low, high = max(low, 1), min(high, max(highest or 0, given or 0))
    (count,) = connection.execute(
        "SELECT count(*) FROM orders WHERE id BETWEEN ? AND ?", (low, high)
    ).fetchone()
    return max(0, high - low + 1 - int(count))


def _write_derived(path: Path) -> None:
    """Rewrite what is derived from orders and events: counts, and words to search."""
    texts = ", ".join(SEARCHED)
    with closing(sqlite.connect(path)) as connection:
        connection.execute("BEGIN")
        connection.execute("DELETE FROM order_quarters")
        connection.execute(f"INSERT INTO order_quarters {checks.quarters_anew()}")  # nosec B608 - our own names
        rows = connection.execute(f"SELECT id, {texts} FROM orders ORDER BY id")  # noqa: S608 # nosec B608 - as above
        found = ((row[0], word) for row in rows for word in search_words(row[1:]))
        connection.executemany("INSERT INTO order_words (order_id, word) VALUES (?, ?)", found)
        connection.execute("COMMIT")


def _changed(connection: Any, statement: str) -> int:
    return int(connection.execute(statement).rowcount)


def _count(connection: Any, table: str) -> int:
    (count,) = connection.execute(f'SELECT count(*) FROM "{table}" NOT INDEXED').fetchone()  # noqa: S608 # nosec B608 - our own names
    return int(count)


class _Nonsense(Exception):
    """The bytes are no row."""


def rows_of_pages(path: Path) -> Iterator[tuple[int, list[Value]]]:
    """Yield the row id and the values of each row of any table whose page is whole.

    Pages that SQLite has freed are passed over: their rows are of earlier states.
    """
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        size = _page_size(pages)
        freed = _freed(pages, size)
        for number in range(2, len(pages) // size + 1):
            page = pages[(number - 1) * size : number * size]
            if page[0] == _LEAF_OF_TABLE and number not in freed:
                yield from _rows_of_page(pages, page, size)


def _page_size(pages: mmap.mmap) -> int:
    size = int.from_bytes(pages[16:18])
    is_known = pages[:6] == b"SQLite" and size in {2**power for power in range(9, 16)}
    return size if is_known else _PAGE_BYTES


def _freed(pages: mmap.mmap, size: int) -> set[int]:
    found: set[int] = set()
    if pages[:6] != b"SQLite":
        return found
    trunk = struct.unpack_from(">I", pages, 32)[0]
    while trunk and trunk not in found and trunk * size <= len(pages):
        begins = (trunk - 1) * size
        after, count = struct.unpack_from(">II", pages, begins)
        found.add(trunk)
        found.update(struct.unpack_from(f">{min(count, size // 4 - 2)}I", pages, begins + 8))
        trunk = after
    return found


def _rows_of_page(pages: mmap.mmap, page: bytes, size: int) -> Iterator[tuple[int, list[Value]]]:
    (count,) = struct.unpack_from(">H", page, 3)
    for cell in range(min(count, (size - 8) // 2)):
        (at,) = struct.unpack_from(">H", page, 8 + 2 * cell)
        try:
            length, at = _varint(page, at)
            row_id, at = _varint(page, at)
            yield _signed(row_id), _values(_payload(pages, page[at:], length, size))
        except (_Nonsense, IndexError, struct.error, UnicodeDecodeError):
            continue


def _payload(pages: mmap.mmap, rest: bytes, length: int, size: int) -> bytes:
    # How much of a long row is in the page itself; a chain of others has the rest.
    most, least = size - 35, (size - 12) * 32 // 255 - 23
    if length <= most:
        return _cut(rest, length)
    local = least + (length - least) % (size - 4)
    whole = _cut(rest, local if local <= most else least)
    (following,) = struct.unpack_from(">I", rest, len(whole))
    while following and len(whole) < length:
        page = pages[(following - 1) * size : following * size]
        (following,) = struct.unpack_from(">I", page, 0)
        whole += page[4 : 4 + length - len(whole)]
    return _cut(whole, length)


def _cut(content: bytes, length: int) -> bytes:
    if len(content) < length:
        raise _Nonsense
    return content[:length]


def _values(record: bytes) -> list[Value]:
    header, at = _varint(record, 0)
    body, values = header, []
    while at < header:
        kind, at = _varint(record, at)
        length = (kind - _FIRST_BLOB) // 2 if kind >= _FIRST_BLOB else _SIZES.get(kind, -1)
        if length < 0 or body + length > len(record):
            raise _Nonsense
        values.append(_value(kind, record[body : body + length]))
        body += length
    if at != header or body != len(record):
        raise _Nonsense
    return values


def _value(kind: int, content: bytes) -> Value:
    if kind == 0:
        return None
    if kind == _REAL:
        return float(struct.unpack(">d", content)[0])
    if kind in (_CONSTANT_0, _CONSTANT_1):
        return kind - _CONSTANT_0
    if kind < _FIRST_BLOB:
        return int.from_bytes(content, signed=True)
    return content.decode() if kind % 2 else content


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        byte = content[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that another follows
            return value, at
    return value << 8 | content[at], at + 1


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
