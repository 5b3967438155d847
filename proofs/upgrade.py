"""The procedure of docs/operations.md: an older database upgraded by this program, and rolled back.

The last program that had only the first schema is taken out of git's history, fills a store and
serves it; the store is upgraded and used, and goes back to that program by the copy that the
upgrade kept. The upgraded store must answer version 1 byte for byte as before, keys and
Idempotency-Keys must work on, and the old program must refuse the newer database; after the
rollback it must have what it had, use no id twice, and take the orders placed in between.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofs.core import command
from tests.support.service import ROOT, Service, environment_for, run_flask, running

ORDERS = "/v1/store/orders"
SECOND_SCHEMA = "orders/store/migrations/versions/0002_version_2.py"
PLACED_BEFORE = 12
PLACED_SINCE = 10
SKIPPED_IDS = 1_000_000
EXIT_CANNOT_START = 2
CREATED = 201
PLAN = "[plans.trial]\nper_minute = 1000000\nper_day = 1000000\n"


def prove(folder: Path, *, orders: int = 20_000) -> list[str]:
    """Upgrade and roll back in a folder, print each step; return the violations."""
    walk = Walk(folder, orders)
    walk.fill_with_the_old_program()
    walk.upgrade()
    walk.work_with_the_new_program()
    walk.roll_back()
    walk.take_what_was_placed_since()
    return walk.faults


def take_older_program(folder: Path) -> str:
    """Unpack the program before its second schema; return its commit.

    Raises:
        LookupError: git's history does not go back so far, as in a shallow clone.
    """
    added = _git("log", "--diff-filter=A", "--format=%H", "--", SECOND_SCHEMA).decode().split()
    if not added:
        raise LookupError("git's history does not go back to the first schema: fetch all of it")
    commit = _git("rev-parse", "--short", f"{added[-1]}^").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit))) as packed:
        packed.extractall(folder, filter="data")
    return commit


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout  # noqa: S603, S607


@dataclass
class Walk:
    """The store on its way, and what was seen of it."""

    folder: Path
    orders: int
    faults: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    known: bytes = b""
    highest: int = 0
    safely: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def old(self) -> Path:
        """The older program."""
        return self.folder / "old"

    @property
    def instance(self) -> Path:
        """The instance folder, which stays where it is."""
        return self.folder / "instance"

    @property
    def since(self) -> Path:
        """What is exported before the rollback."""
        return self.folder / "since.csv"

    def fill_with_the_old_program(self) -> None:
        """Import orders, and let clients place, ship and cancel some."""
        commit = take_older_program(self.old)
        self.instance.mkdir(mode=0o700)
        (self.instance / "config.toml").write_text(PLAN, encoding="utf-8")
        rows = "\n".join(f"{number % 97 + 1}" for number in range(self.orders))
        (self.folder / "first.csv").write_text(f"petId\n{rows}\n", encoding="utf-8")
        with running(self.instance, root=self.old) as service:
            self._command("orders", "import", str(self.folder / "first.csv"), root=self.old)
            for name in ("shop", "partner"):
                self.keys[name] = service.issue("trial")
            for number in range(PLACED_BEFORE):
                self._place_safely(service, f"before-{number}")
            self._ask(service, "POST", f"{ORDERS}/1/ship")
            self._ask(service, "DELETE", f"{ORDERS}/2")
            self.known = self._ask(service, "GET", ORDERS)
        self.highest = max(order["id"] for order in json.loads(self.known))
        print(f"filled     {self.highest:,} orders, by the program of {commit}")

    def upgrade(self) -> None:
        """Bring the database's schema up to this program's."""
        began = time.perf_counter()
        said = self._command("db", "upgrade")
        print(f"upgraded   in {time.perf_counter() - began:.1f} s: {said}")
        if not list(self.instance.glob("orders-before-*.db")):
            self.faults.append("the upgrade kept no copy")

    def work_with_the_new_program(self) -> None:
        """See that all is there, and change something of everything."""
        with running(self.instance) as service:
            self._expect("the list of version 1", self._ask(service, "GET", ORDERS) == self.known)
            for name, order in self.safely.items():
                replayed = self._place_safely(service, name)
                self._expect(f"the answer of before to {name}", replayed == order)
            stats = json.loads(self._ask(service, "GET", "/v2/store/stats"))
            self._expect(
                "the figures of version 2", sum(stats["byStatus"].values()) == self.highest
            )
            for number in range(PLACED_SINCE):
                self._place_safely(service, f"since-{number}")
            self._ask(service, "POST", f"{ORDERS}/3/ship")
            self._command("keys", "revoke", "2")
            self._command("db", "check")
        print(f"worked     {PLACED_SINCE} orders placed, one shipped, a key revoked; it is sound")

    def roll_back(self) -> None:
        """Go back to the older program, as docs/operations.md says."""
        self._command("orders", "export", str(self.since))
        (kept,) = self.instance.glob("orders-before-*.db")
        environment = environment_for(self.instance)
        del environment["ORDERS_BACKUPS"]  # which the old program does not know
        refused = subprocess.run(
            [sys.executable, "app.py"],
            cwd=self.old,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self._expect("a refusal by the old program", refused.returncode == EXIT_CANNOT_START)
        print(f"refused    {refused.stderr.strip()}")
        said = self._command("db", "restore", str(kept), "--keep-keys", root=self.old)
        print(f"restored   {said}")
        with running(self.instance, root=self.old) as service:
            listed = self._ask(service, "GET", ORDERS)
            self._expect("the list of before the upgrade", listed == self.known)
            partner = service.request("GET", f"{ORDERS}/1", self.keys["partner"])
            print(f"lost       that a key was revoked: it is answered {partner.status} again")

    def take_what_was_placed_since(self) -> None:
        """Import the orders that were placed between the upgrade and the rollback."""
        with self.since.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        placed = [row for row in rows if int(row["id"]) > self.highest]
        with (self.folder / "placed.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(placed)
        self._command("keys", "revoke", "2", root=self.old)
        with running(self.instance, root=self.old) as service:
            self._command("orders", "import", str(self.folder / "placed.csv"), root=self.old)
            listed = {order["id"] for order in json.loads(self._ask(service, "GET", ORDERS))}
            self._expect("all orders placed since", {int(row["id"]) for row in placed} <= listed)
            following = self._place_safely(service, "after")
            self._expect("ids that go on above", following["id"] > self.highest + SKIPPED_IDS)
        print(f"taken      {len(placed)} orders placed since; the next was {following['id']:,}")

    def _place_safely(self, service: Service, name: str) -> dict[str, Any]:
        response = service.request(
            "POST", ORDERS, self.keys["shop"], json={"petId": 7}, headers={"Idempotency-Key": name}
        )
        self._expect(f"an order for {name}", response.status == CREATED)
        self.safely.setdefault(name, response.json())
        order: dict[str, Any] = response.json()
        return order

    def _ask(self, service: Service, method: str, path: str) -> bytes:
        response = service.request(method, path, self.keys["shop"])
        self._expect(f"{method} {path}", response.status < 300)  # noqa: PLR2004 - a success
        return response.data

    def _command(self, *arguments: str, root: Path = ROOT) -> str:
        environment = environment_for(self.instance)
        done = run_flask(*arguments, environment=environment, root=root)
        self._expect(f"flask {' '.join(arguments)}: {done.stderr}", done.returncode == 0)
        return " ".join(done.stderr.split()).replace(str(self.folder), "…")

    def _expect(self, what: str, is_so: bool) -> None:
        if not is_so:
            self.faults.append(what)


if __name__ == "__main__":
    sys.exit(command.run(prove, orders="orders in the store before"))
