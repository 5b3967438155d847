"""Counters and bans in a real Redis, which several processes share and which may be down."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from limits.storage import storage_from_string
from test_bans import BAN, LIST, codes, own, plain, spend, unban
from test_bans import strike as strike_once
from test_counters import DAY, MINUTE, counts, quotas

from orders.clock import Clock
from orders.store.database import commits
from tests.support.databases import DATABASES
from tests.support.redis_server import redis_running
from tests.support.stores import assert_error

pytestmark = pytest.mark.redis

KEY = "key:1.0"
STRIKES = "key:1/strikes"


def storage_of(url, clock, store_id="abc"):
    """Return a storage as another process would have it."""
    from orders.counters.redis import RedisCounterStorage  # its package is an extra

    return RedisCounterStorage("shared://", url=url, store_id=lambda: store_id, clock=clock)


def used(usage):
    """Return how much of a window is used up."""
    return usage.quota.limit - usage.remaining


def hit(storage, times=1, *figures):
    """Send requests; return whether the last one was counted, and the counts after it."""
    for _ in range(times):
        counted, usages = storage.hit(quotas(*figures))
    return counted, *map(used, usages)


def strike(storage, times=1):
    """Strike this many times; return the number of each strike, of three."""
    return [storage.strike(STRIKES, DAY, 3) for _ in range(times)]


def warnings(caplog):
    """Return the warnings that were logged."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def counting():
    return "redis"


@pytest.fixture
def own_redis(tmp_path, monkeypatch):
    """A Redis of its own, which a test may kill."""
    monkeypatch.setattr("orders.counters.redis.TIMEOUT_SECONDS", 10)
    with redis_running(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def begin():
    """Begin counting as a process does at its start; all are closed at the end."""
    begun = []

    def begin_one(server, clock, **options):
        begun.append(storage_of(server.url, clock, **options))
        begun[-1].load()
        return begun[-1]

    yield begin_one
    for storage in begun:
        storage.close()


@pytest.fixture
def counters(begin, redis, clock):
    return begin(redis, clock)


@pytest.fixture
def other(begin, redis, clock):
    """Another process' counters of the same store."""
    return begin(redis, clock)


# Counting, by several processes.


def test_the_storage_is_found_by_its_scheme_and_opens_nothing(tmp_path):
    url = f"unix://{tmp_path}/none"
    made = storage_of(url, Clock())
    found = storage_from_string("shared://", url=url, store_id=lambda: "abc", clock=Clock())
    assert type(found) is type(made)
    assert found.check()


def test_processes_of_one_store_count_together_and_two_stores_separately(
    counters, other, begin, redis, clock
):
    stranger = begin(redis, clock, store_id="xyz")
    assert hit(counters, 3) == (True, 3, 3)
    clock.advance(20)
    assert hit(other, 2) == (True, 5, 5)
    assert hit(counters) == (False, 5, 5)
    assert counts(other) == [5, 5]
    clock.advance(40)
    assert hit(counters) == (True, 1, 6)
    assert hit(stranger, 2) == (True, 2, 2)
    assert (counts(counters), counts(stranger)) == ([1, 6], [2, 2])


def test_a_redis_whose_clock_was_set_back_does_not_extend_windows(counters, redis):
    hit(counters)
    names = [name for name in redis.names() if KEY.encode() in name]
    for name in names:
        redis.command("PEXPIRE", name, 10 * DAY * 1000)
    hit(counters)
    assert max(redis.command("PTTL", name) for name in names) <= DAY * 1000
    assert [round(usage.ends_in) for usage in counters.peek(quotas())] == [MINUTE, DAY]


def test_strikes_begin_again_once_the_ban_is_settled(counters, clock, monkeypatch):
    # Minutes instead of seconds: on a busy machine, a tenth of a second may pass in Redis itself.
    monkeypatch.setattr("orders.counters.redis._SETTLED_MS", 60_000)
    monkeypatch.setattr("orders.counters.redis._UNSETTLED_MS", 600_000)
    counters.settle(STRIKES)
    assert strike(counters, 2) == [1, 0]
    clock.advance(1)
    assert strike(counters, 3) == [2, 3, 4]
    clock.advance(300)
    counters.settle(STRIKES)
    clock.advance(50)
    assert strike(counters) == [5]
    clock.advance(10)
    assert strike(counters, 3) == [1, 0, 0]
    clock.advance(1)
    assert strike(counters, 2) == [2, 3]
    clock.advance(590)
    assert strike(counters) == [4]
    clock.advance(10)
    assert strike(counters) == [1]


# Data in Redis.


def test_every_redis_key_expires_and_is_small(counters, redis):
    hit(counters, 3, "key:4711.2", 10**9, 10**9)
    hit(counters, 3, "address:2001:db8:ffff:ffff::/64", 60, 1_000)
    counters.strike("key:4711/strikes", MINUTE, 30)
    names = redis.names()
    assert len(names) == 2 + 2 + 1 + 1  # the last is the probe at the start
    assert all(0 < redis.command("PTTL", name) <= DAY * 1000 for name in names)
    assert max(redis.command("MEMORY", "USAGE", name) for name in names) <= 250


def test_the_windows_of_a_client_are_in_one_cluster_slot(counters):
    from redis.crc import key_slot

    for identity in (KEY, "address:2001:db8::/64"):
        names = [counters.prefixed_key(quota.key).encode() for quota in quotas(identity)]
        assert len(set(names)) == 2
        assert len(set(map(key_slot, names))) == 1


@pytest.mark.parametrize("command", ["SCRIPT FLUSH", "CLIENT KILL TYPE normal SKIPME yes"])
def test_counting_continues_after_redis_flushed_the_script_or_closed_the_connection(
    counters, redis, caplog, command
):
    hit(counters)
    redis.command(*command.split())
    assert hit(counters) == (True, 2, 2)
    assert warnings(caplog) == []


# A Redis that is down.


def test_while_redis_is_down_each_process_counts_in_memory(own_redis, begin, clock, caplog):
    one, other = begin(own_redis, clock), begin(own_redis, clock)
    hit(one, 2)
    own_redis.kill()
    assert hit(one, 5) == (True, 5, 5)
    assert hit(one) == (False, 5, 5)
    assert counts(one) == [5, 5]
    assert strike(one, 2) == [1, 0]
    one.flush()
    (warning,) = warnings(caplog)
    assert warning.startswith(f"Redis at {own_redis.socket} is away (")
    assert warning.endswith("each process counts in memory until it is back.")
    assert (one.check(), one.trouble) == (False, "Redis is away, each process counts in memory")
    assert other.check(), "this process has sent nothing yet"
    own_redis.start()
    one.flush()
    assert (one.check(), one.trouble) == (True, "")
    assert warnings(caplog)[1:] == [f"Redis at {own_redis.socket} is back, and counts again."]
    hit(one)
    assert hit(other) == (True, 2, 2)


def test_the_last_known_state_of_a_window_is_recalled_without_asking_redis(own_redis, begin, clock):
    one = begin(own_redis, clock)
    assert [*map(used, one.recall(quotas()))] == [0, 0]
    hit(one, 3)
    own_redis.kill()
    assert [*map(used, one.recall(quotas()))] == [3, 3]
    clock.advance(61)
    assert [*map(used, one.recall(quotas()))] == [0, 3]
    assert one.check(), "Redis was not asked"


USES = [hit, counts, strike, lambda storage: storage.settle(STRIKES), lambda one: one.flush()]


@pytest.mark.parametrize("use", USES)
def test_any_use_notices_that_redis_is_down_and_only_the_first_warns(
    own_redis, begin, clock, caplog, use
):
    counters = begin(own_redis, clock)
    own_redis.kill()
    for _ in range(3):
        use(counters)
    assert not counters.check()
    (warning,) = warnings(caplog)
    assert "is away" in warning


def test_a_redis_that_hangs_delays_requests_only_once(own_redis, begin, monkeypatch):
    monkeypatch.setattr("orders.counters.redis.TIMEOUT_SECONDS", 5)
    counters = begin(own_redis, Clock())
    hit(counters)
    own_redis.pause()
    with ThreadPoolExecutor(8) as threads:
        began = time.monotonic()
        list(threads.map(lambda _: hit(counters), range(8)))
    for _ in range(100):
        hit(counters)
    assert 4 < time.monotonic() - began < 20  # one after another, they would wait for 40 s and more
    assert not counters.check()
    own_redis.resume()
    counters.flush()
    assert counters.check()


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        (("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"), "is away (READONLY"),
        (("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"), "is away (OOM"),
        (
            ("ACL SETUSER default -evalsha", "ACL SETUSER default +@all"),
            "refuses to count (NOPERM ",
        ),
    ],
)
def test_a_redis_that_refuses_to_write_counts_as_down(own_redis, begin, caplog, commands, words):
    refuse, allow = commands
    counters = begin(own_redis, Clock())
    hit(counters)
    own_redis.command(*refuse.split())
    assert hit(counters) == (True, 1, 1)
    counters.flush()
    assert not counters.check()
    (warning,) = warnings(caplog)
    assert warning.startswith(f"Redis at {own_redis.socket} {words}")
    own_redis.command(*allow.split())
    counters.flush()
    assert counters.check()
    assert hit(counters) == (True, 2, 2)


# Bans with two processes that serve one store: two applications over one folder and one Redis.


@pytest.fixture
def impatient(monkeypatch):
    """Make stores wait only a moment for a lock."""
    for module in (DATABASES.module, commits):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.1)


@pytest.fixture
def both(make_store, store):
    """A client of each of two processes, with the same key of one request a minute."""
    client = own(store)
    return client, type(client)(make_store(), client.key_id, client.secret)


def banned_by(one, other):
    """Get a key banned by the refusals of two processes together, at the thirtieth."""
    spend(one)
    strike_once(other)
    assert codes(other, 13) == plain(13)
    assert codes(one, 16) == [*plain(15), "api_key_banned"]


def test_the_other_process_sees_the_ban_at_once_and_later_reads_it_from_the_keys_row(
    both, clock, caplog
):
    one, other = both
    banned_by(one, other)
    response = other.get(LIST)
    assert_error(response, 429, "api_key_banned")
    assert int(response.headers["Retry-After"]) in {BAN - 1, BAN}
    assert len(caplog.messages) == 1, "only the process that banned the key logs it"
    clock.advance(100)
    response = other.get(LIST)
    assert_error(response, 429, "api_key_banned")
    assert response.headers["Retry-After"] == str(BAN - 100)
    clock.advance(BAN - 100)
    spend(other)
    assert codes(one, 1) == plain(1)


def test_the_other_process_sees_the_ban_before_it_is_in_the_keys_row(impatient, both, clock):
    one, other = both
    with one.store.locked():
        banned_by(one, other)
        clock.advance(3)
        assert codes(other, 2) == ["api_key_banned"] * 2
    one.store.shop.write_keys()
    clock.advance(1)
    assert codes(other, 2) == ["api_key_banned"] * 2
    unban(one.store, one)
    clock.advance(1)
    strike_once(other)
    assert codes(other, 14) == plain(14)


def test_a_key_is_unbanned_in_every_process_and_its_count_begins_at_zero(both):
    one, other = both
    banned_by(one, other)
    codes(other, 5)
    unban(one.store, one)
    strike_once(other)
    assert codes(other, 14) == plain(14)
    assert codes(one, 15) == [*plain(14), "api_key_banned"]
