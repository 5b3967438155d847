"""Changes that come at the same time share a transaction, and none suffers from another's fate."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event
from sqlalchemy.exc import NoResultFound

from orders.domain import NewOrder, OrderNotFound, Origin
from orders.store import orders
from orders.store.database.errors import StoreUnavailable
from orders.store.database.group_commit import GroupCommit
from tests.support.stores import assert_error

CLI = Origin("cli")


@pytest.fixture
def group(store):
    return GroupCommit(store.database)


@pytest.fixture
def together(group, store):
    """Run functions as changes that are all waiting while one before them is being made."""

    def run(*works):
        begun, go_on = threading.Event(), threading.Event()

        def first(connection):
            begun.set()
            assert go_on.wait(20)

        def outcome(work):
            try:
                return group.run(work)
            except BaseException as error:  # noqa: BLE001 - what came of it is the question
                return error

        with ThreadPoolExecutor(1 + len(works)) as pool:
            leader = pool.submit(group.run, first)
            assert begun.wait(20)
            waiting = [pool.submit(outcome, work) for work in works]
            while len(group._waiting) < len(works):  # noqa: SLF001 - none has another way to tell
                threading.Event().wait(0.001)
            go_on.set()
            leader.result()
            return [each.result() for each in waiting]

    return run


def placing(store, pet_id):
    def place(connection):
        now = store.clock.now()
        return orders.insert_pending(connection, NewOrder(pet_id), CLI, now)[0].id

    return place


def placing_and_failing(store, error):
    def place(connection):
        placing(store, 99)(connection)
        raise error

    return place


def pets_ordered(store):
    return sorted(row["pet_id"] for row in store.rows("SELECT pet_id FROM orders"))


def test_changes_that_wait_together_are_made_in_one_transaction(store, together):
    commits = []
    event.listen(store.database._writer, "commit", commits.append)  # noqa: SLF001 - as above
    ids = together(*(placing(store, pet) for pet in (1, 2, 3, 4)))
    assert sorted(ids) == [1, 2, 3, 4]
    # One for the change that they waited for, and one for all of them.
    assert len(commits) == 2
    assert len(store.events()) == 4


def test_one_that_is_refused_undoes_its_own_changes_only(store, together):
    refused = OrderNotFound(7)
    outcomes = together(placing(store, 1), placing_and_failing(store, refused), placing(store, 2))
    assert refused in outcomes
    assert pets_ordered(store) == [1, 2]
    assert [event["pet_id"] for event in store.events()].count(99) == 0


def test_one_that_fails_for_a_reason_of_its_own_leaves_the_others(store, together):
    outcomes = together(placing_and_failing(store, ZeroDivisionError()), placing(store, 2))
    assert [type(each) for each in outcomes if not isinstance(each, int)] == [ZeroDivisionError]
    assert pets_ordered(store) == [2]


def test_none_is_refused_for_what_another_did_not_do_in_the_end(store, together):
    order_id = GroupCommit(store.database).run(placing(store, 1))
    times = []

    def cancels_once(connection):
        times.append(1)
        if len(times) > 1:
            raise StoreUnavailable("the disk is full")
        orders.cancel_pending(connection, order_id, CLI, store.clock.now())

    def cancels(connection):
        if orders.cancel_pending(connection, order_id, CLI, store.clock.now()) is None:
            raise OrderNotFound(order_id)
        return "cancelled"

    assert "cancelled" in together(cancels_once, cancels)


def test_alone_it_is_undone_too(store, group):
    with pytest.raises(OrderNotFound):
        group.run(placing_and_failing(store, OrderNotFound(7)))
    assert pets_ordered(store) == []
    group.run(placing(store, 5))
    assert pets_ordered(store) == [5]


@pytest.mark.sqlite_only("the size of a file")
def test_the_databases_trouble_is_told_to_all_and_nothing_is_changed(store, together):
    def fills_the_disk(connection):
        placing(store, 98)(connection)
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        try:
            for pet_id in range(1, 2_000):
                placing(store, pet_id)(connection)
        finally:
            connection.exec_driver_sql("PRAGMA max_page_count = 1073741823")

    outcomes = together(placing(store, 1), fills_the_disk, placing(store, 2))
    assert [type(each) for each in outcomes] == [StoreUnavailable] * 3
    assert pets_ordered(store) == []
    assert store.events() == []


def test_what_undid_everything_is_made_again_without_the_one_that_did(store, together):
    def out_of_memory(connection):
        # As SQLite does by itself where it has none left.
        connection.connection.driver_connection.execute("ROLLBACK")
        raise MemoryError

    outcomes = together(placing(store, 1), out_of_memory, placing(store, 2))
    assert [type(each) for each in outcomes if not isinstance(each, int)] == [MemoryError]
    assert pets_ordered(store) == [1, 2]


def test_rows_that_are_not_ours_are_the_databases_trouble_in_a_group_too(together):
    def finds_no_row(_):
        raise NoResultFound

    outcomes = together(finds_no_row, finds_no_row)
    assert [type(each) for each in outcomes] == [StoreUnavailable] * 2
    assert outcomes[0] is not outcomes[1]  # each thread adds its way to its own


def test_where_the_thread_that_makes_them_ends_nobody_is_told_that_it_was_done(store, together):
    def ends_the_thread(_):
        raise SystemExit

    outcomes = together(placing(store, 1), ends_the_thread, placing(store, 2))
    assert sorted(type(each).__name__ for each in outcomes) == [
        "StoreUnavailable",
        "StoreUnavailable",
        "SystemExit",
    ]
    assert pets_ordered(store) == []


def test_one_that_gives_up_while_the_others_are_taken_leaves_them(store, group, together):
    class OneGivesUp(deque):
        def popleft(self):
            first = super().popleft()
            if len(self) == 2:
                self.pop()
            return first

    group._waiting = OneGivesUp()  # noqa: SLF001 - it takes 5 seconds and the right moment
    outcomes = together(*(placing(store, pet) for pet in (1, 2, 3)))
    assert sum(isinstance(each, int) for each in outcomes) == 2
    assert sum(isinstance(each, StoreUnavailable) for each in outcomes) == 1
    assert len(pets_ordered(store)) == 2


def test_an_event_is_dated_when_its_turn_has_come(store, client):
    changes = store.services.orders._changes  # noqa: SLF001 - none has another way to tell
    with ThreadPoolExecutor(1) as pool:
        with store.database.write() as connection:
            waiting = pool.submit(client.place)
            while not changes._writing.locked():  # noqa: SLF001
                threading.Event().wait(0.001)
            store.clock.advance(3)
            placing(store, 1)(connection)
        assert waiting.result().status_code == 201
    at = [event["at"] for event in store.events()]
    assert at == sorted(at)


def test_an_answer_that_waited_tells_the_same_end_of_the_window(store, client):
    end = client.place().headers["X-RateLimit-Reset"]
    changes = store.services.orders._changes  # noqa: SLF001 - none has another way to tell
    with ThreadPoolExecutor(1) as pool:
        with store.database.write():
            waiting = pool.submit(client.place)
            while not changes._writing.locked():  # noqa: SLF001
                threading.Event().wait(0.001)
            store.clock.advance(3)
        assert waiting.result().headers["X-RateLimit-Reset"] == end


@pytest.mark.slow
def test_after_the_trouble_changes_are_made_again(store, client):
    with store.locked(), ThreadPoolExecutor(4) as pool:
        refused = [pool.submit(client.place, pet) for pet in (1, 2, 3)]
        for each in refused:
            assert_error(each.result(), 503, "store_unavailable")
    assert client.place(4).status_code == 201
    assert pets_ordered(store) == [4]
