"""A backup while the service takes orders, and the way back: what writers wait, what is there then.

Run it as `python -m proofs.backup`. It imports a year of orders, starts the service, lets writers
place orders one after the other, and runs `flask db backup` beside them; another is killed halfway.
Then it revokes a key, stops the service, restores the backup and starts again.

Exits 1 unless the restored store has all orders that were acknowledged before the backup began and
none that nobody placed, ids go on above all that were given, a remembered ETag is answered 200, a
key that was revoked stays so, and the killed backup leaves no file under its name, and nothing at
all after the next.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orders.cli.output import working
from tests.support import year
from tests.support.service import INHERITED, ROOT, Service, run_flask, running

ORDERS = "/v1/store/orders"
# A limit that no writer meets.
PLAN = "[plans.writers]\nper_minute = 100000000\nper_day = 100000000\n"
QUIET_SECONDS = 2.0
TRIES_TO_KILL = 10


def main() -> int:
    """Back up, restore, print the figures, and give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proofs.backup", description=__doc__)
    parser.add_argument("--orders", type=int, default=200_000, help="how many are there before")
    parser.add_argument("--writers", type=int, default=3, help="how many place orders meanwhile")
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same year")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = tried(Path(folder), arguments.orders, arguments.writers, seed=arguments.seed)
    for fault in faults:
        print(f"VIOLATED: {fault}")
    return 1 if faults else 0


def tried(folder: Path, orders: int, writers: int, *, seed: int = 1) -> list[str]:
    """Back up and restore in a folder, print the figures; return what was not as it should be."""
    trial = Trial(folder, orders, writers)
    with working("Importing, backing up, restoring") as alive:
        trial.fill(seed)
        alive()
        trial.back_up()
        alive()
        trial.restore()
    return trial.faults


@dataclass
class Writers:
    """Clients that place orders, each one after the other, and how long each of these took."""

    service: Service
    key: str
    acknowledged: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)
    _stopped: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def placing(self, count: int) -> Iterator[None]:
        """Let so many clients place orders meanwhile."""
        threads = [threading.Thread(target=self._place_on) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()

    def _place_on(self) -> None:
        while not self._stopped.is_set():
            began = time.perf_counter()
            response = self.service.request("POST", ORDERS, self.key, json={"petId": 7})
            self.seconds.append(time.perf_counter() - began)
            self.statuses.add(response.status)
            if "Location" in response.headers:
                self.acknowledged.append(response.json()["id"])


class Trial:
    """A store that is backed up and restored, and what was not as it should be."""

    def __init__(self, folder: Path, orders: int, writers: int) -> None:
        """Take a folder to work in, how many orders there are before, and how many writers."""
        self._folder, self._orders, self._writers = folder, orders, writers
        self._instance = folder / "instance"
        self._environment = {**INHERITED, "ORDERS_INSTANCE": str(self._instance)}
        self._backup = folder / "backups" / "backup.db"
        self._etags: dict[str, str] = {}
        self._keys: list[str] = []
        # Ids of orders: acknowledged before the backup began, and by the end of all.
        self._before: set[int] = set()
        self._placed: set[int] = set()
        self.faults: list[str] = []

    def fill(self, seed: int) -> None:
        """Import a year of orders."""
        self._instance.mkdir(mode=0o700)
        self._backup.parent.mkdir()
        (self._instance / "config.toml").write_text(PLAN, encoding="utf-8")
        file = self._folder / "year.csv"
        year.write(file, year.rows(self._orders, seed))
        self._flask("orders", "import", str(file))
        self._placed |= set(range(1, self._orders + 1))

    def back_up(self) -> None:
        """Take a backup while writers place orders, and revoke a key after it."""
        with running(self._instance) as service:
            self._keys = [service.issue("writers"), service.issue("writers")]
            quiet, beside = (Writers(service, self._keys[0]) for _ in range(2))
            with quiet.placing(self._writers):
                time.sleep(QUIET_SECONDS)
            self._placed |= set(quiet.acknowledged)
            self._kill_a_backup(service)
            with beside.placing(self._writers):
                self._before = self._placed | set(beside.acknowledged)
                seconds = self._timed("db", "backup", str(self._backup))
            self._placed |= set(beside.acknowledged)
            self._remember(service, quiet.acknowledged[0])
            self._flask("keys", "revoke", "2")
        print(f"without a backup   {waits(quiet.seconds)}")
        print(f"beside a backup    {waits(beside.seconds)}")
        print(f"backup             {seconds:.1f} s, {self._backup.stat().st_size / 1e6:.1f} MB")
        statuses = quiet.statuses | beside.statuses
        self._expect(statuses == {201}, f"writers were answered {statuses}")
        left = [path.name for path in self._backup.parent.iterdir() if path != self._backup]
        self._expect(not left, f"there is left beside the backup: {left}")

    def restore(self) -> None:
        """Restore the backup, start again, and look."""
        seconds = self._timed("db", "restore", str(self._backup))
        found = self._ids()
        print(f"restore            {seconds:.1f} s")
        print(f"orders restored    {len(found):,}; acknowledged before the backup began: ", end="")
        print(f"{len(self._before):,}; by its end: {len(self._placed):,}")
        missing, unknown = len(self._before - found), len(found - self._placed)
        self._expect(not missing, f"{missing} orders that were acknowledged are missing")
        self._expect(not unknown, f"{unknown} orders are there that nobody placed")
        with running(self._instance) as service:
            self._look(service)

    def _kill_a_backup(self, service: Service) -> None:
        for n in range(TRIES_TO_KILL):
            file = self._backup.with_name(f"killed-{n}.db")
            if kill_in_the_middle(service, file):
                self._expect(not file.exists(), "a killed backup left a file under its name")
                return
            file.unlink()
        raise AssertionError("no backup could be killed before its end: give it more orders")

    def _remember(self, service: Service, order_id: int) -> None:
        for path in (ORDERS, f"{ORDERS}/{order_id}"):
            self._etags[path] = service.request("HEAD", path, self._keys[0]).headers["ETag"]
        known = self._statuses_of_remembered(service)
        self._expect(known == [304, 304], f"what was remembered was answered {known} at once")

    def _look(self, service: Service) -> None:
        remembered = self._statuses_of_remembered(service)
        self._expect(remembered == [200, 200], f"remembered ETags are answered {remembered}")
        revoked = service.request("GET", ORDERS, self._keys[1]).status
        self._expect(revoked == 401, f"a revoked key is answered {revoked}")  # noqa: PLR2004
        placed = service.request("POST", ORDERS, self._keys[0], json={"petId": 7}).json()
        self._expect(placed["id"] > max(self._placed), f"the id {placed['id']} is given twice")
        print(
            f"remembered ETags   {remembered}; the revoked key {revoked}; next id {placed['id']:,}"
        )

    def _statuses_of_remembered(self, service: Service) -> list[int]:
        return [
            service.request("HEAD", path, self._keys[0], headers={"If-None-Match": tag}).status
            for path, tag in self._etags.items()
        ]

    def _ids(self) -> set[int]:
        exported = self._flask("orders", "export")
        return {int(row["id"]) for row in csv.DictReader(io.StringIO(exported))}

    def _timed(self, *command: str) -> float:
        began = time.perf_counter()
        self._flask(*command)
        return time.perf_counter() - began

    def _flask(self, *command: str) -> str:
        done = run_flask(*command, environment=self._environment)
        if done.returncode:
            raise AssertionError(f"flask {' '.join(command)}: {done.stderr}")
        return done.stdout

    def _expect(self, so: bool, otherwise: str) -> None:
        if not so:
            self.faults.append(otherwise)


def kill_in_the_middle(service: Service, file: Path) -> bool:
    """Begin a backup to the file and kill it once it copies; return whether it had not ended."""
    command = [sys.executable, "-m", "flask", "db", "backup", str(file)]
    with subprocess.Popen(  # noqa: S603 - this program
        command, cwd=ROOT, env=service.environment, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not list(file.parent.glob(f"*.unfinished/{file.name}")):
            time.sleep(0.001)
        process.kill()
        return process.wait() != 0


def waits(seconds: Sequence[float]) -> str:
    """Say how long requests took."""
    ordered = sorted(seconds)
    p99 = ordered[int(len(ordered) * 0.99)]
    shown = f"{len(ordered):,} orders placed, median {ordered[len(ordered) // 2] * 1000:.1f} ms"
    return f"{shown}, p99 {p99 * 1000:.1f} ms, worst {ordered[-1] * 1000:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
