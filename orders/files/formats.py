"""CSV and JSON Lines, read as rows of cells.

Each row comes with the number of the line that it begins on. Lines that can't be read become
faults.
"""

from __future__ import annotations

import codecs
import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any
from zoneinfo import ZoneInfo

from orders import strictjson
from orders.domain import MAX_INT64, parse_id
from orders.files import spreadsheets
from orders.files.rows import MAX_NAME_SHOWN, Cells, Fault, Faults, FileRefused, Sheet
from orders.files.shops import Export, LeftOut, Shop
from orders.files.spreadsheets import LONGEST_LINE, OptionMissing, Times, cell_text, folded

ENDINGS = {".csv", ".jsonl", ".ndjson"}
# Excel's "Unicode text" ends in .txt.
_TABLES = {".csv", ".tsv", ".txt"}
# The console's times are in seconds; this column of its CSV has their milliseconds.
_FRACTIONS = "milliseconds"


@dataclass(frozen=True)
class Reading:
    """The options of the command about a table.

    `columns` are headings by the columns of ours that they stand for; `pets` are ids by SKU or
    name, empty for a row that is no pet; `shop` exported it.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    ignore_others: bool = False
    pets: Mapping[str, str] | None = None
    dates: str | None = None
    zone: ZoneInfo | None = None
    shop: Shop | None = None


AS_WE_WRITE = Reading()


def ending_of(path: Path) -> str:
    return path.suffix.lower()


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's lines; of longer ones, only as much as shows that they are."""
    yield from iter(lambda: file.readline(LONGEST_LINE + 1), b"")


def read(
    pieces: Iterable[bytes],
    ending: str,
    sheet: Sheet,
    faults: Faults,
    reading: Reading = AS_WE_WRITE,
) -> Iterator[tuple[int, Cells]]:
    """Return the rows of a file as line numbers and cells; absent cells are left out.

    The pieces are its lines, or the part of a line beyond LONGEST_LINE. Rows that can't be read are
    left out and added to the faults. FileRefused where the name's ending or the header is wrong.
    """
    if ending in _TABLES:
        return _read_table(pieces, sheet, faults, reading)
    if ending not in ENDINGS:
        raise FileRefused([Fault(1, "", "the name must end in .csv or .jsonl")], 1)
    if reading != AS_WE_WRITE:
        raise FileRefused([Fault(1, "", "JSON is read without options: they are for tables")], 1)
    return _read_json_lines(pieces, sheet, faults)


def _read_table(
    pieces: Iterable[bytes], sheet: Sheet, faults: Faults, reading: Reading
) -> Iterator[tuple[int, Cells]]:
    layout: _Layout | None = None
    for line, row in _rows(pieces, faults):
        if layout is None:
            layout = _Layout(row, sheet, reading)
        elif (cells := layout.cells(line, row, faults)) is not None:
            yield line, cells
        if layout.ended:
            return


def _rows(pieces: Iterable[bytes], faults: Faults) -> Iterator[tuple[int, list[str]]]:
    """Yield the header, and each row that fits it, with its line number."""
    line = 1
    try:
        rows = spreadsheets.table(pieces, faults.remarks)
        header = [name.strip() for name in next(rows, [])]
        yield line, header
        line = rows.line_num + 1
        for row in rows:
            if len(row) == len(header):
                yield line, row
            elif row:
                reason = f"it has {len(row)} cells and the header {len(header)}"
                faults.add(Fault(line, "", reason))
            line = rows.line_num + 1
    except UnicodeDecodeError:
        faults.add(
            Fault(line, "", "it is neither UTF-8 nor Windows-1252 from here: save it as CSV")
        )
    except spreadsheets.LineTooLong:
        faults.add(Fault(line, "", f"it has a line of more than {LONGEST_LINE:,} characters"))
    except csv.Error as error:
        faults.add(Fault(line, "", f"it is not CSV from here on: {error}"))


class _Layout:
    """Where a table has the cells of a sheet, and how they are read.

    `ended` says that the rest can't be read, for want of an option.
    """

    def __init__(self, header: Sequence[str], sheet: Sheet, reading: Reading) -> None:
        self.ended = False
        self._pets, self._places = reading.pets, dict[str, int]()
        self._fractions: int | None = None
        self._zones: dict[str, ZoneInfo | None] = {}
        self._find(header, sheet, reading)
        self._export = _export(reading.shop, header, self._places) if reading.shop else None
        times = Times(reading.dates, reading.zone)
        self._times = [name for name in self._places if sheet.kinds[name].is_time]
        self._readers: list[tuple[str, Callable[[str], Any]]] = []
        for name, kind in sheet.kinds.items():
            if kind.is_time:
                read_time = partial(times.read, zone=self._zones.get(name))
                self._readers.append((name, lru_cache(16)(read_time)))
            elif kind.of_text:
                self._readers.append((name, kind.of_text))

    def _find(self, header: Sequence[str], sheet: Sheet, reading: Reading) -> None:
        wanted, faults = _wanted(sheet, reading), Faults()
        known = f"; the columns are {', '.join(sheet.kinds)}"
        for place, heading in enumerate(header):
            bare, zone = spreadsheets.zone_in(heading)
            names = wanted.get(folded(heading)) or wanted.get(folded(bare), [])
            for name in names:
                if name in self._places:
                    faults.add(Fault(1, "", f"the column {name} is there twice"))
                self._places[name], self._zones[name] = place, zone
            if heading == _FRACTIONS:
                self._fractions = place
            elif not names and not (reading.ignore_others or reading.shop):
                faults.add(Fault(1, "", f"unknown column {heading[:MAX_NAME_SHOWN]!r}{known}"))
                known = ""  # said only once
        for name, heading in reading.columns.items():
            if name not in sheet.kinds:
                faults.add(Fault(1, "", f"{name[:MAX_NAME_SHOWN]} is not a column here{known}"))
            elif name not in self._places:
                faults.add(Fault(1, "", f"there is no column {heading!r} for {name}"))
        if not header:
            faults.add(Fault(1, "", f"there is no header{known}"))
        faults.raise_if_any()

    def cells(self, line: int, row: Sequence[str], faults: Faults) -> Cells | None:
        """Return the cells of a row, or None where it is left out; add its faults."""
        if not any(row) and len(row) > 1:
            return None
        try:
            cells = self._texts(row)
        except LeftOut as reason:
            faults.remarks[str(reason)] += 1
            return None
        except ValueError as error:
            self._add(faults, line, "", error)
            return None
        for name, read_text in self._readers:
            if name in cells:
                try:
                    cells[name] = read_text(cells[name])
                except ValueError as error:
                    cells[name] = None
                    self._add(faults, line, name, error)
        return cells

    def _add(self, faults: Faults, line: int, column: str, error: ValueError) -> None:
        # Each line below would say it again.
        self.ended = isinstance(error, OptionMissing)
        faults.add(Fault(line, column, f"{error}"))

    def _texts(self, row: Sequence[str]) -> Cells:
        cells: Cells = self._export.cells(row) if self._export else {}
        for name, place in self._places.items():
            if (text := row[place]) and (text := cell_text(text)):
                cells[name] = text
        if self._fractions is not None:
            for name, fraction in zip(self._times, row[self._fractions].split(), strict=False):
                if name in cells and spreadsheets.is_in_seconds(cells[name]):
                    cells[name] += f".{fraction:0>3}"
        if self._pets is not None:
            cells["petId"] = _pet_of(cells, self._pets)
        elif self._export and not parse_id(cells.get("petId", "")):
            raise OptionMissing(
                f"its SKU, {_shown(cells.get('petId'))}, is not the number of a pet: give a table "
                "of SKU and petId with --pets"
            )
        return cells


def _export(shop: Shop, header: Sequence[str], named: Mapping[str, int]) -> Export:
    try:
        return Export(shop, header, named)
    except ValueError as error:
        raise FileRefused([Fault(1, "", f"{error}")], 1) from None


def _wanted(sheet: Sheet, reading: Reading) -> Mapping[str, list[str]]:
    """Return our columns by the heading, folded, that each has in the table."""
    wanted = defaultdict[str, list[str]](list)
    for name in sheet.kinds:
        # The columns of a shop's export are its own.
        if heading := reading.columns.get(name, "" if reading.shop else name):
            wanted[folded(heading)].append(name)
    return wanted


def _shown(text: str | None) -> str:
    return repr((text or "")[:MAX_NAME_SHOWN])


def _pet_of(cells: Cells, pets: Mapping[str, str]) -> str:
    for name in ("petId", "item"):
        pet = pets.get(cells.get(name, ""))
        if pet == "":
            raise LeftOut("left out, as the table of pets has no petId beside them")
        if pet:
            return pet
    raise ValueError(
        f"the table of pets has neither {_shown(cells.get('petId'))} nor "
        f"{_shown(cells.get('item'))}"
    )


def read_pets(pieces: Iterable[bytes], name: str) -> dict[str, str]:
    """Return the ids of pets by the SKUs, names or both that a table has beside them.

    `name` is the table's in messages. FileRefused where it has no column petId, or faults.
    """
    pets, faults, at = dict[str, str](), Faults(), None
    for line, row in _rows(pieces, faults):
        if at is None:
            at = next((at for at, each in enumerate(row) if folded(each) == "petid"), None)
            if at is None:
                faults.add(Fault(1, name, "there is no column petId"))
                break
            continue
        pet, *keys = map(str.strip, (row[at], *row[:at], *row[at + 1 :]))
        if pet and not parse_id(pet):
            reason = f"petId must be a whole number from 1 to {MAX_INT64}, or empty"
            faults.add(Fault(line, name, reason))
        for key in filter(None, keys):
            if pets.setdefault(key, pet) != pet:
                faults.add(Fault(line, name, f"{_shown(key)} has another petId above"))
    faults.raise_if_any()
    return pets


def _read_json_lines(
    lines: Iterable[bytes], sheet: Sheet, faults: Faults
) -> Iterator[tuple[int, Cells]]:
    for number, line in enumerate(lines, start=1):
        if len(line) > LONGEST_LINE:
            faults.add(Fault(number, "", f"it has a line of more than {LONGEST_LINE:,} bytes"))
            return
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not text.strip():
            continue
        try:
            value = strictjson.parse(text)
        except strictjson.NotStrictJson as error:
            faults.add(Fault(number, "", str(error)))
            continue
        if not isinstance(value, dict):
            faults.add(Fault(number, "", "it is not a JSON object"))
            continue
        for name in value:
            if name not in sheet.kinds:
                faults.add(Fault(number, name, "is not a column"))
        cells = ((name, cell) for name, cell in value.items() if name in sheet.kinds)
        yield number, {name: cell for name, cell in cells if cell is not None}
