"""The works: what is measured, who takes part, and the goals. All of it data.

A work has lanes, which are measured in turn in every round; a goal compares a figure of one lane
with a bound, or with a figure of another lane of the same work. To add a work, add it to `works`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.bench.speed.contestants import Contestant, StoreOrders
from tests.bench.speed.measures import (
    FromTheStart,
    Measure,
    UnderLoad,
    changed_list,
    exported,
    exported_plainly,
    imported,
    imported_plainly,
    sqlite_alone,
    whole_list,
)
from tests.bench.speed.peers.all import (
    EVERYBODY,
    BareFlask,
    BareFlaskLoop,
    BareFlaskOne,
    FastApi,
    JsonServer,
    PlainStack,
)
from tests.bench.speed.stocks import Ask
from tests.bench.speed.wrk import CLIENTS


@dataclass(frozen=True)
class Lane:
    """One side of a comparison. Without a server, the measure starts what it needs."""

    name: str
    measure: Measure
    stock: Ask
    server: type[Contestant] | None = StoreOrders


@dataclass(frozen=True)
class Goal:
    """A figure of a lane, or its ratio to another, that should reach a bound.

    `of` is the lane and the figure to divide by. `stretch` would be better still.
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
    """A kind of work, which is a section of the document."""

    name: str
    title: str
    lanes: tuple[Lane, ...]
    goals: tuple[Goal, ...] = ()
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
# Only to see that it works: its figures mean nothing.
SHORT = Sizes(20, 200, 2_000, 2_000, 2_000, (200, 2_000))

OURS = StoreOrders.name
RATE = "requests_per_second"
_CROWD = f"{OURS}, 128 clients"
# The cost of an order, or of a request, should not grow with the number of orders.
_GROWS_AT_MOST = 1.3


def works(sizes: Sizes) -> tuple[Work, ...]:
    """Return all works, with stocks of these sizes."""
    return (
        *_lists(sizes),
        *_long_lists(sizes),
        *_short_answers(sizes),
        _write("place", "placeOrder, durable", 201, Ask(sizes.few)),
        _write("cancel", "cancelOrder, durable", 204, Ask(sizes.to_cancel, all_pending=True)),
        *_large_stores(sizes),
        _growth(sizes.growth),
    )


def _lists(sizes: Sizes) -> tuple[Work, ...]:
    few, many, listing = Ask(sizes.few), Ask(sizes.many), UnderLoad("list", 200)
    return (
        Work(
            "list-few",
            f"listOrders, {sizes.few:,} orders",
            _each(EVERYBODY, listing, few),
            (
                _faster_than(BareFlask, 1.05, stretch=1.3),
                _faster_than(BareFlaskLoop, 0.5),
                _faster_than(PlainStack, 5.5),
                _faster_than(FastApi, 8),
                _faster_than(JsonServer, 1.3),
            ),
        ),
        Work(
            "list-many",
            f"listOrders, {sizes.many:,} orders, nothing changes",
            _each((StoreOrders, PlainStack, FastApi, JsonServer), listing, many),
            (
                _faster_than(PlainStack, 80),
                _faster_than(FastApi, 80),
                _faster_than(JsonServer, 4),
            ),
        ),
    )


def _long_lists(sizes: Sizes) -> tuple[Work, ...]:
    many, large, sqlite = Ask(sizes.many), Ask(sizes.large), "SQLite's json_group_array"
    return (
        Work(
            "list-changed",
            f"listOrders, {sizes.many:,} orders, a change between any two",
            _each((StoreOrders, PlainStack, FastApi), changed_list, many),
            (_faster_than(PlainStack, 40), _faster_than(FastApi, 40)),
            note="One client; an order is placed or cancelled before each list. Only the lists' "
            "time counts, and requests/s is 1 / their median.",
        ),
        Work(
            "list-large",
            f"listOrders, {sizes.large:,} orders, one client",
            (Lane(OURS, whole_list, large), Lane(sqlite, sqlite_alone, large, None)),
            (
                Goal(OURS, "seconds", at_most=1.25, of=(sqlite, "seconds")),
                Goal(OURS, "first_byte_ms", at_most=30),
                Goal(OURS, "grown_mib", at_most=20),
            ),
        ),
    )


_BESIDE_GET = (
    StoreOrders,
    BareFlask,
    BareFlaskOne,
    BareFlaskLoop,
    PlainStack,
    FastApi,
)


def _short_answers(sizes: Sizes) -> tuple[Work, ...]:
    few, getting = Ask(sizes.few), UnderLoad("get", 200)
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
                *_each(_BESIDE_GET, getting, few),
                Lane(_CROWD, UnderLoad("get", 200, clients=128), few),
            ),
            (
                _faster_than(BareFlask, 1),
                Goal(_CROWD, "p99_ms", at_most=3, of=(_CROWD, "p50_ms")),
            ),
        ),
        Work(
            "refusals",
            "Refusing",
            (get, *refusals),
            tuple(Goal(each.name, RATE, at_least=1.0, of=("getOrder", RATE)) for each in refusals),
            note="429 is rate_limit_exceeded: nobody is banned here (ORDERS_BAN_AFTER is high), "
            "and the free plan, which counts requests without a valid key, has large figures.",
        ),
    )


def _large_stores(sizes: Sizes) -> tuple[Work, ...]:
    large, moved, getting = Ask(sizes.large), Ask(sizes.moved), UnderLoad("get", 200)
    # The first order is what the first answer shows.
    empty = Ask(1)
    alone, beside = "getOrder alone", "getOrder beside a large list"
    return (
        Work(
            "beside",
            f"getOrder while two clients read the list of {sizes.large:,} over and over",
            (
                Lane(alone, getting, large),
                Lane(beside, UnderLoad("get", 200, list_readers=2), large),
            ),
            (Goal(beside, "p99_ms", at_most=2.5, of=(alone, "p99_ms")),),
        ),
        Work(
            "start",
            "Start to first answer, and one client that places orders from then on",
            (
                Lane("start", FromTheStart(StoreOrders), empty, None),
                Lane(f"start, {sizes.large:,} orders", FromTheStart(StoreOrders), large, None),
                Lane(PlainStack.name, FromTheStart(PlainStack), empty, None),
            ),
            (
                Goal("start", "seconds", at_most=1.2, of=(PlainStack.name, "seconds")),
                Goal("start", "megabytes", at_most=65),
                Goal("start", "p99_ms", at_most=4, of=("start", "p50_ms")),
            ),
        ),
        Work(
            "files",
            f"Import and export of {sizes.moved:,} orders",
            (
                Lane("import", imported, moved, None),
                Lane("a plain loop of executemany", imported_plainly, moved, None),
                Lane("export", exported, moved, None),
                Lane("a plain loop of csv", exported_plainly, moved, None),
            ),
            (
                _as_fast_as("a plain loop of executemany", "import"),
                _as_fast_as("a plain loop of csv", "export"),
            ),
            note="The whole command from a CSV file into an empty store, and to a CSV file.",
        ),
    )


_REFUSALS = (
    ("401 without a key", "no_key", 401),
    ("401, unknown key", "unknown_key", 401),
    ("404, no such order", "no_order", 404),
    ("404, no such path", "no_path", 404),
    ("429, over the limit", "over_limit", 429),
)


def _each(who: Iterable[type[Contestant]], measure: Measure, stock: Ask) -> tuple[Lane, ...]:
    return tuple(Lane(each.name, measure, stock, each) for each in who)


def _faster_than(contestant: type[Contestant], at_least: float, **more: float) -> Goal:
    return Goal(OURS, RATE, at_least=at_least, of=(contestant.name, RATE), **more)


def _as_cheap_as(other: str, lane: str, at_most: float, figure: str = "request_us") -> Goal:
    return Goal(lane, figure, at_most=at_most, of=(other, figure))


def _as_fast_as(plain: str, lane: str) -> Goal:
    return Goal(lane, "rows_per_second", at_least=0.8, of=(plain, "rows_per_second"))


def _write(what: str, title: str, status: int, stock: Ask) -> Work:
    return Work(
        what,
        f"{title}, {CLIENTS} clients",
        _each((StoreOrders, PlainStack, FastApi), UnderLoad(what, status), stock),
        (
            _faster_than(PlainStack, 3.2),
            Goal(OURS, "p99_ms", at_most=3, of=(OURS, "p50_ms")),
            Goal(OURS, "connections", at_most=2 * CLIENTS),
        ),
        note="All with WAL and synchronous=FULL. Connections are those that the machine accepted "
        f"meanwhile; {CLIENTS} clients that are kept take {CLIENTS}, and wrk tries one before.",
    )


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
    first, last = counts[0], counts[-1]
    goals = [
        _as_cheap_as(f"{name}, {first:,}", f"{name}, {last:,}", _GROWS_AT_MOST, figure)
        for name, (_, figure) in kinds.items()
    ]
    return Work("growth", "How cost grows with the number of orders", tuple(lanes), tuple(goals))
