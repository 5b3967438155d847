"""/docs in a real browser: both descriptions, and requests that are tried out with a key."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import expect, violations

pytestmark = pytest.mark.browser

KEY_FIELD = "Value: the API key"
# What Swagger UI's own markup has against it, wherever it is shown: headings skip levels, what
# stands before the operations is in no landmark, two operations' answers have one name, and in
# Safari a long answer can't be scrolled by keyboard.
OF_SWAGGER_UI = {"heading-order", "landmark-unique", "region", "scrollable-region-focusable"}


def shorten(page):
    """Leave two operations in the descriptions, and of each its success and one refusal.

    With all, Swagger UI takes seconds for each step, and axe-core half a minute.
    """

    def answer(route):
        whole = route.fetch()
        short = whole.json()
        short.pop("webhooks", None)
        short["paths"] = {
            path: {"get": methods["get"], "post": methods["post"]}
            for path, methods in short["paths"].items()
            if path.endswith("/orders")
        }
        for methods in short["paths"].values():
            for operation in methods.values():
                operation["responses"] = dict(list(operation["responses"].items())[:2])
        route.fulfill(response=whole, json=short)

    page.route(re.compile(r"/openapi/v\d\.json$"), answer)


def authorize(page, key):
    """Type a key into Swagger UI's dialog."""
    page.get_by_role("button", name="Authorize").click()
    page.get_by_label(KEY_FIELD).fill(key)
    page.get_by_role("button", name="Apply credentials").click()
    page.get_by_role("button", name="Close").last.click()


def open_operation(page, name):
    """Open an operation to be tried out; return it."""
    operation = page.locator(f"[id$='-{name}']")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    return operation


def execute(operation):
    """Send the request; return the row of its answer."""
    operation.get_by_role("button", name="Execute").click()
    return operation.locator(".live-responses-table .response")


def test_both_versions_are_shown_whole(service, visit):
    page = visit(service.url, "/docs")
    for version, begins in (("v1", "1.0.0"), ("v2", "2.0.0")):
        page.get_by_label("Show").select_option(version)
        expect(page.get_by_text(begins)).to_be_visible()
        whole = service.request("GET", f"/openapi/{version}.json").json()
        parts = (*whole["paths"].values(), *whole.get("webhooks", {}).values())
        operations = [name for part in parts for name in part if name != "parameters"]
        expect(page.locator(".opblock")).to_have_count(len(operations))


def test_both_versions_are_tried_out_with_a_key_that_is_stored_nowhere(service, visit):
    key = service.issue()
    page = visit(service.url, "/docs", refusals=[401], before=shorten)
    expect(page).to_have_title("Store Orders API documentation")
    expect(page.get_by_text("Return all orders placed in the store.")).to_be_visible()
    expect(page.get_by_text("1.0.0")).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "en"
    assert f"{service.url}/docs/swagger-ui-bundle.js" in page.requested
    assert f"{service.url}/openapi/v1.json" in page.requested

    page.get_by_role("button", name="Authorize").click()
    field = page.get_by_label(KEY_FIELD)
    assert field.get_attribute("type") == "password"
    assert field.get_attribute("autocomplete") == "off"
    page.get_by_role("button", name="Close").last.click()
    authorize(page, key)
    operation = open_operation(page, "placeOrder")
    first, second = (place(service, operation, key, pet_id) for pet_id in (1, 2))
    assert first != second  # an order that is tried out twice is placed twice

    # The key is kept when the version changes; responses are not.
    page.get_by_label("Show").select_option("version 2 (beta)")
    expect(page.get_by_text("2.0.0")).to_be_visible()
    expect(page.locator(".live-responses-table")).to_have_count(0)
    service.request("POST", "/v2/store/orders", key, json={"petId": 815})
    # Filters are sent only where some are given.
    operation = open_operation(page, "listOrders")
    expect(operation).not_to_contain_text("%2B")
    operation.locator("[data-param-name=placedBefore] input").fill("2126-12-01T00:00:00+01:00")
    answer = execute(operation)
    expect(answer).to_contain_text("200")
    expect(answer).to_contain_text('"petId": 815')
    kept = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
    assert kept == '[{},{},""]'
    assert not [url for url in [page.url, *page.requested] if key in url]

    page.reload()  # the address names the version, and the operation, which is open again
    expect(page.get_by_text("2.0.0")).to_be_visible()
    expect(page.get_by_label("Show")).to_have_value("v2")
    operation = page.locator("[id$='-listOrders']")
    operation.get_by_role("button", name="Try it out").click()
    expect(execute(operation)).to_contain_text("missing_api_key")
    authorize(page, "sok_wrong")
    expect(execute(operation)).to_contain_text("invalid_api_key")


def place(service, operation, key, pet_id):
    """Place an order by trying it out; return its path."""
    operation.get_by_label("Body").fill(f'{{"petId": {pet_id}, "quantity": 3}}')
    answer = execute(operation)
    expect(answer).to_contain_text("201")
    expect(answer).to_contain_text(f'"petId": {pet_id}')
    path = re.search(r"location: (/v\d/store/orders/\d+)", answer.inner_text())[1]
    order = service.request("GET", path, key=key).json()
    assert (order["petId"], order["quantity"]) == (pet_id, 3)
    return path


def test_requests_go_to_the_pages_own_origin_whatever_the_public_address(start, visit):
    public = "http://127.0.0.1:1/api/v1"
    service = start(ORDERS_BASE_URL=public)
    there = service.url.replace("127.0.0.1", "localhost")
    page = visit(there, "/docs", before=shorten)
    said = page.get_by_role("status")
    expect(said).to_contain_text(f"go to this service, at {there}/v1, and are real")
    expect(said).to_contain_text(f"Programs use {public} (Production)")
    authorize(page, service.issue())
    expect(execute(open_operation(page, "listOrders"))).to_contain_text("200")
    assert page.requested[-1] == f"{there}/v1/store/orders"


def test_the_page_works_below_a_path_of_another_server(service, visit):
    def hand_on(route):
        path = route.request.url.removeprefix(f"{service.url}/shop")
        route.fulfill(response=route.fetch(url=service.url + path))

    page = visit(
        service.url,
        "/shop/docs",
        before=lambda page: page.route(f"{service.url}/shop/**", hand_on),
    )
    authorize(page, service.issue())
    expect(execute(open_operation(page, "listOrders"))).to_contain_text("200")
    assert page.requested[-1] == f"{service.url}/shop/v1/store/orders"


def test_an_unknown_version_means_the_first_and_a_failure_to_load_is_shown(service, visit):
    phone = {"width": 320, "height": 640}
    no_version = "/docs?version=<script>alert(1)</script>"
    page = visit(service.url, no_version, refusals=[503], viewport=phone)
    expect(page.get_by_text("1.0.0")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.route("**/openapi/v2.json", lambda route: route.fulfill(status=503))
    page.get_by_label("Show").select_option("version 2 (beta)")
    expect(page.get_by_role("status")).to_have_text(
        "Can't load the description: the service answered 503. Reload the page."
    )


def test_without_scripts_the_page_says_where_the_descriptions_are(service, visit):
    page = visit(service.url, "/docs", java_script_enabled=False)
    expect(page.get_by_role("status")).to_contain_text("both descriptions are available as JSON.")
    page.get_by_role("link", name="Version 2 as JSON").click()
    assert page.url == f"{service.url}/openapi/v2.json"


# axe-core takes seconds for an operation that is open.
@pytest.mark.parametrize(
    ("version", "color_scheme", "name"),
    [
        pytest.param("v1", "light", "placeOrder", marks=pytest.mark.slow),
        ("v2", "dark", "listOrders"),
    ],
)
def test_the_page_is_accessible_except_for_swagger_uis_own_markup(
    service, visit, version, color_scheme, name
):
    page = visit(service.url, f"/docs?version={version}", before=shorten, color_scheme=color_scheme)
    expect(page.get_by_text("Place an order.")).to_be_visible()
    page.get_by_role("button", name="Authorize").click()
    assert rules_broken(page, context=".dialog-ux") <= OF_SWAGGER_UI
    page.get_by_role("button", name="Close").last.click()
    authorize(page, service.issue())
    expect(execute(open_operation(page, name))).to_contain_text("20")
    assert rules_broken(page) <= OF_SWAGGER_UI


def rules_broken(page, **part):
    """Return the names of the rules that the page, or a part of it, breaks."""
    return {each.partition(":")[0] for each in violations(page, **part)}


def test_the_documentation_page_works_by_keyboard(service, visit):
    page = visit(service.url, "/docs", before=shorten)
    page.get_by_role("button", name="Authorize").focus()
    page.keyboard.press("Enter")
    page.keyboard.insert_text(service.issue())
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Close").last.focus()
    page.keyboard.press("Enter")
    operation = page.locator("[id$='-listOrders']")
    operation.locator(".opblock-summary-control").focus()
    page.keyboard.press("Enter")
    operation.get_by_role("button", name="Try it out").focus()
    page.keyboard.press("Enter")
    operation.get_by_role("button", name="Execute").focus()
    page.keyboard.press("Enter")
    expect(operation.locator(".live-responses-table .response")).to_contain_text("200")
