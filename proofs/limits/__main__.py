"""The limits: exact among 16 clients, over stops and kills, and bounded among a million addresses.

Counts must be exact, a kill may lose no more than the last second, bans last, and a million
addresses may take no more memory and disk than stated. Times are printed, and prove nothing.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from proofs.core import command
from proofs.limits import crowd, cuts, million

STOPS = 3


def prove(
    folder: Path,
    *,
    kills: int = 10,
    addresses: int = 1_000_000,
    redis: bool = False,
    seed: int = 1,
) -> list[str]:
    """Prove, print the figures; return the violations."""
    if redis:
        from proofs.limits import shared  # which needs the package redis

        return shared.prove(folder / "redis")
    return [
        # First, because it measures the memory of this process.
        *million.prove(folder / "counters.db", addresses),
        *crowd.prove(folder / "crowd"),
        *cuts.prove(folder / "cuts", random.Random(seed), STOPS, kills),
    ]


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            kills="kills under load",
            addresses="addresses, and keys, that are counted",
            redis="prove only the counters in Redis; starts a redis-server",
            seed="chooses the moments of stops and kills",
        )
    )
