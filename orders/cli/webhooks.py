"""`flask webhooks`: add, list, pause, resume, rotate, try and remove webhooks.

`ping` and `redeliver` send from the command's own process, with the same guard and signatures as
the service. All other commands write to the database; the service sees the change within a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from orders.cli import common
from orders.cli.common import open_shop, say, time_text
from orders.domain import EventType
from orders.installation import command
from orders.webhooks import addresses
from orders.webhooks import deliveries as delivery_store
from orders.webhooks import endpoints as store
from orders.webhooks.addresses import InvalidURL, PrivateAddress
from orders.webhooks.deliveries import Delivery, EndpointState
from orders.webhooks.sender import Outcome
from orders.webhooks.service import Trial, WebhookService, check_url

_MOST_SHOWN = 10_000
_Event = click.Choice([each.value for each in EventType])
_webhook_id = click.argument("endpoint_id", metavar="ID", type=common.Id)


@click.group("webhooks", cls=common.StoreGroup)
def webhooks_group() -> None:
    """Add, list, pause, resume, try and remove webhooks."""


@webhooks_group.command("add")
@click.argument("url")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=_Event,
    help="An event to send; may be repeated. Default: placed, changed, shipped and cancelled.",
)
@click.option(
    "--allow-private", is_flag=True, help="Allow http:// and addresses in private networks."
)
def add(url: str, events: tuple[str, ...], allow_private: bool) -> None:
    """Send events to URL, starting with the next one. Prints its secret, only this once."""
    shop = open_shop()
    _check_url(url, allow_private=allow_private)
    with shop.database.write() as connection:
        service = WebhookService(connection, shop.clock.now())
        added = service.add(url, events, allow_private=allow_private)
    wanted = ", ".join(added.events)
    common.say_secret(f"Webhook {added.id} receives {wanted}.", "Its secret", added.secret)


@webhooks_group.command("list")
@common.as_json
def list_webhooks(*, as_json: bool) -> None:
    """List all webhooks and their state, without their secrets."""
    with open_shop().database.read() as connection:
        rows = [_row(each) for each in delivery_store.endpoint_states(connection)]
    nothing = f"There are no webhooks. Add one with `{command('webhooks add URL')}`."
    common.show(rows, nothing, as_json=as_json)


@webhooks_group.command("remove")
@_webhook_id
def remove(endpoint_id: int) -> None:
    """Remove webhook ID and its delivery log."""
    with _webhook_service() as webhooks:
        removed = webhooks.remove(endpoint_id)
    say(f"Webhook {endpoint_id} ({addresses.host_of(removed.url)}) is removed.")


@webhooks_group.command("pause")
@_webhook_id
def pause(endpoint_id: int) -> None:
    """Pause webhook ID. Its events wait until it is resumed."""
    with _webhook_service() as webhooks:
        paused = webhooks.pause(endpoint_id, "paused by command")
    say(f"Webhook {endpoint_id} ({addresses.host_of(paused.url)}) is paused.")


@webhooks_group.command("resume")
@_webhook_id
@click.option(
    "--after",
    type=common.Id,
    metavar="EVENT",
    help="Resume after this event: skip earlier ones, repeat later ones.",
)
def resume(endpoint_id: int, after: int | None) -> None:
    """Resume webhook ID. Waiting events are sent first, with all their attempts again."""
    with _webhook_service() as webhooks:
        position = webhooks.resume(endpoint_id, after).position
    say(f"Webhook {endpoint_id} resumes after event {position}.")


@webhooks_group.command("events")
@_webhook_id
@click.option(
    "--event",
    "events",
    multiple=True,
    required=True,
    type=_Event,
    help="An event to send; may be repeated.",
)
def change_events(endpoint_id: int, events: tuple[str, ...]) -> None:
    """Change the events that webhook ID receives from now on to those named."""
    with _webhook_service() as webhooks:
        changed = webhooks.change_events(endpoint_id, events)
    say(f"Webhook {endpoint_id} receives {', '.join(changed.events)}.")


@webhooks_group.command("rotate")
@_webhook_id
@common.force
def rotate(endpoint_id: int, *, force: bool) -> None:
    """Replace the secret of webhook ID; print the new one. The old one also signs for 24 hours."""
    with _webhook_service() as webhooks:
        secret = webhooks.rotate(endpoint_id, force=force).secret
    common.say_secret(f"Webhook {endpoint_id} has a new secret.", "It", secret)


@webhooks_group.command("deliveries")
@_webhook_id
@click.option(
    "--limit",
    type=click.IntRange(1, _MOST_SHOWN),
    default=20,
    show_default=True,
    help="Show at most this many.",
)
@common.as_json
def deliveries(endpoint_id: int, limit: int, *, as_json: bool) -> None:
    """List the attempts to deliver to webhook ID in the last 30 days, newest first."""
    with open_shop().database.read() as connection:
        store.get(connection, endpoint_id)
        made = delivery_store.latest(connection, endpoint_id, limit)
    rows = [_delivery_row(each) for each in made]
    common.show(rows, f"Nothing has been sent to webhook {endpoint_id} yet.", as_json=as_json)


@webhooks_group.command("redeliver")
@_webhook_id
@click.argument("event_id", metavar="EVENT", type=common.Id)
def redeliver(endpoint_id: int, event_id: int) -> None:
    """Send event EVENT to webhook ID once, now, out of order, and print the outcome."""
    _report(_trial().redeliver(endpoint_id, event_id))


@webhooks_group.command("ping")
@_webhook_id
def ping(endpoint_id: int) -> None:
    """Send a ping to webhook ID now, even if it is paused, and print the outcome."""
    _report(_trial().ping(endpoint_id))


@contextmanager
def _webhook_service() -> Iterator[WebhookService]:
    shop = open_shop()
    with shop.database.write() as connection:
        yield WebhookService(connection, shop.clock.now())


def _check_url(url: str, *, allow_private: bool) -> None:
    try:
        if not check_url(url, allow_private=allow_private):
            host = addresses.host_of(url)
            say(f"{host} can't be resolved right now. Each delivery will try again.")
    except InvalidURL as error:
        raise click.ClickException(str(error)) from None
    except PrivateAddress as error:
        raise click.ClickException(
            f"{error}. Within your own network, --allow-private allows it."
        ) from None


def _trial() -> Trial:
    shop = open_shop()
    return Trial(shop.database, shop.outbox.courier, shop.clock, shop.store_id)


def _report(made: Delivery) -> None:
    if made.outcome != Outcome.DELIVERED:
        answered = (
            f"The endpoint answered {made.status}: {made.answer}" if made.status else made.fault
        )
        raise click.ClickException(f"Not delivered. {answered}.")
    say(f"Delivered: the endpoint answered {made.status} in {made.milliseconds} ms.")


def _row(standing: EndpointState) -> dict[str, object]:
    endpoint = standing.endpoint
    last = standing.last
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "events": [each.value for each in endpoint.events],
        "allowPrivate": endpoint.allow_private,
        "created": time_text(endpoint.created_at),
        "state": standing.state,
        "because": endpoint.paused_because,
        "since": time_text(endpoint.paused_at),
        "nextTry": time_text(None if endpoint.paused_at else endpoint.next_at),
        "after": endpoint.position,
        "behind": standing.behind,
        "refused": standing.refused,
        "lastOutcome": last and last.outcome,
        "lastTry": time_text(last.at if last else None),
    }


def _delivery_row(made: Delivery) -> dict[str, object]:
    return {
        "at": time_text(made.at),
        "event": made.event_id,
        "outcome": made.outcome,
        "status": made.status,
        "ms": made.milliseconds,
        "fault": made.fault,
        "answer": made.answer,
    }
