"""The server in the tests' own process, over any WSGI application."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

from orders.settings import Settings
from orders.web.server import Server


@contextmanager
def serving(application, **settings):
    """Serve an application in a thread; yield the address."""
    server = Server(application, Settings(port=0, **settings), list)
    thread = threading.Thread(target=server.run)
    thread.start()
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        address = urlsplit(server.addresses[0])
        yield address.hostname, address.port
    finally:
        server.stop()
        signal.signal(signal.SIGINT, on_ctrl_c)
        thread.join()
