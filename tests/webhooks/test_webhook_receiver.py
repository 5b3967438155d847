"""docs/clients/receiver.py, run as a shop would: which messages it accepts."""

from __future__ import annotations

import ast
import base64
import hashlib
import hmac
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import urllib3

from orders.webhooks import endpoints, sender
from tests.support.service import INHERITED, ROOT

SECRET = sender.generate_secret()
BODY = b'{"type":"order.placed","timestamp":"2026-12-01T12:00:00.000Z","data":{"id":1}}'


@contextmanager
def listening():
    """Run the receiver; return its URL, and the process, whose output can be read at its end."""
    environment = {**INHERITED, "STORE_SECRET": SECRET, "PORT": "0"}
    with subprocess.Popen(
        [sys.executable, "-u", ROOT / "docs" / "clients" / "receiver.py"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield re.search(r"http://\S+", process.stderr.readline())[0], process
        finally:
            process.kill()


def signed(message_id="evt_1", sent=None, secret=SECRET, body=BODY):
    """Return a message's headers, made without the library."""
    timestamp = str(int(time.time())) if sent is None else str(sent)
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
    }


def test_it_accepts_messages_of_the_store_and_ignores_repeats(store, client, clock, hooks):
    clock.wall = time.time()
    with listening() as (url, process):
        hooks.add(url, secret=SECRET)
        client.place()
        client.cancel(1)
        hooks.deliver()
        hooks.change(endpoints.resume, 1, store.clock.now(), 0)
        hooks.deliver()
        process.kill()
        printed = process.stdout.read()
    assert [status for *_, status in hooks.tries()] == [204] * 4
    kinds = [line.split(": ", 1) for line in printed.splitlines()]
    assert [kind for kind, _ in kinds] == ["order.placed", "order.cancelled"]
    assert [ast.literal_eval(data)["status"] for _, data in kinds] == ["pending", "cancelled"]


def test_it_rejects_messages_that_are_not_the_stores():
    now = int(time.time())
    good = signed()
    signature = good["webhook-signature"]
    fakes = {
        "unsigned": {},
        "of another body": signed(body=b"{}"),
        "of another id": {**good, "webhook-id": "evt_2"},
        "under another secret": signed(secret=sender.generate_secret()),
        "old": signed(sent=now - 400),
        "from the future": signed(sent=now + 400),
        "without a time": signed(sent=""),
        "at no time": signed(sent="soon"),
        "of another version": {**good, "webhook-signature": signature.replace("v1,", "v2,")},
        "not ASCII": {**good, "webhook-signature": "v1,é"},
    }
    several = {**good, "webhook-signature": f"v1,AAAA v2,BBBB {signature}"}
    with listening() as (url, _), urllib3.PoolManager(retries=False) as http:
        for name, headers in fakes.items():
            assert http.request("POST", url, body=BODY, headers=headers).status == 401, name
        for headers in (several, good):
            assert http.request("POST", url, body=BODY, headers=headers).status == 204
