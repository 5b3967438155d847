"""Webhooks while one endpoint hangs and another answers: what waits for what.

Run it as `python -m proofs.webhooks`. It starts the service three times: without webhooks, with one
endpoint that answers, and with that and one that never does. Each time orders are placed at a
steady pace, and it is measured how long requests take, and how long after an order's answer its
event arrives.

Exits 1 unless every order is placed, the endpoint that answers gets each event once, in order and
within a second, and the other one is held at its first.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from orders.cli.progress import progress
from proofs.core.times import Times
from tests.support.receiver import Receiver, hang, receiving
from tests.support.service import Service, running
from tests.support.wire import Wire

# What is told of each run, and whether an endpoint answers, and one hangs.
RUNS = {
    "without webhooks": (False, False),
    "one that answers": (True, False),
    "and one that hangs": (True, True),
}
LARGE = ("--per-minute", "1000000", "--per-day", "1000000")
# From the contract: a delivery starts within it.
START_SECONDS = 1.0
ARRIVAL_SECONDS = 60.0
_LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Load:
    """How many orders, how many a second, from how many clients, with which seed."""

    orders: int = 1_000
    rate: int = 100
    clients: int = 4
    seed: int = 1


class Shop:
    """Places orders at a steady pace, and keeps how long each took and when it was answered."""

    def __init__(self, service: Service, key: str, load: Load) -> None:
        """Take the service, a key with large limits, and the load."""
        self.seconds: list[float] = []
        self.answered: dict[int, float] = {}
        self.refused = 0
        self._service, self._key, self._load = service, key, load
        chance = random.Random(load.seed)
        self._pets = [chance.randrange(1, 1_000) for _ in range(load.orders)]

    def place_all(self) -> None:
        """Place all orders, each when it is due, however long those before it take."""
        began = time.monotonic() + 0.1
        clients = [
            threading.Thread(target=self._place, args=(first, began))
            for first in range(self._load.clients)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    def _place(self, first: int, began: float) -> None:
        wire = Wire(self._service.address, self._key)
        wire.connect()
        for number in range(first, self._load.orders, self._load.clients):
            time.sleep(max(0.0, began + number / self._load.rate - time.monotonic()))
            asked = time.monotonic()
            answer = wire.ask("POST", "/v1/store/orders", {"petId": self._pets[number]})
            self.seconds.append(answer.ended - asked)
            if answer.status == HTTPStatus.CREATED:
                order_id = int(answer.headers["Location"].rpartition("/")[2])
                self.answered[order_id] = answer.ended
            else:
                self.refused += 1
        wire.close()


class Trial:
    """One run: a service, its endpoints, the orders, and what was found."""

    def __init__(self, folder: Path, load: Load, *, answering: bool, hanging: bool) -> None:
        """Take a folder for the store, the load, and which endpoints there are."""
        self.faults: list[str] = []
        self.requests = Times(0, 0, 0, 0)
        self.arrivals: Times | None = None
        self._folder, self._load = folder, load
        self._has_answering, self._has_hanging = answering, hanging

    def run(self, longest: float) -> None:
        """Place the orders and wait for their events, which may take so many seconds each."""
        over = threading.Event()
        with ExitStack() as held:
            quick, stuck = held.enter_context(receiving()), held.enter_context(receiving())
            stuck.answering = hang(over)
            service = held.enter_context(running(self._folder))
            held.callback(over.set)
            key = service.issue("enterprise", *LARGE)
            for receiver, is_there in ((quick, self._has_answering), (stuck, self._has_hanging)):
                if is_there:
                    _add(service, receiver)
            shop = Shop(service, key, self._load)
            shop.place_all()
            self.requests = Times.of(shop.seconds)
            if shop.refused:
                self.faults.append(f"{shop.refused} orders were refused")
            if self._has_answering:
                self._judge_arrivals(shop, quick, longest)
            if self._has_hanging and stuck.events != [1]:
                self.faults.append(f"the one that hangs got {stuck.events[:9]}")

    def _judge_arrivals(self, shop: Shop, quick: Receiver, longest: float) -> None:
        _await(quick, len(shop.answered))
        # In a new store, the event that placed an order has the order's id.
        waits = [
            max(0.0, each.at - shop.answered[each.told["data"]["id"]])
            for each in list(quick.received)
        ]
        if quick.events != sorted(shop.answered):
            self.faults.append("the one that answers did not get each event once, in order")
        if waits:
            self.arrivals = Times.of(waits)
            if max(waits) > longest:
                self.faults.append(f"an event arrived {max(waits):.2f} s after its order's answer")


def _add(service: Service, receiver: Receiver) -> None:
    done = service.command("webhooks", "add", receiver.url, "--allow-private")
    if done.returncode:
        raise RuntimeError(done.stderr)


def _await(receiver: Receiver, count: int) -> None:
    ends = time.monotonic() + ARRIVAL_SECONDS
    while len(receiver.received) < count and time.monotonic() < ends:
        time.sleep(_LOOK_SECONDS)


def tried(folder: Path, load: Load, longest: float = START_SECONDS) -> list[str]:
    """Make all runs in a folder, print the figures; return what was not as it should be."""
    faults = []
    with progress("Delivering", len(RUNS)) as advance:
        for number, (name, (answering, hanging)) in enumerate(RUNS.items()):
            trial = Trial(folder / str(number), load, answering=answering, hanging=hanging)
            trial.run(longest)
            print(f"{name:<20}requests {trial.requests}")
            if trial.arrivals:
                print(f"{'':<20}arrivals {trial.arrivals}")
            faults += [f"{name}: {fault}" for fault in trial.faults]
            advance(1)
    return faults


def main() -> int:
    """Place, deliver, print, and give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proofs.webhooks", description=__doc__)
    for name, words in (
        ("orders", "how many"),
        ("rate", "how many a second"),
        ("clients", "how many place them"),
        ("seed", "the same seed, the same orders"),
    ):
        default = getattr(Load(), name)
        parser.add_argument(
            f"--{name}", type=int, default=default, help=f"{words} (default: {default})"
        )
    with tempfile.TemporaryDirectory() as folder:
        faults = tried(Path(folder), Load(**vars(parser.parse_args())))
    for fault in faults:
        print(f"VIOLATED: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
