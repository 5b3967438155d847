"""Measures version 2's pages of orders in a large store, with filters that are hard on it, too.

Run it as `python -m tests.bench.pages [--orders 1000000] [--database postgres]`. The store has two
years of orders: those of the last weeks are pending, one pet and one reference went out of use
long ago, and half of the pets are rare. Of each mix of filters and sort it reads the first page
and one that begins in the middle. It prints the milliseconds of a processor that the page took
here and in the server, which a busy machine changes little, and exits 1 where it were more than
250, or 1,000 for mixes that only somebody who tries would ask for.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template

from sqlalchemy import Connection, select, text

from orders.domain import SEARCHED, Status, search_words
from orders.settings import Settings
from orders.shop import database_of
from orders.store.database.database import Database, Query, driver_of
from orders.store.pages import Filters, PageQuery, Position, Sort, SortBy, read_page
from orders.store.postgres.database import copy_into
from orders.store.tables import order_words, orders
from tests.support.postgres import Postgres

FILL_SECONDS = 600.0
MOST_MILLISECONDS, MOST_OF_HARD = 250, 1_000
SIZE = 50
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 730
COMMON_PET, OLD_PET, RARE_PET = 3, 99, 5_000
_NUMBERS = {
    "sqlite": "WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers "
    "WHERE i < $number) ",
    "postgresql": "WITH numbers AS (SELECT generate_series(1, CAST($number AS bigint)) AS i) ",
}
_INSTANT = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', '2024-01-01', ($seconds) || ' seconds')",
    "postgresql": "timestamptz '2024-01-01Z' + ($seconds) * interval '1 second'",
}
_FILL = """
    INSERT INTO orders (id, pet_id, quantity, ship_date, status, placed_at, updated_at, reference,
        item, ship_to)
    $numbers, chosen AS (
        SELECT i, i * 86400.0 * $days / $number AS seconds, i * 7919 / 16 % 100 AS chance
        FROM numbers
    ), living AS (
        SELECT *, CASE WHEN i > 0.95 * $number AND chance < 60 THEN 'pending'
            WHEN chance < 12 THEN 'cancelled' ELSE 'shipped' END AS status
        FROM chosen
    )
    SELECT i,
        CASE WHEN i < 0.3 * $number AND i % 5 = 0 THEN 99
            WHEN i % 2 = 0 THEN 1 + i / 2 % 20 ELSE 100 + i % 10000 END,
        1 + i % 3,
        CASE WHEN status = 'shipped' OR i % 4 > 0 THEN $ships END,
        status, $placed, $placed,
        CASE WHEN i < 0.6 * $number AND i % 2 = 0 THEN 'web'
            WHEN i % 3 > 0 THEN 'R-' || (i % 20000) END,
        CASE WHEN i < 0.3 * $number THEN 'Old leash'
            ELSE 'Red collar, ' || (20 + i % 30) || ' cm' END,
        'Mia Wong' || (i * 31 % 90000) || $line_break || 'Hauptstr. ' || (i % 200) || $line_break
            || (10000 + i * 7 % 80000) || ' Köln'
    FROM living
"""
_WRITTEN_AT_ONCE = 20_000


def fill(database: Database, number: int) -> None:
    patience = {"patience": FILL_SECONDS} if database.where.startswith("postgresql") else {}
    with database.write(**patience) as connection:
        dialect = connection.dialect.name
        instant = Template(_INSTANT[dialect])
        sql = Template(_FILL).substitute(
            numbers=Template(_NUMBERS[dialect]).substitute(number=number).removesuffix(" "),
            number=number,
            days=DAYS,
            placed=instant.substitute(seconds="seconds"),
            ships=instant.substitute(seconds="seconds + (1 + i * 31 % 14) * 86400"),
            line_break="char(10)" if dialect == "sqlite" else "chr(10)",
        )
        if dialect == "postgresql":
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.execute(text(sql.replace(":", r"\:")))
        for after in range(0, number, _WRITTEN_AT_ONCE):
            write_words(connection, after)
    if dialect == "postgresql":
        with database.read() as connection:  # what a server does by itself, later
            connection.exec_driver_sql("SET statement_timeout = 0")
            connection.exec_driver_sql("VACUUM (ANALYZE) orders, order_events, order_words")


def write_words(connection: Connection, after: int) -> None:
    """Write the search words of some orders: those after an id."""
    texts = select(orders.c.id, *(orders.c[name] for name in SEARCHED))
    some = texts.where(orders.c.id > after, orders.c.id <= after + _WRITTEN_AT_ONCE)
    rows = [
        (order_id, word)
        for order_id, *found in connection.execute(some).fetchall()
        for word in search_words(found)
    ]
    if connection.dialect.name == "postgresql":
        copy_into(driver_of(connection), order_words, rows)
    else:
        driver_of(connection).executemany("INSERT INTO order_words VALUES (?, ?)", rows)


def day(number: float) -> datetime:
    return BEGIN + timedelta(days=number)


PENDING, CANCELLED = (Status.PENDING,), (Status.CANCELLED,)
NOT_SHIPPED = (Status.PENDING, Status.CANCELLED)
MIXES = {
    "all": Filters(),
    "pending": Filters(PENDING),
    "not shipped": Filters(NOT_SHIPPED),
    "pending, dated": Filters(PENDING, dated=True),
    "pending, without a date": Filters(PENDING, dated=False),
    "not shipped, without a date": Filters(NOT_SHIPPED, dated=False),
    "without a date, an old pet": Filters(dated=False, pet_id=OLD_PET),
    "a common pet": Filters(pet_id=COMMON_PET),
    "an old pet": Filters(pet_id=OLD_PET),
    "a rare pet": Filters(pet_id=RARE_PET),
    "no such pet": Filters(pet_id=10**9),
    "a rare reference": Filters(reference="R-7"),
    "an old reference": Filters(reference="web"),
    "an old pet, pending": Filters(PENDING, pet_id=OLD_PET),
    "an old pet, cancelled": Filters(CANCELLED, pet_id=OLD_PET),
    "an old pet and reference": Filters(pet_id=OLD_PET, reference="web"),
    "an old reference, pending": Filters(PENDING, reference="web"),
    "an old reference, placed since": Filters(reference="web", placed_from=day(500)),
    "a common pet, an old reference": Filters(pet_id=COMMON_PET, reference="web"),
    "search: a number": Filters(search="#500000"),
    "search: a rare reference": Filters(search="r-777"),
    "search: how a third begin": Filters(search="r-"),
    "search: how an old one begins": Filters(search="WE"),
    "search: a word of every order": Filters(search="koln"),
    "search: an old word": Filters(search="LEASH"),
    "search: an old word, pending": Filters(PENDING, search="leash"),
    "search: a name": Filters(search="wong77"),
    "search: how all names begin": Filters(search="Mia W"),
    "search: pending, an old pet": Filters(PENDING, pet_id=OLD_PET, search="r-1"),
    "changed in the last week": Filters(updated_from=day(DAYS - 7)),
    "changed late, ships early": Filters(updated_from=day(300), ships_before=day(300)),
    "placed in the last week": Filters(placed_from=day(DAYS - 7)),
    "placed in the first week": Filters(placed_before=day(7)),
    "placed in the second year": Filters(placed_from=day(365)),
    "ships in the last week": Filters(ships_from=day(DAYS)),
    "ships in the far future": Filters(ships_from=day(5_000)),
    "ships in the first quarter": Filters(ships_before=day(180)),
    "ships in the last quarter": Filters(ships_from=day(550)),
    "placed late, ships early": Filters(placed_from=day(300), ships_before=day(300)),
    "cancelled, ships late": Filters(CANCELLED, ships_from=day(600)),
    "an old pet, ships late": Filters(pet_id=OLD_PET, ships_from=day(400)),
    "all filters": Filters(
        NOT_SHIPPED, OLD_PET, "web", day(100), day(600), ships_from=day(50), ships_before=day(700)
    ),
}
# A word or a prefix that many orders have, where the first orders of the walk have it not. Nothing
# in the console or the docs asks for these: a second is allowed.
HARD_MIXES = {
    "search: two letters": Filters(search="le"),
    "search: two letters, placed since": Filters(search="we", placed_from=day(500)),
    "search: two letters, ships late": Filters(search="we", ships_from=day(400)),
    "search: two letters, updated": Filters(search="we", updated_from=day(430)),
    "search: an old word, shipped": Filters((Status.SHIPPED,), search="leash"),
    "search: a late word, placed before": Filters(search="red", placed_before=day(300)),
}


def queries(filters: Filters, sort: Sort, number: int) -> Iterator[PageQuery]:
    """Return the pages of a mix: the first, and one that begins in the middle of the store."""
    yield PageQuery(filters, sort, SIZE)
    key = None if sort.by is SortBy.ID else day(DAYS / 2)
    yield PageQuery(filters, sort, SIZE, Position(key, number // 2))


def server_process(database: Database) -> int | None:
    """Return the process that serves this thread's connection, None where there is none."""
    if not database.where.startswith("postgresql"):
        return None
    # The processes that share its work would not be counted.
    alone = "set_config('max_parallel_workers_per_gather', '0', false)"
    ((process, _),) = database.fetch_all(Query(text(f"SELECT pg_backend_pid(), {alone}")))
    return int(process)


def spent(server: int | None) -> float:
    """Return the milliseconds of a processor that this process has spent, and a server's."""
    of_server = Path(f"/proc/{server}/schedstat").read_text("ascii") if server else "0"
    return time.process_time() * 1e3 + int(of_server.split()[0]) / 1e6


def milliseconds(database: Database, query: PageQuery, rounds: int) -> list[float]:
    server, taken = server_process(database), []
    for _ in range(rounds):
        began = spent(server)
        read_page(database, query)
        taken.append(spent(server) - began)
    return taken


def measure(database: Database, mixes: Mapping[str, Filters], number: int, rounds: int) -> float:
    """Print a line for each mix and sort; return the milliseconds of the worst page's median."""
    print(f"{'filters':32} {'sort':12} {'worst':>8} {'median':>8}  ms")
    medians = []
    for name, filters in mixes.items():
        for sort in (Sort(by, down) for by in SortBy for down in (False, True)):
            pages = [
                milliseconds(database, query, rounds) for query in queries(filters, sort, number)
            ]
            medians.append(max(map(statistics.median, pages)))
            sign = "-" if sort.descending else ""
            worst = max(map(max, pages))
            print(f"{name:32} {sign + sort.by.value:12} {worst:8.2f} {medians[-1]:8.2f}")
    print(f"median of all mixes {statistics.median(medians):.2f} ms, worst {max(medians):.2f} ms")
    return max(medians)


@contextlib.contextmanager
def settings_for(kind: str, folder: Path) -> Iterator[Settings]:
    """Return settings of a new store, on a PostgreSQL server of its own if that is wanted."""
    if kind == "sqlite":
        yield Settings(instance=folder)
        return
    server = Postgres(memory="128MB")  # as it is by default
    try:
        yield Settings(instance=folder, database_url=server.url(server.create()))
    finally:
        server.remove()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pages", description=__doc__)
    parser.add_argument("--orders", type=int, default=1_000_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        settings_for(arguments.database, Path(folder)) as settings,
    ):
        database, upkeep = database_of(settings, 1)
        upkeep.create()
        fill(database, arguments.orders)
        worst = measure(database, MIXES, arguments.orders, arguments.rounds)
        of_hard = measure(database, HARD_MIXES, arguments.orders, arguments.rounds)
        database.close()
    return int(worst > MOST_MILLISECONDS or of_hard > MOST_OF_HARD)


if __name__ == "__main__":
    sys.exit(main())
