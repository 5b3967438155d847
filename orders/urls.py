"""Addresses of servers, from the settings: checked, normalized, shown without their passwords.

Standard library only. A wrong one raises ValueError with how to fix it, but not the address.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

from orders.installation import how_to_add

POSTGRES = "postgresql+psycopg://"
REDIS_PORT = 6379
# Valkey speaks Redis' protocol, and the package redis works with both.
_REDIS_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}
# Parameters that may follow a question mark. The service decides the package's others.
_REDIS_OPTIONS = {"db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
_REDIS_DATABASE = re.compile(r"(/[0-9]{0,4})?")


def is_loopback(host: str) -> bool:
    """Return whether an address or a name is this computer's own, which no other reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def base_url(text: str) -> str:
    """Check the service's public address; return it without a slash at its end."""
    url = text.rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
        raise ValueError("it must be an address such as https://orders.example.com/v1")
    if not parts.path.endswith("/v1"):
        raise ValueError("it must end in /v1")
    return url


def database_url(text: str) -> str:
    """Check the database's address; return it with the driver's name."""
    if text.startswith(("postgresql", "postgres:")):
        return _postgres_url(text)
    if not text.removeprefix("sqlite:///") or not text.startswith("sqlite:///"):
        raise ValueError(
            "it must be sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE, "
            "or left out for SQLite in the instance folder"
        )
    return text


def copy_to(text: str) -> str:
    """Check the address of a database on PostgreSQL."""
    if not text.startswith(("postgresql", "postgres:")):
        raise ValueError("it must be postgresql+psycopg://USER@HOST/DATABASE")
    return _postgres_url(text)


def _postgres_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme not in {"postgresql+psycopg", "postgresql", "postgres"}:
        raise ValueError("psycopg is the only driver for PostgreSQL here: postgresql+psycopg://")
    try:
        parts = urlsplit(f"postgresql://{rest}")
        is_whole = len(parts.path) > 1 and not parts.fragment and (parts.port or 1)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("it must name a database: postgresql+psycopg://USER@HOST/DATABASE")
    _require("psycopg", "postgres")
    return POSTGRES + rest


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"it needs {package}, which is not installed by default: {how_to_add(extra)}"
        )


def redis_url(text: str) -> str:
    """Check the address of Redis or Valkey; return it in the form that the package redis reads."""
    scheme, _, rest = text.partition("://")
    url = f"{_REDIS_SCHEMES.get(scheme, 'unknown')}://{rest}"
    try:
        is_sound = _is_redis(urlsplit(url))
    except ValueError:
        is_sound = False
    if not is_sound:
        raise ValueError(
            "it must be redis://:PASSWORD@HOST:PORT/DATABASE (rediss:// with TLS), of which "
            "redis://HOST is enough, or unix:///PATH, with / ? # @ in a password written as "
            "%2F %3F %23 %40; leave it out to count in memory"
        )
    _require("redis", "redis")
    return url


def place_of_redis(url: str) -> str:
    """Return the address of Redis for messages, without user and password.

    The number of its database is part of it, unless it is 0.
    """
    parts = urlsplit(url)
    if parts.scheme == "unix":
        place, number = parts.path, "0"
    else:
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        place, number = f"{host}:{parts.port or REDIS_PORT}", parts.path.strip("/") or "0"
    # The package redis prefers the parameter.
    number = dict(parse_qsl(parts.query)).get("db", number)
    return f"{place}, database {int(number)}" if int(number) else place


def _is_redis(parts: SplitResult) -> bool:
    options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    # The package would ignore a fragment. Reading a port that is not a number raises ValueError.
    is_sound = not parts.fragment and parts.port != 0 and set(options) <= _REDIS_OPTIONS
    if "db" in options:
        is_sound = is_sound and _REDIS_DATABASE.fullmatch("/" + options["db"]) is not None
    match parts.scheme:
        case "unix":
            return is_sound and parts.hostname is None and len(parts.path) > 1
        case "redis" | "rediss":
            return is_sound and bool(parts.hostname) and bool(_REDIS_DATABASE.fullmatch(parts.path))
        case _:
            return False
