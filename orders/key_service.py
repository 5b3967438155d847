"""The use cases of API keys: issue, rotate, revoke, unban, and change the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from orders import apikeys
from orders.domain import Expected
from orders.installation import command
from orders.settings import Plan
from orders.store import apikeys as store
from orders.store import audit
from orders.store.apikeys import ApiKey, NewKey

SCOPES = ("read", "write")
LONGEST_NAME = 100


class KeyRefused(Expected):
    """A rule of keys rejects a request. Its message is for the terminal."""


class UnfitName(KeyRefused):
    """A key can't have this name."""


class UnfitPlan(KeyRefused):
    """There is no such plan, it has figures of its own, or it needs some."""


class NotBanned(KeyRefused):
    """The key has no ban to be lifted."""


class KeyIsOver(KeyRefused):
    """A key that is revoked or expired gets no new secret."""


@dataclass(frozen=True, slots=True)
class KeyService:
    """The keys in one transaction, which the caller opens. All raise KeyNotFound, or a KeyRefused.

    `who` is for the audit trail: by default, the system's user, who runs a command. The keys of a
    store for test mode, and no others, have its prefix. `Shop.keys` makes one of these.
    """

    connection: Connection
    now: datetime
    plans: Mapping[str, Plan]
    who: str | None = None
    is_test: bool = False

    def issue(self, new: NewKey) -> tuple[int, str]:
        """Issue a key; return its id and its secret, of which only the hash is stored."""
        _check_name(new.name)
        self._check_plan(new.plan, new.per_minute, new.per_day)
        secret = apikeys.generate(is_test=self.is_test)
        key_id = store.issue(self.connection, new, secret, self.now)
        key = store.get(self.connection, key_id)
        self._record("key.issued", key, f": {new.plan}, {' '.join(new.scopes)}")
        return key_id, secret

    def revoke(self, key_id: int) -> ApiKey:
        """Revoke a key, unless it is revoked already, and return it."""
        key = store.get(self.connection, key_id)
        if key.revoked_at is None:
            store.change(self.connection, key_id, revoked_at=self.now)
            self._record("key.revoked", key)
        return key

    def unban(self, key_id: int) -> ApiKey:
        """Lift the ban of a key, and return it."""
        key = store.get(self.connection, key_id)
        if key.banned_until is None:
            raise NotBanned(f"Key {key_id} ({key.name}) is not banned.")
        store.change(self.connection, key_id, banned_until=None)
        self._record("key.unbanned", key)
        return key

    def change_plan(
        self, key_id: int, plan: str, per_minute: int | None, per_day: int | None
    ) -> ApiKey:
        """Put a key on a plan, which begins new windows, and return it."""
        self._check_plan(plan, per_minute, per_day)
        store.change_plan(self.connection, key_id, plan, per_minute, per_day)
        key = store.get(self.connection, key_id)
        self._record("key.plan", key, f": {plan}")
        return key

    def rotate(
        self, key_id: int, grace: timedelta = timedelta(0), *, force: bool = False
    ) -> tuple[ApiKey, str]:
        """Replace a key's secret, which works on for the grace; return the key and the new one.

        A secret that is in its grace already is ended only by `force`: else InGrace is raised.
        """
        key = store.get(self.connection, key_id)
        if not key.is_valid(self.now):
            raise KeyIsOver(
                f"Key {key_id} is revoked or expired. "
                f"Issue a new one with `{command('keys issue')}`."
            )
        if not force:
            until = store.grace_until(self.connection, key_id)
            store.check_grace(f"key {key_id}", until, self.now)
        secret = apikeys.generate(is_test=self.is_test)
        store.rotate(self.connection, key_id, secret, self.now + grace if grace else None)
        self._record("key.rotated", key)
        return key, secret

    def _record(self, action: str, key: ApiKey, details: str = "") -> None:
        subject = f"key {key.id} ({key.name}){details}"
        audit.record(self.connection, self.now, action, subject, self.who)

    def _check_plan(self, name: str, per_minute: int | None, per_day: int | None) -> None:
        plan = self.plans.get(name)
        if plan is None:
            raise UnfitPlan(f"There is no plan {name}. The plans are {', '.join(self.plans)}.")
        if plan.per_minute is None and (per_minute is None or per_day is None):
            raise UnfitPlan(f"The plan {name} needs --per-minute and --per-day.")
        if plan.per_minute is not None and (per_minute, per_day) != (None, None):
            raise UnfitPlan(
                f"The plan {name} has its own figures: leave out --per-minute and --per-day."
            )


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise UnfitName(f"A key's name is 1 to {LONGEST_NAME} printable characters.")
    if apikeys.PREFIX in name:
        raise UnfitName("That looks like a key. Enter the name of its user instead.")
