"""The orders of the contestants: the same ones for each, made once for each number of them.

They are those of a year of a shop, without the cancelled ones: a stock of 20 is a list of 20.
"""

from __future__ import annotations

import csv
import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orders import apikeys
from orders.domain import Status
from tests.support import year
from tests.support.service import environment_for, run_flask

_STATUS = year.COLUMNS.index("status")
# About one order in sixteen is cancelled.
_SPARE = 1.2
_PLENTY = ("--per-minute", "100000000", "--per-day", "1000000000")
_NEARLY_NOTHING = ("--per-minute", "1", "--per-day", "1")
# Requests without a valid key count against the free plan, which must not be what is measured.
_CONFIG = "[plans.free]\nper_minute = 100000000\nper_day = 1000000000\n"


@dataclass(frozen=True)
class Keys:
    """API keys: one without a limit, one with a single request, one that nobody issued."""

    good: str
    spent: str
    unknown: str


@dataclass(frozen=True)
class Ask:
    """Which stock: how many orders, and whether all are pending, so that they can be cancelled."""

    count: int
    all_pending: bool = False


class Stock:
    """So many orders: as a file, as an instance of the service, as JSON objects."""

    def __init__(self, folder: Path, ask: Ask, seed: int, empty: Path, keys: Keys) -> None:
        """Take a folder to keep them in, and an instance that has the keys and no orders.

        Makes nothing until it is needed.
        """
        self.folder, self.count, self.keys = folder, ask.count, keys
        self._all_pending, self._seed, self._empty = ask.all_pending, seed, empty

    @cached_property
    def file(self) -> Path:
        """The orders as CSV, as `flask orders import` takes them; ids are the numbers of lines."""
        path = self.folder / "orders.csv"
        year.write(path, self._rows())
        return path

    @cached_property
    def instance(self) -> Path:
        target = self.folder / "instance"
        shutil.copytree(self._empty, target)
        _flask(target, "orders", "import", str(self.file))
        return target

    def orders(self) -> Iterator[dict[str, Any]]:
        """Return the orders as version 1 shows them; `shipDate` is None where it is unknown."""
        with self.file.open(encoding="utf-8", newline="") as opened:
            for number, row in enumerate(csv.DictReader(opened), start=1):
                yield {
                    "id": number,
                    "petId": int(row["petId"]),
                    "quantity": int(row["quantity"]),
                    "shipDate": row["shipDate"] or None,
                    "complete": row["status"] == Status.SHIPPED,
                }

    def _rows(self) -> Iterator[tuple[object, ...]]:
        rows = year.rows(int(self.count * _SPARE) + 20, self._seed)
        kept = (row for row in rows if row[_STATUS] != Status.CANCELLED)
        for row in itertools.islice(kept, self.count):
            status = Status.PENDING if self._all_pending else row[_STATUS]
            yield (*row[:_STATUS], status, *row[_STATUS + 1 :])


class Stocks:
    """All stocks of a run, each made when it is first needed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._made: dict[Ask, Stock] = {}

    def get(self, ask: Ask) -> Stock:
        if ask not in self._made:
            folder = self._folder / f"{ask.count}{'-pending' if ask.all_pending else ''}"
            folder.mkdir()
            self._made[ask] = Stock(folder, ask, self._seed, self.empty, self._keys)
        return self._made[ask]

    @cached_property
    def empty(self) -> Path:
        _ = self._keys
        return self._folder / "empty"

    @cached_property
    def _keys(self) -> Keys:
        instance = self._folder / "empty"
        instance.mkdir(mode=0o700)
        (instance / "config.toml").write_text(_CONFIG, encoding="utf-8")
        issue = ("keys", "issue", "bench", "--plan", "enterprise")
        good = _flask(instance, *issue, *_PLENTY)
        return Keys(good, _flask(instance, *issue, *_NEARLY_NOTHING), apikeys.generate())


def _flask(instance: Path, *arguments: str) -> str:
    done = run_flask(*arguments, environment=environment_for(instance))
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()
