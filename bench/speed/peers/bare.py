"""Two peers on waitress that answer bytes made before: a WSGI function, and Flask with two views.

Run as `python -m bench.speed.peers.bare wsgi|flask FOLDER PORT`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flask import Flask, Response
from waitress import serve

LIST, ORDER = "list.json", "order.json"
PATH = "/v1/store/orders"


def wsgi(all_orders: bytes, one_order: bytes) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI function."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = all_orders if environ["PATH_INFO"] == PATH else one_order
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response("200 OK", headers)
        return [body]

    return app


def flask(all_orders: bytes, one_order: bytes) -> Flask:
    """Return a Flask application."""
    app = Flask(__name__)

    @app.get(PATH)
    def list_orders() -> Response:
        return Response(all_orders, mimetype="application/json")

    @app.get(f"{PATH}/<int:order_id>")
    def get_order(order_id: int) -> Response:
        return Response(one_order, mimetype="application/json")

    return app


if __name__ == "__main__":
    kind, folder, port = sys.argv[1:]
    answers = [(Path(folder) / name).read_bytes() for name in (LIST, ORDER)]
    serve({"wsgi": wsgi, "flask": flask}[kind](*answers), host="127.0.0.1", port=int(port))
