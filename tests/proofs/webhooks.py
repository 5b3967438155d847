"""Webhooks while one endpoint hangs and another answers: neither holds up requests nor the other.

The service is started three times: without webhooks, with one endpoint that answers, and with a
second that never does. Each time orders are placed at a steady pace. Every order must be placed;
the endpoint that answers must get each event once, in order and within a second of the order's
answer; and the one that hangs must be held at its first.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path

from orders.cli.output import progress
from tests.proofs.core import command
from tests.proofs.core.placing import Placing
from tests.proofs.core.times import Times
from tests.support.receiver import Receiver, hang, receiving
from tests.support.service import Service, running

# The name of each run, and whether one endpoint answers, and one hangs.
RUNS = {
    "without webhooks": (False, False),
    "one that answers": (True, False),
    "and one that hangs": (True, True),
}
LARGE = ("--per-minute", "1000000", "--per-day", "1000000")
# From the contract: a delivery starts within it.
START_SECONDS = 1.0
ARRIVAL_SECONDS = 60.0
CLIENTS = 4
_POLL_SECONDS = 0.01


def prove(
    folder: Path, *, orders: int = 1_000, rate: int = 100, longest: float = START_SECONDS
) -> list[str]:
    """Make all runs in a folder, print the figures; return the violations.

    `longest` is within how many seconds an event must arrive.
    """
    violations = []
    with progress("Delivering", len(RUNS)) as advance:
        for number, (name, endpoints) in enumerate(RUNS.items()):
            print(name)
            found = _run(folder / str(number), endpoints, (orders, rate), longest)
            violations += [f"{name}: {violation}" for violation in found]
            advance(1)
    return violations


def _run(
    folder: Path, endpoints: tuple[bool, bool], load: tuple[int, int], longest: float
) -> list[str]:
    answers, hangs = endpoints
    orders, rate = load
    over = threading.Event()
    violations = []
    with ExitStack() as resources:
        quick, stuck = (resources.enter_context(receiving()) for _ in range(2))
        stuck.answering = hang(over)
        service = resources.enter_context(running(folder))
        resources.callback(over.set)
        placing = Placing(service, service.issue("enterprise", *LARGE), CLIENTS, rate)
        for receiver in [quick] * answers + [stuck] * hangs:
            _add(service, receiver)
        placing.place(orders)
        print(f"  requests  {Times.of(placing.seconds)}")
        if placing.statuses != {HTTPStatus.CREATED}:
            violations.append(f"orders were answered {placing.statuses}")
        if answers:
            violations += _wrong_arrivals(placing, quick, longest)
        if hangs and stuck.events != [1]:
            violations.append(f"the one that hangs got {stuck.events[:9]}")
    return violations


def _wrong_arrivals(placing: Placing, quick: Receiver, longest: float) -> list[str]:
    ends = time.monotonic() + ARRIVAL_SECONDS
    while len(quick.received) < len(placing.acknowledged) and time.monotonic() < ends:
        time.sleep(_POLL_SECONDS)
    # In a new store, the event that placed an order has the order's id.
    if quick.events != sorted(placing.acknowledged):
        return ["the one that answers did not get each event once, in order"]
    waits = [max(0.0, each.at - placing.acknowledged[each.event]) for each in quick.received]
    print(f"  arrivals  {Times.of(waits)}")
    if max(waits) > longest:
        return [f"an event arrived {max(waits):.2f} s after its order's answer"]
    return []


def _add(service: Service, receiver: Receiver) -> None:
    done = service.command("webhooks", "add", receiver.url, "--allow-private")
    if done.returncode:
        raise RuntimeError(done.stderr)


if __name__ == "__main__":
    sys.exit(command.run(prove, orders="orders to place in each run", rate="orders a second"))
