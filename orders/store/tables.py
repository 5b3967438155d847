"""The whole schema: tables, their column types, indexes; their triggers are in `triggers/`.

A new store is made of it; migrations bring stores of earlier releases to the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table

from orders.domain import PERSONAL, TEXTS
from orders.store.database.database import Folded, Instant


def short_text(length: int) -> sa.String:
    """Return the type of texts of at most so many characters, which are counted on input."""
    return sa.String(length).with_variant(sa.Text(), "postgresql")


class FreeText(sa.String):
    """A text that anybody may write, as its rule allows: it is quoted wherever it goes."""


def free_text(name: str) -> Column[str]:
    return Column(name, FreeText(TEXTS[name].most).with_variant(sa.Text(), "postgresql"))


# SQLite numbers rows by itself only where the column's type is INTEGER.
RowId = sa.BigInteger().with_variant(sa.Integer, "sqlite")

# The quarter whose row has the sums of all.
EVER = -1

_IS_STATUS = "status IN ('pending', 'shipped', 'cancelled')"
_HAS_REFERENCE = sa.text("reference IS NOT NULL")
_HAS_NO_DATE = sa.text("ship_date IS NULL")
# Ids are never reused, even after a restore has lost the newest rows.
_NEVER_REUSED = True


METADATA = sa.MetaData()


# The row about the store itself.
store = Table(
    "store",
    METADATA,
    Column("id", sa.Integer, primary_key=True, autoincrement=False),
    # Random, from the first start: half of every ETag, so that no other database's tag fits.
    Column("store_id", short_text(32), nullable=False),
    # The key that `--demo` issued, which is what makes this a demo database.
    Column("demo_key_id", ForeignKey("api_keys.id")),
    # The latest time seen: see `store.apikeys`. Events up to that id say nothing of it.
    Column("clock_floor", Instant),
    Column("misdated_events", sa.BigInteger),
)


def _order_columns() -> list[Column[Any]]:
    """Return the columns of an order that each of its events repeats: what it is, at one place.

    The statements, an order as JSON in either version, files and the API's description follow from
    their names, types and whether they may be empty.
    """
    return [
        Column("pet_id", sa.BigInteger, nullable=False),
        Column("quantity", sa.Integer, nullable=False),
        Column("ship_date", Instant),
        Column("status", short_text(16), nullable=False),
        Column("placed_at", Instant, nullable=False),
        Column("updated_at", Instant, nullable=False),
        free_text("reference"),
        free_text("note"),
        free_text("item"),
        free_text("ship_to"),
        free_text("tracking"),
    ]


# What filters compare beside a sort's own columns, in each index of a sort: pages pass over orders
# that don't match without looking them up (`pages`).
_FILTERED = ("pet_id", "reference", "updated_at")


# The current state of an order.
orders = Table(
    "orders",
    METADATA,
    Column("id", RowId, primary_key=True),
    *_order_columns(),
    # For each sort.
    Index("orders_by_status", "status", "id"),
    Index("orders_by_status_placed_at", *("status", "placed_at", "id", "ship_date"), *_FILTERED),
    Index("orders_by_status_ship_date", *("status", "ship_date", "id", "placed_at"), *_FILTERED),
    Index(
        "orders_without_date",
        *("status", "placed_at", "id", *_FILTERED),
        sqlite_where=_HAS_NO_DATE,
        postgresql_where=_HAS_NO_DATE,
    ),
    Index("orders_by_pet", "pet_id", "id"),
    Index("orders_by_updated_at", "updated_at", "id"),
    CheckConstraint(_IS_STATUS, name="orders_status"),
    CheckConstraint("quantity BETWEEN 1 AND 2147483647", name="orders_quantity"),
    CheckConstraint("pet_id >= 1", name="orders_pet_id"),
    CheckConstraint("status <> 'shipped' OR ship_date IS NOT NULL", name="orders_shipped_has_date"),
    CheckConstraint("status = 'shipped' OR tracking IS NULL", name="orders_tracked_has_shipped"),
    sqlite_autoincrement=_NEVER_REUSED,
)


# Most shops give references to all orders or to none, and none costs nothing. For PostgreSQL,
# `postgres.database` adds the condition: named here, it would load that dialect at every start.
Index(
    "orders_by_reference",
    *(Folded(orders.c.reference), orders.c.id, orders.c.reference),
    sqlite_where=_HAS_REFERENCE,
    postgresql_where=_HAS_REFERENCE,
)


# The words that the search finds an order by (`domain.search_words`). They are written with its
# texts, since the two databases would fold them differently.
order_words = Table(
    "order_words",
    METADATA,
    Column("order_id", sa.BigInteger, primary_key=True),
    Column(
        "word", sa.String(64).with_variant(sa.Text(collation="C"), "postgresql"), primary_key=True
    ),
    Index("order_words_by_word", "word", "order_id"),
    sqlite_with_rowid=False,
)


# One change of an order, and the order as it stood after it. Never deleted, and never updated but
# to delete personal data.
order_events = Table(
    "order_events",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("type", short_text(24), nullable=False),
    Column("order_id", ForeignKey("orders.id"), nullable=False),
    Column("at", Instant, nullable=False),
    Column("actor", short_text(32), nullable=False),
    Column("request_id", short_text(32)),
    *_order_columns(),
    CheckConstraint(
        "type IN ('order.placed', 'order.changed', 'order.shipped', 'order.cancelled', "
        "'order.reopened', 'order.imported', 'order.forgotten')",
        name="order_events_type",
    ),
    Index("order_events_by_order", "order_id", "id"),
    Index("order_events_by_type", "type", "id"),
    sqlite_autoincrement=_NEVER_REUSED,
)


# How many orders were placed, shipped and cancelled in a quarter of an hour, and ever.
#
# Counting a year's orders takes longer than a request may. Every time zone's days begin with a
# quarter. Those of ever are how many orders there are of each status.
order_quarters = Table(
    "order_quarters",
    METADATA,
    # Since the beginning of the year 1, in UTC.
    Column("quarter", RowId, primary_key=True, autoincrement=False),
    Column("placed", sa.BigInteger, nullable=False),
    Column("shipped", sa.BigInteger, nullable=False),
    Column("cancelled", sa.BigInteger, nullable=False),
)


# An Idempotency-Key of a write, and what it was answered with.
idempotency_keys = Table(
    "idempotency_keys",
    METADATA,
    Column("key_id", ForeignKey("api_keys.id"), primary_key=True),
    Column("version", sa.Integer, primary_key=True, autoincrement=False),
    Column("value", short_text(255), primary_key=True),
    # The event of the order that the answer shows; None where it names several.
    Column("event_id", ForeignKey("order_events.id")),
    Column("at", Instant, nullable=False),
    # A digest of the request, and the answer's body.
    Column("request", short_text(64), nullable=False),
    Column("answer", sa.Text, nullable=False),
    Index("idempotency_keys_by_age", "at"),
)


# An API key. At most two of its secrets are live: the newest, and one during its grace.
api_keys = Table(
    "api_keys",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("name", short_text(255), nullable=False),
    Column("prefix", short_text(16), nullable=False),
    Column("secret_hash", sa.LargeBinary(32), nullable=False),
    Column("previous_hash", sa.LargeBinary(32)),
    Column("previous_until", Instant),
    Column("plan", short_text(64), nullable=False),
    # Both are None but for enterprise, whose figures come with the key.
    Column("per_minute", sa.Integer),
    Column("per_day", sa.Integer),
    # Grows with each change of plan, which begins new windows.
    Column("plan_revision", sa.Integer, default=0, nullable=False),
    Column("scopes", short_text(64), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("last_used_at", Instant),
    Column("expires_at", Instant),
    Column("revoked_at", Instant),
    Column("banned_until", Instant),
    Index("api_keys_by_secret", "secret_hash", unique=True),
    Index("api_keys_by_previous_secret", "previous_hash", unique=True),
    sqlite_autoincrement=_NEVER_REUSED,
)


# What somebody did to a key, a webhook or the store. Never updated, never deleted.
audit_trail = Table(
    "audit_trail",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("at", Instant, nullable=False),
    Column("who", short_text(255), nullable=False),
    Column("action", short_text(32), nullable=False),
    Column("subject", short_text(512), nullable=False),
    sqlite_autoincrement=_NEVER_REUSED,
)


# A pet of the catalogue. The catalogue is leaving this service.
pets = Table(
    "pets",
    METADATA,
    Column("id", RowId, primary_key=True, autoincrement=False),
    Column("name", short_text(255), nullable=False),
    Column("category_id", sa.BigInteger),
    Column("status", short_text(16), nullable=False),
    CheckConstraint("status IN ('available', 'pending', 'sold')", name="pets_status"),
)


# A webhook's endpoint, and how far the event log was delivered to it.
webhook_endpoints = Table(
    "webhook_endpoints",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("url", short_text(2048), nullable=False),
    # The types of events that it wants, separated by blanks.
    Column("events", short_text(255), nullable=False),
    Column("allow_private", sa.Boolean, nullable=False),
    # In plain text: messages are signed with them. The previous one signs as well, until then.
    Column("secret", short_text(128), nullable=False),
    Column("previous_secret", short_text(128)),
    Column("previous_until", Instant),
    Column("created_at", Instant, nullable=False),
    # Every event up to this one was delivered, is not wanted, or was set aside.
    Column("position", sa.BigInteger, nullable=False),
    # How often the next event was tried, and when it is tried again.
    Column("tries", sa.Integer, nullable=False),
    Column("next_at", Instant),
    Column("paused_at", Instant),
    Column("paused_because", short_text(255)),
    # The process that delivers to it, and when its claim ends unless renewed.
    Column("claimed_by", short_text(32)),
    Column("claimed_until", Instant),
    # The id of the API key that added it; None where a command did.
    Column("added_by", sa.BigInteger),
    sqlite_autoincrement=_NEVER_REUSED,
)


# An event that an endpoint refused, set aside so that later events can pass.
webhook_refused = Table(
    "webhook_refused",
    METADATA,
    Column("endpoint_id", ForeignKey("webhook_endpoints.id"), primary_key=True),
    Column("event_id", ForeignKey("order_events.id"), primary_key=True),
    Column("tries", sa.Integer, nullable=False),
    Column("next_at", Instant, nullable=False),
    Index("webhook_refused_by_next", "endpoint_id", "next_at", "event_id"),
)


# One attempt to deliver an event, or a ping, and its outcome.
webhook_deliveries = Table(
    "webhook_deliveries",
    METADATA,
    Column("id", RowId, primary_key=True),
    Column("endpoint_id", ForeignKey("webhook_endpoints.id"), nullable=False),
    # None for a ping.
    Column("event_id", ForeignKey("order_events.id")),
    Column("at", Instant, nullable=False),
    Column("outcome", short_text(16), nullable=False),
    # None where there was no response; then the fault says why.
    Column("status", sa.Integer),
    Column("fault", short_text(255)),
    Column("milliseconds", sa.Integer, nullable=False),
    # The first characters of the response's body.
    Column("answer", short_text(200), nullable=False),
    Index("webhook_deliveries_by_endpoint", "endpoint_id", "id"),
    Index("webhook_deliveries_by_age", "at"),
    # By which the answers are found that may repeat what is to be forgotten.
    Index("webhook_deliveries_by_event", "event_id"),
    sqlite_autoincrement=_NEVER_REUSED,
)


# An instant's quarter of an hour, since the beginning of the year 1.
QUARTER = {
    "sqlite": "(strftime('%s', {}) + 62135596800) / 900",
    "postgresql": "CAST(floor((extract(epoch FROM {}) + 62135596800) / 900) AS bigint)",
}


_TRIGGER = re.compile(r"CREATE TRIGGER (\w+) .*? ON (\w+)", re.DOTALL)


def create_triggers(connection: sa.Connection) -> None:
    """Create, or create anew, what the database itself does as rows change: refuse, or count."""
    dialect = connection.dialect.name
    script = (Path(__file__).parent / "triggers" / f"{dialect}.sql").read_text(encoding="utf-8")
    fixed = [name for name in order_events.columns.keys() if name not in PERSONAL]  # noqa: SIM118 - no dict
    script = script.replace("{fixed}", ", ".join(fixed))
    script = script.replace("{personal}", ", ".join(f"NEW.{name}" for name in PERSONAL))
    for statement in script.split("\n\n"):
        if made := _TRIGGER.search(statement):
            of = f" ON {made[2]}" if dialect == "postgresql" else ""
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {made[1]}{of}")
        connection.exec_driver_sql(statement)
