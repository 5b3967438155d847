"""The server in the tests' own process, over any WSGI application."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

from orders.server import Server, Work
from orders.settings import Settings
from orders.web import api
from orders.web.access import Call
from orders.web.refusals import PayloadTooLarge


class Policy:
    """Every request waits, except those whose path means long. Nothing is counted or logged."""

    probe = "/healthz"
    resting = "/rest"
    outages = ()

    def work(self, method, path, headers):
        """Return the resources that a request takes."""
        return Work.LONG if path.startswith("/long") else Work.WAITING

    def body_bytes(self, method, path, headers):
        """Return the most bytes that the service retains of a body."""
        return PayloadTooLarge.limit

    def may_rest(self, query, headers):
        """Return that an answer at that path may wait."""
        return True

    def wants_body(self, method, path, headers):
        """Return that every body matters."""
        return True

    def has_room_for_long(self):
        """Return that long answers may begin."""
        return True

    def owner(self, address, authorization):
        """Return the client, as the service does."""
        return api.ServingPolicy.owner(self, address, authorization)

    def refusal(self, refused):
        """Return the service's refusal."""
        return api.answer_to_rejection(refused, Call(None, 0, True, refused.address, "-", "-"))

    def on_turn(self):
        """Forget a turn."""


def server_of(application, policy=None, **changed):
    """Return a server of an application at a free port, with the service's settings."""
    settings = Settings(port=0, **changed)
    deadlines = settings.head_seconds, settings.body_seconds
    return Server(application, policy or Policy(), (settings.host, 0), settings.threads, deadlines)


@contextmanager
def serving(*arguments, **options):
    """Serve an application in a thread; yield the address."""
    server = server_of(*arguments, **options)
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
