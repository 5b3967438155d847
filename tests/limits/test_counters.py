"""The counters of the limits in memory, and their journal on disk."""

from __future__ import annotations

import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from stat import S_IMODE

import pytest
from limits.storage import storage_from_string

from orders.counters import memory
from orders.counters.memory import CounterStorage, Journal, Quota
from orders.store.database import sqlite

MINUTE, DAY = 60, 86_400


def quotas(identity="key:1.0", per_minute=5, per_day=50):
    """Return the quotas of one client's two windows, the minute and the day."""
    terms = f"{per_minute};{per_day}"
    return [
        Quota(f"{identity}/minute", per_minute, MINUTE, terms),
        Quota(f"{identity}/day", per_day, DAY, terms),
    ]


def _count(usage):
    return usage.quota.limit - usage.remaining


def state(storage, *identity):
    """Return the counts of both windows of a client, and their seconds left."""
    return [(_count(usage), usage.ends_in) for usage in storage.peek(quotas(*identity))]


def counts(storage, *identity):
    """Return the counts of both windows of a client."""
    return [count for count, _ in state(storage, *identity)]


def hit(storage, times=1, *identity):
    """Send requests; return whether the last one was counted."""
    for _ in range(times):
        counted, _ = storage.hit(quotas(*identity))
    return counted


def count(storage, key, length=DAY, times=1):
    """Count in a single window."""
    for _ in range(times):
        storage.hit([Quota(key, 10**9, length)])


def counted(storage, key, length=DAY):
    """Return the count of a single window."""
    return _count(storage.peek([Quota(key, 10**9, length)])[0])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "counters.db"


@pytest.fixture
def begin(path, clock):
    """Begin counting with this test's journal, as a start does; all are closed at the end."""
    begun = []

    def begin_one():
        begun.append(CounterStorage(path=path, clock=clock))
        begun[-1].load()
        return begun[-1]

    yield begin_one
    for storage in begun:
        storage.close()


@pytest.fixture
def counters(begin):
    return begin()


@pytest.fixture
def journal(path):
    """Run SQL on the journal from outside, as another program would; return counts by key."""

    def run(*statements):
        connection = sqlite.connect(path)
        try:
            for statement in statements:
                connection.execute(statement)
            return dict(connection.execute("SELECT key, count FROM windows"))
        finally:
            connection.close()

    return run


def test_counting_is_exact_with_sixteen_threads_during_flushes(counters, begin):
    wanted = ("key:1.0", 1_000, 10_000)

    def hit_many(_):
        return sum(counters.hit(quotas(*wanted))[0] for _ in range(125))

    with ThreadPoolExecutor(17) as pool:
        written = pool.submit(lambda: [counters.flush() for _ in range(50)])
        counted = sum(pool.map(hit_many, range(16)))
        written.result()
    assert counted == 1_000
    assert state(counters, *wanted) == [(1_000, MINUTE), (1_000, DAY)]
    counters.flush()  # the counters are not closed, as after a kill
    assert state(begin(), *wanted) == [(1_000, MINUTE), (1_000, DAY)]


def test_the_storage_is_found_by_its_scheme_and_opens_nothing(path, clock):
    found = storage_from_string("journal://", path=path, clock=clock)
    assert isinstance(found, CounterStorage)
    assert not path.exists()


# Memory.


def test_expired_windows_are_removed_from_memory(counters, clock):
    for number in range(1_000):
        count(counters, f"address:{number}", MINUTE)
    clock.advance(MINUTE)
    for number in range(500):
        count(counters, f"address:new{number}", MINUTE)
    assert counters.size == 500


def test_addresses_are_evicted_beyond_a_maximum_and_keys_never(counters, monkeypatch):
    assert memory.MAX_ADDRESSES == 50_000
    monkeypatch.setattr(memory, "MAX_ADDRESSES", 500)
    for number in range(600):
        count(counters, f"key:{number}.0/day", DAY)
        count(counters, f"address:{number}/day", DAY)
    assert counted(counters, "key:0.0/day") == 1
    assert counted(counters, "address:599/day") == 1
    assert counters.size == 500 + 600


def test_expired_windows_are_removed_from_memory_after_a_restart_too(counters, begin, clock):
    count(counters, "z", MINUTE)
    clock.advance(30)
    count(counters, "a", MINUTE)
    counters.close()
    again = begin()
    clock.advance(30)
    count(again, "new", MINUTE)
    assert again.size == 2


def test_a_window_that_began_again_is_not_removed(counters, clock):
    count(counters, "first", MINUTE)
    count(counters, "second", MINUTE)
    clock.advance(MINUTE)
    count(counters, "first", MINUTE)
    clock.advance(1)
    count(counters, "third", MINUTE)
    kept = [counted(counters, key, MINUTE) for key in ("first", "second", "third")]
    assert kept == [1, 0, 1]
    assert counters.size == 2


def test_evicted_addresses_take_no_memory_while_the_journal_cannot_be_written(
    counters, path, monkeypatch
):
    def flood(begin, end):
        for number in range(begin, end):
            count(counters, f"address:{number}", DAY)
            if number % 100 == 0:
                counters.flush()
        return tracemalloc.get_traced_memory()[0]

    monkeypatch.setattr(memory, "MAX_ADDRESSES", 100)
    make_impossible(path)
    tracemalloc.start()
    try:
        first = flood(0, 500)
        assert flood(500, 2_500) - first < 40 * 1_000  # less than 20 bytes for each address
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
        # An end too far ahead is cut to the window's length; a slightly earlier one is kept.
        ((10, -7_200, 0), [(3, MINUTE), (3, DAY)]),
        ((20, -5, 0), [(3, 45), (3, DAY - 15)]),
    ],
)
def test_windows_survive_a_restart(counters, begin, clock, times, left):
    before, jump, between = times
    hit(counters, 3)
    hit(counters, 4, "address:203.0.113.9")
    clock.advance(before)
    counters.close()
    clock.set_wall(jump)
    clock.advance(between)
    again = begin()
    assert state(again) == left
    assert counts(again, "address:203.0.113.9")[1] == 4


@pytest.mark.parametrize("jump", [7_200, -7_200, 1, -1])
def test_setting_the_clock_moves_the_ends_in_the_journal(counters, begin, clock, jump):
    hit(counters, 3)
    counters.flush()
    clock.advance(10)
    clock.set_wall(jump)
    counters.flush()  # nothing has been counted since
    assert state(begin()) == [(3, 50), (3, DAY - 10)]


# Background flushes.


def test_flush_writes_only_what_changed_and_close_writes_everything(counters, begin, journal):
    count(counters, "a", DAY)
    count(counters, "b", DAY)
    counters.flush()
    journal("UPDATE windows SET count = 77")
    counters.flush()
    assert journal() == {"a": 77, "b": 77}
    count(counters, "b", DAY)
    counters.flush()
    assert journal() == {"a": 77, "b": 2}
    again = begin()
    count(again, "b", DAY)
    again.flush()
    assert journal() == {"a": 77, "b": 3}
    counters.close()
    assert journal() == {"a": 1, "b": 2}


def test_requests_are_counted_between_the_rows_of_a_long_flush(counters, begin, monkeypatch):
    def write_slowly(journal, rows, *arguments, **options):
        def between():
            for number, row in enumerate(rows):
                if number % 100 == 0:  # would deadlock if all rows were made under the lock
                    count(counters, "key:0", DAY)
                yield row

        write(journal, between(), *arguments, **options)

    write = Journal.write
    for number in range(1_000):
        count(counters, f"key:{number}", DAY)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Journal, "write", write_slowly)
        counters.flush()
    assert counted(counters, "key:0") == 11
    counters.flush()
    again = begin()
    assert [counted(again, f"key:{number}") for number in (0, 1, 999)] == [11, 1, 1]


@pytest.mark.parametrize("next_key", ["day", "new"])
def test_expired_windows_are_removed_from_the_journal(counters, journal, clock, next_key):
    count(counters, "minute", MINUTE)
    counters.flush()
    clock.advance(MINUTE)
    count(counters, next_key, MINUTE if next_key == "new" else DAY)
    counters.flush()
    assert journal() == {next_key: 1}


def test_strikes_are_removed_from_the_journal_after_the_last_one(counters, journal, clock):
    assert counters.strike("strikes", DAY, 2) == 1
    counters.flush()
    assert journal() == {"strikes": 1}
    clock.advance(1)
    assert counters.strike("strikes", DAY, 2) == 2
    counters.flush()
    assert journal() == {}


def test_the_journal_is_private_to_its_owner(counters, path):
    count(counters, "a", DAY)
    counters.flush()
    files = list(path.parent.iterdir())
    assert path in files
    assert {S_IMODE(file.stat().st_mode) for file in files} == {0o600}


# A journal that is damaged, missing, or can't be written.


def damage_wholly(path):
    path.write_bytes(b"this is no database " * 500)


def damage_a_page(path):
    whole = bytearray(path.read_bytes())
    whole[100:4_096] = b"\xff" * 3_996
    path.write_bytes(whole)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:5_000])


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


# Makes writing fail as on a full disk; a new file can be written.
FULL = "CREATE TRIGGER full BEFORE INSERT ON windows BEGIN SELECT RAISE(FAIL, 'full'); END"
OTHER_COLUMNS = ("ALTER TABLE windows RENAME TO old", "CREATE TABLE windows (key, count, ends)")


@pytest.mark.parametrize(
    "damage",
    [
        *(damage_wholly, damage_a_page, cut_off),
        OTHER_COLUMNS,
        *([f"UPDATE windows SET {column} = 'much'"] for column in ("length", "count", "ends")),
    ],
)
def test_an_unreadable_journal_is_set_aside(begin, path, journal, caplog, damage):
    counters = begin()
    for number in range(300):
        count(counters, f"old:{number}", DAY)
    counters.close()
    damage(path) if callable(damage) else journal(*damage)
    file = path.stat().st_ino
    again = begin()
    (warning,) = caplog.messages
    assert warning.startswith("The counters' journal can't be read and was set aside: ")
    aside = path.with_name("counters.db.damaged").stat()
    assert (aside.st_ino, S_IMODE(aside.st_mode)) == (file, 0o600)
    count(again, "new", DAY)
    again.flush()
    assert again.check()
    once_more = begin()
    assert (counted(once_more, "new"), counted(once_more, "old:1")) == (1, 0)


@pytest.mark.parametrize("fault", [lose, replace_by_nothing, lose_the_folder, damage_wholly, FULL])
def test_a_journal_that_is_missing_or_fails_is_rewritten_completely(
    counters, begin, path, journal, fault
):
    hit(counters, 3)
    hit(counters, 4, "key:2.0")
    counters.flush()
    fault(path) if callable(fault) else journal(fault)
    hit(counters, 1, "key:2.0")
    counters.flush()
    counters.flush()
    assert counters.check()
    again = begin()
    assert counts(again) == [3, 3]
    assert counts(again, "key:2.0") == [5, 5]


def test_a_stop_writes_everything_to_a_new_file_if_the_old_one_fails(counters, begin, journal):
    hit(counters, 3)
    counters.flush()
    journal(FULL)
    counters.close()
    assert counts(begin()) == [3, 3]


def test_requests_are_served_while_the_journal_cannot_be_written(store, caplog):
    storage, client = store.shop.counters, store.client()
    path = store.settings.counters_path
    storage.flush()
    assert client.get("/readyz").get_json()["counters"] == "ok"
    make_impossible(path)
    for _ in range(3):
        assert client.get("/v1/store/orders").status_code == 200
        storage.flush()
    ready = client.get("/readyz")
    assert (ready.status_code, ready.get_json()["status"]) == (200, "ready")
    assert ready.get_json()["counters"] == "degraded: not written, counting in memory"
    path.rmdir()
    storage.flush()
    assert client.get("/readyz").get_json()["counters"] == "ok"
    failed, repaired = caplog.messages
    assert failed.startswith("The counters' journal can't be written")
    assert repaired == "The counters' journal can be written again."
    remaining = client.get("/v1/store/orders").headers["X-RateLimit-Remaining"]
    assert remaining == "996", "every request was counted"
