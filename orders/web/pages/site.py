"""Serves the console at / and the API documentation at /docs, from the files in this folder.

Our files are read when a service starts, and cached: those that a `git pull` replaces belong to a
program that does not run yet. Others are read on their first request. Browsers revalidate their
copies each time (no-cache) and get 304 while the contents are the same (RFC 9110, section 13): a
new release is seen at once, and nothing is sent twice. The pages need no key; the API requests that
they make do.

Swagger UI comes from the package flask-swagger-ui, of which only these files are used: the package
has no dependencies, and follows Swagger UI's releases.

Pages link to their files, and to each other, by relative addresses, so that they work behind a
reverse proxy that serves them below a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import resources
from pathlib import Path

from orders.web.api import OrdersFlask
from orders.web.pages import handover
from orders.web.replies import Constant

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
# Pages may load and request only what is on this origin, nothing inline, and are never framed
# (https://www.w3.org/TR/CSP3/).
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# In the console, orders are only ever text: the browser refuses to parse them as markup
# (https://www.w3.org/TR/trusted-types/).
_TEXT_ONLY = "; require-trusted-types-for 'script'; trusted-types 'none'"
_HERE = Path(__file__).parent
_INDEX = "index.html"
_PAGES = "pages"
_SWAGGER_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png")


def register(app: OrdersFlask) -> None:
    serve_page(app, "/", _HERE / "console", POLICY + _TEXT_ONLY)
    handover.register(app)
    swagger = [(name, partial(_read_swagger, name)) for name in _SWAGGER_FILES]
    serve_page(app, "/docs", _HERE / "docs", more=swagger)


def load(app: OrdersFlask) -> None:
    for file in app.extensions.get(_PAGES, []):
        file.load()


def serve_page(
    app: OrdersFlask,
    address: str,
    folder: Path,
    policy: str = POLICY,
    more: Iterable[tuple[str, Callable[[], bytes]]] = (),
) -> None:
    """Serve a folder's index.html at an address, and its other files below the folder's name.

    The files of `console` are at `/console/app.js`, and so on. Files whose suffix is not in `TYPES`
    are left out. `more` has files from elsewhere: their names here, and what reads them.
    """
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
    }
    own = [(path.name, path.read_bytes) for path in folder.iterdir()]
    files = {
        name: Constant(read, TYPES[Path(name).suffix], headers)
        for name, read in [*own, *more]
        if Path(name).suffix in TYPES
    }
    # Files from elsewhere are large, and few browsers request them.
    loaded = [name for name, _ in own if name in files]
    app.extensions.setdefault(_PAGES, []).extend(files[name] for name in loaded)
    app.instant |= {address, *(f"/{folder.name}/{name}" for name in loaded)}
    app.add_url_rule(address, f"file {address}", files.pop(_INDEX))
    # One rule for all: a rule for each file would take a third of the time to make an application.
    names = ", ".join(f'"{name}"' for name in files)
    app.add_url_rule(
        f"/{folder.name}/<any({names}):name>", f"file /{folder.name}/", lambda name: files[name]()
    )


def _read_swagger(name: str) -> bytes:
    return (resources.files("flask_swagger_ui") / "dist" / name).read_bytes()
