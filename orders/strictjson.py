"""A strict JSON parser (RFC 8259), safe for untrusted input, and a writer. Standard library only.

Python's own keeps the last of two equal names, accepts NaN, and raises exceptions of other kinds on
very deep or very long input.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

MAX_OUTER_CONTAINERS = 32
MAX_DIGITS = 1_000


# Return a value as JSON. Made once: making an encoder takes longer than a short value.
to_json = json.JSONEncoder(separators=(",", ":")).encode


class NotStrictJson(Exception):
    """The text is not JSON, or beyond the limits of this parser. The message says why."""


def parse(text: bytes) -> Any:
    """Return the value of a JSON text in UTF-8, or raise NotStrictJson.

    That is for bad UTF-8, a byte order mark, bad JSON, equal names in an object, NaN or Infinity,
    an object or array inside more than 32 others, a number of over 1,000 digits.
    """
    try:
        decoded = text.decode("utf-8")
        if decoded.startswith("\ufeff"):
            raise NotStrictJson("it begins with a byte order mark")
        value = _DECODER.decode(decoded)
    except UnicodeDecodeError:
        raise NotStrictJson("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        # Some of Python's messages end with it.
        what = error.msg.removesuffix(" at")
        raise NotStrictJson(
            f"it is not JSON: {what} at line {error.lineno}, column {error.colno}"
        ) from None
    except ValueError:  # of int(), which has a limit of its own
        raise NotStrictJson(_TOO_LONG) from None
    except RecursionError:
        raise NotStrictJson(_TOO_DEEP) from None
    if _has_long_number(text):
        raise NotStrictJson(_TOO_LONG)
    # Few texts have so many: looking through thousands of numbers takes as long as reading them.
    has_many = text.count(b"[") + text.count(b"{") > MAX_OUTER_CONTAINERS
    if has_many and _is_too_deep(value):
        raise NotStrictJson(_TOO_DEEP)
    return value


_TOO_LONG = f"it has a number of more than {MAX_DIGITS:,} digits"
_TOO_DEEP = f"it nests objects and arrays inside more than {MAX_OUTER_CONTAINERS} others"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise NotStrictJson("it has an object with a repeated name")
    return members


_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY = b"0" * (MAX_DIGITS + 1)
# To its end or the text's: there is only one way to match.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


def _has_long_number(text: bytes) -> bool:
    # Calling a function for each of thousands of numbers takes longer than reading them. What is
    # found may be in a string.
    return _has_many_digits(text) and _has_many_digits(_STRING.sub(b" ", text))


def _has_many_digits(text: bytes) -> bool:
    # Without a sign, point or exponent, a number is a run of digits.
    return _MANY in text.translate(_AS_ZEROS, b"+-.eE")


def _constant(name: str) -> NoReturn:
    raise NotStrictJson(f"it has {name}, which is not JSON")


# Made once: making it takes as long as reading an order.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_OUTER_CONTAINERS + 1):
        containers = [each for each in level if isinstance(each, (dict, list))]
        level = [
            inner
            for each in containers
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return any(isinstance(each, (dict, list)) for each in level)
