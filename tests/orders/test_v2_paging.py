"""Pages of version 2: nothing is missed whoever writes meanwhile, and no page is dear."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import pages
from orders.domain import Status, format_instant
from orders.store import paging, statements
from orders.store.paging import Filters, PageQuery, read_page
from orders.store.tables import OrderRow
from orders.store.walks import Part, Sort, SortBy, all_gatherings, all_walks
from tests.support.stores import Client

PATH = "/v2/store/orders"
SORTS = [Sort(by, falling) for by in SortBy for falling in (False, True)]
NAMES = ("pet_id", "reference", "placed_from", "placed_before", "ships_from", "ships_before")
EVERY_STATUS = tuple(status.value for status in Status)
STATUSES = (EVERY_STATUS, EVERY_STATUS[:1], EVERY_STATUS[1:])
INDEX = {
    "status": "orders_by_status",
    "pet_id": "orders_by_pet",
    "reference": "orders_by_reference",
}


# Which index every statement uses.


def plan(connection, query):
    """Return the lines of SQLite's plan for a query."""
    driver = connection.connection.driver_connection
    text, parameters = query.text_on(connection.dialect)
    rows = driver.execute(f"EXPLAIN QUERY PLAN {text}", [None] * parameters).fetchall()
    return [row[3] for row in rows]


def shapes():
    """Return combinations of filters, statuses and sort: each pair of filters, and all together."""
    pairs = itertools.combinations(NAMES, 2)
    chosen = [
        *((names, EVERY_STATUS) for names in pairs),
        *(((name,), statuses) for name in NAMES for statuses in STATUSES),
        *(((), statuses) for statuses in STATUSES),
        (NAMES, EVERY_STATUS[:2]),
    ]
    for (names, statuses), sort in itertools.product(chosen, SORTS):
        yield frozenset(names), statuses, sort


def parts_of(walk):
    """Return the parts that a walk is read in."""
    if walk.sort.by is not SortBy.SHIP_DATE:
        return [walk]
    dated, undated = walk.in_part(Part.DATED), walk.in_part(Part.UNDATED)
    return [dated] if walk.has_range() else [dated, undated]


# On PostgreSQL, see test_postgres.
PLANS = pytest.mark.sqlite_only("what its planner does")


@pytest.mark.slow
@PLANS
def test_every_walk_uses_the_index_of_its_filter_and_sort_and_sorts_nothing(store):
    with store.database.read() as connection:
        for shape in shapes():
            for walk in itertools.chain(*map(parts_of, all_walks(*shape))):
                by = "" if walk.sort.by is SortBy.ID else f"_{walk.sort.by.value}"
                index = f"{INDEX[walk.along]}{by} "
                for query in every_statement(walk):
                    lines = plan(connection, query)
                    text = "\n".join(lines)
                    assert "SCAN" not in text, (walk, lines)
                    assert "TEMP B-TREE" not in text, (walk, lines)
                    searches = [line for line in lines if " orders " in line]
                    assert searches
                    assert all(index in line for line in searches), (walk, lines)


def every_statement(walk):
    """Return all statements that a walk is read with."""
    for started in (False, True):
        yield statements.entry_after(walk, started=started)
        for stopped in (False, True):
            yield statements.rows(walk, started=started, stopped=stopped)


@pytest.mark.slow
@PLANS
def test_every_range_is_gathered_by_the_index_of_its_column(store):
    with store.database.read() as connection:
        for shape in shapes():
            for gathering in all_gatherings(*shape):
                index = f"{INDEX[gathering.walk.along]}_{gathering.by} "
                for query in (
                    statements.number_in(gathering),
                    *(statements.gathered(gathering, part) for part in (None, *Part)),
                ):
                    lines = plan(connection, query)
                    searches = [
                        line for line in lines if " orders " in line and "PRIMARY KEY" not in line
                    ]
                    assert searches
                    assert all(index in line for line in searches), (gathering, lines)


@PLANS
def test_the_days_are_searched_and_not_scanned(store):
    with store.database.read() as connection:
        for shape in shapes():
            for walk in itertools.chain(*map(parts_of, all_walks(*shape))):
                for column in walk.other_ranges():
                    for started in (False, True):
                        query = statements.next_place(walk, column, started=started)
                        (line,) = plan(connection, query)
                        assert line.startswith("SEARCH order_days USING")


# What a page costs.


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """Stores of 1,000 and of 20,000 orders, and a count of the steps that SQLite takes in them."""
    steps = pages.Steps()
    folder = tmp_path_factory.mktemp("sizes")
    databases = [pages.filled(folder, size, seed=1) for size in (1_000, 20_000)]
    yield databases, steps
    steps.close()
    for database in databases:
        database.close()


@pytest.mark.slow
@PLANS
def test_a_page_of_one_filter_costs_no_more_in_a_larger_store(sizes):
    for case in pages.cases(pages.EXACT):
        for which, taken in pages.measure(*sizes, case).items():
            assert max(taken) < pages.MOST_STEPS, (case.name, which, taken)


@pytest.mark.slow
@PLANS
def test_a_page_of_several_filters_or_a_range_in_another_sort_has_a_bound(sizes):
    for case in pages.cases(pages.COMBINED):
        for which, taken in pages.measure(*sizes, case).items():
            # A scan of 20,000 orders takes over 400,000.
            assert max(taken) < 12 * pages.MOST_STEPS, (case.name, which, taken)


# That it is right.


def held(order, filters):
    """Return whether the filters let an order through."""
    return (
        order["status"] in filters.statuses
        and filters.pet_id in {None, order["pet_id"]}
        and filters.reference in {None, order["reference"]}
        and _within(order["placed_at"], filters.placed_from, filters.placed_before)
        and _within(order["ship_date"], filters.ships_from, filters.ships_before)
    )


def _within(text, since, before):
    if since is None and before is None:
        return True
    return (
        text is not None
        and (since is None or text >= format_instant(since))
        and (before is None or text < format_instant(before))
    )


def expected(rows, filters, sort):
    """Return the ids of a list by the plainest means."""
    wanted = [row for row in rows if held(row, filters)]
    column = sort.by.value
    dated = [row for row in wanted if row[column] is not None]
    undated = [row for row in wanted if row[column] is None]
    dated.sort(key=lambda row: (row[column], row["id"]), reverse=sort.falling)
    undated.sort(key=lambda row: row["id"], reverse=sort.falling)
    return [row["id"] for row in dated + undated]


def listed(database, filters, sort, size):
    """Return the ids of a list, page by page."""
    found, after = [], None
    while True:
        page = read_page(database, PageQuery(filters, sort, size, after))
        assert len(page.orders) == size or page.next is None
        found += [int(order.split(",")[0].removeprefix('{"id":')) for order in page.orders]
        after = page.next
        if after is None:
            return found


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A store of 600 orders of two years, and its rows."""
    database = pages.filled(tmp_path_factory.mktemp("mixed"), 600, seed=7)
    with database.read() as connection:
        rows = [
            dict(zip(OrderRow.__table__.columns.keys(), row, strict=True))
            for row in connection.exec_driver_sql("SELECT * FROM orders")
        ]
    yield database, rows
    database.close()


HOURS = st.integers(-24 * 20, 24 * 750).map(lambda hours: pages.BEGIN + timedelta(hours=hours))
FILTERS = st.builds(
    Filters,
    statuses=st.sets(st.sampled_from(Status)).map(lambda chosen: tuple(sorted(chosen)))
    | st.just(tuple(Status)),
    pet_id=st.none() | st.sampled_from([1, 7, 19]),
    reference=st.none() | st.sampled_from(["R-4", "R-5"]),
    placed_from=st.none() | HOURS,
    placed_before=st.none() | HOURS,
    ships_from=st.none() | HOURS,
    ships_before=st.none() | HOURS,
)


@pytest.fixture(params=[3, 100], ids="stretches of {}".format)
def _stretch(request, monkeypatch):
    """Short stretches, so that a page is found in many of them; and those that there are."""
    monkeypatch.setattr(paging, "FIRST_STRETCH", request.param)


@pytest.mark.slow
@pytest.mark.usefixtures("_stretch")
@settings(max_examples=200)
@given(FILTERS, st.sampled_from(SORTS), st.sampled_from([40, 200]))
def test_pages_together_are_the_list(mixed, filters, sort, size):
    database, rows = mixed
    assert listed(database, filters, sort, size) == expected(rows, filters, sort)


# While others write.

QUERIES = [
    *(f"sort={sort}" for sort in ("id", "-id", "placedAt", "-placedAt", "shipDate", "-shipDate")),
    "status=pending",
    "status=pending&status=shipped&sort=-placedAt",
    "complete=false&sort=shipDate",
    "petId=1",
    "petId=1&sort=-shipDate",
    "petId=1&status=pending&sort=placedAt",
    "reference=stays",
    "reference=stays&sort=-shipDate",
    "placedFrom=2026-12-01T12:10:00Z",
    "placedFrom=2026-12-01T12:10:00Z&sort=-shipDate",
    "shipsFrom=2026-12-05T00:00:00Z&sort=placedAt",
    "shipsBefore=2026-12-20T00:00:00Z",
]


class Others:
    """Other clients, who place, ship and cancel orders, but leave alone those that stay put."""

    def __init__(self, client, theirs):
        self._client, self._theirs = client, theirs
        self._done = threading.Event()
        self.changes = 0

    def work(self, seed):
        client = Client(self._client.store, self._client.key_id, self._client.secret)
        client.version = 2
        chance = random.Random(seed)
        while not self._done.is_set():
            kind = chance.randrange(7)
            if kind == 0:
                day = f"2026-12-{chance.randint(2, 28):02}T00:00:00Z"
                self._theirs.append(client.place(1, shipDate=day).get_json()["id"])
            else:
                order_id = chance.choice(self._theirs)
                answer = client.ship(order_id) if kind % 2 else client.cancel(order_id)
                assert answer.status_code in {200, 204, 409}
            self.changes += 1

    def stop(self):
        self._done.set()


def follow(client, query, limit):
    """Return the ids of a list, page by page."""
    target, seen = f"{PATH}?{query}&limit={limit}", []
    after = ""
    while True:
        told = client.get(target + after).get_json()
        seen += [order["id"] for order in told["orders"]]
        if "next" not in told:
            return seen
        after = f"&after={told['next']}"


@pytest.mark.slow
def test_every_order_that_stays_put_is_seen_exactly_once_whoever_writes(client_v2):
    staying, theirs = [], []
    for number in range(80):
        date = {"shipDate": f"2026-12-{2 + number % 27:02}T00:00:00Z"} if number % 3 else {}
        mine = number % 2 == 0
        reference = {"reference": "stays"} if mine and number % 4 == 0 else {}
        order = client_v2.place(1 + number % 4 // 2, **date, **reference).get_json()
        (staying if mine else theirs).append(order["id"])
        client_v2.store.clock.advance(10)
    calm = {query: set(follow(client_v2, query, 200)) & set(staying) for query in QUERIES}
    assert all(calm.values())
    others = Others(client_v2, theirs)
    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(others.work, seed) for seed in (1, 2)]
        try:
            for query, limit in zip(QUERIES, itertools.cycle((3, 10)), strict=False):
                seen = follow(client_v2, query, limit)
                mine = [order_id for order_id in seen if order_id in calm[query]]
                assert sorted(mine) == sorted(calm[query]), (query, limit)
                assert all(each.running() for each in working)
        finally:
            others.stop()
    assert others.changes > len(QUERIES)
    for each in working:
        each.result()
