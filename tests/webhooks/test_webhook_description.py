"""What the interface description says of webhooks is what is sent."""

from __future__ import annotations

from openapi_schema_validator import OAS30ReadValidator
from openapi_spec_validator import OpenAPIV31SpecValidator

from orders.domain import EventType
from orders.webhooks.description import webhooks

ORDER = {"$ref": "#/components/schemas/Order"}


def described():
    return webhooks(ORDER)


def test_it_has_the_shape_that_openapi_31_gives_it():
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Store Orders", "version": "2.0.0"},
        "webhooks": described(),
        "components": {"schemas": {"Order": {"type": "object"}}},
    }
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_every_type_of_event_is_described():
    assert list(described()) == [each.value for each in EventType]
    names = [each["post"]["operationId"] for each in described().values()]
    assert names == ["onOrderPlaced", "onOrderShipped", "onOrderCancelled", "onOrderImported"]
    for each in described().values():
        assert each["post"]["x-stability"] == "beta"


def test_it_describes_the_headers_and_the_body_that_are_sent(client, hooks, receiver):
    hooks.add(receiver.url)
    client.place()
    hooks.deliver()
    (received,) = receiver.received
    operation = described()[received.json["type"]]["post"]
    assert {each["name"] for each in operation["parameters"]} == {
        name for name in received.headers if name.startswith("webhook-")
    }
    message = operation["requestBody"]["content"]["application/json"]
    assert list(message["schema"]["properties"]) == list(received.json)
    assert message["schema"]["properties"]["data"] == ORDER


def test_its_examples_look_like_real_messages(client, hooks, receiver):
    hooks.add(receiver.url)
    client.place(shipDate="2026-12-01T08:00:00Z")
    client.place()
    client.ship(1)
    client.cancel(2)
    hooks.deliver()
    for received in receiver.received:
        post = described()[received.json["type"]]["post"]
        example = post["requestBody"]["content"]["application/json"]["example"]
        assert list(example) == list(received.json)
        assert example["type"] == received.json["type"]
        sent = received.json["data"]
        shown = {name: example["data"][name] for name in sent}
        assert list(shown) == list(sent)
        assert [shown["status"], shown["complete"]] == [sent["status"], sent["complete"]]


def test_it_is_part_of_the_document_of_version_2(store):
    first, second = (
        store.app.test_client().get(f"/openapi/v{version}.json").get_json() for version in (1, 2)
    )
    assert "x-webhooks" not in first
    assert second["x-webhooks"] == described()
    schema = second["components"]["schemas"]["Order"]
    validator = OAS30ReadValidator(schema)
    for each in second["x-webhooks"].values():
        message = each["post"]["requestBody"]["content"]["application/json"]
        assert list(validator.iter_errors(message["example"]["data"])) == []
        assert set(message["example"]["data"]) == set(schema["properties"])
