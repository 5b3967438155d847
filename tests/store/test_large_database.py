"""A database too large to be checked at the start is checked in the background."""

from __future__ import annotations

import threading

import pytest

from orders.store.care import checks
from tests.support import faults as real_faults

pytestmark = pytest.mark.sqlite_only("the check of a large file")


@pytest.fixture
def checked(store, monkeypatch):
    """Check the store's database as if it were large; return its status in /readyz."""
    monkeypatch.setattr(checks, "QUICK_CHECK_BYTES", 0)

    def check():
        store.shop.check_behind()
        for thread in threading.enumerate():
            if thread.name == "check":
                thread.join()
        response = store.anonymous().get("/readyz")
        return response.status_code, response.get_json()["database"]

    return check


def test_a_sound_one_is_ready(checked, caplog):
    caplog.set_level("INFO")
    assert checked() == (200, "ok")
    assert "The database is sound." in caplog.text


def test_damage_is_reported_by_the_log_and_readyz(store, checked, caplog):
    with real_faults.damaged(store.database.path, "pets"):
        assert checked() == (200, "damaged")
    assert "Restore a backup" in caplog.text


def test_a_small_one_was_checked_at_the_start(store):
    store.shop.check_behind()
    assert store.anonymous().get("/readyz").get_json()["database"] == "ok"
