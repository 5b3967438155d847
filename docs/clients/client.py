# /// script
# dependencies = ["urllib3>=2"]
# ///
"""Places an order and lists all orders; waits when the store says so.

With `follow` as its argument, it prints every change of every order instead, by asking every five
seconds; with `follow --live`, from a stream, as they are made. The store's address is in STORE_URL,
the API key in STORE_KEY.
"""

import json
import os
import sys
import time
import uuid
from http import HTTPStatus
from typing import Any

import urllib3

ORDERS = os.environ["STORE_URL"] + "/v1/store/orders"
EVENTS = os.environ["STORE_URL"] + "/v2/store/events"
KEY = {"Authorization": f"Bearer {os.environ['STORE_KEY']}"}
# In seconds. A store that asks for more has the day's quota used up: come back later.
LONGEST_WAIT = 900


class Patience(urllib3.Retry):
    """Waits as long as Retry-After says, and from the second time on 2 s, 4 s, 8 s, … on top."""

    def sleep_for_retry(self, response: urllib3.BaseHTTPResponse) -> bool:
        """Wait, or give up. Asking early, as `retry_after_max` would, can end in a ban."""
        wait = (self.get_retry_after(response) or 0) + self.get_backoff_time()
        if wait > LONGEST_WAIT:
            told = response.headers["Retry-After"]
            sys.exit(f"{response.status}: the store asks to come back in {told} s")
        time.sleep(wait)
        return True


# For connections that break, too. POST may be sent again because of its Idempotency-Key.
patience = Patience(5, status_forcelist={429, 503}, allowed_methods=None, backoff_factor=1)
store = urllib3.PoolManager(retries=patience.new(raise_on_status=False), timeout=30)


def ask(method: str, url: str, headers: dict[str, str] = KEY, **request: Any) -> Any:
    """Send a request; give the answer's JSON."""
    answer = store.request(method, url, headers=headers, **request)
    if answer.status >= HTTPStatus.BAD_REQUEST:
        sys.exit("{status} {code}: {message}".format(**answer.json()))
    return answer.json()


def show(event: dict[str, Any]) -> None:
    """Print an event."""
    print(event["id"], event["type"], event["orderId"], flush=True)  # noqa: T201


def stream(after: int) -> int:
    """Print events as they come, until the stream ends or is refused; return the last one's id."""
    headers = {**KEY, "Accept": "text/event-stream", "Last-Event-ID": str(after)}
    try:
        # The store says something every 15 s.
        answer = store.request(
            "GET", EVENTS, headers=headers, retries=False, timeout=40, preload_content=False
        )
        for line in answer:
            if line.startswith(b"data: ") and line.endswith(b"\n"):  # it is whole
                show(event := json.loads(line.removeprefix(b"data: ")))
                after = event["id"]
    except urllib3.exceptions.HTTPError:
        pass  # the connection broke, or there is none yet
    return after


def follow(after: int = 0, *, live: bool) -> None:
    """Print each event once. A shop keeps `after` with what it did, and goes on from there."""
    while True:
        after = stream(after) if live else after
        page = ask("GET", f"{EVENTS}?after={after}&limit=200")
        for event in page["events"]:
            show(event)
        after = page["next"]
        if not page["more"]:
            time.sleep(1 if live else 5)


def place() -> None:
    """Place an order. One value for each: sent again with the same value, it is placed once."""
    once = {**KEY, "Idempotency-Key": str(uuid.uuid4())}
    placed = ask("POST", ORDERS, once, json={"petId": 7, "quantity": 2})
    sys.stdout.write(f"Placed order {placed['id']}, one of {len(ask('GET', ORDERS))}.\n")


follow(live="--live" in sys.argv) if "follow" in sys.argv else place()
