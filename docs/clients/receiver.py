# /// script
# dependencies = []
# ///
"""Takes webhooks: verifies that each message is the store's, and prints what is new.

The secret that `flask webhooks add` printed is in STORE_SECRET; it listens on port 9000, or PORT.
"""

import base64
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

SECRET = base64.b64decode(os.environ["STORE_SECRET"].removeprefix("whsec_"))
# In a shop a table, written in the transaction that acts on the event.
seen: set[str] = set()


def is_genuine(headers: Any, body: bytes) -> bool:
    """Tell whether the store signed this message, within the last five minutes."""
    name, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    signature = hmac.digest(SECRET, f"{name}.{sent}.".encode() + body, "sha256")
    wanted = b"v1," + base64.b64encode(signature)
    given = headers.get("webhook-signature", "").encode().split()
    is_new = sent.isdecimal() and abs(time.time() - int(sent)) < 300  # noqa: PLR2004 - seconds
    return is_new and any(hmac.compare_digest(each, wanted) for each in given)


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 when a message was dealt with, and 401 to what is not the store's."""

    def do_POST(self) -> None:
        """Take a message. The same one may come again: its id tells."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        genuine = is_genuine(self.headers, body)
        if genuine and self.headers["webhook-id"] not in seen:
            sys.stdout.write("{type}: {data}\n".format(**json.loads(body)))
            seen.add(self.headers["webhook-id"])
        self.send_response(204 if genuine else 401)
        self.end_headers()


server = HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Receiver)
sys.stderr.write(f"Listening on http://127.0.0.1:{server.server_port}/\n")
server.serve_forever()
