"""Makes README's pictures of the console: in light, in dark, and as wide as a phone.

Run it as `python -m bench.pictures docs`; it needs Chromium and the packages of the extra
`browser`. The pictures look best where Roboto is installed (Debian: fonts-roboto-unhinted).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.desk import browser, sign_in
from tests.support.service import running

WIDE = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "console-orders": ("#/orders", WIDE),
    "console-figures": ("#/figures", {**WIDE, "color_scheme": "dark"}),
    "console-phone": ("#/orders", PHONE),
    "console-order": ("#/orders/36", {**PHONE, "color_scheme": "dark"}),
}
SETTLED_MS = 700


def main(folder: Path) -> None:
    """Take the pictures of a demo store, and put them into a folder."""
    with (
        tempfile.TemporaryDirectory() as instance,
        running(Path(instance), "--demo") as service,
        browser() as one,
    ):
        issued = service.command("keys", "issue", "Counter", "--plan", "business")
        for name, (place, look) in PICTURES.items():
            page = one.new_context(locale="en-GB", timezone_id="Europe/Berlin", **look).new_page()
            page.goto(service.url)
            sign_in(page, issued.stdout.strip())
            page.evaluate("place => { location.hash = place }", place)
            # Without what is said to somebody who has just signed in.
            page.reload()
            page.wait_for_timeout(SETTLED_MS)
            page.screenshot(path=folder / f"{name}.png")
            page.context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
