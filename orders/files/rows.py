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
)
PET_COLUMNS = ("id", "name", "categoryId", "status")
WHOLE_NUMBERS = {"id", "petId", "quantity", "categoryId"}
# Numbers up to here are exact in every JSON reader and spreadsheet.
MAX_IMPORTED_ID = 2**53 - 1
_MAX_NAME = 255
_STATUSES = frozenset(status.value for status in Status)
_PET_STATUSES = frozenset(status.value for status in PetStatus)

# By column; absent cells are left out.
Cells = dict[str, Any]
# id (None: the store assigns one), petId, quantity, shipDate, status, placedAt, updatedAt,
# reference. Instants are texts as the API writes them.
CheckedOrder = tuple[int | None, int, int, str | None, str, str, str, str | None]


class BadRow(Exception):
    """A row can't be used."""

    def __init__(self, column: str, reason: str) -> None:
        """Say which column is wrong, and why."""
        super().__init__(reason)
        self.column = column
        self.reason = reason


def checked(
    rows: Iterable[tuple[int, Cells]], check: Callable[[Cells], Any], faults: Faults
) -> Iterator[tuple[int, Any]]:
    """Yield the valid rows, checked, with their line numbers; add the faults of the others."""
    for line, cells in rows:
        try:
            yield line, check(cells)
        except BadRow as bad:
            faults.add(Fault(line, bad.column, bad.reason))


def check_order(cells: Mapping[str, Any], now: str) -> CheckedOrder:
    """Return the order of a row, with its defaults. `now` is an instant as the API writes it.

    Raises:
        BadRow: a cell is missing or wrong.
    """
    status = _one_of(cells, "status", _STATUSES, Status.PENDING.value)
    ship_date = _instant(cells, "shipDate", None)
    if status == Status.SHIPPED and ship_date is None:
        raise BadRow("shipDate", "is required where status is shipped")
    placed_at = _instant(cells, "placedAt", now) or now
    reference = cells.get("reference")
    if reference is not None and not (
        isinstance(reference, str) and domain.is_reference(reference)
    ):
        raise BadRow("reference", "must be 1 to 64 characters without control characters")
    return (
        _whole(cells, "id", MAX_IMPORTED_ID) if "id" in cells else None,
        _whole(cells, "petId", MAX_INT64),
        _whole(cells, "quantity", MAX_QUANTITY) if "quantity" in cells else 1,
        ship_date,
        status,
        placed_at,
        _instant(cells, "updatedAt", placed_at) or placed_at,
        reference,
    )


def check_pet(cells: Mapping[str, Any]) -> Pet:
    """Return the pet of a row.

    Raises:
        BadRow: a cell is missing or wrong.
    """
    name = cells.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
        raise BadRow("name", f"must be 1 to {_MAX_NAME} printable characters")
    return Pet(
        _whole(cells, "id", MAX_INT64),
        name,
        _whole(cells, "categoryId", MAX_INT64) if "categoryId" in cells else None,
        PetStatus(_one_of(cells, "status", _PET_STATUSES, None)),
    )


def _whole(cells: Mapping[str, Any], column: str, most: int) -> int:
    value = cells.get(column)
    if value is None:
        raise BadRow(column, "is required")
    if type(value) is not int or not 1 <= value <= most:
        raise BadRow(column, f"must be a whole number from 1 to {most}")
    return value


def _one_of(
    cells: Mapping[str, Any], column: str, values: frozenset[str], default: str | None
) -> str:
    value = cells.get(column, default)
    if not isinstance(value, str) or value not in values:
        raise BadRow(column, f"must be one of {', '.join(sorted(values))}")
    return value


def _instant(cells: Mapping[str, Any], column: str, default: str | None) -> str | None:
    value = cells.get(column)
    if value is None:
        return default
    try:
        return domain.normalize_instant(value)
    except (TypeError, ValueError):
        raise BadRow(
            column, "must be a date-time with a time zone, such as 2026-12-01T08:00:00Z"
        ) from None
