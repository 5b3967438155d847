"""The audit trail: who did what to keys, webhooks and the store, and when. Append-only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select

from orders import settings, system
from orders.store.apikeys import ApiKey
from orders.store.tables import audit_trail

SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Act:
    """An entry: who did what to which key, webhook or store, without any secret."""

    at: datetime
    who: str
    action: str
    subject: str


def record(
    connection: Connection, at: datetime, action: str, subject: str, who: str | None = None
) -> None:
    """Add an entry, in the transaction of the act itself. Without `who`, the system's user.

    That is who called `sudo`, too: `anna as store-orders`.
    """
    values = {"at": at, "who": who or _user(), "action": action, "subject": subject}
    connection.execute(insert(audit_trail).values(values))


def name_of(key: ApiKey | None) -> str | None:
    """Return the name of the key that acts over the API; None for a command."""
    return None if key is None else f"key {key.id} ({key.name})"


def get_all(connection: Connection) -> list[Act]:
    columns = (audit_trail.c.at, audit_trail.c.who, audit_trail.c.action, audit_trail.c.subject)
    return [
        Act(*row)
        for row in connection.execute(select(*columns).order_by(audit_trail.c.at, audit_trail.c.id))
    ]


def newest(connection: Connection, before: int | None, limit: int) -> list[tuple[int, Act]]:
    """Return the newest entries, or those before an id, and their ids."""
    columns = (audit_trail.c.at, audit_trail.c.who, audit_trail.c.action, audit_trail.c.subject)
    entries = select(audit_trail.c.id, *columns).order_by(audit_trail.c.id.desc()).limit(limit)
    if before is not None:
        entries = entries.where(audit_trail.c.id < before)
    return [(entry_id, Act(*act)) for entry_id, *act in connection.execute(entries)]


def _user() -> str:
    # Not from the environment alone, which anybody who may run commands as this user can set.
    user, caller = system.user_name(), settings.sudo_user()
    if caller == user or not system.is_user(caller):  # no text that is nobody's name
        return user
    return f"{caller} as {user}"
