"""A peer: one WSGI function that answers bytes it was given, on waitress.

Run as `python -m bench.speed.peers.bare_waitress FOLDER PORT`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from waitress import serve

LIST, ORDER = "list.json", "order.json"


def main(folder: Path, port: int) -> None:
    """Serve the two answers that lie in the folder."""
    all_orders, one_order = ((folder / name).read_bytes() for name in (LIST, ORDER))

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = all_orders if environ["PATH_INFO"] == "/v1/store/orders" else one_order
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response("200 OK", headers)
        return [body]

    serve(app, host="127.0.0.1", port=port)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
