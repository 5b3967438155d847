"""A server in the tests' own process, whose main loop a test turns step by step."""

from __future__ import annotations

from urllib.parse import urlsplit

from orders.settings import Settings
from orders.web.server import Server
from tests.support.machine import wait_until


class TurnedServer:
    """A server over a WSGI application."""

    def __init__(self, application):
        self.server = Server(application, Settings(port=0), list)
        address = urlsplit(self.server.addresses[0])
        self.address = (address.hostname, address.port)

    @property
    def channels(self):
        return self.server._channels()  # noqa: SLF001 - they show nowhere else

    def turn(self):
        self.server._loop_once(0.01)  # noqa: SLF001 - as run() does

    def turn_until(self, is_so):
        wait_until(is_so, self.turn)

    def close(self):
        self.server._stopping = True  # noqa: SLF001 - without signals
        self.server.run()
