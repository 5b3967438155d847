"""Pages of version 2: right for all filters, read by an index, and stable while others write."""

from __future__ import annotations

import itertools
import operator
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orders.domain import Status
from orders.store import pages
from orders.store.database.sqlite import SqliteDatabase
from orders.store.pages import FILTERS, Filters, PageQuery, Sort, SortBy, read_page
from tests.support.databases import Explained, copy_database
from tests.support.orders import order_row, put_rows
from tests.support.stores import Client

PATH = "/v2/store/orders"
SORTS = [Sort(by, descending) for by in SortBy for descending in (False, True)]
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
# Which plan is chosen: always the sort's index, or always a filter's.
# pages.FEW, TRIED and MANY, by the plan that they lead to.
FEW = {
    "nothing is few": (-1, 0, -1),
    "everything is few": (10**9, 0, -1),
    "a search is tried, then its hits are read": (-1, 50, 10**9),
}


REFERENCES = (None, "R-4", "R-5", "r-4", "r-%_É", "R-é", "7-up", "WEB-4-é up", "a.4-4", "-", "4")


# Values of filters that orders have exactly, and instants of those that bound one.
EXACT = {"pet_id": [7, 1, 2**63 - 1], "reference": ["R-4", "R-5"]}
BOUNDS = {
    f"{name}_{bound}": BEGIN + timedelta(days=days)
    for name in ("placed", "ships", "updated")
    for bound, days in (("from", 100), ("before", 700))
}
ITEMS = (None, "Red collar", "Café-Körbchen, 4 up")
ADDRESSES = (None, "Mia Wong\nUpper Rd 7\r\nLeeds")


def random_orders(number, seed):
    """Yield the rows of this many orders over two years."""
    chance = random.Random(seed)
    for order_id in range(1, number + 1):
        placed_at = BEGIN + timedelta(hours=chance.randrange(17_000))
        status = chance.choice(list(Status))
        dated = status is Status.SHIPPED or chance.random() < 0.6
        yield order_row(
            id=order_id,
            pet_id=chance.choice([1, 7, 7, 19, 2**63 - 1]),
            # Some dates are the same.
            ship_date=placed_at.replace(hour=8) + timedelta(days=3) if dated else None,
            status=status.value,
            placed_at=placed_at,
            updated_at=placed_at + timedelta(hours=chance.randrange(900)),
            reference=chance.choice(REFERENCES),
            item=chance.choice(ITEMS),
            ship_to=chance.choice(ADDRESSES),
        )


class Mixed:
    """A database and the rows of its orders."""

    def __init__(self, database, rows):
        self.database, self.rows = database, rows


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, empty_database):
    """A database of 600 orders, and its rows."""
    path = tmp_path_factory.mktemp("mixed") / "orders.db"
    copy_database(empty_database, path)
    database = SqliteDatabase(path)
    mixed = Mixed(database, list(random_orders(600, seed=7)))
    put_rows(database, mixed.rows)
    yield mixed
    database.close()


def matches(order, filters):
    """Return whether an order matches the filters."""
    return (
        order["status"] in filters.statuses
        and all(getattr(filters, name) in {None, order[name]} for name in EXACT)
        and is_within(order["placed_at"], filters.placed_from, filters.placed_before)
        and is_within(order["ship_date"], filters.ships_from, filters.ships_before)
        and is_within(order["updated_at"], filters.updated_from, filters.updated_before)
        and filters.dated in {None, order["ship_date"] is not None}
        and (filters.search is None or is_found(order, filters.search))
    )


def is_found(order, search):
    texts = "\n".join(order[name] or "" for name in ("reference", "item", "ship_to"))
    begins = rf"(?m)(?:^|(?<=[\W_])(?=[^\W_])){re.escape(unaccented(search))}"
    is_number = search.removeprefix("#") == str(order["id"])
    return is_number or re.search(begins, unaccented(texts)) is not None


def unaccented(text):
    return text.casefold().translate(str.maketrans("éö", "eo"))


def is_within(instant, since, before):
    if since is None and before is None:
        return True
    return (
        instant is not None
        and (since is None or instant >= since)
        and (before is None or instant < before)
    )


def expected(rows, filters, sort):
    """Return the ids of a list, computed in the simplest way."""
    matching = [
        row | {"due_at": row["ship_date"] or row["placed_at"]}
        for row in rows
        if matches(row, filters)
    ]
    column = sort.by.value
    dated = [row for row in matching if row[column] is not None]
    undated = [row for row in matching if row[column] is None]
    dated.sort(key=lambda row: (row[column], row["id"]), reverse=sort.descending)
    undated.sort(key=lambda row: row["id"], reverse=sort.descending)
    return [row["id"] for row in dated + undated]


def listed(database, filters, sort, size):
    """Return the ids of a list, page by page."""
    ids, after = [], None
    while True:
        page = read_page(database, PageQuery(filters, sort, size, after))
        assert len(page.orders) == size or page.next is None
        assert page.orders or after is None
        ids += [int(order.split(",")[0].removeprefix('{"id":')) for order in page.orders]
        assert len(ids) == len(set(ids))
        after = page.next
        if after is None:
            return ids


HOURS = st.integers(-24 * 20, 24 * 750).map(lambda hours: BEGIN + timedelta(hours=hours))
ANY_FILTERS = st.builds(
    Filters,
    statuses=st.sets(st.sampled_from(Status)).map(lambda chosen: tuple(sorted(chosen)))
    | st.just(tuple(Status)),
    **{name: st.none() | st.sampled_from(values) for name, values in EXACT.items()},
    **dict.fromkeys(BOUNDS, st.none() | HOURS),
    dated=st.sampled_from([None, True, False]),
    search=st.none()
    | st.sampled_from(
        [
            "r",
            "R-",
            "r-4",
            "R-%",
            "r-É",
            "7",
            "#7",
            "#",
            "é",
            "4",
            "UP",
            "-4",
            "4-",
            "É u",
            "kor",
            "e",
            "CAFÉ",
            "w",
            "mia w",
            "wong u",
            "l",
        ]
    ),
)


@pytest.mark.parametrize("few", FEW.values(), ids=FEW)
@example(Filters(tuple(Status), dated=False), SORTS[2], 3)
@example(Filters(tuple(Status), pet_id=7), Sort(SortBy.PLACED_AT), 3)
@example(Filters(tuple(Status), pet_id=7), Sort(SortBy.SHIP_DATE, descending=True), 3)
@example(Filters((Status.PENDING,), search="r"), Sort(SortBy.SHIP_DATE), 3)
@given(ANY_FILTERS, st.sampled_from(SORTS), st.sampled_from([3, 40, 200]))
def test_pages_together_are_the_list(mixed, few, filters, sort, size):
    with pytest.MonkeyPatch.context() as patched:
        set_limits(patched, few)
        assert listed(mixed.database, filters, sort, size) == expected(mixed.rows, filters, sort)


def set_limits(monkeypatch, limits):
    for name, value in zip(("FEW", "TRIED", "MANY"), limits, strict=True):
        monkeypatch.setattr(pages, name, value)


VALUES = {
    **{name: values[0] for name, values in EXACT.items()},
    **BOUNDS,
    "dated": False,
    "search": "r-",
}
SETS = [
    *itertools.chain.from_iterable(itertools.combinations(VALUES, size) for size in range(3)),
    tuple(VALUES),
]


def test_each_filter_has_a_value_here_that_some_orders_have(mixed):
    assert {each.name for each in fields(Filters)} == {"statuses", *VALUES}, "EXACT or BOUNDS"
    for name, value in VALUES.items():
        found = [row for row in mixed.rows if matches(row, Filters(**{name: value}))]
        assert 0 < len(found) < len(mixed.rows), f"{name} in random_orders"


@pytest.mark.sqlite_only("its query plans; for PostgreSQL, see test_postgres")
@pytest.mark.parametrize("name", VALUES)
def test_each_filter_has_its_index_and_is_in_those_of_the_sorts(mixed, name, monkeypatch):
    set_limits(monkeypatch, FEW["nothing is few"])
    filters = Filters(**{name: VALUES[name]})
    column, compare = FILTERS["undated" if name == "dated" else name]
    alone, *walks = [
        plans_of_page(mixed.database, filters, Sort(by))
        for by in (SortBy.ID, SortBy.PLACED_AT, SortBy.SHIP_DATE)
    ]
    steps = [step for plan in alone for step in plan]
    column = {"search": "word"}.get(column, column)
    found = any(re.search(rf" \(.*\b{column}[=<>]", step) for step in steps)
    assert found, f"{column} has no index of its own in tables.py: {steps}"
    if compare is operator.eq and name != "search":
        # The index has the order of ids, too.
        assert any(f"({column}=?" in step for step in alone[-1]), alone[-1]
    for step in itertools.chain.from_iterable(plan[-1] for plan in walks):
        assert "COVERING INDEX" in step, f"{column} is not in _FILTERED of tables.py: {step}"


def plans_of_page(database, filters, sort):
    """Return how each statement of a page reads orders, but for looking up those that it shows."""
    explained = Explained(database)
    read_page(explained, PageQuery(filters, sort, 2))
    return [
        [
            detail
            for *_, detail in plan
            if (" orders " in detail and "LEFT-JOIN" not in detail) or "_by_word" in detail
        ]
        for plan in explained.plans
    ]


@pytest.mark.slow
@pytest.mark.sqlite_only("its query plans; for PostgreSQL, see test_postgres")
@pytest.mark.parametrize("few", FEW.values(), ids=FEW)
@pytest.mark.parametrize("sort", SORTS, ids=lambda sort: f"{sort.by.value} {sort.descending}")
def test_a_page_reads_orders_by_an_index_and_sorts_few(mixed, sort, few, monkeypatch):
    explained = Explained(mixed.database)
    set_limits(monkeypatch, few)
    for names, statuses in itertools.product(SETS, (tuple(Status), tuple(Status)[:1])):
        filters = Filters(statuses, **{name: VALUES[name] for name in names})
        first = read_page(explained, PageQuery(filters, sort, 2))
        read_page(explained, PageQuery(filters, sort, 2, first.next))
    assert len(explained.plans) > 2 * len(SETS)
    for plan in explained.plans:
        for _, parent, _, detail in plan:
            # At the top level, the page's orders are looked up by id.
            if " orders " in detail and parent != 0:
                # The table itself is sorted by id.
                is_searched = detail.startswith("SEARCH orders USING ")
                assert is_searched or (detail == "SCAN orders" and sort.by is SortBy.ID), plan
                assert not [each for each in plan if each[1] == parent and "B-TREE" in each[3]]


QUERIES = [
    *(f"sort={sign}{by}" for by in ("id", "placedAt", "shipDate", "dueAt") for sign in ("", "-")),
    "status=pending",
    "status=pending&status=shipped&sort=-placedAt",
    "complete=false&sort=shipDate",
    "status=pending&sort=-dueAt",
    "dated=false&status=pending&sort=dueAt",
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
    """Other clients, who place orders, and ship and cancel all but those that stay."""

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
        page = client.get(target + after).get_json()
        seen += [order["id"] for order in page["orders"]]
        if "next" not in page:
            return seen
        after = f"&after={page['next']}"


@pytest.mark.slow
def test_every_order_that_stays_is_seen_exactly_once_while_others_write(client_v2):
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
