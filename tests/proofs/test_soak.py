"""Under mixed load a service leaks no resources."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.proofs.core.clients import Customer, Key
from tests.proofs.core.history import History
from tests.support.machine import wait_until
from tests.support.process import descriptors, resident_mib, threads
from tests.support.service import running

pytestmark = pytest.mark.sqlite_only("its log is a file")

CLIENTS = 4
WARM, DONE = 1_000, 4_000
PLENTY = ("--per-minute", "1000000", "--per-day", "1000000")
MOST_MIB, MOST_DESCRIPTORS = 32, 4
MOST_LOG_BYTES = 64 * 2**20


@pytest.mark.slow
def test_under_mixed_load_threads_descriptors_and_memory_stay_as_they_are(tmp_path):
    with running(tmp_path) as service:
        key, reader = (
            Key(service.issue("enterprise", *PLENTY, *scopes), f"key:{number}")
            for number, scopes in enumerate([(), ("--scope", "read")], start=1)
        )
        history, pid = History(), service.process.pid
        customers = [Customer(history, key, reader, str(number)) for number in range(CLIENTS)]

        def use():
            return threads(pid), len(descriptors(pid)), resident_mib(pid)

        with ThreadPoolExecutor(CLIENTS) as pool:
            shopping = [pool.submit(each.shop, service.url) for each in customers]
            wait_until(lambda: len(history.operations) > WARM)
            before = use()
            wait_until(lambda: len(history.operations) > DONE)
            after, log = use(), (tmp_path / "orders.db-wal").stat().st_size
            assert service.stop() == 0
            assert not [each.exception() for each in shopping if each.exception()]
    assert after[0] <= before[0]
    # The database is opened once more by a thread that had not yet asked it.
    assert after[1] <= before[1] + MOST_DESCRIPTORS
    assert after[2] <= before[2] + MOST_MIB
    assert log <= MOST_LOG_BYTES
    wrong = [each for each in history.operations if each.status not in {None, 0, *each.allowed}]
    assert wrong == []
