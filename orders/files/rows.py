"""What a row of an imported file must be. A row is checked and becomes a tuple for the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from orders import domain
from orders.domain import MAX_INT64, MAX_QUANTITY, Pet, PetStatus, Status
from orders.files.faults import Fault, Faults

ORDER_COLUMNS = (
    "id",
    "petId",
    "quantity",
    "shipDate",
    "status",
    "placedAt",
    "updatedAt",
    "reference",
    "note",
)
PET_COLUMNS = ("id", "name", "categoryId", "status")
WHOLE_NUMBERS = {"id", "petId", "quantity", "categoryId"}
# Numbers up to here are exact in every JSON reader and spreadsheet.
MAX_IMPORTED_ID = 2**53 - 1
_MAX_NAME = 255
_REFERENCE = "must be 1 to 64 characters without control characters"
_NOTE = "must be 1 to 500 characters, without control characters but line breaks"
_STATUSES = frozenset(status.value for status in Status)
_PET_STATUSES = frozenset(status.value for status in PetStatus)

# By column; absent cells are left out.
Cells = dict[str, Any]
# id (None: the store assigns one), petId, quantity, shipDate, status, placedAt, updatedAt,
# reference, note. Instants are texts as the API writes them.
CheckedOrder = tuple[int | None, int, int, str | None, str, str, str, str | None, str | None]


class Row:
    """The cells of a row, of which each that is missing or wrong becomes a fault.

    What is returned in the place of such a cell is never stored: a file with faults is refused.
    """

    def __init__(self, line: int, cells: Mapping[str, Any], faults: Faults) -> None:
        """Read these cells of the row that begins on this line."""
        self._line = line
        self.cells = cells
        self._faults = faults

    def refuse(self, column: str, reason: str) -> None:
        """Add a fault of this row."""
        self._faults.add(Fault(self._line, column, reason))

    def whole(self, column: str, most: int, default: int | None = None) -> int:
        """Return a whole number of a column, which is required if there is no default."""
        value = self.cells.get(column, default)
        if type(value) is int and 1 <= value <= most:
            return value
        missing = value is None
        self.refuse(
            column, "is required" if missing else f"must be a whole number from 1 to {most}"
        )
        return 0

    def optional_whole(self, column: str, most: int) -> int | None:
        """Return a whole number of a column, or None if the cell is absent."""
        return self.whole(column, most) or None if column in self.cells else None

    def one_of(self, column: str, values: frozenset[str], default: str | None = None) -> str:
        """Return one of these values."""
        value = self.cells.get(column, default)
        if isinstance(value, str) and value in values:
            return value
        self.refuse(column, f"must be one of {', '.join(sorted(values))}")
        return min(values)

    def text(self, column: str, is_valid: Callable[[str], bool], must: str) -> str:
        """Return a text, which is required."""
        value = self.cells.get(column)
        if isinstance(value, str) and is_valid(value):
            return value
        self.refuse(column, must)
        return ""

    def optional_text(self, column: str, is_valid: Callable[[str], bool], must: str) -> str | None:
        """Return a text, or None if the cell is absent."""
        return self.text(column, is_valid, must) if column in self.cells else None

    def instant(self, column: str) -> str | None:
        """Return an instant as the API writes it, or None if the cell is absent."""
        value = self.cells.get(column)
        if value is None:
            return None
        try:
            return domain.normalize_instant(value)
        except (TypeError, ValueError):
            example = "2026-12-01T08:00:00Z"
            self.refuse(column, f"must be a date-time with a time zone, such as {example}")
            return example


def checked(
    rows: Iterable[tuple[int, Cells]], check: Callable[[Row], Any], faults: Faults
) -> Iterator[tuple[int, Any]]:
    """Yield the rows, checked, with their line numbers; add each fault to the faults."""
    for line, cells in rows:
        yield line, check(Row(line, cells, faults))


def check_order(row: Row, now: str) -> CheckedOrder:
    """Return the order of a row, with its defaults. `now` is an instant as the API writes it."""
    order_id = row.optional_whole("id", MAX_IMPORTED_ID)
    pet_id = row.whole("petId", MAX_INT64)
    quantity = row.whole("quantity", MAX_QUANTITY, 1)
    ship_date = row.instant("shipDate")
    status = row.one_of("status", _STATUSES, Status.PENDING.value)
    if status == Status.SHIPPED and ship_date is None:
        row.refuse("shipDate", "is required where status is shipped")
    placed_at = row.instant("placedAt") or now
    updated_at = row.instant("updatedAt") or placed_at
    reference = row.optional_text("reference", domain.is_reference, _REFERENCE)
    note = row.optional_text("note", domain.is_note, _NOTE)
    return order_id, pet_id, quantity, ship_date, status, placed_at, updated_at, reference, note


def check_pet(row: Row) -> Pet:
    """Return the pet of a row."""
    return Pet(
        row.whole("id", MAX_INT64),
        row.text("name", _is_name, f"must be 1 to {_MAX_NAME} printable characters"),
        row.optional_whole("categoryId", MAX_INT64),
        PetStatus(row.one_of("status", _PET_STATUSES)),
    )


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= _MAX_NAME and text.isprintable()
