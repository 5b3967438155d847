"""Disks that are full elsewhere: the log's, that of temporary files, and under commands."""

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
from tests.support.machine import wait_until
from tests.support.running_shop import ORDERS, fill, open_shop
from tests.support.service import INHERITED, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.sqlite_only("files where there is no space")]


# The log, on standard error.


@contextmanager
def service_that_logs_to(stderr, instance):
    """Run a service with this standard error; return its process and its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "app.py")],
        cwd=ROOT,
        env={**INHERITED, "ORDERS_INSTANCE": str(instance), "ORDERS_PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )
    try:
        wait_until(lambda: listens(port))
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def listens(port):
    """Return whether something listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return False
    return True


def place(client, url, secret):
    """Place an order; return the status of the answer."""
    headers = {"Authorization": f"Bearer {secret}"}
    return client.request("POST", url + ORDERS, json={"petId": 7}, headers=headers).status


def test_a_log_that_nobody_reads_any_more_stops_nothing(tmp_path, empty_database):
    secret, _ = fill(tmp_path / "instance", empty_database)
    end_to_read, end_to_write = os.pipe()
    os.close(end_to_read)
    with (
        service_that_logs_to(end_to_write, tmp_path / "instance") as (process, url),
        urllib3.PoolManager() as client,
    ):
        os.close(end_to_write)
        assert {place(client, url, secret) for _ in range(50)} == {201}
        process.terminate()
        assert process.wait(20) == 0


def test_a_log_on_a_full_disk_stops_nothing_and_goes_on_when_there_is_room(
    tmp_path, empty_database, small_disk
):
    secret, _ = fill(tmp_path / "instance", empty_database)
    log = small_disk / "log"
    with (
        log.open("wb") as stderr,
        service_that_logs_to(stderr, tmp_path / "instance") as (process, url),
        urllib3.PoolManager() as client,
    ):
        with real_faults.full(small_disk):
            assert {place(client, url, secret) for _ in range(100)} == {201}
            before = log.stat().st_size
        assert {place(client, url, secret) for _ in range(100)} == {201}
        process.terminate()
        assert process.wait(20) == 0
        told = log.read_bytes()[before:].decode()
    assert told.count(f"POST {ORDERS} 201") >= 100
    assert told.endswith("Stopped.\n")


# Temporary files, where long answers wait for slow readers.


def test_a_long_answer_waits_in_memory_where_there_is_no_room_for_files(
    tmp_path, empty_database, small_disk
):
    with open_shop(tmp_path / "instance", empty_database, TMPDIR=str(small_disk)) as shop:
        shop.have_many_orders(150_000)
        whole = shop.request("GET", ORDERS).data
        # The place for files is chosen with the first of them, while there is room.
        assert read_slowly(shop) == whole
        with real_faults.full(small_disk):
            assert read_slowly(shop) == whole


def read_slowly(shop):
    """Ask for the list, and read it when all of it has been handed over to be sent."""
    told = f"GET {ORDERS} 200"
    before = sum(told in line for line in shop.service.log)
    with closing(socket.socket()) as reader:
        ask_for_the_list(reader, shop)
        wait_until(lambda: sum(told in line for line in shop.service.log) > before)
        with closing(http.client.HTTPResponse(reader)) as answer:
            answer.begin()
            return answer.read()


def ask_for_the_list(reader, shop):
    """Send a request from a socket that takes in little by itself."""
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    reader.connect(shop.service.address)
    reader.settimeout(20)
    head = f"GET {ORDERS} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {shop.secret}\r\n\r\n"
    reader.sendall(head.encode())


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
            before = {path.name for path in small_disk.iterdir()}
            with real_faults.full(small_disk, room):
                for name in refused:
                    done = shop.service.command(*commands[name])
                    assert (done.returncode, done.stdout) == (1, "")
                    assert done.stderr.startswith("Error: ")
                    assert done.stderr.count("\n") == 1, done.stderr
            assert {path.name for path in small_disk.iterdir()} == before
        shop.assert_all_is_well()
        done = shop.service.command(*commands["import"])
        assert done.returncode == 0, done.stderr
        assert len(shop.listed()) == len(shop.acknowledged) + 10_000
