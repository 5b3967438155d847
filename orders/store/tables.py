"""The tables and their column types.

Migrations create them; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from orders.domain import Order, Status
from orders.store.database.errors import bad_rows_mean_corruption
from orders.store.database.types import Folded, Instant, instant_of


def words(length: int) -> String:
    """Return the type of texts of at most so many characters.

    The length is checked on input. SQLite does not enforce it, and the type used on PostgreSQL
    does not either.
    """
    return String(length).with_variant(Text(), "postgresql")


# SQLite numbers rows by itself only where the column's type is INTEGER.
RowId = BigInteger().with_variant(Integer, "sqlite")

# The quarter whose row has the sums of all.
EVER = -1

_IS_STATUS = "status IN ('pending', 'shipped', 'cancelled')"
_HAS_REFERENCE = text("reference IS NOT NULL")
# Ids are never reused, even after a restore has lost the newest rows.
_NEVER_REUSED = {"sqlite_autoincrement": True}


class Base(DeclarativeBase):
    """The base of all tables."""


class StoreRow(Base):
    """The one row about the store itself."""

    __tablename__ = "store"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # Random, from the first start: half of every ETag, so that no other database's tag fits.
    store_id: Mapped[str] = mapped_column(words(32))
    # The key that `--demo` issued, which is what makes this a demo database.
    demo_key_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id"))
    # Set while the clock is behind: see `clock_floor`. Events up to that id say nothing of it.
    clock_floor: Mapped[datetime | None] = mapped_column(Instant)
    misdated_events: Mapped[int | None] = mapped_column(BigInteger)


class OrderColumns:
    """The columns of an order that each of its events repeats."""

    pet_id: Mapped[int] = mapped_column(BigInteger)
    quantity: Mapped[int] = mapped_column(Integer)
    ship_date: Mapped[datetime | None] = mapped_column(Instant)
    status: Mapped[str] = mapped_column(words(16))
    placed_at: Mapped[datetime] = mapped_column(Instant)
    updated_at: Mapped[datetime] = mapped_column(Instant)
    reference: Mapped[str | None] = mapped_column(words(64))
    note: Mapped[str | None] = mapped_column(words(500))


class OrderRow(OrderColumns, Base):
    """The current state of an order."""

    __tablename__ = "orders"
    __table_args__ = (
        # Of a sort, with all that filters compare, so that a page passes over orders that don't
        # match without looking them up (`paging`).
        Index("orders_by_status", "status", "id"),
        Index(
            "orders_by_status_placed_at",
            *("status", "placed_at", "id", "ship_date", "pet_id", "reference", "updated_at"),
        ),
        Index(
            "orders_by_status_ship_date",
            *("status", "ship_date", "id", "placed_at", "pet_id", "reference", "updated_at"),
        ),
        Index("orders_by_pet", "pet_id", "id"),
        Index("orders_by_updated_at", "updated_at", "id"),
        CheckConstraint(_IS_STATUS, name="orders_status"),
        CheckConstraint("quantity BETWEEN 1 AND 2147483647", name="orders_quantity"),
        CheckConstraint("pet_id >= 1", name="orders_pet_id"),
        CheckConstraint(
            "status <> 'shipped' OR ship_date IS NOT NULL", name="orders_shipped_has_date"
        ),
        _NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)


# Most shops give references to all orders or to none, and none costs nothing. A migration that
# rebuilds the table has to make this index again: what is of expressions is not reflected.
Index(
    "orders_by_reference",
    *(Folded(OrderRow.reference), OrderRow.id, OrderRow.reference),
    sqlite_where=_HAS_REFERENCE,
    postgresql_where=_HAS_REFERENCE,
)


class EventRow(OrderColumns, Base):
    """One change of an order, and the order as it stood after it. Never updated, never deleted."""

    __tablename__ = "order_events"
    __table_args__ = (
        CheckConstraint(
            "type IN ('order.placed', 'order.changed', 'order.shipped', 'order.cancelled', "
            "'order.imported')",
            name="order_events_type",
        ),
        Index("order_events_by_order", "order_id", "id"),
        Index("order_events_by_type", "type", "id"),
        _NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    type: Mapped[str] = mapped_column(words(24))
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    at: Mapped[datetime] = mapped_column(Instant)
    actor: Mapped[str] = mapped_column(words(32))
    request_id: Mapped[str | None] = mapped_column(words(32))


class QuarterRow(Base):
    """How many orders were placed, shipped and cancelled in a quarter of an hour, and ever.

    Counting a year's orders takes longer than a request may. Every time zone's days begin with a
    quarter. Those of ever are how many orders there are of each status.
    """

    __tablename__ = "order_quarters"

    # Since the beginning of the year 1, in UTC.
    quarter: Mapped[int] = mapped_column(RowId, primary_key=True, autoincrement=False)
    placed: Mapped[int] = mapped_column(BigInteger)
    shipped: Mapped[int] = mapped_column(BigInteger)
    cancelled: Mapped[int] = mapped_column(BigInteger)


class IdempotencyRow(Base):
    """An Idempotency-Key of a write. The event has the order as the response had it."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index("idempotency_keys_by_age", "at"),)

    key_id: Mapped[int] = mapped_column(ForeignKey("api_keys.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[str] = mapped_column(words(255), primary_key=True)
    # What was placed by the key, or changed; None where it was many.
    event_id: Mapped[int | None] = mapped_column(ForeignKey("order_events.id"))
    at: Mapped[datetime] = mapped_column(Instant)
    # A digest of the request; None of a placing, whose event says as much.
    request: Mapped[str | None] = mapped_column(words(64))
    # Of many orders: the event of each, or else its status.
    outcomes: Mapped[str | None] = mapped_column(Text)


class KeyRow(Base):
    """An API key. At most two of its secrets are live: the newest, and one during its grace."""

    __tablename__ = "api_keys"
    __table_args__ = (
        Index("api_keys_by_secret", "secret_hash", unique=True),
        Index("api_keys_by_previous_secret", "previous_hash", unique=True),
        _NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    name: Mapped[str] = mapped_column(words(255))
    prefix: Mapped[str] = mapped_column(words(16))
    secret_hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    previous_hash: Mapped[bytes | None] = mapped_column(LargeBinary(32))
    previous_until: Mapped[datetime | None] = mapped_column(Instant)
    plan: Mapped[str] = mapped_column(words(64))
    # Both are None but for enterprise, whose figures come with the key.
    per_minute: Mapped[int | None] = mapped_column(Integer)
    per_day: Mapped[int | None] = mapped_column(Integer)
    # Grows with each change of plan, so that new windows begin.
    plan_revision: Mapped[int] = mapped_column(Integer, default=0)
    scopes: Mapped[str] = mapped_column(words(64))
    created_at: Mapped[datetime] = mapped_column(Instant)
    last_used_at: Mapped[datetime | None] = mapped_column(Instant)
    expires_at: Mapped[datetime | None] = mapped_column(Instant)
    revoked_at: Mapped[datetime | None] = mapped_column(Instant)
    banned_until: Mapped[datetime | None] = mapped_column(Instant)


class AuditRow(Base):
    """What somebody did to a key, a webhook or the store. Never updated, never deleted."""

    __tablename__ = "audit_trail"
    __table_args__ = (_NEVER_REUSED,)

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    at: Mapped[datetime] = mapped_column(Instant)
    who: Mapped[str] = mapped_column(words(255))
    action: Mapped[str] = mapped_column(words(32))
    subject: Mapped[str] = mapped_column(words(512))


class PetRow(Base):
    """A pet of the catalogue. The catalogue is leaving this service."""

    __tablename__ = "pets"
    __table_args__ = (
        CheckConstraint("status IN ('available', 'pending', 'sold')", name="pets_status"),
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(words(255))
    category_id: Mapped[int | None] = mapped_column(BigInteger)
    status: Mapped[str] = mapped_column(words(16))


class EndpointRow(Base):
    """A webhook's endpoint, and how far the event log was delivered to it."""

    __tablename__ = "webhook_endpoints"
    __table_args__ = (_NEVER_REUSED,)

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    url: Mapped[str] = mapped_column(words(2048))
    # The types of events that it wants, separated by blanks.
    events: Mapped[str] = mapped_column(words(255))
    allow_private: Mapped[bool] = mapped_column(Boolean)
    # In plain text: messages are signed with them. The previous one signs as well, until then.
    secret: Mapped[str] = mapped_column(words(128))
    previous_secret: Mapped[str | None] = mapped_column(words(128))
    previous_until: Mapped[datetime | None] = mapped_column(Instant)
    created_at: Mapped[datetime] = mapped_column(Instant)
    # Every event up to this one was delivered, is not wanted, or was set aside.
    position: Mapped[int] = mapped_column(BigInteger)
    # How often the next event was tried, and when it is tried again.
    tries: Mapped[int] = mapped_column(Integer)
    next_at: Mapped[datetime | None] = mapped_column(Instant)
    paused_at: Mapped[datetime | None] = mapped_column(Instant)
    paused_because: Mapped[str | None] = mapped_column(words(255))
    # The process that delivers to it, and when its claim ends unless renewed.
    claimed_by: Mapped[str | None] = mapped_column(words(32))
    claimed_until: Mapped[datetime | None] = mapped_column(Instant)


class RefusedRow(Base):
    """An event that an endpoint refused, set aside so that later events can pass."""

    __tablename__ = "webhook_refused"
    __table_args__ = (Index("webhook_refused_by_next", "endpoint_id", "next_at", "event_id"),)

    endpoint_id: Mapped[int] = mapped_column(ForeignKey("webhook_endpoints.id"), primary_key=True)
    event_id: Mapped[int] = mapped_column(ForeignKey("order_events.id"), primary_key=True)
    tries: Mapped[int] = mapped_column(Integer)
    next_at: Mapped[datetime] = mapped_column(Instant)


class DeliveryRow(Base):
    """One attempt to deliver an event, or a ping, and its outcome."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Index("webhook_deliveries_by_endpoint", "endpoint_id", "id"),
        Index("webhook_deliveries_by_age", "at"),
        _NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    endpoint_id: Mapped[int] = mapped_column(ForeignKey("webhook_endpoints.id"))
    # None for a ping.
    event_id: Mapped[int | None] = mapped_column(ForeignKey("order_events.id"))
    at: Mapped[datetime] = mapped_column(Instant)
    outcome: Mapped[str] = mapped_column(words(16))
    # None where there was no response; then the fault says why.
    status: Mapped[int | None] = mapped_column(Integer)
    fault: Mapped[str | None] = mapped_column(words(255))
    milliseconds: Mapped[int] = mapped_column(Integer)
    # The first characters of the response's body.
    answer: Mapped[str] = mapped_column(words(200))


@bad_rows_mean_corruption()
def order_of(row: Sequence[Any]) -> Order:
    """Return the order of a driver's row: the id, then the columns that events repeat."""
    order_id, pet_id, quantity, ship_date, status, placed_at, updated_at, reference, note = row
    return Order(
        order_id,
        pet_id,
        quantity,
        instant_of(ship_date),
        Status(status),
        cast("datetime", instant_of(placed_at)),
        cast("datetime", instant_of(updated_at)),
        reference,
        note,
    )
