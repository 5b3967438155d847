"""The HTTP server: one thread polls, answers what is short, and hands over the rest.

Waitress reads requests and calls the application. Polling, deadlines, places, fairness and the
stop are here. Others use `Server`; `Policy` and `Work`, by which it decides who answers a request;
and `EXTRA_THREADS`, how many threads answer beside the configured ones.
"""

from orders.web.server.answers import Policy, Work
from orders.web.server.server import EXTRA_THREADS, Server

__all__ = ["EXTRA_THREADS", "Policy", "Server", "Work"]
