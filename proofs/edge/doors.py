"""Clients that try to hold the door: beside each of them, others are answered at once."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from proofs.core.command import violated
from proofs.core.times import Read, Times
from proofs.edge.slow_client import connect, get
from tests.support.process import peak_mib
from tests.support.service import Service
from tests.support.wire import Wire

# The worst that others may meet, in seconds: of a probe, and of a single order with another key.
PROBE_SECONDS = 1.0
READ_SECONDS = 3.0
FILE_MIB = 1024
KERNEL_MIB = 100
LIST = "/v1/store/orders"


@dataclass(frozen=True)
class Attack:
    """What is sent on each of many connections; whether that is repeated, and answers read."""

    connections: int
    sent: bytes = b""
    reads: bool = False
    repeats: bool = False

    def run(self, address: tuple[str, int], seconds: float) -> None:
        """Attack for so long. For a process of its own."""
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2
        )
        ends = time.monotonic() + seconds
        with ExitStack() as held:
            for _ in range(self.connections):
                with suppress(OSError):
                    each = held.enter_context(connect(address, small_buffer=not self.reads))
                    each.settimeout(1)
                    Thread(target=self._go_on, args=(each, ends), daemon=True).start()
            time.sleep(max(0, ends - time.monotonic()))

    def _go_on(self, connection: socket.socket, ends: float) -> None:
        with suppress(OSError):
            connection.sendall(self.sent)
            while time.monotonic() < ends:
                if self.reads and not connection.recv(2**20):
                    return
                if self.repeats:
                    connection.sendall(self.sent)
                if not self.reads:
                    time.sleep(1)


def attacks(key: str) -> dict[str, Attack]:
    """Return the attacks by their names; `key` may only read."""
    orders = get(LIST, key)
    return {
        "silent connections": Attack(4_100),
        "blank lines": Attack(500, b"\r\n", repeats=True),
        "unread pages": Attack(150, get("/docs/swagger-ui-bundle.js")),
        "unread lists": Attack(30, orders),
        "lists, fast": Attack(24, orders, reads=True, repeats=True),
        "pipelined probes": Attack(1_500, get("/healthz") * 100, reads=True, repeats=True),
        "pipelined reads": Attack(500, get(f"{LIST}/1", key) * 100, reads=True, repeats=True),
    }


def hold_the_doors(service: Service, read: Read, read_key: str, seconds: float = 20) -> list[str]:
    """Run each attack for so long; print what others met, and return the violations."""
    violations = []
    for name, attack in attacks(read_key).items():
        with ProcessPoolExecutor(1) as pool:
            running = pool.submit(attack.run, service.address, seconds)
            probe, probes_lost = worst(service, "/healthz", None, running.done)
            order, orders_lost = worst(service, read.path, read.key, running.done)
            files, kernel = file_mib(service.process.pid), kernel_mib(service.address[1])
            running.result()
        print(f"{name:20} a probe {probe}; an order {order}; files {files:.0f} MiB", end="")
        print(
            f", kernel {kernel:.0f} MiB, at most {peak_mib(service.process.pid):.0f} MiB of memory"
        )
        violations += violated(
            {
                f"{name}: {probes_lost} probes were lost": probes_lost,
                f"{name}: {orders_lost} orders were lost": orders_lost,
                f"{name}: a probe took {probe}": probe.worst > PROBE_SECONDS * 1000,
                f"{name}: an order took {order}": order.worst > READ_SECONDS * 1000,
                f"{name}: {files:.0f} MiB of files": files > FILE_MIB,
                f"{name}: {kernel:.0f} MiB in the kernel": kernel > KERNEL_MIB,
            }
        )
    return violations


def worst(
    service: Service, path: str, key: str | None, is_over: Callable[[], bool], count: int = 40
) -> tuple[Times, int]:
    """Read a path over new connections; return the times, and how many were not answered 200."""
    taken, lost = [], 0
    while not taken or (len(taken) < count and not is_over()):
        began = time.monotonic()
        wire = Wire(service.address, key)
        try:
            lost += wire.ask("GET", path).status != 200  # noqa: PLR2004
        except OSError:
            lost += 1
        finally:
            wire.close()
        taken.append(time.monotonic() - began)
        time.sleep(0.05)
    return Times.of(taken), lost


def file_mib(pid: int) -> float:
    """Return the MiB of the files without a name that a process keeps."""
    sizes = {}
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if " (deleted)" in str(each.readlink()):
                found = each.stat()
                sizes[found.st_ino] = found.st_size
    return sum(sizes.values()) / 2**20


def kernel_mib(port: int) -> float:
    """Return the MiB that wait in the system's buffers of the service's connections."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    own = [each.split() for each in lines if each.split()[1].endswith(f":{port:04X}")]
    return sum(int(size, 16) for each in own for size in each[4].split(":")) / 2**20
