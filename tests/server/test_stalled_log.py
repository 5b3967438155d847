"""A service whose log nobody reads for a while: it answers, stops, and reports what was dropped."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import closing

import pytest
import urllib3

from orders.web import logs
from tests.support.databases import DATABASES
from tests.support.machine import wait_until
from tests.support.service import STOP_SECONDS, environment_for, launch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("databases")]

TOGETHER = 500
GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


class Unread:
    """A service that logs to a small pipe, of which only the first lines have been read."""

    def __init__(self, instance):
        environment = environment_for(instance, **DATABASES.environment(instance))
        self.process = launch({**environment, "ORDERS_METRICS": "on"})
        self.log = self.process.stderr
        self.lines = []
        import fcntl  # which Windows lacks

        fcntl.fcntl(self.log, fcntl.F_SETPIPE_SZ, 4_096)
        serving = next(line for line in self.log if "Serving on" in line)
        self.url = re.search(r"Serving on (\S+)\. ", serving)[1]

    def answer(self, requests):
        """Send requests over one connection, many at a time; all must be answered 200."""
        host, port = self.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            for _ in range(requests // TOGETHER):
                connection.sendall(GET * TOGETHER)
                received = b""
                while received.count(b'{"status":"ok"}') < TOGETHER:
                    received += connection.recv(65_536)
                assert received.count(b"HTTP/1.1 200 OK\r\n") == TOGETHER

    def dropped(self):
        """Return how many lines of the log were dropped, by /metrics."""
        text = urllib3.request("GET", f"{self.url}/metrics").data.decode()
        return int(re.search(r"^store_orders_log_lines_dropped_total (\d+)", text, re.MULTILINE)[1])

    def read_on(self):
        """Read the log from now on, in a thread."""
        threading.Thread(target=lambda: self.lines.extend(self.log)).start()

    def accounted(self):
        """Return how many requests the log has, or says that were dropped."""
        return self.count(" GET ") + self.reported()

    def count(self, text):
        """Return how many lines that were read hold a text."""
        return sum(text in line for line in list(self.lines))

    def reported(self):
        """Return how many lines the log itself says were dropped."""
        return sum(map(int, re.findall(r"warning: (\d+) lines of", "".join(list(self.lines)))))

    def close(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def unread(tmp_path):
    with closing(Unread(tmp_path / "instance")) as one:
        yield one


def test_a_log_that_nobody_reads_stops_neither_requests_nor_a_stop(unread):
    unread.answer(3_000)
    unread.process.terminate()
    assert unread.process.wait(STOP_SECONDS) == 0


def test_lines_that_find_no_room_are_counted_and_reported_when_the_log_is_read_again(unread):
    requests = logs.MAX_WAITING + TOGETHER
    unread.answer(requests)
    assert unread.dropped() > 0
    unread.read_on()
    # The line of /metrics itself found no room, either.
    wait_until(lambda: unread.accounted() == requests + 1)
    assert unread.count("lines of the log were dropped") == 1
    assert unread.dropped() == unread.reported()
    unread.process.terminate()
    assert unread.process.wait(STOP_SECONDS) == 0
    wait_until(lambda: unread.accounted() == requests + 2)
    wait_until(lambda: unread.lines[-1].endswith("Stopped.\n"))
