"""Runs four processes behind nginx under load, and kills one after the other.

Run it as `python -m proofs.cluster`. It starts PostgreSQL, Redis, nginx with `deploy/nginx`, and so
many `python app.py`, as processes of this machine. Two loads of clients place, ship, cancel, list
and look; others follow the feed, receive webhooks, and use keys beyond their limits from all sides.
Every few seconds a process is killed or ended, and started again; Redis is killed once, and
PostgreSQL is stopped once. Then all that they were told is compared with what the store holds.
Exits 1 where they do not agree. It needs the packages postgresql, redis-server and nginx-light.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

from proofs.cluster import verdict
from proofs.cluster.readers import longest_delay, times_again
from proofs.cluster.run import Findings, Run
from proofs.cluster.stage import staged

# Of the complaints: one fault may make thousands.
SHOWN = 20


def summary(found: Findings, faults: list[str]) -> str:
    """Return what was done and found in a few lines."""
    history = [each for load in found.shopping for each in load.history]
    done = sum(each.is_acknowledged for each in history)
    unknown = sum(each.is_unknown for each in history)
    whys = Counter(why for _, _, why in verdict.unanswered(found))
    attacks = [each for each in found.attacks if each.counts]
    facts = {
        "run": f"{found.seconds:.0f} s, {len(found.kills)} kills, {len(found.stops)} stops, "
        f"starts {statistics.median(found.starts):.1f} s (median)",
        "operations": f"{len(history):,}: {done:,} acknowledged, "
        f"{len(history) - done - unknown:,} refused, {unknown:,} unknown",
        "unanswered": ", ".join(f"{why} {count}" for why, count in sorted(whys.items())) or "none",
        "store": f"{len(found.contents.orders):,} orders, {len(found.contents.events):,} events",
        "pages": f"{sum(each.pages for each in found.shopping):,}",
        "feed": ", ".join(f"{len(each.seen):,} events" for each in found.readers),
        "webhooks": ", ".join(
            f"{len(each.received):,} messages, {times_again(each.received)} again, "
            f"{longest_delay(each.received, found.contents):.1f} s at most"
            for each in found.receivers
        )
        + f"; the last {found.delivered_after:.1f} s after the load",
        "limits": f"{len(attacks)} of {len(found.attacks)} attacks on a key counted: "
        f"{', '.join(sorted({str(each.admitted) for each in attacks}))} admitted",
        "redis": "was away, all stayed ready" if found.redis_was_away else "stayed",
        "postgresql": "stayed"
        if found.until_ready is None
        else f"was away, all ready {found.until_ready:.1f} s after its return",
        "violations": f"{len(faults):,}",
    }
    return "\n".join(f"{name:<12}{fact}" for name, fact in facts.items())


def main() -> int:
    """Run, compare, print, and give the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="how long (default: 180)")
    parser.add_argument("--processes", type=int, default=4, help="how many (default: 4)")
    parser.add_argument("--clients", type=int, default=4, help="of each load (default: 4)")
    parser.add_argument("--seed", type=int, default=1, help="the same one chooses the same victims")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        staged(Path(folder), given.processes) as stage,
    ):
        found = Run(stage, given.clients, given.seed).run(given.seconds)
        faults = verdict.complaints(found, given.clients)
    print(summary(found, faults))
    for fault in faults[:SHOWN]:
        print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
