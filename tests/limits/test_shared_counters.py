"""The limits' counters in a real Redis: exact over processes, and what happens while it is away."""

from __future__ import annotations

import logging
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from limits.storage import storage_from_string

from orders.clock import Clock
from orders.counters import redis_link
from orders.counters.memory import Ask
from orders.counters.shared import SharedCounterStorage
from tests.support.clocks import ClockBesideRedis
from tests.support.redis_server import redis_running

pytestmark = pytest.mark.redis

MINUTE, DAY = 60, 86_400
KEY = "key:1.0"


def asks(identity=KEY, per_minute=5, per_day=50):
    """Return what a request of one identity asks for: a minute's window and a day's."""
    return [
        Ask(f"{identity}/minute", per_minute, MINUTE, f"{per_minute};{per_day}"),
        Ask(f"{identity}/day", per_day, DAY, f"{per_minute};{per_day}"),
    ]


def storage_of(url, clock, store_id="abc"):
    """Return a storage as a process of its own has it."""
    return SharedCounterStorage("shared://", url=url, store_id=lambda: store_id, clock=clock)


def hit(storage, times=1, *figures):
    """Count requests; tell whether the last one fitted, and the counts after it."""
    for _ in range(times):
        fitted, windows = storage.take(asks(*figures))
    return fitted, *(window.count for window in windows)


def counts(storage, *figures):
    """Return the counts of both windows."""
    return [window.count for window in storage.peek(asks(*figures))]


@pytest.fixture
def own_redis(tmp_path, monkeypatch):
    """A Redis of this test's own, which may be killed."""
    monkeypatch.setattr(redis_link, "TIMEOUT_SECONDS", 10)
    with redis_running(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def clock(redis):
    return ClockBesideRedis(redis)


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


def warnings(caplog):
    """Return the warnings that were logged."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# Counting.


def test_it_is_found_by_its_scheme_and_opens_nothing(tmp_path):
    found = storage_from_string(
        "shared://", url=f"unix://{tmp_path}/none", store_id=lambda: "abc", clock=Clock()
    )
    assert isinstance(found, SharedCounterStorage)
    assert found.check()


def test_all_windows_count_or_none(counters):
    assert hit(counters, 5) == (True, 5, 5)
    assert hit(counters, 5) == (False, 5, 5)


def test_a_full_day_takes_nothing_from_the_minute(counters, clock):
    for _ in range(10):
        hit(counters, 5)
        clock.advance(MINUTE)
    assert hit(counters) == (False, 0, 50)


def test_processes_count_together(counters, other):
    assert hit(counters, 3) == (True, 3, 3)
    assert hit(other, 2) == (True, 5, 5)
    assert hit(counters) == (False, 5, 5)
    assert counts(other) == [5, 5]


def test_a_window_begins_with_the_first_request_of_any_process(counters, other, clock):
    hit(counters)
    clock.advance(20)
    _, (minute, day) = other.take(asks())
    assert 39 < minute.ends_in <= 40
    assert DAY - 21 < day.ends_in <= DAY - 20
    clock.advance(40)
    assert hit(counters) == (True, 1, 3)


def test_peek_counts_nothing(counters):
    assert [window.ends_in for window in counters.peek(asks())] == [MINUTE, DAY]
    assert counts(counters) == [0, 0]


def test_one_other_figure_begins_all_windows_anew_and_so_does_going_back(counters):
    hit(counters, 3)
    assert hit(counters, 1, KEY, 5, 60) == (True, 1, 1)
    assert hit(counters) == (True, 1, 1)


def test_a_process_whose_own_clock_is_set_counts_as_before(counters, clock):
    for jump in (7_200, -14_400):
        hit(counters)
        clock.set_wall(jump)
    assert [round(window.ends_in) for window in counters.peek(asks())] == [MINUTE, DAY]
    assert counts(counters) == [2, 2]


def test_a_redis_whose_clock_was_set_back_keeps_no_window_longer_than_it_is(counters, redis):
    hit(counters)
    windows = [key for key in redis.names() if KEY.encode() in key]
    for key in windows:
        redis.command("PEXPIRE", key, 10 * DAY * 1000)
    hit(counters)
    assert max(redis.command("PTTL", key) for key in windows) <= DAY * 1000
    assert [round(window.ends_in) for window in counters.peek(asks())] == [MINUTE, DAY]


def take_many(url, times):
    """Count requests in a process of its own, with four threads; return what each was told."""
    redis_link.TIMEOUT_SECONDS = 10
    storage = storage_of(url, Clock())
    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(lambda _: hit(storage, 1, KEY, 1_000, 900), range(times)))
    storage.close()
    return told


def in_four_processes(work, *arguments):
    """Do something in four processes at once; return what all of it gave."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=spawned) as processes:
        done = [processes.submit(work, *arguments) for _ in range(4)]
        return [each for some in done for each in some.result()]


def test_counting_is_exact_among_four_processes_of_four_threads(redis):
    told = in_four_processes(take_many, redis.url, 300)
    admitted = sorted(count for fitted, count, _ in told if fitted)
    assert admitted == list(range(1, 901))
    assert {each for each in told if not each[0]} == {(False, 900, 900)}


def strike_many(url, times):
    """Strike in a process of its own, with four threads; return what each strike gave."""
    redis_link.TIMEOUT_SECONDS = 10
    storage = storage_of(url, Clock())
    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(lambda _: storage.strike("strikes:1", MINUTE, 100), range(times)))
    storage.close()
    return told


def test_among_four_processes_one_makes_the_last_strike_and_later_ones_hear_of_it(redis):
    told = in_four_processes(strike_many, redis.url, 30)
    assert told.count(None) == 99
    assert told.count(0.0) == 1
    assert all(0 < since <= 10 for since in told if since)


def test_until_it_is_known_what_strikes_led_to_later_ones_hear_of_it(counters, clock):
    assert [counters.strike("strikes:1", MINUTE, 3) for _ in range(3)] == [None, None, 0.0]
    clock.advance(4)
    assert 4 <= counters.strike("strikes:1", MINUTE, 3) < 5
    for _ in range(2):
        counters.settle("strikes:1")
    clock.advance(0.9)
    assert 4.9 <= counters.strike("strikes:1", MINUTE, 3) < 6
    clock.advance(0.1)
    assert [counters.strike("strikes:1", MINUTE, 3) for _ in range(3)] == [None, None, 0.0]
    clock.advance(10)
    assert counters.strike("strikes:1", MINUTE, 3) is None


def test_what_has_come_to_nothing_yet_is_not_settled(counters, clock):
    counters.settle("strikes:1")
    assert [counters.strike("strikes:1", MINUTE, 3) for _ in range(2)] == [None, None]
    counters.settle("strikes:1")
    clock.advance(2)
    assert counters.strike("strikes:1", MINUTE, 3) == 0.0


def test_strikes_begin_anew_after_their_window(counters, clock):
    assert [counters.strike("strikes:1", MINUTE, 3) for _ in range(2)] == [None, None]
    clock.advance(MINUTE)
    assert [counters.strike("strikes:1", MINUTE, 3) for _ in range(3)] == [None, None, 0.0]


# What is in Redis.


def test_every_key_ends_and_is_small(counters, redis):
    hit(counters, 3, "key:4711.2", 10**9, 10**9)
    hit(counters, 3, "address:2001:db8:ffff:ffff::/64", 60, 1_000)
    counters.strike("strikes:4711", MINUTE, 30)
    keys = redis.names()
    assert len(keys) == 2 + 2 + 1 + 1  # and what was tried at the start
    assert all(0 < redis.command("PTTL", key) <= DAY * 1000 for key in keys)
    assert max(redis.command("MEMORY", "USAGE", key) for key in keys) <= 250


def test_the_windows_of_a_client_are_in_one_slot_of_a_cluster(counters):
    from redis.crc import key_slot

    for identity in (KEY, "address:2001:db8::/64"):
        names = [counters.prefixed_key(ask.key).encode() for ask in asks(identity)]
        assert len(set(names)) == 2
        assert len(set(map(key_slot, names))) == 1


def test_two_stores_in_one_redis_do_not_mix(counters, begin, redis, clock):
    stranger = begin(redis, clock, store_id="xyz")
    hit(counters, 3)
    assert counts(stranger) == [0, 0]
    hit(stranger, 2)
    assert counters.reset() >= 2
    assert (counts(counters), counts(stranger)) == ([0, 0], [2, 2])


def test_a_redis_that_forgot_the_scripts_is_told_them_again(counters, redis, caplog):
    hit(counters)
    counters.strike("strikes:1", MINUTE, 2)
    redis.command("SCRIPT", "FLUSH")
    assert hit(counters) == (True, 2, 2)
    redis.command("SCRIPT", "FLUSH")
    assert counters.strike("strikes:1", MINUTE, 2) == 0.0
    assert warnings(caplog) == []


def test_a_connection_that_redis_closed_is_made_anew(counters, redis, caplog):
    hit(counters)
    redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert hit(counters) == (True, 2, 2)
    assert warnings(caplog) == []


# A Redis that is away.


def test_while_redis_is_away_the_process_goes_on_from_what_it_saw(own_redis, begin, clock, caplog):
    one, other = begin(own_redis, clock), begin(own_redis, clock)
    hit(one, 2)
    hit(other, 1)
    own_redis.kill()
    assert hit(one) == (True, 3, 3)  # it has not seen the other's
    assert hit(one, 2) == (True, 5, 5)
    assert hit(one) == (False, 5, 5)
    assert hit(one, 1, "key:2.0") == (True, 1, 1)
    (warning,) = warnings(caplog)
    assert warning.startswith(f"Redis at {own_redis.socket} is away (")
    assert warning.endswith("each process counts in memory until it is back.")
    assert not one.check()
    assert one.trouble == "Redis is away, each process counts in memory"
    assert other.check(), "it has not asked yet"


def test_strikes_are_counted_while_redis_is_away(own_redis, begin, clock):
    counters = begin(own_redis, clock)
    own_redis.kill()
    assert [counters.strike("strikes:1", MINUTE, 3) for _ in range(4)] == [None, None, 0.0, None]


def test_redis_counts_again_when_it_is_back(own_redis, begin, clock, caplog):
    one, other = begin(own_redis, clock), begin(own_redis, clock)
    hit(one)
    own_redis.kill()
    hit(one)
    one.flush()
    assert not one.check()
    own_redis.start()
    one.flush()
    assert (one.check(), one.trouble) == (True, "")
    assert warnings(caplog)[1:] == [f"Redis at {own_redis.socket} is back, and counts again."]
    hit(one)
    assert hit(other) == (True, 4, 4)


def test_a_process_that_nobody_asks_finds_out_that_redis_is_away(own_redis, begin, clock, caplog):
    counters = begin(own_redis, clock)
    own_redis.kill()
    for _ in range(3):
        counters.flush()
    assert not counters.check()
    assert "is away" in warnings(caplog)[0]
    assert len(warnings(caplog)) == 1


def test_a_redis_that_lost_its_memory_gives_nobody_new_windows(own_redis, begin, clock):
    counters = begin(own_redis, clock)
    hit(counters, 5)
    clock.advance(20)
    own_redis.kill()
    own_redis.start()
    fitted, (minute, day) = counters.take(asks())
    assert (fitted, minute.count, day.count) == (False, 5, 5)
    assert 39 < minute.ends_in <= 40
    assert DAY - 21 < day.ends_in <= DAY - 20
    newcomer = begin(own_redis, clock)
    assert hit(newcomer) == (False, 5, 5)


def test_what_was_counted_in_memory_holds_in_a_redis_that_kept_its_own(
    own_redis, begin, clock, monkeypatch
):
    monkeypatch.setattr(redis_link, "TIMEOUT_SECONDS", 0.1)
    one, other = begin(own_redis, clock), begin(own_redis, clock)
    hit(one, 10, KEY, 50, 500)
    own_redis.pause()
    hit(one, 4, KEY, 50, 500)
    own_redis.resume()
    one.flush()
    assert hit(one, 1, KEY, 50, 500) == (True, 15, 15)
    assert hit(other, 1, KEY, 50, 500) == (True, 16, 16)


def test_what_may_be_over_is_not_brought_back(counters, redis, clock):
    hit(counters, 5)
    clock.advance(MINUTE - 0.5)
    redis.command("FLUSHALL")
    assert hit(counters) == (True, 1, 6)


def test_a_redis_that_stands_still_delays_a_request_once(own_redis, begin, monkeypatch):
    monkeypatch.setattr(redis_link, "TIMEOUT_SECONDS", 0.5)
    counters = begin(own_redis, Clock())
    hit(counters)
    own_redis.pause()
    with ThreadPoolExecutor(8) as threads:
        began = time.monotonic()
        list(threads.map(lambda _: hit(counters), range(8)))
        assert 0.4 < time.monotonic() - began < 2
    began = time.monotonic()
    for _ in range(100):
        hit(counters)
    assert time.monotonic() - began < 0.5  # of all hundred: what one would have waited
    own_redis.resume()
    counters.flush()
    assert counters.check()


REFUSALS = {
    "READONLY": ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    "OOM": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "NOPERM": ("ACL SETUSER default -evalsha", "ACL SETUSER default +@all"),
}


@pytest.mark.parametrize("word", REFUSALS)
def test_a_redis_that_refuses_to_write_is_away(own_redis, begin, clock, caplog, word):
    refuse, allow = REFUSALS[word]
    counters = begin(own_redis, clock)
    hit(counters)
    own_redis.command(*refuse.split())
    assert hit(counters) == (True, 2, 2)
    counters.flush()
    assert not counters.check()
    assert word in warnings(caplog)[0]
    assert len(warnings(caplog)) == 1
    own_redis.command(*allow.split())
    counters.flush()
    assert counters.check()
    assert hit(counters) == (True, 3, 3)
