"""`flask audit`: who did what to keys, webhooks and the store."""

from __future__ import annotations

import click
from flask.cli import with_appcontext

from orders.cli.common import PlainCommand, as_json, open_shop, show, time_text
from orders.store import audit as trail


@click.command("audit", cls=PlainCommand)
@as_json
@with_appcontext
def audit(*, as_json: bool) -> None:
    """List who did what to keys, webhooks and the store, and when, the oldest first."""
    with open_shop().database.read() as connection:
        acts = trail.get_all(connection)
    rows: list[dict[str, object]] = [
        {"at": time_text(act.at), "who": act.who, "action": act.action, "subject": act.subject}
        for act in acts
    ]
    show(rows, "Nothing has been done to keys, webhooks or the store yet.", as_json=as_json)
