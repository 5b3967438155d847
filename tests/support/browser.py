"""A real browser for tests of pages: Debian's Chromium, driven by Playwright.

A page that a test visits must be sound: the test fails if the browser reports an error, if a script
raises one, or if anything is asked of another origin.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

FLAGS = (
    # The tests run as root, in containers too, where Chromium's own sandbox can't.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No other name is looked up: what is not here is not there.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
# What Chromium says of any answer of 400 and above to a script.
_REFUSED = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")
# What it says where no answer comes: the network is gone, or the service.
_LOST = "Failed to load resource: net::ERR_"
_OF_THE_BROWSER = ("about:", "blob:", "data:")
# Those that end by themselves: Swagger UI has others.
_ANIMATIONS_END = """
    Promise.all(document.getAnimations()
        .filter((each) => each.effect.getComputedTiming().endTime < Infinity)
        .map((each) => each.finished.catch(() => {})))
"""
# On a machine that is busy otherwise; nothing waits for longer than it takes.
SETTLED_MS = 30_000


@dataclass
class Watch:
    """What was wrong with the pages of a visit. `refusals` are statuses that the test asks for.

    `loses` tells that the test takes the network away.
    """

    origin: str
    refusals: tuple[int, ...]
    loses: bool = False
    faults: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def on_console(self, message):
        refused = _REFUSED.match(message.text)
        expected = refused and int(refused[1]) in self.refusals
        expected = expected or (self.loses and message.text.startswith(_LOST))
        if message.type in {"error", "warning"} and not expected:
            self.faults.append(f"console: {message.text} ({message.location.get('url')})")

    def on_page_error(self, error):
        self.faults.append(f"script: {error}")

    def on_request(self, request):
        self.requested.append(request.url)
        if request.url.startswith(_OF_THE_BROWSER):
            return
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.faults.append(f"another origin: {request.url}")


class Visits:
    """Visits to pages, each in a new context: nothing is left of the one before."""

    def __init__(self, browser):
        self._browser = browser
        self._contexts = []
        self._watches = []

    def __call__(self, url, path="/", refusals=(), *, loses=False, **options):
        """Open a page of a service; return Playwright's page.

        `refusals` are statuses of 400 and above that this visit is to meet; `loses` that the
        network is taken away. The other options are those of a context: `viewport`,
        `color_scheme`, `reduced_motion`, `java_script_enabled`, ….
        """
        parts = urlsplit(url)
        watch = Watch(f"{parts.scheme}://{parts.netloc}", tuple(refusals), loses)
        context = self._browser.new_context(**{"locale": "en-GB", **options})
        context.set_default_timeout(SETTLED_MS)
        for event, handler in (
            ("console", watch.on_console),
            ("weberror", lambda error: watch.on_page_error(error.error)),
            ("request", watch.on_request),
        ):
            context.on(event, handler)
        self._contexts.append(context)
        self._watches.append(watch)
        page = context.new_page()
        page.goto(url + path)
        page.requested = watch.requested
        return page

    def close(self):
        """Leave all pages; return what was wrong with them."""
        for context in self._contexts:
            context.close()
        return [fault for watch in self._watches for fault in watch.faults]


def expect(what):
    """Return Playwright's expectations of a page or a part of it, which wait to come true."""
    # Where there is no Playwright, tests of pages are left out, but read.
    from playwright import sync_api

    sync_api.expect.set_options(timeout=SETTLED_MS)
    return sync_api.expect(what)


def violations(page, context=None):
    """Return what axe-core finds against accessibility in a page, as `rule: element` each.

    `context` selects the part that is looked at.
    """
    from axe_playwright_python.sync_playwright import Axe

    # A part that is still fading in has less contrast than it will have.
    page.emulate_media(reduced_motion="reduce")
    page.evaluate(_ANIMATIONS_END)
    # Describing all that is in order, too, would take most of the time.
    options = {"resultTypes": ["violations"]}
    found = Axe().run(page, context, options).response["violations"]
    return sorted(
        f"{rule['id']}: {' '.join(map(str, node['target']))}"
        for rule in found
        for node in rule["nodes"]
    )


def no_violations(page):
    """Check that axe-core finds nothing against accessibility in a page, as it stands now."""
    assert violations(page) == []


@pytest.fixture(scope="session")
def browser():
    """A browser that all tests share; each visit has a context of its own."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    assert path, "there is no chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield one
        one.close()


@pytest.fixture
def visit(browser):
    """Open pages, which must be sound until the test ends."""
    visits = Visits(browser)
    yield visits
    assert visits.close() == []
