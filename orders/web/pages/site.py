"""The pages for people, from files: a page, and the scripts and styles that it is made of.

A file is read when it is first asked for, and kept. What a browser has of it, it asks about each
time (no-cache), and gets 304 while the contents are the same (RFC 9110, section 13): so a new
release is there at once, and nothing else crosses the network twice.

Behind a server that puts the service below a path of its own, `/` and `/docs` are somewhere else:
pages name their files, and each other, by relative addresses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType

from flask import Flask, Response, request

from orders.web.compression import accepts_gzip, compressed_well

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
# What a page may do: run, show and ask what comes from here, and nothing that stands in the page
# itself or was written into it (https://www.w3.org/TR/CSP3/). It stands in nobody else's frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_INDEX = "index.html"
# They are packed once, and not for each answer: a packet saved is worth it.
_PACKED_FROM_BYTES = 1024


class ServedFile:
    """A file as it goes out. `find` says where it is, when it is first asked for."""

    def __init__(self, find: Callable[[], Path], content_type: str, policy: str) -> None:
        """Take what is known of it before it is read."""
        self._find = find
        self._content_type = content_type
        self._policy = policy

    def __call__(self) -> Response:
        """Answer a request for it: 200, or 304 if the client's copy is good."""
        headers = [
            ("ETag", f'W/"{self._tag}"'),
            ("Cache-Control", "no-cache"),
            ("Content-Security-Policy", self._policy),
            ("Referrer-Policy", "no-referrer"),
        ]
        if self._is_packed:
            headers.append(("Vary", "Accept-Encoding"))
        if request.if_none_match.contains_weak(self._tag):
            return Response(status=304, headers=headers)
        body = self._body
        if self._is_packed and accepts_gzip(request):
            headers.append(("Content-Encoding", "gzip"))
            body = self._packed
        return Response(body, headers=headers, content_type=self._content_type)

    @cached_property
    def _body(self) -> bytes:
        return self._find().read_bytes()

    @property
    def _is_packed(self) -> bool:
        return len(self._body) >= _PACKED_FROM_BYTES

    @cached_property
    def _packed(self) -> bytes:
        return compressed_well(self._body)

    @cached_property
    def _tag(self) -> str:
        # The policy belongs to the copy, too.
        return hashlib.sha256(self._policy.encode() + self._body).hexdigest()[:32]


def serve_page(
    app: Flask,
    address: str,
    folder: Path,
    policy: str = POLICY,
    more: Mapping[str, Callable[[], Path]] = MappingProxyType({}),
) -> None:
    """Serve a page at an address: a folder's index.html, and its other files below its name.

    The page of the folder `console` is made of `/console/main.js`, and so on. What is no file for
    browsers by its ending is left out. `more` are files from elsewhere, by their names here.
    """
    found: dict[str, Callable[[], Path]] = {
        path.name: partial(Path, path) for path in sorted(folder.iterdir())
    }
    files = {
        name: ServedFile(find, TYPES[Path(name).suffix], policy)
        for name, find in {**found, **more}.items()
        if Path(name).suffix in TYPES
    }
    app.add_url_rule(address, f"file {address}", files.pop(_INDEX))
    # A rule for each would be most of what an application has, and take a third of its making.
    names = ", ".join(f'"{name}"' for name in files)
    app.add_url_rule(
        f"/{folder.name}/<any({names}):name>",
        f"file /{folder.name}/",
        lambda name: files[name](),
    )
