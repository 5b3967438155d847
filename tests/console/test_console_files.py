"""The console's files over HTTP: small, cached, under a policy that lets nothing else in."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from orders.domain import TEXTS, changeable_in
from orders.settings import DEFAULT_PLANS
from orders.web.pages import site
from schemas.v2 import OrderPatchSchema
from tests.support.orders import SHOWN

FOLDER = Path(site.__file__).parent / "console"
FILES = sorted(FOLDER.iterdir())


MODULES = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.js")}


def first_loaded():
    """Return the modules that the page loads at first: app.js, and what it imports in turn."""
    return loaded_with("app.js")


def loaded_with(*names):
    """Return these modules, and what they import in turn."""
    found, names = set(), {*names}
    while names:
        found |= names
        text = "\n".join(map(MODULES.get, names))
        names = {*re.findall(r'(?:from|import) "\./(\w+\.js)"', text)} - found
    return found


def test_the_page_loads_less_than_80_kilobytes_at_first(store):
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    sent = 0
    for file in FILES:
        path = "/" if file.name == "index.html" else f"/console/{file.name}"
        response = store.anonymous().get(path, headers={"Accept-Encoding": "gzip"})
        assert response.content_type.startswith(types.get(file.suffix, "text/html"))
        is_compressed = response.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(response.data) if is_compressed else response.data
        assert body == file.read_bytes()
        if file.suffix != ".js" or file.name in first_loaded():
            sent += len(response.data)
    assert sent < 80 * 1024


def test_the_policy_forbids_turning_text_into_markup(store):
    policy = store.anonymous().get("/").headers["Content-Security-Policy"]
    assert policy.startswith(site.POLICY)
    assert policy.endswith("; require-trusted-types-for 'script'; trusted-types 'none'")
    assert "unsafe" not in policy


def test_no_file_contains_what_the_policy_forbids():
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page) == []
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        # The only addresses of other sites are the names of formats.
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}


def test_modules_are_preloaded_or_loaded_later_and_addresses_are_relative(store):
    page = store.anonymous().get("/").text
    preloaded = set(re.findall(r'href="console/(\w+\.js)"', page))
    assert preloaded == first_loaded() - {"app.js"}
    later = set(re.findall(r'import\("\./(\w+\.js)"\)', "\n".join(MODULES.values())))
    assert loaded_with(*later) - first_loaded() == set(MODULES) - first_loaded() > set()
    assert not later & first_loaded()
    # So it also works under a path prefix of a server in front of it.
    addresses = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert [each for each in addresses if each.startswith("/")] == []


def test_a_key_can_be_issued_on_each_plan():
    source = MODULES["keys.js"]
    (listed,) = re.findall(r"const PLANS = \[(.*)\];", source)
    (own,) = re.findall(r'const FIGURES_OF_ITS_OWN = "(\w+)";', source)
    names = [
        own if each == "FIGURES_OF_ITS_OWN" else each.strip('"') for each in listed.split(", ")
    ]
    assert names == [*DEFAULT_PLANS], "PLANS in keys.js"


def test_the_page_has_each_field_of_an_order_as_the_service_has_it():
    fields = re.findall(r'^  \{.*?\bname: "(\w+)",?(.*) \},$', MODULES["fields.js"], re.MULTILINE)
    assert {name for name, _ in fields} == {*SHOWN.values()}, "FIELDS in fields.js"
    kinds = {*re.findall(r"\{ \.\.\.([A-Z_]+),", MODULES["fields.js"])}
    assert kinds <= {*re.findall(r"^const ([A-Z_]+) = \{", MODULES["fields.js"], re.MULTILINE)}
    columns = {shown: name for name, shown in SHOWN.items()}
    entered = {columns[name]: facts for name, facts in fields if " enter: " in facts}
    assert {*entered} == {*OrderPatchSchema().fields}, "`enter` in fields.js"
    for name, facts in entered.items():
        (states,) = re.findall(r" open: \[(.*?)\]", facts) or ['"pending"']
        assert {*re.findall(r"\w+", states)} == changeable_in(name), f"`open` of {name}"
        if name in TEXTS:
            assert f"maxlength: {TEXTS[name].most}" in facts, f"maxlength of {name}"
