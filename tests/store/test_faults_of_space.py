"""Full disks elsewhere: of the log, of temporary files, and of commands."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
import urllib3

from tests.support import faults as real_faults
from tests.support.commands import messages, names_in
from tests.support.machine import PATIENCE_SECONDS, begin, end, free_port, listens, wait_until
from tests.support.running_shop import ORDERS, fill, open_shop
from tests.support.service import ROOT, environment_for

pytestmark = [pytest.mark.slow, pytest.mark.sqlite_only("files where there is no space")]


@contextmanager
def service_that_logs_to(stderr, instance, empty_database):
    """Run a service with this standard error; yield a function to place orders."""
    secret, _ = fill(instance, empty_database)
    port = free_port()
    process = begin(
        [sys.executable, ROOT / "app.py"],
        lambda: listens(port),
        env=environment_for(instance, ORDERS_PORT=str(port)),
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )

    def place(times):
        url, headers = f"http://127.0.0.1:{port}{ORDERS}", {"Authorization": f"Bearer {secret}"}
        order = {"petId": 7}
        return {
            client.request("POST", url, json=order, headers=headers).status for _ in range(times)
        }

    with urllib3.PoolManager() as client:
        try:
            yield place
        finally:
            assert end(process) == 0


def test_a_log_that_is_no_longer_read_stops_nothing(tmp_path, empty_database):
    end_to_read, end_to_write = os.pipe()
    os.close(end_to_read)
    with service_that_logs_to(end_to_write, tmp_path / "instance", empty_database) as place:
        os.close(end_to_write)
        assert place(50) == {201}


def test_a_log_on_a_full_disk_stops_nothing_and_goes_on_when_there_is_room(
    tmp_path, empty_database, small_disk
):
    log = small_disk / "log"
    with (
        log.open("wb") as stderr,
        service_that_logs_to(stderr, tmp_path / "instance", empty_database) as place,
    ):
        with real_faults.full(small_disk):
            assert place(100) == {201}
            before = log.stat().st_size
        assert place(100) == {201}
    logged = log.read_bytes()[before:].decode()
    assert logged.count(f"POST {ORDERS} 201") >= 100
    assert logged.endswith("Stopped.\n")


# Temporary files hold long answers for slow readers.


def test_a_long_answer_waits_in_memory_where_there_is_no_room_for_files(
    tmp_path, empty_database, small_disk
):
    with open_shop(tmp_path / "instance", empty_database, TMPDIR=str(small_disk)) as shop:
        shop.have_many_orders(150_000)
        whole = shop.request("GET", ORDERS).data
        # The folder is chosen for the first file, while there is room.
        assert read_slowly(shop) == whole
        with real_faults.full(small_disk):
            assert read_slowly(shop) == whole


def read_slowly(shop):
    """Request the list, and read it only when the service has logged the whole answer."""

    def answers():
        return sum(f"GET {ORDERS} 200" in line for line in shop.service.log)

    before = answers()
    head = f"GET {ORDERS} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {shop.secret}\r\n\r\n"
    with closing(socket.socket()) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        reader.settimeout(PATIENCE_SECONDS)
        reader.connect(shop.service.address)
        reader.sendall(head.encode())
        wait_until(lambda: answers() > before)
        with closing(http.client.HTTPResponse(reader)) as answer:
            answer.begin()
            return answer.read()


# Commands on a full disk, beside the service.


def test_commands_that_fill_the_disk_say_so_and_leave_nothing_behind(
    tmp_path, empty_database, small_disk
):
    file = tmp_path / "orders.csv"
    file.write_text("petId\n" + "8\n" * 10_000)
    commands = {
        "import": ("orders", "import", str(file)),
        "export": ("orders", "export", str(small_disk / "orders.jsonl")),
        "back up": ("db", "backup", str(small_disk / "copy.db")),
    }
    with open_shop(small_disk, empty_database) as shop:
        for room, refused in ((0, commands), (100_000, ["import"])):
            before = names_in(small_disk)
            with real_faults.full(small_disk, room):
                for name in refused:
                    done = shop.service.command(*commands[name])
                    assert (done.returncode, done.stdout) == (1, "")
                    assert messages(done).startswith("Error: ")
                    assert messages(done).count("\n") == 1, done.stderr
            assert names_in(small_disk) == before
        shop.assert_all_is_well()
        done = shop.service.command(*commands["import"])
        assert done.returncode == 0, done.stderr
        assert len(shop.listed()) == len(shop.acknowledged) + 10_000
