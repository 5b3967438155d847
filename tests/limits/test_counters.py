"""The limits' counters: windows in memory, and their journal in an SQLite file."""

from __future__ import annotations

import logging
import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from stat import S_IMODE

import pytest
from limits.storage import storage_from_string

from orders.counters import memory as counters_module
from orders.counters.journal import Journal
from orders.counters.memory import MAX_ADDRESSES, Ask, Counters, CounterStorage, Standing
from orders.store.database import sqlite

MINUTE, DAY = 60, 86_400


def asks(identity="key:1.0", per_minute=5, per_day=50):
    """Return what a request of one identity asks for: a minute's window and a day's."""
    return [
        Ask(f"{identity}/minute", per_minute, MINUTE, f"{per_minute};{per_day}"),
        Ask(f"{identity}/day", per_day, DAY, f"{per_minute};{per_day}"),
    ]


def standing(storage, *identity):
    """Return the count and the seconds left of both windows of an identity."""
    return [(window.count, window.ends_in) for window in storage.peek(asks(*identity))]


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
def counters(begin):
    return begin()


@pytest.fixture
def journal(path):
    """Run SQL on the journal from outside, as another program would; return the rows."""

    def run(sql, *parameters):
        connection = sqlite.connect(path)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    return run


def journalled(journal):
    """Return the counts in the journal by their keys."""
    return dict(journal("SELECT key, count FROM windows"))


def hit(storage, times=1, *identity):
    """Count requests; tell whether the last one fitted."""
    for _ in range(times):
        fitted, _ = storage.take(asks(*identity))
    return fitted


# The interface of `limits`.


def test_it_is_found_by_its_scheme(path, clock):
    found = storage_from_string("journal://", path=path, clock=clock)
    assert isinstance(found, CounterStorage)
    assert not path.exists(), "nothing is opened before it is used"


def test_incr_counts_within_a_window_that_the_first_one_begins(counters, clock):
    assert counters.incr("a", MINUTE) == 1
    clock.advance(59.9)
    assert counters.incr("a", MINUTE, amount=5) == 6
    clock.advance(0.1)
    assert counters.incr("a", MINUTE) == 1


def test_get_gives_the_count_of_a_live_window(counters, clock):
    assert counters.get("a") == 0
    counters.incr("a", MINUTE, amount=3)
    assert counters.get("a") == 3
    clock.advance(MINUTE)
    assert counters.get("a") == 0


def test_get_expiry_gives_the_end_in_wall_time(counters, clock):
    assert counters.get_expiry("a") == clock.time()
    counters.incr("a", MINUTE)
    ends = clock.time() + MINUTE
    clock.advance(10)
    counters.incr("a", MINUTE)
    assert counters.get_expiry("a") == ends
    clock.set_wall(3_600)
    assert counters.get_expiry("a") == ends + 3_600
    clock.advance(50)
    assert counters.get_expiry("a") == clock.time()


def test_clear_forgets_one_key(counters, begin):
    counters.incr("a", MINUTE)
    counters.incr("b", MINUTE)
    counters.flush()
    counters.clear("a")
    counters.clear("unknown")
    assert (counters.get("a"), counters.get("b")) == (0, 1)
    counters.flush()
    again = begin()
    assert (again.get("a"), again.get("b")) == (0, 1)


def test_reset_forgets_everything_and_says_how_much(counters, begin):
    counters.incr("a", MINUTE)
    counters.incr("b", DAY)
    counters.flush()
    assert counters.reset() == 2
    assert counters.reset() == 0
    counters.flush()
    again = begin()
    assert (again.get("a"), again.get("b")) == (0, 0)


def test_what_begins_after_clear_is_journalled(counters, begin):
    counters.incr("a", MINUTE, amount=7)
    counters.flush()
    counters.clear("a")
    counters.incr("a", MINUTE)
    counters.flush()
    assert begin().get("a") == 1


# All windows at once, or none.


def test_take_counts_in_all_windows(counters):
    fitted, windows = counters.take(asks())
    assert fitted
    assert [(window.count, window.ends_in) for window in windows] == [(1, MINUTE), (1, DAY)]


def test_take_counts_in_no_window_when_one_is_full(counters):
    assert hit(counters, 5)
    assert not hit(counters, 10)
    assert [count for count, _ in standing(counters)] == [5, 5]


def test_a_full_day_takes_nothing_from_the_minute(counters, clock):
    for _ in range(10):
        hit(counters, 5)
        clock.advance(MINUTE)
    fitted, windows = counters.take(asks())
    assert not fitted
    assert [window.count for window in windows] == [0, 50]


def test_peek_counts_nothing(counters):
    counters.peek(asks())
    counters.peek(asks())
    assert standing(counters) == [(0, MINUTE), (0, DAY)]


def test_another_quota_begins_a_new_window(counters):
    hit(counters, 3)
    assert hit(counters, 1, "key:1.0", 6, 60)
    assert standing(counters, "key:1.0", 6, 60) == [(1, MINUTE), (1, DAY)]
    assert standing(counters) == [(0, MINUTE), (0, DAY)]


def test_one_other_figure_begins_all_windows_anew(counters):
    hit(counters, 3)
    assert hit(counters, 1, "key:1.0", 5, 60)
    assert standing(counters, "key:1.0", 5, 60) == [(1, MINUTE), (1, DAY)]


def test_counting_is_exact_among_sixteen_threads_while_it_is_written(counters, begin):
    wanted = ("key:1.0", 1_000, 10_000)

    def take_many(_):
        return sum(counters.take(asks(*wanted))[0] for _ in range(125))

    with ThreadPoolExecutor(17) as pool:
        written = pool.submit(lambda: [counters.flush() for _ in range(50)])
        fitted = sum(pool.map(take_many, range(16)))
        written.result()
    assert fitted == 1_000
    assert standing(counters, *wanted) == [(1_000, MINUTE), (1_000, DAY)]
    counters.flush()
    assert standing(begin(), *wanted) == [(1_000, MINUTE), (1_000, DAY)]


def test_nothing_is_lost_that_is_counted_while_it_is_written(counters, begin):
    with ThreadPoolExecutor(4) as pool:
        counted = pool.submit(lambda: [counters.incr(f"k{n % 7}", DAY) for n in range(5_000)])
        while not counted.done():
            counters.flush()
    counters.flush()
    again = begin()
    assert sum(again.get(f"k{n}") for n in range(7)) == 5_000


def test_requests_are_counted_between_the_rows_of_a_long_writing(counters, begin, monkeypatch):
    def write_slowly(journal, rows, *arguments):
        def between():
            for number, row in enumerate(rows):
                if number % 100 == 0:  # would wait for ever if all rows were made under the lock
                    counters.incr("key:0", DAY)
                yield row

        write(journal, between(), *arguments)

    write = Journal.write
    for number in range(1_000):
        counters.incr(f"key:{number}", DAY)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Journal, "write", write_slowly)
        counters.flush()
    assert counters.get("key:0") == 11
    counters.flush()
    again = begin()
    assert [again.get(f"key:{number}") for number in (0, 1, 999)] == [11, 1, 1]


# Refusals on the way to a ban.


def test_the_last_of_so_many_strikes_is_told_and_the_count_begins_anew(counters, clock):
    told = [counters.strike("strikes:1", MINUTE, 3) for _ in range(4)]
    assert told == [None, None, 0.0, None]
    clock.advance(MINUTE)
    told = [counters.strike("strikes:1", MINUTE, 3) for _ in range(3)]
    assert told == [None, None, 0.0]


# What is learned of whoever counts for several processes.


@pytest.fixture
def learned(clock):
    """Counters in memory, and a function that tells them how both windows stand."""
    counters = Counters(clock)

    def tell(minute, day, ends_in=(MINUTE, DAY), identity="key:1.0"):
        told = [Standing(minute, ends_in[0]), Standing(day, ends_in[1])]
        counters.learn(asks(identity), told, clock.monotonic())

    return counters, tell


def test_what_was_learned_is_gone_on_from(learned, clock):
    counters, tell = learned
    tell(4, 44, (10, 1_000))
    assert standing(counters) == [(4, 10), (44, 1_000)]
    assert hit(counters)
    assert not hit(counters)
    clock.advance(10)
    assert hit(counters)
    assert standing(counters) == [(1, MINUTE), (46, 990)]


def test_what_was_overtaken_changes_nothing(learned):
    counters, tell = learned
    tell(4, 44, (10, 1_000))
    tell(3, 43, (12, 1_002))
    assert standing(counters) == [(4, 10), (44, 1_000)]
    tell(5, 45, (9, 999))
    assert standing(counters) == [(5, 9), (45, 999)]


def test_of_windows_without_a_request_nothing_is_learned(learned):
    counters, tell = learned
    tell(0, 0)
    assert counters.forget_all() == 0


def test_a_window_that_was_over_before_it_was_told_is_no_window(clock):
    # The answer took longer than the window had left, and there is no other window yet.
    counters = Counters(clock)
    asked_at = clock.monotonic()
    clock.advance(2)
    counters.learn(asks()[:1], [Standing(3, 1.0)], asked_at)
    assert [each.count for each in counters.peek(asks()[:1])] == [0]
    assert counters.take(asks()[:1])[0]


def test_windows_that_were_learned_leave_the_memory_when_they_are_over(learned, clock):
    counters, tell = learned
    for number in range(100):
        tell(1, 1, identity=f"key:{number}.0")
    clock.advance(DAY)
    for number in range(100):
        tell(1, 1, identity=f"key:new{number}.0")
    assert counters.forget_all() == 200


# Restarts.


def test_a_restart_is_exact(counters, begin, clock):
    hit(counters, 3)
    hit(counters, 4, "address:203.0.113.9")
    clock.advance(12.25)
    before = standing(counters), standing(counters, "address:203.0.113.9")
    counters.close()
    again = begin()
    assert (standing(again), standing(again, "address:203.0.113.9")) == before
    assert before[0] == [(3, 47.75), (3, DAY - 12.25)]


def test_the_time_between_stop_and_start_counts(counters, begin, clock):
    hit(counters, 3)
    counters.close()
    clock.advance(20)
    assert standing(begin()) == [(3, 40), (3, DAY - 20)]


def test_a_window_that_ended_between_stop_and_start_is_over(counters, begin, clock):
    hit(counters, 5)
    counters.close()
    clock.advance(MINUTE)
    assert standing(begin()) == [(0, MINUTE), (5, DAY - MINUTE)]


def test_after_a_kill_what_was_flushed_is_there(counters, begin):
    hit(counters, 3)
    counters.flush()
    hit(counters, 1)
    # Nothing is closed: the process is gone.
    assert [count for count, _ in standing(begin())] == [3, 3]


def test_a_restart_with_the_clock_set_back_cuts_the_windows_to_their_length(counters, begin, clock):
    hit(counters, 5)
    clock.advance(10)
    counters.close()
    clock.set_wall(-7_200)
    again = begin()
    assert standing(again) == [(5, MINUTE), (5, DAY)]
    clock.advance(MINUTE)
    assert standing(again) == [(0, MINUTE), (5, DAY - MINUTE)]
    clock.advance(DAY - MINUTE)
    assert standing(again) == [(0, MINUTE), (0, DAY)]


def test_a_restart_with_the_clock_set_back_a_little_moves_the_end_by_that(counters, begin, clock):
    hit(counters, 5)
    clock.advance(20)
    counters.close()
    clock.set_wall(-5)
    assert standing(begin()) == [(5, 45), (5, DAY - 15)]


# Writing behind.


def test_flush_writes_only_what_changed(counters, journal):
    counters.incr("a", DAY)
    counters.incr("b", DAY)
    counters.flush()
    journal("UPDATE windows SET count = 77")
    counters.incr("b", DAY)
    counters.flush()
    assert journalled(journal) == {"a": 77, "b": 2}


def test_the_first_flush_after_a_restart_writes_only_what_changed_since(counters, begin, journal):
    counters.incr("a", DAY)
    counters.incr("b", DAY)
    counters.close()
    again = begin()
    journal("UPDATE windows SET count = 77")
    again.incr("b", DAY)
    again.flush()
    assert journalled(journal) == {"a": 77, "b": 2}


def test_flush_after_no_change_writes_nothing(counters, journal):
    counters.incr("a", DAY)
    counters.flush()
    journal("UPDATE windows SET count = 77")
    counters.flush()
    assert journalled(journal) == {"a": 77}


def test_close_writes_everything(counters, journal):
    counters.incr("a", DAY)
    counters.incr("b", DAY)
    counters.flush()
    journal("UPDATE windows SET count = 77")
    counters.close()
    assert journalled(journal) == {"a": 1, "b": 1}


def test_windows_that_are_over_leave_the_journal(counters, journal, clock):
    counters.incr("minute", MINUTE)
    counters.incr("day", DAY)
    counters.flush()
    clock.advance(MINUTE)
    counters.incr("day", DAY)
    counters.flush()
    assert journalled(journal) == {"day": 2}


def test_windows_that_are_over_leave_the_memory(counters, clock):
    for number in range(1_000):
        counters.incr(f"address:{number}", MINUTE)
    clock.advance(MINUTE)
    for number in range(500):
        counters.incr(f"address:new{number}", MINUTE)
    assert counters.reset() == 500


def test_addresses_take_no_more_than_their_room_and_keys_are_never_forgotten(counters):
    for number in range(MAX_ADDRESSES + 500):
        counters.incr(f"key:{number}.0/day", DAY)
        counters.incr(f"address:{number}/day", DAY)
    assert counters.get("key:0.0/day") == 1
    assert counters.get(f"address:{MAX_ADDRESSES + 499}/day") == 1
    assert counters.reset() == MAX_ADDRESSES + (MAX_ADDRESSES + 500)


def test_windows_that_are_over_leave_the_memory_after_a_restart_too(counters, begin, clock):
    counters.incr("z", MINUTE)
    clock.advance(30)
    counters.incr("a", MINUTE)
    counters.close()
    again = begin()
    clock.advance(30)
    again.incr("new", MINUTE)
    assert again.reset() == 2


def test_a_window_that_began_again_is_not_swept(counters, clock):
    counters.incr("first", MINUTE)
    counters.incr("second", MINUTE)
    clock.advance(MINUTE)
    counters.incr("first", MINUTE)
    clock.advance(1)
    counters.incr("third", MINUTE)
    assert [counters.get(key) for key in ("first", "second", "third")] == [1, 0, 1]
    assert counters.reset() == 2


def test_a_window_swept_from_memory_leaves_the_journal(counters, journal, clock):
    counters.incr("old", MINUTE)
    counters.flush()
    clock.advance(MINUTE)
    counters.incr("new", MINUTE)
    counters.flush()
    assert journalled(journal) == {"new": 1}


@pytest.mark.parametrize("jump", [7_200, -7_200, 1, -1])
def test_a_clock_that_was_set_moves_the_journalled_ends(counters, begin, clock, jump):
    hit(counters, 3)
    counters.flush()
    clock.advance(10)
    clock.set_wall(jump)
    counters.flush()  # nothing was counted since
    assert standing(begin()) == [(3, 50), (3, DAY - 10)]


def test_a_clock_that_was_set_changes_nothing_in_memory(counters, clock):
    hit(counters, 3)
    clock.set_wall(7_200)
    assert standing(counters) == [(3, MINUTE), (3, DAY)]
    clock.set_wall(-14_400)
    assert standing(counters) == [(3, MINUTE), (3, DAY)]


def test_the_journal_is_its_owners_only(counters, path):
    counters.incr("a", DAY)
    counters.flush()
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


def give_another_schema(path):
    connection = sqlite.connect(path)
    connection.execute("DROP TABLE windows")
    connection.execute("CREATE TABLE windows (name TEXT, ends REAL)")
    connection.close()


@pytest.mark.parametrize("damage", [damage_wholly, damage_a_page, cut_off, give_another_schema])
def test_a_damaged_journal_is_made_anew(counters, begin, path, caplog, damage):
    for number in range(300):
        counters.incr(f"old:{number}", DAY)
    counters.close()
    damage(path)
    again = begin()
    assert "damaged" in caplog.text
    again.incr("new", DAY)
    again.flush()
    assert again.check()
    once_more = begin()
    assert (once_more.get("new"), once_more.get("old:1")) == (1, 0)


def test_a_journal_that_is_locked_at_the_start_is_not_thrown_away(
    counters, begin, path, monkeypatch
):
    counters.incr("a", DAY, amount=5)
    counters.close()
    with closing(sqlite.connect(path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0)  # or the test would wait for 5 s
        begin().close()
        other.execute("ROLLBACK")
    assert begin().get("a") == 5


def test_what_a_locked_journal_held_is_there_after_the_next_restart(
    counters, begin, path, monkeypatch
):
    counters.incr("a", DAY, amount=5)
    counters.close()
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0)  # or the test would wait for 5 s
    with closing(sqlite.connect(path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        begun = begin()
        begun.incr("b", DAY)
        begun.flush()
        other.execute("ROLLBACK")
    begun.close()
    again = begin()
    assert (again.get("a"), again.get("b")) == (5, 1)


@pytest.mark.parametrize("column", ["length", "count", "ends"])
def test_a_row_that_makes_no_sense_fails_no_request(counters, begin, journal, column):
    hit(counters, 1)
    hit(counters, 2, "key:2.0")
    counters.close()
    journal(f"UPDATE windows SET {column} = 'much' WHERE key LIKE 'key:1.%'")
    again = begin()
    assert hit(again)
    assert [count for count, _ in standing(again, "key:2.0")] == [2, 2]


def lose(path):
    for file in path.parent.glob(path.name + "*"):
        file.unlink()


def replace_by_nothing(path):
    lose(path)
    path.write_bytes(b"")


def lose_the_folder(path):
    shutil.rmtree(path.parent)
    path.parent.mkdir()


@pytest.mark.parametrize("end", [lose, replace_by_nothing, lose_the_folder])
def test_a_lost_journal_is_written_whole_again(counters, begin, path, end):
    hit(counters, 3)
    hit(counters, 4, "key:2.0")
    counters.flush()
    end(path)
    hit(counters, 1, "key:2.0")
    counters.flush()
    assert counters.check()
    again = begin()
    assert [count for count, _ in standing(again)] == [3, 3]
    assert [count for count, _ in standing(again, "key:2.0")] == [5, 5]


def test_a_journal_that_cannot_be_written_is_one_warning(counters, path, caplog):
    lose(path)
    path.mkdir()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert hit(counters)
            counters.flush()
    assert not counters.check()
    (warning,) = caplog.messages
    assert warning.startswith("The journal of the counters can't be written: ")
    assert [count for count, _ in standing(counters)] == [3, 3]
    path.rmdir()


def test_a_journal_that_can_be_written_again_is_written_whole(counters, begin, path, caplog):
    hit(counters, 2)
    counters.flush()
    lose(path)
    path.mkdir()
    hit(counters, 2, "key:2.0")
    counters.flush()
    path.rmdir()
    counters.flush()
    assert counters.check()
    assert "is written again" in caplog.text
    again = begin()
    assert [count for count, _ in standing(again)] == [2, 2]
    assert [count for count, _ in standing(again, "key:2.0")] == [2, 2]


def test_a_journal_that_is_full_is_written_once_there_is_room(counters, begin, journal, caplog):
    counters.incr("a", DAY)
    counters.flush()
    journal("CREATE TRIGGER full BEFORE INSERT ON windows BEGIN SELECT RAISE(FAIL, 'full'); END")
    counters.incr("a", DAY)
    counters.incr("b", DAY)
    counters.flush()
    assert not counters.check()
    journal("DROP TRIGGER full")
    counters.flush()
    assert counters.check()
    again = begin()
    assert (again.get("a"), again.get("b")) == (2, 1)


def test_what_was_cleared_while_the_journal_was_full_does_not_come_back(counters, begin, journal):
    counters.incr("a", DAY)
    counters.flush()
    journal("CREATE TRIGGER full BEFORE INSERT ON windows BEGIN SELECT RAISE(FAIL, 'full'); END")
    counters.clear("a")
    counters.incr("b", DAY)
    counters.flush()
    journal("DROP TRIGGER full")
    counters.flush()
    again = begin()
    assert (again.get("a"), again.get("b")) == (0, 1)


def test_what_is_cleared_while_a_write_fails_does_not_come_back(
    counters, begin, journal, monkeypatch
):
    def clear_and_write(*arguments):
        counters.clear("a")
        return write(*arguments)

    write = Journal.write
    counters.incr("a", DAY)
    counters.flush()
    journal("CREATE TRIGGER full BEFORE INSERT ON windows BEGIN SELECT RAISE(FAIL, 'full'); END")
    counters.incr("b", DAY)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Journal, "write", clear_and_write)
        counters.flush()
    journal("DROP TRIGGER full")
    counters.flush()
    again = begin()
    assert (again.get("a"), again.get("b")) == (0, 1)


def test_addresses_that_come_and_go_take_no_memory_while_the_journal_cannot_be_written(
    counters, path, monkeypatch
):
    def flood(begin, end):
        for number in range(begin, end):
            counters.incr(f"address:{number}", DAY)
            if number % 100 == 0:
                counters.flush()
        return tracemalloc.get_traced_memory()[0]

    monkeypatch.setattr(counters_module, "MAX_ADDRESSES", 100)
    lose(path)
    path.mkdir()
    tracemalloc.start()
    try:
        first = flood(0, 1_000)
        assert flood(1_000, 6_000) - first < 100 * 1_000  # less than 20 bytes for each address
    finally:
        tracemalloc.stop()
        path.rmdir()


def test_readiness_tells_a_journal_that_is_not_written(store):
    storage, client = store.services.limits.storage, store.client()
    storage.flush()
    assert client.get("/readyz").get_json()["counters"] == "ok"
    lose(store.settings.counters_path)
    store.settings.counters_path.mkdir()
    assert client.get("/v1/store/orders").status_code == 200
    storage.flush()
    ready = client.get("/readyz")
    assert (ready.status_code, ready.get_json()["status"]) == (200, "ready")
    assert ready.get_json()["counters"].startswith("degraded")
    assert client.get("/v1/store/orders").status_code == 200
    store.settings.counters_path.rmdir()
    storage.flush()
    assert client.get("/readyz").get_json()["counters"] == "ok"
