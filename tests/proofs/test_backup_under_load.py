"""A backup while writers place orders, another that is killed, and the restore."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import time

import pytest

from tests.proofs.core.placing import Placing
from tests.support.machine import wait_until
from tests.support.service import ROOT, run_flask, running

pytestmark = pytest.mark.sqlite_only("a copy of a file while it is written")

WRITERS = 3
TRIES_TO_KILL = 10
PLENTY = ("--per-minute", "1000000", "--per-day", "1000000")


def kill_in_the_middle(service, file):
    """Kill a backup to this file once it copies; return whether it had not ended."""
    command = [sys.executable, "-m", "flask", "db", "backup", str(file)]
    with subprocess.Popen(
        command, cwd=ROOT, env=service.environment, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not list(file.parent.glob(f"*.unfinished/{file.name}")):
            time.sleep(0.001)
        process.kill()
        return process.wait() != 0


@pytest.mark.slow
def test_a_backup_under_load_has_all_orders_acknowledged_before_it_and_nothing_else(tmp_path):
    backup = tmp_path / "backups" / "backup.db"
    backup.parent.mkdir()
    with running(tmp_path / "instance") as service:
        placing = Placing(service, service.issue("enterprise", *PLENTY), WRITERS)
        with placing.going_on():
            wait_until(lambda: len(placing.acknowledged) > 300)
            for number in range(TRIES_TO_KILL):
                killed = backup.with_name(f"killed-{number}.db")
                if kill_in_the_middle(service, killed):
                    break
                killed.unlink()
            before = set(placing.acknowledged)
            service.output("db", "backup", str(backup))
    assert placing.statuses == {201}
    # Nothing is left of the killed backup: the next one has removed it.
    assert [path.name for path in backup.parent.iterdir()] == [backup.name]
    restored = run_flask("db", "restore", str(backup), environment=service.environment)
    assert restored.returncode == 0, restored.stderr
    exported = run_flask("orders", "export", environment=service.environment)
    found = {int(row["id"]) for row in csv.DictReader(io.StringIO(exported.stdout))}
    assert before <= found <= set(placing.acknowledged)
