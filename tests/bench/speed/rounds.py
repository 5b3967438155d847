"""Measures works: every lane in turn, round after round, so that all lanes see the same machine.

All servers of a work run at the same time; those whose turn it is not are idle.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from urllib3.exceptions import HTTPError

from tests.bench.speed import wrk
from tests.bench.speed.contestants import Contestant
from tests.bench.speed.measures import Figures, Setting, WrongAnswer
from tests.bench.speed.stocks import Ask, Stocks
from tests.bench.speed.works import Goal, Lane, Work

_WARM_UP_SECONDS = 0.5
# What ends the measuring of one contestant, and not of the others.
_FAILURES = (WrongAnswer, wrk.WrkFailed, OSError, HTTPError)


@dataclass
class Outcome:
    """The figures of a work: for each lane, those of each round.

    `left_out` are the lanes that could not be measured, with the reason.
    """

    work: Work
    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    # Those of them that were begun.
    failed: set[str] = field(default_factory=set)

    def median(self, lane: str, figure: str) -> float | None:
        """Return the median of a figure over the rounds; None where it was not measured."""
        measured = [figures[figure] for figures in self.rounds.get(lane, []) if figure in figures]
        return statistics.median(measured) if measured else None

    def medians(self, lane: str) -> Figures:
        """Return the medians of all figures of a lane."""
        names = self.rounds[lane][0] if self.rounds.get(lane) else ()
        return {name: self.median(lane, name) or 0.0 for name in names}

    def value(self, goal: Goal) -> float | None:
        """Return a goal's figure or ratio; None where it was not measured."""
        value = self.median(goal.lane, goal.figure)
        if goal.of is None or value is None:
            return value
        other = self.median(*goal.of)
        return value / other if other else None

    @property
    def wrong(self) -> int:
        """How many answers of the service were wrong; a lane that failed is one."""
        ours = {each.name for each in self.work.lanes if each.server is None or each.server.is_ours}
        wrong = [figures.get("wrong", 0) for name in ours for figures in self.rounds.get(name, [])]
        return int(sum(wrong)) + len(ours & self.failed)


@dataclass
class Course:
    """A run over works."""

    stocks: Stocks
    rounds: int
    seconds: float
    status: Callable[[str], None]

    def measure(self, work: Work) -> Outcome:
        """Measure all lanes of a work."""
        outcome = Outcome(work)
        lanes = list(self._able(work, outcome))
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            settings = self._settings(lanes, Path(folder), stack, outcome)
            if self.rounds > 1:
                self._warm_up(lanes, settings, outcome)
            for number in range(1, self.rounds + 1):
                for lane, setting in zip(lanes, settings, strict=True):
                    self.status(f"{work.title}: {lane.name}, round {number} of {self.rounds}")
                    self._measure_once(lane, setting, outcome)
        return outcome

    def _measure_once(self, lane: Lane, setting: Setting, outcome: Outcome) -> None:
        if lane.name in outcome.left_out:
            return
        try:
            outcome.rounds.setdefault(lane.name, []).append(lane.measure(setting))
        except _FAILURES as error:
            # The others are measured all the same.
            outcome.left_out[lane.name] = f"{type(error).__name__}: {error}"
            outcome.failed |= {lane.name}
            del outcome.rounds[lane.name]

    def _warm_up(self, lanes: list[Lane], settings: list[Setting], outcome: Outcome) -> None:
        # First requests open connections and load code.
        for lane, setting in zip(lanes, settings, strict=True):
            if lane.server is not None and lane.name not in outcome.left_out:
                self.status(f"Warming up {lane.name}")
                brief = replace(setting, seconds=min(_WARM_UP_SECONDS, self.seconds))
                with contextlib.suppress(*_FAILURES):
                    lane.measure(brief)

    def _able(self, work: Work, outcome: Outcome) -> Iterator[Lane]:
        for lane in work.lanes:
            reason = lane.server.missing() if lane.server else None
            if reason is None:
                yield lane
            else:
                outcome.left_out[lane.name] = reason

    def _settings(
        self, lanes: list[Lane], folder: Path, stack: contextlib.ExitStack, outcome: Outcome
    ) -> list[Setting]:
        servers: dict[tuple[type[Contestant], Ask], Contestant] = {}
        settings = []
        for lane in lanes:
            stock = self.stocks.get(lane.stock)
            target = None
            if lane.server is not None:
                self.status(f"Starting {lane.server.name} with {stock.count:,} orders")
                target = servers.get((lane.server, lane.stock))
                if target is None:
                    own = folder / f"{len(servers)}"
                    own.mkdir()
                    target = servers[lane.server, lane.stock] = lane.server(stock, own)
                    stack.callback(target.stop)
            settings.append(Setting(stock, folder, self.seconds, self.stocks.empty, target))
        for server in servers.values():
            try:
                server.wait()
            except RuntimeError as error:
                if server.is_ours:
                    raise
                outcome.left_out[server.name] = str(error)
            else:
                server.settle()
        return settings
