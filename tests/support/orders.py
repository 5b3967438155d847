"""An order as the API shows it and as a row. A new field of orders comes here, for all tests."""

from __future__ import annotations

from hypothesis import strategies as st
from sqlalchemy import insert

from orders.domain import name_in_api, parse_instant
from orders.store import orders as order_store
from orders.store import tables
from orders.store.tables import METADATA

# Any character of UTF-8: by default, Hypothesis encodes a million of them to find out which.
ANY = st.characters(exclude_categories=["Cs"])
# The start of tests' clocks.
NOON = "2026-12-01T12:00:00.000Z"
# Every optional field, as it may be sent and is shown.
OPTIONAL = {
    "shipDate": "2026-12-05T08:00:00.000Z",
    "reference": "R-1041",
    "note": "A gift\nfor Anna",
    "item": "Red collar, 35 cm",
    "shipTo": "Mia Wong\nHauptstr. 5\n50667 Köln",
}
# Set only when it ships, or later.
TRACKING = "JD0146000041"
COLUMNS = tables.orders.columns.keys()
# Their names in files.
SHOWN = {name: name_in_api(name) for name in COLUMNS}
# The columns of its order that an event repeats, for SQL.
REPEATED = ", ".join(name for name in COLUMNS if name in tables.order_events.c and name != "id")


def order_v1(**changed):
    """Return an order as version 1 shows it: pending unless said otherwise; None leaves out."""
    return _ordered(
        {"id": 1, "petId": 7, "quantity": 1, "shipDate": None, "complete": False, **changed}
    )


def order_v2(**changed):
    """Return an order as version 2 shows it: placed at NOON unless said otherwise."""
    own = {
        "status": "pending",
        "placedAt": NOON,
        "updatedAt": NOON,
        **dict.fromkeys(OPTIONAL),
        "tracking": None,
    }
    status = changed.get("status", "pending")
    return order_v1(**{"complete": status == "shipped", **own, **changed})


def _ordered(order):
    return {name: value for name, value in order.items() if value is not None}


def order_row(**changed):
    """Return the row of an order: pending and placed at NOON unless said otherwise."""
    noon = parse_instant(NOON)
    required = {"id": 1, "pet_id": 7, "quantity": 1, "status": "pending"}
    row = required | {"placed_at": noon, "updated_at": noon} | changed
    assert row.keys() <= {*COLUMNS}
    return dict.fromkeys(COLUMNS) | row


def named_as_columns(order):
    """Return an order, or a part of one, with its fields called as in the tables."""
    return {name: order[shown] for name, shown in SHOWN.items() if shown in order}


def event_row(order, **event):
    """Return the row of an event of an order, which repeats the order's."""
    repeated = {name: order[name] for name in REPEATED.split(", ")}
    facts = {"type": "order.imported", "at": order["placed_at"], "actor": "cli", "request_id": None}
    return {"id": order["id"], "order_id": order["id"], **facts, **repeated, **event}


def put_rows(database, orders, events=()):
    """Write rows of orders, and of events, past all rules but the tables' own."""
    orders = [*orders]
    with database.write() as connection:
        for table, rows in ((tables.orders, orders), (tables.order_events, [*events])):
            if rows:
                connection.execute(insert(table), rows)
        for order in orders:
            order_store.write_words(connection, order["id"])


def sql_copy(table, row_id, *, verb="INSERT", times=1, **changed):
    """Return the SQL that writes a row of a table again, some columns of which are other SQL.

    In that, `n` is the number of the copy, from 1.
    """
    names = METADATA.tables[table].columns.keys()
    values = ", ".join(changed.get(name, name) for name in names)
    columns = ", ".join(names)
    numbers = f"SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < {times}"
    return (
        f"{verb} INTO {table} ({columns}) WITH RECURSIVE numbers AS ({numbers}) "
        f"SELECT {values} FROM {table}, numbers WHERE id = {row_id}"
    )
