"""nginx as `deploy/` sets it up, but for its ports and paths, as a process of one's own.

For proofs and tests.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import urllib3

from tests.support.machine import free_port, wait_until
from tests.support.service import ROOT

DEPLOY = ROOT / "deploy"
HOST = "orders.example.com"
# nginx' own: what a machine's nginx.conf has around the files of deploy/.
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
    """Make a certificate of its own authority for this machine."""
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
    """Return a configuration with what must be another here; each change must fit."""
    for pattern, new in changes:
        text, found = re.subn(pattern, new, text, flags=re.MULTILINE)
        assert found, pattern
    return text


class Nginx:
    """A running nginx with deploy/nginx/store-orders.conf in front of some addresses."""

    def __init__(self, folder: Path, *upstreams: str) -> None:
        """Start it in front of host:port, of which there may be several; wait until it serves."""
        self.folder = folder
        self.port, self.plain_port = free_port(), free_port()
        make_certificate(folder)
        servers = "\n".join(
            f"    server {each} max_fails=1 fail_timeout=10s;" for each in upstreams
        )
        site = changed(
            (DEPLOY / "nginx" / "store-orders.conf").read_text(encoding="utf-8"),
            (r"^    server 127\.0\.0\.1:8080 .*$", servers),
            (r"^ +listen \[::\].*$", ""),
            (r"listen 80;", f"listen 127.0.0.1:{self.plain_port};"),
            (r"listen 443 ", f"listen 127.0.0.1:{self.port} "),
            (r"/etc/nginx/store-orders/", f"{DEPLOY}/nginx/"),
            (r"/etc/ssl/store-orders/", f"{folder}/"),
            (r"/var/log/nginx/", f"{folder}/"),
        )
        self._write(site)
        self.process = subprocess.Popen(self._command(), stderr=subprocess.PIPE, text=True)
        self.url = f"https://127.0.0.1:{self.port}"
        self.http = self.pool()
        self._wait()

    def pool(self, **options: Any) -> urllib3.PoolManager:
        """Return a client that trusts its certificate."""
        trusting = ssl.create_default_context(cafile=self.folder / "fullchain.pem")
        return urllib3.PoolManager(
            ssl_context=trusting, retries=False, maxsize=8, timeout=60, **options
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
        trusting = ssl.create_default_context(cafile=self.folder / "fullchain.pem")
        with (
            socket.create_connection(("127.0.0.1", self.port), 60) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65_536), b""))

    @property
    def log(self) -> str:
        """What its access log says."""
        return (self.folder / "store-orders.log").read_text(encoding="utf-8")

    def stop(self) -> str:
        """Stop it; return what it said."""
        self.http.clear()
        self.process.terminate()
        _, said = self.process.communicate(timeout=60)
        return said

    def _write(self, site: str) -> None:
        (self.folder / "site.conf").write_text(site, encoding="utf-8")
        # Its workers would be another user, who may not read a test's folder.
        user = "user root;" if os.geteuid() == 0 else ""
        around = AROUND.format(folder=self.folder, user=user)
        (self.folder / "nginx.conf").write_text(around, encoding="utf-8")

    def _command(self) -> list[str]:
        return [program(), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]

    def _wait(self) -> None:
        wait_until(lambda: self._listens() or self.process.poll() is not None)
        assert self.process.poll() is None, f"nginx did not start: {self.stop()}"

    def _listens(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0


def program() -> str:
    """Say where nginx is."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    assert found, "nginx is missing: apt-get install nginx-light"
    return found


def check(folder: Path, site: str) -> str:
    """Let nginx check a site's configuration; return what it complains of."""
    folder = Path(folder)
    (folder / "site.conf").write_text(site, encoding="utf-8")
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user=""), encoding="utf-8")
    done = subprocess.run(
        [program(), "-t", "-q", "-p", folder, "-c", folder / "nginx.conf"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""
