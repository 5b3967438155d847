"""docs/clients/receiver.py, run as a shop would: what it takes, and what it does not."""

from __future__ import annotations

import ast
import base64
import hashlib
import hmac
import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import urllib3
from standardwebhooks import Webhook

from orders.webhooks import messages
from tests.support.service import INHERITED, ROOT
from tests.support.webhooks import Hooks

SCRIPT = ROOT / "docs" / "clients" / "receiver.py"
SECRET = messages.generate_secret()
BODY = b'{"type":"order.placed","timestamp":"2026-12-01T12:00:00.000Z","data":{"id":1}}'


@contextmanager
def listening(secret=SECRET):
    """Run the receiver; return its URL, and the process, whose output can be read when it ended."""
    process = subprocess.Popen(
        [sys.executable, "-u", SCRIPT],
        env={**INHERITED, "STORE_SECRET": secret, "PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stderr.readline()
        yield re.search(r"http://\S+", line)[0], process
    finally:
        process.kill()
        process.communicate()


def signed(message_id="evt_1", sent=None, secret=SECRET, body=BODY):
    """Return a message's headers, made without the library."""
    timestamp = str(int(time.time())) if sent is None else sent
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
    }


def test_it_accepts_messages_of_the_store_and_ignores_repeats(store, client, clock):
    clock.wall = time.time()
    with listening() as (url, process):
        hooks = Hooks(store)
        hooks.add(url, secret=SECRET)
        client.place()
        client.cancel(1)
        hooks.deliver()
        with store.database.write() as connection:
            connection.exec_driver_sql("UPDATE webhook_endpoints SET position = 0")
        hooks.deliver()
        process.kill()
        printed, _ = process.communicate()
    assert [status for *_, status in hooks.tries()] == [204] * 4
    kinds = [line.split(": ", 1) for line in printed.splitlines()]
    assert [kind for kind, _ in kinds] == ["order.placed", "order.cancelled"]
    assert [ast.literal_eval(data)["status"] for _, data in kinds] == ["pending", "cancelled"]


def test_it_rejects_messages_that_are_not_the_stores():
    now = int(time.time())
    fakes = {
        "unsigned": {},
        "of another body": signed(body=b"{}"),
        "of another id": {**signed(), "webhook-id": "evt_2"},
        "under another secret": signed(secret=messages.generate_secret()),
        "old": signed(sent=str(now - 400)),
        "from the future": signed(sent=str(now + 400)),
        "without a time": signed(sent=""),
        "at no time": signed(sent="soon"),
        "of another version": {
            **signed(),
            "webhook-signature": signed()["webhook-signature"].replace("v1,", "v2,"),
        },
        "not ASCII": {**signed(), "webhook-signature": "v1,é"},
    }
    both = signed()
    both["webhook-signature"] = "v1,AAAA v2,BBBB " + both["webhook-signature"]
    with listening() as (url, _), urllib3.PoolManager(retries=False) as http:
        for name, headers in fakes.items():
            assert http.request("POST", url, body=BODY, headers=headers).status == 401, name
        for headers in (both, signed()):
            assert http.request("POST", url, body=BODY, headers=headers).status == 204


def test_it_agrees_with_the_library():
    headers = signed()
    assert Webhook(SECRET).verify(BODY, headers) == json.loads(BODY)
