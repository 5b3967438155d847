"""A packing day in a real browser: a long list appears at once, 100 orders ship in five minutes.

A store of many orders is opened in Chromium. The list of 50 is timed until its rows are laid out,
after a click and after a reload. Then a scripted person packs by keyboard alone, as with a barcode
scanner: scan a reference, Enter; look, Enter ships it; and so on, with a person's pauses. Each
order must be shipped, once. It needs the packages of the extra `browser`.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.proofs.core import command
from tests.proofs.edge.__main__ import endless, fill
from tests.support.browser import launched
from tests.support.service import Service, running

LONGEST_SECONDS, LONGEST_LIST_MS = 300, 300
LISTS = [
    f"#/orders?status={status}&sort={sort}"
    for status in ("all", "shipped", "cancelled")
    for sort in ("placedAt", "-placedAt", "shipDate", "-shipDate")
]
# A person looks, and takes the next box.
PAUSE_SECONDS = (0.3, 1.0)
# A barcode scanner types.
KEY_MS = 4
SHOWN_EACH = 10
ORDERS = "/v2/store/orders"
_ROWS = "document.querySelectorAll('.results:not([aria-busy]) tbody tr').length === 50"
_AFTER_A_CLICK = f"""async (place) => {{
    const arrived = new Promise((done) => addEventListener("hashchange", done, {{ once: true }}));
    const began = performance.now();
    location.hash = place;
    await arrived;
    do await new Promise(requestAnimationFrame); while (!({_ROWS}));
    return performance.now() - began;
}}"""
_SINCE_THE_RELOAD = f"() => {_ROWS} && performance.now()"


def prove(folder: Path, *, orders: int = 200_000, packed: int = 100, seed: int = 1) -> list[str]:
    """Time the list and pack; print the transcript, and return the violations."""
    instance = folder / "instance"
    fill(instance, orders, seed)
    with running(instance) as service, launched() as browser:
        page = browser.new_page(locale="en-GB", viewport={"width": 1280, "height": 900})
        page.goto(service.url)
        page.keyboard.type(service.issue("pro"))
        page.keyboard.press("Enter")
        page.wait_for_selector("tbody tr")
        clicked = [page.evaluate(_AFTER_A_CLICK, place) for place in LISTS]
        reloaded = [_reload(page) for _ in LISTS]
        print(f"50 of {orders:,} orders, after a click: {_times(clicked)}")
        print(f"after a reload of the page: {_times(reloaded)}")
        seconds, left = Packing(service, page, random.Random(seed)).pack(packed)
    return command.violated(
        {
            f"{left} orders did not ship": left,
            f"{packed} orders took {seconds:.0f} s": seconds > LONGEST_SECONDS,
            "the list took too long": statistics.median(clicked) > LONGEST_LIST_MS,
        }
    )


def _reload(page: Any) -> float:
    page.reload()
    return float(page.wait_for_function(_SINCE_THE_RELOAD).json_value())


def _times(milliseconds: list[float]) -> str:
    median, worst = statistics.median(milliseconds), max(milliseconds)
    return f"median {median:.0f} ms, worst {worst:.0f} ms, of {len(milliseconds)}"


class Packing:
    """A person with a scanner at the console."""

    def __init__(self, service: Service, page: Any, pauses: random.Random) -> None:
        """Take the page of somebody who is signed in."""
        self._service, self._page, self._pauses = service, page, pauses
        self._key = endless(service)
        self._requests: Counter[str] = Counter()
        page.on("request", lambda each: self._requests.update([each.method] * ("/v2/" in each.url)))

    def pack(self, number: int) -> tuple[float, int]:
        """Pack so many orders; return the seconds it took, and how many did not ship."""
        references = [f"WEB-{1001 + each}" for each in range(number)]
        placed = [self._place(each) for each in references]
        self._page.get_by_role("link", name="Orders").first.focus()
        began = time.monotonic()
        self._tab_to("[type=search]")
        for count, reference in enumerate(references, 1):
            self._ship(reference)
            if count % SHOWN_EACH == 0 or count == 1:
                print(f"{time.monotonic() - began:7.1f} s  order {count}, {reference}", flush=True)
        self._page.wait_for_selector("#shipping", state="hidden")
        seconds = time.monotonic() - began
        requests = ", ".join(f"{each:,} {method}" for method, each in self._requests.items())
        print(f"{seconds:7.1f} s  all have shipped; requests: {requests}")
        statuses = [
            self._service.request("GET", f"{ORDERS}/{each}", key=self._key).json()["status"]
            for each in placed
        ]
        return seconds, number - statuses.count("shipped")

    def _place(self, reference: str) -> int:
        order = {"petId": 7, "quantity": 1, "reference": reference}
        answer = self._service.request("POST", ORDERS, key=self._key, json=order)
        return int(answer.json()["id"])

    def _tab_to(self, selector: str) -> None:
        while not self._page.evaluate(f"document.activeElement.matches('{selector}')"):
            self._page.keyboard.press("Tab")

    def _ship(self, reference: str) -> None:
        self._pause()
        self._page.keyboard.type(reference, delay=KEY_MS)
        self._page.keyboard.press("Enter")
        self._page.wait_for_selector(f".order:has(.ship:focus):has-text('{reference}')")
        self._pause()
        self._page.keyboard.press("Enter")

    def _pause(self) -> None:
        time.sleep(self._pauses.uniform(*PAUSE_SECONDS))


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            orders="orders in the store",
            packed="orders that are packed",
            seed="chooses the orders and pauses",
        )
    )
