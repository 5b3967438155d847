"""A fault of the database is logged once, with its end; reads and writes are distinguished."""

from __future__ import annotations

import re

import pytest

from orders.store.database.errors import DAMAGED, PROBE_SECONDS, Part, duration_in_words
from tests.support import faults as real_faults
from tests.support.databases import DATABASES
from tests.support.machine import wait_until
from tests.support.running_shop import open_shop
from tests.support.stores import logged


def followed(store, seconds=PROBE_SECONDS):
    """Let time pass and the service track faults; return its log lines, without the times."""
    with logged() as log:
        store.clock.advance(seconds)
        store.shop.follow_outages()
    return [line.partition(" ")[2] for line in log.getvalue().splitlines()]


@pytest.mark.parametrize("fault", ["away", "locked"])
def test_a_fault_is_logged_once_with_its_cause_and_its_end(make_store, fault, monkeypatch):
    monkeypatch.setattr(DATABASES.module, "BUSY_SECONDS", 0.05)
    store = make_store(metrics=True)
    client = store.client()
    client.place()
    begins, ends = {
        "away": ("The database can't be read: ", "The database is back after 12 min."),
        "locked": ("Writes fail: the database is locked", "Writes work again after 12 min."),
    }[fault]

    def seen():
        metrics = store.anonymous().get("/metrics").text
        ready = store.anonymous().get("/readyz")
        writable = re.findall(r"^store_orders_database_writable (.*)$", metrics, re.MULTILINE)
        return ready.status_code, ready.get_json().get("writes"), writable

    assert seen() == (200, "ok", ["1.0"])
    assert followed(store) == []
    with getattr(store, fault)():
        for _ in range(2):
            assert client.place().status_code == 503
        status, words, writable = seen()
        assert writable == ["0.0"]
        if fault == "locked":
            assert (status, words[:30]) == (200, "failing: the database is locke")
        (line,) = followed(store)
        assert line.startswith(f"warning: {begins}")
        assert client.place().status_code == 503
        assert followed(store) == followed(store) == []
    assert followed(store, 12 * 60 - 2 * PROBE_SECONDS) == [f"warning: {ends}"]
    assert seen() == (200, "ok", ["1.0"])
    assert followed(store) == []
    assert client.place().status_code == 201


def test_damage_is_logged_once_and_has_no_end(store):
    for _ in range(2):
        store.database.outages.record(Part.READING, DAMAGED)
    (line,) = followed(store)
    assert line.startswith("error: The database is damaged")
    assert followed(store) == []


def test_durations_are_in_words_that_people_use():
    said = {50: "50 s", 119: "119 s", 720: "12 min", 7_100: "118 min", 7_200: "2 h"}
    assert {seconds: duration_in_words(seconds) for seconds in said} == said


@pytest.mark.slow
@pytest.mark.sqlite_only("a disk that is full")
def test_a_full_disk_is_logged_with_its_end_and_access_lines_give_the_reason(
    small_disk, empty_database
):
    def lines(part):
        return [line for line in shop.service.log if part in line]

    with open_shop(small_disk, empty_database) as shop:
        with real_faults.full(small_disk):
            wait_until(lambda: shop.place().status == 503)
            wait_until(lambda: lines("warning: Writes fail: the disk is full."))
            ready = shop.service.request("GET", "/readyz")
            assert (ready.status, ready.json()["writes"]) == (200, "failing: the disk is full")
            assert " store_unavailable " in lines(" 503 ")[0]
        wait_until(lambda: lines("warning: Writes work again after "))
        assert shop.place().status == 201
        assert len(lines("Writes ")) == 2
