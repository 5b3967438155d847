"""Proves the limits: exact among 16 clients, over stops and kills, and bounded among a million.

Run it as `python -m proofs.limits`. Exits 1 where a count is not exact, where a kill loses more
than what the last second counted, where a ban is lost, or where a million addresses take more
memory or disk than is stated here. Times are told, and decide nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from proofs.limits import crowd, cuts, million


def main() -> int:
    """Prove, print what was found, and give the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the moments of kills")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--stops", type=int, default=3)
    parser.add_argument("--addresses", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument(
        "--redis", action="store_true", help="only the counters in Redis; starts a redis-server"
    )
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.redis:
            from proofs.limits import shared  # which needs the package redis

            faults = shared.prove(folder / "redis")
        else:
            # First, because it looks at the memory of this process.
            faults = million.prove(folder / "counters.db", arguments.addresses, arguments.keys)
            faults += crowd.prove(folder / "crowd")
            faults += cuts.prove(folder / "cuts", chance, arguments.stops, arguments.kills)
    for fault in faults:
        print(f"violated   {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
