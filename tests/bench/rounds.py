"""Measures works: every lane in turn, round after round, so that all lanes see the same machine.

All servers of a work run at the same time; those whose turn it is not are idle.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from urllib3.exceptions import HTTPError

from tests.bench import wrk
from tests.bench.contestants import Contestant, StoreOrders
from tests.bench.measures import Figures, Setting, WrongAnswer
from tests.bench.stocks import Ask, Stocks
from tests.bench.works import Lane, Work

_WARM_UP_SECONDS = 0.5
# Errors that end the measuring of one contestant, and not of the others.
_FAILURES = (WrongAnswer, wrk.WrkFailed, OSError, HTTPError)


@dataclass
class Course:
    """A run over works."""

    stocks: Stocks
    rounds: int
    seconds: float
    status: Callable[[str], None]
    # Answers of the service that were wrong; a lane of its that failed is one.
    wrong: int = 0

    def measure(self, work: Work) -> dict[str, Any]:
        """Measure all lanes of a work; return their figures, and who was left out, and why."""
        figures: dict[str, list[Figures]] = {}
        left_out: dict[str, str] = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            settings = self._start(work, Path(folder), stack, left_out)
            for number in range(1 if self.rounds == 1 else 0, self.rounds + 1):
                for lane, setting in settings:
                    self.status(f"{work.title}: {lane.name}, round {number} of {self.rounds}")
                    if lane.name not in left_out and (number or lane.server):
                        self._measure_once(lane, setting, number, figures, left_out)
        return {
            "title": work.title,
            "lanes": {name: _with_medians(rounds) for name, rounds in figures.items()},
            "left_out": left_out,
        }

    def _measure_once(
        self,
        lane: Lane,
        setting: Setting,
        number: int,
        figures: dict[str, list[Figures]],
        left_out: dict[str, str],
    ) -> None:
        is_ours = lane.server in (None, StoreOrders)
        try:
            if number == 0:
                # First requests open connections and load code.
                lane.measure(replace(setting, seconds=min(_WARM_UP_SECONDS, self.seconds)))
                return
            found = lane.measure(setting)
            figures.setdefault(lane.name, []).append(found)
            self.wrong += int(found.get("wrong", 0)) if is_ours else 0
        except _FAILURES as error:
            # The others are measured all the same.
            left_out[lane.name] = f"{type(error).__name__}: {error}"
            figures.pop(lane.name, None)
            self.wrong += is_ours

    def _start(
        self, work: Work, folder: Path, stack: contextlib.ExitStack, left_out: dict[str, str]
    ) -> list[tuple[Lane, Setting]]:
        """Start all servers of a work; return the lanes that can be measured."""
        servers: dict[tuple[type[Contestant], Ask], Contestant] = {}
        settings = []
        for lane in work.lanes:
            if reason := lane.server.missing() if lane.server else None:
                left_out[lane.name] = reason
                continue
            stock, target = self.stocks.get(lane.stock), None
            if lane.server is not None:
                self.status(f"Starting {lane.server.name} with {stock.count:,} orders")
                target = servers.get((lane.server, lane.stock))
                if target is None:
                    own = folder / f"{len(servers)}"
                    own.mkdir()
                    target = servers[lane.server, lane.stock] = lane.server(stock, own)
                    stack.callback(target.stop)
            settings.append((lane, Setting(stock, folder, self.seconds, self.stocks.empty, target)))
        for server in servers.values():
            server.wait()
            server.settle()
        return settings


def _with_medians(rounds: list[Figures]) -> dict[str, Any]:
    median = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    return {"median": median, "rounds": rounds}
