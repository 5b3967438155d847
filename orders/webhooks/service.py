"""The use cases of webhooks: add, change, pause, resume, rotate, try and remove them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from orders.apikeys import ADMIN
from orders.clock import Clock
from orders.domain import EventType, Expected
from orders.store import audit
from orders.store.apikeys import ApiKey, check_grace
from orders.store.database.database import Database
from orders.webhooks import addresses, deliveries, endpoints, sender
from orders.webhooks.addresses import InvalidURL, PrivateAddress, host_of
from orders.webhooks.deliveries import Attempt, Delivery, EndpointState
from orders.webhooks.endpoints import Endpoint, EndpointNotFound, NewEndpoint
from orders.webhooks.outbox import Courier
from orders.webhooks.sender import Message, Outcome

# Types that were added later are only sent to receivers that ask for them.
DEFAULT_EVENTS = frozenset(
    {EventType.PLACED, EventType.CHANGED, EventType.SHIPPED, EventType.CANCELLED}
)


@dataclass(frozen=True, slots=True)
class WebhookService:
    """The webhooks in one transaction, which the caller opens. All raise EndpointNotFound.

    `actor` is the key by which somebody acts over the API: unless its scopes have admin, there are
    only the endpoints that it added. Without one, a command is run by the system's user.
    """

    connection: Connection
    now: datetime
    actor: ApiKey | None = None

    def get(self, endpoint_id: int) -> Endpoint:
        """Return an endpoint that the actor may see."""
        endpoint = endpoints.get(self.connection, endpoint_id)
        if not self._may_see(endpoint):
            raise EndpointNotFound(endpoint_id)
        return endpoint

    def states(self) -> list[EndpointState]:
        """Return the endpoints that the actor may see, each with its state."""
        states = deliveries.endpoint_states(self.connection)
        return [each for each in states if self._may_see(each.endpoint)]

    def state(self, endpoint_id: int) -> EndpointState:
        """Return an endpoint's state."""
        return deliveries.endpoint_state(self.connection, self.get(endpoint_id))

    def attempts(self, endpoint_id: int, before: int | None, limit: int) -> list[Attempt]:
        """Return the attempts at deliveries to an endpoint, the newest first."""
        self.get(endpoint_id)
        return deliveries.attempts(self.connection, endpoint_id, before, limit)

    def add(self, url: str, events: Collection[str], *, allow_private: bool = False) -> Endpoint:
        """Add an endpoint, which starts at the next event, and return it with its secret.

        TooManyEndpoints is raised where there are as many as there may be.
        """
        self._check_places()
        wanted = _in_order(events or DEFAULT_EVENTS)
        added_by = self.actor.id if self.actor else None
        new = NewEndpoint(url, wanted, sender.generate_secret(), allow_private, added_by)
        return self._record("webhook.added", endpoints.add(self.connection, new, self.now))

    def remove(self, endpoint_id: int) -> Endpoint:
        self.get(endpoint_id)
        endpoint = self._record("webhook.removed", endpoint_id)
        endpoints.remove(self.connection, endpoint_id)
        return endpoint

    def pause(self, endpoint_id: int, because: str) -> Endpoint:
        """Pause an endpoint, unless it is paused already, and return it as it was."""
        endpoint = self.get(endpoint_id)
        if endpoints.pause(self.connection, endpoint_id, because, self.now):
            self._record("webhook.paused", endpoint_id)
        return endpoint

    def resume(self, endpoint_id: int, after: int | None) -> Endpoint:
        """Resume an endpoint at once; `after` moves it to just after an event."""
        self.get(endpoint_id)
        endpoints.resume(self.connection, endpoint_id, self.now, after)
        return self._record("webhook.resumed", endpoint_id)

    def change_events(self, endpoint_id: int, events: Collection[str]) -> Endpoint:
        self.get(endpoint_id)
        endpoints.change_events(self.connection, endpoint_id, _in_order(events))
        return self._record("webhook.changed", endpoint_id)

    def rotate(self, endpoint_id: int, *, force: bool) -> Endpoint:
        """Replace an endpoint's secret, and return it with the new one.

        The previous one signs, too, for a day. One that does so already is ended only by `force`:
        else InGrace is raised.
        """
        endpoint = self.get(endpoint_id)
        if not force:
            check_grace(f"webhook {endpoint_id}", endpoint.previous_until, self.now)
        secret, until = sender.generate_secret(), self.now + sender.GRACE
        endpoints.rotate(self.connection, endpoint_id, secret, until)
        return self._record("webhook.rotated", endpoint_id)

    def log_attempt(self, action: str, made: Delivery) -> None:
        """Record a manual attempt and its consequences."""
        deliveries.log_delivery(self.connection, made)
        if endpoints.find(self.connection, made.endpoint_id) is None:
            return  # removed meanwhile
        self._record(action, made.endpoint_id)
        if made.event_id is not None and made.outcome == Outcome.DELIVERED:
            deliveries.forget_refused(self.connection, made.endpoint_id, made.event_id)
        elif made.event_id is not None and made.outcome == Outcome.GONE:
            self.pause(made.endpoint_id, sender.GONE)

    def _check_places(self) -> None:
        actor = self.actor
        if actor is None or ADMIN in actor.scopes:
            return
        if endpoints.count_of_key(self.connection, actor.id) >= endpoints.MAX_OF_A_KEY:
            raise endpoints.TooManyOfKey

    def _may_see(self, endpoint: Endpoint) -> bool:
        actor = self.actor
        return actor is None or ADMIN in actor.scopes or endpoint.added_by == actor.id

    def _record(self, action: str, endpoint_id: int) -> Endpoint:
        endpoint = endpoints.get(self.connection, endpoint_id)
        # The rest of its address may have a secret in it.
        subject = f"webhook {endpoint_id} ({host_of(endpoint.url)})"
        audit.record(self.connection, self.now, action, subject, audit.name_of(self.actor))
        return endpoint


def _in_order(events: Collection[str]) -> tuple[EventType, ...]:
    return tuple(each for each in EventType if each in events)


# A name whose servers don't answer must not hold up the adding of a webhook.
_RESOLVE_SECONDS = 3.0


class UnfitURL(Expected):
    """A URL that can't be that of a webhook which is added over the API. The message says why."""


def check_public_url(url: str) -> None:
    """Raise UnfitURL unless a URL is of https and its addresses, as far as known, are public."""
    try:
        check_url(url)
    except (InvalidURL, PrivateAddress) as error:
        reason = str(error).split(" For your own network")[0]
        raise UnfitURL(f"is not one for a webhook: {reason.rstrip('.')}") from None


def check_url(url: str, *, allow_private: bool = False) -> bool:
    """Return whether a URL's host can be resolved now: if not, each delivery tries again.

    InvalidURL or PrivateAddress is raised where nothing may be sent to it.
    """
    target = addresses.parse_url(url, allow_private=allow_private)
    if allow_private:
        return True
    try:
        found = addresses.resolve_within(target.host, target.port, _RESOLVE_SECONDS)
    except OSError:  # also of the time that is over
        return False
    addresses.check_all(target.host, found)
    return True


@dataclass(frozen=True, slots=True)
class Trial:
    """Sends to an endpoint by hand, out of order, with the guard and the signatures of deliveries.

    `actor` is as in `WebhookService`. The transactions are short: none is open while it sends.
    """

    database: Database
    courier: Courier
    clock: Clock
    store_id: str
    actor: ApiKey | None = None

    def ping(self, endpoint_id: int) -> Delivery:
        """Send a ping, even if the endpoint is paused, and return the outcome."""
        with self.database.read() as connection:
            endpoint = self._service(connection).get(endpoint_id)
        message = Message.ping(endpoint_id, self.store_id, self.clock.now())
        return self._send("webhook.pinged", endpoint, message, None)

    def redeliver(self, endpoint_id: int, event_id: int) -> Delivery:
        """Send an event once, and return the outcome; EventNotFound may be raised."""
        return self.prepare_redelivery(endpoint_id, event_id)()

    def prepare_redelivery(self, endpoint_id: int, event_id: int) -> Callable[[], Delivery]:
        """Return a function that sends an event once; may raise EventNotFound."""
        with self.database.read() as connection:
            endpoint = self._service(connection).get(endpoint_id)
            event = deliveries.event(connection, event_id)
        message = Message.of_event(event, self.store_id)
        return lambda: self._send("webhook.redelivered", endpoint, message, event_id)

    def _send(
        self, action: str, endpoint: Endpoint, message: Message, event_id: int | None
    ) -> Delivery:
        made = self.courier.attempt(endpoint, message, event_id)
        with self.database.write() as connection:
            self._service(connection).log_attempt(action, made)
        return made

    def _service(self, connection: Connection) -> WebhookService:
        return WebhookService(connection, self.clock.now(), self.actor)
