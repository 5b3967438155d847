"""The rules of the shop: an order's states and transitions, its refusals and its formats.

Standard library only: no rule depends on how orders are stored or requested.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

MAX_INT64 = 2**63 - 1
MAX_QUANTITY = 2**31 - 1


class Status(StrEnum):
    """The states of an order: first pending, then shipped or cancelled for good."""

    PENDING = "pending"
    SHIPPED = "shipped"
    CANCELLED = "cancelled"


class EventType(StrEnum):
    """What can happen to an order. Each event is a row of the event log."""

    PLACED = "order.placed"
    CHANGED = "order.changed"
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
    """An order to place: checked, with its defaults filled in."""

    pet_id: int
    quantity: int = 1
    ship_date: datetime | None = None
    reference: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A stored order. Datetimes are aware, in UTC, in whole milliseconds."""

    id: int
    pet_id: int
    quantity: int
    ship_date: datetime | None
    status: Status
    placed_at: datetime
    updated_at: datetime
    reference: str | None
    note: str | None

    @property
    def complete(self) -> bool:
        """Whether the order has been fulfilled, that is, has shipped."""
        return self.status is Status.SHIPPED

    @property
    def is_pending(self) -> bool:
        """Whether it can still be changed, shipped or cancelled."""
        return self.status is Status.PENDING

    def as_sent(self) -> NewOrder:
        """Return the request that it was placed by."""
        return NewOrder(**{each.name: getattr(self, each.name) for each in fields(NewOrder)})

    def has(self, fields: Mapping[str, Any]) -> bool:
        """Return whether it has these values already."""
        return all(getattr(self, name) == value for name, value in fields.items())


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
    """A rule of the shop rejects a request. Subclasses carry facts; `web` and `cli` word them."""


@dataclass
class OrderNotFound(Refusal):
    """There is no such order. `order_id` is the requested one."""

    order_id: int | str


@dataclass
class OrderAlreadyShipped(Refusal):
    """The order has shipped: it can be neither cancelled nor shipped again."""

    order_id: int


@dataclass
class OrderAlreadyCancelled(Refusal):
    """The order was cancelled: it can be neither shipped nor cancelled again."""

    order_id: int


@dataclass
class PreconditionFailed(Refusal):
    """The order, or the list of them, is not in the state that the request is for."""

    order_id: int | None = None


@dataclass
class PetNotFound(Refusal):
    """There is no such pet. `pet_id` is the requested one."""

    pet_id: int | str


@dataclass
class IdempotencyKeyReused(Refusal):
    """The Idempotency-Key was used before, for a different request."""


NotPending = OrderNotFound | OrderAlreadyShipped | OrderAlreadyCancelled


def refusal_to_change(order_id: int, status: Status | None) -> NotPending:
    """Return why an order that is not pending can't be changed.

    `status` is None if there is no such order.
    """
    if status is Status.SHIPPED:
        return OrderAlreadyShipped(order_id)
    if status is Status.CANCELLED:
        return OrderAlreadyCancelled(order_id)
    return OrderNotFound(order_id)


# Control characters are not text, and half a surrogate pair can't be written as UTF-8.
_REFERENCE = re.compile("[^\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]{1,64}")


def is_reference(text: str) -> bool:
    """Return whether a text can be a reference: 1 to 64 characters, no control characters."""
    return _REFERENCE.fullmatch(text) is not None


_NOTE = re.compile("[^\\x00-\\x09\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\ud800-\\udfff]{1,500}")


def is_note(text: str) -> bool:
    """Return whether a text can be a note: 1 to 500 characters, of controls only line breaks."""
    return _NOTE.fullmatch(text) is not None


_CANONICAL_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def parse_id(text: str) -> int | None:
    """Parse an id from a path: a canonical decimal (no sign, no leading zero) up to 2^63-1.

    Return None for anything else: no order and no pet can have it.
    """
    if not _CANONICAL_ID.fullmatch(text):
        return None
    number = int(text)
    return number if number <= MAX_INT64 else None


def parse_order_id(text: str) -> int:
    """Return the id of an order in a path, or raise OrderNotFound where none can have it."""
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
    """A date-time has the second 60, which Python's datetime and the databases have not."""


def parse_instant(text: str) -> datetime:
    """Parse a date-time with a time zone (RFC 3339, section 5.6); return it in UTC.

    Fractions finer than milliseconds are cut off. ValueError for anything else, for years but 1 to
    9999 in UTC; LeapSecond for those.
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
    """Format an aware datetime as the API does: `2026-12-01T08:00:00.000Z`."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def normalize_instant(text: str) -> str:
    """Parse a date-time as `parse_instant` does, and format it as the API does."""
    if _AS_WRITTEN.fullmatch(text):
        datetime.fromisoformat(text)  # rejects days that don't exist
        return text
    return format_instant(parse_instant(text))
