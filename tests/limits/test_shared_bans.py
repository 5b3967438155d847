"""Bans where several processes serve one store: two applications over one folder and one Redis."""

from __future__ import annotations

import pytest
from test_bans import LIST, codes, own, plain, spend, unban

from orders.store.database import group_commit
from tests.support.databases import DATABASES
from tests.support.stores import assert_error

pytestmark = pytest.mark.redis

BAN = 300


@pytest.fixture
def counting():
    return "redis"


@pytest.fixture
def impatient(monkeypatch):
    """Have stores wait for a lock for a moment only."""
    for module in (DATABASES.module, group_commit):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.1)


@pytest.fixture
def other(make_store, store):
    """Another process over the same store."""
    return make_store()


@pytest.fixture
def both(store, other):
    """A client whose key has a minute of one request, at the one process and at the other."""
    client = own(store)
    return client, type(client)(other, client.key_id, client.secret)


def banned_by(one, other):
    """Have a key banned by the refusals of two processes together."""
    spend(one)
    assert codes(other, 14) == plain(14)
    assert codes(one, 15) == plain(15)
    assert codes(one, 1) == ["api_key_banned"]


def test_the_thirtieth_429_of_all_processes_is_the_ban(both):
    banned_by(*both)


def test_the_other_process_knows_of_the_ban_at_once(both, caplog):
    one, other = both
    banned_by(one, other)
    response = other.get(LIST)
    assert_error(response, 429, "api_key_banned")
    assert int(response.headers["Retry-After"]) in {BAN - 1, BAN}
    assert len(caplog.messages) == 1, "only the one that banned says so"


def test_the_other_process_knows_of_the_ban_until_the_keys_row_tells(impatient, both, clock):
    one, other = both
    with one.store.locked():
        banned_by(one, other)
        clock.advance(3)
        assert codes(other, 2) == ["api_key_banned"] * 2
    one.store.services.write_keys()
    clock.advance(1)
    assert codes(other, 2) == ["api_key_banned"] * 2
    unban(one.store, one)
    clock.advance(1)
    assert codes(other, 15) == plain(15)


def test_the_other_process_goes_by_the_keys_row_after_a_second(both, clock):
    one, other = both
    banned_by(one, other)
    codes(other, 5)
    clock.advance(100)
    response = other.get(LIST)
    assert_error(response, 429, "api_key_banned")
    assert response.headers["Retry-After"] == str(BAN - 100)
    clock.advance(BAN - 100)
    spend(other)
    assert codes(one, 1) == plain(1)


def test_an_unbanned_key_is_unbanned_everywhere_and_its_count_begins_at_zero(both):
    one, other = both
    banned_by(one, other)
    codes(other, 5)
    unban(one.store, one)
    assert codes(other, 15) == plain(15)
    assert codes(one, 15) == [*plain(14), "api_key_banned"]
