"""Emptying a store of its orders while it is served: for test mode."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from orders.store.orders import newest_event
from orders.store.tables import (
    EVER,
    idempotency_keys,
    order_events,
    order_quarters,
    order_words,
    orders,
    webhook_deliveries,
    webhook_endpoints,
    webhook_refused,
)

# In an order in which no row refers to one that is gone.
_EMPTIED = (
    *(idempotency_keys, webhook_refused, webhook_deliveries, order_words, order_events, orders),
    order_quarters,
)
# The rule that nothing of the log is deleted, which is set aside for the transaction.
_RULE = "order_events_no_delete"
_DEFINITION = f"SELECT sql FROM sqlite_master WHERE name = '{_RULE}'"  # noqa: S608 # nosec B608 - our own name
_TRIGGERS = "ALTER TABLE order_events {} TRIGGER USER"


def empty(connection: Connection) -> int:
    """Delete all orders and what came of them, in one transaction; return how many there were.

    Keys, webhooks, pets and the audit trail stay. Ids continue, so that nobody who remembers one
    takes another order, or event, for it.
    """
    count = int(connection.scalar(sa.select(sa.func.count()).select_from(orders)) or 0)
    # What was not sent, no endpoint waits for any more.
    newest = newest_event(connection)
    connection.execute(sa.update(webhook_endpoints).values(tries=0, next_at=None))
    waiting = sa.update(webhook_endpoints).where(webhook_endpoints.c.position < newest)
    connection.execute(waiting.values(position=newest))
    if connection.dialect.name == "sqlite":
        rule = str(connection.exec_driver_sql(_DEFINITION).scalar_one())
        connection.exec_driver_sql(f"DROP TRIGGER {_RULE}")
        for table in _EMPTIED:
            connection.execute(sa.delete(table))
        connection.exec_driver_sql(rule)
    else:
        connection.exec_driver_sql(_TRIGGERS.format("DISABLE"))
        connection.exec_driver_sql(f"TRUNCATE {', '.join(table.name for table in _EMPTIED)}")
        connection.exec_driver_sql(_TRIGGERS.format("ENABLE"))
    nothing = {count.name: 0 for count in order_quarters.columns}
    connection.execute(sa.insert(order_quarters).values(nothing | {"quarter": EVER}))
    return count
