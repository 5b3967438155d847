"""How pages and their files are served: read once, revalidated cheaply, under a strict policy."""

from __future__ import annotations

import gzip
import re

import pytest

from orders.web.pages.site import POLICY, load, serve_page
from orders.web.replies import LARGE_BYTES
from tests.support.stores import assert_error

LARGE = "export const words = [" + "'pet', " * LARGE_BYTES + "]\n"
NOT_SERVED = ("notes.txt", "main.js~", ".main.js.swp", "main.py")


@pytest.fixture
def folder(tmp_path):
    """The files of a page, in the folder `desk`."""
    folder = tmp_path / "desk"
    folder.mkdir()
    for name, text in {
        "index.html": "<!doctype html><title>Ä desk</title>",
        "main.js": "export const one = 1\n",
        "words.js": LARGE,
        "look.css": "body { margin: 0 }\n",
        "sign.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>",
        **dict.fromkeys(NOT_SERVED, "not for browsers"),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def visitor(store, folder):
    """A client without a key, of a service with a page at /at-the-desk."""
    serve_page(store.own_app(), "/at-the-desk", folder)
    return store.anonymous()


TYPES = {
    "/at-the-desk": "text/html; charset=utf-8",
    "/desk/main.js": "text/javascript; charset=utf-8",
    "/desk/look.css": "text/css; charset=utf-8",
    "/desk/sign.svg": "image/svg+xml",
}


@pytest.mark.parametrize("path", TYPES)
def test_a_page_and_its_files_need_no_key_and_count_nothing(visitor, path):
    for _ in range(70):  # more than an address may ask of the API in a minute
        response = visitor.get(path)
    assert response.status_code == 200
    headers = response.headers
    assert response.content_type == TYPES[path]
    assert not [name for name, _ in headers if "ratelimit" in name.lower()]
    assert "X-Request-Id" not in headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    head = visitor.head(path)
    assert (head.status_code, head.data, head.headers) == (200, b"", headers)


@pytest.mark.parametrize("path", TYPES)
def test_the_policy_allows_the_services_own_files_and_nothing_inline(visitor, path):
    assert visitor.get(path).headers.getlist("Content-Security-Policy") == [POLICY]
    assert set(POLICY.split("; ")) >= {
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    }
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("change", ["policy", "contents"])
def test_a_cached_copy_is_stale_after_a_change(visitor, make_store, folder, change):
    before = visitor.get("/desk/main.js")
    policy = "default-src 'none'" if change == "policy" else POLICY
    if change == "contents":
        (folder / "main.js").write_text("export const one = 2\n", encoding="utf-8")
    restarted = make_store()
    serve_page(restarted.own_app(), "/at-the-desk", folder, policy)
    after = restarted.anonymous().get(
        "/desk/main.js", headers={"If-None-Match": before.headers["ETag"]}
    )
    assert after.status_code == 200
    assert after.headers["ETag"] != before.headers["ETag"]
    assert after.headers.getlist("Content-Security-Policy") == [policy]
    assert after.data == (folder / "main.js").read_bytes()


def test_a_service_serves_the_files_that_existed_at_its_start(store, folder):
    app = store.own_app()
    serve_page(app, "/at-the-desk", folder)
    load(app)
    (folder / "main.js").unlink()
    (folder / "index.html").write_text("of another version", encoding="utf-8")
    assert store.anonymous().get("/desk/main.js").status_code == 200
    assert "another" not in store.anonymous().get("/at-the-desk").text


def test_a_file_is_read_at_its_first_request_and_only_then(store, folder, tmp_path):
    path = tmp_path / "of-a-package.js"
    serve_page(store.own_app(), "/at-the-desk", folder, more=[("later.js", path.read_bytes)])
    path.write_text("first()", encoding="utf-8")
    assert store.anonymous().get("/desk/later.js").text == "first()"
    path.unlink()
    assert store.anonymous().get("/desk/later.js").text == "first()"


def test_a_copy_is_revalidated_each_time_and_fresh_while_the_contents_are_the_same(visitor):
    first = visitor.get("/desk/main.js")
    assert first.headers["Cache-Control"] == "no-cache"
    for tag in (first.headers["ETag"], f'"other", {first.headers["ETag"]}', "*"):
        again = visitor.get("/desk/main.js", headers={"If-None-Match": tag})
        assert (again.status_code, again.data) == (304, b"")
        assert again.headers["ETag"] == first.headers["ETag"]
        assert again.headers["Cache-Control"] == "no-cache"
    other = visitor.get("/desk/main.js", headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.data) == (200, first.data)


def test_a_large_file_comes_as_gzip_to_clients_that_accept_it(visitor, folder):
    plain = visitor.get("/desk/words.js")
    packed = visitor.get("/desk/words.js", headers={"Accept-Encoding": "gzip, br"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.data) < len(plain.data) / 10
    assert gzip.decompress(packed.data) == plain.data == (folder / "words.js").read_bytes()
    good = visitor.get("/desk/words.js", headers={"If-None-Match": packed.headers["ETag"]})
    for response in (plain, packed, good):
        assert response.headers["Vary"] == "Accept-Encoding"
    small = visitor.get("/desk/main.js", headers={"Accept-Encoding": "gzip"})
    assert not {"Content-Encoding", "Vary"} & set(small.headers.keys())


def test_other_paths_and_files_are_404_and_other_methods_405(visitor):
    for path in (
        *("/desk", "/desk/", "/at-the-desk/", "/desk/index.html", "/desk/nothing.js"),
        *("/desk/main.js/", "/desk//main.js", "/desk/../desk/main.js"),
        *("/desk/%2e%2e/desk/main.js", "/desk/..%2Fdesk%2Fmain.js"),
        *(f"/desk/{name}" for name in NOT_SERVED),
    ):
        assert_error(visitor.get(path), 404, "not_found")
        assert_error(visitor.post(path), 404, "not_found")
    for path in TYPES:
        refused = visitor.post(path)
        assert_error(refused, 405, "method_not_allowed")
        assert set(refused.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}
        assert visitor.options(path).status_code == 204


def test_every_file_that_the_documentation_page_links_to_exists(store):
    client = store.anonymous()
    page = client.get("/docs")
    assert page.content_type == "text/html; charset=utf-8"
    named = re.findall(r'(?:href|src)="(docs/[^"]+|openapi/[^"]+)"', page.text)
    assert len(named) == 7
    for path in named:
        assert client.get(f"/{path}").status_code == 200, path
