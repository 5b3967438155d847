"""Where a message may go: what a webhook's URL may be, and which addresses are anybody's.

Whoever can add a webhook, or points a name at another address, could otherwise have the service
send requests into the network that it stands in. So a name is resolved once for each try, every
address that it has is checked, and the connection goes to an address that was checked.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# From a host and a port to its addresses, as texts; raises OSError.
Resolver = Callable[[str, int], list[str]]

MAX_URL = 2048
_PORTS = {"https": 443, "http": 80}
# No blanks, no control characters; anything beyond ASCII is to be written as a browser sends it.
_PRINTABLE = re.compile(r"[!-~]+")
# The addresses that are given to networks (RFC 4291); all others have a meaning of their own.
_UNICAST = ipaddress.IPv6Network("2000::/3")
# Which Python's own list has left out, for a while or until now: for protocols (RFC 6890), once
# for 6to4 relays (RFC 7526), for documentation (RFC 9637).
_SPECIAL = tuple(
    ipaddress.ip_network(each) for each in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")
)
# An IPv4 address in an IPv6 one, for a gateway to unpack (RFC 6052).
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class UnfitURL(Exception):
    """The URL can't be a webhook's. The message says why."""


class PrivateAddress(Exception):
    """The address is not one that everybody on the internet can reach."""

    def __init__(self, host: str, address: str) -> None:
        """Take the host of the URL, and which of its addresses it is."""
        where = address if host == address else f"{host} is at {address}, which"
        super().__init__(f"{where} is not a public address")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in the parts that a request needs. `path` has the query, too."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What the Host header says."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == _PORTS[self.scheme] else f"{shown}:{self.port}"


def target_of(url: str, *, allow_private: bool = False) -> Target:
    """Take a webhook's URL apart.

    Raises:
        UnfitURL: it is not https (or http, where private addresses are allowed), or not a URL.
    """
    if len(url) > MAX_URL or not _PRINTABLE.fullmatch(url):
        raise UnfitURL(f"A URL has 1 to {MAX_URL} characters of ASCII, and no blanks.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UnfitURL(f"That is not a URL: {error}.") from None
    _check(parts, allow_private=allow_private)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host or "", port or _PORTS[parts.scheme], path)


def host_of(url: str) -> str:
    """Return the host of a webhook's URL: what may be told of it, for its path may hold secrets."""
    return urlsplit(url).hostname or ""


def _check(parts: SplitResult, *, allow_private: bool) -> None:
    if parts.scheme not in _PORTS or not parts.hostname or parts.port == 0:
        raise UnfitURL("A webhook's URL is like https://example.com/hook.")
    if parts.scheme == "http" and not allow_private:
        raise UnfitURL(
            "A webhook's URL begins with https://. Within your own network, --allow-private "
            "allows http://, too."
        )
    if parts.username is not None or parts.password is not None:
        raise UnfitURL("A webhook's URL has no user name and password: messages are signed.")
    if "#" in parts.geturl():
        raise UnfitURL("What stands behind # is never sent: leave it out.")


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, the preferred one first.

    Raises:
        OSError: it has none, or nobody can tell.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def check_all(host: str, addresses: list[str]) -> None:
    """Check that all of a host's addresses are public: which one is used is not ours to say.

    Raises:
        PrivateAddress: one is not.
    """
    for address in addresses:
        if not is_public(address):
            raise PrivateAddress(host, address)


def is_public(address: str) -> bool:
    """Return whether everybody on the internet can reach the address, and means the same by it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inside = _ipv4_inside(parsed)
        if inside is not None:
            return _is_global(inside)
        return parsed in _UNICAST and _is_global(parsed)
    return _is_global(parsed)


def _is_global(address: IPAddress) -> bool:
    if address.is_multicast or address.is_reserved or any(address in each for each in _SPECIAL):
        return False
    return address.is_global


def _ipv4_inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    # Mapped (::ffff:…), 6to4 (2002:…) and NAT64, each of which ends at the IPv4 address.
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
