"""API keys: generate, check, hash and redact them. Standard library only.

A key is `sok_`, or `sok_test_` for test mode, 32 random base62 characters (190 bits) and 6
characters of checksum. The prefix and the checksum let secret scanners recognise a leaked key by
itself, and let the service reject a mistyped one without the database.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from collections.abc import Collection

PREFIX = "sok_"
# No other key begins with this: the characters after its prefix have no underscore.
TEST_PREFIX = f"{PREFIX}test_"
# Webhooks' secrets begin with this, by the rules of Standard Webhooks.
WEBHOOK_PREFIX = "whsec_"
# The rights of keys. ADMIN includes all; WEBHOOKS is about the endpoints that the key added.
READ, WRITE, WEBHOOKS, ADMIN = SCOPES = ("read", "write", "webhooks", "admin")
USUAL_SCOPES = (READ, WRITE)
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM_CHARACTERS = 32
_CHECKSUM_CHARACTERS = 6
_SHOWN_CHARACTERS = 4

_SHAPE = re.compile(
    rf"({TEST_PREFIX}|{PREFIX})([0-9A-Za-z]{{{_RANDOM_CHARACTERS}}})"
    rf"([0-9A-Za-z]{{{_CHECKSUM_CHARACTERS}}})",
    re.ASCII,
)


def _encoded(text: str) -> str:
    """Return the pattern of a text in any case, percent-encoded any number of times or not."""
    codes = (
        "|".join({f"{ord(each):02X}" for each in (char, char.swapcase())}) + f")|{char}"
        for char in text
    )
    return "".join(f"(?:%(?:25)*(?:{each})" for each in codes)


# Anything that begins like a key is redacted, cut off or mistyped ones too; so are webhooks'
# secrets. Those are base64, in URLs with percent signs; a key in front must not shield one.
_OF_KEYS = r"[0-9A-Z_]|%(?:25)*(?:3[0-9]|[46][1-9A-F]|[57][0-9A]|5F)"
_TRACE = re.compile(
    rf"({_encoded(PREFIX)})(?:(?!{_encoded(WEBHOOK_PREFIX)})(?:{_OF_KEYS}))+"
    rf"|({_encoded(WEBHOOK_PREFIX)})[0-9A-Z+/=%_-]+",
    re.ASCII | re.IGNORECASE,
)


def generate(*, is_test: bool = False) -> str:
    body = "".join(secrets.choice(ALPHABET) for _ in range(_RANDOM_CHARACTERS))
    return (TEST_PREFIX if is_test else PREFIX) + body + _checksum(body)


def is_of_test_mode(key: str) -> bool:
    """Return whether a key, valid or not, is of test mode: its prefix alone decides."""
    return key.startswith(TEST_PREFIX)


def is_well_formed(key: str) -> bool:
    shape = _SHAPE.fullmatch(key)
    return shape is not None and _checksum(shape[2]) == shape[3]


def digest(key: str) -> bytes:
    """Return the SHA-256 of a key, the only form in which it is stored.

    A slow hash protects guessable passwords; 190 random bits can't be guessed.
    """
    return hashlib.sha256(key.encode()).digest()


def scopes_in_full(named: Collection[str]) -> tuple[str, ...]:
    """Return these scopes in their order: with admin, all of them."""
    return tuple(each for each in SCOPES if each in named or ADMIN in named)


def shown_prefix(key: str) -> str:
    """Return the first characters of a key, by which people distinguish keys."""
    prefix = TEST_PREFIX if is_of_test_mode(key) else PREFIX
    return key[: len(prefix) + _SHOWN_CHARACTERS]


def redact(text: str) -> str:
    """Hide whatever looks like a key or a webhook's secret in a text for a log or a message."""
    lowered = text.lower()
    if "%" in text or PREFIX in lowered or WEBHOOK_PREFIX in lowered:
        return _TRACE.sub(lambda found: (found[1] or found[2]) + "***", text)
    return text


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(_CHECKSUM_CHARACTERS):
        number, remainder = divmod(number, len(ALPHABET))
        digits = ALPHABET[remainder] + digits
    return digits
