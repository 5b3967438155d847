"""/docs in a real browser: both descriptions, and requests that are tried out with a key."""

from __future__ import annotations

import pytest
from real_browser import expect

pytestmark = pytest.mark.browser


def test_version_1_is_shown_first(service, visit):
    page = visit(service.url, "/docs")
    expect(page).to_have_title("Store Orders: the interface, to read and to try")
    expect(page.get_by_text("Return all orders placed in the store.")).to_be_visible()
    expect(page.get_by_text("1.0.0")).to_be_visible()


def test_the_page_takes_everything_from_the_service(service, visit):
    page = visit(service.url, "/docs")
    expect(page.get_by_text("Place an order.")).to_be_visible()
    assert f"{service.url}/docs/swagger-ui-bundle.js" in page.requested
    assert f"{service.url}/openapi/v1.json" in page.requested
