"""Makes README's pictures: the console in a browser, and the demo in a terminal.

Run it as `python -m tests.docs.pictures docs`; it needs Chromium and the packages of the extra
`browser`. The console looks best where Roboto is installed (Debian: fonts-roboto-unhinted).
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.support.browser import launched
from tests.support.service import environment_for, launch, running

WIDE = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
SCREENSHOTS: dict[str, tuple[str, dict[str, Any]]] = {
    "console-orders": ("#/orders", WIDE),
    "console-figures": ("#/figures", {**WIDE, "color_scheme": "dark"}),
    "console-phone": ("#/orders", PHONE),
    "console-order": ("#/orders/36", {**PHONE, "color_scheme": "dark"}),
}
SETTLED_MS = 700
TERMINAL_WIDTH = 104
COMMANDS_SHOWN, LINES_SHOWN = 5, 5
# The picture shows this in place of the key, which belongs to a store that is gone.
SHOWN_KEY = "sok_…"
DEMO_PORT = "8080"


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.pictures", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write them")
    folder = parser.parse_args().folder
    draw_terminal(folder / "demo.svg")
    take_screenshots(folder)


def take_screenshots(folder: Path) -> None:
    """Write pictures of the console of a demo store."""
    with (
        tempfile.TemporaryDirectory() as instance,
        running(Path(instance), "--demo") as service,
        launched() as browser,
    ):
        secret = service.command("keys", "issue", "Counter", "--plan", "business").stdout.strip()
        for name, (place, look) in SCREENSHOTS.items():
            page = browser.new_page(locale="en-GB", timezone_id="Europe/Berlin", **look)
            page.goto(service.url)
            page.fill("#key", secret)
            page.click("#sign-in [type=submit]")
            page.wait_for_selector(".results:not([aria-busy]) > *")
            page.evaluate("place => { location.hash = place }", place)
            # Without the greeting after signing in.
            page.reload()
            page.wait_for_timeout(SETTLED_MS)
            page.screenshot(path=folder / f"{name}.png")
            page.close()


def draw_terminal(target: Path) -> None:
    """Write a picture of a terminal in which the demo is started and its lines are tried."""
    console = Console(record=True, width=TERMINAL_WIDTH, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        environment = environment_for(Path(folder), ORDERS_PORT=DEMO_PORT)
        demo = launch(environment, "--demo", log=subprocess.DEVNULL)
        try:
            console.print("[bold green]$[/] python app.py --demo")
            for command in _commands(demo):
                _show(console, command)
        finally:
            demo.terminate()
            demo.communicate()
    picture = console.export_svg(title="Store Orders")
    # The fonts would come from another site; a reader's own will do.
    picture = re.sub(r"@font-face \{[^}]*\}", "", picture)
    target.write_text(picture, encoding="utf-8")


def _commands(demo: subprocess.Popen[str]) -> list[str]:
    commands: list[str] = []
    for line in demo.stdout or ():
        if line.strip().startswith("curl "):
            commands.append(line.strip())
        if len(commands) == COMMANDS_SHOWN:
            break
    return commands


def _show(console: Console, command: str) -> None:
    """Run a curl line and print it with its answer, both cut to fit."""
    shown = re.sub(r"sok_\w+", SHOWN_KEY, command).replace(f"http://127.0.0.1:{DEMO_PORT}", "")
    console.print()
    console.print(f"$ {shown}", style="bold", markup=False, highlight=False)
    done = subprocess.run(
        command + " --silent --retry 5 --retry-connrefused",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    answer = done.stdout.strip().replace("},{", "},\n {").splitlines()
    for line in answer[:LINES_SHOWN]:
        console.print(line, markup=False)
    if len(answer) > LINES_SHOWN:
        console.print(f" … {len(answer) - LINES_SHOWN} more", style="dim")


if __name__ == "__main__":
    main()
