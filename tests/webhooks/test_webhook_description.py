"""The OpenAPI document describes the webhook messages that are sent."""

from __future__ import annotations

from openapi_schema_validator import OAS31Validator

from orders.domain import PERSONAL, EventType, name_in_api
from tests.support.commands import said


def test_each_message_is_described_as_it_is_sent(store, client, hooks, receiver):
    hooks.add(receiver.url, *EventType)
    client.place(shipDate="2026-12-01T08:00:00Z")
    client.place()
    client.ship(1)
    client.cancel(2)
    hooks.deliver()
    assert said(store, "webhooks", "ping", "1")
    document = client.get("/openapi/v2.json").get_json()
    operations = {name: each["post"] for name, each in document["webhooks"].items()}
    assert list(operations) == [*(each.value for each in EventType), "ping"]
    names = [each["operationId"] for each in operations.values()]
    kinds = ("Placed", "Changed", "Shipped", "Cancelled", "Reopened", "Imported", "Forgotten")
    assert names == [*(f"onOrder{kind}" for kind in kinds), "onPing"]
    assert "ping" in {received.json["type"] for received in receiver.received}
    for received in receiver.received:
        operation = operations[received.json["type"]]
        assert {each["name"] for each in operation["parameters"] if each.get("required")} == {
            name for name in received.headers if name.startswith("webhook-")
        }
        message = operation["requestBody"]["content"]["application/json"]
        assert (
            list(message["schema"]["properties"]) == list(message["example"]) == list(received.json)
        )
        assert message["example"]["type"] == received.json["type"]
        if received.json["type"] == "ping":
            assert list(message["example"]["data"]) == list(received.json["data"])
            assert received.headers["webhook-id"].startswith("ping_")
            continue
        assert message["schema"]["properties"]["data"] == {"$ref": "#/components/schemas/Order"}
        event_id = int(received.headers["webhook-id"].rpartition("_")[2])
        feed = client.get(f"/v2/store/events?after={event_id - 1}&limit=1").get_json()["events"]
        assert (feed[0]["type"], feed[0]["order"]) == (received.json["type"], received.json["data"])
        shown, sent = message["example"]["data"], received.json["data"]
        assert [name for name in shown if name in sent] == list(sent)
        assert [shown["status"], shown["complete"]] == [sent["status"], sent["complete"]]


def test_it_is_part_of_the_document_of_version_2(store):
    first, second = (
        store.app.test_client().get(f"/openapi/v{version}.json").get_json() for version in (1, 2)
    )
    assert "webhooks" not in first
    schema = second["components"]["schemas"]["Order"]
    for name, each in second["webhooks"].items():
        assert each["post"]["x-stability"] == "beta"
        if name == "ping":
            continue
        order = each["post"]["requestBody"]["content"]["application/json"]["example"]["data"]
        assert list(OAS31Validator(schema).iter_errors(order)) == []
        absent = set() if name == EventType.SHIPPED else {"tracking"}
        if name == EventType.FORGOTTEN:
            absent = {*map(name_in_api, PERSONAL)}
        assert set(order) == set(schema["properties"]) - absent
