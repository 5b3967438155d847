"""Addresses of other servers, as settings give them: checked, and shown without their passwords.

Standard library only.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

REDIS_PORT = 6379
# Valkey speaks as Redis does, and the same package speaks to both.
_REDIS_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}
# What may stand behind a question mark. What else the package takes there, the service decides.
_REDIS_OPTIONS = {"db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
_DATABASE = re.compile(r"(/[0-9]{0,4})?")


def redis_url(text: str) -> str:
    """Check where Redis or Valkey is; return it as the package redis takes it.

    Raises:
        ValueError: it is no such address. The message shows nothing of it.
    """
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
    return url


def place_of_redis(url: str) -> str:
    """Say where Redis is, for people: without user and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or REDIS_PORT}"


def _is_redis(parts: SplitResult) -> bool:
    options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    # What stands behind a `#` would be dropped. To look at the port raises where it is none.
    is_sound = not parts.fragment and parts.port != 0 and set(options) <= _REDIS_OPTIONS
    if "db" in options:
        is_sound = is_sound and _DATABASE.fullmatch("/" + options["db"]) is not None
    match parts.scheme:
        case "unix":
            return is_sound and parts.hostname is None and len(parts.path) > 1
        case "redis" | "rediss":
            return is_sound and bool(parts.hostname) and bool(_DATABASE.fullmatch(parts.path))
        case _:
            return False
