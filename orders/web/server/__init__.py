"""The HTTP server: waitress, with deadlines, strict parsing and a clean stop.

Others use `Server`, and `MAX_LENT`, the number of threads it adds for long answers.
"""

from orders.web.server.long_answers import MAX_LENT
from orders.web.server.server import Server

__all__ = ["MAX_LENT", "Server"]
