"""The rules for the rows of an imported file: each cell by itself, then those that need others.

Errors are collected as faults, each with its line, column and reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Integer

from orders import domain
from orders.domain import (
    MAX_INT64,
    MAX_QUANTITY,
    Pet,
    PetStatus,
    Refusal,
    Status,
    name_in_api,
)
from orders.store.tables import FreeText
from orders.store.tables import orders as order_table

# The first faults are reported, the rest only counted.
REPORTED = 100
MAX_NAME_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in a file. `column` is empty where it is not about one column."""

    line: int
    column: str
    reason: str

    def __str__(self) -> str:
        # A column's name comes from the file and may be of any length.
        column = f", {self.column[:MAX_NAME_SHOWN]}" if self.column else ""
        return f"line {self.line}{column}: {self.reason}"


class FileRefused(Refusal):
    def __init__(self, faults: Sequence[Fault], count: int) -> None:
        """Refuse because of these first faults, of `count` in all."""
        self.faults, self.count = faults, count
        more = f"; and {count - len(faults):,} more" if count > len(faults) else ""
        super().__init__(
            f"Nothing was imported. {'; '.join(map(str, faults))}{more}. Fix the file."
        )


class Faults:
    """The first faults of a file, and how many there are.

    `remarks` are other things worth saying, with the number of rows that each is about.
    """

    def __init__(self, reported: int = REPORTED) -> None:
        self.remarks = Counter[str]()
        self.first: list[Fault] = []
        self.count = 0
        self._reported = reported

    def add(self, fault: Fault) -> None:
        self.count += 1
        if len(self.first) < self._reported:
            self.first.append(fault)

    def raise_if_any(self) -> None:
        if self.count:
            raise FileRefused(self.first, self.count)


# Numbers up to here are exact in every JSON reader and spreadsheet.
MAX_IMPORTED_ID = 2**53 - 1
_MAX_NAME = 255
_MAX_DIGITS = 19
_PENDING, _SHIPPED = Status.PENDING.value, Status.SHIPPED.value

# By column; absent cells are left out.
Cells = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """The kind of a cell.

    `check` returns its value as it is stored, or raises ValueError with the reason. `of_text` makes
    it from the text of a cell of CSV, which may not be one; the check decides. How a time is read
    depends on the file (`spreadsheets.Times`).
    """

    check: Callable[[Any], Any]
    of_text: Callable[[str], Any] | None = None
    is_time: bool = False


def _number(text: str) -> int | str:
    digits = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if digits else text


def _whole(most: int) -> Kind:
    def check(value: Any) -> int:
        if type(value) is int and 1 <= value <= most:
            return value
        raise ValueError(f"must be a whole number from 1 to {most}")

    return Kind(check, _number)


def _flag(value: Any) -> int:
    if isinstance(value, bool):
        return int(value)
    raise ValueError("must be true or false")


_FLAG = Kind(_flag, lambda text: {"true": True, "false": False}.get(text.lower(), text))


def _one_of(values: type[StrEnum]) -> Kind:
    names = frozenset(each.value for each in values)

    def check(value: Any) -> str:
        if isinstance(value, str) and value in names:
            return value
        raise ValueError(f"must be one of {', '.join(sorted(names))}")

    return Kind(check)


def _text(is_valid: Callable[[str], bool], must: str) -> Kind:
    def check(value: Any) -> str:
        if isinstance(value, str) and is_valid(value):
            return value
        raise ValueError(must)

    return Kind(check)


# Two instants of a row are often the same.
_normalized = lru_cache(maxsize=16)(domain.normalize_instant)


def _instant(value: Any) -> str:
    try:
        return _normalized(value)
    except domain.LeapSecond:
        raise ValueError("must have seconds from 00 to 59: a leap second can't be stored") from None
    except (TypeError, ValueError):
        example = "2026-12-01T08:00:00Z"
        raise ValueError(f"must be a date-time with a time zone, such as {example}") from None


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= _MAX_NAME and text.isprintable()


def _kind_of(column: Column[Any]) -> Kind:
    """Return the kind of cells of a column of the orders."""
    if column.name in _OWN_KINDS:
        return _OWN_KINDS[column.name]
    if isinstance(column.type, FreeText):
        rule = domain.TEXTS[column.name]
        return _text(rule.is_met, rule.must)
    if isinstance(column.type, Integer):
        return _whole(MAX_INT64 if isinstance(column.type, BigInteger) else MAX_QUANTITY)
    return _FLAG if isinstance(column.type, Boolean) else Kind(_instant, is_time=True)


_OWN_KINDS = {"id": _whole(MAX_IMPORTED_ID), "status": _one_of(Status)}


@dataclass(frozen=True)
class Sheet:
    """A kind of table: the kinds of its columns' cells, and those that every row must have."""

    kinds: dict[str, Kind]
    required: tuple[str, ...]


ORDERS = Sheet(
    {name_in_api(column.name): _kind_of(column) for column in order_table.columns},
    required=("petId",),
)
# Absent values are empty, because the driver takes 3 µs for each None: it looks for an adapter.
_IF_ABSENT: Cells = dict.fromkeys(ORDERS.kinds, "") | {"quantity": 1, "status": _PENDING}
PETS = Sheet(
    {
        "id": _whole(MAX_INT64),
        "name": _text(_is_name, f"must be 1 to {_MAX_NAME} printable characters"),
        "categoryId": _whole(MAX_INT64),
        "status": _one_of(PetStatus),
    },
    required=("id", "name", "status"),
)


def checked(
    rows: Iterable[tuple[int, Cells]], sheet: Sheet, faults: Faults
) -> Iterator[tuple[int, Cells]]:
    """Yield the rows, checked, with their line numbers; add each fault to the faults.

    A cell that is wrong becomes None, which is never stored: a file with faults is refused.
    """
    checks = {name: kind.check for name, kind in sheet.kinds.items()}
    for line, cells in rows:
        for name, value in cells.items():
            if value is None:  # the reader has said why
                continue
            try:
                cells[name] = checks[name](value)
            except ValueError as error:
                cells[name] = None
                faults.add(Fault(line, name, str(error)))
        for name in sheet.required:
            if name not in cells:
                faults.add(Fault(line, name, "is required"))
        yield line, cells


def orders(
    rows: Iterable[tuple[int, Cells]], now: str, faults: Faults
) -> Iterator[tuple[Any, ...]]:
    """Yield the orders of rows, checked, with defaults: what `Staging` takes.

    `now` is an instant as the API writes it, as are those of the orders.
    """
    unnumbered, absent = 0, _IF_ABSENT | {"placedAt": now}
    for line, cells in checked(rows, ORDERS, faults):
        if cells.get("status") == _SHIPPED and "shipDate" not in cells:
            faults.add(Fault(line, "shipDate", "is required where status is shipped"))
        if cells.get("status") != _SHIPPED and "tracking" in cells:
            faults.add(Fault(line, "tracking", "may be given only where status is shipped"))
        if "id" not in cells:
            unnumbered += 1
        unchanged = {"updatedAt": cells.get("placedAt", now)}
        yield line, unnumbered, *(absent | unchanged | cells).values()


def pet(cells: Cells) -> Pet:
    return Pet(cells["id"], cells["name"], cells.get("categoryId"), PetStatus(cells["status"]))
