"""Changes that arrive together share a transaction, and each has its own outcome."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout

from orders.domain import NewOrder, OrderNotFound, Origin
from orders.service import retried
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


@retried
def commit(group, work):
    """Make a change as the use cases do."""
    with group.transaction() as connection:
        return work(connection)


@contextmanager
def gathering(group):
    """Yield a function that makes a change wait, in call order, for an earlier one."""
    begun, go_on, waiting = threading.Event(), threading.Event(), []

    def first(_):
        begun.set()
        assert go_on.wait(60)

    def gather(work):
        waiting.append(pool.submit(work))
        wait_until(lambda: len(group._waiting) == len(waiting))  # noqa: SLF001 - not visible
        return waiting[-1]

    with ThreadPoolExecutor(8) as pool:
        leader = pool.submit(commit, group, first)
        assert begun.wait(60)
        yield gather
        go_on.set()
        leader.exception()  # it shares the fate of the others


@pytest.fixture
def together(group):
    """Make changes that all wait for an earlier one; return results or exceptions."""

    def outcome(work):
        try:
            return commit(group, work)
        except BaseException as error:  # noqa: BLE001 - the outcome is compared
            return error

    def run(*works):
        with gathering(group) as gather:
            waiting = [gather(lambda work=work: outcome(work)) for work in works]
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
    assert statements.count("COMMIT") == 1  # also of the change that they waited for
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
        commit(group, placing(99, OrderNotFound(7)))
    commit(group, placing(5))
    assert pets_ordered(store) == [5]


def test_a_change_is_not_refused_because_of_another_that_was_rolled_back(
    store, group, together, placing
):
    order_id = commit(group, placing(1))

    def cancels(connection):
        if orders.cancel_pending(connection, order_id, CLI, store.clock.now()) is None:
            raise OrderNotFound(order_id)

    outcomes = together(cancels, cancels, placing(2, StoreUnavailable("the disk is full")))
    assert [str(each) for each in outcomes] == ["the disk is full"] * 3
    assert [row["status"] for row in store.rows("SELECT status FROM orders")] == ["pending"]


@pytest.mark.parametrize("error", [StoreUnavailable("the disk is full"), PoolTimeout()])
def test_a_database_error_also_fails_the_changes_before_it(store, together, placing, error):
    *outcomes, placed = together(placing(1), placing(2), placing(98, error), placing(4))
    assert [type(each) for each in outcomes] == [StoreUnavailable] * 3
    assert len(set(map(id, outcomes))) == 3  # each thread adds to the traceback of its own
    assert pets_ordered(store) == [4]
    assert [event["order_id"] for event in store.events()] == [placed]


def test_when_a_thread_ends_the_changes_of_others_are_retried(store, together, placing):
    outcomes = together(placing(1), placing(98, SystemExit()), placing(2))
    assert [type(each) for each in outcomes] == [int, SystemExit, int]
    assert pets_ordered(store) == [1, 2]


def test_a_change_that_waited_for_too_long_is_not_made(store, group, placing):
    def place_in_no_time():
        store.database.set_deadline(0.0)
        commit(group, placing(1))

    def keep_another_waiting(_):
        with ThreadPoolExecutor(1) as pool, pytest.raises(StoreUnavailable):
            pool.submit(place_in_no_time).result()

    commit(group, keep_another_waiting)
    commit(group, placing(2))
    assert pets_ordered(store) == [2]


def test_a_completed_change_waits_for_no_later_one(group):
    all_made, made = threading.Event(), []

    def come_again():
        commit(group, lambda _: None)
        made.append(True)
        if len(made) == 3:
            all_made.set()
        assert commit(group, lambda _: all_made.wait(60))

    with gathering(group) as gather:
        clients = [gather(come_again) for _ in range(3)]
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
def test_changes_succeed_again_after_a_database_error(store, client):
    with store.locked(), ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(client.place, pet) for pet in (1, 2, 3)]:
            assert_error(each.result(), 503, "store_unavailable")
    assert client.place(4).status_code == 201
    assert pets_ordered(store) == [4]
