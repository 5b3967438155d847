"""Power cuts while the store is at work: what was acknowledged must be there.

Everything is the project's own: the connections and pragmas of `orders.store.database.sqlite`, the
use cases of `orders.service` (place with an Idempotency-Key, ship, cancel, import), the migrations,
and, after each cut, the checks of a start. Only the driver is another (`apsw_driver`), so that the
files can be on a `disk` that loses what was not synced. A store goes on from one cut to the next;
some cuts come while the log is copied into the database (a checkpoint). After each, clients repeat
what was not acknowledged. The same with synchronous=NORMAL shows what that would have lost, and
that a loss would be found.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orders.cli.common import progress
from orders.store.database import sqlite
from tests.proofs.core import command
from tests.proofs.power_cut import apsw_driver
from tests.proofs.power_cut.disk import LOSSES, Disk, in_memory
from tests.proofs.power_cut.store_under_cuts import Store

CUTS_OF_A_STORE = 20
SHARE_IN_CHECKPOINT = 0.35
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
# The cut comes at one of so many changes of files, or of pages that checkpoints write.
CHANGES_UNTIL_CUT = 1_500
PAGES_UNTIL_CUT = 150


@dataclass
class Tally:
    """The counts of all cuts under one setting."""

    settings: str = ""
    cuts: int = 0
    acknowledged: int = 0
    lost: int = 0
    cuts_that_lost: int = 0
    damaged: int = 0
    not_once: int = 0
    checkpoints: int = 0
    cuts_in_checkpoint: int = 0


def prove(_: Path, *, cuts: int = 300, seed: int = 1) -> list[str]:
    """Cut under the project's settings and under NORMAL, print the counts; return violations."""
    own_version = sqlite.sqlite_module().sqlite_version
    print(f"SQLite {apsw_driver.sqlite_version} (the service has {own_version})")
    own, normal = (cut_power(cuts, seed, setting) for setting in (None, "NORMAL"))
    print_table([own, normal])
    return command.violated(
        {
            f"{own.lost} changes lost": own.lost,
            f"{own.damaged} databases damaged": own.damaged,
            f"{own.not_once} repeated changes not there once": own.not_once,
            "synchronous=NORMAL lost nothing: a loss would not be found": not normal.lost,
        }
    )


def cut_power(cuts: int, seed: int, synchronous: str | None = None) -> Tally:
    """Cut the power so often, under the project's own settings or another `synchronous`."""
    chance = random.Random(seed)
    with own_driver(synchronous), progress("Cutting", cuts) as advance:
        tally = Tally()
        while tally.cuts < cuts:
            with in_memory() as folder:
                outlive_cuts(folder, min(CUTS_OF_A_STORE, cuts - tally.cuts), chance, tally)
                advance(CUTS_OF_A_STORE)
    return tally


@contextmanager
def own_driver(synchronous: str | None) -> Iterator[None]:
    """Let the store connect through apsw meanwhile, with another `synchronous` if one is named."""
    kept = sqlite.sqlite_module, sqlite.connect

    def connect(path: Path, *, create: bool = False) -> Any:
        connection = kept[1](path, create=create)
        if synchronous:
            connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    sqlite.sqlite_module, sqlite.connect = lambda: apsw_driver, connect
    try:
        yield
    finally:
        sqlite.sqlite_module, sqlite.connect = kept
        apsw_driver.layer = None


def outlive_cuts(folder: Path, cuts: int, chance: random.Random, tally: Tally) -> None:
    """Cut the power of one store so often, or until it is damaged, and count."""
    store = Store(folder / "orders.db", chance)
    tally.settings = settings_of(store)
    for _ in range(cuts):
        before = len(store.events)
        set_cut(store.disk, chance)
        under_way = store.live_until_cut()
        tally.cuts += 1
        tally.acknowledged += len(store.events) - before
        tally.checkpoints += store.disk.checkpoints
        tally.cuts_in_checkpoint += store.disk.is_checkpointing
        store.disk.power_up(LOSSES[tally.cuts % len(LOSSES)])
        found = store.start_again(under_way)
        tally.lost += found.lost
        tally.cuts_that_lost += found.lost > 0
        if not found.is_sound:
            tally.damaged += 1
            return
        tally.not_once += store.repeat(under_way)


def settings_of(store: Store) -> str:
    names = ("journal_mode", "synchronous", "wal_autocheckpoint")
    with store.database.write() as connection:
        mode, synchronous, pages = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names
        )
    return f"{mode}, synchronous={SYNCHRONOUS[synchronous]}, checkpoints at {pages} pages"


def set_cut(disk: Disk, chance: random.Random) -> None:
    """Choose the moment of the next cut."""
    disk.in_checkpoint = chance.random() < SHARE_IN_CHECKPOINT
    disk.until_cut = chance.randint(1, PAGES_UNTIL_CUT if disk.in_checkpoint else CHANGES_UNTIL_CUT)


def print_table(tallies: list[Tally]) -> None:
    row = "{:<50}{:>6}{:>14}{:>7}{:>9}{:>9}{:>10}{:>13}{:>8}"
    heads = ("settings", "cuts", "acknowledged", "lost", "by cuts", "damaged", "not once")
    print(row.format(*heads, "checkpoints", "cut in"))
    for each in tallies:
        counted = (each.cuts, each.acknowledged, each.lost, each.cuts_that_lost, each.damaged)
        seen = (each.not_once, each.checkpoints, each.cuts_in_checkpoint)
        print(row.format(each.settings, *counted, *seen))


if __name__ == "__main__":
    sys.exit(command.run(prove, cuts="power cuts under each setting", seed="chooses the moments"))
