"""The server's edge: slow readers, clients that hog connections, followers, a stop under load.

All must be served, no answer dropped and no memory kept, reads beside the slow readers must take
at most ten times as long as alone, and probes a second at most. It takes about five minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orders.cli.common import say_working
from orders.feed import MOST_FOLLOWERS
from tests.proofs.core import command
from tests.proofs.core.times import Read
from tests.proofs.edge.doors import attacks, hold_the_doors
from tests.proofs.edge.followers import (
    PLACED_SECONDS,
    STOP_SECONDS,
    followed_without_end,
    keys_for,
)
from tests.proofs.edge.slow_readers import LIST, read_beside
from tests.proofs.edge.stopping import stop_under_load
from tests.support import year
from tests.support.service import Service, environment_for, run_flask, running

READS = 200
MAX_TIMES_SLOWER = 10
BYTES_A_SECOND = 4_000_000
# Of a year's orders some are cancelled, and not listed.
_LISTED = 0.94


def prove(
    folder: Path, *, seconds: float = 20.0, orders: int = 300_000, seed: int = 1
) -> list[str]:
    """Run the four parts, which print their figures; return the violations."""
    instance = folder / "instance"
    say_working("Making the store, slow readers, attacks, a stop")
    fill(instance, round(orders / _LISTED), seed)
    with running(instance) as service:
        read = single_read(service)
        violations = read_beside(service, read, READS, BYTES_A_SECOND, MAX_TIMES_SLOWER)
    with running(instance, **deadlines(seconds)) as service:
        all_attacks = attacks(endless(service, "read"))
        violations += hold_the_doors(service, single_read(service), all_attacks, seconds)
    service = Service(instance)
    followed = (PLACED_SECONDS, STOP_SECONDS)
    violations += followed_without_end(service, keys_for(service), MOST_FOLLOWERS, followed)
    service = Service(instance)
    return violations + stop_under_load(service, single_read(service), BYTES_A_SECOND)


def fill(instance: Path, orders: int, seed: int) -> None:
    Service(instance).stop()
    file = instance.parent / "year.csv"
    year.write(file, year.rows(orders, seed))
    done = run_flask("orders", "import", str(file), environment=environment_for(instance))
    done.check_returncode()
    file.unlink()


def deadlines(seconds: float) -> dict[str, str]:
    """Return the settings of a service that waits for heads, and bodies, half as long."""
    return dict.fromkeys(("ORDERS_HEAD_SECONDS", "ORDERS_BODY_SECONDS"), f"{seconds / 2:.0f}")


def single_read(service: Service) -> Read:
    """Return the read of an order, with a key without limits to speak of."""
    key = endless(service)
    order = service.request("POST", LIST, key=key, json={"petId": 7}).json()
    return Read(service.address, f"{LIST}/{order['id']}", key)


def endless(service: Service, *scopes: str) -> str:
    """Return a key without limits to speak of, perhaps with these scopes only."""
    figures = ("--per-minute", "1000000000", "--per-day", "1000000000")
    return service.issue("enterprise", *figures, *(each for s in scopes for each in ("--scope", s)))


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            seconds="how long each attack goes on",
            orders="orders in the list",
            seed="chooses the orders",
        )
    )
