"""The service behind nginx as deploy/ configures it: what passes through, and what does not."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import pytest
import urllib3

from orders.web.api import PROTECTION
from tests.support import nginx as nginx_server
from tests.support.machine import wait_until
from tests.support.nginx import Nginx
from tests.support.service import ROOT, Service, running

pytestmark = pytest.mark.nginx

ORDERS = "/v1/store/orders"
EVENTS = "/v2/store/events"
# Headers of nginx itself, or of the connection.
OF_NGINX = {"server", "date", "connection", "transfer-encoding", "strict-transport-security"}
# Headers that differ between requests.
OF_THE_MOMENT = {"x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit"}
# More than the system's and nginx' buffers hold.
MANY = 150_000


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with many orders that trusts the proxy in front of it."""
    folder = tmp_path_factory.mktemp("behind")
    settings = {"ORDERS_TRUSTED_PROXY": "127.0.0.1", "ORDERS_METRICS": "on"}
    with running(folder / "instance", **settings) as one:
        rows = "\n".join(f"{number % 97 + 1}" for number in range(MANY))
        (folder / "orders.csv").write_text(f"petId\n{rows}\n", encoding="utf-8")
        done = one.command("orders", "import", str(folder / "orders.csv"))
        assert done.returncode == 0, done.stderr
        yield one


@pytest.fixture(scope="module")
def nginx(tmp_path_factory, service):
    one = Nginx(tmp_path_factory.mktemp("nginx"), "{}:{}".format(*service.address))
    yield one
    one.stop()


@pytest.fixture
def front(tmp_path):
    """Start nginx in front of other addresses; each knows nothing of them yet."""
    started = []

    def start(*addresses, **options):
        folder = tmp_path / f"nginx{len(started)}"
        folder.mkdir()
        started.append(Nginx(folder, *("{}:{}".format(*each) for each in addresses), **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def key(service):
    return service.issue()


def assert_of_nginx(response, status, code):
    """Check that nginx itself rejected a request, in the service's error shape."""
    assert response.status == status
    assert "X-Request-Id" not in response.headers
    assert response.headers["Content-Type"] == "application/json"
    body = response.json()
    assert list(body) == ["code", "message", "status"]
    assert (body["code"], body["status"]) == (code, status)
    assert response.headers["Strict-Transport-Security"]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        *((f"GET {ORDERS}/1", 200), (f"HEAD {ORDERS}/1", 200), (f"HEAD {ORDERS}", 200)),
        *(("GET /v2/store/orders?limit=5&sort=-placedAt", 200), (f"OPTIONS {ORDERS}", 204)),
        *((f"GET {ORDERS}/0", 404), (f"GET /{ORDERS}", 404), (f"PUT {ORDERS}", 405)),
        *((f"GET {ORDERS}/%2e%2e/x", 404), ("GET /nothing.html", 404)),
        *(("GET /healthz", 200), ("GET /openapi/v1.json", 200)),
    ],
)
def test_an_answer_passes_through_unchanged(service, nginx, key, line, status):
    direct, through = (each.request(*line.split(), key) for each in (service, nginx))
    assert (direct.status, through.status) == (status, status)
    assert through.data == direct.data
    assert through.headers["Strict-Transport-Security"]
    of_service, forwarded = (
        {
            name.lower(): "" if name.lower() in OF_THE_MOMENT else value
            for name, value in each.headers.items()
            if name.lower() not in OF_NGINX
        }
        for each in (direct, through)
    )
    assert forwarded == of_service


def test_an_order_is_placed_shipped_and_cancelled_over_one_connection(nginx, key):
    http = nginx.pool()
    for change, status in (("/ship", 200), ("", 204)):
        placed = nginx.request("POST", ORDERS, key, http=http, json={"petId": 7})
        assert placed.status == 201
        path = placed.headers["Location"] + change
        assert nginx.request("POST" if change else "DELETE", path, key, http=http).status == status
    assert http.connection_from_url(nginx.url).num_connections == 1


def test_an_unchanged_order_is_304_and_the_connection_is_kept(nginx, key):
    order = f"{ORDERS}/1"
    whole = nginx.request("GET", order, key)
    etag = whole.headers["ETag"]
    again = nginx.request("GET", order, key, headers={"If-None-Match": etag})
    assert (again.status, again.data, again.headers["ETag"]) == (304, b"", etag)
    assert nginx.request("GET", order, key).data == whole.data


def test_a_long_list_comes_through_whole_and_is_written_to_no_file(nginx, service, key):
    direct, through = (
        each.request("GET", ORDERS, key, headers={"Accept-Encoding": "identity"})
        for each in (service, nginx)
    )
    assert len(direct.data) > 2_000_000
    assert through.data == direct.data
    assert not [each for each in (nginx.folder / "temp").rglob("*") if each.is_file()]


def test_a_list_that_breaks_off_is_not_taken_for_complete(front, tmp_path, service, key):
    (tmp_path / "instance").mkdir(mode=0o700)
    copied = service.command("db", "backup", str(tmp_path / "instance" / "orders.db"))
    assert copied.returncode == 0, copied.stderr
    with running(tmp_path / "instance") as dying:
        nginx = front(dying.address)
        response = nginx.request("GET", ORDERS, key, preload_content=False)
        response.read(10_000)
        dying.kill()
        with pytest.raises(urllib3.exceptions.ProtocolError):
            response.read()


def test_the_service_knows_the_clients_address_whatever_the_client_says(nginx, service):
    elsewhere = nginx.pool(source_address=("127.0.0.9", 0))
    path = "/v1/store/orders/4711"
    claims = {
        "X-Forwarded-For": "192.0.2.1",
        "X-Real-IP": "192.0.2.2",
        "Forwarded": "for=192.0.2.3",
    }
    assert nginx.request("GET", path, headers=claims, http=elsewhere).status == 401
    wait_until(lambda: any(path in line for line in service.log))
    (line,) = [line for line in service.log if path in line]
    assert " 127.0.0.9 " in line
    assert "192.0.2" not in "".join(service.log)


@pytest.mark.parametrize(
    "target",
    [
        *("/metrics", "/metrics?x=1", "//metrics", "/%6detrics", "/x/../metrics", "/./metrics"),
        *("/metrics#x", "https://orders.example.com/metrics", "https://127.0.0.1//metrics"),
    ],
)
def test_metrics_are_not_to_be_had_from_outside(nginx, service, target):
    assert service.request("GET", "/metrics").status == 200
    request = f"GET {target} HTTP/1.1\r\nHost: {nginx_server.HOST}\r\nConnection: close\r\n\r\n"
    answer = nginx.send(request.encode())
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"not_found"' in answer
    assert b"store_orders_" not in answer


def test_a_request_too_large_for_the_service_is_rejected_by_it(nginx, key):
    of_json = {"Content-Type": "application/json"}
    long = nginx.request("POST", ORDERS, key, body=b" " * 65_537, headers=of_json)
    assert (long.status, long.json()["code"]) == (413, "payload_too_large")
    assert long.headers["X-RateLimit-Limit"] == "1000"
    large = nginx.request("GET", ORDERS, key, headers={"X-Large": "x" * 20_000})
    assert (large.status, large.json()["code"]) == (431, "headers_too_large")
    assert long.headers["X-Request-Id"] != large.headers["X-Request-Id"]


@pytest.mark.parametrize(
    ("line", "sent", "status", "code"),
    [
        (f"POST {ORDERS}", {"body": b" " * (2 * 1024 * 1024 + 1)}, 413, "payload_too_large"),
        (f"GET {ORDERS}", {"headers": {"X-Large": "x" * 40_000}}, 431, "headers_too_large"),
        ("GET /" + "x" * 40_000, {}, 431, "headers_too_large"),
        (f"TRACE {ORDERS}", {}, 405, "method_not_allowed"),
        ("GET /refused-by-nginx", {}, 404, "not_found"),  # the location of its own errors
    ],
    ids=["body", "headers", "path", "method", "location"],
)
def test_nginx_rejects_in_the_same_shape(nginx, line, sent, status, code):
    response = nginx.request(*line.split(), **sent)
    assert_of_nginx(response, status, code)
    assert {name: response.headers[name] for name in PROTECTION} == PROTECTION


def test_what_nginx_refuses_is_logged_by_the_path_that_was_asked_for(nginx, key):
    before = len(nginx.log)
    nginx.request("TRACE", f"{ORDERS}?q=hunter2")
    nginx.request("GET", f"/v1/{key}")
    wait_until(lambda: nginx.log[before:].count("\n") == 2)
    refused, with_key = nginx.log[before:].splitlines()
    assert f' TRACE "{ORDERS}" 405 ' in refused
    assert ' GET "(with a key in it)" 401 ' in with_key


def test_an_address_that_floods_is_refused_and_others_are_not(front, service, key):
    nginx = front(service.address, limits=("rate=200r/s", "rate=1r/m"))
    answers = [nginx.request("GET", "/healthz") for _ in range(402)]
    assert {each.status for each in answers[:401]} == {200}
    assert_of_nginx(answers[401], 429, "rate_limit_exceeded")
    assert answers[401].headers["Retry-After"] == "1"
    elsewhere = nginx.pool(source_address=("127.0.0.9", 0))
    assert nginx.request("GET", f"{ORDERS}/1", key, http=elsewhere).status == 200


def test_input_that_nginx_can_not_read_is_rejected_in_the_same_shape(nginx):
    answer = nginx.send(b"NONSENSE\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (body["code"], body["status"]) == ("malformed_request", 400)


def test_a_stream_comes_through_at_once_and_a_page_rests(nginx, service, key):
    place = {"key": key, "json": {"petId": 7}}
    placed = service.request("POST", "/v2/store/orders", **place)
    newest = int(placed.headers["ETag"].strip('"').rpartition("-")[2])
    accept = {"Accept": "text/event-stream", "Accept-Encoding": "gzip"}
    with (
        nginx.request(
            "GET", f"{EVENTS}?after={newest}", key, accept, preload_content=False
        ) as stream,
        ThreadPoolExecutor(1) as pool,
    ):
        lines = iter(stream)
        assert next(lines) == b"retry: 1000\n"
        resting = pool.submit(nginx.request, "GET", f"{EVENTS}?after={newest}&wait=60", key)
        for _ in range(3):
            service.request("POST", ORDERS, **place)
            # The next is only placed when this one has come: nothing is kept back.
            assert next(each for each in lines if each.startswith(b"id: "))
        assert resting.result(30).json()["events"][0]["id"] == newest + 1
        stream.shutdown()


def test_without_tls_only_the_first_page_is_redirected(nginx, key):
    plain = f"http://127.0.0.1:{nginx.plain_port}"
    page = nginx.http.request("GET", plain + "/", redirect=False)
    assert (page.status, page.headers["Location"]) == (308, f"https://{nginx_server.HOST}/")
    request = nginx.http.request("GET", plain + ORDERS, headers={"Authorization": f"Bearer {key}"})
    assert request.status == 404


def test_no_log_of_nginx_holds_a_key_or_a_query(nginx, key):
    assert nginx.request("GET", "/v2/store/orders?reference=secret-words", key).status == 200
    assert "/v2/store/orders" in nginx.log
    assert "secret-words" not in nginx.log
    assert "sok_" not in nginx.log


@pytest.mark.parametrize("path", [ORDERS, f"{ORDERS}/41", "/page.html"])
def test_a_service_that_is_down_is_reported_in_the_same_shape(nobody_there, path):
    for method in ("GET", "POST", "DELETE"):
        response = nobody_there.request(method, path)
        assert_of_nginx(response, 502, "store_unavailable")
        assert response.headers["Retry-After"] == "5"
        assert response.headers["Cache-Control"] == "no-store"
    head = nobody_there.request("HEAD", path)
    assert (head.status, head.data) == (502, b"")


@pytest.fixture(scope="module")
def nobody_there(tmp_path_factory):
    one = Nginx(tmp_path_factory.mktemp("nobody"), f"127.0.0.1:{nginx_server.free_port()}")
    yield one
    one.stop()


def test_a_process_that_is_gone_fails_no_request(front, service, key):
    nginx = front(("127.0.0.1", nginx_server.free_port()), service.address)
    for _ in range(10):
        assert nginx.request("POST", ORDERS, key, json={"petId": 7}).status == 201
    tried = re.findall(r"127\.0\.0\.1:\d+, 127\.0\.0\.1:\d+ 502, 201", nginx.log)
    assert tried


def test_processes_are_restarted_one_after_another_without_a_502(front, tmp_path):
    ports = [nginx_server.free_port() for _ in range(4)]

    def begin(port):
        return Service(tmp_path / str(port), ORDERS_PORT=str(port))

    with ThreadPoolExecutor(len(ports) + 4) as threads, ExitStack() as stack:
        services = list(threads.map(begin, ports))
        for each in services:
            stack.callback(lambda each=each: each.process.poll() is None and each.stop())
        nginx = front(*(each.address for each in services), limits=nginx_server.UNLIMITED)
        seen, over = Counter(), Event()
        stack.callback(over.set)

        def ask(method):
            while not over.wait(0.02):
                seen[method, nginx.request(method, ORDERS).status] += 1

        asking = [threads.submit(ask, method) for method in ("GET", "POST", "DELETE", "HEAD")]
        for number, port in enumerate(ports):
            assert services[number].stop() == 0
            services[number] = begin(port)
            stack.callback(services[number].stop)
        over.set()
        for each in asking:
            each.result()
    # Without a key: refused by whichever process was asked.
    assert {status for _, status in seen} <= {401, 405, 429}, seen


@pytest.fixture
def dying():
    """Where requests are read and not answered, as by a killed process; their methods."""
    methods = []

    def serve():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                methods.append(connection.recv(65_536).split(b" ")[0].decode())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname(), methods
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_change_that_may_be_made_is_not_sent_twice_but_a_read_is(front, service, key, dying):
    def pending():
        return service.request("GET", "/v2/store/stats", key).json()["byStatus"]["pending"]

    address, methods = dying
    before = pending()
    changing, reading = front(address, service.address), front(address, service.address)
    answers = [changing.request("POST", ORDERS, key, json={"petId": 7}).status for _ in range(8)]
    assert set(answers) == {201, 502}
    assert answers.count(502) == methods.count("POST")
    assert pending() - before == answers.count(201)
    assert {reading.request("GET", f"{ORDERS}/1", key).status for _ in range(8)} == {200}
    assert methods.count("GET") >= 1


def test_the_nginx_of_compose_accepts_its_configuration(tmp_path):
    text = (ROOT / "deploy" / "compose" / "nginx.conf").read_text(encoding="utf-8")
    site = text.replace("/etc/nginx/store-orders/", f"{ROOT}/deploy/nginx/")
    assert nginx_server.check(tmp_path, site) == ""
    assert "[emerg]" in nginx_server.check(tmp_path, site.replace("listen", "lissen"))
