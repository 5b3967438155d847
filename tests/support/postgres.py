"""A PostgreSQL server over a folder of its own, for tests and proofs.

The server refuses to run as root: then it runs as `postgres` or `nobody`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from orders.settings import Settings
from orders.shop import database_of
from orders.store.postgres.database import LOCKS, WRITING
from tests.support.machine import begin, installed

# Nothing here needs to survive a crash.
_CARELESS = ("fsync=off", "full_page_writes=off", "autovacuum=off", "wal_level=minimal")
_QUICK = ("listen_addresses=", "max_wal_senders=0", "max_connections=200")
_TEMPLATE = "made"


def binaries() -> Path:
    """Return the folder of the server's programs."""
    if chosen := os.environ.get("PG_BIN"):
        return Path(chosen)
    of_debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return (of_debian or [Path(installed("initdb", package="postgresql")).resolve()])[-1].parent


def _as_somebody() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    import pwd  # which Windows lacks

    names = {each.pw_name: each for each in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class Postgres:
    """A server that listens on a socket in its folder."""

    def __init__(self, *, careless: bool = True, memory: str = "32MB") -> None:
        """Make its folder, and start it. With `careless`, it doesn't wait for the disk."""
        self._settings = (*(_CARELESS if careless else ()), *_QUICK, f"shared_buffers={memory}")
        self.bin = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir=os.environ.get("PG_FOLDER")))
        self.data = self.folder / "data"
        self._somebody = _as_somebody()
        if self._somebody:
            os.chown(self.folder, self._somebody["user"], self._somebody["group"])
        self._numbers = itertools.count()
        self._run("initdb", "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "-D", self.data)
        self.start()

    def _run(self, program: str, *arguments: object) -> None:
        subprocess.run(
            [str(self.bin / program), *map(str, arguments)],
            check=True,
            capture_output=True,
            cwd=self.folder,
            timeout=60,
            **self._somebody,
        )

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        settings = [word for each in self._settings for word in ("-c", each)]
        with (self.folder / "log").open("ab") as log:
            self.process = begin(
                [self.bin / "postgres", "-D", self.data, "-k", self.folder, *settings],
                self._accepts_connections,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                **self._somebody,
            )

    def _accepts_connections(self) -> bool:
        try:
            psycopg.connect(self.conninfo("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it at once: connections are ended, and transactions rolled back."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(60)

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Suspend all its processes: connections stay open, new ones too, and nothing answers."""
        # The first of them can't begin others while it is suspended.
        self.process.send_signal(signal.SIGSTOP)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        processes = list(map(int, children.read_text(encoding="ascii").split()))
        for each in processes:
            os.kill(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in (*processes, self.process.pid):
                os.kill(each, signal.SIGCONT)

    def remove(self) -> None:
        """Stop it, and remove its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def conninfo(self, name: str) -> str:
        """Return how the driver connects to one of its databases."""
        return f"host={self.folder} user=postgres dbname={name}"

    def url(self, name: str) -> str:
        """Return what ORDERS_DATABASE_URL is for one of its databases."""
        return f"postgresql+psycopg://postgres@/{name}?host={self.folder}"

    def execute(self, statement: Any, name: str = "postgres") -> list[tuple[Any, ...]]:
        """Execute a statement by itself; return its rows, if it has any."""
        with psycopg.connect(self.conninfo(name), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def create(self, template: str = "template0", name: str | None = None) -> str:
        """Make a database; return its name."""
        name = name or f"shop{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return name

    def make_template(self, folder: Path) -> None:
        """Make a database with the tables, which is faster to copy than to make."""
        self.create(name=_TEMPLATE)
        database, upkeep = database_of(
            Settings(instance=folder, database_url=self.url(_TEMPLATE)), threads=1
        )
        upkeep.prepare()
        database.close()

    def create_store(self, name: str | None = None) -> str:
        """Make a database with the tables, and an id of its own; return its name."""
        name = self.create(_TEMPLATE, name)
        self.execute("UPDATE store SET store_id = substr(md5(random()::text), 1, 16)", name)
        return name

    def drop(self, name: str) -> None:
        """Remove a database, even while it is in use."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    @contextmanager
    def away(self, name: str) -> Iterator[None]:
        """Make a database reject all connections."""
        self.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        self.end_connections(name)
        try:
            yield
        finally:
            self.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the writers' lock in another connection."""
        with psycopg.connect(self.conninfo(name)) as other:
            other.execute(f"SELECT pg_advisory_xact_lock({LOCKS}, {WRITING})")
            yield

    def is_being_written(self, name: str) -> bool:
        """Return whether a transaction has begun to write."""
        locks = sql.SQL(
            "SELECT 1 FROM pg_locks JOIN pg_database ON database = pg_database.oid "
            "WHERE datname = {} AND mode = 'RowExclusiveLock'"
        )
        return bool(self.execute(locks.format(name)))

    def waiting_writers(self, name: str) -> list[int]:
        """Return the server's processes that wait for the lock that all writers take."""
        found = self.execute(
            sql.SQL(
                "SELECT pid FROM pg_stat_activity WHERE datname = {} "
                "AND wait_event_type = 'Lock' AND wait_event = 'advisory'"
            ).format(name)
        )
        return [process for (process,) in found]

    def add_trigger(
        self,
        name: str,
        body: str,
        table: str = "orders",
        when: str = "TRIGGER meddle BEFORE INSERT ON {} FOR EACH ROW",
    ) -> None:
        """Make a database do something else, too, whenever rows are inserted."""
        function = "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql"
        self.execute(
            f"{function} AS $$ BEGIN {body} END $$; "
            f"CREATE {when.format(table)} EXECUTE FUNCTION meddle()",
            name,
        )

    def end_connections(self, name: str) -> list[tuple[Any, ...]]:
        """End all connections to a database, as an administrator can."""
        end = sql.SQL(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = {} AND pid <> pg_backend_pid()"
        )
        return self.execute(end.format(name))


@contextmanager
def running_postgres(*, careless: bool = True) -> Iterator[Postgres]:
    """Run a server; remove it at the end."""
    server = Postgres(careless=careless)
    try:
        yield server
    finally:
        server.remove()
