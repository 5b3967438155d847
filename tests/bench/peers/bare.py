"""A peer that answers bytes made before: Flask with two views, on waitress.

Run as `python -m tests.bench.peers.bare FOLDER PORT`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flask import Flask, Response
from waitress import serve

LIST, ORDER = "list.json", "order.json"
PATH = "/v1/store/orders"


def make_app(folder: Path) -> Flask:
    app = Flask(__name__)
    all_orders, one_order = (folder.joinpath(name).read_bytes() for name in (LIST, ORDER))

    @app.get(PATH)
    def list_orders() -> Response:
        return Response(all_orders, mimetype="application/json")

    @app.get(f"{PATH}/<int:order_id>")
    def get_order(order_id: int) -> Response:
        return Response(one_order, mimetype="application/json")

    return app


if __name__ == "__main__":
    serve(make_app(Path(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]))
