"""`store-orders`, `python -m orders` and `python app.py`: serve, or run a command."""

from __future__ import annotations

import gc


def main() -> None:
    """Run what the command line says, and end this process."""
    # Until it serves, or a command runs. Passes over all that is imported, of which next to
    # nothing is garbage, would be a tenth of the start.
    gc.disable()
    from orders import installation, system
    from orders.application import program

    system.write_utf8()
    if installation.IS_SINGLE_FILE:
        system.spare_other_programs()

    program.main()


if __name__ == "__main__":
    main()
