"""Where messages may go: valid webhook URLs and public addresses.

Without this guard, anyone who can add a webhook, or repoint a host name, could make the service
send requests into its own network. So each attempt resolves the name once, checks every address,
and connects to one of the checked addresses.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# From a host and port to the addresses of the host; raises OSError.
Resolver = Callable[[str, int], list[str]]

MAX_URL = 2048
_PORTS = {"https": 443, "http": 80}
# ASCII without spaces and control characters; anything else must be percent-encoded or punycode.
_PRINTABLE = re.compile(r"[!-~]+")
# Global unicast (RFC 4291); all other ranges have special meanings.
_UNICAST = ipaddress.IPv6Network("2000::/3")
# Special ranges missing from some Python versions' list: protocol assignments (RFC 6890), former
# 6to4 relays (RFC 7526), documentation (RFC 9637). 168.63.129.16 is Azure's platform, seen from
# inside each of its machines only.
_SPECIAL = tuple(
    ipaddress.ip_network(each)
    for each in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20")
)
# IPv4 embedded in IPv6 for NAT64 gateways (RFC 6052).
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# The middle of an ISATAP address (RFC 5214), but for its two bits that differ.
_ISATAP, _ISATAP_MASK = 0x5EFE, 0xFCFFFFFF


class InvalidURL(Exception):
    """The URL is not valid for a webhook. The message says why."""


class PrivateAddress(Exception):
    def __init__(self, host: str, address: str) -> None:
        where = address if host == address else f"{host} is at {address}, which"
        super().__init__(f"{where} is not a public address")


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL that a request needs. `path` includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The Host header."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == _PORTS[self.scheme] else f"{shown}:{self.port}"


def parse_url(url: str, *, allow_private: bool = False) -> Target:
    """Check and split a webhook's URL: https, or http too if private addresses are allowed."""
    if len(url) > MAX_URL or not _PRINTABLE.fullmatch(url):
        raise InvalidURL(f"A URL has 1 to {MAX_URL} ASCII characters and no spaces.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidURL(f"This is not a valid URL: {error}.") from None
    _check(parts, allow_private=allow_private)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host or "", port or _PORTS[parts.scheme], path)


def host_of(url: str) -> str:
    """Return the host of a webhook's URL, which may be logged; its path may contain secrets."""
    return urlsplit(url).hostname or ""


def _check(parts: SplitResult, *, allow_private: bool) -> None:
    if parts.scheme not in _PORTS or not parts.hostname or parts.port == 0:
        raise InvalidURL("A webhook's URL looks like https://example.com/hook.")
    if parts.scheme == "http" and not allow_private:
        raise InvalidURL(
            "A webhook's URL begins with https://. For your own network, --allow-private also "
            "allows http://."
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidURL(
            "A webhook's URL has no user name or password: messages are signed instead."
        )
    if "#" in parts.geturl():
        raise InvalidURL("Remove the part after #: it is never sent.")


def resolve(host: str, port: int) -> list[str]:
    """Return a host's addresses by preference; raise OSError where it can't be resolved."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


def resolve_within(host: str, port: int, seconds: float, resolver: Resolver = resolve) -> list[str]:
    """Return a host's addresses; OSError says why not, TimeoutError after so many seconds."""
    found: Future[list[str]] = Future()

    def run() -> None:
        try:
            found.set_result(resolver(host, port))
        except (OSError, UnicodeError) as error:
            found.set_exception(OSError(f"{host} can't be resolved: {reason_of(error)}"))

    # The system's resolver has no deadline, so it runs in a thread that can be abandoned.
    threading.Thread(target=run, name="resolver", daemon=True).start()
    return found.result(seconds)


def reason_of(error: Exception) -> str:
    """Return an error's reason on one line, without its number."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(reason).split())


def check_all(host: str, addresses: list[str]) -> None:
    """Raise PrivateAddress unless all addresses of a host are public: any may be used."""
    for address in addresses:
        if not is_public(address):
            raise PrivateAddress(host, address)


def is_public(address: str) -> bool:
    """Return whether an address is reachable, and means the same host, from all of the internet."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inside = _destination(parsed)
        is_fit = _is_global(inside) if inside else parsed in _UNICAST and _is_global(parsed)
        return is_fit and not _is_isatap_to_private(parsed)
    return _is_global(parsed)


def _is_global(address: IPAddress) -> bool:
    if address.is_multicast or address.is_reserved or any(address in each for each in _SPECIAL):
        return False
    return address.is_global


def _destination(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    # Mapped (::ffff:…), 6to4 (2002:…) and NAT64: traffic to these ends at the IPv4 address.
    if address in _NAT64:
        return _last_32_bits(address)
    return address.ipv4_mapped or address.sixtofour


def _is_isatap_to_private(address: ipaddress.IPv6Address) -> bool:
    # Any network may have a gateway to the IPv4 address at the end, which its own hosts reach.
    is_isatap = (int(address) >> 32) & _ISATAP_MASK == _ISATAP
    return is_isatap and not _is_global(_last_32_bits(address))


def _last_32_bits(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
