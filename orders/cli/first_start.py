"""A start for a person: the first key, the console in a browser, and starting at boot."""

from __future__ import annotations

import html
import logging
import os
import secrets
import shlex
import stat
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import click
from flask.cli import with_appcontext

from orders import installation, system
from orders.apikeys import ADMIN, SCOPES
from orders.cli.common import PlainCommand, current_shop, say
from orders.settings import Settings, has_screen, in_environment
from orders.shop import Shop
from orders.store import apikeys as key_store
from orders.store.apikeys import NewKey
from orders.web.api import OrdersFlask
from orders.web.monitoring import health
from orders.web.pages import handover

log = logging.getLogger(__name__)

OWNER = "owner"
PLAN = "business"
_SECONDS_TO_OPEN = 10.0
# As a last resort, webbrowser starts one of these in the terminal. The console does not work there.
_TEXT_BROWSERS = {"www-browser", "links", "elinks", "lynx", "w3m"}
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>Store Orders</title>
<p><a href="{address}">Open Store Orders</a></p>
"""


def is_by_a_person(settings: Settings) -> bool:
    """Return whether a start opens the console without --open: after a double-click."""
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    is_supervised = bool(settings.notify_socket)
    return installation.IS_SINGLE_FILE and not is_supervised and (has_terminal or has_screen())


def issuing_command(settings: Settings) -> str:
    """Return the command that issues a key for this service, as it is typed where it runs."""
    command = installation.command(f"keys issue {OWNER} --plan {PLAN} --scope {ADMIN}")
    if settings.instance == installation.instance_folder() or sys.executable.endswith(".exe"):
        return command
    return f"ORDERS_INSTANCE={shlex.quote(str(settings.instance))} {command}"


def issue_first_key(shop: Shop) -> str | None:
    """Issue and print the store's first key; return it, or None where there is one or has been."""
    try:
        # One transaction: of several starts and commands, one finds no key.
        with shop.database.write() as connection:
            if key_store.get_all(connection):
                return None
            _, secret = shop.keys(connection).issue(NewKey(OWNER, PLAN, SCOPES))
            _show(secret)
    except OSError as error:  # of the output: with nobody to read it, there is no such key
        log.warning("The first key can't be shown, so there is none yet: %s.", error.strerror)
        return None
    return secret


def _show(secret: str) -> None:
    # Started by a desktop, standard output is the system's journal. The browser has the key.
    with suppress(AttributeError, ValueError):
        if stat.S_ISSOCK(os.fstat(sys.stdout.fileno()).st_mode):
            return
    click.echo(
        f"\nThis is the store's first API key, {OWNER}, which is shown only now. "
        f"Keep it like a password.\n\n{secret}\n"
    )


def _address(addresses: list[str]) -> str:
    """Return the address at which a browser of this computer finds the console."""
    address = urlsplit(addresses[0])
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(  # noqa: S104 # nosec B104
        address.hostname or "", address.netloc.rpartition(":")[0]
    )
    return f"{address.scheme}://{host}:{address.port}/"


@contextmanager
def console(app: OrdersFlask, addresses: list[str], secret: str | None) -> Iterator[None]:
    """Open the console in a browser, signed in with the key if there is one.

    The browser takes a page of this user's own, which leads to the address with the code for the
    key: a command line, and so an address on it, can be read by every user of the computer.
    """
    address = _address(addresses)
    if secret is None:
        _open(address, address)
        yield
        return
    page = _private_page(app.shop.settings.instance)
    now = app.shop.clock.monotonic()
    code = handover.offer(app, now, secret, lambda: page.unlink(missing_ok=True))
    try:
        page.write_text(_PAGE.format(address=html.escape(f"{address}#key={code}")), "utf-8")
        _open(page.as_uri(), address)
        yield
    finally:
        page.unlink(missing_ok=True)


def open_running(settings: Settings) -> bool:
    """Open the console of the service that runs on this folder; return whether there is one."""
    addresses = health.read(settings.instance).get("addresses")
    if not addresses:
        return False
    address = _address(addresses)
    log.info("The service is running already, on %s.", address)
    _open(address, address).join(_SECONDS_TO_OPEN)
    return True


def _private_page(instance: Path) -> Path:
    # In the home itself: browsers that are confined (as snaps) see nothing hidden, nor /tmp.
    with suppress(OSError, RuntimeError):
        return _private_page_in(Path.home())
    return _private_page_in(instance)


def _private_page_in(folder: Path) -> Path:
    for left in folder.glob("store-orders-opens-*.html"):  # by a start that was killed
        with suppress(OSError):
            left.unlink()
    page = folder / f"store-orders-opens-{secrets.token_hex(8)}.html"
    system.make_private_file(page)
    return page


def _open(target: str, address: str) -> threading.Thread:
    # In the background: some browsers are waited for until they are closed.

    def run() -> None:
        opened = False
        with suppress(webbrowser.Error, OSError):
            browser = webbrowser.get()
            is_for_text = getattr(browser, "name", "") in _TEXT_BROWSERS
            opened = not is_for_text and browser.open(target)
        if not opened:
            log.warning("No browser could be opened. Open %s yourself.", address)

    opening = threading.Thread(target=run, name="browser", daemon=True)
    opening.start()
    return opening


@click.command("at-boot", cls=PlainCommand)
@click.option("--remove", is_flag=True, help="Undo it, and stop that service.")
@with_appcontext
def at_boot(*, remove: bool) -> None:
    """Start the service whenever the computer starts, or you log in."""
    if remove:
        say(system.remove_at_boot())
        return
    folder = current_shop().settings.instance
    system.make_private_folder(folder)
    say(system.install_at_boot(installation.service_command(), folder))
    say(f"Undo: {installation.command('at-boot --remove')}")
    if own := in_environment():
        say(
            f"It does not get {', '.join(own)} from this shell's environment. "
            f"Put what it needs into {folder / 'config.toml'}."
        )
