"""The server's edge: a crowd, slow readers, clients that hold the door, a stop under load.

All must be served, no answer dropped and no memory kept, reads beside the slow readers must take
at most ten times as long as alone, and probes a second at most. It takes about five minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orders.cli.output import say_working
from proofs.core import command
from proofs.core.times import Read
from proofs.edge.crowd import stand_beside
from proofs.edge.doors import hold_the_doors
from proofs.edge.slow_readers import LIST, read_beside
from proofs.edge.stopping import stop_under_load
from tests.support import year
from tests.support.service import Service, environment_for, run_flask, running

READS = 200
HEAD_SECONDS = 5
MAX_TIMES_SLOWER = 10
BYTES_A_SECOND = 4_000_000
# Of a year's orders some are cancelled, and not listed.
_LISTED = 0.94


def prove(
    folder: Path, *, connections: int = 500, orders: int = 300_000, seed: int = 1
) -> list[str]:
    """Run the three parts, which print their figures; return the violations."""
    instance = folder / "instance"
    say_working("Making the store, a crowd, slow readers, a stop")
    fill(instance, round(orders / _LISTED), seed)
    with running(instance, **deadlines(HEAD_SECONDS)) as service:
        read = single_read(service)
        violations = stand_beside(service, read, READS, connections, HEAD_SECONDS)
    with running(instance) as service:
        read = single_read(service)
        violations += read_beside(service, read, READS, BYTES_A_SECOND, MAX_TIMES_SLOWER)
    with running(instance) as service:
        violations += hold_the_doors(service, single_read(service), endless(service, "read"))
    service = Service(instance)
    return violations + stop_under_load(service, single_read(service), BYTES_A_SECOND)


def fill(instance: Path, orders: int, seed: int) -> None:
    """Make a store of a year's orders."""
    Service(instance).stop()
    file = instance.parent / "year.csv"
    year.write(file, year.rows(orders, seed))
    done = run_flask("orders", "import", str(file), environment=environment_for(instance))
    done.check_returncode()
    file.unlink()


def deadlines(seconds: int) -> dict[str, str]:
    """Return the settings of a service that waits so long for heads, and for bodies."""
    return {"ORDERS_HEAD_SECONDS": str(seconds), "ORDERS_BODY_SECONDS": str(seconds)}


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
            connections="connections that drip; as many are idle",
            orders="orders in the list",
            seed="chooses the orders",
        )
    )
