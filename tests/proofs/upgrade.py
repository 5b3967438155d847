"""The procedure of docs/operations.md: an older database upgraded by this program, and rolled back.

The last program before orders had notes is taken out of git's history, fills a store and serves it;
the store is upgraded and used, and goes back to that program by the copy that the upgrade kept. The
upgraded store must answer as before: version 1 byte for byte, version 2's orders, events, cursors
and ETags. Keys, Idempotency-Keys and webhooks must go on, and the old program must refuse the newer
database; after the rollback it must have what it had, use no id twice, and take the orders placed
in between.
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
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.proofs.core import command
from tests.support.machine import wait_until
from tests.support.receiver import Receiver, receiving
from tests.support.service import ROOT, Service, environment_for, run_flask, running

ORDERS, ORDERS_V2 = "/v1/store/orders", "/v2/store/orders"
NEXT_SCHEMA = "orders/store/care/migrations/versions/0009_notes_and_changes.py"
# Of a shipment whose answer was lost.
LOST = {"Idempotency-Key": "a-shipment"}
SORTS = ("id", "-placedAt", "shipDate")
PLACED_BEFORE = 12
PLACED_SINCE = 10
SKIPPED_IDS = 1_000_000
EXIT_CANNOT_START = 2
PLAN = "[plans.trial]\nper_minute = 1000000\nper_day = 1000000\n"


def prove(folder: Path, *, orders: int = 20_000) -> list[str]:
    """Upgrade and roll back in a folder, print each step; return the violations."""
    with receiving() as receiver:
        walk = Walk(folder, orders, receiver)
        walk.fill_with_the_old_program()
        walk.upgrade()
        walk.work_with_the_new_program()
        walk.roll_back()
        walk.take_what_was_placed_since()
        return walk.faults


def take_older_program(folder: Path) -> str:
    """Unpack the last program before a schema; return its commit.

    Raises:
        LookupError: git's history does not go back so far, as in a shallow clone.
    """
    added = _git("log", "--diff-filter=A", "--format=%H", "--", NEXT_SCHEMA).decode().split()
    if not added:
        raise LookupError("git's history does not go back so far: fetch all of it")
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
    receiver: Receiver
    faults: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    known: bytes = b""
    highest: int = 0
    # What clients remember: orders by path and Idempotency-Key, pages and ETags by path.
    safely: dict[tuple[str, str], Any] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)

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
            self._command("webhooks", "add", self.receiver.url, "--allow-private", root=self.old)
            for number in range(PLACED_BEFORE):
                self._place_safely(service, (ORDERS, ORDERS_V2)[number % 2], f"before-{number}")
            wait_until(lambda: len(self.receiver.received) == PLACED_BEFORE)
            self._command("webhooks", "pause", "1", root=self.old)
            self._ask(service, "POST", f"{ORDERS_V2}/1/ship", headers=LOST)
            self._ask(service, "DELETE", f"{ORDERS}/2")
            self.known = self._ask(service, "GET", ORDERS)
            self._remember(service)
        self.highest = max(order["id"] for order in json.loads(self.known))
        print(f"filled     {self.highest:,} orders, by the program of {commit}")

    def _remember(self, service: Service) -> None:
        """Read what clients of version 2 remember: pages and where they ended, orders, events."""
        paths = [f"{ORDERS_V2}/1", f"{ORDERS_V2}/{self.orders + 1}", f"{ORDERS_V2}/1/events"]
        paths.append(f"/v2/store/events?after={self.orders}")
        for sort in SORTS:
            page = f"{ORDERS_V2}?sort={sort}&limit=5"
            following = json.loads(self._ask(service, "GET", page))["next"]
            paths += [page, f"{page}&after={following}"]
        for path in paths:
            response = service.request("GET", path, self.keys["shop"])
            self.seen[path] = _shown(response.json())
            if "ETag" in response.headers:
                self.tags[path] = response.headers["ETag"]
        self.sent = [event["id"] for event in self.seen[paths[3]]]

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
            for (path, name), order in self.safely.items():
                replayed = self._place_safely(service, path, name)
                self._expect(f"the answer of before to {name}", replayed == order)
            self._go_on_as_clients(service)
            stats = json.loads(self._ask(service, "GET", "/v2/store/stats"))
            counted = sum(stats["byStatus"].values())
            self._expect("the figures of version 2", counted == self.highest + 1)
            for number in range(PLACED_SINCE):
                self._place_safely(service, ORDERS, f"since-{number}")
            self._ask(service, "POST", f"{ORDERS}/3/ship")
            self._command("keys", "revoke", "2")
            self._command("db", "check")
        print(f"worked     {PLACED_SINCE} orders placed, one shipped, a key revoked; it is sound")

    def _go_on_as_clients(self, service: Service) -> None:
        """See that what was remembered is true; that a webhook goes on; that a cursor begins anew.

        Its types stay as they are, so that the change of an order is not among them.
        """
        for path, seen in self.seen.items():
            now = json.loads(self._ask(service, "GET", path))
            self._expect(f"what was at {path}", _shown(now) == seen)
        for path, tag in self.tags.items():
            same = service.request("GET", path, self.keys["shop"], headers={"If-None-Match": tag})
            self._expect(f"an ETag of {path}", same.status == HTTPStatus.NOT_MODIFIED)
        again = service.request("POST", f"{ORDERS_V2}/1/ship", self.keys["shop"], headers=LOST)
        # That program remembered the keys of placings only.
        self._expect("a shipment not made twice", again.status == HTTPStatus.CONFLICT)
        (stale,) = (path for path in self.seen if f"{SORTS[0]}&limit=5&after" in path)
        other = service.request("GET", f"{stale}&petId=7", self.keys["shop"])
        refused = other.status == HTTPStatus.UNPROCESSABLE_ENTITY and "begin again" in str(
            other.data
        )
        self._expect("a cursor of another list to be refused", refused)
        self._ask(service, "PATCH", f"{ORDERS_V2}/3", json={"note": "a gift"})
        self._place_safely(service, ORDERS_V2, "delivered")
        self._command("webhooks", "resume", "1")
        wait_until(lambda: len(self.receiver.received) > len(self.sent))
        last = self.sent[-1] + 2  # after the change
        self._expect("each event sent once", self.receiver.events == [*self.sent, last])

    def roll_back(self) -> None:
        """Go back to the older program, as docs/operations.md says."""
        self._command("orders", "export", str(self.since))
        (kept,) = self.instance.glob("orders-before-*.db")
        refused = subprocess.run(
            [sys.executable, "app.py"],
            cwd=self.old,
            env=environment_for(self.instance),
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
            known = [name for name in rows[0] if name != "note"]  # as the old program asks for
            writer = csv.DictWriter(file, known, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(placed)
        self._command("keys", "revoke", "2", root=self.old)
        with running(self.instance, root=self.old) as service:
            self._command("orders", "import", str(self.folder / "placed.csv"), root=self.old)
            listed = {order["id"] for order in json.loads(self._ask(service, "GET", ORDERS))}
            self._expect("all orders placed since", {int(row["id"]) for row in placed} <= listed)
            following = self._place_safely(service, ORDERS, "after")
            self._expect("ids that go on above", following["id"] > self.highest + SKIPPED_IDS)
        print(f"taken      {len(placed)} orders placed since; the next was {following['id']:,}")

    def _place_safely(self, service: Service, path: str, name: str) -> dict[str, Any]:
        headers = {"Idempotency-Key": name}
        order = json.loads(self._ask(service, "POST", path, json={"petId": 7}, headers=headers))
        self.safely.setdefault((path, name), order)
        return dict(order)

    def _ask(self, service: Service, method: str, path: str, **request: Any) -> bytes:
        response = service.request(method, path, self.keys["shop"], **request)
        is_done = response.status < HTTPStatus.BAD_REQUEST
        self._expect(f"{method} {path}: {response.status}", is_done)
        return response.data

    def _command(self, *arguments: str, root: Path = ROOT) -> str:
        environment = environment_for(self.instance)
        done = run_flask(*arguments, environment=environment, root=root)
        self._expect(f"flask {' '.join(arguments)}: {done.stderr}", done.returncode == 0)
        return " ".join(done.stderr.split()).replace(str(self.folder), "…")

    def _expect(self, what: str, is_so: bool) -> None:
        if not is_so:
            self.faults.append(what)


def _shown(answer: dict[str, Any]) -> Any:
    """Return what a page, or an order, shows: `next` and `more` of events are told otherwise."""
    return answer.get("events", answer)


if __name__ == "__main__":
    sys.exit(command.run(prove, orders="orders in the store before"))
