"""How each peer is prepared and started, as its own documentation shows it."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any, ClassVar

from tests.bench.speed.contestants import Contestant, StoreOrders
from tests.bench.speed.peers import bare, tables
from tests.support.service import ROOT


class _PythonPeer(Contestant):
    # What follows bench.speed.peers on the command line.
    module: ClassVar[tuple[str, ...]]

    def command(self) -> list[str]:
        name, *arguments = self.module
        own = [*arguments, str(self.folder), str(self.port)]
        return [sys.executable, "-m", f"tests.bench.speed.peers.{name}", *own]


class BareFlask(_PythonPeer):
    """Flask views on waitress."""

    name = "bare Flask on waitress"
    about = "Flask views that answer bytes made before; no keys, limits or database"
    module = ("bare", "flask")
    packages = ("flask", "waitress")

    def prepare(self) -> None:
        """Make the bytes."""
        shown = [json_of(order) for order in self.stock.orders()]
        (self.folder / bare.LIST).write_text(f"[{','.join(shown)}]", encoding="utf-8")
        (self.folder / bare.ORDER).write_text(shown[0], encoding="utf-8")


class BareFlaskOne(BareFlask):
    """Flask views on waitress with a single thread, which nobody has to wait for."""

    name = "bare Flask on waitress, one thread"
    about = "the same, with threads=1"
    module = ("bare", "one")


class BareFlaskLoop(BareFlask):
    """Flask views on the loop of this service: what its contract costs is what is above them."""

    name = "bare Flask on this loop"
    about = "the same Flask views, on the HTTP server of this service"
    module = ("bare", "loop")


class _WithDatabase(_PythonPeer):
    def prepare(self) -> None:
        tables.fill(self.folder, self.stock.orders(), self.stock.keys.good)


class PlainStack(_WithDatabase):
    """The stack of this service, written plainly."""

    name = "the same stack, plainly"
    about = (
        "flask-smorest, the ORM, marshmallow, Flask-Limiter in memory with two limits and headers, "
        "the key by the ORM, waitress; no access log"
    )
    module = ("plain_stack",)
    packages = ("flask_smorest", "sqlalchemy", "marshmallow", "flask_limiter", "waitress")


class FastApi(_WithDatabase):
    """FastAPI with slowapi and SQLAlchemy under uvicorn."""

    name = "FastAPI with slowapi"
    about = (
        "FastAPI, slowapi in memory with two limits and headers, the ORM, the key by the ORM, "
        "uvicorn with uvloop and httptools and its access log"
    )
    module = ("fastapi_slowapi",)
    packages = ("fastapi", "slowapi", "uvicorn", "uvloop", "httptools", "sqlalchemy")


class JsonServer(Contestant):
    """json-server over a file of the orders."""

    name = "json-server"
    about = "a JSON file held in memory, with its log of requests; no keys, limits or database"
    list_path = "/orders"
    folder_of_package: ClassVar = ROOT / "build" / "json-server"
    program: ClassVar = folder_of_package / "node_modules/json-server/lib/cli/bin.js"

    @classmethod
    def missing(cls) -> str | None:
        """Say what is not installed."""
        if shutil.which("node") is None:
            return "node is not installed"
        if not cls.program.exists():
            return "not installed: npm install --prefix build/json-server json-server@0.17"
        return None

    def prepare(self) -> None:
        """Make the file."""
        shown = ",".join(map(json_of, self.stock.orders()))
        (self.folder / "db.json").write_text(f'{{"orders":[{shown}]}}', encoding="utf-8")

    def command(self) -> list[str]:
        """Serve it."""
        serve = ["node", str(self.program), str(self.folder / "db.json")]
        return [*serve, "--host", "127.0.0.1", "--port", str(self.port)]


EVERYBODY: tuple[type[Contestant], ...] = (
    StoreOrders,
    BareFlask,
    BareFlaskOne,
    BareFlaskLoop,
    PlainStack,
    FastApi,
    JsonServer,
)


def json_of(order: dict[str, Any]) -> str:
    """Return an order as version 1 shows it."""
    known = {name: value for name, value in order.items() if value is not None}
    return json.dumps(known, separators=(",", ":"))
