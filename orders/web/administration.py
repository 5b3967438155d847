"""The operations of version 2 that administer the shop, as the commands of the same names do.

Keys are the caller's to send in a header, never a browser's in a cookie: no other site can have a
browser send one of these requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection

from orders import domain
from orders.apikeys import ADMIN, USUAL_SCOPES, scopes_in_full
from orders.key_service import KeyService
from orders.service import retried
from orders.store import apikeys as key_store
from orders.store import idempotency
from orders.store.apikeys import ApiKey, KeyNotFound, NewKey
from orders.store.idempotency import Written
from orders.strictjson import to_json
from orders.web.access import current_call
from orders.web.api import ApiBlueprint
from orders.web.bodies import idempotency_key
from orders.web.openapi import document
from orders.web.refusals import InvalidKey
from orders.web.replies import CREATED, NO_CONTENT, REPLAYED, Reply, text_reply
from orders.web.v2 import VERSION
from schemas import administration as schemas

blueprint = ApiBlueprint("administration", __name__, url_prefix=f"/v{VERSION}", is_strict=True)
_administer = partial(document.operation, stability="beta", scope=ADMIN)
_IDEMPOTENT: dict[str, Any] = {
    "headers": ("Idempotent-Replayed",),
    "parameters": ("Idempotency-Key",),
}
_WRITE = ("malformed_request", "idempotency_key_reused")
_WITH_BODY = (*document.BODY_REFUSALS, "idempotency_key_reused")


# Keys


@blueprint.get("/keys", tags=["keys"])
@_administer()
@blueprint.response(200, schemas.KeyPageSchema, description="The keys.")
def list_keys() -> Reply:
    """Return all keys."""
    shop = current_call().shop
    with shop.database.read() as connection:
        keys = shop.keys(connection).show_all()
    return text_reply(to_json({"keys": keys}).encode())


@blueprint.post("/keys", tags=["keys"])
@_administer(refusals=_WITH_BODY, **_IDEMPOTENT)
@blueprint.arguments(schemas.NewKeySchema)
@blueprint.response(201, schemas.IssuedKeySchema, description="The key, with its secret.")
def issue_key(new: dict[str, Any]) -> Reply:
    """Issue a key."""

    def issue(keys: KeyService) -> Done:
        key_id, secret = keys.issue(
            NewKey(
                new["name"].strip(),
                new["plan"],
                scopes_in_full(new.get("scopes", USUAL_SCOPES)),
                new.get("per_minute"),
                new.get("per_day"),
                _days_on(keys.now, new.get("expires_in_days")),
            )
        )
        return Done(keys.show(key_id), secret)

    return _change_keys(("issueKey", new), issue, CREATED)


@blueprint.patch("/keys/<id:keyId>", tags=["keys"])
@_administer(refusals=(*_WITH_BODY, "key_not_found", "last_admin_key"), **_IDEMPOTENT)
@blueprint.arguments(schemas.KeyPatchSchema, location="merge_patch")
@blueprint.response(200, schemas.KeySchema, description="The key after the change.")
def change_key(patch: dict[str, Any], keyId: str) -> Reply:
    """Change a key's name, plan, figures or expiry."""
    key_id = _key_id(keyId)

    def change(keys: KeyService) -> Done:
        fields = dict(patch)
        if "name" in fields:
            fields["name"] = fields["name"].strip()
        if "expires_in_days" in fields:
            fields["expires_at"] = _days_on(keys.now, fields.pop("expires_in_days"))
        keys.change(key_id, fields)
        return Done(keys.show(key_id))

    return _change_keys(("changeKey", key_id, patch), change)


@blueprint.delete("/keys/<id:keyId>", tags=["keys"])
@_administer(refusals=(*_WRITE, "key_not_found", "last_admin_key"), **_IDEMPOTENT)
@blueprint.response(204, description="The key is revoked.")
def revoke_key(keyId: str) -> Reply:
    """Revoke a key."""
    key_id = _key_id(keyId)

    def revoke(keys: KeyService) -> Done:
        keys.revoke(key_id)
        return Done({})

    return _change_keys(("revokeKey", key_id), revoke, NO_CONTENT)


@blueprint.post("/keys/<id:keyId>/rotate", tags=["keys"])
@_administer(
    refusals=(*_WITH_BODY, "key_not_found", "key_is_over", "last_admin_key", "rotation_in_grace"),
    **_IDEMPOTENT,
)
@blueprint.arguments(schemas.RotationSchema, location="optional_json", required=False)
@blueprint.response(200, schemas.IssuedKeySchema, description="The key, with its new secret.")
def rotate_key(rotation: dict[str, int], keyId: str) -> Reply:
    """Replace a key's secret."""
    key_id, hours = _key_id(keyId), rotation.get("grace_hours", 0)

    def rotate(keys: KeyService) -> Done:
        _, secret = keys.rotate(key_id, timedelta(hours=hours))
        return Done(keys.show(key_id), secret)

    return _change_keys(("rotateKey", key_id, hours), rotate)


@blueprint.post("/keys/<id:keyId>/unban", tags=["keys"])
@_administer(refusals=(*_WRITE, "key_not_found", "key_not_banned"), **_IDEMPOTENT)
@blueprint.response(200, schemas.KeySchema, description="The key, no longer banned.")
def unban_key(keyId: str) -> Reply:
    """Lift a key's ban."""
    key_id = _key_id(keyId)

    def unban(keys: KeyService) -> Done:
        keys.unban(key_id)
        return Done(keys.show(key_id))

    return _change_keys(("unbanKey", key_id), unban)


def _key_id(text: str) -> int:
    key_id = domain.parse_id(text)
    if key_id is None:
        raise KeyNotFound(0)
    return key_id


def _days_on(now: datetime, days: int | None) -> datetime | None:
    return None if days is None else now + timedelta(days=days)


def _change_keys(asked: tuple[object, ...], change: KeyChange, status: int = 200) -> Reply:
    shop = current_call().shop
    return _write(asked, lambda connection, actor: change(shop.keys(connection, actor)), status)


# What they share


class Done(NamedTuple):
    """What a change shows, and a secret that it made."""

    shown: Mapping[str, object]
    secret: str | None = None


KeyChange = Callable[[KeyService], Done]
Change = Callable[[Connection, ApiKey], Done]


def _write(asked: tuple[object, ...], change: Change, status: int = 200) -> Reply:
    """Make a change, by an Idempotency-Key at most once in 24 hours, and show what it says.

    A secret is in the first answer alone: it is not remembered.
    """
    shop, key = current_call().shop, idempotency_key(VERSION)

    @retried
    def make() -> tuple[Written, str | None]:
        with shop.changes.transaction() as connection:
            now = shop.clock.now()
            actor = _actor(connection, now)
            if earlier := idempotency.recall(connection, key, asked, now):
                return earlier, None
            done = change(connection, actor)
            written = Written(to_json(done.shown))
            return idempotency.remember(connection, key, asked, written, now), done.secret

    written, secret = make()
    shop.keyring.refresh()
    shop.outbox.wake()
    text = written.shown(VERSION)
    if secret is not None:
        text = f'{text[:-1]},"secret":{to_json(secret)}}}'
    headers = [REPLAYED] if written.replayed else []
    return Reply(b"" if status == NO_CONTENT else text.encode(), status, headers)


def _actor(connection: Connection, now: datetime) -> ApiKey:
    """Return the key of the request as it is in this transaction: it may be revoked by now."""
    caller = current_call().caller
    if caller is None or caller.key is None:
        raise InvalidKey
    actor = key_store.get(connection, caller.key.id)
    if not actor.is_valid(now):
        raise InvalidKey
    return actor
