"""A peer: Flask with two views that answer bytes they were given, on waitress.

Run as `python -m bench.speed.peers.bare_flask FOLDER PORT`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flask import Flask, Response
from waitress import serve

from bench.speed.peers.bare_waitress import LIST, ORDER


def main(folder: Path, port: int) -> None:
    """Serve the two answers that lie in the folder."""
    all_orders, one_order = ((folder / name).read_bytes() for name in (LIST, ORDER))
    app = Flask(__name__)

    @app.get("/v1/store/orders")
    def list_orders() -> Response:
        return Response(all_orders, mimetype="application/json")

    @app.get("/v1/store/orders/<int:order_id>")
    def get_order(order_id: int) -> Response:
        return Response(one_order, mimetype="application/json")

    serve(app, host="127.0.0.1", port=port)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
