"""Several processes over one PostgreSQL and one Redis, behind nginx, killed one after the other.

PostgreSQL, Redis, nginx with `deploy/nginx`, and several `python app.py` run as processes of this
machine. Two loads of clients place, ship, cancel, get and list; others poll the feed, follow its
stream, and receive webhooks. Every few seconds a process is killed or
ended, and started again; Redis is killed once, and PostgreSQL is stopped once. Then the answers are
compared with the store. It needs the packages postgresql, redis-server and nginx-light.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from pathlib import Path

from tests.proofs.cluster import verdict
from tests.proofs.cluster.readers import longest_delay, times_again
from tests.proofs.cluster.run import Findings, Run
from tests.proofs.cluster.stage import staged
from tests.proofs.core import command
from tests.proofs.crash.__main__ import counts


def summary(found: Findings) -> str:
    history = [each for load in found.shopping for each in load.history]
    whys = Counter(why for _, _, why in verdict.unanswered(found))
    facts = {
        "run": f"{found.seconds:.0f} s, {len(found.kills)} kills, {len(found.stops)} stops, "
        f"starts {statistics.median(found.starts):.1f} s (median)",
        "operations": counts(history),
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
        "redis": "was away, all stayed ready" if found.redis_was_away else "stayed",
        "postgresql": "stayed"
        if found.until_ready is None
        else f"was away, all ready {found.until_ready:.1f} s after its return",
    }
    return command.table(facts)


def prove(
    folder: Path, *, seconds: float = 180.0, processes: int = 4, clients: int = 4, seed: int = 1
) -> list[str]:
    """Run, compare, print the figures; return the complaints."""
    with staged(folder, processes) as stage:
        found = Run(stage, clients, seed).run(seconds)
        complaints = verdict.complaints(found, clients)
    print(summary(found))
    return complaints


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            seconds="length of the run",
            processes="processes of the service",
            clients="clients of each load",
            seed="chooses the victims",
        )
    )
