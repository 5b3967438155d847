"""The rows in an SQLite file's pages, each read by itself: for where what leads to them is damaged.

SQLite's own recovery (`.recover`) does the same, but few builds of its program have it: Debian 12's
has not. https://www.sqlite.org/fileformat.html, sections 1.6, 2.1 and 2.3.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

_LEAF_OF_TABLE = 13
_PAGE_BYTES = 4096
_SIZES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
_REAL, _ZERO, _ONE, _FIRST_BLOB = 7, 8, 9, 12

Value = int | float | str | bytes | None


class _Nonsense(Exception):
    """These bytes are no row."""


def rows(path: Path) -> Iterator[tuple[int, list[Value]]]:
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
    if kind in (_ZERO, _ONE):
        return kind - _ZERO
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
