"""A cluster, each part a process of this machine: PostgreSQL, Redis, nginx, services."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orders.settings import Settings
from orders.shop import database_of
from tests.proofs.core.clients import Key
from tests.support import stores as store
from tests.support.nginx import UNLIMITED, Nginx, free_port
from tests.support.postgres import Postgres, running_postgres
from tests.support.redis_server import RedisServer, redis_running
from tests.support.service import Service

_STORE = "shop"


class Stage:
    """A cluster that serves. Its services' ports stay the same, however often they are started."""

    def __init__(
        self, folder: Path, postgres: Postgres, redis: RedisServer, processes: int
    ) -> None:
        self.postgres, self.redis = postgres, redis
        self._folder = folder
        self._ports = [free_port() for _ in range(processes)]
        self._url = postgres.url(postgres.create(name=_STORE))
        self.fronts: list[Nginx] = []
        # One of them makes the tables, while the others wait for it.
        with ThreadPoolExecutor(processes) as pool:
            self.services = list(pool.map(self._started, range(processes)))
        self.nginx = self.front(processes)
        self.ca_certs = str(self.nginx.folder / "fullchain.pem")

    @property
    def url(self) -> str:
        return self.nginx.url

    @property
    def conninfo(self) -> str:
        """How the driver connects to the store's database."""
        return self.postgres.conninfo(_STORE)

    def front(self, processes: int) -> Nginx:
        """Start nginx in front of the first so many services."""
        folder = self._folder / f"nginx{len(self.fronts)}"
        folder.mkdir()
        ports = self._ports[:processes]
        # All of a proof's clients have one address.
        addresses = (f"127.0.0.1:{port}" for port in ports)
        self.fronts.append(Nginx(folder, *addresses, limits=UNLIMITED))
        return self.fronts[-1]

    def issue(
        self, *quotas: tuple[int, int], scopes: Sequence[str] = ("read", "write")
    ) -> list[Key]:
        """Issue a key for each (per minute, per day)."""
        settings = Settings(instance=self._folder, database_url=self._url)
        database, _ = database_of(settings, threads=1)
        try:
            made = store.issue(database, quotas, scopes)
        finally:
            database.close()
        return [Key(secret, f"key:{key_id}") for secret, key_id in made.items()]

    def start(self, number: int) -> float:
        """Start a service that has ended; return how many seconds it took until it served."""
        began = time.monotonic()
        self.services[number] = self._started(number)
        return time.monotonic() - began

    def add_webhook(self, url: str, types: Sequence[str]) -> None:
        wanted = [word for each in types for word in ("--event", each)]
        done = self.services[0].command("webhooks", "add", url, "--allow-private", *wanted)
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        for front in self.fronts:
            front.stop()
        for service in self.services:
            if service.process.poll() is None:
                service.stop()

    def _started(self, number: int) -> Service:
        return Service(
            self._folder / f"instance{number}",
            ORDERS_PORT=str(self._ports[number]),
            ORDERS_DATABASE_URL=self._url,
            ORDERS_LIMITS_URL=self.redis.url,
            ORDERS_TRUSTED_PROXY="127.0.0.1",
            ORDERS_METRICS="on",
        )


@contextmanager
def staged(folder: Path, processes: int, *, careless: bool = True) -> Iterator[Stage]:
    """Run a cluster of so many services. If careless, PostgreSQL doesn't wait for the disk."""
    with ExitStack() as resources:
        postgres = resources.enter_context(running_postgres(careless=careless))
        redis = resources.enter_context(redis_running(folder / "redis"))
        stage = Stage(folder, postgres, redis, processes)
        resources.callback(stage.close)
        yield stage
