"""Tables as spreadsheets write them: encodings, separators, headings, dates, harmless formulas."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time
from io import StringIO
from itertools import chain
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from orders import domain

if TYPE_CHECKING:
    from _csv import Reader

# The limit for a file's lines; a cell may have `csv.field_size_limit()` characters.
LONGEST_LINE = 1024 * 1024
_BOMS_OF_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_WINDOWS = "windows-1252"
_READ_AS_WINDOWS = "The file is read as Windows-1252, as it is not UTF-8"


# The characters with which a spreadsheet's formula begins.
FORMULAS = ("=", "+", "-", "@")


class OptionMissing(ValueError):
    """A cell can't be read unless an option of the command says how. The message names it."""


class LineTooLong(ValueError):
    """A line has more than LONGEST_LINE characters."""


def table(pieces: Iterable[bytes], remarks: Counter[str]) -> Reader:
    """Return a reader of a file's pieces, which may end anywhere, by the separator it uses.

    Reading it raises csv.Error, UnicodeDecodeError or LineTooLong.
    """
    lines = _lines(_decoded(iter(pieces), remarks))
    first = next(lines, "")
    unquoted = re.sub('"[^"]*"', "", first)
    separator = max(",;\t", key=unquoted.count)
    return csv.reader(
        chain([first], lines), delimiter=separator, strict=True, skipinitialspace=True
    )


def _decoded(pieces: Iterator[bytes], remarks: Counter[str]) -> Iterator[str]:
    """Yield the text: UTF-8, UTF-16 after its byte order mark, or Windows-1252.

    It is Windows-1252 if all before the first bytes that aren't UTF-8 is ASCII, which reads alike.
    """
    first = next(pieces, b"")
    if first.startswith(_BOMS_OF_UTF_16):
        yield from codecs.iterdecode(chain([first], pieces), "utf-16")
        return
    decoder, is_ascii = codecs.getincrementaldecoder("utf-8-sig")(), True
    for piece in chain([first], pieces, [b""]):
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            if not (is_ascii and error.object[: error.start].isascii()):
                raise
            remarks[_READ_AS_WINDOWS] = 1
            yield from map(_of_windows, chain([error.object], pieces))
            return
        is_ascii = is_ascii and text.isascii()
        yield text


def _of_windows(piece: bytes) -> str:
    try:
        is_mixed = bool(piece.decode()) and not piece.isascii()
    except UnicodeDecodeError:
        is_mixed = False
    if is_mixed:
        raise UnicodeDecodeError(_WINDOWS, piece, 0, 1, "UTF-8 after Windows-1252")
    return piece.decode(_WINDOWS)


def _lines(texts: Iterable[str]) -> Iterator[str]:
    r"""Yield the lines of texts that may end anywhere; each ends in \n, \r or both."""
    rest = ""
    for text in texts:
        if not rest and text.endswith("\n") and text.count("\n") == 1 and "\r" not in text[:-2]:
            yield text  # as most are
            continue
        lines = StringIO(rest + text, newline="").readlines()
        # A return may be followed by a line feed.
        rest = lines.pop() if lines and not lines[-1].endswith("\n") else ""
        yield from lines
        if len(rest) > LONGEST_LINE:
            raise LineTooLong
    yield from StringIO(rest, newline="")


def folded(heading: str) -> str:
    """Return a heading as it is compared: `Ship date` and `ship_date` are the same."""
    plain = re.sub(r"[\W_]+", "", heading).casefold()
    return plain if plain and heading.isprintable() else heading


def cell_text(cell: str) -> str:
    """Return the text of a cell: trimmed, or as it was before an apostrophe made it harmless."""
    if cell[:1] == "'" and _needs_apostrophe(cell[1:]):
        return cell[1:]
    return cell.strip()


def _needs_apostrophe(text: str) -> bool:
    """Return whether a spreadsheet takes it for a formula, or trimming changes it.

    Apostrophes before it say the same of what follows them, so that each text comes back whole:
    `exporting` and the console's `packing.js` write by the same rule.
    """
    rest = text.lstrip("'")
    return rest != rest.strip() or rest.startswith(FORMULAS)


# A heading as the console writes it, with the zone of the times below.
_WITH_ZONE = re.compile(r"(.*\S)\s*\(([^()]+)\)")


def zone_in(heading: str) -> tuple[str, ZoneInfo | None]:
    """Return the column that a heading names, and the time zone: `placedAt (UTC)`."""
    found = _WITH_ZONE.fullmatch(heading)
    if found and domain.is_time_zone(found[2]):
        return found[1], ZoneInfo(found[2])
    return heading, None


_TIME = re.compile(
    r"(\d{1,4})([-./])(\d\d?)\2(\d{1,4})"
    r"(?:(?:,?\s+|T)(\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:\s*([ap])\.?m\.?)?)?"
    r"\s*(z|utc|[-+]\d\d:?\d\d)?",
    re.ASCII | re.IGNORECASE,
)
_SERIAL = re.compile(r"\d{5}(?:[.,]\d+)?", re.ASCII)
# Which of three numbers is the year, the month and the day.
DATE_ORDERS = {"dmy": (2, 1, 0), "mdy": (2, 0, 1), "ymd": (0, 1, 2)}
_UNSAID: tuple[str, ...] = ("dmy", "mdy")
_HOURS = (12, *range(1, 12))


def is_in_seconds(text: str) -> bool:
    """Return whether it ends in the seconds of a time: a fraction of them may follow."""
    return bool(re.search(r":\d\d:\d\d$", text))


class Times:
    """Reads dates and times as spreadsheets write them.

    `order` (of DATE_ORDERS) and `zone` are options of the command.
    """

    def __init__(self, order: str | None = None, zone: ZoneInfo | None = None) -> None:
        """Begin a file."""
        self._order, self._zone = order, zone
        # The first date with only one meaning decides for those after it.
        self._seen: tuple[str, str] | None = None

    def read(self, text: str, zone: ZoneInfo | None = None) -> str:
        """Return an instant as the API writes it; a text that is no time is returned as it is.

        `zone` is the column's. Raises ValueError where there is no such time, OptionMissing where
        it has several meanings.
        """
        if text[-1:] == "Z" and text[10:11] == "T":  # as we write it, in most files
            return text
        if _SERIAL.fullmatch(text):
            raise ValueError(
                f"{text} is a spreadsheet's number for a day: format the column as dates, and save"
            )
        found = _TIME.fullmatch(text)
        if not found:
            return text
        first, separator, second, third, *clock, half, offset = found.groups()
        local = datetime.combine(
            self._date(text, (first, second, third), separator), _clock(text, clock, half)
        )
        try:
            return domain.format_instant(self._instant(text, local, offset, zone or self._zone))
        except OverflowError:
            return text

    def _date(self, text: str, numbers: tuple[str, ...], separator: str) -> date:
        orders = (self._order,) if self._order else _UNSAID
        if len(numbers[0]) == len("2026"):
            orders = ("ymd",)
        days = {each: day for each in orders if (day := _day(numbers, each))}
        if not days:
            asked = f" in the order {self._order}" if self._order else ""
            raise ValueError(f"must be a date that exists: {text} does not{asked}")
        if len(set(days.values())) == 1:
            order, day = next(iter(days.items()))
            if len(days) == 1 and order in _UNSAID and not self._order:
                self._follow(order, text)
            return day
        if separator == ".":
            return days["dmy"]
        if self._seen:
            return days[self._seen[0]]
        raise OptionMissing(
            f"{text} may be {_named(days['dmy'])} or {_named(days['mdy'])}: say which, with "
            "--dates dmy or --dates mdy"
        )

    def _follow(self, order: str, text: str) -> None:
        self._seen = self._seen or (order, text)
        if self._seen[0] != order:
            raise ValueError(
                f"{text} and {self._seen[1]} do not have day and month in the same order: a "
                "spreadsheet has mistaken one for the other"
            )

    def _instant(
        self, text: str, local: datetime, offset: str | None, zone: ZoneInfo | None
    ) -> datetime:
        if offset:
            there = "+00:00" if offset[0] in "zZuU" else offset
            return datetime.fromisoformat(f"{local.isoformat()}{there}")
        if zone is None:
            raise OptionMissing(
                f"{text} is in no time zone: name the shop's, such as --zone Europe/Berlin"
            )
        # If a time comes twice, it is the first.
        instant = local.replace(tzinfo=zone).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) != local:
            raise ValueError(f"{text} was skipped in {zone.key}, where clocks went forward")
        return instant


def _named(day: date) -> str:
    return f"{day.day} {day:%B}"


def _day(numbers: tuple[str, ...], order: str) -> date | None:
    year, month, day = (numbers[each] for each in DATE_ORDERS[order])
    century = {len("26"): 2000, len("2026"): 0}.get(len(year))
    if century is None:
        return None
    with suppress(ValueError):
        return date(century + int(year), int(month), int(day))
    return None


def _clock(text: str, clock: list[str | None], half: str | None) -> time:
    hour, minute, second = (int(each or 0) for each in clock[:3])
    try:
        if half:  # of a day, whose first hour is 12
            hour = _HOURS.index(hour) + 12 * (half in "pP")
        return time(hour, minute, second, int((clock[3] or "").ljust(6, "0")[:6]))
    except ValueError:
        raise ValueError(f"must be a time that exists: {text} does not") from None
