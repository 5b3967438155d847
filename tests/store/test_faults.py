"""Faults of a running service's database.

Whatever the fault: reads go on where they can, writes get 503, nothing acknowledged is lost,
nothing rejected was done, and once the cause is gone the service works again without a restart.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import urllib3

from tests.support import faults as real_faults
from tests.support.machine import wait_until
from tests.support.running_shop import ORDERS, PET, assert_unavailable, open_shop
from tests.support.service import run_app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sqlite_only("files that are full, locked, damaged or moved away"),
]

ORDER = f"{ORDERS}/3"
EVERYTHING = {ORDERS: 200, ORDER: 200, PET: 200}
NOTHING = dict.fromkeys(EVERYTHING, 503)
# The cause of each fault of a running shop, and the response to reads meanwhile.
FAULTS = {
    "a full disk": (lambda shop: real_faults.full(shop.instance), EVERYTHING),
    "a limit to the size of files": (
        lambda shop: real_faults.no_file_may_grow(shop.service.process.pid),
        EVERYTHING,
    ),
    "files that are read-only": (
        lambda shop: real_faults.read_only(shop.database, shop.instance / "orders.db-wal"),
        EVERYTHING,
    ),
    "a lock of another process": (lambda shop: real_faults.locked(shop.database), EVERYTHING),
    "a damaged page": (
        lambda shop: real_faults.damaged(shop.database, "orders"),
        {ORDERS: 503, ORDER: 503, PET: 200},
    ),
    "a database that was moved away": (lambda shop: real_faults.moved_away(shop.database), NOTHING),
    "a database that was replaced": (lambda shop: real_faults.replaced(shop.database), NOTHING),
}


@pytest.fixture
def protected_disk():
    """A folder on a disk where an open file can be made read-only."""
    folder = real_faults.folder_with_read_only_files()
    if folder is None:
        pytest.skip("no disk here makes an open file read-only")
    yield folder / "instance"
    shutil.rmtree(folder)


@pytest.fixture(params=FAULTS)
def fault(request, tmp_path):
    """The cause of a fault, the response to reads meanwhile, and an instance folder for it."""
    folders = {"a full disk": "small_disk", "files that are read-only": "protected_disk"}
    needed = folders.get(request.param)
    folder = request.getfixturevalue(needed) if needed else tmp_path / "instance"
    return *FAULTS[request.param], folder


def may_find_room(make):
    """Return whether a change that needs less room than placing may succeed."""
    return make in {FAULTS["a full disk"][0], FAULTS["a limit to the size of files"][0]}


def test_while_the_store_fails_reads_go_on_writes_are_refused_and_nothing_is_lost(
    fault, empty_database
):
    make, reads, instance = fault
    with open_shop(instance, empty_database) as shop:
        with ExitStack() as away, shop.busy():
            shop.place()
            away.enter_context(make(shop))
            # Changes that had begun are over, and all room is used.
            while shop.place().status != 503:
                pass
            for response in shop.change():
                if response.status == 503 or not may_find_room(make):
                    assert_unavailable(response)
            # More changes at once than there are threads don't hold up reads.
            with ThreadPoolExecutor(5) as threads:
                changes = threads.map(shop.change, range(5))
                assert {path: shop.read(path) for path in reads} == reads
            statuses = {response.status for many in changes for response in many}
            assert 503 in statuses
            assert statuses == {503} or may_find_room(make)
            away.close()
            while shop.place().status != 201:
                pass
        shop.assert_all_is_well()
        parts = ("database", "writes", "counters", "processes")
        ready = {"status": "ready", **dict.fromkeys(parts, "ok")}
        # The counters' file is written a moment later.
        wait_until(lambda: shop.ready() == ready)
        assert shop.service.stop() == 0
    shop.assert_log_is_clean()


def test_a_start_on_a_damaged_page_is_rejected_until_the_page_is_restored(
    tmp_path, empty_database, start
):
    with open_shop(tmp_path / "instance", empty_database) as shop:
        shop.place()
        with real_faults.damaged(shop.database, "orders"):
            assert shop.service.stop() == 0
            refused = run_app(ORDERS_INSTANCE=str(shop.instance))
            assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
            assert "is damaged" in refused.stderr
    shop.service = start()
    shop.assert_all_is_well()


def test_a_list_that_meets_a_damaged_page_midway_does_not_look_complete(tmp_path, empty_database):
    with open_shop(tmp_path / "instance", empty_database) as shop:
        shop.have_many_orders(8_000)  # which are listed in more than one piece
        whole = shop.listed()
        with (
            real_faults.damaged(shop.database, at_its_end=True),
            pytest.raises(urllib3.exceptions.ProtocolError),
        ):
            shop.service.request("GET", ORDERS, key=shop.secret)
        assert shop.listed() == whole
        assert shop.service.stop() == 0
    (line,) = [each for each in shop.service.log if "broken off" in each]
    assert "the database is damaged" in line
    assert "Traceback" not in "".join(shop.service.log)
