"""What an order may be and become: its states, its transitions, its refusals, its formats.

Standard library only: no rule of the shop depends on how it is stored or asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

MAX_INT64 = 2**63 - 1
MAX_QUANTITY = 2**31 - 1


class Status(StrEnum):
    """The states of an order. It begins as pending; nothing leaves the other two."""

    PENDING = "pending"
    SHIPPED = "shipped"
    CANCELLED = "cancelled"


class EventType(StrEnum):
    """What can happen to an order. Each happening is one row of the event log."""

    PLACED = "order.placed"
    SHIPPED = "order.shipped"
    CANCELLED = "order.cancelled"
    IMPORTED = "order.imported"


class PetStatus(StrEnum):
    """The states of a pet in the catalogue."""

    AVAILABLE = "available"
    PENDING = "pending"
    SOLD = "sold"


@dataclass(frozen=True, slots=True)
class NewOrder:
    """An order as a client asks for it: checked, with its defaults filled in."""

    pet_id: int
    quantity: int = 1
    ship_date: datetime | None = None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """An order as the store has it. Datetimes are aware, in UTC, whole milliseconds."""

    id: int
    pet_id: int
    quantity: int
    ship_date: datetime | None
    status: Status
    placed_at: datetime
    updated_at: datetime
    reference: str | None

    @property
    def complete(self) -> bool:
        """Whether the order has been fulfilled, which is when it has shipped."""
        return self.status is Status.SHIPPED


@dataclass(frozen=True, slots=True)
class Pet:
    """A pet of the catalogue."""

    id: int
    name: str
    category_id: int | None
    status: PetStatus


@dataclass(frozen=True, slots=True)
class Origin:
    """Who caused a change: `actor` is `key:ID` or `cli`; `request_id` is None for commands."""

    actor: str
    request_id: str | None = None


class Refusal(Exception):
    """A rule of the shop says no. Subclasses carry the facts; the edges put them into words."""


@dataclass
class OrderNotFound(Refusal):
    """There is no such order. `order_id` is what was asked for."""

    order_id: int | str


@dataclass
class OrderAlreadyShipped(Refusal):
    """The order has left the shop: it can be neither cancelled nor shipped again."""

    order_id: int


@dataclass
class OrderAlreadyCancelled(Refusal):
    """The order was cancelled before."""

    order_id: int


@dataclass
class PetNotFound(Refusal):
    """There is no such pet. `pet_id` is what was asked for."""

    pet_id: int | str


@dataclass
class IdempotencyKeyReused(Refusal):
    """The same Idempotency-Key came before, with another order."""

    order_id: int


def refusal_to_change(order_id: int, status: Status | None) -> Refusal:
    """Say why an order of this status, which a change did not find pending, can't be changed.

    `status` is None where there is no such order.
    """
    if status is Status.SHIPPED:
        return OrderAlreadyShipped(order_id)
    if status is Status.CANCELLED:
        return OrderAlreadyCancelled(order_id)
    return OrderNotFound(order_id)


# Control characters are no text, and half a surrogate pair can't be written as UTF-8.
_REFERENCE = re.compile("[^\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]{1,64}")


def is_reference(text: str) -> bool:
    """Return whether a text can be an order's reference: 1 to 64 characters, none for control."""
    return _REFERENCE.fullmatch(text) is not None


_CANONICAL_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def parse_id(text: str) -> int | None:
    """Read an identifier from a path: a canonical decimal (no sign, no leading zero) up to 2^63-1.

    Gives None for anything else: no order and no pet can have it.
    """
    if not _CANONICAL_ID.fullmatch(text):
        return None
    number = int(text)
    return number if number <= MAX_INT64 else None


# The shape, and the ranges that Python's own reader is wider about: hour 24, any separator.
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_AS_WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z", re.ASCII)
# RFC 3339 has a year 0000 and Python has not. Its last day can still be an instant of the year 1
# in UTC, where the time zone says so.
_DAY_BEFORE_YEAR_ONE = "0000-12-31"
_YEAR_ONE = "0001-01-01"


def parse_instant(text: str) -> datetime:
    """Read a date-time of RFC 3339, section 5.6, with a time zone; return it in UTC.

    Digits finer than milliseconds are cut. Leap seconds (`:60`) are refused, because no day that
    the program can count with has one.

    Raises:
        ValueError: it is no such date-time, or lies outside of the years 1 to 9999 in UTC.
    """
    if not _INSTANT.fullmatch(text):
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


def format_instant(instant: datetime) -> str:
    """Write an aware datetime as the API does: `2026-12-01T08:00:00.000Z`."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def normalize_instant(text: str) -> str:
    """Read a date-time as `parse_instant` does, and write it as the API does.

    Raises:
        ValueError: as `parse_instant`.
    """
    if _AS_WRITTEN.fullmatch(text):
        datetime.fromisoformat(text)  # refuses the days that there are not
        return text
    return format_instant(parse_instant(text))
