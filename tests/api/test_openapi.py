"""The OpenAPI document of version 1: sound, whole, and of the code that answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from openapi_schema_validator import OAS30ReadValidator
from openapi_spec_validator import validate

from orders.web.refusals import CODES
from tests.support.clocks import SetClock
from tests.support.stores import Store

COMMON = {"401", "429", "500", "503"}
BODY = {"400", "413", "415", "422"}
# operationId: path, method, its statuses beyond the common ones, marker.
OPERATIONS = {
    "listOrders": ("/store/orders", "get", {"200", "304"}, None),
    "cancelOrder": ("/store/orders/{orderId}", "delete", {"204", "403", "404", "409"}, "beta"),
    "placeOrder": ("/store/orders", "post", {"201", "403", *BODY}, "experimental"),
    "getOrder": ("/store/orders/{orderId}", "get", {"200", "304", "404"}, "experimental"),
    "shipOrder": (
        "/store/orders/{orderId}/ship",
        "post",
        {"200", "403", "404", "409", *BODY},
        "experimental",
    ),
    "getPet": ("/pets/{petId}", "get", {"200", "404"}, None),
}
ON_EVERY_RESPONSE = {
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "RateLimit",
    "RateLimit-Policy",
    "X-Request-Id",
    "Cache-Control",
}


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return document_of(tmp_path_factory.mktemp("instance"))


def document_of(folder, **settings):
    from orders.settings import Settings

    store = Store(replace(Settings(instance=folder), **settings), SetClock())
    response = store.app.test_client().get("/openapi/v1.json")
    assert response.status_code == 200
    return response.get_json()


def operations(document):
    return {
        told["operationId"]: (path, method, told)
        for path, item in document["paths"].items()
        for method, told in item.items()
        if isinstance(told, dict)
    }


def schema_of(document, schema):
    return {**schema, "components": document["components"]}


def test_it_is_an_openapi_document_of_version_1(document):
    validate(document)
    assert document["openapi"] == "3.0.3"
    assert document["info"]["version"] == "1.0.0"
    assert document["security"] == [{"bearer": []}]
    scheme = document["components"]["securitySchemes"]["bearer"]
    assert scheme == {"type": "http", "scheme": "bearer"}


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_an_operation_is_described_as_agreed(document, operation_id):
    path, method, statuses, marker = OPERATIONS[operation_id]
    found_path, found_method, told = operations(document)[operation_id]
    assert (found_path, found_method) == (path, method)
    assert set(told["responses"]) == statuses | COMMON
    assert told.get("x-stability") == marker


def test_there_are_no_other_operations(document):
    assert set(operations(document)) == set(OPERATIONS)


def test_there_are_the_tags_that_operations_have_and_no_others(document):
    assert document["tags"] == [{"name": "orders"}, {"name": "pets"}]


def test_the_pets_are_deprecated_with_a_sunset(document, tmp_path):
    _, _, told = operations(document)["getPet"]
    assert told["deprecated"] is True
    assert told["x-deprecated-sunset"] == "2030-12-05"
    assert [
        name for name, (_, _, each) in operations(document).items() if "deprecated" in each
    ] == ["getPet"]


def test_every_response_has_the_headers_of_every_response(document):
    headers = document["components"]["headers"]
    assert all(headers[name]["required"] for name in ON_EVERY_RESPONSE)
    for _, _, told in operations(document).values():
        for response in told["responses"].values():
            assert set(response["headers"]) >= ON_EVERY_RESPONSE


def test_every_body_has_an_example_that_fits_its_schema(document):
    for operation_id, (_, _, told) in operations(document).items():
        for status, response in told["responses"].items():
            if status in {"204", "304"}:
                assert "content" not in response
                continue
            content = response["content"]["application/json"]
            examples = [each["value"] for each in content.get("examples", {}).values()]
            examples += [content["example"]] if "example" in content else []
            assert examples, (operation_id, status)
            validator = OAS30ReadValidator(schema_of(document, content["schema"]))
            for example in examples:
                validator.validate(example)


def test_every_request_body_has_an_example_that_fits_its_schema(document):
    for operation_id in ("placeOrder", "shipOrder"):
        _, _, told = operations(document)[operation_id]
        content = told["requestBody"]["content"]["application/json"]
        schema = schema_of(document, content["schema"])
        OAS30ReadValidator(schema).validate(content["example"])
        assert told["requestBody"]["required"] is (operation_id == "placeOrder")


def test_the_codes_are_an_enum_of_version_1(document):
    error = document["components"]["schemas"]["Error"]
    assert error["properties"]["code"]["enum"] == [
        code for code in CODES if code != "order_already_cancelled"
    ]
    assert error["required"] == ["code", "message", "status"]


def test_the_schemas_have_their_names_and_fields(document):
    schemas = document["components"]["schemas"]
    assert set(schemas) == {"Order", "NewOrder", "Pet", "Error", "Shipment"}
    assert list(schemas["Order"]["properties"]) == [
        "id",
        "petId",
        "quantity",
        "shipDate",
        "complete",
    ]
    assert "required" not in schemas["Order"]
    assert schemas["NewOrder"]["required"] == ["petId"]
    for name, field in (("Order", "id"), ("Order", "petId"), ("NewOrder", "petId"), ("Pet", "id")):
        assert schemas[name]["properties"][field]["format"] == "int64"


def test_the_servers_are_the_configured_ones(document, tmp_path):
    assert [each["url"] for each in document["servers"]] == ["http://127.0.0.1:8080/v1"]
    configured = document_of(
        tmp_path,
        base_url="https://orders.example.com/v1",
        staging_base_url="https://staging.example.com/shop/v1",
    )
    assert [each["url"] for each in configured["servers"]] == [
        "https://orders.example.com/v1",
        "https://staging.example.com/shop/v1",
    ]
