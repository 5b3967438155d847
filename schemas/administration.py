"""The administration of the shop: keys and webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import marshmallow as ma

from orders.apikeys import SCOPES, USUAL_SCOPES
from orders.domain import MAX_INT64, EventType
from orders.settings import LONGEST_DAYS, MAX_FIGURE
from schemas import fields
from schemas.fields import CamelSchema, QuerySchema, SparseSchema, StrictSchema
from schemas.v2 import LONGEST_PAGE, USUAL_PAGE

_NEVER_AGAIN = "Only here, once: store it. Absent where the answer is repeated."
_HOURS_A_DAY = 24


def _or_null(description: str) -> fields.Instant:
    return fields.Instant(description, required=True, allow_none=True)


def _figure(of_what: str, **options: Any) -> fields.Whole:
    return fields.Whole(f"Requests a {of_what}.", 1, MAX_FIGURE, **options)


def _expires_in_days(**options: Any) -> fields.Whole:
    return fields.Whole("Days until it expires; never unless given.", 1, LONGEST_DAYS, **options)


class Choices(fields.Described, ma.fields.List[str]):
    """Some of several texts, each once."""

    def __init__(self, description: str, choices: Sequence[str], **kwargs: Any) -> None:
        one = ma.fields.String(validate=ma.validate.OneOf(choices))
        metadata = {"minItems": 1, "uniqueItems": True}
        super().__init__(description, cls_or_instance=one, metadata=metadata, **kwargs)
        self._choices = choices

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(value, list):
            raise fields.invalid("must be a list", "type")
        named = [each for each in value if isinstance(each, str)]
        if not value or len({*named}) < len(value) or not {*named} <= {*self._choices}:
            raise fields.invalid(f"must be some of {', '.join(self._choices)}, each once", "range")
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
    name = fields.Text("Its user.", required=True)
    prefix = fields.Text("How its secret begins.", required=True)
    plan = fields.Text("Its plan.", required=True)
    per_minute = _figure("minute", required=True, allow_none=True)
    per_day = _figure("day", required=True, allow_none=True)
    scopes = Choices("What it may do.", SCOPES, required=True)
    created = fields.Instant("When it was issued.", required=True)
    last_used = _or_null("When it was last used, to the minute.")
    expires = _or_null("When it expires, or did.")
    revoked = _or_null("When it was revoked.")
    banned_until = _or_null("Until when it is banned.")
    grace_until = _or_null("Until when its previous secret works.")


class KeyPageSchema(CamelSchema):
    """All keys."""

    example: ClassVar = {"keys": [KeySchema.example]}

    keys = fields.items(KeySchema, "By id.")


class IssuedKeySchema(KeySchema):
    """A key with its new secret."""

    example: ClassVar[dict[str, Any]] = {**KeySchema.example, "secret": "sok_…"}  # nosec B105

    secret = fields.Text(_NEVER_AGAIN)


class NewKeySchema(StrictSchema):
    """A key to issue."""

    example: ClassVar[dict[str, Any]] = {
        "name": "the web shop",
        "plan": "pro",
        "scopes": ["read", "write"],
        "expiresInDays": 365,
    }

    name = fields.Text("Its user: 1 to 100 printable characters.", required=True)
    plan = fields.Text("The name of its plan.", required=True)
    scopes = Choices(
        f"What it may do: {' and '.join(USUAL_SCOPES)} unless given; admin is all.", SCOPES
    )
    expires_in_days = _expires_in_days()
    per_minute = _figure("minute, of a plan without figures")
    per_day = _figure("day, of a plan without figures")


class KeyPatchSchema(StrictSchema):
    """Changes of a key (RFC 7396): absent fields stay as they are."""

    example: ClassVar[dict[str, Any]] = {"name": "the new web shop", "expiresInDays": None}

    name = fields.Text("Its user: 1 to 100 printable characters.")
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


_TYPES = [*EventType]


class WebhookSchema(SparseSchema):
    """A webhook, without its secret."""

    example: ClassVar[dict[str, Any]] = {
        "id": 5,
        "url": "https://shop.example/hook",
        "events": ["order.placed", "order.shipped"],
        "state": "active",
        "waiting": 0,
        "created": "2026-11-01T08:00:00.000Z",
        "addedBy": "the web shop",
    }

    id = fields.identifier("Its id.", required=True)
    url = fields.Text("Where events are sent.", required=True)
    events = Choices("The types of events that it receives.", _TYPES, required=True)
    state = fields.Text(
        "active; waiting for a retry; or paused.",
        required=True,
        validate=ma.validate.OneOf(["active", "waiting", "paused"]),
    )
    waiting = fields.Int64("How many events are waiting for it.", 0, MAX_INT64, required=True)
    since = fields.Instant("Since when it is paused; absent otherwise.")
    because = fields.Text("Why it is paused; absent where it isn't.")
    next_try = fields.Instant("When it is retried, while it waits.")
    last_try = fields.Instant("When the last attempt was made, if any.")
    last_outcome = fields.Text("Its outcome: delivered, down, refused or gone.")
    created = fields.Instant("When it was added.", required=True)
    added_by = fields.Text("The name of the key that added it; absent where a command did.")


class WebhookPageSchema(CamelSchema):
    """The webhooks that a key may see."""

    example: ClassVar = {"webhooks": [WebhookSchema.example]}

    webhooks = fields.items(WebhookSchema, "By id.")


class SecretWebhookSchema(WebhookSchema):
    """A webhook with its new secret."""

    example: ClassVar[dict[str, Any]] = {**WebhookSchema.example, "secret": "whsec_…"}  # nosec B105

    secret = fields.Text(_NEVER_AGAIN)


class NewWebhookSchema(StrictSchema):
    """A webhook to add."""

    example: ClassVar[dict[str, Any]] = {
        "url": "https://shop.example/hook",
        "events": ["order.placed", "order.shipped"],
    }

    url = fields.Text("Where to send events: https, and a public address.", required=True)
    events = Choices(
        "The types of events: placed, changed, shipped and cancelled unless given.", _TYPES
    )


class WebhookPatchSchema(StrictSchema):
    """Changes of a webhook (RFC 7396)."""

    example: ClassVar[dict[str, Any]] = {"events": ["order.placed"]}

    events = Choices("The types of events that it receives from now on.", _TYPES)


class ResumptionSchema(StrictSchema):
    """Where to resume."""

    example: ClassVar[dict[str, Any]] = {"after": 87}

    after = fields.Int64(
        "The event to resume after; its current position by default.", 0, MAX_INT64
    )


class PingSchema(SparseSchema):
    """The result of a ping."""

    example: ClassVar[dict[str, Any]] = {"status": 204, "milliseconds": 12}

    status = fields.Whole("What the receiver answered; absent where it did not.", 100, 599)
    error = fields.Text("Why there was no answer.")
    answer = fields.Text("How the answer's body begins, if it has one.")
    milliseconds = fields.Int64("How long it took.", 0, MAX_INT64, required=True)


class DeliverySchema(PingSchema):
    """An attempt to deliver an event, or a ping."""

    example: ClassVar[dict[str, Any]] = {
        "eventId": 88,
        "at": "2026-12-01T08:00:00.000Z",
        "outcome": "delivered",
        "status": 204,
        "milliseconds": 12,
        "attempt": 1,
    }

    event_id = fields.identifier("The event; absent for a ping.")
    at = fields.Instant("When it was made.", required=True)
    outcome = fields.Text("Its outcome: delivered, down, refused or gone.", required=True)
    attempt = fields.Int64("Which attempt for this event it was.", 1, MAX_INT64, required=True)


class DeliveryPageSchema(CamelSchema):
    """A page of attempts."""

    example: ClassVar = {"deliveries": [DeliverySchema.example], "next": 12, "more": False}

    deliveries = fields.items(DeliverySchema, "The newest first.")
    next = fields.Int64("Where to go on, as `after`.", 0, MAX_INT64, required=True)
    more = fields.Flag("Whether there are more already.", required=True)


class NewestFirstQuerySchema(QuerySchema):
    """Where to begin in a list that has the newest first."""

    after = fields.Int64Parameter(
        "`next` of the previous page; 0 to begin with the newest.", 0, MAX_INT64, load_default=0
    )
    limit = fields.WholeParameter("How many to return.", 1, LONGEST_PAGE, load_default=USUAL_PAGE)


class RedeliverySchema(CamelSchema):
    """An event that is sent again."""

    example: ClassVar = {"webhookId": 5, "eventId": 88}

    webhook_id = fields.identifier("The webhook.", required=True)
    event_id = fields.identifier("The event.", required=True)


class ActSchema(CamelSchema):
    """Who did what, and when."""

    example: ClassVar = {
        "at": "2026-12-01T08:00:00.000Z",
        "who": "key 1 (the owner)",
        "action": "key.issued",
        "subject": "key 2 (the web shop): pro, read write",
    }

    at = fields.Instant("When.", required=True)
    who = fields.Text("The key, the user who ran a command, or service.", required=True)
    action = fields.Text("What was done, such as key.issued.", required=True)
    subject = fields.Text("To what.", required=True)


class AuditPageSchema(CamelSchema):
    """A page of the audit trail."""

    example: ClassVar = {"acts": [ActSchema.example], "next": 12, "more": False}

    acts = fields.items(ActSchema, "The newest first.")
    next = fields.Int64("Where to go on, as `after`.", 0, MAX_INT64, required=True)
    more = fields.Flag("Whether there are more already.", required=True)


class BackupSchema(CamelSchema):
    """A backup."""

    example: ClassVar = {
        "name": "orders-20261201T080000Z-manual.db",
        "made": "2026-12-01T08:00:00.000Z",
        "bytes": 1_204_224,
        "state": "sound",
    }

    name = fields.Text("The name of its file.", required=True)
    made = fields.Instant("When it was made.", required=True)
    bytes = fields.Int64("Its size.", 0, MAX_INT64, required=True)
    state = fields.Text("sound, or what is wrong with it.", required=True)


class BackupPageSchema(CamelSchema):
    """The backups that the service keeps."""

    example: ClassVar = {"backups": [BackupSchema.example], "sameDisk": True}

    backups = fields.items(BackupSchema, "The newest first.")
    same_disk = fields.Flag(
        "Whether they are on the disk of the store, and lost with it.", required=True
    )
