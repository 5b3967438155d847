"""The console's files over HTTP: small, cached, under a policy that lets nothing else in."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from orders.web.pages import site

FOLDER = Path(__file__).parent.parent.parent / "orders" / "web" / "pages" / "console"
NAMES = sorted(path.name for path in FOLDER.iterdir())
TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
# All that a browser is sent for the page, the first time.
MOST_BYTES = 60 * 1024


def address(name):
    return "/" if name == "index.html" else f"/console/{name}"


def test_every_file_is_served_as_what_it_is_in_less_than_60_kilobytes_in_all(store):
    sent = 0
    for name in NAMES:
        response = store.anonymous().get(address(name), headers={"Accept-Encoding": "gzip"})
        assert response.content_type.startswith(TYPES.get(name.rpartition(".")[2], "text/html"))
        is_compressed = response.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(response.data) if is_compressed else response.data
        assert body == (FOLDER / name).read_bytes()
        sent += len(response.data)
    assert 0 < sent < MOST_BYTES


def test_the_policy_allows_nothing_inline_and_no_markup(store):
    policy = store.anonymous().get("/").headers["Content-Security-Policy"]
    assert policy.startswith(site.POLICY)
    for part in (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ):
        assert part in policy.split("; ")
    assert "unsafe" not in policy


def test_no_file_contains_what_the_policy_forbids():
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page) == []
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        # The only addresses of other sites are the names of formats.
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}


def test_every_module_is_preloaded(store):
    page = store.anonymous().get("/").text
    announced = set(re.findall(r'href="console/(\w+\.js)"', page))
    imported = {
        name
        for path in FOLDER.glob("*.js")
        for name in re.findall(r'from "\./(\w+\.js)"', path.read_text(encoding="utf-8"))
    }
    assert imported == announced
    assert {path.name for path in FOLDER.glob("*.js")} == announced | {"app.js"}


def test_the_page_names_its_files_by_relative_addresses(store):
    """So that it works below a path, where a server in front gives it one."""
    page = store.anonymous().get("/").text
    addresses = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert [each for each in addresses if each.startswith("/")] == []
