"""What tests of limits share: a service that starts again."""

from __future__ import annotations

import pytest


@pytest.fixture
def start_again(make_store):
    """Stop a client's store and start another over the same folder; return the client there."""

    def again(client, **changes):
        client.store.shop.end()
        store = make_store(**changes)
        store.shop.begin()
        return type(client)(store, client.key_id, client.secret, client.address)

    return again
