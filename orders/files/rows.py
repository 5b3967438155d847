"""What the rows of an imported file must be: each cell by itself, then those that need others.

What is wrong is collected as faults, each with its line, column and reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from orders import domain
from orders.domain import MAX_INT64, MAX_QUANTITY, Pet, PetStatus, Refusal, Status

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
        """Return it in words."""
        # A column's name comes from the file and may be of any length.
        column = f", {self.column[:MAX_NAME_SHOWN]}" if self.column else ""
        return f"line {self.line}{column}: {self.reason}"


class FileRefused(Refusal):
    """A file has faults, and nothing of it was imported."""

    def __init__(self, faults: Sequence[Fault], count: int) -> None:
        """Refuse because of these first faults, of `count` in all."""
        more = f"; and {count - len(faults):,} more" if count > len(faults) else ""
        super().__init__(
            f"Nothing was imported. {'; '.join(map(str, faults))}{more}. Fix the file."
        )


class Faults:
    """Collects the faults of a file."""

    def __init__(self) -> None:
        """Begin without any."""
        self._first: list[Fault] = []
        self._count = 0

    def add(self, fault: Fault) -> None:
        """Add a fault."""
        self._count += 1
        if len(self._first) < REPORTED:
            self._first.append(fault)

    def raise_if_any(self) -> None:
        """Refuse the file if it has faults.

        Raises:
            FileRefused: it has.
        """
        if self._count:
            raise FileRefused(self._first, self._count)


WHOLE_NUMBERS = {"id", "petId", "quantity", "categoryId"}
# Numbers up to here are exact in every JSON reader and spreadsheet.
MAX_IMPORTED_ID = 2**53 - 1
_MAX_NAME = 255
_REFERENCE = "must be 1 to 64 characters without control characters"
_NOTE = "must be 1 to 500 characters, without control characters but line breaks"
_PENDING, _SHIPPED = Status.PENDING.value, Status.SHIPPED.value

# By column; absent cells are left out.
Cells = dict[str, Any]
# Returns a cell's value as it is stored, or raises ValueError with the reason.
Check = Callable[[Any], Any]


def _whole(most: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is int and 1 <= value <= most:
            return value
        raise ValueError(f"must be a whole number from 1 to {most}")

    return check


def _one_of(values: type[StrEnum]) -> Check:
    names = frozenset(each.value for each in values)

    def check(value: Any) -> str:
        if isinstance(value, str) and value in names:
            return value
        raise ValueError(f"must be one of {', '.join(sorted(names))}")

    return check


def _text(is_valid: Callable[[str], bool], must: str) -> Check:
    def check(value: Any) -> str:
        if isinstance(value, str) and is_valid(value):
            return value
        raise ValueError(must)

    return check


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


@dataclass(frozen=True)
class Sheet:
    """A kind of table: the checks of its columns, and which of them every row must have."""

    checks: dict[str, Check]
    required: tuple[str, ...]


ORDERS = Sheet(
    {
        "id": _whole(MAX_IMPORTED_ID),
        "petId": _whole(MAX_INT64),
        "quantity": _whole(MAX_QUANTITY),
        "shipDate": _instant,
        "status": _one_of(Status),
        "placedAt": _instant,
        "updatedAt": _instant,
        "reference": _text(domain.is_reference, _REFERENCE),
        "note": _text(domain.is_note, _NOTE),
    },
    required=("petId",),
)
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
    checks = sheet.checks
    for line, cells in rows:
        for name, value in cells.items():
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

    `now` is an instant as the API writes it, as are those of the orders. What is absent is 0 or
    empty, because the driver takes 3 µs for each None: it looks for an adapter first.
    """
    unnumbered = 0
    for line, cells in checked(rows, ORDERS, faults):
        get = cells.get
        status = get("status", _PENDING)
        if status == _SHIPPED and "shipDate" not in cells:
            faults.add(Fault(line, "shipDate", "is required where status is shipped"))
        if "id" not in cells:
            unnumbered += 1
        placed_at = get("placedAt", now)
        yield (
            *(line, unnumbered, get("id", 0), get("petId"), get("quantity", 1)),
            *(get("shipDate", ""), status, placed_at, get("updatedAt", placed_at)),
            *(get("reference", ""), get("note", "")),
        )


def pet(cells: Cells) -> Pet:
    """Return the pet of a row without faults."""
    return Pet(cells["id"], cells["name"], cells.get("categoryId"), PetStatus(cells["status"]))
