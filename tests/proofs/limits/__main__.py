"""The limits: exact among 16 clients, and bounded among a million addresses.

Counts must be exact, and a million addresses may take no more memory and disk than stated. Times
are printed, and prove nothing. What stops and kills leave of counters and bans is proofs.crash's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.proofs.core import command
from tests.proofs.limits import crowd, million


def prove(folder: Path, *, addresses: int = 1_000_000, redis: bool = False) -> list[str]:
    """Prove, print the figures; return the violations."""
    if redis:
        from tests.proofs.limits import shared  # which needs the package redis

        return shared.prove(folder / "redis")
    # First what measures the memory of this process.
    return [*million.prove(folder / "counters.db", addresses), *crowd.prove(folder / "crowd")]


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            addresses="addresses, and keys, that are counted",
            redis="prove only the counters in Redis; starts a redis-server",
        )
    )
