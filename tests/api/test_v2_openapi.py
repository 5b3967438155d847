"""The OpenAPI document of version 2: sound, whole, and of the code that answers."""

from __future__ import annotations

import pytest
from openapi_schema_validator import OAS30ReadValidator
from openapi_spec_validator import validate

from orders.settings import Settings
from orders.web.api import PROTECTION
from orders.web.refusals import CODES
from tests.support.clocks import SetClock
from tests.support.stores import Store

COMMON = {"401", "429", "500", "503"}
BODY = {"400", "413", "415", "422"}
ORDERS, ORDER = "/store/orders", "/store/orders/{orderId}"
# operationId: path, method, its statuses beyond the common ones, its query parameters.
LISTED = ["status", "petId", "reference", "complete", "placedFrom", "placedBefore", "shipsFrom"]
OPERATIONS = {
    "listOrders": (
        *(ORDERS, "get", {"200", "304", "422"}),
        [*LISTED, "shipsBefore", "sort", "limit", "after"],
    ),
    "placeOrder": (ORDERS, "post", {"201", "403", *BODY}, []),
    "getOrder": (ORDER, "get", {"200", "304", "404"}, []),
    "cancelOrder": (ORDER, "delete", {"204", "403", "404", "409"}, []),
    "shipOrder": (f"{ORDER}/ship", "post", {"200", "403", "404", "409", *BODY}, []),
    "listOrderEvents": (f"{ORDER}/events", "get", {"200", "404"}, []),
    "listEvents": ("/store/events", "get", {"200", "422"}, ["after", "limit"]),
    "getStats": ("/store/stats", "get", {"200", "422"}, ["days"]),
    "getUsage": ("/usage", "get", {"200"}, []),
}


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    store = Store(Settings(instance=tmp_path_factory.mktemp("instance")), SetClock())
    return store.app.test_client().get("/openapi/v2.json").get_json()


def operations(document):
    return {
        told["operationId"]: (path, method, told)
        for path, item in document["paths"].items()
        for method, told in item.items()
        if isinstance(told, dict)
    }


def test_it_is_an_openapi_document_of_version_2(document):
    validate(document)
    assert (document["openapi"], document["info"]["version"]) == ("3.0.3", "2.0.0")
    assert [each["url"] for each in document["servers"]] == ["http://127.0.0.1:8080/v2"]


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_an_operation_is_described_as_agreed(document, operation_id):
    path, method, statuses, parameters = OPERATIONS[operation_id]
    found_path, found_method, told = operations(document)[operation_id]
    assert (found_path, found_method) == (path, method)
    assert set(told["responses"]) == statuses | COMMON
    assert told["x-stability"] == "beta"
    named = [each["name"] for each in told.get("parameters", []) if each["in"] == "query"]
    assert named == parameters


def test_there_are_no_other_operations(document):
    assert set(operations(document)) == set(OPERATIONS)


def test_every_example_fits_its_schema(document):
    for operation_id, (_, _, told) in operations(document).items():
        bodies = [*told["responses"].values(), told.get("requestBody", {})]
        for each in bodies:
            content = each.get("content", {}).get("application/json", {})
            examples = [one["value"] for one in content.get("examples", {}).values()]
            examples += [content["example"]] if "example" in content else []
            assert bool(examples) == bool(content), operation_id
            for example in examples:
                schema = {**content["schema"], "components": document["components"]}
                OAS30ReadValidator(schema).validate(example)


def test_the_codes_are_an_enum_of_version_2(document):
    error = document["components"]["schemas"]["Error"]
    assert error["properties"]["code"]["enum"] == [
        code for code in CODES if code != "pet_not_found"
    ]
    _, _, ship = operations(document)["shipOrder"]
    refused = ship["responses"]["409"]["content"]["application/json"]["examples"]
    assert set(refused) == {"order_already_shipped", "order_already_cancelled"}


def test_the_schemas_have_their_names_and_fields(document):
    schemas = document["components"]["schemas"]
    assert list(schemas["Order"]["properties"]) == [
        *("id", "petId", "quantity", "shipDate", "complete"),
        *("status", "placedAt", "updatedAt", "reference"),
    ]
    assert list(schemas["NewOrder"]["properties"]) == ["petId", "quantity", "shipDate", "reference"]
    assert schemas["NewOrder"]["required"] == ["petId"]
    assert set(schemas["Event"]["required"]) == set(schemas["Event"]["properties"])
    assert schemas["Event"]["properties"]["requestId"]["nullable"] is True
    assert "Pet" not in schemas
    assert "Sunset" not in document["components"]["headers"]


def test_the_answers_fit_the_document(document, client_v2):
    client_v2.place(7, reference="R-1", shipDate="2026-12-24T08:00:00Z")
    client_v2.place()
    client_v2.ship(1)
    client_v2.cancel(2)
    for operation_id, path in {
        "listOrders": "/store/orders?limit=1",
        "getOrder": "/store/orders/1",
        "listOrderEvents": "/store/orders/2/events",
        "listEvents": "/store/events?limit=3",
        "getStats": "/store/stats",
        "getUsage": "/usage",
    }.items():
        _, _, told = operations(document)[operation_id]
        response = client_v2.get(f"/v2{path}")
        schema = told["responses"]["200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": document["components"]}
        assert response.status_code == 200
        OAS30ReadValidator(whole).validate(response.get_json())
        # Those of PROTECTION are for browsers that stray to the API.
        named = set(response.headers.keys()) - {"Content-Type", "Content-Length", *PROTECTION}
        assert named <= set(told["responses"]["200"]["headers"])
