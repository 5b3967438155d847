"""The operations of version 2 that administer the shop, as the commands of the same names do.

Keys are the caller's to send in a header, never a browser's in a cookie: no other site can have a
browser send one of these requests.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import request
from sqlalchemy import Connection

from orders import domain
from orders.apikeys import ADMIN, USUAL_SCOPES, WEBHOOKS, scopes_in_full
from orders.key_service import KeyService
from orders.service import retried
from orders.store import apikeys as key_store
from orders.store import audit, idempotency
from orders.store.apikeys import ApiKey, KeyNotFound, NewKey
from orders.store.database.errors import StoreUnavailable
from orders.store.idempotency import Written
from orders.strictjson import to_json
from orders.web import downloads
from orders.web.access import current_call
from orders.web.api import ApiBlueprint
from orders.web.bodies import idempotency_key
from orders.web.openapi import document
from orders.web.refusals import (
    BackupFailed,
    BackupNotFound,
    BackupsOff,
    InvalidKey,
    ServerBusy,
)
from orders.web.replies import CREATED, NO_CONTENT, REPLAYED, Reply, text_reply
from orders.web.v2 import VERSION
from orders.webhooks.deliveries import Attempt, Delivery, EndpointState
from orders.webhooks.endpoints import Endpoint, EndpointNotFound, EventNotFound
from orders.webhooks.service import Trial, WebhookService, check_public_url
from schemas import administration as schemas

if TYPE_CHECKING:
    from orders.store.care.backups import Backup, Backups

log = logging.getLogger(__name__)

ACCEPTED = 202
blueprint = ApiBlueprint("administration", __name__, url_prefix=f"/v{VERSION}", is_strict=True)
_administer = partial(document.operation, stability="beta", scope=ADMIN)
_manage = partial(document.operation, stability="beta", scope=WEBHOOKS)
# Each occupies a thread for as long as a receiver takes, which is up to 15 seconds.
_trials = threading.BoundedSemaphore(2)
# One at a time: it occupies a thread for as long as copying the store takes.
_copying = threading.Lock()
_IDEMPOTENT: dict[str, Any] = {
    "headers": ("Idempotent-Replayed",),
    "parameters": ("Idempotency-Key",),
}
# SQLite's own type is not used: generators of clients fail at a type that they do not know.
BINARY = "application/octet-stream"
_FILE = {"type": "string", "format": "binary"}
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
    return _shown({"keys": keys})


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
    key_id = _id(keyId, KeyNotFound)

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
    key_id = _id(keyId, KeyNotFound)

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
    key_id, hours = _id(keyId, KeyNotFound), rotation.get("grace_hours", 0)

    def rotate(keys: KeyService) -> Done:
        _, secret = keys.rotate(key_id, timedelta(hours=hours))
        return Done(keys.show(key_id), secret)

    return _change_keys(("rotateKey", key_id, hours), rotate)


@blueprint.post("/keys/<id:keyId>/unban", tags=["keys"])
@_administer(refusals=(*_WRITE, "key_not_found", "key_not_banned"), **_IDEMPOTENT)
@blueprint.response(200, schemas.KeySchema, description="The key, no longer banned.")
def unban_key(keyId: str) -> Reply:
    """Lift a key's ban."""
    key_id = _id(keyId, KeyNotFound)

    def unban(keys: KeyService) -> Done:
        keys.unban(key_id)
        return Done(keys.show(key_id))

    return _change_keys(("unbanKey", key_id), unban)


def _days_on(now: datetime, days: int | None) -> datetime | None:
    return None if days is None else now + timedelta(days=days)


def _change_keys(asked: tuple[object, ...], change: KeyChange, status: int = 200) -> Reply:
    shop = current_call().shop
    return _write(asked, lambda connection, actor: change(shop.keys(connection, actor)), status)


# Webhooks


@blueprint.get("/webhooks", tags=["webhooks"])
@_manage()
@blueprint.response(200, schemas.WebhookPageSchema, description="The webhooks.")
def list_webhooks() -> Reply:
    """Return the webhooks that the key may see."""
    shop = current_call().shop
    with shop.database.read() as connection:
        states = WebhookService(connection, shop.clock.now(), current_call().key()).states()
        shown = [_webhook(connection, each) for each in states]
    return _shown({"webhooks": shown})


@blueprint.post("/webhooks", tags=["webhooks"])
@_manage(refusals=(*_WITH_BODY, "too_many_webhooks"), **_IDEMPOTENT)
@blueprint.arguments(schemas.NewWebhookSchema)
@blueprint.response(201, schemas.SecretWebhookSchema, description="The webhook, with its secret.")
def add_webhook(new: dict[str, Any]) -> Reply:
    """Add a webhook, which starts at the next event."""
    check_public_url(new["url"])
    return _change_webhooks(
        ("addWebhook", new),
        lambda webhooks: webhooks.add(new["url"], new.get("events", ())),
        with_secret=True,
        status=CREATED,
    )


@blueprint.patch("/webhooks/<id:webhookId>", tags=["webhooks"])
@_manage(refusals=(*_WITH_BODY, "webhook_not_found"), **_IDEMPOTENT)
@blueprint.arguments(schemas.WebhookPatchSchema, location="merge_patch")
@blueprint.response(200, schemas.WebhookSchema, description="The webhook after the change.")
def change_webhook(patch: dict[str, Any], webhookId: str) -> Reply:
    """Change the events that a webhook receives."""
    webhook_id = _id(webhookId, EndpointNotFound)

    def change(webhooks: WebhookService) -> Endpoint:
        if "events" not in patch:
            return webhooks.get(webhook_id)
        return webhooks.change_events(webhook_id, patch["events"])

    return _change_webhooks(("changeWebhook", webhook_id, patch), change)


@blueprint.delete("/webhooks/<id:webhookId>", tags=["webhooks"])
@_manage(refusals=(*_WRITE, "webhook_not_found"), **_IDEMPOTENT)
@blueprint.response(204, description="The webhook is removed.")
def remove_webhook(webhookId: str) -> Reply:
    """Remove a webhook."""
    webhook_id = _id(webhookId, EndpointNotFound)
    return _change_webhooks(
        ("removeWebhook", webhook_id),
        lambda webhooks: webhooks.remove(webhook_id),
        status=NO_CONTENT,
    )


@blueprint.post("/webhooks/<id:webhookId>/rotate", tags=["webhooks"])
@_manage(refusals=(*_WRITE, "webhook_not_found", "rotation_in_grace"), **_IDEMPOTENT)
@blueprint.response(
    200, schemas.SecretWebhookSchema, description="The webhook, with its new secret."
)
def rotate_webhook(webhookId: str) -> Reply:
    """Replace a webhook's secret."""
    webhook_id = _id(webhookId, EndpointNotFound)
    return _change_webhooks(
        ("rotateWebhook", webhook_id),
        lambda webhooks: webhooks.rotate(webhook_id, force=False),
        with_secret=True,
    )


@blueprint.post("/webhooks/<id:webhookId>/pause", tags=["webhooks"])
@_manage(refusals=(*_WRITE, "webhook_not_found"), **_IDEMPOTENT)
@blueprint.response(200, schemas.WebhookSchema, description="The webhook, paused.")
def pause_webhook(webhookId: str) -> Reply:
    """Pause a webhook."""
    webhook_id = _id(webhookId, EndpointNotFound)
    return _change_webhooks(
        ("pauseWebhook", webhook_id),
        lambda webhooks: webhooks.pause(webhook_id, "paused over the API"),
    )


@blueprint.post("/webhooks/<id:webhookId>/resume", tags=["webhooks"])
@_manage(refusals=(*_WITH_BODY, "webhook_not_found", "event_not_found"), **_IDEMPOTENT)
@blueprint.arguments(schemas.ResumptionSchema, location="optional_json", required=False)
@blueprint.response(200, schemas.WebhookSchema, description="The webhook, active again.")
def resume_webhook(resumption: dict[str, int], webhookId: str) -> Reply:
    """Resume a webhook at once."""
    webhook_id, after = _id(webhookId, EndpointNotFound), resumption.get("after")
    return _change_webhooks(
        ("resumeWebhook", webhook_id, after), lambda webhooks: webhooks.resume(webhook_id, after)
    )


@blueprint.post("/webhooks/<id:webhookId>/ping", tags=["webhooks"])
@_manage(refusals=(*_WRITE, "webhook_not_found", "server_busy"), **_IDEMPOTENT)
@blueprint.response(200, schemas.PingSchema, description="The outcome.")
def ping_webhook(webhookId: str) -> Reply:
    """Send a ping to a webhook."""
    webhook_id = _id(webhookId, EndpointNotFound)
    asked = ("pingWebhook", webhook_id)
    if earlier := _recalled(asked):
        return earlier
    trial = _trial()
    if not _trials.acquire(blocking=False):
        raise ServerBusy("Other messages are being sent by hand", retry_after=2)
    try:
        made = trial.ping(webhook_id)
    finally:
        _trials.release()
    return _write(asked, lambda _, __: Done(_outcome(made)))


@blueprint.get("/webhooks/<id:webhookId>/deliveries", tags=["webhooks"])
@_manage(refusals=("webhook_not_found",))
@blueprint.arguments(schemas.NewestFirstQuerySchema, location="query")
@blueprint.response(200, schemas.DeliveryPageSchema, description="Attempts, the newest first.")
def list_deliveries(query: dict[str, int], webhookId: str) -> Reply:
    """Return the attempts to deliver to a webhook."""
    shop, after, limit = current_call().shop, query["after"], query["limit"]
    with shop.database.read() as connection:
        webhooks = WebhookService(connection, shop.clock.now(), current_call().key())
        found = webhooks.attempts(_id(webhookId, EndpointNotFound), after or None, limit + 1)
    return _page("deliveries", [(each.id, _attempt(each)) for each in found], after, limit)


@blueprint.post("/webhooks/<id:webhookId>/deliveries/<id:eventId>/redeliver", tags=["webhooks"])
@_manage(refusals=(*_WRITE, "webhook_not_found", "event_not_found", "server_busy"), **_IDEMPOTENT)
@blueprint.response(202, schemas.RedeliverySchema, description="It is being sent.")
def redeliver(webhookId: str, eventId: str) -> Reply:
    """Send an event to a webhook once more."""
    webhook_id, event_id = _id(webhookId, EndpointNotFound), _id(eventId, EventNotFound)
    asked = ("redeliver", webhook_id, event_id)
    if earlier := _recalled(asked, ACCEPTED):
        return earlier
    send = _trial().prepare_redelivery(webhook_id, event_id)
    if not _trials.acquire(blocking=False):
        raise ServerBusy("Other messages are being sent by hand", retry_after=2)

    def run() -> None:
        try:
            send()
        except Exception:
            log.exception("Event %d could not be sent to webhook %d.", event_id, webhook_id)
        finally:
            _trials.release()

    try:
        shown = {"webhookId": webhook_id, "eventId": event_id}
        reply = _write(asked, lambda _, __: Done(shown), ACCEPTED)
    except BaseException:
        _trials.release()
        raise
    threading.Thread(target=run, name="redelivery", daemon=True).start()
    return reply


def _trial() -> Trial:
    call = current_call()
    shop = call.shop
    return Trial(shop.database, shop.outbox.courier, shop.clock, shop.store_id, call.key())


def _attempt(one: Attempt) -> dict[str, object]:
    made = one.delivery
    facts = {"eventId": made.event_id, "at": domain.format_instant(made.at)}
    return _sparse(facts) | _outcome(made) | {"outcome": made.outcome, "attempt": one.number}


def _outcome(made: Delivery) -> dict[str, object]:
    said = {"status": made.status, "error": made.fault, "answer": made.answer or None}
    return _sparse(said | {"milliseconds": made.milliseconds})


def _webhook(connection: Connection, standing: EndpointState) -> dict[str, object]:
    endpoint, last = standing.endpoint, standing.last
    names = {key.id: key.name for key in key_store.get_all(connection)}
    times = {
        "since": endpoint.paused_at,
        "nextTry": None if endpoint.paused_at else endpoint.next_at,
        "lastTry": last and last.at,
        "created": endpoint.created_at,
    }
    return _sparse(
        {
            "id": endpoint.id,
            "url": endpoint.url,
            "events": [each.value for each in endpoint.events],
            "state": standing.state,
            "waiting": standing.behind + standing.refused,
            "because": endpoint.paused_because,
            "lastOutcome": last and last.outcome,
            "addedBy": names.get(endpoint.added_by or 0),
            **{name: at and domain.format_instant(at) for name, at in times.items()},
        }
    )


def _sparse(row: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if value is not None}


def _change_webhooks(
    asked: tuple[object, ...],
    change: Callable[[WebhookService], Endpoint],
    *,
    with_secret: bool = False,
    status: int = 200,
) -> Reply:
    shop = current_call().shop

    def done(connection: Connection, actor: ApiKey) -> Done:
        webhooks = WebhookService(connection, shop.clock.now(), actor)
        changed = change(webhooks)
        if status == NO_CONTENT:
            return Done({})
        shown = _webhook(connection, webhooks.state(changed.id))
        return Done(shown, changed.secret if with_secret else None)

    return _write(asked, done, status)


# The audit trail, and backups


@blueprint.get("/audit", tags=["administration"])
@_administer()
@blueprint.arguments(schemas.NewestFirstQuerySchema, location="query")
@blueprint.response(200, schemas.AuditPageSchema, description="Acts, the newest first.")
def get_audit(query: dict[str, int]) -> Reply:
    """Return who did what to keys, webhooks and the store."""
    after, limit = query["after"], query["limit"]
    with current_call().shop.database.read() as connection:
        found = audit.newest(connection, after or None, limit + 1)
    acts = [(nth, asdict(act) | {"at": domain.format_instant(act.at)}) for nth, act in found]
    return _page("acts", acts, after, limit)


@blueprint.get("/backups", tags=["administration"])
@_administer(refusals=("backups_off",))
@blueprint.response(200, schemas.BackupPageSchema, description="The backups, the newest first.")
def list_backups() -> Reply:
    """Return the backups that the service keeps."""
    backups = _backups()
    shown = [_backup(backups, each) for each in backups.all()]
    return _shown({"backups": shown, "sameDisk": backups.standing().is_on_same_disk})


@blueprint.post("/backups", tags=["administration"])
@_administer(refusals=(*_WRITE, "backups_off", "backup_failed", "server_busy"), **_IDEMPOTENT)
@blueprint.response(201, schemas.BackupSchema, description="The backup.")
def make_backup() -> Reply:
    """Make a backup now."""
    backups, asked = _backups(), ("makeBackup",)
    if not _copying.acquire(blocking=False):
        raise ServerBusy("Another backup is being made", retry_after=5)
    try:
        # Until the answer is remembered, so that a repeated request makes no other one.
        return _recalled(asked, CREATED) or _make_backup(backups, asked)
    finally:
        _copying.release()


def _make_backup(backups: Backups, asked: tuple[object, ...]) -> Reply:
    shop = current_call().shop
    try:
        # Requests have seconds, of which copying a large store takes more.
        shop.database.set_deadline(None)
        made = backups.make(is_manual=True)
    except (OSError, domain.Expected) as error:
        raise BackupFailed(str(error).rstrip(".")) from None

    def record(connection: Connection, actor: ApiKey) -> Done:
        now, who = shop.clock.now(), audit.name_of(actor)
        audit.record(connection, now, "backup.made", made.path.name, who)
        return Done(_backup(backups, made))

    return _write(asked, record, CREATED)


@blueprint.get("/backups/<name>", tags=["administration"])
@_administer(
    refusals=("backups_off", "backup_not_found", "range_not_satisfiable"),
    headers=("ETag", "Accept-Ranges", "Content-Disposition", "Content-Range"),
    parameters=("Range", "If-Range"),
)
@blueprint.alt_response(206, schema=_FILE, content_type=BINARY, description="A part of it.")
@blueprint.response(200, _FILE, content_type=BINARY, description="The backup.")
def download_backup(name: str) -> Reply:
    """Download a backup, or a part of it."""
    one = next((each for each in _backups().all() if each.path.name == name), None)
    if one is None:
        raise BackupNotFound
    try:
        tag = f'"{one.tag()}"'
        file, size = downloads.opened(one.path)
    except FileNotFoundError:
        raise BackupNotFound from None
    except OSError as error:
        raise StoreUnavailable(f"{name} can't be read ({error.strerror})") from None
    try:
        part = downloads.asked_part(size, tag)
        if request.method != "HEAD":
            _record_download(name if part.is_whole else f"{name}: {part}")
    except BaseException:
        file.close()
        raise
    return downloads.Download(file, part, tag, name, BINARY)


@retried
def _record_download(what: str) -> None:
    shop = current_call().shop
    with shop.changes.transaction() as connection:
        now = shop.clock.now()
        who = audit.name_of(_actor(connection, now))
        audit.record(connection, now, "backup.downloaded", what, who)


def _backups() -> Backups:
    backups = current_call().shop.backups
    if backups is None:
        raise BackupsOff
    return backups


def _backup(backups: Backups, one: Backup) -> dict[str, object]:
    made, state = domain.format_instant(one.at), backups.verdict_on(one)
    return {"name": one.path.name, "made": made, "bytes": one.size, "state": state}


# What they share


def _id(text: str, not_found: Callable[[int], Exception]) -> int:
    number = domain.parse_id(text)
    if number is None:
        raise not_found(0)
    return number


def _page(
    name: str, found: Sequence[tuple[int, dict[str, object]]], after: int, limit: int
) -> Reply:
    """Return a page of the rows found, each with its id; one more says that there is more."""
    page = found[:limit]
    last = page[-1][0] if page else after
    return _shown({name: [each for _, each in page], "next": last, "more": len(found) > limit})


def _shown(facts: Mapping[str, object]) -> Reply:
    return text_reply(to_json(facts).encode())


class Done(NamedTuple):
    """The answer of a change, and a secret that it made."""

    shown: Mapping[str, object]
    secret: str | None = None


KeyChange = Callable[[KeyService], Done]
Change = Callable[[Connection, ApiKey], Done]


def _write(asked: tuple[object, ...], change: Change, status: int = 200) -> Reply:
    """Make a change, by an Idempotency-Key at most once in 24 hours, and return its answer.

    A secret is in the first answer alone: it is not remembered.
    """
    shop, key = current_call().shop, idempotency_key(VERSION)

    @retried
    def make() -> tuple[Written[str], str | None]:
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


def _recalled(asked: tuple[object, ...], status: int = 200) -> Reply | None:
    """Return the answer that an Idempotency-Key repeats, for acts that precede its writing."""
    shop, key = current_call().shop, idempotency_key(VERSION)
    with shop.database.read() as connection:
        earlier = idempotency.recall(connection, key, asked, shop.clock.now())
    if earlier is None:
        return None
    return Reply(earlier.shown(VERSION).encode(), status, [REPLAYED])


def _actor(connection: Connection, now: datetime) -> ApiKey:
    """Return the key of the request as it is in this transaction: it may be revoked by now."""
    actor = key_store.get(connection, current_call().key().id)
    if not actor.is_valid(now):
        raise InvalidKey
    return actor
