"""A fixture for the tests of limits: a store that stops and starts again."""

from __future__ import annotations

import pytest


@pytest.fixture
def start_again(make_store):
    """Restart a client's store over the same folder; return the client of the new one."""

    def again(client, **changes):
        client.store.shop.end()
        store = make_store(**changes)
        store.shop.begin()
        return type(client)(store, client.key_id, client.secret, client.address)

    return again
