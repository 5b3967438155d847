"""Requests, counted as cheaply as can be: one addition for each, in one place.

The library's own counters and histograms take a lock for each of three sums, and look through all
bounds, which costs each request some microseconds more. What is counted here is told in their form.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

# In seconds, from what most answers take to what nobody waits for.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# A version, an operation, a method, a status.
Labels = tuple[str, str, str, str]


class Tally:
    """How many answers of one kind there were up to each bound and beyond the last; their time."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        """Begin with none."""
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0


class Tallies(Collector):
    """The tallies of all kinds of answers. Safe to use from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._tallies: dict[Labels, Tally] = {}
        registry.register(self)

    def of(self, labels: Labels) -> Tally:
        """Return the tally of a kind of answers."""
        with self._lock:
            return self._tallies.setdefault(labels, Tally())

    def add(self, tally: Tally, seconds: float) -> None:
        """Count an answer that took so long."""
        bucket = bisect_left(BOUNDS, seconds)
        with self._lock:
            tally.counts[bucket] += 1
            tally.seconds += seconds

    def describe(self) -> list[Metric]:
        """Name nothing beforehand."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return how many answers of each kind there were, and how long operations took."""
        requests = CounterMetricFamily(
            "store_orders_http_requests",
            "Requests answered.",
            labels=("version", "operation", "method", "status"),
        )
        together: dict[tuple[str, str], Tally] = {}
        with self._lock:
            for labels, tally in self._tallies.items():
                requests.add_metric(labels, sum(tally.counts))
                _add_up(together.setdefault(labels[:2], Tally()), tally)
        yield requests
        yield _histogram(together)


def _add_up(total: Tally, tally: Tally) -> None:
    total.counts = [one + other for one, other in zip(total.counts, tally.counts, strict=True)]
    total.seconds += tally.seconds


def _histogram(tallies: dict[tuple[str, str], Tally]) -> Metric:
    family = HistogramMetricFamily(
        "store_orders_http_request_duration_seconds",
        "From a request's turn to its answer's last byte handed over.",
        labels=("version", "operation"),
    )
    for labels, tally in tallies.items():
        family.add_metric(labels, list(_buckets(tally)), tally.seconds)
    return family


def _buckets(tally: Tally) -> Iterator[tuple[str, float]]:
    so_far = 0
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), tally.counts, strict=True):
        so_far += count
        yield bound, so_far
