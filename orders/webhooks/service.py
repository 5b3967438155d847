"""The use cases of webhooks: add, change, pause, resume, rotate and remove them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from orders.domain import EventType
from orders.store import audit
from orders.store.apikeys import check_grace
from orders.webhooks import endpoints, sender
from orders.webhooks.addresses import host_of
from orders.webhooks.endpoints import Endpoint, NewEndpoint

# Of types that were added later, receivers know nothing until they ask for them.
DEFAULT_EVENTS = frozenset(
    {EventType.PLACED, EventType.CHANGED, EventType.SHIPPED, EventType.CANCELLED}
)


@dataclass(frozen=True, slots=True)
class WebhookService:
    """The webhooks in one transaction, which the caller opens. All raise EndpointNotFound.

    `who` is for the audit trail: by default, the system's user, who runs a command.
    """

    connection: Connection
    now: datetime
    who: str | None = None

    def add(self, url: str, events: Collection[str], *, allow_private: bool = False) -> Endpoint:
        """Add an endpoint, which starts at the next event, and return it with its secret.

        TooManyEndpoints is raised where there are as many as there may be.
        """
        wanted = _in_order(events or DEFAULT_EVENTS)
        new = NewEndpoint(url, wanted, sender.generate_secret(), allow_private)
        return self._record("webhook.added", endpoints.add(self.connection, new, self.now))

    def remove(self, endpoint_id: int) -> Endpoint:
        endpoint = self._record("webhook.removed", endpoint_id)
        endpoints.remove(self.connection, endpoint_id)
        return endpoint

    def pause(self, endpoint_id: int, because: str) -> Endpoint:
        """Pause an endpoint, unless it is paused already, and return it as it was."""
        endpoint = endpoints.get(self.connection, endpoint_id)
        if endpoints.pause(self.connection, endpoint_id, because, self.now):
            self._record("webhook.paused", endpoint_id)
        return endpoint

    def resume(self, endpoint_id: int, after: int | None) -> Endpoint:
        """Resume an endpoint at once; `after` moves it to just after an event."""
        endpoints.resume(self.connection, endpoint_id, self.now, after)
        return self._record("webhook.resumed", endpoint_id)

    def change_events(self, endpoint_id: int, events: Collection[str]) -> Endpoint:
        endpoints.change_events(self.connection, endpoint_id, _in_order(events))
        return self._record("webhook.changed", endpoint_id)

    def rotate(self, endpoint_id: int, *, force: bool) -> Endpoint:
        """Replace an endpoint's secret, and return it with the new one.

        The previous one signs, too, for a day. One that does so already is ended only by `force`:
        else InGrace is raised.
        """
        endpoint = endpoints.get(self.connection, endpoint_id)
        if not force:
            check_grace(f"webhook {endpoint_id}", endpoint.previous_until, self.now)
        secret, until = sender.generate_secret(), self.now + sender.GRACE
        endpoints.rotate(self.connection, endpoint_id, secret, until)
        return self._record("webhook.rotated", endpoint_id)

    def _record(self, action: str, endpoint_id: int) -> Endpoint:
        endpoint = endpoints.get(self.connection, endpoint_id)
        # The rest of its address may have a secret in it.
        subject = f"webhook {endpoint_id} ({host_of(endpoint.url)})"
        audit.record(self.connection, self.now, action, subject, self.who)
        return endpoint


def _in_order(events: Collection[str]) -> tuple[EventType, ...]:
    return tuple(each for each in EventType if each in events)
