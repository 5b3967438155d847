"""A real browser for tests of pages: Debian's Chromium, driven by Playwright.

A test fails if the browser or a script reports an error, or if a page requests another origin.
"""

from __future__ import annotations

import re
from contextlib import contextmanager

import pytest

from tests.support.machine import installed

# Other names can't be resolved. The shop's is not an address of this computer: over plain HTTP,
# its pages are in no secure context.
_NAMES = "MAP shop.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
FLAGS = (
    # Chromium's sandbox doesn't work for root, nor in many containers.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--host-resolver-rules={_NAMES}",
)
# What Chromium reports when a script gets an answer of 400 and above,
_REFUSED = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")
# and when it gets none.
_LOST = "Failed to load resource: net::ERR_"
# Files belong to the person: a page of the service can't request one.
_OF_THE_BROWSER = ("about:", "blob:", "data:", "file:")
# Only those that end: Swagger UI has others.
_ANIMATIONS_END = """
    Promise.all(document.getAnimations()
        .filter((each) => each.effect.getComputedTiming().endTime < Infinity)
        .map((each) => each.finished.catch(() => {})))
"""
# Generous, for a busy machine.
SETTLED_MS = 30_000


class Watch:
    """Watches the pages of a visit for faults."""

    def __init__(self, url, refusals, loses):
        self._origin, self._refusals, self._loses = url, refusals, loses
        self.faults, self.requested = [], []

    def on_console(self, message):
        refused = _REFUSED.match(message.text)
        expected = refused and int(refused[1]) in self._refusals
        expected = expected or (self._loses and message.text.startswith(_LOST))
        if message.type in {"error", "warning"} and not expected:
            self.faults.append(f"console: {message.text} ({message.location.get('url')})")

    def on_error(self, event):
        self.faults.append(f"script: {event.error}")

    def on_request(self, request):
        self.requested.append(request.url)
        if not request.url.startswith((*_OF_THE_BROWSER, f"{self._origin}/")):
            self.faults.append(f"another origin: {request.url}")


def expect(what):
    """Return Playwright's expectations of a page or a part of it, which wait to come true."""
    # Without Playwright, tests of pages are collected, but not run.
    from playwright import sync_api

    sync_api.expect.set_options(timeout=SETTLED_MS)
    return sync_api.expect(what)


def violations(page, context=None):
    """Return axe-core's findings in a page, or the part that `context` selects."""
    from axe_playwright_python.base import AXE_SCRIPT
    from axe_playwright_python.sync_playwright import Axe

    # A part that fades in has less contrast at first.
    page.emulate_media(reduced_motion="reduce")
    page.evaluate(_ANIMATIONS_END)
    # Describing the passed checks would take most of the time.
    options = {"resultTypes": ["violations"]}
    axe = Axe("0" if page.evaluate("'axe' in window") else AXE_SCRIPT)
    found = axe.run(page, context, options).response["violations"]
    return sorted(
        f"{rule['id']}: {' '.join(map(str, node['target']))}"
        for rule in found
        for node in rule["nodes"]
    )


def no_violations(page):
    """Check that axe-core finds no fault with a page."""
    assert violations(page) == []


def chromium():
    """Return the path of Chromium, by preference the one without windows, which is light."""
    return installed("chromium-headless-shell", "chromium", package="chromium-headless-shell")


@contextmanager
def launched():
    """Run a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield one
        one.close()


@pytest.fixture(scope="session")
def browser():
    """A browser that all tests share; each visit has a context of its own."""
    with launched() as one:
        yield one


@pytest.fixture
def visit(browser):
    """Open pages, each in a context of its own; they must be sound until the test ends.

    `refusals` are statuses of 400 and above that a visit is to meet; with `loses`, the test takes
    the network away. `before` is called with the page before it opens. Other options are those of
    a context: `viewport`, `color_scheme`, ….
    """
    visits = []

    def open_page(url, path="/", refusals=(), *, loses=False, before=None, **options):
        watch = Watch(url, refusals, loses)
        context = browser.new_context(**{"locale": "en-GB", **options})
        context.set_default_timeout(SETTLED_MS)
        context.on("console", watch.on_console)
        context.on("weberror", watch.on_error)
        context.on("request", watch.on_request)
        visits.append((context, watch))
        page = context.new_page()
        if before:
            before(page)
        page.goto(url + path)
        page.requested = watch.requested
        return page

    yield open_page
    for context, _ in visits:
        context.close()
    assert [fault for _, watch in visits for fault in watch.faults] == []
