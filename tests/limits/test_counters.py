"""The limits' counters: fixed windows, in memory and in Redis, and the journal in a file."""

from __future__ import annotations

import logging
import math
import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from stat import S_IMODE

import pytest
from limits.storage import storage_from_string

from orders.counters import windows
from orders.counters.journal import Journal
from orders.counters.memory import CounterStorage
from orders.counters.windows import MAX_ADDRESSES, Quota
from orders.store.database import sqlite
from tests.support.clocks import WHERE_COUNTED

MINUTE, DAY = 60, 86_400


def quotas(identity="key:1.0", per_minute=5, per_day=50):
    """Return the windows of one client: a minute's and a day's."""
    terms = f"{per_minute};{per_day}"
    return [
        Quota(f"{identity}/minute", per_minute, MINUTE, terms),
        Quota(f"{identity}/day", per_day, DAY, terms),
    ]


def exactly(usages):
    """Return counts and seconds left."""
    return [(usage.count, usage.ends_in) for usage in usages]


def state(storage, *identity):
    """Return the counts of both windows of a client, and their whole seconds left."""
    return [(each.count, math.ceil(each.ends_in)) for each in storage.peek(quotas(*identity))]


def counts(storage, *identity):
    """Return the counts of both windows of a client."""
    return [usage.count for usage in storage.peek(quotas(*identity))]


def hit(storage, times=1, *identity):
    """Send requests; return whether the last one was counted."""
    for _ in range(times):
        counted, _ = storage.hit(quotas(*identity))
    return counted


@pytest.fixture
def path(tmp_path):
    return tmp_path / "counters.db"


@pytest.fixture
def begin(path, clock):
    """Begin counting over this test's journal, as a start does; all are closed at the end."""
    begun = []

    def begin_one():
        begun.append(CounterStorage(path=path, clock=clock))
        begun[-1].load()
        return begun[-1]

    yield begin_one
    for storage in begun:
        storage.close()


@pytest.fixture
def in_redis(request, clock):
    from orders.counters.redis import RedisCounterStorage  # its package is an extra

    url = request.getfixturevalue("redis").url
    storage = RedisCounterStorage("shared://", url=url, store_id=lambda: "abc", clock=clock)
    storage.load()
    yield storage
    storage.close()


@pytest.fixture
def counters(counting, request, begin):
    return request.getfixturevalue("in_redis") if counting == "redis" else begin()


@pytest.fixture
def journal(path):
    """Run SQL on the journal from outside, as another program would; return the rows."""

    def run(sql):
        connection = sqlite.connect(path)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    return run


def journalled(journal):
    """Return the counts in the journal by their keys."""
    return dict(journal("SELECT key, count FROM windows"))


# Windows, in memory and in Redis.

everywhere = pytest.mark.parametrize("counting", WHERE_COUNTED)


@everywhere
def test_a_request_counts_in_all_windows_until_one_is_full(counters):
    counted, usages = counters.hit(quotas())
    assert counted
    assert exactly(usages) == [(1, MINUTE), (1, DAY)]
    assert hit(counters, 4)
    assert not hit(counters, 10)
    assert counts(counters) == [5, 5]


@everywhere
def test_a_full_day_takes_nothing_from_the_minute(counters, clock):
    for _ in range(10):
        hit(counters, 5)
        clock.advance(MINUTE)
    counted, usages = counters.hit(quotas())
    assert not counted
    assert [usage.count for usage in usages] == [0, 50]


@everywhere
def test_a_window_lasts_from_its_first_request(counters, clock):
    hit(counters)
    clock.advance(20)
    hit(counters)
    assert state(counters) == [(2, MINUTE - 20), (2, DAY - 20)]
    clock.advance(40)
    assert hit(counters)
    assert state(counters) == [(1, MINUTE), (3, DAY - 60)]


@everywhere
def test_peek_counts_nothing(counters):
    counters.peek(quotas())
    assert exactly(counters.peek(quotas())) == [(0, MINUTE), (0, DAY)]


@everywhere
def test_one_other_figure_begins_all_windows_anew_and_so_does_going_back(counters):
    hit(counters, 3)
    assert hit(counters, 1, "key:1.0", 5, 60)
    assert state(counters, "key:1.0", 5, 60) == [(1, MINUTE), (1, DAY)]
    assert state(counters) == [(0, MINUTE), (0, DAY)]
    hit(counters)
    assert counts(counters) == [1, 1]


@everywhere
def test_a_clock_that_was_set_changes_nothing(counters, clock):
    hit(counters, 3)
    for jump in (7_200, -14_400):
        clock.set_wall(jump)
        assert state(counters) == [(3, MINUTE), (3, DAY)]


@everywhere
def test_strikes_begin_anew_after_their_window(counters, clock):
    assert [counters.strike("key:1/strikes", MINUTE, 3) for _ in range(2)] == [1, 2]
    clock.advance(MINUTE)
    assert [counters.strike("key:1/strikes", MINUTE, 3) for _ in range(3)] == [1, 2, 3]


def test_strikes_begin_anew_after_the_last_one(begin):
    counters = begin()
    assert [counters.strike("key:1/strikes", MINUTE, 3) for _ in range(4)] == [1, 2, 3, 1]


def test_counting_is_exact_among_sixteen_threads_while_it_is_written(begin):
    counters, wanted = begin(), ("key:1.0", 1_000, 10_000)

    def hit_many(_):
        return sum(counters.hit(quotas(*wanted))[0] for _ in range(125))

    with ThreadPoolExecutor(17) as pool:
        written = pool.submit(lambda: [counters.flush() for _ in range(50)])
        counted = sum(pool.map(hit_many, range(16)))
        written.result()
    assert counted == 1_000
    assert state(counters, *wanted) == [(1_000, MINUTE), (1_000, DAY)]
    counters.flush()
    assert state(begin(), *wanted) == [(1_000, MINUTE), (1_000, DAY)]


# The interface of `limits`.


@pytest.fixture
def memory(begin):
    return begin()


def test_it_is_found_by_its_scheme_and_opens_nothing(path, clock):
    found = storage_from_string("journal://", path=path, clock=clock)
    assert isinstance(found, CounterStorage)
    assert not path.exists()


def test_incr_counts_within_a_window_that_the_first_one_begins(memory, clock):
    assert (memory.get("a"), memory.get_expiry("a")) == (0, clock.time())
    assert memory.incr("a", MINUTE) == 1
    ends = clock.time() + MINUTE
    clock.advance(59.75)
    assert memory.incr("a", MINUTE, amount=5) == 6
    assert (memory.get("a"), memory.get_expiry("a")) == (6, ends)
    clock.set_wall(3_600)
    assert memory.get_expiry("a") == ends + 3_600
    clock.advance(0.25)
    assert (memory.get("a"), memory.get_expiry("a")) == (0, clock.time())
    assert memory.incr("a", MINUTE) == 1


def test_clear_forgets_one_key(memory, begin):
    memory.incr("a", MINUTE)
    memory.incr("b", MINUTE)
    memory.flush()
    memory.clear("a")
    memory.clear("unknown")
    assert (memory.get("a"), memory.get("b")) == (0, 1)
    memory.flush()
    again = begin()
    assert (again.get("a"), again.get("b")) == (0, 1)


def test_reset_forgets_everything_and_returns_how_much(memory, begin):
    memory.incr("a", MINUTE)
    memory.incr("b", DAY)
    memory.flush()
    assert memory.reset() == 2
    assert memory.reset() == 0
    memory.flush()
    again = begin()
    assert (again.get("a"), again.get("b")) == (0, 0)


def test_a_window_that_begins_after_clear_is_journalled(memory, begin):
    memory.incr("a", MINUTE, amount=7)
    memory.flush()
    memory.clear("a")
    memory.incr("a", MINUTE)
    memory.flush()
    assert begin().get("a") == 1


# Memory.


def test_windows_that_are_over_leave_the_memory(memory, clock):
    for number in range(1_000):
        memory.incr(f"address:{number}", MINUTE)
    clock.advance(MINUTE)
    for number in range(500):
        memory.incr(f"address:new{number}", MINUTE)
    assert memory.reset() == 500


def test_addresses_take_no_more_than_their_room_and_keys_are_never_forgotten(memory):
    for number in range(MAX_ADDRESSES + 500):
        memory.incr(f"key:{number}.0/day", DAY)
        memory.incr(f"address:{number}/day", DAY)
    assert memory.get("key:0.0/day") == 1
    assert memory.get(f"address:{MAX_ADDRESSES + 499}/day") == 1
    assert memory.reset() == MAX_ADDRESSES + (MAX_ADDRESSES + 500)


def test_windows_that_are_over_leave_the_memory_after_a_restart_too(memory, begin, clock):
    memory.incr("z", MINUTE)
    clock.advance(30)
    memory.incr("a", MINUTE)
    memory.close()
    again = begin()
    clock.advance(30)
    again.incr("new", MINUTE)
    assert again.reset() == 2


def test_a_window_that_began_again_is_not_swept(memory, clock):
    memory.incr("first", MINUTE)
    memory.incr("second", MINUTE)
    clock.advance(MINUTE)
    memory.incr("first", MINUTE)
    clock.advance(1)
    memory.incr("third", MINUTE)
    assert [memory.get(key) for key in ("first", "second", "third")] == [1, 0, 1]
    assert memory.reset() == 2


def test_addresses_that_come_and_go_take_no_memory_while_the_journal_cannot_be_written(
    memory, path, monkeypatch
):
    def flood(begin, end):
        for number in range(begin, end):
            memory.incr(f"address:{number}", DAY)
            if number % 100 == 0:
                memory.flush()
        return tracemalloc.get_traced_memory()[0]

    monkeypatch.setattr(windows, "MAX_ADDRESSES", 100)
    make_impossible(path)
    tracemalloc.start()
    try:
        first = flood(0, 1_000)
        assert flood(1_000, 6_000) - first < 100 * 1_000  # less than 20 bytes for each address
    finally:
        tracemalloc.stop()
        path.rmdir()


# Restarts.


@pytest.mark.parametrize(
    ("times", "left"),
    [
        ((12.25, 0, 0), [(3, 47.75), (3, DAY - 12.25)]),
        ((0, 0, 20), [(3, 40), (3, DAY - 20)]),
        ((0, 0, MINUTE), [(0, MINUTE), (3, DAY - MINUTE)]),
        # An end that lies too far off is cut to the window's length; a little less is not noticed.
        ((10, -7_200, 0), [(3, MINUTE), (3, DAY)]),
        ((20, -5, 0), [(3, 45), (3, DAY - 15)]),
    ],
    ids=["exact", "the stop counts", "over meanwhile", "set back", "set back a little"],
)
def test_windows_survive_a_restart(memory, begin, clock, times, left):
    before, jump, between = times
    hit(memory, 3)
    hit(memory, 4, "address:203.0.113.9")
    clock.advance(before)
    memory.close()
    clock.set_wall(jump)
    clock.advance(between)
    again = begin()
    assert exactly(again.peek(quotas())) == left
    assert counts(again, "address:203.0.113.9")[1] == 4


def test_windows_that_were_cut_end_after_their_length(memory, begin, clock):
    hit(memory, 5)
    memory.close()
    clock.set_wall(-7_200)
    again = begin()
    clock.advance(MINUTE)
    assert state(again) == [(0, MINUTE), (5, DAY - MINUTE)]
    clock.advance(DAY - MINUTE)
    assert state(again) == [(0, MINUTE), (0, DAY)]


def test_after_a_kill_what_was_flushed_is_there(memory, begin):
    hit(memory, 3)
    memory.flush()
    hit(memory, 1)
    # Nothing is closed: the process is gone.
    assert counts(begin()) == [3, 3]


@pytest.mark.parametrize("jump", [7_200, -7_200, 1, -1])
def test_a_clock_that_was_set_moves_the_journalled_ends(memory, begin, clock, jump):
    hit(memory, 3)
    memory.flush()
    clock.advance(10)
    clock.set_wall(jump)
    memory.flush()  # nothing was counted since
    assert state(begin()) == [(3, 50), (3, DAY - 10)]


# Background flushes.


def test_flush_writes_only_what_changed(memory, begin, journal):
    memory.incr("a", DAY)
    memory.incr("b", DAY)
    memory.flush()
    journal("UPDATE windows SET count = 77")
    memory.flush()
    assert journalled(journal) == {"a": 77, "b": 77}, "nothing changed"
    memory.incr("b", DAY)
    memory.flush()
    assert journalled(journal) == {"a": 77, "b": 2}
    again = begin()
    again.incr("b", DAY)
    again.flush()
    assert journalled(journal) == {"a": 77, "b": 3}


def test_close_writes_everything(memory, journal):
    memory.incr("a", DAY)
    memory.incr("b", DAY)
    memory.flush()
    journal("UPDATE windows SET count = 77")
    memory.close()
    assert journalled(journal) == {"a": 1, "b": 1}


def test_nothing_is_lost_that_is_counted_while_it_is_written(memory, begin):
    with ThreadPoolExecutor(4) as pool:
        counted = pool.submit(lambda: [memory.incr(f"k{n % 7}", DAY) for n in range(5_000)])
        while not counted.done():
            memory.flush()
    memory.flush()
    again = begin()
    assert sum(again.get(f"k{n}") for n in range(7)) == 5_000


def test_requests_are_counted_between_the_rows_of_a_long_flush(memory, begin, monkeypatch):
    def write_slowly(journal, rows, *arguments, **options):
        def between():
            for number, row in enumerate(rows):
                if number % 100 == 0:  # would wait for ever if all rows were made under the lock
                    memory.incr("key:0", DAY)
                yield row

        write(journal, between(), *arguments, **options)

    write = Journal.write
    for number in range(1_000):
        memory.incr(f"key:{number}", DAY)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Journal, "write", write_slowly)
        memory.flush()
    assert memory.get("key:0") == 11
    memory.flush()
    again = begin()
    assert [again.get(f"key:{number}") for number in (0, 1, 999)] == [11, 1, 1]


def test_windows_that_are_over_leave_the_journal(memory, journal, clock):
    memory.incr("minute", MINUTE)
    memory.incr("day", DAY)
    memory.flush()
    clock.advance(MINUTE)
    memory.incr("day", DAY)
    memory.flush()
    assert journalled(journal) == {"day": 2}


def test_a_window_swept_from_memory_leaves_the_journal(memory, journal, clock):
    memory.incr("old", MINUTE)
    memory.flush()
    clock.advance(MINUTE)
    memory.incr("new", MINUTE)
    memory.flush()
    assert journalled(journal) == {"new": 1}


def test_the_journal_is_its_owners_only(memory, path):
    memory.incr("a", DAY)
    memory.flush()
    files = list(path.parent.iterdir())
    assert path in files
    assert {S_IMODE(file.stat().st_mode) for file in files} == {0o600}


# A journal that is damaged, lost, or can't be written.


def damage_wholly(path):
    path.write_bytes(b"this is no database " * 500)


def damage_a_page(path):
    whole = bytearray(path.read_bytes())
    whole[100:4_096] = b"\xff" * 3_996
    path.write_bytes(whole)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:5_000])


def execute(path, *statements):
    connection = sqlite.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def change_the_schema(path):
    execute(path, "DROP TABLE windows", "CREATE TABLE windows (name TEXT, ends REAL)")


def write_nonsense(column):
    return lambda path: execute(path, f"UPDATE windows SET {column} = 'much'")


def fill_up(path):
    """Have writing fail as on a full disk; a new file has room."""
    execute(
        path,
        "CREATE TRIGGER full BEFORE INSERT ON windows BEGIN SELECT RAISE(FAIL, 'full'); END",
    )


def lose(path):
    for file in path.parent.glob(path.name + "*"):
        file.unlink()


def replace_by_nothing(path):
    lose(path)
    path.write_bytes(b"")


def lose_the_folder(path):
    shutil.rmtree(path.parent)
    path.parent.mkdir()


def make_impossible(path):
    lose(path)
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        *(damage_wholly, damage_a_page, cut_off, change_the_schema),
        *map(write_nonsense, ("length", "count", "ends")),
    ],
)
def test_a_journal_that_cannot_be_read_is_set_aside(memory, begin, path, caplog, damage):
    for number in range(300):
        memory.incr(f"old:{number}", DAY)
    memory.close()
    damage(path)
    file = path.stat().st_ino
    again = begin()
    (warning,) = caplog.messages
    assert warning.startswith("The journal of the counters can't be read, and is set aside: ")
    aside = path.with_name("counters.db.damaged")
    assert (aside.stat().st_ino, S_IMODE(aside.stat().st_mode)) == (file, 0o600)
    again.incr("new", DAY)
    again.flush()
    assert again.check()
    once_more = begin()
    assert (once_more.get("new"), once_more.get("old:1")) == (1, 0)


@pytest.mark.parametrize(
    "fault", [lose, replace_by_nothing, lose_the_folder, damage_wholly, fill_up]
)
def test_a_journal_that_is_lost_or_fails_is_written_whole_again(memory, begin, path, fault):
    hit(memory, 3)
    hit(memory, 4, "key:2.0")
    memory.incr("cleared", DAY)
    memory.flush()
    fault(path)
    hit(memory, 1, "key:2.0")
    memory.clear("cleared")
    memory.flush()
    memory.flush()
    assert memory.check()
    again = begin()
    assert counts(again) == [3, 3]
    assert counts(again, "key:2.0") == [5, 5]
    assert again.get("cleared") == 0


def test_a_stop_writes_everything_to_a_new_file_where_the_old_one_fails(memory, begin, path):
    hit(memory, 3)
    memory.flush()
    fill_up(path)
    memory.close()
    assert counts(begin()) == [3, 3]


def test_a_journal_that_cannot_be_written_is_one_warning(memory, begin, path, caplog):
    make_impossible(path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert hit(memory)
            memory.flush()
        assert not memory.check()
        assert memory.trouble == "not written, counting in memory"
        (warning,) = caplog.messages
        assert warning.startswith("The journal of the counters can't be written")
        assert counts(memory) == [3, 3]
        path.rmdir()
        memory.flush()
    assert (memory.check(), memory.trouble) == (True, "")
    assert caplog.messages[1:] == ["The journal of the counters is written again."]
    assert counts(begin()) == [3, 3]


def test_a_window_cleared_while_a_write_fails_does_not_come_back(memory, begin, path, monkeypatch):
    def clear_and_write(*arguments, **options):
        memory.clear("a")
        return write(*arguments, **options)

    write = Journal.write
    memory.incr("a", DAY)
    memory.flush()
    fill_up(path)
    memory.incr("b", DAY)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Journal, "write", clear_and_write)
        memory.flush()
    memory.flush()
    again = begin()
    assert (again.get("a"), again.get("b")) == (0, 1)


def test_readiness_tells_a_journal_that_is_not_written(store):
    storage, client = store.services.limits.storage, store.client()
    path = store.settings.counters_path
    storage.flush()
    assert client.get("/readyz").get_json()["counters"] == "ok"
    make_impossible(path)
    assert client.get("/v1/store/orders").status_code == 200
    storage.flush()
    ready = client.get("/readyz")
    assert (ready.status_code, ready.get_json()["status"]) == (200, "ready")
    assert ready.get_json()["counters"].startswith("degraded")
    assert client.get("/v1/store/orders").status_code == 200
    path.rmdir()
    storage.flush()
    assert client.get("/readyz").get_json()["counters"] == "ok"
