"""What is measured, who takes part, and what is aimed at. All of it data.

A work has lanes, which are measured in turn in every round; a goal compares a figure of one lane
with a bound, or with a figure of another lane of the same work.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.speed.contestants import Contestant, StoreOrders
from bench.speed.measures import (
    ChangedList,
    Exported,
    FirstAnswer,
    Imported,
    Measure,
    SqliteAlone,
    UnderLoad,
    WholeList,
)
from bench.speed.peers.all import (
    BareFlask,
    BareWaitress,
    Datasette,
    FastApi,
    JsonServer,
    PlainStack,
)
from bench.speed.stocks import Ask
from bench.speed.wrk import CLIENTS


@dataclass(frozen=True)
class Lane:
    """One of the things a work compares. Without a server, the measure starts what it needs."""

    name: str
    measure: Measure
    stock: Ask
    server: type[Contestant] | None = StoreOrders


@dataclass(frozen=True)
class Goal:
    """A figure of a lane, or its ratio to another, that should reach a bound.

    `of` is the lane and the figure to divide by. `stretch` is what would be better still.
    """

    lane: str
    figure: str
    at_least: float | None = None
    at_most: float | None = None
    of: tuple[str, str] | None = None
    stretch: float | None = None

    def is_reached(self, value: float) -> bool:
        """Return whether the value is within the bound."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is None or value <= self.at_most


@dataclass(frozen=True)
class Work:
    """A kind of work. `shown` is the figure that its picture shows, where there is one."""

    name: str
    title: str
    lanes: tuple[Lane, ...]
    goals: tuple[Goal, ...] = ()
    shown: str | None = None
    note: str = ""


@dataclass(frozen=True)
class Sizes:
    """How many orders there are in the stocks."""

    few: int = 20
    many: int = 2_000
    large: int = 300_000
    moved: int = 200_000
    to_cancel: int = 100_000
    growth: tuple[int, ...] = field(default=(1_000, 10_000, 100_000, 1_000_000))


FULL = Sizes()
# Only to see that it works: what is measured so means nothing.
SHORT = Sizes(20, 200, 2_000, 2_000, 2_000, (200, 2_000))

OURS = StoreOrders.name
RATE = "requests_per_second"
# What does not depend on how many orders there are should not cost more with more of them.
_GROWS_AT_MOST = 1.3


def works(sizes: Sizes) -> tuple[Work, ...]:
    """Return all works, with stocks of these sizes."""
    return (
        _list_few(sizes),
        _list_many(sizes),
        _list_changed(sizes),
        _list_large(sizes),
        _unchanged(sizes),
        _get(sizes),
        _write("place", "placeOrder, durable", 201, Ask(sizes.few)),
        _write("cancel", "cancelOrder, durable", 204, Ask(sizes.to_cancel, all_pending=True)),
        _refusals(sizes),
        _beside(sizes),
        _start(sizes),
        _files(sizes),
        _growth(sizes),
    )


def _everybody(what: str, status: int, stock: Ask, *who: type[Contestant]) -> tuple[Lane, ...]:
    measure = UnderLoad(what, status)
    return tuple(Lane(each.name, measure, stock, each) for each in who)


def _times(contestant: type[Contestant], at_least: float, **more: float) -> Goal:
    return Goal(OURS, RATE, at_least=at_least, of=(contestant.name, RATE), **more)


def _list_few(sizes: Sizes) -> Work:
    who = (StoreOrders, BareWaitress, BareFlask, PlainStack, FastApi, JsonServer, Datasette)
    return Work(
        "list-few",
        f"listOrders, {sizes.few:,} orders",
        _everybody("list", 200, Ask(sizes.few), *who),
        (
            _times(BareFlask, 0.55, stretch=0.60),
            _times(PlainStack, 3.2),
            _times(FastApi, 4.5),
            _times(JsonServer, 1.0),
        ),
        shown=RATE,
    )


def _list_many(sizes: Sizes) -> Work:
    return Work(
        "list-many",
        f"listOrders, {sizes.many:,} orders, nothing changes",
        _everybody(
            "list", 200, Ask(sizes.many), StoreOrders, PlainStack, FastApi, JsonServer, Datasette
        ),
        (_times(PlainStack, 50), _times(FastApi, 50), _times(JsonServer, 4)),
        shown=RATE,
    )


def _list_changed(sizes: Sizes) -> Work:
    stock = Ask(sizes.many)
    who = (StoreOrders, PlainStack, FastApi)
    return Work(
        "list-changed",
        f"listOrders, {sizes.many:,} orders, a change between any two",
        tuple(Lane(each.name, ChangedList(), stock, each) for each in who),
        (_times(PlainStack, 20), _times(FastApi, 20)),
        shown=RATE,
        note="One client; an order is placed or cancelled before each list. Only the lists' time "
        "counts, and requests/s is 1 / their median.",
    )


def _list_large(sizes: Sizes) -> Work:
    stock, sqlite = Ask(sizes.large), "SQLite's json_group_array"
    return Work(
        "list-large",
        f"listOrders, {sizes.large:,} orders, one client",
        (Lane(OURS, WholeList(), stock), Lane(sqlite, SqliteAlone(), stock, None)),
        (
            Goal(OURS, "seconds", at_most=1.3, of=(sqlite, "seconds")),
            Goal(OURS, "first_byte_ms", at_most=30),
            Goal(OURS, "grown_mib", at_most=32),
        ),
    )


def _unchanged(sizes: Sizes) -> Work:
    unchanged = UnderLoad("unchanged", 304)
    lengths = (sizes.few, sizes.many, sizes.large)
    lanes = [Lane(f"304, {count:,} orders", unchanged, Ask(count)) for count in lengths]
    goals = [
        Goal(lane.name, "request_us", at_most=1.2, of=("getOrder", "request_us")) for lane in lanes
    ]
    get = Lane("getOrder", UnderLoad("get", 200), Ask(sizes.few))
    return Work(
        "unchanged", "listOrders unchanged, If-None-Match", (*lanes, get), tuple(goals)
    )  # fmt: skip


def _get(sizes: Sizes) -> Work:
    who = (StoreOrders, BareWaitress, BareFlask, PlainStack, FastApi)
    return Work(
        "get",
        "getOrder",
        _everybody("get", 200, Ask(sizes.few), *who),
        (_times(BareFlask, 0.57),),
        shown=RATE,
    )


def _write(what: str, title: str, status: int, stock: Ask) -> Work:
    return Work(
        what,
        f"{title}, {CLIENTS} clients",
        _everybody(what, status, stock, StoreOrders, PlainStack, FastApi),
        (
            _times(PlainStack, 4),
            Goal(OURS, "p99_ms", at_most=10, of=(OURS, "p50_ms")),
            Goal(OURS, "connections", at_most=2 * CLIENTS),
        ),
        shown=RATE,
        note="All with WAL and synchronous=FULL. Connections are those that the machine accepted "
        f"meanwhile; {CLIENTS} clients that are kept take {CLIENTS}, and wrk tries one before.",
    )


def _refusals(sizes: Sizes) -> Work:
    asked = (
        ("401 without a key", "no_key", 401),
        ("401, unknown key", "unknown_key", 401),
        ("404, no such order", "no_order", 404),
        ("404, no such path", "no_path", 404),
        ("429, over the limit", "over_limit", 429),
    )
    stock = Ask(sizes.few)
    lanes = [Lane(name, UnderLoad(what, status), stock) for name, what, status in asked]
    goals = [Goal(lane.name, RATE, at_least=1.0, of=("getOrder", RATE)) for lane in lanes]
    get = Lane("getOrder", UnderLoad("get", 200), stock)
    return Work(
        "refusals",
        "Refusing",
        (get, *lanes),
        tuple(goals),
        note="429 is rate_limit_exceeded: nobody is banned here (ORDERS_BAN_AFTER is high), and "
        "the free plan, which counts requests without a valid key, has large figures.",
    )


def _beside(sizes: Sizes) -> Work:
    stock, alone, beside = Ask(sizes.large), "getOrder alone", "getOrder beside a large list"
    return Work(
        "beside",
        f"getOrder while another client reads the list of {sizes.large:,} over and over",
        (
            Lane(alone, UnderLoad("get", 200), stock),
            Lane(beside, UnderLoad("get", 200, beside_list=True), stock),
        ),
        (Goal(beside, "p99_ms", at_most=3, of=(alone, "p99_ms")),),
    )


def _start(sizes: Sizes) -> Work:
    lane = Lane("start", FirstAnswer(), Ask(sizes.large), None)
    return Work(
        "start",
        f"Start to first answer, {sizes.large:,} orders in the file",
        (lane,),
        (Goal("start", "seconds", at_most=1.5),),
    )


def _files(sizes: Sizes) -> Work:
    stock = Ask(sizes.moved)
    return Work(
        "files",
        f"Import and export of {sizes.moved:,} orders",
        (Lane("import", Imported(), stock, None), Lane("export", Exported(), stock, None)),
        (
            Goal("import", "rows_per_second", at_least=50_000),
            Goal("export", "rows_per_second", at_least=150_000),
        ),
        note="The whole command from a CSV file into an empty store, and to a CSV file.",
    )


def _growth(sizes: Sizes) -> Work:
    kinds = (
        ("listOrders", WholeList()),
        ("304", UnderLoad("unchanged", 304)),
        ("getOrder", UnderLoad("get", 200)),
        ("placeOrder", UnderLoad("place", 201)),
    )
    lanes = [
        Lane(f"{name}, {count:,}", measure, Ask(count))
        for count in sizes.growth
        for name, measure in kinds
    ]
    first, last = sizes.growth[0], sizes.growth[-1]
    goals = [
        Goal(f"listOrders, {last:,}", "order_us", None, 1.3, (f"listOrders, {first:,}", "order_us"))
    ]
    for name, _ in kinds[1:]:
        smallest = (f"{name}, {first:,}", "request_us")
        goals.append(Goal(f"{name}, {last:,}", "request_us", None, _GROWS_AT_MOST, smallest))
    return Work("growth", "How cost grows with the number of orders", tuple(lanes), tuple(goals))
