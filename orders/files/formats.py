"""CSV and JSON Lines, read as rows of cells.

Each row comes with the number of the line that it begins on. Lines that can't be read become
faults.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from orders import strictjson
from orders.files.rows import MAX_NAME_SHOWN, Cells, Fault, Faults, FileRefused, Sheet

ENDINGS = {".csv", ".jsonl", ".ndjson"}


def ending_of(path: Path) -> str:
    return path.suffix.lower()


def read(
    lines: Iterable[bytes], ending: str, sheet: Sheet, faults: Faults
) -> Iterator[tuple[int, Cells]]:
    """Return the rows of a file as line numbers and cells; absent cells are left out.

    Rows that can't be read are left out and added to the faults. FileRefused where the name's
    ending or the header is wrong.
    """
    if ending not in ENDINGS:
        raise FileRefused([Fault(1, "", "the name must end in .csv or .jsonl")], 1)
    read_rows = _read_csv if ending == ".csv" else _read_json_lines
    return read_rows(lines, sheet, faults)


def _read_csv(lines: Iterable[bytes], sheet: Sheet, faults: Faults) -> Iterator[tuple[int, Cells]]:
    line = 1
    try:
        reader = csv.reader(_decoded(lines), strict=True, skipinitialspace=True)
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, sheet.kinds)
        readers = [(name, read) for name in header if (read := sheet.kinds[name].of_text)]
        line = reader.line_num + 1
        for values in reader:
            if values:
                if len(values) == len(header):
                    yield line, _cells(header, values, readers)
                else:
                    reason = f"it has {len(values)} cells and the header {len(header)}"
                    faults.add(Fault(line, "", reason))
            line = reader.line_num + 1
    except UnicodeDecodeError:
        faults.add(Fault(line, "", "it is not UTF-8 from here on"))
    except csv.Error as error:
        faults.add(Fault(line, "", f"it is not CSV from here on: {error}"))


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    # Spreadsheets put a byte order mark before the first name.
    encoding = "utf-8-sig"
    for line in lines:
        yield line.decode(encoding)
        encoding = "utf-8"


def _check_header(header: Sequence[str], columns: Collection[str]) -> None:
    known = f"; the columns are {', '.join(columns)}"
    faults = Faults()
    for name in dict.fromkeys(header):
        if name not in columns:
            faults.add(Fault(1, "", f"unknown column {name[:MAX_NAME_SHOWN]!r}{known}"))
            known = ""  # which is said once
        elif header.count(name) > 1:
            faults.add(Fault(1, "", f"the column {name} is there twice"))
    if not header:
        faults.add(Fault(1, "", f"there is no header{known}"))
    faults.raise_if_any()


def _cells(
    header: Sequence[str],
    values: Sequence[str],
    readers: Sequence[tuple[str, Callable[[str], Any]]],
) -> Cells:
    cells: Cells = {
        name: text for name, value in zip(header, values, strict=True) if (text := value.strip())
    }
    for name, read_text in readers:
        if name in cells:
            cells[name] = read_text(cells[name])
    return cells


def _read_json_lines(
    lines: Iterable[bytes], sheet: Sheet, faults: Faults
) -> Iterator[tuple[int, Cells]]:
    for number, line in enumerate(lines, start=1):
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
