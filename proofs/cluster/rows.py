"""What the database holds after a run, as `proofs.crash` compares it with what clients know."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from orders.domain import format_instant
from proofs.core.history import Contents, EventRow, OrderRow, RememberedRow


def read(conninfo: str) -> Contents:
    """Read a store's tables in one snapshot."""
    with psycopg.connect(conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return Contents(
            _rows(connection, OrderRow, "orders", "id"),
            _rows(connection, EventRow, "order_events", "id"),
            _rows(connection, RememberedRow, "idempotency_keys", "event_id"),
        )


def tries(conninfo: str) -> Counter[tuple[int, str]]:
    """Count what came of the tries to deliver, by endpoint."""
    asked = (
        "SELECT endpoint_id, coalesce(fault, outcome), count(*) FROM webhook_deliveries "
        "GROUP BY 1, 2"
    )
    with psycopg.connect(conninfo) as connection:
        return Counter({(each, what): count for each, what, count in connection.execute(asked)})


def _rows(connection: Any, kind: Any, table: str, order_by: str) -> list[Any]:
    asked = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(
        sql.SQL(", ").join(map(sql.Identifier, kind._fields)),
        sql.Identifier(table),
        sql.Identifier(order_by),
    )
    return [kind._make(map(_as_text, row)) for row in connection.execute(asked)]


def _as_text(value: Any) -> Any:
    return format_instant(value) if isinstance(value, datetime) else value
