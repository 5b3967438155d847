"""What administers the shop: keys."""

from __future__ import annotations

from typing import Any, ClassVar

import marshmallow as ma

from orders.apikeys import SCOPES, USUAL_SCOPES
from orders.settings import LONGEST_DAYS, MAX_FIGURE
from schemas import fields
from schemas.base import CamelSchema, StrictSchema

_NEVER_AGAIN = "Only here, once: store it. Absent where the answer is repeated."
_HOURS_A_DAY = 24


def _or_null(description: str) -> fields.Instant:
    return fields.Instant(description, required=True, allow_none=True)


def _figure(of_what: str, **options: Any) -> fields.Whole:
    return fields.Whole(f"Requests a {of_what}.", 1, MAX_FIGURE, **options)


def _expires_in_days(**options: Any) -> fields.Whole:
    return fields.Whole("Days until it expires; never unless given.", 1, LONGEST_DAYS, **options)


class Scopes(fields.Described, ma.fields.List[str]):
    """Some of the scopes, each once."""

    def __init__(self, description: str, **kwargs: Any) -> None:
        one = ma.fields.String(validate=ma.validate.OneOf(SCOPES))
        super().__init__(description, cls_or_instance=one, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(value, list):
            raise fields.invalid("must be a list", "type")
        named = [each for each in value if isinstance(each, str)]
        if not value or len({*named}) < len(value) or not {*named} <= {*SCOPES}:
            raise fields.invalid(f"must be some of {', '.join(SCOPES)}, each once", "range")
        return tuple(named)


class KeySchema(CamelSchema):
    """An API key, without its secret."""

    example: ClassVar[dict[str, Any]] = {
        "id": 2,
        "name": "the web shop",
        "prefix": "sok_4fGh",
        "plan": "pro",
        "perMinute": 300,
        "perDay": 10_000,
        "scopes": ["read", "write"],
        "created": "2026-11-01T08:00:00.000Z",
        "lastUsed": "2026-12-01T08:00:00.000Z",
        "expires": None,
        "revoked": None,
        "bannedUntil": None,
        "graceUntil": None,
    }

    id = fields.identifier("Its id: `key:2` as the actor of events.", required=True)
    name = fields.Text("Whose it is.", required=True)
    prefix = fields.Text("How its secret begins.", required=True)
    plan = fields.Text("Its plan.", required=True)
    per_minute = _figure("minute", required=True, allow_none=True)
    per_day = _figure("day", required=True, allow_none=True)
    scopes = Scopes("What it may do.", required=True)
    created = fields.Instant("When it was issued.", required=True)
    last_used = _or_null("When it was last used, to the minute.")
    expires = _or_null("When it expires, or did.")
    revoked = _or_null("When it was revoked.")
    banned_until = _or_null("While it is banned: the end of that.")
    grace_until = _or_null("Until when its previous secret works.")


class KeyPageSchema(CamelSchema):
    """All keys."""

    example: ClassVar = {"keys": [KeySchema.example]}

    keys = fields.items(KeySchema, "By id.")


class IssuedKeySchema(KeySchema):
    """A key with its new secret."""

    example: ClassVar[dict[str, Any]] = {**KeySchema.example, "secret": "sok_…"}

    secret = fields.Text(_NEVER_AGAIN)


class NewKeySchema(StrictSchema):
    """A key to issue."""

    example: ClassVar[dict[str, Any]] = {
        "name": "the web shop",
        "plan": "pro",
        "scopes": ["read", "write"],
        "expiresInDays": 365,
    }

    name = fields.Text("Whose it is: 1 to 100 printable characters.", required=True)
    plan = fields.Text("The name of its plan.", required=True)
    scopes = Scopes(f"What it may do: {' and '.join(USUAL_SCOPES)} unless given; admin is all.")
    expires_in_days = _expires_in_days()
    per_minute = _figure("minute, of a plan without figures")
    per_day = _figure("day, of a plan without figures")


class KeyPatchSchema(StrictSchema):
    """What to change of a key (RFC 7396): others stay as they are."""

    example: ClassVar[dict[str, Any]] = {"name": "the new web shop", "expiresInDays": None}

    name = fields.Text("Whose it is: 1 to 100 printable characters.")
    plan = fields.Text("The name of its plan.")
    expires_in_days = _expires_in_days(allow_none=True)
    per_minute = _figure("minute, of a plan without figures", allow_none=True)
    per_day = _figure("day, of a plan without figures", allow_none=True)


class RotationSchema(StrictSchema):
    """How to rotate a key."""

    example: ClassVar[dict[str, Any]] = {"graceHours": 24}

    grace_hours = fields.Whole(
        "Hours for which the previous secret keeps working; 0 unless given.",
        0,
        _HOURS_A_DAY * LONGEST_DAYS,
    )
