"""Clients that try to hog connections: beside each of them, others are answered at once."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from tests.proofs.core.command import violated
from tests.proofs.core.times import Read, Times
from tests.proofs.edge.slow_readers import LIST, connect, get
from tests.support.machine import PATIENCE_SECONDS, wait_until
from tests.support.process import descriptors, peak_mib, resident_mib
from tests.support.service import Service
from tests.support.wire import Wire

# The worst that others may meet, in seconds: of a probe, and of a single order with another key.
PROBE_SECONDS, READ_SECONDS = 1.0, 3.0
FILE_MIB, KERNEL_MIB = 1024, 100
# The most memory that all attacks together may leave behind.
MOST_KEPT_MIB = 100
MOST_KEPT_DESCRIPTORS = 40
DRIP_SECONDS = 0.5
HEAD = f"GET {LIST} HTTP/1.1\r\nHost: bench\r\nX-Drip: ".encode()
BODY = f"POST {LIST} HTTP/1.1\r\nHost: bench\r\nContent-Length: 100000\r\n\r\n".encode()
_TIMED_OUT = b"408"


@dataclass(frozen=True)
class Attack:
    """What is sent on each of many connections; whether that is repeated, and answers read.

    Where it `drips`, a byte more is sent now and then, until there is an answer: 408 in time.
    """

    connections: int
    sent: bytes = b""
    reads: bool = False
    repeats: bool = False
    drips: bool = False

    def run(self, address: tuple[str, int], seconds: float) -> int:
        """Attack for so long; return how many that dripped got no 408. For a process of its own."""
        import resource  # which Windows lacks

        resource.setrlimit(
            resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2
        )
        ends = time.monotonic() + seconds
        statuses: list[bytes] = []
        clients: list[Thread] = []
        with ExitStack() as held:
            for _ in range(self.connections):
                with suppress(OSError):
                    each = held.enter_context(connect(address, small_buffer=not self.reads))
                    each.settimeout(DRIP_SECONDS if self.drips else 1)
                    arguments = (each, ends, statuses)
                    clients.append(Thread(target=self._go_on, args=arguments, daemon=True))
                    clients[-1].start()
            time.sleep(max(0, ends - time.monotonic()))
            # However slow this machine is, dripping clients are answered in the end.
            for client in clients if self.drips else ():
                client.join(max(0, ends + PATIENCE_SECONDS - time.monotonic()))
        return self.connections - statuses.count(_TIMED_OUT) if self.drips else 0

    def _go_on(self, connection: socket.socket, ends: float, statuses: list[bytes]) -> None:
        with suppress(OSError):
            connection.sendall(self.sent)
            while self.drips:
                with suppress(TimeoutError):
                    statuses.append(connection.recv(2**16)[9:12])
                    return
                connection.sendall(b"a")
            while time.monotonic() < ends:
                if self.reads and not connection.recv(2**20):
                    return
                if self.repeats:
                    connection.sendall(self.sent)
                if not self.reads:
                    time.sleep(1)


def attacks(key: str, share: float = 1) -> dict[str, Attack]:
    """Return the attacks by their names, each from a share of the connections.

    `key` may only read.
    """
    orders = get(LIST, key)

    def of(connections: int) -> int:
        return math.ceil(connections * share)

    return {
        "silent connections": Attack(of(4_100)),
        "blank lines": Attack(of(500), b"\r\n", repeats=True),
        "dripping heads": Attack(of(500), HEAD, drips=True),
        "dripping bodies": Attack(of(500), BODY, drips=True),
        "unread pages": Attack(of(150), get("/docs/swagger-ui-bundle.js")),
        "unread lists": Attack(of(30), orders),
        "lists, fast": Attack(of(24), orders, reads=True, repeats=True),
        "pipelined probes": Attack(of(1_500), get("/healthz") * 100, reads=True, repeats=True),
        "pipelined reads": Attack(of(500), get(f"{LIST}/1", key) * 100, reads=True, repeats=True),
    }


def hold_the_doors(
    service: Service,
    read: Read,
    attacks: dict[str, Attack],
    seconds: float,
    longest: tuple[float, float] = (PROBE_SECONDS, READ_SECONDS),
) -> list[str]:
    """Run each attack for so long; print what others met, and return the violations.

    `longest` is how long a probe may take, and an order.
    """
    pid = service.process.pid
    before, memory = len(descriptors(pid)), resident_mib(pid)
    violations = []
    for name, attack in attacks.items():
        with ProcessPoolExecutor(1) as pool:
            running = pool.submit(attack.run, service.address, seconds)
            probe, probes_lost = worst(service, "/healthz", None, running.done)
            order, orders_lost = worst(service, read.path, read.key, running.done)
            files, kernel = file_mib(pid), kernel_mib(service.address[1])
            unanswered = running.result()
        print(f"{name:20} a probe {probe}; an order {order}; files {files:.0f} MiB", end="")
        print(f", kernel {kernel:.0f} MiB, at most {peak_mib(pid):.0f} MiB of memory")
        violations += violated(
            {
                f"{name}: {probes_lost} probes were lost": probes_lost,
                f"{name}: {orders_lost} orders were lost": orders_lost,
                f"{name}: a probe took {probe}": probe.worst > longest[0] * 1000,
                f"{name}: an order took {order}": order.worst > longest[1] * 1000,
                f"{name}: {files:.0f} MiB of files": files > FILE_MIB,
                f"{name}: {kernel:.0f} MiB in the kernel": kernel > KERNEL_MIB,
                f"{name}: {unanswered} got no 408": unanswered,
            }
        )
    # Some for connections to the database, which are opened when they are first needed.
    wait_until(lambda: len(descriptors(pid)) <= before + MOST_KEPT_DESCRIPTORS)
    kept = resident_mib(pid) - memory
    print(f"after all of them    {kept:.0f} MiB of memory more than before")
    return violations + violated({f"{kept:.0f} MiB of memory were kept": kept > MOST_KEPT_MIB})


def worst(
    service: Service, path: str, key: str | None, is_over: Callable[[], bool], count: int = 40
) -> tuple[Times, int]:
    """Read a path over new connections; return the times, and how many were not answered 200."""
    taken, lost = [], 0
    while not taken or (len(taken) < count and not is_over()):
        began = time.monotonic()
        wire = Wire(service.address, key)
        try:
            lost += wire.ask("GET", path).status != 200
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
