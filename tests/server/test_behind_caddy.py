"""The service behind Caddy, with the lines of README and docs/phone.md, on other addresses."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import urllib3

from tests.support.machine import begin, end, free_port, installed, listens
from tests.support.nginx import changed
from tests.support.service import ROOT, running

pytestmark = pytest.mark.caddy

ORDERS, EVENTS = "/v2/store/orders", "/v2/store/events"
# Of a test's machine nothing is changed, and its ports 80 and 443 are others'.
AROUND = """{
    admin off
    skip_install_trust
    auto_https disable_redirects
}
"""
SITES = {
    "domain": ("README.md", r"orders\.example\.com", "http://127.0.0.1:{port}"),
    "own authority": ("docs/phone.md", r"https://192\.168\.1\.20", "https://127.0.0.1:{port}"),
}
MOST_SECONDS = 2.0  # of a stop, with followers


@contextmanager
def caddy(folder, address, site):
    """Run Caddy with a documented site in front of an address; yield a client of it."""
    page, shown, ours = SITES[site]
    port = free_port()
    ours = ours.format(port=port)
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(rf"^{shown} {{$.+?^}}$", text, re.MULTILINE | re.DOTALL)
    assert found, shown
    block = changed(found[0], (shown, ours), (r"127\.0\.0\.1:8080", "{}:{}".format(*address)))
    (folder / "Caddyfile").write_text(f"{AROUND}{block}\n", encoding="utf-8")
    command = [installed("caddy", package="caddy"), "run", "--config", folder / "Caddyfile"]
    own = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        process = begin(command, lambda: listens(port), env=own, stdout=log, stderr=log)
    root = folder / "caddy/pki/authorities/local/root.crt"
    trusting = {"ca_certs": str(root)} if ours.startswith("https") else {}
    http = urllib3.PoolManager(retries=False, timeout=60, **trusting)
    try:
        yield lambda method, path, **options: http.request(method, ours + path, **options)
    finally:
        http.clear()
        end(process)


@pytest.mark.parametrize("site", SITES)
def test_a_stream_comes_through_at_once_and_a_page_rests(tmp_path, site):
    with (
        running(tmp_path / "instance", ORDERS_TRUSTED_PROXY="127.0.0.1") as service,
        caddy(tmp_path, service.address, site) as ask,
        ThreadPoolExecutor(1) as pool,
    ):
        headers = {"Authorization": f"Bearer {service.issue()}", "Accept-Encoding": "gzip"}
        accept = {**headers, "Accept": "text/event-stream"}
        stream = ask("GET", f"{EVENTS}?after=0", headers=accept, preload_content=False)
        lines = iter(stream)
        assert next(lines) == b"retry: 1000\n"
        resting = pool.submit(ask, "GET", f"{EVENTS}?after=0&wait=60", headers=headers)
        for number in range(1, 4):
            assert ask("POST", ORDERS, headers=headers, json={"petId": 7}).status == 201
            # The next is only placed when this one has come: nothing is kept back.
            assert next(each for each in lines if each.startswith(b"id: ")) == b"id: %d\n" % number
        assert resting.result(30).json()["events"][0]["id"] == 1
        began = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - began < MOST_SECONDS
        assert list(lines)[-2:] == [b": end stopping\n", b"\n"]
