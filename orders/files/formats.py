"""Files that move in and out: CSV and JSON Lines, and what a row of each kind must be.

A file is read as rows of cells, each with the number of the line that it begins on; a row is
checked and becomes a tuple for the store. What is wrong is told by line, column and reason.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from orders import domain, strictjson
from orders.domain import MAX_INT64, MAX_QUANTITY, Pet, PetStatus, Refusal, Status

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
# Numbers up to here are exact in every JSON reader and spreadsheet.
MAX_IMPORTED_ID = 2**53 - 1
FAULTS_TOLD = 10

_WHOLE_NUMBERS = {"id", "petId", "quantity", "categoryId"}
_MAX_DIGITS = 19
_MAX_NAME = 255
_NAME_TOLD = 64

Cells = dict[str, Any]
# id (None: the store's to give), petId, quantity, shipDate, status, placedAt, updatedAt, reference.
# Instants are texts as the API writes them.
CheckedOrder = tuple[int | None, int, int, str | None, str, str, str, str | None]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in a file. `column` is empty where it is not in one column."""

    line: int
    column: str
    reason: str

    def __str__(self) -> str:
        """Say it in words."""
        # A name of the file's own may be of any length.
        column = f", {self.column[:_NAME_TOLD]}" if self.column else ""
        return f"line {self.line}{column}: {self.reason}"


class FileRefused(Refusal):
    """A file has faults, and nothing of it was taken."""

    def __init__(self, faults: Sequence[Fault], count: int) -> None:
        """Take the first faults, and how many there are in all."""
        more = f"; and {count - len(faults):,} more" if count > len(faults) else ""
        super().__init__(
            f"Nothing was imported. {'; '.join(map(str, faults))}{more}. Mend the file."
        )
        self.faults = tuple(faults)
        self.count = count


class Faults:
    """Collects faults: the first few to tell, the rest to count."""

    def __init__(self) -> None:
        """Begin without any."""
        self._told: list[Fault] = []
        self._count = 0

    def add(self, fault: Fault) -> None:
        """Note a fault."""
        self._count += 1
        if len(self._told) < FAULTS_TOLD:
            self._told.append(fault)

    def raise_if_any(self) -> None:
        """Refuse the file if it has faults.

        Raises:
            FileRefused: it has.
        """
        if self._count:
            raise FileRefused(self._told, self._count)


class BadRow(Exception):
    """A row can't be used."""

    def __init__(self, column: str, reason: str) -> None:
        """Take the column it is about, and what is wrong with it."""
        super().__init__(reason)
        self.column = column
        self.reason = reason


def read(
    file: BinaryIO, ending: str, columns: Sequence[str], faults: Faults
) -> Iterator[tuple[int, Cells]]:
    """Return the rows of a file as line numbers and cells; absent cells are left out.

    `ending` is `.csv` or `.jsonl`; `columns` are those that may occur. Rows that can't be read are
    noted as faults and left out, as is all that is behind a line from which on it can't be read.

    Raises:
        FileRefused: the file can't be read at all.
    """
    if ending == ".csv":
        return _read_csv(file, columns, faults)
    if ending in {".jsonl", ".ndjson"}:
        return _read_json_lines(file, columns, faults)
    raise FileRefused([Fault(1, "", "the name must end in .csv or .jsonl")], 1)


def _read_csv(
    file: BinaryIO, columns: Sequence[str], faults: Faults
) -> Iterator[tuple[int, Cells]]:
    line = 1
    try:
        reader = csv.reader(_decoded_lines(file), strict=True, skipinitialspace=True)
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, columns)
        line = reader.line_num + 1
        for values in reader:
            if values:
                cells = _cells(header, values)
                if isinstance(cells, Fault):
                    faults.add(Fault(line, "", cells.reason))
                else:
                    yield line, cells
            line = reader.line_num + 1
    except UnicodeDecodeError:
        faults.add(Fault(line, "", "it is not UTF-8 from here on"))
    except csv.Error as error:
        faults.add(Fault(line, "", f"it is not CSV from here on: {error}"))


def _decoded_lines(file: BinaryIO) -> Iterator[str]:
    # Spreadsheets put a byte order mark before the first name.
    encoding = "utf-8-sig"
    for line in file:
        yield line.decode(encoding)
        encoding = "utf-8"


def _check_header(header: Sequence[str], columns: Sequence[str]) -> None:
    unknown = [name for name in header if name not in columns]
    if not header:
        reason = f"there is no header; the columns are {', '.join(columns)}"
    elif unknown:
        reason = f"unknown column {unknown[0][:_NAME_TOLD]!r}; the columns are {', '.join(columns)}"
    elif repeated := [name for name in columns if header.count(name) > 1]:
        reason = f"the column {repeated[0]} is there twice"
    else:
        return
    raise FileRefused([Fault(1, "", reason)], 1)


def _cells(header: Sequence[str], values: Sequence[str]) -> Cells | Fault:
    if len(values) != len(header):
        return Fault(0, "", f"it has {len(values)} cells and the header {len(header)}")
    cells: Cells = {
        name: text for name, value in zip(header, values, strict=True) if (text := value.strip())
    }
    for name in _WHOLE_NUMBERS & cells.keys():
        cells[name] = _number(cells[name])
    return cells


def _number(text: str) -> int | str:
    # A text that is no number stays one, and is refused by what checks the row.
    digits = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if digits else text


def _read_json_lines(
    file: BinaryIO, columns: Sequence[str], faults: Faults
) -> Iterator[tuple[int, Cells]]:
    for number, line in enumerate(file, start=1):
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not text.strip():
            continue
        try:
            value = strictjson.parse(text)
        except strictjson.NotStrictJson as error:
            faults.add(Fault(number, "", str(error)))
            continue
        unknown = [name for name in value if name not in columns] if _is_object(value) else []
        if not _is_object(value):
            faults.add(Fault(number, "", "it is not a JSON object"))
        elif unknown:
            faults.add(Fault(number, unknown[0], "is not a column"))
        else:
            yield number, {name: cell for name, cell in value.items() if cell is not None}


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


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


_STATUSES = frozenset(status.value for status in Status)
_PET_STATUSES = frozenset(status.value for status in PetStatus)


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


def checked(
    rows: Iterable[tuple[int, Cells]], check: Callable[[Cells], Any], faults: Faults
) -> Iterator[tuple[int, Any]]:
    """Return the valid rows, checked, with their line numbers; note the faults of others."""
    for line, cells in rows:
        try:
            yield line, check(cells)
        except BadRow as bad:
            faults.add(Fault(line, bad.column, bad.reason))


def write(file: TextIO, ending: str, batches: Iterable[Sequence[Sequence[Any]]]) -> None:
    """Write batches of order rows to a file, absent cells empty or left out."""
    if ending == ".csv":
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(ORDER_COLUMNS)
        for rows in batches:
            writer.writerows(rows)
        return
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for rows in batches:
        for row in rows:
            cells = zip(ORDER_COLUMNS, row, strict=True)
            file.write(encode({name: cell for name, cell in cells if cell is not None}) + "\n")


def ending_of(path: Path) -> str:
    """Return the ending of a file's name, such as `.csv`."""
    return path.suffix.lower()
