"""The server in the tests' own process, over any WSGI application."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

from orders.settings import Settings
from orders.web.server import Server, Work


class Policy:
    """Everything waits, but for what is long by its path. Nothing is counted or noted."""

    def work(self, method, target, headers):
        """Return what a request takes."""
        return Work.LONG if target.startswith("/long") else Work.WAITING

    def wants_body(self, method, target, headers):
        """Return that every body matters."""
        return True

    def has_room_for_long(self):
        """Return that long answers may begin."""
        return True

    def uncounted_headers(self, authorization):
        """Return no headers."""
        return []

    def note_turn(self):
        """Forget a turn."""

    def note_answer(self, call, status, now):
        """Forget an answer."""


@contextmanager
def serving(application, policy=None, **settings):
    """Serve an application in a thread; yield the address."""
    server = Server(application, Settings(port=0, **settings), policy or Policy())
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
