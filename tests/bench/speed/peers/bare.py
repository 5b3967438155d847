"""Peers that answer bytes made before: Flask with two views.

On waitress, with its threads or with one, or on the very loop of this service. Run as
`python -m tests.bench.speed.peers.bare flask|one|loop FOLDER PORT`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flask import Flask, Response
from waitress import serve

LIST, ORDER = "list.json", "order.json"
PATH = "/v1/store/orders"


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


def serve_on_this_loop(app: Flask, port: int) -> None:
    """Serve with the service's own server, whose loop answers everything."""
    # Not above: the other peers are to take no memory for it.
    from orders.settings import Settings
    from orders.web.server import Server, Work
    from tests.support.serving import Policy

    class AtOnce(Policy):
        def work(self, method: str, target: str, headers: dict[str, str]) -> Work:
            return Work.SHORT

    server = Server(app, Settings(port=port), AtOnce())
    server.stop_on_signals()
    server.run()


def main(kind: str, folder: Path, port: int) -> None:
    """Serve until a signal."""
    app = flask(*((folder / name).read_bytes() for name in (LIST, ORDER)))
    if kind == "loop":
        serve_on_this_loop(app, port)
    else:
        serve(app, host="127.0.0.1", port=port, threads=1 if kind == "one" else 4)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
