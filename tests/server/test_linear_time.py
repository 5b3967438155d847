"""No input takes long: patterns and whole requests, made to be slow, as long as is accepted.

The one place where tests assert a duration, of processor time and of the fastest of several tries:
`re` and the parser of JSON hold Python's lock, so that one slow request keeps everybody waiting.
"""

from __future__ import annotations

import importlib
import ipaddress
import re
import time
from functools import partial
from itertools import product

import pytest
from waitress.rfc7230 import HEADER_FIELD_RE

from orders.server.parser import MAX_HEAD_BYTES
from orders.web.access import client_address
from orders.web.api import ServingPolicy
from tests.support.service import SOURCE
from tests.support.serving import serving
from tests.support.wire import exchange

# Each pattern and parser, and each request as a whole.
MOST_SECONDS = 0.02
# How long it is tried: on a busy machine, a processor is shared with others.
PATIENCE_SECONDS = 0.5
# With the rest of a head around it; of a body; of a line among chunks.
HEAD_BYTES = MAX_HEAD_BYTES - 400
BODY_BYTES = 64 * 1024
LINE_BYTES = 4 * 1024
# How a text begins, what is repeated in it, and how it ends: a pattern is slow where it can divide
# what repeats in several ways, and its end lets none of them match.
PUMPS = [
    *(" ", "\t", "a", "0", ",", ", ", " ,", '"', "\\", '\\"', ";", "; ", ";a=", ';a="', "=", "*"),
    *("%", "%2f", "/", ".", ":", "a,", "a ", '"a",', 'W/"a",', "a;q=0.1,", "&", "a&", "a=&", "+"),
    *("sok_", "\xff"),
]
BEGINNINGS = [
    *("", "a", "1", "/", "//v", "[", '"', "sok_", "whsec_", "http://", "GET /", "1;a", '1;a="'),
    *("X:", "2026-12-01T00:00:00.", "text/plain;q="),
]


def seconds_of(action, *arguments):
    """Return how much processor time an action takes, of several tries the least."""
    tries = []
    while not tries or (min(tries) >= MOST_SECONDS and sum(tries) < PATIENCE_SECONDS):
        begun = time.process_time()
        action(*arguments)
        tries.append(time.process_time() - begun)
    return min(tries)


def may_be_slow(action, beginning, pump, end, size):
    """Return whether a quarter of a text takes so long that the whole may: by its third power."""
    text = pumped(beginning, pump, end, size // 4)
    begun = time.process_time()
    action(text)
    return time.process_time() - begun > MOST_SECONDS / 4**3


def assert_fast(action, cases):
    """Check that an action takes little time with the text of each of these cases."""
    seconds = {case: seconds_of(action, pumped(*case)) for case in cases}
    slow = {case: round(each * 1000) for case, each in seconds.items() if each >= MOST_SECONDS}
    assert not slow, f"too slow, in ms: {slow}"


def pumped(beginning, pump, end, size):
    """Return a text that repeats itself, with so many characters."""
    times = (size - len(beginning) - len(end)) // len(pump)
    return beginning + pump * times + end


def attacks(beginnings, pumps, ends, size):
    """Return cases of texts."""
    return [(*case, size) for case in product(beginnings, pumps, ends)]


# Patterns.


def patterns():
    """Yield the name of each pattern of the program, with each way in which it is used."""
    for top in ("orders", "schemas"):
        for path in sorted((SOURCE / top).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            for name in re.findall(r"^(\w+) = re\.compile\(", source, re.MULTILINE):
                module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
                for way in sorted(set(re.findall(rf"\b{name}\.(\w+)\(", source))):
                    yield f"{module}.{name}.{way}"


PATTERNS = list(patterns())


@pytest.mark.parametrize("used", PATTERNS)
def test_no_pattern_is_slow(used):
    module, name, way = used.rsplit(".", 2)
    pattern = getattr(importlib.import_module(module), name)
    nothing = pattern.pattern[:0]
    apply = partial(pattern.sub, nothing) if way == "sub" else getattr(pattern, way)
    as_read = str if nothing == "" else partial(str.encode, encoding="latin-1")

    def match(text):
        apply(as_read(text))

    cases = attacks(BEGINNINGS, PUMPS, ["\0"], MAX_HEAD_BYTES)
    assert_fast(match, [each for each in cases if may_be_slow(match, *each)])


def test_the_patterns_are_found_and_a_slow_one_is_not_overlooked():
    assert "orders.server.parser._VALUE.fullmatch" in PATTERNS
    slow = ("X:", " ", "a", 4_000)
    assert may_be_slow(match_field, *slow)
    with pytest.raises(AssertionError, match="too slow"):
        assert_fast(match_field, [slow])


def match_field(text):
    HEADER_FIELD_RE.match(text.encode())


# Whole requests, as a socket brings them.

LIST, CHANGE = "GET /v2/store/orders", "PATCH /v2/store/orders/1"
PLACE = "POST /v2/store/orders"
JSON, IN_CHUNKS = "Content-Type: application/json", "Transfer-Encoding: chunked"
# Each with a request that heeds it.
HEADERS = {
    **dict.fromkeys(["Accept-Encoding", "Authorization", "Connection", "Expect", "Host"], LIST),
    **dict.fromkeys(["If-None-Match", "Transfer-Encoding", "X-Anything"], LIST),
    **dict.fromkeys(["Content-Encoding", "Content-Type", "If-Match", "Idempotency-Key"], CHANGE),
}
HEADERS_BEGIN = {"Authorization": "Bearer ", "Content-Type": "application/json;a="}
PARAMETERS = ["after", "limit", "petId", "placedFrom", "reference", "search", "sort", "status"]
TARGETS = [
    *("/", "//", "/v2/store/orders/", "/v1/pets/", "http://a", "http://[", "*"),
    *("/v2/store/stats?zone=", "/v2/store/stats?days=", "/v2/store/events?type="),
    *("/v2/store/orders?", "/v2/store/orders?placedFrom=2026-12-01T00:00:00."),
    *(f"/v2/store/orders?{name}=" for name in PARAMETERS),
]
IN_TARGETS = [each for each in PUMPS if not set(each) & set(" \t\xff")]
BODIES = [
    "",
    "[",
    '{"a":',
    '{"petId":1,"reference":"',
    '{"petId":1,"shipDate":"2026-12-01T00:00:00.',
]
IN_BODIES = [
    *("[", "{", '{"a":', "1", "0.", "1e", "-", '"', '"\\', "\\u0000", "\\", '"a":1,', " ", "[],"),
    *('{"x":1},', "1,", "null,", '"a",', "9" * 900 + ",", "\n", "\xff"),
]


class Sender:
    """Sends requests of a key."""

    def __init__(self, address, key):
        self._address, self._usual = address, {"Host": "a", "Authorization": f"Bearer {key}"}

    def send(self, line, *fields, body=b""):
        """Send a request; return all that comes back."""
        given = {name: value for name, _, value in (each.partition(": ") for each in fields)}
        length = {} if IN_CHUNKS in fields else {"Content-Length": len(body)}
        lines = [f"{name}: {value}" for name, value in (self._usual | length | given).items()]
        head = "\r\n".join([f"{line} HTTP/1.1", *lines, "", ""])
        return exchange(self._address, head.encode("latin-1") + body, half_close=True)


@pytest.fixture(scope="module")
def sender(shared_store):
    _, key = shared_store.issue(plan="enterprise", per_minute=10**9, per_day=10**9)
    with serving(shared_store.app, ServingPolicy(shared_store.app, lambda: None)) as address:
        yield Sender(address, key)


def test_the_requests_are_read_like_any_other(sender):
    assert sender.send(LIST).startswith(b"HTTP/1.1 200 ")
    assert sender.send(LIST, "If-None-Match: *").startswith(b"HTTP/1.1 304 ")
    assert sender.send(PLACE, JSON, body=b'{"petId": 7}').startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("name", HEADERS)
def test_no_header_is_slow(sender, name):
    body = b"{}" if HEADERS[name] is CHANGE else b""
    assert_fast(
        lambda value: sender.send(HEADERS[name], JSON, f"{name}: {value}", body=body),
        attacks([HEADERS_BEGIN.get(name, ""), '"'], PUMPS, ["a"], HEAD_BYTES),
    )


def test_no_name_of_a_header_is_slow(sender):
    assert_fast(
        lambda text: sender.send(LIST, f"{text}: a", f"X: {text}:"),
        attacks(["X"], ["-", "a", "_", ":", " "], [""], HEAD_BYTES // 2),
    )


def test_many_headers_are_not_slow(sender):
    fields = [f"{'x' * 70}-{number}: {'a, ' * 20}" for number in range(90)]
    assert_fast(lambda _: sender.send(LIST, *fields), [("", " ", "", 1)])


@pytest.mark.parametrize("beginning", TARGETS)
def test_no_target_is_slow(sender, beginning):
    assert_fast(
        lambda target: sender.send(f"GET {target}"),
        attacks([beginning], IN_TARGETS, ["!"], HEAD_BYTES),
    )


def test_no_body_is_slow(sender):
    assert_fast(
        lambda body: sender.send(PLACE, JSON, body=body.encode("latin-1")),
        attacks(BODIES, IN_BODIES, ['"}', "1]}"], BODY_BYTES),
    )


def test_many_names_and_many_ids_are_not_slow(sender):
    names = [f"{number:x}" for number in range(7_000)]
    fields = ",".join(f'"{name}":1' for name in names).encode()
    assert_fast(lambda _: sender.send(PLACE, JSON, body=b"{%b}" % fields), [("", " ", "", 1)])
    assert_fast(lambda _: sender.send(f"{LIST}?{'&'.join(names[:3_000])}"), [("", " ", "", 1)])
    assert_fast(
        lambda ids: sender.send("POST /v2/store/shipments", JSON, body=ids.encode()),
        attacks(['{"orderIds":['], ["1,", "1.5,", '"a",'], ["1]}"], BODY_BYTES),
    )


@pytest.mark.parametrize("form", ["1%b\r\na\r\n0\r\n\r\n", "0\r\n%b\r\n\r\n"])
def test_no_line_among_chunks_is_slow(sender, form):
    before, after = (part.encode() for part in form.split("%b"))
    assert_fast(
        lambda line: sender.send(
            PLACE, JSON, IN_CHUNKS, body=before + line.encode("latin-1") + after
        ),
        attacks(["", ";a", ';a="', "X:"], PUMPS, ["\0", "a"], LINE_BYTES - 2),
    )


def test_no_forwarded_address_is_slow():
    trusted = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "10.0.0.0/8", "2001:db8::/32")))
    proxies = ",".join(f"10.0.{n >> 8}.{n & 255}" for n in range(1_200))
    assert_fast(
        lambda text: client_address("127.0.0.1", text, trusted),
        [
            *attacks(["", "["], [*PUMPS, "::,", "2001:db8::1,"], ["", "a"], HEAD_BYTES),
            (proxies, ",", "", HEAD_BYTES),
        ],
    )
