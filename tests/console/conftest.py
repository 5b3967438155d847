"""Fixtures for tests of the console."""

from __future__ import annotations

import pytest

from tests.support.console import desk_shop, sign_in, wait_for_rows


@pytest.fixture(scope="module")
def shop(request, tmp_path_factory, forks):
    """A shop of a file's own, as its `SHOP` says."""
    folder = tmp_path_factory.mktemp("shop") / "instance"
    with desk_shop(folder, forks=forks, **request.module.SHOP) as one:
        yield one


@pytest.fixture
def at_desk(shop, visit):
    """Sign in with a new key, on a visit with these options; return the page."""

    def sit_down(key=(), *, is_clock_ours=False, **options):
        page = visit(shop.url, **options)
        if is_clock_ours:
            page.clock.install()
        page.key_id, page.secret = shop.store.issue(**dict(key))
        sign_in(page, page.secret)
        wait_for_rows(page)
        return page

    return sit_down
