"""The rules of the shop: an order's states and transitions, its refusals and its formats.

Standard library only: no rule depends on how orders are stored or requested.
"""

from __future__ import annotations

import re
import unicodedata
import zoneinfo
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, cached_property
from typing import Any, NamedTuple

MAX_INT64 = 2**63 - 1
MAX_QUANTITY = 2**31 - 1


class Status(StrEnum):
    """The states of an order: first pending, then shipped or cancelled, until it is reopened."""

    PENDING = "pending"
    SHIPPED = "shipped"
    CANCELLED = "cancelled"


class EventType(StrEnum):
    """The types of events: each event is a row of the event log."""

    PLACED = "order.placed"
    CHANGED = "order.changed"
    SHIPPED = "order.shipped"
    CANCELLED = "order.cancelled"
    REOPENED = "order.reopened"
    IMPORTED = "order.imported"
    FORGOTTEN = "order.forgotten"


class PetStatus(StrEnum):
    AVAILABLE = "available"
    PENDING = "pending"
    SOLD = "sold"


@dataclass(frozen=True, slots=True)
class NewOrder:
    """An order to place: checked, with its defaults filled in."""

    pet_id: int
    quantity: int = 1
    ship_date: datetime | None = None
    reference: str | None = None
    note: str | None = None
    item: str | None = None
    ship_to: str | None = None


class Placement(NamedTuple):
    """An order to place, and whether its reference must be one that no order has."""

    order: NewOrder
    is_unique: bool = False


# The states in which these fields may change. The others may while the order is pending.
CHANGEABLE: Mapping[str, frozenset[Status]] = {
    "note": frozenset(Status),
    "tracking": frozenset({Status.SHIPPED}),
}
_WHILE_PENDING = frozenset({Status.PENDING})


def changeable_in(name: str) -> frozenset[Status]:
    """Return the states of an order in which one of its fields may change."""
    return CHANGEABLE.get(name, _WHILE_PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(NewOrder):
    """A stored order: what was placed, and what the store sets. Datetimes are in UTC."""

    id: int
    status: Status
    placed_at: datetime
    updated_at: datetime
    tracking: str | None = None

    @property
    def is_pending(self) -> bool:
        """Whether it can still be changed, shipped or cancelled."""
        return self.status is Status.PENDING

    def allows(self, fields: Mapping[str, Any]) -> bool:
        """Return whether its fields may have these values: they may change now, or would not."""
        return all(
            self.status in changeable_in(name) or getattr(self, name) == value
            for name, value in fields.items()
        )


@dataclass(frozen=True, slots=True)
class Pet:
    id: int
    name: str
    category_id: int | None
    status: PetStatus


@dataclass(frozen=True, slots=True)
class Origin:
    """Who caused a change: `actor` is `key:ID` or `cli`; `request_id` is None for commands."""

    actor: str
    request_id: str | None = None


class Expected(Exception):
    """An error that is no fault of the program. Commands show its message as one line."""


class Refusal(Expected):
    """A rule of the shop rejects a request. Subclasses carry facts; `web` and `cli` word them."""


@dataclass
class Unchangeable(Refusal):
    """The order with the id that was asked for can't be so changed."""

    order_id: int | str


class OrderNotFound(Unchangeable):
    """There is no such order."""


class OrderAlreadyShipped(Unchangeable):
    """The order has shipped: it can be neither cancelled nor shipped again."""


class OrderAlreadyCancelled(Unchangeable):
    """The order was cancelled: it can be neither shipped nor cancelled again."""


class OrderNotShipped(Unchangeable):
    """The order is pending: it has no tracking yet."""


@dataclass
class PreconditionFailed(Refusal):
    """The order, or the list of them, is not in the state that the request is for."""

    order_id: int | None = None


@dataclass
class ReferenceExists(Refusal):
    """A reference that was to be unique is that of an order, of this revision."""

    order_id: int
    revision: int


@dataclass
class PetNotFound(Refusal):
    pet_id: int | str


@dataclass
class IdempotencyKeyReused(Refusal):
    """The Idempotency-Key was used before, for a different request."""


_REFUSALS: Mapping[Status | None, type[Unchangeable]] = {
    None: OrderNotFound,
    Status.PENDING: OrderNotShipped,
    Status.SHIPPED: OrderAlreadyShipped,
    Status.CANCELLED: OrderAlreadyCancelled,
}


def refusal_to_change(order_id: int, status: Status | None) -> Unchangeable:
    """Return why an order of this status can't be so changed; None means that there is no order."""
    return _REFUSALS[status](order_id)


# Control characters: all, and all but those that break lines.
_CONTROLS = r"\u0000-\u001f\u007f-\u009f"
_CONTROLS_BUT_BREAKS = r"\u0000-\u0009\u000b\u000c\u000e-\u001f\u007f-\u009f"
# Half a surrogate pair can't be written as UTF-8.
_HALF = re.compile(r"[\ud800-\udfff]")
# Unicode's separators of lines and paragraphs are no control characters, and break lines, too.
_BREAK = r"(?:\u000d\u000a|[\u000a\u000d\u2028\u2029])"


@dataclass(frozen=True)
class TextRule:
    """The rule of a text: 1 to `most` characters of `allowed`, a class in a regular expression.

    `lines` is how many lines it may have, where that is limited. `but` says the rest in words. A
    text that may name a person (`is_personal`) can be forgotten; one that `is_searched` is found.
    """

    most: int
    allowed: str = f"[^{_CONTROLS}]"
    but: str = " without control characters"
    lines: int | None = None
    _: KW_ONLY
    is_personal: bool
    is_searched: bool

    @property
    def pattern(self) -> str:
        if self.lines is None:
            return f"^{self.allowed}+$"
        line = rf"[^{_CONTROLS}\u2028\u2029]*"
        return f"^{line}(?:{_BREAK}{line}){{0,{self.lines - 1}}}$"

    @property
    def must(self) -> str:
        """The rule in words."""
        return f"must be 1 to {self.most} characters{self.but}"

    @cached_property
    def _valid(self) -> re.Pattern[str]:
        return re.compile(rf"{self.allowed}{{1,{self.most}}}")

    def is_met(self, text: object) -> bool:
        if not isinstance(text, str) or not self._valid.fullmatch(text) or _HALF.search(text):
            return False
        return self.lines is None or len(re.findall(_BREAK, text)) < self.lines


_IN_LINES = f"[^{_CONTROLS_BUT_BREAKS}]"
# The texts of an order, by its fields.
TEXTS = {
    "reference": TextRule(64, is_personal=True, is_searched=True),
    "note": TextRule(
        *(500, _IN_LINES, ", without control characters but line breaks"),
        is_personal=True,
        is_searched=False,
    ),
    "item": TextRule(
        *(200, rf"[^{_CONTROLS}\u2028\u2029]", " in one line without control characters"),
        is_personal=False,
        is_searched=True,
    ),
    "ship_to": TextRule(
        *(500, _IN_LINES, " in at most 8 lines, without other control characters", 8),
        is_personal=True,
        is_searched=True,
    ),
    "tracking": TextRule(
        100, "[ -~]", " from ! to ~ and blanks", is_personal=True, is_searched=True
    ),
}
# The texts that orders are searched by, and those that can be forgotten.
SEARCHED = tuple(name for name, rule in TEXTS.items() if rule.is_searched)
PERSONAL = tuple(name for name, rule in TEXTS.items() if rule.is_personal)
# Only a search's first characters are compared.
_LONGEST_WORD = 64
_WORD = re.compile(r"[^\W_]+")
# Letters that Unicode does not decompose, as people without them on their keyboard write them.
_WRITTEN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i"})  # noqa: RUF001 - meant


def folded(text: str) -> str:
    """Return a text as the search compares it: without case, accents and ligatures."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    plain = "".join(each for each in decomposed if not unicodedata.combining(each))
    return plain.translate(_WRITTEN)


def search_word(text: str) -> str:
    """Return a search, or a text, in the form in which they are compared."""
    return folded(text)[:_LONGEST_WORD]


def search_words(texts: Iterable[str | None]) -> set[str]:
    """Return the beginnings by which the search finds texts: of each line, and of each word in it.

    Each goes on to the line's end, so that `mia wong` and `10040-b` are found as well as `wong`.
    """
    words = set[str]()
    # An import calls this for each row: nested generators would take a quarter longer.
    for text in filter(None, texts):
        for line in map(str.strip, re.split(_BREAK, folded(text))):
            if line:
                words.add(line[:_LONGEST_WORD])
                begins = [word.start() for word in _WORD.finditer(line)]
                words.update([line[begin : begin + _LONGEST_WORD] for begin in begins])
    return words


def name_in_api(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_CANONICAL_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def parse_id(text: str) -> int | None:
    """Return the id in a path, a canonical decimal up to 2^63-1, or None for any other text."""
    if not _CANONICAL_ID.fullmatch(text):
        return None
    number = int(text)
    return number if number <= MAX_INT64 else None


def parse_order_id(text: str) -> int:
    number = parse_id(text)
    if number is None:
        raise OrderNotFound(text)
    return number


# Python's own parser allows more: hour 24, any separator.
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_LEAP_SECOND = re.compile(r"(?<=:\d\d):60", re.ASCII)
_AS_WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z", re.ASCII)
# RFC 3339 has a year 0000, Python does not. Its last day can be in year 1 in UTC, by time zone.
_DAY_BEFORE_YEAR_ONE = "0000-12-31"
_YEAR_ONE = "0001-01-01"


# Later than every instant that an order can have.
AFTER_ALL = datetime.max.replace(tzinfo=UTC)


class LeapSecond(ValueError):
    """A date-time has the second 60, which Python's datetime and the databases lack."""


def parse_instant(text: str) -> datetime:
    """Parse a date-time with a time zone (RFC 3339, section 5.6); return it in UTC.

    Fractions finer than milliseconds are cut off. LeapSecond is raised for the second 60,
    ValueError for any other text, and for a year outside of 1 to 9999 in UTC.
    """
    if not _INSTANT.fullmatch(text):
        if _INSTANT.fullmatch(_LEAP_SECOND.sub(":59", text, 1)):
            raise LeapSecond("a leap second")
        raise ValueError("not an RFC 3339 date-time with a time zone")
    text = text.upper()
    days = timedelta(0)
    if text.startswith(_DAY_BEFORE_YEAR_ONE):
        text, days = text.replace(_DAY_BEFORE_YEAR_ONE, _YEAR_ONE), timedelta(1)
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC) - days
    except OverflowError:
        raise ValueError("outside of the years 1 to 9999 in UTC") from None
    too_fine = moment.microsecond % 1000
    return moment - timedelta(microseconds=too_fine) if too_fine else moment


_FINER_THAN_MILLISECONDS = re.compile(r"\.\d{3}\d*[1-9]", re.ASCII)


def parse_bound(text: str) -> datetime:
    """Parse a date-time as `parse_instant` does, but round fractions up to whole milliseconds.

    Stored instants are whole milliseconds: they lie before or after both alike. After the last of
    them there is only AFTER_ALL.
    """
    bound = parse_instant(text)
    try:
        return bound + timedelta(milliseconds=bool(_FINER_THAN_MILLISECONDS.search(text)))
    except OverflowError:
        return AFTER_ALL


def format_instant(instant: datetime) -> str:
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def normalize_instant(text: str) -> str:
    """Parse a date-time as `parse_instant` does, and format it as the API does."""
    if _AS_WRITTEN.fullmatch(text):
        datetime.fromisoformat(text)  # rejects days that don't exist
        return text
    return format_instant(parse_instant(text))


@cache
def _time_zones() -> set[str]:
    # Debian's `localtime` is this machine's zone, and no name of IANA's.
    return zoneinfo.available_timezones() - {"localtime"}


def is_time_zone(name: str) -> bool:
    """Return whether it is the IANA name of a time zone."""
    return name in _time_zones()
