"""A continuous copy by Litestream: what it costs, what goes on beside it, what a lost disk loses.

Writers place orders without Litestream and beside it; beside it, a backup is made, and a restore is
refused. Then the disk is lost twice: the service is killed under load and its folder is removed,
once while Litestream lives on for two seconds, once with Litestream killed at the same moment. Both
were killed once before, and begun anew. Each time the shop is restored in another folder, as
docs/litestream.md says, and goes on there: with its keys, with ids that were never used, and with
each acknowledged order that Litestream had time for.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orders.cli.output import say_working
from tests.proofs.backup import PLAN, WRITERS
from tests.proofs.core import command
from tests.proofs.core.placing import ORDERS, Placing
from tests.proofs.core.times import Times
from tests.support.machine import begin, end
from tests.support.process import peak_mib
from tests.support.service import ROOT, Service, environment_for, run_flask, running

DEPLOYED = ROOT / "deploy" / "litestream"
# It copies once a second.
LIVES_ON_SECONDS = 2.0
MOST_LOST_SECONDS = 10.0
# The service's own bound, and as much again for what is written until it is noticed.
MOST_LOG_BYTES = 2 * 64 * 2**20
CREATED = 201


def prove(folder: Path, *, seconds: float = 60.0) -> list[str]:
    """Lose a shop twice, print the figures; return the violations."""
    say_working("Copying, killing, restoring")
    trial = Trial(folder, seconds)
    trial.compare_costs()
    trial.lose("outlived it by 2 s", LIVES_ON_SECONDS)
    trial.lose("killed with it", 0.0)
    trial.go_on()
    return trial.faults


class Trial:
    """A shop that moves from one lost disk to the next, and the violations."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """Take a folder to work in, and how long writers place orders each time."""
        self._folder, self._seconds = folder, seconds
        self._disk = 0
        self._key = ""
        self._highest = 0
        self.faults: list[str] = []
        self._instance.mkdir(mode=0o700)
        (self._instance / "config.toml").write_text(PLAN, encoding="utf-8")

    def compare_costs(self) -> None:
        """Place orders without Litestream and beside it, with a backup; try a restore."""
        backup = self._folder / "backup.db"
        with running(self._instance) as service:
            self._key = service.issue("writers")
            quiet, beside = self._placing(service), self._placing(service)
            with quiet.going_on():
                time.sleep(self._seconds)
            with self._litestream() as process:
                with beside.going_on():
                    longest = self._longest_log()
                    self._flask("db", "backup", str(backup))
                memory, copied = peak_mib(process.pid), _size(self._replica)
                service.stop()
                refused = run_flask("db", "restore", str(backup), environment=self._environment)
        print(f"without Litestream {Times.of(quiet.seconds)}")
        print(f"beside Litestream  {Times.of(beside.seconds)}")
        print(f"its memory         {memory:.0f} MiB; its copy {copied / 1e6:.1f} MB")
        print(f"write-ahead log    {longest / 1e6:.1f} MB at most")
        print(f"a restore beside   {refused.stderr.splitlines()[-1]}")
        statuses = quiet.statuses | beside.statuses
        self._expect(statuses == {CREATED}, f"writers were answered {statuses}")
        self._expect(longest < MOST_LOG_BYTES, f"the log grew to {longest:,} bytes")
        is_plain = refused.returncode == 1 and "Stop what uses it" in refused.stderr
        self._expect(is_plain, f"a restore beside Litestream: {refused.stderr}")

    def kill(self, lives_on: float) -> None:
        """Kill the service under load, and then Litestream. Both begin anew after this."""
        with running(self._instance) as service, self._litestream() as process:
            with self._placing(service).going_on():
                time.sleep(self._seconds / 2)
                service.process.kill()
                time.sleep(lives_on)
            process.kill()

    def lose(self, how: str, lives_on: float) -> None:
        """Kill the service under load, remove its folder, and restore the shop in another."""
        with running(self._instance) as service, self._litestream() as process:
            before = set(self._ids())
            placing = self._placing(service)
            with placing.going_on():
                time.sleep(self._seconds)
                service.process.kill()
                killed = time.monotonic()
                time.sleep(lives_on)
                process.kill()
        shutil.rmtree(self._instance)
        seconds = self._restore()
        found = set(self._ids())
        lost = (before | set(placing.acknowledged)) - found
        behind = max((killed - placing.acknowledged.get(each, 0.0) for each in lost), default=0.0)
        print(
            f"{how:<19}{len(lost):,} of {len(placing.acknowledged):,} acknowledged orders lost, ",
            end="",
        )
        print(f"of the last {behind:.1f} s; restored in {seconds:.1f} s")
        self._highest = max(found | set(placing.acknowledged))
        most = 0.0 if lives_on else MOST_LOST_SECONDS
        self._expect(
            behind <= most, f"{how}: {len(lost)} orders of the last {behind:.1f} s are lost"
        )
        surplus = len(found - before - set(placing.acknowledged))
        self._expect(surplus <= WRITERS, f"{how}: {surplus} orders are there that nobody placed")

    def go_on(self) -> None:
        """Check the shop, and place an order with the key of before."""
        self._flask("db", "check")
        with running(self._instance) as service:
            placed = service.request("POST", ORDERS, self._key, json={"petId": 7})
        self._expect(placed.status == CREATED, f"the key of before is answered {placed.status}")
        next_id = placed.json().get("id", 0)
        print(f"the next id        {next_id:,}, after {self._highest:,}")
        self._expect(next_id > self._highest, f"the id {next_id} is used twice")

    @property
    def _instance(self) -> Path:
        return self._folder / f"instance-{self._disk}"

    @property
    def _replica(self) -> Path:
        return self._folder / f"elsewhere-{self._disk}"

    @property
    def _environment(self) -> dict[str, str]:
        return environment_for(self._instance)

    def _placing(self, service: Service) -> Placing:
        return Placing(service, self._key, WRITERS)

    @contextmanager
    def _litestream(self) -> Iterator[subprocess.Popen[bytes]]:
        before = set(self._replica.glob("*"))
        with (self._folder / "litestream.log").open("ab") as log:
            process = begin(
                [str(DEPLOYED / "replicate")],
                lambda: [
                    place
                    for place in set(self._replica.glob("*")) - before
                    if list(place.rglob("*.ltx"))
                ],
                env=self._surroundings,
                stdout=log,
                stderr=log,
            )
            try:
                yield process
            finally:
                end(process)

    @property
    def _surroundings(self) -> dict[str, str]:
        where = {
            "ORDERS_INSTANCE": str(self._instance),
            "LITESTREAM_URL": f"file://{self._replica}",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        return {**os.environ, **where}

    def _restore(self) -> float:
        """Restore in another folder what is elsewhere; return after how many seconds."""
        began = time.perf_counter()
        copy = self._folder / "restored.db"
        newest = max(self._replica.iterdir()).name
        litestream = Path(sys.executable).with_name("litestream")
        config = ("-config", str(DEPLOYED / "litestream.yml"), "-integrity-check", "full")
        subprocess.run(  # noqa: S603 - Litestream
            [litestream, "restore", *config, "-o", copy, self._instance / "orders.db"],
            env={**self._surroundings, "LITESTREAM_START": newest},
            check=True,
            capture_output=True,
        )
        self._disk += 1
        self._instance.mkdir(mode=0o700)
        (self._instance / "config.toml").write_text(PLAN, encoding="utf-8")
        self._flask("db", "restore", str(copy), "--keep-keys")
        copy.unlink()
        return time.perf_counter() - began

    def _longest_log(self) -> int:
        log, longest = self._instance / "orders.db-wal", 0
        ends = time.monotonic() + self._seconds
        while time.monotonic() < ends:
            time.sleep(0.1)
            longest = max(longest, log.stat().st_size)
        return longest

    def _ids(self) -> Iterator[int]:
        exported = self._flask("orders", "export")
        return (int(row["id"]) for row in csv.DictReader(io.StringIO(exported)))

    def _flask(self, *arguments: str) -> str:
        done = run_flask(*arguments, environment=self._environment)
        if done.returncode:
            raise AssertionError(f"flask {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def _expect(self, so: bool, otherwise: str) -> None:
        if not so:
            self.faults.append(otherwise)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(command.run(prove, seconds="how long orders are placed, each of four times"))
