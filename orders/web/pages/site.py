"""The pages for people, and what they are made of. They need no key; what they ask the API does.

Swagger UI comes from the package flask-swagger-ui, of which nothing but these files is used: that
is brought up to date with each of its releases, and brings nothing along.
"""

from __future__ import annotations

from functools import partial
from importlib import resources
from pathlib import Path

from flask import Flask

from orders.web.pages import files
from orders.web.pages.files import serve_page

_HERE = Path(__file__).parent
# In the console, what comes from orders is text: the browser refuses whatever would read it as
# markup (https://www.w3.org/TR/trusted-types/).
_TEXT_ONLY = "; require-trusted-types-for 'script'; trusted-types 'none'"
_SWAGGER_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png")


def register(app: Flask) -> None:
    """Add the pages to an application: the console at /, and /docs with the descriptions."""
    serve_page(app, "/", _HERE / "console", files.POLICY + _TEXT_ONLY)
    swagger = {name: partial(_of_swagger, name) for name in _SWAGGER_FILES}
    serve_page(app, "/docs", _HERE / "docs", more=swagger)


def _of_swagger(name: str) -> Path:
    return Path(str(resources.files("flask_swagger_ui") / "dist" / name))
