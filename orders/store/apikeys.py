"""Queries of the API keys table, and the time that decides which keys have expired.

Secrets go in as hashes and never come out.

A clock that is behind would revive keys that have expired, and rotated secrets past their grace. So
the store keeps the latest time that a service has seen: it is written with the times at which keys
were last used, every hour, at a stop, and when the clock is set back. After a kill, the newest
events show it, too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from orders.apikeys import ADMIN, digest, shown_prefix
from orders.domain import Expected, format_instant
from orders.installation import command
from orders.store.database.database import Database, Instant, Query, instant_of
from orders.store.tables import api_keys, order_events, store

log = logging.getLogger(__name__)

_PUBLIC = [
    column
    for column in api_keys.columns
    if column.name not in {"secret_hash", "previous_hash", "previous_until"}
]


class KeyNotFound(Expected):
    def __init__(self, key_id: int) -> None:
        super().__init__(f"There is no key {key_id}. `{command('keys list')}` shows them all.")


class InGrace(Expected):
    """A rotation would end the grace of an earlier secret, which may be in use."""

    def __init__(self, name: str, until: datetime) -> None:
        self.until = until
        super().__init__(
            f"The previous secret of {name} works until {format_instant(until)}, and may be in "
            "use. Rotate again after that, or end it now with --force."
        )


def check_grace(name: str, until: datetime | None, now: datetime) -> None:
    """Raise InGrace where the previous secret of a key or a webhook still works."""
    if until is not None and now < until:
        raise InGrace(name, until)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, without its secret. `scopes` are some of `apikeys.SCOPES`."""

    id: int
    name: str
    prefix: str
    plan: str
    per_minute: int | None
    per_day: int | None
    plan_revision: int
    scopes: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    banned_until: datetime | None
    # Set where the key was found by its previous secret: the end of that one's grace.
    secret_until: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether the key is valid at this time, by the secret that it was found by."""
        return now.timestamp() < self.valid_until()

    def valid_until(self) -> float:
        """Return the Unix time from which on the key is no longer valid, by that secret."""
        if self.revoked_at is not None:
            return -math.inf
        ends = [end.timestamp() for end in (self.expires_at, self.secret_until) if end]
        return min(ends, default=math.inf)


@dataclass(frozen=True, slots=True)
class NewKey:
    name: str
    plan: str
    scopes: tuple[str, ...]
    per_minute: int | None = None
    per_day: int | None = None
    expires_at: datetime | None = None


def issue(connection: Connection, new: NewKey, secret: str, now: datetime) -> int:
    """Insert a key, with the hash of its secret; return its id."""
    values = asdict(new) | {"scopes": " ".join(new.scopes), "created_at": now} | _stored(secret)
    inserting = sa.insert(api_keys).values(values).returning(api_keys.c.id)
    return int(connection.execute(inserting).scalar_one())


def _stored(secret: str) -> dict[str, Any]:
    return {"prefix": shown_prefix(secret), "secret_hash": digest(secret)}


_HAS_SECRET = sa.or_(
    api_keys.c.secret_hash == sa.bindparam("secret_hash"),
    api_keys.c.previous_hash == sa.bindparam("secret_hash"),
)
_NOW: sa.BindParameter[datetime] = sa.bindparam("now", type_=Instant)
# A key's end must be later than both the clock and its floor.
_FLOOR = sa.func.coalesce(sa.select(store.c.clock_floor).scalar_subquery(), _NOW)


def _is_later(end: Any) -> sa.ColumnElement[bool]:
    return sa.and_(end > _NOW, end > _FLOOR)


# Run first, because guesses come in numbers and must cost little. The database decides: a secret
# that is revoked, expired or past its grace takes no more work than one that never was, so that
# response times don't tell them apart.
IS_VALID = Query(
    sa.select(api_keys.c.id).where(
        _HAS_SECRET,
        sa.or_(
            api_keys.c.secret_hash == sa.bindparam("secret_hash"),
            _is_later(api_keys.c.previous_until),
        ),
        api_keys.c.revoked_at.is_(None),
        sa.or_(api_keys.c.expires_at.is_(None), _is_later(api_keys.c.expires_at)),
    )
)


_BY_SECRET = Query(
    sa.select(*_PUBLIC, api_keys.c.secret_hash, api_keys.c.previous_until).where(_HAS_SECRET)
)
_BY_ID = Query(sa.select(*_PUBLIC).where(api_keys.c.id == sa.bindparam("key_id")))
_ALL = Query(sa.select(*_PUBLIC).order_by(api_keys.c.id))
_ACTOR = sa.literal("key:", sa.String).concat(sa.cast(api_keys.c.id, sa.String))
_ACTORS = Query(
    sa.select(_ACTOR, api_keys.c.name)
    .where(
        _ACTOR.in_(
            sa.select(order_events.c.actor).where(
                order_events.c.order_id == sa.bindparam("order_id", type_=sa.BigInteger)
            )
        )
    )
    .order_by(api_keys.c.id)
)


def actors_of(database: Database, order_id: int) -> list[tuple[str, str]]:
    """Return the keys that changed an order, as its events have them, and their names."""
    return [(actor, name) for actor, name in database.fetch_all(_ACTORS, order_id=order_id)]


def find_by_secret(connection: Connection, secret_hash: bytes) -> ApiKey | None:
    """Return the key that has this secret, also revoked, expired or past its grace, or None."""
    rows = _BY_SECRET.execute(connection, secret_hash=secret_hash).fetchall()
    if not rows:
        return None
    ((*public, current_hash, previous_until),) = rows
    is_current = current_hash == secret_hash
    return _api_key(public, None if is_current else instant_of(previous_until))


def get(connection: Connection, key_id: int) -> ApiKey:
    rows = _BY_ID.execute(connection, key_id=key_id).fetchall()
    if not rows:
        raise KeyNotFound(key_id)
    return _api_key(rows[0])


def get_all(connection: Connection) -> list[ApiKey]:
    return [_api_key(row) for row in _ALL.execute(connection).fetchall()]


def has_other_admin(connection: Connection, key_id: int, now: datetime) -> bool:
    """Return whether another key than this one is valid, and has the scope admin."""
    return any(
        each.id != key_id and ADMIN in each.scopes and each.is_valid(now)
        for each in get_all(connection)
    )


def grace_until(connection: Connection, key_id: int) -> datetime | None:
    """Return until when the key's previous secret works, or None where it has none."""
    return connection.scalar(sa.select(api_keys.c.previous_until).where(api_keys.c.id == key_id))


def graces(connection: Connection, now: datetime) -> dict[int, datetime]:
    """Return until when previous secrets work, by the ids of their keys."""
    living = sa.select(api_keys.c.id, api_keys.c.previous_until).where(
        api_keys.c.previous_until > now
    )
    return {row.id: row.previous_until for row in connection.execute(living)}


def rotate(
    connection: Connection, key_id: int, secret: str, previous_until: datetime | None
) -> None:
    """Replace the key's secret. The previous one works until `previous_until`, if any.

    A secret still in its grace from an earlier rotation stops working: at most two are live.
    """
    previous_hash = api_keys.c.secret_hash if previous_until is not None else None
    previous = {"previous_hash": previous_hash, "previous_until": previous_until}
    change(connection, key_id, **_stored(secret), **previous)


def change_plan(
    connection: Connection, key_id: int, plan: str, per_minute: int | None, per_day: int | None
) -> None:
    """Change the plan of a key, which begins new windows."""
    change(
        connection,
        key_id,
        plan=plan,
        per_minute=per_minute,
        per_day=per_day,
        plan_revision=api_keys.c.plan_revision + 1,
    )


def change(connection: Connection, key_id: int, **values: object) -> None:
    changed = connection.execute(
        sa.update(api_keys).where(api_keys.c.id == key_id).values(**values)
    )
    if changed.rowcount == 0:
        raise KeyNotFound(key_id)


def write_last_used(connection: Connection, used: Mapping[int, datetime]) -> None:
    for key_id, at in used.items():
        connection.execute(
            sa.update(api_keys).where(api_keys.c.id == key_id).values(last_used_at=at)
        )


def store_id(connection: Connection) -> str:
    return str(connection.execute(sa.select(store.c.store_id)).scalar_one())


def demo_key_id(connection: Connection) -> int | None:
    """Return the id of the demo's key; None in a database that is no demo."""
    return connection.scalar(sa.select(store.c.demo_key_id))


def set_demo_key_id(connection: Connection, key_id: int) -> None:
    connection.execute(sa.update(store).values(demo_key_id=key_id))


def _api_key(row: Sequence[Any], secret_until: datetime | None = None) -> ApiKey:
    fields: dict[str, Any] = {
        column.name: instant_of(value) if isinstance(column.type, Instant) else value
        for column, value in zip(_PUBLIC, row, strict=True)
    }
    fields["scopes"] = tuple(fields["scopes"].split())
    return ApiKey(**fields, secret_until=secret_until)


# The events among which the latest time is looked for: a kill may follow a clock set back.
_NEWEST_EVENTS = 1_000

_NEWEST_TIMES = (
    sa.select(order_events.c.at)
    .where(
        order_events.c.id
        > sa.select(sa.func.coalesce(store.c.misdated_events, 0)).scalar_subquery()
    )
    .order_by(order_events.c.id.desc())
    .limit(_NEWEST_EVENTS)
    .subquery()
)
_LATEST = sa.select(sa.func.max(_NEWEST_TIMES.c.at)).scalar_subquery()


def latest_time(connection: Connection) -> datetime | None:
    latest, floor = connection.execute(sa.select(_LATEST, store.c.clock_floor)).one()
    return max((at for at in (latest, floor) if at), default=None)


def raise_clock_floor(connection: Connection, seen: datetime) -> None:
    """Judge keys by no earlier time than this, whatever the clock shows."""
    is_earlier = sa.or_(store.c.clock_floor.is_(None), store.c.clock_floor < seen)
    connection.execute(sa.update(store).where(is_earlier).values(clock_floor=seen))


def trust_clock(connection: Connection) -> None:
    """Judge keys by the clock again: the events so far were dated by one that was ahead."""
    newest = sa.select(sa.func.max(order_events.c.id)).scalar_subquery()
    connection.execute(sa.update(store).values(clock_floor=None, misdated_events=newest))


def warn_of_clock(latest: datetime) -> None:
    log.warning(
        "The clock is behind: it has been %s before. Until then, keys and secrets that had expired "
        "stay so. If the clock is right, and was ahead before, run `%s`.",
        format_instant(latest),
        command("db check --clock-is-right"),
    )
