"""How fast the console is, in a real browser, over a store of 200,000 orders.

Run it as `python -m bench.console`; it needs Chromium and the packages of the extra `browser`.
It measures from asking for the page, signed in, until orders and figures can be read on it; from
choosing another filter or page until that is shown; and the longest frame while it is scrolled.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.desk import browser, sign_in, store_of
from tests.support.service import running

ORDERS = 200_000
ROUNDS = 15
FRAME_MS = 1000 / 60
# Notes when the first row and the figures stand on the page: the frame after that shows them.
NOTE_FIRST_PAINT = """
    const look = new MutationObserver(() => {
        const counted = document.querySelector(".tab b")?.textContent;
        if (!counted || counted === "…" || !document.querySelector("tbody tr")) return;
        look.disconnect();
        requestAnimationFrame(() => setTimeout(() => { window.readable = performance.now(); }));
    });
    look.observe(document, { childList: true, subtree: true, characterData: true });
"""
# Not Playwright's own waiting, which the page's policy takes for what it keeps out.
WHEN_READABLE = """
    () => new Promise((done) => {
        const timer = setInterval(() => {
            if (!window.readable) return;
            clearInterval(timer);
            done(window.readable);
        }, 20);
    })
"""
# Clicks, and gives the milliseconds until other rows are shown.
CHANGE = """
    (selector) => new Promise((done) => {
        const begun = performance.now();
        const results = document.querySelector(".results");
        const shown = () => results.querySelector("tbody tr")?.dataset.id;
        const before = shown();
        const look = new MutationObserver(() => {
            if (shown() === before || !shown()) return;
            look.disconnect();
            requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
        });
        look.observe(results, { childList: true, subtree: true });
        document.querySelector(selector).click();
    })
"""
# Scrolls from top to bottom within two seconds; gives how long each frame took.
SCROLL = """
    () => new Promise((done) => {
        const far = document.documentElement.scrollHeight - innerHeight;
        const [begun, frames] = [performance.now(), []];
        let last = begun;
        const step = (now) => {
            frames.push(now - last);
            last = now;
            scrollTo(0, far * Math.min(1, (now - begun) / 2000));
            if (now - begun < 2000) requestAnimationFrame(step);
            else done(frames.slice(1));
        };
        requestAnimationFrame(step);
    })
"""


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS)
    arguments = parser.parse_args()
    with page_over(arguments.orders) as page:
        show("until orders and figures can be read", first_paints(page), "ms")
        show("until another filter's orders are shown", filterings(page), "ms")
        show("until the next page is shown", turnings(page), "ms")
        frames = page.evaluate(SCROLL)
        print(f"longest frame while scrolling: {max(frames):.0f} ms (usual {FRAME_MS:.0f})")


def show(what: str, times: list[float], unit: str) -> None:
    """Print the median and the longest of some times."""
    print(f"{what}: median {statistics.median(times):.0f} {unit}, longest {max(times):.0f}")


@contextmanager
def page_over(orders: int) -> Iterator[Any]:
    """Return a page that is signed in to a store with so many orders."""
    with tempfile.TemporaryDirectory() as folder:
        secret = store_of(Path(folder), orders)
        with running(Path(folder)) as service, browser() as one:
            page = one.new_context(viewport={"width": 1360, "height": 900}).new_page()
            page.add_init_script(NOTE_FIRST_PAINT)
            page.goto(service.url)
            sign_in(page, secret)
            yield page


def first_paints(page: Any) -> list[float]:
    """Load the page again and again; return the milliseconds until it can be read."""
    times = []
    for _ in range(ROUNDS):
        page.reload()
        times.append(page.evaluate(WHEN_READABLE))
    return times


def filterings(page: Any) -> list[float]:
    """Choose one status after the other."""
    tabs = (".tab.shipped", ".tab.cancelled", ".tab.all", ".tab.pending")
    return [page.evaluate(CHANGE, tab) for tab in tabs * 4]


def turnings(page: Any) -> list[float]:
    """Turn the pages of all orders."""
    page.evaluate(CHANGE, ".tab.all")
    return [page.evaluate(CHANGE, ".pages .on") for _ in range(ROUNDS)]


if __name__ == "__main__":
    main()
