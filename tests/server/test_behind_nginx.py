"""The service behind nginx as deploy/ configures it: what passes through, and what does not."""

from __future__ import annotations

import json
import re
import socket
import threading
import time

import pytest
import urllib3

from orders.web.api import PROTECTION
from tests.support import nginx as nginx_server
from tests.support.nginx import Nginx
from tests.support.service import ROOT, running

pytestmark = pytest.mark.nginx

ORDERS = "/v1/store/orders"
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
def both(service, nginx):
    return service, nginx


@pytest.fixture
def front(tmp_path):
    """Start nginx in front of other addresses."""
    started = []

    def start(*addresses):
        (tmp_path / "nginx").mkdir()
        started.append(Nginx(tmp_path / "nginx", *("{}:{}".format(*each) for each in addresses)))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def key(service):
    return service.issue()


def own_headers(response):
    """Return the headers of the service's answer that are the same whoever forwards it."""
    return {
        name.lower(): value
        for name, value in response.headers.items()
        if name.lower() not in OF_NGINX | OF_THE_MOMENT
    }


def assert_of_nginx(response, status, code):
    """Check that nginx itself rejected a request, in the service's error shape."""
    assert response.status == status
    assert "X-Request-Id" not in response.headers
    assert response.headers["Content-Type"] == "application/json"
    body = response.json()
    assert list(body) == ["code", "message", "status"]
    assert (body["code"], body["status"]) == (code, status)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/store/orders/1", 200),
        ("HEAD", "/v1/store/orders/1", 200),
        ("HEAD", "/v1/store/orders", 200),
        ("GET", "/v2/store/orders?limit=5&sort=-placedAt", 200),
        ("OPTIONS", "/v1/store/orders", 204),
        ("GET", "/v1/store/orders/0", 404),
        ("GET", "//v1/store/orders", 404),
        ("GET", "/v1/store/orders/%2e%2e/x", 404),
        ("PUT", "/v1/store/orders", 405),
        ("GET", "/healthz", 200),
        ("GET", "/openapi/v1.json", 200),
        ("GET", "/nothing.html", 404),
    ],
)
def test_an_answer_passes_through_unchanged(both, key, method, path, status):
    service, nginx = both
    direct, through = (each.request(method, path, key) for each in (service, nginx))
    assert (direct.status, through.status) == (status, status)
    assert through.data == direct.data
    assert own_headers(through) == own_headers(direct)
    named = {name.lower() for name in through.headers} & OF_THE_MOMENT
    assert named == {name.lower() for name in direct.headers} & OF_THE_MOMENT
    assert through.headers["Strict-Transport-Security"]


def test_an_order_is_placed_shipped_and_cancelled_over_one_connection(nginx, key):
    http = nginx.pool()
    for change, status in (("/ship", 200), ("", 204)):
        placed = nginx.request("POST", ORDERS, key, http=http, json={"petId": 7})
        assert placed.status == 201
        path = placed.headers["Location"] + change
        assert nginx.request("POST" if change else "DELETE", path, key, http=http).status == status
    (connections,) = {http.connection_from_url(nginx.url).num_connections}
    assert connections == 1


def test_an_unchanged_order_is_304_and_the_connection_is_kept(nginx, key):
    whole = nginx.request("GET", "/v1/store/orders/1", key)
    again = nginx.request(
        "GET", "/v1/store/orders/1", key, headers={"If-None-Match": whole.headers["ETag"]}
    )
    assert (again.status, again.data) == (304, b"")
    assert again.headers["ETag"] == whole.headers["ETag"]
    assert nginx.request("GET", "/v1/store/orders/1", key).data == whole.data


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
    headers = {
        "X-Forwarded-For": "192.0.2.1",
        "X-Real-IP": "192.0.2.2",
        "Forwarded": "for=192.0.2.3",
    }
    assert nginx.request("GET", path, headers=headers, http=elsewhere).status == 401
    (line,) = line_of(service, path)
    assert " 127.0.0.9 " in line
    assert "192.0.2" not in "".join(service.log)


def line_of(service, path):
    """Return the lines of the service's log with a path, which are written a moment later."""
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        if lines := [line for line in service.log if path in line]:
            return lines
        time.sleep(0.02)
    return []


@pytest.mark.parametrize(
    "target",
    [
        "/metrics",
        "/metrics?x=1",
        "//metrics",
        "/%6detrics",
        "/x/../metrics",
        "/./metrics",
        "/metrics#x",
        "https://orders.example.com/metrics",
        "https://127.0.0.1//metrics",
    ],
)
def test_metrics_are_not_to_be_had_from_outside(nginx, service, target):
    assert service.request("GET", "/metrics").status == 200
    request = f"GET {target} HTTP/1.1\r\nHost: {nginx_server.HOST}\r\nConnection: close\r\n\r\n"
    answer = nginx.send(request.encode())
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"not_found"' in answer
    assert b"store_orders_" not in answer


def test_a_body_of_64_kib_and_a_byte_is_rejected_by_the_service_itself(nginx, key):
    response = nginx.request(
        "POST", ORDERS, key, body=b" " * 65_537, headers={"Content-Type": "application/json"}
    )
    assert (response.status, response.json()["code"]) == (413, "payload_too_large")
    assert response.headers["X-Request-Id"]
    assert response.headers["X-RateLimit-Limit"] == "1000"


def test_headers_of_20_kib_are_rejected_by_the_service_itself(nginx, key):
    response = nginx.request("GET", ORDERS, key, headers={"X-Large": "x" * 20_000})
    assert (response.status, response.json()["code"]) == (431, "headers_too_large")
    assert response.headers["X-Request-Id"]


def test_requests_too_large_for_nginx_are_rejected_in_the_same_shape(nginx, key):
    body = b" " * (2 * 1024 * 1024 + 1)
    assert_of_nginx(nginx.request("POST", ORDERS, key, body=body), 413, "payload_too_large")
    large = {"X-Large": "x" * 40_000}
    assert_of_nginx(nginx.request("GET", ORDERS, key, headers=large), 431, "headers_too_large")
    long = nginx.request("GET", "/" + "x" * 40_000, key)
    assert_of_nginx(long, 431, "headers_too_large")
    assert_of_nginx(nginx.request("TRACE", ORDERS, key), 405, "method_not_allowed")


def test_the_location_of_nginx_own_errors_can_not_be_requested(nginx):
    response = nginx.request("GET", "/refused-by-nginx")
    assert_of_nginx(response, 404, "not_found")
    for name, value in PROTECTION.items():
        assert response.headers[name] == value


def test_input_that_nginx_can_not_read_is_rejected_in_the_same_shape(nginx):
    answer = nginx.send(b"NONSENSE\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (body["code"], body["status"]) == ("malformed_request", 400)


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


@pytest.mark.parametrize("path", ["/v1/store/orders", "/v1/store/orders/41", "/page.html"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_service_that_is_down_is_reported_in_the_same_shape(nobody_there, method, path):
    response = nobody_there.request(method, path)
    assert_of_nginx(response, 502, "store_unavailable")
    assert response.headers["Retry-After"] == "5"
    assert response.headers["Cache-Control"] == "no-store"


def test_head_of_a_service_that_is_down_has_no_body(nobody_there):
    response = nobody_there.request("HEAD", ORDERS)
    assert (response.status, response.data) == (502, b"")
    assert nobody_there.request("GET", ORDERS).status == 502


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
    # By each of the two workers at most once in ten seconds, and by nobody twice.
    assert 1 <= len(tried) <= 4


class Dying:
    """Reads requests and hangs up without an answer, as a killed process does."""

    def __init__(self):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = self._listening.getsockname()
        self.methods = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                self.methods.append(connection.recv(65_536).split(b" ")[0].decode())

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def dying():
    one = Dying()
    yield one
    one.close()


def test_a_change_that_may_be_made_is_not_sent_twice_but_a_read_is(front, service, key, dying):
    nginx = front(dying.address, service.address)
    path = "/v1/store/orders/1"
    before = pending(service, key)
    answers = [nginx.request("POST", ORDERS, key, json={"petId": 7}).status for _ in range(8)]
    # A worker that met it leaves it alone for ten seconds.
    assert set(answers) == {201, 502}
    assert answers.count(502) == dying.methods.count("POST") <= 2
    assert pending(service, key) - before == answers.count(201)
    reading = front_again(nginx, dying, service)
    assert {reading.request("GET", path, key).status for _ in range(8)} == {200}
    assert dying.methods.count("GET") >= 1
    reading.stop()


def pending(service, key):
    """Return how many orders are pending."""
    return service.request("GET", "/v2/store/stats", key).json()["byStatus"]["pending"]


def front_again(nginx, *processes):
    """Return another nginx in front of the same processes, which knows nothing of them yet."""
    folder = nginx.folder.with_name("again")
    folder.mkdir()
    return Nginx(folder, *("{}:{}".format(*each.address) for each in processes))


def test_the_nginx_of_compose_accepts_its_configuration(tmp_path):
    text = (ROOT / "deploy" / "compose" / "nginx.conf").read_text(encoding="utf-8")
    site = text.replace("/etc/nginx/store-orders/", f"{ROOT}/deploy/nginx/")
    assert nginx_server.check(tmp_path, site) == ""
    assert "[emerg]" in nginx_server.check(tmp_path, site.replace("listen", "lissen"))
