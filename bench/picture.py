"""Makes README's picture: starts a demo in a new folder, tries its lines, draws the terminal.

Run it as `python -m bench.picture docs/demo.svg`.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 104
# What the picture shows in place of the key, which belongs to a store that is gone.
SHOWN_KEY = "sok_…"
LINES_SHOWN = 5


def main(target: Path) -> None:
    """Draw the picture to a file."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ORDERS_INSTANCE": folder, "ORDERS_PORT": "8080"}
        service = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, str(ROOT / "app.py"), "--demo"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            draw(console, service)
        finally:
            service.terminate()
            service.wait()
    picture = console.export_svg(title="Store Orders")
    # The fonts would come from another site; a reader's own will do.
    picture = re.sub(r"@font-face \{[^}]*\}", "", picture)
    target.write_text(picture, encoding="utf-8")


def draw(console: Console, service: subprocess.Popen[str]) -> None:
    """Print the start of the demo, and its lines with their answers."""
    console.print("[bold green]$[/] python app.py --demo")
    commands: list[str] = []
    for line in service.stdout or ():
        if line.strip().startswith("curl "):
            commands.append(line.strip())
        if "See the limits" in line:
            break
    for command in commands[:LINES_SHOWN]:
        show(console, command)


def show(console: Console, command: str) -> None:
    """Run a curl line and print it with its answer, both cut to what fits."""
    shown = re.sub(r"sok_\w+", SHOWN_KEY, command).replace("http://127.0.0.1:8080", "")
    console.print()
    console.print(f"$ {shown}", style="bold", markup=False, highlight=False)
    done = subprocess.run(  # noqa: S602 - a line of the demo's own, as a person pastes it
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
    main(Path(sys.argv[1]))
