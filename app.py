"""In a checkout: `python app.py` is `store-orders`, and `flask …` finds `create_app` here.

Nothing imports this file.
"""

from __future__ import annotations

from orders.__main__ import main

if __name__ == "__main__":
    main()
else:
    from orders.application import create_app  # noqa: F401 - for `flask`
