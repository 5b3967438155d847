"""The server's edge: a crowd that holds connections, slow readers of a list, a stop under load.

All must be served, no answer dropped and no memory kept, and reads beside the slow readers must
take at most ten times as long as alone. It takes about two minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orders.cli.output import working
from proofs.core import command
from proofs.core.times import Read
from proofs.edge.crowd import Crowd, stand_beside
from proofs.edge.slow_readers import LIST, SlowReaders, read_beside
from proofs.edge.stopping import Stop, stop_under_load
from tests.support import year
from tests.support.service import Service, environment_for, run_flask, running

READS = 200
HEAD_SECONDS = 5
MAX_TIMES_SLOWER = 10
MAX_MIB = 300
BYTES_A_SECOND = 4_000_000
# Of a year's orders some are cancelled, and not listed.
_LISTED = 0.94


def prove(
    folder: Path,
    *,
    connections: int = 500,
    orders: int = 300_000,
    readers: int = 12,
    seed: int = 1,
) -> list[str]:
    """Run the three parts, print their figures; return the violations."""
    instance = folder / "instance"
    with working("Making the store, a crowd, slow readers, a stop") as alive:
        fill(instance, round(orders / _LISTED), seed)
        alive()
        with running(instance, **deadlines(HEAD_SECONDS)) as service:
            crowd = stand_beside(service, single_read(service), READS, connections, HEAD_SECONDS)
        alive()
        with running(instance) as service:
            slow = read_beside(service, single_read(service), READS, readers, BYTES_A_SECOND)
        alive()
        service = Service(instance)
        stop = stop_under_load(service, single_read(service), BYTES_A_SECOND)
    print_crowd(crowd)
    print_slow_readers(slow)
    print_stop(stop)
    return [*crowd.faults, *slow.faults, *bounds_broken(slow), *stop.faults]


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
    key = service.issue("enterprise", "--per-minute", "1000000000", "--per-day", "1000000000")
    order = service.request("POST", LIST, key=key, json={"petId": 7}).json()
    return Read(service.address, f"{LIST}/{order['id']}", key)


def bounds_broken(slow: SlowReaders) -> list[str]:
    """Return the figures that are worse than they may be."""
    found = {
        f"reads were {slow.times_slower:.1f} times slower": slow.times_slower > MAX_TIMES_SLOWER,
        f"{slow.memory[1]:.0f} MiB of memory": slow.memory[1] > MAX_MIB,
    }
    return [fault for fault, is_so in found.items() if is_so]


def print_crowd(crowd: Crowd) -> None:
    """Print the figures of a crowd."""
    before, during, after = crowd.descriptors
    answered = len(crowd.dripped) - crowd.not_timed_out
    print(f"a read alone                {crowd.alone}")
    print(f"beside the crowd            {crowd.beside}")
    print(f"dripping, answered 408      {answered} of {len(crowd.dripped)}", end="")
    print(f", the last after {crowd.latest:.1f} s")
    print(f"descriptors                 {before}, {during} beside the crowd, {after} after it")
    print(f"memory                      {crowd.memory[0]:.0f} MiB, {crowd.memory[1]:.0f} after it")


def print_slow_readers(slow: SlowReaders) -> None:
    """Print the figures of slow readers."""
    megabytes = slow.expected.length / 1e6 if slow.expected else 0
    before, most = slow.memory
    print(f"lists read slowly           {len(slow.lists)} of {megabytes:.1f} MB")
    print(f"a read alone                {slow.idle}")
    print(f"beside them                 {slow.beside}", end="")
    print(f"; {slow.times_slower:.1f} times slower (at most {MAX_TIMES_SLOWER})")
    print(f"memory                      {before:.0f} MiB, {most:.0f} at most (under {MAX_MIB})")


def print_stop(stop: Stop) -> None:
    """Print the figures of a stop."""
    for kind, count in stop.arrived.items():
        print(f"arrived before the signal   {count} {kind}; dropped {stop.dropped[kind]}")
    print(f"the stop                    took {stop.seconds:.1f} s, exit status {stop.status}")


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            connections="connections that drip; as many are idle",
            orders="orders in the list",
            readers="slow readers of the list",
            seed="chooses the orders",
        )
    )
