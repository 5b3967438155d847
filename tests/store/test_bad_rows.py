"""What reading the database finds: a bug is 500, with its traceback in the log, and no damage.

A value that stands for nothing is damage, and is logged where it is converted.
"""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from sqlalchemy import insert

from orders.store import apikeys as key_store
from orders.store import orders as order_store
from orders.store import orders_json, pets, tables
from orders.store.database import sqlite
from tests.support.running_shop import ORDERS, PET
from tests.support.stores import assert_error, logged

ORDER = f"{ORDERS}/1"
# How each request converts the rows that it reads.
MADE = {
    ORDER: (orders_json, "Entity"),
    ORDERS: (orders_json, "Listed"),
    PET: (pets, "Pet"),
    "a placing": (order_store, "Changed"),
    "an unknown key": (key_store, "ApiKey"),
}
# A statement that writes an invalid value, and what the value is not.
BAD_VALUES = {
    "UPDATE api_keys SET expires_at = 'soon~'": "instant",
    "UPDATE api_keys SET expires_at = '2099-01-01T00:00:00'": "instant",
    "UPDATE pets SET status = 'lost'": "PetStatus",
}


@pytest.fixture
def client(store):
    client = store.client()
    with store.database.write() as connection:
        connection.execute(insert(tables.pets).values(id=7, name="Rex", status="sold"))
    assert client.place().status_code == 201
    return client


def sent(client, what):
    if what == "a placing":
        return client.place()
    if what == "an unknown key":
        return client.store.client().get(ORDER)
    return client.get(what)


@pytest.mark.parametrize("what", MADE)
def test_a_bug_is_not_reported_as_damage_and_is_logged_with_its_traceback(
    client, monkeypatch, what
):
    monkeypatch.setattr(*MADE[what], None)
    with logged() as log:
        assert_error(sent(client, what), 500, "internal_error")
    assert "TypeError: 'NoneType' object is not callable" in log.getvalue()
    assert client.store.database.outages.causes == {}


@pytest.mark.sqlite_only("values that PostgreSQL's types refuse")
@pytest.mark.parametrize("statement", BAD_VALUES)
def test_a_meaningless_value_is_reported_and_logged_as_damage(client, statement):
    with closing(sqlite.connect(client.store.database.path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement)
    client.store.clock.advance(61)  # after which the key is looked up again
    with logged() as log:
        assert_error(client.get(PET), 503, "store_unavailable")
    (line,) = re.findall(r"error: .*", log.getvalue())
    assert line.endswith(f"The database has a value that is no {BAD_VALUES[statement]}.")
