"""Somebody at the console, for measurements and pictures: a browser, a store to look at, a key."""

from __future__ import annotations

import csv
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from orders.clock import Clock
from orders.year import lives
from tests.support import stores as store
from tests.support.service import environment_for, run_flask
from tests.support.year import row_of

COLUMNS = ("petId", "quantity", "shipDate", "status", "placedAt", "updatedAt", "reference")
PLENTY = (100_000, 10_000_000)


def store_of(instance: Path, count: int, days: int = 365) -> str:
    """Make an instance folder with so many orders of the last days; return a key's secret."""
    (secret,) = store.make(instance, [PLENTY])
    if count:
        now = Clock().now()
        file = instance / "orders.csv"
        with file.open("w", encoding="utf-8", newline="") as target:
            writer = csv.writer(target)
            writer.writerow(COLUMNS)
            chance = random.Random(7)
            begin = now - timedelta(days=days)
            writer.writerows(row_of(life) for life in lives(count, begin, now, chance))
        done = run_flask("orders", "import", str(file), environment=environment_for(instance))
        assert done.returncode == 0, done.stderr
        file.unlink()
    return secret


@contextmanager
def browser() -> Iterator[Any]:
    """Run Debian's Chromium."""
    # Only who measures pages needs Playwright.
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        yield one
        one.close()


def sign_in(page: Any, secret: str) -> None:
    """Sign in with a key, and wait until what there is can be read."""
    page.fill("#key", secret)
    page.click("#sign-in [type=submit]")
    page.wait_for_selector(".results:not([aria-busy]) > *")
