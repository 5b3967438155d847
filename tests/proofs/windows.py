"""The service as a program of Windows, under Wine, used from here: `… wine python.exe app.py`.

Orders are placed over HTTP, imported, exported; it is killed while it writes; backups are made,
restored for a test and for good. What was acknowledged has to be there. PROGRAM may be an
executable: `… wine store-orders.exe`; with the folder of its migrations one more is put there, and
the store upgraded. WINEPREFIX says where its Windows is.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import urllib3

from tests.support.service import ROOT

ORDERS = "/v1/store/orders"
PATIENCE_SECONDS = 120
# In Wine's own Windows.
FOLDER = "Store Orders, für die Theke"
NAME = "Theke „eins“ ąč"
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{after}", "{before}"


def upgrade():
    op.add_column("orders", sa.Column("colour", sa.String(16)))
"""


class Program:
    """The program over a new folder of Wine's drive C:."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._drive = Path(os.environ["WINEPREFIX"]) / "drive_c"
        shutil.rmtree(self._drive / "shop", ignore_errors=True)
        self.folder = self._drive / "shop" / FOLDER
        self._environment = {
            **os.environ,
            "ORDERS_INSTANCE": f"C:\\shop\\{FOLDER}",
            "ORDERS_PORT": "0",
        }

    def run(self, *arguments: str) -> str:
        """Run a command that has to work; return its output."""
        process = self.begin(*arguments)
        output, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, f"{arguments}: {output}{said}"
        return output

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the program. Wine's standard streams have to be pipes."""
        return subprocess.Popen(
            [*self._words, *arguments],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )

    def kill(self) -> None:
        """End it by TerminateProcess, which leaves it no time to clean up."""
        image = Path(self._words[1]).name
        subprocess.run(
            ["wine", "taskkill", "/F", "/IM", image],
            check=True,
            stdin=subprocess.PIPE,
            capture_output=True,
        )

    @contextmanager
    def serving(self, *, is_killed: bool = False) -> Iterator[Service]:
        """Serve, and stop by Ctrl-C unless it is to be killed meanwhile."""
        process, log = self.begin("--no-open"), [""]
        assert process.stderr
        while not (found := re.search(r"Serving on (\S+?)\. ", log[-1])):
            log.append(process.stderr.readline())
            assert log[-1], f"it did not start: {''.join(log)}"
        yield Service(found[1])
        if not is_killed:
            # To all that a console would send it to: of an executable, to what it unpacked, too.
            os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        has_stopped = process.returncode == 0 and said.rstrip().endswith("Stopped.")
        assert is_killed or has_stopped, f"{process.returncode} {said}"


class Service:
    """A running service."""

    key = ""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = urllib3.PoolManager(retries=False, timeout=PATIENCE_SECONDS)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """Send a request that has to work; return the response's JSON."""
        headers = {"Authorization": f"Bearer {Service.key}", "Idempotency-Key": os.urandom(8).hex()}
        response = self._http.request(method, self.url + path, headers=headers, **options)
        assert response.status in {200, 201}, response.data
        return response.json()

    def place(self, count: int) -> list[int]:
        """Place so many orders; return their ids."""
        return [self.ask("POST", ORDERS, json={"petId": 7})["id"] for _ in range(count)]

    def ids(self) -> set[int]:
        """Return the ids of all orders."""
        return {order["id"] for order in self.ask("GET", ORDERS)}


def try_killing(program: Program, kills: int) -> int:
    """Kill it so many times while it writes; return how many orders were acknowledged."""
    acknowledged: set[int] = set()
    for number in range(kills):
        with program.serving(is_killed=True) as service:
            assert acknowledged <= service.ids(), f"lost: {acknowledged - service.ids()}"

            def place(service: Service = service) -> None:
                with suppress(urllib3.exceptions.HTTPError):
                    while True:
                        acknowledged.update(service.place(1))

            clients = [threading.Thread(target=place) for _ in range(4)]
            for client in clients:
                client.start()
            before = len(acknowledged)
            while len(acknowledged) < before + 100 + number:
                time.sleep(0.01)
            program.kill()
            for client in clients:
                client.join()
    with program.serving() as service:
        assert acknowledged <= service.ids(), f"lost: {acknowledged - service.ids()}"
    return len(acknowledged)


def try_upgrading(program: Program, migrations: Path) -> None:
    """Upgrade the store by one more migration."""
    before = max(path.name[:4] for path in migrations.glob("versions/[0-9]*.py"))
    after = f"{int(before) + 1:04}"
    new = migrations / "versions" / f"{after}_one_day.py"
    new.write_text(MIGRATION.format(before=before, after=after))
    program.run("db", "upgrade")
    program.run("db", "check")


def try_all(program: Program, *, orders: int, kills: int, picture: Path | None) -> None:
    """Use the service as a shop does."""
    began = time.monotonic()
    with program.serving() as service:
        service.ask("GET", "/readyz")
        print(f"first answer after {time.monotonic() - began:.1f} s")
        issued = program.run("keys", "issue", NAME, "--plan", "enterprise", *PLENTY)
        Service.key = issued.strip()
        assert NAME in program.run("keys", "list")
        began = time.monotonic()
        placed = service.place(orders)
        print(f"{orders:,} orders over HTTP: {orders / (time.monotonic() - began):.0f} a second")
        lines = "".join(f"{pet},1,Ł-{pet}\r\n" for pet in range(1, 501))
        (program.folder / "some orders.csv").write_text(
            f"petId,quantity,reference\r\n{lines}", encoding="utf-8", newline=""
        )
        program.run("orders", "import", f"C:\\shop\\{FOLDER}\\some orders.csv")
        program.run("db", "backup", f"C:\\shop\\{FOLDER}\\mine.db")
        assert "sound" in program.run("db", "backups", "--now", "--check")
        there = service.ids()
        assert set(placed) <= there
        assert len(there) == orders + 500
        program.run("orders", "export", "C:\\shop\\export.csv", "--overwrite")
        exported = (program.folder.parent / "export.csv").read_text(encoding="utf-8")
        assert exported.count("Ł-") == 500
        assert len(exported.splitlines()) == orders + 501
        if picture:
            look_at_the_console(service, picture)
    check_rights(program.folder)
    print(f"killed {kills} times while it wrote: {try_killing(program, kills):,} orders, none lost")
    program.run("db", "restore", f"C:\\shop\\{FOLDER}\\mine.db", "--yes")
    with program.serving() as service:
        assert service.ids() == there, "not restored as it was"
    program.run("db", "check")
    print("imported, exported, backed up, drilled, restored, checked, stopped by Ctrl-C")


def check_rights(folder: Path) -> None:
    """Check that nobody else may read what is in the folder: Wine shows ACLs as modes."""
    for each in (folder, *folder.glob("*.db"), *folder.glob("backups/**/*")):
        assert not each.stat().st_mode & 0o007, f"{each} is for all: {each.stat().st_mode:o}"


def look_at_the_console(service: Service, picture: Path) -> None:
    """Sign in to the console in a browser, see orders to ship, and take a picture."""
    from tests.support.browser import expect, launched
    from tests.support.console import sign_in

    with launched() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(service.url)
        sign_in(page, Service.key)
        expect(page.get_by_role("button", name="Ship").first).to_be_visible()
        page.screenshot(path=picture)


PLENTY = ("--per-minute", "1000000", "--per-day", "100000000")


def main() -> int:
    """Read the command line, and try the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer orders, one kill, no browser")
    parser.add_argument("--migrations", type=Path, help="the program's folder of them")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    program = Program(given.program)
    picture = None if given.short else ROOT / "build" / "windows-console.png"
    orders, kills = (100, 1) if given.short else (1_000, 5)
    try_all(program, orders=orders, kills=kills, picture=picture)
    if given.migrations:
        try_upgrading(program, given.migrations)
        print("upgraded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
