"""nginx as `deploy/` sets it up, on other ports and paths, for tests and proofs."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import urllib3

from tests.support.machine import begin, end, free_port, installed, listens
from tests.support.service import ROOT

DEPLOY = ROOT / "deploy"
# For many clients with one address.
UNLIMITED = (r"^    default 1;$", "    default 0;")
HOST = "orders.example.com"
# A machine's nginx.conf around the files of deploy/.
AROUND = """
{user}
pid {folder}/nginx.pid;
daemon off;
worker_processes 2;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/temp;
    fastcgi_temp_path {folder}/temp;
    uwsgi_temp_path {folder}/temp;
    scgi_temp_path {folder}/temp;
    include {folder}/site.conf;
}}
"""


def make_certificate(folder: Path) -> None:
    """Make a self-signed certificate for this machine."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={HOST}"),
            *("-addext", f"subjectAltName=DNS:{HOST},IP:127.0.0.1"),
            *("-keyout", folder / "privkey.pem", "-out", folder / "fullchain.pem"),
        ],
        check=True,
        capture_output=True,
    )


def changed(text: str, *changes: tuple[str, str]) -> str:
    """Return a configuration with these changes, each of which must match."""
    for pattern, new in changes:
        text, found = re.subn(pattern, new, text, flags=re.MULTILINE)
        assert found, pattern
    return text


class Nginx:
    """A running nginx with deploy/nginx/store-orders.conf in front of some addresses."""

    def __init__(self, folder: Path, *upstreams: str, limits: tuple[str, str] = ("", "")) -> None:
        """Start it in front of each host:port, with other limits if given; wait until it serves."""
        self.folder = folder
        self.port, self.plain_port = free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        make_certificate(folder)
        self._trusting = ssl.create_default_context(cafile=folder / "fullchain.pem")
        self.http = self.pool()
        servers = "\n".join(rf"    server {each} \1" for each in upstreams)
        shared = (DEPLOY / "nginx" / "http.conf").read_text(encoding="utf-8")
        (folder / "http.conf").write_text(changed(shared, limits), encoding="utf-8")
        site = changed(
            (DEPLOY / "nginx" / "store-orders.conf").read_text(encoding="utf-8"),
            (r"^    server 127\.0\.0\.1:8080 (.*)$", servers),
            (r"^ +listen \[::\].*$", ""),
            (r"listen 80;", f"listen 127.0.0.1:{self.plain_port};"),
            (r"listen 443 ", f"listen 127.0.0.1:{self.port} "),
            (r"/etc/nginx/store-orders/http", f"{folder}/http"),
            (r"/etc/nginx/store-orders/", f"{DEPLOY}/nginx/"),
            (r"/etc/ssl/store-orders/", f"{folder}/"),
            (r"/var/log/nginx/", f"{folder}/"),
        )
        self.process = begin(_command(folder, site), lambda: listens(self.port))

    def pool(self, **options: Any) -> urllib3.PoolManager:
        """Return a client that trusts its certificate."""
        return urllib3.PoolManager(
            ssl_context=self._trusting, retries=False, maxsize=8, timeout=60, **options
        )

    def request(
        self,
        method: str,
        path: str,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        http: urllib3.PoolManager | None = None,
        **kwargs: Any,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request through it; return urllib3's response."""
        sent = {"Authorization": f"Bearer {key}"} if key else {}
        return (http or self.http).request(
            method, self.url + path, headers={**sent, **(headers or {})}, **kwargs
        )

    def send(self, data: bytes) -> bytes:
        """Send bytes over a connection of its own; return all that comes back."""
        with (
            socket.create_connection(("127.0.0.1", self.port), 60) as plain,
            self._trusting.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65_536), b""))

    @property
    def log(self) -> str:
        """The contents of its access log."""
        return (self.folder / "store-orders.log").read_text(encoding="utf-8")

    def stop(self) -> None:
        """Stop it, and hang up."""
        self.http.clear()
        end(self.process)


def check(folder: Path, site: str) -> str:
    """Have nginx check a site's configuration; return its complaints."""
    done = subprocess.run(
        [*_command(folder, site), "-t", "-q"], capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode else ""


def _command(folder: Path, site: str) -> list[object]:
    (folder / "site.conf").write_text(site, encoding="utf-8")
    # Its workers would be another user, who may not read a test's folder.
    user = "user root;" if os.geteuid() == 0 else ""
    around = AROUND.format(folder=folder, user=user)
    (folder / "nginx.conf").write_text(around, encoding="utf-8")
    program = installed("nginx", package="nginx-light")
    return [program, "-p", folder, "-c", folder / "nginx.conf"]
