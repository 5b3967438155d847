"""Two services over one PostgreSQL and one Redis: both apply a change of a key."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.support.machine import wait_until
from tests.support.redis_server import redis_running
from tests.support.service import running

pytestmark = [pytest.mark.postgres, pytest.mark.redis]

LIST = "/v2/store/orders"


@pytest.fixture
def both(tmp_path, server, forks):
    """Two services over one database and one Redis, each with a folder of its own."""
    name = server.create_store()
    with ExitStack() as running_ones:
        running_ones.callback(server.drop, name)
        redis = running_ones.enter_context(redis_running(tmp_path / "redis"))
        shared = {"ORDERS_DATABASE_URL": server.url(name), "ORDERS_LIMITS_URL": redis.url}
        yield [
            running_ones.enter_context(running(tmp_path / each, forks=forks, **shared))
            for each in ("one", "other")
        ]


def refuses(service, secret):
    return service.request("GET", LIST, secret).status == 401


@pytest.mark.parametrize("act", ["revoke", "rotate"])
def test_a_key_that_one_service_revokes_or_rotates_is_soon_refused_by_the_other(both, act):
    one, other = both
    owner = one.issue("business", "--scope", "admin")
    new = {"name": "the web shop", "plan": "business"}
    key = one.request("POST", "/v2/keys", owner, json=new).json()
    # Each has it cached.
    assert [each.request("GET", LIST, key["secret"]).status for each in both] == [200, 200]
    path = f"/v2/keys/{key['id']}"
    if act == "revoke":
        assert one.request("DELETE", path, owner).status == 204
    else:
        rotated = one.request("POST", f"{path}/rotate", owner)
        assert other.request("GET", LIST, rotated.json()["secret"]).status == 200
    # The service that made the change refuses it at once.
    assert refuses(one, key["secret"])
    wait_until(lambda: refuses(other, key["secret"]))
