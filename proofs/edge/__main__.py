"""The server's edge: a crowd that holds connections, slow readers of a list, a stop under load.

Run it as `python -m proofs.edge`; it takes about two minutes. Exits 1 where somebody was not
served, an answer was dropped, memory was kept, or single reads beside the slow readers took over
ten times their idle time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

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


def main() -> int:
    """Measure, print, and give the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=500, help="that drip; as many are idle")
    parser.add_argument("--orders", type=int, default=300_000, help="in the list")
    parser.add_argument("--readers", type=int, default=12, help="of the list, slow")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same orders")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        instance = Path(folder) / "instance"
        tell("making the store")
        fill(instance, round(arguments.orders / _LISTED), arguments.seed)
        faults = measure(instance, arguments.connections, arguments.readers)
    for fault in faults:
        print(f"VIOLATED  {fault}")
    return 1 if faults else 0


def measure(instance: Path, connections: int, readers: int) -> list[str]:
    """Run the three parts, print their figures, and give what was violated."""
    tell("a crowd")
    with running(instance, **deadlines(HEAD_SECONDS)) as service:
        crowd = stand_beside(service, single_read(service), READS, connections, HEAD_SECONDS)
    tell("slow readers")
    with running(instance) as service:
        slow = read_beside(service, single_read(service), READS, readers, BYTES_A_SECOND)
    tell("a stop under load")
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
    """Return the read of an order of this service's, with a key that no limit ends."""
    key = service.issue("enterprise", "--per-minute", "1000000000", "--per-day", "1000000000")
    body = {"petId": 7}
    order = service.request("POST", LIST, key=key, json=body).json()
    return Read(service.address, f"{LIST}/{order['id']}", key)


def bounds_broken(slow: SlowReaders) -> list[str]:
    """Return which of the figures are worse than they may be."""
    found = {
        f"reads were {slow.times_slower:.1f} times slower": slow.times_slower > MAX_TIMES_SLOWER,
        f"{slow.memory[1]:.0f} MiB of memory": slow.memory[1] > MAX_MIB,
    }
    return [fault for fault, is_so in found.items() if is_so]


def print_crowd(crowd: Crowd) -> None:
    """Say what came of the crowd."""
    before, during, after = crowd.descriptors
    print(f"a read alone                {crowd.alone}")
    print(f"beside the crowd            {crowd.beside}")
    print(f"dripping, answered 408      {len(crowd.dripped) - crowd.not_timed_out}", end=" ")
    print(f"of {len(crowd.dripped)}, the last after {crowd.latest:.1f} s")
    print(f"descriptors                 {before}, {during} beside the crowd, {after} after it")
    print(f"memory                      {crowd.memory[0]:.0f} MiB, {crowd.memory[1]:.0f} after it")


def print_slow_readers(slow: SlowReaders) -> None:
    """Say what came of the slow readers."""
    megabytes = slow.expected.length / 1e6 if slow.expected else 0
    print(f"lists read slowly           {len(slow.lists)} of {megabytes:.1f} MB")
    print(f"a read alone                {slow.idle}")
    print(f"beside them                 {slow.beside}", end="")
    print(f"; {slow.times_slower:.1f} times slower (at most {MAX_TIMES_SLOWER})")
    before, most = slow.memory
    print(f"memory                      {before:.0f} MiB, {most:.0f} at most (under {MAX_MIB})")


def print_stop(stop: Stop) -> None:
    """Say what came of the stop."""
    for kind, count in stop.arrived.items():
        print(f"arrived before the signal   {count} {kind}; dropped {stop.dropped[kind]}")
    print(f"the stop                    took {stop.seconds:.1f} s, exit status {stop.status}")


def tell(what: str) -> None:
    """Say on a terminal what is being done."""
    if sys.stderr.isatty():
        print(f"{what} ...", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
