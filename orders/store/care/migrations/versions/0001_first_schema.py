"""The first schema: orders, their events, idempotency keys, API keys, pets, the store itself."""

import secrets

import sqlalchemy as sa
from alembic import op

from orders.store.care.migrations.append_only import forbid_changes
from orders.store.database.types import Instant
from orders.store.tables import RowId, words

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def order_columns() -> list[sa.Column[object]]:
    """Return the columns that an order and each of its events have in common."""
    return [
        sa.Column("pet_id", sa.BigInteger, nullable=False),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.Column("ship_date", Instant),
        sa.Column("status", words(16), nullable=False),
        sa.Column("placed_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.Column("reference", words(64)),
    ]


def upgrade() -> None:
    """Make all tables, and give the store its random id."""
    _make_keys()
    _make_orders()
    _make_events()
    _make_idempotency_keys()
    op.create_table(
        "pets",
        sa.Column("id", RowId, primary_key=True, autoincrement=False),
        sa.Column("name", words(255), nullable=False),
        sa.Column("category_id", sa.BigInteger),
        sa.Column("status", words(16), nullable=False),
        sa.CheckConstraint("status IN ('available', 'pending', 'sold')", name="pets_status"),
    )
    store = op.create_table(
        "store",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("store_id", words(32), nullable=False),
        sa.Column("demo_key_id", RowId, sa.ForeignKey("api_keys.id")),
    )
    op.bulk_insert(store, [{"id": 1, "store_id": secrets.token_hex(8)}])


def _make_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("name", words(255), nullable=False),
        sa.Column("prefix", words(16), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("previous_hash", sa.LargeBinary(32)),
        sa.Column("previous_until", Instant),
        sa.Column("plan", words(64), nullable=False),
        sa.Column("per_minute", sa.Integer),
        sa.Column("per_day", sa.Integer),
        sa.Column("plan_revision", sa.Integer, nullable=False),
        sa.Column("scopes", words(64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("last_used_at", Instant),
        sa.Column("expires_at", Instant),
        sa.Column("revoked_at", Instant),
        sa.Column("banned_until", Instant),
        sqlite_autoincrement=True,
    )
    op.create_index("api_keys_by_secret", "api_keys", ["secret_hash"], unique=True)
    op.create_index("api_keys_by_previous_secret", "api_keys", ["previous_hash"], unique=True)


def _make_orders() -> None:
    op.create_table(
        "orders",
        sa.Column("id", RowId, primary_key=True),
        *order_columns(),
        sa.CheckConstraint("status IN ('pending', 'shipped', 'cancelled')", name="orders_status"),
        sa.CheckConstraint("quantity BETWEEN 1 AND 2147483647", name="orders_quantity"),
        sa.CheckConstraint("pet_id >= 1", name="orders_pet_id"),
        sa.CheckConstraint(
            "status <> 'shipped' OR ship_date IS NOT NULL", name="orders_shipped_has_date"
        ),
        sqlite_autoincrement=True,
    )


def _make_events() -> None:
    op.create_table(
        "order_events",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("type", words(24), nullable=False),
        sa.Column("order_id", RowId, sa.ForeignKey("orders.id"), nullable=False),
        sa.Column("at", Instant, nullable=False),
        sa.Column("actor", words(32), nullable=False),
        sa.Column("request_id", words(32)),
        *order_columns(),
        # Changes came with 0009. SQLite before 3.53 can't alter a constraint later.
        sa.CheckConstraint(
            "type IN ('order.placed', 'order.changed', 'order.shipped', 'order.cancelled', "
            "'order.imported')",
            name="order_events_type",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("order_events_by_order", "order_events", ["order_id", "id"])
    # The log is what clients, webhooks and ETags rest on: not even a slip in this program's own
    # code may change what it said.
    forbid_changes("order_events", "the event log is never changed")


def _make_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("key_id", RowId, sa.ForeignKey("api_keys.id"), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("value", words(255), primary_key=True),
        sa.Column("event_id", RowId, sa.ForeignKey("order_events.id")),  # as above
        sa.Column("at", Instant, nullable=False),
    )
    op.create_index("idempotency_keys_by_age", "idempotency_keys", ["at"])
