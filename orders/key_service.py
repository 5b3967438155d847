"""The use cases of API keys: issue, change, rotate, revoke, unban, and show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from orders import apikeys
from orders.apikeys import ADMIN
from orders.domain import Expected, format_instant
from orders.installation import command
from orders.settings import Plan
from orders.store import apikeys as key_store
from orders.store import audit
from orders.store.apikeys import ApiKey, NewKey

LONGEST_NAME = 100


class KeyRefused(Expected):
    """A rule of keys rejects a request. Its message is for the terminal."""


class Unfit(KeyRefused):
    """A key can't have this: `field` names it as the API does, `fault` and `code` say why."""

    def __init__(self, field: str, fault: str, message: str, code: str = "range") -> None:
        super().__init__(message)
        self.field, self.fault, self.code = field, fault, code


class UnfitName(Unfit):
    """A key can't have this name."""

    def __init__(self, must: str) -> None:
        super().__init__("name", f"must {must}", f"A key's name must {must}.", "format")


class UnfitPlan(Unfit):
    """There is no such plan, it has figures of its own, or it needs some."""


class AboveOwnPlan(Unfit):
    """A key would get a higher limit than the key that issues or changes it."""

    def __init__(self, per_minute: int, per_day: int) -> None:
        fault = (
            f"must not give more requests than your own key has: {per_minute:,} a minute and "
            f"{per_day:,} a day"
        )
        super().__init__("plan", fault, f"The plan {fault}.")


class HasMoreThanOwn(Unfit):
    """A key has more requests than the key that rotates its secret."""

    def __init__(self) -> None:
        fault = "has more requests than your own key: only a key with as many can rotate it"
        super().__init__("keyId", fault, f"The key {fault}.")


class NotBanned(KeyRefused):
    """The key has no ban to be lifted."""


class KeyIsOver(KeyRefused):
    """A key that is revoked or expired gets no new secret."""


class LastAdminKey(KeyRefused):
    """Without this key, the shop could only be administered on the command line."""


@dataclass(frozen=True, slots=True)
class KeyService:
    """The keys in one transaction, which the caller opens. All raise KeyNotFound, or a KeyRefused.

    `actor` is the key by which somebody acts over the API, as it is in this transaction. It grants
    no key more requests than it has, and leaves a valid key with the scope admin. Without one, a
    command is run by the system's user. Only the keys of a store for test mode have its prefix.
    `Shop.keys` makes one of these.
    """

    connection: Connection
    now: datetime
    plans: Mapping[str, Plan]
    actor: ApiKey | None = None
    is_test: bool = False

    def issue(self, new: NewKey) -> tuple[int, str]:
        """Issue a key; return its id and its secret, of which only the hash is stored."""
        _check_name(new.name)
        self._check_plan(new.plan, new.per_minute, new.per_day)
        secret = apikeys.generate(is_test=self.is_test)
        key_id = key_store.issue(self.connection, new, secret, self.now)
        key = key_store.get(self.connection, key_id)
        self._record("key.issued", key, f": {new.plan}, {' '.join(new.scopes)}")
        return key_id, secret

    def revoke(self, key_id: int) -> ApiKey:
        """Revoke a key, unless it is revoked already, and return it."""
        key = key_store.get(self.connection, key_id)
        if key.revoked_at is None:
            self._check_admins(key, ends_at=self.now)
            key_store.change(self.connection, key_id, revoked_at=self.now)
            self._record("key.revoked", key)
        return key

    def unban(self, key_id: int) -> ApiKey:
        """Lift the ban of a key, and return it."""
        key = key_store.get(self.connection, key_id)
        if key.banned_until is None:
            raise NotBanned(f"Key {key_id} ({key.name}) is not banned.")
        key_store.change(self.connection, key_id, banned_until=None)
        self._record("key.unbanned", key)
        return key

    def change_plan(
        self, key_id: int, plan: str, per_minute: int | None, per_day: int | None
    ) -> ApiKey:
        """Put a key on a plan, which begins new windows, and return it."""
        self._check_plan(plan, per_minute, per_day)
        key_store.change_plan(self.connection, key_id, plan, per_minute, per_day)
        key = key_store.get(self.connection, key_id)
        self._record("key.plan", key, f": {plan}")
        return key

    def change(self, key_id: int, fields: Mapping[str, Any]) -> None:
        """Change some of a key's name, plan, per_minute, per_day and expires_at.

        Its windows continue unless its plan or figures change.
        """
        key = key_store.get(self.connection, key_id)
        own = (key.per_minute, key.per_day) if fields.get("plan", key.plan) == key.plan else ()
        per_minute, per_day = own or (None, None)
        plan = (
            fields.get("plan", key.plan),
            fields.get("per_minute", per_minute),
            fields.get("per_day", per_day),
        )
        if plan != (key.plan, key.per_minute, key.per_day):
            self.change_plan(key_id, *plan)
        others = {
            name: fields[name]
            for name in ("name", "expires_at")
            if fields.get(name, getattr(key, name)) != getattr(key, name)
        }
        if not others:
            return
        _check_name(others.get("name", key.name))
        self._check_admins(key, ends_at=others.get("expires_at", key.expires_at))
        key_store.change(self.connection, key_id, **others)
        changed = " and ".join(each.removesuffix("_at") for each in others)
        self._record("key.changed", key_store.get(self.connection, key_id), f": {changed}")

    def rotate(
        self, key_id: int, grace: timedelta = timedelta(0), *, force: bool = False
    ) -> tuple[ApiKey, str]:
        """Replace a key's secret, which works on for the grace; return the key and the new one.

        A secret that is in its grace already is ended only by `force`: else InGrace is raised.
        """
        key = key_store.get(self.connection, key_id)
        if not key.is_valid(self.now):
            raise KeyIsOver(
                f"Key {key_id} is revoked or expired. "
                f"Issue a new one with `{command('keys issue')}`."
            )
        self._check_reach(key)
        if not force:
            until = key_store.grace_until(self.connection, key_id)
            key_store.check_grace(f"key {key_id}", until, self.now)
        if not grace:
            # The answer with the new secret may be lost on its way.
            self._check_admins(key, ends_at=self.now)
        secret = apikeys.generate(is_test=self.is_test)
        key_store.rotate(self.connection, key_id, secret, self.now + grace if grace else None)
        self._record("key.rotated", key)
        return key, secret

    def show(self, key_id: int) -> dict[str, object]:
        """Return a key as it is listed."""
        until = key_store.graces(self.connection, self.now).get(key_id)
        return self._shown(key_store.get(self.connection, key_id), until)

    def show_all(self) -> list[dict[str, object]]:
        """Return all keys as they are listed, without their secrets."""
        graces = key_store.graces(self.connection, self.now)
        return [self._shown(key, graces.get(key.id)) for key in key_store.get_all(self.connection)]

    def _shown(self, key: ApiKey, grace_until: datetime | None) -> dict[str, object]:
        per_minute, per_day = self._figures(key.plan, key.per_minute, key.per_day)
        banned = key.banned_until if key.banned_until and key.banned_until > self.now else None
        return {
            "id": key.id,
            "name": key.name,
            "prefix": key.prefix,
            "plan": key.plan,
            "perMinute": per_minute,
            "perDay": per_day,
            "scopes": list(key.scopes),
            "created": _text(key.created_at),
            "lastUsed": _text(key.last_used_at),
            "expires": _text(key.expires_at),
            "revoked": _text(key.revoked_at),
            "bannedUntil": _text(banned),
            "graceUntil": _text(grace_until),
        }

    def _figures(
        self, plan: str, per_minute: int | None, per_day: int | None
    ) -> tuple[int | None, int | None]:
        """Return the requests a minute and a day of a plan, or else of a key's own figures.

        None is unknown: the plan was removed from the settings.
        """
        named = self.plans.get(plan)
        if named is None or named.per_minute is None:
            return per_minute, per_day
        return named.per_minute, named.per_day

    def _record(self, action: str, key: ApiKey, details: str = "") -> None:
        subject = f"key {key.id} ({key.name}){details}"
        audit.record(self.connection, self.now, action, subject, audit.name_of(self.actor))

    def _check_admins(self, key: ApiKey, *, ends_at: datetime | None) -> None:
        """Raise LastAdminKey if by the API the last valid admin key would end sooner than now."""
        is_sooner = ends_at is not None and (key.expires_at is None or ends_at < key.expires_at)
        if (
            self.actor is not None
            and is_sooner
            and ADMIN in key.scopes
            and key.is_valid(self.now)
            and not key_store.has_other_admin(self.connection, key.id, self.now)
        ):
            raise LastAdminKey(f"Key {key.id} is the only valid one with the scope admin.")

    def _check_plan(self, name: str, per_minute: int | None, per_day: int | None) -> None:
        plan = self.plans.get(name)
        if plan is None:
            known = ", ".join(self.plans)
            raise UnfitPlan(
                "plan",
                f"must be one of {known}",
                f"There is no plan {name}. The plans are {known}.",
            )
        if plan.per_minute is None and (per_minute is None or per_day is None):
            raise UnfitPlan(
                "perDay" if per_day is None else "perMinute",
                f"is required on the plan {name}",
                f"The plan {name} needs --per-minute and --per-day.",
                "required",
            )
        if plan.per_minute is not None and (per_minute, per_day) != (None, None):
            raise UnfitPlan(
                "perDay" if per_minute is None else "perMinute",
                f"must be left out: the plan {name} has its own figures",
                f"The plan {name} has its own figures: leave out --per-minute and --per-day.",
            )
        self._check_figures(*self._figures(name, per_minute, per_day))

    def _check_reach(self, key: ApiKey) -> None:
        """Raise HasMoreThanOwn if the actor would have more requests by another key's secret."""
        if self.actor is None or key.id == self.actor.id:
            return
        try:
            self._check_figures(*self._figures(key.plan, key.per_minute, key.per_day))
        except AboveOwnPlan:
            raise HasMoreThanOwn from None

    def _check_figures(self, per_minute: int | None, per_day: int | None) -> None:
        if (key := self.actor) is None:
            return
        own = self._figures(key.plan, key.per_minute, key.per_day)
        # A key whose plan is gone has the limits of the free plan.
        most_per_minute, most_per_day = own if all(own) else self._figures("free", None, None)
        if (per_minute or 0) > (most_per_minute or 0) or (per_day or 0) > (most_per_day or 0):
            raise AboveOwnPlan(most_per_minute or 0, most_per_day or 0)


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise UnfitName(f"be 1 to {LONGEST_NAME} printable characters")
    if apikeys.PREFIX in name:
        raise UnfitName("be that of its user: this one looks like a key")
