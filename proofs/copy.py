"""How long a shop takes to move to PostgreSQL, and how much memory: `flask db copy`.

Run it as `python -m proofs.copy`. It imports a year of orders into a new store, starts a PostgreSQL
server of its own (Debian's package postgresql), moves the store there, and has both checked.

Exits 1 unless the moved store is sound, has all orders, and the old one is served no more.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from orders.year import lives
from tests.support.postgres import running_postgres
from tests.support.service import ROOT, environment_for, run_flask
from tests.support.year import row_of

YEAR = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = ("petId", "quantity", "shipDate", "status", "placedAt", "updatedAt", "reference")


def main() -> int:
    """Move, print the figures, and give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proofs.copy", description=__doc__)
    parser.add_argument("--orders", type=int, default=200_000, help="how many there are")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = moved(Path(folder), arguments.orders)
    for fault in faults:
        print(f"VIOLATED: {fault}")
    return 1 if faults else 0


def moved(folder: Path, orders: int) -> list[str]:
    """Move a store that is made in a folder, print the figures; return what went wrong."""
    environment = environment_for(folder / "instance")
    _fill(folder / "year.csv", orders, environment)
    with running_postgres() as server:
        url = server.url(server.create())
        said, seconds, mebibytes = _measured(environment | {"ORDERS_COPY_TO": url})
        print(f"moved      {said}")
        print(f"took       {seconds:.1f} s in all; the command had {mebibytes:.0f} MiB at most")
        after = environment | {"ORDERS_DATABASE_URL": url}
        exported = run_flask("orders", "export", environment=after).stdout
        faults = {
            "the moved store is not sound": run_flask("db", "check", environment=after).returncode,
            "orders are missing": exported.count("\n") != orders + 1,
            "the old store is served": not run_flask("db", "check", environment=environment).stderr,
        }
    return [fault for fault, is_so in faults.items() if is_so]


def _fill(file: Path, orders: int, environment: dict[str, str]) -> None:
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(COLUMNS)
        writer.writerows(map(row_of, lives(orders, *YEAR, random.Random(1))))
    run_flask("orders", "import", str(file), environment=environment).check_returncode()


def _measured(environment: dict[str, str]) -> tuple[str, float, float]:
    """Run the command; return what it said of rows and time, its seconds and its peak in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "flask", "db", "copy"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        said = process.stderr.read() if process.stderr else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(said)
    return said.splitlines()[0], time.perf_counter() - began, used.ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
