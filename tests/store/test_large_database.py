"""A database too large to be checked at the start is checked behind it."""

from __future__ import annotations

import threading

import pytest

from orders.store.care import checks

pytestmark = pytest.mark.sqlite_only("the check of a large file")


@pytest.fixture
def checked(store, monkeypatch):
    """Check the store's database as if it were large; return what /readyz says of it then."""
    monkeypatch.setattr(checks, "QUICK_CHECK_BYTES", 0)

    def check():
        store.services.check_behind()
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


def test_damage_is_told_in_the_log_and_by_readyz(store, checked, caplog):
    with store.database.write() as connection:
        page_size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        root = connection.exec_driver_sql(
            "SELECT rootpage FROM sqlite_master WHERE name = 'pets'"
        ).scalar_one()
    store.database.close()
    with store.database.path.open("r+b") as file:
        file.seek((root - 1) * page_size)
        file.write(b"\\xff" * 64)
    assert checked() == (200, "damaged")
    assert "Restore a backup" in caplog.text


def test_a_small_one_was_checked_at_the_start(store):
    store.services.check_behind()
    assert store.anonymous().get("/readyz").get_json()["database"] == "ok"
