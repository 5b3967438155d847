"""The works: what is measured, who takes part, and the goals. All of it data.

A work has lanes, which are measured in turn in every round; a goal compares a figure of one lane
with a bound, or with a figure of another lane of the same work. To add a work, add it to `works`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.contestants import (
    EVERYBODY,
    BareFlask,
    Contestant,
    FastApi,
    JsonServer,
    PlainStack,
    StoreOrders,
)
from tests.bench.measures import (
    Measure,
    UnderLoad,
    changed_list,
    exported,
    exported_plainly,
    from_the_start,
    imported,
    imported_plainly,
    sqlite_alone,
    whole_list,
)
from tests.bench.stocks import Ask
from tests.bench.wrk import CLIENTS


@dataclass(frozen=True)
class Lane:
    """One side of a comparison. Without a server, the measure starts what it needs."""

    name: str
    measure: Measure
    stock: Ask
    server: type[Contestant] | None = StoreOrders


@dataclass(frozen=True)
class Goal:
    """A figure of a lane that should reach a bound, or its ratio to `of`: a lane and its figure."""

    lane: str
    figure: str
    at_least: float = 0.0
    at_most: float | None = None
    of: tuple[str, str] | None = None

    def is_reached(self, value: float) -> bool:
        return value >= self.at_least and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Work:
    """A kind of work, by its name on the command line and its title."""

    name: str
    title: str
    lanes: tuple[Lane, ...]
    goals: tuple[Goal, ...] = ()


@dataclass(frozen=True)
class Sizes:
    """How many orders there are in the stocks."""

    few: int = 20
    many: int = 2_000
    large: int = 300_000
    moved: int = 200_000
    to_cancel: int = 100_000
    growth: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)


FULL = Sizes()
# Only to check that it runs: its figures mean nothing.
SHORT = Sizes(20, 200, 2_000, 2_000, 2_000, (200, 2_000))

OURS = StoreOrders.name
RATE = "requests_per_second"
WITH_DATABASE = (StoreOrders, PlainStack, FastApi)
# The cost of an order, or of a request, should not grow with the number of orders.
_GROWS_AT_MOST = 1.3
_REFUSALS = (
    ("401 without a key", "no_key", 401),
    ("401, unknown key", "unknown_key", 401),
    ("404, no such order", "no_order", 404),
    ("404, no such path", "no_path", 404),
    # Nobody is banned here, and the free plan has large figures.
    ("429, over the limit", "over_limit", 429),
)


def works(sizes: Sizes) -> tuple[Work, ...]:
    return (
        *_lists(sizes),
        _large_list(sizes),
        *_short_answers(sizes),
        _write("place", 201, Ask(sizes.few), 2.5),
        _write("cancel", 204, Ask(sizes.to_cancel, all_pending=True), 3.2),
        _beside(sizes),
        _start(sizes),
        _files(sizes),
        _growth(sizes.growth),
    )


def _lists(sizes: Sizes) -> tuple[Work, ...]:
    few, many, listing = Ask(sizes.few), Ask(sizes.many), UnderLoad("list", 200)
    title = f"listOrders, {sizes.many:,} orders"
    return (
        Work(
            "list-few",
            f"listOrders, {sizes.few:,} orders",
            _each(EVERYBODY, listing, few),
            _faster_than((BareFlask, 1.05), (PlainStack, 5.5), (FastApi, 8), (JsonServer, 1.3)),
        ),
        Work(
            "list-many",
            f"{title}, nothing changes",
            _each((*WITH_DATABASE, JsonServer), listing, many),
            _faster_than((PlainStack, 80), (FastApi, 80), (JsonServer, 4)),
        ),
        # One client; an order is placed or cancelled before each list, whose time alone counts.
        Work(
            "list-changed",
            f"{title}, a change between any two",
            _each(WITH_DATABASE, changed_list, many),
            _faster_than((PlainStack, 20), (FastApi, 40)),
        ),
    )


def _large_list(sizes: Sizes) -> Work:
    large, sqlite = Ask(sizes.large), "SQLite's json_group_array"
    return Work(
        "list-large",
        f"listOrders, {sizes.large:,} orders, one client",
        (Lane(OURS, whole_list, large), Lane(sqlite, sqlite_alone, large, None)),
        (
            Goal(OURS, "seconds", at_most=1.25, of=(sqlite, "seconds")),
            Goal(OURS, "first_byte_ms", at_most=30),
            Goal(OURS, "grown_mib", at_most=20),
        ),
    )


def _short_answers(sizes: Sizes) -> tuple[Work, ...]:
    few, getting, crowd = Ask(sizes.few), UnderLoad("get", 200), f"{OURS}, 128 clients"
    get = Lane("getOrder", getting, few)
    unchanged = [
        Lane(f"304, {count:,} orders", UnderLoad("unchanged", 304), Ask(count))
        for count in (sizes.few, sizes.many, sizes.large)
    ]
    refusals = [Lane(name, UnderLoad(what, status), few) for name, what, status in _REFUSALS]
    return (
        Work(
            "unchanged",
            "listOrders unchanged, If-None-Match",
            (*unchanged, get),
            tuple(_as_cheap_as("getOrder", lane.name, 1.2) for lane in unchanged),
        ),
        Work(
            "get",
            "getOrder",
            (
                *_each((StoreOrders, BareFlask, PlainStack, FastApi), getting, few),
                Lane(crowd, UnderLoad("get", 200, clients=128), few),
            ),
            (*_faster_than((BareFlask, 1)), _steady(crowd, 3)),
        ),
        Work(
            "refusals",
            "Refusing",
            (get, *refusals),
            tuple(Goal(each.name, RATE, at_least=1.0, of=("getOrder", RATE)) for each in refusals),
        ),
    )


def _write(what: str, status: int, stock: Ask, times: float) -> Work:
    # Clients that are kept take a connection each, and wrk tries one before.
    connections = Goal(OURS, "connections", at_most=2 * CLIENTS)
    return Work(
        what,
        f"{what}Order, durable, {CLIENTS} clients",
        _each(WITH_DATABASE, UnderLoad(what, status), stock),
        (*_faster_than((PlainStack, times)), _steady(OURS, 3), connections),
    )


def _beside(sizes: Sizes) -> Work:
    large, alone, beside = Ask(sizes.large), "getOrder alone", "getOrder beside a large list"
    return Work(
        "beside",
        f"getOrder while two clients read the list of {sizes.large:,} over and over",
        (
            Lane(alone, UnderLoad("get", 200), large),
            Lane(beside, UnderLoad("get", 200, list_readers=2), large),
        ),
        (Goal(beside, "p99_ms", at_most=2.5, of=(alone, "p99_ms")),),
    )


def _start(sizes: Sizes) -> Work:
    # The first order is what the first answer shows.
    empty, plain = Ask(1), PlainStack.name
    return Work(
        "start",
        "Start to first answer, and one client that places orders from then on",
        (
            Lane("start", from_the_start(StoreOrders), empty, None),
            Lane(f"start, {sizes.large:,}", from_the_start(StoreOrders), Ask(sizes.large), None),
            Lane(plain, from_the_start(PlainStack), empty, None),
        ),
        (
            Goal("start", "seconds", at_most=1.2, of=(plain, "seconds")),
            Goal("start", "megabytes", at_most=65),
            _steady("start", 4),
        ),
    )


def _files(sizes: Sizes) -> Work:
    plain = {
        "import": (imported, "a plain loop of executemany", imported_plainly),
        "export": (exported, "a plain loop of csv", exported_plainly),
    }
    rate, lanes, goals = "rows_per_second", [], []
    for name, (measure, other, plainly) in plain.items():
        lanes += [
            Lane(each, how, Ask(sizes.moved), None)
            for each, how in ((name, measure), (other, plainly))
        ]
        goals.append(Goal(name, rate, at_least=0.8, of=(other, rate)))
    return Work("files", f"Import and export of {sizes.moved:,} orders", tuple(lanes), tuple(goals))


def _growth(counts: tuple[int, ...]) -> Work:
    kinds: dict[str, tuple[Measure, str]] = {
        "listOrders": (whole_list, "order_us"),
        "304": (UnderLoad("unchanged", 304), "request_us"),
        "getOrder": (UnderLoad("get", 200), "request_us"),
        "placeOrder": (UnderLoad("place", 201), "request_us"),
    }
    lanes = [
        Lane(f"{name}, {count:,}", measure, Ask(count))
        for count in counts
        for name, (measure, _) in kinds.items()
    ]
    goals = [
        _as_cheap_as(f"{name}, {counts[0]:,}", f"{name}, {counts[-1]:,}", _GROWS_AT_MOST, figure)
        for name, (_, figure) in kinds.items()
    ]
    return Work("growth", "How cost grows with the number of orders", tuple(lanes), tuple(goals))


def _each(who: tuple[type[Contestant], ...], measure: Measure, stock: Ask) -> tuple[Lane, ...]:
    return tuple(Lane(each.name, measure, stock, each) for each in who)


def _faster_than(*others: tuple[type[Contestant], float]) -> tuple[Goal, ...]:
    return tuple(Goal(OURS, RATE, at_least=least, of=(each.name, RATE)) for each, least in others)


def _as_cheap_as(other: str, lane: str, at_most: float, figure: str = "request_us") -> Goal:
    return Goal(lane, figure, at_most=at_most, of=(other, figure))


def _steady(lane: str, at_most: float) -> Goal:
    return Goal(lane, "p99_ms", at_most=at_most, of=(lane, "p50_ms"))
