"""A backup while the service takes orders, and its restore.

A year of orders is imported, and writers place orders one after the other. In each round the
service makes a backup by itself and restores it for a drill, and then does neither for as long: the
median of the rounds' worst waits may be three times that without, and the write-ahead log stays
within its bound. Then `flask db backup` runs beside the writers; another is killed halfway, a key
is revoked, and the backup restored. The restored store must have all orders that were acknowledged
before the backup began and none that nobody placed, ids must go on above all that were used, a
remembered ETag must be answered 200, the revoked key must stay so, and the killed backup must leave
no file under its name, and nothing at all after the next.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from statistics import median

from orders.cli.output import say_working
from orders.store.database.long_reads import MOST_PAGES
from tests.proofs.core import command
from tests.proofs.core.placing import ORDERS, Placing
from tests.proofs.core.times import Times
from tests.support import year
from tests.support.service import ROOT, Service, environment_for, run_flask, running

# A limit that no writer meets.
PLAN = "[plans.writers]\nper_minute = 100000000\nper_day = 100000000\n"
WRITERS = 3
TRIES_TO_KILL = 10
PATIENCE_SECONDS = 600.0
MOST_TIMES = 3.0
# As docs/operations.md says.
MOST_LOG_BYTES = MOST_PAGES * 4096
# A service that makes a backup, and drills it, as soon as there is none.
IMPATIENT = """
import sys
from orders.store.care import backups
backups.FIRST_SECONDS = backups.LOOK_SECONDS = 0.05
backups.RETRY_SECONDS = backups.APART_SECONDS = 0
import app
sys.exit(app.main())
"""


def prove(
    folder: Path,
    *,
    orders: int = 200_000,
    rounds: int = 5,
    times: float = MOST_TIMES,
    seed: int = 1,
) -> list[str]:
    """Back up and restore in a folder, print the figures; return the violations."""
    trial = Trial(folder, orders)
    say_working("Importing, backing up, restoring")
    trial.fill(seed)
    trial.compare_waits(rounds, times)
    trial.back_up()
    trial.restore()
    return trial.faults


class Impatient:
    """What starts services that are to be impatient."""

    @staticmethod
    def launch(environment: dict[str, str]) -> subprocess.Popen[str]:
        """Start one."""
        return subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-c", IMPATIENT],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@dataclass
class Rounds:
    """What writers wait beside a service's own backups and without, in turn."""

    service: Service
    key: str
    database: Path
    backups: Path
    beside: list[Placing] = field(default_factory=list)
    without: list[Placing] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    longest_log: int = 0

    def run(self) -> None:
        """Place orders beside a backup and its drill, and then for as long without."""
        began = time.monotonic()
        self.beside.append(self._placing(self._back_up))
        self.took.append(time.monotonic() - began)
        self.without.append(self._placing(lambda: time.sleep(self.took[-1])))

    def summary(self) -> str:
        """Return the figures in a few lines."""
        beside, without = (
            Times.of([wait for each in rounds for wait in each.seconds])
            for rounds in (self.beside, self.without)
        )
        facts = {
            "own backups": f"{len(self.took)}, each with its drill {median(self.took):.1f} s",
            "beside": f"{beside}",
            "without": f"{without}",
            "worst waits": f"{_worst(self.beside) * 1000:.0f} ms beside one, "
            f"{_worst(self.without) * 1000:.0f} without (medians of the rounds): "
            f"{self.times:.1f} times",
            "log": f"{self.longest_log / 2**20:.1f} MiB at most, of {MOST_LOG_BYTES / 2**20:.0f}",
        }
        return command.table(facts)

    @property
    def times(self) -> float:
        """How many times as long as without a backup the worst wait beside one is."""
        return _worst(self.beside) / _worst(self.without)

    def _placing(self, meanwhile: Callable[[], None]) -> Placing:
        placing = Placing(self.service, self.key, WRITERS)
        with placing.going_on():
            meanwhile()
        return placing

    def _back_up(self) -> None:
        drilled = self.backups / "drill.json"
        for path in (*self.backups.glob("orders-*"), drilled):
            path.unlink(missing_ok=True)
        ends = time.monotonic() + PATIENCE_SECONDS
        while not drilled.exists():
            if time.monotonic() > ends:
                raise AssertionError(f"it made no backup: {''.join(self.service.log[-9:])}")
            time.sleep(0.01)
            size = self.database.with_name("orders.db-wal").stat().st_size
            self.longest_log = max(self.longest_log, size)


def _worst(rounds: list[Placing]) -> float:
    return median(max(each.seconds) for each in rounds)


class Trial:
    """A store that is backed up and restored, and the violations."""

    def __init__(self, folder: Path, orders: int) -> None:
        """Take a folder to work in, and how many orders there are before."""
        self._folder, self._orders = folder, orders
        self._instance = folder / "instance"
        self._environment = environment_for(self._instance)
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

    def compare_waits(self, rounds: int, times: float) -> None:
        """Let writers place orders beside the service's own backups, and without."""
        own = self._folder / "own"
        with running(self._instance, forks=Impatient, ORDERS_BACKUPS=str(own)) as service:
            self._keys = [service.issue("writers"), service.issue("writers")]
            compared = Rounds(service, self._keys[0], self._instance / "orders.db", own)
            for _ in range(rounds):
                compared.run()
        print(compared.summary())
        self._note(*compared.beside, *compared.without)
        self._expect(
            compared.times <= times,
            f"the worst wait beside a backup is {compared.times:.1f} times that without",
        )
        self._expect(
            compared.longest_log <= MOST_LOG_BYTES, f"the log grew to {compared.longest_log:,} B"
        )

    def back_up(self) -> None:
        """Take a backup while writers place orders, and revoke a key after it."""
        with running(self._instance) as service:
            self._kill_a_backup(service)
            beside = Placing(service, self._keys[0], WRITERS)
            with beside.going_on():
                self._before = self._placed | set(beside.acknowledged)
                seconds = self._timed("db", "backup", str(self._backup))
            self._note(beside)
            self._remember(service, min(beside.acknowledged))
            self._flask("keys", "revoke", "2")
        print(f"flask db backup    {seconds:.1f} s, {self._backup.stat().st_size / 1e6:.1f} MB")
        left = [path.name for path in self._backup.parent.iterdir() if path != self._backup]
        self._expect(not left, f"there is left beside the backup: {left}")

    def restore(self) -> None:
        """Restore the backup, start again, and compare."""
        seconds = self._timed("db", "restore", str(self._backup))
        found = self._ids()
        print(f"restore            {seconds:.1f} s")
        print(f"orders restored    {len(found):,}; acknowledged before the backup began: ", end="")
        print(f"{len(self._before):,}; by its end: {len(self._placed):,}")
        missing, unknown = len(self._before - found), len(found - self._placed)
        self._expect(not missing, f"{missing} orders that were acknowledged are missing")
        self._expect(not unknown, f"{unknown} orders are there that nobody placed")
        with running(self._instance) as service:
            self._compare(service)

    def _note(self, *placings: Placing) -> None:
        self._placed |= {each for placing in placings for each in placing.acknowledged}
        statuses = {each for placing in placings for each in placing.statuses}
        self._expect(statuses == {HTTPStatus.CREATED}, f"writers were answered {statuses}")

    def _kill_a_backup(self, service: Service) -> None:
        for n in range(TRIES_TO_KILL):
            file = self._backup.with_name(f"killed-{n}.db")
            if kill_in_the_middle(service, file):
                self._expect(not file.exists(), "a killed backup left a file under its name")
                return
            file.unlink()
        raise AssertionError("no backup could be killed before its end: use more orders")

    def _remember(self, service: Service, order_id: int) -> None:
        for path in (ORDERS, f"{ORDERS}/{order_id}"):
            self._etags[path] = service.request("HEAD", path, self._keys[0]).headers["ETag"]
        known = self._statuses_of_remembered(service)
        self._expect(known == [304, 304], f"what was remembered was answered {known} at once")

    def _compare(self, service: Service) -> None:
        remembered = self._statuses_of_remembered(service)
        self._expect(remembered == [200, 200], f"remembered ETags are answered {remembered}")
        revoked = service.request("GET", ORDERS, self._keys[1]).status
        self._expect(revoked == 401, f"a revoked key is answered {revoked}")  # noqa: PLR2004
        placed = service.request("POST", ORDERS, self._keys[0], json={"petId": 7}).json()
        self._expect(placed["id"] > max(self._placed), f"the id {placed['id']} is used twice")
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


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            orders="orders in the store before",
            rounds="how often writers are timed beside a backup and without",
            times="how many times as long the worst wait may be beside one",
            seed="chooses the orders",
        )
    )
