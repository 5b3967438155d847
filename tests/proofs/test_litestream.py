"""A lost disk, and the shop from Litestream's copy, by the steps of docs/litestream.md."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.proofs.core.placing import ORDERS, Placing
from tests.support.machine import begin, end, wait_until
from tests.support.service import ROOT, environment_for, run_flask, running

pytestmark = pytest.mark.sqlite_only("Litestream copies SQLite's files")

DEPLOYED = ROOT / "deploy" / "litestream"
PROGRAMS = Path(sys.executable).parent
PLENTY = ("--per-minute", "1000000", "--per-day", "1000000")
# It copies once a second.
LIVES_ON_SECONDS = 2.0


def flask(instance, *arguments):
    done = run_flask(*arguments, environment=environment_for(instance))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_data_that_litestream_had_time_to_copy_outlives_the_disk_with_keys_and_new_ids(tmp_path):
    lost, found, replica = (tmp_path / name for name in ("lost", "found", "replica"))
    surroundings = {
        **os.environ,
        "ORDERS_INSTANCE": str(lost),
        "LITESTREAM_URL": f"file://{replica}",
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
    }
    with running(lost) as service, (tmp_path / "log").open("ab") as log:
        key = service.issue("enterprise", *PLENTY)
        process = begin(
            [str(DEPLOYED / "replicate")],
            lambda: list(replica.rglob("*.ltx")),
            env=surroundings,
            stdout=log,
            stderr=log,
        )
        try:
            placing = Placing(service, key, clients=3)
            with placing.going_on():
                wait_until(lambda: len(placing.acknowledged) > 300)
                service.process.kill()
                time.sleep(LIVES_ON_SECONDS)
            refused = run_flask("db", "restore", "none.db", environment=service.environment)
            process.kill()
        finally:
            end(process)
    assert refused.returncode == 1
    shutil.rmtree(lost)
    copy = tmp_path / "restored.db"
    config = ("-config", str(DEPLOYED / "litestream.yml"), "-integrity-check", "full")
    subprocess.run(
        [PROGRAMS / "litestream", "restore", *config, "-o", copy, lost / "orders.db"],
        env={**surroundings, "LITESTREAM_START": max(replica.iterdir()).name},
        check=True,
        capture_output=True,
    )
    found.mkdir(mode=0o700)
    flask(found, "db", "restore", str(copy), "--keep-keys")
    flask(found, "db", "check")
    rows = csv.DictReader(io.StringIO(flask(found, "orders", "export")))
    restored = {int(row["id"]) for row in rows}
    assert set(placing.acknowledged) <= restored
    with running(found) as service:
        placed = service.request("POST", ORDERS, key, json={"petId": 7})
    assert placed.status == 201
    assert placed.json()["id"] > max(restored)
