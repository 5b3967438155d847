"""Changes that arrive together share a transaction, and each has its own outcome."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout

from orders.domain import NewOrder, OrderNotFound, Origin
from orders.store import orders
from orders.store.database.commits import GroupCommit
from orders.store.database.database import driver_of
from orders.store.database.errors import StoreUnavailable
from tests.support.machine import wait_until
from tests.support.stores import assert_error

CLI = Origin("cli")


@pytest.fixture
def group(store):
    return GroupCommit(store.database)


@contextmanager
def gathering(group, count):
    """Let so many changes that begin meanwhile wait for an earlier one, and then be made."""
    begun, go_on = threading.Event(), threading.Event()

    def first(_):
        begun.set()
        assert go_on.wait(60)

    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(group.run, first)
        assert begun.wait(60)
        yield
        wait_until(lambda: len(group._waiting) == count)  # noqa: SLF001 - not visible
        go_on.set()
        leader.result()


@pytest.fixture
def together(group):
    """Run functions as changes that all wait for an earlier one; return results or exceptions."""

    def outcome(work):
        try:
            return group.run(work)
        except BaseException as error:  # noqa: BLE001 - the outcome is compared
            return error

    def run(*works):
        with ThreadPoolExecutor(len(works)) as pool:
            with gathering(group, len(works)):
                waiting = [pool.submit(outcome, work) for work in works]
            return [each.result() for each in waiting]

    return run


@pytest.fixture
def placing(store):
    """Return a change that places an order and then fails if an error is given."""

    def make(pet_id, error=None, last_statement=None):
        def place(connection):
            placed = orders.insert_pending(connection, NewOrder(pet_id), CLI, store.clock.now())
            if last_statement:
                connection.connection.driver_connection.execute(last_statement)
            if error:
                raise error
            return placed.order_id

        return place

    return make


@pytest.fixture
def waiting_for_its_turn(store):
    """Wait until a change waits in the queue of the store's own writers."""
    changes = store.shop.orders._changes  # noqa: SLF001 - not visible otherwise
    return lambda: wait_until(lambda: changes._is_writing)  # noqa: SLF001


def pets_ordered(store):
    return sorted(row["pet_id"] for row in store.rows("SELECT pet_id FROM orders"))


@pytest.mark.sqlite_only("its driver shows statements")
def test_changes_that_wait_together_share_one_transaction(store, together, placing):
    statements = []
    with store.database._writer.connect() as connection:  # noqa: SLF001 - not visible otherwise
        driver_of(connection).set_trace_callback(statements.append)
    ids = together(*map(placing, (1, 2, 3, 4)))
    assert sorted(ids) == [1, 2, 3, 4]
    # One for the change they waited for, and one for all of them.
    assert statements.count("COMMIT") == 2
    assert len(store.events()) == 4


@pytest.mark.parametrize(
    ("error", "last_statement"),
    [
        (OrderNotFound(7), None),
        (ZeroDivisionError(), None),
        (MemoryError(), "ROLLBACK"),  # as SQLite does by itself when it runs out of memory
    ],
)
def test_a_failing_change_undoes_only_itself(store, together, placing, error, last_statement):
    outcomes = together(placing(1), placing(99, error, last_statement), placing(2))
    assert error in outcomes
    assert pets_ordered(store) == [1, 2]
    assert sorted(event["pet_id"] for event in store.events()) == [1, 2]


def test_a_failing_change_that_is_alone_is_undone(store, group, placing):
    with pytest.raises(OrderNotFound):
        group.run(placing(99, OrderNotFound(7)))
    group.run(placing(5))
    assert pets_ordered(store) == [5]


def test_a_change_does_not_fail_for_something_that_another_then_undid(
    store, group, together, placing
):
    order_id = group.run(placing(1))
    attempts = []

    def cancels_only_the_first_time(connection):
        attempts.append(1)
        if len(attempts) > 1:
            raise StoreUnavailable("the disk is full")
        orders.cancel_pending(connection, order_id, CLI, store.clock.now())

    def cancels(connection):
        if orders.cancel_pending(connection, order_id, CLI, store.clock.now()) is None:
            raise OrderNotFound(order_id)
        return "cancelled"

    assert "cancelled" in together(cancels_only_the_first_time, cancels)


@pytest.mark.parametrize("error", [StoreUnavailable("the disk is full"), PoolTimeout()])
def test_trouble_of_the_database_fails_all_changes(store, together, placing, error):
    outcomes = together(placing(1), placing(98, error), placing(2))
    assert [type(each) for each in outcomes] == [StoreUnavailable] * 3
    assert len(set(map(id, outcomes))) == 3  # each thread adds to the traceback of its own
    assert pets_ordered(store) == []
    assert store.events() == []


def test_when_the_writing_thread_ends_no_change_counts_as_made(store, together, placing):
    outcomes = together(placing(1), placing(98, SystemExit()), placing(2))
    assert sorted(type(each).__name__ for each in outcomes) == [
        "StoreUnavailable",
        "StoreUnavailable",
        "SystemExit",
    ]
    assert pets_ordered(store) == []


def test_a_change_that_waited_for_too_long_is_not_made(store, group, placing):
    def place_in_no_time():
        store.database.answer_by(0.0)
        group.run(placing(1))

    def keep_another_waiting(_):
        with ThreadPoolExecutor(1) as pool, pytest.raises(StoreUnavailable):
            pool.submit(place_in_no_time).result()

    group.run(keep_another_waiting)
    group.run(placing(2))
    assert pets_ordered(store) == [2]


def test_a_change_that_was_made_waits_for_no_later_one(group):
    go_on, made = threading.Event(), []

    def come_again():
        group.run(lambda _: None)
        made.append(True)
        group.run(lambda _: go_on.wait(60))

    with ThreadPoolExecutor(3) as pool:
        with gathering(group, 3):
            clients = [pool.submit(come_again) for _ in range(3)]
        wait_until(lambda: len(made) == len(clients))
        go_on.set()
        for each in clients:
            each.result()


def test_a_change_that_waited_has_the_time_of_its_turn_and_the_window_of_its_request(
    store, client, placing, waiting_for_its_turn
):
    end = client.place().headers["X-RateLimit-Reset"]
    with ThreadPoolExecutor(1) as pool:
        with store.database.write() as connection:
            waiting = pool.submit(client.place)
            waiting_for_its_turn()
            store.clock.advance(3)
            placing(1)(connection)
        placed = waiting.result()
    assert (placed.status_code, placed.headers["X-RateLimit-Reset"]) == (201, end)
    at = [event["at"] for event in store.events()]
    assert at == sorted(at)


@pytest.mark.slow
def test_after_trouble_of_the_database_changes_are_made_again(store, client):
    with store.locked(), ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(client.place, pet) for pet in (1, 2, 3)]:
            assert_error(each.result(), 503, "store_unavailable")
    assert client.place(4).status_code == 201
    assert pets_ordered(store) == [4]
